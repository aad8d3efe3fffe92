"""The ways from a client to a server: three channels, on two loops.

    @everywhere
    async def test_greeting(at: At) -> None:
        async with at.client() as client: ...

Each test gets a server of its own in memory, and a client of its own everywhere. Behind
pipes and HTTP there is one server for all of them, which starts once.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

import anyio
import anyio.lowlevel
from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import define, field, frozen

from effectmcp.client import Channel, Client, Form, InMemory, OverHttp, OverPipes
from effectmcp.client.channels import Frame, Hear
from effectmcp.server import Server
from effectmcp.server.target import load_app

Kind: TypeAlias = Literal["memory", "pipes", "http"]
Loop: TypeAlias = Literal["trio", "asyncio"]

SHELF: Final = Path(__file__).with_name("shelf_server.py")
KEY: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
ENVIRONMENT: Final = {
    **os.environ,
    "EFFECTMCP_STATE_KEYS": KEY,
    "PYTHONUNBUFFERED": "1",
}
COMMAND: Final = (sys.executable, "-m", "effectmcp", "serve", f"{SHELF}:app")

#: Seconds that only a failure takes.
PATIENCE: Final = 20

Body: TypeAlias = Callable[["At"], Coroutine[Any, Any, None]]


# ---- what went over a channel -------------------------------------------------------


@define(eq=False)
class Sent:
    """A request, and its result."""

    message: Mapping[str, Any]
    headers: Mapping[str, str]
    response: Any = None
    told: list[Frame] = field(factory=list)

    @property
    def params(self) -> Mapping[str, Any]:
        """The params of the request."""
        params: Mapping[str, Any] = self.message["params"]
        return params


@define(eq=False)
class Watched:
    """A channel, and what went over it.

    Attributes:
        channel: The channel.
        sent: The requests, in order.
        is_shared: Whether it was there before, and stays.
    """

    channel: Channel
    sent: list[Sent] = field(factory=list)
    is_shared: bool = False
    has_headers: bool = field(init=False)
    #: These servers are known to be of this revision.
    probes: bool = False
    origin: str | None = None

    def __attrs_post_init__(self) -> None:
        self.has_headers = self.channel.has_headers

    async def __aenter__(self) -> Any:
        if not self.is_shared:
            await self.channel.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.is_shared:
            await self.channel.__aexit__(kind, error, traceback)

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Pass it on."""
        await self.channel.tell(message, headers)

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Pass it on."""
        await self.channel.attend(hear, headers, ready)

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Pass it on."""
        sent = Sent(message, headers)
        self.sent.append(sent)

        async def heard(told: Frame) -> None:
            sent.told.append(told)
            await hear(told)

        sent.response = await self.channel.exchange(message, headers, heard)
        response: Frame = sent.response
        return response


