"""Messages of every revision, right and wrong, to a server with a handler of each kind."""

from __future__ import annotations

import copy
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from effectmcp import (
    Audio,
    Confirm,
    Detach,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    Given,
    IdempotencyKey,
    Image,
    InputRequired,
    ListRoots,
    Log,
    Now,
    Progress,
    Provided,
    Sample,
    Server,
    Step,
    ToolError,
)
from effectmcp.compat import Context, awaits_effects
from effectmcp.drivers import sync
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.protocol.jsonrpc import Malformed, Request, Response, read_message
from effectmcp.protocol.methods import METHODS
from effectmcp.tasks import SqliteTasks

from ..legacy_client import VERSIONS, hello
from ..wire import EVERYTHING, KEYS, headers_of, request
from .server import Planned

__all__ = ["try_messages"]

#: Set when a handler raises: only then may an error be internal.
_raised: list[bool] = [False]


def make_app() -> Server:
    """A server with a handler of each kind."""
    app = Server("fuzzed", keys=KEYS, page_size=2, tasks=SqliteTasks(), drafts=True)

    @app.tool
    def find(region: str = "", n: int = 1) -> list[str]:
        return [region] * min(n, 3)

    @app.tool
    def order(title: str, data: Any = None) -> Flow[str]:
        yield from Log("info", data)
        name = yield from Elicit("Who?", str, key="who")
        yield from Progress(1, 2, "Half.")
        day, page = yield from Gather(Confirm("Sure?"), ElicitUrl("Pay", "https://x"))
        model = yield from Sample(f"Thank {name}", key="model")
        roots = yield from ListRoots(key="roots")
        yield from Step(len, title)
        return f"{name} {day} {page} {model.text} {len(roots)}"

    @app.tool(task="optional")
    def long(title: str = "") -> Flow[str]:
        yield from Detach()
        return (yield from Elicit("Who?", str))

    @app.tool
    def failing(how: str = "tool") -> str:
        if how == "tool":
            raise ToolError("sold out")
        _raised[0] = True
        raise Planned("a bug")

    @app.tool
    @awaits_effects
    async def table(day: str, ctx: Context) -> str:
        await ctx.info(day)
        return f"{day}: {(await ctx.elicit('For how many?', int)).action}"

    @app.tool
    def rent(title: str, given: Given = Provided()) -> str | InputRequired:
        days = given.answers.get("days")
        if days is None:
            return InputRequired({"days": Elicit("How long?", int)}, state={"fee": 2})
        return f"{title} {days} {given.state}"

    @app.tool(single_use=True)
    def pay(amount: int = 1) -> Flow[str]:
        key = yield from IdempotencyKey("pay")
        yield from Confirm(f"Pay {amount}?")
        return key

    @app.tool(input_schema={"type": "object"})
    def raw(**kwargs: Any) -> Any:
        return kwargs

    @app.tool
    def blocks() -> Any:
        return [Image(b"x"), Audio(b"x"), "text"]

    @app.prompt
    def paint(colour: str, size: int | None = None) -> str:
        return f"{colour} {size}"

    @app.prompt
    def inquire() -> Flow[str]:
        yield from Now()
        return (yield from Elicit("What?", str, key="what"))

    @app.resource("shop://hello", ttl=5, scope="public")
    def greeting() -> bytes:
        return b"hello"

    @app.resource("shop://pages/{number}")
    def page(number: int) -> Any:
        return {"number": number}

    @app.completion("paint", "colour")
    def colours(text: str, context: dict[str, str]) -> list[str]:
        return [text, *context]

    return app


_PARAMS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "tools/call": [
        {"name": "find", "arguments": {"region": "eu", "n": 2}},
        {"name": "order", "arguments": {"title": "Dune"}},
        {"name": "long", "arguments": {}, "task": {"ttl": 1000}},
        {"name": "failing", "arguments": {"how": "bug"}},
        {"name": "raw", "arguments": {"a": [1, {"b": None}]}},
        {"name": "blocks"},
        {"name": "table", "arguments": {"day": "Friday"}},
        {"name": "rent", "arguments": {"title": "Dune"}},
        {"name": "pay", "arguments": {"amount": 3}},
    ],
    "prompts/get": [
        {"name": "paint", "arguments": {"colour": "red", "size": "3"}},
        {"name": "inquire"},
    ],
    "resources/read": [{"uri": "shop://hello"}, {"uri": "shop://pages/1"}],
    "resources/subscribe": [{"uri": "shop://hello"}],
    "resources/unsubscribe": [{"uri": "shop://hello"}],
    "completion/complete": [
        {
            "ref": {"type": "ref/prompt", "name": "paint"},
            "argument": {"name": "colour", "value": "r"},
            "context": {"arguments": {"size": "3"}},
        }
    ],
    "subscriptions/listen": [
        {"notifications": {"toolsListChanged": True}},
        {"notifications": {"resourceSubscriptions": ["shop://hello"]}},
    ],
    "logging/setLevel": [{"level": "info"}],
    "initialize": [hello()["params"]],
    "tasks/get": [{"taskId": "a"}],
    "tasks/result": [{"taskId": "a"}],
    "tasks/update": [{"taskId": "a", "inputResponses": {}}],
    "tasks/cancel": [{"taskId": "a"}],
    "tasks/input_response": [{"taskId": "a", "inputResponses": {}}],
}

