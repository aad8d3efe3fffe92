"""The command: its subcommands, its errors, its exit status."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import effectmcp
from effectmcp import UsageError
from effectmcp.auth.api_keys import APIKeys
from effectmcp.cli import keygen, main
from effectmcp.cli.printing import UNWRITTEN
from effectmcp.server.identity import Presented
from effectmcp.state import Keys

ROOT = Path(__file__).parents[2]


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(options: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(keygen, "_run", run)


def test_keygen_prints_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keygen"]) == main(["keygen"]) == 0
    first, second = capsys.readouterr().out.split()
    assert first != second
    Keys(first, second)


def test_keygen_prints_the_line_of_an_api_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line may be appended to a file; the key itself is not stored."""
    argv = ["keygen", "--api-key", "ann", "--scope", "b:write", "--scope", "a#b"]
    assert main(argv) == 0
    line, told = capsys.readouterr()
    key = told.split("Authorization: Bearer ")[1].strip()
    assert key not in line
    assert line.startswith("ann sha256:")
    assert line.endswith(" a#b b:write\n")
    headers = {"authorization": f"Bearer {key}"}
    found = APIKeys([line]).identify(Presented(method="POST", headers=headers))
    assert found.subject == "ann"
    assert found.scopes == frozenset({"a#b", "b:write"})
    assert main(argv) == 0
    assert capsys.readouterr().out != line


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--scope", "a"], "--scope is for --api-key NAME"),
        (["--api-key", "ann b"], "cannot be the name of a key"),
        (["--api-key", ""], "cannot be the name of a key"),
        (["--api-key", "#ann"], "cannot be the name of a key"),
        (["--api-key", "ann", "--scope", "a b"], "'a b' is not a scope"),
        (["--api-key", "ann", "--scope", "#b"], "'#' begins a remark"),
    ],
)
def test_keygen_refuses_what_no_line_can_have(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keygen", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_flags_that_print(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([flag])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert (effectmcp.__version__ if flag == "--version" else "keygen") in out


@pytest.mark.parametrize("argv", [[], ["nothing"], ["serve"]])
def test_wrong_arguments(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: effectmcp" in capsys.readouterr().err


def test_an_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, UsageError("one\n  two"))
    assert main(["keygen"]) == 2
    assert capsys.readouterr() == ("", "effectmcp: one two\n")


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        BaseExceptionGroup("of trio", [KeyboardInterrupt()]),
        BaseExceptionGroup("", [BaseExceptionGroup("", [KeyboardInterrupt()])]),
    ],
)
def test_ctrl_c_ends_it_quietly(
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raising(monkeypatch, error)
    assert main(["keygen"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), ExceptionGroup("", [ZeroDivisionError()])]
)
def test_a_bug_keeps_its_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, error)
    with pytest.raises(type(error)):
        main(["keygen"])


# ---- as processes ----


def run(*argv: str) -> Any:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "effectmcp", *argv],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_python_dash_m() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, effectmcp.__version__)
    done = run("serve", "no_such_module")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "effectmcp: there is no module 'no_such_module'; write module:app\n"
    )
    assert "usage: effectmcp " in run("--help").stdout


SERVED = f"{sys.executable} -m effectmcp serve {ROOT / 'examples' / 'bookshop.py'}"
BOOKSHOP = str(ROOT / "examples" / "bookshop.py")


def piped(*argv: str, to: int, errors: int) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "effectmcp", *argv],
        # What is kept back until the end cannot be written either.
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=to,
        stderr=errors,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("argv", [["keygen"], ["list", BOOKSHOP, "--json"]])
def test_a_reader_that_closes_the_pipe_early_causes_no_message(argv: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = piped(*argv, to=theirs, errors=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, "")
    # An exception in the middle of a call comes in a group, and leaves through it.
    done = piped("list", SERVED, "--raw", to=subprocess.PIPE, errors=theirs)
    assert (done.returncode, done.stdout) == (141, "")
    os.close(theirs)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk")
def test_a_full_disk_is_reported() -> None:
    with open("/dev/full", "w") as full:
        done = piped("list", BOOKSHOP, to=full.fileno(), errors=subprocess.PIPE)
    assert done.returncode == UNWRITTEN
    assert done.stderr == (
        "effectmcp: the output cannot be written: No space left on device\n"
    )


def test_keygen_loads_no_event_loop() -> None:
    code = "import sys; from effectmcp.cli import main; main(['keygen']);"
    code += "print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[1] == "False"
