"""Traces and metrics of a server: of every kind of request, and of hostile ones."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import baggage, metrics, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

import effectmcp
from effectmcp import (
    Call,
    Confirm,
    Detach,
    Elicit,
    Flow,
    Gather,
    Intercepting,
    ProtocolError,
    Server,
    ToolError,
    step,
)
from effectmcp.drivers import sync
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.exchange.handle import handle
from effectmcp.observers.telemetry import Telemetry
from effectmcp.server import Event, HttpRefused
from effectmcp.server.events import (
    RequestBegan,
    RoundRefused,
    StepPerformed,
    TaskCreated,
    TurnEnded,
)

from ..exchange.test_tasks import FOLLOWS, Rows
from ..legacy_client import LegacyClient, accepts
from ..tasks.simulated import START, Cut, Host, accepted, new
from ..wire import KEYS, VERSION, call, headers_of, request, result, said, send, text_of
from .exporting import Exporting, id_of, link_of, parent_of, span_in, traceparent

LINK_KEY = "io.modelcontextprotocol/tracelink"


#: The names of spans of steps.
CHARGE = f"{__name__}:charge"
OWN_SPAN = f"{__name__}:own_span"


@step
def charge(how: str = "well") -> str:
    """Charge a card."""
    if how == "bad":
        raise LookupError("a secret of a step")
    if how == "cut":
        raise KeyboardInterrupt
    return f"charged {how}"


@step
def own_span() -> str:
    """Do something that has a span."""
    with trace.get_tracer("x", tracer_provider=PROVIDERS[-1]).start_as_current_span(
        "y"
    ):
        return "done"


#: Where spans of handlers go.
PROVIDERS: list[TracerProvider] = []


@define(eq=False)
class Shop:
    """A server that is observed, and the exports of its telemetry."""

    options: dict[str, Any] = field(factory=dict)
    server_options: dict[str, Any] = field(factory=dict)
    exported: Exporting = field(factory=Exporting)
    telemetry: Telemetry = field(init=False)
    app: Server = field(init=False)

    def __attrs_post_init__(self) -> None:
        PROVIDERS[:] = [self.exported.traces]
        self.telemetry = Telemetry(**{**self.exported.providers, **self.options})
        options = {"keys": KEYS, "tasks": Rows(), **self.server_options}
        app = self.app = Server("shop", observers=[self.telemetry], **options)

        @app.tool
        def greet(name: str = "you") -> str:
            return f"Hello, {name}!"

        @app.tool
        def fail() -> str:
            raise ToolError("a secret of a tool")

        @app.tool
        def refuse() -> str:
            raise ProtocolError(-32001, "a secret of the protocol")

        @app.tool
        def break_() -> str:
            raise LookupError("a secret of a bug")

        @app.tool
        def order(title: str = "Emma") -> Flow[str]:
            where = yield from Elicit("Where to?", str, key="where")
            yield from charge()
            yield from Confirm("Sure?", key="sure")
            return f"{title} to {where}"

        @app.tool
        def pay(how: str = "well") -> Flow[str]:
            try:
                return (yield from charge(how))
            except LookupError:
                return "not charged"

        @app.tool
        def pay_in_a_span() -> Flow[str]:
            tracer = trace.get_tracer("x", tracer_provider=self.exported.traces)
            with tracer.start_as_current_span("careful"):
                yield from own_span()
            done = yield from charge()
            return done

        @app.tool
        def later(how: str = "well") -> Flow[str]:
            yield from Detach()
            yield from charge(how)
            yield from Confirm("Sure?", key="sure")
            return "a secret of a task"

        @app.prompt
        def review() -> str:
            return "Review it"

        @app.resource("shop://news")
        def news() -> str:
            return "none"

        @app.resource("shop://books/{title}")
        def book(title: str) -> str:
            return title

        @app.resource("shop://asks")
        def asks() -> Flow[str]:
            return (yield from Elicit("Who?", str, key="who"))

    def spans(self) -> dict[str, ReadableSpan]:
        """The spans by name."""
        found = {one.name: one for one in self.exported.spans}
        assert len(found) == len(self.exported.spans)
        return found

    def again(
        self, asked: Reply, content: Any, name: str = "order", **more: Any
    ) -> Reply:
        """The reply of the next round."""
        found = result(asked)
        answers = said(found, content)
        return call(
            self.app, name, answers=answers, state=found["requestState"], **more
        )


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span, without sizes."""
    found = dict(span.attributes or {})
    for name in ("effectmcp.request.size", "effectmcp.response.size"):
        assert isinstance(found.pop(name), int)
    return found


#: The attributes that each request in a pipe has.
MODERN: Mapping[str, Any] = {
    "mcp.protocol.version": VERSION,
    "network.transport": "pipe",
    "jsonrpc.request.id": "1",
}


# ---- requests -----------------------------------------------------------------------


