"""The connections of one process to a store of tasks, and the thread that writes.

All writes go through the thread. Writes that wait together share one transaction, and so
one wait for the disk; if that transaction fails, each is tried alone. The thread also
notices what other processes write, takes over from processes that died, and removes
tasks that ended long ago.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from attrs import field, frozen

from ..errors import TaskStoreError
from ..exchange.ledger import Taken
from ..logs import logger_for
from . import uses
from .holders import Holder, check_local
from .tables import connected, is_busy

__all__ = ["Connections", "Write", "last_change", "next_change", "remove_old"]

logger = logger_for("effectmcp.tasks")

#: Seconds between two looks at what other processes have changed.
_LOOK: Final = 0.01
#: Seconds to wait for another write. If one comes, this is repeated, up to the second
#: number. On a fast disk, each write would be alone otherwise. Few turns wait for nothing.
_GATHER: Final = 0.0025
_GATHER_MOST: Final = 0.02
_FEW: Final = 4
#: Seconds between two looks for holders that died, and for tasks to remove.
_SWEEP: Final = 0.5
#: The most tasks that one sweep removes, so that no write waits long for it.
_MOST: Final = 500

T = TypeVar("T")
#: A part of a transaction. It may be called twice, and has no other effects.
Write: TypeAlias = Callable[[sqlite3.Connection], Any]


@frozen(eq=False)
class _Job:
    """A write that waits for the thread.

    Attributes:
        is_durable: Whether it must be on disk before it is acknowledged.
        saved: The id of the task that a turn of this process saves.
    """

    write: Write
    is_durable: bool = True
    saved: str | None = None
    future: Future[Any] = field(factory=Future)


class Connections:
    """The connections of one process, and its writing thread.

    Args:
        path: The file; `None` for memory.
        tell: Called by the thread with the ids of tasks that have changed, and whether
            all these changes are saves of turns of this process.

    Attributes:
        holder: This process, as rows name it.
        held: The tasks whose turn runs here: id and fence.
        loose: Tasks that could not be given back, because the store failed.
        late: What requests that count once could not store, because the store failed:
            their replies, or `None` for a request that was cut off.

    Raises:
        UsageError: If the file cannot be opened as a store of tasks.
    """

    def __init__(
        self, path: Path | None, tell: Callable[[Iterable[str], bool], None]
    ) -> None:
        self._tell = tell
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.held: set[tuple[str, int]] = set()
        self.loose: set[tuple[str, int]] = set()
        self.late: dict[Taken, bytes | None] = {}
        self._counts = False
        self._is_shared = path is not None
        with ExitStack() as undo:
            if path is not None:
                check_local(path)
            self._writer = connected(path)
            undo.callback(self._writer.close)
            # In memory, there is one connection for everything, which the lock keeps to
            # one thread at a time.
            self._lock = threading.Lock()
            self._reader = self._writer if path is None else connected(path)
            undo.callback(self._reader.close)
            self._reading = self._lock if path is None else threading.Lock()
            self.holder = Holder(path)
            undo.callback(self.holder.close)
            self._told = last_change(self._reader)
            undo.pop_all()
        self._last = self._told
        self._looked = 0.0
        self._swept = 0.0
        self._is_synced = True
        self._is_failing = False
        self._is_closed = False
        # No write may be put behind the end of the queue, where nothing would do it.
        self._gate = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name="effectmcp-tasks", daemon=True
        )
        self._thread.start()

    # ---- for any thread -------------------------------------------------------------

    def submit(
        self, write: Write, *, is_durable: bool = True, saved: str | None = None
    ) -> Future[Any]:
        """Have the thread write something; the future ends when that is done.

        Args:
            write: What to do in the transaction. It may be called again.
            is_durable: Whether it must be on disk first. Without this, a loss of power
                may undo it; the death of a process cannot.
            saved: The id of the task, if this is the save of a turn.
        """
        job = _Job(write, is_durable, saved)
        with self._gate:
            if not self._is_closed:
                self._queue.put(job)
                return job.future
        job.future.set_exception(TaskStoreError("the store of tasks is closed"))
        return job.future

    def count(self, write: Write, *, is_durable: bool = True) -> Future[Any]:
        """Do the same as `submit` for requests that count once."""
        self._counts = True
        return self.submit(write, is_durable=is_durable)

    def read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `read` finds.

        Raises:
            TaskStoreError: If the store could not be read.
        """
        with self._reading:
            try:
                return read(self._reader)
            except (sqlite3.Error, UnicodeError) as exc:
                raise TaskStoreError(f"the tasks cannot be read: {exc}") from exc

    def close(self) -> None:
        """End the thread once all writes in its queue are done."""
        with self._gate:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()

    # ---- the thread -----------------------------------------------------------------

    def _run(self) -> None:
        is_over = False
        while not is_over:
            jobs = self._next_jobs()
            is_over = bool(jobs) and jobs[-1] is None
            writes = [one for one in jobs if one is not None]
            if writes:
                self._commit(writes)
            self._look()
        self._end()

    def _next_jobs(self) -> list[_Job | None]:
        """Wait for writes, or for the time to check for writes of other processes."""
        jobs: list[_Job | None] = []
        with suppress(queue.Empty):
            first = self._queue.get(timeout=self._pause())
            jobs.append(first)
            if first is not None and first.is_durable and len(self.held) > _FEW:
                self._gather()
            while jobs[-1] is not None:
                jobs.append(self._queue.get_nowait())
        return jobs

    def _gather(self) -> None:
        """Wait while more writes come, until each running turn may have sent one."""
        until = time.monotonic() + _GATHER_MOST
        waiting, before = self._queue.qsize(), -1
        while before < waiting < len(self.held) and time.monotonic() < until:
            time.sleep(_GATHER)
            waiting, before = self._queue.qsize(), waiting

    def _pause(self) -> float | None:
        if not self._is_shared:
            # Nothing changes in memory without a write, and after the first there is
            # something to remove in time.
            return _SWEEP if self._told or self._counts else None
        return _LOOK

    def _commit(self, jobs: Sequence[_Job]) -> None:
        """Write all in one transaction; a write that fails takes no other with it."""
        done: list[tuple[Any, BaseException | None]]
        try:
            with self._lock:
                done = self._transact(jobs)
        except sqlite3.Error as exc:
            if len(jobs) > 1 and not is_busy(exc):
                # One of them may be too large for the disk.
                for one in jobs:
                    self._commit([one])
                return
            done = [(None, _stored(exc))] * len(jobs)
        saved = []
        for job, (value, failure) in zip(jobs, done, strict=True):
            if failure is None:
                job.future.set_result(value)
                if job.saved is not None:
                    saved.append(job.saved)
            else:
                job.future.set_exception(failure)
        if saved and self._last == self._told + len(saved):
            # No other changes, so there is no need to look for them.
            self._told = self._last
            self._tell(saved, True)

    def _transact(self, jobs: Sequence[_Job]) -> list[tuple[Any, BaseException | None]]:
        db = self._writer
        done: list[tuple[Any, BaseException | None]] = []
        try:
            self._sync(any(one.is_durable for one in jobs))
            db.execute("BEGIN IMMEDIATE")
            for job in jobs:
                db.execute("SAVEPOINT one")
                try:
                    done.append((job.write(db), None))
                except sqlite3.OperationalError:
                    raise  # the disk, or the lock: nothing of this can be kept
                except Exception as exc:
                    db.execute("ROLLBACK TO one")
                    done.append((None, _stored(exc)))
                db.execute("RELEASE one")
            last = last_change(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            raise
        self._last = last
        return done

    def _sync(self, is_synced: bool) -> None:
        """Wait for the disk in the next transaction, or not.

        Without waiting, the log is still written in order: the next transaction that
        waits brings this one to the disk, too.
        """
        if self._is_shared and is_synced != self._is_synced:
            mode = "FULL" if is_synced else "NORMAL"
            self._writer.execute(f"PRAGMA synchronous = {mode}")
            self._is_synced = is_synced

    def _look(self) -> None:
        """Report the changes, here and in other processes; sweep regularly."""
        now = time.monotonic()
        try:
            if self._last != self._told or now >= self._looked + _LOOK:
                self._looked = now
                ids = self.read(self._changed)
                if ids:
                    self._tell(ids, False)
            if now >= self._swept + _SWEEP:
                self._swept = now
                self._sweep()
            self._is_failing = False
        except Exception as exc:
            # Once: it is tried again many times in a second.
            if not self._is_failing:
                logger.warning("changes of tasks cannot be followed: %s", exc)
            self._is_failing = True

    def _changed(self, db: sqlite3.Connection) -> list[str]:
        found = db.execute(
            "SELECT id, changed FROM tasks WHERE changed > ? ORDER BY changed",
            (self._told,),
        ).fetchall()
        if found:
            self._told = found[-1][1]
        self._told = self._last = max(self._told, self._last)
        return [id_ for id_, _ in found]

    # ---- sweeping -------------------------------------------------------------------

    def _sweep(self) -> None:
        """Take over from holders that died, and remove tasks that ended long ago."""
        others, is_old = self.read(self._waste)
        dead = [name for name in others if self.holder.is_dead(name)]
        loose, late = list(self.loose), self.late.copy()
        if not dead and not is_old and not loose and not late:
            return  # without a write, so that a sweep does not hold the others up
        for name in dead:
            logger.warning("the tasks of the dead process %s are taken over", name)

        def write(db: sqlite3.Connection) -> None:
            for name in dead:
                _free(db, "holder = ?", (name,))
                uses.free(db, name)
            uses.settle(db, late)
            for id_, fence in loose:
                _free(
                    db,
                    "id = ? AND fence = ? AND holder = ?",
                    (id_, fence, self.holder.name),
                )
            remove_old(db)
            uses.remove_old(db)

        job = _Job(write, is_durable=False)
        self._commit([job])
        if job.future.exception() is None:
            self.loose.difference_update(loose)
            for taken in late:
                self.late.pop(taken, None)

    def _waste(self, db: sqlite3.Connection) -> tuple[list[str], bool]:
        others = db.execute(
            "SELECT holder FROM tasks WHERE holder IS NOT NULL AND holder != ?1"
            " UNION SELECT holder FROM uses WHERE holder IS NOT NULL AND holder != ?1",
            (self.holder.name,),
        ).fetchall()
        old = db.execute(
            "SELECT 1 FROM tasks WHERE purge IS NOT NULL AND purge <= ? LIMIT 1",
            (time.time(),),
        ).fetchone()
        is_old = old is not None or uses.has_old(db)
        return [name for (name,) in others], is_old

    def _end(self) -> None:
        name = self.holder.name

        def write(db: sqlite3.Connection) -> None:
            _free(db, "holder = ?", (name,))
            uses.settle(db, self.late)
            uses.free(db, name)

        self._commit([_Job(write)])
        with self._lock:
            self._writer.close()
        with self._reading:
            self._reader.close()
        self.holder.close()


def next_change(db: sqlite3.Connection) -> int:
    """Return the number for a change of a task, which its row must get at once."""
    return last_change(db) + 1


def last_change(db: sqlite3.Connection) -> int:
    """Return the number of the latest change: numbers only grow."""
    # The tasks tell it themselves, so that a save writes no further page. `changes` knows
    # the numbers of removed ones.
    (last,) = db.execute(
        "SELECT max(last, coalesce((SELECT max(changed) FROM tasks), 0)) FROM changes"
    ).fetchone()
    return last  # type: ignore[no-any-return]  # an INTEGER


def remove_old(db: sqlite3.Connection) -> None:
    """Remove tasks that have been kept for long enough."""
    db.execute("UPDATE changes SET last = ?", (last_change(db),))
    db.execute(
        "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks"
        " WHERE purge IS NOT NULL AND purge <= ? LIMIT ?)",
        (time.time(), _MOST),
    )


def _free(db: sqlite3.Connection, where: str, values: tuple[object, ...]) -> None:
    """Give tasks back whose turn was cut off, and have it run again."""
    db.execute(
        "UPDATE tasks SET holder = NULL, fence = fence + 1, changed = ?,"
        f" wake = CASE WHEN is_ended THEN NULL ELSE 0 END WHERE {where}",
        (next_change(db), *values),
    )


def _stored(error: Exception) -> TaskStoreError:
    if isinstance(error, TaskStoreError):
        return error
    told = TaskStoreError(f"the tasks cannot be stored: {error}")
    told.__cause__ = error
    return told
