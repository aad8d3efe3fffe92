"""Each cell of the table in `task_wires`: who says what of tasks, on which wire.

A `World` is a server whose tasks run in this thread, at a time that moves only when a
request waits. So a test sees every state that a client can see, in each run.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Cancelled,
    Confirm,
    Detach,
    Elicit,
    Flow,
    Gather,
    ProtocolError,
    Sample,
    Server,
    Sleep,
    Status,
    ToolError,
    step,
)
from effectmcp.drivers import sync
from effectmcp.drivers.local import Mailbox
from effectmcp.engine.stops import Done, Failure
from effectmcp.errors import TaskLimitError, TaskStoreError
from effectmcp.exchange import task_wires
from effectmcp.exchange.commands import Ask, Invoke, Notify, Peer, PerformAll, Reply
from effectmcp.exchange.handle import handle as begin
from effectmcp.exchange.sessions import Inquiry, News
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.protocol.meta import RELATED_TASK, TASKS
from effectmcp.server.changes import Change
from effectmcp.tasks.turn import ReadMail, Save, Start, TellTime, Wait, turn

from ..legacy_client import LegacyClient
from ..wire import EVERYTHING, KEYS, Wire, error, request, text_of
from .test_tasks import Rows

MODERN: Final = "2026-07-28"
NEWEST: Final = "2025-11-25"
DRAFT: Final = "2026-06-XX"
OLDER: Final = "2025-06-18"
#: The columns of the table; and a revision without tasks.
REQUESTED: Final = (NEWEST, DRAFT)
WIRES: Final = (MODERN, *REQUESTED)

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603

#: Answers a question: the result of a client, or its error.
Answer = Callable[[Wire], Wire | None]


# ---- the world ----------------------------------------------------------------------


@attrs.define(eq=False)
class Turns(Rows):
    """A `TaskHost` that runs turns when a test plays them, at a time that the test sets."""

    now: float = 1_800_000_000.0
    #: Called instead of storing mail.
    lost: Callable[[str], None] | None = None
    _letters: dict[str, list[Mail]] = attrs.field(factory=dict)
    _is_woken: set[str] = attrs.field(factory=set)

    def read(self, id_: str) -> TaskRow | None:
        row = super().read(id_)
        if row is None:
            return None
        letters = self._letters.get(id_, [])
        return row.without(one.key for one in letters if one.kind == "answer")

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        found = super().owned(owner, after=after, limit=limit)
        rows = [self.read(row.id) for row in found]
        return [row for row in rows if row is not None]

    def post(self, id_: str, mail: Sequence[Mail]) -> None:
        if self.lost is not None:
            return self.lost(id_)
        super().post(id_, mail)
        if id_ not in self.rows or self.rows[id_].is_ended:
            return
        letters = self._letters.setdefault(id_, [])
        for one in mail:
            if all(one.id != other.id for other in letters):
                letters.append(one)
                self._is_woken.add(id_)

    def due(self) -> str | None:
        """The id of a task whose turn is due."""
        for id_, row in self.rows.items():
            is_late = row.wake is not None and row.wake <= self.now
            if not row.is_ended and (is_late or id_ in self._is_woken):
                return id_
        return None

    def play(self, app: Server, id_: str) -> None:
        """Run a turn."""
        self._is_woken.discard(id_)
        row = self.rows[id_]
        going = turn(app, TaskRow.loads(row.dumps(), row.journal))
        letters = list(self._letters.get(id_, []))
        outcomes: dict[str, Done | Failure] = {}
        try:
            command = next(going)
            while True:
                outcome: Any = None
                match command:
                    case TellTime():
                        outcome = self.now
                    case ReadMail():
                        outcome, letters = letters, []
                    case Save(row, dropped):
                        self.rows[id_] = row
                        kept = self._letters.get(id_, [])
                        self._letters[id_] = [
                            one for one in kept if one.id not in dropped
                        ]
                        app.changes.publish(Change("task", id_))
                    case Start(wants):
                        outcomes |= {one.key: sync.perform(one) for one in wants}
                    case Wait():
                        outcome, outcomes = outcomes, {}
                    case _:
                        pass
                command = going.send(outcome)
        except StopIteration:
            pass


#: More moments than any test needs: a request that still waits then waits for ever.
_PATIENCE: Final = 2_000


@attrs.define(eq=False)
class World:
    """A server, its tasks, and the time.

    Attributes:
        host: Keeps the tasks, and runs them.
        app: The server.
        later: What happens next, when a request waits and no turn is due.
        is_working: Whether turns run at all.
        waits: How often a request has waited.
    """

    host: Turns
    app: Server
    later: deque[Callable[[], object]] = attrs.field(factory=deque)
    is_working: bool = True
    waits: int = 0
    _random: random.Random = attrs.field(factory=lambda: random.Random(0))

    def handle(
        self,
        app: Server,
        message: Mapping[str, Any],
        peer: Peer | None = None,
        *,
        send: Callable[[Mapping[str, Any]], None] = lambda message: None,
    ) -> Reply:
        """Answer a message; requests that wait let the time pass."""
        exchange = begin(
            app,
            message,
            peer,
            clock=lambda: self.host.now,
            entropy=self._random.randbytes,
        )
        outcome: Any
        try:
            command = next(exchange)
            for _ in range(_PATIENCE):
                outcome = None
                match command:
                    case Ask(asking):
                        for one in asking.take_unsent():
                            send(one)
                        self._wait(asking)
                    case Notify(one):
                        send(one)
                    case Invoke():
                        try:
                            value = command.function(**command.kwargs)
                            outcome = Done(value)
                        except Exception as exc:
                            outcome = Failure(exc)
                    case PerformAll(wants):
                        outcome = {}
                        for want in wants:
                            if isinstance(want.effect, Sleep):
                                self.pass_(want.effect.seconds)
                                outcome[want.key] = Done(None)
                            else:
                                outcome[want.key] = sync.perform(want)
                    case _:
                        raise AssertionError(command)
                command = exchange.send(outcome)
            raise AssertionError("it works for ever")
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            exchange.close()

    def _wait(self, asking: Inquiry) -> None:
        """Let something happen until a request need not wait any more."""
        self.waits += 1
        assert self.waits < _PATIENCE, "it waits for ever"
        asking.listen(lambda: None)
        while not asking.is_over:
            if self.is_working and (id_ := self.host.due()) is not None:
                self.host.play(self.app, id_)
            elif self.later:
                self.later.popleft()()
            else:
                assert asking.until is not None, "nothing can happen any more"
                self.host.now = max(self.host.now, asking.until)
                return

    def play(self) -> None:
        """Run turns until none is due."""
        while (id_ := self.host.due()) is not None:
            self.host.play(self.app, id_)

    def pass_(self, seconds: float) -> None:
        """Let time pass, and turns run."""
        self.host.now += seconds
        if self.is_working:
            self.play()

    def user(
        self,
        wire: str,
        name: str | None = None,
        *,
        capabilities: Mapping[str, Any] = EVERYTHING,
    ) -> User:
        """A client that speaks a revision."""
        if wire == MODERN:
            return Modern(self, name, capabilities)
        return Older(self, wire, name, capabilities)


def world(*tools: Callable[..., Any], **options: Any) -> World:
    """A world with the tools of this module, and more that are optional tasks."""
    host = Turns()
    app = Server("shop", keys=KEYS, tasks=host, drafts=True, **options)
    app.tool(name="plain")(resting)
    app.tool(name="optional", task="optional")(nap)
    app.tool(name="required", task="required")(nap)
    app.tool(name="deferred", task="deferred")(detaching)
    for one in tools:
        app.tool(task="optional")(one)
    return World(host, app)


# ---- clients ------------------------------------------------------------------------


@attrs.define(eq=False)
class Life:
    """All that a client saw of a call: its questions, and how it ended.

    Attributes:
        asked: The methods and messages of the questions, in order.
        end: The result without `_meta` and `resultType`; or the error.
        statuses: The last status that was reported.
    """

    asked: list[str] = attrs.field(factory=list)
    end: Wire = attrs.field(factory=dict)
    status: str = ""


class User:
    """A client on one wire.

    Attributes:
        told: The notifications on the streams of its requests.
    """

    told: list[Wire]
    #: The method that asks for a task, if asked for at all.
    wire: str

    def send(
        self, method: str, params: Any = None, answer: Answer = lambda one: None
    ) -> Reply:
        """The reply to a request."""
        raise NotImplementedError

    def result(
        self, method: str, params: Any = None, answer: Answer = lambda one: None
    ) -> Wire:
        """The result of a request that has one."""
        reply = self.send(method, params, answer)
        assert reply.message is not None
        assert "result" in reply.message, reply.message
        found: Wire = reply.message["result"]
        return found

    def call(self, name: str, arguments: Any = None, task: Any = None) -> Reply:
        """The reply to a call that may become a task."""
        raise NotImplementedError

    def start(self, name: str, arguments: Any = None, task: Any = None) -> str:
        """The id of the task that a call becomes."""
        reply = self.call(name, arguments, task)
        assert reply.message is not None
        assert "result" in reply.message, reply.message
        result = reply.message["result"]
        id_: str = result.get("task", result)["taskId"]
        return id_

    def get(self, id_: str) -> Wire:
        """The fields of a task."""
        return self.result("tasks/get", {"taskId": id_})

    def follow(self, id_: str, answer: Answer) -> Life:
        """Follow a task to its end, in the way of this wire."""
        raise NotImplementedError


def _kept(result: Wire) -> Wire:
    return {key: one for key, one in result.items() if key not in _AROUND}


#: Fields of a result around the fields of the tool.
_AROUND: Final = frozenset({"_meta", "resultType"})


class Modern(User):
    """A client of 2026-07-28, which declares the extension with each call."""

    wire = MODERN

    def __init__(
        self, world: World, name: str | None, capabilities: Mapping[str, Any]
    ) -> None:
        self._world = world
        self._peer = Peer(principal=name)
        self._capabilities = capabilities
        self.told = []

    def send(
        self, method: str, params: Any = None, answer: Answer = lambda one: None
    ) -> Reply:
        capabilities = {**self._capabilities, "extensions": {TASKS: {}}}
        message = request(method, params or {}, capabilities=capabilities)
        return self._world.handle(self._world.app, message, self._peer)

    def call(self, name: str, arguments: Any = None, task: Any = None) -> Reply:
        params = {"name": name, "arguments": arguments or {}}
        return self.send("tools/call", params)

    def follow(self, id_: str, answer: Answer) -> Life:
        life = Life()
        for _ in range(100):
            self._world.pass_(1)
            found = self.get(id_)
            life.status = found["status"]
            if life.status == "input_required":
                said = {
                    key: _result_of(life, one, answer)
                    for key, one in found["inputRequests"].items()
                }
                self.result("tasks/update", {"taskId": id_, "inputResponses": said})
            elif life.status == "completed":
                life.end = {"result": _kept(found["result"])}
                return life
            elif life.status != "working":
                life.end = {"error": found.get("error")}
                return life
        raise AssertionError("it never ends")


def _result_of(life: Life, question: Wire, answer: Answer) -> Any:
    life.asked.append(_shown(question))
    said = answer(question)
    return None if said is None else said["result"]


def _shown(question: Wire) -> str:
    params = question.get("params", {})
    return f"{question['method']} {params.get('message', '')}"


class Older(User):
    """A client with a session."""

    def __init__(
        self,
        world: World,
        wire: str,
        name: str | None,
        capabilities: Mapping[str, Any],
    ) -> None:
        self.wire = wire
        self._world = world

        def handle(
            app: Server,
            message: Mapping[str, Any],
            peer: Peer | None = None,
            *,
            send: Callable[[Mapping[str, Any]], None] = lambda message: None,
        ) -> Reply:
            peer = attrs.evolve(peer or Peer(), principal=name)
            return world.handle(app, message, peer, send=send)

        self.client = LegacyClient(world.app, wire, capabilities, handle)
        self.told = self.client.told

    @property
    def news(self) -> News:
        """The news of its session."""
        return self.client.session.news

    def send(
        self, method: str, params: Any = None, answer: Answer = lambda one: None
    ) -> Reply:
        return self.client.send(method, params or {}, answer)

    def call(self, name: str, arguments: Any = None, task: Any = None) -> Reply:
        params = {
            "name": name,
            "arguments": arguments or {},
            "task": {} if task is None else task,
        }
        return self.send("tools/call", params)

    def follow(self, id_: str, answer: Answer) -> Life:
        if self.wire == DRAFT:
            return self._follow_draft(id_, answer)
        life = Life()

        def heard(question: Wire) -> Wire | None:
            life.asked.append(_shown(question))
            return answer(question)

        life.end = _end_of(self.send("tasks/result", {"taskId": id_}, heard))
        life.status = self.get(id_)["status"]
        return life

    def _follow_draft(self, id_: str, answer: Answer) -> Life:
        life = Life()
        for _ in range(100):
            self._world.pass_(1)
            life.status = self.get(id_)["status"]
            if life.status == "working":
                continue
            reply = self.send("tasks/result", {"taskId": id_})
            life.end = _end_of(reply)
            questions = life.end.get("result", {}).get("inputRequests")
            if questions is None:
                return life
            said = {
                key: _result_of(life, one, answer) for key, one in questions.items()
            }
            meta = {RELATED_TASK: {"taskId": id_}}
            params = {"inputResponses": said, "_meta": meta}
            assert self.result("tasks/input_response", params) == {"_meta": meta}
        raise AssertionError("it never ends")


def _end_of(reply: Reply) -> Wire:
    assert reply.message is not None
    if "error" in reply.message:
        return {"error": reply.message["error"]}
    return {"result": _kept(reply.message["result"])}


def accepted(value: Any) -> Answer:
    """Accept each question with a value."""
    content = {"value": value}
    return lambda question: {"result": {"action": "accept", "content": content}}


def no_answer(question: Wire) -> None:
    """Leave a question open."""


# ---- tools --------------------------------------------------------------------------


def nap() -> Flow[str]:
    """Sleep."""
    yield from Sleep(0)
    return "rested"


def resting() -> Flow[str]:
    """Do nothing that needs a task."""
    return (yield from rested())


@step
def rested() -> str:
    return "rested"


def detaching(ask: bool = False, detach: bool = True, ttl: float = 3_600) -> Flow[str]:
    """Ask first, if wanted; then detach, if wanted."""
    if ask:
        yield from Confirm("Begin?")
    is_task = (yield from Detach(ttl=ttl)) if detach else None
    return f"task: {is_task}"


def long() -> Flow[str]:
    """Sleep for a day."""
    yield from Sleep(86_000)
    return "rested"


def asking() -> Flow[str]:
    """Ask two questions, one after the other."""
    yield from Status("asking")
    title = yield from Elicit("What?", str)
    count = yield from Elicit("How many?", str)
    return f"{count} x {title}"


def stubborn() -> Flow[str]:
    """Return in spite of a cancel."""
    try:
        yield from Elicit("Who?", str)
    except Cancelled:
        pass
    return "in spite of it"


def tidying() -> Flow[str]:
    """Need a while for the cleanup."""
    try:
        yield from Elicit("Who?", str)
    finally:
        yield from Sleep(20)
    return "not reached"


def failing() -> Flow[str]:
    """Fail as a tool fails."""
    yield from Sleep(0)
    raise ToolError("the shelf is empty")


def refusing() -> Flow[str]:
    """Fail as a request fails."""
    yield from Sleep(0)
    raise ProtocolError(-32050, "no such shelf", {"shelf": 5})


def crashing() -> Flow[str]:
    """Fail without words for the client."""
    yield from Sleep(0)
    raise LookupError("a secret")


# ---- who creates --------------------------------------------------------------------

TOOLS: Final = ("plain", "optional", "required", "deferred")

#: What a call becomes: a code, `task`, or the text of its result. By the wire, by whether
#: the client asks for a task (or declares the extension), and by the tool.
CREATION: Final[Mapping[tuple[str, bool], tuple[Any, ...]]] = {
    (MODERN, False): ("rested", "rested", -32021, "task: False"),
    (MODERN, True): ("rested", "task", "task", "task"),
    (NEWEST, False): ("rested", "rested", METHOD_NOT_FOUND, "task: False"),
    (NEWEST, True): (METHOD_NOT_FOUND, "task", "task", "task"),
    (DRAFT, False): ("rested", "rested", METHOD_NOT_FOUND, "task: False"),
    (DRAFT, True): (METHOD_NOT_FOUND, "task", "task", "task"),
    (OLDER, False): ("rested", "rested", "cannot follow tasks", "task: False"),
    (OLDER, True): ("rested", "rested", "cannot follow tasks", "task: False"),
}


@pytest.mark.parametrize(
    ("wire", "asks", "tool", "becomes"),
    [
        (wire, asks, tool, becomes)
        for (wire, asks), row in CREATION.items()
        for tool, becomes in zip(TOOLS, row, strict=True)
    ],
)
def test_call_becomes_a_task_by_wire_and_tool(
    wire: str, asks: bool, tool: str, becomes: Any
) -> None:
    """Row "who creates", and row "a call that has to be a task"."""
    here = world()
    user = here.user(wire)
    params = {"name": tool, "arguments": {}}
    if asks:
        reply = user.call(tool)
    elif wire == MODERN:
        reply = here.handle(here.app, request("tools/call", params))
    else:
        reply = user.send("tools/call", params)
    if isinstance(becomes, int):
        assert error(reply)["code"] == becomes
        assert here.host.rows == {}
        return
    assert reply.message is not None
    result = reply.message["result"]
    if becomes == "task":
        (row,) = here.host.rows.values()
        assert result.get("task", result)["taskId"] == row.id
        return
    assert becomes in text_of(result)
    assert here.host.rows == {}


def test_error_for_a_required_tool_names_what_is_missing() -> None:
    here = world()
    reply = here.user(NEWEST).send("tools/call", {"name": "required"})
    assert error(reply) == {
        "code": METHOD_NOT_FOUND,
        "message": "Tool required is always a task: call it with `task` in the params",
    }
    reply = here.user(NEWEST).call("plain")
    assert error(reply)["message"] == "Tool plain cannot be called as a task"


def without_host() -> World:
    here = world()
    here.app.tasks = None
    return here


def without_worker() -> World:
    here = world()
    here.host.is_worked = False
    return here


@pytest.mark.parametrize("make", [without_host, without_worker])
@pytest.mark.parametrize("wire", [*REQUESTED, OLDER])
@pytest.mark.parametrize("task", [{}, {"ttl": "x"}, None, 5], ids=repr)
def test_server_without_tasks_ignores_task(
    wire: str, make: Callable[[], World], task: Any
) -> None:
    """ "MUST process requests of that type normally, ignoring any task-augmentation
    metadata" (Tasks, Task Support and Handling).
    """
    here = make()
    user = here.user(wire)
    assert isinstance(user, Older)
    assert "tasks" not in user.client.welcome["capabilities"]
    for tool, said in (
        ("plain", "rested"),
        ("optional", "rested"),
        ("deferred", "False"),
    ):
        params = {"name": tool, "arguments": {}, "task": task}
        assert said in text_of(user.result("tools/call", params))
    listed = user.result("tools/list")["tools"]
    assert not any("execution" in one for one in listed)
    assert here.host.rows == {}


@pytest.mark.parametrize("wire", [MODERN, *REQUESTED])
def test_prompts_ignore_task(wire: str) -> None:
    """The set in `tasks.requests` is exhaustive (Tasks, Capability Negotiation)."""
    here = world()

    @here.app.prompt
    def greeting() -> str:
        return "Hello"

    found = here.user(wire).result("prompts/get", {"name": "greeting", "task": {}})
    assert found["messages"][0]["content"]["text"] == "Hello"


@pytest.mark.parametrize("wire", REQUESTED)
def test_host_that_is_full_is_an_error_of_the_request(wire: str) -> None:
    """A client that asked for a task reads a task, or an error: not a tool's result."""
    here = world()
    user = here.user(wire)
    here.host.failure = TaskLimitError("you have too many tasks")
    assert error(user.call("optional")) == {
        "code": INTERNAL_ERROR,
        "message": "you have too many tasks",
    }


