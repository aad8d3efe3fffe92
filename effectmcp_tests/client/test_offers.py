"""The offers of a server, and their use: over every channel, on every loop."""

from __future__ import annotations

from typing import Any

import pytest

from effectmcp import ProtocolError, UsageError
from effectmcp.client import Client
from effectmcp.server import Change

from .ways import (
    At,
    Loop,
    Servers,
    Way,
    everywhere,
    fill_in,
)

# ---- what the server offers ---------------------------------------------------------


@everywhere
async def test_discovery_is_kept(at: At) -> None:
    async with at.client() as client:
        found = await client.discover()
        assert found["supportedVersions"] == ["2026-07-28"]
        assert found["instructions"] == "Ask for a book."
        assert await client.discover() == found
        assert at.methods() == ["server/discover"]
        client.forget()
        assert await client.discover() == found
        assert at.methods() == ["server/discover"] * 2


@everywhere
async def test_lists_have_pages_and_are_kept(at: At) -> None:
    async with at.client() as client:
        prompts = await client.list_prompts()
        assert [one["name"] for one in prompts] == ["letter", "card", "note"]
        assert len(await client.list_resources()) == 3
        assert len(await client.list_templates()) == 3
        tools = await client.list_tools()
        assert {"order", "ship"} < {one["name"] for one in tools}
        methods = at.methods()
        assert methods[:6] == [
            "prompts/list",
            "prompts/list",
            "resources/list",
            "resources/list",
            "resources/templates/list",
            "resources/templates/list",
        ]
        pages = len(methods) - 6
        assert pages == (len(tools) + 1) // 2
        assert await client.list_tools() == tools
        assert await client.list_prompts() == prompts
        assert at.methods() == methods


@everywhere
async def test_resources_are_kept_as_long_as_the_server_says(at: At) -> None:
    async with at.client(elicit=fill_in) as client:
        first = await client.read_resource("shelf://still")
        again = await client.read_resource("shelf://still")
        assert (again.text, again.rounds) == (first.text, 1)
        first = await client.read_resource("shelf://lively")
        assert (await client.read_resource("shelf://lively")).text != first.text
        client.forget()
        await client.read_resource("shelf://still")
        assert at.methods() == ["resources/read"] * 4
        # A result that depends on answers is private to its call.
        for _ in range(2):
            assert (await client.read_resource("shelf://private")).rounds == 2
        assert at.methods() == ["resources/read"] * 8


@everywhere
async def test_completion(at: At) -> None:
    ref = {"type": "ref/prompt", "name": "card"}
    async with at.client() as client:
        assert await client.complete(ref, "to", "A") == ["Ann, ?", "Alf, ?"]
        found = await client.complete(ref, "to", "A", {"kind": "red"})
        assert found == ["Ann, red", "Alf, red"]


@everywhere
async def test_arguments_in_headers(at: At) -> None:
    """Values that cannot be a header as they are work, too."""
    awkward = ["eu", "Mün chen", " padded ", "", "=?base64?x?=", "a\nb", "\u2028", "\t"]
    async with at.client() as client:
        for region in awkward:
            arguments: dict[str, Any] = {"region": region, "parcels": -7, "fast": False}
            result = await client.call_tool("ship", arguments)
            assert result.structured == arguments
        result = await client.call_tool("ship", {"region": "eu"})
        assert result.structured == {"region": "eu", "parcels": 0, "fast": True}
        # Refused before anything is sent, where there are headers.
        huge = {"region": "eu", "parcels": 2**53}
        if at.kind == "http":
            with pytest.raises(UsageError, match="beyond"):
                await client.call_tool("ship", huge)
    calls = [one for one in at.sent if one.message["method"] == "tools/call"]
    found = [
        {k: v for k, v in one.headers.items() if k.startswith("Mcp-Param-")}
        for one in calls
    ]
    if at.kind != "http":
        assert not any(found)
        return
    assert found[0] == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-Parcels": "-7",
        "Mcp-Param-Fast": "false",
    }
    assert found[1]["Mcp-Param-Region"] == "=?base64?TcO8biBjaGVu?="
    assert found[-1] == {"Mcp-Param-Region": "eu"}


