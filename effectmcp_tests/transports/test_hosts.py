"""One contract for all hosts: equal requests get equal answers.

Each script is played on the server's own HTTP, as it is and with h11 for every request,
on ASGI under both loops, and on WSGI. Answers differ in what `Endpoint` says that a host
cannot do, and in nothing else.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import attrs
import pytest
import trio

from effectmcp.auth.tokens import TokenAuth, Verified
from effectmcp.drivers.local import running
from effectmcp.fetching.requests import Fetch, Fetched
from effectmcp.server import Server
from effectmcp.server.identity import (
    ANONYMOUS,
    CredentialsError,
    Found,
    Identity,
    Presented,
)
from effectmcp.tasks import SqliteTasks
from effectmcp.transports import connection, conversation, http1, reading
from effectmcp.transports.asgi import application as asgi_application
from effectmcp.transports.web import Site, sse
from effectmcp.transports.wsgi import application as wsgi_application

from ..legacy_client import VERSIONS
from .era import events_of, headers_for, initialize, message, tool
from .shop import JSON, Later, answer, call, headers_of, request, shop
from .test_asgi import LOOPS, Loop, Wire
from .wire import Client, Doors, serving

PAGE = "https://app.example"
STRANGER = "https://evil.example"
MAX_BODY = 2_000

#: Any status, if all hosts return the same one.
ANY = 0


# ---- requests and responses ---------------------------------------------------------


@attrs.frozen
class Ask:
    """A request, and the status that it gets."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    method: str = "POST"
    path: str = "/mcp"
    #: Whether the length of the body is not declared.
    is_chunked: bool = False
    #: The client leaves once it has read so many parts of the body.
    parts: int | None = None


