"""Requests over real sockets: on asyncio, on trio and in threads, to a hostile server."""

from __future__ import annotations

import datetime as dt
import gzip
import ipaddress
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from attrs import define, field
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from effectmcp.fetching import sending
from effectmcp.fetching.requests import Fetch, Fetched, FetchError
from effectmcp.fetching.sending import Sender, SyncSender, send, send_in_thread

#: Seconds until a slow server is given up. Slow machines need more for other requests.
SHORT, LONG = 0.5, 30.0


# ---- a server -----------------------------------------------------------------------


@define(eq=False)
class Site:
    """A server on loopback, and what it was asked."""

    port: int = 0
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(factory=list)
    names: list[str | None] = field(factory=list)
    stop: threading.Event = field(factory=threading.Event)
    go_on: threading.Event = field(factory=threading.Event)

    def url(self, path: str = "/", scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"


class Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): text for name, text in self.headers.items()}
        asked = (self.command, self.path, headers, self.rfile.read(length))
        self.site.asked.append(asked)
        what = self.path.strip("/").partition("?")[0]
        getattr(self, f"say_{what or 'hello'}")()

    do_POST = do_PUT = do_GET

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say_hello(self) -> None:
        self.answer(200, b'{"hello": 1}', X_Said="yes")

    def say_missing(self) -> None:
        self.answer(404, b"no")

    def say_moved(self) -> None:
        self.answer(302, b"", Location="http://169.254.169.254/latest/meta-data")

    def say_zipped(self) -> None:
        self.answer(200, gzip.compress(b"\0" * 10_000_000), Content_Encoding="gzip")

    def say_large(self) -> None:
        self.answer(200, b"x" * 20_000)

    def say_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.until_stopped(b"x" * 65_536, 0)

    def say_drops(self) -> None:
        """Send the body one byte at a time."""
        self.send_response(200)
        self.send_header("Content-Length", "10000")
        self.end_headers()
        self.until_stopped(b"x", SHORT / 20)

    def say_slowly(self) -> None:
        """Send the head one byte at a time."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        self.until_stopped(b"x", SHORT / 20)

    def say_nothing(self) -> None:
        self.site.stop.wait()

    def say_later(self) -> None:
        self.site.go_on.wait()
        self.say_hello()

    def say_garbage(self) -> None:
        self.wfile.write(b"\0\1\2 garbage\r\n\r\n")
        self.close_connection = True

    def say_half(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        self.close_connection = True

    def until_stopped(self, part: bytes, pause: float) -> None:
        self.close_connection = True
        try:
            while not self.site.stop.wait(pause):
                self.wfile.write(part)
        except OSError:
            pass  # the client has disconnected


class Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write no log: clients disconnect on purpose."""


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    site = Site()
    handler = type("OfSite", (Handler,), {"site": site})
    server = Quiet(("127.0.0.1", 0), handler)
    site.port = server.server_port
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site
    finally:
        site.stop.set()
        site.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as found:
        yield found


# ---- three ways to send -------------------------------------------------------------

Send = Callable[[Fetch], Fetched]

