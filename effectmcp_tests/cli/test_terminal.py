"""The driver of a terminal, without one: pipes, and their output."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from effectmcp.cli.terminal import _posix_keys, open_page

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes cannot be selected")


def test_a_sequence_that_comes_in_pieces_is_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    woken, wake = os.pipe()
    read = os.read
    monkeypatch.setattr(os, "read", lambda file, size: read(file, 1))
    try:
        os.write(theirs, b"\x1b[Aa\x1b")
        keys = _posix_keys(ours, woken)
        assert [next(keys) for _ in range(3)] == [["up"], ["a"], ["cancel"]]
        os.write(wake, b"\0")
        assert next(keys) == []
        os.close(theirs)
        with pytest.raises(KeyboardInterrupt):
            next(keys)
    finally:
        for file in (ours, woken, wake):
            os.close(file)


def test_output_of_a_browser_is_kept_out_of_the_result(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER", "echo")
    assert open_page("https://shop.example/")
    print("the result", flush=True)
    assert capfd.readouterr() == ("the result\n", "https://shop.example/\n")


def test_result_is_written_while_the_browser_is_open(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A browser that runs in the foreground ends long after the login."""
    opened, closing = tmp_path / "opened", tmp_path / "closing"
    os.mkfifo(opened)
    os.mkfifo(closing)
    script = tmp_path / "browser"
    script.write_text(f"#!/bin/sh\necho > {opened}\ncat {closing}\n")
    script.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(script))
    page = threading.Thread(target=open_page, args=("https://shop.example/",))
    page.start()
    opened.read_text()
    print("the result", flush=True)
    closing.write_text("closed")
    page.join()
    assert capfd.readouterr() == ("the result\n", "closed")


def test_browser_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "false")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not open_page("https://shop.example/")