@attrs.frozen
class Answer:
    """A response as a client sees it, apart from the connection."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: Whether it is complete.
    is_whole: bool = True

    @property
    def json(self) -> JSON:
        return json.loads(self.body)

    def plain(self, *, has_streams: bool) -> Any:
        """Without what no two servers have in common."""
        headers = {**self.headers}
        if "mcp-session-id" in headers:
            headers["mcp-session-id"] = "an id"
        body: Any = self.body
        if headers.get("content-type") == "text/event-stream":
            body = events_of(self.body)
            if not has_streams:  # then there is no place to come back to
                body = [json.loads(one.data) for one in body if one.data]
        elif headers.get("content-type") == "application/json" and body:
            body = json.loads(body)
            if "requestState" in body.get("result", {}):
                body["result"]["requestState"] = "a state"
                headers["content-length"] = "some"
        return self.status, headers, body, self.is_whole


Script: TypeAlias = Generator[Ask, Answer, None]

#: Headers that depend on the connection or on the time.
_NOT_COMPARED = ("date", "connection", "transfer-encoding")


def answered(status: int, fields: Any, body: bytes, *, is_whole: bool = True) -> Answer:
    headers: dict[str, str] = {}
    for name, value in fields:
        assert name.lower() not in headers, f"{name} twice"
        headers[name.lower()] = value
    if headers.get("content-length") and status != 204 and body:
        assert headers["content-length"] == str(len(body))
    if "transfer-encoding" not in headers and headers.get("content-type") == (
        "application/json"
    ):
        assert "content-length" in headers
    for name in _NOT_COMPARED:
        headers.pop(name, None)
    return Answer(status, headers, body, is_whole)


# ---- the hosts ----------------------------------------------------------------------


def authenticate(headers: Mapping[str, str]) -> Found:
    match headers.get("authorization"):
        case None:
            return ANONYMOUS
        case "Bearer ann":
            return "ann"
        case "Bearer bug":
            raise RuntimeError("a bug")
        case _:
            raise PermissionError("sign in")


class Tokens(TokenAuth):
    """Tokens with a name and scopes, in place of a signature."""

    def __init__(self) -> None:
        super().__init__(
            issuer="https://idp.example",
            resource="https://shop.example/mcp",
            scopes=["base"],
        )

    def may_be(self, token: str) -> bool:
        return True

    def find(
        self, presented: Presented, token: str
    ) -> Generator[Fetch, Fetched, Verified]:
        yield from ()  # an answer of the issuer, which needs no request here
        name, *scopes = token.split("+")
        if name == "down":
            raise CredentialsError("its issuer cannot be asked", error=None, status=503)
        if name == "bad":
            raise CredentialsError("key: a secret reason")
        found = Identity(subject=name, issuer=self.issuer, scopes=frozenset(scopes))
        return Verified(found, until=math.inf)


async def authenticate_async(headers: Mapping[str, str]) -> Found:
    return authenticate(headers)


SITE = Site(
    hosts=["shop.example"],
    origins=[PAGE],
    max_body=MAX_BODY,
)


@attrs.frozen
class Host:
    """A kind of server, and the function that plays a script on it."""

    name: str
    play: Callable[[Script, object], list[Answer]]
    has_streams: bool = True
    needs_length: bool = False


async def _on_doors(doors: Doors, script: Script) -> list[Answer]:
    """Over one connection, as long as the server keeps it."""
    found: list[Answer] = []
    client: Client | None = None
    for ask in _asked_by(script, found):
        if client is None:
            client = doors.connect()
        await client.send(_bytes_of(ask))
        got = await client.head()
        body, is_whole = b"", True
        if ask.parts is not None and "transfer-encoding" in got.headers:
            body = b"".join([await client.chunk() for _ in range(ask.parts)])
            is_whole = False
        elif "transfer-encoding" in got.headers:
            while chunk := await _chunk_of(client):
                body += chunk
            is_whole = chunk is not None
        elif got.status != 204 and ask.method != "HEAD":
            body = await client.exactly(int(got.headers["content-length"]))
        found.append(answered(got.status, got.headers.items(), body, is_whole=is_whole))
        if got.headers.get("connection") == "close":
            assert await client.is_closed()
        if got.headers.get("connection") == "close" or not is_whole:
            await trio.aclose_forcefully(client.stream)
            client = None
    return found


async def _chunk_of(client: Client) -> bytes | None:
    """The next chunk, none at the end; `None` where it breaks off."""
    try:
        return await client.chunk()
    except AssertionError:
        assert await client.is_closed()
        return None


def _bytes_of(ask: Ask) -> bytes:
    fields, body = {**ask.headers}, ask.body
    if ask.is_chunked:
        fields["transfer-encoding"] = "chunked"
        half = len(body) // 2
        parts = [body[:half], body[half:]]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
        body += b"0\r\n\r\n"
    elif body or ask.method == "POST":
        fields.setdefault("content-length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{ask.method} {ask.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def _asked_by(script: Script, found: list[Answer]) -> Iterator[Ask]:
    """Yield the script's requests; the caller adds each response to `found`."""
    ask = next(script)
    while True:
        yield ask
        try:
            ask = script.send(found[-1])
        except StopIteration:
            return


def play_native(script: Script, auth: object, **patched: Any) -> list[Answer]:
    async def main() -> list[Answer]:
        async with serving(worked_shop(auth), site=SITE) as doors:
            return await _on_doors(doors, script)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in patched.items():
            patch.setattr(connection, name, value)
        found: list[Answer] = LOOPS[1].run(main)
        return found


def worked_shop(auth: object) -> Server:
    """A shop whose tasks a worker runs elsewhere: what it declares depends on that."""
    app = shop(tasks=SqliteTasks(is_worked=True), auth=auth)
    if isinstance(auth, Tokens):
        app.tool(name="audit", scopes={"audit"})(lambda: "done")
    return app


class Parts(Wire):
    """A client that leaves once it has read so many parts."""

    left: int | None = None

    async def send(self, message: Mapping[str, Any]) -> None:
        await super().send(message)
        if self.left is not None and message.get("body"):
            self.left -= 1
            if self.left == 0:
                self.gone.set()


