"""A server with one tool for each thing that not every client can do."""

from __future__ import annotations

from typing import Literal

from effectmcp import (
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    ListRoots,
    Progress,
    Sample,
    Server,
)
from effectmcp.transports import asgi as asgi_transport
from effectmcp.transports import wsgi as wsgi_transport

__all__ = ["app", "asgi", "wsgi"]

app = Server("shop", version="1", drafts=True)


@app.tool
def form() -> Flow[str]:
    """A form."""
    return f"Hello, {(yield from Elicit('Who?', str))}"


@app.tool
def choices() -> Flow[str]:
    """A form with several choices."""
    sizes = yield from Elicit("Which?", list[Literal["s", "m", "l"]])
    return "Hello, " + " ".join(sizes)


@app.tool
def page() -> Flow[str]:
    """A page to open."""
    yield from ElicitUrl("Sign in", "https://shop.example/in")
    return "Hello"


@app.tool
def model() -> Flow[str]:
    """The client's model."""
    sampled = yield from Sample("Greet.")
    return f"Hello, {sampled.text}"


@app.tool
def folders() -> Flow[str]:
    """The directory of the user."""
    roots = yield from ListRoots()
    return f"Hello, {roots[0].uri}"


@app.tool
def together() -> Flow[str]:
    """Two questions at once."""
    sampled, roots = yield from Gather(Sample("Greet."), ListRoots())
    return f"Hello, {sampled.text} {len(roots)}"


@app.tool
def otherwise() -> Flow[str]:
    """A form, or a default for clients without forms."""
    return f"Hello, {(yield from Elicit('Who?', str, otherwise='nobody'))}"


@app.tool
def structured() -> dict[str, int]:
    """Structured content."""
    return {"hello": 1}


@app.tool
def progress() -> Flow[str]:
    """The progress of the task."""
    yield from Progress(1, 2)
    return "Hello"


asgi = asgi_transport.application(app)
wsgi = wsgi_transport.application(app)
