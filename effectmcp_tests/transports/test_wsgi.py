"""WSGI: held to PEP 3333 by wsgiref's validator, then over sockets."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import attrs
import pytest

from effectmcp import Flow, Sleep, UsageError
from effectmcp.auth import JWTAuth
from effectmcp.drivers import sync
from effectmcp.server import Server
from effectmcp.server.changes import Change
from effectmcp.server.identity import Identity
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.web import Site
from effectmcp.transports.wsgi import WSGIApplication, application

from ..exchange.test_tasks import Rows
from ..tasks.rows import new_row
from .shop import (
    JSON,
    Bank,
    Later,
    answer,
    bank,
    call,
    events,
    headers_of,
    request,
    shop,
    sync_bank,
    text_of,
)


@attrs.frozen
class Response:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: How much of it was written before the application returned.
    written: int

    @property
    def json(self) -> JSON:
        assert self.headers["content-type"] == "application/json"
        assert self.headers["content-length"] == str(len(self.body))
        return json.loads(self.body)

    @property
    def events(self) -> list[JSON]:
        assert self.headers["content-type"] == "text/event-stream"
        return events(self.body)


def environ_of(
    body: bytes, headers: Mapping[str, str], method: str = "POST"
) -> dict[str, Any]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "QUERY_STRING": "",
        "REMOTE_ADDR": "10.0.0.2",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key.startswith("CONTENT_") else f"HTTP_{key}"] = value
    setup_testing_defaults(environ)
    return environ


def asked(
    wsgi: Callable[..., Any],
    body: JSON,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    writes: bool = True,
    **environ: Any,
) -> Response:
    if not isinstance(body, bytes):
        headers = headers_of(body) if headers is None else headers
        body = json.dumps(body).encode()
    whole = environ_of(body, headers or {}, method)
    for key, value in environ.items():
        whole[key.replace("__", ".")] = value
    begun: list[Any] = []
    parts: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        begun.append((status, headers))
        return parts.append if writes else None

    result = wsgi(whole, start_response)
    written = len(parts)
    try:
        parts.extend(result)
    finally:
        if hasattr(result, "close"):
            result.close()
    ((status, raw),) = begun
    names = {name.lower(): value for name, value in raw}
    assert len(names) == len(raw)
    return Response(int(status.split()[0]), names, b"".join(parts), written)


def strict(app: Server, **options: Any) -> Callable[..., Any]:
    """The application, watched by wsgiref."""
    checked: Callable[..., Any] = validator(application(app, **options))
    return checked


# ---- responses ----------------------------------------------------------------------


def test_a_request_is_answered_by_an_object() -> None:
    response = asked(strict(shop()), request("tools/list"))
    assert response.status == 200
    assert len(response.json["result"]["tools"]) == 6


def test_a_notification_is_accepted() -> None:
    # Not validated: wsgiref requires a Content-Type where there is no content.
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}
    response = asked(application(shop()), message)
    assert (response.status, response.body) == (202, b"")


def test_an_unknown_method_is_a_404() -> None:
    response = asked(strict(shop()), request("tools/sing"))
    assert (response.status, response.json["error"]["code"]) == (404, -32601)


def test_a_header_that_says_something_else() -> None:
    body = call("order", title="Dune")
    response = asked(strict(shop()), body, headers_of(body, mcp_name="count"))
    assert (response.status, response.json["error"]["code"]) == (400, -32020)


def test_an_async_function_needs_something_to_run_it() -> None:
    body = call("echo", text="hello")
    assert asked(strict(shop()), body).json["result"]["isError"]
    assert text_of(asked(strict(shop(), run_async=asyncio.run), body).json) == "hello"


def test_a_conversation_of_three_rounds() -> None:
    wsgi = application(shop(lifespan=sync_bank))
    body = call("order", title="Dune")
    for value in ("Ann", 2):
        result = asked(wsgi, body).json["result"]
        assert result["resultType"] == "input_required"
        body = call("order", title="Dune", **answer(result, value))
    said = text_of(asked(wsgi, body).json)
    assert said == "2 × Dune for Ann: receipt for Ann"
    wsgi.close()


def test_progress_is_written_at_once() -> None:
    response = asked(strict(shop()), call("count", to=3, progress="p"))
    *told, last = response.events
    assert [one["params"]["progress"] for one in told] == [1, 2, 3]
    assert last["result"]["structuredContent"] == 3
    assert response.written == 4  # what is returned beside it might be taken for all


def test_progress_is_kept_where_the_host_cannot_write() -> None:
    """Starlette's adapter returns nothing from `start_response`, for one."""
    body = call("count", to=3, progress="p")
    response = asked(application(shop()), body, writes=False)
    assert [one.get("method") for one in response.events] == [
        *["notifications/progress"] * 3,
        None,
    ]
    assert response.written == 0


