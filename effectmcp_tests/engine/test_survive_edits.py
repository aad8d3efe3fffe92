"""Hard cases that the engine must survive: a handler is edited while flows run.

`V1` was served until now, and `v2` replaces it. Every edit is tried on top and
inside a branch, each under the four policies; then again with a performed step behind
it, where `salvage` has to stop.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    DivergenceError,
    Effect,
    Elicit,
    Flow,
    Gather,
    Now,
    Restart,
    Step,
    StepFailed,
    Version,
    step,
)
from effectmcp.engine import (
    RETRY,
    TASK,
    Asked,
    Done,
    Failure,
    Journal,
    JournalError,
    Perform,
    Policy,
    Raised,
    Returned,
    Rules,
)

from ..helpers import UNCAPPED, advance, flow_of, keys, messages, run

POLICIES: tuple[Policy, ...] = ("salvage", "stop", "park", "strict")
under_the_four_policies = pytest.mark.parametrize("policy", POLICIES)
on_top_and_in_a_branch = pytest.mark.parametrize("inside", [False, True])

Handler = Callable[..., Any]

#: What the step of these tests was performed with, in order. Emptied by `performed`.
_charged: list[int] = []


def charge(amount: int) -> str:
    _charged.append(amount)
    return f"charged {amount}"


@step(replayable=True)
def look(amount: int) -> str:
    _charged.append(amount)
    return f"looked {amount}"


@pytest.fixture
def performed() -> list[int]:
    """The arguments of the steps that were performed."""
    _charged.clear()
    return _charged


def under(policy: Policy) -> Rules:
    """By retry, with that policy."""
    return attrs.evolve(UNCAPPED, policy=policy)


def say(text: str) -> Accepted[Any]:
    """An answer that names its question."""
    return Accepted({"value": f"re: {text}"})


def answers(stop: Any) -> dict[str, Any]:
    """An answer to each question of a round."""
    assert isinstance(stop, Asked), stop
    return {
        key: say(text) for key, text in zip(keys(stop), messages(stop), strict=True)
    }


def round_of(
    handler: Handler,
    journal: Journal | None = None,
    said: Mapping[str, Any] | None = None,
    rules: Rules = UNCAPPED,
) -> tuple[Any, Journal]:
    """One round by retry: where it stopped, and the journal that goes out."""
    one = run(handler, journal=journal, rules=rules)
    stop = advance(one, one.start(said))
    return stop, Journal.loads(one.suspend().dumps())


def rounds_of(handler: Handler, count: int) -> tuple[Any, Journal]:
    """Play `count` rounds and answer all but the last; return its stop and journal."""
    stop, journal = round_of(handler)
    for _ in range(count - 1):
        stop, journal = round_of(handler, journal, answers(stop))
    return stop, journal


def finish(handler: Handler, journal: Journal, out: Any, asked: list[str]) -> Any:
    """Play to the end from a round that is answered, noting what is asked on the way.

    Q2: a wire key belongs to one message, over the flow's whole life.
    """
    texts = dict(zip(keys(out), messages(out), strict=True))
    said = answers(out)
    for _ in range(20):
        stop, journal = round_of(handler, journal, said)
        if not isinstance(stop, Asked):
            return stop
        for key, text in zip(keys(stop), messages(stop), strict=True):
            assert texts.setdefault(key, text) == text
            assert key not in said, "an answer that counts no more, and the same key"
            asked.append(text)
        said = answers(stop)
    raise AssertionError("twenty rounds, and no end")


def sequence(effects: Iterable[Effect[Any]]) -> Flow[list[Any]]:
    found = []
    for effect in effects:
        found.append((yield from effect))
    return found


def wrapped(inside: bool, *effects: Effect[Any]) -> Handler:
    """A handler of these effects: on top, or in a branch beside another one."""

    def handler() -> Flow[list[Any]]:
        if inside:
            both = yield from Gather(sequence(effects), Elicit("aside", str))
            assert both[1] == "re: aside"
            found: list[Any] = both[0]
            return found
        return (yield from sequence(effects))

    return handler


# ---- edits in questions -------------------------------------------------------------

a, b, c = Elicit("a", str), Elicit("b", str), Elicit("c", str)
new = Elicit("new", str)

#: v1 is `a, b, c`, and the edit comes when a and b are answered and c is outstanding.
#: The values: v2, and the questions that it may ask, in order, before it returns. All
#: other answers must come from the journal. `c` is answered in the very request that
#: meets the edit: it is not asked for again, wherever its question comes (Q1a).
EDITS: dict[str, tuple[tuple[Effect[Any], ...], list[str]]] = {
    "inserted before": ((new, a, b, c), ["new"]),
    "inserted between": ((a, new, b, c), ["new"]),
    "removed first": ((b, c), []),
    "removed": ((a, c), []),
    "reordered": ((b, a, c), []),
    "renamed": ((a, Elicit("b", str, key="bee"), c), ["b"]),
    "of another kind": ((a, Confirm("b"), c), ["b"]),
    "reworded": ((a, Elicit("b?", str), c), ["b?"]),
    "its form widened": ((a, Elicit("b", str | None), c), ["b"]),
}


def results(effects: Iterable[Effect[Any]]) -> list[Any]:
    """Return the values of `effects` when each answer belongs to its own question."""
    return [
        True if isinstance(effect, Confirm) else f"re: {effect.message}"  # type: ignore[attr-defined]
        for effect in effects
    ]


@on_top_and_in_a_branch
@under_the_four_policies
@pytest.mark.parametrize("edit", EDITS)
def test_effect_edited(edit: str, policy: Policy, inside: bool) -> None:
    """An effect inserted, removed, reordered, renamed, of another kind, reworded, widened.

    On top and inside a branch, each under the four policies.
    """
    effects, expected = EDITS[edit]
    v1, v2 = wrapped(inside, a, b, c), wrapped(inside, *effects)
    stop, journal = rounds_of(v1, 3)
    assert messages(stop) == ["c"]
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, answers(stop), under(policy))
        report = info.value.report
        assert info.value.verdict == policy
        assert report.handler.endswith("wrapped.<locals>.handler")
        assert report.round == 3
        assert report.recorded is not None
        assert "(accepted)" in report.recorded
        assert report.current is not None
        assert report.where is not None
        assert report.where.startswith(f"{__file__}:")
        assert ("branch gather-1/0" in report.place) == inside
        assert journal == rounds_of(v1, 3)[1]
        return
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(results(effects))
    assert asked == expected


@on_top_and_in_a_branch
@under_the_four_policies
def test_effect_inserted_after(policy: Policy, inside: bool) -> None:
    """An effect inserted after the answers: no divergence, under any policy."""
    v1, v2 = wrapped(inside, a, b, c), wrapped(inside, a, b, new, c)
    stop, journal = rounds_of(v1, 3)
    stop, journal = round_of(v2, journal, answers(stop), under(policy))
    # The answer to c was given at a place where something else is asked now: it is kept.
    assert messages(stop) == ["new"]
    assert keys(stop)[0].endswith("~2")
    asked: list[str] = []
    assert finish(v2, journal, stop, asked) == Returned(results((a, b, new, c)))
    assert asked == []


@on_top_and_in_a_branch
@under_the_four_policies
def test_effect_removed_that_is_out(policy: Policy, inside: bool) -> None:
    """An effect removed while it is out with the client: its answer goes nowhere."""
    v1, v2 = wrapped(inside, a, b, c), wrapped(inside, a, b)
    stop, journal = rounds_of(v1, 3)
    end, after = round_of(v2, journal, answers(stop), under(policy))
    assert end == Returned(results((a, b)))
    assert [one.value for one in after.entries if one.tag == "unread"] == []


@on_top_and_in_a_branch
@under_the_four_policies
def test_effect_reworded_that_is_out(policy: Policy, inside: bool) -> None:
    """A question reworded while it is out: a stale answer, asked again, under any policy."""
    v1, v2 = wrapped(inside, a, c), wrapped(inside, a, Elicit("c, really", str))
    stop, journal = rounds_of(v1, 2)
    (key,) = keys(stop)
    stop, journal = round_of(v2, journal, answers(stop), under(policy))
    assert messages(stop) == ["c, really"]
    assert keys(stop) == [f"{key}~2"]
    end, _ = round_of(v2, journal, answers(stop), under(policy))
    assert end == Returned(["re: a", "re: c, really"])


@on_top_and_in_a_branch
@under_the_four_policies
def test_form_widened_that_is_out(policy: Policy, inside: bool) -> None:
    """A form widened while it is out: the answer was to another form, and is not used."""
    v1, v2 = wrapped(inside, a, c), wrapped(inside, a, Elicit("c", str | None))
    stop, journal = rounds_of(v1, 2)
    (key,) = keys(stop)
    stop, journal = round_of(v2, journal, answers(stop), under(policy))
    assert keys(stop) == [f"{key}~2"]
    end, _ = round_of(v2, journal, answers(stop), under(policy))
    assert end == Returned(["re: a", "re: c"])


def test_effect_renamed_with_a_key_keeps_its_answer_when_moved() -> None:
    """`key=` keeps an answer attached to its question when the handler is edited around it."""
    keyed = Elicit("b", str, key="b")
    v1, v2 = wrapped(False, a, keyed, c), wrapped(False, keyed, new, a, c)
    stop, journal = rounds_of(v1, 3)
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(["re: b", "re: new", "re: a", "re: c"])
    assert asked.count("new") == 1
    assert not {"a", "b"} & set(asked)


# ---- edits over performed steps -----------------------------------------------------

pay, see = Step(charge, 10), look(10)

STEP_EDITS: dict[str, tuple[Effect[Any], ...]] = {
    "inserted before": (new, a, pay, c),
    "inserted between": (a, new, pay, c),
    "removed": (pay, c),
    "step removed": (a, c),
    "reordered": (pay, a, c),
    "renamed": (Elicit("a", str, key="ay"), pay, c),
    "of another kind": (Confirm("a"), pay, c),
    "reworded": (Elicit("a?", str), pay, c),
    "its form widened": (Elicit("a", str | None), pay, c),
    "step with other arguments": (a, Step(charge, 11), c),
    "step of another name": (a, Step(str, 10), c),
    "step made replayable": (a, see, c),
    "replaced by Now": (a, Now(), c),
}


@on_top_and_in_a_branch
@under_the_four_policies
@pytest.mark.parametrize("edit", STEP_EDITS)
def test_effect_edited_over_a_performed_step(
    edit: str, policy: Policy, inside: bool, performed: list[int]
) -> None:
    """An edit before a performed step is a hard stop, and nothing is performed again."""
    v1, v2 = wrapped(inside, a, pay, c), wrapped(inside, *STEP_EDITS[edit])
    stop, journal = rounds_of(v1, 2)
    assert messages(stop) == ["c"]
    assert performed == [10]
    # First without any answer, then with: neither may perform, nor ask.
    for said in ({}, answers(stop)):
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, said, under(policy))
        assert info.value.verdict == ("stop" if policy == "salvage" else policy)
        assert info.value.PUBLIC.endswith("start again.")
        assert "charged" not in info.value.PUBLIC
    assert performed == [10]


@on_top_and_in_a_branch
@under_the_four_policies
def test_effect_edited_after_a_performed_step(
    policy: Policy, inside: bool, performed: list[int]
) -> None:
    """An edit behind a performed step leaves it alone: what was fed is not dropped."""
    v1, v2 = wrapped(inside, pay, a, b), wrapped(inside, pay, new, a, b)
    stop, journal = rounds_of(v1, 2)
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, answers(stop), under(policy))
        assert info.value.verdict == policy
    else:
        asked: list[str] = []
        end = finish(v2, journal, stop, asked)
        assert end == Returned(["charged 10", "re: new", "re: a", "re: b"])
        assert "a" not in asked
    assert performed == [10]


@on_top_and_in_a_branch
@under_the_four_policies
def test_effect_edited_over_a_replayable_step(
    policy: Policy, inside: bool, performed: list[int]
) -> None:
    """A step that was replayable *when it was performed* may be dropped and performed again."""
    v1, v2 = wrapped(inside, a, see, c), wrapped(inside, new, a, see, c)
    stop, journal = rounds_of(v1, 2)
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, answers(stop), under(policy))
        assert info.value.verdict == policy
        assert performed == [10]
        return
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(["re: new", "re: a", "looked 10", "re: c"])
    assert "a" not in asked
    assert performed == [10, 10]


def test_step_inserted_before_answers_is_performed_once(performed: list[int]) -> None:
    """A step inserted before answers: the answers are kept, the step performed once."""
    v1, v2 = wrapped(False, a, b, c), wrapped(False, pay, a, b, c)
    stop, journal = rounds_of(v1, 3)
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(["charged 10", "re: a", "re: b", "re: c"])
    assert asked == []
    assert performed == [10]


def test_step_inserted_after_everything_recorded(performed: list[int]) -> None:
    """A step inserted after everything recorded is just performed."""
    v1, v2 = wrapped(False, a, c), wrapped(False, a, pay, c)
    stop, journal = rounds_of(v1, 2)
    end, _ = round_of(v2, journal, answers(stop), under("strict"))
    assert end == Returned(["re: a", "charged 10", "re: c"])
    assert performed == [10]


def test_random_values_survive_an_edit() -> None:
    """`Now`, `Uuid` and `Random` values go to the pool too, so that messages stay the same."""
    drawn: list[int] = []

    def draw(want: Any) -> Any:
        from effectmcp.engine import Done

        drawn.append(1)
        return Done(dt.datetime(2026, 1, len(drawn), tzinfo=dt.UTC))

    def v1() -> Flow[Any]:
        day = yield from Now()
        yield from a
        return (yield from Elicit(f"On {day:%d}?", str))

    def v2() -> Flow[Any]:
        yield from new
        return (yield from v1())

    one = run(v1)
    stop = advance(one, one.start(), draw)
    one = run(v1, journal=one.suspend())
    stop = advance(one, one.start(answers(stop)), draw)
    assert messages(stop) == ["On 01?"]
    journal = one.suspend()
    one = run(v2, journal=journal)
    stop = advance(one, one.start(), draw)
    assert messages(stop) == ["new"]
    one = run(v2, journal=one.suspend())
    stop = advance(one, one.start(answers(stop)), draw)
    assert messages(stop) == ["On 01?"]
    assert drawn == [1]


# ---- what the pool holds ------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_pool_with_one_fingerprint_more_than_once(count: int) -> None:
    """A fingerprint that is in the pool more than once is asked again; once, it is taken."""
    v1 = wrapped(False, *[Elicit("again?", str)] * count, c)
    v2 = wrapped(False, new, *[Elicit("again?", str)] * count, c)
    stop, journal = rounds_of(v1, count + 1)
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(["re: new"] + ["re: again?"] * count + ["re: c"])
    assert asked.count("again?") == (0 if count == 1 else 2)


def test_pool_never_separates_equal_messages_by_their_path() -> None:
    """Q1a: two answers to one message are asked for again, wherever they were given."""

    def handler(*effects: Effect[Any]) -> Handler:
        def inner() -> Flow[Any]:
            yield from a
            both = yield from Gather(
                sequence((*effects, Elicit("same", str))),
                sequence((*effects, Elicit("same", str))),
            )
            yield from c
            return [found[-1] for found in both]

        return inner

    v1, v2 = handler(), handler(Now())
    stop, journal = rounds_of(v1, 2)
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), "xy", strict=True)
    }
    stop, journal = round_of(v1, journal, said)
    assert messages(stop) == ["c"]
    stop, journal = round_of(v2, journal)
    assert messages(stop) == ["same", "same"]
    assert not journal.pool
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), "pq", strict=True)
    }
    stop, journal = round_of(v2, journal, said)
    assert round_of(v2, journal, answers(stop))[0] == Returned(["p", "q"])


def test_pool_keeps_declined_answers() -> None:
    """A decline is an answer too: after an edit the user is not asked for it again."""
    sure = Confirm("sure?")
    v1, v2 = wrapped(False, sure, c), wrapped(False, new, sure, c)
    stop, journal = round_of(v1)
    stop, journal = round_of(v1, journal, {keys(stop)[0]: Declined()})
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(["re: new", False, "re: c"])
    assert "sure?" not in asked


# ---- ends ---------------------------------------------------------------------------


@on_top_and_in_a_branch
@under_the_four_policies
def test_early_return(policy: Policy, inside: bool) -> None:
    """Early return: entries left over at a return are a divergence."""
    v1, v2 = wrapped(inside, a, b, c), wrapped(inside, a)
    stop, journal = rounds_of(v1, 3)
    if policy == "salvage":
        end, _ = round_of(v2, journal, answers(stop))
        assert end == Returned(["re: a"])
        return
    with pytest.raises(DivergenceError) as info:
        round_of(v2, journal, answers(stop), under(policy))
    assert info.value.verdict == policy
    assert info.value.report.cause == "left over"
    assert info.value.report.recorded == "elicit-2 (accepted)"
    assert "the end" in str(info.value)
    assert ("branch gather-1/0" in info.value.report.place) == inside


@on_top_and_in_a_branch
@under_the_four_policies
def test_early_return_over_a_performed_step(
    policy: Policy, inside: bool, performed: list[int]
) -> None:
    """Early return, leaving a performed step: a hard stop."""
    v1, v2 = wrapped(inside, a, pay, c), wrapped(inside, a)
    stop, journal = rounds_of(v1, 2)
    with pytest.raises(DivergenceError) as info:
        round_of(v2, journal, answers(stop), under(policy))
    assert info.value.verdict == ("stop" if policy == "salvage" else policy)
    assert performed == [10]


@under_the_four_policies
def test_early_raise(
    policy: Policy, performed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A *raise* at the root is the handler's own; leftovers go to the log; a task parks."""
    v1 = wrapped(False, a, pay, c)

    def v2() -> Flow[str]:
        yield from a
        raise ValueError("mine")

    stop, journal = rounds_of(v1, 2)
    caplog.set_level("INFO", logger="effectmcp")
    if policy == "park":
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, answers(stop), under(policy))
        assert info.value.verdict == "park"
        return
    end, _ = round_of(v2, journal, answers(stop), under(policy))
    assert isinstance(end, Raised)
    assert repr(end.error) == "ValueError('mine')"
    assert "left over" in caplog.text
    assert performed == [10]


