"""Send the requests of generators with httpx2: on asyncio or trio, or in a thread.

The address is resolved once, checked (`zones`), and then connected to: so a name cannot
point to another address meanwhile. A proxy of the environment resolves names itself, so
of its targets only the URLs are checked. Whether there is a proxy is decided here, once:
httpx2 reads `no_proxy` in another way, and would connect to addresses without a check.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import anyio.to_thread
import httpx2
from anyio.lowlevel import RunVar
from attrs import define, field

from ..logs import logger_for
from .requests import Fetch, Fetched, FetchError
from .zones import Zone, zone_of, zone_of_party, zone_of_url

__all__ = ["Sender", "SyncSender", "own_sender", "send", "send_in_thread"]

logger = logger_for("effectmcp.fetching")

_CLOSER: Final = "its address is closer to this machine than the party that named it"

#: Characters of a stranger's text in a message.
_SAID: Final = 200

#: Addresses of a host that are tried.
_MOST_TRIED: Final = 4

#: Seconds that a thread waits for a request of another thread. An issuer that hangs would
#: otherwise hold all threads of a WSGI host, also those for users of other issuers.
_PATIENCE: Final = 3.0


# ---- which address ------------------------------------------------------------------


def _check(request: Fetch, near: Iterable[str], own: Iterable[str]) -> None:
    """Check that the party may name this URL, given the addresses of both.

    Raises:
        FetchError: If it may not.
    """
    party = zone_of_party(request.near, near)
    literal = zone_of_url(request.url)
    zones = [*map(zone_of, own), *([] if literal is None else [literal])]
    for zone in zones:
        if zone is Zone.FORBIDDEN or zone > party:
            raise FetchError(request.url, _CLOSER)
    is_loopback = bool(zones) and min(zones) is Zone.LOOPBACK
    if urlsplit(request.url).scheme != "https" and not is_loopback:
        raise FetchError(request.url, "it has to be https")


def _check_urls(request: Fetch) -> None:
    """Check what the URLs alone tell.

    Raises:
        FetchError: If one is not a URL, or names a forbidden address.
    """
    for url in (request.near, request.url):
        try:
            literal = zone_of_url(url)
        except ValueError as exc:
            raise FetchError(request.url, f"{url[:_SAID]!r}: {exc}") from None
        if literal is Zone.FORBIDDEN and url == request.url:
            raise FetchError(url, _CLOSER)


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for a URL."""
    parts, proxies = urlsplit(url), getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    host = parts.hostname or ""
    if not found or proxy_bypass(host) or proxy_bypass(f"{host}:{parts.port}"):
        return None
    return found if "://" in found else f"http://{found}"


def _resolve(url: str) -> list[str]:
    host = urlsplit(url).hostname
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _addresses_of(request: Fetch, proxy: str | None) -> list[str]:
    """Return the addresses to connect to; none, to leave it to the proxy.

    Raises:
        FetchError: If the host is unknown, or the party may not name its addresses.
    """
    near: list[str] = []
    own: list[str] = []
    if proxy is None:
        try:
            # First the URL's own host: if it has no address, report that.
            own = _resolve(request.url)
            if zone_of_url(request.near) is None:
                near = _resolve(request.near)
        # A name that is too long, or not one at all, is a ValueError.
        except (OSError, ValueError) as exc:
            raise FetchError(request.url, f"its host is unknown: {exc}") from None
    _check(request, near, own)
    return own[:_MOST_TRIED]


#: The threads of each event loop that resolve names. A resolver that hangs keeps its
#: thread: of anyio's 40, which the rest of the program shares, it would take one each.
_MOST_RESOLVERS: Final = 40
_limiter: Final[RunVar[anyio.CapacityLimiter]] = RunVar("effectmcp_resolvers")


def _resolvers() -> anyio.CapacityLimiter:
    found = _limiter.get(None)
    if found is None:
        found = anyio.CapacityLimiter(_MOST_RESOLVERS)
        _limiter.set(found)
    return found


# ---- one request --------------------------------------------------------------------


_contexts: Final[list[ssl.SSLContext]] = []


def _context() -> ssl.SSLContext:
    if not _contexts:
        _contexts.append(httpx2.create_ssl_context())
    return _contexts[0]


