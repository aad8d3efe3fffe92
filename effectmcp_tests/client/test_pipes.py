"""Commands that write what they like, or nothing, or end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from effectmcp import EffectMCPError, ProtocolError, UsageError
from effectmcp.client import ChannelError, Client, OverPipes, ReplyError, pipes

from .misbehaving_servers import command
from .ways import PATIENCE, Loop, on_both

DONE = '{"resultType": "complete", "content": [{"type": "text", "text": "done"}]}'


def outcome(loop: Loop, script: str, **options: Any) -> Any:
    """The text of what a command answers, or the error."""

    async def main() -> Any:
        with anyio.fail_after(PATIENCE):
            async with Client(command(script), **options) as client:
                try:
                    return (await client.call_tool("tool")).text
                except (EffectMCPError, TimeoutError) as exc:
                    return exc

    return anyio.run(main, backend=loop)


#: Answers the first request properly.
PROPER = f"""
message = next(lines())
reply(message, result={DONE})
for line in sys.stdin: pass
"""


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"   ",
        b"\r",
        b"hello",
        b"{",
        b"[]",
        b"null",
        b"1",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"id": 99, "result": {}}',
        b'{"id": "1", "result": {}}',
        b'{"id": null, "result": {}}',
        b'{"result": {}}',
        b'{"id": [], "result": {}}',
        b'{"id": {}, "result": {}}',
        b'{"id": true, "result": {"resultType": "complete", "content": []}}',
        b'{"id": 1.0, "result": {"resultType": "complete", "content": []}}',
        b'{"method": "notifications/unknown"}',
        b'{"method": 1}',
        b'{"method": "n", "params": null}',
        b'{"method": "n", "params": []}',
        b'{"method": "n", "params": [1]}',
        b'{"method": "n", "params": "text"}',
        b'{"method": "n", "params": {"_meta": null}}',
        b'{"method": "n", "params": {"_meta": "text"}}',
        b'{"method": "n", "params": {"_meta": [1]}}',
        b'{"method": "n", "params": {"progressToken": []}}',
        b'{"method": "n", "params": {"requestId": {}}}',
        b'{"method": "notifications/progress", "params": {"progressToken": 1}}',
        b'{"method": "notifications/message", "params": "text"}',
        b'{"method": "notifications/message", "params": [1]}',
        b'{"id": 1, "method": "roots/list"}',
    ],
)
def test_invalid_lines_change_nothing(loop: Loop, nonsense: bytes) -> None:
    def look(params: Mapping[str, Any]) -> None:
        params.get("progress")

    script = (
        f"write({nonsense!r})\n" if len(nonsense) < 1_000 else "write(b'[' * 100_000)\n"
    )
    script = f"message = next(lines())\n{script}reply(message, result={DONE})\n"
    script += "for line in sys.stdin: pass\n"
    assert outcome(loop, script, on_progress=look, on_log=look) == "done"


def test_an_invalid_answer(loop: Loop) -> None:
    for fields, words in {
        "result=[]": "a result is an object",
        "result=None": "a result is an object",
        "error=None": "neither a result nor an error",
        "error={}": "no code and message",
        "x=1": "neither a result nor an error",
    }.items():
        script = f"reply(next(lines()), {fields})\nfor line in sys.stdin: pass"
        found = outcome(loop, script)
        assert isinstance(found, ReplyError)
        assert words in str(found)


def test_an_error_is_one(loop: Loop) -> None:
    script = "reply(next(lines()), error={'code': -32603, 'message': 'Internal error'})"
    found = outcome(loop, script + "\nfor line in sys.stdin: pass")
    assert isinstance(found, ProtocolError)


@on_both
async def test_an_answer_that_comes_twice() -> None:
    """The second response is dropped, even if another request follows."""
    script = """
for message in lines():
    for n in range(2):
        done(message, content=[{"type": "text", "text": f"{message['id']} {n}"}])
"""
    async with Client(command(script)) as client:
        texts = [(await client.call_tool("tool")).text for _ in range(3)]
    assert texts == ["1 0", "2 0", "3 0"]


@on_both
async def test_a_long_line_takes_no_longer_than_it_is_long() -> None:
    """The time is not the square of that: the line comes in hundreds of pieces."""
    script = """
text = "x" * 12_000_000
for message in lines():
    done(message, content=[{"type": "text", "text": text}])
"""
    async with Client(command(script)) as client:
        began = time.process_time()
        assert len((await client.call_tool("tool")).text) == 12_000_000
        assert time.process_time() - began < 0.8


@on_both
async def test_answers_in_another_order() -> None:
    script = """
come = []
for message in lines():
    come.append(message)
    if len(come) == 5:
        for one in reversed(come):
            name = one["params"]["name"]
            done(one, content=[{"type": "text", "text": name}])
