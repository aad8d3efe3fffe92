from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from effectmcp import ProtocolError, UsageError
from effectmcp.client import ReplyError, StateRejected
from effectmcp.client.messages import (
    INFO,
    Profile,
    headers_for,
    request,
    result_of,
    supported_version,
)
from effectmcp.protocol.headers import (
    check_method,
    check_name,
    check_params,
    check_version,
    param_headers,
)

from .strategies import json_values, keys

PROFILE = Profile(capabilities={"elicitation": {"form": {}}})
META = "io.modelcontextprotocol/"


# ---- requests -----------------------------------------------------------------------


def test_a_request_names_its_client() -> None:
    message = request(7, "tools/call", {"name": "order"}, PROFILE.meta())
    assert message == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": "order",
            "_meta": {
                f"{META}protocolVersion": "2026-07-28",
                f"{META}clientInfo": dict(INFO),
                f"{META}clientCapabilities": {"elicitation": {"form": {}}},
            },
        },
    }


def test_a_request_names_its_options() -> None:
    profile = Profile(capabilities={}, info={"name": "n"}, log_level="error")
    meta = profile.meta(7)
    assert meta["progressToken"] == 7
    assert meta[f"{META}logLevel"] == "error"
    assert meta[f"{META}clientInfo"] == {"name": "n"}
    assert "progressToken" not in profile.meta()


