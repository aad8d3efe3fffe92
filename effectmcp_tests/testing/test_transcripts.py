from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import Accepted, ClientFailed, Declined, Dismissed
from effectmcp.engine import Entry, Journal, Unread
from effectmcp.forms import Unfit
from effectmcp.testing import Transcript, conversation
from effectmcp.testing.chance import FLOW_ID
from effectmcp.testing.transcripts import (
    AskedQuestion,
    Ending,
    Performed,
    Round,
    TranscriptError,
    read_transcripts,
)

from .test_conversations import HEALTHY

ENTRY: Final = Entry("elicit-1", b"abcd", b"abcdefgh", "accepted", b'{"value":"Ann"}')

ALL: Final = Transcript(
    method="tools/call",
    target="order",
    arguments={"title": "Dune", "count": 3},
    flow_id=FLOW_ID,
    lacks=frozenset({"Sample", "ListRoots"}),
    early=(AskedQuestion("who", "Elicit(who)", None, Accepted({"value": "Ann"})),),
    rounds=(
        Round(
            performed=(
                Performed("0:now-1", "Now()", "a.py:1", "chance", "2026-01-01"),
                Performed("0:step-1", "pay(3)", "a.py:2", "failed", {"builtin": "A"}),
            ),
            asked=(
                AskedQuestion("confirm-1", "Confirm('A?')", "a.py:3", Declined()),
                AskedQuestion("confirm-2", "Confirm('B?')", "a.py:4", Dismissed()),
                AskedQuestion("confirm-3", "Confirm('C?')", "a.py:5", None),
            ),
            journal=Journal(entries=(ENTRY,), rounds=1),
        ),
        Round(performed=(), asked=(), journal=None),
    ),
    ending=Ending("returned", {"content": []}),
)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"type": "FetchError", "message": "no page"}, "FetchError: no page"),
        ({"builtin": "OSError", "args": [2, "no file"]}, "OSError: 2, no file"),
        ({"class": "shop:CardError", "args": ["expired"]}, "CardError: expired"),
        (["something"], '["something"]'),
    ],
)
def test_a_failure_in_words(payload: Any, words: str) -> None:
    one = Performed("0:step-1", "pay(3)", None, "failed", payload)
    assert str(one) == f"pay(3) raised {words}"


def test_an_outcome_in_words() -> None:
    one = Performed("0:step-1", "pay(3)", None, "done", ["a" * 100])
    assert str(one) == f'pay(3) gave ["{"a" * 75}...'


def with_answer(answer: Any) -> Transcript:
    one = attrs.evolve(ALL.rounds[0].asked[0], answer=answer)
    each = attrs.evolve(ALL.rounds[0], asked=(one,))
    return attrs.evolve(ALL, rounds=(each,))


# ---- for people ---------------------------------------------------------------------


def test_a_transcript_reads_as_a_conversation() -> None:
    assert str(ALL) == "\n".join(ALL.lines)
    assert ALL.lines == [
        'order(title="Dune", count=3)',
        "by a client without ListRoots, Sample",
        'early: Elicit(who) → {"value": "Ann"}',
        "round 1",
        '    Now() gave "2026-01-01"',
        '    pay(3) raised {"builtin": "A"}',
        "    Confirm('A?') → declined",
        "    Confirm('B?') → dismissed",
        "    Confirm('C?') → (no answer)",
        "round 2",
        'returned {"content": []}',
    ]


def test_long_values_are_cut_and_strange_ones_shown() -> None:
    one = Performed("0:step-1", "pay()", None, "refailed", "a" * 100)
    assert str(one) == f'pay() raised "{"a" * 76}...'
    assert str(Performed("0:step-1", "pay()", None, "redone", {1})) == (
        'pay() gave "{1}"'
    )


def test_arguments_that_are_not_an_object_are_shown_too() -> None:
    assert attrs.evolve(ALL, arguments=[1]).lines[0] == "order([1])"


def test_other_answers_are_shown_by_their_text() -> None:
    failed = AskedQuestion("a", "A", None, ClientFailed(-32603, "Broken"))
    assert str(failed) == "A → The client failed to answer: Broken (-32603)"
    assert (
        str(AskedQuestion("a", "A", None, Unfit(["a: must fit"]))) == "A → a: must fit"
    )


def test_the_error_is_not_part_of_equality() -> None:
    assert Ending("raised", "A", OSError()) == Ending("raised", "A")
    assert "OSError" not in repr(Ending("raised", "A", OSError()))


def test_journals_are_the_sent_ones() -> None:
    assert ALL.journals == (ALL.rounds[0].journal,)


# ---- there and back -----------------------------------------------------------------


@given(st.sampled_from(HEALTHY).flatmap(lambda one: conversation(one)))
def test_written_transcripts_are_read_back(transcript: Transcript) -> None:
    read = Transcript.loads(transcript.dumps())
    assert read == transcript
    assert read.lines == transcript.lines
    assert read.dumps() == transcript.dumps()


def test_everything_in_it_comes_back() -> None:
    assert Transcript.loads(ALL.dumps()) == ALL


@pytest.mark.parametrize(
    "answer",
    [Accepted({}), Accepted(None), Declined(), Dismissed(), ClientFailed(-1, "No")],
)
def test_answers_come_back(answer: Any) -> None:
    transcript = with_answer(answer)
    assert Transcript.loads(transcript.dumps()) == transcript


def test_unfitting_answers_come_back() -> None:
    read = Transcript.loads(with_answer(Unfit(["a", "b"])).dumps())
    answer = read.rounds[0].asked[0].answer
    assert isinstance(answer, Unfit)
    assert answer.problems == ["a", "b"]


