"""Legacy servers: the messages sent to them, and the handling of their questions."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
from hypothesis import given
from trio.testing import MockClock

from effectmcp import (
    Declined,
    Dismissed,
    EffectMCPError,
    ProtocolError,
    Root,
    UsageError,
)
from effectmcp.client import (
    ChannelError,
    Client,
    Form,
    Link,
    Pending,
    ReplyError,
    Result,
    RoundsError,
    StateRejected,
    handshakes,
)
from effectmcp.client.channels import SessionEnded
from effectmcp.client.handshakes import RunningCall, _HeldQuestion
from effectmcp.protocol.revisions import DRAFT

from .legacy_server import DONE, FORM, Asking, Legacy
from .strategies import json_values
from .ways import on_both


def said(text: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(text)}]}


def fails(code: int, **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no", **more}}


def answer(form: Form) -> dict[str, Any]:
    return {"value": form.message}


async def until(is_so: Any) -> None:
    """Let other tasks run until a condition is met."""
    while not is_so():
        await anyio.lowlevel.checkpoint()


# ---- the handshake ------------------------------------------------------------------


@on_both
async def test_what_is_sent() -> None:
    channel = Legacy()
    info = {"name": "me", "version": "2"}
    options = {"elicit": answer, "info": info, "log_level": "error"}
    async with channel.client(**options) as client:
        assert channel.methods == [
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
        ]
        await client.call_tool("tool", on_progress=lambda params: None)
        await client.request("tools/list", {})
    hello, level = channel.requests("initialize"), channel.requests("logging/setLevel")
    assert hello[0]["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {"form": {}}},
        "clientInfo": info,
    }
    assert level[0]["params"] == {"level": "error"}
    (call,) = channel.requests("tools/call")
    # What belongs to newer revisions is gone, and what has nothing else with it.
    token = call["params"]["_meta"]["progressToken"]
    assert call["params"] == {
        "name": "tool",
        "arguments": {},
        "_meta": {"progressToken": token},
    }
    assert "params" not in channel.requests("tools/list")[0]
    headers = [one for _, one in channel.sent]
    assert headers == [{}] + [{"MCP-Protocol-Version": "2025-11-25"}] * 4
    ids = [one["id"] for one, _ in channel.sent if "id" in one]
    assert len({*ids}) == len(ids)


@on_both
async def test_discover_returns_what_the_handshake_declared() -> None:
    channel = Legacy()
    async with channel.client() as client:
        found = await client.discover()
    assert found["supportedVersions"] == ["2025-11-25"]
    assert found["capabilities"] == {"logging": {}}
    assert found["instructions"] == "Be kind."
    assert {"name": "old"} in dict(found["_meta"]).values()
    channel = Legacy(welcome={"protocolVersion": "2025-03-26"})
    async with channel.client() as client:
        assert {*await client.discover()} == {"supportedVersions", "_meta"}
    assert "server/discover" not in channel.methods


@pytest.mark.parametrize(
    "version", ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]
)
async def test_a_version_can_be_given(version: str) -> None:
    welcome = {"protocolVersion": version}
    channel = Legacy(welcome=welcome)
    async with channel.client(version=version) as client:
        assert (await client.call_tool("tool")).text == "done"
    if version == "2026-07-28":
        assert channel.methods == ["tools/call"]
    else:
        offered = channel.requests("initialize")[0]["params"]["protocolVersion"]
        assert offered == version
        assert channel.sent[-1][1] == {"MCP-Protocol-Version": version}


@pytest.mark.parametrize("version", ["", "2024-11-05", "2026-06-XX", "DRAFT-2026"])
def test_an_unknown_version(version: str) -> None:
    with pytest.raises(UsageError, match="it is one of 2026-07-28, 2025-11-25"):
        Legacy().client(version=version)


@pytest.mark.parametrize(
    ("welcome", "error", "words"),
    [
        ({}, ChannelError, "speaks None"),
        ({"protocolVersion": 20251125}, ChannelError, "speaks 20251125"),
        ({"protocolVersion": []}, ChannelError, "speaks \\[\\]"),
        ({"protocolVersion": "2024-11-05"}, ChannelError, "speaks '2024-11-05'"),
        ({"protocolVersion": "2026-07-28"}, ChannelError, "speaks '2026-07-28'"),
        ({"protocolVersion": DRAFT.version}, ChannelError, "speaks '2026-06-XX'"),
        ({"protocolVersion": "x" * 999}, ChannelError, "speaks 'x{79}, and"),
        ([], ReplyError, "initialize came to \\[\\]"),
        (None, ReplyError, "initialize came to None"),
        ({"error": 5}, ReplyError, "neither a result nor an error"),
        ({"result": {}, "id": 99}, ReplyError, "another request"),
        (fails(-32602), ProtocolError, "no"),
    ],
)
async def test_an_invalid_welcome(
    welcome: Any, error: type[Exception], words: str
) -> None:
    channel = Legacy(welcome=welcome)
    with pytest.raises(error, match=words):
        async with channel.client():
            raise AssertionError("not reached")
    assert channel.methods == ["initialize"]


@given(json_values, json_values, json_values)
def test_any_welcome_is_one_or_is_refused(
    capabilities: Any, info: Any, instructions: Any
) -> None:
    async def main() -> None:
        fields = {"capabilities": capabilities, "serverInfo": info}
        welcome = {
            "protocolVersion": "2025-06-18",
            "instructions": instructions,
            **fields,
        }
        async with Legacy(welcome=welcome).client(log_level="info") as client:
            await client.discover()
            assert (await client.call_tool("tool")).text == "done"

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_a_refused_log_level_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Strict(Legacy):
        async def exchange(self, message: Any, headers: Any, hear: Any) -> Any:
            found: Any = await super().exchange(message, headers, hear)
            if message["method"] != "logging/setLevel":
                return found
            return {"jsonrpc": "2.0", "id": message["id"], **fails(-32601)}

    caplog.set_level(logging.WARNING, "effectmcp.client")
    async with Strict().client(log_level="info") as client:
        assert (await client.call_tool("tool")).text == "done"
    assert "refuses logging/setLevel" in caplog.text


async def test_a_stream_that_never_begins(autojump_clock: Any) -> None:
    """A server may send no head before its first message."""

    class Mute(Legacy):
        async def attend(self, hear: Any, headers: Any, ready: Any) -> None:
            await anyio.sleep_forever()

    async with Mute().client() as client:
        assert (await client.call_tool("tool")).text == "done"


async def test_a_missing_stream() -> None:
    class Silent(Legacy):
        async def attend(self, hear: Any, headers: Any, ready: Any) -> None:
            raise ChannelError("it hangs up")

    async with Silent().client() as client:
        assert (await client.call_tool("tool")).text == "done"


# ---- questions ----------------------------------------------------------------------


@on_both
async def test_a_question_is_a_round() -> None:
    seen: list[Pending] = []

    async def serve(asking: Asking) -> Any:
        first = await asking.ask()
        second = await asking.ask(params={**FORM, "message": "And?"})
        return said([first["content"]["value"], second["content"]["value"]])

    channel = Legacy(serve)
    async with channel.client(elicit=answer, on_round=seen.append) as client:
        result = await client.call_tool("tool")
    assert (result.text, result.rounds) == ("['Who?', 'And?']", 3)
    assert [len(one.questions) for one in seen] == [1, 1]
    assert len(channel.requests("tools/call")) == 1
    assert [one["id"] for one in channel.replies] == ["q1", "q2"]
    assert {one.get("MCP-Protocol-Version") for _, one in channel.sent[1:]} == {
        "2025-11-25"
    }


@on_both
async def test_questions_side_by_side_are_one_round() -> None:
    async def serve(asking: Asking) -> Any:
        found: list[Any] = []

        async def ask(method: str, params: Any) -> None:
            found.append(await asking.ask(method, params))

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "elicitation/create", FORM)
            group.start_soon(ask, "roots/list", None)
            messages = {"messages": [], "maxTokens": 5}
            group.start_soon(ask, "sampling/createMessage", messages)
        return said(len(found))

    options: dict[str, Any] = {"elicit": answer, "roots": [Root("file:///a")]}
    async with Legacy(serve).client(**options, sample=lambda s: "Hi") as client:
        result = await client.call_tool("tool")
    assert (result.text, result.rounds) == ("3", 2)


@on_both
async def test_a_question_that_comes_while_another_is_answered() -> None:
    asked_again = anyio.Event()

    async def elicit(form: Form) -> dict[str, Any]:
        if form.message == "Who?":
            await asked_again.wait()
        return {"value": form.message}

    async def serve(asking: Asking) -> Any:
        async def later() -> None:
            await until(lambda: seen)
            asked_again.set()
            await asking.ask(params={**FORM, "message": "And?"})

        async with anyio.create_task_group() as group:
            group.start_soon(later)
            await asking.ask()
        return DONE

    seen: list[Pending] = []
    async with Legacy(serve).client(elicit=elicit, on_round=seen.append) as client:
        assert (await client.call_tool("tool")).rounds == 3


@pytest.mark.parametrize(
    ("how", "action"), [(Declined(), "decline"), (Dismissed(), "cancel")]
)
async def test_ways_out_of_a_question(how: Any, action: str) -> None:
    async def serve(asking: Asking) -> Any:
        return said((await asking.ask())["action"])

    async with Legacy(serve).client(elicit=lambda form: how) as client:
        assert (await client.call_tool("tool")).text == action


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_refused_sampling_is_answered_with_an_error(action: str) -> None:
    """ "User rejected sampling request: `-1`" (2025-11-25, Sampling, Error Handling)."""

    async def serve(asking: Asking) -> Any:
        messages = {"messages": [], "maxTokens": 5}
        return said(await asking.ask("sampling/createMessage", messages))

    rejected = {"code": -1, "message": "User rejected sampling request"}
    for answered, heard in (({"action": action}, rejected), ("no", "no")):
        async with Legacy(serve).client(sample=lambda sampling: "Hi") as client:
            call = client.start("tools/call", {"name": "tool", "arguments": {}})
            pending = await call.round()
            assert isinstance(pending, Pending)
            result = await call.round(dict.fromkeys(pending.questions, answered))
            assert isinstance(result, Result)
            assert result.text == str(heard)


async def asks_once(asking: Asking) -> Any:
    await asking.ask()
    return DONE


async def asks_on(asking: Asking) -> Any:
    while True:
        await asking.ask()


@on_both
async def test_an_error_of_a_handler_is_raised_and_ends_the_call() -> None:
    def elicit(form: Form) -> dict[str, Any]:
        raise LookupError("nobody is there")

    channel = Legacy(asks_once)
    async with channel.client(elicit=elicit) as client:
        with pytest.raises(LookupError, match="nobody is there"):
            await client.call_tool("tool")
        await until(lambda: channel.cancelled)
        channel.serve = Legacy().serve
        assert (await client.call_tool("tool")).text == "done"
    assert channel.cancelled == [channel.requests("tools/call")[0]["id"]]


@on_both
async def test_calls_that_end_early_are_cancelled_on_the_server() -> None:
    """By the limit of rounds, by a timeout, or by cancelling the task that waits."""

    async def never(form: Form) -> Any:
        await anyio.sleep_forever()

    channel = Legacy(asks_on)
    async with channel.client(elicit=answer, rounds=2) as client:
        with pytest.raises(RoundsError):
            await client.call_tool("tool")
        await until(lambda: len(channel.cancelled) == 1)
    async with channel.client(elicit=never, timeout=0.01) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("tool")
        await until(lambda: len(channel.cancelled) == 2)
    scope = anyio.CancelScope()

    def give_up(pending: Pending) -> None:
        scope.cancel()

    async with channel.client(elicit=never, on_round=give_up) as client:
        with scope:
            await client.call_tool("tool")
        await until(lambda: len(channel.cancelled) == 3)

    async def silent(asking: Asking) -> Any:
        await anyio.sleep_forever()

    channel.serve = silent
    async with channel.client(round_timeout=0.01) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("tool")
        await until(lambda: len(channel.cancelled) == 4)


@on_both
async def test_closing_in_the_middle_ends_the_call() -> None:
    errors: list[Exception] = []
    channel = Legacy(asks_once)
    other = Legacy()
    is_asked = anyio.Event()

    async def silent(asking: Asking) -> Any:
        is_asked.set()
        await anyio.sleep_forever()

    other.serve = silent
    async with channel.client(elicit=answer) as client:
        assert isinstance(
            await client.start("tools/call", {"name": "a"}).round(), Pending
        )
    assert len(channel.cancelled) == 1

    async with anyio.create_task_group() as group:

        async def call() -> None:
            try:
                await client.call_tool("tool")
            except ChannelError as exc:
                errors.append(exc)

        async with other.client() as client:
            group.start_soon(call)
            await is_asked.wait()
    assert [str(one) for one in errors] == ["the client was closed"]
    assert len(other.cancelled) == 1


@pytest.mark.parametrize("method", ["tasks/get", "roots/list", 5, None, ["x"]])
async def test_a_question_that_clients_cannot_answer(method: Any) -> None:
    async def serve(asking: Asking) -> Any:
        await asking.ask(method)

    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        with pytest.raises(ReplyError, match="which this client did not say"):
            await client.call_tool("tool")
        await until(lambda: channel.cancelled)


@pytest.mark.parametrize("id_", [None, [], [1], {"a": 1}, True, 1.5, "", "x" * 9_999])
async def test_the_id_of_a_question_is_returned_unchanged(id_: Any) -> None:
    async def serve(asking: Asking) -> Any:
        for _ in range(2):
            await asking.ask(id=id_)
        return DONE

    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        assert (await client.call_tool("tool")).rounds == 3
    assert [one["id"] for one in channel.replies] == [id_, id_]


async def test_ids_that_look_alike_are_two_questions() -> None:
    async def serve(asking: Asking) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: asking.ask(id=1))
            group.start_soon(lambda: asking.ask(id="1"))
        return DONE

    async with Legacy(serve).client(elicit=answer) as client:
        assert (await client.call_tool("tool")).rounds == 2


async def test_the_same_question_twice_at_once() -> None:
    async def serve(asking: Asking) -> Any:
        for _ in range(2):
            question = {"id": 1, "method": "elicitation/create", "params": FORM}
            await asking.say({"jsonrpc": "2.0", **question})
        await until(lambda: len(channel.replies) == 2)
        return DONE

    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        assert (await client.call_tool("tool")).rounds == 2


async def test_an_id_that_json_cannot_carry() -> None:
    class Encoding(Legacy):
        async def tell(self, message: Any, headers: Any) -> None:
            repr(message).encode() and str(message.get("id")).encode()
            await super().tell(message, headers)

    async def serve(asking: Asking) -> Any:
        await asking.ask(id="\ud800")

    async with Encoding(serve).client(elicit=answer) as client:
        with pytest.raises(ChannelError, match="JSON cannot carry the id"):
            await client.call_tool("tool")


async def test_questions_without_an_end() -> None:
    """Questions are rounds, and the number of rounds of a call is limited."""

    async def serve(asking: Asking) -> Any:
        for n in range(1_000_000):
            question = {"id": n, "method": "elicitation/create", "params": FORM}
            await asking.say({"jsonrpc": "2.0", **question})
            await anyio.sleep(0.01)

    async with Legacy(serve).client(elicit=answer, rounds=2) as client:
        with pytest.raises(RoundsError):
            await client.call_tool("tool")


@pytest.mark.parametrize("n", [999, 2_001])
async def test_questions_that_come_at_once_are_limited(n: int) -> None:
    """All questions of a round are answered concurrently, and each is kept."""

    async def serve(asking: Asking) -> Any:
        for number in range(n):
            question = {"id": number, "method": "elicitation/create", "params": FORM}
            await asking.say({"jsonrpc": "2.0", **question})
        await anyio.sleep(1)
        return DONE

    async with Legacy(serve).client(elicit=answer) as client:
        if n < 1_000:
            assert (await client.call_tool("tool")).text == "done"
        else:
            with pytest.raises(ReplyError, match="asks"):
                await client.call_tool("tool")


@given(json_values, json_values)
def test_any_question_is_answered_or_ends_the_call(method: Any, params: Any) -> None:
    async def serve(asking: Asking) -> Any:
        await asking.ask(method, params)
        return DONE

    async def main() -> None:
        channel = Legacy(serve)
        async with channel.client(elicit=answer, sample=lambda s: "x") as client:
            try:
                assert (await client.call_tool("tool")).text == "done"
            except EffectMCPError:
                await until(lambda: channel.cancelled)

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        (fails(-32603), ProtocolError, "no"),
        ({"error": {"code": -32600, "message": "no"}, "id": None}, ProtocolError, "no"),
        ({"error": None}, ReplyError, "neither"),
        ({"result": DONE, "id": 99}, ReplyError, "another request"),
        ({"result": DONE, "id": None}, ReplyError, "another request"),
        ({"result": DONE, "id": [1]}, ReplyError, "another request"),
        ([], ReplyError, "a result is an object"),
        (ChannelError("it is gone"), ChannelError, "it is gone"),
    ],
)
async def test_invalid_responses(
    found: Any, error: type[Exception], words: str
) -> None:
    async def serve(asking: Asking) -> Any:
        return found

    async with Legacy(serve).client() as client:
        with pytest.raises(error, match=words):
            await client.call_tool("tool")


# ---- what belongs to no call --------------------------------------------------------


@on_both
async def test_questions_outside_of_any_call() -> None:
    channel = Legacy()
    async with channel.client(roots=[Root("file:///a")], elicit=answer):
        ask = channel.ask
        assert await ask(channel.stream, "ping", None) == {}
        roots = {"roots": [{"uri": "file:///a"}]}
        assert await ask(channel.stream, "roots/list", None) == roots
        assert (await ask(channel.stream, "sampling/createMessage", {}))[
            "code"
        ] == -32601
        assert (await ask(channel.stream, "no/such", [1]))["code"] == -32603


@on_both
async def test_a_handler_that_fails_outside_of_any_call() -> None:
    """The failure ends no call; the server receives an error."""

    def elicit(form: Form) -> dict[str, Any]:
        raise LookupError("nobody is there")

    channel = Legacy()
    async with channel.client(elicit=elicit) as client:
        found = await channel.ask(channel.stream, "elicitation/create", FORM)
        assert found["code"] == -32603
        assert (await client.call_tool("tool")).text == "done"


async def test_an_answer_that_json_cannot_carry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "effectmcp.client")
    channel = Legacy()
    async with channel.client(elicit=lambda form: {"a": float("nan")}) as client:
        question = {"id": 1, "method": "elicitation/create", "params": FORM}
        await channel.stream({"jsonrpc": "2.0", **question})
        await until(lambda: "was not sent" in caplog.text)
        assert (await client.call_tool("tool")).text == "done"


@on_both
async def test_a_question_on_no_calls_stream_is_the_calls() -> None:
    async def serve(asking: Asking) -> Any:
        found = await channel.ask(channel.stream, "elicitation/create", FORM)
        return said(found["action"])

    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        result = await client.call_tool("tool")
    assert (result.text, result.rounds) == ("accept", 2)


@on_both
async def test_a_question_is_not_one_of_who_may_not_be_asked() -> None:
    """A list that is fetched beside a call that asks."""
    is_listing = anyio.Event()

    async def serve(asking: Asking) -> Any:
        if asking.message["method"] == "tools/list":
            is_listing.set()
            await until(lambda: channel.replies)
            return {"tools": []}
        await is_listing.wait()
        await channel.ask(channel.stream, "elicitation/create", FORM)
        return DONE

    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "tool")
            await until(lambda: channel.requests("tools/call"))
            assert await client.list_tools() == []


@pytest.mark.parametrize("is_failing", [False, True])
async def test_a_question_outlives_the_call_that_it_was_not_of(
    is_failing: bool,
) -> None:
    """The question names no call: the end of another call does not cancel it."""
    is_begun = anyio.Event()

    async def serve(asking: Asking) -> Any:
        if asking.message["params"]["name"] == "other":
            is_begun.set()
            await until(lambda: is_asked)
            return ChannelError("gone") if is_failing else DONE
        await is_begun.wait()
        is_asked.append(True)
        await channel.ask(channel.stream, "elicitation/create", FORM)
        return DONE

    is_asked: list[bool] = []
    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "tool")
            await until(lambda: channel.requests("tools/call"))
            try:
                await client.call_tool("other")
            except ChannelError:
                assert is_failing
    assert len(channel.replies) == 1


async def test_a_question_outlives_the_last_call() -> None:
    async def serve(asking: Asking) -> Any:
        question = {"id": 1, "method": "roots/list"}
        await channel.stream({"jsonrpc": "2.0", **question})
        return DONE

    channel = Legacy(serve)
    async with channel.client(roots=[]) as client:
        assert (await client.call_tool("tool")).rounds == 1
        await until(lambda: channel.replies)


async def test_questions_of_a_cancelled_call_are_not_asked() -> None:
    forms: list[Form] = []

    async def serve(asking: Asking) -> Any:
        await channel.ask(channel.stream, "elicitation/create", FORM)

    channel = Legacy(serve)
    options: dict[str, Any] = {"elicit": forms.append, "on_round": give_up}
    async with channel.client(**options) as client:
        with pytest.raises(LookupError):
            await client.call_tool("tool")
        await until(lambda: channel.cancelled)
    assert not forms


def give_up(pending: Pending) -> None:
    raise LookupError("enough")


@on_both
async def test_progress_and_logs_are_received_once() -> None:
    async def serve(asking: Asking) -> Any:
        token = asking.message["params"]["_meta"]["progressToken"]
        for say in (asking.say, asking.channel.stream):
            for method, params in (
                ("progress", {"progressToken": token, "progress": 1}),
                ("message", {"level": "info", "data": "hello"}),
            ):
                told = {"method": f"notifications/{method}", "params": params}
                await say({"jsonrpc": "2.0", **told})
            if say == asking.say:
                await asking.ask("ping", None)
                await asking.ask()
        await asking.channel.stream({"method": "notifications/unknown"})
        return DONE

    progress: list[Any] = []
    logs: list[Any] = []
    channel = Legacy(serve)
    options: dict[str, Any] = {"on_log": logs.append, "elicit": answer}
    async with channel.client(**options) as client:
        await client.call_tool("tool", on_progress=progress.append)
        # Outside of any call no callback receives it.
        told = {"method": "notifications/message", "params": {"data": 1}}
        await channel.stream({"jsonrpc": "2.0", **told})
    assert [len(progress), len(logs)] == [2, 2]


@on_both
async def test_progress_reaches_only_its_own_call() -> None:
    """Progress is sent here on the server's own stream."""
    is_begun = anyio.Event()
    heard: dict[str, list[Any]] = {"one": [], "two": []}

    async def serve(asking: Asking) -> Any:
        if asking.message["params"]["name"] == "two":
            is_begun.set()
            await until(lambda: heard["one"])
            return DONE
        await is_begun.wait()
        token = asking.message["params"]["_meta"]["progressToken"]
        told = {"method": "notifications/progress", "params": {"progressToken": token}}
        await channel.stream({"jsonrpc": "2.0", **told})
        await until(lambda: heard["one"])
        return DONE

    channel = Legacy(serve)
    async with channel.client() as client:
        async with anyio.create_task_group() as group:
            for name in heard:

                async def call(name: str = name) -> None:
                    await client.call_tool(name, on_progress=heard[name].append)

                group.start_soon(call)
                await until(lambda: len(channel.requests("tools/call")) > 0)
    assert [len(one) for one in heard.values()] == [1, 0]


