"""Histories played by the engine and by the model, side by side.

`play(world)` serves each request of a history to both, and compares everything that can be
observed: what is performed, which questions go out, what each yield received, and how the
round ends. Then it checks laws that need no model. It raises `Difference` at the first one.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import attrs
from attrs import define, field, frozen

from effectmcp import (
    Accepted,
    Declined,
    Dismissed,
    DivergenceError,
    NondeterminismError,
)
from effectmcp.engine import LIVE, RETRY, Answer, Perform, Rules, Run, Stop
from effectmcp.engine import Asked as RealAsked
from effectmcp.engine import Journal as RealJournal
from effectmcp.engine import Raised as RealRaised
from effectmcp.engine import Returned as RealReturned
from effectmcp.forms import Unfit

from . import model
from .drawing import BOTH, Code, Round, Verdict, World
from .observing import (
    EARLY,
    AskedText,
    Difference,
    Names,
    Seen,
    compare,
    identity,
    latest,
    laws,
)
from .programs import Memory, described
from .programs import play as interpret
from .records import Journal, Limits, Raised, Returned, Said, Stopped, Unjudged, Wire
from .stage import Effects, Performer, perform

__all__ = ["Report", "play", "play_alike"]

FLOW_ID = b"an oracle's flow"


# ---- a flow -------------------------------------------------------------------------


@frozen(kw_only=True)
class State:
    """A client's state between two requests, and its past.

    Attributes:
        journal: The model's journal; `None` once a case was left open.
        asked: The outstanding questions: key, and what identifies each.
        consents: Messages of accepted `Confirm`s.
        answered: How often each question was answered, in this generation.
        charged: Non-replayable steps performed, over the flow's life.
        past: Steps that earlier generations received.
    """

    text: bytes | None = None
    journal: Journal | None = field(factory=Journal)
    asked: tuple[tuple[str, AskedText], ...] = ()
    consents: frozenset[str] = frozenset()
    answered: Counter[AskedText] = field(factory=Counter)
    charged: Counter[tuple[Any, ...]] = field(factory=Counter)
    past: Counter[tuple[Any, ...]] = field(factory=Counter)


@define
class Report:
    """The record of a conversation.

    Attributes:
        lines: The conversation in words.
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
            # An Elicit here needs a string; a Confirm takes any content.
            wrong = Accepted({"value": 7}) if kind == "elicit" else Unfit(["bad"])
            return wrong, Said("unfit")
        case _:
            pass
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

    def limits(self) -> Limits:
        return Limits(self.world.rounds, self.world.state_rounds)

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
                # A dry replay calls the handler again; its events are dropped.
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
        """Continue until the next question or the end; record it in `seen`."""
        self.ours.log = seen.performed
        seen.ask = []
        try:
            stop = begin()
            while isinstance(stop, Perform):
                outcomes = {w.key: perform(w, self.ours) for w in stop.wants}
                stop = run.performed(outcomes)
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
                    kind = type(effect).__name__.lower()
                    seen.asked[question.key] = (kind, effect.key, effect.message)
            case RealReturned(value):
                seen.end = ("returned", value)
            case RealRaised(raised):
                seen.end = ("raised", *described(raised))
            case _:
                raise AssertionError(stop)

    def predict(
        self,
        flow: model.Flow,
        stops: Any,
        seen: Seen,
        answers: Mapping[Wire, Said] | model.Cancel | None,
    ) -> Journal | None:
        """Let the model play until the next question or the end."""
        self.theirs.log = seen.performed
        seen.ask = []
        try:
            asked = stops.send(answers)
            seen.end = ("asked",)
            seen.ask = list(asked.questions)
            journal: Journal = asked.journal
            return journal
        except StopIteration as stop:
            match stop.value:
                case Returned(value):
                    seen.end = ("returned", value)
                case Raised(error):
                    seen.end = ("raised", *described(error))
                case Stopped():
                    seen.end = ("stopped",)
                case _:
                    raise AssertionError(stop.value) from None
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
        for index, (key, (kind, _, _)) in enumerate(state.asked):
            verdict = request.says[index % len(request.says)] if request.says else "-"
            if verdict != "-":
                value = f"{verdict}{number}.{index}"
                ours[key], said = answer_of(verdict, kind, value)
                if state.journal is not None:
                    theirs[self.names.forth[key]] = said
        # On a call without state they would be early answers.
        if self.is_early(request, state):
            for kind, key in (("elicit", "ke"), ("confirm", "kc")):
                ours[key] = answer_of(request.early, kind, f"{request.early} early")[0]
        if request.late and state.text:
            out = {key for key, _ in state.asked}
            for key, name in self.names.forth.items():
                if key not in out and isinstance(name, Wire):
                    ours[key], theirs[name] = answer_of("A", "elicit", "LATE")
            ours["unknown"] = Accepted({"value": "LATE"})
        return ours, theirs

    def is_early(self, request: Round, state: State) -> bool:
        is_first = self.rules.early_answers and state.text is None
        return is_first and request.early != "-"

    def round(self, number: int, request: Round, state: State) -> State | None:
        code = self.world.codes[request.code % len(self.world.codes)]
        answers, said = self.request(number, request, state)
        self.report.rounds += 1
        self.tell(number, request, state, answers)
        run, seen = self.start(state, code, request.supports)
        text = None
        try:
            self.advance(run, seen, partial(run.start, answers))
            # Events while the handler is suspended do not belong to the round.
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
    ) -> Journal | None:
        if state.journal is None:
            self.theirs.count = self.ours.count
            return None
        flow = self.flow(code, request.supports, state.journal.copy())
        if self.is_early(request, state):
            _, early = answer_of(request.early, "elicit", f"{request.early} early")
            flow.early = {"ke": early, "kc": early}
        predicted = Seen()
        stops = flow.run(said, is_first=state.text is None)
        try:
            journal = self.predict(flow, Sender(stops), predicted, None)
        except Unjudged as unjudged:
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
        self, code: Code, supports: frozenset[str], journal: Journal
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
        flow = self.flow(code, supports, Journal())
        flow.limits, predicted = Limits(None, None, False), Seen()
        stops = Sender(flow.run())
        self.advance(run, seen, run.start)
        try:
            self.predict(flow, stops, predicted, None)
            self.agree(seen, predicted)
            for number, request in enumerate(self.world.history):
                if seen.end != ("asked",):
                    return
                cancels = number == self.world.cancels
                asked = tuple((key, seen.asked[key]) for key, _, _ in seen.ask)
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
        except Unjudged as unjudged:
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
        text: bytes | None,
        journal: Journal | None,
    ) -> State | None:
        """Check the laws that need no model; return what the client holds now."""
        consents = set(state.consents)
        answered = Counter(state.answered)
        answered[EARLY] += self.is_early(request, state)
        for key, shown in state.asked:
            answer = answers.get(key)
            if isinstance(answer, Accepted) and shown[0] == "confirm":
                consents.add(shown[2])
            is_unfit = isinstance(answer, Unfit) or answer == Accepted({"value": 7})
            if answer is not None:
                # Whether an unfitting one makes a fitting one ambiguous is open.
                answered[shown] += 2 if is_unfit else 1
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
            asked=tuple((key, seen.asked[key]) for key, _, _ in seen.ask),
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


# ---- playing ------------------------------------------------------------------------


def play(world: World) -> Report:
    """Play a world; raise an exception with a `report` at the first difference."""
    if world.cancels is not None:
        table = Table(world, LIVE)
    else:
        rules = attrs.evolve(
            RETRY, rounds=world.rounds, state_rounds=world.state_rounds
        )
        table = Table(world, rules)
    try:
        if world.cancels is not None:
            table.live()
        else:
            table.by_retry()
    except Exception as error:
        error.report = table.report  # type: ignore[attr-defined]
        raise
    return table.report


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
            given[key] = answer_of(verdict, seen.asked[key][0], f"{verdict} {text}")[0]
        return given

    text: bytes | None = None
    said: dict[str, Answer] = {}
    performed: list[tuple[Any, ...]] = []
    while True:
        run, seen = retry.start(State(text=text), code, BOTH)
        retry.advance(run, seen, partial(run.start, said))
        seen.events = list(seen.events)
        performed += seen.performed
        if seen.end != ("asked",):
            break
        said = answers(seen)
        text = run.suspend().dumps()
        # A replay after a state-only round continues without an answer.
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
