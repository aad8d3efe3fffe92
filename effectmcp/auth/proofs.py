"""DPoP: a token that only the owner of a key can use (RFC 9449).

Each request carries a proof: a small JWT, signed with that key, for this method, this URL
and this token. A proof counts once. Replicas do not share what they have seen, so a stolen
proof could be sent to another one, within the seconds that it is valid.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from typing import Final
from urllib.parse import urlsplit

from ..server.identity import CredentialsError, Presented
from .signatures import allows, is_signed, public_key, read_jwt, thumbprint

__all__ = ["ALGORITHMS", "Proofs"]

#: The algorithms that a proof may be signed with. Each is of one type of key.
ALGORITHMS: Final = ("ES256", "ES384", "PS256", "RS256", "Ed25519", "EdDSA")

#: Seconds for which a proof is valid.
_LIFE: Final = 60.0

#: Limits of the proofs that are remembered: of all users, and of one user.
_MOST: Final = 100_000
_MOST_OF_ONE: Final = 20_000


class Proofs:
    """Checks proofs, and remembers which have been used.

    Args:
        resource: The URL of the server.
        leeway: Seconds by which clocks may differ.
    """

    def __init__(self, resource: str, leeway: float) -> None:
        self._url = _plain_url(resource)
        self._leeway = leeway
        #: By proof: when it may be forgotten, and whose it is. The oldest ones come first.
        self._used: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def check(
        self,
        presented: Presented,
        token: str,
        bound: str,
        now: float,
        *,
        principal: str = "",
    ) -> None:
        """Check the proof of a request.

        Args:
            presented: The request.
            token: Its token.
            bound: The thumbprint of the key that the token is bound to.
            now: The seconds since 1970.
            principal: Whose token it is: one user cannot use up all the room.

        Raises:
            CredentialsError: If it is missing, of another key or request, or used.
        """
        proof = presented.headers.get("dpop")
        if not proof:
            raise _wrong("it is missing")
        id_ = self._check(proof, presented.method, token, bound, now)
        # JSON can spell half of a surrogate pair.
        used = f"{bound} {id_}".encode("utf-8", "surrogatepass")
        self._use(hashlib.sha256(used).digest(), principal, now)

    def _check(
        self, proof: str, method: str, token: str, bound: str, now: float
    ) -> str:
        """Return the id of a proof (RFC 9449, section 4.3)."""
        try:
            header, claims = read_jwt(proof)
        except ValueError:
            raise _wrong("it is not a JWT") from None
        key, algorithm = header.get("jwk"), header.get("alg")
        if header.get("typ") != "dpop+jwt" or "crit" in header or "b64" in header:
            raise _wrong("it is not a proof")
        if algorithm not in ALGORITHMS or not allows(key, algorithm):
            raise _wrong("its key or its algorithm is not allowed")
        public = public_key(key)
        if public is None or thumbprint(public) != bound:
            raise _wrong("it is signed with another key")
        if not is_signed(proof, public, algorithm):
            raise _wrong("its signature is wrong")
        if claims.get("htm") != method or _plain_url(claims.get("htu")) != self._url:
            raise _wrong("it is for another request")
        hashed = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
        if claims.get("ath") != hashed.decode().rstrip("="):
            raise _wrong("it is for another token")
        made = claims.get("iat")
        if isinstance(made, bool) or not isinstance(made, (int, float)):
            raise _wrong("its time is not a time")
        # Compared and not subtracted: a number in JSON may be larger than any float.
        if not now - _LIFE - self._leeway <= made <= now + self._leeway:
            raise _wrong("it is too old, or of the future")
        id_ = claims.get("jti")
        if not isinstance(id_, str) or not id_:
            raise _wrong("it has no id")
        return id_

    def _use(self, proof: bytes, owner: str, now: float) -> None:
        with self._lock:
            while self._used:
                first, (until, of) = next(iter(self._used.items()))
                if until >= now:
                    break
                del self._used[first]
                self._counts[of] -= 1
                if not self._counts[of]:
                    del self._counts[of]
            if proof in self._used:
                raise _wrong("it has been used before")
            count = self._counts.get(owner, 0)
            if count >= _MOST_OF_ONE or len(self._used) >= _MOST:
                raise CredentialsError(
                    "key: there are too many proofs to remember",
                    error=None,
                    status=503,
                )
            self._counts[owner] = count + 1
            self._used[proof] = (now + _LIFE + 2 * self._leeway, owner)


def _wrong(problem: str) -> CredentialsError:
    return CredentialsError(f"proof (DPoP): {problem}", error="invalid_dpop_proof")


def _plain_url(url: object) -> str | None:
    """Return a URL as proofs are compared: without query (RFC 9449, section 4.3)."""
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if port in (None, {"http": 80, "https": 443}.get(parts.scheme)):
        place = parts.hostname or ""
    else:
        place = f"{parts.hostname}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/') or '/'}"
