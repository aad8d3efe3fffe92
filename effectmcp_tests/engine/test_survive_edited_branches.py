"""Hard cases that the engine must survive: edits within and beside branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    DivergenceError,
    Elicit,
    Flow,
    Gather,
    Now,
    Step,
    Version,
    step,
)
from effectmcp.engine import (
    Asked,
    Policy,
    Returned,
)

from ..helpers import (
    UNCAPPED,
    answers_to,
    keys,
    messages,
    yes,
)
from .rounds import do, performed, round_of, say

POLICIES: tuple[Policy, ...] = ("salvage", "stop", "park", "strict")


under_the_four_policies = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing performed."""
    performed.clear()


def stopped(policy: Policy) -> str:
    """The verdict on a divergence that would drop a performed step."""
    return "stop" if policy == "salvage" else policy


def first_branch(edited: bool) -> Flow[str]:
    if edited:
        yield from Step(do, "step X")
    return (yield from Elicit("ask 1", str))


def second_branch() -> Flow[str]:
    yield from Now()
    yield from Step(do, "step 2")
    return (yield from Elicit("ask 3", str))


def two_branches() -> Flow[Any]:
    return (yield from Gather(first_branch(False), second_branch()))


def two_branches_edited() -> Flow[Any]:
    return (yield from Gather(first_branch(True), second_branch()))


@under_the_four_policies
@pytest.mark.parametrize("said", [(), ("ask 1",), ("ask 3",), ("ask 1", "ask 3")])
def test_step_put_at_the_front_of_branch_0(
    policy: Policy, said: tuple[str, ...]
) -> None:
    """`Gather([ask1], [now, step2, ask3])` with a step put at the front of branch 0.

    The other branch holds a performed step beyond the wave: a hard stop, before the new
    step is performed, for every choice of answered questions.
    """
    stop, journal = round_of(two_branches)
    assert messages(stop) == ["ask 1", "ask 3"]
    answers = say(stop, *said) if said else {}
    if len(said) == 1:
        stop, journal = round_of(two_branches, journal, answers)
        answers = {}
    with pytest.raises(DivergenceError) as info:
        round_of(
            two_branches_edited,
            journal,
            answers,
            rules=attrs.evolve(UNCAPPED, policy=policy),
        )
    assert info.value.verdict == stopped(policy)
    assert performed == ["step 2"]


@step(replayable=True)
def look(what: str) -> str:
    return do(what)


def test_step_put_at_the_front_of_branch_0_over_a_replayable_one() -> None:
    """With a replayable step 2, the flow is salvaged and its answers are kept."""

    def second() -> Flow[str]:
        yield from Now()
        yield from look("step 2")
        return (yield from Elicit("ask 3", str))

    stop, journal = round_of(lambda: (yield from Gather(first_branch(False), second())))
    end, _ = round_of(
        lambda: (yield from Gather(first_branch(True), second())), journal, say(stop)
    )
    assert end == Returned(("re: ask 1", "re: ask 3"))
    assert sorted(performed) == ["step 2", "step 2", "step X"]


@under_the_four_policies
@pytest.mark.parametrize("answered", [False, True])
def test_empty_gather_deleted(policy: Policy, answered: bool) -> None:
    """`Gather(); Gather([step, ask])` with the first deleted.

    The empty Gather's entry would match, and the step would be performed again: but the
    flow holds an entry beyond it.
    """

    def branch() -> Flow[str]:
        yield from Step(do, "step")
        return (yield from Elicit("ask", str))

    def v1() -> Flow[Any]:
        yield from Gather()
        return (yield from Gather(branch()))

    def v2() -> Flow[Any]:
        return (yield from Gather(branch()))

    stop, journal = round_of(v1)
    assert messages(stop) == ["ask"]
    with pytest.raises(DivergenceError) as info:
        round_of(
            v2,
            journal,
            say(stop) if answered else {},
            rules=attrs.evolve(UNCAPPED, policy=policy),
        )
    assert info.value.verdict == stopped(policy)
    assert performed == ["step"]


@pytest.mark.parametrize("policy", ["salvage", "strict"])
def test_empty_gather_added(policy: Policy) -> None:
    """The other way round: an empty Gather put before diverges too, and performs nothing."""

    def branch() -> Flow[str]:
        yield from Step(do, "step")
        return (yield from Elicit("ask", str))

    def v1() -> Flow[Any]:
        return (yield from Gather(branch()))

    def v2() -> Flow[Any]:
        yield from Gather()
        return (yield from Gather(branch()))

    stop, journal = round_of(v1)
    with pytest.raises(DivergenceError) as info:
        round_of(v2, journal, say(stop), rules=attrs.evolve(UNCAPPED, policy=policy))
    assert info.value.verdict == stopped(policy)
    assert performed == ["step"]


