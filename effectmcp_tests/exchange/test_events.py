"""Events: when each is sent, with which fields, and that observers change nothing.

The tests of single rounds and their steps are in `test_calls.py`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Final, TypeVar

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import (
    Call,
    Checkpoint,
    Confirm,
    Detach,
    Elicit,
    Flow,
    Gather,
    Intercepting,
    Now,
    ProtocolError,
    Restart,
    Server,
    Sleep,
    Step,
    ToolError,
    step,
)
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import sync
from effectmcp.drivers import trio as on_trio
from effectmcp.errors import StateError, TaskStoreError
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.exchange.handle import handle as begin
from effectmcp.exchange.ledger import Taken
from effectmcp.exchange.sessions import Inquiry
from effectmcp.protocol.jsonrpc import read_message
from effectmcp.server import (
    TRACE,
    Event,
    MessageRefused,
    QuestionsAnswered,
    QuestionsAsked,
    RequestBegan,
    RequestEnded,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    SessionEnded,
    SessionOpened,
    StepBegan,
    StepPerformed,
    TaskCreated,
    TurnBegan,
    TurnEnded,
)
from effectmcp.tasks import SqliteTasks
from effectmcp.tasks.turn import turn

from ..legacy_client import NEWEST, LegacyClient, accepts, hello
from ..tasks.simulated import Host, accepted, new
from ..wire import (
    KEYS,
    Wire,
    call,
    call_params,
    headers_of,
    refused,
    request,
    result,
    said,
    send,
    text_of,
)
from .test_task_wires import DRAFT, MODERN, World, world

ANN: Final = Peer(principal="ann")
E = TypeVar("E")


@attrs.define(eq=False)
class Seen:
    """An observer that keeps the events that it receives."""

    events: list[Event] = attrs.field(factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def all(self, kind: type[E]) -> list[E]:
        """The events of a class."""
        return [one for one in self.events if isinstance(one, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of a class."""
        (found,) = self.all(kind)
        return found

    def names(self) -> list[str]:
        """The classes of all events, in order."""
        return [type(one).__name__ for one in self.events]

    def take(self) -> list[Event]:
        """Remove all events, and return them."""
        found, self.events = self.events, []
        return found


@step
def pack(title: str) -> str:
    return f"a parcel with {title}"


@step
def lose(title: str) -> str:
    raise OSError(f"no {title}")


def wish(title: str = "Emma") -> Flow[str]:
    """Perform a step, ask, and perform another one."""
    parcel = yield from pack(title)
    where = yield from Elicit("Where to?", str, key="where")
    yield from pack(where)
    return f"{parcel} to {where}"


def serving(*observers: Any, **options: Any) -> Server:
    """A server with a feature of each kind."""
    app = Server("shop", keys=KEYS, drafts=True, observers=observers, **options)

    @app.tool
    def greet(name: str = "you") -> str:
        return f"Hello, {name}!"

    app.tool(wish)

    @app.tool
    def fail() -> str:
        raise ToolError("sold out")

    @app.tool
    def crash() -> str:
        raise ValueError("a bug")

    @app.tool
    def deny() -> str:
        raise ProtocolError(-32001, "Quota", status=429)

    @app.tool
    def tries() -> Flow[str]:
        try:
            yield from lose("cup")
        except OSError:
            pass
        yes = yield from Confirm("Sure?")
        return str(bool(yes))

    @app.prompt
    def review(book: str) -> str:
        if book == "none":
            raise ToolError("no book")
        return f"Review {book}"

    @app.prompt
    def compare(book: str) -> Flow[str]:
        other = yield from Elicit("With which?", str, key="other")
        return f"Compare {book} with {other}"

    @app.resource("shop://news")
    def news() -> str:
        return "news"

    @app.resource("shop://books/{title}")
    def book(title: str) -> Flow[str]:
        page = yield from Elicit("Which page?", int, key="page")
        return f"{title}, page {page}"

    return app


# ---- requests -----------------------------------------------------------------------


def began_of(app: Server, message: Any, peer: Peer | None = None) -> RequestBegan:
    """The event at the beginning of a request."""
    seen = Seen()
    app.observers = (seen,)
    sync.handle(app, message, peer)
    return seen.one(RequestBegan)


def test_request_that_begins() -> None:
    info = {"name": "desk", "version": "2"}
    params = {"name": "greet", "arguments": {"name": "Ann"}}
    message = request("tools/call", params, id="seven", client=info)
    began = began_of(serving(), message, ANN)
    assert began == RequestBegan(
        number=began.number,
        method="tools/call",
        is_offered=True,
        target="greet",
        feature="greet",
        revision="2026-07-28",
        era="modern",
        principal="ann",
        address=ANN.address,
        client="desk 2",
        session=None,
        id="seven",
        size=0,
        is_http=False,
        arguments={"name": "Ann"},
        meta=message["params"]["_meta"],
        context=began.context,
    )


def test_request_of_a_session_that_begins() -> None:
    app = serving()
    client = LegacyClient(app)
    client.peer = attrs.evolve(client.peer, principal="ann")
    message = {"jsonrpc": "2.0", "id": 5, "method": "prompts/list"}
    began = began_of(app, message, client.peer)
    assert began == RequestBegan(
        number=began.number,
        method="prompts/list",
        is_offered=True,
        target=None,
        feature=None,
        revision=NEWEST,
        era="legacy",
        principal="ann",
        address=None,
        client="old 1",
        session=client.session.number,
        id=5,
        size=0,
        is_http=False,
        arguments=None,
        meta={},
        context=began.context,
    )


def test_size_of_a_request_is_known_if_its_text_is() -> None:
    message = request("tools/call", {"name": "greet"})
    text = json.dumps(message)
    assert began_of(serving(), text).size == len(text)
    assert began_of(serving(), text.encode()).size == len(text)
    assert began_of(serving(), read_message(message)).size == 0


def test_request_over_http() -> None:
    message = request("tools/call", {"name": "greet"})
    peer = Peer(headers=headers_of(message))
    assert began_of(serving(), message, peer).is_http is True


def test_target_is_cut_off() -> None:
    """A stranger may send a name of any size."""
    began = began_of(serving(), request("tools/call", {"name": "x" * 5_000}))
    assert began.target == "x" * 1_000


