"""A legacy server, as a channel: a test sets how it responds to a request."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from attrs import define, field, frozen

from effectmcp.client import Client
from effectmcp.client.channels import Frame, Hear

DONE = {"content": [{"type": "text", "text": "done"}]}
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@frozen
class Asking:
    """A request that is being answered.

    Attributes:
        message: The request.
        channel: Where it came from.
        say: Sends something on the request's own stream.
    """

    message: Mapping[str, Any]
    channel: Legacy
    say: Hear

    async def ask(
        self, method: str = "elicitation/create", params: Any = FORM, **more: Any
    ) -> Any:
        """Ask on the request's own stream, and wait for the response."""
        return await self.channel.ask(self.say, method, params, **more)


Serve: TypeAlias = Callable[[Asking], Awaitable[Any]]


async def done(asking: Asking) -> Any:
    """Answer, and ask nothing."""
    return DONE


@define(eq=False)
class Legacy:
    """A channel to a legacy server.

    Attributes:
        serve: Serves requests; a value that is not a response is a result. Errors
                are raised.
        welcome: The result or response of `initialize`, in the same way.
        sent: The requests and notifications, in order, each with its headers.
        cancelled: The ids of requests that were cancelled.
        stream: Where it sends messages that no request caused.
    """

    serve: Serve = done
    welcome: Any = field(
        factory=lambda: {
            "protocolVersion": "2025-11-25",
            "capabilities": {"logging": {}},
            "serverInfo": {"name": "old"},
            "instructions": "Be kind.",
        }
    )
    sent: list[tuple[Mapping[str, Any], Mapping[str, str]]] = field(factory=list)
    cancelled: list[Any] = field(factory=list)
    stream: Any = None
    has_headers: bool = False
    probes: bool = False
    origin: str | None = None
    _ids: Any = field(factory=lambda: itertools.count(1), init=False)
    _replies: dict[str, Any] = field(factory=dict, init=False)
    _waiting: dict[str, anyio.Event] = field(factory=dict, init=False)

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    @property
    def methods(self) -> list[str]:
        """The methods of all messages that were sent, except responses."""
        return [one["method"] for one, _ in self.sent if "method" in one]

    def requests(self, method: str) -> list[Mapping[str, Any]]:
        """The requests of one method."""
        return [one for one, _ in self.sent if one.get("method") == method]

    @property
    def replies(self) -> list[Mapping[str, Any]]:
        """The responses to questions."""
        return [one for one, _ in self.sent if "method" not in one]

    async def ask(self, say: Hear, method: str, params: Any, **more: Any) -> Any:
        """Ask on the given stream, and wait for the response."""
        id_ = more.get("id", f"q{next(self._ids)}")
        fields = {} if params is None else {"params": params}
        event = self._waiting[json.dumps(id_)] = anyio.Event()
        await say({"jsonrpc": "2.0", "id": id_, "method": method, **fields})
        await event.wait()
        return self._replies.pop(json.dumps(id_))

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Receive a message; pass a response on to the task that waits for it."""
        await anyio.lowlevel.checkpoint()
        message = json.loads(json.dumps(message, allow_nan=False))
        self.sent.append((message, headers))
        if "method" not in message:
            key = json.dumps(message["id"])
            self._replies[key] = message.get("result", message.get("error"))
            if key in self._waiting:
                self._waiting[key].set()

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Have a stream of its own."""
        self.stream = hear
        ready()
        await anyio.sleep_forever()

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Have a request served."""
        self.sent.append((message, headers))
        await anyio.lowlevel.checkpoint()
        found: Any = {}
        if message["method"] == "initialize":
            found = self.welcome
        elif message["method"] in ("tools/call", "prompts/get", "tools/list"):
            try:
                found = await self.serve(Asking(message, self, hear))
            except anyio.get_cancelled_exc_class():
                self.cancelled.append(message["id"])
                raise
        if isinstance(found, Exception):
            raise found
        if isinstance(found, dict) and ("result" in found or "error" in found):
            return {"jsonrpc": "2.0", "id": message["id"], **found}
        return {"jsonrpc": "2.0", "id": message["id"], "result": found}

    def client(self, **options: Any) -> Client:
        """Create a legacy client of it."""
        return Client(self, **{"version": "2025-11-25", **options})
