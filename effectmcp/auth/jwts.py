"""Signed tokens, checked with the public keys of their issuer (RFC 9068, RFC 7519).

The claims are looked at first, as they cost nothing; the signature, which decides, comes
last. A token that was accepted is remembered by its digest until it expires, or until the
issuer's keys change.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Final, Unpack

from ..canonical import JSON
from ..errors import UsageError
from ..fetching.requests import Fetch, Fetched
from ..server.identity import CredentialsError, Presented
from .key_sets import KeySet
from .signatures import KEYS, is_signed, read_jwt
from .tokens import (
    TokenAuth,
    TokenOptions,
    Verified,
    checked_issuer,
    said,
    texts,
    thumbprint_in,
)

__all__ = ["JWTAuth"]

#: The types of tokens; ID tokens, proofs and logout tokens have others.
_TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt"})

_LONGEST_ID: Final = 500


class JWTAuth(TokenAuth):
    """Checks signed tokens of one issuer.

    Args:
        issuer: The URL of the authorization server, exactly as its tokens name it.
        resource: The URL of this server, as its clients write it.
        keys_url: The URL of the issuer's keys; by default its metadata names it.
        algorithms: The algorithms that tokens may be signed with.
        keys_fresh: Seconds until the keys are fetched again.
        keys_stale: Seconds for which old keys are used if the issuer cannot be reached.
        keys_pause: Seconds between two tries to fetch them.
        **options: As for every token: `audience`, `scopes`, `implies`, `tenant_claim`,
            `shown_claims`, `leeway`, `proofs`, `clock`. See `TokenAuth`.
    """

    def __init__(
        self,
        *,
        issuer: str,
        resource: str,
        keys_url: str | None = None,
        algorithms: Collection[str] = ("RS256", "PS256", "ES256", "Ed25519", "EdDSA"),
        keys_fresh: float = 600,
        keys_stale: float = 86_400,
        keys_pause: float = 30,
        **options: Unpack[TokenOptions],
    ) -> None:
        super().__init__(issuer=issuer, resource=resource, **options)
        self._algorithms = frozenset(texts("JWTAuth(algorithms=...)", algorithms))
        for one in self._algorithms:
            if one not in KEYS:
                known = ", ".join(KEYS)
                raise UsageError(f"JWTAuth(algorithms=...): {one!r} is not of {known}")
        if keys_url is not None:
            checked_issuer("JWTAuth(keys_url", keys_url)
        self._keys = KeySet(
            issuer,
            keys_url,
            clock=self.clock,
            fresh=keys_fresh,
            stale=keys_stale,
            pause=keys_pause,
        )

    def may_be(self, token: str) -> bool:
        """Return whether a token says that it is of this issuer."""
        try:
            _, claims = _parts(token)
        except CredentialsError:
            return False
        return claims.get("iss") == self.issuer

    def is_still(self, verified: Verified, now: float) -> bool:
        """Return whether it has not expired, and the issuer's keys are the same."""
        return now < verified.until and self._keys.is_current(verified.version)

    def find(
        self, presented: Presented, token: str
    ) -> Generator[Fetch, Fetched, Verified]:
        """Check a token.

        Raises:
            CredentialsError: If it is not accepted.
        """
        header, claims = _parts(token)
        algorithm, id_ = self._checked_header(header)
        issuer = claims.get("iss")
        if issuer != self.issuer:
            raise CredentialsError(
                f"issuer: it is of {said(issuer)}, not of {self.issuer!r}"
            )
        self.check_audience(claims.get("aud"))
        self.check_times(claims, self.clock())
        keys = yield from self._keys.find(id_, algorithm)
        if not keys:
            raise CredentialsError(f"key: {said(id_)} is not a key of the issuer")
        version = self._keys.version
        if not any(is_signed(token, key, algorithm) for key in keys):
            raise CredentialsError("key: the signature is wrong")
        # Time has passed since, if the keys were fetched.
        until = self.check_times(claims, self.clock()) + self.leeway
        identity = self.identity_in(claims, until)
        return Verified(identity, until, thumbprint_in(claims), version)

    def _checked_header(self, header: dict[str, JSON]) -> tuple[str, str | None]:
        """Return the algorithm and the key id of a token.

        Raises:
            CredentialsError: If the header is not one of an access token, or has an algorithm that is
                not allowed.
        """
        algorithm, id_ = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise CredentialsError(f"algorithm: {said(algorithm)} is not allowed")
        type_ = header.get("typ", "jwt")
        if not isinstance(type_, str) or type_.lower() not in _TYPES:
            raise CredentialsError(f"type: {said(type_)} is not an access token")
        if "crit" in header or "b64" in header:
            raise CredentialsError(
                "malformed: its header wants more than is known here"
            )
        if id_ is not None and (not isinstance(id_, str) or len(id_) > _LONGEST_ID):
            raise CredentialsError("malformed: its key id is not a string")
        return algorithm, id_


def _parts(token: str) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Return the header and the claims of a token. Nothing of them is proved yet.

    Raises:
        CredentialsError: If it is not a JWT.
    """
    try:
        return read_jwt(token)
    except ValueError:
        raise CredentialsError("malformed: it is not a JWT") from None
