"""The tree of sequences: each is a generator, with its part of the journal.

    root ── waits at a Gather ──┬── branch 0: waits for an answer          (a leaf)
                                ├── branch 1: waits at a Gather ──┬── …
                                └── branch 2: ended

A sequence waits for one effect (`wanted`; then it is a leaf), waits for its branches
(`gathering`), or has ended (`end`). Recursion is only over nested Gathers, which
MAX_NESTING bounds.

`generation.py` decides which sequence is next, and what it gets. `Tree` runs one sequence
at a time until it waits or ends, and carries out the consequences for the sequences
around it:

    begins   a Gather's branches take their first turns within their parent's turn
    fails    if several branches fail in one wave, the lowest position wins; the others
             get `Cancelled`, stay in the tree, and their cleanup joins the following
             local waves
    joins    bottom-up, after the wave's last delivery, when all branches have ended

The rules are docs/internals/replay.md#b2, docs/internals/replay.md#b3
and docs/internals/replay.md#b4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
from attrs import define, field

from ..effects.base import Effect
from ..effects.control import Gather
from ..errors import Cancelled, NotAnEffectError, Signal, UsageError
from .divergence import flatten
from .generators import (
    Ended,
    Failed,
    Running,
    Yielded,
    bury,
    own_context,
    send,
    start,
    suspend,
    throw,
    where,
)
from .journal import Entry, Pooled, Row, Tag
from .misuse import forgotten, located, translated

if TYPE_CHECKING:
    from .effect_table import Kind
    from .flow_state import Call, FlowState
    from .receiving import Receiver

__all__ = [
    "WAIT",
    "BuriedError",
    "Cause",
    "Closing",
    "Gathering",
    "Leaf",
    "Rows",
    "Sequence",
    "Tree",
    "Wanted",
]

#: The value of `Receiver.receive` for an effect that the sequence must wait for.
WAIT: Final = object()


class BuriedError(Exception):
    """Raised when a sequence answers every signal with a yield. Never in a handler."""


@define(eq=False)
class Wanted:
    """The effect that a leaf waits for, with its key and fingerprint.

    Attributes:
        effect: The yielded effect.
        subject: The effect, without an `Outcome` around it.
        row: The row of the subject in the table.
        key: Its key in the sequence.
        place: Path and key: the place in the flow.
        shape: The first half of its fingerprint.
        render: The other half.
        is_local: Whether this process can perform it, without waiting for people or
            clocks.
        parts: The effects that a `Within` or `FirstOf` waits for.
        ready: Whether its outcome is known: `value` or `error`, delivered when the
            whole wave has its outcomes.
        value: The value that the yield will return.
        error: The exception that the yield will raise.
        is_new: Whether the outcome is from this run and not from the journal.
        problems: The reasons why the last answer did not fit, in words for the user.
    """

    effect: Effect[Any]
    subject: Effect[Any]
    row: Kind
    key: str
    place: str
    shape: bytes
    render: bytes
    is_local: bool
    parts: tuple[Wanted, ...] = ()
    ready: bool = False
    value: Any = None
    error: BaseException | None = None
    is_new: bool = False
    problems: tuple[str, ...] = ()

    def is_of(self, entry: Entry) -> bool:
        """Whether `entry` is the outcome of exactly this effect."""
        return (
            entry.key == self.key
            and entry.render == self.render
            and entry.shape == self.shape
        )

    def entry(
        self,
        tag: Tag,
        payload: bytes,
        replayable: bool = False,
        wave: int | None = None,
    ) -> Entry:
        """Return the entry of this effect with this outcome."""
        return Entry(
            self.key, self.shape, self.render, tag, payload, (), replayable, wave
        )

    def questions(self) -> tuple[Wanted, ...]:
        """Return the questions in it: itself, or some of its parts."""
        if self.row.is_question:
            return (self,)
        return tuple([part for part in self.parts if part.row.is_question])


@define(eq=False)
class Gathering:
    """The branches that a sequence waits for.

    Attributes:
        effect: The `Gather`.
        children: The branches, by position.
        failing: The exception that the yield will raise when all branches have ended.
    """

    effect: Gather[Any]
    children: list[Sequence]
    failing: BaseException | None = None


@define(eq=False)
class Closing:
    """The state of ending a sequence: the signal, and the reactions so far.

    Attributes:
        signal: The signal that is thrown at its yields.
        effects: Effects that its cleanup performed.
        throws: The number of times that the signal was thrown again.
    """

    signal: type[Signal]
    effects: int = 0
    throws: int = 0


@define(eq=False)
class Rows:
    """The changes in the sequences of one generation, for a store that appends.

    Attributes:
        noted: Path, index, and the entry; or `None` if the sequence now ends there.
    """

    _generation: int
    noted: list[tuple[str, int, Entry | None]] = field(factory=list, init=False)

    def take(self) -> list[Row]:
        """Return the changes since the last call."""
        noted, self.noted = self.noted, []
        return [Row(self._generation, *one) for one in noted]


@define(eq=False)
class Sequence:
    """A generator and its part of the journal.

    Attributes:
        path: The prefix of every key of this sequence: `gather-1/0/`.
        context: The `contextvars` context of every turn.
        entries: The journal of this sequence so far.
        rows: Notes each change of the entries.
        depth: The number of Gathers around it.
        parent: The sequence whose branch it is.
        running: The generator, until it has ended.
        position: The number of entries that were delivered, or started for a Gather.
        ordinals: How often each kind and explicit key was used.
        wanted: The effect that it waits for, if it is a leaf.
        gathering: The branches that it waits for, if any.
        closing: The state of its ending, if it is being ended.
        end: Its result or failure, if it has ended.
    """

    path: str
    context: Context
    entries: list[Entry]
    rows: Rows
    depth: int = 0
    parent: Sequence | None = None
    running: Running | None = None
    position: int = 0
    ordinals: dict[str, int] = field(factory=dict)
    wanted: Wanted | None = None
    gathering: Gathering | None = None
    closing: Closing | None = None
    end: Ended | Failed | None = None

    def leaves(self) -> list[tuple[Sequence, Wanted]]:
        """Return the leaves from here on, in position order, with their effects."""
        if self.gathering is not None:
            return [one for child in self.gathering.children for one in child.leaves()]
        wanted = self.wanted
        return [] if wanted is None else [(self, wanted)]

    def sequences(self) -> Iterator[Sequence]:
        """Yield this sequence and all below it, branches before their parent."""
        if self.gathering is not None:
            for child in self.gathering.children:
                yield from child.sequences()
        yield self

    def ends(self, end: Ended | Failed) -> None:
        """Note how the generator ended, and release it."""
        self.end = end
        self.running = self.wanted = None

    def next_ordinal(self, name: str) -> int:
        """Count the uses of `name` in this sequence, this time included."""
        ordinal = self.ordinals.get(name, 0) + 1
        self.ordinals[name] = ordinal
        return ordinal

    def next_entry(self) -> Entry | None:
        """Return the next entry: recorded, and not delivered yet."""
        if self.position < len(self.entries):
            return self.entries[self.position]
        return None

    def record(self, tag: Tag, payload: bytes, replayable: bool = False) -> None:
        """Journal the outcome of the awaited effect. Its wave will deliver it."""
        wanted = self.wanted
        assert wanted is not None
        assert self.position == len(self.entries)
        self.append(wanted.entry(tag, payload, replayable))
        wanted.is_new = True

    def forget_next(self) -> None:
        """Remove the next entry from the journal."""
        del self.entries[self.position]
        self.rows.noted.append((self.path, self.position, None))

    def stamp_next(self, wave: int) -> None:
        """Store in the next entry that other leaves were left waiting in its wave."""
        entry = attrs.evolve(self.entries.pop(), wave=wave)
        self.append(entry)

    def append(self, entry: Entry) -> None:
        """Journal `entry`."""
        self.rows.noted.append((self.path, len(self.entries), entry))
        self.entries.append(entry)

    def drop(self) -> list[Entry]:
        """Remove and return the entries that are not delivered yet."""
        dropped = self.entries[self.position :]
        if dropped:
            del self.entries[self.position :]
            self.rows.noted.append((self.path, self.position, None))
        if self.wanted is not None:
            self.wanted.ready = self.wanted.is_new = False
        return dropped

    def snapshot(self) -> tuple[Entry, ...]:
        """Return the sequence in journal form, with branches that still run."""
        if self.gathering is None:
            return tuple(self.entries)
        entries = list(self.entries)
        entries[self.position - 1] = self._gathered(self.gathering)
        return tuple(entries)

    @property
    def where(self) -> str | None:
        """`file:line` of the yield where this sequence waits.

        An effect that is itself a branch has no line, so it gets its Gather's line.
        """
        found = where(self.running)
        if found is None and self.parent is not None:
            return self.parent.where
        return found

    def close_gathering(self) -> None:
        """Fold the ended branches into the Gather's entry."""
        assert self.gathering is not None
        self.entries[self.position - 1] = self._gathered(self.gathering)
        self.gathering = None

    def _gathered(self, gathering: Gathering) -> Entry:
        entry = self.entries[self.position - 1]
        branches = tuple([child.snapshot() for child in gathering.children])
        return Entry(
            entry.key, entry.shape, entry.render, entry.tag, entry.payload, branches
        )


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
        rows: The changes in the sequences.
        waves: The number of delivered waves.
        left_over: Entries of branches that were cancelled before they reached them.
    """

    __slots__ = ("_live", "flow", "receiver", "left_over", "root", "rows", "waves")

    def __init__(
        self,
        flow: FlowState,
        receiver: Receiver,
        entries: tuple[Entry, ...],
        generation: int,
    ) -> None:
        self.flow = flow
        self.receiver = receiver
        self.waves = 0
        self.left_over: list[Pooled] = []
        self._live = 0
        self.rows = Rows(generation)
        self.root = Sequence("", own_context(copy_context()), list(entries), self.rows)

    def diverge(
        self, cause: Cause, sequence: Sequence, entry: Entry | None = None
    ) -> None:
        """Drop all undelivered entries of the whole flow, if the policy allows it.

        Raises:
            DivergenceError: If the policy forbids it.
        """

    def withdraw(self, leaf: Sequence) -> None:
        """Note that the effect that `leaf` waits for is no longer needed."""

    def open(self, call: Call) -> bool:
        """Call a handler; return whether it returned a generator, still unstarted."""
        root = self.root
        out = start(*call, root.context)
        if isinstance(out, (Ended, Failed)):
            root.ends(out)
            return False
        root.running = out
        return True

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
                rows=self.rows,
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
