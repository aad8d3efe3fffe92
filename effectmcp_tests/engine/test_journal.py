from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectmcp import Accepted, Confirm, Flow, Gather, Step, UsageError
from effectmcp.canonical import dumps
from effectmcp.engine import (
    SCRIPT,
    Asking,
    Entry,
    Journal,
    JournalError,
    Pooled,
    Returned,
    Tally,
)
from effectmcp.engine.journal import (
    PERFORMED,
    POOLED,
    TAGS,
    Fingerprints,
    check_key,
    wire_key,
)
from effectmcp.engine.kinds import NAMES
from effectmcp_tests.helpers import FLOW_ID, advance, run

# ---- generated journals ----

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 2**40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=5,
).filter(lambda value: "Infinity" not in json.dumps(value))
payloads = values.map(dumps)
prints = st.binary(max_size=8)

plain_entries = st.builds(
    Entry,
    key=texts,
    shape=prints,
    render=prints,
    tag=st.sampled_from(sorted(set(TAGS) - {"gather"})),
    payload=payloads,
)


def gathers(inner: st.SearchStrategy[Entry]) -> st.SearchStrategy[Entry]:
    branch = st.lists(inner, max_size=3).map(tuple)
    return st.builds(
        Entry,
        key=texts,
        shape=prints,
        render=prints,
        tag=st.just("gather"),
        payload=payloads,
        branches=st.lists(branch, max_size=3).map(tuple),
    )


entries = st.recursive(plain_entries, gathers, max_leaves=6)

journals = st.builds(
    Journal,
    entries=st.lists(entries, max_size=4).map(tuple),
    asked=st.dictionaries(
        texts, st.builds(Asking, texts, prints, prints, counts), max_size=3
    ),
    tallies=st.dictionaries(texts, st.builds(Tally, counts, counts), max_size=3),
    pool=st.lists(st.builds(Pooled, texts, entries), max_size=3).map(tuple),
    versions=st.dictionaries(texts, st.integers() | texts, max_size=3),
    generation=counts,
    restart=st.none() | st.lists(values, min_size=3, max_size=3).map(dumps),
    rounds=counts,
    state_rounds=counts,
    cancelled=st.none() | counts,
)


@settings(max_examples=50)
@given(journals)
def test_journal_comes_back_from_its_text(journal: Journal) -> None:
    assert Journal.loads(journal.dumps()) == journal


@settings(max_examples=50)
@given(journals)
def test_journal_text_is_one_text(journal: Journal) -> None:
    """Canonical: what is loaded from it dumps to the very same bytes, `str` or not."""
    text = journal.dumps()
    assert Journal.loads(text).dumps() == text
    assert Journal.loads(text.decode()).dumps() == text


def test_journal_of_nothing() -> None:
    assert Journal.loads(Journal().dumps()) == Journal()


# ---- any text at all ----


def accept(text: bytes | str) -> None:
    """A journal or a `JournalError`, and nothing else."""
    try:
        journal = Journal.loads(text)
    except JournalError:
        return
    assert isinstance(journal, Journal)


@given(st.binary() | st.text())
def test_loads_of_any_text(text: bytes | str) -> None:
    accept(text)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each part of a JSON value, itself included."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path] + [place for key, one in items for place in places(one, (*path, key))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with `new` where `path` leads; `...` takes that part out."""
    if not path:
        return new
    copy = value.copy()
    if len(path) == 1 and new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


FULL = Journal(
    entries=(
        Entry("elicit-1", b"shap", b"rendered", "accepted", b'{"value":"Ann"}'),
        Entry(
            "gather-1",
            b"shap",
            b"rendered",
            "gather",
            branches=((Entry("step-1", b"shap", b"rendered", "done", b"[1]"),), ()),
        ),
    ),
    asked={"elicit-2~3": Asking("elicit-2", b"shap", b"rendered", 1)},
    tallies={"elicit-2": Tally(3, 1)},
    pool=(Pooled("gather-1/0/", Entry("now-1", b"s", b"r", "chance", b'"x"')),),
    versions={"fee": 1, "tax": "b"},
    generation=2,
    restart=b'["shop:order",["Dune"],{}]',
    rounds=4,
    state_rounds=1,
    cancelled=3,
)
SPOILERS: list[Any] = [..., None, 5, -1, 0.5, True, "x", [], {}, [1, 2], {"a": 1}]


