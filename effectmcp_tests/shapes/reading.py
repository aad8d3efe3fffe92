"""A type as the only parameter of a tool."""

from __future__ import annotations

from typing import Any

import pytest

from effectmcp import ArgumentsError
from effectmcp.schema import Arguments, input_of

__all__ = ["problems", "read", "schema_of"]


def _arguments(annotation: Any) -> Arguments:
    def tool(x: Any) -> None: ...

    tool.__annotations__["x"] = annotation
    return input_of(tool)


def schema_of(annotation: Any) -> Any:
    """Return the schema that a client is shown."""
    return _arguments(annotation).schema["properties"]["x"]


def read(annotation: Any, value: Any) -> Any:
    """Return the argument for a value that fits."""
    return _arguments(annotation).read({"x": value})["x"]


def problems(annotation: Any, value: Any) -> list[str]:
    """Return the problems of a value that does not fit."""
    with pytest.raises(ArgumentsError) as caught:
        read(annotation, value)
    return list(caught.value.problems)
