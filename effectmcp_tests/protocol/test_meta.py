from __future__ import annotations

from typing import Any

import pytest

from effectmcp import ProtocolError
from effectmcp.effects.local import LOG_LEVELS
from effectmcp.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    Meta,
    check_supported,
    read_meta,
)
from effectmcp.protocol.revisions import PROTOCOL_VERSION, VERSIONS

from ..wire import meta

LEAST = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}


def refusal(params: Any) -> str:
    with pytest.raises(ProtocolError) as caught:
        read_meta(params)
    assert (caught.value.code, caught.value.status) == (-32602, 400)
    return caught.value.message


def test_meta_of_the_least_that_is_required() -> None:
    assert read_meta({"_meta": LEAST}) == Meta("2026-07-28", {})


def test_meta_of_everything() -> None:
    said = {
        **LEAST,
        CLIENT_CAPABILITIES: {"sampling": {}},
        CLIENT_INFO: {"name": "c", "version": "1"},
        LOG_LEVEL: "info",
        "progressToken": "t",
        "traceparent": "00-4bf9-00f0-01",
    }
    assert read_meta({"_meta": said}) == Meta(
        version="2026-07-28",
        capabilities={"sampling": {}},
        client="c 1",
        log_level="info",
        progress_token="t",
        trace="00-4bf9-00f0-01",
    )


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": []}])
def test_meta_that_is_missing(params: Any) -> None:
    assert "params._meta is required" in refusal(params)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PROTOCOL_VERSION, None),
        (PROTOCOL_VERSION, 5),
        (CLIENT_CAPABILITIES, None),
        (CLIENT_CAPABILITIES, []),
        (CLIENT_CAPABILITIES, {"sampling": True}),
        (CLIENT_INFO, "c 1"),
        (CLIENT_INFO, {"name": "c"}),
        (CLIENT_INFO, {"name": "c", "version": 1}),
        (LOG_LEVEL, "loud"),
        (LOG_LEVEL, 3),
        (LOG_LEVEL, {}),
        ("progressToken", 1.5),
        ("progressToken", True),
        ("progressToken", []),
    ],
)
def test_meta_with_a_wrong_part(key: str, value: Any) -> None:
    assert key in refusal({"_meta": {**LEAST, key: value}})


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_meta_with_a_log_level(level: str) -> None:
    assert read_meta({"_meta": meta(log_level=level)}).log_level == level


@pytest.mark.parametrize("trace", [5, "x" * 65, None])
def test_meta_with_an_invalid_trace(trace: Any) -> None:
    """A trace is only for debugging, so its errors do not refuse a call."""
    assert read_meta({"_meta": {**LEAST, "traceparent": trace}}).trace is None


def test_meta_of_a_client_with_a_long_name() -> None:
    """A long trace would travel in the state of every later round."""
    said = {**LEAST, CLIENT_INFO: {"name": "x" * 1_000, "version": "1"}}
    client = read_meta({"_meta": said}).client
    assert client == "x" * 200


def test_supported_versions() -> None:
    for version in VERSIONS:
        check_supported(version)
    with pytest.raises(ProtocolError) as caught:
        check_supported("v999.0.0")
    assert (caught.value.code, caught.value.status) == (-32022, 400)
    assert caught.value.data == {"supported": ["2026-07-28"], "requested": "v999.0.0"}
