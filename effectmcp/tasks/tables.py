"""The tables of `SqliteTasks`, and the files that have them.

A file is marked by its `application_id`, so that a database of another program is not
touched. Its `user_version` is the version of the tables.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import UsageError
from . import uses

__all__ = ["VERSION", "connected", "is_busy"]

#: The version of the tables. Files of older versions are migrated, newer ones refused.
VERSION: Final = 2

#: "efft": marks a file as ours.
_APPLICATION: Final = 0x65666674

#: Milliseconds to wait for another process's write.
BUSY: Final = 10_000

# Not STRICT, which SQLite 3.34 of RHEL 9 does not have.
_TASKS: Final = """
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    owner TEXT,
    is_ended INTEGER NOT NULL,
    wake REAL,
    purge REAL,
    changed INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    holder TEXT,
    data BLOB NOT NULL,
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
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (task, id)
);
CREATE TABLE changes (last INTEGER NOT NULL);
INSERT INTO changes VALUES (0);
"""

_OWNED: Final = "CREATE INDEX tasks_by_owner_and_id ON tasks (owner, id);"

#: What each version added. Tables of an older version are as all up to it.
_VERSIONS: Final = (_TASKS, uses.TABLES + _OWNED)


def connected(path: Path | None) -> sqlite3.Connection:
    """Return a new connection to a file, which is created if needed, or to memory.

    Raises:
        UsageError: If the file is not a store of tasks, is of a newer version, or
            cannot be opened.
    """
    name = ":memory:" if path is None else str(path)
    try:
        if path is not None:
            # Answers and results are in it: for this user only. Only if it is new, as
            # closing a second descriptor would drop the locks of SQLite in this process.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = sqlite3.connect(
            name, timeout=BUSY / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(db, name, is_file=path is not None)
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError) as exc:
        raise UsageError(f"{name} cannot be opened as a store of tasks: {exc}") from exc
    return db


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection held the lock for too long."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY


def _prepare(db: sqlite3.Connection, name: str, *, is_file: bool) -> None:
    # Before anything is written: a database of something else is not ours to change.
    is_ready = _is_ready(db, name)
    if is_file:
        _use_wal(db, name)
        db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    if not is_ready:
        _create(db, name)


def _is_ready(db: sqlite3.Connection, name: str) -> bool:
    """Return whether the tables exist, in this version.

    Raises:
        UsageError: If there are other ones.
    """
    # One statement: between two, another process may create the tables.
    application, version, count = db.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application == _APPLICATION:
        if version > VERSION:
            raise UsageError(
                f"{name} was written by a newer version of effectmcp (tables of version"
                f" {version}, this one knows {VERSION}): upgrade this one"
            )
        return bool(version == VERSION)
    if application or version or count:
        raise UsageError(f"{name} is a database of something else")
    return False


def _use_wal(db: sqlite3.Connection, name: str) -> None:
    """Switch to a write-ahead log: readers and the writer do not wait for each other."""
    until = time.monotonic() + BUSY / 1000
    while True:
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as exc:
            # If several processes open a new file at once, SQLite lets only one wait for
            # the lock: two would wait for each other.
            if not is_busy(exc) or time.monotonic() > until:
                raise
            time.sleep(0.005)
            continue
        if mode == "wal":
            return
        raise UsageError(
            f"{name} is on a file system without shared memory, which SQLite needs to"
            " share a file between processes: put it on a disk of this machine"
        )


def _create(db: sqlite3.Connection, name: str) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ready(db, name):  # another process may have been faster
            (version,) = db.execute("PRAGMA user_version").fetchone()
            for tables in _VERSIONS[version:]:
                for statement in _statements(tables):
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _statements(text: str) -> Iterator[str]:
    # Not `executescript`, which would commit. A trigger has semicolons inside.
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
