"""`effectmcp worker`: what it refuses, and how it ends. Real processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from effectmcp.cli import main
from effectmcp.tasks import SqliteTasks
from effectmcp.tasks.operators import find_one, journal_of, unfinished_steps

from .test_tasks import ID, row
from .yard import end_step, make_pipes, wait_for_step

YARD = str(Path(__file__).with_name("yard.py"))

#: No engine listens there.
ENGINE = "restate+http://127.0.0.1:1?admin=http://127.0.0.1:1"

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in ("yard", "everything", "shop_with_tasks"):
        if name not in before:
            sys.modules.pop(name, None)


def problem(capsys: Output, *argv: str) -> str:
    assert main(["worker", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.removeprefix("effectmcp: ").strip()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "a worker needs the place of the tasks: give --tasks PATH"),
        (["--tasks", "x.db", "--concurrency", "0"], "--concurrency: give 1 or more"),
        (["--tasks", "x.db", "--grace", "-1"], "--grace: give some seconds, or 0"),
        (["--tasks", "x.db", "--grace", "nan"], "--grace: give some seconds, or 0"),
        (["--tasks", "/gone/x.db"], "/gone/x.db cannot be opened as a store of tasks"),
        (["--tasks", ENGINE], "an engine calls its workers: give --http HOST:PORT"),
        (
            ["--tasks", ENGINE, "--advertise", "http://worker:9080"],
            "an engine calls its workers: give --http HOST:PORT",
        ),
        (
            ["--tasks", ENGINE, "--http", "localhost:port"],
            "'localhost:port' is not an address",
        ),
        (
            ["--tasks", ENGINE, "--http", "0.0.0.0:9080"],
            (
                "--http 0.0.0.0:9080: an engine cannot call this address; give --advertise"
                " URL, too"
            ),
        ),
        (
            ["--tasks", ENGINE, "--http", "[::]:9080"],
            "--http [::]:9080: an engine cannot call this address",
        ),
        (
            ["--tasks", ENGINE, "--http", "0.0.0.0:9080", "--advertise", "worker:9080"],
            "'worker:9080' is not the URL of an HTTP server: http://HOST:PORT",
        ),
        (
            ["--tasks", "restate+http://127.0.0.1:1", "--http", ":0"],
            (
                "'restate+http://127.0.0.1:1' does not name an engine: give"
                " restate+http://INGRESS:8080?admin=http://ADMIN:9070"
            ),
        ),
        (
            ["--tasks", "restate+http://127.0.0.1:1?admin=9070", "--http", ":0"],
            "'9070' is not the URL of an HTTP server: http://HOST:PORT",
        ),
    ],
)
def test_options_that_cannot_be(argv: list[str], words: str, capsys: Output) -> None:
    assert words in problem(capsys, YARD, *argv)


@pytest.mark.parametrize(
    ("store", "argv", "words"),
    [
        ("SqliteTasks()", [], "keeps tasks in the memory of one process"),
        (
            "SqliteTasks()",
            ["--tasks", "x.db"],
            (
                "--tasks x.db: the server has a store of its own, tasks=SqliteTasks(); leave"
                " out the option, or remove tasks= from Server()"
            ),
        ),
        ("object()", [], "its tasks run elsewhere"),
    ],
)
def test_servers_with_a_store_of_their_own(
    store: str, argv: list[str], words: str, tmp_path: Path, capsys: Output
) -> None:
    file = tmp_path / "shop_with_tasks.py"
    file.write_text(
        "from effectmcp import Server\n"
        "from effectmcp.tasks import SqliteTasks\n"
        f"app = Server('shop', tasks={store})\n"
    )
    assert words in problem(capsys, str(file), *argv)


@pytest.mark.parametrize("option", ["--http", "--advertise"])
def test_file_has_no_address(option: str, tmp_path: Path, capsys: Output) -> None:
    argv = ["--tasks", str(tmp_path / "x.db"), option, "http://worker:9080"]
    assert problem(capsys, YARD, *argv) == (
        "--http and --advertise are for an engine, and these tasks are in a file"
    )


def test_address_that_is_taken(capsys: Output) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        argv = ["--tasks", ENGINE, "--http", f"127.0.0.1:{port}"]
        words = f"cannot listen at 127.0.0.1, port {port}: "
        assert words in problem(capsys, YARD, *argv)


@contextmanager
def worker(folder: Path, *argv: str) -> Iterator[Any]:
    """A worker in whose first step a task is."""
    make_pipes(folder)
    store = SqliteTasks(folder / "tasks.db")
    arguments = {"folder": str(folder)}
    store.create(row(arguments=arguments, ttl=None, wake=0.0))
    store.close()
    process = subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-m", "effectmcp", "worker", YARD),
            *("--tasks", str(folder / "tasks.db"), *argv),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert wait_for_step(folder) == process.pid
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def until_it_says(process: Any, words: str) -> None:
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError("it has ended")


def kept(folder: Path) -> Any:
    store = SqliteTasks(folder / "tasks.db")
    found = find_one(store, ID)
    store.close()
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="tasks in a file need flock")
class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_first_one_lets_the_running_step_end(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        """The outcome is kept; the next step begins in another process."""
        with worker(tmp_path, "--concurrency", "1") as process:
            process.send_signal(number)
            until_it_says(process, f"{number.name}: stopping")
            end_step(tmp_path)
            _, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, "")
        found = kept(tmp_path)
        journal = journal_of(found.row)
        assert journal is not None
        assert [one.value for one in journal.entries] == [process.pid]
        assert unfinished_steps(journal) == {}
        assert (found.holder, found.row.wake) == (None, 0.0)

    def test_log_is_json(self, tmp_path: Path) -> None:
        with worker(tmp_path, "--log-format", "json", "--grace", "0") as process:
            process.terminate()
            said = [json.loads(line)["message"] for line in process.stderr]
        assert "SIGTERM: stopping" in said

    def test_second_one_cuts_it_off(self, tmp_path: Path) -> None:
        with worker(tmp_path) as process:
            process.terminate()
            until_it_says(process, "SIGTERM: stopping")
            process.terminate()
            assert process.wait(timeout=60) == 0
        found = kept(tmp_path)
        assert unfinished_steps(journal_of(found.row)) == {"step-1": 1}
        assert (found.holder, found.row.wake) == (None, 0.0)

    def test_step_that_outlives_the_grace_is_cut_off(self, tmp_path: Path) -> None:
        with worker(tmp_path, "--grace", "0") as process:
            process.terminate()
            _, err = process.communicate(timeout=60)
            assert "cancelled steps of tasks still running after 0 s" in err
            assert process.returncode == 0
        assert kept(tmp_path).holder is None
