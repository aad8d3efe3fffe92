"""Requests that count once, as an object on Restate: bytes in, bytes out.

Interleavings of whole requests are in `effectmcp_tests.exchange.test_ledger`.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.errors import TaskStoreError
from effectmcp.exchange.ledger import Taken, Use
from effectmcp.tasks.restate.attempts import owner_tag
from effectmcp.tasks.restate.frames import FrameError
from effectmcp.tasks.restate.openings import Opening
from effectmcp.tasks.restate.uses import (
    FORGET,
    FULL,
    HANDLERS,
    KEEP,
    TAKE,
    Seen,
    UseAttempt,
    keep_request,
    read_taking,
    take_request,
)

from .modelled_uses import ModelledEngine, told
from .wire import Message, decode, encode, frame, unframe

SERVICE = "shop.Use"
USE = Use(flow="f1", slots=(("1", 10.0),), request="r", owner="ann", by="me")
BOTH = attrs.evolve(USE, slots=(("1", 10.0), ("line", 99.5)))
OTHER = attrs.evolve(USE, request="other")
AGAIN = attrs.evolve(USE, by="another execution")
ONE = Taken("f1", "1", 1)
END = Message(0x0003, 0, [])
LINE_ENDS = 99_501, FORGET, "f1", b"99.5"


# ---- requests and their results -----------------------------------------------------


def take(engine: ModelledEngine, use: Use = USE, over: Seen | None = None) -> Any:
    answer = engine.call(SERVICE, TAKE, use.flow, take_request(use, over))
    return read_taking(answer, use)


def keep(
    engine: ModelledEngine, taken: Taken, reply: bytes | None, *, is_left: bool = False
) -> bool:
    request = keep_request(taken, reply, is_left=is_left)
    return bool(engine.call(SERVICE, KEEP, taken.flow, request) == {"kept": True})


def forget(engine: ModelledEngine, until: float) -> None:
    assert engine.call(SERVICE, FORGET, "f1", json.dumps(until).encode()) is None


@pytest.fixture
def engine() -> ModelledEngine:
    return ModelledEngine()


def test_handlers_have_the_names_that_the_engine_knows() -> None:
    """Requests for later are stored under them."""
    assert HANDLERS == ("take", "keep", "forget")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"fence": "1"},
        {"busy": [1]},
        {"busy": [1, "2"]},
        {"spent": 1},
        {"spent": False},
        {"reply": 5},
        FULL,
        "x" * 999,
    ],
)
def test_read_taking_of_another_form_is_an_error(answer: Any) -> None:
    with pytest.raises(TaskStoreError, match="is not understood") as caught:
        read_taking(answer, USE)
    assert len(str(caught.value)) < 300


def test_request_to_take_shows_no_user() -> None:
    """The engine gets a tag of the user, which is enough to count."""
    data = json.loads(take_request(USE, Seen(3, 7)))
    assert data["owner"] == owner_tag("ann").decode()
    assert data["over"] == [3, 7]
    assert "ann" not in str(data)


# ---- take ---------------------------------------------------------------------------


def test_take_free_slots_gives_the_first_fence(engine: ModelledEngine) -> None:
    assert take(engine, BOTH) == ONE
    assert engine.objects["f1"][b"open"] == owner_tag("ann")
    assert engine.later == [LINE_ENDS]


def test_take_of_another_request_is_spent(engine: ModelledEngine) -> None:
    take(engine, BOTH)
    assert take(engine, OTHER) is None
    line = attrs.evolve(OTHER, slots=(("2", 20.0), ("line", 99.5)))
    before = dict(engine.objects["f1"])
    assert take(engine, line) is None
    assert engine.objects["f1"] == before
    assert len(engine.later) == 1


def test_take_running_request_is_busy_with_its_beat(engine: ModelledEngine) -> None:
    take(engine)
    assert take(engine, AGAIN) == Seen(1, 0)
    keep(engine, ONE, None)
    assert take(engine, AGAIN) == Seen(1, 1)


def test_take_by_the_same_execution_raises_the_fence(engine: ModelledEngine) -> None:
    """The engine repeats an attempt whose answer was lost, and a flow takes its line."""
    assert take(engine) == ONE
    assert take(engine, BOTH) == Taken("f1", "1", 2)
    assert not keep(engine, ONE, b"too late")
    assert take(engine, AGAIN) == Seen(2, 0)
    assert engine.later == [(10_001, FORGET, "f1", b"10.0"), LINE_ENDS]


def test_take_of_the_line_is_spent_if_another_state_has_it(
    engine: ModelledEngine,
) -> None:
    take(engine)
    other = attrs.evolve(OTHER, slots=(("2", 20.0),))
    take(engine, other)
    other = attrs.evolve(OTHER, slots=(("2", 20.0), ("line", 99.5)))
    assert take(engine, other) == Taken("f1", "2", 2)
    before = dict(engine.objects["f1"])
    assert take(engine, BOTH) is None
    assert engine.objects["f1"] == before


def test_take_without_room_is_refused_for_a_flow_without_slots(
    engine: ModelledEngine,
) -> None:
    full = take_request(USE, is_full=True)
    assert engine.call(SERVICE, TAKE, "f1", full) == FULL
    assert (engine.objects["f1"], engine.later) == ({}, [])


def test_take_without_room_is_granted_to_a_flow_with_slots(
    engine: ModelledEngine,
) -> None:
    def full(use: Use) -> Any:
        body = take_request(use, is_full=True)
        return read_taking(engine.call(SERVICE, TAKE, "f1", body), use)

    take(engine)
    assert full(OTHER) is None
    assert full(AGAIN) == Seen(1, 0)
    assert full(BOTH) == Taken("f1", "1", 2)
    keep(engine, Taken("f1", "1", 2), b"reply")
    assert full(USE) == b"reply"
    assert full(attrs.evolve(OTHER, slots=(("2", 20.0),))) == Taken("f1", "2", 1)


def test_take_answered_request_returns_its_reply(engine: ModelledEngine) -> None:
    take(engine)
    reply = '{"a":"\u2028é\U0001f600"}'.encode() + b"\xed\xa0\x80"
    assert keep(engine, ONE, reply)
    assert take(engine, AGAIN) == reply
    assert take(engine) == reply
    assert take(engine, OTHER) is None


def test_take_of_a_request_that_was_cut_off_runs_again(engine: ModelledEngine) -> None:
    take(engine, BOTH)
    assert keep(engine, ONE, None, is_left=True)
    again = attrs.evolve(BOTH, by="another execution")
    assert take(engine, again) == Taken("f1", "1", 2)
    assert take(engine, BOTH) == Seen(2, 0)


def test_take_over_a_dead_request_needs_its_beat(engine: ModelledEngine) -> None:
    """The beat has risen since, so it lives."""
    take(engine)
    keep(engine, ONE, None)
    for wrong in (Seen(1, 0), Seen(2, 1), Seen(1, 2)):
        assert take(engine, AGAIN, wrong) == Seen(1, 1)
    assert take(engine, AGAIN, Seen(1, 1)) == Taken("f1", "1", 2)
    assert not keep(engine, ONE, b"too late")


def test_take_over_helps_no_other_request(engine: ModelledEngine) -> None:
    take(engine)
    assert take(engine, OTHER, Seen(1, 0)) is None


def test_take_over_of_an_answered_request_returns_its_reply(
    engine: ModelledEngine,
) -> None:
    take(engine)
    keep(engine, ONE, b"reply")
    assert take(engine, AGAIN, Seen(1, 1)) == b"reply"


def test_take_over_of_a_removed_slot_takes_it(engine: ModelledEngine) -> None:
    assert take(engine, AGAIN, Seen(1, 1)) == ONE


# ---- keep ---------------------------------------------------------------------------


def test_keep_again_changes_nothing(engine: ModelledEngine) -> None:
    """An attempt whose answer was lost has kept the reply, and so has the next one."""
    take(engine)
    assert keep(engine, ONE, b"reply")
    before = dict(engine.objects["f1"])
    assert keep(engine, ONE, b"another")
    assert keep(engine, ONE, None, is_left=True)
    assert engine.objects["f1"] == before


@pytest.mark.parametrize("taken", [Taken("f1", "2", 1), Taken("f1", "1", 2)])
def test_keep_of_a_slot_that_is_not_taken_so_is_refused(
    engine: ModelledEngine, taken: Taken
) -> None:
    take(engine)
    before = dict(engine.objects["f1"])
    for reply in (b"reply", None):
        assert not keep(engine, taken, reply)
    assert engine.objects["f1"] == before


# ---- forget -------------------------------------------------------------------------


def later_slots(engine: ModelledEngine) -> None:
    for number, until in (("1", 10.0), ("2", 20.0)):
        use = attrs.evolve(USE, slots=((number, until),))
        taken = take(engine, use)
        keep(engine, taken, b"reply " + number.encode())


def test_slots_are_removed_when_no_state_can_name_them(engine: ModelledEngine) -> None:
    later_slots(engine)
    assert [at for at, *_ in engine.later] == [10_001, 20_001]
    engine.pass_time(10.0)
    assert take(engine) == b"reply 1"
    engine.pass_time(11.0)
    assert sorted(engine.objects["f1"]) == [b"open", b"reply 2", b"slots"]
    assert take(engine, OTHER) == ONE
    keep(engine, ONE, b"reply")
    engine.pass_time(21.0)
    assert engine.objects["f1"] == {}


def test_flow_without_slots_is_removed_whole(engine: ModelledEngine) -> None:
    later_slots(engine)
    forget(engine, 20.0)
    assert engine.objects["f1"] == {}


def test_forget_too_early_changes_nothing(engine: ModelledEngine) -> None:
    later_slots(engine)
    before = dict(engine.objects["f1"])
    forget(engine, 9.9)
    assert engine.objects["f1"] == before


def test_forget_of_an_unknown_flow_is_harmless(engine: ModelledEngine) -> None:
    """An earlier request for later has removed the flow."""
    forget(engine, 9.9)
    assert engine.objects["f1"] == {}


# ---- frames -------------------------------------------------------------------------


def ran(handler: str, body: bytes, state: Any = (), **more: Any) -> list[Message]:
    attempt = UseAttempt(SERVICE, handler)
    assert attempt.feed(told(body, dict(state), **more))
    return unframe(attempt.run())


def output(value: Any) -> Message:
    data = json.dumps(value, separators=(",", ":")).encode()
    return Message(0x0401, 0, [(14, encode([(1, data)]))])


def test_first_take_writes_the_slots_the_owner_and_the_order() -> None:
    slots, owner, order, *rest = ran(TAKE, take_request(USE))
    assert slots.kind == owner.kind == 0x0403
    assert dict(slots.fields)[1] == b"slots"
    assert owner.fields == [(1, b"open"), (3, encode([(1, owner_tag("ann"))]))]
    assert order == Message(
        0x040E,
        0,
        [
            *((1, b"shop.Use"), (2, b"forget"), (3, b"10.0"), (4, 10_001)),
            *((6, b"f1"), (10, 1)),
        ],
    )
    assert rest == [output({"fence": 1}), END]


def test_take_after_lost_attempts_uses_a_number_of_its_own() -> None:
    """The engine refuses a completion whose number was used before."""
    known = frame(0x0403, [(1, b"slots"), (3, encode([(1, b"{}")]))])
    found = ran(TAKE, take_request(USE), known=known, count=2)
    [order] = [one for one in found if one.kind == 0x040E]
    assert dict(order.fields)[10] == 2


def test_refused_take_writes_nothing() -> None:
    slot = {"request": "other", "fence": 1, "until": 10.0, "beat": 0}
    state = {b"slots": json.dumps({"1": slot}).encode()}
    assert ran(TAKE, take_request(USE), state) == [output({"spent": True}), END]


def test_forget_removes_the_reply_of_each_slot() -> None:
    state = {b"slots": b'{"1":{"until":1.0},"2":{"until":2.0}}', b"reply 1": b"x"}
    cleared, kept, *rest = ran(FORGET, b"1.0", state)
    assert cleared == Message(0x0404, 0, [(1, b"reply 1")])
    value: Any = dict(kept.fields)[3]
    assert dict(decode(value))[1] == b'{"2":{"until":2.0}}'
    assert rest == [output(None), END]


def test_forget_the_last_slot_clears_all() -> None:
    state = {b"slots": b'{"1":{"until":1.0}}', b"open": b"x"}
    assert ran(FORGET, b"1.0", state) == [Message(0x0405, 0, []), output(None), END]


@pytest.mark.parametrize(
    ("handler", "body", "state"),
    [
        (TAKE, b"", {}),
        (TAKE, b"[]", {}),
        (TAKE, b"{}", {}),
        (TAKE, b"\xff", {}),
        (TAKE, b'{"slots":5,"request":"r","by":"b","over":null,"full":false}', {}),
        (TAKE, b'{"slots":[["1",1.0]],"request":"r","by":"b","over":null}', {}),
        (TAKE, take_request(USE), {b"slots": b"["}),
        (TAKE, take_request(USE), {b"slots": b"[]"}),
        (TAKE, take_request(USE), {b"slots": b'{"1":5}'}),
        (TAKE, take_request(USE), {b"slots": b'{"1":{}}'}),
        (KEEP, b"[1]", {}),
        (KEEP, b"{}", {}),
        (KEEP, keep_request(ONE, b"x"), {b"slots": b'{"1":{}}'}),
        (FORGET, b"null", {b"slots": b'{"1":{"until":1.0}}'}),
        (FORGET, b"1.0", {b"slots": b'{"1":5}'}),
    ],
)
def test_request_of_another_version_is_not_understood(
    handler: str, body: bytes, state: dict[bytes, bytes]
) -> None:
    attempt = UseAttempt(SERVICE, handler)
    assert attempt.feed(told(body, state))
    with pytest.raises(TaskStoreError, match="is not understood"):
        attempt.run()


def test_take_without_slots_is_not_understood() -> None:
    body = take_request(attrs.evolve(USE, slots=()))
    attempt = UseAttempt(SERVICE, TAKE)
    assert attempt.feed(told(body, {}))
    with pytest.raises(TaskStoreError, match="is not understood"):
        attempt.run()


# ---- the opening of an attempt ------------------------------------------------------


KNOWN = frame(0x0403, [(1, b"x")]) + frame(0x0004, [(1, 1)])
TOLD = told(b"body", {b"a": b"b"}, known=KNOWN, count=3)


@given(st.lists(st.integers(0, len(TOLD))))
def test_opening_is_the_same_however_its_bytes_are_cut(cuts: list[int]) -> None:
    one = Opening()
    places = [0, *sorted(cuts), len(TOLD)]
    kinds = []
    for begin, end in zip(places, places[1:], strict=False):
        assert not one.is_open or begin == len(TOLD)
        kinds += [each.kind for each in one.feed(TOLD[begin:end])]
    assert kinds == [0x0400, 0x0403, 0x0004]
    assert (one.is_open, one.input, one.commands) == (True, b"body", 2)
    assert one.start is not None
    assert (one.start.key, dict(one.start.state)) == ("f1", {b"a": b"b"})


def test_opening_ends_before_what_follows() -> None:
    """Signals and acknowledgements may come with the same bytes."""
    one = Opening()
    were_open = [one.is_open for _ in one.feed(TOLD + frame(0x0004, [(1, 2)]))]
    assert were_open == [False, False, True, True]
    assert one.commands == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(0x0400), "does not start"),
        (frame(0x0000, [(3, 1), (5, 1), (6, b"f1")]), "its whole state"),
        (frame(0x0000, [(6, b"f1")]), "without its input"),
    ],
)
def test_opening_without_all_that_is_needed_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        UseAttempt(SERVICE, TAKE).feed(data)


def test_attempt_is_open_with_its_last_frame() -> None:
    data = told(take_request(USE), {})
    attempt = UseAttempt(SERVICE, TAKE)
    assert not attempt.feed(data[:-1])
    assert attempt.feed(data[-1:])
