"""`effectmcp serve`: over which transport, and with which options."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from effectmcp.cli import main
from effectmcp.state import make_key
from effectmcp.transports import http, stdio, workers
from effectmcp.transports.default_keys import VARIABLE
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.web import Site
from effectmcp.transports.workers import BindError

from ..transports.shop import request
from ..transports.test_http import make_certificate

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
EVERYTHING = str(Path(__file__).parents[2] / "examples" / "everything.py")

Calls = list[tuple[str, tuple[Any, ...], dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Record the calls of the functions that serve, without serving."""
    found: Calls = []

    def fake(name: str) -> Any:
        async def serve(*args: Any, **options: Any) -> None:
            for listener in options.pop("listeners", ()):
                await listener.aclose()
            found.append((name, args, options))

        return serve

    monkeypatch.setattr(http, "run", fake("http"))
    monkeypatch.setattr(workers, "run_workers", fake("workers"))
    monkeypatch.setattr(stdio, "serve", fake("stdio"))
    monkeypatch.setattr(stdio, "set_aside", lambda: "streams")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield found
    sys.modules.pop("everything", None)


def problem(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["serve", EVERYTHING, *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("effectmcp: ")
    return err.removeprefix("effectmcp: ").strip()


def test_stdio_is_the_default(calls: Calls) -> None:
    assert main(["serve", f"{EVERYTHING}:app"]) == 0
    [(name, (app,), options)] = calls
    assert not options.pop("shutdown").is_set()
    assert (name, app.name, options) == ("stdio", "everything", {"streams": "streams"})


def test_http(calls: Calls) -> None:
    assert main(["serve", EVERYTHING, "--http", "127.0.0.1:0"]) == 0
    [(name, (app,), options)] = calls
    assert (name, app.name) == ("http", "everything")
    assert options == {
        "site": Site(),
        "ssl_context": None,
        "sessions": SessionLimits(),
    }


def test_http_streams_that_are_left(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    http = ["serve", EVERYTHING, "--http", "127.0.0.1:0"]
    assert main([*http, "--leave", "1.5"]) == 0
    assert calls[0][2]["sessions"] == SessionLimits(leave=1.5)
    for more in (["--leave", "0"], ["--leave", "nan"]):
        assert main([*http, *more]) == 2
        assert "--leave" in capsys.readouterr().err
    assert main([*http, "--leave", "1", "--workers", "2"]) == 2
    assert main(["serve", EVERYTHING, "--leave", "1"]) == 2


def test_http_options(calls: Calls) -> None:
    names = ["--allow-host", "a.example", "--allow-host", "b.example"]
    origins = ["--allow-origin", "https://c.example"]
    where = ["--http", "127.0.0.1:0", "--path", "/here"]
    assert main(["serve", EVERYTHING, *where, *names, *origins]) == 0
    [(_, _, options)] = calls
    assert options["site"] == Site(
        path="/here", hosts=["a.example", "b.example"], origins=["https://c.example"]
    )


def test_workers(calls: Calls) -> None:
    """The workers load the server themselves."""
    assert main(["serve", "shop:app", "--http", ":81", "--workers", "3"]) == 0
    assert calls == [
        (
            "workers",
            ("shop:app", 3, "127.0.0.1", 81),
            {"site": Site(), "tasks": None, "certificate": None, "key": None},
        )
    ]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_tls(calls: Calls, certificate: tuple[str, str]) -> None:
    files = ["--certificate", certificate[0], "--key", certificate[1]]
    where = ["serve", EVERYTHING, "--http", "127.0.0.1:0"]
    assert main([*where, *files]) == 0
    assert main([*where, *files, "--workers", "2"]) == 0
    (_, _, alone), (_, _, together) = calls
    assert isinstance(alone["ssl_context"], ssl.SSLContext)
    assert (together["certificate"], together["key"]) == certificate


# ---- refusals ----


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        *(
            ([option, value], f"{option} is for --http HOST:PORT")
            for option, value in [
                ("--path", "/mcp"),
                ("--workers", "1"),
                ("--allow-host", "x"),
                ("--allow-origin", "https://x"),
                ("--certificate", "x"),
                ("--key", "x"),
            ]
        ),
        (["--http", "a b:c"], "'a b:c' is not an address; write 127.0.0.1:8000"),
        (["--http", ":1", "--path", "mcp"], "--path mcp: it begins with a /"),
        (["--http", ":1", "--key", "x"], "--key belongs to a --certificate"),
        (
            ["--http", ":1", "--certificate", "gone.pem"],
            "--certificate gone.pem: [Errno 2] No such file or directory",
        ),
    ],
)
def test_options_that_cannot_be(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], calls: Calls
) -> None:
    assert problem(capsys, *argv) == words
    assert calls == []


def test_invalid_certificate(capsys: pytest.CaptureFixture[str], calls: Calls) -> None:
    assert "--certificate" in problem(
        capsys, "--http", ":0", "--certificate", EVERYTHING
    )


