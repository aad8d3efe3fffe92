"""Traces and metrics of a client: spans, values sent in `_meta`, and stored calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import pytest
from attrs import define, field
from hypothesis import example, given
from opentelemetry import baggage, context, metrics, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceState

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    ProtocolError,
    Server,
    ToolError,
)
from effectmcp.client import Client, Form, InMemory, Pending, Result
from effectmcp.client.errors import ReplyError
from effectmcp.client.tracing import Trail
from effectmcp.observers.client_telemetry import ClientTelemetry
from effectmcp.observers.conventions import span_of
from effectmcp.observers.telemetry import Telemetry

from ..client.legacy_server import DONE, Asking, Legacy
from ..client.ways import Scripted, Sent, Watched, asking, form
from ..wire import KEYS, VERSION
from .exporting import Exporting, id_of, link_of, parent_of, span_in, traceparent
from .test_telemetry import HOSTILE, silent

LINK_KEY = "io.modelcontextprotocol/tracelink"

Body = Callable[[], Coroutine[Any, Any, None]]


def on_both(body: Body) -> Callable[[str], None]:
    """Make a test of `body` that runs on trio and on asyncio."""

    async def run() -> None:
        with anyio.fail_after(20):
            await body()

    @pytest.mark.parametrize("loop", ["trio", "asyncio"])
    def test(loop: str) -> None:
        anyio.run(run, backend=loop)

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@define(eq=False)
class Desk:
    """A client that is traced, of a server that is, and what each exports.

    Attributes:
        answers: What a server without a program answers; by default, there is one.
        sent: The requests.
    """

    answers: list[Any] | None = None
    exported: Exporting = field(factory=Exporting)
    served: Exporting = field(factory=Exporting)
    sent: list[Sent] = field(factory=list)
    app: Server = field(init=False)

    def __attrs_post_init__(self) -> None:
        observers = [Telemetry(**self.served.providers)]
        app = self.app = Server("shop", keys=KEYS, observers=observers)

        @app.tool
        def greet(name: str = "you") -> str:
            return f"Hello, {name}!"

        @app.tool
        def fail() -> str:
            raise ToolError("a secret of a tool")

        @app.tool
        def order() -> Flow[str]:
            name = yield from Elicit("Who?", str, key="who")
            yield from Confirm("Sure?", key="sure")
            return f"for {name}"

        @app.prompt
        def review() -> str:
            return "Review it"

        @app.resource("shop://news")
        def news() -> str:
            return "none"

    def client(self, **options: Any) -> Client:
        """A client of the server."""
        tracing = ClientTelemetry(**self.exported.providers)
        given = {"tracing": tracing, "elicit": fill_in, "version": VERSION, **options}
        if self.answers is not None:
            return Client(Scripted(self.answers, self.sent), **given)
        return Client(Watched(InMemory(self.app), self.sent), **given)

    def metas(self) -> list[dict[str, Any]]:
        """The keys of `_meta` that are about traces, of each request."""
        names = ("traceparent", "tracestate", "baggage", LINK_KEY)
        return [
            {
                key: one
                for key, one in sent.params.get("_meta", {}).items()
                if key in names
            }
            for sent in self.sent
        ]


def fill_in(form: Form) -> dict[str, Any]:
    return {"value": "Ann"} if form.fields else {}


def parent(span: ReadableSpan) -> str:
    """The trace context of a span, as it is sent."""
    trace_id, span_id = id_of(span)
    assert span.context is not None
    # An SDK may also say that its ids are random (W3C Trace Context, level 2).
    return f"00-{trace_id:032x}-{span_id:016x}-{span.context.trace_flags:02x}"


# ---- spans --------------------------------------------------------------------------


@on_both
async def test_a_tool() -> None:
    desk = Desk()
    async with desk.client() as client:
        await client.call_tool("greet")
    (span,) = desk.exported.spans
    assert (span.name, span.kind) == ("tools/call greet", SpanKind.CLIENT)
    labels = {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "greet",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": VERSION,
        "network.transport": "pipe",
    }
    assert dict(span.attributes or {}) == labels
    assert (span.status.status_code, span.links, span.parent) == (
        StatusCode.UNSET,
        (),
        None,
    )
    assert desk.metas() == [{"traceparent": parent(span)}]
    ((found, (count, seconds)),) = desk.exported.points()[
        "mcp.client.operation.duration"
    ]
    assert (found, count) == (labels, 1)
    assert 0 < seconds < 20


@on_both
async def test_the_server_s_span_is_its_child() -> None:
    desk = Desk()
    async with desk.client() as client:
        await client.call_tool("greet")
    (span,), (served,) = desk.exported.spans, desk.served.spans
    assert parent_of(served) == id_of(span)


@on_both
async def test_prompts_resources_and_lists() -> None:
    desk = Desk()
    async with desk.client() as client:
        await client.get_prompt("review")
        await client.read_resource("shop://news")
        await client.list_tools()
    prompt, resource, list_ = desk.exported.spans
    assert prompt.name == "prompts/get review"
    assert dict(prompt.attributes or {})["gen_ai.prompt.name"] == "review"
    assert resource.name == "resources/read"
    assert dict(resource.attributes or {})["mcp.resource.uri"] == "shop://news"
    assert list_.name == "tools/list"
    for labels, _ in desk.exported.points()["mcp.client.operation.duration"]:
        assert "mcp.resource.uri" not in labels


@on_both
async def test_rounds_are_linked() -> None:
    """Each of its own; the later ones name the first in `_meta`."""
    desk = Desk()
    async with desk.client() as client:
        assert (await client.call_tool("order")).text == "for Ann"
        await client.call_tool("greet")
    one, two, three, other = desk.exported.spans
    assert [link_of(each) for each in (one, two, three, other)] == [
        {},
        {"first round": id_of(one)},
        {"first round": id_of(one)},
        {},
    ]
    assert desk.metas() == [
        {"traceparent": parent(one)},
        {"traceparent": parent(two), LINK_KEY: parent(one)},
        {"traceparent": parent(three), LINK_KEY: parent(one)},
        {"traceparent": parent(other)},
    ]
    served = desk.served.spans
    assert link_of(served[2]) == {
        "the client's first round": id_of(one),
        "first round": id_of(served[0]),
    }


@on_both
async def test_what_surrounds_it_is_its_parent() -> None:
    """The parent's trace state and the baggage are sent, too."""
    desk = Desk()
    token = context.attach(baggage.set_baggage("user", "ann lee"))
    try:
        around = span_in(2)
        inner = trace.NonRecordingSpan(
            trace.SpanContext(
                around.get_span_context().trace_id,
                around.get_span_context().span_id,
                is_remote=False,
                trace_flags=around.get_span_context().trace_flags,
                trace_state=TraceState([("vendor", "a")]),
            )
        )
        with trace.use_span(inner):
            async with desk.client() as client:
                await client.call_tool("greet")
            assert trace.get_current_span() is inner
    finally:
        context.detach(token)
    (span,) = desk.exported.spans
    assert parent_of(span) == traceparent(2)[1]
    assert desk.metas() == [
        {
            "traceparent": parent(span),
            "tracestate": "vendor=a",
            "baggage": "user=ann+lee",
        }
    ]


