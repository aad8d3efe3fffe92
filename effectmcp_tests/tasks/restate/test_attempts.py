"""Attempts: what the engine sends, and what it is answered.

The properties play real turns on a small model of the engine, which loses attempts at any
frame (`modelled`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from hypothesis import event, example, given, note, settings
from hypothesis import strategies as st

from effectmcp import (
    Elicit,
    Flow,
    Gather,
    Now,
    Server,
    Sleep,
    StepInterrupted,
    Within,
    step,
)
from effectmcp.effects.steps import Step
from effectmcp.engine.stops import Done, Failure, Want
from effectmcp.errors import TaskRowError, TaskStoreError
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks.restate import attempts
from effectmcp.tasks.restate.attempts import Attempt, owner_tag
from effectmcp.tasks.restate.kept import (
    CREATE,
    POST,
    WAKE,
    Kept,
    write_letter,
    write_new,
)

from ..rows import new_row
from ..simulated import START, accepted, new
from ..worlds import World, drawn_bodies, played
from .modelled import RETENTION, SERVICE, Host
from .wire import Field, Message, decode, encode, frame, unframe


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep the log for what fails."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


ID = "0f"
INVOCATION = bytes(range(24))
ANSWER = Mail("answer:q", "answer", "q", {"action": "decline"})
CANCEL = Mail("cancel", "cancel")
ASKING = new_row(ID, questions={"q": {}}, status="input_required", wake=None)


def told(
    handler: str,
    value: bytes = b"",
    *more: bytes,
    state: dict[bytes, bytes] | None = None,
    kept: Kept | TaskRow | None = None,
    fields: list[Field] | None = None,
) -> bytes:
    """Return what the engine sends first, with further known messages."""
    state = dict(state or {})
    if isinstance(kept, TaskRow):
        kept = Kept(row=kept)
    if kept is not None:
        state[b"task"] = kept.dumps()
        state.setdefault(b"open", b"")
    start: list[Field] = [
        (1, INVOCATION),
        (2, b"inv_1"),
        (3, 1 + len(more)),
        *((4, encode([(1, at), (2, it)])) for at, it in state.items()),
        (6, ID.encode()),
        *(fields or []),
    ]
    first = frame(0x0400, [(14, encode([(1, value)]))])
    return b"".join((frame(0, start), first, *more))


def begun(handler: str, *args: Any, **more: Any) -> Attempt:
    """Return an attempt that has all that the engine sends first."""
    one = Attempt(SERVICE, handler, RETENTION)
    one.feed(told(handler, *args, **more))
    assert one.is_open
    return one


def signal(*mail: Mail, number: int = 17) -> bytes:
    value = encode([(1, write_letter(mail))])
    return frame(0xFBFF, [(2, number), (5, value)])


def ack(number: int) -> bytes:
    return frame(0x0004, [(1, number)] if number else [])


def saved(data: bytes) -> Kept:
    """Return the state that these bytes store, and have acknowledged."""
    last = unframe(data)[-1]
    assert (last.kind, last.flags) == (0x0403, 0x8000)
    fields: dict[int, Any] = dict(last.fields)
    assert fields[1] == b"task"
    value: Any = dict(decode(fields[3]))[1]
    return Kept.loads(value)


END = [Message(0x0401, 0, [(14, b"")]), Message(0x0003, 0, [])]


def ordered(at: float | None, *, number: int = 2, value: bytes = b"") -> Message:
    """Return the command that wakes the object."""
    later: list[Field] = [] if at is None else [(4, round(at * 1000))]
    parameter: list[Field] = [(3, value)] if value else []
    return Message(
        0x040E,
        0,
        [
            (1, SERVICE.encode()),
            (2, b"wake"),
            *parameter,
            *later,
            (6, ID.encode()),
            (10, number),
        ],
    )


def alarm(at: bytes) -> Message:
    return Message(0x0403, 0, [(1, b"alarm"), (3, encode([(1, at)]))])


NO_ALARM = Message(0x0404, 0, [(1, b"alarm")])


# ---- the beginning ------------------------------------------------------------------


def test_new_task() -> None:
    row = new_row(ID, journal=b"a\nb")
    one = begun(CREATE, write_new(row))
    assert one.row == row
    assert one.is_due(0.0)
    assert (one.sent, one.acknowledged) == (0, 0)
    assert one.take_mail() == []


def test_task_that_was_created_before() -> None:
    """Two requests may race; and after its first save, a lost turn is repeated."""
    one = begun(CREATE, write_new(new_row(ID, tool="other")), kept=ASKING)
    assert one.row == ASKING


@pytest.mark.parametrize("handler", [POST, WAKE])
def test_task_that_is_unknown(handler: str) -> None:
    """The task was removed, or never there: nothing is done or kept."""
    value = write_letter([CANCEL]) if handler == POST else b"5.0"
    one = begun(handler, value, signal(CANCEL))
    assert (one.row, one.is_due(1e9), one.take_mail()) == (None, False, [])
    assert unframe(one.leave(1e9)) == END


def test_all_that_is_known_must_have_arrived() -> None:
    data = told(
        WAKE, b"", signal(CANCEL), frame(0x0403, b"", flags=0x8000), kept=ASKING
    )
    one = Attempt(SERVICE, WAKE, RETENTION)
    for byte in data[:-1]:
        one.feed(bytes([byte]))
        assert not one.is_open
    one.feed(data[-1:])
    assert one.is_open
    assert one.take_mail() == [CANCEL]


def test_what_follows_in_the_same_bytes_is_read() -> None:
    one = Attempt(SERVICE, POST, RETENTION)
    one.feed(told(POST, write_letter([ANSWER]), kept=ASKING) + signal(CANCEL) + ack(3))
    assert one.take_mail() == [ANSWER, CANCEL]
    assert one.acknowledged == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(0x0400), "an attempt that does not start"),
        (frame(0, [(1, INVOCATION)]), "without its input"),
        (told(WAKE, fields=[(5, 1)]), "its whole state"),
        (frame(0, b"\x80"), "cut off"),
        (told(WAKE, state={b"task": b"x"}), "a task that this version cannot read"),
        (
            told(WAKE, kept=ASKING, state={b"alarm": b"soon"}),
            "alarm that is not a time",
        ),
        (
            told(WAKE, kept=ASKING, state={b"alarm": b"1" * 5000}),
            "alarm that is not a time",
        ),
        (told(WAKE, b"", frame(0x0004, b"\x80")), "cut off"),
    ],
)
def test_beginnings_that_cannot_be_read(data: bytes, words: str) -> None:
    with pytest.raises(TaskStoreError, match=words):
        Attempt(SERVICE, WAKE, RETENTION).feed(data)


@pytest.mark.parametrize("handler", [CREATE, POST])
def test_input_that_cannot_be_read(handler: str) -> None:
    kept = ASKING if handler == POST else None
    with pytest.raises(TaskStoreError, match="that this version cannot read"):
        begun(handler, b"x", kept=kept)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 2, 4, 0x0400, 0x0403, 0xFBFF]),
            st.binary(max_size=12)
            | st.sampled_from([b"", signal(CANCEL)[8:], told(WAKE, kept=ASKING)[8:-9]]),
        ),
        max_size=5,
    ),
    st.sampled_from([CREATE, POST, WAKE]),
    st.booleans(),
)
def test_any_frames_are_read_or_refused(
    sent: list[tuple[int, bytes]], handler: str, is_begun: bool
) -> None:
    one = Attempt(SERVICE, handler, RETENTION)
    if is_begun:
        one = begun(WAKE, kept=ASKING)
    try:
        one.feed(b"".join(frame(kind, body) for kind, body in sent))
    except TaskStoreError:
        pass
    assert one.is_due(0.0) in (True, False)


# ---- mail ---------------------------------------------------------------------------


def test_mail_comes_by_request_and_by_signal_and_from_the_state() -> None:
    kept = Kept(row=ASKING, mail=(ANSWER,))
    one = begun(POST, write_letter([CANCEL]), kept=kept)
    assert one.is_due(0.0)
    assert one.take_mail() == [ANSWER, CANCEL]
    assert one.take_mail() == []
    assert not one.is_due(0.0)
    one = begun(WAKE, b"", kept=ASKING)
    one.feed(signal(ANSWER))
    assert one.take_mail() == [ANSWER]


def test_mail_that_comes_twice_is_read_once() -> None:
    kept = Kept(row=ASKING, mail=(ANSWER,))
    one = begun(POST, write_letter([ANSWER, ANSWER]), signal(ANSWER), kept=kept)
    one.feed(signal(ANSWER))
    assert one.take_mail() == [ANSWER]
    one.feed(signal(ANSWER))
    assert one.take_mail() == []


def test_mail_that_the_row_covers_is_not_read_again() -> None:
    """The turn heard a signal, and has ended; then the request comes."""
    one = begun(WAKE, b"", kept=ASKING)
    one.feed(signal(ANSWER))
    assert one.take_mail() == [ANSWER]
    row = evolve(ASKING, questions={}, status="working")
    assert saved(one.save(row, [ANSWER.id])) == Kept(row=row, ear=one.ear)
    one.feed(signal(ANSWER))
    assert one.take_mail() == []
    one = begun(POST, write_letter([ANSWER]), kept=row)
    assert (one.take_mail(), one.is_due(0.0)) == ([], False)


def test_mail_that_was_taken_stays_until_a_row_covers_it() -> None:
    one = begun(POST, write_letter([ANSWER, CANCEL]), kept=ASKING)
    one.take_mail()
    assert saved(one.save(ASKING)).mail == (ANSWER, CANCEL)
    row = evolve(ASKING, cancelled_at=1.0)
    assert saved(one.save(row, [CANCEL.id, "unknown"])).mail == (ANSWER,)


def test_signals_of_others_and_unreadable_signals_are_left_out() -> None:
    """The request of what could not be read comes later, and is put off there."""
    one = begun(WAKE, b"", signal(CANCEL, number=1), kept=ASKING)
    bad = frame(0xFBFF, [(2, 17), (5, encode([(1, b"[[1]]")]))])
    one.feed(signal(CANCEL, number=18) + bad + signal(ANSWER))
    assert one.take_mail() == [ANSWER]
    one = begun(WAKE, b"", bad, signal(ANSWER), kept=ASKING)
    assert one.take_mail() == [ANSWER]


def test_signal_without_a_value_is_left_out() -> None:
    one = begun(WAKE, b"", frame(0xFBFF, [(2, 17), (4, b"")]), kept=ASKING)
    assert one.take_mail() == []


def test_ear_is_an_awakeable_of_this_invocation() -> None:
    assert begun(WAKE, b"", kept=ASKING).ear == (
        "sign_1AAECAwQFBgcICQoLDA0ODxAREhMUFRYXAAAAEQ"
    )


@pytest.mark.parametrize(
    ("changes", "now", "is_due"),
    [
        ({"wake": 5.0}, 4.9, False),
        ({"wake": 5.0}, 5.0, True),
        ({"wake": None}, 5.0, False),
        ({"wake": 0.0, "status": "completed"}, 5.0, False),
    ],
)
def test_due(changes: dict[str, Any], now: float, is_due: bool) -> None:
    assert begun(WAKE, b"", kept=evolve(ASKING, **changes)).is_due(now) is is_due


# ---- saves, and their numbers -------------------------------------------------------


def test_first_save_marks_the_task_as_alive() -> None:
    row = new_row(ID, owner="ö")
    one = begun(CREATE, write_new(row))
    data = one.save(row)
    marks = unframe(data)[:-1]
    value = encode([(1, owner_tag("ö"))])
    assert marks == [
        Message(0x0403, 0, [(1, name), (3, value)]) for name in (b"owner", b"open")
    ]
    assert (saved(data).row, one.sent) == (row, 3)
    assert len(unframe(one.save(row))) == 1
    assert one.sent == 4


def test_anonymous_users_are_one_owner() -> None:
    row = new_row(ID)
    mark, *_ = unframe(begun(CREATE, write_new(row)).save(row))
    assert mark.fields[1] == (3, encode([(1, b"e4a6a0577479b2b4")]))


def test_tags_of_owners() -> None:
    owners = [None, "", "=", "ann", "ann ", "bob", "\ud800", "\\ud800", "\ufffd"]
    tags = [owner_tag(one) for one in owners]
    assert len(set(tags)) == len(owners)
    assert all(re.fullmatch(b"[0-9a-f]{16}", one) for one in tags)


def test_last_save_removes_the_mark() -> None:
    row = evolve(ASKING, status="completed")
    one = begun(WAKE, b"", kept=ASKING)
    data = one.save(row)
    _, mark, _ = unframe(data)
    assert mark == Message(0x0404, 0, [(1, b"open")])
    assert (saved(data).row, one.row) == (row, row)
    assert len(unframe(one.save(row))) == 1


def test_row_that_no_save_can_store_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turn parks the task then: with its mail, and with the right numbers."""
    monkeypatch.setattr(attempts, "LARGEST", 2_000)
    one = begun(POST, write_letter([ANSWER]), kept=ASKING)
    for row, words in (
        (evolve(ASKING, journal=bytes(2_000)), r"it has 2,\d+ bytes"),
        (evolve(ASKING, message="\ud800"), "cannot be stored"),
    ):
        with pytest.raises(TaskRowError, match=words):
            one.save(row, [ANSWER.id])
        assert (one.sent, one.row) == (0, ASKING)
    assert saved(one.save(ASKING)).mail == (ANSWER,)


