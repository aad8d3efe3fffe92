"""Histories played by the engine and by the model, side by side.

`play(world)` serves each request of a history to both, and compares everything that can be
observed: what is performed, which questions go out, what each yield received, and how the
round ends. Then it checks laws that need no model. It raises `Difference` at the first one.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import attrs
from attrs import define, evolve, field, frozen

import effectmcp
from effectmcp import (
    Accepted,
    Checkpoint,
    ClientSupports,
    Confirm,
    Declined,
    Dismissed,
    DivergenceError,
    Elicit,
    Gather,
    IdempotencyKey,
    Log,
    NondeterminismError,
    Now,
    Outcome,
    Step,
    Version,
    step,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    Answer,
    Done,
    Failure,
    Perform,
    Rules,
    Run,
    Stop,
    Want,
)
from effectmcp.engine import Asked as RealAsked
from effectmcp.engine import Journal as RealJournal
from effectmcp.engine import Raised as RealRaised
from effectmcp.engine import Returned as RealReturned
from effectmcp.forms import Unfit

from . import model
from .drawing import BOTH, Code, Round, Verdict, World
from .model import Said, Wire
from .programs import Memory, Question, StepKind, described, play as interpret

__all__ = ["Difference", "Report", "Seen", "play", "play_alike"]

FLOW_ID = b"an oracle's flow"
START = dt.datetime(2026, 7, 28, tzinfo=dt.UTC)


class Difference(AssertionError):
    """The engine and the rules differ, or a law is broken."""


# ---- what the programs perform ------------------------------------------------------


class DomainError(Exception):
    """An exception that its step declares."""


class ForeignError(Exception):
    """An exception that its step does not declare."""


@define(eq=False)
class Performer:
    """Performs local effects. Each value is new, so that a second performance shows."""

    count: int = 0
    log: list[tuple[Any, ...]] = field(factory=list)

    def step(self, kind: str, args: tuple[Any, ...]) -> str:
        self.count += 1
        self.log.append((kind, *(list(a) if isinstance(a, list) else a for a in args)))
        match kind:
            case "raising":
                raise ValueError("refused")
            case "declared":
                raise DomainError("declared")
            case "foreign":
                raise ForeignError("foreign")
        return f"{'A' if self.count % 2 else 'B'}{self.count}"

    def now(self) -> dt.datetime:
        self.count += 1
        return START + dt.timedelta(seconds=self.count)

    def random(self) -> float:
        self.count += 1
        return self.count / 1024


#: The performer of the run in progress, which step functions find here.
performer = Performer()


def step_of(kind: StepKind, **options: Any) -> Any:
    def perform(*args: Any) -> Any:
        value = performer.step(kind, args)
        if kind == "mutating":
            args[-1].append("changed")
        return value

    return step(name=kind, **options)(perform)


STEPS = {
    "plain": step_of("plain"),
    "replayable": step_of("replayable", replayable=True),
    "raising": step_of("raising"),
    "declared": step_of("declared", raises=(DomainError,)),
    "foreign": step_of("foreign"),
    "mutating": step_of("mutating"),
    "charge": step_of("charge"),
}


def perform(want: Want) -> Done | Failure:
    match want.effect:
        case Step() as effect:
            try:
                return Done(effect.fn(*effect.args, **effect.kwargs))
            except Exception as error:
                return Failure(error)
        case Now():
            return Done(performer.now())
    return Done(performer.random())


FORMS: dict[str, Any] = {"elicit": Elicit, "confirm": Confirm}


@define(eq=False)
class Effects:
    """The effects of a program, for the engine."""

    restart: Callable[[str], Any]

    def question(self, question: Question, text: str) -> Any:
        options: dict[str, Any] = {}
        if question.key is not None:
            options["key"] = question.key
        if question.otherwise is not None:
            options["otherwise"] = question.otherwise
        effect: Any = (
            Elicit(text, str, **options)
            if question.kind == "elicit"
            else Confirm(text, **options)
        )
        return Outcome(effect) if question.outcome else effect

    def local(self, kind: Literal["now", "random"]) -> Any:
        return Now() if kind == "now" else effectmcp.Random()

    def step(self, kind: StepKind, args: tuple[Any, ...]) -> Any:
        return STEPS[kind](*args)

    def pause(self) -> Any:
        return Checkpoint()

    def supports(self, kind: Literal["elicit", "confirm"]) -> Any:
        return ClientSupports(FORMS[kind])

    def version(self, id: str) -> Any:
        return Version(id, default=0, latest=1)

    def key(self, name: str, about: tuple[Any, ...]) -> Any:
        return IdempotencyKey(name, *about)

    def say(self, label: str) -> Any:
        return Log("info", label)

    def gather(self, branches: list[Any]) -> Any:
        return Gather(*branches)

    def again(self, name: str) -> Any:
        return effectmcp.Restart(self.restart(name))


# ---- what is observed ---------------------------------------------------------------


@define(kw_only=True)
class Seen:
    """Everything observable of one round.

    Attributes:
        ask: Key, text and whether there is a problem (None: open), for each question.
        end: How the round ended, as words.
        logs: What the client hears; for the model with `None` where that is open.
        kinds: Of the questions, by key.
    """

    performed: list[tuple[Any, ...]] = field(factory=list)
    events: list[tuple[Any, ...]] = field(factory=list)
    ask: list[tuple[Any, str, bool | None]] = field(factory=list)
    end: tuple[Any, ...] = ()
    logs: list[Any] = field(factory=list)
    kinds: dict[str, str] = field(factory=dict)


@define
class Names:
    """The names that each engine gives to the same thing, for a flow's life."""

    forth: dict[str, Any] = field(factory=dict)
    back: dict[Any, str] = field(factory=dict)

    def same(self, real: Any, predicted: Any) -> bool:
        """Whether both are equal, names compared by what they were used for so far."""
        if isinstance(predicted, model.KeyOf | Wire):
            known = self.forth.setdefault(real, predicted)
            return known == predicted and self.back.setdefault(predicted, real) == real
        if isinstance(predicted, tuple | list):
            return len(real) == len(predicted) and all(map(self.same, real, predicted))
        return bool(real == predicted)


