"""`scopes=`: what a token allows is listed, and all else of the server asks for more.

The rules, from which the oracles here are written:

    listed      if the caller has every scope of the feature
    refused     with status 403 and all its scopes, if the feature exists for the caller,
                who lacks one
    unknown     if `visible=` hides the feature, with any scopes

They hold in each request of a call again, since a token may have lost a scope.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Call, Caller, Elicit, Flow, Intercepting, Server
from effectmcp.drivers.local import Mailbox
from effectmcp.effects.local import CallerInfo
from effectmcp.engine.effect_table import KINDS
from effectmcp.engine.stops import Done
from effectmcp.exchange.commands import Invoke, Listen, Peer, Reply, peer_of
from effectmcp.exchange.handle import handle
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.protocol.meta import RELATED_TASK, TASKS
from effectmcp.server.identity import Identity

from ..legacy_client import NEWEST, LegacyClient, accepts
from ..wire import (
    EVERYTHING,
    KEYS,
    Wire,
    call,
    error,
    fits_reply,
    request,
    result,
    said,
    send,
    text_of,
)
from .test_tasks import Rows
from .test_visibility import LISTS, USES, listed, pages

MODERN: Final = "2026-07-28"
DRAFT: Final = "2026-06-XX"
#: A revision of each dialect.
WIRES: Final = (MODERN, NEWEST, DRAFT)

WRITE: Final = frozenset({"orders:write"})
INVALID_REQUEST: Final = -32600


def caller(*scopes: str, name: str = "ann") -> Peer:
    """The sender of a request with a token that has these scopes."""
    return peer_of(Identity(subject=name, scopes=frozenset(scopes)))


READER, WRITER = caller("orders:read"), caller("orders:read", "orders:write")


@attrs.define
class User:
    """A client on one wire, whose token may change with each request."""

    app: Server
    wire: str
    _client: LegacyClient | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if self.wire != MODERN:
            self._client = LegacyClient(self.app, self.wire)

    def send(self, peer: Peer, method: str, params: Wire) -> Reply:
        if self._client is None:
            follows = {**EVERYTHING, "extensions": {TASKS: {}}}
            reply = send(self.app, method, params, peer=peer, capabilities=follows)
            if not method.startswith("tasks/") and reply.status != 200:
                fits_reply(method, reply)
            return reply
        session = self._client.session
        self._client.peer = attrs.evolve(peer, session=session)
        return self._client.send(method, params)


def kinds(scopes: Any = WRITE, **options: Any) -> Server:
    """A server with two features of each kind; one of the two needs scopes."""
    app = Server("shop", keys=KEYS, drafts=True, **options)
    for name, needs in (("open", ()), ("hidden", scopes)):
        app.tool(name=name, scopes=needs)(lambda: "done")
        app.prompt(name=name, scopes=needs)(lambda topic: f"about {topic}")
        app.resource(f"shop://{name}", name=name, scopes=needs)(lambda: "text")
        app.resource(f"{name}://{{x}}", name=name, scopes=needs)(lambda x: x)
    return app


def check_refused(reply: Reply, needs: frozenset[str] = WRITE) -> None:
    """Check that a reply asks for more, with all scopes at once."""
    assert (reply.status, reply.needs) == (403, needs)
    assert error(reply) == {
        "code": INVALID_REQUEST,
        "message": f"Insufficient scope: this needs {' '.join(sorted(needs))}",
    }


# ---- lists --------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("method", LISTS)
def test_lists_have_what_the_token_allows(method: str, wire: str) -> None:
    user = User(kinds(), wire)
    field, key = LISTS[method]
    for peer, count in [(WRITER, 2), (READER, 1), (WRITER, 2), (Peer(), 1)]:
        found = user.send(peer, method, {}).message
        assert found is not None
        names = [one[key] for one in found["result"][field]]
        assert len(names) == count
        assert ("hidden" in " ".join(names)) is (count == 2)


@pytest.mark.parametrize("method", LISTS)
def test_list_that_depends_on_the_token_is_private(method: str) -> None:
    """The list of a caller who sees everything is private, too: others share a cache."""
    for peer in (WRITER, READER):
        assert {one["cacheScope"] for one in pages(kinds(), method, peer)} == {
            "private"
        }
    assert {one["cacheScope"] for one in pages(kinds(()), method, READER)} == {"public"}


def test_process_that_started_the_server_may_do_everything() -> None:
    """`Peer(scopes=None)`: a pipe, and a name in memory. Without a token: nothing."""
    app = kinds()
    assert len(listed(app, "tools/list", peer_of("ann"))) == 2
    assert len(listed(app, "tools/list", peer_of(None))) == 2
    assert len(listed(app, "tools/list", Peer(principal="ann"))) == 1
    assert len(listed(app, "tools/list")) == 1
    assert text_of(result(call(app, "hidden", peer=peer_of("ann")))) == "done"
    check_refused(call(app, "hidden"))


# ---- calls --------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("use", USES)
def test_use_needs_the_scopes(use: str, wire: str) -> None:
    """Status 403 in every revision, as clients log in again for this status only."""
    user = User(kinds({"orders:write", "audit"}), wire)
    method, params = USES[use]("hidden")
    both = caller("orders:write", "audit", "more")
    for peer in (READER, WRITER, caller("audit"), Peer()):
        reply = user.send(peer, method, params)
        check_refused(reply, frozenset({"orders:write", "audit"}))
        assert "result" in (user.send(both, method, params).message or {})
        method, params = USES[use]("open")
        assert "result" in (user.send(peer, method, params).message or {})
        method, params = USES[use]("hidden")


@pytest.mark.parametrize("use", USES)
def test_hidden_feature_is_unknown_with_every_token(use: str) -> None:
    """A 403 would reveal it."""
    app = kinds(visible=lambda feature, viewer: feature.name == "open")
    empty = kinds()
    for what in ("tools", "prompts", "resources", "templates"):
        for one in list(getattr(empty, what).values()):
            if one.name == "hidden":
                empty.remove(one)
    method, params = USES[use]("hidden")
    for peer in (READER, WRITER):
        replies = [send(one, method, params, peer=peer) for one in (app, empty)]
        assert replies[0].body == replies[1].body
        assert replies[0].status == replies[1].status != 403


def test_template_that_does_not_take_a_uri_needs_no_scope_for_it() -> None:
    """The next template has it, for each caller."""
    app = Server("shop")

    @app.resource("shop://{number}", scopes=WRITE)
    def numbered(number: int) -> str:
        return f"number {number}"

    @app.resource("shop://{name}")
    def named(name: str) -> str:
        return f"name {name}"

    for peer in (READER, WRITER):
        found = result(send(app, "resources/read", {"uri": "shop://a"}, peer=peer))
        assert found["contents"][0]["text"] == "name a"
    found = result(send(app, "resources/read", {"uri": "shop://7"}, peer=WRITER))
    assert found["contents"][0]["text"] == "number 7"


def test_template_without_the_scope_leaves_a_uri_to_a_later_one() -> None:
    """If none is left, the client learns which scope the first of them needs."""
    app = Server("shop")
    app.resource("shop://{name}", scopes=WRITE)(lambda name: f"secret {name}")
    app.resource("shop://{name}.md", scopes={"audit"})(lambda name: f"more {name}")
    for uri in ("shop://a.md", "shop://a.txt"):
        check_refused(send(app, "resources/read", {"uri": uri}, peer=READER))
    app.resource("shop://{name}.txt")(lambda name: f"text {name}")
    for peer, text in ((READER, "text a"), (WRITER, "secret a.txt")):
        reply = send(app, "resources/read", {"uri": "shop://a.txt"}, peer=peer)
        assert result(reply)["contents"][0]["text"] == text
    check_refused(send(app, "resources/read", {"uri": "shop://a.md"}, peer=READER))


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize(
    ("of", "own", "scope"),
    [
        ({}, {}, "public"),
        ({}, {"scopes": {"orders:read"}}, "private"),
        ({}, {"visible": lambda viewer: True}, "private"),
        ({"visible": lambda feature, viewer: True}, {}, "private"),
    ],
)
def test_resource_for_some_users_is_private(
    of: Wire, own: Wire, scope: str, around: bool
) -> None:
    """A cache that users share would show it to others."""
    app = Server("shop", **of)
    if around:

        @app.intercept
        def look(call: Call) -> Intercepting:
            return (yield from call)

    for uri in ("shop://a", "shop://{x}"):
        app.resource(uri, scope="public", ttl=9, **own)(
            (lambda x: x) if "{" in uri else (lambda: "text")
        )
    for uri in ("shop://a", "shop://b"):
        found = result(send(app, "resources/read", {"uri": uri}, peer=READER))
        assert (found["cacheScope"], found["ttlMs"]) == (scope, 9_000)


# ---- rounds -------------------------------------------------------------------------


def order() -> Flow[str]:
    """Ask twice."""
    title = yield from Elicit("What?", str)
    count = yield from Elicit("How many?", int)
    return f"{count} x {title}"


def asking(**options: Any) -> Server:
    app = Server("shop", keys=KEYS, drafts=True, **options)
    app.tool(scopes=WRITE)(order)
    return app


def test_each_round_needs_the_scopes_again() -> None:
    """The state is not lost: with a new token the call continues."""
    app = asking()
    asked = result(call(app, "order", peer=WRITER))
    for content in ({"value": "Dune"}, {"value": 2}):
        more = {"answers": said(asked, content), "state": asked["requestState"]}
        check_refused(call(app, "order", peer=READER, **more))
        asked = result(call(app, "order", peer=WRITER, **more))
    assert text_of(asked) == "2 x Dune"


def test_each_round_of_a_draft_needs_the_scopes_again() -> None:
    user = User(asking(), DRAFT)
    params: Wire = {"name": "order", "arguments": {}}
    found = result(user.send(WRITER, "tools/call", params))
    for value in ("Dune", 2):
        (key,) = found["inputRequests"]
        content = {"action": "accept", "content": {"value": value}}
        more = {
            "inputResponses": {key: content},
            "requestState": found["requestState"],
        }
        check_refused(user.send(READER, "tools/call", {**params, **more}))
        found = result(user.send(WRITER, "tools/call", {**params, **more}))
    assert text_of(found) == "2 x Dune"


def test_state_of_another_user_is_like_a_made_up_one() -> None:
    """As if it had been made up; and the reply does not depend on its owner's scopes."""
    app = asking()
    asked = result(call(app, "order", peer=WRITER))
    bob = caller("orders:write", name="bob")
    of_another, made_up = (
        call(app, "order", peer=bob, answers=said(asked, {"value": "x"}), state=state)
        for state in (asked["requestState"], "made-up")
    )
    assert of_another.body == made_up.body
    assert of_another.status == made_up.status
    no_scope = caller(name="bob")
    check_refused(call(app, "order", peer=no_scope, state=asked["requestState"]))


