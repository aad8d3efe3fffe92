from __future__ import annotations

import asyncio
import datetime as dt
import gc
import uuid
import warnings
from typing import Any
from unittest.mock import ANY

import pytest
from attrs import field, frozen
from attrs.validators import ge

from effectmcp import (
    Accepted,
    Caller,
    Checkpoint,
    ClientFailed,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    InvalidAnswer,
    ListRoots,
    Log,
    Now,
    Outcome,
    Progress,
    Provided,
    Random,
    Restart,
    Root,
    Sample,
    Sampled,
    Sleep,
    Status,
    Step,
    StepFailed,
    TimedOut,
    Unsupported,
    UsageError,
    Uuid,
    Version,
    Within,
    step,
)
from effectmcp.compat import Context, awaits_effects
from effectmcp.engine import UnperformedEffectWarning
from effectmcp.errors import BudgetError, StepError
from effectmcp.lowlevel import Given, InputRequired
from effectmcp.testing import Mismatch, play, play_script

charged: list[str] = []


@step
def charge_card(title: str, name: str, key: str) -> str:
    charged.append(title)
    return f"receipt {len(charged)}"


class CardError(Exception):
    pass


@step(raises=(CardError,))
def refund(amount: int) -> int:
    raise CardError("too late")


def order(title: str) -> Flow[str]:
    name = yield from Elicit("Who is it for?", str)
    day = yield from Elicit("Which day?", dt.date)
    if not (yield from Confirm(f"Order {title} for {name} on {day:%d %b}?")):
        return "Nothing ordered."
    key = yield from IdempotencyKey("charge")
    receipt = yield from charge_card(title, name, key)
    return f"Ordered: {receipt}"


WHO = Elicit("Who is it for?", str)
DAY = dt.date(2026, 12, 1)


# ---- a conversation -----------------------------------------------------------------


def test_a_conversation() -> None:
    charged.clear()
    with play(order, title="Dune") as dialogue:
        dialogue.expect(WHO).answer("Ann")
        dialogue.expect(Elicit).answer(DAY)
        dialogue.expect(Confirm("Order Dune for Ann on 01 Dec?")).answer(True)
        dialogue.expect(charge_card).returns("receipt 7")
        assert dialogue.result == "Ordered: receipt 7"
    assert charged == [], "no step is performed unless asked"


def test_a_conversation_in_one_chain() -> None:
    dialogue = play(order, "Dune").expect(Elicit).answer("Ann").expect(Elicit)
    assert dialogue.answer(DAY).expect(Confirm).answer(False).result == (
        "Nothing ordered."
    )


def test_transcript_has_a_line_for_each_effect() -> None:
    dialogue = play(order, "Dune").expect(WHO).answer("Ann")
    dialogue.expect(Elicit).answer(DAY).expect(Confirm).answer(True)
    dialogue.expect(charge_card("Dune", "Ann", ANY)).fails(OSError("offline"))
    assert dialogue.transcript[:3] == [
        "Elicit(message='Who is it for?', form=str) → 'Ann'",
        "Elicit(message='Which day?', form=date) → datetime.date(2026, 12, 1)",
        "Confirm(message='Order Dune for Ann on 01 Dec?') → True",
    ]
    assert dialogue.transcript[3].startswith("charge_card('Dune', 'Ann', '")
    assert dialogue.transcript[3].endswith(" → raised OSError('offline')")
    assert len(dialogue.transcript[3]) < 100
    assert isinstance(dialogue.error, OSError)


def test_pending_are_the_effects_that_wait() -> None:
    dialogue = play(order, "Dune")
    assert dialogue.pending == [WHO]
    assert dialogue.expect(Elicit).effect == WHO


def test_plain_function_is_at_its_end() -> None:
    assert play(max, 1, 2).result == 2


# ---- mismatches ---------------------------------------------------------------------


def test_mismatch_shows_expected_and_actual_effects_and_the_dialogue() -> None:
    dialogue = play(order, "Dune").expect(WHO).answer("Ann")
    with pytest.raises(Mismatch) as caught:
        dialogue.expect(Confirm)
    mismatch = caught.value
    assert mismatch.expected == "Confirm"
    (came,) = mismatch.came
    line = order.__code__.co_firstlineno + 2
    assert came == f"Elicit(message='Which day?', form=date) at {__file__}:{line}"
    assert mismatch.transcript == tuple(dialogue.transcript)
    assert str(mismatch) == (
        f"expected Confirm\nbut came {came}\nafter\n    {dialogue.transcript[0]}"
    )


