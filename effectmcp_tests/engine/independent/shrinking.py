"""A greedy shrinker of worlds, and the report of a difference."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

from attrs import evolve

from ..campaigns import shrunk
from .drawing import BOTH, Code, Round, World, draw
from .programs import Attempt, Body, Do, Question, Statement, Together, show
from .worlds import play

__all__ = ["failure", "found", "simpler_worlds", "story"]


def failure(world: World) -> str | None:
    """Return the difference that a world shows, in words."""
    try:
        play(world)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def simpler_worlds(world: World) -> Iterator[World]:
    """Worlds with one part less, the largest parts first."""
    history, codes = world.history, world.codes
    for index in range(len(history)):
        yield evolve(world, history=history[:index] + history[index + 1 :])
    for number in range(len(codes)):
        if len(codes) > 1:
            moved = tuple(
                evolve(one, code=max(0, one.code - (one.code >= number and number > 0)))
                for one in history
            )
            kept = codes[:number] + codes[number + 1 :]
            yield evolve(world, codes=kept, history=moved)
    # The same edit in all versions keeps what is the same in them the same.
    for part in {part for code in codes for part in statements(code.main)}:
        yield evolve(world, codes=tuple(without(code, part) for code in codes))
    for number, code in enumerate(codes):
        for smaller in simpler_codes(code):
            yield evolve(world, codes=(*codes[:number], smaller, *codes[number + 1 :]))
    for index, one in enumerate(history):
        for simpler in simpler_rounds(one):
            yield evolve(
                world, history=(*history[:index], simpler, *history[index + 1 :])
            )
    if world.rounds != 9 or world.state_rounds != 2:
        yield evolve(world, rounds=9, state_rounds=2)


def statements(body: Body) -> Iterator[Statement]:
    for one in body:
        yield one
        for inside in one.bodies():
            yield from statements(inside)


def without(code: Code, part: Statement) -> Code:
    def rest(body: Body) -> Body:
        return tuple(
            one.with_bodies(tuple(map(rest, one.bodies()))) if one.bodies() else one
            for one in body
            if one != part
        )

    return Code(rest(code.main), rest(code.other))


def simpler_codes(code: Code) -> Iterator[Code]:
    for main in simpler_bodies(code.main):
        yield evolve(code, main=main)
    for other in simpler_bodies(code.other):
        yield evolve(code, other=other)


def simpler_bodies(body: Body) -> Iterator[Body]:
    for at, one in enumerate(body):
        before, after = body[:at], body[at + 1 :]
        yield before + after
        for inside in one.bodies():
            yield before + inside + after
        for simpler in simpler_statements(one):
            yield (*before, simpler, *after)


def simpler_statements(one: Statement) -> Iterator[Statement]:
    bodies = one.bodies()
    if isinstance(one, Together):
        for index in range(len(bodies)):
            yield one.with_bodies(bodies[:index] + bodies[index + 1 :])
        if one.bare:
            yield evolve(one, bare=False)
    for index, inside in enumerate(bodies):
        for simpler in simpler_bodies(inside):
            yield one.with_bodies((*bodies[:index], simpler, *bodies[index + 1 :]))
    match one:
        case Question():
            yield from (
                simpler
                for simpler in (
                    evolve(one, echo=False),
                    evolve(one, key=None),
                    evolve(one, outcome=False),
                    evolve(one, otherwise=None),
                )
                if simpler != one
            )
        case Do(kind=kind) if kind != "plain":
            yield evolve(one, kind="plain")
        case Do(counted=True):
            yield evolve(one, counted=False)
        case Attempt(catches=False):
            yield evolve(one, catches=True)
        case _:
            pass


def simpler_rounds(one: Round) -> Iterator[Round]:
    if one.late:
        yield evolve(one, late=False)
    if one.early != "-":
        yield evolve(one, early="-")
    if one.is_lost:
        yield evolve(one, is_lost=False)
    if one.base:
        yield evolve(one, base=one.base - 1)
    if one.supports != BOTH:
        yield evolve(one, supports=BOTH)
    for at, verdict in enumerate(one.says):
        if len(one.says) > 1:
            yield evolve(one, says=one.says[:at] + one.says[at + 1 :])
        if verdict != "A":
            yield evolve(one, says=(*one.says[:at], "A", *one.says[at + 1 :]))


def story(world: World) -> str:
    """Return a world and its conversation as lines."""
    lines = []
    for number, code in enumerate(world.codes):
        lines += [f"code v{number}:", show(code.main)]
        if any(type(one).__name__ == "Again" for one in statements(code.main)):
            lines += ["  restarted as:", show(code.other)]
    if world.rounds != 9 or world.state_rounds != 2:
        lines.append(
            f"at most {world.rounds} rounds, {world.state_rounds} of state only"
        )
    if world.cancels is not None:
        lines.append(f"live, cancelled after {world.cancels} rounds")
    try:
        report = play(world)
    except Exception as error:
        lines += getattr(error, "report").lines  # noqa: B009
        lines.append(f"{type(error).__name__}: {error}")
    else:
        lines += report.lines
    return "\n".join(lines)


def found(seed: int) -> str | None:
    """The shortest story of a seed whose world shows a difference."""
    logging.disable(logging.CRITICAL)
    try:
        world = draw(Random(seed))
        words = failure(world)
        if words is None:
            return None
        # Shrinking keeps to the same kind of difference.
        kind = words[:24]
        small = shrunk(
            world, simpler_worlds, lambda one: (failure(one) or "").startswith(kind)
        )
        return f"seed {seed}\n{story(small)}"
    finally:
        logging.disable(logging.NOTSET)
