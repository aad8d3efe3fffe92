"""The rules for all tokens of an issuer: challenges, metadata, known tokens."""

from __future__ import annotations

from typing import Any

import pytest

from effectmcp.auth import CredentialsError, Identity
from effectmcp.auth.presented import credentials
from effectmcp.auth.proofs import ALGORITHMS
from effectmcp.auth.tokens import Known, TokenAuth, Verified, said, texts
from effectmcp.errors import UsageError
from effectmcp.protocol.authorization import read_challenges

from .issuer import RESOURCE, URL, door, presented, token

ANN = Verified(Identity(subject="ann"), 0.0)
METADATA = "https://shop.example/.well-known/oauth-protected-resource/mcp"


# ---- the header ---------------------------------------------------------------------


@pytest.mark.parametrize("header", ["Bearer t", "bearer t", "BEARER   t ", "DPoP t"])
def test_credentials_are_a_scheme_and_a_token(header: str) -> None:
    given = presented(None, authorization=header)
    assert credentials(given) == (header.split()[0].lower(), "t")


@pytest.mark.parametrize(
    "header", ["Basic dTpw", "Bearert", "t", "", "Digest a=b", "Bearer\tt"]
)
def test_credentials_of_another_scheme_do_not_count(header: str) -> None:
    """The challenge has no error then (RFC 6750, section 3.1)."""
    with pytest.raises(CredentialsError) as caught:
        credentials(presented(None, authorization=header))
    assert caught.value.error is None


@pytest.mark.parametrize("of", ["", " ", "é", "x" * 8_193])
def test_credentials_that_cannot_be_a_token_are_refused(of: str) -> None:
    with pytest.raises(CredentialsError, match="malformed"):
        credentials(presented(of))
    assert credentials(presented("x" * 8_192))


# ---- challenges --------------------------------------------------------------------


def test_challenge_names_the_metadata_and_the_scopes() -> None:
    auth = door(scopes=["b", "a"]).auth
    (header,) = auth.challenges("invalid_token")
    (found,) = read_challenges(header)
    assert found.scheme == "bearer"
    assert found.parameters == {
        "error": "invalid_token",
        "scope": "a b",
        "resource_metadata": METADATA,
    }
    (found,) = read_challenges(*auth.challenges(None, ["c"]))
    assert found.parameters == {"scope": "a b c", "resource_metadata": METADATA}


def test_challenge_asks_for_proofs_where_they_are_needed() -> None:
    """RFC 9449, section 7.1."""
    for auth, error in (
        (door(proofs="required").auth, None),
        (door().auth, "invalid_dpop_proof"),
    ):
        (found,) = read_challenges(*auth.challenges(error))
        assert found.scheme == "dpop"
        assert found.parameters["algs"].split() == list(ALGORITHMS)


def test_metadata_is_of_the_resource() -> None:
    """RFC 9728, section 2; 2026-07-28, Authorization Server Location."""
    assert door().auth.metadata() == {
        "resource": RESOURCE,
        "authorization_servers": [URL],
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": list(ALGORITHMS),
    }
    found = door(scopes=["b", "a"], proofs="required").auth.metadata()
    assert found is not None
    assert found["scopes_supported"] == ["a", "b"]
    assert found["dpop_bound_access_tokens_required"] is True


# ---- known tokens -------------------------------------------------------------------


def test_known_tokens_are_bounded_and_the_oldest_are_forgotten() -> None:
    known = Known(most=3)
    for digest in (b"1", b"2", b"3", b"4"):
        known.keep(digest, ANN)
    assert [known.get(one) is not None for one in (b"1", b"2", b"3", b"4")] == [
        False,
        True,
        True,
        True,
    ]
    known.drop(b"2")
    known.drop(b"none")
    assert known.get(b"2") is None


def test_known_are_only_accepted_tokens_and_not_as_text() -> None:
    one = door()
    good = token()
    one.admits(good)
    for bad in ("x", token(aud="x"), good + "A"):
        with pytest.raises(CredentialsError):
            one.admits(bad)
    (digest,) = one.auth.known._tokens
    assert len(digest) == 32
    assert good not in repr(one.auth.known)


# ---- parts --------------------------------------------------------------------------


def test_strings_are_one_or_several() -> None:
    assert texts("a", "b") == ("b",)
    assert texts("a", ["b", "c"]) == ("b", "c")
    for wrong in ("", [], [""], [5], None, 5):
        with pytest.raises(UsageError, match="a: give a string"):
            texts("a", wrong)


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def test_said_is_short_for_every_value() -> None:
    """`repr` of what JSON can be nested to would raise RecursionError."""
    for value in (
        nested(900),
        "x" * 10_000,
        {"a" * 500: "b" * 500},
        "\n\x1b[31m",
        None,
    ):
        shown = said(value)
        assert len(shown) <= 200
        assert shown.isprintable()


def test_token_auth_handles_what_its_subclass_knows() -> None:
    auth = door().auth
    assert isinstance(auth, TokenAuth)
    assert not auth.handles(presented(None))
