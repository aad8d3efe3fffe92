"""The values of tests: they are fixed, as transcripts and recordings contain them."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest

from effectmcp import Caller, Checkpoint, Detach, Effect, Now, Random, Sleep, Step, Uuid
from effectmcp.engine.effect_table import KINDS
from effectmcp.engine.stops import Done
from effectmcp.testing.chance import FLOW_ID, Chance

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def drawn(*effects: Effect[Any]) -> list[Any]:
    chance = Chance()
    outcomes = [chance.outcome(effect) for effect in effects]
    return [
        outcome.value if isinstance(outcome, Done) else None for outcome in outcomes
    ]


def test_clock_advances_a_second_for_each_value_that_is_drawn() -> None:
    one, two = EPOCH, EPOCH + dt.timedelta(seconds=1)
    assert drawn(Now(), Now()) == [one, two]
    assert drawn(Uuid(), Now())[1] == two
    assert drawn(Random(), Detach(), Now())[2] == one


def test_uuids_are_random_ones_by_their_version() -> None:
    one, two = drawn(Uuid(), Uuid())
    assert (one.version, two.version) == (4, 4)
    assert str(one) == "6b86b273-ff34-4ce1-9d6b-804eff5a3f57"
    assert str(two) == "d4735e3a-265e-46ee-a03f-59718b9b5d03"


def test_other_values() -> None:
    assert drawn(Random(), Detach(), Sleep(1)) == [0.5, False, None]
    (caller,) = drawn(Caller())
    assert caller.flow_id == FLOW_ID.hex()


@pytest.mark.parametrize("effect", [Checkpoint(), Step(print)], ids=repr)
def test_effect_that_the_test_decides(effect: Effect[Any]) -> None:
    assert Chance().outcome(effect) is None


def test_another_value_is_near_the_first() -> None:
    def another(effect: type[Effect[Any]], value: Any) -> Any:
        found = KINDS[effect].another
        assert found is not None
        return found(value)

    assert another(Now, EPOCH) == EPOCH + dt.timedelta(seconds=1)
    assert another(Uuid, uuid.UUID(int=4)) == uuid.UUID(int=5)
    assert [another(Random, value) for value in (0.25, 0.5)] == [0.75, 0.0]
