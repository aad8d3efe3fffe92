"""Search the user's projects, and help users whose client cannot be asked.

    effectmcp serve examples/search.py:app

The tool `search` needs to know which project is open, and only the client knows that. So
it asks for the roots, which does not disturb the user. If the client has no roots, the
result tells the user what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from effectmcp import ClientSupports, Elicit, Flow, ListRoots, Server, step

app = Server("search", version="1.0")

#: A small index of the files of all users.
FILES: Final[Mapping[str, str]] = {
    "file:///home/ann/repo-a/rounds.go": "func resume(token string)",
    "file:///home/ann/repo-a/server.go": "func serve(port int)",
    "file:///home/ann/repo-ab/rounds.go": "func resume(nothing string)",
    "file:///home/ann/repo-b/main.py": "def resume(token):",
}


@app.tool(read_only=True)
def search(text: str) -> Flow[str]:
    """Search the projects that the user has open."""
    roots = yield from ListRoots(key="client_roots", otherwise=None)
    if roots is None:
        return (
            "This tool searches where you are working, but your client does not say"
            " where that is. To use it:\n"
            "1. Update to a client that offers roots\n"
            "2. Open a project in it"
        )
    found = yield from find(text, [root.uri for root in roots])
    return "\n".join(found) or f"Nothing here contains {text!r}."


@step
def find(text: str, places: list[str]) -> list[str]:
    """Return the files below `places` that contain `text`."""
    # The slash is needed: repo-ab is not in repo-a.
    folders = tuple(place.rstrip("/") + "/" for place in places)
    return [
        uri
        for uri, content in FILES.items()
        if uri.startswith(folders) and text in content
    ]


@app.tool
def answer(question: str) -> Flow[str]:
    """Have the user answer a question."""
    if not (yield from ClientSupports(Elicit)):
        return (
            "This tool requires a client that can ask its user. Please use one that"
            " supports elicitation."
        )
    said = yield from Elicit(f"Please answer: {question}", str, key="user_answer")
    return f"You answered: {said}"
