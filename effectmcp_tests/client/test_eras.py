"""Detecting a server's era: probed over pipes, tried over HTTP, remembered by URL."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from effectmcp import ProtocolError
from effectmcp.client import ChannelError, Client, OverHttp, OverPipes, ReplyError
from effectmcp.client import client as clients

from .misbehaving_servers import JSON_TYPE, Answer, Asked, command, http_server
from .ways import PATIENCE, Loop, on_both

DONE = {"content": [{"type": "text", "text": "done"}]}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    """Ports are used again."""
    clients._SHAKING.clear()
    yield
    clients._SHAKING.clear()


def run(loop: Loop, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(PATIENCE):
            await body()

    anyio.run(main, backend=loop)


# ---- pipes --------------------------------------------------------------------------

#: Notes each message, and responds to the probe as each test defines.
_DOES = """
come = []
for message in lines():
    method = message["method"]
    come.append([method, message.get("id"), message.get("params", {}).get("_meta", {})])
    if method == "server/discover":
        PROBED
    elif method == "initialize":
        reply(message, result=WELCOME)
    elif "id" in message:
        text = json.dumps(come)
        done(message, content=[{"type": "text", "text": text}])
"""


def probed(does: str) -> OverPipes:
    channel = command(_DOES.replace("PROBED", does).replace("WELCOME", repr(WELCOME)))
    channel.probes = True
    return channel


async def what_came(channel: OverPipes, **options: Any) -> list[Any]:
    async with Client(channel, **options) as client:
        found = json.loads((await client.call_tool("tool")).text)
        again = json.loads((await client.call_tool("tool")).text)
        assert again[:-1] == found
    ids = [id_ for _, id_, _ in again if id_ is not None]
    assert len({*ids}) == len(ids)
    come: list[Any] = found
    return come


MODERN = [
    'done(message, supportedVersions=["2026-07-28"])',
    'reply(message, result={"supportedVersions": ["2026-07-28", "2025-11-25"]})',
    *(
        f'reply(message, error={{"code": {code}, "message": "no"}})'
        for code in (-32020, -32021, -32022)
    ),
]


@pytest.mark.parametrize("does", MODERN)
def test_a_server_that_knows_the_probe(loop: Loop, does: str) -> None:
    """There is no handshake, and each request names its revision."""

    async def body() -> None:
        come = await what_came(probed(does))
        assert [method for method, _, _ in come] == ["server/discover", "tools/call"]
        assert all("io.modelcontextprotocol/protocolVersion" in one for *_, one in come)

    run(loop, body)


def test_a_version_that_it_has_after_all(loop: Loop) -> None:
    """The server is asked again, and there is no handshake."""
    does = """
        data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
        reply(message, error={"code": -32022, "message": "no", "data": data})
"""

    async def body() -> None:
        come = await what_came(probed(does.strip()))
        assert [method for method, _, _ in come] == [
            "server/discover",
            "server/discover",
            "tools/call",
        ]

    run(loop, body)


LEGACY = [
    *(
        f'reply(message, error={{"code": {code}, "message": "no"}})'
        for code in (-32601, -32602, -32600, -32000, -32603, 0, 1)
    ),
    "reply(message, result={})",
    "reply(message, result=[])",
    "reply(message, result=None)",
    "reply(message, error=None)",
    "reply(message, error={})",
    "reply(message)",
    'done(message, content=[{"type": "text", "text": "what?"}])',
]


@pytest.mark.parametrize("does", LEGACY)
def test_a_server_that_does_not_know_the_probe(loop: Loop, does: str) -> None:
    async def body() -> None:
        come = await what_came(probed(does))
        assert [method for method, _, _ in come] == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]
        assert come[-1][2] == {}

    run(loop, body)


def test_a_server_that_does_not_respond_to_the_probe(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late response to the probe belongs to no request, and is dropped."""
    monkeypatch.setattr(clients, "_PROBE", 0.05)

    async def body() -> None:
        for does in ("pass", 'write("nonsense")', "late = message"):
            channel = probed(does)
            come = [method for method, _, _ in await what_came(channel)]
            assert come[0] == "server/discover"
            assert come[-3:] == [
                "initialize",
                "notifications/initialized",
                "tools/call",
            ]

    run(loop, body)


