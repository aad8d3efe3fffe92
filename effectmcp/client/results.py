"""The result of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ..canonical import JSON

__all__ = ["Result"]


@frozen
class Result:
    """The result of a tool, a prompt or a resource.

    Attributes:
        fields: The result, as defined by the protocol.
        rounds: The number of requests that it took.
        told: The notifications received during the call, if they were kept.
    """

    fields: Mapping[str, JSON] = field(repr=False)
    rounds: int
    told: tuple[Mapping[str, JSON], ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether the tool reports that it failed."""
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
        # Leave out blocks that are not objects: they are invalid.
        return [one for one in found if isinstance(one, dict)]

    @property
    def text(self) -> str:
        """The text of all blocks, separated by line ends."""
        texts = (one.get("text") for one in self.blocks)
        return "\n".join(one for one in texts if isinstance(one, str))


def _list(value: JSON) -> list[Any]:
    return value if isinstance(value, list) else []
