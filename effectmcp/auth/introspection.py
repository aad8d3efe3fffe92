"""Tokens that only their issuer can read: it is asked about each (RFC 7662).

An accepted token is remembered for `cache` seconds: if it is revoked, it is accepted for
that long. No client can make this server ask without end: for a minute, nothing is asked
for an address that has sent many bad tokens. Equal tokens are asked about once at a time.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Generator
from typing import Final, Unpack
from urllib.parse import quote

from attrs import define

from ..errors import UsageError
from ..exchange.shares import Shares, party_of
from ..fetching.requests import Fetch, Fetched, FetchError, form_of, json_of
from ..logs import logger_for
from ..server.identity import CredentialsError, Presented
from .failures import Failures
from .tokens import TokenAuth, TokenOptions, Verified, checked_issuer, thumbprint_in

__all__ = ["IntrospectionAuth"]

logger = logger_for("effectmcp.auth")

#: Questions to the issuer at once, and the part of them that one address may have.
_MOST: Final = 64
_SHARE: Final = 0.25


class IntrospectionAuth(TokenAuth):
    """Asks the issuer about each token.

    Args:
        issuer: The URL of the authorization server.
        resource: The URL of this server, as its clients write it.
        endpoint: The URL of its introspection endpoint.
        client_id: The id of this server at the issuer.
        client_secret: Its secret.
        cache: Seconds for which an answer is used.
        checks_audience: Whether the answer must name this server as the audience. Turn it
            off only for an issuer that has no other server.
        **options: As for every token; see `TokenAuth`.
    """

    #: No token names its issuer.
    takes_every_token = True

    def __init__(
        self,
        *,
        issuer: str,
        resource: str,
        endpoint: str,
        client_id: str,
        client_secret: str,
        cache: float = 30,
        checks_audience: bool = True,
        **options: Unpack[TokenOptions],
    ) -> None:
        super().__init__(issuer=issuer, resource=resource, **options)
        self._endpoint = checked_issuer("IntrospectionAuth(endpoint", endpoint)
        # (RFC 6749, section 2.3.1: each is encoded as in a form.)
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        basic = base64.b64encode(pair.encode()).decode()
        self._headers = {
            "Authorization": f"Basic {basic}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        if not client_secret:
            raise UsageError("IntrospectionAuth(client_secret=''): give a secret")
        if cache < 0:
            raise UsageError(f"IntrospectionAuth(cache={cache}): give seconds")
        self._cache = cache
        self._checks_audience = checks_audience
        self._places = Shares(_MOST, _SHARE)
        self._failures = Failures()
        self._asked: dict[str, _Asked] = {}
        self._lock = threading.Lock()

    def may_be(self, token: str) -> bool:
        """Return whether a token may be of this issuer: every token may."""
        return True

    def find(
        self, presented: Presented, token: str
    ) -> Generator[Fetch, Fetched, Verified]:
        """Ask about a token.

        Raises:
            CredentialsError: If it is not accepted.
        """
        # Its network: one client has more IPv6 addresses than can be counted.
        party = party_of(None, presented.address)
        if not self._failures.may_try(party, self.clock()):
            # Not 401: this token may be a good one, and its client would drop it.
            raise _later("too many bad tokens came from its address")
        asked = self._begin(token, party)
        try:
            return (yield from self._ask(token))
        except CredentialsError as exc:
            if exc.status == 401:
                self._failures.add(party, self.clock())
            raise
        finally:
            self._end(token, asked)

    def _begin(self, token: str, party: str | None) -> _Asked:
        """Take a place for a token, unless it has one.

        Raises:
            CredentialsError: If all places are taken.
        """
        with self._lock:
            asked = self._asked.get(token)
            if asked is None:
                if not self._places.take(party):
                    raise _later("too many tokens are being asked about")
                asked = self._asked[token] = _Asked(party)
            asked.count += 1
            return asked

    def _end(self, token: str, asked: _Asked) -> None:
        with self._lock:
            asked.count -= 1
            if not asked.count:
                del self._asked[token]
                self._places.give(asked.party)

    def _ask(self, token: str) -> Generator[Fetch, Fetched, Verified]:
        form = form_of({"token": token, "token_type_hint": "access_token"})
        try:
            response = yield Fetch(
                url=self._endpoint,
                near=self.issuer,
                method="POST",
                headers=self._headers,
                body=form,
                is_shared=True,
            )
            if response.status != 200:
                problem = f"it answered with the status {response.status}"
                raise FetchError(self._endpoint, problem)
            claims = json_of(self._endpoint, response)
        except FetchError as exc:
            logger.warning("a token could not be asked about: %s", exc)
            raise _later("its issuer cannot be asked") from None
        if claims.get("active") is not True:
            raise CredentialsError("expiry: its issuer does not accept it any more")
        if claims.get("iss", self.issuer) != self.issuer:
            raise CredentialsError("issuer: it is of another one")
        if self._checks_audience:
            self.check_audience(claims.get("aud"))
        now = self.clock()
        until, expires = now + self._cache, None
        if claims.get("exp") is not None:
            expires = self.check_times(claims, now) + self.leeway
            until = min(until, expires)
        identity = self.identity_in(claims, expires)
        return Verified(identity, until, thumbprint_in(claims))


@define(eq=False)
class _Asked:
    """A token that is being asked about, by so many requests."""

    party: str | None
    count: int = 0


def _later(problem: str) -> CredentialsError:
    return CredentialsError(problem, error=None, status=503)