class TestRequests:
    def test_a_tool(self) -> None:
        shop = Shop()
        call(shop.app, "greet")
        (span,) = shop.exported.spans
        assert (span.name, span.kind) == ("tools/call greet", SpanKind.SERVER)
        assert attributes(span) == {
            **MODERN,
            "mcp.method.name": "tools/call",
            "gen_ai.tool.name": "greet",
            "gen_ai.operation.name": "execute_tool",
            "effectmcp.outcome": "result",
        }
        assert (span.status.status_code, span.links, span.parent) == (
            StatusCode.UNSET,
            (),
            None,
        )
        scope = span.instrumentation_scope
        assert scope is not None
        assert (scope.name, scope.version) == ("effectmcp", effectmcp.__version__)

    def test_its_duration(self) -> None:
        shop = Shop()
        call(shop.app, "greet")
        call(shop.app, "greet")
        points = shop.exported.points()
        assert points.keys() == {"mcp.server.operation.duration"}
        ((labels, (count, total)),) = points["mcp.server.operation.duration"]
        assert labels == {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": VERSION,
            "network.transport": "pipe",
            "gen_ai.tool.name": "greet",
            "gen_ai.operation.name": "execute_tool",
        }
        assert count == 2
        assert 0 < total < 60

    def test_over_http(self) -> None:
        shop = Shop()
        message = request("tools/call", {"name": "greet"}, id="a")
        sync.handle(shop.app, message, Peer(headers=headers_of(message)))
        (span,) = shop.exported.spans
        found = attributes(span)
        assert found["network.transport"] == "tcp"
        assert found["network.protocol.name"] == "http"
        assert found["jsonrpc.request.id"] == "a"
        assert "mcp.session.id" not in found
        ((labels, _),) = shop.exported.points()["mcp.server.operation.duration"]
        assert labels["network.transport"] == "tcp"

    def test_sizes(self) -> None:
        shop = Shop()
        text = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
        reply = sync.handle(shop.app, text)
        (span,) = shop.exported.spans
        found = dict(span.attributes or {})
        assert found["effectmcp.request.size"] == len(text)
        assert found["effectmcp.response.size"] == len(reply.body or b"")

    @pytest.mark.parametrize("name", ["prompts/list", "tools/list", "server/discover"])
    def test_lists(self, name: str) -> None:
        shop = Shop()
        send(shop.app, name)
        span = shop.exported.span(name)
        assert attributes(span) == {
            **MODERN,
            "mcp.method.name": name,
            "effectmcp.outcome": "result",
        }

    def test_a_prompt(self) -> None:
        shop = Shop()
        send(shop.app, "prompts/get", {"name": "review"})
        found = attributes(shop.exported.span("prompts/get review"))
        assert found["gen_ai.prompt.name"] == "review"
        ((labels, _),) = shop.exported.points()["mcp.server.operation.duration"]
        assert labels["gen_ai.prompt.name"] == "review"

    @pytest.mark.parametrize(
        ("uris", "uri", "name"),
        [
            (False, "shop://news", "resources/read"),
            (True, "shop://news", "resources/read shop://news"),
            # There may be any number of those.
            (True, "shop://books/emma", "resources/read"),
            (True, "shop://none", "resources/read"),
        ],
    )
    def test_a_resource(self, uris: bool, uri: str, name: str) -> None:
        shop = Shop({"uris": uris})
        send(shop.app, "resources/read", {"uri": uri})
        found = attributes(shop.exported.span(name))
        assert found["mcp.resource.uri"] == uri
        ((labels, _),) = shop.exported.points()["mcp.server.operation.duration"]
        assert "mcp.resource.uri" not in labels

    def test_a_session(self) -> None:
        shop = Shop()
        client = LegacyClient(shop.app)
        client.call("greet")
        client.session.close()
        spans = shop.spans()
        assert spans.keys() == {"initialize", "tools/call greet"}
        found = attributes(spans["tools/call greet"])
        assert found["mcp.session.id"] == str(client.session.number)
        assert found["mcp.protocol.version"] == "2025-11-25"
        ((labels, (count, seconds)),) = shop.exported.points()[
            "mcp.server.session.duration"
        ]
        assert (labels, count) == ({}, 1)
        assert 0 <= seconds < 60

    def test_an_unknown_method(self) -> None:
        shop = Shop()
        send(shop.app, "books/burn")
        (span,) = shop.exported.spans
        assert span.name == "_OTHER"
        found = attributes(span)
        assert found["mcp.method.name"] == "books/burn"
        assert found["error.type"] == "-32601"
        assert found["rpc.response.status_code"] == "-32601"
        ((labels, _),) = shop.exported.points()["mcp.server.operation.duration"]
        assert labels["mcp.method.name"] == "_OTHER"
        assert labels["error.type"] == "-32601"

    def test_an_unknown_tool(self) -> None:
        shop = Shop()
        call(shop.app, "none")
        (span,) = shop.exported.spans
        assert span.name == "tools/call"
        assert attributes(span)["gen_ai.tool.name"] == "none"
        ((labels, _),) = shop.exported.points()["mcp.server.operation.duration"]
        assert "gen_ai.tool.name" not in labels

    def test_a_tool_that_fails(self) -> None:
        shop = Shop()
        call(shop.app, "fail")
        (span,) = shop.exported.spans
        found = attributes(span)
        assert span.status.status_code is StatusCode.ERROR
        assert found["effectmcp.outcome"] == "failed"
        assert found["error.type"] == "tool_error"
        assert found["effectmcp.error"] == "ToolError"
        assert "rpc.response.status_code" not in found
        ((labels, _),) = shop.exported.points()["mcp.server.operation.duration"]
        assert labels["error.type"] == "tool_error"

    def test_an_error_of_the_protocol(self) -> None:
        shop = Shop()
        call(shop.app, "refuse")
        (span,) = shop.exported.spans
        found = attributes(span)
        assert span.status.status_code is StatusCode.ERROR
        assert found["effectmcp.outcome"] == "error"
        assert found["error.type"] == found["rpc.response.status_code"] == "-32001"
        assert found["effectmcp.error"] == "ProtocolError"

    def test_a_client_that_leaves(self) -> None:
        shop = Shop()
        leave(shop.app, "greet")
        (span,) = shop.exported.spans
        found = attributes(span)
        assert (found["effectmcp.outcome"], found["error.type"]) == (
            "dropped",
            "cancelled",
        )
        assert span.status.status_code is StatusCode.ERROR

    def test_an_invalid_message_has_no_span(self) -> None:
        shop = Shop()
        sync.handle(shop.app, "{")
        assert shop.exported.spans == []


