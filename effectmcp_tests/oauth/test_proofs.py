"""Proofs of this client, as the server of this library checks them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.auth import CredentialsError, Presented
from effectmcp.auth.proofs import Proofs
from effectmcp.auth.signatures import is_signed, public_key, read_jwt, thumbprint
from effectmcp.oauth import OAuthError
from effectmcp.oauth.proofs import ALGORITHM, new_key, proof

from .world import START, URL

KEY, ANOTHER = new_key(), new_key()


def bound_to(key: Mapping[str, Any]) -> str:
    """The thumbprint that a token is bound to."""
    public = {name: key[name] for name in ("kty", "crv", "x", "y")}
    return thumbprint(public_key(public))


def check(
    made: str,
    *,
    method: str = "POST",
    url: str = URL,
    token: str = "a-token",
    key: Mapping[str, Any] = KEY,
    now: float = START,
) -> None:
    """Check a proof as a server does."""
    presented = Presented(method=method, headers={"dpop": made})
    Proofs(url, 5.0).check(presented, token, bound_to(key), now)


def made(**changes: Any) -> str:
    fields = {
        "key": KEY,
        "method": "POST",
        "url": URL,
        "now": START,
        "id_": "one",
        "token": "a-token",
        **changes,
    }
    key, method, url = (fields.pop(name) for name in ("key", "method", "url"))
    return proof(key, method, url, **fields)


METHODS = st.sampled_from(["POST", "GET", "DELETE"])
URLS = st.sampled_from(
    [
        URL,
        "https://shop.example/",
        "https://shop.example:8443/a%20b",
        "http://[::1]:9/m",
    ]
)
TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


@given(METHODS, URLS, TOKENS, st.floats(0, 4e9), st.sampled_from(["", "?a=1", "#b"]))
def test_a_proof_is_accepted_for_its_request(
    method: str, url: str, token: str, now: float, more: str
) -> None:
    """RFC 9449, section 4.3; the URL is compared without query and fragment."""
    text = proof(KEY, method, url + more, now=now, id_="one", token=token)
    check(text, method=method, url=url, token=token, now=now)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET"},
        {"url": "https://shop.example/other"},
        {"url": "https://evil.example/mcp"},
        {"url": "http://shop.example/mcp"},
        {"token": "another"},
        {"token": None},
        {"key": ANOTHER},
        {"now": START - 100},
        {"now": START + 100},
        {"id_": ""},
    ],
)
def test_a_proof_is_refused_for_another_request(change: dict[str, Any]) -> None:
    check(made())
    with pytest.raises(CredentialsError):
        check(made(**change))


def test_a_proof_counts_once() -> None:
    proofs, text = Proofs(URL, 5.0), made()
    presented = Presented(method="POST", headers={"dpop": text})
    proofs.check(presented, "a-token", bound_to(KEY), START)
    with pytest.raises(CredentialsError, match="used before"):
        proofs.check(presented, "a-token", bound_to(KEY), START)


PARTS = made().split(".")


@given(st.integers(0, 2), st.data())
def test_a_changed_proof_is_refused(number: int, data: st.DataObject) -> None:
    """One character is replaced, in any part."""
    parts = list(PARTS)
    place = data.draw(st.integers(0, len(parts[number]) - 1))
    alphabet = (
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=\n\x00"
    )
    other = data.draw(st.sampled_from(alphabet))
    part = parts[number]
    parts[number] = part[:place] + other + part[place + 1 :]
    if _bytes(parts[number]) == _bytes(PARTS[number]):
        return  # the last character of a part has bits that mean nothing
    with pytest.raises(CredentialsError):
        check(".".join(parts))


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        return None


def test_a_proof_does_not_have_the_private_key() -> None:
    header, claims = read_jwt(made(nonce="n"))
    assert header == {
        "typ": "dpop+jwt",
        "alg": ALGORITHM,
        "jwk": {name: KEY[name] for name in ("kty", "crv", "x", "y")},
    }
    assert claims["nonce"] == "n"
    assert KEY["d"] not in made()
    assert is_signed(made(), public_key(header["jwk"]), ALGORITHM)


def test_a_proof_for_a_token_endpoint_has_no_token() -> None:
    """RFC 9449, section 4.2."""
    _, claims = read_jwt(made(token=None, nonce=None))
    assert set(claims) == {"jti", "htm", "htu", "iat"}


def test_keys_are_new_and_can_be_kept() -> None:
    assert KEY["d"] != ANOTHER["d"]
    again = json.loads(json.dumps(KEY))
    check(made(key=again))


@pytest.mark.parametrize("key", [{}, {"kty": "EC"}, {"kty": "oct", "k": "AAAA"}])
def test_a_key_that_cannot_sign(key: dict[str, Any]) -> None:
    with pytest.raises(OAuthError, match="forget the tokens"):
        made(key=key)


def test_proofs_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(OAuthError, match="pip install"):
        new_key()