@on_both
async def test_an_error_of_a_callback_ends_its_call_only() -> None:
    async def serve(asking: Asking) -> Any:
        told = {"method": "notifications/message", "params": {}}
        await channel.stream({"jsonrpc": "2.0", **told})
        await anyio.sleep_forever()

    def on_log(params: Mapping[str, Any]) -> None:
        raise LookupError("not that")

    channel = Legacy(serve)
    async with channel.client(on_log=on_log) as client:
        with pytest.raises(LookupError, match="not that"):
            await client.call_tool("tool")
        channel.serve = Legacy().serve
        assert (await client.call_tool("tool")).text == "done"


# ---- a round at a time --------------------------------------------------------------


async def asks_two(asking: Asking) -> Any:
    found: dict[str, Any] = {}

    async def ask(name: str) -> None:
        params = {**FORM, "message": name}
        found[name] = (await asking.ask(params=params))["content"]

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "a")
        group.start_soon(ask, "b")
    return said(found == {"a": {"n": "a"}, "b": {"n": "b"}})


@on_both
async def test_a_call_a_round_at_a_time() -> None:
    """An unanswered question stays asked."""
    async with Legacy(asks_two).client(elicit=answer) as client:
        steps = client.start("tools/call", {"name": "tool"})
        pending = await steps.round()
        left: list[int] = []
        while isinstance(pending, Pending):
            left.append(len(pending.questions))
            key, question = next(iter(pending.questions.items()))
            content = {"n": question["params"]["message"]}
            pending = await steps.round(
                {key: {"action": "accept", "content": content}, "no such": {}}
            )
        assert isinstance(pending, Result)
        assert (pending.text, left) == ("True", [2, 1])
        with pytest.raises(StateRejected):
            await client.resume(Pending.from_json(STORED)).round()


