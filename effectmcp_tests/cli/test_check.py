"""`effectmcp check` and `effectmcp replay`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from effectmcp.cli import main
from effectmcp.testing import read_transcripts

ROOT = Path(__file__).parent.parent.parent
PLANTED = ROOT / "effectmcp_tests" / "testing" / "planted"

SHOP = """
from effectmcp import Confirm, Elicit, Flow, Server

app = Server({name!r})

@app.tool
def order(title: str) -> Flow[str]:
    {first}name = yield from Elicit({question!r}, str)
    if not (yield from Confirm(f"{{title}} for {{name}}?")):
        return "."
    return name{end}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a server, under a name of its own: it is imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / f"shop_{tmp_path.name}.py"


def write(file: Path, question: str = "Who?", first: str = "", end: str = "") -> str:
    text = SHOP.format(name="shop", question=question, first=first, end=end)
    file.write_text(text)
    sys.modules.pop(file.stem, None)
    return str(file)


def test_nothing_is_found(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(shop), "--conversations", "10"]) == 0
    assert capsys.readouterr().out.startswith("checked order: ")


def test_findings_are_reported_and_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "saved"
    target = f"{__package__.rpartition('.')[0]}.testing.planted.clock:app"
    assert main(["check", target, "book_table", "--save", str(saved)]) == 1
    out = capsys.readouterr().out
    assert "datetime.now() is not recorded" in out
    ((file, transcript),) = read_transcripts(saved)
    assert f"saved as {file}" in out
    assert transcript.target == "book_table"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--conversations", "0"], "--conversations: give 1 or more"),
        (["gone"], "has nothing that asks by the name of gone; there is order"),
    ],
)
def test_mistakes(
    shop: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", write(shop), *argv]) == 2
    assert message in capsys.readouterr().err


def test_missing_hypothesis_is_reported_with_what_to_install(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "effectmcp.testing.checking", raising=False)
    assert main(["check", write(shop)]) == 2
    assert "pip install 'effectmcp[testing]'" in capsys.readouterr().err


# ---- replay ----


@pytest.fixture
def transcripts(shop: Path, tmp_path: Path) -> Path:
    """A conversation with two answered questions."""
    from effectmcp.server.target import load_app
    from effectmcp.testing import MemoryClient, Recorder

    app = load_app(write(shop))
    folder = tmp_path / "transcripts"
    Recorder(app, folder)
    MemoryClient(app, {"Who?": "Ann", "Dune": True}).call_tool("order", title="Dune")
    return folder


def replayed(
    folder: Path, target: str, capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[int, list[str]]:
    status = main(["replay", str(folder), target, *argv])
    return status, capsys.readouterr().out.splitlines()


def test_an_unchanged_handler_replays(
    shop: Path, transcripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = replayed(transcripts, write(shop), capsys, "--strict")
    assert (status, lines[-1]) == (0, "1 replays")
    assert lines[0].endswith(".json: replays")


def test_changes_are_reported_with_their_lines(
    shop: Path, transcripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write(shop, question="Whom?")
    status, lines = replayed(transcripts, target, capsys)
    assert (status, lines[-1]) == (0, "1 salvages")
    assert f"salvages after round 2 at {target}:8" in lines[0]
    assert replayed(transcripts, target, capsys, "--strict")[0] == 1


def test_another_result_is_not_a_failure(
    shop: Path, transcripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = replayed(transcripts, write(shop, end=" + '!'"), capsys)
    assert (status, lines[-1]) == (0, "1 differs")


def test_a_replay_that_stops_is_a_failure(
    shop: Path, transcripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(shop)
    shop.write_text(shop.read_text().replace("title: str", "title: int"))
    status, lines = replayed(transcripts, str(shop), capsys)
    assert (status, lines[-1]) == (1, "1 stops")
    assert "title" in lines[0]


def test_a_missing_folder_of_transcripts_is_reported(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(tmp_path / "none"), write(shop)]) == 2
    assert "there are no transcripts in" in capsys.readouterr().err
