"""Converts money, with a decimal context of its own.

What is set inside the handler belongs to the handler, in every thread and every round.
"""

from __future__ import annotations

import decimal
from decimal import Decimal

from effectmcp import Elicit, Flow, Server

app = Server("money", version="1.0")

RATE = Decimal("1.08374615")


@app.tool
def change_money(cents: int) -> Flow[str]:
    """Change money."""
    decimal.getcontext().prec = 12
    percent = yield from Elicit("Which fee, in percent?", int)
    with decimal.localcontext() as context:
        context.rounding = decimal.ROUND_DOWN
        fee = Decimal(percent % 100) / 7
    return f"{Decimal(cents % 10**9) * RATE / 7 - fee}"
