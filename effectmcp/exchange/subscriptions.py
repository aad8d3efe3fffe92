"""`subscriptions/listen`: select the changes that a client is notified of.

Every message carries the id of the request that opened the subscription, and the
acknowledgement is sent before all others (2026-07-28, Subscriptions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON
from ..errors import ProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS, Id, notification
from ..protocol.meta import SUBSCRIPTION_ID

if TYPE_CHECKING:
    from ..server.changes import Change

__all__ = ["Subscription", "open_subscription"]

#: The flags of a filter, and the list whose changes each selects.
_FLAGS: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
_MAX_URIS: Final = 1_000


class Subscription:
    """One client's subscription.

    Attributes:
        id: The id of the request that opened it.
        acknowledgement: The message to send first.
        meta: The `_meta` of each of its messages.
    """

    def __init__(self, id_: Id, wanted: Mapping[str, JSON]) -> None:
        self.id = id_
        self.meta: Mapping[str, JSON] = {SUBSCRIPTION_ID: id_}
        self._lists = {what for flag, what in _FLAGS.items() if wanted.get(flag)}
        self._uris = frozenset(wanted.get("resourceSubscriptions", ()))
        self.acknowledgement = notification(
            "notifications/subscriptions/acknowledged",
            {"_meta": self.meta, "notifications": dict(wanted)},
        )

    def wants(self, change: Change) -> bool:
        """Return whether the client asked to be notified of `change`."""
        if change.what == "resource":
            return change.uri in self._uris
        return change.what in self._lists

    def message(self, change: Change) -> dict[str, Any]:
        """Return the notification of `change`."""
        if change.what == "resource":
            return notification(
                "notifications/resources/updated",
                {"_meta": self.meta, "uri": change.uri},
            )
        method = f"notifications/{change.what}/list_changed"
        return notification(method, {"_meta": self.meta})


def open_subscription(id_: Id, params: Mapping[str, JSON]) -> Subscription:
    """Open the subscription that a request describes; ignore unknown filter keys.

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
    if uris:
        wanted["resourceSubscriptions"] = list(dict.fromkeys(uris))
    return Subscription(id_, wanted)


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")
