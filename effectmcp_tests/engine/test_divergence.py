from __future__ import annotations

import attrs
import pytest

from effectmcp.engine import Entry, Pooled, Report
from effectmcp.engine.divergence import CAUSES, Pool, flatten, is_stopping
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
    """Nothing more recorded, nothing more done, no line, no text."""
    text = str(attrs.evolve(REPORT, recorded=None, current=None, where=None))
    assert "recorded was nothing more, and now comes the end." in text
    assert " at " not in text.partition(": recorded")[0]


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_report_ranks_the_usual_causes(cause: str) -> None:
    assert str(attrs.evolve(REPORT, cause=cause)).endswith(CAUSES[cause])  # type: ignore[arg-type]


def test_report_of_a_difference_names_what_helps() -> None:
    for help_ in ("Version()", "Now", "Random", "Step", "set"):
        assert help_ in str(REPORT)


# ---- what is dropped ----


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


# ---- the pool ----


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_pool_keeps_what_a_user_said_and_chance_drew(tag: Tag) -> None:
    pool = Pool(())
    pool.add([Pooled("", entry("a", tag))])
    assert bool(pool.by_print) == (
        tag in {"accepted", "declined", "dismissed", "chance"}
    )


def test_pool_gives_an_answer_once() -> None:
    one = Pooled("", entry("elicit-1"))
    pool = Pool([one])
    assert list(pool) == [one]
    assert pool.take_here("", b"s", b"r") == [one.entry]
    assert pool.take_here("", b"s", b"r") == []
    assert not pool.by_print


@pytest.mark.parametrize(("shape", "render"), [(b"x", b"r"), (b"s", b"x")])
def test_pool_matches_both_halves_of_a_fingerprint(shape: bytes, render: bytes) -> None:
    pool = Pool([Pooled("", entry("elicit-1"))])
    assert pool.take_here("", shape, render) == []
    assert pool.take_elsewhere(shape, render) is None
    assert pool.by_print


def test_pool_prefers_the_same_path() -> None:
    here = Pooled("gather-1/0/", entry("elicit-1"))
    there = Pooled("gather-1/1/", entry("elicit-2"))
    pool = Pool([there, here])
    assert pool.take_here("gather-1/0/", b"s", b"r") == [here.entry]
    # Only now is the other one the only one.
    assert pool.take_here("", b"s", b"r") == []
    assert pool.take_elsewhere(b"s", b"r") == there.entry
    assert not pool.by_print


def test_pool_never_guesses_between_two_here() -> None:
    """Which answer was whose cannot be told any more: ask again, forget both."""
    pool = Pool([Pooled("", entry("elicit-1")), Pooled("", entry("elicit-2"))])
    assert len(pool.take_here("", b"s", b"r")) == 2
    assert not pool.by_print


def test_pool_never_guesses_between_two_elsewhere() -> None:
    """Each may still be the answer of the branch it was given in."""
    a = Pooled("gather-1/0/", entry("elicit-1"))
    b = Pooled("gather-1/1/", entry("elicit-1"))
    pool = Pool([a, b])
    assert pool.take_elsewhere(b"s", b"r") is None
    assert pool.take_here("gather-1/1/", b"s", b"r") == [b.entry]


def test_pool_keeps_others_when_it_forgets_two() -> None:
    there = Pooled("gather-1/0/", entry("elicit-1"))
    pool = Pool([Pooled("", entry("a")), there, Pooled("", entry("b"))])
    assert len(pool.take_here("", b"s", b"r")) == 2
    assert list(pool) == [there]


def test_pool_never_guesses_between_two_at_one_path_elsewhere() -> None:
    pool = Pool([Pooled("gather-1/0/", entry("a")), Pooled("gather-1/0/", entry("b"))])
    assert pool.take_elsewhere(b"s", b"r") is None
