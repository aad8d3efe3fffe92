"""Reserves a court, and tries again where the service fails: three times.

A step may fail and be performed again; it is a step of its own each time.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, StepFailed, ToolError, step

app = Server("courts", version="1.0")


@step(replayable=True)
def reserve(hour: int) -> str:
    """Simulates a service, which keeps one reservation for each hour."""
    return f"court {hour % 4}"


@app.tool
def reserve_court() -> Flow[str]:
    """Reserve a court."""
    hour = yield from Elicit("At which hour?", int)
    for _ in range(3):
        try:
            return (yield from reserve(hour))
        except (StepFailed, OSError, RuntimeError):
            continue
    raise ToolError("The service is down.")
