"""Which errors are faults of a handler, and which are answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Declined,
    Dismissed,
    DivergenceError,
    Elicit,
    Flow,
    Gather,
    OutputError,
    Refused,
    StateSizeError,
    ToolError,
    UsageError,
    step,
)
from effectmcp.engine import Answer, Failure
from effectmcp.engine.divergence import Report
from effectmcp.errors import NondeterminismError
from effectmcp.testing import Transcript
from effectmcp.testing.conversations import HandlerNotEnded, Unscripted
from effectmcp.testing.drawn_conversations import Unsteady
from effectmcp.testing.endings import (
    ADDRESS,
    drifts,
    except_at,
    found_in,
    last_asked,
    loop_of,
    said_of,
    was_wasteful,
)
from effectmcp.testing.findings import BareFinding
from effectmcp.testing.leaked_state import StateChange
from effectmcp.testing.subjects import subject_of

from .test_conversations import Obliging, Unlucky, had


class CardError(Exception):
    """The bank said no."""


@step(raises=(CardError,))
def pay(cents: int) -> str:
    raise OSError("no test should get here")


def asks() -> Flow[str]:
    return (yield from Elicit("Who?", str))


def pays() -> Flow[str]:
    yield from pay(3)
    return (yield from pay(4))


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def judged(
    error: BaseException,
    handler: Callable[..., Any] = asks,
    transcript: Transcript | None = None,
    *,
    changed: Mapping[str, StateChange] | None = None,
    returned_at: str | None = None,
) -> BareFinding | None:
    return found_in(
        error,
        transcript or had(handler),
        subject=subject_of(handler),
        changed=changed or {},
        returned_at=returned_at,
    )


def ended(
    handler: Callable[..., Any], answers: Mapping[str, Answer] | None = None
) -> BareFinding | None:
    """Return the finding of a handler that raises."""
    transcript = had(handler, partner=Obliging(answers or {}))
    assert transcript.ending.error is not None
    return judged(transcript.ending.error, handler, transcript)


# ---- it does not repeat itself ------------------------------------------------------

REPORT = Report(
    handler="shop:order",
    round=1,
    place="elicit-1",
    recorded="elicit-1",
    current=None,
    where=None,
    cause="differs",
)


@pytest.mark.parametrize(
    "error",
    [
        DivergenceError("strict", REPORT),
        NondeterminismError("it asked twice"),
        Unsteady("this", "that", None),
    ],
)
def test_what_does_not_repeat_itself_drifts(error: Any) -> None:
    found = judged(error)
    assert found is not None
    assert (found.kind, found.where) == ("drifts", line(asks, 1))
    assert found.problem.startswith("it does something else when it is replayed: ")
    assert judged(error, pays, attrs.evolve(had(pays))) == attrs.evolve(
        found, where=None
    ), "no question was asked"


@pytest.mark.parametrize(
    "error",
    [
        DivergenceError("strict", attrs.evolve(REPORT, where="a.py:1")),
        NondeterminismError("it asked twice", where="a.py:1"),
        Unsteady("this", "that", "a.py:1"),
    ],
)
def test_a_drift_may_have_a_place(error: Any) -> None:
    found = judged(error)
    assert found is not None
    assert found.where == "a.py:1"


def test_what_changed_meanwhile_is_reported() -> None:
    changed = {
        "global a": StateChange(
            "global a", "the global a was 1 and is 2 now", None, False
        ),
        "global b": StateChange(
            "global b", "the global b was 3 and is 4 now", None, False
        ),
    }
    said = "the global a was 1 and is 2 now; the global b was 3 and is 4 now"
    assert said_of(changed) == said
    assert drifts("it", None, {}).advice == ""
    assert drifts("it", None, changed).advice == f"Meanwhile {said}."
    address = drifts("it has <Till object at 0x7f>", None, changed).advice
    assert address == f"{ADDRESS} Meanwhile {said}."


# ---- the engine refuses what it does ------------------------------------------------


def test_a_conversation_of_another_handler_is_not_a_fault() -> None:
    assert judged(Unscripted("Confirm('?')", None)) is None


def swallows() -> Flow[str]:
    while True:
        try:
            return (yield from Elicit("Who?", str))
        except:  # noqa: E722
            pass


def test_what_cannot_be_ended() -> None:
    found = judged(HandlerNotEnded(line(swallows, 3)))
    assert found is not None
    assert (found.kind, found.where) == ("swallows", line(swallows, 4))
    found = judged(HandlerNotEnded(line(asks, 1)))
    assert found is not None
    assert found.where == line(asks, 1)


def test_the_step_that_takes_most_of_a_state() -> None:
    transcript = had(pays)
    largest = [("step-2", 600), ("step-1", 10)]
    found = judged(StateSizeError(1200, 1000, largest), pays, transcript)
    assert found is not None
    assert (found.kind, found.where) == ("size", line(pays, 2))


@pytest.mark.parametrize("largest", [[("step-1", 300)], [("elicit-1", 600)], []])
def test_a_state_of_many_small_things(largest: Any) -> None:
    def pays_and_asks() -> Flow[str]:
        yield from pay(3)
        return (yield from Elicit("Who?", str))

    found = judged(StateSizeError(1200, 1000, largest), pays_and_asks)
    assert found is not None
    assert found.where == line(pays_and_asks, 2), "the last question"


def test_a_result_that_is_not_what_it_promised() -> None:
    error = OutputError(["a: must be str", "b: must be int"])
    found = judged(error)
    assert found is not None
    assert (found.kind, found.where) == ("result", line(asks, 0))
    assert found.problem == (
        "its result is not what it promised: a: must be str; b: must be int"
    )
    found = judged(error, returned_at="a.py:2")
    assert found is not None
    assert found.where == "a.py:2"


def test_a_usage_error_is_a_misuse() -> None:
    found = judged(UsageError("no", where="a.py:1"))
    assert found == BareFinding("misuse", "no", "a.py:1")
    assert judged(UsageError("no"), returned_at="a.py:2") == BareFinding(
        "misuse", "no", "a.py:2"
    )


# ---- it asks too often --------------------------------------------------------------


def asks_again() -> Flow[str]:
    while True:
        try:
            name = yield from Elicit("Who?", str)
        except Refused:
            continue
        if name != "a":
            return name


def asks_for_more() -> Flow[str]:
    yield from Gather(Elicit("One?", str), Elicit("Other?", str))
    for n in range(20):
        yield from Elicit(f"{n}?", str)
    return "."


def pauses() -> Flow[str]:
    for n in range(20):
        yield from Elicit(f"{n % 2}?", str)
        yield from Checkpoint()
    return "."


def asks_the_same_at_last() -> Flow[str]:
    yield from Gather(Elicit("One?", str), Elicit("Other?", str))
    while True:
        yield from Elicit("Who?", str)


def test_a_question_that_is_asked_without_end() -> None:
    for handler, offset in ((asks_again, 3), (asks_the_same_at_last, 3)):
        found = ended(handler)
        assert found is not None
        assert (found.kind, found.where) == ("rounds", line(handler, offset))
        assert "it asks Elicit(message='Who?', form=str) repeatedly" in found.problem
        assert found.advice.startswith("Say in the form what fits")


@pytest.mark.parametrize("handler", [asks_for_more, pauses])
def test_many_questions(handler: Any) -> None:
    found = ended(handler)
    assert found is not None
    assert found.kind == "rounds"
    assert found.problem == "it asks in more rounds than clients tolerate"
    assert found.advice == "Ask several questions at once with Gather(...)."


def refuses(refusal: Answer) -> dict[str, Answer]:
    return {f"elicit-{n}": refusal for n in range(1, 30)}


@pytest.mark.parametrize("refusal", [Declined(), Dismissed()])
def test_a_user_who_refuses_without_end(refusal: Answer) -> None:
    found = ended(asks_again, refuses(refusal))
    assert found is not None
    assert (found.kind, found.where) == ("loops", line(asks_again, 3))
    assert found.transcript is not None
    assert loop_of(found.transcript) == found
    assert loop_of(had(asks)) is None


def test_rounds_that_a_client_wastes() -> None:
    def asks_and_asks() -> Flow[str]:
        for n in range(9):
            yield from Elicit(f"{n}?", str)
        return "."

    answers = refuses(Accepted("nonsense"))
    transcript = had(asks_again, partner=Obliging(answers))
    assert was_wasteful(transcript)
    assert not was_wasteful(had(asks_and_asks))
    assert ended(asks_again, {"elicit-1": Accepted("nonsense")}) is None


def test_the_last_question() -> None:
    assert last_asked(had(asks)) == line(asks, 1)
    assert last_asked(had(pays)) is None


# ---- answers to the client, and crashes ---------------------------------------------


def says_no() -> Flow[str]:
    yield from Confirm("Sure?")
    raise ToolError("no")


def crashes() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    return name[5]


def crashes_after_a_step() -> Flow[str]:
    name = yield from pay(3)
    return name[9]


def test_an_answer_to_the_client_is_not_a_fault() -> None:
    assert ended(says_no) is None
    assert ended(asks, {"elicit-1": Declined()}) is None


def test_a_crash() -> None:
    found = ended(crashes)
    assert found is not None
    assert (found.kind, found.where) == ("crash", line(crashes, 2))
    assert found.problem == "it raises IndexError: string index out of range"
    assert found.advice.endswith("or handle it.")


def test_a_crash_that_may_be_the_fault_of_what_is_drawn() -> None:
    found = ended(crashes_after_a_step)
    assert found is not None
    assert found.advice.endswith("pass its results in steps=.")
    found = judged(KeyError("a"))
    assert found is not None
    assert found.where == line(asks, 0), "it was raised nowhere"


@pytest.mark.parametrize(
    "error", [CardError("no"), LookupError("no"), OSError(2, "no")]
)
def test_what_a_step_raised_is_let_pass(error: Exception) -> None:
    transcript = had(pays, partner=Unlucky(type(pay(3)), Failure(error)))
    raised = transcript.ending.error
    assert raised is not None
    assert judged(raised, pays, transcript) is None
    found = judged(ValueError("another"), pays, transcript)
    assert found is not None
    assert found.kind == "crash"


# ---- the line of an except ----------------------------------------------------------


def test_the_except_that_catches_everything(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "try:\n"
        "    try:\n"
        "        ask()\n"
        "    except OSError:\n"
        "        pass\n"
        "except (ValueError, BaseException):\n"
        "    pass\n"
    )
    assert except_at(f"{file}:3") == f"{file}:6"
    assert except_at(f"{file}:7") is None
    file.write_text("try:\n")
    assert except_at(f"{file}:1") is None
    assert except_at(None) is None
    assert except_at("/no/such/file.py:1") is None
