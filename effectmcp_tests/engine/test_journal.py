from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    Confirm,
    Elicit,
    Flow,
    Gather,
    Now,
    Restart,
    Step,
    UsageError,
)
from effectmcp.canonical import MAX_DEPTH, dumps
from effectmcp.engine import (
    SCRIPT,
    Asked,
    Asking,
    Entry,
    Journal,
    JournalError,
    Place,
    Pooled,
    Returned,
    Run,
)
from effectmcp.engine.effect_table import NAMES
from effectmcp.engine.journal import (
    TAGS,
    Fate,
    Tag,
    check_key,
    fate_of,
    wire_key,
)
from effectmcp_tests.helpers import FLOW_ID, advance, answers_to, run, yes

from .prints import prints_of

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

times = st.none() | st.floats(0, 2**40)
places_ = st.tuples(texts, st.booleans()).flatmap(
    lambda at: st.tuples(
        st.just(at[0]),
        st.builds(
            Place,
            counts,
            counts,
            st.builds(Asking, st.just(at[0]), prints, prints, counts)
            if at[1]
            else st.none(),
            times,
            counts,
        ),
    )
)

journals = st.builds(
    Journal,
    entries=st.lists(entries, max_size=4).map(tuple),
    places=st.lists(places_, max_size=3, unique_by=lambda one: one[0]).map(dict),
    pool=st.lists(st.builds(Pooled, texts, entries), max_size=3).map(tuple),
    versions=st.dictionaries(texts, st.integers() | texts, max_size=3),
    generation=counts,
    restart=st.none() | st.lists(values, min_size=3, max_size=3).map(dumps),
    rounds=counts,
    state_rounds=counts,
    waves=st.none() | counts,
    cancelled=st.none() | counts,
    detached=st.none() | st.booleans(),
)


@settings(max_examples=50)
@given(journals)
def test_journal_comes_back_from_its_text(journal: Journal) -> None:
    assert Journal.loads(journal.dumps()) == journal


@settings(max_examples=50)
@given(journals)
def test_journal_that_is_loaded_and_dumped_has_the_same_bytes(journal: Journal) -> None:
    """The JSON is canonical, whether it is loaded from `str` or `bytes`."""
    text = journal.dumps()
    assert Journal.loads(text).dumps() == text
    assert Journal.loads(text.decode()).dumps() == text


def test_journal_of_nothing() -> None:
    assert Journal.loads(Journal().dumps()) == Journal()


# ---- any string at all ----


def accept(text: bytes | str) -> None:
    """A journal or a `JournalError`, and nothing else."""
    try:
        journal = Journal.loads(text)
    except JournalError:
        return
    assert isinstance(journal, Journal)


@given(st.binary() | st.text())
def test_loads_of_any_string(text: bytes | str) -> None:
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
        Entry("step-1", b"shap", b"rendered", "done", b"5", (), True, 7),
    ),
    places={
        "elicit-2": Place(3, 1, Asking("elicit-2", b"shap", b"rendered", 1)),
        "within-1": Place(due=5.5, begun=2),
    },
    pool=(Pooled("gather-1/0/", Entry("now-1", b"s", b"r", "chance", b'"x"')),),
    versions={"fee": 1, "tax": "b"},
    generation=2,
    restart=b'["shop:order",["Dune"],{}]',
    rounds=4,
    state_rounds=1,
    waves=5,
    cancelled=3,
    detached=True,
)
SPOILERS: list[Any] = [..., None, 5, -1, 0.5, True, "x", [], {}, [1, 2], {"a": 1}]


def test_loads_of_a_journal_with_any_one_part_spoilt() -> None:
    """Each value is replaced by each other kind of value, or removed."""
    whole = json.loads(FULL.dumps())
    for path in places(whole):
        for spoiler in SPOILERS:
            if path or spoiler is not ...:
                accept(json.dumps(changed(whole, path, spoiler)))


