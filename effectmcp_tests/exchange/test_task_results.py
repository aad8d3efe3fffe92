"""`tasks/result`: it waits, asks on its own stream, and gives up when it should."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    ListRoots,
    Outcome,
    Sample,
    Server,
    Sleep,
    Within,
)
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import sync
from effectmcp.drivers import trio as on_trio
from effectmcp.drivers.local import ask_client
from effectmcp.exchange.commands import Peer
from effectmcp.exchange.sessions import Dropped, Inquiry, News, TaskInquiry
from effectmcp.protocol.jsonrpc import Response
from effectmcp.protocol.meta import RELATED_TASK
from effectmcp.server.changes import Change
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.working import working

from ..legacy_client import LegacyClient
from ..wire import EVERYTHING, KEYS, Wire, error, text_of
from .test_task_wires import (
    DRAFT,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NEWEST,
    REQUESTED,
    Older,
    World,
    accepted,
    asking,
    long,
    no_answer,
    world,
)

LOOPS = pytest.mark.parametrize("loop", ["trio", "asyncio"])


def both() -> Flow[str]:
    """Ask two questions at once."""
    one, other = yield from Gather(Elicit("One?", str), Elicit("Other?", str))
    return f"{one} {other}"


def sampling() -> Flow[str]:
    """Ask everything that can be asked."""
    text = (yield from Sample("Hi", max_tokens=5)).text
    roots = yield from ListRoots()
    yield from ElicitUrl("Sign in", "https://example.com")
    return f"{text} {len(roots)}"


def client(
    here: World, name: str | None = None, capabilities: Any = EVERYTHING
) -> Older:
    """A client of 2025-11-25."""
    user = here.user(NEWEST, name, capabilities=capabilities)
    assert isinstance(user, Older)
    return user


def result_of(user: Older, id_: str, answer: Any = no_answer) -> Any:
    """The message that answers `tasks/result`; `None` if none does."""
    return user.send("tasks/result", {"taskId": id_}, answer).message


def asked_of(user: Older) -> list[str]:
    """The messages of the questions that a client was asked."""
    return [one["params"]["message"] for one in user.client.asked]


def withdrawn(user: Older) -> list[Any]:
    """The ids of the questions that were withdrawn."""
    return [
        one["params"]["requestId"]
        for one in user.told
        if one["method"] == "notifications/cancelled"
    ]


def cancel(user: Older, id_: Any) -> None:
    """Cancel a request."""
    user.client.notify("notifications/cancelled", {"requestId": id_})


# ---- asking -------------------------------------------------------------------------


def test_questions_of_a_gather_go_out_together() -> None:
    """The replies may come in any order."""
    here = world(both)
    user = client(here)
    id_ = user.start("both")
    asked: list[Wire] = []

    def answer(question: Wire) -> None:
        asked.append(question)
        if len(asked) == 2:
            for one in reversed(asked):
                said = {
                    "action": "accept",
                    "content": {"value": one["params"]["message"]},
                }
                user.client.reply({"jsonrpc": "2.0", "id": one["id"], "result": said})

    assert text_of(result_of(user, id_, answer)["result"]) == "One? Other?"
    assert withdrawn(user) == []
    assert len(asked) == 2


def test_every_kind_of_question_can_be_asked() -> None:
    here = world(sampling)
    user = client(here)
    id_ = user.start("sampling")

    def answer(question: Wire) -> Wire:
        match question["method"]:
            case "sampling/createMessage":
                content = {"type": "text", "text": "Hello"}
                said: Wire = {"role": "assistant", "content": content, "model": "m"}
            case "roots/list":
                said = {"roots": [{"uri": "file:///a"}]}
            case _:
                assert question["params"]["mode"] == "url"
                said = {"action": "accept"}
        return {"result": said}

    assert text_of(result_of(user, id_, answer)["result"]) == "Hello 1"
    metas = [one["params"]["_meta"] for one in user.client.asked]
    assert metas == [{RELATED_TASK: {"taskId": id_}}] * 3
    page = user.client.asked[-1]["params"]["elicitationId"]
    assert page.startswith(id_)


#: Capabilities of a session that did not start the task; the methods that it is asked.
CAPABILITIES: Mapping[str, tuple[Wire, set[str]]] = {
    "none": ({}, set()),
    "null": ({"elicitation": None, "sampling": 5, "roots": []}, set()),
    "elicitation": ({"elicitation": {}}, {"form"}),
    "form": ({"elicitation": {"form": {}}}, {"form"}),
    "url only": ({"elicitation": {"url": {}}}, {"url"}),
    "both modes": ({"elicitation": {"form": {}, "url": {}}}, {"form", "url"}),
    "sampling": ({"sampling": {}}, {"sampling/createMessage"}),
    "roots": ({"roots": {}}, {"roots/list"}),
}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_session_is_asked_what_it_can_answer(name: str) -> None:
    """The task was started by another session of the same user, which has other
    capabilities. Servers ask for nothing that was not negotiated (Lifecycle,
    Operation; Elicitation, Capabilities).
    """
    here = world()

    @here.app.tool(task="optional")
    def all_at_once() -> Flow[str]:
        yield from Gather(
            Elicit("Who?", str),
            ElicitUrl("Sign in", "https://example.com"),
            Sample("Hi", max_tokens=5),
            ListRoots(),
        )
        return "done"

    capabilities, kinds = CAPABILITIES[name]
    able = client(here, "ann")
    user = client(here, "ann", capabilities)
    id_ = able.start("all_at_once")
    here.later.append(lambda: able.result("tasks/cancel", {"taskId": id_}))
    assert result_of(user, id_)["error"]["code"] == INTERNAL_ERROR
    asked = {
        one.get("params", {}).get("mode", one["method"]) for one in user.client.asked
    }
    assert asked == kinds


def test_session_without_tools_is_not_asked_to_sample_with_tools() -> None:
    """ "Servers MUST NOT send tool-enabled sampling requests to Clients that have not
    declared support for tool use via the `sampling.tools` capability" (2025-11-25,
    Sampling).
    """
    here = world()
    tool = {"name": "add", "inputSchema": {"type": "object"}}

    @here.app.tool(task="optional")
    def using() -> Flow[str]:
        return (yield from Sample("Hi", max_tokens=5, tools=[tool])).text

    able = client(here, "ann")
    user = client(here, "ann", {"sampling": {}})
    id_ = able.start("using")
    here.later.append(lambda: able.result("tasks/cancel", {"taskId": id_}))
    result_of(user, id_)
    assert user.client.asked == []


def test_question_that_is_answered_elsewhere_is_withdrawn() -> None:
    """By another session of the same user; the client closes its form."""
    here = world(asking)
    ann, again = client(here, "ann"), client(here, "ann")
    id_ = ann.start("asking")
    here.later.append(lambda: result_of(again, id_, accepted("2")))
    found = result_of(ann, id_)
    assert text_of(found["result"]) == "2 x 2"
    assert asked_of(ann)[0] == "What?"
    ids = [one["id"] for one in ann.client.asked]
    assert withdrawn(ann) == ids
    assert withdrawn(again) == []


def test_withdrawal_names_its_task() -> None:
    """ "All requests, notifications, and responses related to a task MUST include the
    `io.modelcontextprotocol/related-task` key" (Tasks, Related Task Metadata).
    """
    here = world(asking)
    ann, again = client(here, "ann"), client(here, "ann")
    id_ = ann.start("asking")
    here.later.append(lambda: result_of(again, id_, accepted("2")))
    result_of(ann, id_)
    told = [one for one in ann.told if one["method"] == "notifications/cancelled"]
    assert told
    metas = [one["params"].get("_meta") for one in told]
    assert metas == [{RELATED_TASK: {"taskId": id_}}] * len(told)


def test_question_whose_time_is_up_is_withdrawn() -> None:
    here = world()

    @here.app.tool(task="optional")
    def impatient() -> Flow[str]:
        return str((yield from Within(10, Elicit("Who?", str))))

    user = client(here)
    id_ = user.start("impatient")
    assert text_of(result_of(user, id_)["result"]) == "TimedOut()"
    assert withdrawn(user) == [one["id"] for one in user.client.asked]
    assert len(withdrawn(user)) == 1


def test_late_reply_is_ignored() -> None:
    """A reply to a question that was never asked is ignored, too."""
    here = world()

    @here.app.tool(task="optional")
    def twice() -> Flow[str]:
        yield from Within(10, Elicit("Who?", str))
        return (yield from Elicit("And?", str))

    user = client(here)
    id_ = user.start("twice")

    def answer(question: Wire) -> Wire | None:
        if question["params"]["message"] == "Who?":
            return None
        (late,) = withdrawn(user)
        for one in (late, 999_999, "x"):
            said = {"action": "accept", "content": {"value": "late"}}
            reply = {"jsonrpc": "2.0", "id": one, "result": said}
            assert user.client.reply(reply).status == 202
        return accepted("in time")(question)

    assert text_of(result_of(user, id_, answer)["result"]) == "in time"


def test_first_of_two_replies_counts() -> None:
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")

    def answer(question: Wire) -> Wire | None:
        for value in ("first", "second"):
            said = {"action": "accept", "content": {"value": value}}
            user.client.reply({"jsonrpc": "2.0", "id": question["id"], "result": said})
        return accepted("third")(question)

    assert text_of(result_of(user, id_, answer)["result"]) == "first x first"


@pytest.mark.parametrize(
    ("failure", "ends"),
    [
        ({"code": -1, "message": "User rejected"}, "declined"),
        ({"code": -32603, "message": "it broke"}, "dismissed"),
        ({"code": -32042, "message": "x", "data": {}}, "dismissed"),
        ({}, "dismissed"),
        (5, "dismissed"),
    ],
    ids=repr,
)
def test_error_for_a_form_closes_it(failure: Any, ends: str) -> None:
    """The mail of a task holds results, and -1 means that the user declined."""
    here = world()

    @here.app.tool(task="optional")
    def who() -> Flow[str]:
        return type((yield from Outcome(Elicit("Who?", str)))).__name__.lower()

    user = client(here)
    id_ = user.start("who")
    found = result_of(user, id_, lambda question: {"error": failure})
    assert text_of(found["result"]) == ends
    assert len(user.client.asked) == 1


def test_error_for_another_question_leaves_it_outstanding() -> None:
    """The question is not asked again in this request; another session may answer it."""
    here = world()

    @here.app.tool(task="optional")
    def model() -> Flow[str]:
        return (yield from Sample("Hi", max_tokens=5)).text

    ann, again = client(here, "ann"), client(here, "ann")
    id_ = ann.start("model")
    content = {"type": "text", "text": "Hello"}
    said: Wire = {"role": "assistant", "content": content, "model": "m"}
    statuses = []

    def elsewhere() -> None:
        statuses.append(ann.get(id_)["status"])
        result_of(again, id_, lambda question: {"result": said})

    # Some looks later: until then the question is not repeated.
    here.later.extend([lambda: here.pass_(5), elsewhere])
    failure = {"error": {"code": -1, "message": "User rejected sampling request"}}
    found = result_of(ann, id_, lambda question: failure)
    assert text_of(found["result"]) == "Hello"
    assert len(ann.client.asked) == 1
    assert statuses == ["input_required"]


@pytest.mark.parametrize(
    "said",
    [
        {"result": {"action": "accept", "content": {"other": 5}}},
        {"result": {"action": "perhaps"}},
        {"result": 5},
        {"result": {}},
    ],
    ids=repr,
)
def test_answer_that_does_not_fit_is_asked_again(said: Wire) -> None:
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")
    answers = iter([said])
    found = result_of(user, id_, lambda one: next(answers, None) or accepted("2")(one))
    assert text_of(found["result"]) == "2 x 2"
    assert len(user.client.asked) == 3
    assert len({one["id"] for one in user.client.asked}) == 3


@pytest.mark.parametrize("reply", [{"result": None}, {"error": None, "result": None}])
def test_reply_without_a_result_leaves_the_question_outstanding(reply: Wire) -> None:
    here = world(asking)
    ann, again = client(here, "ann"), client(here, "ann")
    id_ = ann.start("asking")
    here.later.append(lambda: result_of(again, id_, accepted("2")))
    assert text_of(result_of(ann, id_, lambda one: reply)["result"]) == "2 x 2"


# ---- two at once --------------------------------------------------------------------


def test_two_requests_for_one_result_both_get_it() -> None:
    """Each asks; the first answer counts, and the other question is withdrawn."""
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")
    ends: list[Any] = []
    here.later.append(lambda: ends.append(result_of(user, id_, accepted("2"))))
    outer = result_of(user, id_)
    assert text_of(outer["result"]) == text_of(ends[0]["result"]) == "2 x 2"
    asked = asked_of(user)
    assert (asked.count("What?"), asked.count("How many?")) in ((2, 1), (2, 2))
    assert len(withdrawn(user)) == len(asked) - 2


def test_requests_of_two_tasks_keep_apart() -> None:
    here = world(asking, both)
    user = client(here)
    one, other = user.start("asking"), user.start("both")
    ends: list[Any] = []
    here.later.append(lambda: ends.append(result_of(user, other, accepted("b"))))
    held: list[Wire] = []

    def hold(question: Wire) -> Wire | None:
        if question["params"]["message"] == "How many?":
            return accepted("a")(question)
        held.append(question)
        return None

    def reply() -> None:
        said = {"action": "accept", "content": {"value": "a"}}
        user.client.reply({"jsonrpc": "2.0", "id": held[0]["id"], "result": said})

    here.later.append(reply)
    assert text_of(result_of(user, one, hold)["result"]) == "a x a"
    assert text_of(ends[0]["result"]) == "b b"
    for question in user.client.asked:
        is_first = question["params"]["message"] in ("What?", "How many?")
        id_ = question["params"]["_meta"][RELATED_TASK]["taskId"]
        assert id_ == (one if is_first else other)


# ---- the end of the wait ------------------------------------------------------------


@pytest.mark.parametrize("wire", REQUESTED)
def test_request_that_the_client_cancels_gets_no_response(wire: str) -> None:
    """The task continues: only `tasks/cancel` ends it."""
    here = world(long)
    user = here.user(wire)
    assert isinstance(user, Older)
    id_ = user.start("long")
    here.later.append(lambda: cancel(user, 77))
    reply = user.client.send("tasks/result", {"taskId": id_}, id=77)
    assert (reply.message, reply.status) == (None, 202)
    assert user.get(id_)["status"] == "working"
    assert not user.client.session.is_busy


def test_cancelled_request_leaves_its_questions() -> None:
    """A reply that comes then is late; the next request asks again."""
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")
    here.later.append(lambda: cancel(user, 77))
    assert user.client.send("tasks/result", {"taskId": id_}, id=77).message is None
    (first,) = user.client.asked
    said = {"action": "accept", "content": {"value": "late"}}
    user.client.reply({"jsonrpc": "2.0", "id": first["id"], "result": said})
    assert here.host.mail == []
    assert text_of(result_of(user, id_, accepted("2"))["result"]) == "2 x 2"


def test_cancel_that_comes_before_the_wait_ends_the_request() -> None:
    """Between the first look at the task and the first wait."""
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")
    here.play()

    def answer(question: Wire) -> None:
        cancel(user, 77)

    reply = user.client.send("tasks/result", {"taskId": id_}, answer, id=77)
    assert reply.message is None


def test_session_that_ends_ends_the_request() -> None:
    here = world(long)
    user = client(here)
    id_ = user.start("long")
    here.later.append(user.client.session.close)
    assert result_of(user, id_) is None


@pytest.mark.parametrize("wire", REQUESTED)
def test_cancel_of_the_task_ends_the_request_with_an_error(wire: str) -> None:
    """If the task is asking a question, the question is withdrawn."""
    here = world(asking, long)
    user, again = here.user(wire, "ann"), here.user(wire, "ann")
    assert isinstance(user, Older)
    name = "asking" if wire == NEWEST else "long"
    id_ = user.start(name)
    here.later.append(lambda: again.result("tasks/cancel", {"taskId": id_}))
    reply = user.send("tasks/result", {"taskId": id_})
    assert error(reply)["message"] == "The task was cancelled"
    assert withdrawn(user) == [one["id"] for one in user.client.asked]


@pytest.mark.parametrize("wire", REQUESTED)
def test_task_that_is_removed_ends_the_request(wire: str) -> None:
    here = world(long)
    user = here.user(wire)
    id_ = user.start("long")
    here.later.append(here.host.rows.clear)
    reply = user.send("tasks/result", {"taskId": id_})
    assert error(reply) == {"code": INVALID_PARAMS, "message": "Task not found"}


@pytest.mark.parametrize("wire", REQUESTED)
def test_server_that_shuts_down_is_still_answered_by_the_clock(wire: str) -> None:
    """`end` wakes each request once; it then looks at its task as before."""
    here = world(long)
    user = here.user(wire)
    assert isinstance(user, Older)
    id_ = user.start("long")
    here.later.append(lambda: here.app.changes.publish(Change("end")))
    here.later.append(lambda: cancel(user, 77))
    assert user.client.send("tasks/result", {"taskId": id_}, id=77).message is None
    assert here.waits >= 2


def test_changes_of_other_tasks_do_not_wake_a_request() -> None:
    here = world(long)
    user = client(here)
    id_, other = user.start("long"), user.start("optional")
    here.play()
    before = here.waits

    def change() -> None:
        for what in (Change("task", other), Change("tools"), Change("resource", id_)):
            here.app.changes.publish(what)

    here.later.append(change)
    here.later.append(lambda: cancel(user, 77))
    assert user.client.send("tasks/result", {"taskId": id_}, id=77).message is None
    assert here.waits == before + 1


def test_request_leaves_nothing_behind() -> None:
    """No listener, and no outstanding question: sessions live long."""
    here = world(asking, long)
    user = client(here)
    for name, end in (("asking", None), ("long", 77)):
        id_ = user.start(name)
        if end is not None:
            here.later.append(lambda: cancel(user, 77))
        user.client.send("tasks/result", {"taskId": id_}, accepted("2"), id=end)
    assert not here.app.changes.has_listeners
    assert user.client.session._asked == {}
    assert not user.client.session.is_busy


def test_draft_that_waits_sees_the_question_when_it_comes() -> None:
    """The wait ends with the change, and not after the next look."""
    here = world()

    @here.app.tool(task="optional")
    def later() -> Flow[str]:
        yield from Sleep(5)
        return (yield from Elicit("Who?", str))

    user = here.user(DRAFT)
    id_ = user.start("later")
    began = here.host.now
    found = user.result("tasks/result", {"taskId": id_})
    assert [*found["inputRequests"].values()][0]["params"]["message"] == "Who?"
    assert here.host.now - began <= 6


def test_request_without_a_session_asks_nothing() -> None:
    """A client of 2025-11-25 may send requests without one: no client could be asked."""
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")
    here.later.append(lambda: result_of(user, id_, accepted("2")))
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tasks/result",
        "params": {"taskId": id_},
    }
    heard: list[Any] = []
    peer = Peer(headers={"mcp-protocol-version": NEWEST})
    reply = here.handle(here.app, message, peer, send=heard.append)
    assert reply.message is not None
    assert text_of(reply.message["result"]) == "2 x 2"
    assert heard == []


# ---- sessions -----------------------------------------------------------------------


def message_of(id_: int) -> Wire:
    return {"jsonrpc": "2.0", "id": id_, "method": "roots/list"}


def test_inquiry_of_a_task_is_over_with_each_event() -> None:
    """A reply, a change, or the end; and it can be waited for again."""
    asking = TaskInquiry()
    woken: list[str] = []
    over = [asking.is_over]
    asking.listen(lambda: woken.append("x"))
    asking.change()
    over.append(asking.is_over)
    asking.is_changed = False
    over.append(asking.is_over)
    asking.add(1, message_of(1))
    asking.take(Response(1, {"result": {}}))
    over.append(asking.is_over)
    assert asking.replies.pop(1) == {"result": {}}
    over.append(asking.is_over)
    asking.end()
    over.append(asking.is_over)
    assert over == [False, True, False, True, False, True]
    assert len(woken) == 3
    asking.listen(lambda: woken.append("again"))
    assert woken[-1] == "again"


def test_inquiry_of_a_task_sends_each_question_once() -> None:
    asking = TaskInquiry()
    assert asking.take_unsent() == []
    asking.add(1, message_of(1))
    assert asking.take_unsent() == [message_of(1)]
    asking.add(2, message_of(2))
    asking.remove(1)
    asking.remove(99)
    assert asking.take_unsent() == [message_of(2)]
    assert [*asking.messages] == [2]


def test_inquiry_sends_its_messages_once() -> None:
    asking = Inquiry({1: message_of(1)})
    assert asking.take_unsent() == [message_of(1)]
    assert asking.take_unsent() == []


def test_news_follow_their_last_tasks() -> None:
    news = News()
    read = [news.is_read]
    for number in range(1_001):
        news.follow(str(number), lambda: {"status": "working"})
    assert [*read, news.is_read] == [False, True]
    assert not news.wants(Change("task", "0"))
    assert news.wants(Change("task", "1"))
    assert news.message(Change("task", "0")) is None
    told = news.message(Change("task", "1"))
    assert told is not None
    assert told["params"] == {"status": "working"}
    news.leave("1")
    news.leave("1")
    assert not news.wants(Change("task", "1"))
    assert news.wants(Change("tools"))


@LOOPS
def test_drivers_wait_for_the_same_inquiry_again(loop: str) -> None:
    """Each wait sends what is new; another thread ends the first one."""
    asking = TaskInquiry()
    sent: list[Any] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)
        if message["id"] == 2:
            asking.take(Response(2, {"result": {}}))

    async def main() -> None:
        driver: Any = {"trio": on_trio, "asyncio": on_asyncio}[loop]
        asking.add(1, message_of(1))
        thread = threading.Thread(target=asking.change)
        thread.start()
        await ask_client(asking, send, driver.Bell())
        thread.join()
        asking.is_changed = False
        asking.add(2, message_of(2))
        await ask_client(asking, send, driver.Bell())

    run(loop, main)
    assert [one["id"] for one in sent] == [1, 2]
    assert [*asking.replies] == [2]


def test_driver_without_a_loop_waits_for_the_same_inquiry_again() -> None:
    here = world(asking)
    user = client(here)
    id_ = user.start("asking")
    here.play()
    waits: list[list[Any]] = []

    def wait(inquiry: Inquiry) -> None:
        assert isinstance(inquiry, TaskInquiry)
        waits.append([*inquiry.messages])
        here.host.now += 1
        here.play()

    def handle(app: Server, message: Any, peer: Any = None, **more: Any) -> Any:
        return sync.handle(app, message, peer, wait=wait, **more)

    user.client.handle = handle
    assert text_of(result_of(user, id_, accepted("2"))["result"]) == "2 x 2"
    assert len(user.client.asked) == 2
    # The answer to each is in before its wait begins.
    assert [len(one) for one in waits][:1] == [1]


def run(loop: str, main: Callable[[], Any]) -> None:
    if loop == "trio":
        import trio

        trio.run(main)
    else:
        import asyncio

        asyncio.run(main())


@LOOPS
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_result_on_a_loop_with_a_worker(loop: str, is_cancelled: bool) -> None:
    """The real host, the real turns: `tasks/result` is woken by each change."""
    driver: Any = {"trio": on_trio, "asyncio": on_asyncio}[loop]
    app = Server("shop", keys=KEYS, tasks=SqliteTasks())
    app.tool(task="optional")(asking)
    sent: list[Any] = []

    async def main() -> None:
        async with driver.running(app), working(driver, app):
            hello = LegacyClient(app)
            peer = attrs.evolve(Peer(), session=hello.session)

            async def request(method: str, **params: Any) -> Any:
                message = {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": method,
                    "params": params,
                }
                return (await driver.handle(app, message, peer, send=send)).message

            async def send(told: Mapping[str, Any]) -> None:
                sent.append(told)
                if is_cancelled:
                    message: Any = {
                        "jsonrpc": "2.0",
                        "method": "notifications/cancelled",
                        "params": {"requestId": 1},
                    }
                else:
                    said = {"action": "accept", "content": {"value": "2"}}
                    message = {"jsonrpc": "2.0", "id": told["id"], "result": said}
                await driver.handle(app, message, peer)

            made = await request("tools/call", name="asking", task={})
            id_ = made["result"]["task"]["taskId"]
            found = await request("tasks/result", taskId=id_)
            if is_cancelled:
                assert found is None
            else:
                assert text_of(found["result"]) == "2 x 2"

    run(loop, main)
    messages = [one["params"]["message"] for one in sent]
    assert messages == (["What?"] if is_cancelled else ["What?", "How many?"])


def test_dropped_is_no_error_of_a_tool() -> None:
    """A handler that catches every `Exception` does not catch it."""
    assert not issubclass(Dropped, Exception)


def test_news_of_a_task_that_is_left_meanwhile_keeps_nothing() -> None:
    """A session may leave a task in one thread while another one reads it."""
    news = News()

    def read() -> dict[str, Any]:
        news.leave("x")
        return {"status": "working"}

    news.follow("x", read)
    assert news.message(Change("task", "x")) is not None
    assert not news._told
