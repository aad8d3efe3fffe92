"""The contract of stores of limits: each check is needed, and its name is reported."""

from __future__ import annotations

import pytest

from effectmcp.guards import MemoryLimits
from effectmcp.testing.contracts import ContractError
from effectmcp.testing.limit_contract import LIMIT_CHECKS, check_limit_store


class _Other(MemoryLimits):
    """A store that breaks one rule."""


class _Generous(_Other):
    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        return super().take(key, tokens=tokens + 1, seconds=seconds, now=now)


class _Sudden(_Other):
    """A store whose buckets fill in steps of a minute."""

    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        return super().take(key, tokens=tokens, seconds=seconds, now=now // 60 * 60)


class _Confusing(_Other):
    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        key = key.strip().lower()
        return super().take(key, tokens=tokens, seconds=seconds, now=now)


class _Trusting(_Other):
    """A store that takes any change of the clock for time that has passed."""

    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        self._buckets.clear()
        return super().take(key, tokens=tokens, seconds=seconds, now=now)


class _Forgetful(_Other):
    def close(self, key: str, flow: str) -> None:
        pass


class _Eternal(_Other):
    def open(self, key: str, flow: str, *, most: int, until: float, now: float) -> bool:
        return super().open(key, flow, most=most, until=now + 1e9, now=now)


class _Counting(_Other):
    """A store that counts a flow as often as it is opened."""

    def open(self, key: str, flow: str, *, most: int, until: float, now: float) -> bool:
        flow += str(len(self._open.get(key, ())))
        return super().open(key, flow, most=most, until=until, now=now)


class _Failing(_Other):
    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        raise OSError("away")


@pytest.mark.parametrize(
    ("store", "check"),
    [
        (_Generous, "a_bucket_is_full_at_first"),
        (_Sudden, "a_bucket_fills_again_evenly"),
        (_Confusing, "buckets_are_apart"),
        (_Trusting, "a_clock_that_was_set_back_adds_no_tokens"),
        (_Forgetful, "a_flow_is_open_until_it_is_closed"),
        (_Eternal, "a_flow_is_open_until_its_time_is_over"),
        (_Counting, "an_open_flow_may_be_opened_again"),
        (_Failing, "a_bucket_is_full_at_first"),
    ],
)
def test_a_store_that_breaks_a_rule(store: type[MemoryLimits], check: str) -> None:
    with pytest.raises(ContractError, match=check) as caught:
        check_limit_store(store, check)
    assert caught.value.check == check
    with pytest.raises(ContractError):
        check_limit_store(store)


def test_a_failure_is_named() -> None:
    with pytest.raises(ContractError, match=r"OSError\('away'\)"):
        check_limit_store(_Failing)


@pytest.mark.parametrize("name", LIMIT_CHECKS)
def test_ours_keeps_it(name: str) -> None:
    check_limit_store(MemoryLimits, name)
