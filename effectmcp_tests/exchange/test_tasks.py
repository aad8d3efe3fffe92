"""Tasks on the wire, rule by rule; the host is a dict, and no turn runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import pytest

from effectmcp import (
    Confirm,
    Detach,
    Elicit,
    Flow,
    Gather,
    Log,
    Progress,
    Random,
    SchemaError,
    Sleep,
    Status,
    UsageError,
)
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import sync
from effectmcp.drivers import trio as on_trio
from effectmcp.errors import TaskLimitError, TaskStoreError
from effectmcp.exchange.commands import Peer
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.protocol.meta import TASKS
from effectmcp.server import Event, RoundBegan, RoundEnded, Server
from effectmcp.server.changes import Change
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.stores import ensure_tasks
from effectmcp.transports.wsgi import application

from ..legacy_client import VERSIONS, LegacyClient
from ..wire import (
    EVERYTHING,
    KEYS,
    Wire,
    call,
    error,
    fits,
    fits_reply,
    headers_of,
    refused,
    request,
    result,
    said,
    send,
    text_of,
)

FOLLOWS = {**EVERYTHING, "extensions": {TASKS: {}}}
ANN = Peer(principal="ann")


@attrs.define(eq=False)
class Rows:
    """A `TaskHost` that keeps its rows in a dict, and has nothing that runs them."""

    ttl: float = 60.0
    poll_interval: float = 0.5
    is_worked: bool = True
    rows: dict[str, TaskRow] = attrs.field(factory=dict)
    mail: list[tuple[str, Mail]] = attrs.field(factory=list)
    #: Raised by every method, if there is one.
    failure: Exception | None = None
    reads: int = 0

    def create(self, row: TaskRow) -> TaskRow:
        self._fail()
        return self.rows.setdefault(row.id, row)

    def read(self, id_: str) -> TaskRow | None:
        self.reads += 1
        self._fail()
        return self.rows.get(id_)

    def post(self, id_: str, mail: Sequence[Mail]) -> None:
        self._fail()
        self.mail += [(id_, one) for one in mail]

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        self._fail()
        mine = sorted(id_ for id_, row in self.rows.items() if row.owner == owner)
        return [self.rows[id_] for id_ in mine if id_ > after][:limit]

    def find(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[TaskRow]:
        return list(self.rows.values())

    def change(self, id_: str, **fields: Any) -> None:
        self.rows[id_] = attrs.evolve(self.rows[id_], **fields)

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def order(title: str) -> Flow[str]:
    """Ask, detach, and return whether the call became a task."""
    if not (yield from Confirm(f"Order {title}?")):
        return "no"
    yield from Log("info", "about to detach")
    is_task = yield from Detach(ttl=600, poll_interval=2)
    yield from Progress(1, message="packing")
    yield from Status("packing")
    yield from Sleep(0)
    return f"{title}, {is_task}"


def detaching() -> Flow[str]:
    """Detach at once."""
    return str((yield from Detach()))


def nap() -> Flow[str]:
    """Sleep."""
    yield from Sleep(0)
    return "rested"


def serving(tasks: Any = None, **options: Any) -> tuple[Server, Rows]:
    """A server with a tool that detaches, two that are tasks, and its host."""
    host = Rows() if tasks is None else tasks
    app = Server("shop", keys=KEYS, tasks=host, **options)
    app.tool(order)
    app.tool(name="optional", task="optional")(nap)
    app.tool(name="required", task="required")(nap)
    return app, host


def detached(app: Server, *, peer: Peer | None = None, **more: Any) -> Wire:
    """The result of the round in which `order` becomes a task."""
    options = {"capabilities": FOLLOWS, "arguments": {"title": "Emma"}, **more}
    asked = result(call(app, "order", peer=peer, **options))
    more = {**options, "answers": said(asked, {}), "state": asked["requestState"]}
    return result(call(app, "order", peer=peer, **more))


def started(app: Server, peer: Peer | None = None) -> str:
    """The id of a task."""
    id_: str = result(call(app, "optional", capabilities=FOLLOWS, peer=peer))["taskId"]
    return id_


def of(app: Server, method: str, id_: Any, **params: Any) -> Any:
    """The reply to a method of a task, of a client that can follow tasks."""
    peer = params.pop("peer", None)
    params = {"taskId": id_, **params}
    return send(app, f"tasks/{method}", params, capabilities=FOLLOWS, peer=peer)


NEEDED: Wire = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
UNFOLLOWED = (
    f"(extensions.{TASKS}), which this client did not say it can follow. Use a client"
    " that can."
)
METHODS = ("get", "update", "cancel")


# ---- the capability -----------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "extensions",
    [None, {}, {"other": {}}, {TASKS: None}, {TASKS: True}],
    ids=repr,
)
def test_method_without_the_extension_is_refused(method: str, extensions: Any) -> None:
    """Existing and unknown tasks get the same error: nothing is read."""
    app, host = serving()
    known = started(app)
    capabilities = {**EVERYTHING, "extensions": extensions}
    if extensions is None:
        del capabilities["extensions"]
    for id_ in (known, "unknown", 5, None):
        reply = send(app, f"tasks/{method}", {"taskId": id_}, capabilities=capabilities)
        assert refused(reply) == (400, -32021)
        assert error(reply)["data"] == NEEDED
        assert error(reply)["message"] == f"This request is about tasks {UNFOLLOWED}"
        fits_reply(f"tasks/{method}", reply)
    assert host.reads == 0


def test_required_tool_without_the_extension_is_refused() -> None:
    app, host = serving()
    reply = call(app, "required")
    assert refused(reply) == (400, -32021)
    assert error(reply)["data"] == NEEDED
    assert error(reply)["message"] == f"Tool required is always a task {UNFOLLOWED}"
    assert host.rows == {}


def test_refusals_keep_nothing_of_a_request() -> None:
    """A single exception for all requests would collect the frames of each."""
    app, _ = serving()
    for _ in range(2):
        refused(call(app, "required"))
    from effectmcp.exchange import tasks

    kept = [one for one in vars(tasks).values() if isinstance(one, BaseException)]
    assert kept == []


def test_extension_is_read_per_request() -> None:
    app, _ = serving()
    assert text_of(result(call(app, "optional"))) == "rested"
    assert result(call(app, "optional", capabilities=FOLLOWS))["resultType"] == "task"
    assert text_of(result(call(app, "optional"))) == "rested"


def test_discovery_advertises_the_extension() -> None:
    app, _ = serving()
    found = result(send(app, "server/discover"))["capabilities"]
    assert found["extensions"] == {TASKS: {}}
    assert "tasks" not in found


def without_store() -> Server:
    app = Server("shop", keys=KEYS)
    app.tool(order)
    app.tool(name="optional", task="optional")(nap)
    return app


def without_flows() -> Server:
    app = Server("shop", keys=KEYS, tasks=Rows())
    app.tool(name="plain")(lambda: "x")
    return app


@pytest.mark.parametrize("make", [without_store, without_flows])
def test_server_without_tasks_has_no_methods(make: Callable[[], Server]) -> None:
    app = make()
    assert "extensions" not in result(send(app, "server/discover"))["capabilities"]
    for method in METHODS:
        assert refused(of(app, method, "x")) == (404, -32601)


@pytest.mark.parametrize("method", ["list", "result", "input_response"])
def test_methods_of_the_experimental_tasks_do_not_exist(method: str) -> None:
    app, _ = serving()
    assert refused(of(app, method, "x")) == (404, -32601)


DRAFT = "2026-06-XX"


@pytest.mark.parametrize("revision", [*VERSIONS, DRAFT])
def test_initialize_does_not_advertise_the_extension(revision: str) -> None:
    app, _ = serving(drafts=True)
    client = LegacyClient(app, revision)
    assert client.welcome["protocolVersion"] == revision
    assert "extensions" not in client.welcome["capabilities"]
    reply = client.send("tasks/update", {"taskId": "x"})
    assert error(reply)["code"] == -32601


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
def test_older_revisions_have_no_tasks(revision: str) -> None:
    app, _ = serving()
    client = LegacyClient(app, revision)
    assert "tasks" not in client.welcome["capabilities"]
    for method in (*METHODS, "result", "list"):
        reply = client.send(f"tasks/{method}", {"taskId": "x"})
        assert error(reply)["code"] == -32601


# ---- becoming a task ----------------------------------------------------------------


def test_flow_that_detaches_becomes_a_task() -> None:
    app, host = serving()
    made = detached(app)
    (row,) = host.rows.values()
    assert made == {
        "resultType": "task",
        "taskId": row.id,
        "status": "working",
        "createdAt": made["createdAt"],
        "lastUpdatedAt": made["createdAt"],
        "ttlMs": 600_000,
        "pollIntervalMs": 2_000,
        "_meta": made["_meta"],
    }
    assert made["createdAt"].endswith("Z")
    assert len(row.id) >= 32
    assert (row.tool, row.arguments, row.is_whole) == (
        "order",
        {"title": "Emma"},
        False,
    )
    found = result(of(app, "get", row.id))
    assert found == {**made, "resultType": "complete", "_meta": found["_meta"]}


def test_tool_that_is_a_task_has_the_defaults_of_its_host() -> None:
    app, host = serving()
    for name in ("optional", "required"):
        made = result(call(app, name, capabilities=FOLLOWS))
        assert (made["resultType"], made["ttlMs"], made["pollIntervalMs"]) == (
            "task",
            60_000,
            500,
        )
        assert host.rows[made["taskId"]].is_whole
    assert len(host.rows) == 2


def test_arguments_are_read_before_there_is_a_task() -> None:
    app, host = serving()

    @app.tool(task="required")
    def count(n: int) -> Flow[int]:
        yield from Sleep(0)
        return n

    reply = call(app, "count", capabilities=FOLLOWS, arguments={"n": "x"})
    assert result(reply)["isError"]
    assert host.rows == {}


def test_same_answers_become_the_same_task() -> None:
    """A client that lost the reply sends the same request again (replay.md#v3)."""
    app, host = serving()
    options = {"capabilities": FOLLOWS, "arguments": {"title": "Emma"}}
    asked = result(call(app, "order", **options))
    options |= {"answers": said(asked, {}), "state": asked["requestState"]}
    first, second = (result(call(app, "order", **options)) for _ in range(2))
    assert {**second, "_meta": 0} == {**first, "_meta": 0}
    assert len(host.rows) == 1


def test_same_task_is_announced_as_new_when_it_has_ended_meanwhile() -> None:
    """A `CreateTaskResult` holds no result, error or questions."""
    app, host = serving()
    options = {"capabilities": FOLLOWS, "arguments": {"title": "Emma"}}
    asked = result(call(app, "order", **options))
    options |= {"answers": said(asked, {}), "state": asked["requestState"]}
    id_ = result(call(app, "order", **options))["taskId"]
    host.change(id_, status="completed", result={"content": []})
    again = result(call(app, "order", **options))
    assert (again["taskId"], again["status"], "result" in again) == (
        id_,
        "working",
        False,
    )


def test_other_answers_become_another_task() -> None:
    app, host = serving()

    @app.tool
    def named() -> Flow[str]:
        name = yield from Elicit("Name it", str)
        yield from Detach()
        return name

    asked = result(call(app, "named", capabilities=FOLLOWS))
    made = {
        result(
            call(
                app,
                "named",
                capabilities=FOLLOWS,
                answers=said(asked, {"value": name}),
                state=asked["requestState"],
            )
        )["taskId"]
        for name in ("Ann", "Bob", "Ann")
    }
    assert made == set(host.rows)
    assert len(made) == 2


def test_answers_in_a_gather_tell_tasks_apart() -> None:
    """Values that are drawn again play no part (replay.md#v3)."""
    app, host = serving()

    @app.tool
    def both() -> Flow[str]:
        one, other = yield from Gather(Elicit("One", str), Elicit("Other", str))
        drawn = yield from Random()
        yield from Detach()
        return f"{one}, {other}, {drawn}"

    asked = result(call(app, "both", capabilities=FOLLOWS))

    def made(*names: str) -> Any:
        answers = said(asked, *[{"value": one} for one in names])
        more = {"answers": answers, "state": asked["requestState"]}
        return result(call(app, "both", capabilities=FOLLOWS, **more))["taskId"]

    assert made("a", "b") == made("a", "b")
    assert made("b", "a") != made("a", "b")
    assert len(host.rows) == 2


def test_version_is_taken_from_the_first_round() -> None:
    """A deploy may change the declared version between two rounds."""
    app, host = serving()
    app.tool(name="dated", version="1")(order)
    options = {"capabilities": FOLLOWS, "arguments": {"title": "Emma"}}
    asked = result(call(app, "dated", **options))
    app.remove(app.tools["dated"])
    app.tool(name="dated", version="2")(order)
    options |= {"answers": said(asked, {}), "state": asked["requestState"]}
    id_ = result(call(app, "dated", **options))["taskId"]
    assert host.rows[id_].version == "1"


def test_call_that_began_with_rounds_ends_with_them() -> None:
    """The state has the answers; a new task would ask again."""
    app, host = serving()

    @app.tool(task="optional")
    def asking() -> Flow[str]:
        name = yield from Elicit("Name it", str)
        return f"Hello, {name}"

    asked = result(call(app, "asking"))
    answers = {"answers": said(asked, {"value": "Ann"}), "state": asked["requestState"]}
    ended = result(call(app, "asking", capabilities=FOLLOWS, **answers))
    assert (text_of(ended), host.rows) == ("Hello, Ann", {})


# ---- inline -------------------------------------------------------------------------


def inline(app: Server, **options: Any) -> str:
    return text_of(detached(app, **options))


def test_detach_without_the_extension_is_false() -> None:
    app, host = serving()
    assert inline(app, capabilities=EVERYTHING) == "Emma, False"
    assert host.rows == {}


def test_detach_without_a_store_is_false() -> None:
    assert inline(without_store()) == "Emma, False"


def test_optional_tool_without_a_store_runs_inline() -> None:
    assert text_of(result(call(without_store(), "optional", capabilities=FOLLOWS))) == (
        "rested"
    )


def test_nothing_detaches_where_nothing_runs() -> None:
    """As over WSGI, unless a worker runs elsewhere."""
    app, host = serving(Rows(is_worked=False))
    assert inline(app) == "Emma, False"
    assert text_of(result(call(app, "optional", capabilities=FOLLOWS))) == "rested"
    assert host.rows == {}
    host.is_worked = True
    assert detached(app)["resultType"] == "task"


def test_required_tool_where_nothing_runs_is_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client lacks nothing: the server does."""
    app, host = serving(Rows(is_worked=False))
    reply = call(app, "required", capabilities=FOLLOWS)
    assert error(reply)["code"] == -32603
    assert "runs no tasks" in caplog.text
    assert host.rows == {}


@pytest.mark.parametrize("revision", [*VERSIONS, DRAFT])
def test_legacy_client_that_asks_for_no_task_gets_none(revision: str) -> None:
    """No declaration and no state helps: the extension is of 2026-07-28."""
    app, host = serving(drafts=True)
    client = LegacyClient(app, revision, FOLLOWS)
    assert text_of(client.call("optional")) == "rested"
    reply = client.send("tools/call", {"name": "required"})
    if revision < "2025-11-25":
        assert reply.message is not None
        assert "cannot follow tasks" in text_of(reply.message["result"])
    else:
        assert error(reply)["code"] == -32601
    forged = {"name": "required", "requestState": "made up"}
    assert "rested" not in str(client.send("tools/call", forged).message)
    app.tool(name="detaching")(detaching)
    assert text_of(client.call("detaching")) == "False"
    assert host.rows == {}


def test_nothing_leaves_from_a_task() -> None:
    """The round sends its messages until `Detach`; a task sends no progress, no log."""
    app, _ = serving()
    heard: list[str] = []

    def notify(message: Mapping[str, Any]) -> None:
        heard.append(message["params"].get("data", message["method"]))

    more: Wire = {"notify": notify, "log_level": "debug", "progressToken": 1}
    assert detached(app, **more)["resultType"] == "task"
    assert heard == ["about to detach"]


@pytest.mark.parametrize("task", ["optional", "required"])
def test_plain_function_cannot_be_a_task(task: Any) -> None:
    app = Server("shop")

    async def later() -> str:
        return "x"

    for function in (later, lambda: "x"):
        with pytest.raises(SchemaError, match="write a flow"):
            app.tool(name="t", task=task)(function)
    with pytest.raises(SchemaError, match="give 'optional', 'required' or"):
        app.tool(name="t", task="always")(nap)  # type: ignore[call-overload]  # the mistake


def test_required_tool_without_a_store_is_refused_at_the_start() -> None:
    app = Server("shop", keys=KEYS)
    app.tool(name="required", task="required")(nap)
    with pytest.raises(UsageError, match="'required' is always a task"):
        ensure_tasks(app, is_alone=False)
    ensure_tasks(app, is_alone=True)
    assert isinstance(app.tasks, SqliteTasks)


def test_required_tool_over_wsgi_needs_a_worker() -> None:
    app = Server("shop", keys=KEYS, tasks=SqliteTasks())
    app.tool(name="required", task="required")(nap)
    with pytest.raises(UsageError, match="effectmcp worker"):
        application(app)
    app.tasks = SqliteTasks(is_worked=True)
    application(app)


# ---- the store fails, or is full ----------------------------------------------------


@pytest.mark.parametrize("name", ["order", "optional"])
def test_too_many_tasks_are_an_error_of_the_tool(name: str) -> None:
    app, host = serving()
    host.failure = TaskLimitError("you have too many tasks")
    made = (
        detached(app)
        if name == "order"
        else result(call(app, name, capabilities=FOLLOWS))
    )
    assert made["isError"]
    assert text_of(made) == "you have too many tasks"


def test_each_user_has_a_share_of_the_tasks() -> None:
    """All anonymous clients are one user; task by `Detach` or from the start counts."""
    app, _ = serving(SqliteTasks(is_worked=True, share=2, limit=5))
    started(app)
    assert detached(app)["resultType"] == "task"
    for made in (
        detached(app),
        result(call(app, "optional", capabilities=FOLLOWS)),
        result(call(app, "required", capabilities=FOLLOWS)),
    ):
        assert made["isError"]
        assert "too many tasks" in text_of(made)
    started(app, ANN)


@pytest.mark.parametrize("name", ["order", "optional"])
def test_task_that_cannot_be_stored_is_an_internal_error(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The tool reports no error: the client may send the same request again."""
    app, host = serving()
    options: dict[str, Any] = {"capabilities": FOLLOWS}
    if name == "order":
        options["arguments"] = {"title": "Emma"}
        asked = result(call(app, "order", **options))
        options |= {"answers": said(asked, {}), "state": asked["requestState"]}
    host.failure = TaskStoreError("the disk is full")
    assert error(call(app, name, **options))["code"] == -32603
    assert "the disk is full" not in str(error(call(app, name, **options)))
    assert "the disk is full" in caplog.text
    host.failure = None
    assert result(call(app, name, **options))["resultType"] == "task"


@pytest.mark.parametrize("method", [*METHODS, "listen"])
def test_store_that_fails_is_an_internal_error(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, host = serving()
    id_ = started(app)
    host.failure = TaskStoreError("the disk is away")
    reply = (
        listen(app, [id_])[0]
        if method == "listen"
        else of(app, method, id_, inputResponses={})
    )
    assert error(reply)["code"] == -32603
    assert "disk" not in str(reply.message)
    assert "the disk is away" in caplog.text


# ---- the methods --------------------------------------------------------------------


def test_task_that_cannot_be_read_looks_like_a_missing_task() -> None:
    """Unknown, of another user, removed: no difference shows (Security Considerations)."""
    app, host = serving()
    others, removed = started(app, ANN), started(app)
    del host.rows[removed]
    messages: list[Any] = []
    for method in METHODS:
        for id_ in ("unknown", "", "\0", "x" * 100_000, others, removed):
            reply = of(app, method, id_, inputResponses={})
            assert error(reply)["code"] == -32602
            messages.append((reply.status, error(reply)))
        assert all(one == messages[0] for one in messages)
    assert host.mail == []
    for method in METHODS:
        assert result(of(app, method, others, inputResponses={}, peer=ANN))
        bob = Peer(principal="bob")
        reply = of(app, method, others, inputResponses={}, peer=bob)
        assert error(reply) == messages[0][1]


@pytest.mark.parametrize("id_", ["\0", "", "x" * 100_000], ids=lambda one: one[:3])
def test_odd_id_is_unknown_to_sqlite(id_: str) -> None:
    app, _ = serving(SqliteTasks(is_worked=True))
    assert error(of(app, "get", id_))["code"] == -32602
    reply, heard = listen(app, [id_])
    assert (result(reply)["resultType"], acknowledged(heard)) == ("complete", {})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("id_", [None, 5, [], {}], ids=repr)
def test_id_that_is_not_a_string_is_invalid(method: str, id_: Any) -> None:
    app, _ = serving()
    reply = of(app, method, id_, inputResponses={})
    assert (error(reply)["code"], "taskId" in error(reply)["message"]) == (-32602, True)
    reply = send(app, f"tasks/{method}", {}, capabilities=FOLLOWS)
    assert error(reply)["code"] == -32602


@pytest.mark.parametrize("answers", [None, [], "x", 5], ids=repr)
def test_answers_that_are_not_an_object_are_invalid(answers: Any) -> None:
    app, host = serving()
    reply = of(app, "update", started(app), inputResponses=answers)
    assert error(reply)["code"] == -32602
    assert "inputResponses" in error(reply)["message"]
    assert host.mail == []


STATUSES: Mapping[str, Wire] = {
    "working": {},
    "input_required": {"inputRequests": {"confirm-1": {"method": "x"}}},
    "completed": {"result": {"content": [], "isError": True}},
    "failed": {"error": {"code": -32603, "message": "it broke"}},
    "cancelled": {},
}


def put(host: Rows, id_: str, status: str) -> None:
    """Give a task a status, with all that goes along."""
    of_row = {"inputRequests": "questions"}
    more = {of_row.get(key, key): one for key, one in STATUSES[status].items()}
    host.change(id_, status=status, message="so far", **more)


@pytest.mark.parametrize("status", STATUSES)
def test_get_has_what_belongs_to_the_status(status: str) -> None:
    app, host = serving()
    id_ = started(app)
    put(host, id_, status)
    found = result(of(app, "get", id_))
    assert found.keys() == {
        *("resultType", "_meta", "taskId", "status", "statusMessage"),
        *("createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"),
        *STATUSES[status],
    }
    assert (found["resultType"], found["statusMessage"]) == ("complete", "so far")
    assert {key: found[key] for key in STATUSES[status]} == STATUSES[status]


def test_task_without_an_end_has_no_ttl() -> None:
    app, host = serving()
    id_ = started(app)
    host.change(id_, ttl=None)
    assert result(of(app, "get", id_))["ttlMs"] is None


@pytest.mark.parametrize("status", STATUSES)
def test_acknowledgements_are_empty(status: str) -> None:
    """A cancel is acknowledged even if the task has ended, and then it stores nothing."""
    app, host = serving()
    id_ = started(app)
    put(host, id_, status)
    for reply in (
        of(app, "update", id_, inputResponses={"unknown": {"action": "accept"}, "": 5}),
        of(app, "cancel", id_),
    ):
        assert result(reply).keys() == {"resultType", "_meta"}
        assert result(reply)["resultType"] == "complete"
    is_ended = status in ("completed", "failed", "cancelled")
    mail = [] if is_ended else [(id_, Mail("cancel", "cancel"))]
    assert host.mail == mail


@pytest.mark.parametrize("value", [None, 5, [], {"action": "no"}, {}], ids=repr)
def test_answer_without_a_shape_is_acknowledged(value: Any) -> None:
    """The turn judges the answer; answers to other keys are ignored."""
    app, host = serving()
    id_ = started(app)
    put(host, id_, "input_required")
    answers = {"confirm-1": value, "confirm-2": value}
    assert result(of(app, "update", id_, inputResponses=answers))
    assert host.mail == [(id_, Mail("answer:confirm-1", "answer", "confirm-1", value))]


# ---- HTTP ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_name_header_is_the_id_of_the_task(method: str) -> None:
    """Tasks extension, Streamable HTTP: Routing Headers."""
    app, _ = serving()
    id_ = started(app)
    params = {"taskId": id_, "inputResponses": {}}
    message = request(f"tasks/{method}", params, capabilities=FOLLOWS)

    def status(**more: str | None) -> tuple[int, Any]:
        peer = Peer(headers=headers_of(message, **{"mcp_name": id_, **more}))
        reply = sync.handle(app, message, peer)
        assert reply.message is not None
        return reply.status, reply.message.get("error", {}).get("code")

    assert status() == (200, None)
    assert status(mcp_name=f" {id_} ") == (200, None)
    assert status(mcp_name="other") == (400, -32020)
    assert status(mcp_name=None) == (400, -32020)
    assert status(mcp_method="tasks/list") == (400, -32020)


def test_call_has_the_name_of_its_tool_in_the_header() -> None:
    app, _ = serving()
    message = request("tools/call", {"name": "optional"}, capabilities=FOLLOWS)
    reply = sync.handle(app, message, Peer(headers=headers_of(message)))
    assert result(reply)["resultType"] == "task"


# ---- observers ----------------------------------------------------------------------


def test_observers_hear_that_a_flow_has_detached() -> None:
    events: list[Event] = []
    app, host = serving(observers=[events.append])
    detached(app)
    rounds = [one for one in events if isinstance(one, (RoundBegan, RoundEnded))]
    _, asked, began, ended = rounds
    assert isinstance(asked, RoundEnded)
    assert isinstance(ended, RoundEnded)
    (row,) = host.rows.values()
    assert (asked.outcome, ended.outcome, ended.asked) == ("asked", "detached", 0)
    assert began.flow_id == ended.flow_id == row.flow_id.hex()
    assert ended.journal is not None
    assert ended.journal.dumps() == row.journal


def test_observers_hear_that_a_task_could_not_be_stored() -> None:
    events: list[Event] = []
    app, host = serving(observers=[events.append])
    host.failure = TaskLimitError("too many")
    detached(app)
    *_, ended, _ = events
    assert isinstance(ended, RoundEnded)
    assert (ended.outcome, str(ended.error)) == ("raised", "too many")


# ---- subscriptions ------------------------------------------------------------------

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def listening(ids: Any, capabilities: Any = FOLLOWS) -> Wire:
    params = {"notifications": {"taskIds": ids}}
    return request("subscriptions/listen", params, id="s", capabilities=capabilities)


def listen(
    app: Server, ids: Any, peer: Peer | None = None, capabilities: Any = FOLLOWS
) -> tuple[Any, list[Wire]]:
    """The reply of the driver without a loop, and the messages before it."""
    heard: list[Wire] = []
    message = listening(ids, capabilities)
    reply = sync.handle(app, message, peer, send=lambda one: heard.append({**one}))
    return reply, heard


def acknowledged(heard: list[Wire]) -> Wire:
    found: Wire = heard[0]["params"]["notifications"]
    assert heard[0]["method"] == ACKNOWLEDGED
    fits("SubscriptionsAcknowledgedNotification", heard[0])
    return found


def test_subscription_without_the_extension_is_refused() -> None:
    app, host = serving()
    reply, heard = listen(app, [started(app)], capabilities=EVERYTHING)
    assert (refused(reply), error(reply)["data"], heard) == ((400, -32021), NEEDED, [])
    assert host.reads == 0
    reply, heard = listen(app, [], capabilities=EVERYTHING)
    assert acknowledged(heard) == {}


@pytest.mark.parametrize("ids", ["x", [5], {}, None, ["x"] * 1_001], ids=lambda _: "")
def test_subscription_to_invalid_ids_is_refused(ids: Any) -> None:
    app, _ = serving()
    assert error(listen(app, ids)[0])["code"] == -32602


def test_subscription_is_to_readable_tasks() -> None:
    """The others look alike: they are left out."""
    app, host = serving()
    mine, others, removed = started(app), started(app, ANN), started(app)
    del host.rows[removed]
    ids = [others, mine, "unknown", removed, mine]
    _, heard = listen(app, ids)
    assert acknowledged(heard) == {"taskIds": [mine]}
    assert [one["params"].get("taskId") for one in heard[1:-1]] == [mine]
    _, heard = listen(app, ids, ANN)
    assert acknowledged(heard) == {"taskIds": [others]}
    _, heard = listen(app, ["unknown"])
    assert acknowledged(heard) == {}


def test_subscription_on_a_server_without_tasks_acknowledges_none() -> None:
    _, heard = listen(without_store(), ["x"])
    assert acknowledged(heard) == {}


@pytest.mark.parametrize("status", STATUSES)
def test_subscription_tells_the_current_status_at_once(status: str) -> None:
    """A notification is what `tasks/get` would return."""
    app, host = serving()
    id_ = started(app)
    put(host, id_, status)
    reply, heard = listen(app, [id_])
    _, told, ended = heard
    assert (told["method"], ended["method"]) == (
        "notifications/tasks",
        "notifications/cancelled",
    )
    found = result(of(app, "get", id_))
    assert told["params"].pop("_meta") == {
        "io.modelcontextprotocol/subscriptionId": "s"
    }
    assert told["params"] == {
        key: one for key, one in found.items() if key not in ("resultType", "_meta")
    }
    assert result(reply)["resultType"] == "complete"


def test_subscription_without_a_loop_survives_a_store_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, host = serving()
    id_ = started(app)
    heard: list[Wire] = []

    def hear(message: Mapping[str, Any]) -> None:
        heard.append({**message})
        host.failure = TaskStoreError("the disk is away")

    reply = sync.handle(app, listening([id_]), send=hear)
    assert result(reply)["resultType"] == "complete"
    assert [one["method"] for one in heard] == [ACKNOWLEDGED, "notifications/cancelled"]
    assert "the disk is away" in caplog.text


LOOPS = pytest.mark.parametrize("name", ["trio", "asyncio"])


def followed(
    name: str, app: Server, ids: list[str], script: Callable[[list[Wire]], bool]
) -> list[Wire]:
    """The messages of a subscription on a loop.

    `script` is called after each message, and returns whether the server shuts down.
    """
    heard: list[Wire] = []

    async def send_(message: Mapping[str, Any]) -> None:
        heard.append({**message})
        if script(heard):
            app.changes.publish(Change("end"))

    async def main() -> None:
        driver: Any = {"trio": on_trio, "asyncio": on_asyncio}[name]
        await driver.handle(app, listening(ids), send=send_)

    if name == "trio":
        import trio

        trio.run(main)
    else:
        import asyncio

        asyncio.run(main())
    return [one["params"] for one in heard if one["method"] == "notifications/tasks"]


@LOOPS
def test_subscription_tells_each_change(name: str) -> None:
    app, host = serving()
    id_ = started(app)
    coming = list(STATUSES)[1:4]

    def script(heard: list[Wire]) -> bool:
        if len(heard) >= 2 and coming:
            put(host, id_, coming.pop(0))
            app.changes.publish(Change("task", id_))
            # What others follow concerns this one only if it is read.
            app.changes.publish(Change("task", "other"))
        return len(heard) == 5

    told = followed(name, app, [id_], script)
    assert [one["status"] for one in told] == list(STATUSES)[:4]
    for one in told:
        assert STATUSES[one["status"]].items() <= one.items()


@LOOPS
def test_subscription_tells_no_change_that_no_client_sees(name: str) -> None:
    """A task is saved with each of its steps."""
    app, host = serving()
    id_ = started(app)
    saves = 5

    def script(heard: list[Wire]) -> bool:
        nonlocal saves
        if len(heard) == 2:
            while saves:
                saves -= 1
                host.change(id_, updated=host.rows[id_].updated + 1)
                app.changes.publish(Change("task", id_))
            return True
        return False

    told = followed(name, app, [id_], script)
    assert [one["status"] for one in told] == ["working"]


@LOOPS
def test_subscription_tells_later_what_it_could_not_read(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No change is lost: a client that listens need not poll."""
    monkeypatch.setattr("effectmcp.drivers.local._PAUSE", 0.0)
    caplog.set_level(logging.WARNING)
    app, host = serving()
    id_ = started(app)
    failures = 3
    read = host.read

    def failing(id_: str) -> TaskRow | None:
        nonlocal failures
        if host.rows[id_].status == "completed" and failures:
            failures -= 1
            raise TaskStoreError("the disk is away")
        return read(id_)

    monkeypatch.setattr(Rows, "read", lambda self, id_: failing(id_))

    def script(heard: list[Wire]) -> bool:
        if len(heard) == 2:
            put(host, id_, "completed")
            app.changes.publish(Change("task", id_))
        return len(heard) == 3

    told = followed(name, app, [id_], script)
    assert [one["status"] for one in told] == ["working", "completed"]
    assert caplog.text.count("the disk is away") == 3


@LOOPS
def test_subscription_is_silent_about_a_removed_task(name: str) -> None:
    app, host = serving()
    removed, left = started(app), started(app)

    def script(heard: list[Wire]) -> bool:
        host.rows.pop(removed, None)
        return len(heard) == 2

    told = followed(name, app, [removed, left], script)
    assert [one["taskId"] for one in told] == [left]


def test_session_is_not_notified_of_tasks() -> None:
    """A legacy client cannot follow them."""
    app, _ = serving()
    client = LegacyClient(app)
    assert not client.session.news.wants(Change("task", started(app)))


@LOOPS
def test_subscription_ends_while_its_store_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, host = serving()
    id_ = started(app)

    def script(heard: list[Wire]) -> bool:
        host.failure = TaskStoreError("the disk is away")
        return True

    assert followed(name, app, [id_], script) == []


@LOOPS
def test_subscription_reads_in_a_thread(name: str) -> None:
    """A store may block for a disk; the loop serves other clients meanwhile."""
    import threading

    app, host = serving()
    id_ = started(app)
    threads: set[Any] = set()
    read = Rows.read

    @attrs.define(eq=False)
    class Watching(Rows):
        def read(self, id_: str) -> TaskRow | None:
            threads.add(threading.current_thread())
            return read(self, id_)

    app.tasks = Watching(rows=host.rows)
    followed(name, app, [id_], lambda heard: len(heard) == 2)
    assert threads
    assert threading.main_thread() not in threads


@LOOPS
def test_subscription_to_a_hundred_tasks(name: str) -> None:
    app, host = serving()
    ids = [started(app) for _ in range(100)]

    def script(heard: list[Wire]) -> bool:
        if len(heard) == 101:
            for id_ in ids:
                put(host, id_, "cancelled")
                app.changes.publish(Change("task", id_))
        return len(heard) == 201

    told = followed(name, app, ids, script)
    assert [one["taskId"] for one in told[:100]] == ids
    assert {one["taskId"] for one in told[100:]} == set(ids)
    assert {one["status"] for one in told[100:]} == {"cancelled"}
