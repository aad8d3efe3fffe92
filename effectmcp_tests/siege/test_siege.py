"""The attacks in their short form: a few seconds for each, and no tight times."""

from __future__ import annotations

import math
import sys
from collections import Counter

import pytest
import trio

from .attacks import ATTACKS, problems
from .besiege import besiege
from .honest import Tally
from .hosts import HOSTS, Host, Unavailable, fit
from .reports import Report, table
from .run import chosen
from .server import Form
from .shutdown import SHUTDOWNS, shut_down

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs further loopback addresses, and /proc"
)

BRIEF = [(name, host) for name, one in ATTACKS.items() for host in one.briefly]
FULL = [(name, host) for name, one in ATTACKS.items() for host in one.hosts]


def _attacked(name: str, host: str, form: Form) -> Report:
    try:
        return trio.run(besiege, ATTACKS[name], HOSTS[host], form)
    except Unavailable as exc:
        pytest.skip(str(exc))


def shown(report: Report) -> str:
    """Return the broken claims, and all measurements."""
    return "; ".join(report.problems) + "\n" + table([report])


@pytest.mark.siege
@pytest.mark.parametrize(("name", "host"), BRIEF)
def test_server_withstands_the_attack(name: str, host: str) -> None:
    report = _attacked(name, host, "short")
    assert not report.problems, shown(report)


@pytest.mark.long
@pytest.mark.parametrize(("name", "host"), FULL)
def test_server_withstands_the_full_attack(name: str, host: str) -> None:
    report = _attacked(name, host, "long")
    assert not report.problems, shown(report)


@pytest.mark.siege
@pytest.mark.parametrize("name", SHUTDOWNS)
def test_shutdown_loses_no_request_that_was_accepted(name: str) -> None:
    report = trio.run(shut_down, name, "short")
    assert not report.problems, shown(report)


@pytest.mark.long
@pytest.mark.parametrize("name", SHUTDOWNS)
def test_repeated_shutdowns_lose_no_request_that_was_accepted(name: str) -> None:
    report = trio.run(shut_down, name, "long")
    assert not report.problems, shown(report)


# ---- the harness --------------------------------------------------------------------


def test_number_means_all_its_variants() -> None:
    assert chosen(["4", "14-text"]) == ["4-listen", "4-heads", "4-bodies", "14-text"]
    assert chosen(["all"]) == [*ATTACKS, *SHUTDOWNS]


def test_slope_of_memory_is_in_mb_per_minute() -> None:
    assert fit([(0, 10), (30, 15), (60, 20)]) == pytest.approx(10)
    assert math.isnan(fit([(0, 10)]))


def test_report_without_answers_is_printed() -> None:
    report = Report(attack="1", host="own", form="short", problems=["no | answer"])
    assert "FAILS: no / answer" in table([report])


def test_broken_claims_are_reported() -> None:
    report = Report(attack="5", host="own", form="long", rss=(50, 1_000, 400))
    tally = Tally([0.1], Counter({"503": 2}), Counter({"cut": 1}))
    report.under = {"calls": tally, "newcomers": Tally()}
    report.victims = {"idle": "refused with 404"}
    said = list(problems(ATTACKS["5"], report, is_quiet=True))
    assert said == [
        "calls refused: {'503': 2}",
        "calls lost: {'cut': 1}",
        "newcomers: no answer at all",
        "it grew by 950 MB, more than 500",
        "it kept 350 MB, more than 200",
        "the idle session: refused with 404",
        "the p99 is 100 ms, more than 50",
    ]


def test_server_that_does_not_start_is_reported() -> None:
    host = Host("none", lambda form: [sys.executable, "-c", "raise SystemExit('no')"])
    with pytest.raises(Unavailable, match="no"):
        trio.run(besiege, ATTACKS["1"], host, "short")
