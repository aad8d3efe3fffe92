"""One server of asyncio's libraries, as a process in each host: the same results.

Our own client calls them, and the SDK's. Rounds cross restarts of the process;
cancellations and time-outs arrive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from mcp import StdioServerParameters

from effectmcp.client import Channel, OverHttp, OverPipes
from effectmcp.drivers.loops import run

from ..cli.test_serve import serving
from ..transports.shop import request
from .hosts import Caller, Own, Wire, Writing, session_of

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
DEPOT = str(Path(__file__).with_name("depot.py"))
ENVIRONMENT = {**os.environ, "EFFECTMCP_STATE_KEYS": KEY, "THEIR_KEY": KEY}
#: A process on standard input and output, by host.
PIPES = {
    "serve": [sys.executable, "-m", "effectmcp", "serve", f"{DEPOT}:app"],
    "run": [sys.executable, DEPOT, "own"],
    "fastmcp": [sys.executable, DEPOT, "fastmcp"],
    "sdk": [sys.executable, DEPOT, "sdk"],
}
#: Other servers start slowly; what is not about processes is tested in this one.
HOSTS = [
    "serve",
    *(pytest.param(one, marks=pytest.mark.conformance) for one in ("fastmcp", "sdk")),
]
ANSWERS = {
    "in which currency": "EUR",
    "First": "half",
    "Second": "way",
    "How many more": 2,
}


class _Price(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"12")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def prices() -> Iterator[str]:
    """A web server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Price)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def writes(question: Wire) -> Wire:
    message = question["params"]["message"]
    found = [value for begin, value in ANSWERS.items() if begin in message]
    return {"action": "accept", "content": {"value": found[0]} if found else {}}


async def results(caller: Caller, prices: str, path: Path) -> list[str]:
    """Call all tools but `wait`."""
    found = []
    for name, arguments in (
        ("price", {"url": prices}),
        ("stock", {"title": "Dune"}),
        ("note", {"path": str(path / "note")}),
        ("count", {"number": 40}),
        ("slow", {"seconds": 60}),
        ("slow", {"seconds": 0}),
        ("price", {"uri": prices}),
    ):
        result = await caller.call(name, dict(arguments))
        text = result["content"][0]["text"]
        found.append(f"{name}: {text} {result.get('isError', False)}")
    assert (path / "note").read_text() == "halfway"
    return found


EXPECTED = [
    "price: 12 EUR False",
    "stock: Dune 4 on one of two False",
    "note: 7 False",
    "count: 42 (0) False",
    "slow: slow took too long, and was ended. True",
    "slow: done False",
    (
        "price: The arguments do not fit: url: is required; uri: is not known here; did"
        " you mean url? True"
    ),
]


async def with_ours(channel: Channel, version: str, prices: str, path: Path) -> Any:
    async with Writing(channel, writes=writes, version=version) as client:
        return await results(Own(client), prices, path)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("host", [*HOSTS, "run"])
def test_processes_on_pipes(
    host: str, version: str, prices: str, tmp_path: Path
) -> None:
    async def main() -> Any:
        if version == "2026-07-28":
            channel = OverPipes(PIPES[host], env=ENVIRONMENT)
            return await with_ours(channel, version, prices, tmp_path)
        command, *args = PIPES[host]
        server = StdioServerParameters(command=command, args=args, env=ENVIRONMENT)
        async with session_of(server, writes, [], [], version) as caller:
            return await results(caller, prices, tmp_path)

    assert run("asyncio", main) == EXPECTED


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["one", "workers"])
def test_processes_on_http(workers: list[str], prices: str, tmp_path: Path) -> None:
    argv = ["--http", "127.0.0.1:0", *workers]
    with serving(*argv, target=DEPOT, EFFECTMCP_STATE_KEYS=KEY) as (url, _):

        async def main() -> Any:
            return await with_ours(OverHttp(url), "2026-07-28", prices, tmp_path)

        assert run("asyncio", main) == EXPECTED


# ---- messages -----------------------------------------------------------------------


class Process:
    """A host, spoken to line by line."""

    def __init__(self, host: str) -> None:
        self.popen = subprocess.Popen(
            PIPES[host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            text=True,
        )

    def say(self, message: Wire) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(message) + "\n")
        self.popen.stdin.flush()

    def ask(self, message: Wire) -> Wire:
        self.say(message)
        assert self.popen.stdout is not None
        found: Wire = json.loads(self.popen.stdout.readline())
        return found


@contextmanager
def started(host: str) -> Iterator[Process]:
    process = Process(host)
    try:
        yield process
    finally:
        process.popen.kill()
        process.popen.communicate()


@pytest.mark.parametrize("host", HOSTS)
def test_rounds_cross_a_restart(host: str, tmp_path: Path) -> None:
    """Each round is for another process; a tampered state, and one of another call, fail."""
    file = str(tmp_path / "note")

    def call(**more: Any) -> Wire:
        return request("tools/call", name="note", arguments={"path": file}, **more)

    with started(host) as process:
        asked = process.ask(call())["result"]
    assert asked["resultType"] == "input_required"
    state = asked["requestState"]
    answers = {
        key: writes(question) for key, question in asked["inputRequests"].items()
    }
    with started(host) as process:
        for wrong in (
            call(inputResponses=answers, requestState=state[:-8] + "AAAAAAAA"),
            request(
                "tools/call",
                name="note",
                arguments={"path": "elsewhere"},
                inputResponses=answers,
                requestState=state,
            ),
        ):
            refused = process.ask(wrong)["error"]
            assert refused["code"] == -32602
            assert refused["message"] == "Invalid or expired requestState"
        done = process.ask(call(inputResponses=answers, requestState=state))["result"]
    assert done["content"] == [{"type": "text", "text": "7"}]


@pytest.mark.parametrize("host", HOSTS)
def test_cancelled_call_ends_its_task(host: str, tmp_path: Path) -> None:
    file = tmp_path / "wait"
    with started(host) as process:
        waiting = request(
            "tools/call", id=7, name="wait", arguments={"path": str(file)}
        )
        process.say(waiting)
        until(lambda: file.exists() and file.read_text() == "waits")
        params = {"requestId": 7, "reason": "enough"}
        process.say(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        )
        until(lambda: file.read_text() == "cancelled")


def until(condition: Callable[[], bool]) -> None:
    """Wait for another process."""
    for _ in range(6_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("a minute has passed")
