"""Claims ↔ bytes: there and back, any bytes, and what may show in a length."""

from __future__ import annotations

import time
import tracemalloc
import zlib
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from effectmcp.canonical import dumps
from effectmcp.engine import Asking, Entry, Journal, Place, Pooled
from effectmcp.engine.effect_table import KINDS as ENGINE_KINDS
from effectmcp.engine.effect_table import Wave
from effectmcp.engine.journal import MAX_NESTING, Tag
from effectmcp.engine.journal import TAGS as ENGINE_TAGS
from effectmcp.state import codec
from effectmcp.state.codec import (
    BLOCK,
    DEFLATED,
    EMPTY,
    INFLATED,
    KINDS,
    KNOWN,
    LONG,
    MAX_TIME,
    TAGS,
    Claims,
    Packed,
    PackingError,
    inflated_size,
    pack,
    sizes,
    unpack,
)

from .journals import (
    CALL,
    STARTED,
    bomb,
    claims_of,
    entry,
    journal_of,
    packeds,
)

LONG_RUN = settings(
    max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck)
)


def packed_of(*recorded: Entry, **more: Any) -> Packed:
    return sealed(claims_of(*recorded, **more))


def sealed(claims: Claims) -> Packed:
    return Packed(claims, CALL.bind(bytes(32), "a"), STARTED, STARTED + 3600)


def sections(*parts: bytes) -> bytes:
    """Sections as `pack` joins them."""
    whole = bytearray()
    for part in parts:
        whole += codec._sized(part)
    return codec._pad(whole)


def parts_of(data: bytes) -> list[bytes]:
    """The sections of a packed state."""
    return codec._sections(codec._unpad(data))


# ---- there and back -----------------------------------------------------------------


def check_there_and_back(packed: Packed) -> None:
    again = unpack(pack(packed))
    assert again == packed
    mine, theirs = packed.claims.journal, again.claims.journal
    assert theirs.dumps() == mine.dumps()
    assert list(theirs.asked) == list(mine.asked)


@given(packeds())
def test_unpack_returns_the_packed_value(packed: Packed) -> None:
    check_there_and_back(packed)


@pytest.mark.long
@LONG_RUN
@given(packeds())
def test_unpack_returns_the_packed_value_long(packed: Packed) -> None:
    check_there_and_back(packed)


@settings(max_examples=30)
@given(packeds(), packeds())
def test_pack_writes_different_claims_differently(one: Packed, other: Packed) -> None:
    assert (pack(one) == pack(other)) == (one == other)


@given(packeds())
def test_short_answers_have_the_general_format(packed: Packed) -> None:
    """The fast loops write and read the same bytes as the general functions."""
    entries = packed.claims.journal.entries
    fast, general = codec._Writer(), codec._Writer()
    fast.run(entries)
    for one in entries:
        general._other(one)
    assert fast == general
    data = pack(packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_ACCEPTED", None)  # what no number is
        assert unpack(data) == packed


@pytest.mark.parametrize("tag", TAGS)
def test_pack_of_every_tag(tag: Any) -> None:
    tag, replayable = tag
    if tag is None:
        return  # of states that were sealed before: see the golden ones
    payload = None if tag in EMPTY else {"value": 1}
    one = attrs.evolve(entry("elicit-1", tag, payload), replayable=replayable)
    check_there_and_back(packed_of(one))
    pooled = Pooled("gather-1/2/gather-3/4/", attrs.evolve(one, key="who"))
    check_there_and_back(packed_of(pool=(pooled,)))


@pytest.mark.parametrize("kind", KINDS)
def test_pack_of_every_kind(kind: str) -> None:
    tag: Tag = "won" if kind in ("within", "first") else "done"
    packed = packed_of(entry(f"{kind}-1", tag, 1), entry(f"{kind}-999", tag, 2))
    check_there_and_back(packed)
    # A kind and a number: two bytes, where the text would take a prefix and itself.
    (structure, *_) = parts_of(pack(packed))
    assert kind.encode() + b"-" not in structure.replace(b"elicit-9", b"")


# 127 is the last number that takes one byte, and 16,383 the last that takes two. The
# loops read one byte by themselves, and leave longer numbers to others.
@pytest.mark.parametrize("number", [127, 128, 129, 16_383, 16_384, 2**21])
def test_pack_of_numbers_that_take_one_more_byte(number: int) -> None:
    key = f"elicit-{number}"
    check_there_and_back(packed_of(entry(key, "accepted", 1), entry(key, "done", 1)))
    for place in ("elicit-1", key, f"gather-{number}/{number}/who"):
        for unfit in (0, number):
            asking = Asking(place, b"shap", b"renderre", unfit)
            check_there_and_back(packed_of(places={place: Place(1, out=asking)}))
        check_there_and_back(packed_of(places={place: Place(number, number)}))


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**70 - 1])
def test_pack_of_very_large_numbers(number: int) -> None:
    check_there_and_back(packed_of(places={"elicit-1": Place(number, number)}))


