"""The options of commands that call a server, for servers that require a login."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from .output import raw
from .printable import printable
from .terminal import open_page

if TYPE_CHECKING:
    from ..oauth import OAuth, TokenStore

__all__ = ["add_login", "check_unused", "oauth_of"]

#: Where the client's secret is, as others could read it in a command line.
_SECRET: Final = "EFFECTMCP_CLIENT_SECRET"


def add_login(parser: Any) -> None:
    """Add the options."""
    group = parser.add_argument_group(
        "login",
        "For a URL whose server requires a login. The tokens are kept, so that it is needed"
        " once. A --header Authorization turns it off.",
    )
    group.add_argument(
        "--no-login",
        action="store_true",
        help="use kept tokens only, and fail if a user has to log in, as in a script",
    )
    group.add_argument(
        "--no-browser",
        action="store_true",
        help="print the link of the login page, and do not open it",
    )
    group.add_argument(
        "--callback-port",
        type=int,
        default=0,
        metavar="PORT",
        help="the port on this machine to which the login page returns (any)",
    )
    group.add_argument(
        "--client-id",
        metavar="ID",
        help="the id of a client that is registered already, whose tokens are kept apart;"
        f" its secret is in {_SECRET}",
    )
    group.add_argument(
        "--issuer",
        metavar="URL",
        help="with --client-id: the authorization server where it is registered",
    )
    group.add_argument(
        "--client-credentials",
        action="store_true",
        help="with --client-id: log in as this client, without a user",
    )
    group.add_argument(
        "--scope",
        action="append",
        default=[],
        help="a scope to ask for, beside the scopes that the server needs (repeatable)",
    )
    group.add_argument(
        "--tokens",
        default="files",
        choices=("files", "keyring", "memory"),
        help="where tokens are kept: in files that only you can read, in the system's"
        " keyring, or only as long as this command runs (files)",
    )
    group.add_argument(
        "--forget", action="store_true", help="forget the kept tokens, and log in again"
    )


def oauth_of(
    options: argparse.Namespace, headers: Mapping[str, str], url: str
) -> OAuth | None:
    """Return how to log in; `None` if the user has said what to send.

    Raises:
        UsageError: If the options do not fit together.
    """
    from ..oauth import Browser, ClientCredentials, CodeGrant, OAuth, Registration

    if "authorization" in map(str.lower, headers):
        check_unused(options, "--header Authorization turns it off")
        return None
    registration = None
    secret = os.environ.get(_SECRET) or None
    if options.client_id is not None:
        if options.issuer is None and (secret or options.client_credentials):
            raise UsageError(
                "--client-id of a client with a secret needs --issuer URL: the"
                " authorization server that the secret is for"
            )
        registration = Registration(
            client_id=options.client_id, client_secret=secret, issuer=options.issuer
        )
    else:
        for name in ("issuer", "client_credentials"):
            if getattr(options, name):
                raise UsageError(f"--{name.replace('_', '-')} is for --client-id ID")
    if not 0 <= options.callback_port < 65_536:
        raise UsageError(f"--callback-port {options.callback_port}: it is not a port")
    store = _store(options.tokens)
    auth = OAuth(
        grant=ClientCredentials() if options.client_credentials else CodeGrant(),
        visitor=_NoPage()
        if options.no_login
        else Browser(
            show=_show,
            open_url=None if options.no_browser else open_page,
            port=options.callback_port,
        ),
        registration=registration,
        scopes=options.scope,
        store=store,
    )
    if options.forget:
        store.save(auth.place(url), None)
    return auth


class _NoPage:
    """Shows no page: only kept tokens are used."""

    async def redirect_uri(self, preferred: str | None) -> str:
        """Refuse the login."""
        from ..oauth import OAuthError

        raise OAuthError("a user has to log in, and --no-login shows no page")

    async def visit(self, url: str, state: str) -> str:
        """Do nothing: no page is asked for."""
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Do nothing."""


def check_unused(options: argparse.Namespace, why: str) -> None:
    """Refuse options for a login that does not happen.

    Raises:
        UsageError: If one is given.
    """
    for name, default in _DEFAULTS.items():
        if getattr(options, name) != default:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for a login, and {why}")


#: Options whose effect a user would miss, and their values if they are not given.
_DEFAULTS: Final[Mapping[str, object]] = {
    "client_id": None,
    "issuer": None,
    "client_credentials": False,
    "scope": [],
    "forget": False,
}


def _show(url: str) -> None:
    # Not on standard output, which is for the result.
    print(printable(f"Log in at {url}"), file=raw(sys.stderr), flush=True)


def _store(name: str) -> TokenStore:
    from ..oauth import FileTokens, KeyringTokens, MemoryTokens

    if name == "memory":
        return MemoryTokens()
    return KeyringTokens() if name == "keyring" else FileTokens(_folder())


def _folder() -> Path:
    """Return the folder of this user's tokens, where systems keep such files."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return Path(base or Path.home() / "AppData" / "Local", "effectmcp", "tokens")
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    # (XDG Base Directory Specification: a relative path is ignored.)
    state = base if base.is_absolute() else Path.home() / ".local" / "state"
    return state / "effectmcp" / "tokens"
