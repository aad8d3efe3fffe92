"""Counts what a mailing costs, with a step that adds to a variable of the handler.

Wrong: a replay does not perform the step again, so the variable is 0 in every later round.
"""

from __future__ import annotations

from effectmcp import Confirm, Flow, Server, Step

app = Server("mailing", version="1.0")


@app.tool
def send_letters(names: list[str]) -> Flow[str]:
    """Send letters."""
    cents = 0

    def post(name: str) -> None:
        nonlocal cents
        cents += 85 + len(name)

    for name in names[:3]:
        yield from Step(post, name)  # here
    if not (yield from Confirm(f"Pay {cents} cents?")):
        return "Nothing was paid."
    return f"{cents} cents were paid."
