from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Caller,
    CallerInfo,
    CanonicalError,
    ClientFailed,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    Effect,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    InputRequest,
    InvalidAnswer,
    ListRoots,
    Now,
    Outcome,
    Random,
    Restart,
    Root,
    Sample,
    Sampled,
    Sleep,
    Step,
    StepError,
    StepFailed,
    StepOptions,
    TimedOut,
    ToolError,
    Unsupported,
    UsageError,
    Uuid,
    Within,
    step,
)
from effectmcp.canonical import dumps, loads
from effectmcp.engine import Entry
from effectmcp.engine.effect_table import (
    KINDS,
    LATER,
    NAMES,
    Wave,
    deliver,
    is_replayable,
    kind_of,
    options_of,
    record_error,
    record_value,
    steps_in,
)
from effectmcp.engine.journal import TAGS, Tag
from effectmcp.forms import Unfit

NOON = dt.datetime(2026, 7, 28, 12, 0, tzinfo=dt.UTC)


def charge(amount: int) -> str:
    return f"charged {amount}"


def again(amount: Any) -> Flow[Any]:
    return (yield from Step(charge, amount))


def once_more(amount: Any) -> Flow[Any]:
    return (yield from Step(charge, amount))


def day_of(amount: int) -> dt.date:
    return dt.date(2026, 7, amount)


def record(effect: Effect[Any], content: Any) -> bytes:
    """The payload of an answer or performed value."""
    return KINDS[type(effect)].write(effect, content)


def through(effect: Effect[Any], content: Any) -> Any:
    """Return the value that the handler gets for an answer or performed value."""
    kind = KINDS[type(effect)]
    payload = record(effect, content)
    tag: Tag = "accepted" if kind.is_question else kind.tag
    return deliver(effect, kind, Entry("k", b"", b"", tag, payload))


def render(effect: Effect[Any]) -> bytes:
    return KINDS[type(effect)].render(effect)


def schema(effect: Effect[Any]) -> bytes:
    schema = KINDS[type(effect)].schema
    return b"" if schema is None else schema(effect)


# ---- the table ----


def test_names_are_unique() -> None:
    assert len(NAMES) == len(KINDS)


def test_tags_are_known() -> None:
    assert {kind.tag for kind in KINDS.values()} <= set(TAGS)


def test_questions_are_the_input_requests() -> None:
    for class_, kind in KINDS.items():
        assert kind.is_question == issubclass(class_, InputRequest)
        assert not kind.is_question or kind.wave is Wave.CLIENT


def test_waves() -> None:
    """B2: `Checkpoint` belongs to the client's wave; what has no entry takes none."""
    by_wave = {
        wave: {kind.name for kind in KINDS.values() if kind.wave is wave}
        for wave in Wave
    }
    assert by_wave[Wave.CLIENT] == {
        "elicit", "confirm", "url", "sample", "roots", "checkpoint",
    }  # fmt: skip
    assert by_wave[Wave.INLINE] == {"key", "version", "progress", "log", "status"}
    assert by_wave[Wave.TREE] == {"gather"}


def test_later_kinds_are_in_the_table() -> None:
    assert set(LATER) <= set(KINDS)


def test_kind_of_an_outcome_is_its_requests() -> None:
    """Q7: same key, fingerprint and entry as its request."""
    found = kind_of(Outcome(Confirm("Sure?")))
    assert found == kind_of(Confirm("Sure?"))
    assert found is not None
    assert found[1] == Confirm("Sure?")


def test_kind_of_an_author_defined_effect() -> None:
    class Mine(Effect[None]):
        pass

    assert kind_of(Mine()) is None


