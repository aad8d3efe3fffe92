"""Claims ↔ bytes: compact, and compressed only where the length reveals nothing.

    structure  times, flow id, bindings, counts; the tree of entries: keys, tags and
               fingerprints; outstanding questions; the pool; payloads that the server
               wrote and the client knows
    private    payloads that the server wrote and the client may not know: results of
               steps, random values, arguments of `Restart`. Never deflated
    answers    short payloads that the client wrote: deflated together
    texts      long payloads that the client wrote: each deflated separately

Deflating a secret together with strings that an attacker chooses reveals the secret: a
guess that makes the result shorter is right, and as flows may be forked, there is no
limit on guesses. (Measured: a step's secret word was read from lengths in 20 of 20
tries when all was deflated together, with or without padding, and never when it was
apart.) So the private part is never deflated, not even separately. It is padded by
itself before the whole is padded again. Nothing whose length a client can choose is
padded with it: a client that can push a secret over the edge of a block learns its
length to the byte. So a length reveals the size of the private part to 64 bytes, and no
more. But if a step's result depends on what the client wrote, the client can probe the
result in this way (docs/internals/state.md#side-channels).

Digests are raw. Keys that the engine made are a kind and a number. Wire keys are not
included, as they follow from place and tally. Kinds and tags are numbers, by their
index in the lists below, so these lists may only grow at the end.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Final, TypeVar

from attrs import define, field

from ..canonical import JSON, dumps, loads
from ..engine.effect_table import KINDS as ROWS
from ..engine.journal import (
    MAX_NESTING,
    Asking,
    Entry,
    Journal,
    Place,
    Pooled,
    Tag,
    entry_of_format_1,
    with_begun,
)
from ..errors import UsageError
from ..records import record

__all__ = [
    "BINDINGS",
    "INFLATED",
    "MAX_TIME",
    "Claims",
    "NewerError",
    "OversizedError",
    "Packed",
    "PackingError",
    "inflated_size",
    "pack",
    "sizes",
    "unpack",
]

T = TypeVar("T")

#: Bytes of what a token is bound to: see `seal`.
BINDINGS: Final = 32
#: Seconds: far beyond any clock, and far below what a token has room for.
MAX_TIME: Final = 2**40

#: The list defines the format, as the numbers of kinds do: append, never insert
#: (docs/internals/state.md#formats). The flag of a tag: whether its effect may be
#: performed again.
TAGS: Final[tuple[tuple[Tag | None, bool], ...]] = (
    ("accepted", False),
    ("declined", False),
    ("dismissed", False),
    ("unasked", False),
    ("invalid", False),
    ("refused", False),
    ("chance", False),
    ("known", False),
    ("done", False),
    ("failed", False),
    (None, False),  # formerly the entry of a step that had started
    ("done", True),
    ("failed", True),
    ("gather", False),
    ("checkpoint", False),
    ("restart", False),
    ("unread", False),
    ("won", False),
    ("won", True),
)
#: The names of effect kinds, by number.
KINDS: Final = tuple(
    name
    for _, name in sorted(
        (row.number, row.name) for row in ROWS.values() if row.number is not None
    )
)

#: Tags of payloads that the client wrote: only these may be deflated.
DEFLATED: Final = frozenset({"accepted", "unread"})
#: Tags of payloads that the client also knows, with a length that it may choose: errors
#: in its words or about them, its name. Not deflated, as words of the server may be
#: among them.
KNOWN: Final = frozenset({"invalid", "refused", "known"})
#: Tags whose payload is always null, so it is not written.
EMPTY: Final = frozenset({"declined", "dismissed", "unasked", "gather", "checkpoint"})

#: Bytes above which an answer is deflated separately: then its own dictionary pays off,
#: and the output of one model does not affect the length of another's.
LONG: Final = 256
#: Bytes that a state may inflate to. The limit applies to sealing, too, so that every
#: sealed state can be opened again.
INFLATED: Final = 512 * 1024
#: Half the work of level 6, for 4 % more bytes (measured on 600 words of prose).
LEVEL: Final = 4
#: Bytes up to which deflating is not worth it: half a dozen short answers take as long
#: to deflate as to replay. They become one stored block (RFC 1951, section 3.2.4).
STORED: Final = 96
_STORED: Final = struct.Struct("<BHH")
#: Bytes up to which the small tables of `_deflate` are enough.
SMALL: Final = 1024
BLOCK: Final = 64

_TAG_NUMBERS: Final[Mapping[tuple[Tag | None, bool], int]] = {
    tag: number for number, tag in enumerate(TAGS)
}
_ACCEPTED: Final = _TAG_NUMBERS["accepted", False]
#: Flags of the parts after the questions. States that were sealed before waves were
#: counted have only the first flag.
_MORE, _WAVES, _WAITS, _COUNTED, _LINED = 1, 2, 4, 8, 16
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
#: Times (the start of the flow, then each relative to the last), bindings, four counts.
_HEADER: Final = struct.Struct(f">QII{BINDINGS}sIIII")
#: An entry under a key that the engine made: tag, kind, number, shape, render. No entry
#: is shorter.
_ENTRY: Final = struct.Struct(">BBB4s8s")
# Only keys that survive a round trip: `int` also reads 01 and digits of other scripts.
_OWN_KEY: Final = re.compile(r"([a-z]+)-([1-9][0-9]{0,8})\Z")
#: An outstanding question at the root, under such a key: 0 steps, kind, number, shape,
#: render, number of unfit answers. No question is shorter.
_ASKING: Final = struct.Struct(">BBB4s8sB")
_EXPLICIT: Final = 255
_RACES: Final = ("within-", "first-")
_LONG_BIT: Final = 128


class PackingError(Exception):
    """Raised for bytes that `pack` did not write, and for claims that it refuses."""


class OversizedError(PackingError):
    """Raised for claims with more bytes than a state may inflate to."""


class NewerError(PackingError):
    """Raised for a state with parts that only a newer version of this package knows."""


@record(kw_only=True)
class Claims:
    """The contents of a token.

    Values that could not be opened again are refused here, when a flow starts and
    nothing is lost yet.

    Attributes:
        flow_id: 128 random bits, drawn when the flow started.
        started: Start of the flow, in seconds since 1970: its absolute life counts from
            then.
        journal: The journal of the flow.
        version: The handler's declared version when the flow started.
        trace: The first round's trace context, so that later rounds can link to it.
        is_counted: Whether the state is for one use, which a ledger counts.
        has_line: Whether the flow has its one line in that ledger.

    Raises:
        UsageError: If an attribute has another type or an impossible value.
    """

    flow_id: bytes
    started: int
    journal: Journal
    version: str | None = None
    trace: str | None = None
    is_counted: bool = False
    has_line: bool = False

    def __attrs_post_init__(self) -> None:
        # One function instead of a validator per field: each round makes two `Claims`.
        started: object = self.started
        if type(started) is not int or not 0 <= started <= MAX_TIME:
            raise UsageError(
                f"Claims(started={started!r}): give whole seconds since 1970"
            )
        if self.version is not None and type(self.version) is not str:
            raise UsageError(f"Claims(version={self.version!r}): give a text")
        if self.trace is not None and type(self.trace) is not str:
            raise UsageError(f"Claims(trace={self.trace!r}): give a text")

    def after(
        self, journal: Journal, *, is_counted: bool = False, has_line: bool = False
    ) -> Claims:
        """Return the claims of the same flow after its next round.

        Args:
            journal: Its journal then.
            is_counted: Whether the new state is for one use.
            has_line: Whether the flow has its one line.
        """
        return Claims(
            flow_id=self.flow_id,
            started=self.started,
            journal=journal,
            version=self.version,
            trace=self.trace,
            is_counted=is_counted,
            has_line=has_line,
        )


@define
class Packed:
    """The contents of a token: the claims, and the bindings and times of its seal."""

    claims: Claims
    bindings: bytes
    issued: int
    expires: int


# ---- writing ------------------------------------------------------------------------


@define
class _Writer:
    structure: bytearray = field(factory=bytearray)
    private: bytearray = field(factory=bytearray)
    answers: bytearray = field(factory=bytearray)
    texts: list[bytes] = field(factory=list)

    def run(self, entries: tuple[Entry, ...]) -> None:
        # A loop without a call per entry, as nearly all entries are short answers: this
        # is most of the cost of a long state.
        structure, answers = self.structure, self.answers
        for entry in entries:
            payload = entry.payload
            if (
                entry.tag == "accepted"
                and (size := len(payload)) < 128
                and entry.wave is None
            ):
                structure += _answer_to_bytes(entry.key) + entry.shape + entry.render
                answers.append(size)
                answers += payload
            else:
                self._other(entry)

    def _other(self, entry: Entry) -> None:
        structure, tag, payload = self.structure, entry.tag, entry.payload
        if entry.wave is not None:
            raise PackingError("a task's entries, which no client carries")
        is_long = tag in DEFLATED and len(payload) > LONG
        number = _TAG_NUMBERS.get((tag, entry.replayable))
        if number is None:
            raise PackingError(f"{tag} cannot be performed again")
        structure.append(number | (_LONG_BIT if is_long else 0))
        structure += _key_to_bytes(entry.key) + entry.shape + entry.render
        if is_long:
            self.texts.append(payload)
        elif tag in DEFLATED:
            self.answers += _sized(payload)
        elif tag in KNOWN:
            structure += _sized(payload)
        elif tag not in EMPTY:
            self.private += _sized(payload)
        elif tag == "gather":
            structure += _number(len(entry.branches))
            for branch in entry.branches:
                structure += _number(len(branch))
                self.run(branch)

    def whole(self) -> bytes:
        answers, private, texts = self.answers, self.private, self.texts
        if len(answers) + sum(map(len, texts)) > INFLATED:
            raise OversizedError(f"more than {INFLATED:,} bytes of answers")
        padded = _pad(private) if private else b""
        deflated = _deflate(answers) if answers else b""
        whole = bytearray()
        parts: list[bytes | bytearray] = [self.structure, padded, deflated]
        parts += map(_deflate, texts)
        for part in parts:
            whole += _number(len(part))
            whole += part
        return _pad(whole)


def pack(packed: Packed) -> bytes:
    """Encode claims as bytes that `unpack` can decode.

    Raises:
        PackingError: If the claims are too large to be decoded, or cannot be encoded.
    """
    claims = packed.claims
    journal = claims.journal
    writer = _Writer()
    structure = writer.structure
    structure += _HEADER.pack(
        claims.started,
        packed.issued - claims.started,
        packed.expires - packed.issued,
        packed.bindings,
        journal.generation,
        journal.rounds,
        journal.state_rounds,
        0 if journal.cancelled is None else journal.cancelled + 1,
    )
    structure += _number(len(claims.flow_id)) + claims.flow_id
    structure += _number(len(journal.entries))
    writer.run(journal.entries)
    asked: list[Asking] = []
    tallies: list[tuple[str, Place]] = []
    waits: dict[str, JSON] = {}
    for place, one in journal.places.items():
        if one.out is not None:
            asked.append(one.out)
        if one.stale or one.asked != (one.out is not None):
            tallies.append((place, one))
        if one.begun or one.due is not None:
            waits[place] = [one.due, one.begun]
    structure += _number(len(asked))
    for asking in asked:
        structure += _place_to_bytes(asking.place) + asking.shape + asking.render
        structure += _number(asking.unfit)
    # Most flows have none of these fields: one flag says that all are missing.
    has_more = (
        claims.version is not None
        or claims.trace is not None
        or journal.versions
        or tallies
        or journal.pool
        or journal.restart is not None
    )
    has_waits = waits or journal.detached is not None
    structure.append(
        (_MORE if has_more else 0)
        | (_WAVES if journal.waves is not None else 0)
        | (_WAITS if has_waits else 0)
        | (_COUNTED if claims.is_counted else 0)
        | (_LINED if claims.has_line else 0)
    )
    if journal.waves is not None:
        structure += _number(journal.waves)
    if has_more:
        _pack_more(writer, claims, tallies)
    if has_waits:
        structure += _sized(dumps([journal.detached, waits]))
    return writer.whole()


def _pack_more(
    writer: _Writer, claims: Claims, tallies: list[tuple[str, Place]]
) -> None:
    structure, journal = writer.structure, claims.journal
    structure += _sized(dumps([claims.version, claims.trace, dict(journal.versions)]))
    structure += _number(len(tallies))
    for place, one in tallies:
        structure += _place_to_bytes(place) + _number(one.asked) + _number(one.stale)
    structure += _number(len(journal.pool))
    for pooled in journal.pool:
        structure += _path_to_bytes(pooled.path)
        writer.run((pooled.entry,))
    structure += _number(journal.restart is not None)
    if journal.restart is not None:
        writer.private += _sized(journal.restart)


# There are few keys, paths and sizes, and they recur in every round of every flow.
@lru_cache(maxsize=4096)
def _answer_to_bytes(key: str) -> bytes:
    return bytes([_ACCEPTED]) + _key_to_bytes(key)


@lru_cache(maxsize=4096)
def _key_to_bytes(key: str) -> bytes:
    own = _OWN_KEY.match(key)
    number = _KIND_NUMBERS.get(own[1]) if own else None
    if own and number is not None:
        return bytes([number]) + _number(int(own[2]))
    return bytes([_EXPLICIT]) + _sized(key.encode())


@lru_cache(maxsize=4096)
def _place_to_bytes(place: str) -> bytes:
    path, slash, key = place.rpartition("/")
    return _path_to_bytes(path + slash) + _key_to_bytes(key)


@lru_cache(maxsize=4096)
def _path_to_bytes(path: str) -> bytes:
    # gather-1/0/gather-2/3/ → 2 steps: (1, 0), (2, 3). A step into another kind, such
    # as a Within, starts with a 0, which no Gather has as its number, and the kind.
    steps = path.split("/")[:-1]
    out = _number(len(steps) // 2)
    for key, branch in zip(steps[::2], steps[1::2], strict=True):
        kind, _, ordinal = key.rpartition("-")
        if kind != "gather":
            out += bytes([0, _KIND_NUMBERS[kind]])
        out += _number(int(ordinal)) + _number(int(branch))
    return out


@lru_cache(maxsize=4096)
def _number(value: int) -> bytes:
    # Seven bits a byte, the lowest first; all bytes but the last have the highest bit.
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(value: bytes) -> bytes:
    return _number(len(value)) + value


def _pad(value: bytes | bytearray) -> bytes:
    # ISO 7816-4: one byte that marks the end, then zeros. This can pad any length.
    return bytes(value) + b"\x80" + bytes(-(len(value) + 1) % BLOCK)


def _deflate(value: bytes | bytearray) -> bytes:
    size = len(value)
    if size <= STORED:
        return _STORED.pack(1, size, size ^ 0xFFFF) + value
    if size > SMALL:
        return zlib.compress(value, LEVEL, -15)
    # Making the tables of a large window takes ten times as long as filling small ones,
    # and the output of the small ones is at most five bytes longer.
    small = zlib.compressobj(LEVEL, zlib.DEFLATED, -12, 4)
    return small.compress(value) + small.flush()


# ---- reading ------------------------------------------------------------------------


@define
class _Reader:
    data: bytes
    at: int = 0

    def number(self) -> int:
        value, at = self.data[self.at], self.at + 1
        if value > 127:
            value, at = _long_number(self.data, at - 1)
        self.at = at
        return value

    def raw(self, size: int) -> bytes:
        start = self.at
        self.at = end = start + size
        return self.data[start:end]

    def bytes(self) -> bytes:
        size, at = self.data[self.at], self.at + 1
        if size > 127:
            size, at = _long_number(self.data, at - 1)
        # The slice is too short if the data was cut off; then `packed` raises.
        self.at = end = at + size
        return self.data[at:end]

    def many(self, read: Callable[[], T]) -> list[T]:
        # Each item takes at least a byte, so a false count fails where the data ends.
        return [read() for _ in range(self.number())]

    def key(self) -> str:
        kind = self.data[self.at]
        self.at += 1
        if kind == _EXPLICIT:
            return self.bytes().decode()
        return _own_key(kind, self.number())

    def path(self) -> str:
        steps = self.number()
        if not steps:
            return ""  # the root, as nearly always
        return "".join([self._step() for _ in range(steps)])

    def _step(self) -> str:
        kind, ordinal = "gather", self.number()
        if not ordinal:
            kind, ordinal = KINDS[self.number()], self.number()
        return f"{kind}-{ordinal}/{self.number()}/"

    def place(self) -> str:
        return self.path() + self.key()


def _long_number(data: bytes, at: int) -> tuple[int, int]:
    second = data[at + 1]
    if second < 128:
        return data[at] & 127 | second << 7, at + 2  # nearly always
    value = 0
    for index, shift in enumerate(range(0, 64, 7), at):
        value |= (data[index] & 127) << shift
        if data[index] < 128:
            return value, index + 1
    raise PackingError("a number without an end")


@lru_cache(maxsize=4096)
def _own_key(kind: int, ordinal: int) -> str:
    return f"{KINDS[kind]}-{ordinal}"


@define
class _More:
    """The fields that most flows never have."""

    version: str | None = None
    trace: str | None = None
    versions: dict[str, int | str] = field(factory=dict)
    tallies: dict[str, Place] = field(factory=dict)
    pool: tuple[Pooled, ...] = ()
    restart: bytes | None = None


_NO_MORE: Final = _More()
_ONCE: Final = Place(1)


@define
class _Unpacker:
    """The sections of a packed state, each read in step with the structure."""

    structure: _Reader
    private: _Reader
    answers: _Reader
    texts: Iterator[bytes]
    _room: int
    _depth: int = 0
    _path: str = ""
    _begun: list[str] = field(factory=list)

    @classmethod
    def of(cls, data: bytes) -> _Unpacker:
        structure, private, answers, *texts = _sections(_unpad(data))
        unpacker = cls(
            _Reader(structure),
            _Reader(_unpad(private) if private else b""),
            _Reader(answers),
            iter(texts),
            INFLATED,
        )
        if answers:
            unpacker.answers.data = unpacker._inflate(answers)
        return unpacker

    def _inflate(self, data: bytes) -> bytes:
        size = len(data) - _STORED.size
        is_whole = True
        if 0 < size <= STORED and data.startswith(_STORED.pack(1, size, size ^ 0xFFFF)):
            value = data[_STORED.size :]
        else:
            inflate = zlib.decompressobj(-15)
            value = inflate.decompress(data, self._room + 1)
            is_whole = inflate.eof and not inflate.unused_data
        self._room -= len(value)
        if self._room < 0 or not is_whole:
            raise PackingError("inflates to more than was written")
        return value

    def entry(self) -> Entry:
        (one,) = self.run(1)
        return one

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self.run(self.structure.number()))

    def run(self, count: int) -> list[Entry]:
        # A loop without a call per entry, as nearly all entries are short answers: this
        # is most of the cost of a long state.
        structure, answers = self.structure, self.answers
        data, written = structure.data, answers.data
        at, there = structure.at, answers.at
        found = []
        for _ in range(count):
            number, kind, ordinal, shape, render = _ENTRY.unpack_from(data, at)
            if (
                number == _ACCEPTED
                and kind != _EXPLICIT
                and ordinal < 128
                and (size := written[there]) < 128
            ):
                at += _ENTRY.size
                start = there + 1
                there = start + size
                payload = written[start:there]
                key = _own_key(kind, ordinal)
                found.append(Entry(key, shape, render, "accepted", payload))
            else:
                structure.at, answers.at = at, there
                other = self._other()
                if other is not None:
                    found.append(other)
                at, there = structure.at, answers.at
        structure.at, answers.at = at, there
        return found

    def _other(self) -> Entry | None:
        structure = self.structure
        number, kind, ordinal, shape, render = _ENTRY.unpack_from(
            structure.data, structure.at
        )
        if kind != _EXPLICIT and ordinal < 128:
            # Nearly every key. The general path below costs three times as much.
            key = _own_key(kind, ordinal)
            structure.at += _ENTRY.size
        else:
            structure.at += 1
            key = structure.key()
            shape, render = structure.raw(4), structure.raw(8)
        tag, replayable = TAGS[number & ~_LONG_BIT]
        if tag is None:
            self._begun.append(self._path + key)
            return None
        if number & _LONG_BIT:
            payload = self._inflate(next(self.texts))
        elif tag in DEFLATED:
            payload = self.answers.bytes()
        elif tag in KNOWN:
            payload = structure.bytes()
        elif tag in EMPTY:
            payload = b"null"
        else:
            payload = self.private.bytes()
        if tag == "done" and key.startswith(_RACES):
            # In older states, a winner has no separate tag.
            old = "redone" if replayable else "done"
            return entry_of_format_1(key, shape, render, old, payload)
        branches = self.branches(key) if tag == "gather" else ()
        return Entry(key, shape, render, tag, payload, branches, replayable)

    def branches(self, key: str) -> tuple[tuple[Entry, ...], ...]:
        # Counted here, as the recursion that Python has left depends on the caller.
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise PackingError("nested deeper than any flow")
        path, branches = self._path, []
        for index in range(self.structure.number()):
            self._path = f"{path}{key}/{index}/"
            branches.append(self.entries())
        self._path = path
        self._depth -= 1
        return tuple(branches)

    def askings(self) -> list[Asking]:
        structure = self.structure
        data = structure.data
        found = []
        for _ in range(structure.number()):
            steps, kind, ordinal, shape, render, unfit = _ASKING.unpack_from(
                data, structure.at
            )
            if not steps and kind != _EXPLICIT and ordinal < 128 and unfit < 128:
                structure.at += _ASKING.size  # nearly every question, as with entries
                place = _own_key(kind, ordinal)
            else:
                place = structure.place()
                shape, render = structure.raw(4), structure.raw(8)
                unfit = structure.number()
            found.append(Asking(place, shape, render, unfit))
        return found

    def tally(self) -> tuple[str, Place]:
        structure = self.structure
        return structure.place(), Place(structure.number(), structure.number())

    def pooled(self) -> Pooled:
        return Pooled(self.structure.path(), self.entry())

    def packed(self) -> Packed:
        structure = self.structure
        times_and_counts = _HEADER.unpack_from(structure.data)
        structure.at = _HEADER.size
        started, since, ttl, bindings, generation, rounds, state_rounds, cancelled = (
            times_and_counts
        )
        if started > MAX_TIME:
            raise PackingError("a time beyond all clocks")
        flow_id = structure.bytes()
        entries = tuple(self.run(structure.number()))
        askings = self.askings()
        flags = structure.data[structure.at]  # a second byte would be a newer one's
        structure.at += 1
        if flags & ~(_MORE | _WAVES | _WAITS | _COUNTED | _LINED):
            raise NewerError("more than this version knows")
        waves = structure.number() if flags & _WAVES else None
        more = self.more() if flags & _MORE else _NO_MORE
        places = more.tallies.copy() if more.tallies else {}
        for one in askings:
            tally = places.pop(one.place, _ONCE)  # in the order of asking
            places[one.place] = Place(tally.asked, tally.stale, one)
        detached, places = self.waits(places) if flags & _WAITS else (None, places)
        if (
            structure.at != len(structure.data)
            or self.private.at != len(self.private.data)
            or self.answers.at != len(self.answers.data)
            or next(self.texts, None) is not None
        ):
            raise PackingError("more or less than was written")
        journal = Journal(
            entries=entries,
            places=with_begun(places, self._begun) if self._begun else places,
            pool=more.pool,
            versions=more.versions,
            generation=generation,
            restart=more.restart,
            rounds=rounds,
            state_rounds=state_rounds,
            waves=waves,
            cancelled=cancelled - 1 if cancelled else None,
            detached=detached,
        )
        claims = Claims(
            flow_id=flow_id,
            started=started,
            journal=journal,
            version=more.version,
            trace=more.trace,
            is_counted=bool(flags & _COUNTED),
            has_line=bool(flags & _LINED),
        )
        issued = started + since
        return Packed(claims, bindings, issued, issued + ttl)

    def waits(self, places: dict[str, Place]) -> tuple[bool | None, dict[str, Place]]:
        detached, waits = loads(self.structure.bytes())
        if detached is not None and type(detached) is not bool:
            raise PackingError("a flag of another type")
        if type(waits) is not dict:
            raise PackingError("waits of another type")
        for at, (due, begun) in waits.items():
            if type(begun) is not int or begun < 0:
                raise PackingError("a count of another type")
            if due is not None and not (type(due) in (float, int) and isfinite(due)):
                raise PackingError("a time of another type")
            one = places.get(at, Place())
            places[at] = Place(one.asked, one.stale, one.out, due, begun)
        return detached, places

    def more(self) -> _More:
        structure = self.structure
        version, trace, versions = loads(structure.bytes())
        if not (_is_text(version) and _is_text(trace) and type(versions) is dict):
            raise PackingError("a version, a trace or versions of another type")
        tallies = dict(structure.many(self.tally))
        pool = tuple(structure.many(self.pooled))
        restart = self.private.bytes() if structure.number() else None
        return _More(version, trace, versions, tallies, pool, restart)


def _is_text(value: JSON) -> bool:
    return value is None or type(value) is str


#: The errors of reading malformed data. The JSON scanner raises StopIteration for a
#: missing value.
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    StopIteration,
    RecursionError,
    struct.error,
    zlib.error,
)


def unpack(data: bytes) -> Packed:
    """Decode bytes that `pack` wrote.

    Raises:
        PackingError: If `pack` did not write `data`, or `data` exceeds a limit.
    """
    try:
        return _Unpacker.of(data).packed()
    except _UNREADABLE as exc:
        raise PackingError(f"not a packed state: {type(exc).__name__}") from None


def _sections(data: bytes) -> list[bytes]:
    sections, at = [], 0
    while at < len(data):
        size, start = data[at], at + 1
        if size > 127:
            size, start = _long_number(data, at)
        at = start + size
        sections.append(data[start:at])
    if at != len(data) or len(sections) < 3:
        raise PackingError("more or less than was written")
    return sections


def _unpad(value: bytes) -> bytes:
    stripped = value.rstrip(b"\0")
    if not stripped.endswith(b"\x80") or len(value) % BLOCK:
        raise PackingError("not padded")
    return stripped[:-1]


# ---- sizes --------------------------------------------------------------------------


def sizes(journal: Journal) -> list[tuple[str, int]]:
    """Return the places of a journal with their payload's size, the largest first."""
    found = [
        (place, len(_deflate(entry.payload)) if entry.tag in DEFLATED else size)
        for place, entry, size in _payloads(journal)
    ]
    if journal.restart is not None:
        found.append(("the arguments of Restart", len(journal.restart)))
    return sorted(found, key=lambda one: -one[1])


def inflated_size(journal: Journal) -> int:
    """Return the total size of the payloads that the client wrote, before deflating."""
    return sum(size for _, entry, size in _payloads(journal) if entry.tag in DEFLATED)


def _payloads(journal: Journal) -> Iterator[tuple[str, Entry, int]]:
    pooled = [(f"pooled {one.path}", one.entry) for one in journal.pool]
    todo = [("", entry) for entry in journal.entries] + pooled
    while todo:
        path, entry = todo.pop()
        yield path + entry.key, entry, len(entry.payload)
        for index, branch in enumerate(entry.branches):
            todo += [(f"{path}{entry.key}/{index}/", one) for one in branch]