def test_mismatch_of_a_step_shows_the_call_and_its_line() -> None:
    dialogue = play(order, "Dune").expect(WHO).answer("Ann")
    dialogue.expect(Elicit).answer(DAY).expect(Confirm).answer(True)
    with pytest.raises(Mismatch, match=r"came charge_card\('Dune', 'Ann', '.*:\d+"):
        dialogue.expect(refund)
    with pytest.raises(Mismatch, match=r"expected charge_card\('Emma', 'Ann', key=<AN"):
        dialogue.expect(charge_card("Emma", "Ann", key=ANY))


def test_mismatch_at_the_first_effect_has_no_transcript() -> None:
    with pytest.raises(Mismatch) as caught:
        play(order, "Dune").expect(Elicit("Who is it for?", int))
    assert "after" not in str(caught.value)


def test_mismatch_when_the_handler_has_returned() -> None:
    with pytest.raises(Mismatch, match="came the end, returning 2"):
        play(max, 1, 2).expect(Confirm)
    with pytest.raises(Mismatch, match="expected an exception\nbut came the end"):
        _ = play(max, 1, 2).error


def test_mismatch_when_the_handler_has_raised_is_caused_by_it() -> None:
    dialogue = play(order)  # type: ignore[call-overload]  # a bad call is the handler's error
    with pytest.raises(Mismatch, match="came the end, raising TypeError") as caught:
        dialogue.expect(Elicit)
    assert caught.value.__cause__ is dialogue.error
    with pytest.raises(TypeError, match="title"):
        _ = dialogue.result


def test_mismatch_when_the_handler_still_waits() -> None:
    with pytest.raises(Mismatch, match="expected the end\nbut came Elicit"):
        _ = play(order, "Dune").result
    with pytest.raises(Mismatch, match="expected the end"):
        _ = play(order, "Dune").error


def test_mismatch_of_a_gather_shows_all_waiting_effects() -> None:
    def handler() -> Flow[Any]:
        return (yield from Gather(Confirm("A?"), Confirm("B?")))

    with pytest.raises(Mismatch, match=r"A\?.* and Confirm\(message='B"):
        play(handler).expect(Elicit)


