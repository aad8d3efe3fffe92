"""The examples of embedding run, as their users run them."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()


def client() -> ModuleType:
    """`bookshop_client`, which the examples import too."""
    path = EXAMPLES / "bookshop_client.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLIENT = client()


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


def environment(keys: str | None = KEY) -> dict[str, str]:
    found = {k: v for k, v in os.environ.items() if k != "EFFECTMCP_STATE_KEYS"}
    return found if keys is None else {**found, "EFFECTMCP_STATE_KEYS": keys}


def run(name: str, keys: str | None = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name),
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(keys),
    )


@contextmanager
def started(
    name: str, *arguments: str, until: str
) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    """The program, when it has printed something that matches `until`."""
    process = subprocess.Popen(
        command(name, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    with process:
        try:
            assert process.stdout is not None
            said = ""
            while (match := re.search(until, said)) is None:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield process, match
        finally:
            process.kill()


# ---- asyncio ----


@pytest.mark.parametrize("keys", [KEY, None])
def test_asyncio_plays_both_sides(keys: str | None) -> None:
    done = run("embed_asyncio.py", keys)
    assert done.returncode == 0, done.stderr
    *asked, end = done.stdout.splitlines()
    assert asked[0] == "? Who is it for?"
    assert len(asked) == 3
    assert re.fullmatch(r"Ordered: receipt \w{6} for 'Dune', to Ann", end)
    assert ("effectmcp keygen" in done.stderr) == (keys is None)


# ---- a cloud function ----


def test_lambda_plays_the_gateway() -> None:
    done = run("embed_lambda.py")
    assert done.returncode == 0, done.stderr
    *rounds, end = done.stdout.splitlines()
    assert [one.split()[0] for one in rounds] == ["200"] * 4
    assert "for 'Dune', to Ann" in end


INVOKING = """
import json, sys
from embed_lambda import handler
print(json.dumps(handler(json.load(sys.stdin), None)))
"""


def invoke(body: str, **more: Any) -> dict[str, Any]:
    """One event for an instance of its own."""
    event = {
        "rawPath": "/mcp",
        "headers": {"host": "shop.example", **CLIENT.HEADERS},
        "requestContext": {"http": {"method": "POST", "sourceIp": "192.0.2.1"}},
        "body": body,
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-c", INVOKING],
        input=json.dumps(event),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=EXAMPLES,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    response: dict[str, Any] = json.loads(done.stdout)
    return response


def test_lambda_resumes_in_another_instance() -> None:
    message = CLIENT.call("order", {"title": "Dune"})
    reply = json.loads(invoke(json.dumps(message))["body"])
    message = CLIENT.next_round(message, reply)
    packed = base64.b64encode(json.dumps(message).encode()).decode()
    reply = json.loads(invoke(packed, isBase64Encoded=True)["body"])
    (asked,) = reply["result"]["inputRequests"].values()
    assert asked["params"]["message"] == "Deliver to Ann on which day?"


def test_lambda_refuses_what_is_not_for_it() -> None:
    body = json.dumps(CLIENT.call("order", {"title": "Dune"}))
    assert invoke(body, rawPath="/elsewhere")["statusCode"] == 404
    headers = {**CLIENT.HEADERS, "host": "evil.example"}
    assert invoke(body, headers=headers)["statusCode"] == 403
    told = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    assert invoke(told) == {"statusCode": 202, "headers": {}, "body": ""}


# ---- Starlette ----


def ask(port: int, message: Any = None, **headers: str) -> tuple[int, str]:
    """A page, or the answer to a message."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as server:
        if message is None:
            server.request("GET", "/")
        else:
            headers = {**CLIENT.HEADERS, **headers}
            server.request("POST", "/mcp", json.dumps(message), headers)
        with server.getresponse() as response:
            return response.status, response.read().decode()


def test_starlette_serves_pages_and_tools() -> None:
    pytest.importorskip("starlette", reason="pip install starlette uvicorn")
    pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")
    with started(
        "embed_starlette.py", "0", until=r"running on http://127\.0\.0\.1:(\d+)"
    ) as (process, match):
        port = int(match[1])
        status, text = ask(port)
        assert (status, text.split(".")[0]) == (200, "A bookshop")
        message = CLIENT.call("order", {"title": "Dune"})
        status, text = ask(port, message)
        assert (status, "sign in first" in text) == (401, True)
        while True:
            status, text = ask(port, message, authorization="Bearer ann's token")
            assert status == 200, text
            following = CLIENT.next_round(message, json.loads(text))
            if following is None:
                break
            message = following
        assert "to Ann" in CLIENT.text_of(json.loads(text))
        # The last of them again, by another user: the state is ann's.
        status, text = ask(port, message, authorization="Bearer bob's token")
        assert "Invalid or expired requestState" in text
        process.send_signal(signal.SIGINT)
        process.wait(20)


# ---- a Unix socket ----


class Lines:
    """A connection of a client."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        self._file = connection.makefile("rwb")

    def say(self, message: Any) -> None:
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def hear(self) -> Any:
        return json.loads(self._file.readline())

    def close(self) -> None:
        self._file.close()


@contextmanager
def connected(path: Path) -> Iterator[Lines]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with closing(Lines(connection)) as lines:
            yield lines


@pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="there are no Unix sockets on this system"
)
def test_unix_socket_serves_several_and_cancels(tmp_path: Path) -> None:
    path = tmp_path / "shop.sock"
    with started("embed_unix_socket.py", str(path), until="listening") as (process, _):
        assert path.stat().st_mode & 0o777 == 0o600
        with connected(path) as ann, connected(path) as bob:
            slow = CLIENT.call("restock", {"title": "Dune"}, id=7)
            meta = {**slow["params"]["_meta"], "progressToken": "p"}
            ann.say({**slow, "params": {**slow["params"], "_meta": meta}})
            assert ann.hear()["params"]["message"] == "no Dune yet"
            order = CLIENT.call("order", {"title": "Emma"})
            bob.say(order)
            assert bob.hear()["result"]["resultType"] == "input_required"
            cancelled = {"requestId": 7, "reason": "too slow"}
            ann.say(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": cancelled,
                }
            )
            # The next message that ann receives is about something else.
            ann.say(order)
            reply = ann.hear()
            while reply.get("method") == "notifications/progress":
                reply = ann.hear()
            assert reply["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert not path.exists()
