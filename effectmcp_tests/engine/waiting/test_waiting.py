"""Tasks on a host that crashes keep the rules of waiting."""

from __future__ import annotations

import logging
from random import Random as Dice

import pytest
from attrs import evolve

from .__main__ import play_seeds
from .host import Host, Reply, World, draw_world
from .laws import Broken
from .programs import Again, Ask, Attempt, Do, Limit, Program, Race, Together
from .shrinking import failure, found, story

BLOCK = 250


def check(seeds: range) -> None:
    _, failing = play_seeds(seeds)
    if failing:
        pytest.fail(f"{len(failing)} of {len(seeds)} fail; {found(failing[0][1])}")


def check_each(worlds: list[World]) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for world in worlds:
            if failure(world) is not None:
                pytest.fail(story(world))
    finally:
        logging.disable(logging.NOTSET)


def points_of(world: World) -> range:
    """Return the points at which a world can crash, or be cancelled."""
    host = Host(world)
    host.play()
    return range(host.points)


def quiet(seed: int) -> World:
    """Return the world of a seed without its crashes and its cancel."""
    return evolve(draw_world(Dice(seed)), crashes={}, cancel=None)


@pytest.mark.parametrize("start", range(0, 500, BLOCK))
def test_tasks_keep_the_laws(start: int) -> None:
    check(range(start, start + BLOCK))


@pytest.mark.long
@pytest.mark.parametrize("start", range(500, 100_500, 5_000))
def test_tasks_keep_the_laws_at_length(start: int) -> None:
    check(range(start, start + 5_000))


@pytest.mark.parametrize("seed", range(10))
def test_crash_at_every_point(seed: int) -> None:
    world = quiet(seed)
    check_each([evolve(world, crashes={at: at % 4}) for at in points_of(world)])


@pytest.mark.parametrize("seed", range(10))
def test_cancel_at_every_point(seed: int) -> None:
    world = quiet(seed)
    points = points_of(world)
    check_each([evolve(world, cancel=at) for at in points])
    check_each([evolve(world, cancel=at, crashes={at + 2: 1}) for at in points])


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 2_000, 100))
def test_crash_and_cancel_at_every_point_at_length(start: int) -> None:
    for seed in range(start, start + 100):
        test_crash_at_every_point(seed)
        test_cancel_at_every_point(seed)


STEP = Do("plain", "t")
CAUGHT = Attempt((Together(((Ask("elicit", "A?"),), (Race((STEP,)),))),), True, ())

#: What the laws took for mistakes of the engine.
RIGHT = {
    "a step of an earlier generation ends, late": World(
        Program((Limit(6, STEP), Again()), (Limit(4, STEP),)),
        durations=(8, 9),
        is_late=True,
    ),
    "branches of two Gathers are closed": World(
        Program((CAUGHT, Together(((), (STEP,))))), (Reply(0, "fail"),)
    ),
    "a sibling fails before the cancel": World(
        Program(
            (
                Together(
                    ((Race((STEP,)),), (Ask("elicit", "A?"), Do("failing", "u"))),
                ),
            )
        ),
        (Reply(0),),
        durations=(9, 2),
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_laws_hold_for_correct_worlds(what: str) -> None:
    world = RIGHT[what]
    points = points_of(world)
    check_each([world, *[evolve(world, cancel=at) for at in points]])


def test_broken_law_has_a_name() -> None:
    assert Broken("4 due", "x").name == "4 due"
