"""Reads two pages, and knows how each of them fails.

One step declares what it raises. The other does not, so StepFailed is caught beside the
class; and `parse` is the handler's own code, which raises in the same `try`.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, StepFailed, step

app = Server("pages", version="1.0")


class PageError(Exception):
    """A page that cannot be read."""


class MissingPage(PageError):
    """A page that is not there."""


@step(raises=(MissingPage,))
def fetch(url: str) -> str:
    """Simulates an HTTP client."""
    if not url:
        raise MissingPage("no address")
    return f"title: {url}"


@step
def fetch_old(url: str) -> str:
    """Simulates an HTTP client that is not so careful."""
    if not url:
        raise PageError("no address")
    return f"title: {url}"


def parse(page: str) -> str:
    """The title of a page."""
    if ":" not in page:
        raise PageError("no title")
    return page.partition(":")[2].strip()


@app.tool
def read_pages(first: str) -> Flow[str]:
    """Read two pages."""
    second = yield from Elicit("And which other page?", str)
    try:
        one = parse((yield from fetch(first)))
    except (PageError, OSError, RuntimeError) as error:
        one = f"({error})"
    try:
        other = yield from fetch_old(second)
    except (MissingPage, StepFailed, OSError, RuntimeError):
        other = "(missing)"
    try:
        page = yield from fetch_old(second)
        other = parse(page)
    except PageError:
        pass
    return f"{one}, {other}"
