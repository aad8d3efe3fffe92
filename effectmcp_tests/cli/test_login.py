"""`effectmcp call` and `effectmcp list` at servers that require a login."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from attrs import frozen

from effectmcp.cli import login_options, main
from effectmcp.cli.printing import DECLINED, ERROR

from ..client.ways import PATIENCE
from ..oauth.authority import Issuer, shop_and_issuer

ROOT = Path(__file__).parents[2]
WRONG = 2
Output = pytest.CaptureFixture[str]


@frozen
class Shop:
    """A running server, and its authorization server."""

    url: str
    issuer: Issuer


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A server in another thread."""
    with start_blocking_portal("trio") as portal:
        manager = portal.wrap_async_context_manager(shop_and_issuer())
        with manager as (url, issuer):
            yield Shop(url, issuer)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for tokens, and no secret."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("EFFECTMCP_CLIENT_SECRET", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    return tmp_path / "effectmcp" / "tokens"


class User:
    """A user who visits the links that are printed.

    Attributes:
        links: The links.
        pages: What the browser showed in the end.
    """

    def __init__(self) -> None:
        self.links: list[str] = []
        self.pages: list[str] = []
        self._threads: list[threading.Thread] = []

    def show(self, link: str) -> None:
        """Visit a link."""
        self.links.append(link)
        thread = threading.Thread(target=self._visit, args=(link,))
        thread.start()
        self._threads.append(thread)

    def _visit(self, link: str) -> None:
        with httpx2.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            self.pages.append(browser.get(link).text)

    def leave(self) -> None:
        """Wait for the browser."""
        for thread in self._threads:
            thread.join(PATIENCE)


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """A user at the terminal."""
    found = User()
    monkeypatch.setattr(login_options, "_show", found.show)
    yield found
    found.leave()


Call = Callable[..., int]


@pytest.fixture
def call(shop: Shop) -> Call:
    """Call a tool of the server."""

    def run(tool: str, *options: str) -> int:
        return main(["call", shop.url, tool, "--no-browser", *options])

    return run


# ---- a user -------------------------------------------------------------------------


def test_a_second_call_uses_the_kept_tokens(
    call: Call, user: User, folder: Path, capsys: Output
) -> None:
    assert call("who") == 0
    assert call("who") == 0
    printed = capsys.readouterr()
    assert printed.out.count("ann") == 2
    assert printed.err == ""
    assert len(user.links) == 1
    user.leave()
    assert "You can close this page" in user.pages[0]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_list_logs_in_too(shop: Shop, user: User, capsys: Output) -> None:
    assert main(["list", shop.url, "--no-browser"]) == 0
    assert "who" in capsys.readouterr().out
    assert len(user.links) == 1


def test_forget_logs_in_again(call: Call, shop: Shop, user: User) -> None:
    assert call("who") == 0
    assert call("who", "--forget") == 0
    assert len(user.links) == 2
    assert [kind for kind, _ in shop.issuer.grants] == ["authorization_code"] * 2


def test_tokens_in_memory_are_not_kept(call: Call, user: User, folder: Path) -> None:
    for _ in range(2):
        assert call("who", "--tokens", "memory") == 0
    assert len(user.links) == 2
    assert not folder.exists()


def test_a_tool_with_a_scope_asks_for_it(
    call: Call, shop: Shop, user: User, capsys: Output
) -> None:
    assert call("who") == 0
    assert call("order") == 0
    assert "ordered" in capsys.readouterr().out
    scopes = [set(one["scope"].split()) for one in shop.issuer.pages]
    assert scopes == [{"shop"}, {"shop", "orders"}]


def test_a_scope_can_be_asked_for_at_once(
    call: Call, shop: Shop, user: User, capsys: Output
) -> None:
    assert call("order", "--scope", "orders") == 0
    (page,) = shop.issuer.pages
    assert set(page["scope"].split()) == {"shop", "orders"}


def test_a_user_who_declines(
    call: Call, shop: Shop, user: User, capsys: Output
) -> None:
    """The words of the authorization server cannot command the terminal."""
    shop.issuer.declines = True
    assert call("who") == DECLINED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "access_denied: no ?[2Jway" in printed.err
    assert "\x1b" not in printed.err
    assert "Traceback" not in printed.err
    assert len(user.links) == 1


def test_a_header_turns_the_login_off(
    call: Call, shop: Shop, user: User, capsys: Output
) -> None:
    assert call("who", "--header", "Authorization: Bearer wrong") == ERROR
    assert "Traceback" not in capsys.readouterr().err
    assert not user.links


def test_a_file_that_others_can_read_is_refused(
    call: Call, user: User, folder: Path, capsys: Output
) -> None:
    assert call("who") == 0
    (file,) = folder.glob("*.json")
    file.chmod(0o644)
    assert call("who") == WRONG
    assert "chmod 600" in capsys.readouterr().err


