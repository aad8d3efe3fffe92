"""One table: which methods there are, and what holds for each.

A method that is not in it is answered with -32601, and so is one whose capability the
server does not have; `initialize`, `ping`, `logging/setLevel` and `resources/subscribe`
are gone in this revision (2026-07-28, Changelog).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

__all__ = ["METHODS", "Capability", "Method"]

Capability = Literal["tools", "prompts", "resources", "completions"]


@frozen
class Method:
    """A row of the table.

    Attributes:
        capability: What a server must have for it; `None` for what every server has.
        name_from: The parameter that `Mcp-Name` mirrors.
        may_ask: Whether its result may be `input_required` (MRTR, Supported Requests).
        is_cacheable: Whether its result says how long it is fresh (Caching).
    """

    capability: Capability | None = None
    name_from: Literal["name", "uri"] | None = None
    may_ask: bool = False
    is_cacheable: bool = False


METHODS: Final[Mapping[str, Method]] = {
    "server/discover": Method(is_cacheable=True),
    "tools/list": Method("tools", is_cacheable=True),
    "tools/call": Method("tools", name_from="name", may_ask=True),
    "prompts/list": Method("prompts", is_cacheable=True),
    "prompts/get": Method("prompts", name_from="name", may_ask=True),
    "resources/list": Method("resources", is_cacheable=True),
    "resources/templates/list": Method("resources", is_cacheable=True),
    "resources/read": Method(
        "resources", name_from="uri", may_ask=True, is_cacheable=True
    ),
    "completion/complete": Method("completions"),
    "subscriptions/listen": Method(),
}
