"""State keys for a server whose author gave none: from the environment, or random.

`EFFECTMCP_STATE_KEYS` holds them, separated by commas, the oldest first. Without it, a
server that runs in a single process uses a random key, since every later round reaches
the same process. If another replica may get the next round, the server has no keys, and
handlers cannot ask.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

from ..errors import KeysError
from ..logs import logger_for
from ..state.keys import Keys, make_key

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["RANDOM", "VARIABLE", "ensure_keys", "keys_of_environment"]

logger = logger_for("effectmcp.server")

VARIABLE: Final = "EFFECTMCP_STATE_KEYS"

#: The source of a key that this process has made.
RANDOM: Final = "chance"


def keys_of_environment() -> Keys | None:
    """Return the ring of keys in `EFFECTMCP_STATE_KEYS`; `None` if that is not set.

    Raises:
        KeysError: If the variable holds an invalid key.
    """
    texts = [text.strip() for text in os.environ.get(VARIABLE, "").split(",")]
    try:
        keys = Keys(*filter(None, texts)) if any(texts) else None
    except KeysError as exc:
        raise KeysError(exc.problem, where=VARIABLE) from None
    if keys is not None:
        keys.source = VARIABLE
    return keys


def ensure_keys(app: Server, *, is_alone: bool) -> None:
    """Set the keys of `app` from the environment, unless it has keys.

    Args:
        app: The server.
        is_alone: Whether no other process serves it, so that a random key is enough.

    Raises:
        KeysError: If the variable holds an invalid key, or if the server has keys for
            tests.
    """
    if app.keys is not None:
        if not app.keys.protects:
            raise KeysError(
                f"{app.keys!r} is for tests: any client could write its own state."
                " Make a key with `effectmcp keygen`"
            )
        return
    app.keys = keys_of_environment()
    if app.keys is None and is_alone:
        app.keys = Keys(make_key(secrets.token_bytes(32)))
        app.keys.source = RANDOM
        logger.warning(
            "%s is not set: states are sealed with a random key, so calls that are under"
            " way do not outlive this process. Make a key with `effectmcp keygen`",
            VARIABLE,
        )
