"""`effectmcp token`."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from effectmcp import Server
from effectmcp.cli import main
from effectmcp.cli.token import journal_in
from effectmcp.state import Keys, make_key
from effectmcp.testing import MemoryClient

from ..helpers import example

KEY, OTHER = make_key(bytes(range(32))), make_key(bytes(32))

Output = pytest.CaptureFixture[str]


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """The state of an order in its third round."""
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", KEY)
    app = Server("bookshop", keys=Keys(KEY))
    app.tool(version="v2")(example("bookshop").order)
    client = MemoryClient(app, principal="ann")
    params: dict[str, Any] = {"name": "order", "arguments": {"title": "Dune"}}
    for value in ("Ann", "2026-12-01"):
        result = client.send("tools/call", **params)
        (key,) = result["inputRequests"]
        answer = {"action": "accept", "content": {"value": value}}
        params |= {
            "requestState": result["requestState"],
            "inputResponses": {key: answer},
        }
    state: str = client.send("tools/call", **params)["requestState"]
    return state


OF = ("--server", "bookshop", "--tool", "order", "--principal", "ann")
WITH = ("--arguments", '{"title": "Dune"}')


def test_a_state_is_described(token: str, capsys: Output) -> None:
    assert main(["token", token]) == 0
    said = capsys.readouterr().out
    assert f"a state of {len(token):,} characters, in round 3" in said
    assert "version  v2" in said
    assert '  elicit-1 accepted {"value": "Ann"}' in said
    assert "asked    confirm-1" in said


def test_a_state_from_standard_input(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(token + "\n"))
    assert main(["token", "-", *OF, *WITH]) == 0


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (
            (*OF, "--arguments", '{"title": "x"}'),
            "it is of a call with other arguments",
        ),
        (("--server", "bookshop", "--tool", "sell", *WITH), "it is of another tool"),
        (("--server", "florist", "--tool", "order", *WITH), "it is of another server"),
        ((*OF[:4], *WITH), "it is another user's"),
    ],
)
def test_why_it_would_be_refused(
    token: str, argv: tuple[str, ...], why: str, capsys: Output
) -> None:
    assert main(["token", token, *argv]) == 1
    assert f"refused: {why}\n" in capsys.readouterr().out


def test_an_unreadable_state(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert main(["token", token[:-2]]) == 1
    assert "refused: it is not a state" in capsys.readouterr().out
    assert journal_in(token[:-2]) is None
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", OTHER)
    assert main(["token", token]) == 1
    assert "refused: none of these keys has sealed it" in capsys.readouterr().out
    monkeypatch.delenv("EFFECTMCP_STATE_KEYS")
    assert main(["token", token]) == 2
    assert journal_in(token) is None
    assert "states cannot be read without the keys" in capsys.readouterr().err


def test_an_expired_state(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    import time

    later = time.time() + 7_200
    monkeypatch.setattr("effectmcp.cli.token.time.time", lambda: later)
    assert main(["token", token]) == 1
    assert "refused: its time is over" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--server", "x"), "--server needs --tool"),
        ((*OF, "--arguments", "{"), "--arguments: "),
        ((*OF, "--arguments", '{"a": NaN}'), "--arguments: "),
        ((*OF, "--arguments", "[" * 100_000), "--arguments: nested deeper"),
        ((*OF, "--arguments", "[]"), "--arguments: it is not a JSON object"),
    ],
)
def test_mistakes(
    token: str, argv: tuple[str, ...], message: str, capsys: Output
) -> None:
    assert main(["token", token, *argv]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("given", ["", " "])
def test_no_token(given: str, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", KEY)
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert main(["token", given]) == main(["token", "-"]) == 2
    assert "effectmcp: give a token, or - and" in capsys.readouterr().err
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8")
    )
    assert main(["token", "-"]) == 2
    assert "effectmcp: standard input is not UTF-8" in capsys.readouterr().err


def test_invalid_keys(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", "abc")
    assert main(["token", token]) == 2
    said = capsys.readouterr().err
    assert said.startswith("effectmcp: EFFECTMCP_STATE_KEYS: key 1 has 2 bytes")
