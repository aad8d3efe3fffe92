"""JWTs and the public keys that check them: what tokens and proofs have in common.

Nothing of a JWT is proved before `is_signed`, which checks the same text that `read_jwt`
reads. This module uses only the keys and the algorithms of joserfc: its reader refuses
headers that are long, or that have members it does not know. Both occur in honest tokens
(RFC 7515, section 4: unknown members "MUST be ignored").
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

from joserfc import jwk
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from ..canonical import JSON

__all__ = ["KEYS", "allows", "is_signed", "public_key", "read_jwt", "thumbprint"]

#: The type of key, and its curve, of each algorithm that this library accepts. All are
#: asymmetric: a public key cannot sign.
KEYS: Final = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "Ed25519": ("OKP", "Ed25519"),
    "EdDSA": ("OKP", "Ed25519"),
}

#: Two names of one algorithm (RFC 9864).
_EDWARDS: Final = ("Ed25519", "EdDSA")

#: Bits of the modulus of an RSA key (RFC 7518, section 3.3); more take long to check.
_SHORTEST: Final = 2048
_LONGEST: Final = 8192

#: Members of a key that is not public.
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*")


# ---- keys ---------------------------------------------------------------------------


def allows(key: object, algorithm: str) -> bool:
    """Return whether a key, in JSON, is a public one for an algorithm."""
    type_, curve = KEYS.get(algorithm, (None, None))
    if type_ is None or not isinstance(key, dict) or key.get("kty") != type_:
        return False
    if _PRIVATE & key.keys() or (curve is not None and key.get("crv") != curve):
        return False
    if type_ == "RSA" and not _has_length(key):
        return False
    uses = key.get("key_ops")
    if key.get("use", "sig") != "sig" or (
        isinstance(uses, list) and "verify" not in uses
    ):
        return False
    named = key.get("alg")
    return (
        named is None
        or named == algorithm
        or (named in _EDWARDS and algorithm in _EDWARDS)
    )


def _has_length(key: dict[str, JSON]) -> bool:
    """Return whether an RSA key is long enough, and quick enough to check with."""
    try:
        modulus, exponent = (_number(key.get(name)) for name in ("n", "e"))
    except ValueError:
        return False
    # OpenSSL has the same limit of exponents, but only for keys of more than 3072 bits.
    return _SHORTEST <= modulus.bit_length() <= _LONGEST and exponent.bit_length() <= 64


def _number(text: object) -> int:
    if not isinstance(text, str):
        raise ValueError("it is not base64")
    return int.from_bytes(_decoded(text), "big")


def public_key(key: object) -> Any:
    """Return what a key, in JSON, checks signatures with; `None` if it checks none."""
    if not any(allows(key, algorithm) for algorithm in KEYS):
        return None
    assert isinstance(key, dict)  # or `allows` had returned False
    try:
        return jwk.import_key(key)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def thumbprint(public: Any) -> str:
    """Return the thumbprint of a key (RFC 7638)."""
    found: str = public.thumbprint()
    return found


# ---- tokens -------------------------------------------------------------------------


def read_jwt(token: str) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Return the header and the claims of a JWT. Nothing of them is proved yet.

    Raises:
        ValueError: If it is not a JWT.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("it is not a JWT")
    return _object(parts[0]), _object(parts[1])


def is_signed(token: str, public: Any, algorithm: str) -> bool:
    """Return whether a key has signed a JWT, with an algorithm that it `allows`."""
    if public.key_type != KEYS[algorithm][0]:
        return False
    signed, _, signature = token.rpartition(".")
    name = "Ed25519" if algorithm in _EDWARDS else algorithm
    try:
        found: bool = JWSRegistry.algorithms[name].verify(
            signed.encode(), _decoded(signature), public
        )
    except (JoseError, ValueError, TypeError):
        return False
    return found


def _object(text: str) -> dict[str, JSON]:
    try:
        found = json.loads(_decoded(text))
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("it is not a JWT")
    return found


def _decoded(text: str) -> bytes:
    if not _BASE64.fullmatch(text):
        raise ValueError("it is not base64")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
