from __future__ import annotations

import json
import logging
from typing import Any

import attrs
import pytest

from effectmcp import (
    ArgumentsError,
    ClientFailed,
    Declined,
    DivergenceError,
    InvalidAnswer,
    OutputError,
    ProtocolError,
    StateError,
    ToolError,
    TooManyRounds,
)
from effectmcp.content import (
    Annotations,
    EmbeddedResource,
    Image,
    Message,
    ResourceContents,
    Text,
    ToolResult,
)
from effectmcp.exchange.answers import reply_to
from effectmcp.exchange.commands import Overdue, Peer, Reply
from effectmcp.exchange.context import MODERN, Context
from effectmcp.exchange.results import (
    bad_arguments,
    error_of,
    prompt_result,
    resource_result,
    told_failure,
    tool_failure,
    tool_result,
)
from effectmcp.protocol.jsonrpc import Id, Request, encode
from effectmcp.protocol.meta import Meta
from effectmcp.server import Server, Tool
from effectmcp.server.features import make_prompt, make_resource, make_tool

from ..wire import fits


def sent(fields: dict[str, Any], id_: Id = 1) -> Reply:
    """Return the reply with these fields."""
    request, meta = Request(id_, "tools/call", {}), Meta("2026-07-28", {})
    return reply_to(
        Context(APP, Peer(), request, meta, MODERN, lambda: 0.0, bytes, []), fields
    )


@attrs.frozen
class Receipt:
    """The result type of some tools here."""

    title: str
    copies: int = 1


APP = Server("shop", version="2")


def plain() -> Any: ...
def receipt() -> Receipt: ...  # type: ignore[empty-body]
def titles() -> list[str]: ...  # type: ignore[empty-body]


PLAIN = make_tool(plain)
RECEIPT = make_tool(receipt)
TITLES = make_tool(titles)
BY_HAND = make_tool(plain, output_schema={"type": "object", "required": ["a"]})


def found(tool: Tool, value: Any) -> dict[str, Any]:
    result = tool_result(tool, value)
    fits("CallToolResult", {**result, "resultType": "complete"})
    encode(result)
    return result


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# ---- tools ----


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, []),
        ("hi", [text("hi")]),
        (Text("hi"), [text("hi")]),
        ([Text("hi"), "ho"], [text("hi"), text("ho")]),
        (
            Image(b"x"),
            [{"type": "image", "data": "eA==", "mimeType": "image/png"}],
        ),
    ],
)
def test_result_of_content(value: Any, content: Any) -> None:
    assert found(PLAIN, value) == {"content": content}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (5, 5),
        (True, True),
        ([], []),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (["a", "b"], ["a", "b"]),
        (Receipt("Dune"), {"title": "Dune", "copies": 1}),
    ],
)
def test_result_of_data(value: Any, written: Any) -> None:
    """A block repeats the data, for clients without structured content."""
    result = found(PLAIN, value)
    assert result["structuredContent"] == written
    (block,) = result["content"]
    assert json.loads(block["text"]) == written


def test_result_that_was_promised() -> None:
    result = found(RECEIPT, Receipt("Dune", 2))
    assert result["structuredContent"] == {"title": "Dune", "copies": 2}
    assert found(TITLES, ["a"])["structuredContent"] == ["a"]
    assert found(BY_HAND, {"a": 1})["structuredContent"] == {"a": 1}


