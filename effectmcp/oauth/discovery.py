"""Which authorization server a server trusts (2026-07-28, Authorization Server Discovery).

No I/O. Everything here comes from a server that may be hostile: it must describe itself,
and the authorization server must describe itself, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeGuard
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from ..canonical import JSON
from ..fetching.issuers import metadata_of
from ..fetching.requests import Fetch, FetchError, Fetching, json_of
from ..fetching.zones import Zone, zone_of_url
from ..protocol.authorization import (
    RESOURCE_METADATA,
    Challenge,
    resource_metadata_url,
)
from ..server.identity import is_scope
from .tokens import OAuthError, printable

__all__ = [
    "Found",
    "covers",
    "discover",
    "scopes_of",
]

#: Authorization servers that a server may name.
_MOST: Final = 20


@frozen(kw_only=True)
class Found:
    """A server and its authorization server, as they describe themselves.

    Attributes:
        resource: What tokens are for, exactly as the server writes it.
        issuer: The authorization server.
        metadata: Its metadata.
        scopes: The scopes that the server names; `None` if it names none.
        wants_proofs: Whether the server only takes tokens that are bound to a key.
    """

    resource: str
    issuer: str
    metadata: Mapping[str, JSON]
    scopes: tuple[str, ...] | None = None
    wants_proofs: bool = False

    def endpoint(self, name: str) -> str:
        """Return the URL of an endpoint.

        Raises:
            OAuthError: If it is missing, or is not https.
        """
        url = self.metadata.get(name)
        zone, parts = _read_url(url)
        if not isinstance(url, str) or parts is None:
            raise OAuthError(f"{printable(self.issuer)} has no {name}")
        is_local = zone is Zone.LOOPBACK and zone_of_url(self.issuer) is Zone.LOOPBACK
        if parts.scheme != "https" and not is_local:
            raise OAuthError(f"the {name} of {printable(self.issuer)} is not https")
        if (zone or Zone.PUBLIC) > (zone_of_url(self.issuer) or Zone.PUBLIC):
            # The user's browser would ask it, with the user's cookies.
            raise OAuthError(
                f"the {name} of {printable(self.issuer)} is closer than it is itself"
            )
        if parts.fragment:
            raise OAuthError(f"the {name} of {printable(self.issuer)} has a fragment")
        return url


def discover(
    url: str, challenge: Challenge | None, preferred: Collection[str] = ()
) -> Fetching[Found]:
    """Return what a server says about itself, and its authorization server.

    Args:
        url: The URL of the server.
        challenge: How it refused a request; `None` if it sent no challenge.
        preferred: Authorization servers that the client knows already, the best first.

    Raises:
        OAuthError: If they do not describe themselves as they have to.
        FetchError: If one cannot be reached.
    """
    document = yield from _document(url, challenge)
    if document is None:
        # Servers of 2025-03-26 are their own authorization server.
        parts = urlsplit(url)
        issuer = f"{parts.scheme}://{parts.netloc}"
        try:
            metadata = yield from metadata_of(issuer, near=url)
        except FetchError:
            raise OAuthError(
                f"{url} requires a key or a token, and names no authorization server: send"
                " yours in a header, as --header 'Authorization: Bearer KEY' does"
            ) from None
        return Found(resource=url, issuer=issuer, metadata=metadata)
    resource = document.get("resource")
    if not isinstance(resource, str) or not covers(resource, url):
        raise OAuthError(
            f"the server at {url} says that it is {printable(resource)}: no token is sent;"
            " call it by that URL, if it is the right one"
        )
    listed = document.get("authorization_servers")
    issuers = [
        one for one in (listed if isinstance(listed, list) else ()) if _is_issuer(one)
    ][:_MOST]
    if not issuers:
        raise OAuthError(f"the server at {url} names no authorization server")
    known = [one for one in preferred if one in issuers]
    issuer = (known or issuers)[0]
    metadata = yield from metadata_of(issuer, near=url)
    wants = document.get("dpop_bound_access_tokens_required") is True
    return Found(
        resource=resource,
        issuer=issuer,
        metadata=metadata,
        scopes=scopes_of(document.get("scopes_supported")),
        wants_proofs=wants or (challenge is not None and challenge.scheme == "dpop"),
    )


def _document(
    url: str, challenge: Challenge | None
) -> Fetching[dict[str, JSON] | None]:
    """Return the metadata of a server (RFC 9728); `None` if it has none."""
    named = None if challenge is None else challenge.parameters.get("resource_metadata")
    if named is not None:
        response = yield Fetch(url=named, near=url)
        if response.status != 200:
            raise FetchError(named, f"there is no metadata: status {response.status}")
        return json_of(named, response)
    parts = urlsplit(url)
    root = parts._replace(path=RESOURCE_METADATA, query="", fragment="").geturl()
    for place in dict.fromkeys([resource_metadata_url(url), root]):
        response = yield Fetch(url=place, near=url)
        if response.status == 200:
            return json_of(place, response)
        if response.status >= 500:
            raise FetchError(place, f"the server failed: status {response.status}")
    return None


def _read_url(url: object) -> tuple[Zone | None, SplitResult | None]:
    """Return the zone and the parts of a URL; no parts, if it is not one.

    A stranger chose it: it is shown to users, and opened in browsers.
    """
    try:
        # (RFC 3986, section 2: no blanks, no control characters, and ASCII.)
        if isinstance(url, str) and all("!" <= one <= "~" for one in url):
            return zone_of_url(url), urlsplit(url)
    except ValueError:
        pass
    return None, None


def _is_issuer(url: object) -> TypeGuard[str]:
    """Return whether a URL may name an authorization server (RFC 8414, section 2)."""
    zone, parts = _read_url(url)
    if parts is None or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or zone is Zone.LOOPBACK


def covers(resource: str, url: str) -> bool:
    """Return whether a resource is a URL, or contains it."""
    try:
        one, other = urlsplit(resource), urlsplit(url)
        if _origin(one) != _origin(other) or one.fragment or "@" in one.netloc:
            return False
    except ValueError:
        return False
    path = one.path.rstrip("/")
    if one.query and (one.query, path) != (other.query, other.path.rstrip("/")):
        return False
    return other.path.rstrip("/") == path or other.path.startswith(f"{path}/")


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port


def scopes_of(value: JSON) -> tuple[str, ...] | None:
    """Return the scopes in a list, or in a string with spaces; `None` without any."""
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list):
        return None
    found = tuple(dict.fromkeys(one for one in listed if is_scope(one)))
    return found or None
