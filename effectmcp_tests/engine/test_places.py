from __future__ import annotations

from typing import Any

from effectmcp import Accepted, Elicit, Flow
from effectmcp.engine import Asking, Place, Run
from effectmcp.engine.answers import Places

SHAPE, RENDER = b"shap", b"rendered"
OUT = Asking("a", SHAPE, RENDER)


def places(generation: int = 0, **table: Place) -> Places:
    return Places(table, generation)


def asked(one: Places, place: str = "a", **more: Any) -> str:
    one.ask(place, SHAPE, RENDER, **more)
    return one.wire(place)


def test_place_without_a_record_is_empty() -> None:
    assert places().at("a") == Place()


def test_ask_gives_a_wire_key_and_remembers() -> None:
    one = places()
    assert asked(one) == "a"
    assert one.table == {"a": Place(1, out=OUT)}


def test_wire_key_contains_its_generation() -> None:
    assert asked(places(2)) == "r2/a"
    assert places(2).first_wire("a") == "r2/a"


def test_settled_place_is_forgotten_when_its_entry_holds_everything() -> None:
    """Each record travels in every later state."""
    one = places()
    asked(one)
    one.settle("a")
    assert one.table == {}


def test_settled_place_is_kept_when_its_entry_holds_less() -> None:
    one = places(a=Place(2, 1, OUT))
    one.settle("a")
    assert one.table == {"a": Place(2, 1)}


def test_wire_key_is_never_used_again() -> None:
    """Q2: over withdrawals, answers that did not fit, and drops."""
    one = places()
    used = [asked(one)]
    one.withdraw("a")
    used.append(asked(one))
    one.settle("a")
    used.append(asked(one))
    one.settle("a")
    one.count("a")
    used.append(asked(one, unfit=1))
    assert used == ["a", "a~2", "a~3", "a~4"]


def test_count_remembers_a_question_whose_entry_was_dropped() -> None:
    one = places()
    asked(one)
    one.settle("a")
    one.count("a")
    assert one.table == {"a": Place(1)}
    one.count("a")
    assert one.table == {"a": Place(1)}


def test_withdraw_of_a_question_that_is_not_outstanding_does_nothing() -> None:
    one = places()
    one.withdraw("a")
    assert one.table == {}


def test_keep_only_withdraws_the_others_and_stops_their_clocks() -> None:
    one = places(c=Place(due=5.0))
    asked(one, "a")
    asked(one, "b")
    one.keep_only({"b"})
    assert one.table == {"a": Place(1), "b": Place(1, out=Asking("b", SHAPE, RENDER))}


def test_stale_answers_are_counted() -> None:
    one = places(a=Place(2, 1))
    assert (one.note_stale("a"), one.note_stale("b")) == (2, 1)
    assert one.table == {"a": Place(2, 2), "b": Place(0, 1)}


def test_begin_and_end_of_a_step() -> None:
    one = places()
    one.begin("a")
    one.begin("a")
    assert one.table == {"a": Place(begun=2)}
    one.end("a")
    one.end("a")
    assert one.table == {}


def test_end_stops_the_clock_and_keeps_the_question_count() -> None:
    one = places(a=Place(2))
    one.set_due("a", 7.5)
    assert one.table == {"a": Place(2, due=7.5)}
    one.end("a")
    assert one.table == {"a": Place(2)}


def test_questions_are_in_the_order_of_asking() -> None:
    one = places(a=Place(1))
    asked(one, "b")
    asked(one, "a")
    assert [place for place, kept in one.table.items() if kept.out] == ["b", "a"]


def test_places_leave_the_journal_alone() -> None:
    def ask() -> Flow[None]:
        yield from Elicit("Who?", str)

    flow_id = b"f" * 16
    asked = Run(ask, flow_id=flow_id)
    asked.start()
    journal = asked.suspend()
    places = dict(journal.places)
    assert places
    run = Run(ask, flow_id=flow_id, journal=journal)
    run.start({"elicit-1": Accepted({"value": "Ann"})})
    assert journal.places == places
