from __future__ import annotations

import datetime as dt
import json
import logging
import os
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from attrs import frozen

from effectmcp import (
    Caller,
    ClientFailed,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    ListRoots,
    Outcome,
    Restart,
    Sample,
    Server,
    Sleep,
    TimedOut,
    Unsupported,
    Within,
    step,
)
from effectmcp.effects.local import CallerInfo
from effectmcp.engine import Entry, Journal
from effectmcp.server import RoundBegan, RoundEnded
from effectmcp.testing import (
    MemoryClient,
    Recorder,
    Transcript,
    read_transcripts,
    verdict_of,
)
from effectmcp.testing.conversations import Unscripted
from effectmcp.testing.recording import mask_private, recorded
from effectmcp.testing.subjects import subject_of

from ..helpers import example

bookshop = example("bookshop")

FLOW = bytes(16)


@frozen
class Receipt:
    number: str
    total: int


@step
def charge(name: str) -> Receipt:
    return Receipt(f"secret-{name}", 3)


@step(public=True)
def greet(name: str) -> str:
    return f"Hello, {name}"


@step(raises=(LookupError,))
def look(name: str) -> str:
    raise LookupError("no such secret")


def recording(tmp_path: Path, function: Any, **options: Any) -> Server:
    app = Server("shop")
    app.tool(name="tool")(function)
    Recorder(app, tmp_path, **options)
    return app


def only(tmp_path: Path) -> Transcript:
    ((_, transcript),) = read_transcripts(tmp_path)
    return transcript


def tool() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    receipt = yield from charge(name)
    greeting = yield from greet(name)
    caller = yield from Caller()
    said = ""
    try:
        yield from look(name)
    except LookupError as exc:
        said = str(exc)
    yield from Confirm(f"{receipt.number} for {caller.principal}?")
    return f"{greeting}, {receipt.number}, {receipt.total}, {said}"


def test_results_of_steps_are_masked_everywhere(tmp_path: Path) -> None:
    app = recording(tmp_path, tool)
    client = MemoryClient(app, {"Who?": "Ann", "": True}, principal="the principal")
    assert client.call_tool("tool").text.endswith("secret-Ann, 3, no such secret")
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert "secret" not in text
    assert "the principal" not in text
    transcript = only(tmp_path)
    said: Any = transcript.ending.value
    assert said["content"][0]["text"] == "Hello, Ann, ***, 3, ***"
    assert verdict_of(app, transcript).word == "replays"


def test_a_custom_mask_covers_the_answers_of_users(tmp_path: Path) -> None:
    def mask(effect: Any, value: Any) -> Any:
        if isinstance(effect, Elicit):
            return {"value": "X"}
        return mask_private(effect, value if value != "Hello, Ann" else "Hello, X")

    app = recording(tmp_path, tool, mask=mask)
    MemoryClient(app, {"Who?": "Ann", "": True}).call_tool("tool")
    transcript = only(tmp_path)
    assert transcript.rounds[0].asked[0].what.startswith("Elicit")
    assert "Ann" not in transcript.dumps()


def test_an_unfinished_conversation_is_recorded(tmp_path: Path) -> None:
    app = recording(tmp_path, tool)
    MemoryClient(app).send("tools/call", name="tool", arguments={})
    transcript = only(tmp_path)
    assert transcript.ending.how == "open"
    assert verdict_of(app, transcript).word == "replays"


def test_a_conversation_is_one_file_however_many_rounds_it_has(tmp_path: Path) -> None:
    app = recording(tmp_path, tool)
    MemoryClient(app, {"Who?": "Ann", "": False}).call_tool("tool")
    assert len(list(tmp_path.iterdir())) == 1
    assert len(only(tmp_path).rounds) == 3