@on_top_and_in_a_branch
@under_the_four_policies
def test_longer_code(policy: Policy, inside: bool) -> None:
    """Longer code is not a divergence, under any policy."""
    v1, v2 = wrapped(inside, a, b), wrapped(inside, a, b, new, Confirm("sure?"))
    stop, journal = rounds_of(v1, 2)
    stop, journal = round_of(v2, journal, answers(stop), under(policy))
    assert messages(stop) == ["new"]
    stop, journal = round_of(v2, journal, answers(stop), under(policy))
    assert messages(stop) == ["sure?"]
    end, _ = round_of(v2, journal, answers(stop), under(policy))
    assert end == Returned(["re: a", "re: b", "re: new", True])


# ---- there and back -----------------------------------------------------------------


def test_v1_v2_v1() -> None:
    """v1→v2→v1: the answers given under v1 survive the visit to v2."""
    v1, v2 = wrapped(False, a, b, c), wrapped(False, new, a, b, c)
    stop, journal = rounds_of(v1, 3)
    stop, journal = round_of(v2, journal, answers(stop))
    assert messages(stop) == ["new"]
    end, _ = round_of(v1, journal, answers(stop))
    assert end == Returned(["re: a", "re: b", "re: c"])


def test_v1_v2_v1_with_a_late_answer() -> None:
    """v1→v2→v1: an answer to v1's first asking of c is not taken for the second."""
    v1, v2 = wrapped(False, a, b, c), wrapped(False, new, a, b, c)
    stop, journal = rounds_of(v1, 3)
    late = answers(stop)
    stop, journal = round_of(v2, journal)
    stop, journal = round_of(v1, journal, late)
    assert messages(stop) == ["c"]
    assert not set(late) & set(keys(stop))


