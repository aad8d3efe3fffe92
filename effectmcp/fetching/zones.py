"""Which addresses a stranger may make this program ask. No I/O.

A server names its authorization server, which names its endpoints. A hostile one could
name an address that only this machine can reach, such as the metadata service of a cloud
(server-side request forgery). So a URL must be as far away as the party that named it, or
farther:

    party at                    may name
    a public address            https at public addresses
    a private network           https at public and private addresses
    a loopback address          these, and http and https at loopback addresses

Link-local addresses, multicast, and the metadata services of clouds are forbidden.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

__all__ = ["Zone", "zone_of", "zone_of_party", "zone_of_url"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Zone(IntEnum):
    """The distance of an address from this machine."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    FORBIDDEN = 3


#: Metadata services of clouds, beside the link-local ones.
_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254"),
            *("100.100.100.200", "168.63.129.16", "192.0.0.192"),
        ),
    )
)

#: Networks of carriers, and overlay networks: neither private nor global in `ipaddress`.
_SHARED: Final = ipaddress.ip_network("100.64.0.0/10")

#: IPv4 addresses behind a translator (RFC 6052), and the oldest way to write them.
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
_OWN: Final = frozenset(map(ipaddress.ip_address, ("::", "::1")))

#: All public IPv6 addresses. Others reach IPv4 addresses through translators, or sites.
_GLOBAL: Final = ipaddress.ip_network("2000::/3")
_UNIQUE: Final = ipaddress.ip_network("fc00::/7")


def zone_of(text: str) -> Zone:
    """Return the zone of an IP address; forbidden, if it is not an address."""
    try:
        return _zone(_inner(ipaddress.ip_address(text.partition("%")[0])))
    except ValueError:
        return Zone.FORBIDDEN


def _inner(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED or (address in _COMPATIBLE and address not in _OWN):
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _zone(address: Address) -> Zone:
    if address in _METADATA or address.is_link_local or address.is_multicast:
        return Zone.FORBIDDEN
    if address.is_unspecified:
        return Zone.FORBIDDEN  # this machine, on many systems
    if address.is_loopback:
        return Zone.LOOPBACK
    if address.version == 4 and address in _SHARED:
        return Zone.PRIVATE
    if address.version == 6 and address not in _GLOBAL:
        return Zone.PRIVATE if address in _UNIQUE else Zone.FORBIDDEN
    if address.is_global:
        return Zone.PUBLIC
    return Zone.PRIVATE if address.is_private else Zone.FORBIDDEN


def zone_of_url(url: str) -> Zone | None:
    """Return the zone of a URL's host, if its name alone tells; `None` if it is a name.

    Raises:
        ValueError: If it is not an http or https URL of a host.
    """
    parts = urlsplit(url)
    host = parts.hostname
    _ = parts.port  # raises for a wrong one
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise ValueError("it is not a URL of http or https")
    # Resolvers and proxies read the others in ways of their own: a URL is of ASCII.
    if not (_ADDRESS if "[" in parts.netloc else _NAME).fullmatch(host):
        raise ValueError("its host cannot be written so")
    name = host.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return Zone.LOOPBACK
    # As browsers decide it: resolvers read 127.1 and 0x7f000001 as addresses, too.
    if ":" in host or _NUMBER.fullmatch(name.rpartition(".")[2]):
        return zone_of(host)
    return None


_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._~-]+)?")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


def zone_of_party(url: str, addresses: Iterable[str]) -> Zone:
    """Return the zone of a party that names URLs.

    Args:
        url: Its URL.
        addresses: The addresses of its host.

    Returns:
        The zone of its farthest address. Only a literal address, or `localhost`, is at
        loopback: another name can be made to point there at any time. A party at a forbidden address is not
        trusted: it counts as a public one.
    """
    own = zone_of_url(url)
    zones = list(map(zone_of, addresses)) if own is None else [own]
    if not zones or Zone.FORBIDDEN in zones:
        return Zone.PUBLIC
    return min([*zones, Zone.PRIVATE]) if own is None else own