def test_a_server_that_ends_with_the_probe(loop: Loop) -> None:
    async def body() -> None:
        with pytest.raises(ChannelError, match="closed its output"):
            async with Client(probed("sys.exit(1)")):
                raise AssertionError("not reached")

    run(loop, body)


def test_a_server_that_knows_neither(loop: Loop) -> None:
    script = """
for message in lines():
    reply(message, error={"code": -32601, "message": "no " + message["method"]})
"""

    async def body() -> None:
        channel = command(script)
        channel.probes = True
        with pytest.raises(ProtocolError, match="no initialize"):
            async with Client(channel):
                raise AssertionError("not reached")

    run(loop, body)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-06-18"])
def test_a_given_version_is_not_probed_for(loop: Loop, version: str) -> None:
    async def body() -> None:
        come = await what_came(probed("sys.exit(1)"), version=version)
        wanted = ["initialize", "notifications/initialized"]
        assert [method for method, _, _ in come] == [
            *([] if version == "2026-07-28" else wanted),
            "tools/call",
        ]

    run(loop, body)


def test_messages_that_arrive_together_with_the_welcome(loop: Loop) -> None:
    """In one piece: before any task can wait for more than the response."""
    script = """
answers, call = [], None
for message in lines():
    if message.get("method") == "initialize":
        more = [{"jsonrpc": "2.0", "id": id_, "method": method}
                for id_, method in (("p", "ping"), ("r", "roots/list"))]
        welcome = {"jsonrpc": "2.0", "id": message["id"], "result": WELCOME}
        write(b"\\n".join(json.dumps(one).encode() for one in (welcome, *more)))
    elif "method" not in message:
        answers.append(message)
        if len(answers) == 2 and call is not None:
            done(call, structuredContent=sorted(one["id"] for one in answers))
    elif message["method"] == "tools/call":
        call = message
        if len(answers) == 2:
            done(call, structuredContent=sorted(one["id"] for one in answers))
"""

    async def body() -> None:
        channel = command(script.replace("WELCOME", repr(WELCOME)))
        async with Client(channel, version="2025-11-25", roots=[]) as client:
            assert (await client.call_tool("tool")).structured == ["p", "r"]

    run(loop, body)


def test_questions_over_pipes(loop: Loop) -> None:
    """Lines between them belong to no call; and changes arrive beside the only call."""
    script = """
for message in lines():
    if message.get("method") == "initialize":
        reply(message, result=WELCOME)
    elif message.get("method") == "tools/call":
        call = message
        write({"jsonrpc": "2.0", "id": 99, "result": {}})
        write({"jsonrpc": "2.0", "id": [1], "result": {}})
        write([])
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        params = {"message": "Who?", "requestedSchema": {"type": "object"}}
        write({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create",
               "params": params})
    elif message.get("id") == 1 and "method" not in message:
        done(call, content=[{"type": "text", "text": message["result"]["action"]}])
        done(call, content=[])
"""

    async def body() -> None:
        channel = command(script.replace("WELCOME", repr(WELCOME)))
        options: dict[str, Any] = {"elicit": lambda form: {}, "version": "2025-11-25"}
        async with Client(channel, **options) as client:
            async with client.listen(tools=True) as changes:
                await anext(changes)
                assert (await client.call_tool("tool")).text == "accept"
                assert "list_changed" in (await anext(changes))["method"]
            assert (await client.call_tool("tool")).rounds == 2

    run(loop, body)


# ---- HTTP ---------------------------------------------------------------------------


def old(
    *refusal: Any, seen: list[Asked], welcome: Any = WELCOME, accepts: bool = False
) -> Answer:
    """A legacy server; the arguments define how it refuses unknown requests."""

    async def answer(asked: Asked) -> None:
        seen.append(asked)
        method = asked.message.get("method")
        if asked.http_method != "POST":
            await asked.write(b"", "text/plain", 405)
        elif method == "initialize":
            body = json.dumps(asked.response(result=welcome)).encode()
            await asked.write(body, JSON_TYPE, 200, "Mcp-Session-Id: s")
        elif "id" not in asked.message:
            await asked.write(b"", "text/plain", 202)
        elif accepts or asked.headers.get("mcp-session-id") == "s":
            await asked.write(json.dumps(asked.response(result=DONE)).encode())
        else:
            await asked.write(*refusal)

    return answer