#: From a call that is over, or from another client.
STORED = {
    "method": "tools/call",
    "params": {"name": "tool"},
    "state": "live-1",
    "rounds": 1,
    "questions": {},
}


@on_both
async def test_a_stored_call_cannot_be_resumed_by_another_client() -> None:
    one, other = Legacy(asks_once), Legacy(asks_once)
    async with one.client(elicit=answer) as mine, other.client(elicit=answer) as yours:
        steps = mine.start("tools/call", {"name": "tool"})
        await steps.round()
        theirs = yours.start("tools/call", {"name": "tool"})
        await theirs.round()
        assert steps.pending is not None
        with pytest.raises(StateRejected):
            await yours.resume(steps.pending).round()
        assert not other.replies
        assert isinstance(await steps.round(), Result)
        assert isinstance(await theirs.round(), Result)


async def test_a_call_that_starts_again() -> None:
    """The state is gone with the session; `restart=` allows another start."""
    async with Legacy().client() as client:
        pending = Pending.from_json(STORED)
        with pytest.raises(StateRejected):
            await client.resume(pending).round()


# ---- pages first --------------------------------------------------------------------


PAGE = {
    "mode": "url",
    "elicitationId": "p",
    "url": "https://a.example",
    "message": "Go",
}


def pages_first(*pages: Any) -> dict[str, Any]:
    return fails(-32042, data={"elicitations": list(pages)})


