"""Measure what it costs that a request counts once: in memory, in a file, and not at all.

One conversation has nine rounds, each with one question. The same server answers it three
times in turns: with a plain tool, with `single_use=True` and a ledger in memory, and with
a ledger in a file. Prints the CPU time and the time of a round, and the fsyncs that a
round needs. Compare only the ratios of one run.

    python -m benchmarks.once
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from effectmcp import Elicit, Flow
from effectmcp.drivers.sync import handle
from effectmcp.server import Server
from effectmcp.state import Keys, make_key
from effectmcp.tasks import SqliteTasks

ROUNDS = 9
TURNS = 60
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def guests() -> Flow[str]:
    names = []
    for number in range(ROUNDS):
        names.append((yield from Elicit(f"Who is guest {number}?", str)))
    return ", ".join(names)


def app_of(ledger: SqliteTasks | None) -> Server:
    """A server with one tool, which counts its requests if there is a ledger."""
    app = Server("table", keys=Keys(make_key(bytes(32))), ledger=ledger)
    app.tool(name="guests", single_use=ledger is not None)(guests)
    return app


def talk(app: Server) -> tuple[float, float]:
    """Hold the conversation; return the CPU time and the time of a round, in µs."""
    params: dict[str, Any] = {"name": "guests", "arguments": {}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    result: Any = handle(app, message).message
    cpu, clock = time.process_time(), time.perf_counter()
    for _ in range(ROUNDS):
        fields = result["result"]
        (key,) = fields["inputRequests"]
        params["requestState"] = fields["requestState"]
        params["inputResponses"] = {
            key: {"action": "accept", "content": {"value": "Ann"}}
        }
        result = handle(app, message).message
    assert result["result"]["content"], "it has ended"
    spent = time.process_time() - cpu, time.perf_counter() - clock
    return spent[0] / ROUNDS * 1e6, spent[1] / ROUNDS * 1e6


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        ledgers = {
            "not counted": None,
            "counted in memory": SqliteTasks(),
            "counted in a file": SqliteTasks(Path(folder) / "once.db"),
        }
        apps = {name: app_of(ledger) for name, ledger in ledgers.items()}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in apps}
        for turn in range(TURNS):
            for name, app in apps.items():
                found = talk(app)
                if turn:  # the first one opens the ledger
                    times[name].append(found)
        for ledger in ledgers.values():
            if ledger is not None:
                ledger.close()
    figures = {
        name: {
            "cpu": round(min(cpu for cpu, _ in found)),
            "median": round(statistics.median(clock for _, clock in found)),
        }
        for name, found in times.items()
    }
    base = figures["not counted"]
    print(f"{'a round':22} {'best CPU µs':>12} {'ratio':>6} {'median µs':>10}")
    for name, figure in figures.items():
        ratio = figure["cpu"] / base["cpu"]
        print(f"{name:22} {figure['cpu']:12} {ratio:6.1f} {figure['median']:10}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
