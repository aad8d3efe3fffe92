"""`read_envelope` in one pass has the same outcome as the checks one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.errors import ProtocolError
from effectmcp.protocol.headers import (
    HeaderMismatch,
    check_method,
    check_name,
    check_version,
)
from effectmcp.protocol.jsonrpc import Request
from effectmcp.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    Meta,
    check_supported,
    read_meta,
)
from effectmcp.protocol.methods import METHODS
from effectmcp.protocol.modern import read_envelope
from effectmcp.protocol.revisions import PROTOCOL_VERSION

CALL = "tools/call"


def explained(request: Request, headers: Mapping[str, str] | None) -> Meta | None:
    """The outcome of an envelope's checks, in the order of the protocol."""
    try:
        meta = read_meta(request.params)
        check_supported(meta.version)
        if headers is not None:
            check_version(headers, meta.version)
            check_method(headers, request.method)
            name_from = METHODS[request.method].name_from
            if name_from is not None:
                name = request.params.get(name_from)
                if not isinstance(name, str):
                    return None  # refused later, and not as an envelope
                check_name(headers, name)
    except (ProtocolError, HeaderMismatch):
        return None
    return meta


def envelope(method: str = CALL, **changes: Any) -> tuple[Request, dict[str, str]]:
    """A valid request and its headers, except for `changes`."""
    meta = {
        PROTOCOL_VERSION: "2026-07-28",
        CLIENT_CAPABILITIES: {"elicitation": {}},
        CLIENT_INFO: {"name": "desk", "version": "1"},
        **changes.pop("meta", {}),
    }
    meta = {key: one for key, one in meta.items() if one is not ...}
    headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        "mcp-name": "order",
        **changes.pop("headers", {}),
    }
    params = {"name": "order", "_meta": meta, **changes}
    return Request(1, method, params, {}), {
        key: one for key, one in headers.items() if one is not ...
    }


@pytest.mark.parametrize("with_headers", [True, False])
def test_valid_envelope_is_judged_in_one_pass(with_headers: bool) -> None:
    more = {LOG_LEVEL: "debug", "progressToken": 7, "traceparent": "00-ab-cd-01"}
    for meta in ({}, more, {CLIENT_INFO: ...}, {"traceparent": "x" * 65}):
        request, headers = envelope(meta=meta)
        found = read_envelope(request, headers if with_headers else None, METHODS)
        assert found is not None
        assert found == read_meta(request.params)


WRONG: list[Any] = [
    {"_meta": None},
    {"_meta": []},
    {"meta": {PROTOCOL_VERSION: ...}},
    {"meta": {PROTOCOL_VERSION: "2025-11-25"}},
    {"meta": {PROTOCOL_VERSION: 20260728}},
    {"meta": {CLIENT_CAPABILITIES: ...}},
    {"meta": {CLIENT_CAPABILITIES: []}},
    {"meta": {CLIENT_CAPABILITIES: {"elicitation": True}}},
    {"meta": {CLIENT_INFO: "desk"}},
    {"meta": {CLIENT_INFO: {"name": "desk"}}},
    {"meta": {CLIENT_INFO: {"name": "desk", "version": 1}}},
    {"meta": {LOG_LEVEL: "loud"}},
    {"meta": {LOG_LEVEL: []}},
    {"meta": {"progressToken": True}},
    {"meta": {"progressToken": 0.5}},
    {"headers": {"mcp-protocol-version": ...}},
    {"headers": {"mcp-protocol-version": "2025-11-25"}},
    {"headers": {"mcp-method": ...}},
    {"headers": {"mcp-method": "Tools/Call"}},
    {"headers": {"mcp-name": ...}},
    {"headers": {"mcp-name": "other"}},
    {"name": "=?base64?b3JkZXI=?=", "headers": {"mcp-name": "=?base64?b3JkZXI=?="}},
]


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_invalid_envelope_is_not_judged(changes: dict[str, Any]) -> None:
    copied = {
        key: dict(one) if key in ("meta", "headers") else one
        for key, one in changes.items()
    }
    request, headers = envelope(CALL, **copied)
    assert read_envelope(request, headers, METHODS) is None
    assert explained(request, headers) is None


TEXTS = st.sampled_from(
    ["order", "2026-07-28", "tools/call", "", "é", "a b", "=?", " x"]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(0, 1),
    TEXTS,
    st.just([]),
    st.dictionaries(st.sampled_from(["name", "version", "form"]), TEXTS, max_size=2),
    st.just({"elicitation": {}}),
    st.just(...),
)
KEYS = [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL]


@given(
    meta=st.dictionaries(
        st.sampled_from([*KEYS, "progressToken", "traceparent"]), VALUES, max_size=3
    ),
    headers=st.dictionaries(
        st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name"]),
        TEXTS | st.just(...),
        max_size=2,
    ),
    params=st.dictionaries(st.just("name"), VALUES.filter(lambda one: one is not ...)),
    method=st.sampled_from([CALL, "tools/list", "resources/read"]),
    over_http=st.booleans(),
)
def test_judge_agrees_with_the_checks(
    meta: Any, headers: Any, params: Any, method: str, over_http: bool
) -> None:
    """`read_envelope` never lets in what a check refuses, nor reads it otherwise."""
    request, sent = envelope(method, meta=meta, headers=headers, **params)
    known = sent if over_http else None
    found = read_envelope(request, known, METHODS)
    if found is not None:
        assert found == explained(request, known)
