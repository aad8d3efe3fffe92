from __future__ import annotations

from typing import Any

import pytest

from effectmcp import ProtocolError
from effectmcp.exchange.subscriptions import Subscription, open_subscription
from effectmcp.server import Change

from ..wire import PREFIX, fits

ALL: dict[str, Any] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["shop://x"],
}
CHANGES = {
    "toolsListChanged": Change("tools"),
    "promptsListChanged": Change("prompts"),
    "resourcesListChanged": Change("resources"),
    "resourceSubscriptions": Change("resource", "shop://x"),
}


def opened(notifications: Any, id_: Any = "s") -> Subscription:
    return open_subscription(id_, {"notifications": notifications})


@pytest.mark.parametrize("flag", ALL)
def test_subscription_sends_only_requested_changes(flag: str) -> None:
    subscription = opened({flag: ALL[flag]})
    for other, change in CHANGES.items():
        assert subscription.wants(change) == (other == flag)
        message = subscription.message(change)
        assert message is not None
        fits("ServerNotification", message)
        assert message["params"]["_meta"] == {f"{PREFIX}subscriptionId": "s"}


def test_subscription_on_the_wire() -> None:
    subscription = opened(ALL, 0)
    meta = {f"{PREFIX}subscriptionId": 0}
    messages: list[Any] = [subscription.message(one) for one in CHANGES.values()]
    assert [(one["method"], one["params"]) for one in messages] == [
        ("notifications/tools/list_changed", {"_meta": meta}),
        ("notifications/prompts/list_changed", {"_meta": meta}),
        ("notifications/resources/list_changed", {"_meta": meta}),
        ("notifications/resources/updated", {"_meta": meta, "uri": "shop://x"}),
    ]


def test_subscription_to_one_resource_is_not_to_another() -> None:
    assert opened(ALL).wants(Change("resource", "shop://x"))
    assert not opened(ALL).wants(Change("resource", "shop://y"))


def test_end_is_not_a_notification() -> None:
    assert not opened(ALL).wants(Change("end"))


def test_resource_that_is_named_twice_is_one() -> None:
    uris = ["shop://y", "shop://x", "shop://y"]
    message = opened({"resourceSubscriptions": uris}).acknowledgement
    fits("SubscriptionsAcknowledgedNotification", message)
    assert message["params"]["notifications"] == {
        "resourceSubscriptions": ["shop://y", "shop://x"]
    }


def test_acknowledgement_lists_the_coming_notifications() -> None:
    asked = {**ALL, "promptsListChanged": False, "later": True}
    message = opened(asked).acknowledgement
    fits("SubscriptionsAcknowledgedNotification", message)
    assert message["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["shop://x"],
    }
    assert opened({}).acknowledgement["params"]["notifications"] == {}


@pytest.mark.parametrize(
    "notifications",
    [
        None,
        [],
        {"toolsListChanged": "yes"},
        {"toolsListChanged": None},
        {"resourcesListChanged": 1},
        {"resourceSubscriptions": "shop://x"},
        {"resourceSubscriptions": [5]},
        {"resourceSubscriptions": ["x"] * 1_001},
    ],
    ids=lambda one: repr(one)[:40],
)
def test_filter_of_an_invalid_type_is_refused(notifications: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        opened(notifications)
    assert caught.value.code == -32602
    with pytest.raises(ProtocolError):
        open_subscription("s", {})
