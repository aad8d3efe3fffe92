"""Frames: any stream of bytes is split right, or refused; each message has its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.errors import TaskStoreError
from effectmcp.tasks.restate import frames
from effectmcp.tasks.restate.frames import (
    LONGEST,
    Frame,
    FrameError,
    FrameReader,
    Start,
)

from .wire import Field, Message, decode, encode, frame, unframe, varint

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
small = st.binary(max_size=200)
#: Numbers of all lengths.
numbers = st.integers(0, 2**64 - 1) | st.integers(0, 300)
#: Fields that a newer engine may add: ours have lower numbers.
unknown = st.lists(
    st.tuples(st.integers(100, 2**29 - 1), numbers | small), max_size=3
).map(encode) | st.sampled_from([b"", varint(900 * 8 + 1) + bytes(8)])


def read(*pieces: bytes) -> list[Frame]:
    reader = FrameReader()
    return [one for piece in pieces for one in reader.feed(piece)]


class TestReader:
    def test_frames_come_with_their_last_byte(self) -> None:
        reader = FrameReader()
        one, two = frame(0x0400, b"a"), frame(0xFBFF, b"", flags=0x8000)
        assert list(reader.feed(one[:-1])) == []
        assert list(reader.feed(one[-1:] + two)) == [
            Frame(0x0400, b"a"),
            Frame(0xFBFF, b""),
        ]

    @given(
        st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), small)),
        st.data(),
    )
    def test_any_split_gives_the_same_frames(
        self, given_: list[tuple[int, int, bytes]], data: st.DataObject
    ) -> None:
        stream = b"".join(
            frame(kind, body, flags=flags) for kind, flags, body in given_
        )
        cuts = data.draw(st.lists(st.integers(0, len(stream))).map(sorted))
        pieces = [
            stream[begin:end]
            for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        ]
        wanted = [Frame(kind, body) for kind, _, body in given_]
        assert read(*pieces) == wanted
        assert read(*(bytes([byte]) for byte in stream)) == wanted

    def test_long_frame_is_refused_before_its_body(self) -> None:
        head = bytes.fromhex("04000000")
        assert read(head + LONGEST.to_bytes(4, "big")) == []
        with pytest.raises(FrameError, match="a frame of 67,108,865 bytes"):
            read(head + (LONGEST + 1).to_bytes(4, "big"))

    def test_frames_before_a_long_one_are_read(self) -> None:
        reader = FrameReader()
        found = reader.feed(frame(1, b"a") + b"\xff" * 8)
        assert next(found) == Frame(1, b"a")
        with pytest.raises(FrameError):
            next(found)

    @given(st.lists(st.binary(max_size=20), max_size=5))
    def test_any_bytes_are_frames_or_refused(self, pieces: list[bytes]) -> None:
        try:
            found = read(*pieces)
        except FrameError:
            return
        stream = b"".join(pieces)
        assert sum(8 + len(one.body) for one in found) <= len(stream)


@pytest.mark.parametrize(
    ("kind", "is_command"),
    [
        (frames.START, False),
        (frames.COMMAND_ACK, False),
        (0x03FF, False),
        (frames.INPUT, True),
        (0x040E, True),
        (0x7FFF, True),
        (0x8011, False),
        (frames.SIGNAL, False),
    ],
)
def test_only_commands_count(kind: int, is_command: bool) -> None:
    assert frames.is_command(kind) is is_command


def test_frame_errors_are_errors_of_the_store() -> None:
    assert issubclass(FrameError, TaskStoreError)


# ---- reading ------------------------------------------------------------------------


class TestStart:
    @given(
        st.binary(max_size=30),
        ids,
        numbers,
        st.dictionaries(small, small, max_size=3),
        st.booleans(),
        ids,
        unknown,
        st.randoms(use_true_random=False),
    )
    def test_fields_may_come_in_any_order(
        self,
        invocation: bytes,
        name: str,
        known: int,
        state: dict[bytes, bytes],
        is_partial: bool,
        key: str,
        more: bytes,
        order: Any,
    ) -> None:
        fields: list[Field] = [
            (1, invocation),
            (2, name.encode()),
            (3, known),
            *((4, encode([(1, key), (2, value)])) for key, value in state.items()),
            (5, int(is_partial)),
            (6, key.encode()),
        ]
        order.shuffle(fields)
        found = Start.loads(more + encode(fields) + more)
        assert found == Start(invocation, name, known, state, is_partial, key)

    def test_what_is_empty_may_be_left_out(self) -> None:
        assert Start.loads(b"") == Start(b"", "", 0, {}, False, "")
        assert Start.loads(encode([(4, b"")])).state == {b"": b""}

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ([(1, 5)], "a number where bytes are due"),
            ([(2, b"\xff")], "text that is not UTF-8"),
            ([(3, b"x")], "bytes where a number is due"),
            ([(4, 5)], "a number where bytes are due"),
            ([(4, encode([(1, 5)]))], "a number where bytes are due"),
            ([(6, 1)], "a number where bytes are due"),
        ],
    )
    def test_fields_of_another_kind(self, fields: list[Field], words: str) -> None:
        with pytest.raises(FrameError, match=words):
            Start.loads(encode(fields))


@given(small, unknown)
def test_input(value: bytes, more: bytes) -> None:
    header = encode([(1, b"name"), (2, b"value")])
    body = encode([(1, header), (1, header), (14, encode([(1, value)]))])
    assert frames.input_value(more + body) == value


@given(small, numbers, unknown)
def test_signal(value: bytes, number: int, more: bytes) -> None:
    body = more + encode([(2, number), (5, encode([(1, value)]))])
    assert frames.signal_value(body) == (number, value)


def test_signals_may_have_a_name_and_no_value() -> None:
    assert frames.signal_value(encode([(3, b"mail"), (4, b"")])) == (0, b"")


@given(numbers, unknown)
def test_ack(number: int, more: bytes) -> None:
    assert frames.ack_index(more + encode([(1, number)])) == number
    assert frames.ack_index(more) == 0


READERS: list[Callable[[bytes], Any]] = [
    Start.loads,
    frames.input_value,
    frames.signal_value,
    frames.ack_index,
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x80", "cut off"),
        (b"\x08", "cut off"),
        (b"\x0a\x05abcd", "cut off"),
        (b"\x09" + bytes(7), "cut off"),
        (b"\x0d" + bytes(3), "cut off"),
        (b"\x0b", "a field of the unknown kind 3"),
        (b"\x0c", "a field of the unknown kind 4"),
        (b"\x0e", "a field of the unknown kind 6"),
        (b"\x0f", "a field of the unknown kind 7"),
        (b"\xf8\x01" + b"\xff" * 9 + b"\x02", "a number that is too long"),
        (b"\xf8\x01" + b"\x80" * 1000, "a number that is too long"),
    ],
)
def test_bytes_that_are_not_a_message(
    read: Callable[[bytes], Any], body: bytes, words: str
) -> None:
    with pytest.raises(FrameError, match=words):
        read(body)


def test_longest_number_and_fixed_ones() -> None:
    most = 2**64 - 1
    fixed = b"\x79" + bytes(8) + b"\x7d" + bytes(4)
    assert frames.ack_index(fixed + encode([(1, most)]) + fixed) == most


messages = st.recursive(
    st.binary(max_size=8),
    lambda inner: st.lists(
        st.tuples(st.integers(1, 15), numbers | inner), max_size=4
    ).map(encode),
    max_leaves=6,
)


@given(messages, st.integers(0, 60), st.sampled_from(READERS))
@example(encode([(14, 5)]), 60, frames.input_value)
@example(encode([(2, b"x")]), 60, frames.signal_value)
@example(encode([(1, b"x")]), 60, frames.ack_index)
def test_any_bytes_are_read_or_refused(
    body: bytes, end: int, read: Callable[[bytes], Any]
) -> None:
    try:
        read(body[:end])
    except FrameError:
        pass


# ---- writing ------------------------------------------------------------------------


def one(data: bytes) -> Message:
    [found] = unframe(data)
    return found


def test_bytes_that_the_engine_has_accepted() -> None:
    """Restate 1.7.12 has stored these commands."""
    stored = frames.set_state(b"row", b"x", is_acknowledged=True)
    assert stored.hex() == "040380000000000a" + "0a03726f77" + "1a030a0178"
    assert frames.end() == bytes.fromhex("0003000000000000")
    assert frames.output() == bytes.fromhex("04010000000000027200")


@given(small, small, st.booleans())
def test_set_state(key: bytes, value: bytes, is_acknowledged: bool) -> None:
    found = one(frames.set_state(key, value, is_acknowledged=is_acknowledged))
    assert (found.kind, found.flags) == (0x0403, 0x8000 * is_acknowledged)
    (first, stored), (second, wrapped) = found.fields
    assert (first, stored, second) == (1, key, 3)
    assert isinstance(wrapped, bytes)
    assert decode(wrapped) == [(1, value)]


@given(small)
def test_clear_state(key: bytes) -> None:
    assert one(frames.clear_state(key)) == Message(0x0404, 0, [(1, key)])


def test_clear_all() -> None:
    assert one(frames.clear_all()) == Message(0x0405, 0, [])


@given(ids, ids, ids, small, numbers, numbers)
def test_send(
    service: str, handler: str, key: str, value: bytes, completion: int, at: int
) -> None:
    found = one(frames.send(service, handler, key, value, completion=completion, at=at))
    fields: list[Field] = [
        (1, service.encode()),
        (2, handler.encode()),
        *([(3, value)] if value else []),
        *([(4, at)] if at else []),
        (6, key.encode()),
        (10, completion),
    ]
    assert found == Message(0x040E, 0, fields)


def test_output_and_end() -> None:
    assert unframe(frames.output() + frames.end()) == [
        Message(0x0401, 0, [(14, b"")]),
        Message(0x0003, 0, []),
    ]


def test_awaiting() -> None:
    found = one(frames.awaiting("mail"))
    assert found == Message(0x0006, 0, [(1, encode([(3, b"mail"), (5, 1)]))])


@pytest.mark.parametrize(
    ("retry", "pause"), [(0.0, 1), (0.0001, 1), (0.05, 50), (60.0, 60_000)]
)
def test_error(retry: float, pause: int) -> None:
    """A pause of zero would be left to the engine's policy."""
    found = one(frames.error("no tool “x”", retry=retry))
    fields: list[Field] = [(1, 500), (2, "no tool “x”".encode()), (8, pause)]
    assert found == Message(0x0002, 0, fields)


@given(
    st.lists(
        st.builds(frames.set_state, small, small, is_acknowledged=st.booleans())
        | st.builds(frames.error, ids, retry=st.floats(0, 1e6))
    )
)
def test_it_reads_what_it_writes(written: list[bytes]) -> None:
    assert [one.kind for one in read(b"".join(written))] == [
        one.kind for one in unframe(b"".join(written))
    ]
