"""A client that plays the scenarios of the official conformance suite.

    python examples/everything_client.py http://localhost:3000/mcp

The scenario's name is in MCP_CONFORMANCE_SCENARIO, its data in MCP_CONFORMANCE_CONTEXT;
the revision to use, if it is an earlier one, in MCP_CONFORMANCE_PROTOCOL_VERSION.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from effectmcp import Root
from effectmcp.client import Client, Form, OverHttp, Sampling

Scenario = Callable[[Client, Mapping[str, Any]], Awaitable[None]]


def fill_in(form: Form) -> dict[str, Any]:
    """Return the answer of a cooperative user: the defaults, and yes."""
    yes = {
        name: True for name, one in form.fields.items() if one.get("type") == "boolean"
    }
    return {**yes, **form.defaults}


def write(sampling: Sampling) -> str:
    """Answer in place of a model."""
    return f"An answer to {len(sampling.messages)} messages."


async def list_tools(client: Client, context: Mapping[str, Any]) -> None:
    """List the tools, and call none."""
    await client.list_tools()


async def call_add_numbers(client: Client, context: Mapping[str, Any]) -> None:
    """Call a tool with two numbers."""
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def call_in_rounds(client: Client, context: Mapping[str, Any]) -> None:
    """Call tools that ask, with a tool that does not ask in between."""
    await client.list_tools()
    for name in (
        "test_mrtr_echo_state",
        "test_mrtr_unrelated",
        "test_mrtr_no_state",
        "test_mrtr_no_result_type",
    ):
        await client.call_tool(name)


async def use_everything(client: Client, context: Mapping[str, Any]) -> None:
    """Send one request of each kind that has a name."""
    await client.list_tools()
    await client.call_tool("test_headers")
    await client.call_tool("my-hyphenated-tool")
    await client.list_resources()
    await client.read_resource("file:///path/to/file%20name.txt")
    await client.read_resource("https://example.com/resource?id=123")
    await client.list_prompts()
    await client.get_prompt("test_prompt")


async def call_as_told(client: Client, context: Mapping[str, Any]) -> None:
    """Call the scenario's tools, with exactly the given arguments."""
    await client.list_tools()
    for one in context["toolCalls"]:
        await client.call_tool(one["name"], one["arguments"])


async def call_what_is_legal(client: Client, context: Mapping[str, Any]) -> None:
    """Call each valid tool; the client does not list the others."""
    for tool in await client.list_tools():
        await client.call_tool(tool["name"], {"region": "eu-west-1"})


async def echo_schema(client: Client, context: Mapping[str, Any]) -> None:
    """Send a schema back unchanged."""
    tools = {one["name"]: one for one in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    await client.call_tool("json_schema_echo", {"schema": schema})


async def call_what_asks(client: Client, context: Mapping[str, Any]) -> None:
    """Call a tool whose form has defaults for all fields."""
    await client.call_tool("test_client_elicitation_defaults")


async def call_what_breaks_off(client: Client, context: Mapping[str, Any]) -> None:
    """Call a tool whose stream ends before its response."""
    await client.call_tool("test_reconnection")


SCENARIOS: dict[str, Scenario] = {
    "tools_call": call_add_numbers,
    "elicitation-sep1034-client-defaults": call_what_asks,
    "sse-retry": call_what_breaks_off,
    "sep-2322-client-request-state": call_in_rounds,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_what_is_legal,
    "json-schema-2020-12-preservation": echo_schema,
}


async def main(url: str) -> None:
    """Play the scenario; by default, list the tools."""
    scenario = SCENARIOS.get(os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), list_tools)
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    async with Client(
        OverHttp(url),
        elicit=fill_in,
        open_url=lambda link: True,
        sample=write,
        roots=[Root("file:///home/user/project", "project")],
        version=os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION"),
    ) as client:
        await scenario(client, context)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
