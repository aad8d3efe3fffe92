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
from tempfile import TemporaryDirectory

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

from .otlp import Collector, collecting
from .picture import drawn, rows_of

PICTURE = Path(__file__).parents[2] / "docs/story.svg"
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


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with collecting() as found:
        told(found, tmp_path_factory.mktemp("story"))
        yield found


def test_the_picture_shows_the_collected_spans(collector: Collector) -> None:
    """Write it again with `python -m effectmcp_tests.observers.test_story`."""
    assert drawn(rows_of(collector.spans)) == PICTURE.read_text()


def test_it_is_one_story(collector: Collector) -> None:
    """From each span, parents and links lead to the client's first request."""
    spans = [one for one in collector.spans if one.name != "tools/list"]
    known = {one.id: one for one in spans}
    (first,) = [
        one
        for one in spans
        if one.name == "tools/call order" and not one.parent and not one.links
    ]
    for one in spans:
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


def main() -> None:
    """Draw the picture again."""
    with collecting() as found, TemporaryDirectory() as folder:
        told(found, Path(folder))
        PICTURE.write_text(drawn(rows_of(found.spans)))


if __name__ == "__main__":
    main()
