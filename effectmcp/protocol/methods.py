"""One table: the methods, the revisions that have them, and the rules of each.

A request gets the error -32601 if its revision does not have the method, or if the
server does not have the capability that the method needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, get_args

from attrs import frozen

from .revisions import DRAFT, NEWEST, REVISIONS, Revision

__all__ = ["CAPABILITIES", "METHODS", "Capability", "Method", "methods_of"]

Capability = Literal["tools", "prompts", "resources", "completions", "tasks"]

#: All capabilities.
CAPABILITIES: Final[frozenset[Capability]] = frozenset(get_args(Capability))


@frozen
class Method:
    """A row of the table.

    Attributes:
        capability: The capability that a server needs for it; `None` if every server
            has the method.
        name_from: The parameter that `Mcp-Name` mirrors.
        since: The first revision that has the method; `None` for the oldest.
        until: The last revision that has it; `None` for the newest.
    """

    capability: Capability | None = None
    name_from: Literal["name", "uri", "taskId"] | None = None
    since: str | None = None
    until: str | None = None


#: The first revision with tasks: later ones speak of them in other ways.
_FIRST_TASKS: Final = min(one.version for one in REVISIONS.values() if one.tasks)

METHODS: Final[Mapping[str, Method]] = {
    "initialize": Method(until=DRAFT.version),
    "ping": Method(until=DRAFT.version),
    "logging/setLevel": Method(until=DRAFT.version),
    "server/discover": Method(since=NEWEST.version),
    "tools/list": Method("tools"),
    "tools/call": Method("tools", name_from="name"),
    "prompts/list": Method("prompts"),
    "prompts/get": Method("prompts", name_from="name"),
    "resources/list": Method("resources"),
    "resources/templates/list": Method("resources"),
    "resources/read": Method("resources", name_from="uri"),
    "resources/subscribe": Method("resources", until=DRAFT.version),
    "resources/unsubscribe": Method("resources", until=DRAFT.version),
    "completion/complete": Method("completions"),
    "subscriptions/listen": Method(since=NEWEST.version),
    "tasks/get": Method("tasks", name_from="taskId", since=_FIRST_TASKS),
    "tasks/result": Method("tasks", since=_FIRST_TASKS, until=DRAFT.version),
    "tasks/list": Method("tasks", since=_FIRST_TASKS, until=DRAFT.version),
    "tasks/input_response": Method("tasks", since=DRAFT.version, until=DRAFT.version),
    "tasks/update": Method("tasks", name_from="taskId", since=NEWEST.version),
    "tasks/cancel": Method("tasks", name_from="taskId", since=_FIRST_TASKS),
}


#: The methods of each revision. Versions are dates, which compare as strings.
_METHODS_OF: Final[Mapping[str, Mapping[str, Method]]] = {
    version: {
        name: one
        for name, one in METHODS.items()
        if (one.since is None or one.since <= version)
        and (one.until is None or version <= one.until)
    }
    for version in REVISIONS
}


def methods_of(
    revision: Revision, capabilities: Collection[Capability] = CAPABILITIES
) -> dict[str, Method]:
    """Return the rows of the methods that a revision has and a server offers.

    Args:
        revision: The revision.
        capabilities: The capabilities of the server.
    """
    return {
        name: one
        for name, one in _METHODS_OF[revision.version].items()
        if one.capability is None or one.capability in capabilities
    }
