"""Tasks on Restate, as the exchange and operators see them."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from typing import Final, TypeAlias, TypeGuard
from urllib.parse import parse_qs, urlsplit

from ...canonical import dumps
from ...errors import TaskLimitError, TaskStoreError, UsageError
from ...exchange.ledger import Taken, Taking, Use
from ...exchange.task_rows import Mail, TaskRow
from ...logs import logger_for
from ..stores import Stored
from .attempts import OPEN, OWNER, owner_tag
from .engine import Engine
from .frames import input_value
from .kept import (
    CREATE,
    POST,
    STATE,
    WAKE,
    Kept,
    is_news,
    read_letter,
    read_new,
    write_letter,
    write_new,
)
from .ledger import RestateLedger

__all__ = ["RestateTasks", "is_engine"]

logger = logger_for("effectmcp.tasks")

#: Seconds between two looks for changes of the tasks that this process has dealt with.
_LOOK: Final = 0.1
#: Seconds after a look that failed.
_AGAIN: Final = 1.0
#: Seconds that a host waits for its last look when it is closed.
_STOP: Final = 1.0
#: The longest time between two looks, in seconds.
_LONGEST: Final = 5.0
#: The most tasks whose changes are reported, and the most in one query.
_WATCHED: Final = 10_000
_AT_ONCE: Final = 200
#: Seconds between two counts of all tasks, at least.
_COUNT: Final = 2.0

#: All ids of tasks are such; others are not even looked for.
_ID: Final = re.compile("[0-9a-f]{1,64}")
_NAME: Final = re.compile("[A-Za-z0-9_.-]{1,64}")


_Listener: TypeAlias = Callable[[str], None]

#: How URLs begin that name an engine.
_SCHEME: Final = "restate+"


def is_engine(place: object) -> TypeGuard[str]:
    """Return whether the place of tasks is the URL of an engine, and not a file."""
    return isinstance(place, str) and place.startswith(_SCHEME)


class RestateTasks:
    """A `TaskHost` whose turns run in workers on any machine.

    Restate keeps the tasks, and calls the workers: `effectmcp worker`.

    Args:
        ingress: The URL of Restate's ingress.
        admin: The URL of its admin interface.
        name: A name for these tasks: servers that share an engine need different ones.
        ttl: Seconds from the creation of a task until it expires, unless its tool sets
            it.
        poll_interval: Seconds between two polls of a client, unless its tool sets it.
        retention: Seconds that a task is kept after it has ended, at least.
        limit: The most tasks that may be alive at once. They are counted every few
            seconds, so there may be some more.
        share: The most of them that one user may have; all anonymous clients are one.
        uses: The most flows that may have requests that count once. They are counted as
            tasks are.
        uses_share: The most of them of one user.

    Raises:
        UsageError: If a URL or the name cannot be used, or the extra is not installed.
    """

    def __init__(
        self,
        ingress: str,
        admin: str,
        *,
        name: str = "effectmcp",
        ttl: float = 24 * 3600,
        poll_interval: float = 1.0,
        retention: float = 3600,
        limit: int = 100_000,
        share: int = 1_000,
        uses: int = 1_000_000,
        uses_share: int = 100_000,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"the name {name!r} of tasks: use letters, digits, dots, - and _"
            )
        if find_spec("xxhash") is None:
            raise UsageError(
                "tasks on Restate need a package more: pip install 'effectmcp[restate]'"
            )
        self.ingress = ingress
        self.admin = admin
        self.name = name
        self.ttl = ttl
        self.poll_interval = poll_interval
        self.retention = retention
        self.limit = limit
        self.share = share
        #: Whether turns run somewhere: workers may come and go, and tasks wait for them.
        self.is_worked = True
        self.engine = Engine(ingress, admin)
        self.service = f"{name}.Task"
        self._watching = _Watching(self._digests)
        self._counts = _Counts("tasks", self._count)
        #: The service of requests that count once.
        self.uses_service = f"{name}.Use"
        uses_counts = _Counts(
            "calls that count once", partial(self._count_open, self.uses_service)
        )
        self._ledger = RestateLedger(
            self.engine,
            self.uses_service,
            uses_counts.now,
            limit=uses,
            share=uses_share,
        )

    @classmethod
    def from_url(cls, url: str) -> RestateTasks:
        """Return the tasks that `restate+http://HOST:PORT?admin=URL&name=NAME` names.

        Raises:
            UsageError: If the URL is of another form.
        """
        try:
            parts = urlsplit(url)
            given = parse_qs(parts.query, strict_parsing=True)
        except ValueError:
            parts, given = urlsplit(""), {}
        unknown = given.keys() - {"admin", "name"}
        if not is_engine(parts.scheme) or "admin" not in given or unknown:
            raise UsageError(
                f"{url!r} does not name an engine: give"
                " restate+http://INGRESS:8080?admin=http://ADMIN:9070, and &name=NAME if"
                " several servers use it"
            )
        scheme = parts.scheme.removeprefix(_SCHEME)
        ingress = f"{scheme}://{parts.netloc}{parts.path}"
        return cls(
            ingress, given["admin"][-1], name=given.get("name", ["effectmcp"])[-1]
        )

    def __repr__(self) -> str:
        return f"RestateTasks({self.ingress!r}, {self.admin!r}, name={self.name!r})"

    # ---- a `TaskHost` ---------------------------------------------------------------

    def create(self, row: TaskRow) -> TaskRow:
        """Store a new task durably; return it, or the task that has this id already."""
        known = self._check_limits(row)
        if known is not None:
            return known
        # The text shows whose task it is before its first turn.
        once = f"{row.id} {_tag(row.owner)}"
        self.engine.send(self.service, CREATE, row.id, write_new(row), once=once)
        self._watching.tell(row.id)
        try:
            # If two requests race, the first one counts.
            stored = self.read(row.id)
        except TaskStoreError as exc:
            logger.warning("task %s is stored, and cannot be read: %s", row.id, exc)
            return row
        return row if stored is None else stored

    def read(self, id_: str) -> TaskRow | None:
        """Return a task, without the questions that mail has answered; `None` if unknown."""
        found = self._find(id_)
        if found is None:
            return None
        kept, mail = found
        if kept.row.is_ended:
            self._watching.leave(id_)
        else:
            self._watching.join(id_)
        return kept.row.without([one.key for one in mail if one.kind == "answer"])

    def post(self, id_: str, mail: Sequence[Mail]) -> None:
        """Store mail durably, and wake the task."""
        if not _ID.fullmatch(id_):
            return
        letter = write_letter(mail)
        # While it waits, the same mail again is left out.
        ids = dumps([one.id for one in mail])
        once = f"{id_} {blake2b(ids, digest_size=16).hexdigest()}"
        self.engine.send(self.service, POST, id_, letter, once=once)
        self._watching.tell(id_)
        try:
            state = self._state(id_)
            if state is not None and (ear := Kept.loads(state).ear):
                self.engine.signal(ear, letter)
        except TaskStoreError as exc:
            # It is stored: the running turn does not receive it, but the next one does.
            logger.warning("mail waits until the turn of task %s ends: %s", id_, exc)

    def watch(
        self,
        listener: Callable[[str], None],
        *,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> Callable[[], None]:
        """Call `listener` with the id of each task that changes; return what ends this.

        Tasks that this host has not created or read are left out, because no client of
        this process follows them.

        Args:
            listener: It is called in any thread, and must not wait.
            is_needed: Whether it matters now; otherwise the engine is not asked for it.
        """
        return self._watching.add(listener, is_needed)

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        """Return tasks of a user in the order of their ids, as `read` does.

        Tasks that an earlier version created are left out.
        """
        found: list[TaskRow] = []
        after = after if _ID.fullmatch(after) else ""
        while len(found) < limit and (ids := self._owned(owner, after, limit)):
            rows = [self.read(id_) for id_ in ids]
            found += [row for row in rows if row is not None and row.owner == owner]
            after = ids[-1]
        return found[:limit]

    def _owned(self, owner: str, after: str, limit: int) -> list[str]:
        """Return the next ids of tasks that have the tag of a user."""
        tag = _tag(owner)
        kept = self.engine.query(
            "SELECT service_key AS key FROM state"
            f" WHERE service_name = '{self.service}' AND key = '{OWNER.decode()}'"
            f" AND value_utf8 = '{tag}' AND service_key > '{after}'"
            f" ORDER BY service_key LIMIT {int(limit)}",
            key=str,
        )
        new = self.engine.query(
            "SELECT target_service_key AS key FROM sys_invocation"
            f" WHERE target_service_name = '{self.service}'"
            f" AND target_handler_name = '{CREATE}' AND idempotency_key LIKE '% {tag}'"
            f" AND target_service_key > '{after}'"
            f" ORDER BY target_service_key LIMIT {int(limit)}",
            key=str,
        )
        return sorted({one["key"] for one in (*kept, *new)})[:limit]

    def find(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[TaskRow]:
        """Return the tasks whose ids start so, or all: the newest first."""
        return [one.row for one in self.look_up(ids, limit=limit)]

    def look_up(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[Stored]:
        """Return the same as `find`, with what the engine knows of each task.

        It reads all tasks, to find the newest. Tasks that this version cannot read are
        left out.
        """
        starts = tuple(ids)
        if not all(map(_ID.fullmatch, starts)):
            starts = tuple(filter(_ID.fullmatch, starts))
            if not starts:
                return []
        begins = " OR ".join(f"key LIKE '{one}%'" for one in starts) or "true"
        waiting: dict[str, list[bytes]] = {}
        for one in self.engine.query(
            "SELECT target_service_key AS key, raw FROM sys_invocation JOIN sys_journal"
            " ON sys_invocation.id = sys_journal.id AND index = 0"
            f" WHERE target_service_name = '{self.service}'"
            f" AND target_handler_name <> '{WAKE}'"
            f" AND ({begins.replace('key', 'target_service_key')})",
            key=str,
            raw=str,
        ):
            data = input_value(_bytes(one["raw"]))
            waiting.setdefault(one["key"], []).append(data)
        states: dict[str, bytes | None] = dict.fromkeys(waiting)
        for one in self.engine.query(
            "SELECT service_key AS key, value FROM state"
            f" WHERE service_name = '{self.service}' AND key = '{STATE.decode()}'"
            f" AND ({begins.replace('key', 'service_key')})",
            key=str,
            value=str,
        ):
            states[one["key"]] = _bytes(one["value"])
        holders = self._holders()
        stored = []
        for key, state in states.items():
            try:
                task = _together(state, waiting.get(key, []))
            except TaskStoreError as exc:
                logger.error("task %s is left out: %s", key, exc)
                continue
            if task is not None:
                kept, mail = task
                row = kept.row.without([m.key for m in mail if m.kind == "answer"])
                kinds = tuple(m.kind for m in mail)
                stored.append(Stored(row, holders.get(row.id), kinds))
        stored.sort(key=lambda one: one.row.updated, reverse=True)
        return stored[:limit]

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        self._watching.stop()
        self.engine.close()

    # ---- a `Ledger` -----------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether other processes share it: they do."""
        return True

    def take(self, use: Use) -> Taking:
        """Take the slots of a request that counts once, durably."""
        return self._ledger.take(use)

    def keep(self, taken: Taken, reply: bytes) -> None:
        """Store the reply of a request durably; if that fails, store it later."""
        self._ledger.keep(taken, reply)

    def leave(self, taken: Taken) -> None:
        """Note that a request was cut off. Do not wait."""
        self._ledger.leave(taken)

    # ---- reading --------------------------------------------------------------------

    def _find(self, id_: str) -> tuple[Kept, list[Mail]] | None:
        """Return what is kept of a task, and the mail that its row does not cover."""
        if not _ID.fullmatch(id_):
            return None
        found = self._look(id_)
        if found is None:
            # A client that reads "not found" gives its task up.
            self.engine.confirm(self.service, CREATE, id_)
            found = self._look(id_)
        return found

    def _look(self, id_: str) -> tuple[Kept, list[Mail]] | None:
        # First what waits: when a request is not there any more, the state covers it.
        waiting = self._waiting(id_)
        return _together(self._state(id_), waiting)

    def _waiting(self, id_: str) -> list[bytes]:
        """Return what the requests carry that the object has not run to their ends."""
        found = self.engine.query(
            f"SELECT id, raw FROM sys_journal WHERE partition_key = {_place(id_)}"
            " AND index = 0",
            raw=str,
        )
        return [input_value(_bytes(one["raw"])) for one in found]

    def _state(self, id_: str) -> bytes | None:
        found = self.engine.query(
            f"SELECT value FROM state WHERE partition_key = {_place(id_)}"
            f" AND service_name = '{self.service}' AND service_key = '{id_}'"
            f" AND key = '{STATE.decode()}'",
            value=str,
        )
        return _bytes(found[0]["value"]) if found else None

    def _holders(self) -> dict[str, str]:
        """Return the invocation that each task runs, by the task's id."""
        found = self.engine.query(
            "SELECT id, target_service_key AS key FROM sys_invocation"
            f" WHERE target_service_name = '{self.service}'"
            " AND status IN ('running', 'backing-off', 'ready')",
            id=str,
            key=str,
        )
        return {one["key"]: one["id"] for one in found}

    def _digests(self, ids: Sequence[str]) -> dict[str, str]:
        places = ", ".join(map(str, map(_place, ids)))
        found = self.engine.query(
            "SELECT service_key AS id, md5(value) AS digest FROM state"
            f" WHERE partition_key IN ({places}) AND service_name = '{self.service}'"
            f" AND key = '{STATE.decode()}'",
            id=str,
            digest=str,
        )
        return {one["id"]: one["digest"] for one in found}

    # ---- limits ---------------------------------------------------------------------

    def _check_limits(self, row: TaskRow) -> TaskRow | None:
        """Count the new task; return the task that has its id already, if that is known.

        Raises:
            TaskLimitError: If there are too many.
        """
        tag = _tag(row.owner)
        counted = self._counts.now()
        mine, all_ = counted[tag], counted.total()
        if mine < self.share and all_ < self.limit:
            counted[tag] += 1
            return None
        known = self.read(row.id)
        if known is not None:
            return known
        if mine >= self.share:
            raise TaskLimitError("you have too many tasks; wait until some have ended")
        raise TaskLimitError("there are too many tasks; come back later")

    def _count_open(self, service: str) -> Counter[str]:
        """Count the objects of a service that are alive, by owner."""
        found = self.engine.query(
            "SELECT value_utf8 AS owner, count(*) AS number FROM state"
            f" WHERE service_name = '{service}'"
            f" AND key = '{OPEN.decode()}' GROUP BY value_utf8",
            owner=str,
            number=int,
        )
        return Counter({one["owner"]: one["number"] for one in found})

    def _count(self) -> Counter[str]:
        """Count the tasks that are alive, by owner: those with a state, and new ones."""
        counted = self._count_open(self.service)
        for one in self.engine.query(
            "SELECT idempotency_key AS once FROM sys_invocation"
            f" WHERE target_service_name = '{self.service}'"
            f" AND target_handler_name = '{CREATE}' AND idempotency_key IS NOT NULL"
            # A request whose first turn runs has a state, perhaps.
            " AND target_service_key NOT IN (SELECT service_key FROM state"
            f" WHERE service_name = '{self.service}' AND key = '{OPEN.decode()}')",
            once=str,
        ):
            counted[one["once"].partition(" ")[2]] += 1
        return counted


