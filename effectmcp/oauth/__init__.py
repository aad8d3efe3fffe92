"""Log in to a server that requires it: OAuth 2.1, for clients.

    OverHttp(url, auth=OAuth(visitor=Browser()))       a user, in a browser
    OverHttp(url, auth=OAuth(grant=ClientCredentials(), registration=...))    a program

    settings       OAuth: who the client is, and how it gets tokens
    login          the whole flow, as a generator of requests. No I/O
    discovery      which authorization server a server trusts. No I/O
    registration   the client's id at an authorization server. No I/O
    grants         the requests for tokens. No I/O
    tokens         tokens, and what is kept with them
    proofs         DPoP: tokens that only this client can use. No I/O
    stores         where tokens are kept: in memory, in files, in the system's keyring
    browser        open the user's browser, and wait for the answer
    session        play the flow on an event loop, once for all calls

It needs `pip install effectmcp[client]`; DPoP and signed assertions need the extra `auth`,
and the system's keyring needs `keyring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_names
from .login import Login, Redirect, Visit
from .registration import Registration
from .settings import (
    ClientCredentials,
    CodeGrant,
    IdentityAssertion,
    OAuth,
    Visitor,
    WorkloadAssertion,
)
from .stores import FileTokens, KeyringTokens, MemoryTokens, TokenStore
from .tokens import OAuthError

if TYPE_CHECKING:
    from .browser import Browser
else:
    _LAZY = {"Browser": "browser"}

    __getattr__ = lazy_names(globals(), _LAZY, extra="client", needs=("anyio",))

__all__ = [
    "Browser",
    "ClientCredentials",
    "CodeGrant",
    "FileTokens",
    "IdentityAssertion",
    "KeyringTokens",
    "Login",
    "MemoryTokens",
    "OAuth",
    "OAuthError",
    "Redirect",
    "Registration",
    "TokenStore",
    "Visit",
    "Visitor",
    "WorkloadAssertion",
]
