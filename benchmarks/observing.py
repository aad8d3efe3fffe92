"""Measure the cost of watching and guarding a round over HTTP.

The servers are the one of `benchmarks.http`, on trio: without observers, and each with
one more thing. The same round is repeated as there, in turns of random order; the ratio
is to the server without observers in the same turn.

    python -m benchmarks.observing
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from operator import truediv
from typing import Any

import trio
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from effectmcp import Call, Intercepting
from effectmcp.guards import limit_open, limit_rate
from effectmcp.observers.audit import AuditLog
from effectmcp.observers.telemetry import Telemetry
from effectmcp.server import Server
from effectmcp.transports import http

from .http import Asker, in_turns, round_with_answers, shop


def passes(call: Call) -> Intercepting:
    return (yield from call)


def plain(app: Server) -> None:
    """Add nothing."""


def with_idle_telemetry(app: Server) -> None:
    """OpenTelemetry, with providers that do nothing."""
    none: dict[str, Any] = {
        "tracer_provider": NoOpTracerProvider(),
        "meter_provider": NoOpMeterProvider(),
    }
    app.observers = (Telemetry(**none),)


def with_telemetry(app: Server) -> None:
    """OpenTelemetry's SDK, which records and sends nowhere."""
    sdk: dict[str, Any] = {
        "tracer_provider": TracerProvider(shutdown_on_exit=False),
        "meter_provider": MeterProvider(shutdown_on_exit=False),
    }
    app.observers = (Telemetry(**sdk),)


def with_observer(app: Server) -> None:
    """An observer that does nothing."""
    app.observers = (lambda event: None,)


def with_audit(app: Server) -> None:
    """The audit log, to a file."""
    app.observers = (AuditLog(f"{tempfile.mkdtemp()}/audit.jsonl"),)


def with_interceptor(app: Server) -> None:
    """An interceptor that passes the call on."""
    app.intercept(passes)


def with_limits(app: Server) -> None:
    """Both limits."""
    app.intercept(limit_open(10))
    app.intercept(limit_rate(1e9))


def with_tap(app: Server) -> None:
    """A tap that does nothing."""
    app.taps = (lambda message: None,)


SERVERS: dict[str, Callable[[Server], None]] = {
    "nothing": plain,
    "nothing, once more": plain,
    "Telemetry, no-op providers": with_idle_telemetry,
    "Telemetry, the SDK": with_telemetry,
    "an observer": with_observer,
    "AuditLog": with_audit,
    "an interceptor": with_interceptor,
    "limit_open and limit_rate": with_limits,
    "a tap": with_tap,
}


async def serve(
    listener: trio.SocketListener, *, add: Callable[[Server], None]
) -> None:
    app = shop()
    add(app)
    await http.serve(app, listeners=[listener])


def main() -> None:
    servers = {name: Asker(partial(serve, add=add)) for name, add in SERVERS.items()}
    requests = {name: round_with_answers(one, 3) for name, one in servers.items()}
    times = in_turns(servers, requests)
    ratios = {
        name: statistics.median(map(truediv, found, times["nothing"]))
        for name, found in times.items()
    }
    print(f"{'':28} {'best µs':>8} {'median':>7} {'ratio':>6}")
    for name, found in times.items():
        print(
            f"{name:28} {min(found):8.1f} {statistics.median(found):7.1f}"
            f" {ratios[name]:6.3f}"
        )
    rounded = {name: round(one, 3) for name, one in ratios.items()}
    print(json.dumps({"benchmark": "observing", "ratio": rounded}))


if __name__ == "__main__":
    main()