def compare(real: Seen, predicted: Seen, names: Names) -> str | None:
    """The first difference, in words."""
    if real.end == predicted.end == ("stopped",):
        # Of such a round nothing is left, so how far the handler came is open.
        return "performed before a hard stop" if real.performed else None
    for what in ("events", "performed"):
        ours, theirs = getattr(real, what), getattr(predicted, what)
        for number, (left, right) in enumerate(zip(ours, theirs, strict=False)):
            if left != right and not names.same(left, right):
                return f"{what} {number}: got {left}, expected {right}"
        if len(ours) != len(theirs):
            number = min(len(ours), len(theirs))
            return f"{what}: got {ours[number:]}, expected {theirs[number:]}"
    if real.end != predicted.end:
        return f"end: got {real.end}, expected {predicted.end}"
    texts = [text for _, text, _ in real.ask], [text for _, text, _ in predicted.ask]
    if texts[0] != texts[1]:
        return f"asked: got {texts[0]}, expected {texts[1]}"
    for left, right in zip(real.ask, predicted.ask, strict=True):
        if not names.same(left[0], right[0]):
            known = names.forth[left[0]], names.back.get(right[0])
            return f"key of {left[1]!r}: got {left[0]}, expected {right[0]}; {known=}"
        if right[2] is not None and left[2] != right[2]:
            return f"problem of {left[1]!r}: got {left[2]}, expected {right[2]}"
    sure = [label for label, is_heard in predicted.logs if is_heard is not False]
    must = [label for label, is_heard in predicted.logs if is_heard]
    if any(label not in sure for label in real.logs) or any(
        label not in real.logs for label in must
    ):
        return f"logs: got {real.logs}, expected {predicted.logs}"
    return None


# ---- a flow -------------------------------------------------------------------------


