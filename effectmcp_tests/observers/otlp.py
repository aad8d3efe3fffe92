"""A collector: it takes what exporters of OpenTelemetry send over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

__all__ = ["Collected", "Collector", "collecting"]


@define
class Collected:
    """A span.

    Attributes:
        service: The service that sent it.
        name: Its name.
        kind: Its kind, as the protocol numbers it.
        trace: The id of its trace.
        id: Its id.
        parent: The id of its parent; empty for a root.
        links: The traces and ids of the spans that it links to, with the reason.
        attributes: Its attributes.
        began: When it began, in nanoseconds.
    """

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str, str]]
    attributes: dict[str, Any]
    began: int


@define(eq=False)
class Collector:
    """The spans and metrics that were received."""

    url: str = ""
    spans: list[Collected] = field(factory=list)
    metrics: set[str] = field(factory=set)

    def take_spans(self, body: bytes) -> None:
        """Take the body of a request with spans."""
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            service = _plain(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_span(service, one) for one in scope.spans]

    def take_metrics(self, body: bytes) -> None:
        """Take the body of a request with metrics."""
        message = ExportMetricsServiceRequest.FromString(body)
        for resource in message.resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics |= {one.name for one in scope.metrics}


def _span(service: str, one: Any) -> Collected:
    return Collected(
        service=service,
        name=one.name,
        kind=one.kind,
        trace=one.trace_id.hex(),
        id=one.span_id.hex(),
        parent=one.parent_span_id.hex(),
        links=[
            (
                link.trace_id.hex(),
                link.span_id.hex(),
                _plain(link.attributes).get("effectmcp.link", ""),
            )
            for link in one.links
        ],
        attributes=_plain(one.attributes),
        began=one.start_time_unix_nano,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                collector.take_spans(body)
            else:
                collector.take_metrics(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
