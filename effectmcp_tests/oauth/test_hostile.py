"""Servers and authorization servers that attack the client or the user."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import anyio.lowlevel
import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import EffectMCPError
from effectmcp.cli.printable import printable
from effectmcp.client import LoginFailed, OverHttp
from effectmcp.fetching import sending
from effectmcp.fetching.requests import Fetch, Fetched, FetchError
from effectmcp.oauth import OAuth, OAuthError
from effectmcp.oauth.grants import Visit

from ..client.misbehaving_servers import Asked, http_server
from ..client.ways import on_both
from .world import (
    ISSUER,
    OTHER,
    RESOURCE_PLACE,
    RETURN,
    URL,
    Authority,
    World,
    given_client,
    json_response,
    login_at,
)

PLACE = f"https://shop.example{RESOURCE_PLACE}/mcp"


@define(eq=False)
class Guarded(World):
    """A world in which addresses are checked as the sender of requests does.

    Attributes:
        addresses: By host: its address; public by default.
    """

    addresses: Mapping[str, str] = {}

    def answer(self, request: Fetch) -> Fetched:
        """Check the addresses, and answer."""
        sending._check_urls(request)
        hosts = (urlsplit(request.near).hostname, urlsplit(request.url).hostname)
        near, own = (
            [self.addresses.get(one or "", _literal(one or ""))] for one in hosts
        )
        sending._check(request, near, own)
        return super().answer(request)


def _literal(host: str) -> str:
    is_address = ":" in host or host.replace(".", "").isdigit()
    return host if is_address else "93.184.216.34"


def refused(world: World, problem: str | None = None, **options: Any) -> str:
    """Check that a login fails, and return why."""
    login = login_at(world, **options)
    with pytest.raises((OAuthError, FetchError), match=problem) as caught:
        world.use(login)
    assert login.kept.tokens is None
    assert printable(str(caught.value)) == str(caught.value)
    return str(caught.value)


# ---- mix-up -------------------------------------------------------------------------


def test_a_code_of_an_honest_server_is_not_sent_to_an_attacker() -> None:
    """RFC 9207, section 1: the attacker sends the user on to the honest server."""
    attacker = Authority(issuer="https://attacker.example")
    honest = Authority(says_iss=ISSUER)
    world = World(authorities=[attacker, honest], trusted=[attacker.issuer])

    def forward(visit: Visit) -> str:
        return honest.authorize(visit.url.replace(attacker.issuer, ISSUER))

    world.visitor = forward
    refused(world, "the answer is not from https://attacker.example")
    (code,) = honest.codes
    assert world.places_of(code) == set()


def test_metadata_with_the_endpoints_of_an_honest_server() -> None:
    """The attacker has the honest login page, and a token endpoint of its own.

    The code comes with the honest server's `iss`, so it is not sent there.
    """
    attacker = Authority(
        issuer="https://attacker.example",
        changes={"authorization_endpoint": f"{ISSUER}/authorize"},
    )
    honest = Authority(says_iss=ISSUER)
    world = World(authorities=[attacker, honest], trusted=[attacker.issuer])
    world.visitor = lambda visit: honest.authorize(visit.url)
    refused(world, "the answer is not from https://attacker.example")
    (code,) = honest.codes
    assert world.places_of(code) == set()


def test_an_honest_server_without_iss_still_needs_the_verifier() -> None:
    """The code reaches the attacker, and the verifier with it.

    Only `iss` protects against this (2026-07-28, Mix-Up Attacks). The attacker
    issued the client id, and the resource is the attacker's server.
    """
    attacker = Authority(
        issuer="https://attacker.example",
        changes={"authorization_endpoint": f"{ISSUER}/authorize"},
    )
    honest = Authority()
    world = World(
        url="https://attacker.example/mcp",
        authorities=[attacker, honest],
        trusted=[attacker.issuer],
    )
    world.visitor = lambda visit: honest.authorize(visit.url)
    with pytest.raises(OAuthError):
        world.use(login_at(world))
    (asked,) = honest.codes.values()
    assert asked["client_id"] == "client-1-of-attacker.example"
    assert asked["resource"] == "https://attacker.example/mcp"


def test_a_server_that_claims_to_be_another_one_gets_no_token_for_it() -> None:
    """The attacker names the honest server's resource and authorization server."""
    world = World(
        url="https://attacker.example/mcp",
        places=("https://attacker.example/meta",),
        document={"resource": URL},
        challenge={"resource_metadata": "https://attacker.example/meta"},
    )
    refused(world, "no token is sent")
    assert not world.visits


