"""Faults of what is around a server: versions, forks, disks, clocks and interpreters."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Elicit, Flow, ProtocolError, Server, step
from effectmcp.testing import MemoryClient
from effectmcp.transports.wsgi import application

from ..transports.era import answered, desk, headers_for, initialize, tool, value_of
from ..transports.shop import KEYS, answer, bank, call, shop, text_of
from ..transports.test_http import make_certificate
from ..transports.wire import Client, listening
from . import flows
from .flows import answers

JSON = Any

# ---- two versions behind one balancer -----------------------------------------------

performed: list[str] = []


@step
def reserve(name: str) -> str:
    performed.append(name)
    return f"a seat for {name}"


def version_of(texts: list[str]) -> Server:
    """A server whose tool asks these questions; for `!`, it performs a step."""
    made = Server("box office", keys=KEYS)

    @made.tool
    def book() -> Flow[list[str]]:
        found = []
        for text in texts:
            if text == "!":
                yield from reserve("Ann")
            else:
                found.append(f"{text} {(yield from Elicit(text, str))}")
        return found

    return made


def alternating(versions: list[list[str]]) -> list[str] | str:
    """Play one flow, each round on the next version: its result, or how it ended."""
    performed.clear()
    more: dict[str, JSON] = {}
    clients = [MemoryClient(version_of(texts)) for texts in versions]
    for client in cycle(clients):
        try:
            result = client.send("tools/call", name="book", arguments={}, **more)
        except ProtocolError as exc:
            return exc.message
        if result["resultType"] != "input_required":
            if result.get("isError"):
                return str(result["content"][0]["text"])
            return list(result["structuredContent"])
        more = {
            "requestState": result["requestState"],
            "inputResponses": {
                key: {
                    "action": "accept",
                    "content": {"value": f"re: {one['params']['message']}"},
                }
                for key, one in result["inputRequests"].items()
            },
        }
    raise AssertionError("unreachable")


texts = st.lists(st.sampled_from(["Who?", "When?", "Where?", "!"]), max_size=5)


@given(st.lists(texts, min_size=2, max_size=3))
@example([["Who?", "When?"], ["When?", "Who?"]])
@example([["Who?", "!", "When?", "Who?"], ["Who?", "When?"]])
@example([["Who?", "When?", "!"], ["Who?", "Where?", "When?", "!"]])
def test_versions_that_alternate_never_mix_answers(versions: list[list[str]]) -> None:
    """Each answer belongs to its question, or the call ends and the client is told.

    A step is performed as often as the version that ends the flow performs it, and
    never again because of the other version.
    """
    result = alternating(versions)
    assert len(performed) <= max(found.count("!") for found in versions)
    if isinstance(result, str):
        assert re.search("changed|version|again|requestState", result), result
        return
    assert all(line == f"{(text := line.split()[0])} re: {text}" for line in result)
    asked = [line.split()[0] for line in result]
    assert asked in [[one for one in found if one != "!"] for found in versions]


def test_inserted_question_is_salvaged() -> None:
    old, new = ["Who?", "When?"], ["Where?", "Who?", "When?"]
    assert alternating([old, new, new, new]) == [f"{one} re: {one}" for one in new]


# ---- fork ---------------------------------------------------------------------------

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs fork and rlimits")


@needs_posix
def test_processes_that_were_forked_draw_different_bytes() -> None:
    """Both resume the flow of their parent, and each of their own flows is new."""
    with flows.running(flows.forked) as fork:
        ours, theirs = fork(None)
    drawn, uuid, name, later, key, receipt = ours["resumed"]
    assert theirs["resumed"][:3] == [drawn, uuid, name] == [drawn, uuid, "Ann"]
    assert theirs["resumed"][3] != later  # drawn after the fork
    assert theirs["resumed"][4] == key  # of the flow, which is one
    assert theirs["resumed"][5] != receipt
    assert ours["flow"] != theirs["flow"]
    assert ours["state"] != theirs["state"]
    for mine, other in zip(ours["begun"], theirs["begun"], strict=True):
        assert mine != other or mine == "Bob"


# ---- TLS ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contexts(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of its clients."""
    chain, key = make_certificate(tmp_path_factory.mktemp("tls"))
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(chain, key)
    return serving, ssl.create_default_context(cafile=chain)


async def connect(address: tuple[str, int], context: ssl.SSLContext) -> Client:
    """Return a client that takes an end without close_notify for a truncation."""
    stream = await trio.open_tcp_stream(*address)
    return Client(trio.SSLStream(stream, context, server_hostname="localhost"))


