"""`visible=`: only what a viewer lists exists for it, and nothing reveals the rest."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Flow, SchemaError, Server, Sleep
from effectmcp.drivers import sync
from effectmcp.drivers.local import Mailbox
from effectmcp.exchange.commands import Listen, Peer, Reply
from effectmcp.exchange.handle import handle
from effectmcp.protocol.meta import TASKS
from effectmcp.server import Change, Viewer

from ..legacy_client import NEWEST, LegacyClient
from ..wire import EVERYTHING, Wire, call, error, request, result, send, text_of
from .test_tasks import Rows

ANN, BOB = Peer(principal="ann"), Peer(principal="bob")

#: By method: the field of its result, and what names an item.
LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


def is_ann(viewer: Viewer) -> bool:
    return viewer.principal == "ann"


def breaks(viewer: Viewer) -> bool:
    raise KeyError("no such user")


def kinds(own: Any = None, /, **options: Any) -> Server:
    """A server with two features of each kind; one of the two has its own test."""
    app = Server("shop", **options)
    for name, test in (("open", None), ("hidden", own)):
        app.tool(name=name, visible=test)(lambda: "done")
        app.prompt(name=name, visible=test)(lambda topic: f"about {topic}")
        app.resource(f"shop://{name}", name=name, visible=test)(lambda: "text")
        app.resource(f"{name}://{{x}}", name=name, visible=test)(lambda x: x)
    return app


def pages(app: Server, method: str, peer: Peer | None = None) -> list[Wire]:
    """The pages of a list."""
    found: list[Wire] = []
    params: Wire = {}
    while True:
        found.append(result(send(app, method, params, peer=peer)))
        if "nextCursor" not in found[-1]:
            return found
        params = {"cursor": found[-1]["nextCursor"]}


def listed(app: Server, method: str, peer: Peer | None = None) -> list[str]:
    """Return the names or URIs of the items of a list."""
    field, key = LISTS[method]
    return [item[key] for page in pages(app, method, peer) for item in page[field]]


# ---- lists --------------------------------------------------------------------------


@pytest.mark.parametrize("method", LISTS)
def test_lists(method: str) -> None:
    app = kinds(is_ann)
    assert len(listed(app, method, ANN)) == 2
    for peer in (BOB, None):
        (name,) = listed(app, method, peer)
        assert "open" in name


@pytest.mark.parametrize("method", LISTS)
def test_lists_of_a_session(method: str) -> None:
    app = kinds(is_ann)
    client = LegacyClient(app)
    field, _ = LISTS[method]
    assert len(client.result(method)[field]) == 1
    client.peer = attrs.evolve(client.peer, principal="ann")
    assert len(client.result(method)[field]) == 2


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(
    ("options", "test", "scope"),
    [
        ({}, None, "public"),
        ({}, is_ann, "private"),
        ({"visible": lambda feature, viewer: True}, None, "private"),
    ],
)
def test_scope_of_every_page(method: str, options: Any, test: Any, scope: str) -> None:
    """A cache that is shared must not keep what depends on the user."""
    app = kinds(test, page_size=1, **options)
    found = pages(app, method, ANN)
    assert len(found) == 2
    assert {one["cacheScope"] for one in found} == {scope}


def test_one_filter_makes_all_lists_private() -> None:
    app = kinds()
    app.tool(name="own", visible=is_ann)(lambda: "x")
    for method in LISTS:
        assert {one["cacheScope"] for one in pages(app, method)} == {"private"}


def test_cursor_of_another_viewer() -> None:
    """A cursor names an item that this viewer cannot see: its former place is used."""
    app = kinds(is_ann, page_size=2)
    app.tool(name="last")(lambda: "x")
    cursor = result(send(app, "tools/list", peer=ANN))["nextCursor"]
    page = result(send(app, "tools/list", {"cursor": cursor}, peer=BOB))
    assert page["tools"] == []
    assert [
        one["name"] for one in result(send(app, "tools/list", peer=BOB))["tools"]
    ] == [*("open", "last")]


def test_filter_of_a_server_is_asked_of_each_feature() -> None:
    asked: list[tuple[str, str | None]] = []

    def visible(feature: Any, viewer: Viewer) -> object:
        asked.append((feature.name, viewer.principal))
        return feature.name == "open"

    app = kinds(visible=visible)
    for method in LISTS:
        assert len(listed(app, method, ANN)) == 1
    assert asked == [("open", "ann"), ("hidden", "ann")] * 4


def test_both_filters_must_agree() -> None:
    app = kinds(is_ann, visible=lambda feature, viewer: feature.name != "open")
    assert listed(app, "tools/list", ANN) == ["hidden"]
    assert listed(app, "tools/list", BOB) == []


def test_viewer_is_who_asks() -> None:
    seen: list[Viewer] = []

    def look(viewer: Viewer) -> bool:
        seen.append(viewer)
        return True

    app = kinds(look)
    info = {"name": "desk", "version": "2"}
    send(app, "tools/list", peer=ANN, client=info)
    client = LegacyClient(app)
    client.result("tools/list")
    assert seen == [
        Viewer(
            principal="ann",
            scopes=frozenset(),
            client="desk 2",
            era="modern",
            revision="2026-07-28",
        ),
        Viewer(
            principal=None,
            scopes=frozenset(),
            client="old 1",
            era="legacy",
            revision=NEWEST,
        ),
    ]


# ---- calls --------------------------------------------------------------------------

#: What uses a feature, given its name.
USES: Final[Mapping[str, Callable[[str], tuple[str, Wire]]]] = {
    "tool": lambda name: ("tools/call", {"name": name}),
    "prompt": lambda name: (
        "prompts/get",
        {"name": name, "arguments": {"topic": "x"}},
    ),
    "resource": lambda name: ("resources/read", {"uri": f"shop://{name}"}),
    "template": lambda name: ("resources/read", {"uri": f"{name}://x"}),
    "completion of a prompt": lambda name: (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": name},
            "argument": {"name": "topic", "value": ""},
        },
    ),
    "completion of a template": lambda name: (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": f"{name}://{{x}}"},
            "argument": {"name": "x", "value": ""},
        },
    ),
}


def reply_of(app: Server, use: str, name: str, peer: Peer | None) -> Reply:
    method, params = USES[use](name)
    return send(app, method, params, peer=peer)


@pytest.mark.parametrize("use", USES)
def test_hidden_feature_and_unknown_feature_are_the_same(use: str) -> None:
    """Byte for byte, or a stranger could find out what there is."""
    app, empty = kinds(is_ann), kinds(is_ann)
    for what in ("tools", "prompts", "resources", "templates"):
        for one in list(getattr(empty, what).values()):
            if one.name == "hidden":
                empty.remove(one)
    hidden, unknown = (reply_of(one, use, "hidden", BOB) for one in (app, empty))
    assert (hidden.status, hidden.body) == (unknown.status, unknown.body)
    assert "error" in json.loads(hidden.body or b"")
    assert "result" in json.loads(reply_of(app, use, "hidden", ANN).body or b"")
    session = LegacyClient(app)
    other = LegacyClient(empty)
    method, params = USES[use]("hidden")
    sent = [one.send(method, params, id=5) for one in (session, other)]
    assert sent[0].body == sent[1].body
    assert "error" in json.loads(sent[0].body or b"")


def test_hidden_template_falls_through_to_the_next() -> None:
    app = Server("shop")
    app.resource("shop://{x}", name="first", visible=is_ann)(lambda x: f"first {x}")
    app.resource("shop://{y}", name="second")(lambda y: f"second {y}")
    app.resource("shop://z", name="exact", visible=is_ann)(lambda: "exact")

    def read(uri: str, peer: Peer) -> str:
        found = result(send(app, "resources/read", {"uri": uri}, peer=peer))
        text: str = found["contents"][0]["text"]
        return text

    assert (read("shop://a", ANN), read("shop://a", BOB)) == ("first a", "second a")
    assert (read("shop://z", ANN), read("shop://z", BOB)) == ("exact", "second z")


@pytest.mark.parametrize("use", USES)
def test_filter_that_fails_hides_and_is_logged(
    use: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = kinds(breaks)
    assert "error" in (reply_of(app, use, "hidden", ANN).message or {})
    assert "visible= of hidden failed: it is hidden" in caplog.text
    assert "no such user" in caplog.text
    assert "result" in (reply_of(app, use, "open", ANN).message or {})


def test_filter_of_a_server_that_fails_hides() -> None:
    def visible(feature: Any, viewer: Viewer) -> bool:
        raise KeyError("no such user")

    app = kinds(visible=visible)
    logging.getLogger("effectmcp").setLevel(logging.CRITICAL)
    try:
        assert listed(app, "tools/list", ANN) == []
        assert error(call(app, "open", peer=ANN))["message"] == "Unknown tool: open"
    finally:
        logging.getLogger("effectmcp").setLevel(logging.NOTSET)


# ---- tasks --------------------------------------------------------------------------


def test_task_of_a_tool_that_is_hidden_later_belongs_to_its_user() -> None:
    allowed = {"ann"}
    app = Server("shop", tasks=Rows())

    @app.tool(task="required", visible=lambda viewer: viewer.principal in allowed)
    def nap() -> Flow[str]:
        yield from Sleep(0)
        return "rested"

    follows = {**EVERYTHING, "extensions": {TASKS: {}}}
    id_ = result(call(app, "nap", peer=ANN, capabilities=follows))["taskId"]
    allowed.clear()
    assert "error" in (call(app, "nap", peer=ANN, capabilities=follows).message or {})
    for method in ("tasks/get", "tasks/cancel"):
        ask = partial(send, app, method, {"taskId": id_}, capabilities=follows)
        result(ask(peer=ANN))
        assert error(ask(peer=BOB))["message"] == "Task not found"


# ---- changes ------------------------------------------------------------------------

ALL: Final[Wire] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["shop://hidden", "shop://open", "hidden://x", "y"],
}


def subscribed(app: Server, peer: Peer | None) -> Mailbox:
    """The mailbox of a subscription to everything."""
    message = request("subscriptions/listen", {"notifications": ALL})
    exchange = handle(app, message, peer, clock=lambda: 5.0, entropy=bytes)
    command = next(exchange)
    assert isinstance(command, Listen)
    mailbox = Mailbox(command.subscription, lambda: None)
    app.changes.listen(mailbox.hear)
    return mailbox


def session(app: Server, who: Peer | None) -> Mailbox:
    """The mailbox of a session that is subscribed to all resources."""

    def handle_as(
        app: Server,
        message: Mapping[str, Any],
        peer: Peer | None = None,
        *,
        send: Callable[[Mapping[str, Any]], None] = lambda message: None,
    ) -> Reply:
        user = None if who is None else who.principal
        peer = attrs.evolve(peer or Peer(), principal=user)
        return sync.handle(app, message, peer, send=send)

    client = LegacyClient(app, handle=handle_as)
    for uri in ALL["resourceSubscriptions"]:
        client.result("resources/subscribe", {"uri": uri})
    mailbox = Mailbox(client.session.news, lambda: None)
    app.changes.listen(mailbox.hear)
    return mailbox


WAYS: Final[Mapping[str, Callable[[Server, Peer | None], Mailbox]]] = {
    "subscription": subscribed,
    "session": session,
}


def told(mailbox: Mailbox) -> list[str]:
    """The methods and URIs of the notifications."""
    return [
        one["params"].get("uri", one["method"].split("/")[1]) for one in mailbox.take()
    ]


@pytest.mark.parametrize("way", WAYS)
def test_changes_of_lists(way: str) -> None:
    app = kinds(is_ann)
    ann, bob = WAYS[way](app, ANN), WAYS[way](app, BOB)
    for what in ("tools", "prompts", "resources", "templates"):
        for one in list(getattr(app, what).values()):
            app.remove(one)
            expected = ["resources" if what == "templates" else what]
            assert told(ann) == expected
            assert told(bob) == (expected if one.name == "open" else [])
            app.add(one)
            assert told(ann) == expected
            assert told(bob) == (expected if one.name == "open" else [])


@pytest.mark.parametrize("way", WAYS)
def test_changes_of_resources(way: str) -> None:
    app = kinds(is_ann)
    ann, bob = WAYS[way](app, ANN), WAYS[way](app, BOB)
    for uri in ("shop://hidden", "hidden://x"):
        app.updated(uri)
        assert (told(ann), told(bob)) == ([uri], [])
    for uri in ("shop://open", "y"):  # no feature has the last one
        app.updated(uri)
        assert (told(ann), told(bob)) == ([uri], [uri])


@pytest.mark.parametrize("way", WAYS)
def test_resource_that_a_visible_template_has_too(way: str) -> None:
    app = kinds(is_ann)
    app.resource("shop://{name}", name="both")(lambda name: name)
    bob = WAYS[way](app, BOB)
    app.updated("shop://hidden")
    assert told(bob) == ["shop://hidden"]


@pytest.mark.parametrize("way", WAYS)
def test_filter_that_comes_later_counts(way: str) -> None:
    """A client may listen before there is anything to hide."""
    app = kinds()
    bob = WAYS[way](app, BOB)
    app.tool(name="own", visible=is_ann)(lambda: "x")
    assert told(bob) == []
    app.tool(name="public")(lambda: "x")
    assert told(bob) == ["tools"]


@pytest.mark.parametrize("way", WAYS)
def test_changes_that_name_no_feature_are_reported(way: str) -> None:
    app = kinds(is_ann)
    bob = WAYS[way](app, BOB)
    app.changes.publish(Change("tools"))
    assert told(bob) == ["tools"]


# ---- the law ------------------------------------------------------------------------

#: Tests of a feature, and who passes; `None` for no test.
TESTS: Final[Mapping[str, tuple[Any, Callable[[Peer], bool]]]] = {
    "none": (None, lambda peer: True),
    "ann": (is_ann, lambda peer: peer.principal == "ann"),
    "somebody": (
        lambda viewer: viewer.principal,
        lambda peer: peer.principal is not None,
    ),
    "never": (lambda viewer: [], lambda peer: False),
    "fails": (breaks, lambda peer: False),
}
#: Tests of a server, by the name of a feature.
FILTERS: Final[Mapping[str, tuple[Any, Callable[[str, Peer], bool]]]] = {
    "none": (None, lambda name, peer: True),
    "even": (
        lambda feature, viewer: int(feature.name[1:]) % 2 == 0,
        lambda name, peer: int(name[1:]) % 2 == 0,
    ),
    "odd for bob": (
        lambda feature, viewer: viewer.principal != "bob" or int(feature.name[1:]) % 2,
        lambda name, peer: peer.principal != "bob" or int(name[1:]) % 2 == 1,
    ),
}
KINDS: Final = ("tool", "prompt", "resource", "template")


def _added(app: Server, kind: str, name: str, test: Any) -> None:
    match kind:
        case "tool":
            app.tool(name=name, visible=test)(lambda: name)
        case "prompt":
            app.prompt(name=name, visible=test)(lambda: name)
        case "resource":
            app.resource(f"shop://{name}", name=name, visible=test)(lambda: name)
        case _:
            uri = f"{name}://{{x}}"
            app.resource(uri, name=name, visible=test)(lambda x: name)


def _item(kind: str, name: str) -> str:
    return {"resource": f"shop://{name}", "template": f"{name}://{{x}}"}.get(kind, name)


def _method(kind: str) -> str:
    return "resources/templates/list" if kind == "template" else f"{kind}s/list"


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Mute the log: drawn tests fail all the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(list(TESTS))), max_size=8
    ),
    st.sampled_from(list(FILTERS)),
    st.sampled_from([ANN, BOB, Peer()]),
    st.integers(1, 4),
    st.booleans(),
)
@example([("template", "ann"), ("resource", "fails")], "none", BOB, 1, True)
def test_viewer_can_call_exactly_what_it_lists(
    drawn: list[tuple[str, str]], rule: str, peer: Peer, size: int, is_legacy: bool
) -> None:
    app = Server("shop", visible=FILTERS[rule][0], page_size=size)
    named = [(kind, f"f{number}", test) for number, (kind, test) in enumerate(drawn)]
    for kind, name, test in named:
        _added(app, kind, name, TESTS[test][0])
    client = LegacyClient(app) if is_legacy else None
    if client is not None:
        client.peer = attrs.evolve(client.peer, principal=peer.principal)
    ask: Any = (
        partial(send, app, peer=peer)
        if client is None
        else lambda method, params: client.send(method, params)
    )
    for kind in KINDS:
        method = _method(kind)
        field, key = LISTS[method]
        found: list[str] = []
        cursor = None
        while any(one == kind for one, _, _ in named):
            page = ask(method, {} if cursor is None else {"cursor": cursor}).message
            found += [one[key] for one in page["result"][field]]
            cursor = page["result"].get("nextCursor")
            if cursor is None:
                break
        visible = [
            _item(kind, name)
            for one, name, test in named
            if one == kind and TESTS[test][1](peer) and FILTERS[rule][1](name, peer)
        ]
        assert found == visible
        for one, name, _ in named:
            if one == kind:
                params = USES[kind](name)[1]
                if kind == "prompt":
                    params = {"name": name}
                got = ask(USES[kind](name)[0], params).message
                assert ("result" in got) == (_item(kind, name) in visible)


def test_text_of_a_hidden_tool_reaches_its_user() -> None:
    assert text_of(result(call(kinds(is_ann), "hidden", peer=ANN))) == "done"


def of_one(viewer: Viewer) -> bool:
    return True


async def waits(*given: Any) -> bool:
    return True


def yields(*given: Any) -> Any:
    yield True


@pytest.mark.parametrize("visible", ["x", of_one, waits, yields, partial(waits, 1)])
def test_filter_that_is_not_a_plain_function(visible: Any) -> None:
    """The result of a coroutine function would always be true."""
    with pytest.raises(SchemaError, match="is not a plain function of the feature"):
        Server("shop", visible=visible)


@pytest.mark.parametrize("visible", ["x", lambda: True, waits, yields])
def test_visible_that_is_not_a_plain_function(visible: Any) -> None:
    app = Server("shop")
    with pytest.raises(SchemaError, match="is not a plain function of the viewer"):
        app.tool(name="x", visible=visible)(lambda: "x")


def test_result_that_is_neither_true_nor_false() -> None:
    """Such a result hides the feature, even if the server's own function shows it."""
    app = Server("shop", visible=lambda feature, viewer: True)
    app.tool(name="x", visible=lambda viewer: yields(viewer))(lambda: "x")
    assert result(send(app, "tools/list"))["tools"] == []