@frozen(kw_only=True)
class State:
    """What a client holds between two requests, and what is known of its past.

    Attributes:
        journal: The model's journal; `None` once a case was left open.
        asked: Key, kind and text of the outstanding questions.
        consents: Texts of accepted `Confirm`s.
        answered: How often each question was answered, in this generation.
        charged: Non-replayable steps performed, over the flow's life.
        past: Those that earlier generations received.
    """

    text: str | None = None
    journal: model.Journal | None = field(factory=model.Journal)
    asked: tuple[tuple[str, str, str], ...] = ()
    consents: frozenset[str] = frozenset()
    answered: Counter[tuple[str, str]] = field(factory=Counter)
    charged: Counter[tuple[Any, ...]] = field(factory=Counter)
    past: Counter[tuple[Any, ...]] = field(factory=Counter)


@define
class Report:
    """What playing a world showed.

    Attributes:
        lines: The conversation as text.
        seen: What was observed of the engine, round by round.
        unjudged: Why the model gave no opinion, if it did not.
    """

    lines: list[str] = field(factory=list)
    seen: list[Seen] = field(factory=list)
    unjudged: str | None = None
    rounds: int = 0


Request: TypeAlias = tuple[dict[str, Answer], dict[Wire, Said]]


def answer_of(verdict: Verdict, kind: str, value: str) -> tuple[Answer, Said]:
    match verdict:
        case "no":
            return Declined(), Said("declined")
        case "close":
            return Dismissed(), Said("dismissed")
        case "bad":
            # A text is asked for. A Confirm takes any content.
            wrong = Accepted({"value": 7}) if kind == "elicit" else Unfit(["bad"])
            return wrong, Said("unfit")
    content = {"value": value} if kind == "elicit" else {}
    return Accepted(content), Said("accepted", value)


