from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings

from effectmcp import TaskLimitError, TaskRowError, TaskStoreError, UsageError
from effectmcp.tasks import Mail, SqliteTasks, TaskRow, connections, sqlite
from effectmcp.tasks.sqlite import Lease, TakenOverError

from .rows import claim, json_values, listed, new_row, task_rows


@pytest.fixture(params=[False, True], ids=["memory", "file"])
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteTasks]:
    one = SqliteTasks(tmp_path / "t.db" if request.param else None)
    yield one
    one.close()


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[SqliteTasks]:
    one = SqliteTasks(path, **options)
    try:
        yield one
    finally:
        one.close()


def save(tasks: SqliteTasks, lease: Lease, row: TaskRow, **more: Any) -> None:
    ended: Future[Future[bool]] = Future()
    options = {"dropped": (), "read": 0, **more}
    tasks.save(lease, row, then=ended.set_result, **options)
    ended.result(60).result(0)


def release(tasks: SqliteTasks, lease: Lease, *, is_cut_off: bool = False) -> None:
    ended = threading.Event()
    tasks.release(lease, ended.set, is_cut_off=is_cut_off)
    assert ended.wait(60)


def until(is_so: Callable[[], object]) -> None:
    late = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < late
        time.sleep(0.002)


def edit(tasks: SqliteTasks, sql: str, *values: object) -> None:
    tasks._store().submit(lambda db: db.execute(sql, values).rowcount).result(60)


# ---- creating, reading --------------------------------------------------------------


def test_task_is_created_once(tasks: SqliteTasks) -> None:
    row = new_row()
    assert tasks.create(row) == row
    assert tasks.create(attrs.evolve(row, tool="other")) == row
    assert tasks.read(row.id) == row
    assert tasks.read("other") is None


def owned(tasks: SqliteTasks, owner: str, after: str = "", limit: int = 9) -> list[str]:
    return [row.id for row in tasks.owned(owner, after=after, limit=limit)]


def test_owned_are_in_the_order_of_their_ids(tasks: SqliteTasks) -> None:
    """The age does not count: a page must not shift while others are created."""
    for id_ in ("c", "a", "d", "b"):
        tasks.create(new_row(id_, owner="ann"))
    tasks.create(new_row("bb", owner="bob"))
    tasks.create(new_row("cc"))
    assert owned(tasks, "ann") == ["a", "b", "c", "d"]
    assert owned(tasks, "ann", limit=2) == ["a", "b"]
    assert owned(tasks, "ann", "b", 2) == ["c", "d"]
    assert owned(tasks, "ann", "d") == []
    assert owned(tasks, "ann", "bb", 1) == ["c"]
    assert owned(tasks, "bob") == ["bb"]
    for stranger in ("", "an", "ann' OR 1 --", "%"):
        assert owned(tasks, stranger) == []


def test_owned_are_as_they_are_read(tasks: SqliteTasks) -> None:
    """Without the questions that mail has answered."""
    questions: dict[str, Any] = {"q": {"method": "x"}, "p": {"method": "y"}}
    tasks.create(
        new_row("a", owner="ann", status="input_required", questions=questions)
    )
    tasks.post("a", [Mail("answer:q", "answer", "q", {"action": "decline"})])
    (row,) = tasks.owned("ann", after="", limit=1)
    assert row == tasks.read("a")
    assert [*row.questions] == ["p"]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("damaged", ["a", "b", "c", "d"])
def test_task_that_cannot_be_read_hides_no_other(
    tasks: SqliteTasks, damaged: str, size: int
) -> None:
    """ "Receivers MUST include a `nextCursor` in the response if more tasks are available"
    (2025-11-25, Task Listing): a damaged task must not look like the end.
    """
    for id_ in ("a", "b", "c", "d"):
        tasks.create(new_row(id_, owner="ann"))
    edit(tasks, "UPDATE tasks SET data = ? WHERE id = ?", b"{}", damaged)
    left = [one for one in ("a", "b", "c", "d") if one != damaged]
    assert owned(tasks, "ann") == left
    assert listed(tasks, "ann", size) == left