#: Method, params; whether it is offered, its target and its feature; outcome, error, code.
ASKED: Final[list[Any]] = [
    ("server/discover", {}, (True, None, None), ("result", None, None)),
    ("tools/list", {}, (True, None, None), ("result", None, None)),
    ("prompts/list", {}, (True, None, None), ("result", None, None)),
    ("resources/list", {}, (True, None, None), ("result", None, None)),
    ("resources/templates/list", {}, (True, None, None), ("result", None, None)),
    (
        "tools/list",
        {"cursor": "x"},
        (True, None, None),
        ("error", "ProtocolError", -32602),
    ),
    ("tools/call", {"name": "greet"}, (True, "greet", "greet"), ("result", None, None)),
    ("tools/call", {"name": "wish"}, (True, "wish", "wish"), ("asked", None, None)),
    (
        "tools/call",
        {"name": "fail"},
        (True, "fail", "fail"),
        ("failed", "ToolError", None),
    ),
    (
        "tools/call",
        {"name": "crash"},
        (True, "crash", "crash"),
        ("failed", "ValueError", None),
    ),
    (
        "tools/call",
        {"name": "deny"},
        (True, "deny", "deny"),
        ("error", "ProtocolError", -32001),
    ),
    (
        "tools/call",
        {"name": "greet", "arguments": {"name": 5}},
        (True, "greet", "greet"),
        ("failed", "ArgumentsError", None),
    ),
    (
        "tools/call",
        {"name": "greet", "requestState": "x"},
        (True, "greet", "greet"),
        ("error", "StateError", -32602),
    ),
    (
        "tools/call",
        {"name": "wish", "requestState": "x" * 400},
        (True, "wish", "wish"),
        ("error", "StateError", -32602),
    ),
    (
        "tools/call",
        {"name": "none"},
        (True, "none", None),
        ("error", "ProtocolError", -32602),
    ),
    ("tools/call", {"name": 5}, (True, None, None), ("error", "ProtocolError", -32602)),
    ("tools/call", {}, (True, None, None), ("error", "ProtocolError", -32602)),
    (
        "prompts/get",
        {"name": "review", "arguments": {"book": "x"}},
        (True, "review", "review"),
        ("result", None, None),
    ),
    (
        "prompts/get",
        {"name": "review", "arguments": {"book": "none"}},
        (True, "review", "review"),
        ("error", "ToolError", -32603),
    ),
    (
        "prompts/get",
        {"name": "compare", "arguments": {"book": "x"}},
        (True, "compare", "compare"),
        ("asked", None, None),
    ),
    # A tool is not a prompt.
    (
        "prompts/get",
        {"name": "greet"},
        (True, "greet", None),
        ("error", "ProtocolError", -32602),
    ),
    (
        "resources/read",
        {"uri": "shop://news"},
        (True, "shop://news", "shop://news"),
        ("result", None, None),
    ),
    # Strangers can make up any number of such URIs.
    (
        "resources/read",
        {"uri": "shop://books/emma"},
        (True, "shop://books/emma", None),
        ("asked", None, None),
    ),
    (
        "resources/read",
        {"uri": "x"},
        (True, "x", None),
        ("error", "ProtocolError", -32602),
    ),
    ("no/such", {}, (False, None, None), ("error", "ProtocolError", -32601)),
    ("ping", {}, (False, None, None), ("error", "ProtocolError", -32601)),
    (
        "tasks/get",
        {"taskId": "7"},
        (False, "7", None),
        ("error", "ProtocolError", -32601),
    ),
]


@pytest.mark.parametrize(("method", "params", "before", "after"), ASKED)
def test_request_of_any_kind(method: str, params: Any, before: Any, after: Any) -> None:
    seen = Seen()
    reply = send(serving(seen), method, params, peer=ANN)
    began, ended = seen.one(RequestBegan), seen.one(RequestEnded)
    assert (began.is_offered, began.target, began.feature) == before
    assert (ended.outcome, ended.error, ended.code) == after
    assert reply.body is not None
    assert reply.message is not None
    assert ended == RequestEnded(
        number=began.number,
        method=method,
        target=began.target,
        principal="ann",
        seconds=ended.seconds,
        outcome=ended.outcome,
        error=ended.error,
        code=ended.code,
        message=reply.message.get("error", {}).get("message"),
        size=len(reply.body),
    )
    assert ended.seconds >= 0


@pytest.mark.parametrize(
    ("method", "params", "is_offered", "outcome"),
    [
        ("ping", {}, True, "result"),
        ("tools/list", {}, True, "result"),
        ("server/discover", {}, False, "error"),
        ("logging/setLevel", {"level": "loud"}, True, "error"),
        ("resources/subscribe", {"uri": "shop://news"}, True, "result"),
        ("tools/call", {"name": "greet"}, True, "result"),
        ("tools/call", {"name": "fail"}, True, "failed"),
        ("tools/call", {"name": "none"}, True, "error"),
        ("subscriptions/listen", {}, False, "error"),
    ],
)
def test_request_of_a_session(
    method: str, params: Any, is_offered: bool, outcome: str
) -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    seen.take()
    client.send(method, params)
    began, ended = seen.events
    assert isinstance(began, RequestBegan)
    assert isinstance(ended, RequestEnded)
    assert (began.is_offered, began.era) == (is_offered, "legacy")
    assert (ended.number, ended.outcome) == (began.number, outcome)


@pytest.mark.parametrize(
    ("message", "code"),
    [("{", -32700), ("[]", -32600), ('{"jsonrpc": "2.0", "id": 7}', -32600)],
)
def test_message_that_is_not_a_request(message: str, code: int) -> None:
    seen = Seen()
    reply = sync.handle(serving(seen), message, ANN)
    assert reply.message is not None
    assert seen.events == [
        MessageRefused(
            principal="ann", code=code, problem=reply.message["error"]["message"]
        )
    ]
    assert reply.message["error"]["code"] == code


def test_notifications_and_replies_are_not_requests() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    seen.take()
    client.notify("notifications/initialized")
    client.reply({"jsonrpc": "2.0", "id": 7, "result": {}})
    assert seen.events == []


@pytest.mark.parametrize(
    ("headers", "code"), [({"mcp-method": "tools/list"}, -32020), ({}, -32020)]
)
def test_request_whose_headers_do_not_match(headers: Any, code: int) -> None:
    seen = Seen()
    message = request("tools/call", {"name": "greet"})
    peer = Peer(headers={"mcp-protocol-version": MODERN, **headers})
    sync.handle(serving(seen), message, peer)
    assert seen.one(RequestBegan).is_http
    ended = seen.one(RequestEnded)
    assert (ended.outcome, ended.code) == ("error", code)
    assert ended.error == "ProtocolError"


def test_request_without_an_envelope() -> None:
    """The request names no version, and this server knows no older one."""
    seen = Seen()
    app = serving(seen, legacy=False)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    sync.handle(app, message)
    began, ended = seen.one(RequestBegan), seen.one(RequestEnded)
    assert (began.era, began.client, began.meta) == ("modern", None, {})
    assert (ended.outcome, ended.code) == ("error", -32602)


def test_meta_that_is_not_an_object() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": 5}}
    assert began_of(serving(), message).meta == {}


# ---- sessions -----------------------------------------------------------------------


def test_session_from_its_handshake_to_its_end() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    assert seen.names() == ["RequestBegan", "SessionOpened", "RequestEnded"]
    assert seen.one(RequestBegan).session is None
    assert seen.one(SessionOpened) == SessionOpened(
        session=client.session.number, revision=NEWEST, principal=None, client="old 1"
    )
    seen.take()
    client.session.close()
    client.session.close()
    ended = seen.one(SessionEnded)
    assert ended == SessionEnded(session=client.session.number, seconds=ended.seconds)
    assert ended.seconds >= 0


