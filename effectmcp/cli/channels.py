"""Make the channel to a target: a URL, an app in this process, or a command."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from ..client.channels import Channel, Frame, Hear
from ..engine.development import UnperformedEffectWarning
from ..errors import UsageError
from ..protocol.revisions import HANDSHAKES, VERSIONS
from ..server.loop_name import LoopName
from ..server.target import load_app
from ..transports.default_keys import VARIABLE, ensure_keys
from .printable import json_text, printable

if TYPE_CHECKING:
    from ..oauth import OAuth

__all__ = [
    "Raw",
    "add_version",
    "channel_to",
    "check_timeout",
    "headers_of",
    "is_url",
    "loop_of",
]

_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_APP: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|\S*\.py(:[A-Za-z_][\w.]*)?")


def is_url(target: str) -> bool:
    """Return whether a target is the URL of a server."""
    return re.match(r"https?://", target, re.IGNORECASE) is not None


def channel_to(
    target: str,
    headers: Mapping[str, str] | None = None,
    loop: LoopName | None = None,
    login: Callable[[], OAuth | None] | None = None,
) -> Channel:
    """Return a channel to `target`.

    Args:
        target: A URL; `module:app` or `file.py:app`, which is run in this process; or a
            command, which is started.
        headers: Headers to send with each request; only for a URL.
        loop: The loop to run the app on; `None` for the loop that it names.
        login: Returns how to log in; only for a URL.

    Raises:
        UsageError: If the app does not exist, `target` is neither a URL nor a command,
            an option is for another kind of target, or the client is not installed.
    """
    try:
        if is_url(target):
            _check_loop(loop)
            from ..client import OverHttp

            try:
                target.encode()
            except UnicodeEncodeError:
                raise UsageError(
                    f"{target!r} is not a URL: write it in UTF-8"
                ) from None
            auth = None if login is None else login()
            return OverHttp(target, headers=headers, auth=auth)
        if headers:
            raise UsageError("--header is for a URL")
        if _APP.fullmatch(target):
            from .in_process import InProcess

            app = load_app(target)
            app.loop = loop or app.loop
            # Use the keys of the environment, so that --trace can read states. Without
            # any, use random keys: a warning is of no use here.
            ensure_keys(app, is_alone=False)
            # Warn about a forgotten `yield from`, with the line, but continue.
            app.change_rules(development=True)
            warnings.simplefilter("default", UnperformedEffectWarning)
            return InProcess(app)
        _check_loop(loop)
        from .server_log import LoggedPipes

        try:
            command = shlex.split(target)
        except ValueError as exc:
            raise UsageError(f"{target!r} is no command: {exc}") from None
        if not command:
            raise UsageError("give a URL, module:app, file.py:app or a command")
        if shutil.which(command[0]) is None and _MODULE.fullmatch(command[0]):
            raise UsageError(
                f"there is no command {command[0]!r}; a module is written"
                f" {command[0]}:app, and a file {command[0]}.py"
            )
        # A process with the keys can forge states, so commands do not get them.
        env = {name: text for name, text in os.environ.items() if name != VARIABLE}
        return LoggedPipes(command, env=env)
    except ImportError as exc:
        if "effectmcp[client]" not in str(exc):
            raise
        raise UsageError(str(exc)) from None


def _check_loop(loop: LoopName | None) -> None:
    if loop is not None:
        raise UsageError(
            "--loop is for a server in this process: module:app, file.py:app"
        )


def loop_of(channel: Channel) -> LoopName | None:
    """Return the loop that a channel needs; `None` if it runs on every loop."""
    loop: LoopName | None = getattr(channel, "loop", None)
    return loop


#: RFC 9110, 5.1 and 5.5; servers decode characters beyond ASCII in different ways.
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~]*)")


def headers_of(given: list[str]) -> dict[str, str]:
    """Return the headers that are given on the command line."""
    found = {}
    for one in given:
        match = _HEADER.fullmatch(one)
        if match is None:
            raise UsageError(f"--header {one!r}: write NAME: VALUE, in plain ASCII")
        found[match[1]] = match[2].strip()
    return found


def check_timeout(seconds: float | None) -> None:
    """Refuse timeouts that are not positive numbers."""
    if seconds is not None and not seconds > 0:  # NaN is neither positive nor negative
        raise UsageError(f"--timeout {seconds:g}: give seconds, more than 0")


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the option `--version` of a command that calls a server."""
    parser.add_argument(
        "--version",
        choices=(*VERSIONS, *HANDSHAKES),
        metavar="REVISION",
        help="the revision of MCP to speak, such as 2025-11-25 (by default the newest"
        " that the server speaks)",
    )


class Raw:
    """A channel that prints all messages to standard error."""

    def __init__(self, inner: Channel) -> None:
        self.has_headers = inner.has_headers
        self.probes = inner.probes
        self.origin = inner.origin
        self._inner = inner

    @property
    def token_version(self) -> int | None:
        """The number of the tokens, if the channel logs in."""
        version: int | None = getattr(self._inner, "token_version", None)
        return version

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._inner.__aexit__(*exc)

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Send a request, and return its response."""

        async def heard(told: Frame) -> None:
            _print("<", told)
            await hear(told)

        for name, value in headers.items():
            print(printable(f"> {name}: {value}"), file=sys.stderr)
        _print(">", message)
        response = await self._inner.exchange(message, headers, heard)
        _print("<", response)
        return response

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Send a notification or a response."""
        _print(">", message)
        await self._inner.tell(message, headers)

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Receive the messages that do not belong to a request."""

        async def heard(told: Frame) -> None:
            _print("<", told)
            await hear(told)

        await self._inner.attend(heard, headers, ready)


def _print(mark: str, message: Mapping[str, Any]) -> None:
    print(mark, json_text(dict(message)), file=sys.stderr)
