"""Attacks: forged tokens, floods of them, and states, sessions and tasks of others."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from effectmcp import Detach, Elicit, Flow
from effectmcp.auth import CredentialsError, IntrospectionAuth, JWTAuth
from effectmcp.fetching import sending
from effectmcp.fetching.requests import Fetch, Fetched, FetchError
from effectmcp.server import Server
from effectmcp.server.identity import Gate
from effectmcp.transports.http import Limits

from ..exchange.test_tasks import FOLLOWS, Rows
from ..legacy_client import NEWEST
from ..transports.era import headers_for, initialize
from ..transports.wire import Client, Doors, Got, serving
from ..wire import KEYS, request, said
from .issuer import (
    RESOURCE,
    URL,
    Clock,
    Issuer,
    claims_of,
    document,
    door,
    encoded,
    identify,
    key,
    presented,
    public,
    signed,
    token,
)

RSA = "RS256"


def refused(of: str, **options: Any) -> CredentialsError:
    with pytest.raises(CredentialsError) as caught:
        door(**options).admits(of)
    return caught.value


# ---- forged tokens ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", " none"])
@pytest.mark.parametrize("signature", ["", "AA", "x" * 86])
def test_token_without_an_algorithm_is_refused(name: str, signature: str) -> None:
    header = encoded({"alg": name, "typ": "at+jwt", "kid": "first"})
    forged = f"{header}.{encoded(claims_of())}.{signature}"
    assert refused(forged).reason.startswith("algorithm")


def secrets(of: Any) -> dict[str, bytes]:
    """The bytes of a public key that a confused server might take for a secret."""
    raw = of.public_key
    pem = raw.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return {
        "PEM": pem,
        "PEM without its end": pem.strip(),
        "DER": raw.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "JWK": json.dumps(public(of)).encode(),
        "modulus": base64.urlsafe_b64decode(public(of)["n"] + "=="),
        "nothing": b"",
    }


@pytest.mark.parametrize("how", secrets(key(algorithm=RSA)))
@pytest.mark.parametrize("name", ["HS256", "RS256"])
def test_token_signed_with_the_public_key_as_a_secret_is_refused(
    how: str, name: str
) -> None:
    """Key confusion: the key decides what it checks, and the header does not."""
    of = key(algorithm=RSA)
    text = f"{encoded({'alg': name, 'kid': 'first'})}.{encoded(claims_of())}"
    forged = hmac.digest(secrets(of)[how], text.encode(), hashlib.sha256)
    for listed in (public(of), public(of, alg="HS256"), public(of, alg="RS256")):
        issuer = Issuer(keys=[listed])
        refused(f"{text}.{encoded(forged)}", issuer=issuer)


EMBEDDED: dict[str, Any] = {
    "jwk": public(key("evil")),
    "jku": "https://evil.example/keys",
    "x5u": "https://evil.example/certificate",
    "x5c": ["MIIB"],
    "x5t": "AAAA",
}


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("id_", ["evil", "first", None])
def test_token_that_brings_its_own_key_is_refused(name: str, id_: str | None) -> None:
    issuer = Issuer()
    forged = token(by=key("evil"), header={name: EMBEDDED[name], "kid": id_})
    assert refused(forged, issuer=issuer).reason.startswith("key")
    assert all(one.url.startswith(URL) for one in issuer.fetches)


def test_token_of_another_issuer_with_the_same_key_id_is_refused() -> None:
    evil = Issuer("https://evil.example", keys=[public(key("evil"), kid="first")])
    door(evil).admits(token(iss=evil.url, by=key("evil"), header={"kid": "first"}))
    for claims in ({"iss": evil.url}, {}):
        refused(token(by=key("evil"), header={"kid": "first"}, **claims))


def test_tokens_of_two_issuers_are_checked_with_their_own_keys() -> None:
    """Equal subjects of two issuers are two users."""
    one = Issuer()
    two = Issuer("https://two.example", keys=[public(key("second"), kid="first")])
    clock = Clock()
    gate = Gate(
        [JWTAuth(issuer=i.url, resource=RESOURCE, clock=clock) for i in (one, two)]
    )

    def send(fetch: Fetch) -> Fetched:
        return (one if fetch.url.startswith(one.url) else two).send(fetch)

    def who(of: str) -> str:
        return identify(gate, presented(of), send).principal

    second = {"by": key("second"), "header": {"kid": "first"}}
    assert who(token()) == f"{URL} ann"
    assert who(token(iss=two.url, **second)) == "https://two.example ann"
    for forged in (
        token(iss=two.url),
        token(**second),
        token(iss="https://three.example"),
    ):
        with pytest.raises(CredentialsError):
            who(forged)


GOOD = token()
HEAD, CLAIMS, SIGNATURE = GOOD.split(".")
DEEP = '{"iss":' + "[" * 900 + "]" * 900 + "}"

MANGLED: dict[str, str] = {
    **{f"cut at {at}": GOOD[:at] for at in (1, len(HEAD), len(HEAD) + 1, -1, -86)},
    "doubled": GOOD + GOOD,
    "twice": f"{GOOD},{GOOD}",
    "two tokens": f"{GOOD} {GOOD}",
    "a part more": f"{GOOD}.{SIGNATURE}",
    "parts in another order": f"{CLAIMS}.{HEAD}.{SIGNATURE}",
    "only dots": ".." * 1_000,
    "huge": "x" * 100_000,
    "huge, of three parts": f"{HEAD}.{'A' * 8_000}.{SIGNATURE}",
    "padded": f"{HEAD}=.{CLAIMS}.{SIGNATURE}==",
    "with a line break": f"{HEAD}.{CLAIMS}.\n{SIGNATURE}",
    "with a space": f"{HEAD} .{CLAIMS}.{SIGNATURE}",
    "not ASCII": f"{HEAD}.{CLAIMS}.{SIGNATURE}é",
    "fullwidth letters": "ｅｙＪ.ｅｙＪ.ＡＡ",
    "null characters": f"{GOOD}\0",
    "claims are a list": signed({"alg": "ES256"}, "[]", key()),
    "header is a list": signed("[]", claims_of(), key()),
    "header is not UTF-8": signed(b'{"alg":"\xff"}', claims_of(), key()),
    "claims in UTF-16": signed({"alg": "ES256"}, '"a"'.encode("utf-16"), key()),
    "nested claims": signed({"alg": "ES256", "kid": "first"}, DEEP, key()),
    "nested audience": signed(
        {"alg": "ES256"},
        DEEP.replace("iss", "aud").replace("{", f'{{"iss":"{URL}",'),
        key(),
    ),
    "nested header": signed(DEEP.replace("iss", "kid"), claims_of(), key()),
    "nested type": signed(
        DEEP.replace('"iss"', '"alg":"ES256","typ"'), claims_of(), key()
    ),
    "a number too long": signed({"alg": "ES256"}, f'{{"exp":{"9" * 5_000}}}', key()),
    "a token in a token": signed({"alg": "ES256", "cty": "JWT"}, GOOD, key()),
    "five parts": f"{HEAD}..{CLAIMS}.{SIGNATURE}.AA",
}


@pytest.mark.parametrize("how", MANGLED)
def test_token_that_is_mangled_is_refused(how: str) -> None:
    assert refused(MANGLED[how]).status == 401


def test_token_nested_to_any_depth_is_refused() -> None:
    """Wherever recursion ends: what one reader can read, the next one may not."""
    one = door()
    one.admits(GOOD)
    for depth in range(900, 1_000):
        deep = "[" * depth + "]" * depth
        header = f'{{"alg":"ES256","kid":"first","extra":{deep}}}'
        forged = signed(header, claims_of(), key("evil"))
        with pytest.raises(CredentialsError):
            one.admits(forged)


def test_token_with_a_claim_twice_is_read_once() -> None:
    """The checks and the identity read the same claims (RFC 7519, section 4)."""
    twice = json.dumps(claims_of())[:-1] + ', "sub": "bob"}'
    header = {"alg": "ES256", "kid": "first"}
    assert door().admits(signed(header, twice, key())).subject == "bob"
    audience = json.dumps(claims_of())[:-1] + ', "aud": "https://other.example"}'
    assert refused(signed(header, audience, key())).reason.startswith("audience")


# ---- where the keys are -------------------------------------------------------------

INSIDE = [
    *("http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/keys"),
    *("https://[::ffff:169.254.169.254]/keys", "https://10.0.0.1/keys"),
    *("https://127.0.0.1/keys", "http://localhost:8080/keys", "https://[::1]/keys"),
    *("https://inside.example/keys", "http://idp.example/keys", "https://0x7f.1/keys"),
    *("file:///etc/passwd", "https://u@169.254.169.254/", "https://2130706433/"),
]


@pytest.mark.parametrize("url", INSIDE)
def test_metadata_of_a_public_issuer_reaches_nothing_inside(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The issuer is hostile, or was taken over: its metadata names the keys."""

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        address = {"idp.example": "93.184.216.34", "inside.example": "10.0.0.1"}
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address.get(host, str(host)), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    issuer, errors = Issuer(metadata={"jwks_uri": url}), list[str]()

    def send(fetch: Fetch) -> Fetched:
        if fetch.url != url:
            return issuer.send(fetch)
        with pytest.raises(FetchError) as caught:
            sending.send_in_thread(fetch)
        errors.append(caught.value.problem)
        raise caught.value

    one = door(issuer)
    with pytest.raises(CredentialsError) as caught:
        identify(one.auth, presented(token()), send)
    assert caught.value.status == 503
    (problem,) = errors
    assert "cannot be reached" not in problem  # nothing was connected to


