"""A step's exception as JSON, and back as a fresh one."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Declined,
    Flow,
    FormError,
    Step,
    StepError,
    StepFailed,
    StepInterrupted,
    StepOptions,
    ToolError,
)
from effectmcp.engine.failures import MAX_MESSAGE, failure_from, failure_to
from effectmcp.engine.steps import (
    spec_of,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)

PLAIN = StepOptions()


def around(error: Exception, **options: Any) -> Exception:
    """`error`, after it was recorded and read back."""
    made = StepOptions(**options)
    return failure_from(failure_to(error, made), made)


NOT_AS_THEMSELVES = (
    # They would end a generator.
    StopIteration,
    StopAsyncIteration,
    # They take exact arguments, and have tests below.
    UnicodeError,
    BaseExceptionGroup,
)
BUILTINS = [
    class_
    for class_ in vars(builtins).values()
    if isinstance(class_, type)
    and issubclass(class_, Exception)
    and not issubclass(class_, NOT_AS_THEMSELVES)
]


@given(
    st.sampled_from(BUILTINS),
    st.lists(st.integers() | texts | st.none() | floats, max_size=2),
)
def test_failure_builtin_comes_back_as_itself(
    class_: type[Exception], args: list[Any]
) -> None:
    try:
        error = class_(*args)
    except TypeError:
        error = class_("text")
    again = around(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again is not error


def test_failure_of_a_file_names_the_file() -> None:
    """A third argument that `args` does not hold."""
    error = FileNotFoundError(2, "No such file", "a.txt")
    assert str(around(error)) == str(error) == "[Errno 2] No such file: 'a.txt'"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(object()),
        ValueError("long " * 1_000),
        ValueError("a lone \ud800 surrogate"),
        FileNotFoundError(2, "No such file", "a.txt"),
        FileNotFoundError(2, "No such file", "\udcff.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range"),
        KeyError(("a", 1)),
        UserWarning("odd"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failure_builtin_is_still_caught_by_its_class(error: Exception) -> None:
    """L3, with any arguments: `except FileNotFoundError` around a step must work."""
    assert type(around(error)) is type(error)


@pytest.mark.parametrize("class_", [StopIteration, StopAsyncIteration])
def test_failure_that_would_end_a_generator_becomes_step_failed(
    class_: type[Exception],
) -> None:
    assert around(class_(5)) == StepFailed(class_.__name__, "5")


class CardError(Exception):
    """An author-defined exception class."""


class ExpiredError(CardError):
    pass


class DataError(Exception):
    def __init__(self, text: str, data: Any) -> None:
        super().__init__(text)
        self.data = data


class PickyError(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_failure_of_an_author_defined_class_becomes_step_failed() -> None:
    assert around(CardError("expired", 3)) == StepFailed("CardError", "('expired', 3)")


def test_failure_keeps_data_that_json_can_carry() -> None:
    assert around(DataError("no", {"a": [1]})) == StepFailed(
        "DataError", "no", {"a": [1]}
    )
    assert around(DataError("no", object())) == StepFailed("DataError", "no")


def test_failure_named_in_raises_comes_back_as_itself() -> None:
    again = around(CardError("expired", 3), raises=(KeyError, CardError))
    assert type(again) is CardError
    assert again.args == ("expired", 3)


def test_failure_below_a_class_in_raises_comes_back_as_that_class() -> None:
    again = around(ExpiredError("expired"), raises=(CardError,))
    assert type(again) is CardError
    assert str(again) == "expired"


def test_failure_that_cannot_be_built_again() -> None:
    """The constructor does not accept the exception's `args`."""
    assert around(PickyError(code=3), raises=(PickyError,)) == StepFailed(
        "PickyError", "code 3"
    )


def test_failure_whose_class_was_removed_from_raises() -> None:
    """A handler was edited since; a failure is still a failure."""
    written = failure_to(CardError("expired", 3), StepOptions(raises=(CardError,)))
    assert failure_from(written, StepOptions(raises=(KeyError,))) == StepFailed(
        "CardError", "expired, 3"
    )


@pytest.mark.parametrize("raises", [(), (BrokenError,)])
def test_failure_whose_str_raises(raises: tuple[type[Exception], ...]) -> None:
    """A broken `__str__` must not lose the step, which was performed.

    As itself, though named in `raises=`, it would break the log line that it ends in.
    """
    assert around(BrokenError(), raises=raises) == StepFailed(
        "BrokenError", "a BrokenError without a message"
    )


def test_failure_whose_str_raises_below_a_class_in_raises() -> None:
    again = around(BrokenError(), raises=(Exception,))
    assert type(again) is Exception
    assert str(again) == ""


def test_failure_text_is_cut() -> None:
    """The message is part of every later state."""
    again = around(CardError("x" * 10_000))
    assert isinstance(again, StepFailed)
    assert again.message == "x" * MAX_MESSAGE + "…"


def test_builtin_comes_back_as_itself_up_to_twice_the_text_that_is_kept() -> None:
    room = 2 * MAX_MESSAGE - len(failure_to(LookupError("", ""), PLAIN))
    for more, size in ((0, 2), (1, 1)):
        again = around(LookupError("x" * 1_000, "x" * (room - 1_000 + more)))
        assert type(again) is LookupError
        assert len(again.args) == size


def test_failure_text_is_cut_of_builtins_too() -> None:
    assert len(str(around(ValueError("x" * 10_000)))) <= MAX_MESSAGE + 1


def test_failure_text_is_made_readable() -> None:
    assert around(CardError("\ud800")) == StepFailed("CardError", "?")


@pytest.mark.parametrize("raises", [(), (Exception,)])
def test_failure_of_the_library_comes_back_as_itself(
    raises: tuple[type[Exception], ...],
) -> None:
    """The library's errors keep their class, even when `raises=` covers them."""
    for error in (ToolError("sold out"), StepError("no"), StepInterrupted("charge")):
        again = around(error, raises=raises)
        assert type(again) is type(error)
        assert str(again) == str(error)


def test_failure_of_a_tool_error_below() -> None:
    class SoldOut(ToolError):
        pass

    again = around(SoldOut("sold out"))
    assert isinstance(again, ToolError)
    assert again.message == "sold out"


def test_failure_of_other_errors_of_the_library() -> None:
    """A step that runs a flow of its own meets them; they are not about this one."""
    assert around(Declined()) == StepFailed("Declined", "The user declined.")
    assert around(FormError("no")) == StepFailed("FormError", "no")


def test_failure_of_a_group() -> None:
    again = around(ExceptionGroup("two", [ValueError("a"), KeyError("b")]))
    assert isinstance(again, StepFailed)
    assert again.type == "ExceptionGroup"


def test_failure_is_fresh_each_time() -> None:
    """The traceback of an exception that is thrown repeatedly would keep growing."""
    written = failure_to(ValueError("no"), PLAIN)
    first, second = failure_from(written, PLAIN), failure_from(written, PLAIN)
    assert first is not second


def test_flow_is_refused_as_a_result() -> None:
    def flow() -> Flow[int]:
        yield from ()
        return 1

    with pytest.raises(StepError):
        spec_of(Step(flow))