WAYS: dict[str, Send] = {
    "asyncio": lambda request: anyio.run(send, request),
    "trio": lambda request: trio.run(send, request),
    "thread": send_in_thread,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Send:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    return WAYS[request.param]


def fetch(url: str, **options: Any) -> Fetch:
    return Fetch(**{"url": url, "near": "http://127.0.0.1", "timeout": LONG, **options})


def problem(way: Send, request: Fetch) -> str:
    with pytest.raises(FetchError) as caught:
        way(request)
    assert caught.value.url == request.url
    return caught.value.problem


def test_send_sends_what_it_is_given(way: Send, site: Site) -> None:
    site.asked.clear()
    url = site.url("/hello?a=b")
    headers = {"Accept": "application/json", "X-Mine": "1"}
    got = way(fetch(url, method="POST", headers=headers, body=b"the body"))
    assert (got.status, got.body, got.headers["x-said"]) == (
        200,
        b'{"hello": 1}',
        "yes",
    )
    ((method, path, sent, body),) = site.asked
    assert (method, path, body) == ("POST", "/hello?a=b", b"the body")
    assert sent["host"] == f"127.0.0.1:{site.port}"
    assert (sent["accept"], sent["x-mine"]) == ("application/json", "1")
    assert sent["accept-encoding"] == "identity"
    assert "cookie" not in sent


def test_send_returns_other_statuses(way: Send, site: Site) -> None:
    assert way(fetch(site.url("/missing"))).status == 404


def test_send_follows_no_redirect(way: Send, site: Site) -> None:
    site.asked.clear()
    assert way(fetch(site.url("/moved"))).status == 302
    assert len(site.asked) == 1


@pytest.mark.parametrize("path", ["/large", "/endless"])
def test_send_reads_no_more_than_the_limit(way: Send, site: Site, path: str) -> None:
    found = problem(way, fetch(site.url(path), longest=10_000))
    assert found == "the response has more than 10,000 bytes"
    if path == "/large":
        assert len(way(fetch(site.url(path), longest=20_000)).body) == 20_000


def test_send_reads_nothing_compressed(way: Send, site: Site) -> None:
    """A few bytes could become gigabytes before they are counted."""
    assert problem(way, fetch(site.url("/zipped"))) == "the response is compressed"


@pytest.mark.parametrize("path", ["/nothing", "/drops", "/slowly"])
def test_send_has_one_deadline_for_everything(way: Send, site: Site, path: str) -> None:
    """A server that sends a byte every few seconds reaches no limit of single reads."""
    began = time.monotonic()
    assert problem(way, fetch(site.url(path), timeout=SHORT)) == "it takes too long"
    assert time.monotonic() - began < LONG


@pytest.mark.parametrize("path", ["/garbage", "/half"])
def test_send_reports_what_is_not_http(way: Send, site: Site, path: str) -> None:
    assert problem(way, fetch(site.url(path))).startswith("it cannot be reached: ")


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def test_send_reports_a_closed_port(way: Send) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    assert problem(way, fetch(url)).startswith("it cannot be reached: ")


@pytest.mark.parametrize(
    "host", ["a" * 70 + ".example", "nothing.invalid", "a..b", "-.example", "~"]
)
def test_send_reports_a_host_that_cannot_be_resolved(way: Send, host: str) -> None:
    """The resolver raises a ValueError for some of them."""
    assert problem(way, fetch(f"https://{host}/")).startswith("its host is unknown")
    with pytest.raises(FetchError):
        way(fetch("http://127.0.0.1/", near=f"https://{host}/"))


@pytest.mark.parametrize("url", ["", "ftp://127.0.0.1/", "https://[::1", "http://a:b/"])
def test_send_reports_what_is_not_a_url(way: Send, url: str) -> None:
    assert problem(way, fetch(url))
    with pytest.raises(FetchError):
        way(fetch("http://127.0.0.1/", near=url))


@pytest.mark.parametrize("name", ["a\nb", "ü", ""])
def test_send_reports_headers_that_cannot_be_written(
    way: Send, site: Site, name: str
) -> None:
    assert problem(way, fetch(site.url(), headers={name: "x"}))


# ---- which address ------------------------------------------------------------------


def resolving(monkeypatch: pytest.MonkeyPatch, **hosts: list[str]) -> list[str | None]:
    """Let names have addresses; return the list of the names that are asked for."""
    asked: list[str | None] = []
    real = socket.getaddrinfo

    def found(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        asked.append(name)
        given = hosts.get(str(name).partition(".")[0])
        if given is None:
            return real(host, port, *args, **options)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, 0)) for address in given]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked


CLOSER = "its address is closer to this machine than the party that named it"

HOSTILE = [
    *("http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/"),
    *("https://[::ffff:169.254.169.254]/", "http://[::ffff:169.254.169.254]/"),
    *("https://10.0.0.1/", "https://127.0.0.1/", "http://localhost:8000/"),
    *("https://metadata.example/", "https://inside.example/", "https://two.example/"),
    *("https://2852039166/", "https://0xa9fea9fe/", "https://169.254.169.254./"),
]


