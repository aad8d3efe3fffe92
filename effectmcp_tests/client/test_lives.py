"""Calls that outlive the process they began in: the client's, or the server's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from effectmcp.client import (
    Client,
    Form,
    OverHttp,
    OverPipes,
    Pending,
    Result,
    StateRejected,
)

from .ways import (
    COMMAND,
    ENVIRONMENT,
    PATIENCE,
    Loop,
    fill_in,
    http_server,
    on_both,
)


# It changes the server's keys permanently, so it has one to itself in another process.
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("kind", ["pipes", "http"])
def test_restart_where_the_state_is_rejected(
    loop: Loop, kind: str, restart: bool
) -> None:
    async def run(client: Client, forms: list[str]) -> None:
        with anyio.fail_after(PATIENCE):
            async with client:
                if restart:
                    result = await client.call_tool(
                        "order", {"title": "Dune"}, restart=True
                    )
                    assert result.text == "2 × Dune for Ann, 30"
                    assert result.rounds == 3
                    assert forms == [
                        "Who is it for?",
                        "Who is it for?",
                        "How many for Ann?",
                    ]
                else:
                    with pytest.raises(StateRejected):
                        await client.call_tool("order", {"title": "Dune"})
                    assert forms == ["Who is it for?"]

    async def main(url: str | None) -> None:
        forms: list[str] = []

        async def elicit(form: Form) -> dict[str, Any]:
            forms.append(form.message)
            if len(forms) == 1:
                await client.call_tool("new_keys")
            return fill_in(form)

        channel = OverPipes(COMMAND, env=ENVIRONMENT) if url is None else OverHttp(url)
        client = Client(channel, elicit=elicit)
        await run(client, forms)

    if kind == "pipes":
        anyio.run(main, None, backend=loop)
    else:
        with http_server() as server:
            anyio.run(main, server.url, backend=loop)


@pytest.mark.parametrize("kind", ["pipes", "http"])
def test_another_process_resumes(kind: str) -> None:
    """The first client is gone, and over pipes its server is, too."""

    async def begin(url: str) -> str:
        channel = OverHttp(url) if url else OverPipes(COMMAND, env=ENVIRONMENT)
        async with Client(channel, elicit=fill_in) as client:
            steps = client.start(
                "tools/call", {"name": "order", "arguments": {"title": "It"}}
            )
            await steps.round()
            pending = await steps.round()
            assert isinstance(pending, Pending)
            return json.dumps(pending.to_json())

    def go_on(url: str) -> None:
        stored = anyio.run(begin, url)
        done = subprocess.run(
            [sys.executable, "-m", "effectmcp_tests.client.resume", url],
            input=stored,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stdout.split("\n") == ["3 × It for Ann, 30 3", ""], done.stderr

    if kind == "pipes":
        go_on("")
    else:
        with http_server() as server:
            go_on(server.url)


def test_a_server_may_be_killed_between_rounds(loop: Loop) -> None:
    """The call continues at another server with the same keys."""
    with http_server() as first:
        port = int(first.url.split(":")[2].split("/")[0])

        async def main() -> str:
            servers: list[Any] = []

            async def elicit(form: Form) -> dict[str, Any]:
                if not servers:
                    first.process.kill()
                    first.process.wait()
                    server = http_server(port)
                    servers.append(server)
                    await anyio.to_thread.run_sync(server.__enter__)
                return fill_in(form)

            try:
                with anyio.fail_after(PATIENCE):
                    async with Client(OverHttp(first.url), elicit=elicit) as client:
                        return (await client.call_tool("order", {"title": "It"})).text
            finally:
                for server in servers:
                    server.__exit__(None, None, None)

        assert anyio.run(main, backend=loop) == "2 × It for Ann, 30"


@on_both
async def test_a_command_may_be_killed_between_rounds() -> None:
    async with Client(OverPipes(COMMAND, env=ENVIRONMENT), elicit=fill_in) as client:
        steps = client.start(
            "tools/call", {"name": "order", "arguments": {"title": "It"}}
        )
        pending = await steps.round()
        assert isinstance(pending, Pending)
        channel = client._channel
        assert isinstance(channel, OverPipes)
        channel._process.kill()
    async with Client(OverPipes(COMMAND, env=ENVIRONMENT), elicit=fill_in) as client:
        steps = client.resume(pending)
        assert isinstance(await steps.round(), Pending)
        result = await steps.round()
        assert isinstance(result, Result)
        assert result.text == "2 × It for Ann, 30"


def test_the_end_of_a_server_ends_its_subscriptions(loop: Loop) -> None:
    async def main(url: str, stop: Callable[[], None]) -> None:
        with anyio.fail_after(PATIENCE):
            async with Client(OverHttp(url)) as client:
                async with client.listen(tools=True) as changes:
                    assert "acknowledged" in (await anext(changes))["method"]
                    stop()
                    rest = [one["method"] async for one in changes]
        assert rest == ["notifications/cancelled"]

    with http_server() as server:
        anyio.run(
            main,
            server.url,
            lambda: server.process.send_signal(signal.SIGTERM),
            backend=loop,
        )
