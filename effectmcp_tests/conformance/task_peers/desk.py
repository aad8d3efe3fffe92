"""The server that the clients of other SDKs call: a tool for each way to be a task."""

from __future__ import annotations

from effectmcp import (
    Confirm,
    Detach,
    Elicit,
    Flow,
    Sample,
    Server,
    Sleep,
    Status,
    ToolError,
)
from effectmcp.tasks import SqliteTasks

__all__ = ["app"]

app = Server("desk", tasks=SqliteTasks(poll_interval=0.1))


@app.tool
def greet(name: str) -> str:
    """Greet, without a task."""
    return f"Hello, {name}"


@app.tool(task="required")
def survey(topic: str) -> Flow[str]:
    """Ask twice about a topic."""
    name = yield from Elicit("Who are you?", str)
    color = yield from Elicit("Which color?", str)
    return f"{name} likes {topic} in {color}"


@app.tool(task="optional")
def audit() -> Flow[str]:
    """Fail."""
    yield from Status("Auditing")
    raise ToolError("The books are closed")


@app.tool(task="required")
def rest() -> Flow[str]:
    """Run until it is cancelled."""
    yield from Sleep(24 * 3600)
    return "rested"


@app.tool(task="deferred")
def order(title: str) -> Flow[str]:
    """Ask, become a task, and ask again."""
    if not (yield from Confirm(f"Order {title}?")):
        return "Nothing ordered"
    yield from Detach()
    name = yield from Elicit("Who are you?", str)
    return f"Ordered {title} for {name}"


@app.tool
def sign() -> Flow[str]:
    """Ask the user, without a task."""
    name = yield from Elicit("Who are you?", str)
    return f"Signed: {name}"


@app.tool
def summarize() -> Flow[str]:
    """Ask the model, without a task."""
    written = yield from Sample("Summarize.", max_tokens=100)
    return f"Summary: {written.text}"