@define(eq=False)
class Table:
    """One world being played."""

    world: World
    rules: Rules
    report: Report = field(factory=Report)
    names: Names = field(factory=Names)
    ours: Performer = field(factory=Performer)
    theirs: Performer = field(factory=Performer)

    def limits(self) -> model.Limits:
        return model.Limits(self.world.rounds, self.world.state_rounds)

    # ---- the two engines ----

    def start(
        self, state: State, code: Code, supports: frozenset[str]
    ) -> tuple[Run, Seen]:
        seen = Seen()
        memory = Memory(events=seen.events)

        def handler_of(name: str) -> Any:
            body = code.main if name == "main" else code.other
            calls = iter((memory,))

            def handler() -> Any:
                # What a dry replay notes down is nobody's: it is called a second time.
                own = next(calls, None) or Memory()
                return (yield from interpret(body, own, effects))

            handler.__qualname__ = name
            return handler

        effects = Effects(lambda name: handlers[name])
        handlers = {name: handler_of(name) for name in ("main", "other")}

        def can_ask(what: Any) -> bool:
            kind = what if isinstance(what, type) else type(what)
            return kind.__name__.lower() in supports

        run = Run(
            handlers["main"],
            flow_id=FLOW_ID,
            journal=RealJournal.loads(state.text) if state.text else None,
            rules=self.rules,
            supports=can_ask,
            emit=lambda effect: seen.logs.append(effect.data),  # type: ignore[attr-defined]
            resolve=lambda name: handlers[name.rpartition(":")[2]],
        )
        return run, seen

    def advance(self, run: Run, seen: Seen, begin: Callable[[], Stop]) -> None:
        """Go on until the next question or the end, and note what was seen."""
        global performer
        performer = self.ours
        performer.log = seen.performed
        seen.ask = []
        try:
            stop = begin()
            while isinstance(stop, Perform):
                stop = run.performed({want.key: perform(want) for want in stop.wants})
        except (DivergenceError, NondeterminismError) as error:
            if not isinstance(error, DivergenceError) or error.verdict != "stop":
                raise
            seen.end = ("stopped",)
            return
        match stop:
            case RealAsked(questions):
                seen.end = ("asked",)
                for question in questions:
                    effect: Any = question.effect
                    problem = bool(question.problems)
                    seen.ask.append((question.key, effect.message, problem))
                    seen.kinds[question.key] = type(effect).__name__.lower()
            case RealReturned(value):
                seen.end = ("returned", value)
            case RealRaised(error):
                seen.end = ("raised", *described(error))

    def predict(
        self,
        flow: model.Flow,
        stops: Any,
        seen: Seen,
        answers: Mapping[Wire, Said] | model.Cancel | None,
    ) -> model.Journal | None:
        """Let the model play until the next question or the end."""
        self.theirs.log = seen.performed
        seen.ask = []
        try:
            asked = stops.send(answers)
            seen.end = ("asked",)
            seen.ask = list(asked.questions)
            journal: model.Journal = asked.journal
            return journal
        except StopIteration as stop:
            match stop.value:
                case model.Returned(value):
                    seen.end = ("returned", value)
                case model.Raised(error):
                    seen.end = ("raised", *described(error))
                case model.Stopped():
                    seen.end = ("stopped",)
        finally:
            seen.events = list(flow.memory.events)
            seen.logs = list(flow.logs)
        return None

    # ---- a call answered by retry ----

    def by_retry(self) -> None:
        states = [State()]
        for number, request in enumerate(self.world.history):
            state = states[-1 - min(request.base, len(states) - 1)]
            after = self.round(number, request, state)
            if after is not None and not request.is_lost:
                states.append(after)
            elif after is None and not any(
                later.base for later in self.world.history[number + 1 :]
            ):
                return

    def request(self, number: int, request: Round, state: State) -> Request:
        ours: dict[str, Answer] = {}
        theirs: dict[Wire, Said] = {}
        for index, (key, kind, _) in enumerate(state.asked):
            verdict = request.says[index % len(request.says)] if request.says else "-"
            if verdict != "-":
                value = f"{verdict}{number}.{index}"
                ours[key], said = answer_of(verdict, kind, value)
                if state.journal is not None:
                    theirs[self.names.forth[key]] = said
        # On a call without state they would be early answers.
        if request.late and state.text:
            out = {key for key, _, _ in state.asked}
            for key, name in self.names.forth.items():
                if key not in out and isinstance(name, Wire):
                    ours[key], theirs[name] = answer_of("A", "elicit", "LATE")
            ours["unknown"] = Accepted({"value": "LATE"})
        return ours, theirs

    def round(self, number: int, request: Round, state: State) -> State | None:
        code = self.world.codes[request.code % len(self.world.codes)]
        answers, said = self.request(number, request, state)
        self.report.rounds += 1
        self.tell(number, request, state, answers)
        run, seen = self.start(state, code, request.supports)
        text = None
        try:
            self.advance(run, seen, partial(run.start, answers))
            # What the handler notes while it is suspended is no part of the round.
            seen.events = list(seen.events)
            if seen.end == ("asked",):
                text = run.suspend().dumps()
        finally:
            run.close()
        self.show(seen)
        journal = self.model_round(request, state, code, said, seen)
        return self.after(state, request, answers, seen, text, journal)

    def model_round(
        self,
        request: Round,
        state: State,
        code: Code,
        said: dict[Wire, Said],
        seen: Seen,
    ) -> model.Journal | None:
        if state.journal is None:
            self.theirs.count = self.ours.count
            return None
        flow = self.flow(code, request.supports, state.journal.copy())
        predicted = Seen()
        stops = flow.run(said, is_first=state.text is None)
        try:
            journal = self.predict(flow, Sender(stops), predicted, None)
        except model.Unjudged as unjudged:
            self.report.unjudged = str(unjudged)
            self.theirs.count = self.ours.count
            return None
        finally:
            flow.close()
        found = compare(seen, predicted, self.names)
        if found:
            raise Difference(found)
        return journal

    def flow(
        self, code: Code, supports: frozenset[str], journal: model.Journal
    ) -> model.Flow:
        def programs(name: str) -> Any:
            body = code.main if name == "main" else code.other
            return lambda memory, make: interpret(body, memory, make)

        return model.Flow(
            programs=programs,
            supports=supports,
            perform=self.theirs,
            limits=self.limits(),
            journal=journal,
        )

    # ---- a live call ----

    def live(self) -> None:
        """Play the first version without replay, and cancel it."""
        code, supports = self.world.codes[0], self.world.history[0].supports
        run, seen = self.start(State(), code, supports)
        flow = self.flow(code, supports, model.Journal())
        flow.limits, predicted = model.Limits(None, None, False), Seen()
        stops = Sender(flow.run())
        self.advance(run, seen, run.start)
        try:
            self.predict(flow, stops, predicted, None)
            self.agree(seen, predicted)
            for number, request in enumerate(self.world.history):
                if seen.end != ("asked",):
                    return
                cancels = number == self.world.cancels
                asked = tuple((key, seen.kinds[key], text) for key, text, _ in seen.ask)
                answers, said = self.request(number, request, State(asked=asked))
                self.report.rounds += 1
                self.tell(number, request, State(), {} if cancels else answers)
                if cancels:
                    self.report.lines.append("    cancelled")
                    self.advance(run, seen, run.cancel)
                    self.predict(flow, stops, predicted, model.Cancel())
                else:
                    self.advance(run, seen, partial(run.answered, answers))
                    self.predict(flow, stops, predicted, said)
                self.agree(seen, predicted)
        except model.Unjudged as unjudged:
            self.report.unjudged = str(unjudged)
        finally:
            run.close()
            flow.close()

    def agree(self, seen: Seen, predicted: Seen) -> None:
        found = compare(seen, predicted, self.names)
        if found:
            raise Difference(found)
        self.show(seen)

    # ---- laws ----

    def after(
        self,
        state: State,
        request: Round,
        answers: Mapping[str, Answer],
        seen: Seen,
        text: str | None,
        journal: model.Journal | None,
    ) -> State | None:
        """Check the laws that need no model; return what the client holds now."""
        consents = set(state.consents)
        answered = Counter(state.answered)
        for key, kind, shown in state.asked:
            answer = answers.get(key)
            if isinstance(answer, Accepted) and kind == "confirm":
                consents.add(shown)
            if isinstance(answer, Accepted | Declined | Dismissed) and (
                not isinstance(answer, Accepted) or answer.value != {"value": 7}
            ):
                answered[kind, shown] += 1
        generation, received, past = laws(seen, consents, answered, state.past)
        charged = state.charged + Counter(
            step for step in map(identity, seen.performed) if step[0] != "replayable"
        )
        if seen.end[0] == "stopped":
            if seen.performed:
                raise Difference(f"performed before a hard stop: {seen.performed}")
            return None
        # A handler that raises at its root reports that, and not what it left over.
        if seen.end[0] != "raised" and past + received != charged:
            raise Difference(f"received {past + received}, performed {charged}")
        if text is None:
            return None
        return State(
            text=text,
            journal=journal,
            asked=tuple((key, seen.kinds[key], shown) for key, shown, _ in seen.ask),
            consents=frozenset(consents),
            answered=Counter() if generation else answered,
            charged=charged,
            past=past,
        )

    # ---- words ----

    def tell(
        self, number: int, request: Round, state: State, answers: Mapping[str, Answer]
    ) -> None:
        flags = f" from state -{request.base}" * bool(request.base)
        flags += " (its reply is lost)" * request.is_lost
        if len(request.supports) < 2:
            flags += f" supports {sorted(request.supports)}"
        self.report.lines.append(f"round {number}: code v{request.code}{flags}")
        for key, answer in answers.items():
            self.report.lines.append(f"    answer {key} = {answer!r}")

    def show(self, seen: Seen) -> None:
        self.report.seen.append(seen)
        lines = self.report.lines
        lines += [f"    performed {entry}" for entry in seen.performed]
        lines += [f"    asks {key}: {text!r}" for key, text, _ in seen.ask]
        lines.append(f"    {' '.join(map(str, seen.end))}")