def test_what_a_client_attached_to_its_error_comes_back() -> None:
    transcript = with_answer(ClientFailed(-32603, "Broken", {"retry": False}))
    assert Transcript.loads(transcript.dumps()) == transcript


def test_what_was_never_read_cannot_be_written() -> None:
    transcript = with_answer(Unread(lambda question: Declined()))
    with pytest.raises(TypeError, match="not read"):
        transcript.dumps()


# ---- invalid transcripts ------------------------------------------------------------


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(ALL.dumps()), **changes})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("3", "not subscriptable"),
        ("[]", "list indices"),
        ("{}", "'format'"),
        (changed(format=2), "format 2"),
        (changed(flow="none"), "non-hexadecimal"),
        (changed(flow=None), "fromhex"),
        (changed(lacks=None), "not iterable"),
        (changed(lacks=[[]]), "(unhashable|a string belongs)"),
        (changed(early=[["a", "A", None]]), "not enough values"),
        (changed(early=[["a", "A", None, ["agreed"]]]), r"the answer \['agreed'\]"),
        (changed(early=[["a", "A", None, ["refused", "-1", "No"]]]), "the answer"),
        (changed(rounds=[{}]), "'performed'"),
        (changed(rounds=[{"performed": [[1]], "asked": []}]), "missing 4"),
        (changed(ending=[]), "(missing 2|not enough values)"),
        (
            changed(rounds=[{"performed": [], "asked": [], "journal": {}}]),
            "not a journal",
        ),
        ("[" * 100_000, "recursion"),
    ],
)
def test_the_error_of_an_invalid_transcript_has_the_reason(text: str, why: str) -> None:
    with pytest.raises(TranscriptError, match=f"^not a transcript: .*{why}"):
        Transcript.loads(text)


_JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["accepted", "refused", "unfit", "00" * 16, "Infinity"]),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(
            st.sampled_from(sorted(json.loads(ALL.dumps()))) | st.text(max_size=3),
            inner,
            max_size=8,
        )
    ),
    max_leaves=20,
)


def loaded(text: str) -> Transcript | None:
    try:
        return Transcript.loads(text)
    except TranscriptError:
        return None


@given(_JSON)
def test_any_json_loads_or_raises_a_transcript_error(value: Any) -> None:
    assert loaded(json.dumps(value)) is None


def places(value: Any) -> Iterable[tuple[Any, Any]]:
    """The replaceable places in some JSON: containers, with keys or indexes."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield value, key
        yield from places(inner)


@given(st.data())
def test_a_damaged_transcript_loads_or_raises_a_transcript_error(
    data: st.DataObject,
) -> None:
    damaged = json.loads(ALL.dumps())
    holder, key = data.draw(st.sampled_from(list(places(damaged))))
    if data.draw(st.booleans()):
        holder[key] = data.draw(_JSON)
    else:
        del holder[key]
    loaded(json.dumps(damaged))


@given(
    st.text(max_size=20) | st.binary(max_size=20).map(lambda one: one.decode("latin"))
)
def test_any_string_loads_or_raises_a_transcript_error(text: str) -> None:
    assert loaded(text) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"lacks": ["Sample", 3]},
        {"ending": ["returned", None, "an error"]},
        {"target": 3},
    ],
    ids=["lacks", "ending", "target"],
)
def test_what_could_not_be_shown_is_not_a_transcript(changes: Any) -> None:
    with pytest.raises(TranscriptError):
        Transcript.loads(changed(**changes))


# ---- files that are written ---------------------------------------------------------


def test_a_transcript_is_saved(tmp_path: Path) -> None:
    file = ALL.save(tmp_path / "new" / "folder")
    assert list(read_transcripts(tmp_path)) == [(file, ALL)]
    assert file.name.startswith("order-")
    assert ALL.save(file.parent) == file, "by what is in it"
    assert attrs.evolve(ALL, lacks=frozenset()).save(file.parent) != file


def test_a_transcript_is_saved_under_a_name(tmp_path: Path) -> None:
    named = attrs.evolve(ALL, target="shop://books/{title}")
    assert named.save(tmp_path, mark="one").name == "shop-books-title-one.json"
    assert (
        attrs.evolve(ALL, target="://").save(tmp_path, mark="1").name == "call-1.json"
    )


def test_what_no_file_could_hold_is_saved(tmp_path: Path) -> None:
    strange = attrs.evolve(ALL, arguments={"title": "\udc80"})
    assert [one for _, one in read_transcripts(strange.save(tmp_path))] == [strange]


# ---- files --------------------------------------------------------------------------


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "one.txt"
    file.write_text(ALL.dumps(), encoding="utf-8")
    assert list(read_transcripts(file)) == [(file, ALL)]


def test_a_folder_is_read_with_what_is_below_it(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("c.json", "b/a.json", "b/b.json", "notes.txt"):
        (tmp_path / name).write_text(ALL.dumps(), encoding="utf-8")
    found = [file.relative_to(tmp_path) for file, _ in read_transcripts(tmp_path)]
    assert found == [Path("b/a.json"), Path("b/b.json"), Path("c.json")]


@pytest.mark.parametrize("name", ["empty", "no such"])
def test_a_place_without_transcripts(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TranscriptError, match=f"there are no transcripts in .*{name}"):
        list(read_transcripts(tmp_path / name))


@pytest.mark.parametrize("content", [b"{}", b"\xff", b"\xef\xbb\xbf{}"])
def test_an_invalid_file_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_bytes(content)
    with pytest.raises(TranscriptError, match="one.json: "):
        list(read_transcripts(file))
