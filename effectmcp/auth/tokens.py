"""The rules for all tokens of an issuer: audience, scopes, time, principal.

Each refusal says in its reason which of them did not fit. That is for the log: clients
get the error code and nothing else.
"""

from __future__ import annotations

import hashlib
import reprlib
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypedDict
from urllib.parse import urlsplit

from attrs import define, field, frozen

from ..canonical import JSON
from ..errors import UsageError
from ..fetching.requests import Fetching
from ..fetching.zones import Zone, zone_of_url
from ..protocol.authorization import (
    INSUFFICIENT_SCOPE,
    challenge,
    resource_metadata_url,
)
from ..server.identity import (
    CredentialsError,
    Identity,
    Presented,
    checked_scopes,
    is_scope,
)
from .presented import credentials
from .proofs import ALGORITHMS, Proofs

__all__ = [
    "Known",
    "TokenAuth",
    "TokenOptions",
    "Verified",
    "checked_issuer",
    "checked_url",
    "said",
    "scopes_in",
    "seconds_in",
    "texts",
    "thumbprint_in",
]

#: Characters of a stranger's text in the log.
_SAID: Final = 200

_EXAMPLE: Final = "https://shop.example/mcp"


def texts(of: str, value: object) -> tuple[str, ...]:
    """Return the strings in a string, or in a list of them.

    Raises:
        UsageError: If it is neither.
    """
    given = (value,) if isinstance(value, str) else value
    if isinstance(given, Iterable):
        found = tuple(given)
        if found and all(isinstance(one, str) and one for one in found):
            return found
    raise UsageError(f"{of}: give a string, or a list of strings, not {value!r}")


def checked_issuer(of: str, url: object) -> str:
    """Return the URL of an authorization server, or of one of its endpoints.

    Raises:
        UsageError: If it is not one, or is not https, which this server would not ask.
    """
    found = checked_url(of, url, "https://idp.example")
    if urlsplit(found).scheme != "https" and zone_of_url(found) is not Zone.LOOPBACK:
        raise UsageError(f"{of}={found!r}): it has to be https")
    return found


