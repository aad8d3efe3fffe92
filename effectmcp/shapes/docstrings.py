"""Parse docstrings in Google's style: the summary, and the text for each argument.

A docstring is written for people, so nothing in it is an error: unknown syntax is
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from attrs import frozen

__all__ = ["Docstring", "parse_docstring"]

_SECTIONS: Final = ("Args:", "Arguments:", "Attributes:", "Parameters:")


@frozen
class Docstring:
    """The contents of a docstring.

    Attributes:
        summary: Its first paragraph, on one line.
        entries: The text for each name in `Args:` or `Attributes:`.
    """

    summary: str
    entries: Mapping[str, str]


@cache
def _expression() -> re.Pattern[str]:
    # A name, perhaps a type in brackets, a colon, the text.
    return re.compile(r"`{0,2}\**(\w+)`{0,2}\s*(?:\([^)]*\))?\s*:\s*(.*)")


def parse_docstring(text: str) -> Docstring:
    """Parse `text`, whose common indentation is removed."""
    lines = text.expandtabs().splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or line.strip() in _SECTIONS:
            break
        summary.append(line.strip())
    entries: dict[str, list[str]] = {}
    inside = False
    indent: int | None = None
    current: list[str] | None = None
    for line in lines:
        stripped = line.strip()
        if not stripped:
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            # A section ends at the next line that is not indented.
            inside, indent, current = stripped in _SECTIONS, None, None
            continue
        if not inside:
            continue
        indent = depth if indent is None else indent
        match = _expression().fullmatch(stripped) if depth <= indent else None
        if match is not None:
            current = entries.setdefault(match[1], [])
            current.append(match[2])
        elif current is not None:
            current.append(stripped)
    texts = {name: " ".join(filter(None, said)) for name, said in entries.items()}
    return Docstring(" ".join(summary), texts)
