"""The server of the story in `docs/observability.md`. Two processes serve it.

It sends what it records to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names.
"""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from effectmcp import Confirm, Detach, Elicit, Flow, Server, step
from effectmcp.observers.telemetry import Telemetry

traces = TracerProvider()
traces.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(traces)
metrics.set_meter_provider(
    MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
)

app = Server("shop", observers=[Telemetry()])


@step
def reserve(title: str) -> str:
    """Reserve a book."""
    return f"a copy of {title}"


@step
def ship(copy: str) -> str:
    """Ship a copy."""
    with trace.get_tracer("carrier").start_as_current_span("label"):
        return f"{copy} is on its way"


@app.tool
def order(title: str) -> Flow[str]:
    """Order a book."""
    yield from Elicit("Where to?", str, key="where")
    copy = yield from reserve(title)
    yield from Confirm("Buy it?", key="sure")
    yield from Detach()
    return (yield from ship(copy))
