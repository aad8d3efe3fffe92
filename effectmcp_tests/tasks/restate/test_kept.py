"""The state of a task survives a round trip, and damage is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.canonical import dumps
from effectmcp.errors import TaskStoreError
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks.restate.kept import (
    Kept,
    is_news,
    read_letter,
    read_new,
    write_letter,
    write_new,
)

from ..rows import json_values, new_row, task_rows

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
mails: st.SearchStrategy[Mail] = st.builds(
    Mail,
    id=_text,
    kind=st.sampled_from(["answer", "cancel", "retry"]),
    key=_text,
    value=json_values,
)
several = st.lists(mails, max_size=3).map(tuple)

ROW = new_row(journal=b"a\n\njournal\n", questions={"q": {"method": "x"}})
MAIL = (Mail("m1", "answer", "q", {"action": "decline"}), Mail("cancel", "cancel"))
KEPT = Kept(row=ROW, mail=MAIL, ear="sign_1x")


def same(row: TaskRow, other: TaskRow) -> bool:
    return (row.dumps(), row.journal) == (other.dumps(), other.journal)


class TestRoundTrips:
    @given(task_rows, several, _text)
    @example(ROW, MAIL, "")
    def test_state(self, row: TaskRow, mail: tuple[Mail, ...], ear: str) -> None:
        kept = Kept(row=row, mail=mail, ear=ear)
        found = Kept.loads(kept.dumps())
        assert same(found.row, row)
        assert (found.mail, found.ear) == (mail, ear)

    @given(task_rows)
    @example(ROW)
    def test_new_task(self, row: TaskRow) -> None:
        assert same(read_new(write_new(row)), row)

    @given(several)
    def test_letter(self, mail: tuple[Mail, ...]) -> None:
        assert read_letter(write_letter(mail)) == list(mail)

    @given(task_rows, several)
    def test_requests_are_told_apart_by_their_first_byte(
        self, row: TaskRow, mail: tuple[Mail, ...]
    ) -> None:
        """The host reads both kinds in the queue of an object."""
        assert write_new(row).startswith(b"{")
        assert write_letter(mail).startswith(b"[")

    def test_what_earlier_versions_have_written(self) -> None:
        """A task may live for a year: change the bytes only with a new format."""
        more = b'["sign_1x",[["m1","answer","q",{"action":"decline"}],["cancel","cancel","",null]]]'
        assert KEPT.dumps() == ROW.dumps() + b"\n" + more + b"\na\n\njournal\n"
        assert write_new(ROW) == ROW.dumps() + b"\na\n\njournal\n"
        assert write_letter(MAIL[1:]) == b'[["cancel","cancel","",null]]'

    def test_defaults(self) -> None:
        found = Kept.loads(Kept(row=ROW).dumps())
        assert (found.mail, found.ear) == ((), "")


# ---- damage -------------------------------------------------------------------------

UNREADABLE = "that this version cannot read"


def kept_with(more: Any) -> bytes:
    return ROW.dumps() + b"\n" + dumps(more) + b"\n"


@pytest.mark.parametrize(
    "letter",
    [
        None,
        5,
        "text",
        {"abcd": 1},
        ["abcd"],
        [5],
        [[]],
        [["id", "cancel", ""]],
        [["id", "cancel", "", None, None]],
        [[["id"], "cancel", "", None]],
        [[5, "cancel", "", None]],
        [["id", "stop", "", None]],
        [["id", ["cancel"], "", None]],
        [["id", "cancel", None, None]],
        [["id", "answer", ["q"], None]],
    ],
)
def test_mail_of_another_form(letter: Any) -> None:
    with pytest.raises(TaskStoreError, match=f"mail {UNREADABLE}"):
        read_letter(dumps(letter))
    with pytest.raises(TaskStoreError, match=f"a task {UNREADABLE}"):
        Kept.loads(kept_with(["ear", letter]))


@pytest.mark.parametrize("more", [None, 5, "", "ab", [], ["ear"], ["", [], 1], [5, []]])
def test_state_of_another_form(more: Any) -> None:
    with pytest.raises(TaskStoreError, match=f"a task {UNREADABLE}"):
        Kept.loads(kept_with(more))


READERS: list[tuple[Callable[[bytes], Any], bytes]] = [
    (Kept.loads, KEPT.dumps()),
    (read_new, write_new(ROW)),
    (read_letter, write_letter(MAIL)),
]


@pytest.mark.parametrize(("read", "data"), READERS)
@pytest.mark.parametrize(
    "damaged",
    [b"", b"\n", b"\n\n", b"{}\n[]\n", b"{", b"[", b"\xff\n\xff\n", b"[" * 100_000],
)
def test_bytes_of_another_form(
    read: Callable[[bytes], Any], data: bytes, damaged: bytes
) -> None:
    with pytest.raises(TaskStoreError, match=UNREADABLE):
        read(damaged)
    with pytest.raises(TaskStoreError, match=UNREADABLE):
        read(data[:20])


@given(
    st.sampled_from(READERS),
    st.integers(0, 800),
    st.integers(0, 3),
    st.binary(max_size=3),
)
def test_any_damage_is_reported(
    reader: tuple[Callable[[bytes], Any], bytes], at: int, gone: int, put: bytes
) -> None:
    read, data = reader
    at %= len(data)
    try:
        read(data[:at] + put + data[at + gone :])
    except TaskStoreError:
        pass


def test_a_row_of_a_newer_format() -> None:
    newer = ROW.dumps().replace(b'"format":1', b'"format":2')
    assert newer != ROW.dumps()
    for read, data in ((Kept.loads, b'\n["",[]]\n'), (read_new, b"\n")):
        with pytest.raises(TaskStoreError, match="unknown format"):
            read(newer + data)


# ---- what is news -------------------------------------------------------------------

ANSWER = Mail("1", "answer", "q", "yes")
CANCEL = Mail("2", "cancel")
RETRY = Mail("3", "retry")
ASKING: dict[str, Any] = {"questions": {"q": {}}, "status": "input_required"}


@pytest.mark.parametrize(
    ("mail", "changes", "is_new"),
    [
        (ANSWER, ASKING, True),
        (ANSWER, {}, False),
        (ANSWER, {"questions": {"r": {}}}, False),
        (CANCEL, {}, True),
        (CANCEL, {"cancelled_at": 0.0}, False),
        (RETRY, {"report": ""}, True),
        (RETRY, {}, False),
        *(
            (one, {**ASKING, "report": "x", "status": status}, False)
            for one in (ANSWER, CANCEL, RETRY)
            for status in ("completed", "failed", "cancelled")
        ),
    ],
)
def test_news(mail: Mail, changes: dict[str, Any], is_new: bool) -> None:
    assert is_news(new_row(**changes), mail) is is_new
