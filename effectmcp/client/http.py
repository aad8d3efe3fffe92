"""A channel to a server over Streamable HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.lowlevel
import httpx2
from attrs import define

from ..errors import UsageError
from ..fetching.requests import FetchError
from ..oauth.login import AuthRefusal
from ..oauth.session import LoginSession, Signed
from ..oauth.settings import OAuth
from ..oauth.tokens import OAuthError, printable
from ..protocol.headers import HeaderMismatch
from ..protocol.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    encode,
    notification,
)
from ..protocol.meta import UNSUPPORTED_VERSION
from ..protocol.modern import MISSING_CAPABILITY
from .channels import ChannelError, Frame, Hear, LoginFailed, Refusal, SessionEnded
from .deadlines import paused
from .events import events
from .limits import LONGEST, read_message

__all__ = ["OverHttp"]

T = TypeVar("T")

#: Seconds for a stream to end after the response, which is its last event.
_LINGER: Final = 0.1

#: Limits, in seconds, of the delay that a server sets before a stream is resumed. Without
#: the first, a stream that ends immediately would be requested in a busy loop.
_SHORTEST_RETRY: Final = 0.05
_LONGEST_RETRY: Final = 60.0

#: The maximum size of a message in bytes.
_LONGEST: Final = LONGEST

#: How many streams without a message are resumed at the server's pace, and the longest
#: pause after more of them, in seconds. Some servers close a stream to be polled; others
#: could have themselves asked for ever, 20 times a second.
_MOST_EMPTY: Final = 10
_LONGEST_PAUSE: Final = 10.0

#: The number of bytes that are split into lines at once: a line is an object.
_PIECE: Final = 64 * 1024


class OverHttp:
    """A channel to a URL.

    Args:
        url: The URL of the server.
        headers: Headers of every request.
        auth: How to log in, if the server requires it.
        http: Your own HTTP client, which stays open when the channel is closed.
    """

    has_headers = True
    probes = False

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: OAuth | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._url = url
        if auth is not None and "authorization" in map(str.lower, headers or ()):
            raise UsageError(
                "OverHttp(auth=...) sends Authorization: leave it out of headers="
            )
        self._login = None if auth is None else LoginSession(auth, url, pausing=paused)
        #: A number that changes with the tokens; `None` without a login.
        self.token_version: int | None = None if auth is None else 0
        self._headers = {
            **(headers or {}),
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        #: The id of the session, with a legacy server that has sessions.
        self._session: str | None = None
        #: The headers of every request in the session, and of the DELETE that ends it.
        self._spoken: Mapping[str, str] = {}
        self._is_own = http is None
        self._http = http or httpx2.AsyncClient(
            # No read timeout: the caller decides how long a tool may take.
            timeout=httpx2.Timeout(30, read=None),
            follow_redirects=False,
        )

    async def __aenter__(self) -> Self:
        if self._http.is_closed:
            raise UsageError("this channel was closed: give another OverHttp(...)")
        return self

    async def __aexit__(self, *exc: Any) -> None:
        if self._session is not None:
            # End the session now: the server need not keep it until a timeout.
            with anyio.move_on_after(_LINGER * 10, shield=True), suppress(ChannelError):
                async with self._stream("DELETE", None, self._spoken, may_log_in=False):
                    pass
            self._session = None
        if self._is_own:
            await self._http.aclose()

    @property
    def origin(self) -> str:
        """The URL of the server."""
        return self._url

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Post a request; return its response, which is the body or the last event.

        Cancelling this closes the stream, which cancels a 2026-07-28 request. A legacy
        server is also sent a notification: for it, a broken stream cancels nothing, as
        the client may resume it (2025-11-25, Resumability).
        """
        is_handshake = message["method"] == "initialize"
        if is_handshake:
            self._session = None
        can_return = not _is_of_today(headers)
        place = _StreamPosition()
        session = None
        try:
            async with self._stream("POST", message, headers) as response:
                session = response.headers.get("mcp-session-id")
                _check(response)
                found = await _until_torn(response, place, hear, can_return)
            while found is None and can_return and place.id:
                await anyio.sleep(place.next_pause())
                again = {**headers, "Last-Event-ID": place.id}
                async with self._stream("GET", None, again) as response:
                    found = await _until_torn(response, place, hear, can_return)
        except anyio.get_cancelled_exc_class():
            if can_return and not is_handshake:
                with anyio.move_on_after(1, shield=True), suppress(ChannelError):
                    params = {"requestId": message["id"]}
                    told = notification("notifications/cancelled", params)
                    # The caller has gone, and with it the user who could log in.
                    await self._tell(told, headers, may_log_in=False)
            raise
        if found is None:
            raise ChannelError("the server's stream ended before its response")
        if is_handshake and "result" in found:
            if session is not None and not (
                session.isascii() and session.isprintable()
            ):
                raise ChannelError("the session has a name that no header can carry")
            self._session = session
        return found

    @asynccontextmanager
    async def _stream(
        self,
        method: str,
        message: Frame | None,
        headers: Mapping[str, str],
        *,
        may_log_in: bool = True,
    ) -> AsyncIterator[httpx2.Response]:
        is_of_today = _is_of_today(headers)
        headers = {**self._headers, **headers}
        if self._session is not None and not is_of_today:
            headers["Mcp-Session-Id"] = self._session
        content = b""
        if message is None:
            del headers["Content-Type"]
            headers["Accept"] = "text/event-stream"
        else:
            content = encode(message)
        try:
            if self._login is None:
                async with self._http.stream(
                    method,
                    self._url,
                    content=content,
                    headers=headers,
                    follow_redirects=False,
                ) as response:
                    yield response
                return
            # Only what may show the user a page counts as a login.
            logins = nonces = 0
            while True:
                signed = await self._sign(self._login, method)
                self.token_version = signed.version
                async with self._http.stream(
                    method,
                    self._url,
                    content=content,
                    headers={**headers, **signed.headers},
                    follow_redirects=False,
                ) as response:
                    refused = self._login.read(response.status_code, response.headers)
                    if refused is None or not may_log_in:
                        yield response
                        return
                if max(logins, nonces) >= self._login.attempts:
                    wanted = " ".join(refused.scopes or ())
                    raise LoginFailed(
                        f"{self._url} does not accept the token, after {logins} logins"
                        + (f"; it wants {printable(wanted)}" if wanted else "")
                    )
                await self._log_in(self._login, refused, signed, logins)
                if refused.wants_nonce:
                    nonces += 1
                else:
                    logins += 1
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            words = str(exc) or type(exc).__name__
            raise ChannelError(f"{self._url} cannot be reached: {words}") from exc

    async def _sign(self, login: LoginSession, method: str) -> Signed:
        with _reported():
            return await login.sign(method)

    async def _log_in(
        self, login: LoginSession, refused: AuthRefusal, signed: Signed, number: int
    ) -> None:
        with _reported():
            await login.recover(refused, signed, number)

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Post a notification or a response."""
        await self._tell(message, headers, may_log_in=True)

    async def _tell(
        self, message: Frame, headers: Mapping[str, str], *, may_log_in: bool
    ) -> None:
        async with self._stream(
            "POST", message, headers, may_log_in=may_log_in
        ) as response:
            _check(response)
            if not response.is_success:
                raise ChannelError(
                    f"the server answered with the status {response.status_code}"
                )

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Receive the messages on the stream that belongs to no request, if any."""
        self._spoken = headers
        place = _StreamPosition()
        last: dict[str, str] = {}
        while True:
            with suppress(ChannelError):
                # A user who has asked for nothing is not asked to log in.
                async with self._stream(
                    "GET", None, {**headers, **last}, may_log_in=False
                ) as response:
                    ready()
                    if self._login is not None and response.status_code == 401:
                        # The token has expired: the next request gets another one.
                        raise ChannelError("the stream needs a login")
                    if _type_of(response) != _EVENTS or not response.is_success:
                        return  # the server has no such stream
                    await _response(response, place, hear)
            await anyio.sleep(place.next_pause())
            if place.id:
                last = {"Last-Event-ID": place.id}


