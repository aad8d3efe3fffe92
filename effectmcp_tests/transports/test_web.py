from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import UsageError
from effectmcp.exchange.commands import Peer
from effectmcp.logs import LIMIT
from effectmcp.server import Server
from effectmcp.transports.conversation import Conversation, Endpoint, Identify
from effectmcp.transports.http1 import write
from effectmcp.transports.web import (
    KEEP_ALIVE,
    Head,
    Send,
    Site,
    client_address,
    cors,
    parse_address,
    refusal,
    sse,
)

HEADERS = {
    "Host": "localhost:8000",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
LOCAL = "127.0.0.1"
PUBLIC = "192.0.2.1"


def ask(
    site: Site | None = None,
    *,
    auth: object = None,
    method: str = "POST",
    path: str = "/mcp",
    bound_to: str | None = LOCAL,
    **headers: str | None,
) -> Peer | Send:
    """Ask with the usual headers; `headers` with `_` for `-`, `None` for not at all."""
    named = {key.replace("_", "-").title(): one for key, one in headers.items()}
    fields = {key: one for key, one in {**HEADERS, **named}.items() if one is not None}
    asked = Head(method, path, fields.items(), bound_to=bound_to, peer="192.0.2.9")
    return judged(Site() if site is None else site, asked, auth)


def judged(site: Site, head: Head, auth: object = None) -> Peer | Send:
    """Return the peer, or the response that refuses the request."""
    talk = Conversation(Endpoint(app=Server("shop", auth=auth), site=site), head)
    step = talk.judge()
    if isinstance(step, Identify):
        try:
            principal = step.find()
        except PermissionError as exc:
            return talk.unidentified(exc)
        step = talk.identified(principal)
    begin = step if isinstance(step, Send) else talk.body()
    return begin if isinstance(begin, Send) else begin.peer


def status(found: Peer | Send) -> int | None:
    return 200 if isinstance(found, Peer) else found.status


def problem(found: Peer | Send) -> str:
    assert isinstance(found, Send)
    assert ("Content-Type", "application/json") in found.headers
    message: str = json.loads(found.data)["error"]["message"]
    return message.removeprefix("Invalid request: ")


# ---- who is let in ----


def test_head_identifies_the_client() -> None:
    peer = ask(auth=lambda headers: headers["x-user"], x_user=" ann\t")
    assert isinstance(peer, Peer)
    assert (peer.principal, peer.address) == ("ann", "192.0.2.9")
    assert peer.headers is not None
    assert peer.headers["x-user"] == "ann"
    assert peer.headers["host"] == "localhost:8000"
    anonymous = ask()
    assert isinstance(anonymous, Peer)
    assert anonymous.principal is None


def test_head_joins_headers_that_may_come_twice() -> None:
    fields = [*HEADERS.items(), ("X-A", "1"), ("x-a", "2")]
    peer = judged(Site(), Head("POST", "/mcp", fields, LOCAL))
    assert isinstance(peer, Peer)
    assert peer.headers is not None
    assert peer.headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    "name",
    ["Host", "Origin", "Content-Type", "Content-Length", "Authorization", "Mcp-Name"],
)
def test_head_refuses_headers_that_contradict_each_other(name: str) -> None:
    fields = [*HEADERS.items(), (name, "a"), (name.lower(), "b")]
    found = judged(Site(), Head("POST", "/mcp", fields, LOCAL))
    assert status(found) == 400
    assert "twice" in problem(found)


# ---- names of the server ----

LOCAL_HOSTS = [
    "localhost",
    "LocalHost:8000",
    "shop.localhost",
    "127.0.0.1",
    "127.8.8.8:80",
    "[::1]",
    "[::1]:8000",
    "[::ffff:127.0.0.1]:8000",
]
OTHER_HOSTS = [
    "evil.example",
    "localhost.evil.example",
    "evil.example:8000",
    "localhost@evil.example",
    "evil.example@localhost",
    "localhost/evil",
    "localhost:80:80",
    "127.0.0.1.evil.example",
    "0.0.0.0",
    "[::",
    "[::1",
    "[fe80::1]",
    "notlocalhost",
    "1" * 100,
    "",
]


@pytest.mark.parametrize("host", LOCAL_HOSTS)
@pytest.mark.parametrize("bound_to", [LOCAL, "::1", "::ffff:127.0.0.1"])
def test_host_of_this_machine(host: str, bound_to: str) -> None:
    assert status(ask(host=host, bound_to=bound_to)) == 200