class _Counts:
    """A count of the engine, which is renewed every few seconds: counting takes long."""

    def __init__(self, what: str, count: Callable[[], Counter[str]]) -> None:
        self._what = what
        self._count = count
        self._counting = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._count_after = 0.0

    def now(self) -> Counter[str]:
        """Return the latest count, to add to; if it is old, one caller counts again."""
        if time.monotonic() >= self._count_after and self._counting.acquire(False):
            started = time.monotonic()
            self._count_after = started + _COUNT
            try:
                self._counted = self._count()
                took = time.monotonic() - started
                self._count_after = started + max(_COUNT, 20 * took)
            except TaskStoreError as exc:
                logger.warning("%s are counted later: %s", self._what, exc)
            finally:
                self._counting.release()
        return self._counted


def _together(
    state: bytes | None, waiting: Iterable[bytes]
) -> tuple[Kept, list[Mail]] | None:
    """Return what is kept of a task, and the mail that its row does not cover.

    Args:
        state: The state of its object.
        waiting: The requests that it has not run to their ends.
    """
    kept = None if state is None else Kept.loads(state)
    mail: list[Mail] = []
    for data in waiting:
        if data.startswith(b"{"):
            kept = kept or Kept(row=read_new(data))
        elif data.startswith(b"["):
            mail += read_letter(data)
    if kept is None:
        return None
    # Mail that a turn has received waits in the state, and in its request.
    news = {one.id: one for one in (*kept.mail, *mail) if is_news(kept.row, one)}
    return kept, list(news.values())


