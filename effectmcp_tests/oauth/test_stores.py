"""Stores of tokens: who can read them, and which process may log in."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import UsageError
from effectmcp.oauth import FileTokens, KeyringTokens, MemoryTokens, TokenStore
from effectmcp.oauth import stores as stores_module

from .world import URL

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")


class FakeKeyring:
    """A keyring in memory, with the interface of the library's functions."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.error: Exception | None = None

    def get_password(self, service: str, name: str) -> str | None:
        if self.error is not None:
            raise self.error
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.kept[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    fake: Any = FakeKeyring()
    module: Any = types.ModuleType("keyring")
    for name in ("get_password", "set_password", "delete_password"):
        setattr(module, name, getattr(fake, name))
    monkeypatch.setitem(sys.modules, "keyring", module)
    found: FakeKeyring = fake
    return found


@pytest.fixture(params=["memory", "files", "keyring"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, keyring: FakeKeyring
) -> TokenStore:
    """Each store."""
    if request.param == "memory":
        return MemoryTokens()
    return KeyringTokens() if request.param == "keyring" else FileTokens(tmp_path / "t")


# ---- every store --------------------------------------------------------------------


def test_a_store_keeps_a_string_for_each_server(store: TokenStore) -> None:
    assert store.load(URL) is None
    store.save(URL, "a")
    store.save(f"{URL}/", "b é")
    store.save(URL, "c")
    assert (store.load(URL), store.load(f"{URL}/")) == ("c", "b é")


def test_a_store_forgets(store: TokenStore) -> None:
    store.save(URL, None)
    store.save(URL, "a")
    store.save(URL, None)
    assert store.load(URL) is None


@pytest.mark.parametrize(
    "server",
    [
        "",
        "../../etc/passwd",
        "/etc/passwd",
        "a\x00b",
        "https://shop.example/" + "x" * 10_000,
        "https://é.example/\ud800",
        "https://shop.example/\udc80",
        ".",
        "con",
    ],
)
def test_any_server_has_a_place(store: TokenStore, server: str) -> None:
    store.save(server, "a")
    assert store.load(server) == "a"
    assert store.load(URL) is None
    assert store.try_lock(server)
    store.unlock(server)


def test_a_lock_can_be_taken_again(store: TokenStore) -> None:
    store.unlock(URL)
    for _ in range(2):
        assert store.try_lock(URL)
        store.unlock(URL)


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_lock_is_for_one_at_a_time(kind: str, tmp_path: Path) -> None:
    store: Any = MemoryTokens() if kind == "memory" else FileTokens(tmp_path)
    assert store.try_lock(URL)
    assert not store.try_lock(URL)
    assert store.try_lock(f"{URL}/")
    store.unlock(URL)
    assert store.try_lock(URL)
    store.unlock(URL)
    store.unlock(f"{URL}/")


# ---- files --------------------------------------------------------------------------


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@POSIX
def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "tokens"
    old = os.umask(0)
    try:
        store = FileTokens(folder)
        store.save(URL, "a")
        assert store.try_lock(URL)
        store.unlock(URL)
    finally:
        os.umask(old)
    assert mode_of(folder) == 0o700
    for ending in ("json", "lock"):
        (file,) = folder.glob(f"*.{ending}")
        assert mode_of(file) == 0o600


@POSIX
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o610])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    store = FileTokens(tmp_path)
    store.save(URL, "a")
    (file,) = tmp_path.glob("*.json")
    file.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        store.load(URL)
    store.save(URL, "b")
    assert store.load(URL) == "b"


def test_a_name_does_not_reveal_the_server(tmp_path: Path) -> None:
    FileTokens(tmp_path).save(URL, "a")
    (file,) = tmp_path.iterdir()
    assert "shop" not in file.name