@pytest.mark.parametrize("version", [1, 2])
def test_v1_v2_v1_with_a_version(version: int) -> None:
    """v1→v2→v1→v2 with `Version`: the first choice stays."""

    def v1() -> Flow[Any]:
        return [(yield from a), (yield from b)]

    def v2() -> Flow[Any]:
        found = [(yield from a)]
        if (yield from Version("new", default=1, latest=2)) == 2:
            found.append((yield from new))
        return [*found, (yield from b)]

    # Under v1, b is out already; under v2 the flow begins with v2's code.
    stop, journal = rounds_of(v1 if version == 1 else v2, 2)
    assert messages(stop) == (["b"] if version == 1 else ["new"])
    for handler in (v2, v2):
        stop, journal = round_of(handler, journal)
        assert journal.versions == {"new": version}
        assert messages(stop) == (["b"] if version == 1 else ["new"])
    stop, journal = round_of(v1, journal)
    assert messages(stop) == ["b"]
    stop, journal = round_of(v2, journal)
    assert journal.versions == {"new": version}
    assert messages(stop) == (["b"] if version == 1 else ["new"])


# ---- Version ------------------------------------------------------------------------


def plain() -> Flow[Any]:
    return [(yield from a), (yield from b)]


def versioned() -> Flow[Any]:
    found = [(yield from a)]
    if (yield from Version("new", default=0, latest=1)):
        found.append((yield from new))
    return [*found, (yield from b)]


