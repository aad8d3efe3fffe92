"""Limits on the memory that a server may take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from effectmcp.client import ChannelError, limits
from effectmcp.client.limits import memory_of, read_message

from .strategies import json_values


@given(json_values)
def test_read_message_returns_each_object_unchanged(value: Any) -> None:
    text = json.dumps({"of": value})
    for data in (text, text.encode(), bytearray(text.encode()), text.encode("utf-16")):
        assert json.dumps(read_message(data)) == text


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000, "[" * 100_000, "hello"]
)
def test_read_message_returns_none_for_anything_else(data: bytes | str) -> None:
    assert read_message(data) is None


def test_read_message_counts_parts_but_not_the_characters_of_strings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "_MOST_TOKENS", 100)
    text = '[{,\\",' * 1_000
    assert read_message(json.dumps({"text": text})) == {"text": text}
    assert read_message(json.dumps({"a": [1] * 90})) is not None
    with pytest.raises(ChannelError, match="more than 100 parts"):
        read_message(json.dumps({"a": [1] * 200}))
    with pytest.raises(ChannelError, match="more than 100 parts"):
        read_message(json.dumps({str(number): "x" for number in range(40)}))


@given(json_values)
def test_memory_of_grows_with_the_value(value: Any) -> None:
    size = memory_of(value)
    assert memory_of([value, "x" * 1_000]) > size + 1_000
    assert memory_of({"x" * 1_000: value}) > size + 1_000
