"""Replay the journal, then go on until something must be asked or done.

A `Run` is one flow in one process. It stops with what it needs and does not know who
answers:

    start() ─→ Perform(wants)  ─ performed(…) ─→ …     this process: steps, clock, chance
            ─→ Asked(questions) ─ answered(…) ─→ …     the client, live, or
                                  suspend()            seal the journal and forget
            ─→ Returned(value) | Raised(error)

By retry, live, from a store or from a script: the same calls in the same order, because
an answer that arrives is nothing but an entry that was not delivered yet.

The whole tree of branches advances in waves. While any leaf wants something local, those
leaves form the wave; when every leaf waits for the client, all of them do. A wave has
five phases, each over all its leaves in position order:

    match    against the entries at hand
    drop     what does not match, if divergence.py says that we may
    take     from the pool, from this request's answers, from what the engine knows
    perform  stop here until the rest is in
    deliver  to all, then join the Gathers whose branches have all ended

Which leaves are in a wave depends on the kinds of their effects only, never on whether
an answer is at hand. So branches that share Python objects see the same order of events
in every replay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from copy import deepcopy
from typing import Any, Final, Literal, TypeAlias

import attrs

from .. import effects as fx
from ..canonical import loads
from ..effects import Effect, InputRequest
from ..errors import (
    BudgetError,
    Cancelled,
    DivergenceError,
    NondeterminismError,
    NotAnEffectError,
    Restarted,
    Signal,
    StepInterrupted,
    TooManyRounds,
    UsageError,
)
from ..forms import Unfit
from .askings import Askings, check_answer
from .branches import Node
from .development import Watch
from .divergence import Pool, Report, flatten, is_stopping
from .intake import ExhaustedError, Intake
from .journal import Entry, Fingerprints, Journal, Pooled, Tag
from .kinds import FED, LOCAL, deliver, record_error, record_value, steps_in
from .misuse import forgotten, located, text_of, translated
from .rules import RETRY, Rules
from .steps import read_arguments, step_name
from .stops import (
    Answer,
    Asked,
    Done,
    Failure,
    Perform,
    Question,
    Raised,
    Returned,
    Stop,
    Want,
)
from .tree import Tree
from .turn import (
    Yielded,
    find,
    is_running,
    name_of,
)

__all__ = ["LEGAL", "Run"]

logger = logging.getLogger("effectmcp.engine")

_Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
State: TypeAlias = Literal["new", "performing", "asking", "ended", "suspended"]
Verb: TypeAlias = Literal["start", "performed", "answered", "cancel", "suspend"]

#: Which call is legal in which state. Suspending or cancelling what is over is not an
#: error: whoever does it is tidying up, and cannot know.
LEGAL: Final[Mapping[Verb, frozenset[State]]] = {
    "start": frozenset({"new"}),
    "performed": frozenset({"performing"}),
    "answered": frozenset({"asking"}),
    "cancel": frozenset({"performing", "asking", "ended", "suspended"}),
    "suspend": frozenset({"new", "performing", "asking", "ended", "suspended"}),
}

_STATE_AFTER: Final[Mapping[type[Stop], State]] = {
    Perform: "performing",
    Asked: "asking",
    Returned: "ended",
    Raised: "ended",
}

#: What salvage may find dropped that was out with the client once.
_ANSWERS: Final = frozenset({"accepted", "declined", "dismissed", "invalid", "refused"})

#: Tags whose entry gives a plain value: a delivery cannot go any other way.
_PLAIN: Final = frozenset({"accepted", "chance", "known"})

#: Arguments of these types cannot be used up.
_LASTING: Final = frozenset({str, bytes, int, float, bool, type(None)})

_NO_KWARGS: Final[Mapping[str, Any]] = {}


def _always(what: object) -> bool:
    return True


def _unheard(effect: Effect[Any]) -> None:
    pass


class Run:
    """One flow, from its journal on.

    Args:
        handler: A generator function, or anything that gives a generator, a coroutine
            that awaits effects only, or a plain value when called.
        args: Its arguments.
        kwargs: The same by name.
        flow_id: 16 to 64 random bytes, drawn once a flow by whoever starts it, and the
            same in every round.
        journal: What earlier rounds recorded. Trusted: seal it where others hold it.
        rules: `RETRY`, `LIVE`, `TASK`, `SCRIPT`, or your own.
        supports: Whether this request's client can be asked such a question; called
            with an effect, or with a class for `ClientSupports`, as often as it takes:
            the answer is the same for the whole round.
        emit: Hears of each `Progress`, `Log` and `Status` that is not muted.
        resolve: Finds a handler by `module:qualname`, for `Restart`; by default in the
            modules that are imported.
        name: The handler's name in reports, unless its own.
        version: The handler's declared version, for reports.

    Attributes:
        salvaged: A report for each time this run dropped entries and went on.
    """

    # One is made each round, and thirty attributes are more than a dict does quickly.
    __slots__ = (
        "__weakref__",
        "_askings",
        "_call",
        "_cancel_wanted",
        "_cancelled",
        "_flow_id",
        "_handler",
        "_intake",
        "_is_busy",
        "_is_cancelling",
        "_limit",
        "_name",
        "_pool",
        "_resolve",
        "_restart",
        "_restart_payload",
        "_restarting",
        "_rounds",
        "_spare",
        "_state",
        "_state_rounds",
        "_stop",
        "_supports",
        "_tree",
        "_version",
        "_wants",
        "_watch",
        "_waves",
        "rules",
        "salvaged",
    )

    def __init__(
        self,
        handler: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = _NO_KWARGS,
        *,
        flow_id: bytes,
        journal: Journal | None = None,
        rules: Rules = RETRY,
        supports: Callable[[Any], bool] = _always,
        emit: Callable[[Effect[Any]], None] = _unheard,
        resolve: Callable[[str], Callable[..., Any] | None] = find,
        name: str | None = None,
        version: str | None = None,
    ) -> None:
        given: object = handler
        if not callable(given):
            hint = (
                " Give the function and its arguments, not the flow that it returns."
                if is_running(given)
                else ""
            )
            raise UsageError(f"{given!r} is not a handler.{hint}")
        given = args
        if not isinstance(given, tuple):
            raise UsageError(
                f"args are a tuple, not {args!r}: Run(order, ('Dune',), flow_id=...)"
            )
        journal = Journal() if journal is None else journal
        self.rules = rules
        self.salvaged: list[Report] = []
        self._handler = handler
        self._call = self._spare = (args, kwargs)
        self._supports = supports
        self._resolve = resolve
        self._name = name or name_of(handler)
        self._version = version
        self._flow_id = flow_id

        self._intake = Intake(
            rules,
            Fingerprints(flow_id),
            emit=emit,
            handler=handler,
            resolve=resolve,
        )
        self._intake.versions.update(journal.versions)
        self._intake.generation = journal.generation
        # Not on a first call, which has an empty journal.
        self._intake.muted = not journal.is_empty
        self._askings = Askings(journal, rules, supports)
        self._pool = Pool(journal.pool)
        self._restart = journal.restart
        self._rounds = journal.rounds
        self._state_rounds = journal.state_rounds
        self._cancelled = journal.cancelled

        self._watch = Watch() if rules.development else None
        self._tree = self._grow(journal)
        self._waves = 0
        self._wants: dict[str, Node] = {}
        self._restarting: fx.Restart[Any] | None = None
        self._restart_payload = b""
        self._cancel_wanted = False
        self._is_cancelling = False
        self._limit: int | None = None
        self._state: State = "new"
        self._stop: Stop | None = None
        self._is_busy = False

    # ---- the embedder's verbs -------------------------------------------------------

    def start(self, answers: Mapping[str, Answer] | None = None) -> Stop:
        """Replay the journal and go on from there.

        Args:
            answers: What came with this request, by wire key. Answers to what is not
                out any more are ignored.

        Raises:
            DivergenceError: The handler changed, and may not go on.
        """
        self._check("start")
        for answer in (answers or {}).values():
            check_answer(answer)
        self._askings.answers = dict(answers or {})
        return self._guard(self._begin)

    def performed(self, outcomes: Mapping[str, Done | Failure]) -> Stop:
        """Go on with what performing the wants came to: one outcome for each.

        Raises:
            UsageError: An outcome is missing, unknown, or not what the effect gives.
            DivergenceError: The handler changed, and may not go on.
        """
        self._check("performed")
        if set(outcomes) != set(self._wants):
            missing = sorted(set(self._wants) - set(outcomes))
            unknown = sorted(set(outcomes) - set(self._wants))
            raise UsageError(
                "performed() needs one outcome for each want; missing are"
                f" {missing}, unknown are {unknown}"
            )
        written = {
            key: _write_outcome(node, outcomes[key])
            for key, node in self._wants.items()
        }
        for key, node in self._wants.items():
            node.drop()  # the "started" of an at_most_once step
            node.record(*written[key])
        self._wants = {}
        return self._guard(self._go_on)

    def answered(self, answers: Mapping[str, Answer]) -> Stop:
        """Go on with the client's answers, live; those missing are asked again.

        Raises:
            DivergenceError: The handler changed, and may not go on.
        """
        self._check("answered")
        for answer in answers.values():
            check_answer(answer)
        self._askings.answers = dict(answers)
        self._intake.spent = 0  # a new round
        return self._guard(self._go)

    def cancel(self) -> Stop:
        """End the flow: `Cancelled` is thrown, and cleanup may perform local effects.

        What is being performed is waited for: call `performed` as always. A second
        cancel ends the flow for good, wherever it is.
        """
        self._check("cancel")
        if self._state == "ended":
            assert self._stop is not None
            return self._stop
        if self._state == "suspended":
            return Raised(Cancelled())
        if self._cancelled is not None or self._cancel_wanted:
            if self._cancelled is None:
                self._cancelled = self._waves  # whoever goes on must know
            self.suspend()
            self._stop = Raised(Cancelled())
            return self._stop
        self._cancel_wanted = True
        if self._state == "performing":
            assert self._stop is not None
            return self._stop
        # Answers that came and were not delivered are not delivered any more: a replay
        # must find cleanup's own entries here.
        for node in self._tree.root.nodes():
            node.drop()
        return self._guard(self._go)

    def line_of(self, key: str) -> str | None:
        """`file:line` of the yield that wants what `Perform` calls `key`."""
        node = self._wants.get(key)
        return None if node is None else node.where

    def suspend(self) -> Journal:
        """End the round: unwind every generator, performing nothing, and forget them.

        Returns:
            The journal to go on from.
        """
        self.close()
        return self.journal

    def close(self) -> None:
        """End the round as `suspend` does, where nobody wants the journal."""
        self._check("suspend")
        if self._state not in ("ended", "suspended"):
            self._tree.unwind()
            self._state = "suspended"
        self._tree.let_go()

    @property
    def journal(self) -> Journal:
        """What was recorded so far. Take it at any stop.

        Raises:
            UsageError: This round passed the limit on rounds, so nothing may leave it.
        """
        if self._limit is not None:
            raise UsageError(
                "this round passed the limit on rounds: it must end here, and no state"
                " may leave it"
            )
        return Journal(
            entries=self._tree.root.snapshot(),
            asked=dict(self._askings.asked),
            tallies=dict(self._askings.tallies),
            pool=tuple(self._pool),
            versions=dict(self._intake.versions),
            generation=self._intake.generation,
            restart=self._restart,
            rounds=self._rounds,
            state_rounds=self._state_rounds,
            cancelled=self._cancelled,
        )

    @property
    def is_over_limit(self) -> bool:
        """Whether this round passed the limit on rounds, so that no state may leave it."""
        return self._limit is not None

    @property
    def where(self) -> str | None:
        """`file:line` at which the flow is. Safe to read from another thread."""
        leaves = self._tree.root.leaves()
        return leaves[0].where if leaves else None

    def _check(self, verb: Verb) -> None:
        if self._is_busy:
            raise UsageError(
                f"{verb}() was called while the run is going on: from inside its own"
                " handler, or from another thread"
            )
        if self._state not in LEGAL[verb]:
            raise UsageError(f"{verb}() makes no sense when the run is {self._state}")

    def _guard(self, advance: Callable[[], Stop]) -> Stop:
        self._is_busy = True
        if self._watch is not None:
            self._watch.begin()
        try:
            self._stop = advance()
        except ExhaustedError:
            self._stop = Raised(
                BudgetError(
                    f"{self._name} yielded {self.rules.yields:,} times in one round"
                    " without asking or returning: a loop that never ends?",
                    where=self.where,
                )
            )
            self._tree.unwind()
        except BaseException:
            self._tree.unwind()
            self._state = "suspended"
            raise
        finally:
            self._is_busy = False
            if self._watch is not None:
                self._watch.end()
        self._state = _STATE_AFTER[type(self._stop)]
        if self._watch is not None and isinstance(self._stop, Returned):
            self._watch.report(self._name)
        return self._stop

    # ---- beginning, and beginning again ---------------------------------------------

    def _begin(self) -> Stop:
        handler, (args, kwargs) = self._handler, self._call
        if self._askings.asked or self._tree.root.entries:
            # For replaying once more, cold: a handler may use up what it is given.
            self._spare = _copied(self._call)
        if self._restart is not None:
            handler, (args, kwargs) = self._find_restarted(self._restart)
        self._tree.open(handler, args, kwargs)
        return self._go()

    def _grow(self, journal: Journal) -> Tree:
        return Tree(
            journal.entries,
            self._intake,
            unreached=self._askings.unreached,
            diverge=self._diverge,
            watch=self._watch,
        )

    def _find_restarted(
        self, payload: bytes
    ) -> tuple[Callable[..., Any], tuple[Any, Any]]:
        name, *written = loads(payload)
        handler = self._intake.find(name)
        if handler is not None:
            try:
                return handler, read_arguments(handler, written)
            except UsageError as exc:
                logger.warning("%s", exc)
        raise DivergenceError(
            self._refusing_verdict(), self._report("gone", None, name, None)
        )

    def _next_generation(self, restart: fx.Restart[Any]) -> None:
        if self._tree.root.next_entry() is not None:
            self._diverge("left over", self._tree.root)
        payload = self._restart_payload
        self._restarting = None
        self._restart = payload
        self._intake.generation += 1
        self._intake.versions.clear()
        self._intake.detached = False  # a replay of this generation knows of none
        self._intake.spend()
        empty = Journal(generation=self._intake.generation)
        self._askings = Askings(empty, self.rules, self._supports)
        self._pool = Pool(())
        self._cancelled = None
        self._waves = 0
        self._tree = self._grow(empty)
        args, kwargs = read_arguments(restart.handler, loads(payload)[1:])
        self._tree.open(restart.handler, args, kwargs)

    # ---- the schedule ---------------------------------------------------------------

    def _go(self) -> Stop:
        while True:
            if not self._is_cancelling and (
                self._cancel_wanted or self._cancelled == self._waves
            ):
                self._begin_cancelling()
            root = self._tree.root
            if root.ended:
                stop = self._finish()
            elif (
                root.position < len(root.entries) or root.place in self._askings.wires
            ) and self._feed_alone():
                continue
            else:
                stop = self._take_wave()
            if stop is not None:
                return stop

    def _go_on(self) -> Stop:
        """The wave that was performed is delivered, even if a cancel came meanwhile."""
        stop = self._take_wave()
        return self._go() if stop is None else stop

    def _begin_cancelling(self) -> None:
        # In the journal it is a count of waves: the schedule is the same in every
        # replay, so a count is a position.
        self._is_cancelling = True
        self._cancelled = self._waves
        self._restarting = None
        if not self._tree.root.ended:
            self._tree.close(self._tree.root, Cancelled)
            self._tree.join()

    def _take_wave(self) -> Stop | None:
        root = self._tree.root
        wave = [root]
        if self._asks_anew(root):
            stop = self._ask(wave, wave)
        else:
            wave = leaves = root.leaves()
            if len(leaves) > 1:
                wave = [leaf for leaf in leaves if leaf.row.wave is LOCAL] or leaves
            stop = self._seek(wave)
        if stop is None:
            self._deliver(wave)
        return stop

    def _seek(self, wave: list[Node]) -> Stop | None:
        fresh = self._match(wave)
        if fresh:
            if self._tree.is_anything_ahead(wave):
                self._diverge("left over", fresh[0])
                fresh = wave
            fresh = self._take(fresh)
        if not fresh:
            return None
        if fresh[0].row.wave is LOCAL:
            return self._perform(fresh)
        asking = []
        for leaf in fresh:
            if isinstance(leaf.subject, InputRequest):
                asking.append(leaf)
            else:
                leaf.record("checkpoint", b"null")
                self._prepare(leaf, leaf.entries[-1])
        return self._ask(asking, fresh) if asking or self.rules.shed else None

    def _asks_anew(self, root: Node) -> bool:
        """Whether there is one leaf, with a question of which nothing is known so far.

        So most rounds end, and what could be matched or taken is not looked for then.
        """
        askings = self._askings
        return (
            isinstance(root.subject, InputRequest)
            and root.position == len(root.entries)
            and root.place not in askings.wires
            and not askings.takes_early
            and not self._pool.by_print
            and self._supports(root.subject)
        )

    def _feed_alone(self) -> bool:
        """Waves of one leaf, for as long as entries match: the same, only faster.

        Most flows have no branches and most waves of a replay are plain answers, that
        of this request being the last. This loop is `_take_wave` with everything left
        out that cannot happen to those; at the first thing that can, it stops and leaves
        it to `_take_wave`.

        Returns:
            Whether anything was fed.
        """
        root, unreached = self._tree.root, self._askings.unreached
        running, entries = root.running, root.entries
        if (
            root.children is not None
            or root.closing is not None
            or root.is_new
            or self._watch is not None
            or root.effect is not root.subject
            or not root.row.is_free
        ):
            return False
        assert running is not None
        assert root.effect is not None
        run, send_in = root.context.run, running.send
        kind, effect = root.row, root.effect
        first = position = root.position
        # Not beyond the wave at which the flow was cancelled.
        last = len(entries)
        if self._cancelled is not None:
            last = min(last, first + self._cancelled - self._waves)
        wires: Container[str] = ()
        if self._cancelled is None and not self._pool.by_print:
            wires = self._askings.wires
        identify, fed = self._intake.identify, FED
        while True:
            news = None
            if position < last:
                entry = entries[position]
                payload = entry.payload
                if (
                    entry.tag not in _PLAIN
                    or entry.key != root.key
                    or entry.shape != root.shape
                    or entry.render != root.render
                ):
                    break
            else:
                if root.key not in wires:
                    break
                news = self._askings.plain(root, kind, effect)
                if news is None:
                    break
                payload = news
            try:
                value = kind.read(effect, payload)
            except Exception:
                break  # no longer fits, or fails to come back: `_prepare` knows
            if news is not None:
                self._askings.settle(root.key)
                root.record("accepted", news)
                root.is_new = False
                root.problems = ()
                self._intake.unmute()
                self._intake.spend()
            root.position = position = position + 1
            root.ready = False
            try:
                yielded = run(send_in, value)
            except KeyboardInterrupt:
                raise
            except StopIteration as stop:
                root.end(result=stop.value)
                break
            except BaseException as exc:
                root.end(failure=translated(exc, root))
                break
            found = fed.get(type(yielded))
            if found is None:
                self._tree.took(root, Yielded(yielded))
                self._tree.join()
                break
            try:
                identify(root, found, yielded)
            except UsageError:
                self._tree.took(root, Yielded(yielded))
                self._tree.join()
                break
            kind, effect = found, yielded
            if unreached:
                unreached.discard(root.key)
        root.place = root.key
        self._waves += position - first
        return position > first

    # ---- match ----------------------------------------------------------------------

    def _match(self, wave: list[Node]) -> list[Node]:
        """The leaves that have no entry; the others are ready for delivery."""
        fresh = []
        for leaf in wave:
            entry = leaf.next_entry()
            if entry is None:
                fresh.append(leaf)
            elif leaf.ready:
                pass
            elif (
                entry.key != leaf.key
                or entry.shape != leaf.shape
                or entry.render != leaf.render
            ):
                self._diverge("differs", leaf, entry)
                return wave
            elif not self._prepare(leaf, entry):
                fresh.append(leaf)
                if self._tree.is_anything_ahead(
                    [one for one in wave if one is not leaf]
                ):
                    # Something was built on the answer that no longer fits.
                    self._diverge("unfit", leaf, entry)
                    return wave
        return fresh

    def _prepare(self, leaf: Node, entry: Entry) -> bool:
        """Compute what `leaf` will get, or give up on an answer that no longer fits."""
        assert leaf.effect is not None
        assert leaf.subject is not None
        if entry.tag == "started":
            # Begun in another process, which was lost before it could say more.
            leaf.drop()
            interrupted = StepInterrupted(step_name(steps_in(leaf.subject)[0]))
            leaf.record(*record_error(leaf.subject, leaf.row, interrupted))
            entry = leaf.entries[-1]
        leaf.value = leaf.error = None
        try:
            leaf.value = deliver(leaf.effect, leaf.row, entry)
        except Unfit as exc:
            # A validator changed since, so the answer does not fit *today's* form. That
            # is no divergence of the handler's.
            leaf.problems = tuple(exc.problems)
            del leaf.entries[leaf.position]
            self._askings.count(leaf.place)
            return False
        except UsageError as exc:
            leaf.error = located(exc, leaf)
        except Exception as exc:
            leaf.error = exc
        leaf.ready = True
        return True

    # ---- drop -----------------------------------------------------------------------

    def _diverge(
        self,
        cause: Literal["differs", "left over", "surplus", "unfit"],
        node: Node,
        entry: Entry | None = None,
    ) -> None:
        """Drop every entry that was not delivered, in the whole flow, if we may.

        Raises:
            DivergenceError: We may not.
        """
        nodes = list(self._tree.root.nodes())
        if entry is None:
            # The last one: that is the one which lies beyond, whoever holds it.
            holder = node if node.next_entry() is not None else None
            holder = holder or next(
                one for one in nodes if one.next_entry() is not None
            )
            entry = holder.entries[-1]
        current = None if node.ended else _described(node, entry)
        report = self._report(cause, node, f"{entry.key} ({entry.tag})", current)
        if (
            cause == "differs"
            and (entry.key, entry.shape) == (node.key, node.shape)
            and entry.render != node.render
            and isinstance(node.subject, InputRequest)
        ):
            # Only the text differs: a stale answer, whose question is asked again.
            report = attrs.evolve(report, cause="stale")
            self._askings.note_stale(node.place)
        if self.rules.policy != "salvage":
            raise DivergenceError(self.rules.policy, report)
        if self._cancelled is not None:
            raise DivergenceError("stop", report)  # it ended; nobody is asked again
        dropped: list[Pooled] = []
        for one in nodes:
            dropped += flatten(one.entries[one.position :], one.path)
        if is_stopping(dropped):
            raise DivergenceError("stop", report)
        logger.info("salvaging: %s", report)
        self.salvaged.append(report)
        for one in nodes:
            one.drop()
        for pooled in dropped:
            if pooled.entry.tag in _ANSWERS:
                self._askings.count(pooled.path + pooled.entry.key)
        self._pool.add(dropped)

    def _refusing_verdict(self) -> str:
        return "park" if self.rules.policy == "park" else "stop"

    def _report(
        self, cause: Any, node: Node | None, recorded: str | None, current: str | None
    ) -> Report:
        place = "at the start"
        if node is not None:
            branch = f"branch {node.path.rstrip('/')}, " if node.path else ""
            place = f"{branch}entry {node.position}"
        return Report(
            handler=self._name,
            version=self._version,
            round=self._rounds,
            place=place,
            recorded=recorded,
            current=current,
            text=text_of(node.subject) if node is not None and current else None,
            where=node.where if node is not None else None,
            cause=cause,
        )

    # ---- take -----------------------------------------------------------------------

    def _take(self, fresh: list[Node]) -> list[Node]:
        """The leaves for which nothing is at hand; the others are ready for delivery."""
        if self._pool.by_print:
            # Everyone's own first: a question elsewhere must not take the answer of one
            # that comes later in this very wave.
            missed = [leaf for leaf in fresh if not self._take_pooled(leaf)]
            for leaf in missed:
                entry = self._pool.take_elsewhere(leaf.shape, leaf.render)
                if entry is not None:
                    self._record_pooled(leaf, entry)
        missing = []
        for leaf in fresh:
            entry = leaf.next_entry()
            if entry is None or not self._prepare(leaf, entry):
                self._take_known(leaf)
                entry = leaf.next_entry()
                if entry is None or not self._prepare(leaf, entry):
                    missing.append(leaf)
        return missing

    def _take_pooled(self, leaf: Node) -> bool:
        """Whether the pool says, for this very path, what to do: take, or ask again."""
        found = self._pool.take_here(leaf.path, leaf.shape, leaf.render)
        if len(found) == 1:
            self._record_pooled(leaf, found[0])
        return bool(found)

    def _record_pooled(self, leaf: Node, entry: Entry) -> None:
        self._askings.withdraw(leaf.place)
        leaf.record(entry.tag, entry.payload)
        leaf.is_new = False  # heard in an earlier round, so nothing is unmuted

    def _take_known(self, leaf: Node) -> None:
        match leaf.subject:
            case InputRequest():
                self._askings.take(leaf, leaf.subject)
            case fx.ClientSupports():
                supports = bool(self._supports(leaf.subject.what))
                leaf.record(*record_value(leaf.subject, leaf.row, supports))
            case fx.Restart():
                leaf.record("restart", leaf.row.render(leaf.subject))
            case _:
                pass

    # ---- perform --------------------------------------------------------------------

    def _perform(self, fresh: list[Node]) -> Stop:
        wants = []
        for leaf in fresh:
            assert leaf.subject is not None
            self._wants[leaf.place] = leaf
            wants.append(Want(leaf.place, leaf.subject, leaf.context))
            if any(step.options.at_most_once for step in steps_in(leaf.subject)):
                # Whoever finds only this knows that it was begun, and not whether it
                # ended. The driver saves the journal before it performs anything.
                leaf.record("started", b"null")
        return Perform(tuple(wants))

    def _ask(self, asking: list[Node], waiting: list[Node]) -> Stop | None:
        askings = self._askings
        limit = self._limit = self._limit_reached(is_state_only=not asking)
        if limit is not None:
            for leaf in asking or waiting:
                leaf.error = TooManyRounds(limit, state_only=not asking)
            return None
        askings.takes_early = False  # they came before anything was asked
        if askings.wires:
            askings.keep_only({leaf.place for leaf in asking})
        asked = Asked(tuple([self._question(leaf) for leaf in asking]))
        self._rounds += 1
        self._state_rounds += not asking
        if askings.stale:
            return self._check_stale(asked) or asked
        return asked

    def _limit_reached(self, *, is_state_only: bool) -> int | None:
        rules = self.rules
        if self._limit is not None:
            return self._limit  # once over it, nothing may be asked any more
        if rules.rounds is not None and self._rounds >= rules.rounds:
            return rules.rounds
        if (
            is_state_only
            and rules.state_rounds is not None
            and self._state_rounds >= rules.state_rounds
        ):
            return rules.state_rounds
        return None

    def _question(self, leaf: Node) -> Question:
        assert isinstance(leaf.subject, InputRequest)
        out = self._askings.at(leaf.place)
        wire = (
            self._askings.add(leaf.place, leaf.shape, leaf.render)
            if out is None
            else out[0]
        )
        return Question(wire, leaf.subject, leaf.problems, leaf.where)

    def _check_stale(self, asked: Asked) -> Stop | None:
        """Refuse a question that will never be answered, because its text never stays.

        A server that asks again and again whether "12:31" suits would do so until the
        client gives up. Replayed once more, cold, such a handler asks something else
        again; a handler that was merely edited does not.
        """
        if not asked.questions:
            return None
        error = self._replay_cold(asked)
        if error is not None:
            self._tree.unwind()
            return Raised(error)
        for place in self._askings.stale:
            if self._askings.tallies[place].stale >= self.rules.stale:
                leaf = next(
                    (one for one in self._tree.root.leaves() if one.place == place),
                    None,
                )
                raise DivergenceError(
                    self._refusing_verdict(),
                    self._report("versions", leaf, place, place),
                )
        return None

    def _replay_cold(self, asked: Asked) -> NondeterminismError | None:
        again = Run(
            self._handler,
            *self._spare,
            flow_id=self._flow_id,
            journal=self.journal,
            rules=attrs.evolve(self.rules, policy="strict", rounds=None),
            supports=self._supports,
            resolve=self._resolve,
            name=self._name,
        )
        second: object
        try:
            second = again.start()
        except DivergenceError as exc:
            second = exc
        else:
            again.suspend()
        theirs = second.questions if isinstance(second, Asked) else ()
        if isinstance(second, Asked) and again._askings.asked == self._askings.asked:
            return None
        pairs = zip(asked.questions, theirs, strict=False)
        one = next((pair for pair in pairs if pair[0] != pair[1]), None)
        first = one[0] if one is not None else asked.questions[0]
        what = f"{text_of(first.effect)!r} and then came to {second}"
        if one is not None:
            what = " and then ".join(repr(text_of(each.effect)) for each in one)
        return NondeterminismError(
            f"{self._name} asked {what}, over the same journal. What a question shows"
            " must come from answers and arguments, or from Now(), Uuid(), Random() and"
            " Step(...), which are recorded",
            where=first.where,
        )

    # ---- deliver --------------------------------------------------------------------

    def _deliver(self, wave: list[Node]) -> None:
        # Every position first: what a delivery starts must see the whole wave as past.
        is_news, fed = False, []
        for leaf in wave:
            has_entry = leaf.next_entry() is not None
            leaf.position += has_entry
            is_news = is_news or leaf.is_new
            fed.append(has_entry and not leaf.is_new)
        self._waves += 1
        if is_news or self._is_shed_checkpoint(wave):
            self._intake.unmute()
        for leaf, is_fed in zip(wave, fed, strict=True):
            if not is_fed:
                self._intake.spend()
            value, error = leaf.value, leaf.error
            leaf.ready = leaf.is_new = False
            leaf.value = leaf.error = None
            leaf.problems = ()
            if isinstance(leaf.subject, fx.Restart) and error is None:
                self._restarting = leaf.subject
                self._restart_payload = leaf.entries[leaf.position - 1].payload
                leaf.closing = Restarted
                error = Restarted()
            elif isinstance(leaf.subject, fx.Detach):
                self._intake.detached = True
            self._tree.turn(leaf, value, error)
        self._tree.join()

    def _is_shed_checkpoint(self, wave: list[Node]) -> bool:
        """Whether the last round ended here, asking nothing: what follows is new."""
        return any(leaf.row.name == "checkpoint" for leaf in wave) and (
            not self._tree.is_past()
        )

    # ---- the end --------------------------------------------------------------------

    def _finish(self) -> Stop | None:
        root = self._tree.root
        if self._restarting is not None:
            if root.failure is not None and not isinstance(root.failure, Signal):
                logger.error(
                    "an exception in a restart's cleanup", exc_info=root.failure
                )
            self._next_generation(self._restarting)
            return None
        if self._is_cancelling and isinstance(root.failure, Restarted):
            return Raised(Cancelled())  # it was cancelled while it was restarting
        if root.next_entry() is not None:
            if root.failure is None or self.rules.policy == "park":
                self._diverge("left over", root)
            else:
                # The handler's own exception is the news; what is left only follows.
                logger.info("%s raised with entries left over", self._name)
        if root.failure is not None:
            return Raised(root.failure)
        said = forgotten(root.result)
        if said is not None:
            return Raised(NotAnEffectError(f"{self._name}: {said}"))
        return Returned(root.result)


def _copied(call: _Arguments) -> _Arguments:
    args, kwargs = call
    if _LASTING.issuperset(map(type, (*args, *kwargs.values()))):
        return call
    try:
        return deepcopy(call)
    except Exception:
        return call  # what cannot be copied is not likely to be used up either


def _described(node: Node, entry: Entry) -> str:
    """What a node wants, in a way that tells it from `entry`."""
    subject = node.subject
    names = [] if subject is None else list(map(step_name, steps_in(subject)))
    what = f"{node.key} ({', '.join(names)})" if names else node.key
    if entry.key != node.key:
        return what
    if entry.shape != node.shape:
        return f"{what} with another form of answer"
    return f"{what} with other arguments, or another step" if names else what


def _write_outcome(leaf: Node, outcome: Done | Failure) -> tuple[Tag, bytes]:
    subject, kind = leaf.subject, leaf.row
    assert subject is not None
    if isinstance(outcome, Done):
        return record_value(subject, kind, outcome.value)
    if kind.tag != "done" or not isinstance(outcome.error, Exception):
        raise UsageError(
            f"{leaf.key} cannot fail: answer {type(subject).__name__} with Done(...),"
            " and let what is no Exception pass"
        )
    # The original traceback is seen here once; replays rebuild the exception without.
    logger.info("the step %s raised", leaf.place, exc_info=outcome.error)
    return record_error(subject, kind, outcome.error)