def test_owned_of_a_store_that_fails_is_an_error(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as tasks:
        tasks.create(new_row("a", owner="ann"))
        other = sqlite3.connect(tmp_path / "t.db")
        other.execute("ALTER TABLE tasks RENAME TO gone")
        other.close()
        with pytest.raises(TaskStoreError):
            tasks.owned("ann", after="", limit=1)


def test_any_row_is_kept(tasks: SqliteTasks) -> None:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(task_rows)
    def check(row: TaskRow) -> None:
        edit(tasks, "DELETE FROM tasks")
        assert tasks.create(row) == row
        assert tasks.read(row.id) == row
        assert tasks.find([row.id]) == [row]

    check()


def test_row_that_cannot_be_written_is_refused(tasks: SqliteTasks) -> None:
    for row in (new_row("\ud800"), new_row(arguments={"a": float("nan")})):
        with pytest.raises(TaskStoreError, match="cannot be stored"):
            tasks.create(row)
    with pytest.raises(TaskStoreError, match="cannot be read"):
        tasks.read("\ud800")
    assert tasks.find() == []


def test_save_that_no_further_try_can_help(tasks: SqliteTasks) -> None:
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    with pytest.raises(TaskRowError, match=r"at /result/a: a number"):
        save(tasks, lease, attrs.evolve(lease.row, result={"a": float("nan")}))
    tasks._store()._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5_000)
    with pytest.raises(TaskRowError, match="too big"):
        save(tasks, lease, attrs.evolve(lease.row, journal=bytes(6_000)))
    save(tasks, lease, attrs.evolve(lease.row, message="well"))
    assert tasks.find() == [attrs.evolve(lease.row, message="well")]


def test_memory_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    tasks = SqliteTasks()
    tasks.create(new_row("1"))
    tasks.create(new_row("2"))
    tasks.close()
    assert [one.message[:24] for one in caplog.records] == ["tasks are kept in memory"]
    assert repr(tasks) == "SqliteTasks()"


def test_file_outlives_its_process_and_memory_does_not(tmp_path: Path) -> None:
    for path in (None, tmp_path / "t.db"):
        tasks = SqliteTasks(path)
        tasks.create(new_row())
        tasks.close()
        tasks.close()
        # The next call opens it again.
        assert (tasks.read("task-1") is None) is (path is None)
        tasks.close()
    path = tmp_path / "t.db"
    assert repr(SqliteTasks(path)) == f"SqliteTasks({str(path)!r})"


