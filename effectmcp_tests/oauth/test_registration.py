"""The client's id at an authorization server, and how it proves that it is this client."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc import jwk

from effectmcp import UsageError
from effectmcp.auth.signatures import is_signed, public_key, read_jwt
from effectmcp.fetching.requests import Fetched
from effectmcp.oauth import ClientCredentials, OAuth, OAuthError, Registration
from effectmcp.oauth.registration import authenticated

from .world import (
    ISSUER,
    RETURN,
    START,
    Authority,
    World,
    given_client,
    json_response,
    login_at,
)

DOCUMENT = "https://book.example/client.json"
SUPPORTED = {"client_id_metadata_document_supported": True}


# ---- which id -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "changes", "client_id"),
    [
        (
            {"registration": given_client(), "metadata_url": DOCUMENT},
            SUPPORTED,
            "given",
        ),
        ({"metadata_url": DOCUMENT}, SUPPORTED, DOCUMENT),
        ({"metadata_url": DOCUMENT}, {}, "client-1-of-login.example"),
        (
            {"metadata_url": DOCUMENT},
            {"client_id_metadata_document_supported": "true"},
            "client-1-of-login.example",
        ),
        ({}, SUPPORTED, "client-1-of-login.example"),
    ],
)
def test_the_order_of_the_ways(
    options: dict[str, Any], changes: dict[str, Any], client_id: str
) -> None:
    """(2026-07-28, Client Registration: the priority order.)"""
    authority = Authority(changes=changes, secrets={"given": ""})
    world = World(authorities=[authority])
    assert world.use(login_at(world, **options)) == 200
    assert world.pages()[0]["client_id"] == client_id
    assert bool(authority.registered) == client_id.startswith("client-1")


def test_a_server_that_registers_no_clients() -> None:
    """(The same, 4: the user has to give the client's id.)"""
    world = World(authorities=[Authority(changes={"registration_endpoint": None})])
    with pytest.raises(OAuthError, match="--client-id"):
        world.use(login_at(world))
    assert not world.visits


@pytest.mark.parametrize(
    "url", ["http://login.example/register", "file:///x", "http://127.0.0.1/r", "x"]
)
def test_clients_are_registered_over_https_alone(url: str) -> None:
    """(2026-07-28, Communication Security.)"""
    world = World(authorities=[Authority(changes={"registration_endpoint": url})])
    with pytest.raises(OAuthError, match="registration_endpoint"):
        world.use(login_at(world))
    assert url not in world.urls


@pytest.mark.parametrize("url", ["http://book.example/c.json", "https://book.example"])
def test_a_document_is_at_an_https_url_with_a_path(url: str) -> None:
    """(2026-07-28, Client ID Metadata Documents.)"""
    with pytest.raises(UsageError, match="an https URL with a path"):
        OAuth(grant=ClientCredentials(), metadata_url=url)


# ---- the registration ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("redirect_uri", "kind"),
    [
        (RETURN, "native"),
        ("http://localhost:3000/callback", "native"),
        ("http://[::1]:3000/callback", "native"),
        ("https://book.example/callback", "web"),
    ],
)
def test_the_type_of_the_application(redirect_uri: str, kind: str) -> None:
    """(2026-07-28, Application Type and Redirect URI Constraints.)"""
    world = World(return_to=redirect_uri)
    world.use(login_at(world, client_name="Books"))
    assert world.authorities[0].registered == [
        {
            "client_name": "Books",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": kind,
            "token_endpoint_auth_method": "none",
        }
    ]


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [
        (["client_secret_post", "none"], "none"),
        (["private_key_jwt", "client_secret_post"], "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["private_key_jwt", "tls_client_auth"], None),
        (None, None),
        ("none", None),
    ],
)
def test_the_method_that_a_new_client_asks_for(
    offered: Any, wanted: str | None
) -> None:
    changes = {"token_endpoint_auth_methods_supported": offered}
    world = World(authorities=[Authority(changes=changes)])
    try:
        assert world.use(login_at(world)) == 200
    except OAuthError:
        assert offered == ["private_key_jwt", "tls_client_auth"]
    (registered,) = world.authorities[0].registered
    assert registered.get("token_endpoint_auth_method") == wanted


def test_a_secret_that_was_issued_is_used_as_agreed() -> None:
    changes = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    world = World(authorities=[Authority(changes=changes)])
    assert world.use(login_at(world)) == 200
    (form,) = world.forms()
    assert form["client_secret"] == "secret-of-client-1-of-login.example"
    assert world.places_of(form["client_secret"]) == {f"{ISSUER}/token"}


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (
            json_response(
                {
                    "error": "invalid_redirect_uri",
                    "error_description": "not \x1b[2Jyou",
                },
                400,
            ),
            r"the client was not registered: invalid_redirect_uri: not \?\[2Jyou",
        ),
        (Fetched(status=403, body=b"<html>"), "status 403"),
        (json_response({}, 201), "status 201"),
        (json_response({"client_id": 5}, 201), "status 201"),
        (json_response({"client_id": ""}, 201), "status 201"),
        (json_response({"client_id": "\ud800"}, 201), "status 201"),
        (json_response({"client_id": "a\r\nb"}, 201), "status 201"),
        (json_response({"client_id": "a", "client_secret": "\ud800"}, 201), "secret"),
        (Fetched(status=201, body=b"[" * 100_000), "status 201"),
        (json_response({"client_id": "a"}, 302), "status 302"),
    ],
)
def test_a_registration_that_fails(response: Fetched, problem: str) -> None:
    """(2026-07-28: surface a meaningful error to the user or developer.)"""
    world = World(answers={f"{ISSUER}/register": response})
    login = login_at(world)
    with pytest.raises(OAuthError, match=problem):
        world.use(login)
    assert not world.visits
    assert not login.kept.clients


