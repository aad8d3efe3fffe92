"""`OAuth`: who the client is, and how it gets tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from attrs import field, frozen, validators

from ..errors import UsageError
from ..server.identity import checked_scopes
from .registration import Registration
from .stores import MemoryTokens, TokenStore

__all__ = [
    "ClientCredentials",
    "CodeGrant",
    "Grant",
    "IdentityAssertion",
    "OAuth",
    "Visitor",
    "WorkloadAssertion",
]


class Visitor(Protocol):
    """Interface of what shows the login page to the user, such as `Browser`."""

    async def redirect_uri(self, preferred: str | None) -> str:
        """Return where the page is to return to.

        Args:
            preferred: Where it returned to the last time, if the client is registered for
                that.
        """
        ...

    async def visit(self, url: str, state: str) -> str:
        """Show a page; return the URL that the user was sent back to.

        Args:
            url: The page.
            state: The parameter `state` of the URL that is waited for.
        """
        ...

    async def close(self) -> None:
        """Stop waiting: the login is over."""
        ...


@frozen
class CodeGrant:
    """A user logs in, in a browser."""


@frozen
class ClientCredentials:
    """A program acts for itself: its `Registration` has a secret or a private key."""


@frozen(kw_only=True)
class IdentityAssertion:
    """An identity provider of the company decides (enterprise-managed authorization).

    The user has logged in there. Its ID token is exchanged for an assertion, and that for a
    token of the server's authorization server.

    Attributes:
        id_token: The ID token, or a function that returns one.
        token_endpoint: The token endpoint of the identity provider.
        client_id: The id of this client there.
        client_secret: Its secret there, if it has one.
    """

    id_token: str | Callable[[], str] = field(repr=False)
    token_endpoint: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)


@frozen(kw_only=True)
class WorkloadAssertion:
    """A platform vouches for this program: it hands out assertions (workload identity).

    Attributes:
        assertion: The assertion, or a function that returns one, such as by reading the
            file that the platform renews.
    """

    assertion: str | Callable[[], str] = field(repr=False)


Grant: TypeAlias = CodeGrant | ClientCredentials | IdentityAssertion | WorkloadAssertion


def _check_document(of: Any, attribute: Any, url: str | None) -> None:
    # (2026-07-28, Client ID Metadata Documents.)
    if url is None:
        return
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.path in ("", "/"):
        raise UsageError(
            f"OAuth(metadata_url={url!r}): write an https URL with a path, where the"
            " document is"
        )


def _scopes(scopes: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(checked_scopes("OAuth(scopes=...)", scopes)))


@frozen(kw_only=True, eq=False)
class OAuth:
    """The identity of a client, and its way to tokens.

    Attributes:
        grant: How: a user logs in (`CodeGrant`), or a program proves who it is.
        visitor: What shows the login page, such as `Browser()`; needed for `CodeGrant`.
        registration: The client's id, where it was registered beforehand.
        metadata_url: The URL of the document that describes the client, for authorization
            servers that support it.
        client_name: The name that users see when they are asked.
        scopes: Scopes to ask for beside the scopes that the server needs.
        proofs: Whether tokens are bound to a key of this client (DPoP): `"wanted"`, if
            the server asks for it; `"always"`; or `"never"`.
        store: Where tokens are kept.
        attempts: How often one request may lead to a login.
    """

    grant: Grant = CodeGrant()
    visitor: Visitor | None = None
    registration: Registration | None = None
    metadata_url: str | None = field(default=None, validator=_check_document)
    client_name: str = "effectmcp"
    scopes: tuple[str, ...] = field(default=(), converter=_scopes)
    proofs: Literal["wanted", "always", "never"] = field(
        default="wanted", validator=validators.in_(("wanted", "always", "never"))
    )
    store: TokenStore = field(factory=MemoryTokens)
    attempts: int = field(default=3, validator=validators.ge(1))

    def place(self, url: str) -> str:
        """Return the name under which the tokens of a server are kept.

        It is another one for each client, and for each way to log in: a program must not
        act as the user who has logged in before.
        """
        if self.registration is None and self.metadata_url is None:
            return url
        one = self.registration
        parts = [url, type(self.grant).__name__, self.metadata_url]
        if one is not None:
            secrets = f"{one.client_secret}\n{one.private_key}".encode()
            parts += [one.issuer, one.client_id, hashlib.sha256(secrets).hexdigest()]
        return json.dumps(parts)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.grant, CodeGrant):
            if self.visitor is None:
                raise UsageError(
                    "OAuth(): a user logs in, in a browser: give visitor=Browser()"
                )
        elif self.registration is None or self.registration.issuer is None:
            raise UsageError(
                f"OAuth(grant={type(self.grant).__name__}()): give registration="
                "Registration(client_id=..., issuer=...)"
            )