# ---- floods -------------------------------------------------------------------------


def bad_tokens(count: int) -> Iterator[str]:
    """Tokens of several kinds, each of them another one."""
    header = {"alg": "ES256", "typ": "at+jwt"}
    wrong = SIGNATURE[:-4] + "AAAA"
    for number in range(count):
        claims = encoded(claims_of(jti=str(number)))
        match number % 8:
            case 0:
                yield f"{encoded({**header, 'kid': f'unknown {number}'})}.{claims}.AA"
            case 1:
                yield f"{encoded({**header, 'kid': 'first'})}.{claims}.{wrong}"
            case 2:
                yield f"garbage-{number}"
            case 3:
                yield f"{encoded({'alg': 'none', 'kid': 'first'})}.{claims}."
            case 4:
                other = encoded(claims_of(iss="https://evil.example", jti=str(number)))
                yield f"{encoded(header)}.{other}.{wrong}"
            case 5:
                yield f"{encoded(header)}.{encoded(claims_of(exp=number))}.{wrong}"
            case 6:
                yield f"{encoded({**header, 'kid': number})}.{claims}.{wrong}"
            case _:
                yield f"{encoded(header)}.{claims}.{wrong}"


def test_flood_of_bad_tokens_causes_one_fetch_in_a_pause() -> None:
    one, count = door(keys_pause=30), 10_000
    for number, bad in enumerate(bad_tokens(count)):
        one.clock.now += 90 / count  # three pauses
        with pytest.raises(CredentialsError):
            one.admits(bad)
        if number == count // 2:
            one.admits(token())
    assert one.issuer.count() == 3
    assert len(one.auth.known._tokens) == 1


