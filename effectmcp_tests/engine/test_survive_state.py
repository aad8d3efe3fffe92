"""Hard cases that the engine must survive: journals and answers, old, forked or invalid.

These cases need no token: here a journal is trusted, and a client can keep it, lose
it, copy it, and answer anything.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    ClientFailed,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    InvalidAnswer,
    ListRoots,
    Now,
    Outcome,
    Root,
    Sample,
    Sampled,
    Step,
    UsageError,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    Asked,
    Journal,
    Perform,
    Raised,
    Returned,
)
from effectmcp.forms import Unfit

from ..helpers import (
    UNCAPPED,
    WAYS,
    advance,
    answers_to,
    flow_of,
    keys,
    messages,
    perform,
    returns,
    run,
    simplest,
    yes,
)

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def round_of(
    handler: Callable[..., Any],
    journal: Journal | None = None,
    said: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Journal]:
    """One round by retry: where it stopped, and the journal that goes out."""
    one = run(handler, journal=journal, **{"rules": UNCAPPED, **options})
    stop = advance(one, one.start(said))
    return stop, Journal.loads(one.suspend().dumps())


def text(value: str) -> Accepted[Any]:
    return Accepted({"value": value})


charged: list[int] = []


def charge(amount: int) -> str:
    charged.append(amount)
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def nothing_charged() -> None:
    """Each test begins with nothing charged."""
    charged.clear()


def order() -> Flow[str]:
    """Ask, charge, ask, charge."""
    name = yield from Elicit("Who?", str)
    first = yield from Step(charge, 1)
    day = yield from Elicit(f"When, {name}?", str)
    second = yield from Step(charge, 2)
    return f"{name} {day} {first} {second}"


# ---- again, forked, at once, afterwards ---------------------------------------------


def test_same_answers_again() -> None:
    """Answers that are sent twice give the same round twice, byte for byte."""

    def handler() -> Flow[Any]:
        name = yield from Elicit("Who?", str)
        return (yield from Elicit(f"When, {name}?", str))

    first, journal = round_of(handler)
    said = answers_to(first, yes)
    before = journal.dumps()
    one, again = round_of(handler, journal, said), round_of(handler, journal, said)
    assert one == again
    assert one[1].dumps() == again[1].dumps()
    assert journal.dumps() == before


def test_same_answers_again_to_the_next_round() -> None:
    """Answers sent again with the *new* journal count for nothing."""
    first, journal = round_of(order)
    said = answers_to(first, yes)
    second, journal = round_of(order, journal, said)
    third, after = round_of(order, journal, said)
    assert third == second
    assert after.asked == journal.asked
    assert charged == [1]


def test_other_answers() -> None:
    """Other answers to an old journal make a fork; neither side sees the other."""
    first, journal = round_of(order)
    (key,) = keys(first)
    ends = {}
    forks = {name: round_of(order, journal, {key: text(name)}) for name in "ab"}
    for name, (stop, forked) in forks.items():
        assert messages(stop) == [f"When, {name}?"]
        ends[name] = round_of(order, forked, answers_to(stop, yes))[0]
    assert ends == {name: Returned(f"{name} text paid 1 paid 2") for name in "ab"}
    # S1: at least once. Each fork is a flow that charges; an IdempotencyKey is the same
    # in both, which is what it is for.
    assert charged == [1, 1, 2, 2]


def test_other_answers_with_one_idempotency_key() -> None:
    """Two forks have the same idempotency keys, so a second charge can be detected."""
    from effectmcp import IdempotencyKey

    def handler() -> Flow[str]:
        yield from Elicit("Who?", str)
        return (yield from IdempotencyKey("charge"))

    first, journal = round_of(handler)
    ends = [
        round_of(handler, journal, {keys(first)[0]: text(name)})[0] for name in "ab"
    ]
    assert ends[0] == ends[1]
    other = run(handler, journal=journal, flow_id=b"another flow of a test")
    assert other.start().__class__ is Asked
    other.suspend()


def test_two_rounds_of_one_journal_at_once() -> None:
    """Two rounds of one journal at once, turn by turn, do not disturb each other."""
    first, journal = round_of(order)
    (key,) = keys(first)
    runs = [run(order, journal=journal) for _ in "ab"]
    stops: list[Any] = [
        one.start({key: text(name)}) for name, one in zip("ab", runs, strict=True)
    ]
    assert all(isinstance(stop, Perform) for stop in stops)
    asked: list[Any] = [
        one.performed({want.key: perform(want) for want in stop.wants})
        for one, stop in zip(reversed(runs), reversed(stops), strict=True)
    ][::-1]
    assert [messages(stop) for stop in asked] == [["When, a?"], ["When, b?"]]
    journals = [one.suspend() for one in runs]
    for name, stop, after in zip("ab", asked, journals, strict=True):
        end, _ = round_of(order, after, answers_to(stop, yes))
        assert end == Returned(f"{name} text paid 1 paid 2")


def test_old_round_after_completion() -> None:
    """The engine does not record completion, and resumes an old round after it."""
    first, journal = round_of(order)
    second, after = round_of(order, journal, answers_to(first, yes))
    end, _ = round_of(order, after, answers_to(second, yes))
    assert isinstance(end, Returned)
    charged.clear()
    again, _ = round_of(order, after, answers_to(second, yes))
    assert again == end
    assert charged == [2]
    # And what ended leaves a journal that replays to its end, cold.
    one = run(order, journal=after)
    advance(one, one.start(answers_to(second, yes)))
    cold = run(order, journal=one.journal, rules=attrs.evolve(RETRY, policy="strict"))
    assert cold.start() == end


def test_round_without_answers_many_times() -> None:
    """A journal without answers gives the same questions under the same keys."""
    first, journal = round_of(order)
    for _ in range(5):
        stop, journal = round_of(order, journal)
        assert stop == first
        assert list(journal.asked) == keys(first)
    assert journal.rounds == 6


# ---- which answers count ------------------------------------------------------------


def three() -> Flow[Any]:
    return (
        yield from Gather(Elicit("a", str), Elicit("b", str), Elicit("c", str, key="c"))
    )


@pytest.mark.parametrize(
    "extra",
    ["elicit-1", "gather-1/9/elicit-1", "gather-1/0/elicit-1~2", "r1/c", "", "c", "\0"],
)
def test_extra_answers(extra: str) -> None:
    """Extra answers, under keys that are not out, are ignored."""
    first, journal = round_of(three)
    said = {**answers_to(first, yes), extra: text("extra")}
    assert round_of(three, journal, said)[0] == Returned(("text", "text", "text"))
    stop, after = round_of(three, journal, {extra: text("extra")})
    assert stop == first
    assert after.asked == journal.asked
    assert b"extra" not in after.dumps()


def test_missing_answers() -> None:
    """Missing answers are asked again under the same key; those given are kept."""
    first, journal = round_of(three)
    a, b, c = keys(first)
    stop, journal = round_of(three, journal, {b: text("B")})
    assert keys(stop) == [a, c]
    stop, journal = round_of(three, journal, {})
    assert keys(stop) == [a, c]
    stop, journal = round_of(three, journal, {a: text("A"), c: text("C")})
    assert stop == Returned(("A", "B", "C"))


def test_missing_answers_are_not_overwritten() -> None:
    """An answer that was kept cannot be given again."""
    first, journal = round_of(three)
    a, b, c = keys(first)
    stop, journal = round_of(three, journal, {b: text("B")})
    said = {a: text("A"), b: text("another"), c: text("C")}
    assert round_of(three, journal, said)[0] == Returned(("A", "B", "C"))


@pytest.mark.parametrize("rules", [UNCAPPED, LIVE], ids=["retry", "live"])
def test_empty_answers(rules: Any) -> None:
    """No answers at all: everything is asked again, and nothing counted."""
    one = run(three, rules=rules)
    first = one.start()
    for _ in range(10):
        if rules is LIVE:
            stop = one.answered({})
        else:
            one = run(three, rules=rules, journal=one.suspend())
            stop = one.start({})
        assert stop == first
    assert all(asking.unfit == 0 for asking in one.journal.asked.values())
    assert all(place.asked == 1 for place in one.journal.places.values())


MALFORMED = {
    "null": Accepted(None),
    "a list": Accepted([]),
    "a text": Accepted("text"),
    "a number": Accepted(5),
    "empty": Accepted({}),
    "other fields": Accepted({"name": "Ann"}),
    "another type": Accepted({"value": 5}),
    "nested": Accepted({"value": {"value": "Ann"}}),
    "null inside": Accepted({"value": None}),
    "not JSON": Accepted({"value": object()}),
    "not JSON around": Accepted(object()),
    "unreadable": Unfit(["the answer has an unknown action 'maybe'"]),
}


@pytest.mark.parametrize("rules", [UNCAPPED, LIVE], ids=["retry", "live"])
@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_malformed_answers(answer: Any, rules: Any) -> None:
    """Malformed answers, an unknown action included: asked again, twice, then InvalidAnswer."""

    def handler() -> Flow[Any]:
        try:
            name = yield from Elicit("Who?", str)
        except InvalidAnswer as exc:
            return exc.problems
        return name

    one = run(handler, rules=rules)
    stop: Any = one.start()
    asked = keys(stop)
    for n in (2, 3):
        said = {asked[-1]: answer}
        if rules is LIVE:
            stop = one.answered(said)
        else:
            one = run(handler, rules=rules, journal=one.suspend())
            stop = one.start(said)
        assert isinstance(stop, Asked)
        (question,) = stop.questions
        assert question.key == f"elicit-1~{n}"
        assert question.problems
        # On the wire only: the question itself is the same, and fingerprinted so.
        assert question.effect == Elicit("Who?", str)
        asked.append(question.key)
    said = {asked[-1]: answer}
    if rules is LIVE:
        end = one.answered(said)
    else:
        one = run(handler, rules=rules, journal=one.suspend())
        end = one.start(said)
    assert isinstance(end, Returned)
    assert end.value
    # Journaled: a cold replay returns the same.
    assert run(handler, journal=one.journal, rules=LIVE).start() == end


def test_malformed_answers_uncaught() -> None:
    """InvalidAnswer, uncaught, ends the flow with the problems in its words."""
    one = run(flow_of(Elicit("Who?", str)), rules=LIVE)
    stop: Any = one.start()
    for _ in range(3):
        stop = one.answered({keys(stop)[0]: Accepted({"value": 5})})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, InvalidAnswer)
    assert "value: must be text" in str(stop.error)


def test_malformed_answers_between_good_ones() -> None:
    """A malformed answer does not hold up the others, nor spoil them."""
    first, journal = round_of(three)
    a, b, c = keys(first)
    said = {a: text("A"), b: Accepted(5), c: text("C")}
    stop, journal = round_of(three, journal, said)
    assert keys(stop) == [f"{b}~2"]
    # The asking that was settled is over: its key counts for nothing any more.
    stop, journal = round_of(three, journal, {b: text("late")})
    assert keys(stop) == [f"{b}~2"]
    stop, journal = round_of(three, journal, {f"{b}~2": text("B")})
    assert stop == Returned(("A", "B", "C"))


def test_malformed_answer_of_another_type() -> None:
    """The embedder must pass answer objects: the error names its mistake."""
    one = run(flow_of(Elicit("Who?", str)), rules=LIVE)
    one.start()
    with pytest.raises(UsageError, match=r"Accepted\(content\)"):
        one.answered({"elicit-1": "Ann"})  # type: ignore[dict-item]


def test_missing_answer_does_not_count_as_malformed() -> None:
    """A round without an answer, between malformed ones, counts nothing."""
    one = run(flow_of(Elicit("Who?", str)), rules=LIVE)
    stop = one.start()
    for _ in range(2):
        stop = one.answered({})
        stop = one.answered({keys(stop)[0]: Accepted(5)})
        stop = one.answered({})
    assert keys(stop) == ["elicit-1~3"]
    assert one.answered({"elicit-1~3": text("Ann")}) == Returned(["Ann"])


# ---- late answers, lost state -------------------------------------------------------


def worded(message: str) -> Callable[[], Flow[str]]:
    def handler() -> Flow[str]:
        answer = yield from Confirm(message)
        paid = yield from Step(charge, 1)
        return f"{answer} {paid}"

    return handler


def test_late_answer_to_a_reworded_question() -> None:
    """A late answer to a reworded question never counts: consent belongs to the text shown."""
    first, journal = round_of(worded("Pay 1?"))
    said = answers_to(first, yes)
    second, journal = round_of(worded("Pay 100?"), journal, said)
    assert messages(second) == ["Pay 100?"]
    assert keys(second) == ["confirm-1~2"]
    assert charged == []
    # Sent again, late: under the old key with the new journal.
    third, journal = round_of(worded("Pay 100?"), journal, said)
    assert third == second
    assert charged == []
    end, _ = round_of(worded("Pay 100?"), journal, answers_to(third, yes))
    assert end == Returned("True paid 1")


def test_late_answer_to_a_question_reworded_and_back() -> None:
    """Reworded and back again: a third asking with a key of its own."""
    first, journal = round_of(worded("Pay 1?"))
    second, journal = round_of(worded("Pay 100?"), journal)
    third, journal = round_of(worded("Pay 1?"), journal)
    assert keys(first) + keys(second) + keys(third) == [
        "confirm-1",
        "confirm-1~2",
        "confirm-1~3",
    ]
    for old in (first, second):
        stop, _ = round_of(worded("Pay 1?"), journal, answers_to(old, yes))
        assert stop == third
    assert charged == []


@pytest.mark.parametrize("early", [True, False])
def test_state_dropped_while_answers_stay(early: bool) -> None:
    """State dropped while answers stay: generated keys count for nothing, ever."""
    first, journal = round_of(order)
    (key,) = keys(first)
    second, _ = round_of(order, journal, {key: text("Ann")})
    said = {key: text("Ann"), **answers_to(second, yes)}
    stop, _ = round_of(
        order, None, said, rules=attrs.evolve(UNCAPPED, early_answers=early)
    )
    assert stop == first
    assert charged == [1]


def keyed() -> Flow[Any]:
    place = yield from Elicit("Where?", str, key="place")
    name = yield from Elicit("Who?", str, key="name")
    return place, name


@pytest.mark.parametrize("early", [True, False])
def test_state_dropped_while_answers_to_explicit_keys_stay(early: bool) -> None:
    """With explicit keys those answers are early ones: they count if the rules allow them."""
    said = {"place": text("Rome"), "name": text("Ann")}
    stop, _ = round_of(
        keyed, None, said, rules=attrs.evolve(UNCAPPED, early_answers=early)
    )
    if early:
        assert stop == Returned(("Rome", "Ann"))
    else:
        assert keys(stop) == ["place"]


def test_consent_given_before_the_question() -> None:
    """A consent without its state, or an invented consent: the question is shown first."""

    def handler() -> Flow[Any]:
        count = yield from Step(charge, 1000)
        return (yield from Confirm(f"Delete {count} files?", key="sure"))

    said = {"sure": Accepted(None)}
    first, journal = round_of(handler, None, said)
    assert keys(first) == ["sure"]
    assert round_of(handler, journal, said)[0] == Returned(True)


def test_early_answers_after_a_local_effect() -> None:
    """Early answers count behind a local effect too: the request is one and the same."""

    def handler() -> Flow[Any]:
        yield from Now()
        return (yield from keyed())

    said = {"place": text("Rome"), "name": text("Ann")}
    assert round_of(handler, None, said)[0] == Returned(("Rome", "Ann"))


def test_answers_after_a_local_effect() -> None:
    """An answer counts though this round performs something first (an older state, say)."""

    def handler() -> Flow[Any]:
        both = yield from Gather(Elicit("a", str), flow_of(Elicit("b", str))())
        return both

    def longer() -> Flow[Any]:
        yield from Step(charge, 1)
        return (yield from handler())

    first, journal = round_of(handler)
    stop, _ = round_of(longer, journal, answers_to(first, yes))
    assert stop == Returned(("text", ["text"]))
    assert charged == [1]


def test_early_answers_that_do_not_fit() -> None:
    """An early answer that does not fit is ignored, and counts nothing."""
    said = {"place": text("Rome"), "name": Accepted({"value": 5})}
    stop, journal = round_of(keyed, None, said)
    assert keys(stop) == ["name"]
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ()
    (asking,) = journal.asked.values()
    assert asking.unfit == 0


def test_early_answers_count_on_the_first_call_only() -> None:
    """With a state, an answer to a question not yet asked is not an early answer."""
    stop, journal = round_of(keyed)
    said = {"place": text("Rome"), "name": text("Ann")}
    stop, journal = round_of(keyed, journal, said)
    assert keys(stop) == ["name"]


def test_early_answers_do_not_count_for_a_second_use() -> None:
    """An early answer counts for one question: the second use of a key is another."""

    def handler() -> Flow[Any]:
        one = yield from Elicit("Who pays 1?", str, key="who")
        two = yield from Elicit("Who pays 100?", str, key="who")
        return one, two

    stop, _ = round_of(handler, None, {"who": text("Ann")})
    assert messages(stop) == ["Who pays 100?"]
    assert keys(stop) == ["who#2"]


# ---- what an answer can be ----------------------------------------------------------

REFUSALS = {"decline": Declined(), "cancel": Dismissed()}
QUESTIONS = {
    "elicit": Elicit("Who?", str),
    "url": ElicitUrl("Go?", "https://example.com"),
    "sample": Sample("Write."),
    "roots": ListRoots(),
}


@every_way
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_decline_and_cancel(question: Any, refusal: Any, way: Any) -> None:
    """Decline and cancel raise Declined and Dismissed at the yield, fresh each time."""

    def handler() -> Flow[Any]:
        try:
            return (yield from question)
        except (Declined, Dismissed) as exc:
            return exc

    end = way(handler, answer=lambda question: refusal)
    assert end == Returned(refusal)
    assert end.value is not refusal


@every_way
def test_decline_and_cancel_of_a_confirm(way: Any) -> None:
    """A declined Confirm is False, a dismissed one raises."""
    handler = flow_of(Confirm("Sure?"))
    assert returns(way(handler, answer=lambda q: Declined())) == [False]
    end = way(handler, answer=lambda q: Dismissed())
    assert end == Raised(Dismissed())


@every_way
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_decline_and_cancel_with_otherwise(refusal: Any, way: Any) -> None:
    """`otherwise=` answers a decline and a dismissal."""
    handler = flow_of(Elicit("Who?", str, otherwise=None), Elicit("And?", str))

    def answer(question: Any) -> Any:
        return refusal if question.effect.message == "Who?" else yes(question)

    assert returns(way(handler, answer=answer)) == [None, "text"]


@every_way
@pytest.mark.parametrize("answer", [Declined(), Dismissed(), Accepted({"value": "A"})])
def test_decline_and_cancel_as_outcome(answer: Any, way: Any) -> None:
    """`Outcome` gives them as values."""
    handler = flow_of(Outcome(Elicit("Who?", str)))
    expected = Accepted("A") if isinstance(answer, Accepted) else answer
    assert returns(way(handler, answer=lambda q: answer)) == [expected]


@every_way
def test_client_errors_as_answers(way: Any) -> None:
    """A client's error: -1 is a decline, any other one ClientFailed, journaled like the rest."""

    def handler() -> Flow[Any]:
        seen: list[Any] = []
        for n in range(2):
            try:
                yield from Elicit(f"{n}", str)
            except (Declined, ClientFailed) as exc:
                seen.append(exc)
        return seen

    def answer(question: Any) -> Any:
        if question.effect.message == "0":
            return ClientFailed(-1, "User rejected")
        return ClientFailed(-32000, "no", {"why": "busy"})

    assert returns(way(handler, answer=answer)) == [
        Declined(),
        ClientFailed(-32000, "no", {"why": "busy"}),
    ]


