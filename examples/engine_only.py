"""Use the engine without MCP: a handler asks its questions in the terminal.

    python examples/engine_only.py [FILE]

Asks the bookshop's questions. After every answer the flow's journal is saved to a file,
so you may stop at any question (Ctrl-C, or close the terminal) and continue later, in
another process: the handler runs again from the top and is fed its recorded answers.

With keys in the environment the file holds a sealed token instead, as a client would
carry it: the two processes then share a key and nothing else.

    export EFFECTMCP_STATE_KEYS=$(python -c "import secrets; print(secrets.token_urlsafe(32))")
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path

from bookshop import order

from effectmcp import Accepted, Confirm, Declined, Elicit, StateError
from effectmcp.drivers.sync import advance
from effectmcp.engine import (
    Answer,
    Asked,
    Journal,
    JournalError,
    Question,
    Raised,
    Returned,
    Run,
)
from effectmcp.exchange.rounds import begin, resume
from effectmcp.state import BoundCall, Keys, Sealer

TITLE = "Dune"
YES_NO: dict[str, Answer] = {"y": Accepted({}), "n": Declined()}


def ask(question: Question) -> Answer:
    """Ask one question in the terminal."""
    for problem in question.problems:
        print(f"  ! {problem}")
    match question.effect:
        case Confirm(message=message):
            while (said := input(f"{message} [y/n] ").strip().lower()) not in YES_NO:
                print("  ! y or n, please")
            return YES_NO[said]
        case Elicit(message=message, spec=spec):
            content = {}
            print(message)
            for name, schema in spec.schema["properties"].items():
                kind = schema.get("format", schema["type"])
                said = input(f"  {name} ({kind}; an empty line declines): ")
                if not said:
                    return Declined()
                content[name] = json.loads(said) if _is_number(schema) else said
            return Accepted(content)
        case other:
            raise SystemExit(f"this terminal cannot show {other!r}")


def _is_number(schema: dict[str, str]) -> bool:
    return schema["type"] in ("integer", "number", "boolean")


def load(path: Path) -> tuple[bytes, Journal]:
    """Return the flow id and journal of a saved flow, or of a new one."""
    if not path.exists():
        return secrets.token_bytes(16), Journal()
    try:
        saved = json.loads(path.read_text())
        flow_id = bytes.fromhex(saved["flow_id"])
        journal = Journal.loads(json.dumps(saved["journal"]))
    except (ValueError, LookupError, TypeError, JournalError) as exc:
        raise SystemExit(f"{path} holds no saved order ({exc}); delete it") from None
    print(f"(going on from {path}: {len(journal.entries)} recorded)")
    return flow_id, journal


def save(path: Path, flow_id: bytes, journal: Journal) -> None:
    """Write a new file and rename it, so that a crash leaves the old or the new journal."""
    text = json.dumps(
        {"flow_id": flow_id.hex(), "journal": json.loads(journal.dumps())}, indent=1
    )
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def play(path: Path) -> Returned | Raised:
    """Run the flow in one process, and save its journal after each answer."""
    flow_id, journal = load(path)
    run = Run(order, (TITLE,), flow_id=flow_id, journal=journal)
    stop = advance(run, run.start())
    while isinstance(stop, Asked):
        # One question at a time, so that no answer is lost.
        question = stop.questions[0]
        stop = advance(run, run.answered({question.key: ask(question)}))
        if isinstance(stop, Asked):
            save(path, flow_id, run.journal)
    return stop


def play_sealed(path: Path, keys: Keys) -> Returned | Raised:
    """Run each round as if in a separate process, from one token to the next."""
    sealer = Sealer(keys=keys, audience="bookshop")
    call = BoundCall(method="tools/call", target="order", arguments={"title": TITLE})
    answers: dict[str, Answer] = {}
    while True:
        now = time.time()
        if path.exists():
            token = path.read_text()
            round_ = resume(
                order,
                (TITLE,),
                token=token,
                call=call,
                sealer=sealer,
                now=now,
                answers=answers,
            )
        else:
            flow_id = secrets.token_bytes(16)
            round_ = begin(
                order, (TITLE,), call=call, sealer=sealer, flow_id=flow_id, now=now
            )
        round_.stop = stop = advance(round_.run, round_.stop)
        if not isinstance(stop, Asked):
            return stop
        path.write_text(round_.token(now=now))
        answers = {question.key: ask(question) for question in stop.questions}


def main(path: Path) -> None:
    keys = os.environ.get("EFFECTMCP_STATE_KEYS")
    try:
        stop = play_sealed(path, Keys(*keys.split(","))) if keys else play(path)
    except StateError as exc:
        raise SystemExit(f"{exc} ({exc.reason}); delete {path}") from None
    match stop:
        case Returned(value):
            path.unlink(missing_ok=True)
            print(value)
        case Raised(error):
            # The journal stays: run me again, and answer differently.
            raise SystemExit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    if any(argument.startswith("-") for argument in sys.argv[1:]):
        raise SystemExit(__doc__)
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "order.json"))
    except (KeyboardInterrupt, EOFError):
        print("\n(stopped; run me again to continue)")
