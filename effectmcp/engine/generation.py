"""One generation of a flow: the handler's tree of sequences advances in waves.

While any leaf wants something local, those leaves form the wave; when every leaf waits
for the client, all of them do. A wave has five phases, each over all its leaves in
position order:

    match    against the entries at hand
    drop     what does not match, if divergence.py says that we may
    take     this request's answers, the pool, what the engine knows
    perform  stop here until the rest is in
    deliver  to all, then join the Gathers whose branches have all ended

Which leaves are in a wave depends on the kinds of their effects only, never on whether
an answer is at hand. So branches that share Python objects see the same order of events
in every replay.

In a task people and clocks are waited for together (docs/internals, B3a). When no leaf is
local, what is at hand is the wave, and the others go on waiting. Such a wave is numbered,
and the entries of one that was not all leaves bear its number, so that a replay forms the
same waves.

Whatever may stop a flow is decided before a wave performs or asks anything new: a charge
that was made must not be forgotten with the flow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias

import attrs

from .. import effects as fx
from ..canonical import dumps, loads
from ..effects import Effect, InputRequest
from ..errors import (
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
from ..records import record
from .answers import STALE, Answers, Found, Unfitting, readable
from .divergence import Report, flatten, is_stopping, pooled_of
from .intake import Intake
from .journal import Entry, Journal, check_key, wire_key
from .kinds import (
    FED,
    LOCAL,
    NAMES,
    Recorded,
    deliver,
    is_replayable,
    record_error,
    record_value,
    steps_in,
    won,
)
from .misuse import forgotten, located, text_of, translated
from .places import Places
from .sequences import Closing, Sequence, Wanted
from .shared import ExhaustedError, Shared
from .steps import read_arguments, step_name
from .stops import (
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
from .tree import Cause, Leaf, Tree
from .turn import Ended, Failed, Yielded

__all__ = ["SOON", "Again", "Generation"]

logger = logging.getLogger("effectmcp.engine")

#: Tags of entries whose question was outstanding once.
_ASKED: Final = frozenset({"accepted", "declined", "dismissed", "invalid", "refused"})

#: Tags whose entry gives a plain value: a delivery cannot go any other way.
_PLAIN: Final = frozenset({"accepted", "chance", "known", "done"})

#: The client cannot be asked.
_UNASKED: Final[Found] = ("unasked", b"null")

#: Arguments of these types cannot be changed.
_LASTING: Final = frozenset({str, bytes, int, float, bool, type(None)})

#: After how many waves a flow is cancelled that is cancelled as soon as can be.
SOON: Final = -1


@record(eq=False)
class Again:
    """The flow begins again as another handler.

    Attributes:
        payload: The handler's name and arguments, as they were recorded.
        handler: The handler.
    """

    payload: bytes
    handler: Callable[..., Any]


_Out: TypeAlias = Stop | Again | None


class Generation(Tree):
    """One generation of a flow: everything that `Restart` begins anew.

    Attributes:
        number: How often the flow began again before.
        restart: The handler and arguments it began with, unless it is the first.
        places: What is outstanding, and what is known of places.
        answers: This request's answers, and the pool.
        cancelled: After how many waves it was cancelled; `SOON` if that is wanted.
        salvaged: A report for each time that entries were dropped.
        wants: What is being performed, by key, with the leaf that waits for it.
    """

    __slots__ = (
        "_again",
        "_detached",
        "_finished",
        "_heard",
        "_is_fresh",
        "_waits",
        "answers",
        "begun",
        "cancelled",
        "number",
        "places",
        "restart",
        "salvaged",
        "wants",
    )

    def __init__(
        self, flow: Shared, journal: Journal, salvaged: list[Report], *, is_first: bool
    ) -> None:
        self.number = journal.generation
        # A journal of before this was counted says nothing: all of it is past.
        past = -1.0
        if journal.waves is not None:
            past = journal.waves
        elif not is_first:
            past = float("inf")
        intake = Intake(flow, self.number, dict(journal.versions), past)
        super().__init__(flow, intake, journal.entries, self.number)
        self.restart = journal.restart
        self.places = Places(journal.places, self.number)
        self.answers = Answers(journal.pool, self.places, flow.read)
        self.cancelled = journal.cancelled
        self._detached = journal.detached
        self.salvaged = salvaged
        self.wants: dict[str, tuple[Sequence, Wanted]] = {}
        #: Wants that were begun.
        self.begun: set[str] = set()
        #: What came of steps that race, by place.
        self._finished: dict[str, Recorded] = {}
        #: Places whose answer was given in an earlier round.
        self._heard: set[str] = set()
        #: What a Restart began again as.
        self._again: Again | None = None
        #: Whether nothing was performed in this run so far.
        self._is_fresh = True
        #: Wait-waves that were delivered.
        self._waits = 0

    # ---- the whole of it ------------------------------------------------------------

    def start(
        self,
        handler: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Stop | Again:
        """Begin, and go on to the first stop."""
        if self.open(handler, args, kwargs):
            self._feed()
            self.join()
        return self.go()

    def go(self) -> Stop | Again:
        """Go on to the next stop."""
        while True:
            if self.cancelled == self.waves and not self.is_cancelling:
                self._cancel()
            stop: _Out
            if self.root.end is not None:
                stop = self._finish()
            else:
                leaves = self.root.leaves()
                local = [leaf for leaf in leaves if leaf[1].is_local]
                if local:
                    stop = self._take_wave(local)
                elif self.flow.rules.task:
                    stop = self._wait_wave(leaves)
                else:
                    stop = self._take_wave(leaves)
            if stop is not None:
                return stop

    @property
    def where(self) -> str | None:
        """`file:line` at which the first sequence is that has not ended."""
        for one in self.root.sequences():
            if one.end is None and one.gathering is None:
                return one.where
        return None

    @property
    def is_cancelling(self) -> bool:
        """Whether `Cancelled` was thrown already, or the handler has ended."""
        root = self.root
        return root.end is not None or (
            root.closing is not None and root.closing.signal is Cancelled
        )

    def snapshot(self) -> Journal:
        """Return the journal of this generation, as it is now."""
        return Journal(
            entries=self.root.snapshot(),
            places=dict(self.places.table),
            pool=self.answers.pooled(has_inbox=self.flow.rules.task),
            versions=dict(self.intake.versions),
            generation=self.number,
            restart=self.restart,
            rounds=self.flow.rounds,
            state_rounds=self.flow.state_rounds,
            waves=self.waves,
            cancelled=None if self.cancelled == SOON else self.cancelled,
            detached=self._detached,
        )

    # ---- the first phase ------------------------------------------------------------

    def _feed(self) -> None:
        """Run the handler for as long as it has no branches and its entries match.

        Most flows have no branches, and most of a replay is entries that match: a wave of
        one leaf each, with everything left out that cannot happen to those. At the first
        thing that can, the sequence is left to the waves as it stands, its generator
        included.
        """
        root, intake, in_task = self.root, self.intake, self.flow.rules.task
        running, entries, ordinals = root.running, root.entries, root.ordinals
        assert running is not None
        run, send_in, prints = root.context.run, running.send, self.flow.prints
        shapes, hasher = prints.shapes, prints.hasher
        last = len(entries)
        if self.cancelled is not None:
            last = min(last, max(0, self.cancelled - 1))
        position, waits = 0, 0
        heard = self.intake.past + 1
        value: Any = None
        error: BaseException | None = None
        fed = FED if self.flow.watch is None else {}
        while True:
            try:
                if error is None:
                    effect = run(send_in, value)
                else:
                    effect = run(running.throw, error)
            except KeyboardInterrupt:
                raise
            except StopIteration as stop:
                root.position = self.waves = position
                root.ends(Ended(stop.value))
                break
            except BaseException as exc:
                root.position = self.waves = position
                root.ends(Failed(translated(exc, root)))
                break
            wanted = None
            kind = fed.get(type(effect))
            if kind is not None:
                # As `Intake.identify` does it, without a call for each effect.
                try:
                    explicit = None
                    if kind.is_question:
                        explicit = effect.key
                        if explicit is not None:
                            check_key(explicit, NAMES)
                    elif not kind.is_free:
                        intake.check_steps(effect)
                    name, schema = kind.name, kind.schema(effect)
                    print_ = hasher.copy()
                    print_.update(kind.render(effect))
                    if explicit is None:
                        ordinals[name] = nth = ordinals.get(name, 0) + 1
                        key = f"{name}-{nth}"
                    else:
                        nth = root.next_ordinal(f"={explicit}")
                        key = explicit if nth == 1 else f"{explicit}#{nth}"
                except Exception:
                    pass  # the long way says in which words
                else:
                    render = print_.digest()
                    shape = shapes.get((name, explicit, schema)) or prints.shape(
                        name, explicit, schema
                    )
                    if position < last:
                        entry = entries[position]
                        if (
                            entry.key == key
                            and entry.render == render
                            and entry.shape == shape
                            and entry.tag in _PLAIN
                            and entry.wave is None
                        ):
                            try:
                                value, error = kind.read(effect, entry.payload), None
                            except Exception:
                                pass  # thrown, or asked again, below
                            else:
                                position += 1
                                waits += kind.is_wait
                                if position == heard:
                                    self.flow.unmute()
                                continue
                    is_local = kind.wave is LOCAL and not (kind.is_wait and in_task)
                    wanted = root.wanted = Wanted(
                        effect, effect, kind, key, key, shape, render, is_local
                    )
            root.position = self.waves = position
            self._waits = waits if in_task else 0
            if wanted is None:
                # The long way: refusals, effects without entries, whatever is unusual.
                self.took(root, Yielded(effect))
                wanted = root.wanted
                if wanted is None:
                    break
            if position < last:
                entry = entries[position]
                if (
                    isinstance(wanted.subject, _TURNING)
                    or entry.wave is not None
                    or not wanted.is_of(entry)
                    or not self._compute((root, wanted), entry)
                ):
                    break
            elif wanted.place in self.answers.own and self.cancelled is None:
                if self._take([(root, wanted)]):
                    break
                self.flow.unmute()
                self.flow.spend()
            else:
                break
            value, error = wanted.value, wanted.error
            root.wanted = None
            position += 1
            waits += wanted.row.is_wait
            if position == heard:
                self.flow.unmute()

    # ---- waves ----------------------------------------------------------------------

    def _take_wave(self, wave: list[Leaf]) -> _Out:
        if self.cancelled is not None and self.cancelled - 1 == self.waves:
            # The wave in which the flow was cancelled: what was performed of it.
            recorded = [leaf for leaf in wave if _has_own(leaf)]
            wave = recorded or wave
        fresh = self._match(wave)
        if fresh:
            if self.is_anything_ahead(wave):
                self.diverge("left over", fresh[0][0])
                fresh = wave
            if self.cancelled == SOON:
                self._cancel()
                return None
            missing = self._take(fresh)
            if missing:
                if missing[0][1].is_local:
                    return self._perform(missing)
                stop = self._ask(missing)
                if stop is not None:
                    return stop
        self._deliver(wave)
        return None

    def _wait_wave(self, leaves: list[Leaf]) -> _Out:
        """Deliver what is at hand, or stop until something arrives."""
        number = self._waits
        wave = [
            leaf
            for leaf in leaves
            if (entry := leaf[0].next_entry()) is not None and entry.wave == number
        ]
        if not wave and all(
            (entry := sequence.next_entry()) is not None and entry.wave is None
            for sequence, _ in leaves
        ):
            wave = leaves
        if wave:
            missing = self._match(wave)
            if missing:
                # A recorded answer that does not fit any more; all the rest must go.
                self.diverge("unfit", missing[0][0])
            self._deliver(wave)
            return None
        if self.is_anything_ahead([]):
            self.diverge("left over", leaves[0][0])
        if self.cancelled == SOON:
            # Steps that were begun have ended: what came of them is not lost.
            ended = [
                leaf
                for leaf in leaves
                if any(part.place in self._finished for part in leaf[1].parts)
            ]
            if ended:
                others = len(ended) < len(leaves)
                self._take(ended, number if others else None, always=others)
                self._deliver(ended)
            self._cancel()
            return None
        missing = self._take(leaves, number)
        if len(missing) == len(leaves):
            return self._ask(leaves)
        self._deliver([leaf for leaf in leaves if leaf not in missing])
        return None

    # ---- match ----------------------------------------------------------------------

    def _match(self, wave: list[Leaf]) -> list[Leaf]:
        """Return the leaves that have no entry; the others are ready for delivery."""
        fresh = []
        for leaf in wave:
            sequence, wanted = leaf
            entry = sequence.next_entry()
            if entry is None:
                fresh.append(leaf)
            elif wanted.ready:
                pass
            elif not wanted.is_of(entry):
                self.diverge("differs", sequence, entry)
                return wave
            elif not self._prepare(leaf, entry):
                fresh.append(leaf)
                if self.is_anything_ahead([one for one in wave if one is not leaf]):
                    # Something was built on the answer that no longer fits.
                    self.diverge("unfit", sequence, entry)
                    return wave
        return fresh

    def _prepare(self, leaf: Leaf, entry: Entry) -> bool:
        """Compute what `leaf` will get, or forget an answer that no longer fits."""
        if self._compute(leaf, entry):
            return True
        sequence, wanted = leaf
        sequence.forget_next()
        self.places.count(wanted.place)
        return False

    def _compute(self, leaf: Leaf, entry: Entry) -> bool:
        """Compute what `leaf` will get for `entry`, if that fits."""
        sequence, wanted = leaf
        wanted.value = wanted.error = None
        try:
            wanted.value = deliver(wanted.effect, wanted.row, entry)
        except Unfit as exc:
            # A validator changed since, so the answer does not fit *today's* form. That
            # is no divergence of the handler's.
            wanted.problems = tuple(exc.problems)
            return False
        except UsageError as exc:
            wanted.error = located(exc, sequence)
        except Exception as exc:
            wanted.error = exc
        wanted.ready = True
        return True

    # ---- drop -----------------------------------------------------------------------

    def diverge(
        self, cause: Cause, sequence: Sequence, entry: Entry | None = None
    ) -> None:
        """Drop every entry that was not delivered, in the whole flow, if we may.

        Raises:
            DivergenceError: We may not.
        """
        flow = self.flow
        sequences = list(self.root.sequences())
        if entry is None:
            # The last one: that is the one which lies beyond, whichever sequence has it.
            holders = [one for one in (sequence, *sequences) if one.next_entry()]
            beyond = holders[0].entries[-1] if holders else None
            entry = beyond or self.left_over[-1].entry
        wanted = sequence.wanted
        current = None if wanted is None else _described(wanted, entry)
        report = self.report(cause, sequence, f"{entry.key} ({entry.tag})", current)
        is_reworded = (
            cause == "differs"
            and wanted is not None
            and isinstance(wanted.subject, InputRequest)
            and (entry.key, entry.shape) == (wanted.key, wanted.shape)
        )
        if is_reworded:
            report = attrs.evolve(report, cause="stale")
        if flow.rules.policy != "salvage":
            raise DivergenceError(flow.rules.policy, report)
        if self.cancelled is not None:
            raise DivergenceError("stop", report)  # it ended; nobody is asked again
        dropped, self.left_over = self.left_over, []
        dropped += [
            one
            for each in sequences
            for one in flatten(each.entries[each.position :], each.path)
        ]
        if is_stopping(dropped):
            raise DivergenceError("stop", report)
        logger.info("salvaging: %s", report)
        self.salvaged.append(report)
        for each in sequences:
            each.drop()
        for pooled in dropped:
            if pooled.entry.tag in _ASKED:
                self.places.count(pooled.path + pooled.entry.key)
        self.answers.add(pooled_of(dropped))
        if is_reworded and wanted is not None:
            self._note_stale(sequence, wanted)

    def _note_stale(self, sequence: Sequence, wanted: Wanted) -> None:
        """Count an answer to a text that has changed since, and stop a flow in time.

        A server that asks again and again whether "12:31" suits would do so until the
        client gives up. A flow in which something was performed already goes on: the
        next round decides, before it performs anything.

        Raises:
            DivergenceError: Two versions of the handler are being served.
            NondeterminismError: One version asks something else each time.
        """
        count = self.places.note_stale(wanted.place)
        if count < self.flow.rules.stale or not self._is_fresh:
            return
        other = self._asked_cold(wanted.place)
        if other is None or other.render != wanted.render:
            then = "came to another place" if other is None else text_of(other.subject)
            raise NondeterminismError(
                f"{self.flow.name} asked {text_of(wanted.subject)!r} and then"
                f" {then!r}, over the same journal. What a question"
                " shows must come from answers and arguments, or from Now(), Uuid(),"
                " Random() and Step(...), which are recorded",
                where=sequence.where,
            )
        verdict = "park" if self.flow.rules.policy == "park" else "stop"
        place = wanted.place
        raise DivergenceError(verdict, self.report("versions", sequence, place, place))

    def _asked_cold(self, place: str) -> Wanted | None:
        """Replay once more, cold: what the same code over the same journal asks there."""
        rules = attrs.evolve(self.flow.rules, policy="strict", development=False)
        flow = attrs.evolve(
            self.flow,
            rules=rules,
            emit=lambda effect: None,
            watch=None,
            rows=[],
            spent=0,
            muted=True,
        )
        journal = attrs.evolve(self.snapshot(), pool=())
        again = Generation(flow, journal, [], is_first=False)
        handler, args, kwargs = self.call()
        try:
            if again.open(handler, args, kwargs):
                again._feed()
                again.join()
            while again.root.end is None:
                leaves = again.root.leaves()
                wave = [leaf for leaf in leaves if leaf[1].is_local] or leaves
                if again._match(wave):
                    return next((one for _, one in leaves if one.place == place), None)
                again._deliver(wave)
        except (DivergenceError, ExhaustedError):
            pass
        finally:
            again.unwind()
        return None

    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
        """Return the handler of this generation, and its arguments.

        Raises:
            DivergenceError: It is no longer there, or takes other arguments.
        """
        if self.restart is None:
            return (self.flow.handler, *self.flow.call)
        name, *written = loads(self.restart)
        handler = self.flow.find(name)
        if handler is not None:
            try:
                return (handler, *read_arguments(handler, written))
            except UsageError as exc:
                logger.warning("%s", exc)
        verdict = "park" if self.flow.rules.policy == "park" else "stop"
        raise DivergenceError(verdict, self.report("gone", None, name, None))

    def report(
        self,
        cause: Any,
        sequence: Sequence | None,
        recorded: str | None,
        current: str | None,
    ) -> Report:
        """Return what differs, and where."""
        place, text, where = "at the start", None, None
        if sequence is not None:
            branch = f"branch {sequence.path.rstrip('/')}, " if sequence.path else ""
            place = f"{branch}entry {sequence.position}"
            where = sequence.where
            if current and sequence.wanted is not None:
                text = text_of(sequence.wanted.subject)
        return Report(
            handler=self.flow.name,
            version=self.flow.version,
            round=self.flow.rounds,
            place=place,
            recorded=recorded,
            current=current,
            text=text,
            where=where,
            cause=cause,
        )

    # ---- take -----------------------------------------------------------------------

    def _take(
        self, fresh: list[Leaf], number: int | None = None, *, always: bool = False
    ) -> list[Leaf]:
        """Record what is at hand; return the leaves for which nothing is.

        Args:
            fresh: The leaves, none of which has an entry.
            number: The wait-wave's; its entries bear it if it is not all of `fresh`.
            always: Whether they bear it in any case.
        """
        found = self._take_answers(fresh)
        taken, missing = [], []
        for leaf in fresh:
            sequence, wanted = leaf
            outcome = self._at_hand(wanted, found)
            if outcome is not None and not self._compute(leaf, wanted.entry(*outcome)):
                outcome = self._refit(leaf)
            if outcome is None:
                missing.append(leaf)
            else:
                taken.append((sequence, wanted, outcome))
        stamp = number if missing or always else None
        for sequence, wanted, outcome in taken:
            if not wanted.row.is_question:
                self._stop_waiting(wanted)
            sequence.append(wanted.entry(*outcome, stamp))
            wanted.is_new = wanted.place not in self._heard
        return missing

    def _take_answers(self, fresh: list[Leaf]) -> dict[str, Found]:
        """Return the answers to the questions of a wave, by place."""
        answers, places, supports = self.answers, self.places, self.flow.supports
        found: dict[str, Found] = {}
        self._heard.clear()
        open_: list[Wanted] = []
        for sequence, wanted in fresh:
            for one in wanted.questions():
                answer = answers.take_own(one)
                if type(answer) is tuple:
                    found[one.place] = answer
                elif isinstance(answer, Unfitting):
                    self._take_unfit(one, answer, found)
                else:
                    if answer is STALE:
                        self._note_stale(sequence, one)
                    open_.append(one)
            if not wanted.row.is_question:
                open_.append(wanted)
        if answers.are_none:
            for one in open_:
                if one.row.is_question and not supports(one.subject):
                    places.withdraw(one.place)
                    found[one.place] = _UNASKED
            return found
        for one in open_:
            is_question = one.row.is_question
            pooled = answers.take_pooled(one)
            if isinstance(pooled, Unfit):
                one.problems = tuple(map(readable, pooled.problems))
            elif pooled is not None:
                places.withdraw(one.place)
                found[one.place], is_news = pooled
                if not is_news:
                    self._heard.add(one.place)
                continue
            if is_question and not supports(one.subject):
                places.withdraw(one.place)
                found[one.place] = _UNASKED
            elif is_question and answers.early and not places.at(one.place).asked:
                early = answers.take_early(one)
                if early is not None:
                    found[one.place] = early
        return found

    def _refit(self, leaf: Leaf) -> Recorded | None:
        """Return the outcome in place of an answer that does not fit after all."""
        _, wanted = leaf
        for one in wanted.questions():
            self.places.count(one.place)
        if wanted.row.is_question and not self.flow.supports(wanted.subject):
            outcome: Recorded = (*_UNASKED, False)
            self._compute(leaf, wanted.entry(*outcome))
            return outcome
        return None

    def _take_unfit(
        self, wanted: Wanted, answer: Unfitting, found: dict[str, Found]
    ) -> None:
        if answer.count >= self.flow.rules.unfit:
            found[wanted.place] = "invalid", dumps(list(answer.problems))
        elif not self.flow.supports(wanted.subject):
            found[wanted.place] = _UNASKED
        else:
            wanted.problems = answer.problems
            self.places.ask(wanted.place, wanted.shape, wanted.render, answer.count)

    def _at_hand(self, wanted: Wanted, found: Mapping[str, Found]) -> Recorded | None:
        """Return the outcome of what a leaf waits for, if it is known."""
        answer = found.get(wanted.place)
        if answer is not None:
            return (*answer, wanted.row.tag == "won")
        if wanted.row.is_question:
            return None
        subject, rules = wanted.subject, self.flow.rules
        match subject:
            case fx.ClientSupports():
                supports = bool(self.flow.supports(subject.what))
                return record_value(subject, wanted.row, supports)
            case fx.Restart():
                return "restart", wanted.row.render(subject), False
            case fx.Checkpoint() if rules.task:
                return "checkpoint", b"null", False
            case fx.Step():
                return self._interrupted(wanted)
            case fx.Sleep() if rules.task:
                is_up = self._is_up(wanted.place)
                return ("known", b"null", False) if is_up else None
            case fx.Within() | fx.FirstOf() if wanted.parts:
                return self._race(wanted, found)
            case _:
                return None

    def _interrupted(self, wanted: Wanted) -> Recorded | None:
        step = wanted.subject
        assert isinstance(step, fx.Step)
        if not step.options.at_most_once or not self.places.at(wanted.place).begun:
            return None
        if self._key_of(wanted) in self.begun:
            return None  # in this very run: it goes on
        # Begun in another process, which was lost before it could say more.
        return record_error(step, StepInterrupted(step_name(step)))

    def _is_up(self, place: str) -> bool:
        due = self.places.at(place).due
        return due is not None and due <= self.flow.now()

    def _race(self, wanted: Wanted, found: Mapping[str, Found]) -> Recorded | None:
        """Return the winner of a `Within` or `FirstOf`, if there is one.

        In a task, what arrived beats a clock: an answer that was stored must not lose to
        a deadline that passed while no worker ran. Elsewhere the clock beats an answer
        that comes with the request: it came too late.
        """
        arrived, up = self._arrived(wanted, found), self._up(wanted)
        if self.flow.rules.task:
            return arrived or up
        return up or arrived

    def _arrived(self, wanted: Wanted, found: Mapping[str, Found]) -> Recorded | None:
        may_repeat = is_replayable(wanted.subject)
        for position, part in enumerate(wanted.parts):
            outcome: Recorded | None = None
            if part.row.is_question:
                answer = found.get(part.place)
                outcome = None if answer is None else (*answer, False)
            elif isinstance(part.subject, fx.Step):
                outcome = self._finished.get(part.place) or self._interrupted(part)
            if outcome is not None:
                tag, payload, _ = outcome
                if tag == "failed":
                    return tag, payload, may_repeat
                return "won", won(position, tag, payload), may_repeat
        return None

    def _up(self, wanted: Wanted) -> Recorded | None:
        may_repeat = is_replayable(wanted.subject)
        if self._is_up(wanted.place):
            return "won", b"null", may_repeat
        ups = [
            (self.places.at(part.place).due, position)
            for position, part in enumerate(wanted.parts)
            if self._is_up(part.place)
        ]
        if not ups:
            return None
        return "won", won(min(ups)[1], "known", b"null"), may_repeat

    # ---- perform --------------------------------------------------------------------

    def _key_of(self, wanted: Wanted) -> str:
        return wire_key(self.number, wanted.place, 1)

    def _want(self, sequence: Sequence, wanted: Wanted) -> Want:
        key = self._key_of(wanted)
        self.wants[key] = sequence, wanted
        begun = self.places.at(wanted.place).begun
        return Want(key, _with_copies(wanted.subject), sequence.context, begun)

    def _perform(self, missing: list[Leaf]) -> Stop:
        return Perform(tuple([self._want(*leaf) for leaf in missing]))

    def begin(self, key: str) -> None:
        """Note that a want is begun: it counts, and a cancel waits for it."""
        sequence, wanted = self.wants[key]
        self.begun.add(key)
        self.places.begin(wanted.place)

    def perform(self, outcomes: Mapping[str, Done | Failure]) -> None:
        """Record what came of some wants.

        Raises:
            UsageError: An outcome is not what the effect gives. Nothing is recorded.
        """
        written = [
            (*self.wants[key], key, _written(self.wants[key][1], outcome))
            for key, outcome in outcomes.items()
        ]
        for sequence, wanted, key, outcome in written:
            self._is_fresh = False
            if wanted is sequence.wanted:
                self._end(key, wanted)
                sequence.record(*outcome)
            else:
                # Its place remembers that it was begun until its race is recorded.
                del self.wants[key]
                self.begun.discard(key)
                self._finished[wanted.place] = outcome

    def _end(self, key: str, wanted: Wanted) -> None:
        self.wants.pop(key, None)
        self.begun.discard(key)
        self.places.end(wanted.place)

    def pending(self) -> Perform | None:
        """Return what must still be performed before the flow goes on, if anything.

        Steps of races run in the background, unless the flow is being cancelled: then all
        that was begun is waited for.
        """
        keys = [
            key
            for key, (sequence, wanted) in sorted(self.wants.items())
            if wanted is sequence.wanted or self.cancelled == SOON
        ]
        if not keys:
            return None
        return Perform(tuple([self._want(*self.wants[key]) for key in keys]))

    def keep_begun(self) -> set[str]:
        """Take back what is wanted and was not begun; return its keys."""
        dropped = set(self.wants) - self.begun
        for key in dropped:
            del self.wants[key]
        return dropped

    def withdraw(self, leaf: Sequence) -> None:
        """Note that what `leaf` waits for is no longer wanted."""
        wanted = leaf.wanted
        if wanted is not None:
            self.places.withdraw(wanted.place)
            self._stop_waiting(wanted)
            if self.flow.rules.task:
                # An answer that is here already is as late as one that comes later.
                for one in wanted.questions():
                    self.answers.own.pop(one.place, None)

    def _stop_waiting(self, wanted: Wanted) -> None:
        """Take back the questions, clocks and steps of what is decided now."""
        self.places.end(wanted.place)
        for part in wanted.parts:
            if not part.row.is_question:
                self._finished.pop(part.place, None)
                self._end(self._key_of(part), part)
            elif self.places.at(part.place).out is not None:
                self.places.withdraw(part.place)
            else:
                # It was asked, and the entry is that of the race.
                self.places.count(part.place)

    # ---- ask ------------------------------------------------------------------------

    def _ask(self, missing: list[Leaf]) -> Stop | None:
        """Stop until something arrives; `None` if nothing may be asked, or need be."""
        flow, rules = self.flow, self.flow.rules
        asking = [leaf for leaf in missing if leaf[1].row.is_question or leaf[1].parts]
        if not rules.task:
            for leaf in missing:
                if isinstance(leaf[1].subject, fx.Checkpoint):
                    leaf[0].record("checkpoint", b"null")
                    self._prepare(leaf, leaf[0].entries[-1])
            if not asking and not rules.shed:
                return None
            flow.limit = self._limit_reached(is_state_only=not asking)
            if flow.limit is not None:
                for _, wanted in asking or missing:
                    wanted.error = TooManyRounds(flow.limit, state_only=not asking)
                return None
            flow.state_rounds += not asking
        self.answers.early = {}  # they came before anything was asked
        questions: list[Question] = []
        wants: list[Want] = []
        kept: set[str] = set()
        is_news = not rules.task
        for sequence, wanted in missing:
            for one in wanted.questions():
                is_news |= self._put(sequence, one, questions)
                kept.add(one.place)
            if not wanted.row.is_question:
                kept |= self._start_clocks(wanted)
                wants += [
                    self._want(sequence, part)
                    for part in wanted.parts
                    if isinstance(part.subject, fx.Step)
                ]
        table = self.places.table
        if len(table) > len(kept):
            self.places.keep_only(kept)
        flow.rounds += is_news
        dues = [one.due for one in table.values() if one.due is not None]
        return Asked(tuple(questions), tuple(wants), min(dues, default=None))

    def _put(self, sequence: Sequence, one: Wanted, questions: list[Question]) -> bool:
        """Add a question to those of this round; whether it goes out for the first time."""
        places, place = self.places, one.place
        is_new = places.at(place).out is None
        if is_new:
            places.ask(place, one.shape, one.render)
        assert isinstance(one.subject, InputRequest)
        questions.append(
            Question(places.wire(place), one.subject, one.problems, sequence.where)
        )
        return is_new

    def _start_clocks(self, wanted: Wanted) -> set[str]:
        """Start the clocks of what is waited for; return their places."""
        places = set()
        for place, seconds in _clocks(wanted):
            places.add(place)
            if self.places.at(place).due is None:
                self.places.set_due(place, self.flow.now() + seconds)
        return places

    def _limit_reached(self, *, is_state_only: bool) -> int | None:
        flow, rules = self.flow, self.flow.rules
        if flow.limit is not None:
            return flow.limit  # once over it, nothing may be asked any more
        if rules.rounds is not None and flow.rounds >= rules.rounds:
            return rules.rounds
        if (
            is_state_only
            and rules.state_rounds is not None
            and flow.state_rounds >= rules.state_rounds
        ):
            return rules.state_rounds
        return None

    # ---- deliver --------------------------------------------------------------------

    def _deliver(self, wave: list[Leaf]) -> None:
        # Every position first: what a delivery starts must see the whole wave as past.
        flow = self.flow
        is_news, fed = False, []
        for sequence, wanted in wave:
            has_entry = sequence.next_entry() is not None
            sequence.position += has_entry
            is_news = is_news or wanted.is_new
            fed.append(has_entry and not wanted.is_new)
        if flow.rules.task and wave and wave[0][1].row.is_wait:
            self._waits += 1
        self.waves += 1
        if is_news or self.waves > self.intake.past:
            flow.unmute()
        for (sequence, wanted), is_fed in zip(wave, fed, strict=True):
            if not is_fed:
                flow.spend()
            value, error = wanted.value, wanted.error
            if isinstance(wanted.subject, fx.Restart) and error is None:
                payload = sequence.entries[sequence.position - 1].payload
                self._again = Again(payload, wanted.subject.handler)
                sequence.closing = Closing(Restarted)
                error = Restarted()
            elif isinstance(wanted.subject, fx.Detach):
                flow.detach(gave=value is True)
            self.turn(sequence, value, error)
        self.join()

    # ---- the end --------------------------------------------------------------------

    def _cancel(self) -> None:
        """Deliver what was performed of this wave, and throw `Cancelled`.

        Answers that came and were not delivered are not delivered any more. In a replay
        there is nothing to deliver: what is recorded beyond is the cleanup's.
        """
        if self.cancelled == SOON:
            done = []
            for leaf in filter(_has_own, self.root.leaves()):
                if leaf[1].is_local:
                    done.append(leaf)
                else:
                    leaf[0].drop()
            if done and not self._match(done):
                self._deliver(done)
        self.cancelled = self.waves
        self._again = None
        root = self.root
        if root.end is None and root.closing is not None:
            root.closing.signal = Cancelled  # it restarts: its cleanup goes on
        elif root.end is None:
            self.close(root, Cancelled)
            self.join()

    def _finish(self) -> Stop | Again:
        root = self.root
        end = root.end
        failure = end.error if isinstance(end, Failed) else None
        if self._again is not None:
            if failure is not None and not isinstance(failure, Signal):
                logger.error("an exception in a restart's cleanup", exc_info=failure)
            if self.is_anything_ahead([]):
                self.diverge("left over", root)
            return self._again
        if self.cancelled is not None and isinstance(failure, Restarted):
            return Raised(Cancelled())  # it was cancelled while it was restarting
        if self.is_anything_ahead([]):
            if failure is None or self.flow.rules.policy == "park":
                self.diverge("left over", root)
            else:
                # The handler's own exception is the news; what is left only follows.
                logger.info("%s raised with entries left over", self.flow.name)
        if failure is not None:
            return Raised(failure)
        assert isinstance(end, Ended)
        said = forgotten(end.value)
        if said is not None:
            return Raised(NotAnEffectError(f"{self.flow.name}: {said}"))
        return Returned(end.value)


#: What changes the rules, the tree or the rounds.
_TURNING: Final = (fx.Restart, fx.Detach, fx.Checkpoint)


def _has_own(leaf: Leaf) -> bool:
    """Whether the entry at hand is the outcome of what the leaf waits for."""
    sequence, wanted = leaf
    entry = sequence.next_entry()
    return entry is not None and entry.key == wanted.key


def _clocks(wanted: Wanted) -> list[tuple[str, float]]:
    """Return the places at which a time runs, and for how long."""
    match wanted.subject:
        case fx.Sleep(seconds):
            return [(wanted.place, seconds)]
        case fx.Within(seconds):
            return [(wanted.place, seconds)]
        case fx.FirstOf():
            return [
                (part.place, part.subject.seconds)
                for part in wanted.parts
                if isinstance(part.subject, fx.Sleep)
            ]
        case _:
            return []


def _with_copies(effect: Effect[Any]) -> Effect[Any]:
    """Return `effect` with copies of the arguments of the steps in it."""
    match effect:
        case fx.Step():
            values = (*effect.args, *effect.kwargs.values())
            if _LASTING.issuperset(map(type, values)):
                return effect
            args, kwargs = deepcopy((effect.args, dict(effect.kwargs)))
            return effect.with_arguments(args, kwargs)
        case fx.Within():
            return effect.around(_with_copies(effect.effect))
        case fx.FirstOf():
            return effect.around(*map(_with_copies, effect.effects))
        case _:
            return effect


def _described(wanted: Wanted, entry: Entry) -> str:
    """Return what a leaf waits for, in words that tell it from `entry`."""
    names = list(map(step_name, steps_in(wanted.subject)))
    what = f"{wanted.key} ({', '.join(names)})" if names else wanted.key
    if entry.key != wanted.key:
        return what
    if entry.shape != wanted.shape:
        return f"{what} with another form of answer"
    return f"{what} with other arguments, or another step" if names else what


def _written(wanted: Wanted, outcome: Done | Failure) -> Recorded:
    subject, kind = wanted.subject, wanted.row
    if isinstance(outcome, Done):
        return record_value(subject, kind, outcome.value)
    if kind.tag not in ("done", "won") or not isinstance(outcome.error, Exception):
        raise UsageError(
            f"{wanted.key} cannot fail: answer {type(subject).__name__} with Done(...),"
            " and let what is no Exception pass"
        )
    # The original traceback is seen here once; replays rebuild the exception without.
    logger.info("the step %s raised", wanted.place, exc_info=outcome.error)
    return record_error(subject, outcome.error)
