"""The nodes of the tree of sequences: each is a generator, with its part of the journal.

    root ── waits at a Gather ──┬── branch 0: waits for an answer          (a leaf)
                                ├── branch 1: waits at a Gather ──┬── …
                                └── branch 2: ended

A sequence waits for one effect (`wanted`; then it is a leaf), waits for its branches
(`gathering`), or has ended (`end`). No generator is run here: `single.py` and `tree.py`
do that. Recursion is only over nested Gathers, which MAX_NESTING bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field

from .generators import Ended, Failed, Running, where
from .journal import Entry, Row, Tag

if TYPE_CHECKING:
    from ..effects.base import Effect
    from ..effects.control import Gather
    from ..errors import Signal
    from .effect_table import Kind

__all__ = [
    "WAIT",
    "BuriedError",
    "Closing",
    "Gathering",
    "Rows",
    "Sequence",
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
        """Return the leaves of this part, in position order, with their effects."""
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
