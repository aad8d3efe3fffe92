"""The engine with no MCP at all: a handler played in the terminal.

    python examples/engine_only.py [JOURNAL]

Asks the bookshop's questions. After every answer the journal is saved to a file, so you
may stop at any question (Ctrl-C, or close the terminal) and go on later, in another
process: the handler runs again from the top and is fed the answers it has had.
"""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

from bookshop import order

from effectmcp import Accepted, Confirm, Declined, Elicit
from effectmcp.drivers.sync import advance
from effectmcp.engine import (
    Answer,
    Asked,
    Journal,
    Question,
    Raised,
    Returned,
    Run,
)

TITLE = "Dune"


def ask(question: Question) -> Answer:
    """Ask one question in the terminal: an empty line declines."""
    for problem in question.problems:
        print(f"  ! {problem}")
    match question.effect:
        case Confirm(message=message):
            said = input(f"{message} [y/N] ")
            return Accepted({}) if said.strip().lower() == "y" else Declined()
        case Elicit(message=message, spec=spec):
            content = {}
            print(message)
            for name, schema in spec.schema["properties"].items():
                said = input(f"  {name} ({schema.get('format', schema['type'])}): ")
                if not said:
                    return Declined()
                content[name] = json.loads(said) if _is_number(schema) else said
            return Accepted(content)
        case other:
            raise SystemExit(f"this terminal cannot show {other!r}")


def _is_number(schema: dict[str, str]) -> bool:
    return schema["type"] in ("integer", "number", "boolean")


def load(path: Path) -> tuple[bytes, Journal]:
    """The flow id and journal of a saved flow, or of a new one."""
    if not path.exists():
        return secrets.token_bytes(16), Journal()
    saved = json.loads(path.read_text())
    print(f"(going on from {path}: {len(saved['journal']['entries'])} recorded)")
    return bytes.fromhex(saved["flow_id"]), Journal.loads(json.dumps(saved["journal"]))


def save(path: Path, flow_id: bytes, journal: Journal) -> None:
    """Write beside and rename, so that a crash leaves the old journal or the new."""
    text = json.dumps(
        {"flow_id": flow_id.hex(), "journal": json.loads(journal.dumps())}, indent=1
    )
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def main(path: Path) -> None:
    flow_id, journal = load(path)
    run = Run(order, (TITLE,), flow_id=flow_id, journal=journal)
    stop = advance(run, run.start())
    while isinstance(stop, Asked):
        # One question at a time, so that no answer is lost.
        question = stop.questions[0]
        stop = advance(run, run.answered({question.key: ask(question)}))
        if isinstance(stop, Asked):
            save(path, flow_id, run.journal)
    path.unlink(missing_ok=True)
    match stop:
        case Returned(value):
            print(value)
        case Raised(error):
            raise SystemExit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "order.json"))
    except (KeyboardInterrupt, EOFError):
        print("\n(stopped; run me again to go on)")
