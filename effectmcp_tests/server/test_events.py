from __future__ import annotations

import attrs
import pytest

from effectmcp.server.events import RoundBegan, RoundEnded, StepPerformed


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
