"""The port on this machine to which the login page returns, and who else may ask it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.to_thread
import pytest
from attrs import define, field

from effectmcp import UsageError
from effectmcp.oauth import Browser, OAuthError
from effectmcp.oauth import browser as browser_module

from ..client.ways import PATIENCE, on_both

PAGE = "https://login.example/authorize?x=1"
STATE = "the-state"


@define(eq=False)
class Waiting:
    """A browser that waits for its answer.

    Attributes:
        uri: Where it waits.
        answers: What it returned.
    """

    uri: str
    answers: list[str] = field(factory=list)

    @property
    def port(self) -> int:
        """The port."""
        port = urlsplit(self.uri).port
        assert port is not None
        return port

    async def connect(self) -> anyio.abc.SocketStream:
        """Connect to it."""
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def send(self, data: bytes) -> bytes:
        """Send bytes, and return the response."""
        async with await self.connect() as stream:
            found = b""
            try:
                await stream.send(data)
                while True:
                    found += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return found

    async def get(self, target: str, *headers: str) -> bytes:
        """Send a GET request, and return the response."""
        lines = [f"GET {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *headers]
        return await self.send("\r\n".join([*lines, "", ""]).encode())

    async def answer(self, more: str = "") -> bytes:
        """Send the answer to the login."""
        return await self.get(f"/callback?code=c&state={STATE}{more}")


@asynccontextmanager
async def waiting(**options: Any) -> AsyncIterator[Waiting]:
    """A browser that waits; the block has to send the answer."""
    opened: list[str] = []
    browser = Browser(**{"open_url": opened.append, **options})
    found = Waiting(await browser.redirect_uri(None))

    async def visit() -> None:
        found.answers.append(await browser.visit(PAGE, STATE))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(visit)
            yield found
    finally:
        await browser.close()


async def is_free(port: int) -> bool:
    """Return whether a port can be listened on."""
    try:
        listener = await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=port
        )
    except OSError:
        return False
    await listener.aclose()
    return True


# ---- the answer ---------------------------------------------------------------------


@on_both
async def test_the_answer_is_returned_unchanged() -> None:
    shown: list[str] = []
    opened: list[str] = []
    is_open = threading.Event()

    def open_url(url: str) -> None:
        opened.append(url)
        is_open.set()

    async with waiting(open_url=open_url, show=shown.append) as page:
        assert urlsplit(page.uri).hostname == "127.0.0.1"
        assert await anyio.to_thread.run_sync(is_open.wait, PATIENCE)
        response = await page.answer("&iss=https%3A%2F%2Flogin.example&x=")
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    query = f"code=c&state={STATE}&iss=https%3A%2F%2Flogin.example&x="
    assert page.answers == [f"{page.uri}?{query}"]
    assert shown == opened == [PAGE]
    assert await is_free(page.port)


@on_both
async def test_the_page_has_no_script_and_leads_nowhere() -> None:
    async with waiting() as page:
        response = await page.answer("&x=<script>alert(1)</script>")
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"default-src 'none'" in head
    assert b"no-store" in head
    assert b"no-referrer" in head
    for word in (b"location", b"refresh", b"set-cookie", b"access-control"):
        assert word not in head.lower()
    for word in (b"<script", b"href", b"src=", STATE.encode(), b"code"):
        assert word not in body.lower()


@pytest.mark.parametrize("error", ["access_denied", "a%1B%5B2J"])
def test_an_error_is_an_answer(error: str) -> None:
    """The login decides on it, after it has checked who sent it."""

    async def run() -> None:
        async with waiting() as page:
            await page.get(f"/callback?error={error}&state={STATE}")
        assert page.answers == [f"{page.uri}?error={error}&state={STATE}"]

    anyio.run(run, backend="trio")


# ---- everything else ----------------------------------------------------------------

OTHERS = [
    "/",
    "/favicon.ico",
    "/callback",
    "/callback?code=c",
    "/callback?code=c&state=",
    "/callback?code=c&state=the-stat",
    "/callback?code=c&state=the-state-",
    "/callback?code=c&state=THE-STATE",
    f"/callback?state={STATE}&state={STATE}",
    f"/callback?state=other&state={STATE}",
    f"/callback/?code=c&state={STATE}",
    f"/Callback?code=c&state={STATE}",
    f"/x/../callback?code=c&state={STATE}",
    f"/callback%3Fstate={STATE}",
    f"//callback?code=c&state={STATE}",
    f"http://[?state={STATE}",
    "/callback?" + "&".join(f"x{number}=" for number in range(100)),
    "/callback?state=%ff%fe",
    "*",
]


@on_both
async def test_other_requests_get_nothing() -> None:
    async with waiting() as page:
        for target in OTHERS:
            response = await page.get(target)
            assert response.startswith(b"HTTP/1.1 404 "), target
            assert STATE.encode() not in response
            assert page.answers == []
        await page.answer()
    assert len(page.answers) == 1


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "PUT", "get", ""])
def test_other_methods_get_nothing(method: str) -> None:
    async def run() -> None:
        async with waiting() as page:
            target = f"/callback?code=c&state={STATE}"
            response = await page.send(f"{method} {target} HTTP/1.1\r\n\r\n".encode())
            assert response.startswith(b"HTTP/1.1 404 ")
            assert page.answers == []
            await page.answer()

    anyio.run(run, backend="trio")


@on_both
async def test_bytes_that_are_not_http() -> None:
    async with waiting() as page:
        for data in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"\xff" * 100 + b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"\r\n\r\n",
            b"GET /callback\r\n\r\n",
            f"GET /callback?state={STATE} FTP/1\r\n\r\n".encode(),
            f"GET /callback?state={STATE}&\xe9 HTTP/1.1\r\n\r\n".encode(),
        ):
            response = await page.send(data)
            assert response.startswith(b"HTTP/1.1 404 "), data
        await page.answer()
    assert len(page.answers) == 1


@on_both
async def test_a_huge_head_is_not_read_to_its_end() -> None:
    async with waiting() as page:
        response = await page.get("/", f"X-Huge: {'x' * 1_000_000}")
        # The rest was not read, so the response may be lost.
        assert response == b"" or response.startswith(b"HTTP/1.1 404 ")
        await page.answer()
    assert len(page.answers) == 1


@on_both
async def test_slow_connections_do_not_hold_up_the_answer() -> None:
    """Browsers open connections in advance, and send nothing on them."""
    async with waiting() as page:
        streams = [await page.connect() for _ in range(100)]
        for number, stream in enumerate(streams):
            if number % 2:
                await stream.send(b"GET /call")
        await page.answer()
        for stream in streams:
            await stream.aclose()
    assert len(page.answers) == 1


async def test_slow_connections_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this machine cannot take all places for ever."""
    monkeypatch.setattr(browser_module, "_MOST", 2)
    monkeypatch.setattr(browser_module, "_TIME", 0.05)
    async with waiting() as page:
        streams = [await page.connect() for _ in range(5)]
        with anyio.fail_after(PATIENCE):
            # On a slow machine, the answer may be too slow as well.
            while not (await page.answer()).startswith(b"HTTP/1.1 200 "):
                pass
        for stream in streams:
            await stream.aclose()
    assert len(page.answers) == 1


