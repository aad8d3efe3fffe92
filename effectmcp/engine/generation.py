"""One generation of a flow: it advances the handler's tree of sequences in waves.

While any leaf waits for a local effect, those leaves form the wave; when every leaf
waits for the client, all leaves form it. A wave has five phases, each over all its
leaves in position order (docs/internals/replay.md#b1):

    match    effects with the next entries
    drop     entries that do not match, if divergence.py allows it
    take     this request's answers, the pool, outcomes that the engine knows
    perform  stop here until the other outcomes arrive
    deliver  to all, then join the Gathers whose branches have all ended

Which leaves are in a wave depends only on the kinds of their effects, never on whether
an answer is available. So branches that share Python objects see the same order of
events in every replay (docs/internals/replay.md#b2).

A task waits for people and clocks together (docs/internals/replay.md#b3a). When no leaf
is local, the leaves with an available outcome form the wave, and the others keep
waiting. Such a wave has a number. If it did not include all leaves, its entries store
the number, so that a replay forms the same waves.

Whether a flow must stop is decided before a wave performs or asks anything new, because
a charge that was made must not be forgotten with the flow
(docs/internals/replay.md#d1a).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from ..canonical import loads
from ..effects.base import InputRequest
from ..effects.control import Checkpoint, Detach, Restart
from ..effects.steps import Step
from ..errors import (
    Cancelled,
    DivergenceError,
    NondeterminismError,
    NotAnEffectError,
    Restarted,
    Signal,
    TooManyRounds,
    UsageError,
)
from ..logs import logger_for
from ..records import record
from .answers import UNASKED
from .divergence import Report, flatten, is_stopping, pooled_of
from .effect_table import (
    steps_in,
)
from .flow_state import SOON, ExhaustedError, HandlerCall
from .generators import Ended, Failed
from .journal import Entry
from .misuse import forgotten, text_of
from .outcomes import Performing, Taking, clocks
from .receiving import Receiver
from .sequences import Closing, Sequence, Wanted
from .steps import read_arguments, step_name
from .stops import (
    Asked,
    Perform,
    Question,
    Raised,
    Returned,
    Stop,
    Want,
)
from .tree import Cause, Leaf, Tree

if TYPE_CHECKING:
    from .single import SingleSequence

__all__ = ["Again", "Generation"]

logger = logger_for("effectmcp.engine")

#: Tags of entries whose question was outstanding once.
_ASKED: Final = frozenset({"accepted", "declined", "dismissed", "invalid", "refused"})


@record(eq=False)
class Again:
    """The flow starts again as another handler.

    Attributes:
        payload: The handler's name and arguments, as they were recorded.
    """

    payload: bytes


_Out: TypeAlias = Stop | Again | None


class Generation(Tree):
    """One generation of a flow: everything that `Restart` starts again.

    Attributes:
        one: The first phase, which it has taken over from.
        number: The number of restarts before this generation.
        restart: The name and arguments of its handler; `None` in the first generation.
        places: The records of places: outstanding questions, clocks, steps.
        answers: This request's answers, and the pool.
        cancelled: The number of waves after which it was cancelled; `SOON` if a cancel
            is requested; `None` if not.
        salvaged: A report for each time that entries were dropped.
        performing: The effects that this process performs.
        taking: Finds the outcomes that are available.
        waits: The number of delivered wait-waves.
    """

    __slots__ = (
        "_again",
        "_detached",
        "_rules",
        "answers",
        "cancelled",
        "number",
        "one",
        "performing",
        "places",
        "restart",
        "salvaged",
        "taking",
        "waits",
    )

    def __init__(self, one: SingleSequence) -> None:
        journal, flow = one.journal, one.flow
        # A journal from before waves were counted has no number: all of it is past.
        past = -1.0
        if journal.waves is not None:
            past = journal.waves
        elif not one.is_first:
            past = float("inf")
        number = journal.generation
        super().__init__(
            flow, Receiver(flow, number, dict(journal.versions), past), one.root
        )
        # Weak, or each round that needs waves would wait for the garbage collector.
        self.one: SingleSequence = weakref.proxy(one)
        self.number = number
        self.restart = journal.restart
        self.places = one.places
        self.answers = one.answers
        self.cancelled = one.cancelled
        self._detached = journal.detached
        self._rules = flow.rules
        self.salvaged = one.salvaged
        self.performing = Performing(self.places, number)
        self.taking = Taking(flow, self.places, self.performing)
        #: The restart that ends this generation.
        self._again: Again | None = None
        self.waves, self.waits = one.waves, one.waits

    # ---- the whole of it ------------------------------------------------------------

    def take_over(self) -> Stop | Again:
        """Continue after the first phase, to the first stop."""
        if self.root.gathering is not None:
            self.join()
        return self.go()

    def go(self) -> Stop | Again:
        """Run to the next stop."""
        while True:
            if self.cancelled == self.waves:
                self._cancel()  # which changes nothing if it was cancelled already
            stop: _Out
            if self.root.end is not None:
                stop = self._finish()
            elif self.root.gathering is None:
                stop = self._take_alone()
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
        """`file:line` of the first sequence that has not ended."""
        for one in self.root.sequences():
            if one.end is None and one.gathering is None:
                return one.where
        return None

    @property
    def versions(self) -> Mapping[str, int | str]:
        """The versions that `Version` returned, by id."""
        return self.receiver.versions

    # ---- waves ----------------------------------------------------------------------

    def _take_alone(self) -> _Out:
        """Process a wave of the root only, which has no branches."""
        root = self.root
        wanted = root.wanted
        assert wanted is not None
        wave = [(root, wanted)]
        if self.flow.rules.task and not wanted.is_local:
            return self._wait_wave(wave)
        if (
            root.position == len(root.entries)
            and self.cancelled is None
            and not self.left_over
            and (stop := self.one.ask(wanted)) is not None
        ):
            return stop  # most rounds end here: no entry to match, no outcome to take
        return self._take_wave(wave)

    def _take_wave(self, wave: list[Leaf]) -> _Out:
        if self.cancelled is not None and self.cancelled - 1 == self.waves:
            # The flow was cancelled in this wave: deliver its performed effects.
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
                    return Perform(
                        tuple([self.performing.want(*leaf) for leaf in missing])
                    )
                stop = self._ask(missing)
                if stop is not None:
                    return stop
        self._deliver(wave)
        return None

    def _wait_wave(self, leaves: list[Leaf]) -> _Out:
        """Deliver the available outcomes, or stop until one arrives."""
        number = self.waits
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
                # Entries were dropped, or an answer does not fit any more and its
                # question is asked again: the other leaves are the wave.
                wave = [leaf for leaf in wave if leaf not in missing]
                for sequence, _ in wave:
                    sequence.stamp_next(number)
            if wave:
                self._deliver(wave)
            return None
        if self.is_anything_ahead([]):
            self.diverge("left over", leaves[0][0])
        if self.cancelled == SOON:
            # Steps that were started have ended: their outcomes must not be lost.
            ended = [
                leaf
                for leaf in leaves
                if any(part.place in self.performing.finished for part in leaf[1].parts)
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
        return None  # the available outcomes have the number now

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
        """Compute the outcome for `leaf`, or forget an answer that no longer fits."""
        if self.one.compute(*leaf, entry):
            return True
        sequence, wanted = leaf
        sequence.forget_next()
        self.places.count(wanted.place)
        return False

    # ---- drop -----------------------------------------------------------------------

    def diverge(
        self, cause: Cause, sequence: Sequence, entry: Entry | None = None
    ) -> None:
        """Drop all undelivered entries of the whole flow, if the policy allows it.

        See docs/internals/replay.md#divergence.

        Raises:
            DivergenceError: If the policy forbids it.
        """
        flow = self.flow
        sequences = list(self.root.sequences())
        if entry is None:
            # Report the last entry, which lies beyond, of any sequence.
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
            raise DivergenceError("stop", report)  # it ended: ask nothing again
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
            self.note_stale(sequence, wanted)

    def note_stale(self, sequence: Sequence, wanted: Wanted) -> None:
        """Count an answer to a question whose text has changed, and stop in time.

        A server that asks whether "12:31" suits, then "12:32", would repeat that until
        the client gives up. A flow that has already performed something in this round
        continues: the next round decides, before it performs anything. In tests, the
        first change raises. See docs/internals/replay.md#d1.

        Raises:
            DivergenceError: If two versions of the handler are being served.
            NondeterminismError: If one version asks something else each time.
        """
        rules = self.flow.rules
        count = self.places.note_stale(wanted.place)
        is_last = count >= rules.stale and self.performing.is_fresh
        if not is_last and rules.policy != "strict":
            return
        # A task waits for a deploy in any case (docs/internals/replay.md#d1).
        other = wanted if rules.task else self._asked_cold(wanted.place)
        if other is None or other.render != wanted.render:
            then = "reached another place" if other is None else text_of(other.subject)
            raise NondeterminismError(
                f"{self.flow.name} asked {text_of(wanted.subject)!r} and then"
                f" {then!r}, over the same journal. What a question"
                " shows must come from answers and arguments, or from Now(), Uuid(),"
                " Random() and Step(...), which are recorded",
                where=sequence.where,
            )
        if is_last:
            verdict = "park" if rules.policy == "park" else "stop"
            place = wanted.place
            raise DivergenceError(
                verdict, self.report("versions", sequence, place, place)
            )

    def _asked_cold(self, place: str) -> Wanted | None:
        """Replay again, cold; return what the same code then asks at `place`."""
        rules = attrs.evolve(self._rules, policy="strict", development=False)
        flow = attrs.evolve(
            self.flow,
            rules=rules,
            detached=self._detached,
            emit=lambda effect: None,
            watch=None,
            spent=0,
            muted=True,
        )
        journal = attrs.evolve(self.one.snapshot(), pool=())
        one = self.one.resumed(flow, journal)
        again = one.whole()
        try:
            one.start()
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

    def restarted(self) -> HandlerCall:
        """Return the handler with which the flow started again, and its arguments.

        Raises:
            DivergenceError: If it no longer exists, or takes other arguments.
        """
        assert self.restart is not None
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
        """Return a report of a difference."""
        place, text, where = "at the start", None, None
        if sequence is not None:
            branch = f"branch {sequence.path.rstrip('/')}, " if sequence.path else ""
            place = f"{branch}entry {sequence.position}"
            where = sequence.where
            if sequence.wanted is not None:
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
        """Record the available outcomes; return the leaves that have none.

        Args:
            fresh: The leaves, all without an entry.
            number: The number of the wait-wave. Its entries store the number if the
                wave is not all of `fresh`.
            always: Whether its entries store the number in any case.
        """
        taking = self.taking
        if self._is_nothing_known(fresh):
            return fresh
        found, stale = self.answers.take(fresh)
        for leaf in stale:
            self.note_stale(*leaf)
        taken, missing = [], []
        for leaf in fresh:
            sequence, wanted = leaf
            outcome = taking.at_hand(wanted, found)
            entry = None if outcome is None else wanted.entry(*outcome)
            if entry is not None and not self.one.compute(*leaf, entry):
                entry = self._refit(leaf)
            if entry is None:
                missing.append(leaf)
            else:
                taken.append((sequence, wanted, entry))
        stamp = number if missing or always else None
        for sequence, wanted, entry in taken:
            if not wanted.row.is_question:
                taking.stop_waiting(wanted)
            if stamp is not None:
                entry = attrs.evolve(entry, wave=stamp)
            sequence.append(entry)
            wanted.is_new = wanted.place not in self.answers.heard
        return missing

    def _is_nothing_known(self, fresh: list[Leaf]) -> bool:
        """Whether these are new questions without answers, the usual end of a round."""
        answers = self.answers
        if self.places.table or answers.own or answers.pool or answers.early:
            return False
        supports = self.flow.supports
        for _, one in fresh:
            if not one.row.is_question or not supports(one.subject):
                return False
        return True

    def _refit(self, leaf: Leaf) -> Entry | None:
        """Return the entry that replaces an answer that does not fit after all."""
        _, wanted = leaf
        for one in wanted.questions():
            self.places.count(one.place)
        if wanted.row.is_question and not self.flow.supports(wanted.subject):
            entry = wanted.entry(*UNASKED)
            self.one.compute(*leaf, entry)
            return entry
        return None

    def withdraw(self, leaf: Sequence) -> None:
        """Note that the effect that `leaf` waits for is no longer needed."""
        wanted = leaf.wanted
        assert wanted is not None
        self.places.withdraw(wanted.place)
        self.taking.stop_waiting(wanted)
        if self.flow.rules.task:
            # Answers that have arrived already are as late as future answers
            # (docs/internals/replay.md#b3a, 5).
            for one in wanted.questions():
                self.answers.own.pop(one.place, None)

    # ---- ask ------------------------------------------------------------------------

    def _ask(self, missing: list[Leaf]) -> Stop | None:
        """Stop until something arrives; `None` if nothing may or need be asked."""
        flow, rules = self.flow, self.flow.rules
        asking = [leaf for leaf in missing if leaf[1].row.is_question or leaf[1].parts]
        if not rules.task:
            # The limits on rounds are docs/internals/replay.md#q6.
            for leaf in missing:
                if isinstance(leaf[1].subject, Checkpoint):
                    leaf[0].record("checkpoint", b"null")
            if not asking and not rules.shed:
                return None
            flow.limit = self._limit_reached(is_state_only=not asking)
            if flow.limit is not None:
                for _, wanted in asking or missing:
                    wanted.error = TooManyRounds(flow.limit, state_only=not asking)
                return None
            flow.state_rounds += not asking
        self.answers.early = {}  # they arrived before any question was asked
        questions: list[Question] = []
        wants: list[Want] = []
        kept: set[str] = set()
        dues: list[float] = []
        is_news = not rules.task
        places, table = self.places, self.places.table
        for sequence, wanted in missing:
            for one in wanted.questions():
                place, known = one.place, table.get(one.place)
                if known is None or known.out is None:
                    is_news = True
                    wire = places.ask(place, one.shape, one.render)
                else:
                    wire = places.wire(place)
                effect: Any = one.subject
                race = wanted.place if wanted.parts else None
                questions.append(
                    Question(wire, effect, one.problems, sequence.where, race)
                )
                kept.add(place)
            if not wanted.row.is_question:
                for place, seconds in clocks(wanted):
                    kept.add(place)
                    dues.append(self.taking.start_clock(place, seconds))
                wants += [
                    self.performing.want(sequence, part)
                    for part in wanted.parts
                    if isinstance(part.subject, Step)
                ]
        if len(table) > len(kept):
            places.keep_only(kept)
        flow.rounds += is_news
        return Asked(tuple(questions), tuple(wants), min(dues) if dues else None)

    def _limit_reached(self, *, is_state_only: bool) -> int | None:
        flow, rules = self.flow, self.flow.rules
        if flow.limit is not None:
            return flow.limit  # past the limit, nothing may be asked any more
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
        # Advance all positions first: code that a delivery starts must see the whole
        # wave as past (docs/internals/replay.md#b1).
        flow = self.flow
        is_news, fed = False, []
        for sequence, wanted in wave:
            has_entry = sequence.next_entry() is not None
            sequence.position += has_entry
            is_news = is_news or wanted.is_new
            fed.append(has_entry and not wanted.is_new)
        if flow.rules.task and wave and wave[0][1].row.is_wait:
            self.waits += 1
        self.waves += 1
        if is_news or self.waves > self.receiver.past:
            flow.unmute()
        for (sequence, wanted), is_fed in zip(wave, fed, strict=True):
            if not is_fed:
                flow.spend()
            subject, value, error = wanted.subject, wanted.value, wanted.error
            if type(subject) is Restart and error is None:
                payload = sequence.entries[sequence.position - 1].payload
                self._again = Again(payload)
                sequence.closing = Closing(Restarted)
                error = Restarted()
            elif type(subject) is Detach:
                flow.detach(gave=value is True)
            self.turn(sequence, value, error)
        self.join()

    # ---- the end --------------------------------------------------------------------

    def _cancel(self) -> None:
        """Deliver the performed effects of this wave, and throw `Cancelled`.

        Answers that have arrived but are not delivered yet never will be. A replay has
        nothing to deliver here: the entries that follow belong to the cleanup. See
        docs/internals/replay.md#l4.
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
            self._record_races()
        for sequence, wanted in filter(_has_own, self.root.leaves()):
            if sequence.closing is None and not wanted.is_local:
                sequence.position += 1  # recorded, but never delivered
        self.cancelled = self.waves
        self._again = None
        root = self.root
        if root.end is None and root.closing is not None:
            root.closing.signal = Cancelled  # the restart's cleanup continues
        elif root.end is None:
            self.close(root, Cancelled)
            self.join()

    def note_cancelled(self) -> None:
        """Note a cancel that a later run must carry out from here."""
        is_begun = any(
            wanted.is_local for _, wanted in filter(_has_own, self.root.leaves())
        )
        # The outcomes that are recorded are delivered in one more wave.
        self.cancelled = self.waves + is_begun

    def _record_races(self) -> None:
        """Record the outcomes of racing steps: their races will not be decided."""
        for sequence, wanted in self.root.leaves():
            if any(part.place in self.performing.finished for part in wanted.parts):
                outcome = self.taking.at_hand(wanted, {})
                assert outcome is not None
                self.taking.stop_waiting(wanted)
                sequence.record(*outcome)

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
            return Raised(Cancelled())  # cancelled during a restart
        if self.is_anything_ahead([]):
            if failure is None or self.flow.rules.policy == "park":
                self.diverge("left over", root)
            else:
                # Report the handler's own exception; the entries left over follow from
                # it (docs/internals/replay.md#divergence).
                logger.info("%s raised with entries left over", self.flow.name)
        if failure is not None:
            return Raised(failure)
        assert isinstance(end, Ended)
        said = forgotten(end.value)
        if said is not None:
            return Raised(NotAnEffectError(f"{self.flow.name}: {said}"))
        return Returned(end.value)


def _has_own(leaf: Leaf) -> bool:
    """Whether the next entry is the outcome that the leaf waits for."""
    sequence, wanted = leaf
    entry = sequence.next_entry()
    return entry is not None and entry.key == wanted.key


def _described(wanted: Wanted, entry: Entry) -> str:
    """Describe the effect that a leaf waits for, to distinguish it from `entry`."""
    names = list(map(step_name, steps_in(wanted.subject)))
    what = f"{wanted.key} ({', '.join(names)})" if names else wanted.key
    if entry.key != wanted.key:
        return what
    if entry.shape != wanted.shape:
        return f"{what} with another form of answer"
    return f"{what} with other arguments, or another step" if names else what
