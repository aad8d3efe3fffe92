"""One task on a simulated host: what each turn saves, starts, waits for and ends with."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from effectmcp import (
    Caller,
    Cancelled,
    Confirm,
    Detach,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    Log,
    Now,
    Progress,
    ProtocolError,
    Sample,
    Server,
    Sleep,
    Status,
    StepInterrupted,
    TimedOut,
    ToolError,
    Within,
    step,
)
from effectmcp.engine import Journal, Question
from effectmcp.engine.development import UnperformedEffectWarning
from effectmcp.engine.stops import Done, Failure, Want
from effectmcp.errors import TaskRowError, TaskStoreError, Unsupported
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.exchange.tasks import task_id
from effectmcp.lowlevel import InputRequired
from effectmcp.protocol.modern import request_of
from effectmcp.state import Keys, make_key
from effectmcp.tasks.turn import EXPIRED, PARKED, Save, turn

from .simulated import FLOW_ID, START, Host, accepted, detached, new


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Keep the log for what fails."""
    logging.getLogger("effectmcp").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("effectmcp").setLevel(logging.NOTSET)


class DomainError(Exception):
    """An answer of the domain."""


@step
def make(what: str) -> str:
    return f"a {what}"


@step
def undo(what: str) -> str:
    return f"no {what}"


