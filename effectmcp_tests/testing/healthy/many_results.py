"""Reads a file: a string, bytes, a list or nothing, as it was promised.

Results of several types, an Enum of strings among them.
"""

from __future__ import annotations

import enum

from effectmcp import Elicit, Flow, Server, Text

app = Server("files", version="1.0")


class Mood(enum.StrEnum):
    """The mood of a file."""

    FINE = "fine"
    SAD = "sad"


@app.tool
def mood(name: str) -> Flow[str]:
    """The mood of a file."""
    letters = yield from Elicit(f"Which letters are in {name}?", str)
    return Mood.FINE if letters else Mood.SAD


@app.tool
def show(name: str) -> Flow[str | Text | None]:
    """Show a file."""
    lines = yield from Elicit(f"How many lines of {name}?", int)
    if lines < 1:
        return None
    return Text(name) if lines > 3 else name


@app.tool
def sizes(name: str) -> Flow[list[int]]:
    """The lengths of a file's lines."""
    lines = yield from Elicit(f"How many lines has {name}?", int)
    return [len(name)] * min(max(lines, 0), 3)
