"""Hard cases that the engine must survive: answers, early, late, pooled or unreadable."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from attrs import field, frozen

from effectmcp import (
    Accepted,
    Checkpoint,
    ClientFailed,
    Confirm,
    Detach,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Now,
    Sleep,
    Step,
    TooManyRounds,
    UsageError,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    TASK,
    Asked,
    Done,
    Perform,
    Pooled,
    Raised,
    Returned,
    Run,
)
from effectmcp.forms import Unfit

from ..helpers import (
    FLOW_ID,
    UNCAPPED,
    advance,
    answers_to,
    by_retry,
    keys,
    messages,
    run,
    yes,
)
from .rounds import do, performed, round_of, say
from .test_survive_emits import answered_once, asks_and_works


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing performed."""
    performed.clear()


@pytest.mark.parametrize("backwards", [False, True])
def test_one_of_five_questions_answered_a_round(backwards: bool) -> None:
    """One of five questions answered a round: five rounds, each key stays, nothing is lost."""
    texts = [f"q{n}" for n in range(5)]

    def handler() -> Flow[Any]:
        found = yield from Gather.each([Elicit(text, str) for text in texts])
        yield from Step(do, "after")
        return found

    stop, journal = round_of(handler)
    first = dict(zip(messages(stop), keys(stop), strict=True))
    for n, text in enumerate(reversed(texts) if backwards else texts):
        assert isinstance(stop, Asked)
        assert len(stop.questions) == 5 - n
        left = dict(zip(messages(stop), keys(stop), strict=True))
        assert left.items() <= first.items()
        assert performed == []
        stop, journal = round_of(handler, journal, say(stop, text))
    assert stop == Returned([f"re: {text}" for text in texts])
    assert performed == ["after"]


def test_question_after_a_caught_state_only_limit_is_refused_too() -> None:
    """Q6: no state may leave that round, so nothing may be asked in it any more."""

    def handler() -> Flow[str]:
        yield from Checkpoint()
        yield from Checkpoint()
        try:
            yield from Checkpoint()
        except TooManyRounds:
            pass
        return (yield from Elicit("Who?", str))

    stop = by_retry(handler, rules=RETRY)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, TooManyRounds)


@pytest.mark.parametrize("pool", ["none", "other", "its own"])
def test_question_that_is_decided_is_no_longer_outstanding(pool: str) -> None:
    """Either the client no longer supports the question, or an answer was in the pool."""
    one = run(asks_and_works)
    one.start()
    journal = one.suspend()
    assert list(journal.asked) == ["elicit-1"]
    (entry,) = answered_once().entries
    if pool != "none":
        if pool == "other":
            entry = attrs.evolve(entry, render=b"of other")
        journal = attrs.evolve(journal, pool=(Pooled("", entry),))
    again = run(asks_and_works, journal=journal, supports=lambda what: False)
    stop = again.start()
    assert isinstance(stop, Perform)
    assert isinstance(stop.wants[0].effect, Step)
    assert stop.wants[0].effect.args == (("Ann" if pool == "its own" else "nobody"),)
    assert again.journal.asked == {}


def test_ambiguous_answers_here_are_not_replaced_by_one_elsewhere() -> None:
    """A fingerprint that is there more than once is asked again."""

    def before() -> Flow[None]:
        yield from Elicit("a?", str)
        yield from Elicit("a?", str)
        yield from Gather(Elicit("a?", str))
        yield from Confirm("last?")

    def after() -> Flow[None]:
        yield from Confirm("new?")
        yield from Elicit("a?", str)

    one = run(before, rules=LIVE)
    stop = one.start()
    for _ in range(3):
        stop = one.answered(answers_to(stop, yes)) if isinstance(stop, Asked) else stop
    again = run(after, rules=UNCAPPED, journal=one.suspend())
    asked = again.start()
    assert messages(asked) == ["new?"]
    assert isinstance(asked, Asked)
    assert messages(again.answered(answers_to(asked, yes))) == ["a?"]