def leave(app: Server, name: str) -> None:
    """Begin a call, and leave while something is performed."""
    message = request("tools/call", {"name": name})
    exchange = handle(app, message, clock=time.time, entropy=os.urandom)
    next(exchange)
    exchange.close()


@given(st.text(), st.text(), st.sampled_from(["name", "uri", "taskId", "x"]))
@example("tools/call", "x" * 5_000, "name")
@example("x" * 5_000, "x" * 5_000, "name")
def test_a_stranger_makes_up_no_names(method: str, target: str, key: str) -> None:
    """Names and labels are among the server's, and strings are short."""
    shop = Shop({"uris": True})
    for one in (method, "tools/call", "prompts/get", "resources/read", "tasks/get"):
        send(shop.app, one, {key: target})
    known = {f"tools/call {name}" for name in shop.app.tools}
    known |= {f"prompts/get {name}" for name in shop.app.prompts}
    known |= {f"resources/read {uri}" for uri in shop.app.resources}
    names = {one.name for one in shop.exported.spans}
    assert names <= known | set(shop.app.methods) | {"_OTHER"}
    for points in shop.exported.points().values():
        for labels, _ in points:
            assert labels["mcp.method.name"] in {*shop.app.methods, "_OTHER"}
            assert labels.get("gen_ai.tool.name", "greet") in shop.app.tools
    for span in shop.exported.spans:
        for value in (span.attributes or {}).values():
            assert len(str(value)) <= 256


# ---- flows --------------------------------------------------------------------------


class TestFlows:
    def test_rounds(self) -> None:
        shop = Shop()
        asked = call(shop.app, "order")
        shop.again(shop.again(asked, {"value": "Rome"}), {})
        spans = shop.exported.spans
        one, step_, two, three = spans
        assert step_.name == CHARGE
        found = [attributes(span) for span in (one, two, three)]
        assert [each["effectmcp.round"] for each in found] == [1, 2, 3]
        assert len({each["effectmcp.flow.id"] for each in found}) == 1
        assert [each["effectmcp.outcome"] for each in found] == [
            "asked",
            "asked",
            "result",
        ]
        assert [each.get("effectmcp.asked") for each in found] == [1, 1, None]
        assert found[0]["effectmcp.state.size"] == len(result(asked)["requestState"])
        assert [link_of(each) for each in (one, two, three)] == [
            {},
            {"first round": id_of(one)},
            {"first round": id_of(one)},
        ]
        assert len({id_of(each)[0] for each in (one, two, three)}) == 3

    def test_their_metrics(self) -> None:
        shop = Shop()
        asked = call(shop.app, "order")
        again = shop.again(asked, {"value": "Rome"})
        shop.again(again, {})
        points = shop.exported.points()
        assert points["effectmcp.flow.rounds"] == [
            ({"effectmcp.outcome": "returned"}, (1, 3))
        ]
        sizes = [len(result(one)["requestState"]) for one in (asked, again)]
        assert points["effectmcp.state.size"] == [({}, (2, sum(sizes)))]
        assert points["effectmcp.questions"] == [
            (
                {
                    "mcp.method.name": "tools/call",
                    "gen_ai.tool.name": "order",
                    "gen_ai.operation.name": "execute_tool",
                },
                2,
            )
        ]

    def test_a_flow_that_began_without_observers(self) -> None:
        shop = Shop()
        shop.app.observers = ()
        asked = call(shop.app, "order")
        shop.app.observers = (shop.telemetry,)
        shop.again(asked, {"value": 5})
        (span,) = shop.exported.spans
        assert (attributes(span)["effectmcp.round"], span.links) == (2, ())

    def test_a_flow_that_began_where_only_the_client_traced(self) -> None:
        """The client's span is then the first known span."""
        shop = Shop()
        shop.app.observers = ()
        sent, ids = traceparent(1)
        asked = call(shop.app, "order", traceparent=sent)
        shop.app.observers = (shop.telemetry,)
        shop.again(asked, {"value": 5})
        (span,) = shop.exported.spans
        assert link_of(span) == {"first round": ids}

    def test_questions_of_a_resource(self) -> None:
        shop = Shop()
        send(shop.app, "resources/read", {"uri": "shop://asks"})
        labels = {"mcp.method.name": "resources/read"}
        assert shop.exported.points()["effectmcp.questions"] == [(labels, 1)]

    def test_a_question_that_is_asked_again(self) -> None:
        shop = Shop()
        asked = call(shop.app, "order")
        shop.again(asked, {"value": 5})
        assert shop.exported.points()["effectmcp.questions.repeated"] == [({}, 1)]

    def test_a_live_call(self) -> None:
        shop = Shop()
        client = LegacyClient(shop.app)
        shop.exported.forget()
        client.call("order", answer=accepts({"value": "Rome"}, {}))
        step_, span = shop.exported.spans
        assert (step_.name, parent_of(step_)) == (CHARGE, id_of(span))
        found = attributes(span)
        assert (found["effectmcp.round"], found["effectmcp.outcome"]) == (1, "result")
        points = shop.exported.points()
        assert points["effectmcp.flow.rounds"] == [
            ({"effectmcp.outcome": "returned"}, (1, 1))
        ]
        ((_, count),) = points["effectmcp.questions"]
        assert count == 2

    @pytest.mark.parametrize("state", ["x", "forged"])
    def test_states_that_are_refused(self, state: str) -> None:
        shop = Shop()
        if state == "forged":
            asked = result(call(shop.app, "order"))
            state = asked["requestState"][:-4] + "AAAA"
            shop.exported.forget()
        call(shop.app, "order", state=state)
        reason = "malformed" if state == "x" else "forged"
        (span,) = shop.exported.spans
        assert attributes(span)["effectmcp.refused"] == reason
        labels = {"effectmcp.reason": reason}
        assert shop.exported.points()["effectmcp.states.refused"] == [(labels, 1)]

    @pytest.mark.parametrize("outcome", ["salvaged", "refused"])
    def test_divergences(self, outcome: str) -> None:
        shop = Shop()

        def before() -> Flow[str]:
            if outcome == "refused":
                yield from charge()
            name = yield from Elicit("Who?", str)
            yield from Elicit("When?", str)
            return name

        def after() -> Flow[str]:
            yield from Elicit("Where?", str)
            return (yield from Elicit("Who?", str))

        shop.app.tool(name="tool")(before)
        asked = shop.again(call(shop.app, "tool"), {"value": "Ann"}, "tool")
        shop.app.remove(shop.app.tools["tool"])
        shop.app.tool(name="tool", version="2")(after)
        shop.exported.forget()
        call(shop.app, "tool", state=result(asked)["requestState"])
        labels = {"effectmcp.outcome": outcome}
        assert shop.exported.points()["effectmcp.divergences"] == [(labels, 1)]
        (span,) = shop.exported.spans
        refused = "divergence" if outcome == "refused" else None
        assert attributes(span).get("effectmcp.refused") == refused

    def test_a_round_that_is_dropped(self) -> None:
        shop = Shop()
        leave(shop.app, "pay")
        assert "effectmcp.flow.rounds" not in shop.exported.points()

    def test_a_flow_that_fails(self) -> None:
        shop = Shop()

        @shop.app.tool
        def broken() -> Flow[str]:
            yield from charge()
            raise LookupError("a secret")

        call(shop.app, "broken")
        assert shop.exported.points()["effectmcp.flow.rounds"] == [
            ({"effectmcp.outcome": "raised"}, (1, 1))
        ]


