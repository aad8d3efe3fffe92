from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import SchemaError
from effectmcp.schema.functions import read_signature


def plain(a: int, b: str = "x") -> str:
    """Say it.

    Args:
        a: How often.
    """
    return b * a


class Shop:
    def order(self, a: int) -> int:
        return a

    def __call__(self, b: int) -> int:
        """Called."""
        return b


@attrs.frozen
class Made:
    c: int


@functools.wraps(plain)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return plain(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "name", "parameters"),
    [
        (plain, "plain", ["a", "b"]),
        (wrapped, "plain", ["a", "b"]),
        (functools.partial(functools.partial(plain, b="y"), 1), "plain", ["b"]),
        (Shop().order, "Shop.order", ["a"]),
        (Shop(), "Shop", ["b"]),
        (Made, "Made", ["c"]),
    ],
)
def test_signatures(function: Callable[..., Any], name: str, parameters: Any) -> None:
    found = read_signature(function)
    assert found.name == name
    assert [parameter.name for parameter in found.parameters] == parameters
    assert found.hints.keys() >= set(parameters)


def test_signature_has_the_docstring() -> None:
    assert read_signature(plain).docstring.summary == "Say it."
    assert read_signature(plain).docstring.entries == {"a": "How often."}


def test_signature_of_what_has_none_is_refused() -> None:
    with pytest.raises(SchemaError, match="dict: Python knows no signature"):
        read_signature(dict)


def described(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class Decorated:
    @described
    def __call__(self, a: int) -> int:
        return a


@pytest.mark.parametrize(
    "function",
    [
        described(functools.partial(plain, b="y")),
        described(Shop()),
        Decorated(),
        functools.lru_cache(plain),
    ],
)
def test_annotations_behind_decorators(function: Any) -> None:
    """The annotations of a partial in a decorator were reported as invalid."""
    found = read_signature(function)
    assert all(found.hints[one.name] in (int, str) for one in found.parameters)


def test_signature_that_a_decorator_wrote_has_the_last_word() -> None:
    """The function's annotations were lost, and any value was accepted."""

    @functools.wraps(plain)
    def inner(**kwargs: Any) -> Any:
        return kwargs

    parameters = inspect.signature(plain).parameters
    inner.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            parameters["a"],
            parameters["b"].replace(annotation=bool),
            inspect.Parameter("c", inspect.Parameter.KEYWORD_ONLY, annotation=float),
            inspect.Parameter("d", inspect.Parameter.KEYWORD_ONLY),
        ]
    )
    hints = read_signature(inner).hints
    assert (hints["a"], hints["b"], hints["c"]) == (int, bool, float)
    assert "d" not in hints
