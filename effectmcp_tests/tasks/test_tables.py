from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from effectmcp import UsageError
from effectmcp.tasks import tables
from effectmcp.tasks.tables import VERSION, connected, is_busy


def plain(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


def test_new_file_is_private_logged_ahead_and_synced(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(connected(path)) as db:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for pragma, wanted in {
            "journal_mode": "wal",
            "synchronous": 2,  # FULL
            "foreign_keys": 1,
            "user_version": VERSION,
        }.items():
            assert db.execute(f"PRAGMA {pragma}").fetchone() == (wanted,)
    with closing(connected(path)) as db:
        assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def test_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.touch()
    connected(path).close()
    connected(path).close()


def test_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(connected(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(UsageError, match="written by a newer version"):
        connected(path)


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE books (id)"],
        ["CREATE TABLE tasks (id)", "PRAGMA user_version = 1"],
        ["PRAGMA user_version = 1"],
        ["PRAGMA application_id = 1"],
    ],
)
def test_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, statements: list[str]
) -> None:
    path = tmp_path / "t.db"
    with plain(path) as db:
        for one in statements:
            db.execute(one)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="a database of something else"):
        connected(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" * 9])
def test_file_that_is_not_a_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be opened as a store of tasks"):
        connected(path)


def test_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        connected(tmp_path / "missing" / "t.db")


class Faulty(sqlite3.Connection):
    """A connection whose statements have other outcomes."""

    outcomes: dict[str, Any] = {}

    def execute(self, sql: str, *args: Any) -> Any:
        for begin, outcome in self.outcomes.items():
            if sql.startswith(begin):
                made = outcome()
                if isinstance(made, Exception):
                    raise made
                if made is not None:
                    return made
        return super().execute(sql, *args)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> type[Faulty]:
    real = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        return real(*args, factory=Faulty, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", connect)
    monkeypatch.setattr(Faulty, "outcomes", {})
    return Faulty


def busy(code: int = sqlite3.SQLITE_BUSY) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = code
    return error


def test_switch_to_wal_is_tried_again_while_others_open_the_file(
    tmp_path: Path, faulty: type[Faulty]
) -> None:
    """SQLite does not wait for the lock there: it would be two that wait."""
    left = [busy(), busy(sqlite3.SQLITE_BUSY | 2 << 8)]
    faulty.outcomes["PRAGMA journal_mode"] = lambda: left.pop() if left else None
    connected(tmp_path / "t.db").close()
    assert not left


@pytest.mark.parametrize(
    ("error", "busy_time"), [(busy(), 0), (sqlite3.OperationalError("disk"), 10_000)]
)
def test_switch_to_wal_that_fails_is_refused(
    tmp_path: Path,
    faulty: type[Faulty],
    monkeypatch: pytest.MonkeyPatch,
    error: sqlite3.OperationalError,
    busy_time: int,
) -> None:
    monkeypatch.setattr(tables, "BUSY", busy_time)
    faulty.outcomes["PRAGMA journal_mode"] = lambda: error
    with pytest.raises(UsageError, match="cannot be opened") as caught:
        connected(tmp_path / "t.db")
    assert caught.value.__cause__ is error


def test_file_system_without_shared_memory_is_refused(
    tmp_path: Path, faulty: type[Faulty]
) -> None:
    with closing(sqlite3.connect(":memory:")) as other:
        found = other.execute("SELECT 'delete'")
        faulty.outcomes["PRAGMA journal_mode"] = lambda: found
        with pytest.raises(UsageError, match="without shared memory"):
            connected(tmp_path / "t.db")


def test_creation_that_fails_leaves_no_half(
    tmp_path: Path, faulty: type[Faulty]
) -> None:
    path = tmp_path / "t.db"
    left = [sqlite3.OperationalError("disk is full")]
    faulty.outcomes["PRAGMA user_version ="] = lambda: left.pop() if left else None
    with pytest.raises(UsageError, match="disk is full"):
        connected(path)
    with plain(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connected(path).close()


def test_processes_may_create_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def open_() -> None:
        barrier.wait()
        try:
            connected(path).close()
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=open_) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures


def test_is_busy() -> None:
    assert is_busy(busy())
    assert is_busy(busy(sqlite3.SQLITE_BUSY_SNAPSHOT))
    assert not is_busy(busy(sqlite3.SQLITE_FULL))
    assert not is_busy(sqlite3.OperationalError("of Python's own"))


def test_file_that_another_process_has_just_created_is_left_alone(
    tmp_path: Path,
) -> None:
    with closing(connected(tmp_path / "t.db")) as db:
        tables._create(db, "t.db")
        assert not db.in_transaction
