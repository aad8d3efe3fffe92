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

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

from attrs import frozen

from ..canonical import dumps, loads
from ..errors import CanonicalError, TaskLimitError, TaskRowError, TaskStoreError
from ..exchange.ledger import Taken, Taking, Use
from ..exchange.task_rows import Mail, TaskRow
from ..logs import logger_for
from . import uses as table
from .connections import Connections, Write, next_change
from .stores import Stored

__all__ = ["Lease", "SqliteTasks", "TakenOverError"]

logger = logger_for("effectmcp.tasks")

#: Seconds after which a damaged task is read again.
_LATER: Final = 60.0
#: Behind all ids that begin alike.
_LAST: Final = "\U0010ffff"

T = TypeVar("T")


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


class SqliteTasks:
    """A `TaskHost` whose turns run in processes of this machine.

    Args:
        path: The file, which is created if needed; `None` to keep tasks in the memory of
            this process.
        ttl: Seconds from the creation of a task until it expires, unless its tool sets
            it.
        poll_interval: Seconds between two polls of a client, unless its tool sets it.
        retention: Seconds that a task is kept after it has ended, at least.
        limit: The most tasks that may be alive at once.
        share: The most of them that one user may have; all anonymous clients are one.
        uses: The most bytes for requests that count once, and their replies. Each counts
            for 1 KiB more than its reply. By default 1 GiB, and 64 MiB in memory.
        uses_share: The most bytes of one user; by default a quarter of that.
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
        uses: int | None = None,
        uses_share: int | None = None,
        is_worked: bool = False,
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        self.ttl = ttl
        self.poll_interval = poll_interval
        self.retention = retention
        self.limit = limit
        self.share = share
        most = 2**26 if path is None else 2**30
        self.uses = most if uses is None else uses
        self.uses_share = self.uses // 4 if uses_share is None else uses_share
        self.is_worked = is_worked
        self._listeners: dict[object, tuple[Callable[[str], None], bool]] = {}
        self._opening = threading.Lock()
        self._opened: Connections | None = None
        self._is_warned = False
        _alive.add(self)

    def __repr__(self) -> str:
        return f"SqliteTasks({'' if self.path is None else repr(str(self.path))})"

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
                    next_change(db),
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
            return None if row is None else _unanswered(db, row)

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
                    (next_change(db), id_),
                )

        self._write(write)

    def watch(
        self, listener: Callable[[str], None], *, is_worker: bool = False
    ) -> Callable[[], None]:
        """Call `listener` with the id of each task that changes; return what ends this.

        Args:
            listener: It is called in any thread, and must not wait.
            is_worker: Whether it needs no call for the saves of this process.
        """
        self._store()
        key = object()
        self._listeners[key] = listener, is_worker

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def find(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[TaskRow]:
        """Return the tasks whose ids start so, or all: the newest first.

        Tasks that this version cannot read are left out.
        """
        return [one.row for one in self.look_up(ids, limit=limit)]

    def look_up(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[Stored]:
        """Return the same as `find`, with what the store knows of each task."""
        starts = tuple(ids) or ("",)

        def read(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            found = {
                task[0]: task
                for start in starts
                for task in db.execute(
                    "SELECT id, changed, data, journal, holder FROM tasks"
                    " WHERE id >= ? AND id < ? ORDER BY changed DESC LIMIT ?",
                    (start, start + _LAST, limit),
                )
            }
            newest = sorted(found.values(), key=lambda task: task[1], reverse=True)
            return [(*task, _mail_of(db, task[0])) for task in newest[:limit]]

        stored: list[Stored] = []
        for id_, _, data, journal, holder, mail in self._read(read):
            row = _readable(id_, data, journal)
            if row is not None:
                row = row.without([key for kind, key in mail if kind == "answer"])
                stored.append(Stored(row, holder, tuple(kind for kind, _ in mail)))
        return stored

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        """Return tasks of a user in the order of their ids, as `read` does."""

        def read(db: sqlite3.Connection) -> list[TaskRow]:
            found = db.execute(
                "SELECT id, data, journal FROM tasks WHERE owner = ? AND id > ?"
                " ORDER BY id",
                (owner, after),
            )
            rows = (row for one in found if (row := _readable(*one)) is not None)
            return [_unanswered(db, row) for row in islice(rows, limit)]

        return self._read(read)

    def open(self) -> None:
        """Open the file now; otherwise the first use does.

        Raises:
            UsageError: If it cannot be used.
        """
        self._store()

    # ---- a `Ledger` -----------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether other processes share it."""
        return self.path is not None

    def take(self, use: Use) -> Taking:
        """Take the slots of a request that counts once, durably."""
        store = self._store()
        taking: Taking = store.count(
            partial(
                table.take,
                use=use,
                holder=store.holder.name,
                budget=self.uses,
                share=self.uses_share,
            )
        ).result()
        return taking

    def keep(self, taken: Taken, reply: bytes) -> None:
        """Store the reply of a request durably; if that fails, store it later."""
        store = self._store()
        kept = store.count(partial(table.keep, taken=taken, reply=reply))
        try:
            kept.result()
        except TaskStoreError:
            store.late[taken] = reply
            raise

    def leave(self, taken: Taken) -> None:
        """Note that a request was cut off. Do not wait."""
        store = self._opened
        if store is None:  # `close` has freed all slots
            return
        if taken in store.late:
            return  # its reply is kept later
        late = {taken: None}

        def ended(future: Future[None]) -> None:
            if future.exception() is not None:
                store.late.setdefault(taken, None)

        freed = store.count(partial(table.settle, late=late), is_durable=False)
        freed.add_done_callback(ended)

    # ---- for workers ----------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether there is a free task whose next turn is due."""
        return self._read(_has_due)

    def claim(self, n: int) -> Future[list[Lease]]:
        """Take up to `n` tasks whose next turn is due. Do not wait."""
        store = self._store()
        taken: set[tuple[str, int]] = set()

        def write(db: sqlite3.Connection) -> list[Lease]:
            taken.clear()
            now = time.time()
            due = db.execute(
                "SELECT id, fence, data, journal FROM tasks WHERE wake <= ?"
                " AND wake IS NOT NULL AND holder IS NULL ORDER BY wake LIMIT ?",
                (now, n),
            ).fetchall()
            leases = []
            for id_, fence, data, journal in due:
                row = _readable(id_, data, journal)
                if row is None:
                    db.execute(
                        "UPDATE tasks SET wake = ? WHERE id = ?", (now + _LATER, id_)
                    )
                    continue
                db.execute(
                    "UPDATE tasks SET holder = ?, fence = ? WHERE id = ?",
                    (store.holder.name, fence + 1, id_),
                )
                taken.add((id_, fence + 1))
                leases.append(Lease(row, fence + 1))
            return leases

        def ended(future: Future[list[Lease]]) -> None:
            # If it failed, who knows whether it has been written.
            known = store.held if future.exception() is None else store.loose
            known.update(taken)

        # After a loss of power, no process lives that could hold a task.
        future = store.submit(write, is_durable=False)
        future.add_done_callback(ended)
        return future

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
            then: Called in the thread that writes. The future's error is a
                `TaskStoreError`; a `TaskRowError` if no further try can help.
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
            try:
                changed = db.execute(
                    "UPDATE tasks SET is_ended = ?, wake = ?, purge = ?, changed = ?,"
                    " data = ?, journal = ? WHERE id = ? AND fence = ? AND holder = ?",
                    (
                        row.is_ended,
                        0.0 if later else row.wake,
                        row.kept_until(self.retention) if row.is_ended else None,
                        next_change(db),
                        row.dumps(),
                        row.journal,
                        id_,
                        lease.fence,
                        store.holder.name,
                    ),
                ).rowcount
            except (CanonicalError, OverflowError, sqlite3.DataError) as exc:
                # JSON cannot carry it, or it is too large for SQLite.
                raise TaskRowError(f"the task cannot be stored: {exc}") from exc
            if not changed:
                raise TakenOverError(f"task {id_} has been taken over")
            return later is not None

        store = self._store()
        store.submit(write, saved=row.id).add_done_callback(then)

    def release(
        self, lease: Lease, then: Callable[[], None], *, is_cut_off: bool = False
    ) -> None:
        """Give a task back, so that its next turn may run anywhere. Do not wait.

        Args:
            lease: The lease.
            then: Called in the thread that writes, when that is done, or has failed.
            is_cut_off: Whether the turn did not come to its end. Then the next one is
                due at once, as its mail and its outcomes may have been lost.
        """
        store = self._opened
        if store is None:  # `close` has given all back
            then()
            return
        key = lease.row.id, lease.fence
        name = store.holder.name

        def write(db: sqlite3.Connection) -> None:
            if is_cut_off:
                db.execute(
                    "UPDATE tasks SET wake = 0 WHERE id = ? AND fence = ? AND holder = ?"
                    " AND NOT is_ended",
                    (*key, name),
                )
            is_due = db.execute(
                "UPDATE tasks SET holder = NULL WHERE id = ? AND fence = ?"
                " AND holder = ?",
                (*key, name),
            ).rowcount and _has_due(db)
            if is_due:
                # Other processes have not noticed, as the task was not free until now.
                db.execute(
                    "UPDATE tasks SET changed = ? WHERE id = ?",
                    (next_change(db), lease.row.id),
                )

        def ended(future: Future[None]) -> None:
            if future.exception() is not None:
                store.loose.add(key)
            then()

        store.held.discard(key)
        store.submit(write, is_durable=False).add_done_callback(ended)

    def next_wake(self) -> float | None:
        """Return when the next turn may be due; `None` for never.

        That is when a free task is due, or the timer of a task whose turn still runs:
        where it runs may have ended until then.
        """
        return self._read(_next_wake)

    def close(self) -> None:
        """Stop the writing thread, and give all tasks of this process back.

        The next call opens the store again; in memory, it is empty then.
        """
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # ---- inside ---------------------------------------------------------------------

    def _store(self) -> Connections:
        with self._opening:
            if self._opened is None:
                self._opened = Connections(self.path, self._tell)
            return self._opened

    def _forget(self) -> None:
        """Leave to the parent what is the parent's; for a process that was forked."""
        if self._opened is not None:
            _inherited.append(self._opened)
        self._opened = None
        self._opening = threading.Lock()
        self._listeners = {}

    def _write(self, write: Write) -> Any:
        return self._store().submit(write).result()

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return self._store().read(read)

    def _tell(self, ids: Iterable[str], are_saves: bool) -> None:
        for id_ in ids:
            for listener, is_worker in self._listeners.copy().values():
                if is_worker and are_saves:
                    continue
                try:
                    listener(id_)
                except Exception:
                    logger.exception("a listener failed on task %s", id_)

    def _check_limits(self, db: sqlite3.Connection, row: TaskRow) -> None:
        (mine,) = db.execute(
            "SELECT count(*) FROM tasks WHERE owner IS ? AND NOT is_ended", (row.owner,)
        ).fetchone()
        if mine >= self.share:
            raise TaskLimitError("you have too many tasks; wait until some have ended")
        (all_,) = db.execute("SELECT count(*) FROM tasks WHERE NOT is_ended").fetchone()
        if all_ >= self.limit:
            raise TaskLimitError("there are too many tasks; come back later")