@pytest.mark.parametrize("wire", [MODERN, *REQUESTED])
@pytest.mark.parametrize("asks", [False, True])
def test_arguments_are_read_before_there_is_a_task(wire: str, asks: bool) -> None:
    """Invalid arguments fail the request if it asks for a task."""
    here = world()
    user = here.user(wire)
    arguments = {"ask": "perhaps"}
    if asks:
        reply = user.call("deferred", arguments)
    else:
        reply = user.send("tools/call", {"name": "deferred", "arguments": arguments})
    assert reply.message is not None
    if asks and wire != MODERN:
        assert error(reply)["code"] == INVALID_PARAMS
    else:
        assert reply.message["result"]["isError"]
    assert here.host.rows == {}


# ---- task, ttl ----------------------------------------------------------------------

MALFORMED: Final[tuple[Any, ...]] = (
    [],
    "x",
    5,
    None,
    True,
)
TTLS: Final[tuple[Any, ...]] = ("60000", 0, -1, True, [], {}, 1e15, -1e300, 10**16)


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize("tool", ["optional", "required", "deferred"])
@pytest.mark.parametrize(
    "task", [*MALFORMED, *({"ttl": one} for one in TTLS)], ids=repr
)
def test_malformed_task_is_invalid(wire: str, tool: str, task: Any) -> None:
    here = world()
    params = {"name": tool, "arguments": {}, "task": task}
    reply = here.user(wire).send("tools/call", params)
    assert error(reply)["code"] in (INVALID_PARAMS, -32700)
    assert here.host.rows == {}


