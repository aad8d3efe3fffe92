"""What holds for Streamable HTTP whoever reads the bytes. Pure.

    admit(site, request)    may this be asked here? → the peer, or a refusal
    sse(message)            one event of a stream

A page in a browser can reach a server on its user's machine by a name that resolves
there (DNS rebinding), so `Host` and `Origin` are looked at before anything else
(2026-07-28, Streamable HTTP, Security & Endpoint).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from attrs import field, frozen

from ..errors import ProtocolError, UsageError
from ..exchange.commands import Peer
from ..protocol.jsonrpc import INVALID_REQUEST, encode, error_message

__all__ = [
    "JSON_TYPE",
    "KEEP_ALIVE",
    "SSE_HEADERS",
    "Answer",
    "Asked",
    "Site",
    "admit",
    "cors",
    "parse_address",
    "sse",
    "too_large",
]

JSON_TYPE: Final = "application/json"

#: A comment, which clients ignore: it keeps proxies from closing a quiet stream.
KEEP_ALIVE: Final = b":\n\n"

SSE_HEADERS: Final = (
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-store"),
    # nginx would otherwise keep events back until its buffer is full.
    ("X-Accel-Buffering", "no"),
)


@frozen(kw_only=True)
class Site:
    """Where a server is, and whom it lets in.

    Attributes:
        path: The one path that answers; `None` for every path, where a host has routed
            already.
        hosts: Names that `Host` may have; `None` for those of the address it is bound
            to: on a loopback address only names of this machine, elsewhere any.
        origins: Origins, such as `https://app.example`, whose pages may call besides
            those of the server's own host.
        max_body: Bytes that a request may have.
        authenticate: The user behind some headers, by lower-cased name; `None` for
            nobody. Where it raises `PermissionError`, the answer is 401.
    """

    path: str | None = "/mcp"
    hosts: Collection[str] | None = None
    origins: Collection[str] = ()
    max_body: int = 4 * 1024 * 1024
    authenticate: Callable[[Mapping[str, str]], str | None] | None = None


@frozen
class Asked:
    """The head of a request.

    Attributes:
        method: Such as `POST`.
        path: Without the query.
        headers: In the order in which they came.
        bound_to: The address on which it came in, if that is known.
        peer: The address from which it came.
    """

    method: str
    path: str
    headers: Iterable[tuple[str, str]]
    bound_to: str | None = None
    peer: str | None = None


@frozen
class Answer:
    """A whole response.

    Attributes:
        status: The status.
        headers: Its headers, without those that say how long it is.
        body: The body.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)


def admit(site: Site, asked: Asked) -> Peer | Answer:
    """Whether `asked` may be asked here; its body is read only then.

    Returns:
        Who asks, or the answer that it may not.
    """
    headers: dict[str, str] = {}
    for name, value in asked.headers:
        name = name.lower()
        if name in headers:
            if name in _SINGLE or name.startswith("mcp-"):
                return _refusal(400, f"the header {name} came twice")
            value = f"{headers[name]}, {value}"
        headers[name] = value.strip(" \t")
    refusal = _check_origin(site, asked, headers)
    if refusal is not None:
        return refusal
    origin = headers.get("origin")
    if site.path is not None and asked.path.rstrip("/") != site.path.rstrip("/"):
        return _refusal(404, f"there is nothing at this path; ask {site.path}")
    if asked.method == "OPTIONS" and origin is not None:
        return Answer(204, _preflight(origin))
    if asked.method != "POST":
        # GET streams and DELETE are of earlier revisions (Earlier Revisions).
        refused = _refusal(405, "ask with POST")
        return Answer(405, (("Allow", "POST"), *refused.headers), refused.body)
    if _media_type(headers.get("content-type", "")) != JSON_TYPE:
        return _refusal(415, f"send Content-Type: {JSON_TYPE}")
    if not _accepts(headers.get("accept", "*/*")):
        return _refusal(406, "accept application/json and text/event-stream")
    principal = None
    if site.authenticate is not None:
        try:
            principal = site.authenticate(headers)
        except PermissionError as exc:
            refused = _refusal(401, str(exc) or "who are you?")
            return Answer(
                401, (("WWW-Authenticate", "Bearer"), *refused.headers), refused.body
            )
    return Peer(principal=principal, headers=headers, address=asked.peer)


#: Of these, a second one is a contradiction or an attack (RFC 9110, section 5.3).
_SINGLE: Final = frozenset({"host", "origin", "content-type", "content-length"})


def _check_origin(
    site: Site, asked: Asked, headers: Mapping[str, str]
) -> Answer | None:
    host = _host_of(headers.get("host", ""))
    hosts = site.hosts
    if hosts is None and _is_local(asked.bound_to):
        if not _is_local(host):
            return _refusal(403, "this server is for its own machine; see hosts=")
    elif hosts is not None and host not in {one.lower() for one in hosts}:
        return _refusal(403, "this server is not known by that name; see hosts=")
    origin = headers.get("origin")
    if origin is None or origin in site.origins:
        return None
    known = urlsplit(origin).hostname if "://" in origin else None
    if known is not None and (known == host or (_is_local(known) and _is_local(host))):
        return None
    return _refusal(403, "pages of this origin may not call here; see origins=")


def _host_of(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_local(host: str | None) -> bool:
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _preflight(origin: str) -> tuple[tuple[str, str], ...]:
    return (
        ("Access-Control-Allow-Methods", "POST"),
        ("Access-Control-Allow-Headers", "*, Authorization"),
        ("Access-Control-Max-Age", "600"),
        *cors(origin),
    )


def cors(origin: str | None) -> tuple[tuple[str, str], ...]:
    """What a browser must read before it shows an answer to a page of `origin`."""
    if origin is None:
        return ()
    return (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _accepts(header: str) -> bool:
    types = {_media_type(one) for one in header.split(",")}
    if "*/*" in types:
        return True
    return {"application/json", "application/*"} & types != set() and (
        {"text/event-stream", "text/*"} & types != set()
    )


def _refusal(status: int, problem: str) -> Answer:
    error = ProtocolError(INVALID_REQUEST, f"Invalid request: {problem}")
    body = encode(error_message(None, error))
    return Answer(status, (("Content-Type", JSON_TYPE),), body)


def too_large(site: Site) -> Answer:
    """The answer to a body that is larger than `site.max_body`."""
    return _refusal(413, f"a request has at most {site.max_body:,} bytes")


def sse(message: bytes) -> bytes:
    """A message, one line, as an event of a stream."""
    return b"event: message\ndata: " + message + b"\n\n"


def parse_address(text: str, default_port: int = 8000) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, `:PORT` or `PORT`.

    Raises:
        UsageError: It is none of these.
    """
    try:
        parts = urlsplit(f"//:{text}" if text.isdigit() else f"//{text}")
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        raise UsageError(f"{text!r} is no address; write 127.0.0.1:8000") from None
    if parts.netloc != text and parts.netloc != f":{text}" or "@" in text:
        raise UsageError(f"{text!r} is no address; write 127.0.0.1:8000")
    return host, default_port if port is None else port
