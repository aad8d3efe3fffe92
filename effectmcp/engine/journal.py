"""The journal: a flow's effects, in order, with their outcomes and fingerprints.

A flow is a tree of sequences, so a journal is a list of entries in which the entry of a
`Gather` holds one list for each branch. An entry is (key, shape, render, tag, payload):

    key      `key=`, else kind and ordinal in its sequence: elicit-1, step-3
    shape    4 bytes: kind, explicit key, answer schema
    render   8 bytes: message and parameters, or a step's name and arguments
    tag      the outcome: TAGS below
    payload  canonical JSON, frozen when recorded and decoded again for each delivery

Both digests are BLAKE2b keyed with the flow's id, so that equal questions of two flows
look different to a reader of both journals. They are never keyed with the state keys,
because rotating those must not break every running task. An ordinal is never part of a
fingerprint: an answer under another ordinal is still the answer to that text
(docs/internals/replay.md#e2).

A *place* is a position in the tree: branch path and journal key, `gather-1/0/elicit-2`.
A *wire key* is a place with its generation in front, and with `~n` at the end from the
second asking on. It is unique for the flow's whole life, so that a late answer can
never be mistaken for the answer to a later question (docs/internals/replay.md#e3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import field

from ..canonical import JSON, MAX_DEPTH, dumps, loads, parse
from ..errors import EffectMCPError, UsageError
from ..records import record

__all__ = [
    "MAX_NESTING",
    "TAGS",
    "Asking",
    "Entry",
    "Fate",
    "Journal",
    "JournalError",
    "Place",
    "Pooled",
    "Row",
    "Tag",
    "check_key",
    "entry_of_format_1",
    "fate_of",
    "wire_key",
    "with_begun",
]

Tag: TypeAlias = Literal[
    "accepted",
    "declined",
    "dismissed",
    "unread",
    "unasked",
    "invalid",
    "refused",
    "chance",
    "known",
    "won",
    "done",
    "failed",
    "gather",
    "checkpoint",
    "restart",
]
Fate: TypeAlias = Literal["pool", "forget", "stop"]

#: Each tag, and what a salvage does with a dropped entry that has it. An unknown tag is
#: an unknown format: it is refused, never skipped (docs/internals/replay.md#divergence
#: and docs/internals/replay.md#v4).
TAGS: Final[Mapping[Tag, Fate]] = {
    # The user's own answers and decisions: no user should be asked twice.
    "accepted": "pool",
    "declined": "pool",
    "dismissed": "pool",
    # An unread answer whose question was not reached since. Only in the pool.
    "unread": "pool",
    # Decided by the client or the engine for the user; decided again if needed.
    "unasked": "forget",
    "invalid": "forget",
    "refused": "forget",
    # Now, Uuid, Random: could be drawn again, but are kept so that questions stay the
    # same.
    "chance": "pool",
    # Caller, ClientSupports, Detach, Sleep: asked again at no cost.
    "known": "forget",
    # A step was performed. Dropping this and continuing could charge twice.
    "done": "stop",
    "failed": "stop",
    # The winner of a Within or FirstOf, which may have performed a step.
    "won": "stop",
    # Structure.
    "gather": "forget",
    "checkpoint": "forget",
    "restart": "forget",
}

#: The format of `Journal.dumps`. Journals of every released format are still read.
FORMAT: Final = 2

#: Payloads are limited to the usual depth when they are recorded. A journal wraps them
#: in lists, three for each nested Gather, and must still be writable.
DEPTH: Final = MAX_DEPTH + 64


#: How deep a `Gather` may be nested in others. Paths and journals grow with nesting, and
#: deeper flows are unreadable (docs/internals/replay.md#b4).
MAX_NESTING: Final = 16


class JournalError(EffectMCPError):
    """Raised when a string is not a journal in a format that this version knows."""


@record
class Entry:
    """One effect and its outcome. Immutable.

    Attributes:
        key: Its name in its sequence.
        shape: The first half of its fingerprint.
        render: The other half.
        tag: The kind of outcome.
        payload: The outcome, as canonical JSON.
        branches: The sequences of a `Gather`.
        replayable: Whether performing it again is harmless, as the step declared when
            it was performed: not as the current code declares.
        wave: The number of its wait-wave, if other leaves were left waiting; otherwise
            `None`.
    """

    key: str
    shape: bytes
    render: bytes
    tag: Tag
    payload: bytes = b"null"
    branches: tuple[tuple[Entry, ...], ...] = ()
    replayable: bool = False
    wave: int | None = None

    @property
    def value(self) -> JSON:
        """The payload, decoded on each access: no two deliveries share a list.

        See docs/internals/replay.md#e1.
        """
        return loads(self.payload)

    @cached_property
    def encoded(self) -> bytes:
        """The entry as `Journal.dumps` writes it, for the many journals that have it.

        A task is saved at each step, and most of its entries were in the last save, too.
        """
        plain = [self.key, self.shape.hex(), self.render.hex(), self.tag]
        rest = b""
        if self.tag == "gather":
            branches = b",".join([_encoded(branch) for branch in self.branches])
            rest = b",[%b]" % branches
        elif self.replayable or self.wave is not None:
            rest = b",%b" % dumps([self.replayable, self.wave])[1:-1]
        # The payload is canonical JSON.
        return b"%b,%b%b]" % (dumps(plain)[:-1], self.payload, rest)


def _encoded(entries: tuple[Entry, ...]) -> bytes:
    return b"[%b]" % b",".join([one.encoded for one in entries])


def fate_of(entry: Entry) -> Fate:
    """Return what salvage does with an entry that is dropped."""
    if not entry.replayable:
        return TAGS[entry.tag]
    return "pool" if entry.tag == "won" else "forget"


@record
class Asking:
    """A question that is outstanding.

    Attributes:
        place: Its place in the flow.
        shape: The first half of its fingerprint, which must still match at that place
            when its answer arrives.
        render: The other half.
        unfit: Answers so far, under this fingerprint, that did not fit.
    """

    place: str
    shape: bytes
    render: bytes
    unfit: int = 0


@record
class Place:
    """The record of one place, besides its entry.

    Most places are asked once and answered, and then their entry is enough. A record is
    kept only if it has more, because all records are part of the state.

    Attributes:
        asked: Askings so far; the next one is `~(asked + 1)`.
        stale: Answers to a question whose text had changed.
        out: The outstanding question there, if any.
        due: The time when the clock there is up, in seconds since 1970; `None` without
            a clock.
        begun: How often the step there was started without an outcome so far.
    """

    asked: int = 0
    stale: int = 0
    out: Asking | None = None
    due: float | None = None
    begun: int = 0


@record
class Pooled:
    """An answer that an edit of the handler orphaned. It waits for its question."""

    path: str
    entry: Entry


@record
class Row:
    """A change of the journal, for a store that appends.

    Attributes:
        generation: The generation of the flow.
        path: The sequence, by its branch path.
        index: The entry's index in it.
        entry: The entry; `None` if the sequence now ends here.
    """

    generation: int
    path: str
    index: int
    entry: Entry | None


@record(kw_only=True)
class Journal:
    """The data of a flow that are kept from round to round. Immutable.

    Attributes:
        entries: The root sequence.
        places: The records of places, besides their entries.
        pool: Answers waiting for their question after an edit.
        versions: The versions that `Version` returned, by id.
        generation: The number of restarts.
        restart: The name and arguments of this generation's handler; `None` in the
            first.
        rounds: Interim results so far.
        state_rounds: Interim results so far without a question.
        waves: Waves of this generation that were delivered when this was written; `None`
            before the first.
        cancelled: The number of waves of this generation after which the flow was
            cancelled; `None` if it was not.
        detached: The value of `Detach`, if an earlier generation passed one.
    """

    entries: tuple[Entry, ...] = ()
    places: Mapping[str, Place] = field(factory=dict)
    pool: tuple[Pooled, ...] = ()
    versions: Mapping[str, int | str] = field(factory=dict)
    generation: int = 0
    restart: bytes | None = None
    rounds: int = 0
    state_rounds: int = 0
    waves: int | None = None
    cancelled: int | None = None
    detached: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether this is the journal of a flow that has not started."""
        return not self.rounds and self == _EMPTY

    @property
    def asked(self) -> dict[str, Asking]:
        """The outstanding questions, by wire key."""
        return {
            wire_key(self.generation, place, one.asked): one.out
            for place, one in self.places.items()
            if one.out is not None
        }

    def with_rows(self, rows: Iterable[Row]) -> Journal:
        """Return this journal with the entries that `Run.take_rows` returned so far.

        Args:
            rows: All rows, in order. Rows of earlier generations are left out.
        """
        sequences: dict[str, list[Entry]] = {}
        for row in rows:
            if row.generation == self.generation:
                entries = sequences.setdefault(row.path, [])
                del entries[row.index :]
                if row.entry is not None:
                    entries.append(row.entry)
        return attrs.evolve(self, entries=_grown(sequences, ""))

    def dumps(self) -> bytes:
        """Return this journal as canonical JSON, for a file or a store. Not sealed."""
        rest = {
            "format": FORMAT,
            "places": {
                place: _place_to_json(one) for place, one in self.places.items()
            },
            "pool": [[one.path, loads(one.entry.encoded)] for one in self.pool],
            "versions": dict(self.versions),
            "generation": self.generation,
            "restart": None if self.restart is None else loads(self.restart),
            "rounds": [self.rounds, self.state_rounds],
            "waves": self.waves,
        }
        # Canonical JSON has sorted keys.
        return b'%b,"entries":%b,%b' % (
            dumps({"cancelled": self.cancelled, "detached": self.detached})[:-1],
            _encoded(self.entries),
            dumps(rest, max_depth=DEPTH)[1:],
        )

    @classmethod
    def loads(cls, text: bytes | str) -> Journal:
        """Return the journal that `dumps` wrote.

        Raises:
            JournalError: If `text` is not a journal.
        """
        try:
            value = parse(text, max_depth=DEPTH)
            format_ = value.get("format") if isinstance(value, dict) else None
            read = _READERS.get(format_) if type(format_) is int else None
            if read is None:
                raise ValueError("unknown format")
            return read(cls, value)
        except (LookupError, TypeError, ValueError, AttributeError, UsageError) as exc:
            raise JournalError(f"not a journal: {exc}") from None