# ---- headers ------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "x-mcp-header": "Text"},
        "number": {"type": "integer", "x-mcp-header": "Number"},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "deep": {
            "type": "object",
            "properties": {"text": {"type": "string", "x-mcp-header": "Deep"}},
        },
        "query": {"type": "string"},
    },
}
RULES = param_headers(SCHEMA)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
#: JSON has one kind of number, and 3.0 is an integer for JSON Schema.
WHOLE = st.integers(-(2**53) + 1, 2**53 - 1).map(float)
UNSENT = st.none() | st.lists(st.integers()) | st.dictionaries(keys, st.integers())


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments that fit the schema, and some that do not."""
    scalars = st.text() | INTEGERS | WHOLE | st.booleans() | st.none()
    return draw(
        st.fixed_dictionaries(
            {},
            optional={
                "text": scalars,
                "number": scalars,
                "flag": scalars,
                "deep": st.fixed_dictionaries({}, optional={"text": scalars}) | UNSENT,
                "query": json_values,
            },
        )
    )


@given(
    st.sampled_from([("tools/call", "name"), ("prompts/get", "name")])
    | st.just(("resources/read", "uri")),
    st.text(),
    arguments(),
)
@example(("resources/read", "uri"), "", {"query": float("inf")})
def test_headers_are_accepted_by_the_server(
    method: tuple[str, str], name: str, given_: dict[str, Any]
) -> None:
    """Both sides compute the headers of a request in the same way."""
    params = {method[1]: name, "arguments": given_}
    try:
        message = request(1, method[0], params, PROFILE.meta())
    except UsageError:
        with pytest.raises(ValueError, match="Out of range"):
            json.dumps(given_, allow_nan=False)
        return  # nothing is sent
    headers = headers_for(message, RULES)
    # As they are on the wire: nothing there but visible ASCII, and no space at an end.
    for value in headers.values():
        assert value == value.strip()
        assert value.isascii()
        assert value.replace("\t", "").isprintable()
    lowered = {key.lower(): value for key, value in headers.items()}
    check_version(lowered, "2026-07-28")
    check_method(lowered, method[0])
    check_name(lowered, name)
    check_params(lowered, RULES, given_)


@given(st.text(), st.text())
def test_headers_of_two_names_differ(one: str, other: str) -> None:
    assume(one != other)
    said = [
        headers_for(request(1, "tools/call", {"name": name}, PROFILE.meta()))[
            "Mcp-Name"
        ]
        for name in (one, other)
    ]
    assert said[0] != said[1]


def test_headers_of_requests_without_a_name() -> None:
    for method in ("tools/list", "server/discover", "x/unknown"):
        message = request(1, method, {"name": "n"}, PROFILE.meta())
        assert headers_for(message) == {
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }


@pytest.mark.parametrize("arguments", [None, {}, {"text": None}, {"deep": None}])
def test_headers_of_no_value(arguments: Any) -> None:
    params = {"name": "n", "arguments": arguments}
    message = request(1, "tools/call", params, PROFILE.meta())
    assert not any(one.startswith("Mcp-Param") for one in headers_for(message, RULES))


def test_headers_of_what_no_header_may_carry() -> None:
    params = {"name": "n", "arguments": {"number": 2**53}}
    message = request(1, "tools/call", params, PROFILE.meta())
    with pytest.raises(ValueError, match="beyond"):
        headers_for(message, RULES)


# ---- responses ----------------------------------------------------------------------

ERRORS = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([-32602, -32601]) | json_values,
        "message": st.just("Invalid requestState") | json_values,
        "data": json_values,
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={"error": ERRORS | json_values, "result": json_values, "id": json_values},
) | st.dictionaries(keys, json_values)


@given(MESSAGES, st.booleans())
def test_result_of_any_message(message: dict[str, Any], has_state: bool) -> None:
    """A result, an error of the server, or a `ReplyError` for anything else."""
    came = outcome(message, has_state)
    match came:
        case StateRejected():
            assert has_state
            assert came.code == -32602
            assert "requestState" in came.message
        case ProtocolError():
            said = message["error"]
            assert (came.code, came.message) == (said["code"], said["message"])
            assert came.data == said.get("data")
        case ReplyError():
            assert "result" not in message
        case _:
            assert came is message["result"]


def outcome(message: dict[str, Any], has_state: bool) -> Any:
    try:
        return result_of(message, has_state=has_state)
    except (ProtocolError, ReplyError) as exc:
        return exc


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"error": None},
        {"error": "no"},
        {"error": {}},
        {"error": {"code": "1", "message": "m"}},
        {"error": {"code": True, "message": "m"}},
        {"error": {"code": 1.5, "message": "m"}},
        {"error": {"code": 1, "message": None}},
    ],
)
def test_result_of_an_invalid_response(message: dict[str, Any]) -> None:
    with pytest.raises(ReplyError):
        result_of(message, has_state=True)


def error(code: int, text: str, data: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": text, "data": data}}


def test_result_of_an_error() -> None:
    with pytest.raises(ProtocolError, match="no such tool") as raised:
        result_of(error(-32602, "no such tool", {"a": 1}), has_state=False)
    assert type(raised.value) is ProtocolError
    assert raised.value.data == {"a": 1}


@pytest.mark.parametrize(
    ("code", "text", "has_state"),
    [
        (-32602, "Invalid params: title is missing", True),
        (-32603, "requestState", True),
        (-32602, "Invalid requestState", False),
    ],
)
def test_an_error_that_is_not_of_the_state(
    code: int, text: str, has_state: bool
) -> None:
    with pytest.raises(ProtocolError) as raised:
        result_of(error(code, text), has_state=has_state)
    assert not isinstance(raised.value, StateRejected)


def test_an_error_of_the_state() -> None:
    with pytest.raises(StateRejected):
        result_of(error(-32602, "Invalid requestState"), has_state=True)


@pytest.mark.parametrize(
    ("code", "data", "version"),
    [
        (-32022, {"supported": ["2030-01-01", "2026-07-28"]}, "2026-07-28"),
        (-32022, {"supported": ["2030-01-01"]}, None),
        (-32022, {"supported": "2026-07-28"}, None),
        (-32022, {}, None),
        (-32022, None, None),
        (-32022, ["2026-07-28"], None),
        (-32602, {"supported": ["2026-07-28"]}, None),
    ],
)
def test_supported_version(code: int, data: Any, version: str | None) -> None:
    assert supported_version(ProtocolError(code, "m", data)) == version


@given(json_values)
def test_supported_version_of_any_data(data: Any) -> None:
    found = supported_version(ProtocolError(-32022, "m", data))
    assert found in (None, "2026-07-28")
    json.dumps(data)


def test_a_request_whose_meta_json_cannot_carry() -> None:
    with pytest.raises(UsageError, match="JSON compliant"):
        request(1, "tools/list", {}, {"x": float("nan")})