@on_both
async def test_pages_are_opened_and_the_call_is_repeated() -> None:
    links: list[Link] = []

    async def serve(asking: Asking) -> Any:
        return DONE if links else pages_first(PAGE, {"url": ""}, 5, PAGE)

    def open_url(link: Link) -> bool:
        links.append(link)
        return True

    channel = Legacy(serve)
    async with channel.client(open_url=open_url) as client:
        assert (await client.call_tool("tool")).text == "done"
    assert [(one.url, one.key) for one in links] == [("https://a.example", "p")] * 2
    first, second = channel.requests("tools/call")
    assert first["id"] != second["id"]
    assert first["params"] == second["params"]


@pytest.mark.parametrize("how", [False, Declined(), Dismissed()])
async def test_pages_that_are_not_opened(how: Any) -> None:
    async def serve(asking: Asking) -> Any:
        return pages_first(PAGE)

    channel = Legacy(serve)
    async with channel.client(open_url=lambda link: how) as client:
        with pytest.raises(ProtocolError) as raised:
            await client.call_tool("tool")
    assert raised.value.code == -32042
    assert len(channel.requests("tools/call")) == 1


async def test_pages_without_an_end() -> None:
    links: list[Link] = []

    async def serve(asking: Asking) -> Any:
        return pages_first(PAGE)

    def open_url(link: Link) -> bool:
        links.append(link)
        return True

    async with Legacy(serve).client(open_url=open_url) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("tool")
    assert len(links) == handshakes._MOST_PAGES


