"""Which addresses a party may name, however they are spelled."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from effectmcp.fetching.requests import Fetch, FetchError
from effectmcp.fetching.sending import _check
from effectmcp.fetching.zones import Zone, zone_of, zone_of_party, zone_of_url

ZONES: dict[Zone, list[str]] = {
    Zone.PUBLIC: [
        *("93.184.216.34", "8.8.8.8", "100.63.255.255", "172.15.0.1", "172.32.0.1"),
        *("2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::"),
    ],
    Zone.PRIVATE: [
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1"),
        *("fc00::1", "fdff::1", "::ffff:10.0.0.1", "2002:a00:1::", "64:ff9b::10.0.0.1"),
        *("::10.0.0.1", "0.1.2.3", "198.18.0.1", "2001::1"),
    ],
    Zone.LOOPBACK: [
        *("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::127.0.0.1"),
        *("2002:7f00:1::", "64:ff9b::127.0.0.1", "::1%lo"),
    ],
    Zone.FORBIDDEN: [
        *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254"),
        *("2002:a9fe:a9fe::", "::169.254.169.254", "64:ff9b:1::a9fe:a9fe"),
        *("::ffff:0:169.254.169.254", "fe80::1", "fe80::1%eth0", "fec0::1", "5f00::1"),
        *("0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1", "100:0:0:1::1"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
        *("fd00:ec2::23", "fd20:ce::254", "169.254.170.2", "localhost", "", "1.2.3"),
        *("127.1", "0177.0.0.1", "2130706433", "0x7f000001", "1.2.3.4.5", "1.2.3.256"),
    ],
}


@pytest.mark.parametrize("zone", ZONES)
def test_zone_of_an_address(zone: Zone) -> None:
    found = {address: zone_of(address) for address in ZONES[zone]}
    assert found == dict.fromkeys(ZONES[zone], zone)


URLS: dict[str, Zone | None] = {
    "https://idp.example": None,
    "https://idp.example.:8443/a": None,
    "https://169.254.169.254.nip.io/": None,  # its address is looked up
    "http://localhost:9000/a": Zone.LOOPBACK,
    "http://LOCALHOST/": Zone.LOOPBACK,
    "https://localhost./": Zone.LOOPBACK,
    "https://a.localhost": Zone.LOOPBACK,
    "https://127.0.0.1:1": Zone.LOOPBACK,
    "https://[::1]:443/": Zone.LOOPBACK,
    "https://[::ffff:127.0.0.1]/": Zone.LOOPBACK,
    "https://10.0.0.1/": Zone.PRIVATE,
    "https://8.8.8.8/": Zone.PUBLIC,
    "https://[::ffff:169.254.169.254]/": Zone.FORBIDDEN,
    "https://[fe80::1%25eth0]/": Zone.FORBIDDEN,
    # Resolvers read these as addresses; honest issuers do not use them.
    "https://127.1/": Zone.FORBIDDEN,
    "https://2130706433/": Zone.FORBIDDEN,
    "https://0x7f000001/": Zone.FORBIDDEN,
    "https://0x7f.1/": Zone.FORBIDDEN,
    "https://127.0x1/": Zone.FORBIDDEN,
    "https://a.0X/": Zone.FORBIDDEN,
    "https://0177.0.0.1/": Zone.FORBIDDEN,
    "https://017700000001/": Zone.FORBIDDEN,
    "https://127.0.0.1./": Zone.FORBIDDEN,
    "https://8.8.8.8./": Zone.FORBIDDEN,
    "https://999/": Zone.FORBIDDEN,
}


@pytest.mark.parametrize("url", URLS)
def test_zone_of_a_url(url: str) -> None:
    assert zone_of_url(url) is URLS[url]


WRONG = [
    *("", "idp.example", "//idp.example", "ftp://idp.example", "file:///etc/passwd"),
    *("https://", "https:///a", "https://a:x", "https://a:99999", "https://[::1"),
    *("https://user@idp.example", "https://user:secret@idp.example/"),
    *("https://idp.example@169.254.169.254/", "https://idp.example\\@10.0.0.1/"),
    *("https://idp.example\\.evil/", "https://a b/", "https://a%2fb/", "https://a_,b"),
    # Letters that resolvers take for others: fullwidth digits, circled letters, a dot.
    *(
        "https://１２７.0.0.1/",
        "https://ⓛocalhost/",
        "https://10。0。0。1/",
        "https://ü/",
    ),
    *(
        "gopher://127.0.0.1:70/",
        "unix:///run/a.sock",
        "https://a\0b/",
        "https://[v1.a]/",
    ),
]


@pytest.mark.parametrize("url", WRONG, ids=ascii)
def test_zone_of_something_else_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        zone_of_url(url)


PARTIES: list[tuple[str, list[str], Zone]] = [
    ("https://idp.example", ["8.8.8.8"], Zone.PUBLIC),
    ("https://idp.example", ["10.0.0.1"], Zone.PRIVATE),
    ("https://idp.example", ["10.0.0.1", "8.8.8.8"], Zone.PUBLIC),
    # A name can be made to point to loopback at any time.
    ("https://idp.example", ["127.0.0.1"], Zone.PRIVATE),
    ("https://idp.example", [], Zone.PUBLIC),
    ("https://127.0.0.1", [], Zone.LOOPBACK),
    ("http://localhost:8000", ["127.0.0.1"], Zone.LOOPBACK),
    ("https://10.0.0.1", [], Zone.PRIVATE),
    # A forbidden address does not make a party more trusted.
    ("https://169.254.169.254", [], Zone.PUBLIC),
    ("https://2130706433", [], Zone.PUBLIC),
    ("https://idp.example", ["169.254.169.254"], Zone.PUBLIC),
    ("https://idp.example", ["10.0.0.1", "169.254.169.254"], Zone.PUBLIC),
]


@pytest.mark.parametrize(("url", "addresses", "zone"), PARTIES)
def test_zone_of_a_party(url: str, addresses: list[str], zone: Zone) -> None:
    assert zone_of_party(url, addresses) is zone


def may(near: str, near_at: Iterable[str], url: str, at: Iterable[str]) -> bool:
    """Whether a party may name a URL, given the addresses of both."""
    try:
        _check(Fetch(url=url, near=near), near_at, at)
    except FetchError:
        return False
    return True


def test_party_may_name_addresses_of_its_zone_and_farther_ones() -> None:
    """The table of `zones`."""
    parties = {
        "public": ("https://idp.example", ["8.8.8.8"]),
        "private": ("https://idp.corp", ["10.0.0.1"]),
        "loopback": ("http://localhost:8000", ["127.0.0.1"]),
    }
    named = {
        "public": ("https://a.example", ["8.8.4.4"]),
        "private": ("https://b.corp", ["10.0.0.2"]),
        "loopback": ("https://localhost", ["127.0.0.1"]),
        "http at loopback": ("http://localhost:9000", ["127.0.0.1"]),
        "http at public": ("http://a.example", ["8.8.4.4"]),
        "http at private": ("http://b.corp", ["10.0.0.2"]),
        "http at both": ("http://c.corp", ["127.0.0.1", "10.0.0.2"]),
        "metadata": ("https://c.example", ["169.254.169.254"]),
        "one of two": ("https://d.example", ["8.8.8.8", "169.254.169.254"]),
        "localhost elsewhere": ("https://a.localhost", ["169.254.169.254"]),
    }
    found = {
        name: [one for one in named if may(*party, *named[one])]
        for name, party in parties.items()
    }
    assert found == {
        "public": ["public"],
        "private": ["public", "private"],
        "loopback": ["public", "private", "loopback", "http at loopback"],
    }


@pytest.mark.parametrize("address", ["8.8.8.8", None])
def test_name_behind_a_proxy_has_to_be_https_too(address: str | None) -> None:
    """Then no address is known here."""
    at = [] if address is None else [address]
    assert may("https://idp.example", at, "https://a.example", at)
    assert not may("https://idp.example", at, "http://a.example", at)


# ---- the property -------------------------------------------------------------------


def is_public(address: ipaddress.IPv4Address) -> bool:
    """Whether an address is a public one (IANA's registry, and cloud services)."""
    clouds = ("100.100.100.200", "168.63.129.16", "192.0.0.192")
    return address.is_global and not address.is_multicast and str(address) not in clouds


def spellings(address: ipaddress.IPv4Address) -> dict[str, str]:
    """The ways to write an address in a URL."""
    number, parts = int(address), address.packed
    groups = f"{number >> 16:x}:{number & 0xFFFF:x}"
    return {
        "dotted": str(address),
        "decimal": str(number),
        "hex": hex(number),
        "octal": f"0{number:o}",
        "hex parts": ".".join(map(hex, parts)),
        "octal parts": ".".join(f"0{part:o}" for part in parts),
        "padded": ".".join(f"{part:03}" for part in parts),
        "two parts": f"{parts[0]}.{number & 0xFF_FFFF}",
        "mixed": f"{parts[0]}.{parts[1]}.{hex(number & 0xFFFF)}",
        "dot at the end": f"{address}.",
        "mapped": f"[::ffff:{address}]",
        "mapped, in hex": f"[::ffff:{groups}]",
        "mapped, at length": f"[0:0:0:0:0:ffff:{groups}]",
        "translated": f"[::ffff:0:{address}]",
        "compatible": f"[::{groups}]",
        "6to4": f"[2002:{groups}::1]",
        "NAT64": f"[64:ff9b::{groups}]",
        "NAT64 of a site": f"[64:ff9b:1::{groups}]",
        "zone id": f"[::ffff:{groups}%25eth0]",
        "user": f"idp.example@{address}",
        "port": f"{address}:8443",
    }


NETWORKS = [
    *("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "0.0.0.0/8"),
    *("192.168.0.0/16", "100.64.0.0/10", "224.0.0.0/4", "240.0.0.0/4"),
]
near_by = st.sampled_from(NETWORKS).flatmap(lambda one: st.ip_addresses(network=one))
special = st.sampled_from(["100.100.100.200", "168.63.129.16", "169.254.169.254"]).map(
    ipaddress.IPv4Address
)


@given(near_by | special | st.ip_addresses(v=4))
def test_public_party_reaches_no_other_address_in_any_spelling(
    address: ipaddress.IPv4Address,
) -> None:
    """There are resolvers that read each of these spellings as that address."""
    assume(not is_public(address))
    for how, host in spellings(address).items():
        url = f"https://{host}/keys"
        try:
            zone = zone_of_url(url)
        except ValueError:
            continue
        assert zone is not None, how  # a name would be left to a resolver
        assert zone > Zone.PUBLIC, how


@given(st.ip_addresses(v=6))
def test_public_party_reaches_only_global_unicast_of_ipv6(
    address: ipaddress.IPv6Address,
) -> None:
    if zone_of(str(address)) is Zone.PUBLIC:
        translated = address in ipaddress.ip_network("64:ff9b::/96")
        old = int(address) < 2**32 or address.ipv4_mapped is not None
        assert translated or old or int(address) >> 125 == 1


@given(st.from_regex(r"[0-9a-fxX.]{1,20}", fullmatch=True))
def test_host_that_a_resolver_reads_as_an_address_is_not_a_name(host: str) -> None:
    """`inet_aton` is what resolvers use: with a proxy, the proxy's resolver reads it."""
    try:
        socket.inet_aton(host)
        zone = zone_of_url(f"https://{host}/")
    except (OSError, ValueError):
        return
    assert zone is not None