def checked_url(of: str, url: object, example: str = _EXAMPLE) -> str:
    """Return a URL that clients and issuers can name.

    Raises:
        UsageError: If it is not one (RFC 9728, section 1.2).
    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if (
        not isinstance(url, str)
        or parts is None
        or parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.fragment
    ):
        raise UsageError(f"{of}={url!r}): write a URL, such as {example}")
    return url


@frozen
class Verified:
    """An accepted token.

    Attributes:
        identity: Whose it is.
        until: When it has to be checked again, in seconds since 1970.
        thumbprint: The key that its owner has to prove; `None` for a bearer token.
        version: The version of the keys that checked it.
    """

    identity: Identity
    until: float
    thumbprint: str | None = None
    version: int = 0


@define(eq=False)
class Known:
    """Accepted tokens by their digest. The oldest ones are forgotten.

    Only accepted tokens are kept: a stranger's tokens take no room.
    """

    most: int = 5_000
    _tokens: OrderedDict[bytes, Verified] = field(factory=OrderedDict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def get(self, digest: bytes) -> Verified | None:
        """Return the result of an earlier check of a token."""
        return self._tokens.get(digest)

    def keep(self, digest: bytes, verified: Verified) -> None:
        """Remember an accepted token."""
        with self._lock:
            self._tokens[digest] = verified
            while len(self._tokens) > self.most:
                self._tokens.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        """Forget a token."""
        with self._lock:
            self._tokens.pop(digest, None)


class TokenOptions(TypedDict, total=False):
    """The options of every authenticator for tokens; see `TokenAuth`."""

    audience: str | Collection[str] | None
    scopes: Collection[str]
    implies: Mapping[str, Collection[str]] | None
    tenant_claim: str | None
    shown_claims: Collection[str]
    leeway: float
    proofs: Literal["accepted", "required"]
    clock: Callable[[], float]


class TokenAuth(ABC):
    """Base class of the authenticators for tokens of one issuer.

    Args:
        issuer: The URL of the authorization server, exactly as its tokens name it.
        resource: The URL of this server, as its clients write it.
        audience: What tokens for this server name as their audience; the resource.
        scopes: The scopes that every request needs.
        implies: By scope: the scopes that it contains.
        tenant_claim: The claim that names the caller's organization; tokens without it
            are refused.
        shown_claims: The claims that handlers may read with `Caller()`.
        leeway: Seconds by which clocks may differ.
        proofs: Whether a token has to be bound to a key of its owner (DPoP):
            `"accepted"`: if the token names a key; or `"required"`.
        clock: Returns the seconds since 1970.
    """

    def __init__(
        self,
        *,
        issuer: str,
        resource: str,
        audience: str | Collection[str] | None = None,
        scopes: Collection[str] = (),
        implies: Mapping[str, Collection[str]] | None = None,
        tenant_claim: str | None = None,
        shown_claims: Collection[str] = (),
        leeway: float = 30,
        proofs: Literal["accepted", "required"] = "accepted",
        clock: Callable[[], float] = time.time,
    ) -> None:
        of = type(self).__name__
        self.issuer = checked_issuer(f"{of}(issuer", issuer)
        self.resource = checked_url(f"{of}(resource", resource)
        self._audience = frozenset(
            texts(f"{of}(audience=...)", resource if audience is None else audience)
        )
        self._scopes = checked_scopes(f"{of}(scopes=...)", scopes)
        self._implies = {
            one: checked_scopes(f"{of}(implies=...)", others)
            for one, others in (implies or {}).items()
        }
        self._tenant_claim = tenant_claim
        if isinstance(shown_claims, str):
            raise UsageError(f"{of}(shown_claims=...): give a list")
        self._shown_claims = tuple(shown_claims)
        if leeway < 0:
            raise UsageError(f"{of}(leeway={leeway}): give seconds")
        self.leeway = leeway
        if proofs not in ("accepted", "required"):
            raise UsageError(f"{of}(proofs={proofs!r}): 'accepted' or 'required'")
        self._is_proof_required = proofs == "required"
        self._proofs = Proofs(self.resource, leeway)
        self.clock = clock
        self.known = Known()
        self._metadata_url = resource_metadata_url(self.resource)

    def __str__(self) -> str:
        return f"{self.issuer} (for {self.resource})"

    # ---- what a request presents ----

    def identify(self, presented: Presented) -> Any:
        """Return who sends a request, or what finds it.

        Raises:
            CredentialsError: If it is not accepted.
        """
        scheme, token = credentials(presented)
        digest = hashlib.sha256(token.encode()).digest()
        verified = self.known.get(digest)
        now = self.clock()
        if verified is not None and self.is_still(verified, now):
            return self._admitted(presented, scheme, token, verified, now)
        return self._find(presented, scheme, token, digest)

    def handles(self, presented: Presented) -> bool:
        """Return whether a request has a token that may be of this issuer."""
        try:
            _, token = credentials(presented)
        except CredentialsError:
            return False
        return self.may_be(token)

    @abstractmethod
    def may_be(self, token: str) -> bool:
        """Return whether a token may be of this issuer."""

    def is_still(self, verified: Verified, now: float) -> bool:
        """Return whether an accepted token is still accepted."""
        return now < verified.until

    @abstractmethod
    def find(self, presented: Presented, token: str) -> Fetching[Verified]:
        """Check a token: return a generator of requests, whose result is `Verified`."""

    def _find(
        self, presented: Presented, scheme: str, token: str, digest: bytes
    ) -> Fetching[Identity]:
        verified = yield from self.find(presented, token)
        self.known.keep(digest, verified)
        return self._admitted(presented, scheme, token, verified, self.clock())

    def _admitted(
        self,
        presented: Presented,
        scheme: str,
        token: str,
        verified: Verified,
        now: float,
    ) -> Identity:
        """Return the identity of a token, if its owner sends it, with every scope."""
        bound = verified.thumbprint
        if bound is not None or scheme == "dpop" or self._is_proof_required:
            if bound is None:
                raise CredentialsError("key: the token is bound to no key")
            if scheme != "dpop":
                # The code asks for a proof (RFC 9449, section 7.1).
                raise CredentialsError(
                    "key: the token came without a proof (DPoP)",
                    error="invalid_dpop_proof",
                )
            principal = verified.identity.principal
            self._proofs.check(presented, token, bound, now, principal=principal)
        missing = self._scopes - verified.identity.scopes
        if missing:
            raise CredentialsError(
                f"scope: the token lacks {' '.join(sorted(missing))}",
                error=INSUFFICIENT_SCOPE,
                status=403,
                scopes=self._scopes,
            )
        return verified.identity

    # ---- what a token says ----

    def check_audience(self, value: JSON) -> None:
        """Check who a token is for (RFC 8707; 2026-07-28, Token Handling).

        Raises:
            CredentialsError: If it is not for this server.
        """
        named = value if isinstance(value, list) else [value]
        if not any(isinstance(one, str) and one in self._audience for one in named):
            raise CredentialsError(
                f"audience: it is for {said(value)}, not for {said(sorted(self._audience))}"
            )

    def check_times(self, claims: Mapping[str, JSON], now: float) -> float:
        """Return when a token expires, in seconds since 1970.

        Raises:
            CredentialsError: If it has expired, or is not valid yet.
        """
        expires = seconds_in(claims, "exp")
        if expires is None:
            raise CredentialsError("expiry: it never expires")
        if now >= expires + self.leeway:
            raise CredentialsError(f"expiry: it expired {now - expires:.0f} s ago")
        for name in ("nbf", "iat"):
            begins = seconds_in(claims, name)
            if begins is not None and begins > now + self.leeway:
                raise CredentialsError(
                    f"clock: its {name} is {begins - now:.0f} s in the future"
                )
        return expires

    def identity_in(
        self, claims: Mapping[str, JSON], expires: float | None
    ) -> Identity:
        """Return whose token it is, given its claims.

        Raises:
            CredentialsError: If they do not say it.
        """
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise CredentialsError("subject: it is missing")
        tenant = None
        if self._tenant_claim is not None:
            named = claims.get(self._tenant_claim)
            if not isinstance(named, str) or not named:
                raise CredentialsError(f"tenant: it has no {self._tenant_claim}")
            tenant = named
        shown = {one: claims[one] for one in self._shown_claims if one in claims}
        try:
            return Identity(
                subject=subject,
                issuer=self.issuer,
                tenant=tenant,
                scopes=self._all_scopes(scopes_in(claims)),
                claims=claims,
                shown_claims=shown,
                expires=expires,
            )
        except UsageError:
            raise CredentialsError("subject: it cannot be written as text") from None

    def _all_scopes(self, scopes: Iterable[str]) -> frozenset[str]:
        """Return scopes with all that they contain."""
        found: set[str] = set()
        rest = list(scopes)
        while rest:
            one = rest.pop()
            if one not in found:
                found.add(one)
                rest += self._implies.get(one, ())
        return frozenset(found)

    # ---- what clients read ----

    def challenges(
        self, error: str | None, scopes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the values of `WWW-Authenticate` for a refusal."""
        wanted = " ".join(sorted({*scopes, *self._scopes})) or None
        parameters = {
            "error": error,
            "scope": wanted,
            "resource_metadata": self._metadata_url,
        }
        algs = " ".join(ALGORITHMS)
        if self._is_proof_required or error == "invalid_dpop_proof":
            return (challenge("DPoP", {"algs": algs, **parameters}),)
        return (challenge("Bearer", parameters),)

    def metadata(self) -> Mapping[str, JSON] | None:
        """Return the metadata of the resource (RFC 9728)."""
        found: dict[str, JSON] = {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": list(ALGORITHMS),
        }
        if self._scopes:
            found["scopes_supported"] = sorted(self._scopes)
        if self._is_proof_required:
            found["dpop_bound_access_tokens_required"] = True
        return found