@under_the_four_policies
def test_version_added(policy: Policy) -> None:
    """`Version` added: a flow that was past this point stays on the old path."""
    stop, journal = rounds_of(plain, 2)
    assert messages(stop) == ["b"]
    end, after = round_of(versioned, journal, answers(stop), under(policy))
    assert end == Returned(["re: a", "re: b"])
    assert after.versions == {"new": 0}


@under_the_four_policies
def test_version_added_before_the_flow_got_there(policy: Policy) -> None:
    """`Version` added before the flow got there: it takes the new path."""
    stop, journal = rounds_of(plain, 1)
    assert messages(stop) == ["a"]
    stop, after = round_of(versioned, journal, answers(stop), under(policy))
    assert messages(stop) == ["new"]
    assert after.versions == {"new": 1}


@under_the_four_policies
@pytest.mark.parametrize("passed", [False, True])
def test_version_dropped(policy: Policy, passed: bool) -> None:
    """`Version` added, then dropped with its old path: flows of the new path notice nothing."""

    def dropped() -> Flow[Any]:
        return [(yield from a), (yield from new), (yield from b)]

    stop, journal = rounds_of(versioned, 3 if passed else 2)
    end, journal = round_of(dropped, journal, answers(stop), under(policy))
    if not passed:
        assert messages(end) == ["b"]
        end, journal = round_of(dropped, journal, answers(end), under(policy))
    assert end == Returned(["re: a", "re: new", "re: b"])