@on_both
async def test_requests_at_the_same_time() -> None:
    """No request is the parent of another one."""
    desk = Desk()
    async with desk.client() as client, anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(client.call_tool, "order")
    spans = desk.exported.spans
    assert len(spans) == 15
    assert {one.parent for one in spans} == {None}
    firsts = [id_of(one) for one in spans if not one.links]
    linked = [link_of(one)["first round"] for one in spans if one.links]
    assert sorted(linked) == sorted(firsts * 2)


# ---- failures -----------------------------------------------------------------------


@on_both
async def test_a_tool_that_fails() -> None:
    desk = Desk()
    async with desk.client() as client:
        assert (await client.call_tool("fail")).is_error
    (span,) = desk.exported.spans
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "tool_error"
    ((labels, _),) = desk.exported.points()["mcp.client.operation.duration"]
    assert labels["error.type"] == "tool_error"
    assert "secret" not in desk.exported.text()


@on_both
async def test_an_error_of_the_protocol() -> None:
    desk = Desk()
    async with desk.client() as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("none")
    (span,) = desk.exported.spans
    found = dict(span.attributes or {})
    assert found["error.type"] == found["rpc.response.status_code"] == "-32602"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None


@on_both
async def test_an_invalid_reply() -> None:
    desk = Desk([{"jsonrpc": "2.0", "id": 99, "result": {}}])
    async with desk.client() as client:
        with pytest.raises(ReplyError):
            await client.call_tool("greet")
    (span,) = desk.exported.spans
    assert dict(span.attributes or {})["error.type"] == "ReplyError"


@define(eq=False)
class Silent(Scripted):
    """A channel to a server that never answers."""

    async def exchange(self, *given: Any) -> Any:
        """Wait."""
        await anyio.sleep_forever()


@on_both
async def test_a_request_that_takes_too_long() -> None:
    exported = Exporting()
    tracing = ClientTelemetry(**exported.providers)
    client = Client(Silent([]), tracing=tracing, version=VERSION, round_timeout=0.01)
    async with client:
        with pytest.raises(TimeoutError):
            await client.call_tool("greet")
    (span,) = exported.spans
    assert dict(span.attributes or {})["error.type"] == "TimeoutError"


