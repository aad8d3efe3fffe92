"""A login as a generator of requests: any loop and any HTTP library can play it. No I/O.

    login = Login(OAuth(...), url)
    headers = login.sign("POST")                     for each request
    refusal = login.read(status, headers)            of each response; None: no refusal
    flow = login.recover(refusal)                    yields Fetch, Redirect and Visit

After a flow has ended, the same request is sent again, with new headers. Which flow it is:

    refusal                       what is done
    ----------------------------  -------------------------------------------------------
    401, a nonce is wanted        nothing: the next proof has it
    401, with a refresh token     refresh, once for a request; if that fails, log in
    401                           log in
    403 insufficient_scope        log in, for the scopes so far and the missing scopes
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import evolve, frozen

from ..errors import UsageError
from ..fetching.requests import FetchError
from ..fetching.zones import Zone, zone_of_url
from ..protocol.authorization import INSUFFICIENT_SCOPE, Challenge, read_challenges
from .discovery import Found, discover, scopes_of
from .grants import (
    LoginFlow,
    Redirect,
    TokenClient,
    Visit,
    code_grant,
    credentials_grant,
    granted,
    hear_nonce,
    origin_of,
    refresh_grant,
)
from .proofs import ALGORITHM, new_key, proof
from .registration import Registration, chosen, register
from .settings import ClientCredentials, CodeGrant, OAuth
from .tokens import Kept, OAuthError, Tokens, printable

__all__ = [
    "AuthRefusal",
    "Login",
    "Redirect",
    "Visit",
]

#: The error for a client that the authorization server does not know, and the errors
#: after which a refresh token is of no use (RFC 6749, section 5.2).
_UNKNOWN: Final = "invalid_client"
_FINAL: Final = frozenset({_UNKNOWN, "invalid_grant", "unauthorized_client"})


@frozen(kw_only=True)
class AuthRefusal:
    """The refusal of a request by a server.

    Attributes:
        status: The status.
        challenge: What it wants; `None` if it did not say.
        scopes: The scopes that it wants; `None` if it did not say.
        wants_nonce: Whether it only requires a nonce in the proof.
    """

    status: int
    challenge: Challenge | None = None
    scopes: tuple[str, ...] | None = None
    wants_nonce: bool = False


def _random_text() -> str:
    return secrets.token_urlsafe(48)


class Login:
    """The login of one client at one server.

    Args:
        settings: Who the client is.
        url: The URL of the server.
        clock: Returns the seconds since 1970.
        new_text: Returns a new random text, of 43 to 128 characters.

    Attributes:
        kept: What a store keeps.
    """

    def __init__(
        self,
        settings: OAuth,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        new_text: Callable[[], str] = _random_text,
    ) -> None:
        self._settings = settings
        self._url = url
        self._clock = clock
        self._new_text = new_text
        self._nonces: dict[str, str] = {}
        self.kept = Kept()

    # ---- each request ----

    def sign(self, method: str) -> dict[str, str]:
        """Return the headers of a request; none before the login."""
        tokens = self.kept.tokens
        if tokens is None:
            return {}
        headers = {"Authorization": f"{tokens.scheme} {tokens.access}"}
        if tokens.scheme == "DPoP" and tokens.proof_key is not None:
            headers["DPoP"] = proof(
                tokens.proof_key,
                method,
                self._url,
                now=self._clock(),
                id_=self._new_text(),
                nonce=self._nonces.get(origin_of(self._url)),
                token=tokens.access,
            )
        return headers

    @property
    def is_old(self) -> bool:
        """Whether the token has expired, and could be renewed."""
        tokens = self.kept.tokens
        return (
            tokens is not None
            and tokens.refresh is not None
            and tokens.expires is not None
            and self._clock() >= tokens.expires
        )

    def read(self, status: int, headers: Mapping[str, str]) -> AuthRefusal | None:
        """Return how a response refuses a request; `None` if it does not.

        Args:
            status: The status of the response.
            headers: Its headers, by lower-cased name.
        """
        hear_nonce(self._nonces, self._url, headers)
        if status not in (401, 403):
            return None
        given = read_challenges(headers.get("www-authenticate", ""))
        ours = [one for one in given if one.scheme in ("bearer", "dpop")]
        if given and not ours:
            return None  # it wants something else, such as a password
        # A challenge that names the metadata has more in it.
        ours.sort(key=lambda one: "resource_metadata" not in one.parameters)
        found = ours[0] if ours else None
        error = None if found is None else found.parameters.get("error")
        if status == 403 and error != INSUFFICIENT_SCOPE:
            return None
        scope = None if found is None else found.parameters.get("scope")
        tokens = self.kept.tokens
        return AuthRefusal(
            status=status,
            challenge=found,
            scopes=scopes_of(scope),
            wants_nonce=error == "use_dpop_nonce"
            and tokens is not None
            and tokens.scheme == "DPoP"
            and "dpop-nonce" in headers,
        )

    # ---- logging in ----

    def recover(
        self, refused: AuthRefusal, *, is_first: bool = True
    ) -> LoginFlow[None]:
        """Do what a refusal asks for; then the request is sent again.

        Args:
            refused: The refusal.
            is_first: Whether it is the first of this request, apart from nonces.

        Raises:
            OAuthError: If there is no token.
            FetchError: If a server cannot be reached.
        """
        if refused.wants_nonce:
            return
        parts = urlsplit(self._url)
        if parts.scheme != "https" and zone_of_url(self._url) is not Zone.LOOPBACK:
            raise OAuthError(f"no token is sent to {self._url}: it is not https")
        found = yield from discover(self._url, refused.challenge, self._known())
        tokens = self.kept.tokens
        if tokens is not None and tokens.issuer != found.issuer:
            # The server trusts another one now, so it gets no more tokens of the old one
            # (2026-07-28, Token Handling).
            tokens = None
            self._keep(tokens=None)
        if not is_first and tokens is not None and refused.status == 403:
            if refused.scopes is not None and {*refused.scopes} <= {*tokens.scopes}:
                wanted = printable(" ".join(refused.scopes))
                raise OAuthError(f"the new token does not allow it either: {wanted}")
        if refused.status == 401 and is_first and tokens is not None:
            if (yield from self._refresh(found, tokens)):
                return
        scopes = self._scopes(found, refused, tokens)
        new = yield from self._log_in(found, scopes, tokens)
        if self._settings.proofs == "always" and new.scheme != "DPoP":
            raise OAuthError(
                f"{printable(found.issuer)} gave a token that is bound to no key"
            )
        self._keep(tokens=new)

    def renew(self) -> LoginFlow[None]:
        """Renew a token that has expired; if that fails, the server will refuse it."""
        tokens = self.kept.tokens
        if tokens is None:
            return
        try:
            # Without a challenge: its metadata may not be found.
            found = yield from discover(self._url, None, self._known())
            if tokens.issuer == found.issuer:
                yield from self._refresh(found, tokens)
        except (OAuthError, FetchError):
            return

    def _known(self) -> list[str]:
        """Return the authorization servers that the client knows."""
        registration, tokens = self._settings.registration, self.kept.tokens
        given = None if registration is None else registration.issuer
        named = [given, None if tokens is None else tokens.issuer, *self.kept.clients]
        return [one for one in named if one is not None]

    def _keep(self, **changes: Any) -> None:
        self.kept = evolve(self.kept, **changes)

    def _scopes(
        self, found: Found, refused: AuthRefusal, tokens: Tokens | None
    ) -> tuple[str, ...]:
        """Return what to ask for (2026-07-28, Scope Selection Strategy, Step-Up)."""
        needed = refused.scopes
        if needed is None and refused.status == 401:
            needed = found.scopes
        wanted = {*self._settings.scopes, *(needed or ())}
        if tokens is not None:
            wanted |= set(tokens.scopes)
        offered = scopes_of(found.metadata.get("scopes_supported")) or ()
        if wanted and isinstance(self._settings.grant, CodeGrant):
            # (2026-07-28, Refresh Tokens.)
            wanted |= {"offline_access"} & set(offered)
        return tuple(sorted(wanted))

    def _proof_key(
        self, found: Found, tokens: Tokens | None
    ) -> Mapping[str, Any] | None:
        wish = self._settings.proofs
        if wish == "never" or (wish == "wanted" and not found.wants_proofs):
            return None
        listed = found.metadata.get("dpop_signing_alg_values_supported")
        if isinstance(listed, list) and ALGORITHM not in listed:
            raise OAuthError(
                f"{printable(found.issuer)} takes no proofs (DPoP) signed with {ALGORITHM}"
            )
        if tokens is not None and tokens.proof_key is not None:
            return tokens.proof_key
        return new_key()

    def _asking(
        self,
        found: Found,
        registration: Registration,
        scopes: tuple[str, ...],
        proof_key: Mapping[str, Any] | None,
    ) -> TokenClient:
        return TokenClient(
            found=found,
            near=self._url,
            registration=registration,
            scopes=scopes,
            proof_key=proof_key,
            nonces=self._nonces,
            clock=self._clock,
            new_text=self._new_text,
        )

    def _chosen(self, found: Found) -> Registration | None:
        return chosen(self._settings, found.issuer, found.metadata, self.kept.clients)

    def _refresh(self, found: Found, tokens: Tokens) -> LoginFlow[bool]:
        """Return whether a refresh token got a new token."""
        registration = self._chosen(found)
        if tokens.refresh is None or registration is None:
            return False
        asking = self._asking(found, registration, tokens.scopes, tokens.proof_key)
        try:
            renewed = yield from refresh_grant(asking, tokens.refresh)
        except OAuthError as exc:
            # Any other error may be over the next time.
            if exc.code in _FINAL:
                self._keep(tokens=evolve(tokens, refresh=None))
            self._forget_if_unknown(exc, found.issuer)
            return False
        self._keep(tokens=renewed)
        return True

    def _forget_if_unknown(self, exc: OAuthError, issuer: str) -> None:
        """Forget a registration that the authorization server has deleted."""
        if exc.code == _UNKNOWN:
            kept = self.kept.clients.items()
            self._keep(clients={name: one for name, one in kept if name != issuer})

    def _log_in(
        self, found: Found, scopes: tuple[str, ...], tokens: Tokens | None
    ) -> LoginFlow[Tokens]:
        grant, registration = self._settings.grant, self._chosen(found)
        proof_key = self._proof_key(found, tokens)
        if isinstance(grant, CodeGrant):
            preferred = None if registration is None else registration.redirect_uri
            redirect_uri: str = yield Redirect(preferred)
            if registration is None or preferred not in (None, redirect_uri):
                if self._settings.registration is not None:
                    raise UsageError(
                        f"the client is registered to return to {preferred}, and the page"
                        f" would return to {redirect_uri}"
                    )
                registration = yield from register(
                    self._settings, found, redirect_uri, near=self._url
                )
                clients = {**self.kept.clients, found.issuer: registration.to_json()}
                self._keep(clients=clients)
            asking = self._asking(found, registration, scopes, proof_key)
            try:
                return (yield from code_grant(asking, redirect_uri))
            except OAuthError as exc:
                self._forget_if_unknown(exc, found.issuer)
                raise
        assert registration is not None  # `OAuth` has checked it
        asking = self._asking(found, registration, scopes, proof_key)
        if isinstance(grant, ClientCredentials):
            return (yield from credentials_grant(asking))
        return (yield from granted(asking, grant))