def test_a_subscription_is_acknowledged_and_over() -> None:
    body = request("subscriptions/listen", notifications={"toolsListChanged": True})
    first, *_, last = asked(strict(shop()), body).events
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert "result" in last


def test_a_subscription_to_a_task_tells_its_status_at_once() -> None:
    """There is no loop that could tell more: the client polls then."""
    app = Server("shop", tasks=SqliteTasks(is_worked=True))

    @app.tool(task="required")
    def nap() -> Flow[None]:
        yield from Sleep(0)

    wsgi = strict(app)
    follows: JSON = {"extensions": {"io.modelcontextprotocol/tasks": {}}}

    def with_tasks(method: str, **params: Any) -> JSON:
        body = request(method, **params)
        key = "io.modelcontextprotocol/clientCapabilities"
        body["params"]["_meta"][key] = follows
        return body

    made = asked(wsgi, with_tasks("tools/call", name="nap")).json["result"]
    listened = {"taskIds": [made["taskId"]]}
    body = with_tasks("subscriptions/listen", notifications=listened)
    acknowledged, told, cancelled, _ = asked(wsgi, body).events
    assert acknowledged["params"]["notifications"] == listened
    assert told["method"] == "notifications/tasks"
    assert (told["params"]["taskId"], told["params"]["status"]) == (
        made["taskId"],
        "working",
    )
    assert cancelled["method"] == "notifications/cancelled"


def test_calls_at_once_do_not_meet() -> None:
    wsgi = application(shop())
    responses: dict[int, Response] = {}

    def ask(n: int) -> None:
        responses[n] = asked(wsgi, call("count", id=n, to=n, progress=f"p{n}"))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, response in responses.items():
        *told, last = response.events
        assert [one["params"]["progressToken"] for one in told] == [f"p{n}"] * n
        assert last["id"] == n


# ---- bodies -------------------------------------------------------------------------

LIMITED = Site(path=None, max_body=1000)


def test_an_oversize_body_is_not_read() -> None:
    body = call("whoami", text="x" * 1000)
    source = io.BytesIO(json.dumps(body).encode())
    response = asked(strict(shop(), site=LIMITED), body, wsgi__input=source)
    assert response.status == 413
    assert source.tell() == 0


@pytest.mark.parametrize("length", ["9" * 5000, "many", "-1", "²"])
def test_invalid_length(length: str) -> None:
    response = asked(application(shop()), call("whoami"), CONTENT_LENGTH=length)
    assert response.status in (400, 413)


def test_a_body_without_a_length_that_has_an_end() -> None:
    wsgi = application(shop(), site=LIMITED)
    body = call("whoami")
    options: dict[str, Any] = {"CONTENT_LENGTH": "", "wsgi__input_terminated": True}
    assert asked(wsgi, body, **options).status == 200
    body = call("whoami", text="x" * 1000)
    assert asked(wsgi, body, **options).status == 413


def test_a_body_without_a_length_that_might_have_no_end() -> None:
    response = asked(strict(shop()), call("whoami"), CONTENT_LENGTH="")
    assert response.status == 411


def test_a_body_that_breaks_off() -> None:
    response = asked(application(shop()), call("whoami"), CONTENT_LENGTH="5000")
    assert response.status in (200, 400)


# ---- whom it lets in ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {"host": "evil.example"}, 403),
        ("::1", {"host": "evil.example"}, 403),
        ("127.0.0.1", {"host": "localhost:80"}, 200),
        ("10.0.0.2", {"host": "shop.example"}, 200),
        ("", {"host": "shop.example"}, 200),
        ("10.0.0.2", {"origin": "https://evil.example"}, 403),
        ("10.0.0.2", {"origin": "https://app.example"}, 200),
    ],
)
def test_host_and_origin_are_looked_at(
    address: str, headers: dict[str, str], status: int
) -> None:
    site = Site(path=None, origins=["https://app.example"])
    body = call("whoami")
    response = asked(
        strict(shop(), site=site),
        body,
        headers_of(body, **headers),
        REMOTE_ADDR=address,
        # What some hosts take from the request.
        SERVER_NAME=headers.get("host", "shop.example"),
    )
    assert response.status == status
    if "origin" in headers and status == 200:
        allowed = response.headers["access-control-allow-origin"]
        assert allowed == headers["origin"]


def test_a_preflight_is_answered() -> None:
    site = Site(path=None, origins=["https://app.example"])
    headers = {"host": "shop.example", "origin": "https://app.example"}
    response = asked(strict(shop(), site=site), b"", headers, method="OPTIONS")
    assert (response.status, response.body) == (204, b"")