@on_both
async def test_an_answer_counts_although_its_sender_has_gone() -> None:
    """The browser was closed at once."""

    class Gone:
        """A connection whose other end does not read."""

        async def __aenter__(self) -> Gone:
            return self

        async def __aexit__(self, *exc: object) -> None: ...

        async def receive(self) -> bytes:
            return f"GET /callback?state={STATE} HTTP/1.1\r\n\r\n".encode()

        async def send(self, data: bytes) -> None:
            raise anyio.BrokenResourceError

    class Listener:
        """A listener with this connection."""

        async def serve(self, handler: Any, task_group: Any) -> None:
            task_group.start_soon(handler, Gone())
            await anyio.sleep_forever()

        async def aclose(self) -> None: ...

    browser, listener = Browser(open_url=None), Listener()
    uri = await browser.redirect_uri(None)
    assert browser._listener is not None
    await browser._listener.aclose()
    fake: Any = listener
    browser._listener = fake
    assert await browser.visit(PAGE, STATE) == f"{uri}?state={STATE}"
    await browser.close()


@on_both
async def test_the_first_of_two_answers_counts() -> None:
    async with waiting() as page, anyio.create_task_group() as group:
        group.start_soon(page.answer, "&n=1")
        group.start_soon(page.answer, "&n=2")
    assert len(page.answers) == 1


