"""The journal: what was performed, in order, with what came back. And its fingerprints.

A flow is a tree of sequences, so a journal is a list of entries in which the entry of a
`Gather` holds one list a branch. An entry is (key, shape, render, tag, payload):

    key      `key=`, else kind and ordinal in its sequence: elicit-1, step-3
    shape    4 bytes: kind, explicit key, answer schema
    render   8 bytes: message and parameters, or a step's name and arguments
    tag      what became of it: TAGS below
    payload  canonical JSON, frozen when recorded and decoded afresh for every delivery

Both digests are BLAKE2b keyed with the flow's id, so that equal questions of two flows
look different to whoever sees their journals; never with the state keys, as rotating
those must not strand every running task. An ordinal is never part of a fingerprint: an
answer found under another ordinal is still the answer to that text.

A *place* is where in the tree: branch path and journal key, `gather-1/0/elicit-2`. A
*wire key* is a place with its generation in front and `~n` behind, from the second
asking on; it is unique over the flow's whole life, so that a late answer can never be
taken for the answer to a later question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from ..canonical import JSON, MAX_DEPTH, dumps, loads, parse
from ..errors import EffectMCPError, UsageError
from ..records import record

__all__ = [
    "PERFORMED",
    "POOLED",
    "TAGS",
    "Asking",
    "Entry",
    "Fingerprints",
    "Journal",
    "JournalError",
    "Pooled",
    "Tag",
    "Tally",
    "check_key",
    "wire_key",
]

Tag: TypeAlias = Literal[
    "accepted",
    "declined",
    "dismissed",
    "unasked",
    "invalid",
    "refused",
    "chance",
    "known",
    "done",
    "failed",
    "started",
    "redone",
    "refailed",
    "gather",
    "checkpoint",
    "restart",
]

#: What each tag says, and what salvage does with such an entry when it is dropped.
#: An unknown tag is an unknown format: it is refused, never skipped.
TAGS: Final[Mapping[Tag, Literal["pool", "forget", "stop"]]] = {
    # The user's own words and decisions, which nobody should be asked for twice.
    "accepted": "pool",
    "declined": "pool",
    "dismissed": "pool",
    # What the client or the engine decided for the user; decided again at need.
    "unasked": "forget",
    "invalid": "forget",
    "refused": "forget",
    # Now, Uuid, Random: free to draw again, but kept so that texts stay the same.
    "chance": "pool",
    # Caller, ClientSupports, Detach, Sleep: asked again at no cost.
    "known": "forget",
    # A step was performed. Dropping this and going on could charge twice.
    "done": "stop",
    "failed": "stop",
    "started": "stop",
    # A step marked replayable when it was performed (the tag counts, not today's code).
    "redone": "forget",
    "refailed": "forget",
    # Structure.
    "gather": "forget",
    "checkpoint": "forget",
    "restart": "forget",
}
POOLED: Final = frozenset(tag for tag, fate in TAGS.items() if fate == "pool")
PERFORMED: Final = frozenset(tag for tag, fate in TAGS.items() if fate == "stop")

#: The format of `Journal.dumps`. Journals of every format ever released are read.
FORMAT: Final = 1

#: Payloads are held to the usual depth when they are recorded. A journal wraps them in
#: lists, three for each Gather inside a Gather, and must stay writable all the same.
DEPTH: Final = MAX_DEPTH + 64


class JournalError(EffectMCPError):
    """A text that is no journal of a format this version knows."""


@record
class Entry:
    """One effect and what came back. Immutable."""

    key: str
    shape: bytes
    render: bytes
    tag: Tag
    payload: bytes = b"null"
    branches: tuple[tuple[Entry, ...], ...] = ()

    @property
    def value(self) -> JSON:
        """The payload, decoded afresh: no two deliveries share a list."""
        return loads(self.payload)


@record
class Asking:
    """A question that is out with the client.

    Attributes:
        place: Where in the flow.
        shape: Its fingerprint, which an answer must still find at that place.
        render: The other half of it.
        unfit: Answers given so far, under this fingerprint, that did not fit.
    """

    place: str
    shape: bytes
    render: bytes
    unfit: int = 0


@record
class Tally:
    """How often one place was asked, for the flow's life.

    Attributes:
        asked: Askings so far; the next one is `~(asked + 1)`.
        stale: Answers that came to a text which had changed meanwhile.
    """

    asked: int = 0
    stale: int = 0


@record
class Pooled:
    """An answer that an edit of the handler orphaned, waiting for its question."""

    path: str
    entry: Entry


@record(kw_only=True)
class Journal:
    """Everything of a flow that outlives a round. Immutable.

    Attributes:
        entries: The root sequence.
        asked: Wire keys of the questions that are out, and what they asked.
        tallies: By place, for places asked more than once or dropped.
        pool: Answers waiting for their question after an edit.
        versions: What `Version` gave, by id.
        generation: How often `Restart` began again.
        restart: The handler and arguments of this generation, unless it is the first.
        rounds: Interim results so far.
        state_rounds: Those of them that asked nothing.
        cancelled: After how many waves of this generation the flow was cancelled.
    """

    entries: tuple[Entry, ...] = ()
    asked: Mapping[str, Asking] = field(factory=dict)
    tallies: Mapping[str, Tally] = field(factory=dict)
    pool: tuple[Pooled, ...] = ()
    versions: Mapping[str, int | str] = field(factory=dict)
    generation: int = 0
    restart: bytes | None = None
    rounds: int = 0
    state_rounds: int = 0
    cancelled: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether this is the journal of a flow that has not begun."""
        return not self.rounds and self == _EMPTY

    def dumps(self) -> bytes:
        """This journal as canonical JSON, for a file or a store. Not sealed."""
        return dumps(
            {
                "format": FORMAT,
                "entries": [_entry_to_json(entry) for entry in self.entries],
                "asked": {
                    key: [one.place, one.shape.hex(), one.render.hex(), one.unfit]
                    for key, one in self.asked.items()
                },
                "tallies": {
                    place: [tally.asked, tally.stale]
                    for place, tally in self.tallies.items()
                },
                "pool": [[one.path, _entry_to_json(one.entry)] for one in self.pool],
                "versions": dict(self.versions),
                "generation": self.generation,
                "restart": None if self.restart is None else loads(self.restart),
                "rounds": [self.rounds, self.state_rounds],
                "cancelled": self.cancelled,
            },
            max_depth=DEPTH,
        )

    @classmethod
    def loads(cls, text: bytes | str) -> Journal:
        """The journal that `dumps` wrote.

        Raises:
            JournalError: when the text is anything else.
        """
        try:
            return _journal_from_json(cls, parse(text, max_depth=DEPTH))
        except (LookupError, TypeError, ValueError, AttributeError, UsageError) as exc:
            raise JournalError(f"not a journal: {exc}") from None


