"""`effectmcp serve`: over which transport, and with which options."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from effectmcp.auth.api_keys import key_line
from effectmcp.cli import main
from effectmcp.log_lines import LogSettings
from effectmcp.server.loop_name import LOOPS
from effectmcp.state import Keys, make_key
from effectmcp.transports import http, stdio, workers
from effectmcp.transports.authenticating import AuthSettings
from effectmcp.transports.connection import Limits
from effectmcp.transports.default_keys import VARIABLE
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.sockets import BindError, bind
from effectmcp.transports.web import Site

from ..transports.shop import request
from ..transports.test_http import make_certificate
from .yard import end_step, make_pipes, wait_for_step

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
YARD = str(Path(__file__).with_name("yard.py"))
EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
EVERYTHING = str(Path(__file__).parents[2] / "examples" / "everything.py")
#: Several processes can serve it without a file of tasks: no tool of it is one.
BOOKSHOP = str(Path(__file__).parents[2] / "examples" / "bookshop.py")

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


def problem(
    capsys: pytest.CaptureFixture[str], *argv: str, target: str = EVERYTHING
) -> str:
    assert main(["serve", target, *argv]) == 2
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


def test_trusted_proxies(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    http = ["serve", EVERYTHING, "--http", "127.0.0.1:0"]
    proxies = ["--trust-proxy", "10.0.0.7", "--trust-proxy", "192.0.2.0/24"]
    assert main([*http, *proxies]) == 0
    assert calls[0][2]["site"] == Site(proxies=["10.0.0.7", "192.0.2.0/24"])
    for wrong in ("localhost", "127.0.0.1/8", "::ffff:10.0.0.1"):
        assert main([*http, "--trust-proxy", wrong]) == 2
        assert f"'{wrong}' is " in capsys.readouterr().err
    assert main(["serve", EVERYTHING, *proxies]) == 2


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("0.0.0.0:0", True),
        ("[::]:0", True),
        ("127.0.0.1:0", False),
        ("[::1]:0", False),
        ("localhost:0", False),
    ],
)
def test_open_server_without_authentication_warns(
    calls: Calls, caplog: pytest.LogCaptureFixture, address: str, is_open: bool
) -> None:
    assert main(["serve", EVERYTHING, "--http", address]) == 0
    found = [one for one in caplog.records if "can be reached" in one.getMessage()]
    assert [one.levelname for one in found] == ["WARNING"] * is_open


def test_workers(calls: Calls) -> None:
    """The workers load the server themselves."""
    assert main(["serve", "shop:app", "--http", ":81", "--workers", "3"]) == 0
    assert calls == [
        (
            "workers",
            ("shop:app", 3, "127.0.0.1", 81),
            {
                "site": Site(),
                "tasks": None,
                "loop": None,
                "certificate": None,
                "key": None,
                "auth": AuthSettings(),
                "log": LogSettings(),
            },
        )
    ]


TOKENS = ("--auth", "https://idp.example")
RESOURCE = ("--resource", "https://shop.example/mcp")


@pytest.mark.parametrize(
    ("address", "more", "resource"),
    [
        ("127.0.0.1:8000", (), "http://127.0.0.1:8000/mcp"),
        ("localhost:81", ("--path", "/here"), "http://localhost:81/here"),
        ("[::1]:8000", (), "http://[::1]:8000/mcp"),
        ("0.0.0.0:8000", RESOURCE, RESOURCE[1]),
        ("127.0.0.1:0", RESOURCE, RESOURCE[1]),
    ],
)
def test_tokens_are_for_the_address_or_the_resource(
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    address: str,
    more: tuple[str, ...],
    resource: str,
) -> None:
    assert main(["serve", EVERYTHING, "--http", address, *TOKENS, *more]) == 0
    [(_, (app,), _)] = calls
    assert app.gate.resource == resource
    assert app.gate.metadata()["authorization_servers"] == ["https://idp.example"]
    assert "can be reached" not in caplog.text


def test_tokens_over_tls(calls: Calls, certificate: tuple[str, str]) -> None:
    files = ["--certificate", certificate[0], "--key", certificate[1]]
    argv = ["serve", EVERYTHING, "--http", "127.0.0.1:8443", *TOKENS, *files]
    assert main(argv) == 0
    assert calls[0][1][0].gate.resource == "https://127.0.0.1:8443/mcp"


def test_options_of_tokens_reach_the_workers(calls: Calls) -> None:
    more = ["--audience", "a", "--audience", "b", "--require-scope", "c"]
    argv = ["serve", "shop:app", "--http", "0.0.0.0:81", "--workers", "3"]
    assert main([*argv, *TOKENS, *RESOURCE, *more, "--api-keys", "keys"]) == 0
    assert calls[0][2]["auth"] == AuthSettings(
        issuers=("https://idp.example",),
        resource="https://shop.example/mcp",
        audience=("a", "b"),
        scopes=("c",),
        api_keys="keys",
    )


@pytest.fixture
def own(tmp_path: Path) -> Iterator[str]:
    """A server with `auth=` of its own."""
    file = tmp_path / "guarded.py"
    file.write_text(
        "from effectmcp import Server\napp = Server('guarded', auth=lambda headers: None)\n"
    )
    yield f"{file}:app"
    sys.modules.pop("guarded", None)


@pytest.mark.parametrize("n", ["1", "2"])
def test_options_do_not_replace_the_servers_own_authentication(
    own: str,
    n: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, make_key(bytes(32)))
    file = tmp_path / "keys"
    file.write_text(key_line("ann", "emcp_a"))
    for options in (["--api-keys", str(file)], [*TOKENS, *RESOURCE]):
        words = problem(
            capsys, "--http", "127.0.0.1:0", "--workers", n, *options, target=own
        )
        assert words.startswith("--auth, --api-keys: the server has auth= of its own")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (None, "cannot be read"),
        ("", "it has no key"),
        ("# nobody yet", "it has no key"),
        ("ann emcp_secret", "line 1: write NAME sha256:HASH and scopes"),
        (f"ann sha256:{'0' * 63}", "line 1: write NAME sha256:HASH and scopes"),
        (f"\na sha256:{'0' * 64}\nb sha256:{'0' * 64}", "line 3: this key is there"),
        (f'ann sha256:{"0" * 64} a"', "is not a scope"),
    ],
)
def test_file_of_keys_that_is_wrong(
    lines: str | None,
    words: str,
    tmp_path: Path,
    calls: Calls,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "keys"
    if lines is not None:
        file.write_text(lines)
    found = problem(capsys, "--http", "127.0.0.1:0", "--api-keys", str(file))
    assert words in found
    assert str(file) in found
    assert "secret" not in found  # a key in the place of its hash
    assert calls == []


def test_drain(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    alone = ["serve", EVERYTHING, "--http", "127.0.0.1:0", "--drain", "2.5"]
    assert main(alone) == 0
    assert (
        main(["serve", "shop:app", "--http", ":81", "--workers", "3", "--drain", "0"])
        == 0
    )
    (_, _, one), (_, _, several) = calls
    assert (one["limits"], several["limits"]) == (Limits(drain=2.5), Limits())
    for seconds in ("-1", "nan", "inf"):
        assert main([*alone[:-1], seconds]) == 2
        assert "--drain: give some seconds" in capsys.readouterr().err
    assert "--drain is for --http" in problem(capsys, "--drain", "1")


def test_log_of_workers(calls: Calls) -> None:
    argv = ["serve", "shop:app", "--http", ":81", "--workers", "3"]
    assert main([*argv, "--log-format", "json", "--log-level", "debug"]) == 0
    assert calls[0][2]["log"] == LogSettings("json", "debug")


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
                ("--auth", "x"),
                ("--resource", "x"),
                ("--audience", "x"),
                ("--require-scope", "x"),
                ("--api-keys", "x"),
            ]
        ),
        (["--http", "a b:c"], "'a b:c' is not an address; write 127.0.0.1:8000"),
        (["--http", ":1", "--path", "mcp"], "--path mcp: it begins with a /"),
        *(
            (["--http", ":1", option, "x"], f"{option} is for --auth ISSUER")
            for option in ("--resource", "--audience", "--require-scope")
        ),
        *(
            (
                ["--http", address, "--auth", "https://idp.example"],
                "--auth needs --resource URL: the URL of this server as clients write it",
            )
            for address in ("0.0.0.0:80", "127.0.0.1:0", "shop.example:80")
        ),
        (
            ["--http", ":1", "--auth", "idp.example"],
            (
                "--auth, --resource: JWTAuth(issuer='idp.example'): write a URL, such as"
                " https://idp.example"
            ),
        ),
        (
            ["--http", ":1", *TOKENS, "--require-scope", "a b"],
            "--auth, --resource: JWTAuth(scopes=...): 'a b' is not a scope; write it without spaces",
        ),
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
    host: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(VARIABLE, make_key(bytes(32)))
    # A server that no other test of this process has served.
    file = tmp_path / f"unserved_{len(host)}.py"
    file.write_text("from effectmcp import Server\napp = Server('unserved')\n")
    (taken,) = bind("127.0.0.1", 0, shared=False)
    with taken:
        address = f"{host}:{taken.getsockname()[1]}"
        argv = ["--http", address, "--workers", "2"]
        said = problem(capsys, *argv, target=f"{file}:app")
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
def serving(
    *argv: str, target: str = EVERYTHING, **environment: str
) -> Iterator[tuple[str, Any]]:
    """A process that serves HTTP, and its URL, as it says on standard error."""
    env = {k: v for k, v in os.environ.items() if k != "EFFECTMCP_STATE_KEYS"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "effectmcp", "serve", target, *argv],
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
    params = message["params"]
    if "name" in params or "taskId" in params:
        headers["Mcp-Name"] = params.get("name") or params["taskId"]
    asked = urllib.request.Request(url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60, context=context) as answer:
        return json.load(answer)


DISCOVER = request("server/discover")


@pytest.mark.parametrize("loop", LOOPS)
def test_http_process(loop: str) -> None:
    argv = ["--http", "127.0.0.1:0", "--path", "/here", "--loop", loop]
    with serving(*argv) as (url, _):
        assert url.endswith("/here")
        assert "capabilities" in ask(url, DISCOVER)["result"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no workers on Windows")
@pytest.mark.parametrize("loop", LOOPS)
def test_http_processes_with_tls(certificate: tuple[str, str], loop: str) -> None:
    files = ["--certificate", certificate[0], "--key", certificate[1]]
    argv = ["--http", "localhost:0", "--workers", "2", "--loop", loop, *files]
    context = ssl.create_default_context(cafile=certificate[0])
    with serving(*argv, target=BOOKSHOP, EFFECTMCP_STATE_KEYS=KEY) as (url, _):
        port = url.split(":")[2]
        url = f"https://localhost:{port}"
        assert "capabilities" in ask(url, DISCOVER, context)["result"]


def probe(url: str) -> tuple[int, bytes]:
    """Ask as a balancer does."""
    where = url.replace("/mcp", "/readyz")
    try:
        with urllib.request.urlopen(where, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


def test_http_process_drains() -> None:
    """A balancer has time to send clients elsewhere; a second signal takes it."""
    with serving("--http", "127.0.0.1:0", "--drain", "3600") as (url, process):
        assert probe(url) == (200, b"ok\n")
        process.terminate()
        while "draining" not in process.stderr.readline():
            pass
        assert probe(url) == (503, b"draining\n")
        assert "capabilities" in ask(url, DISCOVER)["result"]
    with pytest.raises(urllib.error.URLError, match="refused"):
        probe(url)


def test_http_process_stops_after_its_drain() -> None:
    with serving("--http", "127.0.0.1:0", "--drain", "0.01") as (url, process):
        process.terminate()
        process.wait(timeout=60)
    with pytest.raises(urllib.error.URLError, match="refused"):
        probe(url)


LOGGING = """
import logging, sys, warnings
from effectmcp import Server

