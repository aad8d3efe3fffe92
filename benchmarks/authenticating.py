"""Measure the cost of knowing who calls: CPU time of one call of a tool over HTTP.

The servers are on trio, and have one tool that returns at once. One has no
authentication; the others know their callers in one way each. A client in another process asks them in turns of
random order, and each difference is to the server without authentication in the same turn.
Tokens are signed with ES256, and the keys are known already.

    python -m benchmarks.authenticating
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from operator import sub
from typing import Any

import trio
from joserfc import jwk
from joserfc.jws import JWSRegistry

from effectmcp.auth import APIKeys, JWTAuth
from effectmcp.auth.api_keys import key_line, make_api_key
from effectmcp.fetching.requests import Fetched
from effectmcp.server import Server
from effectmcp.state import Keys, make_key
from effectmcp.transports import http

from . import http as rounds
from .http import KEY, META, Asker, in_turns

ISSUER = "https://idp.example"
RESOURCE = "https://shop.example/mcp"

SIGNER = jwk.ECKey.generate_key("P-256", {"kid": "signer"})
OWNER = jwk.ECKey.generate_key("P-256")
API_KEY = make_api_key()


# ---- tokens -------------------------------------------------------------------------


def part(value: bytes | dict[str, Any]) -> str:
    data = json.dumps(value).encode() if isinstance(value, dict) else value
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(header: dict[str, Any], claims: dict[str, Any], by: Any) -> str:
    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{part(JWSRegistry.algorithms['ES256'].sign(text.encode(), by))}"


def token(number: int = 0, **claims: Any) -> str:
    known = {
        **{"iss": ISSUER, "aud": RESOURCE, "sub": "ann", "client_id": "benchmark"},
        **{"iat": int(time.time()), "exp": int(time.time()) + 86_400},
        **{"jti": str(number), "scope": "orders:read orders:write"},
    }
    header = {"alg": "ES256", "typ": "at+jwt", "kid": "signer"}
    return signed(header, {**known, **claims}, SIGNER)


BOUND = token(cnf={"jkt": OWNER.thumbprint()})


def proof(number: int) -> str:
    digest = hashlib.sha256(BOUND.encode()).digest()
    claims = {
        **{"htm": "POST", "htu": RESOURCE, "ath": part(digest)},
        **{"iat": int(time.time()), "jti": str(number)},
    }
    key = OWNER.as_dict(private=False)
    return signed({"typ": "dpop+jwt", "alg": "ES256", "jwk": key}, claims, OWNER)


# ---- servers ------------------------------------------------------------------------


def known_keys(fetching: Any) -> None:
    """Answer the requests for the issuer's keys."""
    keys = {"keys": [SIGNER.as_dict(private=False)]}
    metadata = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
    request = next(fetching)
    for _ in range(2):
        content = keys if request.url.endswith("/keys") else metadata
        try:
            body = json.dumps(content).encode()
            request = fetching.send(Fetched(status=200, body=body))
        except StopIteration:
            return


def by_token() -> JWTAuth:
    auth = JWTAuth(
        issuer=ISSUER, resource=RESOURCE, keys_fresh=86_400, shown_claims=["client_id"]
    )
    finding = auth._keys.find("signer", "ES256")
    assert isinstance(finding, Generator)
    known_keys(finding)
    return auth


def by_key() -> APIKeys:
    return APIKeys([key_line("ann", API_KEY, ["orders:read"])])


async def serve(listener: trio.SocketListener, *, auth: Callable[[], Any]) -> None:
    app = Server("shop", auth=auth(), keys=Keys(make_key(KEY)))

    @app.tool
    def greet(name: str) -> str:
        """Greet a user."""
        return f"Hello, {name}!"

    await http.serve(app, listeners=[listener])


# ---- requests -----------------------------------------------------------------------


def post(*headers: str) -> bytes:
    params = {"name": "greet", "arguments": {"name": "Ann"}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "Host: localhost:8000",
        "User-Agent: benchmark/1.0",
        "Accept: application/json, text/event-stream",
        "Accept-Encoding: gzip",
        "Content-Type: application/json",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: greet",
        *headers,
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


NONE, KNOWN = "no authentication", "a JWT that is known"

#: By what they know their callers by: the authenticator, and the headers of request N.
WAYS: dict[str, tuple[Callable[[], Any], Callable[[int], list[str]]]] = {
    NONE: (lambda: None, lambda n: []),
    "none, but with the header": (
        lambda: None,
        lambda n: [f"Authorization: Bearer {token()}"],
    ),
    KNOWN: (by_token, lambda n: [f"Authorization: Bearer {token()}"]),
    "an API key": (by_key, lambda n: [f"Authorization: Bearer {API_KEY}"]),
    "a JWT that is new": (by_token, lambda n: [f"Authorization: Bearer {token(n)}"]),
    "a known JWT with DPoP": (
        by_token,
        lambda n: [f"Authorization: DPoP {BOUND}", f"DPoP: {proof(n)}"],
    ),
}

#: The ways in which each request is another one.
NEW = ("a JWT that is new", "a known JWT with DPoP")


class Fresh(Asker):
    """Asks with another request each time."""

    def __init__(self, serve: Callable[[Any], Any], make: Callable[[int], bytes]):
        super().__init__(serve)
        self._numbers = itertools.count()
        self._make = make

    def microseconds(self, data: bytes) -> float:
        """Return the CPU time per request, over one turn."""
        requests = [self._make(next(self._numbers)) for _ in range(rounds.REQUESTS)]
        before = self.cpu()
        for request in requests:
            self.ask(request)
        return (self.cpu() - before) / rounds.REQUESTS * 1e6


def askers() -> Iterator[tuple[str, Asker, bytes]]:
    for name, (auth, headers) in WAYS.items():
        serving = partial(serve, auth=auth)
        request = post(*headers(0))
        if name in NEW:
            make = partial(lambda of, n: post(*of(n)), headers)
            yield name, Fresh(serving, make), request
        else:
            yield name, Asker(serving), request


def main() -> None:
    if "--tiny" in sys.argv:
        rounds.REQUESTS, rounds.TURNS = 2, 2
    servers, requests = {}, {}
    for name, server, request in askers():
        servers[name], requests[name] = server, request
    times = in_turns(servers, requests)
    more = {
        name: statistics.median(map(sub, found, times[NONE]))
        for name, found in times.items()
    }
    print(f"{'':28} {'best µs':>8} {'median':>7} {'more':>6}")
    for name, found in times.items():
        print(
            f"{name:28} {min(found):8.1f} {statistics.median(found):7.1f}"
            f" {more[name]:6.1f}"
        )
    rounded = {name: round(one, 1) for name, one in more.items()}
    print(json.dumps({"benchmark": "authenticating", "more_us": rounded}))


if __name__ == "__main__":
    main()
