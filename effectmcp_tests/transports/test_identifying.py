"""Waiting for the result of an authenticator, on a loop and in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest
import trio

from effectmcp.fetching import sending
from effectmcp.fetching.requests import Fetch, Fetched
from effectmcp.transports import identifying
from effectmcp.transports.identifying import send_for, wait_for

RUNS: dict[str, Callable[[Any], Any]] = {
    "trio": lambda found: trio.run(wait_for, found),
    "asyncio": lambda found: asyncio.run(wait_for(found)),
}


def asks(*urls: str) -> Generator[Fetch, Fetched, list[int]]:
    """Ask for some URLs, and return the statuses."""
    found = []
    for url in urls:
        found.append((yield Fetch(url=url, near="https://idp.example")).status)
    return found


async def later(value: str) -> str:
    return value


class FakeSender:
    """A sender that counts, and answers at once."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.count = 200

    def _sent(self) -> Fetched:
        self.count += 1
        return Fetched(status=self.count, headers={}, body=b"")


class FakeAsync(FakeSender):
    async def __call__(self, fetch: Fetch) -> Fetched:
        return self._sent()


class FakeSync(FakeSender):
    def __call__(self, fetch: Fetch) -> Fetched:
        return self._sent()


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeAsync.made = FakeSync.made = 0
    monkeypatch.setattr(sending, "Sender", FakeAsync)
    monkeypatch.setattr(sending, "SyncSender", FakeSync)
    monkeypatch.setattr(identifying, "_shared", [])


@pytest.mark.parametrize("loop", RUNS)
def test_loop_waits_for_what_takes_long(loop: str) -> None:
    run = RUNS[loop]
    assert run("ann") == "ann"
    assert run(None) is None
    assert run(later("ann")) == "ann"
    assert FakeAsync.made == 0
    assert run(asks("https://idp.example/a", "https://idp.example/b")) == [201, 202]


def test_loop_has_one_sender() -> None:
    """Requests that serve all users are joined there: two senders would send two."""

    async def main() -> list[Any]:
        return [await wait_for(asks("https://a.example")) for _ in range(3)]

    assert trio.run(main) == [[201], [202], [203]]
    assert FakeAsync.made == 1


@pytest.mark.parametrize("loop", RUNS)
def test_next_loop_of_a_thread_has_a_sender_of_its_own(loop: str) -> None:
    """A loop that was closed leaves requests behind, for which no task waits."""
    for _ in range(2):
        assert RUNS[loop](asks("https://a.example")) == [201]
    assert FakeAsync.made == 2


def test_thread_waits_for_what_takes_long() -> None:
    assert send_for("ann") == "ann"
    assert FakeSync.made == 0
    assert send_for(asks("https://a.example", "https://b.example")) == [201, 202]
    assert send_for(asks("https://a.example")) == [203]
    assert FakeSync.made == 1


def test_thread_leaves_awaitables_to_its_host() -> None:
    """The host has a `run_async=` for them."""
    found = later("ann")
    assert send_for(found) is found
    assert inspect.iscoroutine(found)
    found.close()