@given(json_values)
def test_any_pages_are_opened_or_are_an_error(data: Any) -> None:
    async def main() -> None:
        for found in (data, {"elicitations": data}):
            channel = Legacy(lambda asking, found=found: refuse(found))  # type: ignore[misc]
            async with channel.client(open_url=lambda link: False) as client:
                with pytest.raises(EffectMCPError):
                    await client.call_tool("tool")

    async def refuse(found: Any) -> Any:
        return fails(-32042, data=found)

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_pages_are_questions_of_the_call() -> None:
    """The time of the user is not the server's, so it does not count in its deadline."""
    opened: list[Link] = []

    async def serve(asking: Asking) -> Any:
        return DONE if opened else pages_first(PAGE)

    async def open_url(link: Link) -> bool:
        await anyio.sleep(0.3)
        opened.append(link)
        return True

    channel = Legacy(serve)
    async with channel.client(open_url=open_url, round_timeout=0.2) as client:
        result = await client.call_tool("tool")
        assert (result.text, result.rounds) == ("done", 2)
        opened.clear()
        call = client.start("tools/call", {"name": "tool", "arguments": {}})
        pending = await call.round()
        assert isinstance(pending, Pending)
        assert list(pending.questions) == ["p"]
        with pytest.raises(ProtocolError):
            await call.round({"p": "not a response"})


