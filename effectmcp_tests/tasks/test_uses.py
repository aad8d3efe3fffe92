"""The ledger of `SqliteTasks`: slots, replies, budgets, and processes that die."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from effectmcp.errors import TaskLimitError, TaskStoreError, UsageError
from effectmcp.exchange.ledger import BUSY, SPENT, Kept, Taken, Use
from effectmcp.tasks import SqliteTasks, connections, uses
from effectmcp.tasks.tables import VERSION, connected

from ..exchange.uses import OnDisk
from .rows import new_row
from .test_connections import PLACES, Replaced, error_of, paused, place, until
from .test_tables import Faulty, faulty, plain

__all__ = ["faulty"]  # a fixture

NEVER = 1e12
ONE = Taken("f", "1", 1)


def use(
    *slots: str,
    flow: str = "f",
    request: str = "r",
    owner: str | None = None,
    until: float = NEVER,
    by: str = "this execution",
) -> Use:
    return Use(
        flow=flow,
        slots=tuple((one, until) for one in slots or ("1",)),
        request=request,
        owner=owner,
        by=by,
    )


def again(*slots: str, **more: Any) -> Use:
    """Return the same use, of another execution."""
    return use(*slots, by="another execution", **more)


@contextmanager
def storing(path: Path | None = None, **options: Any) -> Iterator[SqliteTasks]:
    tasks = SqliteTasks(path, **options)
    try:
        yield tasks
    finally:
        tasks.close()


@pytest.fixture
def memory() -> Iterator[SqliteTasks]:
    with storing() as tasks:
        yield tasks


@pytest.fixture
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing sweep but a test."""
    monkeypatch.setattr(connections, "_SWEEP", 1e6)


def rows(tasks: SqliteTasks, what: str = "slot, fence, reply") -> list[Any]:
    query = f"SELECT {what} FROM uses ORDER BY rowid"
    return tasks._read(lambda db: db.execute(query).fetchall())


def used(tasks: SqliteTasks) -> dict[str, int]:
    """Return the bytes of each owner."""
    return dict(tasks._read(lambda db: db.execute("SELECT * FROM used").fetchall()))


def break_(tasks: SqliteTasks, *failing: str) -> None:
    """Have the next statements of this kind fail."""
    store = tasks._store()
    with store._lock:
        store._writer = Replaced(store._writer, *failing)  # type: ignore[assignment]  # it may fail


# ---- take, keep and leave -----------------------------------------------------------


@PLACES
def test_take_free_slots_gives_the_first_fence(tmp_path: Path, is_file: bool) -> None:
    with storing(place(tmp_path, is_file)) as tasks:
        assert tasks.take(use("1", "line")) == ONE
        assert tasks.take(use("2")) == Taken("f", "2", 1)
        assert tasks.take(use("1", flow="g")) == Taken("g", "1", 1)
        assert rows(tasks) == [
            ("1", 1, None),
            ("line", 0, None),
            *[(x, 1, None) for x in "21"],
        ]
        assert tasks.is_shared is is_file


@PLACES
def test_take_running_request_is_busy(tmp_path: Path, is_file: bool) -> None:
    with storing(place(tmp_path, is_file)) as tasks:
        tasks.take(use())
        assert tasks.take(again()) == BUSY
        assert tasks.take(again("1", "line")) == BUSY
        assert tasks.take(use(request="other")) == SPENT
        assert rows(tasks) == [("1", 1, None)]


@PLACES
def test_take_by_the_same_execution_raises_the_fence(
    tmp_path: Path, is_file: bool
) -> None:
    """An execution takes the slot of its state first, and the line later with it."""
    with storing(place(tmp_path, is_file)) as tasks:
        tasks.take(use())
        assert tasks.take(use("1", "line")) == Taken("f", "1", 2)
        assert rows(tasks) == [("1", 2, None), ("line", 0, None)]
        assert used(tasks)[""] == 2 * 1024
        assert tasks.take(again("1", "line")) == BUSY
        tasks.leave(ONE)  # an older fence
        assert tasks.take(again()) == BUSY
        with pytest.raises(TaskStoreError, match="taken again"):
            tasks.keep(ONE, b"reply")
        tasks.keep(Taken("f", "1", 2), b"reply")
        assert tasks.take(use("1", "line")) == Kept(b"reply")


