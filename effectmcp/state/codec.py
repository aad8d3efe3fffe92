"""Claims ↔ bytes: short, and shortened only where the length tells nothing.

    header     times, flow id, bindings, counts
    structure  the tree of entries: keys, tags, fingerprints; what is asked; the pool
    private    what this server wrote: results, chance, errors, versions. Never deflated
    answers    what the client wrote, in short pieces: deflated together
    texts      what the client wrote, in long pieces: deflated each alone

Deflating a secret beside text that an attacker chooses tells the secret: the guess that
makes the whole shorter is right, and forks of a flow are legal, so there are as many
guesses as one likes. (Tried: a step's secret word was read from lengths in 20 of 20
tries when all was deflated together, padding or not, and never when apart.) So what this
server wrote is never deflated, not even alone, and is padded by itself before the whole
is padded again. A length may still show how long a step's result is, to 64 bytes; a step
whose result depends on what the client wrote can be asked about it in that way.

Digests are raw, keys of the engine's own are a kind and a number, and wire keys are not
here at all, as they follow from place and tally. Kinds and tags are numbers by their
place in the lists below, so the lists only ever grow at their ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from attrs import define, evolve, field

from ..canonical import JSON, dumps, loads
from ..engine import Asking, Entry, Journal, Pooled, Tally
from ..engine.journal import Tag, wire_key
from .claims import Bindings, Claims

__all__ = ["Packed", "PackingError", "pack", "sizes", "unpack"]

T = TypeVar("T")

#: Both lists are the format: append, never insert.
TAGS: Final[tuple[Tag, ...]] = (
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
)
KINDS: Final = (
    "elicit",
    "confirm",
    "url",
    "sample",
    "roots",
    "checkpoint",
    "step",
    "within",
    "first",
    "now",
    "uuid",
    "random",
    "caller",
    "supports",
    "detach",
    "sleep",
    "restart",
    "gather",
)

#: Written by the client, and known to it: the only payloads that may be deflated.
DEFLATED: Final = frozenset({"accepted"})
#: Their payload is always null, so it is not there.
EMPTY: Final = frozenset(
    {"declined", "dismissed", "unasked", "started", "gather", "checkpoint"}
)

#: Longer pieces are deflated alone: one is then worth its own dictionary, and what two
#: models wrote does not show in each other's length.
LONG: Final = 256
#: What any state may inflate to. It binds when sealing too: nothing is sealed that
#: could not be opened again.
INFLATED: Final = 512 * 1024
#: Half of the work of level 6 for 4 % more (measured on 600 words of prose).
LEVEL: Final = 4
BLOCK: Final = 64

_TAG_NUMBERS: Final = {tag: number for number, tag in enumerate(TAGS)}
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_EXPLICIT: Final = 255
_LONG_BIT: Final = 128


class PackingError(Exception):
    """Bytes that `pack` did not write, or claims that it will not."""


@define
class Packed:
    """What a token holds: the claims, and what it was bound to when it was sealed."""

    claims: Claims
    bindings: Bindings
    issued: int
    expires: int


# ---- writing ------------------------------------------------------------------------


@define
class _Writer:
    structure: bytearray = field(factory=bytearray)
    private: bytearray = field(factory=bytearray)
    answers: bytearray = field(factory=bytearray)
    texts: list[bytes] = field(factory=list)
    inflated: int = 0

    def number(self, value: int) -> None:
        _put_number(self.structure, value)

    def text(self, value: str) -> None:
        _put_bytes(self.structure, value.encode())

    def private_json(self, value: JSON) -> None:
        _put_bytes(self.private, dumps(value))

    def key(self, key: str) -> None:
        kind, _, ordinal = key.rpartition("-")
        number = _KIND_NUMBERS.get(kind)
        if number is not None and ordinal.isdecimal():
            self.structure.append(number)
            self.number(int(ordinal))
        else:
            self.structure.append(_EXPLICIT)
            self.text(key)

    def place(self, place: str) -> None:
        path, slash, key = place.rpartition("/")
        self.path(path + slash)
        self.key(key)

    def path(self, path: str) -> None:
        # gather-1/0/gather-2/3/ → 2 steps: (1, 0), (2, 3)
        steps = path.split("/")[:-1]
        self.number(len(steps) // 2)
        for gather, branch in zip(steps[::2], steps[1::2], strict=True):
            self.number(int(gather.removeprefix("gather-")))
            self.number(int(branch))

    def entry(self, entry: Entry) -> None:
        is_client = entry.tag in DEFLATED
        is_long = is_client and len(entry.payload) > LONG
        self.structure.append(_TAG_NUMBERS[entry.tag] | (_LONG_BIT if is_long else 0))
        self.key(entry.key)
        self.structure += entry.shape
        self.structure += entry.render
        if is_client:
            self.inflated += len(entry.payload)
            if is_long:
                self.texts.append(_deflate(entry.payload))
            else:
                _put_bytes(self.answers, entry.payload)
        elif entry.tag not in EMPTY:
            _put_bytes(self.private, entry.payload)
        if entry.tag == "gather":
            self.number(len(entry.branches))
            for branch in entry.branches:
                self.entries(branch)

    def entries(self, entries: tuple[Entry, ...]) -> None:
        self.number(len(entries))
        for entry in entries:
            self.entry(entry)


def pack(packed: Packed) -> bytes:
    """The bytes that `unpack` reads.

    Raises:
        PackingError: More than could be read back.
    """
    claims, bindings = packed.claims, packed.bindings
    journal = claims.journal
    writer = _Writer()
    writer.number(claims.started)
    writer.number(packed.issued - claims.started)
    writer.number(packed.expires - packed.issued)
    _put_bytes(writer.structure, claims.flow_id)
    writer.structure += bindings.audience + bindings.target
    writer.structure += bindings.arguments + bindings.principal
    for count in (journal.generation, journal.rounds, journal.state_rounds):
        writer.number(count)
    writer.number(0 if journal.cancelled is None else journal.cancelled + 1)
    writer.entries(journal.entries)
    writer.number(len(journal.asked))
    for asking in journal.asked.values():
        writer.place(asking.place)
        writer.structure += asking.shape + asking.render
        writer.number(asking.unfit)
    writer.number(len(journal.tallies))
    for place, tally in journal.tallies.items():
        writer.place(place)
        writer.number(tally.asked)
        writer.number(tally.stale)
    writer.number(len(journal.pool))
    for pooled in journal.pool:
        writer.path(pooled.path)
        writer.entry(pooled.entry)
    # Of what is usually missing nothing is written but that it is.
    rest = [claims.version, claims.trace, dict(journal.versions) or None]
    restart = None if journal.restart is None else loads(journal.restart)
    rest.append(restart)
    if any(one is not None for one in rest):
        writer.private_json(rest)
        writer.number(1)
    else:
        writer.number(0)
    if writer.inflated > INFLATED:
        raise PackingError(f"more than {INFLATED:,} bytes of answers")
    return _assemble(writer)


def _assemble(writer: _Writer) -> bytes:
    whole = bytearray()
    _put_bytes(whole, writer.structure)
    private = writer.private
    _put_bytes(whole, _pad(private) if private else private)
    _put_bytes(whole, _deflate(writer.answers) if writer.answers else b"")
    for text in writer.texts:
        _put_bytes(whole, text)
    return _pad(whole)


def _put_number(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, value: bytes | bytearray) -> None:
    _put_number(out, len(value))
    out += value


def _pad(value: bytes | bytearray) -> bytes:
    # ISO 7816-4: one byte that ends it, then zeros, so that any length can be padded.
    return bytes(value) + b"\x80" + bytes(-(len(value) + 1) % BLOCK)


def _deflate(value: bytes | bytearray) -> bytes:
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    return deflate.compress(value) + deflate.flush()


# ---- reading ------------------------------------------------------------------------


@define
class _Reader:
    data: bytes
    at: int = 0

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise PackingError("a number without an end")

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise PackingError("cut off")
        value = self.data[self.at : end]
        self.at = end
        return value

    def bytes(self) -> bytes:
        return self.raw(self.number())

    def text(self) -> str:
        return self.bytes().decode()

    def key(self) -> str:
        number = self.byte()
        if number == _EXPLICIT:
            return self.text()
        return f"{KINDS[number]}-{self.number()}"

    def path(self) -> str:
        steps = [
            f"gather-{self.number()}/{self.number()}/" for _ in range(self.number())
        ]
        return "".join(steps)

    def place(self) -> str:
        return self.path() + self.key()

    def many(self, read: Callable[[], T]) -> Iterable[T]:
        return [read() for _ in range(self.number())]

    def end(self) -> None:
        if self.at != len(self.data):
            raise PackingError("more than was written")


class _Unpacker:
    """The sections of a packed state, each read in step with the structure."""

    def __init__(self, data: bytes) -> None:
        whole = _Reader(_unpad(data))
        self.structure = _Reader(whole.bytes())
        private = whole.bytes()
        self.private = _Reader(_unpad(private) if private else b"")
        self._room = INFLATED
        answers = whole.bytes()
        self.answers = _Reader(self._inflate(answers) if answers else b"")
        self.whole = whole

    def _inflate(self, data: bytes) -> bytes:
        inflate = zlib.decompressobj(-15)
        value = inflate.decompress(data, self._room + 1)
        self._room -= len(value)
        if self._room < 0 or not inflate.eof or inflate.unused_data:
            raise PackingError("inflates to more than was written")
        return value

    def entry(self) -> Entry:
        structure = self.structure
        number = structure.byte()
        tag = TAGS[number & ~_LONG_BIT]
        key, shape, render = structure.key(), structure.raw(4), structure.raw(8)
        branches: tuple[tuple[Entry, ...], ...] = ()
        if number & _LONG_BIT:
            payload = self._inflate(self.whole.bytes())
        elif tag in DEFLATED:
            payload = self.answers.bytes()
        elif tag in EMPTY:
            payload = b"null"
        else:
            payload = self.private.bytes()
        if tag == "gather":
            branches = tuple(structure.many(self.entries))
        return Entry(key, shape, render, tag, payload, branches)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self.structure.many(self.entry))

    def asking(self) -> Asking:
        structure = self.structure
        place = structure.place()
        return Asking(place, structure.raw(4), structure.raw(8), structure.number())

    def tally(self) -> tuple[str, Tally]:
        structure = self.structure
        return structure.place(), Tally(structure.number(), structure.number())

    def pooled(self) -> Pooled:
        return Pooled(self.structure.path(), self.entry())

    def packed(self) -> Packed:
        structure = self.structure
        started = structure.number()
        issued = started + structure.number()
        expires = issued + structure.number()
        flow_id = structure.bytes()
        bindings = Bindings(*(structure.raw(8) for _ in range(4)))
        journal = Journal(
            generation=structure.number(),
            rounds=structure.number(),
            state_rounds=structure.number(),
        )
        cancelled = structure.number()
        entries = self.entries()
        askings = list(structure.many(self.asking))
        tallies = dict(structure.many(self.tally))
        pool = tuple(structure.many(self.pooled))
        version = trace = restart = None
        versions: Mapping[str, int | str] = {}
        if structure.number():
            version, trace, versions, restart = loads(self.private.bytes())
        for reader in (structure, self.private, self.answers, self.whole):
            reader.end()
        journal = evolve(
            journal,
            entries=entries,
            asked={
                wire_key(journal.generation, one.place, _asked(tallies, one)): one
                for one in askings
            },
            tallies=tallies,
            pool=pool,
            versions=versions or {},
            restart=None if restart is None else dumps(restart),
            cancelled=cancelled - 1 if cancelled else None,
        )
        claims = Claims(
            flow_id=flow_id,
            started=started,
            journal=journal,
            version=version,
            trace=trace,
        )
        return Packed(claims, bindings, issued, expires)


def _asked(tallies: Mapping[str, Tally], asking: Asking) -> int:
    # A place without a tally was asked once; see `Askings.tallies`.
    tally = tallies.get(asking.place)
    return 1 if tally is None else tally.asked


def unpack(data: bytes) -> Packed:
    """What `pack` was given.

    Raises:
        PackingError: `data` is nothing that `pack` wrote, or says too much.
    """
    try:
        return _Unpacker(data).packed()
    except (ValueError, IndexError, TypeError, RecursionError, zlib.error) as exc:
        raise PackingError(f"not a packed state: {exc}") from None


def _unpad(value: bytes) -> bytes:
    stripped = value.rstrip(b"\0")
    if not stripped.endswith(b"\x80") or len(value) % BLOCK:
        raise PackingError("not padded")
    return stripped[:-1]


# ---- what takes the room ------------------------------------------------------------


def sizes(journal: Journal) -> list[tuple[str, int]]:
    """The places of a journal by what their payload takes, the largest first."""
    found: list[tuple[str, int]] = []

    def walk(entries: Iterable[Entry], path: str) -> None:
        for entry in entries:
            is_client = entry.tag in DEFLATED
            size = len(_deflate(entry.payload) if is_client else entry.payload)
            found.append((path + entry.key, size))
            for index, branch in enumerate(entry.branches):
                walk(branch, f"{path}{entry.key}/{index}/")

    walk(journal.entries, "")
    walk((one.entry for one in journal.pool), "pooled ")
    return sorted(found, key=lambda one: -one[1])
