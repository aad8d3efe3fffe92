from __future__ import annotations

import copy
import datetime as dt
import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, Literal

import attrs
import pytest

import effectmcp
from effectmcp import (
    Accepted,
    Caller,
    CallerInfo,
    Checkpoint,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Effect,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    FormError,
    Gather,
    IdempotencyKey,
    InputRequest,
    ListRoots,
    Log,
    Now,
    Outcome,
    Progress,
    Provided,
    Random,
    Restart,
    Sample,
    Sampled,
    Sleep,
    Status,
    Step,
    StepFunction,
    StepOptions,
    TimedOut,
    UsageError,
    Uuid,
    Version,
    Within,
    step,
)
from effectmcp.effects import base
from effectmcp.effects.steps import PROVIDED


def charge(amount: int, *, key: str = "") -> str:
    """Charge a card."""
    return f"{amount} {key}"


def again(title: str) -> Flow[str]:
    yield from ()
    return title


QUESTIONS: list[Callable[..., InputRequest[Any]]] = [
    functools.partial(Elicit, "Who?", str),
    functools.partial(Confirm, "Sure?"),
    functools.partial(ElicitUrl, "Pay", "https://pay.example"),
    functools.partial(Sample, "Write"),
    ListRoots,
]

#: One of each kind, built again at each call.
EVERY: list[Callable[[], Effect[Any]]] = [
    *QUESTIONS,
    lambda: Outcome(Confirm("Sure?")),
    lambda: Gather(Now(), Confirm("Sure?")),
    lambda: Step(charge, 10, key="k"),
    Now,
    Uuid,
    Random,
    lambda: IdempotencyKey("charge"),
    lambda: ClientSupports(Elicit),
    Caller,
    Checkpoint,
    lambda: Progress(1, 2, "half"),
    lambda: Log("info", {"a": 1}),
    lambda: Version("fee", default=0, latest=1),
    lambda: Restart(again, "Dune"),
    lambda: Detach(ttl=60),
    lambda: Sleep(1),
    lambda: Status("working"),
    lambda: Within(1, Step(charge, 10)),
    lambda: FirstOf(Step(charge, 10), Sleep(1)),
]


def drive(running: Generator[Any, Any, Any], *answers: Any) -> tuple[list[Any], Any]:
    """The values that `running` yields when it is sent `answers`, and its result."""
    yielded = [next(running)]
    try:
        for answer in answers:
            yielded.append(running.send(answer))
    except StopIteration as stop:
        return yielded, stop.value
    raise AssertionError("it goes on")


# ---- what all effects have ----


def test_every_kind_is_here() -> None:
    """A new effect joins the list above, and with it these tests."""
    kinds = {
        value
        for name in effectmcp.__all__
        if isinstance(value := getattr(effectmcp, name), type)
        and issubclass(value, Effect)
    }
    assert {type(make()) for make in EVERY} == kinds - {Effect, InputRequest}


@pytest.mark.parametrize("make", EVERY)
def test_effect_yields_itself_and_returns_the_answer(
    make: Callable[[], Effect[Any]],
) -> None:
    effect = make()
    yielded, value = drive(iter(effect), "an answer")
    assert yielded == [effect]
    assert yielded[0] is effect
    assert value == "an answer"


def test_effect_can_be_awaited() -> None:
    """`await` is `yield from`, for coroutines that await nothing but effects."""

    async def handler() -> str:
        return await Elicit("Who?", str)

    coroutine = handler()
    assert coroutine.send(None) == Elicit("Who?", str)
    with pytest.raises(StopIteration) as stop:
        coroutine.send("Ann")
    assert stop.value.value == "Ann"


def test_effect_can_be_yielded_bare() -> None:
    def handler() -> Any:
        name = yield Elicit("Who?", str)
        return name

    assert drive(handler(), "Ann") == ([Elicit("Who?", str)], "Ann")


@pytest.mark.parametrize("make", EVERY)
def test_effect_is_a_value(make: Callable[[], Effect[Any]]) -> None:
    assert make() == make()
    assert make() != Now() or type(make()) is Now
    assert make() != object()


@pytest.mark.parametrize("make", EVERY)
def test_effect_cannot_be_changed(make: Callable[[], Effect[Any]]) -> None:
    effect = make()
    names = [field.name for field in attrs.fields(type(effect))] or ["anything"]
    for name in names:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(effect, name, None)


@pytest.mark.parametrize("make", EVERY)
def test_effect_repr_names_its_class(make: Callable[[], Effect[Any]]) -> None:
    effect = make()
    assert repr(effect).startswith(f"{type(effect).__name__}(")