@PLACES
def test_take_of_the_line_is_spent_if_another_state_has_it(
    tmp_path: Path, is_file: bool
) -> None:
    with storing(place(tmp_path, is_file)) as tasks:
        tasks.take(use("1"))
        tasks.take(use("2", request="other"))
        assert tasks.take(use("2", "line", request="other")) == Taken("f", "2", 2)
        assert tasks.take(use("1", "line")) == SPENT
        assert rows(tasks) == [("1", 1, None), ("2", 2, None), ("line", 0, None)]


@PLACES
def test_take_answered_request_returns_its_reply(tmp_path: Path, is_file: bool) -> None:
    with storing(place(tmp_path, is_file)) as tasks:
        tasks.take(use("1", "line"))
        tasks.keep(ONE, b"reply")
        for _ in range(2):
            assert tasks.take(use("1", "line")) == Kept(b"reply")
        assert tasks.take(use(request="other")) == SPENT
        assert tasks.take(use("2", "line", request="other")) == SPENT
        assert rows(tasks) == [("1", 1, b"reply"), ("line", 0, None)]


def test_take_by_another_process_is_decided_by_the_file(tmp_path: Path) -> None:
    with storing(tmp_path / "t.db") as one, storing(tmp_path / "t.db") as other:
        one.take(use())
        assert other.take(again()) == BUSY
        one.keep(ONE, b"reply")
        assert other.take(use()) == Kept(b"reply")
        assert other.take(use(request="other")) == SPENT


def test_take_some_slots_spent_takes_none(memory: SqliteTasks) -> None:
    memory.take(use("1", "line"))
    assert memory.take(use("2", "line", request="other")) == SPENT
    assert [slot for slot, *_ in rows(memory)] == ["1", "line"]


@PLACES
def test_leave_frees_the_slot_for_the_same_request(
    tmp_path: Path, is_file: bool
) -> None:
    with storing(place(tmp_path, is_file)) as tasks:
        tasks.take(use("1", "line"))
        tasks.leave(ONE)
        assert tasks.take(use(request="other")) == SPENT
        assert tasks.take(use("1", "line")) == Taken("f", "1", 2)
        with pytest.raises(TaskStoreError, match="slot 1 of f was taken again"):
            tasks.keep(ONE, b"too late")
        tasks.keep(Taken("f", "1", 2), b"reply")
        assert tasks.take(use("1", "line")) == Kept(b"reply")


def test_leave_with_an_older_fence_changes_nothing(memory: SqliteTasks) -> None:
    memory.take(use())
    memory.leave(ONE)
    memory.take(use())
    memory.leave(ONE)
    assert memory.take(again()) == BUSY


def test_leave_after_the_reply_changes_nothing(memory: SqliteTasks) -> None:
    """A client may disconnect while its reply is kept."""
    memory.take(use())
    memory.keep(ONE, b"reply")
    memory.leave(ONE)
    assert memory.take(use()) == Kept(b"reply")


def test_leave_does_not_wait(memory: SqliteTasks) -> None:
    memory.take(use())
    with paused(memory._store()):
        memory.leave(ONE)
    assert memory.take(use()) == Taken("f", "1", 2)


def test_leave_after_the_end_opens_nothing(memory: SqliteTasks) -> None:
    memory.take(use())
    memory.close()
    memory.leave(ONE)
    assert memory._opened is None


def test_keep_again_changes_nothing(memory: SqliteTasks) -> None:
    memory.take(use())
    memory.keep(ONE, b"reply")
    memory.keep(ONE, b"another")
    assert memory.take(use()) == Kept(b"reply")
    assert used(memory)[""] == 1024 + 5


def test_keep_of_an_unknown_slot_is_refused(memory: SqliteTasks) -> None:
    with pytest.raises(TaskStoreError, match="taken again"):
        memory.keep(ONE, b"reply")


