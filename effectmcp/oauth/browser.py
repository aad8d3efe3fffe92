"""Show the login page in the user's browser, and wait on a loopback port for the answer.

(RFC 8252, section 7.3.) Only the answer to this login is taken: any other client of the port,
such as a page of another origin, gets 404 and learns nothing. Nothing is redirected.
"""

from __future__ import annotations

import hmac
import os
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import anyio.to_thread

from ..errors import UsageError
from ..logs import logger_for
from .tokens import OAuthError

__all__ = ["Browser"]

logger = logger_for("effectmcp.oauth")

_HOST: Final = "127.0.0.1"
_PATH: Final = "/callback"

#: Bytes of a request, and seconds until it has arrived.
_LONGEST: Final = 16 * 1024
_TIME: Final = 10.0

#: Connections at once. Other users of this machine can open some, and send nothing: the
#: user's browser would wait for a place.
_MOST: Final = 256


class Browser:
    """Opens the user's browser for a login; for several, for one after the other.

    Args:
        open_url: Opens a URL; `None` to only show it.
        show: Called with the URL, for a user whose browser does not open.
        port: The port to wait on; 0 for any free port.
        timeout: Seconds that the user has; `None` for no limit.
    """

    def __init__(
        self,
        *,
        open_url: Callable[[str], object] | None = webbrowser.open,
        show: Callable[[str], object] | None = None,
        port: int = 0,
        timeout: float | None = 600,
    ) -> None:
        self._open = open_url
        self._show = show
        self._port = port
        self._timeout = timeout
        self._listener: anyio.abc.SocketListener | None = None
        self._uri = ""
        #: Two channels may share their settings, and both log in.
        self._turn = anyio.Semaphore(1, max_value=1)

    async def redirect_uri(self, preferred: str | None) -> str:
        """Start to wait, after the login before it; return where the page returns to.

        Raises:
            UsageError: If the port is taken.
        """
        await self._turn.acquire()
        try:
            self._listener = await self._listen(preferred)
        except BaseException:
            self._turn.release()
            raise
        bound = self._listener.extra(anyio.abc.SocketAttribute.local_port)
        self._uri = f"http://{_HOST}:{bound}{_PATH}"
        return self._uri

    async def _listen(self, preferred: str | None) -> anyio.abc.SocketListener:
        if self._port:
            try:
                return await _listen(self._port)
            except OSError as exc:
                problem = f"the port {self._port} cannot be used: {exc}"
                raise UsageError(problem) from None
        if port := _own_port(preferred or ""):
            with suppress(OSError):
                return await _listen(port)
        return await _listen(0)

    async def visit(self, url: str, state: str) -> str:
        """Show a page; return the URL that the user was sent back to.

        Raises:
            OAuthError: If the user takes too long.
        """
        listener = self._listener
        assert listener is not None  # `redirect_uri` comes first
        if self._show is not None:
            self._show(url)
        came: list[str] = []
        with anyio.move_on_after(self._timeout):
            await self._wait(listener, url, state, came)
        if not came:
            raise OAuthError(
                f"the user did not log in within {self._timeout:g} s; if the page showed"
                " an error, forget this registration (--forget), and log in again"
            )
        return came[0]

    async def _wait(
        self,
        listener: anyio.abc.SocketListener,
        url: str,
        state: str,
        came: list[str],
    ) -> None:
        places = anyio.Semaphore(_MOST)
        async with anyio.create_task_group() as group:

            async def serve(stream: anyio.abc.SocketStream) -> None:
                async with stream, places:
                    with anyio.move_on_after(_TIME), suppress(*_GONE):
                        target = await _target(stream)
                        if not self._is_ours(target, state):
                            await stream.send(_UNKNOWN)
                            return
                        # It counts, although the page may be closed already.
                        came.append(f"{self._uri}?{urlsplit(target).query}")
                        with suppress(*_GONE):
                            query = parse_qs(urlsplit(target).query)
                            await stream.send(_REFUSED if "error" in query else _DONE)
                    if came:
                        group.cancel_scope.cancel()

            if self._open is not None:
                group.start_soon(self._open_page, url)
            await listener.serve(serve, task_group=group)

    async def _open_page(self, url: str) -> None:
        assert self._open is not None
        try:
            # It may start a program, and wait for it.
            await anyio.to_thread.run_sync(self._open, url, abandon_on_cancel=True)
        except Exception as exc:
            logger.warning("no browser was opened: %s", exc)

    def _is_ours(self, target: str, state: str) -> bool:
        parts = urlsplit(target)
        if parts.path != _PATH:
            return False
        states = parse_qs(parts.query, max_num_fields=50).get("state", [])
        return len(states) == 1 and hmac.compare_digest(
            states[0].encode("utf-8", "replace"), state.encode()
        )

    async def close(self) -> None:
        """Stop waiting."""
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                await listener.aclose()
            finally:
                self._turn.release()


def _own_port(uri: str) -> int | None:
    """Return the port of a place where this class has waited; `None` for any other."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    is_own = uri == f"http://{_HOST}:{port}{_PATH}" and parts.hostname == _HOST
    return port if is_own else None


async def _listen(port: int) -> anyio.abc.SocketListener:
    # anyio 4.4 leaves its socket open if the port is taken.
    with socket.socket() as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((_HOST, port))
    found: Any = await anyio.create_tcp_listener(local_host=_HOST, local_port=port)
    listener: anyio.abc.SocketListener = found.listeners[0]
    return listener


async def _target(stream: anyio.abc.SocketStream) -> str:
    """Return the target of a GET request; empty for any other one."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _LONGEST:
        data += await stream.receive()
    method, _, rest = data.partition(b" ")
    target, _, version = rest.partition(b" ")
    if method != b"GET" or not version.startswith(b"HTTP/1."):
        return ""
    try:
        text = target.decode("ascii")
        urlsplit(text)
        parse_qs(urlsplit(text).query, max_num_fields=50)
    except ValueError:
        return ""
    return text


_GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>effectmcp</title><p>{text}"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body.encode())}\r\nCache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\n"
        "Connection: close\r\n\r\n"
    )
    return (head + body).encode()


_REFUSED: Final = _page(
    "200 OK",
    "The login was refused. You can close this page: the terminal has the reason.",
)
_DONE: Final = _page("200 OK", "You can close this page, and return to the terminal.")
_UNKNOWN: Final = _page("404 Not Found", "This page does not exist.")
