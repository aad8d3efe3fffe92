"""Requests as values: how generators of them are played."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import trio

from effectmcp.fetching.requests import (
    Fetch,
    Fetched,
    FetchError,
    Fetching,
    fetch_all,
    fetch_all_async,
    form_of,
    json_of,
)

URL = "https://idp.example/keys"


def fetch(path: str) -> Fetch:
    return Fetch(url=f"https://idp.example/{path}", near="https://idp.example")


def asks(ended: list[str]) -> Fetching[str]:
    """Ask twice, even if the first request fails."""
    try:
        try:
            one = (yield fetch("one")).body
        except FetchError as exc:
            one = exc.problem.encode()
        two = (yield fetch("two")).body
        return f"{one.decode()} {two.decode()}"
    finally:
        ended.append("ended")


def send(request: Fetch) -> Fetched:
    return Fetched(status=200, body=request.url.encode()[-3:])


def fail_one(request: Fetch) -> Fetched:
    if request.url.endswith("one"):
        raise FetchError(request.url, "gone")
    return send(request)


def crash(request: Fetch) -> Fetched:
    raise ZeroDivisionError


async def slowly(request: Fetch) -> Fetched:
    await trio.lowlevel.checkpoint()
    return fail_one(request)


def test_play_returns_the_result() -> None:
    ended: list[str] = []
    assert fetch_all(asks(ended), send) == "one two"
    assert ended == ["ended"]


def test_play_raises_failures_where_they_are_yielded() -> None:
    assert fetch_all(asks([]), fail_one) == "gone two"


def test_play_closes_the_generator_if_the_sender_crashes() -> None:
    ended: list[str] = []
    flow = asks(ended)
    with pytest.raises(ZeroDivisionError):
        fetch_all(flow, crash)
    assert ended == ["ended"]


def test_play_of_nothing_sends_nothing() -> None:
    def nothing() -> Generator[Fetch, Fetched, int]:
        yield from ()
        return 5

    assert fetch_all(nothing(), crash) == 5


def test_play_raises_what_the_generator_raises() -> None:
    def raises() -> Fetching[None]:
        yield fetch("one")
        raise KeyError("k")

    with pytest.raises(KeyError):
        fetch_all(raises(), send)
    with pytest.raises(FetchError, match="gone"):
        fetch_all(raises(), fail_one)


async def test_play_async_is_the_same_on_a_loop() -> None:
    ended: list[str] = []
    assert await fetch_all_async(asks(ended), slowly) == "gone two"
    assert ended == ["ended"]


async def test_play_async_closes_the_generator_that_is_cancelled() -> None:
    ended: list[str] = []
    sent = trio.Event()

    async def forever(request: Fetch) -> Fetched:
        sent.set()
        await trio.sleep_forever()
        raise AssertionError("it was cancelled")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch_all_async, asks(ended), forever)
        await sent.wait()
        nursery.cancel_scope.cancel()
    assert ended == ["ended"]


def test_form_leaves_out_missing_fields() -> None:
    assert form_of({"a": "b c&d=", "none": None, "ü": ""}) == b"a=b+c%26d%3D&%C3%BC="


def test_json_of_an_object_is_it() -> None:
    assert json_of(URL, Fetched(status=200, body=b'{"a": [1]}')) == {"a": [1]}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"5", b"null", b'"a"', b"{", b"\xff", b'{"a":' * 100_000]
)
def test_json_of_other_content_is_a_fetch_error(body: bytes) -> None:
    with pytest.raises(FetchError) as caught:
        json_of(URL, Fetched(status=200, body=body))
    assert str(caught.value) == (
        f"{URL!r}: the response of status 200 is not a JSON object"
    )


def test_fetch_error_shows_little_of_a_strangers_url() -> None:
    shown = str(FetchError("https://evil.example/\n" + "x" * 10_000, "no"))
    assert len(shown) < 300
    assert "\n" not in shown
