"""A client that logs in at a real server of this library, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from effectmcp import ProtocolError, UsageError
from effectmcp.client import ChannelError, Client, LoginFailed, OverHttp, listening
from effectmcp.drivers import local
from effectmcp.oauth import ClientCredentials, FileTokens, OAuth, Registration

from ..client.misbehaving_servers import Asked, event, http_server
from ..client.ways import PATIENCE, on_both
from .authority import Visitor, shop_and_issuer

HANDSHAKE = "2025-11-25"


def client_at(url: str, visitor: Visitor, **options: Any) -> Client:
    version = options.pop("version", None)
    auth = OAuth(visitor=visitor, **options)
    return Client(OverHttp(url, auth=auth), version=version)


@pytest.mark.parametrize("version", [None, HANDSHAKE])
async def test_a_client_logs_in_once(version: str | None) -> None:
    visitor = Visitor()
    async with shop_and_issuer() as (url, issuer):
        async with client_at(url, visitor, version=version) as client:
            for _ in range(3):
                result = await client.call_tool("who")
                assert "ann" in result.text
        assert [kind for kind, _ in issuer.grants] == ["authorization_code"]
        assert issuer.pages[0]["scope"] == "shop"
    assert len(visitor.visits) == 1


@pytest.mark.parametrize("version", [None, HANDSHAKE])
async def test_a_tool_with_a_scope_leads_to_a_step_up(version: str | None) -> None:
    visitor = Visitor()
    async with shop_and_issuer() as (url, issuer):
        async with client_at(url, visitor, version=version) as client:
            await client.call_tool("who")
            assert (await client.call_tool("order")).text == "ordered"
            await client.call_tool("who")
            await client.call_tool("order")
        scopes = [set(one["scope"].split()) for one in issuer.pages]
        assert scopes == [{"shop"}, {"shop", "orders"}]


async def test_a_list_is_not_of_the_tokens_before() -> None:
    """A step-up shows more; a login may be of another user."""
    async with shop_and_issuer() as (url, _):
        async with client_at(url, Visitor(), version="2026-07-28") as client:
            for _ in range(2):
                assert [one["name"] for one in await client.list_tools()] == ["who"]
            await client.call_tool("order")
            names = {one["name"] for one in await client.list_tools()}
            assert names == {"who", "order"}


async def test_a_subscription_continues_with_the_next_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server ends the stream of a token that expires."""
    monkeypatch.setattr(listening, "_PAUSE", 0.05)
    lasts = iter((0.1, 600.0))
    monkeypatch.setattr(local, "seconds_of_stream", lambda identity, now: next(lasts))
    visitor = Visitor()
    async with shop_and_issuer() as (url, issuer):
        issuer.lasts = 0
        async with client_at(url, visitor, version="2026-07-28") as client:
            async with client.listen(tools=True) as changes:
                with anyio.fail_after(PATIENCE):
                    for _ in range(2):
                        assert "acknowledged" in (await anext(changes))["method"]
                        issuer.lasts = 3600
        assert {kind for kind, _ in issuer.grants[1:]} == {"refresh_token"}
    assert len(visitor.visits) == 1


async def test_an_expired_token_is_refreshed() -> None:
    """The client renews it before the call."""
    visitor = Visitor()
    async with shop_and_issuer() as (url, issuer):
        issuer.lasts = 0
        async with client_at(url, visitor) as client:
            await client.call_tool("who")
            await client.call_tool("who")
        kinds = {kind for kind, _ in issuer.grants[1:]}
        assert kinds == {"refresh_token"}
    assert len(visitor.visits) == 1


async def test_calls_at_the_same_time_log_in_once() -> None:
    visitor = Visitor()
    async with shop_and_issuer() as (url, _):
        async with client_at(url, visitor) as client:
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(client.call_tool, "who")
    assert len(visitor.visits) == 1


