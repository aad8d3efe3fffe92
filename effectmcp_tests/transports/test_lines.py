"""One message a line: how lines are cut, and how a channel is served."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from effectmcp import Flow, Log, Progress, Server, Step
from effectmcp.drivers import trio as on_trio
from effectmcp.server import Change
from effectmcp.transports.lines import LineLimits, Splitter, TooLong, serve_lines

from ..legacy_client import NEWEST
from . import era

JSON = Any

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}

# ---- Splitter ----

LIMIT = 8


def whole(data: bytes, limit: int) -> list[bytes | TooLong]:
    """Return the lines that `data` holds, computed in another way."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [TooLong() if len(line) > limit else line for line in lines]


@given(
    st.lists(st.text("ab\n", max_size=12).map(str.encode), max_size=8),
    st.integers(0, 10),
)
def test_splitter_does_not_care_where_bytes_are_cut(
    pieces: list[bytes], limit: int
) -> None:
    splitter = Splitter(limit)
    found = [line for piece in pieces for line in splitter.feed(piece)]
    assert found + splitter.end() == whole(b"".join(pieces), limit)


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
def test_splitter_line_within_the_limit(size: int) -> None:
    assert Splitter(LIMIT).feed(b"x" * size + b"\n") == [b"x" * size]


def test_splitter_line_above_the_limit() -> None:
    splitter = Splitter(LIMIT)
    assert splitter.feed(b"x" * (LIMIT + 1) + b"\n12345678\n") == [
        TooLong(),
        b"12345678",
    ]


def test_splitter_keeps_nothing_of_a_line_that_is_too_long() -> None:
    splitter = Splitter(LIMIT)
    for _ in range(100):
        assert splitter.feed(b"xxxxx") == []
    assert splitter._pieces == []
    assert splitter.feed(b"\n") == [TooLong()]


def test_splitter_end_gives_the_last_line_once() -> None:
    splitter = Splitter(LIMIT)
    assert splitter.end() == []
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.end() == [b"b"]
    assert splitter.end() == []


# ---- a channel ----


