"""The first phase of a run: a loop, while the flow has only one sequence.

Most flows have no branches, and most of a replay is matching entries: waves of one leaf
each. This loop leaves out everything that cannot happen to those. Most rounds end in it,
with a question. At the first effect that needs more, the generation takes over the
sequence as it is, with its generator (docs/internals/replay.md#b1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from ..effects.control import Checkpoint, Detach, Restart
from ..errors import UsageError
from ..forms.form import Unfit
from .answers import STALE, Answers, Places
from .effect_table import FED, LOCAL, NAMES, deliver
from .flow_state import SOON, FlowState, shape_head
from .generators import Ended, Failed, Yielded, start, suspend, where
from .journal import Entry, Journal, check_key
from .misuse import located, translated
from .receiving import check_steps
from .sequences import Rows, Sequence, Wanted
from .stops import Asked, Question

if TYPE_CHECKING:
    from .answers import Answer
    from .divergence import Report
    from .generation import Generation

__all__ = ["SingleSequence", "single_sequence"]

#: Tags whose entries always deliver a plain value.
_PLAIN: Final = frozenset({"accepted", "chance", "known", "done"})

#: Effects that change the rules, the tree or the rounds.
_TURNING: Final = (Restart, Detach, Checkpoint)


def single_sequence(
    flow: FlowState,
    journal: Journal,
    salvaged: list[Report],
    make: Callable[[SingleSequence], Generation],
    *,
    is_first: bool,
) -> SingleSequence:
    """Return a generation of a flow that resumes from `journal`, not started yet.

    Args:
        flow: The flow.
        journal: Its journal.
        salvaged: Receives a report for each time that entries are dropped.
        make: Makes the generation that takes over.
        is_first: Whether no earlier run has started it.
    """
    number = journal.generation
    root = Sequence("", flow.context.copy(), list(journal.entries), Rows(number))
    places = Places(dict(journal.places), number)
    answers = Answers(places, flow)
    if journal.pool:
        answers.add(journal.pool)
    return SingleSequence(
        flow,
        journal,
        salvaged,
        make,
        is_first,
        root,
        places,
        answers,
        journal.cancelled,
    )


@define(eq=False)
class SingleSequence:
    """A generation of a flow, as long as it has one sequence.

    Attributes:
        flow: The flow.
        journal: The journal that it resumes from.
        salvaged: A report for each time that entries were dropped.
        is_first: Whether no earlier run has started it.
        root: The sequence.
        places: The records of places: outstanding questions, clocks, steps.
        answers: This request's answers, and the pool.
        cancelled: The number of waves after which it was cancelled; `None` if it was not.
        waves: The number of delivered waves.
        waits: The number of delivered wait-waves.
        generation: What has taken over; `None` if nothing has.
    """

    flow: FlowState
    journal: Journal
    salvaged: list[Report]
    _make: Callable[[SingleSequence], Generation]
    is_first: bool
    root: Sequence
    places: Places
    answers: Answers
    cancelled: int | None
    waves: int = 0
    waits: int = 0
    generation: Generation | None = None

    def whole(self) -> Generation:
        """Return the generation that takes over, with all that waves need."""
        if self.generation is None:
            self.generation = self._make(self)
        return self.generation

    def resumed(self, flow: FlowState, journal: Journal) -> SingleSequence:
        """Return another run of this generation, from another journal."""
        return single_sequence(flow, journal, [], self._make, is_first=False)

    def start(self, answers: Mapping[str, Answer] | None = None) -> Asked | None:
        """Start the handler; return the question that it waits for.

        Args:
            answers: The answers of this request, by wire key.

        Returns:
            The question; `None` if the generation must continue.
        """
        if answers:
            self.answers.arrive(answers)
            if self.is_first and self.flow.rules.early_answers:
                self.answers.early = answers
        restart = self.journal.restart
        call = self.flow.call if restart is None else self.whole().restarted()
        out = start(*call, self.root.context)
        if isinstance(out, (Ended, Failed)):
            self.root.ends(out)
            return None
        self.root.running = out
        return self._play()

    def _play(self) -> Asked | None:
        # Runs the handler while it has no branches and its entries match.
        flow, root, places = self.flow, self.root, self.places
        in_task = flow.rules.task
        running, entries, ordinals = root.running, root.entries, root.ordinals
        assert running is not None
        run, send_in, prints = root.context.run, running.send, flow.prints
        shapes, shaper, renderer = prints.shapes, prints.shaper, prints.renderer
        last = len(entries)
        cancelled = (self.generation or self).cancelled
        if cancelled is not None:
            last = min(last, cancelled)
        position, waits = 0, 0
        value: Any = None
        error: BaseException | None = None
        fed = FED if flow.watch is None else {}
        while True:
            try:
                if error is None:
                    effect = run(send_in, value)
                else:
                    effect = run(running.throw, error)
            except KeyboardInterrupt:
                raise
            except StopIteration as stop:
                self._stand(position, waits)
                root.ends(Ended(stop.value))
                break
            except BaseException as exc:
                self._stand(position, waits)
                root.ends(Failed(translated(exc, root)))
                break
            wanted = None
            kind = fed.get(type(effect))
            if kind is not None:
                # The same as `Receiver.identify`, without a call for each effect.
                try:
                    explicit = None
                    if kind.is_question:
                        explicit = effect.key
                        if explicit is not None:
                            check_key(explicit, NAMES)
                    elif not kind.is_free:
                        check_steps(flow, effect)
                    name, of = kind.name, kind.schema
                    schema = b"" if of is None else of(effect)
                    hasher = renderer.copy()
                    hasher.update(kind.render(effect))
                    if explicit is None:
                        ordinals[name] = nth = ordinals.get(name, 0) + 1
                        key = f"{name}-{nth}"
                    else:
                        nth = root.next_ordinal(f"={explicit}")
                        key = explicit if nth == 1 else f"{explicit}#{nth}"
                except Exception:
                    pass  # the slow path raises the error again
                else:
                    render = hasher.digest()
                    shape = shapes.get((name, explicit, schema))
                    if shape is None:
                        hasher = shaper.copy()
                        hasher.update(shape_head(name, explicit) + schema)
                        shape = shapes[name, explicit, schema] = hasher.digest()
                    if position < last:
                        entry = entries[position]
                        if (
                            entry.key == key
                            and entry.render == render
                            and entry.shape == shape
                            and entry.tag in _PLAIN
                        ):
                            try:
                                value, error = kind.read(effect, entry.payload), None
                            except Exception:
                                pass  # raised or asked again below
                            else:
                                position += 1
                                waits += kind.is_wait
                                continue
                    is_local = kind.wave is LOCAL and not (kind.is_wait and in_task)
                    wanted = root.wanted = Wanted(
                        effect, effect, kind, key, key, shape, render, is_local
                    )
            self._stand(position, waits)
            if wanted is None:
                # The slow path: refusals, effects without entries, all unusual cases.
                self.whole().took(root, Yielded(effect))
                wanted = root.wanted
                if wanted is None:
                    break
            if position < last:
                entry = entries[position]
                if (
                    isinstance(wanted.subject, _TURNING)
                    or not wanted.is_of(entry)
                    or not self.compute(root, wanted, entry)
                ):
                    break
            elif wanted.place in self.answers.own and cancelled is None:
                outcome = self.answers.take_own(wanted)
                if outcome is STALE:
                    self.whole().note_stale(root, wanted)
                    break
                if outcome is None:
                    break
                tag, payload = outcome
                entry = Entry(wanted.key, wanted.shape, wanted.render, tag, payload)
                if not self.compute(root, wanted, entry):
                    places.count(wanted.place)
                    break
                root.rows.noted.append((root.path, position, entry))
                entries.append(entry)
                flow.unmute()
                flow.spend()
            else:
                return self.ask(wanted) if cancelled is None else None
            value, error = wanted.value, wanted.error
            root.wanted = None
            position += 1
            waits += wanted.row.is_wait
        return None

    def _stand(self, position: int, waits: int) -> None:
        self.root.position = self.waves = position
        self.waits = waits if self.flow.rules.task else 0
        if self.generation is not None:
            self.generation.waves, self.generation.waits = self.waves, self.waits

    def compute(self, sequence: Sequence, wanted: Wanted, entry: Entry) -> bool:
        """Compute the outcome of `entry` for a leaf; return whether it fits."""
        wanted.value = wanted.error = None
        try:
            wanted.value = deliver(wanted.effect, wanted.row, entry)
        except Unfit as exc:
            # A validator changed since, so the answer does not fit the *current* form.
            # The handler did not diverge (docs/internals/replay.md#q2).
            wanted.problems = tuple(exc.problems)
            return False
        except UsageError as exc:
            wanted.error = located(exc, sequence)
        except Exception as exc:
            wanted.error = exc
        wanted.ready = True
        return True

    def ask(self, wanted: Wanted) -> Asked | None:
        """Ask the question that the sequence waits for, if nothing else can happen.

        If there are answers, questions at other places or reached limits, return None:
        then the generation decides.
        """
        flow, answers, rules = self.flow, self.answers, self.flow.rules
        if (
            not wanted.row.is_question
            or rules.task
            or (self.places.table or answers.own or answers.pool or answers.early)
            or flow.limit is not None
            or (rules.rounds is not None and flow.rounds >= rules.rounds)
            or not flow.supports(wanted.subject)
        ):
            return None
        flow.rounds += 1
        wire = self.places.ask(wanted.place, wanted.shape, wanted.render)
        subject: Any = wanted.subject
        line = where(self.root.running)
        return Asked((Question(wire, subject, wanted.problems, line),))

    @property
    def where(self) -> str | None:
        """`file:line` of the first sequence that has not ended."""
        if self.generation is not None:
            return self.generation.where
        return self.root.where if self.root.end is None else None

    def snapshot(self) -> Journal:
        """Return the journal of this generation, as it is now."""
        root, answers, flow = self.root, self.answers, self.flow
        cancelled = (self.generation or self).cancelled
        now = self.generation
        return Journal(
            entries=tuple(root.entries) if root.gathering is None else root.snapshot(),
            places=dict(self.places.table),
            pool=answers.pooled() if answers.pool or answers.own else (),
            versions=dict((now or self.journal).versions),
            generation=self.journal.generation,
            restart=self.journal.restart,
            rounds=flow.rounds,
            state_rounds=flow.state_rounds,
            waves=self.waves if now is None else now.waves,
            cancelled=None if cancelled == SOON else cancelled,
            detached=self.journal.detached,
        )

    def unwind(self) -> None:
        """End every generator for this round, and forget it (docs/internals/replay.md#l2)."""
        if self.generation is not None:
            self.generation.unwind()
            return
        running, self.root.running = self.root.running, None
        if running is not None:
            suspend(running, self.root.context)
