"""Tasks in SQLite: one file for all processes of a machine, or the memory of one.

    app.tasks = SqliteTasks("tasks.db")

Nothing needs to be set up. All writes go through one thread, which puts the writes that
have piled up into one transaction: turns that run side by side share the disk's work. A
write is acknowledged when it is on disk (`synchronous=FULL`).

Who runs a task is written in its row, as the name of a *holder*: a process that works.
A holder has a file that it keeps locked as long as it lives. The kernel unlocks the file
when the process dies, however it dies, and then others take its tasks over. A process
that is frozen keeps its tasks. Each taking raises the row's *fence*, and a save with an
older fence is refused.
"""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from attrs import frozen

from ..canonical import dumps, loads
from ..errors import TaskLimitError, TaskStoreError, UsageError
from ..exchange.task_rows import Mail, TaskRow
from .holders import Holder, check_local

__all__ = ["Lease", "SqliteTasks", "TakenOverError"]

logger = logging.getLogger("effectmcp.tasks")

#: The version of the tables. Files of older versions are migrated, newer ones refused.
VERSION: Final = 1

_TABLES: Final = """
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
) STRICT, WITHOUT ROWID;
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
) STRICT;
"""

#: Seconds between two looks at what other processes have changed, while turns run here.
_BESIDE: Final = 0.01
#: The same, while none runs.
_IDLE: Final = 0.05
#: Seconds between two looks for holders that died, and for tasks to remove.
_SWEEP: Final = 0.5
#: Milliseconds to wait for another process's write.
_BUSY: Final = 10_000


class TakenOverError(TaskStoreError):
    """Raised when another process has taken the task over since."""


@frozen
class Lease:
    """The right to run a task's next turn.

    Attributes:
        row: The task.
        fence: The number that its saves must show.
    """

    row: TaskRow
    fence: int


T = TypeVar("T")
Write: TypeAlias = Callable[[sqlite3.Connection], Any]


