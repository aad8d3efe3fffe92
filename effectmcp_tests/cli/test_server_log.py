"""The standard error of a server process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from effectmcp.cli.guard import guard_terminal
from effectmcp.cli.server_log import LoggedPipes
from effectmcp.client import ChannelError

from .test_output import FakeTerminal

#: Writes more than a pipe holds, then a file, and ends with its input.
SCRIPT = """
import os, pathlib, sys
os.write(2, b"start \\x1b[2J\\n" + b"x" * 1_000_000)
pathlib.Path(sys.argv[1]).touch()
sys.stdin.read()
os.write(2, b"\\nend \\xe2\\x80\\xae\\n")
"""


def wait_for(file: Path) -> None:
    """Wait, and the event loop with it, as while a form is on the terminal."""
    end = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < end, "the server waits for its standard error"
        time.sleep(0.01)


async def run(file: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", SCRIPT, str(file)]
    async with LoggedPipes(command):
        wait_for(file)


async def test_server_that_logs_waits_for_nothing_and_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = FakeTerminal()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", terminal)
    guard_terminal()
    await run(tmp_path / "written")
    assert terminal.text.startswith("start \\x1b[2J\nxxx")
    assert terminal.text.endswith("xxx\nend \\u202e\n")


async def test_log_is_inherited_where_it_is_not_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await run(tmp_path / "written")
    assert capfd.readouterr().err.startswith("start \x1b[2J\n")


async def test_command_that_cannot_be_started_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", FakeTerminal())
    guard_terminal()
    with pytest.raises(ChannelError, match="cannot be started"):
        async with LoggedPipes(["/no/such/command"]):
            raise AssertionError("not reached")