def test_flood_for_an_issuer_that_is_down_causes_a_fetch_in_five_seconds() -> None:
    """All clients wait for the keys, so the fetch is tried more often than for a bad token."""
    one, count = door(keys_pause=30), 1_000
    one.issuer.is_down = True
    for bad in bad_tokens(count):
        one.clock.now += 90 / count
        with pytest.raises(CredentialsError):
            one.admits(bad)
    assert len(one.issuer.fetches) == 90 / 5


# ---- a server -----------------------------------------------------------------------


@contextmanager
def reaching(monkeypatch: pytest.MonkeyPatch, send: Any) -> Iterator[None]:
    """Let the requests of servers reach an issuer in memory."""
    monkeypatch.setattr(sending, "send", send)
    yield


async def post(
    doors: Doors, of: str | None, message: Mapping[str, Any], **headers: str
) -> Got:
    if of is not None:
        headers["authorization"] = f"Bearer {of}"
    async with doors.connect() as client:
        return await client.ask(message, **headers)


def shop(issuer: Issuer, **options: Any) -> Server:
    """A server with a question, and a task."""
    auth = JWTAuth(issuer=issuer.url, resource=RESOURCE, clock=Clock())
    app = Server("shop", keys=KEYS, auth=auth, **options)

    @app.tool
    def order(title: str) -> Flow[str]:
        """Ask who it is for."""
        return f"{title} for {(yield from Elicit('Who is it for?', str))}"

    @app.tool
    def work() -> Flow[str]:
        """Work as a task."""
        yield from Detach()
        return "done"

    return app


