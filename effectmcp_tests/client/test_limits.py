"""Limits on the time and the memory that a server may take."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
import trio
from hypothesis import given

from effectmcp.client import ChannelError, limits
from effectmcp.client.limits import (
    Room,
    deadline,
    memory_of,
    read_message,
    shortest,
)

from .strategies import json_values


def test_shortest_ignores_times_without_limit() -> None:
    assert shortest(None, 3.0, 2.0) == 2.0
    assert shortest(None, None) is None


async def test_deadline_names_the_missing_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(TimeoutError, match=r"^no answer to ping within 0\.5 s$"):
        with deadline(0.5, "answer to ping"):
            await anyio.sleep(1)
    with deadline(None, "answer"):
        await anyio.sleep(1)
    with deadline(5, "answer") as scope:
        scope.cancel()
        await anyio.sleep(1)


async def test_deadline_of_the_caller_is_no_timeout_of_the_block(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with anyio.move_on_after(1), deadline(2, "answer"):
        await anyio.sleep(3)


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


async def test_room_is_taken_until_some_is_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    room = Room(10)
    await room.take(9)
    await room.take(100)  # a message is taken whole, and memory is limited by two
    with anyio.move_on_after(1) as scope:
        await room.take(1)
    assert scope.cancelled_caught
    async with anyio.create_task_group() as group:
        group.start_soon(room.take, 1)
        await anyio.sleep(1)
        room.give_back(9)
        await anyio.sleep(1)
        room.give_back(100)
