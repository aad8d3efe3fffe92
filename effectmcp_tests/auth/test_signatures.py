"""Keys and JWTs, as tokens and proofs share them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.auth.signatures import (
    KEYS,
    allows,
    is_signed,
    public_key,
    read_jwt,
    thumbprint,
)

from .issuer import bare, encoded, key, public, token


def test_key_is_allowed_for_the_algorithms_of_its_type_and_curve() -> None:
    found = {
        name: {one for one in KEYS if allows(public(key(algorithm=name)), one)}
        for name in ("RS256", "ES256", "ES384", "ES512", "Ed25519")
    }
    assert found == {
        "RS256": {one for one in KEYS if one[:2] in ("RS", "PS")},
        "ES256": {"ES256"},
        "ES384": {"ES384"},
        "ES512": {"ES512"},
        "Ed25519": {"Ed25519", "EdDSA"},
    }


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES256K", "RSA1_5", ""])
def test_key_is_not_allowed_for_other_algorithms(algorithm: str) -> None:
    assert not allows(public(key()), algorithm)


def test_thumbprint_is_of_the_key_and_not_of_its_names() -> None:
    """RFC 7638, section 3: only the required members count."""
    one = thumbprint(public_key(public(key(), alg="ES256", use="sig")))
    assert one == thumbprint(public_key(bare(key())))
    assert one == key().thumbprint()


def test_signature_of_another_length_is_refused() -> None:
    good = token()
    public_one = public_key(public(key()))
    assert is_signed(good, public_one, "ES256")
    head = good.rpartition(".")[0]
    for other in ("", "A", "AA", "A" * 85, "A" * 88, "!" * 86, encoded(b"\0" * 64)):
        assert not is_signed(f"{head}.{other}", public_one, "ES256")


def test_signature_with_a_key_of_another_type_is_refused() -> None:
    rsa = public_key(public(key(algorithm="RS256")))
    assert not is_signed(token(), rsa, "ES256")


@given(st.text(max_size=60) | st.text("ey.AQ_-=+/", max_size=40))
def test_jwt_is_read_or_is_a_value_error(text: str) -> None:
    try:
        header, claims = read_jwt(text)
    except ValueError:
        return
    assert isinstance(header, dict)
    assert isinstance(claims, dict)


@pytest.mark.parametrize("of", ['{"a":' * 900, "[" * 3_000, '{"a":' + "[" * 2_000])
def test_jwt_nested_deeply_is_a_value_error(of: str) -> None:
    with pytest.raises(ValueError, match="JWT|Expecting"):
        read_jwt(f"{encoded(of)}.{encoded('{}')}.AA")