CROWD = 2_000


async def flood(
    app: Server, tokens: list[str], most: int = CROWD
) -> list[tuple[int, bytes, str]]:
    """The responses to requests that are all sent at once."""
    got: list[tuple[int, bytes, str]] = []

    async def one(doors: Doors, of: str) -> None:
        found = await post(doors, of, request("tools/list"))
        wanted = found.headers.get("www-authenticate", "")
        got.append((found.status, found.body, wanted))

    async with serving(app, Limits(connections=most + 10)) as doors:
        async with trio.open_nursery() as nursery:
            for of in tokens:
                nursery.start_soon(one, doors, of)
    return got


async def test_server_under_a_flood_fetches_the_keys_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All refusals are equal: reasons are only in the log."""
    issuer = Issuer()
    caplog.set_level(logging.WARNING, "effectmcp")

    async def send(fetch: Fetch) -> Fetched:
        # Each of the other requests waits for this one.
        await trio.testing.wait_all_tasks_blocked()
        return issuer.send(fetch)

    tokens = [*bad_tokens(CROWD - 1), token()]
    with reaching(monkeypatch, send):
        got = await flood(shop(issuer), tokens)
    assert [one.url for one in issuer.fetches] == [
        f"{URL}/.well-known/oauth-authorization-server",
        f"{URL}/keys",
    ]
    assert sorted(status for status, _, _ in got) == [200] + [401] * (CROWD - 1)
    assert len({one for one in got if one[0] == 401}) == 1
    assert not caplog.records  # nothing that an operator has to look at


async def test_server_under_a_flood_asks_about_few_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetches: list[Fetch] = []

    async def send(fetch: Fetch) -> Fetched:
        await trio.testing.wait_all_tasks_blocked()
        fetches.append(fetch)
        return document({"active": False})

    auth = IntrospectionAuth(
        issuer=URL,
        resource=RESOURCE,
        endpoint=f"{URL}/introspect",
        client_id="shop",
        client_secret="secret",
        clock=Clock(),
    )
    with reaching(monkeypatch, send):
        got = await flood(Server("shop", keys=KEYS, auth=auth), list(bad_tokens(300)))
    assert len(fetches) <= 64
    assert {status for status, _, _ in got} == {401, 503}


@pytest.mark.parametrize("how", MANGLED)
async def test_server_tells_nothing_of_a_mangled_token(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each bad token has the same response, or the head is refused; no error is logged."""
    issuer = Issuer()

    async def send(fetch: Fetch) -> Fetched:
        return issuer.send(fetch)

    with reaching(monkeypatch, send):
        async with serving(shop(issuer)) as doors:
            expected = await post(doors, "bad", request("tools/list"))
            got = await post(doors, MANGLED[how], request("tools/list"))
    if got.status != 401:
        assert got.status in (400, 431), how
    else:
        assert shown(got) == shown(expected)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