def short(version: bool) -> Flow[Any]:
    found = [(yield from Elicit("a", str))]
    if version and (yield from Version("fee", default=0, latest=1)):
        found.append((yield from Elicit("fee?", str)))
    return found


def long() -> Flow[Any]:
    return [(yield from Elicit("b", str)), (yield from Elicit("c", str))]


@under_the_four_policies
@pytest.mark.parametrize("answered", [False, True])
def test_branch_finished_under_v1_beside_a_version(
    policy: Policy, answered: bool
) -> None:
    """A branch finished under v1 beside a `Version`: it is not asked for v2's fee afterwards."""

    def v1() -> Flow[Any]:
        return (yield from Gather(short(False), long()))

    def v2() -> Flow[Any]:
        return (yield from Gather(short(True), long()))

    stop, journal = round_of(v1)
    stop, journal = round_of(v1, journal, say(stop))
    assert messages(stop) == ["c"]
    rules = attrs.evolve(UNCAPPED, policy=policy)
    answers = say(stop)
    if not answered:
        stop, journal = round_of(v2, journal, rules=rules)
        assert messages(stop) == ["c"]
        assert journal.versions == {"fee": 0}
    end, after = round_of(v2, journal, answers, rules=rules)
    assert end == Returned((["re: a"], ["re: b", "re: c"]))
    assert after.versions == {"fee": 0}


def test_branch_that_had_not_finished_takes_the_latest() -> None:
    """Without undelivered entries in any branch, the version is `latest`."""

    def v2() -> Flow[Any]:
        return (yield from Gather(short(True), long()))

    stop, journal = round_of(v2)
    stop, journal = round_of(v2, journal, say(stop))
    assert messages(stop) == ["fee?", "c"]
    assert journal.versions == {"fee": 1}


ITEMS = ["x", "y", "z"]


@under_the_four_policies
def test_gather_each_over_reordered_items_with_equal_messages(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Gather.each` over reordered items with equal messages.

    The engine cannot see that they were reordered: each position keeps its answer. If
    an author uses a message or a key that names the item, answers follow the item.
    """
    rules = attrs.evolve(UNCAPPED, policy=policy)

    def plain() -> Flow[Any]:
        found = yield from Gather.each([Elicit("How many?", str) for _ in ITEMS])
        yield from Elicit("Sure?", str)
        return dict(zip(ITEMS, found, strict=True))

    stop, journal = round_of(plain, rules=rules)
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), ITEMS, strict=True)
    }
    stop, journal = round_of(plain, journal, said, rules=rules)
    monkeypatch.setattr(f"{__name__}.ITEMS", ["z", "x", "y"])
    end, _ = round_of(plain, journal, say(stop), rules=rules)
    assert end == Returned({"z": "x", "x": "y", "y": "z"})


@under_the_four_policies
def test_gather_each_over_reordered_items_with_equal_messages_and_keys(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `key=`, answers follow their items, or it is a divergence."""
    rules = attrs.evolve(UNCAPPED, policy=policy)

    def keyed() -> Flow[Any]:
        found = yield from Gather.each(
            [Elicit("How many?", str, key=f"many-{item}") for item in ITEMS]
        )
        yield from Elicit("Sure?", str)
        return dict(zip(ITEMS, found, strict=True))

    stop, journal = round_of(keyed, rules=rules)
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), ITEMS, strict=True)
    }
    stop, journal = round_of(keyed, journal, said, rules=rules)
    monkeypatch.setattr(f"{__name__}.ITEMS", ["z", "x", "y"])
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(keyed, journal, say(stop), rules=rules)
        assert info.value.verdict == policy
        return
    end, _ = round_of(keyed, journal, say(stop), rules=rules)
    assert end == Returned({"z": "z", "x": "x", "y": "y"})


def test_gather_each_over_reordered_items_with_equal_messages_salvaged() -> None:
    """Dropped by an edit elsewhere, equal questions are ambiguous: asked again."""

    def handler(edited: bool) -> Callable[[], Flow[Any]]:
        def inner() -> Flow[Any]:
            if edited:
                yield from Elicit("new", str)
            found = yield from Gather.each([Elicit("How many?", str) for _ in ITEMS])
            yield from Elicit("Sure?", str)
            return found

        return inner

    stop, journal = round_of(handler(False))
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), ITEMS, strict=True)
    }
    stop, journal = round_of(handler(False), journal, said)
    stop, journal = round_of(handler(True), journal)
    assert messages(stop) == ["new"]
    stop, journal = round_of(handler(True), journal, say(stop))
    assert messages(stop) == ["How many?"] * 3
    stop, journal = round_of(handler(True), journal, say(stop))
    assert messages(stop) == ["Sure?"]
    assert not journal.pool


def test_answers_to_helpers() -> None:
    """The obliging client answers every question of a round."""
    stop, _ = round_of(two_branches)
    assert isinstance(stop, Asked)
    assert set(answers_to(stop, yes)) == set(keys(stop))
