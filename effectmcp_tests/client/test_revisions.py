"""Conversations in every revision, with our own server, over every channel."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from effectmcp import (
    Declined,
    Dismissed,
    Elicit,
    Flow,
    Keys,
    Log,
    ProtocolError,
    Root,
    Server,
    Step,
)
from effectmcp.client import (
    Client,
    Form,
    InMemory,
    OverPipes,
    Pending,
    Result,
    StateRejected,
)
from effectmcp.protocol.revisions import DRAFT
from effectmcp.state import make_key

from .ways import COMMAND, ENVIRONMENT, PATIENCE, At, Loop, Way, fill_in, on_both

#: The revisions with a handshake in which a user can be asked.
ASKING = ["2025-11-25", "2025-06-18"]
KEYS = Keys(make_key(bytes(range(32))))
VERSIONS = [*ASKING, "2025-03-26"]


def client_of(at: At, version: str, **options: Any) -> Client:
    """Create a client with its own channel: a handshake is permanent."""
    if at.kind == "pipes":
        return Client(OverPipes(COMMAND, env=ENVIRONMENT), version=version, **options)
    return at.client(version=version, **options)


@pytest.mark.parametrize("version", ["2026-07-28", *ASKING])
def test_a_conversation(way: Way, version: str) -> None:
    async def body(at: At) -> None:
        seen: list[Pending] = []
        progress: list[Mapping[str, Any]] = []
        logs: list[Mapping[str, Any]] = []
        options: dict[str, Any] = {
            "elicit": fill_in,
            "sample": lambda sampling: "Hi",
            "roots": [Root("file:///a")],
            "on_round": seen.append,
            "on_progress": progress.append,
            "on_log": logs.append,
        }
        async with client_of(at, version, **options) as client:
            assert len(await client.list_tools()) > 2
            result = await client.call_tool("order", {"title": "It"})
            assert (result.text, result.rounds) == ("2 × It for Ann, 30", 3)
            result = await client.call_tool("survey")
            assert (result.text, result.rounds) == ("Hi Ann of file:///a (None)", 2)
            assert [len(one.questions) for one in seen] == [1, 1, 3]
            assert "this" in (await client.get_prompt("letter", {"to": "Ann"})).text
            assert "this" in (await client.read_resource("shelf://private")).text
            assert (await client.call_tool("count", {"to": 3})).text == "3"
            assert [one["progress"] for one in progress] == [1, 2, 3]
            await client.call_tool("talk")
            assert [one["level"] for one in logs] == ["info", "error"]
            failed = await client.call_tool("fail")
            assert (failed.is_error, failed.text) == (True, "it is out of print")
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await client.call_tool("no such tool")
            found = await client.discover()
            assert version in found["supportedVersions"]
            ref = {"type": "ref/prompt", "name": "card"}
            assert len(await client.complete(ref, "to", "A")) == 2

    way.run(body)


def test_a_conversation_without_questions(way: Way) -> None:
    """In the first revision with handshakes here, users could not be asked."""

    async def body(at: At) -> None:
        async with client_of(at, "2025-03-26", elicit=fill_in) as client:
            assert len(await client.list_prompts()) == 3
            assert (await client.call_tool("paces", {"count": 2})).text == "2"
            refused = await client.call_tool("order", {"title": "It"})
            assert refused.is_error
            assert "2025-03-26, has no elicitation" in refused.text
            assert (await client.get_prompt("note")).text == "A note."

    way.run(body)


@pytest.mark.parametrize("version", ASKING)
@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({}, "true"),
        (Declined(), "false"),
        (Dismissed(), "The user dismissed the question."),
    ],
)
def test_ways_to_answer(way: Way, version: str, said: Any, text: str) -> None:
    async def body(at: At) -> None:
        async with client_of(at, version, elicit=lambda form: said) as client:
            assert (await client.call_tool("sure")).text == text

    way.run(body)


@pytest.mark.parametrize("version", ASKING)
def test_calls_side_by_side(way: Way, version: str) -> None:
    """Over pipes a question does not name its call; its answer finds the way."""

    async def elicit(form: Form) -> dict[str, Any]:
        return {"value": form.message}

    async def body(at: At) -> None:
        results: dict[int, str] = {}
        async with client_of(at, version, elicit=elicit, rounds=99) as client:

            async def call(number: int) -> None:
                result = await client.call_tool("echo", {"number": number})
                results[number] = result.text

            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(call, number)
        assert results == {n: f"{n} is What is {n}?" for n in range(10)}

    way.run(body)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_that_is_given_up_ends_at_the_server(loop: Loop, version: str) -> None:
    async def body() -> None:
        is_begun, is_over = anyio.Event(), anyio.Event()
        app = Server("test", keys=KEYS)

        @app.tool
        async def wait() -> None:
            is_begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                is_over.set()

        async with Client(InMemory(app), version=version) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "wait")
                await is_begun.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(PATIENCE):
                await is_over.wait()

    anyio.run(body, backend=loop)


def test_changes_are_received(way: Way) -> None:
    async def body(at: At) -> None:
        async with client_of(at, "2025-11-25") as client:
            async with client.listen(tools=True, uris=["shelf://still"]) as changes:
                await anext(changes)
                await client.call_tool("touch", {"uri": "shelf://lively"})
                await client.call_tool("touch", {"uri": "shelf://still"})
                assert (await anext(changes))["params"]["uri"] == "shelf://still"
                name = f"revisions_{at.kind}_{at.loop}"
                await client.call_tool("toggle", {"name": name})
                assert "tools/list_changed" in (await anext(changes))["method"]
                await client.call_tool("toggle", {"name": name})

    way.run(body)


def test_a_call_a_round_at_a_time(way: Way) -> None:
    async def body(at: At) -> None:
        async with (
            client_of(at, "2025-11-25", elicit=fill_in) as client,
            client_of(at, "2025-11-25", elicit=fill_in) as other,
        ):
            steps = client.start("tools/call", {"name": "pair"})
            pending = await steps.round()
            assert isinstance(pending, Pending)
            assert len(pending.questions) == 2
            with pytest.raises(StateRejected):
                await other.resume(pending).round()
            found = await client.resume(pending).round()
            assert isinstance(found, Result)
            assert found.text == "this and this"
            # It was one request, and it is over.
            with pytest.raises(StateRejected):
                await steps.round()

    way.run(body)


@on_both
async def test_closing_in_the_middle_leaves_nothing() -> None:
    app = Server("test", keys=KEYS)

    @app.tool
    def ask() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with Client(
            InMemory(app), version="2025-11-25", elicit=fill_in
        ) as client:
            for _ in range(3):
                steps = client.start("tools/call", {"name": "ask"})
                assert isinstance(await steps.round(), Pending)
        gc.collect()


@on_both
async def test_a_conversation_in_the_drafts_words() -> None:
    """By retry, so that another client may resume it."""
    app = Server("test", keys=KEYS, drafts=True)

    @app.tool
    def ask() -> Flow[str]:
        one = yield from Elicit("Who?", str)
        two = yield from Elicit("And?", str)
        return f"{one} {two}"

    async with (
        Client(InMemory(app), drafts=True, elicit=fill_in) as client,
        Client(InMemory(app), drafts=True, elicit=fill_in) as other,
    ):
        assert (await client.discover())["supportedVersions"] == [DRAFT.version]
        assert (await client.call_tool("ask")).rounds == 3
        pending = await client.start("tools/call", {"name": "ask"}).round()
        assert isinstance(pending, Pending)
        assert isinstance(await other.resume(pending).round(), Pending)
    app.drafts = False
    async with Client(InMemory(app), drafts=True, elicit=fill_in) as client:
        assert (await client.discover())["supportedVersions"] == ["2025-11-25"]
        assert (await client.call_tool("ask")).rounds == 3


def test_a_slow_listener_does_not_delay_others(loop: Loop) -> None:
    """The layer below does not wait for it, and keeps a limited number of messages."""

    async def main() -> None:
        goes = anyio.Event()
        heard: list[Any] = []

        async def go() -> None:
            goes.set()

        def chatty() -> Flow[str]:
            for number in range(1_500):
                yield from Log("info", number)
            yield from Step(go)
            return "done"

        async def listen(params: Any) -> None:
            await goes.wait()
            heard.append(params["data"])

        app = Server("shop")
        app.tool(chatty)
        async with Client(InMemory(app), version=ASKING[0], on_log=listen) as client:
            assert (await client.call_tool("chatty")).text == "done"
        assert heard == list(range(len(heard)))
        assert 1_000 < len(heard) < 1_010

    anyio.run(main, backend=loop)
