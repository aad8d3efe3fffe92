"""`subscriptions/listen`: select the changes that a client is notified of.

Every message carries the id of the request that opened the subscription, and the
acknowledgement is sent before all others (2026-07-28, Subscriptions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON
from ..errors import ProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS, Id, notification
from ..protocol.meta import SUBSCRIPTION_ID
from ..server.changes import Change
from .task_rows import task_fields

if TYPE_CHECKING:
    from ..server.identity import Identity
    from .task_rows import TaskRow

__all__ = ["Subscription", "open_subscription"]

#: The flags of a filter, and the list whose changes each selects.
_FLAGS: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
_MAX_URIS: Final = 1_000
#: Fewer, as each one is read from the store before the subscription starts.
_MAX_TASKS: Final = 100


class Subscription:
    """One client's subscription.

    Attributes:
        id: The id of the request that opened it.
        acknowledgement: The message to send first.
        meta: The `_meta` of each of its messages.
        asked_tasks: The ids of the tasks that the client asked to follow.
        first: Changes to tell at once, as they may have happened before.
        is_read: Whether `message` reads a store, and so may block.
        tap: Called with each message but the first.
        identity: The client, which has to be authenticated again after a time.
    """

    def __init__(
        self,
        id_: Id,
        wanted: Mapping[str, JSON],
        asked_tasks: list[str],
        may_hear: Callable[[Change], bool] | None = None,
    ) -> None:
        self.id = id_
        self._may_hear = may_hear
        self.tap: Callable[[Mapping[str, JSON]], None] | None = None
        self.identity: Identity | None = None
        self.meta: Mapping[str, JSON] = {SUBSCRIPTION_ID: id_}
        self._lists = {what for flag, what in _FLAGS.items() if wanted.get(flag)}
        self._uris = frozenset(wanted.get("resourceSubscriptions", ()))
        self.asked_tasks = asked_tasks
        self.first: tuple[Change, ...] = ()
        self.is_read = False
        self._tasks: frozenset[str] = frozenset()
        self._read: Callable[[str], TaskRow | None] = _unread
        #: The latest notification about each task, in brief.
        self._told: dict[str, object] = {}
        self.acknowledgement = notification(
            "notifications/subscriptions/acknowledged",
            {"_meta": self.meta, "notifications": dict(wanted)},
        )

    def follow(self, ids: list[str], read: Callable[[str], TaskRow | None]) -> None:
        """Follow the tasks that the client may see, and acknowledge only these.

        Args:
            ids: Their ids.
            read: Returns a task.
        """
        self._tasks, self._read, self.is_read = frozenset(ids), read, True
        self.first = tuple(Change("task", id_) for id_ in ids)
        self.acknowledgement["params"]["notifications"]["taskIds"] = ids

    def wants(self, change: Change) -> bool:
        """Return whether the client asked to be notified of `change`, and may be."""
        return self._asked_for(change) and (
            self._may_hear is None or self._may_hear(change)
        )

    def _asked_for(self, change: Change) -> bool:
        if change.what == "resource":
            return change.uri in self._uris
        if change.what == "task":
            return change.uri in self._tasks
        return change.what in self._lists

    def message(self, change: Change) -> dict[str, Any] | None:
        """Return the notification of `change`; `None` if no client could see it.

        Raises:
            TaskStoreError: If the task that changed cannot be read.
        """
        if change.what == "task":
            return self._message_of_task(change.uri or "")
        if change.what == "resource":
            return notification(
                "notifications/resources/updated",
                {"_meta": self.meta, "uri": change.uri},
            )
        method = f"notifications/{change.what}/list_changed"
        return notification(method, {"_meta": self.meta})

    def _message_of_task(self, id_: str) -> dict[str, Any] | None:
        row = self._read(id_)
        if row is None:
            return None  # it was removed
        # A task is saved more often than it changes for clients: with each of its steps.
        told = row.status, row.message, tuple(row.questions)
        if self._told.get(id_) == told:
            return None
        self._told[id_] = told
        params = {"_meta": self.meta, **task_fields(row)}
        return notification("notifications/tasks", params)


def _unread(id_: str) -> None:
    """Find no task."""


def open_subscription(
    id_: Id,
    params: Mapping[str, JSON],
    may_hear: Callable[[Change], bool] | None = None,
) -> Subscription:
    """Open the subscription that a request describes; ignore unknown filter keys.

    Args:
        id_: The id of the request.
        params: Its parameters.
        may_hear: Returns whether its client may know of a change; `None`: of each.

    Raises:
        ProtocolError: If the filter is invalid.
    """
    asked = params.get("notifications")
    if not isinstance(asked, dict):
        raise _invalid("notifications is required, and is an object")
    wanted: dict[str, JSON] = {}
    for flag in _FLAGS:
        value = asked.get(flag, False)
        if type(value) is not bool:
            raise _invalid(f"notifications.{flag} is a boolean")
        if value:
            wanted[flag] = True
    uris = asked.get("resourceSubscriptions", [])
    if (
        not isinstance(uris, list)
        or len(uris) > _MAX_URIS
        or not all(isinstance(uri, str) for uri in uris)
    ):
        raise _invalid(
            f"notifications.resourceSubscriptions is a list of at most {_MAX_URIS:,} URIs"
        )
    tasks = asked.get("taskIds", [])
    if (
        not isinstance(tasks, list)
        or len(tasks) > _MAX_TASKS
        or not all(isinstance(id_, str) for id_ in tasks)
    ):
        raise _invalid(f"notifications.taskIds is a list of at most {_MAX_TASKS:,} ids")
    if uris:
        wanted["resourceSubscriptions"] = list(dict.fromkeys(uris))
    return Subscription(id_, wanted, tasks, may_hear)


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")
