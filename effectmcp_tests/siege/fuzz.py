"""Malformed input, by the million: heads, tokens and messages.

    python -m effectmcp_tests.siege.fuzz --heads 10000000 --tokens 1000000
    python -m effectmcp_tests.siege.fuzz --messages 1000000 --seed 7 --jobs 2

heads       what our reader accepts, h11 reads in the same way; all other bytes are read
            by h11, or raise `MalformedHttp`, and nothing else
tokens      a state that was changed in any way is refused, with one and the same error
messages    any message gets a reply that is valid JSON-RPC, with the status of its
            revision; nothing is raised, and no error is internal unless a handler raised

Work is cut into blocks. A finding names its block, which `--seed` and `--block` repeat.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeAlias

import h11

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
from effectmcp.errors import StateError
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.protocol.jsonrpc import Malformed, Request, Response, read_message
from effectmcp.protocol.methods import METHODS
from effectmcp.state import Keys, Sealer, make_key
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.http1 import MalformedHttp, open_wire, read, split

from ..legacy_client import VERSIONS, hello
from ..state.journals import CALL, STARTED, claims_of, entry
from ..transports import heads
from ..wire import EVERYTHING, KEYS, headers_of, request
from .server import Planned

__all__ = ["main"]

#: Inputs of one block.
BLOCK: Final = 5_000

Finding: TypeAlias = str
#: Tries so many inputs; yields the findings, and counts the outcomes.
Campaign: TypeAlias = Callable[[Random, int, Counter[str]], Iterator[Finding]]


# ---- heads --------------------------------------------------------------------------


def try_heads(random: Random, count: int, seen: Counter[str]) -> Iterator[Finding]:
    """Read mutated requests; h11 is the referee."""
    for _ in range(count):
        data = _mutated_head(random)
        try:
            accepted = read(data, size=65536, count=100)
            if accepted is None:
                seen[_read_by_h11(data)] += 1
                continue
            seen["read"] += 1
            problem = _compare(data, random)
        except Exception as exc:
            problem = repr(exc)
        if problem:
            yield f"{problem}: {data!r}"


def _mutated_head(random: Random) -> bytes:
    lines = [*heads.GOOD, *random.sample(heads._HARMLESS, random.randrange(4))]
    rest = lines[1:]
    random.shuffle(rest)
    lines[1:] = rest
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        match random.randrange(8):
            case 0:
                lines[0] = random.choice(heads._FIRST)
            case 1 if len(lines) > 1:
                del lines[random.randrange(len(lines))]
            case 2 | 3:
                lines.insert(
                    random.randrange(len(lines) + 1), random.choice(heads._ODD)
                )
            case 4:
                lines.append(b"V:" + random.randbytes(random.randrange(4)))
            case 5:
                at = random.randrange(len(lines))
                lines[at] = lines[at].swapcase()
            case _:
                pass
    data = bytearray(b"".join(line + _end(random) for line in [*lines, b""]))
    for _ in range(random.choice((0, 0, 0, 1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randrange(3)] = random.choice(
            _PIECES
        ) or random.randbytes(random.randrange(3))
    return bytes(data) + random.choice(heads._BODIES) + random.choice(heads._NEXT)


_PIECES: Final = (
    b"",
    b"",
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"\r\n\r\n",
)


def _end(random: Random) -> bytes:
    return random.choice(heads._ENDS) if random.random() < 0.02 else b"\r\n"


def _read_by_h11(data: bytes) -> str:
    wire = open_wire(bytearray(data), max_head=65536, max_headers=100)
    try:
        if wire.head() is None:
            return "incomplete"
        while part := wire.part():
            pass
    except MalformedHttp:
        return "refused"
    return "h11 waits" if part is None else "h11"


def _compare(data: bytes, random: Random) -> str:
    """Return how h11 differs from our reader; empty if it does not."""
    found = read(data, size=65536, count=100)
    assert found is not None
    cut = split(data, size=65536)
    if cut is not None and (cut.end, int(cut.length)) != (found.end, found.length):
        return "split differs"
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    seen: list[Any] = []
    at = random.randrange(len(data))
    for piece in (data[:at], data[at:]):
        if piece:
            http.receive_data(piece)
        while (one := http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            seen.append(one)
    first, *parts = seen
    method, target, headers = found.request
    assert isinstance(headers, dict)
    if (first.method.decode(), first.target.decode()) != (method, target):
        return "another request"
    if [(k.decode(), v.decode()) for k, v in first.headers] != list(headers.items()):
        return "other headers"
    body = data[found.end :][: found.length]
    if b"".join(one.data for one in parts if isinstance(one, h11.Data)) != body:
        return "another body"
    if http.trailing_data != (data[found.end + len(body) :], False):
        return "another end"
    if (len(body) < found.length) != (http.their_state is h11.SEND_BODY):
        return "another state"
    return ""


# ---- tokens -------------------------------------------------------------------------

_NOW: Final = STARTED + 100
_OLD, _NEW, _OTHER = (make_key(bytes([n]) * 32) for n in (1, 2, 3))
_SEALERS: Final = (
    Sealer(keys=Keys(_OLD, _NEW), audience="bookshop"),
    Sealer(keys=Keys(_OLD, _NEW, readable=True), audience="bookshop"),
)
_CLAIMS: Final = (
    claims_of(),
    claims_of(entry("elicit-1", "accepted", {"value": "Ann"})),
    claims_of(
        entry("elicit-1", "accepted", {"value": "Ann"}),
        entry("step-1", "done", "receipt"),
        entry("sample-1", "accepted", "word " * 100),
    ),
)
_ALPHABET: Final = string.ascii_letters + string.digits + "-_.=+/ \n\0é"


def try_tokens(random: Random, count: int, seen: Counter[str]) -> Iterator[Finding]:
    """Open tokens that were changed."""
    valid = [
        [
            sealer.seal(claims, CALL, now=_NOW + late)
            for claims in _CLAIMS
            for late in range(2)
        ]
        for sealer in _SEALERS
    ]
    strange = Sealer(keys=Keys(_OTHER), audience="bookshop")
    foreign = [strange.seal(claims, CALL, now=_NOW) for claims in _CLAIMS]
    known = {token for tokens in valid for token in tokens}
    for _ in range(count):
        number = random.randrange(2)
        token = _altered(random, random.choice(valid[number]), sum(valid, foreign))
        if token in known:
            continue
        try:
            _SEALERS[number].open(token, CALL, now=_NOW + 2)
        except StateError as exc:
            seen[exc.reason] += 1
            if str(exc) != "Invalid or expired requestState":
                yield f"it says {exc}: {token!r}"
        except Exception as exc:
            yield f"{exc!r}: {token!r}"
        else:
            yield f"opened: {token!r}"


def _altered(random: Random, token: str, others: Sequence[str]) -> str:
    chars = list(token)
    at = random.randrange(len(chars))
    match random.randrange(8):
        case 0 | 1 | 2:
            for _ in range(random.choice((1, 1, 1, 2, 8))):
                chars[random.randrange(len(chars))] = random.choice(_ALPHABET)
        case 3:
            del chars[at : at + random.randrange(1, 5)]
        case 4:
            chars.insert(at, random.choice(_ALPHABET))
        case 5:
            return token[:at] + random.choice(others)[at:]
        case 6:
            chars[at] = chars[at].swapcase()
        case _:
            return random.choice(
                (token[:at], token[at:], token + token, token + "=", " " + token, "")
            )
    return "".join(chars)


# ---- messages -----------------------------------------------------------------------

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


def try_messages(random: Random, count: int, seen: Counter[str]) -> Iterator[Finding]:
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


def _try_message(
    client: _Client, random: Random, seen: Counter[str]
) -> Iterator[Finding]:
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
    anything = {200, 400, 404}
    statuses = anything
    said_meta = read.params.get("_meta")
    if client.is_legacy and "_meta" not in read.params:
        # The status is about the transport: an error travels with 200.
        statuses = {200}
    elif not client.is_legacy and code in _STATUSES:
        statuses = {_STATUSES[code]}
    if not isinstance(said_meta, dict | None) or "2026-06-XX" in str(said_meta):
        statuses = anything  # of another revision, perhaps
    if _raised[0]:
        statuses |= {200, 500}
    return "" if reply.status in statuses else f"{code} with {reply.status}"


# ---- together -----------------------------------------------------------------------

CAMPAIGNS: Final[Mapping[str, Campaign]] = {
    "heads": try_heads,
    "tokens": try_tokens,
    "messages": try_messages,
}

#: Findings that are printed of a campaign.
_SHOWN: Final = 20


def run_block(job: tuple[str, int, int, int]) -> tuple[Counter[str], list[Finding]]:
    """Run one block: of a campaign, with a seed, a number and a size."""
    name, seed, block, count = job
    seen: Counter[str] = Counter()
    random = Random(f"{name} {seed} {block}")
    found = [
        f"{name}, --seed {seed} --block {block}: {one}"
        for one in CAMPAIGNS[name](random, count, seen)
    ]
    return seen, found


def _blocks(name: str, seed: int, count: int) -> list[tuple[str, int, int, int]]:
    starts = range(0, count, BLOCK)
    return [(name, seed, n, min(BLOCK, count - at)) for n, at in enumerate(starts)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns, and print their findings."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in CAMPAIGNS:
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    failed = 0
    for name in CAMPAIGNS:
        jobs = _blocks(name, options.seed, getattr(options, name))
        if options.block is not None:
            jobs = [job for job in jobs if job[2] == options.block]
        if not jobs:
            continue
        began = time.monotonic()
        seen: Counter[str] = Counter()
        findings: list[Finding] = []
        for one, found in _run(jobs, options.jobs):
            seen += one
            for finding in found[: max(0, _SHOWN - len(findings))]:
                print(finding, flush=True)
            findings += found
        took = time.monotonic() - began
        outcomes = ", ".join(f"{how} {n:,}" for how, n in seen.most_common())
        total = sum(job[3] for job in jobs)
        print(f"{name}: {total:,} in {took:.0f} s: {outcomes}")
        print(f"{name}: {len(findings)} findings", flush=True)
        failed += bool(findings)
    return failed


def _run(
    jobs: Sequence[tuple[str, int, int, int]], processes: int
) -> Iterator[tuple[Counter[str], list[Finding]]]:
    if processes == 1:
        yield from map(run_block, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_block, jobs)


if __name__ == "__main__":
    raise SystemExit(main())
