"""A real browser without a window, and a user in it who logs in.

with Chromium.running(program, folder) as chromium:
    user = chromium.user()
    user.visit(url)            the pages that the user saw
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

from attrs import define, field, frozen

from ..npm import Unavailable
from .provider import limited

__all__ = ["Chromium", "Page", "User", "find"]

#: Under these names, systems have it.
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_OPTIONS: Final = (
    "--headless",
    # It may run as root, in a container.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--no-proxy-server",
    # The provider's pages ask for a font, which the network may not have.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)


def find() -> str:
    """Return the program.

    Raises:
        Unavailable: If no such program is installed.
    """
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    raise Unavailable("no Chromium is on the PATH: apt-get install chromium")


@frozen
class Page:
    """A page that was shown.

    Attributes:
        kind: `login`, `consent`, or `end`: every other page, which ends the visit.
        url: Its URL.
        text: The text on it.
    """

    kind: str
    url: str
    text: str


_LOOK: Final = """({
    kind: document.querySelector("input[name=prompt]")?.value ?? "end",
    url: location.href,
    text: document.body.innerText,
})"""

_CLICKS: Final = {
    "login": """
        document.querySelector("input[name=login]").value = NAME;
        document.querySelector("input[name=password]").value = "secret";
        document.querySelector("button").click();
    """,
    "consent": 'document.querySelector("button").click();',
    "cancel": 'document.querySelector("a[href$=abort]").click();',
}


@define(eq=False)
class Chromium:
    """A running browser, in the protocol of its developer tools."""

    _process: subprocess.Popen[bytes]
    _input: IO[bytes]
    _output: IO[bytes]
    _numbers: Iterator[int] = field(factory=lambda: itertools.count(1))
    _events: list[dict[str, Any]] = field(factory=list)
    #: One page at a time.
    _lock: Lock = field(factory=Lock)

    @classmethod
    @contextmanager
    def running(cls, program: str, folder: Path) -> Iterator[Chromium]:
        """Run a browser.

        Args:
            program: The program.
            folder: An empty one, for its files.
        """
        to_read, our_input = os.pipe()
        our_output, to_write = os.pipe()
        # It reads from 3, and writes to 4; these must not be overwritten before.
        theirs = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (to_read, to_write)]
        command = [program, *_OPTIONS, f"--user-data-dir={folder / 'profile'}"]
        redirect = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        with (
            (folder / "log").open("wb") as log,
            os.fdopen(our_input, "wb") as sent,
            os.fdopen(our_output, "rb") as received,
            subprocess.Popen(
                ["bash", "-c", redirect, "bash", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=theirs,
                env={**os.environ, "HOME": str(folder)},
            ) as process,
        ):
            for one in (to_read, to_write, *theirs):
                os.close(one)
            found = cls(process, sent, received)
            try:
                yield found
            finally:
                with limited(process):
                    found.do("Browser.close")
                    process.wait()

    def do(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Execute a command of the protocol, and return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._input.write(json.dumps(message).encode() + b"\0")
        self._input.flush()
        while (found := self._receive()).get("id") != number:
            self._events.append(found)
        assert "error" not in found, found
        return found["result"]

    def _receive(self) -> dict[str, Any]:
        data = b""
        while not data.endswith(b"\0"):
            piece = self._output.read(1)
            assert piece, "the browser has exited"
            data += piece
        found: dict[str, Any] = json.loads(data[:-1])
        return found

    def _wait(self, method: str, session: str) -> None:
        while True:
            for event in self._events:
                if event["method"] == method and event["sessionId"] == session:
                    self._events.clear()
                    return
            self._events.append(self._receive())

    def user(self, name: str = "ann") -> User:
        """Return a new user, with cookies of their own."""
        with self._lock:
            context = self.do("Target.createBrowserContext")["browserContextId"]
        return User(self, name, context)

    def show(self, context: str, url: str, clicks: Mapping[str, str]) -> list[Page]:
        """Show a page, and the pages that follow; return all of them.

        Args:
            context: The user's browser context.
            url: The URL of the first page.
            clicks: For each kind of page: the script that leaves it.
        """
        with self._lock, limited(self._process):
            made = self.do(
                "Target.createTarget", url="about:blank", browserContextId=context
            )
            target = made["targetId"]
            found = self.do("Target.attachToTarget", targetId=target, flatten=True)
            session = found["sessionId"]
            self.do("Page.enable", session)
            self._events.clear()
            self.do("Page.navigate", session, url=url)
            pages: list[Page] = []
            while True:
                self._wait("Page.loadEventFired", session)
                page = Page(**self._evaluate(session, _LOOK))
                pages.append(page)
                if page.kind == "end":
                    break
                self._evaluate(session, clicks[page.kind])
            self.do("Target.closeTarget", targetId=target)
            return pages

    def _evaluate(self, session: str, script: str) -> Any:
        found = self.do(
            "Runtime.evaluate", session, expression=script, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")


@define(eq=False)
class User:
    """A user at the browser.

    Attributes:
        name: The name at the provider.
        declines: Whether the user cancels instead of consenting.
    """

    _chromium: Chromium
    name: str
    _context: str
    declines: bool = False
    _seen: list[list[Page]] = field(factory=list)
    _lock: Lock = field(factory=Lock)

    def visit(self, url: str) -> list[Page]:
        """Visit a login page, do what it asks for, and return all pages."""
        clicks = {
            "login": _CLICKS["login"].replace("NAME", json.dumps(self.name)),
            "consent": _CLICKS["cancel" if self.declines else "consent"],
        }
        with self._lock:
            pages = self._chromium.show(self._context, url, clicks)
            self._seen.append(pages)
        return pages

    @property
    def seen(self) -> list[list[Page]]:
        """The pages of each visit. A visit that is not over is waited for."""
        with self._lock:
            return list(self._seen)

    @property
    def kinds(self) -> list[list[str]]:
        """The kinds of pages of each visit."""
        return [[page.kind for page in pages] for pages in self.seen]