class SqliteTasks:
    """A `TaskHost` whose turns run in processes of this machine.

    Args:
        path: The file, which is created if needed; `None` to keep tasks in the memory of
            this process.
        ttl: Seconds that a task lives if its tool says nothing else.
        poll_interval: Seconds between two polls of a client, unless its tool says.
        retention: Seconds that a task is kept after it has ended, at least.
        limit: The most tasks that may be alive at once.
        share: The most of them that one user may have; all anonymous clients are one.
        is_worked: Whether turns run somewhere. Transports with a loop set it; set it
            yourself for a server without one if an `effectmcp worker` runs.

    Raises:
        UsageError: If the file is not a store of tasks, is of a newer version, or is on
            a network file system.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        ttl: float = 24 * 3600,
        poll_interval: float = 1.0,
        retention: float = 3600,
        limit: int = 100_000,
        share: int = 1_000,
        is_worked: bool = False,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.ttl = ttl
        self.poll_interval = poll_interval
        self.retention = retention
        self.limit = limit
        self.share = share
        self.is_worked = is_worked
        self._listeners: dict[object, tuple[Callable[[str], None], bool]] = {}
        self._opening = threading.Lock()
        self._opened: _Opened | None = None
        self._is_warned = False

    def __repr__(self) -> str:
        return f"SqliteTasks({'' if self.path is None else str(self.path)!r})"

    # ---- a `TaskHost` ---------------------------------------------------------------

    def create(self, row: TaskRow) -> TaskRow:
        """Store a new task durably; return it, or the task that has this id already."""

        def write(db: sqlite3.Connection) -> TaskRow:
            known = _row_of(db, row.id)
            if known is not None:
                return known
            self._check_limits(db, row)
            db.execute(
                "INSERT INTO tasks VALUES (?, ?, 0, ?, NULL, ?, 0, NULL, ?, ?)",
                (
                    row.id,
                    row.owner,
                    row.wake,
                    _next_change(db),
                    row.dumps(),
                    row.journal,
                ),
            )
            return row

        stored: TaskRow = self._write(write)
        if self.path is None and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "tasks are kept in memory, so they do not outlive this process. Give"
                " Server(tasks=SqliteTasks(path)), or --tasks PATH, to keep them"
            )
        return stored

    def read(self, id_: str) -> TaskRow | None:
        """Return a task, without the questions that mail has answered; `None` if unknown."""

        def read(db: sqlite3.Connection) -> TaskRow | None:
            row = _row_of(db, id_)
            if row is None or not row.questions:
                return row
            found = db.execute(
                "SELECT key FROM mail WHERE task = ? AND kind = 'answer'", (id_,)
            )
            return row.without([key for (key,) in found])

        return self._read(read)

    def post(self, id_: str, mail: Sequence[Mail]) -> None:
        """Store mail durably, and wake the task."""

        def write(db: sqlite3.Connection) -> None:
            news = 0
            for one in mail:
                news += db.execute(
                    "INSERT OR IGNORE INTO mail (task, id, kind, key, value)"
                    " SELECT ?, ?, ?, ?, ? WHERE EXISTS"
                    " (SELECT 1 FROM tasks WHERE id = ? AND NOT is_ended)",
                    (id_, one.id, one.kind, one.key, dumps(one.value), id_),
                ).rowcount
            if news:
                db.execute(
                    "UPDATE tasks SET wake = 0, changed = ? WHERE id = ?",
                    (_next_change(db), id_),
                )

        self._write(write)

    def watch(
        self, listener: Callable[[str], None], *, own_saves: bool = True
    ) -> Callable[[], None]:
        """Call `listener` with the id of each task that changes; return what ends this.

        Args:
            listener: It is called in any thread, and must not wait.
            own_saves: Whether to call it for the saves of turns of this process.
        """
        key = object()
        self._listeners[key] = listener, own_saves
        self._store()

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def find(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[TaskRow]:
        """Return the tasks whose ids start so, or all: the newest first."""
        starts = tuple(ids)

        def read(db: sqlite3.Connection) -> list[TaskRow]:
            found = db.execute(
                "SELECT id, data, journal FROM tasks ORDER BY changed DESC"
            )
            rows = []
            for id_, data, journal in found:
                if not starts or id_.startswith(starts):
                    rows.append(TaskRow.loads(data, journal))
                    if len(rows) == limit:
                        break
            return rows

        return self._read(read)

    # ---- for workers ----------------------------------------------------------------

    def claim(self, n: int) -> list[Lease]:
        """Take up to `n` tasks whose next turn is due."""
        return self.claiming(n).result() if self.is_due() else []

    def is_due(self) -> bool:
        """Return whether there is a free task whose next turn is due."""
        wake = self.next_wake()
        return wake is not None and wake <= time.time()

    def claiming(self, n: int) -> Future[list[Lease]]:
        """Begin to do as `claim` does."""
        store = self._store()

        def write(db: sqlite3.Connection) -> list[Lease]:
            due = db.execute(
                "SELECT id, fence, data, journal FROM tasks WHERE wake <= ?"
                " AND wake IS NOT NULL AND holder IS NULL ORDER BY wake LIMIT ?",
                (time.time(), n),
            ).fetchall()
            leases = []
            for id_, fence, data, journal in due:
                try:
                    row = TaskRow.loads(data, journal)
                except TaskStoreError:
                    # Written by a newer version: leave it to that one, for now.
                    logger.warning("task %s is left to a newer version", id_)
                    db.execute(
                        "UPDATE tasks SET wake = ? WHERE id = ?",
                        (time.time() + 60, id_),
                    )
                    continue
                db.execute(
                    "UPDATE tasks SET holder = ?, fence = ? WHERE id = ?",
                    (store.holder.name, fence + 1, id_),
                )
                leases.append(Lease(row, fence + 1))
            store.leases += len(leases)
            return leases

        return store.submit(write, is_lasting=False)

    def mail(self, lease: Lease, after: int) -> tuple[list[Mail], int]:
        """Return the mail of a task after a number, and the number of the last of it."""

        def read(db: sqlite3.Connection) -> tuple[list[Mail], int]:
            found = db.execute(
                "SELECT number, id, kind, key, value FROM mail"
                " WHERE task = ? AND number > ? ORDER BY number",
                (lease.row.id, after),
            ).fetchall()
            last = found[-1][0] if found else after
            mail = [
                Mail(id_, kind, key, loads(value)) for _, id_, kind, key, value in found
            ]
            return mail, last

        return self._read(read)

    def save(
        self,
        lease: Lease,
        row: TaskRow,
        dropped: Sequence[str],
        read: int,
        then: Callable[[Future[bool]], None],
    ) -> None:
        """Store the next row of a task; call `then` when it is on disk, or failed.

        The result is whether there is mail that the turn has not read.

        Args:
            lease: The lease.
            row: The row.
            dropped: The ids of mail that the row covers.
            read: The number of the last mail that the turn has read. Later mail wakes
                the task at once.
            then: Called in the thread that writes.
        """

        def write(db: sqlite3.Connection) -> bool:
            id_ = row.id
            for one in dropped:
                db.execute("DELETE FROM mail WHERE task = ? AND id = ?", (id_, one))
            later = db.execute(
                "SELECT 1 FROM mail WHERE task = ? AND number > ? LIMIT 1", (id_, read)
            ).fetchone()
            if row.is_ended:
                db.execute("DELETE FROM mail WHERE task = ?", (id_,))
                later = None
            number = _next_change(db)
            changed = db.execute(
                "UPDATE tasks SET is_ended = ?, wake = ?, purge = ?, changed = ?,"
                " data = ?, journal = ? WHERE id = ? AND fence = ? AND holder = ?",
                (
                    row.is_ended,
                    0.0 if later else row.wake,
                    self._purge_of(row),
                    number,
                    row.dumps(),
                    row.journal,
                    id_,
                    lease.fence,
                    store.holder.name,
                ),
            ).rowcount
            if not changed:
                raise TakenOverError(f"task {id_} has been taken over")
            store.own_saves.add(number)
            return later is not None

        store = self._store()
        store.submit(write).add_done_callback(then)

    def release(self, lease: Lease, then: Callable[[], None]) -> None:
        """Give a task back; whoever comes first may run its next turn. Do not wait.

        Args:
            lease: The lease.
            then: Called in the thread that writes, when that is done, or has failed.
        """
        store = self._store()

        def write(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE tasks SET holder = NULL WHERE id = ? AND fence = ? AND holder = ?",
                (lease.row.id, lease.fence, store.holder.name),
            )
            store.leases -= 1

        store.submit(write, is_lasting=False).add_done_callback(lambda _: then())

    def next_wake(self) -> float | None:
        """Return when the next turn of a free task is due; `None` for never."""
        return self._read(_next_wake)

    def close(self) -> None:
        """Stop the writing thread, and give all tasks of this process back."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None and opened.pid == os.getpid():
            opened.close()

    # ---- inside ---------------------------------------------------------------------

    def _store(self) -> _Opened:
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            with self._opening:
                opened = self._opened
                if opened is None or opened.pid != os.getpid():
                    opened = self._opened = _Opened(self.path, self._tell)
        return opened

    def _write(self, write: Write) -> Any:
        return self._store().submit(write).result()

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return self._store().read(read)

    def _tell(self, changes: Iterable[tuple[str, bool]]) -> None:
        for id_, is_own_save in changes:
            for listener, own_saves in self._listeners.copy().values():
                if is_own_save and not own_saves:
                    continue
                try:
                    listener(id_)
                except Exception:
                    logger.exception("a listener failed on task %s", id_)

    def _purge_of(self, row: TaskRow) -> float | None:
        if not row.is_ended:
            return None
        kept = row.updated + self.retention
        return kept if row.expires is None else max(kept, row.expires)

    def _check_limits(self, db: sqlite3.Connection, row: TaskRow) -> None:
        (mine,) = db.execute(
            "SELECT count(*) FROM tasks WHERE owner IS ? AND NOT is_ended", (row.owner,)
        ).fetchone()
        if mine >= self.share:
            raise TaskLimitError("you have too many tasks; wait until some have ended")
        (all_,) = db.execute("SELECT count(*) FROM tasks WHERE NOT is_ended").fetchone()
        if all_ >= self.limit:
            raise TaskLimitError("there are too many tasks; come back later")