def test_numbers_take_as_few_bytes_as_they_can() -> None:
    for number, size in ((127, 1), (128, 2), (16_383, 2), (16_384, 3)):
        assert len(codec._number(number)) == size


@pytest.mark.parametrize("tag", ["accepted", "unread", "done", "known"])
@pytest.mark.parametrize("size", [127, 128, 129, LONG, LONG + 1, 16_383, 16_384])
def test_pack_of_sizes_that_take_one_more_byte(size: int, tag: Tag) -> None:
    text = "x" * (size - 2)  # and two quotes
    check_there_and_back(packed_of(entry("now-1", tag, text), entry("now-2", tag, 2)))


def test_pack_of_gathers_as_deep_as_they_get() -> None:
    inner = entry("elicit-1", "accepted", {"value": 1})
    for _ in range(MAX_NESTING):
        inner = entry("gather-1", "gather", None, (inner,), ())
    check_there_and_back(packed_of(inner))
    packed = packed_of(entry("gather-1", "gather", None, (inner,)))
    with pytest.raises(PackingError, match="nested"):
        unpack(pack(packed))


def test_pack_of_gathers_side_by_side() -> None:
    """Depth counts what is open, not what was."""
    gather = entry("gather-1", "gather", None, (), (entry("now-1", "chance", "t"),))
    check_there_and_back(packed_of(*[gather] * (2 * MAX_NESTING)))
    # And what was, allows nothing.
    inner = gather
    for _ in range(MAX_NESTING):
        inner = entry("gather-1", "gather", None, (inner,))
    packed = packed_of(*[gather] * (2 * MAX_NESTING), inner)
    with pytest.raises(PackingError, match="nested"):
        unpack(pack(packed))


def test_pack_of_a_question_asked_again() -> None:
    """Wire keys come back out of place, tally and generation."""
    place = "gather-1/0/who"
    asking = Asking(place, b"shap", b"renderre", 2)
    packed = packed_of(places={place: Place(4, 1, asking)}, generation=3)
    assert list(packed.claims.journal.asked) == [f"r3/{place}~4"]
    check_there_and_back(packed)
    assert place.encode() not in pack(packed)


@pytest.mark.parametrize(
    "more", [{"cancelled": 0}, {"cancelled": 7}, {"restart": b"[]"}]
)
def test_pack_of_rare_claims(more: dict[str, Any]) -> None:
    check_there_and_back(packed_of(**more))


@pytest.mark.parametrize(
    "more",
    [
        {"waves": 0},
        {"waves": 300},
        {"detached": False},
        {"places": {"first-1/0/elicit-1": Place(2), "sleep-1": Place(due=5.5)}},
        {"places": {"gather-1/0/within-2": Place(begun=1, due=5)}},
    ],
)
def test_pack_of_waits(more: dict[str, Any]) -> None:
    check_there_and_back(packed_of(**more))


def test_pack_of_a_tasks_entries() -> None:
    """No client carries them: they are numbered by the waves of one store."""
    stamped = attrs.evolve(entry("elicit-1", "accepted", 5), wave=0)
    with pytest.raises(PackingError, match="a task's entries"):
        pack(packed_of(stamped))


def test_pack_of_a_tag_that_cannot_be_replayable() -> None:
    wrong = attrs.evolve(entry("now-1", "chance", 5), replayable=True)
    with pytest.raises(PackingError, match="performed again"):
        pack(packed_of(wrong))


