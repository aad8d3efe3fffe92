"""One table: which methods there are, in which revisions, and what holds for each.

A method that a revision does not have is answered with -32601, and so is one whose
capability the server does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

from .revisions import DRAFT, NEWEST, REVISIONS, Revision

__all__ = ["METHODS", "Capability", "Method", "find_method"]

Capability = Literal["tools", "prompts", "resources", "completions"]


@frozen
class Method:
    """A row of the table.

    Attributes:
        capability: What a server must have for it; `None` for what every server has.
        name_from: The parameter that `Mcp-Name` mirrors.
        since: The first revision that has it; `None` for the oldest.
        until: The last one; `None` for the newest.
    """

    capability: Capability | None = None
    name_from: Literal["name", "uri"] | None = None
    since: str | None = None
    until: str | None = None


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
}


#: By revision. Versions are dates, and compare as such.
_METHODS_OF: Final[Mapping[str, Mapping[str, Method]]] = {
    version: {
        name: one
        for name, one in METHODS.items()
        if (one.since is None or one.since <= version)
        and (one.until is None or version <= one.until)
    }
    for version in REVISIONS
}


def find_method(name: str, revision: Revision) -> Method | None:
    """Return the row of a method, if `revision` has it."""
    return _METHODS_OF[revision.version].get(name)
