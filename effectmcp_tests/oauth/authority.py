"""A real server that checks tokens, and a small authorization server, on loopback.

They run in the loop of the test. The authorization server logs a user in without asking,
and signs its tokens with a key that the server fetches.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import anyio
import anyio.abc
import h11
import httpx2
import trio
from attrs import define, field
from joserfc import jwk, jwt

from effectmcp import Caller, Flow, Server
from effectmcp.auth import JWTAuth
from effectmcp.transports import http

from ..client.misbehaving_servers import Asked

KEY: Any = jwk.ECKey.generate_key("P-256", parameters={"kid": "first"})


@define(eq=False)
class Issuer:
    """An authorization server.

    Attributes:
        url: Its name.
        lasts: Seconds that a token lasts.
        declines: Whether its users decline.
        secret: The secret of the client `nightly`.
        grants: The grants so far, in order: the kind and the scopes.
        pages: The parameters of the login pages.
        refreshes: The scopes of the refresh tokens.
        codes: The scopes of the codes.
        resource: The audience of the tokens.
    """

    url: str = ""
    lasts: int = 3600
    declines: bool = False
    secret: str = "quiet"
    grants: list[tuple[str, str]] = field(factory=list)
    pages: list[dict[str, str]] = field(factory=list)
    refreshes: dict[str, str] = field(factory=dict)
    codes: dict[str, str] = field(factory=dict)
    resource: str = ""

    async def answer(self, asked: Asked, target: str, body: bytes) -> None:
        """Answer a request."""
        parts = urlsplit(target)
        match parts.path:
            case "/.well-known/oauth-authorization-server":
                await self._write(asked, self._metadata())
            case "/keys":
                await self._write(asked, {"keys": [KEY.as_dict(private=False)]})
            case "/register":
                found = {**json.loads(body), "client_id": "registered"}
                await self._write(asked, found, 201)
            case "/authorize":
                await self._authorize(asked, parse_qs(parts.query))
            case "/token":
                await self._token(asked, dict(parse_qsl(body.decode())))
            case _:
                await self._write(asked, {}, 404)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/keys",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }

    async def _write(self, asked: Asked, found: Any, status: int = 200) -> None:
        await asked.write(json.dumps(found).encode(), "application/json", status)

    async def _authorize(self, asked: Asked, given: Mapping[str, list[str]]) -> None:
        page = {name: texts[0] for name, texts in given.items()}
        self.pages.append(page)
        answer = {"state": page["state"], "iss": self.url}
        if self.declines:
            answer |= {"error": "access_denied", "error_description": "no \x1b[2Jway"}
        else:
            code = f"code-{len(self.pages)}"
            self.codes[code] = page.get("scope", "")
            answer["code"] = code
        url = f"{page['redirect_uri']}?{urlencode(answer)}"
        await asked.write(b"", "text/html", 302, f"Location: {url}")

    async def _token(self, asked: Asked, form: Mapping[str, str]) -> None:
        kind = form["grant_type"]
        assert form["resource"] == self.resource
        if kind == "authorization_code":
            scope = self.codes.pop(form["code"])
        elif kind == "refresh_token":
            known = self.refreshes.pop(form["refresh_token"], None)
            if known is None:
                await self._write(asked, {"error": "invalid_grant"}, 400)
                return
            scope = known
        else:
            scope = form.get("scope", "")
            if form.get("client_secret") != self.secret:
                await self._write(asked, {"error": "invalid_client"}, 401)
                return
        self.grants.append((kind, scope))
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": self.resource,
            "sub": "ann",
            "client_id": form["client_id"],
            "scope": scope,
            "iat": now,
            "exp": now + self.lasts,
            "jti": str(len(self.grants)),
        }
        header = {"alg": "ES256", "typ": "at+jwt", "kid": "first"}
        token = jwt.encode(header, claims, KEY, algorithms=["ES256"])
        found = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.lasts,
            "scope": scope,
        }
        if kind != "client_credentials":
            refresh = f"refresh-{len(self.grants)}"
            self.refreshes[refresh] = scope
            found["refresh_token"] = refresh
        await self._write(asked, found)


class Visitor:
    """A user with a browser that follows one redirect.

    Attributes:
        visits: The pages that were shown.
    """

    def __init__(self) -> None:
        self.visits: list[str] = []

    async def redirect_uri(self, preferred: str | None) -> str:
        """Return a place without a listener."""
        return preferred or "http://127.0.0.1:4711/callback"

    async def visit(self, url: str, state: str) -> str:
        """Return where the page leads."""
        self.visits.append(url)
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(url, follow_redirects=False)
        return str(response.headers["location"])

    async def close(self) -> None:
        """Do nothing."""


def shop(issuer: Issuer, resource: str) -> Server:
    """A server whose tools need a login, and one of them a scope."""
    auth = JWTAuth(issuer=issuer.url, resource=resource, scopes=["shop"])
    app = Server("shop", auth=auth)

    @app.tool
    def who() -> Flow[str]:
        """Return the caller."""
        caller = yield from Caller()
        return f"{caller.principal}"

    @app.tool(scopes={"orders"})
    def order() -> str:
        """Order."""
        return "ordered"

    return app


@asynccontextmanager
async def authority() -> AsyncIterator[Issuer]:
    """An authorization server on a port of this machine."""
    issuer = Issuer()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            connection = h11.Connection(h11.SERVER)
            body, target = b"", ""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    try:
                        connection.receive_data(await stream.receive())
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                elif isinstance(event, h11.Request):
                    target = event.target.decode()
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            await issuer.answer(Asked({}, {}, stream), target, body)

    listener: Any = await anyio.create_tcp_listener(
        local_host="127.0.0.1", local_port=0
    )
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    issuer.url = f"http://127.0.0.1:{port}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield issuer
        group.cancel_scope.cancel()


@asynccontextmanager
async def shop_and_issuer() -> AsyncIterator[tuple[str, Issuer]]:
    """A server and its authorization server; yields the server's URL."""
    async with authority() as issuer, trio.open_nursery() as nursery:
        listeners = await http.open_listeners("127.0.0.1", 0)
        listener: Any = listeners[0]
        port = listener.socket.getsockname()[1]
        issuer.resource = f"http://127.0.0.1:{port}/mcp"
        app = shop(issuer, issuer.resource)
        await nursery.start(lambda **more: http.serve(app, listeners=listeners, **more))
        yield issuer.resource, issuer
        nursery.cancel_scope.cancel()
