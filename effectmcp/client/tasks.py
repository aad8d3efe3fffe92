"""A task that a call has become, as its server describes it (Tasks extension). No I/O.

    tools/call ──→ a new task        Task.announced(result)
    tasks/get  ──→ what it is now    task.seen(result), questions_in(result, task)

A description is checked in full before anything of it is used: the server chooses the
intervals at which this client asks, the questions that its user sees, and how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import evolve, frozen

from ..canonical import JSON
from ..errors import ProtocolError
from .errors import ReplyError

__all__ = [
    "MOST_QUESTIONS",
    "Task",
    "TaskStatus",
    "are_requests",
    "error_in",
    "is_object",
    "questions_in",
]

TaskStatus: TypeAlias = Literal[
    "working", "input_required", "completed", "failed", "cancelled"
]

_STATUSES: Final[Mapping[object, TaskStatus]] = {
    one: one for one in get_args(TaskStatus)
}
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})

#: Seconds between polls: by default, and limits of what a server sets. Without the
#: first limit, a client would poll in a busy loop; without the second, it would never
#: see the end of a task.
_INTERVAL: Final = 1.0
_SHORTEST: Final = 0.1
_LONGEST: Final = 60.0

#: The maximum length of an id, which a header repeats.
_LONGEST_ID: Final = 1_024

#: The maximum number of questions at one time, and of the characters of a key.
MOST_QUESTIONS: Final = 1_000
_LONGEST_KEY: Final = 10_000


@frozen
class Task:
    """A task that a call has become.

    Attributes:
        id: Its id, which may be all that a server requires to show the task: keep it
            secret.
        status: Its status when the server described it last.
        message: The server's description of its status, for users and models; `None` if
            there is no description.
        poll_interval: Seconds to wait between two polls, within limits of the client.
        answered: The keys of its questions that were answered. A key is used once.
    """

    id: str
    status: TaskStatus = "working"
    message: str | None = None
    poll_interval: float = _INTERVAL
    answered: frozenset[str] = frozenset()

    @classmethod
    def announced(cls, result: Mapping[str, Any]) -> Task:
        """Return the task that a result announces.

        Raises:
            ReplyError: If the result does not describe a task.
        """
        id_ = result.get("taskId")
        # A header repeats it, and JSON must be able to carry it.
        if not isinstance(id_, str) or not id_ or not id_.isprintable():
            raise ReplyError("a task without an id")
        if len(id_) > _LONGEST_ID:
            raise ReplyError(f"a task whose id has {len(id_):,} characters")
        return cls(id_).seen(result)

    def seen(self, result: JSON) -> Task:
        """Return the task as a later result describes it.

        Raises:
            ReplyError: If the result is invalid, or describes another task.
        """
        # The extension's examples of tasks/get also have the type "task".
        if not is_object(result, "complete", "task"):
            raise ReplyError("a task is an object")
        if result.get("taskId") != self.id:
            raise ReplyError("it describes another task")
        said, message = result.get("status"), result.get("statusMessage")
        status = _STATUSES.get(said) if isinstance(said, str) else None
        if status is None:
            raise ReplyError(f"a task of the unknown status {said!r:.80}")
        if self.is_ended and status != self.status:
            raise ReplyError(f"a task that was {self.status} is {status}")
        if not isinstance(message, str | None):
            raise ReplyError("statusMessage is not a string")
        milliseconds = result.get("pollIntervalMs")
        interval = _INTERVAL if milliseconds is None else _seconds(milliseconds)
        return evolve(self, status=status, message=message, poll_interval=interval)

    def asked_once(self, keys: Iterable[str]) -> Task:
        """Return this task after some of its questions were answered."""
        return evolve(self, answered=self.answered.union(keys))

    @property
    def is_ended(self) -> bool:
        """Whether the task has ended."""
        return self.status in _ENDED

    @property
    def pause(self) -> float:
        """Seconds to wait before the next poll."""
        # A result that announces a task has no questions, results and errors in it.
        return 0.0 if self.is_ended else self.poll_interval

    def to_json(self) -> dict[str, JSON]:
        """Return a JSON value to store."""
        return {
            "id": self.id,
            "status": self.status,
            "message": self.message,
            "pollInterval": self.poll_interval,
            "answered": sorted(self.answered),
        }

    @classmethod
    def from_json(cls, value: JSON) -> Task:
        """Return the task that `to_json` has stored.

        Raises:
            ReplyError: If `value` is not from `to_json`.
        """
        try:
            answered = value["answered"]
            if not all(isinstance(key, str) for key in answered):
                raise TypeError
            described = {
                "taskId": value["id"],
                "status": value["status"],
                "statusMessage": value["message"],
                "pollIntervalMs": value["pollInterval"] * 1000,
            }
            return cls.announced(described).asked_once(answered)
        except (TypeError, LookupError, OverflowError, ReplyError):
            raise ReplyError("a stored task of another shape") from None


def _seconds(milliseconds: JSON) -> float:
    is_number = isinstance(milliseconds, (int, float)) and milliseconds is not True
    if not is_number or not milliseconds >= 0:  # NaN is neither
        raise ReplyError("pollIntervalMs is not a number of milliseconds")
    # Compared before it is divided: an overlong integer cannot become a float.
    limited = max(_SHORTEST * 1000, min(_LONGEST * 1000, milliseconds))
    return float(limited / 1000)


def is_object(result: JSON, *types: str) -> bool:
    """Return whether a result is an object of one of these types, or without a type."""
    return isinstance(result, dict) and result.get("resultType", types[0]) in types


def questions_in(result: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the questions of a task that were not answered yet.

    Raises:
        ReplyError: If they are invalid, or too many.
    """
    questions: Any = result.get("inputRequests")
    if not are_requests(questions):
        raise ReplyError("inputRequests is a map of requests")
    if any(len(key) > _LONGEST_KEY for key in questions):
        raise ReplyError("a question whose key is too long")
    return {key: one for key, one in questions.items() if key not in task.answered}


def are_requests(questions: JSON) -> bool:
    """Return whether a value is a map of requests.

    Raises:
        ReplyError: If there are too many: all of them are answered concurrently.
    """
    if not isinstance(questions, dict) or not all(
        isinstance(one, dict)
        and isinstance(one.get("method"), str)
        and isinstance(one.get("params", {}), dict)
        for one in questions.values()
    ):
        return False
    if len(questions) > MOST_QUESTIONS:
        raise ReplyError(f"the server asks {len(questions):,} questions at once")
    return True


def error_in(message: Mapping[str, Any]) -> ProtocolError:
    """Return the JSON-RPC error in a response or in a failed task.

    Raises:
        ReplyError: If there is no valid error.
    """
    error = message.get("error")
    if not isinstance(error, dict):
        raise ReplyError("it has neither a result nor an error")
    code, text = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(text, str):
        raise ReplyError("its error has no code and message")
    return ProtocolError(code, text, error.get("data"))