# ---- fingerprints ----


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Elicit("Who?", str), Elicit("Who else?", str)),
        (Confirm("Sure?"), Confirm("Really?")),
        (ElicitUrl("Pay", "https://a.example"), ElicitUrl("Pay", "https://b.example")),
        (ElicitUrl("Pay", "https://a.example"), ElicitUrl("Go", "https://a.example")),
        (Sample("Write"), Sample("Read")),
        (Sample("Write"), Sample("Write", max_tokens=5)),
        (Sample("Write"), Sample("Write", system="Be short")),
        (Sample("Write"), Sample("Write", tools=[{"name": "t"}])),
        (Sample("Write"), Sample("Write", tool_choice="none")),
        (Sample("Write"), Sample("Write", temperature=0.5)),
        (Sample("Write"), Sample("Write", stop_sequences=["."])),
        (Sample("Write"), Sample("Write", preferences={"speedPriority": 1})),
        (Step(charge, 1), Step(charge, 2)),
        (Step(charge, 1), Step(charge, amount=1)),
        (Step(charge, 1), Step(day_of, 1)),
        (Step(charge, 1), step(name="c")(charge)(1)),
        (Within(1, Step(charge, 1)), Within(2, Step(charge, 1))),
        (Within(1, Step(charge, 1)), Within(1, Step(charge, 2))),
        (FirstOf(Sleep(1), Sleep(2)), FirstOf(Sleep(2), Sleep(1))),
        (FirstOf(Sleep(1)), FirstOf(Sleep(1), Sleep(1))),
        (Sleep(1), Sleep(2)),
        (ClientSupports(Elicit), ClientSupports(Sample)),
        (Restart(again, 1), Restart(again, 2)),
        (Restart(again, 1), Restart(once_more, 1)),
    ],
    ids=repr,
)
def test_render_differs_between_effects_of_a_kind(
    one: Effect[Any], other: Effect[Any]
) -> None:
    assert render(one) != render(other)
    assert schema(one) == schema(other)


CHARGE = b'["effectmcp_tests.engine.test_effect_kinds:charge",[1],{}]'
INTEGER = (
    b'{"properties":{"value":{"type":"integer"}},"required":["value"],"type":"object"}'
)


@pytest.mark.parametrize(
    ("effect", "shape", "text"),
    [
        (Elicit("Who?", int), INTEGER, b"Who?"),
        (Confirm("Sure?"), b"", b"Sure?"),
        (ElicitUrl("Pay", "https://a.example"), b"", b'["Pay","https://a.example"]'),
        (
            Sample("Hi", keep="text", max_tokens=5),
            b"text",
            (
                b'{"maxTokens":5,"messages":[{"content":{"text":"Hi","type":"text"},'
                b'"role":"user"}],"preferences":null,"stop":[],"system":null,'
                b'"temperature":null,"toolChoice":null,"tools":[]}'
            ),
        ),
        (Step(charge, 1), b"", CHARGE),
        (
            Within(5, Confirm("Sure?", key="k")),
            b'["confirm","k"]',
            b'5 confirm "Sure?"',
        ),
        (Within(5, Step(charge, 1)), b"", b"5 step " + CHARGE),
        (
            FirstOf(Elicit("Who?", int), Sleep(2), Confirm("Sure?")),
            b'["elicit",null]' + INTEGER + b'\n\n["confirm",null]',
            b'elicit "Who?"\nsleep 2\nconfirm "Sure?"',
        ),
        (FirstOf(Sleep(1), Step(charge, 1)), b"", b"sleep 1\nstep " + CHARGE),
        (Sleep(1.5), b"", b"1.5"),
        (ClientSupports(Elicit), b"", b"Elicit"),
        (Now(), b"", b""),
    ],
    ids=repr,
)
def test_fingerprints_do_not_change(
    effect: Effect[Any], shape: bytes, text: bytes
) -> None:
    """With another byte here, an update of the library diverges every running flow."""
    assert (schema(effect), render(effect)) == (shape, text)


def test_schema_differs_by_form() -> None:
    assert schema(Elicit("Who?", str)) != schema(Elicit("Who?", int))
    assert schema(Elicit("Who?", str)) != schema(Elicit("Who?", str, title="Name"))
    assert render(Elicit("Who?", str)) == render(Elicit("Who?", int))


def test_schema_of_a_sample_depends_on_keep() -> None:
    assert schema(Sample("Write")) != schema(Sample("Write", keep="text"))


def test_render_does_not_know_the_key_or_otherwise() -> None:
    """The key is part of the shape; `otherwise` is part of nothing (Q4)."""
    plain, named = Confirm("Sure?"), Confirm("Sure?", key="k", otherwise=False)
    assert (schema(plain), render(plain)) == (schema(named), render(named))


