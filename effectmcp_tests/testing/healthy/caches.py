"""Counts the letters of a string, with a cache and a table.

What is cached depends on nothing but the arguments, so it is the same wherever it is
calculated. Objects of a class are made in each run.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import Factory, define

from effectmcp import Elicit, Flow, Server

app = Server("letters", version="1.0")

VOWELS = frozenset("aeiou")


@lru_cache(maxsize=64)
def vowels(text: str) -> int:
    """Return the number of vowels."""
    return sum(letter in VOWELS for letter in text)


@define
class Counter:
    """The counts."""

    seen: dict[str, int] = Factory(dict)

    def count(self, text: str) -> int:
        """Count once."""
        if text not in self.seen:
            self.seen[text] = vowels(text)
        return self.seen[text]


@app.tool
def count_letters(text: str) -> Flow[str]:
    """Count the vowels of strings."""
    counter = Counter()
    first = counter.count(text)
    other = yield from Elicit(f"{first} so far. And which other text?", str)
    return f"{first + counter.count(other)} in {sorted({text, other})}"
