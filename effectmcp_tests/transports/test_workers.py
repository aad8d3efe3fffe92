"""Processes that serve one address: real ones, as nothing else would show it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from effectmcp import UsageError
from effectmcp.auth.api_keys import key_line, make_api_key
from effectmcp.errors import KeysError
from effectmcp.log_lines import LogSettings
from effectmcp.state import Keys, make_key
from effectmcp.transports import workers
from effectmcp.transports.authenticating import AuthSettings
from effectmcp.transports.http import Limits
from effectmcp.transports.sockets import bind
from effectmcp.transports.web import Site
from effectmcp.transports.workers import ended_by, next_delay, run_workers

from .shop import answer, call, text_of
from .test_http import make_certificate
from .wire import Client

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="processes cannot share a socket on Windows"
)

KEY = make_key(bytes(range(32)))

MODULE = """
import os, sys
from effectmcp import Elicit, Flow, Step
from effectmcp.server import Server

app = Server("shop")

@app.tool
def order(title: str) -> Flow[str]:
    '''Ask, and tell in which processes.'''
    asked_by = yield from Step(os.getpid)
    name = yield from Elicit("Who is it for?", str)
    answered_by = yield from Step(os.getpid)
    return f"{title} for {name} {asked_by} {answered_by}"

@app.tool
def pid() -> int:
    '''Tell the process.'''
    return os.getpid()

if os.path.exists(__file__ + ".broken"):
    sys.exit(3)
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server in a file, and a key for its processes."""
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", KEY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "worked.py"
    path.write_text(MODULE)
    yield f"{path}:app"
    sys.modules.pop("worked", None)


@asynccontextmanager
async def working(target: str, n: int = 2, **options: Any) -> AsyncIterator[int]:
    """Run some processes at a port; the block has to end them."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            port: int = await nursery.start(
                partial(run_workers, target, n, "127.0.0.1", 0, **options)
            )
            yield port


async def ask(port: int, message: Any, ssl_context: Any = None) -> Any:
    """One request over a connection of its own."""
    stream: Any = await trio.open_tcp_stream("127.0.0.1", port)
    if ssl_context is not None:
        stream = trio.SSLStream(stream, ssl_context, server_hostname="localhost")
    async with Client(stream) as client:
        return (await client.ask(message, host="localhost")).json


async def until(port: int, is_enough: Callable[[set[int]], bool]) -> set[int]:
    """Ask who is there until the answers are enough."""
    found: set[int] = set()
    while not is_enough(found):
        found.add(int(text_of(await ask(port, call("pid")))))
    return found


async def test_workers_share_an_address_and_a_conversation(target: str) -> None:
    shutdown = trio.Event()
    async with working(target, shutdown=shutdown) as port:
        pids = await until(port, lambda found: len(found) == 2)
        assert os.getpid() not in pids
        rounds = {0}
        while len(rounds) == 1:
            got = await ask(port, call("order", title="Dune"))
            again = call("order", title="Dune", **answer(got["result"], "Ann"))
            said, *both = text_of(await ask(port, again)).rsplit(" ", 2)
            assert said == "Dune for Ann"
            rounds = {int(one) for one in both}
        shutdown.set()


async def test_workers_authenticate(target: str, tmp_path: Path) -> None:
    """As their settings say, which each process reads as JSON."""
    keys, key = tmp_path / "keys", make_api_key()
    keys.write_text(key_line("ann", key))
    shutdown = trio.Event()
    async with working(
        target, auth=AuthSettings(api_keys=str(keys)), shutdown=shutdown
    ) as port:
        for given, status in [(key, 200), (make_api_key(), 401)]:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with Client(stream) as client:
                got = await client.ask(
                    call("pid"), host="localhost", authorization=f"Bearer {given}"
                )
                assert got.status == status
        shutdown.set()


async def test_workers_that_are_killed_are_started_again(
    target: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "effectmcp.server")
    shutdown = trio.Event()
    async with working(target, shutdown=shutdown) as port:
        pids = await until(port, lambda found: len(found) == 2)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        again = await until(port, lambda found: len(found - pids) == 2)
        assert again.isdisjoint(pids)
        shutdown.set()
    assert "was killed by SIGKILL" in caplog.text


