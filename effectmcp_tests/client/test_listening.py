"""Subscriptions on a channel that logs in: streams that end, and are opened again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from attrs import define, field

from effectmcp import ProtocolError
from effectmcp.client import ChannelError, Client, InMemory, LoginFailed, ReplyError
from effectmcp.client.channels import Frame, Hear
from effectmcp.server import Server

from .ways import Scripted

ACKNOWLEDGED = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled"}


@define(eq=False)
class Streams(Scripted):
    """A channel whose streams are scripts: notifications, and then an end.

    Attributes:
        token_version: As channels say it that log in.
        opened: When each stream was opened.
    """

    token_version: int | None = 0
    opened: list[float] = field(factory=list)

    async def exchange(self, message: Frame, headers: Any, hear: Hear) -> Frame:
        """Play the next stream."""
        self.opened.append(anyio.current_time())
        await anyio.lowlevel.checkpoint()
        for told in self.answers.pop(0):
            if isinstance(told, Exception):
                raise told
            if isinstance(told, (int, float)):
                await anyio.sleep(told)
            else:
                await hear(told)
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}


def streams(*scripts: list[Any], **options: Any) -> Streams:
    return Streams([*scripts], **options)


async def received(channel: Any, **options: Any) -> list[Any]:
    """The methods of all changes, until the server ends them."""
    async with Client(channel, version="2026-07-28", **options) as client:
        async with client.listen(tools=True) as changes:
            return [one["method"].rpartition("/")[2] async for one in changes]


GONE = ChannelError("gone")


async def test_stream_that_ends_is_opened_again(autojump_clock: Any) -> None:
    """The program reads another acknowledgement, and no end in between."""
    channel = streams(
        [ACKNOWLEDGED, CHANGED, CANCELLED], [ACKNOWLEDGED, CHANGED, CANCELLED], [GONE]
    )
    assert await received(channel) == [
        *("acknowledged", "list_changed", "acknowledged", "list_changed"),
        "cancelled",
    ]


async def test_streams_are_opened_once_a_second_at_most(autojump_clock: Any) -> None:
    """A server could end each of them at once. The next follows a long stream at once."""
    end = [ACKNOWLEDGED, CANCELLED]
    channel = streams(end, end, [], [ACKNOWLEDGED, 7, CANCELLED], end, [GONE])
    await received(channel)
    began = channel.opened[0]
    times = [one - began for one in channel.opened]
    assert times == pytest.approx([0, 1, 2, 3, 10, 11])


@pytest.mark.parametrize(
    "error",
    [
        *(GONE, LoginFailed("declined"), ProtocolError(-32603, "Internal error")),
        ReplyError("no result"),
    ],
)
async def test_stream_that_cannot_be_opened_again_is_the_end(
    error: Exception, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As without a login, when the server stops; the log has the reason."""
    channel = streams([ACKNOWLEDGED, CANCELLED], [error])
    assert await received(channel) == ["acknowledged", "cancelled"]
    (record,) = caplog.records
    assert record.getMessage() == f"no changes are received any more: {error}"


async def test_stream_that_is_not_acknowledged_again_is_the_end(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    channel = streams([ACKNOWLEDGED, 100, CANCELLED], [100])
    got = await received(channel, round_timeout=5)
    assert got == ["acknowledged", "cancelled"]
    assert "no answer to subscriptions/listen" in caplog.text


@pytest.mark.parametrize("streams_before", [0, 1])
async def test_stream_that_breaks_off_is_an_error(
    streams_before: int, autojump_clock: Any
) -> None:
    """As without a login: the program decides what follows."""
    before = [[ACKNOWLEDGED, CANCELLED]] * streams_before
    with pytest.raises(ChannelError, match="gone"):
        await received(streams(*before, [ACKNOWLEDGED, GONE]))


async def test_first_stream_that_cannot_be_opened_is_an_error() -> None:
    with pytest.raises(LoginFailed, match="declined"):
        await received(streams([LoginFailed("declined")]))


async def test_changes_that_are_not_read_end_each_stream(autojump_clock: Any) -> None:
    channel = streams([ACKNOWLEDGED, CANCELLED], [ACKNOWLEDGED, *[CHANGED] * 1_001, 9])
    async with Client(channel, version="2026-07-28") as client:
        with pytest.raises(ReplyError, match="changes wait"):
            async with client.listen(tools=True):
                await anyio.sleep_forever()


async def test_stream_without_a_login_is_not_opened_again() -> None:
    channel = streams([ACKNOWLEDGED, CANCELLED], token_version=None)
    assert await received(channel) == ["acknowledged", "cancelled"]


# ---- the cache ----------------------------------------------------------------------


@define(eq=False)
class Users(InMemory):
    """A channel that logs in as another user when `log_in` is called."""

    app: Server
    token_version: int | None = 1
    sent: list[str] = field(factory=list)
    before: Callable[[], None] = lambda: None

    def __attrs_post_init__(self) -> None:
        InMemory.__init__(self, self.app)

    async def exchange(self, message: Frame, headers: Any, hear: Hear) -> Frame:
        """Pass it on, as the user of these tokens."""
        self.sent.append(message["method"])
        response = await super().exchange(message, headers, hear)
        self.before()
        return response

    def log_in(self) -> None:
        """Get other tokens."""
        assert self.token_version is not None
        self.token_version += 1


def cached() -> Users:
    app = Server("shop")
    app.resource("shop://a", ttl=900)(lambda: "text")
    return Users(app)


async def read(client: Client) -> None:
    await client.read_resource("shop://a")
    await client.list_resources()


async def test_cache_ends_with_the_tokens() -> None:
    """A login may be of another user, and a step-up shows more in the lists."""
    channel = cached()
    async with Client(channel, version="2026-07-28") as client:
        for _ in range(2):
            await read(client)
        assert channel.sent == ["resources/read", "resources/list"]
        channel.log_in()
        for _ in range(2):
            await read(client)
        assert channel.sent == ["resources/read", "resources/list"] * 2


async def test_result_of_the_old_tokens_is_not_kept() -> None:
    """The request was sent before the login, and the result arrives after it."""
    channel = cached()
    channel.before = channel.log_in
    async with Client(channel, version="2026-07-28") as client:
        await read(client)
        channel.before = lambda: None
        await read(client)
        assert channel.sent == ["resources/read", "resources/list"] * 2