async def test_pages_of_other_requests_are_an_error() -> None:
    async def serve(asking: Asking) -> Any:
        return pages_first(PAGE)

    async with Legacy(serve).client(open_url=lambda link: True) as client:
        with pytest.raises(ProtocolError):
            await client.list_tools()


# ---- servers that send too much -----------------------------------------------------


@pytest.fixture
def call() -> Iterator[RunningCall]:
    send, came = anyio.create_memory_object_stream[Any](math.inf)
    scope: Any = None  # nothing is cancelled
    yield RunningCall(True, None, scope, send, came)
    send.close()
    came.close()


TOLD = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
QUESTION = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}}


def test_notifications_that_nothing_reads_are_dropped(call: RunningCall) -> None:
    for _ in range(2_000):
        call.put(TOLD)
    assert call.problem is None
    read = [call.came.receive_nowait() for _ in range(1_000)]
    for one in read:
        call.took(one)
    assert call.size == 0
    with pytest.raises(anyio.WouldBlock):
        call.came.receive_nowait()
    call.came.close()
    call.put(TOLD)  # the call has ended


def test_questions_that_nothing_reads_end_the_call(call: RunningCall) -> None:
    for _ in range(1_002):
        call.put(QUESTION)
    with pytest.raises(ReplyError, match="asks too much"):
        call.took(call.came.receive_nowait())


