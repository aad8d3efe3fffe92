"""Sockets that listen at an address, and their TLS, before any loop runs."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import UsageError

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = [
    "BindError",
    "bind",
    "close",
    "host_of",
    "not_bound",
    "tls_context",
    "url_of",
]

_BACKLOG: Final = 1_024


class _Bound(Protocol):
    """A socket, or one of trio's."""

    def getsockname(self) -> Any: ...


class BindError(OSError):
    """Raised when an address does not exist, or cannot be bound."""


def bind(host: str, port: int, *, shared: bool) -> list[socket.socket]:
    """Return sockets that listen at every address of `host`, all on one port.

    Args:
        host: The address, or a name with one or more addresses.
        port: The port; 0 for any free port.
        shared: Whether further sockets may be bound to the same address and port, and
            get some of the clients.

    Raises:
        BindError: If `host` has no address, or an address cannot be bound.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in found:
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            port = port or sockets[0].getsockname()[1]
            one.bind((address[0], port, *address[2:]))
            one.listen(_BACKLOG)
    except BaseException as exc:
        close(sockets)
        if isinstance(exc, OSError):
            raise BindError(exc.errno, exc.strerror or str(exc)) from exc
        raise
    return sockets


def close(sockets: Sequence[socket.socket]) -> None:
    """Close sockets."""
    for one in sockets:
        one.close()


def url_of(scheme: str, one: _Bound, path: str | None) -> str:
    """Return the URL of `path` at the address where a socket listens."""
    name = one.getsockname()
    where = repr(name)  # a Unix socket's path
    if isinstance(name, tuple):
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        where = f"{host}:{name[1]}"
    return f"{scheme}://{where}{path or '/'}"


def host_of(one: _Bound) -> str | None:
    """Return the address at which a socket listens; `None` for a Unix socket."""
    name = one.getsockname()
    return str(name[0]) if isinstance(name, tuple) else None


def not_bound(host: str, port: int, exc: OSError) -> UsageError:
    """Return the error of an address that cannot be used."""
    return UsageError(f"cannot listen at {host}, port {port}: {exc.strerror or exc}")


def tls_context(certificate: str | None, key: str | None) -> SSLContext | None:
    """Return the context to serve TLS with; `None` without a certificate.

    Raises:
        UsageError: If the files cannot be used.
    """
    if certificate is None:
        if key is not None:
            raise UsageError("--key belongs to a --certificate")
        return None
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as exc:
        raise UsageError(f"--certificate {certificate}: {exc}") from None
    return context