def everything() -> Flow[str]:
    """Ask questions for every kind of reply."""
    found = []
    for asked in (
        Outcome(Confirm("declined?")),
        Outcome(Confirm("dismissed?")),
        Sample([{"role": "user", "content": {"type": "text", "text": "?"}}]),
        ListRoots(),
    ):
        found.append(type((yield from asked)).__name__)
    try:
        yield from Elicit("unfit?", int)
    except Exception as exc:
        found.append(type(exc).__name__)
    both = yield from Gather(Elicit("a?", str), Elicit("b?", str))
    return f"{found} {both}"


def test_every_kind_of_answer_is_said_again(tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        if request["method"] == "sampling/createMessage":
            block = {"type": "text", "text": "!"}
            return {
                "role": "assistant",
                "content": block,
                "model": "m",
                "stopReason": "s",
            }
        if request["method"] == "roots/list":
            return {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}]}
        message = request["params"]["message"]
        return {
            "d": {"action": "decline" if message.startswith("dec") else "cancel"},
            "u": {"action": "accept", "content": {"value": "no number"}},
            "a": {"action": "accept", "content": {"value": "A"}},
            "b": {"action": "accept", "content": {"value": "B"}},
        }[message[0]]

    app = recording(tmp_path, everything)
    got = MemoryClient(app, answer).call_tool("tool").text
    assert got.startswith(
        "['Declined', 'Dismissed', 'Sampled', 'list', 'InvalidAnswer']"
    )
    transcript = only(tmp_path)
    value: Any = transcript.ending.value
    assert value["content"][0]["text"] == got
    assert verdict_of(app, transcript).word == "replays"


def test_a_client_that_cannot_be_asked_is_recorded_as_one(tmp_path: Path) -> None:
    def tool() -> Flow[str]:
        try:
            yield from ListRoots()
        except Unsupported:
            return "unsupported"
        return "supported"

    app = recording(tmp_path, tool)
    client = MemoryClient(app, capabilities={"elicitation": {}})
    assert client.call_tool("tool").text == "unsupported"
    assert "ListRoots" in only(tmp_path).lacks
    assert verdict_of(app, only(tmp_path)).word == "replays"


def test_prompts_and_resources_are_recorded_with_their_arguments(
    tmp_path: Path,
) -> None:
    app = Server("guests")

    @app.prompt
    def greet_all(count: int) -> Flow[str]:
        name = yield from Elicit(f"Who of {count}?", str)
        return f"Greet {name}."

    @app.resource("guests://first")
    def first() -> Flow[str]:
        return (yield from Elicit("Who is first?", str))

    @app.resource("guests://{number}")
    def numbered(number: int) -> Flow[str]:
        return (yield from Elicit(f"Who is number {number}?", str))

    Recorder(app, tmp_path)
    client = MemoryClient(app, {"Who": "Ann"})
    assert client.get_prompt("greet_all", count="3").text == "Greet Ann."
    assert client.read_resource("guests://first").text == "Ann"
    assert client.read_resource("guests://7").text == "Ann"
    found = [one for _, one in read_transcripts(tmp_path)]
    assert sorted((one.target, json.dumps(one.arguments)) for one in found) == [
        ("greet_all", '{"count": 3}'),
        ("guests://first", "{}"),
        ("guests://{number}", '{"number": 7}'),
    ]
    assert [verdict_of(app, one).word for one in found] == ["replays"] * 3


def test_a_recording_with_another_outcome_when_masked_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tool() -> Flow[str]:
        receipt = yield from charge("Ann")
        if receipt.number.startswith("secret"):
            yield from greet("Ann")
        else:
            yield from look("Ann")
        return "done"

    app = recording(tmp_path, tool)
    with caplog.at_level(logging.WARNING, "effectmcp.testing"):
        assert MemoryClient(app).call_tool("tool").text == "done"
    assert not list(tmp_path.iterdir())
    assert "tool is not recorded" in caplog.text
    assert "secret" not in caplog.text


def test_rounds_before_a_restart_cannot_be_recorded() -> None:
    def again() -> Flow[str]:
        yield from Confirm("?")
        return (yield from Restart(again))

    with pytest.raises(Unscripted, match="Restart"):
        recorded(subject_of(again), {}, FLOW, Journal(generation=1))