@pytest.mark.parametrize("wire", [MODERN, OLDER])
def test_malformed_task_is_ignored_where_nobody_asks_for_one(wire: str) -> None:
    here = world()
    params = {"name": "plain", "arguments": {}, "task": 5}
    assert text_of(here.user(wire).result("tools/call", params)) == "rested"


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize(
    ("tool", "asked", "ttl"),
    [
        ("optional", {}, 60_000),
        ("optional", {"ttl": None}, 60_000),
        ("optional", {"ttl": 30_000}, 30_000),
        ("optional", {"ttl": 59_999.5}, 60_000),
        ("optional", {"ttl": 86_400_000}, 60_000),
        ("optional", {"ttl": 0.25}, 1),
        ("optional", {"ttl": 1, "unknown": 5}, 1),
        ("deferred", {}, 3_600_000),
        ("deferred", {"ttl": 1_000}, 1_000),
        ("deferred", {"ttl": 9e14}, 3_600_000),
    ],
    ids=repr,
)
def test_ttl_is_honoured_up_to_that_of_the_tool(
    wire: str, tool: str, asked: Any, ttl: int
) -> None:
    """ "Receivers MAY override the requested `ttl` duration" (Tasks, TTL)."""
    here = world()
    here.is_working = False
    user = here.user(wire)
    id_ = user.start(tool, task=asked)
    assert user.get(id_)["ttl"] == ttl


def test_extension_does_not_read_task() -> None:
    """There, the server decides, and how long it keeps a task, too."""
    here = world()
    params = {"name": "optional", "arguments": {}, "task": {"ttl": 1}}
    made = here.user(MODERN).result("tools/call", params)
    assert made["ttlMs"] == 60_000