"""
    found: dict[str, str] = {}
    async with Client(command(script)) as client:

        async def call(name: str) -> None:
            found[name] = (await client.call_tool(name)).text

        async with anyio.create_task_group() as group:
            for name in "abcde":
                group.start_soon(call, name)
    assert found == {name: name for name in "abcde"}


@on_both
async def test_progress_reaches_only_its_own_call() -> None:
    """Late progress does not reach calls that are still running."""
    script = """
come = []
for message in lines():
    if message["method"] == "notifications/cancelled":
        token = message["params"]["requestId"]
        other = [one for one in come if one["id"] != token]
        for n, one in enumerate([token, other[0]["id"]]):
            params = {"progressToken": one, "progress": n}
            write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        done(other[0])
    else:
        come.append(message)
"""
    heard: list[Any] = []
    async with Client(command(script)) as client:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                await client.call_tool("stays", on_progress=heard.append)

            group.start_soon(call)
            with pytest.raises(TimeoutError), anyio.fail_after(0.1):
                await client.call_tool("goes", on_progress=lambda params: None)
    assert [one["progress"] for one in heard] == [1]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "closed its output"),
        ("sys.exit(3)", "closed its output"),
        ("next(lines())", "closed its output"),
        ("next(lines()); os.write(1, b'{\"jsonrpc\":')", "closed its output"),
        ("next(lines()); os.kill(os.getpid(), 9)", "closed its output"),
        ("os.close(1)\nfor line in sys.stdin: pass", "closed its output"),
        (
            "next(lines()); os.close(1)\nfor line in sys.stdin: pass",
            "closed its output",
        ),
    ],
)
def test_a_command_that_closes_its_output(loop: Loop, script: str, words: str) -> None:
    found = outcome(loop, script)
    assert isinstance(found, ChannelError)
    assert words in str(found)


@on_both
async def test_a_closed_output_ends_all_calls() -> None:
    async with Client(command("next(lines()); next(lines())")) as client:
        errors: list[ChannelError] = []

        async def call() -> None:
            with pytest.raises(ChannelError) as raised:
                await client.call_tool("tool")
            errors.append(raised.value)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            group.start_soon(call)
        await call()
    assert [str(one) for one in errors] == ["the server closed its output"] * 3


def test_a_command_that_never_answers(loop: Loop) -> None:
    assert isinstance(
        outcome(loop, "for line in sys.stdin: pass", timeout=0.1), TimeoutError
    )
    assert isinstance(
        outcome(loop, "for line in sys.stdin: pass", round_timeout=0.1), TimeoutError
    )


@on_both
async def test_messages_that_wait_are_limited_by_their_size() -> None:
    """Reading stops, so the server waits, until the slow function has taken some."""
    script = """
first = next(lines())
for number in range(100):
    params = {"progressToken": first["id"], "progress": number, "message": "x" * 50_000}
    write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
done(first)
for line in sys.stdin: pass
"""
    heard: list[Any] = []
    waiting: list[int] = []

    async def hear(params: Mapping[str, Any]) -> None:
        if not heard:
            await anyio.sleep(0.3)
            (one,) = channel._waiting.values()
            waiting.append(one.send.statistics().current_buffer_used)
        heard.append(params["progress"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipes, "LARGEST", 200_000)
        channel = command(script)
        async with Client(channel) as client:
            await client.call_tool("tool", on_progress=hear)
    assert heard == [*range(100)]
    assert 1 <= waiting[0] <= 4


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that would sleep on are ended at once."""
    monkeypatch.setattr(pipes, "_PATIENCE", 0.05)


@pytest.mark.usefixtures("impatient")
@on_both
async def test_a_command_that_closed_its_input() -> None:
    script = (
        "asked = next(lines()); os.close(0); done(asked, content=[]); time.sleep(60)"
    )
    async with Client(command(script)) as client:
        await client.call_tool("tool")
        with pytest.raises(ChannelError, match="does not read any more"):
            await client.call_tool("tool")


@pytest.mark.usefixtures("impatient")
def test_a_command_that_does_not_read(loop: Loop) -> None:
    """Neither what it is asked, nor that it is not asked any more."""

    async def main() -> None:
        with anyio.fail_after(PATIENCE):
            async with Client(command("time.sleep(60)")) as client:
                with pytest.raises(TimeoutError), anyio.fail_after(0.1):
                    await client.call_tool("tool", {"text": "x" * 1_000_000})

    anyio.run(main, backend=loop)


@pytest.mark.usefixtures("impatient")
@on_both
async def test_a_command_that_reads_no_more() -> None:
    script = "first = next(lines()); os.close(0); done(first); time.sleep(60)"
    async with Client(command(script)) as client:
        await client.call_tool("tool")
        with pytest.raises(ChannelError, match="does not read"):
            await client.call_tool("tool")