def play_asgi(script: Script, auth: object, *, loop: Loop) -> list[Answer]:
    app = worked_shop(auth)

    async def main() -> list[Answer]:
        found: list[Answer] = []
        async with running(app):
            asgi = asgi_application(app, site=SITE)
            for ask in _asked_by(script, found):
                wire = Parts(loop)
                wire.left = ask.parts
                fields = {**ask.headers}
                if ask.is_chunked:
                    fields["transfer-encoding"] = "chunked"
                elif ask.body or ask.method == "POST":
                    fields.setdefault("content-length", str(len(ask.body)))
                path = ask.path.partition("?")[0]
                is_broken = False
                try:
                    await wire.ask(asgi, ask.body, fields, method=ask.method, path=path)
                except Bug:
                    is_broken = True  # a host of ASGI breaks the answer off
                start, *parts = wire.sent
                pairs = [(k.decode(), v.decode()) for k, v in start["headers"]]
                body = b"".join(part["body"] for part in parts)
                is_whole = not parts[-1]["more_body"]
                assert is_broken is not (is_whole or ask.parts is not None)
                found.append(answered(start["status"], pairs, body, is_whole=is_whole))
        return found

    found: list[Answer] = loop.run(main)
    return found


def play_wsgi(
    script: Script, auth: object, *, is_terminated: bool = False
) -> list[Answer]:
    wsgi = wsgi_application(worked_shop(auth), site=SITE, run_async=asyncio.run)
    found: list[Answer] = []
    for ask in _asked_by(script, found):
        begun: list[Any] = []
        parts: list[bytes] = []
        is_whole = True

        def start_response(
            status: str,
            fields: Any,
            *rest: Any,
            begun: list[Any] = begun,
            parts: list[bytes] = parts,
        ) -> Any:
            begun.append((int(status[:3]), fields))
            return parts.append

        try:
            parts += wsgi(_environ_of(ask, is_terminated), start_response)
        except Bug:
            is_whole = False
        ((status, fields),) = begun
        found.append(answered(status, fields, b"".join(parts), is_whole=is_whole))
    wsgi.close()
    return found


def _environ_of(ask: Ask, is_terminated: bool) -> dict[str, Any]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": ask.method,
        "PATH_INFO": ask.path.partition("?")[0],
        "REMOTE_ADDR": "10.0.0.2",
        "CONTENT_LENGTH": "",
        "wsgi.input": io.BytesIO(ask.body),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.input_terminated": is_terminated,
    }
    if not ask.is_chunked and (ask.body or ask.method == "POST"):
        environ["CONTENT_LENGTH"] = str(len(ask.body))
    for name, value in ask.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key.startswith("CONTENT_") else f"HTTP_{key}"] = value
    return environ


NATIVE = Host("native", play_native)
HOSTS = [
    Host("h11", partial(play_native, open_wire=http1.ByH11)),
    *[Host(f"asgi-{loop.name}", partial(play_asgi, loop=loop)) for loop in LOOPS],
    Host("wsgi", play_wsgi, has_streams=False, needs_length=True),
    Host(
        "wsgi-terminated",
        partial(play_wsgi, is_terminated=True),
        has_streams=False,
    ),
]


class Bug(Exception):
    """A bug in our own code."""


@pytest.fixture(autouse=True)
def stumbling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make some events impossible to send. No handler sends events of that kind."""

    def stumbles(message: bytes) -> bytes:
        for number, name in enumerate((b"first", b"second", b"third"), 1):
            if name in message and b'"progress":%d' % number in message:
                raise Bug
        return sse(message)

    monkeypatch.setattr(conversation, "sse", stumbles)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy makes no stream of an answer that comes at once."""
    monkeypatch.setattr(reading, "_MOMENT", 10.0)


# ---- the scripts --------------------------------------------------------------------


def post(status: int, body: JSON, **options: Any) -> Ask:
    """A POST; `headers` are added to the usual ones, `None` leaves one out."""
    known: dict[str, str | None] = {"host": "shop.example"}
    if isinstance(body, bytes):
        known |= headers_of({"method": "tools/list"})
    else:
        known |= headers_of(body)
        body = json.dumps(body).encode()
    known |= options.pop("headers", {})
    headers = {name: value for name, value in known.items() if value is not None}
    return Ask(status, headers, body, **options)


