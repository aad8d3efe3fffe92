"""A ring that protects nothing: states that a test can read, and write."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from ..errors import StateError
from ..state.keys import Key, Keys, make_key

__all__ = ["PlainKeys"]

_HEAD: Final = "1p"
#: Everybody knows it: it only has to be one.
_KEY: Final = make_key(bytes(32))


class PlainKeys(Keys):
    """Keys that neither encrypt nor sign: `1p` and the base64url of what is inside.

    For tests that look into a state or make one up. `serve` and the transports refuse
    them. Bindings, times and limits are checked as always.
    """

    protects = False

    def __init__(self) -> None:
        super().__init__(_KEY)

    def __repr__(self) -> str:
        return "<PlainKeys>"

    def wrap(self, data: bytes) -> str:
        """The text that `unwrap` turns back into `data`."""
        return _HEAD + base64.urlsafe_b64encode(data).decode()

    def unwrap(self, token: str) -> tuple[bytes, Key]:
        """What `wrap` was given, or anybody wrote.

        Raises:
            StateError: `malformed`.
        """
        try:
            if not token.startswith(_HEAD):
                raise StateError("malformed")
            text = token.removeprefix(_HEAD).encode("ascii")
            return base64.b64decode(text, b"-_", validate=True), self.sealing
        except (UnicodeEncodeError, binascii.Error):
            raise StateError("malformed") from None
