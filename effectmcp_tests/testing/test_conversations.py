from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs
import pytest
from attrs import field, frozen
from attrs.validators import ge
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    Caller,
    Checkpoint,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    DivergenceError,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    ListRoots,
    Now,
    Outcome,
    OutputError,
    Random,
    Refused,
    Restart,
    Sample,
    Sleep,
    StateSizeError,
    Step,
    StepFailed,
    TimedOut,
    TooManyRounds,
    Unsupported,
    Uuid,
    Within,
    step,
)
from effectmcp.compat import awaits_effects
from effectmcp.effects.steps import Provided
from effectmcp.engine import Answer, Done, Failure, Journal, Question, Want
from effectmcp.engine.steps import spec_of
from effectmcp.lowlevel import Given, InputRequired
from effectmcp.testing import Transcript, conversation
from effectmcp.testing.chance import FLOW_ID, Chance
from effectmcp.testing.conversations import (
    WAYS,
    ConversationBroken,
    HandlerNotEnded,
    RecordedPartner,
    RunningConversation,
    Unscripted,
    Way,
    answers_of,
    call_stateful,
    run_conversation,
)
from effectmcp.testing.subjects import subject_of
from effectmcp.testing.transcripts import AskedQuestion, Round

RETRY, LIVE, TASK, IN_PROCESS = WAYS

Handler = Callable[..., Any]

# ---- handlers without a mistake -----------------------------------------------------


class CardError(Exception):
    """The bank said no."""


@frozen
class Guest:
    name: str
    age: int = field(default=18, validator=ge(18))


@step(raises=(CardError,))
def charge(name: str, key: str) -> str:
    return f"{name} {key}"


@step(replayable=True)
def menu() -> list[str]:
    return ["soup"]


@step
def release() -> None:
    """Release the held item."""


@step(at_most_once=True)
def send(text: str) -> int:
    return len(text)


def order(title: str) -> Flow[str]:
    name = yield from Elicit(f"Who wants {title}?", str)
    if not (yield from Confirm(f"{title} for {name}?")):
        return "nothing"
    key = yield from IdempotencyKey("charge")
    try:
        return (yield from charge(name, key))
    except (CardError, StepFailed) as error:
        again = yield from Confirm(f"{error}: try another card?", otherwise=False)
        return "refused" if again else "cancelled"


def party(count: int) -> Flow[list[str]]:
    guests = yield from Gather.each(
        Elicit(f"Guest {n}?", Guest, otherwise=None) for n in range(min(count, 3))
    )
    names, dishes = yield from Gather(asked_by_name(), menu())
    yield from Checkpoint()
    return sorted([*names, *dishes, *(g.name for g in guests if g is not None)])


def asked_by_name() -> Flow[list[str]]:
    names: list[str] = []
    while len(names) < 2:
        match (yield from Outcome(Elicit(f"Name {len(names)}?", str))):
            case Accepted(name):
                names.append(name)
            case _:
                break
    return names


def chances() -> Flow[str]:
    now, number, luck = yield from Gather(Now(), Uuid(), Random())
    name = yield from Elicit(f"{now:%H:%M} {number} {luck}?", str, otherwise="")
    caller = yield from Caller()
    return f"{name} {caller.flow_id} {yield from Now()}"


def cleans_up() -> Flow[str]:
    try:
        one = yield from Elicit("One?", str)
        two = yield from Elicit(f"Two after {one}?", str, key="two")
        return one + two
    except Refused:
        return "as you like"
    finally:
        yield from release()


def begins_again() -> Flow[str]:
    name = yield from Elicit("Who?", str, otherwise="")
    dishes = yield from menu()
    return (yield from Restart(goes_on, name, len(dishes)))


def goes_on(name: str, count: int) -> Flow[str]:
    names = yield from Gather.each(
        Elicit(f"{name}, dish {n}?", str, otherwise="") for n in range(min(count, 2))
    )
    dishes = yield from menu()
    sure = yield from Confirm(f"{names}, {len(dishes)}?", otherwise=False)
    return f"{names} {sure}"


def asks_a_model() -> Flow[str]:
    roots = yield from ListRoots(otherwise=())
    drafted = yield from Sample("Write.", otherwise=None)
    return f"{len(roots)} {'' if drafted is None else drafted.text}"