# ---- steps --------------------------------------------------------------------------


class TestSteps:
    def test_a_step(self) -> None:
        shop = Shop()
        call(shop.app, "pay")
        step_, span = shop.exported.spans
        assert (step_.name, step_.kind) == (CHARGE, SpanKind.INTERNAL)
        assert parent_of(step_) == id_of(span)
        found = dict(step_.attributes or {})
        assert found["effectmcp.flow.id"] == attributes(span)["effectmcp.flow.id"]
        assert found.keys() == {"effectmcp.flow.id", "effectmcp.key"}
        assert step_.status.status_code is StatusCode.UNSET

    def test_its_parent_is_a_span_of_the_handler(self) -> None:
        """A span that the step opens is in the step's own span."""
        shop = Shop()
        call(shop.app, "pay_in_a_span")
        spans = shop.spans()
        assert parent_of(spans["y"]) == id_of(spans[OWN_SPAN])
        assert parent_of(spans[OWN_SPAN]) == id_of(spans["careful"])
        assert parent_of(spans["careful"]) == id_of(spans["tools/call pay_in_a_span"])
        assert parent_of(spans[CHARGE]) == id_of(spans["tools/call pay_in_a_span"])

    def test_steps_at_the_same_time(self) -> None:
        shop = Shop()

        @shop.app.tool
        def both() -> Flow[str]:
            one, two = yield from Gather(charge("a"), charge("b"))
            return one + two

        call(shop.app, "both")
        one, two, span = shop.exported.spans
        assert {parent_of(one), parent_of(two)} == {id_of(span)}
        assert id_of(one) != id_of(two)

    def test_a_step_that_fails(self) -> None:
        """A step's error that its handler catches is not an error of the request."""
        shop = Shop()
        call(shop.app, "pay", arguments={"how": "bad"})
        step_, span = shop.exported.spans
        assert step_.status.status_code is StatusCode.ERROR
        assert step_.status.description is None
        assert dict(step_.attributes or {})["error.type"] == "LookupError"
        assert span.status.status_code is StatusCode.UNSET

    def test_a_step_that_is_cut_off(self) -> None:
        shop = Shop()
        leave(shop.app, "pay")
        step_, span = shop.exported.spans
        assert (step_.name, parent_of(step_)) == (CHARGE, id_of(span))

    def test_steps_that_are_replayed_have_no_span_again(self) -> None:
        shop = Shop()
        asked = shop.again(call(shop.app, "order"), {"value": "Rome"})
        shop.exported.forget()
        shop.again(asked, {})
        assert [one.name for one in shop.exported.spans] == ["tools/call order"]

    def test_spans_of_interceptors_and_of_their_steps(self) -> None:
        """All are inside of the request's span, and so are the handler's own spans."""
        shop = Shop()

        def guard(call: Call) -> Intercepting:
            with trace.get_tracer("x", tracer_provider=PROVIDERS[-1]).start_span("z"):
                yield from own_span()
            return (yield from call)

        shop.app.intercept(guard)
        call(shop.app, "pay_in_a_span")
        request = shop.exported.spans[-1]
        for one in shop.exported.spans[:-1]:
            if one.name in ("y", "z", "careful"):
                assert one.context is not None
                assert one.context.trace_id == id_of(request)[0]
        own, its_step = shop.exported.spans[:2]
        assert (own.name, parent_of(own)) == ("y", id_of(its_step))
        assert its_step.name.endswith("own_span")
        assert parent_of(its_step) == id_of(request)


def test_requests_that_http_refuses_are_counted() -> None:
    shop = Shop()
    shop.telemetry(HttpRefused(status=401, address="10.0.0.9"))
    points = shop.exported.points()["effectmcp.http.refused"]
    assert points == [({"http.response.status_code": 401}, 1)]


# ---- tasks --------------------------------------------------------------------------


