"""The budget of bad tokens for each client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.auth import failures as module
from effectmcp.auth.failures import Failures


def test_failures_of_a_window_are_counted() -> None:
    found = Failures(most=3, seconds=60)
    for _ in range(3):
        assert found.may_try("a", 0)
        found.add("a", 0)
    assert not found.may_try("a", 59)
    assert found.may_try("b", 59)
    assert found.may_try("a", 60)
    found.add("a", 60)
    assert found.may_try("a", 61)


def test_failures_that_are_remembered_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest party is forgotten first; a new failure makes a party new."""
    monkeypatch.setattr(module, "_MOST", 3)
    found = Failures(most=1)
    for party in ("a", "b", "c", "a", "d"):
        found.add(party, 0)
    assert list(found._counts) == ["c", "a", "d"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 30)), max_size=80
    )
)
def test_failures_never_exceed_the_limit_of_a_window(
    tries: list[tuple[str | None, int]],
) -> None:
    """The oracle counts each window from its first failure."""
    found, now = Failures(most=3, seconds=60), 0
    begun: dict[str | None, tuple[int, int]] = {}
    for party, later in tries:
        now += later
        start, count = begun.get(party, (now, 0))
        if now - start >= 60:
            start, count = now, 0
        assert found.may_try(party, now) == (count < 3)
        if count < 3:
            found.add(party, now)
            begun[party] = (start, count + 1)