@step(at_most_once=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


@step(retries=3)
def fetch(what: str) -> str:
    return f"the {what}"


@step(retries=3, raises=(DomainError,))
def buy(what: str) -> str:
    raise DomainError(f"no {what} left")


@step(retries=1, timeout=5)
def slow(what: str) -> str:
    return f"a slow {what}"


@step
def charge(key: str) -> str:
    return key


def host(handler: Callable[..., Any], row: TaskRow | None = None, **more: Any) -> Host:
    """Return a host of a task of `handler`, whose tool is named `job`."""
    app = Server("shop")
    app.tool(name="job")(handler)
    return Host(app, new("job") if row is None else row, **more)


def text(row: TaskRow) -> str:
    """Return the text of a completed task's result."""
    assert row.result is not None, row
    found: str = row.result["content"][0]["text"]
    return found


def question(row: TaskRow) -> str:
    """Return the key of the only outstanding question."""
    assert row.status == "input_required"
    (key,) = row.questions
    return key


def fails(times: int) -> Callable[[Want], Done | Failure]:
    """Return outcomes of a step: that many failures, then a success."""
    left = [times]

    def result(want: Want) -> Done | Failure:
        left[0] -= 1
        return Failure(OSError("down")) if left[0] >= 0 else Done("up")

    return result


# ---- steps and saves ----------------------------------------------------------------


def one_step() -> Flow[str]:
    return (yield from make("cup"))


def test_step_is_saved_once_and_before_it_starts() -> None:
    one = host(one_step)
    row = one.run()
    assert (row.status, text(row)) == ("completed", "a cup")
    # The step is saved, and the end.
    assert one.story == [
        *("TellTime", "ReadMail"),
        *("Save", "Start", "Wait", "TellTime", "ReadMail"),
        "Save",
    ]
    assert one.turns == 1
    assert row.wake is None


def three_steps() -> Flow[str]:
    names = yield from Gather(make("cup"), make("pan"), make("jar"))
    return " ".join(names)


def test_steps_of_a_gather_share_a_save() -> None:
    one = host(three_steps)
    assert text(one.run()) == "a cup a pan a jar"
    assert one.story.count("Save") == 2
    assert one.story.count("Start") == 1


def test_outcome_is_saved_before_the_turn_waits_for_another() -> None:
    """The other step may take hours, and this one must not be performed again."""
    lasts = {"cup": 3.0, "pan": 1.0, "jar": 2.0}
    one = host(three_steps, lasts=lambda want: lasts[want.effect.args[0]])
    assert text(one.run()) == "a cup a pan a jar"
    assert one.story.count("Wait") == 3
    assert one.story.count("Save") == 4
    assert len(one.performed) == 3


def test_value_that_is_drawn_beside_a_step_needs_no_save() -> None:
    def both() -> Flow[str]:
        _, cup = yield from Gather(Now(), make("cup"))
        return cup

    one = host(both, lasts=lambda want: 5.0)
    assert text(one.run()) == "a cup"
    assert one.story.count("Wait") == 2
    assert one.story.count("Save") == 2


def in_a_row() -> Flow[str]:
    found = []
    for what in ("cup", "pan", "jar"):
        found.append((yield from make(what)))
    return " ".join(found)


def test_steps_in_a_row_are_one_save_each() -> None:
    one = host(in_a_row)
    assert text(one.run()) == "a cup a pan a jar"
    assert one.story.count("Save") == 4
    assert one.turns == 1


def draws() -> Flow[str]:
    now = yield from Now()
    caller = yield from Caller()
    return f"{now.timestamp():g} {caller.client}"


def test_values_that_are_drawn_need_no_save() -> None:
    one = host(draws)
    assert text(one.run()) == "1e+06 a test"
    assert one.story.count("Save") == 1


def pays() -> Flow[str]:
    try:
        return (yield from pay(10))
    except StepInterrupted:
        return "who knows"


def test_started_at_most_once_is_interrupted() -> None:
    # Command 3 is the Start, and 4 the Wait for its outcome.
    for cut, performed in ((2, 1), (3, 0), (4, 1)):
        one = host(pays, cuts={cut})
        row = one.run()
        assert text(row) == ("paid 10" if cut == 2 else "who knows")
        assert len(one.performed) == performed


def test_lost_step_is_performed_again_under_the_same_key() -> None:
    def charges() -> Flow[str]:
        key = yield from IdempotencyKey("charge", 10)
        return (yield from charge(key))

    one = host(charges, cuts={4, 10})
    row = one.run()
    assert len(one.performed) == 3
    assert len(set(one.performed)) == 1
    assert text(row) == one.performed[0][1][0]


# ---- becoming a task ----------------------------------------------------------------


def leaves() -> Flow[str]:
    name = yield from Elicit("Name?", str)
    cup = yield from make(f"cup of {name}")
    is_task = yield from Detach()
    pan = yield from make("pan")
    age = yield from Elicit("Age?", int)
    return f"{cup} {pan} {is_task} {age}"


def test_flow_that_detaches_resumes_behind_its_detach() -> None:
    one = host(leaves, detached("job", leaves, "Ann"))
    row = one.run()
    assert [args for _, args in one.performed] == [("pan",)]
    assert list(row.questions) == ["elicit-2"]
    one.answer("elicit-2", accepted(5))
    assert text(one.run()) == "a cup of Ann a pan True 5"


def test_task_has_the_journal_of_the_rounds() -> None:
    """The turn goes the way of the rounds, up to the Detach."""
    row = detached("job", leaves, "Ann")
    before = Journal.loads(row.journal)
    one = host(leaves, row)
    one.run()
    assert one.journal.entries[: len(before.entries)] == before.entries


@pytest.mark.parametrize("detaches", [False, True])
def test_task_keeps_to_the_limit_of_branches(detaches: bool) -> None:
    def makes() -> Flow[str]:
        if detaches:
            yield from Detach()
        return (yield from three_steps())

    row = detached("job", makes) if detaches else new("job")
    for branches, made in ((2, 0), (3, 3)):
        one = host(makes, row)
        deploy(one, makes, branches=branches)
        one.run()
        assert len(one.performed) == made


def test_step_before_the_detach_stays_refused_if_clients_can_read_its_result() -> None:
    """An edit put it there; the flow began in a state that is not encrypted."""

    def makes_and_leaves() -> Flow[str]:
        cup = yield from make("cup")
        yield from Detach()
        return cup

    row = detached("job", leaves_at_once)
    for readable, made in ((True, 0), (False, 1)):
        one = host(makes_and_leaves, row)
        deploy(one, makes_and_leaves, keys=Keys(make_key(bytes(32)), readable=readable))
        assert one.run().status == "completed"
        assert len(one.performed) == made


def leaves_at_once() -> Flow[str]:
    yield from Detach()
    return "left"


def test_built_effects_are_watched_in_development() -> None:
    def forgets() -> Flow[str]:
        Elicit("Name?", str)
        return (yield from make("cup"))

    one = host(forgets)
    one.app.change_rules(development=True)
    with pytest.warns(UnperformedEffectWarning):
        one.run()


def test_fork_with_other_answers_is_another_task() -> None:
    ann, ann_again = (detached("job", leaves, "Ann") for _ in range(2))
    bob = detached("job", leaves, "Bob")
    assert ann.id == ann_again.id
    assert ann.id != bob.id
    assert task_id(b"another id of it", Journal.loads(ann.journal)) != ann.id


def test_rounds_at_their_limit_do_not_stop_the_task() -> None:
    """A task may be asked without end; the limit was for retries."""

    def asks() -> Flow[int]:
        for _ in range(9):
            yield from Confirm("Go on?")
        yield from Detach()
        total = 0
        for _ in range(5):
            total += yield from Elicit("How many?", int)
        return total

    row = detached("job", asks, *[None] * 9)
    assert Journal.loads(row.journal).rounds == 9
    one = host(asks, row)
    one.asked = lambda key, _: one.answer(key, accepted(2))
    assert text(one.run()) == "10"


# ---- retries ------------------------------------------------------------------------


def fetches() -> Flow[str]:
    return (yield from fetch("news"))


def test_retries_back_off_across_turns() -> None:
    one = host(fetches, result=fails(3))
    assert text(one.run()) == "up"
    assert one.times == [0, 1, 3, 7]
    assert one.turns == 4


@step(retries=2_000)
def persist(what: str) -> str:
    return f"the {what}"


def persists() -> Flow[str]:
    return (yield from persist("news"))


def test_pauses_grow_up_to_five_minutes() -> None:
    one = host(persists, result=fails(11))
    assert text(one.run()) == "up"
    pauses = [after - before for before, after in pairwise(one.times)]
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_pause_after_a_thousand_tries() -> None:
    """The power of two would be too large for a float."""
    one = host(persists, new("job", tries={"step-1": (1_100, START)}), result=fails(1))
    assert text(one.run()) == "up"
    assert one.times == [0, 300]


def test_retries_end_with_the_last_failure() -> None:
    def catches() -> Flow[str]:
        try:
            return (yield from fetch("news"))
        except OSError as exc:
            return f"gave up: {exc}"

    one = host(catches, result=fails(9))
    assert text(one.run()) == "gave up: down"
    assert one.times == [0, 1, 3, 7]
    assert one.row.tries == {}


def test_last_try_of_a_race_is_the_last_after_a_loss_too() -> None:
    """A step beside the race keeps it undecided, so no journal has the failure yet."""

    def races() -> Flow[Any]:
        return (yield from FirstOf(slow("news"), Sleep(1000)))

    def beside() -> Flow[Any]:
        yield from Sleep(4)
        return (yield from make("cup"))

    def job() -> Flow[str]:
        try:
            yield from Gather(races(), beside())
        except OSError as exc:
            return f"gave up: {exc}"
        return "no failure"

    def is_slow(want: Want) -> bool:
        return want.key == "gather-1/0/first-1/0/step-1"

    def result(want: Want) -> Done | Failure:
        return Failure(OSError("down")) if is_slow(want) else Done("a cup")

    def play(*cuts: int) -> Host:
        return host(
            job,
            result=result,
            lasts=lambda want: 2.0 if is_slow(want) else 10.0,
            cuts=cuts,
        )

    one = play()
    assert text(one.run()) == "gave up: down"
    assert one.times == [0, 3, 4]
    # The turn is lost when it has saved the effects after the failure, at 5.
    last = max(at for at, name in enumerate(one.story) if name == "Wait")
    one = play(last)
    assert text(one.run()) == "gave up: down"
    assert one.times == [0, 3, 4, 5, 15]


def test_try_that_takes_time_does_not_wait_hot() -> None:
    """A running step is no longer due for its next try."""
    one = host(fetches, result=fails(1), lasts=lambda want: 100.0)
    assert text(one.run()) == "up"
    assert one.times == [0, 101]
    assert one.story.count("Wait") == 2


def test_raises_is_not_retried() -> None:
    def buys() -> Flow[str]:
        try:
            return (yield from buy("tea"))
        except DomainError as exc:
            return str(exc)

    one = host(buys)
    assert text(one.run()) == "no tea left"
    assert one.times == [0]


def test_other_branches_continue_during_the_back_off() -> None:
    def both() -> Flow[Any]:
        def other() -> Flow[str]:
            yield from Sleep(2)
            return (yield from make("cup"))

        return (yield from Gather(fetch("news"), other()))

    def result(want: Want) -> Done | Failure:
        is_early = one.now < START + 3
        if "step-1" in want.key and "/0/" in want.key and is_early:
            return Failure(OSError("down"))
        return Done("x")

    one = host(both, result=result)
    row = one.run()
    assert row.status == "completed"
    assert [name for name, _ in one.performed] == ["fetch", "fetch", "fetch", "make"]


def test_cancel_ends_the_back_off() -> None:
    def cleans() -> Flow[str]:
        try:
            return (yield from fetch("news"))
        finally:
            yield from undo("news")

    one = host(
        cleans,
        result=lambda want: (
            Failure(OSError("down")) if want.effect.fn is fetch.fn else Done("x")
        ),
    )
    one.at(1.5, one.cancel)
    row = one.run()
    assert row.status == "cancelled"
    assert one.times == [0, 1, 1.5]
    assert [name for name, _ in one.performed] == ["fetch", "fetch", "undo"]


def test_each_failure_that_is_retried_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "effectmcp.tasks")
    one = host(fetches, result=fails(2))
    one.run()
    assert [(log.getMessage(), str(log.exc_info)[:18]) for log in caplog.records] == [
        (
            f"task {one.row.id}: step-1 failed, and is tried again in {n} seconds",
            "(<class 'OSError'>",
        )
        for n in (1, 2)
    ]


