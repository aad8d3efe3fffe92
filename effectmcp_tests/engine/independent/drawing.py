"""Random programs, edits of them, and histories: data, drawn from a `random.Random`.

Few labels are used, so that questions, steps and keys collide often. Nothing depends on
what a program does, so a world can be shrunk by deleting parts of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, TypeAlias, get_args

from attrs import evolve, field, frozen

from .programs import (
    Again,
    Attempt,
    Body,
    Do,
    Fail,
    Key,
    Leave,
    Local,
    Loop,
    Mark,
    Pause,
    Question,
    Say,
    Statement,
    StepKind,
    Sub,
    Supports,
    Together,
    Versioned,
    When,
)

__all__ = ["BOTH", "Code", "Round", "Verdict", "World", "draw", "edited"]

#: accepted with a string that starts with A or B · declined · dismissed · does not fit · missing
Verdict: TypeAlias = Literal["A", "B", "no", "close", "bad", "-"]
VERDICTS = get_args(Verdict)
BOTH = frozenset({"elicit", "confirm"})


@frozen
class Code:
    """The programs of one deployed version: the handler, and a target of `Restart`."""

    main: Body
    other: Body = ()


@frozen(kw_only=True)
class Round:
    """One request.

    Attributes:
        code: The version that serves it.
        says: A verdict for each outstanding question, in turn.
        supports: The kinds of question that its client can be asked.
        base: The state it brings: 0 is the newest, 1 the one before.
        is_lost: The reply is lost, so the state before stays the newest.
        late: Whether it also answers questions that are not out any more.
        early: Without a state: a verdict for each explicit key.
    """

    code: int = 0
    says: tuple[Verdict, ...] = ("A",)
    supports: frozenset[str] = BOTH
    base: int = 0
    is_lost: bool = False
    late: bool = False
    early: Verdict = "-"


@frozen(kw_only=True)
class World:
    """Versions of a program, and a history of requests.

    Attributes:
        rounds: The limit on interim results.
        state_rounds: The limit on those without a question.
        cancels: Live, cancelled after so many stops; `None` for a call by retry.
    """

    codes: tuple[Code, ...]
    history: tuple[Round, ...] = field(default=(Round(),) * 8)
    rounds: int | None = 9
    state_rounds: int | None = 2
    cancels: int | None = None


# ---- programs -----------------------------------------------------------------------

TEXTS = ("Go?", "Go?", "Sure?", "Name?")
STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


def question(random: Random) -> Question:
    kind: Literal["elicit", "confirm"] = random.choice(("elicit", "confirm"))
    draw = random.random()
    otherwise: str | bool | None = None
    if draw < 0.2:
        otherwise = "else" if kind == "elicit" else random.random() < 0.5
    return Question(
        kind,
        random.choice(TEXTS),
        # Each key belongs to one kind, so that a form never changes under its key.
        key=f"k{kind[0]}" if random.random() < 0.15 else None,
        outcome=0.2 < draw < 0.5,
        otherwise=otherwise,
        echo=random.random() < 0.1,
    )


def step(random: Random) -> Do:
    kind = random.choice(STEP_KINDS) if random.random() < 0.5 else "plain"
    return Do(kind, random.choice("st"), random.random() < 0.6)


def local(random: Random) -> Statement:
    """A statement that cleanup may hold."""
    draw = random.random()
    if draw < 0.6:
        kinds: tuple[StepKind, ...] = ("plain", "replayable", "charge")
        return Do(random.choice(kinds), random.choice("st"), random.random() < 0.6)
    if draw < 0.75:
        return Local(random.choice(("now", "random")))
    return random.choice((Key("k"), Mark("m"), Say("bye")))


def caught(random: Random, statement: Statement) -> Statement:
    """Most programs survive a refusal, as a flow that ended shows nothing more."""
    return Attempt((statement,)) if random.random() < 0.5 else statement


def statement(random: Random, depth: int, *, is_root: bool) -> Statement:
    draw = random.random()
    if draw < 0.32 or depth <= 0:
        asked = question(random)
        is_safe = asked.outcome or asked.otherwise is not None
        return asked if is_safe else caught(random, asked)
    if draw < 0.48:
        return caught(random, step(random))
    if draw < 0.62:
        return together(random, depth)
    if draw < 0.67:
        return Local(random.choice(("now", "random")))
    if draw < 0.71:
        return Attempt(
            body(random, depth - 1, is_root=is_root),
            body(random, depth - 2),
            tuple(local(random) for _ in range(random.choice((0, 1, 1, 2)))),
            random.random() < 0.8,
        )
    if draw < 0.76:
        return When(
            random.random() < 0.4,
            body(random, depth - 1, is_root=is_root),
            body(random, depth - 1) if random.random() < 0.5 else (),
        )
    if draw < 0.79:
        return Loop(random.choice((0, 2, 2, 3)), body(random, depth - 2))
    if draw < 0.82:
        return Sub(body(random, depth - 1))
    if draw < 0.85:
        return Pause()
    if draw < 0.87:
        return Supports(random.choice(("elicit", "confirm")))
    if draw < 0.90:
        return Key(random.choice("kl"), random.random() < 0.5)
    if draw < 0.92:
        return Versioned(random.choice("vw"), body(random, depth - 2))
    if draw < 0.94:
        return Say("hi")
    if draw < 0.97:
        return Mark(random.choice("mn"))
    if draw < 0.98:
        return Fail("oops")
    if draw < 0.99 or not is_root:
        return Leave()
    return Again("other")


def together(random: Random, depth: int) -> Together:
    count = random.choice((0, 1, 2, 2, 2, 3))
    return Together(
        tuple(body(random, depth - 1) for _ in range(count)), random.random() < 0.3
    )


def body(random: Random, depth: int, *, is_root: bool = False) -> Body:
    count = random.choice((0, 1, 1, 2, 2, 3)) if depth < 3 else random.randint(1, 7)
    return tuple(statement(random, depth, is_root=is_root) for _ in range(count))


# ---- edits --------------------------------------------------------------------------

Edit: TypeAlias = Callable[[Random, Body], Body]


def somewhere(random: Random, whole: Body, edit: Edit) -> Body:
    """Apply `edit` to the whole body or to one inside, cleanup left out."""
    choices: list[tuple[int, int]] = []
    for index, inside in enumerate(whole):
        for number, _ in enumerate(inside.bodies()):
            if not (isinstance(inside, Attempt) and number == 2):
                choices.append((index, number))
    if not choices or random.random() < 0.5:
        return edit(random, whole)
    index, number = random.choice(choices)
    inside = whole[index]
    bodies = list(inside.bodies())
    bodies[number] = somewhere(random, bodies[number], edit)
    return (*whole[:index], inside.with_bodies(tuple(bodies)), *whole[index + 1 :])


def splice(whole: Body, index: int, count: int, *new: Statement) -> Body:
    return (*whole[:index], *new, *whole[index + count :])


def insert(random: Random, whole: Body) -> Body:
    at = random.randint(0, len(whole))
    return splice(whole, at, 0, statement(random, 1, is_root=False))


def delete(random: Random, whole: Body) -> Body:
    return splice(whole, random.randrange(len(whole)), 1) if whole else whole


def replace(random: Random, whole: Body) -> Body:
    return insert(random, delete(random, whole))


def swap(random: Random, whole: Body) -> Body:
    if len(whole) < 2:
        return whole
    at = random.randrange(len(whole) - 1)
    return splice(whole, at, 2, whole[at + 1], whole[at])


def duplicate(random: Random, whole: Body) -> Body:
    if not whole:
        return whole
    at = random.randrange(len(whole))
    return splice(whole, at, 0, whole[at])


def reword(random: Random, whole: Body) -> Body:
    def other(inside: Statement) -> Statement:
        match inside:
            case Question():
                return evolve(inside, text=random.choice((*TEXTS, "New?")))
            case Do():
                return evolve(inside, label=random.choice("st"))
            case Attempt(body=(Question() | Do() as only,)):
                return evolve(inside, body=(other(only),))
            case _:
                return inside

    places = [i for i, one in enumerate(whole) if other(one) is not one]
    if not places:
        return whole
    at = random.choice(places)
    return splice(whole, at, 1, other(whole[at]))


def wrap(random: Random, whole: Body) -> Body:
    """Put some statements into a Gather of their own, or a sub-flow."""
    if not whole or any(map(restarts, whole)):
        return whole
    start = random.randrange(len(whole))
    end = random.randint(start + 1, len(whole))
    if random.random() < 0.2:
        return splice(whole, start, end - start, Sub(whole[start:end]))
    others = () if random.random() < 0.5 else (body(random, 1),)
    branches = (whole[start:end], *others)
    return splice(whole, start, end - start, Together(branches))


def unwrap(random: Random, whole: Body) -> Body:
    places = [i for i, one in enumerate(whole) if one.bodies()]
    if not places:
        return whole
    at = random.choice(places)
    return splice(whole, at, 1, *(one for b in whole[at].bodies() for one in b))


def put_inside(random: Random, whole: Body) -> Body:
    """Move the neighbour of a Gather into one of its branches, or into a new one."""
    for at, one in enumerate(whole):
        if isinstance(one, Together) and len(whole) > 1:
            near = at + 1 if at + 1 < len(whole) else at - 1
            if restarts(whole[near]):
                return whole
            branches = list(one.branches)
            if branches and random.random() < 0.6:
                which = random.randrange(len(branches))
                branches[which] = random.choice(
                    ((whole[near], *branches[which]), (*branches[which], whole[near]))
                )
            else:
                branches.insert(random.randint(0, len(branches)), (whole[near],))
            moved = evolve(one, branches=tuple(branches))
            return splice(whole, min(at, near), 2, moved)
    return whole


def branches(random: Random, whole: Body) -> Body:
    """Add, delete or exchange branches of a Gather; delete an empty one."""
    places = [i for i, one in enumerate(whole) if isinstance(one, Together)]
    if not places:
        return splice(whole, random.randint(0, len(whole)), 0, Together(()))
    at = random.choice(places)
    one = whole[at]
    assert isinstance(one, Together)
    inside = list(one.branches)
    if not inside:
        return splice(whole, at, 1)
    match random.randrange(3):
        case 0:
            inside.insert(random.randint(0, len(inside)), body(random, 1))
        case 1:
            del inside[random.randrange(len(inside))]
        case _:
            inside.reverse()
    return splice(whole, at, 1, evolve(one, branches=tuple(inside)))


def guard(random: Random, whole: Body) -> Body:
    """Add a statement for new flows only."""
    at = random.randint(0, len(whole))
    new = (step(random),) if random.random() < 0.6 else body(random, 1)
    return splice(whole, at, 0, Versioned(random.choice("vw"), new))


EDITS: tuple[Edit, ...] = (
    *(insert, insert, delete, reword, reword, replace, swap, duplicate),
    *(wrap, unwrap, put_inside, branches, guard),
)


def restarts(inside: Statement) -> bool:
    return isinstance(inside, Again) or any(
        restarts(one) for body in inside.bodies() for one in body
    )


def edited(random: Random, code: Code) -> Code:
    """Return another version of the program."""
    main, other = code.main, code.other
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        edit = random.choice(EDITS)
        if random.random() < 0.85:
            main = somewhere(random, main, edit)
        else:
            other = somewhere(random, other, edit)
    return Code(main, other)


# ---- histories ----------------------------------------------------------------------


def verdicts(random: Random) -> Iterator[Verdict]:
    obliging = random.random()
    for _ in range(random.randint(1, 4)):
        if random.random() < obliging:
            yield random.choice(("A", "A", "B"))
        else:
            yield random.choice(VERDICTS)


def draw(random: Random) -> World:
    """Draw a world."""
    return drifting(random) if random.random() < 0.05 else edited_world(random)


def drifting(random: Random) -> World:
    """Draw a program whose every version words one question differently."""
    root = body(random, 2, is_root=True)
    at = random.randint(0, len(root))
    asked = question(random)
    codes = []
    for number in range(7):
        text = f"Edition {number}?" if random.random() < 0.9 else "Go?"
        new = (step(random),) if random.random() < 0.15 else ()
        codes.append(Code((*root[:at], *new, evolve(asked, text=text), *root[at:])))
    rounds = (
        Round(code=number if random.random() < 0.9 else number // 2)
        for number in range(7)
        for _ in range(random.choice((1, 1, 1, 2)))
    )
    return World(codes=tuple(codes), history=tuple(rounds))


def edited_world(random: Random) -> World:
    codes = [Code(body(random, 3, is_root=True), body(random, 2))]
    if random.random() < 0.8:
        for _ in range(random.choice((1, 1, 2))):
            codes.append(edited(random, random.choice(codes)))
    is_forked = random.random() < 0.3
    is_limited = random.random() < 0.3
    changes = random.random() * 0.7
    history, code = [], 0
    for number in range(random.randint(3, 12)):
        if number and random.random() < changes:
            code = random.randrange(len(codes))
        kinds = [kind for kind in sorted(BOTH) if is_limited and random.random() < 0.2]
        history.append(
            Round(
                code=code,
                says=tuple(verdicts(random)),
                supports=BOTH.difference(kinds),
                base=random.choice((0, 0, 1, 2)) if is_forked else 0,
                is_lost=is_forked and random.random() < 0.25,
                late=random.random() < 0.1,
                early=random.choice(VERDICTS) if random.random() < 0.1 else "-",
            )
        )
    is_capped = random.random() < 0.1
    return World(
        codes=tuple(codes),
        history=tuple(history),
        rounds=random.choice((1, 2, 3)) if is_capped else 9,
        state_rounds=random.choice((0, 1)) if is_capped else 2,
        cancels=random.randint(0, 3) if random.random() < 0.08 else None,
    )