@contextmanager
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_port_that_is_taken(capsys: pytest.CaptureFixture[str], calls: Calls) -> None:
    with taken() as port:
        assert problem(capsys, "--http", f":{port}") == (
            f"cannot listen at 127.0.0.1, port {port}: Address already in use"
        )


def group_of(error: Exception) -> Any:
    async def run_workers(*args: Any, **options: Any) -> None:
        raise ExceptionGroup("", [ExceptionGroup("", [error])])

    return run_workers


def raising(error: Exception) -> Any:
    async def run_workers(*args: Any, **options: Any) -> None:
        raise error

    return run_workers


def test_port_that_is_taken_with_workers(
    capsys: pytest.CaptureFixture[str], calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (
        group_of(BindError("no such host")),
        raising(BindError("no such host")),
    ):
        monkeypatch.setattr(workers, "run_workers", error)
        assert problem(capsys, "--http", "nowhere:1", "--workers", "2") == (
            "cannot listen at nowhere, port 1: no such host"
        )


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_address_that_cannot_be_had_with_workers(
    host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, make_key(bytes(32)))
    (taken,) = workers.bind("127.0.0.1", 0, shared=False)
    with taken:
        address = f"{host}:{taken.getsockname()[1]}"
        said = problem(capsys, "--http", address, "--workers", "2")
    assert said.startswith(f"cannot listen at {host}, port ")


def test_module_that_fails_to_open_a_file_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, make_key(bytes(32)))
    file = tmp_path / "unopened.py"
    file.write_text("open('/nowhere/at/all')")
    with pytest.raises(FileNotFoundError, match="/nowhere/at/all"):
        main(["serve", str(file), "--http", "127.0.0.1:0", "--workers", "2"])


def test_bug_with_workers_keeps_its_traceback(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "run_workers", group_of(ZeroDivisionError()))
    with pytest.raises(ExceptionGroup):
        main(["serve", EVERYTHING, "--http", ":1", "--workers", "2"])


# ---- as processes ----


@contextmanager
def serving(*argv: str, **environment: str) -> Iterator[tuple[str, Any]]:
    """A process that serves HTTP, and its URL, as it says on standard error."""
    env = {k: v for k, v in os.environ.items() if k != "EFFECTMCP_STATE_KEYS"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "effectmcp", "serve", EVERYTHING, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**env, **environment},
    )
    assert process.stderr is not None
    try:
        url = None
        while url is None:
            line = process.stderr.readline()
            assert line, "it ended"
            url = re.search(r"https?://\S+", line)
        yield url[0], process
    finally:
        process.terminate()
        out, err = process.communicate(timeout=60)
        assert out == ""
        assert "Traceback" not in err
    assert process.returncode == 0


def ask(url: str, message: Any, context: ssl.SSLContext | None = None) -> Any:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": message["method"],
    }
    asked = urllib.request.Request(url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60, context=context) as answer:
        return json.load(answer)


DISCOVER = request("server/discover")


def test_http_process() -> None:
    with serving("--http", "127.0.0.1:0", "--path", "/here") as (url, _):
        assert url.endswith("/here")
        assert "capabilities" in ask(url, DISCOVER)["result"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no workers on Windows")
def test_http_processes_with_tls(certificate: tuple[str, str]) -> None:
    files = ["--certificate", certificate[0], "--key", certificate[1]]
    argv = ["--http", "localhost:0", "--workers", "2", *files]
    context = ssl.create_default_context(cafile=certificate[0])
    with serving(*argv, EFFECTMCP_STATE_KEYS=KEY) as (url, _):
        port = url.split(":")[2]
        url = f"https://localhost:{port}"
        assert "capabilities" in ask(url, DISCOVER, context)["result"]


# ---- for development ----


def test_strict_reports_values_that_a_replay_cannot_repeat(tmp_path: Path) -> None:
    """A transcript is recorded, too, although no client answers."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "tell_time",
            "arguments": {},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            },
        },
    }
    file = tmp_path / "strict_shop.py"
    file.write_text(
        "import time\n"
        "from effectmcp import Confirm, Flow, Server\n"
        "app = Server('shop')\n"
        "@app.tool\n"
        "def tell_time() -> Flow[str]:\n"
        "    yield from Confirm(f'Is it {time.time()}?')\n"
        "    return 'It is.'\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "effectmcp", "serve", str(file), "--strict"),
            *("--record", str(tmp_path / "transcripts")),
        ],
        input=json.dumps(message) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["result"]["resultType"] == "input_required"
    assert f"WARNING effectmcp.testing: {file}:6: time.time() is not recorded" in (
        done.stderr
    )
    (recorded,) = (tmp_path / "transcripts").iterdir()
    assert recorded.name.startswith("tell_time-")


@pytest.mark.parametrize("option", ["--strict", "--record=folder"])
def test_development_is_for_one_process(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["serve", "shop:app", "--http", "127.0.0.1:0", "--workers", "2", option]
    assert main(argv) == 2
    assert "--strict and --record are for one process" in capsys.readouterr().err
