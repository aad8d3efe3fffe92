"""Requests to the engine; every wrong answer is a `TaskStoreError`."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

import pytest

from effectmcp.errors import TaskStoreError, UsageError
from effectmcp.tasks.restate import engine as engines
from effectmcp.tasks.restate.engine import Engine

from .scripted import CLOSE, SILENCE, Asked, Scripted, answer


@pytest.fixture
def server() -> Iterator[Scripted]:
    one = Scripted()
    yield one
    one.close()


@pytest.fixture
def engine(server: Scripted) -> Iterator[Engine]:
    one = Engine(server.url + "/in", server.url + "/admin/")
    yield one
    one.close()


CALLS: dict[str, Callable[[Engine], Any]] = {
    "send": lambda engine: engine.send("shop.Task", "post", "0f", b"[]"),
    "signal": lambda engine: engine.signal("sign_1x", b"[]"),
    "query": lambda engine: engine.query("SELECT 1", one=int),
    "register": lambda engine: engine.register("http://127.0.0.1:9080"),
    "move": lambda engine: engine.move("dp_1", "http://127.0.0.1:9080"),
    "abandoned": lambda engine: engine.abandoned("shop.Task", but="dp_1"),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


# ---- requests -------------------------------------------------------------------


def test_send(server: Scripted, engine: Engine) -> None:
    engine.send("shop.Task", "create", "0f", b"\x00row", once="0f")
    engine.send("shop.Task", "post", "0f", b"")
    first, second = server.asked
    assert first.line == "POST /in/shop.Task/0f/create/send"
    assert first.body == b"\x00row"
    assert first.head["content-type"] == "application/octet-stream"
    assert first.head["idempotency-key"] == "0f"
    assert "idempotency-key" not in second.head


def test_keys_do_not_change_the_path(server: Scripted, engine: Engine) -> None:
    engine.send("shop.Task", "post", "../a?b#c%\r\n", b"")
    engine.signal("../x?", b"")
    engine.move("../deployments?", "http://127.0.0.1:9080")
    assert [one.line for one in server.asked] == [
        "POST /in/shop.Task/..%2Fa%3Fb%23c%25%0D%0A/post/send",
        "POST /in/restate/awakeables/..%2Fx%3F/resolve",
        "PATCH /admin/deployments/..%2Fdeployments%3F",
    ]


def test_signal(server: Scripted, engine: Engine) -> None:
    server.answer = lambda asked: answer(b"", status=202)
    engine.signal("sign_1x", b"[]")
    [asked] = server.asked
    assert asked.line == "POST /in/restate/awakeables/sign_1x/resolve"
    assert asked.body == b"[]"


def test_query(server: Scripted, engine: Engine) -> None:
    rows = [{"id": "a", "number": 1, "more": None}, {"id": "b", "number": 2}]
    server.rows(rows, [])
    assert engine.query("SELECT", id=str, number=int) == rows
    assert engine.query("SELECT", id=str) == []
    assert [one.line for one in server.asked] == ["POST /admin/query"] * 2
    assert server.asked[0].sql == "SELECT"
    assert server.asked[0].head["accept"] == "application/json"


def test_register(server: Scripted, engine: Engine) -> None:
    server.answer = lambda asked: answer({"id": "dp_1"}, status=201)
    assert engine.register("http://127.0.0.1:9080") == "dp_1"
    [asked] = server.asked
    assert asked.line == "POST /admin/deployments"
    assert json.loads(asked.body) == {
        "uri": "http://127.0.0.1:9080",
        "use_http_11": True,
        "force": True,
    }


def test_abandoned_deployments(server: Scripted, engine: Engine) -> None:
    """Deployments of this service alone, and only if no server listens there."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        gone_url = "http://{}:{}".format(*gone.getsockname())
    ours, other = [{"name": "shop.Task"}], [{"name": "other.Task"}]
    deployments = [
        {"id": "dp_0", "uri": gone_url, "services": ours},
        {"id": "dp_1", "uri": gone_url, "services": ours},
        {"id": "dp_2", "uri": gone_url, "services": other},
        {"id": "dp_3", "uri": gone_url, "services": ours + other},
        {"id": "dp_4", "uri": server.url, "services": ours},
        {"id": "dp_5", "uri": "http://a..b", "services": ours},
        {"id": "dp_6", "uri": gone_url, "services": ours},
    ]
    failing = [{"id": f"dp_{number}"} for number in range(6)] + [{"id": None}]

    def said(asked: Asked) -> bytes:
        if asked.line.startswith("POST"):
            return answer({"rows": failing})
        assert asked.line == "GET /admin/deployments"
        return answer({"deployments": deployments})

    server.answer = said
    found = engine.abandoned("shop.Task", but="dp_1")
    assert found == {"dp_0": gone_url, "dp_5": "http://a..b"}


