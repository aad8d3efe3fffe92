"""Traces and metrics of a client, for OpenTelemetry.

    async with Client(OverHttp(url), tracing=ClientTelemetry()) as client: ...

Each request has a span, whose context travels in `_meta`. The spans of later rounds of a
call, and of the requests about its task, link to the span of its first request; their
`_meta` names that one, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define

from .. import __version__
from ..canonical import JSON
from ..errors import ProtocolError
from .conventions import (  # first: its error names the missing extra
    DURATIONS,
    LINK,
    TRACE_LINK,
    attributes_of,
    is_idle,
    sendable,
    span_of,
    traceparent_of,
)

from opentelemetry import context as contexts  # isort: skip
from opentelemetry import metrics, trace  # isort: skip
from opentelemetry.metrics import Histogram, MeterProvider  # isort: skip
from opentelemetry.trace import (  # isort: skip
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)

__all__ = ["ClientTelemetry"]

_NAME = "effectmcp"


@define(eq=False)
class _Request:
    """A request whose span is open."""

    meta: Mapping[str, JSON]
    trace: str | None
    _span: Span
    _labels: dict[str, Any]
    _durations: Histogram
    _began: float
    _clock: Callable[[], float]

    def end(self, result: JSON, error: BaseException | None) -> None:
        """End the span, and record the duration."""
        problem = _error_of(result, error)
        if problem is not None:
            self._labels["error.type"] = problem
        self._durations.record(self._clock() - self._began, self._labels)
        span = self._span
        if problem is not None:
            span.set_attribute("error.type", problem)
            # Without its message, which may repeat what the client sent.
            span.set_status(Status(StatusCode.ERROR))
        if isinstance(error, ProtocolError):
            span.set_attribute("rpc.response.status_code", str(error.code))
        span.end()


class ClientTelemetry:
    """A `ClientTracing` that makes spans and metrics of requests.

    Args:
        tracer_provider: Where spans go; by default, to the provider of the process.
        meter_provider: Where metrics go; by default, to the provider of the process.
        clock: Returns seconds.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = tracer_provider
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        self._clock = clock
        meter = metrics.get_meter(_NAME, __version__, meter_provider)
        self._durations = meter.create_histogram(
            "mcp.client.operation.duration",
            "s",
            "Duration of requests.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )

    def begin(
        self,
        method: str,
        params: Mapping[str, JSON],
        *,
        version: str,
        first: str | None,
        is_http: bool,
    ) -> _Request:
        """Begin the span of a request; see `ClientTracing`."""
        target = _target_of(params)
        is_uri = method.startswith(("resources/", "tasks/"))
        labels = attributes_of(method, None if is_uri else target)
        labels["mcp.protocol.version"] = version
        labels["network.transport"] = "tcp" if is_http else "pipe"
        began = self._clock()
        if is_idle(self._provider):
            # A trace may come from elsewhere, and is passed on.
            span: Span = trace.INVALID_SPAN
            meta: dict[str, JSON] = {**sendable()}
            passed = meta.get("traceparent")
            parent = passed if isinstance(passed, str) else None
            return self._made(meta, parent, span, labels, began)
        linked = span_of(first)
        span = self._tracer.start_span(
            method if is_uri or target is None else f"{method} {target}",
            kind=SpanKind.CLIENT,
            attributes=attributes_of(method, target) | labels,
            links=[] if linked is None else [Link(linked, {LINK: "first round"})],
        )
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            meta = {**sendable()}
        finally:
            contexts.detach(token)
        if linked is not None:
            meta[TRACE_LINK] = first
        return self._made(meta, traceparent_of(span), span, labels, began)

    def _made(
        self,
        meta: Mapping[str, JSON],
        traced: str | None,
        span: Span,
        labels: dict[str, Any],
        began: float,
    ) -> _Request:
        return _Request(meta, traced, span, labels, self._durations, began, self._clock)


def _target_of(params: Mapping[str, JSON]) -> str | None:
    for name in ("name", "uri", "taskId"):
        found = params.get(name)
        if isinstance(found, str):
            return found
    return None


def _error_of(result: JSON, error: BaseException | None) -> str | None:
    """Return the class of a failure, as the conventions define it."""
    if isinstance(error, ProtocolError):
        return str(error.code)
    if error is not None:
        return type(error).__qualname__
    is_failed = isinstance(result, dict) and result.get("isError") is True
    return "tool_error" if is_failed else None