_EMPTY: Final = Journal()


def _grown(sequences: Mapping[str, list[Entry]], path: str) -> tuple[Entry, ...]:
    return tuple(
        attrs.evolve(
            entry,
            branches=tuple(
                _grown(sequences, f"{path}{entry.key}/{index}/")
                for index in range(len(entry.branches))
            ),
        )
        if entry.branches
        else entry
        for entry in sequences.get(path, ())
    )


def _entry_from_json(value: JSON) -> Entry:
    key, shape, render, tag, payload, *rest = value
    if tag not in TAGS:
        raise ValueError(f"unknown tag {tag!r}")
    branches: Any = ()
    replayable, wave = False, None
    if tag == "gather":
        (branches,) = rest
    elif rest:
        replayable, wave = rest
        if type(replayable) is not bool:
            raise ValueError(f"{replayable!r} where a yes or no belongs")
    return Entry(
        _text(key),
        bytes.fromhex(shape),
        bytes.fromhex(render),
        tag,
        dumps(payload, max_depth=DEPTH),
        tuple(tuple(map(_entry_from_json, branch)) for branch in branches),
        replayable,
        None if wave is None else _count(wave),
    )


def _place_to_json(place: Place) -> JSON:
    out = place.out
    return [
        place.asked,
        place.stale,
        out and [out.shape.hex(), out.render.hex(), out.unfit],
        place.due,
        place.begun,
    ]


