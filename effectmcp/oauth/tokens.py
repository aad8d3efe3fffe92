"""Tokens, and what is kept with them. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self, TypeAlias, TypeGuard
from urllib.parse import quote, quote_plus

from attrs import asdict, field, frozen

from ..canonical import JSON
from ..errors import EffectMCPError
from ..server.identity import is_scope

__all__ = ["Kept", "OAuthError", "Scheme", "Tokens", "is_visible", "printable"]

#: Characters of a stranger's text in a message.
_SAID: Final = 300

#: How a token is sent.
Scheme: TypeAlias = Literal["Bearer", "DPoP"]

#: What headers may carry (RFC 6750, section 2.1), and longer than any token in use.
_TOKEN: Final = re.compile(r"[!-~]{1,65536}")


def printable(text: object, secrets: Iterable[str | None] = ()) -> str:
    """Return a stranger's text for a message: short, and without control characters.

    Args:
        text: The text.
        secrets: What a message must not show, if the stranger repeats it.
    """
    shown = text if isinstance(text, str) else repr(text)
    for one in sorted(filter(None, secrets), key=len, reverse=True):
        for spelled in (one, quote(one, safe=""), quote_plus(one)):
            if len(spelled) >= _SHORTEST:
                shown = shown.replace(spelled, "***")
    return "".join(one if one.isprintable() else "?" for one in shown[:_SAID])


#: Characters of the shortest secret that is hidden: of fewer, every word has some.
_SHORTEST: Final = 4

#: Ids, secrets, codes and refresh tokens (RFC 6749, appendix A: 1*VSCHAR).
_VISIBLE: Final = re.compile(r"[ -~]{1,65536}")


def is_visible(text: object) -> TypeGuard[str]:
    """Return whether an id or a secret may be sent (RFC 6749, appendix A)."""
    return isinstance(text, str) and _VISIBLE.fullmatch(text) is not None


class OAuthError(EffectMCPError):
    """Raised if a client cannot get a token.

    Attributes:
        problem: What went wrong, and what to do.
        code: The error code of the authorization server (RFC 6749, section 5.2), such as
            `access_denied`; `None` if it is not from there.
    """

    def __init__(self, problem: str, code: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.code = code

    def __str__(self) -> str:
        return self.problem


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


@frozen(kw_only=True)
class Tokens:
    """The tokens for one server.

    Attributes:
        access: The access token.
        issuer: The authorization server that issued it.
        scheme: How it is sent.
        refresh: The token that gets a new one; `None` for none.
        expires: When the access token is renewed, in seconds since 1970: a little before it
            expires; `None` if unknown.
        scopes: The scopes that were asked for and granted.
        proof_key: The private key, as a JWK, that the token is bound to.
    """

    access: str = field(repr=False)
    issuer: str
    scheme: Scheme = "Bearer"
    refresh: str | None = field(default=None, repr=False)
    expires: float | None = None
    scopes: tuple[str, ...] = field(default=(), converter=_texts)
    proof_key: Mapping[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def from_json(cls, found: object) -> Tokens | None:
        """Return the tokens that a store kept; `None` if they cannot be used."""
        if not isinstance(found, dict):
            return None
        try:
            tokens = cls(**found)
        except TypeError:  # of another version
            return None
        key, expires, scopes = (
            found.get(x) for x in ("proof_key", "expires", "scopes")
        )
        is_bound = isinstance(key, dict) and all(is_visible(key.get(x)) for x in "xyd")
        is_usable = (
            _is_token(found.get("access"))
            and isinstance(found.get("issuer"), str)
            and found.get("scheme") in ("Bearer", "DPoP")
            and (key is None if tokens.scheme == "Bearer" else is_bound)
            and (tokens.refresh is None or is_visible(tokens.refresh))
            and (expires is None or _seconds(expires, _LATEST) == expires)
            and isinstance(scopes, list)
            and all(map(is_scope, scopes))
        )
        return tokens if is_usable else None

    @classmethod
    def from_response(
        cls,
        found: Mapping[str, JSON],
        *,
        issuer: str,
        asked: tuple[str, ...],
        now: float,
        proof_key: Mapping[str, Any] | None,
        refresh: str | None = None,
    ) -> Self:
        """Return the tokens in a response (RFC 6749, section 5.1).

        Args:
            found: The response.
            issuer: Who sent it.
            asked: The scopes that were asked for.
            now: The seconds since 1970.
            proof_key: The key that was proved, if any.
            refresh: The refresh token so far: a response may leave it as it is.

        Raises:
            OAuthError: If it has no token that can be used.
        """
        access, type_ = found.get("access_token"), found.get("token_type")
        if not _is_token(access):
            raise OAuthError(f"{printable(issuer)} sent no access token")
        kind = type_.lower() if isinstance(type_, str) else ""
        if kind not in ("bearer", "dpop"):
            raise OAuthError(f"a token of the type {printable(type_)} cannot be used")
        if kind == "dpop" and proof_key is None:
            raise OAuthError("a token is bound to a key that this client did not prove")
        seconds = _seconds(found.get("expires_in"))
        granted = found.get("scope")
        scopes = set(asked)
        if isinstance(granted, str):
            scopes |= set(filter(is_scope, granted.split()))
        renewed = found.get("refresh_token")
        return cls(
            access=access,
            issuer=issuer,
            # A server that ignores proofs sends bearer tokens.
            scheme="DPoP" if kind == "dpop" else "Bearer",
            refresh=renewed if is_visible(renewed) else refresh,
            expires=None
            if seconds is None
            else now + seconds - min(_EARLY, seconds / 4),
            scopes=sorted(scopes),
            proof_key=proof_key if kind == "dpop" else None,
        )


#: Seconds before it expires that a token is renewed, if it lasts longer.
_EARLY: Final = 10.0

#: Seconds that a token may last by its own words, and the last time that can be kept.
_LONGEST: Final = 10 * 365 * 86_400.0
_LATEST: Final = 1e12


def _is_token(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def _seconds(value: object, longest: float = _LONGEST) -> float | None:
    """Return a number of JSON, within limits; `None` if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # An integer in JSON may be larger than any float.
    return None if value != value else float(min(max(value, 0), longest))


@frozen(kw_only=True)
class Kept:
    """The content of a store for one server.

    Attributes:
        tokens: The tokens; `None` for none.
        clients: By authorization server: the client's registration there, as JSON.
    """

    tokens: Tokens | None = None
    clients: Mapping[str, Mapping[str, JSON]] = field(factory=dict, repr=False)

    def to_json(self) -> dict[str, JSON]:
        """Return it as JSON."""
        tokens = None if self.tokens is None else asdict(self.tokens)
        if tokens is not None:
            tokens["scopes"] = list(tokens["scopes"])
        return {"format": 1, "tokens": tokens, "clients": dict(self.clients)}

    @classmethod
    def from_json(cls, found: object) -> Kept:
        """Return what `to_json` made of it; nothing, if it is something else."""
        if not isinstance(found, dict) or found.get("format") != 1:
            return cls()
        clients = found.get("clients")
        listed = clients.items() if isinstance(clients, dict) else ()
        return cls(
            tokens=Tokens.from_json(found.get("tokens")),
            clients={name: one for name, one in listed if isinstance(one, dict)},
        )