@under_the_four_policies
def test_version_dropped_under_an_old_flow(policy: Policy) -> None:
    """`Version` dropped under a flow of the old path: what is out is reworded, no more."""

    def dropped() -> Flow[Any]:
        return [(yield from a), (yield from new), (yield from b)]

    stop, journal = rounds_of(plain, 2)
    stop, journal = round_of(versioned, journal)
    assert messages(stop) == ["b"]
    stop, journal = round_of(dropped, journal, answers(stop), under(policy))
    assert messages(stop) == ["new"]


def test_version_known_is_not_asked_of_the_code_again() -> None:
    """A version that was chosen stays, for every later value of `latest`."""

    def later() -> Flow[Any]:
        return (yield from Version("new", default=5, latest=6)), (yield from b)

    stop, journal = round_of(versioned)
    stop, journal = round_of(versioned, journal, answers(stop))
    assert journal.versions == {"new": 1}
    one = run(later, journal=journal)
    one.start()
    assert one.suspend().versions == {"new": 1}


def test_version_costs_no_entry_and_no_round() -> None:
    """Code without a `Version` ignores the table, so v2→v1 is not a divergence."""
    stop, journal = rounds_of(versioned, 1)

    def ahead() -> Flow[Any]:
        yield from Version("ahead", default=0, latest=1)
        return (yield from plain())

    stop, journal = round_of(ahead)
    assert journal.versions == {"ahead": 1}
    assert journal.entries == ()
    stop, journal = round_of(plain, journal, answers(stop), under("strict"))
    assert messages(stop) == ["b"]


