from __future__ import annotations

import copy
import pickle
from typing import get_args

import pytest

import effectmcp
from effectmcp import (
    BudgetError,
    Cancelled,
    CanonicalError,
    ClientError,
    ClientFailed,
    Declined,
    Dismissed,
    DivergenceError,
    EffectMCPError,
    FlowError,
    FormError,
    InvalidAnswer,
    NondeterminismError,
    NotAnEffectError,
    Refused,
    Restarted,
    Signal,
    StepError,
    StepFailed,
    StepInterrupted,
    Suspended,
    ToolError,
    TooManyRounds,
    Unsupported,
    UsageError,
    errors,
)
from effectmcp.engine import Report
from effectmcp.errors import KeysError, StateError, StateReason, StateSizeError

REPORT = Report(
    handler="shop:order",
    round=2,
    place="entry 1",
    recorded="elicit-1 (accepted)",
    current="confirm-1",
    where="shop.py:12",
    cause="differs",
)

FLOW_ERRORS: list[FlowError] = [
    Declined(),
    Dismissed(),
    Unsupported("Sample"),
    InvalidAnswer(["age: must be a whole number"]),
    ClientFailed(-32000, "no", {"why": ["busy"]}),
    TooManyRounds(9),
    TooManyRounds(2, state_only=True),
    StepFailed("CardError", "card expired", {"card": 1}),
    StepInterrupted("shop:charge"),
]

USAGE_ERRORS: list[type[UsageError]] = [
    UsageError,
    NotAnEffectError,
    FormError,
    CanonicalError,
    StepError,
    NondeterminismError,
    BudgetError,
    KeysError,
]


def test_base_classes_of_the_errors() -> None:
    """Split by who must act, as the module's docstring draws it."""
    assert all(issubclass(class_, UsageError) for class_ in USAGE_ERRORS)
    for class_ in (UsageError, DivergenceError, FlowError, ToolError):
        assert class_.__base__ is EffectMCPError
    assert EffectMCPError.__base__ is Exception
    assert {Declined.__base__, Dismissed.__base__} == {Refused}
    for client_error in (Unsupported, InvalidAnswer, ClientFailed, TooManyRounds):
        assert client_error.__base__ is ClientError
    for flow_error in (Refused, ClientError, StepFailed, StepInterrupted):
        assert flow_error.__base__ is FlowError


CLASSES = [name for name in errors.__all__ if isinstance(vars(errors)[name], type)]


def test_tree_is_drawn_in_the_docstring() -> None:
    for name in CLASSES:
        assert errors.__doc__ is not None
        assert name in errors.__doc__


def test_signals_are_not_exceptions() -> None:
    """`except Exception` in a handler lets them pass."""
    for class_ in (Signal, Suspended, Restarted, Cancelled):
        assert issubclass(class_, Signal)
        assert not issubclass(class_, Exception)


def test_package_exports_every_error() -> None:
    """Callers that catch one need not know its module."""
    assert set(CLASSES) <= set(effectmcp.__all__)


@pytest.mark.parametrize("class_", USAGE_ERRORS)
def test_usage_error_names_its_place(class_: type[UsageError]) -> None:
    error = class_("write yield from", where="shop.py:12")
    assert (error.problem, error.where) == ("write yield from", "shop.py:12")
    assert str(error) == "shop.py:12: write yield from"


def test_usage_error_without_a_place() -> None:
    error = UsageError("write yield from")
    assert error.where is None
    assert str(error) == "write yield from"


def test_divergence_error_keeps_the_report() -> None:
    error = DivergenceError("stop", REPORT)
    assert (error.verdict, error.report) == ("stop", REPORT)
    assert str(error) == str(REPORT)


def test_divergence_error_public_text_names_no_source() -> None:
    assert DivergenceError.PUBLIC == (
        "The server changed while this call was in progress; start again."
    )
    assert DivergenceError("stop", REPORT).public == DivergenceError.PUBLIC


def test_divergence_error_of_a_parked_flow_states_that_it_waits() -> None:
    error = DivergenceError("park", REPORT)
    assert error.public == "The server changed while this was in progress; it waits."


@pytest.mark.parametrize("error", FLOW_ERRORS, ids=repr)
def test_flow_error_is_a_value(error: FlowError) -> None:
    """A script answers with one, so equal fields make equal errors, and equal hashes."""
    twin = copy.deepcopy(error)
    assert twin == error
    assert hash(twin) == hash(error)
    assert [other for other in FLOW_ERRORS if other == error] == [error]