def test_render_does_not_know_step_options() -> None:
    """The options of a step may change while a flow is running."""
    assert render(step(retries=3)(charge)(1)) == render(Step(charge, 1))


def test_render_of_supports_is_the_kind_of_question() -> None:
    assert render(ClientSupports(Elicit("Who?", str))) == render(ClientSupports(Elicit))


def test_render_of_step_arguments_that_are_not_data() -> None:
    with pytest.raises(StepError, match=r":charge must be plain data.*= Provided\(\)"):
        render(Step(charge, object()))  # type: ignore[call-overload]


def test_render_of_restart_arguments_that_are_not_data() -> None:
    with pytest.raises(UsageError, match=r"arguments of Restart\(.*:again\) must be"):
        KINDS[Restart].render(Restart(again, object()))


class Seconds(float):
    """A subclass of float, which a journal would turn into a plain number."""


@pytest.mark.parametrize("make", [Sleep, lambda seconds: Within(seconds, Sleep(1))])
def test_render_of_seconds_that_are_not_data(make: Callable[[float], Any]) -> None:
    with pytest.raises(CanonicalError):
        render(make(Seconds(1)))


# ---- answers ----


def test_elicit_answer_becomes_the_type_asked_for() -> None:
    assert through(Elicit("When?", dt.date), {"value": "2026-07-28"}) == dt.date(
        2026, 7, 28
    )


def test_elicit_answer_loses_unknown_properties() -> None:
    assert record(Elicit("Who?", str), {"value": "Ann", "extra": 1}) == (
        b'{"value":"Ann"}'
    )


def test_consent_has_no_content() -> None:
    for effect, value in ((Confirm("Sure?"), True), (ElicitUrl("Go", "u:x"), None)):
        assert record(effect, {"extra": 1}) == b"{}"
        assert through(effect, None) is value


TEXT = {"type": "text", "text": "Once"}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


def test_sample_answer_is_a_list_of_blocks() -> None:
    assert through(Sample("Write"), {"content": TEXT, "model": "m"}) == Sampled(
        [TEXT], "m", None
    )
    assert through(
        Sample("Write"),
        {"content": [TEXT, IMAGE], "model": "m", "stopReason": "endTurn", "role": "x"},
    ) == Sampled([TEXT, IMAGE], "m", "endTurn")


def test_sample_that_keeps_text_drops_images_and_annotations() -> None:
    """Recorded values are part of the state of every later round."""
    said = {"content": [IMAGE, {**TEXT, "annotations": {}}], "model": "m"}
    assert through(Sample("Write", keep="text"), said).content == [TEXT]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({"model": "m"}, "content: must be content blocks"),
        ({"model": "m", "content": ["x"]}, "content: must be content blocks"),
        ({"model": "m", "content": [TEXT, "x"]}, "content: must be content blocks"),
        ({"model": "m", "content": {"type": 5}}, "content: must be content blocks"),
        ({"model": "m", "content": {"type": "text"}}, "content: must be content"),
        ({"model": "m", "content": {"type": "text", "text": 5}}, "content: must be"),
        ({"content": TEXT}, "model: is required"),
        ({"content": TEXT, "model": 5}, "model: is required"),
        ({"content": TEXT, "model": "m", "stopReason": 5}, "stopReason: must be text"),
    ],
)
def test_sample_answer_that_does_not_fit(content: Any, problem: str) -> None:
    with pytest.raises(Unfit, match=problem):
        record(Sample("Write"), content)


def test_within_that_timed_out_is_recorded_as_null() -> None:
    assert record(Within(1, Step(charge, 1)), TimedOut()) == b"null"
    assert through(Within(1, Step(charge, 1)), TimedOut()) == TimedOut()


