from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NewType, Optional, Union
from uuid import UUID

import pytest

from effectmcp import Format
from effectmcp.schema import input_of
from effectmcp.shapes.unions import identity_of, is_union, members_of, unwrapped


class Colour(enum.Enum):
    RED = "red"


UserId = NewType("UserId", int)
Mail = Annotated[str, Format("email")]


def test_unions() -> None:
    assert is_union(int | str)
    assert is_union(Optional[Literal["a"]])  # noqa: UP045
    assert not is_union(list[int])


def test_unwrapped() -> None:
    assert unwrapped(Annotated[Final[Annotated[UserId, "a"]], "b"]) == (int, ["a", "b"])


@pytest.mark.parametrize(
    ("members", "ordered"),
    [
        ((str, int), [int, str]),
        ((float, int, bool), [bool, int, float]),
        ((None, Any, str), [str, Any, type(None)]),
        ((str, Mail, dt.date, dt.datetime), [dt.datetime, dt.date, Mail, str]),
        ((str, bytes, Decimal, UUID), [UUID, Decimal, bytes, str]),
        (
            (str, Colour, list[int], Literal["a"]),
            [Literal["a"], Colour, str, list[int]],
        ),
    ],
)
def test_most_specific_members_come_first(members: Any, ordered: Any) -> None:
    assert members_of(Union[members]) == ordered  # noqa: UP007
    assert members_of(Union[tuple(reversed(members))]) == ordered  # noqa: UP007


def test_members_that_are_equal_have_one_identity() -> None:
    assert identity_of(list[int | str]) == identity_of(list[str | int])
    assert identity_of(Literal["a", "b"]) == identity_of(Literal["b", "a"])
    assert identity_of(list[int]) != identity_of(list[str])
    assert identity_of(Mail) != identity_of(str)
    assert identity_of(...) == "Ellipsis"


def test_order_of_writing_means_nothing() -> None:
    """cattrs remembers a hook by the type, and these two are equal."""

    def first(x: list[dt.date | str]) -> None: ...
    def second(x: list[str | dt.date]) -> None: ...

    value = {"x": ["2026-07-28", "soon"]}
    assert input_of(first).read(value) == input_of(second).read(value)
    assert input_of(first).read(value)["x"] == [dt.date(2026, 7, 28), "soon"]
    assert input_of(first).schema == input_of(second).schema