def test_state_of_another_issuers_user_is_refused() -> None:
    """Two authorization servers may give one name to two people."""
    app = asking()
    one, other = (
        peer_of(Identity(subject="ann", issuer=issuer, scopes=WRITE))
        for issuer in ("https://one.example", "https://two.example")
    )
    asked = result(call(app, "order", peer=one))
    more = {"answers": said(asked, {"value": "x"}), "state": asked["requestState"]}
    assert "error" in (call(app, "order", peer=other, **more).message or {})
    assert "result" in (call(app, "order", peer=one, **more).message or {})


# ---- live answers -------------------------------------------------------------------


def test_live_answer_needs_the_scopes_of_its_tool() -> None:
    """The question stays open, so a client with a new token can send the answer again."""
    app = asking()
    client = LegacyClient(app)
    writer = attrs.evolve(WRITER, session=client.session)
    client.peer = writer
    accept = accepts({"value": "Dune"}, {"value": 2})
    refused: list[Reply] = []

    def answer(question: Wire) -> Wire | None:
        content = accept(question)
        client.peer = attrs.evolve(READER, session=client.session)
        for _ in range(2):  # after the first, the question is still open
            reply = {"jsonrpc": "2.0", "id": question["id"], **(content or {})}
            refused.append(client.reply(reply))
            check_refused(refused[-1])
        client.peer = writer
        return content

    assert text_of(client.call("order", {}, answer)) == "2 x Dune"
    assert len(refused) == 4
    for reply in refused:
        # It answers a response, which has no id of its own.
        assert "id" not in json.loads(reply.body or b"")