def bare(status: int, method: str, body: bytes = b"", **headers: str) -> Ask:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Ask(status, {"host": "shop.example", **named}, body, method)


LIST = request("tools/list")
TOLD = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}
LONG = call("echo", text="x" * MAX_BODY)
BATCH = json.dumps([LIST]).encode()


def every_answer() -> Script:
    """Accepted requests, with every form of response."""
    yield post(200, LIST)
    yield post(200, LIST, path="/mcp/?a=b")
    yield post(200, LIST, is_chunked=True)
    yield post(200, LIST, headers={"accept": None})
    yield post(202, TOLD)
    yield post(404, request("tools/sing"))
    yield post(400, b"{")
    yield post(400, b"")
    yield post(400, b"\xff")
    yield post(400, BATCH)
    yield post(400, LIST, headers={"mcp-method": "tools/call"})
    yield post(400, LIST, headers={"mcp-protocol-version": "1999-01-01"})
    yield post(400, {"jsonrpc": "2.0", "id": 1, "result": {}, "method": None})
    yield post(200, call("echo", text="hello"))
    yield post(200, call("whoami"))
    yield post(200, call("whoami"), headers={"authorization": "Bearer ann"})
    yield post(200, call("nothing"))
    yield post(200, call("count", to=3, progress="p"))
    yield post(200, call("count", to=3, progress="p"), is_chunked=True)
    yield post(200, LIST)


def every_refusal() -> Script:
    """Refused requests, for every reason."""
    yield post(403, LIST, headers={"host": "evil.example"})
    yield post(403, LIST, headers={"origin": STRANGER})
    yield post(403, LIST, headers={"origin": "null"})
    yield post(403, LIST, headers={"origin": "no origin"})
    yield post(404, LIST, path="/")
    yield post(404, LIST, path="/mcp/more", is_chunked=True)
    yield post(415, LIST, headers={"content-type": "text/plain"})
    yield post(415, LIST, headers={"content-type": None})
    yield post(406, LIST, headers={"accept": "text/html"})
    yield post(406, LIST, headers={"accept": "application/json"})
    yield post(401, LIST, headers={"authorization": "Bearer nobody"})
    yield post(500, LIST, headers={"authorization": "Bearer bug"})
    yield post(413, LONG)
    yield post(413, LONG, is_chunked=True)
    yield post(404, LIST, headers=headers_for("unknown"))
    for method in ("GET", "DELETE", "HEAD", "PUT", "OPTIONS", "PATCH", "POSTS"):
        for body in (b"", b"some"):
            yield bare(405, method, body)
    for method in ("GET", "DELETE", "HEAD"):
        yield attrs.evolve(bare(404, method), path="/")
        yield bare(403, method, origin=STRANGER)
    for method in ("GET", "DELETE"):
        yield bare(405, method, mcp_session_id="a", mcp_protocol_version="2026-07-28")
        yield bare(404, method, mcp_session_id="a")
        yield bare(401, method, mcp_session_id="a", authorization="Bearer nobody")
    yield bare(406, "GET", mcp_session_id="a", accept="text/html")
    yield bare(403, "OPTIONS", origin=STRANGER)


def every_page() -> Script:
    """Requests from a page of another origin, with every kind of response."""
    page = {"origin": PAGE}
    for body in (b"", b"some"):
        yield bare(
            204, "OPTIONS", body, origin=PAGE, access_control_request_method="POST"
        )
    yield post(200, LIST, headers=page)
    yield post(202, TOLD, headers=page)
    yield post(400, b"{", headers=page)
    yield post(404, request("tools/sing"), headers=page)
    yield post(200, call("count", to=2, progress="p"), headers=page)
    yield post(404, LIST, headers=page, path="/")
    yield post(415, LIST, headers={**page, "content-type": "text/plain"})
    yield post(406, LIST, headers={**page, "accept": "text/html"})
    yield post(401, LIST, headers={**page, "authorization": "Bearer nobody"})
    yield post(500, LIST, headers={**page, "authorization": "Bearer bug"})
    yield post(413, LONG, headers=page)
    yield post(413, LONG, headers=page, is_chunked=True)
    yield bare(405, "PUT", origin=PAGE)
    yield bare(404, "DELETE", mcp_session_id="a", origin=PAGE)