# ---- the port -----------------------------------------------------------------------


@on_both
async def test_a_fixed_port_that_is_taken() -> None:
    async with waiting() as page:
        with pytest.raises(UsageError, match=f"the port {page.port} cannot be used"):
            await Browser(port=page.port).redirect_uri(None)
        await page.answer()


@on_both
async def test_a_fixed_port_is_used() -> None:
    async with waiting() as page:
        await page.answer()
    async with waiting(port=page.port) as again:
        assert again.uri == page.uri
        await again.answer()


@on_both
async def test_the_port_of_the_last_time_is_preferred() -> None:
    browser = Browser(open_url=None)
    first = await browser.redirect_uri(None)
    await browser.close()
    assert await browser.redirect_uri(first) == first
    other = Browser(open_url=None)
    assert await other.redirect_uri(first) != first
    await other.close()
    await browser.close()


@pytest.mark.parametrize(
    "preferred",
    [
        "",
        "http://[",
        "http://127.0.0.1:99999/callback",
        "http://127.0.0.1:x/callback",
        "http://127.0.0.1/callback",
        "http://evil.example:80/callback",
        "http://127.0.0.1:80/other",
        "https://book.example/callback",
    ],
)
def test_a_preferred_place_that_is_not_ours(preferred: str) -> None:
    async def run() -> None:
        browser = Browser(open_url=None)
        uri = await browser.redirect_uri(preferred)
        assert urlsplit(uri).hostname == "127.0.0.1"
        assert uri != preferred
        await browser.close()

    anyio.run(run, backend="trio")


@on_both
async def test_a_cancelled_visit_frees_the_port() -> None:
    browser = Browser(open_url=None)
    uri = await browser.redirect_uri(None)
    with anyio.move_on_after(0):
        await browser.visit(PAGE, STATE)
    await browser.close()
    await browser.close()
    port = urlsplit(uri).port
    assert port is not None
    assert await is_free(port)


@on_both
async def test_two_logins_with_one_browser_come_one_after_the_other() -> None:
    """Two servers that share their settings: one page at a time."""
    browser, pages = Browser(open_url=None), []

    async def log_in(number: int) -> None:
        uri = await browser.redirect_uri(None)
        try:
            async with anyio.create_task_group() as group:
                pages.append(number)
                page = Waiting(uri)
                group.start_soon(page.get, f"/callback?n={number}&state={STATE}")
                answer = await browser.visit(PAGE, STATE)
            assert answer == f"{uri}?n={number}&state={STATE}"
        finally:
            await browser.close()

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(log_in, number)
    assert sorted(pages) == [0, 1, 2]


@on_both
async def test_a_login_that_waits_for_another_can_be_cancelled() -> None:
    browser = Browser(open_url=None)
    await browser.redirect_uri(None)
    with anyio.move_on_after(0.01) as scope:
        await browser.redirect_uri(None)
    assert scope.cancelled_caught
    await browser.close()
    assert await browser.redirect_uri(None)
    await browser.close()


# ---- opening it ---------------------------------------------------------------------


def failing(problem: Exception) -> Callable[[str], object]:
    def open_url(url: str) -> object:
        raise problem

    return open_url


@on_both
async def test_a_browser_that_does_not_open() -> None:
    """The user still has the link."""
    async with waiting(open_url=failing(OSError("no display"))) as page:
        await page.answer()
    assert len(page.answers) == 1


@on_both
async def test_a_browser_that_blocks() -> None:
    """Such as a browser in a terminal, which runs until the user leaves it."""
    go = threading.Event()
    try:
        async with waiting(open_url=lambda url: go.wait(PATIENCE)) as page:
            await page.answer()
        assert len(page.answers) == 1
    finally:
        go.set()


@on_both
async def test_a_browser_may_only_show_the_link() -> None:
    shown: list[str] = []
    async with waiting(open_url=None, show=shown.append) as page:
        await page.answer()
    assert shown == [PAGE]


@on_both
async def test_a_user_who_does_not_log_in() -> None:
    """The page may have shown an error. The program does not see it."""
    browser = Browser(open_url=None, timeout=0)
    await browser.redirect_uri(None)
    with pytest.raises(OAuthError, match="--forget"):
        await browser.visit("https://login.example/", "state")
    await browser.close()