def test_a_client_that_failed_fails_again() -> None:
    def handler() -> Flow[str]:
        try:
            yield from Confirm("?")
        except ClientFailed as exc:
            return str(exc)
        return "yes"

    entry = Entry("confirm-1", bytes(4), bytes(8), "refused", b'[-32603,"oh"]')
    transcript = recorded(subject_of(handler), {}, FLOW, Journal(entries=(entry,)))
    assert "oh" in str(transcript.ending)


@step
def look_long(name: str) -> str:
    return f"secret of {name}"


def races() -> Flow[str]:
    yield from Detach()
    first = yield from Within(5, look_long("Ann"))
    second = yield from Within(5, look_long("Ben"))
    place, found = yield from FirstOf(Sleep(5), look_long("Cleo"))
    return f"{first}, {isinstance(second, TimedOut)}, {place}, {found}"


def test_what_won_a_race_is_masked() -> None:
    won = (b'[0,"done","secret of Ann"]', b"null", b'[1,"done","secret of Cleo"]')
    keys = ("within-1", "within-2", "first-1")
    entries = (
        Entry("detach-1", bytes(4), bytes(8), "known", b"false"),
        *(
            Entry(key, bytes(4), bytes(8), "won", payload)
            for key, payload in zip(keys, won, strict=True)
        ),
    )
    transcript = recorded(subject_of(races), {}, FLOW, Journal(entries=entries))
    said: Any = transcript.ending.value
    assert said["content"][0]["text"] == "***, True, 1, ***"
    assert "secret" not in transcript.dumps()


def test_rounds_of_removed_features_are_dropped(tmp_path: Path) -> None:
    app = Server("empty")
    recorder = Recorder(app, tmp_path)
    began = RoundBegan(
        number=1,
        method="tools/call",
        target="gone",
        arguments={},
        capabilities={},
        flow_id="00" * 16,
        trace=None,
        first_trace=None,
        round=1,
        is_first=True,
    )
    ended = RoundEnded(
        number=1, flow_id="00" * 16, outcome="asked", round=1, journal=Journal()
    )
    recorder(ended)  # of a round that began before there was a recorder
    recorder(began)
    recorder(attrs.evolve(ended, outcome="dropped", journal=None))
    recorder(began)
    recorder(ended)
    assert not list(tmp_path.iterdir())


def test_masks_keep_the_kind_of_everything() -> None:
    effect: Any = charge("Ann")
    masked = mask_private(effect, {"a": ["x", 1, None, True, 1.5]})
    assert masked == {"a": ["***", 1, None, True, 1.5]}
    assert mask_private(Elicit("Who?", str), "Ann") == "Ann"


def test_mask_of_the_caller_hides_the_user() -> None:
    """The scopes stay, as handlers branch on them; the user's names do not."""
    info = CallerInfo(
        principal="https://idp.example ann acme",
        issuer="https://idp.example",
        subject="ann",
        tenant="acme",
        scopes=("orders:write",),
        claims={"email": "ann@acme.example", "teams": ["sales"], "level": 3},
        client="desk 1",
    )
    masked = mask_private(Caller(), info.to_json())
    assert masked == {
        **info.to_json(),
        "principal": "***",
        "subject": "***",
        "tenant": "***",
        "claims": {"email": "***", "teams": ["***"], "level": 3},
    }
    assert CallerInfo(**masked).scopes == ("orders:write",)
    # As older versions recorded it, and without a user.
    old: Any = {"principal": None, "client": "desk 1", "flow_id": "00"}
    assert mask_private(Caller(), old) == old
    assert mask_private(Caller(), {**old, "principal": "ann"})["principal"] == "***"


@frozen
class Booking:
    name: str
    day: dt.date
    price: Decimal
    kind: Literal["single", "double"]
    notes: list[str]


@step
def reserve() -> Booking:
    return Booking("secret", dt.date(2026, 12, 1), Decimal("7.5"), "single", ["secret"])


