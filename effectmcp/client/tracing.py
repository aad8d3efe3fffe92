"""The interface of a tracer of requests, and the trace that a call carries. No I/O.

A `ClientTracing` is for traces and metrics; `effectmcp.observers.client_telemetry` has one
for OpenTelemetry. The requests of one call form a trail: each request after the first
names the first one in its `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import define

from ..canonical import JSON

__all__ = ["ClientTracing", "TracedRequest", "Trail"]


@define(eq=False)
class Trail:
    """The requests of one call.

    Attributes:
        first: The W3C trace context of the first request; `None` before it.
    """

    first: str | None = None


class TracedRequest(Protocol):
    """Interface of a request that is traced.

    Attributes:
        meta: The keys of `_meta` that the request carries.
        trace: Its W3C trace context; `None` if it has none.
    """

    meta: Mapping[str, JSON]
    trace: str | None

    def end(self, result: JSON, error: BaseException | None) -> None:
        """Note that the request has ended.

        Args:
            result: Its result; `None` after an error.
            error: The error that was raised; `None` after a result.
        """


class ClientTracing(Protocol):
    """Interface of what traces the requests of a client."""

    def begin(
        self,
        method: str,
        params: Mapping[str, JSON],
        *,
        version: str,
        first: str | None,
        is_http: bool,
    ) -> TracedRequest:
        """Note that a request begins.

        Args:
            method: Its method.
            params: Its parameters, without `_meta`.
            version: The revision that the client speaks.
            first: The trace context of the first request of the same call; `None` if this
                is the first one.
            is_http: Whether it goes over HTTP.
        """
        ...