@pytest.mark.parametrize("format_", [0, 3, "1", None, []])
def test_loads_refuses_an_unknown_format(format_: Any) -> None:
    """Taking it for "no progress" would repeat steps in a rolling deployment."""
    text = json.dumps({**json.loads(FULL.dumps()), "format": format_})
    with pytest.raises(JournalError, match="unknown format"):
        Journal.loads(text)


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "1"])
def test_loads_refuses_json_that_is_not_an_object(text: str) -> None:
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
        (("entries", 0, 0), 5, "5 where a string belongs"),
        (("entries", 0, 1), "zz", "non-hexadecimal"),
        (("versions", "fee"), None, "None where a version belongs"),
        (("rounds",), [1], "not enough values"),
        (("detached",), 1, "1 where a yes or no belongs"),
        (("entries", 2, 5), 1, "1 where a yes or no belongs"),
        (("entries", 2, 6), 0.5, "0.5 where a count belongs"),
        (("places", "within-1", 3), "x", "'x' where a time belongs"),
        (("places", "elicit-2", 2, 2), "x", "'x' where a count belongs"),
        (("generation",), ..., "generation"),
    ],
)
def test_loads_names_the_problem(
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
def test_journal_writes_every_result_that_a_step_may_return(depth: int) -> None:
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
    """The deepest allowed result, in the deepest allowed branch."""

    def handler(depth: int) -> Flow[Any]:
        if not depth:
            return (yield from Step(nested, MAX_DEPTH))
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


FATES: dict[Fate, set[Tag]] = {
    "pool": {"accepted", "declined", "dismissed", "unread", "chance"},
    "stop": {"done", "failed", "won"},
}


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_tags_decide_what_salvage_does(tag: Tag) -> None:
    """Answers and random values are kept; performed steps stop it; the rest goes."""
    fate = next((fate for fate, tags in FATES.items() if tag in tags), "forget")
    assert fate_of(Entry("k", b"", b"", tag)) == fate


def test_replayable_step_is_performed_again_and_a_race_without_steps_kept() -> None:
    for tag, fate in (("done", "forget"), ("failed", "forget"), ("won", "pool")):
        entry = Entry("k", b"", b"", tag, replayable=True)  # type: ignore[arg-type]  # a Tag
        assert fate_of(entry) == fate


def test_rows_of_a_run_make_its_journal() -> None:
    """A store that appends writes each entry once."""

    def pair(name: str) -> Flow[Any]:
        who = yield from Elicit(f"Who is {name}?", str)
        return (yield from Gather(Step(str, who), Now()))

    def handler() -> Flow[Any]:
        yield from Step(str, 1)
        pairs = yield from Gather(pair("a"), pair("b"), Gather())
        return pairs, (yield from Step(str, 2))

    one = run(handler, rules=SCRIPT)
    stop = advance(one, one.start())
    rows = one.take_rows()
    assert isinstance(stop, Asked)
    advance(one, one.answered(answers_to(stop, yes)))
    more = one.take_rows()
    assert one.take_rows() == []
    assert len(rows + more) == 1 + 1 + 1 + 2 + 2 + 4 + 1
    head = attrs.evolve(one.journal, entries=())
    assert head.with_rows(rows + more) == one.journal


def test_rows_of_an_earlier_generation_are_left_out() -> None:
    one = run(again, 0, rules=SCRIPT, resolve=lambda name: again)
    advance(one, one.start())
    rows = one.take_rows()
    assert {row.generation for row in rows} == {0, 1}
    assert attrs.evolve(one.journal, entries=()).with_rows(rows) == one.journal


def again(n: int) -> Flow[Any]:
    yield from Now()
    if n == 0:
        return (yield from Restart(again, 1))
    return n


def test_journal_of_format_1_is_read() -> None:
    """Started steps were entries; replayable steps and winners had other tags."""
    entries = [
        [
            "gather-1",
            "aa",
            "bb",
            "gather",
            None,
            [[["step-1", "", "", "started", None]]],
        ],
        ["step-1", "01", "02", "redone", [1]],
        ["step-2", "01", "02", "refailed", {"builtin": "KeyError", "args": []}],
        ["step-3", "01", "02", "done", 5],
        ["within-1", "01", "02", "done", [5]],
        ["within-2", "01", "02", "redone", None],
        ["first-1", "01", "02", "done", [1, None]],
    ]
    journal = Journal.loads(
        json.dumps(
            {
                "format": 1,
                "entries": entries,
                "asked": {"r2/elicit-1~3": ["elicit-1", "aa", "bb", 1]},
                "tallies": {"elicit-1": [3, 1], "confirm-1": [1, 0]},
                "pool": [["gather-1/0/", ["elicit-4", "01", "02", "accepted", {}]]],
                "versions": {"fee": 1},
                "generation": 2,
                "restart": None,
                "rounds": [4, 1],
                "cancelled": 3,
            }
        )
    )
    assert [(one.tag, one.replayable, one.payload) for one in journal.entries] == [
        ("gather", False, b"null"),
        ("done", True, b"[1]"),
        ("failed", True, b'{"args":[],"builtin":"KeyError"}'),
        ("done", False, b"5"),
        ("won", False, b'[0,"done",5]'),
        ("won", True, b"null"),
        ("won", False, b'[1,"done",null]'),
    ]
    assert journal.entries[0].branches == ((),)
    assert journal.places == {
        "elicit-1": Place(3, 1, Asking("elicit-1", b"\xaa", b"\xbb", 1)),
        "confirm-1": Place(1),
        "gather-1/0/step-1": Place(begun=1),
    }
    assert list(journal.asked) == ["r2/elicit-1~3"]
    assert (journal.waves, journal.detached, journal.cancelled) == (None, None, 3)


# ---- keys ----


@pytest.mark.parametrize(
    "key", ["name", "e-mail", "a b", "elicit", "elicit-x", "Größe"]
)
def test_check_key_takes_names(key: str) -> None:
    check_key(key, NAMES)


def test_check_key_takes_every_character_that_is_not_reserved() -> None:
    check_key(
        "".join(one for one in map(chr, range(32, 127)) if one not in "#~/"), NAMES
    )


@pytest.mark.parametrize("key", ["", 5, None, "a\nb", "x" * 201])
def test_check_key_refuses_values_that_are_not_short_strings(key: Any) -> None:
    with pytest.raises(UsageError, match="short, printable text"):
        check_key(key, NAMES)


@pytest.mark.parametrize("key", ["a#2", "a~2", "a/b", "r1/a"])
def test_check_key_refuses_reserved_characters(key: str) -> None:
    with pytest.raises(UsageError, match="is reserved in keys"):
        check_key(key, NAMES)


@pytest.mark.parametrize("key", [f"{name}-1" for name in sorted(NAMES)])
def test_check_key_refuses_keys_that_look_generated(key: str) -> None:
    with pytest.raises(UsageError, match="looks like a key of the engine's own"):
        check_key(key, NAMES)


wire_places = st.from_regex(r"(gather-[1-9]/[0-9]/){0,2}[a-z]+-[1-9]", fullmatch=True)


@given(
    st.tuples(st.integers(0, 20), wire_places, st.integers(1, 20)),
    st.tuples(st.integers(0, 20), wire_places, st.integers(1, 20)),
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


shapes = st.tuples(texts, keys, st.binary(max_size=20))


@given(shapes, shapes)
def test_shape_differs_by_kind_key_and_schema(
    a: tuple[str, str | None, bytes], b: tuple[str, str | None, bytes]
) -> None:
    prints = prints_of(FLOW_ID)
    assert (prints.shape(*a) == prints.shape(*b)) == (a == b)
    assert len(prints.shape(*a)) == 4


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_render_differs_by_text(a: bytes, b: bytes) -> None:
    prints = prints_of(FLOW_ID)
    assert (prints.render(a) == prints.render(b)) == (a == b)
    assert len(prints.render(a)) == 8


@given(st.binary(min_size=16, max_size=64), st.binary(min_size=16, max_size=64), shapes)
def test_fingerprints_differ_by_flow(
    a: bytes, b: bytes, shape: tuple[str, str | None, bytes]
) -> None:
    """A reader of two journals cannot see that both have the same question."""
    one, other = prints_of(a), prints_of(b)
    same = a == b
    assert (one.shape(*shape) == other.shape(*shape)) == same
    assert (one.render(shape[2]) == other.render(shape[2])) == same
    assert (
        one.idempotency_key(0, "", "k", [], 1)
        == other.idempotency_key(0, "", "k", [], 1)
    ) == same


def test_fingerprints_are_the_same_in_every_process() -> None:
    """Pinned: a change here would strand every flow that is under way."""
    prints = prints_of(FLOW_ID)
    assert prints.shape("elicit", None, b"{}").hex() == "f0eaf6a8"
    assert prints.render(b"Who?").hex() == "743c4ffd7ff92789"
    assert (
        prints.idempotency_key(0, "", "charge", [], 1)
        == "b08d407304e3743250fb4ccbed1b46b0"
    )


abouts = st.lists(texts | st.integers(), max_size=2)
points = st.tuples(st.integers(0, 9), texts, texts, abouts, st.integers(1, 9))
Point = tuple[int, str, str, list[Any], int]


@given(points, points)
def test_idempotency_key_differs_by_point(a: Point, b: Point) -> None:
    prints = prints_of(FLOW_ID)
    assert (prints.idempotency_key(*a) == prints.idempotency_key(*b)) == (a == b)


def test_fingerprint_does_not_depend_on_the_ordinal() -> None:
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
def test_run_refuses_an_invalid_flow_id(flow_id: Any) -> None:
    with pytest.raises(UsageError, match=r"flow_id must be 16 to 64 random bytes"):
        Run(lambda: None, flow_id=flow_id)