def test_handshake_that_is_refused_opens_no_session() -> None:
    seen = Seen()
    message = hello()
    del message["params"]["protocolVersion"]
    sync.handle(serving(seen), message)
    assert seen.names() == ["RequestBegan", "RequestEnded"]


def test_live_questions() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    client.peer = attrs.evolve(client.peer, principal="ann")
    seen.take()
    assert text_of(client.call("wish", {}, accepts({"value": "Rome"}))) == (
        "a parcel with Emma to Rome"
    )
    assert seen.names() == [
        *("RequestBegan", "RoundBegan", "StepBegan", "StepPerformed"),
        *("QuestionsAsked", "QuestionsAnswered", "StepBegan", "StepPerformed"),
        *("RoundEnded", "RequestEnded"),
    ]
    round_, ended = seen.one(RoundBegan), seen.one(RoundEnded)
    assert (round_.round, round_.is_first) == (1, True)
    assert (ended.outcome, ended.asked, ended.state_size) == ("returned", 1, 0)
    asked = seen.one(QuestionsAsked)
    assert [one.effect for one in asked.questions] == [
        Elicit("Where to?", str, key="where")
    ]
    assert asked == QuestionsAsked(
        flow_id=round_.flow_id,
        method="tools/call",
        target="wish",
        principal="ann",
        task=None,
        questions=asked.questions,
    )
    (question,) = asked.questions
    assert seen.one(QuestionsAnswered) == QuestionsAnswered(
        flow_id=round_.flow_id,
        method="tools/call",
        target="wish",
        principal="ann",
        task=None,
        answers={question.key: {"action": "accept", "content": {"value": "Rome"}}},
    )


def test_live_answer_that_does_not_fit_is_asked_again() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    client.call("wish", {}, accepts({"value": 5}, {"value": "Rome"}))
    assert len(seen.all(QuestionsAsked)) == len(seen.all(QuestionsAnswered)) == 2
    ended = seen.one(RoundEnded)
    assert (ended.asked, ended.asked_again) == (2, 1)


def test_live_error_of_a_client_is_its_answer() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    failure = {"code": -32000, "message": "no screen"}
    client.call("wish", {}, lambda one: {"error": failure})
    (answer,) = seen.one(QuestionsAnswered).answers.values()
    assert answer == failure
    assert seen.one(RoundEnded).outcome == "raised"


def test_call_that_is_cancelled_while_it_asks() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen))
    seen.take()

    def cancel(question: Wire) -> None:
        client.notify("notifications/cancelled", {"requestId": 9})

    reply = client.send("tools/call", {"name": "wish"}, cancel, id=9)
    assert reply.message is None
    assert seen.names() == [
        *("RequestBegan", "RoundBegan", "StepBegan", "StepPerformed"),
        *("QuestionsAsked", "RoundEnded", "RequestEnded"),
    ]
    assert (seen.one(RoundEnded).outcome, seen.one(RoundEnded).journal) == (
        "dropped",
        None,
    )
    ended = seen.one(RequestEnded)
    assert (ended.outcome, ended.error, ended.size) == ("dropped", None, 0)


def test_drafts_ask_by_retry() -> None:
    seen = Seen()
    client = LegacyClient(serving(seen), DRAFT)
    seen.take()
    asked = client.result("tools/call", {"name": "wish"})
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"value": "Rome"}}}
    state = asked["requestState"]
    client.result("tools/call", call_params("wish", None, answers, state))
    first, second = seen.all(RequestBegan)
    assert {first.era, second.era} == {"legacy"}
    assert {first.revision, second.revision} == {DRAFT}
    assert [one.outcome for one in seen.all(RequestEnded)] == ["asked", "result"]
    assert [one.round for one in seen.all(RoundBegan)] == [1, 2]
    assert seen.one(QuestionsAsked).target == "wish"
    assert seen.one(QuestionsAnswered).answers == answers


# ---- rounds -------------------------------------------------------------------------


def test_rounds_by_retry() -> None:
    seen = Seen()
    app = serving(seen)
    asked = result(call(app, "wish", peer=ANN))
    assert seen.names() == [
        *("RequestBegan", "RoundBegan", "StepBegan", "StepPerformed"),
        *("RoundEnded", "QuestionsAsked", "RequestEnded"),
    ]
    began, performed = seen.one(StepBegan), seen.one(StepPerformed)
    flow_id, number = seen.one(RoundBegan).flow_id, seen.one(RequestBegan).number
    assert began == StepBegan(
        flow_id=flow_id,
        key=began.key,
        name=began.name,
        number=number,
        task=None,
        context=began.context,
    )
    assert began.name.endswith("pack")
    assert performed == StepPerformed(
        flow_id=flow_id,
        key=began.key,
        name=began.name,
        seconds=performed.seconds,
        number=number,
    )
    assert {one.number for one in seen.all(RoundBegan)} == {number}
    assert {one.number for one in seen.all(RoundEnded)} == {number}
    assert seen.one(QuestionsAsked).flow_id == flow_id
    seen.take()
    answers = said(asked, {"value": "Rome"})
    params = {"answers": answers, "state": asked["requestState"]}
    call(app, "wish", peer=ANN, **params)
    assert seen.names() == [
        *("RequestBegan", "RoundBegan", "QuestionsAnswered", "StepBegan"),
        *("StepPerformed", "RoundEnded", "RequestEnded"),
    ]
    assert seen.one(QuestionsAnswered) == QuestionsAnswered(
        flow_id=flow_id,
        method="tools/call",
        target="wish",
        principal="ann",
        task=None,
        answers=answers,
    )
    assert seen.one(StepBegan).key != began.key


def test_only_answers_that_were_asked_for_are_reported() -> None:
    seen = Seen()
    app = serving(seen)
    asked = result(call(app, "wish"))
    seen.take()
    answers = {"other": {"action": "accept", "content": {"value": "x"}}}
    asked = result(call(app, "wish", answers=answers, state=asked["requestState"]))
    assert seen.all(QuestionsAnswered) == []
    assert asked["resultType"] == "input_required"


def test_step_that_fails() -> None:
    seen = Seen()
    call(serving(seen), "tries")
    performed = seen.one(StepPerformed)
    assert isinstance(performed.error, OSError)
    assert performed.key == seen.one(StepBegan).key


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "compare", "arguments": {"book": "Emma"}}),
        ("resources/read", {"uri": "shop://books/emma"}),
    ],
)
def test_rounds_of_prompts_and_resources(method: str, params: Wire) -> None:
    seen = Seen()
    app = serving(seen)
    asked = result(send(app, method, params))
    answers = said(asked, {"value": 5 if method == "resources/read" else "Dune"})
    more = {"inputResponses": answers, "requestState": asked["requestState"]}
    result(send(app, method, {**params, **more}))
    target = params.get("name", params.get("uri"))
    told: list[Any] = [*seen.all(RoundBegan), *seen.all(QuestionsAsked)]
    for one in told:
        assert (one.method, one.target) == (method, target)
    assert seen.one(QuestionsAnswered).method == method
    assert [one.arguments for one in seen.all(RoundBegan)] == [
        params.get("arguments")
    ] * 2


