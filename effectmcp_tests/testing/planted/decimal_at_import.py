"""Converts money, to six digits.

Wrong: the precision is set when the module is imported, and so in the importing thread
alone. The threads of a server calculate with 28 digits.
"""

from __future__ import annotations

import decimal
from decimal import Decimal

from effectmcp import Elicit, Flow, Server

app = Server("exchange", version="1.0")

decimal.getcontext().prec = 6  # here

RATE = Decimal("1.08374615")


@app.tool
def convert(cents: int) -> Flow[str]:
    """Convert euros."""
    to = yield from Elicit("To which currency?", str)
    return f"{Decimal(cents) * RATE / 7} {to}"
