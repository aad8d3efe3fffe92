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
        found = [
            *_list(self.fields.get("content")),
            *(
                one.get("content")
                for one in _list(self.fields.get("messages"))
                if isinstance(one, dict)
            ),
            *_list(self.fields.get("contents")),
        ]
        # Of a server that sends something else, it is left out.
        return [one for one in found if isinstance(one, dict)]

    @property
    def text(self) -> str:
        """All texts in it, a line each."""
        texts = (one.get("text") for one in self.blocks)
        return "\n".join(one for one in texts if isinstance(one, str))


def _list(value: JSON) -> list[Any]:
    return value if isinstance(value, list) else []
