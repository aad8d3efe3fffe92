"""The one converter: exactly, or not at all. Its round trips are in engine/test_steps."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import pytest
from attrs import frozen

from effectmcp.converter import converter, explained, plain


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Row(NamedTuple):
    number: int
    word: Word


@frozen
class Shelf:
    rows: list[Row]


def test_converter_is_made_once() -> None:
    assert converter() is converter()


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("3", int),
        (3.0, int),
        (True, int),
        (1, bool),
        (3, str),
        (None, str),
        ("x", type(None)),
    ],
)
def test_converter_does_not_coerce(value: Any, type_: Any) -> None:
    with pytest.raises(TypeError, match="is not"):
        converter().structure(value, type_)


def test_converter_takes_a_whole_number_for_a_float() -> None:
    """JSON has one kind of number."""
    assert converter().structure(1, float) == 1.0


def test_converter_brings_enums_back() -> None:
    assert converter().structure(1, Level) is Level.LOW
    assert converter().structure("hello", Word) is Word.HELLO


def test_converter_brings_rows_back() -> None:
    shelf = Shelf([Row(1, Word.HELLO)])
    written = plain(converter().unstructure(shelf))
    assert written == {"rows": [[1, "hello"]]}
    assert converter().structure(written, Shelf) == shelf


def test_sets_are_written_in_one_order() -> None:
    assert converter().unstructure({"b", "a", "c"}, set[str]) == ["a", "b", "c"]


def test_explained_gives_paths() -> None:
    with pytest.raises(Exception, match="structuring") as caught:
        converter().structure({"rows": [[1, "hello"], ["x", "hello"]]}, Shelf)
    assert isinstance(caught.value, Exception)
    assert "$.rows[1]" in explained(caught.value)


def test_explained_of_another_error_is_its_message() -> None:
    assert explained(ValueError("as it is")) == "as it is"