@pytest.mark.parametrize(
    ("tool", "value", "words"),
    [
        (RECEIPT, "Dune", "must be"),
        (RECEIPT, Receipt(5), "title: must be"),  # type: ignore[arg-type]
        (TITLES, [5], r"\[0\]"),
        (BY_HAND, {}, "a"),
        (BY_HAND, {"a": {1}}, "of type set"),
        (PLAIN, object(), "the result: is of type object"),
        (PLAIN, {"a": [object()]}, r"a\[0\]: is of type object"),
        (PLAIN, [1, Text("hi")], "neither a string nor a block"),
        (PLAIN, b"x", "bytes are not a block"),
        (PLAIN, float("nan"), "the result: must be a finite number"),
        (PLAIN, {"a": "\ud800"}, "lone surrogates"),
        (PLAIN, "\ud800", "has no form in JSON"),
        (PLAIN, Text("x", annotations=Annotations(priority=float("inf"))), "JSON"),
        (PLAIN, Text(b"x"), "JSON"),  # type: ignore[arg-type]
        (PLAIN, EmbeddedResource(ResourceContents("x")), "needs ResourceContents"),
        (PLAIN, ToolResult("x", meta={"x": {1}}), "JSON"),
        (PLAIN, ToolResult(5), "neither a string"),
        (PLAIN, ToolResult("x", structured={1}.__iter__()), "JSON cannot express"),
        (PLAIN, ToolResult("x", structured=float("nan")), "finite"),
        (RECEIPT, ToolResult("x", structured={}), "title"),
        (RECEIPT, ToolResult("x"), "promised structured content, and gave none"),
        (BY_HAND, ToolResult("x"), "promised structured content, and gave none"),
        (BY_HAND, ToolResult("x", structured={}), "a"),
    ],
)
def test_result_that_cannot_be_sent(tool: Tool, value: Any, words: str) -> None:
    with pytest.raises(OutputError, match=words):
        sent(tool_result(tool, value))


def test_result_that_holds_itself() -> None:
    value: list[Any] = [Text("x")]
    value.append(value)
    with pytest.raises(OutputError):
        tool_result(PLAIN, value)
    with pytest.raises(OutputError):
        tool_result(PLAIN, {"a": value[1:]})


def test_whole_result() -> None:
    assert found(PLAIN, ToolResult("hi")) == {"content": [text("hi")]}
    assert found(PLAIN, ToolResult("hi", is_error=True, meta={"x/y": 1})) == {
        "content": [text("hi")],
        "isError": True,
        "_meta": {"x/y": 1},
    }
    assert found(PLAIN, ToolResult("hi", structured=Receipt("Dune"))) == {
        "content": [text("hi")],
        "structuredContent": {"title": "Dune", "copies": 1},
    }
    assert found(PLAIN, ToolResult(structured=None)) == {
        "content": [text("null")],
        "structuredContent": None,
    }
    # A failure has nothing to keep a promise with.
    assert found(RECEIPT, ToolResult("sold out", is_error=True))["isError"]


# ---- prompts and resources ----


def test_result_of_a_prompt() -> None:
    prompt = make_prompt(plain, description="Asks.")
    result = prompt_result(prompt, [Message("hi", "assistant"), "ho"])
    fits("GetPromptResult", {**result, "resultType": "complete"})
    assert result["description"] == "Asks."
    assert [one["role"] for one in result["messages"]] == ["assistant", "user"]
    assert "description" not in prompt_result(make_prompt(plain), "hi")
    for value in (5, "\ud800"):
        with pytest.raises(OutputError):
            sent(prompt_result(prompt, value))


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("x", {"mimeType": "a/b", "text": "x"}),
        (b"x", {"mimeType": "a/b", "blob": "eA=="}),
        (
            Receipt("Dune"),
            {"mimeType": "a/b", "text": '{"title": "Dune", "copies": 1}'},
        ),
        (None, {"mimeType": "a/b", "text": "null"}),
        ([1, 2], {"mimeType": "a/b", "text": "[1, 2]"}),
    ],
)
def test_result_of_a_resource(value: Any, contents: Any) -> None:
    resource = make_resource(plain, "shop://x", mime_type="a/b", ttl=2, scope="public")
    result = resource_result(resource, "shop://x", value)
    fits("ReadResourceResult", {**result, "resultType": "complete"})
    assert result == {
        "contents": [{"uri": "shop://x", **contents}],
        "ttlMs": 2000,
        "cacheScope": "public",
    }


def test_result_of_a_resource_without_a_type() -> None:
    resource = make_resource(plain, "shop://x")
    (one,) = resource_result(resource, "shop://x", {"a": 1})["contents"]
    assert one["mimeType"] == "application/json"
    (one,) = resource_result(resource, "shop://x", "text")["contents"]
    assert "mimeType" not in one


@pytest.mark.parametrize("value", [object(), {"a": {1: 2}}, "\ud800", float("nan")])
def test_result_of_a_resource_that_cannot_be_sent(value: Any) -> None:
    resource = make_resource(plain, "shop://x")
    with pytest.raises(OutputError):
        sent(resource_result(resource, "shop://x", value))


# ---- responses ----