def test_failure_after_a_cancel_is_not_retried() -> None:
    one = host(fetches, result=fails(9), lasts=lambda want: 10.0)
    one.at(5, one.cancel)
    row = one.run()
    assert row.status == "cancelled"
    assert one.times == [0]
    assert one.now == START + 10


def test_timeout_is_a_failure_that_is_retried() -> None:
    def waits() -> Flow[str]:
        try:
            return (yield from slow("cup"))
        except TimeoutError:
            return "too slow"

    one = host(waits, lasts=lambda want: 60.0)
    assert text(one.run()) == "too slow"
    assert one.times == [0, 6]
    assert one.now == START + 11


def test_mail_during_a_back_off_does_not_shorten_it() -> None:
    def both() -> Flow[Any]:
        return (
            yield from Gather(
                fetch("news"), Within(60, Elicit("Name?", str, otherwise="-"))
            )
        )

    one = host(both, result=fails(2))
    for seconds in (0.5, 1.5, 2.5):
        one.at(seconds, lambda: one.post(Mail(f"{one.now}", "answer", "none", {})))
    one.run()
    assert one.times == [0, 1, 3]


# ---- time ---------------------------------------------------------------------------


def sleeps() -> Flow[str]:
    yield from make("cup")
    yield from Sleep(3600)
    return "awake"


def test_sleep_ends_the_turn() -> None:
    one = host(sleeps)
    one.turn()
    assert (one.row.status, one.row.wake) == ("working", START + 3600)
    assert text(one.run()) == "awake"
    assert (one.now, one.turns) == (START + 3600, 2)


def test_time_that_is_up_already_ends_no_turn() -> None:
    def dozes() -> Flow[str]:
        yield from Sleep(0)
        return (yield from make("cup"))

    one = host(dozes)
    assert text(one.run()) == "a cup"
    assert (one.turns, one.story.count("Save")) == (1, 2)


def asks_in_time() -> Flow[str]:
    name = yield from Within(60, Elicit("Name?", str))
    return "too late" if isinstance(name, TimedOut) else name


def test_deadline_of_a_question() -> None:
    one = host(asks_in_time)
    row = one.run(59)
    key = question(row)
    assert row.wake == START + 60
    row = one.run()
    assert (text(row), one.now) == ("too late", START + 60)

    one = host(asks_in_time)
    one.at(10, lambda: one.answer(key, accepted("Ann")))
    assert (text(one.run()), one.now) == ("Ann", START + 10)


def test_stored_answer_beats_a_deadline_that_passed_while_no_worker_ran() -> None:
    one = host(asks_in_time)
    key = question(one.run(1))
    one.answer(key, accepted("Ann"))
    one.now = START + 1000
    assert text(one.run()) == "Ann"


def reminds() -> Flow[str]:
    for number in range(3):
        winner, value = yield from FirstOf(Elicit("Name?", str, key="name"), Sleep(60))
        if winner == 0:
            return f"{value} after {number}"
        yield from make("reminder")
    return "nobody"


def test_reminder_asks_again_under_another_key() -> None:
    keys: list[str] = []
    one = host(reminds, asked=lambda key, _: keys.append(key))
    row = one.run(130)
    assert one.times == [60, 120]
    assert len(keys) == 3
    # Late: its question was withdrawn.
    one.answer(keys[0], accepted("Eve"))
    row = one.run(140)
    assert row.status == "input_required"
    assert one.mail == []
    one.answer(keys[2], accepted("Ann"))
    assert text(one.run()) == "Ann after 2"


def test_question_and_step_race() -> None:
    def races() -> Flow[str]:
        _, value = yield from FirstOf(Elicit("Name?", str), make("cup"))
        return value

    one = host(races, lasts=lambda want: 30.0)
    one.at(10, lambda: one.answer("first-1/0/elicit-1", accepted("Ann")))
    row = one.run()
    assert (text(row), one.now) == ("Ann", START + 10)
    # The outcome of the loser is not needed, and the loser is informed.
    assert one.forgotten == [("first-1/1/step-1", True)]

    one = host(races, lasts=lambda want: 30.0)
    assert (text(one.run()), one.now) == ("a cup", START + 30)


def test_answer_and_outcome_that_arrive_together_both_count() -> None:
    def both() -> Flow[str]:
        cup, name = yield from Gather(
            FirstOf(make("cup"), Sleep(1000)), Elicit("Name?", str)
        )
        return f"{cup[1]} {name}"

    one = host(both, lasts=lambda want: 10.0)
    one.at(10, lambda: one.answer("gather-1/1/elicit-1", accepted("Ann")))
    assert text(one.run()) == "a cup Ann"
    assert (one.turns, one.mail) == (1, [])


def test_tries_of_a_lost_step_wake_no_turn() -> None:
    def races() -> Flow[str]:
        _, name = yield from FirstOf(Elicit("Name?", str), fetch("news"))
        return (yield from Elicit(f"Really {name}?", str))

    one = host(races, result=fails(9))
    one.at(5, lambda: one.answer("first-1/0/elicit-1", accepted("Ann")))
    row = one.run()
    assert question(row) == "elicit-1"
    assert (row.wake, one.times) == (None, [0, 1, 3])


def test_turn_ends_while_a_lost_step_still_runs() -> None:
    """The turn informs that step once, and does not wait for its outcome."""

    def races() -> Flow[str]:
        _, name = yield from FirstOf(Elicit("Name?", str), make("cup"))
        return (yield from Elicit(f"Really {name}?", str))

    one = host(races, lasts=lambda want: 1000.0)
    one.at(10, lambda: one.answer("first-1/0/elicit-1", accepted("Ann")))
    row = one.run()
    assert question(row) == "elicit-1"
    assert (one.turns, one.now) == (1, START + 10)
    assert one.forgotten == [("first-1/1/step-1", True)]