_EMPTY: Final = Journal()


def _entry_to_json(entry: Entry) -> JSON:
    plain = [
        entry.key,
        entry.shape.hex(),
        entry.render.hex(),
        entry.tag,
        loads(entry.payload),
    ]
    if entry.tag == "gather":
        plain.append(
            [[_entry_to_json(one) for one in branch] for branch in entry.branches]
        )
    return plain


def _entry_from_json(value: JSON) -> Entry:
    key, shape, render, tag, payload, *rest = value
    if tag not in TAGS:
        raise ValueError(f"unknown tag {tag!r}")
    branches = rest[0] if tag == "gather" else ()
    return Entry(
        _text(key),
        bytes.fromhex(shape),
        bytes.fromhex(render),
        tag,
        dumps(payload),
        tuple(tuple(map(_entry_from_json, branch)) for branch in branches),
    )


def _journal_from_json(cls: type[Journal], value: JSON) -> Journal:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError("unknown format")
    rounds, state_rounds = value["rounds"]
    cancelled = value["cancelled"]
    restart = value["restart"]
    return cls(
        entries=tuple(map(_entry_from_json, value["entries"])),
        asked={
            key: Asking(
                _text(place), bytes.fromhex(shape), bytes.fromhex(render), _count(unfit)
            )
            for key, (place, shape, render, unfit) in value["asked"].items()
        },
        tallies={
            place: Tally(_count(asked), _count(stale))
            for place, (asked, stale) in value["tallies"].items()
        },
        pool=tuple(
            Pooled(_text(path), _entry_from_json(entry))
            for path, entry in value["pool"]
        ),
        versions={key: _version(one) for key, one in value["versions"].items()},
        generation=_count(value["generation"]),
        restart=None if restart is None else dumps(restart),
        rounds=_count(rounds),
        state_rounds=_count(state_rounds),
        cancelled=None if cancelled is None else _count(cancelled),
    )


def _text(value: JSON) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} where a text belongs")
    return value


def _count(value: JSON) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} where a count belongs")
    return value


def _version(value: JSON) -> int | str:
    if type(value) not in (int, str):
        raise ValueError(f"{value!r} where a version belongs")
    return value  # type: ignore[no-any-return]  # looked at above


# ---- keys ---------------------------------------------------------------------------


def check_key(key: Any, kinds: Iterable[str]) -> None:
    """Refuse an explicit key that could be taken for one of the engine's own.

    Raises:
        UsageError: saying which character or look is reserved.
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
    """What a question is called on the wire."""
    prefix = f"r{generation}/" if generation else ""
    suffix = f"~{asking}" if asking > 1 else ""
    return f"{prefix}{place}{suffix}"


# ---- fingerprints -------------------------------------------------------------------


# The same in every round of every flow.
@lru_cache(maxsize=1024)
def _shape_head(kind: str, key: str | None) -> bytes:
    return dumps([kind, key])


class Fingerprints:
    """The digests of one flow.

    Shapes are few, so each is computed once; renders differ with every question, so
    each is one pass of a hasher that was keyed beforehand.

    Attributes:
        shapes: Those that were computed, by kind, explicit key and answer schema.
        hasher: The render of a message with its parameters is what a copy of this
            makes of them.
    """

    __slots__ = ("_flow_id", "hasher", "shapes")

    def __init__(self, flow_id: bytes) -> None:
        given: object = flow_id
        if not isinstance(given, bytes) or not 16 <= len(given) <= 64:
            raise UsageError(
                "flow_id must be 16 to 64 random bytes, drawn once a flow by whoever"
                " starts it: secrets.token_bytes(16)"
            )
        self._flow_id = flow_id
        self.hasher = blake2b(key=flow_id, digest_size=8, person=b"render")
        self.shapes: dict[tuple[str, str | None, bytes], bytes] = {}

    def shape(self, kind: str, key: str | None, schema: bytes) -> bytes:
        """The shape of a kind, explicit key and answer schema."""
        found = self.shapes[kind, key, schema] = blake2b(
            _shape_head(kind, key) + schema,
            key=self._flow_id,
            digest_size=4,
            person=b"shape",
        ).digest()
        return found

    def idempotency_key(
        self, generation: int, path: str, name: str, about: list[JSON], nth: int
    ) -> str:
        """Return the stable text that `IdempotencyKey(name, *about)` gives."""
        # Without `about` as it always was: a flow keeps its keys through an upgrade.
        more = [about] if about else []
        return blake2b(
            dumps([generation, path, name, *more, nth]),
            key=self._flow_id,
            digest_size=16,
            person=b"idempotency",
        ).hexdigest()
