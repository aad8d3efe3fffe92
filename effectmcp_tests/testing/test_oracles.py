"""Conversations that the oracles examine, and their findings."""

from __future__ import annotations

import asyncio
import decimal
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from effectmcp import Confirm, Elicit, Flow, Gather
from effectmcp.engine import Done, Failure, Journal, Want
from effectmcp.testing import Transcript
from effectmcp.testing.chance import FLOW_ID
from effectmcp.testing.dry_replay import Arrival, ArrivalElsewhere, WorkerError, arrive
from effectmcp.testing.endings import ADDRESS
from effectmcp.testing.endless_loops import EndlessLoops
from effectmcp.testing.findings import BareFinding
from effectmcp.testing.leaked_state import StateChange
from effectmcp.testing.oracles import Case, asked
from effectmcp.testing.performing import Changed, Performer
from effectmcp.testing.subjects import subject_of
from effectmcp.testing.transcripts import Ending

from .test_conversations import ARGUMENTS, HEALTHY, Obliging, had
from .test_delays import looks_at_an_earlier_one
from .test_endless_loops import asks_until_accepted
from .test_idempotency_keys import World, books_by, look, pays_twice
from .test_performing import fills_a_cart, fills_a_cart_with_results


def pays(title: str = "Dune") -> Flow[str]:
    name = yield from Elicit("Who?", str)
    one = yield from look(title)
    return f"{name} {one} {yield from look(name)}"


class Shop(Obliging):
    """A partner who performs steps."""

    def __init__(self, performer: Performer) -> None:
        super().__init__()
        self._performer = performer

    def perform(self, key: str, want: Want) -> Done | Failure:
        return self._performer.outcome(want, asyncio.run) or super().perform(key, want)


class Others:
    """Other processes, and where they come to: each time at the same."""

    def __init__(self, there: Arrival | None, problem: str = "") -> None:
        self._there = there
        self._problem = problem

    def arrivals(self, transcript: Transcript) -> list[list[ArrivalElsewhere]]:
        if self._problem:
            raise WorkerError(self._problem)
        there = [] if self._there is None else [ArrivalElsewhere(self._there, "TZ=UTC")]
        return [there for _ in transcript.journals]


def case_of(
    handler: Callable[..., Any],
    partner: Any = None,
    *,
    transcript: Transcript | None = None,
    workers: Any = None,
    performer: Performer | None = None,
    **options: Any,
) -> Case:
    arguments: Any = ARGUMENTS.get(handler, {})
    given: dict[str, Any] = {
        "changed": {},
        "returned_at": None,
        "endless_loops": EndlessLoops(),
        "outlived": {},
    }
    return Case(
        subject_of(handler),
        transcript or had(handler, partner=partner or World("a"), **arguments),
        workers,
        performer or Performer(False),
        **{**given, **options},
    )