class Client:
    """The other end of a channel, in memory."""

    def __init__(self) -> None:
        self._lines, self._in = trio.open_memory_channel[bytes | TooLong](100)
        self._answers: list[JSON] = []
        self._news = trio.Event()
        self.breaks: BaseException | None = None
        self.goes = trio.Event()
        self.goes.set()

    async def send(self, line: bytes) -> None:
        """Take a line that the server sends."""
        await self.goes.wait()
        if self.breaks is not None:
            raise self.breaks
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self._answers.append(json.loads(line))
        self._news.set()

    def put(self, *lines: bytes | TooLong) -> None:
        for line in lines:
            self._lines.send_nowait(line)

    def ask(self, id_: JSON, method: str, **params: JSON) -> None:
        meta = {**META, **params.pop("meta", {})}
        self.say(id=id_, method=method, params={"_meta": meta, **params})

    def call(self, id_: JSON, name: str, **params: JSON) -> None:
        self.ask(id_, "tools/call", name=name, **params)

    def cancel(self, id_: JSON) -> None:
        params = {"requestId": id_, "reason": "changed my mind"}
        self.say(method="notifications/cancelled", params=params)

    def say(self, **message: JSON) -> None:
        self.put(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def get(self) -> JSON:
        with trio.fail_after(60):
            while not self._answers:
                self._news = trio.Event()
                await self._news.wait()
        return self._answers.pop(0)

    def rest(self) -> list[JSON]:
        """Return the answers that arrived and were not looked at yet."""
        found, self._answers = self._answers, []
        return found

    def end(self) -> None:
        self._lines.close()

    async def lines(self) -> AsyncIterator[bytes | TooLong]:
        async with self._in:
            async for line in self._in:
                yield line

    def close(self) -> None:
        self._lines.close()
        self._in.close()


class Kitchen:
    """A server whose tools can be watched."""

    def __init__(self) -> None:
        self.app = Server("kitchen", version="1")
        self.began: list[str] = []
        self.ended: list[str] = []
        for function in (self.quick, self.slow, self.tells):
            self.app.tool(function)

    def quick(self, name: str = "ann") -> str:
        return f"hello {name}"

    async def slow(self, name: str, seconds: float = 100) -> str:
        self.began.append(name)
        try:
            await trio.sleep(seconds)
        finally:
            self.ended.append(name)
        return f"{name} is done"

    def tells(self) -> Flow[str]:
        for done in (1, 2):
            yield from Progress(done, 2)
            yield from Log("info", f"at {done}")
            yield from Step(trio.sleep, 1)
        return "told"


@asynccontextmanager
async def talk(
    app: Server, client: Client | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client of `app`; at the end its input ends, and the server's work with it."""
    client = client or Client()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_lines(app, client.lines(), client.send, **options)

        nursery.start_soon(serve)
        yield client
        client.end()
    client.close()


def text_of(message: JSON) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


def problem_of(message: JSON) -> str:
    assert message["error"]["code"] == -32600
    problem: str = message["error"]["message"]
    return problem


async def settled(client: Client, probe: str = "probe") -> None:
    """Wait until the server has seen everything that was sent so far."""
    client.ask(probe, "server/discover")
    assert (await client.get())["id"] == probe


# ---- answers ----


async def test_a_request_is_answered() -> None:
    async with talk(Kitchen().app) as client:
        client.call(1, "quick", arguments={"name": "bob"})
        answer = await client.get()
    assert (answer["id"], text_of(answer)) == (1, "hello bob")


async def test_answers_come_as_they_are_ready(autojump_clock: Any) -> None:
    async with talk(Kitchen().app) as client:
        client.call(1, "slow", arguments={"name": "a", "seconds": 2})
        client.call(2, "slow", arguments={"name": "b", "seconds": 1})
        assert [(await client.get())["id"] for _ in "ab"] == [2, 1]


async def test_empty_lines_and_other_notifications_are_passed_over() -> None:
    async with talk(Kitchen().app) as client:
        client.put(b"", b"  ", b"\r")
        client.say(method="notifications/initialized")
        client.say(method="notifications/of/the/future", params={"a": 1})
        await settled(client)
        assert client.rest() == []


@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc": "2.0", "id": 7}', -32600, 7),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
        # Nothing was asked, so this answers nothing.
        (b'{"jsonrpc": "2.0", "id": 7, "result": {}}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "server/discover"}', -32602, "a"),
    ],
)
async def test_malformed_lines_are_answered(
    line: bytes, code: int, id_: str | int | None
) -> None:
    async with talk(Kitchen().app) as client:
        client.put(line)
        answer = await client.get()
        assert answer["error"]["code"] == code
        assert answer.get("id") == id_
        await settled(client)


async def test_a_line_that_is_too_long_is_answered() -> None:
    async with talk(Kitchen().app, limits=LineLimits(line=1_000)) as client:
        client.put(TooLong())
        assert problem_of(await client.get()).endswith("at most 1,000 bytes")
        await settled(client)


async def test_running_calls_send_progress_and_logs_meanwhile(
    autojump_clock: Any,
) -> None:
    """Progress carries the token of its request, so several can run side by side."""
    async with talk(Kitchen().app) as client:
        level = {"io.modelcontextprotocol/logLevel": "info"}
        for id_ in (1, 2):
            client.call(id_, "tells", meta={"progressToken": f"t{id_}", **level})
        heard = [await client.get() for _ in range(10)]
    for id_ in (1, 2):
        mine = [
            one["params"]["progress"]
            for one in heard
            if one.get("params", {}).get("progressToken") == f"t{id_}"
        ]
        assert mine == [1, 2]
    assert [one["params"]["data"] for one in heard if "data" in one.get("params", {})]
    assert {one["id"] for one in heard[-2:]} == {1, 2}


# ---- cancellation ----


async def test_a_cancelled_request_ends_unanswered(autojump_clock: Any) -> None:
    kitchen = Kitchen()
    async with talk(kitchen.app) as client:
        client.call(1, "slow", arguments={"name": "a"})
        await settled(client)
        assert kitchen.began == ["a"]
        client.cancel(1)
        await settled(client, "again")
        assert kitchen.ended == ["a"]
    assert client.rest() == []


