"""A greedy shrinker of worlds, and the report of a broken law."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random as Dice
from typing import Any, Final

from attrs import evolve, fields

from ..campaigns import shrunk
from .host import Host, Reply, World, draw_world
from .programs import show, simpler_programs
from .rounds import draw_visits, play_together, play_visits

__all__ = ["failure", "found", "played", "story"]

#: How many edits of a program are tried.
EDITS: Final = 2


def played(world: World) -> Host:
    """Play a world, and try to resume with edited programs at its end.

    Raises:
        Broken: A law does not hold.
    """
    host = Host(world)
    host.play()
    host.check_park(EDITS)
    return host


def failure(world: World) -> str | None:
    """Return how a world breaks a law, in words."""
    try:
        played(world)
    except Exception as error:
        return getattr(error, "name", None) or f"{type(error).__name__}: {error}"
    return None


def simpler_worlds(world: World) -> Iterator[World]:
    """Yield worlds with a part less, the largest parts first."""
    for number in world.crashes:
        rest = {at: time for at, time in world.crashes.items() if at != number}
        yield evolve(world, crashes=rest)
    if world.cancel is not None:
        yield evolve(world, cancel=None)
    for program in simpler_programs(world.program):
        yield evolve(world, program=program)
    for change in _changes(world):
        yield evolve(world, **change)
    if world.mute:
        yield evolve(world, mute=frozenset())
    for at, reply in enumerate(world.replies):
        for simpler in (Reply(), Reply(reply.after), Reply(1, reply.verdict)):
            if simpler != reply:
                replies = (*world.replies[:at], simpler, *world.replies[at + 1 :])
                yield evolve(world, replies=replies)
    for at, lasts in enumerate(world.durations):
        if lasts != 1:
            yield evolve(
                world, durations=(*world.durations[:at], 1, *world.durations[at + 1 :])
            )
    for number, downtime in world.crashes.items():
        if downtime:
            yield evolve(world, crashes={**world.crashes, number: 0})
        if number:
            crashes = {at: n for at, n in world.crashes.items() if at != number}
            yield evolve(world, crashes={number - 1: downtime, **crashes})
    if world.cancel:
        yield evolve(world, cancel=world.cancel - 1)


def _changes(world: World) -> Iterator[dict[str, Any]]:
    for name in ("replies", "durations"):
        some = getattr(world, name)
        for end in (0, len(some) // 2, len(some) - 1):
            if end < len(some):
                yield {name: some[:end]}
    for name in ("detaches", "one_by_one", "is_late", "steps_first"):
        if getattr(world, name):
            yield {name: False}


def story(world: World) -> str:
    """Return a world and its history as lines."""
    lines = ["handler:", show(world.program.main)]
    if world.program.other:
        lines += ["restarted as:", show(world.program.other)]
    for one in fields(World):
        value = getattr(world, one.name)
        if one.name != "program" and value:
            lines.append(f"{one.name}: {value}")
    host = Host(world)
    try:
        host.play()
        host.check_park(EDITS)
    except Exception as error:
        lines += host.story
        lines.append(f"{type(error).__name__}: {error}")
    else:
        lines += host.story
    return "\n".join(lines)


def found(seed: int) -> str | None:
    """Return the shortest story of a seed whose world breaks a law."""
    logging.disable(logging.CRITICAL)
    try:
        world = draw_world(Dice(seed))
        name = failure(world)
        if name is None:
            return _of_rounds(seed)
        # Shrinking keeps to the same law.
        small = shrunk(
            world, simpler_worlds, lambda one: (failure(one) or "")[:24] == name[:24]
        )
        return f"seed {seed}\n{story(small)}"
    finally:
        logging.disable(logging.NOTSET)


def _of_rounds(seed: int) -> str | None:
    visits = draw_visits(Dice(seed))
    main = visits.program.main
    try:
        main = play_together(seed).main
        main = visits.program.main
        play_visits(visits)
    except Exception as error:
        return f"seed {seed}, by rounds\n{show(main)}\n{visits}\n{error}"
    return None