def _row_of(db: sqlite3.Connection, id_: str) -> TaskRow | None:
    found = db.execute(
        "SELECT data, journal FROM tasks WHERE id = ?", (id_,)
    ).fetchone()
    return None if found is None else TaskRow.loads(*found)


def _next_change(db: sqlite3.Connection) -> int:
    (last,) = db.execute("SELECT max(changed) FROM tasks").fetchone()
    return (last or 0) + 1


def _next_wake(db: sqlite3.Connection) -> float | None:
    (wake,) = db.execute(
        "SELECT min(wake) FROM tasks WHERE wake IS NOT NULL AND holder IS NULL"
    ).fetchone()
    return wake  # type: ignore[no-any-return]  # a REAL, or NULL


@frozen
class _Submitted:
    """A write that waits for the next transaction."""

    write: Write
    future: Future[Any]
    is_lasting: bool


class _Opened:
    """The connections of one process, and its writing thread.

    Attributes:
        pid: The process.
        holder: The name of this process in rows.
        leases: The number of tasks whose turn runs here.
        own_saves: The changes that are saves of these turns, until they are told.
    """

    def __init__(
        self, path: Path | None, tell: Callable[[Iterable[tuple[str, bool]]], None]
    ) -> None:
        self.pid = os.getpid()
        self._tell = tell
        self._queue: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        if path is not None:
            check_local(path)
        self._writer = _connected(path)
        # In memory, there is one connection for everything, which the lock keeps to one
        # thread at a time.
        self._lock = threading.Lock()
        self._reader = self._writer if path is None else _connected(path)
        self._reading = self._lock if path is None else threading.Lock()
        self.holder = Holder(path)
        self._is_shared = path is not None
        (last,) = self._writer.execute("SELECT max(changed) FROM tasks").fetchone()
        self._told = last or 0
        self._swept = 0.0
        self.leases = 0
        self.own_saves: set[int] = set()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="effectmcp-tasks", daemon=True
        )
        self._thread.start()

    # ---- for any thread ----

    def submit(self, write: Write, *, is_lasting: bool = True) -> Future[Any]:
        """Have the thread write something; the future ends when that is done.

        Args:
            write: It is called in a transaction.
            is_lasting: Whether to wait until it is on disk. Who holds a task need not be
                there: if the machine fails, all holders die.
        """
        future: Future[Any] = Future()
        if self._is_closed:
            future.set_exception(TaskStoreError("the store of tasks is closed"))
        else:
            self._queue.put(_Submitted(write, future, is_lasting))
        return future

    def read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `read` finds."""
        with self._reading:
            try:
                return read(self._reader)
            except sqlite3.Error as exc:
                raise TaskStoreError(f"the tasks cannot be read: {exc}") from exc

    def close(self) -> None:
        """End the thread after all that it has been given."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    # ---- the thread ----

    def _run(self) -> None:
        is_over = False
        while not is_over:
            batch = self._next_batch()
            if batch and batch[-1] is None:
                batch.pop()
                is_over = True
            writes = [one for one in batch if one is not None]
            if writes:
                self._commit(writes)
            try:
                self._look()
            except sqlite3.Error as exc:
                logger.warning("the tasks cannot be read: %s", exc)
        self._end()

    def _next_batch(self) -> list[_Submitted | None]:
        """Wait for writes, or for the time to look at other processes' writes."""
        batch: list[_Submitted | None] = []
        with suppress(queue.Empty):
            batch.append(self._queue.get(timeout=self._pause()))
            while batch[-1] is not None:
                batch.append(self._queue.get_nowait())
        return batch

    def _pause(self) -> float | None:
        if not self._is_shared:
            # Nothing changes in memory without a write, and tasks end after the first.
            return _SWEEP if self._told else None
        return _BESIDE if self.leases > 0 else _IDLE

    def _commit(self, writes: list[_Submitted]) -> None:
        """Write all in one transaction; a write that fails takes no other with it."""
        done: list[tuple[Future[Any], Any, BaseException | None]] = []
        with self._lock:
            db = self._writer
            try:
                is_lasting = any(one.is_lasting for one in writes)
                db.execute(f"PRAGMA synchronous = {'FULL' if is_lasting else 'NORMAL'}")
                db.execute("BEGIN IMMEDIATE")
                for one in writes:
                    db.execute("SAVEPOINT one")
                    try:
                        done.append((one.future, one.write(db), None))
                    except sqlite3.OperationalError:
                        raise  # the disk, or the lock: nothing of this can be kept
                    except Exception as exc:
                        db.execute("ROLLBACK TO one")
                        done.append((one.future, None, exc))
                    db.execute("RELEASE one")
                db.execute("COMMIT")
            except sqlite3.Error as exc:
                if db.in_transaction:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                error = TaskStoreError(f"the tasks cannot be stored: {exc}")
                error.__cause__ = exc
                done = [(one.future, None, error) for one in writes]
                self.own_saves.clear()  # other processes will use these numbers
        for future, value, failure in done:
            if failure is None:
                future.set_result(value)
            else:
                future.set_exception(failure)

    def _look(self) -> None:
        """Tell what has changed, here or in other processes; sweep now and then."""
        with self._reading:
            changes = self._changed()
        self.own_saves.clear()
        self._tell(changes)
        now = time.monotonic()
        if now >= self._swept + _SWEEP:
            self._swept = now
            self._commit([_Submitted(self._sweep, Future(), is_lasting=False)])

    def _changed(self) -> list[tuple[str, bool]]:
        found = self._reader.execute(
            "SELECT id, changed FROM tasks WHERE changed > ? ORDER BY changed",
            (self._told,),
        ).fetchall()
        if found:
            self._told = found[-1][1]
        return [(id_, number in self.own_saves) for id_, number in found]

    def _sweep(self, db: sqlite3.Connection) -> None:
        """Take over from holders that died, and remove tasks that ended long ago."""
        others = db.execute(
            "SELECT DISTINCT holder FROM tasks WHERE holder IS NOT NULL AND holder != ?",
            (self.holder.name,),
        ).fetchall()
        for (name,) in others:
            if self.holder.is_dead(name):
                logger.warning("the tasks of the dead process %s are taken over", name)
                db.execute(
                    "UPDATE tasks SET holder = NULL, fence = fence + 1, wake = 0,"
                    " changed = ? WHERE holder = ?",
                    (_next_change(db), name),
                )
        db.execute(
            "DELETE FROM tasks WHERE purge IS NOT NULL AND purge <= ?", (time.time(),)
        )

    def _end(self) -> None:
        with self._lock:
            with suppress(sqlite3.Error):
                self._writer.execute(
                    "UPDATE tasks SET holder = NULL, fence = fence + 1, wake = 0"
                    " WHERE holder = ?",
                    (self.holder.name,),
                )
            self._writer.close()
        with self._reading:
            self._reader.close()
        self.holder.close()


def _connected(path: Path | None) -> sqlite3.Connection:
    name = ":memory:" if path is None else str(path)
    try:
        if path is not None:
            # Answers and results are in it: for this user only. Only if it is new, as
            # closing a second descriptor would drop the locks of SQLite in this process.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = sqlite3.connect(
            name, timeout=_BUSY / 1000, isolation_level=None, check_same_thread=False
        )
        if path is not None:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        _migrate(db, name)
    except (sqlite3.Error, OSError) as exc:
        raise UsageError(f"{name} cannot be opened as a store of tasks: {exc}") from exc
    return db


def _migrate(db: sqlite3.Connection, name: str) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise UsageError(
                f"{name} was written by a newer version of effectmcp (tables of version"
                f" {version}, this one knows {VERSION}): upgrade this one"
            )
        if version == 0:
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise UsageError(f"{name} is a database of something else")
            for statement in _TABLES.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
