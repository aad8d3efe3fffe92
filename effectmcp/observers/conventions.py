"""The common parts of `telemetry` and `client_telemetry`.

The names are from the semantic conventions for MCP, which are in development:
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/. Other names begin with
`effectmcp.`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..canonical import JSON
from ..errors import UsageError

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.propagate import extract, inject
    from opentelemetry.trace import (
        NoOpTracerProvider,
        ProxyTracerProvider,
        Span,
        SpanContext,
        TracerProvider,
    )
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )
except ModuleNotFoundError as exc:
    if (exc.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise UsageError(
        "traces and metrics need a package more: pip install 'effectmcp[otel]'"
    ) from None

__all__ = [
    "DURATIONS",
    "LINK",
    "TRACE_LINK",
    "attributes_of",
    "context_in",
    "counts_nothing",
    "is_idle",
    "sendable",
    "span_of",
    "traceparent_of",
]

#: The key in `_meta` of a later round: the trace context of the first one.
TRACE_LINK: Final = "io.modelcontextprotocol/tracelink"

#: The attribute with the reason of a link.
LINK: Final = "effectmcp.link"

#: Boundaries of durations, in seconds, as the conventions propose them.
DURATIONS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

#: The keys in `_meta` that carry a context (2026-07-28, `_meta`, OpenTelemetry).
_KEYS: Final = ("traceparent", "tracestate", "baggage")

#: Characters of a baggage: headers have the same limit (W3C Baggage, Limits).
_LONGEST: Final = 8_192

#: Characters of a client's text in an attribute.
_LONGEST_TEXT: Final = 200

_parent: Final = TraceContextTextMapPropagator()


def is_idle(given: TracerProvider | None) -> bool:
    """Return whether no span would be recorded: no SDK has been installed yet."""
    provider = trace.get_tracer_provider() if given is None else given
    return isinstance(provider, _IDLE_TRACES)


def counts_nothing(given: metrics.MeterProvider | None) -> bool:
    """Return whether no metric would be recorded."""
    provider = metrics.get_meter_provider() if given is None else given
    # The API's provider that waits for an SDK has no public name.
    return type(provider).__module__.startswith(_API)


_IDLE_TRACES: Final = (ProxyTracerProvider, NoOpTracerProvider)
_API: Final = "opentelemetry.metrics"


def context_in(meta: Mapping[str, JSON], base: Context) -> Context:
    """Return the context that a `_meta` carries; `base` if it carries none.

    Values of another form are ignored.
    """
    carrier = {
        key: value
        for key, is_well_formed in _FORMS.items()
        if isinstance(value := meta.get(key), str) and is_well_formed(value)
    }
    return extract(carrier, base) if carrier else base


def _is_parent(value: str) -> bool:
    return len(value) <= _LONGEST_TEXT and _PARENT.fullmatch(value) is not None


def _is_state(value: str) -> bool:
    members = value.split(",")
    return (
        len(value) <= 512
        and len(members) <= 32
        and all(_STATE.fullmatch(one.strip(" \t")) for one in members)
    )


def _is_baggage(value: str) -> bool:
    members = value.split(",")
    return (
        len(value) <= _LONGEST
        and len(members) <= 180
        and all(len(one) <= 4_096 and _BAGGAGE.fullmatch(one) for one in members)
    )


#: The forms of these values (W3C Trace Context, W3C Baggage). The API checks them, too,
#: but it logs what has another form: a stranger could fill the log.
_FORMS: Final[Mapping[str, Callable[[str], bool]]] = {
    "traceparent": _is_parent,
    "tracestate": _is_state,
    "baggage": _is_baggage,
}
_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_STATE: Final = re.compile(
    r"([a-z][-_*/0-9a-z]{0,255}|[a-z0-9][-_*/0-9a-z]{0,240}@[a-z][-_*/0-9a-z]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_TOKEN: Final = r"[ \t]*[!#-'*+.0-9A-Z^-z|~-]+[ \t]*"
_VALUE: Final = r"[ \t]*([!#-+\--:<-\[\]-~]+[ \t]*)?"
_BAGGAGE: Final = re.compile(f"{_TOKEN}={_VALUE}(;{_TOKEN}(={_VALUE})?)*")


def sendable() -> dict[str, str]:
    """Return the keys of `_meta` that carry the current context."""
    carrier: dict[str, str] = {}
    inject(carrier)
    return {key: value for key, value in carrier.items() if key in _KEYS}


def span_of(traceparent: object) -> SpanContext | None:
    """Return the span that a W3C trace context names; `None` if it names none."""
    if not isinstance(traceparent, str) or len(traceparent) > _LONGEST_TEXT:
        return None
    context = _parent.extract({"traceparent": traceparent}, Context())
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def traceparent_of(span: Span) -> str | None:
    """Return the W3C trace context of a span; `None` if it is not valid."""
    carrier: dict[str, str] = {}
    _parent.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def attributes_of(method: str, target: str | None) -> dict[str, Any]:
    """Return the attributes that say what a request is about."""
    found: dict[str, Any] = {"mcp.method.name": method[:_LONGEST_TEXT]}
    if target is None:
        return found
    match method.partition("/")[0]:
        case "tools":
            found["gen_ai.tool.name"] = target[:_LONGEST_TEXT]
            found["gen_ai.operation.name"] = "execute_tool"
        case "prompts":
            found["gen_ai.prompt.name"] = target[:_LONGEST_TEXT]
        case "resources":
            found["mcp.resource.uri"] = target[:_LONGEST_TEXT]
        case "tasks":
            found["effectmcp.task.id"] = target[:_LONGEST_TEXT]
        case _:
            pass
    return found
