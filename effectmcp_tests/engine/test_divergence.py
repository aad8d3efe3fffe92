from __future__ import annotations

from typing import get_args, get_type_hints

import attrs
import pytest

from effectmcp.engine import Entry, Pooled, Report
from effectmcp.engine.divergence import CAUSES, flatten, is_stopping, pooled_of
from effectmcp.engine.journal import TAGS, Tag


def entry(key: str, tag: Tag = "accepted", render: bytes = b"r") -> Entry:
    return Entry(key, b"s", render, tag)


GATHERED = Entry(
    "gather-1",
    b"g",
    b"",
    "gather",
    branches=(
        (entry("elicit-1"), Entry("gather-1", b"g", b"", "gather", branches=((),))),
        (entry("now-1", "chance"),),
    ),
)

REPORT = Report(
    handler="shop:order",
    round=2,
    place="branch gather-1/0, entry 1",
    recorded="elicit-1 (accepted)",
    current="confirm-1",
    where="shop.py:12",
    cause="differs",
)


# ---- the report ----


def test_report_names_everything() -> None:
    report = attrs.evolve(REPORT, version="3", text="Sure?")
    assert str(report) == (
        "shop:order (version 3) no longer follows its journal, in round 2,"
        " branch gather-1/0, entry 1 at shop.py:12: recorded was elicit-1 (accepted),"
        f" and now comes confirm-1 ('Sure?'). {CAUSES['differs']}"
    )


def test_report_of_ends() -> None:
    """A report without a recorded entry, a current effect, a line or a message."""
    text = str(attrs.evolve(REPORT, recorded=None, current=None, where=None))
    assert text == (
        "shop:order no longer follows its journal, in round 2, branch gather-1/0,"
        " entry 1: recorded was nothing more, and now comes the end."
        f" {CAUSES['differs']}"
    )


def test_report_knows_the_usual_causes_of_every_cause() -> None:
    assert set(CAUSES) == set(get_args(get_type_hints(Report)["cause"]))


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_report_ranks_the_usual_causes(cause: str) -> None:
    assert str(attrs.evolve(REPORT, cause=cause)).endswith(CAUSES[cause])  # type: ignore[arg-type]


def test_report_of_a_difference_names_what_helps() -> None:
    for help_ in ("Version()", "Now", "Random", "Step", "set"):
        assert help_ in str(REPORT)


# ---- dropped entries ----


def test_flatten_gives_each_entry_its_path() -> None:
    flat = [
        (one.path, one.entry.key) for one in flatten([entry("a"), GATHERED], "x/0/")
    ]
    assert flat == [
        ("x/0/", "a"),
        ("x/0/", "gather-1"),
        ("x/0/gather-1/0/", "elicit-1"),
        ("x/0/gather-1/0/", "gather-1"),
        ("x/0/gather-1/1/", "now-1"),
    ]


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_dropping_a_performed_step_is_a_hard_stop(tag: Tag) -> None:
    """The tag counts, and not today's code; inside a branch as well."""
    stops = TAGS[tag] == "stop"
    assert is_stopping(flatten([entry("a"), entry("b", tag)], "")) == stops
    gathered = attrs.evolve(GATHERED, branches=((entry("b", tag),),))
    assert is_stopping(flatten([gathered], "")) == stops


@pytest.mark.parametrize("tag", ["done", "failed", "won"])
def test_dropping_a_replayable_entry_does_not_stop(tag: Tag) -> None:
    one = attrs.evolve(entry("b", tag), replayable=True)
    assert not is_stopping(flatten([one], ""))


@pytest.mark.parametrize("tag", sorted(TAGS))
@pytest.mark.parametrize("replayable", [True, False])
def test_pool_keeps_answers_and_random_values(tag: Tag, replayable: bool) -> None:
    one = Pooled("", attrs.evolve(entry("a", tag), replayable=replayable))
    kept = {"accepted", "declined", "dismissed", "unread", "chance"}
    if replayable:
        kept = {"won"}
    assert pooled_of([one]) == ([one] if tag in kept else [])