@pytest.mark.parametrize(("path", "status"), [("/mcp", 200), ("/mcp/", 200), ("", 404)])
def test_the_path_is_the_one_below_the_mount(path: str, status: int) -> None:
    wsgi = strict(shop(), site=Site(path="/mcp"))
    body = call("whoami")
    response = asked(wsgi, body, SCRIPT_NAME="/api", PATH_INFO=path)
    assert response.status == status


def test_the_user_comes_from_the_servers_authentication() -> None:
    def authenticate(headers: Mapping[str, str]) -> str:
        if headers.get("authorization") != "Bearer ann's":
            raise PermissionError
        return "ann"

    wsgi = strict(shop(auth=authenticate))
    body = call("whoami")
    assert asked(wsgi, body).status == 401
    known = asked(wsgi, body, headers_of(body, authorization="Bearer ann's"))
    assert text_of(known.json) == "ann"


def test_an_async_hook_needs_something_to_run_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def authenticate(headers: Mapping[str, str]) -> str:
        return "ann"

    for hook in (authenticate, lambda headers: Later()):
        assert asked(strict(shop(auth=hook)), call("whoami")).status == 500
        assert "give application(run_async=...)" in caplog.text
        caplog.clear()
        wsgi = strict(shop(auth=hook), run_async=asyncio.run)
        assert text_of(asked(wsgi, call("whoami")).json) == "ann"


def test_the_user_comes_from_the_host() -> None:
    wsgi = strict(shop(), principal=lambda environ: environ["REMOTE_USER"])
    response = asked(wsgi, call("whoami"), REMOTE_USER="bob")
    assert text_of(response.json) == "bob"


def test_the_hosts_user_may_have_scopes() -> None:
    def find(environ: Any) -> Any:
        return Identity(subject="bob", scopes=frozenset(environ["SCOPES"].split()))

    app = shop()
    app.tool(name="audit", scopes={"audit"})(lambda: "done")
    wsgi = strict(app, principal=find)
    assert text_of(asked(wsgi, call("audit"), SCOPES="audit").json) == "done"
    refused = asked(wsgi, call("audit"), SCOPES="")
    assert refused.status == 403
    assert refused.headers["www-authenticate"] == (
        'Bearer error="insufficient_scope", scope="audit"'
    )


@pytest.mark.parametrize(
    ("script", "path", "status"),
    [
        ("", "/.well-known/oauth-protected-resource/mcp", 200),
        # A dispatcher mounts the application at the place of the document.
        ("/.well-known/oauth-protected-resource/mcp", "", 200),
        ("/.well-known", "/oauth-protected-resource/mcp", 200),
        # The mount of the server itself.
        ("/mcp", "/.well-known/oauth-protected-resource/mcp", 200),
        ("/mcp", "/.well-known/oauth-protected-resource", 404),
        ("/mcp", "", 405),
    ],
)
def test_the_document_is_named_by_its_whole_path(
    script: str, path: str, status: int
) -> None:
    auth = JWTAuth(issuer="https://idp.example", resource="https://shop.example/mcp")
    wsgi = strict(shop(auth=auth))
    for method in ("GET", "HEAD"):
        found = asked(wsgi, b"", method=method, SCRIPT_NAME=script, PATH_INFO=path)
        assert found.status == status
        if status == 200 and method == "GET":
            assert found.json["resource"] == "https://shop.example/mcp"


# ---- probes -------------------------------------------------------------------------


def probed(wsgi: Callable[..., Any], path: str = "/readyz") -> tuple[int, bytes]:
    response = asked(wsgi, b"", method="GET", PATH_INFO=path)
    assert response.headers["content-type"] == "text/plain"
    return response.status, response.body


def test_probe_opens_the_lifespan() -> None:
    """A balancer sends no request before the server is ready."""
    app = shop(lifespan=sync_bank)
    wsgi = application(app, site=Site())
    assert probed(wsgi, "/healthz") == (200, b"ok\n")
    assert not app.provided
    assert probed(wsgi) == (200, b"ok\n")
    assert app.provided["bank"].is_open
    wsgi.drain()
    assert probed(wsgi) == (503, b"draining\n")
    assert probed(wsgi, "/healthz") == (200, b"ok\n")
    assert asked(wsgi, request("tools/list"), PATH_INFO="/mcp").status == 200
    wsgi.close()
    assert probed(wsgi) == (503, b"draining\n")
    assert not app.is_running


def test_probe_of_a_lifespan_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    @contextmanager
    def fails(app: Server) -> Iterator[None]:
        if app.name == "shop":
            raise ValueError("no pool")
        yield

    wsgi = application(Server("shop", lifespan=fails), site=Site())
    assert probed(wsgi) == (503, b"starting\n")
    assert "no pool" in caplog.text
    assert probed(wsgi, "/healthz") == (200, b"ok\n")


