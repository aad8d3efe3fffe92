"""The project of `docs/django.md`, on a real Django."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ..test_docs import ROOT, module_of
from .era import headers_for, initialize, message
from .shop import JSON, KEYS, answer, call, headers_of, request, text_of
from .test_asgi import LOOPS, Wire
from .test_wsgi import Response, asked

BOTH = pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
(ASYNCIO,) = [loop for loop in LOOPS if loop.name == "asyncio"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The names of the page, with a database that has ann, bob and a former user."""
    found: Any = module_of(ROOT / "docs" / "django.md")
    found.app.keys = KEYS
    db = pytest.importorskip("django.db")
    management = pytest.importorskip("django.core.management")
    path: Path = tmp_path_factory.mktemp("django") / "db.sqlite3"
    db.connection.settings_dict["NAME"] = path
    management.call_command("migrate", verbosity=0)
    for name in ("ann", "bob", "eve"):
        found.User.objects.create_user(name, is_active=name != "eve")
    yield found
    found.mcp_wsgi.close()
    db.connections.close_all()


# ---- a view, under WSGI ---------------------------------------------------------------


def cookie_of(page: Any, user: str) -> dict[str, str]:
    """Sign a user in; return the headers of the user's browser."""
    client = pytest.importorskip("django.test").Client()
    client.force_login(page.User.objects.get(username=user))
    return {"cookie": f"sessionid={client.cookies['sessionid'].value}"}


def view(page: Any, body: JSON, path: str, user: str = "ann", **more: str) -> Response:
    headers = headers_of(body, **cookie_of(page, user), **more)
    return asked(page.wsgi, body, headers, PATH_INFO=path, writes=False)


@BOTH
def test_a_view_has_conversations(page: Any, path: str) -> None:
    result = view(page, call("order", title="Dune"), path).json["result"]
    body = call("order", title="Dune", **answer(result, 2))
    assert text_of(view(page, body, path).json) == "2 × Dune for ann"
    # The state is ann's.
    assert view(page, body, path, user="bob").json["error"]["code"] == -32602


@BOTH
def test_a_view_has_clients_without_sessions(page: Any, path: str) -> None:
    send = partial(asked, page.wsgi, PATH_INFO=path, writes=False)
    opened = send(initialize(), headers_for(None, **cookie_of(page, "ann")))
    assert (opened.status, "mcp-session-id" in opened.headers) == (200, False)
    headers = headers_for(None, **cookie_of(page, "ann"))
    assert send(message("tools/list", id=1), headers).status == 200
    for method in ("GET", "DELETE"):
        assert send(b"", headers, method=method).status == 405


def test_a_view_has_the_document_of_a_server_for_tokens(page: Any) -> None:
    """Under the URL that its refusal names."""
    send = partial(asked, page.wsgi, writes=False)
    refused = send(call("order", title="Dune"), PATH_INFO="/orders")
    assert refused.status == 401
    place = "/.well-known/oauth-protected-resource/orders"
    named = f'resource_metadata="https://shop.example{place}"'
    assert named in refused.headers["www-authenticate"]
    found = send(b"", {"host": "shop.example"}, method="GET", PATH_INFO=place)
    assert (found.status, found.json["resource"]) == (
        200,
        "https://shop.example/orders",
    )


@BOTH
def test_a_view_refuses_strangers_and_pages_of_other_origins(
    page: Any, path: str
) -> None:
    """The checks of the server replace Django's check of CSRF tokens."""
    body = call("order", title="Dune")
    response = asked(page.wsgi, body, PATH_INFO=path, writes=False)
    assert (response.status, b"sign in first" in response.body) == (401, True)
    assert view(page, body, path, origin="https://evil.example").status == 403


def test_a_view_needs_the_length_of_a_body(page: Any) -> None:
    """Django reads no other bodies, even where the host marks their end."""
    body = request("tools/list")
    ask = partial(asked, page.wsgi, CONTENT_LENGTH="", wsgi__input_terminated=True)
    headers = headers_of(body, **cookie_of(page, "ann"))
    assert ask(body, headers, PATH_INFO="/mcp").status == 411


def test_django_serves_other_paths(page: Any) -> None:
    for path in ("/", "/mcpx", "/mcp/other"):
        response = asked(page.wsgi, b"", {"host": "localhost"}, PATH_INFO=path)
        assert b"The requested resource was not found" in response.body
        assert response.status == 404


# ---- beside Django, under ASGI --------------------------------------------------------


def beside(page: Any, *asks: dict[str, Any]) -> list[Wire]:
    """Return the responses to requests, one after the other."""
    to_sync = pytest.importorskip("asgiref.sync").async_to_sync

    async def main() -> list[Wire]:
        async with asyncio.timeout(20):
            return [await Wire(ASYNCIO).ask(page.asgi, **one) for one in asks]

    # Not `asyncio.run`: Django's queries run in the thread of the database then.
    found: list[Wire] = to_sync(main)()
    return found


def token_of(page: Any, user: str) -> dict[str, str]:
    token = page.token_of(page.User.objects.get(username=user))
    return {"authorization": f"Bearer {token}"}


@BOTH
def test_a_conversation_beside_django(page: Any, path: str) -> None:
    body = call("order", title="Dune")
    ann = headers_of(body, **token_of(page, "ann"))
    (first,) = beside(page, {"body": body, "headers": ann, "path": path})
    body = call("order", title="Dune", **answer(first.json["result"], 2))
    bob = headers_of(body, **token_of(page, "bob"))
    second, third = beside(
        page,
        {"body": body, "headers": ann, "path": path},
        {"body": body, "headers": bob, "path": path},
    )
    assert text_of(second.json) == "2 × Dune for ann"
    assert third.json["error"]["code"] == -32602


@BOTH
def test_a_session_beside_django(page: Any, path: str) -> None:
    token = token_of(page, "ann")
    opening = json.dumps(initialize()).encode()
    (opened,) = beside(
        page, {"body": opening, "headers": headers_for(None, **token), "path": path}
    )
    headers = headers_for(opened.headers["mcp-session-id"], **token)
    ping = {"body": message("ping", id=1), "headers": headers, "path": path}
    bye = {"body": b"", "headers": headers, "path": path, "method": "DELETE"}
    assert [one.status for one in beside(page, ping, bye, ping)] == [200, 204, 404]


@BOTH
@pytest.mark.parametrize("token", ["", "Bearer made:up", "eve"])
def test_strangers_beside_django(page: Any, path: str, token: str) -> None:
    body = call("order", title="Dune")
    given = token_of(page, token) if token == "eve" else {"authorization": token}
    (response,) = beside(
        page, {"body": body, "headers": headers_of(body, **given), "path": path}
    )
    assert response.status == 401


def test_all_other_paths_beside_django_are_its_own(page: Any) -> None:
    headers = {"host": "localhost"}
    (response,) = beside(page, {"body": b"", "headers": headers, "path": "/mcpx"})
    assert response.status == 404
    body = b"".join(part.get("body", b"") for part in response.sent)
    assert b"The requested resource was not found" in body


def test_the_lifespan_beside_django_is_the_servers(page: Any) -> None:
    heard: list[str] = []
    is_running: list[bool] = []
    events = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        is_running.append(page.app.is_running)
        return {"type": next(events)}

    async def send(event: dict[str, Any]) -> None:
        heard.append(event["type"])

    asyncio.run(page.asgi({"type": "lifespan"}, receive, send))
    assert heard == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert is_running[-1]