_NOTIFICATIONS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1}),
    ("notifications/progress", {"progressToken": 1, "progress": 1}),
    ("notifications/roots/list_changed", {}),
)

_SCALARS: Final = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**53,
    -(2**63),
    10**40,
    0.5,
    1e308,
    "",
    "Dune",
    "order",
    "\ud800",
    "\0",
    "é\u2028",
    "x" * 5_000,
    "__class__",
    "shop://pages/../..",
)


def _value(random: Random, depth: int = 0) -> Any:
    match random.randrange(8):
        case 0 if depth < 4:
            return [_value(random, depth + 1) for _ in range(random.randrange(4))]
        case 1 if depth < 4:
            names = (*_SCALARS[11:15], "name", "_meta", "value")
            return {
                random.choice(names): _value(random, depth + 1)
                for _ in range(random.randrange(4))
            }
        case 2 if not depth and random.random() < 0.1:
            deep: Any = []
            for _ in range(random.choice((60, 70, 200))):
                deep = [deep]
            return deep
        case _:
            return random.choice(_SCALARS)


def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    """Collect the containers of a value, with the keys of their items."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        found.append((value, key))
        _places(inner, found)


def _mutated(random: Random, message: Any) -> Any:
    message = copy.deepcopy(message)  # other messages share its parts
    for _ in range(random.choice((1, 1, 2, 4))):
        found: list[tuple[Any, Any]] = []
        _places(message, found)
        if not found:
            return _value(random)
        held, key = random.choice(found)
        while held is message and random.random() < 0.6:
            held, key = random.choice(found)  # most of these are malformed
        match random.randrange(4):
            case 0:
                del held[key]
            case 1 if isinstance(held, dict):
                held[random.choice(("", "id", "method", "name", "task"))] = _value(
                    random
                )
            case _:
                held[key] = _value(random)
    return message


class _Client:
    """A client of one revision, or of none, that sends right and wrong messages."""

    def __init__(self, app: Server, random: Random) -> None:
        self.app = app
        self.random = random
        self.peer: Peer | None = None
        self.state: str | None = None
        self.task: str | None = None
        self.era = random.choice(("2026-07-28", "2026-06-XX", *VERSIONS))
        if self.is_legacy:
            opened = sync.handle(app, hello(self.era)).opened
            assert opened is not None
            self.peer = Peer(session=opened)

    @property
    def is_legacy(self) -> bool:
        return self.era != "2026-07-28"

    def message(self) -> Any:
        """A message that this client may well send."""
        random = self.random
        if random.random() < 0.08:
            method, params = random.choice(_NOTIFICATIONS)
            return {"jsonrpc": "2.0", "method": method, "params": dict(params)}
        if random.random() < 0.04:
            return {"jsonrpc": "2.0", "id": random.randrange(9), "result": {}}
        method = random.choice([*METHODS, "tools/call", "tools/call", "prompts/get"])
        params = dict(random.choice(_PARAMS.get(method, [{}])))
        if self.state is not None and random.random() < 0.3:
            params["requestState"] = self.state
            accepted = {"action": "accept", "content": {"value": "Ann"}}
            params["inputResponses"] = {"who": accepted}
        if self.task is not None and "taskId" in params:
            params["taskId"] = self.task
        if self.is_legacy:
            id_ = random.randrange(1, 10**6)
            return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        return request(method, params, **random.choice(_METAS))

    def peer_of(self, message: Any) -> Peer | None:
        """Headers that fit the message, headers that do not, or none."""
        if self.is_legacy or self.random.random() < 0.5:
            return self.peer
        known: dict[str, Any] = {"mcp-method": "tools/call"}
        with suppress(AttributeError, TypeError):
            known = {**headers_of(message)}
        headers = {
            name: value.strip(" \t")
            for name, value in known.items()
            if isinstance(value, str) and value.isascii() and value.isprintable()
        }
        if self.random.random() < 0.1:
            headers[self.random.choice([*headers, "mcp-name"])] = "other"
        return Peer(headers=headers)

    def send(self, message: Any, peer: Peer | None) -> tuple[Reply, bool]:
        """Return the reply, and whether a question was left without an answer."""
        was_left = False

        def receive(sent: Mapping[str, Any]) -> None:
            json.dumps(sent)
            if "id" in sent and "method" in sent and self.random.random() < 0.7:
                self._answer(sent, peer)

        def wait(asking: Any) -> None:
            nonlocal was_left
            if not asking.is_over:
                was_left = True
                asking.end()

        return sync.handle(self.app, message, peer, send=receive, wait=wait), was_left

    def _answer(self, question: Mapping[str, Any], peer: Peer | None) -> None:
        results: list[Any] = [
            {"action": "accept", "content": {"value": "Ann"}},
            {"action": "accept"},
            {"action": "decline"},
            {
                "role": "assistant",
                "model": "m",
                "content": {"type": "text", "text": "x"},
            },
            {"roots": [{"uri": "file:///x"}]},
        ]
        answer: Any = {
            "jsonrpc": "2.0",
            "id": question["id"],
            "result": self.random.choice(results),
        }
        if self.random.random() < 0.3:
            answer = _mutated(self.random, answer)
        reply = sync.handle(self.app, answer, peer)
        if reply.status not in (202, 400):
            # A mutated answer may have become a request.
            assert reply.message is not None, (answer, reply)

    def learn(self, reply: Reply) -> None:
        """Remember the state or the task of a reply, for later messages."""
        result = (reply.message or {}).get("result")
        if isinstance(result, dict):
            state = result.get("requestState")
            self.state = state if isinstance(state, str) else self.state
            task = result.get("task", result)
            if isinstance(task, dict) and isinstance(task.get("taskId"), str):
                self.task = task["taskId"]


_METAS: Final[Sequence[dict[str, Any]]] = (
    {},
    {"log_level": "debug", "progressToken": "t"},
    {"capabilities": {"elicitation": {}}},
    {"capabilities": {}},
    {
        "capabilities": {
            **EVERYTHING,
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }
    },
    {"version": "2026-06-XX"},
    {"version": "1999-01-01"},
)

#: The statuses of the errors of requests of 2026-07-28, where the code decides.
_STATUSES: Final = {-32700: 400, -32600: 400, -32601: 404, -32020: 400, -32022: 400}


def try_messages(random: Random, count: int, seen: Counter[str]) -> Iterator[str]:
    """Send messages of every revision, right and wrong."""
    logging.disable(logging.CRITICAL)
    app = make_app()
    with sync.running(app):
        client = _Client(app, random)
        for number in range(count):
            if number % 50 == 0:
                if client.peer is not None and client.peer.session is not None:
                    client.peer.session.close()
                client = _Client(app, random)
            yield from _try_message(client, random, seen)
    assert isinstance(app.tasks, SqliteTasks)
    app.tasks.close()


def _try_message(client: _Client, random: Random, seen: Counter[str]) -> Iterator[str]:
    message = client.message()
    is_right = random.random() < 0.3
    if not is_right:
        message = _mutated(random, message)
    peer = client.peer_of(message)
    sent: Any = message
    if not isinstance(message, dict) or random.random() < 0.4:
        sent = json.dumps(message)
        if not is_right and random.random() < 0.3:
            at = random.randrange(len(sent) + 1)
            sent = sent[:at] + random.choice(('"', "{", "]", "\0", "")) + sent[at + 1 :]
        if random.random() < 0.5:
            sent = sent.encode()
    _raised[0] = False
    try:
        reply, was_left = client.send(sent, peer)
        problem = _problem(sent, reply, client, was_left=was_left)
        client.learn(reply)
    except Exception as exc:
        problem = f"raised {exc!r}"
        reply = None
    if problem:
        yield f"{problem}: {client.era} {sent!r:.2000}"
    elif reply is not None:
        error = (reply.message or {}).get("error", {})
        seen[f"{reply.status} {error.get('code', '')}".strip()] += 1


def _problem(sent: Any, reply: Reply, client: _Client, *, was_left: bool) -> str:
    """Return the fault of a reply; empty if it is valid."""
    read = read_message(sent)
    if isinstance(read, Response) and reply.status == 400:
        return ""  # there is no session, or no such question
    if not isinstance(read, (Request, Malformed)):
        return "" if (reply.message, reply.status) == (None, 202) else f"{reply}"
    if reply.message is None:
        return "" if was_left else "no response"
    assert reply.body is not None
    said = json.loads(reply.body)
    if said.get("jsonrpc") != "2.0" or ("result" in said) == ("error" in said):
        return f"not JSON-RPC: {said}"
    if said.get("id") != read.id:  # left out where it could not be read
        return f"another id: {said}"
    # The code alone is not a bug: clients of earlier revisions get it with an explanation,
    # where a prompt or a resource needs to ask a user who cannot be asked.
    is_internal = b"Internal error" in reply.body
    if is_internal and not _raised[0] and "Internal error" not in str(sent):
        return f"internal: {said}"
    if "result" in said:
        return "" if reply.status == 200 else f"a result with {reply.status}"
    code = said["error"]["code"]
    if not isinstance(code, int) or not isinstance(said["error"]["message"], str):
        return f"not an error: {said}"
    if isinstance(read, Malformed):
        return "" if reply.status == 400 else f"malformed, with {reply.status}"
    statuses = {200, 400, 404}
    if client.is_legacy:
        if "_meta" not in read.params:
            # The status is about the transport: an error travels with 200.
            statuses = {200}
    elif isinstance(read.params.get("_meta"), dict) and "2026-06-XX" not in str(sent):
        statuses = {_STATUSES[code]} if code in _STATUSES else statuses
    if _raised[0]:
        statuses |= {200, 500}
    return "" if reply.status in statuses else f"{code} with {reply.status}"