def test_roots_answer() -> None:
    assert through(
        ListRoots(),
        {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b", "x": 1}]},
    ) == [Root("file:///a", "a"), Root("file:///b", None)]
    assert through(ListRoots(), {"roots": []}) == []


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"roots": None},
        {"roots": ["file:///a"]},
        {"roots": [{"name": "a"}]},
        {"roots": [{"uri": 5}]},
        {"roots": [{"uri": "file:///a", "name": 5}]},
    ],
)
def test_roots_answer_that_does_not_fit(content: Any) -> None:
    with pytest.raises(Unfit, match="roots: must be a list of objects with a uri"):
        record(ListRoots(), content)


# ---- what a performer gives ----


def test_step_result_comes_back_by_its_annotation() -> None:
    day = dt.date(2026, 7, 28)
    assert through(Step(day_of, 28), day) == day


def test_step_result_that_no_longer_reads() -> None:
    """The annotation has changed: an error that names the cause, not a divergence."""
    with pytest.raises(
        StepError, match=r"recorded result of .*:day_of does not come back as its"
    ):
        KINDS[Step].read(Step(day_of, 28), b'"yesterday"')


def test_within_value_or_timed_out() -> None:
    effect = Within(1, Step(day_of, 28))
    assert through(effect, dt.date(2026, 7, 28)) == dt.date(2026, 7, 28)
    assert through(effect, TimedOut()) == TimedOut()
    assert through(Within(1, Sleep(2)), None) is None
    # As `FirstOf` records the first of its effects.
    assert KINDS[Within].write(effect, dt.date(2026, 7, 28)) == (
        KINDS[FirstOf].write(FirstOf(effect.effect), (0, dt.date(2026, 7, 28)))
    )


def test_first_of_gives_position_and_value() -> None:
    effect = FirstOf(Sleep(1), Step(day_of, 28))
    assert through(effect, (0, None)) == (0, None)
    assert through(effect, (1, dt.date(2026, 7, 28))) == (1, dt.date(2026, 7, 28))


@pytest.mark.parametrize(
    ("effect", "value"),
    [
        (Now(), NOON),
        (Uuid(), uuid.UUID(int=3)),
        (Random(), 0.25),
        (Random(), 0.0),
        (Caller(), CallerInfo(principal="ann", progress_token=3, flow_id="ab")),
        (Caller(), CallerInfo()),
        (ClientSupports(Elicit), True),
        (Detach(), False),
        (Sleep(1), None),
    ],
    ids=repr,
)
def test_local_value_comes_back(effect: Effect[Any], value: Any) -> None:
    again = through(effect, value)
    assert again == value
    assert type(again) is type(value)


def test_now_comes_back_in_utc() -> None:
    """A moment has one string form, in every time zone of the server."""
    there = NOON.astimezone(dt.timezone(dt.timedelta(hours=2)))
    assert record(Now(), there) == record(Now(), NOON)
    assert through(Now(), there).tzinfo is dt.UTC


@pytest.mark.parametrize(
    ("effect", "value", "problem"),
    [
        (Now(), NOON.replace(tzinfo=None), "not an aware datetime"),
        (Now(), 5, "not an aware datetime"),
        (Uuid(), "3", "not a UUID"),
        (Random(), 1.0, "not a float below 1"),
        (Random(), -0.5, "not a float below 1"),
        (Random(), 0, "not a float below 1"),
        (Random(), float("nan"), "not a float below 1"),
        (Caller(), {"principal": "ann"}, "not a CallerInfo"),
        (ClientSupports(Elicit), 1, "ClientSupports was answered with 1"),
        (Detach(), None, "Detach was answered with None"),
    ],
    ids=repr,
)
def test_local_value_of_another_type_is_refused(
    effect: Effect[Any], value: Any, problem: str
) -> None:
    """The driver's mistake, reported to its author."""
    with pytest.raises(UsageError, match=problem):
        record(effect, value)


# ---- tags, options ----

replayable = step(replayable=True)(charge)


@pytest.mark.parametrize(
    ("effect", "again"),
    [
        (Step(charge, 1), False),
        (replayable(1), True),
        (Within(1, Step(charge, 1)), False),
        (Within(1, replayable(1)), True),
        (Within(1, Sleep(1)), True),
        (FirstOf(replayable(1), Sleep(1)), True),
        (FirstOf(replayable(1), Step(charge, 1)), False),
        (FirstOf(Confirm("Sure?"), Sleep(1)), True),
    ],
    ids=repr,
)
def test_entry_says_whether_it_may_be_performed_again(
    effect: Effect[Any], again: bool
) -> None:
    assert is_replayable(effect) == again
    assert record_error(effect, ValueError("no"))[2] == again


