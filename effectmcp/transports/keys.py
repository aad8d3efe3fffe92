"""Where a server's state keys come from, when its author gave none.

`EFFECTMCP_STATE_KEYS` holds them, separated by commas, the oldest first. Without it, a
process that is the only one to serve can do with a random key, since a client that comes
back comes back to it. Wherever another replica may get the next round, there is none,
and handlers cannot ask.
"""

from __future__ import annotations

import logging
import os
import secrets
from typing import TYPE_CHECKING, Final

from ..errors import KeysError
from ..state.keys import Keys, make_key

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["VARIABLE", "ensure_keys", "keys_of_environment"]

logger = logging.getLogger("effectmcp.server")

VARIABLE: Final = "EFFECTMCP_STATE_KEYS"


def keys_of_environment() -> Keys | None:
    """The ring in `EFFECTMCP_STATE_KEYS`, if that is set.

    Raises:
        KeysError: It holds something that is no key.
    """
    texts = [text.strip() for text in os.environ.get(VARIABLE, "").split(",")]
    try:
        return Keys(*filter(None, texts)) if any(texts) else None
    except KeysError as exc:
        raise KeysError(exc.problem, where=VARIABLE) from None


def ensure_keys(app: Server, *, is_alone: bool) -> None:
    """Give `app` the keys of the environment, unless it has keys.

    Args:
        app: The server.
        is_alone: Whether no other process serves it: then a random key does.

    Raises:
        KeysError: The variable holds something that is no key; or the server has keys
            that are for tests.
    """
    if app.keys is not None:
        if not app.keys.protects:
            raise KeysError(
                f"{app.keys!r} is for tests: anybody could write a state of their own."
                " Make a key with `effectmcp keygen`"
            )
        return
    app.keys = keys_of_environment()
    if app.keys is None and is_alone:
        app.keys = Keys(make_key(secrets.token_bytes(32)))
        logger.warning(
            "%s is not set: states are sealed with a random key, so calls that are under"
            " way do not outlive this process. Make a key with `effectmcp keygen`",
            VARIABLE,
        )
