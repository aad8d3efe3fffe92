"""A durable host of tasks, simulated: a clock, a store, people who answer, crashes.

The host drives `Run` as a real one must: it saves the journal at each stop before it acts,
and again between the beginning of a step and its performance. Everything that is drawn is
data in `World`, in the order of use; what is missing there is harmless. So a shrinker can
leave out parts of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from random import Random as Dice
from typing import Any, Final, Literal, TypeAlias

from attrs import define, evolve, field, frozen

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    Elicit,
    Random,
    Step,
)
from effectmcp.engine import (
    TASK,
    Answer,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Raised,
    Returned,
    Row,
    Rules,
    Run,
    Stop,
    Want,
)
from effectmcp.errors import ClientFailed, DivergenceError

from .laws import Broken, Expected, check_schedule, expect, law, stamps_of
from .programs import (
    Do,
    DomainError,
    Draw,
    Program,
    Stage,
    draw_program,
    shown,
    simpler_programs,
)

__all__ = ["FLOW_ID", "Host", "Reply", "Verdict", "World", "draw_world", "outcome_of"]

FLOW_ID: Final = b"a flow that waits"
Verdict: TypeAlias = Literal["yes", "no", "close", "fail", "unfit", "never"]

#: A call whose Detach makes it a task.
CALL: Final = Rules(policy="park", at_most_once=True)


@frozen
class Reply:
    """The answer to a question: the time after its asking, and the verdict."""

    after: int = 1
    verdict: Verdict = "yes"


@frozen
class World:
    """A program, and every event that happens to it.

    Attributes:
        program: The program.
        replies: The answers to questions, in the order of asking.
        durations: The times that performances take, in order.
        crashes: The points of the host at which its process is lost, with downtimes.
        cancel: The point after which the host cancels the flow.
        detaches: Whether the flow begins as a call, and becomes a task by `Detach`.
        one_by_one: Whether steps are started, and their results reported, one by one.
        is_late: Whether results of steps that lost are reported all the same.
        steps_first: Whether results are reported before answers of the same time.
        mute: The kinds of questions that the client does not support.
    """

    program: Program
    replies: tuple[Reply, ...] = ()
    durations: tuple[int, ...] = ()
    crashes: Mapping[int, int] = field(factory=dict)
    cancel: int | None = None
    detaches: bool = False
    one_by_one: bool = False
    is_late: bool = False
    steps_first: bool = False
    mute: frozenset[str] = frozenset()


def draw_world(dice: Dice) -> World:
    """Draw a world."""
    detaches = dice.random() < 0.15
    program = draw_program(dice, detaches=detaches)
    verdicts: list[Verdict] = ["yes", "no", "close", "fail", "unfit", "never"]
    weights = [12, 3, 2, 1, 3, 1]
    slow = dice.choice([0, 3, 8])
    crashes = {}
    if dice.random() < 0.7:
        for _ in range(dice.randint(1, 5)):
            crashes[dice.randrange(40)] = dice.choice([0, 0, 1, 2, 5, 9])
    return World(
        program,
        tuple(
            Reply(dice.randint(0, slow), dice.choices(verdicts, weights)[0])
            for _ in range(16)
        ),
        tuple(dice.randint(0, dice.choice([0, 2, 6])) for _ in range(16)),
        crashes,
        cancel=dice.randrange(30) if dice.random() < 0.25 else None,
        detaches=detaches,
        one_by_one=dice.random() < 0.5,
        is_late=dice.random() < 0.5,
        steps_first=dice.random() < 0.3,
        mute=frozenset({dice.choice(["elicit", "confirm"])})
        if dice.random() < 0.1
        else frozenset(),
    )


class Crash(Exception):
    """The host's process is lost."""