async def test_a_user_who_declines() -> None:
    visitor = Visitor()
    async with shop_and_issuer() as (url, issuer):
        issuer.declines = True
        async with client_at(url, visitor) as client:
            with pytest.raises(LoginFailed, match="access_denied") as caught:
                await client.call_tool("who")
            assert caught.value.code == "access_denied"
            assert str(caught.value).isprintable()
            issuer.declines = False
            await client.call_tool("who")


async def test_a_program_logs_in_for_itself(tmp_path: Any) -> None:
    async with shop_and_issuer() as (url, issuer):
        client = Registration(
            client_id="nightly", client_secret="quiet", issuer=issuer.url
        )
        auth = OAuth(
            grant=ClientCredentials(),
            registration=client,
            store=FileTokens(tmp_path),
        )
        async with Client(OverHttp(url, auth=auth)) as nightly:
            assert (await nightly.call_tool("order")).text == "ordered"
        kinds = {kind for kind, _ in issuer.grants}
        assert kinds == {"client_credentials"}
        wrong = OAuth(
            grant=ClientCredentials(),
            registration=Registration(
                client_id="nightly", client_secret="loud", issuer=issuer.url
            ),
        )
        async with Client(OverHttp(url, auth=wrong)) as nightly:
            with pytest.raises(LoginFailed, match="invalid_client"):
                await nightly.call_tool("who")


async def test_the_next_process_uses_the_kept_tokens(tmp_path: Any) -> None:
    visitor = Visitor()
    async with shop_and_issuer() as (url, _):
        for _ in range(2):
            store = FileTokens(tmp_path)
            async with client_at(url, visitor, store=store) as client:
                await client.call_tool("who")
    assert len(visitor.visits) == 1


async def test_a_client_without_a_login_is_refused() -> None:
    async with shop_and_issuer() as (url, _):
        async with Client(OverHttp(url)) as client:
            with pytest.raises((ChannelError, ProtocolError)):
                await client.call_tool("who")


def test_a_login_and_a_header_are_not_combined() -> None:
    with pytest.raises(UsageError, match="leave it out of headers="):
        OverHttp("https://a.example", headers={"Authorization": "x"}, auth=login())


def login(visitor: Any = None, **options: Any) -> OAuth:
    return OAuth(visitor=visitor or Visitor(), **options)


# ---- requests that no user waits for ------------------------------------------------


