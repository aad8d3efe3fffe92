from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    Checkpoint,
    ClientSupports,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    Flow,
    Gather,
    Outcome,
    Refused,
    Restart,
    Sample,
    ToolError,
    step,
)
from effectmcp.compat import awaits_effects
from effectmcp.testing import Transcript, conversation
from effectmcp.testing.conversations import WAYS
from effectmcp.testing.delays import LateBranch, late_branches
from effectmcp.testing.subjects import subject_of

from .test_conversations import HEALTHY, Obliging, had, nothing_unraisable

LIVE = WAYS[1]

Shared = dict[str, str]


@step
def reserve(what: str) -> str:
    raise OSError("no test should get here")


def late(
    handler: Callable[..., Any], *, lacks: frozenset[str] = frozenset(), **answers: Any
) -> LateBranch | None:
    partner = Obliging(answers)
    partner.lacks = lacks
    return late_branches(subject_of(handler), had(handler, LIVE, partner))


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


# ---- branches -----------------------------------------------------------------------


def tells(shared: Shared, questions: int = 1) -> Flow[None]:
    for n in range(questions):
        shared["name"] = yield from Elicit(f"Name {n}?", str)


def looks(shared: Shared, questions: int = 1) -> Flow[str]:
    for n in range(questions):
        yield from Elicit(f"Dish {n}?", str)
    who = shared.get("name", "nobody")
    return (yield from Elicit(f"And {who}?", str))


def looks_and_reserves(shared: Shared) -> Flow[str]:
    yield from Elicit("Dish?", str)
    return (yield from reserve(shared.get("name", "nobody")))


def asks(what: str, questions: int) -> Flow[str]:
    for n in range(questions):
        yield from Elicit(f"{what} {n}?", str)
    return what


def fails(questions: int) -> Flow[str]:
    yield from asks("first", questions)
    raise ToolError(f"after {questions}")


# ---- nothing to find ----------------------------------------------------------------


@given(
    st.sampled_from(HEALTHY).flatmap(
        lambda one: st.tuples(st.just(one), conversation(one))
    )
)
def test_healthy_handlers_do_not_depend_on_late_branches(
    pair: tuple[Any, Transcript],
) -> None:
    handler, transcript = pair
    assert late_branches(subject_of(handler), transcript) is None


def shares_a_list() -> Flow[str]:
    shared: Shared = {}
    yield from Gather(tells(shared, 2), asks("dish", 3))
    return (yield from Elicit(f"{shared}?", str))


def without_branches() -> Flow[str]:
    return (yield from asks("all", 3))


def of_effects() -> Flow[Any]:
    return (
        yield from Gather(
            Elicit("Who?", str),
            Outcome(Confirm("Sure?")),
            reserve("a"),
            Gather(Elicit("Where?", str), asks("when", 2)),
        )
    )


def of_each() -> Flow[Any]:
    branches: list[Any] = [asks("a", 2), Elicit("B?", str), asks("c", 1)]
    one = yield from Gather.each(branches)
    branches = [Elicit(f"{type(one)}?", str), asks("d", 1)]
    return (yield from Gather.each(branches))


def of_tuples() -> Flow[Any]:
    one = yield from Gather(asks("a", 2), asks("b", 1))
    return (yield from Gather(Elicit(f"{type(one)} {one}?", str), asks("c", 1)))


def of_nothing() -> Flow[Any]:
    yield from Gather()
    yield from Gather.each([])
    return (yield from Gather(asks("a", 1), asks("b", 0)))


def that_fail() -> Flow[str]:
    try:
        yield from Gather(asks("a", 2), fails(1), fails(3))
    except ToolError as error:
        yield from Confirm(f"{error}?")
    return "."


def that_pause() -> Flow[Any]:
    """Branches that have a checkpoint and look at the client, as the delay does."""

    def pauses() -> Flow[str]:
        yield from Checkpoint()
        can_write = yield from ClientSupports(Sample)
        return (yield from Elicit(f"{can_write}?", str))

    return (yield from Gather(pauses(), pauses()))


def that_begins_again() -> Flow[Any]:
    yield from Gather(asks("a", 2), asks("b", 1))
    return (yield from Restart(of_each))


