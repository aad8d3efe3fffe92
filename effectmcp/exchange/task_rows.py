"""The record of a task, its mail, and the host that keeps both.

A task is a flow that outlives its request. `TaskRow` is all that is kept of it, and it
is replaced as a whole by each save. What others send to the task is `Mail`, which has a
place of its own, so that it never waits for a running turn. A `TaskHost` keeps both, and
is all that the exchange uses of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs
from attrs import field

from ..canonical import JSON, MAX_DEPTH, dumps, parse
from ..effects.local import CallerInfo
from ..engine.journal import Journal
from ..errors import CanonicalError, TaskStoreError
from ..records import record

__all__ = [
    "ENDED",
    "Mail",
    "TaskHost",
    "TaskRow",
    "TaskStatus",
    "task_fields",
    "wire_time",
]

TaskStatus: TypeAlias = Literal[
    "working", "input_required", "completed", "failed", "cancelled"
]

#: The statuses that no task leaves.
ENDED: Final[frozenset[TaskStatus]] = frozenset({"completed", "failed", "cancelled"})

#: The format of `TaskRow.dumps`. A row of a newer format is refused.
FORMAT: Final = 1

#: Arguments, questions and results have the usual depth, and a row wraps them.
_DEPTH: Final = MAX_DEPTH + 8


@record(kw_only=True)
class TaskRow:
    """All that is kept of a task. Immutable.

    Attributes:
        id: Its id, which cannot be guessed.
        tool: The name of its tool.
        arguments: The arguments as the client sent them.
        owner: The authenticated user whose task it is; `None` for an anonymous client.
        capabilities: The capabilities of the client that started it.
        caller: The outcome of `Caller()`.
        flow_id: The id of the flow.
        is_whole: Whether the whole flow is a task; otherwise it became one by `Detach`.
        version: The handler's declared version when the flow started.
        trace: The trace context of the first request.
        journal: The journal, as `Journal.dumps` writes it.
        created: When it was created, in seconds since 1970.
        updated: When it was saved last.
        ttl: Seconds from its creation until it expires; `None` for never.
        poll_interval: Seconds that a client should wait between two polls.
        status: Its status.
        message: What it is doing, in words for users and models.
        questions: The outstanding requests to the client, by wire key.
        result: The fields of the result of a completed task.
        error: The JSON-RPC error of a failed task.
        tries: Failed tries of steps that are tried again: how many, and when again.
        cancelled_at: When it was asked to end; `None` if it was not.
        is_expired: Whether it was ended because its `ttl` had passed.
        report: Why it is parked, for its operator; `None` if it is not parked.
        wake: When the next turn is due even if no mail arrives; `None` for never.
    """

    id: str
    tool: str
    arguments: JSON
    owner: str | None
    capabilities: Mapping[str, JSON]
    caller: CallerInfo
    flow_id: bytes
    is_whole: bool
    created: float
    updated: float
    version: str | None = None
    trace: str | None = None
    journal: bytes = field(default=Journal().dumps(), repr=False)
    ttl: float | None = None
    poll_interval: float = 1.0
    status: TaskStatus = "working"
    message: str | None = None
    questions: Mapping[str, JSON] = field(factory=dict)
    result: Mapping[str, JSON] | None = None
    error: Mapping[str, JSON] | None = None
    tries: Mapping[str, tuple[int, float]] = field(factory=dict)
    cancelled_at: float | None = None
    is_expired: bool = False
    report: str | None = None
    wake: float | None = 0.0

    @property
    def is_ended(self) -> bool:
        """Whether the task has ended."""
        return self.status in ENDED

    @property
    def is_parked(self) -> bool:
        """Whether the task stays where it is until its operator has it tried again."""
        return self.report is not None and not self.is_ended

    @property
    def expires(self) -> float | None:
        """When the task expires, in seconds since 1970; `None` for never."""
        return None if self.ttl is None else self.created + self.ttl

    def kept_until(self, retention: float) -> float:
        """Return until when an ended task is kept, in seconds since 1970.

        Args:
            retention: The seconds after its end, at least.
        """
        kept = self.updated + retention
        return kept if self.expires is None else max(kept, self.expires)

    def without(self, keys: Iterable[str]) -> TaskRow:
        """Return this row without the questions that mail has answered."""
        answered = frozenset(keys)
        left = {key: one for key, one in self.questions.items() if key not in answered}
        if len(left) == len(self.questions):
            return self
        return attrs.evolve(
            self, questions=left, status="input_required" if left else "working"
        )

    def dumps(self) -> bytes:
        """Return this row as canonical JSON, without its journal."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        plain["caller"] = self.caller.to_json()
        plain["flow_id"] = self.flow_id.hex()
        plain["tries"] = {key: list(one) for key, one in self.tries.items()}
        return dumps({"format": FORMAT, **plain}, max_depth=_DEPTH)

    @classmethod
    def loads(cls, data: bytes, journal: bytes) -> TaskRow:
        """Return the row that `dumps` wrote.

        Raises:
            TaskStoreError: If this version cannot read it.
        """
        try:
            value = parse(data, max_depth=_DEPTH)
            if value.pop("format") != FORMAT:
                raise ValueError("unknown format")
            value["caller"] = CallerInfo(**value["caller"])
            value["flow_id"] = bytes.fromhex(value["flow_id"])
            value["tries"] = {
                key: (count, at) for key, (count, at) in value["tries"].items()
            }
            return cls(**value, journal=journal)
        except (
            CanonicalError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as exc:
            raise TaskStoreError(
                f"a task that this version cannot read: {exc}"
            ) from None


#: The fields that are JSON as they are.
_PLAIN: Final = tuple(
    one.name
    for one in attrs.fields(TaskRow)
    if one.name not in ("journal", "caller", "flow_id", "tries")
)


@record
class Mail:
    """One message to a task: durable, ordered, and stored once for each id.

    Attributes:
        id: Its id. The first of two messages with the same id counts.
        kind: `answer` to a question, `cancel`, or `retry` for a parked task.
        key: The wire key of the question that it answers.
        value: The answer, as the client sent it.
    """

    id: str
    kind: Literal["answer", "cancel", "retry"]
    key: str = ""
    value: JSON = None


class TaskHost(Protocol):
    """Interface of what keeps tasks, and has their turns run somewhere.

    Every method may be called from any thread, and may block for a disk or a network,
    but never for a turn.
    """

    #: Seconds that a task is kept if its tool names no `ttl`.
    ttl: float
    #: Seconds between polls if its tool names no `poll_interval`.
    poll_interval: float
    #: Whether something runs the turns: a loop of this process, or a worker elsewhere.
    is_worked: bool

    def create(self, row: TaskRow) -> TaskRow:
        """Store a new task durably; return it, or the task that has this id already.

        Raises:
            TaskLimitError: If there are too many tasks, or too many of this owner.
            TaskStoreError: If it could not be stored.
        """
        ...

    def read(self, id_: str) -> TaskRow | None:
        """Return a task, without the questions that mail has answered; `None` if unknown.

        Raises:
            TaskStoreError: If the store could not be read.
        """
        ...

    def post(self, id_: str, mail: Sequence[Mail]) -> None:
        """Store mail durably, and wake the task.

        Raises:
            TaskStoreError: If it could not be stored.
        """

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the id of each task that changes; return what ends this.

        It is called in any thread, and must not wait.
        """
        ...

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        """Return tasks of a user in the order of their ids, as `read` does.

        Args:
            owner: The user.
            after: The id after which to begin; empty for the first.
            limit: The most tasks to return.

        Raises:
            TaskStoreError: If the store could not be read.
        """
        ...

    def find(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[TaskRow]:
        """Return the tasks whose ids start so, or all: the newest first, for operators."""
        ...


def task_fields(row: TaskRow, *, is_new: bool = False) -> dict[str, JSON]:
    """Return the fields of a task on the wire (Tasks extension, Task).

    Args:
        row: The task.
        is_new: Whether this announces a new task: then it has no result or questions.
    """
    fields: dict[str, Any] = {
        "taskId": row.id,
        "status": "working" if is_new else row.status,
        "createdAt": wire_time(row.created),
        "lastUpdatedAt": wire_time(row.updated),
        "ttlMs": None if row.ttl is None else max(1, round(row.ttl * 1000)),
        "pollIntervalMs": max(1, round(row.poll_interval * 1000)),
    }
    if row.message is not None:
        fields["statusMessage"] = row.message
    if is_new:
        return fields
    match row.status:
        case "input_required":
            fields["inputRequests"] = dict(row.questions)
        case "completed":
            fields["result"] = dict(row.result or {})
        case "failed":
            fields["error"] = dict(row.error or {})
        case _:
            pass
    return fields


def wire_time(seconds: float) -> str:
    """Return a time in seconds since 1970 in the format of the wire, in UTC."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