async def test_worker_that_cannot_start_waits_longer_each_time(
    target: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are left to the other workers. In this test, there is no other one."""
    monkeypatch.setattr(workers, "_MISSED", 0.15)
    shutdown = trio.Event()
    file = target.removesuffix(":app")
    async with working(target, n=1, shutdown=shutdown) as port:
        (pid,) = await until(port, bool)
        broken = trio.Path(f"{file}.broken")
        await broken.touch()
        os.kill(pid, signal.SIGKILL)
        while "again in 0.2 s" not in caplog.text:
            await trio.lowlevel.checkpoint()
        assert "ended with status 3" in caplog.text
        await broken.unlink()
        while True:
            try:
                await until(port, bool)
            except OSError:
                continue  # refused: none listens; or reset: one gave up
            except AssertionError:
                continue
            break
        shutdown.set()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-9, "was killed by SIGKILL"),
        (-200, "ended with status -200"),
    ],
)
def test_how_a_process_ended(status: int, words: str) -> None:
    assert ended_by(status) == words


def test_delay_grows_and_is_forgotten() -> None:
    delay, found = 0.0, []
    for _ in range(12):
        delay = next_delay(delay, lived=0.5)
        found.append(delay)
    assert found[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert found[-1] == 30
    assert next_delay(30, lived=3600) == pytest.approx(0.1)


async def test_workers_drain_before_they_stop(target: str) -> None:
    """The supervisor has closed its sockets then; the processes still accept."""
    shutdown = trio.Event()
    async with working(target, limits=Limits(drain=3600), shutdown=shutdown) as port:
        await until(port, lambda found: len(found) == 2)
        assert await ready(port) == (200, b"ok\n")
        shutdown.set()
        while await ready(port) != (503, b"draining\n"):
            pass
        # One of them may not have received its signal yet.
        assert len(await until(port, lambda found: len(found) == 2)) == 2
        signal.raise_signal(signal.SIGTERM)  # a second one, which kills them
    with pytest.raises(OSError, match=r"connect"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def ready(port: int) -> tuple[int, bytes]:
    """Probe one of the processes, over a new connection."""
    async with Client(await trio.open_tcp_stream("127.0.0.1", port)) as client:
        await client.send(b"GET /readyz HTTP/1.1\r\nHost: a.example\r\n\r\n")
        got = await client.answer()
        return got.status, got.body


async def test_workers_are_announced_by_their_supervisor(
    target: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "effectmcp.server")
    shutdown = trio.Event()
    log = LogSettings("json", "debug")
    async with working(target, n=1, log=log, shutdown=shutdown) as port:
        await until(port, bool)
        shutdown.set()
    (name,) = Keys(KEY).names
    assert caplog.messages[:4] == [
        "shop (version 0) on trio: 2 tools, 0 prompts, 0 resources, 0 templates",
        f"shop is served at http://127.0.0.1:{port}/mcp",
        "its clients: anonymous, of this machine only",
        f"its keys: {name}, from EFFECTMCP_STATE_KEYS",
    ]
    # Its process logs in the same form, and announces nothing.
    found = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert "SIGTERM: stopping" in [one["message"] for one in found]
    assert not [one for one in found if "is served at" in one["message"]]


async def test_workers_stop_on_a_signal(target: str) -> None:
    async with working(target) as port:
        await until(port, lambda found: len(found) == 2)
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(OSError, match=r"connect"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def test_workers_are_killed_by_a_second_signal(target: str) -> None:
    async with working(target, limits=Limits(grace=3600)) as port:
        (pid,) = await until(port, bool)
        os.kill(pid, signal.SIGSTOP)  # it will not hear the first
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep(0.05)
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_workers_end_with_their_supervisor(target: str) -> None:
    """However that ended: their input is a pipe from it."""
    code = (
        "import trio; from effectmcp.transports.workers import run_workers\n"
        "async def main():\n"
        "    async with trio.open_nursery() as nursery:\n"
        f"        port = await nursery.start(run_workers, {target!r}, 2, '127.0.0.1', 0)\n"
        "        print(port, flush=True)\n"
        "trio.run(main)"
    )
    with trio.fail_after(60):
        supervisor = await trio.lowlevel.open_process(
            [sys.executable, "-c", code], stdout=subprocess.PIPE
        )
        assert supervisor.stdout is not None
        async with supervisor.stdout:
            port = int(await supervisor.stdout.receive_some())
            await until(port, lambda found: len(found) == 2)
            supervisor.kill()
            await supervisor.wait()
            while True:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    break
                await trio.aclose_forcefully(stream)
                await trio.sleep(0.02)


async def test_workers_serve_tls_for_a_given_site(target: str, tmp_path: Path) -> None:
    import ssl

    certificate, key = make_certificate(tmp_path)
    shutdown = trio.Event()
    options: dict[str, Any] = {
        "certificate": certificate,
        "key": key,
        "site": Site(hosts=["localhost"], origins=["https://app.example"]),
        "shutdown": shutdown,
    }
    async with working(target, n=1, **options) as port:
        trusting = ssl.create_default_context(cafile=certificate)
        assert text_of(await ask(port, call("pid"), trusting)).isdigit()
        shutdown.set()


# ---- refusals -----------------------------------------------------------------------


async def test_workers_need_a_key(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EFFECTMCP_STATE_KEYS")
    with pytest.raises(KeysError, match="effectmcp keygen"):
        await run_workers(target, 2)


async def test_workers_need_a_server(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        await run_workers(str(tmp_path / "none.py"), 2)


async def test_workers_cannot_be_zero(target: str) -> None:
    with pytest.raises(UsageError, match="has to be one"):
        await run_workers(target, 0)


async def test_workers_are_not_for_windows(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match="Windows"):
        await run_workers(target, 2)


async def test_workers_report_that_an_address_is_taken(target: str) -> None:
    (taken,) = bind("127.0.0.1", 0, shared=False)
    with taken, pytest.raises(OSError, match="in use"):
        await run_workers(target, 2, "127.0.0.1", taken.getsockname()[1])


def test_bind_takes_every_address_of_a_name() -> None:
    sockets = bind("localhost", 0, shared=False)
    try:
        assert len({one.getsockname()[1] for one in sockets}) == 1
    finally:
        for one in sockets:
            one.close()