@contextmanager
def _reported() -> Iterator[None]:
    """Report that there is no token as an error of the channel."""
    try:
        yield
    except OAuthError as exc:
        raise LoginFailed(exc.problem, exc.code) from exc
    except FetchError as exc:
        raise LoginFailed(f"the login failed at {exc}") from exc


@define
class _StreamPosition:
    """The position in a stream, which may be resumed.

    Attributes:
        id: The id of its last event.
        retry: Seconds to wait before it is resumed, as set by the server.
        empty: The number of times in a row that it was opened and had no message.
    """

    id: str | None = None
    retry: float = 1.0
    empty: int = 0

    def next_pause(self) -> float:
        """Count a stream that ended, and return the seconds until it is resumed."""
        self.empty += 1
        doubled = self.retry * 2.0 ** min(max(0, self.empty - _MOST_EMPTY), 20)
        return max(self.retry, min(doubled, _LONGEST_PAUSE))


def _is_of_today(headers: Mapping[str, str]) -> bool:
    """Return whether a request is for 2026-07-28, which has no sessions.

    Such a request may also follow a failed `initialize`.
    """
    return "Mcp-Method" in headers


def _check(response: httpx2.Response) -> None:
    if response.status_code == 401:
        has_tried = "authorization" in response.request.headers
        wanted = response.headers.get("www-authenticate", "").partition(" ")[0]
        raise LoginFailed(
            "the server does not accept this header Authorization (status 401)"
            if has_tried
            else f"the server requires a login (status 401{f', {wanted}' if wanted else ''}): give"
            " OverHttp(..., auth=OAuth(...)), or a header Authorization"
        )
    if response.status_code == 404 and "mcp-session-id" in response.request.headers:
        raise SessionEnded("the server does not know the session any more")