LAST = [{"report": "it is too large"}, {"status": "failed"}]


@pytest.mark.parametrize("changes", LAST)
def test_row_that_parks_or_ends_may_be_larger(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last save was near the limit, and the report comes on top of it."""
    monkeypatch.setattr(attempts, "LARGEST", 2_000)
    monkeypatch.setattr(attempts, "_SPARE", 1_000)
    one = begun(POST, write_letter([ANSWER]), kept=ASKING)
    row = evolve(ASKING, journal=bytes(2_000), **changes)
    mail = () if row.is_ended else (ANSWER,)
    assert saved(one.save(row)) == Kept(row=row, mail=(ANSWER,), ear=one.ear)
    with pytest.raises(TaskRowError):
        one.save(evolve(row, report=None, status="working"))
    # What other turns read of it:
    again = begun(WAKE, b"", kept=Kept(row=row, mail=(ANSWER,)))
    assert again.take_mail() == list(mail)


@pytest.mark.parametrize("changes", LAST)
def test_row_that_parks_or_ends_does_without_its_mail(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LARGEST", 2_000)
    monkeypatch.setattr(attempts, "_SPARE", 1_000)
    large = evolve(ANSWER, value={"action": "x" * 1_000})
    one = begun(POST, write_letter([large]), kept=ASKING)
    row = evolve(ASKING, journal=bytes(2_000), **changes)
    assert saved(one.save(row)) == Kept(row=row, ear=one.ear)
    assert one.row == row


@pytest.mark.parametrize("changes", LAST)
def test_row_that_is_too_large_alone(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result may have any size; beyond the spare bytes the task parks instead."""
    monkeypatch.setattr(attempts, "LARGEST", 2_000)
    monkeypatch.setattr(attempts, "_SPARE", 1_000)
    one = begun(POST, write_letter([ANSWER]), kept=ASKING)
    with pytest.raises(TaskRowError, match=r"it has 3,\d+ bytes"):
        one.save(evolve(ASKING, journal=bytes(3_000), **changes), [ANSWER.id])
    assert (one.sent, one.row) == (0, ASKING)
    assert saved(one.save(ASKING)).mail == (ANSWER,)


@given(
    st.lists(st.sampled_from([0x0403, 0x0404, 0x040E, 0x0401, 0x800E, 0xFBFF, 0x8011])),
    st.lists(st.booleans(), max_size=4),
)
def test_numbers_follow_the_numbers_of_lost_attempts(
    known: list[int], ends: list[bool]
) -> None:
    more = [frame(kind, b"", flags=0x8000 * (kind == 0x0403)) for kind in known]
    one = begun(WAKE, b"", *more, kept=ASKING)
    number = sum(0x0400 <= kind < 0x8000 for kind in known)
    assert (one.sent, one.acknowledged) == (number, number)
    for is_end in ends:
        written = one.save(evolve(ASKING, status="failed" if is_end else "working"))
        number += len(unframe(written))
        assert one.sent == number
        one.feed(ack(number))
        assert one.acknowledged == number
    # No number of a completion is used twice.
    one.row = evolve(ASKING, wake=0.0)
    assert unframe(one.leave(0.0))[0] == ordered(None, number=len(known) + 2)


# ---- the end ------------------------------------------------------------------------


def left(
    row: TaskRow, now: float, handler: str = POST, rings: bytes = b"", **state: bytes
) -> list[Message]:
    """Return what an attempt writes at its end, before its result."""
    value = rings if handler == WAKE else write_letter([])
    kept = {name.encode(): value for name, value in state.items()}
    one = begun(handler, value, kept=row, state=kept)
    messages = unframe(one.leave(now))
    assert messages[-2:] == END
    return messages[:-2]


def wakes(at: float | None) -> TaskRow:
    return evolve(ASKING, wake=at)


class TestOrders:
    def test_none_if_only_mail_wakes_it(self) -> None:
        assert left(wakes(None), 5.0) == []

    def test_a_turn_that_is_due(self) -> None:
        """The worker shuts down, perhaps: the next turn is somewhere else, now."""
        assert left(wakes(0.0), 5.0) == [ordered(None)]
        assert left(wakes(5.0), 5.0, alarm=b"4000") == [ordered(None)]

    def test_a_time(self) -> None:
        wanted = [ordered(9.001, value=b"9001"), alarm(b"9001")]
        assert left(wakes(9.0005), 5.0) == wanted

    def test_an_alarm_that_is_early_enough(self) -> None:
        assert left(wakes(8.9995), 5.0, alarm=b"9000") == []
        assert left(wakes(9.0), 5.0, alarm=b"5001") == []

    def test_an_alarm_that_is_too_late_or_over(self) -> None:
        for at in (b"9001", b"5000", b"1000"):
            wanted = [ordered(9.0, value=b"9000"), alarm(b"9000")]
            assert left(wakes(9.0), 5.0, alarm=at) == wanted

    def test_an_alarm_that_rings_is_over(self) -> None:
        row = wakes(None)
        assert left(row, 5.0, WAKE, b"5000", alarm=b"5000") == [NO_ALARM]
        assert left(row, 5.0, WAKE, b"4000", alarm=b"5000") == []
        wanted = [ordered(9.0, value=b"9000"), alarm(b"9000")]
        assert left(wakes(9.0), 5.0, WAKE, b"5000", alarm=b"5000") == wanted
        wanted = [ordered(None), NO_ALARM]
        assert left(wakes(5.0), 5.0, WAKE, b"5000", alarm=b"5000") == wanted

    @pytest.mark.parametrize(
        ("rung", "now", "at"),
        [
            (b"9000", 7.0, 11.25),  # 2 s: told by the engine's clock, and a little late
            (b"9000", 8.99, 9.02),
            (b"11000", 8.75, 11.5),  # it rang at once, so this is a better guess
        ],
    )
    def test_an_engine_whose_clock_is_ahead(
        self, rung: bytes, now: float, at: float
    ) -> None:
        value = str(round(at * 1000)).encode()
        wanted = [ordered(at, value=value), alarm(value)]
        assert left(wakes(9.0), now, WAKE, rung, alarm=rung) == wanted

    def test_a_task_that_is_kept_for_ever(self) -> None:
        one = begun(POST, write_letter([]), kept=evolve(ASKING, status="failed"))
        one.retention = float("inf")
        last = b"100000000000000"
        wanted = [ordered(1e11, value=last), alarm(last), *END]
        assert unframe(one.leave(5.0)) == wanted

    def test_removal_of_a_task_that_has_ended(self) -> None:
        row = evolve(ASKING, status="failed", updated=1_000.0)
        assert row.kept_until(RETENTION) == 1_060.0
        wanted = [ordered(1_060.0, value=b"1060000"), alarm(b"1060000")]
        assert left(row, 1_059.9) == wanted
        assert left(row, 1_060.0) == [Message(0x0405, 0, [])]


# ---- on a model of the engine -------------------------------------------------------


@step
def make(what: str) -> str:
    return f"a {what}"


@step(at_most_once=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


@step(retries=3)
def fetch(what: str) -> str:
    return f"the {what}"


def shop() -> Flow[str]:
    """Ask, perform, sleep, and ask again."""
    what = yield from Elicit("What?", str)
    made = yield from make(what)
    yield from Sleep(5)
    try:
        paid = yield from pay(10)
    except StepInterrupted:
        paid = "who knows"
    several = yield from Gather(fetch("jar"), Elicit("How many?", int), fetch("pan"))
    late = yield from Within(20, Elicit("More?", str))
    return " ".join(map(str, (made, paid, *several, late)))


ANSWERS: dict[int, Any] = {0: "cup", 1: 3}
EXPECTED = "a cup paid 10 the jar 3 the pan TimedOut()"

points = st.sets(st.integers(0, 60), max_size=8).map(frozenset)
skews = st.sampled_from([0.0, 0.0, 0.0125, 3.0, 20.0, -0.0125, -3.0])


def shopping(**more: Any) -> Host:
    """Return a task of `shop` and its client, on the model."""
    app = Server("shop")
    app.tool(name="job")(shop)
    seen: list[str] = []

    def asked(key: str, request: Any) -> None:
        if len(seen) in ANSWERS:
            said = accepted(ANSWERS[len(seen)])
            one.at(one.now - START + 0.25, lambda: one.answer(key, said))
            # A client repeats what it has no response to.
            one.at(one.now - START + 1.25, lambda: one.answer(key, said))
        seen.append(key)

    tries: dict[str, int] = {}

    def result(want: Want) -> Done | Failure:
        tries[want.key] = tries.get(want.key, 0) + 1
        effect = want.effect
        assert isinstance(effect, Step)
        if effect.options.retries and tries[want.key] == 1:
            return Failure(OSError("down"))
        return Done(effect.fn(*effect.args))

    one = Host(
        app,
        new("job"),
        asked=asked,
        result=result,
        lasts=lambda want: 0.5,
        **more,
    )
    return one


def text(row: TaskRow) -> str:
    assert row.result is not None, row
    found: str = row.result["content"][0]["text"]
    return found


def test_task_on_the_model() -> None:
    one = shopping()
    assert text(one.run()) == EXPECTED
    assert one.engine.state == {}, "it is removed in the end"
    assert one.now == pytest.approx(one.row.updated + RETENTION, abs=0.01)
    assert len(one.performed) == 6
    assert one.commands > 40, "cuts are everywhere"


def test_effect_before_the_first_save_waits_for_nothing() -> None:
    """A value that is drawn needs no save: so no acknowledgement comes."""

    def draws() -> Flow[str]:
        now = yield from Now()
        return f"{now.timestamp():g}"

    app = Server("shop")
    app.tool(name="job")(draws)
    one = Host(app, new("job"))
    assert text(one.run()) == "1e+06"
    assert one.story.count("Save") == 1


@given(points, skews, st.sets(st.integers(1, 6)), st.sampled_from([1, 7, 10_000]))
@example(frozenset(range(0, 60, 6)), 0.0, set(), 10_000)
def test_lost_attempts_change_nothing(
    cuts: frozenset[int], skew: float, deaf: set[int], split: int
) -> None:
    one = shopping(cuts=cuts, skew=skew, deaf=deaf, split=split)
    row = one.run()
    note(one.story)
    event(f"{one.turns} attempts")
    if one.interrupted and "who knows" in text(row):
        event("interrupted")
        assert text(row) == EXPECTED.replace("paid 10", "who knows")
    else:
        assert text(row) == EXPECTED
    assert one.engine.state == {}


@given(points, skews, st.integers(0, 40), st.booleans())
def test_cancelled_tasks_end(
    cuts: frozenset[int], skew: float, at: int, is_heard: bool
) -> None:
    one = shopping(cuts=cuts, skew=skew, deaf=() if is_heard else range(99))
    one.at(at + 0.1, one.cancel)
    row = one.run()
    note(one.story)
    assert row.status == ("cancelled" if row.cancelled_at is not None else "completed")
    assert one.engine.state == {}


@settings(max_examples=50)
@given(
    drawn_bodies(["plain", "once", "failing", "flaky"]),
    st.integers(0, 2**16),
    points,
    st.none() | st.integers(0, 30),
    skews,
    st.sets(st.integers(1, 6)),
)
def test_any_program_keeps_what_turns_guarantee(
    body: Any,
    seed: int,
    cuts: frozenset[int],
    cancel: int | None,
    skew: float,
    deaf: set[int],
) -> None:
    """`Host` checks it at each command, and whenever nothing runs."""
    world = World(seed, cancel=None if cancel is None else cancel + 0.123456789)
    make_host = partial(Host, skew=skew, deaf=deaf)
    one = played(body, world, cuts, make=make_host).host
    note(one.story)
    assert isinstance(one, Host)
    if one.row.is_ended:
        assert one.engine.state == {}
    else:
        assert one.row.questions, "it waits for an answer that never comes"
