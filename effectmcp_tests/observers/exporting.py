"""The exports of OpenTelemetry's SDK, kept in memory."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from attrs import define, field
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

__all__ = [
    "Exporting",
    "Point",
    "id_of",
    "link_of",
    "parent_of",
    "span_in",
    "traceparent",
]

#: A point of a metric: its attributes, and its value; of a histogram, count and sum.
Point: TypeAlias = tuple[dict[str, Any], Any]


@define(eq=False)
class Exporting:
    """Providers of traces and metrics, and what went there."""

    traces: TracerProvider = field(factory=TracerProvider)
    metrics: MeterProvider = field(init=False)
    _spans: InMemorySpanExporter = field(factory=InMemorySpanExporter)
    _reader: InMemoryMetricReader = field(factory=InMemoryMetricReader)

    def __attrs_post_init__(self) -> None:
        self.traces.add_span_processor(SimpleSpanProcessor(self._spans))
        self.metrics = MeterProvider([self._reader])

    @property
    def providers(self) -> dict[str, Any]:
        """The providers, as `Telemetry` and `ClientTelemetry` take them."""
        return {"tracer_provider": self.traces, "meter_provider": self.metrics}

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order of their ends."""
        return list(self._spans.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        """The only span of a name."""
        (found,) = [one for one in self.spans if one.name == name]
        return found

    def forget(self) -> None:
        """Forget the spans so far."""
        self._spans.clear()

    def points(self) -> dict[str, list[Point]]:
        """The points of all metrics, by the name of the metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: [_point(one) for one in metric.data.data_points]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def text(self) -> str:
        """Everything that would be exported: of what is not ASCII, the escapes."""
        data = self._reader.get_metrics_data()
        spans = [json.loads(one.to_json()) for one in self.spans]
        return json.dumps(spans) + ("" if data is None else data.to_json())


def _point(one: Any) -> Point:
    attributes = dict(one.attributes)
    if hasattr(one, "value"):
        return attributes, one.value
    return attributes, (one.count, one.sum)


def id_of(span: ReadableSpan | SpanContext) -> tuple[int, int]:
    """The ids of a span."""
    context = span if isinstance(span, SpanContext) else span.context
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """The ids of the parent of a span."""
    return None if span.parent is None else id_of(span.parent)


def link_of(span: ReadableSpan) -> dict[str, tuple[int, int]]:
    """The links of a span: where they lead, by their reason."""
    return {
        str((one.attributes or {})["effectmcp.link"]): id_of(one.context)
        for one in span.links
    }


def traceparent(number: int) -> tuple[str, tuple[int, int]]:
    """A trace context as clients send it, and the ids in it."""
    ids = number + 2**100, number + 2**50
    return f"00-{ids[0]:032x}-{ids[1]:016x}-01", ids


def span_in(number: int) -> trace.Span:
    """The span that `traceparent` names."""
    _, (trace_id, span_id) = traceparent(number)
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    return trace.NonRecordingSpan(
        SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    )