async def _until_torn(
    response: httpx2.Response, place: _StreamPosition, hear: Hear, can_return: bool
) -> Frame | None:
    """Return the response in a body; `None` if it breaks off and can be resumed."""
    try:
        return await _response(response, place, hear)
    except httpx2.TransportError:
        if not (can_return and place.id):
            raise
        return None


_EVENTS: Final = "text/event-stream"


def _type_of(response: httpx2.Response) -> str:
    type_: str = response.headers.get("content-type", "")
    return type_.partition(";")[0].strip().lower()


async def _response(
    response: httpx2.Response, place: _StreamPosition, hear: Hear
) -> Frame | None:
    """Return the response in a body; `None` for a stream that ended without one."""
    type_ = _type_of(response)
    async with _to_its_end(_parts(response)) as parts:
        if type_ == _EVENTS and response.is_success:
            async with aclosing(events(parts)) as found:
                async for event in found:
                    place.id = event.id if event.id is not None else place.id
                    if event.retry is not None:
                        retry = max(event.retry, _SHORTEST_RETRY)
                        place.retry = min(retry, _LONGEST_RETRY)
                    if not event.data:
                        continue
                    told = _message(event.data)
                    if "method" not in told:
                        return told
                    place.empty = 0
                    await hear(told)
            return None
        data = bytearray()
        async for part in parts:
            data += part
            if len(data) > _LONGEST:
                raise ChannelError(f"the response has more than {_LONGEST:,} bytes")
    frame = None
    if type_ == "application/json":
        with suppress(ChannelError):
            found_ = _message(data)
            # Others answer in their own words, too, such as {"error": "unauthorized"}.
            is_error = response.is_success or isinstance(found_.get("error"), dict)
            if "result" in found_ or ("error" in found_ and is_error):
                frame = found_
    if response.status_code in _OF_OTHER_ERAS and not _is_modern(frame):
        raise Refusal(_words(response), frame)
    if frame is None:
        raise ChannelError(_words(response))
    return frame


def _words(response: httpx2.Response) -> str:
    hint = ""
    if challenge := response.headers.get("www-authenticate"):
        hint = f"; it wants {challenge.partition(' ')[0]} authorization"
    elif place := response.headers.get("location"):
        # Redirects are not followed: the headers may hold credentials for this URL. The
        # hint is for mounted servers, which redirect to their own path.
        hint = f"; it says that the server is at {place!r}"
    return (
        f"the server answered with the status {response.status_code} and no message"
        f"{hint}"
    )


#: Statuses that servers of earlier revisions return for requests they do not understand.
_OF_OTHER_ERAS: Final = frozenset({400, 404, 405})

#: Errors that only 2026-07-28 servers send (Streamable HTTP, Backward Compatibility).
_MODERN: Final = frozenset(
    {METHOD_NOT_FOUND, INVALID_PARAMS, PARSE_ERROR, HeaderMismatch.CODE}
    | {MISSING_CAPABILITY, UNSUPPORTED_VERSION}
)


def _is_modern(frame: Frame | None) -> bool:
    error = None if frame is None else frame.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return type(code) is int and code in _MODERN


@asynccontextmanager
async def _to_its_end(
    parts: AsyncGenerator[T, None],
) -> AsyncIterator[AsyncIterator[T]]:
    """Read the rest of a body at the end of the block, so that its connection is reused.

    On trio, the layer below also complains about generators that are left unfinished,
    unless they were cancelled.
    """
    try:
        yield parts
    finally:
        with anyio.move_on_after(_LINGER), suppress(ChannelError, httpx2.HTTPError):
            async for _ in parts:
                pass


async def _parts(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Yield the body, in pieces of limited length."""
    is_compressed = "content-encoding" in response.headers
    async with aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            for start in range(0, len(part), _PIECE):
                yield part[start : start + _PIECE]
            if is_compressed:
                # 64 KiB of the wire may become parts without an end, and between them
                # nothing waits for the socket: a deadline could not end it.
                await anyio.lowlevel.checkpoint()


def _message(text: str | bytes | bytearray) -> dict[str, Any]:
    message = read_message(text)
    if message is None:
        raise ChannelError("the server sent something other than a message")
    return message
