"""Which addresses a stranger may make this program ask. No I/O.

A server names its authorization server, which names its endpoints. A hostile one could
name an address that only this machine can reach, such as the metadata service of a cloud
(server-side request forgery). So a URL must be no closer than the party that named it:

    party at                    may name
    a public address            https at public addresses
    a private network           https at public and private addresses
    a loopback address          these, and http and https at loopback addresses

Link-local addresses, multicast, and the metadata services of clouds are for nobody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

__all__ = ["Zone", "zone_of", "zone_of_party", "zone_of_url"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Zone(IntEnum):
    """How close an address is."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    FORBIDDEN = 3


#: Metadata services of clouds, beside the link-local ones.
_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)

#: Of carriers and of overlay networks; `ipaddress` takes it for neither.
_SHARED: Final = ipaddress.ip_network("100.64.0.0/10")

#: IPv4 addresses behind a translator (RFC 6052).
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")


def zone_of(text: str) -> Zone:
    """Return the zone of an IP address; forbidden, if it is no address."""
    try:
        return _zone(_inner(ipaddress.ip_address(text.partition("%")[0])))
    except ValueError:
        return Zone.FORBIDDEN


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED:
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
    if host == "localhost" or host.endswith(".localhost"):
        return Zone.LOOPBACK
    if host.replace(".", "").isdigit() or ":" in host or host.startswith("0x"):
        return zone_of(host)
    return None


def zone_of_party(url: str, addresses: Iterable[str]) -> Zone:
    """Return the zone of a party that names URLs.

    Args:
        url: Its URL.
        addresses: The addresses of its host.

    Returns:
        The zone of its farthest address. Only a URL that says so is at loopback: a name
        can be made to point there at any time.
    """
    own = zone_of_url(url)
    if own is not None:
        return own
    zones = list(map(zone_of, addresses))
    return min([*zones, Zone.PRIVATE]) if zones else Zone.PUBLIC