async def test_a_request_is_cancelled_by_the_very_next_line() -> None:
    kitchen = Kitchen()
    async with talk(kitchen.app) as client:
        client.call(1, "slow", arguments={"name": "a"})
        client.cancel(1)
        await settled(client)
        assert client.rest() == []
        assert kitchen.began == kitchen.ended


@pytest.mark.parametrize("id_", ["1", 2, 1.0, None, True, [1], {"a": 1}])
async def test_cancelling_what_is_not_running_does_nothing(
    id_: JSON, autojump_clock: Any
) -> None:
    async with talk(Kitchen().app) as client:
        client.call(1, "slow", arguments={"name": "a", "seconds": 3})
        client.cancel(id_)
        client.say(method="notifications/cancelled")
        assert text_of(await client.get()) == "a is done"


async def test_ids_that_only_look_alike_are_two(autojump_clock: Any) -> None:
    async with talk(Kitchen().app) as client:
        client.call(1, "slow", arguments={"name": "number", "seconds": 3})
        client.call("1", "slow", arguments={"name": "text", "seconds": 3})
        client.cancel("1")
        answer = await client.get()
        assert (answer["id"], text_of(answer)) == (1, "number is done")


async def test_cancelling_what_is_over_does_nothing() -> None:
    async with talk(Kitchen().app) as client:
        client.call(1, "quick")
        await client.get()
        client.cancel(1)
        client.call(1, "quick")
        assert text_of(await client.get()) == "hello ann"


async def test_a_call_that_ended_as_it_was_cancelled_is_not_answered() -> None:
    """No response is sent, even where the last wait could not be cancelled."""
    app = Server("shop")

    @app.tool
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await goes_on.wait()
        return "done all the same"

    goes_on = trio.Event()
    async with talk(app) as client:
        client.call(1, "stubborn")
        client.cancel(1)
        await settled(client)
        goes_on.set()
        await settled(client, "again")
    assert client.rest() == []


async def test_a_subscription_ends_unanswered_when_it_is_cancelled() -> None:
    kitchen = Kitchen()
    async with talk(kitchen.app) as client:
        client.ask(1, "subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await client.get())["method"].endswith("acknowledged")
        client.cancel(1)
        await settled(client)
        kitchen.app.changes.publish(Change("tools"))
        await settled(client, "again")
    assert client.rest() == []


async def test_a_line_that_is_being_written_is_not_cut_off() -> None:
    """Cancelling a request must not leave half a message on the channel."""
    sent: list[bytes] = []
    started, goes_on = trio.Event(), trio.Event()

    async def send(line: bytes) -> None:
        sent.append(line[:5])
        started.set()
        await goes_on.wait()
        sent.append(line[5:])

    client = Client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, Kitchen().app, client.lines(), send)
        client.call(1, "tells", meta={"progressToken": 1})
        await started.wait()
        client.cancel(1)
        await trio.testing.wait_all_tasks_blocked()
        goes_on.set()
        client.end()
    client.close()
    assert json.loads(b"".join(sent))["method"] == "notifications/progress"


# ---- too much at once ----


async def test_an_id_that_is_running_is_refused(autojump_clock: Any) -> None:
    async with talk(Kitchen().app) as client:
        client.call(1, "slow", arguments={"name": "a", "seconds": 3})
        client.call(1, "quick")
        answer = await client.get()
        assert answer["id"] == 1
        assert problem_of(answer).endswith("this id is running")
        assert text_of(await client.get()) == "a is done"


async def test_one_request_too_many_waits_for_another_to_end(
    autojump_clock: Any,
) -> None:
    kitchen = Kitchen()
    async with talk(kitchen.app, limits=LineLimits(requests=2)) as client:
        for name in "abcd":
            client.call(name, "slow", arguments={"name": name, "seconds": 10})
        await trio.sleep(5)
        first = set(kitchen.began)
        assert len(first) == 2
        await trio.sleep(10)
        assert len(kitchen.began) == 4
        answers = {(await client.get())["id"] for _ in "abcd"}
    assert answers == set("abcd")