def that_is_plain() -> Flow[Any]:
    """Hands a flow on, and yields nothing itself."""
    return of_tuples()


class OfAnObject:
    def __call__(self) -> Flow[Any]:
        return (yield from of_tuples())


def deep(depth: int) -> Flow[Any]:
    if depth:
        return (yield from Gather(deep(depth - 1), asks(f"at {depth}", 2)))
    return (yield from Elicit("Down here?", str))


def nested() -> Flow[Any]:
    return (yield from deep(3))


@pytest.mark.parametrize(
    "handler",
    [
        *(shares_a_list, without_branches, of_effects, of_each, of_tuples, of_nothing),
        that_fail,
        *(that_pause, that_begins_again, that_is_plain, nested),
        *(OfAnObject(), functools.partial(of_tuples)),
    ],
)
def test_branches_that_do_not_wait_for_others(handler: Callable[..., Any]) -> None:
    assert late(handler) is None


@awaits_effects
async def awaits_branches() -> str:
    async def ask(what: str, questions: int) -> str:
        for n in range(questions):
            await Elicit(f"{what} {n}?", str)
        return what

    asked: Any = Gather  # coroutines are branches too, but not in the types
    one, two = await asked(ask("a", 3), ask("b", 1))
    return f"{one} {two}"


def test_coroutines_are_branches_too() -> None:
    with nothing_unraisable():
        assert late(awaits_branches) is None


def test_coroutines_with_one_refused() -> None:
    """The conversation breaks off, and leaves no coroutine running."""
    refused: dict[str, Any] = {"gather-1/1/elicit-1": Declined()}
    with nothing_unraisable():
        assert late(awaits_branches, **refused) is None


# ---- something to find --------------------------------------------------------------


def looks_at_an_earlier_one() -> Flow[str]:
    shared: Shared = {}
    _, dish = yield from Gather(tells(shared), looks(shared))
    return dish


def test_a_branch_that_looks_at_an_earlier_one() -> None:
    assert late(looks_at_an_earlier_one) == LateBranch(
        "Elicit(message='And a?', form=str)",
        "Elicit(message='And nobody?', form=str)",
        line(looks, 4),
    )


def asks_if_nobody_told(shared: Shared) -> Flow[None]:
    yield from Elicit("Dish?", str)
    if "name" not in shared:
        yield from Elicit("Name?", str)


def test_a_branch_that_asks_for_more() -> None:
    def handler() -> Flow[str]:
        shared: Shared = {}
        yield from Gather(tells(shared), asks_if_nobody_told(shared))
        return "."

    assert late(handler) == LateBranch(
        "no more than Elicit(message='Dish?', form=str)",
        "Elicit(message='Name?', form=str)",
        line(asks_if_nobody_told, 1),
    )


def test_a_result_in_the_order_of_branches_that_end() -> None:
    def adds(name: str, found: list[str]) -> Flow[None]:
        yield from Elicit(f"{name}?", str)
        found.append(name)

    def handler() -> Flow[str]:
        found: list[str] = []
        yield from Gather(adds("a", found), adds("b", found))
        return f"{found}"

    found = late(handler)
    assert found is not None
    assert ("['a', 'b']" in found.first, "['b', 'a']" in found.second) == (True, True)
    assert found.where is None


def test_a_branch_that_looks_at_a_later_one() -> None:
    def handler() -> Flow[str]:
        shared: Shared = {}
        dish, _ = yield from Gather(looks(shared), tells(shared))
        return dish

    found = late(handler)
    assert found is not None
    assert found.where == line(looks, 4)


def test_a_step_that_depends_on_another_branch() -> None:
    def handler() -> Flow[Any]:
        shared: Shared = {}
        return (yield from Gather(tells(shared), looks_and_reserves(shared)))

    found = late(handler)
    assert found == LateBranch(
        "reserve('a')", "reserve('nobody')", line(looks_and_reserves, 2)
    )


def test_in_a_list_of_branches() -> None:
    def handler() -> Flow[Any]:
        shared: Shared = {}
        return (yield from Gather.each([tells(shared), looks(shared)]))

    assert late(handler) is not None