def test_nothing_is_abandoned_if_nothing_fails(
    server: Scripted, engine: Engine
) -> None:
    server.rows([{"id": "dp_1"}])
    assert engine.abandoned("shop.Task", but="dp_1") == {}


# ---- connections --------------------------------------------------------------------


def test_connection_is_used_again(server: Scripted, engine: Engine) -> None:
    for _ in range(3):
        engine.send("s", "h", "k", b"")
    assert server.connections == 1
    engine.close()
    engine.send("s", "h", "k", b"")
    assert server.connections == 2


def test_connection_of_a_request_that_outlasts_the_end_is_closed(
    server: Scripted, engine: Engine
) -> None:
    def close_first(asked: Asked) -> bytes:
        engine.close()
        return answer({"rows": []})

    server.answer = close_first
    for _ in range(2):
        assert engine.query("SELECT 1") == []
    assert server.connections == 2


def test_connection_that_the_server_will_close_is_not(
    server: Scripted, engine: Engine
) -> None:
    server.answer = lambda asked: answer({}, head="connection: close\r\n") + CLOSE
    for _ in range(3):
        engine.send("s", "h", "k", b"")
    assert server.connections == 3


def test_connection_that_was_closed_while_idle(
    server: Scripted, engine: Engine
) -> None:
    """The request is repeated, once, on a new one."""
    server.rows([{"n": 1}], CLOSE, [{"n": 2}])
    assert engine.query("SELECT 1") == [{"n": 1}]
    assert engine.query("SELECT 2") == [{"n": 2}]
    assert [one.sql[-1] for one in server.asked] == ["1", "2", "2"]
    assert server.connections == 2


def test_repeated_request_is_not_repeated_again(
    server: Scripted, engine: Engine
) -> None:
    server.rows([], CLOSE, CLOSE)
    engine.query("SELECT 1")
    with pytest.raises(TaskStoreError, match="does not answer"):
        engine.query("SELECT 2")
    assert len(server.asked) == 3


