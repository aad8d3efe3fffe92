"""Hard cases that the engine must survive: size. It never recurses or hoards memory."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import attrs

from effectmcp import (
    Accepted,
    Confirm,
    Elicit,
    Flow,
    Gather,
    Now,
    Restart,
    Step,
    TooManyRounds,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    Asked,
    Journal,
    Raised,
    Returned,
    Run,
)

from ..helpers import UNCAPPED, advance, answers_to, keys, messages, run, yes

STRICT = attrs.evolve(UNCAPPED, policy="strict", yields=0)


def depth() -> int:
    """Return the depth of the caller's stack."""
    found, frame = 0, sys._getframe()
    while frame.f_back is not None:
        found, frame = found + 1, frame.f_back
    return found


def many(count: int, depths: set[int]) -> Flow[int]:
    """Ask `count` questions, and note the depth of the stack at every fiftieth."""
    for n in range(count):
        yield from Elicit(f"{n}?", str)
        if n % 50 == 0:
            depths.add(depth())
    return count


def play_live(handler: Callable[..., Any], *args: Any) -> tuple[Any, Run]:
    """Answer every question live; return the last stop and the run."""
    one = run(handler, *args, rules=LIVE)
    stop = advance(one, one.start())
    while isinstance(stop, Asked):
        stop = advance(one, one.answered(answers_to(stop, yes)))
    return stop, one


def test_1000_rounds() -> None:
    """1,000 rounds by retry, the cap lifted: it ends, and the state grows by the answers only."""
    depths: set[int] = set()
    journal, sizes = Journal(), {}
    said: dict[str, Any] = {}
    for n in range(1_000):
        one = run(many, 1_000, depths, journal=journal, rules=UNCAPPED)
        stop = one.start(said)
        assert keys(stop) == [f"elicit-{n + 1}"]
        journal = one.suspend()
        assert len(journal.asked) == 1
        assert not any(place.out is None for place in journal.places.values())
        assert journal.pool == ()
        if n in (250, 500, 750):
            sizes[n] = len(journal.dumps())
        said = {keys(stop)[0]: Accepted({"value": "text"})}
    assert journal.rounds == 1_000
    one = run(many, 1_000, depths, journal=journal, rules=UNCAPPED)
    assert one.start(said) == Returned(1_000)
    assert sizes[750] - sizes[500] == sizes[500] - sizes[250]
    # Two depths: fed from the journal, and answered in this round.
    assert len(depths) <= 2


def test_1000_rounds_that_are_capped() -> None:
    """With the cap, the tenth question is refused at its yield, naming Gather."""

    def handler() -> Flow[Any]:
        asked = 0
        try:
            while True:
                yield from Elicit(f"{asked}?", str)
                asked += 1
        except TooManyRounds as exc:
            return asked, exc.limit, str(exc)

    journal = Journal()
    said: dict[str, Any] = {}
    for _ in range(9):
        one = run(handler, journal=journal, rules=RETRY)
        stop = one.start(said)
        assert isinstance(stop, Asked)
        journal = one.suspend()
        said = answers_to(stop, yes)
    one = run(handler, journal=journal, rules=RETRY)
    stop = one.start(said)
    assert isinstance(stop, Returned)
    asked, limit, text = stop.value
    assert (asked, limit) == (9, 9)
    assert "Gather" in text


def test_10000_entries() -> None:
    """10,000 entries: played, written, read and replayed cold, at one depth of the stack."""
    depths: set[int] = set()
    stop, one = play_live(many, 10_000, depths)
    assert stop == Returned(10_000)
    assert len(depths) == 1
    text = one.journal.dumps()
    journal = Journal.loads(text)
    assert journal == one.journal
    assert journal.dumps() == text
    assert len(journal.entries) == 10_000
    assert journal.asked == {}
    assert not any(place.out is None for place in journal.places.values())
    depths.clear()
    # No yields at all may be spent: everything is fed from the journal.
    assert run(many, 10_000, depths, journal=journal, rules=STRICT).start() == stop
    assert len(depths) == 1