@pytest.mark.parametrize("effect", [Now(), Sleep(1), Uuid()], ids=repr)
def test_entry_of_an_effect_without_steps_is_not_replayable(
    effect: Effect[Any],
) -> None:
    value = {Now: NOON, Sleep: None, Uuid: uuid.UUID(int=7)}[type(effect)]
    assert record_value(effect, KINDS[type(effect)], value)[2] is False


def test_options_of() -> None:
    first, second = step(raises=(KeyError,)), step(raises=(ToolError,))
    assert options_of(first(charge)(1)).raises == (KeyError,)
    assert options_of(Within(1, first(charge)(1))).raises == (KeyError,)
    assert options_of(
        FirstOf(first(charge)(1), Sleep(1), second(charge)(1))
    ).raises == (KeyError, ToolError)
    assert options_of(Now()) == StepOptions()


def test_steps_in() -> None:
    one, two = Step(charge, 1), Step(charge, 2)
    assert steps_in(one) == [one]
    assert steps_in(Within(1, one)) == [one]
    assert steps_in(FirstOf(one, Sleep(1), two)) == [one, two]
    assert steps_in(Now()) == steps_in(Within(1, Sleep(1))) == []


def test_record_value_of_a_result_that_cannot_be_recorded() -> None:
    """The step was performed; without a record, every round would perform it again."""
    effect = Step(day_of, 28)
    tag, payload, _ = record_value(effect, KINDS[Step], "yesterday")
    assert tag == "failed"
    with pytest.raises(StepError, match="does not come back as"):
        deliver(effect, KINDS[Step], Entry("step-1", b"", b"", tag, payload))


def test_record_value_of_a_performers_mistake() -> None:
    with pytest.raises(UsageError):
        record_value(Now(), KINDS[Now], 5)


# ---- deliveries ----


def delivered(effect: Effect[Any], tag: Tag, value: Any = None) -> Any:
    """Return what the yield of `effect` gives a handler: a value, or an exception."""
    found = kind_of(effect)
    assert found is not None
    try:
        return deliver(effect, found[0], Entry("k", b"", b"", tag, dumps(value)))
    except Exception as exc:
        return exc


@pytest.mark.parametrize(
    ("effect", "value"),
    [
        (Elicit("Who?", str), "Ann"),
        (Elicit("Who?", str, otherwise="x"), "Ann"),
        (Outcome(Elicit("Who?", str)), Accepted("Ann")),
    ],
    ids=repr,
)
def test_deliver_accepted(effect: Effect[Any], value: Any) -> None:
    assert delivered(effect, "accepted", {"value": "Ann"}) == value


ASKS: list[Callable[..., InputRequest[Any]]] = [
    lambda **o: Elicit("Who?", str, **o),
    lambda **o: Confirm("Sure?", **o),
    lambda **o: ElicitUrl("Pay", "https://pay.example", **o),
    lambda **o: Sample("Write", **o),
    lambda **o: ListRoots(**o),
]
ASK_IDS = ["elicit", "confirm", "url", "sample", "roots"]

REFUSALS: list[tuple[Tag, Any, Exception]] = [
    ("dismissed", None, Dismissed()),
    ("invalid", ["too low"], InvalidAnswer(["too low"])),
    ("refused", [-32000, "no", None], ClientFailed(-32000, "no")),
]


@pytest.mark.parametrize("ask", ASKS, ids=ASK_IDS)
@pytest.mark.parametrize(("tag", "value", "error"), REFUSALS)
def test_deliver_refusal(
    ask: Callable[..., InputRequest[Any]], tag: Tag, value: Any, error: Exception
) -> None:
    assert delivered(ask(), tag, value) == error


@pytest.mark.parametrize("ask", ASKS, ids=ASK_IDS)
def test_deliver_unasked_names_the_kind(ask: Callable[..., InputRequest[Any]]) -> None:
    assert delivered(ask(), "unasked") == Unsupported(type(ask()).__name__)
    assert delivered(Outcome(ask()), "unasked") == Unsupported(type(ask()).__name__)