logging.getLogger("other.library").warning("two\\nlines \\u2028 %s")
logging.getLogger("other.library").debug("a detail")
app = Server("shop_that_logs")
"""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_log_of_processes_is_json(workers: str, loop: str, tmp_path: Path) -> None:
    """The records of this package, of libraries, and of each process."""
    if sys.platform == "win32" and workers == "2":
        pytest.skip("there are no workers on Windows")
    file = tmp_path / "shop_that_logs.py"
    file.write_text(LOGGING)
    argv = ["--http", "127.0.0.1:0", "--workers", workers, "--loop", loop]
    argv += ["--log-format", "json", "--log-level", "debug"]
    with serving(*argv, target=str(file), EFFECTMCP_STATE_KEYS=KEY) as (url, process):
        url = url.removesuffix('",')
        assert "capabilities" in ask(url, DISCOVER)["result"]
        process.terminate()
        found = [json.loads(line) for line in process.stderr]
    said = [one["message"] for one in found]
    assert "SIGTERM: stopping" in said
    assert all(
        set(one) == {"time", "level", "logger", "message", "process"} for one in found
    )
    if workers == "2":
        # The other worker may have been stopped before it began.
        assert len({one["process"] for one in found}) >= 2
        assert "two\nlines \u2028 %s" in said
        assert "a detail" in said
    assert not [one for one in said if "is served at" in one]  # `serving` has read it


@pytest.mark.parametrize("text", ["app = 1", "raise ValueError('no')"])
def test_end_of_a_process_is_json(text: str, tmp_path: Path) -> None:
    """A mistake in the command, and a bug in a module: an operator reads both."""
    (tmp_path / "broken.py").write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "effectmcp", "serve", str(tmp_path / "broken.py")),
            *("--log-format", "json", "--http", "127.0.0.1:0"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    (found,) = map(json.loads, done.stderr.splitlines())
    assert found["level"] == "error"
    assert ("error" in found) == ("raise" in text)


def test_stdio_is_announced() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "effectmcp", "serve", BOOKSHOP],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "EFFECTMCP_STATE_KEYS": KEY},
    )
    assert done.stdout == ""
    said = [line.partition(": ")[2] for line in done.stderr.splitlines()]
    assert "bookshop is served on standard input and output" in said
    assert "its clients: the process that started this one" in said
    (name,) = Keys(KEY).names
    assert f"its keys: {name}, from EFFECTMCP_STATE_KEYS" in said


# ---- tasks ----

SERVER = """
from effectmcp import Flow, Server, Sleep
from effectmcp.tasks import SqliteTasks

