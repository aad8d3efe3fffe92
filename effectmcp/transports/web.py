"""Rules for requests of Streamable HTTP, and the form of its responses. No I/O.

    check_origin(site, head, headers)     refuse unknown hosts and the pages of others
    check_request(site, head, headers)    refuse other methods, paths and media types
    sse(message)                          one event of a stream

A page in a browser can reach a server on its user's machine through a name that resolves
to that machine (DNS rebinding), so `Host` and `Origin` are checked before anything else
(2026-07-28, Streamable HTTP, Security & Endpoint).
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from attrs import define, field, frozen, validators
from attrs.converters import optional

from ..errors import ProtocolError, UsageError
from ..logs import logger_for
from ..protocol.jsonrpc import INVALID_REQUEST, encode, error_message
from ..protocol.revisions import names_session
from ..records import record
from .caching import cached

__all__ = [
    "JSON_TYPE",
    "KEEP_ALIVE",
    "PIECE",
    "READY",
    "SSE_HEADERS",
    "Fields",
    "Head",
    "Readiness",
    "Send",
    "Site",
    "TwiceError",
    "check_origin",
    "check_request",
    "client_address",
    "cors",
    "cut",
    "document",
    "is_local",
    "joined",
    "length_of",
    "parse_address",
    "probe",
    "probes_of",
    "refusal",
    "session_named",
    "sse",
]

logger = logger_for("effectmcp.server")

JSON_TYPE: Final = "application/json"

#: A comment, which clients ignore: it keeps proxies from closing a quiet stream.
KEEP_ALIVE: Final = b":\n\n"

SSE_HEADERS: Final = (
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-store"),
    # Without this, nginx would hold events back until its buffer is full.
    ("X-Accel-Buffering", "no"),
)


def _lower(text: str) -> str:
    return text.lower()


def _lowered(texts: Collection[str]) -> Collection[str]:
    if isinstance(texts, str):
        # A string would pass as a collection of its letters.
        raise UsageError(
            f"Site(): {texts!r} is a string, not a list; write [{texts!r}]"
        )
    return frozenset(text.lower() for text in texts)


# In ASCII, as browsers send it: a response repeats it, and headers must be ASCII.
_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!\"$-.0->A-~]+\Z")


def _check_path(site: object, attribute: object, path: str | None) -> None:
    if path is not None and not path.startswith("/"):
        raise UsageError(f"Site(path={path!r}): write {'/' + path!r}")


def _check_origins(site: object, attribute: object, origins: Collection[str]) -> None:
    for origin in origins:
        if origin != "null" and not _ORIGIN.match(origin):
            raise UsageError(
                f"Site(origins=...): {origin!r} is not an origin; write"
                " https://app.example, with a port where it is not the usual one"
            )


_UNIX: Final = "unix"


def _check_proxies(site: object, attribute: object, proxies: Collection[str]) -> None:
    for proxy in proxies:
        problem = "is not an address or a network"
        try:
            network = _network(proxy)
            if network is None or getattr(network[0], "ipv4_mapped", None) is None:
                continue
            problem = "is an IPv4 address in another form"
        except ValueError:
            pass
        raise UsageError(
            f"trusted proxies: {proxy!r} {problem}; write 10.0.0.7, 10.0.0.0/8 or {_UNIX!r}"
        )


@functools.lru_cache
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    return None if text == _UNIX else ipaddress.ip_network(text)


@frozen(kw_only=True)
class Site:
    """The path of a server, the hosts and origins that are allowed, and how much of the
    server one user or address may take. Who may call is for `Server(auth=...)`.

    Attributes:
        path: The only path that is served; `None` for every path, if a host has routed
            the request already.
        hosts: The allowed names in `Host`. `None` allows any name, but only names of this
            machine if the server is bound to a loopback address.
        origins: Origins, such as `https://app.example`, whose pages may call the
            server, in addition to the origins of the server's own host.
        max_body: The maximum size of a request's body in bytes.
        proxies: Addresses and networks of trusted proxies, such as `10.0.0.0/8`;
            `"unix"` for clients of Unix sockets. Their header names the client. They
            have no share themselves.
        forwarded: The header that these proxies set: `X-Forwarded-For` or `Forwarded`.
            A proxy passes on the other one as clients send it, so only one is read.
        share: The part of each limit that one user or, without authentication, one
            address may take: of connections, sessions, waiting requests, bytes. 1: all.
        waiting: How many requests may wait for changes: subscriptions, and requests for
            the results of running tasks.
        bodies: Bytes of requests that the server holds at once, by their size on the
            wire: of requests that still arrive, and of requests that are being answered.
        unsent: Bytes of large responses that clients have not read yet. Beyond it, the
            oldest response of the user or address with the most of them breaks off.
        probes: Whether `/healthz` and `/readyz` are answered beside the endpoint, for a
            balancer. They are not if `path` is `None`, as the host routes requests.
    """

    path: str | None = field(default="/mcp", validator=_check_path)
    hosts: Collection[str] | None = field(default=None, converter=optional(_lowered))
    origins: Collection[str] = field(
        default=(), converter=_lowered, validator=_check_origins
    )
    max_body: int = field(default=4 * 1024 * 1024, validator=validators.ge(0))
    proxies: Collection[str] = field(
        default=(), converter=_lowered, validator=_check_proxies
    )
    forwarded: str = field(
        default="x-forwarded-for",
        converter=_lower,
        validator=validators.in_(("x-forwarded-for", "forwarded")),
    )
    share: float = field(
        default=0.25, validator=validators.and_(validators.gt(0), validators.le(1))
    )
    waiting: int = field(default=500, validator=validators.ge(1))
    bodies: int = field(default=128 * 1024 * 1024, validator=validators.ge(1))
    unsent: int = field(default=128 * 1024 * 1024, validator=validators.ge(1))
    probes: bool = True


@record
class Head:
    """The head of a request.

    Attributes:
        method: The method, such as `POST`.
        path: The path, without the query.
        headers: The headers in their order; or, if it is known that no name was repeated,
            a dict with lower-cased names and values without surrounding spaces.
        bound_to: The server's address that received the request; `None` if unknown.
        peer: The client address; `None` if unknown.
    """

    method: str
    path: str
    headers: Iterable[tuple[str, str]] | dict[str, str] = field(repr=False)
    bound_to: str | None = None
    peer: str | None = None


Fields: TypeAlias = tuple[tuple[str, str], ...]


@record
class Send:
    """A response to send, or a part of one.

    Attributes:
        status: The status of a response that starts here; `None` for a later part.
        headers: The headers of a response that starts here, without its length.
        data: Bytes of the body.
        is_last: Whether the response ends with these bytes.
        more: The pieces of a large body that follow `data`; `None` for a small one. A host
            removes each piece when it sends it: so the memory is freed while a client
            reads, and a client that does not read keeps no second copy.
    """

    status: int | None
    headers: Fields = ()
    data: bytes = field(default=b"", repr=False)
    is_last: bool = True
    more: deque[bytes] | None = field(default=None, eq=False, repr=False)

    @property
    def length(self) -> int:
        """The number of bytes that are left to send."""
        return len(self.data) + sum(map(len, self.more or ()))


#: The size of a piece: larger bodies are sent in pieces.
PIECE: Final = 256 * 1024


def cut(data: bytes) -> tuple[bytes, deque[bytes]]:
    """Cut a large body into its first piece, and the others."""
    places = range(PIECE, len(data), PIECE)
    return data[:PIECE], deque(data[one : one + PIECE] for one in places)


def length_of(answer: Send) -> Fields:
    """Return the Content-Length of a whole response, as a header or as no headers."""
    # A 204 has no Content-Length (RFC 9110, section 8.6).
    if answer.status == 204 or not answer.is_last:
        return ()
    if any(name == "Content-Length" for name, _ in answer.headers):
        return ()  # the length of a body that is not sent, as for HEAD
    return (("Content-Length", str(answer.length)),)


class TwiceError(Exception):
    """Raised when a header is repeated that must occur only once."""


def joined(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-cased name.

    Raises:
        TwiceError: If a header is repeated that must occur only once.
    """
    headers: dict[str, str] = {}
    for name, value in fields:
        name = name.lower()
        if name in headers:
            if name in _SINGLE or name.startswith("mcp-"):
                raise TwiceError(name)
            value = f"{headers[name]}, {value}"
        headers[name] = value.strip(" \t")
    return headers


