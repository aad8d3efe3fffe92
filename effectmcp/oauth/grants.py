"""The requests for tokens, each for one way to get them. No I/O.

code_grant          a user logs in, in a browser (OAuth 2.1, with PKCE)
refresh_grant       with the refresh token of an earlier login
credentials_grant   a program, with its own secret or key (RFC 6749, section 4.4)
assertion_grant     a program or a user with an assertion of a third party (RFC 7523)
exchange            an ID token for such an assertion (RFC 8693)
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from attrs import field, frozen

from ..canonical import JSON
from ..fetching.requests import Fetch, Fetched, form_of
from .discovery import Found
from .proofs import proof
from .registration import Registration, authenticated, read_json, refused
from .settings import IdentityAssertion, WorkloadAssertion
from .tokens import OAuthError, Tokens, printable

__all__ = [
    "LoginFlow",
    "Redirect",
    "TokenClient",
    "Visit",
    "assertion_grant",
    "code_grant",
    "credentials_grant",
    "exchange",
    "given",
    "granted",
    "hear_nonce",
    "origin_of",
    "refresh_grant",
]

T = TypeVar("T")


@frozen
class Redirect:
    """Say where the login page is to return to; the answer is a URL.

    Attributes:
        preferred: Where it returned to the last time; `None` for anywhere.
    """

    preferred: str | None = None


@frozen
class Visit:
    """Show a page to the user; the answer is the URL that the user was sent back to.

    Attributes:
        url: The page.
        state: The parameter `state` of that URL.
    """

    url: str = field(repr=False)
    state: str = field(repr=False)


#: A generator of requests to servers and to the user.
LoginFlow: TypeAlias = Generator[Fetch | Redirect | Visit, Any, T]


@frozen(kw_only=True, eq=False)
class TokenClient:
    """One client at one authorization server.

    Attributes:
        found: The server, and its authorization server.
        near: The URL of the server.
        registration: The client.
        scopes: What to ask for.
        proof_key: The key to bind tokens to; `None` for bearer tokens.
        nonces: By origin: what a server wants to see in the next proof.
        clock: Returns the seconds since 1970.
        new_text: Returns a new random text.
    """

    found: Found
    near: str
    registration: Registration
    scopes: tuple[str, ...]
    proof_key: Mapping[str, Any] | None = field(repr=False)
    nonces: MutableMapping[str, str]
    clock: Callable[[], float]
    new_text: Callable[[], str]

    @property
    def scope(self) -> str | None:
        """The scopes as a parameter; `None` for none."""
        return " ".join(self.scopes) or None


def origin_of(url: str) -> str:
    """Return the scheme, the host and the port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _token(
    asking: TokenClient, form: Mapping[str, str | None], refresh: str | None = None
) -> LoginFlow[Tokens]:
    """Ask the token endpoint.

    Raises:
        OAuthError: If it returns no token.
    """
    found, url = asking.found, asking.found.endpoint("token_endpoint")
    is_first = True
    while True:
        headers, fields = authenticated(
            asking.registration,
            found.metadata,
            issuer=found.issuer,
            now=asking.clock(),
            id_=asking.new_text(),
        )
        if asking.proof_key is not None:
            headers["DPoP"] = proof(
                asking.proof_key,
                "POST",
                url,
                now=asking.clock(),
                id_=asking.new_text(),
                nonce=asking.nonces.get(origin_of(url)),
            )
        response: Fetched = yield Fetch(
            url=url,
            near=asking.near,
            method="POST",
            headers={**headers, **_FORM},
            body=form_of({**form, **fields}),
        )
        hear_nonce(asking.nonces, url, response.headers)
        answer = read_json(response)
        if response.status == 200 and "error" not in answer:
            return Tokens.from_response(
                answer,
                issuer=found.issuer,
                asked=asking.scopes,
                now=asking.clock(),
                proof_key=asking.proof_key,
                refresh=refresh,
            )
        if not is_first or answer.get("error") != "use_dpop_nonce":
            secrets = _secrets_in(headers, {**form, **fields})
            secrets += (asking.registration.client_secret,)
            what = f"{printable(found.issuer)} gave no token"
            raise refused(what, response, answer, secrets)
        is_first = False  # (RFC 9449, section 8)


def _secrets_in(
    headers: Mapping[str, str], form: Mapping[str, str | None]
) -> tuple[str | None, ...]:
    """Return what a request has that a message must not show."""
    basic = headers.get("Authorization", "").partition(" ")[2]
    return basic, *(form.get(one) for one in _SECRETS)


#: The fields of a form whose values could be used by others.
_SECRETS: Final = (
    *("client_secret", "client_assertion", "assertion", "subject_token"),
    *("refresh_token", "code", "code_verifier"),
)

_FORM: Final = {
    "Content-Type": "application/x-www-form-urlencoded",
    "Accept": "application/json",
}


def hear_nonce(
    nonces: MutableMapping[str, str], url: str, headers: Mapping[str, str]
) -> None:
    """Note what a server wants to see in the next proof (RFC 9449, section 8.2)."""
    nonce = headers.get("dpop-nonce")
    if nonce is not None and nonce.isascii() and nonce.isprintable():
        nonces[origin_of(url)] = nonce


# ---- a user -------------------------------------------------------------------------