app = Server("shop_with_tasks"{options})

@app.tool(task="required")
def ship() -> Flow[str]:
    yield from Sleep(1)
    return "done"
"""


@pytest.fixture
def shop_with_tasks(tmp_path: Path, calls: Calls) -> Iterator[Any]:
    """Write a server with a tool that is always a task; return its file."""
    file = tmp_path / "shop_with_tasks.py"

    def write(options: str = "") -> str:
        file.write_text(SERVER.format(options=options))
        return str(file)

    yield write
    module: Any = sys.modules.pop("shop_with_tasks", None)
    if module is not None and module.app.tasks is not None:
        module.app.tasks.close()


@pytest.mark.parametrize("where", [[], ["--http", "127.0.0.1:0"]])
def test_tasks_are_kept_in_a_file(
    where: list[str], shop_with_tasks: Any, calls: Calls, tmp_path: Path
) -> None:
    path = tmp_path / "tasks.db"
    assert main(["serve", shop_with_tasks(), *where, "--tasks", str(path)]) == 0
    [(_, (app,), _)] = calls
    assert app.tasks.path == path
    assert path.exists()


def test_tasks_of_several_processes(calls: Calls) -> None:
    argv = ["serve", "shop:app", "--http", ":81", "--workers", "3", "--tasks", "x.db"]
    assert main(argv) == 0
    assert calls[0][2]["tasks"] == "x.db"


def test_tasks_in_the_same_file_twice(
    shop_with_tasks: Any, calls: Calls, tmp_path: Path
) -> None:
    """The author's store is used, with its other options."""
    path = str(tmp_path / "tasks.db")
    target = shop_with_tasks(f", tasks=SqliteTasks({path!r}, ttl=5)")
    assert main(["serve", target, "--tasks", path]) == 0
    assert calls[0][1][0].tasks.ttl == 5