#: A second one of these is a contradiction or an attack (RFC 9110, section 5.3).
_SINGLE: Final = frozenset(
    {"authorization", "content-length", "content-type", "host", "origin"}
)


def check_request(
    site: Site, asked: Head, headers: Mapping[str, str], *, has_sessions: bool
) -> Send | None:
    """Return the refusal of a request that no user may send; `None` if it is allowed.

    Args:
        site: The site that received it.
        asked: The head of the request.
        headers: Its headers, by lower-cased name.
        has_sessions: Whether there are sessions, for which GET and DELETE are allowed.
    """
    if site.path is not None and asked.path.rstrip("/") != site.path.rstrip("/"):
        return refusal(404, f"this path does not exist; use {site.path}")
    if asked.method == "OPTIONS" and "origin" in headers:
        return Send(204, _PREFLIGHT)
    if asked.method == "POST":
        if _media_type(headers.get("content-type", "")) != JSON_TYPE:
            return refusal(415, f"send Content-Type: {JSON_TYPE}")
        if not _accepts(headers.get("accept", "*/*")):
            return refusal(406, "accept application/json and text/event-stream")
    # Only earlier revisions have GET streams and DELETE (Earlier Revisions).
    elif (
        asked.method not in ("GET", "DELETE")
        or not has_sessions
        or session_named(headers) is None
    ):
        return refusal(405, "ask with POST", ("Allow", "POST"))
    elif asked.method == "GET" and not _reads(headers.get("accept", "*/*")):
        return refusal(406, "accept text/event-stream")
    return None


