"""Sessions whose client has several tokens: each reads only what it allows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from effectmcp import Elicit, Flow
from effectmcp.auth import Identity
from effectmcp.server import Server

from .era import tool
from .test_legacy_http import shake
from .wire import serving

WIDE: dict[str, Any] = {"x_scopes": "r w"}
NARROW: dict[str, Any] = {"x_scopes": "r"}


def find(headers: Mapping[str, str]) -> Identity:
    return Identity(
        subject="ann",
        scopes=headers.get("x-scopes", "").split(),
        expires=None if "x-lasts" not in headers else time.time() + 3,
    )


def office() -> Server:
    app = Server("office", auth=find)

    @app.tool(scopes={"w"})
    def secret() -> Flow[str]:
        name = yield from Elicit("Whose?", str)
        return f"the secret of {name}"

    @app.tool
    async def slow() -> str:
        await trio.sleep(30)
        return "done"

    @app.resource("office://safe", scopes={"w"})
    def safe() -> str:
        return "gold"

    return app


async def test_messages_of_a_request_are_read_with_its_scopes() -> None:
    """A client can resume the stream that has the question and the result."""
    async with serving(office()) as doors:
        old = await shake(doors, "2025-11-25", **WIDE)
        async with old.stream(tool("secret")) as stream:
            event = await stream.next()
            while event is not None and not event.data:
                event = await stream.next()
            assert event is not None
            first = event.id
        stolen = await old.ask(None, "GET", last_event_id="1-0", **NARROW)
        assert stolen.status == 403
        assert 'scope="w"' in stolen.headers["www-authenticate"]
        async with old.stream(None, "GET", last_event_id="1-0") as stream:
            event = await stream.next()
            while event is not None and not event.data:
                event = await stream.next()
            assert event is not None
            assert event.id == first


@pytest.mark.parametrize("is_widened", [False, True])
async def test_notifications_are_for_the_token_that_reads_them(
    autojump_clock: MockClock, is_widened: bool
) -> None:
    """A request with another token does not change what the stream may tell."""
    app = office()
    async with serving(app) as doors:
        old = await shake(doors, "2025-11-25", **WIDE)
        subscribe = {"jsonrpc": "2.0", "id": 7, "method": "resources/subscribe"}
        wanted: Any = {**subscribe, "params": {"uri": "office://safe"}}
        assert await old.status(wanted) == 200
        reader = NARROW if is_widened else WIDE
        async with old.stream(None, "GET", **reader) as stream:
            listing = {"jsonrpc": "2.0", "id": 8, "method": "tools/list"}
            other = WIDE if is_widened else NARROW
            assert await old.status(listing, **other) == 200
            heard: list[str] = []
            with trio.move_on_after(5):
                app.updated("office://safe")
                while (event := await stream.next()) is not None:
                    heard.append(event.data or "")
        assert any("office://safe" in one for one in heard) is not is_widened


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_call_is_answered_although_its_token_expires(
    autojump_clock: MockClock, version: str
) -> None:
    """Older clients cannot resume it, and the tool has run already."""
    async with serving(office()) as doors:
        old = await shake(doors, version, **WIDE)
        async with old.stream(tool("slow"), x_lasts="3") as stream:
            data = ""
            while (event := await stream.next()) is not None:
                data += event.data or ""
        assert "done" in data