def scopes_in(claims: Mapping[str, JSON]) -> list[str]:
    """Return the scopes that claims name: in `scope`, or in `scp`, as some issuers do."""
    for name in ("scope", "scp"):
        value = claims.get(name)
        if value is not None:
            named = value.split(" ") if isinstance(value, str) else value
            if isinstance(named, list):
                return [one for one in named if is_scope(one)]
    return []


def thumbprint_in(claims: Mapping[str, JSON]) -> str | None:
    """Return the key that a token is bound to (RFC 9449, section 6); `None` for none.

    Raises:
        CredentialsError: If it is bound to something else.
    """
    bound = claims.get("cnf")
    if bound is None:
        return None
    thumbprint = bound.get("jkt") if isinstance(bound, dict) else None
    if not isinstance(thumbprint, str) or not isinstance(bound, dict) or len(bound) > 1:
        raise CredentialsError("key: it is bound to something that cannot be checked")
    return thumbprint


def seconds_in(claims: Mapping[str, JSON], name: str) -> float | None:
    """Return a time in claims; `None` if it is not there.

    Raises:
        CredentialsError: If it is not a time.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CredentialsError(f"malformed: {name} is not a time")
    if not -_FAR < value < _FAR:  # NaN, too
        raise CredentialsError(f"malformed: {name} is not a time")
    return float(value)


_FAR: Final = 1e12


def said(value: object) -> str:
    """Return a stranger's value for the log."""
    return _SHORT.repr(value)[:_SAID]


#: It stops where `repr` would fail: JSON can be nested more deeply than that.
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _SAID