def session_named(headers: Mapping[str, str]) -> str | None:
    """Return the id of the session that `headers` name, if their revision has sessions."""
    return headers.get("mcp-session-id") if names_session(headers) else None


_ALLOW_HOST: Final = "see --allow-host, Site(hosts=)"


#: Characters of a client's header that are logged.
_SAID: Final = 200


def check_origin(site: Site, asked: Head, headers: Mapping[str, str]) -> str | None:
    """Return why the request's host or origin is refused; `None` if both are allowed."""
    problem = _origin_problem(site, asked, headers)
    if problem is not None:
        # A client chose these values: %r escapes them in the log.
        names = headers.get("host", "")[:_SAID], headers.get("origin", "")[:_SAID]
        logger.info(
            "a request from %s was refused, of host and origin %r: %s",
            asked.peer,
            names,
            problem,
        )
    return problem


def _origin_problem(site: Site, asked: Head, headers: Mapping[str, str]) -> str | None:
    host = _host_of(headers.get("host", ""))
    if site.hosts is not None:
        if host not in site.hosts:
            return f"this server is not known by that name; {_ALLOW_HOST}"
    elif asked.bound_to is not None and (
        is_local(asked.bound_to) and not is_local(host)
    ):
        return f"this server is for its own machine; {_ALLOW_HOST}"
    origin = headers.get("origin")
    if origin is None or origin in site.origins:
        return None
    page = _host_of(origin.partition("://")[2]) if _ORIGIN.match(origin) else ""
    if is_local(page) and is_local(host):
        return None
    # The server's own pages. Without `site.hosts`, the same name in both headers proves
    # nothing: it may be an attacker's name that resolves to this address. An IP address
    # does prove it, as no DNS is involved.
    if page and page == host and (site.hosts is not None or _is_address(host)):
        return None
    return "pages of this origin may not call here; see --allow-origin, Site(origins=)"


#: A name or an address, and a port: no user, no path.
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]/?#@\\:]+)(?::[0-9]*)?\Z")


@cached
def _host_of(authority: str) -> str:
    """Return the name, or the address without brackets; empty if it is invalid."""
    match = _AUTHORITY.match(authority)
    return match[1].strip("[]").lower() if match else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@cached
def is_local(host: str) -> bool:
    """Return whether a name or an address is of this machine only."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # A socket for IPv4 and IPv6 reports IPv4 addresses in their mapped form.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


# ---- probes -------------------------------------------------------------------------


@define(eq=False)
class Readiness:
    """Whether a balancer may send clients here; the requests of one server share it.

    Attributes:
        is_draining: Whether the server will soon stop.
    """

    is_draining: bool = False


_HEALTH: Final = "/healthz"
READY: Final = "/readyz"


def probes_of(site: Site) -> frozenset[str]:
    """Return the paths that `probe` answers: none of them is the endpoint's own."""
    if site.path is None or not site.probes:
        return frozenset()
    return frozenset({_HEALTH, READY}) - {site.path.rstrip("/")}


def probe(asked: Head, readiness: Readiness, *, is_open: bool) -> Send:
    """Answer a balancer. Any client may ask, so the answer has nothing but the status.

    Args:
        asked: The head of a request for one of `probes_of`.
        readiness: Whether the server will soon stop.
        is_open: Whether the lifespan of the server is open.
    """
    if asked.method not in ("GET", "HEAD"):
        return Send(405, (("Allow", "GET, HEAD"), *_PLAIN))
    if asked.path == _HEALTH:
        return Send(200, _PLAIN, b"ok\n")
    if readiness.is_draining:
        return Send(503, _PLAIN, b"draining\n")
    return Send(200, _PLAIN, b"ok\n") if is_open else Send(503, _PLAIN, b"starting\n")


_PLAIN: Final = (("Content-Type", "text/plain"), ("Cache-Control", "no-store"))


def document(asked: Head, body: bytes) -> Send:
    """Answer a request for a public document, such as the metadata of this server."""
    if asked.method == "OPTIONS":
        # Clients in pages ask for it with a header of the protocol, so browsers ask first.
        return Send(204, _ANY_PAGE)
    if asked.method not in ("GET", "HEAD"):
        return Send(405, (("Allow", "GET, HEAD"), *_PLAIN))
    return Send(200, _DOCUMENT, body)


