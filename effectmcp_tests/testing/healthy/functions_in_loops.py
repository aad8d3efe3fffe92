"""Ranks answers, with functions that are made in loops and called in time.

Each one is called in its own turn of the loop, or has the value as a parameter.
"""

from __future__ import annotations

from functools import partial

from effectmcp import Elicit, Flow, Gather, Server, Step

app = Server("ranking", version="1.0")

JUDGES = ("Ann", "Ben")


def note(judge: str, points: int) -> str:
    """Simulates the minutes of a jury."""
    return f"{judge}: {points}"


@app.tool
def rank(words: list[str]) -> Flow[str]:
    """Rank words."""

    def ask(judge: str) -> Flow[int]:
        return len((yield from Elicit(f"Which letter counts, {judge}?", str)))

    points = yield from Gather.each(ask(judge) for judge in JUDGES)
    ranked = list(words)
    for worth in points:
        ranked = sorted(ranked, key=lambda word: len(word) * worth)  # at once
        longest = max((len(word) for word in ranked), default=worth)
        yield from Step(note, JUDGES[0], longest)
    weigh = [partial(int.__add__, worth) for worth in points]
    notes = yield from Gather.each(
        [Step(note, judge, way(1)) for judge, way in zip(JUDGES, weigh, strict=True)]
    )
    return f"{ranked[:2]}, {'; '.join(notes)}"
