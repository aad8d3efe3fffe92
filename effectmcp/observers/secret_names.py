"""Mask values whose names say that they are secret."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from ..canonical import JSON
from ..errors import UsageError

__all__ = ["MASK", "SECRETS", "SecretNames"]

#: The words of secret names. docs/audit.md lists them.
SECRETS: Final = (
    "api key",
    "auth code",
    "bearer",
    "card no",
    "card number",
    "credential",
    "credit card",
    "cvc",
    "cvv",
    "iban",
    "mfa",
    "one time code",
    "otp",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "pin",
    "private key",
    "pwd",
    "secret",
    "security code",
    "session id",
    "ssn",
    "token",
)

#: The replacement of a secret.
MASK: Final = "***"

#: Letters of a word that is found inside of others, too; a shorter one is a whole word.
_LONG: Final = 5

_RUNS: Final = re.compile(r"[^\W\d_]+")
#: `cardNumber`, `APIKey`; and `SSNnumber`, where it is not known which letter begins.
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CAPITALS: Final = re.compile(r"(?<=[A-Z])(?=[a-z])|(?<=[a-z])(?=[A-Z])")


class SecretNames:
    """Names of secrets, in any spelling: with capitals, separators, digits, plurals.

    Args:
        more: Further words, beside `SECRETS`.

    Raises:
        UsageError: If a word has no letter.
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        if isinstance(more, str):
            raise UsageError(f"secrets={more!r}: give a list of names")
        self._inside: set[str] = set()
        self._whole: set[str] = set()
        for one in (*SECRETS, *more):
            letters = _letters(one)
            if not letters:
                raise UsageError(f"secrets: {one!r} has no letter")
            is_long = len(letters) >= _LONG or not letters.isascii()
            (self._inside if is_long else self._whole).add(letters)

    def has(self, name: str) -> bool:
        """Return whether a name, or a sentence, has the words of a secret."""
        letters = _letters(name)
        if any(one in letters for one in self._inside):
            return True
        words = _words(name)
        return any(one in words or f"{one}s" in words for one in self._whole)

    def masked(self, value: JSON) -> JSON:
        """Return JSON whose secrets are masked, by the names of fields."""
        if isinstance(value, dict):
            return {
                key: MASK if self.has(str(key)) else self.masked(one)
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [self.masked(one) for one in value]
        return value


def _runs(text: str) -> list[str]:
    return _RUNS.findall(unicodedata.normalize("NFKC", text))


def _letters(text: str) -> str:
    return "".join(_runs(text)).casefold()


def _words(text: str) -> set[str]:
    found = set()
    for run in _runs(text):
        for pattern in (None, _CAMEL, _CAPITALS):
            parts = [run] if pattern is None else pattern.split(run)
            found |= {one.casefold() for one in parts}
    return found
