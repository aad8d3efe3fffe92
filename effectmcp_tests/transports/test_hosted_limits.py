"""The limits that ASGI and WSGI hosts share with the native server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio

from effectmcp.server import Server
from effectmcp.transports import asgi, wsgi
from effectmcp.transports.conversation import Conversation
from effectmcp.transports.web import PIECE, Site

from .shop import call, headers_of

SITE = Site(path=None, share=0.5, unsent=8 * PIECE, bodies=4 * 1024 * 1024)


def shop() -> Server:
    app = Server("shop")

    @app.tool
    async def large(size: int) -> str:
        return "x" * size

    @app.tool
    def counted(text: str) -> int:
        return len(text)

    return app


def test_limits_of_a_site_hold() -> None:
    on_asgi = asgi.application(shop(), site=SITE).endpoint
    on_wsgi = wsgi.application(shop(), site=SITE)._endpoint
    for endpoint in (on_asgi, on_wsgi):
        assert (endpoint.bodies.limit, endpoint.bodies.share) == (
            SITE.bodies,
            SITE.bodies // 2,
        )
        assert (endpoint.unsent.limit, endpoint.unsent.share) == (8 * PIECE, 4 * PIECE)
        assert endpoint.sessions is not None
        assert endpoint.sessions._count.share == 500
    assert on_asgi.seats.share == 250
    assert (on_wsgi.seats.limit, on_wsgi.seats.share) == (2, 1)


def test_places_for_questions_are_shared() -> None:
    made = wsgi.application(shop(), questions=4)._asking
    assert (made.limit, made.share) == (4, 2)


# ---- unread responses ---------------------------------------------------------------


def scope_of(message: Any) -> tuple[dict[str, Any], bytes]:
    body = json.dumps(message).encode()
    headers = {**headers_of(message), "content-length": str(len(body))}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": pairs,
        "client": ("192.0.2.1", 1),
    }
    return scope, body


async def test_response_that_gave_way_is_not_taken_for_a_whole_one() -> None:
    """The application returns without the end of the body, so the host breaks it off."""
    app = shop()
    made = asgi.application(app, site=SITE)
    scope, body = scope_of(call("large", size=3 * PIECE))
    sent: list[list[dict[str, Any]]] = [[], []]
    is_blocked, go_on = trio.Event(), trio.Event()

    async def ask(number: int) -> None:
        parts = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if parts:
                return parts.pop()
            return await trio.sleep_forever()

        async def send(message: Any) -> None:
            sent[number].append(message)
            if number == 0 and message["type"] == "http.response.body":
                is_blocked.set()
                await go_on.wait()

        await made(scope, receive, send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, 0)
        await is_blocked.wait()
        await ask(1)
        go_on.set()
    assert made.endpoint.unsent.size == 0
    first, second = sent
    assert not any(one.get("more_body") is False for one in first)
    assert second[-1]["more_body"] is False
    size = sum(len(one.get("body", b"")) for one in second)
    assert size == int(dict(second[0]["headers"])[b"content-length"])


def environ_of(message: Any) -> dict[str, Any]:
    scope, body = scope_of(message)
    environ: dict[str, Any] = {
        "HTTP_" + name.decode().upper().replace("-", "_"): value.decode()
        for name, value in scope["headers"]
    }
    environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE")
    environ["CONTENT_LENGTH"] = environ.pop("HTTP_CONTENT_LENGTH")

    class Source:
        data = body

        def read(self, size: int) -> bytes:
            found, self.data = self.data[:size], self.data[size:]
            return found

    return {
        **environ,
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.input": Source(),
    }


def test_response_of_wsgi_that_gave_way_is_broken_off() -> None:
    import asyncio

    made = wsgi.application(shop(), site=SITE, run_async=asyncio.run)

    def begun() -> Iterable[bytes]:
        return iter(made(environ_of(call("large", size=3 * PIECE)), _start))

    first, second = begun(), begun()
    assert len(next(iter(first))) == PIECE
    assert len(next(iter(first))) == PIECE
    assert sum(map(len, second)) > 3 * PIECE
    with pytest.raises(wsgi._BrokenOff, match="breaks off"):
        _drain_against(made, first, begun)
    made.close()


def _drain_against(
    made: wsgi.WSGIApplication, first: Iterable[bytes], begun: Callable[[], Any]
) -> None:
    # Other requests of the same address take the bytes, before this response continues.
    others = [begun() for _ in range(3)]
    for other in others:
        next(iter(other))
        next(iter(other))
    list(first)


def _start(status: str, headers: list[tuple[str, str]]) -> None: ...


def test_call_is_counted_while_it_runs_without_its_client() -> None:
    """The body of a session's request belongs to its call, not to the connection."""
    site = Site(path=None, bodies=1024 * 1024, share=1)
    made = asgi.application(shop(), site=site)
    talk = Conversation(made.endpoint, asgi._asked(scope_of(call("counted"))[0], ()))
    talk.judge()
    talk.body(bytes(500_000))
    holding = talk.hand_over()
    talk.close()
    assert holding is not None
    assert made.endpoint.bodies.size == 500_000
    holding.close()
