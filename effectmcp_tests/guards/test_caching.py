"""Cached results: what is kept, for which users, how long, and how much of it."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import (
    Call,
    Elicit,
    Finished,
    Flow,
    Intercepting,
    Server,
    ToolError,
)
from effectmcp.content import ToolResult
from effectmcp.drivers import sync
from effectmcp.errors import UsageError
from effectmcp.exchange.commands import Peer, peer_of
from effectmcp.guards import cache_results
from effectmcp.protocol.jsonrpc import encode
from effectmcp.server.identity import Identity

from ..legacy_client import LegacyClient
from ..wire import KEYS, call, request, result, send, text_of

ANN = Peer(principal="ann")
BOB = Peer(principal="bob")


@define(eq=False)
class Shop:
    """A server whose handlers count how often they ran.

    Attributes:
        now: The time of the cache.
        ran: What ran, in order.
    """

    options: dict[str, Any] = field(factory=dict)
    now: float = 0.0
    ran: list[str] = field(factory=list)
    app: Server = field(init=False)

    def __attrs_post_init__(self) -> None:
        app = self.app = Server("shop", keys=KEYS)
        options = {"ttl": 60, "clock": lambda: self.now, **self.options}
        app.intercept(cache_results(**options))

        @app.tool
        def add(one: Any = 0, two: Any = 0) -> str:
            self.ran.append("add")
            return f"{len(self.ran)}: {one} and {two}"

        @app.tool
        async def later(one: Any = 0) -> str:
            self.ran.append("later")
            return f"{len(self.ran)}: {one}"

        @app.tool
        def fail() -> str:
            self.ran.append("fail")
            raise ToolError("sold out")

        @app.tool
        def fail_politely() -> ToolResult:
            self.ran.append("fail_politely")
            return ToolResult("sold out", is_error=True)

        @app.tool
        def ask() -> Flow[str]:
            self.ran.append("ask")
            return (yield from Elicit("Who?", str, key="who"))

        @app.prompt
        def review(book: str = "x") -> str:
            self.ran.append("review")
            return f"{len(self.ran)}: {book}"

        @app.resource("shop://books/{title}")
        def book(title: str) -> str:
            self.ran.append("book")
            return f"{len(self.ran)}: {title}"

    def add(self, peer: Peer | None = None, **more: Any) -> str:
        """The text of `add`."""
        return text_of(result(call(self.app, "add", arguments=more, peer=peer)))


def test_a_result_is_used_again() -> None:
    shop = Shop()
    assert [shop.add(one=1) for _ in range(3)] == ["1: 1 and 0"] * 3
    assert shop.ran == ["add"]


def test_other_arguments_are_another_call() -> None:
    """A different order of the same arguments is the same call."""
    shop = Shop()
    shop.add(one=1, two=2)
    shop.add(two=2, one=1)
    assert shop.ran == ["add"]
    for arguments in ({"one": 1}, {"one": "1"}, {"one": 1.0}, {"one": True}, {}):
        shop.add(**arguments)
    assert shop.ran == ["add"] * 6


def test_a_result_is_used_as_long_as_its_ttl() -> None:
    shop = Shop()
    shop.add()
    shop.now = 59.999
    assert shop.add() == "1: 0 and 0"
    shop.now = 60
    assert shop.add() == "2: 0 and 0"
    shop.now = 119
    assert shop.add() == "2: 0 and 0"


def test_each_user_has_results_of_his_own() -> None:
    shop = Shop()
    assert [shop.add(peer) for peer in (ANN, BOB, None, ANN)] == [
        "1: 0 and 0",
        "2: 0 and 0",
        "3: 0 and 0",
        "1: 0 and 0",
    ]


def test_each_program_of_a_user_has_results_of_its_own() -> None:
    """A handler may look at the client that calls."""
    shop = Shop()
    for name in ("desk", "phone", "desk"):
        call(shop.app, "add", peer=ANN, client={"name": name, "version": "1"})
    assert shop.ran == ["add", "add"]


def test_key_has_the_identity_of_the_user() -> None:
    """A handler can read it, and a new token may say something else."""
    shop = Shop()
    one = Identity(subject="ann", issuer="https://one.example", shown_claims={"a": 1})
    changes: list[dict[str, Any]] = [
        {"scopes": {"orders"}},
        {"shown_claims": {"a": 2}},
        {"issuer": "https://two.example"},
        {"tenant": "acme"},
    ]
    others = [attrs.evolve(one, **change) for change in changes]
    for _ in range(2):
        for identity in (one, *others, attrs.evolve(one, claims={"b": 3})):
            # A host may give one name to several of them.
            shop.add(attrs.evolve(peer_of(identity), principal="ann"))
    assert shop.ran == ["add"] * 5
    shared = Shop({"shared": True})
    for identity in (one, *others):
        shared.add(peer_of(identity))
    assert shared.ran == ["add"]


def test_claims_without_a_digest_pass_through() -> None:
    shop = Shop()
    for _ in range(2):
        shop.add(peer_of(Identity(subject="ann", shown_claims={"a": math.nan})))
    assert shop.ran == ["add"] * 2


def test_all_users_share_results_if_they_may() -> None:
    shop = Shop({"shared": True})
    assert {shop.add(peer) for peer in (ANN, BOB, None)} == {"1: 0 and 0"}


def test_revisions_do_not_share_results() -> None:
    shop = Shop({"shared": True})
    shop.add()
    LegacyClient(shop.app).call("add")
    LegacyClient(shop.app).call("add")
    assert shop.ran == ["add", "add"]


@pytest.mark.parametrize("name", ["fail", "fail_politely"])
def test_errors_are_not_kept(name: str) -> None:
    shop = Shop()
    for _ in range(2):
        assert result(call(shop.app, name))["isError"] is True
    assert shop.ran == [name] * 2


def test_flows_pass_through() -> None:
    shop = Shop()
    for _ in range(2):
        assert "inputRequests" in result(call(shop.app, "ask"))
    assert shop.ran == ["ask"] * 2


def test_async_functions() -> None:
    shop = Shop()
    message = request("tools/call", {"name": "later"})
    for _ in range(2):
        reply = sync.handle(shop.app, message, run_async=asyncio.run)
        assert text_of(result(reply)) == "1: 0"


def test_prompts_and_resources() -> None:
    shop = Shop()
    for _ in range(2):
        got = result(send(shop.app, "prompts/get", {"name": "review"}))
        assert got["messages"][0]["content"]["text"] == "1: x"
    for title in ("emma", "dune", "emma"):
        got = result(send(shop.app, "resources/read", {"uri": f"shop://books/{title}"}))
        assert got["contents"][0]["text"].endswith(title)
    assert shop.ran == ["review", "book", "book"]


def test_names_of_two_kinds_are_apart() -> None:
    shop = Shop()
    shop.app.tool(name="review")(lambda: "a tool")
    send(shop.app, "prompts/get", {"name": "review", "arguments": {}})
    assert text_of(result(call(shop.app, "review", arguments={}))) == "a tool"


@pytest.mark.parametrize("depth", [1, 60, 63])
def test_arguments_without_a_digest_pass_through(depth: int) -> None:
    """Arguments may be as deep as a digest at most: with what is around them, too deep."""
    shop = Shop()
    one: Any = 5
    for _ in range(depth):
        one = [one]
    for _ in range(2):
        assert "isError" not in result(call(shop.app, "add", arguments={"one": one}))
    assert len(shop.ran) == (2 if depth == 63 else 1)


def test_what_a_handler_keeps_and_changes_is_not_changed_in_the_cache() -> None:
    shop = Shop()
    stock = {"emma": 1}

    @shop.app.tool
    def count() -> dict[str, int]:
        return stock

    before = result(call(shop.app, "count"))
    stock["emma"] = 2
    assert result(call(shop.app, "count")) == before


def test_what_an_interceptor_changes_in_place_is_not_changed_in_the_cache() -> None:
    """Neither while a result is stored, nor after it was read from the cache."""
    ran: list[int] = []

    def outside(call: Call) -> Intercepting:
        outcome = yield from call
        assert isinstance(outcome, Finished)
        content: Any = outcome.fields["content"]
        content[0]["text"] += "!"
        content.append({"type": "text", "text": "more"})
        fields: Any = outcome.fields
        fields["_meta"] = {"seen": True}
        return outcome

    app = Server("shop")

    @app.tool(interceptors=[outside, cache_results(60)])
    def greet() -> str:
        ran.append(1)
        return "Hello"

    replies = [result(call(app, "greet")) for _ in range(4)]
    assert ran == [1]
    assert replies[1:] == replies[:1] * 3
    assert [one["text"] for one in replies[0]["content"]] == ["Hello!", "more"]


# ---- memory -------------------------------------------------------------------------


def sized(size: int) -> str:
    """The name of a book whose result has that many bytes."""
    empty = len(encode({"content": [{"type": "text", "text": ""}]}))
    return "x" * (size - empty)


def keeping(memory: int) -> tuple[Server, list[str]]:
    """A server whose tool returns a string of some size, and the keys it ran for."""
    ran: list[str] = []
    app = Server("shop")

    @app.tool(interceptors=[cache_results(60, memory=memory)])
    def read(key: str, size: int) -> str:
        ran.append(key)
        return sized(size)

    return app, ran


def read(app: Server, key: str, size: int = 100) -> None:
    assert "isError" not in result(
        call(app, "read", arguments={"key": key, "size": size})
    )


def test_the_least_recently_used_result_goes_first() -> None:
    app, ran = keeping(800)
    for key in "abcdefgh":
        read(app, key)
    read(app, "a")
    assert ran == [*"abcdefgh"]
    read(app, "i")  # in the place of "b"
    read(app, "a")
    assert ran == [*"abcdefghi"]
    read(app, "b")  # in the place of "c"
    assert ran == [*"abcdefghib"]
    for key in "defgh":
        read(app, key)
    assert ran == [*"abcdefghib"]
    read(app, "c")
    assert ran == [*"abcdefghibc"]


@pytest.mark.parametrize(("size", "times"), [(100, 1), (101, 2)])
def test_a_large_result_is_not_kept(size: int, times: int) -> None:
    app, ran = keeping(800)
    read(app, "a", size)
    read(app, "a", size)
    assert ran == ["a"] * times


@pytest.mark.parametrize(
    ("ttl", "memory"),
    [(0, 1), (-1, 1), (float("nan"), 1), (1, 0), (1, -1), (1, 1.5), (1, True)],
)
def test_caches_that_keep_nothing(ttl: float, memory: Any) -> None:
    with pytest.raises(UsageError, match="give more than 0 seconds"):
        cache_results(ttl, memory=memory)


@define
class Kept:
    """The rules of a cache, for the test: what is kept, the last used last."""

    memory: int
    ttl: int
    kept: OrderedDict[str, tuple[int, int, int]] = field(factory=OrderedDict)

    def used(self, key: str, size: int, now: int, number: int) -> int:
        """Return the number of the call whose result is used."""
        found = self.kept.pop(key, None)
        if found is not None and found[0] > now:
            self.kept[key] = found
            return found[2]
        if size * 8 <= self.memory:
            self.kept[key] = now + self.ttl, size, number
            while sum(each for _, each, _ in self.kept.values()) > self.memory:
                self.kept.popitem(last=False)
        return number


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefghijkl"), st.integers(60, 120), st.integers(0, 9)
        ),
        max_size=60,
    )
)
@example([("a", 60, 0), ("a", 60, 9), ("a", 60, 9)])
@example([(one, 100, 0) for one in "abcdefgha"] + [("a", 100, 9), ("a", 100, 1)])
def test_a_cache_against_its_rules(uses: list[tuple[str, int, int]]) -> None:
    """Which results are used: by key, time, size and order of use."""
    now = 0
    size = 0
    ran = 0
    app = Server("shop")
    options: Mapping[str, Any] = {"memory": 800, "clock": lambda: float(now)}

    @app.tool(interceptors=[cache_results(10, **options)])
    def read(key: str) -> str:
        return f"{ran:03}" + sized(size)[3:]

    kept = Kept(800, 10)
    for ran, (key, size, pause) in enumerate(uses):
        now += pause
        text = text_of(result(call(app, "read", arguments={"key": key})))
        assert int(text[:3]) == kept.used(key, size, now, ran)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@example({"é\u2028": [1e22, -0.0, 2**53 + 1]})
def test_a_result_from_the_cache_is_the_result(value: Any) -> None:
    """Every value that can be sent is sent in the same bytes again."""
    app = Server("shop")

    @app.tool(interceptors=[cache_results(60)])
    def give() -> Any:
        return value

    first, second = (call(app, "give") for _ in range(2))
    assert first.body == second.body
    assert json.loads(first.body or "") == first.message or value != value


def test_what_an_inner_interceptor_answers_is_kept() -> None:
    answers = iter("ab")

    def answer(call: Call) -> Intercepting:
        outcome = yield from call
        assert isinstance(outcome, Finished)
        return attrs.evolve(
            outcome, fields={"content": [], "_meta": {"n": next(answers)}}
        )

    app = Server("shop")
    app.tool(name="x", interceptors=[cache_results(60), answer])(lambda: "x")
    metas = [result(call(app, "x"))["_meta"]["n"] for _ in range(3)]
    assert metas == ["a", "a", "a"]


def test_a_number_of_results_is_kept() -> None:
    app, ran = Server("shop"), []

    @app.tool(interceptors=[cache_results(60, most=2)])
    def price(title: str) -> str:
        ran.append(title)
        return "9.99"

    for title in ("a", "b", "c", "c", "b", "a"):
        result(call(app, "price", arguments={"title": title}))
    assert ran == ["a", "b", "c", "a"]


def test_a_tool_that_was_replaced() -> None:
    """The results of the old tool are not returned for the new tool."""
    app, cached = Server("shop"), cache_results(60)
    app.tool(name="price", interceptors=[cached])(lambda: "old")
    assert text_of(result(call(app, "price"))) == "old"
    app.remove(app.tools["price"])
    app.tool(name="price", interceptors=[cached])(lambda: "new")
    assert text_of(result(call(app, "price"))) == "new"