def test_unpack_of_a_winner_without_its_own_tag() -> None:
    first, within = entry("first-1", "done", [1, 5]), entry("within-1", "done", [5])
    found = unpack(pack(packed_of(first, within))).claims.journal.entries
    assert found == (
        attrs.evolve(first, tag="won", payload=b'[1,"done",5]'),
        attrs.evolve(within, tag="won", payload=b'[0,"done",5]'),
    )
    again = attrs.evolve(within, replayable=True)
    (found_again,) = unpack(pack(packed_of(again))).claims.journal.entries
    assert found_again == attrs.evolve(found[1], replayable=True)


def test_unpack_of_steps_recorded_as_started() -> None:
    """Started steps were once entries, in a branch or after one."""
    inner, outer = entry("step-1", "checkpoint"), entry("step-2", "checkpoint")
    gather = entry("gather-1", "gather", None, (inner,))
    (structure, *rest) = parts_of(pack(packed_of(gather, outer, places={})))
    number, begun = TAGS.index(("checkpoint", False)), TAGS.index((None, False))
    for one in (inner, outer):
        key = codec._key_to_bytes(one.key) + one.shape
        assert structure.count(bytes([number]) + key) == 1
        structure = structure.replace(bytes([number]) + key, bytes([begun]) + key)
    journal = unpack(sections(structure, *rest)).claims.journal
    assert journal.entries == (attrs.evolve(gather, branches=((),)),)
    assert journal.places == {
        "gather-1/0/step-1": Place(begun=1),
        "step-2": Place(begun=1),
    }


def test_unpack_of_flags_that_are_unknown() -> None:
    (structure, *rest) = parts_of(pack(packed_of()))
    assert structure.endswith(b"\0")
    with pytest.raises(PackingError, match="more than this version knows"):
        unpack(sections(structure[:-1] + b"\40", *rest))


@pytest.mark.parametrize(
    "waits",
    [
        *(b"[]", b"[1,{}]", b"[null,[]]", b"[null,null]"),
        *(b'[null,{"a":[null,"x"]}]', b'[null,{"a":[null,true]}]'),
        *(b'[null,{"a":[null,-1]}]', b'[null,{"a":["x",0]}]', b'[null,{"a":[true,0]}]'),
        *(b'[null,{"a":[NaN,0]}]', b'[null,{"a":[1e999,0]}]'),
        b'[null,{"a":[1' + b"0" * 400 + b",0]}]",
    ],
)
def test_unpack_refuses_invalid_waits(waits: bytes) -> None:
    (structure, *rest) = parts_of(pack(packed_of()))
    changed = structure[:-1] + b"\4" + codec._sized(waits)
    with pytest.raises(PackingError):
        unpack(sections(changed, *rest))


@pytest.mark.parametrize("more", [{"version": ""}, {"version": "2"}, {"trace": "00-a"}])
def test_pack_of_claims_that_are_rare(more: dict[str, Any]) -> None:
    packed = packed_of()
    check_there_and_back(
        attrs.evolve(packed, claims=attrs.evolve(packed.claims, **more))
    )


# ---- the lists that are the format --------------------------------------------------


def test_lists_know_everything_that_the_engine_records() -> None:
    assert {tag for tag, _ in TAGS if tag} == set(ENGINE_TAGS)
    recorded = {
        kind.name for kind in ENGINE_KINDS.values() if kind.wave is not Wave.INLINE
    }
    assert set(KINDS) == recorded
    assert len(TAGS) < 128
    assert len(KINDS) < 255
    assert not DEFLATED & (EMPTY | KNOWN)
    assert not EMPTY & KNOWN


def test_lists_only_grow_at_their_ends() -> None:
    """Version 1 of the format, written out again: an insertion must fail here."""
    tags = [f"{tag}+" if replayable else str(tag) for tag, replayable in TAGS]
    assert " ".join(tags).startswith(
        "accepted declined dismissed unasked invalid refused chance known done failed"
        " None done+ failed+ gather checkpoint restart unread won won+"
    )
    assert " ".join(KINDS).startswith(
        "elicit confirm url sample roots checkpoint step within first now uuid random"
        " caller supports detach sleep restart gather"
    )


# ---- any bytes ----------------------------------------------------------------------


def check_any_bytes(data: bytes) -> None:
    try:
        packed = unpack(data)
    except PackingError:
        return
    assert isinstance(packed, Packed)