def takes_its_time() -> Flow[str]:
    sure = yield from Confirm("Begin?", otherwise=False)
    yield from Detach()
    yield from Sleep(60)
    found = yield from Within(5, charge("a", "b"))
    place, won = yield from FirstOf(menu(), Sleep(1))
    text = "late" if isinstance(found, TimedOut) else found
    end = yield from Elicit(f"{text} {place} {won}?", str, otherwise="")
    return f"{end} {sure}."


@awaits_effects
async def waits(title: str) -> str:
    async def ask(what: str) -> str:
        return await Elicit(f"{what} {title}?", str, otherwise="")

    asked: Any = Gather  # coroutines are branches too, but not in the types
    one, two = await asked(ask("who"), ask("where"))
    receipt = await charge(one, two)
    return f"{receipt} {await Confirm('Fine?', otherwise=False)}"


def remembers(title: str, given: Given = Provided()) -> str | InputRequired:
    match given.answers.get("who"), given.answers.get("sure"):
        case None, _:
            return InputRequired({"who": Elicit(f"Who wants {title}?", str)}, state=1)
        case Accepted(content), None:
            sure = Confirm(f"{title} for {content['value']}?")
            return InputRequired({"sure": sure}, state=[given.state])
        case Accepted(_), Accepted(_):
            return f"{title} {given.state}"
        case _:
            return "nothing"


HEALTHY: Final[tuple[Handler, ...]] = (
    *(order, party, chances, cleans_up, begins_again, asks_a_model, takes_its_time),
    *(waits, remembers),
)


# ---- helpers ------------------------------------------------------------------------


class Obliging:
    """A user who accepts everything alike, and effects that all succeed."""

    lacks: frozenset[str] = frozenset()

    def __init__(self, answers: Mapping[str, Answer | None] = {}) -> None:
        self._answers = answers
        self._chance = Chance()

    def answer(self, question: Question) -> Answer | None:
        if question.key in self._answers:
            return self._answers[question.key]
        asks = isinstance(question.effect, Elicit)
        return Accepted({"value": "a"} if asks else {})

    def perform(self, key: str, want: Want) -> Done | Failure:
        known = self._chance.outcome(want.effect)
        if known is not None:
            return known
        effect: Any = want.effect
        if isinstance(effect, FirstOf):
            return Done((0, ["soup"]))
        if isinstance(effect, Within):
            effect = effect.effect
        own = call_stateful(want)
        return own or Done(RESULTS[spec_of(effect).returns])


RESULTS: Final[Mapping[Any, Any]] = {
    str: "paid",
    list[str]: ["soup"],
    int: 3,
    type(None): None,
}


def had(
    handler: Handler, way: Way = RETRY, partner: Any = None, **arguments: Any
) -> Transcript:
    """Have a conversation with an obliging user."""
    return run_conversation(
        subject_of(handler), arguments, partner or Obliging(), way, flow_id=FLOW_ID
    )


def again(handler: Handler, transcript: Transcript, way: Way) -> Transcript:
    """Repeat the conversation, in another way."""
    return run_conversation(
        subject_of(handler),
        transcript.arguments,
        RecordedPartner(transcript),
        way,
        flow_id=transcript.flow_id,
    )


def last(transcript: Transcript) -> Journal:
    journal = transcript.rounds[-1].journal
    assert journal is not None
    return journal


def asked_in(transcript: Transcript) -> list[str]:
    return [one.key for each in transcript.rounds for one in each.asked]


def wanted_in(one: Round) -> list[str]:
    return [each.what for each in one.performed] + [each.what for each in one.asked]


@contextmanager
def nothing_unraisable() -> Iterator[None]:
    """Python complains of a generator that it has to close against its will."""
    found: list[Any] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda one: found.append(one.exc_value)
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert found == []


# ---- the law ------------------------------------------------------------------------


@given(
    st.sampled_from(HEALTHY).flatmap(lambda one: st.tuples(st.just(one), had_by(one)))
)
def test_the_four_ways_agree(pair: tuple[Handler, Transcript]) -> None:
    """Equal answers lead to equal entries and to an equal end."""
    handler, transcript = pair
    final = transcript.rounds[-1].journal
    if final is None or transcript.early:
        return  # limits on rounds and early answers are only there by retry
    for way in WAYS:
        other = again(handler, transcript, way)
        assert other.ending == transcript.ending, way.name
        assert last(other).entries == final.entries, way.name