def test_live_answer_to_a_tool_without_scopes_needs_none() -> None:
    app = asking()
    app.tool(name="free")(order)
    client = LegacyClient(app)
    client.peer = attrs.evolve(READER, session=client.session)
    answer = accepts({"value": "Dune"}, {"value": 2})
    assert text_of(client.call("free", {}, answer)) == "2 x Dune"


# ---- tasks --------------------------------------------------------------------------

#: By wire: the methods that follow a task.
FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    MODERN: ("tasks/get", "tasks/update", "tasks/cancel"),
    NEWEST: ("tasks/get", "tasks/result", "tasks/cancel"),
    DRAFT: ("tasks/get", "tasks/result", "tasks/input_response", "tasks/cancel"),
}
FOLLOWING = [(wire, method) for wire, methods in FOLLOWS.items() for method in methods]


def nap() -> Flow[str]:
    """Ask, in a task."""
    return (yield from Elicit("Rested?", str))


def tasked() -> tuple[Server, Rows]:
    """A server with a tool that is a task."""
    host = Rows()
    app = Server("shop", keys=KEYS, tasks=host, drafts=True)
    app.tool(name="nap", task="optional", scopes=WRITE)(nap)
    app.tool(name="free", task="optional")(nap)
    return app, host


def started(user: User, peer: Peer, name: str = "nap") -> str:
    params: Wire = {"name": name, "arguments": {}}
    if user.wire != MODERN:
        params["task"] = {}
    found = result(user.send(peer, "tools/call", params))
    id_: str = found.get("task", found)["taskId"]
    return id_