# ---- the handler gone, or another one -----------------------------------------------


def second_life(title: str, copies: int) -> Flow[str]:
    answer = yield from Elicit(f"{copies} of {title}?", str)
    return f"{copies} {title} {answer}"


def first_life() -> Flow[str]:
    name = yield from Elicit("Which?", str)
    return (yield from Restart(second_life, name, 2))


@under_the_four_policies
def test_tool_gone(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler that a flow restarted as is missing: each policy fails in its own way."""
    stop, journal = rounds_of(first_life, 2)
    assert messages(stop) == ["2 of re: Which??"]
    monkeypatch.delitem(globals(), "second_life")
    with pytest.raises(DivergenceError) as info:
        round_of(first_life, journal, answers(stop), under(policy))
    assert info.value.verdict in (policy, "stop")
    assert (info.value.verdict == "park") == (policy == "park")
    assert info.value.report.cause == "gone"
    assert "second_life" in str(info.value)


@under_the_four_policies
@pytest.mark.parametrize("signature", ["fewer", "more", "other types"])
def test_signature_changed(
    policy: Policy, signature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature changed under recorded arguments: the same, and never a TypeError."""

    def fewer(title: str) -> Flow[str]:
        return (yield from Elicit(title, str))

    def more(title: str, copies: int, price: int) -> Flow[str]:
        return (yield from Elicit(title, str))

    def other_types(title: int, copies: int) -> Flow[str]:
        return (yield from Elicit(str(title), str))

    stop, journal = rounds_of(first_life, 2)
    edited = {"fewer": fewer, "more": more, "other types": other_types}[signature]
    monkeypatch.setitem(globals(), "second_life", edited)
    with pytest.raises(DivergenceError) as info:
        round_of(first_life, journal, answers(stop), under(policy))
    assert info.value.report.cause == "gone"
    assert (info.value.verdict == "park") == (policy == "park")


@under_the_four_policies
def test_signature_changed_compatibly(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter with a default added: the flow resumes."""

    def wider(title: str, copies: int, price: int = 5) -> Flow[str]:
        return f"{price} " + (yield from second_life_as_it_was(title, copies))

    second_life_as_it_was = second_life
    stop, journal = rounds_of(first_life, 2)
    monkeypatch.setitem(globals(), "second_life", wider)
    end, _ = round_of(first_life, journal, answers(stop), under(policy))
    assert end == Returned("5 2 re: Which? re: 2 of re: Which??")


def test_restart_edited_before_it() -> None:
    """Once restarted, the old generation's code may change as it likes."""

    def edited() -> Flow[str]:
        yield from new
        return (yield from first_life())

    stop, journal = rounds_of(first_life, 2)
    end, _ = round_of(edited, journal, answers(stop), under("strict"))
    assert end == Returned("2 re: Which? re: 2 of re: Which??")


# ---- formats ------------------------------------------------------------------------


def test_newer_format_reaching_an_older_server() -> None:
    """A newer format reaching an older server is refused: never taken for no progress."""
    _, journal = rounds_of(plain, 2)
    plain_text = json.loads(journal.dumps())
    with pytest.raises(JournalError, match="format"):
        Journal.loads(json.dumps({**plain_text, "format": 3}))


def test_newer_tag_reaching_an_older_server() -> None:
    """An entry with an unknown tag is refused: never skipped."""
    _, journal = rounds_of(plain, 2)
    text = journal.dumps().replace(b'"accepted"', b'"acknowledged"')
    with pytest.raises(JournalError, match="acknowledged"):
        Journal.loads(text)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"format":1}', "not JSON", '{"format":1,"format":1}'],
)
def test_no_format_at_all(text: str) -> None:
    """Text that is not a journal is refused by one error."""
    with pytest.raises(JournalError):
        Journal.loads(text)


