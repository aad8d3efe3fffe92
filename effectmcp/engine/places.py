"""Records of a flow's places, besides their entries: at most one per place.

Most places are asked once and answered, and then the entry is enough. A record is kept
only if it has more than the entry, because every record is part of the state.

A wire key is never used again (docs/internals/replay.md#e3), so the count of askings is
kept for the life of the flow (docs/internals/replay.md#q2).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from .journal import Asking, Place, wire_key

__all__ = ["Places"]

_NOTHING: Final = Place()


@attrs.define(eq=False)
class Places:
    """The places of one generation of a flow.

    Attributes:
        table: The records, by place.
    """

    table: dict[str, Place]
    _generation: int

    def at(self, place: str) -> Place:
        """Return the record of a place; an empty record if it has none."""
        return self.table.get(place, _NOTHING)

    def wire(self, place: str) -> str:
        """Return the wire key of the question that is outstanding at `place`."""
        return wire_key(self._generation, place, self.table[place].asked)

    def first_wire(self, place: str) -> str:
        """Return the wire key of the first question that will be asked at `place`."""
        return wire_key(self._generation, place, 1)

    def ask(self, place: str, shape: bytes, render: bytes, unfit: int = 0) -> str:
        """Record a question, and return its wire key, which was never used before."""
        # Appended in the order of asking, which is the order on the wire.
        one = self.table.pop(place, _NOTHING)
        asked = one.asked + 1
        asking = Asking(place, shape, render, unfit)
        self.table[place] = Place(asked, one.stale, asking, one.due, one.begun)
        return wire_key(self._generation, place, asked)

    def settle(self, place: str) -> None:
        """Note that the question at `place` was answered: its entry records that."""
        one = self.table[place]
        if one.asked == 1 and not one.stale and one.due is None and not one.begun:
            del self.table[place]
        else:
            self.table[place] = attrs.evolve(one, out=None)

    def withdraw(self, place: str) -> None:
        """Note that a question is no longer asked; its wire key is never used again."""
        one = self.table.get(place)
        if one is not None and one.out is not None:
            self.table[place] = attrs.evolve(one, out=None)

    def count(self, place: str) -> None:
        """Record that `place` was asked, because it has no entry any more."""
        one = self.at(place)
        if not one.asked:
            self.table[place] = attrs.evolve(one, asked=1)

    def note_stale(self, place: str) -> int:
        """Count an answer to a question whose text has changed.

        See docs/internals/replay.md#d1.
        """
        one = self.at(place)
        self.table[place] = attrs.evolve(one, stale=one.stale + 1)
        return one.stale + 1

    def begin(self, place: str) -> None:
        """Count another start of the step at `place` (docs/internals/replay.md#s5)."""
        one = self.at(place)
        self.table[place] = attrs.evolve(one, begun=one.begun + 1)

    def set_due(self, place: str, due: float) -> None:
        """Start the clock at `place`."""
        self.table[place] = attrs.evolve(self.at(place), due=due)

    def end(self, place: str) -> None:
        """Note that nothing runs at `place` any more: no clock, and no step."""
        one = self.table.get(place)
        if one is not None and (one.due is not None or one.begun):
            one = attrs.evolve(one, due=None, begun=0)
            if one == _NOTHING:
                del self.table[place]
            else:
                self.table[place] = one

    def keep_only(self, places: Collection[str]) -> None:
        """Withdraw the questions and stop the clocks at all other places."""
        for place, one in list(self.table.items()):
            if place not in places:
                if one.out is not None:
                    self.withdraw(place)
                if one.due is not None:
                    self.end(place)
