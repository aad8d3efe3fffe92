"""Refuse settings that cannot work, before a request is sent."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from effectmcp import UsageError
from effectmcp.oauth import (
    Browser,
    ClientCredentials,
    OAuth,
    Registration,
    WorkloadAssertion,
)


@pytest.mark.parametrize("secret", [{"client_secret": "s"}, {"private_key": "k"}])
def test_a_secret_is_for_one_authorization_server(secret: dict[str, Any]) -> None:
    """A hostile server could name its own."""
    with pytest.raises(UsageError, match="give issuer="):
        Registration(client_id="me", **secret)
    Registration(client_id="me", issuer="https://idp.example", **secret)


@pytest.mark.parametrize(
    "grant", [ClientCredentials(), WorkloadAssertion(assertion="a")]
)
def test_a_program_names_its_authorization_server(
    grant: ClientCredentials | WorkloadAssertion,
) -> None:
    with pytest.raises(UsageError, match="give registration="):
        OAuth(grant=grant)
    with pytest.raises(UsageError, match="give registration="):
        OAuth(grant=grant, registration=Registration(client_id="me"))
    OAuth(
        grant=grant,
        registration=Registration(client_id="me", issuer="https://idp.example"),
    )


def test_a_user_needs_a_browser() -> None:
    with pytest.raises(UsageError, match="give visitor="):
        OAuth()


@pytest.mark.parametrize("url", ["http://a.example/doc", "https://a.example", "doc"])
def test_the_document_of_a_client_is_at_an_https_url(url: str) -> None:
    with pytest.raises(UsageError, match="write an https URL"):
        OAuth(grant=ClientCredentials(), metadata_url=url)


def test_clients_of_one_server_have_tokens_of_their_own() -> None:
    """A program that finds the tokens of a user would act as the user."""
    one = Registration(client_id="a", client_secret="s", issuer="https://i.example")
    clients = [
        OAuth(visitor=Browser()),
        OAuth(visitor=Browser(), metadata_url="https://a.example/client"),
        OAuth(visitor=Browser(), registration=one),
        OAuth(grant=ClientCredentials(), registration=one),
        OAuth(grant=ClientCredentials(), registration=evolve(one, client_id="b")),
        OAuth(grant=ClientCredentials(), registration=evolve(one, client_secret="t")),
    ]
    places = [client.place("https://shop.example/mcp") for client in clients]
    assert len({*places}) == len(clients)
    assert places[0] == "https://shop.example/mcp"
    assert not any('"s"' in place for place in places)
