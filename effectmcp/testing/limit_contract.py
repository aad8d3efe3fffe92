"""Check that a `LimitStore` keeps its contract.

    check_limit_store(lambda: RedisLimits(url))

For authors of stores. Each check counts under keys of its own, so a store that keeps what
it has counted needs no clean-up. The name of a check is in the error when it fails.
effectmcp's own store passes the same checks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias
from uuid import uuid4

from attrs import frozen

from ..guards.ports import LimitStore
from .contracts import ContractError

__all__ = ["LIMIT_CHECKS", "check_limit_store"]

#: When every check begins, in seconds since 1970.
_START: Final = 1_700_000_000.0

#: Seconds that a store may be wrong by, as it counts with floats.
_SLIP: Final = 0.001

#: Threads that call a store at the same time.
_THREADS: Final = 8

#: Keys as users and addresses are: a store may not mistake one for another.
_NAMES: Final = ("", "ann", "ann ", "Ann", "a:b", "a", "2001:db8::1", "%", "*", "ü\n")


def check_limit_store(make: Callable[[], LimitStore], *names: str) -> None:
    """Check a store of limits.

    Args:
        make: Returns the store. It is called once for each check.
        *names: Names of `LIMIT_CHECKS`; by default all of them.

    Raises:
        ContractError: If a check fails.
    """
    for name in names or LIMIT_CHECKS:
        try:
            LIMIT_CHECKS[name](_Bench(make(), uuid4().hex))
        except Exception as exc:
            problem = str(exc) if type(exc) is AssertionError else repr(exc)
            raise ContractError(name, problem) from exc


def _must(got: object, wanted: object) -> None:
    if got != wanted:
        raise AssertionError(f"expected {wanted!r}, got {got!r}")


def _must_be_near(got: float, wanted: float) -> None:
    if abs(got - wanted) > _SLIP:
        raise AssertionError(f"expected about {wanted!r}, got {got!r}")


@frozen
class _Bench:
    """A store, with short names for what checks do.

    Attributes:
        store: The store.
        mark: What makes the keys of a check its own.
    """

    store: LimitStore
    mark: str

    def take(
        self,
        at: float,
        key: str = "ann",
        *,
        tokens: float = 2.0,
        seconds: float = 60.0,
    ) -> float:
        """Take a token, that many seconds after the start."""
        return self.store.take(
            f"{self.mark}:{key}", tokens=tokens, seconds=seconds, now=_START + at
        )

    def open(
        self, at: float, flow: str, key: str = "ann", *, most: int = 2, until: float = 9
    ) -> bool:
        """Open a flow, that many seconds after the start."""
        return self.store.open(
            f"{self.mark}:{key}",
            flow,
            most=most,
            until=_START + until,
            now=_START + at,
        )

    def close(self, flow: str, key: str = "ann") -> None:
        """Close a flow."""
        self.store.close(f"{self.mark}:{key}", flow)


def _together(call: Callable[[int], object], number: int) -> list[object]:
    """Call a function that often, in several threads that begin at the same time."""
    start = threading.Barrier(_THREADS)

    def some(first: int) -> list[object]:
        start.wait()
        return [call(at) for at in range(first, number, _THREADS)]

    with ThreadPoolExecutor(_THREADS) as pool:
        return [one for each in pool.map(some, range(_THREADS)) for one in each]


# ---- buckets ------------------------------------------------------------------------


def _a_bucket_is_full_at_first(bench: _Bench) -> None:
    _must([bench.take(0), bench.take(0)], [0, 0])
    _must(bench.take(0) > 0, True)


def _a_bucket_fills_again_evenly(bench: _Bench) -> None:
    _must([bench.take(0), bench.take(0)], [0, 0])
    for at, left in ((0, 30), (10, 20), (29, 1)):
        _must_be_near(bench.take(at), left)
    _must(bench.take(30 + _SLIP), 0)
    _must_be_near(bench.take(40), 20)


def _a_bucket_holds_no_more_than_its_tokens(bench: _Bench) -> None:
    _must(bench.take(0), 0)
    _must([bench.take(100_000), bench.take(100_000)], [0, 0])
    _must(bench.take(100_000) > 0, True)


def _a_refusal_takes_nothing(bench: _Bench) -> None:
    _must([bench.take(0), bench.take(0)], [0, 0])
    for at in range(30):
        _must(bench.take(at) > 0, True)
    _must(bench.take(30 + _SLIP), 0)


def _a_clock_that_was_set_back_adds_no_tokens(bench: _Bench) -> None:
    _must([bench.take(1_000), bench.take(1_000)], [0, 0])
    for at in (900, 0, -1_000_000):
        _must(bench.take(at) > 0, True)


def _buckets_are_apart(bench: _Bench) -> None:
    for name in _NAMES:
        _must(bench.take(0, name, tokens=1), 0)
    for name in _NAMES:
        _must(bench.take(0, name, tokens=1) > 0, True)
        _must(bench.open(0, "flow", name, most=1), True)


def _no_token_is_given_twice(bench: _Bench) -> None:
    waits = _together(lambda _: bench.take(0, tokens=100.0), 400)
    _must(waits.count(0), 100)


# ---- open flows ---------------------------------------------------------------------


def _a_flow_is_open_until_it_is_closed(bench: _Bench) -> None:
    _must([bench.open(0, "a"), bench.open(0, "b")], [True, True])
    _must(bench.open(0, "c"), False)
    bench.close("a")
    _must(bench.open(0, "c"), True)
    _must(bench.open(0, "a"), False)


def _a_flow_is_open_until_its_time_is_over(bench: _Bench) -> None:
    _must([bench.open(0, "a", until=5), bench.open(0, "b", until=7)], [True, True])
    _must(bench.open(4, "c"), False)
    _must([bench.open(6, "c"), bench.open(6, "d")], [True, False])


def _an_open_flow_may_be_opened_again(bench: _Bench) -> None:
    """The flow counts once, until the last of its times."""
    _must([bench.open(0, "a", until=5), bench.open(0, "b", until=50)], [True, True])
    _must(bench.open(1, "a", until=20), True)
    _must(bench.open(10, "c"), False)
    _must(bench.open(11, "a", until=12), True)
    _must(bench.open(13, "c"), True)


def _a_flow_that_is_refused_is_not_open(bench: _Bench) -> None:
    _must(
        [bench.open(0, "a"), bench.open(0, "b"), bench.open(0, "c")],
        [True] * 2 + [False],
    )
    bench.close("a")
    _must(bench.open(0, "d"), True)
    _must(bench.open(0, "c"), False)


def _a_higher_limit_lets_more_in(bench: _Bench) -> None:
    _must(
        [bench.open(0, "a"), bench.open(0, "b"), bench.open(0, "c")],
        [True] * 2 + [False],
    )
    _must(bench.open(0, "c", most=2**62), True)
    bench.close("a")
    _must(bench.open(0, "d"), False)


def _closing_what_is_not_open_changes_nothing(bench: _Bench) -> None:
    bench.close("a")
    _must([bench.open(0, "a"), bench.open(0, "b")], [True, True])
    bench.close("c")
    bench.close("a", "bob")
    _must(bench.open(0, "c"), False)


def _flows_of_others_do_not_count(bench: _Bench) -> None:
    for name in _NAMES:
        _must(bench.open(0, "a", name, most=1), True)
    bench.close("a", _NAMES[1])
    for name in _NAMES:
        _must(bench.open(0, "b", name, most=1), name == _NAMES[1])


def _no_more_flows_are_open_than_allowed(bench: _Bench) -> None:
    opened = _together(lambda at: bench.open(0, f"flow {at}", most=20), 400)
    _must(opened.count(True), 20)


#: Checks of one store.
_Check: TypeAlias = Callable[[_Bench], None]

#: The checks, by name.
LIMIT_CHECKS: Final[Mapping[str, _Check]] = {
    check.__name__[1:]: check
    for check in (
        _a_bucket_is_full_at_first,
        _a_bucket_fills_again_evenly,
        _a_bucket_holds_no_more_than_its_tokens,
        _a_refusal_takes_nothing,
        _a_clock_that_was_set_back_adds_no_tokens,
        _buckets_are_apart,
        _no_token_is_given_twice,
        _a_flow_is_open_until_it_is_closed,
        _a_flow_is_open_until_its_time_is_over,
        _an_open_flow_may_be_opened_again,
        _a_flow_that_is_refused_is_not_open,
        _a_higher_limit_lets_more_in,
        _closing_what_is_not_open_changes_nothing,
        _flows_of_others_do_not_count,
        _no_more_flows_are_open_than_allowed,
    )
}
