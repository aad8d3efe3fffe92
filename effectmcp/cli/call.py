"""`effectmcp call TARGET TOOL key=value …`: call a tool, and answer what it asks."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON, parse
from ..effects import Root
from ..errors import (
    ArgumentsError,
    CanonicalError,
    EffectMCPError,
    ProtocolError,
    UsageError,
)
from .layout import one_line
from .reach import Raw, reach
from .show import show
from .signals import ending
from .terminal import Terminal
from .token import journal_in

if TYPE_CHECKING:
    from ..client import Client, Pending, Result
    from ..state import Keys

__all__ = ["DECLINED", "ERROR", "FAILED", "UNWRITTEN", "add"]

#: The tool says that it failed.
FAILED: Final = 1
#: The server answered with an error, or not at all.
ERROR: Final = 3
#: The user declined or closed a question, and so nothing came of it.
DECLINED: Final = 4
#: A result came, and part of it could not be written.
UNWRITTEN: Final = 5


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "call",
        help="call a tool, and answer what it asks",
        description="Call a tool of a server, ask the user what the server asks, and"
        " print the result. Exits with 0 for a result, 1 for one that says it is an"
        " error, 2 for a wrong command line, 3 for an error of the protocol or of the"
        " connection, 4 where the user declined and nothing came of it, and 5 where the"
        " result could not be written.",
    )
    parser.add_argument(
        "target",
        help="a URL; module:app or path/file.py:app, run in this process; or a command",
    )
    parser.add_argument("name", help="the tool")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="its arguments: texts as they are, everything else as JSON",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--prompt", action="store_true", help="NAME is a prompt, to be got"
    )
    kinds.add_argument(
        "--resource", action="store_true", help="NAME is a URI, to be read"
    )
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="KEY=JSON",
        help="the answer to a question, by its key (repeatable)",
    )
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="a JSON object of such answers"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME: VALUE",
        help="for a URL: a header of each request (repeatable)",
    )
    parser.add_argument(
        "--root", action="append", type=Path, metavar="FOLDER", help="where you work"
    )
    parser.add_argument(
        "--save-to",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where images and other files go (here)",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS")
    parser.add_argument(
        "--trace", action="store_true", help="tell of each round as it happens"
    )
    parser.add_argument(
        "--raw", action="store_true", help="print the messages as they are"
    )
    parser.set_defaults(run=_run, list="arguments")


def _run(options: argparse.Namespace) -> int:
    import trio

    with ending():
        status: int = trio.run(_call, options)
    return status


async def _call(options: argparse.Namespace) -> int:
    channel = reach(options.target, headers_of(options.header))
    check_timeout(options.timeout)
    answers = _answers(options)
    try:
        from ..client import Client
    except ImportError as exc:
        raise UsageError(str(exc)) from None
    terminal = Terminal()
    client = Client(
        Raw(channel) if options.raw else channel,
        # They say what can be asked; who answers is `_Answerer`, a round at a time.
        elicit=lambda form: {},
        open_url=lambda link: True,
        sample=lambda sampling: "",
        roots=[Root(one.resolve().as_uri(), one.name) for one in options.root or ()]
        if options.root
        else None,
        on_progress=terminal.progress,
        on_log=terminal.log,
        round_timeout=options.timeout,
    )
    answerer = _Answerer(client, answers, terminal)
    try:
        async with client:
            # Of an app in this process the keys are at hand.
            keys = getattr(channel, "keys", None)
            result = await _finished(client, options, answerer, terminal, keys)
    except UsageError:
        raise
    except ArgumentsError as exc:
        raise UsageError(str(exc)) from None
    except (EffectMCPError, TimeoutError) as exc:
        terminal.clear()
        words = str(exc) or "it took too long"
        print(one_line(f"effectmcp: {words}"), file=sys.stderr)
        if isinstance(exc, ProtocolError) and exc.data is not None:
            print(json.dumps(exc.data), file=sys.stderr)
        return ERROR
    terminal.clear()
    is_written = show(result, options.save_to)
    if not result.is_error:
        return 0 if is_written else UNWRITTEN
    return DECLINED if answerer.was_refused else FAILED


async def _finished(
    client: Client,
    options: argparse.Namespace,
    answerer: _Answerer,
    terminal: Terminal,
    keys: Keys | None,
) -> Result:
    from ..client import Pending

    method, params = await _request(client, options)
    call = client.start(method, params)
    came = await call.round()
    while isinstance(came, Pending):
        if options.trace:
            _trace_round(came, terminal, keys)
        if came.call.rounds > _MOST_ROUNDS:
            raise UsageError(f"the server asked {_MOST_ROUNDS} times; that is enough")
        responses = await answerer.answer(came)
        if options.trace:
            for key, response in responses.items():
                terminal.say(f"  {key} → {json.dumps(response, ensure_ascii=False)}")
        came = await call.round(responses)
    if options.trace:
        terminal.say(f"round {came.rounds}: done")
    return came


_MOST_ROUNDS: Final = 100


def _trace_round(pending: Pending, terminal: Terminal, keys: Keys | None) -> None:
    state = pending.call.state
    size = "no state" if state is None else f"a state of {len(state):,} characters"
    journal = None if state is None else journal_in(state, keys)
    replayed = ""
    if journal is not None:
        replayed = f", which replays {len(journal.entries)} entries"
    terminal.say(f"round {pending.call.rounds}: {size}{replayed}")
    for key, question in pending.questions.items():
        message = (question.get("params") or {}).get("message", question["method"])
        terminal.say(f"  {key}: {message}")


async def _request(
    client: Client, options: argparse.Namespace
) -> tuple[str, dict[str, JSON]]:
    if options.resource:
        if options.arguments:
            raise UsageError("a resource takes no arguments; they are in its URI")
        return "resources/read", {"uri": options.name}
    if options.prompt:
        texts = dict(_split(one) for one in options.arguments)
        return "prompts/get", {"name": options.name, "arguments": texts}
    schema: Mapping[str, Any] = {}
    if options.arguments:
        tools = {one["name"]: one for one in await client.list_tools()}
        if options.name not in tools:
            known = ", ".join(tools) or "none"
            raise UsageError(f"there is no tool {options.name!r}; there is {known}")
        schema = tools[options.name].get("inputSchema") or {}
    arguments = _arguments(options.arguments, schema)
    return "tools/call", {"name": options.name, "arguments": arguments}


def _split(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise UsageError(f"{text!r}: write NAME=VALUE")
    return name.strip(), value


def _arguments(given: list[str], schema: Mapping[str, Any]) -> dict[str, JSON]:
    """Arguments by the tool's schema: what may be a text is one."""
    properties = schema.get("properties") or {}
    found: dict[str, JSON] = {}
    for one in given:
        name, text = _split(one)
        property_ = properties.get(name)
        if property_ is not None and _takes_text(property_):
            found[name] = text
            continue
        try:
            found[name] = parse(text)
        except CanonicalError:
            found[name] = text  # the server says what it wants instead
    return found


