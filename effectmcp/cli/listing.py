"""`effectmcp list TARGET`: list the tools, prompts and resources of a server."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ..client.channels import Channel
from ..drivers.loops import run
from ..errors import EffectMCPError, ProtocolError, UsageError
from .channels import (
    Raw,
    add_version,
    channel_to,
    check_timeout,
    headers_of,
    is_url,
    loop_of,
)
from .login_options import add_login, check_unused, oauth_of
from .loop_option import add_loop
from .output import say_error
from .printable import json_text, printable
from .printing import ERROR, print_error
from .schemas import dict_in, list_in, properties_of
from .signals import ending, interrupting

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "list",
        help="list what a server offers",
        description="List the tools, prompts and resources of a server.",
    )
    parser.add_argument("target", help="as for `call`")
    parser.add_argument("--json", action="store_true", help="print the lists as JSON")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME: VALUE",
        help="for a URL: a header of each request (repeatable)",
    )
    add_version(parser)
    parser.add_argument("--timeout", type=float, metavar="SECONDS")
    parser.add_argument("--raw", action="store_true", help="print the messages, too")
    add_loop(parser)
    add_login(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with ending():
        headers = headers_of(options.header)
        login = partial(oauth_of, options, headers, options.target)
        channel = channel_to(options.target, headers, options.loop, login)
        if not is_url(options.target):
            check_unused(options, "only a URL has one")
        loop = loop_of(channel)
        with interrupting(loop):
            return run(loop, partial(_list, options, channel))


async def _list(options: argparse.Namespace, channel: Channel) -> int:
    check_timeout(options.timeout)
    from ..client import Client

    client = Client(
        Raw(channel) if options.raw else channel,
        round_timeout=options.timeout,
        version=options.version,
    )
    try:
        async with client:
            found = {
                "tools": await _offered(client.list_tools),
                "prompts": await _offered(client.list_prompts),
                "resources": await _offered(client.list_resources),
                "templates": await _offered(client.list_templates),
            }
    except UsageError:
        raise
    except (EffectMCPError, TimeoutError) as exc:
        print_error(exc)
        return ERROR
    if options.json:
        print(json_text(found, indent=2))
        return 0
    if not any(found.values()):
        say_error("the server has no tools, prompts, resources or templates")
    for kind, entries in found.items():
        if entries:
            print(kind)
            for one in entries:
                print("\n".join(f"  {printable(line)}" for line in _lines(one)))
    return 0


async def _offered(
    ask: Callable[[], Awaitable[list[Mapping[str, Any]]]],
) -> list[Mapping[str, Any]]:
    try:
        return await ask()
    except ProtocolError as exc:
        if exc.code == -32601:
            return []  # the server does not have this kind
        raise


def _lines(entry: Mapping[str, Any]) -> list[str]:
    name = entry.get("uri") or entry.get("uriTemplate") or entry.get("name", "?")
    required = list_in(dict_in(entry.get("inputSchema")).get("required"))
    takes = [
        f"{key}{'' if key in required else '?'}"
        for key in properties_of(entry.get("inputSchema"))
    ]
    takes += [
        f"{one.get('name', '?')}{'' if one.get('required') else '?'}"
        for one in map(dict_in, list_in(entry.get("arguments")))
    ]
    head = f"{name} {' '.join(takes)}".strip()
    about = str(entry.get("description") or entry.get("title") or "").splitlines()
    return [head, *(f"    {line}" for line in about[:1])]
