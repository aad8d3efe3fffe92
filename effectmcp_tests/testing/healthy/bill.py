"""Pays a bill by card, and lets the user try three times.

The step raises an exception of its own, which comes back as itself; any other failure
in it is a `StepFailed`. Every try has an idempotency key of its own.
"""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen
from attrs.validators import ge

from effectmcp import (
    Elicit,
    Flow,
    IdempotencyKey,
    Refused,
    Server,
    StepFailed,
    ToolError,
    step,
)

app = Server("bills", version="1.0")


class CardRefused(Exception):
    """The bank said no."""


@frozen
class Receipt:
    """The outcome of a payment."""

    status: Literal["paid", "refused", "cancelled"]
    tries: int = field(validator=ge(0))
    number: str | None = None


@step(raises=(CardRefused,), retries=1, timeout=10)
def charge(cents: int, card: str, key: str) -> str:
    """Simulates a payment service, which charges once for each key."""
    if card == "debit" and cents > 100_00:
        raise CardRefused("over the limit of this card")
    return f"receipt {key[:6]}"


@app.tool
def pay_bill(cents: int) -> Flow[Receipt]:
    """Pay a bill."""
    if not 0 < cents <= 5000_00:
        raise ToolError("Bills are of up to 5000 euros.")
    why = "Ready to pay"
    for tries in range(1, 4):
        asked = f"{why}: {cents / 100:.2f} euros. By which card?"
        try:
            card = yield from Elicit(asked, Literal["credit", "debit"])
            key = yield from IdempotencyKey(f"charge-{tries}")
            return Receipt("paid", tries, (yield from charge(cents, card, key)))
        except Refused:
            return Receipt("cancelled", tries - 1)
        except CardRefused as refused:
            why = f"Refused ({refused})"
        except (StepFailed, OSError) as failed:
            raise ToolError(f"The bank is out of order: {failed}") from failed
    return Receipt("refused", 3)
