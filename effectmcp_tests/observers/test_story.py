"""One story: a flow of three rounds over two processes, its client, and its task.

The picture of it in `docs/observability.md` is drawn from what a collector received.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from effectmcp.client import Client, OverHttp, Pending
from effectmcp.client.results import Result
from effectmcp.observers.client_telemetry import ClientTelemetry
from effectmcp.state import make_key

from .otlp import Collected, Collector, collecting

PAGE = Path(__file__).parents[2] / "docs/observability.md"
SERVER = f"{Path(__file__).parent / 'story_server.py'}:app"


@contextmanager
def serving(name: str, tasks: Path, collector: Collector, key: str) -> Iterator[str]:
    """Serve the story's server in a process; return its URL."""
    command = [sys.executable, "-m", "effectmcp", "serve", SERVER]
    process = subprocess.Popen(
        [*command, "--http", "127.0.0.1:0", "--tasks", str(tasks)],
        env={
            **os.environ,
            "EFFECTMCP_STATE_KEYS": key,
            "OTEL_SERVICE_NAME": name,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", line):
                yield found[0]
                break
        else:
            raise AssertionError("it does not start")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def told(collector: Collector, tmp_path: Path) -> None:
    """Have the story happen."""
    key = make_key(bytes(range(32)))
    provider = TracerProvider(resource=Resource.create({"service.name": "client"}))
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = ClientTelemetry(tracer_provider=provider)

    async def main(one: str, two: str) -> None:
        pending: Pending | Result | None = None
        # The first two rounds reach one process, and the third reaches the other, from
        # another client: nothing is kept but what the client has stored.
        for url, content in (
            (one, None),
            (one, {"value": "Rome"}),
            (two, {}),
        ):
            async with Client(
                OverHttp(url),
                version="2026-07-28",
                tracing=tracing,
                elicit=lambda form: {},
            ) as client:
                if pending is None:
                    params = {"name": "order", "arguments": {"title": "Emma"}}
                    steps = client.start("tools/call", params)
                    pending = await steps.round()
                    continue
                assert isinstance(pending, Pending)
                (asked,) = pending.questions
                answers = {asked: {"action": "accept", "content": content}}
                again = Pending.from_json(pending.to_json())
                steps = client.resume(again)
                pending = await steps.round(answers)
                assert isinstance(pending, Pending)
                if pending.task is not None:
                    with trio.fail_after(60):
                        result = await steps.finish()
                    assert result.text == "a copy of Emma is on its way"

    tasks = tmp_path / "tasks.db"
    with (
        serving("shop-1", tasks, collector, key) as one,
        serving("shop-2", tasks, collector, key) as two,
    ):
        trio.run(main, one, two)
    provider.shutdown()


def drawn(spans: list[Collected]) -> str:
    """Draw spans as a tree, with their links: without lists, and with the last poll only."""
    spans = [one for one in spans if one.name != "tools/list"]
    known = {one.id: one for one in spans}
    rounds = [one for one in spans if one.attributes.get("effectmcp.round") == 1]
    (first,) = rounds
    lines: list[str] = []

    def name_of(one: Collected) -> str:
        number = one.attributes.get("effectmcp.round")
        return f"{one.name}, round {number}" if number else one.name

    def lines_of_task(one: Collected) -> bool:
        at = known.get(one.parent)
        return at is not None and (at.name == "task order" or lines_of_task(at))

    def draw(one: Collected, depth: int) -> None:
        head = f"{'   ' * depth}{name_of(one)}"
        # Any of the two may run the task.
        of_task = one.name == "task order" or lines_of_task(one)
        service = "a shop" if of_task else one.service
        line = f"{service:<8}{head:<36}"
        to = [known[id_] for _, id_, _ in one.links]
        if first in to:
            line += " ─▶ round 1"
        elif to:
            line += " ─▶ the client's first request"
        lines.append(line.rstrip())
        for child in sorted(spans, key=lambda each: each.began):
            if child.parent == one.id:
                draw(child, depth + 1)

    roots = [one for one in spans if one.parent not in known]
    polls = [one for one in roots if one.name == "tasks/get"]
    # A client polls as often as it takes: the last time is enough.
    kept = [one for one in roots if one not in polls[:-1]]
    for root in sorted(kept, key=lambda one: one.began):
        draw(root, 0)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with collecting() as found:
        told(found, tmp_path_factory.mktemp("story"))
        yield found


def test_the_picture_shows_the_collected_spans(collector: Collector) -> None:
    (shown,) = re.findall(r"```text\n(client .*?)\n```", PAGE.read_text(), re.DOTALL)
    assert drawn(collector.spans) == shown


def test_it_is_one_story(collector: Collector) -> None:
    """From each span, parents and links lead to the client's first request."""
    known = {one.id: one for one in collector.spans}
    (first,) = [
        one for one in collector.spans if one.service == "client" and not one.links
    ]
    assert first.name == "tools/call order"
    for one in collector.spans:
        at, seen = one, set()
        while at.id != first.id:
            assert at.id not in seen
            seen.add(at.id)
            linked = [known[id_] for _, id_, _ in at.links]
            at = linked[-1] if linked else known[at.parent]


def test_metrics_arrive(collector: Collector) -> None:
    assert collector.metrics >= {
        "mcp.server.operation.duration",
        "effectmcp.flow.rounds",
        "effectmcp.state.size",
        "effectmcp.questions",
        "effectmcp.tasks.active",
        "effectmcp.tasks.ended",
    }