def test_questions_that_come_up_beside_a_long_step_are_shown() -> None:
    """The row has them although nothing else had to be saved."""

    def talks() -> Flow[Any]:
        def interview() -> Flow[str]:
            name = yield from Elicit("Name?", str)
            age = yield from Elicit("Age?", int)
            return f"{name} {age}"

        return (yield from Gather(FirstOf(make("cup"), Sleep(1000)), interview()))

    one = host(talks, lasts=lambda want: 100.0)
    one.at(10, lambda: one.answer("gather-1/1/elicit-1", accepted("Ann")))
    one.at(20, lambda: one.answer("gather-1/1/elicit-2", accepted(5)))
    shown: list[tuple[str, float]] = []
    one.asked = lambda key, _: shown.append((key, one.now - START))
    row = one.run()
    assert row.status == "completed"
    assert shown == [("gather-1/1/elicit-1", 0), ("gather-1/1/elicit-2", 10)]


# ---- messages -----------------------------------------------------------------------


def tells() -> Flow[str]:
    yield from Log("info", "nothing")
    yield from Status("starting")
    yield from Sleep(10)
    yield from Progress(1, 2)
    yield from Sleep(10)
    yield from Progress(2, 2, message="half")
    yield from Sleep(10)
    yield from Log("info", "nothing")
    return "done"


def test_messages_of_status_and_progress() -> None:
    one = host(tells)
    found = [one.run(seconds).message for seconds in (1, 11, 21, 31)]
    assert found == ["starting", "starting", "half", "half"]
    assert one.row.status == "completed"


def test_replay_repeats_no_message() -> None:
    def tells_once() -> Flow[None]:
        yield from Status("one")
        yield from Sleep(1)
        yield from Sleep(1)

    one = host(tells_once)
    one.run(0.5)
    assert one.row.message == "one"
    one.row = evolve(one.row, message="of the operator")
    one.run(1.5)
    assert one.row.message == "of the operator"


def test_message_that_is_not_unicode_is_kept_in_another_form() -> None:
    def tells_badly() -> Flow[None]:
        yield from Status("\ud800")
        yield from Sleep(1)
        yield from Progress(1, message="\udfff")
        yield from Sleep(1)

    one = host(tells_badly)
    assert [one.run(seconds).message for seconds in (0.5, 1.5)] == [
        "\\ud800",
        "\\udfff",
    ]


def test_status_is_shown_during_a_long_step() -> None:
    def tells_first() -> Flow[str]:
        yield from Status("makes a cup")
        return (yield from make("cup"))

    one = host(tells_first, lasts=lambda want: 10.0)
    one.at(5, lambda: messages.append(one.row.message))
    messages: list[str | None] = []
    one.run()
    assert messages == ["makes a cup"]


# ---- questions ----------------------------------------------------------------------


def three_questions() -> Flow[str]:
    found = yield from Gather(
        Elicit("A?", int, key="a"), Elicit("B?", int, key="b"), Confirm("C?", key="c")
    )
    return repr(found)


def test_answers_that_come_in_parts() -> None:
    one = host(three_questions)
    keys = sorted(one.run().questions)
    assert keys == ["gather-1/0/a", "gather-1/1/b", "gather-1/2/c"]
    one.answer(keys[1], accepted(2))
    assert sorted(one.run().questions) == [keys[0], keys[2]]
    one.answer(keys[2], {"action": "accept", "content": {}})
    # Again, with another value: the first counts.
    one.answer(keys[1], accepted(5))
    assert sorted(one.run().questions) == [keys[0]]
    one.answer(keys[0], accepted(1))
    row = one.run()
    assert text(row) == "(1, 2, True)"
    assert one.mail == []


def asks_once() -> Flow[int]:
    return (yield from Elicit("How many?", int))


def test_answer_that_does_not_fit_is_asked_again_under_another_key() -> None:
    shown: dict[str, Any] = {}
    one = host(asks_once, asked=shown.__setitem__)
    first = question(one.run())
    one.answer(first, accepted("many"))
    second = question(one.run())
    assert first != second
    assert one.mail == []
    assert shown[first]["params"]["message"] == "How many?"
    assert "Your last answer" in shown[second]["params"]["message"]
    one.answer(second, accepted(3))
    assert text(one.run()) == "3"


def test_step_that_lost_its_race_has_no_next_try() -> None:
    def job() -> Flow[Any]:
        late = yield from Within(0.5, fetch("news"))
        yield from Confirm("Go on?")
        return repr(late)

    one = host(job, result=fails(9))
    one.run(0.2)
    assert one.row.tries
    assert one.run(0.6).questions
    assert one.row.tries == {}


def test_question_keeps_why_the_last_answer_did_not_fit() -> None:
    """The text of the question is the same after another turn."""

    def job() -> Flow[Any]:
        return (yield from Gather(Elicit("How many?", int), Confirm("Sure?")))

    one = host(job)
    one.run(0)
    many, sure = one.row.questions
    one.answer(many, accepted("a few"))
    one.run(1)
    (again,) = one.row.questions.keys() - {sure}
    asked = one.row.questions[again]
    assert "Your last answer" in str(asked)
    one.answer(sure, accepted())
    one.run(2)
    assert one.row.questions == {again: asked}
    one.answer(again, accepted(3))
    one.run(3)
    assert text(one.row) == "[3, true]"


def test_third_answer_that_does_not_fit_is_an_error() -> None:
    one = host(asks_once)
    one.asked = lambda key, _: one.answer(key, accepted("many"))
    row = one.run()
    assert row.result is not None
    assert row.result["isError"]
    assert len(one.saves) == 4


@pytest.mark.parametrize("value", [None, 5, [], {}, {"action": "dance"}, {"x": "\x00"}])
def test_answer_of_any_shape_does_no_harm(value: Any) -> None:
    one = host(asks_once)
    first = question(one.run())
    one.answer(first, value)
    row = one.run()
    assert row.report is None
    one.answer(question(row), accepted(3))
    assert text(one.run()) == "3"


def test_answer_to_no_question_is_dropped() -> None:
    one = host(asks_once)
    one.run()
    one.answer("elicit-7", accepted(1))
    row = one.run()
    assert row.status == "input_required"
    assert one.mail == []


def test_mail_of_a_later_version_is_kept_for_it() -> None:
    one = host(asks_once)
    one.run()
    later: Any = "pause"
    one.post(Mail("pause-1", later))
    row = one.run()
    assert (row.status, row.report) == ("input_required", None)
    assert [mail.id for mail in one.mail] == ["pause-1"]


