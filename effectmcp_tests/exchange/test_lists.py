from __future__ import annotations

import base64
import enum
import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import Choices, ProtocolError
from effectmcp.exchange.lists import (
    capabilities_of,
    discover,
    find_completion,
    list_page,
    suggestions,
)
from effectmcp.server import Server

from ..wire import fits


def shop(count: int = 5, **options: Any) -> Server:
    """A server with `count` tools, `t0` to `t4`."""
    app = Server("shop", **options)
    for number in range(count):
        app.tool(name=f"t{number}")(lambda: "x")
    return app


def names(page: dict[str, Any]) -> list[str]:
    return [one["name"] for one in page["tools"]]


# ---- discovery ----


def test_capabilities_depend_on_the_features() -> None:
    app = Server("shop")
    assert capabilities_of(app) == {"logging": {}}
    app.tool(name="t")(lambda: "x")
    assert capabilities_of(app) == {"logging": {}, "tools": {"listChanged": True}}
    app.resource("shop://x", name="x")(lambda: "x")
    resources = {"listChanged": True, "subscribe": True}
    assert capabilities_of(app)["resources"] == resources
    assert "completions" not in capabilities_of(app)
    app.prompt(name="p")(lambda: "x")
    assert set(capabilities_of(app)) == {
        *("logging", "tools", "resources", "prompts", "completions"),
    }
    fits("ServerCapabilities", capabilities_of(app))


def test_capabilities_of_a_template_alone() -> None:
    app = Server("shop")
    app.resource("shop://{x}", name="x")(lambda x: x)
    assert set(capabilities_of(app)) == {"logging", "resources", "completions"}


def test_discover() -> None:
    assert discover(shop(0, ttl=1.5, instructions="Ask.")) == {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"logging": {}},
        "ttlMs": 1500,
        "cacheScope": "public",
        "instructions": "Ask.",
    }
    assert "instructions" not in discover(shop(0))


# ---- pages ----


def test_list_of_one_page() -> None:
    page = list_page(shop(), "tools/list", {})
    assert names(page) == ["t0", "t1", "t2", "t3", "t4"]
    assert "nextCursor" not in page
    assert (page["ttlMs"], page["cacheScope"]) == (60_000, "public")
    assert list_page(shop(), "tools/list", {"cursor": None}) == page


def test_list_of_nothing() -> None:
    for method, field in (
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ):
        assert list_page(shop(), method, {})[field] == []


def pages(app: Server) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = list_page(app, "tools/list", {"cursor": cursor})
        found.append(names(page))
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


def test_list_of_several_pages() -> None:
    assert pages(shop(5, page_size=2)) == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert pages(shop(4, page_size=2)) == [["t0", "t1"], ["t2", "t3"]]
    assert pages(shop(1, page_size=1)) == [["t0"]]


def test_page_continues_where_the_last_ended() -> None:
    """Even if items before it were added and removed meanwhile."""
    app = shop(5, page_size=2)
    cursor = list_page(app, "tools/list", {})["nextCursor"]
    app.remove(app.tools["t0"])
    assert names(list_page(app, "tools/list", {"cursor": cursor})) == ["t2", "t3"]


def test_page_whose_last_item_was_removed() -> None:
    """Then its place has to do."""
    app = shop(5, page_size=2)
    cursor = list_page(app, "tools/list", {})["nextCursor"]
    app.remove(app.tools["t1"])
    assert names(list_page(app, "tools/list", {"cursor": cursor})) == ["t3", "t4"]
    for name in list(app.tools):
        app.remove(app.tools[name])
    assert names(list_page(app, "tools/list", {"cursor": cursor})) == []


def cursor_of(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ä",
        5,
        True,
        [],
        {},
        cursor_of(5),
        cursor_of([]),
        cursor_of(["tools/list", 0]),
        cursor_of(["prompts/list", 2, "t1"]),
        cursor_of(["tools/list", "2", "t1"]),
        cursor_of(["tools/list", True, "t1"]),
        cursor_of(["tools/list", 2, 1]),
        "/" * 5_000,
    ],
)
def test_cursor_that_the_server_did_not_issue(cursor: Any) -> None:
    with pytest.raises(ProtocolError, match="no such cursor") as caught:
        list_page(shop(), "tools/list", {"cursor": cursor})
    assert caught.value.code == -32602


@pytest.mark.parametrize(("place", "shown"), [(-3, 5), (99, 0), (2, 3)])
def test_cursor_whose_item_is_missing_uses_its_place(place: int, shown: int) -> None:
    cursor = cursor_of(["tools/list", place, "gone"])
    assert len(names(list_page(shop(), "tools/list", {"cursor": cursor}))) == shown


