"""The JSON in a store, and other JSON in its place."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.oauth import OAuthError
from effectmcp.oauth.login import Login
from effectmcp.oauth.proofs import new_key
from effectmcp.oauth.tokens import Kept, Tokens, is_visible, printable

from .world import ISSUER, World, login_at

VISIBLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
SCOPES = st.lists(st.sampled_from(["a", "b", "c:d"]), unique=True).map(tuple)
KEY = new_key()


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    """Tokens as an authorization server sends them."""
    is_bound = draw(st.booleans())
    return Tokens(
        access=draw(VISIBLE),
        issuer=draw(st.sampled_from([ISSUER, "https://other.example"])),
        scheme="DPoP" if is_bound else "Bearer",
        refresh=draw(st.none() | VISIBLE),
        expires=draw(st.none() | st.floats(0, 1e12)),
        scopes=draw(SCOPES),
        proof_key=KEY if is_bound else None,
    )


CLIENTS = st.dictionaries(
    st.text(max_size=9),
    st.dictionaries(st.text(max_size=9), st.none() | st.text(max_size=9)),
    max_size=2,
)


@given(st.none() | tokens(), CLIENTS)
def test_kept_survives_json(tokens: Tokens | None, clients: dict[str, Any]) -> None:
    kept = Kept(tokens=tokens, clients=clients)
    assert Kept.from_json(json.loads(json.dumps(kept.to_json()))) == kept


GOOD: dict[str, Any] = {
    "access": "a",
    "issuer": ISSUER,
    "scheme": "Bearer",
    "refresh": None,
    "expires": None,
    "scopes": ["a"],
    "proof_key": None,
}


@pytest.mark.parametrize(
    "change",
    [
        {"access": 5},
        {"access": ""},
        {"access": "a\r\nX-Evil: 1"},
        {"access": "\ud800"},
        {"issuer": None},
        {"scheme": "Basic"},
        {"scheme": "Bearer\r\nX"},
        {"scheme": []},
        {"scheme": "DPoP"},
        {"refresh": 5},
        {"refresh": "\ud800"},
        {"expires": "soon"},
        {"expires": math.nan},
        {"expires": True},
        {"expires": [1]},
        {"scopes": "abc"},
        {"scopes": None},
        {"scopes": [5]},
        {"scopes": ["a b"]},
        {"scopes": ["\ud800"]},
        {"proof_key": "key"},
        {"proof_key": []},
        {"proof_key": KEY},
        {"scheme": "DPoP", "proof_key": {"kty": "EC", "crv": "P-256"}},
        {"scheme": "DPoP", "proof_key": {**KEY, "d": 5}},
        {"more": 1},
    ],
)
def test_tokens_that_cannot_be_used_are_not_kept(change: dict[str, Any]) -> None:
    """The store may be of another version, or of another program."""
    kept = Kept.from_json({"format": 1, "tokens": {**GOOD, **change}, "clients": {}})
    assert kept.tokens is None


@pytest.mark.parametrize(
    "text", ["null", "[]", "5", '"x"', "{}", '{"format": 2}', '{"format": true}']
)
def test_another_format_is_ignored(text: str) -> None:
    assert Kept.from_json(json.loads(text)) == Kept()


@pytest.mark.parametrize("clients", [None, [], 5, "x", {"a": 5}, {"a": None}])
def test_clients_that_cannot_be_used_do_not_cost_the_tokens(clients: Any) -> None:
    kept = Kept.from_json({"format": 1, "tokens": GOOD, "clients": clients})
    assert kept == Kept(tokens=Tokens(access="a", issuer=ISSUER, scopes=("a",)))


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=8,
)


@given(
    VALUES
    | st.fixed_dictionaries(
        {
            "format": st.just(1),
            "tokens": VALUES
            | st.dictionaries(st.sampled_from(sorted(GOOD)), VALUES).map(
                lambda change: {**GOOD, **change}
            ),
            "clients": VALUES,
        }
    )
)
def test_any_json_in_a_store_is_something_to_log_in_with(found: Any) -> None:
    """A login with it works, or begins from nothing: no error of Python."""
    world = World()
    login: Login = login_at(world)
    login.kept = Kept.from_json(found)
    assert world.use(login) == 200


def test_a_key_that_cannot_sign_is_reported() -> None:
    """With advice, because the next request would find it again."""
    world = World()
    login = login_at(world)
    broken = {"kty": "EC", "crv": "P-256", "x": "x", "y": "y", "d": "d"}
    found = {**GOOD, "scheme": "DPoP", "proof_key": broken}
    login.kept = Kept.from_json({"format": 1, "tokens": found})
    assert login.kept.tokens is not None
    with pytest.raises(OAuthError, match="forget the tokens"):
        login.sign("POST")


@given(st.text())
def test_words_of_a_stranger_are_printable_and_short(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == min(len(text), 300)


def test_other_values_are_printable_too() -> None:
    assert printable(None) == "None"
    assert printable(["\x1b"]) == r"['\x1b']"
    assert len(printable(["a"] * 1000)) == 300


def test_visible_characters() -> None:
    assert is_visible("a b~!")
    for text in ("", "\n", "a\x7f", "é", "\ud800", None, 5, "a" * 65_537):
        assert not is_visible(text)


def test_secrets_are_not_in_reprs() -> None:
    shown = repr(
        Tokens(access="quiet", issuer=ISSUER, refresh="quiet", proof_key={"d": "quiet"})
    )
    assert "quiet" not in shown
