"""Bytes from a terminal → keys for `Screen`. No I/O.

    decoder = KeyDecoder()
    decoder.feed(data)      the keys that are certain
    decoder.is_torn         whether the next bytes may belong to the last ones
    decoder.end()           the keys in the remaining bytes

An escape begins a sequence, and is also a key. Only a pause tells which, so the reader
of the terminal waits briefly before it calls `end`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["NAMED", "KeyDecoder"]

NAMED: Final = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x04": "decline",
    "\x1b": "cancel",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[Z": "up",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
}

#: Control sequences, complete or broken off; unknown sequences do nothing. A lone
#: escape is a key, and so is each character.
_KEY: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?|\x1bO[^\x1b]?|\x1b[^\x1b\[O]|.", re.DOTALL
)

#: The possible beginnings of a sequence.
_TORN: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")


class KeyDecoder:
    """Decodes bytes to keys, however the bytes are split."""

    def __init__(self) -> None:
        # Bytes that are not UTF-8 are not keys.
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._rest = ""

    @property
    def is_torn(self) -> bool:
        """Whether the last bytes may be the beginning of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are certain now."""
        text = self._rest + self._decode(data)
        torn = _TORN.search(text)
        end = len(text) if torn is None else torn.start()
        self._rest = text[end:]
        return list(_keys(text[:end]))

    def end(self) -> list[str]:
        """Return the keys in the remaining bytes, after a pause."""
        text, self._rest = self._rest, ""
        return list(_keys(text))


def _keys(text: str) -> Iterator[str]:
    for key in _KEY.findall(text):
        named = NAMED.get(key)
        if named is not None:
            yield named
        elif len(key) == 1 and key.isprintable():
            yield key
