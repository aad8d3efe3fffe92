"""`effectmcp call TARGET TOOL key=value …`: call a tool, and answer its questions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON, parse
from ..client.channels import Channel, LoginFailed
from ..drivers.loops import run
from ..effects.questions import Root
from ..errors import (
    ArgumentsError,
    CanonicalError,
    EffectMCPError,
    ProtocolError,
    UsageError,
)
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.revisions import HANDSHAKES
from .channels import (
    Raw,
    add_version,
    channel_to,
    check_timeout,
    headers_of,
    is_url,
    loop_of,
)
from .given_answers import SamplingDeclined, answers_in, split
from .login_options import add_login, check_unused, oauth_of
from .loop_option import add_loop
from .output import say_error
from .printing import DECLINED, ERROR, FAILED, UNWRITTEN, print_error, print_result
from .schemas import properties_of, takes_text
from .signals import ending, interrupting
from .terminal import Terminal
from .trace import Trace

if TYPE_CHECKING:
    from ..client import Client, Result
    from .user_client import UserClient

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "call",
        help="call a tool, and answer its questions",
        description="Call a tool of a server, ask the user the server's questions, and"
        " print the result. Exits with 0 for a result, 1 if the tool reports an error,"
        " 2 for a wrong command line, 3 for an error of the protocol or of the"
        " connection, 4 if the user declined and there is no result, and 5 if the result"
        " could not be written.",
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
        help="its arguments: strings without quotes, all others as JSON",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--prompt", action="store_true", help="NAME is a prompt, to get")
    kinds.add_argument(
        "--resource", action="store_true", help="NAME is the URI of a resource, to read"
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
        help="the folder for images and other files (the current one)",
    )
    add_version(parser)
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=_WITHOUT,
        metavar="CAPABILITY",
        help="call as a client without this capability (repeatable): %(choices)s",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS")
    parser.add_argument(
        "--trace", action="store_true", help="print each round as it happens"
    )
    parser.add_argument(
        "--show-answers",
        action="store_true",
        help="with --trace, show answers instead of only their types",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="print all messages unchanged, including answers",
    )
    add_loop(parser)
    add_login(parser)
    parser.set_defaults(run=_run, list="arguments")


def _run(options: argparse.Namespace) -> int:
    with ending():
        headers = headers_of(options.header)
        login = partial(oauth_of, options, headers, options.target)
        channel = channel_to(options.target, headers, options.loop, login)
        if not is_url(options.target):
            check_unused(options, "only a URL has one")
        loop = loop_of(channel)
        with interrupting(loop):
            return run(loop, partial(_call, options, channel))


async def _call(options: argparse.Namespace, channel: Channel) -> int:
    check_timeout(options.timeout)
    given = answers_in(options.answer, options.answers)
    try:
        from .user_client import UserClient
    except ImportError as exc:
        raise UsageError(str(exc)) from None
    terminal = Terminal()
    trace = None
    if options.trace:
        trace = Trace(
            terminal.say,
            # An app in this process has keys once it runs.
            keys=lambda: getattr(channel, "keys", None),
            shows_answers=options.show_answers,
        )
    client = UserClient(
        Raw(channel) if options.raw else channel,
        given=given,
        terminal=terminal,
        trace=trace,
        on_progress=terminal.progress,
        on_log=terminal.log,
        rounds=_MOST_ROUNDS,
        round_timeout=options.timeout,
        version=options.version,
        **_declared(options),
    )
    try:
        async with client:
            result = await _result(client, options)
    except UsageError:
        raise
    except ArgumentsError as exc:
        raise UsageError(str(exc)) from None
    except SamplingDeclined as exc:
        terminal.clear()
        say_error(str(exc))
        return DECLINED
    except LoginFailed as exc:
        terminal.clear()
        print_error(exc)
        return DECLINED if exc.code == "access_denied" else ERROR
    except (EffectMCPError, TimeoutError) as exc:
        terminal.clear()
        print_error(exc)
        _advise(client, str(exc))
        return ERROR
    terminal.clear()
    if trace is not None:
        terminal.say(f"round {result.rounds}: done")
    for key in client.unasked:
        say_error(f"no question had the key {key!r}")
    is_written = print_result(result, options.save_to)
    if not result.is_error:
        return 0 if is_written else UNWRITTEN
    _advise(client, result.text)
    return DECLINED if client.was_refused else FAILED


_MOST_ROUNDS: Final = 100

#: The capabilities that the client declares, and its options if it lacks them.
_WITHOUT: Final[Mapping[str, Mapping[str, Any]]] = {
    "elicitation": {"elicit": None, "open_url": None},
    "elicitation.form": {"elicit": None},
    "elicitation.url": {"open_url": None},
    "sampling": {"sample": None},
    "roots": {"roots": None},
    "tasks": {"task_tools": "never"},
}


def _declared(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the client that decide which capabilities it declares."""
    found: dict[str, Any] = {}
    if options.root:
        found["roots"] = [_root(one) for one in options.root]
    for name in options.without:
        found |= _WITHOUT[name]
    return found


#: In the errors of servers that can ask only in a session: "elicitation via
#: server-initiated requests is unavailable on 2026-07-28 connections." (FastMCP 4), and
#: "Cannot send 'elicitation/create': this transport context has no back-channel for
#: server-initiated requests." (Python SDK 2).
_UNABLE: Final = "server-initiated requests"


def _advise(client: UserClient, said: str) -> None:
    """Name an earlier revision if the server says that it cannot ask in 2026-07-28."""
    if _UNABLE in said and not client.has_session:
        say_error(
            "this server cannot ask questions in 2026-07-28; try"
            f" --version {next(iter(HANDSHAKES))}"
        )


def _root(folder: Path) -> Root:
    folder = folder.resolve()
    return Root(folder.as_uri(), folder.name or None)


async def _result(client: Client, options: argparse.Namespace) -> Result:
    if options.resource:
        if options.arguments:
            raise UsageError("a resource takes no arguments; they are in its URI")
        return await client.read_resource(options.name)
    if options.prompt:
        return await client.get_prompt(
            options.name, dict(map(split, options.arguments))
        )
    tools = await _tools(client)
    if options.name not in tools and is_url(options.target):
        # A server does not list the tools whose scopes the token lacks. A call of one
        # leads to a login for them.
        try:
            arguments = _arguments(options.arguments, None)
            return await client.call_tool(options.name, arguments)
        except ProtocolError as exc:
            if exc.code != INVALID_PARAMS:
                raise
            # There is no such tool, or it is listed now, and needs other arguments.
            client.forget()
            tools = await _tools(client)
    if options.name not in tools:
        known = ", ".join(tools) or "none"
        raise UsageError(f"there is no tool {options.name!r}; there is {known}")
    schema = tools[options.name].get("inputSchema")
    return await client.call_tool(options.name, _arguments(options.arguments, schema))


async def _tools(client: Client) -> dict[str, Mapping[str, Any]]:
    return {one["name"]: one for one in await client.list_tools()}


def _arguments(given: list[str], schema: JSON) -> dict[str, JSON]:
    """Read arguments by the tool's schema: as strings where strings are allowed."""
    found: dict[str, JSON] = {}
    for name, text in map(split, given):
        if takes_text(properties_of(schema).get(name)):
            found[name] = text
            continue
        try:
            found[name] = parse(text)
        except CanonicalError:
            found[name] = text  # the server will report what it needs
    return found