# ---- branches come and go -----------------------------------------------------------


def gathered(*texts: str) -> Handler:
    def handler() -> Flow[Any]:
        found = yield from Gather.each([Elicit(text, str) for text in texts])
        return [*found, (yield from c)]

    return handler


@under_the_four_policies
def test_branch_added(policy: Policy) -> None:
    """A branch added while questions are out: it starts empty, and the others stay."""
    stop, journal = rounds_of(gathered("a", "b"), 1)
    partial = dict([next(iter(answers(stop).items()))])
    stop, journal = round_of(gathered("a", "b", "new"), journal, partial, under(policy))
    assert messages(stop) == ["b", "new"]


@under_the_four_policies
def test_branch_added_to_a_gather_that_has_ended(policy: Policy) -> None:
    """A branch added to a Gather that has ended: the flow was past it, so it diverges."""

    def v1() -> Flow[Any]:
        return (yield from gathered_then("a", "b"))

    stop, journal = rounds_of(v1, 3)
    assert messages(stop) == ["end"]

    def v2() -> Flow[Any]:
        return (yield from gathered_then("a", "b", "new"))

    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, answers(stop), under(policy))
        assert info.value.verdict == policy
        return
    asked: list[str] = []
    end = finish(v2, journal, stop, asked)
    assert end == Returned(["re: a", "re: b", "re: new", "re: c", "re: end"])
    assert asked[0] == "new"
    assert not {"a", "b", "c"} & set(asked)


def gathered_then(*texts: str) -> Flow[Any]:
    found = yield from gathered(*texts)()
    return [*found, (yield from Elicit("end", str))]


@under_the_four_policies
def test_branch_removed(policy: Policy) -> None:
    """A branch removed that had answers: a surplus recorded branch is a divergence."""
    stop, journal = rounds_of(gathered("a", "b"), 2)
    assert messages(stop) == ["c"]
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(gathered("a"), journal, answers(stop), under(policy))
        assert info.value.verdict == policy
        assert info.value.report.cause == "surplus"
        return
    asked: list[str] = []
    end = finish(gathered("a"), journal, stop, asked)
    assert end == Returned(["re: a", "re: c"])
    assert "a" not in asked


@under_the_four_policies
def test_branches_reordered(policy: Policy) -> None:
    """Branches reordered: answers follow their questions, or it is a divergence."""
    stop, journal = rounds_of(gathered("a", "b"), 2)
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(gathered("b", "a"), journal, answers(stop), under(policy))
        assert info.value.verdict == policy
        return
    asked: list[str] = []
    end = finish(gathered("b", "a"), journal, stop, asked)
    assert end == Returned(["re: b", "re: a", "re: c"])
    assert asked == []