def created(shop: Shop, how: str = "well") -> Host:
    """A task of `later`, with the host that runs it."""
    arguments = {"how": how}
    call(shop.app, "later", arguments=arguments, capabilities=FOLLOWS)
    rows: Any = shop.app.tasks
    (row,) = rows.rows.values()
    return Host(shop.app, attrs.evolve(row, created=START, updated=START))


class TestTasks:
    def test_turns(self) -> None:
        shop = Shop()
        host = created(shop)
        (first,) = shop.exported.spans
        assert attributes(first)["effectmcp.outcome"] == "task"
        shop.exported.forget()
        host.run(1)
        host.answer("sure", accepted())
        host.run()
        assert host.row.status == "completed"
        step_, one, two = shop.exported.spans
        assert [one.name, two.name] == ["task later"] * 2
        assert [one.kind, two.kind] == [SpanKind.CONSUMER] * 2
        assert [one.parent, two.parent] == [None, None]
        assert link_of(one) == link_of(two) == {"first round": id_of(first)}
        assert (step_.name, parent_of(step_)) == (CHARGE, id_of(one))
        of = {
            "gen_ai.tool.name": "later",
            "effectmcp.task.id": host.row.id,
            "effectmcp.flow.id": attributes(first)["effectmcp.flow.id"],
        }
        assert dict(one.attributes or {}) == {
            **of,
            "effectmcp.task.status": "input_required",
        }
        assert dict(two.attributes or {}) == {
            **of,
            "effectmcp.task.status": "completed",
        }

    def test_without_a_first_round(self) -> None:
        """A task without a known trace."""
        shop = Shop()
        Host(shop.app, new("later")).run()
        assert shop.exported.span("task later").links == ()

    def test_their_number(self) -> None:
        shop = Shop()
        host = created(shop)

        def active() -> dict[str, int]:
            points = shop.exported.points()["effectmcp.tasks.active"]
            assert {one["gen_ai.tool.name"] for one, _ in points} == {"later"}
            return {one["effectmcp.task.status"]: value for one, value in points}

        assert active() == {"working": 1}
        host.run(1)
        assert active() == {"working": 0, "input_required": 1}
        host.answer("sure", accepted())
        host.run()
        assert sum(active().values()) == 0
        assert shop.exported.points()["effectmcp.tasks.ended"] == [
            ({"effectmcp.task.status": "completed", "gen_ai.tool.name": "later"}, 1)
        ]

    def test_the_same_request_is_the_same_task(self) -> None:
        shop = Shop()
        shop.telemetry(task_created(is_new=True))
        shop.telemetry(task_created(is_new=False))
        ((_, value),) = shop.exported.points()["effectmcp.tasks.active"]
        assert value == 1

    def test_a_step_that_fails(self) -> None:
        """The tool has failed; the task is completed, as it has a result."""
        shop = Shop()
        host = created(shop, "bad")
        host.run()
        assert host.row.status == "completed"
        spans = shop.spans()
        assert spans[CHARGE].status.status_code is StatusCode.ERROR
        assert parent_of(spans[CHARGE]) == id_of(spans["task later"])
        assert spans["task later"].status.status_code is StatusCode.UNSET

    def test_a_task_whose_time_is_up(self) -> None:
        shop = Shop()
        host = Host(shop.app, new("later", ttl=5.0))
        host.run()
        assert host.row.status == "failed"
        span = shop.exported.spans[-1]
        assert dict(span.attributes or {})["error.type"] == "failed"
        assert span.status.status_code is StatusCode.ERROR
        ended = {"effectmcp.task.status": "failed", "gen_ai.tool.name": "later"}
        assert shop.exported.points()["effectmcp.tasks.ended"] == [(ended, 1)]

    def test_a_task_that_is_cancelled(self) -> None:
        shop = Shop()
        host = created(shop)
        host.run(1)
        host.cancel()
        host.run()
        assert host.row.status == "cancelled"
        span = shop.exported.spans[-1]
        assert dict(span.attributes or {})["effectmcp.task.status"] == "cancelled"
        assert span.status.status_code is StatusCode.UNSET
        ((labels, value),) = shop.exported.points()["effectmcp.tasks.ended"]
        assert (labels["effectmcp.task.status"], value) == ("cancelled", 1)

    def test_a_task_that_waits_for_its_operator(self) -> None:
        """The handler is not the handler that the task began with."""
        shop = Shop()

        def other() -> Flow[str]:
            yield from Detach()
            return (yield from Elicit("Another question?", str, key="other"))

        host = created(shop)
        host.run(1)
        shop.app.remove(shop.app.tools["later"])
        shop.app.tool(name="later")(other)
        host.answer("sure", accepted())
        host.run(1)
        assert host.row.report is not None
        span = shop.exported.spans[-1]
        assert dict(span.attributes or {})["error.type"] == "parked"
        assert span.status.status_code is StatusCode.ERROR
        points = shop.exported.points()
        assert {
            labels["effectmcp.task.status"]: value
            for labels, value in points["effectmcp.tasks.active"]
        } == {"working": 0, "input_required": 0, "parked": 1}
        assert "effectmcp.tasks.ended" not in points

    def test_a_turn_that_is_cut_off(self) -> None:
        """The turn's step ends with it, and the task is as active as before."""
        shop = Shop()

        def cut(want: Any) -> Any:
            raise Cut

        host = created(shop)
        shop.exported.forget()
        host.result = cut
        host.turn()
        step_, span = shop.exported.spans
        assert (step_.name, parent_of(step_)) == (CHARGE, id_of(span))
        assert dict(span.attributes or {})["effectmcp.task.status"] == "dropped"
        assert "error.type" not in dict(span.attributes or {})
        ((labels, value),) = shop.exported.points()["effectmcp.tasks.active"]
        assert (labels["effectmcp.task.status"], value) == ("working", 1)

    def test_methods_of_tasks(self) -> None:
        shop = Shop()
        id_ = created(shop).row.id
        shop.exported.forget()
        send(shop.app, "tasks/get", {"taskId": id_}, capabilities=FOLLOWS)
        span = shop.exported.span("tasks/get")
        assert attributes(span)["effectmcp.task.id"] == id_


