"""Bugs that are found, and handlers without a finding."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from effectmcp.testing import CheckError, Transcript, check
from effectmcp.testing.replay_workers import ReplayWorkers

from . import healthy, planted

#: The kind of finding of each planted bug, and what its sentence must name. State that
#: outlives a call shows in this process or in another one, by the shorter conversation.
FOUND = {
    "address_in_text": ("drifts|elsewhere", "Shall we book <"),
    "answered_before": ("elsewhere", "something else in another process"),
    "branch_timing": ("timing", "depends on how far another one has come"),
    "broken_result": ("result", "its result is not what it promised"),
    "cached_flow": ("misuse", "the function address is cached"),
    "class_attribute": ("drifts|elsewhere", "Close it over "),
    "clock": ("unrecorded", "datetime.now() is not recorded"),
    "decimal_at_import": ("context", "something else in another thread"),
    "endless_retry": ("loops", "it performs reserve(0) again"),
    "flow_as_value": ("forgotten", "it makes the flow meal(...) and never runs it"),
    "flow_returned": ("misuse", "the flow rent came back instead of its answer"),
    "forgotten_yield_from": ("forgotten", "builds send_ticket("),
    "global_state": ("drifts", "the global _number was"),
    "hash_bucket": ("elsewhere", "it does something else in another process"),
    "impossible_form": ("misuse", "forms are flat, so the class Address cannot stand"),
    "io_before_question": ("unrecorded", "open() is not recorded"),
    "late_lambda": ("late", "reads part after the loop has ended"),
    "local_time_zone": ("elsewhere", "it does something else in another process"),
    "module_counter": ("drifts|elsewhere", "Number "),
    "nested_step_writes": ("mutates", "post() changes the handler's variable cents"),
    "order_of_branches": ("timing", "its result depends on which branch"),
    "printing": ("unrecorded", "print() writes again each time"),
    "set_order": ("elsewhere", "it does something else in another process"),
    "set_result": ("result", "returned set, and its annotation says str"),
    "shared_default": ("default", "the default names of pick_members() was ["),
    "shared_dice": ("drifts|elsewhere", "What is "),
    "shared_key": ("charges", "one IdempotencyKey, 'bill', is given to two different"),
    "stubborn_loop": ("loops", "again for as long as the user refuses: Confirm("),
    "swallowed_refusal": ("refusal", "a user who refuses is ignored: after Elicit("),
    "swallows_suspended": ("swallows", "it continues to yield while it is being ended"),
    "too_many_rounds": ("rounds", "it asks in more rounds than clients tolerate"),
    "undeclared_exception": ("unreached", "it catches FetchError, which never comes"),
    "unmatched_outcome": ("crash", "it raises UnboundLocalError"),
    "unstable_key": ("charges", "'booking' is made of what Uuid() gave"),
    "unused_confirm": ("unused", "it asks for a yes or a no, and does not use"),
    "uuid4": ("unrecorded", "uuid.uuid4() is not recorded"),
}


def modules(package: Any) -> list[str]:
    return sorted(one.name for one in pkgutil.iter_modules(package.__path__))


def load(package: Any, name: str) -> Any:
    return importlib.import_module(f"{package.__name__}.{name}")


def marked_line(module: Any) -> str:
    """The line that a message must name."""
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith("# here")]
    return f"{module.__file__}:{number}"


def values_in(transcript: Transcript) -> list[str]:
    """The arguments and the answers: what a reader has to take in."""
    said = [str(one.answer) for each in transcript.rounds for one in each.asked]
    return [str(transcript.arguments), *said]


@pytest.fixture(scope="module")
def workers() -> Iterator[ReplayWorkers]:
    with ReplayWorkers() as running:
        yield running


#: The same conversation, had again with plainer values, does not fail again.
NEVER_TWICE = ("shared_dice",)
#: Checks with processes of their own, as in a shell; the others share some.
ALONE = ("clock", "set_order")


def test_all_planted_and_healthy_modules_are_tested() -> None:
    assert modules(planted) == sorted(FOUND)
    assert len(FOUND) == 36
    assert len(modules(healthy)) == 24


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_planted_bug_is_found_with_its_line(
    name: str, workers: ReplayWorkers
) -> None:
    module = load(planted, name)
    begun = time.perf_counter()
    with pytest.raises(CheckError) as caught:
        check(module.app, workers=3 if name in ALONE else workers)
    seconds = time.perf_counter() - begun
    (finding,) = caught.value.checked.findings
    kind, words = FOUND[name]
    assert finding.kind in kind.split("|")
    assert finding.where == marked_line(module)
    text = str(caught.value)
    assert words in text
    assert marked_line(module) in text
    assert text.startswith(f"{finding.subject}: {finding.problem}\n  at ")
    assert finding.transcript is not None
    for value in () if name in NEVER_TWICE else values_in(finding.transcript):
        assert len(value) < 70
        assert value.isascii()
    print(f"{name}: found in {seconds:.1f} s")


@pytest.mark.parametrize("name", modules(healthy))
def test_a_healthy_handler_is_left_alone(name: str, workers: ReplayWorkers) -> None:
    checked = check(
        load(healthy, name).app, conversations=25, workers=workers, raises=False
    )
    assert str(checked).splitlines()[1:] == []


@pytest.mark.long
@pytest.mark.parametrize("name", modules(healthy))
def test_a_thousand_conversations_raise_no_false_alarm(
    name: str, workers: ReplayWorkers
) -> None:
    checked = check(
        load(healthy, name).app, conversations=1_000, workers=workers, raises=False
    )
    assert str(checked).splitlines()[1:] == []