# ---- other users --------------------------------------------------------------------


@contextmanager
def two_users(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, str, str]]:
    issuer = Issuer()

    async def send(fetch: Fetch) -> Fetched:
        return issuer.send(fetch)

    with reaching(monkeypatch, send):
        yield shop(issuer, tasks=Rows()), token(), token(sub="bob")


def shown(got: Got) -> tuple[int, dict[str, str], bytes]:
    """The parts of a response that do not depend on the time."""
    headers = {name: text for name, text in got.headers.items() if name != "date"}
    return got.status, headers, got.body


async def test_state_of_another_user_is_like_a_forged_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with two_users(monkeypatch) as (app, ann, bob):
        async with serving(app) as doors:
            arguments = {"name": "order", "arguments": {"title": "Emma"}}
            asked = (await post(doors, ann, request("tools/call", arguments))).json[
                "result"
            ]
            state = asked["requestState"]
            answers = said(asked, {"value": "Cid"})

            def again(given: str) -> Any:
                more = {"requestState": given, "inputResponses": answers}
                return request("tools/call", {**arguments, **more})

            forged = state[:-6] + ("A" if state[-6] != "A" else "B") + state[-5:]
            for bad in (forged, forged[::-1]):
                stolen = await post(doors, bob, again(state))
                assert shown(stolen) == shown(await post(doors, bob, again(bad)))
                assert "Emma for Cid" not in stolen.body.decode()
            own = await post(doors, ann, again(state))
            assert "Emma for Cid" in own.body.decode()


async def test_session_of_another_user_is_like_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def old(of: str, session: str | None, body: Any, method: str = "POST") -> bytes:
        data = json.dumps(body).encode()
        headers = {
            **headers_for(session, NEWEST if session else None),
            "authorization": f"Bearer {of}",
            "content-length": str(len(data)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + data

    async def ask(client: Client, data: bytes) -> Got:
        await client.send(data)
        return await client.answer()

    with two_users(monkeypatch) as (app, ann, bob):
        async with serving(app) as doors:
            async with doors.connect() as client:
                opened = await ask(client, old(ann, None, initialize()))
            session = opened.headers["mcp-session-id"]
            other = session[::-1]
            assert other != session
            listing = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
            for method in ("POST", "GET", "DELETE"):
                got = []
                for named in (session, other):
                    async with doors.connect() as client:
                        got.append(await ask(client, old(bob, named, listing, method)))
                assert got[0].status == 404
                assert shown(got[0]) == shown(got[1]), method
            async with doors.connect() as client:
                assert (await ask(client, old(ann, session, listing))).status == 200


@pytest.mark.parametrize("method", ["get", "update", "cancel"])
async def test_task_of_another_user_is_like_none(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_users(monkeypatch) as (app, ann, bob):
        async with serving(app) as doors:
            started = request("tools/call", {"name": "work"}, capabilities=FOLLOWS)
            id_ = (await post(doors, ann, started)).json["result"]["taskId"]
            other = id_[::-1]
            assert other != id_

            def about(named: str) -> Any:
                params: dict[str, Any] = {"taskId": named}
                if method == "update":
                    params["inputResponses"] = {}
                return request(f"tasks/{method}", params, capabilities=FOLLOWS)

            stolen = await post(doors, bob, about(id_), mcp_name=id_)
            none = await post(doors, bob, about(other), mcp_name=other)
            assert stolen.json["error"]
            assert shown(stolen) == shown(none)
            own = await post(doors, ann, about(id_), mcp_name=id_)
            assert "result" in own.json
