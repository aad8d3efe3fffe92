from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import pytest
import trio

from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import sync as on_sync
from effectmcp.drivers import trio as on_trio
from effectmcp.exchange.commands import Reply
from effectmcp.server import Server
from effectmcp.testing.contracts import ContractError, check_driver, check_transport
from effectmcp.transports import asgi, lines, wsgi

from ..transports import test_asgi, test_wsgi
from ..transports import wire as http_wire
from ..transports.shop import events

Hear = Callable[[Mapping[str, Any]], None]


def by_sync(app: Server, message: Any, hear: Hear) -> Reply:
    with on_sync.running(app):
        return on_sync.handle(app, message, send=hear, run_async=asyncio.run)


async def _on(driver: Any, app: Server, message: Any, hear: Hear) -> Reply:
    async def send(message: Mapping[str, Any]) -> None:
        hear(message)

    async with driver.running(app):
        reply: Reply = await driver.handle(app, message, send=send)
        return reply


def by_trio(app: Server, message: Any, hear: Hear) -> Reply:
    return trio.run(_on, on_trio, app, message, hear)


def by_asyncio(app: Server, message: Any, hear: Hear) -> Reply:
    return asyncio.run(_on(on_asyncio, app, message, hear))


@pytest.mark.parametrize("handle", [by_sync, by_trio, by_asyncio])
def test_our_drivers_keep_the_contract(handle: Any) -> None:
    check_driver(handle)


def test_a_driver_that_forgets_notifications_breaks_it() -> None:
    def deaf(app: Server, message: Any, hear: Hear) -> Reply:
        return by_sync(app, message, lambda told: None)

    with pytest.raises(ContractError, match="notifications_come_in_order") as caught:
        check_driver(deaf)
    assert caught.value.check == "notifications_come_in_order_and_first"


def test_a_driver_without_a_lifespan_breaks_it() -> None:
    def bare(app: Server, message: Any, hear: Hear) -> Reply:
        app.provided = {}
        return on_sync.handle(app, message, send=hear, run_async=asyncio.run)

    with pytest.raises(ContractError, match="what_the_lifespan_provides_is_given"):
        check_driver(bare)


def test_a_driver_that_raises_breaks_it() -> None:
    def broken(app: Server, message: Any, hear: Hear) -> Reply:
        raise OSError("no loop")

    with pytest.raises(ContractError, match="OSError: no loop"):
        check_driver(broken)


# ---- transports ----


def in_memory(app: Server, *, drops: str = "") -> Callable[[Any], list[Any]]:
    """A transport of no bytes at all."""

    def send(message: Any) -> list[Any]:
        told: list[Any] = []
        reply = by_sync(app, message, told.append)
        if reply.message is not None:
            told.append(reply.message)
        return (
            [one for one in told if drops not in one.get("method", "-")]
            if drops
            else told
        )

    return send


def test_the_least_transport_keeps_the_contract() -> None:
    check_transport(in_memory)


def test_a_transport_that_loses_notifications_breaks_it() -> None:
    with pytest.raises(ContractError, match="rounds: expected"):
        check_transport(partial(in_memory, drops="progress"))


def test_a_transport_without_responses_breaks_the_contract() -> None:
    with pytest.raises(ContractError, match="discovery: nothing came back"):
        check_transport(lambda app: lambda message: [])


# ---- our own transports ----


def messages_of(got: Any) -> list[Any]:
    if not got.body:
        return []
    if got.headers["content-type"] == "text/event-stream":
        return events(got.body)
    return [json.loads(got.body)]


def over_wsgi(app: Server) -> Callable[[Any], list[Any]]:
    served = wsgi.application(app)
    return lambda message: messages_of(test_wsgi.asked(served, message))


def over_asgi(loop: test_asgi.Loop, app: Server) -> Callable[[Any], list[Any]]:
    def send(message: Any) -> list[Any]:
        async def ask() -> list[Any]:
            # Each of its own, as a loop is here for one message only.
            wire = await test_asgi.Wire(loop).ask(asgi.application(app), message)
            return messages_of(wire)

        found: list[Any] = loop.run(ask)
        return found

    return send


def over_http(app: Server) -> Callable[[Any], list[Any]]:
    def send(message: Any) -> list[Any]:
        async def ask() -> list[Any]:
            async with http_wire.serving(app) as doors:
                return messages_of(await doors.connect().ask(message))

        return trio.run(ask)

    return send


def over_lines(app: Server) -> Callable[[Any], list[Any]]:
    """The stdio transport, without the pipes."""

    def send(message: Any) -> list[Any]:
        written: list[Any] = []

        async def incoming() -> AsyncIterator[bytes]:
            yield json.dumps(message).encode()

        async def write(line: bytes) -> None:
            written.append(json.loads(line))

        async def serve() -> None:
            async with on_trio.running(app):
                await lines.serve_lines(app, incoming(), write)

        trio.run(serve)
        return written

    return send


OURS = {
    "wsgi": over_wsgi,
    "asgi on asyncio": partial(over_asgi, test_asgi.LOOPS[0]),
    "asgi on trio": partial(over_asgi, test_asgi.LOOPS[1]),
    "http": over_http,
    "lines": over_lines,
}


@pytest.mark.parametrize("serve", OURS.values(), ids=OURS)
def test_our_transports_keep_the_contract(serve: Any) -> None:
    check_transport(serve)


def test_a_driver_that_answers_with_errors_breaks_it() -> None:
    def refusing(app: Server, message: Any, hear: Hear) -> Reply:
        return by_sync(app, {**message, "method": "gone"}, hear)

    with pytest.raises(ContractError, match="an error: .*Method not found"):
        check_driver(refusing)
