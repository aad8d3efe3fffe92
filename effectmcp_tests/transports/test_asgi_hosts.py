"""ASGI over sockets: uvicorn on asyncio, hypercorn on trio; and in hosts that mount."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
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

from effectmcp import UsageError
from effectmcp.auth import JWTAuth
from effectmcp.drivers.local import running
from effectmcp.server import RequestEnded, RoundEnded, Server
from effectmcp.transports.asgi import application, mount
from effectmcp.transports.web import Site

from .era import desk, headers_for, initialize, tool
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
from .test_asgi import LOOPS, Loop, Wire, asked

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
        seen = [heard.get(timeout=60)]
        while not isinstance(seen[-1], RequestEnded):
            seen.append(heard.get(timeout=60))
        *_, ended, over = seen
        assert isinstance(ended, RoundEnded)
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


@pytest.fixture(params=["starlette", "fastapi"])
def framework(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The class of a host that mounts."""
    name: str = request.param
    pytest.importorskip(name, reason=f"pip install {name}")
    if name == "fastapi":
        from fastapi import FastAPI

        return FastAPI
    from starlette.applications import Starlette

    return Starlette


@pytest.fixture(params=LOOPS, ids=lambda loop: loop.name)
def loop(request: pytest.FixtureRequest) -> Loop:
    """The loop of a test in memory."""
    chosen: Loop = request.param
    return chosen


BOTH = pytest.mark.parametrize("path", ["/api/mcp", "/api/mcp/"])


def opening(app: Server) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """The lifespan of a host that opens the server's."""

    @asynccontextmanager
    async def lifespan(host: Any) -> AsyncIterator[None]:
        async with running(app):
            yield

    return lifespan


@BOTH
def test_a_conversation_with_a_mounted_server(
    served: Serving, framework: Callable[..., Any], path: str
) -> None:
    app = shop(lifespan=bank)
    host = framework(lifespan=opening(app))
    mount(host, "/api/mcp", application(app))
    with served(host) as port:
        assert "receipt for Ann" in converse(port, path)
        with sending(port, call("endless", progress="p"), path) as response:
            assert response.readline() == b"event: message\n"