def had_by(handler: Handler) -> st.SearchStrategy[Transcript]:
    return conversation(handler)


@given(conversation(order))
def test_by_retry_the_same_rounds_are_had_again(transcript: Transcript) -> None:
    if not transcript.early:
        other = again(order, transcript, RETRY)
        assert other.rounds == transcript.rounds
        assert other == transcript


#: What the handlers above are called with.
ARGUMENTS: Final[Mapping[Handler, Mapping[str, Any]]] = {
    order: {"title": "Dune"},
    party: {"count": 2},
    waits: {"title": "Dune"},
    remembers: {"title": "Dune"},
}


#: Answers to questions that no string fits.
SAID: Final[Mapping[Handler, Mapping[str, Answer]]] = {
    party: {f"gather-1/{n}/elicit-1": Accepted({"name": "a"}) for n in range(2)},
    asks_a_model: {"roots-1": Accepted({"roots": []}), "sample-1": Declined()},
}


class Unlucky(Obliging):
    """A partner with another outcome for one kind of effect."""

    def __init__(self, kind: type, outcome: Done | Failure) -> None:
        super().__init__()
        self._kind = kind
        self._outcome = outcome

    def perform(self, key: str, want: Want) -> Done | Failure:
        if isinstance(want.effect, self._kind):
            return self._outcome
        return super().perform(key, want)


def all_ways_agree(handler: Handler, partner: Any) -> Transcript:
    transcript = had(handler, partner=partner, **ARGUMENTS.get(handler, {}))
    for way in WAYS:
        other = again(handler, transcript, way)
        assert other.ending == transcript.ending, way.name
        assert last(other).entries == last(transcript).entries, way.name
    return transcript


@pytest.mark.parametrize("handler", HEALTHY, ids=lambda one: one.__name__)
def test_with_an_obliging_user_the_four_ways_agree(handler: Handler) -> None:
    partner = Obliging(SAID.get(handler, {}))
    assert all_ways_agree(handler, partner).ending.how == "returned"


@pytest.mark.parametrize(
    ("kind", "outcome", "ending"),
    [
        (Within, Done(TimedOut()), "late 0 ['soup']"),
        (FirstOf, Done((1, None)), "paid 1 None"),
        (FirstOf, Failure(LookupError("no menu")), "LookupError: no menu"),
    ],
)
def test_however_a_race_ends_the_four_ways_agree(
    kind: type, outcome: Done | Failure, ending: str
) -> None:
    transcript = all_ways_agree(takes_its_time, Unlucky(kind, outcome))
    assert ending in str(transcript)


class NetworkError(Exception):
    """A class that no step declares."""


@pytest.mark.parametrize("error", [CardError("expired"), NetworkError("expired")])
def test_however_a_step_fails_the_four_ways_agree(error: Exception) -> None:
    transcript = all_ways_agree(order, Unlucky(Step, Failure(error)))
    assert "expired: try another card?" in str(transcript)


def test_an_answer_that_does_not_fit_is_asked_for_again_in_every_way() -> None:
    class Joker(Obliging):
        def answer(self, question: Question) -> Answer | None:
            is_first = "~" not in question.key and question.key.startswith("gather-1/0")
            return Accepted("nonsense") if is_first else super().answer(question)

    transcript = all_ways_agree(asks_at_once, Joker())
    assert asked_in(transcript) == [
        "gather-1/0/elicit-1",
        "gather-1/1/elicit-1",
        "gather-1/0/elicit-1~2",
    ]


def asks_at_once() -> Flow[str]:
    one, other = yield from Gather(Elicit("One?", str), Elicit("Other?", str))
    return f"{one} {other}"


def test_what_keeps_its_own_state_may_be_async() -> None:
    async def waits_for_it(given: Given = Provided()) -> str | InputRequired:
        if given.answers:
            return "done"
        return InputRequired({"who": Elicit("Who?", str)})

    transcript = all_ways_agree(waits_for_it, Obliging())
    assert asked_in(transcript) != []
    assert "done" in str(transcript.ending)


def test_a_conversation_may_stay_open_without_an_answer() -> None:
    way = attrs.evolve(RETRY, may_stay_open=True)
    transcript = had(order, way, Obliging({"elicit-1": None}), title="Dune")
    assert (transcript.ending.how, len(transcript.rounds)) == ("open", 1)


