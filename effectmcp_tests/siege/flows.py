"""A server for the tests of this folder, and rounds of it in other processes.

    python -m effectmcp_tests.siege.flows WHAT

reads JSON values from the lines of standard input, and writes one for each to standard
output. It contains no `assert`: `python -O` runs it, too.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from effectmcp import (
    Elicit,
    Flow,
    IdempotencyKey,
    ProtocolError,
    Random,
    Server,
    Step,
    Uuid,
)
from effectmcp.protocol import jsonrpc
from effectmcp.server.events import Event, RoundBegan, RoundEnded
from effectmcp.testing import MemoryClient
from effectmcp.testing.recording import Recorder
from effectmcp.transports import http1

from ..transports.shop import KEYS

JSON = Any
ROOT = Path(__file__).parents[2]
WORDS = {"plum", "fig", "pear", "sloe", "quince", "medlar", "date", "lime"}


def charge(name: str) -> str:
    return f"receipt of process {os.getpid()} for {name}"


def app() -> Server:
    made = Server("siege", keys=KEYS)

    @made.tool
    def draw() -> Flow[list[str]]:
        """Draw, ask, and draw again."""
        random = yield from Random()
        drawn = [random.hex(), str((yield from Uuid()))]
        name = yield from Elicit("Who is it for?", str)
        key = yield from IdempotencyKey("charge")
        receipt = yield from Step(charge, name)
        return [*drawn, name, str((yield from Uuid())), str(key), receipt]

    @made.tool
    def choose() -> Flow[dict[str, Any]]:
        """Ask with sorted words, as sets differ from process to process."""
        first = yield from Elicit(f"One of {sorted(WORDS)}?", str)
        second = yield from Elicit(f"And not {first}?", str)
        return {word: len(word) for word in sorted({first, second})}

    for word in sorted(WORDS):  # not in the order of the set, which differs
        made.tool(name=word)(lambda: "eaten")
    return made


def answers(result: Mapping[str, JSON], value: JSON) -> dict[str, JSON]:
    """The params of the next round, in which each question gets the same answer."""
    return {
        "requestState": result["requestState"],
        "inputResponses": {
            key: {"action": "accept", "content": {"value": value}}
            for key in result["inputRequests"]
        },
    }


# ---- in other processes -------------------------------------------------------------


def forked(given: JSON) -> JSON:
    """Take round 1, fork, and let both processes take round 2 and begin a flow."""
    client, flow_ids = MemoryClient(app()), []

    def hear(event: Event) -> None:
        if isinstance(event, RoundBegan):
            flow_ids.append(event.flow_id)

    client.app.observers = (hear,)
    first = client.send("tools/call", name="draw", arguments={})
    reader, writer = os.pipe()
    child = os.fork()
    flow_ids.clear()
    resumed = client.send(
        "tools/call", name="draw", arguments={}, **answers(first, "Ann")
    )
    begun = client.send("tools/call", name="draw", arguments={})
    ended = client.send(
        "tools/call", name="draw", arguments={}, **answers(begun, "Bob")
    )
    found = {
        "resumed": resumed["structuredContent"],
        "begun": ended["structuredContent"],
        "state": begun["requestState"],
        "flow": flow_ids[1],
    }
    if child == 0:
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return [found, json.loads(os.read(reader, 100_000))]


def full_disk(folder: str) -> JSON:
    """Serve two conversations, of which a file system takes the first bytes only."""
    made = app()
    Recorder(made, folder)
    client = MemoryClient(made, {"": "fig"})
    warned: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warned.append(record.getMessage())

    handler = Noting()
    logging.getLogger("effectmcp").addHandler(handler)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    results = [client.call_tool("choose").text for _ in range(2)]
    left = os.listdir(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    results.append(client.call_tool("choose").text)
    return [results, warned, left, os.listdir(folder)]


def one_round(params: JSON) -> JSON:
    """Take a round; return the result, the journal, and the list of tools."""
    client, journals = MemoryClient(app()), []

    def hear(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.journal is not None:
            journals.append(event.journal.dumps().decode())

    client.app.observers = (hear,)
    result = client.send("tools/call", name="choose", arguments={}, **params)
    return [result, journals, client.send("tools/list"), str(list(WORDS))]


def refusals(given: JSON) -> JSON:
    """Return how each of several attacks is refused."""

    def of(attack: Callable[[], object]) -> JSON:
        try:
            return repr(attack())
        except ProtocolError as exc:
            return [exc.code, exc.message]
        except Exception as exc:
            return [type(exc).__name__, str(exc)]

    client = MemoryClient(app(), {"": "fig"})
    first = client.send("tools/call", name="choose", arguments={})

    def resume(state: str, name: str = "choose") -> JSON:
        changed = {**answers(first, "fig"), "requestState": state}
        return client.send("tools/call", name=name, arguments={}, **changed)

    state = first["requestState"]
    other = "A" if state[40] != "A" else "B"
    heads = {
        "two lengths": b"Content-Length: 1\r\nContent-Length: 2\r\n",
        "length and chunks": b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "a null": b"A: b\0c\r\n",
        "blank before the colon": b"A : b\r\n",
        "two hosts": b"Host: evil.example\r\n",
    }
    return {
        "has asserts": __debug__,
        "altered state": of(lambda: resume(f"{state[:40]}{other}{state[41:]}")),
        "state of another tool": of(lambda: resume(state, "draw")),
        "too many rounds": of(lambda: rounds(client)),
        "twin keys": repr(jsonrpc.read_message(b'{"a":1,"a":2}')),
        "deep": repr(jsonrpc.read_message(b"[" * 100_000)),
        "unknown tool": of(lambda: client.call_tool("nothing")),
        "extra argument": repr(
            client.send("tools/call", name="fig", arguments={"a": 1})
        ),
        **{name: of(partial(head_of, head)) for name, head in heads.items()},
    }


def rounds(client: MemoryClient) -> JSON:
    @client.app.tool
    def endless() -> Flow[str]:
        while True:
            yield from Elicit("Again?", str)

    return client.call_tool("endless").text


def head_of(lines: bytes) -> object:
    data = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n"
    return http1.open_wire(bytearray(data), max_head=65_536, max_headers=100).head()


COMMANDS = {one.__name__: one for one in (forked, full_disk, one_round, refusals)}


@contextmanager
def running(
    what: Callable[[JSON], JSON], *options: str, **env: str
) -> Iterator[Callable[[JSON], JSON]]:
    """A function that calls one of the commands, in one other process."""
    with subprocess.Popen(
        [sys.executable, *options, "-m", "effectmcp_tests.siege.flows", what.__name__],
        env={**os.environ, **env},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines, written = process.stdin, process.stdout
        if lines is None or written is None:
            raise RuntimeError("there are no pipes")

        def run(given: JSON) -> JSON:
            print(json.dumps(given), file=lines, flush=True)
            return json.loads(written.readline())

        yield run


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(COMMANDS[sys.argv[1]](json.loads(line))), flush=True)
