"""Random journals: everything that the engine may record, and a little more.

What the engine guarantees is kept, as the codec builds on it: a tag of `EMPTY` has the
payload `null`; only a Gather has branches, at most `MAX_NESTING` deep; a wire key follows
from generation, place and tally; and only `Restart` leaves a handler behind.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from effectmcp.canonical import dumps
from effectmcp.engine import Asking, Entry, Journal, Place, Pooled
from effectmcp.engine.journal import TAGS, Tag
from effectmcp.state import BoundCall, Claims
from effectmcp.state.codec import EMPTY, INFLATED, KINDS, LONG, Packed

FLOW_ID: Final = bytes(range(16))
STARTED: Final = 1_800_000_000
CALL: Final = BoundCall(
    method="tools/call",
    target="order",
    arguments={"title": "Dune", "copies": 2},
    principal="ann",
)

texts = st.text(st.characters(codec="utf-8"), max_size=40)
scalars = st.none() | st.booleans() | st.integers() | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner),
    max_leaves=8,
)
# Around the size where answers are deflated differently, and beyond it.
long_values = st.builds(
    lambda size, text: (text * size)[:size] or "x" * size,
    st.integers(LONG - 10, LONG + 10) | st.sampled_from([1_000, 20_000]),
    texts,
)
payloads = (values | long_values).map(dumps)

own_keys = st.builds(
    "{}-{}".format, st.sampled_from(KINDS), st.integers(1, 300) | st.just(10**8)
)
#: Explicit keys, with keys that look like the engine's own.
explicit_keys = st.sampled_from(
    [
        "who",
        "who#2",
        "żółć",
        "elicit",
        "elicit-",
        "-1",
        "elicit-0",
        "elicit-01",
        "elicit-١",
        "elicit--1",
        "elicit-1-1",
        "elicit-1000000000",
        "ELICIT-1",
        "key-1",
        "k" * 200,
    ]
)
keys = own_keys | explicit_keys
counts = st.integers(0, 5) | st.integers(0, 2**20)
shapes = st.binary(min_size=4, max_size=4)
renders = st.binary(min_size=8, max_size=8)
paths = st.lists(
    st.builds(
        "{}-{}/{}/".format,
        st.sampled_from(["gather", "gather", "within", "first"]),
        st.integers(1, 300),
        st.integers(0, 300),
    ),
    max_size=3,
).map("".join)
places = st.builds("{}{}".format, paths, keys)
simple_tags: st.SearchStrategy[Tag] = st.sampled_from(
    [tag for tag in TAGS if tag != "gather"]
)


@st.composite
def simple_entries(draw: st.DrawFn) -> Entry:
    tag = draw(simple_tags)
    payload = b"null" if tag in EMPTY else draw(payloads)
    replayable = tag in {"done", "failed", "won"} and draw(st.booleans())
    return Entry(
        draw(keys.filter(lambda key: tag != "done" or not _is_race(key))),
        draw(shapes),
        draw(renders),
        tag,
        payload,
        replayable=replayable,
    )


def _is_race(key: str) -> bool:
    # They have a tag of their own; under another, they are of an earlier format.
    return key.startswith(("within-", "first-"))


def _gathers(inner: st.SearchStrategy[Entry]) -> st.SearchStrategy[Entry]:
    branches = st.lists(st.lists(inner, max_size=3).map(tuple), max_size=3)
    key = st.integers(1, 300).map("gather-{}".format)
    return st.builds(
        Entry,
        key,
        shapes,
        renders,
        st.just("gather"),
        st.just(b"null"),
        branches.map(tuple),
    )


entries = st.recursive(simple_entries(), _gathers, max_leaves=6)
askings = st.builds(Asking, places, shapes, renders, counts)
tallies = st.builds(Place, st.integers(1, 300), counts)
waits = st.builds(
    Place,
    due=st.none() | st.floats(0, 2**40) | st.integers(0, 2**40),
    begun=counts,
)
restarts = st.builds(
    lambda name, args: dumps([name, args, {}]), texts, st.lists(values, max_size=2)
)


@st.composite
def journals(draw: st.DrawFn) -> Journal:
    generation = draw(st.just(0) | counts)
    asked = draw(st.lists(askings, max_size=3, unique_by=lambda one: one.place))
    known = [one.place for one in asked]
    some = st.sampled_from(known) | places if known else places
    table = {
        place: draw(tallies)
        for place in draw(st.lists(some, max_size=3, unique=True))
        if place not in known or draw(st.booleans())
    }
    for one in asked:
        tally = table.pop(one.place, Place(1))
        table[one.place] = attrs.evolve(tally, out=one)
    for place in draw(st.lists(some, max_size=2, unique=True)):
        wait = draw(waits)
        if wait != Place():
            table[place] = attrs.evolve(
                table.get(place, Place()), due=wait.due, begun=wait.begun
            )
    return Journal(
        entries=tuple(draw(st.lists(entries, max_size=5))),
        places=table,
        pool=tuple(
            draw(st.lists(st.builds(Pooled, paths, simple_entries()), max_size=3))
        ),
        versions=draw(st.dictionaries(texts, st.integers(0, 99) | texts, max_size=2)),
        generation=generation,
        restart=draw(st.none() | restarts),
        rounds=draw(counts),
        state_rounds=draw(counts),
        waves=draw(st.none() | counts),
        cancelled=draw(st.none() | counts),
        detached=draw(st.none() | st.booleans()),
    )


claims = st.builds(
    Claims,
    flow_id=st.binary(min_size=16, max_size=64),
    started=st.integers(0, 2**40),
    journal=journals(),
    version=st.none() | texts,
    trace=st.none() | texts,
)
calls = st.builds(
    BoundCall,
    method=st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    target=texts,
    arguments=values,
    principal=st.none() | texts,
)


@st.composite
def packeds(draw: st.DrawFn) -> Packed:
    one = draw(claims)
    bindings = draw(calls).bind(bytes(32), "bookshop")
    issued = one.started + draw(counts)
    return Packed(one, bindings, issued, issued + draw(counts))


# ---- by hand ------------------------------------------------------------------------


def entry(key: str, tag: Tag, payload: Any = None, *branches: Any) -> Entry:
    """Return an entry with arbitrary fingerprints."""
    mark = blake2b(f"{key} {tag}".encode(), digest_size=12).digest()
    return Entry(key, mark[:4], mark[4:], tag, dumps(payload), tuple(branches))


def journal_of(*recorded: Entry, **more: Any) -> Journal:
    """A journal with one question out, unless it says otherwise."""
    places = {"elicit-9": Place(1, out=Asking("elicit-9", b"shap", b"renderre"))}
    return Journal(**{"entries": recorded, "places": places, "rounds": 1, **more})


def claims_of(*recorded: Entry, **more: Any) -> Claims:
    """Claims of a flow that began at `STARTED`."""
    return Claims(
        flow_id=FLOW_ID, started=STARTED, journal=journal_of(*recorded, **more)
    )


def bomb() -> Entry:
    """An answer that takes more room than any state may, and next to none deflated."""
    return entry("elicit-1", "accepted", {"value": "x" * INFLATED})
