"""DPoP: a token that only the owner of a key can use (RFC 9449).

Each request carries a proof: a small JWT, signed with that key, for this method, this URL
and this token. A proof counts once. Replicas do not share what they have seen, so a stolen
proof could be sent to another one, within the seconds that it is valid.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import OrderedDict
from typing import Final
from urllib.parse import urlsplit

from joserfc import jwk, jws
from joserfc.errors import JoseError

from ..canonical import JSON
from ..server.identity import CredentialsError, Presented

__all__ = ["ALGORITHMS", "Proofs", "allows"]

#: The algorithms that a proof may be signed with. Each is of one type of key.
ALGORITHMS: Final = ("ES256", "ES384", "PS256", "RS256", "Ed25519", "EdDSA")

#: The type of key, and its curve, of each algorithm that this library accepts.
_KEYS: Final = {
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

#: Characters of the modulus of an RSA key of 2048 bits, in base64.
_SHORTEST: Final = 341

#: Members of a key that is not public.
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def allows(key: dict[str, JSON], algorithm: str) -> bool:
    """Return whether a key, in JSON, is a public one for an algorithm."""
    type_, curve = _KEYS.get(algorithm, (None, None))
    if type_ is None or key.get("kty") != type_ or _PRIVATE & key.keys():
        return False
    if curve is not None and key.get("crv") != curve:
        return False
    modulus = key.get("n")
    if type_ == "RSA" and (not isinstance(modulus, str) or len(modulus) < _SHORTEST):
        return False
    uses = key.get("key_ops")
    if key.get("use", "sig") != "sig" or (
        isinstance(uses, list) and "verify" not in uses
    ):
        return False
    named = key.get("alg")
    return named is None or named == algorithm or {named, algorithm} <= _EDWARDS


#: Two names of one algorithm (RFC 9864).
_EDWARDS: Final = {"Ed25519", "EdDSA"}

#: Seconds for which a proof is valid.
_LIFE: Final = 60.0

#: Proofs that are remembered, and those of one key.
_MOST: Final = 100_000
_MOST_OF_KEY: Final = 20_000


class Proofs:
    """Checks proofs, and remembers which have been used.

    Args:
        resource: The URL of the server.
        leeway: Seconds by which clocks may differ.
    """

    def __init__(self, resource: str, leeway: float) -> None:
        self._url = _plain_url(resource)
        self._leeway = leeway
        #: By proof: when it may be forgotten, and its key. The oldest ones come first.
        self._used: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def check(
        self, presented: Presented, token: str, thumbprint: str, now: float
    ) -> None:
        """Check the proof of a request.

        Args:
            presented: The request.
            token: Its token.
            thumbprint: The key that the token is bound to.
            now: The seconds since 1970.

        Raises:
            CredentialsError: If it is missing, of another key or request, or used.
        """
        proof = presented.headers.get("dpop")
        if not proof:
            raise _wrong("it is missing")
        try:
            id_ = self._check(proof, presented.method, token, thumbprint, now)
        except (JoseError, ValueError, TypeError, KeyError) as exc:
            raise _wrong(f"it cannot be read: {type(exc).__name__}") from None
        self._use(
            hashlib.sha256(f"{thumbprint} {id_}".encode()).digest(), thumbprint, now
        )

    def _check(
        self, proof: str, method: str, token: str, thumbprint: str, now: float
    ) -> str:
        header = json.loads(_decoded(proof.split(".")[0]))
        key, algorithm = header["jwk"], header["alg"]
        if header.get("typ") != "dpop+jwt" or "crit" in header:
            raise _wrong("it is not a proof")
        if algorithm not in ALGORITHMS or not allows(key, algorithm):
            raise _wrong("its key or its algorithm is not allowed")
        public = jwk.import_key(key)
        if public.thumbprint() != thumbprint:
            raise _wrong("it is signed with another key")
        payload = jws.deserialize_compact(proof, public, algorithms=[algorithm]).payload
        claims = json.loads(payload)
        if claims["htm"] != method or _plain_url(claims["htu"]) != self._url:
            raise _wrong("it is for another request")
        hashed = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
        if claims["ath"] != hashed.decode().rstrip("="):
            raise _wrong("it is for another token")
        made = claims["iat"]
        if isinstance(made, bool) or not isinstance(made, (int, float)):
            raise _wrong("its time is not a time")
        if not -self._leeway <= now - made <= _LIFE + self._leeway:
            raise _wrong(f"it was made {now - made:.0f} s ago")
        id_ = claims["jti"]
        if not isinstance(id_, str) or not id_:
            raise _wrong("it has no id")
        return id_

    def _use(self, proof: bytes, key: str, now: float) -> None:
        with self._lock:
            while self._used:
                first, (until, of) = next(iter(self._used.items()))
                if until > now:
                    break
                del self._used[first]
                self._counts[of] -= 1
                if not self._counts[of]:
                    del self._counts[of]
            if proof in self._used:
                raise _wrong("it has been used before")
            count = self._counts.get(key, 0)
            if count >= _MOST_OF_KEY or len(self._used) >= _MOST:
                raise CredentialsError(
                    "key: there are too many proofs to remember", status=503
                )
            self._counts[key] = count + 1
            self._used[proof] = (now + _LIFE + 2 * self._leeway, key)


def _wrong(problem: str) -> CredentialsError:
    return CredentialsError(f"proof (DPoP): {problem}", error="invalid_dpop_proof")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _plain_url(url: str) -> str:
    """Return a URL as proofs are compared: without query (RFC 9449, section 4.3)."""
    parts = urlsplit(url)
    port = parts.port
    if port in (None, {"http": 80, "https": 443}.get(parts.scheme)):
        place = parts.hostname or ""
    else:
        place = f"{parts.hostname}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/') or '/'}"