async def test_rounds_over_tls_end_with_close_notify(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    serving, trusting = contexts
    app = shop(lifespan=bank)
    async with listening(app, ssl_context=serving) as address:
        got = None
        more: dict[str, JSON] = {}
        for value in ("Ann", 2, None):
            client = await connect(address, trusting)
            body = call("order", title="Dune", **more)
            got = await client.ask(body, host="localhost", connection="close")
            assert got.status == 200
            # trio raises BrokenResourceError if the connection just ends.
            assert await client.rest() == b""
            await client.stream.aclose()
            if value is not None:
                more = answer(json.loads(got.body)["result"], value)
        assert got is not None
        assert text_of(json.loads(got.body)) == "2 × Dune for Ann: receipt for Ann"


def posted(session: str | None, body: JSON) -> bytes:
    content = json.dumps(body).encode()
    headers = headers_for(
        session,
        host="localhost",
        connection="close",
        content_length=str(len(content)),
    )
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + content


async def test_live_questions_over_tls_end_with_close_notify(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    serving, trusting = contexts
    async with listening(desk().app, ssl_context=serving) as address:

        async def post(session: str | None, body: JSON) -> Any:
            client = await connect(address, trusting)
            await client.send(posted(session, body))
            got = await client.answer()
            assert await client.rest() == b""
            await client.stream.aclose()
            return got

        session = (await post(None, initialize())).headers["mcp-session-id"]
        caller = await connect(address, trusting)
        await caller.send(posted(session, tool("order", title="Dune")))
        assert (await caller.head()).status == 200

        async def message() -> JSON:
            while True:
                found = re.search(rb"data: (\{.*)\n", await caller.chunk())
                if found:
                    return json.loads(found[1])

        for value in ("Ann", 2):
            reply = await post(session, answered(await message(), value))
            assert reply.status == 202
        assert value_of(await message()) == "2 x Dune for Ann"
        assert [chunk async for chunk in caller.chunks()] == []
        assert await caller.rest() == b""
        await caller.stream.aclose()


# ---- a full disk --------------------------------------------------------------------


@needs_posix
def test_full_disk_costs_a_recording_and_no_request(tmp_path: Path) -> None:
    """One warning, no half of a transcript, and recordings again when there is room."""
    with flows.running(flows.full_disk) as serve_into:
        results, warned, left, later = serve_into(str(tmp_path))
    assert results == ['{"fig": 3}'] * 3
    assert len(warned) == 1
    assert "no conversation can be recorded for now" in warned[0]
    assert left == []
    (name,) = later
    assert json.loads((tmp_path / name).read_text())


def test_full_disk_leaves_an_earlier_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a flow is written once per round: the last round may find no room."""
    from effectmcp.testing.recording import Recorder

    app = flows.app()
    Recorder(app, tmp_path)
    client = MemoryClient(app)
    first = client.send("tools/call", name="choose", arguments={})
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("effectmcp.testing.transcripts.os.replace", full)
    client.send("tools/call", name="choose", arguments={}, **answers(first, "fig"))
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == before


# ---- clocks -------------------------------------------------------------------------


class Clock:
    """The system clock, which an operator or NTP sets."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._time = time.time

    def __call__(self) -> float:
        return self._time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time", made)
    return made


@pytest.mark.parametrize(
    ("seconds", "is_taken"),
    [
        (-3600, False),
        (-70, False),
        (-50, True),
        (50, True),
        (3650, True),
        (3670, False),
    ],
)
def test_state_after_the_clock_was_set(
    clock: Clock, seconds: float, is_taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A minute of leeway on both sides of the hour in which a state is valid."""
    caplog.set_level("INFO")
    client = MemoryClient(flows.app())
    first = client.send("tools/call", name="choose", arguments={})
    clock.ahead = seconds
    send: Callable[[], JSON] = lambda: client.send(  # noqa: E731
        "tools/call", name="choose", arguments={}, **answers(first, "fig")
    )
    if is_taken:
        assert send()["resultType"] == "input_required"
        return
    with pytest.raises(ProtocolError, match="requestState"):
        send()
    assert ("future" if seconds < 0 else "expired") in caplog.text
    clock.ahead = 0  # the clock is right again, and nothing is lost
    assert send()["resultType"] == "input_required"


def test_rounds_while_the_clock_is_set_back_a_little(clock: Clock) -> None:
    """No state is issued before its flow began: the next round would be refused."""
    client = MemoryClient(flows.app())
    result = client.send("tools/call", name="choose", arguments={})
    for ahead in (-30, -59):
        clock.ahead = ahead
        result = client.send(
            "tools/call", name="choose", arguments={}, **answers(result, "fig")
        )
    assert result["structuredContent"] == {"fig": 3}


@pytest.mark.parametrize("ahead", [-86_400, 86_400])
def test_session_does_not_end_when_the_clock_is_set(clock: Clock, ahead: float) -> None:
    """Idle time is measured by the monotonic clock."""
    from ..transports.test_legacy_wsgi import shake

    old = shake(application(desk().app, run_async=None))
    clock.ahead = ahead
    got = old.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
    assert got.status == 200


# ---- the interpreter ----------------------------------------------------------------

INVALID_STATE = [-32602, "Invalid or expired requestState"]


@pytest.mark.parametrize("options", [(), ("-O",), ("-OO",)])
def test_attacks_are_refused_without_asserts(options: tuple[str, ...]) -> None:
    """No guard is an `assert`, which `python -O` removes."""
    with flows.running(flows.refusals, *options) as attack:
        found = attack(None)
    assert found.pop("has asserts") is (not options)
    assert found.pop("altered state") == INVALID_STATE
    assert found.pop("state of another tool") == INVALID_STATE
    assert "-32700" in found.pop("twin keys")
    assert "nested deeper" in found.pop("deep")
    assert "do not fit" in found.pop("extra argument")
    assert found.pop("unknown tool") == [-32602, "Unknown tool: nothing"]
    assert "9 rounds" in found.pop("too many rounds")
    assert {one[0] for one in found.values()} == {"MalformedHttp"}
    assert len(found) == 5


def test_hash_seeds_agree_on_states_lists_and_journals() -> None:
    """Rounds of one flow in processes with other seeds, and each round in all."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(flows.running(flows.one_round, PYTHONHASHSEED=seed))
            for seed in ("0", "1", "2")
        ]
        params: dict[str, JSON] = {}
        result: JSON = None
        for number, value in enumerate(("plum", "fig", None)):
            ran = [play(params) for play in processes]
            results, journals, lists, orders = zip(*ran, strict=True)
            assert len({*orders}) > 1  # or this would test nothing
            assert lists[0] == lists[1] == lists[2]
            if number:  # until then, each process begins another flow
                assert journals[0] == journals[1] == journals[2]
            result = results[number]
            if value is not None:
                params = answers(result, value)
    assert result["structuredContent"] == {"fig": 3, "plum": 4}