def test_round_that_is_refused() -> None:
    seen = Seen()
    call(serving(seen), "wish", state="x" * 400)
    refusal = seen.one(RoundRefused)
    assert seen.names() == ["RequestBegan", "RoundRefused", "RequestEnded"]
    assert (refusal.number, refusal.method, refusal.target) == (
        seen.one(RequestBegan).number,
        "tools/call",
        "wish",
    )
    assert isinstance(refusal.error, StateError)


def test_round_that_is_salvaged() -> None:
    seen = Seen()
    _salvage(Server("shop", keys=KEYS, observers=[seen]))
    names = seen.names()
    assert names[names.index("Salvaged") - 2 :] == [
        *("RequestBegan", "RoundBegan", "Salvaged", "RoundEnded"),
        *("QuestionsAsked", "RequestEnded"),
    ]
    assert seen.one(Salvaged).flow_id == seen.all(RoundBegan)[-1].flow_id


def _salvage(app: Server) -> None:
    """Play two rounds of a tool, edit it, and send the latest state again."""

    def before() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        yield from Elicit("When?", str)
        return name

    def after() -> Flow[str]:
        yield from Elicit("Where?", str)
        return (yield from Elicit("Who?", str))

    app.tool(name="tool")(before)
    asked = result(call(app, "tool"))
    answers = said(asked, {"value": "Ann"})
    asked = result(call(app, "tool", answers=answers, state=asked["requestState"]))
    app.remove(app.tools["tool"])
    app.tool(name="tool")(after)
    result(call(app, "tool", state=asked["requestState"]))


def test_round_that_only_carries_a_state() -> None:
    seen = Seen()
    app = serving(seen)

    @app.tool
    def long() -> Flow[str]:
        yield from Checkpoint()
        return "done"

    asked = result(call(app, "long"))
    assert seen.names() == [
        *("RequestBegan", "RoundBegan", "RoundEnded", "RequestEnded"),
    ]
    ended = seen.one(RoundEnded)
    assert (ended.outcome, ended.asked) == ("asked", 0)
    assert seen.one(RequestEnded).outcome == "asked"
    assert text_of(result(call(app, "long", state=asked["requestState"]))) == "done"


def test_completion_that_fails() -> None:
    seen = Seen()
    app = serving(seen)

    @app.completion("review", "book")
    def books(text: str) -> list[str]:
        raise KeyError(text)

    params = {
        "ref": {"type": "ref/prompt", "name": "review"},
        "argument": {"name": "book", "value": ""},
    }
    send(app, "completion/complete", params)
    ended = seen.one(RequestEnded)
    assert (ended.outcome, ended.error, ended.code) == ("error", "KeyError", -32603)


def test_round_whose_client_leaves() -> None:
    seen = Seen()
    exchange = begin(
        serving(seen),
        request("tools/call", {"name": "wish"}),
        clock=lambda: 5.0,
        entropy=bytes,
    )
    next(exchange)
    exchange.close()
    assert seen.names() == [
        *("RequestBegan", "RoundBegan", "StepBegan", "RoundEnded", "RequestEnded"),
    ]
    assert seen.one(RoundEnded).outcome == "dropped"
    assert seen.one(RequestEnded).outcome == "dropped"


# ---- requests that count once -------------------------------------------------------


def once(seen: Seen) -> tuple[Server, SqliteTasks]:
    """A server with a tool whose states are used once."""
    tasks = SqliteTasks()
    app = Server("shop", keys=KEYS, tasks=tasks, observers=[seen])

    @app.tool(single_use=True)
    def buy() -> Flow[str]:
        yield from Confirm("Buy?")
        yield from pack("Emma")
        return "bought"

    return app, tasks


def test_request_that_is_answered_from_the_ledger() -> None:
    """No round begins: the effects that were performed the first time count."""
    seen = Seen()
    app, tasks = once(seen)
    asked = result(call(app, "buy"))
    more = {"answers": said(asked, {}), "state": asked["requestState"]}
    first = call(app, "buy", **more)
    before = len(seen.all(RoundBegan))
    seen.take()
    second = call(app, "buy", **more)
    assert result(first) == result(second)
    assert before == 2
    assert seen.names() == ["RequestBegan", "RequestEnded"]
    ended = seen.one(RequestEnded)
    assert (ended.outcome, ended.error) == ("result", None)
    other = {key: {"action": "decline"} for key in more["answers"]}
    seen.take()
    assert refused(call(app, "buy", answers=other, state=more["state"]))[1] == -32602
    assert seen.names() == ["RequestBegan", "RoundRefused", "RequestEnded"]
    assert seen.one(RequestEnded).error == "StateError"
    tasks.close()


