"""`RestateTasks` on an engine that answers as a test defines: reads, limits and errors."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, evolve, field

from effectmcp.errors import TaskLimitError, TaskStoreError, UsageError
from effectmcp.exchange.task_rows import Mail
from effectmcp.tasks.operators import open_store
from effectmcp.tasks.restate import RestateTasks, host
from effectmcp.tasks.restate.attempts import owner_tag
from effectmcp.tasks.restate.kept import Kept, write_letter, write_new
from effectmcp.tasks.stores import Stored

from ..rows import listed, new_row
from .scripted import SILENCE, Asked, Scripted, answer
from .wire import encode

ID = "0f" * 20
OTHER = "1f" * 20
ANSWER = Mail("answer:q", "answer", "q", {"action": "decline"})
CANCEL = Mail("cancel", "cancel")
ROW = new_row(ID, questions={"q": {}}, status="input_required")


def tag(owner: str | None) -> str:
    return owner_tag(owner).decode()


ANYBODY = tag(None)


def _is_question(asked: Asked) -> bool:
    return asked.line == "POST /query" or asked.line.startswith("GET ")


@define(eq=False)
class Fake:
    """The tables of the engine.

    Attributes:
        states: The states of tasks, by id.
        waiting: What the requests carry that wait, by id.
        counts: How many tasks of each owner are alive, by the owner's tag.
        created: The idempotency keys of the requests that create tasks, and wait.
        holders: The invocations that run, by id of the task.
        wrong: Answers instead of the right ones, by a part of the query.
        unread: The states in the part of its log that it has not read yet.
    """

    server: Scripted
    states: dict[str, Kept] = field(factory=dict)
    waiting: dict[str, list[bytes]] = field(factory=dict)
    counts: dict[str, int] = field(factory=dict)
    created: list[str] = field(factory=list)
    holders: dict[str, str] = field(factory=dict)
    wrong: dict[str, bytes] = field(factory=dict)
    unread: dict[str, Kept] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.server.answer = self._answer

    @property
    def queries(self) -> list[str]:
        """All queries."""
        asked = self.server.asked
        return [one.sql for one in asked if one.line == "POST /query"]

    @property
    def sent(self) -> list[str]:
        """The targets of all requests that change something."""
        asked = self.server.asked
        return [one.line for one in asked if not _is_question(one)]

    def _answer(self, asked: Asked) -> bytes:
        place = asked.sql if asked.line == "POST /query" else asked.line
        for part, wrong in self.wrong.items():
            if part in place:
                return wrong
        if asked.line.endswith("/output"):
            self.states |= self.unread
            return answer({"message": "invocation not found"}, status=404)
        if asked.line != "POST /query":
            return answer({"status": "Accepted"}, status=202)
        return answer({"rows": self._rows(asked.sql)})

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        if "JOIN sys_journal" in sql:
            return [
                {"key": id_, "raw": raw(one)}
                for id_, requests in self.waiting.items()
                for one in requests
            ]
        if "AS key, value FROM state" in sql:
            return [
                {"key": id_, "value": kept.dumps().hex()}
                for id_, kept in self.states.items()
            ]
        owners = re.search(r"value_utf8 = '([^']*)'|LIKE '% ([^']*)'", sql)
        if owners is not None:
            return self._owned(sql, *owners.groups())
        if "sys_journal" in sql:
            for id_, requests in self.waiting.items():
                if str(host._place(id_)) in sql:
                    return [{"id": "inv_1", "raw": raw(one)} for one in requests]
        if "SELECT value FROM state" in sql:
            for id_, kept in self.states.items():
                if f"'{id_}'" in sql:
                    return [{"value": kept.dumps().hex()}]
        if "value_utf8" in sql:
            return [{"owner": at, "number": one} for at, one in self.counts.items()]
        if "idempotency_key" in sql:
            return [{"once": one} for one in self.created]
        if "status IN" in sql:
            return [{"key": at, "id": one} for at, one in self.holders.items()]
        if "md5" in sql:
            return [
                {"id": id_, "digest": str(hash(kept.dumps()))}
                for id_, kept in self.states.items()
                if str(host._place(id_)) in sql
            ]
        return []

    def _owned(self, sql: str, of_state: Any, of_request: Any) -> list[dict[str, Any]]:
        """The ids of the tasks of an owner: from the states, or from what waits."""
        (after,) = re.findall(r"service_key > '([^']*)'", sql)
        (limit,) = re.findall(r"LIMIT (\d+)", sql)
        if of_state is not None:
            found = [
                id_
                for id_, kept in self.states.items()
                if tag(kept.row.owner) == of_state
            ]
        else:
            found = [one.split()[0] for one in self.created if one.endswith(of_request)]
        ids = sorted(id_ for id_ in found if id_ > after)[: int(limit)]
        return [{"key": id_} for id_ in ids]


def raw(request: bytes) -> str:
    """Return the first entry of the journal of an invocation, as the engine's SQL does."""
    return encode([(14, encode([(1, request)]))]).hex()


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Scripted()
    yield Fake(server)
    server.close()


