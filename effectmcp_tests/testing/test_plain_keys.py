from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import KeysError, Server, StateError
from effectmcp.testing import PlainKeys
from effectmcp.transports.default_keys import ensure_keys


@given(st.binary())
def test_wrapped_bytes_are_read_back(data: bytes) -> None:
    keys = PlainKeys()
    assert keys.unwrap(keys.wrap(data)) == (data, keys.sealing)


@given(st.text() | st.text("1pAZ-_=").map("1p".__add__))
def test_any_string_is_read_or_refused(text: str) -> None:
    keys = PlainKeys()
    try:
        data, _ = keys.unwrap(text)
    except StateError:
        return
    assert keys.unwrap(keys.wrap(data))[0] == data


@pytest.mark.parametrize("is_alone", [True, False])
def test_no_transport_serves_with_them(is_alone: bool) -> None:
    app = Server("shop", keys=PlainKeys())
    with pytest.raises(KeysError, match="<PlainKeys> is for tests"):
        ensure_keys(app, is_alone=is_alone)