def test_response_to_a_request_that_succeeded() -> None:
    """The meta names the server, unless the author's value is there."""
    info = {"name": "shop", "version": "2"}
    key = "io.modelcontextprotocol/serverInfo"
    reply = sent({"content": [], "_meta": {"x/y": 1}}, "a")
    assert reply.status == 200
    assert reply.message == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {
            "resultType": "complete",
            "content": [],
            "_meta": {key: info, "x/y": 1},
        },
    }
    assert reply.body == encode(reply.message)
    interim = sent({"resultType": "input_required"}).message
    assert interim == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"resultType": "input_required", "_meta": {key: info}},
    }


# ---- failures ----


def diverged(verdict: str) -> DivergenceError:
    report: Any = "the report, for logs"
    return DivergenceError(verdict, report)


CHANGED = "The server changed while this call was in progress; start again."

#: What a handler raised; what the model reads, or the code; the code elsewhere.
FAILURES: list[tuple[Exception, str | int, int, str]] = [
    (ToolError("sold out"), "sold out", -32603, "sold out"),
    (ToolError("\ud800"), "\\ud800", -32603, "\\ud800"),
    (
        ArgumentsError(["a: no"]),  # a handler's own: not about the model's arguments
        "Internal error: order failed. The server's log has the reason.",
        -32603,
        "Internal error",
    ),
    (Declined(), "The user declined.", -32603, "The user declined."),
    (diverged("stop"), CHANGED, -32603, CHANGED),
    (
        InvalidAnswer(["x"]),
        "The answers did not fit the question: x",
        -32603,
        "The answers did not fit the question: x",
    ),
    (
        ClientFailed(5, "oh"),
        "The client failed to answer: oh (5)",
        -32603,
        "The client failed to answer: oh (5)",
    ),
    (TooManyRounds(9), str(TooManyRounds(9)), -32603, str(TooManyRounds(9))),
    (
        TimeoutError("database"),  # also a handler's own: not the deadline
        "Internal error: order failed. The server's log has the reason.",
        -32603,
        "Internal error",
    ),
    (
        Overdue(),
        "order took too long, and was ended.",
        -32603,
        "order took too long, and was ended.",
    ),
    (
        OSError("the password is x"),
        "Internal error: order failed. The server's log has the reason.",
        -32603,
        "Internal error",
    ),
    (StateError("forged"), -32602, -32602, "Invalid or expired requestState"),
    (ProtocolError(-1, "mine", {"a": 1}), -1, -1, "mine"),
    (ProtocolError(-1, "mine", {1}), -32603, -32603, "Internal error"),
    (ProtocolError("x", "mine"), -32603, -32603, "Internal error"),  # type: ignore[arg-type]
    (ProtocolError(-1, "\ud800"), -32603, -32603, "Internal error"),
]


@pytest.mark.parametrize(
    ("raised", "text_or_code", "code", "message"), FAILURES, ids=repr
)
def test_failure(
    raised: Exception, text_or_code: str | int, code: int, message: str
) -> None:
    if isinstance(text_or_code, int):
        with pytest.raises(ProtocolError) as caught:
            tool_failure(raised, "order")
        assert caught.value.code == text_or_code
    else:
        result = tool_failure(raised, "order")
        assert result == {"content": [text(text_or_code)], "isError": True}
        encode(result)
    refusal = error_of(raised, "order")
    assert refusal.code == code
    assert message in refusal.message
    encode({"message": refusal.message, "data": refusal.data})


def test_arguments_that_do_not_fit() -> None:
    wrong = ArgumentsError(["a: no", "\ud800"])
    words = "The arguments do not fit: a: no; \\ud800"
    assert told_failure(wrong) == {"content": [text(words)], "isError": True}
    refusal = bad_arguments(wrong)
    assert (refusal.code, refusal.message) == (-32602, f"Invalid params: {words}")


@pytest.mark.parametrize(
    "raised",
    [
        OSError("the password is x"),
        TimeoutError("of the database"),
        ArgumentsError(["price: no"]),
        diverged("stop"),
    ],
    ids=repr,
)
def test_failure_is_for_the_log(
    raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        told = str(tool_failure(raised, "order"))
        told += str(error_of(raised, "order"))
    assert str(raised) in caplog.text
    assert str(raised) not in told