def test_questions_that_are_outstanding_are_limited(call: RunningCall) -> None:
    call.asked = dict.fromkeys(map(str, range(1_000)), _HeldQuestion(1, {}))
    with pytest.raises(ReplyError, match="1,000 questions at once"):
        call.took(QUESTION)


def test_size_of_messages_that_wait_is_limited(
    call: RunningCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "LARGEST", 10_000)
    call.put({**TOLD, "params": {"data": "x" * 20_000}})
    assert call.size == 0
    call.put({**QUESTION, "params": {"message": "x" * 20_000}})
    assert call.problem is not None


async def test_pings_that_are_not_read_are_limited() -> None:
    """Each is a task that waits until the response is written."""
    written: list[Any] = []

    class Deaf(Legacy):
        async def tell(self, message: Any, headers: Any) -> None:
            if "method" not in message:
                written.append(message)
                await anyio.sleep_forever()

    channel = Deaf()
    async with channel.client():
        for number in range(1_000):
            await channel.stream({"jsonrpc": "2.0", "id": number, "method": "ping"})
            await anyio.lowlevel.checkpoint()
    assert len(written) == 100


@pytest.mark.parametrize(
    "options", [{"connect_timeout": 0.05}, {"round_timeout": 0.05}]
)
async def test_handshake_has_a_deadline(options: dict[str, float]) -> None:
    class Silent(Legacy):
        async def exchange(self, message: Any, headers: Any, hear: Any) -> Any:
            await anyio.sleep_forever()

    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        async with Silent().client(**options):
            raise AssertionError("not reached")


# ---- sessions that end --------------------------------------------------------------


@on_both
async def test_calls_whose_session_ends_share_one_handshake() -> None:
    streams: list[Any] = []

    async def serve(asking: Asking) -> Any:
        await until(lambda: len(channel.requests("tools/call")) >= 5)
        is_first = asking.message in channel.requests("tools/call")[:5]
        if asking.message == channel.requests("tools/call")[4]:
            # It gets its response last, when the new session already works.
            await until(lambda: len(channel.methods) >= 4 + 5 + 4)
        return SessionEnded("who?") if is_first else DONE

    class Attended(Legacy):
        async def attend(self, hear: Any, headers: Any, ready: Any) -> None:
            streams.append(hear)
            try:
                await super().attend(hear, headers, ready)
            finally:
                streams.remove(hear)

    channel = Attended(serve)
    async with channel.client() as client:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(client.call_tool, "tool")
        assert len(channel.requests("initialize")) == 2
        assert len(channel.requests("tools/call")) == 10
        assert len(streams) == 1
    ids = [one["id"] for one, _ in channel.sent if "id" in one]
    assert len({*ids}) == len(ids)


async def test_a_session_that_ends_at_once_ends_the_call() -> None:
    async def serve(asking: Asking) -> Any:
        return SessionEnded("who?")

    channel = Legacy(serve)
    async with channel.client() as client:
        with pytest.raises(SessionEnded):
            await client.call_tool("tool")
    assert len(channel.requests("initialize")) == 2


async def test_a_handshake_that_fails_later_is_tried_again() -> None:
    async def serve(asking: Asking) -> Any:
        if len(channel.requests("initialize")) < 3:
            return SessionEnded("who?")
        return DONE

    channel = Legacy(serve)
    async with channel.client() as client:
        welcome, channel.welcome = channel.welcome, fails(-32603)
        with pytest.raises(ProtocolError):
            await client.call_tool("tool")
        channel.welcome = welcome
        assert (await client.call_tool("tool")).text == "done"


# ---- changes ------------------------------------------------------------------------


def changed(what: str, **params: Any) -> dict[str, Any]:
    method = f"notifications/{what}"
    return {"jsonrpc": "2.0", "method": method, "params": params}


