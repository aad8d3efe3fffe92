"""Programs as data, and the interpreter that plays one as a generator handler.

A program is a tuple of statements. The interpreter knows neither the engine nor the model:
each gives it a `Builder`, which makes the effects that a program yields. So both are driven
by the same generator, and what the generator notes down can be compared.

    Question Pause Supports               what the client answers, or what is known of it
    Local Do Key Versioned Say            what this process does
    Mark When Loop Sub Attempt Together   ordinary Python: state, branches, loops, try
    Again Fail Leave                      ways to end
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from attrs import define, evolve, field, frozen

__all__ = [
    "Again",
    "Attempt",
    "Body",
    "Builder",
    "Do",
    "Fail",
    "Frame",
    "Key",
    "Leave",
    "Local",
    "Loop",
    "Mark",
    "Memory",
    "Pause",
    "Question",
    "Say",
    "Statement",
    "Sub",
    "Supports",
    "Together",
    "Versioned",
    "When",
    "described",
    "play",
    "show",
]

Flow: TypeAlias = Generator[Any, Any, Any]
StepKind: TypeAlias = Literal[
    "plain", "replayable", "raising", "declared", "foreign", "mutating", "charge"
]


class Builder(Protocol):
    """Interface of what makes the effects of a program."""

    def question(self, question: Question, text: str) -> Any: ...
    def local(self, kind: Literal["now", "random"]) -> Any: ...
    def step(self, kind: StepKind, args: tuple[Any, ...]) -> Any: ...
    def pause(self) -> Any: ...
    def supports(self, kind: Literal["elicit", "confirm"]) -> Any: ...
    def version(self, id: str) -> Any: ...
    def key(self, name: str, about: tuple[Any, ...]) -> Any: ...
    def say(self, label: str) -> Any: ...
    def gather(self, branches: list[Any]) -> Any: ...
    def again(self, name: str) -> Any: ...


@define(eq=False)
class Memory:
    """The Python objects that all branches of one run share.

    Attributes:
        events: Everything that the handler met, in order.
        uses: How often each counted step was wanted.
        last: The last value that any branch received.
    """

    events: list[tuple[Any, ...]] = field(factory=list)
    uses: Counter[str] = field(factory=Counter)
    last: Any = None


@define(eq=False)
class Frame:
    """The local variables of one sequence."""

    memory: Memory
    make: Builder
    path: tuple[int, ...] = ()
    last: Any = None

    def note(self, *event: Any) -> None:
        self.memory.events.append((self.path, *event))

    def got(self, name: str, value: Any) -> None:
        value = plain(value)
        self.last = self.memory.last = value
        self.note("got", name, value)


class LocalError(Exception):
    """Raised by `Fail`."""


class Left(Exception):
    """An early return, out of the sequence that is played."""


def plain(value: Any) -> Any:
    """Return `value` in a form that is equal for both engines."""
    name = type(value).__name__
    if name == "Accepted":
        return (name, value.value)
    return name if name in ("Declined", "Dismissed") else value


#: Exceptions whose message the rules fix; others quote source lines or limits.
SPOKEN = {"LocalError", "ValueError", "DomainError", "StepFailed", "Unsupported"}


def described(error: BaseException) -> tuple[str, str]:
    """The name of an exception, and its text if both engines must agree on it."""
    name = type(error).__name__
    return name, str(error) if name in SPOKEN else ""


# ---- statements ---------------------------------------------------------------------


class Statement:
    """One statement of a program."""

    __slots__ = ()
    #: The fields that hold statements.
    inner: ClassVar[tuple[str, ...]] = ()

    def play(self, frame: Frame) -> Flow:
        raise NotImplementedError

    def bodies(self) -> tuple[Body, ...]:
        """The sequences of statements inside."""
        return tuple(getattr(self, name) for name in self.inner)

    def with_bodies(self, bodies: tuple[Body, ...]) -> Statement:
        """A copy with other sequences inside."""
        return evolve(self, **dict(zip(self.inner, bodies, strict=True)))  # type: ignore[misc]

    def head(self) -> str:
        """The statement as one line, without its inner statements."""
        return type(self).__name__.lower()


Body: TypeAlias = tuple[Statement, ...]


@frozen
class Question(Statement):
    """Ask the client. `echo` makes the text depend on the last local value."""

    kind: Literal["elicit", "confirm"]
    text: str
    key: str | None = None
    outcome: bool = False
    otherwise: str | bool | None = None
    echo: bool = False

    def play(self, frame: Frame) -> Flow:
        text = f"{self.text} {frame.last}" if self.echo else self.text
        frame.note("wants", self.kind, self.key, text)
        try:
            value = plain((yield frame.make.question(self, text)))
        except Exception:
            frame.note("heard", self.kind, self.key, text)
            raise
        frame.note("heard", self.kind, self.key, text)
        if self.kind == "confirm" and value in (True, ("Accepted", True)):
            if self.otherwise is not True:
                frame.note("consents", text)
        frame.got(text, value)

    def head(self) -> str:
        options = "".join(
            f" {name}={getattr(self, name)}"
            for name in ("key", "otherwise")
            if getattr(self, name) is not None
        )
        flags = " outcome" * self.outcome + " echo" * self.echo
        return f"{self.kind} {self.text!r}{options}{flags}"


@frozen
class Local(Statement):
    """The time or a random number."""

    kind: Literal["now", "random"]

    def play(self, frame: Frame) -> Flow:
        frame.note("wants", self.kind)
        frame.got(self.kind, (yield frame.make.local(self.kind)))

    def head(self) -> str:
        return self.kind


@frozen
class Do(Statement):
    """A step. `counted` gives it the count of its uses as an argument."""

    kind: StepKind
    label: str
    counted: bool = True

    def play(self, frame: Frame) -> Flow:
        args: tuple[Any, ...] = (self.label,)
        if self.counted:
            frame.memory.uses[self.label] += 1
            args += (frame.memory.uses[self.label],)
        name = (self.kind, *args)
        if self.kind == "charge":
            args += ((yield frame.make.key(self.label, ())),)
        notes: list[Any] = [self.label]
        if self.kind == "mutating":
            args += (notes,)
        frame.note("wants", *name)
        try:
            value = yield frame.make.step(self.kind, args)
        except Exception as error:
            frame.note("met", *name, type(error).__name__)
            raise
        frame.note("did", *name)
        frame.got(self.label, value)
        if notes != [self.label]:
            frame.note("changed", notes)

    def head(self) -> str:
        return f"{self.kind} step {self.label!r}" + " counted" * self.counted


@frozen
class Pause(Statement):
    """A `Checkpoint`."""

    def play(self, frame: Frame) -> Flow:
        frame.note("wants", "checkpoint")
        frame.got("checkpoint", (yield frame.make.pause()))

    def head(self) -> str:
        return "checkpoint"


@frozen
class Supports(Statement):
    """`ClientSupports`."""

    kind: Literal["elicit", "confirm"]

    def play(self, frame: Frame) -> Flow:
        frame.got(f"supports {self.kind}", (yield frame.make.supports(self.kind)))

    def head(self) -> str:
        return f"supports {self.kind}?"


@frozen
class Versioned(Statement):
    """`if (yield from Version(id, default=0, latest=1)): body`."""

    id: str
    body: Body
    inner: ClassVar[tuple[str, ...]] = ("body",)

    def play(self, frame: Frame) -> Flow:
        version = yield frame.make.version(self.id)
        frame.note("version", self.id, version)
        if version:
            yield from perform(self.body, frame)

    def head(self) -> str:
        return f"if version {self.id!r}:"


@frozen
class Key(Statement):
    """An `IdempotencyKey`; `about` the last local value where `bound`."""

    name: str
    bound: bool = False

    def play(self, frame: Frame) -> Flow:
        about = (str(frame.last),) if self.bound else ()
        frame.note("key", self.name, (yield frame.make.key(self.name, about)))

    def head(self) -> str:
        return f"key {self.name!r}" + " about last" * self.bound


@frozen
class Say(Statement):
    """A `Log`."""

    label: str

    def play(self, frame: Frame) -> Flow:
        frame.note("says", self.label)
        yield frame.make.say(f"{self.label} {len(frame.memory.events)}")

    def head(self) -> str:
        return f"log {self.label!r}"


@frozen
class Mark(Statement):
    """A write to the shared state, and no effect."""

    label: str

    def play(self, frame: Frame) -> Flow:
        frame.note("mark", self.label, frame.memory.last)
        frame.memory.last = self.label
        yield from ()

    def head(self) -> str:
        return f"mark {self.label!r}"


@frozen
class When(Statement):
    """Branch on the last local or shared value."""

    shared: bool
    then: Body
    orelse: Body = ()
    inner: ClassVar[tuple[str, ...]] = ("then", "orelse")

    def play(self, frame: Frame) -> Flow:
        value = frame.memory.last if self.shared else frame.last
        holds = value is True or str(value).startswith("A")
        yield from perform(self.then if holds else self.orelse, frame)

    def head(self) -> str:
        return f"if {'shared' if self.shared else 'last'} is True or starts with A:"


@frozen
class Loop(Statement):
    """A loop over some statements."""

    times: int
    body: Body
    inner: ClassVar[tuple[str, ...]] = ("body",)

    def play(self, frame: Frame) -> Flow:
        for _ in range(self.times):
            yield from perform(self.body, frame)

    def head(self) -> str:
        return f"{self.times} times:"


@frozen
class Sub(Statement):
    """A flow of its own, played by `yield from`: `Leave` ends it alone."""

    body: Body
    inner: ClassVar[tuple[str, ...]] = ("body",)

    def play(self, frame: Frame) -> Flow:
        yield from sequence(self.body, frame)

    def head(self) -> str:
        return "sub-flow:"


@frozen
class Attempt(Statement):
    """`try`, `except Exception` where `catches`, and `finally` with local effects."""

    body: Body
    handler: Body = ()
    cleanup: Body = ()
    catches: bool = True
    inner: ClassVar[tuple[str, ...]] = ("body", "handler", "cleanup")

    def play(self, frame: Frame) -> Flow:
        try:
            yield from perform(self.body, frame)
        except Left:
            raise
        except Exception as error:
            frame.note("met", *described(error))
            if not self.catches:
                raise
            frame.last = frame.memory.last = type(error).__name__
            yield from perform(self.handler, frame)
        finally:
            if self.cleanup:
                yield from perform(self.cleanup, frame)

    def head(self) -> str:
        return "try:" if self.catches else "try, and let exceptions pass:"


@frozen
class Together(Statement):
    """A `Gather` of flows; a lone question or step where `bare`, of effects."""

    branches: tuple[Body, ...]
    bare: bool = False

    def play(self, frame: Frame) -> Flow:
        flows = []
        for index, body in enumerate(self.branches):
            inner = Frame(frame.memory, frame.make, (*frame.path, index))
            only = body[0] if self.bare and len(body) == 1 else None
            if isinstance(only, Question) and not only.echo:
                inner.note("wants", only.kind, only.key, only.text)
                flows.append(frame.make.question(only, only.text))
            else:
                flows.append(sequence(body, inner))
        values = yield frame.make.gather(flows)
        frame.got("gather", tuple(map(plain, values)))

    def bodies(self) -> tuple[Body, ...]:
        return self.branches

    def with_bodies(self, bodies: tuple[Body, ...]) -> Statement:
        return evolve(self, branches=bodies)

    def head(self) -> str:
        return "gather" + " (effects)" * self.bare + ":"


@frozen
class Again(Statement):
    """`return (yield from Restart(...))`, at the top level only."""

    name: str

    def play(self, frame: Frame) -> Flow:
        frame.note("restart", self.name)
        yield frame.make.again(self.name)

    def head(self) -> str:
        return f"restart {self.name!r}"


@frozen
class Fail(Statement):
    """Raise an exception."""

    label: str

    def play(self, frame: Frame) -> Flow:
        yield from ()
        raise LocalError(self.label)

    def head(self) -> str:
        return f"raise {self.label!r}"


@frozen
class Leave(Statement):
    """Return early."""

    def play(self, frame: Frame) -> Flow:
        yield from ()
        raise Left

    def head(self) -> str:
        return "return"


# ---- playing ------------------------------------------------------------------------


def perform(body: Body, frame: Frame) -> Flow:
    """Play statements one after the other."""
    for statement in body:
        yield from statement.play(frame)


def sequence(body: Body, frame: Frame) -> Flow:
    """Play statements as a flow of their own, which returns its last value."""
    try:
        yield from perform(body, frame)
    except Left:
        pass
    frame.note("returns", frame.last)
    return str(frame.last)


def play(body: Body, memory: Memory, make: Builder) -> Flow:
    """Play a whole program; only the events are shared with earlier programs."""
    frame = Frame(Memory(events=memory.events), make)
    frame.note("begins")
    return sequence(body, frame)


# ---- text ---------------------------------------------------------------------------


def show(body: Body, indent: str = "    ") -> str:
    """Return the program as lines, one statement each."""
    return "\n".join(_lines(body, indent)) or f"{indent}pass"


def _lines(body: Body, indent: str) -> Iterator[str]:
    for statement in body:
        yield indent + statement.head()
        if isinstance(statement, Together):
            for number, branch in enumerate(statement.branches):
                yield f"{indent}  branch {number}:"
                yield from _lines(branch, indent + "      ")
            continue
        names = ("", "else", "finally") if len(statement.inner) > 1 else ("",)
        if isinstance(statement, Attempt):
            names = ("", "except", "finally")
        for name, inner in zip(names, statement.bodies(), strict=False):
            if name and inner:
                yield f"{indent}{name}:"
            yield from _lines(inner, indent + "    ")