#: Pages of every origin may read it, as it contains nothing of a user.
_DOCUMENT: Final = (
    ("Content-Type", JSON_TYPE),
    ("Cache-Control", "max-age=3600"),
    ("Access-Control-Allow-Origin", "*"),
)

_ANY_PAGE: Final = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "GET, HEAD"),
    ("Access-Control-Allow-Headers", "*"),
    ("Access-Control-Max-Age", "600"),
)


# ---- proxies ------------------------------------------------------------------------

#: Characters of a name that a proxy gives to a client.
_LONGEST_NAME: Final = 100

#: The client in an element of `Forwarded` (RFC 7239, section 4).
_FOR: Final = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^\s;]*)', re.IGNORECASE)

#: An address with a port: `192.0.2.1:80` or `[2001:db8::1]:80`; no bare IPv6 address.
_PORT: Final = re.compile(r"\[(.*)\](?::\d+)?\Z|([^:]*):\d+\Z")


def client_address(
    site: Site, peer: str | None, headers: Mapping[str, str]
) -> str | None:
    """Return the address of the client that sent a request, also through proxies.

    Args:
        site: The site, with the proxies that it trusts.
        peer: The address that the request came from; `None` for a Unix socket.
        headers: The headers by lower-cased name.

    Returns:
        The address or the name that the trusted proxies gave; `None` if they gave none.
    """
    if not _is_proxy(site, peer):
        return peer
    # The last element was added by the proxy that sent this, the element before by the
    # proxy that the last one names. What the first untrusted address says is not read.
    for element in reversed(headers.get(site.forwarded, "").split(",")):
        if site.forwarded == "forwarded":
            found = _FOR.search(element)
            element = found[1].strip('"') if found else ""
        name = _without_port(element.strip())
        if not name or name.lower() == "unknown":
            return None
        if not _is_proxy(site, name):
            return name[:_LONGEST_NAME]
    return None


def _without_port(text: str) -> str:
    found = _PORT.match(text)
    return text if found is None else found[1] or found[2] or ""


def _is_proxy(site: Site, peer: str | None) -> bool:
    if peer is None:
        return _UNIX in site.proxies
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    # A socket for IPv4 and IPv6 reports IPv4 addresses in their mapped form.
    address = getattr(address, "ipv4_mapped", None) or address
    networks = map(_network, site.proxies)
    return any(one is not None and address in one for one in networks)


_PREFLIGHT: Final = (
    ("Access-Control-Allow-Methods", "POST, GET, DELETE"),
    ("Access-Control-Allow-Headers", "*, Authorization"),
    ("Access-Control-Max-Age", "600"),
)


def cors(origin: str | None) -> Fields:
    """Return the headers with which a browser lets a page of `origin` read a response."""
    if origin is None:
        return ()
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", "WWW-Authenticate, Mcp-Session-Id"),
        ("Vary", "Origin"),
    )


@cached
def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


@cached
def _accepts(header: str) -> bool:
    types = {_media_type(one) for one in header.split(",")}
    if "*/*" in types:
        return True
    return {"application/json", "application/*"} & types != set() and (
        {"text/event-stream", "text/*"} & types != set()
    )


def _reads(header: str) -> bool:
    types = {_media_type(one) for one in header.split(",")}
    return bool({"*/*", "text/*", "text/event-stream"} & types)


def refusal(status: int, problem: str, *headers: tuple[str, str]) -> Send:
    """Return an error response about `problem`, for a request whose id is not known."""
    error = ProtocolError(INVALID_REQUEST, f"Invalid request: {problem}")
    body = encode(error_message(None, error))
    return Send(status, (*headers, ("Content-Type", JSON_TYPE)), body)


def sse(message: bytes) -> bytes:
    """Return a message, which is one line, as an event of a stream."""
    return b"event: message\ndata: " + message + b"\n\n"


def parse_address(text: str, default_port: int = 8000) -> tuple[str, int]:
    """Parse `HOST:PORT`, `HOST`, `[::1]:PORT`, `:PORT` or `PORT`; return host and port.

    Raises:
        UsageError: If `text` has another form.
    """
    try:
        parts = urlsplit(f"//:{text}" if text.isdigit() else f"//{text}")
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        raise UsageError(f"{text!r} is not an address; write 127.0.0.1:8000") from None
    if parts.netloc != text and parts.netloc != f":{text}" or "@" in text:
        raise UsageError(f"{text!r} is not an address; write 127.0.0.1:8000")
    return host, default_port if port is None else port
