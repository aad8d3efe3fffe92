"""The words of authorization on HTTP: challenges, and where metadata is. No I/O.

    WWW-Authenticate: Bearer resource_metadata="https://…", scope="orders:read"

(2026-07-28, Authorization; RFC 6750, 8414, 9110, 9728.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from ..records import record

__all__ = [
    "INSUFFICIENT_SCOPE",
    "INVALID_TOKEN",
    "RESOURCE_METADATA",
    "Challenge",
    "challenge",
    "issuer_metadata_urls",
    "read_challenges",
    "resource_metadata_path",
    "resource_metadata_url",
]

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

#: The well-known place of a resource's metadata (RFC 9728, section 3).
RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"

_OAUTH: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"


# ---- challenges ---------------------------------------------------------------------


@record
class Challenge:
    """One challenge of a `WWW-Authenticate`.

    Attributes:
        scheme: The scheme, in lower case.
        parameters: The parameters, by lower-cased name; the first of each name.
    """

    scheme: str
    parameters: Mapping[str, str]


def challenge(scheme: str, parameters: Mapping[str, str | None]) -> str:
    """Return a challenge as the value of a header; `None` leaves a parameter out."""
    given = [
        f'{name}="{_quoted(text)}"'
        for name, text in parameters.items()
        if text is not None
    ]
    return f"{scheme} {', '.join(given)}" if given else scheme


def _quoted(text: str) -> str:
    plain = "".join(one if " " <= one <= "~" else "?" for one in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"

#: A parameter, a scheme, or a value without a name, between commas and spaces. It does
#: not match these: a long row of them would be tried from each of its places.
_PIECE: Final = re.compile(
    rf'(?P<name>{_TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_TOKEN}))'
    rf"(?=[\s,]|\Z)|(?P<scheme>{_TOKEN})(?=[\s,]|\Z)|(?P<other>[^\s,]+)"
)

#: Characters of the header that are read.
_LONGEST: Final = 8_192


def read_challenges(header: str) -> tuple[Challenge, ...]:
    """Return the challenges in the values of `WWW-Authenticate`, joined by commas.

    What is not a challenge is skipped: a server chose the text.
    """
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    for match in _PIECE.finditer(header[:_LONGEST]):
        scheme, name = match["scheme"], match["name"]
        if scheme is not None:
            parameters = {}
            found.append(Challenge(scheme.lower(), parameters))
        elif name is not None and found:
            text = match["plain"]
            if text is None:
                text = re.sub(r"\\(.)", r"\1", match["quoted"])
            parameters.setdefault(name.lower(), text)
    return tuple(found)


# ---- where metadata is --------------------------------------------------------------


def resource_metadata_path(resource: str) -> str:
    """Return the path of the metadata of a resource (RFC 9728, section 3.1)."""
    path = urlsplit(resource).path
    return RESOURCE_METADATA + ("" if path == "/" else path)


def resource_metadata_url(resource: str) -> str:
    """Return the URL of the metadata of a resource (RFC 9728, section 3.1)."""
    parts = urlsplit(resource)
    path = resource_metadata_path(resource)
    return parts._replace(path=path, fragment="").geturl()


def issuer_metadata_urls(issuer: str) -> Iterable[str]:
    """Return where an issuer may have its metadata, in the order to ask.

    (2026-07-28, Authorization Server Metadata Discovery.)
    """
    parts = urlsplit(issuer)._replace(query="", fragment="")
    path = parts.path.rstrip("/")
    yield parts._replace(path=_OAUTH + path).geturl()
    yield parts._replace(path=_OPENID + path).geturl()
    if path:
        yield parts._replace(path=path + _OPENID).geturl()