def test_a_race_that_was_never_run_is_unscripted() -> None:
    transcript = had(takes_its_time)
    nothing = tuple(
        attrs.evolve(one, performed=one.performed[:1]) for one in transcript.rounds
    )
    with pytest.raises(ConversationBroken) as caught:
        again(takes_its_time, attrs.evolve(transcript, rounds=nothing), TASK)
    assert isinstance(caught.value.error, Unscripted)


# ---- notes --------------------------------------------------------------------------


KEY: Final = "95b34079741d864e88cfe382995dc80c"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_conversation(way: Way) -> None:
    transcript = had(order, way, title="Dune")
    assert [wanted_in(each) for each in transcript.rounds] == [
        ["Elicit(message='Who wants Dune?', form=str)"],
        ["Confirm(message='Dune for a?')"],
        [f"charge('a', '{KEY}')"],
    ]
    (performed,) = transcript.rounds[-1].performed
    assert (performed.key, performed.tag) == ("0:step-1", "done")
    assert performed.where == f"{__file__}:{order.__code__.co_firstlineno + 6}"
    (asked,) = transcript.rounds[0].asked
    assert asked.where == f"{__file__}:{order.__code__.co_firstlineno + 1}"
    assert asked.answer == Accepted({"value": "a"})
    assert transcript.ending.how == "returned"


def test_a_raised_exception_is_described_in_words() -> None:
    def asks() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    partner = Obliging({"elicit-1": Declined()})
    ending = had(asks, partner=partner).ending
    assert (ending.how, ending.value) == (
        "raised",
        "Declined: The user declined.",
    )
    assert ending.error == Declined()


def test_what_the_client_lacks_cannot_be_asked() -> None:
    class Poor(Obliging):
        lacks = frozenset({"Elicit"})

    ending = had(order, partner=Poor(), title="Dune").ending
    assert ending.error == Unsupported("Elicit")


def test_what_the_client_lacks_is_known_by_its_class_too() -> None:
    class Poor(Obliging):
        lacks = frozenset({"Sample", "ListRoots"})

    transcript = had(asks_a_model, partner=Poor())
    assert transcript.lacks == {"Sample", "ListRoots"}
    assert transcript.ending.how == "returned"


def test_missing_answers_are_asked_again() -> None:
    class Forgetful(Obliging):
        def answer(self, question: Question) -> Answer | None:
            return super().answer(question) if self.asked(question) else None

        def __init__(self) -> None:
            super().__init__()
            self._seen: set[str] = set()

        def asked(self, question: Question) -> bool:
            is_known = question.key in self._seen
            self._seen.add(question.key)
            return is_known

    transcript = had(cleans_up, partner=Forgetful())
    assert asked_in(transcript) == ["elicit-1", "elicit-1", "two", "two"]
    assert [one.answer for each in transcript.rounds for one in each.asked] == [
        None,
        Accepted({"value": "a"}),
    ] * 2
    assert answers_of(transcript.rounds[0].asked) == {}
    for way in WAYS:
        assert again(cleans_up, transcript, way).ending == transcript.ending


def test_rounds_beyond_the_limit_leave_no_journal() -> None:
    def endless() -> Flow[str]:
        for n in range(20):
            yield from Elicit(f"{n}?", str)
        return "all"

    transcript = had(endless)
    assert isinstance(transcript.ending.error, TooManyRounds)
    assert transcript.rounds[-1].journal is None
    assert len(transcript.journals) == len(transcript.rounds) - 1
    assert had(endless, LIVE).ending.how == "returned"


def test_early_answers_are_noted() -> None:
    early = (AskedQuestion("two", "Two?", None, Accepted({"value": "b"})),)

    def asks() -> Flow[str]:
        return (yield from Elicit("Two?", str, key="two"))

    transcript = run_conversation(
        subject_of(asks), {}, Obliging(), flow_id=FLOW_ID, early=early
    )
    assert transcript.early == early
    assert asked_in(transcript) == []
    assert transcript.ending.value == {"content": [{"type": "text", "text": "b"}]}
    going = RunningConversation(
        subject_of(asks), {}, Obliging(), RETRY, flow_id=FLOW_ID
    )
    going.begin_early(early)
    assert going.early == early