def task_created(*, is_new: bool) -> Event:
    return TaskCreated(
        number=1, task="t", tool="later", flow_id="00", principal=None, is_new=is_new
    )


# ---- contexts -----------------------------------------------------------------------


class TestContexts:
    def test_the_client_s_span_is_the_parent(self) -> None:
        shop = Shop()
        sent, ids = traceparent(1)
        send(shop.app, "tools/call", {"name": "greet"}, traceparent=sent)
        (span,) = shop.exported.spans
        assert (parent_of(span), span.links) == (ids, ())
        assert span.context is not None
        assert span.context.trace_id == ids[0]

    def test_its_state_and_its_baggage_reach_the_handler(self) -> None:
        shop = Shop()
        seen: list[Any] = []

        @shop.app.tool
        def look() -> str:
            state = trace.get_current_span().get_span_context().trace_state
            seen.append((dict(baggage.get_all()), state.to_header()))
            return "seen"

        sent: dict[str, Any] = {
            "traceparent": traceparent(1)[0],
            "tracestate": "vendor=a,tenant@b=c d",
            # Old versions of the API know no properties, and no spaces around a key.
            "baggage": "user=ann%20lee , shop=1,empty=",
        }
        send(shop.app, "tools/call", {"name": "look"}, **sent)
        assert seen == [
            (
                {"user": "ann lee", "shop": "1", "empty": ""},
                "vendor=a,tenant@b=c d",
            )
        ]

    def test_baggage_without_a_trace(self) -> None:
        shop = Shop()
        seen: list[Any] = []
        shop.app.tool(name="look")(lambda: seen.append(dict(baggage.get_all())))
        send(shop.app, "tools/call", {"name": "look"}, baggage="a=1")
        assert seen == [{"a": "1"}]
        (span,) = shop.exported.spans
        assert span.parent is None

    def test_the_transport_s_span_is_linked(self) -> None:
        """The client's span is the parent, as it caused the request."""
        shop = Shop()
        sent, ids = traceparent(1)
        with trace.use_span(span_in(2)):
            send(shop.app, "tools/call", {"name": "greet"}, traceparent=sent)
        (span,) = shop.exported.spans
        assert parent_of(span) == ids
        assert link_of(span) == {"transport": traceparent(2)[1]}

    @pytest.mark.parametrize("sent", [None, "", "garbage", "00-0-0-00", 5, ["00"]])
    def test_without_a_client_s_span_the_transport_s_is_the_parent(
        self, sent: Any
    ) -> None:
        shop = Shop()
        with trace.use_span(span_in(2)):
            send(shop.app, "tools/call", {"name": "greet"}, traceparent=sent)
        (span,) = shop.exported.spans
        assert (parent_of(span), span.links) == (traceparent(2)[1], ())

    def test_the_client_s_first_round_is_linked(self) -> None:
        shop = Shop()
        sent, ids = traceparent(1)
        links: dict[str, Any] = {LINK_KEY: sent}
        send(shop.app, "tools/call", {"name": "greet"}, **links)
        (span,) = shop.exported.spans
        assert link_of(span) == {"the client's first round": ids}
        assert span.parent is None

    def test_all_of_them(self) -> None:
        shop = Shop()
        asked = call(shop.app, "order")
        (first,) = shop.exported.spans
        shop.exported.forget()
        sent = {"traceparent": traceparent(1)[0], LINK_KEY: traceparent(3)[0]}
        with trace.use_span(span_in(2)):
            shop.again(asked, {"value": 5}, **sent)
        (span,) = shop.exported.spans
        assert parent_of(span) == traceparent(1)[1]
        assert link_of(span) == {
            "transport": traceparent(2)[1],
            "the client's first round": traceparent(3)[1],
            "first round": id_of(first),
        }

    def test_nothing_is_left_behind(self) -> None:
        """The caller's context is the same as before."""
        shop = Shop()
        call(shop.app, "pay_in_a_span")
        Host(shop.app, new("later")).run(1)
        assert trace.get_current_span() is trace.INVALID_SPAN
        assert shop.telemetry._open == {}

    def test_traces_that_are_not_sampled(self) -> None:
        """No span is exported, and metrics are still complete."""
        shop = Shop({"tracer_provider": TracerProvider(sampler=ALWAYS_OFF)})
        asked = call(shop.app, "order")
        shop.again(shop.again(asked, {"value": "Rome"}), {})
        call(shop.app, "order", state="x")
        created(shop).run(1)
        assert shop.exported.spans == []
        points = shop.exported.points()
        assert len(points["mcp.server.operation.duration"]) >= 2
        assert points.keys() >= {
            "effectmcp.flow.rounds",
            "effectmcp.state.size",
            "effectmcp.states.refused",
            "effectmcp.tasks.active",
        }


#: What a stranger may send as a trace context: any JSON, and almost the right form.
TEXTS = st.text(max_size=40) | st.text("0123456789abcdef-,=;%@ \t", max_size=80)
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.none() | TEXTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    TEXTS,
    st.builds(lambda text, number: text * number, TEXTS, st.integers(1, 3_000)),
    st.lists(st.builds("{}={}".format, TEXTS, TEXTS), max_size=200).map(",".join),
    st.from_regex(r"\A[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?\Z"),
)
CONTEXT_KEYS = ("traceparent", "tracestate", "baggage", LINK_KEY)


@define(eq=False)
class Heard(logging.Handler):
    """The records of all loggers."""

    records: list[str] = field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record.getMessage())


