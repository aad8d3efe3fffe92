from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest

from effectmcp import Confirm, Flow, Gather
from effectmcp.engine import Entry, Row
from effectmcp.engine.effect_table import KINDS
from effectmcp.engine.generators import Ended
from effectmcp.engine.journal import MAX_NESTING
from effectmcp.engine.sequences import (
    Gathering,
    Rows,
    Sequence,
    Wanted,
)


def sequence(path: str = "", *entries: Entry, **fields: Any) -> Sequence:
    return Sequence(path, Context(), list(entries), Rows(0), **fields)


def entry(key: str) -> Entry:
    return Entry(key, b"s", b"r", "accepted")


def wanted(key: str = "confirm-1") -> Wanted:
    effect = Confirm("Sure?")
    kind = KINDS[Confirm]
    return Wanted(effect, effect, kind, key, key, b"s", b"r", is_local=False)


def gathering(*children: Sequence) -> Sequence:
    """A sequence that waits for its branches, at the entry of its Gather."""
    parent = sequence("", Entry("gather-1", b"g", b"", "gather"), position=1)
    parent.gathering = Gathering(Gather(), list(children))
    for child in children:
        child.parent = parent
    return parent


def opened(flow: Flow[Any]) -> Flow[Any]:
    next(flow)
    return flow


def ask() -> Flow[bool]:
    return (yield from Confirm("Sure?"))  # asked here


# ---- the tree ----


def test_leaves_are_in_position_order() -> None:
    a, b, c = (sequence(name, wanted=wanted(name)) for name in "abc")
    b.ends(Ended(None))
    inner = gathering(c)
    found = gathering(a, b, inner).leaves()
    assert [one for one, _ in found] == [a, c]
    assert [one.key for _, one in found] == ["a", "c"]


def test_sequence_without_branches_is_a_leaf_until_it_ends() -> None:
    one = sequence(wanted=wanted())
    assert [leaf for leaf, _ in one.leaves()] == [one]
    one.ends(Ended(5))
    assert one.leaves() == []


def test_branches_come_before_their_parent() -> None:
    a, b = sequence("a"), sequence("b")
    parent = gathering(a, b)
    assert list(parent.sequences()) == [a, b, parent]


def test_end_releases_the_generator() -> None:
    one = sequence(running=ask(), wanted=wanted())
    one.ends(Ended(5))
    assert (one.end, one.running, one.wanted) == (Ended(5), None, None)


# ---- the sequence ----


def test_ordinals_count_by_name() -> None:
    one = sequence()
    assert [one.next_ordinal(name) for name in "aba"] == [1, 1, 2]


def test_next_entry_is_the_one_not_delivered_yet() -> None:
    one = sequence("", entry("a"), entry("b"))
    assert one.next_entry() == entry("a")
    one.position = 2
    assert one.next_entry() is None


def test_record_waits_for_its_wave() -> None:
    waits = wanted("elicit-1")
    one = sequence(wanted=waits)
    one.record("accepted", b"{}")
    assert one.next_entry() == Entry("elicit-1", b"s", b"r", "accepted", b"{}")
    assert waits.is_new
    assert not waits.ready


def test_drop_removes_undelivered_entries() -> None:
    waits = wanted()
    waits.ready = True
    one = sequence("", entry("a"), entry("b"), entry("c"), position=1, wanted=waits)
    assert one.drop() == [entry("b"), entry("c")]
    assert one.entries == [entry("a")]
    assert not waits.ready
    assert one.drop() == []


def test_rows_get_added_and_removed_entries() -> None:
    one = sequence("a/0/", entry("a"))
    one.rows = Rows(2)
    one.append(entry("b"))
    one.drop()
    assert one.rows.take() == [Row(2, "a/0/", 1, entry("b")), Row(2, "a/0/", 0, None)]


# ---- Gathers ----


def test_snapshot_holds_branches_that_are_still_running() -> None:
    parent = gathering(sequence("", entry("a")), sequence())
    (gathered,) = parent.snapshot()
    assert gathered.branches == ((entry("a"),), ())
    # And leaves the tree as it was.
    assert parent.entries[0].branches == ()


def test_snapshot_of_nested_gathers() -> None:
    inner = gathering(sequence("", entry("a")))
    (gathered,) = gathering(inner).snapshot()
    assert gathered.branches[0][0].branches == ((entry("a"),),)


def test_close_gathering_folds_the_branches_in() -> None:
    parent = gathering(sequence("", entry("a")), sequence("", entry("b")))
    parent.close_gathering()
    assert parent.entries[0].branches == ((entry("a"),), (entry("b"),))
    assert parent.gathering is None


# ---- where ----


def test_where_is_the_line_of_the_yield() -> None:
    found = sequence(running=opened(ask())).where
    assert found is not None
    assert found.startswith(__file__)


@pytest.mark.parametrize("child", [iter(Confirm("Sure?")), None])
def test_where_of_an_effect_as_a_branch_is_its_gathers(child: Any) -> None:
    one = sequence("gather-1/0/", running=child)
    parent = gathering(one)
    parent.running = opened(ask())
    assert one.where == parent.where is not None


def test_where_of_nothing() -> None:
    assert sequence().where is None


def test_nesting_is_bounded_well_below_pythons_limit() -> None:
    assert 8 <= MAX_NESTING <= 64
