"""Authentication of callers: tokens of an authorization server, or your own API keys.

    Server("shop", auth=JWTAuth(issuer="https://idp.example",
                                resource="https://shop.example/mcp"))

    jwts           JWTAuth: signed tokens, checked with the issuer's public keys
    introspection  IntrospectionAuth: tokens that only their issuer can read
    api_keys       APIKeys: keys that you give out, stored as hashes
    key_sets       the public keys of an issuer: fetched, cached, rotated
    tokens         the rules for all tokens: audience, scopes, time, principal
    presented      the credentials in the headers
    signatures     JWTs, and the keys that check them
    proofs         DPoP: a token that only its owner can use
    failures       a budget of bad tokens for each client

Nothing here does I/O: authenticators return generators of HTTP requests, which the
transport sends (`effectmcp.fetching`). It needs `pip install effectmcp[auth]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_names
from ..server.identity import (
    ANONYMOUS,
    Authenticator,
    CredentialsError,
    Identity,
    Presented,
)

if TYPE_CHECKING:
    from .api_keys import APIKeys
    from .introspection import IntrospectionAuth
    from .jwts import JWTAuth
else:
    _LAZY = {
        "APIKeys": "api_keys",
        "IntrospectionAuth": "introspection",
        "JWTAuth": "jwts",
    }

    __getattr__ = lazy_names(globals(), _LAZY, extra="auth", needs=("joserfc",))

__all__ = [
    "ANONYMOUS",
    "APIKeys",
    "Authenticator",
    "CredentialsError",
    "Identity",
    "IntrospectionAuth",
    "JWTAuth",
    "Presented",
]