def test_in_branches_of_branches() -> None:
    def inner(shared: Shared) -> Flow[Any]:
        return (yield from Gather(tells(shared), looks(shared)))

    def handler() -> Flow[Any]:
        shared: Shared = {}
        return (yield from Gather(inner(shared), asks("else", 1)))

    found = late(handler)
    assert found is not None
    assert found.where == line(looks, 4)


def test_across_branches_of_branches() -> None:
    def inner(shared: Shared) -> Flow[Any]:
        return (yield from Gather(looks(shared), asks("else", 1)))

    def handler() -> Flow[Any]:
        shared: Shared = {}
        return (yield from Gather(tells(shared), inner(shared)))

    assert late(handler) is not None


def test_in_a_coroutine() -> None:
    asked: Any = Gather

    @awaits_effects
    async def waits() -> str:
        shared: Shared = {}

        async def first() -> None:
            shared["name"] = await Elicit("Name?", str)

        async def second() -> str:
            await Elicit("Dish?", str)
            return await Elicit(f"And {shared.get('name')}?", str)

        _, dish = await asked(first(), second())
        return str(dish)

    assert late(waits) is not None


def test_only_a_few_branches_are_delayed() -> None:
    """One after the other, and each costs a conversation."""
    runs: list[int] = []

    def handler() -> Flow[Any]:
        runs.append(1)
        return (yield from Gather.each(asks(f"{n}", 1) for n in range(9)))

    subject = subject_of(handler)
    transcript = had(handler, LIVE)
    runs.clear()
    assert late_branches(subject, transcript) is None
    assert len(runs) == 3


def test_a_conversation_that_breaks_off_is_compared_so_far() -> None:
    """If a branch comes late, another one asks a question without a known answer."""

    def wonders(shared: Shared) -> Flow[str]:
        yield from Elicit("Dish?", str)
        who = shared.get("name", "nobody")
        dish = yield from Elicit(f"And {who}?", str)
        return dish if "name" in shared and who != "nobody" else (yield from why())

    def why() -> Flow[str]:
        return (yield from Elicit("Why nobody?", str, key="why"))

    def handler() -> Flow[Any]:
        shared: Shared = {}
        return (yield from Gather(tells(shared), wonders(shared)))

    found = late(handler)
    assert found is not None
    assert found.second == "Elicit(message='And nobody?', form=str)"


def test_questions_after_branches_that_failed() -> None:
    """Two branches are refused, each in its way, in either order."""

    def handler() -> Flow[Any]:
        try:
            return (yield from Gather(Elicit("A?", str), Elicit("B?", str)))
        except Refused as refused:
            why = f"{type(refused).__name__}: what else?"
            return (yield from Gather(Elicit(why, str), Elicit("And?", str)))

    refused: dict[str, Any] = {
        "gather-1/0/elicit-1": Declined(),
        "gather-1/1/elicit-1": Dismissed(),
    }
    assert late(handler, **refused) is None


def test_the_function_keeps_its_name() -> None:
    """`Restart` finds a handler by its name, and reports tell it."""

    def handler() -> Flow[Any]:
        one, _ = yield from Gather(asks("a", 1), asks("b", 1))
        return one if one else (yield from Restart(handler))

    transcript = had(handler, LIVE)
    assert late_branches(subject_of(handler), transcript) is None
    changed = attrs.evolve(
        transcript.rounds[0].asked[0], answer=Accepted({"value": "other"})
    )
    first = attrs.evolve(
        transcript.rounds[0], asked=(changed, *transcript.rounds[0].asked[1:])
    )
    rounds = (first, *transcript.rounds[1:])
    assert (
        late_branches(subject_of(handler), attrs.evolve(transcript, rounds=rounds))
        is None
    )


def test_a_branch_that_asks_more_when_it_is_late() -> None:
    def tells(shared: Any) -> Flow[None]:
        shared["name"] = yield from Elicit("Name?", str)
        shared["done"] = yield from Elicit("Done?", str)

    def looks(shared: Any) -> Flow[None]:
        yield from Elicit("First?", str)
        if "done" in shared:
            yield from Elicit("More?", str)

    def handler() -> Flow[str]:
        shared: dict[str, str] = {}
        yield from Gather(tells(shared), looks(shared))
        return "done"

    late = late_branches(subject_of(handler), had(handler))
    assert late is not None
    assert late.first.startswith("no more than")
    assert "More?" in late.second