def three_rounds() -> Script:
    body = call("order", title="Dune")
    for value in ("Ann", 2):
        result = (yield post(200, body)).json["result"]
        assert result["resultType"] == "input_required"
        body = call("order", title="Dune", **answer(result, value))
    # A state without a valid signature.
    yield post(200, call("order", title="Dune", requestState="made up"))


def _old(version: str) -> Script:
    shake = yield old(200, None, version, initialize(version))
    session = shake.headers["mcp-session-id"]
    ask = partial(old, session=session, version=version)
    yield ask(202, body=message("notifications/initialized"))
    yield ask(200, body=message("ping", id=1))
    yield ask(200, body=tool("whoami", id=2))
    yield ask(200, body=tool("echo", id=3, text="hello"))
    yield ask(200, body=tool("count", id=4, token="p", to=3))
    yield ask(202, body={"jsonrpc": "2.0", "id": 77, "result": {}})
    yield ask(400, body=b"{")
    yield ask(400, body=BATCH)
    yield ask(413, body=LONG)
    yield ask(404, body=message("ping", id=5), authorization="Bearer ann")
    yield ask(404, session="another", body=message("ping", id=5))
    # Events that were sent can be read again, also from the middle; others cannot. The
    # first call's response was not an event.
    for last in ("2-0", "2-1"):
        yield ask(200, method="GET", last_event_id=last)
    yield ask(400, method="GET", last_event_id="1-0")
    yield ask(400, method="GET", last_event_id="2-99")
    yield ask(400, method="GET", last_event_id="x")
    yield ask(200, method="GET", parts=1)
    yield ask(406, method="GET", accept="application/json")
    yield ask(405, method="PUT")
    yield ask(204, method="DELETE", origin=PAGE)
    for method in ("POST", "GET", "DELETE"):
        yield ask(404, method=method, origin=PAGE)


def old(
    status: int,
    session: str | None,
    version: str,
    body: JSON = b"",
    method: str = "POST",
    parts: int | None = None,
    **more: str | None,
) -> Ask:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = headers_for(session, version, **more)
    return Ask(status, headers, content, method, parts=parts)


def bugs_of_ours() -> Script:
    """Errors before a stream starts, and within one; see `stumbling`."""
    yield post(500, call("count", to=3, progress="first"))
    yield post(500, call("count", to=3, progress="first"), headers={"origin": PAGE})
    yield post(200, call("count", to=3, progress="second"))
    yield post(200, call("count", to=3, progress="third"))
    yield post(200, LIST)


#: What may be wrong with a request; each takes its headers, and names its own.
FAULTS: Sequence[Mapping[str, Any]] = [
    {"headers": {"host": "evil.example"}},
    {"headers": {"origin": STRANGER}},
    {"headers": {"origin": PAGE}},
    {"headers": {"content-type": "text/plain"}},
    {"headers": {"accept": "text/html"}},
    {"headers": {"authorization": "Bearer nobody"}},
    {"headers": {"authorization": "Bearer bug"}},
    {"headers": {"mcp-session-id": "a", "mcp-protocol-version": "2025-06-18"}},
    {"headers": {"mcp-method": "tools/call"}},
    {"path": "/"},
    {"method": "GET"},
    {"method": "DELETE"},
    {"method": "OPTIONS"},
    {"method": "HEAD"},
    {"body": b"{"},
    {"body": LONG},
]


def two_at_once() -> Script:
    """Two faults at once: every host reports the same one of them."""
    for one, two in itertools.combinations(FAULTS, 2):
        both = {**one, **two}
        both["headers"] = {**one.get("headers", {}), **two.get("headers", {})}
        yield post(ANY, both.pop("body", LIST), **both)


SCRIPTS: dict[str, Callable[[], Script]] = {
    "answers": every_answer,
    "refusals": every_refusal,
    "pages": every_page,
    "rounds": three_rounds,
    "bugs": bugs_of_ours,
    "pairs": two_at_once,
    **{version: partial(_old, version) for version in VERSIONS},
}


