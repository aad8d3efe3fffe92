"""Renames a project, and asks again until there is a name that will do.

Wrong: `except BaseException` also swallows what ends the generator between two rounds,
so it can never be ended, and the server has to put it aside.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, step

app = Server("projects", version="1.0")


@step
def rename(old: str, new: str) -> None:
    """Simulates the archive, where renaming twice changes nothing."""


@app.tool
def rename_project(old: str) -> Flow[str]:
    """Rename a project."""
    new = ""
    while not new:
        try:
            answer = yield from Elicit(f"What shall {old!r} be called?", str)
            new = answer.strip() or "Untitled"
            yield from rename(old, new)
        except BaseException:  # here
            continue  # in all cases, ask again
    return f"{old!r} is now called {new!r}."