def about(method: str, id_: str) -> Wire:
    more: Wire = (
        {"inputResponses": {}} if "inputResponses" in _TAKES.get(method, ()) else {}
    )
    meta = {"_meta": {RELATED_TASK: {"taskId": id_}}} if method == _DRAFTED else {}
    return {"taskId": id_, **more, **meta}


_DRAFTED: Final = "tasks/input_response"
_TAKES: Final = {"tasks/update": ("inputResponses",), _DRAFTED: ("inputResponses",)}


@pytest.mark.parametrize(("wire", "method"), FOLLOWING)
def test_task_needs_the_scopes_of_its_tool(wire: str, method: str) -> None:
    app, host = tasked()
    user = User(app, wire)
    check_refused(user.send(READER, "tools/call", {"name": "nap"}))
    id_ = started(user, WRITER)
    check_refused(user.send(READER, method, about(method, id_)))
    assert host.mail == []
    # With them, and for tools without scopes.
    if method == "tasks/get":
        assert "result" in (user.send(WRITER, method, about(method, id_)).message or {})
        free = started(user, READER, "free")
        assert "result" in (
            user.send(READER, method, about(method, free)).message or {}
        )


@pytest.mark.parametrize(("wire", "method"), FOLLOWING)
def test_task_of_another_user_is_not_found(wire: str, method: str) -> None:
    """A 403 would tell a stranger that there is one."""
    app, _ = tasked()
    user = User(app, wire)
    id_ = started(user, WRITER)
    for bob in (caller(name="bob"), caller("orders:write", name="bob")):
        found, unknown = (
            error(user.send(bob, method, about(method, one))) for one in (id_, "none")
        )
        assert found == unknown
        assert found["message"] == "Task not found"


@pytest.mark.parametrize("wire", [NEWEST, DRAFT])
def test_list_of_tasks_has_what_the_token_allows(wire: str) -> None:
    app, _ = tasked()
    app.page_size = 2
    user = User(app, wire)
    ids = {started(user, WRITER, name) for name in ("nap", "free", "nap", "nap")}
    free = started(user, READER, "free")

    def found(peer: Peer) -> list[str]:
        ids, params = [], dict[str, Any]()
        while True:
            page = result(user.send(peer, "tasks/list", params))
            ids += [one["taskId"] for one in page["tasks"]]
            if "nextCursor" not in page:
                return ids
            params = {"cursor": page["nextCursor"]}

    assert {*found(WRITER)} == {*ids, free}
    assert free in found(READER)
    assert len(found(READER)) == 2
    assert found(caller("orders:write", name="bob")) == []


def test_task_of_a_tool_that_is_gone_belongs_to_its_user() -> None:
    app, _ = tasked()
    user = User(app, MODERN)
    id_ = started(user, WRITER)
    app.remove(app.tools["nap"])
    assert "result" in (user.send(READER, "tasks/get", {"taskId": id_}).message or {})


# ---- subscriptions ------------------------------------------------------------------

ALL: Final[Wire] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["shop://hidden", "shop://open"],
}


def subscribed(app: Server, peer: Peer, **wanted: Any) -> Any:
    """The subscription of a client of 2026-07-28."""
    follows = {**EVERYTHING, "extensions": {TASKS: {}}}
    params = {"notifications": {**ALL, **wanted}}
    message = request("subscriptions/listen", params, capabilities=follows)
    exchange = handle(app, message, peer, clock=lambda: 5.0, entropy=bytes)
    command: Any = next(exchange)
    while not isinstance(command, Listen):
        assert isinstance(command, Invoke)  # to read tasks
        command = exchange.send(Done(command.function(**command.kwargs)))
    return command.subscription


def mailbox(app: Server, source: Any) -> Mailbox:
    found = Mailbox(source, lambda: None)
    app.changes.listen(found.hear)
    return found