@pytest.mark.parametrize("url", HOSTILE)
def test_send_asks_nothing_inside_for_a_public_party(
    way: Send, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(
        monkeypatch,
        idp=["93.184.216.34"],
        metadata=["169.254.169.254"],
        inside=["192.168.0.1"],
        two=["93.184.216.34", "127.0.0.1"],
    )
    near = "https://idp.example"
    assert problem(way, fetch(url, near=near)) == CLOSER
    assert problem(way, fetch("http://idp.example/", near=near)) == "it has to be https"


def test_send_resolves_a_name_once(
    way: Send, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is to that address: a name may have another one a moment later."""
    asked = resolving(monkeypatch, idp=["127.0.0.1"])
    url = f"http://idp.example:{site.port}/hello"
    site.asked.clear()
    assert way(fetch(url)).status == 200
    assert asked.count("idp.example") == 1
    assert site.asked[0][2]["host"] == f"idp.example:{site.port}"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_send_resolves_in_threads_of_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """A resolver that hangs keeps its thread: other parts of the program need theirs."""
    limits: list[Any] = []
    run_sync = anyio.to_thread.run_sync

    def note(*args: Any, limiter: Any = None, **options: Any) -> Any:
        limits.append(limiter)
        return run_sync(*args, limiter=limiter, **options)

    async def main() -> None:
        for _ in range(2):
            await send(fetch(site.url("/hello")))
        assert anyio.to_thread.current_default_thread_limiter() not in limits

    monkeypatch.setattr(anyio.to_thread, "run_sync", note)
    for _ in range(2):
        anyio.run(main, backend=backend)
    one, same, of_next_loop, _ = limits
    assert one is same is not None
    assert of_next_loop is not one


def test_send_tries_each_address(
    way: Send, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for localhost, if the server listens on one of the two."""
    resolving(monkeypatch, idp=["127.0.0.2", "127.0.0.3", "127.0.0.1"])
    assert way(fetch(f"http://idp.example:{site.port}/hello")).status == 200


# ---- proxies ------------------------------------------------------------------------


@define(eq=False)
class Proxy:
    """A proxy that refuses, and what it was asked."""

    port: int = 0
    lines: list[str] = field(factory=list)


@pytest.fixture
def proxy(way: Send, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    found = Proxy()

    class Refusing(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Write no log."""

        def do_CONNECT(self) -> None:
            found.lines.append(self.requestline)
            self.send_error(403)

    server = Quiet(("127.0.0.1", 0), Refusing)
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{found.port}")
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def test_send_leaves_names_to_a_proxy(
    way: Send, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolving(monkeypatch)
    found = problem(way, fetch("https://idp.example/", near="https://mcp.example"))
    assert "403" in found
    assert proxy.lines == ["CONNECT idp.example:443 HTTP/1.1"]
    assert "idp.example" not in asked


def test_send_asks_a_proxy_for_nothing_inside(way: Send, proxy: Proxy) -> None:
    for url in ("https://169.254.169.254/", "https://127.1/", "https://localhost./"):
        assert problem(way, fetch(url, near="https://mcp.example")) == CLOSER
    found = problem(way, fetch("http://idp.example/", near="https://mcp.example"))
    assert found
    assert proxy.lines == []


def test_send_without_a_proxy_checks_the_address(
    way: Send, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`no_proxy` is read once: to httpx2, this one says that there is no proxy at all, so
    it would connect without a check."""
    monkeypatch.setenv("NO_PROXY", "*,corp.example,other.example:8443")
    resolving(monkeypatch, evilcorp=["127.0.0.1"], inside=["127.0.0.1"])
    problem(way, fetch("https://evilcorp.example/", near="https://mcp.example"))
    assert proxy.lines == ["CONNECT evilcorp.example:443 HTTP/1.1"]
    near = "https://93.184.216.34"
    assert problem(way, fetch("https://inside.corp.example/", near=near)) == CLOSER
    resolving(monkeypatch, other=["127.0.0.1"])
    assert problem(way, fetch("https://other.example:8443/", near=near)) == CLOSER


def test_send_to_an_exception_uses_no_proxy(
    way: Send, proxy: Proxy, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is to an address, which `no_proxy` does not name."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("NO_PROXY", "idp.example")
    resolving(monkeypatch, idp=["127.0.0.1"])
    assert way(fetch(f"http://idp.example:{site.port}/hello")).status == 200


def test_send_reads_a_proxy_without_a_scheme(
    way: Send, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("ALL_PROXY", f"127.0.0.1:{proxy.port}")
    problem(way, fetch("https://idp.example/", near="https://mcp.example"))
    assert len(proxy.lines) == 1


# ---- TLS ----------------------------------------------------------------------------


def certificate(folder: Path, *names: str) -> Path:
    """A certificate that has signed itself, and its key, in one file."""
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    others: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(one))
        if one[0].isdigit()
        else x509.DNSName(one)
        for one in names
    ]
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(own, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture
def secure(
    way: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """A server with TLS for `idp.example` and 127.0.0.1, whose certificate is trusted."""
    path = certificate(tmp_path, "idp.example", "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    trusting = ssl.create_default_context(cafile=path)
    monkeypatch.setattr(sending, "_contexts", [trusting])
    with serving(tls) as found:
        tls.sni_callback = lambda one, name, context: found.names.append(name)
        yield found


def test_send_names_the_host_to_tls_and_not_its_address(
    way: Send, secure: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, idp=["127.0.0.1"])
    assert way(fetch(f"https://idp.example:{secure.port}/hello")).status == 200
    assert secure.names == ["idp.example"]
    assert secure.asked[0][2]["host"] == f"idp.example:{secure.port}"
    # An address in the URL is one in the certificate.
    assert way(fetch(secure.url("/hello", "https"))).status == 200


def test_send_believes_no_other_host(
    way: Send, secure: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is for the name, though its address is connected to."""
    resolving(monkeypatch, other=["127.0.0.1"], idp=["127.0.0.1"])
    found = problem(way, fetch(f"https://other.example:{secure.port}/hello"))
    assert "certificate" in found.lower()
    monkeypatch.setattr(sending, "_contexts", [])
    found = problem(way, fetch(f"https://idp.example:{secure.port}/hello"))
    assert "certificate" in found.lower()
    assert secure.asked == []


# ---- shared requests ----------------------------------------------------------------

CROWD = 20


@pytest.fixture
def later() -> Iterator[Site]:
    """A server that answers `/later` once `go_on` is set."""
    with serving() as found:
        yield found


async def crowd(sender: Sender, requests: list[Fetch], site: Site) -> list[Any]:
    """The results of requests that are sent at once, while the server waits."""
    got: list[Any] = []

    async def one(request: Fetch) -> None:
        try:
            got.append(await sender(request))
        except FetchError as exc:
            got.append(exc)

    async with anyio.create_task_group() as group:
        for request in requests:
            group.start_soon(one, request)
        # Each task has sent its request once all of them wait.
        await anyio.wait_all_tasks_blocked()
        site.go_on.set()
    return got


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sender_sends_shared_requests_once(later: Site, backend: str) -> None:
    sender = Sender()
    same = fetch(later.url("/later"), is_shared=True)
    got = anyio.run(crowd, sender, [same] * CROWD, later, backend=backend)
    assert [one.status for one in got] == [200] * CROWD
    assert len(later.asked) == 1
    # Afterwards, it is another one.
    anyio.run(crowd, sender, [same], later, backend=backend)
    assert len(later.asked) == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sender_sends_what_is_not_equal_each_time(later: Site, backend: str) -> None:
    """Above all for another party: it may not be allowed to name the URL."""
    one = fetch(later.url("/later"), is_shared=True)
    others = [
        fetch(one.url, is_shared=True, near="http://localhost"),
        fetch(one.url, is_shared=True, headers={"a": "b"}),
        fetch(one.url, is_shared=True, method="POST", body=b"1"),
        fetch(one.url, is_shared=True, method="POST", body=b"2"),
        fetch(one.url),
        fetch(one.url),
    ]
    public = fetch(one.url, is_shared=True, near="https://93.184.216.34")
    got = anyio.run(crowd, Sender(), [one, *others, public], later, backend=backend)
    assert len(later.asked) == 7
    (error,) = (each for each in got if isinstance(each, FetchError))
    assert error.problem == CLOSER


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sender_gives_all_the_same_failure(backend: str) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    same = fetch(url, is_shared=True)
    got = anyio.run(crowd, Sender(), [same] * 3, Site(), backend=backend)
    assert {type(one) for one in got} == {FetchError}
    assert len({str(one) for one in got}) == 1


async def lose_the_first(sender: Sender, request: Fetch, site: Site) -> list[int]:
    got: list[int] = []

    async def one() -> None:
        got.append((await sender(request)).status)

    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def first() -> None:
            with scope:
                await one()

        group.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(one)
        group.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        site.go_on.set()
    return got


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sender_that_is_cancelled_leaves_the_request_to_another(
    later: Site, backend: str
) -> None:
    same = fetch(later.url("/later"), is_shared=True)
    sender = Sender()
    assert anyio.run(lose_the_first, sender, same, later, backend=backend) == [200] * 2
    assert len(later.asked) <= 2
    assert sender._flights == {}


@define(eq=False)
class Slow:
    """Sends nothing before all the others wait; counts what it sends."""

    count: int = 0
    begun: threading.Event = field(factory=threading.Event)
    go_on: threading.Event = field(factory=threading.Event)
    fails: bool = False

    def __call__(self, request: Fetch) -> Fetched:
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(LONG)
        if self.fails:
            raise FetchError(request.url, "no")
        return Fetched(status=200)


def in_threads(slow: Slow, requests: list[Fetch]) -> tuple[SyncSender, list[Any]]:
    sender, got = SyncSender(slow), list[Any]()

    def one(request: Fetch) -> None:
        try:
            got.append(sender(request).status)
        except FetchError as exc:
            got.append(exc.problem)

    threads = [threading.Thread(target=one, args=(request,)) for request in requests]
    threads[0].start()
    assert slow.begun.wait(LONG)
    for thread in threads[1:]:
        thread.start()
    slow.go_on.set()
    for thread in threads:
        thread.join()
    return sender, got


@pytest.mark.parametrize("fails", [False, True])
def test_sync_sender_sends_shared_requests_once(fails: bool) -> None:
    """A thread that comes when the response has arrived sends its own."""
    slow = Slow(fails=fails)
    same = fetch("https://idp.example", is_shared=True)
    sender, got = in_threads(slow, [same] * CROWD)
    assert got == ["no" if fails else 200] * CROWD
    assert slow.count < CROWD
    assert sender._flights == {}


def test_sync_sender_sends_others_each_time() -> None:
    slow = Slow()
    _, got = in_threads(slow, [fetch("https://idp.example")] * 5)
    assert (got, slow.count) == ([200] * 5, 5)


def test_sync_sender_gives_up_a_request_of_another_thread_that_hangs() -> None:
    """An issuer that hangs would otherwise hold all threads of a WSGI host."""
    slow = Slow()
    sender = SyncSender(slow, patience=0.01)
    same = fetch("https://idp.example", is_shared=True)
    leader = threading.Thread(target=sender, args=(same,))
    leader.start()
    assert slow.begun.wait(LONG)
    with pytest.raises(FetchError, match="of another thread takes too long"):
        sender(same)
    slow.go_on.set()
    leader.join()
    assert (sender(same).status, slow.count) == (200, 2)


def test_sync_sender_waits_a_few_seconds() -> None:
    assert SyncSender().patience == 3


def test_sync_sender_waits_for_a_request_that_lands_without_a_response() -> None:
    """If the sender of a request has crashed, a waiting one sends it."""
    sender = SyncSender(lambda request: Fetched(status=200))
    same = fetch("https://idp.example", is_shared=True)

    class Crashed:
        def wait(self, seconds: float) -> bool:
            sender._flights.clear()
            return True

    sender._flights[sending._key(same)] = sending._Flight(Crashed())
    assert sender(same).status == 200


def test_sync_sender_that_crashes_leaves_the_request_to_another() -> None:
    calls: list[int] = []

    def crash_once(request: Fetch) -> Fetched:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return Fetched(status=200)

    sender = SyncSender(crash_once)
    same = fetch("https://idp.example", is_shared=True)
    with pytest.raises(ZeroDivisionError):
        sender(same)
    assert sender(same).status == 200
