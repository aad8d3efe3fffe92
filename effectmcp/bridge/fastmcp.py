"""Flows in a server of FastMCP.

    from fastmcp import FastMCP
    from effectmcp.bridge.fastmcp import flow_tool

    mcp = FastMCP("bookshop")

    @flow_tool(mcp)
    def order(title: str) -> Flow[str]:
        name = yield from Elicit("Who is it for?", str)
        return f"Ordered {title} for {name}."

The tool is an ordinary one for FastMCP: middleware, mounting, transforms and `auth=` apply.
FastMCP's own seal is around ours in `requestState`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

from .versions import check_version

check_version("fastmcp")  # before its modules are imported

import anyio.to_thread
import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.prompts import Message, Prompt, PromptArgument, PromptResult
from fastmcp.prompts.base import InputRequiredPromptResult
from fastmcp.resources import (
    Resource,
    ResourceContent,
    ResourceResult,
    ResourceTemplate,
)
from fastmcp.resources.base import InputRequiredResourceResult
from fastmcp.server.dependencies import (
    get_access_token,
    get_context,
    resolve_dependencies,
    transform_context_annotations,
)
from fastmcp.tools import InputRequiredToolResult, Tool, ToolResult
from pydantic import AnyUrl, PrivateAttr

from ..canonical import JSON
from ..effects.steps import StepFunction
from ..errors import ProtocolError, UsageError
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
    seen_by_all,
    wire,
)

if TYPE_CHECKING:
    from fastmcp.server.auth import AuthCheck

__all__ = [
    "flow_prompt",
    "flow_resource",
    "flow_tool",
    "include",
    "injected",
    "server_in",
]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

#: The server of flows in each server of FastMCP.
_SERVERS: Final[FlowServers[FastMCP[Any]]] = FlowServers(FastMCP)


def server_in(mcp: FastMCP[Any]) -> Server:
    """Return the server that holds the flows of `mcp`, for its settings, such as `keys`.

    It is made when it is first needed, unless `include` brought one.

    Raises:
        UsageError: If `mcp` is not a server of FastMCP.
    """
    return _SERVERS.of(mcp)


def include(mcp: FastMCP[Any], app: Server) -> None:
    """Register the tools, prompts and resources that a server has now with FastMCP.

    Completions, instructions and subscriptions stay behind; a warning names them.
    Further flows of `mcp` become part of `app`, too. If `app` has a lifespan, open it in
    the lifespan of `mcp`: `async with effectmcp.drivers.local.running(app)`.

    Raises:
        UsageError: If `mcp` has flows already.
    """
    _SERVERS.adopt(mcp, app)
    for tool in app.tools.values():
        mcp.add_tool(_tool(app, tool))
    for prompt in app.prompts.values():
        mcp.add_prompt(_prompt(app, prompt))
    for resource in (*app.resources.values(), *app.templates.values()):
        _add_resource(mcp, app, resource)


def flow_tool(
    mcp: FastMCP[Any],
    *,
    tags: set[str] | None = None,
    auth: AuthCheck | list[AuthCheck] | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Offer a generator that yields effects as a tool of `mcp`.

    Args:
        mcp: The server of FastMCP.
        tags: FastMCP's tags.
        auth: FastMCP's authorization checks.
        **options: As for `Server.tool`.
    """
    app = server_in(mcp)

    def register(function: F) -> F:
        tool = seen_by_all(make_tool(function, tags=tags or (), **options))
        app.add(tool)
        mcp.add_tool(_tool(app, tool, tags=tags or set(), auth=auth))
        return function

    return register