@define(eq=False)
class Scripted:
    """A channel to nowhere: results, errors or whole frames, one after the other.

    Attributes:
        answers: What to answer. A mapping with `jsonrpc` is sent as it is; a function
            is called with the request; an exception is raised; anything else is a result.
        sent: The requests, in order.
        has_headers: As channels say it.
    """

    answers: list[Any]
    sent: list[Sent] = field(factory=list)
    has_headers: bool = False
    probes: bool = False
    origin: str | None = None
    told: list[Frame] = field(factory=list)

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Keep it."""
        self.told.append(message)

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Hear nothing."""
        ready()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Give the next answer."""
        sent = Sent(message, headers)
        self.sent.append(sent)
        await anyio.lowlevel.checkpoint()
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer(message)
        if isinstance(answer, Exception):
            raise answer
        if not (isinstance(answer, Mapping) and "jsonrpc" in answer):
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
        sent.response = answer
        frame: Frame = answer
        return frame


def asking(questions: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    """An interim result."""
    found = {"resultType": "input_required", **more}
    return found if questions is None else {**found, "inputRequests": questions}


def form(message: str = "Who?", **properties: Any) -> dict[str, Any]:
    """A question with a form."""
    schema = {"type": "object", "properties": properties}
    params = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def fill_in(form: Form) -> dict[str, Any]:
    """Return the answers of an obliging user."""
    if "name" in form.fields:
        return {"name": "Ann", **form.defaults}
    (field,) = form.fields
    return {field: 2 if form.fields[field]["type"] == "integer" else "this"}


# ---- servers ------------------------------------------------------------------------


@frozen
class Running:
    """A server over HTTP, in a process of its own."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def http_server(port: int = 0) -> Iterator[Running]:
    """Serve the shelf over HTTP."""
    with subprocess.Popen(
        [*COMMAND, f"--http=127.0.0.1:{port}"],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        urls: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        log: list[str] = []

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                log.append(line)
                if found := re.search(r"http://\S+", line):
                    urls.put(found[0])
            urls.put(None)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            url = urls.get(timeout=PATIENCE)
            assert url is not None, "".join(log)
            yield Running(url, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()


@define(eq=False)
class Servers:
    """The servers that all tests share, each started when the first needs it."""

    _stack: ExitStack
    _url: str | None = None
    _pipes: dict[Loop, tuple[BlockingPortal, OverPipes]] = field(factory=dict)

    @property
    def url(self) -> str:
        """The URL of a running server."""
        if self._url is None:
            self._url = self._stack.enter_context(http_server()).url
        return self._url

    def pipes(self, loop: Loop) -> tuple[BlockingPortal, OverPipes]:
        """A loop, and a server that is connected to it."""
        if loop not in self._pipes:
            portal = self._stack.enter_context(start_blocking_portal(loop))
            channel = OverPipes(COMMAND, env=ENVIRONMENT)
            manager = portal.wrap_async_context_manager(channel)
            self._pipes[loop] = portal, self._stack.enter_context(manager)
        return self._pipes[loop]

    def forget_pipes(self, loop: Loop) -> None:
        """Have a new one for the next test: this one may be in any state."""
        del self._pipes[loop]


# ---- ways ---------------------------------------------------------------------------


@define(eq=False)
class At:
    """The setting of a test.

    Attributes:
        kind: The channel.
        loop: The loop.
        sent: The requests of all its clients, in order.
        app: The server, if it is in this process.
    """

    kind: Kind
    loop: Loop
    _channel: Callable[[], Channel]
    app: Server | None = None
    sent: list[Sent] = field(factory=list)

    def client(self, **options: Any) -> Client:
        """A new client."""
        is_shared = self.kind == "pipes"
        return Client(Watched(self._channel(), self.sent, is_shared), **options)

    def methods(self) -> list[str]:
        """The methods of the requests."""
        return [one.message["method"] for one in self.sent]


@frozen
class Way:
    """A channel on a loop."""

    kind: Kind
    loop: Loop
    servers: Servers

    def run(self, body: Body) -> None:
        """Run a test there."""

        async def run(at: At) -> None:
            with anyio.fail_after(PATIENCE):
                await body(at)

        match self.kind:
            case "memory":
                app = load_app(str(SHELF))
                at = At("memory", self.loop, lambda: InMemory(app), app)
                anyio.run(run, at, backend=self.loop)
            case "http":
                url = self.servers.url
                at = At("http", self.loop, lambda: OverHttp(url))
                anyio.run(run, at, backend=self.loop)
            case "pipes":
                portal, channel = self.servers.pipes(self.loop)
                at = At("pipes", self.loop, lambda: channel)
                try:
                    portal.call(run, at)
                except BaseException:
                    self.servers.forget_pipes(self.loop)
                    raise


def everywhere(body: Body) -> Callable[[Way], None]:
    """Make a test of `body` that runs in each way."""

    def test(way: Way) -> None:
        way.run(body)

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    test.__module__, test.__qualname__ = body.__module__, body.__qualname__
    return test


def on_both(body: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[Loop], None]:
    """Make a test of `body` that runs on both loops."""

    async def run() -> None:
        with anyio.fail_after(PATIENCE):
            await body()

    def test(loop: Loop) -> None:
        anyio.run(run, backend=loop)

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    test.__module__, test.__qualname__ = body.__module__, body.__qualname__
    return test