@pytest.mark.parametrize("ask", ASKS, ids=ASK_IDS)
def test_deliver_declined(ask: Callable[..., InputRequest[Any]]) -> None:
    wanted = False if isinstance(ask(), Confirm) else Declined()
    assert delivered(ask(), "declined") == wanted


@pytest.mark.parametrize("ask", ASKS, ids=ASK_IDS)
@pytest.mark.parametrize("otherwise", ["instead", None, False])
def test_deliver_otherwise(
    ask: Callable[..., InputRequest[Any]], otherwise: Any
) -> None:
    """Q4: instead of a refusal, and when the client cannot be asked; never else."""
    question = ask(otherwise=otherwise)
    refused: list[Tag] = ["dismissed", "unasked"]
    for tag in refused:
        assert delivered(question, tag) is otherwise
    if not isinstance(question, Confirm):
        assert delivered(question, "declined") is otherwise
    assert delivered(question, "invalid", ["x"]) == InvalidAnswer(["x"])
    assert delivered(question, "refused", [1, "m", None]) == ClientFailed(1, "m")


def test_deliver_confirm_declined_is_false_despite_otherwise() -> None:
    """A no must never become a yes."""
    assert delivered(Confirm("Sure?", otherwise=True), "declined") is False


@pytest.mark.parametrize("ask", ASKS, ids=ASK_IDS)
def test_deliver_outcome(ask: Callable[..., InputRequest[Any]]) -> None:
    """The user's word is a value to match on; the rest is still raised."""
    for tag, error in (("declined", Declined()), ("dismissed", Dismissed())):
        assert delivered(Outcome(ask()), tag) == error  # type: ignore[arg-type]
        with pytest.raises(ClientFailed):
            raise delivered(Outcome(ask()), "refused", [1, "m", None])


def test_deliver_outcome_returns_refusals_and_does_not_raise() -> None:
    effect: Any = Outcome(Confirm("Sure?"))
    entry = Entry("k", b"", b"", "declined")
    assert deliver(effect, KINDS[Confirm], entry) == Declined()


def test_deliver_failure_is_fresh_each_time() -> None:
    effect = Step(charge, 1)
    tag, payload, _ = record_error(effect, ValueError("no"))
    first = delivered(effect, tag, loads(payload))
    second = delivered(effect, tag, loads(payload))
    assert type(first) is type(second) is ValueError
    assert first is not second


def test_deliver_refusal_is_fresh_each_time() -> None:
    assert delivered(Elicit("Who?", str), "declined") is not delivered(
        Elicit("Who?", str), "declined"
    )


def test_deliver_failure_within() -> None:
    effect = Within(1, step(raises=(KeyError,))(charge)(1))
    tag, payload, _ = record_error(effect, KeyError("x"))
    assert isinstance(delivered(effect, tag, loads(payload)), KeyError)


def test_deliver_a_failure_of_replayable_steps() -> None:
    tag, payload, _ = record_error(replayable(1), LookupError("x"))
    assert tag == "failed"
    assert isinstance(delivered(replayable(1), tag, loads(payload)), LookupError)


def test_deliver_local_value() -> None:
    assert delivered(Now(), "chance", "2026-07-28T12:00:00+00:00") == NOON
    assert delivered(Step(charge, 1), "done", "ok") == "ok"


def test_deliver_answer_that_no_longer_fits() -> None:
    """A validator changed: the form's word on it, not the handler's exception."""

    @attrs.frozen
    class Adult:
        age: int = attrs.field(validator=attrs.validators.ge(21))

    effect = Elicit("How old?", Adult)
    out = delivered(effect, "accepted", {"age": 18})
    assert isinstance(out, Unfit)


def test_step_failed_is_of_the_steps_own_class() -> None:
    class CardError(Exception):
        pass

    effect = Step(charge, 1)
    tag, payload, _ = record_error(effect, CardError("expired"))
    assert delivered(effect, tag, loads(payload)) == StepFailed("CardError", "expired")
