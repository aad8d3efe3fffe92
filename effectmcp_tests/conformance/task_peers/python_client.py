"""A client on the Python SDK, which does what each line of its input says: see `peers`.

python python_client.py SETUP COMMAND ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import anyio

# Version 1 of the SDK, in an environment of its own: type checkers see version 2.
mcp: Any = import_module("mcp")
types: Any = mcp.types
ExperimentalTaskHandlers: Any = import_module(
    "mcp.client.experimental.task_handlers"
).ExperimentalTaskHandlers
InMemoryTaskStore: Any = import_module(
    "mcp.shared.experimental.tasks.in_memory_task_store"
).InMemoryTaskStore

#: Milliseconds that tasks are kept.
TTL: Final = 600_000


def to_json(value: Any) -> Any:
    """Return a value of the SDK as JSON of the protocol."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


class User:
    """The answers of the user and of the model.

    Args:
        answers: The answers to forms, by their messages.

    Attributes:
        asked: The params of each question.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers
        self.asked: list[Any] = []

    async def elicit(self, context: Any, params: Any) -> Any:
        """Fill in a form."""
        self.asked.append(to_json(params))
        return types.ElicitResult(**self._answers[params.message])

    async def sample(self, context: Any, params: Any) -> Any:
        """Write a message."""
        self.asked.append(to_json(params))
        content = types.TextContent(type="text", text="All is well")
        return types.CreateMessageResult(role="assistant", content=content, model="m")


class UserTasks:
    """Answers that are tasks of this client, and that end after one look at them.

    Attributes:
        polled: The status at each look.
    """

    def __init__(self, user: User) -> None:
        self._user = user
        self._store = InMemoryTaskStore()
        self._answers: dict[str, Any] = {}
        self.polled: list[str] = []

    def handlers(self) -> Any:
        """Return what the SDK calls."""
        return ExperimentalTaskHandlers(
            get_task=self._look,
            get_task_result=self._result,
            augmented_elicitation=self._elicit,
            augmented_sampling=self._sample,
        )

    async def _elicit(self, context: Any, params: Any, task: Any) -> Any:
        return await self._begin(task, await self._user.elicit(context, params))

    async def _sample(self, context: Any, params: Any, task: Any) -> Any:
        return await self._begin(task, await self._user.sample(context, params))

    async def _begin(self, metadata: Any, answer: Any) -> Any:
        task = await self._store.create_task(metadata)
        self._answers[task.taskId] = answer
        return types.CreateTaskResult(task=task)

    async def _look(self, context: Any, params: Any) -> Any:
        task = await self._store.get_task(params.taskId)
        self.polled.append(task.status)
        answer = self._answers.pop(params.taskId, None)
        if answer is not None:
            await self._store.store_result(params.taskId, answer)
            await self._store.update_task(params.taskId, "completed")
        return types.GetTaskResult(**task.model_dump())

    async def _result(self, context: Any, params: Any) -> Any:
        result = await self._store.get_result(params.taskId)
        return types.GetTaskPayloadResult.model_validate(to_json(result))


class Requests:
    """The requests of a test."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tasks = session.experimental

    async def tools(self) -> Any:
        """Return which tools can be tasks."""
        found = await self._session.list_tools()
        return {
            one.name: one.execution and one.execution.taskSupport for one in found.tools
        }

    async def call(self, tool: str, arguments: Any) -> Any:
        """Call a tool without a task."""
        return to_json(await self._session.call_tool(tool, arguments))

    async def start(self, tool: str, arguments: Any) -> Any:
        """Call a tool as a task."""
        created = await self._tasks.call_tool_as_task(tool, arguments, ttl=TTL)
        return to_json(created.task)

    async def run(self, tool: str, arguments: Any) -> Any:
        """Call a tool as a task, and follow it as the documentation of the SDK does."""
        id_ = (await self.start(tool, arguments))["taskId"]
        seen, result = [], None
        async for one in self._tasks.poll_task(id_):
            seen.append({"status": one.status, "message": one.statusMessage})
            if one.status == "input_required":
                result = await self.result(id_)
        return {
            "task": id_,
            "seen": seen,
            "result": result or await self.result(id_),
        }

    async def look(self, task: str) -> Any:
        """Return the description of a task."""
        return to_json(await self._tasks.get_task(task))

    async def result(self, task: str) -> Any:
        """Return the result of a task."""
        return to_json(await self._tasks.get_task_result(task, types.CallToolResult))

    async def cancel(self, task: str) -> Any:
        """Cancel a task."""
        return to_json(await self._tasks.cancel_task(task))


async def main(setup: Mapping[str, Any], server: Sequence[str]) -> None:
    """Make the requests, one after the other."""
    command, *args = server
    user = User(setup["answers"])
    tasks = UserTasks(user)
    async with (
        mcp.stdio_client(
            mcp.StdioServerParameters(command=command, args=args)
        ) as streams,
        mcp.ClientSession(
            *streams,
            elicitation_callback=user.elicit,
            sampling_callback=user.sample,
            experimental_task_handlers=tasks.handlers() if setup["tasks"] else None,
        ) as session,
    ):
        await session.initialize()
        requests = Requests(session)
        async for line in anyio.wrap_file(sys.stdin):
            wanted = json.loads(line)
            reply: dict[str, Any]
            try:
                reply = {"value": await getattr(requests, wanted.pop("do"))(**wanted)}
            except mcp.McpError as exc:
                reply = {"error": to_json(exc.error)}
            except ValueError as exc:  # a response that the SDK cannot read
                reply = {"error": {"message": str(exc)}}
            reply.update(asked=user.asked, polled=tasks.polled)
            print(json.dumps(reply), flush=True)
            user.asked, tasks.polled = [], []


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]), sys.argv[2:])
