"""Tokens of every format ever released: they open, and are written so, forever.

Each `golden/*.token.json` is a token with its ring, its request and its second, beside
the journal that it must open to, as `Journal.dumps` writes it. A change of the format
adds a new token under a new number, and leaves these alone. The format leaves to the
writer how answers are deflated: `-deflated` are tokens from when short answers were
deflated, and are for opening only; so are `-everything`, with content now written
otherwise: started steps as entries, winners without a tag.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import attrs
import pytest

from effectmcp.engine import Entry, Journal
from effectmcp.state import BoundCall, Claims, Keys, Sealer
from effectmcp.state.codec import KINDS, LEVEL, TAGS

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.name.partition(".")[0] for path in GOLDEN.glob("*.token.json"))

WRITTEN = [name for name in NAMES if not name.endswith(("-deflated", "-everything"))]

golden = pytest.mark.parametrize("name", NAMES)

#: Whether zlib itself deflates. Replacements, such as zlib-ng, return other bytes: then
#: every token opens, and tokens with answers in them look different.
DEFLATES_AS_WE_DID = (
    zlib.compress(b"deflate this and this and that, and this", LEVEL, -15).hex()
    == "4b494dcb492c495528c9c82c5648cc4b41662496e8c08500"
)


def read(name: str) -> tuple[dict[str, Any], Sealer, BoundCall, Claims]:
    """A golden token, how it was sealed, for what, and with what in it."""
    token = json.loads((GOLDEN / f"{name}.token.json").read_text("utf-8"))
    sealer = Sealer(
        keys=Keys(*token["keys"], readable=token["readable"]),
        audience=token["audience"],
    )
    claims = Claims(
        flow_id=bytes.fromhex(token["flow_id"]),
        started=token["started"],
        version=token["version"],
        trace=token["trace"],
        journal=Journal.loads((GOLDEN / f"{name}.journal.json").read_text("utf-8")),
    )
    return token, sealer, BoundCall(**token["call"]), claims


@golden
def test_golden_token_opens(name: str) -> None:
    token, sealer, call, claims = read(name)
    assert sealer.open(token["token"], call, now=token["now"]) == claims


@pytest.mark.parametrize("name", WRITTEN)
def test_golden_token_is_sealed_again_as_it_was(name: str) -> None:
    token, sealer, call, claims = read(name)
    if has_answers(claims.journal) and not DEFLATES_AS_WE_DID:
        pytest.skip(f"zlib {zlib.ZLIB_RUNTIME_VERSION} deflates otherwise")
    assert sealer.seal(claims, call, now=token["now"]) == token["token"]


@golden
def test_golden_token_opens_under_a_ring_that_encrypts(name: str) -> None:
    token, sealer, call, claims = read(name)
    encrypting = attrs.evolve(sealer, keys=Keys(*token["keys"]))
    assert encrypting.open(token["token"], call, now=token["now"]) == claims


def test_golden_tokens_are_of_both_forms_and_say_everything() -> None:
    """Every tag and every kind is in one of them, so their numbers are pinned."""
    all_read = [read(name) for name in NAMES]
    assert {token["token"][:2] for token, *_ in all_read} == {"1e", "1r"}
    recorded = [entry for *_, claims in all_read for entry in walk(claims.journal)]
    advice = "run python -m effectmcp_tests.state.write_golden NAME"
    assert {(entry.tag, entry.replayable) for entry in recorded} == {
        one for one in TAGS if one[0] is not None
    }, advice
    assert {entry.key.rpartition("-")[0] for entry in recorded} >= set(KINDS), advice


def walk(journal: Journal) -> list[Entry]:
    found = [*journal.entries, *(one.entry for one in journal.pool)]
    for entry in found:
        for branch in entry.branches:
            found += branch
    return found


def has_answers(journal: Journal) -> bool:
    return any(entry.tag == "accepted" for entry in walk(journal))