def _tag(owner: str | None) -> str:
    return owner_tag(owner).decode()


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise TaskStoreError("Restate's answer is not understood: no bytes") from None


def _place(id_: str) -> int:
    """Return where the engine keeps an object: a look there takes no search."""
    import xxhash  # an extra

    return int(xxhash.xxh3_64_intdigest(id_.encode() + b"\xff"))


class _Watching:
    """Tells listeners which tasks have changed.

    The engine tells no changes, so a thread looks for them, as long as there are
    listeners, and tasks to look for.
    """

    def __init__(self, digests: Callable[[Sequence[str]], dict[str, str]]) -> None:
        self._look_up = digests
        self._listeners: dict[object, tuple[_Listener, Callable[[], bool]]] = {}
        self._stopped = threading.Event()
        self._digests: dict[str, str | None] = {}
        self._changed = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(
        self, listener: _Listener, is_needed: Callable[[], bool]
    ) -> Callable[[], None]:
        key = object()
        with self._changed:
            self._listeners[key] = listener, is_needed
            self._run()

        def end() -> None:
            with self._changed:
                self._listeners.pop(key, None)

        return end

    def join(self, id_: str) -> None:
        """Look for changes of this task, too."""
        with self._changed:
            # The task that was read last stays longest.
            self._digests[id_] = self._digests.pop(id_, None)
            while len(self._digests) > _WATCHED:
                del self._digests[next(iter(self._digests))]
            self._run()

    def leave(self, id_: str) -> None:
        """Look for changes of this task no longer: it has ended."""
        with self._changed:
            self._digests.pop(id_, None)

    def stop(self) -> None:
        """Tell nothing more, and wait until nothing is looked for."""
        with self._changed:
            self._listeners.clear()
            thread = self._thread
            self._stopped.set()
        if thread is not None:
            thread.join(_STOP)  # it waits for the engine perhaps

    def tell(self, id_: str) -> None:
        """Tell the listeners that a task has changed."""
        for listener, _ in list(self._listeners.values()):
            try:
                listener(id_)
            except Exception:
                logger.exception("a listener failed on task %s", id_)

    def _run(self) -> None:
        if not self._listeners or not self._digests:
            return
        # A thread that was stopped may still wait for the engine: it continues then.
        self._stopped.clear()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._look, name="effectmcp-restate", daemon=True
            )
            self._thread.start()

    def _look(self) -> None:
        while True:
            started = time.monotonic()
            with self._changed:
                if not self._listeners or not self._digests:
                    self._thread = None
                    return
                is_needed = any(one() for _, one in self._listeners.values())
                ids = list(self._digests) if is_needed else []
            pause = _LOOK
            try:
                for at in range(0, len(ids), _AT_ONCE):
                    if not self._stopped.is_set():
                        self._look_for(ids[at : at + _AT_ONCE])
            except TaskStoreError as exc:
                logger.warning("changes of tasks are reported later: %s", exc)
                pause = _AGAIN
            # Looking takes a tenth of this thread's time, unless the engine is slow.
            took = time.monotonic() - started
            self._stopped.wait(max(pause, min(9 * took, _LONGEST)))

    def _look_for(self, ids: Sequence[str]) -> None:
        now = self._look_up(ids)
        changed = []
        with self._changed:
            for id_ in ids:
                digest = now.get(id_)
                if id_ not in self._digests or digest == self._digests[id_]:
                    continue
                if digest is None:
                    del self._digests[id_]  # it was removed
                else:
                    self._digests[id_] = digest
                changed.append(id_)
        for id_ in changed:
            self.tell(id_)
