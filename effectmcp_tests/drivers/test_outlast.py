"""A request that counts once is finished, though its client has disconnected."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from attrs import define, field

from effectmcp import Confirm, Flow, Server, step
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.server.changes import Change
from effectmcp.tasks import SqliteTasks

from ..wire import KEYS, request

YES = {"confirm-1": {"action": "accept", "content": {}}}


@define(eq=False)
class Vote:
    """A server with a tool whose step waits for the test."""

    cast: list[str] = field(factory=list)
    begun: threading.Event = field(factory=threading.Event)
    go_on: threading.Event = field(factory=threading.Event)
    ledger: SqliteTasks = field(factory=SqliteTasks)

    def app(self, *, is_consent: bool) -> Server:
        app = Server("vote", keys=KEYS, ledger=self.ledger)

        @step
        def cast(name: str) -> str:
            self.cast.append(name)
            self.begun.set()
            assert self.go_on.wait(60)
            return f"vote {len(self.cast)}"

        def vote() -> Flow[str]:
            if not (yield from Confirm("For Ann?", once=is_consent)):
                return "no"
            return (yield from cast("Ann"))

        app.tool(name="vote", single_use=not is_consent)(vote)
        return app


@pytest.fixture
def vote() -> Iterator[Vote]:
    found = Vote()
    yield found
    found.go_on.set()
    found.ledger.close()


def call(state: str | None = None) -> Any:
    params: dict[str, Any] = {"name": "vote", "arguments": {}}
    if state is not None:
        params |= {"requestState": state, "inputResponses": YES}
    return request("tools/call", params)


def text(reply: Any) -> str:
    found: str = reply.message["result"]["content"][0]["text"]
    return found


@pytest.mark.parametrize("is_consent", [True, False])
async def test_outlast_finishes_the_request_of_a_client_that_left_on_trio(
    vote: Vote, is_consent: bool
) -> None:
    app = vote.app(is_consent=is_consent)
    async with on_trio.running(app):
        asked: Any = await on_trio.handle(app, call())
        state = asked.message["result"]["requestState"]
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(on_trio.handle, app, call(state))
                await trio.to_thread.run_sync(vote.begun.wait)
                nursery.cancel_scope.cancel()  # the client has left
                vote.go_on.set()
            assert text(await on_trio.handle(app, call(state))) == "vote 1"
    assert vote.cast == ["Ann"]


@pytest.mark.parametrize("is_consent", [True, False])
def test_outlast_finishes_the_request_of_a_client_that_left_on_asyncio(
    vote: Vote, is_consent: bool
) -> None:
    app = vote.app(is_consent=is_consent)

    async def main() -> None:
        async with on_asyncio.running(app):
            asked: Any = await on_asyncio.handle(app, call())
            state = asked.message["result"]["requestState"]
            left = asyncio.create_task(on_asyncio.handle(app, call(state)))
            await asyncio.to_thread(vote.begun.wait)
            left.cancel()
            vote.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await left
            assert text(await on_asyncio.handle(app, call(state))) == "vote 1"

    asyncio.run(asyncio.wait_for(main(), 60))
    assert vote.cast == ["Ann"]


async def test_outlast_ends_with_the_server_on_trio(vote: Vote) -> None:
    """Otherwise a step without an end would keep the process."""
    app = vote.app(is_consent=False)
    async with on_trio.running(app):
        asked: Any = await on_trio.handle(app, call())
        state = asked.message["result"]["requestState"]
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(on_trio.handle, app, call(state))
                await trio.to_thread.run_sync(vote.begun.wait)
                nursery.cancel_scope.cancel()
                app.changes.publish(Change("end"))
    assert not vote.go_on.is_set()


def test_outlast_ends_with_the_server_on_asyncio(vote: Vote) -> None:
    app = vote.app(is_consent=False)

    async def main() -> None:
        async with on_asyncio.running(app):
            asked: Any = await on_asyncio.handle(app, call())
            state = asked.message["result"]["requestState"]
            left = asyncio.create_task(on_asyncio.handle(app, call(state)))
            await asyncio.to_thread(vote.begun.wait)
            left.cancel()
            app.changes.publish(Change("end"))
            with pytest.raises(asyncio.CancelledError):
                await left
            vote.go_on.set()  # the loop waits for its threads

    asyncio.run(asyncio.wait_for(main(), 60))
    assert vote.cast == ["Ann"]
