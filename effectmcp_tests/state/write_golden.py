"""Write a golden token with an entry of each kind and tag that no golden token has yet.

    python -m effectmcp_tests.state.write_golden NAME

Run it once, after the kind or the tag has got its number. The token is never written
again: see test_golden.py.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import attrs

from effectmcp.engine import Entry
from effectmcp.engine.effect_table import KINDS as ROWS
from effectmcp.engine.journal import Tag
from effectmcp.state import Keys, Sealer, make_key
from effectmcp.state.codec import EMPTY, KINDS, TAGS

from .journals import CALL, STARTED, claims_of, entry
from .test_golden import GOLDEN, NAMES, read, walk

AUDIENCE: Final = "bookshop"
NOW: Final = STARTED + 90


def missing_entries() -> list[Entry]:
    """Return an entry of each kind and tag that is in no golden token."""
    known = [one for name in NAMES for one in walk(read(name)[3].journal)]
    kinds = {one.key.rpartition("-")[0] for one in known}
    tags = {(one.tag, one.replayable) for one in known}
    tag_of: dict[str, Tag] = {
        row.name: "accepted" if row.is_question else row.tag for row in ROWS.values()
    }
    found = [written(name, tag_of[name]) for name in KINDS if name not in kinds]
    for tag, replayable in TAGS:
        if tag is not None and (tag, replayable) not in tags:
            found.append(written("step", tag, replayable=replayable))
    return found


def written(name: str, tag: Tag, *, replayable: bool = False) -> Entry:
    value = None if tag in EMPTY else {"value": name}
    return attrs.evolve(entry(f"{name}-1", tag, value), replayable=replayable)


def write(name: str) -> str:
    """Write `1e-NAME`; return what to print."""
    entries = missing_entries()
    token, journal = (
        GOLDEN / f"1e-{name}.{part}.json" for part in ("token", "journal")
    )
    if token.exists():
        return f"{token.name} exists. Golden tokens never change: choose another name"
    if not entries:
        return "each kind and each tag is in a golden token already"
    key = make_key(bytes(range(32)))
    claims = claims_of(*entries)
    about: dict[str, Any] = {
        "keys": [key],
        "readable": False,
        "audience": AUDIENCE,
        "call": {
            "method": CALL.method,
            "target": CALL.target,
            "arguments": CALL.arguments,
            "principal": CALL.principal,
        },
        "now": NOW,
        "flow_id": claims.flow_id.hex(),
        "started": claims.started,
        "version": claims.version,
        "trace": claims.trace,
        "token": Sealer(keys=Keys(key), audience=AUDIENCE).seal(claims, CALL, now=NOW),
    }
    token.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    journal.write_bytes(claims.journal.dumps() + b"\n")
    return f"{token.name} and {journal.name} are written: add them to the commit"


if __name__ == "__main__":
    (given,) = sys.argv[1:]
    print(write(given))
