"""Plans a picnic: asks how much of each dish to bring.

Wrong: the dishes are a set, whose order differs from process to process, so the process
that takes the next round asks for another dish than the answered one.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server

app = Server("picnic", version="1.0")


@app.tool
def plan_picnic(place: str) -> Flow[str]:
    """Plan a picnic."""
    dishes = {"bread", "cheese", "grapes", "olives", "salad"}
    basket = []
    for dish in dishes:
        amount = yield from Elicit(f"How much {dish} shall we bring?", str)  # here
        if amount.strip():
            basket.append(f"{dish} ({amount.strip()})")
    if not basket:
        return f"Nothing to eat at {place}."
    return f"To {place} we bring {', '.join(sorted(basket))}."
