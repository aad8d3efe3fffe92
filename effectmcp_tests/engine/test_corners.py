"""Corners of the engine that no other example turns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Cancelled,
    Confirm,
    Detach,
    DivergenceError,
    Elicit,
    Flow,
    Gather,
    NondeterminismError,
    Restart,
    Sleep,
    Step,
    Unsupported,
    UsageError,
    Within,
)
from effectmcp.engine import (
    LIVE,
    TASK,
    Answer,
    Asked,
    Done,
    Journal,
    JournalError,
    Raised,
    Returned,
)
from effectmcp.engine.journal import entry_of_format_1
from effectmcp.engine.kinds import KINDS, record_value

from ..helpers import UNCAPPED, answers_to, flow_of, keys, messages, run, yes

YES = Accepted(None)


def last_of(handlers: list[Callable[..., Any]]) -> Any:
    """How the last of some rounds ends, each with the answers to the one before."""
    journal, answers = Journal(), dict[str, Answer]()
    stop: Any = None
    for handler in handlers:
        one = run(handler, journal=journal, rules=UNCAPPED)
        stop = one.start(answers)
        if isinstance(stop, Asked):
            answers, journal = answers_to(stop, yes), one.suspend()
    return stop


def test_handler_that_does_not_even_begin_again_never_stays() -> None:
    turns = itertools.count()

    def handler() -> Any:
        turn = next(turns)
        if turn == 5:
            raise LookupError
        return flow_of(Confirm(f"{turn}?"))()

    stop = last_of([handler] * 5)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


def test_text_that_never_stays_behind_a_gather() -> None:
    turns = itertools.count()

    def handler() -> Flow[Any]:
        yield from Gather(Confirm("a"), Confirm("b"))
        yield from Confirm(f"{next(turns)}?")

    stop = last_of([handler] * 6)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert "'4?'" in str(stop.error)


class Limit:
    """How often a form may still be built."""

    left = 0


@attrs.frozen
class Guest:
    name: str

    def __attrs_post_init__(self) -> None:
        Limit.left -= 1
        if Limit.left < 0:
            raise ValueError("not today")


def test_answer_in_a_branch_that_fits_no_more_and_cannot_be_asked_for() -> None:
    def handler() -> Flow[Any]:
        try:
            return (yield from Gather(Elicit("Who?", Guest)))
        except Unsupported:
            return "unsupported"

    one = run(handler)
    (key,) = keys(one.start())
    again = run(handler, journal=one.suspend(), supports=lambda what: False)
    Limit.left = 1
    assert again.start({key: Accepted({"name": "Ann"})}) == Returned("unsupported")


def test_answer_in_flight_that_does_not_fit_is_asked_for_again() -> None:
    city = Elicit("Which city?", str)
    one = run(flow_of(city))
    one.start()
    after = flow_of(Confirm("New?"), city)
    two = run(after, journal=one.suspend())
    stop = two.start({"elicit-1": Accepted({"value": 5})})
    assert messages(stop) == ["New?"]
    three = run(after, journal=two.suspend())
    stop = three.start({"confirm-1": YES})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems
    assert messages(stop) == ["Which city?"]


def test_cancelled_flow_that_is_cancelled_again_elsewhere() -> None:
    one = run(flow_of(Confirm("Sure?")), rules=TASK)
    one.start()
    one.cancel()
    again = run(flow_of(Confirm("Sure?")), rules=TASK, journal=one.journal)
    stop = again.cancel()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def test_time_without_a_clock() -> None:
    with pytest.raises(UsageError, match=r"give Run\(clock=time\.time\)"):
        run(flow_of(Sleep(1)), rules=TASK).start()


def number() -> int:
    return 5


def test_result_within_a_time_that_cannot_be_recorded() -> None:
    effect = Within(1, Step(number))
    assert record_value(effect, KINDS[Within], "five")[0] == "failed"


def test_journal_whose_entry_may_perhaps_be_replayed() -> None:
    text = json.loads(Journal().dumps())
    text["entries"] = [["step-1", "", "", "done", 5, 1, None]]
    with pytest.raises(JournalError, match="where a yes or no belongs"):
        Journal.loads(json.dumps(text))


def test_entry_of_the_format_before_with_an_unknown_tag() -> None:
    with pytest.raises(ValueError, match="unknown tag 'guessed'"):
        entry_of_format_1("step-1", b"", b"", "guessed", b"null")


def test_replay_that_diverges_when_it_is_had_cold() -> None:
    turns = itertools.count()

    def handler() -> Flow[Any]:
        turn = next(turns)
        yield from Confirm("other" if turn == 6 else "a")
        yield from Confirm(f"{turn}?")

    stop = last_of([handler] * 6)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


def test_answer_in_a_branch_that_fits_no_more_is_asked_for_again() -> None:
    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("Who?", Guest)))

    one = run(handler)
    (key,) = keys(one.start())
    again = run(handler, journal=one.suspend())
    Limit.left = 1
    assert keys(again.start({key: Accepted({"name": "Ann"})})) == [f"{key}~2"]


def test_wave_that_another_number_was_given_to_parks() -> None:
    handler = flow_of(Gather(Confirm("a"), Confirm("b")))
    one = run(handler, rules=TASK)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    text = json.loads(one.journal.dumps())
    ((entry,), _) = text["entries"][0][5]
    entry[6] = 5
    again = run(handler, rules=TASK, journal=Journal.loads(json.dumps(text)))
    with pytest.raises(DivergenceError) as caught:
        again.start()
    assert caught.value.verdict == "park"


def test_cancel_delivers_what_was_performed_of_a_wave() -> None:
    """L4: cleanup must know of the charge."""
    seen: list[Any] = []

    def branch(name: str) -> Flow[Any]:
        seen.append((yield from Step(str, name)))
        yield from Confirm("Sure?")

    def gathering() -> Flow[Any]:
        return (yield from Gather(branch("a"), branch("b")))

    one = run(gathering, rules=TASK)
    one.start()
    one.begin("gather-1/0/step-1")
    one.cancel()
    stop = one.performed({"gather-1/0/step-1": Done("a")})
    assert isinstance(stop, Raised)
    assert seen == ["a"]
    again = run(gathering, rules=TASK, journal=one.journal)
    assert isinstance(again.start(), Raised)
    assert seen == ["a", "a"]


def second() -> Flow[Any]:
    yield from Sleep(1)
    return "slept"


def test_rules_of_a_task_outlive_a_restart_and_its_worker() -> None:
    def first() -> Flow[Any]:
        yield from Detach()
        return (yield from Restart(second))

    clock = [0.0]
    one = run(first, clock=lambda: clock[0])
    one.start()
    stop = one.performed({"detach-1": Done(True)})
    assert isinstance(stop, Asked)
    assert stop.due == 1.0
    clock[0] = 1.0
    again = run(first, clock=lambda: clock[0], journal=one.suspend())
    assert again.start() == Returned("slept")


@pytest.mark.parametrize("caught", [False, True])
def test_entries_left_over_where_a_gather_fails(caught: bool) -> None:
    """The failure is the news, unless the handler goes on: then a step would be lost."""

    def before() -> Flow[Any]:
        yield from Gather(Step(str, "a"))
        yield from Confirm("Sure?")

    def raising() -> Flow[Any]:
        yield from ()
        raise LookupError

    def after() -> Flow[Any]:
        try:
            yield from Gather(raising())
        except LookupError:
            if not caught:
                raise
        yield from Confirm("Sure?")

    one = run(before)
    one.start()
    one.performed({"gather-1/0/step-1": Done("a")})
    again = run(after, journal=one.suspend())
    if caught:
        with pytest.raises(DivergenceError) as stopped:
            again.start()
        assert stopped.value.verdict == "stop"
    else:
        stop = again.start()
        assert isinstance(stop, Raised)
        assert isinstance(stop.error, LookupError)


def test_answer_that_was_kept_is_not_delivered_to_a_cancelled_flow() -> None:
    seen: list[Any] = []

    def branch(text: str) -> Flow[None]:
        seen.append((yield from Confirm(text)))

    def handler() -> Flow[Any]:
        return (yield from Gather(branch("a"), branch("b")))

    one = run(handler, rules=LIVE)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    assert isinstance(one.cancel(), Raised)
    assert seen == []
