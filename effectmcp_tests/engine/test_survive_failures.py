"""Hard cases that the engine must survive: failures, and where and how often they count."""

from __future__ import annotations

import attrs
import pytest

from effectmcp import (
    Accepted,
    ClientSupports,
    Confirm,
    Declined,
    Elicit,
    Flow,
    Gather,
    UsageError,
    Version,
)
from effectmcp.engine import (
    SCRIPT,
    Asked,
    Raised,
    Returned,
)

from ..helpers import (
    answers_to,
    live,
    run,
)


def test_exceptions_fed_from_the_journal_cost_no_budget() -> None:
    """L5: a journal that was recorded can be replayed."""

    def handler() -> Flow[str]:
        for n in range(30):
            try:
                yield from Elicit(f"{n}?", str)
            except Declined:
                pass
        return "done"

    rules = attrs.evolve(SCRIPT, yields=20)
    one = run(handler, rules=rules)
    stop = one.start()
    while isinstance(stop, Asked):
        stop = one.answered(answers_to(stop, lambda question: Declined()))
    assert stop == Returned("done")
    assert run(handler, rules=rules, journal=one.journal).start() == stop


@pytest.mark.parametrize("empty", [0, 1, 2, 5])
def test_lowest_failure_wins_however_many_gathers_end_at_once(empty: int) -> None:
    """B3: what is below a Gather comes to rest before its failures are looked at."""

    def one() -> Flow[None]:
        yield from Confirm("a?")
        for _ in range(empty):
            yield from Gather()
        raise ValueError("lowest")

    def two() -> Flow[None]:
        yield from Confirm("b?")
        raise KeyError("second")

    def handler() -> Flow[None]:
        yield from Gather(one(), two())

    stop = live(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, ValueError)


def test_error_of_a_replay_has_the_line_of_the_first_run() -> None:
    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        yield from ClientSupports(5)  # type: ignore[arg-type]

    one = run(handler)
    one.start()
    journal = one.journal
    first = one.answered({"confirm-1": Accepted({})})
    again = run(handler, journal=journal).start({"confirm-1": Accepted({})})
    assert isinstance(first, Raised)
    assert isinstance(again, Raised)
    assert str(first.error) == str(again.error)
    assert __file__ in str(again.error)


def test_version_with_a_name_that_cannot_be_written_is_refused() -> None:
    def handler() -> Flow[int]:
        return (yield from Version("\ud800", default=0, latest=1))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