# ---- the handle, get ----------------------------------------------------------------


@pytest.mark.parametrize("wire", REQUESTED)
def test_handle_is_nested(wire: str) -> None:
    here = world()
    here.is_working = False
    user = here.user(wire)
    reply = user.call("optional")
    assert reply.message is not None
    (row,) = here.host.rows.values()
    assert reply.message["result"] == {
        "task": {
            "taskId": row.id,
            "status": "working",
            "createdAt": "2027-01-15T08:00:00.000Z",
            "lastUpdatedAt": "2027-01-15T08:00:00.000Z",
            "ttl": 60_000,
            "pollInterval": 500,
        }
    }


def test_handle_of_the_extension_is_flat() -> None:
    here = world()
    made = here.user(MODERN).result("tools/call", {"name": "optional"})
    assert (made["resultType"], made["status"], made["ttlMs"]) == (
        "task",
        "working",
        60_000,
    )
    assert "task" not in made


@pytest.mark.parametrize("wire", REQUESTED)
def test_same_call_announces_its_task_as_new(wire: str) -> None:
    """ "Tasks MUST begin in the `working` status" (Tasks, Task Status Lifecycle)."""
    here = world()
    row = TaskRow.loads(here_row(here).dumps(), b"")
    ended = attrs.evolve(row, status="completed", result={"content": []})
    announced: Any = task_wires.REQUESTED.handle(ended)
    assert announced["task"]["status"] == "working"


def here_row(here: World) -> TaskRow:
    id_ = here.user(NEWEST).start("optional")
    return here.host.rows[id_]


QUESTION: Final = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
}
BROKEN: Final = {"code": -32603, "message": "it broke"}
OOPS: Final = {"content": [{"type": "text", "text": "oops"}], "isError": True}

#: Rows of the host, and their status and message in the old revisions.
#: When a task expires, it is ended by a cancel of that time.
LATE = 1e10

STATUSES: Final[Mapping[str, tuple[Wire, str, str | None]]] = {
    "working": ({}, "working", "so far"),
    "input_required": (
        {"status": "input_required", "questions": {"q": QUESTION}},
        "input_required",
        "so far",
    ),
    "completed": (
        {"status": "completed", "result": {"content": []}},
        "completed",
        "so far",
    ),
    "completed, without a result": ({"status": "completed"}, "completed", "so far"),
    "completed with isError": (
        {"status": "completed", "result": OOPS},
        "failed",
        "oops",
    ),
    "completed with isError, without words": (
        {
            "status": "completed",
            "result": {"content": [{"type": "image"}, 5], "isError": True},
        },
        "failed",
        "so far",
    ),
    "completed with isError, and many words": (
        {
            "status": "completed",
            "result": {
                "content": [{"type": "text", "text": "x" * 5_000}],
                "isError": True,
            },
        },
        "failed",
        "x" * 1_000,
    ),
    "completed with isError that is not a boolean": (
        {"status": "completed", "result": {"content": [], "isError": "yes"}},
        "completed",
        "so far",
    ),
    "failed": ({"status": "failed", "error": BROKEN}, "failed", "it broke"),
    "failed without words": (
        {"status": "failed", "error": {"code": 1, "message": 5}},
        "failed",
        "so far",
    ),
    "failed without an error": ({"status": "failed"}, "failed", "so far"),
    "cancelled": (
        {"status": "cancelled", "cancelled_at": 5.0},
        "cancelled",
        "so far",
    ),
    "being cancelled": ({"cancelled_at": 5.0}, "cancelled", "so far"),
    "cancelled, and completed": (
        {"status": "completed", "result": {"content": []}, "cancelled_at": 5.0},
        "cancelled",
        "so far",
    ),
    "cancelled, and failed": (
        {"status": "failed", "error": BROKEN, "cancelled_at": 5.0},
        "cancelled",
        "so far",
    ),
    "expired": (
        {
            "status": "failed",
            "error": BROKEN,
            "cancelled_at": LATE,
            "is_expired": True,
        },
        "failed",
        "it broke",
    ),
    "expiring": ({"cancelled_at": LATE, "is_expired": True}, "working", "so far"),
}


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize("name", STATUSES)
def test_get_has_the_status_only(wire: str, name: str) -> None:
    """Rows "get" and "isError": no questions and no result, and why it failed."""
    here = world()
    here.is_working = False
    user = here.user(wire)
    id_ = user.start("optional")
    fields, status, message = STATUSES[name]
    here.host.change(id_, message="so far", **fields)
    assert user.get(id_) == {
        "taskId": id_,
        "status": status,
        "statusMessage": message,
        "createdAt": "2027-01-15T08:00:00.000Z",
        "lastUpdatedAt": "2027-01-15T08:00:00.000Z",
        "ttl": 60_000,
        "pollInterval": 500,
    }


def test_get_of_the_extension_has_the_questions_or_the_result() -> None:
    here = world(asking, failing)
    user = here.user(MODERN)
    id_ = user.start("asking")
    here.play()
    found = user.get(id_)
    assert found["status"] == "input_required"
    assert len(found["inputRequests"]) == 1
    id_ = user.start("failing")
    here.play()
    found = user.get(id_)
    assert (found["status"], found["result"]["isError"]) == ("completed", True)


@pytest.mark.parametrize("wire", REQUESTED)
def test_task_without_a_limit_has_a_null_ttl(wire: str) -> None:
    """ "or `null` for unlimited" (Tasks, TTL and Resource Management)."""
    here = world()
    user = here.user(wire)
    id_ = user.start("optional")
    here.host.change(id_, ttl=None, message=None)
    found = user.get(id_)
    assert found["ttl"] is None
    assert "statusMessage" not in found


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_task_that_cannot_be_read_is_not_found(wire: str, method: str) -> None:
    """Unknown, of another user, removed: no difference shows."""
    here = world()
    ann, bob, stranger = (here.user(wire, name) for name in ("ann", "bob", None))
    hers, removed = ann.start("optional"), bob.start("optional")
    del here.host.rows[removed]
    errors = [
        error(user.send(method, {"taskId": id_}))
        for user, id_ in (
            (bob, hers),
            (stranger, hers),
            (bob, removed),
            (bob, "unknown"),
            (bob, ""),
        )
    ]
    assert errors == [{"code": INVALID_PARAMS, "message": "Task not found"}] * 5
    ids: list[Any] = [None, 5, [], {}]
    for id_ in ids:
        assert error(bob.send(method, {"taskId": id_}))["code"] == INVALID_PARAMS
    assert here.host.mail == []
    assert ann.get(hers)["status"] == "working"


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_related_task_is_ignored_where_the_params_name_one(
    wire: str, method: str
) -> None:
    """ "receivers MUST ignore such metadata if present in favor of the RPC method
    parameter" (Tasks, Associating Task-Related Messages).
    """
    here = world(long)
    user = here.user(wire)
    id_, other = user.start("optional"), user.start("long")
    meta = {RELATED_TASK: {"taskId": other}}
    reply = user.send(method, {"taskId": id_, "_meta": meta})
    assert here.host.rows[other].cancelled_at is None
    if method == "tasks/result":
        assert text_of(_end_of(reply)["result"]) == "rested"
    else:
        assert _end_of(reply)["result"]["taskId"] == id_


# ---- result -------------------------------------------------------------------------