@under_the_four_policies
def test_effect_put_inside_a_gather(policy: Policy) -> None:
    """An effect put inside a Gather: its answer follows it, or it is a divergence."""

    def v2() -> Flow[Any]:
        (found,) = yield from Gather(a)
        return [found, (yield from c)]

    stop, journal = rounds_of(wrapped(False, a, c), 2)
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(v2, journal, answers(stop), under(policy))
        assert info.value.verdict == policy
        return
    asked: list[str] = []
    assert finish(v2, journal, stop, asked) == Returned(["re: a", "re: c"])
    assert "a" not in asked


# ---- tasks --------------------------------------------------------------------------


def test_task_parks_on_every_divergence(performed: list[int]) -> None:
    """In a task every divergence parks: no more writes, so that a rollback may save it."""
    v1, v2 = wrapped(False, a, pay, c), wrapped(False, new, a, pay, c)
    stop, journal = rounds_of(v1, 2)
    one = run(v2, journal=journal, rules=TASK)
    with pytest.raises(DivergenceError) as info:
        one.start(answers(stop))
    assert info.value.verdict == "park"
    # The rollback.
    one = run(v1, journal=journal, rules=TASK)
    end = advance(one, one.start(answers(stop)))
    assert end == Returned(["re: a", "charged 10", "re: c"])
    assert performed == [10]


def test_report_is_complete() -> None:
    """The report: handler, declared version, round, index, both keys, text, line, causes."""

    def v2() -> Flow[Any]:
        yield from a
        return (yield from Confirm("Is it b?"))

    _, journal = rounds_of(wrapped(False, a, b, c), 3)
    one = run(
        v2,
        journal=journal,
        rules=attrs.evolve(RETRY, policy="strict"),
        version="2.1",
        name="shop:order",
    )
    with pytest.raises(DivergenceError) as info:
        one.start()
    report = info.value.report
    assert report.handler == "shop:order"
    assert report.version == "2.1"
    assert report.round == 3
    assert report.place == "entry 1"
    assert report.recorded == "elicit-2 (accepted)"
    assert report.current == "confirm-1"
    assert report.text == "Is it b?"
    assert report.where == f"{__file__}:{v2.__code__.co_firstlineno + 2}"
    for field in ("shop:order", "2.1", "round 3", "elicit-2", "confirm-1", "Is it b?"):
        assert field in str(info.value)
    assert "Usual causes" in str(info.value)


def test_salvaged_step_that_failed_is_performed_again() -> None:
    """A step in the same flow has changed arguments."""

    def tolerant() -> Flow[str]:
        try:
            return (yield from look(1))
        except StepFailed:
            return "failed"

    def handler(amount: int) -> Flow[Any]:
        results = yield from Gather(tolerant(), look(amount))
        yield from a
        return results

    one = run(handler, 2)
    stop = one.start()
    assert isinstance(stop, Perform)
    first, second = (want.key for want in stop.wants)
    one.performed({first: Failure(JournalError("down")), second: Done("looked 2")})
    again = run(handler, 3, journal=one.suspend())
    assert isinstance(again.start(), Perform)
    stop = again.performed({first: Done("looked 1"), second: Done("looked 3")})
    assert isinstance(stop, Asked)
    stop = again.answered({"elicit-1": say("a")})
    assert stop == Returned(("looked 1", "looked 3"))


def test_report_names_the_last_entry_that_lies_beyond() -> None:
    """The entry is the last of the first branch with one; the place, the first new branch."""

    def before() -> Flow[Any]:
        return (yield from Gather(flow_of(a, b)(), flow_of(a, c, b)()))

    def after() -> Flow[Any]:
        return (yield from Gather(flow_of(a, b)(), flow_of(a, c, b)(), c, b))

    _, journal = rounds_of(before, 4)
    one = run(after, journal=journal, rules=attrs.evolve(RETRY, policy="strict"))
    with pytest.raises(DivergenceError) as info:
        one.start()
    report = info.value.report
    assert (report.cause, report.recorded) == ("left over", "elicit-2 (accepted)")
    assert report.place == "branch gather-1/2, entry 0"


def test_salvage_reports_what_it_dropped() -> None:
    """A salvage leaves its report with the run, for observers."""
    _, journal = rounds_of(wrapped(False, a, b, c), 3)
    one = run(wrapped(False, a, c), journal=journal)
    one.start()
    (report,) = one.salvaged
    assert report.recorded == "elicit-2 (accepted)"
    one.suspend()
