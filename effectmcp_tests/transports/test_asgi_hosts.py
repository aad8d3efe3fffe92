"""ASGI over sockets: uvicorn on asyncio, hypercorn on trio, and mounted in Starlette."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from functools import partial
from typing import Any

import pytest
import trio

from effectmcp.drivers.local import running
from effectmcp.server import RequestEnded, RoundEnded, Server
from effectmcp.transports.asgi import application
from effectmcp.transports.web import Site

from .shop import (
    JSON,
    answer,
    bank,
    call,
    events,
    headers_of,
    request,
    shop,
    text_of,
)

Serving = Callable[[Any], AbstractContextManager[int]]


@contextmanager
def uvicorn(asgi: Any) -> Iterator[int]:
    """The port on which uvicorn serves `asgi`, in a thread of its own."""
    uvicorn = pytest.importorskip("uvicorn", reason="pip install uvicorn")
    config = uvicorn.Config(
        asgi, port=0, ws="none", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    ports: queue.SimpleQueue[int] = queue.SimpleQueue()
    startup = server.startup

    async def begin(**options: Any) -> None:
        await startup(**options)
        ports.put(
            server.servers[0].sockets[0].getsockname()[1] if server.servers else 0
        )

    server.startup = begin
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield ports.get(timeout=20)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def hypercorn(asgi: Any) -> Iterator[int]:
    """The port on which hypercorn serves `asgi`, on trio in a thread of its own."""
    hypercorn = pytest.importorskip("hypercorn", reason="pip install 'hypercorn[trio]'")
    serve = pytest.importorskip(
        "hypercorn.trio", reason="pip install 'hypercorn[trio]'"
    ).serve
    config = hypercorn.Config()
    config.bind = ["127.0.0.1:0"]
    config.graceful_timeout = 0.2
    found: queue.SimpleQueue[tuple[int, Callable[[], None]]] = queue.SimpleQueue()

    async def main() -> None:
        stop = trio.Event()
        token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            (url,) = await nursery.start(
                partial(serve, asgi, config, shutdown_trigger=stop.wait, mode="asgi")
            )
            port = int(url.rpartition(":")[2])
            found.put((port, partial(token.run_sync_soon, stop.set)))

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    port, stop = found.get(timeout=20)
    try:
        yield port
    finally:
        stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(params=[uvicorn, hypercorn], ids=lambda one: one.__name__)
def served(request: pytest.FixtureRequest) -> Serving:
    """Every test in both hosts."""
    chosen: Serving = request.param
    return chosen


@contextmanager
def sending(
    port: int, body: JSON, path: str = "/mcp", **more: str
) -> Iterator[http.client.HTTPResponse]:
    """The response to `body`; its client leaves at the end of the block."""
    headers = headers_of(body, **{"host": f"127.0.0.1:{port}", **more})
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("POST", path, json.dumps(body).encode(), headers)
        with client.getresponse() as response:
            yield response


def post(port: int, body: JSON, path: str = "/mcp", **more: str) -> JSON:
    with sending(port, body, path, **more) as response:
        assert response.status == 200, response.read()
        return json.loads(response.read())


def converse(port: int, path: str = "/mcp") -> str:
    body = call("order", title="Dune")
    for value in ("Ann", 2):
        result = post(port, body, path)["result"]
        body = call("order", title="Dune", **answer(result, value))
    return text_of(post(port, body, path))


# ---- alone --------------------------------------------------------------------------


def test_a_conversation_with_a_lifespan(served: Serving) -> None:
    app = shop(lifespan=bank)
    with served(application(app)) as port:
        opened = app.provided["bank"]
        assert converse(port) == "2 × Dune for Ann: receipt for Ann"
    assert not opened.is_open


def test_progress_arrives_while_the_call_is_running(served: Serving) -> None:
    with served(application(shop())) as port:
        with sending(port, call("endless", progress="p")) as response:
            assert response.getheader("content-type") == "text/event-stream"
            assert response.readline() == b"event: message\n"
            assert b"notifications/progress" in response.readline()


def test_a_client_that_leaves_suspends_the_flow(served: Serving) -> None:
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with served(application(shop(observers=[heard.put]))) as port:
        with sending(port, call("endless", progress="p")) as response:
            response.readline()
        *_, ended, over = [heard.get(timeout=20) for _ in range(4)]
        assert isinstance(ended, RoundEnded)
        assert isinstance(over, RequestEnded)
        assert ended.outcome == over.outcome == "dropped"


def test_one_connection_for_many_calls(served: Serving) -> None:
    with served(application(shop())) as port:
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
            for n in range(1, 4):
                body = call("count", id=n, to=n, progress="p")
                headers = headers_of(body, host="localhost")
                client.request("POST", "/mcp", json.dumps(body).encode(), headers)
                assert events(client.getresponse().read())[-1]["id"] == n
                body = call("echo", id=n, text="hello")
                headers = headers_of(body, host="localhost")
                client.request("POST", "/mcp", json.dumps(body).encode(), headers)
                assert text_of(json.load(client.getresponse())) == "hello"


@pytest.mark.parametrize(
    ("size", "more", "status"),
    [
        (5, {"host": "evil.example"}, 403),
        (5, {"origin": "https://evil.example"}, 403),
        (5_000, {}, 413),
    ],
)
def test_refusals(
    served: Serving, size: int, more: dict[str, str], status: int
) -> None:
    site = Site(path=None, max_body=1_000)
    with served(application(shop(), site=site)) as port:
        with sending(port, call("echo", text="x" * size), **more) as response:
            assert response.status == status


def test_a_subscription_that_is_open_does_not_keep_the_host(served: Serving) -> None:
    body = request("subscriptions/listen", notifications={"toolsListChanged": True})
    with ExitStack() as stack:
        with served(application(shop(lifespan=bank))) as port:
            response = stack.enter_context(sending(port, body))
            response.readline()
            assert b"acknowledged" in response.readline()


# ---- mounted ------------------------------------------------------------------------


def mounted(app: Server, how: str, *, opens: bool = True) -> Any:
    pytest.importorskip("starlette", reason="pip install starlette")
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    @asynccontextmanager
    async def lifespan(host: Any) -> AsyncIterator[None]:
        async with running(app):
            yield

    place = {"route": Route, "mount": Mount}[how]("/api/mcp", application(app))
    return Starlette(routes=[place], lifespan=lifespan if opens else None)


@pytest.mark.parametrize(
    ("how", "path"), [("route", "/api/mcp"), ("mount", "/api/mcp/")]
)
def test_starlette_mounts_it(served: Serving, how: str, path: str) -> None:
    app = shop(lifespan=bank)
    with served(mounted(app, how)) as port:
        assert "receipt for Ann" in converse(port, path)
        with sending(port, call("endless", progress="p"), path) as response:
            assert response.readline() == b"event: message\n"


def test_starlette_that_opens_no_lifespan(
    served: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    app = shop(lifespan=bank)
    with served(mounted(app, "route", opens=False)) as port:
        with sending(port, request("tools/list"), "/api/mcp") as response:
            assert response.status == 500
    assert "async with effectmcp.drivers.local.running(app)" in caplog.text


def test_fastapi_mounts_it() -> None:
    fastapi = pytest.importorskip("fastapi", reason="pip install fastapi")
    app = shop()
    host = fastapi.FastAPI()
    host.mount("/mcp", application(app))
    with uvicorn(host) as port:
        assert text_of(post(port, call("echo", text="hello"), "/mcp/")) == "hello"
