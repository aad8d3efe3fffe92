"""What a terminal sends → keys, as `Screen` knows them. Pure.

    decoder = KeyDecoder()
    decoder.feed(data)      the keys that are certain
    decoder.is_torn         whether the next bytes may belong to the last ones
    decoder.end()           the keys, now that nothing more came

An escape begins a sequence, and is also a key: over a slow connection only time tells,
so whoever reads the terminal waits a little before they call `end`.
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

#: Sequences of control, whole or broken off: those that are no key of ours do nothing.
#: A lone escape is a key, and so is each character.
_KEY: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?|\x1bO[^\x1b]?|\x1b[^\x1b\[O]|.", re.DOTALL
)

#: What may be the beginning of one.
_TORN: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")


class KeyDecoder:
    """Bytes → keys, however they are cut."""

    def __init__(self) -> None:
        # What is no text is no key either.
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._rest = ""

    @property
    def is_torn(self) -> bool:
        """Whether a sequence may be under way."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are certain now."""
        text = self._rest + self._decode(data)
        torn = _TORN.search(text)
        end = len(text) if torn is None else torn.start()
        self._rest = text[end:]
        return list(_keys(text[:end]))

    def end(self) -> list[str]:
        """The keys in what was under way, where nothing followed."""
        text, self._rest = self._rest, ""
        return list(_keys(text))


def _keys(text: str) -> Iterator[str]:
    for key in _KEY.findall(text):
        named = NAMED.get(key)
        if named is not None:
            yield named
        elif len(key) == 1 and key.isprintable():
            yield key
