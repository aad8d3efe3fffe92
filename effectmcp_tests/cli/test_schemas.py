"""Schemas of tools, as a server sends them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from effectmcp.cli.schemas import properties_of, takes_text

from ..client.strategies import json_values


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["null", "string"]},
        {"enum": ["a"]},
        {"const": "a"},
        {"anyOf": [{"type": "integer"}, {"anyOf": [{"type": "string"}]}]},
    ],
)
def test_schemas_of_strings(schema: Any) -> None:
    assert takes_text(schema)


@given(json_values)
def test_any_schema(schema: Any) -> None:
    takes_text(schema)
    assert not takes_text({"type": schema, "anyOf": None}) or schema
    assert all(isinstance(name, str) for name in properties_of(schema))