@define(eq=False)
class Worker:
    """One process of a host.

    Attributes:
        stage: Where the program is played.
        run: The run.
        clock: The time that its clock shows; `None` for the host's.
        stop: Where the run is.
        running: Steps that are performed: when they end, and with what.
        given: Answers that were given to the run.
        is_cancelled: Whether this run cancels.
    """

    stage: Stage
    run: Run
    clock: list[int | None]
    stop: Stop | None = None
    running: dict[str, tuple[int, Done | Failure]] = field(factory=dict)
    given: set[str] = field(factory=set)
    late: dict[str, tuple[int, Done | Failure]] = field(factory=dict)
    unsaved: set[str] = field(factory=set)
    is_cancelled: bool = False


def outcome_of(stop: Stop) -> Any:
    """Return a stop in a form that is the same in each replay."""
    match stop:
        case Asked(questions, wants, due):
            return (
                "asked",
                [(one.key, one.effect) for one in questions],
                _by_key(wants),
                due,
            )
        case Perform(wants):
            return "perform", _by_key(wants)
        case Returned(value):
            return "returned", shown(value)
        case Raised(error):
            return "raised", f"{type(error).__name__}: {error}"


def _by_key(wants: tuple[Want, ...]) -> dict[str, Any]:
    return {want.key: want.effect for want in wants}


