"""The project of `docs/flask.md`, on a real Flask."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ..test_docs import ROOT, module_of
from .era import headers_for, initialize, message
from .shop import JSON, KEYS, answer, call, headers_of, text_of
from .test_wsgi import Response, asked

BOTH = pytest.mark.parametrize("path", ["/mcp", "/mcp/"])


@pytest.fixture
def page() -> Iterator[Any]:
    """The names of the page."""
    found: Any = module_of(ROOT / "docs" / "flask.md")
    found.app.keys = KEYS
    yield found
    found.mcp.close()


def ask(page: Any, body: JSON, path: str = "/mcp", user: str = "ann") -> Response:
    headers = headers_of(body, authorization=f"Bearer {page.tokens.dumps(user)}")
    return asked(page.host, body, headers, PATH_INFO=path)


@BOTH
def test_a_conversation_of_two_rounds(page: Any, path: str) -> None:
    result = ask(page, call("order", title="Dune"), path).json["result"]
    body = call("order", title="Dune", **answer(result, 2))
    assert text_of(ask(page, body, path).json) == "2 × Dune for ann"
    # The state is ann's.
    assert ask(page, body, path, user="bob").json["error"]["code"] == -32602


@BOTH
def test_a_session(page: Any, path: str) -> None:
    token = {"authorization": f"Bearer {page.tokens.dumps('ann')}"}
    send = partial(asked, page.host, PATH_INFO=path, wsgi__multithread=True)
    opened = send(initialize(), headers_for(None, **token))
    headers = headers_for(opened.headers["mcp-session-id"], **token)
    assert send(message("ping", id=1), headers).status == 200
    assert send(b"", headers, method="GET").status == 405
    assert send(b"", headers, method="DELETE").status == 204
    assert send(message("ping", id=1), headers).status == 404


def test_a_server_for_tokens_has_its_document(page: Any) -> None:
    """Under the URL that its refusal names."""
    refused = asked(page.host, call("order", title="Dune"), PATH_INFO="/orders")
    assert refused.status == 401
    place = "/.well-known/oauth-protected-resource/orders"
    named = f'resource_metadata="https://shop.example{place}"'
    assert named in refused.headers["www-authenticate"]
    found = asked(page.host, b"", method="GET", PATH_INFO=place)
    assert (found.status, found.json["resource"]) == (
        200,
        "https://shop.example/orders",
    )
    other = place.replace("orders", "mcp")
    assert asked(page.host, b"", method="GET", PATH_INFO=other).status == 404


@BOTH
@pytest.mark.parametrize("given", [{}, {"authorization": "Bearer made.up"}])
@pytest.mark.parametrize("basic", [False, True])
def test_a_client_without_a_token(
    page: Any, path: str, given: dict[str, str], basic: bool
) -> None:
    body = call("order", title="Dune")
    if basic:
        given = {"authorization": "Basic YW5uOmFubg=="}
    response = asked(page.host, body, headers_of(body, **given), PATH_INFO=path)
    assert response.status == 401
    assert "sign in first" in response.body.decode()


@BOTH
def test_pages_of_other_origins_are_refused(page: Any, path: str) -> None:
    body = call("order", title="Dune")
    token = f"Bearer {page.tokens.dumps('ann')}"
    headers = headers_of(body, authorization=token, origin="https://evil.example")
    assert asked(page.host, body, headers, PATH_INFO=path).status == 403


def test_flask_serves_other_paths(page: Any) -> None:
    home = asked(page.host, b"", method="GET", PATH_INFO="/")
    assert (home.status, home.body[:10]) == (200, b"A bookshop")
    assert asked(page.host, b"", method="GET", PATH_INFO="/mcpx").status == 404