def error(code: int, **more: Any) -> bytes:
    fields = {"error": {"code": code, "message": "the first"}, "id": None, **more}
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


def methods(seen: list[Asked]) -> list[str]:
    return [one.message.get("method", one.http_method) for one in seen]


SHAKEN = ["initialize", "notifications/initialized", "GET"]


@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize(
    ("body", "type_"),
    [
        (b"", "text/plain"),
        (b"", JSON_TYPE),
        (b"<p>Not here", "text/html"),
        (b"{", JSON_TYPE),
        (b"[]", JSON_TYPE),
        (b'{"detail": "no"}', JSON_TYPE),
        (error(-32000), JSON_TYPE),
        (error(-32600), JSON_TYPE),
        (error(-32001), JSON_TYPE),
        (b'{"error": "no"}', JSON_TYPE),
        (b'{"error": {"code": [-32022], "message": "no"}}', JSON_TYPE),
    ],
)
async def test_a_refusal_of_an_older_server(
    status: int, body: bytes, type_: str
) -> None:
    """The client performs the handshake, and repeats the same request."""
    seen: list[Asked] = []
    async with http_server(old(body, type_, status, seen=seen)) as url:
        async with Client(OverHttp(url)) as client:
            assert (await client.get_prompt("note")).text == "done"
            assert (await client.get_prompt("note")).text == "done"
    assert methods(seen) == [
        "prompts/get",
        *SHAKEN,
        *["prompts/get"] * 2,
        "DELETE",
    ]
    for one in seen[2:]:
        assert one.headers["mcp-session-id"] == "s"
        assert one.headers["mcp-protocol-version"] == "2025-11-25"
        assert "mcp-method" not in one.headers
    assert "mcp-session-id" not in seen[1].headers
    assert "mcp-protocol-version" not in seen[1].headers


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
async def test_a_refusal_of_a_server_of_2026_07_28(code: int) -> None:
    seen: list[Asked] = []
    async with http_server(old(error(code), JSON_TYPE, 400, seen=seen)) as url:
        async with Client(OverHttp(url)) as client:
            with pytest.raises(ProtocolError) as raised:
                await client.get_prompt("note")
    assert raised.value.code == code
    assert {*methods(seen)} == {"prompts/get"}


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_refusal_that_does_not_depend_on_the_era(status: int) -> None:
    seen: list[Asked] = []
    async with http_server(old(b"", "text/plain", status, seen=seen)) as url:
        async with Client(OverHttp(url)) as client:
            with pytest.raises(ChannelError, match=f"status {status}"):
                await client.get_prompt("note")
    assert methods(seen) == ["prompts/get"]


async def test_a_server_of_2026_07_28_gets_no_handshake() -> None:
    """The client sends `initialize` not even after a later refusal."""
    seen: list[Asked] = []
    accepts = old(seen=seen, accepts=True)
    refuses = old(b"", "text/plain", 400, seen=seen)

    async def answer(asked: Asked) -> None:
        await (refuses if seen else accepts)(asked)

    async with http_server(answer) as url, Client(OverHttp(url)) as client:
        assert (await client.get_prompt("note")).text == "done"
        with pytest.raises(ChannelError, match="status 400"):
            await client.get_prompt("note")
    assert methods(seen) == ["prompts/get"] * 2


@pytest.mark.parametrize("version", ["2026-07-28"])
async def test_a_client_with_version_2026_07_28_performs_no_handshake(
    version: str,
) -> None:
    seen: list[Asked] = []
    async with http_server(old(error(-32000), JSON_TYPE, 400, seen=seen)) as url:
        async with Client(OverHttp(url), version=version) as client:
            with pytest.raises(ProtocolError, match="the first"):
                await client.get_prompt("note")
    assert methods(seen) == ["prompts/get"]


@pytest.mark.parametrize(
    "welcome", [None, [], {}, {"protocolVersion": "2024-11-05"}, {"protocolVersion": 5}]
)
async def test_a_handshake_that_fails_reports_the_first_refusal(welcome: Any) -> None:
    """The caller gets the first refusal; the next request tries again."""
    seen: list[Asked] = []
    refusal = (error(-32000), JSON_TYPE, 400)
    async with http_server(old(*refusal, seen=seen, welcome=welcome)) as url:
        async with Client(OverHttp(url)) as client:
            for _ in range(2):
                with pytest.raises(ProtocolError, match="the first"):
                    await client.get_prompt("note")
    found = [one for one in methods(seen) if one != "DELETE"]
    assert found == ["prompts/get", "initialize"] * 2