def test_loads_of_a_journal_with_any_one_part_spoilt() -> None:
    """At each place each other kind of value, or nothing."""
    whole = json.loads(FULL.dumps())
    for path in places(whole):
        for spoiler in SPOILERS:
            if path or spoiler is not ...:
                accept(json.dumps(changed(whole, path, spoiler)))


@pytest.mark.parametrize("format_", [0, 2, "1", None, []])
def test_loads_refuses_an_unknown_format(format_: Any) -> None:
    """Taking it for "no progress" would repeat steps in a rolling deployment."""
    text = json.dumps({**json.loads(FULL.dumps()), "format": format_})
    with pytest.raises(JournalError, match="unknown format"):
        Journal.loads(text)


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "1"])
def test_loads_refuses_what_is_no_object(text: str) -> None:
    with pytest.raises(JournalError, match="unknown format"):
        Journal.loads(text)


def test_loads_refuses_an_unknown_tag() -> None:
    text = FULL.dumps().replace(b'"accepted"', b'"guessed"')
    with pytest.raises(JournalError, match="unknown tag 'guessed'"):
        Journal.loads(text)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("generation",), -1, "-1 where a count belongs"),
        (("rounds", 0), 1.5, "1.5 where a count belongs"),
        (("cancelled",), "x", "'x' where a count belongs"),
        (("entries", 0, 0), 5, "5 where a text belongs"),
        (("entries", 0, 1), "zz", "non-hexadecimal"),
        (("versions", "fee"), None, "None where a version belongs"),
        (("rounds",), [1], "not enough values"),
        (("generation",), ..., "generation"),
    ],
)
def test_loads_says_what_is_wrong(
    path: tuple[Any, ...], value: Any, problem: str
) -> None:
    text = json.dumps(changed(json.loads(FULL.dumps()), path, value))
    with pytest.raises(JournalError, match=problem):
        Journal.loads(text)


def test_loads_of_a_bomb() -> None:
    accept(b"[" * 100_000)
    accept(b'{"format":1,"entries":' + b"[" * 100_000)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [1, 32, 56, 60, 62, 64])
def test_journal_writes_whatever_a_step_may_return(depth: int) -> None:
    """A result that is recorded can be carried, or the step says that it cannot."""

    def handler() -> Flow[str]:
        try:
            yield from Step(nested, depth)
        except UsageError:
            return "refused"
        return "recorded"

    one = run(handler, rules=SCRIPT)
    assert isinstance(advance(one, one.start()), Returned)
    assert Journal.loads(one.journal.dumps()) == one.journal


def test_journal_writes_the_deepest_gathers_there_may_be() -> None:
    def handler(depth: int) -> Flow[Any]:
        if not depth:
            return (yield from Step(nested, 8))
        return (yield from Gather(handler(depth - 1)))

    one = run(handler, 16, rules=SCRIPT)
    advance(one, one.start())
    assert Journal.loads(one.journal.dumps()) == one.journal


# ---- parts ----


def test_entry_value_is_decoded_afresh() -> None:
    """No two deliveries share a list."""
    entry = Entry("step-1", b"", b"", "done", b"[1]")
    first = entry.value
    first.append(2)
    assert entry.value == [1]


def test_tags_say_what_salvage_does() -> None:
    """Answers and chance are kept; performed steps stop it; the rest is forgotten."""
    assert POOLED == {"accepted", "declined", "dismissed", "chance"}
    assert PERFORMED == {"done", "failed", "started"}
    assert not POOLED & PERFORMED


# ---- keys ----


@pytest.mark.parametrize(
    "key", ["name", "e-mail", "a b", "elicit", "elicit-x", "Größe"]
)
def test_check_key_takes_names(key: str) -> None:
    check_key(key, NAMES)


@pytest.mark.parametrize("key", ["", 5, None, "a\nb", "x" * 201])
def test_check_key_refuses_what_is_no_short_text(key: Any) -> None:
    with pytest.raises(UsageError, match="short, printable text"):
        check_key(key, NAMES)


@pytest.mark.parametrize("key", ["a#2", "a~2", "a/b", "r1/a"])
def test_check_key_refuses_reserved_characters(key: str) -> None:
    with pytest.raises(UsageError, match="is reserved in keys"):
        check_key(key, NAMES)


@pytest.mark.parametrize("key", [f"{name}-1" for name in sorted(NAMES)])
def test_check_key_refuses_what_looks_generated(key: str) -> None:
    with pytest.raises(UsageError, match="looks like a key of the engine's own"):
        check_key(key, NAMES)


