"""The schema that checks all messages, if it is available."""

from __future__ import annotations

import pytest

from .wire import SCHEMA, fits


def test_the_schema_of_the_protocol_is_available() -> None:
    """Everything that is sent in these tests is checked against it."""
    if not SCHEMA.exists():
        pytest.skip(f"nothing is held against the protocol's schema: no {SCHEMA}")
    fits("TextContent", {"type": "text", "text": "x"})
    with pytest.raises(AssertionError, match="TextContent"):
        fits("TextContent", {"type": "text"})