def test_reply_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the one of the response, though the tool has succeeded."""
    seen = Seen()
    app, tasks = once(seen)
    asked = result(call(app, "buy"))

    def keep(taken: Taken, reply: bytes) -> None:
        raise TaskStoreError("the disk is full")

    monkeypatch.setattr(tasks, "keep", keep)
    seen.take()
    call(app, "buy", answers=said(asked, {}), state=asked["requestState"])
    ended = seen.one(RequestEnded)
    assert (ended.outcome, ended.error, ended.code) == (
        "error",
        "ProtocolError",
        -32603,
    )
    tasks.close()


# ---- tasks --------------------------------------------------------------------------


def packs() -> Flow[str]:
    """A task with a step, a question and another step."""
    parcel = yield from pack("Emma")
    where = yield from Elicit("Where to?", str, key="where")
    yield from pack(where)
    return f"{parcel} to {where}"


def ordered() -> Flow[str]:
    """Ask, become a task, and perform a step there."""
    yield from Confirm("Order?", key="sure")
    yield from Detach()
    return (yield from pack("Emma"))


def working(seen: Any, *tools: Callable[..., Any]) -> World:
    """A world whose server is observed."""
    here = world(*tools, observers=[seen])
    here.app.tool(ordered)
    return here


def test_task_of_a_modern_client() -> None:
    seen = Seen()
    here = working(seen, packs)
    user = here.user(MODERN, "ann")
    id_ = user.start("packs")
    created = seen.one(TaskCreated)
    row = here.host.rows[id_]
    assert seen.names() == ["RequestBegan", "TaskCreated", "RequestEnded"]
    assert created == TaskCreated(
        number=seen.one(RequestBegan).number,
        task=id_,
        tool="packs",
        flow_id=row.flow_id.hex(),
        principal="ann",
        is_new=True,
    )
    assert seen.one(RequestEnded).outcome == "task"
    seen.take()
    here.pass_(1)
    assert seen.names() == [
        *("TurnBegan", "StepBegan", "StepPerformed", "QuestionsAsked", "TurnEnded"),
    ]
    began, ended = seen.one(TurnBegan), seen.one(TurnEnded)
    assert began == TurnBegan(
        task=id_,
        tool="packs",
        flow_id=created.flow_id,
        principal="ann",
        first_trace=None,
        context=began.context,
    )
    assert ended == TurnEnded(
        task=id_,
        tool="packs",
        flow_id=created.flow_id,
        principal="ann",
        status="input_required",
        was="working",
        seconds=ended.seconds,
    )
    step_began, performed = seen.one(StepBegan), seen.one(StepPerformed)
    assert (step_began.task, step_began.number) == (id_, None)
    assert performed == StepPerformed(
        flow_id=created.flow_id,
        key=step_began.key,
        name=step_began.name,
        seconds=performed.seconds,
        task=id_,
    )
    asked = seen.one(QuestionsAsked)
    assert asked == QuestionsAsked(
        flow_id=created.flow_id,
        method="tools/call",
        target="packs",
        principal="ann",
        task=id_,
        questions=asked.questions,
    )
    assert [one.effect for one in asked.questions] == [
        Elicit("Where to?", str, key="where")
    ]
    seen.take()
    (key,) = here.host.rows[id_].questions
    answers = {key: accepted("Rome"), "other": accepted("x")}
    user.result("tasks/update", {"taskId": id_, "inputResponses": answers})
    assert seen.names() == ["RequestBegan", "QuestionsAnswered", "RequestEnded"]
    assert seen.one(RequestBegan).target == id_
    assert seen.one(QuestionsAnswered) == QuestionsAnswered(
        flow_id=created.flow_id,
        method="tools/call",
        target="packs",
        principal="ann",
        task=id_,
        answers={key: accepted("Rome")},
    )
    seen.take()
    here.pass_(1)
    assert seen.names() == ["TurnBegan", "StepBegan", "StepPerformed", "TurnEnded"]
    ended = seen.one(TurnEnded)
    assert (ended.status, ended.was) == ("completed", "input_required")


def test_task_of_a_session_is_asked_once() -> None:
    """`tasks/result` sends the questions of the task on the session."""
    seen = Seen()
    here = working(seen, packs)
    user = here.user(NEWEST, "ann")
    id_ = user.start("packs", task={})
    assert seen.one(TaskCreated).is_new is True
    seen.take()
    life = user.follow(id_, lambda one: {"result": accepted("Rome")})
    assert text_of(life.end["result"]) == "a parcel with Emma to Rome"
    assert seen.one(QuestionsAsked).task == id_
    answered = seen.one(QuestionsAnswered)
    assert (answered.task, answered.principal) == (id_, "ann")
    assert list(answered.answers.values()) == [accepted("Rome")]
    assert [one.status for one in seen.all(TurnEnded)] == [
        "input_required",
        "completed",
    ]


def test_request_that_becomes_a_task_twice() -> None:
    seen = Seen()
    here = working(seen)
    user = here.user(MODERN, "ann")
    asked = user.result("tools/call", {"name": "ordered"})
    params = {
        "name": "ordered",
        "inputResponses": said(asked, {}),
        "requestState": asked["requestState"],
    }
    id_ = user.result("tools/call", params)["taskId"]
    here.host.now += 1
    assert user.result("tools/call", params)["taskId"] == id_
    first, second = seen.all(TaskCreated)
    assert (first.is_new, second.is_new) == (True, False)
    assert (first.task, second.task) == (id_, id_)
    assert first.flow_id == second.flow_id == seen.all(RoundBegan)[0].flow_id
    assert [one.outcome for one in seen.all(RoundEnded)] == [
        *("asked", "detached", "detached"),
    ]
    assert [one.outcome for one in seen.all(RequestEnded)] == ["asked", "task", "task"]
    assert seen.events.index(first) < seen.events.index(seen.all(RoundEnded)[1])


def hosted(handler: Callable[..., Any], **options: Any) -> tuple[Host, Seen]:
    """A simulated host of one task, and the observer of its server."""
    seen = Seen()
    app = Server("shop", observers=[seen])
    app.tool(name="job")(handler)
    return Host(app, new("job", **options)), seen


def turns(seen: Seen) -> list[tuple[str, str]]:
    """The status before and after each turn."""
    began, ended = seen.all(TurnBegan), seen.all(TurnEnded)
    assert len(began) == len(ended)
    return [(one.was, one.status) for one in ended]


def test_turns_of_a_task_that_sleeps() -> None:
    def sleeps() -> Flow[str]:
        yield from Sleep(3600)
        return "rested"

    one, seen = hosted(sleeps)
    one.run()
    assert turns(seen) == [("working", "working"), ("working", "completed")]


@pytest.mark.parametrize(
    ("error", "status"),
    [(ToolError("no"), "completed"), (ProtocolError(-32001, "no"), "failed")],
    ids=repr,
)
def test_turn_of_a_task_that_fails(error: Exception, status: str) -> None:
    def fails() -> Flow[str]:
        yield from Now()
        raise error

    one, seen = hosted(fails)
    one.run()
    assert turns(seen) == [("working", status)]


def test_turn_of_a_task_that_is_cancelled() -> None:
    one, seen = hosted(packs)
    one.run()
    one.cancel()
    one.run()
    assert turns(seen) == [
        ("working", "input_required"),
        ("input_required", "cancelled"),
    ]


def test_turn_of_a_task_that_expires() -> None:
    one, seen = hosted(packs, ttl=60)
    one.run()
    assert turns(seen)[-1] == ("input_required", "failed")


def test_turns_of_a_task_that_parks() -> None:
    """The turn that resumes the task begins with a parked task."""

    def other() -> Flow[str]:
        return (yield from Elicit("Other?", str))

    one, seen = hosted(packs)
    one.run()
    one.app.remove(one.app.tools["job"])
    one.answer("where", accepted("Rome"))
    one.run()
    assert turns(seen)[-1] == ("input_required", "parked")
    one.answer("x", 5)
    one.run()
    one.app.tool(name="job")(packs)
    one.retry()
    assert one.run().status == "completed"
    assert turns(seen)[-1] == ("parked", "completed")
    # Each status is left as often as it is entered: a gauge comes back to its start.
    entered = [status for _, status in turns(seen)]
    left = [was for was, _ in turns(seen)]
    assert left == ["working", *entered[:-1]]


def test_turn_that_is_cut_off() -> None:
    one, seen = hosted(packs)
    one.cuts = (4,)  # while it waits for the step
    one.turn()
    assert one.story[-1] == "CUT"
    assert seen.names() == ["TurnBegan", "StepBegan", "TurnEnded"]
    assert turns(seen) == [("working", "dropped")]
    one.run()
    assert turns(seen)[-1] == ("working", "input_required")
    assert len(seen.all(StepBegan)) == 2
    assert len(seen.all(StepPerformed)) == 1


def test_turn_of_a_task_that_is_over() -> None:
    one, seen = hosted(packs)
    one.run()
    one.answer("where", accepted("Rome"))
    one.run()
    seen.take()
    one.turn()
    assert seen.names() == ["TurnBegan", "TurnEnded"]
    assert turns(seen) == [("completed", "completed")]


def test_turn_whose_row_cannot_be_saved() -> None:
    seen = Seen()
    app = Server("shop", observers=[seen])
    app.tool(name="job")(packs)
    going = turn(app, new("job"))
    next(going)
    going.send(1_000_000.0)
    going.send([])
    with pytest.raises(TaskStoreError):
        going.throw(TaskStoreError("the disk is full"))
    assert turns(seen) == [("working", "dropped")]


def test_steps_of_a_task_that_fail_and_are_tried_again() -> None:
    @step(retries=1)
    def fetch() -> str:
        raise OSError("down")

    def fetches() -> Flow[str]:
        return (yield from fetch())

    one, seen = hosted(fetches)
    one.run()
    began, performed = seen.all(StepBegan), seen.all(StepPerformed)
    assert [one.key for one in began] == [one.key for one in performed]
    assert len({one.key for one in began}) == 1
    assert [type(one.error) for one in performed] == [OSError, OSError]
    assert len(seen.all(TurnBegan)) == 2


def test_steps_of_a_task_side_by_side() -> None:
    def both() -> Flow[str]:
        yield from Gather(pack("a"), pack("b"), Now())
        return "done"

    one, seen = hosted(both)
    one.lasts = lambda want: {"a": 2.0, "b": 1.0}[want.effect.args[0]]  # type: ignore[attr-defined]  # only steps
    one.run()
    seconds = {one.key: one.seconds for one in seen.all(StepPerformed)}
    assert [seconds[one.key] for one in seen.all(StepBegan)] == [2.0, 1.0]
    assert seen.one(TurnEnded).seconds == 2.0


# ---- contexts -----------------------------------------------------------------------

SPAN: ContextVar[str] = ContextVar("SPAN", default="none")
INNER: ContextVar[str] = ContextVar("INNER", default="none")


class Tracer:
    """An observer that sets variables, as one for traces does."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, (RequestBegan, TurnBegan)):
            self.count += 1
            event.context.run(SPAN.set, f"span {self.count}")
            event.context.run(TRACE.set, f"trace {self.count}")
        elif isinstance(event, StepBegan):
            event.context.run(INNER.set, event.key)


