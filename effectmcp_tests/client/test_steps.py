"""Calls that become tasks, with all kinds of servers; timed by a virtual clock."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from effectmcp import Declined, ProtocolError, UsageError
from effectmcp.client import (
    ChannelError,
    Client,
    Form,
    Pending,
    ReplyError,
    Result,
    RoundsError,
    TaskCancelled,
)

from .legacy_server import Legacy
from .test_tasks import announced, asking, described
from .ways import Sent, form

DONE = described("completed", result={"content": [{"type": "text", "text": "built"}]})
DECLARED = "io.modelcontextprotocol/clientCapabilities"


class Server:
    """A channel to a server that makes each call a task, with these polls.

    Attributes:
        polls: What `tasks/get` answers: a result, or an exception. The last one stays.
        on_cancel: Called by `tasks/cancel`.
        sent: The requests.
        at: The times of the polls.
    """

    has_headers = probes = False
    origin = None

    def __init__(self, *polls: Any, first: Any = None) -> None:
        self.polls = list(polls)
        self.first = announced() if first is None else first
        self.on_cancel: Callable[[], Any] = dict
        self.sent: list[Sent] = []
        self.at: list[float] = []

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    async def exchange(
        self, message: Mapping[str, Any], headers: Any, hear: Any
    ) -> Any:
        """Answer a request."""
        self.sent.append(Sent(message, headers))
        await trio.lowlevel.checkpoint()
        match message["method"]:
            case "tools/call":
                result = self.first
            case "tasks/get":
                self.at.append(trio.current_time())
                result = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
            case "tasks/cancel":
                result = self.on_cancel()
                if not isinstance(result, dict):
                    result = await result
            case _:
                result = {"resultType": "complete"}
        if isinstance(result, Exception):
            raise result
        if "error" in result and "taskId" not in result:
            return {"jsonrpc": "2.0", "id": message["id"], **result}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def tell(self, message: Any, headers: Any) -> None:
        """Drop a notification."""

    async def attend(self, hear: Any, headers: Any, ready: Any) -> None:
        """Receive no message."""

    @property
    def methods(self) -> list[str]:
        """The methods of the requests."""
        return [one.message["method"] for one in self.sent]

    def client(self, **options: Any) -> Client:
        """A client of it."""
        return Client(self, **{"elicit": answer, "version": "2026-07-28", **options})


def answer(form: Form) -> dict[str, Any]:
    return {"value": form.message}


async def call(server: Server, **options: Any) -> Result:
    return await server.client(**options).call_tool("build")


def failing(code: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no"}}


# ---- the extension ------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"elicit": None}])
async def test_calls_and_their_tasks_declare_the_extension(
    options: Any, autojump_clock: MockClock
) -> None:
    """A client without functions for questions declares it too: most tasks ask none."""
    server = Server(described(), DONE)
    client = server.client(**options)
    assert (await client.call_tool("build")).text == "built"
    server.first = {"resultType": "complete", "tools": []}
    await client.get_prompt("p")
    for one in server.sent:
        extensions = one.params["_meta"][DECLARED].get("extensions")
        is_declared = one.message["method"] in ("tools/call", "tasks/get")
        assert (extensions == {"io.modelcontextprotocol/tasks": {}}) is is_declared
    assert server.methods == ["tools/call", "tasks/get", "tasks/get", "prompts/get"]


async def test_client_that_never_follows_tasks_does_not_declare_the_extension() -> None:
    server = Server()
    server.first = {"resultType": "complete", "content": []}
    await call(server, task_tools="never")
    (one,) = server.sent
    assert "extensions" not in one.params["_meta"][DECLARED]


async def test_legacy_server_has_no_tasks() -> None:
    async def serve(ask: Any) -> Any:
        return {"result": announced()}

    channel = Legacy(serve)
    async with channel.client(elicit=answer) as client:
        with pytest.raises(ReplyError, match="a result of the unknown type 'task'"):
            await client.call_tool("build")
    assert "extensions" not in json.dumps([one for one, _ in channel.sent])
    assert not channel.requests("tasks/cancel")


# ---- polls --------------------------------------------------------------------------


async def test_polls_keep_the_servers_intervals(autojump_clock: MockClock) -> None:
    intervals = [2_000, 500, 0, 10**9, None]
    server = Server(
        *(described(pollIntervalMs=one) for one in intervals),
        DONE,
        first=announced(pollIntervalMs=3_000),
    )
    begun = trio.current_time()
    result = await call(server)
    assert (result.text, result.rounds) == ("built", 1)
    times = [begun, *server.at]
    waited = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert waited == pytest.approx([3, 2, 0.5, 0.1, 60, 1])


async def test_task_without_an_end_ends_with_the_time_of_the_call(
    autojump_clock: MockClock,
) -> None:
    server = Server(described(pollIntervalMs=0))
    with pytest.raises(TimeoutError):
        await call(server, timeout=10)
    assert len(server.at) <= 100
    assert server.methods[-1] == "tasks/cancel"
    assert server.sent[-1].params["taskId"] == "t"


async def test_task_that_was_announced_as_ended_is_polled_at_once() -> None:
    assert (
        await call(Server(DONE, first=announced(status="completed")))
    ).text == "built"


@pytest.mark.parametrize(
    "poll",
    [
        described(taskId="other"),
        described("sleeping"),
        {"resultType": "complete"},
        asking(**{f"{n}": form() for n in range(1_001)}),
    ],
)
async def test_invalid_poll_ends_the_call_and_the_task(
    poll: Any, autojump_clock: MockClock
) -> None:
    server = Server(described(), poll)
    with pytest.raises(ReplyError):
        await call(server)
    assert server.methods == ["tools/call", *["tasks/get"] * 2, "tasks/cancel"]


async def test_status_that_goes_back(autojump_clock: MockClock) -> None:
    server = Server(described(), first=announced(status="completed"))
    with pytest.raises(ReplyError, match="a task that was completed is working"):
        await call(server)
    assert server.methods[-1] == "tasks/cancel"


# ---- ends ---------------------------------------------------------------------------


async def test_task_that_failed_or_was_cancelled(autojump_clock: MockClock) -> None:
    """A task that has ended is not cancelled."""
    for end, error in (
        (described("failed", **failing(-32603)), ProtocolError),
        (described("cancelled"), TaskCancelled),
    ):
        server = Server(described(), end)
        with pytest.raises(error):
            await call(server)
        assert server.methods == ["tools/call", "tasks/get", "tasks/get"]


async def test_task_that_is_unknown(autojump_clock: MockClock) -> None:
    server = Server(failing(-32602))
    with pytest.raises(ProtocolError):
        await call(server)
    assert len(server.at) == 1


# ---- questions ----------------------------------------------------------------------


async def test_question_is_asked_and_answered_once(autojump_clock: MockClock) -> None:
    asked = []

    def elicit(form: Form) -> dict[str, Any]:
        asked.append(form.key)
        return {"value": 1}

    one, two = asking(a=form()), asking(a=form(), b=form())
    server = Server(one, one, two, two, described(), DONE)
    result = await call(server, elicit=elicit, rounds=2)
    assert (asked, result.rounds) == (["a", "b"], 3)
    updates = [one.params for one in server.sent if "inputResponses" in one.params]
    assert [list(one["inputResponses"]) for one in updates] == [["a"], ["b"]]


async def test_task_that_asks_too_often(autojump_clock: MockClock) -> None:
    polls = [asking(**{f"{n}": form()}) for n in range(9)]
    server = Server(*polls)
    with pytest.raises(RoundsError):
        await call(server, rounds=3)
    assert server.methods.count("tasks/update") == 3
    assert server.methods[-1] == "tasks/cancel"


async def test_question_that_the_user_declines(autojump_clock: MockClock) -> None:
    server = Server(asking(a=form()), DONE)
    assert (await call(server, elicit=lambda form: Declined())).text == "built"
    assert server.sent[2].params["inputResponses"] == {"a": {"action": "decline"}}
    assert "tasks/cancel" not in server.methods


async def test_question_without_an_answer_cancels_the_task(
    autojump_clock: MockClock,
) -> None:
    def gone(form: Form) -> Any:
        raise LookupError("the user has left")

    for elicit, error in ((None, ReplyError), (gone, LookupError)):
        server = Server(asking(a=form()))
        with pytest.raises(error):
            await call(server, elicit=elicit)
        assert server.methods == ["tools/call", "tasks/get", "tasks/cancel"]


# ---- cancelling ---------------------------------------------------------------------


async def test_cancelled_caller_cancels_the_task(autojump_clock: MockClock) -> None:
    server = Server(described())
    with trio.move_on_after(2.5) as scope:
        await call(server)
    assert scope.cancelled_caught
    assert server.methods == ["tools/call", "tasks/get", "tasks/get", "tasks/cancel"]


async def test_server_that_does_not_acknowledge_the_cancel(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(described())
    server.on_cancel = trio.sleep_forever
    with trio.move_on_after(2.5):
        await call(server)
    assert trio.current_time() == pytest.approx(7.5)
    assert "the call may still run on the server: TimeoutError" in caplog.text


async def test_error_of_the_cancel_hides_no_other(autojump_clock: MockClock) -> None:
    server = Server(described("odd"))
    server.on_cancel = lambda: failing(-32602)
    with pytest.raises(ReplyError, match="unknown status 'odd'"):
        await call(server)


# ---- connections that break ---------------------------------------------------------

LOST = ChannelError("gone")


@pytest.mark.parametrize("error", [LOST, failing(-32603)])
async def test_poll_is_repeated_if_only_the_connection_or_the_server_fails(
    error: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp.client")
    server = Server(described(), *[error] * 4, DONE)
    assert (await call(server)).text == "built"
    waited = [b - a for a, b in zip(server.at, server.at[1:], strict=False)]
    assert waited == pytest.approx([1, 1, 2, 4, 8])
    assert caplog.text.count("repeating a request about a task: ") == 4


async def test_poll_is_not_repeated_for_ever(autojump_clock: MockClock) -> None:
    server = Server(LOST)
    with pytest.raises(ChannelError):
        await call(server)
    assert len(server.at) == 5


async def test_answers_are_sent_again_without_asking_again(
    autojump_clock: MockClock,
) -> None:
    asked = []

    def elicit(form: Form) -> dict[str, Any]:
        asked.append(form.key)
        return {"value": 1}

    server = Server(asking(a=form()), DONE)
    client = server.client(elicit=elicit)
    request = client.request
    failed: list[Any] = []

    async def broken(method: str, params: Any, **more: Any) -> Any:
        if method == "tasks/update" and not failed:
            failed.append(params)
            raise LOST
        return await request(method, params, **more)

    client.request = broken  # type: ignore[method-assign]  # as a broken channel
    assert (await client.call_tool("build")).text == "built"
    assert (asked, len(failed)) == (["a"], 1)


async def test_call_is_not_repeated_before_it_is_a_task() -> None:
    server = Server(DONE, first=LOST)
    with pytest.raises(ChannelError):
        await call(server)
    assert server.methods == ["tools/call"]


# ---- one round at a time ------------------------------------------------------------


async def test_steps_show_a_task(autojump_clock: MockClock) -> None:
    seen: list[Pending] = []
    server = Server(
        described(statusMessage="digs"),
        described(statusMessage="digs"),
        asking(a=form(), b=form()),
        asking(b=form()),
        described(statusMessage="paints"),
        DONE,
    )
    steps = server.client(on_round=seen.append).start("tools/call", {"name": "build"})
    came = []
    for responses in (None, None, None, None, {"a": 1}, None, None, None):
        one = await steps.round(responses)
        assert isinstance(one, Pending)
        assert one is steps.pending
        assert one.task is not None
        came.append((one.task.status, one.task.message, [*one.questions]))
    assert came == [
        ("working", None, []),
        ("working", "digs", []),
        ("working", "digs", []),
        ("input_required", None, ["a", "b"]),
        ("input_required", None, []),
        ("input_required", None, ["b"]),
        ("input_required", None, []),
        ("working", "paints", []),
    ]
    # A poll without a change is not reported.
    assert [came.index(_shown(one)) for one in seen] == [0, 1, 3, 5, 7]
    assert isinstance(await steps.round(), Result)
    with pytest.raises(UsageError, match="the call is over"):
        await steps.finish()


def _shown(one: Pending) -> Any:
    assert one.task is not None
    return one.task.status, one.task.message, [*one.questions]


async def test_stored_task_is_followed_elsewhere(autojump_clock: MockClock) -> None:
    """The other client polls at once, and answers only the other question."""
    both = asking(a=form(), b=form())
    server = Server(both, both, DONE)
    steps = server.client().start("tools/call", {"name": "build"})
    await steps.round()
    await steps.round()
    came = await steps.round({"a": 1})
    assert isinstance(came, Pending)
    stored = json.dumps(came.to_json())
    resumed = server.client().resume(Pending.from_json(json.loads(stored)))
    begun = trio.current_time()
    result = await resumed.finish()
    assert (result.text, result.rounds) == ("built", 3)
    assert server.at[1] == begun
    assert [*server.sent[4].params["inputResponses"]] == ["b"]


async def test_stored_question_of_a_task_is_answered_elsewhere(
    autojump_clock: MockClock,
) -> None:
    server = Server(asking(a=form()), DONE)
    steps = server.client().start("tools/call", {"name": "build"})
    await steps.round()
    came = await steps.round()
    assert isinstance(came, Pending)
    resumed = server.client().resume(Pending.from_json(came.to_json()))
    assert (await resumed.finish()).text == "built"


async def test_steps_can_be_cancelled(autojump_clock: MockClock) -> None:
    """Only `cancel` cancels the task: another client may follow it."""
    server = Server(described("odd"))
    steps = server.client().start("tools/call", {"name": "build"})
    await steps.cancel()
    await steps.round()
    with pytest.raises(ReplyError):
        await steps.round()
    assert "tasks/cancel" not in server.methods
    await steps.cancel()
    assert server.methods[-1] == "tasks/cancel"
    server.on_cancel = lambda: failing(-32602)
    with pytest.raises(ProtocolError):
        await steps.cancel()
    server.polls = [described("cancelled")]
    with pytest.raises(TaskCancelled):
        await steps.round()
    assert steps.pending is None


async def test_call_in_rounds_needs_no_cancelling() -> None:
    server = Server(first={"resultType": "input_required", "requestState": "s"})
    steps = server.client().start("tools/call", {"name": "build"})
    await steps.round()
    await steps.cancel()
    assert server.methods == ["tools/call"]
