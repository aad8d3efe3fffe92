from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Checkpoint,
    Confirm,
    Declined,
    Detach,
    Elicit,
    Flow,
    Gather,
    ToolError,
    Within,
    step,
)
from effectmcp.engine import Done, Journal, Policy, Run
from effectmcp.testing import Transcript, conversation
from effectmcp.testing.chance import FLOW_ID
from effectmcp.testing.conversations import WAYS
from effectmcp.testing.dry_replay import Arrival, arrive
from effectmcp.testing.subjects import subject_of

from .test_conversations import HEALTHY, Obliging, had, nothing_unraisable


@step
def pay(amount: int) -> str:
    raise OSError("no test should get here")


def order(title: str) -> Flow[str]:
    name = yield from Elicit(f"Who wants {title}?", str)
    receipt = yield from pay(len(name))
    if (yield from Confirm(f"{receipt}?")):
        return f"{title} for {name}"
    raise ToolError("not ordered")


def arrival(
    handler: Callable[..., Any],
    journal: Journal,
    *,
    lacks: tuple[str, ...] = (),
    policy: Policy = "strict",
    **arguments: Any,
) -> Arrival:
    return arrive(
        subject_of(handler),
        arguments,
        journal,
        flow_id=FLOW_ID,
        lacks=lacks,
        policy=policy,
    )


def paid(**answers: Any) -> Transcript:
    return had(order, WAYS[0], Obliging(answers), title="Dune")


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


# ---- the law ------------------------------------------------------------------------

ENDS = {"returned": "returns", "raised": "raises"}


def had_by(handler: Any) -> st.SearchStrategy[tuple[Any, Transcript]]:
    return st.tuples(st.just(handler), conversation(handler))


@given(st.sampled_from(HEALTHY).flatmap(had_by))
def test_a_journal_leads_to_just_the_questions_that_were_out(
    pair: tuple[Any, Transcript],
) -> None:
    """The last journal leads to just the end; equal twice, and nothing is performed."""
    handler, transcript = pair
    for each in transcript.rounds:
        if each.journal is None:
            continue
        here = arrive(
            subject_of(handler),
            transcript.arguments,
            each.journal,
            flow_id=transcript.flow_id,
            lacks=transcript.lacks,
        )
        assert here.is_there
        if each is transcript.rounds[-1]:
            assert here.how == ENDS[transcript.ending.how]
        elif each.asked:  # a checkpoint is passed when the client comes back
            assert here.how == "asks"
            assert list(here.what) == [one.what for one in each.asked]
            assert len(here.marks) == len(each.asked)
        assert here.salvaged == ()
        assert Arrival.from_json(here.to_json()) == here


# ---- where it comes to --------------------------------------------------------------


def test_it_asks() -> None:
    here = arrival(order, paid().journals[0], title="Dune")
    assert str(here) == "asks Elicit(message='Who wants Dune?', form=str)"
    assert here.where == line(order, 1)
    (mark,) = here.marks
    assert mark.startswith("elicit-1 ")


def test_it_asks_with_a_deadline() -> None:
    """The time of the test plays no part: the question was open in the journal."""

    def soon() -> Flow[object]:
        yield from Detach()
        return (yield from Within(60, Elicit("Who?", str)))

    run = Run(soon, flow_id=FLOW_ID, clock=lambda: 1000.0)
    run.start()
    run.performed({"detach-1": Done(False)})
    here = arrival(soon, run.suspend())
    assert (here.how, here.what) == ("asks", ("Elicit(message='Who?', form=str)",))


def test_it_asks_nothing() -> None:
    def rests() -> Flow[str]:
        yield from Checkpoint()
        return "."

    here = arrival(rests, Journal())
    assert (here.how, here.what, here.marks) == ("asks", ("nothing",), ())
    assert here.where == line(rests, 1)


def test_it_performs() -> None:
    """A journal of a worker that died: nothing is performed to find out."""
    here = arrival(order, before_paying(), title="Dune")
    assert (here.how, here.what) == ("performs", ("pay(1)",))
    assert here.where == line(order, 2)


def before_paying() -> Journal:
    _, second, _ = paid().journals
    return attrs.evolve(second, entries=second.entries[:1], places={})