@pytest.mark.parametrize("store", ["SqliteTasks()", "SqliteTasks('other.db')", "5"])
def test_tasks_in_another_store_of_the_author(
    store: str, shop_with_tasks: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks of one store would be missing in the other, so none is preferred."""
    target = shop_with_tasks(f", tasks={store}")
    store = store.replace("other.db", str(Path("other.db").absolute()))
    assert main(["serve", target, "--tasks", "x.db"]) == 2
    assert capsys.readouterr().err == (
        f"effectmcp: --tasks x.db: the server has a store of its own, tasks={store}; leave"
        " out the option, or remove tasks= from Server()\n"
    )
    sys.modules.pop("shop_with_tasks")


@pytest.mark.parametrize(
    ("options", "argv", "words"),
    [
        (
            "",
            [],
            (
                "the tool 'ship' is always a task, and this server keeps none: give"
                " Server(tasks=SqliteTasks(path)), or --tasks PATH"
            ),
        ),
        (
            ", tasks=SqliteTasks()",
            [],
            (
                "tasks=SqliteTasks() keeps tasks in the memory of one process, where no other"
                " finds them: give SqliteTasks(path), or remove it and give --tasks PATH"
            ),
        ),
        (
            "",
            ["--tasks", "/gone/x.db"],
            (
                "/gone/x.db cannot be opened as a store of tasks: [Errno 2] No such file or"
                " directory: '/gone/x.db'"
            ),
        ),
        (
            "",
            ["--tasks", "restate+http://127.0.0.1:8080"],
            (
                "'restate+http://127.0.0.1:8080' does not name an engine: give"
                " restate+http://INGRESS:8080?admin=http://ADMIN:9070, and &name=NAME if"
                " several servers use it"
            ),
        ),
        (
            "",
            ["--tasks", "restate+http://127.0.0.1?admin=http://127.0.0.1:x"],
            "'http://127.0.0.1:x' is not the URL of an HTTP server: http://HOST:PORT",
        ),
        (
            "",
            ["--tasks", "restate+http://127.0.0.1?admin=http://127.0.0.1&name=a/b"],
            "the name 'a/b' of tasks: use letters, digits, dots, - and _",
        ),
        (
            ", tasks=SqliteTasks()",
            ["--tasks", "restate+http://127.0.0.1?admin=http://127.0.0.1"],
            (
                "--tasks restate+http://127.0.0.1?admin=http://127.0.0.1: the server has a"
                " store of its own, tasks=SqliteTasks(); leave out the option, or remove"
                " tasks= from Server()"
            ),
        ),
    ],
)
def test_tasks_that_processes_cannot_share(
    options: str,
    argv: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refusal comes before a process starts."""
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "shop_with_tasks.py"
    file.write_text(SERVER.format(options=options))
    where = ["--http", "127.0.0.1:0", "--workers", "2"]
    assert main(["serve", str(file), *where, *argv]) == 2
    assert capsys.readouterr().err == f"effectmcp: {words}\n"
    sys.modules.pop("shop_with_tasks").app.tasks = None


def as_task(method: str, **params: Any) -> Any:
    """A request of a client that can follow tasks."""
    message = request(method, **params)
    capabilities: Any = {"elicitation": {}, "extensions": {EXTENSION: {}}}
    message["params"]["_meta"][CAPABILITIES] = capabilities
    return message


@pytest.mark.skipif(sys.platform == "win32", reason="there are no workers on Windows")
def test_tasks_outlive_the_process_that_runs_them(tmp_path: Path) -> None:
    """Each request may reach any process; after a SIGKILL, the other one continues."""
    make_pipes(tmp_path)
    file = str(tmp_path / "tasks.db")
    argv = ["--http", "127.0.0.1:0", "--workers", "2", "--tasks", file]
    with serving(*argv, target=YARD, EFFECTMCP_STATE_KEYS=KEY) as (url, _):

        def send(method: str, **params: Any) -> Any:
            return ask(url, as_task(method, **params))["result"]

        def until(status: str) -> Any:
            found: Any = {}
            while found.get("status") != status:
                found = send("tasks/get", taskId=id_)
            return found

        def command(*more: str) -> str:
            line = [sys.executable, "-m", "effectmcp", "tasks", *more, "--tasks", file]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stderr) == (0, "")
            return done.stdout

        made = send("tools/call", name="ship", arguments={"folder": str(tmp_path)})
        assert made["resultType"] == "task"
        id_ = made["taskId"]
        first = wait_for_step(tmp_path)
        end_step(tmp_path)
        # One process runs both steps, as it holds the task.
        assert wait_for_step(tmp_path) == first
        assert f"runs in   process {first}\n" in command("show", id_)
        os.kill(first, signal.SIGKILL)
        second = wait_for_step(tmp_path)
        assert second != first
        end_step(tmp_path)
        asked = until("input_required")
        assert asked["statusMessage"] == "half of it is built"
        answering: set[str] = set()
        while len(answering) < 2:  # the killed process is started again
            whose = send("tools/call", name="who", arguments={})
            answering.add(whose["content"][0]["text"])
            assert send("tasks/get", taskId=id_)["status"] == "input_required"
        assert "answers: elicit-1" in command("list")
        (key,) = asked["inputRequests"]
        answer = {"action": "accept", "content": {"value": "Argo"}}
        send("tasks/update", taskId=id_, inputResponses={key: answer})
        until("working")
        command("cancel", id_[:8])
        until("cancelled")
        text = command("show", id_)
        assert f"  step-1 done {first}\n  step-2 done {second}\n" in text
        assert '  elicit-1 accepted {"value": "Argo"}\n' in text


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