def test_effect_differs_by_each_field() -> None:
    assert Elicit("Who?", str) != Elicit("Who else?", str)
    assert Elicit("Who?", str) != Elicit("Who?", int)
    assert Elicit("Who?", str) != Elicit("Who?", str, key="who")
    assert Sleep(1) != Sleep(2)


def test_effect_hash_agrees_with_equality() -> None:
    assert len({Elicit("Who?", str), Elicit("Who?", str), Confirm("Who?")}) == 2


def test_effect_repr_leaves_out_defaults() -> None:
    assert repr(Confirm("Sure?")) == "Confirm(message='Sure?')"
    assert repr(Confirm("Sure?", key="k", otherwise=False)) == (
        "Confirm(message='Sure?', key='k', otherwise=False)"
    )
    assert repr(Now()) == "Now()"


def test_effect_subclasses_are_slotted() -> None:
    """A misspelt attribute is an error, and ten thousand effects are small."""
    assert not hasattr(Elicit("Who?", str), "__dict__")


# ---- questions ----


@pytest.mark.parametrize("make", QUESTIONS)
def test_question_takes_key_and_otherwise(
    make: Callable[..., InputRequest[Any]],
) -> None:
    plain, named = make(), make(key="k", otherwise="o")
    assert (plain.key, plain.otherwise) == (None, attrs.NOTHING)
    assert (named.key, named.otherwise) == ("k", "o")


@pytest.mark.parametrize("make", QUESTIONS)
def test_question_may_fall_back_to_none(make: Callable[..., InputRequest[Any]]) -> None:
    """`otherwise=None` is a value like any other, not the lack of one."""
    assert make(otherwise=None).otherwise is None


def test_elicit_checks_its_form_at_once() -> None:
    with pytest.raises(FormError):
        Elicit("What?", complex)


def test_elicit_titles_a_single_field() -> None:
    schema = Elicit("Who?", str, title="Name").spec.schema
    assert schema["properties"]["value"] == {"type": "string", "title": "Name"}


def test_elicit_takes_a_raw_schema() -> None:
    raw = {"type": "object", "properties": {"age": {"type": "integer"}}}
    assert Elicit("How old?", raw).spec.schema == raw


def test_elicit_infers_special_forms() -> None:
    answer: Effect[Literal["s", "l"]] = Elicit("Size?", Literal["s", "l"])
    maybe: Effect[int | None] = Elicit("Age?", int | None)
    assert isinstance(answer, Elicit)
    assert maybe.spec.fields[0].required is False  # type: ignore[attr-defined]


def test_sample_wraps_a_prompt() -> None:
    assert Sample("Write").messages == (
        {"role": "user", "content": {"type": "text", "text": "Write"}},
    )


def test_sample_copies_messages_and_tools() -> None:
    """A list that the handler changes later must not change the question."""
    messages = [{"role": "user", "content": {"type": "text", "text": "Hi"}}]
    sample = Sample(messages, tools=[{"name": "t"}], stop_sequences=["."])
    messages[0]["role"] = "assistant"
    messages.clear()
    assert sample.messages[0]["role"] == "user"
    assert sample.tools == ({"name": "t"},)
    assert sample.stop_sequences == (".",)


def test_sample_refuses_an_unknown_keep() -> None:
    with pytest.raises(UsageError, match=r"keep='some'.*'all' or 'text'"):
        Sample("Write", keep="some")  # type: ignore[call-overload]


def test_sampled_text_joins_the_text_blocks() -> None:
    sampled = Sampled(
        [
            {"type": "text", "text": "One "},
            {"type": "image", "data": "…", "mimeType": "image/png"},
            {"type": "text", "text": "two"},
        ],
        "a-model",
    )
    assert sampled.text == "One two"
    assert sampled.stop_reason is None


def test_outcome_takes_a_question_only() -> None:
    given: Any = Now()
    with pytest.raises(UsageError, match=r"takes a question.*not Now\(\)"):
        Outcome(given)


@pytest.mark.parametrize("otherwise", [None, "x"])
def test_outcome_refuses_otherwise_inside(otherwise: Any) -> None:
    with pytest.raises(UsageError, match="would never be used"):
        Outcome(Elicit("Who?", str, otherwise=otherwise))


def test_outcome_values_can_be_matched() -> None:
    values: list[Accepted[int] | Declined] = [Accepted(3), Declined()]
    said = []
    for value in values:
        match value:
            case Accepted(number):
                said.append(number)
            case Declined():
                said.append(0)
    assert said == [3, 0]


# ---- several at once ----