def test_takes_at_once_give_a_slot_to_one_request(tmp_path: Path) -> None:
    found: list[Any] = []
    barrier = threading.Barrier(8)
    with storing(tmp_path / "t.db") as one, storing(tmp_path / "t.db") as other:

        def take(number: int) -> None:
            tasks = (one, other)[number % 2]
            barrier.wait()
            found.append(tasks.take(use("1", "line", request=f"r{number}")))

        threads = [threading.Thread(target=take, args=[n]) for n in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(map(str, found)) == [str(ONE), *[SPENT] * 7]


# ---- a store that fails -------------------------------------------------------------


def test_take_that_cannot_be_stored_takes_nothing(memory: SqliteTasks) -> None:
    break_(memory, "COMMIT")
    with pytest.raises(TaskStoreError, match="disk I/O error"):
        memory.take(use())
    assert rows(memory) == []
    assert memory.take(use(request="other")) == ONE


@pytest.mark.usefixtures("unswept")
def test_reply_that_cannot_be_stored_is_stored_by_the_sweep(
    memory: SqliteTasks,
) -> None:
    memory.take(use())
    break_(memory, "COMMIT", "COMMIT")
    with pytest.raises(TaskStoreError, match="disk I/O error"):
        memory.keep(ONE, b"reply")
    store = memory._store()
    store._sweep()  # it fails, too
    assert store.late == {ONE: b"reply"}
    memory.leave(ONE)  # the reply is kept later
    assert store.late == {ONE: b"reply"}
    assert memory.take(again()) == BUSY
    store._sweep()
    assert store.late == {}
    assert memory.take(use()) == Kept(b"reply")


@pytest.mark.usefixtures("unswept")
def test_slot_that_cannot_be_left_is_left_by_the_sweep(memory: SqliteTasks) -> None:
    memory.take(use())
    break_(memory, "COMMIT")
    memory.leave(ONE)
    store = memory._store()
    until(lambda: store.late == {ONE: None})
    store._sweep()
    assert memory.take(use()) == Taken("f", "1", 2)


@pytest.mark.usefixtures("unswept")
@pytest.mark.parametrize("reply", [b"reply", None])
def test_end_stores_what_could_not_be_stored(
    tmp_path: Path, reply: bytes | None
) -> None:
    with storing(tmp_path / "t.db") as tasks:
        tasks.take(use())
        tasks._store().late[ONE] = reply
    with storing(tmp_path / "t.db") as tasks:
        wanted = Taken("f", "1", 2) if reply is None else Kept(reply)
        assert tasks.take(use()) == wanted


@pytest.mark.usefixtures("unswept")
def test_late_reply_changes_no_slot_that_was_taken_again(memory: SqliteTasks) -> None:
    memory.take(use())
    memory.leave(ONE)
    memory.take(use())
    with pytest.raises(TaskStoreError):
        memory.keep(ONE, b"too late")
    memory._store()._sweep()
    assert memory._store().late == {}
    assert rows(memory) == [("1", 2, None)]
    assert memory.take(again()) == BUSY


@pytest.mark.usefixtures("unswept")
def test_late_reply_replaces_no_other_one(memory: SqliteTasks) -> None:
    memory.take(use())
    memory.keep(ONE, b"reply")
    memory._store().late[ONE] = b"another"
    memory._store()._sweep()
    assert memory.take(use()) == Kept(b"reply")


def test_writes_after_the_end_are_refused(memory: SqliteTasks) -> None:
    store = memory._store()
    memory.close()
    error = error_of(store.count(lambda db: None))
    assert "the store of tasks is closed" in str(error)


# ---- processes that end -------------------------------------------------------------


def test_slot_of_a_dead_process_is_freed_by_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = OnDisk(tmp_path)
    dead = host.ledger(0)
    dead.take(use())
    assert host.ledger(1).take(again()) == BUSY
    host.kill(0)
    assert "dead process" in caplog.text
    assert host.ledger(1).take(use(request="other")) == SPENT
    assert host.ledger(1).take(use()) == Taken("f", "1", 2)
    host.close()


def test_slot_of_a_living_process_stays(tmp_path: Path) -> None:
    host = OnDisk(tmp_path)
    host.ledger(0).take(use())
    host.ledger(1)._store()._sweep()
    assert host.ledger(1).take(again()) == BUSY
    host.ledger(0).keep(ONE, b"reply")
    host.close()


def test_reply_of_a_dead_process_stays(tmp_path: Path) -> None:
    host = OnDisk(tmp_path)
    host.ledger(0).take(use())
    host.ledger(0).keep(ONE, b"reply")
    host.kill(0)
    assert host.ledger(0).take(use()) == Kept(b"reply")
    host.close()


def test_end_frees_the_slots_of_a_process(tmp_path: Path) -> None:
    with storing(tmp_path / "t.db") as other:
        with storing(tmp_path / "t.db") as one:
            one.take(use("1"))
            one.take(use("2"))
            one.keep(Taken("f", "2", 1), b"reply")
        assert rows(other, "slot, fence, holder, reply") == [
            ("1", 1, None, None),
            ("2", 1, None, b"reply"),
        ]
        assert other.take(use()) == Taken("f", "1", 2)


# ---- budgets ------------------------------------------------------------------------


@pytest.mark.usefixtures("unswept")
def test_slots_and_replies_are_counted_and_freed(memory: SqliteTasks) -> None:
    memory.take(use("1", "line", owner="ann"))
    memory.take(use("1", flow="g", until=1.0))
    assert used(memory) == {"": 3 * 1024, "=ann": 2 * 1024, "anonymous": 1024}
    memory.keep(ONE, bytes(100))
    memory.keep(Taken("g", "1", 1), bytes(7))
    assert used(memory) == {"": 3179, "=ann": 2148, "anonymous": 1031}
    memory._store()._sweep()
    assert used(memory) == {"": 2148, "=ann": 2148}


@pytest.mark.usefixtures("unswept")
def test_nothing_is_counted_after_all_is_removed(memory: SqliteTasks) -> None:
    memory.take(use("1", "line", owner="ann", until=1.0))
    memory.keep(ONE, bytes(100))
    memory._store()._sweep()
    assert used(memory) == {"": 0}


def test_user_with_too_many_slots_is_refused() -> None:
    with storing(uses_share=2048) as tasks:
        tasks.take(use("1", owner="ann"))
        tasks.take(use("2", owner="ann"))
        with pytest.raises(TaskLimitError, match="you have too many calls that count"):
            tasks.take(use("3", owner="ann"))
        for other in ("bob", None, "", "anonymous"):
            assert tasks.take(use(flow=f"of {other}", owner=other))


def test_replies_count_for_their_user() -> None:
    with storing(uses_share=4096) as tasks:
        tasks.take(use("1", owner="ann"))
        tasks.keep(ONE, bytes(2049))
        with pytest.raises(TaskLimitError, match="you have"):
            tasks.take(use("2", owner="ann"))


def test_anonymous_clients_are_one_user() -> None:
    with storing(uses_share=1024) as tasks:
        tasks.take(use("1"))
        with pytest.raises(TaskLimitError, match="you have"):
            tasks.take(use("1", flow="g"))


def test_all_users_together_have_a_limit() -> None:
    with storing(uses=2048, uses_share=2048) as tasks:
        tasks.take(use(flow="a", owner="ann"))
        tasks.take(use(flow="b", owner="bob"))
        with pytest.raises(TaskLimitError, match="there are too many calls that count"):
            tasks.take(use(flow="c", owner="eve"))


def test_request_that_has_its_slots_is_answered_at_the_limit() -> None:
    """The request needs no more room, and to refuse it would lose its reply."""
    with storing(uses=1024, uses_share=1024) as tasks:
        tasks.take(use())
        tasks.leave(ONE)
        assert tasks.take(use()) == Taken("f", "1", 2)
        tasks.keep(Taken("f", "1", 2), b"reply")
        assert tasks.take(use()) == Kept(b"reply")
        assert tasks.take(use(request="other")) == SPENT


# ---- removal ------------------------------------------------------------------------


@pytest.mark.usefixtures("unswept")
@PLACES
def test_old_slots_are_removed_some_at_a_time(
    tmp_path: Path, is_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uses, "_MOST", 2)
    with storing(place(tmp_path, is_file)) as tasks:
        for number in range(5):
            tasks.take(use(str(number), until=1.0))
        tasks.take(use("later", until=time.time() + 60))
        for left in (4, 2, 1, 1):
            tasks._store()._sweep()
            assert len(rows(tasks)) == left
        assert rows(tasks, "slot") == [("later",)]
        tasks.take(use("0", request="other"))  # no state can name it


def test_sweep_without_waste_writes_nothing(tmp_path: Path) -> None:
    """A write would keep other processes from writing."""
    with storing(tmp_path / "t.db") as tasks:
        tasks.take(use())
        statements: list[str] = []
        tasks._store()._writer.set_trace_callback(statements.append)
        tasks._store()._sweep()
        tasks._store()._writer.set_trace_callback(None)
    assert statements == []


def test_memory_with_slots_is_swept(memory: SqliteTasks) -> None:
    store = memory._store()
    assert store._pause() is None
    memory.take(use())
    assert store._pause() == connections._SWEEP


# ---- files of version 1 -------------------------------------------------------------


#: The tables of version 1, as it wrote them.
FIRST = """
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, owner TEXT, is_ended INTEGER NOT NULL, wake REAL, purge REAL,
    changed INTEGER NOT NULL, fence INTEGER NOT NULL, holder TEXT, data BLOB NOT NULL,
    journal BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX tasks_by_wake ON tasks (wake) WHERE wake IS NOT NULL AND holder IS NULL;
CREATE INDEX tasks_by_holder ON tasks (holder) WHERE holder IS NOT NULL;
CREATE INDEX tasks_by_change ON tasks (changed);
CREATE INDEX tasks_by_purge ON tasks (purge) WHERE purge IS NOT NULL;
CREATE INDEX tasks_by_owner ON tasks (owner) WHERE NOT is_ended;
CREATE TABLE mail (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    id TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    UNIQUE (task, id)
);
CREATE TABLE changes (last INTEGER NOT NULL);
INSERT INTO changes VALUES (7);
PRAGMA application_id = 1701209716;
PRAGMA user_version = 1;
"""
ROW = new_row("0f" * 20)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of version 1 that has a task."""
    path = tmp_path / "t.db"
    with plain(path) as db:
        db.executescript(FIRST)
        db.execute(
            "INSERT INTO tasks VALUES (?, NULL, 0, NULL, NULL, 8, 0, NULL, ?, ?)",
            (ROW.id, ROW.dumps(), ROW.journal),
        )
    return path


def version(path: Path) -> int:
    with plain(path) as db:
        (found,) = db.execute("PRAGMA user_version").fetchone()
    return int(found)


def test_old_file_is_migrated_with_its_tasks(old: Path) -> None:
    for fence in (1, 2):
        with storing(old) as tasks:
            assert tasks.read(ROW.id) == ROW
            assert tasks.take(use()) == Taken("f", "1", fence)
            assert used(tasks) == {"": 1024, "anonymous": 1024}
            assert tasks._store().submit(connections.next_change).result(60) == 9
    assert version(old) == VERSION


def test_migration_that_fails_changes_nothing(old: Path, faulty: type[Faulty]) -> None:
    left = [sqlite3.OperationalError("disk is full")]
    faulty.outcomes["CREATE TRIGGER"] = lambda: left.pop() if left else None
    with pytest.raises(UsageError, match="disk is full"):
        connected(old)
    with plain(old) as db:
        [(count,)] = db.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'uses'"
        )
    assert (count, version(old)) == (0, 1)
    with closing(connected(old)) as db:
        assert db.execute("SELECT id FROM tasks").fetchall() == [(ROW.id,)]


def test_processes_may_migrate_a_file_at_once(old: Path) -> None:
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def open_() -> None:
        barrier.wait()
        try:
            connected(old).close()
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=open_) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures
    assert version(old) == VERSION