def test_extension_has_no_method_for_results() -> None:
    here = world()
    reply = here.user(MODERN).send("tasks/result", {"taskId": "x"})
    assert error(reply)["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("wire", REQUESTED)
def test_result_waits_until_the_end(wire: str) -> None:
    """ "it MUST block the response until the task reaches a terminal status"."""
    here = world()

    @here.app.tool(task="optional")
    def slow() -> Flow[str]:
        yield from Sleep(20)
        return "at last"

    user = here.user(wire)
    id_ = user.start("slow")
    began = here.host.now
    found = user.result("tasks/result", {"taskId": id_})
    assert found == {
        "content": [{"type": "text", "text": "at last"}],
        "_meta": {RELATED_TASK: {"taskId": id_}},
    }
    assert 20 <= here.host.now - began <= 22
    # Afterwards it is there at once, as often as the client likes.
    assert user.result("tasks/result", {"taskId": id_}) == found


@pytest.mark.parametrize("wire", REQUESTED)
def test_result_keeps_the_metadata_of_the_tool(wire: str) -> None:
    here = world()
    user = here.user(wire)
    id_ = user.start("optional")
    metas: list[Any] = [{"shop": 1}, {RELATED_TASK: {"taskId": "forged"}}, 5]
    for meta in metas:
        result = {"content": [], "_meta": meta}
        here.host.change(id_, status="completed", result=result)
        found = user.result("tasks/result", {"taskId": id_})
        more = meta if isinstance(meta, dict) else {}
        assert found["_meta"] == {**more, RELATED_TASK: {"taskId": id_}}


@pytest.mark.parametrize("wire", WIRES)
def test_questions_are_asked_as_the_wire_has_it(wire: str) -> None:
    """Rows "get", "result" and "answers"."""
    here = world(asking)
    user = here.user(wire)
    id_ = user.start("asking")
    life = user.follow(id_, accepted("2"))
    assert life.asked == ["elicitation/create What?", "elicitation/create How many?"]
    assert life.end == {"result": {"content": [{"type": "text", "text": "2 x 2"}]}}


def test_questions_go_out_on_the_stream_of_result() -> None:
    """2025-11-25, with `related-task` in each."""
    here = world(asking)
    user = here.user(NEWEST)
    assert isinstance(user, Older)
    id_ = user.start("asking")
    here.play()
    assert user.get(id_)["status"] == "input_required"
    assert user.client.asked == []
    user.send("tasks/result", {"taskId": id_}, accepted("2"))
    first, second = user.client.asked
    for one in (first, second):
        assert one["method"] == "elicitation/create"
        assert one["params"]["_meta"] == {RELATED_TASK: {"taskId": id_}}
    assert first["id"] != second["id"]


def test_drafts_return_the_questions() -> None:
    here = world(asking)
    user = here.user(DRAFT)
    assert isinstance(user, Older)
    id_ = user.start("asking")
    found = user.result("tasks/result", {"taskId": id_})
    assert found.keys() == {"inputRequests", "_meta"}
    assert found["_meta"] == {RELATED_TASK: {"taskId": id_}}
    # It asks again, as long as there is no answer.
    assert user.result("tasks/result", {"taskId": id_}) == found
    assert user.client.asked == []


#: The ends of tools, on all wires.
ENDS: Final[Mapping[Callable[..., Any], tuple[Wire, str]]] = {
    failing: (
        {
            "result": {
                "content": [{"type": "text", "text": "the shelf is empty"}],
                "isError": True,
            }
        },
        "the shelf is empty",
    ),
    refusing: (
        {
            "error": {
                "code": -32050,
                "message": "no such shelf",
                "data": {"shelf": 5},
            }
        },
        "no such shelf",
    ),
}


@pytest.mark.parametrize("tool", ENDS)
@pytest.mark.parametrize("wire", WIRES)
def test_errors_come_through_exactly(wire: str, tool: Callable[..., Any]) -> None:
    """ "`tasks/result` MUST return that same JSON-RPC error" (Task Execution Errors);
    and a result with `isError` is a failure, but not for the extension.
    """
    here = world(tool)
    user = here.user(wire)
    life = user.follow(user.start(tool.__name__), no_answer)
    end, message = ENDS[tool]
    assert life.end == end
    is_completed = wire == MODERN and "result" in end
    assert life.status == ("completed" if is_completed else "failed")
    if wire != MODERN:
        (row,) = here.host.rows
        assert user.get(row)["statusMessage"] == message


@pytest.mark.parametrize("wire", WIRES)
def test_exception_of_a_tool_shows_nothing_to_strangers(wire: str) -> None:
    here = world(crashing)
    user = here.user(wire)
    id_ = user.start("crashing")
    life = user.follow(id_, no_answer)
    assert "secret" not in str(life.end)
    assert "secret" not in str(user.get(id_))
    assert life.status == ("completed" if "result" in life.end else "failed") or (
        wire != MODERN and life.status == "failed"
    )


@pytest.mark.parametrize("wire", REQUESTED)
def test_result_after_a_cancel_is_an_error(wire: str) -> None:
    here = world(long)
    user = here.user(wire)
    id_ = user.start("long")
    here.play()
    user.result("tasks/cancel", {"taskId": id_})
    reply = user.send("tasks/result", {"taskId": id_})
    assert error(reply) == {
        "code": INTERNAL_ERROR,
        "message": "The task was cancelled",
    }


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        ({"code": 7, "message": "x"}, {"code": 7, "message": "x"}),
        ({}, {"code": INTERNAL_ERROR, "message": ""}),
        (None, {"code": INTERNAL_ERROR, "message": ""}),
    ],
    ids=repr,
)
def test_failure_without_fields_is_an_internal_error(
    failure: Any, wanted: Wire
) -> None:
    """A row may come from another version."""
    here = world()
    user = here.user(NEWEST)
    id_ = user.start("optional")
    here.host.change(id_, status="failed", error=failure)
    assert error(user.send("tasks/result", {"taskId": id_})) == wanted


# ---- list ---------------------------------------------------------------------------


def listed(user: User) -> list[list[Wire]]:
    """The pages of `tasks/list`."""
    pages: list[list[Wire]] = []
    params: Wire = {}
    for _ in range(100):
        page = user.result("tasks/list", params)
        pages.append(page["tasks"])
        if "nextCursor" not in page:
            return pages
        params = {"cursor": page["nextCursor"]}
    raise AssertionError("it never ends")


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100])
def test_list_has_the_own_tasks_in_pages(wire: str, size: int) -> None:
    """ "If a task is retrievable via `tasks/get` for a requestor, it MUST be retrievable
    via `tasks/list` for that requestor" (Tasks, Task Listing).
    """
    here = world(asking, failing, long, page_size=size)
    ann, bob = here.user(wire, "ann"), here.user(wire, "bob")
    names = ("optional", "asking", "failing", "long", "required", "deferred", "long")
    ids = {ann.start(name) for name in names}
    bob.start("optional")
    here.user(wire).start("optional")
    here.play()
    (running,) = [id_ for id_ in ids if here.host.rows[id_].tool == "asking"]
    ann.result("tasks/cancel", {"taskId": running})
    pages = listed(ann)
    found = [one for page in pages for one in page]
    assert {one["taskId"] for one in found} == ids
    assert len(found) == len(ids)
    assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
    assert pages[-1]
    for one in found:
        assert one == ann.get(one["taskId"])


@pytest.mark.parametrize("wire", REQUESTED)
def test_list_of_a_user_without_tasks_is_empty(wire: str) -> None:
    here = world()
    here.user(wire, "ann").start("optional")
    assert listed(here.user(wire, "bob")) == [[]]


@pytest.mark.parametrize("wire", REQUESTED)
def test_list_shows_a_task_of_another_session_and_wire(wire: str) -> None:
    """Tasks belong to a user, and sessions come and go."""
    here = world()
    ids = {here.user(one, "ann").start("optional") for one in WIRES}
    ((*found,),) = listed(here.user(wire, "ann"))
    assert {one["taskId"] for one in found} == ids