@everywhere
async def test_a_number_that_is_an_integer_is_one_in_headers_too(at: At) -> None:
    """JSON Schema takes 3.0 for an integer, and so does the server."""
    async with at.client() as client:
        result = await client.call_tool("ship", {"region": "eu", "parcels": 3.0})
    assert isinstance(result.structured, dict)
    assert result.structured["parcels"] == 3


@everywhere
async def test_arguments_that_do_not_fit_are_for_the_model(at: At) -> None:
    """Over HTTP they are in headers, where they can be."""
    async with at.client() as client:
        for wrong in (5, True):
            result = await client.call_tool("ship", {"region": wrong})
            assert result.is_error


# ---- subscriptions ------------------------------------------------------------------


@everywhere
async def test_changes_are_received_and_forgotten(at: At) -> None:
    name = f"extra_{at.loop}"
    async with at.client() as client:
        before = await client.list_tools()
        async with client.listen(
            tools=True, prompts=True, resources=True, uris=["shelf://still"]
        ) as changes:
            acknowledged = await anext(changes)
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": ["shelf://still"],
            }
            await client.call_tool("touch", {"uri": "shelf://lively"})
            await client.call_tool("touch", {"uri": "shelf://still"})
            updated = await anext(changes)
            assert updated["method"] == "notifications/resources/updated"
            assert updated["params"]["uri"] == "shelf://still"
            await client.list_tools()
            await client.call_tool("toggle", {"name": name})
            changed = await anext(changes)
            assert changed["method"] == "notifications/tools/list_changed"
            after = await client.list_tools()
            assert {one["name"] for one in after} - {one["name"] for one in before} == {
                name
            }
            await client.call_tool("toggle", {"name": name})
        # The block is over, and the client continues.
        assert (await client.call_tool("count", {"to": 1})).text == "1"


@everywhere
async def test_leaving_at_once_is_allowed(at: At) -> None:
    async with at.client() as client:
        async with client.listen(tools=True):
            pass
        assert (await client.call_tool("count", {"to": 1})).text == "1"


async def hear_of(client: Client, error: Exception, **what: Any) -> None:
    """Listen, and raise at the first word."""
    async with client.listen(**what) as changes:
        async for _ in changes:
            raise error


@everywhere
async def test_an_error_of_the_block_is_raised_unchanged(at: At) -> None:
    async with at.client() as client:
        with pytest.raises(LookupError, match="mine"):
            await hear_of(client, LookupError("mine"), tools=True)


@everywhere
async def test_a_subscription_that_is_refused(at: At) -> None:
    async with at.client() as client:
        with pytest.raises(ProtocolError, match="at most 1,000"):
            await hear_of(client, AssertionError(), uris=map(str, range(1_001)))


@everywhere
async def test_a_log_of_another_call_is_not_a_change(at: At) -> None:
    """A subscription receives its own messages only."""
    async with at.client(log_level="debug") as client:
        async with client.listen(tools=True) as changes:
            await anext(changes)
            await client.list_tools()
            await client.call_tool("talk")
            await client.call_tool("toggle", {"name": f"more_{at.loop}"})
            assert (await anext(changes))[
                "method"
            ] == "notifications/tools/list_changed"
        await client.call_tool("toggle", {"name": f"more_{at.loop}"})


def test_the_end_of_a_server_in_memory_ends_its_subscriptions(
    loop: Loop, servers: Servers
) -> None:
    """Others end with their process."""

    async def body(at: At) -> None:
        assert at.app is not None
        async with at.client() as client, client.listen(tools=True) as changes:
            assert "acknowledged" in (await anext(changes))["method"]
            at.app.changes.publish(Change("end"))
            rest = [one["method"] async for one in changes]
        assert rest == ["notifications/cancelled"]

    Way("memory", loop, servers).run(body)