# ---- how it proves who it is --------------------------------------------------------


def shown(
    client: Registration, offered: Any = None
) -> tuple[dict[str, str], dict[str, str | None]]:
    metadata = {"token_endpoint_auth_methods_supported": offered}
    return authenticated(client, metadata, issuer=ISSUER, now=START, id_="one")


def basic(headers: dict[str, str]) -> str:
    return base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()


def test_a_public_client_shows_its_id() -> None:
    for offered in (None, ["none"], "none"):
        assert shown(given_client(), offered) == ({}, {"client_id": "given"})


def test_a_secret_is_sent_as_the_server_supports_it() -> None:
    client = given_client(client_secret="quiet")
    headers, fields = shown(client)
    assert (basic(headers), fields) == ("given:quiet", {})
    headers, fields = shown(client, ["client_secret_post"])
    assert (headers, fields) == ({}, {"client_id": "given", "client_secret": "quiet"})
    headers, _ = shown(client, ["client_secret_post", "client_secret_basic"])
    assert basic(headers) == "given:quiet"


def test_names_in_a_header_are_encoded() -> None:
    """RFC 6749, section 2.3.1: an id may have a colon, and a secret too."""
    headers, _ = shown(given_client(client_id="a:b", client_secret="c:d é\r\n"))
    assert basic(headers) == "a%3Ab:c%3Ad%20%C3%A9%0D%0A"


def test_a_method_that_was_agreed_is_used() -> None:
    client = given_client(client_secret="quiet", method="client_secret_post")
    assert shown(client, ["client_secret_basic"])[1]["client_secret"] == "quiet"


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({}, ["client_secret_basic"]),
        ({"client_secret": "quiet"}, ["none"]),
        ({"client_secret": "quiet"}, []),
        ({"private_key": "key"}, ["client_secret_basic", "none"]),
    ],
)
def test_a_method_that_is_not_possible(
    fields: dict[str, str], offered: list[str]
) -> None:
    with pytest.raises(OAuthError, match="prove who it is by"):
        shown(given_client(**fields), offered)


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519", "RS256"])
def test_an_assertion_is_for_this_issuer_and_short(algorithm: str) -> None:
    """RFC 7523, section 3."""
    if algorithm == "ES256":
        key: Any = jwk.ECKey.generate_key("P-256")
    elif algorithm == "RS256":
        key = jwk.RSAKey.generate_key(2048)
    else:
        key = jwk.OKPKey.generate_key("Ed25519")
    pem = key.as_pem(private=True).decode()
    client = given_client(private_key=pem, algorithm=algorithm)
    headers, fields = shown(client, ["private_key_jwt"])
    assert headers == {}
    signed = fields["client_assertion"]
    assert signed is not None
    assert is_signed(signed, public_key(key.as_dict(private=False)), algorithm)
    _, claims = read_jwt(signed)
    assert claims == {
        "iss": "given",
        "sub": "given",
        "aud": ISSUER,
        "jti": "one",
        "iat": int(START),
        "exp": int(START) + 60,
    }


@pytest.mark.parametrize("pem", ["", "not a key", "-----BEGIN PRIVATE KEY-----"])
def test_a_key_that_cannot_sign(pem: str) -> None:
    with pytest.raises(OAuthError, match="the private key cannot sign"):
        shown(given_client(private_key=pem), ["private_key_jwt"])


def test_a_method_must_be_known() -> None:
    method: Any = "tls"
    with pytest.raises(UsageError, match="give one of none, client_secret_basic"):
        Registration(client_id="a", method=method)


def test_secrets_are_not_in_reprs() -> None:
    client = given_client(client_secret="quiet", private_key="quiet too")
    assert "quiet" not in repr(client)
    assert "quiet" in json.dumps(client.to_json())


# ---- kept registrations -------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"client_id": 5},
        {"client_id": None},
        {"client_id": "a", "unknown": 1},
        {"client_id": "a", "client_secret": ["b"]},
        {"client_id": "a", "method": "tls"},
        {"client_id": "a", "method": []},
        {"client_id": "a", "redirect_uri": 7},
        {"client_id": "a", "algorithm": 7},
        {"client_id": "a", "private_key": 7},
        {"client_id": "a", "issuer": "https://another.example"},
        {"client_id": "\ud800"},
    ],
)
def test_a_kept_registration_that_cannot_be_used(garbage: dict[str, Any]) -> None:
    """The client registers again: the store may be of another version."""
    from effectmcp.oauth.tokens import Kept

    world = World()
    login = login_at(world)
    login.kept = Kept(clients={ISSUER: garbage})
    assert world.use(login) == 200
    assert len(world.authorities[0].registered) == 1