@on_both
async def test_a_request_that_is_cancelled() -> None:
    exported = Exporting()
    tracing = ClientTelemetry(**exported.providers)
    async with Client(Silent([]), tracing=tracing, version=VERSION) as client:
        with anyio.move_on_after(0.01):
            await client.call_tool("greet")
    (span,) = exported.spans
    assert dict(span.attributes or {})["error.type"] in ("Cancelled", "CancelledError")
    assert span.status.status_code is StatusCode.ERROR


# ---- calls that are stored ----------------------------------------------------------


@on_both
async def test_a_stored_call_keeps_its_trace() -> None:
    one, two = Desk(), Desk()
    async with one.client() as client:
        pending = await client.start("tools/call", {"name": "order"}).round()
    assert isinstance(pending, Pending)
    (first,) = one.exported.spans
    stored = json.loads(json.dumps(pending.to_json()))
    assert stored["trace"] == parent(first)
    again = Pending.from_json(stored)
    assert again == pending
    async with two.client() as client:
        assert (await client.resume(again).finish()).text == "for Ann"
    assert [link_of(span) for span in two.exported.spans] == [
        {"first round": id_of(first)}
    ] * 2
    assert {meta[LINK_KEY] for meta in two.metas()} == {parent(first)}


@on_both
async def test_without_tracing_nothing_is_kept() -> None:
    desk = Desk()
    async with desk.client(tracing=None) as client:
        pending = await client.start("tools/call", {"name": "order"}).round()
    assert isinstance(pending, Pending)
    assert "trace" not in pending.to_json()
    assert desk.metas() == [{}]


def stored(found: Any) -> dict[str, Any]:
    """A stored call with that as its trace."""
    return {
        "method": "tools/call",
        "params": {"name": "greet"},
        "state": "s",
        "rounds": 1,
        "questions": {},
        "trace": found,
    }


@given(HOSTILE)
@example("00-" + "0" * 32 + "-" + "0" * 16 + "-00")
@example(traceparent(1)[0] + "\n")
@example("x" * 1_000_000)
@example("\ud800")
def test_a_hostile_stored_call(found: Any) -> None:
    """The call is refused, or its trace is ignored; nothing is logged."""
    if not isinstance(found, str | None):
        with pytest.raises(ReplyError, match="another shape"):
            Pending.from_json(stored(found))
        return
    pending = Pending.from_json(stored(found))
    desk = Desk([DONE])

    async def main() -> None:
        async with desk.client() as client:
            done = await client.resume(pending).round({})
            assert isinstance(done, Result)

    with silent():
        anyio.run(main, backend="trio")
    (span,) = desk.exported.spans
    linked = span_of(found)
    assert link_of(span) == (
        {} if linked is None else {"first round": (linked.trace_id, linked.span_id)}
    )
    (meta,) = desk.metas()
    assert meta.get(LINK_KEY) == (None if linked is None else found)


# ---- without an SDK -----------------------------------------------------------------


@on_both
async def test_without_an_sdk_nothing_is_sent() -> None:
    desk = Desk()
    async with desk.client(tracing=ClientTelemetry()) as client:
        await client.call_tool("order")
    assert desk.metas() == [{}] * 3
    assert desk.exported.text() == "[]"


@on_both
async def test_without_an_sdk_a_context_from_elsewhere_is_passed_on() -> None:
    """A stored call keeps it, so a client with an SDK can link to it."""
    desk = Desk()
    tracing = ClientTelemetry(tracer_provider=trace.NoOpTracerProvider())
    with trace.use_span(span_in(2)):
        async with desk.client(tracing=tracing) as client:
            pending = await client.start("tools/call", {"name": "order"}).round()
    assert isinstance(pending, Pending)
    sent, ids = traceparent(2)
    assert desk.metas() == [{"traceparent": sent}]
    assert pending.to_json()["trace"] == sent
    async with desk.client() as client:
        await client.resume(pending).finish()
    assert [link_of(span) for span in desk.exported.spans] == [{"first round": ids}] * 2


@on_both
async def test_metrics_without_traces() -> None:
    desk = Desk()
    tracing = ClientTelemetry(
        tracer_provider=trace.NoOpTracerProvider(),
        meter_provider=desk.exported.metrics,
        clock=iter([1.0, 3.5]).__next__,
    )
    async with desk.client(tracing=tracing) as client:
        await client.call_tool("greet")
    ((_, value),) = desk.exported.points()["mcp.client.operation.duration"]
    assert value == (1, 2.5)


@on_both
async def test_traces_without_metrics() -> None:
    desk = Desk()
    tracing = ClientTelemetry(
        tracer_provider=desk.exported.traces,
        meter_provider=metrics.NoOpMeterProvider(),
    )
    async with desk.client(tracing=tracing) as client:
        await client.call_tool("greet")
    assert len(desk.exported.spans) == 1
    assert desk.exported.points() == {}