@on_both
async def test_requests_side_by_side_share_one_handshake() -> None:
    seen: list[Asked] = []
    everybody = anyio.Event()
    server = old(b"", "text/plain", 400, seen=seen)

    async def answer(asked: Asked) -> None:
        if len(seen) == 4:
            everybody.set()
        elif not everybody.is_set():
            seen.append(asked)
            await everybody.wait()
            seen.remove(asked)
        await server(asked)

    async with http_server(answer) as url, Client(OverHttp(url)) as client:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(client.get_prompt, "note")
    assert methods(seen).count("initialize") == 1
    assert methods(seen).count("prompts/get") == 10


async def test_an_era_is_remembered_by_the_address() -> None:
    seen: list[Asked] = []
    server = old(b"", "text/plain", 400, seen=seen)
    today = old(seen=seen, accepts=True)
    upgrades = [False, False, True, True]

    async def answer(asked: Asked) -> None:
        if not upgrades[len(found)]:
            await server(asked)
        elif asked.message.get("method") == "initialize":
            seen.append(asked)
            await asked.write(error(-32601), JSON_TYPE, 404)
        else:
            await today(asked)

    found: list[list[str]] = []
    async with http_server(answer) as url:
        for _ in upgrades:
            seen.clear()
            async with Client(OverHttp(url)) as client:
                assert (await client.get_prompt("note")).text == "done"
            found.append(methods(seen))
    shaken = [*SHAKEN, "prompts/get", "DELETE"]
    assert found == [
        ["prompts/get", *shaken],
        shaken,
        # What was found out is remembered as well.
        ["initialize", "prompts/get"],
        ["prompts/get"],
    ]


async def test_an_upgraded_server_is_treated_as_2026_07_28() -> None:
    """The client sends no session id and no cancellation, and resumes nothing."""
    seen: list[Asked] = []
    is_closed = anyio.Event()

    async def answer(asked: Asked) -> None:
        seen.append(asked)
        if asked.message["method"] == "initialize":
            body = error(-32602, id=asked.message["id"])
            await asked.write(body, JSON_TYPE, 400, "Mcp-Session-Id: s")
        elif len(seen) == 2:
            await asked.write(b"id: 1\ndata:\n\n", "text/event-stream")
        else:
            try:
                await asked.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                is_closed.set()

    with anyio.fail_after(PATIENCE):
        async with http_server(answer) as url:
            clients._SHAKING.add(url)
            async with Client(OverHttp(url), round_timeout=0.2) as client:
                with pytest.raises(ChannelError, match="ended before"):
                    await client.get_prompt("note")
                with pytest.raises(TimeoutError):
                    await client.get_prompt("note")
                await is_closed.wait()
    assert methods(seen) == ["initialize", "prompts/get", "prompts/get"]
    assert not any("mcp-session-id" in one.headers for one in seen)


async def test_a_server_that_is_away_when_its_era_is_known() -> None:
    async with http_server(old(seen=[])) as url:
        pass
    clients._SHAKING.add(url)
    async with Client(OverHttp(url)) as client:
        with pytest.raises(ChannelError, match="cannot be reached"):
            await client.discover()


async def test_an_error_without_an_id_is_raised() -> None:
    """A server that refuses access sends such an error."""
    seen: list[Asked] = []
    async with http_server(old(error(-32001), JSON_TYPE, 403, seen=seen)) as url:
        async with Client(OverHttp(url)) as client:
            with pytest.raises(ProtocolError, match="the first"):
                await client.get_prompt("note")


async def test_a_welcome_that_is_another_requests() -> None:
    async def answer(asked: Asked) -> None:
        body = {"jsonrpc": "2.0", "id": 99, "result": WELCOME}
        await asked.write(json.dumps(body).encode())

    async with http_server(answer) as url:
        with pytest.raises(ReplyError, match="another request"):
            async with Client(OverHttp(url), version="2025-11-25"):
                raise AssertionError("not reached")