def test_10000_entries_of_every_sort() -> None:
    """10,000 entries of steps, random values, refusals and failures: the same."""
    depths: set[int] = set()

    def halve(n: int) -> int:
        if n % 2:
            raise ValueError(n)
        return n // 2

    def handler() -> Flow[int]:
        total = 0
        for n in range(2_500):
            yield from Now()
            try:
                total += yield from Step(halve, n)
            except ValueError:
                total += 1
            total += yield from Confirm(f"{n}?")
            yield from Gather()
            if n % 50 == 0:
                depths.add(depth())
        return total

    stop, one = play_live(handler)
    expected = sum(1 if n % 2 else n // 2 for n in range(2_500)) + 2_500
    assert stop == Returned(expected)
    journal = Journal.loads(one.journal.dumps())
    assert len(journal.entries) == 10_000
    depths.clear()
    cold = run(handler, journal=journal, rules=attrs.evolve(STRICT, yields=1_250))
    assert cold.start() == stop
    # Waves that are fed alone, and others, but no more depth for the last than the first.
    assert len(depths) <= 3


def test_10000_entries_in_branches() -> None:
    """10,000 entries in 100 branches: the same."""
    depths: set[int] = set()

    def handler() -> Flow[Any]:
        return (yield from Gather.each(many(100, depths) for _ in range(100)))

    stop, one = play_live(handler)
    assert stop == Returned([100] * 100)
    journal = Journal.loads(one.journal.dumps())
    depths.clear()
    assert run(handler, journal=journal, rules=STRICT).start() == stop
    assert len(depths) == 1


def test_10000_entries_in_gathers_one_after_another() -> None:
    """2,000 Gathers one after another, each of five: joined in a loop, not in one another."""
    depths: set[int] = set()

    def handler() -> Flow[int]:
        for n in range(2_000):
            yield from Gather(*[Elicit(f"{n} {m}", str) for m in range(4)], Now())
            if n % 50 == 0:
                depths.add(depth())
        return 2_000

    stop, one = play_live(handler)
    assert stop == Returned(2_000)
    assert len(depths) == 1
    assert run(handler, journal=one.journal, rules=STRICT).start() == stop


def test_10000_entries_salvaged() -> None:
    """10,000 entries dropped by an edit at the top, and taken from the pool again."""
    stop, one = play_live(many, 9_000, set())
    journal = one.journal

    def edited() -> Flow[int]:
        yield from Elicit("new", str)
        yield from many(9_000, set())
        yield from Elicit("the end", str)
        return 9_000

    first = run(edited, journal=journal, rules=UNCAPPED)
    asked = first.start()
    assert messages(asked) == ["new"]
    assert isinstance(asked, Asked)
    second = run(edited, journal=first.suspend(), rules=UNCAPPED)
    asked = second.start(answers_to(asked, yes))
    assert messages(asked) == ["the end"]
    after = second.suspend()
    assert after.pool == ()
    assert len(after.entries) == 9_001


def again(left: int, depths: set[int]) -> Flow[str]:
    """Restart so often."""
    depths.add(depth())
    yield from Now()
    if left:
        return (yield from Restart(counting, left - 1))
    return "done"


_depths: set[int] = set()


def counting(left: int) -> Flow[str]:
    return (yield from again(left, _depths))


def test_1000_restarts() -> None:
    """1,000 restarts in one round: a loop, and the journal holds the last generation only."""
    _depths.clear()
    one = run(counting, 1_000, rules=LIVE)
    stop = advance(one, one.start())
    assert stop == Returned("done")
    assert len(_depths) <= 2
    assert one.journal.generation == 1_000
    assert len(one.journal.entries) == 1


def test_endless_restarts() -> None:
    """Restarting for ever spends the budget: restarts do not reset it."""
    one = run(for_ever, rules=attrs.evolve(LIVE, yields=300))
    stop = advance(one, one.start())
    assert isinstance(stop, Raised)
    assert "300" in str(stop.error)


def for_ever() -> Flow[None]:
    return (yield from Restart(for_ever))


def test_memory_stays_flat() -> None:
    """Ten thousand rounds leave nothing behind but the journal: no frame, no generator."""

    class Held:
        count = 0

        def __init__(self) -> None:
            Held.count += 1

        def __del__(self) -> None:
            Held.count -= 1

    def handler() -> Flow[None]:
        for n in range(2_000):
            held = Held()
            yield from Gather(branch(Held()), Elicit(f"{n}", str))
            del held

    def branch(held: Held) -> Flow[None]:
        yield from Elicit("held?", str)
        del held

    one = run(handler, rules=LIVE)
    stop = one.start()
    most = 0
    while isinstance(stop, Asked):
        stop = one.answered(answers_to(stop, yes))
        most = max(most, Held.count)
    assert stop == Returned(None)
    gc.collect()
    assert Held.count == 0
    assert most < 20


def test_large_values_are_not_kept_twice() -> None:
    """A round holds one copy of an answer in its journal, for any number of uses."""
    large = "x" * 100_000

    def handler() -> Flow[int]:
        total = 0
        for n in range(3):
            total += len((yield from Elicit(f"{n}", str)))
        return total

    one = run(handler, rules=LIVE)
    stop: Any = one.start()
    while isinstance(stop, Asked):
        stop = one.answered({keys(stop)[0]: Accepted({"value": large})})
    assert stop == Returned(300_000)
    assert 300_000 < len(one.journal.dumps()) < 302_000
