"""Makes up a team of three, telling each time who is in it already.

Wrong: the list that is the default belongs to the function and not to the call. It still
holds the names of earlier rounds, and of other people's calls.
"""

from __future__ import annotations

from effectmcp import Confirm, Elicit, Flow, Server

app = Server("teams", version="1.0")


def pick_members(
    count: int,
    names: list[str] = [],  # noqa: B006  # here
) -> Flow[list[str]]:
    """Ask for `count` names, one after the other."""
    for _ in range(count):
        team = ", ".join(names) or "nobody yet"
        names.append((yield from Elicit(f"In the team: {team}. Who else?", str)))
    return names


@app.tool
def make_team(project: str) -> Flow[str]:
    """Make up a team of three."""
    names = yield from pick_members(3)
    if not (yield from Confirm(f"Shall {', '.join(names)} do {project!r}?")):
        return "No team was made."
    return f"{project!r} is done by {', '.join(names)}."
