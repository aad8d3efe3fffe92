"""The laws of waiting, written from the rules alone."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from effectmcp.engine import Entry, Journal

from .programs import Delivered, Leave, Limit, Memory, Race, Stage

__all__ = [
    "Broken",
    "Expected",
    "check_schedule",
    "entries_of",
    "expect",
    "law",
    "stamps_of",
]


class Broken(AssertionError):
    """A law does not hold."""

    def __init__(self, name: str, what: object) -> None:
        super().__init__(f"law {name}: {what}")
        self.name = name


def law(name: str, holds: bool, what: object) -> None:
    """Raise `Broken` unless a law holds."""
    if not holds:
        raise Broken(name, what)


@define(eq=False)
class Expected:
    """The deliveries that a call of the host must begin with.

    Attributes:
        memory: The memory of the generation in which it waits.
        past: How many deliveries it had then.
        winners: The places of what is delivered, in position order, with the position of
            the winner if it is a race; -1 for a time that is up.
    """

    memory: Memory
    past: int
    winners: list[tuple[str, int | None]]

    def check(self, *, is_cancelling: bool) -> None:
        """Compare with the deliveries."""
        if is_cancelling:
            return
        new = self.memory.log[self.past :][: len(self.winners)]
        places = [one.leaf.place for one in new]
        law("4 wave", places == [at for at, _ in self.winners], (places, self.winners))
        if not self.winners:
            law("4 nothing", len(self.memory.log) == self.past, self.memory.log)
        for one, (_, position) in zip(new, self.winners, strict=True):
            value = one.value
            match one.leaf.statement:
                case Race() if type(value) is tuple:
                    law("4 winner", value[0] == position, (one, position))
                case Limit():
                    law("4 winner", one.is_time_up == (position == -1), (one, position))
                case _:
                    pass


def expect(
    memory: Memory, at_hand: set[str], dues: Mapping[str, float], now: int
) -> Expected:
    """Return the deliveries when these places have answers and results."""
    winners: list[tuple[str, int | None]] = []
    for _, leaf in sorted(memory.waiting.items()):
        up = {at: due for at, due in dues.items() if due <= now and at in leaf.clocks()}
        arrived = [
            position for position, (at, _) in enumerate(leaf.parts()) if at in at_hand
        ]
        match leaf.statement:
            case Limit() | Race() if arrived:
                winners.append((leaf.place, arrived[0]))
            case Limit() | Race() if up:
                # The earliest clock that is up wins; on a tie the first in order, a limit last.
                places = [*(at for at, _ in leaf.parts()), leaf.place]
                first = min((due, places.index(at)) for at, due in up.items())[1]
                is_limit = first == len(places) - 1
                winners.append((leaf.place, -1 if is_limit else first))
            case _:
                if arrived or up:
                    winners.append((leaf.place, None))
    return Expected(memory, len(memory.log), winners)


# ---- the schedule -------------------------------------------------------------------


def check_schedule(stage: Stage, journal: Journal) -> None:
    """Law 5: waves are what B1 and B3a say, and their stamps are needed and right."""
    memory = stage.memory
    stamps = stamps_of(journal)
    log, at, waits = memory.log, 0, 0
    while at < len(log):
        one = log[at]
        if isinstance(one.leaf.statement, Leave):
            waits = 0  # the rounds' waves are not counted
        stamp = stamps.get(one.leaf.place)
        local = {place for place, is_wait in one.leaves.items() if not is_wait}
        members = local or set(one.leaves)
        if stamp is not None:
            law("5 number", stamp == waits, (one, stamp, waits))
            members = {place for place, number in stamps.items() if number == stamp}
            law("5 needed", members < set(one.leaves), (members, one.leaves))
            law("5 local first", not local, (one, local))
        wave = log[at : at + len(members)]
        law("5 wave", {each.leaf.place for each in wave} == members, (wave, members))
        law("5 order", _in_order(wave), wave)
        for each in wave:
            law("5 stamps", stamps.get(each.leaf.place) == stamp, each)
        at += len(members)
        waits += not local
    if not any(one.leaf.path for one in log):
        law("5 no branches", not any(n is not None for n in stamps.values()), stamps)


def _in_order(wave: list[Delivered]) -> bool:
    paths = [one.leaf.path for one in wave]
    return paths == sorted(paths)


def stamps_of(journal: Journal) -> dict[str, int | None]:
    """Return the stamps of all entries, by place."""
    entries = entries_of(journal)
    return {at: one.wave for at, one in entries.items() if one.tag != "gather"}


def entries_of(journal: Journal) -> dict[str, Entry]:
    """Return all entries, by place."""
    found: dict[str, Entry] = {}

    def walk(entries: tuple[Entry, ...], path: str) -> None:
        for entry in entries:
            found[path + entry.key] = entry
            for index, branch in enumerate(entry.branches):
                walk(branch, f"{path}{entry.key}/{index}/")

    walk(journal.entries, "")
    return found
