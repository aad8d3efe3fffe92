"""Observers that servers need often: traces and metrics, and an audit log.

    Server("shop", observers=[Telemetry(), AuditLog("audit.jsonl")])

`Telemetry` is for OpenTelemetry; `effectmcp.observers.telemetry` and its counterpart for
clients are the only modules that import it.
"""