def test_a_host_that_opens_no_lifespan(
    served: Serving, framework: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    host = framework()
    mount(host, "/mcp", application(shop(lifespan=bank)))
    with served(host) as port:
        with sending(port, request("tools/list")) as response:
            assert response.status == 500
    assert "async with effectmcp.drivers.local.running(app)" in caplog.text


@BOTH
def test_sessions_of_a_mounted_server(
    framework: Callable[..., Any], loop: Loop, path: str
) -> None:
    host = framework()
    mount(host, "/api/mcp", application(desk().app))

    async def main() -> list[int]:
        ask = partial(Wire(loop).ask, host, path=path)
        opened = await ask(initialize(), headers_for(None))
        headers = headers_for(opened.headers["mcp-session-id"])
        reading = Wire(loop)
        reading.leaves_at = b"id: "
        got = [
            await reading.ask(host, b"", headers, path=path, method="GET"),
            await Wire(loop).ask(host, tool("whoami"), headers, path=path),
            await Wire(loop).ask(host, b"", headers, path=path, method="DELETE"),
            await Wire(loop).ask(host, tool("whoami"), headers, path=path),
        ]
        return [one.status for one in got]

    assert loop.run(main) == [200, 200, 204, 404]


def scopes(loop: Loop, host: Any, seen: list[Any], *paths: str, root: str = "") -> None:
    """Add the scopes that a mounted server gets for `paths` to `seen`."""

    async def main() -> None:
        for path in paths:
            wire = await Wire(loop).ask(host, call("whoami"), path=path, root_path=root)
            assert wire.status == 200, wire.sent

    loop.run(main)
    assert len(seen) == len(paths)


def place_of(scope: Mapping[str, Any]) -> list[Any]:
    return [scope.get(key) for key in ("root_path", "path", "path_params")]


def test_both_paths_of_a_mount_have_the_same_scope(
    framework: Callable[..., Any], loop: Loop
) -> None:
    """A proxy, a mount above, and a path that is relative to the mount change nothing."""
    seen: list[Any] = []
    asgi = application(shop(), site=Site(path="/"), principal=seen.append)
    inner, outer = framework(), framework()
    mount(inner, "/mcp/", asgi)
    outer.mount("/users/{user}", inner)
    paths = ["/proxy/users/ann/mcp", "/proxy/users/ann/mcp/"]
    scopes(loop, outer, seen, *paths, root="/proxy")
    one, two = map(place_of, seen)
    assert one == two == [*paths, {"user": "ann"}]


def test_every_path_below_a_mount_is_served(
    framework: Callable[..., Any], loop: Loop
) -> None:
    seen: list[Any] = []
    host = framework()
    mount(host, "/mcp", application(shop(), principal=seen.append))
    scopes(loop, host, seen, "/mcp/other", "/mcp/")
    assert asked(loop, host, call("whoami"), path="/mcpx").status == 404
    site = Site(path="/")
    host = framework()
    mount(host, "/mcp", application(shop(), site=site))
    assert asked(loop, host, call("whoami"), path="/mcp/other").status == 404


def test_a_mount_at_the_root(framework: Callable[..., Any], loop: Loop) -> None:
    seen: list[Any] = []
    host = framework()
    mount(host, "/", application(shop(), principal=seen.append))
    scopes(loop, host, seen, "/", "/mcp", "/mcp/")


@BOTH
def test_a_mount_is_guarded(
    framework: Callable[..., Any], loop: Loop, path: str
) -> None:
    """The host's middleware runs, and so do the checks of hosts and origins."""
    heard: list[str] = []

    class Middleware:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            heard.append(scope["path"])
            await self.app(scope, receive, send)

    async def own(scope: Any, receive: Any, send: Any) -> None:
        heard.append("own")
        await asgi(scope, receive, send)

    asgi = application(shop(), site=Site(path=None, hosts=["shop.example"]))
    host = framework()
    host.add_middleware(Middleware)
    mount(host, "/api/mcp", own)
    body = call("whoami")
    for more in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        headers = headers_of(body, **more)
        assert asked(loop, host, body, headers=headers, path=path).status == 403
    assert asked(loop, host, body, path=path).status == 200
    assert heard == [path, "own"] * 3


# ---- the document of a mounted server -----------------------------------------------

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def protected(path: str, **options: Any) -> Server:
    """A server for tokens, whose clients know it by this path."""
    resource = f"https://shop.example{path}"
    auth = JWTAuth(issuer="https://idp.example", resource=resource)
    return shop(auth=auth, **options)


def got(loop: Loop, host: Any, path: str, method: str = "GET", **scope: Any) -> Wire:
    headers = {"host": "shop.example"}
    return asked(loop, host, b"", headers=headers, path=path, method=method, **scope)


def resource_at(loop: Loop, host: Any, path: str, **scope: Any) -> str | None:
    """The resource that the document at a path describes, if there is one."""
    wire = got(loop, host, path, **scope)
    if wire.status != 200:
        assert wire.status == 404
        return None
    found: str = wire.json["resource"]
    return found


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/api/v1/mcp"])
def test_mount_has_the_document_of_its_server(
    framework: Callable[..., Any], loop: Loop, path: str
) -> None:
    """Clients look for it at the root of the host, not below the mount."""
    host = framework()
    mount(host, path, application(protected(path)))
    assert resource_at(loop, host, WELL_KNOWN + path) == f"https://shop.example{path}"
    assert resource_at(loop, host, WELL_KNOWN) is None
    assert resource_at(loop, host, f"{WELL_KNOWN}/other") is None
    place = WELL_KNOWN + path
    assert got(loop, host, place, "HEAD").body == b""
    assert got(loop, host, place, "OPTIONS").status == 204
    assert got(loop, host, place, "POST").status == 405
    # A refusal names this URL.
    refused = asked(loop, host, call("whoami"), path=path)
    assert refused.status == 401
    named = f'resource_metadata="https://shop.example{WELL_KNOWN}{path}"'
    assert named in refused.headers["www-authenticate"]


def test_mounts_have_a_document_each(framework: Callable[..., Any], loop: Loop) -> None:
    host, paths = framework(), ("/one/more", "/one", "/two")
    for path in paths:
        mount(host, path, application(protected(path)))
    for path in paths:
        found = resource_at(loop, host, WELL_KNOWN + path)
        assert found == f"https://shop.example{path}"


def test_mount_of_a_server_with_a_path_of_its_own(
    framework: Callable[..., Any], loop: Loop
) -> None:
    host = framework()
    mount(host, "/api", application(protected("/api/mcp"), site=Site(path="/mcp")))
    found = resource_at(loop, host, f"{WELL_KNOWN}/api/mcp")
    assert found == "https://shop.example/api/mcp"
    assert resource_at(loop, host, f"{WELL_KNOWN}/api") is None


def test_mount_at_the_root_has_the_document(
    framework: Callable[..., Any], loop: Loop
) -> None:
    host = framework()
    mount(host, "/", application(protected("")))
    assert resource_at(loop, host, WELL_KNOWN) == "https://shop.example"


def test_mount_behind_a_proxy_that_removes_a_path(
    framework: Callable[..., Any], loop: Loop
) -> None:
    """Clients write /shop/mcp; the proxy routes their document to the host, too."""
    host = framework()
    mount(host, "/mcp", application(protected("/shop/mcp")))
    found = resource_at(loop, host, f"{WELL_KNOWN}/shop/mcp")
    assert found == "https://shop.example/shop/mcp"


def test_mount_with_middleware_of_ones_own_has_the_document(
    framework: Callable[..., Any], loop: Loop
) -> None:
    """A function, which Starlette would take for a handler of its own."""
    asgi = application(protected("/mcp"))

    async def own(scope: Any, receive: Any, send: Any) -> None:
        await asgi(scope, receive, send)

    host = framework()
    mount(host, "/mcp", own)
    found = resource_at(loop, host, f"{WELL_KNOWN}/mcp")
    assert found == "https://shop.example/mcp"


def test_mount_of_a_server_without_tokens_has_no_document(
    framework: Callable[..., Any], loop: Loop
) -> None:
    """404: clients would take 405 for a fault, and not for a server without tokens."""
    host = framework()
    mount(host, "/mcp", application(shop()))
    assert resource_at(loop, host, f"{WELL_KNOWN}/mcp") is None
    assert got(loop, host, "/mcp").status == 405


def test_document_is_found_where_a_host_mounts_the_application_again(
    loop: Loop,
) -> None:
    """For a host that can only mount: the whole path counts, not what is left of it."""
    place = f"{WELL_KNOWN}/mcp"
    found = resource_at(loop, application(protected("/mcp")), place, root_path=place)
    assert found == "https://shop.example/mcp"


def test_a_plain_mount_is_not_called_for_its_own_path(
    framework: Callable[..., Any], loop: Loop
) -> None:
    """The reason for `mount`: without it, the host redirects before any call.

    If this fails, `host.mount` is enough.
    """
    seen: list[Any] = []
    host = framework()
    host.mount("/mcp", application(shop(), principal=seen.append))
    assert asked(loop, host, call("whoami"), path="/mcp").status == 307
    assert not seen


def test_mount_takes_no_bare_server() -> None:
    given: Any = shop()
    with pytest.raises(UsageError, match=r"mount\(\) takes application\(app\)"):
        mount(given, "/mcp", given)
