"""Reserves a court, and tries again where the service fails.

Wrong: it tries for ever, and the service may be down.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, StepFailed, step

app = Server("tennis", version="1.0")


@step(replayable=True)
def reserve(hour: int) -> str:
    """Simulates a service, which keeps one reservation for each hour."""
    return f"court {hour % 4}"


@app.tool
def reserve_court() -> Flow[str]:
    """Reserve a court."""
    hour = yield from Elicit("At which hour?", int)
    while True:
        try:
            return (yield from reserve(hour))  # here
        except (StepFailed, OSError, RuntimeError):
            continue
