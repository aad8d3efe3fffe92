"""A client with all kinds of responses of its channel, timed by a virtual clock."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from hypothesis import given
from trio.testing import MockClock

from effectmcp import EffectMCPError, ProtocolError, UsageError
from effectmcp.client import (
    Client,
    Form,
    Pending,
    ReplyError,
    Result,
    RoundsError,
    StateRejected,
)
from effectmcp.client import client as client_module
from effectmcp.client import rounds as rounds_module
from effectmcp.client import steps as steps_module
from effectmcp.protocol.methods import METHODS

from .strategies import anything, json_values
from .ways import Scripted, asking, form

HERE: Final = Path(__file__).parent
DONE = {"resultType": "complete", "content": []}
#: Methods that no method of `Client` or `Steps` calls, and the reason.
NOT_CALLED: Final = {
    "initialize": "the handshake, in handshakes.py",
    "ping": "a server tells by the other requests that the client is there",
    "logging/setLevel": "part of the handshake, if there is an on_log=",
    "resources/subscribe": "listen() in sessions, in handshakes.py",
    "resources/unsubscribe": "the end of it",
    "tasks/result": "what tasks/get is in sessions, in session_tasks.py",
    "tasks/input_response": "what tasks/update is in the drafts, in session_tasks.py",
    "tasks/list": "2025-11-25 only: a client knows its own tasks",
}


def answer_yes(form: Form) -> dict[str, Any]:
    return {"value": "yes"}


def scripted(*answers: Any, **options: Any) -> tuple[Client, Scripted]:
    """Create a client of a server that returns these results to any requests."""
    channel = Scripted(list(answers), has_headers=options.pop("has_headers", False))
    return Client(channel, **{"elicit": answer_yes, **options}), channel


def failure(code: int, text: str, data: Any = None) -> Callable[[Any], dict[str, Any]]:
    """Answers with an error."""

    def answer(message: Mapping[str, Any]) -> dict[str, Any]:
        error = {"code": code, "message": text, "data": data}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}

    return answer


def tool(name: str = "tool", **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def listing(*tools: Any, **more: Any) -> dict[str, Any]:
    return {"resultType": "complete", "tools": list(tools), **more}


REGION = {"type": "string", "x-mcp-header": "Region"}


def test_rounds_are_at_least_one() -> None:
    with pytest.raises(UsageError, match="give 1 or more"):
        Client(Scripted([]), rounds=0)


# ---- rounds -------------------------------------------------------------------------


async def test_no_state_is_sent_where_none_was_received() -> None:
    client, channel = scripted(
        asking({"a": form()}, requestState="s"), asking({"b": form()}), DONE
    )
    await client.call_tool("tool")
    first, second, third = (one.params for one in channel.sent)
    assert not {"requestState", "inputResponses"} & {*first}
    assert second["requestState"] == "s"
    assert list(second["inputResponses"]) == ["a"]
    assert "requestState" not in third
    assert list(third["inputResponses"]) == ["b"]
    assert len({one.message["id"] for one in channel.sent}) == 3


async def test_a_result_without_a_type_is_complete() -> None:
    client, _ = scripted({"content": [{"type": "text", "text": "old"}]})
    assert (await client.call_tool("tool")).text == "old"


async def test_a_call_may_ask_up_to_the_limit_of_rounds() -> None:
    again = asking({"a": form()})
    client, channel = scripted(again, again, DONE, rounds=2)
    assert (await client.call_tool("tool")).rounds == 3
    client, channel = scripted(again, again, again, rounds=2)
    with pytest.raises(RoundsError):
        await client.call_tool("tool")
    assert len(channel.sent) == 3


@pytest.mark.parametrize(
    "result",
    [None, [], "done", 1, {"resultType": "task"}, asking(None), asking([1])],  # type: ignore[arg-type]
)
async def test_a_result_of_unknown_type(result: Any) -> None:
    asks: list[Callable[[Client], Coroutine[Any, Any, Any]]] = [
        lambda client: client.call_tool("tool"),
        lambda client: client.get_prompt("prompt"),
        lambda client: client.read_resource("a:b"),
        lambda client: client.start("tools/call", {"name": "tool"}).round(),
        lambda client: client.discover(),
        lambda client: client.list_prompts(),
        lambda client: client.complete({}, "a", ""),
    ]
    for ask in asks:
        client, channel = scripted(result)
        with pytest.raises(ReplyError):
            await ask(client)
        assert len(channel.sent) == 1


async def test_answers_of_a_round_without_sending_them() -> None:
    client, channel = scripted(asking({"a": form(value={"type": "string"})}))
    pending = await client.start("tools/call", {"name": "tool"}).round()
    assert isinstance(pending, Pending)
    answered = {"a": {"action": "accept", "content": {"value": "yes"}}}
    assert await client.answers(pending) == answered
    assert len(channel.sent) == 1


async def test_a_question_where_none_may_be_asked() -> None:
    client, channel = scripted(asking({"a": form()}, requestState="s"))
    with pytest.raises(ReplyError, match="is not a method that allows questions"):
        await client.list_tools()


async def test_a_question_that_was_not_declared() -> None:
    """Neither this question is answered then, nor the question beside it."""
    roots = {"method": "roots/list"}
    client, channel = scripted(asking({"a": form(), "b": roots}, requestState="s"))
    with pytest.raises(ReplyError, match="roots/list was asked"):
        await client.call_tool("tool")
    assert len(channel.sent) == 1


@given(anything)
def test_any_result_ends_a_call_or_is_refused(result: Any) -> None:
    async def main() -> None:
        client, _ = scripted(result, rounds=1, sample=lambda sampling: "")
        try:
            came = await client.start("tools/call", {"name": "tool"}).round()
        except EffectMCPError:
            return
        assert isinstance(came, Pending | Result)

    trio.run(main)


@pytest.mark.parametrize("id_", [0, 99, "1", None, True, 1.0, [], {}])
async def test_a_response_to_something_else(id_: Any) -> None:
    client, _ = scripted({"jsonrpc": "2.0", "id": id_, "result": DONE})
    with pytest.raises(ReplyError, match="belongs to another request"):
        await client.call_tool("tool")


async def test_an_error_without_an_id() -> None:
    """A server responds like this to a message that it could not read."""
    client, _ = scripted(
        {"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}}
    )
    with pytest.raises(ProtocolError, match="Parse error"):
        await client.call_tool("tool")


@pytest.mark.parametrize("error", [None, [], {}, {"code": "1", "message": "m"}])
async def test_an_invalid_response(error: Any) -> None:
    client, _ = scripted({"jsonrpc": "2.0", "id": 1, "error": error})
    with pytest.raises(ReplyError):
        await client.call_tool("tool")


# ---- trying again -------------------------------------------------------------------

REJECTED = failure(-32602, "Invalid params: requestState has expired")


async def test_restart_starts_again_once() -> None:
    ask = asking({"a": form()}, requestState="s")
    client, channel = scripted(ask, REJECTED, ask, DONE)
    assert (await client.call_tool("tool", restart=True)).rounds == 2
    assert "requestState" not in channel.sent[2].params
    client, channel = scripted(ask, REJECTED, ask, REJECTED)
    with pytest.raises(StateRejected):
        await client.call_tool("tool", restart=True)
    client, channel = scripted(ask, REJECTED)
    with pytest.raises(StateRejected):
        await client.call_tool("tool")


async def test_an_error_about_a_state_that_was_not_sent() -> None:
    client, channel = scripted(REJECTED)
    with pytest.raises(ProtocolError) as raised:
        await client.call_tool("tool", restart=True)
    assert not isinstance(raised.value, StateRejected)
    assert len(channel.sent) == 1


async def test_a_version_that_both_speak_is_tried_again_once() -> None:
    refused = failure(-32022, "version", {"supported": ["2026-07-28"], "requested": ""})
    client, channel = scripted(refused, DONE)
    await client.call_tool("tool")
    assert len({one.message["id"] for one in channel.sent}) == 2
    client, channel = scripted(refused, refused)
    with pytest.raises(ProtocolError, match="version"):
        await client.call_tool("tool")
    other = failure(-32022, "version", {"supported": ["2030-01-01"]})
    client, channel = scripted(other)
    with pytest.raises(ProtocolError, match="version"):
        await client.call_tool("tool")


async def test_headers_that_have_changed_are_looked_up_again_once() -> None:
    mismatch = failure(-32020, "Header mismatch")
    old, new = (listing(tool(where=one), ttlMs=60_000) for one in ({}, REGION))
    client, channel = scripted(old, mismatch, new, DONE, has_headers=True)
    await client.call_tool("tool", {"where": "eu"})
    assert channel.sent[3].headers["Mcp-Param-Region"] == "eu"
    assert "Mcp-Param-Region" not in channel.sent[1].headers
    client, channel = scripted(old, mismatch, new, mismatch, has_headers=True)
    with pytest.raises(ProtocolError, match="mismatch"):
        await client.call_tool("tool", {"where": "eu"})
    # Headers are looked up for tools only.
    client, channel = scripted(mismatch, has_headers=True)
    with pytest.raises(ProtocolError, match="mismatch"):
        await client.get_prompt("prompt")


# ---- tools and their headers --------------------------------------------------------


async def test_tools_with_illegal_headers_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "effectmcp.client")
    illegal = [
        tool("empty", a={"type": "string", "x-mcp-header": ""}),
        tool("number", a={"type": "number", "x-mcp-header": "A"}),
        tool("space", a={"type": "string", "x-mcp-header": "A B"}),
        tool("line", a={"type": "string", "x-mcp-header": "A\nB"}),
        tool("twice", a=REGION, b={**REGION, "x-mcp-header": "region"}),
        tool("items", a={"type": "array", "items": REGION}),
        {"inputSchema": {}},
        {"name": ["unhashable"], "inputSchema": {}},
    ]
    legal = [
        tool("legal", a=REGION),
        {"name": "bare"},
        {"name": "null", "inputSchema": None},
    ]
    client, _ = scripted(listing(*illegal, "no tool", None, *legal))
    assert await client.list_tools() == legal
    for name in ("empty", "number", "space", "line", "twice", "items"):
        assert f"the tool {name!r} is left out" in caplog.text


@pytest.mark.parametrize("name", [1, None, True, {}])
async def test_a_tool_whose_name_is_not_a_string_is_left_out(name: Any) -> None:
    client, _ = scripted(listing({"name": name, "inputSchema": {}}, tool("a")))
    assert await client.list_tools() == [tool("a")]


@pytest.mark.parametrize("schema", ["text", [], [REGION], 1, True])
async def test_a_tool_with_an_invalid_schema(schema: Any) -> None:
    """The server decides whether it can be called; listing it must not fail."""
    client, _ = scripted(listing({"name": "odd", "inputSchema": schema}, tool("a")))
    assert tool("a") in await client.list_tools()


async def test_a_deep_schema_is_read() -> None:
    schema: Any = REGION
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    client, _ = scripted(listing({"name": "deep", "inputSchema": schema}))
    (found,) = await client.list_tools()
    assert found["name"] == "deep"


async def test_a_tool_is_looked_up_before_it_is_called() -> None:
    """Once, and again only for a tool that was not there."""
    client, channel = scripted(
        listing(tool("a", where=REGION)), DONE, DONE, listing(), DONE, has_headers=True
    )
    await client.call_tool("a", {"where": " x"})
    await client.call_tool("a", {"where": None})
    await client.call_tool("b", {"where": "x"})
    assert [one.message["method"] for one in channel.sent] == [
        "tools/list",
        "tools/call",
        "tools/call",
        "tools/list",
        "tools/call",
    ]
    assert [one.headers.get("Mcp-Param-Region") for one in channel.sent] == [
        None,
        "=?base64?IHg=?=",
        None,
        None,
        None,
    ]
    assert [one.headers["Mcp-Method"] for one in channel.sent] == [
        one.message["method"] for one in channel.sent
    ]


async def test_an_argument_that_no_header_may_carry() -> None:
    client, channel = scripted(listing(tool("a", where=REGION)), has_headers=True)
    with pytest.raises(UsageError, match="tools/call: an argument is"):
        await client.call_tool("a", {"where": 2**53})
    assert len(channel.sent) == 1


# ---- lists --------------------------------------------------------------------------


def pages(name: str, *found: tuple[list[Any], Any], **more: Any) -> list[Any]:
    return [
        {"resultType": "complete", name: entries, "nextCursor": cursor, **more}
        for entries, cursor in found
    ]


PROMPTS = [{"name": f"{n}"} for n in range(3)]


async def test_pages_follow_one_another() -> None:
    client, channel = scripted(
        *pages("prompts", ([PROMPTS[0]], "x"), ([], "y"), (PROMPTS[1:], None))
    )
    assert await client.list_prompts() == PROMPTS
    cursors = [one.params.get("cursor") for one in channel.sent]
    assert cursors == [None, "x", "y"]


@pytest.mark.parametrize("ttl", [0, 60_000])
async def test_a_cursor_may_be_empty(ttl: int) -> None:
    """Pagination: "an empty string is a valid cursor"; and a page of its own."""
    client, channel = scripted(
        *pages("prompts", (PROMPTS[:2], ""), (PROMPTS[2:], None), ttlMs=ttl)
    )
    assert await client.list_prompts() == PROMPTS
    assert [one.params.get("cursor") for one in channel.sent] == [None, ""]


@pytest.mark.parametrize("cursors", [["x", "x"], ["x", "y", "x"]])
async def test_pages_that_lead_back(cursors: list[str]) -> None:
    client, channel = scripted(*pages("prompts", *(([], one) for one in cursors)))
    with pytest.raises(ReplyError, match="lead back"):
        await client.list_prompts()
    assert len(channel.sent) == len(cursors)


async def test_size_of_all_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LARGEST", 100_000)
    found = [([{"name": "x" * 30_000}], f"{number}") for number in range(9)]
    client, channel = scripted(*pages("prompts", *found))
    with pytest.raises(ReplyError, match="prompts/list takes more than 100,000 bytes"):
        await client.list_prompts()
    assert len(channel.sent) == 4


async def test_all_pages_have_one_deadline(autojump_clock: Any) -> None:
    class Slow(Scripted):
        async def exchange(self, message: Any, headers: Any, hear: Any) -> Any:
            await trio.sleep(0.4)
            return await super().exchange(message, headers, hear)

    channel = Slow(pages("prompts", *(([], f"{number}") for number in range(9))))
    client = Client(channel, round_timeout=1.0)
    with pytest.raises(TimeoutError, match="no last page of prompts/list within 1 s"):
        await client.list_prompts()
    assert len(channel.sent) == 2


async def test_pages_without_an_end() -> None:
    client, channel = scripted(*pages("prompts", *(([], f"{n}") for n in range(1_001))))
    with pytest.raises(ReplyError, match="more than 1,000 pages"):
        await client.list_prompts()
    assert len(channel.sent) == 1_000


@pytest.mark.parametrize("entries", [None, {}, "text", 1])
async def test_an_invalid_list(entries: Any) -> None:
    client, _ = scripted({"resultType": "complete", "prompts": entries})
    with pytest.raises(ReplyError, match="without a list of prompts"):
        await client.list_prompts()


async def test_invalid_entries_are_left_out() -> None:
    client, _ = scripted(*pages("resources", ([1, None, {"uri": "a:b"}, []], 5)))
    assert await client.list_resources() == [{"uri": "a:b"}]


@given(json_values, json_values)
def test_any_list_is_a_list_or_refused(entries: Any, cursor: Any) -> None:
    async def main() -> None:
        last: dict[str, Any] = {"tools": [], "prompts": []}
        client, _ = scripted({"tools": entries, "nextCursor": cursor}, last)
        try:
            found = await client.list_tools()
        except EffectMCPError:
            return
        assert all(isinstance(one, dict) for one in found)

    trio.run(main)


# ---- caching ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl", "is_kept"),
    [
        (60_000, True),
        (1e12, True),
        (10**400, True),
        (float("inf"), True),
        (0, False),
        (-1, False),
        (None, False),
        ("60000", False),
        ([], False),
        (float("nan"), False),
    ],
)
async def test_a_ttl_decides_how_long_a_result_is_kept(ttl: Any, is_kept: bool) -> None:
    found = {"resultType": "complete", "ttlMs": ttl, "contents": []}
    client, channel = scripted(found, found)
    await client.read_resource("a:b")
    await client.read_resource("a:b")
    assert len(channel.sent) == (1 if is_kept else 2)


async def test_results_are_kept_by_request() -> None:
    found = {"resultType": "complete", "ttlMs": 60_000, "contents": []}
    client, channel = scripted(*[{**found, "_meta": {"n": n}} for n in range(3)])
    results = [await client.read_resource(uri) for uri in ("a:b", "a:c", "a:b")]
    assert [one.fields["_meta"] for one in results] == [{"n": 0}, {"n": 1}, {"n": 0}]
    client.forget()
    assert (await client.read_resource("a:b")).fields["_meta"] == {"n": 2}


async def test_kept_results_expire() -> None:
    found = {"resultType": "complete", "ttlMs": 1, "contents": []}
    client, channel = scripted(*[found] * 100_000)
    with trio.fail_after(10):
        while len(channel.sent) < 3:
            await client.read_resource("a:b")


async def test_results_that_depend_on_answers_are_not_kept() -> None:
    """Caching, Cache Key; a result that depends on a state alone is not kept either."""
    found = {"resultType": "complete", "ttlMs": 60_000, "contents": []}
    for interim in (asking({"a": form()}), asking({}, requestState="s")):
        client, channel = scripted(interim, found, interim, found)
        for _ in range(2):
            assert (await client.read_resource("a:b")).rounds == 2
        assert len(channel.sent) == 4


async def test_results_requested_before_a_change_are_not_kept() -> None:
    """A response that is on its way when a change is reported is outdated."""
    ttl = {"resultType": "complete", "ttlMs": 60_000}

    def change(message: Any) -> dict[str, Any]:
        client.forget()
        return {**ttl, "prompts": []}

    client = Client(Scripted([change, {**ttl, "prompts": PROMPTS}]))
    assert await client.list_prompts() == []
    assert await client.list_prompts() == PROMPTS


# ---- completion ---------------------------------------------------------------------


async def test_completion_of_an_argument() -> None:
    ref = {"type": "ref/prompt", "name": "card"}
    client, channel = scripted({"completion": {"values": ["a", 1]}}, {"completion": {}})
    assert await client.complete(ref, "to", "A", {"kind": "red"}) == ["a", "1"]
    assert await client.complete(ref, "to", "A") == []
    first, second = ({**one.params} for one in channel.sent)
    del first["_meta"], second["_meta"]
    assert second == {"ref": ref, "argument": {"name": "to", "value": "A"}}
    assert first == {**second, "context": {"arguments": {"kind": "red"}}}


@pytest.mark.parametrize(
    "completion", [None, [], "a", {"values": None}, {"values": 1}, {"values": {}}]
)
async def test_an_invalid_completion(completion: Any) -> None:
    client, _ = scripted({"resultType": "complete", "completion": completion})
    with pytest.raises(ReplyError):
        await client.complete({}, "a", "")


# ---- time ---------------------------------------------------------------------------


def timed(body: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """Return the seconds that it takes, by a virtual clock."""

    async def main() -> float:
        began = trio.current_time()
        await body()
        return trio.current_time() - began

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_rounds_that_only_carry_a_state_are_spaced_out() -> None:
    """Twice as long each time, up to two seconds; questions are not delayed."""
    state = asking(None, requestState="s")

    async def quick() -> None:
        client, _ = scripted(*[asking({"a": form()})] * 9, DONE)
        await client.call_tool("tool")

    async def once() -> None:
        client, _ = scripted(state, DONE)
        await client.call_tool("tool")

    async def often() -> None:
        client, _ = scripted(*[state] * 9, DONE)
        await client.call_tool("tool")

    assert timed(quick) == 0
    assert timed(once) == pytest.approx(0.05)
    assert timed(often) == pytest.approx(0.05 * (2**6 - 1) + 3 * 2)


def test_timeouts_are_for_a_round_and_for_a_call() -> None:
    class Silent(Scripted):
        async def exchange(self, *args: Any) -> Any:
            await trio.sleep(7)
            return await super().exchange(*args)

    async def run(*answers: Any, **options: Any) -> None:
        client = Client(Silent(list(answers)), **options)
        await client.call_tool("tool")

    async def slow(form: Form) -> dict[str, Any]:
        await trio.sleep(100)
        return {"value": "yes"}

    ask = asking({"a": form()})

    def until(error: type[Exception] | None, *answers: Any, **options: Any) -> float:
        async def body() -> None:
            if error is None:
                await run(*answers, **options)
            else:
                with pytest.raises(error):
                    await run(*answers, **options)

        return timed(body)

    assert until(None, DONE) == 7
    assert until(None, ask, DONE, elicit=slow, round_timeout=8) == 114
    assert until(TimeoutError, DONE, round_timeout=3) == 3
    assert until(TimeoutError, ask, DONE, elicit=slow, timeout=50) == 50
    assert until(TimeoutError, ask, DONE, elicit=answer_yes, timeout=10) == 10


# ---- callbacks ----------------------------------------------------------------------


@pytest.mark.parametrize("params", [None, [], "text", 1])
async def test_notifications_with_invalid_parameters(params: Any) -> None:
    """Callbacks get a mapping or are not called; the call continues."""
    heard: list[Any] = []

    class Telling(Scripted):
        async def exchange(self, message: Any, headers: Any, hear: Any) -> Any:
            await hear({"method": "notifications/progress", "params": params})
            await hear({"method": "notifications/unknown", "params": params})
            await hear({"method": ["no", "text"]})
            return await super().exchange(message, headers, hear)

    client = Client(Telling([DONE]), on_progress=heard.append)
    await client.call_tool("tool")
    assert all(isinstance(one, Mapping) for one in heard)


async def test_progress_is_requested_only_with_a_callback() -> None:
    client, channel = scripted(DONE, DONE)
    await client.call_tool("tool")
    await client.call_tool("tool", on_progress=lambda params: None)
    tokens = [one.params["_meta"].get("progressToken") for one in channel.sent]
    assert tokens == [None, channel.sent[1].message["id"]]


def answered(seen: list[str]) -> dict[str, Any]:
    seen.append("answered")
    return {}


async def test_on_round_is_called_before_anything_is_answered() -> None:
    seen: list[str] = []
    client, _ = scripted(
        asking({"a": form()}),
        DONE,
        elicit=lambda form: answered(seen),
        on_round=lambda pending: seen.append(f"asked {[*pending.questions]}"),
    )
    await client.call_tool("tool")
    assert seen == ["asked ['a']", "answered"]


async def test_on_round_may_give_up() -> None:
    def give_up(pending: Pending) -> None:
        raise LookupError("enough")

    client, channel = scripted(asking({"a": form()}), on_round=give_up)
    with pytest.raises(LookupError, match="enough"):
        await client.call_tool("tool")
    assert len(channel.sent) == 1


# ---- what cannot be sent ------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "at /arguments/a/0: a number that JSON cannot carry"),
        ("\udcff", "at /arguments/a/0: a lone surrogate"),
        ({1, 2}, "at /arguments/a/0: a set"),
    ],
)
async def test_arguments_that_json_cannot_carry(value: Any, problem: str) -> None:
    client, channel = scripted()
    with pytest.raises(UsageError, match=f"^tools/call: {problem}"):
        await client.call_tool("tool", {"a": [value]})
    assert not channel.sent


async def test_arguments_that_are_nested_too_deep() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    client, _ = scripted()
    with pytest.raises(UsageError, match="^tools/call: at .*nested deeper"):
        await client.call_tool("tool", {"a": value})


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": 3}])
async def test_a_call_over_http_requires_a_name(params: Any) -> None:
    client, _ = scripted(listing(), has_headers=True)
    with pytest.raises(
        UsageError, match="^tools/call: its params need a string, 'name'"
    ):
        await client.request("tools/call", params)


# ---- all methods --------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_method_can_be_called(name: str) -> None:
    sources = map(inspect.getsource, (client_module, rounds_module, steps_module))
    is_called = f'"{name}"' in "".join(sources)
    assert is_called is (name not in NOT_CALLED), (
        "call it in client/client.py or client/steps.py, or add it to NOT_CALLED with the reason"
    )


@pytest.mark.parametrize("name", [one for one in vars(Client) if one[0] != "_"])
def test_client_method_is_tested_and_documented(name: str) -> None:
    tests = "".join(path.read_text("utf-8") for path in HERE.glob("*.py"))
    assert f".{name}(" in tests, "test it in effectmcp_tests/client"
    text = (HERE.parents[1] / "docs" / "client.md").read_text("utf-8")
    assert re.search(rf"[`.]{name}[(`]", text), "describe it in docs/client.md"
