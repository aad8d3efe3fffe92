"""Reads a web page, and reports it if it cannot be read.

Wrong: `fetch` does not declare raises=(FetchError,), so its FetchError comes back as
StepFailed, and the `except` catches nothing.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, step

app = Server("reader", version="1.0")


class FetchError(Exception):
    """The page is not there."""


@step
def fetch(url: str) -> str:
    """Simulates an HTTP client."""
    if not url.startswith("https://"):
        raise FetchError(url)
    return f"<title>{url}</title>"


@app.tool
def read_page(topic: str) -> Flow[str]:
    """Read a page."""
    url = yield from Elicit(f"Which page about {topic}?", str)
    try:
        page = yield from fetch(url)
    except FetchError:  # here
        return "There is no such page."
    return page.strip()
