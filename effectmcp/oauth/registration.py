"""The client's id at an authorization server (2026-07-28, Client Registration). No I/O.

In the order of the protocol: an id that was given beforehand; the URL of a document that
describes the client; an id of an earlier registration there; a new registration. An id, and
above all a secret, is only ever shown to the server that it is for.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args
from urllib.parse import quote, urlsplit

from attrs import asdict, field, frozen

from ..canonical import JSON
from ..errors import UsageError
from ..fetching.requests import Fetch, Fetched, Fetching
from .tokens import OAuthError, is_visible, printable

if TYPE_CHECKING:
    from .discovery import Found
    from .settings import OAuth

__all__ = [
    "AuthMethod",
    "Registration",
    "authenticated",
    "chosen",
    "read_json",
    "refused",
    "register",
]

AuthMethod: TypeAlias = Literal[
    "none", "client_secret_basic", "client_secret_post", "private_key_jwt"
]

#: In this order, if the server leaves the choice.
_METHODS: Final[tuple[AuthMethod, ...]] = get_args(AuthMethod)


def _check_method(of: Any, attribute: Any, method: object) -> None:
    if method is not None and method not in _METHODS:
        known = ", ".join(_METHODS)
        raise UsageError(f"Registration(method={method!r}): give one of {known}")


@frozen(kw_only=True)
class Registration:
    """The client at one authorization server.

    Attributes:
        client_id: Its id.
        client_secret: Its secret; `None` for a client that can keep none.
        private_key: Its private key in PEM, to sign assertions with instead.
        algorithm: How it signs.
        issuer: The authorization server that this is for; needed with a secret or a key,
            because a hostile server could name an authorization server of its own.
        method: How it proves who it is; by default what it has, and the server supports.
        redirect_uri: Where the browser returns to; `None` for wherever this client waits.
    """

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    algorithm: str = "ES256"
    issuer: str | None = None
    method: AuthMethod | None = field(default=None, validator=_check_method)
    redirect_uri: str | None = None

    def __attrs_post_init__(self) -> None:
        is_secret = self.client_secret is not None or self.private_key is not None
        if is_secret and self.issuer is None:
            # (2026-07-28, Authorization Server Binding.)
            raise UsageError(
                f"Registration(client_id={self.client_id!r}): give issuer=, the URL of the"
                " authorization server that the secret is for"
            )

    def to_json(self) -> dict[str, JSON]:
        """Return it as JSON, for a store."""
        return asdict(self)

    def method_for(self, metadata: Mapping[str, JSON]) -> AuthMethod:
        """Return how the client proves who it is to a server with this metadata.

        Raises:
            OAuthError: If it cannot.
        """
        if self.method is not None:
            return self.method
        listed = metadata.get("token_endpoint_auth_methods_supported")
        # (RFC 8414, section 2: by default, `client_secret_basic`.)
        offered = listed if isinstance(listed, list) else ["client_secret_basic"]
        able: set[AuthMethod] = {"none"}
        if self.private_key is not None:
            able = {"private_key_jwt"}
        elif self.client_secret is not None:
            able = {"client_secret_basic", "client_secret_post"}
        elif not isinstance(listed, list):
            return "none"
        for one in _METHODS:
            if one in able and one in offered:
                return one
        raise OAuthError(
            "the authorization server requires the client to prove who it is by"
            f" {printable(offered)}, and it can only by {', '.join(sorted(able))}"
        )


def authenticated(
    registration: Registration,
    metadata: Mapping[str, JSON],
    *,
    issuer: str,
    now: float,
    id_: str,
) -> tuple[dict[str, str], dict[str, str | None]]:
    """Return the headers and the fields with which a client proves who it is.

    Args:
        registration: The client.
        metadata: The metadata of the authorization server.
        issuer: The authorization server.
        now: The seconds since 1970.
        id_: A new random text.

    Raises:
        OAuthError: If it cannot.
    """
    client_id, secret = registration.client_id, registration.client_secret
    match registration.method_for(metadata):
        case "client_secret_basic":
            # (RFC 6749, section 2.3.1: each is encoded as in a form.)
            pair = f"{quote(client_id, safe='')}:{quote(secret or '', safe='')}"
            basic = base64.b64encode(pair.encode()).decode()
            return {"Authorization": f"Basic {basic}"}, {}
        case "client_secret_post":
            return {}, {"client_id": client_id, "client_secret": secret}
        case "private_key_jwt":
            from .proofs import assertion

            claims = {
                "iss": client_id,
                "sub": client_id,
                "aud": issuer,
                "jti": id_,
                "iat": int(now),
                "exp": int(now) + 60,
            }
            signed = assertion(
                registration.private_key or "", registration.algorithm, claims
            )
            return {}, {
                "client_id": client_id,
                "client_assertion_type": _ASSERTION,
                "client_assertion": signed,
            }
        case _:
            return {}, {"client_id": client_id}


_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def chosen(
    settings: OAuth,
    issuer: str,
    metadata: Mapping[str, JSON],
    kept: Mapping[str, Mapping[str, JSON]],
) -> Registration | None:
    """Return the client at an authorization server; `None` if it has to register.

    Args:
        settings: What the client is.
        issuer: The authorization server.
        metadata: Its metadata.
        kept: By authorization server: earlier registrations.

    Raises:
        OAuthError: If its id is for another authorization server.
    """
    given = settings.registration
    if given is not None:
        if given.issuer is not None and given.issuer != issuer:
            raise OAuthError(
                f"the client id is for {given.issuer}, and the server trusts"
                f" {printable(issuer)}"
            )
        return given
    if (
        settings.metadata_url is not None
        and metadata.get("client_id_metadata_document_supported") is True
    ):
        return Registration(client_id=settings.metadata_url, method="none")
    return _read(kept[issuer], issuer) if issuer in kept else None


def _read(found: Mapping[str, Any], issuer: str) -> Registration | None:
    """Return a registration that was kept; `None` if it cannot be used any more."""
    try:
        kept = Registration(**found)
    except (TypeError, UsageError):
        return None  # of another version
    # No line of these may end: only private keys have lines, and they are never kept.
    fields = asdict(kept).values()
    if kept.issuer != issuer or not is_visible(kept.client_id):
        return None
    return kept if all(one is None or is_visible(one) for one in fields) else None


def register(
    settings: OAuth, found: Found, redirect_uri: str, near: str
) -> Fetching[Registration]:
    """Register the client (RFC 7591).

    Args:
        settings: What the client is.
        found: The authorization server.
        redirect_uri: Where the login page returns to.
        near: The URL of the server.

    Raises:
        OAuthError: If the server does not register it.
        FetchError: If it cannot be reached.
    """
    if found.metadata.get("registration_endpoint") is None:
        raise OAuthError(
            f"{printable(found.issuer)} registers no clients: register this one there, and"
            " give its id (--client-id, OAuth(registration=...))"
        )
    endpoint = found.endpoint("registration_endpoint")
    is_native = urlsplit(redirect_uri).hostname in ("127.0.0.1", "localhost", "::1")
    wanted: dict[str, JSON] = {
        "client_name": settings.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native" if is_native else "web",
    }
    listed = found.metadata.get("token_endpoint_auth_methods_supported")
    if isinstance(listed, list):
        # This client has no key that a server could know.
        able = [one for one in _METHODS if one in listed and one != "private_key_jwt"]
        if able:
            wanted[_METHOD] = able[0]
    response = yield Fetch(
        url=endpoint,
        near=near,
        method="POST",
        headers={"Content-Type": "application/json", "Accept": "application/json"},
        body=json.dumps(wanted).encode(),
    )
    answer = read_json(response)
    client_id, secret = answer.get("client_id"), answer.get("client_secret")
    if response.status not in (200, 201) or not is_visible(client_id):
        raise refused("the client was not registered", response, answer)
    if secret and not is_visible(secret):
        raise OAuthError(f"{printable(found.issuer)} sent a secret that cannot be used")
    # Without a method in the answer, the server has agreed to the request's.
    method = answer.get(_METHOD, wanted.get(_METHOD))
    return Registration(
        client_id=client_id,
        client_secret=secret if is_visible(secret) else None,
        issuer=found.issuer,
        method=method if method in _METHODS else None,
        redirect_uri=redirect_uri,
    )


_METHOD: Final = "token_endpoint_auth_method"


def read_json(response: Fetched) -> dict[str, JSON]:
    """Return the JSON object in a response; an empty object without one."""
    try:
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def refused(
    what: str,
    response: Fetched,
    found: Mapping[str, JSON],
    secrets: Iterable[str | None] = (),
) -> OAuthError:
    """Return the error for a response of an authorization server.

    Args:
        what: What did not happen.
        response: The response.
        found: The JSON object in it.
        secrets: What the request had, and an error must not show.
    """
    code, words = found.get("error"), found.get("error_description")
    hidden = tuple(secrets)
    shown = [printable(one, hidden) for one in (code, words) if isinstance(one, str)]
    return OAuthError(
        f"{what}: {': '.join(shown) or f'status {response.status}'}",
        printable(code, hidden) if isinstance(code, str) else None,
    )