def _place_from_json(at: str, value: JSON) -> Place:
    asked, stale, out, due, begun = value
    if due is not None and type(due) not in (int, float):
        raise ValueError(f"{due!r} where a time belongs")
    asking = None
    if out is not None:
        shape, render, unfit = out
        asking = Asking(at, bytes.fromhex(shape), bytes.fromhex(render), _count(unfit))
    return Place(_count(asked), _count(stale), asking, due, _count(begun))


def _journal_from_json(cls: type[Journal], value: JSON) -> Journal:
    waves, detached = value["waves"], value["detached"]
    if detached is not None and type(detached) is not bool:
        raise ValueError(f"{detached!r} where a yes or no belongs")
    return cls(
        entries=tuple(map(_entry_from_json, value["entries"])),
        places={
            _text(place): _place_from_json(place, one)
            for place, one in value["places"].items()
        },
        pool=tuple(
            Pooled(_text(path), _entry_from_json(entry))
            for path, entry in value["pool"]
        ),
        waves=None if waves is None else _count(waves),
        detached=detached,
        **_common_from_json(value),
    )


def _common_from_json(value: JSON) -> dict[str, Any]:
    rounds, state_rounds = value["rounds"]
    cancelled = value["cancelled"]
    restart = value["restart"]
    return {
        "versions": {key: _version(one) for key, one in value["versions"].items()},
        "generation": _count(value["generation"]),
        "restart": None if restart is None else dumps(restart),
        "rounds": _count(rounds),
        "state_rounds": _count(state_rounds),
        "cancelled": None if cancelled is None else _count(cancelled),
    }


