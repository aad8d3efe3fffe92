"""The metadata of an authorization server. No I/O."""

from __future__ import annotations

from ..canonical import JSON
from ..protocol.authorization import issuer_metadata_urls
from .requests import Fetch, FetchError, Fetching, json_of

__all__ = ["metadata_of"]


def metadata_of(issuer: str, *, near: str) -> Fetching[dict[str, JSON]]:
    """Return the metadata of an authorization server.

    Args:
        issuer: Its URL.
        near: The URL of the party that named it.

    Raises:
        FetchError: If it is missing, or is of another issuer.
    """
    status = 0
    for url in issuer_metadata_urls(issuer):
        response = yield Fetch(url=url, near=near, is_shared=True)
        status = response.status
        if status == 200:
            found = json_of(url, response)
            # As a whole, without any normalization (2026-07-28, Authorization Server
            # Metadata Discovery; RFC 8414, section 3.3).
            named = found.get("issuer")
            if named != issuer:
                problem = f"it is the metadata of another issuer: {named!r:.200}"
                raise FetchError(url, f"{problem}, not {issuer!r:.200}")
            return found
        if status >= 500:
            break
    raise FetchError(issuer, f"it has no metadata: status {status}")
