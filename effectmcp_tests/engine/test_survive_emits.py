"""Hard cases that the engine must survive: `Log` and `Progress`, which replays repeat."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Elicit,
    Flow,
    Gather,
    Log,
    Now,
    Progress,
    Step,
    Unsupported,
    UsageError,
)
from effectmcp.engine import (
    TASK,
    Asked,
    Done,
    Journal,
    Perform,
    Pooled,
    Returned,
    Run,
)

from ..helpers import (
    UNCAPPED,
    advance,
    by_retry,
    run,
)
from .rounds import do, performed, round_of, say


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing performed."""
    performed.clear()


def test_muted_until_the_first_new_answer() -> None:
    """Progress and Log are muted in a retry round until its first new answer is delivered.

    An answer of this process, to `Now` say, is a new one too.
    """
    heard: list[Any] = []

    def handler() -> Flow[Any]:
        yield from Progress(0)
        yield from Elicit("Who?", str)
        yield from Progress(1)
        yield from Now()
        yield from Progress(2)
        yield from Elicit("And?", str)
        yield from Log("info", "end")
        return "done"

    stop, journal = round_of(handler, emit=heard.append)
    assert heard == [Progress(0)]
    heard.clear()
    again, _ = round_of(handler, journal, emit=heard.append)
    assert heard == []
    stop, journal = round_of(handler, journal, say(stop), emit=heard.append)
    assert heard == [Progress(1), Progress(2)]
    heard.clear()
    stop, journal = round_of(handler, journal, say(stop), emit=heard.append)
    assert heard == [Log("info", "end")]


def test_muted_until_a_new_local_effect() -> None:
    """In a store, a worker that resumes a journal is muted until its first new effect."""
    heard: list[Any] = []

    def handler() -> Flow[Any]:
        yield from Step(do, "first")
        yield from Progress(1)
        yield from Now()
        yield from Progress(2)
        return "done"

    one = run(handler, rules=TASK)
    stop: Any = one.start()
    one.performed({"step-1": _done("first")})
    journal = _without_wants(one.suspend())
    two = run(handler, rules=TASK, journal=journal, emit=heard.append)
    stop = advance(two, two.start())
    assert stop == Returned("done")
    assert heard == [Progress(2)]


def _done(value: Any) -> Any:

    return Done(value)


def _without_wants(journal: Journal) -> Journal:
    return Journal.loads(journal.dumps())


def test_progress_repeated_in_replays_costs_no_budget_of_the_new_part() -> None:
    def handler() -> Flow[str]:
        for n in range(5):
            for _ in range(15):
                yield from Progress(n)
            yield from Confirm(f"{n}?")
        return "done"

    rules = attrs.evolve(UNCAPPED, yields=20)
    assert by_retry(handler, rules=rules) == Returned("done")


def said_by(handler: Any, answers: list[dict[str, Any]]) -> list[Any]:
    """Return the logs of all rounds of a flow by retry."""
    said: list[Any] = []
    journal = Journal()
    for given in answers:
        one = run(
            handler,
            journal=journal,
            rules=UNCAPPED,
            emit=lambda effect: said.append(effect.data),
        )
        stop = one.start(given)
        if isinstance(stop, Asked):
            journal = one.suspend()
    return said


def test_log_after_a_checkpoint_is_heard_once() -> None:
    """V5: what follows a state-only round is new, though its entry is not."""

    def handler() -> Flow[None]:
        yield from Log("info", "before")
        yield from Checkpoint()
        yield from Log("info", "after")
        yield from Confirm("Sure?")
        yield from Log("info", "end")

    rounds: list[dict[str, Any]] = [{}, {}, {}, {"confirm-1": Accepted({})}]
    assert said_by(handler, rounds) == ["before", "after", "end"]


def asks_and_works() -> Flow[Any]:
    try:
        name = yield from Elicit("Who?", str)
    except Unsupported:
        name = "nobody"
    yield from Log("info", name)
    yield from Step(len, name)
    return (yield from Elicit("More?", str))


def answered_once() -> Journal:
    """The journal of `asks_and_works` where it works."""
    one = run(asks_and_works)
    one.start()
    assert isinstance(one.answered({"elicit-1": Accepted({"value": "Ann"})}), Perform)
    return one.suspend()


def test_log_behind_an_answer_that_waited_in_the_pool_is_not_repeated() -> None:
    """V5: the answer is as old as the log."""
    journal = answered_once()
    (entry,) = journal.entries
    salvaged = attrs.evolve(journal, entries=(), pool=(Pooled("", entry),))
    for given, expected in ((journal, []), (salvaged, []), (Journal(), ["Ann"])):
        heard: list[Any] = []
        one = run(asks_and_works, journal=given, emit=heard.append)
        stop = one.start()
        if isinstance(stop, Asked):
            stop = one.answered({"elicit-1": Accepted({"value": "Ann"})})
        assert isinstance(stop, Perform)
        assert [log.data for log in heard] == expected


def test_log_of_a_branch_whose_answer_was_kept_is_heard() -> None:
    """V5: the wave is new, in every order of its answers."""

    def branch(name: str) -> Flow[None]:
        yield from Confirm(f"{name}?")
        yield from Log("info", name)

    def handler() -> Flow[None]:
        yield from Gather(branch("a"), branch("b"))

    first, second_ = "gather-1/0/confirm-1", "gather-1/1/confirm-1"
    rounds: list[dict[str, Any]] = [{}, {first: Accepted({})}, {second_: Accepted({})}]
    assert said_by(handler, rounds) == ["a", "b"]


def test_error_of_emit_is_not_thrown_into_the_handler() -> None:
    caught: list[BaseException] = []

    def handler() -> Flow[None]:
        try:
            yield from Log("info", "a line")
        except UsageError as exc:
            caught.append(exc)

    one: Run = run(handler, emit=lambda effect: one.suspend())
    with pytest.raises(RuntimeError, match="emit= raised"):
        one.start()
    assert caught == []
