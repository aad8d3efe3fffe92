from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest

from effectmcp import Confirm, Flow, Gather
from effectmcp.engine import Entry
from effectmcp.engine.branches import MAX_NESTING, Node


def node(path: str = "", *entries: Entry, **fields: Any) -> Node:
    return Node(path, Context(), list(entries), **fields)


def entry(key: str) -> Entry:
    return Entry(key, b"s", b"r", "accepted")


def gathering(*children: Node) -> Node:
    """A node that waits for its branches, at the entry of its Gather."""
    parent = node("", Entry("gather-1", b"g", b"", "gather"), position=1)
    parent.gather = Gather()
    parent.children = list(children)
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
    a, b, c = node("a"), node("b"), node("c")
    b.end()
    inner = gathering(c)
    assert gathering(a, b, inner).leaves() == [a, c]


def test_leaf_is_its_own_leaf_until_it_ends() -> None:
    one = node()
    assert one.leaves() == [one]
    one.end(result=5)
    assert one.leaves() == []


def test_nodes_come_before_what_they_belong_to() -> None:
    a, b = node("a"), node("b")
    parent = gathering(a, b)
    assert list(parent.nodes()) == [a, b, parent]


def test_end_lets_go_of_the_generator() -> None:
    one = node(running=ask())
    one.end(result=5)
    assert (one.ended, one.result, one.failure, one.running) == (True, 5, None, None)


def test_end_with_a_failure() -> None:
    one, error = node(), ValueError()
    one.end(failure=error)
    assert (one.ended, one.failure) == (True, error)


# ---- the sequence ----


def test_ordinals_count_by_name() -> None:
    one = node()
    assert [one.next_ordinal(name) for name in "aba"] == [1, 1, 2]


def test_next_entry_is_the_one_not_delivered_yet() -> None:
    one = node("", entry("a"), entry("b"))
    assert one.next_entry() == entry("a")
    one.position = 2
    assert one.next_entry() is None


def test_record_waits_for_its_wave() -> None:
    one = node("", key="elicit-1", shape=b"s", render=b"r")
    one.record("accepted", b"{}")
    assert one.next_entry() == Entry("elicit-1", b"s", b"r", "accepted", b"{}")
    assert one.is_new
    assert not one.ready


def test_drop_cuts_off_what_was_not_delivered() -> None:
    one = node("", entry("a"), entry("b"), entry("c"), position=1, ready=True)
    assert one.drop() == [entry("b"), entry("c")]
    assert one.entries == [entry("a")]
    assert not one.ready
    assert one.drop() == []


# ---- Gathers ----


def test_snapshot_holds_branches_that_are_still_running() -> None:
    parent = gathering(node("", entry("a")), node())
    (gathered,) = parent.snapshot()
    assert gathered.branches == ((entry("a"),), ())
    # And leaves the tree as it was.
    assert parent.entries[0].branches == ()


def test_snapshot_of_nested_gathers() -> None:
    inner = gathering(node("", entry("a")))
    (gathered,) = gathering(inner).snapshot()
    assert gathered.branches[0][0].branches == ((entry("a"),),)


def test_close_gather_folds_the_branches_in() -> None:
    parent = gathering(node("", entry("a")), node("", entry("b")))
    parent.close_gather()
    assert parent.entries[0].branches == ((entry("a"),), (entry("b"),))
    assert parent.children is None
    assert parent.leaves() == [parent]


# ---- where ----


def test_where_is_the_line_of_the_yield() -> None:
    found = node(running=opened(ask())).where
    assert found is not None
    assert found.startswith(__file__)


@pytest.mark.parametrize("child", [iter(Confirm("Sure?")), None])
def test_where_of_an_effect_as_a_branch_is_its_gathers(child: Any) -> None:
    one = node("gather-1/0/", running=child)
    parent = gathering(one)
    parent.running = opened(ask())
    assert one.where == parent.where is not None


def test_where_of_nothing() -> None:
    assert node().where is None


def test_nesting_is_bounded_well_below_pythons_limit() -> None:
    assert 8 <= MAX_NESTING <= 64
