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
from urllib.parse import urljoin

import httpx2
import trio

from effectmcp import Root
from effectmcp.client import (
    Client,
    Form,
    LoginFailed,
    OverHttp,
    Sampling,
)
from effectmcp.oauth import (
    ClientCredentials,
    IdentityAssertion,
    OAuth,
    Registration,
    WorkloadAssertion,
)
from effectmcp.oauth.settings import Grant

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


async def call_the_first(client: Client, context: Mapping[str, Any]) -> None:
    """List the tools, and call the first one, after the login that this takes."""
    tools = await client.list_tools()
    await client.call_tool(tools[0]["name"])


async def be_careful(client: Client, context: Mapping[str, Any]) -> None:
    """Notice that the login would not be safe, or can never be enough."""
    try:
        await call_the_first(client, context)
    except LoginFailed as exc:
        print(exc)
    else:
        raise AssertionError("it logged in")


class Robot:
    """A user who agrees to everything, and a browser that shows nothing."""

    async def redirect_uri(self, preferred: str | None) -> str:
        """Return where the page is to return to; no server listens there."""
        return preferred or "http://127.0.0.1:47319/callback"

    async def visit(self, url: str, state: str) -> str:
        """Return where the page redirects to."""
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(url, follow_redirects=False)
        return str(response.headers["location"])

    async def close(self) -> None:
        """Do nothing."""


async def issuer_of(url: str) -> str:
    """Return the authorization server, which the operator of a client knows."""
    metadata = urljoin(url, "/.well-known/oauth-protected-resource/mcp")
    async with httpx2.AsyncClient() as client:
        found = (await client.get(metadata)).json()
    return str(found["authorization_servers"][0])


async def login(url: str, scenario: str, context: Mapping[str, Any]) -> OAuth:
    """Return how to log in, in a scenario."""
    if not context.get("client_id"):
        document = "https://conformance-test.local/client-metadata.json"
        return OAuth(visitor=Robot(), metadata_url=document)
    registration = Registration(
        client_id=context["client_id"],
        client_secret=context.get("client_secret"),
        private_key=context.get("private_key_pem"),
        algorithm=context.get("signing_algorithm", "ES256"),
        issuer=context.get("issuer") or await issuer_of(url),
    )
    if "idp_id_token" in context:
        grant: Grant = IdentityAssertion(
            id_token=context["idp_id_token"],
            token_endpoint=context["idp_token_endpoint"],
            client_id=context["idp_client_id"],
        )
    elif "valid_jwt" in context:
        grant = WorkloadAssertion(assertion=context["valid_jwt"])
    elif scenario.startswith("auth/client-credentials"):
        grant = ClientCredentials()
    else:
        return OAuth(visitor=Robot(), registration=registration)
    return OAuth(grant=grant, registration=registration)


#: Logins that must fail: of another issuer or resource, or never enough.
CAREFUL = (
    "auth/resource-mismatch",
    "auth/metadata-issuer-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/scope-retry-limit",
)

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
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    scenario = SCENARIOS.get(name, list_tools)
    if name.startswith("auth/"):
        scenario = be_careful if name in CAREFUL else call_the_first
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    async with Client(
        OverHttp(url, auth=await login(url, name, context)),
        elicit=fill_in,
        open_url=lambda link: True,
        sample=write,
        roots=[Root("file:///home/user/project", "project")],
        version=os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION"),
    ) as client:
        await scenario(client, context)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
