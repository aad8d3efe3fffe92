"""The lines of the log at the start of a server."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from effectmcp import Elicit, Flow
from effectmcp.auth.api_keys import APIKeys, key_line
from effectmcp.server import Server
from effectmcp.state import Keys, make_key
from effectmcp.tasks import SqliteTasks
from effectmcp.tasks.restate import RestateTasks
from effectmcp.transports.announcing import (
    PARENT,
    announce,
    at,
    clients_of,
    place_of,
    warn_if_open,
)
from effectmcp.transports.default_keys import VARIABLE, ensure_keys
from effectmcp.transports.web import Site

LOCAL = ["127.0.0.1", "::1"]
ANN = key_line("ann", "emcp_a")


def find_user(headers: Mapping[str, str]) -> str:
    return "ann"


@pytest.mark.parametrize(
    ("auth", "site", "addresses", "words"),
    [
        (None, Site(), LOCAL, "anonymous, of this machine only"),
        (None, Site(), [*LOCAL, "192.0.2.1"], "anonymous, under any host name"),
        (None, Site(), [None], "anonymous, under any host name"),
        (
            None,
            Site(hosts=["b.example", "A.example"]),
            LOCAL,
            "anonymous, under the names a.example, b.example",
        ),
        (None, Site(hosts=[]), LOCAL, "anonymous, under the names (none)"),
        (find_user, Site(), LOCAL, "authenticated by find_user, of this machine only"),
        (
            [APIKeys([ANN]), find_user],
            Site(origins=["https://c.example"], proxies=["10.0.0.0/8", "unix"]),
            ["192.0.2.1"],
            (
                "authenticated by 1 API key or find_user, under any host name; pages of"
                " https://c.example; proxies at 10.0.0.0/8, unix"
            ),
        ),
    ],
)
def test_clients_in_words(
    auth: object, site: Site, addresses: list[str | None], words: str
) -> None:
    assert clients_of(Server("shop", auth=auth), site, addresses) == words


@pytest.mark.parametrize(
    ("auth", "host", "is_warned"),
    [
        (None, "0.0.0.0", True),
        (None, "::", True),
        (None, "127.0.0.1", False),
        (find_user, "0.0.0.0", False),
    ],
)
def test_warning_of_an_open_server(
    auth: object, host: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_open(Server("shop", auth=auth), host, 8000)
    assert [f"{host}:8000 can be reached" in one for one in caplog.messages] == (
        [True] if is_warned else []
    )


def announced(
    app: Server, caplog: pytest.LogCaptureFixture, tasks: SqliteTasks | None = None
) -> list[str]:
    caplog.set_level("INFO", "effectmcp.server")
    caplog.clear()
    announce(
        app, at(["http://a/mcp", "http://b/mcp"]), PARENT, loop="trio", tasks=tasks
    )
    return caplog.messages


def test_server_and_its_place(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("shop", version="1.2")
    app.tool(name="buy")(lambda: None)
    app.resource("shop://a")(lambda: "a")
    app.resource("shop://b")(lambda: "b")
    app.resource("shop://books/{title}", name="book")(lambda title: title)
    assert announced(app, caplog) == [
        "shop (version 1.2) on trio: 1 tool, 0 prompts, 2 resources, 1 template",
        "shop is served at http://a/mcp and http://b/mcp",
        "its clients: the process that started this one",
        "its keys: none, so no handler may ask",
    ]


def test_features_that_no_client_can_use(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("shop")
    app.tool(name="buy", scopes={"w"})(lambda: None)
    app.resource("shop://a", name="a", scopes={"w"})(lambda: "a")
    words = "a, buy cannot be used: they need scopes"
    announce(app, "at http://a/mcp", "anonymous", loop="trio")
    assert words in caplog.text
    caplog.clear()
    announce(app, "on standard input", PARENT, loop="trio")
    app.auth = find_user
    announce(app, "at http://a/mcp", "authenticated", loop="trio")
    assert words not in caplog.text


def test_keys_are_named_and_not_shown(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [make_key(secrets.token_bytes(32)) for _ in range(2)]
    monkeypatch.setenv(VARIABLE, ",".join(texts))
    given, own = Server("shop"), Server("shop", keys=Keys(texts[0], readable=True))
    for app in (given, own):
        ensure_keys(app, is_alone=True)
    old, new = Keys(*texts).names
    assert announced(given, caplog)[3] == (
        f"its keys: {new}, and {old} to open older states, from {VARIABLE}"
    )
    assert announced(own, caplog)[3] == (
        f"its keys: {old}, from Server(keys=); clients can read their states"
    )
    assert not any(one in caplog.text for one in texts)
    monkeypatch.delenv(VARIABLE)
    alone = Server("shop")
    ensure_keys(alone, is_alone=True)
    assert announced(alone, caplog)[3] == (
        "its keys: a random one of this process: states do not outlive it"
    )


def test_tasks_that_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("shop")
    app.tool(name="plain")(lambda: None)
    assert len(announced(app, caplog)) == 4

    @app.tool
    def flow() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    assert announced(app, caplog)[4] == (
        "its tasks: none are kept, so Detach() returns False"
    )


def test_tasks_and_their_place(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    app, path = Server("shop"), tmp_path / "tasks.db"
    kept = announced(app, caplog, SqliteTasks())[4]
    assert kept == "its tasks: kept in the memory of this process"
    kept = announced(app, caplog, SqliteTasks(path))[4]
    assert kept == f"its tasks: kept in SqliteTasks({str(path)!r})"


def test_password_of_an_engine_is_not_shown() -> None:
    tasks = RestateTasks("http://ann:secret@a:8080", "http://a:9070")
    shown = place_of(tasks)
    assert shown.startswith("RestateTasks('http://***@a:8080', 'http://a:9070'")
