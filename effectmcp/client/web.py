"""A server behind Streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, Self, TypeVar

import anyio
import httpx2

from ..protocol.jsonrpc import encode
from .channels import ChannelError, Frame, Hear

__all__ = ["OverHttp", "events"]

T = TypeVar("T")

#: Seconds for a stream to end after the response that is its last.
_LINGER: Final = 0.1

#: Bytes that one message may have.
_LONGEST: Final = 64 * 1024 * 1024


class OverHttp:
    """A channel to a URL.

    Args:
        url: The server's one address.
        headers: Sent with each request: authorization, say.
        http: A client of your own, which then outlives the channel.
    """

    has_headers = True

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._url = url
        self._headers = {
            **(headers or {}),
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self._is_own = http is None
        self._http = http or httpx2.AsyncClient(
            # How long a tool takes is for the caller to say.
            timeout=httpx2.Timeout(30, read=None),
            follow_redirects=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        if self._is_own:
            await self._http.aclose()

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Post a request; its response is the body, or the last event of it.

        Leaving closes the stream, which is how a request is cancelled here.
        """
        try:
            async with self._http.stream(
                "POST",
                self._url,
                content=encode(message),
                headers={**self._headers, **headers},
            ) as response:
                return await _response(response, message, hear)
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            words = str(exc) or type(exc).__name__
            raise ChannelError(f"{self._url} cannot be reached: {words}") from exc


async def _response(response: httpx2.Response, message: Frame, hear: Hear) -> Frame:
    type_ = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    async with _to_its_end(response.aiter_bytes()) as parts:
        if type_ == "text/event-stream" and response.is_success:
            async with aclosing(events(parts)) as texts:
                async for text in texts:
                    told = _message(text)
                    if "method" not in told:
                        return told
                    await hear(told)
            raise ChannelError("the server's stream ended before its response")
        data = bytearray()
        async for part in parts:
            data += part
            if len(data) > _LONGEST:
                raise ChannelError(f"the response has more than {_LONGEST:,} bytes")
    if type_ == "application/json":
        with suppress(ChannelError):
            found = _message(bytes(data))
            if "result" in found or "error" in found:
                return found
    challenge = response.headers.get("www-authenticate")
    hint = (
        f"; it wants {challenge.partition(' ')[0]} authorization" if challenge else ""
    )
    raise ChannelError(
        f"the server answered with the status {response.status_code} and no message{hint}"
    )


@asynccontextmanager
async def _to_its_end(
    parts: AsyncGenerator[T, None],
) -> AsyncIterator[AsyncIterator[T]]:
    """Read on when all is said: only then can the connection be used again.

    And on trio what is below complains of generators that are left in the middle, which
    one that is cancelled is not.
    """
    try:
        yield parts
    finally:
        with anyio.move_on_after(_LINGER), suppress(ChannelError, httpx2.HTTPError):
            async for _ in parts:
                pass


def _message(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise ChannelError("the server sent what is no message")
    return message


async def events(parts: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of the events in a stream; comments and empty events are left out."""
    data: list[str] = []
    torn: list[bytes] = []  # the beginning of a line, in the pieces in which it came
    held = 0  # bytes of both
    is_first, after_return = True, False
    async for part in parts:
        # Lines end with CR LF, LF or CR; the first may be torn.
        if after_return and part.startswith(b"\n"):
            part = part[1:]
            after_return = False
        if not part:
            continue
        after_return = part.endswith(b"\r")
        held += len(part)
        *lines, rest = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if lines:
            lines[0] = b"".join([*torn, lines[0]])
            torn = []
        torn.append(rest)
        for line in lines:
            if is_first:
                line, is_first = line.removeprefix(b"\xef\xbb\xbf"), False
            name, _, value = line.partition(b":")
            if not line:
                if any(data):
                    yield "\n".join(data)
                data, held = [], len(rest)
            elif name == b"data":
                data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        if held > _LONGEST:
            raise ChannelError(f"an event has more than {_LONGEST:,} bytes")