def test_a_folder_that_cannot_be_used(
    call: Call, user: User, folder: Path, capsys: Output
) -> None:
    folder.parent.write_text("a file")
    assert call("who") == WRONG
    printed = capsys.readouterr().err
    assert str(folder) in printed
    assert "Traceback" not in printed
    assert not user.links


# ---- a program ----------------------------------------------------------------------


def test_a_program_logs_in_for_itself(
    call: Call,
    shop: Shop,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    options = ["--client-credentials", "--client-id", "nightly"]
    options += ["--issuer", shop.issuer.url]
    monkeypatch.setenv("EFFECTMCP_CLIENT_SECRET", "quiet")
    assert call("who", *options) == 0
    assert not user.links
    assert {kind for kind, _ in shop.issuer.grants} == {"client_credentials"}
    monkeypatch.setenv("EFFECTMCP_CLIENT_SECRET", "loud")
    capsys.readouterr()
    assert call("who", "--forget", *options) == ERROR
    printed = capsys.readouterr().err
    assert "invalid_client" in printed
    assert "loud" not in printed


def test_a_secret_is_only_for_its_issuer(
    call: Call, shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("EFFECTMCP_CLIENT_SECRET", "quiet")
    options = ["--client-credentials", "--client-id", "nightly"]
    assert call("who", *options) == WRONG
    assert "needs --issuer URL" in capsys.readouterr().err
    assert call("who", *options, "--issuer", "https://other.example") == ERROR
    printed = capsys.readouterr().err
    assert "the client id is for https://other.example" in printed
    assert not shop.issuer.grants


def test_a_given_client_logs_its_user_in(call: Call, shop: Shop, user: User) -> None:
    options = ["--client-id", "books", "--issuer", shop.issuer.url]
    assert call("who", *options) == 0
    (page,) = shop.issuer.pages
    assert page["client_id"] == "books"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--issuer", "https://a.example"), "--issuer is for --client-id"),
        (("--client-credentials",), "--client-credentials is for --client-id"),
        (("--callback-port", "70000"), "--callback-port 70000"),
        (("--callback-port", "-1"), "--callback-port -1"),
    ],
)
def test_options_that_do_not_fit(
    call: Call, options: tuple[str, ...], problem: str, capsys: Output
) -> None:
    assert call("who", *options) == WRONG
    assert problem in capsys.readouterr().err


def test_a_callback_port_that_is_taken(
    call: Call, shop: Shop, user: User, capsys: Output
) -> None:
    port = re.search(r":(\d+)/", shop.url)
    assert port is not None
    assert call("who", "--callback-port", port[1]) == WRONG
    printed = capsys.readouterr().err
    assert f"the port {port[1]} cannot be used" in printed
    assert "Traceback" not in printed
    assert not user.links


# ---- where tokens are ---------------------------------------------------------------


def test_the_folder_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert login_options._folder() == Path("/state/effectmcp/tokens")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "/home/ann")
    assert login_options._folder() == Path("/home/ann/.local/state/effectmcp/tokens")


# ---- in a process of its own --------------------------------------------------------


def test_a_process_prints_the_link_and_waits(shop: Shop, folder: Path) -> None:
    """Standard output has the result alone."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    argv = [sys.executable, "-m", "effectmcp", "call", shop.url, "who", "--no-browser"]
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        link = line.removeprefix("Log in at ").strip()
        assert link.startswith(f"{shop.issuer.url}/authorize?")
        with httpx2.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            response: Any = browser.get(link)
        assert "You can close this page" in response.text
        out, err = process.communicate(timeout=3 * PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert "ann" in out
    assert len(list(folder.glob("*.json"))) == 1


def test_no_login_uses_kept_tokens_only(call: Call, user: User, capsys: Output) -> None:
    assert call("who", "--no-login") == ERROR
    assert "a user has to log in" in capsys.readouterr().err
    assert call("who") == 0
    assert call("who", "--no-login") == 0
    assert len(user.links) == 1


@pytest.mark.parametrize(
    "more", [["--client-id", "x"], ["--scope", "a"], ["--forget"]], ids=str
)
def test_options_of_a_login_need_one(
    call: Call, capsys: Output, more: list[str]
) -> None:
    assert call("who", "--header", "Authorization: Bearer x", *more) == WRONG
    assert "is for a login" in capsys.readouterr().err


def test_a_client_of_its_own_does_not_act_as_the_user(
    call: Call, shop: Shop, user: User, capsys: Output
) -> None:
    """A program that runs for the user who has logged in before has its own tokens."""
    assert call("who") == 0
    capsys.readouterr()
    options = ["--client-id", "robot", "--issuer", "https://elsewhere.example"]
    assert call("who", *options, "--client-credentials") == ERROR
    assert "elsewhere.example" in capsys.readouterr().err