async def test_a_waiting_call_can_be_cancelled(autojump_clock: Any) -> None:
    """The server continues to read, however much is running."""
    kitchen = Kitchen()
    async with talk(kitchen.app, limits=LineLimits(requests=1)) as client:
        client.call(1, "slow", arguments={"name": "a", "seconds": 10})
        await trio.sleep(1)
        client.call(2, "slow", arguments={"name": "b"})
        await trio.sleep(1)
        client.cancel(2)
        assert (await client.get())["id"] == 1
        await settled(client)
    assert kitchen.began == ["a"]


async def test_more_than_may_wait_slows_the_client_down(autojump_clock: Any) -> None:
    async with talk(Kitchen().app, limits=LineLimits(requests=1, waiting=1)) as client:
        for name in "abcdef":
            client.call(name, "slow", arguments={"name": name, "seconds": 0.9})
        answers = [text_of(await client.get()) for _ in "abcdef"]
    assert len(answers) == 6


async def test_requests_above_the_limit_are_refused_while_no_call_ends(
    autojump_clock: Any,
) -> None:
    """After a second; and then at once, so that later messages are read."""
    async with talk(Kitchen().app, limits=LineLimits(requests=1, waiting=1)) as client:
        for name in "abcde":
            client.call(name, "slow", arguments={"name": name, "seconds": 10})
        for name in "cde":
            answer = await client.get()
            assert answer["id"] == name
            assert problem_of(answer).endswith("too many requests are running")
            assert trio.current_time() == pytest.approx(1)
        assert {(await client.get())["id"] for _ in "ab"} == {"a", "b"}
        client.call("f", "slow", arguments={"name": "f", "seconds": 1})
        assert (await client.get())["id"] == "f"


async def test_the_end_is_seen_however_much_is_running(autojump_clock: Any) -> None:
    kitchen = Kitchen()
    async with talk(kitchen.app, limits=LineLimits(requests=1, grace=2)) as client:
        for name in "abc":
            client.call(name, "slow", arguments={"name": name})
    assert trio.current_time() <= 3
    assert kitchen.began == kitchen.ended


# ---- the end ----


async def test_what_runs_at_the_end_has_time_to_end(autojump_clock: Any) -> None:
    kitchen = Kitchen()
    client = Client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, kitchen.app, client.lines(), client.send)
        client.call(1, "slow", arguments={"name": "a", "seconds": 4})
        client.call(2, "slow", arguments={"name": "b", "seconds": 6})
        client.end()
    assert kitchen.ended == ["a", "b"]
    assert [one["id"] for one in client.rest()] == [1]
    assert trio.current_time() == pytest.approx(5)
    client.close()


async def listen(client: Client, id_: JSON = "s") -> JSON:
    client.ask(id_, "subscriptions/listen", notifications={"toolsListChanged": True})
    return await client.get()


async def test_subscriptions_end_gracefully(autojump_clock: Any) -> None:
    app = Kitchen().app
    client = Client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, app, client.lines(), client.send)
        await listen(client)
        client.end()
    told, answer = client.rest()
    assert told["method"] == "notifications/cancelled"
    assert (answer["id"], answer["result"]["resultType"]) == ("s", "complete")
    assert trio.current_time() == 0
    client.close()


async def test_a_subscription_that_comes_with_the_end_does_not_delay_it(
    autojump_clock: Any,
) -> None:
    async with talk(Kitchen().app) as client:
        client.ask("s", "subscriptions/listen", notifications={})
    assert trio.current_time() == 0


async def test_one_channel_of_many_ends_alone(autojump_clock: Any) -> None:
    """The channels of others continue; its own subscription delays nothing."""
    app = Kitchen().app
    async with talk(app, is_alone=False) as other:
        await listen(other)
        async with talk(app, is_alone=False) as client:
            await listen(client)
            client.call(1, "slow", arguments={"name": "a", "seconds": 2})
        assert [one["id"] for one in client.rest()] == [1]
        assert other.rest() == []
        app.changes.publish(Change("tools"))
        assert (await other.get())["method"].endswith("tools/list_changed")
    assert trio.current_time() == pytest.approx(2)