#: The hosts of this process.
_alive: Final[WeakSet[SqliteTasks]] = WeakSet()
#: Connections of a parent process. SQLite forbids to use them here, and to close them.
_inherited: Final[list[Connections]] = []


def _forget_all() -> None:
    for one in list(_alive):
        one._forget()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(after_in_child=_forget_all)


def _row_of(db: sqlite3.Connection, id_: str) -> TaskRow | None:
    found = db.execute(
        "SELECT data, journal FROM tasks WHERE id = ?", (id_,)
    ).fetchone()
    return None if found is None else TaskRow.loads(*found)


def _unanswered(db: sqlite3.Connection, row: TaskRow) -> TaskRow:
    """Return a row without the questions that mail has answered."""
    if not row.questions:
        return row
    found = db.execute(
        "SELECT key FROM mail WHERE task = ? AND kind = 'answer'", (row.id,)
    )
    return row.without([key for (key,) in found])


def _mail_of(db: sqlite3.Connection, id_: str) -> list[tuple[str, str]]:
    return db.execute(
        "SELECT kind, key FROM mail WHERE task = ? ORDER BY number", (id_,)
    ).fetchall()


def _readable(id_: str, data: bytes, journal: bytes) -> TaskRow | None:
    try:
        return TaskRow.loads(data, journal)
    except TaskStoreError as exc:
        logger.warning("task %r is left to a newer version: %r", id_, str(exc))
        return None


def _next_wake(db: sqlite3.Connection) -> float | None:
    (free,) = db.execute(
        "SELECT min(wake) FROM tasks WHERE wake IS NOT NULL AND holder IS NULL"
    ).fetchone()
    (held,) = db.execute(
        "SELECT min(wake) FROM tasks WHERE holder IS NOT NULL AND wake > ?",
        (time.time(),),
    ).fetchone()
    return min((one for one in (free, held) if one is not None), default=None)


def _has_due(db: sqlite3.Connection) -> bool:
    found = db.execute(
        "SELECT 1 FROM tasks WHERE wake <= ? AND wake IS NOT NULL AND holder IS NULL"
        " LIMIT 1",
        (time.time(),),
    ).fetchone()
    return found is not None
