"""Tasks of 2025-11-25 and of the drafts, as the tasks extension has them.

`HandshakeAdapter` uses this, so that the client above knows one kind of tasks:

    above            below, 2025-11-25                     below, drafts
    tools/call       with `task`, if the tool requires it  the same
    tasks/get        tasks/get; tasks/result at the end,   tasks/get; tasks/result
                     and while questions are outstanding
    tasks/update     replies to the questions              tasks/input_response
    tasks/cancel     tasks/cancel                          tasks/cancel

A server of 2025-11-25 sends the questions of a task as requests, while `tasks/result`
runs. Some servers send them at any other time, so each is assigned by its `_meta`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, field

from ..canonical import JSON
from ..errors import ProtocolError
from ..protocol.meta import RELATED_TASK
from .errors import ReplyError
from .limits import LARGEST, memory_of

if TYPE_CHECKING:
    from .channels import Frame, Hear
    from .handshakes import HandshakeAdapter, RunningCall

__all__ = ["TASK_METHODS", "SessionTasks", "TaskTools"]

#: Which tools are called as tasks: tools that require it, or also tools that allow it.
TaskTools = Literal["required", "optional", "never"]

#: The methods of the extension that this translates.
TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})

#: The most pages of tools that are read to find out which require tasks.
_MOST_PAGES: Final = 100

#: The most questions of a task that are kept while it is not read, and their size.
_MOST_EARLY: Final = 1_000
_LONGEST_EARLY: Final = 64 * 1024

#: Seconds to wait for a question that a server has announced by its status.
_SOON: Final = 1.0

#: Fields of a task, and their names in the extension.
_NAMES: Final[Mapping[str, str]] = {"ttl": "ttlMs", "pollInterval": "pollIntervalMs"}


@define(eq=False)
class _Followed:
    """A task that this client follows.

    Attributes:
        call: The running `tasks/result`; `None` if it does not run.
        state: Its name in the adapter.
        early: Questions that came while it did not run.
        state_below: The `requestState` of a draft's questions.
    """

    call: RunningCall | None = None
    state: str = ""
    early: list[Frame] = field(factory=list)
    state_below: JSON = None


class SessionTasks:
    """The tasks of one session.

    Args:
        adapter: Sends the requests.
        tools: Which tools are called as tasks.
    """

    def __init__(self, adapter: HandshakeAdapter, tools: TaskTools) -> None:
        self._adapter = adapter
        self._tools = tools
        self._support: dict[str, object] | None = None
        self._followed: dict[str, _Followed] = {}

    def forget_tools(self) -> None:
        """Forget which tools require tasks: they have changed, or the server has."""
        self._support = None

    # ---- tools/call -----------------------------------------------------------------

    async def asks_for_task(self, name: JSON, capabilities: JSON) -> bool:
        """Return whether to ask that a call of this tool becomes a task."""
        if self._tools == "never" or not _is_declared(capabilities):
            return False
        if self._support is None:
            self._support = await self._read_support()
        support = self._support.get(str(name))
        return support == "required" or support == self._tools

    async def _read_support(self) -> dict[str, object]:
        found: dict[str, object] = {}
        cursor: JSON = None
        size = 0
        for _ in range(_MOST_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            page = await self._adapter.own_request("tools/list", params)
            size += memory_of(dict(page))
            if size > LARGEST:
                raise ReplyError(f"tools/list takes more than {LARGEST:,} bytes")
            tools = page.get("tools")
            for tool in tools if isinstance(tools, list) else ():
                execution = tool.get("execution") if isinstance(tool, dict) else None
                if isinstance(execution, dict):
                    found[str(tool.get("name"))] = execution.get("taskSupport")
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return found

    def announced(
        self, result: Mapping[str, Any], asked: Iterable[Frame]
    ) -> dict[str, JSON]:
        """Return the result that announces a task, in the form of the extension.

        Args:
            result: The result of the server.
            asked: Questions that came before it, on the stream of the call.

        Raises:
            ReplyError: If it does not describe a task.
        """
        task = result.get("task")
        if not isinstance(task, dict):
            raise ReplyError("a task without a description")
        id_ = str(task.get("taskId"))
        early = [one for one in asked if _task_of(one) == id_ and _is_kept(one)]
        if early:
            self._followed.setdefault(id_, _Followed()).early += early[:_MOST_EARLY]
        return {**_translated(task), "resultType": "task"}

    # ---- the methods of the extension -----------------------------------------------

    async def answer(self, message: Frame, hear: Hear) -> Mapping[str, JSON]:
        """Return the fields of the result of a request above.

        Raises:
            ProtocolError: If the server responds with an error.
            ReplyError: If its response is invalid.
            ChannelError: If it cannot be reached.
        """
        method, params = message["method"], message["params"]
        id_ = params["taskId"]
        one = self._followed.setdefault(id_, _Followed())
        if method == "tasks/get":
            return await self._get(id_, one, hear)
        if method == "tasks/update":
            return await self._update(id_, one, params["inputResponses"])
        await self._adapter.own_request("tasks/cancel", {"taskId": id_})
        self._leave(id_)
        return {}

    async def _get(self, id_: str, one: _Followed, hear: Hear) -> Mapping[str, JSON]:
        if one.call is not None or one.early:
            found = await self._listened(id_, one, hear, until=-math.inf)
            if found is not None:
                return found
        task = _translated(
            await self._adapter.own_request("tasks/get", {"taskId": id_})
        )
        status = task.get("status")
        if status == "cancelled":
            self._leave(id_)
        if status not in ("input_required", "completed", "failed"):
            return task
        if self._adapter.retries:
            return await self._result(id_, one, task)
        if one.call is None:
            one.state, one.call = self._adapter.begin_task_result(id_)
        is_asking = status == "input_required"
        until = self._adapter.time() + _SOON if is_asking else math.inf
        found = await self._listened(id_, one, hear, until=until)
        # No question has come yet: look again.
        return found or {**task, "status": "working"}

    async def _result(
        self, id_: str, one: _Followed, task: dict[str, JSON]
    ) -> Mapping[str, JSON]:
        """Return the description of a draft's task, with its questions or its end."""
        try:
            result = await self._adapter.own_request("tasks/result", {"taskId": id_})
        except ProtocolError as exc:
            return self._ended(id_, _error_of(exc))
        if "inputRequests" not in result:
            return self._ended(id_, {"status": "completed", "result": result})
        one.state_below = result.get("requestState")
        questions = result["inputRequests"]
        return {**task, "status": "input_required", "inputRequests": questions}

    async def _listened(
        self, id_: str, one: _Followed, hear: Hear, *, until: float
    ) -> Mapping[str, JSON] | None:
        """Return the description of a task, by what arrives; `None` if nothing does."""
        for question in one.early:
            if one.call is None:
                one.state, one.call = self._adapter.begin_task_result(id_)
            one.call.put(question)
        one.early.clear()
        call = one.call
        assert call is not None  # it runs
        try:
            asked, response = await self._adapter.next_of_task(
                call, hear, until, new_key=_new_key
            )
        except BaseException:
            # A later look begins another one.
            self._leave(id_)
            raise
        if response is not None:
            error = response.get("error")
            if error is not None:
                return self._ended(id_, {"status": "failed", "error": error})
            return self._ended(
                id_, {"status": "completed", "result": response.get("result")}
            )
        if not asked:
            return None
        return {
            "taskId": id_,
            "status": "input_required",
            "inputRequests": asked,
            "pollIntervalMs": 0,
        }

    async def _update(
        self, id_: str, one: _Followed, responses: Mapping[str, Any]
    ) -> Mapping[str, JSON]:
        meta = {RELATED_TASK: {"taskId": id_}}
        if self._adapter.retries:
            params = {"inputResponses": dict(responses), "_meta": meta}
            if one.state_below is not None:
                params["requestState"] = one.state_below
            await self._adapter.own_request("tasks/input_response", params)
            return {}
        call = one.call
        if call is not None:
            with_meta = {
                key: {**said, "_meta": meta} if isinstance(said, dict) else said
                for key, said in responses.items()
            }
            await self._adapter.reply_to(call, with_meta)
        return {}

    def _ended(self, id_: str, fields: Mapping[str, JSON]) -> Mapping[str, JSON]:
        self._leave(id_)
        return {"taskId": id_, **fields}

    def _leave(self, id_: str) -> None:
        one = self._followed.pop(id_, None)
        if one is not None and one.call is not None:
            self._adapter.leave(one.state)

    # ---- messages of the server -----------------------------------------------------

    def take(self, told: Frame) -> RunningCall | None:
        """Return the call that gets a message of a task; keep the message before a call."""
        one = self._followed[_task_of(told)]
        if one.call is None and len(one.early) < _MOST_EARLY and _is_kept(told):
            one.early.append(told)
        return one.call

    def is_of_task(self, told: Frame) -> bool:
        """Return whether a message belongs to a task that is followed."""
        return "id" in told and _task_of(told) in self._followed


def _is_kept(told: Frame) -> bool:
    """Return whether a question is short enough to be kept."""
    return memory_of(dict(told)) <= _LONGEST_EARLY


def _task_of(told: Frame) -> str:
    """Return the id of the task to which a message belongs; empty if to none."""
    params = told.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    named = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    id_ = named.get("taskId") if isinstance(named, dict) else None
    return id_ if isinstance(id_, str) else ""


def _is_declared(capabilities: JSON) -> bool:
    """Return whether a server has tasks for calls of tools."""
    found = capabilities
    for name in ("tasks", "requests", "tools", "call"):
        found = found.get(name) if isinstance(found, dict) else None
    return isinstance(found, dict)


def _translated(task: Mapping[str, Any]) -> dict[str, JSON]:
    """Return a task in the form of the extension."""
    return {_NAMES.get(key, key): one for key, one in task.items() if key != "_meta"}


def _new_key() -> str:
    # Random: a task may be followed by another process later, where no key may recur.
    return f"question-{secrets.token_urlsafe(9)}"


def _error_of(error: ProtocolError) -> dict[str, JSON]:
    found: dict[str, JSON] = {"code": error.code, "message": error.message}
    if error.data is not None:
        found["data"] = error.data
    return {"status": "failed", "error": found}
