"""Draws three questions of a quiz.

Wrong: the seed is fixed, and so it looks repeatable; but the generator belongs to the
module, and continues from run to run.
"""

from __future__ import annotations

import random

from effectmcp import Elicit, Flow, Server

app = Server("quiz", version="1.0")

QUESTIONS = [f"What is {n} times {n + 3}?" for n in range(2, 40)]
DICE = random.Random(42)


@app.tool
def quiz(player: str) -> Flow[str]:
    """Play a quiz."""
    question = DICE.choice(QUESTIONS)
    answer = yield from Elicit(f"{player}: {question}", str)  # here
    return f"{player} says {answer!r}."