Spans = list[tuple[str, str, str]]
spans: Spans = []


@pytest.fixture(autouse=True)
def no_spans() -> Iterator[None]:
    """Each test begins without spans, and leaves none in its own context."""
    spans.clear()
    yield
    assert (SPAN.get(), INNER.get(), TRACE.get()) == ("none", "none", None)


def note(where: str) -> None:
    spans.append((where, SPAN.get(), INNER.get()))


def noted(where: str) -> str:
    note(where)
    return where


async def noted_later(where: str) -> str:
    await asyncio.sleep(0) if _is_asyncio() else await trio.lowlevel.checkpoint()
    note(where)
    return where


def _is_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def traced_flow() -> Flow[str]:
    note("flow")
    yield from Step(noted, "step")
    note("between")
    yield from Gather(branch(), Step(noted, "in a gather"))
    yield from Elicit("Who?", str, key="who")
    note("after")
    return (yield from Restart(restarted))


def branch() -> Flow[None]:
    note("branch")
    yield from Step(noted, "step of a branch")


def restarted() -> Flow[str]:
    note("restarted")
    yield from Step(noted, "restarted step")
    return "done"


def traced_later() -> Flow[str]:
    note("flow")
    yield from Step(noted_later, "async step")
    return (yield from Restart(restarted_later))


def restarted_later() -> Flow[str]:
    note("restarted")
    yield from Step(noted_later, "restarted async step")
    return "done"


def traced(*observers: Any) -> Server:
    app = Server("shop", keys=KEYS, observers=observers)
    app.tool(traced_flow)
    app.tool(traced_later)
    app.tool(name="plain")(lambda: noted("plain"))
    app.prompt(name="prompt")(lambda topic: noted("prompt"))

    @app.completion("prompt", "topic")
    def topics(text: str) -> list[str]:
        note("completion")
        return []

    @app.tool
    async def later() -> str:
        return await noted_later("async function")

    def around(call: Call) -> Intercepting:
        note("interceptor")
        yield from Step(noted, "step of an interceptor")
        return (yield from call)

    app.tool(name="guarded", interceptors=[around])(lambda: noted("guarded"))
    return app


def calls(name: str) -> Wire:
    return request("tools/call", {"name": name})


Drive = Callable[[Server, list[Wire]], list[Reply]]


def _by_sync(app: Server, messages: list[Wire]) -> list[Reply]:
    found = [sync.handle(app, one, run_async=asyncio.run) for one in messages]
    assert SPAN.get() == "none"
    return found


def _by_trio(app: Server, messages: list[Wire]) -> list[Reply]:
    async def main() -> list[Reply]:
        found = [await on_trio.handle(app, one) for one in messages]
        assert SPAN.get() == "none"
        return found

    return trio.run(main)


def _by_asyncio(app: Server, messages: list[Wire]) -> list[Reply]:
    async def main() -> list[Reply]:
        found = [await on_asyncio.handle(app, one) for one in messages]
        assert SPAN.get() == "none"
        return found

    return asyncio.run(main())


DRIVES: Final[Mapping[str, Drive]] = {
    "sync": _by_sync,
    "trio": _by_trio,
    "asyncio": _by_asyncio,
}


@pytest.mark.parametrize("drive", DRIVES)
def test_handler_and_steps_run_in_the_context(drive: str) -> None:
    app = traced(Tracer())
    (reply,) = DRIVES[drive](app, [calls("traced_flow")])
    asked = result(reply)
    # The order of steps that run side by side is free.
    assert {(where, span) for where, span, _ in spans} == {
        (where, "span 1")
        for where in (
            *("flow", "step", "between", "branch", "in a gather"),
            "step of a branch",
        )
    }
    inner = {where: key for where, _, key in spans}
    assert inner["flow"] == inner["between"] == inner["branch"] == "none"
    steps = [inner["step"], inner["in a gather"], inner["step of a branch"]]
    assert "none" not in steps
    assert len(set(steps)) == 3
    spans.clear()
    more = call_params(
        "traced_flow", None, said(asked, {"value": "Ann"}), asked["requestState"]
    )
    (reply,) = DRIVES[drive](app, [request("tools/call", more)])
    assert text_of(result(reply)) == "done"
    found = [(where, span) for where, span, _ in spans]
    assert ("after", "span 2") in found
    assert ("restarted", "span 2") in found
    assert ("restarted step", "span 2") in found


@pytest.mark.parametrize("drive", DRIVES)
def test_functions_run_in_the_context(drive: str) -> None:
    names = ["plain", "later", "traced_later"]
    DRIVES[drive](traced(Tracer()), [calls(one) for one in names])
    assert [(where, span) for where, span, _ in spans] == [
        ("plain", "span 1"),
        ("async function", "span 2"),
        ("flow", "span 3"),
        ("async step", "span 3"),
        ("restarted", "span 3"),
        ("restarted async step", "span 3"),
    ]