@pytest.mark.usefixtures("impatient")
@on_both
async def test_a_command_that_stops_reading_while_a_call_waits() -> None:
    """A cancelled caller is cancelled, and gets no other error."""
    script = """
first = next(lines())
os.close(0)
params = {"progressToken": first["id"]}
write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
time.sleep(60)
"""
    async with Client(command(script)) as client:
        with anyio.CancelScope() as scope:
            await client.call_tool("tool", on_progress=lambda params: scope.cancel())
        assert scope.cancelled_caught


@on_both
async def test_a_cancelled_request_is_reported_to_the_server() -> None:
    script = """
first = next(lines())
write({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": first["id"]}})
told = next(lines())
last = next(lines())
done(last, structuredContent=[first["id"], told])
for line in sys.stdin: pass
"""
    async with Client(command(script)) as client:
        with anyio.CancelScope() as scope:
            await client.call_tool("tool", on_progress=lambda params: scope.cancel())
        found = (await client.call_tool("tool")).structured
    assert found == [
        1,
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1},
        },
    ]


@pytest.mark.usefixtures("impatient")
def test_the_length_of_a_line_is_limited(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_LONGEST", 100_000)
    script = "next(lines())\nwhile True: os.write(1, b'x' * 9_999)"
    assert "more than 100,000 bytes" in str(outcome(loop, script))
    # Many short lines are allowed.
    script = f"message = next(lines())\nfor n in range(99): write(b' ' * 9_999)\nreply(message, result={DONE})\nfor line in sys.stdin: pass"
    assert outcome(loop, script) == "done"


def test_a_command_that_cannot_be_started(loop: Loop) -> None:
    async def main() -> None:
        async with Client(OverPipes(["/no/such/command"])):
            raise AssertionError("not reached")

    with pytest.raises(ChannelError, match="/no/such/command cannot be started"):
        anyio.run(main, backend=loop)


@on_both
async def test_a_command_that_could_not_be_started_was_not() -> None:
    channel = OverPipes(["/no/such/command"])
    for _ in range(2):
        with pytest.raises(ChannelError, match="cannot be started"):
            async with Client(channel):
                raise AssertionError("not reached")


@on_both
async def test_a_command_is_started_once() -> None:
    channel = command("for message in lines(): done(message, content=[])")
    async with Client(channel) as client:
        await client.call_tool("tool")
    with pytest.raises(UsageError, match="give another OverPipes"):
        async with Client(channel):
            raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("script", "patience"),
    [
        ("for line in sys.stdin: pass", PATIENCE),
        ("write(b'up'); time.sleep(60)", 0.05),
        (
            "import signal; signal.signal(15, signal.SIG_IGN); write(b'up'); time.sleep(60)",
            0.05,
        ),
    ],
)
def test_a_command_ends_with_the_channel(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, script: str, patience: float
) -> None:
    """The process ends with its input, or is terminated, or is killed."""
    monkeypatch.setattr(pipes, "_PATIENCE", patience)

    async def main() -> None:
        with anyio.fail_after(PATIENCE):
            async with command(script) as channel:
                process = channel._process
            assert process.returncode is not None

    anyio.run(main, backend=loop)


@on_both
async def test_an_error_of_the_block_is_raised_unchanged() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with Client(command("for line in sys.stdin: pass")):
            raise LookupError("mine")


@on_both
async def test_environment_and_folder() -> None:
    script = """
import json, os, sys
id_ = json.loads(sys.stdin.readline())["id"]
result = {"structuredContent": [os.environ.get("A"), os.getcwd()]}
print(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}), flush=True)
sys.stdin.read()
"""
    channel = OverPipes([sys.executable, "-c", script], env={"A": "b"}, cwd="/")
    async with Client(channel, version="2026-07-28") as client:
        assert (await client.call_tool("tool")).structured == ["b", "/"]


@on_both
async def test_a_command_that_is_still_writing_can_end() -> None:
    """More than a pipe holds, which no request needs: the end of it is not awaited."""
    script = """
message = next(lines())
done(message)
for line in sys.stdin: pass
write(b"x" * 1_000_000)
"""
    channel = command(script)
    async with Client(channel) as client:
        await client.call_tool("tool")
        process = channel._process
    assert process.returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="there are no sessions")
@on_both
async def test_the_server_does_not_read_our_terminal() -> None:
    script = """
for message in lines():
    is_alone = os.getsid(0) == os.getpid()
    done(message, content=[{"type": "text", "text": str(is_alone)}])
"""
    async with Client(command(script)) as client:
        assert (await client.call_tool("tool")).text == "True"
