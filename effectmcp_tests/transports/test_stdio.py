"""A server as clients start it: a process that is spoken to through pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from effectmcp import Server, UsageError
from effectmcp.server.loop_name import LOOPS
from effectmcp.transports import stdio
from effectmcp.transports.default_keys import VARIABLE

from . import era
from .shop import KEYS, call, request

JSON = Any
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

APP = '''
import atexit, ctypes, os, subprocess, sys, time
from contextlib import asynccontextmanager
from effectmcp import Elicit, Flow, Gather, Progress, Server, Step, step

kept = sys.stdout
print("printed at import")
os.write(1, b"written at import\\n")
atexit.register(lambda: os.write(1, b"written at exit\\n"))
atexit.register(print, "printed at exit")


@asynccontextmanager
async def life(app):
    print("printed by the lifespan")
    yield
    print("lifespan is over", file=sys.stderr)


app = Server("noisy", version="1", lifespan=life, loop=LOOP)


@app.tool
def noise() -> str:
    print("printed")
    print("printed to what was kept", file=kept)
    print("printed to the original", file=sys.__stdout__)
    os.write(1, b"written to 1\\n")
    ctypes.CDLL(None).puts(b"printed by C")
    subprocess.run([sys.executable, "-c", "print('printed by a program')"])
    return "quiet"


@app.tool
def reads() -> str:
    return repr(sys.stdin.read() + os.read(0, 10).decode())


@step
def charge(name: str) -> str:
    return f"{name} paid"


@app.tool
def order(title: str) -> Flow[str]:
    """Three rounds."""
    name = yield from Elicit("Who is it for?", str)
    receipt = yield from charge(name)
    many = yield from Elicit(f"{receipt}. How many?", int)
    return f"{many} x {title}: {receipt}"


@app.tool
def sleeps(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"


@app.tool
def large(size: int) -> str:
    return "x" * size
'''


def written(loop: str, factory: pytest.TempPathFactory) -> Path:
    path = factory.mktemp("stdio") / "noisy.py"
    path.write_text(APP.replace("LOOP", repr(loop)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("trio", tmp_path_factory)


@pytest.fixture(scope="module", params=LOOPS)
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The server on each loop."""
    return written(request.param, tmp_path_factory)


class Process:
    """A server process, and what its client does."""

    def __init__(self, file: Path, **environment: str) -> None:
        env = {k: v for k, v in os.environ.items() if k != VARIABLE}
        self.popen = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "effectmcp", "serve", f"{file}:app"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**env, **environment},
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.stdin, self.stdout = self.popen.stdin, self.popen.stdout

    def say(self, *messages: JSON) -> None:
        self.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
        self.stdin.flush()

    def get(self) -> JSON:
        return json.loads(self.stdout.readline())

    def ask(self, message: JSON) -> JSON:
        self.say(message)
        return self.get()

    def end(self) -> tuple[list[JSON], str]:
        """End its input, and wait: what else it sent, and its standard error."""
        out, err = self.popen.communicate(timeout=60)
        return [json.loads(line) for line in out.splitlines()], err.decode()


@contextmanager
def started(file: Path, **environment: str) -> Iterator[Process]:
    process = Process(file, **environment)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate(timeout=60)


def text_of(message: JSON) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


NOISE = [
    *("printed at import", "written at import", "printed by the lifespan", "printed"),
    *("printed to what was kept", "printed to the original", "written to 1"),
    *("printed by C", "printed by a program", "written at exit", "printed at exit"),
]


@pytest.mark.skipif(sys.platform == "win32", reason="has another C library")
def test_nothing_but_messages_is_on_standard_output(either: Path) -> None:
    with started(either) as process:
        assert text_of(process.ask(call("noise"))) == "quiet"
        rest, err = process.end()
    assert rest == []
    assert process.popen.returncode == 0
    lines = err.splitlines()
    assert [one for one in NOISE if one not in lines] == []


def test_handlers_do_not_read_what_the_client_writes(file: Path) -> None:
    with started(file) as process:
        process.say(call("reads", id=1), call("order", id=2, title="Dune"))
        answers = {one["id"]: one for one in (process.get(), process.get())}
    assert text_of(answers[1]) == "''"
    assert "inputRequests" in answers[2]["result"]


def test_it_ends_with_its_input(either: Path) -> None:
    """Promptly, and after the lifespan."""
    with started(either) as process:
        process.ask(request("server/discover"))
        began = time.monotonic()
        rest, err = process.end()
        assert time.monotonic() - began < 4
    assert (process.popen.returncode, rest) == (0, [])
    assert "lifespan is over" in err
    assert "Traceback" not in err


