"""Looks at a file: a text, bytes, a list or nothing, as it was promised.

Results of several types, an Enum of texts among them.
"""

from __future__ import annotations

import enum

from effectmcp import Elicit, Flow, Server, Text

app = Server("files", version="1.0")


class Mood(enum.StrEnum):
    """How a file feels."""

    FINE = "fine"
    SAD = "sad"


@app.tool
def mood(name: str) -> Flow[str]:
    """How a file feels."""
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
    """How long the lines of a file are."""
    lines = yield from Elicit(f"How many lines has {name}?", int)
    return [len(name)] * min(max(lines, 0), 3)