# ---- the contract -------------------------------------------------------------------


def played(
    script: Script, host: Host, auth: object = authenticate
) -> list[tuple[Ask, Answer]]:
    """Return the requests of a script, with their responses."""
    asks: list[Ask] = []

    def noted() -> Script:
        got: Any = None
        while True:
            try:
                asks.append(script.send(got))
            except StopIteration:
                return
            got = yield asks[-1]

    answers = host.play(noted(), auth)
    return list(zip(asks, answers, strict=True))


@cache
def native(name: str) -> list[tuple[Ask, Answer]]:
    return played(SCRIPTS[name](), NATIVE)


def cannot(host: Host, ask: Ask) -> int | None:
    """The status of a host that cannot serve this request, or None."""
    if host.needs_length and ask.is_chunked and ask.status in (200, 413):
        return 411
    if not host.has_streams and ask.method == "GET" and ask.status in (200, 400):
        return 405
    return None


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_answered_with_the_status_that_is_due(name: str) -> None:
    for ask, got in native(name):
        assert ask.status in (got.status, ANY), (ask, got)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_every_host_answers_alike(host: Host, name: str) -> None:
    asked = played(SCRIPTS[name](), host)
    for (ask, want), (_, got) in zip(native(name), asked, strict=True):
        refused = cannot(host, ask)
        if refused is not None:
            assert got.status == refused, (ask, got)
            continue
        plain = got.plain(has_streams=host.has_streams)
        assert plain == want.plain(has_streams=host.has_streams), ask


@pytest.mark.parametrize("host", [NATIVE, *HOSTS], ids=lambda host: host.name)
def test_a_hook_may_be_async_on_every_host(host: Host) -> None:
    asked = played(every_refusal(), host, authenticate_async)
    assert [got.status for _, got in asked if got.status != 411] == [
        got.status for ask, got in native("refusals") if not cannot(host, ask)
    ]


# ---- tokens, and the document that says who gives them out --------------------------

DOCUMENT = "/.well-known/oauth-protected-resource/mcp"
METADATA = "https://shop.example/.well-known/oauth-protected-resource/mcp"


def by(token: str, status: int, body: JSON = LIST) -> Ask:
    return post(status, body, headers={"authorization": f"Bearer {token}"})


def document(status: int, method: str, **headers: Any) -> Ask:
    return attrs.evolve(bare(status, method, **headers), path=DOCUMENT)


def every_token() -> Script:
    yield post(401, LIST)
    yield post(401, LIST, headers={"origin": PAGE})
    yield post(401, LIST, headers={"authorization": "Basic YTpi"})
    yield by("bad", 401)
    yield by("down", 503)
    yield by("ann", 403)
    yield by("ann+base", 200)
    yield by("ann+base", 200, call("whoami"))
    yield by("ann+base", 403, call("audit"))
    yield by("ann+base+audit", 200, call("audit"))
    # A session of 2025-11-25: the status is the same one.
    token = "Bearer ann+base"
    first = initialize(VERSIONS[0])
    shake = yield old(200, None, VERSIONS[0], first, authorization=token)
    session = shake.headers["mcp-session-id"]
    ask = partial(old, session=session, version=VERSIONS[0])
    yield ask(403, body=tool("audit", id=2), authorization=token)
    yield ask(200, body=tool("audit", id=3), authorization="Bearer ann+base+audit")
    yield ask(404, body=tool("audit", id=4), authorization="Bearer bob+base+audit")
    yield ask(401, body=tool("audit", id=5))


def every_document() -> Script:
    """Without a token, from every page, and under every name of this server."""
    yield document(200, "GET")
    yield document(200, "GET", origin=STRANGER, host="proxied.example")
    yield document(200, "GET", authorization="Bearer bad")
    yield document(200, "HEAD")
    yield document(204, "OPTIONS", origin=STRANGER)
    yield document(405, "POST")
    yield document(405, "DELETE")
    yield attrs.evolve(document(200, "GET"), path=f"{DOCUMENT}?a=b")
    yield attrs.evolve(document(404, "GET"), path=f"{DOCUMENT}/more")
    yield attrs.evolve(document(404, "GET"), path=DOCUMENT.removesuffix("/mcp"))