def test_a_step_that_may_not_be_repeated_is_started_once_in_a_task() -> None:
    """The worker that resumes from the store finds that it has started nothing."""

    def sends() -> Flow[int]:
        name, _ = yield from Gather(Elicit("Who?", str), send("a"))
        yield from send("b")
        return (yield from send(name))

    transcript = had(sends, TASK)
    assert [one.key for each in transcript.rounds for one in each.performed] == [
        "0:gather-1/1/step-1",
        "0:step-1",
        "0:step-2",
    ]
    assert transcript.ending.how == "returned"
    assert "started" not in str(last(transcript).dumps())


def test_a_round_can_be_had_again() -> None:
    """In a way that carries journals, the state is everything."""
    going = RunningConversation(
        subject_of(order), {"title": "Dune"}, Obliging(), RETRY, flow_id=FLOW_ID
    )
    first = going.round(Journal(), {})
    assert attrs.evolve(going.round(Journal(), {}), stop=first.stop) == first


def test_a_watcher_sees_the_handler_only() -> None:
    seen: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    class Watched(Obliging):
        def answer(self, question: Question) -> Answer | None:
            assert seen[-1] == "out"
            return super().answer(question)

        def perform(self, key: str, want: Want) -> Done | Failure:
            assert seen[-1] == "out"
            return super().perform(key, want)

    subject = subject_of(order)
    arguments = {"title": "Dune"}
    for way in WAYS:
        seen.clear()
        run_conversation(
            subject, arguments, Watched(), way, flow_id=FLOW_ID, around=around
        )
        assert seen == ["in", "out"] * (len(seen) // 2)
        assert len(seen) >= 8, "three rounds, and one step"


# ---- a partner who says the same ----------------------------------------------------


def test_a_repeated_step_has_the_recorded_outcome() -> None:
    """A lost reply has a step performed twice, and only one of them is recorded."""
    transcript = had(cleans_up)
    partner = RecordedPartner(transcript)
    want: Any = attrs.make_class("_Want", ["effect"])(release())
    assert partner.perform("0:step-1", want) == Done(None)
    assert partner.perform("0:step-1", want) == Done(None)


def test_outcomes_of_one_key_come_in_their_order() -> None:
    transcript = had(cleans_up)
    *before, final = transcript.rounds
    (done,) = final.performed
    failed = attrs.evolve(
        done, tag="failed", payload={"builtin": "OSError", "args": []}
    )
    twice = attrs.evolve(
        transcript, rounds=(*before, attrs.evolve(final, performed=(failed, done)))
    )
    partner = RecordedPartner(twice)
    want: Any = attrs.make_class("_Want", ["effect"])(release())
    assert isinstance(partner.perform("0:step-1", want), Failure)
    assert partner.perform("0:step-1", want) == Done(None)
    assert partner.perform("0:step-1", want) == Done(None)


def test_an_effect_that_is_not_in_the_transcript_is_unscripted() -> None:
    transcript = had(order, title="Dune")
    with pytest.raises(ConversationBroken) as caught:
        again(cleans_up, attrs.evolve(transcript, arguments={}), RETRY)
    cause = caught.value.__cause__
    assert isinstance(cause, Unscripted)
    assert cause.what == "Elicit(message='Two after a?', form=str, key='two')"
    assert str(cause) == f"{cause.what} at {cause.where}, which was not wanted before"
    assert cause.where == f"{__file__}:{cleans_up.__code__.co_firstlineno + 3}"


def test_a_step_that_was_never_performed_is_unscripted() -> None:
    def starts() -> Flow[str]:
        yield from release()
        return "."

    transcript = had(order, title="Dune")
    *before, final = transcript.rounds
    nothing = attrs.evolve(
        transcript,
        arguments={},
        rounds=(*before, attrs.evolve(final, performed=())),
    )
    with pytest.raises(ConversationBroken) as caught:
        again(starts, nothing, RETRY)
    assert isinstance(caught.value.__cause__, Unscripted)
    assert caught.value.__cause__.what == "release()"


# ---- broken off ---------------------------------------------------------------------


def broken_off(handler: Handler, **arguments: Any) -> tuple[Transcript, Any]:
    with pytest.raises(ConversationBroken) as caught:
        had(handler, **arguments)
    assert str(caught.value) == str(caught.value.transcript)
    return caught.value.transcript, caught.value.__cause__


def test_what_took_place_so_far_is_kept() -> None:
    def breaks() -> Flow[int]:
        name = yield from Elicit("Who?", str)
        yield from release()
        return name  # type: ignore[return-value]  # as it should not

    transcript, error = broken_off(breaks)
    assert isinstance(error, OutputError)
    assert asked_in(transcript) == ["elicit-1"]
    assert [one.what for one in transcript.rounds[1].performed] == ["release()"]
    assert transcript.ending.how == "broke off"
    assert transcript.ending.value == str(error)


def test_what_was_performed_in_the_last_round_is_there_once() -> None:
    def breaks() -> Flow[int]:
        yield from release()
        return "text"  # type: ignore[return-value]  # as it should not

    transcript, _ = broken_off(breaks)
    performed = [one.what for each in transcript.rounds for one in each.performed]
    assert performed == ["release()"]


def test_a_handler_that_does_not_repeat_itself() -> None:
    calls = []

    def drifts() -> Flow[str]:
        calls.append(1)
        key = "sooner" if len(calls) < 3 else "later"
        first = yield from Elicit("First?", str, key=key)
        second = yield from Elicit("Second?", str)
        return first + second

    transcript, error = broken_off(drifts)
    assert isinstance(error, DivergenceError)
    assert error.report.where == f"{__file__}:{drifts.__code__.co_firstlineno + 3}"
    assert asked_in(transcript) == ["sooner", "elicit-1"]
    last_round = transcript.rounds[-1]
    assert (last_round.performed, last_round.asked, last_round.journal) == (
        (),
        (),
        None,
    )


def test_a_state_that_is_too_large() -> None:
    class Long(Obliging):
        def answer(self, question: Question) -> Answer | None:
            return Accepted({"value": "".join(map(str, range(100_000)))})

    transcript, error = broken_off(order, partner=Long(), title="Dune")
    assert isinstance(error, StateSizeError)
    assert asked_in(transcript) == ["elicit-1"]
    with pytest.raises(ConversationBroken):
        had(order, partner=Long(), title="Dune")
    assert had(order, LIVE, Long(), title="Dune").ending.how == "returned"


def test_a_handler_that_cannot_be_ended() -> None:
    def stays() -> Flow[str]:
        while True:
            try:
                return (yield from Elicit("Who?", str))
            except BaseException:
                continue

    _, error = broken_off(stays)
    assert isinstance(error, HandlerNotEnded)
    assert error.where == f"{__file__}:{stays.__code__.co_firstlineno + 3}"
    assert (
        str(error) == f"it continues to yield while it is being ended, at {error.where}"
    )


# ---- no generator is left -----------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_draw_that_is_given_up_leaves_no_generator(way: Way) -> None:
    """Hypothesis gives up with an exception out of any draw."""
    ended: list[str] = []

    def holds() -> Flow[str]:
        held = Held()
        alive.append(weakref.ref(held))
        try:
            yield from Elicit("Who?", str)
            return f"{yield from charge('a', 'b')}"
        finally:
            ended.append(repr(held))
            yield from release()

    class Held:
        pass

    alive: list[weakref.ref[Held]] = []

    class GivesUp(Obliging):
        def perform(self, key: str, want: Want) -> Done | Failure:
            raise KeyboardInterrupt

    with nothing_unraisable():
        with pytest.raises(KeyboardInterrupt):
            had(holds, way, GivesUp())
        assert len(ended) == len(alive), "each was ended, and not merely forgotten"
        gc.collect()
        assert [one() for one in alive] == [None] * len(alive)


def test_a_live_run_is_ended_where_the_partner_knows_no_answer() -> None:
    """The handler waits for a missing answer, with an effect in its `finally`."""
    transcript = had(cleans_up)
    *before, final = transcript.rounds
    shorter = attrs.evolve(
        transcript, rounds=(before[0], attrs.evolve(final, performed=()))
    )
    with nothing_unraisable(), pytest.raises(ConversationBroken):
        again(cleans_up, shorter, LIVE)


def test_conversations_leave_no_generator() -> None:
    @given(conversation(cleans_up))
    def converses(transcript: Transcript) -> None:
        for way in WAYS:
            if not transcript.early and transcript.rounds[-1].journal is not None:
                again(cleans_up, transcript, way)

    with nothing_unraisable():
        converses()


# ---- answers ------------------------------------------------------------------------


def test_answers_are_the_received_ones() -> None:
    asked = (
        AskedQuestion("a", "A?", None, Dismissed()),
        AskedQuestion("b", "B?", None, None),
    )
    assert answers_of(asked) == {"a": Dismissed()}