def told(found: Mailbox) -> list[str]:
    return [
        one["params"].get("uri", one["method"].split("/")[1]) for one in found.take()
    ]


def of_session(app: Server, peer: Peer) -> tuple[User, Mailbox]:
    user = User(app, NEWEST)
    for uri in ALL["resourceSubscriptions"]:
        user.send(peer, "resources/subscribe", {"uri": uri})
    user.send(peer, "tools/list", {})
    assert user._client is not None
    return user, mailbox(app, user._client.session.news)


@pytest.mark.parametrize("wire", [MODERN, NEWEST])
def test_changes_of_what_the_token_allows(wire: str) -> None:
    app = kinds()
    if wire == MODERN:
        both = [mailbox(app, subscribed(app, one)) for one in (WRITER, READER)]
    else:
        both = [of_session(app, one)[1] for one in (WRITER, READER)]
    writer, reader = both
    for what in ("tools", "prompts", "resources", "templates"):
        for one in list(getattr(app, what).values()):
            app.remove(one)
            app.add(one)
            expected = ["resources" if what == "templates" else what] * 2
            assert {*told(writer)} == {*expected}
            assert {*told(reader)} == ({*expected} if one.name == "open" else set())
    app.updated("shop://hidden")
    assert (told(writer), told(reader)) == (["shop://hidden"], [])
    app.updated("shop://open")
    assert (told(writer), told(reader)) == (["shop://open"], ["shop://open"])


def test_session_follows_the_token_of_its_latest_request() -> None:
    """A token may have lost a scope since `initialize`, or gained one by another login."""
    app = kinds()
    user, news = of_session(app, READER)
    for peer, expected in [(WRITER, ["shop://hidden"]), (READER, []), (Peer(), [])]:
        user.send(peer, "tools/list", {})
        app.updated("shop://hidden")
        assert told(news) == expected


def test_session_that_begins_with_a_token_follows_its_scopes() -> None:
    """Before its first request, too."""
    app = kinds()
    for peer, expected in [(WRITER, ["tools"]), (READER, [])]:
        message = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": NEWEST,
                "capabilities": {},
                "clientInfo": {"name": "old", "version": "1"},
            },
        }
        opened = _ended(handle(app, message, peer, clock=lambda: 5.0, entropy=bytes))
        assert opened.opened is not None
        news = mailbox(app, opened.opened.news)
        hidden = app.tools["hidden"]
        app.remove(hidden)
        assert told(news) == expected
        app.add(hidden)


def _ended(exchange: Any) -> Reply:
    with pytest.raises(StopIteration) as end:
        next(exchange)
    reply: Reply = end.value.value
    return reply


def test_subscription_to_tasks_has_what_the_token_allows() -> None:
    app, _ = tasked()
    user = User(app, MODERN)
    one, free = started(user, WRITER), started(user, WRITER, "free")
    for peer, ids in [
        (WRITER, [one, free]),
        (READER, [free]),
        (caller("orders:write", name="bob"), []),
    ]:
        params = subscribed(app, peer, taskIds=[one, free]).acknowledgement["params"]
        assert params["notifications"].get("taskIds", []) == ids


# ---- the law ------------------------------------------------------------------------

SCOPES: Final = ("a", "b", "c")
FEATURES: Final = ("tool", "prompt", "resource", "template")
DRAWN_SCOPES = st.frozensets(st.sampled_from(SCOPES), max_size=3)


def _added(app: Server, kind: str, name: str, **options: Any) -> None:
    match kind:
        case "tool":
            app.tool(name=name, **options)(lambda: name)
        case "prompt":
            app.prompt(name=name, **options)(lambda topic="": name)
        case "resource":
            app.resource(f"shop://{name}", name=name, **options)(lambda: name)
        case _:
            app.resource(f"{name}://{{x}}", name=name, **options)(lambda x: name)


def _item(kind: str, name: str) -> str:
    return {"resource": f"shop://{name}", "template": f"{name}://{{x}}"}.get(kind, name)


def _uses(kind: str) -> Iterator[str]:
    """The uses of a kind: to call it, and to complete its arguments."""
    yield kind
    if kind in ("prompt", "template"):
        yield f"completion of a {kind}"


