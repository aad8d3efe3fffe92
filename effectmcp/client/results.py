"""What a call came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ..canonical import JSON

__all__ = ["Result"]


@frozen
class Result:
    """What a tool, a prompt or a resource gave.

    Attributes:
        fields: The result, as the protocol has it.
        rounds: How many requests it took.
        told: The notifications that came meanwhile, where they are kept.
    """

    fields: Mapping[str, JSON] = field(repr=False)
    rounds: int
    told: tuple[Mapping[str, JSON], ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether a tool says that it failed."""
        return bool(self.fields.get("isError"))

    @property
    def structured(self) -> JSON:
        """A tool's `structuredContent`."""
        return self.fields.get("structuredContent")

    @property
    def blocks(self) -> list[Mapping[str, Any]]:
        """The blocks of a tool's result, of a prompt's messages; a resource's contents."""
        return [
            *self.fields.get("content", ()),
            *(one["content"] for one in self.fields.get("messages", ())),
            *self.fields.get("contents", ()),
        ]

    @property
    def text(self) -> str:
        """All texts in it, a line each."""
        return "\n".join(one["text"] for one in self.blocks if "text" in one)
