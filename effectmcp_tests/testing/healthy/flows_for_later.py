"""Plans an evening: flows that are made first and run later, or not at all.

A flow that never runs costs nothing; which one runs is decided by an answer.
"""

from __future__ import annotations

from typing import Literal

from effectmcp import Elicit, Flow, Gather, Server

app = Server("evening", version="1.0")


def dinner(place: str) -> Flow[str]:
    """Ask where to eat."""
    return (yield from Elicit(f"Where shall we eat in {place}?", str))


def film(place: str) -> Flow[str]:
    """Ask what to see."""
    return (yield from Elicit(f"Which film in {place}?", str))


def pairs(*texts: str) -> str:
    """Join strings."""
    return " and ".join(texts)


@app.tool
def plan_evening(place: str) -> Flow[str]:
    """Plan an evening."""
    eat = dinner(place)
    plans = [eat, film(place)]
    what = yield from Elicit("What shall we do?", Literal["eat", "both", "nothing"])
    if what == "eat":
        first = yield from eat
        return first
    if what == "both":
        return pairs(*(yield from Gather(*plans)))
    later = dinner("town") if place else None
    if later is not None:
        return pairs((yield from later))
    return "nothing"
