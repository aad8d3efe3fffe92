"""API keys: the file, its lines, and how it is read again."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.auth import APIKeys, CredentialsError
from effectmcp.auth.api_keys import key_line, make_api_key
from effectmcp.errors import UsageError

from .issuer import Clock, presented

KEYS = {name: "emcp_" + name[0] * 43 for name in ("ann", "bob", "cid")}


def line(name: str, *scopes: str) -> str:
    return key_line(name, KEYS[name], scopes)


def write(path: Path, *lines: str, stamp: int) -> None:
    """Write a file, with a time of its own: tests are faster than file systems."""
    path.write_text("".join(f"{one}\n" for one in lines), "utf-8")
    os.utime(path, ns=(stamp, stamp))


def who(keys: APIKeys, of: str, scheme: str = "Bearer") -> str:
    found = keys.identify(presented(of, scheme))
    return " ".join([found.principal, *sorted(found.scopes)])


def is_known(keys: APIKeys, name: str) -> bool:
    try:
        keys.identify(presented(KEYS[name]))
    except CredentialsError as exc:
        assert "API key" in exc.reason  # noqa: PT017 - it is refused for that reason only
        return False
    return True


# ---- keys and lines -----------------------------------------------------------------


def test_key_is_long_and_its_line_has_only_its_hash() -> None:
    assert len({make_api_key() for _ in range(100)}) == 100
    key = make_api_key()
    assert key.startswith("emcp_")
    assert len(key) > 45
    digest = hashlib.sha256(key.encode()).hexdigest()
    assert key_line("ann", key, ["b", "a"]) == f"ann sha256:{digest} a b"


def test_keys_know_who_has_one() -> None:
    keys = APIKeys([line("ann", "orders:read", "orders:write"), line("bob")])
    assert who(keys, KEYS["ann"]) == "ann orders:read orders:write"
    assert who(keys, KEYS["bob"]) == "bob"
    assert not is_known(keys, "cid")
    assert str(keys) == "2 API keys"


@pytest.mark.parametrize(
    "of", ["", " ", "emcp_", "x" * 9_000, "ü", KEYS["ann"][:-1], KEYS["ann"] + "="]
)
def test_keys_refuse_others(of: str) -> None:
    keys = APIKeys([line("ann")])
    with pytest.raises(CredentialsError) as caught:
        keys.identify(presented(of))
    assert (caught.value.status, caught.value.error) == (401, "invalid_token")


def test_keys_refuse_the_hash_of_a_key() -> None:
    """Hashes cannot be used as keys: a reader of the file has none."""
    keys, digest = APIKeys([line("ann")]), line("ann").split()[1]
    for of in (digest, digest.removeprefix("sha256:")):
        with pytest.raises(CredentialsError):
            keys.identify(presented(of))


def test_keys_without_credentials_ask_for_them() -> None:
    keys = APIKeys([line("ann")])
    for given_ in (presented(None), presented(KEYS["ann"], "Basic")):
        with pytest.raises(CredentialsError) as caught:
            keys.identify(given_)
        assert caught.value.error is None
        assert not keys.handles(given_)
    assert keys.handles(presented(KEYS["ann"]))
    assert not keys.handles(presented("eyJ.eyJ.sig"))


def test_keys_handle_a_key_that_the_author_has_chosen() -> None:
    """In a list of authenticators, it would be refused as an unknown key."""
    keys = APIKeys([key_line("ann", "my own key")])
    assert keys.handles(presented("my own key"))
    assert who(keys, "my own key") == "ann"
    assert not keys.handles(presented("your own key"))


def test_keys_handle_a_key_that_was_added(tmp_path: Path) -> None:
    path, now = tmp_path / "keys", [0.0]
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=lambda: now[0])
    write(path, line("ann"), key_line("bob", "own"), stamp=2)
    assert not keys.handles(presented("own"))
    now[0] = 2
    assert keys.handles(presented("own"))


def test_keys_are_for_one_scheme() -> None:
    """With DPoP, a client proves a key of its own, which the server would not check."""
    keys = APIKeys([line("ann")])
    dpop = presented(KEYS["ann"], "DPoP")
    assert not keys.handles(dpop)
    with pytest.raises(CredentialsError):
        keys.identify(dpop)


def test_keys_name_no_authorization_server() -> None:
    keys = APIKeys([line("ann")])
    assert keys.resource is None
    assert keys.metadata() is None
    assert keys.challenges(None) == ("Bearer",)
    wanted = 'Bearer error="insufficient_scope", scope="a b"'
    assert keys.challenges("insufficient_scope", ["b", "a"]) == (wanted,)


def test_keys_may_have_remarks_and_empty_lines() -> None:
    lines = ["# keys", "", "  " + line("ann", "a#b") + "  # of Ann", line("bob") + " #"]
    keys = APIKeys(lines)
    assert who(keys, KEYS["ann"]) == "ann a#b"
    assert who(keys, KEYS["bob"]) == "bob"


scopes = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"\\'),
    min_size=1,
).filter(lambda one: not one.startswith("#"))


@given(st.from_regex(r"[^\s#]+", fullmatch=True), st.lists(scopes, max_size=4))
def test_key_line_is_read_as_it_was_written(name: str, given_: list[str]) -> None:
    key = make_api_key()
    try:
        written = key_line(name, key, given_)
        found = APIKeys([written]).identify(presented(key))
    except UsageError:
        assert not name.isascii() or not name.isprintable()
        return
    assert (found.subject, found.scopes) == (name, frozenset(given_))


@pytest.mark.parametrize("name", ["", "a b", "a\tb", "a#b", "a\nb sha256:" + "0" * 64])
def test_key_line_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="without spaces"):
        key_line(name, KEYS["ann"])


@pytest.mark.parametrize("scope", ["a b", "", 'a"b', "a\nb", "#a"])
def test_key_line_of_another_scope_is_refused(scope: str) -> None:
    with pytest.raises(UsageError):
        key_line("ann", KEYS["ann"], [scope])


BAD = [
    *(
        "ann",
        KEYS["ann"],
        "ann sha256:",
        "sha256:" + "0" * 64,
        "ann sha512:" + "0" * 64,
    ),
    *(line("ann").upper(), line("ann")[:-1], line("ann") + "0", line("ann") + ' a"b'),
]


@pytest.mark.parametrize("bad", BAD)
def test_keys_line_that_is_wrong_is_named(bad: str) -> None:
    with pytest.raises(UsageError, match=r"APIKeys\(\.\.\.\), line 2: ") as caught:
        APIKeys([line("bob"), bad])
    # A key that was pasted instead of its line is not written to a log.
    assert KEYS["ann"] not in str(caught.value)


def test_keys_same_key_twice_is_an_error() -> None:
    with pytest.raises(UsageError, match="line 3: this key is there twice"):
        APIKeys([line("ann"), "", line("ann").replace("ann", "eve")])


def test_keys_one_user_may_have_two() -> None:
    keys = APIKeys([key_line("ann", KEYS["ann"]), key_line("ann", KEYS["bob"])])
    assert who(keys, KEYS["ann"]) == who(keys, KEYS["bob"]) == "ann"


# ---- the file -----------------------------------------------------------------------


def test_keys_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann", "a"), line("bob"), stamp=1)
    keys = APIKeys(path, clock=clock)
    assert who(keys, KEYS["ann"]) == "ann a"
    write(path, line("ann", "b"), line("cid"), stamp=2)
    clock.now += 0.5
    assert who(keys, KEYS["ann"]) == "ann a"  # it is looked at once a second
    clock.now += 0.5
    assert who(keys, KEYS["ann"]) == "ann b"
    assert is_known(keys, "cid")
    assert not is_known(keys, "bob")


def test_keys_file_that_is_the_same_is_not_read(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(str(path), clock=clock)
    before = keys._keys
    clock.now += 10
    assert is_known(keys, "ann")
    assert keys._keys is before


def test_keys_file_of_the_same_time_and_size_is_noticed_if_it_was_moved(
    tmp_path: Path,
) -> None:
    """Editors write another file, and move it there."""
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=clock)
    write(tmp_path / "new", line("bob"), stamp=1)
    (tmp_path / "new").replace(path)
    clock.now += 1
    assert is_known(keys, "bob")


@pytest.mark.parametrize("text", [line("bob")[:30], "\udcff", ""])
def test_keys_file_that_is_half_written_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=clock)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    os.utime(path, ns=(2, 2))
    clock.now += 1
    assert is_known(keys, "ann")
    assert caplog.records[0].levelno == logging.ERROR
    write(path, line("bob"), stamp=9)
    clock.now += 1
    assert is_known(keys, "bob")
    assert not is_known(keys, "ann")


def test_keys_file_that_stays_wrong_withdraws_missing_keys(tmp_path: Path) -> None:
    """A stolen key is withdrawn, although another line has a mistake."""
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), line("bob"), stamp=1)
    keys = APIKeys(path, clock=clock)
    write(path, line("ann"), "cid sha256:", stamp=2)
    for is_kept in (True, False):
        clock.now += 1
        assert is_known(keys, "ann")
        assert is_known(keys, "bob") is is_kept


def test_keys_file_that_cannot_be_read_any_more_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=clock)
    write(path, line("bob"), stamp=2)

    def refuse(*args: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    for _ in range(3):
        clock.now += 1
        assert is_known(keys, "ann")


def test_keys_file_that_stays_empty_has_no_key(tmp_path: Path) -> None:
    """The last key was withdrawn; but editors empty a file before they write it."""
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=clock)
    write(path, "# none", stamp=2)
    clock.now += 1
    assert is_known(keys, "ann")
    clock.now += 1
    assert not is_known(keys, "ann")
    clock.now += 1
    assert not is_known(keys, "ann")
    write(path, line("bob"), stamp=3)
    clock.now += 1
    assert is_known(keys, "bob")


def test_keys_file_that_stays_away_has_no_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For a moment it may be away: editors replace files."""
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=clock)
    path.unlink()
    for is_kept in (True, False, False):
        clock.now += 1
        assert is_known(keys, "ann") is is_kept
    assert "all keys are withdrawn" in caplog.text


@pytest.mark.parametrize("content", [b"", b"# none\n", b"\xff", b"ann\n"])
def test_keys_file_that_is_wrong_at_the_start_is_an_error(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="keys"):
        APIKeys(path)


def test_keys_file_that_is_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        APIKeys(tmp_path / "none")


def test_keys_log_has_no_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    path, clock = tmp_path / "keys", Clock()
    write(path, line("ann"), stamp=1)
    keys = APIKeys(path, clock=clock)
    write(path, line("bob"), stamp=2)
    clock.now += 1
    is_known(keys, "bob")
    write(path, KEYS["cid"], stamp=3)
    clock.now += 1
    is_known(keys, "bob")
    assert len(caplog.records) == 2
    assert not any(key in caplog.text for key in KEYS.values())
