"""DPoP and assertions: what a client signs (RFC 9449, RFC 7523). No I/O.

It needs joserfc: `pip install effectmcp[auth]`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from .tokens import OAuthError

__all__ = ["ALGORITHM", "assertion", "new_key", "proof"]

#: How proofs are signed; every server that supports DPoP knows it.
ALGORITHM: Final = "ES256"


def _joserfc() -> tuple[Any, Any]:
    try:
        from joserfc import jwk, jwt
    except ModuleNotFoundError:
        raise OAuthError(
            "to sign proofs and assertions needs joserfc: pip install 'effectmcp[auth]'"
        ) from None
    return jwk, jwt


def new_key() -> dict[str, Any]:
    """Return a new private key, as a JWK."""
    jwk, _ = _joserfc()
    found: dict[str, Any] = jwk.ECKey.generate_key("P-256").as_dict(private=True)
    return found


def proof(
    key: Mapping[str, Any],
    method: str,
    url: str,
    *,
    now: float,
    id_: str,
    nonce: str | None = None,
    token: str | None = None,
) -> str:
    """Return a proof that a client has a key, for one request (RFC 9449, section 4.2).

    Args:
        key: The private key, as a JWK.
        method: The method of the request.
        url: Its URL.
        now: The seconds since 1970.
        id_: A new random text.
        nonce: What the server wants to see in it, if anything.
        token: The access token of the request, if it has one.

    Raises:
        OAuthError: If the key cannot sign.
    """
    jwk, jwt = _joserfc()
    try:
        own = jwk.import_key(dict(key), "EC")
    except Exception as exc:  # of many types: a store may have changed it
        raise OAuthError(
            "the key of the kept token cannot be used: forget the tokens, and log in"
            f" again ({type(exc).__name__})"
        ) from None
    claims: dict[str, Any] = {
        "jti": id_,
        "htm": method,
        "htu": urlsplit(url)._replace(query="", fragment="").geturl(),
        "iat": int(now),
    }
    if nonce is not None:
        claims["nonce"] = nonce
    if token is not None:
        hashed = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
        claims["ath"] = hashed.decode().rstrip("=")
    header = {
        "typ": "dpop+jwt",
        "alg": ALGORITHM,
        "jwk": {
            name: own.as_dict(private=False)[name] for name in ("kty", "crv", "x", "y")
        },
    }
    signed: str = jwt.encode(header, claims, own, algorithms=[ALGORITHM])
    return signed


def assertion(key: str, algorithm: str, claims: Mapping[str, Any]) -> str:
    """Return a signed assertion.

    Args:
        key: The private key, in PEM.
        algorithm: How to sign.
        claims: The claims to sign.

    Raises:
        OAuthError: If the key cannot sign.
    """
    jwk, jwt = _joserfc()
    kind = {"E": "EC", "R": "RSA", "P": "RSA"}.get(algorithm[:1], "OKP")
    try:
        own = jwk.import_key(key, "OKP" if algorithm.startswith("Ed") else kind)
        signed: str = jwt.encode(
            {"alg": algorithm}, dict(claims), own, algorithms=[algorithm]
        )
    except Exception as exc:  # of many types: a key in PEM has many faults
        raise OAuthError(f"the private key cannot sign: {type(exc).__name__}") from None
    return signed
