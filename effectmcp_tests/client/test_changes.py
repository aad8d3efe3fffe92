"""The changes that wait for `listen()`, and the arguments that request them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from effectmcp import UsageError
from effectmcp.client import Client, ReplyError, changes
from effectmcp.client.changes import Changes
from effectmcp.client.subscriptions import wanted_changes

from .legacy_server import Legacy
from .ways import Scripted, on_both

NOTHING: dict[str, Any] = {
    "tools": False,
    "prompts": False,
    "resources": False,
    "uris": (),
    "tasks": (),
}


def wanted(**more: Any) -> Any:
    return wanted_changes(**{**NOTHING, **more})


def test_wanted_changes_have_the_names_of_the_protocol() -> None:
    assert wanted() == {}
    assert wanted(tools=True, prompts=True, resources=True) == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
    }
    assert wanted(uris=iter(["a:b"]), tasks=("t",)) == {
        "resourceSubscriptions": ["a:b"],
        "taskIds": ["t"],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resources": ["a:b"]}, r"resources=\['a:b'\].* for resources, give uris="),
        ({"resources": "a:b"}, "give uris="),
        ({"tools": ["order"]}, r"tools=\['order'\]\): give True or False"),
        ({"prompts": 1}, "give True or False"),
        ({"uris": "a:b"}, r"uris='a:b'\): give a list of the URIs of resources"),
        ({"uris": True}, "give a list of the URIs of resources"),
        ({"uris": [b"a:b"]}, "b'a:b' is not a string"),
        ({"tasks": "t"}, "give a list of the ids of tasks"),
        ({"tasks": None}, "give a list of the ids of tasks"),
    ],
)
def test_arguments_of_another_type_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        wanted(**arguments)


@on_both
async def test_listen_refuses_a_list_of_resources() -> None:
    """A list is true: it would subscribe to the list of resources."""
    async with Client(Scripted([]), version="2026-07-28") as client:
        with pytest.raises(UsageError, match="uris="):
            # Wrong on purpose.
            async with client.listen(resources=["a:b"]):  # type: ignore[arg-type]
                raise AssertionError("not reached")


@on_both
async def test_changes_are_iterated_and_limited() -> None:
    waiting = Changes()
    for _ in range(3):
        for number in range(1_000):
            waiting.add({"n": number})
        with pytest.raises(ReplyError, match="1,001 changes wait"):
            waiting.add({})
        assert [(await anext(waiting))["n"] for _ in range(1_000)] == [*range(1_000)]
    waiting.end()
    assert [one async for one in waiting] == []
    waiting.close()
    waiting.add({})  # the iterator is closed


def test_size_of_changes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LARGEST", 10_000)
    waiting = Changes()
    waiting.add({"text": "x" * 5_000})
    with pytest.raises(ReplyError, match="2 changes wait"):
        waiting.add({"text": "x" * 5_000})
    waiting.close()


@on_both
async def test_listen_ends_if_changes_are_not_read() -> None:
    """Other calls continue, although a session has one stream for all."""
    server = Legacy()
    told = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    async with server.client() as client:

        async def flood() -> None:
            async with client.listen(tools=True) as found:
                await anext(found)
                for _ in range(1_001):
                    await server.stream(told)
                await anyio.sleep_forever()

        with pytest.raises(ReplyError, match="changes wait"):
            await flood()
        assert (await client.call_tool("tool")).text == "done"


@on_both
async def test_listen_waits_for_its_acknowledgement_until_the_deadline() -> None:
    class Silent(Scripted):
        async def exchange(self, message: Any, headers: Any, hear: Any) -> Any:
            await anyio.sleep_forever()

    channel = Silent([])
    options: dict[str, Any] = {"version": "2026-07-28", "round_timeout": 0.05}
    async with Client(channel, **options) as client:
        with pytest.raises(TimeoutError, match="no answer to subscriptions/listen"):
            async with client.listen(tools=True) as found:
                await anext(found)
