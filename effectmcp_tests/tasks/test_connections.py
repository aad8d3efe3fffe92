from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from effectmcp import TaskStoreError
from effectmcp.tasks import connections
from effectmcp.tasks.connections import Connections, next_change, remove_old


def ignore(ids: Iterable[str], *more: object) -> None:
    """Ignore changes."""


@contextmanager
def opened(
    path: Path | None, tell: Callable[[Iterable[str], bool], None] = ignore
) -> Iterator[Connections]:
    one = Connections(path, tell)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def paused(one: Connections) -> Iterator[None]:
    """Keep the thread from committing, so that writes pile up."""
    go, is_paused = threading.Event(), threading.Event()

    def wait(db: sqlite3.Connection) -> None:
        is_paused.set()
        assert go.wait(60)

    one.submit(wait)
    assert is_paused.wait(60)
    try:
        yield
    finally:
        go.set()


def insert(id_: str, *, size: int = 0) -> connections.Write:
    def write(db: sqlite3.Connection) -> str:
        db.execute(
            "INSERT INTO tasks VALUES (?, NULL, 0, 0, NULL, ?, 0, NULL, ?, x'')",
            (id_, next_change(db), bytes(size)),
        )
        return id_

    return write


def ids(one: Connections) -> list[str]:
    return one.read(
        lambda db: [id_ for (id_,) in db.execute("SELECT id FROM tasks ORDER BY id")]
    )


def error_of(future: Future[Any]) -> BaseException:
    error = future.exception(60)
    assert error is not None
    return error


PLACES = pytest.mark.parametrize("is_file", [False, True])


def place(tmp_path: Path, is_file: bool) -> Path | None:
    return tmp_path / "t.db" if is_file else None