def test_gather_keeps_positions() -> None:
    gather = Gather(Now(), Uuid())
    assert gather.branches == (Now(), Uuid())
    assert not gather.as_list


def test_gather_of_nothing() -> None:
    assert Gather().branches == ()


def test_gather_each_takes_any_iterable() -> None:
    gather = Gather.each(Elicit(f"Guest {n}?", str) for n in (1, 2))
    assert [one.message for one in gather.branches] == ["Guest 1?", "Guest 2?"]
    assert gather.as_list


@pytest.mark.parametrize("class_", [set, frozenset])
def test_gather_each_refuses_a_set(class_: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"over a set.*sorted\("):
        Gather.each(class_([Now()]))


# ---- steps ----


def test_step_of_a_plain_function() -> None:
    effect = Step(charge, 10, key="k")
    assert effect.fn is charge
    assert effect.args == (10,)
    assert effect.kwargs == {"key": "k"}
    assert effect.options == StepOptions()


def test_step_of_a_result_names_the_mistake() -> None:
    done: Any = charge(10)
    with pytest.raises(UsageError, match=r"Write Step\(charge, 10\), not"):
        Step(done)


def test_step_decorator_plain() -> None:
    made = step(charge)
    assert isinstance(made, StepFunction)
    assert made(10, key="k") == Step(made, 10, key="k") == Step(charge, 10, key="k")
    assert made.fn(10) == "10 "
    assert repr(made) == "<step charge>"


def test_step_decorator_with_options() -> None:
    made = step(name="charge", retries=2, raises=(ValueError,), timeout=3)(charge)
    assert made(1).options == StepOptions(
        name="charge", retries=2, raises=(ValueError,), timeout=3
    )
    assert Step(made, 1).options is made.options


def test_step_function_looks_like_its_function() -> None:
    made: Any = step(charge)
    assert made.__name__ == "charge"
    assert made.__doc__ == "Charge a card."
    assert made.__module__ == __name__
    assert inspect.signature(made) == inspect.signature(charge)


def test_step_function_of_a_callable_object() -> None:
    """Attributes that a partial does not have are left out."""
    made: Any = step(functools.partial(charge, 10))
    assert "__name__" not in made.__dict__
    assert made().fn() == "10 "
    assert "partial" in repr(made)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"at_most_once": True, "replayable": True}, "at_most_once and replayable"),
        ({"at_most_once": True, "retries": 1}, "cannot have retries"),
        ({"public": True, "secret": True}, "both public and secret"),
        ({"raises": ValueError}, "tuple of Exception classes"),
        ({"raises": [ValueError]}, "tuple of Exception classes"),
        ({"raises": (KeyboardInterrupt,)}, "tuple of Exception classes"),
        ({"raises": ("ValueError",)}, "tuple of Exception classes"),
        ({"retries": -1}, "retries from 0 up"),
        ({"timeout": 0}, "timeout above 0"),
    ],
)
def test_step_refuses_options_that_contradict(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        step(**options)


def test_step_decorator_refuses_non_functions() -> None:
    given: Any = "charge"
    with pytest.raises(UsageError, match=r"@step takes a function, not 'charge'"):
        step(given)


def test_step_decorator_with_options_refuses_non_functions() -> None:
    given: Any = "charge"
    with pytest.raises(UsageError, match=r"takes a function"):
        step(retries=1)(given)


def test_provided_is_one_recognisable_default() -> None:
    assert Provided() is PROVIDED
    assert repr(Provided()) == "Provided()"


# ---- the rest ----


@pytest.mark.parametrize("what", [Elicit, Sample, Elicit("Who?", str), ListRoots])
def test_client_supports_takes_a_class_or_a_question(what: Any) -> None:
    assert ClientSupports(what).what is what


@pytest.mark.parametrize("what", [Now, Now(), "Elicit", None, int])
def test_client_supports_refuses_anything_else(what: Any) -> None:
    with pytest.raises(UsageError, match="takes a kind of question"):
        ClientSupports(what)


def test_caller_info_outside_of_mcp() -> None:
    assert CallerInfo() == CallerInfo(era="local", principal=None)


@pytest.mark.parametrize("value", [1.5, True, None, b"v2"])
def test_version_refuses_what_no_journal_keeps(value: Any) -> None:
    with pytest.raises(UsageError, match="ints or texts"):
        Version("fee", default=value, latest=1)
    with pytest.raises(UsageError, match="ints or texts"):
        Version("fee", default=1, latest=value)


def test_version_name_is_a_string() -> None:
    given: Any = ["fee"]
    with pytest.raises(UsageError, match="the name of a change is a text"):
        Version(given, default=0, latest=1)


def test_restart_takes_a_handler() -> None:
    effect = Restart(again, "Dune")
    assert (effect.handler, effect.args, effect.kwargs) == (again, ("Dune",), {})


def test_restart_of_a_running_flow_is_refused() -> None:
    given: Any = again("Dune")
    with pytest.raises(UsageError, match="takes a handler and its arguments"):
        Restart(given)


@pytest.mark.parametrize("inner", [Now(), Checkpoint(), Gather(), Within(1, Sleep(1))])
def test_within_and_first_of_refuse_effects_that_cannot_be_waited_for(
    inner: Any,
) -> None:
    """The loser is forgotten, and nothing else may be."""
    with pytest.raises(UsageError, match="takes questions, Step and Sleep"):
        Within(1, inner)
    with pytest.raises(UsageError, match="takes questions, Step and Sleep"):
        FirstOf(Sleep(1), inner)


@pytest.mark.parametrize(
    "number",
    [float("nan"), float("inf"), float("-inf"), 10**400, -(10**400), "1", [1]],
    ids=lambda number: repr(number)[:8],
)
def test_invalid_numbers_are_refused(number: Any) -> None:
    """The error is raised in the handler: a clock would raise in the driver."""
    for make in (
        lambda: Sleep(number),
        lambda: Within(number, Sleep(1)),
        lambda: Progress(number),
        lambda: Progress(1, number),
    ):
        with pytest.raises(UsageError, match=r"=.*: give a number"):
            make()
    assert (Sleep(-1).seconds, Within(-1, Sleep(0)).seconds) == (-1, -1)


def test_first_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="never end"):
        FirstOf()


