"""Run the tree of sequences: generators take turns; branches start, fail, join.

`generation.py` decides which sequence is next, and what it gets. This module runs one
sequence at a time until it waits or ends, and carries out the consequences for the
sequences around it:

    begins   a Gather's branches take their first turns within their parent's turn
    fails    if several branches fail in one wave, the lowest position wins; the others
             get `Cancelled`, stay in the tree, and their cleanup joins the following
             local waves
    joins    bottom-up, after the wave's last delivery, when all branches have ended

The rules are docs/internals/replay.md#b2, docs/internals/replay.md#b3
and docs/internals/replay.md#b4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..effects.base import Effect
from ..effects.control import Gather
from ..errors import Cancelled, NotAnEffectError, Signal, UsageError
from .divergence import flatten
from .generators import (
    Ended,
    Failed,
    Yielded,
    bury,
    own_context,
    send,
    suspend,
    throw,
)
from .journal import Entry, Pooled
from .misuse import forgotten, located, translated
from .sequences import WAIT, BuriedError, Closing, Gathering, Sequence, Wanted

if TYPE_CHECKING:
    from .flow_state import FlowState
    from .receiving import Receiver

__all__ = ["Cause", "Leaf", "Tree"]


#: A sequence that waits, and the effect that it waits for.
Leaf: TypeAlias = tuple[Sequence, Wanted]

#: The kind of difference between effects and entries.
Cause: TypeAlias = Literal["differs", "left over", "surplus", "unfit"]


class Tree:
    """The sequences of one generation of a flow.

    Attributes:
        flow: The flow.
        receiver: Receives yielded effects.
        root: The handler's own sequence.
        waves: The number of delivered waves.
        left_over: Entries of branches that were cancelled before they reached them.
    """

    __slots__ = ("_live", "flow", "receiver", "left_over", "root", "waves")

    def __init__(self, flow: FlowState, receiver: Receiver, root: Sequence) -> None:
        self.flow = flow
        self.receiver = receiver
        self.waves = 0
        self.left_over: list[Pooled] = []
        self._live = 0
        self.root = root

    def diverge(
        self, cause: Cause, sequence: Sequence, entry: Entry | None = None
    ) -> None:
        """Drop all undelivered entries of the whole flow, if the policy allows it.

        Raises:
            DivergenceError: If the policy forbids it.
        """

    def withdraw(self, leaf: Sequence) -> None:
        """Note that the effect that `leaf` waits for is no longer needed."""

    def turn(self, sequence: Sequence, value: Any, error: BaseException | None) -> None:
        """Run one sequence until it waits for something or ends."""
        running, context = sequence.running, sequence.context
        assert running is not None
        sequence.wanted = None
        if error is None:
            self.took(sequence, send(running, context, value))
        else:
            self.took(sequence, throw(running, context, error))

    def took(self, sequence: Sequence, out: Yielded | Ended | Failed) -> None:
        """Continue after one turn until the sequence waits or ends."""
        running, context = sequence.running, sequence.context
        assert running is not None
        watch = self.flow.watch
        value: Any = None
        error: BaseException | None
        while True:
            if isinstance(out, Ended):
                sequence.ends(out)
                return
            if isinstance(out, Failed):
                sequence.ends(Failed(translated(out.error, sequence)))
                return
            try:
                if watch is not None and isinstance(out.effect, Effect):
                    watch.performed(out.effect)
                value = self.receiver.receive(
                    sequence, out.effect, self.waves, self._live
                )
                if value is WAIT:
                    self._wait(sequence)
                    return
                error = None
            except BuriedError:
                assert sequence.closing is not None
                bury(running)
                sequence.ends(Failed(sequence.closing.signal()))
                return
            except UsageError as exc:
                error = located(exc, sequence)
                self.flow.spend()
            except Signal as exc:
                error = exc  # a cleanup's; its patience ends before any budget
            if error is None:
                out = send(running, context, value)
            else:
                out = throw(running, context, error)

    def _wait(self, sequence: Sequence) -> None:
        wanted = sequence.wanted
        assert wanted is not None
        gather = wanted.subject
        if not isinstance(gather, Gather):
            return
        running = [
            iter(branch) if isinstance(branch, Effect) else branch
            for branch in gather.branches
        ]
        recorded = self._recorded_branches(sequence, wanted, len(running))
        sequence.position += 1
        sequence.wanted = None
        self._live += len(running)
        children = [
            Sequence(
                path=f"{wanted.place}/{index}/",
                context=own_context(sequence.context.copy()),
                entries=list(recorded[index]) if index < len(recorded) else [],
                rows=self.root.rows,
                depth=sequence.depth + 1,
                parent=sequence,
                running=one,
            )
            for index, one in enumerate(running)
        ]
        sequence.gathering = Gathering(gather, children)
        for child in children:
            self.turn(child, None, None)

    def _recorded_branches(
        self, sequence: Sequence, wanted: Wanted, count: int
    ) -> tuple[tuple[Entry, ...], ...]:
        entry = sequence.next_entry()
        if entry is not None:
            if (entry.key, entry.shape) != (wanted.key, wanted.shape):
                self.diverge("differs", sequence, entry)
            elif len(entry.branches) > count:
                self.diverge("surplus", sequence, entry)
            else:
                return entry.branches
        # Branches that are not in the journal start empty
        # (docs/internals/replay.md#b4).
        branches = ((),) * count
        sequence.append(
            Entry(wanted.key, wanted.shape, wanted.render, "gather", b"null", branches)
        )
        self.flow.spend()
        return branches

    def join(self) -> None:
        """Pass results and failures of Gathers upwards, until nothing changes."""
        if self.root.gathering is not None:
            self._join(self.root)

    def _join(self, sequence: Sequence) -> None:
        # Inner Gathers must settle first: how many of them end at once must not decide
        # which branch's failure is the first.
        while (gathering := sequence.gathering) is not None:
            for child in gathering.children:
                self._join(child)
            if not self._settle(sequence, gathering):
                return

    def _settle(self, sequence: Sequence, gathering: Gathering) -> bool:
        moved = False
        children = gathering.children
        if gathering.failing is None:
            failed = [one.end.error for one in children if isinstance(one.end, Failed)]
            if failed:
                # The lowest position wins among the branches that failed in this wave.
                # Later waves are not waited for (docs/internals/replay.md#b3).
                moved = True
                gathering.failing = failed[0]
                for child in children:
                    if child.end is None and child.closing is None:
                        self.close(child, Cancelled)
        if any(child.end is None for child in children):
            return moved
        error = gathering.failing
        for child in children:
            if child.next_entry() is None:
                continue
            if error is None:
                self.diverge("left over", child)
            else:
                # If the failure ends the flow, the failure is reported. If the handler
                # catches it, these entries are still ahead of its next effects.
                self.left_over += flatten(child.drop(), child.path)
        results = [one.end.value for one in children if isinstance(one.end, Ended)]
        if error is None:
            said = next(filter(None, map(forgotten, results)), None)
            if said is not None:
                error = located(NotAnEffectError(f"in a branch, {said}"), sequence)
        value = results if gathering.effect.as_list else tuple(results)
        sequence.close_gathering()
        self._live -= len(children)
        self.turn(sequence, value, error)
        return True

    def close(self, sequence: Sequence, signal: type[Signal]) -> None:
        """Throw `signal` into the live branches below a sequence, then into itself."""
        sequence.closing = Closing(signal)
        gathering = sequence.gathering
        if gathering is None:
            self.withdraw(sequence)
            self.turn(sequence, None, signal())
            return
        # The sequence itself gets its turn at the join, after the branches' cleanup.
        gathering.failing = signal()
        for child in gathering.children:
            # A branch that is being ended already continues its cleanup.
            if child.end is None and child.closing is None:
                self.close(child, signal)

    def unwind(self) -> None:
        """End every generator for this round, and forget it (docs/internals/replay.md#l2)."""
        root = self.root
        for sequence in (root,) if root.gathering is None else root.sequences():
            running, sequence.running = sequence.running, None
            sequence.parent = None  # or branches would wait for the garbage collector
            if running is not None:
                suspend(running, sequence.context)

    def is_anything_ahead(self, wave: list[Leaf]) -> bool:
        """Whether any sequence holds an entry beyond this wave."""
        root = self.root
        if self.left_over:
            return True
        if root.gathering is None:
            return len(root.entries) > root.position + len(wave)
        in_wave = {id(sequence) for sequence, _ in wave}
        for one in root.sequences():
            if len(one.entries) > one.position + (id(one) in in_wave):
                return True
        return False
