from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Literal

import attrs
import pytest
from attrs import field, frozen
from attrs.validators import ge
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from effectmcp import (
    Accepted,
    Checkpoint,
    ClientFailed,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    DivergenceError,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    Gather,
    Given,
    IdempotencyKey,
    InputRequired,
    InvalidAnswer,
    ListRoots,
    Now,
    Provided,
    Sample,
    Server,
    Sleep,
    TimedOut,
    ToolError,
    Unsupported,
    UsageError,
    Within,
    step,
)
from effectmcp.engine import Want
from effectmcp.testing import Transcript, conversation
from effectmcp.testing.conversations import ConversationBroken
from effectmcp.testing.drawn_conversations import (
    _ROLL,
    DrawnPartner,
    Options,
    Unsteady,
    converse,
)
from effectmcp.testing.subjects import subject_of, subjects_of

from .test_conversations import HEALTHY, nothing_unraisable, remembers, waits

Draw = Callable[[st.SearchStrategy[Any]], Any]
QUIETLY: Final = settings(
    max_examples=500, database=None, suppress_health_check=list(HealthCheck)
)


class CardError(Exception):
    """The bank said no."""


class WantsMore(Exception):
    """An exception that cannot be made of a message alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)


@frozen
class Guest:
    name: str
    age: int = field(default=18, validator=ge(18))


@step(raises=(CardError, WantsMore))
def charge(name: str, key: str) -> str:
    raise OSError("no test should get here")


def order(title: str, count: int = 1) -> Flow[str]:
    name = yield from Elicit(f"Who wants {title}?", str, key="who")
    if not (yield from Confirm(f"{count} times {title} for {name}?")):
        return "nothing"
    key = yield from IdempotencyKey("charge")
    return (yield from charge(name, key))


def simplest(drawn: st.SearchStrategy[Transcript]) -> Transcript:
    """The conversation that Hypothesis tries first, and shrinks to."""
    return found(drawn, lambda one: True)


@st.composite
def smooth(draw: Draw, handler: Callable[..., Any]) -> Transcript:
    """Conversations without trouble, with less to shrink."""
    return converse(draw, subject_of(handler), Options(trouble=False))


def found(
    drawn: st.SearchStrategy[Transcript], predicate: Callable[[Transcript], bool]
) -> Transcript:
    """Find a conversation for which this is true."""
    quickly = settings(QUIETLY, phases=[Phase.generate])
    return find(drawn, predicate, settings=quickly, random=Random(7))


# ---- rolls that a test determines ---------------------------------------------------

#: A roll without any trouble.
NOTHING: Final = 5
#: What is rolled before the first round: that there may be trouble; that the client
#: lacks nothing; that nothing is early.
BEFORE: Final = (NOTHING, NOTHING, NOTHING)
LOST, FORKED, UNKNOWN_KEY = 18, 19, 17
ACCEPTS, DECLINES, DISMISSES, REFUSES, FORGETS, NONSENSE = 0, 14, 15, 16, 17, 19
FAILS: Final = 18


def rolling(data: st.DataObject, *rolls: int) -> Draw:
    """Draw with these rolls first, and then with rolls without trouble."""
    left = list(rolls)

    def draw(strategy: st.SearchStrategy[Any]) -> Any:
        if strategy is _ROLL:
            return left.pop(0) if left else NOTHING
        return data.draw(strategy)

    return draw


def rolled(
    handler: Callable[..., Any], *rolls: int, options: Options | None = None
) -> list[Transcript]:
    """Return conversations that begin with these rolls."""
    had: list[Transcript] = []

    @given(st.data())
    @settings(QUIETLY, max_examples=10, phases=[Phase.generate])
    def converses(data: st.DataObject) -> None:
        draw = rolling(data, *BEFORE, *rolls)
        had.append(converse(draw, subject_of(handler), options or Options()))

    converses()
    return had


def plain(title: str) -> str:
    return title


def answers(transcript: Transcript) -> list[Any]:
    return [one.answer for each in transcript.rounds for one in each.asked]


def keys(transcript: Transcript) -> list[str]:
    return [one.key for each in transcript.rounds for one in each.asked]


def tags(transcript: Transcript) -> list[str]:
    return [one.tag for each in transcript.rounds for one in each.performed]


# ---- drawn values -------------------------------------------------------------------


@given(conversation(order))
def test_conversations_are_finished(transcript: Transcript) -> None:
    assert (transcript.target, transcript.method) == ("order", "tools/call")
    assert transcript.ending.how in ("returned", "raised")
    *before, final = transcript.rounds
    assert final.asked == ()
    assert all(one.journal is not None for one in before)


def test_the_simplest_has_an_obliging_user() -> None:
    assert simplest(conversation(order)).lines == [
        'order(title="")',
        "round 1",
        "    Elicit(message='Who wants ?', form=str, key='who') → {\"value\": \"\"}",
        "round 2",
        "    Confirm(message='1 times  for ?') → {}",
        "round 3",
        "    charge('', '95b34079741d864e88cfe382995dc80c') gave \"\"",
        'returned {"content": [{"type": "text", "text": ""}]}',
    ]


def test_conversations_shrink_to_as_little_trouble_as_shows_it() -> None:
    def asks() -> Flow[str]:
        return (yield from Elicit("Who?", str)) + (yield from Elicit("And?", str))

    shrunk = find(
        conversation(asks), lambda one: Declined() in answers(one), settings=QUIETLY
    )
    assert shrunk.lines == [
        "asks()",
        "round 1",
        "    Elicit(message='Who?', form=str) → declined",
        "round 2",
        'raised "Declined: The user declined."',
    ]


@pytest.mark.parametrize("handler", HEALTHY)
def test_each_simplest_one_is_without_trouble(handler: Any) -> None:
    transcript = simplest(conversation(handler))
    assert all(isinstance(one, Accepted) for one in answers(transcript))
    assert not {"failed", "refailed"} & set(tags(transcript))
    assert (transcript.lacks, transcript.early) == (frozenset(), ())


def test_custom_arguments() -> None:
    drawn = conversation(order, title=st.just("Dune"), count=st.integers(3, 5))
    assert simplest(drawn).arguments == {"title": "Dune"}
    given_count = found(drawn, lambda one: "count" in one.arguments).arguments
    assert 3 <= given_count["count"] <= 5


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="no field or parameter name"):
        simplest(conversation(order, name=st.just("Ann")))


def test_a_plain_function_has_no_conversations() -> None:
    with pytest.raises(UsageError, match="yields no effects"):
        conversation(plain)


# ---- trouble ------------------------------------------------------------------------


def test_every_kind_of_trouble_occurs() -> None:
    """In a few hundred conversations, which is what a test has."""
    kinds: dict[str, Callable[[Transcript], bool]] = {
        "declined": lambda one: Declined() in answers(one),
        "dismissed": lambda one: Dismissed() in answers(one),
        "missing": lambda one: None in answers(one),
        "unfitting": lambda one: Accepted("nonsense") in answers(one),
        "poor": lambda one: "Sample" in one.lacks,
        "poorest": lambda one: "Elicit" in one.lacks,
        "early": lambda one: bool(one.early),
        "failed": lambda one: "failed" in tags(one),
        "smooth": lambda one: len(one.rounds) == 3,
    }
    left = dict(kinds)

    @given(conversation(order))
    @settings(QUIETLY, max_examples=500, phases=[Phase.generate], derandomize=True)
    def converses(transcript: Transcript) -> None:
        for kind in [kind for kind, occurs in left.items() if occurs(transcript)]:
            del left[kind]

    converses()
    assert left == {}


def test_users_decline_and_dismiss() -> None:
    for one in rolled(order, NOTHING, DECLINES):
        assert (answers(one), one.ending.error) == ([Declined()], Declined())
    for one in rolled(order, NOTHING, DISMISSES):
        assert (answers(one), one.ending.error) == ([Dismissed()], Dismissed())


def test_clients_answer_with_an_error() -> None:
    endings = {type(one.ending.error) for one in rolled(order, NOTHING, REFUSES)}
    assert ClientFailed in endings
    assert endings <= {ClientFailed, Declined}, "by the code, of which one means no"


def test_clients_leave_answers_out() -> None:
    for one in rolled(order, NOTHING, FORGETS):
        assert keys(one) == ["who", "who", "confirm-1"]
        assert one.ending.how == "returned"


def test_clients_send_what_does_not_fit() -> None:
    for one in rolled(order, NOTHING, NONSENSE):
        assert keys(one) == ["who", "who~2", "confirm-1"]
        assert one.ending.how == "returned"


def test_clients_insist_on_what_does_not_fit() -> None:
    for one in rolled(order, *[NOTHING, NONSENSE] * 3):
        assert answers(one) == [Accepted("nonsense")] * 3
        assert isinstance(one.ending.error, InvalidAnswer)


def poor(handler: Callable[..., Any], **requires: Any) -> list[Transcript]:
    """Conversations with clients that lack something."""
    app = Server("poor", version="1.0")
    app.tool(**requires)(handler)
    (subject,) = subjects_of(app)
    had: list[Transcript] = []

    @given(st.data())
    @settings(QUIETLY, max_examples=20)
    def converses(data: st.DataObject) -> None:
        had.append(converse(rolling(data, NOTHING, 19), subject, Options()))

    converses()
    return had


def test_clients_lack_things() -> None:
    by_lack = {one.lacks: one for one in poor(order)}
    assert sorted(map(len, by_lack)) == [3, 5]
    some, most = sorted(by_lack, key=len)
    assert some == {"Sample", "ListRoots", "ElicitUrl"} < most
    assert by_lack[some].ending.how == "returned"
    assert by_lack[most].ending.error == Unsupported("Elicit")


def test_required_capabilities_are_never_missing() -> None:
    had = poor(order, requires=[Elicit, Confirm])
    assert {one.ending.how for one in had} == {"returned"}
    assert {one.lacks for one in had} == {
        frozenset({"Sample", "ListRoots", "ElicitUrl"}),
    }


@given(st.data())
def test_answers_come_early(data: st.DataObject) -> None:
    draw = rolling(data, NOTHING, NOTHING, 19)
    early = converse(draw, subject_of(order), Options())
    (one,) = early.early
    assert one.key == "who"
    assert isinstance(one.answer, Accepted)
    assert keys(early) == ["confirm-1"]


def test_steps_fail() -> None:
    """As they say that they do, or in some way that everything may."""
    failing = rolled(order, NOTHING, ACCEPTS, NOTHING, ACCEPTS, NOTHING, FAILS)
    assert {tags(one)[-1] for one in failing} == {"failed"}
    errors = {type(one.ending.error) for one in failing}
    assert CardError in errors
    assert errors <= {CardError, OSError, RuntimeError}, "WantsMore cannot be made"


def test_without_trouble_all_goes_well() -> None:
    for one in rolled(order, options=Options(trouble=False)):
        assert all(isinstance(answer, Accepted) for answer in answers(one))
        assert one.ending.how == "returned"


# ---- trouble that no transcript shows -----------------------------------------------


class Runs:
    """A handler that notes each of its runs, and what it got for an answer."""

    def __init__(self, *, steady: bool = True) -> None:
        self.runs = 0
        self.given: list[str] = []
        self._steady = steady

    def __call__(self) -> Flow[str]:
        self.runs += 1
        text = "Who?" if self._steady else f"Who, in run {self.runs}?"
        name = yield from Elicit(text, str)
        self.given.append(name)
        return (yield from charge(name, "key"))


def test_a_lost_reply_is_asked_for_again() -> None:
    """A step may be performed again, and returns the same."""
    runs = Runs()
    for one in rolled(runs, NOTHING, ACCEPTS, LOST):
        assert [len(each.performed) for each in one.rounds] == [0, 1]
    # The result in a round was the same when the round was sent again.
    assert runs.given[::2] == runs.given[1::2]
    assert len(runs.given) == 20


@given(st.data())
def test_a_repeated_request_with_another_outcome(data: st.DataObject) -> None:
    runs = Runs(steady=False)
    with pytest.raises(ConversationBroken) as caught:
        converse(rolling(data, *BEFORE, LOST), subject_of(runs), Options())
    error = caught.value.__cause__
    assert isinstance(error, Unsteady)
    assert error.first == "asked Elicit(message='Who, in run 1?', form=str)"
    assert error.second == "asked Elicit(message='Who, in run 2?', form=str)"
    assert error.where is not None
    assert error.where.startswith(f"{__file__}:")
    assert str(error) == (
        f"first {error.first}, and then {error.second}, at {error.where}"
    )


@given(st.data())
def test_a_repeated_request_that_ends_otherwise(data: st.DataObject) -> None:
    ends: list[str] = []

    def handler() -> Flow[str]:
        ends.append("again")
        yield from Checkpoint()
        return " and ".join(ends)

    with pytest.raises(ConversationBroken) as caught:
        converse(rolling(data, *BEFORE, NOTHING, LOST), subject_of(handler), Options())
    error = caught.value.__cause__
    assert isinstance(error, Unsteady)
    assert (error.first, error.where) == ("'again and again'", None)
    ends.clear()

    def raises() -> Flow[str]:
        ends.append("again")
        yield from Checkpoint()
        raise OSError(" and ".join(ends))

    with pytest.raises(ConversationBroken) as caught:
        converse(rolling(data, *BEFORE, NOTHING, LOST), subject_of(raises), Options())
    error = caught.value.__cause__
    assert isinstance(error, Unsteady)
    assert error.first == "OSError('again and again')"


@given(st.data())
def test_a_user_goes_back_and_answers_otherwise(data: st.DataObject) -> None:
    """The fork is another conversation: the first one is the transcript."""
    runs = Runs()
    draw = rolling(data, *BEFORE, FORKED)
    transcript = converse(draw, subject_of(runs), Options())
    (asked,) = transcript.rounds[0].asked
    assert len(runs.given) == 2, "both answers"
    assert asked.answer == Accepted({"value": runs.given[1]})
    assert transcript.rounds[1].performed[0].what.startswith("charge(")


@given(st.data())
def test_a_client_answers_an_unasked_question(data: st.DataObject) -> None:
    plain = converse(rolling(data, *BEFORE), subject_of(Runs()), Options())
    draw = rolling(data, *BEFORE, NOTHING, ACCEPTS, UNKNOWN_KEY)
    transcript = converse(draw, subject_of(Runs()), Options())
    assert keys(transcript) == keys(plain) == ["elicit-1"]
    assert transcript.ending.how == plain.ending.how


@given(st.data())
def test_a_handler_without_questions_has_no_early_answers(
    data: st.DataObject,
) -> None:
    def asks_nothing() -> Flow[str]:
        return (yield from charge("a", "b"))

    draw = rolling(data, NOTHING, NOTHING, 19)
    transcript = converse(draw, subject_of(asks_nothing), Options())
    assert transcript.early == ()
    assert len(transcript.rounds) == 1


@given(st.data())
def test_a_watcher_sees_every_round(data: st.DataObject) -> None:
    seen: list[int] = []
    runs = Runs()

    @contextmanager
    def around() -> Iterator[None]:
        seen.append(runs.runs)
        yield

    draw = rolling(data, *BEFORE, LOST, ACCEPTS, FORKED)
    converse(draw, subject_of(runs), Options(), around=around)
    assert seen[0] == 0
    assert seen[-1] >= 3


# ---- what breaks off ----------------------------------------------------------------


def test_an_error_has_the_conversation_so_far() -> None:
    @given(conversation(Runs(steady=False)))
    @settings(QUIETLY, phases=[Phase.generate], report_multiple_bugs=False)
    def converses(transcript: Transcript) -> None:
        """Have one."""

    with pytest.raises((Unsteady, UsageError)) as caught:
        converses()
    notes = "\n".join(caught.value.__notes__)
    assert "in the conversation\nRuns()\n" in notes
    assert "\nbroke off " in notes


def test_a_draw_that_is_given_up_leaves_no_generator() -> None:
    def holds() -> Flow[str]:
        try:
            name = yield from Elicit("Who?", str)
            return (yield from charge(name, "key"))
        finally:
            yield from charge("none", "key")

    def gives_up(data: st.DataObject, after: int) -> None:
        left = iter(range(after))
        dice = rolling(data)

        def draw(strategy: st.SearchStrategy[Any]) -> Any:
            if next(left, None) is None:
                raise UnsatisfiedAssumption
            return dice(strategy)

        converse(draw, subject_of(holds), Options())

    @given(st.data())
    def all_give_up(data: st.DataObject) -> None:
        for after in range(10):
            with pytest.raises(UnsatisfiedAssumption):
                gives_up(data, after)
        gives_up(data, 20)

    with nothing_unraisable():
        all_give_up()


# ---- steps --------------------------------------------------------------------------


def gives(annotation: Any, **options: Any) -> Any:
    """Make a step with this return annotation."""

    def made() -> Any: ...

    if annotation is not None:
        made.__annotations__["return"] = annotation
    return step(**options)(made)


def performed(made: Any) -> Any:
    def handler() -> Flow[str]:
        return repr((yield from made()))

    return handler


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (None, "''"),
        (Any, "''"),
        (object, "''"),
        (int, "0"),
        (type(None), "None"),
        (Guest, "Guest(name='', age=18)"),
        (list[Guest], "[]"),
        (dt.date, "datetime.date(2000, 1, 1)"),
        (dt.timedelta, "datetime.timedelta(0)"),
        (set, "set()"),
    ],
    ids=repr,
)
def test_steps_return_what_they_declare(annotation: Any, text: str) -> None:
    ending: Any = simplest(smooth(performed(gives(annotation)))).ending.value
    assert ending["content"][0]["text"] == text


@pytest.mark.parametrize("how", [charge, charge.fn])
def test_custom_steps(how: Any) -> None:
    drawn = conversation(order, steps={how: st.sampled_from(["paid", "owed"])})
    transcript = simplest(drawn)
    (done,) = transcript.rounds[-1].performed
    assert done.payload == "paid"


def shortened(text: Any) -> Any:
    return text.removeprefix("a")


@frozen
class Shortened:
    """A field whose converted value may be outside of its type."""

    text: Literal["aab", "b"] = field(converter=shortened)


def only_recordable(made: Any) -> None:
    @given(conversation(performed(made)))
    @settings(suppress_health_check=list(HealthCheck), max_examples=50)
    def converses(transcript: Transcript) -> None:
        assert "StepError" not in str(transcript.ending)

    converses()


def test_what_could_not_be_recorded_is_drawn_again() -> None:
    only_recordable(gives(Shortened))


def test_what_could_not_be_recorded_is_drawn_again_where_it_is_replayable() -> None:
    only_recordable(gives(Shortened, replayable=True))


def test_what_waits_and_what_is_first() -> None:
    def waits() -> Flow[str]:
        yield from Detach()
        yield from Sleep(5)
        found = yield from Within(5, charge("a", "b"))
        place, won = yield from FirstOf(charge("c", "d"), Sleep(5), charge("e", "f"))
        return f"{'late' if isinstance(found, TimedOut) else 'found'} {place} {won}"

    endings: list[str] = []

    @given(conversation(waits))
    @settings(QUIETLY, max_examples=250, phases=[Phase.generate], derandomize=True)
    def converses(transcript: Transcript) -> None:
        endings.append(str(transcript.ending))

    converses()
    for end in ("found 0 ", "found 1 None", "found 2 ", "late 0", "raised", "OSError"):
        assert any(end in one for one in endings), end


def test_what_a_partner_never_performs() -> None:
    """The engine does; a partner is never asked."""

    @given(st.data())
    def performs(data: st.DataObject) -> None:
        drawn = DrawnPartner(data.draw, subject_of(order), Options(trouble=False))
        want: Any = attrs.make_class("_Want", ["effect"])(Checkpoint())
        with pytest.raises(UsageError, match="no test performs Checkpoint"):
            drawn.perform("0:checkpoint-1", want)

    performs()


def test_the_clock_advances() -> None:
    def looks() -> Flow[str]:
        before = yield from Now()
        yield from Confirm("Sure?")
        return f"{(yield from Now()) - before}"

    assert "0:00:01" in str(simplest(smooth(looks)).ending)


def test_other_questions() -> None:
    def asks() -> Flow[str]:
        yield from ElicitUrl("Please sign.", "https://a.example")
        one, two = yield from Gather(Sample("Write."), ListRoots())
        return f"{one.text} {len(two)}"

    transcript = simplest(smooth(asks))
    assert len(transcript.rounds) == 3


# ---- other handlers -----------------------------------------------------------------


def test_async_handlers() -> None:
    transcript = simplest(smooth(waits))
    assert keys(transcript) == [
        "gather-1/0/elicit-1",
        "gather-1/1/elicit-1",
        "confirm-1",
    ]


def test_handlers_with_a_state_of_their_own() -> None:
    transcript = simplest(conversation(remembers))
    assert keys(transcript) == ["gather-1/0/who", "gather-2/0/sure"]
    assert transcript.ending.how == "returned"


# ---- after a deploy -----------------------------------------------------------------


def asks_who(title: str, count: int = 1) -> Flow[str]:
    """Ask the same question, and another one before it."""
    day = yield from Elicit("Which day?", str, key="day")
    name = yield from Elicit(f"Who wants {title}?", str, key="who")
    yield from Confirm(f"{count} times {title} for {name} on {day}?", key="all")
    return "ordered"


def test_what_was_answered_is_not_asked_again() -> None:
    for one in deployed(order, asks_who, after=2):
        assert keys(one) == ["who", "confirm-1", "day", "all"]
        assert one.target == "asks_who"
        assert one.ending.how == "returned"


def deployed(before: Any, edited: Any, *, after: int) -> list[Transcript]:
    """Smooth conversations with a deploy after so many rounds."""
    had: list[Transcript] = []

    @given(st.data())
    @settings(QUIETLY, max_examples=10, phases=[Phase.generate])
    def converses(data: st.DataObject) -> None:
        def draw(strategy: st.SearchStrategy[Any]) -> Any:
            is_deploy = repr(strategy) == repr(st.integers(0, 9))
            return after if is_deploy else data.draw(strategy)

        options = Options(trouble=False, edited=subject_of(edited))
        had.append(converse(draw, subject_of(before), options))

    converses()
    return had


def test_what_was_paid_is_never_dropped() -> None:
    """A step was performed that the new handler does not perform: it is stopped."""

    def pays(title: str, count: int = 1) -> Flow[str]:
        yield from charge(title, "key")
        yield from Confirm("Paid. Fine?")
        return "paid"

    for one in deployed(pays, order, after=1):
        assert one.ending.how == "stopped"
        assert "no longer follows its journal" in str(one.ending.value)
        assert len(one.rounds) == 1, "of those that came to something"
        assert [each.what[:7] for each in one.rounds[0].performed] == ["charge("]


def test_a_deploy_may_be_at_once_or_never() -> None:
    for one in deployed(order, asks_who, after=0):
        assert keys(one) == ["day", "who", "all"]
    for one in deployed(order, asks_who, after=9):
        assert (keys(one), one.target) == (["who", "confirm-1"], "order")


@given(conversation(order, edited=asks_who))
def test_edited_handlers_come_to_an_end(transcript: Transcript) -> None:
    assert transcript.ending.how in ("returned", "raised", "stopped")


def test_before_the_deploy_a_handler_must_repeat_itself() -> None:
    """A difference that the deploy does not explain is an error, not a conversation."""

    @given(conversation(Runs(steady=False), edited=Runs()))
    @settings(QUIETLY, phases=[Phase.generate], report_multiple_bugs=False)
    def converses(transcript: Transcript) -> None:
        """Have some."""

    with pytest.raises((Unsteady, DivergenceError, UsageError)):
        converses()


def test_early_answers_are_kept_over_a_deploy() -> None:
    """Without them the conversation could not be had again."""

    options = Options(edited=subject_of(asks_who))

    @given(st.data())
    @settings(QUIETLY, max_examples=10, phases=[Phase.generate])
    def converses(data: st.DataObject) -> None:
        def draw(strategy: st.SearchStrategy[Any]) -> Any:
            is_deploy = repr(strategy) == repr(st.integers(0, 9))
            return 0 if is_deploy else dice(strategy)

        dice = rolling(data, NOTHING, NOTHING, 19)
        one = converse(draw, subject_of(order), options)
        assert [each.key for each in one.early] == ["who"]

    converses()


# ---- the world ----------------------------------------------------------------------


def test_an_effect_performed_twice_in_a_round_has_one_outcome() -> None:
    @given(st.data())
    def performs(data: st.DataObject) -> None:
        drawn = DrawnPartner(data.draw, subject_of(order), Options())
        want = wanted()
        once = drawn.perform("0:step-1", want)
        assert drawn.perform("0:step-1", want) is once
        drawn.forget()
        assert drawn.perform("0:step-1", want) is not once

    performs()


def wanted() -> Want:
    made: Any = attrs.make_class("_Want", ["effect"])(charge("a", "b"))
    want: Want = made
    return want


def test_functions_with_a_state_of_their_own_are_called() -> None:
    """Async ones on a loop of their own; what they raise is what they raise."""

    async def asks(given: Given = Provided()) -> str | InputRequired:
        if "who" not in given.answers:
            return InputRequired({"who": Elicit("Who?", str)})
        raise ToolError("not today")

    transcript = simplest(conversation(asks))
    assert transcript.ending.value == "ToolError: not today"
