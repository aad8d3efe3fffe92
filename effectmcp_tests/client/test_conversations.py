"""Whole conversations, over every channel and on every loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from effectmcp import Declined, Dismissed, ProtocolError, Root, UsageError
from effectmcp.client import (
    Client,
    Form,
    Link,
    Pending,
    Result,
    RoundsError,
    Sampling,
    StateRejected,
)

from .ways import (
    PATIENCE,
    At,
    Way,
    everywhere,
    fill_in,
)


def states(at: At) -> list[tuple[str | None, str | None]]:
    """Return the state that each request sent, with the state that it received."""
    return [
        (
            one.params.get("requestState"),
            one.response.get("result", {}).get("requestState"),
        )
        for one in at.sent
    ]


# ---- conversations ------------------------------------------------------------------


@everywhere
async def test_a_whole_conversation(at: At) -> None:
    forms: list[Form] = []

    def elicit(form: Form) -> dict[str, Any]:
        forms.append(form)
        return fill_in(form)

    async with at.client(elicit=elicit) as client:
        if at.kind == "http":
            await client.list_tools()
        at.sent.clear()
        result = await client.call_tool("order", {"title": "Dune"})
    assert (result.text, result.rounds, result.is_error) == (
        "2 × Dune for Ann, 30",
        3,
        False,
    )
    assert [form.message for form in forms] == ["Who is it for?", "How many for Ann?"]
    assert forms[0].defaults == {"age": 30}
    # Each round says all of the call again, under an id of its own.
    assert [one.params["name"] for one in at.sent] == ["order"] * 3
    assert [one.params["arguments"] for one in at.sent] == [{"title": "Dune"}] * 3
    assert len({one.message["id"] for one in at.sent}) == 3
    # The state goes back unchanged; the answers only go where they were asked for.
    (none, first), (again, second), (last, end) = states(at)
    assert (none, again, last, end) == (None, first, second, None)
    assert None not in (first, second)
    assert first != second
    assert "inputResponses" not in at.sent[0].params
    answers = [one.params["inputResponses"] for one in at.sent[1:]]
    assert [next(iter(one.values()))["content"] for one in answers] == [
        {"name": "Ann", "age": 30},
        {"value": 2},
    ]


@everywhere
async def test_prompts_and_resources_ask_too(at: At) -> None:
    async def elicit(form: Form) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return {"value": form.message}

    async with at.client(elicit=elicit) as client:
        letter = await client.get_prompt("letter", {"to": "Ann"})
        assert (letter.text, letter.rounds) == (
            "Write to Ann about What about, to Ann?.",
            2,
        )
        plain = await client.get_prompt("card", {"kind": "red", "to": "Ann"})
        assert (plain.text, plain.rounds) == ("A red card to Ann.", 1)
        private = await client.read_resource("shelf://private")
        assert (private.text, private.rounds) == ("opened with The password?", 2)
        book = await client.read_resource("shelf://books/Dune")
        assert book.text == "All of Dune"
        assert [one["uri"] for one in book.blocks] == ["shelf://books/Dune"]


@everywhere
async def test_all_questions_of_a_round_are_asked_side_by_side(at: At) -> None:
    """Each handler waits until the other two were called."""
    called: dict[str, anyio.Event] = {
        name: anyio.Event() for name in ("elicit", "sample", "roots")
    }

    async def meet(name: str) -> None:
        called[name].set()
        for event in called.values():
            await event.wait()

    async def elicit(form: Form) -> dict[str, Any]:
        await meet("elicit")
        return {"name": "Ann"}

    async def sample(sampling: Sampling) -> str:
        await meet("sample")
        assert sampling.messages[0]["content"]["text"] == "Write a greeting."
        return "Hello"

    async def roots() -> list[Root]:
        await meet("roots")
        return [Root("file:///home", "home")]

    async with at.client(elicit=elicit, sample=sample, roots=roots) as client:
        result = await client.call_tool("survey")
    assert (result.text, result.rounds) == ("Hello Ann of file:///home (home)", 2)


@everywhere
async def test_parallel_calls_never_swap_their_states(at: At) -> None:
    met = 0
    everybody = anyio.Event()

    async def elicit(form: Form) -> dict[str, Any]:
        nonlocal met
        met += 1
        if met == 25:
            everybody.set()
        await everybody.wait()
        return {"value": form.message}

    results: dict[int, str] = {}
    async with at.client(elicit=elicit) as client:

        async def call(number: int) -> None:
            results[number] = (await client.call_tool("echo", {"number": number})).text

        async with anyio.create_task_group() as group:
            for number in range(25):
                group.start_soon(call, number)
    assert results == {n: f"{n} is What is {n}?" for n in range(25)}
    calls = [one for one in at.sent if one.message["method"] == "tools/call"]
    given = {
        one.params["arguments"]["number"]: one.response["result"]["requestState"]
        for one in calls
        if "requestState" not in one.params
    }
    assert len(set(given.values())) == 25
    brought = {
        one.params["arguments"]["number"]: one.params["requestState"]
        for one in calls
        if "requestState" in one.params
    }
    assert brought == given
    assert len({one.message["id"] for one in at.sent}) == len(at.sent)


@everywhere
async def test_a_server_that_nags_is_given_up(at: At) -> None:
    asked: list[Form] = []

    def elicit(form: Form) -> dict[str, Any]:
        asked.append(form)
        return fill_in(form)

    async with at.client(elicit=elicit, rounds=2) as client:
        with pytest.raises(RoundsError, match="asked 2 times") as raised:
            await client.call_tool("nag")
    assert raised.value.rounds == 2
    assert len(asked) == 2


@everywhere
async def test_rounds_that_only_carry_their_state(at: At) -> None:
    seen: list[Pending] = []
    async with at.client(on_round=seen.append) as client:
        result = await client.call_tool("paces", {"count": 2})
    assert (result.structured, result.rounds) == (2, 3)
    assert [pending.questions for pending in seen] == [{}, {}]
    calls = [one for one in at.sent if one.message["method"] == "tools/call"]
    assert all("inputResponses" not in one.params for one in calls)
    assert ["requestState" in one.params for one in calls] == [False, True, True]


# ---- ways to answer -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "true"),
        (Declined(), "false"),
        (Dismissed(), "The user dismissed the question."),
    ],
)
def test_ways_to_answer_a_form(way: Way, answer: Any, text: str) -> None:
    async def body(at: At) -> None:
        async with at.client(elicit=lambda form: answer) as client:
            assert (await client.call_tool("sure")).text == text

    way.run(body)


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (True, "accept"),
        (False, "decline"),
        (Declined(), "decline"),
        (Dismissed(), "cancel"),
    ],
)
def test_ways_to_answer_a_link(way: Way, answer: Any, action: str) -> None:
    async def body(at: At) -> None:
        links: list[Link] = []

        async def open_url(link: Link) -> Any:
            links.append(link)
            await anyio.lowlevel.checkpoint()
            return answer

        async with at.client(open_url=open_url) as client:
            result = await client.call_tool("pay")
        assert [(one.message, one.url) for one in links] == [
            ("Pay there.", "https://bank.example/pay?id=1")
        ]
        assert result.is_error == (action != "accept")
        (said,) = at.sent[-1].params["inputResponses"].values()
        assert said == {"action": action}

    way.run(body)


@everywhere
async def test_a_model_answers_with_a_whole_result(at: At) -> None:
    whole = {
        "role": "assistant",
        "content": {"type": "text", "text": "Hi"},
        "model": "m",
        "stopReason": "endTurn",
    }
    async with at.client(
        elicit=fill_in, sample=lambda sampling: whole, roots=[Root("file:///a")]
    ) as client:
        result = await client.call_tool("survey")
    assert result.text == "Hi Ann of file:///a (None)"
    answers = at.sent[-1].params["inputResponses"].values()
    assert whole in answers
    assert {"roots": [{"uri": "file:///a"}]} in answers


@everywhere
async def test_a_client_is_not_asked_what_it_cannot_answer(at: At) -> None:
    async with at.client() as client:
        with pytest.raises(ProtocolError, match="elicitation") as raised:
            await client.call_tool("order", {"title": "Dune"})
    assert raised.value.code == -32021


@everywhere
async def test_an_error_of_a_handler_is_raised_unchanged(at: At) -> None:
    """The handlers that run beside it are cancelled."""
    is_waiting = anyio.Event()
    ended: list[str] = []

    async def elicit(form: Form) -> dict[str, Any]:
        if form.message == "Two?":
            await is_waiting.wait()
            raise LookupError("nobody is there") from KeyError("why")
        is_waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(form.message)
        raise AssertionError("not reached")

    async with at.client(elicit=elicit) as client:
        with pytest.raises(LookupError, match="nobody is there") as raised:
            await client.call_tool("pair")
        # It is as it was raised, and the client can be used on.
        assert isinstance(raised.value.__cause__, KeyError)
        assert (await client.call_tool("paces", {"count": 0})).text == "0"
    assert ended == ["One?"]


@everywhere
async def test_a_group_that_a_handler_raises_stays_one(at: At) -> None:
    async def elicit(form: Form) -> dict[str, Any]:
        raise ExceptionGroup("both", [ValueError("a"), LookupError("b")])

    async with at.client(elicit=elicit) as client:
        with pytest.raises(ExceptionGroup, match="both") as raised:
            await client.call_tool("order", {"title": "Dune"})
    assert [type(one) for one in raised.value.exceptions] == [ValueError, LookupError]


# ---- errors -------------------------------------------------------------------------


@everywhere
async def test_errors_of_tools_and_of_the_protocol(at: At) -> None:
    async with at.client() as client:
        failed = await client.call_tool("fail")
        assert (failed.is_error, failed.text) == (True, "it is out of print")
        with pytest.raises(ProtocolError, match="Unknown tool") as raised:
            await client.call_tool("no such tool")
        assert raised.value.code == -32602
        with pytest.raises(ProtocolError, match="Resource not found") as raised:
            await client.read_resource("shelf://nothing")
        assert raised.value.data == {"uri": "shelf://nothing"}
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("no/such", {})


@everywhere
async def test_a_state_that_the_server_does_not_take(at: At) -> None:
    async with at.client(elicit=fill_in) as client:
        steps = client.start("tools/call", {"name": "nag"})
        pending = await steps.round()
        assert isinstance(pending, Pending)
        stored = pending.to_json()
        stored["state"] += "x"
        with pytest.raises(StateRejected) as raised:
            await client.resume(Pending.from_json(stored)).round()
        assert raised.value.code == -32602
        # The call itself continues all the same.
        assert isinstance(await steps.round(), Pending)


# ---- time ---------------------------------------------------------------------------


@everywhere
async def test_a_call_takes_no_longer_than_its_timeout(at: At) -> None:
    """Answering is part of it."""

    async def elicit(form: Form) -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError("not reached")

    async with at.client(elicit=elicit, timeout=0.2, round_timeout=PATIENCE) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("order", {"title": "Dune"})


@everywhere
async def test_a_round_takes_no_longer_than_its_timeout(at: At) -> None:
    """The time for answers does not count; the server receives a cancellation."""
    async with at.client() as client:
        if at.kind == "http":
            await client.list_tools()  # by which a call knows its headers
        client._round_timeout = 0.2
        mark = f"round {at.loop}"
        with pytest.raises(TimeoutError):
            await client.call_tool("wait", {"mark": mark, "say": False})
        client._round_timeout = None
        await noted(client, mark, "dropped")


async def noted(client: Client, mark: str, note: str) -> list[str]:
    """Return all notes of the server, once this one is among them."""
    while True:
        result = await client.call_tool("noted", {"mark": mark})
        assert isinstance(result.structured, list)
        if note in result.structured:
            return result.structured
        await anyio.sleep(0.01)


@pytest.mark.parametrize("say", [True, False])
def test_cancelling_a_call_reaches_the_server(way: Way, say: bool) -> None:
    """Before its first word, and after it."""

    async def body(at: At) -> None:
        mark = f"cancelled {at.loop} {say}"
        heard = anyio.Event()

        def on_progress(params: Mapping[str, Any]) -> None:
            heard.set()

        async with at.client() as client, anyio.create_task_group() as group:

            async def call() -> None:
                await client.call_tool(
                    "wait", {"mark": mark, "say": say}, on_progress=on_progress
                )

            group.start_soon(call)
            await noted(client, mark, "began")
            assert heard.is_set() or not say
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                found = await noted(client, mark, "dropped")
            assert found == ["began", "cancelled", "dropped"]

    way.run(body)


# ---- progress and logs --------------------------------------------------------------


@everywhere
async def test_progress_and_logs_come_while_it_runs(at: At) -> None:
    steps: list[Mapping[str, Any]] = []
    own: list[Mapping[str, Any]] = []
    logs: list[Mapping[str, Any]] = []

    async def on_log(params: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        logs.append(params)

    async with at.client(on_progress=steps.append, on_log=on_log) as client:
        assert (await client.call_tool("count", {"to": 3})).text == "3"
        await client.call_tool("count", {"to": 1}, on_progress=own.append)
        await client.call_tool("talk")
    told = [(one["progress"], one["total"], one["message"]) for one in steps]
    assert told == [(n, 3, f"{n} of 3") for n in (1, 2, 3)]
    assert len({one["progressToken"] for one in steps}) == 1
    assert [one["progress"] for one in own] == [1]
    # `info` and above, where the client does not say.
    assert [(one["level"], one["data"]) for one in logs] == [
        ("info", {"said": 1}),
        ("error", "shouted"),
    ]
    assert logs[0]["logger"] == "shelf"


@everywhere
async def test_logs_that_are_not_wanted_do_not_come(at: At) -> None:
    logs: list[Mapping[str, Any]] = []
    async with at.client(on_log=logs.append, log_level="error") as client:
        await client.call_tool("talk")
    async with at.client() as client:
        await client.call_tool("talk")
        await client.call_tool("count", {"to": 3})
    assert [one["data"] for one in logs] == ["shouted"]
    assert sum(len(one.told) for one in at.sent) == 1


@everywhere
async def test_an_error_of_a_callback_is_raised_unchanged(at: At) -> None:
    """The error ends its own call, and nothing else."""

    def on_progress(params: Mapping[str, Any]) -> None:
        raise LookupError("not that much")

    async with at.client() as client:
        with pytest.raises(LookupError, match="not that much"):
            await client.call_tool("count", {"to": 3}, on_progress=on_progress)
        assert (await client.call_tool("count", {"to": 1})).text == "1"


@everywhere
async def test_a_slow_callback_does_not_delay_other_calls(at: At) -> None:
    is_held, go_on = anyio.Event(), anyio.Event()

    async def on_progress(params: Mapping[str, Any]) -> None:
        is_held.set()
        await go_on.wait()

    async with at.client() as client, anyio.create_task_group() as group:

        async def call() -> None:
            await client.call_tool("count", {"to": 3}, on_progress=on_progress)

        group.start_soon(call)
        await is_held.wait()
        try:
            with anyio.fail_after(PATIENCE / 4):
                assert (await client.call_tool("count", {"to": 1})).text == "1"
        finally:
            go_on.set()


# ---- a round at a time --------------------------------------------------------------


@everywhere
async def test_a_call_a_round_at_a_time(at: At) -> None:
    seen: list[Pending] = []
    async with at.client(elicit=fill_in, on_round=seen.append) as client:
        steps = client.start(
            "tools/call", {"name": "order", "arguments": {"title": "It"}}
        )
        first = await steps.round()
        assert isinstance(first, Pending)
        assert steps.pending == first
        assert [one["params"]["message"] for one in first.questions.values()] == [
            "Who is it for?"
        ]
        (key,) = first.questions
        said = {"action": "accept", "content": {"name": "Alf", "age": 7}}
        second = await steps.round({key: said})
        # Stored and read again, it continues as if it had never been stored.
        assert isinstance(second, Pending)
        stored = json.loads(json.dumps(second.to_json()))
        assert Pending.from_json(stored) == second
        result = await client.resume(Pending.from_json(stored)).round()
        assert isinstance(result, Result)
        assert (result.text, result.rounds) == ("2 × It for Alf, 7", 3)
        # Nothing here was used up: the server cannot know which client resumes.
        again = await steps.round()
        assert isinstance(again, Result)
        assert steps.result == again
        assert again.text == result.text
        with pytest.raises(UsageError, match=r"its result is in \.result"):
            await steps.round()
        assert seen == [first, second]


@everywhere
async def test_a_prompt_and_a_resource_a_round_at_a_time(at: At) -> None:
    async with at.client(elicit=fill_in) as client:
        for method, params in (
            ("prompts/get", {"name": "letter", "arguments": {"to": "Ann"}}),
            ("resources/read", {"uri": "shelf://private"}),
        ):
            steps = client.start(method, params)
            assert isinstance(await steps.round(), Pending)
            result = await steps.round()
            assert isinstance(result, Result)
            assert "this" in result.text