garbage = st.binary(max_size=300)
headed = st.builds(
    bytes.__add__, st.binary(min_size=64, max_size=64), st.binary(max_size=200)
)
padded = st.builds(codec._pad, garbage)
deflated = garbage.map(codec._deflate) | garbage
assembled = st.builds(
    sections, headed | garbage, padded | garbage | st.just(b""), deflated, deflated
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A packed state with a few bytes of one section changed, put in or taken out."""
    parts = parts_of(pack(draw(packeds())))
    index = draw(st.integers(0, min(len(parts) - 1, 2)))
    raw = parts[index]
    if index == 1 and raw:
        raw = codec._unpad(raw)
    elif index == 2 and raw:
        raw = zlib.decompress(raw, -15)
    changed = bytearray(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(changed)))
        changed[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    value = bytes(changed)
    if index == 1:
        value = codec._pad(value)
    elif index == 2:
        value = codec._deflate(value)
    parts[index] = value
    return sections(*parts)


@example(b"")
@example(b"\x80")
@example(sections(b"", b"", b""))
@example(sections(b"", b"", b"\7"))  # no deflated block is of type 3
@given(garbage | padded | assembled | damaged())
def test_unpack_of_any_bytes(data: bytes) -> None:
    """Random bytes either unpack to claims or raise `PackingError`."""
    check_any_bytes(data)


@pytest.mark.long
@LONG_RUN
@given(garbage | padded | assembled | damaged())
def test_unpack_of_any_bytes_long(data: bytes) -> None:
    check_any_bytes(data)


def test_unpack_of_every_truncation() -> None:
    packed = packed_of(
        entry("elicit-1", "accepted", {"value": "Ann"}),
        entry("step-1", "done", "receipt"),
        entry("elicit-2", "accepted", {"value": "x" * 2 * LONG}),
        places={"who": Place(2, 1)},
        restart=b'["m:f",[],{}]',
    )
    whole = parts_of(pack(packed))
    assert unpack(sections(*whole)) == packed
    for index, part in enumerate(whole):
        for size in range(len(part)):
            parts = list(whole)
            parts[index] = part[:size]
            with pytest.raises(PackingError):
                unpack(sections(*parts))
    for count in range(len(whole)):
        with pytest.raises(PackingError):
            unpack(sections(*whole[:count]))
    data = pack(packed)
    for size in range(len(data)):
        with pytest.raises(PackingError):
            unpack(data[:size])


def test_unpack_refuses_invalid_padding() -> None:
    """Padding is one mark, then zeros, to whole blocks, of the state and its private part."""
    whole = pack(packed_of(entry("step-1", "done", "receipt")))
    structure, private, *rest = parts_of(whole)
    for padded in (whole, private):
        for bad in (
            padded[:-1],
            padded + b"\0",
            padded[:-1] + b"\1",
            padded[:-1] + b"X",
            padded.rstrip(b"\0")[:-1].ljust(len(padded), b"\0"),
            bytes(len(padded)),
        ):
            data = bad if padded is whole else sections(structure, bad, *rest)
            # Without its mark, the whole ends at the mark of its private part.
            with pytest.raises(PackingError, match=r"not padded|more or less"):
                unpack(data)


def test_unpack_of_more_than_was_written() -> None:
    structure, private, answers, text = parts_of(
        pack(
            packed_of(
                entry("elicit-1", "accepted", {"value": "Ann"}),
                entry("step-1", "done", "receipt"),
                entry("elicit-2", "accepted", {"value": "x" * 2 * LONG}),
            )
        )
    )
    more = codec._pad(codec._unpad(private) + b"x")
    inflated = zlib.decompress(answers, -15)
    for parts in (
        (structure + b"\0", private, answers, text),
        (structure, more, answers, text),
        (structure, private, codec._deflate(inflated + b"x"), text),
        (structure, private, answers + b"x", text),
        (structure, private, answers, text + b"x"),
        (structure, private, answers, text, b""),
    ):
        with pytest.raises(PackingError):
            unpack(sections(*parts))


@pytest.mark.parametrize(
    "more",
    [b"", b"[]", b"[1,2,3]", b'[null,null,"x"]', b'["1",null,[]]', b"[" * 50_000],
)
def test_unpack_refuses_invalid_rare_claims(more: bytes) -> None:
    """JSON that is missing, too deep, or of other types."""
    with pytest.raises(PackingError):
        unpack(with_rare_claims(more))


@pytest.mark.parametrize("more", [b"[1,null,{}]", b"[null,1,{}]", b"[null,null,[]]"])
def test_unpack_of_one_rare_claim_of_another_type(more: bytes) -> None:
    """Each is checked by itself: what reads them later takes the type as given."""
    assert unpack(with_rare_claims(b"[null,null,{}]")) == packed_of()
    with pytest.raises(PackingError, match="a version, a trace or versions"):
        unpack(with_rare_claims(more))


def with_rare_claims(more: bytes) -> bytes:
    """A packed state with `more` as the JSON of version, trace and versions."""
    (structure, *rest) = parts_of(pack(packed_of()))
    assert structure.endswith(b"\0")
    changed = structure[:-1] + b"\1" + codec._sized(more) + b"\0\0\0"
    return sections(changed, *rest)


@pytest.mark.parametrize(
    "number", [b"\xff" * 9 + b"\x7f", b"\xff" * 10 + b"\1", b"\xff" * 40_000]
)
def test_unpack_of_counts_beyond_all_bounds(number: bytes) -> None:
    """A count is not proof of the number of items that follow."""
    structure = parts_of(pack(packed_of()))[0]
    flow_id_end = 64 + 1 + 16
    for rest in (b"", b"\0" * 1_000):
        data = sections(structure[:flow_id_end] + number + rest, b"", b"")
        started = time.process_time()
        with pytest.raises(PackingError):
            unpack(data)
        assert time.process_time() - started < 1


def test_overlong_number_is_refused() -> None:
    with pytest.raises(PackingError, match="a number without an end"):
        codec._Reader(b"\xff" * 10 + b"\1").number()


# ---- bombs --------------------------------------------------------------------------


def test_pack_refuses_claims_that_could_not_be_unpacked() -> None:
    with pytest.raises(PackingError, match="524,288"):
        pack(packed_of(bomb()))


HALF = INFLATED // 2


@pytest.mark.parametrize(
    ("fits", "too_much"),
    [
        ([INFLATED], [INFLATED + 1]),
        ([HALF, HALF], [HALF, HALF + 1]),
        # With the length prefix of each: one byte or, from 128 on, two.
        ([127] * 4096, [127] * 4094 + [126, 128]),
        ([HALF] + [127] * 2048, [HALF + 1] + [127] * 2048),
    ],
    ids=["one text", "two texts", "many pieces", "both"],
)
def test_pack_and_unpack_agree_on_the_limit(
    fits: list[int], too_much: list[int]
) -> None:
    """A state at the limit is read back, and one byte more is not written."""

    def of(sizes: list[int]) -> Packed:
        return packed_of(*[entry("who", "accepted", "x" * (n - 2)) for n in sizes])

    check_there_and_back(of(fits))
    with pytest.raises(PackingError):
        pack(of(too_much))


@pytest.mark.parametrize(
    "where", ["answers", "a text", "many texts", "a hundred texts"]
)
def test_unpack_refuses_a_decompression_bomb(where: str) -> None:
    """Memory stays near the cap, though 40 kB would inflate to 40 MB of zeros."""
    nothing = codec._deflate(bytes(40 * 1024 * 1024))
    structure, *_ = parts_of(pack(packed_of(*[long_answer()] * 100)))
    small = codec._deflate(bytes(INFLATED // 8))
    data = {
        "answers": sections(structure, b"", nothing),
        "a text": sections(structure, b"", b"", nothing),
        "many texts": sections(structure, b"", b"", *[small] * 9),
        "a hundred texts": sections(structure, b"", b"", *[small] * 100),
    }[where]
    tracemalloc.start()
    try:
        with pytest.raises(PackingError, match="inflates"):
            unpack(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * INFLATED


def test_unpack_refuses_stored_answers_that_are_too_long_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stored blocks count too: without this, the state could not be sealed again."""
    stored = codec._deflate(b"x" * codec.STORED)
    structure, *_ = parts_of(pack(packed_of(*[long_answer()] * 100)))
    data = sections(structure, b"", b"", *[stored] * 100)
    monkeypatch.setattr(codec, "INFLATED", 99 * codec.STORED)
    with pytest.raises(PackingError, match="inflates"):
        unpack(data)


def test_unpack_inflates_up_to_the_limit_and_no_further() -> None:
    most = zlib.compress(bytes(codec.INFLATED), 9, -15)
    assert (
        len(codec._Unpacker.of(sections(b"", b"", most)).answers.data) == codec.INFLATED
    )
    more = zlib.compress(bytes(codec.INFLATED + 1), 9, -15)
    with pytest.raises(PackingError, match="inflates to more"):
        codec._Unpacker.of(sections(b"", b"", more))


@pytest.mark.parametrize("size", [2**63 - 1, 2**70 - 1])
def test_unpack_refuses_an_impossible_payload_size(size: int) -> None:
    known = entry("caller-1", "known", "")
    structure, *_ = parts_of(pack(packed_of(known, known)))
    huge = codec._number(size)
    at = structure.index(b'\2""')  # the first payload, after its length
    changed = structure[:at] + huge + structure[at + 1 :]
    with pytest.raises(PackingError):
        unpack(sections(changed, b"", b""))


def long_answer() -> Entry:
    return entry("elicit-1", "accepted", {"value": "x" * 2 * LONG})


def test_unpack_of_gathers_without_end() -> None:
    """The depth is limited by a count, not by the caller's remaining recursion."""
    gather = parts_of(pack(packed_of(entry("gather-1", "gather"))))[0]
    at = 64 + 1 + 16 + 1
    one = gather[at : at + 15] + b"\1\1"
    assert one[:3] == bytes([TAGS.index(("gather", False)), KINDS.index("gather"), 1])
    with pytest.raises(PackingError, match="nested"):
        unpack(sections(gather[:at] + one * 2_500, b"", b""))


# ---- what may show in a length ------------------------------------------------------


def length(*recorded: Entry, **more: Any) -> int:
    return len(pack(packed_of(*recorded, **more)))


@settings(max_examples=50)
@given(packeds())
def test_pack_fills_blocks(packed: Packed) -> None:
    data = pack(packed)
    assert len(data) % BLOCK == 0
    assert len(parts_of(data)[1]) % BLOCK == 0


PRIVATE = sorted(set(ENGINE_TAGS) - DEFLATED - KNOWN - EMPTY)


@pytest.mark.parametrize("tag", PRIVATE)
def test_length_does_not_depend_on_what_the_server_wrote(tag: Any) -> None:
    """Only the server's length in blocks counts, not equal text beside it."""
    answers = [entry("elicit-1", "accepted", {"value": "secret-word"})] * 3
    said = {
        length(*answers, entry("step-1", tag, word))
        for word in ("secret-word", "another-one", "x", "xyzxyzxyzxyzxyz", "")
    }
    assert len(said) == 1


def test_private_payloads_are_not_deflated() -> None:
    """Private payloads of entries, branches, the pool and a restart are stored raw."""
    word = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    done = entry("step-1", "done", word)
    gather = entry("gather-1", "gather", None, (done,))
    packed = packed_of(
        done, gather, pool=(Pooled("", done),), restart=dumps(["m:f", [word], {}])
    )
    assert PRIVATE == ["chance", "done", "failed", "restart", "won"]
    private = codec._unpad(parts_of(pack(packed))[1])
    assert private.count(word.encode()) == 4


@pytest.mark.parametrize("tag", sorted(KNOWN))
def test_private_payloads_are_padded_alone(tag: Any) -> None:
    """Values whose length a client controls are not in the private block."""
    done = entry("step-1", "done", "x" * 50)
    for size in range(130):
        known = entry("elicit-1", tag, "y" * size)
        private = parts_of(pack(packed_of(done, known)))[1]
        assert len(private) == BLOCK
        assert b"y" not in private


def test_private_part_holds_no_trace_of_the_client() -> None:
    claims = attrs.evolve(claims_of(), trace="t" * 500, version="v" * 500)
    assert parts_of(pack(sealed(claims)))[1] == b""


def test_long_answers_do_not_share_a_dictionary() -> None:
    """The length of one model's answer does not depend on another's."""
    words = [f"{n * n:x}" for n in range(200, 400)]
    text, other = " ".join(words), " ".join(reversed(words))[::-1]
    one = entry("sample-1", "accepted", text)
    parts = parts_of(pack(packed_of(one, one, entry("sample-2", "accepted", other))))
    assert parts[3] == parts[4]
    assert [zlib.decompress(part, -15) for part in parts[3:]] == [
        dumps(text),
        dumps(text),
        dumps(other),
    ]


def test_long_answer_with_distant_repetition_is_read() -> None:
    """Repetition is found at any distance: the deflate window is the largest."""
    text = "".join(f"{n * n:x}" for n in range(4_500))
    packed = packed_of(entry("sample-1", "accepted", 3 * text))
    assert 2**14 < len(text) < 2**15
    check_there_and_back(packed)
    assert len(pack(packed)) < len(text)


def test_short_answers_share_one() -> None:
    answers = [entry("elicit-1", "accepted", {"quantity": n}) for n in range(50)]
    parts = parts_of(pack(packed_of(*answers)))
    assert len(parts) == 3
    assert len(parts[2]) < 200


@given(
    st.binary(max_size=2 * codec.SMALL) | st.text("abc ", max_size=2000).map(str.encode)
)
@example(b"")
@example(b"x" * codec.STORED)
@example(b"x" * (codec.STORED + 1))
@example(b"x" * codec.SMALL)
@example(b"x" * (codec.SMALL + 1))
def test_deflated_values_are_raw_deflate(value: bytes) -> None:
    """Every inflater can read it, and a stored block needs none."""
    deflated = codec._deflate(value)
    assert zlib.decompress(deflated, -15) == value
    assert len(deflated) <= len(value) + 10
    if value:
        assert codec._Unpacker.of(sections(b"", b"", deflated)).answers.data == value


@pytest.mark.parametrize("size", [1, codec.STORED])
def test_short_pieces_are_stored(size: int) -> None:
    """To deflate a few answers would take as long as to replay them."""
    value = b"x" * size
    assert codec._deflate(value) == codec._STORED.pack(1, size, size ^ 0xFFFF) + value
    assert len(codec._deflate(b"x" * (codec.STORED + 1))) < codec.STORED


@given(st.binary(max_size=codec.STORED), st.integers(0, 9))
@example(b"", 0)  # a stored block of no bytes
@example(b"", 9)  # shorter than any stored block
@example(b"x" * codec.STORED, 0)
def test_values_deflated_with_other_settings_are_read(value: bytes, level: int) -> None:
    deflated = zlib.compress(value, level, -15)
    assert codec._Unpacker.of(sections(b"", b"", deflated)).answers.data == value


def test_unpack_of_a_stored_block_that_is_not_the_last() -> None:
    """The block announces another block, which is missing."""
    block = codec._STORED.pack(0, 3, 3 ^ 0xFFFF) + b"123"
    with pytest.raises(PackingError):
        codec._Unpacker.of(sections(b"", b"", block))


# ---- what takes the room ------------------------------------------------------------


def test_sizes_are_by_place_and_the_largest_first() -> None:
    inner = entry("step-2", "failed", "x" * 300)
    journal = journal_of(
        entry("step-1", "done", "x" * 98),
        entry("gather-1", "gather", None, (), (inner,)),
        entry("elicit-1", "accepted", "x" * 10_000),
        pool=(Pooled("gather-2/0/", entry("who", "chance", "x" * 48)),),
        restart=b'["shop:again",[],{}]',
    )
    found = sizes(journal)
    deflated = len(codec._deflate(dumps("x" * 10_000)))
    assert sorted(found) == [
        ("elicit-1", deflated),
        ("gather-1", 4),
        ("gather-1/1/step-2", 302),
        ("pooled gather-2/0/who", 50),
        ("step-1", 100),
        ("the arguments of Restart", 20),
    ]
    assert [size for _, size in found] == sorted((s for _, s in found), reverse=True)
    assert inflated_size(journal) == 10_002


def test_pack_of_the_last_time_of_all_clocks() -> None:
    claims = Claims(flow_id=bytes(16), started=MAX_TIME, journal=Journal())
    check_there_and_back(Packed(claims, bytes(32), MAX_TIME, MAX_TIME + 1))


def test_unpack_refuses_a_time_out_of_range() -> None:
    """No server seals such a time, but signed bytes are checked nevertheless."""
    packed = Packed(
        Claims(flow_id=bytes(16), started=1, journal=Journal()), bytes(32), 1, 2
    )
    data = bytearray(pack(packed))
    at = 1 if data[0] < 128 else 2  # behind the size of the first section
    data[at : at + 8] = b"\xff" * 8
    with pytest.raises(PackingError, match="a time beyond all clocks"):
        unpack(bytes(data))
