"""Keys that protect nothing, for states that a test can read and write."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from ..errors import StateError
from ..state.keys import Key, Keys, make_key

__all__ = ["PlainKeys"]

_HEAD: Final = "1p"
#: A public key: the base class needs one, and nothing is sealed with it.
_KEY: Final = make_key(bytes(32))


class PlainKeys(Keys):
    """Keys that neither encrypt nor sign: `1p` and the base64url of the content.

    For tests that read a state or forge one. `serve` and the transports refuse them.
    Bindings, times and limits are checked as usual.
    """

    protects = False

    def __init__(self) -> None:
        super().__init__(_KEY)

    def __repr__(self) -> str:
        return "<PlainKeys>"

    def wrap(self, data: bytes) -> str:
        """Return the string that `unwrap` turns back into `data`."""
        return _HEAD + base64.urlsafe_b64encode(data).decode()

    def unwrap(self, token: str) -> tuple[bytes, Key]:
        """Return the data that `wrap` encoded, or that a client made up.

        Raises:
            StateError: If `token` is malformed.
        """
        try:
            if not token.startswith(_HEAD):
                raise StateError("malformed")
            text = token.removeprefix(_HEAD).encode("ascii")
            return base64.b64decode(text, b"-_", validate=True), self.sealing
        except (UnicodeEncodeError, binascii.Error):
            raise StateError("malformed") from None