def test_probe_held_to_the_standard() -> None:
    wsgi = strict(shop(), site=Site())
    assert probed(wsgi) == (200, b"ok\n")
    response = asked(wsgi, b"", method="DELETE", PATH_INFO="/readyz")
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


# ---- the lifespan -------------------------------------------------------------------


def test_the_first_request_opens_the_lifespan() -> None:
    app = shop(lifespan=sync_bank)
    wsgi = application(app)
    assert not app.provided
    asked(wsgi, request("tools/list"))
    opened: Bank = app.provided["bank"]
    asked(wsgi, request("tools/list"))
    assert app.provided["bank"] is opened
    wsgi.close()
    assert not opened.is_open


def test_a_lifespan_that_the_host_opened_is_not_opened_again() -> None:
    app = shop(lifespan=sync_bank)
    with sync.running(app):
        opened = app.provided["bank"]
        wsgi = application(app)
        asked(wsgi, request("tools/list"))
        wsgi.close()
        assert app.provided["bank"] is opened
        assert opened.is_open


def test_an_async_lifespan_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"contextlib\.contextmanager"):
        asked(application(shop(lifespan=bank)), request("tools/list"))


def test_a_lifespan_is_closed_when_the_process_exits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXITING], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["open", "200", "closed"], done.stderr


EXITING = """
from contextlib import contextmanager
from effectmcp.server import Server
from effectmcp.server.changes import Change
from effectmcp_tests.transports.test_wsgi import application, asked, request

@contextmanager
def lifespan(app):
    print("open")
    yield
    print("closed")

print(asked(application(Server("x", lifespan=lifespan)), request("server/discover")).status)
"""


# ---- over sockets -------------------------------------------------------------------


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(wsgi: WSGIApplication) -> Iterator[int]:
    server: WSGIServer = make_server("127.0.0.1", 0, wsgi, handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(port: int, body: JSON, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    sent = headers_of(body, host=f"127.0.0.1:{port}", **headers)
    connection.request("POST", "/mcp", json.dumps(body).encode(), sent)
    return connection.getresponse()


def test_wsgiref_serves_it() -> None:
    wsgi = application(shop(lifespan=sync_bank))
    with served(wsgi) as port:
        body = call("order", title="Dune")
        for value in ("Ann", 2):
            with post(port, body) as response:
                result = json.load(response)["result"]
            body = call("order", title="Dune", **answer(result, value))
        with post(port, body) as response:
            assert "receipt for Ann" in text_of(json.load(response))
        with post(port, call("count", to=3, progress="p")) as response:
            assert len(events(response.read())) == 4
        with post(port, body, origin="https://evil.example") as response:
            assert response.status == 403
    wsgi.close()


def test_tools_that_can_do_without_tasks_are_served_without() -> None:
    app = Server("shop", tasks=SqliteTasks())

    @app.tool
    def nap() -> Flow[None]:
        yield from Sleep(0)

    strict(app)


# ---- waiting for tasks --------------------------------------------------------------


def test_wait_for_a_task_has_a_seat_of_its_own_and_needs_no_session() -> None:
    """A client that follows tasks must not take the threads of users who are asked."""
    host = Rows()
    app = Server("shop", tasks=host)
    app.tool(name="nap", task="optional")(resting)
    row = new_row("0f", tool="nap", arguments={}, capabilities={})
    host.rows[row.id] = row
    wsgi = application(app, questions=1)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/result"}
    sent = json.dumps({**body, "params": {"taskId": row.id}}).encode()
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
    }
    found: list[Response] = []
    first = threading.Thread(target=lambda: found.append(asked(wsgi, sent, headers)))
    first.start()
    seats = wsgi._endpoint.seats
    while not seats.count:
        assert first.is_alive()
    refused = asked(wsgi, sent, headers).json["error"]
    assert refused["message"].startswith("Too many requests wait")
    assert not wsgi._asking.count  # a user could be asked now
    host.change(row.id, status="completed", result={"content": []})
    app.changes.publish(Change("task", row.id))
    first.join(60)
    assert found[0].json["result"]["content"] == []
    assert not seats.count


def resting() -> Flow[str]:
    yield from Sleep(0)
    return "rested"


def test_body_that_breaks_off_is_refused() -> None:
    """A host returns what there is if a client leaves: it may even be valid JSON."""
    app = Server("shop")
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(data) + 1)}
    got = asked(application(app), data, headers)
    assert got.status == 400
    assert "breaks off" in got.json["error"]["message"]