@pytest.fixture
def tasks(fake: Fake) -> Iterator[RestateTasks]:
    one = RestateTasks(fake.server.url, fake.server.url, name="shop", limit=5, share=3)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_LOOK", 0.001)


# ---- creation, and limits -----------------------------------------------------------


class TestCreation:
    def test_new_task(self, fake: Fake, tasks: RestateTasks) -> None:
        heard: list[str] = []
        end = tasks.watch(heard.append)
        assert tasks.create(ROW) == ROW
        assert fake.sent == [f"POST /shop.Task/{ID}/create/send"]
        [asked] = [one for one in fake.server.asked if one.line.endswith("send")]
        assert asked.body == write_new(ROW)
        assert asked.head["idempotency-key"] == f"{ID} {ANYBODY}"
        assert heard == [ID]
        end()
        end()

    def test_first_of_two_counts(self, fake: Fake, tasks: RestateTasks) -> None:
        first = evolve(ROW, tool="first")
        fake.waiting[ID] = [write_new(first), write_new(ROW)]
        assert tasks.create(ROW) == first
        fake.states[ID] = Kept(row=evolve(ROW, tool="saved"))
        assert tasks.create(ROW).tool == "saved"

    @pytest.mark.parametrize(
        ("counts", "owner", "words"),
        [
            ({tag("ann"): 3}, "ann", "you have too many tasks"),
            ({ANYBODY: 3}, None, "you have too many tasks"),
            ({tag("bob"): 2, tag("ann"): 2, "": 1}, "eve", "there are too many tasks"),
        ],
    )
    def test_too_many(
        self,
        fake: Fake,
        tasks: RestateTasks,
        counts: dict[str, int],
        owner: str | None,
        words: str,
    ) -> None:
        fake.counts = counts
        with pytest.raises(TaskLimitError, match=words):
            tasks.create(evolve(ROW, owner=owner))
        assert fake.sent == []

    def test_user_without_a_name_is_not_anonymous(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.counts = {ANYBODY: 3}
        tasks.create(evolve(ROW, owner=""))

    def test_new_tasks_are_counted_between_two_counts(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.counts = {ANYBODY: 1}
        tasks.create(ROW)
        tasks.create(ROW)
        with pytest.raises(TaskLimitError, match="you have"):
            tasks.create(ROW)
        tasks.create(evolve(ROW, owner="ann"))
        tasks.create(evolve(ROW, owner="ann"))
        with pytest.raises(TaskLimitError, match="there are"):
            tasks.create(evolve(ROW, owner="ann"))
        assert sum("value_utf8" in sql for sql in fake.queries) == 1

    def test_they_are_counted_again_later(
        self, fake: Fake, tasks: RestateTasks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(host, "_COUNT", 0.0)
        fake.counts = {ANYBODY: 3}
        with pytest.raises(TaskLimitError):
            tasks.create(ROW)
        fake.counts = {}
        tasks._counts._count_after = 0.0
        tasks.create(ROW)

    def test_tasks_without_a_state_are_counted(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """No worker runs, so their requests wait."""
        fake.counts = {ANYBODY: 1, tag("ann"): 1}
        fake.created = [f"{OTHER} {ANYBODY}", f"{OTHER} {tag('ann')}"]
        tasks.create(ROW)
        with pytest.raises(TaskLimitError, match="there are too many tasks"):
            tasks.create(evolve(ROW, owner="ann"))
        [sql] = [one for one in fake.queries if "idempotency_key" in one]
        assert "target_handler_name = 'create'" in sql

    def test_count_that_fails_leaves_the_last_count(
        self, fake: Fake, tasks: RestateTasks, caplog: pytest.LogCaptureFixture
    ) -> None:
        fake.counts = {ANYBODY: 2}
        tasks.create(ROW)
        for part in ("value_utf8", "idempotency_key"):
            tasks._counts._count_after = 0.0
            fake.counts = {}
            fake.wrong = {part: answer(b"busy", status=400)}
            tasks.create(evolve(ROW, owner="ann"))
        assert [one.getMessage() for one in caplog.records] == [
            "tasks are counted later: Restate answers 400: busy"
        ] * 2
        # The next count is not at once.
        with pytest.raises(TaskLimitError, match="there are"):
            tasks.create(evolve(ROW, owner="bob"))
        assert len(caplog.records) == 2

    def test_one_request_counts_and_the_others_use_the_last_count(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.counts = {ANYBODY: 2}
        tasks.create(ROW)
        tasks._counts._count_after = 0.0
        fake.counts = {}
        with tasks._counts._counting, pytest.raises(TaskLimitError, match="you have"):
            tasks.create(ROW)
        tasks.create(ROW)

    def test_known_task_is_returned_beyond_the_limit(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """A client repeats a request that it had no response to."""
        fake.counts = {ANYBODY: 3}
        fake.states[ID] = Kept(row=ROW)
        assert tasks.create(evolve(ROW, tool="again")) == ROW
        assert fake.sent == []

    def test_failure_is_reported(self, fake: Fake, tasks: RestateTasks) -> None:
        fake.wrong["/create/send"] = answer(b"no such service", status=404)
        with pytest.raises(TaskStoreError, match=r"shop\.Task yet: start a worker"):
            tasks.create(ROW)
        fake.wrong["/create/send"] = answer(b"full", status=507)
        with pytest.raises(TaskStoreError, match="507: full"):
            tasks.create(ROW)

    @pytest.mark.parametrize("part", ["sys_journal", "SELECT value FROM state"])
    def test_stored_task_does_not_fail(
        self,
        fake: Fake,
        tasks: RestateTasks,
        part: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A client that is refused would lose the task."""
        fake.wrong[part] = answer(b"gone", status=404)
        heard: list[str] = []
        tasks.watch(heard.append)
        assert tasks.create(ROW) == ROW
        assert heard == [ID]
        [record] = caplog.records
        assert record.getMessage() == (
            f"task {ID} is stored, and cannot be read: Restate answers 404: gone"
        )


# ---- reading ------------------------------------------------------------------------


class TestReading:
    def test_unknown(self, tasks: RestateTasks) -> None:
        assert tasks.read(ID) is None

    def test_task_that_waits_for_its_first_turn(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.waiting[ID] = [write_new(ROW), write_letter([CANCEL])]
        assert tasks.read(ID) == ROW

    def test_questions_that_mail_has_answered_are_left_out(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.states[ID] = Kept(row=ROW)
        assert tasks.read(ID) == ROW
        fake.waiting[ID] = [b"", b"123", write_letter([ANSWER])]
        answered = evolve(ROW, questions={}, status="working")
        assert tasks.read(ID) == answered
        fake.states[ID] = Kept(row=ROW, mail=(ANSWER,))
        fake.waiting = {}
        assert tasks.read(ID) == answered

    def test_request_is_looked_for_before_the_state(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """Between the two, the object may have run it: then the state covers it."""
        tasks.read(ID)
        first, second, *again = fake.queries
        assert again == [first, second]
        assert ("sys_journal" in first, "FROM state" in second) == (True, True)


# ---- ids ----------------------------------------------------------------------------

INJECTED = [
    "",
    "0f' OR '1'='1",
    "0f%",
    "0f_",
    "0F",
    "0f\n",
    "٠١",
    "0f/../..",
    "0" * 65,
    "x",
    "0f;--",
]


def test_task_in_a_log_that_is_read_after_a_crash(
    fake: Fake, tasks: RestateTasks
) -> None:
    fake.unread[ID] = Kept(row=ROW)
    assert tasks.read(ID) == ROW


def test_task_that_may_be_unknown_while_the_log_is_read(
    fake: Fake, tasks: RestateTasks
) -> None:
    fake.wrong["/output"] = answer({"message": "not the leader"}, status=503)
    with pytest.raises(TaskStoreError, match="503: .*not the leader"):
        tasks.read(ID)


@pytest.mark.parametrize("id_", INJECTED)
def test_ids_that_no_task_has_are_not_asked_for(
    fake: Fake, tasks: RestateTasks, id_: str
) -> None:
    assert tasks.read(id_) is None
    tasks.post(id_, [CANCEL])
    assert tasks.look_up([id_]) == []
    assert fake.server.asked == []
    tasks.look_up([id_, "0f"])
    assert all(id_ not in sql for sql in fake.queries if id_ not in ("", "x", "0f%"))
    assert "LIKE '0f%'" in fake.queries[0]


@pytest.mark.parametrize("name", ["", "a'b", "a b", "a\n", "ä", "x" * 65, "a/b", 'a"'])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(UsageError, match="use letters, digits, dots, - and _"):
        RestateTasks("http://localhost", "http://localhost", name=name)


def test_owner_is_not_part_of_a_query(fake: Fake, tasks: RestateTasks) -> None:
    tasks.create(evolve(ROW, owner="' OR 1=1 --"))
    assert not any("OR 1=1" in sql for sql in fake.queries)


# ---- mail ---------------------------------------------------------------------------


class TestMail:
    def test_it_is_stored_and_told_to_the_turn(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.states[ID] = Kept(row=ROW, ear="sign_1x")
        heard: list[str] = []
        tasks.watch(heard.append)
        tasks.post(ID, [ANSWER, CANCEL])
        assert fake.sent == [
            f"POST /shop.Task/{ID}/post/send",
            "POST /restate/awakeables/sign_1x/resolve",
        ]
        bodies = {one.body for one in fake.server.asked if one.line in fake.sent}
        assert bodies == {write_letter([ANSWER, CANCEL])}
        assert heard == [ID]

    def test_same_mail_has_the_same_key(self, fake: Fake, tasks: RestateTasks) -> None:
        """A client repeats it, perhaps with another answer: the first one counts."""
        changed = evolve(ANSWER, value={"action": "cancel"})
        for mail in ([ANSWER], [changed], [ANSWER, CANCEL], [CANCEL]):
            tasks.post(ID, mail)
        tasks.post(OTHER, [CANCEL])
        sent = [one for one in fake.server.asked if one.line in fake.sent]
        first, second, *others = [one.head["idempotency-key"] for one in sent]
        assert re.fullmatch(f"{ID} [0-9a-f]{{32}}", first)
        assert second == first
        assert len({first, *others}) == 4

    @pytest.mark.parametrize("kept", [None, Kept(row=ROW)])
    def test_without_a_turn_it_waits(
        self, fake: Fake, tasks: RestateTasks, kept: Kept | None
    ) -> None:
        if kept is not None:
            fake.states[ID] = kept
        tasks.post(ID, [CANCEL])
        assert fake.sent == [f"POST /shop.Task/{ID}/post/send"]

    @pytest.mark.parametrize("part", ["/resolve", "SELECT value FROM state"])
    def test_stored_mail_does_not_fail(
        self,
        fake: Fake,
        tasks: RestateTasks,
        part: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fake.states[ID] = Kept(row=ROW, ear="sign_1x")
        fake.wrong[part] = answer(b"gone", status=404)
        tasks.post(ID, [CANCEL])
        [record] = caplog.records
        assert "mail waits until the turn" in record.getMessage()
        assert "404: gone" in record.getMessage()

    def test_mail_that_is_not_stored_fails(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.wrong["/post/send"] = answer(b"full", status=507)
        with pytest.raises(TaskStoreError, match="507: full"):
            tasks.post(ID, [CANCEL])


# ---- operators ----------------------------------------------------------------------


class TestLooks:
    def test_all_tasks_and_the_newest_first(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        newer = evolve(ROW, id=OTHER, updated=2_000.0)
        fake.states = {ID: Kept(row=ROW), OTHER: Kept(row=newer)}
        fake.holders = {ID: "inv_1"}
        assert tasks.look_up() == [Stored(newer, None, ()), Stored(ROW, "inv_1", ())]
        assert tasks.find() == [newer, ROW]
        assert tasks.find(limit=1) == [newer]
        assert all("(true)" in sql for sql in fake.queries[:2])

    def test_several_beginnings(self, fake: Fake, tasks: RestateTasks) -> None:
        tasks.look_up(["0f", "1"])
        # First what waits, as for a read.
        first, second, _ = fake.queries
        wanted = "(target_service_key LIKE '0f%' OR target_service_key LIKE '1%')"
        assert wanted in first
        assert "(service_key LIKE '0f%' OR service_key LIKE '1%')" in second

    def test_mail_is_listed_once_and_only_if_it_is_news(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """A turn has received the answer, and its request waits, too."""
        fake.states[ID] = Kept(row=ROW, mail=(ANSWER,))
        old = Mail("answer:p", "answer", "p"), Mail("retry", "retry")
        fake.waiting[ID] = [write_letter([ANSWER, *old]), write_letter([CANCEL])]
        [found] = tasks.look_up()
        assert found.mail == ("answer", "cancel")
        assert (found.row.status, found.row.questions) == ("working", {})

    def test_task_that_waits_for_its_first_turn(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.waiting[ID] = [write_new(ROW), write_letter([ANSWER])]
        [found] = tasks.look_up()
        assert (found.row.id, found.mail) == (ID, ("answer",))

    @pytest.mark.parametrize("letter", [None, b"[1]"])
    def test_task_that_cannot_be_read_is_left_out(
        self,
        fake: Fake,
        tasks: RestateTasks,
        letter: bytes | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The list leaves out a task that another version has written."""
        states = {ID: Kept(row=ROW).dumps(), OTHER: b"{}\n5\n"}
        if letter is not None:
            states[OTHER] = Kept(row=evolve(ROW, id=OTHER)).dumps()
            fake.waiting[OTHER] = [letter]
        rows = [{"key": id_, "value": one.hex()} for id_, one in states.items()]
        fake.wrong["AS key, value"] = answer({"rows": rows})
        assert tasks.find() == [ROW]
        [record] = caplog.records
        assert record.getMessage().startswith(f"task {OTHER} is left out: ")

    def test_task_that_is_removed_meanwhile(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.waiting[ID] = [b""]
        assert tasks.look_up() == []


# ---- wrong answers ------------------------------------------------------------------

WRONG: list[tuple[str, Callable[[RestateTasks], Any], list[Any]]] = [
    (
        "JOIN",
        lambda tasks: tasks.look_up(),
        [
            *({}, {"key": "a"}, {"key": 5, "raw": ""}, {"key": "a", "raw": None}),
            *({"key": "a", "raw": "0"}, {"key": "a", "raw": "0a"}),
        ],
    ),
    (
        "AS key, value",
        lambda tasks: tasks.look_up(),
        [{}, {"key": "a"}, {"key": 5, "value": ""}, {"key": "a", "value": "0"}],
    ),
    (
        "status IN",
        lambda tasks: tasks.look_up(),
        [{}, {"id": "a"}, {"id": "a", "key": 1}],
    ),
    (
        "sys_journal",
        lambda tasks: tasks.read(ID),
        [
            *({}, {"raw": None}, {"raw": 5}, {"raw": "0"}, {"raw": "xy"}),
            *({"raw": "0a"}, {"raw": "7005"}, {"raw": raw(b"{")}, {"raw": raw(b"[1]")}),
        ],
    ),
    (
        "SELECT value",
        lambda tasks: tasks.read(ID),
        [{}, {"value": None}, {"value": "0"}, {"value": ""}, {"value": "7b7d0a5b5d0a"}],
    ),
    (
        "value_utf8",
        lambda tasks: tasks._count(),
        [{}, {"owner": "", "number": "1"}, {"owner": None, "number": 1}],
    ),
    (
        "idempotency_key",
        lambda tasks: tasks._count(),
        [{}, {"once": None}, {"once": 5}],
    ),
]


@pytest.mark.parametrize(
    ("part", "act", "row"),
    [(part, act, row) for part, act, rows in WRONG for row in rows],
)
def test_wrong_answers(
    fake: Fake,
    tasks: RestateTasks,
    part: str,
    act: Callable[[RestateTasks], Any],
    row: Any,
) -> None:
    if part != "sys_journal":
        fake.states[ID] = Kept(row=ROW)
    fake.wrong[part] = answer({"rows": [row]})
    with pytest.raises(TaskStoreError):
        act(tasks)


# ---- changes ------------------------------------------------------------------------


class Heard:
    """A listener that a test can wait for."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._new = threading.Condition()

    def __call__(self, id_: str) -> None:
        with self._new:
            self.ids.append(id_)
            self._new.notify_all()

    def wait_for(self, count: int) -> None:
        with self._new:
            assert self._new.wait_for(lambda: len(self.ids) >= count, 60)


class TestWatching:
    def test_changes_of_tasks_that_were_read(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.states = {ID: Kept(row=ROW), OTHER: Kept(row=evolve(ROW, id=OTHER))}
        heard = Heard()
        tasks.watch(heard)
        tasks.read(ID)
        heard.wait_for(1)  # it may have changed since it was read
        fake.states[OTHER] = Kept(row=evolve(ROW, id=OTHER, updated=2_000.0))
        fake.states[ID] = Kept(row=evolve(ROW, updated=2_000.0))
        heard.wait_for(2)
        del fake.states[ID]
        heard.wait_for(3)
        assert heard.ids == [ID] * 3

    def test_ended_tasks_change_no_more(self, fake: Fake, tasks: RestateTasks) -> None:
        fake.states[ID] = Kept(row=evolve(ROW, status="completed"))
        tasks.watch(Heard())
        tasks.read(ID)
        assert not any("md5" in sql for sql in fake.queries)

    def test_a_listener_that_fails_does_not_end_it(
        self,
        fake: Fake,
        tasks: RestateTasks,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        heard = Heard()

        def fail(id_: str) -> None:
            raise OSError("gone")

        tasks.watch(fail)
        tasks.watch(heard)
        fake.states[ID] = Kept(row=ROW)
        tasks.read(ID)
        heard.wait_for(1)
        assert "a listener failed on task" in caplog.records[0].getMessage()

    @pytest.mark.parametrize(
        "wrong",
        [answer(b"no", status=404), answer({"rows": [{}]}), answer({"rows": [5]})],
        ids=["refused", "no columns", "no rows"],
    )
    def test_a_look_that_fails_is_repeated(
        self,
        fake: Fake,
        tasks: RestateTasks,
        wrong: bytes,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(host, "_AGAIN", 0.001)
        caplog.set_level(logging.WARNING)
        fake.wrong["md5"] = wrong
        fake.states[ID] = Kept(row=ROW)
        heard = Heard()
        tasks.watch(heard)
        tasks.read(ID)
        while not caplog.records:
            threading.Event().wait(0.001)
        fake.wrong = {}
        heard.wait_for(1)
        assert "changes of tasks are reported later" in caplog.records[0].getMessage()

    def test_it_ends_with_its_listeners(self, fake: Fake, tasks: RestateTasks) -> None:
        heard = Heard()
        fake.states[ID] = Kept(row=ROW)
        end = tasks.watch(heard)
        tasks.read(ID)
        heard.wait_for(1)
        thread = tasks._watching._thread
        assert thread is not None
        end()
        thread.join(60)
        assert not thread.is_alive()
        tasks.watch(heard)
        fake.states[ID] = Kept(row=evolve(ROW, updated=2_000.0))
        heard.wait_for(2)

    def test_the_engine_is_asked_only_when_needed(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        heard, asked, is_needed = Heard(), Heard(), threading.Event()

        def needs() -> bool:
            asked("")
            return is_needed.is_set()

        fake.states[ID] = Kept(row=ROW)
        tasks.watch(heard, is_needed=needs)
        tasks.read(ID)
        asked.wait_for(3)
        assert not any("md5" in sql for sql in fake.queries)
        is_needed.set()
        heard.wait_for(1)

    def test_one_listener_that_needs_it_is_enough(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        heard = Heard()
        fake.states[ID] = Kept(row=ROW)
        tasks.watch(lambda id_: None, is_needed=lambda: False)
        tasks.watch(heard)
        tasks.read(ID)
        heard.wait_for(1)

    def test_too_many_tasks_are_forgotten(
        self, fake: Fake, tasks: RestateTasks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(host, "_WATCHED", 2)
        for id_ in ("a", "b", "a", "c"):
            tasks._watching.join(id_)
        assert list(tasks._watching._digests) == ["a", "c"]

    def test_task_that_ends_during_a_look(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        heard = Heard()
        tasks.watch(heard)
        tasks._watching._look_for([ID])
        assert heard.ids == []


class TestClosing:
    def test_engine_that_hangs(
        self, fake: Fake, tasks: RestateTasks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(host, "_STOP", 0.05)
        fake.wrong["md5"] = SILENCE
        fake.states[ID] = Kept(row=ROW)
        tasks.watch(Heard())
        tasks.read(ID)
        wait_for_look(fake)
        began = time.monotonic()
        tasks.close()
        assert time.monotonic() - began < 2

    def test_no_further_tasks_are_looked_for(
        self, hanging: Hanging, tasks: RestateTasks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(host, "_AT_ONCE", 1)
        tasks._watching.join(OTHER)
        tasks._watching.join(ID)
        tasks.watch(Heard())
        wait_for_look(hanging.fake)
        thread = hanging.close(tasks)
        hanging.go_on.set()
        thread.join(60)
        assert not thread.is_alive()
        assert sum("md5" in sql for sql in hanging.fake.queries) == 1

    def test_it_is_used_again_while_the_last_look_hangs(
        self, hanging: Hanging, tasks: RestateTasks
    ) -> None:
        tasks.watch(Heard())
        tasks.read(ID)
        wait_for_look(hanging.fake)
        thread = hanging.close(tasks)
        heard = Heard()
        tasks.watch(heard)
        hanging.go_on.set()
        heard.wait_for(1)
        row = evolve(ROW, updated=2_000.0)
        hanging.fake.states[ID] = Kept(row=row)
        heard.wait_for(2)
        assert tasks._watching._thread is thread


def wait_for_look(fake: Fake) -> None:
    while not any("md5" in sql for sql in fake.queries):
        threading.Event().wait(0.001)


@define(eq=False)
class Hanging:
    """An engine that is slow to tell what has changed.

    Attributes:
        fake: Its tables.
        go_on: Whether it answers.
    """

    fake: Fake
    go_on: threading.Event = field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        say = self.fake.server.answer

        def wait(asked: Asked) -> bytes:
            if asked.line == "POST /query" and "md5" in asked.sql:
                self.go_on.wait(60)
            return say(asked)

        self.fake.server.answer = wait

    def close(self, tasks: RestateTasks) -> threading.Thread:
        """Close the host; return its thread, which waits for the engine."""
        thread = tasks._watching._thread
        assert thread is not None
        tasks.close()
        assert thread.is_alive()
        return thread


@pytest.fixture
def hanging(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    monkeypatch.setattr(host, "_STOP", 0.05)
    fake.states[ID] = Kept(row=ROW)
    one = Hanging(fake)
    yield one
    one.go_on.set()


# ---- construction -------------------------------------------------------------------


class TestUrls:
    def test_all_parts(self) -> None:
        one = RestateTasks.from_url(
            "restate+https://in:81/a?admin=http://ad:82/b&name=shop.1"
        )
        assert (one.ingress, one.admin) == ("https://in:81/a", "http://ad:82/b")
        assert (one.name, one.service) == ("shop.1", "shop.1.Task")
        assert repr(one) == (
            "RestateTasks('https://in:81/a', 'http://ad:82/b', name='shop.1')"
        )

    def test_defaults(self) -> None:
        one = RestateTasks.from_url("restate+http://in?admin=http://ad")
        assert one.name == "effectmcp"

    @pytest.mark.parametrize(
        "url",
        [
            "restate+http://in",
            "restate+http://in?name=x",
            "restate+http://in?admin=",
            "restate+http://in?admin",
            "restate+http://in?admin=http://ad&retention=5",
            "restate+http://in?admin=http://ad&",
            "restate+http://[in?admin=http://ad",
            "http://in?admin=http://ad",
            "",
        ],
    )
    def test_urls_of_another_form(self, url: str) -> None:
        with pytest.raises(UsageError) as info:
            RestateTasks.from_url(url)
        assert str(info.value).startswith(f"{url!r} does not name an engine: give")
        assert "restate+http://INGRESS:8080?admin=http://ADMIN:9070" in str(info.value)

    @pytest.mark.parametrize(
        ("url", "wrong"),
        [
            ("restate+ftp://in?admin=http://ad", "ftp://in"),
            ("restate+http://in:port?admin=http://ad", "http://in:port"),
            ("restate+http://in?admin=ad:9070", "ad:9070"),
        ],
    )
    def test_parts_that_are_not_urls(self, url: str, wrong: str) -> None:
        with pytest.raises(UsageError, match=f"'{wrong}' is not the URL of an HTTP"):
            RestateTasks.from_url(url)

    def test_operators_open_it(self, fake: Fake) -> None:
        url = fake.server.url
        with open_store(f"restate+{url}?admin={url}") as store:
            assert store.look_up() == []


def test_extra_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'effectmcp\[restate\]'"):
        RestateTasks("http://in", "http://ad")


# ---- the tasks of a user ------------------------------------------------------------


class TestOwned:
    @staticmethod
    def ids(tasks: RestateTasks, owner: str, after: str = "", limit: int = 9) -> Any:
        return [row.id for row in tasks.owned(owner, after=after, limit=limit)]

    @staticmethod
    def keep(fake: Fake, *ids: str, owner: str | None = "ann") -> None:
        for id_ in ids:
            row = evolve(ROW, id=id_, owner=owner)
            fake.states[id_] = Kept(row=row)

    @staticmethod
    def wait(fake: Fake, *ids: str, owner: str | None = "ann") -> None:
        for id_ in ids:
            fake.waiting[id_] = [write_new(evolve(ROW, id=id_, owner=owner))]
            fake.created.append(f"{id_} {tag(owner)}")

    def test_order_is_that_of_the_ids(self, fake: Fake, tasks: RestateTasks) -> None:
        """Tasks with a state and tasks whose request waits are in one list."""
        one, two, three, four = (f"{n}f" * 20 for n in range(4))
        self.keep(fake, three, one)
        self.wait(fake, two, four)
        self.keep(fake, "ee" * 20, owner="bob")
        self.wait(fake, "ef" * 20, owner=None)
        assert self.ids(tasks, "ann") == [one, two, three, four]
        assert self.ids(tasks, "ann", limit=3) == [one, two, three]
        assert self.ids(tasks, "ann", two, 1) == [three]
        assert self.ids(tasks, "ann", four) == []
        assert self.ids(tasks, "bob") == ["ee" * 20]
        assert self.ids(tasks, "eve") == []

    def test_task_in_both_tables_is_listed_once(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """While its first attempt runs, a task has a state and an open request."""
        self.keep(fake, ID)
        self.wait(fake, ID)
        assert self.ids(tasks, "ann") == [ID]

    def test_task_that_is_gone_meanwhile_hides_no_other(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """ "Receivers MUST include a `nextCursor` in the response if more tasks are
        available" (2025-11-25, Task Listing).
        """
        ids = [f"{n}f" * 20 for n in range(4)]
        self.keep(fake, ids[0], ids[2], ids[3])
        fake.created.append(f"{ids[1]} {tag('ann')}")
        for size in (1, 2, 3):
            assert listed(tasks, "ann", size) == [ids[0], ids[2], ids[3]]

    @pytest.mark.parametrize("after", ["x", "' OR 1 --", "0f" * 40, "\0"])
    def test_cursor_of_another_kind_begins_again(
        self, fake: Fake, tasks: RestateTasks, after: str
    ) -> None:
        """A cursor comes from a client, and must not reach the query."""
        self.keep(fake, ID)
        assert self.ids(tasks, "ann", after) == [ID]
        assert not any(f"'{after}'" in sql for sql in fake.queries)

    def test_name_of_a_user_does_not_reach_the_query(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        name = "ann' OR 1 -- %"
        self.keep(fake, ID, owner=name)
        assert self.ids(tasks, name) == [ID]
        assert not any(name in sql for sql in fake.queries)

    def test_engine_that_fails_is_an_error(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        for part in ("AS key FROM state", "target_service_key AS key"):
            fake.wrong = {part: answer(b"busy", status=400)}
            with pytest.raises(TaskStoreError):
                tasks.owned("ann", after="", limit=1)