def test_the_metadata_of_an_honest_server_named_by_an_attacker() -> None:
    """The metadata is of the honest server, and not of the server that was called."""
    world = World(
        url="https://attacker.example/mcp",
        answers={PLACE: json_response({"resource": URL})},
        challenge={"resource_metadata": PLACE},
    )
    refused(world, "no token is sent")


@pytest.mark.parametrize("name", ["authorization_response", "a-code"])
def test_an_open_redirect_of_the_login_page_leads_to_no_login(name: str) -> None:
    world = World()
    world.visitor = lambda visit: (
        f"https://evil.example/?{urlencode({'code': name, 'state': visit.state})}"
    )
    refused(world, "another page")
    assert not world.forms()


# ---- addresses ----------------------------------------------------------------------

INSIDE = [
    "http://169.254.169.254/latest/meta-data",
    "https://169.254.169.254/",
    "https://[fd00:ec2::254]/",
    "https://100.100.100.200/",
    "http://127.0.0.1:8080/",
    "https://127.0.0.1/",
    "https://localhost/",
    "https://a.localhost/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://10.0.0.1/",
    "https://192.168.1.1/",
    "https://172.16.0.1/",
    "https://100.64.0.1/",
    "https://[fc00::1]/",
    "https://0.0.0.0/",
    "https://2130706433/",
    "https://0x7f000001/",
    "http://metadata.internal/",
    "https://inside.example/",
    "http://shop.example/",
    "file:///etc/passwd",
    "ftp://shop.example/",
    "gopher://127.0.0.1:70/",
    "unix:///var/run/docker.sock",
    "https://ann:pw@shop.example/",
]
ADDRESSES = {
    "inside.example": "10.1.2.3",
    "metadata.internal": "169.254.169.254",
    "2130706433": "127.0.0.1",
    "0x7f000001": "127.0.0.1",
}


@pytest.mark.parametrize("url", INSIDE)
def test_metadata_of_the_server_inside_a_network_is_not_asked_for(url: str) -> None:
    world = Guarded(addresses=ADDRESSES, challenge={"resource_metadata": url})
    refused(world)
    assert world.fetched == []


@pytest.mark.parametrize("url", INSIDE)
def test_an_issuer_inside_a_network_is_not_asked(url: str) -> None:
    world = Guarded(addresses=ADDRESSES, trusted=[url])
    refused(world)
    assert world.urls == [PLACE]


@pytest.mark.parametrize("url", INSIDE)
@pytest.mark.parametrize("endpoint", ["registration_endpoint", "token_endpoint"])
def test_an_endpoint_inside_a_network_is_not_asked(url: str, endpoint: str) -> None:
    """A POST with a body that the attacker has partly chosen."""
    authority = Authority(changes={endpoint: url})
    refused(Guarded(addresses=ADDRESSES, authorities=[authority]))
    world = Guarded(addresses=ADDRESSES, authorities=[authority])
    refused(world)
    assert url not in world.urls


def test_a_server_inside_a_network_may_name_its_neighbours() -> None:
    addresses = {"shop.example": "10.0.0.1", "login.example": "10.0.0.2"}
    assert Guarded(addresses=addresses).use(login_at(Guarded())) == 200
    world = Guarded(addresses={"login.example": "10.0.0.2"})
    refused(world, "closer to this machine")


@pytest.mark.parametrize(
    "page",
    [
        "javascript:alert(document.cookie)",
        "file:///etc/passwd",
        "data:text/html,<script>alert(1)</script>",
        "http://login.example/authorize",
        "https://login.example@evil.example/authorize",
        "https://ann:pw@login.example/authorize",
        "vscode://run?x",
        "--new-window",
        "https://login.example/\n--flag",
        "\\\\server\\share",
        "",
        None,
    ],
)
def test_a_page_that_no_browser_should_open(page: Any) -> None:
    """A URL reaches a program of the user's system."""
    world = World(authorities=[Authority(changes={"authorization_endpoint": page})])
    refused(world, "authorization_endpoint")
    assert not world.visits


# ---- responses ----------------------------------------------------------------------

JUNK = [
    Fetched(status=200, body=b"[" * 200_000),
    Fetched(status=200, body=b'{"a":' * 40_000),
    Fetched(status=200, body=b"\xff" * 1000),
    Fetched(status=200, body=b"9" * 100_000),
    Fetched(status=200, body=b'{"resource": ' + b"9" * 100_000 + b"}"),
    Fetched(status=301, headers={"location": "http://169.254.169.254/"}),
    Fetched(status=307, headers={"location": "https://evil.example/"}),
    Fetched(status=204),
    Fetched(status=999),
]