class Host:
    """The host of one flow.

    Attributes:
        world: What happens.
        now: The time.
        stored: The journal in the store.
        rows: The rows in the store.
        inbox: The answers in the store, by wire key.
        story: What happened, in words.
        points: Points at which a crash was possible so far.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 0
        self.stored = Journal().dumps()
        self.rows: list[Row] = []
        self.inbox: dict[str, Answer] = {}
        self.story: list[str] = []
        self.points = 0
        self.saves = 0
        self.crashes = 0
        self.is_cancelled = False
        self._mail: list[tuple[int, str, Answer]] = []
        self._shown: set[str] = set()
        self._unfit: set[str] = set()
        self._performances: Counter[str] = Counter()
        self._effects: dict[str, Any] = {}
        self._begun: Counter[str] = Counter()
        self._done: set[str] = set()
        self._lost: set[str] = set()
        self._dues: dict[tuple[int, str], float] = {}
        self._gone: set[tuple[int, str]] = set()
        self._shielded: tuple[int, set[str]] = (0, set())
        self._performed = 0
        self._stopped_at: tuple[int, Any] = (0, None)
        self.end: Any = None
        self.events: list[Any] = []

    # ---- the life of the flow -------------------------------------------------------

    def play(self) -> None:
        """Play to the end, or until nothing can happen any more."""
        for _ in range(60):
            try:
                self._work()
            except Crash:
                continue
            break
        else:
            raise Broken("host", "it crashes for ever")

    def _work(self) -> None:
        with self._opened(Journal.loads(self.stored)) as worker:
            try:
                self._start(worker)
                for _ in range(400):
                    if not self._act(worker):
                        return
                raise Broken("host", "it never ends")
            except Crash:
                self._lost |= set(worker.running) | worker.unsaved
                self.crashes += 1
                self._shielded = (0, set())
                raise

    @contextmanager
    def _opened(self, journal: Journal, at: int | None = None) -> Iterator[Worker]:
        """Yield a worker with a fixed time, or with the host's clock."""
        world = self.world
        rules = CALL if world.detaches else TASK
        in_task = rules.task or journal.detached is True
        stage, clock = Stage(world.program, in_task=in_task), [at]
        run = Run(
            stage.main,
            flow_id=FLOW_ID,
            journal=journal,
            rules=rules,
            supports=self._supports,
            resolve=lambda name: stage.other,
            clock=lambda: self.now if clock[0] is None else clock[0],
            name="main",
        )
        try:
            yield Worker(stage, run, clock)
        finally:
            run.close()

    def _supports(self, what: Any) -> bool:
        name = what.__name__ if isinstance(what, type) else type(what).__name__
        return name.lower() not in self.world.mute

    def _tell(self, text: str) -> None:
        self.story.append(f"{self.now:>3} {text}")

    def _point(self, worker: Worker, where: str) -> None:
        number, self.points = self.points, self.points + 1
        if self.world.cancel == number:
            self.is_cancelled = True
            self._tell("to be cancelled")
        downtime = self.world.crashes.get(number)
        if downtime is not None:
            self._tell(f"CRASH {where} (point {number}), for {downtime}")
            self.now += downtime
            self._collect()
            raise Crash

    def _start(self, worker: Worker) -> None:
        if self.is_cancelled and Journal.loads(self.stored).cancelled is not None:
            # The journal says it itself.
            worker.is_cancelled = True
            worker.stop = worker.run.start(dict(self.inbox))
            self._tell(f"start() -> {_words(worker.stop)}")
            return
        if self.is_cancelled:
            worker.is_cancelled = True
            worker.stop = worker.run.cancel()
            self._tell(f"cancel() -> {_words(worker.stop)}")
            return
        if self.inbox:
            self._check_start()
        worker.given = set(self.inbox)
        worker.stop = worker.run.start(dict(self.inbox))
        self._tell(f"start({_short(self.inbox)}) -> {_words(worker.stop)}")

    def _act(self, worker: Worker) -> bool:
        """Do one thing; whether there is more."""
        stop = worker.stop
        assert stop is not None
        self._point(worker, "before saving")
        self._save(worker)
        self._point(worker, "after saving")
        if isinstance(stop, (Returned, Raised)):
            self._check_end(worker)
            return False
        if self.is_cancelled and not worker.is_cancelled:
            worker.is_cancelled = True
            generation = worker.run.journal.generation
            wanted = worker.stage.memory.steps(generation)
            self._shielded = generation, wanted & set(worker.running)
            worker.stop = worker.run.cancel()
            self._tell(f"cancel() -> {_words(worker.stop)}")
            law(
                "7 shielded",
                not self._shielded[1] or isinstance(worker.stop, Perform),
                self._shielded,
            )
            self._drop_losers(worker)
            return True
        fresh = [want for want in stop.wants if want.key not in worker.running]
        if fresh:
            self._begin(worker, fresh[:1] if self.world.one_by_one else fresh)
            return True
        return self._wait(worker, stop)

    def _begin(self, worker: Worker, wants: list[Want]) -> None:
        for want in wants:
            law("3 begun count", want.begun == self._begun[want.key], want)
            known = self._effects.setdefault(want.key, want.effect)
            law("3 arguments", known == want.effect, (want, known))
            worker.run.begin(want.key)
        self._tell(f"begin {[want.key for want in wants]}")
        self._point(worker, "after begin, before saving")
        # A beginning changes little in a journal: half of them are enough.
        self._save(worker, checks_cold=self.world.one_by_one)
        for want in wants:
            self._begun[want.key] += 1
        self._point(worker, "after begin, saved")
        for want in wants:
            worker.running[want.key] = self._perform(want)
            self._point(worker, "while performing")

    def _perform(self, want: Want) -> tuple[int, Done | Failure]:
        key, effect = want.key, want.effect
        law("3 performed again", key not in self._done, key)
        if self._performances[key]:
            law("3 performed twice", key in self._lost, key)
        self._lost.discard(key)
        self._performances[key] += 1
        self._performed += 1
        nth = self._performed
        durations = self.world.durations
        lasts = durations[nth - 1] if nth <= len(durations) else 1
        outcome: Done | Failure
        match effect:
            case Step():
                if effect.options.at_most_once:
                    law("3 at most once", self._performances[key] == 1, key)
                try:
                    outcome = Done(f"{effect.fn(*effect.args, **effect.kwargs)}{nth}")
                except DomainError as error:
                    outcome = Failure(DomainError(f"{error}{nth}"))
            case Random():
                outcome, lasts = Done(nth % 97 / 97), 0
            case Detach():
                outcome, lasts = Done(True), 0
            case _:
                raise Broken("host", f"it cannot perform {effect!r}")
        return self.now + lasts, outcome

    # ---- what happens next ----------------------------------------------------------

    def _wait(self, worker: Worker, stop: Perform | Asked) -> bool:
        """Let the next thing happen; whether there is one."""
        times = [at for at, _ in worker.running.values()]
        times += [at for at, _ in worker.late.values()]
        times += [at for at, _, _ in self._mail]
        if isinstance(stop, Asked) and stop.due is not None:
            times.append(int(stop.due))
        if not times:
            return False
        self.now = max(self.now, min(times))
        self._collect()
        ended = [key for key, (at, _) in worker.running.items() if at <= self.now]
        late = [key for key, (at, _) in worker.late.items() if at <= self.now]
        if self.world.one_by_one:
            ended = ended[:1]
        outcomes = {key: worker.running[key][1] for key in ended}
        outcomes |= {key: worker.late.pop(key)[1] for key in late}
        answers = {
            key: one for key, one in self.inbox.items() if key not in worker.given
        }
        if outcomes and self.world.steps_first:
            answers = {}
        if answers or (not outcomes and isinstance(stop, Asked)):
            self._answered(worker, answers)
        else:
            self._report(worker, outcomes)
        return True

    def _collect(self) -> None:
        """Store the answers that have arrived."""
        arrived = [one for one in self._mail if one[0] <= self.now]
        if arrived:
            self._mail = [one for one in self._mail if one[0] > self.now]
            asked = Journal.loads(self.stored).asked
            for _, key, answer in arrived:
                if key in asked:
                    self.inbox[key] = answer

    def _answered(self, worker: Worker, answers: Mapping[str, Answer]) -> None:
        worker.given |= set(answers)
        expected, performing = None, isinstance(worker.stop, Perform)
        if not performing:
            arrivals = self._arrivals(worker, answers)
            expected = self._expect(worker, arrivals, {})
        # Late answers are acknowledged, and given to the run to be ignored.
        late = {key: Accepted({"value": 99}) for key in self._shown - set(self.inbox)}
        asked = worker.run.journal.asked
        late = {key: one for key, one in late.items() if key not in asked}
        before = worker.stop
        worker.stop = worker.run.answered({**late, **answers})
        if performing:
            assert before is not None
            same = outcome_of(worker.stop) == outcome_of(before)
            law("performing", same, (before, worker.stop))
        self._tell(f"answered({_short(answers)}) -> {_words(worker.stop)}")
        self._drop_losers(worker)
        self._check_expected(expected, worker)

    def _arrivals(self, worker: Worker, answers: Mapping[str, Answer]) -> set[str]:
        """Return the answers that are arrivals: answers that fit, and the third misfit."""
        asked = worker.run.journal.asked
        return {
            key for key in answers if key not in self._unfit or asked[key].unfit == 2
        }

    def _report(self, worker: Worker, outcomes: dict[str, Done | Failure]) -> None:
        expected = None
        if isinstance(worker.stop, Asked):
            expected = self._expect(worker, set(), outcomes)
        stored = self._stored_answers(worker)
        memory, past = worker.stage.memory, len(worker.stage.memory.log)
        worker.stop = worker.run.performed(outcomes)
        for one in memory.log[past:]:
            if one.leaf.place in stored and not self.is_cancelled:
                law("4 stored answer", not one.is_time_up, one)
        self._tell(f"performed({_short(outcomes)}) -> {_words(worker.stop)}")
        self._lost |= set(outcomes)
        self._point(worker, "after performing, before saving")
        self._lost -= set(outcomes)
        worker.unsaved |= set(outcomes)
        for key in outcomes:
            worker.running.pop(key, None)
        self._drop_losers(worker)
        self._check_expected(expected, worker)

    def _stored_answers(self, worker: Worker) -> set[str]:
        """Return the places of the effects for which an answer is stored."""
        asked = worker.run.journal.asked
        places = {
            asked[key].place for key in worker.given - self._unfit if key in asked
        }
        leaves = worker.stage.memory.waiting.values()
        return {leaf.place for leaf in leaves if places & set(leaf.questions())}

    def _drop_losers(self, worker: Worker) -> None:
        stop = worker.stop
        if isinstance(stop, Perform):
            return  # the steps of races run on, and are not among its wants
        wanted = {one.key for one in getattr(stop, "wants", ())}
        for key in [key for key in worker.running if key not in wanted]:
            one = worker.running.pop(key)
            worker.unsaved.add(key)
            if self.world.is_late:
                worker.late[key] = one
        if not isinstance(stop, (Asked, Perform)):
            worker.late.clear()

    # ---- laws -----------------------------------------------------------------------

    def _expect(
        self, worker: Worker, answers: set[str], outcomes: Mapping[str, Any]
    ) -> Expected | None:
        if not worker.stage.in_task:
            return None
        journal = worker.run.journal
        places = {one.place for key, one in journal.asked.items() if key in answers}
        # What is late can be of an earlier generation, which had the same places.
        prefix = f"r{journal.generation}/" if journal.generation else ""
        ended = {key.removeprefix(prefix) for key in outcomes if key.startswith(prefix)}
        dues = {
            place: one.due
            for place, one in journal.places.items()
            if one.due is not None
        }
        return expect(worker.stage.memory, places | ended, dues, self.now)

    def _check_expected(self, expected: Expected | None, worker: Worker) -> None:
        if expected is not None:
            expected.check(is_cancelling=self.is_cancelled)

    def _check_start(self) -> None:
        """Law 4: `start(inbox)` is `start()`, and then `answered(inbox)`."""
        at, stop = self._stopped_at
        journal = Journal.loads(self.stored)
        if not isinstance(stop, Asked) or self._has_begun_once(journal):
            return
        dues = [one.due for one in journal.places.values() if one.due is not None]
        with (
            self._opened(journal) as one,
            self._opened(journal, _before(at, dues)) as two,
        ):
            two.run.start()
            if not two.stage.in_task:
                return  # each replay counts a round
            two.clock[0] = None
            second = two.run.answered(dict(self.inbox))
            first = one.run.start(dict(self.inbox))
            law("4 inbox", outcome_of(first) == outcome_of(second), (first, second))
            after = one.run.journal, two.run.journal
            law("4 inbox", after[0].dumps() == after[1].dumps(), after)

    def _has_begun_once(self, journal: Journal) -> bool:
        """Whether a new worker finds a started step that it must not start again."""
        prefix = f"r{journal.generation}/" if journal.generation else ""
        effects = [
            self._effects.get(prefix + place)
            for place, one in journal.places.items()
            if one.begun
        ]
        return any(
            isinstance(effect, Step) and effect.options.at_most_once
            for effect in effects
        )

    def _save(self, worker: Worker, *, checks_cold: bool = True) -> None:
        """Store the journal, the rows and the inbox in one write, and check all laws."""
        stop = worker.stop
        assert stop is not None
        journal = worker.run.journal
        text = journal.dumps()
        self.rows += worker.run.take_rows()
        law("rows", journal.with_rows(self.rows) == journal, journal)
        law("round trip", Journal.loads(text) == journal, journal)
        self.saves += 1
        before, self.stored = Journal.loads(self.stored), text
        self._settle(worker, journal)
        asked = journal.asked
        self.inbox = {key: one for key, one in self.inbox.items() if key in asked}
        self._stopped_at = self.now, stop
        if isinstance(stop, Asked):
            self._publish(stop)
        self._check_stop(worker, journal)
        self._check_dues(worker, before, journal)
        if checks_cold:
            self._check_cold(worker, journal, text)

    def _publish(self, stop: Asked) -> None:
        for question in stop.questions:
            key = question.key
            if key in self._shown:
                continue
            number = len(self._shown)
            self._shown.add(key)
            replies = self.world.replies
            reply = replies[number] if number < len(replies) else Reply()
            answer: Answer
            match reply.verdict, question.effect:
                case "never", _:
                    continue
                case "yes", Elicit():
                    answer = Accepted({"value": number})
                case "yes", Confirm():
                    answer = Accepted({})
                case "no", _:
                    answer = Declined()
                case "close", _:
                    answer = Dismissed()
                case "fail", _:
                    answer = ClientFailed(-32000, "broken")
                case _:
                    answer = Accepted(
                        {"value": "x"} if isinstance(question.effect, Elicit) else False
                    )
                    self._unfit.add(key)
            self._mail.append((self.now + reply.after, key, answer))

    def _settle(self, worker: Worker, journal: Journal) -> None:
        # A step no longer marked as started in a stored journal is over. A step of a race
        # is marked until its race is decided, though its result is known to the run.
        prefix = f"r{journal.generation}/" if journal.generation else ""
        begun = {prefix + at for at, one in journal.places.items() if one.begun}
        worker.unsaved &= begun
        self._done |= set(self._performances) - begun

    def _check_stop(self, worker: Worker, journal: Journal) -> None:
        stop, memory = worker.stop, worker.stage.memory
        leaves = list(memory.waiting.values())
        waiting = {place for leaf in leaves for place in leaf.questions()}
        asked = {one.place for one in journal.asked.values()}
        law("pool", not journal.pool, journal.pool)
        law("4 withdrawn", asked <= waiting, (asked, waiting))
        dues = {at for at, one in journal.places.items() if one.due is not None}
        clocks = {at: s for leaf in leaves for at, s in leaf.clocks().items()}
        law("4 clocks", dues <= set(clocks), (dues, clocks))
        steps = {place for leaf in leaves for place in leaf.steps()}
        local = {leaf.place for leaf in leaves if not leaf.is_wait}
        begun = {at for at, one in journal.places.items() if one.begun}
        law("3 begun places", begun <= steps | local, (begun, steps, local))
        prefix = f"r{journal.generation}/" if journal.generation else ""
        match stop:
            case Asked(questions, wants, due):
                is_over = worker.is_cancelled and journal.cancelled is not None
                law("7 asked", not (is_over and questions), questions)
                law(
                    "asked",
                    {one.key for one in questions} == set(journal.asked),
                    (questions, journal.asked),
                )
                fit = (worker.given - self._unfit) & set(journal.asked)
                law("4 delivered", not fit, fit)
                if worker.stage.in_task:
                    law("4 local", all(leaf.is_wait for leaf in leaves), leaves)
                    law("4 all asked", asked == waiting, (asked, waiting))
                    law("4 all timed", dues == set(clocks), (dues, clocks))
                    law(
                        "4 steps",
                        {one.key for one in wants} == {prefix + at for at in steps},
                        (wants, steps),
                    )
                known = [one.due for one in journal.places.values()]
                law(
                    "due",
                    due == min((one for one in known if one is not None), default=None),
                    due,
                )
            case Perform(wants):
                law("wants", bool(wants), wants)
                law(
                    "local",
                    {one.key for one in wants} <= {prefix + at for at in steps | local},
                    (wants, local),
                )
            case _:
                law("end", not asked and not dues and not begun, journal)
                law("end", not leaves, leaves)

    def _check_dues(self, worker: Worker, before: Journal, journal: Journal) -> None:
        number = journal.generation
        leaves = worker.stage.memory.waiting.values()
        clocks = {at: s for leaf in leaves for at, s in leaf.clocks().items()}
        now = {
            (number, at): one.due
            for at, one in journal.places.items()
            if one.due is not None
        }
        for place, due in now.items():
            law("4 due again", place not in self._gone, place)
            if place in self._dues:
                law("4 due moved", due == self._dues[place], (place, due))
                if isinstance(worker.stop, Asked) and clocks[place[1]]:
                    law("4 due fired", due > self.now, (place, due))
            else:
                seconds = clocks[place[1]]
                law("4 due", due == self.now + seconds, (place, due, seconds))
        self._gone |= set(self._dues) - set(now)
        self._dues = now

    def _check_cold(self, worker: Worker, journal: Journal, text: bytes) -> None:
        """Law 1: a cold replay stops at the same place, and changes nothing."""
        stop, memory = worker.stop, worker.stage.memory
        assert stop is not None
        if worker.is_cancelled and journal.cancelled is None:
            return  # it is cancelled when the started steps have ended
        if self._has_begun_once(journal):
            return  # it is interrupted
        dues = [one.due for one in journal.places.values() if one.due is not None]
        with self._opened(Journal.loads(text), _before(self.now, dues)) as cold:
            again, found = cold.run.start(), cold.stage.memory
            law("1 stop", outcome_of(again) == outcome_of(stop), (stop, again))
            law("1 events", found.events == memory.events, (memory, found))
            after = cold.run.journal
            if not worker.stage.in_task:
                after = evolve(after, rounds=journal.rounds)  # each is counted
            law("1 bytes", after.dumps() == text, (text, after.dumps()))
            law("1 rows", not cold.run.take_rows(), text)
        if isinstance(again, (Returned, Raised)) and journal.cancelled is None:
            check_schedule(cold.stage, journal)

    def _check_end(self, worker: Worker) -> None:
        self.end = outcome_of(worker.stop)  # type: ignore[arg-type]
        self.events = worker.stage.memory.events
        if worker.is_cancelled:
            self._check_cancelled(worker)

    def _check_cancelled(self, worker: Worker) -> None:
        """Law 7: `Cancelled` is thrown once, and started steps are recorded."""
        journal = worker.run.journal
        memory = worker.stage.memory
        # Not by path, which a branch of an earlier Gather can have had.
        seen: set[str] = set()
        for leaf in memory.closed:
            sequence = leaf.place.rpartition("/")[0]
            is_local = isinstance(leaf.statement, (Do, Draw))
            law("7 once", sequence not in seen or not is_local, leaf)
            seen.add(sequence)
        generation, shielded = self._shielded
        if generation == journal.generation:
            prefix = f"r{generation}/" if generation else ""
            places = {prefix + place for place in stamps_of(journal)}
            for key in shielded:
                race = key.rsplit("/", 2)[0]
                # A sibling's failure that was delivered first took the race back (B3),
                # and its step's result is ignored, as without a cancel (B3a 5).
                if race.removeprefix(prefix) in memory.taken_back:
                    continue
                law("7 recorded", key in places or race in places, (key, places))

    def check_park(self, edits: int) -> None:
        """An edited handler parks, and leaves the journal as it is; or it fits."""
        journal = Journal.loads(self.stored)
        for program in islice(simpler_programs(self.world.program), edits):
            with self._opened(journal) as worker:
                worker.stage.program = program
                try:
                    worker.run.start(dict(self.inbox))
                except DivergenceError as error:
                    law("park", error.verdict == "park", error)
                    law("park", worker.run.journal.dumps() == self.stored, journal)
                    law("park", not worker.run.take_rows(), journal)


def _before(now: int, dues: list[float]) -> int:
    # What is due at this very moment was asked for, and is not delivered yet.
    return now - (min(dues, default=now + 1) <= now)


def _short(some: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {one}" for key, one in some.items())


def _words(stop: Stop) -> str:
    match stop:
        case Asked(questions, wants, due):
            asked = [f"{one.key} {one.effect.message!r}" for one in questions]  # type: ignore[attr-defined]
            return f"asked {asked} wants {[one.key for one in wants]} due {due}"
        case Perform(wants):
            return f"perform {[one.key for one in wants]}"
        case _:
            return repr(stop)
