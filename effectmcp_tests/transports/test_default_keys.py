"""The sources of a server's keys."""

from __future__ import annotations

import logging

import pytest

from effectmcp import KeysError, Server
from effectmcp.state import Keys, make_key
from effectmcp.transports.default_keys import VARIABLE, ensure_keys

OLD, NEW = (make_key(bytes([n]) * 32) for n in (1, 2))


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variable: the user who runs the tests may have keys."""
    monkeypatch.delenv(VARIABLE, raising=False)


def keys_for(*, is_alone: bool = False) -> Keys | None:
    app = Server("shop")
    ensure_keys(app, is_alone=is_alone)
    return app.keys


def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first: the last one seals, all open."""
    monkeypatch.setenv(VARIABLE, f" {OLD}, {NEW},")
    keys = keys_for()
    assert keys is not None
    assert keys.unwrap(Keys(OLD).wrap(b"a"))[0] == b"a"
    assert Keys(NEW).unwrap(keys.wrap(b"a"))[0] == b"a"


def test_keys_of_the_author_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, NEW)
    own = Keys(OLD)
    app = Server("shop", keys=own)
    ensure_keys(app, is_alone=True)
    assert app.keys is own


@pytest.mark.parametrize("value", [None, "", "  ", " , "])
def test_no_keys_where_others_serve_too(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert keys_for() is None


def test_random_keys_where_no_other_process_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Random keys are new in each process, and the log states that."""
    first, second = keys_for(is_alone=True), keys_for(is_alone=True)
    assert first is not None
    assert second is not None
    assert first.wrap(b"a") != second.wrap(b"a")
    assert {one.levelno for one in caplog.records} == {logging.WARNING}
    assert VARIABLE in caplog.text


def test_invalid_keys_are_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{OLD},not/a/key")
    with pytest.raises(KeysError) as caught:
        keys_for(is_alone=True)
    assert "not/a/key" not in str(caught.value)
