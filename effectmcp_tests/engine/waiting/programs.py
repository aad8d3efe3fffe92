"""Programs as data, drawn from a seed, and the generator that plays one.

A program is a tuple of statements. All branches of a run append to one list of events, and
messages, arguments and conditions are computed from that list. So an order of events that
differs in a replay shows as a divergence, or as another list.

    Ask Nap Limit Race Save       waits for people and clocks
    Do Draw Mark Leave            work of this process
    When Repeat Attempt Together  ordinary Python: branches, loops, try
    Choose Again Fail             versions and ways to end

The player notes where each branch waits, in `Memory.waiting`, and which leaves waited when
an effect was delivered, in `Memory.log`. Both are computed from the program alone, so the
schedule of the engine can be judged by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from random import Random as Dice
from typing import Any, Final, Literal, TypeAlias
from zlib import crc32

from attrs import define, evolve, field, frozen

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Detach,
    Effect,
    Elicit,
    FirstOf,
    Gather,
    IdempotencyKey,
    Outcome,
    Random,
    Restart,
    Sleep,
    Step,
    TimedOut,
    Version,
    Within,
    step,
)
from effectmcp.errors import Signal

__all__ = [
    "Again",
    "Ask",
    "Attempt",
    "Body",
    "Choose",
    "Do",
    "Draw",
    "Fail",
    "Leaf",
    "Leave",
    "Limit",
    "Mark",
    "Memory",
    "Nap",
    "Part",
    "Program",
    "Race",
    "Repeat",
    "Save",
    "Stage",
    "Statement",
    "StepKind",
    "Together",
    "When",
    "bodies",
    "draw_program",
    "has",
    "show",
    "simpler_programs",
    "statements",
    "with_bodies",
]

StepKind: TypeAlias = Literal["plain", "failing", "replayable", "once", "flaky"]
Flow: TypeAlias = Generator[Effect[Any], Any, Any]


class DomainError(Exception):
    """Raised by failing steps."""


class LocalError(Exception):
    """Raised by `Fail`."""


def plain(name: str, about: int) -> str:
    return name


def failing(name: str, about: int) -> str:
    raise DomainError(name)


def replayable(name: str, about: int) -> str:
    return name


def once(name: str, about: int) -> str:
    return name


def flaky(name: str, about: int) -> str:
    return name


STEPS: Final[dict[StepKind, Callable[..., Step[str]]]] = {
    "plain": step(plain),
    "failing": step(raises=(DomainError,))(failing),
    "replayable": step(replayable=True)(replayable),
    "once": step(at_most_once=True)(once),
    # Drawn only for hosts that try again.
    "flaky": step(retries=2)(flaky),
}

# ---- statements ---------------------------------------------------------------------


@frozen
class Ask:
    """Ask a question.

    Attributes:
        kind: The kind of question.
        text: Its text.
        key: Its explicit key.
        outcome: Whether a refusal comes as a value.
        otherwise: Whether a refusal gives a default.
        echo: Whether the text shows a digest of all events.
    """

    kind: Literal["elicit", "confirm"]
    text: str
    key: str | None = None
    outcome: bool = False
    otherwise: bool = False
    echo: bool = False


@frozen
class Do:
    """Perform a step; with `echo` its argument is a digest of all events."""

    kind: StepKind
    name: str
    echo: bool = False


@frozen
class Nap:
    """Sleep."""

    seconds: int


Part: TypeAlias = Ask | Do | Nap


@frozen
class Limit:
    """Wait for one part, within a time."""

    seconds: int
    part: Part


@frozen
class Race:
    """Wait for the first of some parts."""

    parts: tuple[Part, ...]


@frozen
class Save:
    """Pass a checkpoint."""


@frozen
class Draw:
    """Draw a random number."""


@frozen
class Mark:
    """Take an idempotency key."""

    name: str


@frozen
class Leave:
    """Detach."""


@frozen
class Choose:
    """Ask for a version."""

    id: str


@frozen
class When:
    """Branch on the number of events of all branches."""

    then: Body
    orelse: Body


@frozen
class Repeat:
    """Play a body some times."""

    times: int
    body: Body


@frozen
class Attempt:
    """Play a body; catch exceptions, or clean up, or both."""

    body: Body
    catches: bool
    cleanup: Body


@frozen
class Together:
    """Play bodies as branches."""

    branches: tuple[Body, ...]


@frozen
class Again:
    """Restart as the other body, at most twice."""


@frozen
class Fail:
    """Raise an exception."""


Statement: TypeAlias = (
    Ask
    | Do
    | Nap
    | Limit
    | Race
    | Save
    | Draw
    | Mark
    | Leave
    | Choose
    | When
    | Repeat
    | Attempt
    | Together
    | Again
    | Fail
)
Body: TypeAlias = tuple[Statement, ...]


@frozen
class Program:
    """A handler, and the handler that it restarts as."""

    main: Body
    other: Body = ()


# ---- playing ------------------------------------------------------------------------


@frozen
class Leaf:
    """A branch that waits.

    Attributes:
        path: The branch, as positions below the root.
        place: The place of the effect in the flow.
        statement: The effect.
        is_wait: Whether people or clocks are waited for.
    """

    path: tuple[int, ...]
    place: str
    statement: Statement
    is_wait: bool

    def parts(self) -> list[tuple[str, Part]]:
        """Return the awaited parts, with places: the parts of a race, or itself."""
        match self.statement:
            case Limit(_, part):
                return [(f"{self.place}/0/{_part_key(part)}", part)]
            case Race(parts):
                return [
                    (f"{self.place}/{index}/{_part_key(part)}", part)
                    for index, part in enumerate(parts)
                ]
            case Ask() | Do() | Nap() as part:
                return [(self.place, part)]
            case _:
                return []

    def questions(self) -> list[str]:
        """Return the places of the questions in it."""
        return [place for place, part in self.parts() if isinstance(part, Ask)]

    def steps(self) -> list[str]:
        """Return the places of the steps in it."""
        return [place for place, part in self.parts() if isinstance(part, Do)]

    def clocks(self) -> dict[str, int]:
        """Return the places with a running clock, and its seconds."""
        clocks = {
            place: part.seconds for place, part in self.parts() if isinstance(part, Nap)
        }
        if isinstance(self.statement, Limit):
            clocks[self.place] = self.statement.seconds
        return clocks


def _part_key(part: Part) -> str:
    match part:
        case Ask():
            return part.key or f"{part.kind}-1"
        case Do():
            return "step-1"
        case Nap():
            return "sleep-1"


@frozen
class Delivered:
    """A delivery, as its branch saw it.

    Attributes:
        leaf: What the branch waited for.
        leaves: The places of all leaves that waited then, and whether for people or clocks.
        value: What it got.
    """

    leaf: Leaf
    leaves: Mapping[str, bool]
    value: Any

    @property
    def is_time_up(self) -> bool:
        """Whether a race was decided by a clock."""
        match self.leaf.statement, self.value:
            case Limit(), TimedOut():
                return True
            case Race(parts), (int(position), _):
                return isinstance(parts[position], Nap)
            case _:
                return False


@define(eq=False)
class Memory:
    """The Python objects that all branches of one generation share.

    Attributes:
        events: Everything that the branches met, in order.
        waiting: What each branch waits for, by path.
        log: All deliveries.
        closed: Where branches were when a signal was thrown, in order.
        failed: The places of the Gathers with a branch that failed by itself.
        taken_back: The places in `closed` that a sibling's failure closed.
    """

    events: list[Any] = field(factory=list)
    waiting: dict[tuple[int, ...], Leaf] = field(factory=dict)
    log: list[Delivered] = field(factory=list)
    closed: list[Leaf] = field(factory=list)
    failed: set[str] = field(factory=set)
    taken_back: set[str] = field(factory=set)

    def steps(self, generation: int) -> set[str]:
        """Return the keys of the steps and the like that are waited for."""
        prefix = f"r{generation}/" if generation else ""
        leaves = self.waiting.values()
        return {prefix + place for leaf in leaves for place in leaf.steps()}


@define(eq=False)
class Frame:
    """The local variables of one sequence."""

    stage: Stage
    memory: Memory
    depth: int = 0
    path: tuple[int, ...] = ()
    prefix: str = ""
    ordinals: Counter[str] = field(factory=Counter)
    is_closed: bool = False

    def note(self, *event: Any) -> None:
        self.memory.events.append((self.path, *event))

    def seen(self) -> list[Any]:
        """Return the events that this sequence may look at."""
        events = self.memory.events
        if self.stage.shares_events:
            return events
        return [one for one in events if one[0] == self.path]

    def digest(self) -> int:
        return crc32(repr(self.seen()).encode()) % 1000

    def place(self, kind: str, key: str | None = None) -> str:
        """Return the place of the next effect of a kind, as defined by rule E3."""
        name = kind if key is None else f"={key}"
        self.ordinals[name] += 1
        nth = self.ordinals[name]
        if key is None:
            return f"{self.prefix}{kind}-{nth}"
        return f"{self.prefix}{key}" + (f"#{nth}" if nth > 1 else "")


def played(body: Body, frame: Frame) -> Flow:
    """Play a body; return the number of events at its end."""
    yield from _play(body, frame)
    frame.note("end")
    return len(frame.seen())


def _play(body: Body, frame: Frame) -> Flow:
    for one in body:
        yield from _STATEMENTS[type(one)](one, frame)


def shown(value: Any) -> Any:
    """Return a value in a form that is compared and printed well."""
    match value:
        case Accepted(inner):
            return ("Accepted", inner)
        case tuple():
            return tuple(map(shown, value))
        case None | bool() | int() | float() | str():
            return value
        case _:
            return type(value).__name__


def _wait(
    frame: Frame, statement: Any, kind: str, effect: Effect[Any] | None = None
) -> Flow:
    memory, key = frame.memory, None
    is_wait = kind in _WAITS and (kind in _ROUNDS or frame.stage.in_task)
    if isinstance(statement, Ask):
        key = statement.key
    leaf = Leaf(frame.path, frame.place(kind, key), statement, is_wait)
    if effect is None:
        effect = _effect_of(leaf, frame)
    memory.waiting[frame.path] = leaf
    try:
        value = yield effect
    except Signal as signal:
        memory.waiting.pop(frame.path, None)
        memory.closed.append(leaf)
        if any(leaf.place.startswith(f"{gather}/") for gather in memory.failed):
            memory.taken_back.add(leaf.place)
        frame.is_closed = True
        frame.note("closed", type(signal).__name__)
        raise
    except Exception as error:
        _delivered(frame, leaf, error)
        raise
    _delivered(frame, leaf, value)
    return value


def _delivered(frame: Frame, leaf: Leaf, value: Any) -> None:
    memory = frame.memory
    leaves = {one.place: one.is_wait for one in memory.waiting.values()}
    if isinstance(value, Exception):
        value = f"{type(value).__name__}: {value}"
    memory.log.append(Delivered(leaf, leaves, value))
    del memory.waiting[frame.path]
    frame.note(leaf.place, shown(value))


#: Kinds that wait for people, everywhere; and for clocks, in a task.
_ROUNDS: Final = frozenset({"elicit", "confirm", "checkpoint"})
_WAITS: Final = _ROUNDS | {"sleep", "within", "first"}


def _effect_of(leaf: Leaf, frame: Frame) -> Effect[Any]:
    parts = [_part(part, place, frame) for place, part in leaf.parts()]
    match leaf.statement:
        case Limit(seconds):
            return Within(seconds, *parts)
        case Race():
            return FirstOf(*parts)
        case _:
            (effect,) = parts
            return effect


def _part(part: Part, place: str, frame: Frame) -> Effect[Any]:
    match part:
        case Ask():
            text = part.text
            if part.echo:
                text = f"{text} {frame.digest()}"
            if frame.stage.shows_places:
                text = f"{text} @{place}"
            more: dict[str, Any] = {"otherwise": False} if part.otherwise else {}
            request: Any
            if part.kind == "confirm":
                request = Confirm(text, key=part.key, **more)
            else:
                request = Elicit(text, int, key=part.key, **more)
            return Outcome(request) if part.outcome else request
        case Do():
            about = frame.digest() if part.echo else 0
            return STEPS[part.kind](part.name, about)
        case Nap():
            return Sleep(part.seconds)


def _ask(one: Ask, frame: Frame) -> Flow:
    yield from _wait(frame, one, one.kind)


def _do(one: Do, frame: Frame) -> Flow:
    yield from _wait(frame, one, "step")


def _nap(one: Nap, frame: Frame) -> Flow:
    yield from _wait(frame, one, "sleep")


def _limit(one: Limit, frame: Frame) -> Flow:
    yield from _wait(frame, one, "within")


def _race(one: Race, frame: Frame) -> Flow:
    yield from _wait(frame, one, "first")


def _save(one: Save, frame: Frame) -> Flow:
    yield from _wait(frame, one, "checkpoint", Checkpoint())


def _draw(one: Draw, frame: Frame) -> Flow:
    yield from _wait(frame, one, "random", Random())


def _mark(one: Mark, frame: Frame) -> Flow:
    key = yield from IdempotencyKey(one.name)
    frame.note("key", one.name, key)


def _leave(one: Leave, frame: Frame) -> Flow:
    if (yield from _wait(frame, one, "detach", Detach())):
        frame.stage.in_task = True


def _choose(one: Choose, frame: Frame) -> Flow:
    value = yield from Version(one.id, default=1, latest=2)
    frame.note("version", value)


def _when(one: When, frame: Frame) -> Flow:
    yield from _play(one.orelse if len(frame.seen()) % 2 else one.then, frame)


def _repeat(one: Repeat, frame: Frame) -> Flow:
    for _ in range(one.times):
        yield from _play(one.body, frame)


def _attempt(one: Attempt, frame: Frame) -> Flow:
    try:
        yield from _play(one.body, frame)
    except Exception as error:
        frame.note("caught", type(error).__name__)
        if not one.catches:
            raise
    finally:
        frame.note("finally")
        yield from _play(one.cleanup, frame)


def _together(one: Together, frame: Frame) -> Flow:
    place = frame.place("gather")
    branches = [
        _branch(
            body,
            Frame(
                frame.stage,
                frame.memory,
                frame.depth,
                (*frame.path, index),
                f"{place}/{index}/",
            ),
            place,
        )
        for index, body in enumerate(one.branches)
    ]
    try:
        values = yield from Gather(*branches)
    except Signal:
        frame.is_closed = True
        raise
    frame.note("joined", tuple(values))


def _branch(body: Body, frame: Frame, gather: str) -> Flow:
    try:
        return (yield from played(body, frame))
    except Exception:
        if not frame.is_closed:  # a failure in cleanup closes no sibling
            frame.memory.failed.add(gather)
        raise


def _again(one: Again, frame: Frame) -> Flow:
    if frame.depth < 2:
        effect = Restart(frame.stage.other, frame.depth + 1)
        yield from _wait(frame, one, "restart", effect)


def _fail(one: Fail, frame: Frame) -> Flow:
    frame.note("fails")
    yield from ()
    raise LocalError


_STATEMENTS: Final[dict[type, Callable[[Any, Frame], Flow]]] = {
    Ask: _ask,
    Do: _do,
    Nap: _nap,
    Limit: _limit,
    Race: _race,
    Save: _save,
    Draw: _draw,
    Mark: _mark,
    Leave: _leave,
    Choose: _choose,
    When: _when,
    Repeat: _repeat,
    Attempt: _attempt,
    Together: _together,
    Again: _again,
    Fail: _fail,
}


class Stage:
    """A process that plays a program.

    Attributes:
        program: The program.
        in_task: Whether waiting is free now.
        shares_events: Whether branches look at the events of each other.
        shows_places: Whether the text of a question ends with its place.
        memory: The memory of the latest generation.
        other: The handler that the program restarts as.
    """

    def __init__(
        self,
        program: Program,
        *,
        in_task: bool,
        shares_events: bool = True,
        shows_places: bool = False,
    ) -> None:
        self.program = program
        self.in_task = in_task
        self.shares_events = shares_events
        self.shows_places = shows_places
        self.memory = Memory()

        def other(depth: int) -> Flow:
            return self.play(self.program.other, depth)

        self.other = other

    def main(self) -> Flow:
        return self.play(self.program.main, 0)

    def play(self, body: Body, depth: int) -> Flow:
        self.memory = Memory()
        return played(body, Frame(self, self.memory, depth))


# ---- looking at programs ------------------------------------------------------------


def bodies(one: Statement) -> tuple[Body, ...]:
    """Return the bodies in a statement."""
    match one:
        case When(then, orelse):
            return then, orelse
        case Repeat(_, body):
            return (body,)
        case Attempt(body, _, cleanup):
            return body, cleanup
        case Together(branches):
            return branches
        case _:
            return ()


def with_bodies(one: Statement, new: tuple[Body, ...]) -> Statement:
    """Return a statement with other bodies in it."""
    match one:
        case When():
            return When(*new)
        case Repeat():
            return evolve(one, body=new[0])
        case Attempt():
            return evolve(one, body=new[0], cleanup=new[1])
        case Together():
            return Together(new)
        case _:
            return one


def statements(body: Body) -> Iterator[Statement]:
    """Yield all statements, those inside of others too."""
    for one in body:
        yield one
        for inside in bodies(one):
            yield from statements(inside)


def has(program: Program, *types: type) -> bool:
    """Whether a statement of these types is in a program."""
    return any(
        isinstance(one, types)
        for body in (program.main, program.other)
        for one in statements(body)
    )


def show(body: Body, indent: str = "  ") -> str:
    """Return a body as indented lines."""
    lines = []
    for one in body:
        match one:
            case When(then, orelse):
                lines += [f"{indent}if even:", show(then, indent + "  ")]
                if orelse:
                    lines += [f"{indent}else:", show(orelse, indent + "  ")]
            case Repeat(times, inside):
                lines += [f"{indent}{times} times:", show(inside, indent + "  ")]
            case Attempt(inside, catches, cleanup):
                lines += [f"{indent}try:", show(inside, indent + "  ")]
                if catches:
                    lines.append(f"{indent}except: pass")
                if cleanup or not catches:
                    lines += [f"{indent}finally:", show(cleanup, indent + "  ")]
            case Together(branches):
                lines.append(f"{indent}gather:")
                for index, inside in enumerate(branches):
                    lines += [f"{indent} [{index}]", show(inside, indent + "    ")]
            case _:
                lines.append(f"{indent}{brief(one)}")
    return "\n".join(line for line in lines if line)


def brief(one: Statement) -> str:
    """Return a statement in a few words."""
    match one:
        case Ask():
            marks = [
                f"key={one.key}" if one.key else "",
                "outcome" if one.outcome else "",
                "otherwise" if one.otherwise else "",
                "echo" if one.echo else "",
            ]
            return " ".join([one.kind, repr(one.text), *filter(None, marks)])
        case Do():
            return f"{one.kind} step {one.name!r}" + (" echo" if one.echo else "")
        case Nap(seconds):
            return f"sleep {seconds}"
        case Limit(seconds, part):
            return f"within {seconds}: {brief(part)}"
        case Race(parts):
            return "first of: " + " | ".join(map(brief, parts))
        case _:
            return type(one).__name__.lower()


# ---- drawing ------------------------------------------------------------------------


@frozen
class Menu:
    """The choices that a strategy may draw.

    Attributes:
        waits: Whether clocks, races and checkpoints may be.
        once: Whether steps may be that are performed at most once.
        step_races: Whether steps may be in races with questions.
    """

    waits: bool = True
    once: bool = True
    step_races: bool = True


def draw_program(dice: Dice, menu: Menu = Menu(), *, detaches: bool = False) -> Program:
    """Draw a program."""
    main = draw_body(dice, menu, dice.randint(3, 12), 0)
    if detaches:
        before = Menu(waits=False, once=menu.once)
        main = (*draw_body(dice, before, dice.randint(0, 5), 0, False), Leave(), *main)
    found = Program(main, draw_body(dice, menu, dice.randint(0, 5), 0))
    return found if has(Program(main), Again) else evolve(found, other=())


def draw_body(
    dice: Dice, menu: Menu, size: int, depth: int, restarts: bool = True
) -> Body:
    body: list[Statement] = []
    while size > 0:
        one, cost = _draw_statement(dice, menu, size, depth, restarts)
        body.append(one)
        size -= cost
    return tuple(body)


def _draw_statement(
    dice: Dice, menu: Menu, size: int, depth: int, restarts: bool
) -> tuple[Statement, int]:
    kind = dice.choices(
        ["part", "limit", "race", "save", "draw", "choose", "fail", "again"]
        + ["together", "attempt", "when", "repeat"],
        [20, 6, 6, 2, 2, 1, 1, 1, 14, 5, 3, 2],
    )[0]
    if kind in ("limit", "race", "save") and not menu.waits:
        kind = "part"
    if kind == "again" and (depth or not restarts):
        kind = "part"
    inner = dice.randint(1, max(1, size - 1))
    match kind:
        case "limit":
            one = draw_part(dice, menu)
            while not menu.step_races and not isinstance(one, Ask):
                one = draw_part(dice, menu)
            return Limit(dice.randint(0, 6), one), 1
        case "race":
            parts = [draw_part(dice, menu) for _ in range(dice.randint(2, 3))]
            if not menu.step_races:
                parts = [one for one in parts if not isinstance(one, Do)]
                parts.append(Ask("elicit", "A?"))
            return Race(tuple(parts)), 1
        case "save":
            return Save(), 1
        case "draw":
            return Draw(), 1
        case "choose":
            return Choose(dice.choice("vw")), 1
        case "fail":
            return Fail(), 1
        case "again":
            return Again(), 1
        case "together" if size > 1 and depth < 3:
            count = dice.choice([1, 2, 2, 2, 3, 3, 4])
            branches = [
                draw_body(dice, menu, dice.randint(0, max(1, inner)), depth + 1)
                for _ in range(count)
            ]
            return Together(tuple(branches)), inner + 1
        case "attempt":
            cleanup: Body = ()
            if dice.random() < 0.7:
                cleanup = (Do(dice.choice(_kinds(menu)), "undo"),)
                if dice.random() < 0.3:
                    cleanup = (*cleanup, *draw_body(dice, menu, 1, 9))
            inside = draw_body(dice, menu, inner, depth, restarts)
            return Attempt(inside, dice.random() < 0.6, cleanup), inner + 1
        case "when":
            then = draw_body(dice, menu, inner, depth, restarts)
            orelse = draw_body(dice, menu, dice.randint(0, 2), depth, restarts)
            return When(then, orelse), inner + 1
        case "repeat":
            inside = draw_body(dice, menu, min(inner, 3), depth, restarts)
            return Repeat(dice.randint(2, 3), inside), 2 * len(inside) + 1
        case _:
            return draw_part(dice, menu), 1


def _kinds(menu: Menu) -> list[StepKind]:
    kinds: list[StepKind] = ["plain", "plain", "failing", "replayable"]
    return [*kinds, "once"] if menu.once else kinds


def draw_part(dice: Dice, menu: Menu) -> Part:
    kind = dice.choices(["ask", "do", "nap"], [5, 4, 2 * menu.waits])[0]
    echo = dice.random() < 0.3
    match kind:
        case "ask":
            how = dice.choice(["", "", "outcome", "otherwise"])
            return Ask(
                dice.choice(["elicit", "confirm"]),
                dice.choice(["A?", "B?", "C?"]),
                key=dice.choice(["k", "l"]) if dice.random() < 0.2 else None,
                outcome=how == "outcome",
                otherwise=how == "otherwise",
                echo=echo,
            )
        case "do":
            return Do(dice.choice(_kinds(menu)), dice.choice("stu"), echo)
        case _:
            return Nap(dice.randint(0, 6))


# ---- shrinking ----------------------------------------------------------------------


def simpler_programs(program: Program) -> Iterator[Program]:
    """Yield programs with a part less, the largest parts first."""
    if program.other:
        yield evolve(program, other=())
    for main in _simpler_bodies(program.main):
        yield evolve(program, main=main)
    for body in _simpler_bodies(program.other):
        yield evolve(program, other=body)


def _simpler_bodies(body: Body) -> Iterator[Body]:
    for at, one in enumerate(body):
        before, after = body[:at], body[at + 1 :]
        yield before + after
        for inside in bodies(one):
            yield before + inside + after
        for simpler in _simpler_statements(one):
            yield (*before, simpler, *after)


def _simpler_parts(part: Part) -> Iterator[Part]:
    for simpler in _simpler_statements(part):
        if isinstance(simpler, (Ask, Do, Nap)):
            yield simpler


def _simpler_statements(one: Statement) -> Iterator[Statement]:
    match one:
        case Together(branches):
            for index in range(len(branches)):
                yield Together(branches[:index] + branches[index + 1 :])
        case Attempt(body, catches, cleanup):
            if catches:
                yield Attempt(body, False, cleanup)
        case Repeat(times, body) if times > 2:
            yield Repeat(2, body)
        case Ask() if one != (bare := Ask(one.kind, one.text)):
            yield bare
            yield evolve(one, echo=False)
            yield evolve(one, key=None)
            yield evolve(one, outcome=False, otherwise=False)
        case Do() if one.kind != "plain" or one.echo:
            yield Do("plain", one.name)
            yield evolve(one, echo=False)
        case Limit(seconds, part):
            yield part
            if seconds > 1:
                yield Limit(1, part)
            for simpler in _simpler_parts(part):
                yield evolve(one, part=simpler)
        case Race(parts):
            yield from parts
            for index in range(len(parts)):
                if len(parts) > 1:
                    yield Race(parts[:index] + parts[index + 1 :])
                for simpler in _simpler_parts(parts[index]):
                    rest = parts[index + 1 :]
                    yield evolve(one, parts=(*parts[:index], simpler, *rest))
        case Nap(seconds) if seconds > 1:
            yield Nap(1)
        case _:
            pass
    inner = bodies(one)
    for index, inside in enumerate(inner):
        for body in _simpler_bodies(inside):
            yield with_bodies(one, (*inner[:index], body, *inner[index + 1 :]))
