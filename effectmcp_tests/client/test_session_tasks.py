"""Tasks of 2025-11-25 and of the drafts: our client shows them like the extension's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Elicit,
    Flow,
    Gather,
    ProtocolError,
    Server,
    Sleep,
    ToolError,
    UsageError,
)
from effectmcp.client import (
    ChannelError,
    Client,
    Form,
    InMemory,
    Pending,
    ReplyError,
    Result,
    TaskCancelled,
    session_tasks,
)
from effectmcp.client.channels import Frame, Hear
from effectmcp.drivers import trio as on_trio
from effectmcp.protocol.meta import RELATED_TASK
from effectmcp.state import Keys, make_key
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.working import working

from .legacy_server import FORM, Asking, Legacy
from .ways import on_both

NEWEST, DRAFT = "2025-11-25", "2026-06-XX"
REVISIONS = pytest.mark.parametrize("version", [NEWEST, DRAFT])

DECLARED: Any = {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
ID = "task-1"
META = {RELATED_TASK: {"taskId": ID}}
DONE = {"content": [{"type": "text", "text": "done"}]}


def described(status: str, **more: Any) -> dict[str, Any]:
    """A task, as a server describes it."""
    return {
        "taskId": ID,
        "status": status,
        "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z",
        "ttl": 60_000,
        "pollInterval": 100,
        **more,
    }


def fails(code: int, **more: Any) -> dict[str, Any]:
    """An error."""
    return {"error": {"code": code, "message": "no", **more}}


def answer(form: Form) -> dict[str, Any]:
    """Answer with the message of the form."""
    return {"value": form.message}


async def until(is_so: Callable[[], object]) -> None:
    """Let other tasks run until a condition is met."""
    while not is_so():
        await anyio.lowlevel.checkpoint()


@define(eq=False)
class Shop(Legacy):
    """A server with one task.

    Attributes:
        version: The revision that it speaks.
        tools: The `execution.taskSupport` of its tools; `None` for none.
        rounds: The messages of the questions that its task asks, one round after another.
        end: The result or the error of its task.
        polls: How often the task is `working` before it continues.
        early: Sends the questions of a round, before `tasks/result`.
        said: Replies that differ from the usual ones, by method.
        answers: The answers to its questions.
        serves: Serves `tasks/result` instead.
        is_cancelled: Whether its task was cancelled.
    """

    version: str = NEWEST
    tools: Mapping[str, Any] = field(factory=lambda: {"tool": "required"})
    rounds: list[list[str]] = field(factory=list)
    end: Any = field(factory=lambda: DONE)
    polls: int = 1
    early: str | None = None
    said: dict[str, Any] = field(factory=dict)
    answers: list[Any] = field(factory=list)
    serves: Callable[[Asking], Any] | None = None
    _count: int = field(default=0, init=False)
    is_cancelled: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.welcome = {
            "protocolVersion": self.version,
            "capabilities": DECLARED,
            "serverInfo": {"name": "old"},
        }

    def client(self, **options: Any) -> Client:
        if self.version == DRAFT:
            return Client(self, **{"drafts": True, "elicit": answer, **options})
        return Client(self, **{"version": self.version, "elicit": answer, **options})

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        self.sent.append((message, headers))
        await anyio.lowlevel.checkpoint()
        method: Any = message["method"]
        found: Any
        try:
            if method == "initialize":
                found = self.welcome
            elif method in self.said:
                found = self.said[method]
                if callable(found):
                    found = found(message)
                    if hasattr(found, "__await__"):
                        found = await found
            else:
                serve = getattr(self, f"_{method.replace('/', '_')}")
                found = await serve(Asking(message, self, hear))
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(message["id"])
            raise
        if isinstance(found, Exception):
            raise found
        if not (isinstance(found, dict) and ("result" in found or "error" in found)):
            found = {"result": found}
        return {"jsonrpc": "2.0", "id": message["id"], **found}

    async def _tools_list(self, asking: Asking) -> Any:
        tools = []
        for name, support in self.tools.items():
            tool: Any = {"name": name, "inputSchema": {"type": "object"}}
            if support is not None:
                tool["execution"] = {"taskSupport": support}
            tools.append(tool)
        return {"tools": tools}

    async def _tools_call(self, asking: Asking) -> Any:
        if "task" not in asking.message["params"]:
            return DONE
        if self.early == "call":
            await self._say(asking.say)
        elif self.early == "stream":
            await self._say(self.stream)
        return {"task": described("working")}

    async def _say(self, say: Hear) -> None:
        """Send the questions of a round; the next round waits for their replies."""
        batch = self.rounds.pop(0)
        events = []
        for number, message in enumerate(batch):
            id_ = f"early-{len(self.rounds)}-{number}"
            events.append(self._waiting.setdefault(json.dumps(id_), anyio.Event()))
            params = {**FORM, "message": message, "_meta": META}
            await say(
                {
                    "jsonrpc": "2.0",
                    "id": id_,
                    "method": "elicitation/create",
                    "params": params,
                }
            )

    def _is_waiting(self) -> bool:
        early = [
            event for key, event in self._waiting.items() if key.startswith('"early')
        ]
        return any(not event.is_set() for event in early)

    async def _tasks_get(self, asking: Asking) -> Any:
        if self.is_cancelled:
            return described("cancelled", statusMessage="as you like")
        self._count += 1
        if self._count <= self.polls:
            return described("working")
        if self._is_waiting() or self.rounds:
            return described("input_required")
        is_error = isinstance(self.end, dict) and "error" in self.end
        is_bad = is_error or self.end.get("isError")
        return described("failed" if is_bad else "completed")

    async def _tasks_result(self, asking: Asking) -> Any:
        if self.serves is not None:
            return await self.serves(asking)
        return await self.result_of(asking)

    async def result_of(self, asking: Asking) -> Any:
        """Serve `tasks/result`."""
        if self.version == DRAFT:
            if not self.rounds:
                return self.end
            asked = {
                f"k{len(self.rounds)}-{number}": {
                    "method": "elicitation/create",
                    "params": {**FORM, "message": message},
                }
                for number, message in enumerate(self.rounds[0])
            }
            return {
                "inputRequests": asked,
                "requestState": f"s{len(self.rounds)}",
                "_meta": META,
            }
        for key, event in [*self._waiting.items()]:
            if key.startswith('"early'):
                await event.wait()
        while self.rounds:
            batch = self.rounds[0]

            async def one(message: str) -> None:
                params = {**FORM, "message": message, "_meta": META}
                self.answers.append(await asking.ask(params=params))

            async with anyio.create_task_group() as group:
                for message in batch:
                    group.start_soon(one, message)
            self.rounds.pop(0)
        return self.end

    async def _tasks_input_response(self, asking: Asking) -> Any:
        params = asking.message["params"]
        for number in range(len(self.rounds[0])):
            key = f"k{len(self.rounds)}-{number}"
            if key in params["inputResponses"]:
                self.answers.append(params["inputResponses"][key])
        self.rounds.pop(0)
        self._count = 0
        return {"_meta": META}

    async def _tasks_cancel(self, asking: Asking) -> Any:
        self.is_cancelled = True
        return described("cancelled")


def values(shop: Shop) -> list[str]:
    """The values in the answers."""
    return [one["content"]["value"] for one in shop.answers]


# ---- which tools --------------------------------------------------------------------

#: Whether a call asks for a task: by support, and by `task_tools`.
ASKS: Mapping[tuple[Any, str], bool] = {
    ("required", "required"): True,
    ("required", "optional"): True,
    ("optional", "required"): False,
    ("optional", "optional"): True,
    ("forbidden", "required"): False,
    ("forbidden", "optional"): False,
    (None, "required"): False,
    (None, "optional"): False,
    ("unknown", "optional"): False,
    (5, "optional"): False,
    ("required", "never"): False,
    ("optional", "never"): False,
}


@REVISIONS
@pytest.mark.parametrize(("support", "task_tools"), ASKS)
async def test_call_asks_for_a_task_by_the_tool(
    version: str, support: Any, task_tools: Any, autojump_clock: Any
) -> None:
    """ "clients MUST invoke the tool as a task", "MAY", "MUST NOT" (Tasks, Tool-Level
    Negotiation).
    """
    shop = Shop(version=version, tools={"tool": support})
    async with shop.client(task_tools=task_tools) as client:
        assert (await client.call_tool("tool")).text == "done"
    (call,) = shop.requests("tools/call")
    assert ("task" in call["params"]) == ASKS[support, task_tools]
    assert ("tasks/get" in shop.methods) == ASKS[support, task_tools]


@pytest.mark.parametrize("task_tools", ["", "all", "forbidden", None, True])
def test_other_values_of_task_tools_are_refused(task_tools: Any) -> None:
    with pytest.raises(UsageError, match="give 'required', 'optional' or 'never'"):
        Shop().client(task_tools=task_tools)


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"tasks": {}},
        {"tasks": {"requests": {}}},
        {"tasks": {"requests": {"tools": {}}}},
        {"tasks": {"requests": {"tools": {"call": None}}}},
        {"tasks": {"requests": {"tools": {"call": True}}}},
        {"tasks": "x"},
        {"tasks": []},
        [],
        None,
        5,
    ],
    ids=repr,
)
async def test_server_that_declares_no_tasks_is_asked_for_none(
    capabilities: Any,
) -> None:
    """ "clients MUST NOT attempt to use task augmentation on that server's tools,
    regardless of the `execution.taskSupport` value".
    """
    shop = Shop()
    shop.welcome["capabilities"] = capabilities
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"
    assert "tools/list" not in shop.methods
    assert "task" not in shop.requests("tools/call")[0]["params"]


async def test_other_methods_ask_for_no_task() -> None:
    shop = Shop(said={"prompts/get": {"messages": []}, "resources/read": {}})
    async with shop.client() as client:
        await client.get_prompt("tool")
        await client.read_resource("x://tool")
    assert "tools/list" not in shop.methods
    for one, _ in shop.sent:
        assert "task" not in one.get("params", {})


async def test_tools_are_listed_once(autojump_clock: Any) -> None:
    shop = Shop()
    async with shop.client() as client:
        for _ in range(3):
            await client.call_tool("tool")
    assert shop.methods.count("tools/list") == 1


async def test_tools_are_listed_again_when_they_have_changed(
    autojump_clock: Any,
) -> None:
    shop = Shop(tools={"tool": None})
    async with shop.client() as client:
        await client.call_tool("tool")
        shop.tools = {"tool": "required"}
        await client.call_tool("tool")
        changed = "notifications/tools/list_changed"
        await shop.stream({"jsonrpc": "2.0", "method": changed})
        await client.call_tool("tool")
        other = "notifications/prompts/list_changed"
        await shop.stream({"jsonrpc": "2.0", "method": other})
        await client.call_tool("tool")
    is_task = ["task" in one["params"] for one in shop.requests("tools/call")]
    assert is_task == [False, False, True, True]
    assert shop.methods.count("tools/list") == 2


async def test_all_pages_of_tools_are_read(autojump_clock: Any) -> None:
    def page(message: Any) -> Any:
        number = int(message["params"].get("cursor", "0"))
        tool = {"name": f"t{number}", "execution": {"taskSupport": "required"}}
        more = {"nextCursor": str(number + 1)} if number < 3 else {}
        return {"tools": [tool], **more}

    shop = Shop(said={"tools/list": page})
    async with shop.client() as client:
        await client.call_tool("t3")
        await client.call_tool("t4")
    is_task = ["task" in one["params"] for one in shop.requests("tools/call")]
    assert is_task == [True, False]
    assert shop.methods.count("tools/list") == 4


async def test_endless_pages_of_tools_end() -> None:
    shop = Shop(said={"tools/list": {"tools": [], "nextCursor": "again"}})
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"
    assert shop.methods.count("tools/list") == 100


async def test_size_of_all_pages_of_tools_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_tasks, "LARGEST", 100_000)
    tool = {"name": "x" * 30_000}
    shop = Shop(said={"tools/list": {"tools": [tool], "nextCursor": "again"}})
    async with shop.client() as client:
        with pytest.raises(ReplyError, match="more than 100,000 bytes"):
            await client.call_tool("tool")
    assert shop.methods.count("tools/list") == 4


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"tools": None},
        {"tools": []},
        {"tools": [5, None, "tool", [], {}]},
        {"tools": [{"name": "tool", "execution": 5}]},
        {"tools": [{"name": "tool", "execution": []}]},
        {"tools": [{"name": "tool", "execution": {}}]},
        {"tools": [{"name": 5, "execution": {"taskSupport": "required"}}]},
        {"tools": 5},
        {"tools": "tool"},
        {"tools": {"name": "tool"}},
        {"tools": True},
    ],
    ids=repr,
)
async def test_malformed_page_of_tools_requires_nothing(page: Any) -> None:
    """The call is made, or raises `ReplyError`: a server must not crash its client."""
    shop = Shop(said={"tools/list": page})
    async with shop.client() as client:
        try:
            assert (await client.call_tool("tool")).text == "done"
        except ReplyError:
            assert not isinstance(page.get("tools", []), list)


@pytest.mark.parametrize("reply", [5, None, [], fails(-32601), fails(-32603)], ids=repr)
async def test_error_of_the_list_is_raised(reply: Any) -> None:
    """The list is read before the call is sent, so the caller may try again."""
    shop = Shop(said={"tools/list": reply})
    async with shop.client() as client:
        with pytest.raises((ReplyError, ProtocolError)):
            await client.call_tool("tool")
        assert "tools/call" not in shop.methods
        del shop.said["tools/list"]
        shop.tools = {}
        assert (await client.call_tool("tool")).text == "done"


# ---- a whole life -------------------------------------------------------------------


@REVISIONS
async def test_task_is_followed_to_its_end(version: str, autojump_clock: Any) -> None:
    seen: list[Pending] = []
    shop = Shop(version=version, polls=3)
    async with shop.client(on_round=seen.append) as client:
        result = await client.call_tool("tool", {"a": 1})
    assert (result.text, result.rounds) == ("done", 1)
    assert shop.methods[2:] == [
        "tools/list",
        "tools/call",
        *["tasks/get"] * 4,
        "tasks/result",
    ]
    assert shop.requests("tools/call")[0]["params"] == {
        "name": "tool",
        "arguments": {"a": 1},
        "task": {},
    }
    for one in shop.requests("tasks/get"):
        assert one["params"] == {"taskId": ID}
    assert shop.requests("tasks/result")[0]["params"] == {"taskId": ID}
    tasks = [one.task for one in seen]
    assert [one and (one.id, one.status, one.poll_interval) for one in tasks] == [
        (ID, "working", 0.1)
    ]


@on_both
async def test_questions_come_on_the_stream_of_result() -> None:
    """ "When the requestor encounters the `input_required` status, it SHOULD preemptively
    call `tasks/result`" (Tasks, Input Required Status).
    """
    shop = Shop(rounds=[["Who?"], ["And?", "Where?"]])
    async with shop.client() as client:
        result = await client.call_tool("tool")
    assert (result.text, result.rounds) == ("done", 3)
    assert sorted(values(shop)) == ["And?", "Where?", "Who?"]
    assert shop.methods.count("tasks/result") == 1
    for one in shop.replies:
        assert one["result"]["_meta"] == META
    assert shop.cancelled == []


async def test_questions_of_drafts_come_in_the_result(autojump_clock: Any) -> None:
    shop = Shop(version=DRAFT, rounds=[["Who?"], ["And?", "Where?"]])
    async with shop.client() as client:
        result = await client.call_tool("tool")
    assert (result.text, result.rounds) == ("done", 3)
    assert values(shop) == ["Who?", "And?", "Where?"]
    sent = [one["params"] for one in shop.requests("tasks/input_response")]
    assert [one["_meta"] for one in sent] == [META, META]
    assert [one["requestState"] for one in sent] == ["s2", "s1"]
    assert [[*one["inputResponses"]] for one in sent] == [["k2-0"], ["k1-0", "k1-1"]]


async def test_draft_without_a_state_sends_none(autojump_clock: Any) -> None:
    """ "If the InputRequiredResult does not contain a requestState field, the client MUST
    NOT include one" (drafts, Client Requirements).
    """
    shop = Shop(version=DRAFT, rounds=[["Who?"]])
    question = {"method": "elicitation/create", "params": {**FORM, "message": "Who?"}}

    def result(message: Any) -> Any:
        return {"inputRequests": {"k1-0": question}} if shop.rounds else DONE

    shop.said["tasks/result"] = result
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"
    (sent,) = shop.requests("tasks/input_response")
    assert sent["params"].keys() == {"inputResponses", "_meta"}


@REVISIONS
async def test_answers_may_come_one_by_one(version: str, autojump_clock: Any) -> None:
    """A round may bring some of them; the others stay outstanding."""
    shop = Shop(version=version, rounds=[["One?", "Other?"]])
    answered: list[Any] = []

    def update(message: Any) -> Any:
        answered.append(message["params"]["inputResponses"])
        if len(answered) == 2:
            shop.rounds.clear()
        return {}

    if version == DRAFT:
        shop.said["tasks/input_response"] = update
    async with shop.client() as client:
        call = client.start("tools/call", {"name": "tool", "arguments": {}})
        came: Any = await call.round()
        while not came.questions:
            came = await call.round()
        assert len(came.questions) == 2
        first, second = came.questions
        said = {"action": "accept", "content": {"value": "x"}}
        came = await call.round({first: said})
        while not came.questions:
            came = await call.round()
        assert second in came.questions
        came = await call.round({second: said, "unknown": said})
        while isinstance(came, Pending):
            came = await call.round()
        assert came.text == "done"
    if version == NEWEST:
        assert len(shop.replies) == 2


@REVISIONS
async def test_each_round_can_be_made_separately(
    version: str, autojump_clock: Any
) -> None:
    shop = Shop(version=version, rounds=[["Who?"]])
    async with shop.client() as client:
        call = client.start("tools/call", {"name": "tool", "arguments": {}})
        statuses = []
        came = await call.round()
        while isinstance(came, Pending):
            assert came.task is not None
            statuses.append((came.task.status, len(came.questions)))
            came = await call.round()
    assert isinstance(came, Result)
    assert ("input_required", 1) in statuses
    assert statuses[0] == ("working", 0)


# ---- early questions ----------------------------------------------------------------


async def test_question_between_polls_is_kept_until_the_next(
    autojump_clock: Any,
) -> None:
    """Servers may send it on any stream ("clients SHOULD expect messages to be delivered
    on any SSE stream, including the HTTP GET stream").
    """
    shop = Shop(rounds=[["Who?"]], polls=2)

    async def get(message: Any) -> Any:
        if len(shop.requests("tasks/get")) == 2:
            await shop._say(shop.stream)
        return await shop._tasks_get(Asking(message, shop, shop.stream))

    shop.said["tasks/get"] = get
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"
    (reply,) = shop.replies
    assert reply["id"] == "early-0-0"
    assert reply["result"]["content"] == {"value": "Who?"}


async def test_early_questions_share_one_result(autojump_clock: Any) -> None:
    """Both come before `tasks/result`, and both are answered in one round."""
    shop = Shop(rounds=[["Who?", "And?"]], polls=2)

    async def get(message: Any) -> Any:
        if len(shop.requests("tasks/get")) == 2:
            await shop._say(shop.stream)
        return await shop._tasks_get(Asking(message, shop, shop.stream))

    shop.said["tasks/get"] = get
    async with shop.client() as client:
        result = await client.call_tool("tool")
    assert (result.text, result.rounds) == ("done", 2)
    assert sorted(one["id"] for one in shop.replies) == ["early-0-0", "early-0-1"]
    assert shop.methods.count("tasks/result") == 1


@pytest.mark.parametrize("early", ["stream", "call"])
async def test_question_before_the_handle_is_answered(
    early: str, autojump_clock: Any
) -> None:
    """The client does not know the task yet; the question names it nevertheless.

    The question comes on the session's stream, or on the call's, before the response.
    """
    shop = Shop(rounds=[["Who?"]], early=early, polls=0)
    async with shop.client(timeout=30) as client:
        assert (await client.call_tool("tool")).text == "done"
    assert [one["id"] for one in shop.replies] == ["early-0-0"]


async def test_question_of_an_unknown_task_is_answered_on_its_own(
    autojump_clock: Any,
) -> None:
    shop = Shop(rounds=[["Who?"]])
    async with shop.client():
        await shop._say(shop.stream)
        await until(lambda: shop.replies)
    assert shop.replies[0]["result"]["content"] == {"value": "Who?"}


@pytest.mark.parametrize(
    "meta", [None, 5, {}, {RELATED_TASK: 5}, {RELATED_TASK: {"taskId": 5}}], ids=repr
)
async def test_question_with_malformed_metadata_belongs_to_no_task(
    meta: Any, autojump_clock: Any
) -> None:
    shop = Shop()
    async with shop.client():
        params = {**FORM, "_meta": meta}
        await shop.stream(
            {
                "jsonrpc": "2.0",
                "id": 7,
                "method": "elicitation/create",
                "params": params,
            }
        )
        await until(lambda: shop.replies)
    assert "result" in shop.replies[0]


async def test_notification_about_a_task_is_passed_over(autojump_clock: Any) -> None:
    """ "Requestors MUST NOT rely on receiving this notification": this one polls."""
    shop = Shop(polls=2)

    async def get(message: Any) -> Any:
        status = "notifications/tasks/status"
        for told in (
            {"method": status, "params": described("completed")},
            {"method": "notifications/message", "params": {"data": 1, "_meta": META}},
            {"method": status},
        ):
            await shop.stream({"jsonrpc": "2.0", **told})
        return await shop._tasks_get(Asking(message, shop, shop.stream))

    shop.said["tasks/get"] = get
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"


async def test_progress_comes_through_while_the_result_is_awaited(
    autojump_clock: Any,
) -> None:
    """On the stream of `tasks/result`."""
    shop = Shop()
    told: list[Any] = []

    async def serve(asking: Asking) -> Any:
        params = {"progressToken": 5, "progress": 1}
        await asking.say(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        )
        return DONE

    shop.serves = serve
    async with shop.client(on_progress=told.append) as client:
        assert (await client.call_tool("tool")).text == "done"
    assert [one["progress"] for one in told] == [1]


async def test_question_that_was_announced_may_come_late(autojump_clock: Any) -> None:
    """The status says `input_required`, and no question comes for a while."""
    shop = Shop(rounds=[["Who?"]], polls=0)
    began = anyio.current_time()

    async def late(asking: Asking) -> Any:
        await anyio.sleep(5)
        return await shop.result_of(asking)

    shop.serves = late
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"
        assert 5 <= anyio.current_time() - began < 10
    assert shop.methods.count("tasks/result") == 1
    assert shop.methods.count("tasks/get") >= 4


# ---- errors -------------------------------------------------------------------------


@REVISIONS
@pytest.mark.parametrize("data", [{}, {"data": {"shelf": 5}}], ids=repr)
async def test_error_of_the_task_is_raised(
    version: str, data: Any, autojump_clock: Any
) -> None:
    """The error of the tool, not one of this client."""
    shop = Shop(version=version, end=fails(-32050, **data))
    async with shop.client() as client:
        with pytest.raises(ProtocolError, match="no") as caught:
            await client.call_tool("tool")
    assert caught.value.code == -32050
    assert caught.value.data == data.get("data")
    assert "tasks/cancel" not in shop.methods


@REVISIONS
async def test_failed_tool_is_a_result(version: str, autojump_clock: Any) -> None:
    shop = Shop(version=version, end={**DONE, "isError": True})
    async with shop.client() as client:
        result = await client.call_tool("tool")
    assert result.fields["isError"] is True


@REVISIONS
@pytest.mark.parametrize("code", [-32601, -32602])
async def test_error_of_a_poll_is_raised(
    version: str, code: int, autojump_clock: Any
) -> None:
    """The task may have been removed."""
    shop = Shop(version=version, said={"tasks/get": fails(code)})
    async with shop.client() as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("tool")
    assert caught.value.code == code


@REVISIONS
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result"])
async def test_failure_of_a_connection_is_repeated(
    version: str, method: str, autojump_clock: Any
) -> None:
    """The task continues on the server."""
    shop = Shop(version=version)
    failures = iter([ChannelError("away"), ChannelError("away")])
    own = {"tasks/get": shop._tasks_get, "tasks/result": shop._tasks_result}[method]

    def reply(message: Any) -> Any:
        return next(failures, None) or own(Asking(message, shop, shop.stream))

    shop.said[method] = reply
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"
    assert shop.methods.count(method) >= 3


@REVISIONS
@pytest.mark.parametrize("status", ["working", "input_required"])
async def test_task_that_was_cancelled_elsewhere_is_an_error(
    version: str, status: str, autojump_clock: Any
) -> None:
    shop = Shop(version=version, polls=1)
    shop.said["tasks/get"] = lambda message: described(
        status if len(shop.requests("tasks/get")) == 1 else "cancelled",
        statusMessage="by the operator",
    )

    async def serve(asking: Asking) -> Any:
        if version == DRAFT:
            question = {"method": "elicitation/create", "params": FORM}
            return {"inputRequests": {"q": question}}
        await anyio.sleep_forever()

    shop.serves = serve
    shop.said["tasks/input_response"] = {}
    async with shop.client() as client:
        with pytest.raises(TaskCancelled, match="by the operator"):
            await client.call_tool("tool")
        line: Any = client._line
        await until(lambda: not line._calls)


# ---- cancel -------------------------------------------------------------------------


@REVISIONS
@pytest.mark.parametrize("rounds", [[], [["Who?"]]], ids=repr)
async def test_call_that_is_cancelled_cancels_its_task(
    version: str, rounds: Any, autojump_clock: Any
) -> None:
    """While it works, and while its user thinks."""

    async def never(form: Form) -> Any:
        await anyio.sleep_forever()

    shop = Shop(version=version, rounds=rounds, polls=0 if rounds else 10**9)
    async with shop.client(elicit=never, timeout=30) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("tool")
        assert shop.requests("tasks/cancel")[0]["params"] == {"taskId": ID}
        if rounds and version == NEWEST:
            await until(lambda: shop.cancelled)
            assert shop.cancelled == [shop.requests("tasks/result")[0]["id"]]
        line: Any = client._line
        assert not line._tasks._followed


@REVISIONS
@pytest.mark.parametrize("reply", [fails(-32602), fails(-32601), 5])
async def test_cancel_that_is_refused_is_logged(
    version: str,
    reply: Any,
    autojump_clock: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first error counts."""
    shop = Shop(version=version, polls=10**9, said={"tasks/cancel": reply})
    async with shop.client(timeout=5) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("tool")
    assert "may still run" in caplog.text


async def test_error_of_a_handler_cancels_the_task(autojump_clock: Any) -> None:
    def elicit(form: Form) -> Any:
        raise LookupError("nobody is there")

    shop = Shop(rounds=[["Who?"]])
    async with shop.client(elicit=elicit) as client:
        with pytest.raises(LookupError, match="nobody is there"):
            await client.call_tool("tool")
    assert "tasks/cancel" in shop.methods


# ---- another process ----------------------------------------------------------------


@REVISIONS
@pytest.mark.parametrize("status", ["working", "input_required"])
async def test_task_is_followed_by_another_process(
    version: str, status: str, autojump_clock: Any
) -> None:
    """The server keeps the task, so a stored call can be resumed anywhere."""
    shop = Shop(version=version, rounds=[["Who?"], ["And?"]])
    async with shop.client() as client:
        call = client.start("tools/call", {"name": "tool", "arguments": {}})
        came: Any = await call.round()
        while came.task.status != status:
            came = await call.round()
        stored = json.dumps(came.to_json())
    async with shop.client() as other:
        pending = Pending.from_json(json.loads(stored))
        assert (await other.resume(pending).finish()).text == "done"
    assert values(shop)[-1] == "And?"
    assert "Who?" in values(shop)


async def test_keys_of_two_processes_differ(autojump_clock: Any) -> None:
    """A stored call remembers the keys that it has answered: none may come again."""
    shop = Shop(rounds=[["Who?"]], polls=0)
    keys = set()
    for _ in range(2):
        async with shop.client() as client:
            call = client.start("tools/call", {"name": "tool", "arguments": {}})
            came: Any = await call.round()
            while not came.questions:
                came = await call.round()
            keys |= {*came.questions}
    assert len(keys) == 2


# ---- hostile servers ----------------------------------------------------------------

HANDLES: tuple[Any, ...] = (
    {"task": None},
    {"task": 5},
    {"task": []},
    {"task": {}},
    {"task": {"taskId": 5, "status": "working"}},
    {"task": {"taskId": "", "status": "working"}},
    {"task": {"taskId": "x" * 9_999, "status": "working"}},
    {"task": {"taskId": "\n", "status": "working"}},
    {"task": {"taskId": ID}},
    {"task": described("unknown")},
    {"task": {"taskId": ID, "status": []}},
    {"task": described("working", pollInterval="soon")},
    {"task": described("working", pollInterval=-1)},
    {"task": described("working", pollInterval=float("nan"))},
    {"task": described("working", statusMessage=5)},
)


@REVISIONS
@pytest.mark.parametrize("handle", HANDLES, ids=lambda one: str(one)[:60])
async def test_malformed_handle_is_an_error(version: str, handle: Any) -> None:
    shop = Shop(version=version, said={"tools/call": handle})
    async with shop.client() as client:
        with pytest.raises(ReplyError):
            await client.call_tool("tool")


@REVISIONS
async def test_server_that_ignores_task_is_taken_at_its_word(version: str) -> None:
    """A plain result of a call that asked for a task."""
    shop = Shop(version=version, said={"tools/call": DONE})
    async with shop.client() as client:
        assert (await client.call_tool("tool")).text == "done"


async def test_task_that_was_not_asked_for_is_no_task() -> None:
    shop = Shop(
        tools={"tool": "optional"},
        said={"tools/call": {**DONE, "task": described("working")}},
    )
    async with shop.client() as client:
        result = await client.call_tool("tool")
    assert result.text == "done"
    assert "tasks/get" not in shop.methods


@REVISIONS
@pytest.mark.parametrize(
    "found",
    [
        5,
        None,
        [],
        {},
        {"taskId": "other", "status": "working"},
        {"taskId": ID, "status": "unknown"},
        {"taskId": ID, "status": {}},
        described("working", pollInterval=-5),
        described("working", statusMessage={}),
        # Fields of the extension do not replace the fields of 2025-11-25.
        {**described("working"), "pollInterval": None, "pollIntervalMs": "x"},
    ],
    ids=repr,
)
async def test_malformed_description_is_an_error(
    version: str, found: Any, autojump_clock: Any
) -> None:
    shop = Shop(version=version, said={"tasks/get": found})
    async with shop.client() as client:
        with pytest.raises(ReplyError):
            await client.call_tool("tool")


@REVISIONS
@pytest.mark.parametrize("end", [5, None, [], "x"], ids=repr)
async def test_malformed_result_is_an_error(
    version: str, end: Any, autojump_clock: Any
) -> None:
    shop = Shop(version=version)
    shop.said["tasks/result"] = lambda message: {"result": end}
    async with shop.client() as client:
        with pytest.raises(ReplyError):
            await client.call_tool("tool")


@pytest.mark.parametrize("questions", [5, None, [], {"q": 5}, {"q": {}}], ids=repr)
async def test_malformed_questions_of_a_draft_are_an_error(
    questions: Any, autojump_clock: Any
) -> None:
    shop = Shop(version=DRAFT, rounds=[["Who?"]])
    shop.said["tasks/result"] = {"inputRequests": questions}
    async with shop.client() as client:
        with pytest.raises(ReplyError):
            await client.call_tool("tool")


async def test_acknowledgement_that_is_refused_is_an_error(autojump_clock: Any) -> None:
    shop = Shop(version=DRAFT, rounds=[["Who?"]])
    shop.said["tasks/input_response"] = fails(-32602)
    async with shop.client() as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("tool")
    assert caught.value.code == -32602


async def test_endless_questions_of_a_task_end_in_rounds(autojump_clock: Any) -> None:
    from effectmcp.client import RoundsError

    shop = Shop(rounds=[["Who?"]] * 20, polls=0)
    async with shop.client(rounds=3) as client:
        with pytest.raises(RoundsError):
            await client.call_tool("tool")
    assert "tasks/cancel" in shop.methods


@pytest.mark.parametrize("responses", [{}, {"q": 5}, {"unknown": {"a": 1}}], ids=repr)
async def test_raw_answers_to_no_question_are_acknowledged(
    responses: Any, autojump_clock: Any
) -> None:
    """The extension does the same; answers other than objects are passed on unchanged."""
    shop = Shop(polls=10**9)
    async with shop.client() as client:
        params = {"taskId": ID, "inputResponses": responses}
        assert await client.request("tasks/update", params) == {}
        assert shop.replies == []


async def test_raw_answer_that_is_no_object_is_sent(autojump_clock: Any) -> None:
    shop = Shop(rounds=[["Who?"]], polls=0)
    async with shop.client() as client:
        found: Any = {}
        while "inputRequests" not in found:
            found = await client.request("tasks/get", {"taskId": ID})
        (key,) = found["inputRequests"]
        params = {"taskId": ID, "inputResponses": {key: 5}}
        assert await client.request("tasks/update", params) == {}
    assert shop.replies[0]["result"] == 5


# ---- our server ---------------------------------------------------------------------

_texts = st.sampled_from(["Ann", "Bob", "Cid"])


def of_our_own(parts: list[Any], end: str) -> Server:
    """A server whose tool asks these questions."""
    app = Server(
        "shop", keys=Keys(make_key(bytes(32))), tasks=SqliteTasks(), drafts=True
    )

    @app.tool(task="required")
    def tool() -> Flow[str]:
        said: list[str] = []
        for part in parts:
            if part is None:
                yield from Sleep(0)
            elif isinstance(part, str):
                said.append((yield from Elicit(f"{part}?", str)))
            else:
                said += yield from Gather(*[Elicit(f"{one}!", str) for one in part])
        if end == "fail":
            raise ToolError(" ".join(["no", *said]))
        if end == "refuse":
            raise ProtocolError(-32050, " ".join(["no", *said]), {"n": len(said)})
        return " ".join(said)

    assert app.tasks is not None
    app.tasks.poll_interval = 0.001
    return app


@pytest.mark.parametrize("end", ["return", "fail", "refuse"])
@pytest.mark.parametrize("parts", [[], ["Ann", None, ("Bob", "Cid")]], ids=repr)
async def test_our_client_sees_one_kind_of_tasks(parts: Any, end: str) -> None:
    """On each wire, the client sees the same questions and the same end."""
    lives = []
    for options in ({}, {"version": NEWEST}, {"drafts": True}):
        app = of_our_own(parts, end)
        seen: list[str] = []

        def elicit(form: Form, seen: list[str] = seen) -> dict[str, Any]:
            seen.append(form.message)
            return {"value": form.message.lower()}

        async with on_trio.running(app), working(on_trio, app):
            async with Client(
                InMemory(app, principal="ann"), elicit=elicit, timeout=30, **options
            ) as client:
                found: Any
                try:
                    result = await client.call_tool("tool")
                    found = result.text, result.fields.get("isError")
                except ProtocolError as exc:
                    found = exc.code, exc.message, exc.data
        lives.append((sorted(seen), found))
    assert lives[0] == lives[1] == lives[2]
    said = "ann? bob! cid!" if parts else ""
    wanted = {
        "return": (said, None),
        "fail": (f"no {said}".strip(), True),
        "refuse": (-32050, f"no {said}".strip(), {"n": 3 if parts else 0}),
    }
    assert lives[0][1] == wanted[end]


@given(
    st.lists(st.lists(_texts, min_size=1, max_size=3), max_size=3),
    st.sampled_from([NEWEST, DRAFT]),
    st.integers(0, 3),
)
def test_each_question_of_a_task_is_answered_once(
    rounds: list[list[str]], version: str, polls: int
) -> None:
    """However many there are, and however often the task is polled before."""
    import trio
    from trio.testing import MockClock

    wanted = sorted(one for batch in rounds for one in batch)
    shop = Shop(version=version, rounds=[[*one] for one in rounds], polls=polls)

    async def main() -> None:
        async with shop.client() as client:
            result = await client.call_tool("tool")
            assert (result.text, result.rounds) == ("done", len(rounds) + 1)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert sorted(values(shop)) == wanted
