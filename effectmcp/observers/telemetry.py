"""Traces and metrics of a server, for OpenTelemetry.

    app = Server("shop", observers=[Telemetry()])

    span                        parent                     links
    --------------------------  -------------------------  -------------------------------
    `tools/call order`          the client's, by `_meta`   the first round's, after round
                                                           1; the transport's, if any
    the step `charge`           the request's, the turn's,
                                or one of the handler's
    `task order`, for a turn    none                       the first round's

Later rounds and turns link to the span of the first round on this server. Its context
travels in the sealed state, so the rounds may reach any process.

Only the API of OpenTelemetry is used. The application sets up the SDK, which records,
samples and sends. Without an SDK, requests are not watched.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from .. import __version__
from ..server.events import (
    TRACE,
    Event,
    HttpRefused,
    QuestionsAsked,
    RequestBegan,
    RequestEnded,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    SessionEnded,
    StepBegan,
    StepPerformed,
    TaskCreated,
    TurnBegan,
    TurnEnded,
)
from .conventions import (  # first: its error names the missing extra
    DURATIONS,
    LINK,
    TRACE_LINK,
    attributes_of,
    context_in,
    counts_nothing,
    is_idle,
    span_of,
    traceparent_of,
)

from opentelemetry import context as contexts  # isort: skip
from opentelemetry import metrics, trace  # isort: skip
from opentelemetry.metrics import MeterProvider  # isort: skip
from opentelemetry.trace import (  # isort: skip
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)

__all__ = ["Telemetry"]

_NAME = "effectmcp"


@define(eq=False)
class _Open:
    """A request or a turn that has not ended.

    Attributes:
        span: Its span.
        labels: The attributes of its duration.
        steps: The spans of its running steps, by key.
    """

    span: Span
    labels: dict[str, Any] = field(factory=dict)
    steps: dict[str, Span] = field(factory=dict)


class Telemetry:
    """An observer that makes spans and metrics of events.

    Args:
        tracer_provider: Where spans go; by default, to the provider of the process.
        meter_provider: Where metrics go; by default, to the provider of the process.
        uris: Whether the URI of a resource is part of the names of spans. Use it if there
            are few.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        uris: bool = False,
    ) -> None:
        self._provider = tracer_provider
        self._meters = meter_provider
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        self._uris = uris
        #: Open requests by number, and open turns by the id of their task.
        self._open: dict[int | str, _Open] = {}
        self._make_instruments(metrics.get_meter(_NAME, __version__, meter_provider))

    def _make_instruments(self, meter: metrics.Meter) -> None:
        self._durations = meter.create_histogram(
            "mcp.server.operation.duration",
            "s",
            "Duration of requests.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._sessions = meter.create_histogram(
            "mcp.server.session.duration",
            "s",
            "Duration of sessions.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._rounds = meter.create_histogram(
            "effectmcp.flow.rounds",
            "{round}",
            "Rounds of flows that have ended.",
            explicit_bucket_boundaries_advisory=(1, 2, 3, 4, 5, 6, 8, 10),
        )
        self._states = meter.create_histogram(
            "effectmcp.state.size",
            "{character}",
            "Sizes of the states that clients carry.",
            explicit_bucket_boundaries_advisory=(
                500,
                1_000,
                2_000,
                4_000,
                8_000,
                16_000,
                32_000,
                64_000,
            ),
        )
        self._questions = meter.create_counter(
            "effectmcp.questions", "{question}", "Questions that were asked."
        )
        self._again = meter.create_counter(
            "effectmcp.questions.repeated",
            "{question}",
            "Questions asked again, as an answer did not fit.",
        )
        self._refused = meter.create_counter(
            "effectmcp.states.refused", "{state}", "States that could not be used."
        )
        self._http = meter.create_counter(
            "effectmcp.http.refused", "{request}", "Requests that HTTP refused."
        )
        self._divergences = meter.create_counter(
            "effectmcp.divergences",
            "{flow}",
            "Flows that did not fit their handler any more.",
        )
        self._active = meter.create_up_down_counter(
            "effectmcp.tasks.active", "{task}", "Tasks that have not ended."
        )
        self._ended = meter.create_counter(
            "effectmcp.tasks.ended", "{task}", "Tasks that have ended."
        )

    def is_idle(self) -> bool:
        """Return whether there is no SDK yet, so that no event is needed."""
        return is_idle(self._provider) and counts_nothing(self._meters)

    def __call__(self, event: Event) -> None:
        """Take an event."""
        match event:
            case RequestBegan():
                self._begin(event)
            case RequestEnded():
                self._end(event)
            case RoundBegan():
                self._begin_round(event)
            case RoundEnded():
                self._end_round(event)
            case StepBegan():
                self._begin_step(event)
            case StepPerformed():
                self._end_step(event)
            case TurnBegan():
                self._begin_turn(event)
            case TurnEnded():
                self._end_turn(event)
            case RoundRefused():
                self._refuse(event)
            case QuestionsAsked(questions=questions, method=method, target=target):
                is_uri = method == "resources/read"
                labels = attributes_of(method, None if is_uri else target)
                self._questions.add(len(questions), labels)
            case Salvaged():
                self._divergences.add(1, {"effectmcp.outcome": "salvaged"})
            case SessionEnded(seconds=seconds):
                self._sessions.record(seconds)
            case HttpRefused(status=status):
                self._http.add(1, {"http.response.status_code": status})
            case TaskCreated(is_new=True, tool=tool):
                labels = {"effectmcp.task.status": "working", "gen_ai.tool.name": tool}
                self._active.add(1, labels)
            case _:
                pass

    # ---- requests -------------------------------------------------------------------

    def _begin(self, event: RequestBegan) -> None:
        labels: dict[str, Any] = {
            "mcp.method.name": event.method if event.is_offered else "_OTHER",
            "mcp.protocol.version": event.revision,
            "network.transport": "tcp" if event.is_http else "pipe",
        }
        if event.feature is not None and event.method != "resources/read":
            labels |= attributes_of(event.method, event.feature)
        if is_idle(self._provider):
            # Metrics may be recorded without traces.
            self._open[event.number] = _Open(trace.INVALID_SPAN, labels)
            return
        around = contexts.get_current()
        ambient = trace.get_current_span(around).get_span_context()
        parent = context_in(event.meta, contexts.Context())
        links = []
        if trace.get_current_span(parent).get_span_context().is_valid:
            if ambient.is_valid:
                links.append(Link(ambient, {LINK: "transport"}))
        elif ambient.is_valid:
            parent = around
        first = span_of(event.meta.get(TRACE_LINK))
        if first is not None:
            links.append(Link(first, {LINK: "the client's first round"}))
        span = self._tracer.start_span(
            self._name_of(event),
            parent,
            SpanKind.SERVER,
            attributes=_attributes(event),
            links=links,
        )
        self._open[event.number] = _Open(span, labels)
        event.context.run(contexts.attach, trace.set_span_in_context(span, parent))
        event.context.run(TRACE.set, traceparent_of(span))

    def _name_of(self, event: RequestBegan) -> str:
        # A stranger may send any names, and there must not be any number of them.
        method = event.method if event.is_offered else "_OTHER"
        is_named = event.feature is not None and (
            self._uris or event.method != "resources/read"
        )
        return f"{method} {event.feature}" if is_named else method

    def _end(self, event: RequestEnded) -> None:
        open_ = self._open.pop(event.number, None)
        if open_ is None:
            return  # it began before there was this observer
        labels, span = open_.labels, open_.span
        error = _error_of(event)
        if error is not None:
            labels["error.type"] = error
        self._durations.record(event.seconds, labels)
        for step in open_.steps.values():
            step.end()  # the request was cut off
        if not span.is_recording():
            span.end()
            return
        span.set_attribute("effectmcp.outcome", event.outcome)
        span.set_attribute("effectmcp.response.size", event.size)
        if event.code is not None:
            span.set_attribute("rpc.response.status_code", str(event.code))
        if event.error is not None:
            span.set_attribute("effectmcp.error", event.error)
        if error is not None:
            span.set_attribute("error.type", error)
            # Without its message, which may repeat what the client sent.
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    # ---- flows ----------------------------------------------------------------------

    def _begin_round(self, event: RoundBegan) -> None:
        open_ = self._open.get(event.number)
        if open_ is None or not open_.span.is_recording():
            return
        open_.span.set_attribute("effectmcp.flow.id", event.flow_id)
        open_.span.set_attribute("effectmcp.round", event.round)
        if not event.is_first:
            first = span_of(event.first_trace)
            if first is not None:
                open_.span.add_link(first, {LINK: "first round"})

    def _end_round(self, event: RoundEnded) -> None:
        if event.outcome == "asked":
            self._states.record(event.state_size)
        elif event.outcome != "dropped":
            self._rounds.record(event.round, {"effectmcp.outcome": event.outcome})
        if event.asked_again:
            self._again.add(event.asked_again)
        open_ = self._open.get(event.number)
        if open_ is not None and event.asked and open_.span.is_recording():
            open_.span.set_attribute("effectmcp.asked", event.asked)
            open_.span.set_attribute("effectmcp.state.size", event.state_size)

    def _refuse(self, event: RoundRefused) -> None:
        reason = getattr(event.error, "reason", None)
        if reason is None:
            self._divergences.add(1, {"effectmcp.outcome": "refused"})
        else:
            self._refused.add(1, {"effectmcp.reason": reason})
        open_ = self._open.get(event.number)
        if open_ is not None:
            open_.span.set_attribute("effectmcp.refused", reason or "divergence")

    # ---- steps ----------------------------------------------------------------------

    def _begin_step(self, event: StepBegan) -> None:
        owner = event.number if event.task is None else event.task
        open_ = None if owner is None else self._open.get(owner)
        if open_ is None or is_idle(self._provider):
            return
        # The request's span, or a span that the handler has opened since.
        parent = event.context.run(contexts.get_current)
        attributes = {"effectmcp.flow.id": event.flow_id, "effectmcp.key": event.key}
        span = self._tracer.start_span(event.name, parent, attributes=attributes)
        open_.steps[event.key] = span
        event.context.run(contexts.attach, trace.set_span_in_context(span, parent))

    def _end_step(self, event: StepPerformed) -> None:
        owner = event.number if event.task is None else event.task
        open_ = None if owner is None else self._open.get(owner)
        span = None if open_ is None else open_.steps.pop(event.key, None)
        if span is None:
            return
        if event.error is not None:
            # Without its message, which may contain anything.
            error = type(event.error).__qualname__
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    # ---- tasks ----------------------------------------------------------------------

    def _begin_turn(self, event: TurnBegan) -> None:
        if is_idle(self._provider):
            self._open[event.task] = _Open(trace.INVALID_SPAN)
            return
        first = span_of(event.first_trace)
        root = contexts.Context()
        span = self._tracer.start_span(
            f"task {event.tool}",
            root,
            SpanKind.CONSUMER,
            attributes={
                "gen_ai.tool.name": event.tool,
                "effectmcp.task.id": event.task,
                "effectmcp.flow.id": event.flow_id,
            },
            links=[] if first is None else [Link(first, {LINK: "first round"})],
        )
        self._open[event.task] = _Open(span)
        event.context.run(contexts.attach, trace.set_span_in_context(span, root))

    def _end_turn(self, event: TurnEnded) -> None:
        open_ = self._open.pop(event.task, None)
        if open_ is None:
            return
        for step in open_.steps.values():
            step.end()  # the turn was cut off
        open_.span.set_attribute("effectmcp.task.status", event.status)
        if event.status in ("failed", "parked"):
            open_.span.set_attribute("error.type", event.status)
            open_.span.set_status(Status(StatusCode.ERROR))
        open_.span.end()
        if event.status in (event.was, "dropped"):
            return
        of = {"gen_ai.tool.name": event.tool}
        self._active.add(-1, {"effectmcp.task.status": event.was, **of})
        labels = {"effectmcp.task.status": event.status, **of}
        if event.status in ("completed", "failed", "cancelled"):
            self._ended.add(1, labels)
        else:
            self._active.add(1, labels)


def _attributes(event: RequestBegan) -> dict[str, Any]:
    found = attributes_of(event.method, event.target)
    found["jsonrpc.request.id"] = str(event.id)
    found["mcp.protocol.version"] = event.revision
    found["network.transport"] = "tcp" if event.is_http else "pipe"
    found["effectmcp.request.size"] = event.size
    if event.is_http:
        found["network.protocol.name"] = "http"
    if event.session is not None:
        # Not the id in the header: who has that, has the session.
        found["mcp.session.id"] = str(event.session)
    return found


def _error_of(event: RequestEnded) -> str | None:
    """Return the class of a failure, as the conventions define it."""
    match event.outcome:
        case "error":
            return str(event.code)
        case "failed":
            return "tool_error"
        case "dropped":
            return "cancelled"
        case _:
            return None
