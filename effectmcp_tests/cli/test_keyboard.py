"""Bytes → keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.cli.keyboard import KeyDecoder


def decoded(*parts: bytes) -> list[str]:
    decoder = KeyDecoder()
    return [
        *(key for part in parts for key in decoder.feed(part)),
        *decoder.end(),
    ]


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"Ann\r", ["A", "n", "n", "enter"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~", ["page up", "page down"]),
        (b"\x1b", ["cancel"]),
        (b"\x1b\x1b", ["cancel", "cancel"]),
        ("é本".encode(), ["é", "本"]),
        # Keys without a use here, and bytes that are not characters.
        (b"\x1bOP\x1bb\x1b[3~\x1b[1;5C\x1b[200~", []),
        (b"a\xff\x00b", ["a", "b"]),
        # Broken off: such bytes are neither an escape key nor text.
        (b"\x1b[", []),
        (b"\x1bO", []),
        (b"\x1b[1\x1b[A", ["up"]),
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert decoded(data) == keys


def test_an_escape_is_not_a_key_until_the_input_ends() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"a\x1b") == ["a"]
    assert decoder.is_torn
    assert decoder.end() == ["cancel"]
    assert not decoder.is_torn


@given(
    st.lists(
        st.sampled_from([b"\x1b", b"[", b"O", b"1;", b"A", b"~", b"\xc3", b"\xa9"])
    )
)
def test_any_cut_gives_the_same_keys(parts: list[bytes]) -> None:
    assert decoded(*parts) == decoded(b"".join(parts))
