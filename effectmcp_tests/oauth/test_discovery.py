"""The metadata of servers and of authorization servers: where it is, and its checks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.fetching.requests import Fetched, FetchError
from effectmcp.oauth import OAuthError
from effectmcp.oauth.discovery import Found, covers, discover, scopes_of
from effectmcp.protocol.authorization import Challenge

from .world import (
    ISSUER,
    OAUTH_PLACE,
    OPENID_PLACE,
    OTHER,
    RESOURCE_PLACE,
    URL,
    Authority,
    World,
    json_response,
)


def find(world: World, preferred: list[str] | None = None, **challenge: str) -> Found:
    named = Challenge("bearer", challenge) if challenge else None
    found: Found = world.drive(discover(world.url, named, preferred or []))
    return found


# ---- the server's metadata ----------------------------------------------------------


def test_the_place_in_the_challenge_comes_first() -> None:
    """(2026-07-28, Protected Resource Metadata Discovery Requirements.)"""
    place = "https://elsewhere.example/meta?of=shop"
    world = World(places=(place,))
    found = find(world, resource_metadata=place)
    assert found.issuer == ISSUER
    assert world.urls[0] == place


def test_the_place_in_the_challenge_is_the_only_one() -> None:
    world = World()
    with pytest.raises(FetchError, match="status 404"):
        find(world, resource_metadata="https://elsewhere.example/meta")
    assert len(world.urls) == 1


@pytest.mark.parametrize(
    ("url", "places"),
    [
        (
            "https://shop.example/public/mcp",
            ["https://shop.example{}/public/mcp", "https://shop.example{}"],
        ),
        ("https://shop.example", ["https://shop.example{}"]),
        ("https://shop.example/", ["https://shop.example{}"]),
        (
            "https://shop.example/mcp/?tenant=a#top",
            ["https://shop.example{}/mcp/?tenant=a", "https://shop.example{}"],
        ),
        (
            "https://shop.example:8443/mcp",
            ["https://shop.example:8443{}/mcp", "https://shop.example:8443{}"],
        ),
    ],
)
def test_well_known_places_in_their_order(url: str, places: list[str]) -> None:
    """RFC 9728, section 3.1: the path of the server, and then the root."""
    world = World(url=url, authorities=[], places=())
    with pytest.raises(OAuthError, match="names no authorization server"):
        find(world)
    asked = [one for one in world.urls if RESOURCE_PLACE in one]
    assert asked == [one.format(RESOURCE_PLACE) for one in places]


def test_the_root_may_describe_a_server() -> None:
    root = f"https://shop.example{RESOURCE_PLACE}"
    world = World(places=(root,), document={"resource": "https://shop.example"})
    assert find(world).resource == "https://shop.example"


def test_a_server_that_fails_is_not_taken_for_one_without_metadata() -> None:
    """An attacker could make it fail, and an older protocol has fewer checks."""
    world = World()
    place = f"https://shop.example{RESOURCE_PLACE}/mcp"
    world.answers = {place: Fetched(status=500)}
    with pytest.raises(FetchError, match="status 500"):
        find(world)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'"x"', b"[" * 100_000])
def test_metadata_that_is_not_an_object(body: bytes) -> None:
    world = World()
    place = f"https://shop.example{RESOURCE_PLACE}/mcp"
    world.answers = {place: Fetched(status=200, body=body)}
    with pytest.raises(FetchError, match="not a JSON object"):
        find(world)


# ---- whose metadata it is -----------------------------------------------------------


@pytest.mark.parametrize(
    "resource",
    [
        "https://shop.example/mcp",
        "https://shop.example/mcp/",
        "https://shop.example",
        "https://shop.example/",
        "https://SHOP.example/mcp",
        "HTTPS://shop.example:443/mcp",
    ],
)
def test_a_resource_that_is_this_server_or_its_parent(resource: str) -> None:
    found = find(World(document={"resource": resource}))
    assert found.resource == resource


@pytest.mark.parametrize(
    "resource",
    [
        "http://shop.example/mcp",
        "https://shop.example:8443/mcp",
        "https://shop.example.evil.example/mcp",
        "https://evil.example/mcp",
        "https://shop.example/mc",
        "https://shop.example/mcp/more",
        "https://shop.example/MCP",
        "https://shop.example/other",
        "https://shop.example/mcp?tenant=b",
        "https://shop.example/mcp#top",
        "https://ann@shop.example/mcp",
        "https://shop.example@evil.example/mcp",
        "https://shop.example:x/mcp",
        "https://[",
        "//shop.example/mcp",
        "/mcp",
        "shop.example/mcp",
        "",
        None,
        5,
        ["https://shop.example/mcp"],
    ],
)
def test_a_resource_that_is_another_server(resource: Any) -> None:
    world = World(document={"resource": resource})
    with pytest.raises(OAuthError, match="no token is sent"):
        find(world)
    assert len(world.urls) == 1


def test_a_query_belongs_to_the_resource() -> None:
    assert covers("https://s.example/mcp?a=1", "https://s.example/mcp?a=1")
    assert covers("https://s.example/mcp", "https://s.example/mcp?a=1")
    assert not covers("https://s.example/mcp?a=1", "https://s.example/mcp?a=2")
    assert not covers("https://s.example/?a=1", "https://s.example/mcp?a=1")


PATHS = st.lists(st.sampled_from(["a", "b", "ab", "A"]), max_size=3)


@given(PATHS, PATHS, st.booleans(), st.booleans())
def test_a_resource_contains_the_paths_below_it(
    one: list[str], other: list[str], ends: bool, other_ends: bool
) -> None:
    """By whole segments: `/ab` is not below `/a`."""
    resource = "https://s.example/" + "/".join(one) + "/" * (ends and bool(one))
    url = "https://s.example/" + "/".join(other) + "/" * (other_ends and bool(other))
    assert covers(resource, url) == (other[: len(one)] == one)


@given(st.text(max_size=30))
def test_any_string_may_be_a_resource(text: str) -> None:
    """The server chooses it: nothing is raised."""
    assert covers(text, URL) in (True, False)
    assert not covers(f"https://shop.example.{text}", URL)


# ---- the authorization server -------------------------------------------------------


@pytest.mark.parametrize("named", [[], None, "https://login.example", [5], {}])
def test_a_server_that_names_no_authorization_server(named: Any) -> None:
    world = World(document={"authorization_servers": named})
    with pytest.raises(OAuthError, match="names no authorization server"):
        find(world)


@pytest.mark.parametrize(
    "named",
    [
        "https://[",
        "https://ann:secret@login.example",
        "https://login.example@evil.example",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "ftp://login.example",
        "http://login.example",
        "https://login.example?tenant=1",
        "https://login.example#x",
        "https://",
        "https://login.example:x",
        "https://login.example/\ud800",
        "https://login.example/\x1b[2J",
        "//login.example",
        "",
    ],
)
def test_an_authorization_server_with_another_kind_of_name(named: str) -> None:
    """RFC 8414, section 2: https, without query and fragment."""
    world = World(document={"authorization_servers": [named]})
    with pytest.raises(OAuthError, match="names no authorization server"):
        find(world)
    assert len(world.urls) == 1


def test_names_that_cannot_be_used_are_skipped() -> None:
    world = World(trusted=["file:///x", 7, ISSUER])
    assert find(world).issuer == ISSUER


def test_the_first_of_the_known_ones_is_chosen() -> None:
    third = "https://third.example"
    world = World(authorities=[Authority(issuer=one) for one in (ISSUER, OTHER, third)])
    assert find(world).issuer == ISSUER
    assert find(world, [third, OTHER]).issuer == third
    assert find(world, ["https://unknown.example", OTHER]).issuer == OTHER


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        (
            "https://login.example",
            [
                f"https://login.example{OAUTH_PLACE}",
                f"https://login.example{OPENID_PLACE}",
            ],
        ),
        (
            "https://login.example/tenant1",
            [
                f"https://login.example{OAUTH_PLACE}/tenant1",
                f"https://login.example{OPENID_PLACE}/tenant1",
                f"https://login.example/tenant1{OPENID_PLACE}",
            ],
        ),
    ],
)
def test_the_places_of_an_issuer_in_their_order(issuer: str, places: list[str]) -> None:
    """(2026-07-28, Authorization Server Metadata Discovery.)"""
    for number in range(len(places)):
        world = World(authorities=[Authority(issuer=issuer, places=(places[number],))])
        assert find(world).issuer == issuer
        assert world.urls[1:] == places[: number + 1]
    world = World(authorities=[Authority(issuer=issuer, places=())])
    with pytest.raises(FetchError, match="it has no metadata"):
        find(world)
    assert world.urls[1:] == places


@pytest.mark.parametrize(
    "issuer",
    [
        "https://honest.example",
        "https://login.example/",
        "https://LOGIN.example",
        "https://login.example:443",
        "http://login.example",
        None,
        5,
    ],
)
def test_metadata_of_another_issuer(issuer: Any) -> None:
    """As a whole, without any normalization (RFC 8414, section 3.3)."""
    world = World(authorities=[Authority(changes={"issuer": issuer})])
    with pytest.raises(FetchError, match="another issuer"):
        find(world)


# ---- 2025-03-26 ---------------------------------------------------------------------


def test_a_server_of_2025_03_26_is_its_own_authorization_server() -> None:
    own = Authority(issuer="https://shop.example")
    world = World(places=(), authorities=[own])
    found = find(world)
    assert (found.resource, found.issuer) == (URL, "https://shop.example")


def test_a_server_without_any_metadata_is_reported_with_advice() -> None:
    with pytest.raises(
        OAuthError,
        match="send yours in a header, as --header 'Authorization: Bearer KEY'",
    ):
        find(World(places=(), authorities=[]))


# ---- endpoints ----------------------------------------------------------------------


def found_with(issuer: str = ISSUER, **metadata: Any) -> Found:
    return Found(resource=URL, issuer=issuer, metadata=metadata)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, "has no"),
        (5, "has no"),
        ("", "has no"),
        ("javascript:alert(1)", "has no"),
        ("file:///etc/passwd", "has no"),
        ("data:text/html,x", "has no"),
        ("https://ann:secret@login.example/a", "has no"),
        ("https://login.example:x/a", "has no"),
        ("https://[", "has no"),
        ("http://login.example/a", "is not https"),
        ("http://127.0.0.1/a", "is not https"),
        ("http://localhost/a", "is not https"),
        ("https://login.example/a#b", "has a fragment"),
        ("https://login.example/\x1b[2Ja", "has no"),
        ("\x1bhttps://login.example/a", "has no"),
        (" https://login.example/a", "has no"),
        ("https://login.example/a\r\nHost: x", "has no"),
        ("https://login.example/a b", "has no"),
        ("https://login.example/\u202ea", "has no"),
        ("https://login.example/\ud800", "has no"),
    ],
)
def test_an_endpoint_that_is_not_used(url: Any, problem: str) -> None:
    """(2026-07-28, Communication Security, and RFC 3986 for the characters.)"""
    with pytest.raises(OAuthError, match=problem):
        found_with(page=url).endpoint("page")


def test_an_endpoint_may_be_http_on_this_machine() -> None:
    """If its authorization server is there, too."""
    for url in ("http://127.0.0.1:9/a", "http://localhost:9/a", "http://[::1]:9/a"):
        found = found_with("http://127.0.0.1:9", page=url)
        assert found.endpoint("page") == url
    with pytest.raises(OAuthError, match="is not https"):
        found_with("http://127.0.0.1:9", page="http://b.example/").endpoint("page")


# ---- scopes -------------------------------------------------------------------------


def test_scopes_of() -> None:
    assert scopes_of("a b  a") == ("a", "b")
    assert scopes_of(["a", "b", "a"]) == ("a", "b")
    assert scopes_of(["a b", 'c"', "", 5, "d\x1b", "é", "ok"]) == ("ok",)
    values: list[Any] = [None, "", " ", [], {}, 5, True]
    for nothing in values:
        assert scopes_of(nothing) is None


def test_everything_is_known_of_both() -> None:
    world = World(
        document={
            "scopes_supported": ["a"],
            "dpop_bound_access_tokens_required": True,
        }
    )
    found = find(world)
    assert (found.scopes, found.wants_proofs) == (("a",), True)
    world = World(document={"dpop_bound_access_tokens_required": "yes"})
    assert not find(world).wants_proofs


def test_each_request_names_the_party_that_it_is_for() -> None:
    """`near` limits which addresses the server may name."""
    world = World()
    find(world)
    assert {one.near for one in world.fetched} == {URL}


def test_a_document_with_a_million_servers() -> None:
    many = [f"https://{number}.example" for number in range(10_000)]
    world = World(trusted=[*many, ISSUER])
    place = f"https://0.example{OAUTH_PLACE}"
    world.answers = {place: json_response({"issuer": "https://0.example"})}
    assert find(world).issuer == "https://0.example"
