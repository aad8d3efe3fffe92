"""DPoP: a token that only its owner can use (RFC 9449, section 4.3, check by check)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.auth import CredentialsError
from effectmcp.auth import proofs as module
from effectmcp.auth.proofs import ALGORITHMS, Proofs

from .issuer import (
    RESOURCE,
    START,
    Door,
    bare,
    door,
    each,
    encoded,
    key,
    presented,
    proof,
    signed,
    token,
)


def bound(algorithm: str = "ES256", **claims: Any) -> str:
    """A token that is bound to the owner's key."""
    owner = key("owner", algorithm)
    return token(cnf={"jkt": owner.thumbprint()}, **claims)


def sends(one: Door, of: str, made: str) -> None:
    assert one.admits(of, "DPoP", dpop=made).subject == "ann"


def refusal(made: str, of: str | None = None) -> CredentialsError:
    with pytest.raises(CredentialsError) as caught:
        door().admits(of or bound(), "DPoP", dpop=made)
    return caught.value


# ---- accepted -----------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_proof_by_each_algorithm_is_accepted(algorithm: str) -> None:
    """An RSA key makes a long header."""
    given = bound(algorithm)
    sends(door(), given, proof(given, algorithm=algorithm))


def test_proof_may_have_other_members() -> None:
    given = bound()
    made = proof(given, header={"kid": "a key"}, nonce="n", extra=[1])
    sends(door(), given, made)


@pytest.mark.parametrize(
    "url",
    [
        *(RESOURCE, RESOURCE + "/", RESOURCE + "?a=b#c"),
        *("HTTPS://SHOP.example/mcp", "https://shop.example:443/mcp"),
    ],
)
def test_proof_urls_are_compared_without_query_and_in_one_spelling(url: str) -> None:
    """Section 4.3, 9: "ignoring any query and fragment parts", and RFC 3986, 6.2.2."""
    given = bound()
    sends(door(), given, proof(given, htu=url))


def test_proof_of_each_request_is_another_one() -> None:
    one, given = door(), bound()
    for number in range(3):
        sends(one, given, proof(given, jti=str(number)))


# ---- refused, by the numbers of section 4.3 -----------------------------------------

PRIVATE = key("owner").as_dict(private=True)

REFUSED: dict[str, list[dict[str, Any]]] = {
    "3: no claim is missing": [
        {name: None} for name in ("jti", "htm", "htu", "iat", "ath")
    ],
    "4: the type is dpop+jwt": each(
        "header", *each("typ", None, "JWT", "at+jwt", 5, "DPOP+JWT")
    ),
    "5: the algorithm is asymmetric, and accepted": each(
        "header", *each("alg", "none", "HS256", "ES512", None, 5, [], {})
    ),
    "7: the key is public": [
        {"header": {"jwk": PRIVATE}},
        {"header": {"jwk": {"kty": "oct", "k": "AAAA"}, "alg": "HS256"}},
        *each("header", *each("jwk", None, "key", 5, [], {}, [bare(key())])),
    ],
    "8: the method": each("htm", "GET", "post", "", 5, ["POST"]),
    "9: the URL": [
        *each(
            "htu",
            *("https://other.example/mcp", "http://shop.example/mcp", 5, [], ""),
            *("https://shop.example", "https://shop.example:8443/mcp", "mcp"),
            *("https://shop.example:x/mcp", "https://[shop/mcp", RESOURCE + "/a"),
        )
    ],
    "11: the time": [
        *each(
            "iat",
            *(START - 91, START + 31, 0, -1, "now", True, [], 10**400, -(10**400)),
            *(float("inf"), float("-inf"), float("nan")),
        )
    ],
    "12: the token": each("ath", "", "A", 5, encoded(b"\0" * 32)),
    "jti": each("jti", "", 5, []),
    "RFC 7515, crit": [{"header": {"crit": ["htm"]}}, {"header": {"b64": False}}],
}


@pytest.mark.parametrize("check", REFUSED)
def test_proof_that_fails_a_check_is_refused(check: str) -> None:
    given = bound()
    for options in REFUSED[check]:
        error = refusal(proof(given, **options), given)
        assert (error.error, error.status) == ("invalid_dpop_proof", 401), options
        assert error.reason.startswith("proof (DPoP): ")


def test_proof_is_needed_and_there_is_one() -> None:
    """Section 4.3, 1 and 2: a second header is joined to the first, which breaks both."""
    given = bound()
    made = proof(given)
    for other in ("", "x", f"{made}, {made}", f"{made}.x", made.rpartition(".")[0]):
        assert refusal(other, given).error == "invalid_dpop_proof"


def test_proof_by_another_key_is_refused() -> None:
    """Section 4.3, 6 and 12: its own key has signed it, and the token is bound to that."""
    given = bound()
    other = proof(given, by=key("thief"))
    assert "another key" in refusal(other, given).reason
    under_the_owners_name = {"jwk": bare(key("owner"))}
    other = proof(given, by=key("thief"), header=under_the_owners_name)
    assert "signature" in refusal(other, given).reason


def test_proof_for_another_token_is_refused() -> None:
    made = proof(bound(jti="1"))
    assert "another token" in refusal(made, bound(jti="2")).reason


