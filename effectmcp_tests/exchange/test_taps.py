"""Taps: each message that a client sends or gets is shown once, and nothing changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import (
    Confirm,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    ListRoots,
    Log,
    Progress,
    Sample,
    Server,
    Step,
)
from effectmcp.drivers import sync
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.exchange.handle import handle
from effectmcp.protocol.jsonrpc import read_message
from effectmcp.protocol.meta import TASKS
from effectmcp.server import TappedMessage
from effectmcp.transports.lines import LineLimits, TooLong, serve_lines

from ..legacy_client import NEWEST, LegacyClient, accepts, hello
from ..wire import EVERYTHING, KEYS, Wire, call, meta, request, result, send, text_of
from .test_tasks import Rows
from .test_tasks import serving as serving_tasks

ANN: Final = Peer(principal="ann")


@attrs.define(eq=False)
class Tapped:
    """A tap that keeps what it sees."""

    seen: list[TappedMessage] = attrs.field(factory=list)

    def __call__(self, message: TappedMessage) -> None:
        self.seen.append(message)

    def of(self, direction: str) -> list[Any]:
        """The messages of one direction, in order."""
        return [one.message for one in self.seen if one.direction == direction]


def wish() -> Flow[str]:
    """Tell, ask, and tell."""
    yield from Progress(1, 2)
    yield from Log("info", "asking")
    where = yield from Elicit("Where to?", str, key="where")
    yield from Progress(2, 2)
    return f"to {where}"


def serving(*taps: Any, **options: Any) -> Server:
    app = Server("shop", keys=KEYS, drafts=True, taps=taps, **options)
    app.tool(wish)
    app.tool(name="greet")(lambda: "Hello!")
    app.resource("shop://news", name="news")(lambda: "news")
    return app


class Wired:
    """A client over the driver without a loop, which keeps what is really sent."""

    def __init__(self, app: Server, peer: Peer | None = None) -> None:
        self.app = app
        self.peer = peer
        self.sent: list[Any] = []
        self.got: list[Any] = []

    def handle(
        self,
        app: Server,
        message: Any,
        peer: Peer | None = None,
        *,
        send: Callable[[Mapping[str, Any]], None] = lambda message: None,
    ) -> Reply:
        """Answer a message, as `sync.handle` does."""
        self.sent.append(message)

        def write(told: Mapping[str, Any]) -> None:
            self.got.append(told)
            send(told)

        reply = sync.handle(app, message, peer or self.peer, send=write)
        if reply.body is not None:
            self.got.append(json.loads(reply.body))
        return reply


# ---- requests -----------------------------------------------------------------------


def test_request_and_its_reply() -> None:
    tapped = Tapped()
    reply = call(serving(tapped), "greet", peer=ANN)
    message = request("tools/call", {"name": "greet"})
    assert tapped.seen == [
        TappedMessage(direction="in", message=message, principal="ann", session=None),
        TappedMessage(
            direction="out",
            message=reply.message or {},
            principal="ann",
            session=None,
        ),
    ]


def test_rounds_with_their_notifications() -> None:
    tapped = Tapped()
    wired = Wired(serving(tapped))
    params: Wire = {"_meta": meta(log_level="debug", progressToken="p"), "name": "wish"}
    asked = wired.handle(wired.app, request("tools/call", params))
    found = result(asked)
    answers = {"where": {"action": "accept", "content": {"value": "Rome"}}}
    more = {"inputResponses": answers, "requestState": found["requestState"]}
    done = wired.handle(wired.app, request("tools/call", {**params, **more}))
    assert text_of(result(done)) == "to Rome"
    assert tapped.of("in") == wired.sent
    assert tapped.of("out") == wired.got
    assert [one.get("method") for one in wired.got] == [
        *("notifications/progress", "notifications/message", None),
        *("notifications/progress", None),
    ]


@pytest.mark.parametrize(
    "form", [json.dumps, lambda one: json.dumps(one).encode(), read_message]
)
def test_request_in_any_form(form: Any) -> None:
    tapped = Tapped()
    message = request("tools/call", {"name": "greet"})
    sync.handle(serving(tapped), form(message))
    assert tapped.of("in") == [message]


@pytest.mark.parametrize(
    "message",
    [
        request("no/such"),
        request("tools/call", {"name": "none"}),
        {"jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": {"_meta": 5}},
        # Nothing was asked, so this answers nothing.
        {"jsonrpc": "2.0", "id": 7, "result": {}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"a": 1}},
    ],
)
def test_messages_of_any_kind(message: Wire) -> None:
    tapped = Tapped()
    wired = Wired(serving(tapped))
    wired.handle(wired.app, message)
    assert tapped.of("in") == [message]
    assert tapped.of("out") == wired.got


@pytest.mark.parametrize("text", ["{", "[]", '{"jsonrpc": "2.0", "id": 7}'])
def test_text_that_is_not_a_message(text: str) -> None:
    """There is no message to show, except the refusal."""
    tapped = Tapped()
    wired = Wired(serving(tapped), ANN)
    wired.handle(wired.app, text)
    assert tapped.of("in") == []
    assert tapped.of("out") == wired.got
    assert tapped.seen[0].principal == "ann"


def test_tasks_that_a_subscription_reports_at_once() -> None:
    tapped = Tapped()
    app, _ = serving_tasks(Rows())
    app.taps = (tapped,)
    follows = {**EVERYTHING, "extensions": {TASKS: {}}}
    id_ = result(call(app, "optional", capabilities=follows))["taskId"]
    tapped.seen.clear()
    wired = Wired(app)
    params = {"_meta": meta(follows), "notifications": {"taskIds": [id_]}}
    wired.handle(app, request("subscriptions/listen", params))
    assert tapped.of("in") == wired.sent
    assert tapped.of("out") == wired.got
    assert [one.get("method") for one in wired.got] == [
        *("notifications/subscriptions/acknowledged", "notifications/tasks"),
        *("notifications/cancelled", None),
    ]


# ---- sessions -----------------------------------------------------------------------


def test_session_with_a_live_question() -> None:
    tapped = Tapped()
    wired = Wired(serving(tapped))
    client = LegacyClient(wired.app, handle=wired.handle)
    client.call("wish", {}, accepts({"value": "Rome"}))
    client.notify("notifications/initialized")
    client.result("resources/subscribe", {"uri": "shop://news"})
    assert tapped.of("in") == wired.sent
    assert tapped.of("out") == wired.got
    assert Counter(one.get("method") for one in wired.got) == {
        "elicitation/create": 1,
        "notifications/message": 1,
        None: 3,  # the handshake, the call and the subscription
    }
    numbers = [one.session for one in tapped.seen]
    number = client.session.number
    assert numbers == [None, None, *[number] * (len(numbers) - 2)]


def test_call_that_is_cancelled_has_no_reply() -> None:
    tapped = Tapped()
    wired = Wired(serving(tapped))
    client = LegacyClient(wired.app, handle=wired.handle)

    def cancel(question: Wire) -> None:
        client.notify("notifications/cancelled", {"requestId": 9})

    client.send("tools/call", {"name": "wish"}, cancel, id=9)
    assert tapped.of("in") == wired.sent
    assert tapped.of("out") == wired.got
    # The question is withdrawn.
    assert wired.got[-1]["method"] == "notifications/cancelled"


# ---- lines --------------------------------------------------------------------------


class Pipe:
    """The other end of a channel, which keeps what is really written there."""

    def __init__(self) -> None:
        self._lines, self._in = trio.open_memory_channel[bytes | TooLong](100)
        self.sent: list[Any] = []
        self.got: list[Any] = []
        self._news = trio.Event()

    async def send(self, line: bytes) -> None:
        """Take a line that the server writes."""
        self.got.append(json.loads(line))
        self._news.set()
        self._news = trio.Event()

    def put(self, line: bytes | TooLong) -> None:
        self._lines.send_nowait(line)

    def say(self, message: Wire) -> None:
        self.sent.append(message)
        self.put(json.dumps(message).encode())

    async def until(self, count: int) -> None:
        """Wait until the server has written so many lines."""
        with trio.fail_after(60):
            while len(self.got) < count:
                await self._news.wait()

    def end(self) -> None:
        self._lines.close()

    async def lines(self) -> AsyncIterator[bytes | TooLong]:
        async with self._in:
            async for line in self._in:
                yield line


@asynccontextmanager
async def piped(app: Server, **options: Any) -> AsyncIterator[Pipe]:
    """A client on a channel of `app`."""
    pipe = Pipe()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_lines(app, pipe.lines(), pipe.send, **options)

        nursery.start_soon(serve)
        yield pipe
        pipe.end()


def agrees(tapped: Tapped, pipe: Pipe) -> None:
    """Check that the taps saw each message that was sent or written, once."""
    # Requests that run side by side are read, and written, in any order.
    assert _sorted(tapped.of("in")) == _sorted(pipe.sent)
    assert _sorted(tapped.of("out")) == _sorted(pipe.got)


def _sorted(messages: list[Any]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in messages)


async def test_lines_of_a_modern_client() -> None:
    tapped = Tapped()
    async with piped(serving(tapped)) as pipe:
        params = {"_meta": meta(log_level="debug"), "name": "wish"}
        pipe.say(request("tools/call", params, id=1))
        pipe.say(
            {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
        )
        await pipe.until(2)
        pipe.put(b"{")
        pipe.put(TooLong())
        await pipe.until(4)
        # Nothing was asked.
        pipe.say({"jsonrpc": "2.0", "id": 7, "result": {}})
        await pipe.until(5)
    agrees(tapped, pipe)


async def test_lines_that_are_refused() -> None:
    tapped = Tapped()
    app = serving(tapped)
    event = trio.Event()

    @app.tool
    async def waits() -> str:
        await event.wait()
        return "done"

    limits = LineLimits(requests=1, waiting=0, patience=0)
    async with piped(app, limits=limits) as pipe:
        pipe.say(request("tools/call", {"name": "waits"}, id=1))
        pipe.say(request("tools/call", {"name": "greet"}, id=1))
        await pipe.until(1)
        pipe.say(request("tools/call", {"name": "greet"}, id=2))
        await pipe.until(2)
        event.set()
        await pipe.until(3)
    agrees(tapped, pipe)


async def test_lines_of_a_session_with_its_news() -> None:
    tapped = Tapped()
    app = serving(tapped)
    async with piped(app) as pipe:
        pipe.say(hello())
        await pipe.until(1)
        uri = {"uri": "shop://news"}
        ask = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "resources/subscribe",
            "params": uri,
        }
        pipe.say(ask)
        await pipe.until(2)
        await _listening(app)
        app.updated("shop://news")
        app.updated("shop://other")
        app.tool(name="new")(lambda: "x")
        await pipe.until(4)
        params = {"name": "wish"}
        pipe.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
        await pipe.until(6)
        (question,) = [
            one for one in pipe.got if one.get("method") == "elicitation/create"
        ]
        said = {"action": "accept", "content": {"value": "Rome"}}
        pipe.say({"jsonrpc": "2.0", "id": question["id"], "result": said})
        await pipe.until(7)
    agrees(tapped, pipe)
    methods = Counter(one.get("method") for one in pipe.got)
    assert methods["notifications/resources/updated"] == 1
    assert methods["notifications/tools/list_changed"] == 1
    assert {one.session for one in tapped.seen[2:]} == {tapped.seen[-1].session}


async def _listening(app: Server) -> None:
    """Wait until a channel listens to changes."""
    with trio.fail_after(60):
        while not app.changes.has_listeners:
            await trio.lowlevel.checkpoint()


async def test_lines_of_a_subscription() -> None:
    """The acknowledgement, the updates, and the two messages of its end."""
    tapped = Tapped()
    app = serving(tapped)
    async with piped(app) as pipe:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["shop://news"]}
        pipe.say(request("subscriptions/listen", {"notifications": wanted}, id=1))
        await pipe.until(1)
        app.updated("shop://news")
        await pipe.until(2)
        app.tool(name="new")(lambda: "x")
        await pipe.until(3)
    agrees(tapped, pipe)
    assert [one.get("method") for one in pipe.got] == [
        "notifications/subscriptions/acknowledged",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
        "notifications/cancelled",
        None,
    ]


async def test_lines_of_a_request_that_is_cancelled() -> None:
    tapped = Tapped()
    app = serving(tapped)

    @app.tool
    async def waits() -> str:
        await trio.Event().wait()
        return "late"

    async with piped(app) as pipe:
        pipe.say(request("tools/call", {"name": "waits"}, id=1))
        params = {"requestId": 1}
        pipe.say(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        )
        pipe.say(request("tools/call", {"name": "greet"}, id=2))
        await pipe.until(1)
    agrees(tapped, pipe)
    assert [one["id"] for one in pipe.got] == [2]


# ---- laws ---------------------------------------------------------------------------


def failing(message: TappedMessage) -> None:
    raise OSError("no disk")


def test_tap_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    after = Tapped()
    found = [call(serving(*taps), "greet").body for taps in ((), (failing, after))]
    assert found[0] == found[1]
    assert len(after.seen) == 2
    assert "a tap failed on a message that goes in" in caplog.text
    assert "a tap failed on a message that goes out" in caplog.text
    client = LegacyClient(serving(failing))
    assert text_of(client.call("wish", {}, accepts({"value": "Rome"}))) == "to Rome"


#: The requests of the server that the modern revision has no more.
ASKING: Final = frozenset(
    {"elicitation/create", "sampling/createMessage", "roots/list"}
)


def _step() -> str:
    return "done"


QUESTIONS: Final[Mapping[str, Callable[[], Any]]] = {
    "form": lambda: Elicit("Who?", str),
    "number": lambda: Elicit("How many?", int),
    "confirm": lambda: Confirm("Sure?"),
    "url": lambda: ElicitUrl("Sign in", "https://example.com"),
    "sample": lambda: Sample("Hi", max_tokens=5),
    "roots": ListRoots,
    "step": lambda: Step(_step),
    "log": lambda: Log("info", "x"),
    "progress": lambda: Progress(1),
}
ANSWERS: Final = st.sampled_from(
    [
        {"action": "accept", "content": {"value": "x"}},
        {"action": "accept", "content": {"value": 1}},
        {"action": "accept", "content": {}},
        {"action": "accept"},
        {"action": "decline"},
        {"roots": [{"uri": "file:///home"}]},
        {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
        {},
        5,
        None,
    ]
)
CAPABILITIES: Final = st.sampled_from(
    [
        *(EVERYTHING, EVERYTHING, {}, {"elicitation": {}}, {"sampling": {}}),
        *({"roots": {"listChanged": True}}, {"elicitation": {"url": {}}}, [], 5),
    ]
)


def _asking(script: list[list[str]]) -> Callable[[], Any]:
    def handler() -> Flow[str]:
        for names in script:
            effects = [QUESTIONS[name]() for name in names]
            if len(effects) == 1:
                yield from effects[0]
            else:
                yield from Gather(
                    *[one for one in effects if not isinstance(one, (Log, Progress))]
                )
        return "done"

    return handler


@pytest.mark.usefixtures("quiet")
@given(
    st.lists(
        st.lists(st.sampled_from(list(QUESTIONS)), min_size=1, max_size=3), max_size=4
    ),
    st.lists(ANSWERS, max_size=6),
    CAPABILITIES,
    st.sampled_from(["tool", "prompt", "resource"]),
    st.booleans(),
)
@example([["form", "sample", "roots"], ["url"]], [{}], EVERYTHING, "tool", False)
@example([["form"]], [], EVERYTHING, "tool", True)
def test_modern_client_is_asked_by_results_only(
    script: list[list[str]],
    answers: list[Any],
    capabilities: Any,
    kind: str,
    has_session: bool,
) -> None:
    """No message of the client changes this, even on an older client's session."""
    tapped = Tapped()
    app = Server("shop", keys=KEYS, taps=[tapped])
    handler: Any = _asking(script)
    app.tool(name="ask")(handler)
    app.prompt(name="ask")(handler)
    app.resource("shop://ask", name="ask")(handler)
    method, params = {
        "tool": ("tools/call", {"name": "ask"}),
        "prompt": ("prompts/get", {"name": "ask"}),
        "resource": ("resources/read", {"uri": "shop://ask"}),
    }[kind]
    peer = LegacyClient(app).peer if has_session else None
    wired = Wired(app, peer)
    more: Wire = {}
    more["_meta"] = meta(capabilities, log_level="debug", progressToken=1)
    tapped.seen.clear()
    for answer in [*answers, None]:
        message = request(method, {**params, **more})
        reply = wired.handle(app, message)
        assert reply.message is not None
        found = reply.message.get("result", {})
        if found.get("resultType") != "input_required":
            break
        more["requestState"] = found["requestState"]
        more["inputResponses"] = dict.fromkeys(found.get("inputRequests", ()), answer)
    assert tapped.of("in") == wired.sent
    assert tapped.of("out") == wired.got
    assert not [one for one in wired.got if one.get("method") in ASKING]


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Mute the log: drawn handlers fail all the time."""
    import logging

    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_what_a_session_is_asked_is_a_message() -> None:
    """The law above would therefore notice a question to a modern client."""
    tapped = Tapped()
    client = LegacyClient(serving(tapped), NEWEST)
    client.call("wish", {}, accepts({"value": "Rome"}))
    assert [one["method"] for one in tapped.of("out") if "method" in one][-1:] == [
        "elicitation/create"
    ]
    send(client.app, "tools/list")


async def _later() -> str:
    return "later"


def test_error_of_a_driver_passes_the_taps() -> None:
    """The driver of `call` has no loop for an async step."""
    tapped = Tapped()
    app = serving(tapped)

    @app.tool
    def waits() -> Flow[str]:
        return (yield from Step(_later))

    reply = call(app, "waits")
    assert result(reply)["isError"] is True
    assert tapped.of("out") == [reply.message]


def test_client_that_leaves_ends_a_call_with_taps() -> None:
    ended: list[str] = []
    app = serving(Tapped())

    @app.tool
    def waits() -> Flow[str]:
        try:
            return (yield from Step(_step))
        finally:
            ended.append("waits")

    message = request("tools/call", {"name": "waits"})
    exchange = handle(app, message, clock=lambda: 5.0, entropy=bytes)
    next(exchange)
    exchange.close()
    assert ended == ["waits"]