def flow_prompt(
    mcp: FastMCP[Any],
    *,
    tags: set[str] | None = None,
    auth: AuthCheck | list[AuthCheck] | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Offer a generator that yields effects as a prompt of `mcp`; see `flow_tool`."""
    app = server_in(mcp)

    def register(function: F) -> F:
        prompt = seen_by_all(make_prompt(function, tags=tags or (), **options))
        app.add(prompt)
        mcp.add_prompt(_prompt(app, prompt, tags=tags or set(), auth=auth))
        return function

    return register


def flow_resource(
    mcp: FastMCP[Any],
    uri: str,
    *,
    tags: set[str] | None = None,
    auth: AuthCheck | list[AuthCheck] | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Offer a generator that yields effects as a resource or template of `mcp`.

    Args:
        mcp: The server of FastMCP.
        uri: Its URI, or a template with `{names}`.
        tags: FastMCP's tags.
        auth: FastMCP's authorization checks.
        **options: As for `Server.resource`.
    """
    app = server_in(mcp)

    def register(function: F) -> F:
        resource = seen_by_all(make_resource(function, uri, tags=tags or (), **options))
        app.add(resource)
        _add_resource(mcp, app, resource, tags=tags or set(), auth=auth)
        return function

    return register


# ---- requests -----------------------------------------------------------------------


async def _answer(
    app: Server, method: str, params: Mapping[str, JSON]
) -> Mapping[str, JSON]:
    """Answer the request that FastMCP is answering in this task."""
    context = get_context()
    request = context.request_context
    provided: dict[Any, Any] = {Context: context}
    if "ctx" not in app.provided:
        provided["ctx"] = context
    if request is None:
        # A program calls the tool itself, and there is no client.
        asked = ForeignRequest(client=NoClient(), provided=provided)
        return await answer(app, asked, method, params)
    responses = context.input_responses
    asked = asked_of(
        context.session,
        get_access_token(),
        request_id=context.request_id,
        version=request.protocol_version,
        meta=dict(request.meta or {}),
        responses=None
        if responses is None
        else {key: wire(one) for key, one in responses.items()},
        state=context.request_state,
        provided=provided,
    )
    return await answer(app, asked, method, params)


# ---- tools --------------------------------------------------------------------------


class _FlowTool(Tool):
    _app: Server = PrivateAttr()
    _flow: str = PrivateAttr()

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a call, or ask."""
        # Its own name: a copy may have another one.
        params = {"name": self._flow, "arguments": arguments}
        try:
            result = await _answer(self._app, "tools/call", params)
        except ProtocolError as exc:
            refusal = types.CallToolResult(
                content=[types.TextContent(text=exc.message)], is_error=True
            )
            return _Exact(refusal, error=exc)
        asking = asking_in(result)
        if asking is not None:
            return InputRequiredToolResult(asking)
        return _Exact(types.CallToolResult.model_validate(result))


class _Exact(ToolResult):
    """A result that goes out as it is, unless middleware changes it.

    FastMCP takes structured content for an object, and makes a result of an error that a
    tool raises. It asks for the protocol's result last of all.
    """

    _result: types.CallToolResult = PrivateAttr()
    _error: ProtocolError | None = PrivateAttr()
    _before: dict[str, Any] = PrivateAttr()

    def __init__(
        self, result: types.CallToolResult, error: ProtocolError | None = None
    ) -> None:
        structured = result.structured_content
        super().__init__(
            content=result.content,
            structured_content=structured if isinstance(structured, dict) else None,
            meta=result.meta,
            is_error=bool(result.is_error),
        )
        self._result = result.model_copy(deep=True)
        self._error = error
        self._before = self.model_dump()

    def to_mcp_result(self) -> Any:
        """Return the result, or raise the error of the protocol."""
        if self.model_dump() != self._before:
            return super().to_mcp_result()
        if self._error is not None:
            raise error_of(self._error)
        return self._result


def _tool(app: Server, tool: features.Tool, **options: Any) -> Tool:
    listing = tool.listing
    found = _FlowTool(
        name=tool.name,
        title=listing.get("title"),
        description=listing.get("description"),
        parameters=listing["inputSchema"],
        output_schema=output_of(listing),
        annotations=model_of(types.ToolAnnotations, listing.get("annotations")),
        icons=icons_of(listing),
        meta=listing.get("_meta"),
        **options,
    )
    found._app, found._flow = app, tool.name
    return found


# ---- prompts ------------------------------------------------------------------------


class _FlowPrompt(Prompt):
    _app: Server = PrivateAttr()
    _flow: str = PrivateAttr()

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """Answer a request, or ask."""
        params = {"name": self._flow, "arguments": arguments or {}}
        try:
            result = await _answer(self._app, "prompts/get", params)
        except ProtocolError as exc:
            raise error_of(exc) from exc
        asking = asking_in(result)
        if asking is not None:
            return InputRequiredPromptResult(asking)
        found = types.GetPromptResult.model_validate(result)
        messages = [Message(one.content, role=one.role) for one in found.messages]
        return PromptResult(messages, found.description, found.meta)


def _prompt(app: Server, prompt: features.Prompt, **options: Any) -> Prompt:
    listing = prompt.listing
    found = _FlowPrompt(
        name=prompt.name,
        title=listing.get("title"),
        description=listing.get("description"),
        arguments=[PromptArgument(**one) for one in listing.get("arguments", ())],
        icons=icons_of(listing),
        meta=listing.get("_meta"),
        **options,
    )
    found._app, found._flow = app, prompt.name
    return found


# ---- resources ----------------------------------------------------------------------


class _FlowResource(Resource):
    _app: Server = PrivateAttr()
    _asked_uri: str = PrivateAttr()

    async def read(self) -> ResourceResult:
        """Answer a request, or ask."""
        try:
            result = await _answer(
                self._app, "resources/read", {"uri": self._asked_uri}
            )
        except ProtocolError as exc:
            raise error_of(exc) from exc
        asking = asking_in(result)
        if asking is not None:
            return InputRequiredResourceResult(asking)
        contents = [
            ResourceContent(
                content_of(one),
                mime_type=one.get("mimeType"),
                meta=one.get("_meta"),
            )
            for one in result["contents"]
        ]
        return ResourceResult(contents, meta=result.get("_meta"))


class _FlowTemplate(ResourceTemplate):
    _app: Server = PrivateAttr()

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:
        """Return the resource of one URI."""
        found = _FlowResource(uri=AnyUrl(uri), name=self.name, mime_type=self.mime_type)
        found._app, found._asked_uri = self._app, uri
        return found


def _add_resource(
    mcp: FastMCP[Any], app: Server, resource: features.Resource, **options: Any
) -> None:
    listing = resource.listing
    more = {
        "name": listing["name"],
        "title": listing.get("title"),
        "description": listing.get("description"),
        "mime_type": listing.get("mimeType"),
        "annotations": model_of(types.Annotations, listing.get("annotations")),
        "icons": icons_of(listing),
        "meta": listing.get("_meta"),
        **options,
    }
    if isinstance(resource, features.ResourceTemplate):
        schema = dict(resource.handler.takes.schema)
        # FastMCP writes a variable with slashes in another way (RFC 6570, 3.2.3, 3.2.2).
        uri = re.sub(r"\{\+(\w+)\}", r"{\1*}", resource.uri)
        template = _FlowTemplate(uri_template=uri, parameters=schema, **more)
        template._app = app
        mcp.add_template(template)
    else:
        found = _FlowResource(uri=AnyUrl(resource.uri), **more)
        found._app, found._asked_uri = app, resource.uri
        mcp.add_resource(found)


# ---- dependencies -------------------------------------------------------------------


@overload
def injected(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]: ...
@overload
def injected(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]: ...
def injected(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Let FastMCP fill in the parameters of a step that it injects.

        @step
        @injected
        def charge(name: str, bank: Bank = Depends(open_bank)) -> str: ...

    A plain function runs in a thread.

    Args:
        function: A function with `Depends(...)`, `CurrentContext()` and the like as
            defaults of its last parameters, or with a parameter annotated as `Context`.
    """
    if isinstance(function, StepFunction):
        raise UsageError(f"{function!r} is a step already: write @injected below @step")
    inner: Callable[..., Any] = transform_context_annotations(function)
    signature = inspect.signature(inner)
    for one in signature.parameters.values():
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise UsageError(
                f"@injected calls {function.__name__} by keyword, and {one} takes none"
            )

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(signature.bind_partial(*args, **kwargs).arguments)
        async with resolve_dependencies(inner, given) as filled:
            filling = functools.partial(inner, **filled)
            if inspect.iscoroutinefunction(inner):
                return await filling()
            return await anyio.to_thread.run_sync(filling)

    return call
