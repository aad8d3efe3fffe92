"""Counts in memory: against an oracle of exact numbers, in bounds, and in threads."""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction
from typing import Any, TypeAlias

import pytest
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.errors import UsageError
from effectmcp.guards import MemoryLimits
from effectmcp.testing.limit_contract import LIMIT_CHECKS, check_limit_store

START = 1_700_000_000


@pytest.mark.parametrize("name", LIMIT_CHECKS)
def test_it_keeps_the_contract(name: str) -> None:
    check_limit_store(MemoryLimits, name)


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "x", None])
def test_a_bound_that_is_invalid(most: Any) -> None:
    with pytest.raises(UsageError, match="give 1 or more"):
        MemoryLimits(most)


def test_it_waits_for_nothing() -> None:
    assert MemoryLimits().blocks is False


def test_a_refused_flow_takes_no_memory() -> None:
    store = MemoryLimits(1)
    assert store.open("ann", "a", most=1, until=2.0, now=1.0)
    assert not store.open("bob", "b", most=0, until=2.0, now=1.0)
    assert not store.open("ann", "c", most=1, until=2.0, now=1.0)


def test_after_a_clock_was_set_right_a_bucket_fills_again() -> None:
    """A clock that was ahead locks no key out until then: `take` tells the truth."""
    store = MemoryLimits()

    def take(now: float) -> float:
        return store.take("ann", tokens=1.0, seconds=60.0, now=now)

    assert take(4e9) == 0
    assert take(1e9) == 60
    assert take(1e9 + 60) == 0


# ---- the oracle ---------------------------------------------------------------------

#: Something that is done: what, to which key, with which flow, after how many eighths of
#: a second, and with which number.
Act: TypeAlias = tuple[str, str, str, int, int]

ACTS = st.tuples(
    st.sampled_from(["take", "open", "close"]),
    st.sampled_from("xyz"),
    st.sampled_from("abcde"),
    st.integers(-16, 64) | st.just(0),
    st.integers(1, 40),
)


@define
class Exact:
    """The rules of `LimitStore` and `MemoryLimits`, with exact numbers.

    Attributes:
        tokens: What a bucket holds.
        seconds: In how many seconds an empty bucket is full.
        flows: How many flows of a key may be open.
        most: How many keys of each sort there may be.
    """

    tokens: int
    seconds: int
    flows: int
    most: int
    #: The tokens of a bucket, and when it had them; the last used comes last.
    buckets: OrderedDict[str, tuple[Fraction, Fraction]] = field(factory=OrderedDict)
    #: Until when flows are open.
    opened: OrderedDict[str, dict[str, Fraction]] = field(factory=OrderedDict)

    def take(self, key: str, now: Fraction) -> Fraction:
        """Return 0, or the seconds until there is a token."""
        tokens, before = self.buckets.pop(key, (Fraction(self.tokens), now))
        rate = Fraction(self.tokens, self.seconds)
        # A clock that was set back adds no tokens.
        tokens = min(
            Fraction(self.tokens), tokens + max(Fraction(0), now - before) * rate
        )
        wait = Fraction(0) if tokens >= 1 else (1 - tokens) / rate
        self.buckets[key] = (tokens - 1 if tokens >= 1 else tokens), now
        if len(self.buckets) > self.most:
            self.buckets.popitem(last=False)
        return wait

    def open(self, key: str, flow: str, until: Fraction, now: Fraction) -> bool:
        """Return whether the flow is open now."""
        flows = self.opened.pop(key, {})
        flows = {one: end for one, end in flows.items() if end > now}
        self.opened[key] = flows
        if flow not in flows and len(flows) >= self.flows:
            return False
        flows[flow] = until
        if len(self.opened) > self.most:
            self.opened.popitem(last=False)
        return True

    def close(self, key: str, flow: str) -> None:
        """Close a flow; a key without flows takes no memory."""
        if key in self.opened:
            self.opened[key].pop(flow, None)
            if not self.opened[key]:
                del self.opened[key]


@given(
    st.lists(ACTS, max_size=40),
    st.integers(1, 8),
    st.integers(0, 6),
    st.integers(1, 3),
    st.integers(1, 3),
)
@example([("take", "x", "a", 0, 1), ("take", "x", "a", 8, 1)], 1, 0, 1, 1)
@example([("open", "x", "a", 0, 8), ("open", "x", "b", 8, 8)], 1, 0, 1, 1)
@example([("take", "x", "a", step, 1) for step in (0, 0, -16, 16)], 2, 1, 1, 1)
def test_exact_counts(
    acts: list[Act], tokens: int, power: int, flows: int, most: int
) -> None:
    """All numbers are sums of powers of 2: floats are exact, except for waits."""
    exact = Exact(tokens, 2**power, flows, most)
    store = MemoryLimits(most)
    now = Fraction(START)
    for what, key, flow, eighths, number in acts:
        now += Fraction(eighths, 8)
        at = float(now)
        if what == "take":
            wait = store.take(
                key, tokens=float(tokens), seconds=float(2**power), now=at
            )
            wanted = exact.take(key, now)
            assert (wait > 0) == (wanted > 0)
            assert wait == pytest.approx(float(wanted), rel=1e-9)
        elif what == "open":
            until = now + Fraction(number, 8)
            got = store.open(key, flow, most=flows, until=float(until), now=at)
            assert got == exact.open(key, flow, until, now)
        else:
            store.close(key, flow)
            exact.close(key, flow)
        assert len(store._buckets) <= most
        assert len(store._open) <= most


@given(
    st.lists(st.floats(0, 100), max_size=30),
    st.floats(1, 50),
    st.floats(0.01, 1_000),
)
def test_no_more_than_the_bucket_and_what_has_flowed_in(
    pauses: list[float], tokens: float, seconds: float
) -> None:
    """The law of the bucket, with any numbers: taken <= tokens + time * tokens / seconds."""
    store = MemoryLimits()
    now = float(START)
    taken = 0
    for pause in pauses:
        now += pause
        taken += store.take("ann", tokens=tokens, seconds=seconds, now=now) == 0
        passed = Fraction(now) - START
        limit = Fraction(tokens) * (1 + passed / Fraction(seconds))
        assert taken <= limit * (1 + Fraction(1, 10**9))


@given(st.lists(st.text(max_size=3), max_size=60), st.integers(1, 5))
def test_a_stranger_with_many_addresses_takes_no_more_memory(
    keys: list[str], most: int
) -> None:
    """The keys that are kept are the most recently used keys."""
    store = MemoryLimits(most)
    for key in keys:
        store.take(key, tokens=1.0, seconds=60.0, now=1.0)
        store.open(key, "flow", most=1, until=2.0, now=1.0)
    last = list(dict.fromkeys(reversed(keys)))[:most]
    for key in last:
        assert store.take(key, tokens=1.0, seconds=60.0, now=1.0) > 0
        assert not store.open(key, "other", most=1, until=2.0, now=1.0)
    # Only one: it takes the place of another one.
    for key in sorted(set(keys) - set(last))[:1]:
        assert store.take(key, tokens=1.0, seconds=60.0, now=1.0) == 0