def test_handler_that_loops_is_ended_and_the_mismatch_is_short() -> None:
    def handler() -> Flow[None]:
        while True:
            yield from Random()

    dialogue = play(handler)
    with pytest.raises(Mismatch, match=r"\(9,9\d\d more\)") as caught:
        dialogue.expect(Confirm)
    assert len(str(caught.value).splitlines()) < 30
    assert isinstance(dialogue.error, BudgetError)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (Outcome, "expect the question"),
        (Outcome(WHO), "expect the question"),
        (Gather(WHO), "expect its effects"),
        (IdempotencyKey, r"nothing waits at IdempotencyKey\(\)"),
        (Version("a", default=0, latest=1), "nothing waits"),
        (Progress(1), "told"),
        (Log, "told"),
        (Status, "told"),
        (Restart, "nothing waits"),
        (Checkpoint(), "nothing waits"),
        (ClientSupports(Elicit), "nothing waits"),
        ("Who is it for?", "expect an effect"),
    ],
    ids=repr,
)
def test_effects_that_do_not_wait_cannot_be_expected(what: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        play(order, "Dune").expect(what)


# ---- questions ----------------------------------------------------------------------


@frozen
class Guest:
    name: str
    age: int = field(validator=ge(18))


def ask_guest() -> Flow[Guest]:
    return (yield from Elicit("Who is coming?", Guest))


def test_answer_takes_what_the_handler_gets_or_what_a_client_sends() -> None:
    ann = Guest("Ann", 30)
    assert play(ask_guest).expect(Elicit).answer(ann).result == ann
    sent = {"name": "Ann", "age": 30}
    assert play(ask_guest).expect(Elicit).answer(sent).result == ann


def test_answer_must_fit() -> None:
    question = play(ask_guest).expect(Elicit)
    with pytest.raises(UsageError, match="does not fit .*age: must be at least 18"):
        question.answer({"name": "Ann", "age": 3})
    assert question.answer(Guest("Ann", 18)).result.age == 18


def test_send_what_does_not_fit_and_the_question_comes_again() -> None:
    bad = Accepted({"name": "Ann", "age": 3})
    dialogue = play(ask_guest).expect(Elicit).send(bad)
    again = dialogue.expect(Elicit)
    assert again.problems == ("age: must be at least 18",)
    dialogue = again.send(bad).expect(Elicit).send(bad)
    assert isinstance(dialogue.error, InvalidAnswer)


def test_decline_dismiss_refuse() -> None:
    assert isinstance(play(ask_guest).expect(Elicit).decline().error, Declined)
    assert isinstance(play(ask_guest).expect(Elicit).dismiss().error, Dismissed)
    refused = play(ask_guest).expect(Elicit).refuse(-32603, "no screen").error
    assert isinstance(refused, ClientFailed)
    assert refused.code == -32603


def test_unsupported_is_a_client_that_cannot_be_asked() -> None:
    assert isinstance(play(ask_guest).expect(Elicit).unsupported().error, Unsupported)


def test_unsupported_and_declined_use_otherwise() -> None:
    def handler() -> Flow[str]:
        one = yield from Elicit("One?", str, otherwise="none")
        two = yield from Elicit("Two?", str, otherwise="none")
        return f"{one} {two}"

    dialogue = play(handler).expect(Elicit).unsupported().expect(Elicit).decline()
    assert dialogue.result == "none none"


def test_outcome_is_expected_by_its_question() -> None:
    def handler() -> Flow[str]:
        match (yield from Outcome(WHO)):
            case Accepted(name):
                return name
            case other:
                return type(other).__name__

    assert play(handler).expect(WHO).answer("Ann").result == "Ann"
    assert play(handler).expect(WHO).decline().result == "Declined"
    assert play(handler).expect(Elicit).dismiss().result == "Dismissed"


def test_other_questions() -> None:
    def handler() -> Flow[Any]:
        yield from ElicitUrl("Log in", "https://example.com")
        text = yield from Sample("Write")
        where = yield from ListRoots()
        return text.text, where

    dialogue = play(handler).expect(ElicitUrl).answer()
    dialogue.expect(Sample).answer("Hello").expect(ListRoots).answer(["file:///a"])
    assert dialogue.result == ("Hello", [Root("file:///a")])
    written = Sampled([{"type": "text", "text": "Hi"}], "m")
    dialogue = play(handler).expect(ElicitUrl).answer().expect(Sample).answer(written)
    assert dialogue.expect(ListRoots).answer([]).result == ("Hi", [])


def test_question_is_not_performed() -> None:
    question = play(order, "Dune").expect(Elicit)
    for way in (question.returns, question.performs):
        with pytest.raises(UsageError, match="answered by a client"):
            way()
    with pytest.raises(UsageError, match="answered by a client"):
        question.fails(OSError())


def test_question_is_answered_once() -> None:
    question = play(order, "Dune").expect(Elicit)
    question.answer("Ann")
    with pytest.raises(UsageError, match="was answered before"):
        question.answer("Bob")


# ---- performed effects --------------------------------------------------------------


def give_back(amount: int) -> Flow[str]:
    try:
        back = yield from refund(amount)
    except CardError as exc:
        return f"refused: {exc}"
    return f"{back} back"


def test_step_by_its_function_its_call_or_its_kind() -> None:
    for what in (refund, refund.fn, refund(5), Step):
        assert play(give_back, 5).expect(what).returns(4).result == "4 back"
    with pytest.raises(Mismatch, match=r"expected refund\(6\)\nbut came refund\(5\)"):
        play(give_back, 5).expect(refund(6))


def test_step_fails_as_it_would() -> None:
    failed = play(give_back, 5).expect(refund).fails(CardError("expired"))
    assert failed.result == "refused: expired"
    error = play(give_back, 5).expect(refund).fails(type("Odd", (Exception,), {})())
    assert isinstance(error.error, StepFailed)


def test_step_returns_what_its_annotation_states() -> None:
    expected = play(give_back, 5).expect(refund)
    with pytest.raises(UsageError, match=r"refund\(5\) cannot return 'much'"):
        expected.returns("much")
    assert expected.returns(5).result == "5 back"


def test_step_is_not_answered() -> None:
    expected = play(give_back, 5).expect(refund)
    with pytest.raises(UsageError, match="performed here"):
        expected.answer(5)
    with pytest.raises(UsageError, match="performed here"):
        expected.decline()


def test_step_performed_really() -> None:
    assert play(give_back, 5).expect(refund).performs().result == "refused: too late"


def test_step_performed_really_with_what_it_needs() -> None:
    @step
    async def look_up(title: str, *, shelf: dict[str, int] = Provided()) -> int:
        return shelf[title]

    def handler() -> Flow[int]:
        return (yield from look_up("Dune"))

    expected = play(handler).expect(look_up)
    with pytest.raises(StepError, match="provided"):
        expected.performs()
    done = expected.performs(provided={"shelf": {"Dune": 3}}, run_async=asyncio.run)
    assert done.result == 3


def test_random_values_are_the_same_in_every_test() -> None:
    def handler() -> Flow[Any]:
        first, chance = yield from Gather(Now(), Random())
        yield from Confirm("Go on?")
        return first, chance, (yield from Now()), (yield from Uuid())

    first, second = (play(handler).expect(Confirm).answer().result for _ in range(2))
    assert first == second
    assert first[:2] == (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 0.5)
    assert first[2] > first[0], "time goes on"


def test_random_values_may_be_expected_by_name() -> None:
    def handler() -> Flow[Any]:
        return (yield from Now()), (yield from Caller()), (yield from Uuid())

    now, one = dt.datetime(2030, 1, 1, tzinfo=dt.UTC), uuid.UUID(int=1)
    dialogue = play(handler).expect(Now).returns(now)
    assert dialogue.expect(Uuid).returns(one).result[::2] == (now, one)
    expected = play(handler).expect(Now)
    with pytest.raises(UsageError, match="cannot return 3"):
        expected.returns(3)
    with pytest.raises(UsageError, match=r"Now\(\) cannot fail"):
        expected.fails(OSError())
    assert expected.performs().result[0].tzinfo is dt.UTC


def test_detach_continues_inline_and_sleep_takes_no_time() -> None:
    def handler() -> Flow[bool]:
        detached = yield from Detach()
        yield from Sleep(3600)
        yield from Status("almost there")
        return detached

    dialogue = play(handler)
    assert dialogue.result is False
    assert dialogue.told == [Status("almost there")]
    assert play(handler).expect(Detach).returns(True).result is True


def test_waiting_for_several() -> None:
    def handler() -> Flow[Any]:
        yield from Detach()
        timed = yield from Within(5, Step(pow, 2, 3))
        return timed, (yield from FirstOf(Step(pow, 2, 3), Sleep(5)))

    dialogue = play(handler).expect(Within).returns(TimedOut())
    assert dialogue.expect(FirstOf).returns((1, None)).result == (TimedOut(), (1, None))


def book_in_time() -> Flow[object]:
    yield from Detach()
    day = yield from Within(60, Elicit("Which day?", str))
    return day, (yield from FirstOf(Elicit("Who?", str), Sleep(60)))


def test_a_question_with_a_deadline_is_answered() -> None:
    dialogue = play(book_in_time).expect(Elicit("Which day?", str)).answer("Monday")
    assert dialogue.expect(Elicit("Who?", str)).answer("Ann").result == (
        "Monday",
        (0, "Ann"),
    )


def test_a_question_lapses() -> None:
    dialogue = play(book_in_time).expect(Elicit("Which day?", str)).lapse()
    assert dialogue.expect(Elicit("Who?", str)).lapse().result == (
        TimedOut(),
        (1, None),
    )
    assert dialogue.transcript[-1].endswith("→ no answer in time")


def test_a_question_without_a_deadline_cannot_lapse() -> None:
    def ask() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    with pytest.raises(UsageError, match="has no deadline"):
        play(ask).expect(Elicit).lapse()


# ---- side by side -------------------------------------------------------------------


def test_gather_is_answered_in_any_order() -> None:
    def drink(who: str) -> Flow[str]:
        what = yield from Elicit(f"What does {who} drink?", str)
        return what if (yield from Confirm(f"{what} for {who}?")) else "water"

    def party() -> Flow[list[str]]:
        return (yield from Gather.each(drink(who) for who in ("Ann", "Bob")))

    dialogue = play(party)
    assert len(dialogue.pending) == 2
    dialogue.expect(Elicit("What does Bob drink?", str)).answer("tea")
    assert dialogue.pending == [Elicit("What does Ann drink?", str)]
    dialogue.expect(Elicit).answer("wine")
    dialogue.expect(Confirm).answer(True).expect(Confirm).answer(False)
    assert dialogue.result == ["wine", "water"]


def test_gather_of_steps_and_questions() -> None:
    def handler() -> Flow[Any]:
        return (yield from Gather(Confirm("A?"), refund(1), refund(2)))

    dialogue = play(handler).expect(refund(2)).returns(20).expect(refund).returns(10)
    assert dialogue.expect(Confirm).answer().result == (True, 10, 20)


def test_gather_asks_again_only_what_did_not_fit() -> None:
    def handler() -> Flow[Any]:
        return (yield from Gather(WHO, ElicitUrl("Log in", "https://a.example")))

    dialogue = play(handler).expect(Elicit).send(Accepted({"value": 3}))
    dialogue.expect(ElicitUrl).answer()
    assert dialogue.pending == [WHO]
    assert dialogue.expect(Elicit).answer("Ann").result == ("Ann", None)


# ---- what the engine answers --------------------------------------------------------


def begin_again(left: int) -> Flow[str]:
    if left:
        return (yield from Restart(begin_again, left - 1))
    return (yield from WHO)


def test_restart_version_checkpoint_and_supports_need_no_test() -> None:
    def handler() -> Flow[Any]:
        yield from Checkpoint()
        version = yield from Version("fee", default=0, latest=1)
        return version, (yield from ClientSupports(Sample))

    assert play(handler).result == (1, True)
    assert play(begin_again, 2).expect(WHO).answer("Ann").result == "Ann"


def test_progress_and_logs_are_in_the_transcript() -> None:
    def handler() -> Flow[None]:
        yield from Progress(1, 2)
        yield from WHO
        yield from Log("info", "done")

    dialogue = play(handler).expect(WHO).answer("Ann")
    assert dialogue.told == [Progress(1, 2), Log("info", "done")]
    assert dialogue.transcript[0] == "Progress(done=1, total=2)"
    assert dialogue.transcript[2] == "Log(level='info', data='done')"


def test_effect_that_is_never_performed_is_warned_about() -> None:
    def handler() -> Flow[None]:
        yield from Confirm("A?")
        Confirm("B?")

    question = play(handler).expect(Confirm)
    with pytest.warns(UnperformedEffectWarning, match="forgotten"):
        question.answer()


# ---- other kinds of handlers --------------------------------------------------------


def test_async_handler_that_awaits_effects() -> None:
    @awaits_effects
    async def greet(greeting: str, ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str)
        await ctx.info("asked")
        return f"{greeting} {answer.data}"

    dialogue = play(greet, "Hi").expect(Elicit("Who?", str)).answer("Ann")  # type: ignore[call-overload]  # ctx is filled in
    assert dialogue.result == "Hi Ann"
    assert dialogue.told == [Log("info", "asked")]


def test_function_that_keeps_its_own_state_is_called_and_not_stepped() -> None:
    def keeps(given: Given = Provided()) -> str | InputRequired:
        return InputRequired({"who": WHO})

    def forgets() -> str | InputRequired:
        return InputRequired({"who": WHO})

    with pytest.raises(UsageError, match=r"call it, keeps\(\.\.\., given=Given"):
        play(keeps)
    with pytest.raises(UsageError, match="forgets keeps its own state"):
        _ = play(forgets).result


def test_play_refuses_what_is_not_a_handler() -> None:
    with pytest.raises(UsageError, match="not a handler"):
        play("order")  # type: ignore[call-overload]


# ---- the end of a dialogue ----------------------------------------------------------


def test_closing_ends_the_handler_where_it_is() -> None:
    ended = []

    def handler() -> Flow[None]:
        try:
            yield from Confirm("A?")
        finally:
            yield from refund(1)
            ended.append("performed")  # pragma: no cover

    with play(handler) as dialogue:
        dialogue.expect(Confirm)
    with pytest.raises(UsageError, match="suspended"):
        dialogue.expect(Confirm).answer()
    assert ended == []


def test_dropped_dialogue_leaves_nothing_behind() -> None:
    """The dialogue gives no warning: its cleanup performs nothing."""
    ended = []

    def handler() -> Flow[None]:
        try:
            yield from Gather(Confirm("A?"), ask_guest())
        finally:
            ended.append("finally")
            yield from Log("info", "cleanup")

    @awaits_effects
    async def waits() -> None:
        try:
            await Confirm("A?")
        finally:
            ended.append("async")

    gc.disable()  # no cycle may hold it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            play(handler).expect(Elicit)
            play(waits)
        assert ended == ["finally", "async"]
    finally:
        gc.enable()


# ---- scripts ------------------------------------------------------------------------


def test_script_is_a_whole_conversation() -> None:
    script = [
        (WHO, "Ann"),
        (Elicit, DAY),
        (Confirm, True),
        (charge_card, "receipt 7"),
    ]
    assert play_script(order, script, title="Dune") == "Ordered: receipt 7"


def test_script_refuses_in_every_way() -> None:
    assert play_script(give_back, [(refund, CardError("no"))], 5) == "refused: no"
    for refusal in (Declined(), Dismissed(), ClientFailed(-32603, "no screen")):
        with pytest.raises(type(refusal)):
            play_script(ask_guest, [(Elicit, refusal)])


def test_script_ends_with_the_handler() -> None:
    with pytest.raises(Mismatch, match="expected the end\nbut came Elicit"):
        play_script(order, [(WHO, "Ann")], "Dune")
    with pytest.raises(Mismatch, match="came the end, returning 2"):
        play_script(max, [(Confirm, True)], 1, 2)
