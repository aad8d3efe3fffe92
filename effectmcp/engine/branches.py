"""The tree of sequences: one node a generator, and how branches begin, fail and join.

    root ── waits at a Gather ──┬── branch 0: waits for an answer          (a leaf)
                                ├── branch 1: waits at a Gather ──┬── …
                                └── branch 2: ended

A node waits for one effect (then it is a leaf), waits for its branches, or has ended.
Nothing here runs a generator: `replay.py` does, and asks this module who is next.
Recursion below is over the nesting of Gathers only, which MAX_NESTING bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context
from typing import Any, Final

import attrs
from attrs import define, field

from ..effects import Effect, Gather
from ..errors import Signal
from .journal import Entry, Tag
from .kinds import Kind
from .turn import Running, where

__all__ = ["MAX_NESTING", "Node"]

#: Paths grow with nesting, and so do journals. Nobody reads a flow nested deeper.
MAX_NESTING: Final = 16


@define(eq=False)
class Node:
    """One sequence: a generator, its part of the journal, and what it waits for.

    Attributes:
        path: In front of every key of this sequence: `gather-1/0/`.
        running: The generator, while there is one.
        context: The `contextvars` context of every turn.
        entries: The sequence's journal, as far as it is known.
        position: How many of them were delivered, or begun if a Gather's.
        ordinals: How often each kind and explicit key was used.
        row: The table's row of the effect that is waited for.
        place: Path and key: where in the flow that stands.
    """

    path: str
    context: Context
    entries: list[Entry]
    depth: int = 0
    parent: Node | None = None
    running: Running | None = None
    position: int = 0
    ordinals: dict[str, int] = field(factory=dict)

    # What it waits for.
    effect: Effect[Any] | None = None
    subject: Effect[Any] | None = None
    row: Kind = field(init=False, repr=False)
    key: str = ""
    place: str = ""
    shape: bytes = b""
    render: bytes = b""
    # What it is about to get: computed when matched, handed over when the whole wave
    # is in.
    ready: bool = False
    value: Any = None
    error: BaseException | None = None
    # Whether that came of this run and not out of the journal.
    is_new: bool = False
    # Why the last answer did not fit, in words for the user.
    problems: tuple[str, ...] = ()

    # Waiting for branches.
    gather: Gather[Any] | None = None
    children: list[Node] | None = None
    # What its yield will raise when all branches have ended, instead of a result.
    failing: BaseException | None = None

    # The end.
    ended: bool = False
    result: Any = None
    failure: BaseException | None = None

    # Cleanup: the signal that is ending this node, and how patient we were so far.
    closing: type[Signal] | None = None
    cleanup_effects: int = 0
    cleanup_throws: int = 0

    def leaves(self) -> list[Node]:
        """The leaves below this node, in position order."""
        if self.children is None:
            return [] if self.ended else [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def nodes(self) -> Iterator[Node]:
        """This node and all below it, branches before the node they belong to."""
        for child in self.children or ():
            yield from child.nodes()
        yield self

    def end(self, result: Any = None, failure: BaseException | None = None) -> None:
        """Note how the generator ended, and let go of it."""
        self.ended = True
        self.result = result
        self.failure = failure
        self.running = None

    def next_ordinal(self, name: str) -> int:
        """How often `name` was used in this sequence, this time included."""
        ordinal = self.ordinals.get(name, 0) + 1
        self.ordinals[name] = ordinal
        return ordinal

    def next_entry(self) -> Entry | None:
        """The entry at hand: recorded, and not delivered yet."""
        if self.position < len(self.entries):
            return self.entries[self.position]
        return None

    def record(self, tag: Tag, payload: bytes) -> None:
        """Journal what the awaited effect came to. It is delivered with its wave."""
        assert self.position == len(self.entries)
        self.entries.append(Entry(self.key, self.shape, self.render, tag, payload))
        self.ready = False
        self.is_new = True

    def drop(self) -> list[Entry]:
        """Cut off what was not delivered yet, and return it."""
        dropped = self.entries[self.position :]
        if dropped:
            del self.entries[self.position :]
        self.ready = False
        self.is_new = False
        return dropped

    def snapshot(self) -> tuple[Entry, ...]:
        """The sequence as a journal holds it, with branches that are still running."""
        if self.children is None:
            return tuple(self.entries)
        entries = list(self.entries)
        entries[self.position - 1] = self._gathered()
        return tuple(entries)

    @property
    def where(self) -> str | None:
        """`file:line` of the yield at which this node waits.

        An effect given to a Gather as it is has no line of its own: its Gather's.
        """
        found = where(self.running)
        if found is None and self.parent is not None:
            return self.parent.where
        return found

    def close_gather(self) -> None:
        """Fold the ended branches into the Gather's entry."""
        self.entries[self.position - 1] = self._gathered()
        self.children = self.gather = self.failing = None

    def _gathered(self) -> Entry:
        assert self.children is not None
        return attrs.evolve(
            self.entries[self.position - 1],
            branches=tuple(child.snapshot() for child in self.children),
        )