def test_it_returns() -> None:
    here = arrival(order, paid().journals[-1], title="Dune")
    text = '{"content": [{"text": "Dune for a", "type": "text"}]}'
    assert (here.how, here.what, here.where) == ("returns", (text,), None)


def test_it_returns_what_it_did_not_promise() -> None:
    def breaks() -> Flow[int]:
        yield from Confirm("Sure?")
        return "text"  # type: ignore[return-value]  # as it should not

    def keeps() -> Flow[Any]:
        yield from Confirm("Sure?")
        return "text"

    here = arrival(breaks, had(keeps).journals[-1])
    assert here.how == "returns"
    assert "the result does not fit its type" in here.what[0]


def test_it_raises() -> None:
    here = arrival(order, paid(**{"confirm-1": Declined()}).journals[-1], title="Dune")
    assert (here.how, here.what) == ("raises", ("ToolError: not ordered",))


def test_it_diverges() -> None:
    here = arrival(order, paid().journals[1], title="Emma")
    assert here.how == "diverges"
    assert not here.is_there
    assert here.where == line(order, 1)
    assert "no longer follows its journal" in here.what[0]


def test_a_client_that_lacks_something_is_another_one() -> None:
    here = arrival(order, Journal(), lacks=("Elicit",), title="Dune")
    assert here.how == "raises"
    assert here.what[0].startswith("Unsupported: The client does not support Elicit.")


def test_many_rounds_do_not_exceed_a_limit() -> None:
    def asks() -> Flow[int]:
        for n in range(20):
            yield from Elicit(f"{n}?", str)
        return 20

    journal = had(asks, WAYS[1]).journals[12]
    assert arrival(asks, journal).what == ("Elicit(message='12?', form=str)",)


# ---- of an edited handler -----------------------------------------------------------


def edited(title: str) -> Flow[str]:
    name = yield from Elicit(f"Who would like {title}?", str)
    yield from Confirm(f"{name}?")
    return name


def asks_two(first: str, second: str) -> Flow[tuple[str, str]]:
    return (yield from Gather(Elicit(first, str), Elicit(second, str)))


def both(title: str) -> Flow[str]:
    one, two = yield from asks_two(f"Who wants {title}?", "When?")
    return one + two


def test_what_fits_is_salvaged() -> None:
    journal = had(order, title="Dune").journals[0]
    kept = attrs.evolve(
        had(asking_first, title="Dune").journals[1], places=journal.places
    )
    here = arrival(both, kept, policy="salvage", title="Dune")
    assert here.how == "asks"
    assert here.what == ("Elicit(message='When?', form=str)",)
    assert len(here.salvaged) == 1
    assert arrival(both, kept, title="Dune").how == "diverges"


def asking_first(title: str) -> Flow[str]:
    name = yield from Elicit(f"Who wants {title}?", str)
    return name + (yield from Elicit("And?", str))


@pytest.mark.parametrize("policy", ["salvage", "stop", "park", "strict"])
def test_a_payment_is_never_dropped(policy: Policy) -> None:
    here = arrival(edited, paid().journals[1], policy=policy, title="Dune")
    assert here.how == "diverges"
    assert here.where == line(edited, 1)


def test_two_arrivals_are_the_same_where_only_lines_moved() -> None:
    one = Arrival("asks", ("A?",), ("elicit-1 00",), "a.py:1")
    assert one.is_same(attrs.evolve(one, where="a.py:2", salvaged=("that",)))
    for other in (
        attrs.evolve(one, how="performs"),
        attrs.evolve(one, what=("B?",)),
        attrs.evolve(one, marks=("elicit-1 01",)),
    ):
        assert not one.is_same(other)
    assert str(attrs.evolve(one, what=("A?", "B?"))) == "asks A? and B?"


# ---- no generator is left -----------------------------------------------------------


def test_generators_are_ended() -> None:
    class Held:
        pass

    alive: list[weakref.ref[Held]] = []
    ended: list[bool] = []

    def holds() -> Flow[str]:
        held = Held()
        alive.append(weakref.ref(held))
        try:
            yield from pay(3)
            return "."
        finally:
            ended.append(True)
            yield from pay(4)

    with nothing_unraisable():
        assert arrival(holds, Journal()).how == "performs"
        assert ended == [True]
        gc.collect()
        assert [one() for one in alive] == [None]
