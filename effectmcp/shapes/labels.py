"""Objects in `Annotated` that describe a value, and do not limit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import field, frozen

__all__ = ["Choices", "Format", "Header", "Label", "Title"]


@frozen
class Format:
    """The format of a string, as in `Annotated[str, Format("email")]`.

    One of email, uri, date and date-time.
    """

    name: str


@frozen
class Title:
    """The label of a field in the client: `Annotated[int, Title("Your age")]`."""

    text: str


@frozen(init=False)
class Choices:
    """The titles of choices: `Annotated[Literal["s", "l"], Choices(s="S", l="L")]`.

    Pass keys that are not Python names in a mapping: `Choices({"#f00": "Red"})`.
    """

    titles: Mapping[str, str] = field(hash=False)

    def __init__(self, titles: Mapping[str, str] | None = None, /, **more: str) -> None:
        object.__setattr__(self, "titles", {**(titles or {}), **more})


@frozen
class Header:
    """The HTTP header that repeats an argument: `Annotated[str, Header("Region")]`.

    HTTP clients send it as `Mcp-Param-Region`, so that proxies can route a tool's call
    without reading its body. Every proxy can read the value.
    """

    name: str


#: A string is a description.
Label: TypeAlias = str | Title | Format | Choices | Header