def test_proof_with_half_of_a_surrogate_pair_is_an_id_like_others() -> None:
    one, given = door(), bound()
    made = proof(given, jti="\ud800")
    sends(one, given, made)
    with pytest.raises(CredentialsError, match="used"):
        sends(one, given, made)


@given(
    st.text(max_size=60)
    | st.binary(max_size=60).map(lambda one: f"{encoded(one)}.e30.AA")
)
def test_proof_of_any_string_is_refused(text: str) -> None:
    assert refusal(text).error == "invalid_dpop_proof"


@pytest.mark.parametrize("content", ["[]", "5", '"text"', "null", "{", "[" * 3_000])
def test_proof_of_other_json_is_refused(content: str) -> None:
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": bare(key("owner"))}
    for made in (
        signed(content, {}, key("owner")),
        signed(header, content, key("owner")),
    ):
        assert refusal(made).error == "invalid_dpop_proof"


# ---- bound and not ------------------------------------------------------------------


def test_bound_token_without_a_proof_is_refused() -> None:
    """RFC 9449, section 7.1: else a stolen one could be sent as a bearer token."""
    one, given = door(), bound()
    for scheme in ("Bearer", "bearer", "DPoP"):
        with pytest.raises(CredentialsError):
            one.admits(given, scheme)
    with pytest.raises(CredentialsError):
        one.admits(given, "Bearer", dpop=proof(given))


def test_bearer_token_in_the_scheme_of_proofs_is_refused() -> None:
    one, given = door(), token()
    with pytest.raises(CredentialsError, match="bound to no key"):
        one.admits(given, "DPoP", dpop=proof(given))


def test_bearer_token_is_refused_where_proofs_are_required() -> None:
    one = door(proofs="required")
    with pytest.raises(CredentialsError, match="bound to no key"):
        one.admits(token())
    given = bound()
    sends(one, given, proof(given))


BINDINGS = [
    *each("jkt", None, 5, []),
    *({"x5t#S256": "AAAA"}, {"jkt": "A", "x5t#S256": "A"}, {}, "jkt", [], 5, True),
]


@pytest.mark.parametrize("binding", BINDINGS, ids=str)
def test_token_that_is_bound_to_something_else_is_refused(binding: Any) -> None:
    """Else it would be a bearer token: what is not understood is not ignored."""
    with pytest.raises(CredentialsError, match="cannot be checked"):
        door().admits(token(cnf=binding))


# ---- replay -------------------------------------------------------------------------


def test_proof_counts_once() -> None:
    one, given = door(), bound()
    made = proof(given)
    sends(one, given, made)
    for _ in range(2):
        with pytest.raises(CredentialsError, match="used before"):
            sends(one, given, made)


def test_proof_id_of_another_key_is_another_one() -> None:
    one = door()
    for name in ("owner", "thief"):
        given = token(cnf={"jkt": key(name).thumbprint()})
        sends(one, given, proof(given, by=key(name), jti="the same"))


@given(
    made=st.integers(-60, 60),
    first=st.integers(-120, 120),
    later=st.integers(0, 400),
    leeway=st.sampled_from([0, 1, 30]),
)
@example(made=30, first=0, later=120, leeway=30)
def test_proof_never_counts_twice(
    made: int, first: int, later: int, leeway: float
) -> None:
    """However it is delayed: it is forgotten only once it is too old."""
    proofs, given = Proofs(RESOURCE, leeway), bound()
    sent = presented(given, "DPoP", dpop=proof(given, iat=START + made))
    count = 0
    for moment in (first, first + later):
        try:
            proofs.check(sent, given, key("owner").thumbprint(), START + moment)
        except CredentialsError:
            continue
        assert made - leeway <= moment <= made + 60 + leeway
        count += 1
    assert count <= 1


def use(proofs: Proofs, number: int, owner: str, now: float) -> None:
    proofs._use(hashlib.sha256(b"%d" % number).digest(), owner, now)


def test_proofs_that_are_remembered_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One user gets a share: with a new key for each proof, too."""
    monkeypatch.setattr(module, "_MOST", 100)
    monkeypatch.setattr(module, "_MOST_OF_ONE", 20)
    proofs = Proofs(RESOURCE, 0)
    for number in range(100):
        use(proofs, number, str(number // 20), START)
    for owner in ("0", "new"):
        with pytest.raises(CredentialsError, match="too many") as caught:
            use(proofs, 1_000, owner, START)
        assert (caught.value.status, caught.value.error) == (503, None)
    use(proofs, 1_000, "0", START + 61)
    assert (len(proofs._used), proofs._counts) == (1, {"0": 1})


def test_proofs_of_one_user_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_OF_ONE", 2)
    one = door()
    for name in ("owner", "thief"):
        given = token(cnf={"jkt": key(name).thumbprint()})
        sends(one, given, proof(given, by=key(name)))
    given = bound()
    with pytest.raises(CredentialsError, match="too many"):
        sends(one, given, proof(given, jti="2"))
    other = bound(sub="bob")
    assert one.admits(other, "DPoP", dpop=proof(other, jti="3")).subject == "bob"