def test_strings_of_other_types_are_not_masked(tmp_path: Path) -> None:
    def tool() -> Flow[str]:
        booking = yield from reserve()
        return f"{booking.name} {booking.day} {booking.price} {booking.kind}"

    app = recording(tmp_path, tool)
    MemoryClient(app).call_tool("tool")
    said: Any = only(tmp_path).ending.value
    assert said["content"][0]["text"] == "*** 2026-12-01 7.5 single"
    assert "secret" not in only(tmp_path).dumps()


def test_arguments_are_masked_by_a_given_function(tmp_path: Path) -> None:
    def tool(title: str) -> Flow[str]:
        key = yield from IdempotencyKey("key")
        return f"{title} {key}"

    def mask(name: str, arguments: Any) -> Any:
        assert name == "tool"
        return {"title": "X"}

    app = recording(tmp_path, tool, mask_arguments=mask)
    text = MemoryClient(app).call_tool("tool", title="the secret").text
    written = only(tmp_path).dumps()
    assert "secret" not in written
    # Nor is the key there, which a payment service may still know.
    assert text.rpartition(" ")[2] not in written


def test_files_are_for_their_owner(tmp_path: Path) -> None:
    app = recording(tmp_path, tool)
    MemoryClient(app).send("tools/call", name="tool", arguments={})
    (file,) = tmp_path.iterdir()
    assert os.name == "nt" or file.stat().st_mode & 0o077 == 0


def test_an_answer_to_another_question_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The masked run asks a question of the same kind, on another line."""

    def tool() -> Flow[str]:
        receipt = yield from charge("Ann")
        if len(receipt.number) > 5:
            return (yield from Elicit("Long?", str))
        return (yield from Elicit("Short?", str))

    app = recording(tmp_path, tool)
    with caplog.at_level(logging.WARNING, "effectmcp.testing"):
        MemoryClient(app, {"Long?": "yes"}).call_tool("tool")
    # The transcript was there until the answer; the log reports that it is gone.
    assert "tool is not recorded" in caplog.text


def test_the_bookshop_is_recorded(tmp_path: Path) -> None:
    """The server has observers already, which still receive its events."""
    heard: list[Any] = []
    app = Server("bookshop", observers=[heard.append])
    app.tool(bookshop.order)
    Recorder(app, str(tmp_path))
    client = MemoryClient(app, {"Who": Declined()})
    assert client.call_tool("order", title="Dune").is_error
    assert only(tmp_path).ending.how == "raised"
    assert heard
    client.answers = {"Who": Dismissed()}
    client.call_tool("order", title="Dune")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_recording_with_another_step_when_masked_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tool() -> Flow[str]:
        receipt = yield from charge("Ann")
        if not receipt.number.startswith("secret"):
            yield from greet("Ann")
        return "done"

    app = recording(tmp_path, tool)
    with caplog.at_level(logging.WARNING, "effectmcp.testing"):
        MemoryClient(app).call_tool("tool")
    assert not list(tmp_path.iterdir())
    assert "greet" in caplog.text


def test_a_model_without_a_stop_reason(tmp_path: Path) -> None:
    def tool() -> Flow[str]:
        block = {"type": "text", "text": "?"}
        return (yield from Sample([{"role": "user", "content": block}])).text

    app = recording(tmp_path, tool)
    MemoryClient(app, {"sampling": "!"}).call_tool("tool")
    said: Any = only(tmp_path).ending.value
    assert said["content"][0]["text"] == "!"


def test_templates_have_separate_transcripts(tmp_path: Path) -> None:
    app = Server("guests")
    for kind in ("first", "second"):

        def read(name: str) -> Flow[str]:
            return (yield from Elicit(f"Who is {name}?", str))

        app.resource(f"guests://{kind}/{{name}}", name=kind)(read)
    Recorder(app, tmp_path)
    MemoryClient(app, {"Who": "Ann"}).read_resource("guests://second/x")
    assert only(tmp_path).target == "guests://second/{name}"