def line(function: Callable[..., Any], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


# ---- nothing to find ----------------------------------------------------------------


@pytest.mark.parametrize("handler", HEALTHY, ids=lambda one: one.__name__)
def test_a_handler_without_a_mistake(handler: Any) -> None:
    assert asked(case_of(handler, Obliging())) is None


def test_what_clients_carry_need_not_be_live() -> None:
    def asks_too_often() -> Flow[str]:
        for n in range(20):
            yield from Elicit(f"{n}?", str)
        return "."

    case = case_of(asks_too_often)
    assert not case.could_be_live
    assert asked(case) is None


def test_what_a_client_lacks_is_reported_in_a_task_before_the_rest_is_answered() -> (
    None
):
    class Poor(World):
        lacks = frozenset({"Sample"})

    assert asked(case_of(pays, Poor("a"))) is None


# ---- replays ------------------------------------------------------------------------


def test_what_is_performed_twice() -> None:
    transcript = had(pays, partner=World("a"))
    *before, last = transcript.rounds
    first, second = last.performed
    rounds = (*before, attrs.evolve(last, performed=(first, second, second)))
    found = asked(case_of(pays, transcript=attrs.evolve(transcript, rounds=rounds)))
    assert found == BareFinding(
        "repeats", "look('a') is performed 2 times in one call", line(pays, 3)
    )


def there(text: str, where: str | None = None) -> Arrival:
    return Arrival("asks", (text,), where=where)


def test_another_process_with_another_outcome() -> None:
    found = asked(case_of(pays, workers=Others(there("Which?", "a.py:1"))))
    assert found is not None
    assert (found.kind, found.where) == ("elsewhere", "a.py:1")
    assert found.problem.endswith("and with TZ=UTC it asks Which?")
    assert found.advice.startswith("What differs from process to process must not")


def test_another_process_without_a_place() -> None:
    found = asked(case_of(pays, workers=Others(there("Which?"))))
    assert found is not None
    assert found.where == line(pays, 1)


def test_what_outlives_a_call_is_reported() -> None:
    outlived = {
        "global a": StateChange("global a", "a was 1 and is 2 now", None, False)
    }
    case = case_of(pays, workers=Others(there("Which?")), outlived=outlived)
    found = asked(case)
    assert found is not None
    assert found.advice.startswith("What one call leaves in a module decides")
    assert found.advice.endswith("Here a was 1 and is 2 now.")


def asks_with_an_address() -> Flow[str]:
    return (yield from Elicit("Shall <Till object at 0x7f2b> open?", str))


def test_an_address_in_a_question() -> None:
    found = asked(case_of(asks_with_an_address, workers=Others(there("Which?"))))
    assert found is not None
    assert found.advice == ADDRESS


def test_other_processes_that_agree_or_end() -> None:
    assert asked(case_of(pays, workers=Others(None))) is None

    class Alike:
        def arrivals(self, told: Transcript) -> list[list[ArrivalElsewhere]]:
            return [[ArrivalElsewhere(at(one), "TZ=UTC")] for one in told.journals]

    def at(journal: Journal) -> Arrival:
        return arrive(subject_of(pays), {}, journal, flow_id=FLOW_ID)

    assert asked(case_of(pays, workers=Alike())) is None
    found = asked(case_of(pays, workers=Others(None, "it ended with 7")))
    assert found == BareFinding(
        "elsewhere", "in another process it ended with 7", line(pays, 0)
    )


def changes_its_mind(title: str = "Dune") -> Flow[str]:
    if (yield from Confirm("Sure?")):
        return title
    return "."


def test_a_replay_with_another_outcome() -> None:
    transcript = had(pays, partner=World("a"))
    found = asked(case_of(changes_its_mind, transcript=transcript))
    assert found is not None
    assert found.kind == "drifts"
    assert found.where == line(changes_its_mind, 1)


@pytest.mark.parametrize(
    ("name", "where"),
    [("look", line(pays, 2)), ("keep", line(changes_its_mind, 1))],
)
def test_a_step_that_changes_variables_explains_it(name: str, where: str) -> None:
    transcript, performer = had(pays, partner=World("a")), Performer(False)
    performer.changed = [Changed(look, "look", "name", True)]
    case = case_of(changes_its_mind, transcript=transcript, performer=performer)
    found = asked(case)
    assert found is not None
    assert found.kind == "drifts", "what it changes in arguments explains nothing"
    performer.changed.append(Changed(look, name, "seen", False))
    found = asked(case)
    assert found is not None
    assert (found.kind, found.where) == ("mutates", where)
    assert found.problem.startswith(
        f"the step {name}() changes the handler's variable seen;"
    )


# ---- ways ---------------------------------------------------------------------------


def test_a_way_that_ends_otherwise() -> None:
    transcript = attrs.evolve(
        had(pays, partner=World("a")), ending=Ending("open", None)
    )
    found = asked(case_of(pays, transcript=transcript))
    assert found is not None
    assert (found.kind, found.where) == ("drifts", line(pays, 1))
    assert "it open null; and when the same was had by retry again," in found.problem


def test_a_way_that_breaks_off() -> None:
    transcript = had(pays, partner=World("a"))
    *before, last = transcript.rounds
    rounds = (*before, attrs.evolve(last, performed=()))
    found = asked(case_of(pays, transcript=attrs.evolve(transcript, rounds=rounds)))
    assert found is not None
    assert found.kind == "drifts"
    assert "by retry: look('Dune')" in found.problem


@pytest.fixture
def few_digits() -> Iterator[None]:
    with decimal.localcontext() as context:
        context.prec = 5
        yield


def divides() -> Flow[str]:
    who = yield from Elicit("Who?", str)
    return f"{who} {decimal.Decimal(1) / 3}"


KITCHEN = """from decimal import getcontext
def cook():
    getcontext().prec = 3
import decimal
getcontext().prec = 5
"""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (KITCHEN, 5),
        (KITCHEN.replace("\ngetcontext", "\ndecimal.setcontext"), 5),
        (KITCHEN.partition("getcontext().prec = 5")[0], None),
        ("getcontext(", None),
        (None, None),
    ],
)
def test_a_decimal_context_of_the_importing_thread(
    text: str | None,
    number: int | None,
    tmp_path: Path,
    few_digits: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "kitchen.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    kitchen = types.ModuleType("kitchen")
    kitchen.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "kitchen", kitchen)
    handler = types.FunctionType(divides.__code__, divides.__globals__, "divides")
    handler.__annotations__ = divides.__annotations__
    handler.__module__ = "kitchen"
    found = asked(case_of(handler))
    assert found is not None
    assert found.kind == "context"
    assert found.where == (line(divides, 0) if number is None else f"{file}:{number}")


