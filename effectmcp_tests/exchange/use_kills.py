"""Two real servers share a ledger, and are killed while clients repeat their requests.

    python -m effectmcp_tests.exchange.use_kills --flows 500 --kills 200

Each flow asks three times and performs a step in each round. Each request goes to both
servers at once, several times, until it has its reply. The log of the steps and the
replies are judged, and not the code:

    all replies to one request are equal
    a step that was performed again had the same idempotency key
    without a kill, no step was performed twice
    the flow ends, however often the servers were killed
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from attrs import define, field

from ..wire import headers_of, request

__all__ = ["campaign"]

APP: Final = """
import json, os, time
from effectmcp import Confirm, Elicit, Flow, IdempotencyKey, Server, step

app = Server("bank")
LOG = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@step
def perform(what: str, flow: int, key: str) -> str:
    os.write(LOG, (json.dumps([flow, what, key]) + "\\n").encode())
    time.sleep(0.002)
    return f"{{what}} {{time.time_ns()}}"

@app.tool(single_use=True)
def pay(flow: int) -> Flow[str]:
    done = []
    for what in ("note", "pay", "tip"):
        said = yield from Elicit(what, str)
        key = yield from IdempotencyKey(what, said)
        done.append((yield from perform(what, flow, key)))
    return ", ".join(done)
"""

#: Seconds to wait for a reply: a server that was killed is started again at once.
PATIENCE: Final = 120.0


@define(eq=False)
class Bank:
    """Two servers with one ledger.

    Attributes:
        log: Where the steps write.
        kills: How often a server was killed.
    """

    folder: Path
    ports: list[int]
    kills: int = 0
    processes: list[subprocess.Popen[bytes]] = field(factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, index: int) -> subprocess.Popen[bytes]:
        """Start a server."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "effectmcp", "serve", "app.py:app"),
                *("--http", f"127.0.0.1:{self.ports[index]}", "--tasks", "bank.db"),
            ],
            cwd=self.folder,
            env={
                **os.environ,
                "EFFECTMCP_STATE_KEYS": "k" * 64,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            stderr=subprocess.DEVNULL,
        )

    def kill(self, index: int) -> None:
        """Kill a server, and start it again."""
        self.processes[index].kill()
        self.processes[index].wait()
        self.kills += 1
        self.processes[index] = self.start(index)


@contextmanager
def serving(folder: Path) -> Iterator[Bank]:
    """Run the two servers while the block runs."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    bank = Bank(folder, [one.getsockname()[1] for one in sockets])
    for one in sockets:
        one.close()
    (folder / "app.py").write_text(APP.format(log=str(bank.log)))
    bank.log.touch()
    bank.processes = [bank.start(0), bank.start(1)]
    try:
        yield bank
    finally:
        for process in bank.processes:
            process.kill()
            process.wait()


def asked(bank: Bank, index: int, params: dict[str, Any]) -> dict[str, Any] | None:
    """Send a request once; return its response, or `None` without one."""
    message = request("tools/call", params)
    connection = http.client.HTTPConnection("127.0.0.1", bank.ports[index], timeout=60)
    head = {"content-type": "application/json", **headers_of(message)}
    head["accept"] = "application/json, text/event-stream"
    try:
        connection.request("POST", "/mcp", json.dumps(message).encode(), head)
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    lines = [line for line in text.splitlines() if line.startswith(("data: {", "{"))]
    return json.loads(lines[-1].removeprefix("data: ")) if lines else None


def replied(bank: Bank, params: dict[str, Any], random: Random) -> dict[str, Any]:
    """Send the same request to both servers, until each of some tries has a reply."""
    replies: list[dict[str, Any]] = []
    until = time.monotonic() + PATIENCE

    def one_try(index: int) -> None:
        while time.monotonic() < until:
            reply = asked(bank, index, params)
            if reply is not None and "result" in reply:
                replies.append(reply)
                return
            # It was killed, or the request still runs elsewhere.
            assert reply is None or reply["error"]["code"] == -32603, reply
            index = 1 - index

    tries = [threading.Thread(target=one_try, args=(n % 2,)) for n in range(3)]
    random.shuffle(tries)
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    assert len(replies) == 3, "a request has no reply"
    assert replies[0] == replies[1] == replies[2], replies
    return replies[0]


def play(bank: Bank, number: int) -> None:
    """Bring one flow to its end."""
    random = Random(number)
    params: dict[str, Any] = {"name": "pay", "arguments": {"flow": number}}
    while (first := asked(bank, number % 2, params)) is None or "result" not in first:
        pass  # the first request of a call counts always
    result = first["result"]
    while "requestState" in result:
        (key,) = result["inputRequests"]
        answer = {"action": "accept", "content": {"value": f"answer {number}"}}
        more = {"requestState": result["requestState"], "inputResponses": {key: answer}}
        result = replied(bank, {**params, **more}, random)["result"]
        other = {key: {"action": "decline"}}
        refused = asked(
            bank, random.randrange(2), {**params, **more, "inputResponses": other}
        )
        assert refused is None or refused["error"]["code"] in (-32602, -32603), refused
    assert result.get("isError") is not True, result


def campaign(flows: int, kills: int, seed: int = 0) -> str:
    """Play flows while servers are killed; return a line of counts."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as bank:
        over = threading.Event()

        def kill_some() -> None:
            random = Random(seed)
            while bank.kills < kills and not over.wait(random.uniform(0.1, 0.6)):
                bank.kill(random.randrange(2))

        killer = threading.Thread(target=kill_some)
        killer.start()
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda number: play(bank, number), range(flows)))
        finally:
            over.set()
            killer.join()
        lines = [json.loads(line) for line in bank.log.read_text().splitlines()]
        count = bank.kills
    performed = Counter((flow, what) for flow, what, _ in lines)
    keys = {(flow, what, key) for flow, what, key in lines}
    assert len(performed) == len(keys) == 3 * flows, "another idempotency key"
    again = performed.total() - len(performed)
    assert count or not again, "performed twice"
    seconds = time.monotonic() - started
    return (
        f"{flows} flows, {count} kills, {seconds:.0f} s: {performed.total()} steps, {again}"
        " performed again under their keys; one reply for each request"
    )


def main() -> None:
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flows", type=int, default=500)
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    print(campaign(options.flows, options.kills))


if __name__ == "__main__":
    main()
