"""Twelve bugs that are found, and twelve handlers in which there is nothing to find."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from effectmcp.testing import CheckError, check
from effectmcp.testing.workers import Workers

from . import healthy, planted

#: What each planted bug is called, in a message.
KINDS = {
    "branch_timing": "timing",
    "broken_result": "result",
    "clock": "unrecorded",
    "forgotten_yield_from": "forgotten",
    "global_state": "drifts",
    "impossible_form": "misuse",
    "io_before_question": "unrecorded",
    "set_order": "elsewhere",
    "shared_default": "default",
    "swallows_suspended": "swallows",
    "too_many_rounds": "rounds",
    "uuid4": "unrecorded",
}
#: What its message must name.
WORDS = {
    "branch_timing": "depends on how far another one has come",
    "broken_result": "its result is not what it promised",
    "clock": "datetime.now() is not recorded",
    "forgotten_yield_from": "builds send_ticket(",
    "global_state": "the global _number was",
    "impossible_form": "forms are flat, so the class Address cannot stand",
    "io_before_question": "open() is not recorded",
    "set_order": "it does something else in another process",
    "shared_default": "the default names of pick_members() was [",
    "swallows_suspended": "it goes on yielding while it is being ended",
    "too_many_rounds": "it asks in more rounds than clients put up with",
    "uuid4": "uuid.uuid4() is not recorded",
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


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as running:
        yield running


def test_there_are_twelve_of_each() -> None:
    assert modules(planted) == sorted(KINDS) == sorted(WORDS)
    assert len(KINDS) == len(modules(healthy)) == 12


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_planted_bug_is_found_with_its_line(name: str) -> None:
    """With processes of its own: five seconds are for everything."""
    module = load(planted, name)
    begun = time.perf_counter()
    with pytest.raises(CheckError) as caught:
        check(module.app)
    seconds = time.perf_counter() - begun
    (finding,) = caught.value.checked.findings
    assert finding.kind == KINDS[name]
    assert finding.where == marked_line(module)
    text = str(caught.value)
    assert WORDS[name] in text
    assert marked_line(module) in text
    print(f"{name}: found in {seconds:.1f} s")


@pytest.mark.parametrize("name", modules(healthy))
def test_a_healthy_handler_is_left_alone(name: str, workers: Workers) -> None:
    checked = check(
        load(healthy, name).app, conversations=25, workers=workers, raises=False
    )
    assert str(checked).splitlines()[1:] == []


@pytest.mark.long
@pytest.mark.parametrize("name", modules(healthy))
def test_a_thousand_conversations_raise_no_false_alarm(
    name: str, workers: Workers
) -> None:
    checked = check(
        load(healthy, name).app, conversations=1_000, workers=workers, raises=False
    )
    assert str(checked).splitlines()[1:] == []