@pytest.mark.parametrize("drive", DRIVES)
def test_completions_and_interceptors_run_in_the_context(drive: str) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "prompt"},
        "argument": {"name": "topic", "value": ""},
    }
    messages = [
        request("completion/complete", params),
        calls("guarded"),
        request("prompts/get", {"name": "prompt", "arguments": {"topic": "x"}}),
    ]
    DRIVES[drive](traced(Tracer()), messages)
    assert [(where, span) for where, span, _ in spans] == [
        ("completion", "span 1"),
        ("interceptor", "span 2"),
        ("step of an interceptor", "span 2"),
        ("guarded", "span 2"),
        ("prompt", "span 3"),
    ]


def test_live_flow_runs_in_the_context() -> None:
    app = traced(Tracer())
    client = LegacyClient(app)  # span 1
    client.call("traced_flow", {}, accepts({"value": "Ann"}))
    assert {span for _, span, _ in spans} == {"span 2"}
    assert spans[-1][0] == "restarted step"


def test_requests_side_by_side_have_contexts_of_their_own() -> None:
    app = traced(Tracer())
    ready = threading.Barrier(2, timeout=60)
    app.tool(name="meets")(lambda: (ready.wait(), noted("met"))[1])

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(on_trio.handle, app, calls("meets"))

    trio.run(main)
    assert {span for _, span, _ in spans} == {"span 1", "span 2"}


def test_without_observers_the_drivers_own_context_is_copied() -> None:
    def drive() -> None:
        SPAN.set("outer")
        sync.handle(traced(), calls("traced_flow"))

    copy_context().run(drive)
    assert {span for _, span, _ in spans} == {"outer"}


def test_task_runs_in_the_context_of_its_turn() -> None:
    def job() -> Flow[str]:
        note("flow")
        yield from Step(noted, "step")
        yield from Sleep(3600)
        return (yield from Restart(restarted))

    app = Server("shop", observers=[Tracer()])

    def around(call: Call) -> Intercepting:
        result = yield from call
        note("interceptor")
        yield from Step(noted, "step of an interceptor")
        return result

    app.tool(name="job", interceptors=[around])(job)
    one = Host(app, new("job"))
    assert one.run().status == "completed"
    found = [(where, span) for where, span, _ in spans]
    assert found == [
        ("flow", "span 1"),
        ("step", "span 1"),
        ("flow", "span 2"),  # it is replayed
        ("restarted", "span 2"),
        ("restarted step", "span 2"),
        ("interceptor", "span 2"),
        ("step of an interceptor", "span 2"),
    ]
    assert spans[0][2] == "none"
    assert spans[1][2] != "none"


# ---- traces -------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [None, "00-4bf9-00f0-01"])
@pytest.mark.parametrize("is_traced", [False, True])
def test_trace_of_the_first_request_arrives_in_later_rounds(
    sent: str | None, is_traced: bool
) -> None:
    seen = Seen()
    app = serving(*([Tracer()] if is_traced else []), seen)
    more = {} if sent is None else {"traceparent": sent}
    asked = result(call(app, "wish", **more))
    answers = said(asked, {"value": "Rome"})
    call(app, "wish", answers=answers, state=asked["requestState"], traceparent="late")
    first = "trace 1" if is_traced else sent
    assert [(one.trace, one.first_trace) for one in seen.all(RoundBegan)] == [
        (sent, first),
        ("late", first),
    ]


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("name", ["packs", "ordered"])
def test_trace_of_the_first_request_arrives_in_turns(
    name: str, is_traced: bool
) -> None:
    seen = Seen()
    here = working(seen, packs)
    if is_traced:
        here.app.observers = (Tracer(), seen)
    user = here.user(MODERN)
    made = user.result("tools/call", {"name": name, "_meta": _traced("first")})
    if name == "ordered":
        params = {
            "name": name,
            "inputResponses": said(made, {}),
            "requestState": made["requestState"],
            "_meta": _traced("second"),
        }
        user.result("tools/call", params)
    here.pass_(1)
    assert {one.first_trace for one in seen.all(TurnBegan)} == {
        "trace 1" if is_traced else "first"
    }


def _traced(trace: str) -> Wire:
    from effectmcp.protocol.meta import TASKS

    from ..wire import EVERYTHING, meta

    return meta({**EVERYTHING, "extensions": {TASKS: {}}}, traceparent=trace)


# ---- observers that need no events --------------------------------------------------


class Idle(Seen):
    """An observer that does not listen at present."""

    def is_idle(self) -> bool:
        return True


def test_idle_observer_receives_nothing_that_begins() -> None:
    idle = Idle()
    app = serving(idle)
    asked = result(call(app, "wish"))
    call(
        app,
        "wish",
        answers=said(asked, {"value": "Rome"}),
        state=asked["requestState"],
    )
    call(app, "wish", state="x" * 400)
    client = LegacyClient(app)
    client.call("wish", {}, accepts({"value": "Rome"}))
    client.session.close()
    here = working(idle, packs)
    here.user(MODERN).start("packs")
    here.pass_(1)
    _salvage(Server("shop", keys=KEYS, observers=[idle]))
    assert idle.events == []


def test_observer_that_cannot_say_whether_it_is_idle_changes_nothing() -> None:
    class Broken(Seen):
        def is_idle(self) -> bool:
            raise OSError("no exporter")

    seen = Broken()
    app = serving(seen)
    assert text_of(result(call(app, "greet"))) == "Hello, you!"
    assert seen.names() == ["RequestBegan", "RequestEnded"]


# ---- laws ---------------------------------------------------------------------------

#: A letter for each event of a request, for `ORDER`.
LETTERS: Final[Mapping[type, str]] = {
    RequestBegan: "B",
    RequestEnded: "E",
    RoundBegan: "r",
    RoundEnded: "e",
    RoundRefused: "x",
    Salvaged: "s",
    StepBegan: "b",
    StepPerformed: "p",
    QuestionsAsked: "q",
    QuestionsAnswered: "a",
    SessionOpened: "o",
}
#: A request begins and ends, and between the two, a session opens, a round is refused,
#: or it begins, is answered, performs, asks live, and ends; then it asks by retry.
ORDER: Final = re.compile(r"(B(o|x|ra?((b+p+)|s|(qa?))*eq?)?E)?")

_NAMES: Final = ("greet", "wish", "fail", "crash", "deny", "tries", "none", 5, None)
_VALUES: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, 5, "x", [], {}, {"name": "Ann"}, {"name": 5}]
)