def _takes_text(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if any(map(_takes_text, schema.get("anyOf", ()))):
        return True
    return bool(schema.get("type") == "string" or "enum" in schema or "const" in schema)


#: RFC 9110, 5.1 and 5.5; what stands beyond ASCII there is read in many ways.
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~]*)")


def headers_of(given: list[str]) -> dict[str, str]:
    """Headers as they are given on the command line."""
    found = {}
    for one in given:
        match = _HEADER.fullmatch(one)
        if match is None:
            raise UsageError(f"--header {one!r}: write NAME: VALUE, in plain ASCII")
        found[match[1]] = match[2].strip()
    return found


def check_timeout(seconds: float | None) -> None:
    """Refuse what is no time to wait."""
    if seconds is not None and not seconds > 0:  # NaN is neither
        raise UsageError(f"--timeout {seconds:g}: give seconds, more than 0")


# ---- answers ------------------------------------------------------------------------


def _answers(options: argparse.Namespace) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    if options.answers is not None:
        try:
            found = parse(options.answers.read_bytes())
        except (OSError, CanonicalError) as exc:
            raise UsageError(f"--answers {options.answers}: {exc}") from None
        if not isinstance(found, dict):
            raise UsageError(f"--answers {options.answers}: it is no JSON object")
    for one in options.answer:
        key, text = _split(one)
        try:
            found[key] = parse(text)
        except CanonicalError:
            raise UsageError(
                f"--answer {one}: {text!r} is no JSON; a text needs quotes:"
                f" {key}={json.dumps(text)!r}"
            ) from None
    return found


