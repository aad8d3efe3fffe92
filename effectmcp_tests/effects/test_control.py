"""Effects that arrange other effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effectmcp import (
    Checkpoint,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Now,
    Progress,
    Restart,
    Sleep,
    TimedOut,
    UsageError,
    Uuid,
    Version,
    Within,
)


def again(title: str) -> Flow[str]:
    yield from ()
    return title


def test_gather_keeps_positions() -> None:
    gather = Gather(Now(), Uuid())
    assert gather.branches == (Now(), Uuid())
    assert not gather.as_list


def test_gather_of_nothing() -> None:
    assert Gather().branches == ()


def test_gather_each_takes_any_iterable() -> None:
    gather = Gather.each(Elicit(f"Guest {n}?", str) for n in (1, 2))
    assert [one.message for one in gather.branches] == ["Guest 1?", "Guest 2?"]
    assert gather.as_list


@pytest.mark.parametrize("class_", [set, frozenset])
def test_gather_each_refuses_a_set(class_: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"over a set.*sorted\("):
        Gather.each(class_([Now()]))


@pytest.mark.parametrize("value", [1.5, True, None, b"v2"])
def test_version_refuses_what_no_journal_keeps(value: Any) -> None:
    with pytest.raises(UsageError, match="ints or strings"):
        Version("fee", default=value, latest=1)
    with pytest.raises(UsageError, match="ints or strings"):
        Version("fee", default=1, latest=value)


def test_version_name_is_a_string() -> None:
    given: Any = ["fee"]
    with pytest.raises(UsageError, match="the name of a change is a string"):
        Version(given, default=0, latest=1)


def test_restart_takes_a_handler() -> None:
    effect = Restart(again, "Dune")
    assert (effect.handler, effect.args, effect.kwargs) == (again, ("Dune",), {})


def test_restart_of_a_running_flow_is_refused() -> None:
    given: Any = again("Dune")
    with pytest.raises(UsageError, match="takes a handler and its arguments"):
        Restart(given)


@pytest.mark.parametrize("inner", [Now(), Checkpoint(), Gather(), Within(1, Sleep(1))])
def test_within_and_first_of_refuse_effects_that_cannot_be_waited_for(
    inner: Any,
) -> None:
    """The loser is forgotten, and nothing else may be."""
    with pytest.raises(UsageError, match="takes questions, Step and Sleep"):
        Within(1, inner)
    with pytest.raises(UsageError, match="takes questions, Step and Sleep"):
        FirstOf(Sleep(1), inner)


@pytest.mark.parametrize(
    "number",
    [float("nan"), float("inf"), float("-inf"), 10**400, -(10**400), "1", [1]],
    ids=lambda number: repr(number)[:8],
)
def test_invalid_numbers_are_refused(number: Any) -> None:
    """The error is raised in the handler: a clock would raise in the driver."""
    for make in (
        lambda: Sleep(number),
        lambda: Within(number, Sleep(1)),
        lambda: Progress(number),
        lambda: Progress(1, number),
    ):
        with pytest.raises(UsageError, match=r"=.*: give a number"):
            make()
    assert (Sleep(-1).seconds, Within(-1, Sleep(0)).seconds) == (-1, -1)


def test_first_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="never end"):
        FirstOf()


def test_timed_out_is_a_value() -> None:
    assert TimedOut() == TimedOut()
