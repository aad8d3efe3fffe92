"""Waiting where answers come by rounds: what equals a task, and clocks by retry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random as Dice
from typing import Any, Final
from zlib import crc32

from attrs import evolve, frozen

from effectmcp import (
    Accepted,
    Declined,
    Detach,
    Dismissed,
    Elicit,
    Random,
    Step,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    TASK,
    Answer,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Question,
    Rules,
    Run,
    Stop,
    Want,
)

from .host import FLOW_ID, outcome_of
from .laws import Broken, entries_of, law
from .programs import (
    DomainError,
    Leave,
    Limit,
    Memory,
    Menu,
    Program,
    Race,
    Save,
    Stage,
    draw_body,
    draw_program,
)

__all__ = ["Visits", "draw_visits", "play_together", "play_visits"]

#: Questions, steps and branches only, for which a task equals the rounds.
TOGETHER: Final = Menu(waits=False)
ROUNDS: Final = evolve(LIVE, at_most_once=True)

#: Clocks beside questions only, as they are refused beside steps.
VISITED: Final = Menu(once=False, step_races=False)
UNCAPPED: Final = evolve(RETRY, rounds=None, state_rounds=None)


@contextmanager
def _opened(
    program: Program, rules: Rules, journal: Journal | None = None, now: int = 0
) -> Iterator[tuple[Stage, Run]]:
    stage = Stage(program, in_task=rules.task)
    run = Run(
        stage.main,
        flow_id=FLOW_ID,
        journal=journal,
        rules=rules,
        resolve=lambda name: stage.other,
        clock=lambda: now,
        name="main",
    )
    try:
        yield stage, run
    finally:
        run.close()


def _perform(want: Want) -> Done | Failure:
    match want.effect:
        case Step() as effect:
            try:
                return Done(effect.fn(*effect.args, **effect.kwargs))
            except DomainError as error:
                return Failure(error)
        case Random():
            return Done(crc32(want.key.encode()) % 97 / 97)
        case Detach():
            return Done(False)
        case effect if type(effect).__name__ == "Sleep":
            return Done(None)
        case effect:
            raise Broken("host", f"it cannot perform {effect!r}")


def _settled(run: Run, stop: Stop) -> Stop:
    """Perform wants until a stop has none; return that stop."""
    while isinstance(stop, Perform):
        stop = run.performed({want.key: _perform(want) for want in stop.wants})
    return stop


def _says(question: Question, salt: int = 0) -> Answer:
    number = crc32(f"{question.key}{salt}".encode())
    match number % 6:
        case 0:
            return Declined()
        case 1:
            return Dismissed()
        case _ if isinstance(question.effect, Elicit):
            return Accepted({"value": number % 100})
        case _:
            return Accepted({})


# ---- law 6 --------------------------------------------------------------------------


def play_together(seed: int) -> Program:
    """A task whose answers arrive together has the journal of the rounds.

    Raises:
        Broken: It has not.
    """
    program = draw_program(Dice(seed), TOGETHER)
    journals = []
    for rules in (TASK, ROUNDS):
        with _opened(program, rules) as (_, run):
            stop = _settled(run, run.start())
            for _ in range(100):
                if not isinstance(stop, Asked):
                    break
                answers = {one.key: _says(one, seed) for one in stop.questions}
                stop = _settled(run, run.answered(answers))
            journals.append((outcome_of(stop), run.journal.dumps()))
    task, rounds = journals
    law("6 together", task == rounds, (task, rounds))
    return program


# ---- law 8 --------------------------------------------------------------------------


@frozen
class Visits:
    """A flow that a client comes back to.

    Attributes:
        program: The program; it begins with a `Detach` that gives False.
        pauses: The time between two rounds, in order.
        answered: Which of its questions a round answers, as bits.
        unfit: Whether the first of its answers does not fit, in order.
    """

    program: Program
    pauses: tuple[int, ...]
    answered: tuple[int, ...]
    unfit: tuple[bool, ...]


def draw_visits(dice: Dice) -> Visits:
    """Draw a flow with clocks, whose answers come by retry."""
    body = draw_body(dice, VISITED, dice.randint(2, 9), 0, restarts=False)
    return Visits(
        Program((Leave(), *body)),
        tuple(dice.choice([0, 1, 2, 3, 7]) for _ in range(16)),
        tuple(dice.choice([7, 7, 7, 1, 2, 0, 5]) for _ in range(16)),
        tuple(dice.random() < 0.1 for _ in range(16)),
    )


def play_visits(visits: Visits) -> int:
    """Play rounds; return how many.

    Raises:
        Broken: A clock is not what V3 says, or a replay differs.
    """
    now, text = 0, b""
    questions: tuple[Question, ...] = ()
    for number in range(16):
        journal = Journal.loads(text) if text else Journal()
        unfit: set[str] = set()
        answers: dict[str, Answer] = {}
        for index, one in enumerate(questions):
            if visits.answered[number] >> (index % 3) & 1:
                answers[one.key] = _says(one, number)
                if visits.unfit[number] and not unfit:
                    unfit.add(one.key)
                    bad: Any = (
                        {"value": "x"} if isinstance(one.effect, Elicit) else False
                    )
                    answers[one.key] = Accepted(bad)
        fit = {
            journal.asked[key].place
            for key in answers
            if key not in unfit or journal.asked[key].unfit == 2
        }
        before = _races(visits, journal, now) if text else {}
        with _opened(visits.program, UNCAPPED, journal, now) as (stage, run):
            stop = run.start(answers)
            _check_races(before, fit, journal, run.journal, now)
            stop = _settled(run, stop)
            after, memory = run.journal, stage.memory
            text = after.dumps()
            if isinstance(stop, Asked):
                _check_dues(memory, journal, after, now)
            _check_cold(visits, text, now, stop, memory)
        if not isinstance(stop, Asked):
            return number + 1
        questions = stop.questions
        now += visits.pauses[number]
    return 16


Waiting = Mapping[str, Any]


def _races(visits: Visits, journal: Journal, now: int) -> Waiting:
    """Return the races that are waited for, as a dry replay finds them."""
    with _opened(visits.program, UNCAPPED, journal, -1) as (stage, run):
        run.start()
        kept = entries_of(run.journal)
        leaves = list(stage.memory.waiting.values())
    asked = {one.place for one in journal.asked.values()}
    return {
        leaf.place: leaf
        for leaf in leaves
        if isinstance(leaf.statement, (Limit, Race))
        and leaf.place not in kept
        and asked.intersection(leaf.questions())
    }


def _check_races(
    races: Waiting, fit: set[str], before: Journal, after: Journal, now: int
) -> None:
    """A clock that is up beats the answers of this round; else the first answer wins."""
    entries = entries_of(after)
    for place, leaf in races.items():
        dues = {at: before.places[at].due for at in leaf.clocks()}
        up = {at: due for at, due in dues.items() if due is not None and due <= now}
        parts = [at for at, _ in leaf.parts()]
        arrived = [index for index, at in enumerate(parts) if at in fit]
        law("8 due is journaled", None not in dues.values(), dues)
        entry = entries.get(place)
        if not (up or arrived):
            law("8 nothing", entry is None, (place, entry))
            continue
        if entry is None:
            raise Broken("8 decided", (place, up, arrived))
        if up and place in up:
            law("8 clock", entry.value is None, (place, entry))
        elif up:
            first = min((due, parts.index(at)) for at, due in up.items())[1]
            law("8 clock", entry.value[0] == first, (place, entry, up))
        else:
            law("8 answer", entry.value[0] == arrived[0], (place, entry))


def _check_dues(memory: Memory, before: Journal, after: Journal, now: int) -> None:
    entries = entries_of(after)
    waiting = [one for one in memory.waiting.values() if one.place not in entries]
    clocks = {
        at: seconds
        for leaf in waiting
        if leaf.questions()
        for at, seconds in leaf.clocks().items()
    }
    dues = {at: one.due for at, one in after.places.items() if one.due is not None}
    law("8 clocks", set(dues) == set(clocks), (dues, clocks))
    for at, due in dues.items():
        known = before.places.get(at)
        if known is not None and known.due is not None:
            law("8 due moved", due == known.due, (at, known, due))
        else:
            law("8 due", due == now + clocks[at], (at, due, now))


def _check_cold(
    visits: Visits, text: bytes, now: int, stop: Stop, memory: Memory
) -> None:
    if any(isinstance(leaf.statement, Save) for leaf in memory.waiting.values()):
        return  # a checkpoint's round is over when it is recorded
    journal = Journal.loads(text)
    dues = [one.due for one in journal.places.values() if one.due is not None]
    at = now - (min(dues, default=now + 1) <= now)
    with _opened(visits.program, UNCAPPED, journal, at) as (stage, run):
        again, found, after = run.start(), stage.memory, run.journal
        law("8 cold", outcome_of(again) == outcome_of(stop), (stop, again))
        law("8 cold", found.events == memory.events, (memory, found))
    after = evolve(after, rounds=journal.rounds, state_rounds=journal.state_rounds)
    law("8 cold", after.dumps() == text, (text, after.dumps()))