class _Answerer:
    """Answers a round: from the command line, otherwise from the terminal."""

    def __init__(
        self, client: Client, given: Mapping[str, JSON], terminal: Terminal
    ) -> None:
        self._client = client
        self._given = dict(given)
        self._terminal = terminal
        self._refused = False

    @property
    def was_refused(self) -> bool:
        """Whether something was declined or closed."""
        return self._refused or self._terminal.was_refused

    async def answer(self, pending: Pending) -> dict[str, JSON]:
        """The responses to what is asked.

        Raises:
            UsageError: Nobody is there to ask, and no answer was given.
        """
        found: dict[str, JSON] = {}
        asked: dict[str, Mapping[str, Any]] = {}
        for key, question in pending.questions.items():
            if question["method"] == "roots/list":
                found[key] = await self._client.answering.answer(key, question)
            elif key in self._given:
                # Once: what is asked again did not fit.
                found[key] = self._response(key, question, self._given.pop(key))
            else:
                asked[key] = question
        if not asked:
            return found
        if not Terminal.is_there():
            raise UsageError(_unanswered(asked))
        return {**found, **self._terminal.ask(asked)}

    def _response(self, key: str, question: Mapping[str, Any], given: JSON) -> JSON:
        if isinstance(given, dict) and given.get("action") in _ACTIONS:
            self._refused = self._refused or given["action"] != "accept"
            return given
        if question["method"] == "sampling/createMessage":
            if isinstance(given, dict) and "role" in given:
                return given
            if not isinstance(given, str):
                raise UsageError(
                    f"--answer {key}: a text for the model, or its response"
                )
            content = {"type": "text", "text": given}
            return {"role": "assistant", "content": content, "model": "the user"}
        fields = _fields(question)
        if fields and isinstance(given, dict):
            return {"action": "accept", "content": given}
        if len(fields) == 1:
            return {"action": "accept", "content": {next(iter(fields)): given}}
        # Consent is nothing that one says by mistake.
        if fields or not isinstance(given, bool):
            wanted = (
                f"an object with {', '.join(fields)}" if fields else "true or false"
            )
            raise UsageError(f"--answer {key}: give {wanted}")
        self._refused = self._refused or not given
        if not given:
            return {"action": "decline"}
        is_link = _params(question).get("mode") == "url"
        return {"action": "accept"} if is_link else {"action": "accept", "content": {}}


_ACTIONS: Final = ("accept", "decline", "cancel")


def _params(question: Mapping[str, Any]) -> Mapping[str, Any]:
    params = question.get("params")
    return params if isinstance(params, dict) else {}


def _fields(question: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = _params(question).get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return fields if isinstance(fields, dict) else {}


def _unanswered(asked: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for key, question in asked.items():
        message = (question.get("params") or {}).get("message", question["method"])
        fields = ", ".join(_fields(question)) or "yes or no: true or false"
        lines.append(f"{key} ({fields}): {message!r}")
    return (
        "the server asks, and there is no terminal. Give --answer KEY=JSON for "
        + "; ".join(lines)
    )