def test_file_of_another_kind_is_refused_at_the_first_call(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("a novel " * 100)
    tasks = SqliteTasks(tmp_path / "t.db")
    for call in (
        tasks.open,
        tasks.find,
        lambda: tasks.watch(print),
        lambda: claim(tasks, 1),
    ):
        with pytest.raises(UsageError, match="cannot be opened"):
            call()
    tasks.close()


def test_limits_count_tasks_that_live(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db", limit=4, share=2) as tasks:
        for owner in ("ann", None):
            tasks.create(new_row(f"{owner}-1", owner=owner))
            tasks.create(new_row(f"{owner}-2", owner=owner))
            with pytest.raises(TaskLimitError, match="you have too many"):
                tasks.create(new_row(f"{owner}-3", owner=owner))
            assert tasks.create(new_row(f"{owner}-1", owner=owner)).owner == owner
        with pytest.raises(TaskLimitError, match="there are too many"):
            tasks.create(new_row("bob-1", owner="bob"))
        (lease,) = claim(tasks, 1)
        save(tasks, lease, attrs.evolve(lease.row, status="completed", wake=None))
        tasks.create(new_row("bob-1", owner="bob"))


def test_find_by_the_beginning_of_ids_newest_first(tasks: SqliteTasks) -> None:
    for id_ in ("ab", "aa", "b%", "b", "ba"):
        tasks.create(new_row(id_))

    def found(*ids: str, limit: int = 1_000) -> list[str]:
        return [row.id for row in tasks.find(ids, limit=limit)]

    assert found() == ["ba", "b", "b%", "aa", "ab"]
    assert found("a") == ["aa", "ab"]
    assert found("b%") == ["b%"]
    assert found("aa", "b", "b") == ["ba", "b", "b%", "aa"]
    assert found("a", "b", limit=2) == ["ba", "b"]
    assert found("A") == found("c") == []
    tasks.post("ab", [Mail("m", "cancel")])
    assert found(limit=1) == ["ab"]


def test_find_does_not_read_the_rows_of_others(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as tasks:
        plan = tasks._read(
            lambda db: db.execute(
                "EXPLAIN QUERY PLAN SELECT id, changed, data, journal FROM tasks"
                " WHERE id >= ? AND id < ? ORDER BY changed DESC LIMIT ?",
                ("a", "b", 1),
            ).fetchall()
        )
    assert "SEARCH tasks USING PRIMARY KEY" in plan[0][-1]


def test_rows_of_a_newer_version_are_left_alone(
    tasks: SqliteTasks, caplog: pytest.LogCaptureFixture
) -> None:
    for id_ in ("new", "old"):
        tasks.create(new_row(id_))
    newer = new_row("new").dumps().replace(b'"format":1', b'"format":2')
    edit(tasks, "UPDATE tasks SET data = ? WHERE id = 'new'", newer)
    with pytest.raises(TaskStoreError, match="this version cannot read"):
        tasks.read("new")
    with pytest.raises(TaskStoreError, match="this version cannot read"):
        tasks.create(new_row("new"))
    assert [row.id for row in tasks.find()] == ["old"]
    assert [lease.row.id for lease in claim(tasks, 9)] == ["old"]
    assert "left to a newer version" in caplog.text
    assert claim(tasks, 9) == []  # not again at once
    wake = tasks.next_wake()
    assert wake is not None
    assert wake > time.time() + 30
    assert tasks._read(lambda db: db.execute("SELECT data FROM tasks").fetchall())[
        0
    ] == (newer,)


# ---- mail ---------------------------------------------------------------------------


def answer(id_: str, value: Any = None, key: str = "q") -> Mail:
    return Mail(id_, "answer", key, value)


def test_mail_is_ordered_and_stored_once_for_each_id(tasks: SqliteTasks) -> None:
    for id_ in ("task-1", "task-2"):
        tasks.create(new_row(id_))
    first, second = claim(tasks, 2)
    tasks.post("task-1", [answer("b", 1), answer("a", 2), answer("b", 3)])
    tasks.post("task-1", [answer("a", 4), Mail("c", "cancel"), Mail("r", "retry")])
    tasks.post("task-2", [answer("a", 5)])
    mail, last = tasks.mail(first, 0)
    wanted = [answer("b", 1), answer("a", 2), Mail("c", "cancel"), Mail("r", "retry")]
    assert mail == wanted
    assert tasks.mail(first, last) == ([], last)
    tasks.post("task-1", [answer("d")])
    assert tasks.mail(first, last)[0] == [answer("d")]
    assert tasks.mail(second, 0)[0] == [answer("a", 5)]


def test_mail_has_any_value(tasks: SqliteTasks) -> None:
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    numbers = iter(range(10**6))
    read = 0

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(json_values)
    def check(value: Any) -> None:
        nonlocal read
        one = answer(str(next(numbers)), value)
        tasks.post("task-1", [one])
        mail, read = tasks.mail(lease, read)
        assert mail == [one]

    check()


def test_mail_to_unknown_and_ended_tasks_is_dropped(
    tasks: SqliteTasks,
) -> None:
    tasks.post("none", [answer("a")])
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    tasks.post("task-1", [answer("a")])
    save(tasks, lease, attrs.evolve(lease.row, status="completed", wake=None))
    tasks.post("task-1", [answer("b")])
    assert tasks.mail(lease, 0)[0] == []
    release(tasks, lease)
    assert tasks.next_wake() is None


def test_read_leaves_out_the_questions_that_mail_has_answered(
    tasks: SqliteTasks,
) -> None:
    tasks.create(new_row(status="input_required", questions={"a": {}, "b": {}}))
    tasks.post("task-1", [answer("1", key="a"), Mail("b", "cancel", "b")])
    row = tasks.read("task-1")
    assert row is not None
    assert (row.status, set(row.questions)) == ("input_required", {"b"})
    tasks.post("task-1", [answer("2", key="b")])
    row = tasks.read("task-1")
    assert row is not None
    assert (row.status, set(row.questions)) == ("working", set())


# ---- turns --------------------------------------------------------------------------


def test_claim_takes_what_is_due_and_only_once(tasks: SqliteTasks) -> None:
    assert claim(tasks, 5) == []
    for id_, wake in {"never": None, "later": time.time() + 600, "b": 2.0}.items():
        tasks.create(new_row(id_, wake=wake))
    for id_ in ("a", "c"):
        tasks.create(new_row(id_, wake=1.0))
    assert [lease.row.id for lease in claim(tasks, 2)] == ["a", "c"]
    assert [lease.row.id for lease in claim(tasks, 2)] == ["b"]
    assert claim(tasks, 2) == []


def test_next_wake_counts_timers_of_held_tasks_too(tasks: SqliteTasks) -> None:
    """The process that holds one may end, and no other process would know its timer."""
    assert tasks.next_wake() is None
    soon, later = time.time() + 500, time.time() + 600
    tasks.create(new_row("due"))
    assert tasks.next_wake() == 0.0
    (lease,) = claim(tasks, 1)
    assert tasks.next_wake() is None  # it runs
    save(tasks, lease, attrs.evolve(lease.row, wake=soon))
    assert tasks.next_wake() == soon
    tasks.create(new_row("later", wake=later))
    assert tasks.next_wake() == soon
    release(tasks, lease)
    assert tasks.next_wake() == soon


def test_save_replaces_the_row_and_drops_mail(tasks: SqliteTasks) -> None:
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    tasks.post("task-1", [answer("a"), answer("b")])
    _, last = tasks.mail(lease, 0)
    row = attrs.evolve(lease.row, message="half", journal=b"journal", wake=None)
    save(tasks, lease, row, dropped=["a", "none"], read=last)
    assert tasks.read("task-1") == row
    assert [one.id for one in tasks.mail(lease, 0)[0]] == ["b"]
    release(tasks, lease)
    assert claim(tasks, 1) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_mail_later_than_the_turn_has_read_wakes_the_task(
    tasks: SqliteTasks, is_late: bool
) -> None:
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    tasks.post("task-1", [answer("a")])
    _, last = tasks.mail(lease, 0)
    if is_late:
        tasks.post("task-1", [answer("b")])
    save(tasks, lease, attrs.evolve(lease.row, wake=None), read=last)
    release(tasks, lease)
    assert len(claim(tasks, 1)) == is_late


def test_mail_between_the_last_save_and_the_release_wakes_the_task(
    tasks: SqliteTasks,
) -> None:
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    save(tasks, lease, attrs.evolve(lease.row, wake=None))
    tasks.post("task-1", [answer("a")])
    release(tasks, lease)
    (again,) = claim(tasks, 1)
    assert again.fence == lease.fence + 1


def test_turn_that_was_cut_off_is_run_again(tasks: SqliteTasks) -> None:
    """The turn may have read mail that no saved journal has, after a save that waits."""
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    save(tasks, lease, attrs.evolve(lease.row, wake=None))
    release(tasks, lease, is_cut_off=True)
    (lease,) = claim(tasks, 1)
    ended = attrs.evolve(lease.row, status="completed", wake=None)
    save(tasks, lease, ended)
    release(tasks, lease, is_cut_off=True)
    assert claim(tasks, 1) == []


def test_save_and_release_with_an_older_fence_are_refused(tasks: SqliteTasks) -> None:
    tasks.create(new_row())
    (old,) = claim(tasks, 1)
    release(tasks, old)
    (lease,) = claim(tasks, 1)
    tasks.post("task-1", [answer("a")])
    with pytest.raises(TakenOverError, match="task-1 has been taken over"):
        save(tasks, old, attrs.evolve(old.row, message="old"), dropped=["a"])
    assert tasks.read("task-1") == lease.row
    assert len(tasks.mail(lease, 0)[0]) == 1  # that save dropped nothing
    release(tasks, old, is_cut_off=True)
    save(tasks, lease, attrs.evolve(lease.row, message="new"))


def test_saves_of_many_turns_share_transactions(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as tasks:
        for n in range(32):
            tasks.create(new_row(f"{n:02}"))
        leases = claim(tasks, 32)
        store = tasks._store()
        statements: list[str] = []
        ended: list[Future[bool]] = []
        go, is_paused = threading.Event(), threading.Event()

        def wait(db: sqlite3.Connection) -> None:
            is_paused.set()
            assert go.wait(60)

        store.submit(wait)
        assert is_paused.wait(60)
        store._writer.set_trace_callback(statements.append)
        for lease in leases:
            tasks.save(lease, lease.row, (), 0, ended.append)
        go.set()
        until(lambda: len(ended) == 32)
        store._writer.set_trace_callback(None)
        assert all(one.exception() is None for one in ended)
        assert statements.count("COMMIT") == 2  # `wait` has one of them


def test_ended_tasks_are_kept_for_their_ttl_and_the_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    now = time.time()
    ended: dict[str, Any] = {"status": "completed", "wake": None}
    rows: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "gone": ({"created": now - 99, "ttl": 50.0}, {"updated": now - 20}),
        "retained": ({"created": now - 99, "ttl": 50.0}, {"updated": now}),
        "ttl": ({"created": now - 99, "ttl": 500.0}, {"updated": now - 20}),
        "no ttl": ({"created": now - 99, "ttl": None}, {"updated": now - 20}),
        "alive": ({"created": now - 99, "ttl": 50.0}, {"status": "working"}),
    }
    with opened(tmp_path / "t.db", retention=10) as tasks:
        for id_, (created, _) in rows.items():
            tasks.create(new_row(id_, **created))
        for lease in claim(tasks, 9):
            _, changes = rows[lease.row.id]
            save(tasks, lease, attrs.evolve(lease.row, **{**ended, **changes}))
            release(tasks, lease)
        until(lambda: tasks.read("gone") is None)
        until(lambda: tasks.read("no ttl") is None)
        assert {row.id for row in tasks.find()} == {"retained", "ttl", "alive"}


# ---- failures -----------------------------------------------------------------------


class Failing:
    """A connection to a disk that fails."""

    in_transaction = False

    def execute(self, *args: Any) -> Any:
        raise sqlite3.OperationalError("disk I/O error")


@contextmanager
def failing(tasks: SqliteTasks) -> Iterator[None]:
    store = tasks._store()
    broken: Any = Failing()
    with store._lock:
        real, store._writer = store._writer, broken
    yield
    with store._lock:
        store._writer = real


def test_failed_writes_are_errors_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    with opened(tmp_path / "t.db") as tasks:
        for id_ in ("a", "b", "c"):
            tasks.create(new_row(id_))
        leases = claim(tasks, 2)
        with failing(tasks):
            for call in (
                lambda: tasks.create(new_row("d")),
                lambda: tasks.post("a", [answer("1")]),
                lambda: claim(tasks, 1),
                lambda: save(tasks, leases[0], leases[0].row),
            ):
                with pytest.raises(TaskStoreError, match="disk I/O error"):
                    call()
            for lease in leases:
                release(tasks, lease)  # without an error: no caller could handle it
        # Tasks that were not given back are given back when the disk works again.
        until(lambda: not tasks._store().loose)
        assert [one.row.id for one in claim(tasks, 9)] == ["a", "b", "c"]


FULL = """
import resource, sys
from pathlib import Path
from effectmcp import TaskStoreError
from effectmcp.tasks import SqliteTasks
from effectmcp_tests.tasks.rows import new_row
tasks = SqliteTasks(sys.argv[1])
kept = []
tasks.create(new_row("first"))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
size = Path(sys.argv[1] + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, hard))
try:
    for n in range(100):
        tasks.create(new_row(f"{n:03}", arguments=["x" * 5_000]))
        kept.append(f"{n:03}")
except TaskStoreError as exc:
    print("refused after some" if kept else "at once")
assert [row.id for row in tasks.find()] == [*reversed(kept), "first"]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
tasks.create(new_row("last"))
tasks.close()
tasks = SqliteTasks(sys.argv[1])
assert {row.id for row in tasks.find()} == {*kept, "first", "last"}
tasks.close()
print("nothing lost")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of files differ")
def test_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "t.db")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "refused after some\nnothing lost\n", done.stderr


def test_claim_that_may_have_been_written_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may report an error, and be on the disk nevertheless."""
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    with opened(tmp_path / "t.db") as tasks:
        tasks.create(new_row())
        store = tasks._store()
        real: Any = store._writer

        class Lying:
            in_transaction = False

            def execute(self, sql: str, *args: Any) -> Any:
                found = real.execute(sql, *args)
                if sql == "COMMIT":
                    store._writer = real
                    raise sqlite3.OperationalError("disk I/O error")
                return found

        with store._lock:
            lying: Any = Lying()
            store._writer = lying
        with pytest.raises(TaskStoreError):
            claim(tasks, 1)
        until(lambda: not store.loose)
        assert len(claim(tasks, 1)) == 1


def test_release_after_close_opens_nothing(tasks: SqliteTasks) -> None:
    tasks.create(new_row())
    (lease,) = claim(tasks, 1)
    tasks.close()
    release(tasks, lease)
    assert tasks._opened is None
    tasks.create(new_row())
    with pytest.raises(TakenOverError):
        save(tasks, lease, lease.row)


def test_listener_that_fails_disturbs_no_other(
    tasks: SqliteTasks, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail(id_: str) -> None:
        raise ValueError(id_)

    ends = [tasks.watch(fail), tasks.watch(told.append)]
    tasks.create(new_row())
    until(lambda: told)
    for end in [*ends, *ends]:
        end()
    assert "a listener failed on task task-1" in caplog.text


# ---- several processes --------------------------------------------------------------


def test_host_sees_what_another_does(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as one, opened(tmp_path / "t.db") as other:
        told: list[str] = []
        one.watch(told.append)
        other.create(new_row())
        assert one.read("task-1") == new_row()
        until(lambda: told == ["task-1"])
        (lease,) = claim(other, 1)
        assert claim(one, 1) == []
        one.post("task-1", [answer("a")])
        assert len(other.mail(lease, 0)[0]) == 1


def test_other_processes_are_notified_when_a_due_task_becomes_free(
    tmp_path: Path,
) -> None:
    """Other workers have seen the mail, but could not take the task then."""
    with opened(tmp_path / "t.db") as one, opened(tmp_path / "t.db") as other:
        one.create(new_row())
        (lease,) = claim(one, 1)
        save(one, lease, attrs.evolve(lease.row, wake=None))
        one.post("task-1", [answer("a")])
        free = threading.Event()

        def told(id_: str) -> None:
            if other._read(sqlite._has_due):
                free.set()

        other.create(new_row("last", wake=None))
        other.watch(told)
        release(one, lease)
        assert free.wait(60)
        assert len(claim(other, 1)) == 1


def test_close_gives_the_tasks_back(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as other:
        free = threading.Event()
        with opened(tmp_path / "t.db") as one:
            one.create(new_row())
            assert len(claim(one, 1)) == 1

            def told(id_: str) -> None:
                if other._read(sqlite._has_due):
                    free.set()

            other.watch(told)
        assert free.wait(60)
        assert len(claim(other, 1)) == 1


CLAIM = """
import sys
from effectmcp.tasks import SqliteTasks
from effectmcp_tests.tasks.rows import claim
tasks = SqliteTasks(sys.argv[1])
print(len(claim(tasks, 9)), flush=True)
sys.stdin.read()
"""


def test_tasks_of_a_killed_process_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.01)
    with opened(tmp_path / "t.db") as tasks:
        tasks.create(new_row())
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(tmp_path / "t.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"1\n"
            assert claim(tasks, 9) == []
        finally:
            process.kill()
            process.communicate()
        until(lambda: tasks.next_wake() == 0.0)
        (lease,) = claim(tasks, 9)
        assert lease.fence == 3  # taken, taken over, taken


FORK = """
import os, sys
from effectmcp.tasks import SqliteTasks
from effectmcp_tests.tasks.rows import claim, new_row
tasks = SqliteTasks(sys.argv[1])
told = []
tasks.watch(told.append)
tasks.create(new_row())
assert len(claim(tasks, 9)) == 1
store = tasks._opened
child = os.fork()
if child == 0:
    assert tasks._opened is None and tasks._listeners == {}
    assert tasks.read("task-1") is not None
    assert claim(tasks, 9) == []  # the parent has it
    tasks.create(new_row("task-2"))
    assert tasks._opened.holder.name != store.holder.name
    tasks.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert tasks._opened is store
assert tasks.read("task-2") is not None
tasks.create(new_row("task-3"))
print(len(claim(tasks, 9)))
tasks.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_opens_the_file_for_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "t.db")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_fork_forgets_the_connections_of_its_parent(tmp_path: Path) -> None:
    """Repeat the test above in this process, where coverage is measured."""
    tasks, unused = SqliteTasks(tmp_path / "t.db"), SqliteTasks()
    tasks.create(new_row())
    store = tasks._opened
    assert store is not None
    sqlite._forget_all()
    try:
        assert tasks._opened is None
        assert store in sqlite._inherited
        assert tasks.read("task-1") is not None
    finally:
        sqlite._inherited.remove(store)
        store.close()
        tasks.close()
        unused.close()
