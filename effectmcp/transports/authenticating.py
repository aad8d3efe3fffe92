"""The options of the command that choose the callers of a server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..errors import UsageError

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["AuthSettings"]


def _in_order(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


def _strings(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


@frozen(kw_only=True)
class AuthSettings:
    """The options that say who may call; any process can read them as JSON.

    Attributes:
        issuers: The URLs of the authorization servers whose tokens are accepted.
        resource: The URL of this server, as clients write it.
        audience: What the tokens name as their audience; empty for the resource.
        scopes: The scopes that every request needs.
        api_keys: A file of API keys.
    """

    issuers: tuple[str, ...] = field(default=(), converter=_strings)
    resource: str | None = None
    audience: tuple[str, ...] = field(default=(), converter=_in_order)
    scopes: tuple[str, ...] = field(default=(), converter=_in_order)
    api_keys: str | None = None

    def apply(self, app: Server) -> None:
        """Let only these callers use `app` over HTTP.

        Raises:
            UsageError: If the server has `auth` of its own, or an option is wrong.
        """
        found: list[Any] = []
        if self.api_keys is not None:
            from ..auth.api_keys import APIKeys

            found.append(APIKeys(Path(self.api_keys)))
        if self.issuers:
            try:
                from ..auth import JWTAuth
            except ImportError as exc:
                raise UsageError(str(exc)) from None
            try:
                found += [
                    JWTAuth(
                        issuer=one,
                        resource=self.resource or "",
                        audience=self.audience or None,
                        scopes=self.scopes,
                    )
                    for one in self.issuers
                ]
            except UsageError as exc:
                raise UsageError(f"--auth, --resource: {exc}") from None
        if not found:
            return
        if app.auth is not None:
            raise UsageError(
                "--auth, --api-keys: the server has auth= of its own; leave the options"
                " out, or remove it from Server()"
            )
        app.auth = found
