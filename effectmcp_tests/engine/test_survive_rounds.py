"""Hard cases that the engine must survive: clocks, clients and handlers that differ from
round to round.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from effectmcp import (
    Checkpoint,
    ClientSupports,
    Detach,
    DivergenceError,
    Elicit,
    Flow,
    Gather,
    NondeterminismError,
    Now,
    Sleep,
    Status,
    Step,
    Unsupported,
    UsageError,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    Asked,
    Journal,
    Policy,
    Raised,
    Returned,
)

from ..helpers import (
    UNCAPPED,
    WAYS,
    advance,
    keys,
    messages,
    returns,
    run,
)
from .rounds import do, performed, round_of, say

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


POLICIES: tuple[Policy, ...] = ("salvage", "stop", "park", "strict")


under_the_four_policies = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing performed."""
    performed.clear()


def test_gathered_checkpoint_beside_a_question() -> None:
    """`Gather([ask], [Gather([Checkpoint])])`: one round, with the question in it."""

    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("ask", str), Gather(Checkpoint())))

    stop, journal = round_of(handler)
    assert messages(stop) == ["ask"]
    assert (journal.rounds, journal.state_rounds) == (1, 0)
    assert round_of(handler, journal, say(stop))[0] == Returned(("re: ask", (None,)))
    stop, journal = round_of(handler, journal)
    assert messages(stop) == ["ask"]
    for way in WAYS.values():
        assert returns(way(handler)) == ("text", (None,))


def test_gathered_checkpoint_alone() -> None:
    """`Gather([Gather([Checkpoint])])`: one state-only round, and never twice."""

    def handler() -> Flow[Any]:
        yield from Gather(Gather(Checkpoint()))
        return (yield from Step(do, "once"))

    stop, journal = round_of(handler)
    assert stop == Asked(())
    assert (journal.rounds, journal.state_rounds) == (1, 1)
    assert performed == []
    assert round_of(handler, journal)[0] == Returned("once")


@pytest.mark.parametrize("nth", [1, 2])
def test_clock_before_a_second_question(nth: int) -> None:
    """`f"at {minute}"` before a second question.

    Answered and recorded, the first text changes with the minute: a stale answer, asked
    again. If it changed within one round, the error would have both messages.
    """
    minute = 0

    def handler() -> Flow[str]:
        at = yield from Elicit(f"at {minute}", str)
        then = yield from Elicit("and then?", str)
        return f"{at} {then}"

    stop, journal = round_of(handler)
    stop, journal = round_of(handler, journal, say(stop))
    assert messages(stop) == ["and then?"]
    minute = 1
    stop, journal = round_of(handler, journal, say(stop))
    assert messages(stop) == ["at 1"]
    assert keys(stop) == ["elicit-1~2"]
    if nth == 1:
        # The second answer was kept under its text, and is not asked for again.
        end, _ = round_of(handler, journal, say(stop))
        assert end == Returned("re: at 1 re: and then?")
        return
    # The clock keeps changing: given up after the fourth stale answer, with advice.
    for minute in (2, 3):
        stop, journal = round_of(handler, journal, say(stop))
        assert messages(stop) == [f"at {minute}"]
    minute = 4
    with pytest.raises(DivergenceError) as info:
        round_of(handler, journal, say(stop))
    assert info.value.report.cause == "versions"


def test_clock_before_a_second_question_within_a_round() -> None:
    """A clock that changes within a round is detected by the dry replay."""
    ticks = iter(range(100))

    def handler() -> Flow[str]:
        at = yield from Elicit(f"at {next(ticks)}", str)
        return at + (yield from Elicit("and then?", str))

    stop, journal = round_of(handler)
    for _ in range(4):
        stop, journal = round_of(handler, journal, say(stop))
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert "'at 4'" in stop.error.problem
    assert "'at 5'" in stop.error.problem


def rolling_1() -> Flow[Any]:
    a = yield from Elicit("a", str)
    b = yield from Elicit("b", str)
    return a, b


def rolling_2() -> Flow[Any]:
    new = yield from Elicit("new", str)
    a = yield from Elicit("a", str)
    b = yield from Elicit("b", str)
    return new, a, b


@pytest.mark.parametrize("pattern", range(64))
def test_either_version_each_round(pattern: int) -> None:
    """Either version each round (a rolling deploy): right answers, or told to finish it.

    Never an answer to the wrong question, never a wire key for two messages, never more
    than so many rounds.
    """
    journal = Journal()
    said: dict[str, Any] = {}
    texts: dict[str, str] = {}
    stop: Any = None
    refused: str | None = None
    for n in range(30):
        is_new = n >= 6 or pattern >> n & 1
        handler = rolling_2 if is_new else rolling_1
        try:
            stop, journal = round_of(handler, journal, said)
        except DivergenceError as exc:
            refused = exc.report.cause
        if refused is not None:
            assert refused == "versions"
            return
        if isinstance(stop, Returned):
            expected = ("re: new", "re: a", "re: b")
            assert stop.value == (expected if is_new else expected[1:])
            return
        for key, text in zip(keys(stop), messages(stop), strict=True):
            assert texts.setdefault(key, text) == text
        said = say(stop)
    raise AssertionError("thirty rounds, and no end")