@pytest.mark.parametrize("error", FLOW_ERRORS, ids=repr)
def test_flow_error_survives_pickling(error: FlowError) -> None:
    """A step may run in a process of its own."""
    again = pickle.loads(pickle.dumps(error))
    assert again == error
    assert str(again) == str(error)


def test_flow_error_is_not_equal_to_others() -> None:
    assert Declined() != Dismissed()
    assert Unsupported("Sample") != Unsupported("Elicit")
    assert Declined() != "The user declined."


def test_flow_error_repr_shows_the_fields() -> None:
    assert repr(Declined()) == "Declined()"
    assert repr(Unsupported("Sample")) == "Unsupported(kind='Sample')"
    assert repr(StepFailed("E", "m")) == (
        "StepFailed(type='E', message='m', data=None)"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Declined(), "The user declined."),
        (Dismissed(), "The user dismissed the question."),
        (
            Unsupported("Sample"),
            (
                "The client does not support Sample."
                " Give otherwise=, or test ClientSupports() first."
            ),
        ),
        (
            InvalidAnswer(["age: too low", "name: is required"]),
            "The answers did not fit the question: age: too low; name: is required",
        ),
        (ClientFailed(-32000, "no"), "The client failed to answer: no (-32000)"),
        (StepFailed("CardError", "expired"), "CardError: expired"),
    ],
    ids=repr,
)
def test_flow_error_text(error: FlowError, text: str) -> None:
    assert str(error) == text


def test_too_many_rounds_names_the_limit_and_gather() -> None:
    assert "9 rounds" in str(TooManyRounds(9))
    assert "Gather" in str(TooManyRounds(9))


def test_too_many_rounds_of_checkpoints_does_not_advise_gather() -> None:
    text = str(TooManyRounds(2, state_only=True))
    assert "2 checkpoints" in text
    assert "Gather" not in text


def test_step_interrupted_names_the_step_and_the_reason() -> None:
    text = str(StepInterrupted("shop:charge"))
    assert "shop:charge" in text
    assert "at_most_once" in text


def test_flow_errors_can_be_matched_by_position() -> None:
    said = []
    for error in FLOW_ERRORS:
        match error:
            case Declined() | Dismissed():
                said.append("refused")
            case Unsupported(kind):
                said.append(kind)
            case InvalidAnswer((problem,)):
                said.append(problem)
            case ClientFailed(code, message):
                said.append(f"{code} {message}")
            case TooManyRounds(limit):
                said.append(f"{limit}")
            case StepFailed(type_, message):
                said.append(f"{type_} {message}")
            case StepInterrupted(name):
                said.append(name)
            case _:
                raise AssertionError(error)
    assert said == [
        "refused",
        "refused",
        "Sample",
        "age: must be a whole number",
        "-32000 no",
        "9",
        "2",
        "CardError card expired",
        "shop:charge",
    ]


def test_invalid_answer_keeps_its_own_tuple() -> None:
    problems = ["a"]
    error = InvalidAnswer(problems)
    problems.append("b")
    assert error.problems == ("a",)


def test_tool_error_text_is_the_message() -> None:
    error = ToolError("out of stock")
    assert str(error) == error.message == "out of stock"
    match error:
        case ToolError(message):
            assert message == "out of stock"


def test_state_size_error_names_the_largest_and_what_to_do() -> None:
    error = StateSizeError(70_000, 65_536, [("elicit-1", 60_000), ("step-2", 5)])
    assert isinstance(error, UsageError)
    assert (error.size, error.limit) == (70_000, 65_536)
    assert error.largest == (("elicit-1", 60_000), ("step-2", 5))
    for part in ("70,000", "65,536", "elicit-1 (60,000 bytes)", "keep=", "Restart("):
        assert part in str(error)


@pytest.mark.parametrize("reason", get_args(StateReason))
def test_state_error_reveals_nothing_to_the_client(reason: StateReason) -> None:
    """Every reason is the same error: the difference is for logs."""
    error = StateError(reason)
    assert error.reason == reason
    assert str(error) == StateError.PUBLIC == "Invalid or expired requestState"
    assert StateError.CODE == -32602