@given(st.text() | st.binary().map(lambda data: base64.b64encode(data).decode()))
def test_any_cursor_is_a_page_or_refused(cursor: str) -> None:
    try:
        list_page(shop(), "tools/list", {"cursor": cursor})
    except ProtocolError as exc:
        refusal = exc.code
    else:
        refusal = -32602
    assert refusal == -32602


# ---- completion ----


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def prompts() -> Server:
    app = Server("shop")

    @app.prompt
    def paint(
        colour: Colour,
        size: Literal["small", "big", 5] = "small",
        second: Colour | None = None,
        number: Literal[1, 2] = 1,
        flag: Literal[True, "maybe"] = True,
        name: str = "",
    ) -> str:
        return ""

    @app.resource("shop://{colour}")
    def of(colour: Colour) -> str:
        return ""

    return app


def found(argument_name: str, value: str = "", /, **params: Any) -> Any:
    return find_completion(
        prompts(),
        {
            "ref": {"type": "ref/prompt", "name": "paint"},
            "argument": {"name": argument_name, "value": value},
            **params,
        },
    )


@pytest.mark.parametrize(
    ("argument", "choices"),
    [
        ("colour", ["red", "blue"]),
        ("second", ["red", "blue"]),
        ("size", ["small", "big", "5"]),
        ("number", ["1", "2"]),
        ("flag", ["maybe"]),
        ("name", []),
    ],
)
def test_completion_of_choices(argument: str, choices: list[str]) -> None:
    assert found(argument, "x") == (choices, "x", {})


def test_completion_of_choices_with_titles() -> None:
    app = Server("shop")

    @app.prompt
    def paint(
        colour: Annotated[Literal["r", "b"], Choices({"r": "Red", "b": "Blue"})],
    ) -> str:
        return colour

    params = {
        "ref": {"type": "ref/prompt", "name": "paint"},
        "argument": {"name": "colour", "value": ""},
    }
    assert find_completion(app, params)[0] == ["r", "b"]


def test_completion_of_a_template() -> None:
    ref = {"type": "ref/resource", "uri": "shop://{colour}"}
    assert found("colour", ref=ref) == (["red", "blue"], "", {})


@pytest.mark.parametrize(
    ("context", "filled"),
    [
        (None, {}),
        ([], {}),
        ({}, {}),
        ({"arguments": []}, {}),
        ({"arguments": {"a": "1", "b": 2}}, {"a": "1"}),
    ],
)
def test_completion_with_a_context(context: Any, filled: Any) -> None:
    assert found("colour", context=context)[2] == filled


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"ref": None}, "ref and argument are required"),
        ({"argument": "x"}, "ref and argument are required"),
        ({"ref": {"type": "ref/tool"}}, 'ref.type is "ref/prompt"'),
        ({"ref": {"type": "ref/prompt", "name": "x"}}, "no 'x' to complete"),
        ({"ref": {"type": "ref/prompt", "name": []}}, r"no \[\] to complete"),
        ({"ref": {"type": "ref/resource", "uri": "x"}}, "no 'x' to complete"),
        ({"argument": {"name": "colour"}}, "a name and a value"),
        ({"argument": {"name": 5, "value": ""}}, "a name and a value"),
        ({"argument": {"name": "x", "value": ""}}, "'paint' takes no 'x'"),
    ],
)
def test_completion_of_nothing(params: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        found("colour", **params)
    assert caught.value.code == -32602


def test_suggestions_begin_with_the_typed_prefix() -> None:
    def values(text: str) -> Any:
        return suggestions(["Red", "blue", "red"], text)["completion"]["values"]

    assert values("") == ["Red", "blue", "red"]
    assert values("re") == values("RE") == ["Red", "red"]
    assert values("x") == []


def test_suggestions_that_are_a_string_are_refused() -> None:
    """A string would be taken letter by letter."""
    with pytest.raises(TypeError, match="a list of strings, not 'red'"):
        suggestions("red", "")


def test_suggestions_are_a_hundred_at_most() -> None:
    found = suggestions([f"v{n}" for n in range(101)], "")["completion"]
    assert len(found["values"]) == 100
    assert (found["total"], found["hasMore"]) == (101, True)
    fits("CompleteResult", {"completion": found, "resultType": "complete"})
    found = suggestions(["v"] * 100, "")["completion"]
    assert (found["total"], found["hasMore"]) == (100, False)