@given(
    features=st.lists(
        st.tuples(st.sampled_from(FEATURES), DRAWN_SCOPES, st.booleans()), max_size=6
    ),
    has=st.none() | DRAWN_SCOPES,
    wire=st.sampled_from(WIRES),
    size=st.integers(1, 3),
)
@example([("tool", frozenset("ab"), True)], frozenset("a"), NEWEST, 1)
@example([("template", frozenset("a"), False)], frozenset(), MODERN, 1)
def test_law_of_scopes(
    features: list[tuple[str, frozenset[str], bool]],
    has: frozenset[str] | None,
    wire: str,
    size: int,
) -> None:
    """The rules at the top of this module."""
    app = Server("shop", page_size=size, drafts=True)
    named = [(*one, f"f{number}") for number, one in enumerate(features)]
    for kind, needs, is_seen, name in named:
        _added(
            app,
            kind,
            name,
            scopes=needs,
            visible=lambda viewer, is_seen=is_seen: is_seen,
        )
    user = User(app, wire)
    ask = partial(user.send, Peer(principal="ann", scopes=has))
    for kind in {kind: None for kind, *_ in named}:
        method = "resources/templates/list" if kind == "template" else f"{kind}s/list"
        field, key = LISTS[method]
        found: list[str] = []
        params: Wire = {}
        while True:
            page = result(ask(method, params))
            found += [one[key] for one in page[field]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert found == [
            _item(kind, name)
            for one, needs, is_seen, name in named
            if one == kind and is_seen and (has is None or needs <= has)
        ]
    for kind, needs, is_seen, name in named:
        for use in _uses(kind):
            reply = ask(*USES[use](name))
            if not is_seen:
                assert (reply.status == 403, reply.needs) == (False, frozenset())
                assert "error" in (reply.message or {})
            elif has is None or needs <= has:
                assert reply.status == 200
                assert "result" in (reply.message or {})
            else:
                check_refused(reply, needs)


# ---- what a handler learns ----------------------------------------------------------


def test_handler_learns_who_calls() -> None:
    """A handler reads the claims in `shown_claims` only: other claims are not recorded."""
    app = Server("shop", keys=KEYS)
    seen: list[CallerInfo] = []

    @app.tool
    def whoami() -> Flow[str]:
        seen.append((yield from Caller()))
        return (yield from Elicit("Who?", str))

    ann = Identity(
        subject="ann",
        issuer="https://idp.example",
        tenant="acme",
        scopes=frozenset({"b", "a"}),
        claims={"team": "t", "secret": "s"},
        shown_claims={"team": "t"},
    )
    result(call(app, "whoami", peer=peer_of(ann)))
    (info,) = seen
    assert info.principal == ann.principal == "https://idp.example ann acme"
    assert (info.issuer, info.subject, info.tenant) == (
        "https://idp.example",
        "ann",
        "acme",
    )
    assert (info.scopes, info.claims) == (("a", "b"), {"team": "t"})


def test_handler_learns_who_began_the_call() -> None:
    """`Caller()` is recorded, so a later token does not change its value."""
    app = Server("shop", keys=KEYS)
    seen: list[tuple[str, ...]] = []

    @app.tool
    def whoami() -> Flow[str]:
        seen.append((yield from Caller()).scopes)
        return (yield from Elicit("Who?", str))

    asked = result(call(app, "whoami", peer=WRITER))
    more = {"answers": said(asked, {"value": "x"}), "state": asked["requestState"]}
    result(call(app, "whoami", peer=READER, **more))
    assert seen == [("orders:read", "orders:write")] * 2


#: What an older version has recorded.
OLD: Final = (
    b'{"client":null,"era":"modern","flow_id":"00","principal":"ann",'
    b'"progress_token":null,"protocol_version":"2026-07-28"}'
)


def test_callers_of_older_states_are_read() -> None:
    kind = KINDS[Caller]
    found = kind.read(Caller(), OLD)
    assert isinstance(found, CallerInfo)
    assert (found.principal, found.subject, found.scopes, found.claims) == (
        "ann",
        None,
        (),
        {},
    )
    # What has nothing new is written as before, and older processes can read it.
    assert kind.write(Caller(), found) == OLD


def test_tasks_of_older_versions_are_read() -> None:
    app, host = tasked()
    id_ = started(User(app, MODERN), WRITER)
    row = host.rows[id_]
    plain = json.loads(row.dumps())
    assert plain["caller"]["scopes"] == ["orders:read", "orders:write"]
    assert TaskRow.loads(row.dumps(), row.journal).caller == row.caller
    for name in ("issuer", "subject", "tenant", "scopes", "claims"):
        plain["caller"].pop(name, None)
    old = TaskRow.loads(json.dumps(plain).encode(), row.journal).caller
    assert (old.principal, old.scopes) == ("ann", ())