@pytest.mark.parametrize("host", OTHER_HOSTS)
def test_host_that_was_rebound(host: str) -> None:
    found = ask(host=host)
    assert status(found) == 403
    assert "hosts=" in problem(found)


def test_host_that_is_missing() -> None:
    assert status(ask(host=None)) == 403


@pytest.mark.parametrize("bound_to", [PUBLIC, None, "not an address"])
def test_host_of_a_server_for_others(bound_to: str | None) -> None:
    assert status(ask(host="shop.example", bound_to=bound_to)) == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("shop.example", 200),
        ("SHOP.example:443", 200),
        ("localhost", 403),
        ("evil.example", 403),
        ("shop.example.evil", 403),
    ],
)
def test_host_by_the_names_that_were_given(host: str, expected: int) -> None:
    for bound_to in (LOCAL, PUBLIC, None):
        found = ask(Site(hosts=["Shop.Example"]), host=host, bound_to=bound_to)
        assert status(found) == expected


def test_refusals_are_logged_for_the_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client must not control the log: the operator sees nothing else."""
    caplog.set_level("INFO")
    assert status(ask(host="evil.example\n", bound_to=LOCAL)) == 403
    (record,) = caplog.records
    assert "'evil.example" in record.getMessage()
    assert "--allow-host" in record.getMessage()
    assert "\n" not in record.getMessage()
    caplog.clear()
    assert status(ask(host="x" * 60_000, bound_to=LOCAL, origin="é" * 60_000)) == 403
    assert len(caplog.text) < 2_000


def test_refusals_are_throttled(caplog: pytest.LogCaptureFixture) -> None:
    """A refused request costs its sender nothing, and must not fill a disk."""
    caplog.set_level("INFO")
    for _ in range(3 * LIMIT):
        assert status(ask(host="evil.example", bound_to=LOCAL)) == 403
    assert len(caplog.records) == LIMIT


# ---- pages ----


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:6274", 200),
        ("http://127.0.0.1", 200),
        ("http://[::1]:80", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("http://localhost@evil.example", 403),
        ("http://[::1", 403),  # this used to raise
        ("h\xe9://localhost", 403),
        ("http://\xe9.localhost", 403),
        ("localhost", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_origin_on_this_machine(origin: str, expected: int) -> None:
    found = ask(origin=origin)
    assert status(found) == expected
    if expected != 200:
        assert "origins=" in problem(found)
        assert isinstance(found, Send)
        assert "Access-Control-Allow-Origin" not in dict(found.headers)


def test_origin_of_a_page_of_this_machine_for_a_server_of_others() -> None:
    found = ask(host="shop.example", origin="http://localhost", bound_to=PUBLIC)
    assert status(found) == 403


def test_origin_that_is_the_server_itself() -> None:
    """By a configured name, or by an address; DNS proves neither."""
    page = "https://shop.example"
    site = Site(hosts=["shop.example"])
    assert status(ask(site, host="shop.example", origin=page)) == 200
    address = ask(host=PUBLIC, origin=f"http://{PUBLIC}:9000", bound_to=PUBLIC)
    assert status(address) == 200
    six = ask(host="[2001:db8::1]", origin="http://[2001:db8::1]", bound_to=PUBLIC)
    assert status(six) == 200


def test_origin_that_was_rebound_to_a_server_for_others() -> None:
    """The attacker's page has the attacker's name, and so has the Host it asks."""
    for bound_to in (PUBLIC, None):
        found = ask(
            host="evil.example", origin="http://evil.example", bound_to=bound_to
        )
        assert status(found) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://app.example", 200),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil", 403),
        ("https://app", 403),
        ("null", 403),
    ],
)
def test_origin_that_was_given(origin: str, expected: int) -> None:
    site = Site(origins=["https://App.example"])
    assert status(ask(site, origin=origin)) == expected


def test_origin_null_only_where_it_was_given() -> None:
    assert status(ask(Site(origins=["null"]), origin="null")) == 200


@given(host=st.text(), origin=st.text(), bound_to=st.none() | st.text())
def test_any_string_is_admitted_or_refused(
    host: str, origin: str, bound_to: str | None
) -> None:
    found = ask(host=host, origin=origin, bound_to=bound_to)
    assert status(found) in (200, 403)
    if status(found) == 200:
        write(200, cors(origin))  # it can be said


@given(origin=st.from_regex(r"[a-zé]{1,2}://(é\.)?localhost", fullmatch=True))
def test_an_origin_that_is_let_in_can_be_repeated(origin: str) -> None:
    if status(ask(origin=origin)) == 200:
        write(200, cors(origin))


# ---- requests ----


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_path_that_answers(path: str) -> None:
    for known in ("/mcp", "/mcp/"):
        assert status(ask(Site(path=known), path=path)) == 200


def test_path_that_does_not_answer() -> None:
    found = ask(path="/")
    assert status(found) == 404
    assert problem(found).endswith("use /mcp")


def test_path_of_a_host_that_routes() -> None:
    assert status(ask(Site(path=None), path="/anything")) == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS", "post"])
def test_unsupported_method(method: str) -> None:
    found = ask(method=method)
    assert isinstance(found, Send)
    assert found.status == 405
    assert ("Allow", "POST") in found.headers


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),  # what a page may send without asking first
        ("application/jsonp", 415),
        (None, 415),
    ],
)
def test_content_type(content_type: str | None, expected: int) -> None:
    assert status(ask(content_type=content_type)) == expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, 200),
        ("*/*", 200),
        ("text/event-stream;q=0.5, application/json", 200),
        ("text/*, application/*", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
    ],
)
def test_accept(accept: str | None, expected: int) -> None:
    assert status(ask(accept=accept)) == expected


# ---- users ----


def test_failed_authentication_is_answered_with_401() -> None:
    def authenticate(headers: Mapping[str, str]) -> str | None:
        raise PermissionError(*headers.get("x-why", "").split())

    found = ask(auth=authenticate)
    assert isinstance(found, Send)
    assert found.status == 401
    assert ("WWW-Authenticate", "Bearer") in found.headers
    assert problem(found) == "who are you?"
    assert problem(ask(auth=authenticate, x_why="expired")) == "expired"


def test_only_admitted_requests_are_authenticated() -> None:
    """Code that checks tokens should not have to think of strangers' pages."""

    def called(headers: Mapping[str, str]) -> str:
        pytest.fail("it was called")

    assert status(ask(auth=called, origin="https://evil.example")) == 403
    assert status(ask(auth=called, method="OPTIONS", origin="http://localhost")) == 204