@attrs.frozen
class Extras:
    """A form that may stay empty."""

    note: str | None = None
    copies: int = 1


@every_way
def test_accept_without_content(way: Any) -> None:
    """Accept without content: fine where nothing is required, and consent for a Confirm."""
    handler = flow_of(
        Elicit("Extras?", Extras),
        Confirm("Sure?"),
        ElicitUrl("Go?", "https://example.com"),
        Elicit("Anything?", str | None),
    )
    assert returns(way(handler, answer=lambda q: Accepted(None))) == [
        Extras(),
        True,
        None,
        None,
    ]


def test_accept_without_content_where_something_is_required() -> None:
    """Accept without content where something is required: asked again, naming the field."""
    one = run(flow_of(Elicit("Who?", str)), rules=LIVE)
    stop = one.start()
    stop = one.answered({keys(stop)[0]: Accepted(None)})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ("value: is required",)


CONTENTS: dict[str, Any] = {
    "elicit": {"value": "Ann"},
    "confirm": {"anything": "that a client adds"},
    "sample": {
        "role": "assistant",
        "content": {"type": "text", "text": "hello"},
        "model": "m",
        "stopReason": "endTurn",
    },
    "roots": {"roots": [{"uri": "file:///a"}]},
}
GOOD: dict[str, Any] = {
    "elicit": "Ann",
    "url": None,
    "sample": Sampled([{"type": "text", "text": "hello"}], "m", "endTurn"),
    "roots": [Root("file:///a")],
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_answer_of_another_kind(question: str, content: str) -> None:
    """An answer of another kind does not fit; the one of its own kind does."""
    one = run(flow_of(QUESTIONS[question]), rules=LIVE)
    stop = one.start()
    end = one.answered({keys(stop)[0]: Accepted(CONTENTS[content])})
    if question in (content, "url"):
        assert end == Returned([GOOD[question]])
        return
    assert isinstance(end, Asked)
    assert end.questions[0].problems
    end = one.answered({keys(end)[0]: Accepted(CONTENTS.get(question))})
    assert end == Returned([GOOD[question]])


MALFORMED_SAMPLES = [
    {},
    {"content": {"type": "text", "text": "t"}},
    {"model": "m"},
    {"model": "m", "content": "text"},
    {"model": "m", "content": [{"text": "t"}]},
    {"model": "m", "content": {"type": "text"}},
    {"model": "m", "content": {"type": "text", "text": 5}},
    {"model": 5, "content": {"type": "text", "text": "t"}},
    {"model": "m", "content": {"type": "text", "text": "t"}, "stopReason": 5},
    {"model": "m", "content": None},
]
MALFORMED_ROOTS = [
    {},
    [],
    {"roots": None},
    {"roots": {}},
    {"roots": [None]},
    {"roots": [{}]},
    {"roots": [{"uri": 5}]},
    {"roots": [{"uri": "file:///a", "name": 5}]},
]


@pytest.mark.parametrize(
    ("question", "content"),
    [(Sample("Write."), one) for one in MALFORMED_SAMPLES]
    + [(ListRoots(), one) for one in MALFORMED_ROOTS],
)
def test_malformed_results_of_the_deprecated_kinds(question: Any, content: Any) -> None:
    """Malformed results of sampling and roots are unfit answers, never a crash."""
    one = run(flow_of(question), rules=LIVE)
    stop = one.start()
    stop = one.answered({keys(stop)[0]: Accepted(content)})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems


# ---- what leaves --------------------------------------------------------------------


def test_unknown_properties_leave_no_trace() -> None:
    """Unknown properties of an answer are dropped: neither delivered nor journaled."""
    first, journal = round_of(order)
    said = {keys(first)[0]: Accepted({"value": "Ann", "secret": "leak"})}
    stop, journal = round_of(order, journal, said)
    assert messages(stop) == ["When, Ann?"]
    assert b"leak" not in journal.dumps()
    assert b"secret" not in journal.dumps()


def test_refused_answers_leave_no_trace() -> None:
    """Answers that did not fit, or were not asked for, are not journaled."""
    first, journal = round_of(order)
    said = {keys(first)[0]: Accepted({"value": ["leak"]}), "leak": text("leak")}
    _, journal = round_of(order, journal, said)
    assert b"leak" not in journal.dumps()


def test_validator_changed_under_a_recorded_answer() -> None:
    """A recorded answer that no longer structures is unfitting, not divergent."""

    @attrs.frozen
    class Guest:
        age: int = attrs.field(validator=lambda *args: check(*args))

    lowest = 0

    def check(guest: Any, attribute: Any, value: int) -> None:
        if value < lowest:
            raise ValueError(f"age must be at least {lowest}")

    def handler() -> Flow[Any]:
        both = yield from Gather(Elicit("Who?", Guest), Elicit("And?", str))
        return both[0].age

    strict = attrs.evolve(UNCAPPED, policy="strict")
    first, journal = round_of(handler, rules=strict)
    guest, other = keys(first)
    said = {guest: Accepted({"age": 7})}
    stop, journal = round_of(handler, journal, said, rules=strict)
    assert keys(stop) == [other]
    lowest = 18
    stop, journal = round_of(handler, journal, {other: text("b")}, rules=strict)
    assert keys(stop) == [f"{guest}~2"]
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ("age: age must be at least 18",)
    said = {f"{guest}~2": Accepted({"age": 20})}
    assert round_of(handler, journal, said, rules=strict)[0] == Returned(20)


def test_simplest_content_is_the_content_that_these_tests_expect() -> None:
    """The obliging client of the helpers fits."""
    assert simplest(Elicit("Who?", str).spec.schema) == {"value": "text"}