def test_answer_during_a_long_step_is_kept() -> None:
    def works() -> Flow[str]:
        found = yield from Gather(
            FirstOf(Elicit("Name?", str), Sleep(1000)), FirstOf(make("pan"), Sleep(9))
        )
        return repr(found)

    one = host(works, lasts=lambda want: 5.0)
    one.at(2, lambda: one.answer("gather-1/0/first-1/0/elicit-1", accepted("Ann")))
    assert text(one.run()) == "((0, 'Ann'), (0, 'a pan'))"
    assert len(one.performed) == 1


def test_answer_stays_in_the_mail_until_a_saved_journal_has_it() -> None:
    """The answer arrives during a step of another branch; the next save is for a step."""

    def works() -> Flow[Any]:
        def other() -> Flow[str]:
            yield from Sleep(1)
            yield from make("cup")
            return (yield from make("pan"))

        return (yield from Gather(Elicit("Name?", str), other()))

    for cut in range(40):
        one = host(works, lasts=lambda want: 5.0, cuts={cut})
        one.at(3, lambda: one.answer("gather-1/0/elicit-1", accepted("Ann")))  # noqa: B023
        seen: list[tuple[str, list[str]]] = []
        one.at(4, lambda: seen.append((one.row.status, list(one.row.questions))))  # noqa: B023
        row = one.run()
        assert text(row) == '["Ann", "a pan"]'
        # It is outstanding all the time.
        assert seen == [("input_required", ["gather-1/0/elicit-1"])]
        assert one.mail == []


def test_client_that_cannot_be_asked() -> None:
    def samples() -> Flow[str]:
        yield from Sample("Write")
        return "written"

    row = new("job", capabilities={"elicitation": {"form": {}}})
    ended = host(samples, row).run()
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error["code"] == -32021
    assert ended.error["data"] == {"requiredCapabilities": {"sampling": {}}}


def test_handler_may_refuse_a_client_that_could_be_asked() -> None:
    def refuses() -> Flow[str]:
        yield from make("cup")
        raise Unsupported("Elicit")

    row = host(refuses).run()
    assert row.status == "completed"
    assert row.result is not None
    assert "does not support Elicit" in text(row)


# ---- ends ---------------------------------------------------------------------------


def test_last_row_has_the_whole_journal() -> None:
    one = host(in_a_row)
    one.run()
    assert [entry.key for entry in one.journal.entries] == [
        "step-1",
        "step-2",
        "step-3",
    ]


def test_tool_error_completes_with_is_error() -> None:
    def refuses() -> Flow[str]:
        yield from make("cup")
        raise ToolError("we are closed")

    row = host(refuses).run()
    assert row.status == "completed"
    assert row.result == {
        "content": [{"type": "text", "text": "we are closed"}],
        "isError": True,
    }


def test_protocol_error_fails_the_task() -> None:
    def fails_() -> Flow[str]:
        yield from make("cup")
        raise ProtocolError(-32042, "see there", {"url": "https://x"})

    row = host(fails_).run()
    assert (row.status, row.message) == ("failed", "see there")
    assert row.error == {
        "code": -32042,
        "message": "see there",
        "data": {"url": "https://x"},
    }


def test_own_error_of_the_handler_is_opaque() -> None:
    def breaks() -> Flow[str]:
        yield from make("cup")
        raise ValueError("a secret")

    row = host(breaks).run()
    assert row.status == "completed"
    assert row.result is not None
    assert row.result["isError"]
    assert "secret" not in repr(row)


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), "\ud800", b"x", {1}])
def test_result_of_any_kind_ends_the_task(value: Any) -> None:
    def gives() -> Flow[Any]:
        yield from make("cup")
        return value

    row = host(gives).run()
    assert row.status == "completed"
    assert TaskRow.loads(row.dumps(), row.journal) == row