@frozen
class Loose:
    name: str


@frozen
class Tight:
    name: str = field(validator=lambda self, attribute, value: _at_least_three(value))


def _at_least_three(value: str) -> None:
    if len(value) < 3:
        raise ValueError("too short")


def test_pooled_answer_that_no_longer_fits_is_not_asked_of_an_unable_client() -> None:
    """Q4: client support is checked before every question."""

    def before() -> Flow[None]:
        yield from Elicit("Who?", Loose)
        yield from Confirm("Sure?")

    def after() -> Flow[str]:
        yield from Now()
        return (yield from Elicit("Who?", Tight, otherwise="nobody"))  # type: ignore[return-value]

    one = run(before, rules=UNCAPPED)
    one.start()
    one.answered({"elicit-1": Accepted({"name": "A"})})
    journal = one.suspend()
    again = run(after, rules=UNCAPPED, journal=journal, supports=lambda what: False)
    assert advance(again, again.start()) == Returned("nobody")


def test_recorded_answer_that_no_longer_fits_is_not_called_stale() -> None:
    """D2: the text did not change, a validator did."""
    shapes = [Loose, Tight]

    def handler() -> Flow[None]:
        yield from Elicit("Who?", shapes[0])
        yield from Confirm("Sure?")

    one = run(handler, rules=UNCAPPED)
    one.start()
    stop = one.answered({"elicit-1": Accepted({"name": "A"})})
    one.answered(answers_to(stop, yes) if isinstance(stop, Asked) else {})
    journal = one.journal
    shapes.reverse()
    again = run(handler, rules=UNCAPPED, journal=journal)
    asked = again.start()
    assert isinstance(asked, Asked)
    assert asked.questions[0].problems
    assert [report.cause for report in again.salvaged] == ["unfit"]


@pytest.mark.parametrize("answer", ["x", None, (2, None), (-1, None), (True, None)])
def test_first_of_answered_with_something_else(answer: Any) -> None:
    def handler() -> Flow[Any]:
        yield from Detach()
        return (yield from FirstOf(Sleep(1), Sleep(2)))

    one = run(handler, rules=attrs.evolve(TASK, task=False))
    one.start()
    one.performed({"detach-1": Done(False)})
    with pytest.raises(UsageError, match="FirstOf"):
        one.performed({"first-1": Done(answer)})
    assert one.performed({"first-1": Done((1, None))}) == Returned((1, None))


def test_answered_with_no_answer_leaves_the_run_as_it_is() -> None:
    def handler() -> Flow[bool]:
        return (yield from Confirm("Sure?"))

    one = run(handler)
    one.start()
    with pytest.raises(UsageError, match="an answer is"):
        one.answered({"confirm-1": "yes"})  # type: ignore[dict-item]
    assert one.answered({"confirm-1": Accepted({})}) == Returned(True)


@pytest.mark.parametrize(
    "answer",
    [
        Unfit(["\ud800"]),
        Unfit([5]),  # type: ignore[list-item]
        ClientFailed(float("nan"), "no"),  # type: ignore[arg-type]
        ClientFailed(5, "\ud800"),
    ],
)
def test_unreadable_errors_of_a_client_can_be_journaled(answer: Any) -> None:
    def handler() -> Flow[bool]:
        return (yield from Confirm("Sure?"))

    stop = by_retry(handler, answer=lambda question: answer)
    assert isinstance(stop, Raised)


def test_early_answers_come_from_the_first_request_only() -> None:
    """Q3."""

    def handler() -> Flow[None]:
        yield from Confirm("First?", key="first")
        yield from Confirm("Second?", key="second")

    one = Run(handler, flow_id=FLOW_ID, rules=RETRY)
    one.start()
    stop = one.answered({"first": Accepted({}), "second": Accepted({})})
    assert messages(stop) == ["Second?"]