def test_timed_out_is_a_value() -> None:
    assert TimedOut() == TimedOut()


# ---- development mode's hook ----


@pytest.mark.parametrize("make", EVERY)
def test_built_hook_receives_each_effect_once(
    make: Callable[[], Effect[Any]],
) -> None:
    heard: list[Effect[Any]] = []
    base.on_built = heard.append
    try:
        effect = make()
    finally:
        base.on_built = None
    assert [one for one in heard if one is effect] == [effect]


# ---- copies ----


@pytest.mark.parametrize("make", EVERY)
def test_effect_can_be_copied(make: Callable[[], Effect[Any]]) -> None:
    assert copy.copy(make()) == make()


def test_elicit_form_of_a_class() -> None:
    @attrs.frozen
    class Person:
        name: str
        born: dt.date | None = None

    elicit = Elicit("Who?", Person)
    assert elicit.spec.build({"name": "Ann"}) == Person("Ann")


@pytest.mark.parametrize(
    ("class_", "args", "words"),
    [
        (ElicitUrl, {"message": 5, "url": "https://a.example"}, "message comes first"),
        (ElicitUrl, {"message": "a", "url": 5}, "ElicitUrl(url=5): give a text"),
        (
            Sample,
            {"messages": "a", "max_tokens": "5"},
            "(max_tokens='5'): give a whole",
        ),
        (Sample, {"messages": "a", "max_tokens": True}, "Sample(max_tokens=True)"),
        (Sample, {"messages": "a", "system": 5}, "Sample(system=5): give a text"),
        (Sample, {"messages": "a", "temperature": "x"}, "give a number"),
        (Progress, {"done": "half"}, "Progress(done='half'): give a number"),
        (Progress, {"done": 1, "total": "2"}, "Progress(total='2')"),
        (Progress, {"done": 1, "message": 3}, "Progress(message=3): give a text"),
        (Log, {"level": "loud", "data": "x"}, "the level is one of debug, info"),
        (Log, {"level": "info", "data": "x", "logger": 5}, "Log(logger=5)"),
    ],
)
def test_what_no_client_could_read_is_refused(
    class_: Any, args: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        class_(**args)
    assert words in str(caught.value)


def test_sample_with_everything_is_legal() -> None:
    sample = Sample("a", max_tokens=5, system="b", temperature=1)
    assert (sample.system, sample.temperature) == ("b", 1)


@pytest.mark.parametrize("effect", [Confirm("Sure?"), Now()], ids=repr)
def test_effect_is_neither_true_nor_false(effect: Effect[Any]) -> None:
    """`if Confirm("Sure?"):` would ask no user and continue."""
    with pytest.raises(UsageError, match="a forgotten `yield from`"):
        bool(effect)


def test_building_calls_the_hook_in_development(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Effect[Any]] = []
    monkeypatch.setattr(base, "on_built", built.append)
    made = [Progress(1, 2, "half"), Log("info", "x", "shop"), Confirm("Sure?")]
    assert built == made