@contextmanager
def silent() -> Iterator[None]:
    """Check that nothing is logged."""
    heard = Heard()
    logging.getLogger().addHandler(heard)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(heard)
    assert heard.records == []


@given(st.dictionaries(st.sampled_from(CONTEXT_KEYS), HOSTILE))
@example({"baggage": "a=" + "x" * 4_000_000})
@example({"baggage": ",".join(f"k{n}=v" for n in range(1_000))})
@example({"baggage": ",".join(f"k{n}=v" for n in range(181))})
@example({"baggage": "a=" + "x" * 5_000})
@example({"baggage": "no pair"})
@example({"baggage": "é=1"})
@example({"baggage": "k=" + " " * 4_000 + "\x01" + ",k=;" + "\t" * 4_000 + "\x01"})
@example({"baggage": "a=%ff%00%0a"})
@example({"traceparent": "0" * 600})
@example({"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-00"})
@example({"traceparent": "ff-" + "1" * 32 + "-" + "1" * 16 + "-00"})
@example({"traceparent": traceparent(1)[0], "tracestate": "NOT A STATE"})
@example({"traceparent": traceparent(1)[0], "tracestate": "a=1,a=2"})
@example({"traceparent": traceparent(1)[0], "tracestate": ","})
@example(
    {
        "traceparent": traceparent(1)[0],
        "tracestate": ",".join(f"k{n}=1" for n in range(33)),
    }
)
@example({"traceparent": traceparent(1)[0] + "\n", LINK_KEY: traceparent(1)[0] + "-x"})
@example({LINK_KEY: "x" * 1_000_000})
def test_a_hostile_context_changes_nothing(sent: dict[str, Any]) -> None:
    """Each reply is the one of a server that is not observed; nothing is logged."""
    shop = Shop()
    other = Server("shop", keys=KEYS)
    other.tool(name="greet")(lambda: "Hello, you!")
    with silent():
        observed = send(shop.app, "tools/call", {"name": "greet"}, **sent)
        asked = call(shop.app, "order", **sent)
        done = shop.again(shop.again(asked, {"value": "Rome"}, **sent), {}, **sent)
    assert observed.body == send(other, "tools/call", {"name": "greet"}, **sent).body
    assert text_of(result(done)) == "Emma to Rome"
    requests = [one for one in shop.exported.spans if one.kind is SpanKind.SERVER]
    # A client may also say that its trace is not sampled.
    assert len(requests) in (0, 4)
    for span in requests:
        assert len(span.links) <= 2


def test_surrogates_of_another_json_reader() -> None:
    shop = Shop()
    bad = "a=\ud800"
    message = request("tools/call", {"name": "greet"}, baggage=bad, tracestate=bad)
    with silent():
        sync.handle(shop.app, message)
    assert len(shop.exported.spans) <= 1


# ---- secrets ------------------------------------------------------------------------


@given(st.text("abcdefgh", min_size=1, max_size=5), st.data())
def test_nothing_that_is_said_is_exported(text: str, data: st.DataObject) -> None:
    """No argument, answer, state, result or message of an error is in any export."""
    mark = f"MARK{text}MARK"
    shop = Shop()

    @step
    def work(how: str, argument: str) -> str:
        if how == "step":
            raise LookupError(argument)
        return f"result {argument}"

    errors: Mapping[str, Callable[[str], Exception]] = {
        "tool": ToolError,
        "protocol": lambda words: ProtocolError(-32001, words, {"data": words}),
        "bug": ValueError,
    }

    def flow(how: str, argument: str) -> Flow[str]:
        answer = yield from Elicit(f"Who is {argument}?", str, key="who")
        done = yield from work(how, argument)
        if how in errors:
            raise errors[how](answer + done)
        return answer + done

    def plain(how: str, argument: str) -> str:
        if how in errors:
            raise errors[how](argument)
        return argument

    shop.app.tool(name="flow")(flow)
    shop.app.tool(name="plain")(plain)
    shop.app.prompt(name="flow")(flow)
    shop.app.prompt(name="plain")(plain)
    shop.app.tool(name="task", task="required")(flow)
    how = data.draw(st.sampled_from(["fine", "step", *errors]))
    arguments: dict[str, Any] = {"how": how, "argument": mark}
    states = []
    for method in ("tools/call", "prompts/get"):
        for name in ("flow", "plain"):
            for wrong in ({}, {"argument": [mark]}, {mark: mark}):
                params = {"name": name, "arguments": {**arguments, **wrong}}
                asked = send(shop.app, method, params).message or {}
                found = asked.get("result", {})
                if "inputRequests" not in found:
                    continue
                states.append(found["requestState"])
                for content in (mark, 5):
                    more = {
                        "inputResponses": said(found, {"value": content}),
                        "requestState": found["requestState"],
                    }
                    send(shop.app, method, {**params, **more})
                broken = {"requestState": found["requestState"] + mark}
                send(shop.app, method, {**params, **broken})
    host = Host(shop.app, new("task", arguments))
    host.run(1)
    (key,) = host.row.questions
    host.answer(key, accepted(mark))
    host.run()
    exported = shop.exported.text()
    assert "task task" in exported
    assert "MARK" not in exported
    assert mark not in exported
    for state in states:
        assert state not in exported
        assert state[:100] not in exported


# ---- without an SDK -----------------------------------------------------------------


