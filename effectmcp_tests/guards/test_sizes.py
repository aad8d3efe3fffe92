"""Limits of the sizes of results: at the limit, beyond it, and in tasks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Detach, Elicit, Flow, Server, ToolError
from effectmcp.content import ToolResult
from effectmcp.errors import UsageError
from effectmcp.guards import limit_size
from effectmcp.protocol.jsonrpc import encode

from ..tasks.simulated import Host, new
from ..wire import KEYS, call, error, result, said, send, text_of

#: The bytes of a result around its text.
AROUND = len(encode({"content": [{"type": "text", "text": ""}]}))


def serving(most: int, text: str) -> Server:
    app = Server("shop", keys=KEYS)
    app.intercept(limit_size(most))

    @app.tool
    def read() -> str:
        return text

    @app.tool
    def ask() -> Flow[str]:
        yield from Elicit("Who?", str, key="who")
        return text

    @app.tool
    def later() -> Flow[str]:
        yield from Detach()
        return text

    @app.tool
    def fail() -> str:
        raise ToolError(text)

    @app.tool
    def fail_politely() -> ToolResult:
        return ToolResult(text, is_error=True)

    @app.prompt
    def review() -> str:
        return text

    @app.resource("shop://news")
    def news() -> str:
        return text

    return app


def test_at_the_limit() -> None:
    app = serving(AROUND + 5, "x" * 5)
    assert text_of(result(call(app, "read"))) == "xxxxx"


def test_beyond_the_limit() -> None:
    """The error tells the model what to do."""
    app = serving(1_000, "x" * 2_000)
    found = result(call(app, "read"))
    assert found["isError"] is True
    assert text_of(found) == (
        f"The result of read has {AROUND + 2_000:,} bytes, and at most 1,000 are sent:"
        " ask for less of it."
    )


@given(st.text(), st.integers(-3, 3))
@example("é\n\u2028" * 20, 0)
@example("é\n\u2028" * 20, -1)
def test_bytes_are_counted_as_they_are_sent(text: str, room: int) -> None:
    size = len(encode({"content": [{"type": "text", "text": text}]}))
    found = result(call(serving(size + room, text), "read"))
    assert ("isError" in found) == (room < 0)


def test_the_last_round_of_a_flow() -> None:
    """Questions have no limit."""
    app = serving(AROUND + 5, "x" * 6)
    asked = result(call(app, "ask"))
    answers = said(asked, {"value": "x" * 100})
    done = result(call(app, "ask", answers=answers, state=asked["requestState"]))
    assert text_of(done).startswith("The result of ask has")


@pytest.mark.parametrize("name", ["fail", "fail_politely"])
def test_errors_pass(name: str) -> None:
    found = result(call(serving(10, "x" * 100), name))
    assert (found["isError"], text_of(found)) == (True, "x" * 100)


@pytest.mark.parametrize(("length", "fits"), [(5, True), (6, False)])
def test_results_of_tasks(length: int, fits: bool) -> None:
    host = Host(serving(AROUND + 5, "x" * length), new("later"))
    row: Any = host.run()
    assert row.status == "completed"
    assert ("isError" not in row.result) == fits
    if not fits:
        assert text_of(row.result).startswith("The result of later has")


def test_prompts_and_resources() -> None:
    app = serving(50, "x" * 100)
    for reply in (
        send(app, "prompts/get", {"name": "review"}),
        send(app, "resources/read", {"uri": "shop://news"}),
    ):
        assert "at most 50 are sent" in error(reply)["message"]


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "x", None])
def test_limits_that_are_invalid(most: Any) -> None:
    with pytest.raises(UsageError, match="give 1 byte or more"):
        limit_size(most)