# ---- what browsers need ----


def test_preflight() -> None:
    page = "http://localhost:6274"
    found = ask(method="OPTIONS", origin=page, content_type=None, accept=None)
    assert isinstance(found, Send)
    assert (found.status, found.data) == (204, b"")
    headers = dict(found.headers)
    assert len(headers) == len(found.headers)
    assert headers["Access-Control-Allow-Origin"] == page
    assert headers["Access-Control-Allow-Methods"] == "POST, GET, DELETE"
    # `*` does not include this one.
    assert "Authorization" in headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in headers


def test_refusals_can_be_read_by_pages_that_may_ask() -> None:
    page = "http://localhost:6274"
    for found in (ask(origin=page, path="/"), ask(origin=page, method="GET")):
        assert isinstance(found, Send)
        assert ("Access-Control-Allow-Origin", page) in found.headers


def test_cors_without_a_page_is_empty() -> None:
    assert cors(None) == ()
    assert dict(cors("null"))["Vary"] == "Origin"


# ---- sites ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hosts": "localhost"}, r"write \['localhost'\]"),
        ({"origins": "https://app.example"}, r"write \['https"),
        ({"origins": ["app.example"]}, "is not an origin"),
        ({"origins": ["https://app.example/"]}, "is not an origin"),
        ({"origins": ["*"]}, "is not an origin"),
        ({"path": "mcp"}, "write '/mcp'"),
    ],
)
def test_invalid_hosts_and_origins_of_a_site(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Site(**options)


def test_site_without_room() -> None:
    with pytest.raises(ValueError, match="max_body"):
        Site(max_body=-1)


# ---- answers ----


def test_refusal_has_no_id() -> None:
    answer = refusal(418, "tea", ("A", "b"))
    assert ("A", "b") in answer.headers
    assert json.loads(answer.data).keys() == {"jsonrpc", "error"}


def test_sse_event() -> None:
    assert sse(b"{}") == b"event: message\ndata: {}\n\n"
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")


# ---- addresses ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("localhost", ("localhost", 8000)),
        ("localhost:", ("localhost", 8000)),
        ("[::1]:80", ("::1", 80)),
        ("[::]", ("::", 8000)),
        (":80", ("127.0.0.1", 80)),
        ("80", ("127.0.0.1", 80)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("", ("127.0.0.1", 8000)),
    ],
)
def test_address(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "::1",
        "[::1",
        "[evil]:80",
        "host:port",
        "host:99999",
        "host:-1",
        "user@host:80",
        "host:80/mcp",
        "http://host:80",
        "host?x",
        "²",
    ],
)
def test_invalid_address(text: str) -> None:
    with pytest.raises(UsageError, match=r"write 127\.0\.0\.1:8000"):
        parse_address(text)