# ---- the format before ----------------------------------------------------------------


def _journal_from_format_1(cls: type[Journal], value: JSON) -> Journal:
    places: dict[str, Place] = {}
    for at, (asked, stale) in value["tallies"].items():
        places[_text(at)] = Place(_count(asked), _count(stale))
    for at, shape, render, unfit in value["asked"].values():
        asking = Asking(
            _text(at), bytes.fromhex(shape), bytes.fromhex(render), _count(unfit)
        )
        places[at] = attrs.evolve(places.get(at, Place(1)), out=asking)
    begun: list[str] = []
    entries = _sequence_from_format_1(value["entries"], "", begun)
    return cls(
        entries=entries,
        places=with_begun(places, begun),
        pool=tuple(
            Pooled(_text(path), one)
            for path, entry in value["pool"]
            for one in _sequence_from_format_1([entry], path, [])
        ),
        **_common_from_json(value),
    )


def with_begun(places: dict[str, Place], begun: Iterable[str]) -> dict[str, Place]:
    """Return `places` with the steps that had started."""
    for at in begun:
        places[at] = attrs.evolve(places.get(at, Place()), begun=1)
    return places


def _sequence_from_format_1(
    values: Iterable[JSON], path: str, begun: list[str]
) -> tuple[Entry, ...]:
    entries = []
    for key, shape, render, tag, payload, *rest in values:
        if tag == "started":
            # In format 1, a step without an outcome was the last entry of its sequence.
            begun.append(f"{path}{_text(key)}")
            continue
        branches: tuple[Any, ...] = ()
        if tag == "gather":
            branches = tuple(
                _sequence_from_format_1(branch, f"{path}{key}/{index}/", begun)
                for index, branch in enumerate(rest[0])
            )
        entries.append(
            entry_of_format_1(
                _text(key),
                bytes.fromhex(shape),
                bytes.fromhex(render),
                tag,
                dumps(payload),
                branches,
            )
        )
    return tuple(entries)


def entry_of_format_1(
    key: str,
    shape: bytes,
    render: bytes,
    tag: str,
    payload: bytes,
    branches: tuple[tuple[Entry, ...], ...] = (),
) -> Entry:
    """Return an entry of format 1, without `replayable` and without the tag `won`.

    Raises:
        ValueError: If the tag is unknown.
    """
    replayable = tag in ("redone", "refailed")
    known: Any = {"redone": "done", "refailed": "failed"}.get(tag, tag)
    if known not in TAGS:
        raise ValueError(f"unknown tag {tag!r}")
    kind = key.rpartition("-")[0]
    if known == "done" and kind in ("within", "first"):
        known, won = "won", loads(payload)
        if won is not None:
            position, value = won if kind == "first" else [0, *won]
            payload = dumps([position, "done", value])
    return Entry(key, shape, render, known, payload, branches, replayable)


_READERS: Final = {1: _journal_from_format_1, 2: _journal_from_json}


def _text(value: JSON) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} where a string belongs")
    return value


def _count(value: JSON) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} where a count belongs")
    return value


def _version(value: JSON) -> int | str:
    if type(value) not in (int, str):
        raise ValueError(f"{value!r} where a version belongs")
    return value  # type: ignore[no-any-return]  # checked above


# ---- keys ---------------------------------------------------------------------------


def check_key(key: Any, kinds: Iterable[str]) -> None:
    """Refuse an explicit key that could be mistaken for a generated key.

    Raises:
        UsageError: If `key` is not a short, printable string, or is reserved.
    """
    if not isinstance(key, str) or not key or len(key) > 200 or not key.isprintable():
        raise UsageError(f"key={key!r}: a key is a short, printable text")
    for reserved in "#~/":
        if reserved in key:
            raise UsageError(f"key={key!r}: {reserved!r} is reserved in keys")
    kind, _, ordinal = key.rpartition("-")
    if ordinal.isdecimal() and kind in kinds:
        raise UsageError(
            f"key={key!r} looks like a key of the engine's own; choose another name"
        )


def wire_key(generation: int, place: str, asking: int) -> str:
    """Return the wire key of a question."""
    if asking < 2 and not generation:
        return place
    prefix = f"r{generation}/" if generation else ""
    suffix = f"~{asking}" if asking > 1 else ""
    return f"{prefix}{place}{suffix}"
