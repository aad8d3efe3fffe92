"""Tokens that only their issuer can read: questions, memory, and limits."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qs

import pytest
from attrs import define, field

from effectmcp import Server
from effectmcp.auth import APIKeys, CredentialsError, Identity, IntrospectionAuth
from effectmcp.auth.api_keys import key_line
from effectmcp.errors import UsageError
from effectmcp.fetching.requests import Fetch, Fetched, FetchError

from .issuer import (
    RESOURCE,
    START,
    URL,
    Clock,
    document,
    each,
    identify,
    key,
    presented,
    proof,
)

ENDPOINT = f"{URL}/introspect"


@define(eq=False)
class Asked:
    """An issuer that answers questions about tokens, and a server that asks them."""

    clock: Clock = field(factory=Clock)
    tokens: dict[str, Any] = field(factory=dict)
    fetches: list[Fetch] = field(factory=list)
    response: Fetched | None = None
    auth: Any = None

    def send(self, request: Fetch) -> Fetched:
        self.fetches.append(request)
        if self.response is not None:
            return self.response
        (asked,) = parse_qs(request.body.decode())["token"]
        return document(self.tokens.get(asked, {"active": False}))

    def admits(
        self, of: str, address: str | None = "192.0.2.1", **more: str
    ) -> Identity:
        given = presented(of, address=address, **more)
        return identify(self.auth, given, self.send)

    def fails(self, of: str, address: str | None = "192.0.2.1") -> CredentialsError:
        with pytest.raises(CredentialsError) as caught:
            self.admits(of, address)
        return caught.value


def claims(**more: Any) -> dict[str, Any]:
    found = {"active": True, "sub": "ann", "aud": RESOURCE, "exp": START + 600, **more}
    return {name: value for name, value in found.items() if value is not None}


def asking(**options: Any) -> Asked:
    found = Asked(tokens={"good": claims()})
    given = {
        "issuer": URL,
        "resource": RESOURCE,
        "endpoint": ENDPOINT,
        "client_id": "shop",
        "client_secret": "secret",
        "clock": found.clock,
        **options,
    }
    found.auth = IntrospectionAuth(**given)
    return found


# ---- the request --------------------------------------------------------------------


def test_introspection_asks_as_rfc_7662_has_it() -> None:
    one = asking()
    one.tokens["a&b=c+d/ü"[:-1]] = claims()
    assert one.admits("a&b=c+d/").subject == "ann"
    (request,) = one.fetches
    assert (request.method, request.url, request.near) == ("POST", ENDPOINT, URL)
    assert parse_qs(request.body.decode()) == {
        "token": ["a&b=c+d/"],
        "token_type_hint": ["access_token"],
    }
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_introspection_client_is_encoded_as_in_a_form() -> None:
    """RFC 6749, section 2.3.1: else a colon, or a letter, is read in another way."""
    one = asking(client_id="a:b c", client_secret="ü%/+")
    one.admits("good")
    scheme, _, basic = one.fetches[0].headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(basic) == b"a%3Ab%20c:%C3%BC%25%2F%2B"


# ---- what the issuer says -----------------------------------------------------------

REFUSED: dict[str, list[Any]] = {
    "expiry": each("active", False, None, "true", 1) + [{}, claims(exp=START - 31)],
    "issuer": [claims(iss="https://evil.example")],
    "audience": [
        *(claims(aud=None), claims(aud="https://other.example"), claims(aud=[]))
    ],
    "subject": [claims(sub=one) for one in (None, "", 5)],
    "clock": [claims(nbf=START + 31)],
    "malformed": [claims(exp="soon")],
    "key": [claims(cnf={"x5t#S256": "A"})],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_introspection_refusal_says_the_reason(reason: str) -> None:
    for said in REFUSED[reason]:
        one = asking()
        one.tokens["good"] = said
        error = one.fails("good")
        assert error.reason.startswith(reason), said
        assert (error.status, error.error) == (401, "invalid_token")


RESPONSES = [
    *(Fetched(status=status) for status in (401, 403, 404, 429, 500, 302)),
    *(Fetched(status=200, body=body) for body in (b"", b"[]", b"<html>", b"[" * 9_000)),
]


@pytest.mark.parametrize(
    "response",
    RESPONSES,
    ids=str,
)
def test_introspection_without_an_answer_is_not_the_clients_fault(
    response: Fetched,
) -> None:
    """503 and not 401: clients would drop a token that may be good."""
    one = asking()
    one.response = response
    for _ in range(40):
        error = one.fails("good")
        assert (error.status, error.error) == (503, None)
    one.response = None
    assert one.admits("good").subject == "ann"


def test_introspection_issuer_that_is_down_is_not_the_clients_fault() -> None:
    one = asking()
    found = one.auth.identify(presented("good"))
    next(found)
    with pytest.raises(CredentialsError) as caught:
        found.throw(FetchError(ENDPOINT, "it cannot be reached"))
    assert caught.value.status == 503


def test_introspection_audience_may_be_left_to_the_issuer() -> None:
    one = asking(checks_audience=False)
    one.tokens["good"] = claims(aud=None)
    assert one.admits("good").subject == "ann"


def test_introspection_token_may_be_bound_to_a_key() -> None:
    one = asking()
    one.tokens["good"] = claims(cnf={"jkt": key("owner").thumbprint()})
    given = presented("good", "DPoP", dpop=proof("good"))
    assert identify(one.auth, given, one.send).subject == "ann"
    error = one.fails("good")
    assert "without a proof" in error.reason
    # The challenge asks for a proof (RFC 9449, section 7.1).
    (challenge,) = one.auth.challenges(error.error, error.scopes)
    assert challenge.startswith("DPoP algs=")


def test_introspection_comes_after_the_others() -> None:
    one = asking()
    keys = APIKeys([key_line("ann", "emcp_a")])
    with pytest.raises(UsageError, match="put IntrospectionAuth after the others"):
        Server("shop", auth=[one.auth, keys])
    assert Server("shop", auth=[keys, one.auth]).gate is not None


# ---- memory ------------------------------------------------------------------------


def test_introspection_answer_is_used_for_a_while() -> None:
    """A token that is revoked counts for that long, and no longer."""
    one = asking(cache=30)
    one.admits("good")
    one.tokens.clear()
    one.clock.now += 29
    one.admits("good")
    assert len(one.fetches) == 1
    one.clock.now += 1
    one.fails("good")
    assert len(one.fetches) == 2


def test_introspection_answer_is_not_used_after_it_expires() -> None:
    one = asking(cache=1_000, leeway=0)
    one.tokens["good"] = claims(exp=START + 5)
    one.admits("good")
    one.clock.now += 5
    assert one.fails("good").reason.startswith("expiry")


@pytest.mark.parametrize("exp", [None, "null"])
def test_introspection_without_expiry_is_used_for_the_cache(exp: Any) -> None:
    one = asking(cache=30)
    one.tokens["good"] = {**claims(exp=None), **({"exp": None} if exp else {})}
    assert one.admits("good").expires is None  # streams stay open


def test_introspection_without_cache_asks_each_time() -> None:
    one = asking(cache=0)
    for _ in range(3):
        one.admits("good")
    assert len(one.fetches) == 3


# ---- what strangers may cost --------------------------------------------------------


def test_introspection_address_with_bad_tokens_is_not_asked_about_for_a_minute() -> (
    None
):
    one = asking()
    one.admits("good")
    for number in range(1_000):
        one.fails(f"bad{number}")
    assert len(one.fetches) == 31
    # Known tokens, and other addresses, are not concerned.
    one.admits("good")
    one.tokens["other"] = claims()
    one.admits("other", "198.51.100.7")
    # It may be a good one, so clients must not drop it.
    assert one.fails("other2").status == 503
    one.clock.now += 60
    assert one.fails("bad").status == 401


def test_introspection_network_counts_and_not_its_addresses() -> None:
    """One client has 2**64 IPv6 addresses; IPv4 has two spellings."""
    one = asking()
    for number in range(1_000):
        one.fails(f"bad{number}", f"2001:db8:0:1::{number:x}")
    assert len(one.fetches) == 30
    for number in range(100):
        one.fails(f"bad{number}", "192.0.2.9" if number % 2 else "::ffff:192.0.2.9")
    assert len(one.fetches) == 60


def test_introspection_asks_about_a_few_tokens_at_once() -> None:
    """An address has a quarter of the places; a token takes one, however often sent."""
    one = asking()
    waiting = []
    for number in range(16):
        for _ in range(3):
            waiting.append(one.auth.identify(presented(f"good{number}")))
            assert next(waiting[-1]).is_shared
    error = one.fails("another")
    assert (error.status, error.error) == (503, None)
    one.admits("good", "198.51.100.7")
    for network in ("198.51.100.7", "198.51.100.8", "198.51.100.9"):
        for number in range(16):
            of = presented(f"{network} {number}".replace(" ", "-"), address=network)
            waiting.append(one.auth.identify(of))
            next(waiting[-1])
    assert one.fails("another", "198.51.100.10").status == 503
    for one_of in waiting:
        one_of.close()  # its client has disconnected
    assert one.auth._places.count == 0
    assert one.auth._asked == {}
    one.admits("good")


def test_introspection_of_an_unknown_address_is_bounded_too() -> None:
    one = asking()
    for number in range(100):
        one.fails(f"bad{number}", None)
    assert len(one.fetches) == 30


# ---- options ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": "introspect"},
        {"endpoint": "http://idp.example/introspect"},
        {"client_secret": ""},
        {"cache": -1},
    ],
    ids=str,
)
def test_introspection_wrong_option_is_an_error_of_the_author(
    options: dict[str, Any],
) -> None:
    with pytest.raises(UsageError):
        asking(**options)


def test_introspection_handles_every_token() -> None:
    auth = asking().auth
    assert auth.handles(presented("anything"))
    assert not auth.handles(presented(None))
