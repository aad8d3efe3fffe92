"""Signed tokens: each reason to refuse one, and a property that has the rules beside it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.auth import CredentialsError, JWTAuth
from effectmcp.errors import UsageError

from .issuer import (
    RESOURCE,
    START,
    URL,
    Issuer,
    claims_of,
    door,
    each,
    encoded,
    key,
    presented,
    public,
    signed,
    token,
)

Claims = dict[str, Any]


def refused(of: str, **options: Any) -> CredentialsError:
    """The refusal of a token."""
    with pytest.raises(CredentialsError) as caught:
        door(**options).admits(of)
    return caught.value


# ---- accepted -----------------------------------------------------------------------


def test_jwt_accepted_is_an_identity() -> None:
    found = door().admits(token(scope="orders:read orders:write"))
    assert (found.subject, found.issuer, found.tenant) == ("ann", URL, None)
    assert found.scopes == {"orders:read", "orders:write"}
    assert found.expires == START + 600 + 30
    assert found.principal == f"{URL} ann"
    assert found.claims["client_id"] == "a client"


ALGORITHMS = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_jwt_each_algorithm_is_checked(algorithm: str) -> None:
    """joserfc would warn of the old name of Ed25519; here, no algorithm causes a warning."""
    by = key(algorithm=algorithm)
    issuer = Issuer(keys=[public(by)])
    one = door(issuer, algorithms=[algorithm])
    good = token(by=by, algorithm=algorithm)
    assert one.admits(good).subject == "ann"
    head, claims, signature = good.split(".")
    turned = signature[:20] + ("A" if signature[20] != "A" else "B") + signature[21:]
    with pytest.raises(CredentialsError, match="signature"):
        one.admits(f"{head}.{claims}.{turned}")


@pytest.mark.parametrize("named", ["Ed25519", "EdDSA"])
def test_jwt_both_names_of_ed25519_fit_a_key(named: str) -> None:
    by = key(algorithm="Ed25519")
    for algorithm in ("Ed25519", "EdDSA"):
        one = door(Issuer(keys=[public(by, alg=named)]))
        assert one.admits(token(by=by, algorithm=algorithm)).subject == "ann"


@pytest.mark.parametrize(
    "type_", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None]
)
def test_jwt_type_of_an_access_token_is_accepted(type_: str | None) -> None:
    """RFC 9068, section 4, accepts two of them; many issuers write `JWT`, or none."""
    assert door().admits(token(header={"typ": type_})).subject == "ann"


@pytest.mark.parametrize(
    "named", [{"nonce": "n"}, {"pi.atm": 1}, {"x5c": ["a" * 2000]}]
)
def test_jwt_unknown_headers_are_ignored(named: Mapping[str, Any]) -> None:
    """RFC 7515, section 4; and honest issuers send certificates, which are long."""
    assert door().admits(token(header=named)).subject == "ann"


def test_jwt_without_a_key_id_tries_the_keys() -> None:
    keys = [public(key("other")), public(key())]
    one = door(Issuer(keys=keys))
    assert one.admits(token(header={"kid": None})).subject == "ann"


def test_jwt_of_several_audiences_is_for_each() -> None:
    good = token(aud=["https://other.example", RESOURCE])
    assert door().admits(good).subject == "ann"
    named = door(audience=["api://one", "api://two"])
    assert named.admits(token(aud="api://two")).subject == "ann"
    with pytest.raises(CredentialsError, match="audience"):
        named.admits(token(aud=RESOURCE))


# ---- refused ------------------------------------------------------------------------

REFUSED: dict[str, list[dict[str, Any]]] = {
    "issuer": [{"iss": "https://evil.example"}, {"iss": URL + "/"}, {"iss": None}],
    "audience": [
        *each("aud", "https://other.example", RESOURCE + "/", RESOURCE.upper(), None),
        *each("aud", [], [[RESOURCE]], {"a": 1}, 5),
    ],
    "expiry": [{"exp": START - 31}, {"exp": 0}, {"exp": -1e9}, {"exp": None}],
    "clock": [{"nbf": START + 31}, {"iat": START + 31}],
    "malformed": each("exp", "soon", True, [], 10**400, 1e13, -(10**400))
    + [{"nbf": "soon"}, {"iat": {}}],
    "subject": each("sub", None, "", 5, ["ann"], "\ud800"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_jwt_wrong_claim_is_refused_with_its_reason(reason: str) -> None:
    for claims in REFUSED[reason]:
        error = refused(token(**claims))
        assert error.reason.startswith(reason), (claims, error.reason)
        assert (error.error, error.status) == ("invalid_token", 401)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_jwt_time_that_json_does_not_have_is_refused(text: str) -> None:
    claims = json.dumps(claims_of(exp=0)).replace('"exp": 0', f'"exp": {text}')
    given = signed({"alg": "ES256", "kid": "first"}, claims, key())
    assert refused(given).reason.startswith("malformed")


HEADERS: dict[str, list[dict[str, Any]]] = {
    "algorithm": each("alg", "none", "HS256", "ES384", None, ["ES256"]),
    "type": each("typ", "dpop+jwt", "logout+jwt", "id+jwt", 5, ""),
    "key": [{"kid": "unknown"}, {"kid": ""}],
    "malformed": [
        *each("kid", 5, ["first"], {}, "x" * 501),
        *({"crit": ["exp"]}, {"crit": []}, {"b64": False}),
    ],
}


@pytest.mark.parametrize("reason", HEADERS)
def test_jwt_wrong_header_is_refused_with_its_reason(reason: str) -> None:
    for header in HEADERS[reason]:
        error = refused(token(header=header))
        assert error.reason.startswith(reason), (header, error.reason)


def test_jwt_of_an_algorithm_that_its_key_is_not_for_is_refused() -> None:
    for said in ({"alg": "ES384"}, {"use": "enc"}, {"key_ops": ["sign"]}):
        issuer = Issuer(keys=[public(key(), **said), public(key("other"))])
        assert refused(token(), issuer=issuer).reason.startswith("key"), said


def test_jwt_signed_by_another_key_is_refused() -> None:
    other = token(by=key("other"), header={"kid": "first"})
    assert refused(other).reason == "key: the signature is wrong"


@pytest.mark.parametrize(
    ("claim", "seconds", "is_accepted"),
    [
        *[("exp", -29.5, True), ("exp", -30, False), ("exp", 0, True)],
        *[("nbf", 30, True), ("nbf", 30.5, False)],
        *[("iat", 30, True), ("iat", 30.5, False)],
    ],
)
def test_jwt_clocks_may_differ_by_the_leeway(
    claim: str, seconds: float, is_accepted: bool
) -> None:
    claims: Claims = {claim: START + seconds}
    given = token(**claims)
    if is_accepted:
        assert door().admits(given).subject == "ann"
    else:
        refused(given)


def test_jwt_without_leeway_ends_when_it_expires() -> None:
    one = door(leeway=0)
    good = token(exp=START + 5)
    one.admits(good)
    one.clock.now += 5
    with pytest.raises(CredentialsError, match="expiry"):
        one.admits(good)


# ---- known tokens -------------------------------------------------------------------


def test_jwt_known_token_is_found_without_waiting_until_it_expires() -> None:
    one, good = door(keys_fresh=10_000), token()
    first = one.admits(good)
    assert one.auth.identify(presented(good)) is first
    one.clock.now = START + 629
    assert one.auth.identify(presented(good)) is first
    one.clock.now = START + 630
    with pytest.raises(CredentialsError, match="expiry"):
        one.admits(good)


def test_jwt_that_expires_while_keys_are_fetched_is_refused() -> None:
    one = door(leeway=0)

    def slow(request: Any) -> Any:
        one.clock.now += 10
        return Issuer().send(request)

    one.issuer.documents[one.issuer.keys_url] = slow
    with pytest.raises(CredentialsError, match="expiry"):
        one.admits(token(exp=START + 5))


def test_jwt_of_a_withdrawn_key_is_refused_though_it_is_known() -> None:
    """Even if no other token is sent: known tokens cause the fetch, too."""
    one, good = door(), token()
    one.admits(good)
    one.issuer.keys = [public(key("second"))]
    one.clock.now += 599
    one.admits(good)
    one.clock.now += 1
    with pytest.raises(CredentialsError, match="key"):
        one.admits(good)


# ---- scopes, tenants, claims --------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, "a b"),
        ({"scope": ["a", "b"]}, "a b"),
        ({"scp": "a b"}, "a b"),
        ({"scp": ["a", "b"]}, "a b"),
        ({"scope": "a", "scp": "b"}, "a"),
        ({"scope": "", "scp": "b"}, ""),
        ({"scope": 5, "scp": "b"}, "b"),
        ({"scope": ["a", 5, None, "b c", 'q"', "ü", ""]}, "a"),
        ({"scope": "  a   b  "}, "a b"),
        ({"scope": {"a": 1}}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_jwt_scopes_are_of_either_claim(claims: Claims, scopes: str) -> None:
    assert door().admits(token(**claims)).scopes == set(scopes.split())


def test_jwt_scopes_contain_what_they_imply() -> None:
    """(2026-07-28, Step-Up Authorization Flow: servers account for hierarchies.)"""
    implies = {"admin": ["write"], "write": ["read"], "read": ["admin"]}
    one = door(implies=implies)
    assert one.admits(token(scope="write")).scopes == {"admin", "write", "read"}
    assert one.admits(token(scope="other")).scopes == {"other"}


def test_jwt_without_a_needed_scope_is_forbidden() -> None:
    error = refused(token(scope="a"), scopes=["a", "b"])
    assert (error.status, error.error) == (403, "insufficient_scope")
    assert error.scopes == {"a", "b"}
    door(scopes=["a"], implies={"b": ["a"]}).admits(token(scope="b"))


def test_jwt_known_token_without_a_scope_is_forbidden_again() -> None:
    one, given = door(scopes=["a"]), token()
    for _ in range(2):
        with pytest.raises(CredentialsError, match="scope"):
            one.admits(given)


def test_jwt_tenant_is_needed_and_is_part_of_the_principal() -> None:
    one = door(tenant_claim="org")
    found = one.admits(token(org="acme co"))
    assert (found.tenant, found.principal) == ("acme co", f"{URL} ann acme%20co")
    for value in (None, "", 5, ["acme"]):
        with pytest.raises(CredentialsError, match="tenant"):
            one.admits(token(org=value))


def test_jwt_shows_handlers_only_the_chosen_claims() -> None:
    found = door(shown_claims=["email", "name"]).admits(token(email="a@b.c", phone="1"))
    assert dict(found.shown_claims) == {"email": "a@b.c"}
    assert found.claims["phone"] == "1"


def test_principals_of_different_callers_differ() -> None:
    """No subject, issuer and tenant spell the principal of others."""
    parts = ["a", "a b", "a%20b", "", "b", " ", "ü", "%"]
    found: dict[str, Any] = {}
    for subject in parts[:3] + parts[4:]:
        for tenant in (None, *parts[:3], *parts[4:]):
            claims: Claims = {"sub": subject, "org": tenant}
            options: Any = {"tenant_claim": "org"} if tenant else {}
            who = door(**options).admits(token(**claims)).principal
            assert found.setdefault(who, (subject, tenant)) == (subject, tenant)


# ---- options ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *each("issuer", "idp.example", "", None, "ftp://a", "https://"),
        *each("resource", "shop", RESOURCE + "#part", 5),
        *each("algorithms", ["HS256"], ["none"], [], "HS512", [5]),
        *each("audience", [], "", [5], 5),
        *each("scopes", "a b", ["a b"], [5]),
        *each("implies", {"a": "b"}, {"a": ["b c"]}),
        *({"leeway": -1}, {"proofs": "maybe"}, {"shown_claims": "email"}),
        {"keys_url": "keys"},
    ],
    ids=str,
)
def test_jwt_wrong_option_is_an_error_of_the_author(options: dict[str, Any]) -> None:
    given = {"issuer": URL, "resource": RESOURCE, **options}
    with pytest.raises(UsageError):
        JWTAuth(**given)


def test_jwt_auth_names_its_issuer() -> None:
    assert str(door().auth) == f"{URL} (for {RESOURCE})"


def test_jwt_handles_only_tokens_that_name_its_issuer() -> None:
    """The rest is for the next authenticator in the list."""
    auth = door().auth
    assert auth.handles(presented(token()))
    assert not auth.handles(presented(token(iss="https://other.example")))
    for other in ("emcp_key", "a.b.c", "a.b", ""):
        assert not auth.handles(presented(other))
    assert not auth.handles(presented(None))


# ---- the property -------------------------------------------------------------------

TIMES = [-1e6, -31, -30, -29, -1, 0, 1, 29, 30, 31, 1e6]
FUTURE = [START + one for one in TIMES]
ODD: list[Any] = [None, "x", True, [], {}]

drawn_headers = st.fixed_dictionaries(
    {"alg": st.sampled_from(["ES256", "ES256", "ES256", "none", "HS256", "ES384"])},
    optional={
        "typ": st.sampled_from(
            ["at+jwt", "JWT", "application/at+jwt", "dpop+jwt", "x"]
        ),
        "kid": st.sampled_from(["first", "first", "other", "", 5]),
        "crit": st.just(["exp"]),
        "jku": st.just("https://evil.example/keys"),
    },
)
drawn_claims = st.fixed_dictionaries(
    {
        "iss": st.sampled_from([URL] * 6 + ["https://evil.example", None]),
        "aud": st.sampled_from(
            [RESOURCE, [RESOURCE], ["x", RESOURCE], [5, RESOURCE], "x", [], None, 5]
        ),
        "sub": st.sampled_from(["ann"] * 6 + ["", None]),
        "exp": st.sampled_from([START + 600] * 6 + FUTURE + ODD),
    },
    optional={
        "nbf": st.sampled_from([*FUTURE, *ODD]),
        "iat": st.sampled_from([*FUTURE, *ODD]),
        "scope": st.sampled_from(["a", "a b", ["b"], 5, ""]),
    },
)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rules(header: Claims, claims: Claims, signer: str, leeway: float) -> bool:
    """Whether a token has to be accepted, by the specifications.

    RFC 9068, section 4, with the types that RFC 7519 has; RFC 7519, section 4.1;
    RFC 7515, section 4.1.11; RFC 8707, section 2; 2026-07-28, Token Handling.
    """
    now = START
    if header["alg"] != "ES256" or "crit" in header:
        return False
    if header.get("typ", "JWT") not in ("at+jwt", "application/at+jwt", "JWT"):
        return False
    # The issuer has one key, which is called `first`.
    if header.get("kid", "first") != "first" or signer != "first":
        return False
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims["iss"] != URL or RESOURCE not in audiences or not claims["sub"]:
        return False
    # "The current date/time MUST be before the expiration date/time", with a leeway.
    if not is_number(claims["exp"]) or not now < claims["exp"] + leeway:
        return False
    for name in ("nbf", "iat"):
        time = claims.get(name)
        if time is not None and not (is_number(time) and time <= now + leeway):
            return False
    return True


@given(
    header=drawn_headers,
    claims=drawn_claims,
    signer=st.sampled_from(["first", "first", "first", "other"]),
    leeway=st.sampled_from([0, 30]),
)
@example(
    header={"alg": "ES256", "kid": "first"},
    claims=claims_of(),
    signer="first",
    leeway=0,
)
def test_jwt_is_accepted_exactly_by_the_rules(
    header: Claims, claims: Claims, signer: str, leeway: float
) -> None:
    given = signed(header, claims, key(signer))
    one = door(leeway=leeway)
    expected = rules(header, claims, signer, leeway)
    for _ in range(2):  # and when it is known
        if expected:
            assert one.admits(given).principal == f"{URL} ann"
        else:
            with pytest.raises(CredentialsError) as caught:
                one.admits(given)
            assert caught.value.status == 401
    assert one.issuer.count() <= 1


@given(
    text=st.one_of(
        st.text(),
        st.lists(st.text("ey.AQ_-", max_size=9), max_size=5).map(".".join),
        st.tuples(st.binary(max_size=40), st.binary(max_size=40)).map(
            lambda pair: f"{encoded(pair[0])}.{encoded(pair[1])}.AA"
        ),
    )
)
def test_jwt_any_string_is_refused_without_a_fetch(text: str) -> None:
    one = door()
    with pytest.raises(CredentialsError):
        one.admits(text)
    assert one.issuer.fetches == []


def test_jwt_refusal_is_short_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error = refused(token(aud="x" * 4_000))
    assert len(error.reason) < 600
    assert "\n" not in refused(token(iss="a\nb")).reason