class Counting:
    """A user who declines, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    async def redirect_uri(self, preferred: str | None) -> str:
        """Return any place."""
        return preferred or "http://127.0.0.1:4711/callback"

    async def visit(self, url: str, state: str) -> str:
        """Decline."""
        self.asked += 1
        return f"http://127.0.0.1:4711/callback?error=access_denied&state={state}"

    async def close(self) -> None:
        """Do nothing."""


def metadata_of(origin: str) -> dict[str, Any]:
    return {
        "issuer": origin,
        "authorization_endpoint": f"{origin}/authorize",
        "token_endpoint": f"{origin}/token",
        "registration_endpoint": f"{origin}/register",
        "code_challenge_methods_supported": ["S256"],
    }


def one_origin(refuses: Mapping[str, int]) -> Any:
    """A server of sessions that refuses some methods of HTTP, or of MCP.

    Its metadata is the same document at all places, and so is its registration.
    """

    async def answer(asked: Asked) -> None:
        message = asked.message
        origin = f"http://{asked.headers['host']}"
        method = message.get("method", "")
        if asked.http_method == "GET" and "authorization" not in asked.headers:
            if "text/event-stream" not in asked.headers.get("accept", ""):
                document = {
                    **metadata_of(origin),
                    "resource": f"{origin}/mcp",
                    "authorization_servers": [origin],
                }
                await asked.write(json.dumps(document).encode())
                return
        if "redirect_uris" in message:
            await asked.write(b'{"client_id": "c"}', "application/json", 201)
        elif asked.http_method in refuses or method in refuses:
            header = "WWW-Authenticate: Bearer"
            await asked.write(b"{}", "application/json", 401, header)
        elif asked.http_method == "DELETE":
            await asked.write(b"", status=204)
        elif asked.http_method == "GET":
            await asked.write(event({"jsonrpc": "2.0", "method": "x"}), "text/plain")
        elif method == "initialize":
            welcome = {
                "protocolVersion": HANDSHAKE,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
            body = json.dumps(asked.response(result=welcome)).encode()
            await asked.write(body, "application/json", 200, "Mcp-Session-Id: s1")
        elif "id" not in message:
            await asked.write(b"", status=202)
        else:
            body = json.dumps(asked.response(result={"tools": []})).encode()
            await asked.write(body)

    return answer


@on_both
async def test_the_end_of_a_session_opens_no_page() -> None:
    user = Counting()
    async with http_server(one_origin({"DELETE": 401})) as url:
        channel = OverHttp(url, auth=login(user))
        async with Client(channel, version=HANDSHAKE) as client:
            await client.list_tools()
    assert user.asked == 0


@on_both
async def test_a_refused_stream_opens_no_page() -> None:
    """The client opens the stream in the background, many times."""
    user, count, enough = Counting(), 0, anyio.Event()
    inner = one_origin({"GET": 401})

    async def answer(asked: Asked) -> None:
        nonlocal count
        await inner(asked)
        count += 1
        if count == 2:
            enough.set()

    async with http_server(answer) as url:
        channel = OverHttp(url, auth=login(user))
        async with anyio.create_task_group() as group:
            group.start_soon(channel.attend, _hear, {}, lambda: None)
            with anyio.fail_after(PATIENCE):
                await enough.wait()
            group.cancel_scope.cancel()
        await channel.__aexit__()
    assert user.asked == 0


@on_both
async def test_a_cancelled_call_opens_no_page() -> None:
    """No caller waits for the notification."""
    user = Counting()
    asked_for: list[str] = []
    inner = one_origin({"notifications/cancelled": 401})
    began, cancelled = anyio.Event(), anyio.Event()

    async def answer(asked: Asked) -> None:
        method = asked.message.get("method", "")
        asked_for.append(method)
        if method == "tools/call":
            began.set()
            await anyio.sleep_forever()
        await inner(asked)
        if method == "notifications/cancelled":
            cancelled.set()

    async with http_server(answer) as url:
        channel = OverHttp(url, auth=login(user))
        async with anyio.create_task_group() as group:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}
            group.start_soon(channel.exchange, message, {}, _hear)
            await began.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE):
            await cancelled.wait()
        await channel.__aexit__()
    assert user.asked == 0


async def _hear(told: Any) -> None:
    return None


@on_both
async def test_a_server_that_wants_nonces_without_end_is_given_up() -> None:
    """A nonce has nothing to do with the user, who is not asked."""
    count = 0

    async def answer(asked: Asked) -> None:
        nonlocal count
        count += 1
        header = 'WWW-Authenticate: DPoP error="use_dpop_nonce"'
        nonce = f"DPoP-Nonce: n{count}"
        await asked.write(b"{}", "application/json", 401, header, nonce)

    from effectmcp.oauth.proofs import new_key
    from effectmcp.oauth.tokens import Kept, Tokens

    user = Counting()
    async with http_server(answer) as url:
        auth = login(user)
        tokens = Tokens(access="a", issuer="x", scheme="DPoP", proof_key=new_key())
        auth.store.save(url, json.dumps(Kept(tokens=tokens).to_json()))
        async with OverHttp(url, auth=auth) as channel:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            with pytest.raises(LoginFailed, match="does not accept the token"):
                await channel.exchange(message, {"Mcp-Method": "tools/list"}, _hear)
    assert user.asked == 0
    assert count == 4


@on_both
async def test_a_server_that_cannot_be_reached_is_not_a_login() -> None:
    async with http_server(one_origin({})) as url:
        pass
    async with OverHttp(url, auth=login(Counting())) as channel:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        with pytest.raises(ChannelError, match="cannot be reached") as caught:
            await channel.exchange(message, {"Mcp-Method": "tools/list"}, _hear)
        assert not isinstance(caught.value, LoginFailed)
