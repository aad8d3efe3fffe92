from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Coroutine, Generator
from typing import Annotated, Any

import attrs
import pytest

from effectmcp import Flow, OutputError
from effectmcp.schema import output_of


@attrs.frozen
class Block:
    text: str


@attrs.frozen
class Receipt:
    number: int
    day: dt.date = dt.date(2026, 7, 28)


@attrs.frozen
class Signed(Receipt):
    by: str = "Ann"


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        None,
        type(None),
        bytes,
        Any,
        object,
        str | None,
        Annotated[str, "text"],
        Block,
        Block | str,
        list[Block],
        list[str | Block],
        tuple[str, Block],
        tuple[str | Block, ...],
        tuple[Block, ...],
        Flow[str],
        Flow[list[Block]],
        Coroutine[Any, Any, None],
    ],
)
def test_content_promises_nothing(annotation: Any) -> None:
    assert output_of(annotation, content=[Block]) is None


@pytest.mark.parametrize(
    ("annotation", "type_"),
    [
        (Receipt, "object"),
        (Flow[Receipt], "object"),
        (Generator[Any, Any, Receipt], "object"),
        (Coroutine[Any, Any, int], "integer"),
        (dict[str, int], "object"),
        (dict, "object"),
        (list[str], "array"),
        (list, "array"),
        (tuple[Block, int], "array"),
        (bool, "boolean"),
    ],
)
def test_structured_content_is_any_json(annotation: Any, type_: str) -> None:
    """It need not be an object since 2026-07-28, and is not wrapped in one."""
    made = output_of(annotation, content=[Block])
    assert made is not None
    assert made.schema["type"] == type_
    assert made.is_object == (type_ == "object")


def test_list_of_blocks_or_something_else_is_structured() -> None:
    made = output_of(list[Block | int], content=[Block])
    assert made is not None
    assert not made.is_object
    made = output_of(list[Block | Receipt] | None, content=[Block, Receipt])
    assert made is None


def test_write() -> None:
    made = output_of(list[Receipt])
    assert made is not None
    assert made.write([Receipt(1)]) == [{"number": 1, "day": "2026-07-28"}]


def test_write_lets_a_subclass_say_more() -> None:
    made = output_of(Receipt)
    assert made is not None
    assert made.write(Signed(1)) == {"number": 1, "day": "2026-07-28", "by": "Ann"}


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ([Receipt("1")], ("[0].number: must be a whole number",)),  # type: ignore[arg-type]
        ([3, {"number": 1}], ("[0]: must be an object", "[1].day: is required")),
        (3, ("the result: must be a list",)),
        ([object()], ("[0]: is of type object, which JSON cannot express",)),
        ([{"number": float("nan")}], ("[0].number: must be a finite number",)),
        ([{"\ud800": 1}], ('["\\ud800"]',)),
    ],
)
def test_write_names_what_does_not_fit(value: Any, problems: tuple[str, ...]) -> None:
    made = output_of(list[Receipt])
    assert made is not None
    with pytest.raises(OutputError) as caught:
        made.write(value)
    if "ud800" in problems[0]:
        assert "surrogates" in caught.value.problems[0]
    else:
        assert caught.value.problems == problems
    assert caught.value.problems[0] in str(caught.value)


def test_a_generator_without_arguments_returns_anything() -> None:
    assert output_of(Generator) is None


def test_no_annotation_promises_nothing() -> None:
    assert output_of(inspect.signature(lambda: 1).return_annotation) is None


def test_numbers_that_python_does_not_write_are_refused() -> None:
    output = output_of(int)
    assert output is not None
    with pytest.raises(OutputError, match="4,000 digits"):
        output.write(10**5000)
