from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from attrs import frozen

from effectmcp import (
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    Log,
    Progress,
    ProtocolError,
    Sample,
    Server,
    UsageError,
)
from effectmcp.client import Result
from effectmcp.testing import MemoryClient, PlainKeys

from ..helpers import example

bookshop = example("bookshop")


def serving(function: Any, **options: Any) -> Server:
    app = Server("test", **options)
    app.tool(name="tool")(function)
    return app


def test_a_whole_conversation() -> None:
    client = MemoryClient(
        bookshop.app,
        {"Who is it for?": "Ann", "Deliver": dt.date(2026, 12, 1), "Order": True},
    )
    result = client.call_tool("order", title="Dune")
    assert result.text.startswith("Ordered: receipt")
    assert (result.rounds, result.is_error, result.structured) == (4, False, None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (True, "True"),
        (False, "False"),
        (Declined(), "False"),
        (Dismissed(), "The user dismissed the question."),
    ],
)
def test_ways_to_answer_a_confirm(answer: Any, text: str) -> None:
    def tool() -> Flow[str]:
        return f"{(yield from Confirm('Sure?'))}"

    assert MemoryClient(serving(tool), {"Sure?": answer}).call_tool("tool").text == text


def test_forms_links_and_whole_responses() -> None:
    def tool() -> Flow[str]:
        _, name, sampled = yield from Gather(
            ElicitUrl("Sign in", "https://shop.example"),
            Elicit("Who?", str),
            Sample([{"role": "user", "content": {"type": "text", "text": "?"}}]),
        )
        return f"{name} {sampled.text}"

    block = {"type": "text", "text": "!"}
    answers = {
        "Sign in": {"action": "accept"},
        "Who?": {"value": "Ann"},
        "sampling": {"role": "assistant", "content": block, "model": "m"},
    }
    assert MemoryClient(serving(tool), answers).call_tool("tool").text == "Ann !"


def test_a_client_may_leave_out_answers_at_first() -> None:
    seen: list[str] = []

    def answer(request: Any) -> Any:
        seen.append(request["params"]["message"])
        return (
            None if len(seen) < 3 else {"action": "accept", "content": {"value": "A"}}
        )

    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    result = MemoryClient(serving(tool), answer).call_tool("tool")
    assert (result.text, result.rounds) == ("A", 4)
    never = MemoryClient(serving(tool), {"Who?": None}).call_tool("tool")
    assert never.is_error


def test_a_question_without_an_answer_is_a_mistake_of_the_test() -> None:
    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    with pytest.raises(UsageError, match="no answer is given for 'Who\\?'"):
        MemoryClient(serving(tool), {"Where": "x"}).call_tool("tool")


def test_conversations_without_an_end_are_given_up() -> None:
    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    app = serving(tool, rounds=1_000)
    with pytest.raises(UsageError, match="more than 100 rounds"):
        MemoryClient(app, {"Who?": None}).call_tool("tool")


def test_errors_are_raised() -> None:
    with pytest.raises(ProtocolError, match="Unknown tool: gone"):
        MemoryClient(bookshop.app).call_tool("gone")


def test_notifications_are_received() -> None:
    def tool() -> Flow[str]:
        yield from Progress(1)
        yield from Log("info", "begun")
        return "done"

    (told,) = MemoryClient(serving(tool)).call_tool("tool").told
    assert told["method"] == "notifications/progress"


def test_async_functions_are_awaited() -> None:
    async def tool() -> str:
        return "done"

    assert MemoryClient(serving(tool)).call_tool("tool").text == "done"


def test_text_blocks_of_a_result_are_joined() -> None:
    result = Result({"content": [{"text": "a"}, {"data": "x"}, {"text": "b"}]}, 1)
    assert result.text == "a\nb"


def test_states_can_be_read_under_plain_keys() -> None:
    app = Server("plain", keys=PlainKeys())
    app.tool(bookshop.order)
    result = MemoryClient(app).send(
        "tools/call", name="order", arguments={"title": "D"}
    )
    assert result["requestState"].startswith("1p")
    done = MemoryClient(app, {"Who": Declined()}).call_tool("order", title="Dune")
    assert done.is_error


@frozen
class Guest:
    name: str
    age: int = 18
    note: str | None = None


def test_objects_and_values_of_forms() -> None:
    def tool() -> Flow[str]:
        guest, day = yield from Gather(Elicit("Who?", Guest), Elicit("When?", dt.date))
        return f"{guest.name} {guest.age} {day}"

    app = serving(tool)
    day = dt.date(2026, 12, 1)
    client = MemoryClient(app, {"Who?": Guest("Ann", 20), "When?": day})
    assert client.call_tool("tool").text == "Ann 20 2026-12-01"
    client.answers = {"Who?": {"name": "Bob"}, "When?": {"value": day}}
    assert client.call_tool("tool").text == "Bob 18 2026-12-01"
    client.answers = {"Who?": "Ann"}
    with pytest.raises(
        UsageError, match="'Ann' is not an answer to 'Who\\?', which needs name"
    ):
        client.call_tool("tool")


def test_text_blocks_for_a_model() -> None:
    def tool() -> Flow[str]:
        block = {"type": "text", "text": "?"}
        return (yield from Sample([{"role": "user", "content": block}])).text

    client = MemoryClient(serving(tool), {"sampling": "door hinge"})
    assert client.call_tool("tool").text == "door hinge"


def test_true_for_more_than_one_field_is_not_an_answer() -> None:
    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", Guest)).name

    client = MemoryClient(serving(tool), {"Who?": Declined()})
    assert client.call_tool("tool").is_error
    client.answers = {"Who?": None}
    assert client.call_tool("tool").is_error