def supporting() -> Flow[Any]:
    found: list[Any] = [(yield from ClientSupports(Elicit))]
    for text in "abc":
        try:
            found.append((yield from Elicit(text, str)))
        except Unsupported:
            found.append("unasked")
    return found


def test_capabilities_flipping_each_round() -> None:
    """Capabilities flipping each round: what was found out once stays as it was."""
    # Round 1 with, so "a" is asked; round 2 without, so b and c go unasked in one go.
    stop, journal = round_of(supporting)
    assert messages(stop) == ["a"]
    end, after = round_of(supporting, journal, say(stop), supports=lambda what: False)
    assert end == Returned([True, "re: a", "unasked", "unasked"])


def test_capabilities_flipping_with_a_question_out() -> None:
    """A question that is out when the capability goes is unasked, and stays so."""

    def handler() -> Flow[Any]:
        try:
            first = yield from Elicit("a", str, key="a")
        except Unsupported:
            first = "unasked"
        return first, (yield from Elicit("b", str, otherwise="otherwise"))

    can = {"a": True, "b": True}

    def supports(what: Any) -> bool:
        return can[what.message]

    stop, journal = round_of(handler, supports=supports)
    late = say(stop)
    can["a"] = False
    stop, journal = round_of(handler, journal, supports=supports)
    assert messages(stop) == ["b"]
    can.update(a=True, b=False)
    # The answer to a comes too late: it was journaled as unasked.
    end, _ = round_of(handler, journal, {**late}, supports=supports)
    assert end == Returned(("unasked", "otherwise"))
    can.update(b=True)
    end, _ = round_of(handler, journal, {**late, **say(stop)}, supports=supports)
    assert end == Returned(("unasked", "re: b"))


@under_the_four_policies
def test_capabilities_flipping_is_not_a_divergence(policy: Policy) -> None:
    """A recorded answer is not asked for again, however the capabilities change."""
    rules = attrs.evolve(UNCAPPED, policy=policy)
    stop, journal = round_of(supporting, rules=rules)
    assert messages(stop) == ["a"]
    answers = say(stop)
    # What is out when the capability goes counts if it was answered, and is unasked if not.
    end, _ = round_of(supporting, journal, rules=rules, supports=lambda what: False)
    assert end == Returned([True, "unasked", "unasked", "unasked"])
    stop, journal = round_of(supporting, journal, answers, rules=rules)
    assert messages(stop) == ["b"]
    end, _ = round_of(
        supporting, journal, say(stop), rules=rules, supports=lambda what: False
    )
    assert end == Returned([True, "re: a", "re: b", "unasked"])


@every_way
def test_effects_after_detach_in_every_round(way: Any) -> None:
    """Effects that need a `Detach()` also work after a Detach from the journal."""

    def handler() -> Flow[Any]:
        is_task = yield from Detach()
        yield from Sleep(1)
        name = yield from Elicit("Who?", str)
        yield from Status("still here")
        yield from Sleep(2)
        return is_task, name

    assert returns(way(handler)) == (False, "text")


def test_second_detach_in_every_round() -> None:
    """`Detach` once: a second one is refused at its line, in a replay as well."""

    def handler() -> Flow[Any]:
        yield from Detach()
        yield from Elicit("Who?", str)
        yield from Detach()

    stop, journal = round_of(handler, rules=RETRY)
    end, _ = round_of(handler, journal, say(stop), rules=RETRY)
    assert isinstance(end, Raised)
    assert isinstance(end.error, UsageError)
    assert end.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 3}"


@every_way
def test_step_that_returns_nothing(way: Any) -> None:
    """The commonest step of all: `-> None`."""

    def release(name: str) -> None:
        performed.append(name)

    def handler() -> Flow[Any]:
        found: Any = yield from Step(release, "a")  # type: ignore[func-returns-value]
        yield from Elicit("Who?", str)
        return found

    assert returns(way(handler)) is None
    assert performed == ["a"]


def test_live_and_retry_count_a_loop_alike() -> None:
    """In a flow without questions, a live run and a retry spend the same budget."""

    def handler() -> Flow[None]:
        for n in range(30):
            yield from Now()
            yield from Step(do, f"{n}")

    for count, is_fine in ((60, True), (59, False)):
        for rules in (LIVE, UNCAPPED):
            one = run(handler, rules=attrs.evolve(rules, yields=count))
            stop = advance(one, one.start())
            assert isinstance(stop, Returned) == is_fine