class Crash(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("place", ["replace", "fsync"])
def test_a_crash_leaves_the_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    store = FileTokens(tmp_path)
    store.save(URL, "old")

    def crash(*arguments: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(os, place, crash)
        with pytest.raises(Crash):
            store.save(URL, "new")
    assert store.load(URL) == "old"
    assert len(list(tmp_path.iterdir())) == 1


@POSIX
def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("of the user")
    store = FileTokens(tmp_path / "tokens")
    store.save(URL, "a")
    (file,) = (tmp_path / "tokens").glob("*.json")
    file.unlink()
    file.symlink_to(target)
    store.save(URL, "b")
    assert target.read_text() == "of the user"
    assert store.load(URL) == "b"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    store = FileTokens(taken / "tokens")
    with pytest.raises(UsageError, match="cannot be kept"):
        store.save(URL, "a")
    with pytest.raises(UsageError, match="cannot be kept"):
        store.try_lock(URL)
    with pytest.raises(UsageError, match="cannot be read"):
        store.load(URL)


def test_files_that_cannot_be_read_or_locked(tmp_path: Path) -> None:
    store = FileTokens(tmp_path)
    store.save(URL, "a")
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="cannot be read"):
        store.load(URL)
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError):
        store.load(URL)
    with pytest.raises(UsageError, match="cannot be kept"):
        store.save(URL, "b")
    with pytest.raises(UsageError, match="cannot be"):
        store.save(URL, None)
    file.with_suffix(".lock").mkdir()
    with pytest.raises(UsageError, match="cannot be"):
        store.try_lock(URL)


@POSIX
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Then two processes may both log in, which costs a login and nothing else."""
    import fcntl

    def refuse(*arguments: Any) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    store = FileTokens(tmp_path)
    assert store.try_lock(URL)
    store.unlock(URL)


_HOLDER = """
import sys
from effectmcp.oauth import FileTokens
store = FileTokens(sys.argv[1])
assert store.try_lock(sys.argv[2])
print("locked", flush=True)
sys.stdin.read()
"""


@POSIX
def test_two_processes_log_in_one_after_the_other(tmp_path: Path) -> None:
    """The lock of a process that was killed is free."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path), URL],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        store = FileTokens(tmp_path)
        assert not store.try_lock(URL)
        process.kill()
        process.wait(60)
        assert store.try_lock(URL)
        store.unlock(URL)


def test_files_say_where_they_are() -> None:
    assert repr(FileTokens("/x")) == "FileTokens('/x')"


@given(st.text(), st.text())
def test_two_servers_have_two_places(one: str, other: str) -> None:
    store = FileTokens("/nowhere")
    same = store._place(one, "json") == store._place(other, "json")
    assert same == (one == other)


# ---- the keyring --------------------------------------------------------------------


def test_a_keyring_shows_the_service(keyring: FakeKeyring) -> None:
    KeyringTokens().save(URL, "a")
    KeyringTokens("books").save(URL, "b")
    assert keyring.kept == {("effectmcp", URL): "a", ("books", URL): "b"}


def test_a_keyring_that_is_locked(keyring: FakeKeyring) -> None:
    class LockedError(Exception):
        pass

    LockedError.__module__ = "keyring.errors"
    keyring.error = LockedError("it is locked")
    with pytest.raises(UsageError, match="cannot be used: it is locked"):
        KeyringTokens().load(URL)
    keyring.error = OSError("a fault")  # as of Windows, whose errors are its own
    with pytest.raises(UsageError, match="a fault"):
        KeyringTokens().load(URL)


def test_a_keyring_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UsageError, match="pip install"):
        KeyringTokens()


def test_a_real_keyring_without_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server without a desktop."""
    library = pytest.importorskip("keyring")
    from keyring.backends import fail

    before = library.get_keyring()
    backend: Any = fail.Keyring
    library.set_keyring(backend())
    try:
        with pytest.raises(UsageError, match="keyring cannot be used"):
            KeyringTokens().save(URL, "a")
    finally:
        library.set_keyring(before)


def test_a_real_keyring_with_a_backend_in_memory() -> None:
    library = pytest.importorskip("keyring")
    from keyring.backend import KeyringBackend

    class InMemory(KeyringBackend):
        """The smallest backend."""

        priority = 1
        kept: dict[tuple[str, str], str] = {}

        def get_password(self, service: str, username: str) -> str | None:
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del self.kept[service, username]

    before = library.get_keyring()
    backend: Any = InMemory
    library.set_keyring(backend())
    try:
        store = KeyringTokens()
        store.save(URL, "a")
        assert store.load(URL) == "a"
        store.save(URL, None)
        assert store.load(URL) is None
    finally:
        library.set_keyring(before)


def test_windows_has_no_such_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    file: Any = None
    assert stores_module._lock(file)


@POSIX
def test_a_folder_that_others_can_write_to_holds_no_tokens(tmp_path: Path) -> None:
    """Others could replace the tokens, and the user would act as another user."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700 it"):
        FileTokens(folder).save(URL, "{}")
