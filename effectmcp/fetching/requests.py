"""HTTP requests and responses as values, and the generators that yield them. No I/O."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlencode

from attrs import field, frozen

from ..canonical import JSON
from ..errors import EffectMCPError

__all__ = [
    "Fetch",
    "FetchError",
    "Fetched",
    "Fetching",
    "fetch_all",
    "fetch_all_async",
    "form_of",
    "json_of",
]

T = TypeVar("T")

#: Bytes of a response that is a document, and seconds until it has arrived.
_LONGEST: Final = 256 * 1024
_TIMEOUT: Final = 10.0

#: Characters of a stranger's text in a message.
_SAID: Final = 200


@frozen(kw_only=True)
class Fetch:
    """An HTTP request to send. Redirects are not followed.

    Attributes:
        url: The URL.
        near: The URL of the party that this request is for: its `url` must be as far from
            this machine, or farther (`zones`).
        method: The method.
        headers: The headers.
        body: The body.
        longest: Bytes that the response may have.
        timeout: Seconds until the response has arrived.
        is_shared: Whether one response serves all equal requests of the same time.
    """

    url: str
    near: str
    method: str = "GET"
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    longest: int = _LONGEST
    timeout: float = _TIMEOUT
    is_shared: bool = False


@frozen(kw_only=True)
class Fetched:
    """The response to a `Fetch`.

    Attributes:
        status: The status.
        headers: The headers, by lower-cased name.
        body: The body.
    """

    status: int
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


class FetchError(EffectMCPError):
    """Raised if a request has no response, or a response cannot be used.

    Attributes:
        url: The URL of the request.
        problem: The problem, in words.
    """

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.url = url
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.url[:_SAID]!r}: {self.problem}"


#: A generator of requests; its result is of type `T`.
Fetching: TypeAlias = Generator[Fetch, Fetched, T]


def fetch_all(fetching: Fetching[T], send: Callable[[Fetch], Fetched]) -> T:
    """Send the requests of a generator; return its result."""
    try:
        request = next(fetching)
        while True:
            try:
                response = send(request)
            except FetchError as exc:
                request = fetching.throw(exc)
            else:
                request = fetching.send(response)
    except StopIteration as exc:
        result: T = exc.value
        return result
    finally:
        fetching.close()


async def fetch_all_async(
    fetching: Fetching[T], send: Callable[[Fetch], Awaitable[Fetched]]
) -> T:
    """Send the requests of a generator on an event loop; return its result."""
    try:
        request = next(fetching)
        while True:
            try:
                response = await send(request)
            except FetchError as exc:
                request = fetching.throw(exc)
            else:
                request = fetching.send(response)
    except StopIteration as exc:
        result: T = exc.value
        return result
    finally:
        fetching.close()


def form_of(fields: Mapping[str, str | None]) -> bytes:
    """Return fields as the body of a form; `None` leaves a field out."""
    given = {name: text for name, text in fields.items() if text is not None}
    return urlencode(given).encode()


def json_of(url: str, response: Fetched) -> dict[str, JSON]:
    """Return the JSON object in a response.

    Args:
        url: The URL that was asked, for the message.
        response: The response.

    Raises:
        FetchError: If it has none.
    """
    try:
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FetchError(
            url, f"the response of status {response.status} is not a JSON object"
        )
    return found