@pytest.mark.parametrize("wire", REQUESTED)
def test_list_is_not_declared_to_anonymous_clients(wire: str) -> None:
    """ "Receivers that cannot identify requestors SHOULD NOT declare the `tasks.list`
    capability" (Tasks, Task Isolation and Access Control).
    """
    here = world()
    stranger, ann = here.user(wire), here.user(wire, "ann")
    assert isinstance(stranger, Older)
    assert isinstance(ann, Older)
    declared: Wire = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert stranger.client.welcome["capabilities"]["tasks"] == declared
    assert ann.client.welcome["capabilities"]["tasks"] == {"list": {}, **declared}
    stranger.start("optional")
    for params in ({}, {"cursor": "after-5"}, {"cursor": 5}):
        reply = stranger.send("tasks/list", params)
        assert error(reply)["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize(
    "cursor",
    ["", "x", "after-", "after-'; --", "before-5", "after-é", 5, [], {}, True, "5"],
    ids=repr,
)
def test_unknown_cursor_is_invalid(wire: str, cursor: Any) -> None:
    here = world()
    user = here.user(wire, "ann")
    reply = user.send("tasks/list", {"cursor": cursor})
    assert error(reply)["code"] == INVALID_PARAMS


def test_extension_has_no_list() -> None:
    here = world()
    reply = here.user(MODERN, "ann").send("tasks/list")
    assert error(reply)["code"] == METHOD_NOT_FOUND


# ---- cancel -------------------------------------------------------------------------


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize("tool", [long, asking, stubborn, tidying])
def test_cancel_is_reported_before_the_reply_and_for_ever(
    wire: str, tool: Callable[..., Any]
) -> None:
    """ "MUST transition the task to `cancelled` status before sending the response";
    "it MUST remain in `cancelled` status even if execution continues to completion or
    fails" (Tasks, Task Cancellation).
    """
    here = world(tool)
    user = here.user(wire)
    id_ = user.start(tool.__name__)
    here.play()
    found = user.result("tasks/cancel", {"taskId": id_})
    assert found["status"] == "cancelled"
    assert found == user.get(id_)
    for _ in range(40):
        here.pass_(1)
        assert user.get(id_)["status"] == "cancelled"
    assert here.host.rows[id_].is_ended


@pytest.mark.parametrize("wire", REQUESTED)
def test_cancel_stays_when_the_ttl_passes_during_the_cleanup(wire: str) -> None:
    """By the same clause, a cancelled task does not become `working` or `failed` again."""
    here = world(tidying)
    user = here.user(wire)
    id_ = user.start("tidying", task={"ttl": 10_000})
    here.play()
    assert user.result("tasks/cancel", {"taskId": id_})["status"] == "cancelled"
    seen = []
    for _ in range(40):
        here.pass_(1)
        if user.get(id_)["status"] not in seen:
            seen.append(user.get(id_)["status"])
    assert seen == ["cancelled"]


@pytest.mark.parametrize("wire", REQUESTED)
def test_cancel_before_the_first_turn(wire: str) -> None:
    here = world(asking)
    user = here.user(wire)
    id_ = user.start("asking")
    assert user.result("tasks/cancel", {"taskId": id_})["status"] == "cancelled"


@pytest.mark.parametrize("wire", REQUESTED)
@pytest.mark.parametrize(
    "name", [name for name, (_, status, _) in STATUSES.items() if "working" != status]
)
def test_cancel_of_an_ended_task_is_invalid(wire: str, name: str) -> None:
    """ "with error code `-32602`"; also a task that is being cancelled."""
    here = world()
    here.is_working = False
    user = here.user(wire)
    id_ = user.start("optional")
    fields, status, _ = STATUSES[name]
    if status == "input_required":
        return
    here.host.change(id_, **fields)
    reply = user.send("tasks/cancel", {"taskId": id_})
    assert error(reply)["code"] == INVALID_PARAMS
    assert status in error(reply)["message"]
    assert here.host.mail == []


@pytest.mark.parametrize("wire", REQUESTED)
def test_cancel_that_comes_too_late_is_invalid(wire: str) -> None:
    """The task ends between the request and its turn."""
    here = world(long)
    here.is_working = False
    user = here.user(wire)
    id_ = user.start("long")
    here.host.lost = lambda id_: here.host.change(id_, status="completed", result={})
    reply = user.send("tasks/cancel", {"taskId": id_})
    assert error(reply)["code"] == INVALID_PARAMS
    assert "completed" in error(reply)["message"]
    id_ = user.start("long")
    here.host.lost = lambda id_: here.host.rows.clear()
    assert error(user.send("tasks/cancel", {"taskId": id_}))["code"] == INVALID_PARAMS


@pytest.mark.parametrize("wire", REQUESTED)
def test_cancel_that_no_turn_notices_is_an_error_after_a_while(wire: str) -> None:
    """A worker may be down; the mail stays, so that the task is cancelled later."""
    here = world(long)
    user = here.user(wire)
    id_ = user.start("long")
    here.is_working = False
    began = here.host.now
    reply = user.send("tasks/cancel", {"taskId": id_})
    assert error(reply)["code"] == INTERNAL_ERROR
    assert 30 <= here.host.now - began <= 31
    here.is_working = True
    here.play()
    assert user.get(id_)["status"] == "cancelled"


@pytest.mark.parametrize("tool", [long, stubborn])
def test_cancel_of_the_extension_is_only_acknowledged(tool: Callable[..., Any]) -> None:
    here = world(tool)
    user = here.user(MODERN)
    id_ = user.start(tool.__name__)
    here.play()
    acknowledged = {"resultType", "_meta"}
    for _ in range(2):
        assert user.result("tasks/cancel", {"taskId": id_}).keys() == acknowledged
    is_ended = user.get(id_)["status"] in ("cancelled", "completed")
    assert not is_ended
    here.play()
    status = "completed" if tool is stubborn else "cancelled"
    assert user.get(id_)["status"] == status
    assert user.result("tasks/cancel", {"taskId": id_}).keys() == acknowledged


def test_cancelled_task_looks_different_on_each_wire() -> None:
    """A handler that returned in spite of a cancel: one row, two words."""
    here = world(stubborn)
    new, old = here.user(MODERN, "ann"), here.user(NEWEST, "ann")
    id_ = old.start("stubborn")
    here.play()
    old.result("tasks/cancel", {"taskId": id_})
    here.play()
    assert new.get(id_)["status"] == "completed"
    assert old.get(id_)["status"] == "cancelled"


# ---- answers ------------------------------------------------------------------------

#: The methods that bring answers, and the wires that have them.
ANSWERING: Final = {"tasks/update": {MODERN}, "tasks/input_response": {DRAFT}}


@pytest.mark.parametrize("wire", [*WIRES, OLDER])
@pytest.mark.parametrize("method", ANSWERING)
def test_answers_have_a_method_of_their_own(wire: str, method: str) -> None:
    here = world()
    reply = here.user(wire).send(method, {"taskId": "x", "inputResponses": {}})
    wanted = INVALID_PARAMS if wire in ANSWERING[method] else METHOD_NOT_FOUND
    assert error(reply)["code"] == wanted


def answered(user: User, id_: str, answers: Any) -> Reply:
    """Send answers with the method of the wire."""
    if user.wire == MODERN:
        return user.send("tasks/update", {"taskId": id_, "inputResponses": answers})
    meta = {RELATED_TASK: {"taskId": id_}}
    params = {"inputResponses": answers, "_meta": meta}
    return user.send("tasks/input_response", params)


@pytest.mark.parametrize("wire", [MODERN, DRAFT])
@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"unknown": {"action": "accept", "content": {}}},
        {"unknown": None, "": 5},
    ],
    ids=repr,
)
def test_unknown_answers_are_ignored(wire: str, answers: Any) -> None:
    """The task stays `input_required` (drafts, Error Handling)."""
    here = world(asking)
    user = here.user(wire)
    id_ = user.start("asking")
    here.play()
    before = user.get(id_)
    assert _end_of(answered(user, id_, answers)) == {"result": {}}
    here.play()
    assert user.get(id_) == before
    assert before["status"] == "input_required"
    assert here.host.mail == []