@pytest.mark.parametrize("number", range(len(JUNK)))
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_junk_in_place_of_each_document(place: int, number: int) -> None:
    honest = World()
    honest.use(login_at(honest))
    world = World(answers={honest.urls[place]: JUNK[number]})
    refused(world)
    assert "https://evil.example/" not in world.urls
    for secret in ("code-1-of-", "text-00"):
        assert all(one.startswith(ISSUER) for one in world.places_of(secret))


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
MEMBERS = st.sampled_from(
    [
        "resource",
        "authorization_servers",
        "scopes_supported",
        "dpop_bound_access_tokens_required",
        "issuer",
        "authorization_endpoint",
        "token_endpoint",
        "registration_endpoint",
        "code_challenge_methods_supported",
        "token_endpoint_auth_methods_supported",
        "client_id_metadata_document_supported",
        "authorization_response_iss_parameter_supported",
        "dpop_signing_alg_values_supported",
        "client_id",
        "client_secret",
        "token_endpoint_auth_method",
        "access_token",
        "token_type",
        "expires_in",
        "refresh_token",
        "scope",
    ]
)


@given(st.dictionaries(MEMBERS, VALUES, max_size=4))
def test_any_values_are_a_login_or_an_error(changes: dict[str, Any]) -> None:
    """No error of Python, no unprintable words, and no other page than of https."""
    world = World(document=dict(changes))
    authority = world.authorities[0]
    authority.changes = dict(changes)
    authority.token_changes = dict(changes)
    register = authority._register

    def answer(request: Fetch) -> Fetched:
        found = json.loads(register(request).body)
        return json_response({**found, **changes}, 201)

    world.answers = {f"{ISSUER}/register": answer}
    world.visitor = lambda visit: f"{RETURN}?code=c&state={visit.state}"
    good = {"access_token": "a", "token_type": "bearer", **changes}
    world.answers[f"{ISSUER}/token"] = json_response(good)
    login = login_at(world)
    error: EffectMCPError | None = None
    try:
        world.use(login)
    except EffectMCPError as exc:
        error = exc
    assert error is None or str(error).isprintable()
    for visit in world.visits:
        assert visit.url.startswith("https://")
        assert parse_qs(urlsplit(visit.url).query)["code_challenge_method"] == ["S256"]
    for value in login.sign("POST").values():
        assert value.isascii()
        assert value.isprintable()


# ---- challenges ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "Bearer " + "x" * 5_000_000,
        "Bearer " + 'a="b",' * 500_000,
        "Bearer," * 500_000,
        'Bearer scope="' + "a " * 500_000 + '"',
        'Bearer realm="' + "\\" * 500_000,
        'Bearer scope="\x1b[2J\x00", error="\x9b"',
        'Bearer resource_metadata="\x1b]0;x\x07"',
        "\x00\x01",
        "Bearer resource_metadata=",
        '=,="',
    ],
)
def test_challenges_are_read_within_limits(header: str) -> None:
    login = login_at(World())
    found = login.read(401, {"www-authenticate": header})
    if found is not None and found.scopes is not None:
        assert sum(map(len, found.scopes)) <= 8192
        assert all(one.isprintable() for one in found.scopes)
    assert login.read(403, {"www-authenticate": header}) is None


@given(st.text(), st.sampled_from([401, 403]))
def test_any_challenge_can_be_read(header: str, status: int) -> None:
    login = login_at(World())
    login.read(status, {"www-authenticate": header, "dpop-nonce": header})


@pytest.mark.parametrize("statuses", [(401,), (403,), (401, 403), (403, 401)])
def test_a_server_that_always_refuses(statuses: tuple[int, ...]) -> None:
    """(2026-07-28, Step-Up Authorization Flow: no more than a few times.)"""

    class Refusing(World):
        """A server that wants another scope each time."""

        def call(self, headers: Mapping[str, str]) -> tuple[int, dict[str, str]]:
            """Refuse."""
            self.called.append(dict(headers))
            count = len(self.called)
            header = f'Bearer error="insufficient_scope", scope="s{count}"'
            return statuses[count % len(statuses)], {"www-authenticate": header}

    world = Refusing()
    assert world.use(login_at(world)) in (401, 403)
    assert len(world.visits) <= 3


