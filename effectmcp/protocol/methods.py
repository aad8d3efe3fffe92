"""One table: which methods there are, and what holds for each.

A method that is not in it is answered with -32601, and so is one whose capability the
server does not have; `initialize`, `ping`, `logging/setLevel` and `resources/subscribe`
are gone in this revision (2026-07-28, Changelog), and known to `exchange.handshakes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

__all__ = ["LEGACY_METHODS", "METHODS", "Capability", "Method"]

Capability = Literal["tools", "prompts", "resources", "completions"]


@frozen
class Method:
    """A row of the table.

    Attributes:
        capability: What a server must have for it; `None` for what every server has.
        name_from: The parameter that `Mcp-Name` mirrors.
    """

    capability: Capability | None = None
    name_from: Literal["name", "uri"] | None = None


METHODS: Final[Mapping[str, Method]] = {
    "server/discover": Method(),
    "tools/list": Method("tools"),
    "tools/call": Method("tools", name_from="name"),
    "prompts/list": Method("prompts"),
    "prompts/get": Method("prompts", name_from="name"),
    "resources/list": Method("resources"),
    "resources/templates/list": Method("resources"),
    "resources/read": Method("resources", name_from="uri"),
    "completion/complete": Method("completions"),
    "subscriptions/listen": Method(),
}

#: Those that the legacy revisions have as well, with what a server must have for them.
LEGACY_METHODS: Final[Mapping[str, Capability | None]] = {
    name: method.capability
    for name, method in METHODS.items()
    if name not in ("server/discover", "subscriptions/listen")
}