def _options(
    request: Fetch, address: str | None, proxy: str | None, connect: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the client, and the request to build."""
    parts = urlsplit(request.url)
    is_secure = parts.scheme == "https"
    client: dict[str, Any] = {
        "trust_env": False,
        "proxy": proxy,
        "follow_redirects": False,
        "timeout": httpx2.Timeout(request.timeout, connect=connect),
        "verify": _context() if is_secure else False,
    }
    # A few compressed bytes could become gigabytes before they are counted.
    url, extensions = request.url, {}
    headers = {"Accept-Encoding": "identity", **request.headers}
    if address is not None:
        host = f"[{address}]" if ":" in address else address
        port = "" if parts.port is None else f":{parts.port}"
        url = parts._replace(netloc=f"{host}{port}", fragment="").geturl()
        headers["Host"] = parts.netloc
        extensions["sni_hostname"] = parts.hostname or ""
    sent = {
        "method": request.method,
        "url": url,
        "headers": headers,
        "content": request.body,
        "extensions": extensions,
    }
    return client, sent


@contextmanager
def _reported(request: Fetch) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise FetchError(request.url, "it takes too long") from None
    # A ValueError: a URL or a header that cannot be written.
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as exc:
        raise FetchError(request.url, f"it cannot be reached: {_words(exc)}") from exc


def _words(error: BaseException) -> str:
    """Return the message of an error, or of its cause: trio's has none for TLS."""
    found: BaseException | None = error
    while found is not None and not str(found):
        found = found.__cause__ or found.__context__
    return type(error).__name__ if found is None else str(found)


async def _receive(request: Fetch, response: httpx2.Response) -> Fetched:
    headers = {name.lower(): text for name, text in response.headers.items()}
    if headers.get("content-encoding", "identity") != "identity":
        raise FetchError(request.url, "the response is compressed")
    body = bytearray()
    with anyio.CancelScope() as scope:
        async for part in response.aiter_raw():
            body += part
            if len(body) > request.longest:
                # On trio, httpx2's generators can only be left by a cancellation.
                scope.cancel()
    if len(body) > request.longest:
        problem = f"the response has more than {request.longest:,} bytes"
        raise FetchError(request.url, problem)
    return Fetched(status=response.status_code, headers=headers, body=bytes(body))


async def send(request: Fetch) -> Fetched:
    """Send a request on an event loop; return its response.

    Raises:
        FetchError: If no response arrives, or it cannot be used.
    """
    _check_urls(request)
    proxy = _proxy_of(request.url)
    with _reported(request), anyio.fail_after(request.timeout):
        # The resolver blocks, and cannot be stopped.
        addresses: list[str | None] = [
            *await anyio.to_thread.run_sync(
                _addresses_of,
                request,
                proxy,
                abandon_on_cancel=True,
                limiter=_resolvers(),
            )
        ] or [None]
        while True:
            connect = request.timeout / len(addresses)
            options, sent = _options(request, addresses.pop(0), proxy, connect)
            try:
                async with (
                    httpx2.AsyncClient(**options) as client,
                    client.stream(**sent) as response,
                ):
                    return await _receive(request, response)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if not addresses:
                    raise


def send_in_thread(request: Fetch) -> Fetched:
    """Send a request, and block until its response has arrived.

    Raises:
        FetchError: If no response arrives, or it cannot be used.
    """
    # A loop of its own: blocking sockets have a limit for each read, and a server that
    # sends a byte every few seconds never reaches it.
    return anyio.run(send, request, backend="trio")


# ---- one at a time ------------------------------------------------------------------


#: What has to be equal, so that two requests get one response. The party is part of it:
#: what one may name, another may not.
_Key: TypeAlias = tuple[str, str, str, bytes, frozenset[tuple[str, str]]]


def _key(request: Fetch) -> _Key:
    headers = frozenset(request.headers.items())
    return request.method, request.url, request.near, request.body, headers


@define(eq=False)
class _Flight:
    """A shared request that is being sent."""

    landed: Any
    response: Fetched | None = None
    error: FetchError | None = None


@define(eq=False)
class Sender:
    """Sends requests on one event loop; equal shared ones one at a time."""

    _flights: dict[_Key, _Flight] = field(factory=dict, repr=False)

    async def __call__(self, request: Fetch) -> Fetched:
        """Send a request; return its response.

        Raises:
            FetchError: If no response arrives, or it cannot be used.
        """
        if not request.is_shared:
            return await send(request)
        key = _key(request)
        while (flight := self._flights.get(key)) is not None:
            await flight.landed.wait()
            if flight.error is not None:
                raise FetchError(flight.error.url, flight.error.problem)
            if flight.response is not None:
                return flight.response
            # Its sender was cancelled: another waiting task sends it.
        flight = self._flights[key] = _Flight(anyio.Event())
        try:
            flight.response = await send(request)
            return flight.response
        except FetchError as exc:
            flight.error = exc
            raise
        finally:
            del self._flights[key]
            flight.landed.set()


_sender: Final[RunVar[Sender]] = RunVar("effectmcp_sender")


def own_sender() -> Sender:
    """Return the sender of the running event loop."""
    found = _sender.get(None)
    if found is None:
        found = Sender()
        _sender.set(found)
    return found


@define(eq=False)
class SyncSender:
    """Sends requests in threads; equal shared ones one at a time.

    Attributes:
        send: Sends one request.
        patience: Seconds that a request waits for an equal one of another thread.
    """

    send: Callable[[Fetch], Fetched] = send_in_thread
    patience: float = _PATIENCE
    _lock: threading.Lock = field(factory=threading.Lock)
    _flights: dict[_Key, _Flight] = field(factory=dict, repr=False)

    def __call__(self, request: Fetch) -> Fetched:
        """Send a request; return its response.

        Raises:
            FetchError: If no response arrives, or it cannot be used.
        """
        if not request.is_shared:
            return self.send(request)
        key = _key(request)
        until = time.monotonic() + min(self.patience, request.timeout)
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    flight = self._flights[key] = _Flight(threading.Event())
                    break
            if not flight.landed.wait(max(0.0, until - time.monotonic())):
                problem = "the same request of another thread takes too long"
                raise FetchError(request.url, problem)
            if flight.error is not None:
                raise FetchError(flight.error.url, flight.error.problem)
            if flight.response is not None:
                return flight.response
        try:
            flight.response = self.send(request)
            return flight.response
        except FetchError as exc:
            flight.error = exc
            raise
        finally:
            with self._lock:
                del self._flights[key]
            flight.landed.set()
