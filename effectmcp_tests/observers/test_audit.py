"""The audit log: its records, its masks, and bad disks."""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Confirm, Detach, Elicit, ElicitUrl, Flow, Server, ToolError, form
from effectmcp.drivers import sync
from effectmcp.engine.stops import Question
from effectmcp.errors import UsageError
from effectmcp.exchange.commands import Peer
from effectmcp.observers.audit import AuditLog
from effectmcp.observers.secret_names import MASK, SECRETS, SecretNames
from effectmcp.server.events import (
    HttpRefused,
    QuestionsAnswered,
    QuestionsAsked,
    TaskCreated,
    TurnEnded,
)

from ..tasks.simulated import Host, accepted, new
from ..wire import KEYS, call, refused, result, said, send

NOW = 1_795_176_000.25


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses is tried again soon."""
    monkeypatch.setattr("effectmcp.observers.line_writer._AGAIN", 0.01)
    monkeypatch.setattr("effectmcp.observers.line_writer._GATHERING", 0.0)


ANN = Peer(principal="ann")


@form
@frozen
class Card:
    """A card."""

    owner: str
    card_number: str


def serving(audit: AuditLog) -> Server:
    app = Server("shop", keys=KEYS, observers=[audit])

    @app.tool
    def order(title: str) -> Flow[str]:
        where = yield from Elicit("Where to?", str, key="where")
        card = yield from Elicit("How do you pay?", Card, key="card")
        yield from Elicit("And the secret word?", str, key="door_password")
        return f"{title} to {where}, paid by {card.owner}"

    @app.tool
    def fail() -> str:
        raise ToolError("sold out")

    @app.tool
    def page() -> Flow[str]:
        yield from ElicitUrl("Log in", "https://example.com/x", key="login")
        return "done"

    @app.resource("shop://news")
    def news() -> str:
        return "none"

    return app


@contextmanager
def logging_to(file: Any, **options: Any) -> Iterator[AuditLog]:
    audit = AuditLog(file, clock=lambda: NOW, **options)
    try:
        yield audit
    finally:
        audit.close()


def written(act: Callable[[Server], Any], **options: Any) -> list[dict[str, Any]]:
    """The records of what `act` does."""
    stream = io.StringIO()
    with logging_to(stream, **options) as audit:
        act(serving(audit))
    records = [json.loads(one) for one in stream.getvalue().splitlines()]
    assert [one.pop("number") for one in records] == list(range(1, len(records) + 1))
    assert {one.pop("process") for one in records} <= {os.getpid()}
    return records


def ordered(app: Server) -> None:
    info = {"name": "desk", "version": "2"}
    asked = result(
        call(app, "order", arguments={"title": "Emma"}, peer=ANN, client=info)
    )
    for content in (
        {"value": "Rome"},
        {"owner": "Ann", "card_number": "4000 1234"},
        {"value": "swordfish"},
    ):
        asked = result(
            call(
                app,
                "order",
                arguments={"title": "Emma"},
                answers=said(asked, content),
                state=asked["requestState"],
                peer=ANN,
                client=info,
            )
        )
    assert asked["content"][0]["text"] == "Emma to Rome, paid by Ann"


def test_a_call() -> None:
    """All questions in their words, and all answers; secrets are masked."""
    records = written(ordered)
    flow = records[0]["flow"]
    of = {
        "time": "2026-11-20T12:00:00.250Z",
        "principal": "ann",
        "method": "tools/call",
        "target": "order",
        "flow": flow,
    }

    def asked(key: str, message: str, **fields: Any) -> dict[str, Any]:
        question = {"method": "elicitation/create", "message": message}
        return {
            **of,
            "event": "asked",
            "questions": {key: {**question, "fields": fields}},
        }

    def ended(outcome: str) -> dict[str, Any]:
        return {
            **of,
            "event": "call",
            "client": "desk 2",
            "arguments": {"title": "Emma"},
            "outcome": outcome,
        }

    def answered(key: str, content: Any) -> dict[str, Any]:
        answer = {"action": "accept", "content": content}
        return {**of, "event": "answered", "answers": {key: answer}}

    for one in records:
        one.pop("seconds", None)
    text = {"type": "string"}
    assert records == [
        asked("where", "Where to?", value={"title": "Answer", **text}),
        ended("asked"),
        answered("where", {"value": "Rome"}),
        asked(
            "card",
            "How do you pay?",
            owner=text,
            card_number=text,
        ),
        ended("asked"),
        # The question was about a card number, so all of its fields are masked here.
        answered("card", {"owner": MASK, "card_number": MASK}),
        asked(
            "door_password", "And the secret word?", value={"title": "Answer", **text}
        ),
        ended("asked"),
        answered("door_password", {"value": MASK}),
        ended("result"),
    ]


def test_without_answers() -> None:
    records = written(ordered, answers=False)
    answers = [one["answers"] for one in records if one["event"] == "answered"]
    assert answers == [
        {"where": {"action": "accept"}},
        {"card": {"action": "accept"}},
        {"door_password": {"action": "accept"}},
    ]


def test_names_of_ones_own() -> None:
    records = written(ordered, secrets=["ROME", "title"])
    assert {json.dumps(one["arguments"]) for one in records if "arguments" in one} == {
        json.dumps({"title": MASK})
    }


def test_other_requests() -> None:
    def act(app: Server) -> None:
        call(app, "fail")
        send(app, "resources/read", {"uri": "shop://news"})
        send(app, "tools/list")
        send(app, "tools/none")
        reply = call(app, "order", arguments={"title": "x"}, state="x")
        assert refused(reply) == (200, -32602)
        call(app, "page")

    records = written(act)
    events = [
        (one["event"], one.get("target"), one.get("outcome"), one.get("code"))
        for one in records
    ]
    assert events == [
        ("call", "fail", "failed", None),
        ("call", "shop://news", "result", None),
        ("request", None, "error", -32601),
        ("state refused", "order", None, None),
        ("call", "order", "error", -32602),
        ("asked", "page", None, None),
        ("call", "page", "asked", None),
    ]
    assert records[3]["reason"] == "malformed"
    assert records[5]["questions"]["login"] == {
        "method": "elicitation/create",
        "message": "Log in",
        "url": "https://example.com/x",
    }


def test_an_invalid_message() -> None:
    (record,) = written(lambda app: sync.handle(app, "{", ANN))
    record.pop("time")
    assert record == {"event": "message refused", "principal": "ann", "code": -32700}


def test_secret_questions_are_remembered_in_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("effectmcp.observers.audit._MOST_SECRET", 2)
    stream = io.StringIO()
    with logging_to(stream) as audit:
        for flow_id in "abc":
            question = Question("elicit-1", Elicit("Your password?", str))
            audit(
                QuestionsAsked(
                    flow_id=flow_id,
                    method="tools/call",
                    target="x",
                    principal=None,
                    task=None,
                    questions=(question,),
                )
            )
        for flow_id in "abc":
            audit(
                QuestionsAnswered(
                    flow_id=flow_id,
                    method="tools/call",
                    target="x",
                    principal=None,
                    task=None,
                    answers={"elicit-1": {"content": {"value": flow_id}}},
                )
            )
    records = [json.loads(one) for one in stream.getvalue().splitlines()]
    shown = [one["answers"]["elicit-1"]["content"]["value"] for one in records[3:]]
    assert shown == ["a", MASK, MASK]


def test_a_task_that_begins() -> None:
    created = TaskCreated(
        number=1, task="t", tool="x", flow_id="00", principal="ann", is_new=True
    )
    (record,) = written(lambda app: app.observers[0](created))
    assert (record["event"], record["task"], record["flow"]) == ("task", "t", "00")


def test_http() -> None:
    records = written(
        lambda app: app.observers[0](HttpRefused(status=401, address="x"))
    )
    assert [(one["event"], one["status"], one["address"]) for one in records] == [
        ("http refused", 401, "x")
    ]


def test_sessions_and_tasks() -> None:
    """There is a record for each change of a task, and for its questions."""

    def act(app: Server) -> None:
        @app.tool
        def later() -> Flow[str]:
            yield from Detach()
            yield from Confirm("Sure?", key="sure")
            return "done"

        host = Host(app, new("later"))
        host.run()
        host.answer("sure", accepted())
        host.run()
        assert host.row.status == "completed"
        sync.handle(
            app,
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "desk", "version": "1"},
                },
            },
            ANN,
        )

    records = written(act)
    events = [one["event"] for one in records]
    assert events == ["asked", "task input_required", "task completed", "session"]
    assert len({one["flow"] for one in records[:-1]}) == 1
    assert len({one["task"] for one in records[:-1]}) == 1
    assert records[-1]["client"] == "desk 1"


#: Names, and whether their values are masked.
NAMES: Final[Mapping[str, bool]] = {
    **dict.fromkeys(
        [
            *("password", "userPassword", "passWord", "pass_word", "pass-word"),
            *("PASSword", "passwords", "PASSWORD2", "API_KEY", "api-key", "apikey"),
            *("api_keys", "APIKEYS", "privateKey2", "privatekey", "PIN", "PINs"),
            *("pin_code", "userPin", "SSNnumber", "IBANnumber", "mySSN", "tokens"),
            *("TOKENid", "accesstoken", "clientSecrets", "cardnumber", "card_no"),
            *(
                "otp",
                "mfa_code",
                "sessionId",
                "pwd",
                "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
            ),
            *("What is your password?", "Your PIN, please"),
        ],
        True,
    ),
    **dict.fromkeys(
        ["pinned", "opinion", "keyboard", "spinner", "x", "", "---", "title", "cards"],
        False,
    ),
}


@pytest.mark.parametrize(("name", "is_masked"), NAMES.items())
def test_secrets(name: str, is_masked: bool) -> None:
    value = {"a": [{name: "x"}], "b": 5}
    shown = SecretNames().masked(value)
    assert shown == ({"a": [{name: MASK}], "b": 5} if is_masked else value)


@pytest.mark.parametrize("name", ["пароль2", "мой_пароль", "ПАРОЛЬ", "account密码1"])
def test_secrets_of_other_scripts(name: str) -> None:
    assert SecretNames(["пароль", "密码"]).has(name)
    assert not SecretNames().has(name)


@pytest.mark.parametrize("more", ["pin", ["12"], [""]])
def test_secrets_that_are_not_words(more: Any) -> None:
    with pytest.raises(UsageError, match="secrets"):
        SecretNames(more)


@given(
    st.sampled_from(SECRETS),
    st.lists(st.sampled_from(["user", "new", "2"]), max_size=2),
    st.sampled_from(["snake", "kebab", "camel", "title", "upper", "plain"]),
    st.booleans(),
)
def test_spellings_of_secrets(
    secret: str, more: list[str], way: str, is_plural: bool
) -> None:
    """Each secret is found among other words, in each usual spelling."""
    words = [*more[:1], *secret.split(), *more[1:]]
    if is_plural and not more[1:]:
        words[-1] += "s"
    name = {
        "snake": "_".join(words),
        "kebab": "-".join(words),
        "camel": words[0] + "".join(one.capitalize() for one in words[1:]),
        "title": "".join(one.capitalize() for one in words),
        "upper": "_".join(words).upper(),
        "plain": " ".join(words),
    }[way]
    assert SecretNames().has(name)


def test_the_page_lists_all_secrets() -> None:
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    section = " ".join(
        page.partition("**Secrets.**")[2].partition("**Disks.**")[0].split()
    )
    assert all(f"`{one}`" in section for one in SECRETS)


JSONS = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)


class Lines(list[str]):
    """Takes lines in place of a writer, which has a thread."""

    add = list.append


LINES: Final = Lines()
PLAIN: Final = AuditLog(io.StringIO())
vars(PLAIN)["_writer"] = LINES


@given(st.dictionaries(st.text(max_size=9), JSONS, max_size=3))
@example({"k": {"action": "accept", "content": {"a": "\ud800\n\u2028"}}})
@example({"k": ["x" * 70_000]})
@example({"k": {"content": {str(n): "x" * 100 for n in range(1_000)}}})
def test_each_record_is_one_line(answers: Any) -> None:
    """The law holds for any answers of a client."""
    PLAIN(
        QuestionsAnswered(
            flow_id="00",
            method="tools/call",
            target="order",
            principal="ann",
            task=None,
            answers=answers,
        )
    )
    line = LINES.pop()
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert len(line) <= 64 * 1024
    assert json.loads(line)["event"] == "answered"


# ---- files --------------------------------------------------------------------------


def note(audit: AuditLog, number: int = 1) -> None:
    for _ in range(number):
        audit(
            TurnEnded(
                task="t",
                tool="later",
                flow_id="00",
                principal="ann",
                status="completed",
                was="working",
                seconds=1,
            )
        )


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in path.read_text().splitlines()]


def test_a_file_is_appended_to_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(2):
        with logging_to(path) as audit:
            note(audit)
    assert len(lines(path)) == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with logging_to(str(path)) as audit:
        note(audit)
        until(lambda: path.stat().st_size > 0)
        path.rename(tmp_path / "old")
        note(audit, 2)
        until(lambda: path.exists() and len(lines(path)) == 2)
        path.unlink()
        note(audit)
    assert len(lines(path)) == 1
    assert len(lines(tmp_path / "old")) == 1


def test_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    audit.close()
    note(audit)
    audit.close()
    assert (audit.lost, path.read_text()) == (1, "")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"secrets": "pin"}, "give a list of names"),
        ({"file": io.BytesIO()}, "is neither a path nor a stream"),
        ({"file": 5}, "is neither a path nor a stream"),
        ({"waiting": 0}, "waiting=0"),
        ({"memory": 1.5}, "memory=1.5"),
    ],
)
def test_options_that_cannot_be(options: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        AuditLog(**{"file": io.StringIO(), **options})


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        AuditLog(tmp_path)


# ---- disks --------------------------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[Callable[[], None]]:
    """Let no file of this process grow; yield what ends this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))

    def end() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    try:
        yield end
    finally:
        end()
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Requests continue. The log and the file report the number of lost records."""
    caplog.set_level(logging.ERROR, "effectmcp")
    path = tmp_path / "audit.jsonl"
    stream = io.StringIO()
    with logging_to(path, waiting=100) as audit:
        app = serving(audit)
        caplog.handler.setStream(stream)
        with full_disk() as end:
            for _ in range(1_000):
                assert result(call(app, "fail"))["isError"] is True
            until(lambda: "cannot be written" in caplog.text)
            assert audit.lost == 900
            end()
            until(lambda: sum(lost_in(lines(path))) == 900)
    assert f"the audit log {path} cannot be written (" in caplog.text
    assert "records wait, of at most 100" in caplog.text
    assert f"the audit log {path} loses records: too many records wait" in caplog.text
    said = re.findall(r"is written again; (\d+) records were lost", caplog.text)
    # Perhaps in two parts, if the disk comes back in the middle of a try.
    assert [int(one) for one in said] == lost_in(lines(path))
    assert len(lines(path)) - len(said) == 100


def lost_in(records: list[dict[str, Any]]) -> list[int]:
    return [one["records"] for one in records if one["event"] == "lost"]


def test_a_disk_that_takes_half_a_line(tmp_path: Path) -> None:
    """There is never half a record."""
    path = tmp_path / "audit.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with logging_to(path) as audit:
        note(audit)
        until(lambda: path.exists() and len(lines(path)) == 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, before[1]))
        try:
            note(audit)
            time.sleep(0.05)
            assert len(lines(path)) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        until(lambda: len(lines(path)) == 2)


def test_processes_share_a_file(tmp_path: Path) -> None:
    """As the processes of `--workers` do."""
    path = tmp_path / "audit.jsonl"
    others = [
        multiprocessing.get_context("spawn").Process(target=note_to, args=(path, 500))
        for _ in range(2)
    ]
    for one in others:
        one.start()
    note_to(path, 500)
    for one in others:
        one.join(60)
    assert len(lines(path)) == 1_500


def note_to(path: Path, number: int) -> None:
    audit = AuditLog(path)
    note(audit, number)
    audit.close(60)


def test_half_a_record_of_a_process_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"time": "x"}\n{"time": "x", "event": "as')
    with logging_to(path) as audit:
        note(audit, 2)
    whole, half, *new = path.read_text().splitlines()
    assert (whole, half) == ('{"time": "x"}', '{"time": "x", "event": "as')
    assert [json.loads(one)["event"] for one in new] == ["task completed"] * 2


def test_a_process_that_was_forked(tmp_path: Path) -> None:
    """The child has no thread of its parent, and starts its own."""
    path = tmp_path / "audit.jsonl"
    with logging_to(path) as audit:
        note(audit)
        child = os.fork()
        if not child:
            try:
                note(audit, 2)
                audit.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        note(audit)
    records = lines(path)
    assert len(records) == 4
    assert [one["process"] for one in records].count(child) == 2


def test_a_process_that_was_forked_and_logs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with logging_to(path) as audit:
        child = os.fork()
        if not child:
            try:
                audit.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        note(audit)
    assert len(lines(path)) == 1


class SlowStream(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        self.free.wait(60)
        return super().write(text)


def test_a_slow_disk(caplog: pytest.LogCaptureFixture) -> None:
    """No request waits for it."""
    stream = SlowStream()
    with logging_to(stream, waiting=100) as audit:
        app = serving(audit)
        began = time.perf_counter()
        for _ in range(1_000):
            call(app, "fail")
        assert time.perf_counter() - began < 60
        assert audit.lost >= 899
        lost = audit.lost
        stream.free.set()
    records = [json.loads(one) for one in stream.getvalue().splitlines()]
    said_lost = [one["records"] for one in records if one["event"] == "lost"]
    assert sum(said_lost) == audit.lost == lost
    assert len(records) - len(said_lost) == 1_000 - lost


def test_a_disk_that_waits_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    stream = SlowStream()
    audit = AuditLog(stream)
    note(audit)
    audit.close(seconds=0.01)
    assert "could not be written to its end: 1 records are lost" in caplog.text
    stream.free.set()


def test_memory_is_bounded() -> None:
    stream = SlowStream()
    with logging_to(stream, memory=1_000) as audit:
        note(audit, 100)
        assert audit.lost >= 85
        stream.free.set()


def test_a_disk_that_is_full_to_the_end(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    with logging_to(Refusing()) as audit:
        note(audit, 3)
        until(lambda: "no space left" in caplog.text)
    assert audit.lost == 3