async def test_changes_are_reported() -> None:
    kitchen = Kitchen()
    async with talk(kitchen.app) as client:
        assert (await listen(client))["method"].endswith("acknowledged")
        kitchen.app.remove(kitchen.app.tools["tells"])
        told = await client.get()
    assert told["method"] == "notifications/tools/list_changed"
    assert told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "s"


# ---- a channel that breaks ----


@pytest.mark.parametrize(
    "error",
    [
        BrokenPipeError("no reader"),
        trio.BrokenResourceError("gone"),
        trio.ClosedResourceError("closed"),
    ],
)
async def test_a_client_that_is_gone_ends_it_all(
    error: Exception, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Without waiting for the end of its input, which may never come."""
    kitchen = Kitchen()
    client = Client()
    caplog.set_level(logging.INFO)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, kitchen.app, client.lines(), client.send)
        client.call(1, "slow", arguments={"name": "a"})
        await settled(client)
        client.breaks = error
        client.ask(2, "server/discover")
    assert kitchen.ended == ["a"]
    assert trio.current_time() == 0
    assert "the client is gone" in caplog.text
    client.close()


async def test_another_error_of_send_is_raised() -> None:
    client = Client()
    client.breaks = ZeroDivisionError("a bug")
    client.call(1, "quick")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await serve_lines(Kitchen().app, client.lines(), client.send)
    client.close()


@pytest.mark.parametrize(
    "error", [OSError("a bug"), BaseExceptionGroup("", [OSError()])]
)
async def test_a_failing_request_does_not_end_the_server(
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(app: Server, request: Any, *args: Any, **options: Any) -> Any:
        if request.method == "server/discover":
            raise error
        return await original(app, request, *args, **options)

    original = on_trio.handle
    monkeypatch.setattr(on_trio, "handle", handle)
    async with talk(Kitchen().app) as client:
        client.ask(1, "server/discover")
        answer = await client.get()
        client.call(2, "quick", arguments={"name": "bob"})
        assert text_of(await client.get()) == "hello bob"
    assert (answer["id"], answer["error"]) == (
        1,
        {"code": -32603, "message": "Internal error"},
    )
    assert "server/discover failed" in caplog.text


async def test_an_unwritable_answer_does_not_end_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Kitchen().app
    app.instructions = "\ud800"
    async with talk(app) as client:
        client.ask("a", "server/discover")
        answer = await client.get()
        client.call(2, "quick", arguments={"name": "bob"})
        assert text_of(await client.get()) == "hello bob"
    assert (answer["id"], answer["error"]["code"]) == ("a", -32603)
    assert "surrogates not allowed" in caplog.text


async def test_a_client_that_does_not_read_is_not_waited_for(
    autojump_clock: Any,
) -> None:
    client = Client()
    client.goes = trio.Event()
    client.ask(1, "server/discover")
    client.end()
    await serve_lines(Kitchen().app, client.lines(), client.send)
    assert trio.current_time() == pytest.approx(5)
    client.close()


# ---- hostile bytes ----

MESSAGES = st.builds(
    lambda id_, method, params: json.dumps(
        {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    ).encode(),
    st.one_of(st.integers(0, 3), st.sampled_from(["1", "", None])),
    st.sampled_from(["server/discover", "tools/call", "nothing"]),
    st.fixed_dictionaries({"_meta": st.sampled_from([META, {}]), "name": st.text()}),
)


@given(st.lists(st.one_of(st.binary(max_size=20), MESSAGES), max_size=10))
def test_any_bytes_are_answered_or_ignored(lines: list[bytes]) -> None:
    """Every line that comes back is a response, and the server is still there."""

    async def main() -> None:
        splitter = Splitter(4096)
        async with talk(Kitchen().app) as client:
            client.put(*splitter.feed(b"".join(line + b"\n" for line in lines)))
            client.ask("last", "server/discover")
        answers = client.rest()
        assert all(("result" in one) != ("error" in one) for one in answers)
        assert [one for one in answers if one.get("id") == "last"]

    trio.run(main)


# ---- legacy clients -----------------------------------------------------------------


class LegacyClient(Client):
    """A client of the legacy revisions."""

    def request(self, id_: JSON, method: str, **params: JSON) -> None:
        self.say(id=id_, method=method, params=params)

    def tool(self, id_: JSON, name: str, **arguments: JSON) -> None:
        self.request(id_, "tools/call", name=name, arguments=arguments)

    def hello(self, version: str = NEWEST, id_: JSON = 0) -> None:
        self.put(json.dumps(era.initialize(version, id=id_)).encode())

    async def shake(self) -> None:
        self.hello()
        assert (await self.get())["result"]["protocolVersion"] == NEWEST
        self.say(method="notifications/initialized")

    def answer(self, question: JSON, value: JSON) -> None:
        self.put(json.dumps(era.answered(question, value)).encode())


@asynccontextmanager
async def shaking(app: Server, **options: Any) -> AsyncIterator[LegacyClient]:
    async with talk(app, LegacyClient(), **options) as client:
        assert isinstance(client, LegacyClient)
        yield client


async def test_a_legacy_client_is_asked() -> None:
    async with shaking(era.desk().app) as client:
        await client.shake()
        client.tool(1, "order", title="Dune")
        for value in ("Ann", 2):
            client.answer(await client.get(), value)
        assert era.value_of(await client.get()) == "2 x Dune for Ann"
        client.answer({"id": 99}, "nobody asked")
        client.request(2, "ping")
        assert await client.get() == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_both_eras_on_one_channel() -> None:
    async with shaking(era.desk().app) as client:
        await client.shake()
        client.tool(1, "order", title="Dune")
        question = await client.get()
        client.call(2, "order", arguments={"title": "Dune"})
        assert (await client.get())["result"]["resultType"] == "input_required"
        client.answer(question, "Ann")
        client.answer(await client.get(), 2)
        assert era.value_of(await client.get()) == "2 x Dune for Ann"


async def test_what_follows_a_handshake_without_waiting_belongs_to_it() -> None:
    async with shaking(era.desk().app) as client:
        for id_ in range(0, 20, 2):
            client.hello(id_=id_)
            client.tool(id_ + 1, "whoami")
        found = {one["id"]: one for one in [await client.get() for _ in range(20)]}
        for id_ in range(0, 20, 2):
            assert "result" in found[id_]
        assert era.value_of(found[19]) == f"None legacy {NEWEST}"


async def test_a_handshake_that_fails() -> None:
    async with shaking(era.desk().app) as client:
        client.request(1, "initialize")
        assert (await client.get())["error"]["code"] == -32602
        await client.shake()


async def test_a_server_that_accepts_no_handshake() -> None:
    async with shaking(era.desk(legacy=False).app) as client:
        client.hello()
        assert "error" in await client.get()


async def test_a_second_handshake_replaces_the_session(
    autojump_clock: MockClock,
) -> None:
    made = era.desk()
    async with shaking(made.app) as client:
        await client.shake()
        client.request(1, "resources/subscribe", uri="desk://a")
        await client.get()
        client.tool(2, "order", title="Dune")
        question = await client.get()
        client.hello("2025-03-26")
        found = [await client.get() for _ in range(2)]
        assert sorted(one.get("id", -1) for one in found) == [-1, 0]
        client.answer(question, "Ann")
        client.tool(3, "whoami")
        assert era.value_of(await client.get()) == "None legacy 2025-03-26"
        assert made.seen == ["cancelled", "refunded Dune"]
        made.app.changes.publish(Change("resource", "desk://a"))
        made.app.changes.publish(Change("tools"))
        assert (await client.get())["method"] == "notifications/tools/list_changed"
    assert client.rest() == []


async def test_a_question_is_cancelled_on_its_channel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    made = era.desk()
    async with shaking(made.app) as client:
        await client.shake()
        client.tool("x", "order", title="Dune")
        question = await client.get()
        client.cancel("x")
        assert (await client.get())["params"] == {"requestId": question["id"]}
        client.cancel("x")
        client.answer(question, "Ann")
        client.tool("y", "whoami")
        assert (await client.get())["id"] == "y"
    assert client.rest() == []
    assert made.seen == ["cancelled", "refunded Dune"]
    assert {one.levelname for one in caplog.records} == {"DEBUG"}


async def test_a_function_of_a_session_is_cancelled(autojump_clock: MockClock) -> None:
    made = era.desk()
    async with shaking(made.app) as client:
        await client.shake()
        began = trio.current_time()
        client.tool(2, "naps", seconds=1000)
        client.request(3, "ping")
        await client.get()
        client.cancel(2)
        client.request(4, "ping")
        await client.get()
        assert trio.current_time() == began
    assert client.rest() == []
    assert made.seen == ["napped"]


async def test_two_requests_of_a_session_with_one_id() -> None:
    async with shaking(era.desk().app) as client:
        await client.shake()
        client.tool(1, "order", title="x")
        await client.get()
        client.tool(1, "whoami")
        assert "id is running" in problem_of(await client.get())


async def test_the_input_ends_in_the_middle_of_a_question(
    autojump_clock: MockClock,
) -> None:
    made = era.desk()
    async with shaking(made.app) as client:
        await client.shake()
        client.tool(1, "slow", seconds=3)
        await client.get()
        began = trio.current_time()
    assert trio.current_time() - began == 3
    assert made.seen == ["refunding", "refunded late"]
    (told,) = client.rest()
    assert told["method"] == "notifications/cancelled"


async def test_a_cleanup_that_takes_longer_than_the_grace(
    autojump_clock: MockClock,
) -> None:
    made = era.desk()
    async with shaking(made.app, limits=LineLimits(grace=2)) as client:
        await client.shake()
        client.tool(1, "slow", seconds=30)
        await client.get()
        began = trio.current_time()
    assert trio.current_time() - began == 2
    assert made.seen == ["refunding"]


@pytest.mark.parametrize("ends", [True, False])
async def test_the_client_is_gone_in_the_middle_of_a_question(
    ends: bool, autojump_clock: MockClock
) -> None:
    """The flow has a message to send before it cleans up, and cannot send it."""
    made = era.desk()
    async with shaking(made.app) as client:
        await client.shake()
        client.tool(1, "slow", seconds=3)
        await client.get()
        client.call(2, "naps", arguments={"seconds": 1000})
        await settled(client)
        client.breaks = BrokenPipeError()
        if ends:
            client.end()
        else:
            client.request(3, "ping")
        began = trio.current_time()
    assert trio.current_time() - began == 3
    assert made.seen == ["napped", "refunding", "refunded late"] or made.seen == [
        *["refunding", "napped", "refunded late"]
    ]


async def test_news_comes_after_the_handshake_and_until_the_end() -> None:
    made = era.desk()
    changes = made.app.changes
    async with shaking(made.app) as client:
        await settled(client)
        changes.publish(Change("tools"))
        await settled(client)
        client.goes = trio.Event()
        client.hello()
        await trio.testing.wait_all_tasks_blocked()
        changes.publish(Change("prompts"))  # while the answer is on its way
        client.goes.set()
        assert "result" in await client.get()
        assert (await client.get())["method"] == "notifications/prompts/list_changed"
        await trio.testing.wait_all_tasks_blocked()
        changes.publish(Change("resources"))
        told = await client.get()
        assert told["method"] == "notifications/resources/list_changed"
    assert changes._listeners == {}
    assert client.rest() == []


async def test_a_session_of_one_of_several_channels() -> None:
    made = era.desk()
    async with shaking(made.app, is_alone=False) as client:
        await client.shake()
        client.tool(1, "order", title="Dune")
        await client.get()
    assert made.seen == ["cancelled", "refunded Dune"]
    assert not made.app.changes.is_over