def test_a_lasting_difference_is_not_due_to_threads(few_digits: None) -> None:
    seen: list[int] = []

    def remembers_threads() -> Flow[str]:
        who = yield from Elicit("Who?", str)
        if decimal.getcontext().prec != 5:
            seen.append(decimal.getcontext().prec)
        return f"{who} {len(seen) > 0}"

    found = asked(case_of(remembers_threads))
    assert found is not None
    assert found.kind == "drifts"
    assert "in process" in found.problem


# ---- branches, loops, keys, steps ---------------------------------------------------


def test_a_branch_that_depends_on_another() -> None:
    found = asked(case_of(looks_at_an_earlier_one, Obliging()))
    assert found is not None
    assert found.kind == "timing"
    assert "Elicit(message='And a?', form=str), and where" in found.problem


def test_a_result_that_depends_on_the_order_of_branches() -> None:
    def adds(name: str, names: list[str]) -> Flow[None]:
        yield from Elicit(f"{name}?", str)
        names.append(name)

    def in_order() -> Flow[str]:
        names: list[str] = []
        yield from Gather(adds("a", names), adds("b", names))
        return f"{names}"

    found = asked(case_of(in_order, Obliging()))
    assert found is not None
    assert (found.kind, found.where) == ("timing", line(adds, 1))
    found = asked(case_of(in_order, Obliging(), returned_at="a.py:3"))
    assert found is not None
    assert found.where == "a.py:3"


def test_a_loop_without_an_end() -> None:
    found = asked(case_of(asks_until_accepted, Obliging()))
    assert found is not None
    assert found.kind == "loops"


def test_keys_that_do_not_do_their_duty() -> None:
    found = asked(case_of(pays_twice))
    assert found is not None
    assert found.kind == "charges"
    assert found.problem.startswith("one IdempotencyKey, 'bill', is given to two")
    books = books_by(look("a"))
    found = asked(case_of(books))
    assert found is not None
    assert (found.kind, found.where) == ("charges", line(books, 4))
    assert found.problem.startswith(
        "the IdempotencyKey 'booking' is made of what look("
    )


@pytest.mark.parametrize(
    ("handler", "kind"),
    [(fills_a_cart, "mutates"), (fills_a_cart_with_results, None)],
)
def test_a_step_whose_change_a_handler_uses(handler: Any, kind: str | None) -> None:
    performer = Performer(True)
    arguments: Mapping[str, Any] = {} if kind else {"things": ["soup", "bread"]}
    transcript = had(handler, partner=Shop(performer), **arguments)
    found = asked(case_of(handler, transcript=transcript, performer=performer))
    assert (None if found is None else found.kind) == kind
