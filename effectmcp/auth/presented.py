"""The credentials in the headers of a request. No I/O."""

from __future__ import annotations

from typing import Final

from ..server.identity import CredentialsError, Presented

__all__ = ["credentials"]

#: Bytes of a token that are read.
_LONGEST: Final = 8_192


def credentials(presented: Presented) -> tuple[str, str]:
    """Return the scheme, in lower case, and the token of a request.

    Raises:
        CredentialsError: If it has no token.
    """
    header = presented.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    scheme, token = scheme.lower(), token.strip(" ")
    if scheme not in ("bearer", "dpop"):
        raise CredentialsError("the request has no token", error=None)
    if not token or len(token) > _LONGEST or not token.isascii():
        raise CredentialsError("malformed: it is not a token")
    return scheme, token