def test_writes_that_pile_up_share_a_transaction(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as one:
        statements: list[str] = []
        with paused(one):
            one._writer.set_trace_callback(statements.append)
            futures = [one.submit(insert(f"{n:02}")) for n in range(32)]
        assert [future.result(60) for future in futures] == ids(one)
        one._writer.set_trace_callback(None)
    # The first commit is by `paused`.
    assert statements.count("COMMIT") <= 2


@PLACES
def test_write_that_fails_takes_no_other_with_it(tmp_path: Path, is_file: bool) -> None:
    with opened(place(tmp_path, is_file)) as one:

        def fail(db: sqlite3.Connection) -> None:
            insert("half")(db)
            raise ValueError("no")

        with paused(one):
            first = one.submit(insert("a"))
            failed = one.submit(fail)
            known = one.submit(insert("a"))
            last = one.submit(insert("b"))
        assert (first.result(60), last.result(60)) == ("a", "b")
        error = error_of(failed)
        assert isinstance(error, TaskStoreError)
        assert isinstance(error.__cause__, ValueError)
        assert isinstance(error_of(known).__cause__, sqlite3.IntegrityError)
        assert ids(one) == ["a", "b"]


@PLACES
def test_write_that_fills_the_disk_takes_no_other_with_it(
    tmp_path: Path, is_file: bool
) -> None:
    with opened(place(tmp_path, is_file)) as one:
        with paused(one):
            (pages,) = one._writer.execute("PRAGMA page_count").fetchone()
            one._writer.execute(f"PRAGMA max_page_count = {pages + 8}")
            first = one.submit(insert("a"))
            large = one.submit(insert("large", size=1_000_000))
            last = one.submit(insert("b"))
        assert (first.result(60), last.result(60)) == ("a", "b")
        assert "full" in str(error_of(large))
        assert ids(one) == ["a", "b"]


def test_value_too_large_for_sqlite_takes_no_other_with_it(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as one:
        with paused(one):
            one._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
            first = one.submit(insert("a"))
            large = one.submit(insert("large", size=20_000))
        assert first.result(60) == "a"
        assert "too big" in str(error_of(large))


def test_locked_file_fails_all_that_waited_at_once(tmp_path: Path) -> None:
    """If each were tried alone, each would wait for the lock again."""
    with opened(tmp_path / "t.db") as one:
        with paused(one):
            one._writer.execute("PRAGMA busy_timeout = 200")
        other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        statements: list[str] = []
        one._writer.set_trace_callback(statements.append)
        futures = [one.submit(insert(f"{n}")) for n in range(8)]
        assert all("locked" in str(error_of(future)) for future in futures)
        one._writer.set_trace_callback(None)
        assert statements.count("BEGIN IMMEDIATE") < 8
        other.execute("ROLLBACK")
        other.close()
        assert one.submit(insert("free")).result(60) == "free"
        assert ids(one) == ["free"]


class Replaced:
    """A connection whose statements may fail."""

    def __init__(self, real: sqlite3.Connection, *failing: str) -> None:
        self.real = real
        self.failing = list(failing)

    @property
    def in_transaction(self) -> bool:
        return self.real.in_transaction

    def execute(self, sql: str, *args: Any) -> Any:
        if self.failing and sql.startswith(self.failing[0]):
            del self.failing[0]
            raise sqlite3.OperationalError("disk I/O error")
        return self.real.execute(sql, *args)

    def close(self) -> None:
        self.real.close()


@pytest.mark.parametrize("failing", [("COMMIT",), ("COMMIT", "ROLLBACK")])
def test_commit_that_fails_stores_nothing_and_the_next_one_all(
    tmp_path: Path, failing: tuple[str, ...]
) -> None:
    with opened(tmp_path / "t.db") as one:
        with paused(one):
            pass
        one.submit(insert("a")).result(60)
        with one._lock:
            one._writer = Replaced(one._writer, *failing)  # type: ignore[assignment]
        assert "disk I/O" in str(error_of(one.submit(insert("lost"))))
        if "ROLLBACK" in failing:  # it is still open
            assert "within a trans" in str(error_of(one.submit(insert("lost, too"))))
        assert one.submit(insert("b")).result(60) == "b"
        assert ids(one) == ["a", "b"]


def test_only_durable_writes_wait_for_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as one:
        modes = []

        def mode(db: sqlite3.Connection) -> int:
            (found,) = db.execute("PRAGMA synchronous").fetchone()
            return int(found)

        for is_durable in (True, False, False, True):
            modes.append(one.submit(mode, is_durable=is_durable).result(60))
        assert modes == [2, 1, 1, 2]
        with paused(one):
            both = [one.submit(mode, is_durable=one_) for one_ in (False, True)]
        assert [future.result(60) for future in both] == [2, 2]


@PLACES
def test_closed_store_refuses_writes(tmp_path: Path, is_file: bool) -> None:
    with opened(place(tmp_path, is_file)) as one:
        kept = one.submit(insert("a"))
    assert kept.result(0) == "a"
    with pytest.raises(TaskStoreError, match="closed"):
        one.submit(insert("b")).result(0)
    with pytest.raises(TaskStoreError, match="cannot be read"):
        ids(one)


def test_text_that_is_not_unicode_cannot_be_read() -> None:
    with opened(None) as one, pytest.raises(TaskStoreError, match="cannot be read"):
        one.read(lambda db: db.execute("SELECT ?", ("\ud800",)))


def test_changes_of_every_process_are_reported(tmp_path: Path) -> None:
    told: list[str] = []
    has_told = threading.Event()

    def tell(found: Iterable[str], is_own: bool) -> None:
        told.extend(found)
        if "b" in told:
            has_told.set()

    with opened(tmp_path / "t.db", tell) as one, opened(tmp_path / "t.db") as other:
        one.submit(insert("a")).result(60)
        other.submit(insert("b"))
        assert has_told.wait(60)
    assert told == ["a", "b"]


def test_numbers_of_changes_never_come_again(tmp_path: Path) -> None:
    """Otherwise a process that knows the number would not see the change."""
    with opened(tmp_path / "t.db") as one:
        before = one.submit(next_change).result(60)
        one.submit(insert("a")).result(60)
        one.submit(lambda db: db.execute("UPDATE tasks SET purge = 0")).result(60)
        one.submit(remove_old).result(60)
        assert one.read(lambda db: db.execute("SELECT * FROM tasks").fetchall()) == []
        assert one.submit(next_change).result(60) == before + 1


def test_reading_that_fails_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LOOK", 0.001)
    with opened(tmp_path / "t.db") as one:
        looks = threading.Semaphore(0)
        look = one._look

        def counted() -> None:
            look()
            looks.release()

        monkeypatch.setattr(one, "_look", counted)
        with one._reading:
            real = one._reader
            away = Replaced(real, *["SELECT"] * 3)
            one._reader = away  # type: ignore[assignment]
        while away.failing:
            assert looks.acquire(timeout=60)
        for _ in range(2):
            assert looks.acquire(timeout=60)
        one._reader = real
    found = [
        one.message for one in caplog.records if "cannot be followed" in one.message
    ]
    assert len(found) == 1


def in_row(one: Connections, id_: str) -> tuple[Any, ...]:
    found = one.read(
        lambda db: db.execute(
            "SELECT holder, fence, wake FROM tasks WHERE id = ?", (id_,)
        ).fetchone()
    )
    return tuple(found)


def hold(id_: str, holder: str, *, is_ended: bool = False) -> connections.Write:
    def write(db: sqlite3.Connection) -> None:
        insert(id_)(db)
        db.execute(
            "UPDATE tasks SET holder = ?, fence = 3, wake = 1e12, is_ended = ?"
            " WHERE id = ?",
            (holder, is_ended, id_),
        )

    return write


def test_tasks_of_a_dead_holder_are_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    path = tmp_path / "t.db"
    freed = threading.Event()
    found: set[str] = set()

    def tell(ids: Iterable[str], is_own: bool) -> None:
        found.update(ids)
        if {"a", "ended"} <= found and one_is_free():
            freed.set()

    def one_is_free() -> bool:
        return "dead" in caplog.text

    with opened(path) as alive, opened(path, tell) as one:
        for id_ in ("alive", "ended", "a"):
            holder = alive.holder.name if id_ == "alive" else "0-dead"
            one.submit(hold(id_, holder, is_ended=id_ == "ended")).result(60)
        until(lambda: in_row(one, "a")[0] is None)
        assert in_row(one, "a") == (None, 4, 0.0)
        assert in_row(one, "ended") == (None, 4, None)
        assert in_row(one, "alive") == (alive.holder.name, 3, 1e12)
        assert freed.wait(60)


def until(is_so: Callable[[], bool]) -> None:
    late = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < late
        time.sleep(0.002)


@PLACES
def test_end_gives_the_tasks_back_and_tells_others(
    tmp_path: Path, is_file: bool
) -> None:
    told: list[str] = []
    with opened(tmp_path / "t.db", lambda ids, _: told.extend(ids)) as other:
        with opened(place(tmp_path, is_file)) as one:
            one.submit(hold("a", one.holder.name)).result(60)
        if is_file:
            until(lambda: in_row(other, "a")[0] is None)
            assert in_row(other, "a") == (None, 4, 0.0)
            until(lambda: told.count("a") >= 1)


def test_task_that_could_not_be_given_back_is_given_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    with opened(tmp_path / "t.db") as one:
        for id_ in ("a", "b"):
            one.submit(hold(id_, one.holder.name)).result(60)
        one.submit(lambda db: one.loose.update({("a", 3), ("b", 2)})).result(60)
        until(lambda: not one.loose)
        assert in_row(one, "a") == (None, 4, 0.0)
        assert in_row(one, "b") == (one.holder.name, 3, 1e12)  # taken again since


def test_sweep_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    with opened(tmp_path / "t.db") as one:
        one.submit(hold("a", one.holder.name)).result(60)
        failing = Replaced(one._writer, "COMMIT", "COMMIT")

        def replace(db: sqlite3.Connection) -> None:
            one._writer = failing  # type: ignore[assignment]
            one.loose.add(("a", 3))

        one.submit(replace).result(60)
        until(lambda: not one.loose)
        assert not failing.failing
        assert in_row(one, "a")[0] is None


@PLACES
def test_old_tasks_are_removed_with_their_mail_some_at_a_time(
    tmp_path: Path, is_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SWEEP", 0.001)
    monkeypatch.setattr(connections, "_MOST", 2)
    with opened(place(tmp_path, is_file)) as one:

        def write(db: sqlite3.Connection) -> None:
            for id_ in "abcdef":
                insert(id_)(db)
                db.execute(
                    "UPDATE tasks SET purge = ? WHERE id = ?",
                    (1e12 if id_ == "f" else 1.0, id_),
                )
                db.execute(
                    "INSERT INTO mail (task, id, kind, key, value)"
                    " VALUES (?, 'x', 'cancel', '', x'')",
                    (id_,),
                )

        one.submit(write).result(60)
        until(lambda: ids(one) == ["f"])
        found = one.read(lambda db: db.execute("SELECT task FROM mail").fetchall())
        assert found == [("f",)]


def test_process_looks_for_changes_of_others(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as one:
        assert one._pause() == connections._LOOK


def test_memory_without_tasks_needs_no_look() -> None:
    with opened(None) as one:
        assert one._pause() is None
        one.submit(insert("a")).result(60)
        until(lambda: one._pause() == connections._SWEEP)


def test_connections_that_cannot_be_opened_leave_nothing_open(tmp_path: Path) -> None:
    """A warning about an open connection would be an error here."""
    (tmp_path / "t.db-holders").write_text("a file")
    with pytest.raises(Exception, match="no file can be locked"):
        Connections(tmp_path / "t.db", ignore)
