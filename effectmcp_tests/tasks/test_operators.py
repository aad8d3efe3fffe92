"""The reason why a task waits, as operators see it."""

from __future__ import annotations

from effectmcp.tasks.operators import waiting_for
from effectmcp.tasks.stores import Stored

from .simulated import new


def test_task_whose_turn_runs_is_at_work() -> None:
    row = new("tool")
    found = [waiting_for(Stored(row, holder, ()), 1e12) for holder in (None, "7-x")]
    assert [one and one.kind for one in found] == ["turn", "step"]


def test_task_that_has_ended_waits_for_nothing() -> None:
    row = new("tool", status="completed")
    assert waiting_for(Stored(row, None, ())) is None
