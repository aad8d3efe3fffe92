"""Hypothesis profiles, and what it takes to run in several processes."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from effectmcp.drivers.turns import TURNS

# No deadline: a first example compiles forms and converters, and CI machines pause.
# `ci` is Hypothesis's own (derandomized), which it loads where CI is set.
#: Fewer than Hypothesis's hundred, so that the suite takes minutes: `.ci/long` draws
#: thousands.
EXAMPLES = 60
settings.register_profile(
    "dev",
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("suite", settings.get_profile("ci"), max_examples=EXAMPLES)
settings.register_profile("nightly", deadline=None, max_examples=10_000)
if settings.get_current_profile_name() == "default":
    settings.load_profile("dev")
elif settings.get_current_profile_name() == "ci":
    settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[
    None, pytest.TestReport, pytest.TestReport
]:
    """Escape lone surrogates in logs: no report could carry them elsewhere."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode("utf-8"))
        for title, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def no_long_work() -> None:
    """Forget who held the loop for long: a slow machine may mark clients of any test."""
    TURNS._parties.clear()
    TURNS.is_needed = False


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Mute the log: drawn programs fail all the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
