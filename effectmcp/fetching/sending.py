"""Send the requests of generators with httpx2: on asyncio or trio, or in a thread.

The address is resolved once, checked (`zones`), and then connected to: so a name cannot
point to another address meanwhile. A proxy of the environment resolves names itself, so
of its targets only the URLs are checked.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import anyio.to_thread
import httpx2
from attrs import define, field

from ..logs import logger_for
from .requests import Fetch, Fetched, FetchError
from .zones import Zone, zone_of, zone_of_party, zone_of_url

__all__ = ["Sender", "SyncSender", "send", "send_in_thread"]

logger = logger_for("effectmcp.fetching")

_CLOSER: Final = "its address is closer to this machine than the party that named it"


# ---- which address ------------------------------------------------------------------


def _is_named(url: str) -> bool:
    return zone_of_url(url) is None


def _checked(request: Fetch, near: Iterable[str], own: Iterable[str]) -> str | None:
    """Return the address to connect to; `None` to leave it to a proxy.

    Raises:
        FetchError: If the party may not name this URL.
    """
    party = zone_of_party(request.near, near)
    literal = zone_of_url(request.url)
    addresses = list(own)
    zones = [literal] if literal is not None else list(map(zone_of, addresses))
    for zone in zones:
        if zone is Zone.FORBIDDEN or zone > party:
            raise FetchError(request.url, _CLOSER)
        if urlsplit(request.url).scheme != "https" and zone is not Zone.LOOPBACK:
            raise FetchError(request.url, "it has to be https")
    if not zones and urlsplit(request.url).scheme != "https":
        raise FetchError(request.url, "it has to be https")
    return addresses[0] if addresses else None


def _names(request: Fetch) -> tuple[str | None, str | None]:
    """Return the names to resolve, of the party and of the URL.

    Raises:
        FetchError: If one is not a URL.
    """
    for url in (request.near, request.url):
        try:
            zone_of_url(url)
        except ValueError as exc:
            raise FetchError(url, str(exc)) from None
    near, own = urlsplit(request.near).hostname, urlsplit(request.url).hostname
    is_proxied = _is_proxied(request.url)
    return (
        near if _is_named(request.near) and not is_proxied else None,
        None if is_proxied else own,
    )


def _is_proxied(url: str) -> bool:
    parts = urlsplit(url)
    proxies = getproxies()
    if not proxies.get(parts.scheme) and not proxies.get("all"):
        return False
    return not proxy_bypass(parts.hostname or "")


def _resolve(name: str | None) -> list[str]:
    if name is None:
        return []
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _address_of(request: Fetch, near: str | None, own: str | None) -> str | None:
    try:
        # First the URL's own host: if it has no address, that is the problem to report.
        owned = _resolve(own)
        return _checked(request, _resolve(near), owned)
    except OSError as exc:
        raise FetchError(request.url, f"its host is unknown: {exc}") from None


# ---- one request --------------------------------------------------------------------


_contexts: Final[list[ssl.SSLContext]] = []


def _context() -> ssl.SSLContext:
    if not _contexts:
        _contexts.append(httpx2.create_ssl_context())
    return _contexts[0]


def _options(request: Fetch, address: str | None) -> tuple[dict[str, Any], Any]:
    """Return the options of the client, and the request to build."""
    parts = urlsplit(request.url)
    is_secure = parts.scheme == "https"
    client: dict[str, Any] = {
        "trust_env": address is None,
        "follow_redirects": False,
        "timeout": request.timeout,
        "verify": _context() if is_secure else False,
    }
    url, headers, extensions = request.url, dict(request.headers), {}
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
    except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as exc:
        words = str(exc) or type(exc).__name__
        raise FetchError(request.url, f"it cannot be reached: {words}") from exc


def _add(request: Fetch, body: bytearray, part: bytes) -> None:
    body += part
    if len(body) > request.longest:
        problem = f"the response has more than {request.longest:,} bytes"
        raise FetchError(request.url, problem)


def _fetched(response: httpx2.Response, body: bytearray) -> Fetched:
    headers = {name.lower(): text for name, text in response.headers.items()}
    return Fetched(status=response.status_code, headers=headers, body=bytes(body))


async def send(request: Fetch) -> Fetched:
    """Send a request on an event loop; return its response.

    Raises:
        FetchError: If there is none.
    """
    names = _names(request)
    with _reported(request):
        try:
            with anyio.fail_after(request.timeout):
                # The resolver blocks, and cannot be stopped.
                address = await anyio.to_thread.run_sync(
                    _address_of, request, *names, abandon_on_cancel=True
                )
                options, sent = _options(request, address)
                body = bytearray()
                async with (
                    httpx2.AsyncClient(**options) as client,
                    client.stream(**sent) as response,
                ):
                    async for part in response.aiter_bytes():
                        _add(request, body, part)
        except TimeoutError:
            raise FetchError(request.url, "it takes too long") from None
    return _fetched(response, body)


def send_in_thread(request: Fetch) -> Fetched:
    """Send a request, and block until its response has arrived.

    Raises:
        FetchError: If there is none.
    """
    address = _address_of(request, *_names(request))
    options, sent = _options(request, address)
    body = bytearray()
    with (
        _reported(request),
        httpx2.Client(**options) as client,
        client.stream(**sent) as response,
    ):
        for part in response.iter_bytes():
            _add(request, body, part)
    return _fetched(response, body)


# ---- one at a time ------------------------------------------------------------------


@define(eq=False)
class _Flight:
    """A shared request that is being sent."""

    landed: Any
    response: Fetched | None = None
    error: FetchError | None = None


@define(eq=False)
class Sender:
    """Sends requests on one event loop; shared ones one at a time for each URL."""

    _flights: dict[str, _Flight] = field(factory=dict)

    async def __call__(self, request: Fetch) -> Fetched:
        """Send a request; return its response.

        Raises:
            FetchError: If there is none.
        """
        if not request.is_shared:
            return await send(request)
        while (flight := self._flights.get(request.url)) is not None:
            await flight.landed.wait()
            if flight.error is not None:
                raise FetchError(flight.error.url, flight.error.problem)
            if flight.response is not None:
                return flight.response
            # Its sender was cancelled: somebody else has to send it.
        flight = self._flights[request.url] = _Flight(anyio.Event())
        try:
            flight.response = await send(request)
            return flight.response
        except FetchError as exc:
            flight.error = exc
            raise
        finally:
            del self._flights[request.url]
            flight.landed.set()


@define(eq=False)
class SyncSender:
    """Sends requests in threads; shared ones one at a time for each URL."""

    send: Callable[[Fetch], Fetched] = send_in_thread
    _lock: threading.Lock = field(factory=threading.Lock)
    _flights: dict[str, _Flight] = field(factory=dict)

    def __call__(self, request: Fetch) -> Fetched:
        """Send a request; return its response.

        Raises:
            FetchError: If there is none.
        """
        if not request.is_shared:
            return self.send(request)
        while True:
            with self._lock:
                flight = self._flights.get(request.url)
                if flight is None:
                    flight = self._flights[request.url] = _Flight(threading.Event())
                    break
            flight.landed.wait(request.timeout)
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
                del self._flights[request.url]
            flight.landed.set()
