"""Flows in a server of the Python SDK.

    from mcp.server.mcpserver import MCPServer
    from effectmcp.bridge.mcp import flow_tool

    mcp = MCPServer("bookshop")

    @flow_tool(mcp)
    def order(title: str) -> Flow[str]:
        name = yield from Elicit("Who is it for?", str)
        return f"Ordered {title} for {name}."

The SDK's own seal is around ours in `requestState`. The SDK makes schemas from signatures
of functions, so flows are put into its tables directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar

from .versions import check_version

check_version("mcp")  # before its modules are imported

import mcp_types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.prompts.base import Message, PromptArgument
from mcp.server.mcpserver.resources import Resource, ResourceTemplate
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.shared.uri_template import UriTemplate
from pydantic import PrivateAttr

from ..canonical import JSON
from ..errors import ProtocolError, SchemaError, UsageError
from ..server import features
from ..server.app import Server
from ..server.features import make_prompt, make_resource, make_tool
from .answering import ForeignRequest, NoClient, answer
from .sdk import (
    FlowServers,
    asked_of,
    asking_in,
    content_of,
    error_of,
    icons_of,
    model_of,
    output_of,
    scopes_of,
    seen_by_all,
    user_of,
)

__all__ = ["flow_prompt", "flow_resource", "flow_tool", "include", "server_in"]

F = TypeVar("F", bound=Callable[..., Any])
_MCPServer: TypeAlias = MCPServer[Any]
_Context: TypeAlias = Context[Any, Any]

#: The server of flows in each server of the SDK.
_SERVERS: Final[FlowServers[_MCPServer]] = FlowServers(MCPServer)


def server_in(mcp: _MCPServer) -> Server:
    """Return the server that holds the flows of `mcp`, for its settings, such as `keys`.

    It is made when it is first needed, unless `include` brought one.

    Raises:
        UsageError: If `mcp` is not a server of the SDK.
    """
    return _SERVERS.of(mcp)


def include(mcp: _MCPServer, app: Server) -> None:
    """Register the tools, prompts and resources that a server has now with the SDK.

    Completions, instructions and subscriptions stay behind; a warning names them.
    Further flows of `mcp` become part of `app`, too. If `app` has a lifespan, open it in
    the lifespan of `mcp`: `async with effectmcp.drivers.local.running(app)`.

    Raises:
        UsageError: If `mcp` has flows already.
        SchemaError: If `app` has a resource that asks and is not a template.
    """
    for name in app.tools:
        _check_name(mcp, name)
    for resource in app.resources.values():
        _check_resource(resource)
    _SERVERS.adopt(mcp, app)
    for tool in app.tools.values():
        _add_tool(mcp, app, tool)
    for prompt in app.prompts.values():
        mcp.add_prompt(_prompt(app, prompt))
    for resource in (*app.resources.values(), *app.templates.values()):
        _add_resource(mcp, app, resource)


def flow_tool(mcp: _MCPServer, **options: Any) -> Callable[[F], F]:
    """Offer a generator that yields effects as a tool of `mcp`.

    Args:
        mcp: The server of the SDK.
        **options: As for `Server.tool`.
    """
    app = server_in(mcp)

    def register(function: F) -> F:
        tool = seen_by_all(make_tool(function, **options))
        _check_name(mcp, tool.name)
        app.add(tool)
        _add_tool(mcp, app, tool)
        return function

    return register


def flow_prompt(mcp: _MCPServer, **options: Any) -> Callable[[F], F]:
    """Offer a generator that yields effects as a prompt of `mcp`; see `Server.prompt`."""
    app = server_in(mcp)

    def register(function: F) -> F:
        prompt = seen_by_all(make_prompt(function, **options))
        app.add(prompt)
        mcp.add_prompt(_prompt(app, prompt))
        return function

    return register


def flow_resource(mcp: _MCPServer, uri: str, **options: Any) -> Callable[[F], F]:
    """Offer a generator that yields effects as a resource template of `mcp`.

    Args:
        mcp: The server of the SDK.
        uri: A template with `{names}`: other resources of the SDK cannot ask.
        **options: As for `Server.resource`.
    """
    app = server_in(mcp)

    def register(function: F) -> F:
        resource = seen_by_all(make_resource(function, uri, **options))
        _check_resource(resource)
        app.add(resource)
        _add_resource(mcp, app, resource)
        return function

    return register


# ---- requests -----------------------------------------------------------------------


async def _answer(
    app: Server, context: _Context, method: str, params: Mapping[str, JSON]
) -> Mapping[str, JSON]:
    by_name = {} if "ctx" in app.provided else {"ctx": context}
    request = context.request_context
    sent = request.params or {}
    asked = asked_of(
        context.session,
        get_access_token(),
        request_id=context.request_id,
        version=request.protocol_version,
        meta=dict(sent.get("_meta") or {}),
        responses=sent.get("inputResponses"),
        state=context.request_state,
        provided={Context: context, **by_name},
    )
    try:
        return await answer(app, asked, method, params)
    except ProtocolError as exc:
        raise error_of(exc) from exc


def _unused() -> Any:
    """Do nothing: the SDK requires a function, and calls the methods below instead."""


# ---- tools --------------------------------------------------------------------------


class _FlowTool(Tool):
    declared: dict[str, Any] | None = None
    _app: Server = PrivateAttr()

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of results, as the flow declares it."""
        return self.declared

    async def run(
        self, arguments: dict[str, Any], context: _Context, convert_result: bool = False
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Answer a call, or ask."""
        params = {"name": self.name, "arguments": arguments}
        result = await _answer(self._app, context, "tools/call", params)
        return asking_in(result) or types.CallToolResult.model_validate(result)


def _add_tool(mcp: _MCPServer, app: Server, tool: features.Tool) -> None:
    listing = tool.listing
    found = _FlowTool(
        fn=_unused,
        name=tool.name,
        title=listing.get("title"),
        description=listing.get("description", ""),
        parameters=listing["inputSchema"],
        declared=output_of(listing),
        fn_metadata=FuncMetadata(arg_model=ArgModelBase),
        is_async=True,
        context_kwarg=None,
        annotations=model_of(types.ToolAnnotations, listing.get("annotations")),
        icons=icons_of(listing),
        meta=listing.get("_meta"),
    )
    found._app = app
    mcp._tool_manager._tools[tool.name] = found


def _check_name(mcp: _MCPServer, name: str) -> None:
    if name in mcp._tool_manager._tools:
        raise SchemaError(f"the SDK's server has a tool {name!r} already; give name=")


# ---- prompts ------------------------------------------------------------------------


class _FlowPrompt(Prompt):
    _app: Server = PrivateAttr()

    async def render(
        self, arguments: dict[str, Any] | None, context: _Context
    ) -> list[Message] | types.InputRequiredResult:
        """Answer a request, or ask."""
        params = {"name": self.name, "arguments": arguments or {}}
        result = await _answer(self._app, context, "prompts/get", params)
        asking = asking_in(result)
        if asking is not None:
            return asking
        found = types.GetPromptResult.model_validate(result)
        return [Message(role=one.role, content=one.content) for one in found.messages]


def _prompt(app: Server, prompt: features.Prompt) -> Prompt:
    listing = prompt.listing
    found = _FlowPrompt(
        name=prompt.name,
        title=listing.get("title"),
        description=listing.get("description"),
        arguments=[PromptArgument(**one) for one in listing.get("arguments", ())],
        fn=_unused,
        icons=icons_of(listing),
        context_kwarg=None,
    )
    found._app = app
    return found


# ---- resources ----------------------------------------------------------------------


class _Read(Resource):
    """The content of a resource that was read."""

    _content: str | bytes = PrivateAttr()

    async def read(self) -> str | bytes:
        """Return the content."""
        return self._content


class _FlowTemplate(ResourceTemplate):
    _app: Server = PrivateAttr()

    async def create_resource(
        self, uri: str, params: dict[str, Any], context: _Context
    ) -> Resource | types.InputRequiredResult:
        """Answer a request for a URI, or ask."""
        result = await _answer(self._app, context, "resources/read", {"uri": uri})
        asking = asking_in(result)
        if asking is not None:
            return asking
        one = _only(result, uri)
        found = _Read(
            uri=uri,
            name=self.name,
            mime_type=one.get("mimeType", self.mime_type),
            meta=one.get("_meta"),
        )
        found._content = content_of(one)
        return found


class _PlainResource(Resource):
    _app: Server = PrivateAttr()

    async def read(self) -> str | bytes:
        """Read the resource. The SDK passes no context here."""
        params = {"uri": self.uri}
        token = get_access_token()
        asked = ForeignRequest(
            client=NoClient(), principal=user_of(token), scopes=scopes_of(token)
        )
        try:
            result = await answer(self._app, asked, "resources/read", params)
        except ProtocolError as exc:
            raise error_of(exc) from exc
        return content_of(_only(result, self.uri))


def _only(result: Mapping[str, JSON], uri: str) -> Mapping[str, JSON]:
    contents = result["contents"]
    if len(contents) != 1:
        raise UsageError(
            f"{uri}: a resource of the Python SDK has one content, and this one has"
            f" {len(contents)}"
        )
    only: Mapping[str, JSON] = contents[0]
    return only


def _check_resource(resource: features.Resource) -> None:
    is_template = isinstance(resource, features.ResourceTemplate)
    if resource.handler.kind == "flow" and not is_template:
        raise SchemaError(
            f"{resource.uri}: a resource of the Python SDK cannot ask, unless it is a"
            " template: shop://{name}"
        )


def _add_resource(mcp: _MCPServer, app: Server, resource: features.Resource) -> None:
    listing = resource.listing
    more = {
        "name": listing["name"],
        "title": listing.get("title"),
        "description": listing.get("description"),
        "mime_type": listing.get("mimeType") or "text/plain",
        "annotations": model_of(types.Annotations, listing.get("annotations")),
        "icons": icons_of(listing),
        "meta": listing.get("_meta"),
    }
    if isinstance(resource, features.ResourceTemplate):
        template = _FlowTemplate(
            uri_template=resource.uri,
            fn=_unused,
            parameters=dict(resource.handler.takes.schema),
            parsed_template=UriTemplate.parse(resource.uri),
            security=mcp._resource_security,
            context_kwarg=None,
            **more,
        )
        template._app = app
        mcp._resource_manager._templates[resource.uri] = template
    else:
        found = _PlainResource(uri=resource.uri, **more)
        found._app = app
        mcp.add_resource(found)