@pytest.mark.parametrize("wire", [MODERN, DRAFT])
@pytest.mark.parametrize(
    "said",
    [
        {"action": "accept", "content": {"other": 5}},
        {"action": "accept"},
        {"action": "perhaps"},
        {},
        5,
        None,
    ],
    ids=repr,
)
def test_answer_that_does_not_fit_is_asked_again(wire: str, said: Any) -> None:
    """ "leaves Task status as `input_required`. The next `tasks/result` call returns a
    new `inputRequest`" (drafts, Client sends unexpected data).
    """
    here = world(asking)
    user = here.user(wire)
    id_ = user.start("asking")
    here.play()
    answers = dict.fromkeys(here.host.rows[id_].questions, said)
    assert _end_of(answered(user, id_, answers)) == {"result": {}}
    here.play()
    assert user.get(id_)["status"] == "input_required"
    again = here.host.rows[id_].questions
    assert len(again) == 1
    assert again.keys().isdisjoint(answers), "no key is used twice"
    life = user.follow(id_, accepted("2"))
    assert text_of(life.end["result"]) == "2 x 2"


def test_draft_may_name_the_task_in_the_params() -> None:
    """`taskId` instead of `_meta`; without either there is no task."""
    here = world(asking)
    user = here.user(DRAFT)
    id_ = user.start("asking")
    here.play()
    params: Wire = {"taskId": id_, "inputResponses": {}}
    found = user.result("tasks/input_response", params)
    assert found == {"_meta": {RELATED_TASK: {"taskId": id_}}}
    metas: list[Any] = [{}, {RELATED_TASK: 5}, {RELATED_TASK: {}}, 5, None]
    for meta in metas:
        params = {"inputResponses": {}, "_meta": meta}
        reply = user.send("tasks/input_response", params)
        assert error(reply)["code"] == INVALID_PARAMS
    malformed: list[Any] = [None, [], 5]
    for answers in malformed:
        reply = answered(user, id_, answers)
        assert error(reply)["code"] == INVALID_PARAMS


def test_draft_takes_answers_from_their_user_only() -> None:
    here = world(asking)
    id_ = here.user(DRAFT, "ann").start("asking")
    here.play()
    answers = dict.fromkeys(here.host.rows[id_].questions, {"action": "decline"})
    reply = answered(here.user(DRAFT, "bob"), id_, answers)
    assert error(reply)["message"] == "Task not found"
    assert here.host.mail == []


@pytest.mark.parametrize("wire", [MODERN, DRAFT])
def test_answers_may_come_one_by_one(wire: str) -> None:
    here = world()

    @here.app.tool(task="optional")
    def both() -> Flow[str]:
        one, other = yield from Gather(Elicit("One?", str), Elicit("Other?", str))
        return f"{one} {other}"

    user = here.user(wire)
    id_ = user.start("both")
    here.play()
    first, second = here.host.rows[id_].questions
    said = {"action": "accept", "content": {"value": "x"}}
    answered(user, id_, {first: said})
    here.play()
    assert [*here.host.rows[id_].questions] == [second]
    answered(user, id_, {second: said})
    here.play()
    assert text_of(user.follow(id_, no_answer).end["result"]) == "x x"


# ---- tools/list ---------------------------------------------------------------------

SUPPORT: Final = {
    "plain": "forbidden",
    "optional": "optional",
    "required": "required",
    "deferred": "optional",
}


@pytest.mark.parametrize("wire", [MODERN, *REQUESTED, OLDER])
def test_list_of_tools_names_their_support_for_tasks(wire: str) -> None:
    """ "tools declare support for tasks via `execution.taskSupport`" (Tool-Level
    Negotiation): only where clients ask for tasks.
    """
    here = world()
    tools = here.user(wire).result("tools/list")["tools"]
    found = {one["name"]: one.get("execution") for one in tools}
    if wire in REQUESTED:
        assert found == {name: {"taskSupport": one} for name, one in SUPPORT.items()}
    else:
        assert found == dict.fromkeys(SUPPORT)


def test_tool_that_was_removed_has_no_support() -> None:
    assert task_wires.support_of(None) == "forbidden"


def test_server_without_flows_declares_no_tasks() -> None:
    """No tool of it can be a task."""
    app = Server("shop", tasks=Rows())
    app.tool(name="plain")(lambda: "x")
    client = LegacyClient(app)
    assert "tasks" not in client.welcome["capabilities"]
    reply = client.send("tools/call", {"name": "plain", "task": {}})
    assert error(reply)["code"] == METHOD_NOT_FOUND


# ---- deferred -----------------------------------------------------------------------


def test_deferred_tool_asks_live_before_it_becomes_a_task() -> None:
    here = world()
    user = here.user(NEWEST)
    assert isinstance(user, Older)
    params = {"name": "deferred", "arguments": {"ask": True}, "task": {"ttl": 5_000}}
    made = user.result("tools/call", params, accepted(None))
    assert made["task"]["ttl"] == 5_000
    assert len(user.client.asked) == 1
    assert "_meta" not in user.client.asked[0]["params"], "there is no task yet"
    id_ = made["task"]["taskId"]
    life = user.follow(id_, no_answer)
    assert text_of(life.end["result"]) == "task: True"


@pytest.mark.parametrize("is_repeated", [False, True])
def test_deferred_tool_of_the_drafts_asks_by_retry(is_repeated: bool) -> None:
    """Ephemeral rounds first, then a task; `task` is in every retry."""
    here = world()
    here.is_working = False
    user = here.user(DRAFT)
    params: Wire = {"name": "deferred", "arguments": {"ask": True}, "task": {}}
    asked = user.result("tools/call", params)
    assert asked["result_type"] == "incomplete"
    (key,) = asked["inputRequests"]
    said = {key: {"action": "accept", "content": {}}}
    retry = {"requestState": asked["requestState"], "inputResponses": said}
    made = user.result("tools/call", {**params, **retry})
    if is_repeated:
        assert user.result("tools/call", {**params, **retry}) == made
        assert len(here.host.rows) == 1
    here.is_working = True
    life = user.follow(made["task"]["taskId"], no_answer)
    assert text_of(life.end["result"]) == "task: True"


def test_retry_of_the_drafts_without_task_stays_a_call() -> None:
    """Each request says for itself whether it may become a task."""
    here = world()
    user = here.user(DRAFT)
    params: Wire = {"name": "deferred", "arguments": {"ask": True}}
    asked = user.result("tools/call", {**params, "task": {}})
    (key,) = asked["inputRequests"]
    said = {key: {"action": "accept", "content": {}}}
    retry = {"requestState": asked["requestState"], "inputResponses": said}
    assert text_of(user.result("tools/call", {**params, **retry})) == "task: False"
    assert here.host.rows == {}


@pytest.mark.parametrize("wire", REQUESTED)
def test_deferred_tool_may_return_without_a_task(wire: str) -> None:
    """ "If the tool returns without calling CreateTaskAsync, a normal (non-task) result
    is sent to the client" (drafts, deferred task creation).
    """
    here = world()
    params = {"name": "deferred", "arguments": {"detach": False}, "task": {}}
    found = here.user(wire).result("tools/call", params)
    assert text_of(found) == "task: None"
    assert here.host.rows == {}


def test_draft_call_that_began_with_rounds_ends_with_them() -> None:
    """An optional tool that was called without `task` has its answers in the state."""
    here = world(asking)
    user = here.user(DRAFT)
    asked = user.result("tools/call", {"name": "asking", "arguments": {}})
    (key,) = asked["inputRequests"]
    said = {key: {"action": "accept", "content": {"value": "Dune"}}}
    retry = {"requestState": asked["requestState"], "inputResponses": said}
    params = {"name": "asking", "arguments": {}, "task": {}, **retry}
    assert user.result("tools/call", params)["result_type"] == "incomplete"
    assert here.host.rows == {}


# ---- status -------------------------------------------------------------------------


def news_of(here: World, *users: User) -> list[Callable[[], list[Wire]]]:
    """Functions that return what each session is notified of since the last call."""
    taking = []
    for user in users:
        assert isinstance(user, Older)
        mailbox = Mailbox(user.news, lambda: None)
        here.app.changes.listen(mailbox.hear)
        taking.append(mailbox.take)
    return taking


