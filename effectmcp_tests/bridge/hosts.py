"""One way to speak with a server in each host: our own on two loops, FastMCP, the SDK.

Each host has a server, and a client that answers with whole responses of the protocol.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import mcp_types as types
from attrs import frozen
from fastmcp import FastMCP
from mcp import Client as SDKClient
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from effectmcp import Dismissed, Server
from effectmcp.bridge import fastmcp as on_fastmcp
from effectmcp.bridge import mcp as on_sdk
from effectmcp.client import Client, InMemory
from effectmcp.client.errors import ReplyError
from effectmcp.drivers.loops import run

__all__ = [
    "HOSTS",
    "Caller",
    "Host",
    "Own",
    "Writes",
    "Writing",
    "modern",
    "session_of",
    "wire",
]

Wire = dict[str, Any]
#: Returns the response to a question, both as on the wire.
Writes = Callable[[Wire], Wire]


def wire(model: BaseModel) -> Wire:
    """Return a model of the SDK as on the wire."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


class Caller(Protocol):
    """A client that is connected."""

    async def call(self, name: str, arguments: Wire) -> Wire:
        """Call a tool, and return the fields of its result."""
        ...

    async def get(self, name: str, arguments: Wire) -> Wire:
        """Get a prompt."""
        ...

    async def read(self, uri: str) -> Wire:
        """Read a resource."""
        ...

    async def tools(self) -> list[Wire]:
        """List the tools."""
        ...


@frozen
class Host:
    """A host, the era of its clients, and its loop.

    Attributes:
        name: Its name.
        version: The revision that its clients speak.
        loop: The loop that it runs on.
    """

    name: str
    version: str
    loop: str

    def __str__(self) -> str:
        return f"{self.name}-{self.version}-{self.loop}"

    def play(
        self, app: Server, main: Callable[[Caller], Any], writes: Writes, **more: Any
    ) -> Any:
        """Serve `app` in the host, and return what `main(caller)` returns."""

        async def play() -> Any:
            async with self.serving(app, writes, **more) as caller:
                return await main(caller)

        return run(self.loop, play)  # type: ignore[arg-type]  # a name of a loop

    @asynccontextmanager
    async def serving(
        self,
        app: Server,
        writes: Writes,
        told: list[Any] | None = None,
        progress: list[Any] | None = None,
        samples: bool = True,
    ) -> AsyncIterator[Caller]:
        """Serve `app`, and connect a client to it."""
        told = [] if told is None else told
        progress = [] if progress is None else progress
        if self.name == "own":
            async with _own(app, writes, told, progress, self.version) as caller:
                yield caller
            return
        if self.name == "fastmcp":
            mcp: FastMCP[Any] = FastMCP(app.name)
            on_fastmcp.include(mcp, app)
            server: Any = mcp._mcp_server
        else:
            server = MCPServer(app.name)
            on_sdk.include(server, app)
        connection = session_of(
            server, writes, told, progress, self.version, samples=samples
        )
        async with connection as caller:
            yield caller


#: Each host in both eras; our own server and the SDK on both loops.
HOSTS = [
    Host(name, version, loop)
    for name, loops in (
        ("own", ("trio", "asyncio")),
        ("sdk", ("trio", "asyncio")),
        ("fastmcp", ("asyncio",)),
    )
    for version in ("2026-07-28", "2025-11-25")
    for loop in loops
]


# ---- our client ---------------------------------------------------------------------


class Writing(Client):
    def __init__(self, *args: Any, writes: Writes, **options: Any) -> None:
        super().__init__(
            *args, elicit=lambda form: Dismissed(), sample=_refuse, roots=[], **options
        )
        self._writes = writes

    async def answers(self, pending: Any) -> dict[str, Any]:
        return {key: self._writes(dict(one)) for key, one in pending.questions.items()}


def _refuse(sampling: Any) -> str:
    raise ReplyError("it was asked outside of a call")


@frozen
class Own:
    client: Client

    async def call(self, name: str, arguments: Wire) -> Wire:
        return dict((await self.client.call_tool(name, arguments)).fields)

    async def get(self, name: str, arguments: Wire) -> Wire:
        return dict((await self.client.get_prompt(name, arguments)).fields)

    async def read(self, uri: str) -> Wire:
        return dict((await self.client.read_resource(uri)).fields)

    async def tools(self) -> list[Wire]:
        return [dict(one) for one in await self.client.list_tools()]


@asynccontextmanager
async def _own(
    app: Server, writes: Writes, told: list[Any], progress: list[Any], version: str
) -> AsyncIterator[Caller]:
    client = Writing(
        InMemory(app),
        writes=writes,
        version=version,
        rounds=500,
        on_log=lambda one: told.append(one["data"]),
        on_progress=lambda one: progress.append(one["progress"]),
        log_level="debug",
    )
    async with client:
        yield Own(client)


# ---- the SDK's client ---------------------------------------------------------------


@frozen
class _OfSDK:
    client: SDKClient
    progress: list[Any]

    async def call(self, name: str, arguments: Wire) -> Wire:
        async def on_progress(
            progress: float, total: float | None, message: str | None
        ) -> None:
            self.progress.append(progress)

        return wire(
            await self.client.call_tool(name, arguments, progress_callback=on_progress)
        )

    async def get(self, name: str, arguments: Wire) -> Wire:
        return wire(await self.client.get_prompt(name, arguments))

    async def read(self, uri: str) -> Wire:
        return wire(await self.client.read_resource(uri))

    async def tools(self) -> list[Wire]:
        return [wire(one) for one in (await self.client.list_tools()).tools]


@asynccontextmanager
async def session_of(
    server: Any,
    writes: Writes,
    told: list[Any],
    progress: list[Any],
    version: str,
    *,
    samples: bool = True,
) -> AsyncIterator[_OfSDK]:
    """Connect the SDK's client to a server in this process, or at a URL."""

    def write(method: str, params: Any) -> Wire:
        return writes({"method": method, "params": wire(params)})

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult.model_validate(write("elicitation/create", params))

    async def sample(context: Any, params: Any) -> Any:
        found = write("sampling/createMessage", params)
        return types.CreateMessageResult.model_validate(found)

    async def hear(params: Any) -> None:
        told.append(params.data)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the protocol deprecates
        client = SDKClient(
            server,
            elicitation_callback=elicit,
            sampling_callback=sample if samples else None,
            logging_callback=hear,
            log_level="debug",
            input_required_max_rounds=500,
            mode="legacy" if version < "2026" else version,
        )
        async with client:
            yield _OfSDK(client, progress)


def modern(host: Host) -> bool:
    """Whether the host's clients carry the answers."""
    return host.version > "2026"