@on_both
async def test_traces_that_are_not_sampled_are_passed_on() -> None:
    """The server does not record them either."""
    desk = Desk()
    desk.exported.traces = TracerProvider(sampler=ALWAYS_OFF)
    async with desk.client() as client:
        await client.call_tool("order")
    flags = {int(one["traceparent"][-2:], 16) for one in desk.metas()}
    assert {one & trace.TraceFlags.SAMPLED for one in flags} == {0}
    assert desk.served.spans == []


# ---- legacy servers -----------------------------------------------------------------


@on_both
async def test_a_legacy_server() -> None:
    """The server gets the trace context; the handshake has none of its own."""
    exported = Exporting()

    async def serve(asking: Asking) -> Any:
        assert (await asking.ask())["action"] == "accept"
        return DONE

    channel = Legacy(serve)
    tracing = ClientTelemetry(**exported.providers)
    async with channel.client(tracing=tracing, elicit=lambda form: {}) as client:
        await client.call_tool("order")
        (message,) = channel.requests("tools/call")
    one, two = exported.spans
    assert [one.name, two.name] == ["tools/call order"] * 2
    assert message["params"]["_meta"] == {"traceparent": parent(one)}
    assert link_of(two) == {"first round": id_of(one)}
    for span in (one, two):
        found = dict(span.attributes or {})
        assert found["mcp.protocol.version"] == "2025-11-25"


@on_both
async def test_a_legacy_server_over_http() -> None:
    exported = Exporting()
    channel = Legacy(has_headers=True)
    tracing = ClientTelemetry(**exported.providers)
    async with channel.client(tracing=tracing) as client:
        await client.call_tool("order")
    found = dict(exported.span("tools/call order").attributes or {})
    assert found["network.transport"] == "tcp"


@on_both
async def test_a_legacy_session_of_a_server_that_is_traced() -> None:
    desk = Desk()
    async with desk.client(version="2025-11-25") as client:
        assert (await client.call_tool("order")).text == "for Ann"
    first = desk.exported.spans[0]
    served = desk.served.span("tools/call order")
    assert parent_of(served) == id_of(first)


# ---- secrets ------------------------------------------------------------------------


@on_both
async def test_nothing_that_is_said_is_exported() -> None:
    """No argument, answer, state, question or message of an error is in any export."""
    mark = "MARK of the user"
    error = {"jsonrpc": "2.0", "error": {"code": -32001, "message": mark}}
    question = {"q": form(mark, value={"type": "string", "title": mark})}
    desk = Desk(
        [
            asking(question, requestState=mark),
            {"content": [{"type": "text", "text": mark}]},
            {"content": [{"type": "text", "text": mark}], "isError": True},
            lambda message: {**error, "id": message["id"]},
            OSError(mark),
        ]
    )
    arguments: Mapping[str, Any] = {"word": mark}
    async with desk.client(elicit=lambda form: {"value": mark}) as client:
        await client.call_tool("order", arguments)
        await client.call_tool("order", arguments)
        for kind in (ProtocolError, OSError):
            with pytest.raises(kind):
                await client.call_tool("order", arguments)
    assert len(desk.exported.spans) == 5
    assert "MARK" not in desk.exported.text()


# ---- a tracing of one's own ---------------------------------------------------------


@define(eq=False)
class Traced:
    """A request of a `ClientTracing` of one's own."""

    meta: Mapping[str, Any]
    trace: str | None
    ended: list[Any]

    def end(self, result: Any, error: BaseException | None) -> None:
        """Note how it ended."""
        self.ended.append((result, error))


@on_both
async def test_a_tracing_of_ones_own() -> None:
    begun: list[Any] = []
    ended: list[Any] = []

    class Tracing:
        def begin(self, method: str, params: Mapping[str, Any], **more: Any) -> Traced:
            begun.append((method, params.get("name"), more))
            return Traced({"mine": len(begun)}, f"trace {len(begun)}", ended)

    desk = Desk()
    async with desk.client(tracing=Tracing()) as client:
        await client.call_tool("order")
    assert [first for _, _, one in begun for first in [one["first"]]] == [
        None,
        "trace 1",
        "trace 1",
    ]
    assert begun[0] == (
        "tools/call",
        "order",
        {"version": VERSION, "first": None, "is_http": False},
    )
    assert [one.params["_meta"]["mine"] for one in desk.sent] == [1, 2, 3]
    assert [error for _, error in ended] == [None] * 3
    assert ended[-1][0]["content"][0]["text"] == "for Ann"


def test_a_trail_begins_empty() -> None:
    assert Trail().first is None
