"""`effectmcp token TOKEN`: show the content of a requestState. Needs the keys."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from collections.abc import Iterator
from typing import Any

from ..canonical import parse
from ..engine.journal import Journal
from ..errors import CanonicalError, KeysError, StateError, UsageError
from ..state.codec import Packed, PackingError, sizes, unpack
from ..state.keys import Keys
from ..state.seal import BoundCall, Sealer
from ..transports.default_keys import VARIABLE, keys_of_environment
from .journals import entry_lines
from .printable import printable

__all__ = ["add", "journal_in"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "token",
        help="read a requestState",
        description=f"Show the content of a requestState, with the keys in {VARIABLE}, and"
        " why it would be refused now. Exits with 1 if it would be.",
    )
    parser.add_argument("token", help="the token; - reads it from standard input")
    parser.add_argument(
        "--server", metavar="NAME", help="check whether it belongs to this server"
    )
    parser.add_argument("--tool", metavar="NAME", help="... and of a call of this tool")
    parser.add_argument(
        "--arguments", metavar="JSON", default="{}", help="... with these arguments"
    )
    parser.add_argument("--principal", metavar="USER", help="... by this user")
    parser.set_defaults(run=_run)


def journal_in(token: str, keys: Keys | None = None) -> Journal | None:
    """Return the journal in a token, if `keys` or those in the environment open it."""
    try:
        keys = keys or keys_of_environment()
        return None if keys is None else _unpacked(token, keys).claims.journal
    except (KeysError, StateError):
        return None


def _unpacked(token: str, keys: Keys) -> Packed:
    data, _ = keys.unwrap(token)
    try:
        return unpack(data)
    except PackingError:
        raise StateError("malformed") from None


def _run(options: argparse.Namespace) -> int:
    token = _token(options.token)
    keys = keys_of_environment()
    if keys is None:
        raise KeysError(
            f"{VARIABLE} is not set: states cannot be read without the keys"
        )
    try:
        packed = _unpacked(token, keys)
    except StateError as exc:
        print(f"refused: {_WHY[exc.reason]}")
        return 1
    for line in _lines(packed, len(token)):
        print(printable(line))
    reason = _refused(token, packed, keys, options)
    if reason is None:
        return 0
    print(f"refused: {_WHY[reason]}")
    return 1


def _token(given: str) -> str:
    try:
        token = sys.stdin.read() if given == "-" else given
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8") from None
    if not token.strip():
        raise UsageError("give a token, or - and the token on standard input")
    return token.strip()


_WHY = {
    "malformed": "it is not a state, or was cut or changed",
    "format": "it is of another format, or readable where these keys encrypt",
    "forged": "none of these keys has sealed it",
    "expired": "its time is over; each round has a new one",
    "lifetime": "the call it belongs to began too long ago",
    "future": "it was sealed in the future: clocks differ",
    "audience": "it is of another server",
    "target": "it is of another tool",
    "arguments": "it is of a call with other arguments",
    "principal": "it is another user's",
    "used": "it was used",
}


def _refused(
    token: str, packed: Packed, keys: Keys, options: argparse.Namespace
) -> str | None:
    sealer = Sealer(keys=keys, audience=options.server or "-")
    if options.server is None:
        # Only its times can be checked.
        try:
            sealer.check_times(packed, int(time.time()))
        except StateError as exc:
            return exc.reason
        return None
    if options.tool is None:
        raise UsageError("--server needs --tool, too")
    try:
        arguments = parse(options.arguments)
    except CanonicalError as exc:
        raise UsageError(f"--arguments: {exc}") from None
    if not isinstance(arguments, dict):
        raise UsageError("--arguments: it is not a JSON object")
    call = BoundCall(
        method="tools/call",
        target=options.tool,
        arguments=arguments,
        principal=options.principal,
    )
    try:
        sealer.open(token, call, now=time.time())
    except StateError as exc:
        return exc.reason
    return None


def _lines(packed: Packed, size: int) -> Iterator[str]:
    claims = packed.claims
    journal = claims.journal
    yield f"a state of {size:,} characters, in round {journal.rounds}"
    yield f"flow     {claims.flow_id.hex()}"
    if claims.version is not None:
        yield f"version  {claims.version}"
    if claims.trace is not None:
        yield f"trace    {claims.trace}"
    yield f"began    {_time(claims.started)}"
    yield f"sealed   {_time(packed.issued)}"
    yield f"expires  {_time(packed.expires)}"
    if journal.generation:
        yield f"restarts {journal.generation}"
    for name, version in journal.versions.items():
        yield f"passed   {name} under {version}"
    if journal.entries:
        yield "recorded"
        yield from entry_lines(journal.entries, "  ")
    for key in journal.asked:
        yield f"asked    {key}"
    for one in journal.pool:
        yield f"pooled   {one.path}{one.entry.key}"
    largest = sizes(journal)[:3]
    if largest:
        yield f"largest  {', '.join(f'{key} ({count:,})' for key, count in largest)}"


def _time(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(" ")
