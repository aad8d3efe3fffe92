"""Conversations that are judged one after the other."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Elicit,
    Flow,
    Step,
    TooManyRounds,
    step,
)
from effectmcp.compat import awaits_effects
from effectmcp.testing import Transcript
from effectmcp.testing.chance import FLOW_ID
from effectmcp.testing.conversations import WATCHED, run_conversation
from effectmcp.testing.drawn_conversations import Looping
from effectmcp.testing.findings import Fault, Finding
from effectmcp.testing.judging import Judge
from effectmcp.testing.performing import Performer
from effectmcp.testing.subjects import subject_of

from .test_conversations import had
from .test_idempotency_keys import World
from .test_refusals import does_not_use_it


@step
def look(name: str) -> str:
    raise OSError("no test should get here")


def line(function: Callable[..., Any], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


def judge_of(handler: Callable[..., Any]) -> Judge:
    return Judge(subject_of(handler), Performer(False))


def have(judge: Judge, answers: Any = None, **arguments: Any) -> None:
    """Have a conversation with an obliging user."""
    partner = World("a", answers)
    judge.have(
        lambda watch: run_conversation(
            judge.subject, arguments, partner, WATCHED, flow_id=FLOW_ID, around=watch
        )
    )


def told(judge: Judge, transcript: Transcript) -> None:
    judge.have(lambda watch: transcript)


def fault_of(judge: Judge, answers: Any = None, **arguments: Any) -> Finding:
    with pytest.raises(Fault) as caught:
        have(judge, answers, **arguments)
    return caught.value.finding


# ---- faults that are raised ---------------------------------------------------------


def asks() -> Flow[str]:
    return (yield from Elicit("Who?", str))


def reads_a_clock() -> Flow[str]:
    yield from Confirm("Sure?")
    return f"{time.time()}"


def fills_a_default(names: list[str] = []) -> Flow[str]:  # noqa: B006
    names.append((yield from Elicit("Who?", str)))
    return f"{len(names) > 0}"


def crashes() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    return name[9]


def breaks_its_promise() -> Flow[int]:
    return (yield from Elicit("Who?", str))  # type: ignore[return-value]


def asks_until_accepted() -> Flow[str]:
    while True:
        if (yield from Confirm("Sure?")):
            return "."


def forgets_a_flow() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    asks()
    return name


async def notify(name: str) -> str:
    return name


@awaits_effects
async def forgets_to_wait() -> str:
    name = await Elicit("Who?", str)
    notify(name)  # type: ignore[unused-coroutine]
    return name


@pytest.mark.parametrize(
    ("handler", "kind", "offset"),
    [
        (reads_a_clock, "unrecorded", 2),
        (fills_a_default, "default", 0),
        (crashes, "crash", 2),
        (breaks_its_promise, "result", 1),
        (asks_until_accepted, "loops", 2),
        (forgets_a_flow, "forgotten", 2),
    ],
)
def test_a_fault_is_raised(handler: Any, kind: str, offset: int) -> None:
    judge = judge_of(handler)
    finding = fault_of(judge)
    assert (finding.kind, finding.where) == (kind, line(handler, offset))
    assert (finding.subject, judge.count) == (handler.__name__, 1)
    assert finding.transcript is not None


def test_a_coroutine_that_is_never_awaited() -> None:
    finding = fault_of(judge_of(forgets_to_wait))
    assert finding.kind == "forgotten"
    assert "'notify' was never awaited" in finding.problem


def warns() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    warnings.warn("soon", RuntimeWarning, stacklevel=1)
    return name


def test_other_warnings_are_not_faults() -> None:
    judge = judge_of(warns)
    have(judge)
    assert (judge.count, judge.weak) == (1, {})


# ---- faults that are kept -----------------------------------------------------------


def forgets_an_effect(times: int = 1) -> Flow[str]:
    for _ in range(times):
        yield from Elicit("Who?", str)
    Step(look.fn, "a")
    return "."


def picks_an_effect() -> Flow[str]:
    steps = {name: look(name) for name in ("a", "b")}
    name = yield from Elicit("Which?", str)
    return (yield from steps[name])


def test_an_effect_that_is_never_performed_is_kept() -> None:
    judge = judge_of(forgets_an_effect)
    have(judge, times=2)
    (finding,) = judge.weak_faults.values()
    assert (finding.kind, finding.where) == ("forgotten", line(forgets_an_effect, 3))
    have(judge)
    (shorter,) = judge.weak_faults.values()
    assert shorter.size < finding.size
    have(judge, times=2)
    assert list(judge.weak_faults.values()) == [shorter]


def test_of_several_effects_one_may_be_picked() -> None:
    judge = judge_of(picks_an_effect)
    have(judge)
    assert [one.kind for one in judge.weak.values()] == ["forgotten"]
    assert judge.weak_faults == {}


def throws_an_answer_away() -> Flow[str]:
    yield from Confirm("Sure?")
    return "."


def unreachable_excepts() -> Flow[str]:
    try:
        return (yield from look("a"))
    except Looping:
        return "."


def waits_in_vain(name: str) -> Flow[str]:
    yield from Confirm("Sure?", otherwise=False)
    if name:
        yield from Confirm("Really?")
    return "."


def test_what_can_be_read_is_kept() -> None:
    judge = judge_of(throws_an_answer_away)
    have(judge)
    assert list(judge.weak) == [("unused", line(throws_an_answer_away, 1))]
    judge = judge_of(unreachable_excepts)
    have(judge)
    assert list(judge.weak) == [("unreached", line(unreachable_excepts, 3))]
    judge = judge_of(waits_in_vain)
    have(judge, name="")
    assert list(judge.weak) == [("unused", line(waits_in_vain, 1))]


def test_a_refusal_that_is_ignored_is_kept() -> None:
    judge = judge_of(does_not_use_it)
    refused = {"elicit-1": Declined()}
    have(judge)
    have(judge, refused)
    (finding,) = judge.weak_faults.values()
    at = (finding.kind, finding.where)
    assert at == ("refusal", line(does_not_use_it, 3))
    judge.wanted = at
    assert fault_of(judge, refused).kind == "refusal"


def test_only_the_wanted_fault_is_raised() -> None:
    def forgets_and_breaks() -> Flow[int]:
        name = yield from Elicit("Who?", str)
        Step(look.fn, "a")
        return name  # type: ignore[return-value]  # as it should not

    judge = judge_of(forgets_and_breaks)
    judge.wanted = ("forgotten", line(forgets_and_breaks, 2))
    assert fault_of(judge).kind == "forgotten"
    judge.wanted = ("forgotten", "a.py:1")
    have(judge)
    judge.wanted = None
    assert fault_of(judge).kind == "result"


# ---- what is worth knowing ----------------------------------------------------------

_calls: list[str] = []


def leaves_a_trace() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    _calls.append(name)
    return name


def knows_when_to_stop() -> Flow[str]:
    names: list[str] = []
    try:
        while len(names) < 20:
            names.append((yield from Elicit(f"Name {len(names)}?", str)))
    except TooManyRounds:
        pass
    return f"{names}"


def test_what_changed_and_did_no_harm_is_noticed_once() -> None:
    judge = judge_of(leaves_a_trace)
    have(judge)
    have(judge)
    (notice,) = judge.notices
    assert notice.startswith("leaves_a_trace: the global _calls was [] and is ['a'")
    assert "The result did not change" in notice


def test_a_handler_that_stops_at_the_last_round_is_noticed() -> None:
    judge = judge_of(knows_when_to_stop)
    have(judge)
    (notice,) = judge.notices
    assert notice == (
        "knows_when_to_stop can ask in more rounds than clients tolerate, and"
        " handles it"
    )
    judge = judge_of(knows_when_to_stop)
    have(judge, {"elicit-1": None, "elicit-2": Accepted("nonsense")})
    assert judge.notices == {}, "the client wasted some of them"


def test_a_loop_that_random_values_do_not_end_is_noticed() -> None:
    def gives_up(watch: Any) -> Transcript:
        raise Looping("look('a')")

    judge = judge_of(asks)
    with pytest.raises(Looping):
        judge.have(gives_up)
    (notice,) = judge.notices
    assert notice.startswith("asks: look('a') is performed in a loop that drawn values")
    assert judge.count == 0


def test_questions_that_no_conversation_came_past() -> None:
    judge = judge_of(asks)
    judge.wanted = ("crash", "a.py:1")  # the reported finding did not happen like that
    for answer in (Declined(), Accepted("nonsense"), None):
        assert judge.not_reached == []
        transcript = had(asks)
        first, last = transcript.rounds
        (said,) = first.asked
        said = attrs.evolve(said, answer=answer)
        nowhere = attrs.evolve(said, where=None)
        rounds = (attrs.evolve(first, asked=(said, nowhere)), last)
        told(judge, attrs.evolve(transcript, rounds=rounds))
    assert judge.not_reached == [line(asks, 1)]
    have(judge)
    assert judge.not_reached == []


def test_lines_that_a_conversation_runs() -> None:
    number = asks.__code__.co_firstlineno
    judge = judge_of(asks)
    judge.covering = {(__file__, number + 1, number + 1), (__file__, 1, 1)}
    have(judge)
    assert judge.covered == {(__file__, number + 1, number + 1)}