def test_it_ends_with_its_input_when_that_was_empty(file: Path) -> None:
    with started(file) as process:
        assert process.end()[0] == []
        assert process.popen.returncode == 0


def test_a_last_line_without_an_end_is_answered(file: Path) -> None:
    with started(file) as process:
        process.stdin.write(json.dumps(call("sleeps", seconds=0.1)).encode())
        [answer], _ = process.end()
    assert text_of(answer) == "awake"


def test_a_subscription_ends_gracefully(either: Path) -> None:
    with started(either) as process:
        listen = request("subscriptions/listen", notifications={})
        assert process.ask(listen)["method"].endswith("acknowledged")
        (_, answer), _ = process.end()
    assert answer["result"]["resultType"] == "complete"


def test_large_messages_and_many(either: Path) -> None:
    """More than a pipe holds, in both directions at once."""
    with started(either) as process:
        size = 300_000
        title = "é" * size
        process.say(
            *(call("large", id=n, size=size) for n in range(10)),
            call("order", id=10, title=title),
        )
        answers = [process.get() for _ in range(11)]
    assert {one["id"] for one in answers} == set(range(11))


def test_a_client_that_stops_reading_is_gone(either: Path) -> None:
    """The client's requests end with it; the end of its input is not waited for."""
    with started(either) as process:
        process.ask(request("server/discover"))
        process.stdout.close()
        process.say(call("sleeps", id=1, seconds=100), request("server/discover", id=2))
        assert process.popen.wait(timeout=20) == 0
        assert process.popen.stderr is not None
        err = process.popen.stderr.read().decode()
        process.stdin.close()
        process.popen.stderr.close()
        process.popen.stderr = process.popen.stdout = process.popen.stdin = None
    assert "the client is gone" in err
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_ctrl_c_ends_it_quietly(either: Path) -> None:
    with started(either) as process:
        process.ask(request("server/discover"))
        process.say(call("sleeps", seconds=100))
        process.popen.send_signal(signal.SIGINT)
        assert process.popen.wait(timeout=20) == 130
        assert process.popen.stderr is not None
        assert "Traceback" not in process.popen.stderr.read().decode()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_sigterm_is_an_end_of_input(file: Path) -> None:
    """Running calls may end, and the lifespan does."""
    with started(file) as process:
        process.ask(request("server/discover"))
        process.say(call("sleeps", seconds=1, id=7))
        process.say(request("server/discover", id=8))
        assert process.get()["id"] == 8
        process.popen.send_signal(signal.SIGTERM)
        assert process.get()["id"] == 7
        assert process.popen.wait(timeout=20) == 0
        assert process.popen.stderr is not None
        assert "lifespan is over" in process.popen.stderr.read().decode()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_sigterm_loses_nothing_that_was_read(either: Path) -> None:
    """Messages are answered even if the client reads the first answer slowly."""
    with started(either) as process:
        process.ask(request("server/discover"))
        process.say(*(call("large", id=n, size=300_000) for n in range(5)))
        begun = process.stdout.read(100)  # so all of it has been read
        process.popen.send_signal(signal.SIGTERM)
        answers = [json.loads(begun + process.stdout.readline())]
        answers += [process.get() for _ in range(4)]
        assert {one["id"] for one in answers} == {0, 1, 2, 3, 4}
        assert process.popen.wait(timeout=20) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_sigterm_while_the_client_reads_nothing(file: Path) -> None:
    with started(file) as process:
        process.ask(request("server/discover"))
        process.say(*(call("large", id=n, size=2_000_000) for n in range(3)))
        process.stdout.read(100)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(timeout=20) == 0
        assert process.popen.stderr is not None
        assert "was cut off" in process.popen.stderr.read().decode()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_second_sigterm_ends_it_at_once(either: Path) -> None:
    with started(either) as process:
        began = time.monotonic()
        flags = {"toolsListChanged": True}
        process.ask(request("subscriptions/listen", id=6, notifications=flags))
        process.say(call("sleeps", seconds=100))
        process.ask(request("server/discover", id=7))  # the call is read before
        process.popen.send_signal(signal.SIGTERM)
        process.get()  # the subscription ends, so the first was heard
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(timeout=20) == 0
        assert time.monotonic() - began < 4


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_closed_streams_are_refused(file: Path, closed: str) -> None:
    command = f'exec "{sys.executable}" -m effectmcp serve "{file}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "effectmcp: standard input and output must be open\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_closed_standard_error_does_no_harm(file: Path) -> None:
    command = f'exec "{sys.executable}" -m effectmcp serve "{file}" 2>&-'
    done = subprocess.run(
        ["sh", "-c", command],
        input=json.dumps(call("noise")).encode(),
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert text_of(json.loads(done.stdout)) == "quiet"


# ---- conversations ----


def order(**more: JSON) -> JSON:
    return call("order", title="Dune", **more)


def answered(asked: JSON, value: JSON) -> JSON:
    """The next round: the state, and an answer to the one question."""
    result = asked["result"]
    (key,) = result["inputRequests"]
    answer = {"action": "accept", "content": {"value": value}}
    return order(requestState=result["requestState"], inputResponses={key: answer})


def message_of(asked: JSON) -> str:
    (question,) = asked["result"]["inputRequests"].values()
    text: str = question["params"]["message"]
    return text


def test_a_conversation(file: Path) -> None:
    with started(file) as process:
        asked = process.ask(order())
        assert message_of(asked) == "Who is it for?"
        asked = process.ask(answered(asked, "Ann"))
        assert message_of(asked) == "Ann paid. How many?"
        assert text_of(process.ask(answered(asked, 3))) == "3 x Dune: Ann paid"


def test_a_conversation_over_processes_that_are_killed(file: Path) -> None:
    """The processes share a key, and nothing else."""

    def ask_one(message: JSON) -> JSON:
        with started(file, **{VARIABLE: KEY}) as process:
            answer = process.ask(message)
            process.popen.kill()
            return answer

    asked = ask_one(order())
    asked = ask_one(answered(asked, "Ann"))
    assert message_of(asked) == "Ann paid. How many?"
    assert text_of(ask_one(answered(asked, 3))) == "3 x Dune: Ann paid"


def test_a_state_does_not_outlive_a_random_key(file: Path) -> None:
    with started(file) as process:
        asked = process.ask(order())
    with started(file) as process:
        answer = process.ask(answered(asked, "Ann"))
    assert answer["error"]["code"] == -32602


# ---- inside of a program ----


async def test_serve_gives_the_streams_back(capfd: pytest.CaptureFixture[str]) -> None:
    """Serving may be a part of a program, or of a test."""
    app = Server("inside", keys=KEYS)

    @app.tool
    def shout() -> str:
        print("printed")
        os.write(1, b"written\n")
        return "shouted"

    with pipe_as_input(b"\n" + json.dumps(call("shout")).encode()):
        await stdio.serve(app)
    print("afterwards")
    out, err = capfd.readouterr()
    answer, after = out.splitlines()
    assert (text_of(json.loads(answer)), after) == ("shouted", "afterwards")
    assert "written" in err


@contextmanager
def pipe_as_input(data: bytes) -> Iterator[None]:
    receive, send = os.pipe()
    os.write(send, data)
    os.close(send)
    kept = os.dup(0)
    os.dup2(receive, 0)
    os.close(receive)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


async def test_serve_can_be_cancelled(capfd: pytest.CaptureFixture[str]) -> None:
    """While nothing comes in, and its thread cannot be woken."""
    receive, send = os.pipe()
    kept = os.dup(0)
    os.dup2(receive, 0)
    with trio.move_on_after(0.05) as scope:
        await stdio.serve(Server("inside", keys=KEYS))
    os.dup2(kept, 0)
    for fd in (kept, receive, send):
        os.close(fd)
    assert scope.cancelled_caught


@pytest.mark.parametrize("name", ["__stdin__", "__stdout__"])
def test_set_aside_refuses_what_is_closed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, None)
    with pytest.raises(UsageError, match="must be open"):
        stdio.set_aside()


# ---- legacy clients -----------------------------------------------------------------


def test_a_legacy_client_leaves(either: Path) -> None:
    """Asked live; in the middle of a question its input ends, and the server with it."""
    with started(either) as process:
        process.ask(era.initialize())
        process.say(era.message("notifications/initialized"))
        question = process.ask(era.tool("order", title="Dune"))
        question = process.ask(era.answered(question, "Ann"))
        reply = process.ask(era.answered(question, 2))
        assert era.value_of(reply) == "2 x Dune: Ann paid"
        question = process.ask(era.tool("order", id=2, title="Dune"))
        rest, errors = process.end()
        assert process.popen.returncode == 0
    assert [one["params"] for one in rest] == [{"requestId": question["id"]}]
    assert "lifespan is over" in errors
    assert "Traceback" not in errors
