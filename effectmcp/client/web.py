"""A server behind Streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Self

import httpx2

from ..protocol.jsonrpc import encode
from .channels import ChannelError, Frame, Hear

__all__ = ["OverHttp", "events"]

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
        except httpx2.HTTPError as exc:
            words = str(exc) or type(exc).__name__
            raise ChannelError(f"{self._url} cannot be reached: {words}") from exc


async def _response(response: httpx2.Response, message: Frame, hear: Hear) -> Frame:
    type_ = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if type_ == "text/event-stream" and response.is_success:
        async for text in events(response.aiter_bytes()):
            told = _message(text)
            if "method" not in told:
                return told
            await hear(told)
        raise ChannelError("the server's stream ended before its response")
    data = b""
    async for part in response.aiter_bytes():
        data += part
        if len(data) > _LONGEST:
            raise ChannelError(f"the response has more than {_LONGEST:,} bytes")
    if type_ == "application/json":
        found = _message(data)
        if "result" in found or "error" in found:
            return found
    challenge = response.headers.get("www-authenticate")
    hint = (
        f"; it wants {challenge.partition(' ')[0]} authorization" if challenge else ""
    )
    raise ChannelError(
        f"the server answered with the status {response.status_code} and no message{hint}"
    )


def _message(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise ChannelError("the server sent what is no message")
    return message


async def events(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The data of the events in a stream; comments and empty events are left out."""
    buffer = b""
    data: list[str] = []
    async for part in parts:
        buffer += part
        if len(buffer) > _LONGEST:
            raise ChannelError(f"an event has more than {_LONGEST:,} bytes")
        # Lines end with CR LF, LF or CR; the first may be torn.
        *lines, buffer = buffer.replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if not line:
                if any(data):
                    yield "\n".join(data)
                data = []
            elif line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