@given(st.text())
def test_any_string_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        host, port = parse_address(text)
    except UsageError:
        return
    assert host
    assert 0 <= port < 65_536


# ---- proxies ------------------------------------------------------------------------

NEAR, FAR = "10.0.0.1", "10.0.0.2"


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        # Only a trusted proxy is believed.
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
        (None, "203.0.113.9", None),
        ("not an address", "203.0.113.9", "not an address"),
        # The client that it names; the rest is what the client says itself.
        (NEAR, "203.0.113.9", "203.0.113.9"),
        (NEAR, "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        (NEAR, f"198.51.100.1, 203.0.113.9, {FAR}", "203.0.113.9"),
        (NEAR, f"198.51.100.1,203.0.113.9:80,{FAR}:1", "203.0.113.9"),
        (NEAR, "[2001:db8::1]:80", "2001:db8::1"),
        (NEAR, "[2001:db8::1]", "2001:db8::1"),
        (NEAR, "2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        # A proxy that names no client.
        (NEAR, "", None),
        (NEAR, "unknown", None),
        (NEAR, "203.0.113.9, unknown", None),
        (NEAR, FAR, None),
        (NEAR, "x" * 200, "x" * 100),
    ],
)
def test_address_behind_a_proxy(
    peer: str | None, forwarded: str, address: str | None
) -> None:
    site = Site(proxies=["10.0.0.0/8"])
    assert client_address(site, peer, {"x-forwarded-for": forwarded}) == address


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("for=203.0.113.9", "203.0.113.9"),
        ('For="[2001:db8::1]:4711"', "2001:db8::1"),
        ("for=198.51.100.1, for=203.0.113.9;proto=https;by=10.0.0.1", "203.0.113.9"),
        ("proto=https; for=203.0.113.9", "203.0.113.9"),
        ("for=_hidden", "_hidden"),
        ("for=unknown", None),
        ("proto=https", None),
        ("", None),
    ],
)
def test_address_in_forwarded(forwarded: str, address: str | None) -> None:
    site = Site(proxies=[NEAR], forwarded="Forwarded")
    headers = {"forwarded": forwarded, "x-forwarded-for": "198.51.100.7"}
    assert client_address(site, NEAR, headers) == address


def test_the_other_header_is_not_read() -> None:
    """A proxy passes on what it does not set, as the client wrote it."""
    site = Site(proxies=[NEAR])
    headers = {"forwarded": "for=203.0.113.9"}
    assert client_address(site, NEAR, headers) is None


def test_proxy_on_a_unix_socket() -> None:
    site = Site(proxies=["unix"])
    headers = {"x-forwarded-for": "203.0.113.9"}
    assert client_address(site, None, headers) == "203.0.113.9"
    assert client_address(site, "10.0.0.1", headers) == "10.0.0.1"


def test_proxy_that_is_not_an_address() -> None:
    with pytest.raises(UsageError, match=r"10\.0\.0\.300.*write 10\.0\.0\.7"):
        Site(proxies=["10.0.0.300"])
    with pytest.raises(UsageError, match="is a string, not a list"):
        Site(proxies="10.0.0.1")
    with pytest.raises(ValueError, match="forwarded"):
        Site(forwarded="x-real-ip")
    with pytest.raises(ValueError, match="share"):
        Site(share=0)


@given(st.text(max_size=60), st.sampled_from(["x-forwarded-for", "forwarded"]))
def test_no_header_raises(text: str, name: str) -> None:
    site = Site(proxies=[NEAR], forwarded=name)
    found = client_address(site, NEAR, {name: text})
    assert found is None or 0 < len(found) <= 100
