from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import ProtocolError
from effectmcp.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    Malformed,
    Notification,
    Request,
    Response,
    _read,
    encode,
    error_message,
    id_of,
    notification,
    read_message,
    result_message,
)

from ..wire import fits

CALL = {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": [1]}}


def malformed(message: Any) -> Malformed:
    read = read_message(message)
    assert isinstance(read, Malformed), read
    assert read.error.status == 400
    return read


def code_of(message: Any) -> int:
    return malformed(message).error.code


# ---- reading ----


@pytest.mark.parametrize(
    "message", [CALL, json.dumps(CALL), json.dumps(CALL).encode()], ids=type
)
def test_read_a_request(message: Any) -> None:
    assert read_message(message) == Request(1, "m", {"a": [1]})


def test_read_a_notification() -> None:
    message = {"jsonrpc": "2.0", "method": "m"}
    assert read_message(message) == Notification("m", {})


@pytest.mark.parametrize("said", [{"result": {}}, {"error": {"code": -1}}])
def test_response(said: Any) -> None:
    message = {"jsonrpc": "2.0", "id": "a", **said}
    assert read_message(message) == Response("a", message)


@pytest.mark.parametrize("id_", ["", "x" * 256, 0, -1, 2**53 - 1, -(2**53) + 1])
def test_read_ids(id_: Any) -> None:
    assert read_message({**CALL, "id": id_}) == Request(id_, "m", {"a": [1]})
    assert malformed({"id": id_}).id == malformed(json.dumps({"id": id_})).id == id_


@pytest.mark.parametrize("id_", [None, True, 1.0, 2**53, [], {}, "x" * 257])
def test_read_no_other_ids(id_: Any) -> None:
    """Null is excluded by name; a larger number would come back as another one."""
    assert code_of({**CALL, "id": id_}) == INVALID_REQUEST
    assert malformed({**CALL, "id": id_}).id is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b'{"a": 1, "a": 2}',
        b"NaN",
        b"1e400",
        b'"\\ud800"',
        b"[" * 100_000,
        b"1 2",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_read_refuses_invalid_json(text: bytes) -> None:
    assert code_of(text) == PARSE_ERROR
    assert malformed(text).id is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ([CALL], "batches are not part"),
        (5, "a message is an object"),
        ("x", "Parse error"),
        ({"method": "m"}, '"jsonrpc": "2.0"'),
        ({**CALL, "jsonrpc": 2.0}, '"jsonrpc": "2.0"'),
        ({**CALL, "method": 5}, "a message needs a method"),
        ({"jsonrpc": "2.0", "id": 1}, "a message needs a method"),
        ({"jsonrpc": "2.0", "result": {}}, "the id of what it answers"),
        ({"jsonrpc": "2.0", "id": None, "error": {}}, "the id of what it answers"),
        ({**CALL, "params": [1]}, "params are an object"),
        ({**CALL, "params": None}, "params are an object"),
        ({**CALL, "params": {"a": {1}}}, "at /params/a: a set"),
        ({**CALL, "params": {"a": "\ud800"}}, "a lone surrogate"),
    ],
)
def test_read_refuses_invalid_messages(message: Any, words: str) -> None:
    assert words in malformed(message).error.message


def test_read_as_deep_as_arguments_may_be() -> None:
    """The wrapping of the params does not count for their limit."""

    def nested(levels: int) -> Any:
        return {"a": nested(levels - 1)} if levels > 1 else {}

    message = {**CALL, "params": {"arguments": nested(64)}}
    assert isinstance(read_message(message), Request)
    assert isinstance(read_message(json.dumps(message)), Request)
    message = {**CALL, "params": {"arguments": nested(67)}}
    assert code_of(message) == PARSE_ERROR
    assert code_of(json.dumps(message)) == PARSE_ERROR


def test_id_of_what_was_not_understood() -> None:
    """A client that waits for an answer should get it."""
    assert malformed(b'{"id": "a", "method": 5}').id == "a"
    assert malformed('{"id": 7}').id == 7
    assert malformed("[]").id is None
    assert id_of([]) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | anything,
        "id": st.integers() | st.text() | anything,
        "method": st.sampled_from(["tools/call", "x"]) | anything,
        "params": st.dictionaries(st.text(), anything) | anything,
        "result": anything,
        "error": anything,
    },
)


@given(
    st.binary()
    | st.text()
    | anything.map(json.dumps)
    | messages.map(json.dumps)
    | messages.map(lambda message: json.dumps(message)[1:])
)
def test_any_string_is_a_message_or_a_protocol_error(text: str | bytes) -> None:
    _message_or_error(text)


@given(messages | anything)
def test_any_value_is_a_message_or_a_protocol_error(value: Any) -> None:
    _message_or_error(value)


def _message_or_error(message: Any) -> None:
    match read_message(message):
        case Malformed(error, id_):
            assert error.code in (PARSE_ERROR, INVALID_REQUEST)
            reply = error_message(id_, error)
            encode(reply)
            fits("JSONRPCErrorResponse", reply)
        case Request(id_):
            encode(result_message(id_, {}))
        case Notification():
            pass
        case Response(id_):
            assert id_of({"id": id_}) == id_


# ---- writing ----


def test_result_message() -> None:
    message = result_message("a", {"resultType": "complete"})
    assert message == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {"resultType": "complete"},
    }
    fits("JSONRPCResultResponse", message)


def test_error_message_with_and_without_data_and_id() -> None:
    error = ProtocolError(INTERNAL_ERROR, "oh", {"a": 1})
    assert error_message(0, error) == {
        "jsonrpc": "2.0",
        "id": 0,
        "error": {"code": -32603, "message": "oh", "data": {"a": 1}},
    }
    assert error_message(None, ProtocolError(INTERNAL_ERROR, "oh")) == {
        "jsonrpc": "2.0",
        "error": {"code": -32603, "message": "oh"},
    }


def test_notification_has_no_id() -> None:
    message = notification("notifications/x", {"a": 1})
    assert "id" not in message
    fits("JSONRPCNotification", message)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_encode_writes_one_line(text: str) -> None:
    line = encode({"text": text, text: [1.5, None, True]})
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line) == {text: [1.5, None, True], "text": text} | (
        {"text": [1.5, None, True]} if text == "text" else {}
    )


def test_encode_refuses_what_no_client_could_read() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode({"a": float("nan")})


IDS: Any = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
PARTS: Any = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2, None]),
        "id": IDS | st.sampled_from([2**53 - 1, 2**53, -(2**53), "x" * 256, "x" * 257]),
        "method": st.sampled_from(["tools/call", "", None, 5]),
        "params": st.sampled_from([{}, {"a": 1}, [], None, "x"]),
        "result": st.just({}),
    },
)


@given(PARTS)
@example({**CALL, "id": "x" * 257})
@example({**CALL, "id": "x" * 256})
@example({**CALL, "id": 2**53})
@example({**CALL, "id": -1})
@example({**CALL, "id": True})
@example({**CALL, "params": None})
def test_request_that_is_judged_at_once_is_read_as_any_other(message: Any) -> None:
    """`read_message` judges first; `_read` has the rules and their words."""
    try:
        expected: Any = _read(message)
    except ProtocolError as exc:
        expected = exc.code, str(exc)
    read = read_message(message)
    if isinstance(read, Malformed) and read.error.code == INVALID_REQUEST:
        assert (read.error.code, str(read.error)) == expected
    elif not isinstance(read, Malformed):  # else it is not JSON at all, such as NaN
        assert read == expected