LOGINS = {"tokens": every_token, "document": every_document}


@cache
def native_login(name: str) -> list[tuple[Ask, Answer]]:
    return played(LOGINS[name](), NATIVE, Tokens())


@pytest.mark.parametrize("name", LOGINS)
@pytest.mark.parametrize("host", [NATIVE, *HOSTS], ids=lambda host: host.name)
def test_every_host_asks_for_tokens_alike(host: Host, name: str) -> None:
    asked = played(LOGINS[name](), host, Tokens())
    for (ask, got), (_, want) in zip(asked, native_login(name), strict=True):
        assert got.status == ask.status, (ask, got)
        plain = got.plain(has_streams=host.has_streams)
        assert plain == want.plain(has_streams=host.has_streams), ask


def test_refusal_names_the_scopes_that_a_token_lacks() -> None:
    """The reason stays secret, as it would help a stranger to make tokens."""
    bearer = f'resource_metadata="{METADATA}"'
    found = {
        ask.headers.get("authorization"): got
        for ask, got in reversed(native_login("tokens"))
        if got.status != 200
    }
    none, bad, lacks = (
        found[one].headers["www-authenticate"]
        for one in (None, "Bearer bad", "Bearer ann")
    )
    assert none == f'Bearer scope="base", {bearer}'
    assert bad == f'Bearer error="invalid_token", scope="base", {bearer}'
    assert lacks == f'Bearer error="insufficient_scope", scope="base", {bearer}'
    assert b"secret" not in b"".join(got.body for got in found.values())
    assert "www-authenticate" not in found["Bearer down"].headers
    assert found["Bearer down"].headers["retry-after"] == "5"
    calls = [got for _, got in native_login("tokens") if b"Insufficient" in got.body]
    assert len(calls) == 2  # in both eras
    for got in calls:
        assert got.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="audit base", {bearer}'
        )


def test_page_may_read_why_it_is_refused() -> None:
    got = native_login("tokens")[1][1]
    assert got.headers["access-control-allow-origin"] == PAGE
    assert "WWW-Authenticate" in got.headers["access-control-expose-headers"]


def test_document_names_the_authorization_server() -> None:
    """As 2026-07-28 and RFC 9728, section 3.2, require; for pages of every origin."""
    (_, plain), (_, page), _, (_, head), (_, options), *_ = native_login("document")
    assert plain.json["resource"] == "https://shop.example/mcp"
    assert plain.json["authorization_servers"] == ["https://idp.example"]
    assert plain.json["scopes_supported"] == ["base"]
    assert plain.json["resource_name"] == "shop"
    assert plain.headers["content-type"] == "application/json"
    for one in (plain, page, options):
        assert one.headers["access-control-allow-origin"] == "*"
    # Browsers ask first, as clients send the version of the protocol with it.
    assert options.headers["access-control-allow-headers"] == "*"
    assert (head.body, head.headers["content-length"]) == (b"", str(len(plain.body)))


async def gives_up(headers: Mapping[str, str]) -> str:
    raise asyncio.CancelledError


async def exits(headers: Mapping[str, str]) -> str:
    raise SystemExit


@pytest.mark.parametrize(
    ("hook", "status"),
    [
        (lambda headers: Later(), 200),
        (lambda headers: sys.exit(), 500),
        (lambda headers: next(iter(())), 500),
        (gives_up, 500),
        (exits, 500),
    ],
    ids=["awaitable", "exit", "stop", "cancelled", "exits"],
)
@pytest.mark.parametrize("host", [NATIVE, *HOSTS], ids=lambda host: host.name)
def test_a_hook_ends_no_more_than_its_request(
    host: Host, hook: Any, status: int
) -> None:
    def script() -> Script:
        yield post(status, LIST)
        yield post(status, LIST)

    assert [got.status for _, got in played(script(), host, hook)] == [status] * 2
