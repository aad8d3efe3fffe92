"""`RestateTasks` on an engine that answers as a test defines: reads, limits and errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, evolve, field

from effectmcp.errors import TaskLimitError, TaskStoreError, UsageError
from effectmcp.exchange.task_rows import Mail
from effectmcp.tasks.operators import open_store
from effectmcp.tasks.restate import RestateTasks, host
from effectmcp.tasks.restate.kept import Kept, write_letter, write_new
from effectmcp.tasks.stores import Stored

from ..rows import new_row
from .scripted import Asked, Scripted, answer
from .wire import encode

ID = "0f" * 20
OTHER = "1f" * 20
ANSWER = Mail("answer:q", "answer", "q", {"action": "decline"})
CANCEL = Mail("cancel", "cancel")
ROW = new_row(ID, questions={"q": {}}, status="input_required")


@define(eq=False)
class Fake:
    """The tables of the engine.

    Attributes:
        states: The states of tasks, by id.
        waiting: What the requests carry that wait, by id.
        counts: How many tasks of each owner are alive.
        holders: The invocations that run, by id of the task.
        wrong: Answers instead of the right ones, by a part of the query.
    """

    server: Scripted
    states: dict[str, Kept] = field(factory=dict)
    waiting: dict[str, list[bytes]] = field(factory=dict)
    counts: dict[str, int] = field(factory=dict)
    holders: dict[str, str] = field(factory=dict)
    wrong: dict[str, bytes] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.server.answer = self._answer

    @property
    def queries(self) -> list[str]:
        """All queries."""
        asked = self.server.asked
        return [one.sql for one in asked if one.line == "POST /query"]

    @property
    def sent(self) -> list[str]:
        """The targets of all other requests."""
        return [one.line for one in self.server.asked if one.line != "POST /query"]

    def _answer(self, asked: Asked) -> bytes:
        place = asked.sql if asked.line == "POST /query" else asked.line
        for part, wrong in self.wrong.items():
            if part in place:
                return wrong
        if asked.line != "POST /query":
            return answer({"status": "Accepted"}, status=202)
        return answer({"rows": self._rows(asked.sql)})

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        if "UNION" in sql:
            ids = dict.fromkeys((*self.states, *self.waiting))
            return [{"id": id_} for id_ in ids]
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
        if "status IN" in sql:
            return [{"key": at, "id": one} for at, one in self.holders.items()]
        if "md5" in sql:
            return [
                {"id": id_, "digest": str(hash(kept.dumps()))}
                for id_, kept in self.states.items()
                if str(host._place(id_)) in sql
            ]
        return []


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
        assert asked.head["idempotency-key"] == ID
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
            ({"=ann": 3}, "ann", "you have too many tasks"),
            ({"": 3}, None, "you have too many tasks"),
            ({"=bob": 2, "=ann": 2, "": 1}, "eve", "there are too many tasks"),
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
        fake.counts = {"": 3}
        tasks.create(evolve(ROW, owner=""))

    def test_new_tasks_are_counted_between_two_counts(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.counts = {"": 1}
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
        fake.counts = {"": 3}
        with pytest.raises(TaskLimitError):
            tasks.create(ROW)
        fake.counts = {}
        tasks._count_after = 0.0
        tasks.create(ROW)

    def test_known_task_is_returned_beyond_the_limit(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        """A client repeats a request that it had no response to."""
        fake.counts = {"": 3}
        fake.states[ID] = Kept(row=ROW)
        assert tasks.create(evolve(ROW, tool="again")) == ROW
        assert fake.sent == []

    def test_failure_is_reported(self, fake: Fake, tasks: RestateTasks) -> None:
        fake.wrong["/create/send"] = answer(b"no such service", status=404)
        with pytest.raises(TaskStoreError, match="404: no such service"):
            tasks.create(ROW)


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
        first, second = fake.queries
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
        assert "(true)" in fake.queries[0]

    def test_several_beginnings(self, fake: Fake, tasks: RestateTasks) -> None:
        tasks.look_up(["0f", "1"])
        sql = fake.queries[0]
        assert "(service_key LIKE '0f%' OR service_key LIKE '1%')" in sql
        assert "(target_service_key LIKE '0f%' OR target_service_key LIKE '1%')" in sql

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

    def test_task_that_is_removed_meanwhile(
        self, fake: Fake, tasks: RestateTasks
    ) -> None:
        fake.waiting[ID] = [b""]
        assert tasks.look_up() == []


# ---- wrong answers ------------------------------------------------------------------

WRONG: list[tuple[str, Callable[[RestateTasks], Any], list[Any]]] = [
    ("UNION", lambda tasks: tasks.look_up(), [{}, {"id": None}, {"id": 5}, {"id": []}]),
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
        lambda tasks: tasks.create(ROW),
        [{}, {"owner": "", "number": "1"}, {"owner": None, "number": 1}],
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