class TestWithoutAnSdk:
    def test_it_is_idle(self) -> None:
        """No event is made for it, unless another observer wants some."""
        telemetry = Telemetry()
        app = Server("shop", keys=KEYS, observers=[telemetry])
        assert telemetry.is_idle()
        assert not app.is_watched
        heard: list[Event] = []
        app = Server("shop", observers=[telemetry, heard.append])
        app.tool(name="greet")(lambda: "Hello")
        assert app.is_watched
        sent: dict[str, Any] = {"traceparent": traceparent(1)[0]}
        assert text_of(result(send(app, "tools/call", {"name": "greet"}, **sent)))
        (began, _) = heard
        assert isinstance(began, RequestBegan)
        assert telemetry._open == {}

    @pytest.mark.parametrize("which", ["tracer_provider", "meter_provider"])
    def test_with_one_of_the_two(self, which: str) -> None:
        shop, exported = Shop(), Exporting()
        given: dict[str, Any] = {
            "tracer_provider": trace.NoOpTracerProvider(),
            "meter_provider": metrics.NoOpMeterProvider(),
        }
        given[which] = exported.providers[which]
        telemetry = Telemetry(**given)
        assert not telemetry.is_idle()
        shop.app.observers = (telemetry,)
        asked = call(shop.app, "order")
        shop.again(shop.again(asked, {"value": "Rome"}), {})
        leave(shop.app, "pay")
        created(shop).run(1)
        assert bool(exported.spans) == (which == "tracer_provider")
        assert bool(exported.points()) == (which == "meter_provider")

    def test_with_none_of_the_two(self) -> None:
        telemetry = Telemetry(
            tracer_provider=trace.NoOpTracerProvider(),
            meter_provider=metrics.NoOpMeterProvider(),
        )
        assert telemetry.is_idle()

    def test_a_provider_that_is_set_later_is_used(self) -> None:
        """The provider may be set in the middle of a request.

        A process has only one provider, so this test runs in another process.
        """
        done = in_a_process("""
from effectmcp import Flow, Server, step
from effectmcp.drivers import sync
from effectmcp.observers.telemetry import Telemetry
from effectmcp.state import make_key, Keys
from effectmcp_tests.observers.exporting import Exporting
from effectmcp_tests.wire import call
from opentelemetry import metrics, trace

exported = Exporting()
telemetry = Telemetry()
app = Server("shop", observers=[telemetry], keys=Keys(make_key(bytes(32))))

@step
def work() -> str:
    return "done"

@app.tool
def greet(sets: bool = False) -> Flow[str]:
    if sets:
        trace.set_tracer_provider(exported.traces)
    return (yield from work())

print(telemetry.is_idle(), app.is_watched)
call(app, "greet")
metrics.set_meter_provider(exported.metrics)
print(telemetry.is_idle(), app.is_watched)
call(app, "greet", arguments={"sets": True})
print([one.name for one in exported.spans], sorted(exported.points()))
call(app, "greet")
print([one.name for one in exported.spans])
print(telemetry._open)
""")
        assert done == [
            "True False",
            "False True",
            # A step's span has no parent, if its request's could not be made.
            "['__main__:work'] ['effectmcp.flow.rounds', 'mcp.server.operation.duration']",
            "['__main__:work', '__main__:work', 'tools/call greet']",
            "{}",
        ]


def in_a_process(script: str) -> list[str]:
    """The lines that a script prints in a process of its own."""
    root = Path(effectmcp.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_without_the_package_the_extra_is_named() -> None:
    assert (
        in_a_process("""
import sys
sys.modules["opentelemetry"] = None
from effectmcp.errors import UsageError
for name in ("telemetry", "client_telemetry", "conventions"):
    try:
        __import__(f"effectmcp.observers.{name}")
    except UsageError as exc:
        print(exc, exc.__cause__)
import effectmcp.observers.audit
""")
        == [
            "traces and metrics need a package more: pip install 'effectmcp[otel]' None"
        ]
        * 3
    )


def test_another_package_that_is_missing_is_named_as_it_is() -> None:
    """Something that OpenTelemetry needs itself."""
    assert in_a_process("""
import sys, importlib.abc

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "opentelemetry.propagate":
            raise ModuleNotFoundError("No module named 'typing_more'", name="typing_more")

sys.meta_path.insert(0, Missing())
try:
    import effectmcp.observers.telemetry
except ModuleNotFoundError as exc:
    print(type(exc).__name__, exc.name)
""") == ["ModuleNotFoundError typing_more"]


def test_nothing_else_imports_opentelemetry() -> None:
    assert in_a_process("""
import sys
import effectmcp, effectmcp.server, effectmcp.transports, effectmcp.client
import effectmcp.guards, effectmcp.observers.audit, effectmcp.cli.main
from effectmcp.client import Client, InMemory, OverHttp, OverPipes
from effectmcp.transports import asgi, http, stdio, wsgi
print([name for name in sys.modules if name.startswith("opentelemetry")])
""") == ["[]"]


# ---- events out of order ------------------------------------------------------------


def test_ends_of_what_began_before_the_observer() -> None:
    """An observer may be added while requests and turns run."""
    shop = Shop()
    heard: list[Event] = []
    app = Server("shop", keys=KEYS, observers=[heard.append])
    app.tool(name="later")(lambda: "x")
    PROVIDERS[:] = []
    for tool in ("pay", "order"):
        app.add(shop.app.tools[tool])
    call(app, "pay")
    call(app, "order")
    call(app, "order", state="x")
    heard += [
        TurnEnded(
            task="t",
            tool="later",
            flow_id="00",
            principal=None,
            status="failed",
            was="working",
            seconds=1,
        ),
        StepPerformed(flow_id="00", key="k", name="n", seconds=1, task="t"),
        StepPerformed(flow_id="00", key="k", name="n", seconds=1),
    ]
    for event in heard:
        if not isinstance(event, RequestBegan):
            shop.telemetry(event)
    assert any(isinstance(one, RoundRefused) for one in heard)
    assert shop.exported.spans == []
    assert shop.telemetry._open == {}