def test_a_secret_is_never_in_an_error() -> None:
    world = World(answers={f"{ISSUER}/token": json_response({"error": "x"}, 400)})
    client = given_client(client_secret="quiet")
    said = refused(world, "gave no token: x", registration=client)
    assert "quiet" not in said
    assert "code-1-of" not in said
    assert "text-0" not in said


def test_what_an_error_echoes_is_short_and_printable() -> None:
    """An error description could be megabytes of escape sequences."""
    words = {"error": "\x1b[2J" * 9999, "error_description": "\u202e" * 10**6}
    world = World(answers={f"{ISSUER}/token": json_response(words, 400)})
    assert len(refused(world, "gave no token")) < 1000


# ---- over real connections ----------------------------------------------------------


class Robot:
    """A user who is never asked."""

    async def redirect_uri(self, preferred: str | None) -> str:
        """Return any place."""
        return RETURN

    async def visit(self, url: str, state: str) -> str:
        """Fail."""
        raise AssertionError(url)

    async def close(self) -> None:
        """Do nothing."""


def at_well_known(
    serve: Callable[[Asked], Awaitable[None]],
) -> Callable[[Asked], Awaitable[None]]:
    """A server that refuses each POST, and serves its metadata in its own way."""

    async def answer(asked: Asked) -> None:
        if asked.http_method == "POST":
            header = "WWW-Authenticate: Bearer"
            await asked.write(b"{}", "application/json", 401, header)
        else:
            await serve(asked)

    return answer


async def try_to_log_in(url: str, **options: Any) -> str:
    """Try to log in at a server; return the problem."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    async def hear(told: Any) -> None:
        raise AssertionError(told)

    async with OverHttp(url, auth=OAuth(visitor=Robot(), **options)) as channel:
        with pytest.raises(LoginFailed) as caught:
            await channel.exchange(message, {"Mcp-Method": "tools/list"}, hear)
    return str(caught.value)


@on_both
async def test_a_document_without_end_is_not_read_to_its_end() -> None:
    sent = 0

    async def serve(asked: Asked) -> None:
        nonlocal sent
        await asked.write(b"{")
        while True:
            await asked.stream.send(b" " * 65_536)
            sent += 65_536

    async with http_server(at_well_known(serve)) as url:
        problem = await try_to_log_in(url)
    assert "more than 262,144 bytes" in problem
    # What the buffers of the system hold was sent, too.
    assert sent < 64 * 1024 * 1024


@on_both
async def test_a_compressed_document_does_not_fill_the_memory() -> None:
    import zlib

    packed = zlib.compressobj(wbits=31)
    data = packed.compress(b" " * 50_000_000) + packed.flush()

    async def serve(asked: Asked) -> None:
        await asked.write(data, "application/json", 200, "Content-Encoding: gzip")

    async with http_server(at_well_known(serve)) as url:
        assert "compressed" in await try_to_log_in(url)


@on_both
async def test_a_redirect_is_not_followed() -> None:
    asked_for: list[str] = []

    async def serve(asked: Asked) -> None:
        asked_for.append(asked.http_method)
        where = "Location: http://169.254.169.254/"
        await asked.write(b"", "text/html", 302, where)

    async with http_server(at_well_known(serve)) as url:
        assert "names no authorization server" in await try_to_log_in(url)
    # Two places of the server's metadata, and two of an authorization server's.
    assert len(asked_for) == 4


@on_both
async def test_an_authorization_server_at_a_cloud_s_metadata_service() -> None:
    port = 0

    async def serve(asked: Asked) -> None:
        resource = f"http://127.0.0.1:{port}/mcp"
        found = {
            "resource": resource,
            "authorization_servers": ["https://169.254.169.254"],
        }
        await asked.write(json.dumps(found).encode())

    async with http_server(at_well_known(serve)) as url:
        port = urlsplit(url).port or 0
        assert "closer to this machine" in await try_to_log_in(url)


@on_both
async def test_a_server_that_hangs_up() -> None:
    with anyio.fail_after(60):
        async with http_server(
            at_well_known(lambda asked: anyio.lowlevel.checkpoint())
        ) as url:
            assert "cannot be reached" in await try_to_log_in(url)


def test_the_other_authorization_server_is_never_asked() -> None:
    world = World(authorities=[Authority(), Authority(issuer=OTHER)], trusted=[ISSUER])
    world.use(login_at(world))
    assert not any(one.startswith(OTHER) for one in world.urls)
