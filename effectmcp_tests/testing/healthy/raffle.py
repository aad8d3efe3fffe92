"""Draws a raffle, and offers the first prize to one player after the other.

The clock, the number and the luck come through effects; the prizes are shuffled by a
`random.Random` with a seed of its own, which is the same in every round.
"""

from __future__ import annotations

import random

from effectmcp import Confirm, Flow, Gather, Now, Random, Server, ToolError, Uuid

app = Server("raffle", version="1.0")

PRIZES = ("a kettle", "a lamp", "a plant", "a radio")
OFFERS = 4


@app.tool
def draw_raffle(players: list[str]) -> Flow[str]:
    """Draw a raffle."""
    if not players:
        raise ToolError("A raffle needs players.")
    now, number, luck = yield from Gather(Now(), Uuid(), Random())
    prize = random.Random(7).choice(PRIZES)
    first = int(luck * len(players))
    for offer in range(min(OFFERS, len(players))):
        winner = players[(first + offer) % len(players)]
        question = (
            f"Raffle {number.hex[:8]} of {now:%d %b, %H:%M}: {winner} wins {prize}."
            " Do they take it?"
        )
        if (yield from Confirm(question, otherwise=False)):
            again = yield from Random()
            thanks = "Hooray!" if again < 0.5 else "Well played!"
            return f"{thanks} {prize.capitalize()} goes to {winner}."
    return f"Nobody wanted {prize}."