def deep(levels: int) -> Any:
    """Return nested lists."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("data", [{"what": object()}, float("nan"), deep(65)])
def test_protocol_error_that_cannot_be_sent(data: Any) -> None:
    def fails_() -> Flow[str]:
        yield from make("cup")
        raise ProtocolError(-32042, "see there", data)

    row = host(fails_).run()
    assert row.status == "failed"
    assert row.error == {"code": -32603, "message": "Internal error"}


def test_error_may_be_as_deep_as_any_value() -> None:
    def fails_() -> Flow[str]:
        yield from make("cup")
        raise ProtocolError(-32042, "see there", deep(64))

    row = host(fails_).run()
    assert row.error == {"code": -32042, "message": "see there", "data": deep(64)}


def test_state_of_a_handler_reveals_nothing() -> None:
    def returns_state() -> Flow[Any]:
        yield from make("cup")
        return InputRequired({}, state="a secret")

    row = host(returns_state).run()
    assert row.status == "completed"
    assert row.result is not None
    assert row.result["isError"]
    assert "secret" not in repr(row)


def test_system_exit_does_not_end_the_worker() -> None:
    def exits() -> Flow[str]:
        yield from make("cup")
        raise SystemExit(3)

    row = host(exits).run()
    assert row.status == "completed"
    assert row.result is not None
    assert row.result["isError"]


def test_ended_task_drops_late_mail() -> None:
    one = host(one_step, new("job", ttl=60.0))
    ended = one.run()
    one.now += 60  # an ended task does not expire
    one.cancel()
    one.answer("elicit-1", accepted(1))
    one.retry()
    one.turn()
    assert one.mail == []
    assert one.row == evolve(ended, updated=one.row.updated)
    assert one.story[-3:] == ["TellTime", "ReadMail", "Save"]


# ---- the end by others --------------------------------------------------------------


def cleans_up() -> Flow[str]:
    try:
        yield from make("cup")
        yield from Elicit("Name?", str)
    except Cancelled:
        yield from undo("cup")
        raise
    return "named"


def test_cancel_while_waiting_runs_the_cleanup() -> None:
    one = host(cleans_up)
    one.run()
    one.cancel()
    row = one.run()
    assert (row.status, row.questions, row.result) == ("cancelled", {}, None)
    assert [name for name, _ in one.performed] == ["make", "undo"]
    assert one.mail == []


def test_cancel_in_a_step_waits_for_its_outcome() -> None:
    one = host(cleans_up, lasts=lambda want: 10.0)
    one.at(4, one.cancel)
    row = one.run()
    assert row.status == "cancelled"
    assert one.forgotten == [("step-1", False)]
    assert one.times == [0, 10]
    assert one.journal.entries[0].tag == "done"


def test_step_that_ends_as_it_is_cancelled_has_its_outcome() -> None:
    """Mail and outcome are read together; the cleanup knows what the step did."""
    one = host(cleans_up, lasts=lambda want: 10.0)
    one.at(10, one.cancel)
    row = one.run()
    assert (row.status, row.report, one.times) == ("cancelled", None, [0, 10])
    assert one.journal.entries[0].tag == "done"
    # Nothing ran any more that could be informed.
    assert one.forgotten == []


def test_value_that_is_drawn_as_the_task_is_cancelled_is_not_needed() -> None:
    def draws_last() -> Flow[str]:
        one.cancel()  # meanwhile
        return str((yield from Caller()))

    one = host(draws_last)
    row = one.run()
    assert (row.status, row.report) == ("cancelled", None)


def test_cancel_twice_cuts_no_cleanup_short() -> None:
    one = host(cleans_up, lasts=lambda want: 10.0)
    one.at(4, one.cancel)
    one.at(5, one.cancel)
    one.at(12, one.cancel)
    row = one.run()
    assert (row.status, one.times) == ("cancelled", [0, 10])
    assert one.now == START + 20


def test_cleanup_is_limited() -> None:
    def lingers() -> Flow[str]:
        try:
            return (yield from Elicit("Name?", str))
        finally:
            for _ in range(3):
                yield from make("cup")

    one = host(lingers, lasts=lambda want: 20.0)
    one.run(1)
    one.cancel()
    row = one.run()
    assert (row.status, row.report) == ("cancelled", None)
    assert one.now == START + 31
    # The step that still ran is informed that its outcome is not needed.
    assert one.forgotten[-1] == ("step-2", True)


@pytest.mark.parametrize("late", [0, 100])
def test_cleanup_that_sleeps_is_limited(late: int) -> None:
    """The limit also counts while no process runs."""

    def lingers() -> Flow[str]:
        try:
            return (yield from Elicit("Name?", str))
        finally:
            yield from Sleep(60 + late)

    one = host(lingers)
    one.run(1)
    one.cancel()
    row = one.run(2)
    assert (row.status, row.wake) == ("working", START + 31)
    one.now = START + 31 + late
    row = one.run()
    assert (row.status, row.report, one.turns) == ("cancelled", None, 3)


def test_expiry_gives_a_cleanup_no_more_time() -> None:
    def lingers() -> Flow[str]:
        try:
            return (yield from Elicit("Name?", str))
        finally:
            yield from Sleep(600)

    one = host(lingers, new("job", ttl=20.0))
    one.at(1, one.cancel)
    row = one.run()
    assert (row.status, row.message, one.now) == ("failed", EXPIRED, START + 31)


def test_failure_of_a_cleanup_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def stumbles() -> Flow[str]:
        try:
            return (yield from Elicit("Name?", str))
        except Cancelled:
            raise ValueError("oh") from None

    for ttl, count in ((None, 1), (5.0, 0)):
        caplog.clear()
        caplog.set_level(logging.ERROR, "effectmcp.tasks")
        one = host(stumbles, new("job", ttl=ttl))
        one.run(1)
        if ttl is None:
            one.cancel()
        row = one.run()
        assert (row.status, row.report) == ("failed" if ttl else "cancelled", None)
        logged = [log.getMessage() for log in caplog.records]
        assert logged == [f"{row.id} failed as it was cancelled"] * count


def test_cancel_is_logged_as_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "effectmcp.tasks")
    one = host(asks_once)
    one.run()
    one.cancel()
    assert one.run().status == "cancelled"
    assert caplog.records == []


def test_cleanup_continues_after_a_cut() -> None:
    for cut in range(7, 20):
        one = host(cleans_up, cuts={cut})
        one.run()
        one.cancel()
        row = one.run()
        assert row.status == "cancelled", cut
        assert one.performed[-1] == ("undo", ("cup",)), cut


def test_lost_step_of_a_cleanup_ends_no_cleanup() -> None:
    """The cancel was delivered before; a second one would end the flow at once."""

    def cleans_twice() -> Flow[str]:
        try:
            return (yield from Elicit("Name?", str))
        finally:
            yield from undo("cup")
            yield from undo("pan")

    one = host(cleans_twice)
    one.run()
    one.cancel()
    one.cuts = {one.commands + 4}  # it waits for the first step
    assert one.run().status == "cancelled"
    assert [what for _, (what,) in one.performed] == ["cup", "cup", "pan"]


def test_cancelled_task_shows_no_question_again() -> None:
    """A lost step is performed again for the cleanup; no client may answer meanwhile."""

    def races() -> Flow[Any]:
        return (yield from Gather(FirstOf(Elicit("Name?", str), make("cup"))))

    for cut in range(5, 25):
        one = host(races, lasts=lambda want: 10.0, cuts={cut, cut + 4})
        one.at(4, one.cancel)
        # It has no yield left after the outcome of its step.
        assert one.run().status == "completed"
        assert len(one.shown) == 1


def test_step_that_was_lost_is_performed_for_the_cleanup() -> None:
    """The step is informed at once that its task was cancelled."""
    one = host(cleans_up, cuts={4})  # it waits for its step
    one.turn()
    one.cancel()
    row = one.run()
    assert row.status == "cancelled"
    assert one.forgotten == [("step-1", False)]
    assert [name for name, _ in one.performed] == ["make", "make", "undo"]
    assert one.story[5:] == [
        *("TellTime", "ReadMail", "Save", "Start", "Forget"),
        *("Wait", "TellTime", "ReadMail"),
        *("Save", "Start", "Wait", "TellTime", "ReadMail"),
        "Save",
    ]


def test_lost_step_that_may_not_be_repeated_ends_the_cancelled_task() -> None:
    one = host(pays, cuts={4})
    one.turn()
    one.cancel()
    # It has no yield left after its step, which would raise the cancel.
    assert text(one.run()) == "who knows"
    assert len(one.performed) == 1


def test_nothing_new_begins_after_a_lost_step_of_a_cancelled_task() -> None:
    def pays_and_makes() -> Flow[str]:
        try:
            yield from pay(10)
        except StepInterrupted:
            pass
        return (yield from make("cup"))

    one = host(pays_and_makes, cuts={4})
    one.turn()
    one.cancel()
    row = one.run()
    assert (row.status, row.report) == ("cancelled", None)
    assert [name for name, _ in one.performed] == ["pay"]


def test_cancel_of_a_task_that_has_not_started() -> None:
    one = host(one_step)
    one.cancel()
    assert one.run().status == "cancelled"
    assert one.performed == []


def test_handler_may_end_normally_after_a_cancel() -> None:
    def answers() -> Flow[str]:
        try:
            return (yield from Elicit("Name?", str))
        except Cancelled:
            return "unnamed"

    one = host(answers)
    one.run()
    one.cancel()
    row = one.run()
    assert row.is_ended


def test_expiry_with_a_question_outstanding_fails_with_the_reason() -> None:
    one = host(cleans_up, new("job", ttl=60.0))
    row = one.run()
    assert row.status == "failed"
    assert one.now == START + 60
    assert row.error == {"code": -32603, "message": EXPIRED}
    assert row.message == EXPIRED
    assert one.performed[-1] == ("undo", ("cup",))


def test_task_that_expired_while_no_process_ran_begins_nothing() -> None:
    one = host(one_step, new("job", ttl=60.0))
    one.now = START + 60
    row = one.run()
    assert (row.status, row.message, one.performed) == ("failed", EXPIRED, [])


def test_expiry_in_a_step_tells_it_and_waits() -> None:
    one = host(cleans_up, new("job", ttl=5.0), lasts=lambda want: 8.0)
    row = one.run()
    assert row.status == "failed"
    assert one.forgotten == [("step-1", False)]
    assert one.times == [0, 8]


def test_expiry_in_a_back_off() -> None:
    one = host(fetches, new("job", ttl=2.0), result=fails(9))
    row = one.run()
    assert (row.status, one.times, one.now) == ("failed", [0, 1], START + 2)


# ---- parking ------------------------------------------------------------------------


def version_1() -> Flow[str]:
    yield from make("cup")
    name = yield from Elicit("Name?", str)
    return f"one {name}"


def version_2() -> Flow[str]:
    yield from make("pan")
    name = yield from Elicit("Name?", str)
    return f"two {name}"


def deploy(one: Host, handler: Callable[..., Any], **options: Any) -> None:
    """Replace the server of a host, and its tool."""
    app = Server("shop", **options)
    app.tool(name="job")(handler)
    one.app = app


def parked(**more: Any) -> Host:
    one = host(version_1, new("job", version="1.1", **more))
    one.run(0)
    deploy(one, version_2)
    one.answer(question(one.row), accepted("Ann"))
    one.run(0)
    return one


def test_changed_handler_parks_its_task() -> None:
    one = parked()
    row = one.row
    # A fixed sentence for all; the report quotes the source, and is for the operator.
    assert (row.message, row.status) == (PARKED, "input_required")
    assert row.report is not None
    assert row.report.startswith("version_2 (version 1.1) no longer follows")
    assert "test_turn.py" in row.report
    assert len(one.performed) == 1
    assert row.journal == one.saves[-2].journal
    assert not one.is_due
    assert [mail.kind for mail in one.mail] == ["answer"]


def test_parked_task_resumes_after_a_retry() -> None:
    one = parked()
    one.retry()
    assert one.run().report is not None  # it is parked again, and not hot
    assert not one.is_due
    deploy(one, version_1)
    assert one.run().report is not None
    one.retry()
    row = one.run()
    assert (text(row), row.message) == ("one Ann", None)


def test_retry_ends_the_back_off() -> None:
    one = host(fetches, result=fails(2))
    one.run(1.5)
    app, one.app = one.app, Server("shop")
    one.answer("elicit-9", accepted())  # which wakes it
    assert one.run(2).report is not None
    one.app = app
    one.retry()
    assert text(one.run()) == "up"
    assert one.times == [0, 1, 2]


def test_parked_task_stays_parked_when_an_answer_arrives() -> None:
    one = parked(ttl=60.0)
    before = one.row
    one.now += 5
    one.answer("elicit-9", accepted("Eve"))
    row = one.run(10)
    assert row == evolve(before, updated=START + 5)
    assert row.wake == START + 60
    assert len(one.mail) == 2
    assert one.story[-3:] == ["TellTime", "ReadMail", "Save"]


def test_operator_finds_parked_tasks_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "effectmcp.tasks")
    one = parked()
    about = f"task {one.row.id} (job)"
    one.cancel()
    one.run()
    assert [log.getMessage() for log in caplog.records] == [
        f"{about} is parked: {one.row.report}",
        f"{about} ends without its cleanup: {one.row.report}",
    ]
    # An edit of the handler needs no traceback.
    assert {log.exc_info for log in caplog.records} == {None}


def test_parked_task_is_cancelled() -> None:
    one = parked()
    one.cancel()
    row = one.run()
    assert row.status == "cancelled"
    assert row.report is not None
    assert (one.mail, row.wake, row.questions) == ([], None, {})


def test_task_that_is_cancelled_in_a_back_off_and_has_lost_its_tool() -> None:
    one = host(fetches, result=fails(2))
    one.run(1.5)
    assert one.row.tries != {}
    one.app = Server("shop")
    one.cancel()
    row = one.run()
    assert (row.status, row.tries, row.wake) == ("cancelled", {}, None)


def test_parked_task_expires() -> None:
    one = host(version_1, new("job", ttl=60.0))
    one.run(10)
    deploy(one, version_2)
    one.answer(question(one.row), accepted("Ann"))
    row = one.run(20)
    assert (row.report is not None, row.wake) == (True, START + 60)
    row = one.run()
    assert row.status == "failed"
    assert row.error == {"code": -32603, "message": EXPIRED}
    assert one.now == START + 60


def test_retry_of_a_task_that_is_not_parked_changes_nothing() -> None:
    def tells_and_asks() -> Flow[str]:
        yield from Status("asks")
        return (yield from Elicit("Name?", str))

    one = host(tells_and_asks)
    one.run()
    one.retry()
    row = one.run()
    assert (row.message, row.status) == ("asks", "input_required")


def test_tool_that_is_gone_parks() -> None:
    one = host(version_1)
    one.run()
    one.app = Server("shop")
    one.answer(question(one.row), accepted("Ann"))
    row = one.run()
    assert row.report == "this server has no tool 'job' any more"
    assert row.message == PARKED


def test_fault_before_the_handler_runs_parks() -> None:
    """The next turn would meet it again, and the host would try without an end."""
    row = host(one_step, new("job", flow_id=b"short")).run()
    assert row.report is not None
    assert row.report.startswith("UsageError('flow_id must be 16")


def test_journal_that_cannot_be_read_parks_and_is_kept() -> None:
    one = host(version_1, new("job", journal=b'{"format":99}'))
    row = one.run()
    assert row.report is not None
    assert "not a journal" in row.report
    assert row.journal == b'{"format":99}'


def test_arguments_that_do_not_fit_any_more_park() -> None:
    def sized(size: str) -> Flow[str]:
        return (yield from Elicit(f"{size}?", str))

    def measured(length: int) -> Flow[str]:
        return (yield from Elicit(f"{length}?", str))

    one = host(sized, new("job", {"size": "big"}))
    one.run()
    deploy(one, measured)
    one.answer(question(one.row), accepted("yes"))
    row = one.run()
    assert row.message == PARKED
    assert row.report is not None
    assert row.report.startswith("The arguments do not fit: length")


def test_divergence_of_a_cancelled_task_ends_it() -> None:
    """The cleanup is impossible, and no operator could resume the task."""
    one = host(version_1)
    one.run()
    deploy(one, version_2)
    one.cancel()
    row = one.run()
    assert row.status == "cancelled"
    assert row.report is not None


def test_change_before_the_detach_parks_too() -> None:
    """A round would drop the entries behind the change, and continue."""

    def asks(message: str) -> Callable[[], Flow[str]]:
        def asks_and_leaves() -> Flow[str]:
            yield from Elicit(message, int)
            yield from Detach()
            return "left"

        return asks_and_leaves

    row = detached("job", asks("How many?"), 5)
    one = host(asks("How much?"), row)
    parked = one.run()
    assert (parked.message, parked.questions) == (PARKED, {})
    assert parked.journal == row.journal


def test_question_that_is_new_before_the_detach_may_be_one_too_many() -> None:
    """The last row keeps the journal of the rounds: no more state may leave it."""

    def asks(times: int) -> Callable[[], Flow[str]]:
        def asks_and_leaves() -> Flow[str]:
            for _ in range(times):
                yield from Confirm("Go on?")
            yield from Detach()
            return "left"

        return asks_and_leaves

    row = detached("job", asks(9), *[None] * 9)
    one = host(asks(10), row)
    ended = one.run()
    assert (ended.status, ended.report) == ("completed", None)
    assert ended.result is not None
    assert ended.result["isError"]
    assert ended.journal == row.journal


def test_task_of_another_version_parks_before_it_performs() -> None:
    """A step that the old handler did not have is not performed either."""

    def more() -> Flow[str]:
        yield from make("pan")
        yield from make("cup")
        return "more"

    one = host(version_1)
    one.run()
    deploy(one, more)
    one.answer(question(one.row), accepted("Ann"))
    one.run()
    assert len(one.performed) == 1


def test_save_that_fails_ends_the_turn() -> None:
    app = Server("shop")
    app.tool(name="job")(one_step)
    going = turn(app, new("job"))
    command: Any = next(going)
    while not isinstance(command, Save):
        command = going.send([] if "Mail" in repr(command) else START)
    with pytest.raises(TaskStoreError):
        going.throw(TaskStoreError("full"))


def makes_and_asks() -> Flow[str]:
    first = yield from Elicit("First?", str)
    cup = yield from make(first)
    second = yield from Elicit("Second?", str)
    return f"{cup} {second}"


def test_row_that_cannot_be_stored_parks_and_keeps_the_mail() -> None:
    one = host(makes_and_asks, fits=lambda row: "elicit-2" not in row.questions)
    one.at(1, lambda: one.answer("elicit-1", accepted("cup")))
    row = one.run()
    assert (row.report, row.message) == ("the row is too large", PARKED)
    # The step was saved before, and the answer with it.
    assert [entry.tag for entry in one.journal.entries] == ["accepted"]
    assert not one.is_due
    one.fits = lambda row: True
    one.retry()
    one.at(2, lambda: one.answer("elicit-2", accepted("now")))
    assert text(one.run()) == "a cup now"


def test_step_whose_beginning_cannot_be_stored_is_not_performed() -> None:
    one = host(
        makes_and_asks,
        fits=lambda row: (
            not any(place.begun for place in Journal.loads(row.journal).places.values())
        ),
    )
    one.at(1, lambda: one.answer("elicit-1", accepted("cup")))
    row = one.run()
    assert row.report is not None
    assert one.performed == []
    assert [mail.key for mail in one.mail] == ["elicit-1"]
    # It is asked still: the client may look at a parked task, too.
    assert list(row.questions) == ["elicit-1"]


def test_end_that_cannot_be_stored_parks() -> None:
    one = host(asks_once, fits=lambda row: row.status != "completed")
    one.at(1, lambda: one.answer("elicit-1", accepted(3)))
    row = one.run()
    assert (row.status, row.result) == ("input_required", None)
    assert row.report is not None
    assert [mail.key for mail in one.mail] == ["elicit-1"]
    one.fits = lambda row: True
    one.retry()
    assert text(one.run()) == "3"


def test_report_that_is_not_unicode_is_kept_in_another_form() -> None:
    def refuse(row: TaskRow) -> bool:
        if row.report is None:
            raise TaskRowError("\ud800")
        return True

    assert host(one_step, fits=refuse).run().report == "\\ud800"
    one = host(cleans_up)
    one.run()
    one.fits = refuse
    one.cancel()
    row = one.run()
    assert (row.status, row.report) == ("cancelled", "\\ud800")


def test_cancelled_task_whose_row_cannot_be_stored_ends() -> None:
    """Without its cleanup: no operator could resume it."""
    one = host(cleans_up, fits=lambda row: row.cancelled_at is None or row.is_ended)
    one.run()
    one.cancel()
    row = one.run()
    assert (row.status, row.report) == ("cancelled", "the row is too large")
    assert one.performed == [("make", ("cup",))]


def test_flow_id_is_in_the_row() -> None:
    def says() -> Flow[str]:
        return (yield from IdempotencyKey("x"))

    assert text(host(says).run()) == text(host(says).run())
    other = new("job", flow_id=b"another" * 3)
    assert text(host(says).run()) != text(host(says, other).run())
    assert new("job").flow_id == FLOW_ID


def test_answer_stays_in_the_mail_if_its_row_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "effectmcp.tasks")

    def asks() -> Flow[Any]:
        yield from Elicit("First?", str)
        return (yield from Elicit("Second?", str))

    def fail(question: Question) -> Any:
        if question.key == "elicit-2":
            raise KeyError("no form for this")
        return request_of(question)

    # The package exports a function of the same name as the module.
    monkeypatch.setattr(sys.modules[turn.__module__], "request_of", fail)
    one = host(asks)
    one.at(1, lambda: one.answer("elicit-1", accepted("Ann")))
    row = one.run()
    assert row.report == "KeyError('no form for this')"
    # It is a fault of the package, so the log has where it was raised.
    assert [log.exc_info is not None for log in caplog.records] == [True]
    assert [mail.key for mail in one.mail] == ["elicit-1"]