class Sender:
    """A generator that takes its first value like any other."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.send = self.first

    def first(self, _: object) -> Any:
        self.send = self.generator.send
        return next(self.generator)


def identity(performed: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a step is called in the events: its kind, label and count."""
    kind, *args = performed
    counted = len(args) > 1 and isinstance(args[1], int)
    return (kind, *args[: 2 if counted else 1])


def laws(
    seen: Seen,
    consents: set[str],
    answered: Counter[tuple[str, str]],
    past: Counter[tuple[Any, ...]],
) -> tuple[bool, Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """Check what the handler met in a round.

    Returns:
        Whether it restarted; the steps it received, in this generation; and before.
    """
    received: Counter[tuple[Any, ...]] = Counter()
    wanted: Counter[tuple[str, str]] = Counter()
    did_restart = has_begun = False
    got: set[str] = set()
    for event in seen.events:
        match event:
            case (_, "wants", "elicit" | "confirm" as kind, text):
                wanted[kind, text] += 1
            case (_, "got", text, value):
                got.add(text)
            case (_, "did" | "met" as what, kind, *rest) if kind in STEPS:
                name = (kind, *(rest if what == "did" else rest[:-1]))
                if kind != "replayable" and rest[-1] != "Cancelled":
                    received[name] += 1
            case (_, "consents", text) if text not in consents:
                raise Difference(f"True for {text!r}, which nobody accepted")
            case (_, "begins"):
                past, received = past + received, Counter()
                did_restart, has_begun = has_begun, True
                if did_restart:
                    wanted.clear()
                    answered.clear()
    for _, text, problem in seen.ask:
        for kind in ("elicit", "confirm"):
            once = answered[kind, text] == wanted[kind, text] == 1
            if once and not problem and text not in got:
                raise Difference(f"{text!r} was answered, and is asked again")
    return did_restart, received, past


# ---- playing ------------------------------------------------------------------------


def play(world: World) -> Report:
    """Play a world; raise an exception with a `report` at the first difference."""
    if world.cancels is not None:
        table = Table(world, LIVE)
    else:
        caps = {"rounds": world.rounds, "state_rounds": world.state_rounds}
        table = Table(world, attrs.evolve(RETRY, **caps))
    try:
        if world.cancels is not None:
            table.live()
        else:
            table.by_retry()
    except Exception as error:
        error.report = table.report  # type: ignore[attr-defined]
        raise
    return table.report


def latest(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The events of the last generation: a replay begins there."""
    start = max(at for at, event in enumerate(events) if event[1] == "begins")
    return events[start:]


def play_alike(code: Code, seed: int) -> None:
    """Play one version by retry, live, and cold at each prefix: all must be equal."""
    uncapped = attrs.evolve(RETRY, rounds=None, state_rounds=None)
    world = World(codes=(code,))
    retry, live = Table(world, uncapped), Table(world, LIVE)

    def answers(seen: Seen) -> dict[str, Answer]:
        given = {}
        for key, text, _ in seen.ask:
            number = zlib.crc32(f"{seed} {text}".encode())
            verdict: Verdict = ("A", "A", "B", "A", "no", "close")[number % 6]
            given[key] = answer_of(verdict, seen.kinds[key], f"{verdict} {text}")[0]
        return given

    text, said, performed = None, {}, []
    while True:
        run, seen = retry.start(State(text=text), code, BOTH)
        retry.advance(run, seen, partial(run.start, said))
        seen.events = list(seen.events)
        performed += seen.performed
        if seen.end != ("asked",):
            break
        said = answers(seen)
        text = run.suspend().dumps()
        # A replay after a round that asked nothing goes on without an answer.
        if said:
            run, cold = retry.start(State(text=text), code, BOTH)
            retry.advance(run, cold, run.start)
            cold.events = list(cold.events)
            run.close()
            for what, left, right in (
                ("events", latest(cold.events), latest(seen.events)),
                ("performed", cold.performed, []),
                ("questions", cold.ask, seen.ask),
                ("end", cold.end, seen.end),
            ):
                if left != right:
                    raise Difference(f"{what} in a cold replay: {left}, not {right}")
    run, played = live.start(State(), code, BOTH)
    live.advance(run, played, run.start)
    while played.end == ("asked",):
        live.advance(run, played, partial(run.answered, answers(played)))
    for what, left, right in (
        ("events", latest(seen.events), latest(played.events)),
        ("performed", performed, played.performed),
        ("end", seen.end, played.end),
    ):
        if left != right:
            raise Difference(f"{what} by retry: {left}; live: {right}")