requests: Final = st.one_of(
    st.builds(
        lambda name, arguments, state: (
            "tools/call",
            {"name": name, "arguments": arguments, "requestState": state},
        ),
        st.sampled_from(_NAMES),
        _VALUES,
        st.sampled_from([None, None, "x", 5, "e" * 300]),
    ),
    st.tuples(
        st.sampled_from(["prompts/get", "resources/read", "completion/complete"]),
        st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["review", "compare", "none", 5]),
                "uri": st.sampled_from(["shop://news", "shop://books/x", "y", 5]),
                "arguments": _VALUES,
                "ref": _VALUES,
            },
        ),
    ),
    st.tuples(
        st.sampled_from(
            [
                *("tools/list", "prompts/list", "resources/templates/list", "ping"),
                *("server/discover", "initialize", "no/such", "tasks/get"),
                *("subscriptions/listen", "logging/setLevel"),
            ]
        ),
        st.fixed_dictionaries(
            {}, optional={"cursor": _VALUES, "notifications": _VALUES, "_meta": _VALUES}
        ),
    ),
)
answers: Final = st.sampled_from(
    [
        {"action": "accept", "content": {"value": "Rome"}},
        {"action": "accept", "content": {"value": 7}},
        {"action": "accept", "content": {}},
        {"action": "decline"},
        {"action": "cancel"},
        {},
        5,
        None,
    ]
)
hostile: Final = st.sampled_from(
    [
        *("", "{", "[]", "null", '{"jsonrpc": "2.0"}'),
        '{"jsonrpc": "2.0", "id": {}, "method": "x"}',
        '{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": []}',
        '{"jsonrpc": "2.0", "id": 3, "result": {}}',
        '{"jsonrpc": "2.0", "method": "notifications/cancelled"}',
    ]
)
#: A request, with or without `_meta`; the latest call again, with an answer; or a string.
sent: Final = st.one_of(
    st.tuples(st.just("ask"), requests, st.booleans()),
    st.tuples(st.just("again"), answers, st.booleans()),
    st.tuples(st.just("text"), hostile, st.booleans()),
)


def _impatient(
    app: Server,
    message: Any,
    peer: Peer | None = None,
    *,
    send: Callable[[Mapping[str, Any]], None] = lambda message: None,
) -> Reply:
    """Answer a message; a question without a reply is given up."""
    return sync.handle(app, message, peer, send=send, wait=_give_up)


def _give_up(asking: Inquiry) -> None:
    if not asking.is_over:
        asking.end()


def replies(app: Server, script: list[Any], *, is_live: bool) -> list[Any]:
    """Return all that a client receives when it sends a script."""
    session = LegacyClient(app, handle=_impatient) if is_live else None
    found: list[Any] = []
    latest: Wire = request("tools/call", {"name": "wish"})
    state: Wire = {}
    for kind, what, flag in script:
        message: Any
        if kind == "text":
            message = what
        elif kind == "again":
            params = latest["params"] | {
                "requestState": state.get("requestState"),
                "inputResponses": dict.fromkeys(state.get("inputRequests", ()), what),
            }
            message = latest | {"params": params}
        else:
            method, params = what
            message = request(method, params)
            if flag:
                message["params"].pop("_meta", None)
            latest = message
        if session is not None and isinstance(message, dict):
            params = {
                key: one for key, one in message["params"].items() if key != "_meta"
            }
            reply = session.send(
                message["method"],
                params,
                lambda one, said=what: {"result": said},  # type: ignore[misc]  # of a default
            )
        else:
            reply = _impatient(app, message)
        got = copy.deepcopy(reply.message)
        if isinstance(got, dict) and isinstance(got.get("result"), dict):
            state = got["result"] if "inputRequests" in got["result"] else state
            got["result"] = {**got["result"], "requestState": None}
        found.append((got, reply.status))
    return found


def _any(event: Any) -> Any:
    return event


def _check(events: list[Event]) -> None:
    """Hold the events of requests, one after the other, against the rules."""
    numbers: list[int] = []
    letters = ""
    # An answer to a question may be invalid as a message, too.
    events = [one for one in events if not isinstance(one, MessageRefused)]
    for event in [*events, None]:
        if event is None or isinstance(event, RequestBegan):
            assert ORDER.fullmatch(letters), letters
            letters = ""
        if event is None:
            break
        letters += LETTERS[type(event)]
        if isinstance(event, RequestBegan):
            numbers.append(event.number)
        number, frozen = getattr(event, "number", None), _any(event)
        assert number in (None, numbers[-1] if numbers else None)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            frozen.flow_id = "x"
    began = [one.number for one in events if isinstance(one, RequestBegan)]
    ended = [one.number for one in events if isinstance(one, RequestEnded)]
    assert began == ended
    assert began == sorted(set(began))
    open_: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, StepBegan):
            open_.append((event.flow_id, event.key))
        elif isinstance(event, StepPerformed):
            open_.remove((event.flow_id, event.key))
    assert open_ == []


class Raising(Seen):
    """An observer that fails on each event."""

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        raise OSError("no disk")


@pytest.mark.usefixtures("quiet")
@given(st.lists(sent, max_size=6), st.booleans())
@example(
    [
        ("ask", ("tools/call", {"name": "wish"}), False),
        ("again", {"action": "accept", "content": {"value": "Rome"}}, False),
    ],
    False,
)
@example([("ask", ("tools/call", {"name": "wish"}), False)], True)
def test_observers_are_notified_of_each_request_and_change_no_reply(
    script: list[Any], is_live: bool
) -> None:
    raising = Raising()
    unobserved = replies(serving(), script, is_live=is_live)
    observed = replies(serving(raising, Tracer()), script, is_live=is_live)
    idle = replies(serving(Idle()), script, is_live=is_live)
    assert unobserved == observed == idle
    _check(raising.events)


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Mute the log: drawn requests fail all the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_cuts_leave_no_turn_open() -> None:
    """A turn that is cut off anywhere begins and ends once, and the end is the same."""
    whole, seen = hosted(packs)
    _play(whole)
    for at in range(whole.commands):
        one, cut = hosted(packs)
        one.cuts = (at,)
        _play(one)
        assert one.row.result == whole.row.result
        began = [type(event) for event in cut.events if _is_of_turns(event)]
        assert began == [TurnBegan, TurnEnded] * (len(began) // 2)


def _play(one: Host) -> None:
    one.run()
    one.answer("where", accepted("Rome"))
    one.run()
    assert one.row.status == "completed"


def _is_of_turns(event: Event) -> bool:
    return isinstance(event, (TurnBegan, TurnEnded))


@pytest.mark.parametrize("is_allowed", [True, False])
def test_early_answers_are_answers(is_allowed: bool) -> None:
    """Observers receive them if the server uses them."""
    seen = Seen()
    app = Server("shop", keys=KEYS, observers=[seen], early_answers=is_allowed)

    @app.tool
    def early() -> Flow[str]:
        return (yield from Elicit("Who?", str, key="who"))

    answers = {"who": {"action": "accept", "content": {"value": "Ann"}}}
    call(app, "early", answers=answers)
    told = seen.all(QuestionsAnswered)
    assert [one.answers for one in told] == ([answers] if is_allowed else [])
