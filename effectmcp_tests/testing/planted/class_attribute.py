"""Packs a suitcase.

Wrong: the list belongs to the class, so it grows from call to call, and from one run of
the handler to the next.
"""

from __future__ import annotations

from effectmcp import Confirm, Elicit, Flow, Server

app = Server("suitcase", version="1.0")


class Suitcase:
    """The packed items."""

    things: list[str] = []  # as it should not

    def pack(self, thing: str) -> None:
        """Pack one thing more."""
        self.things.append(thing)


@app.tool
def pack(days: int) -> Flow[str]:
    """Pack a suitcase."""
    suitcase = Suitcase()
    suitcase.pack(f"{days} shirts")
    suitcase.pack((yield from Elicit("What else?", str)))
    count = len(suitcase.things)
    if not (yield from Confirm(f"Close it over {count} things?")):  # here
        return "It stays open."
    return f"It is closed over {count} things."