def test_response_that_is_reset_in_its_middle(
    server: Scripted, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first half does not count: the request is repeated."""
    server.rows([{"n": 1}], [{"n": 2}], [{"n": 3}])
    engine.query("SELECT 1")
    read = HTTPResponse.read

    def reset_once(response: HTTPResponse) -> bytes:
        monkeypatch.setattr(HTTPResponse, "read", read)
        raise ConnectionResetError

    monkeypatch.setattr(HTTPResponse, "read", reset_once)
    assert engine.query("SELECT 2") == [{"n": 3}]


def test_systems_without_quick_acknowledgements(
    server: Scripted, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    assert engine.query("SELECT 1") == []


@calls
def test_new_connection_that_is_closed(
    server: Scripted, engine: Engine, call: Callable[[Engine], Any]
) -> None:
    server.answer = lambda asked: CLOSE
    with pytest.raises(TaskStoreError, match=r"does not answer at http://127\.0\.0\.1"):
        call(engine)
    assert len(server.asked) == 1


@calls
def test_no_server_listens(call: Callable[[Engine], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = "http://{}:{}".format(*gone.getsockname())
    with pytest.raises(TaskStoreError, match="does not answer at http://127"):
        call(Engine(url, url))


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_host_name_that_cannot_be(host: str) -> None:
    url = f"http://{host}"
    with pytest.raises(TaskStoreError, match="does not answer at http://"):
        Engine(url, url).send("s", "h", "k", b"")


def test_silence_ends(
    server: Scripted, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "PATIENCE", 0.05)
    server.answer = lambda asked: SILENCE
    began = time.monotonic()
    with pytest.raises(TaskStoreError, match="timed out"):
        engine.send("s", "h", "k", b"")
    server.answer = lambda asked: answer({"rows": []})[:-3]
    with pytest.raises(TaskStoreError, match="timed out"):
        engine.query("SELECT 1")
    assert time.monotonic() - began < 2


def test_over_tls(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted server does not speak TLS."""
    monkeypatch.setattr(engines, "PATIENCE", 0.1)
    url = server.url.replace("http", "https")
    server.answer = lambda asked: CLOSE
    engine = Engine(url, url)
    with pytest.raises(TaskStoreError, match="does not answer at https://"):
        engine.send("s", "h", "k", b"")


# ---- answers ------------------------------------------------------------------------


@calls
@pytest.mark.parametrize(
    "said",
    [
        b"\r\n",
        b"x" * 100_000,
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 99999 no\r\n\r\n",
        b"HTTP/1.1 200 \r\ncontent-length: 5\r\n\r\n{}",
        b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 \r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_answers_that_are_not_http(
    server: Scripted, engine: Engine, call: Callable[[Engine], Any], said: bytes
) -> None:
    server.answer = lambda asked: said + CLOSE
    with pytest.raises(TaskStoreError, match="Restate does not answer at") as info:
        call(engine)
    assert len(str(info.value)) < 600


@calls
@pytest.mark.parametrize("status", [301, 400, 409, 429])
def test_refusals_have_their_words(
    server: Scripted, engine: Engine, call: Callable[[Engine], Any], status: int
) -> None:
    server.answer = lambda asked: (
        answer(b"no \xff" + b"x" * 1000, status=status) + CLOSE
    )
    words = f"Restate answers {status}: no � ?x+"
    with pytest.raises(TaskStoreError, match=words) as info:
        call(engine)
    assert len(str(info.value)) < 600


@calls
def test_unknown_services(
    server: Scripted, engine: Engine, call: Callable[[Engine], Any]
) -> None:
    """A service is unknown until the first worker has registered it."""
    server.answer = lambda asked: answer(b"not found", status=404)
    with pytest.raises(TaskStoreError) as info:
        call(engine)
    is_send = server.asked[0].line.endswith("/send")
    assert str(info.value) == (
        "Restate does not know shop.Task yet: start a worker, which registers it, with"
        " `effectmcp worker`"
        if is_send
        else "Restate answers 404: not found"
    )
    assert len(server.asked) == 1


def test_query_is_repeated_while_the_engine_starts(
    server: Scripted, engine: Engine
) -> None:
    refused = answer({"message": "expecting a partition store"}, status=500)
    server.rows(refused, refused, [{"n": 1}])
    assert engine.query("SELECT 1") == [{"n": 1}]


def test_query_that_cannot_be_answered(
    server: Scripted, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_REPEAT", 0.1)
    server.answer = lambda asked: answer(b"broken", status=503)
    with pytest.raises(TaskStoreError, match="Restate answers 503: broken"):
        engine.query("SELECT 1")
    assert len(server.asked) > 1


def test_other_requests_are_not_repeated(server: Scripted, engine: Engine) -> None:
    server.answer = lambda asked: answer(b"broken", status=503)
    with pytest.raises(TaskStoreError, match="Restate answers 503: broken"):
        engine.send("s", "h", "k", b"")
    assert len(server.asked) == 1


@calls
@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff", b"[" * 100_000, b"<html>", b'{"rows": [}'],
    ids=["cut off", "no UTF-8", "deep", "HTML", "syntax"],
)
def test_answers_that_are_not_json(
    server: Scripted, engine: Engine, call: Callable[[Engine], Any], body: bytes
) -> None:
    server.answer = lambda asked: answer(body)
    with pytest.raises(TaskStoreError, match="Restate's answer is not understood"):
        call(engine)


WRONG: list[Any] = [
    None,
    5,
    "text",
    [],
    {},
    {"rows": None},
    {"rows": 5},
    {"rows": [None]},
    {"rows": [[]]},
    {"rows": [{}]},
    {"rows": [{"one": None}]},
    {"rows": [{"one": True}]},
    {"rows": [{"one": "1"}]},
    {"rows": [{"one": 1}, {"one": {}}]},
]


@pytest.mark.parametrize("wrong", WRONG, ids=map(json.dumps, WRONG))
def test_rows_of_another_form(server: Scripted, engine: Engine, wrong: Any) -> None:
    server.answer = lambda asked: answer(wrong)
    with pytest.raises(TaskStoreError, match="Restate's answer is not understood"):
        engine.query("SELECT 1", one=int)


def test_empty_answer(server: Scripted, engine: Engine) -> None:
    server.answer = lambda asked: answer(b"")
    engine.send("s", "h", "k", b"")
    for name in ("query", "register", "abandoned"):
        with pytest.raises(TaskStoreError, match="not understood"):
            CALLS[name](engine)


DEPLOYMENTS: list[Any] = [
    {},
    [],
    {"deployments": 5},
    {"deployments": [5]},
    {"deployments": [{}]},
    {"deployments": [{"id": []}]},
    {"deployments": [{"id": "dp_2", "services": [5]}]},
    {"deployments": [{"id": "dp_2", "services": [{"name": "shop.Task"}]}]},
    {"deployments": [{"id": "dp_2", "services": [{"name": "shop.Task"}], "uri": 5}]},
    {"deployments": [{"id": "dp_2", "services": [{"name": "shop.Task"}], "uri": "x"}]},
]


@pytest.mark.parametrize("wrong", DEPLOYMENTS, ids=map(json.dumps, DEPLOYMENTS))
def test_deployments_of_another_form(
    server: Scripted, engine: Engine, wrong: Any
) -> None:
    server.answer = lambda asked: answer(
        {"rows": [{"id": "dp_2"}]} if asked.line.startswith("POST") else wrong
    )
    with pytest.raises(TaskStoreError, match="not understood"):
        engine.abandoned("shop.Task", but="dp_1")


@pytest.mark.parametrize("rows", [[{}], [{"id": []}], [5]])
def test_failing_deployments_of_another_form(
    server: Scripted, engine: Engine, rows: Any
) -> None:
    server.rows(rows)
    with pytest.raises(TaskStoreError, match="not understood"):
        engine.abandoned("shop.Task", but="dp_1")


@pytest.mark.parametrize("wrong", [{}, [], 5, "x"])
def test_registration_of_another_form(
    server: Scripted, engine: Engine, wrong: Any
) -> None:
    server.answer = lambda asked: answer(wrong)
    with pytest.raises(TaskStoreError, match="not understood"):
        engine.register("http://127.0.0.1:9080")


# ---- URLs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "127.0.0.1:8080",
        "ftp://localhost",
        "http://",
        "http://:8080",
        "http://localhost:port",
        "http://localhost:70000",
        "http://localhost:-1",
        "http://[::1",
    ],
)
def test_urls_that_cannot_be(url: str) -> None:
    for urls in ((url, "http://localhost"), ("http://localhost", url)):
        with pytest.raises(UsageError) as info:
            Engine(*urls)
        words = f"{url!r} is not the URL of an HTTP server: http://HOST:PORT"
        assert str(info.value) == words