@on_both
async def test_changes_are_received() -> None:
    async def serve(asking: Asking) -> Any:
        await asking.say(changed("tools/list_changed"))
        return DONE

    channel = Legacy(serve)
    async with channel.client() as client:
        async with client.listen(tools=True, uris=["a:b", "a:c"]) as changes:
            assert "acknowledged" in (await anext(changes))["method"]
            assert [
                one["params"] for one in channel.requests("resources/subscribe")
            ] == [
                {"uri": "a:b"},
                {"uri": "a:c"},
            ]
            await channel.stream(changed("prompts/list_changed"))
            await channel.stream(changed("resources/updated", uri="a:b/part"))
            await channel.stream({"method": "notifications/tools/list_changed"})
            # Also beside a call.
            await client.call_tool("tool")
            heard = [await anext(changes) for _ in range(3)]
        assert [one["method"].removeprefix("notifications/") for one in heard] == [
            "resources/updated",
            "tools/list_changed",
            "tools/list_changed",
        ]
        gone = [one["params"] for one in channel.requests("resources/unsubscribe")]
        assert sorted(one["uri"] for one in gone) == ["a:b", "a:c"]
        await channel.stream(changed("tools/list_changed"))


@on_both
async def test_an_ended_subscription_does_not_affect_others() -> None:
    channel = Legacy()
    async with channel.client() as client:
        async with client.listen(uris=["a:b"]) as changes:
            await anext(changes)
            async with client.listen(uris=["a:b", "a:c"]) as other:
                await anext(other)
            (gone,) = channel.requests("resources/unsubscribe")
            assert gone["params"] == {"uri": "a:c"}


@on_both
async def test_a_new_session_gets_the_log_level_and_subscriptions_of_the_old_one() -> (
    None
):
    async def serve(asking: Asking) -> Any:
        if len(channel.requests("initialize")) == 1:
            return SessionEnded("who?")
        return DONE

    channel = Legacy(serve)
    async with channel.client(log_level="error") as client:
        async with client.listen(uris=["a:b"]) as changes:
            await anext(changes)
            await client.call_tool("tool")
            assert len(channel.requests("resources/subscribe")) == 2
            assert len(channel.requests("logging/setLevel")) == 2
            await channel.stream(changed("resources/updated", uri="a:b"))
            assert "updated" in (await anext(changes))["method"]


async def test_a_subscription_that_is_refused() -> None:
    class Strict(Legacy):
        async def exchange(self, message: Any, headers: Any, hear: Any) -> Any:
            found: Any = await super().exchange(message, headers, hear)
            if "subscribe" not in message["method"]:
                return found
            return {"jsonrpc": "2.0", "id": message["id"], **fails(-32601)}

    async def listen() -> None:
        async with client.listen(uris=["a:b"]) as changes:
            async for _ in changes:
                raise AssertionError("not reached")

    async with Strict().client() as client:
        with pytest.raises(ProtocolError):
            await listen()


# ---- drafts -------------------------------------------------------------------------


DRAFTY = {"protocolVersion": DRAFT.version, "capabilities": {}}
QUESTIONS = {"a": {"method": "elicitation/create", "params": FORM}}


@pytest.mark.parametrize(
    "interim",
    [
        {"result_type": "incomplete", "inputRequests": QUESTIONS, "requestState": "s"},
        {"result_type": "incomplete", "requestState": "s"},
        {"inputRequests": QUESTIONS, "requestState": "s"},
        {"inputRequests": QUESTIONS},
        {"requestState": "s"},
    ],
)
async def test_interim_results_of_drafts(interim: dict[str, Any]) -> None:
    async def serve(asking: Asking) -> Any:
        params = asking.message["params"]
        if len(channel.requests("tools/call")) == 1:
            return interim
        assert params.get("requestState") == interim.get("requestState")
        assert ("inputResponses" in params) == ("inputRequests" in interim)
        return {**DONE, "result_type": "complete", "requestState": "ignored"}

    channel = Legacy(serve, welcome=DRAFTY)
    async with Client(channel, drafts=True, elicit=answer) as client:
        result = await client.call_tool("tool")
        assert (result.text, result.rounds) == ("done", 2)
        assert (await client.discover())["supportedVersions"] == [DRAFT.version]
    assert channel.requests("initialize")[0]["params"]["protocolVersion"] == (
        DRAFT.version
    )
    first, second = channel.requests("tools/call")
    assert first["id"] != second["id"]


async def test_a_released_answer_to_a_draft() -> None:
    """Then questions are live, and fields mean nothing."""

    async def serve(asking: Asking) -> Any:
        await asking.ask()
        return {**DONE, "requestState": "s"}

    async with Client(Legacy(serve), drafts=True, elicit=answer) as client:
        assert (await client.call_tool("tool")).rounds == 2


@given(json_values)
def test_any_draft_result_is_one_or_is_refused(result: Any) -> None:
    async def serve(asking: Asking) -> Any:
        return {"result": result}

    async def main() -> None:
        channel = Legacy(serve, welcome=DRAFTY)
        async with Client(channel, drafts=True) as client:
            try:
                came = await client.start("tools/call", {"name": "tool"}).round()
            except EffectMCPError:
                return
            assert isinstance(came, Pending | Result)

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_an_error_of_a_draft_is_one() -> None:
    async def serve(asking: Asking) -> Any:
        return fails(-32603)

    async with Client(Legacy(serve, welcome=DRAFTY), drafts=True) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("tool")