@pytest.mark.parametrize("wire", REQUESTED)
def test_status_is_told_to_the_session_that_created_the_task(wire: str) -> None:
    """ "receivers MAY send a `notifications/tasks/status` notification to inform the
    requestor" (Tasks, Task Status Notification): not another session, not another user.
    """
    here = world(asking)
    ann, again, bob = (here.user(wire, name) for name in ("ann", "ann", "bob"))
    hers, others, his = news_of(here, ann, again, bob)
    id_ = ann.start("asking")
    here.play()
    (told,) = hers()
    assert told == {
        "jsonrpc": "2.0",
        "method": "notifications/tasks/status",
        "params": ann.get(id_),
    }
    assert told["params"]["status"] == "input_required"
    assert "_meta" not in told["params"]
    ann.follow(id_, accepted("2"))
    assert hers()[-1]["params"] == ann.get(id_)
    assert (others(), his()) == ([], [])


def test_status_is_told_once() -> None:
    """A task is saved with each of its steps."""
    here = world(long)
    user = here.user(NEWEST)
    (take,) = news_of(here, user)
    id_ = user.start("long")
    for _ in range(3):
        here.host.change(id_, updated=here.host.now)
        here.app.changes.publish(Change("task", id_))
    assert len(take()) == 1
    here.app.changes.publish(Change("task", id_))
    assert take() == []
    here.host.change(id_, message="half way")
    here.app.changes.publish(Change("task", id_))
    assert [one["params"]["statusMessage"] for one in take()] == ["half way"]


def test_status_of_a_removed_task_is_not_told() -> None:
    here = world(long)
    user = here.user(NEWEST)
    assert isinstance(user, Older)
    (take,) = news_of(here, user)
    id_ = user.start("long")
    del here.host.rows[id_]
    here.app.changes.publish(Change("task", id_))
    assert take() == []
    assert not user.news.wants(Change("task", id_))
    assert user.news.message(Change("task", id_)) is None
    assert user.news.message(Change("task")) is None


def test_status_of_a_server_that_lost_its_host_is_not_told() -> None:
    here = world(long)
    user = here.user(NEWEST)
    (take,) = news_of(here, user)
    id_ = user.start("long")
    here.app.tasks = None
    here.app.changes.publish(Change("task", id_))
    assert take() == []


def test_status_that_cannot_be_read_is_told_later() -> None:
    here = world(long)
    user = here.user(NEWEST)
    (take,) = news_of(here, user)
    id_ = user.start("long")
    here.app.changes.publish(Change("task", id_))
    here.host.failure = TaskStoreError("the disk is away")
    with pytest.raises(TaskStoreError):
        take()
    here.host.failure = None
    (told,) = take()
    assert told["params"]["taskId"] == id_


def test_session_follows_its_last_thousand_tasks() -> None:
    """Otherwise a client could fill the memory of the server."""
    here = world(long)
    here.is_working = False
    user = here.user(NEWEST)
    assert isinstance(user, Older)
    ids = [user.start("long") for _ in range(1_003)]
    followed = [id_ for id_ in ids if user.news.wants(Change("task", id_))]
    assert followed == ids[3:]


def test_extension_and_calls_without_a_session_follow_nothing() -> None:
    """A draft over HTTP may have no session: then there is no stream for a notification."""
    here = world()
    here.user(MODERN).start("optional")
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "optional", "arguments": {}, "task": {}},
    }
    peer = Peer(headers={"mcp-protocol-version": DRAFT})
    reply = here.handle(here.app, message, peer)
    assert reply.message is not None
    id_ = reply.message["result"]["task"]["taskId"]
    more = {**message, "method": "tasks/result", "params": {"taskId": id_}}
    reply = here.handle(here.app, more, peer)
    assert reply.message is not None
    assert text_of(reply.message["result"]) == "rested"


# ---- the law ------------------------------------------------------------------------

_words = st.sampled_from(["Ann", "Bob", "Cid"])
_answers = st.sampled_from(["accept", "decline", "cancel"])
_parts = st.one_of(
    st.tuples(st.just("ask"), _words, _answers),
    st.tuples(st.just("gather"), _words, _words),
    st.tuples(st.just("sample"), _words, st.just("")),
    st.tuples(st.just("sleep"), st.just(""), st.just("")),
    st.tuples(st.just("step"), st.just(""), st.just("")),
)
_ends = st.sampled_from(["return", "tool error", "protocol error"])


@step
def noted() -> str:
    return "noted"


@attrs.frozen
class Story:
    """The steps of a tool, and the answers of its user."""

    parts: tuple[tuple[str, str, str], ...]
    end: str

    def tool(self) -> Flow[str]:
        """Play it."""
        said = []
        for kind, one, other in self.parts:
            match kind:
                case "ask":
                    said.append((yield from Elicit(f"{one}?", str)))
                case "gather":
                    both = Gather(Elicit(f"{one}?", str), Elicit(f"{other}!", str))
                    said += yield from both
                case "sample":
                    said.append((yield from Sample(one, max_tokens=5)).text)
                case "sleep":
                    yield from Sleep(3)
                case _:
                    said.append((yield from noted()))
        if self.end == "tool error":
            raise ToolError(" ".join(["no", *said]))
        if self.end == "protocol error":
            raise ProtocolError(-32042 - 100, " ".join(["no", *said]))
        return " ".join(said)

    def answer(self, question: Wire) -> Wire:
        """Answer by the message of the question, so that the order plays no part."""
        if question["method"] == "sampling/createMessage":
            content = {"type": "text", "text": "sampled"}
            return {"result": {"role": "assistant", "content": content, "model": "m"}}
        message = question["params"]["message"].rstrip("?!")
        actions = {one: other for kind, one, other in self.parts if kind == "ask"}
        action = actions.get(message, "accept")
        if action != "accept":
            return {"result": {"action": action}}
        content = {"value": message.lower()}
        return {"result": {"action": "accept", "content": content}}

    def expected(self) -> tuple[list[str], str | None]:
        """The oracle: the questions that are asked, and the text of the end.

        The text is `None` if the user declined: then it is the library's.
        """
        asked, said = [], []
        actions = {one: other for kind, one, other in self.parts if kind == "ask"}
        for kind, one, other in self.parts:
            if kind == "ask":
                asked.append(f"elicitation/create {one}?")
                if actions[one] != "accept":
                    return asked, None
                said.append(one.lower())
            elif kind == "gather":
                asked += [f"elicitation/create {one}?", f"elicitation/create {other}!"]
                if {actions.get(one, "accept"), actions.get(other, "accept")} != {
                    "accept"
                }:
                    return asked, None
                said += [one.lower(), other.lower()]
            elif kind == "sample":
                asked.append("sampling/createMessage ")
                said.append("sampled")
            elif kind == "step":
                said.append("noted")
        text = " ".join(said)
        return asked, text if self.end == "return" else " ".join(["no", *said])


@given(st.builds(Story, st.lists(_parts, max_size=4).map(tuple), _ends))
def test_task_asks_and_ends_alike_on_every_wire(story: Story) -> None:
    """Only the words differ: which questions, and which end, is up to the tool."""
    lives = []
    for wire in WIRES:
        here = world(story.tool)
        user = here.user(wire)
        lives.append(user.follow(user.start("tool"), story.answer))
    asked, text = story.expected()
    for life in lives:
        assert life.asked == asked
        assert life.end == lives[0].end
    for old in lives[1:]:
        is_good = "result" in old.end and not old.end["result"].get("isError")
        assert old.status == ("completed" if is_good else "failed")
    if text is not None:
        end = lives[0].end
        found = end["error"]["message"] if "error" in end else text_of(end["result"])
        assert found == text
        assert ("error" in end) == (story.end == "protocol error")