def code_grant(asking: TokenClient, redirect_uri: str) -> LoginFlow[Tokens]:
    """Have a user log in.

    Raises:
        OAuthError: If the user did not, or the answer is not the one to this question.
    """
    found = asking.found
    methods = found.metadata.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        # (2026-07-28, Authorization Code Protection.)
        raise OAuthError(
            f"{printable(found.issuer)} does not say that it supports PKCE, so nothing"
            " would protect the login"
        )
    page = found.endpoint("authorization_endpoint")
    verifier, state = asking.new_text(), asking.new_text()
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    query: dict[str, str] = {
        "response_type": "code",
        "client_id": asking.registration.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": digest.decode().rstrip("="),
        "code_challenge_method": "S256",
        "resource": found.resource,
    }
    if asking.scope is not None:
        query["scope"] = asking.scope
        if "offline_access" in asking.scopes:
            # (OpenID Connect Core, section 11.)
            query["prompt"] = "consent"
    separator = "&" if urlsplit(page).query else "?"
    came: str = yield Visit(f"{page}{separator}{urlencode(query)}", state)
    code = _code_in(came, redirect_uri, state, asking)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
        "resource": found.resource,
    }
    return (yield from _token(asking, form))


def _code_in(came: str, redirect_uri: str, state: str, asking: TokenClient) -> str:
    """Return the code in the URL that the user was sent back to.

    Raises:
        OAuthError: If it is not the answer to this login, or there is no code.
    """
    found = asking.found
    try:
        query = urlsplit(came).query
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:  # no URL, or too many fields
        pairs = []
    fields = dict(pairs)
    if len(fields) != len(pairs) or not hmac.compare_digest(
        fields.get("state", "").encode("utf-8", "replace"), state.encode()
    ):
        raise OAuthError("the answer is not to this login: nothing of it is used")
    # Before anything else is read: another authorization server may have sent it
    # (2026-07-28, Authorization Response Validation; RFC 9207, section 2.4).
    issuer = fields.get("iss")
    is_told = (
        found.metadata.get("authorization_response_iss_parameter_supported") is True
    )
    if (issuer is None and is_told) or (issuer is not None and issuer != found.issuer):
        raise OAuthError(
            f"the answer is not from {printable(found.issuer)}: nothing of it is used"
        )
    if came.split("?")[0] != redirect_uri.split("?")[0]:
        raise OAuthError("the user was sent to another page: nothing of it is used")
    if "error" in fields:
        code, words = fields["error"], fields.get("error_description", "")
        secrets = (asking.registration.client_secret,)
        said = ": ".join(printable(one, secrets) for one in (code, words) if one)
        if asking.scope is None:
            said += "; no scope was asked for, so name one (--scope, OAuth(scopes=...))"
        raise OAuthError(
            f"{printable(found.issuer)} did not log in: {said}",
            printable(code, secrets),
        )
    if not fields.get("code"):
        raise OAuthError(f"{printable(found.issuer)} sent no code")
    return fields["code"]


def refresh_grant(asking: TokenClient, refresh: str) -> LoginFlow[Tokens]:
    """Get a new token with a refresh token.

    Raises:
        OAuthError: If it is not accepted any more.
    """
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh,
        "resource": asking.found.resource,
    }
    return (yield from _token(asking, form, refresh))


# ---- a program ----------------------------------------------------------------------


def credentials_grant(asking: TokenClient) -> LoginFlow[Tokens]:
    """Get a token for the client itself.

    Raises:
        OAuthError: If it returns no token.
    """
    form = {
        "grant_type": "client_credentials",
        "scope": asking.scope,
        "resource": asking.found.resource,
    }
    return (yield from _token(asking, form))


def assertion_grant(asking: TokenClient, assertion: str) -> LoginFlow[Tokens]:
    """Get a token for the subject of an assertion.

    Raises:
        OAuthError: If it returns no token.
    """
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": assertion,
        "scope": asking.scope,
        "resource": asking.found.resource,
    }
    return (yield from _token(asking, form))


def given(text: str | Callable[[], str]) -> str:
    """Return a string, or the result of a function that returns one."""
    return text if isinstance(text, str) else text()


def exchange(asking: TokenClient, grant: IdentityAssertion) -> LoginFlow[str]:
    """Return an assertion of the identity provider for the authorization server.

    Raises:
        OAuthError: If it returns no assertion.
    """
    url = grant.token_endpoint
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": _ID_JAG,
        "subject_token": given(grant.id_token),
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": asking.found.issuer,
        "resource": asking.found.resource,
        "scope": asking.scope,
        "client_id": grant.client_id,
        "client_secret": grant.client_secret,
    }
    response: Fetched = yield Fetch(
        url=url,
        # The company's own provider: not the server has named it, but the user.
        near=url,
        method="POST",
        headers=_FORM,
        body=form_of(form),
    )
    answer = read_json(response)
    if response.status != 200 or "error" in answer:
        what = "the identity provider gave no assertion"
        raise refused(what, response, answer, _secrets_in({}, form))
    assertion: JSON = answer.get("access_token")
    if not isinstance(assertion, str) or answer.get("issued_token_type") != _ID_JAG:
        raise OAuthError("the identity provider sent something else than an assertion")
    return assertion


_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


def granted(
    asking: TokenClient, grant: WorkloadAssertion | IdentityAssertion
) -> LoginFlow[Tokens]:
    """Get a token with an assertion, of a platform or of an identity provider.

    Raises:
        OAuthError: If it returns no token.
    """
    if isinstance(grant, IdentityAssertion):
        assertion = yield from exchange(asking, grant)
    else:
        assertion = given(grant.assertion)
    return (yield from assertion_grant(asking, assertion))
