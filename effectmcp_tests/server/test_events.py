from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import attrs
import pytest

from effectmcp.server import events
from effectmcp.server.events import Event, RoundBegan, RoundEnded, StepPerformed


def test_events_are_values() -> None:
    began = RoundBegan(
        number=1,
        method="tools/call",
        target="order",
        arguments={"title": "Dune"},
        capabilities={},
        flow_id="00",
        trace=None,
        first_trace=None,
        round=1,
        is_first=True,
    )
    assert began == attrs.evolve(began)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        began.target = "x"  # type: ignore[misc]


def test_step_that_was_performed() -> None:
    assert (
        StepPerformed(flow_id="00", key="step-1", name="pay", seconds=0.5).error is None
    )


def test_round_that_ended_without_a_question() -> None:
    ended = RoundEnded(number=1, flow_id="00", outcome="returned", round=1)
    assert (ended.asked, ended.state_size, ended.error) == (0, 0, None)


PAGE = Path(__file__).parents[2] / "docs/observability.md"


def test_the_page_has_each_event_with_its_attributes() -> None:
    section = (
        PAGE.read_text().partition("## Events")[2].partition("## OpenTelemetry")[0]
    )
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", section, re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", attributes) for name, attributes in rows}
    assert shown == {
        one.__name__: [field.name for field in attrs.fields(one)]
        for one in get_args(Event)
    }


def test_the_module_has_a_table_of_all_events() -> None:
    assert events.__doc__ is not None
    table = events.__doc__.partition("An observer is called")[0]
    names = [one.__name__ for one in get_args(Event)]
    assert set(re.findall(r"[A-Z][a-z]+[A-Z][a-z]+|Salvaged", table)) >= set(names)