places_ = st.from_regex(r"(gather-[1-9]/[0-9]/){0,2}[a-z]+-[1-9]", fullmatch=True)


@given(
    st.tuples(st.integers(0, 20), places_, st.integers(1, 20)),
    st.tuples(st.integers(0, 20), places_, st.integers(1, 20)),
)
def test_wire_key_is_unique(a: tuple[int, str, int], b: tuple[int, str, int]) -> None:
    """Over the flow's whole life: generation, place and asking tell keys apart."""
    assert (wire_key(*a) == wire_key(*b)) == (a == b)


def test_wire_key_of_a_first_asking_is_its_place() -> None:
    """Early answers and people read these, so the plain case looks plain."""
    assert wire_key(0, "elicit-1", 1) == "elicit-1"
    assert wire_key(0, "gather-1/0/name", 2) == "gather-1/0/name~2"
    assert wire_key(3, "name", 2) == "r3/name~2"


# ---- fingerprints ----

keys = st.none() | texts


def render(prints: Fingerprints, text: bytes) -> bytes:
    """As `Intake.identify` makes it, which does so once for each effect."""
    hasher = prints.hasher.copy()
    hasher.update(text)
    return hasher.digest()


shapes = st.tuples(texts, keys, st.binary(max_size=20))


@given(shapes, shapes)
def test_shape_differs_by_kind_key_and_schema(
    a: tuple[str, str | None, bytes], b: tuple[str, str | None, bytes]
) -> None:
    prints = Fingerprints(FLOW_ID)
    assert (prints.shape(*a) == prints.shape(*b)) == (a == b)
    assert len(prints.shape(*a)) == 4


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_render_differs_by_text(a: bytes, b: bytes) -> None:
    prints = Fingerprints(FLOW_ID)
    assert (render(prints, a) == render(prints, b)) == (a == b)
    assert len(render(prints, a)) == 8


@given(st.binary(min_size=16, max_size=64), st.binary(min_size=16, max_size=64), shapes)
def test_fingerprints_differ_by_flow(
    a: bytes, b: bytes, shape: tuple[str, str | None, bytes]
) -> None:
    """Whoever sees two journals cannot tell that the same was asked in both."""
    one, other = Fingerprints(a), Fingerprints(b)
    same = a == b
    assert (one.shape(*shape) == other.shape(*shape)) == same
    assert (render(one, shape[2]) == render(other, shape[2])) == same
    assert (
        one.idempotency_key(0, "", "k", [], 1)
        == other.idempotency_key(0, "", "k", [], 1)
    ) == same


def test_fingerprints_are_the_same_in_every_process() -> None:
    """Pinned: a change here would strand every flow that is under way."""
    prints = Fingerprints(FLOW_ID)
    assert prints.shape("elicit", None, b"{}").hex() == "f0eaf6a8"
    assert render(prints, b"Who?").hex() == "743c4ffd7ff92789"
    assert (
        prints.idempotency_key(0, "", "charge", [], 1)
        == "b08d407304e3743250fb4ccbed1b46b0"
    )


abouts = st.lists(texts | st.integers(), max_size=2)
points = st.tuples(st.integers(0, 9), texts, texts, abouts, st.integers(1, 9))
Point = tuple[int, str, str, list[Any], int]


@given(points, points)
def test_idempotency_key_differs_by_point(a: Point, b: Point) -> None:
    prints = Fingerprints(FLOW_ID)
    assert (prints.idempotency_key(*a) == prints.idempotency_key(*b)) == (a == b)


def test_ordinal_is_no_part_of_a_fingerprint() -> None:
    """An answer found under another ordinal is still the answer to that text."""

    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        yield from Confirm("Sure?")

    one = run(handler, rules=SCRIPT)
    one.start()
    one.answered({"confirm-1": Accepted(None)})
    one.answered({"confirm-2": Accepted(None)})
    first, second = one.journal.entries
    assert (first.key, second.key) == ("confirm-1", "confirm-2")
    assert (first.shape, first.render) == (second.shape, second.render)


@pytest.mark.parametrize("flow_id", [b"", b"x" * 15, b"x" * 65, "x" * 16, None, 16])
def test_fingerprints_refuse_a_flow_id_that_is_no_id(flow_id: Any) -> None:
    with pytest.raises(UsageError, match=r"flow_id must be 16 to 64 random bytes"):
        Fingerprints(flow_id)
