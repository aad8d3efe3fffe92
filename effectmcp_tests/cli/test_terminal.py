"""The driver of a terminal, without one: pipes, and their output."""

from __future__ import annotations

import os
import subprocess
import webbrowser

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
    def run(url: str) -> bool:
        return subprocess.run(["echo", url]).returncode == 0

    monkeypatch.setattr(webbrowser, "open", run)
    assert open_page("https://shop.example/")
    print("the result", flush=True)
    assert capfd.readouterr() == ("the result\n", "https://shop.example/\n")
