"""One login for all calls and all processes, on both loops."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
from attrs import define, field, frozen

from effectmcp import UsageError
from effectmcp.client.deadlines import deadline, paused
from effectmcp.client.http import OverHttp
from effectmcp.fetching.requests import Fetch, Fetched, FetchError
from effectmcp.oauth import (
    ClientCredentials,
    FileTokens,
    MemoryTokens,
    OAuth,
    OAuthError,
    Registration,
)
from effectmcp.oauth.grants import Visit
from effectmcp.oauth.login import AuthRefusal
from effectmcp.oauth.session import LoginSession, Signed
from effectmcp.oauth.tokens import Kept, Tokens

from ..client.ways import PATIENCE, Loop, on_both
from .world import ISSUER, RETURN, URL, Clock, World, given_client, login_at


async def _nothing() -> None:
    await anyio.lowlevel.checkpoint()


@define(eq=False)
class User:
    """A visitor of pages, who may take time.

    Attributes:
        world: Where the pages are.
        think: Awaited before the answer.
        open: How many logins wait for an answer.
        most: The most that waited at once.
        events: What happened, in order.
    """

    world: World
    think: Callable[[], Awaitable[Any]] = _nothing
    open: int = 0
    most: int = 0
    events: list[str] = field(factory=list)

    async def redirect_uri(self, preferred: str | None) -> str:
        """Begin to wait."""
        self.open += 1
        self.most = max(self.most, self.open)
        self.events.append("open")
        return RETURN

    async def visit(self, url: str, state: str) -> str:
        """Answer as the world does."""
        await self.think()
        return self.world.visit(Visit(url, state))

    async def close(self) -> None:
        """Stop waiting."""
        self.open -= 1
        self.events.append("close")


def session_of(
    world: World, user: User | None = None, **options: Any
) -> tuple[LoginSession, User]:
    """A session whose requests go to a world."""
    user = user or User(world)
    session = LoginSession(OAuth(visitor=user, **options), world.url)

    async def send(request: Fetch) -> Fetched:
        await anyio.lowlevel.checkpoint()
        return world.answer(request)

    sender: Any = send
    session._send = sender
    return session, user


@frozen
class Reply:
    """The end of a call."""

    status: int
    logins: int


async def call(world: World, session: LoginSession) -> Reply:
    """Call the server as a channel does."""
    logins = 0
    while True:
        signed = await session.sign("POST")
        await anyio.lowlevel.checkpoint()
        status, headers = world.call(signed.headers)
        refused = session.read(status, headers)
        if refused is None or logins >= session.attempts:
            return Reply(status, logins)
        await session.recover(refused, signed, logins)
        logins += 1


REFUSED = AuthRefusal(status=401)


# ---- many calls ---------------------------------------------------------------------


@on_both
async def test_fifty_calls_log_in_once() -> None:
    world = World()
    session, user = session_of(world)
    replies: list[Reply] = []

    async def one() -> None:
        replies.append(await call(world, session))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(one)
    assert replies == [Reply(200, 1)] * 50
    assert len(world.visits) == len(world.forms()) == 1
    assert user.events == ["open", "close"]


@on_both
async def test_fifty_calls_renew_once() -> None:
    world = World()
    session, _ = session_of(world)
    await call(world, session)
    tokens = session._login.kept.tokens
    assert tokens is not None
    session._login._clock = lambda: (tokens.expires or 0) + 1
    world.authorities[0].token_changes = {"expires_in": 10_000}
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(call, world, session)
    kinds = [one["grant_type"] for one in world.forms()]
    assert kinds == ["authorization_code", "refresh_token"]


@on_both
async def test_a_declined_login_is_asked_for_once() -> None:
    """Calls that are refused while the user still thinks do not ask again."""
    world = World()
    world.authorities[0].answers = {"code": None, "error": "access_denied"}
    thinking, decided = anyio.Event(), anyio.Event()
    errors: list[str] = []

    async def think() -> None:
        thinking.set()
        await decided.wait()

    session, _ = session_of(world, User(world, think))

    async def one() -> None:
        try:
            await call(world, session)
        except OAuthError as exc:
            errors.append(exc.code or "")

    # This call is sent before the user decides, and refused after it.
    late = await session.sign("POST")
    async with anyio.create_task_group() as group:
        group.start_soon(one)
        await thinking.wait()
        for _ in range(20):
            group.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        decided.set()
    assert errors == ["access_denied"] * 21
    with pytest.raises(OAuthError, match="access_denied"):
        await session.recover(REFUSED, late, 0)
    assert len(world.visits) == 1
    # The next call asks again.
    world.authorities[0].answers = {}
    assert await call(world, session) == Reply(200, 1)
    assert len(world.visits) == 2


@on_both
async def test_calls_that_were_refused_before_a_login_use_its_token() -> None:
    world = World()
    session, _ = session_of(world)
    early = await session.sign("POST")
    await call(world, session)
    await session.recover(REFUSED, early, 0)
    assert len(world.visits) == len(world.forms()) == 1


# ---- many processes -----------------------------------------------------------------


@define(eq=False)
class WatchedStore(MemoryTokens):
    """A store that notes when its lock is not free."""

    tried: threading.Event = field(factory=threading.Event)

    def try_lock(self, server: str) -> bool:
        """Try to lock."""
        is_locked = super().try_lock(server)
        if not is_locked:
            self.tried.set()
        return is_locked


@on_both
async def test_the_tokens_of_another_process_are_taken() -> None:
    """The other process logs in while this one waits for the lock."""
    world, store = World(), WatchedStore()
    session, user = session_of(world, store=store)
    signed = await session.sign("POST")
    assert store.try_lock(URL)
    other = login_at(world)
    world.use(other)
    async with anyio.create_task_group() as group:
        group.start_soon(session.recover, REFUSED, signed, 0)
        assert await anyio.to_thread.run_sync(store.tried.wait, PATIENCE)
        store.save(URL, json.dumps(other.kept.to_json()))
        store.unlock(URL)
    assert user.events == []
    assert (await session.sign("POST")).headers == other.sign("POST")


@on_both
async def test_two_sessions_of_a_store_log_in_once() -> None:
    world, store = World(), MemoryTokens()
    sessions = [session_of(world, store=store)[0] for _ in range(5)]
    async with anyio.create_task_group() as group:
        for one in sessions:
            for _ in range(4):
                group.start_soon(call, world, one)
    assert len(world.visits) == 1


@on_both
async def test_a_process_with_the_same_refused_token_logs_in() -> None:
    world, store = World(), MemoryTokens()
    first, _ = session_of(world, store=store)
    await call(world, first)
    second, _ = session_of(world, store=store)
    await call(world, second)
    world.authorities[0].tokens.clear()
    world.authorities[0].refreshes.clear()
    assert await call(world, second) == Reply(200, 1)
    # The first one finds the new token in the store.
    assert await call(world, first) == Reply(200, 1)
    assert len(world.visits) == 2


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "[]", "null", '{"format": 9}', "[" * 100_000, '"\\ud800"'],
)
def test_garbage_in_a_store_is_a_first_login(text: str, loop: Loop) -> None:
    async def run() -> None:
        world, store = World(), MemoryTokens()
        store.save(URL, text)
        session, _ = session_of(world, store=store)
        assert await call(world, session) == Reply(200, 1)
        assert store.load(URL) != text

    anyio.run(run, backend=loop)


@on_both
async def test_a_registration_is_kept_although_the_login_fails() -> None:
    world, store = World(), MemoryTokens()
    world.authorities[0].answers = {"code": None, "error": "access_denied"}
    session, _ = session_of(world, store=store)
    with pytest.raises(OAuthError):
        await call(world, session)
    kept = Kept.from_json(json.loads(store.load(URL) or ""))
    assert kept.tokens is None
    assert set(kept.clients) == {ISSUER}


class FullStore(MemoryTokens):
    """A store without room."""

    def save(self, server: str, text: str | None) -> None:
        """Fail."""
        raise UsageError("the disk is full")


@on_both
async def test_a_store_that_cannot_keep_tokens_is_reported() -> None:
    world = World()
    session, user = session_of(world, store=FullStore())
    with pytest.raises(UsageError, match="the disk is full"):
        await call(world, session)
    assert user.open == 0
    # The next call has a token, as long as this process runs.
    assert await call(world, session) == Reply(200, 0)


# ---- the end of a login -------------------------------------------------------------


@on_both
async def test_a_cancelled_login_frees_everything() -> None:
    world, store = World(), MemoryTokens()
    user = User(world, anyio.sleep_forever)
    session, _ = session_of(world, user, store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(call, world, session)
        while user.events != ["open"]:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert user.events == ["open", "close"]
    assert store.try_lock(URL)
    store.unlock(URL)
    user.think = _nothing
    assert await call(world, session) == Reply(200, 1)


@on_both
async def test_a_cancelled_login_leaves_the_next_call_to_log_in() -> None:
    world = World()
    user = User(world, anyio.sleep_forever)
    session, _ = session_of(world, user)
    replies: list[Reply] = []

    async def second() -> None:
        replies.append(await call(world, session))

    async with anyio.create_task_group() as outer:
        async with anyio.create_task_group() as group:
            group.start_soon(call, world, session)
            while user.events != ["open"]:
                await anyio.lowlevel.checkpoint()
            outer.start_soon(second)
            await anyio.wait_all_tasks_blocked()
            user.think = _nothing
            group.cancel_scope.cancel()
    assert replies == [Reply(200, 1)]


@define(eq=False)
class SlowStore(MemoryTokens):
    """A store whose lock takes until a test lets it go."""

    asked: threading.Event = field(factory=threading.Event)
    go: threading.Event = field(factory=threading.Event)

    def try_lock(self, server: str) -> bool:
        """Wait, and lock."""
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return super().try_lock(server)


def test_a_lock_is_freed_if_asyncio_cancels_while_it_is_taken() -> None:
    """A plain `task.cancel()`, or `asyncio.timeout()`, reaches shielded threads too."""
    world, store = World(), SlowStore()
    session, _ = session_of(world, store=store)

    async def run() -> None:
        signed = await session.sign("POST")
        task = asyncio.ensure_future(session.recover(REFUSED, signed, 0))
        await asyncio.to_thread(store.asked.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.go.set()
        async with asyncio.timeout(PATIENCE):
            assert await call(world, session) == Reply(200, 1)

    asyncio.run(run())


class Broken:
    """A visitor with a fault."""

    async def redirect_uri(self, preferred: str | None) -> str:
        """Fail."""
        raise ZeroDivisionError

    async def visit(self, url: str, state: str) -> str:
        """Fail."""
        raise AssertionError

    async def close(self) -> None:
        """Fail: nothing was opened."""
        raise AssertionError


@on_both
async def test_a_fault_of_a_visitor_frees_the_lock() -> None:
    world, store = World(), MemoryTokens()
    broken: Any = Broken()
    session, _ = session_of(world, broken, store=store)
    with pytest.raises(ZeroDivisionError):
        await call(world, session)
    assert store.try_lock(URL)


@on_both
async def test_a_renewal_does_not_disturb_the_login_of_another_server() -> None:
    """Two channels may share their settings, and so the visitor."""
    world = World()
    session, user = session_of(world)
    await call(world, session)
    tokens = session._login.kept.tokens
    assert tokens is not None
    session._login._clock = lambda: (tokens.expires or 0) + 1
    await session.sign("POST")
    assert world.forms()[-1]["grant_type"] == "refresh_token"
    assert user.events == ["open", "close"]


@on_both
async def test_a_failed_fetch_is_passed_into_the_flow() -> None:
    world = World()

    def fail(request: Fetch) -> Fetched:
        raise FetchError(request.url, "it cannot be reached")

    world.answers = {f"{ISSUER}/register": fail}
    session, user = session_of(world)
    with pytest.raises(FetchError, match="it cannot be reached"):
        await call(world, session)
    assert user.events == ["open", "close"]


@on_both
async def test_a_program_has_no_visitor() -> None:
    world = World()
    world.authorities[0].secrets["given"] = "quiet"
    client = given_client(client_secret="quiet")
    session = LoginSession(OAuth(grant=ClientCredentials(), registration=client), URL)
    session._send = session_of(world)[0]._send
    assert await call(world, session) == Reply(200, 1)


def test_secrets_are_not_in_reprs() -> None:
    assert "quiet" not in repr(Signed({"Authorization": "quiet"}, 1))


# ---- deadlines ----------------------------------------------------------------------


async def wait_with_a_pause() -> None:
    with deadline(1, "answer"):
        with paused():
            await anyio.sleep(5)
        await anyio.sleep(2)


async def test_other_time_counts_for_a_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(TimeoutError):
        await wait_with_a_pause()


async def test_the_time_of_the_user_counts_for_no_deadline(
    mock_clock: trio.testing.MockClock,
) -> None:
    async def take_an_hour() -> None:
        mock_clock.jump(3600)
        await anyio.lowlevel.checkpoint()

    world = World()
    session, _ = session_of(world, User(world, take_an_hour))
    session._pausing = paused  # as a channel makes it
    channel = OverHttp(URL, auth=OAuth(visitor=User(world)))
    assert channel._login is not None
    assert channel._login._pausing is paused
    with deadline(1, "answer"):
        signed = await channel._sign(session, "POST")
        mock_clock.jump(0.9)
        await channel._log_in(session, REFUSED, signed, 0)
    assert len(world.visits) == 1
    assert trio.current_time() > 3600
    await channel.__aexit__()


def test_files_are_read_in_a_thread(tmp_path: Any, loop: Loop) -> None:
    async def run() -> None:
        world, store = World(), FileTokens(tmp_path)
        session, _ = session_of(world, store=store)
        assert await call(world, session) == Reply(200, 1)
        later, _ = session_of(world, store=FileTokens(tmp_path))
        assert await call(world, later) == Reply(200, 0)
        kept = Kept.from_json(json.loads(store.load(URL) or ""))
        assert isinstance(kept.tokens, Tokens)

    anyio.run(run, backend=loop)


async def test_a_renewal_that_fails_is_not_tried_by_each_call(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The old token may be accepted still, and each try takes time."""
    world, clock = World(), Clock()
    session, _ = session_of(world)
    session._login._clock = clock
    assert await call(world, session) == Reply(200, 1)
    clock.now += 3600
    world.authorities[0].refuses = [Fetched(status=503)] * 50
    asked = len(world.forms())
    for _ in range(10):
        assert await call(world, session) == Reply(200, 0)
    assert len(world.forms()) == asked + 1
    await anyio.sleep(6)
    world.authorities[0].refuses = []
    assert await call(world, session) == Reply(200, 0)
    assert len(world.forms()) == asked + 2
    assert not session._login.is_old


async def test_a_program_that_logs_in_has_its_deadline() -> None:
    """No user takes the time."""
    given = Registration(client_id="me", client_secret="s", issuer="https://a.example")
    settings = OAuth(grant=ClientCredentials(), registration=given)
    assert LoginSession(settings, URL, pausing=paused)._pausing is not paused


async def test_another_process_that_never_ends_its_login_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world, store = World(), MemoryTokens()
    session, _ = session_of(world, store=store)
    assert store.try_lock(URL)
    with pytest.raises(OAuthError, match="another process has been logging in"):
        await session.recover(REFUSED, await session.sign("POST"), 0)
    assert trio.current_time() > 600
    store.unlock(URL)
    assert await call(world, session) == Reply(200, 1)
