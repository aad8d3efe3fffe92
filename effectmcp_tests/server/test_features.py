from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

import pytest

from effectmcp import Elicit, Flow, Sample, SchemaError, Server, Title
from effectmcp.content import Annotations, Icon, Image, ToolResult
from effectmcp.schema import Header
from effectmcp.server.features import (
    Resource,
    ResourceTemplate,
    make_completion,
    make_prompt,
    make_resource,
    make_tool,
)

from ..wire import fits


def order(title: str, copies: int = 1) -> dict[str, int]:
    """Order a book.

    Args:
        title: Which one.
    """
    return {title: copies}


def hello() -> str:
    return "hi"


# ---- tools ----


def test_tool_from_a_function() -> None:
    tool = make_tool(order)
    assert (tool.name, tool.handler.kind, tool.requires) == ("order", "plain", ())
    fits("Tool", tool.listing)
    assert tool.listing == {
        "name": "order",
        "description": "Order a book.",
        "inputSchema": tool.handler.takes.schema,
        "outputSchema": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
        },
    }


def test_tool_with_everything() -> None:
    tool = make_tool(
        order,
        name="buy",
        title="Buy",
        description="Buys.",
        icons=[Icon("https://x/i.png")],
        read_only=False,
        destructive=True,
        idempotent=True,
        open_world=False,
        requires=[Elicit, Sample],
        timeout=3,
        version="2",
        meta={"x/y": 1},
    )
    fits("Tool", tool.listing)
    assert tool.listing["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert tool.listing["title"] == "Buy"
    assert tool.listing["description"] == "Buys."
    assert tool.listing["icons"] == [{"src": "https://x/i.png"}]
    assert tool.listing["_meta"] == {"x/y": 1}
    assert tool.requires == (Elicit, Sample)
    assert (tool.timeout, tool.version) == (3, "2")


def test_tool_with_schemas_by_hand() -> None:
    def anything(**kwargs: Any) -> Any: ...

    takes = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {}}
    takes = {**takes, "$defs": {"a": {"type": "string"}}}
    tool = make_tool(anything, input_schema=takes, output_schema={"type": "array"})
    assert tool.listing["inputSchema"] == takes
    assert tool.listing["outputSchema"] == {"type": "array"}
    assert tool.output is None
    fits("Tool", tool.listing)


@pytest.mark.parametrize("returns", [str, Image, ToolResult, Any, None])
def test_tool_that_promises_nothing(returns: Any) -> None:
    def tool() -> Any: ...

    tool.__annotations__["return"] = returns
    assert "outputSchema" not in make_tool(tool).listing


def test_tool_of_a_flow_promises_what_it_returns() -> None:
    def ask() -> Flow[bool]:
        yield from Elicit("?", str)
        return True

    assert make_tool(ask).listing["outputSchema"] == {"type": "boolean"}


def test_tool_with_a_mirrored_argument() -> None:
    def find(region: Annotated[str, Header("Region")]) -> str:
        return region

    (header,) = make_tool(find).headers
    assert (header.header, header.path) == ("Mcp-Param-Region", ("region",))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 129, "a\n"])
def test_tool_name_that_clients_refuse(name: str) -> None:
    for make in (make_tool, make_prompt):
        if name:
            with pytest.raises(SchemaError, match="use 1 to 128 of"):
                make(hello, name=name)
    with pytest.raises(SchemaError, match="'<lambda>'"):
        make_tool(lambda: None)


def test_tool_without_a_name_of_its_own() -> None:
    class Clock:
        def __call__(self) -> str:
            return "now"

    assert make_tool(Clock()).name == "Clock"


def test_listing_that_is_not_json() -> None:
    with pytest.raises(SchemaError, match="hello: its entry in the list is not JSON"):
        make_tool(hello, meta={"x": {1}})
    with pytest.raises(SchemaError, match="a lone surrogate"):
        make_tool(hello, title="\ud800")


# ---- prompts ----


def test_prompt_from_a_function() -> None:
    def review(
        code: Annotated[str, Title("The code")],
        language: Literal["py", "js"] = "py",
    ) -> str:
        """Review code.

        Args:
            code: What to look at.
        """
        return code

    prompt = make_prompt(review, title="Review", timeout=1, version="1")
    fits("Prompt", prompt.listing)
    assert prompt.description == "Review code."
    assert prompt.listing == {
        "name": "review",
        "title": "Review",
        "description": "Review code.",
        "arguments": [
            {
                "name": "code",
                "title": "The code",
                "description": "What to look at.",
                "required": True,
            },
            {"name": "language", "required": False},
        ],
    }


def test_prompt_without_arguments() -> None:
    prompt = make_prompt(hello, description="Says hi.")
    assert prompt.listing == {"name": "hello", "description": "Says hi."}
    assert prompt.description == "Says hi."


# ---- resources ----


def test_resource_from_a_function() -> None:
    resource = make_resource(
        hello,
        "shop://hello",
        title="Hello",
        mime_type="text/plain",
        size=2,
        icons=[Icon("https://x/i.png")],
        annotations=Annotations(priority=1),
        ttl=5,
        scope="public",
        meta={"x/y": 1},
    )
    assert type(resource) is Resource
    assert (resource.uri, resource.ttl, resource.scope) == ("shop://hello", 5, "public")
    fits("Resource", resource.listing)
    assert resource.listing == {
        "name": "hello",
        "title": "Hello",
        "uri": "shop://hello",
        "mimeType": "text/plain",
        "size": 2,
        "annotations": {"priority": 1},
        "icons": [{"src": "https://x/i.png"}],
        "_meta": {"x/y": 1},
    }


def test_resource_of_a_template() -> None:
    def book(title: str, page: int = 1) -> str:
        return title

    for uri in ("shop://books/{title}", "shop://books/{title}/{page}"):
        template = make_resource(book, uri, name="a book")
        assert isinstance(template, ResourceTemplate)
        fits("ResourceTemplate", template.listing)
        assert template.listing == {"name": "a book", "uriTemplate": uri}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("shop://books", "takes 'title', and a URI without {title}"),
        ("shop://books/{name}", "its variables are name, and .*book takes title"),
        ("shop://{title}/{page}", "its variables are title, page"),
    ],
)
def test_resource_that_takes_something_else(uri: str, words: str) -> None:
    def book(title: str) -> str:
        return title

    with pytest.raises(SchemaError, match=words):
        make_resource(book, uri)


@pytest.mark.parametrize("uri", ["shop://{title}", "shop://{title}{?page}"])
def test_resource_that_needs_what_its_template_may_not_give(uri: str) -> None:
    def book(title: str, page: int) -> str:
        return title

    with pytest.raises(SchemaError, match="book takes title, page"):
        make_resource(book, uri)


def test_resource_that_takes_nothing_from_its_template() -> None:
    with pytest.raises(SchemaError, match="takes nothing"):
        make_resource(hello, "shop://{title}")


@pytest.mark.parametrize("uri", ["", "books", "shop:", "shop://a b", "1shop://x"])
def test_resource_with_an_invalid_uri(uri: str) -> None:
    with pytest.raises(SchemaError, match="is not a URI"):
        make_resource(hello, uri)


def test_resource_with_an_unknown_scope() -> None:
    with pytest.raises(SchemaError, match="scope is 'public' or 'private'"):
        make_resource(hello, "shop://x", scope="secret")


# ---- completions ----


def test_completion_of_functions() -> None:
    async def awaited(text: str, context: dict[str, str]) -> list[str]:
        return [text]

    made = make_completion(lambda text: [text])
    assert (made.wants_context, made.is_async) == (False, False)
    made = make_completion(awaited)
    assert (made.wants_context, made.is_async) == (True, True)


def test_completion_of_an_async_object() -> None:
    class Suggest:
        async def __call__(self, text: str) -> list[str]:
            return [text]

    assert make_completion(Suggest()).is_async


def test_completion_that_asks() -> None:
    def ask(text: str) -> Flow[list[str]]:
        return [(yield from Elicit("?", str))]

    with pytest.raises(SchemaError, match="a completion cannot yield effects"):
        make_completion(ask)


@pytest.mark.parametrize("function", [lambda: [], lambda value: [], lambda text, x: []])
def test_completion_that_takes_something_else(function: Any) -> None:
    with pytest.raises(SchemaError, match=r"takes \(text\) or \(text, context\)"):
        make_completion(function)


# ---- requirements and time limits ----


@pytest.mark.parametrize(
    "requires",
    [Elicit, "elicitation", ("elicitation",), (str,), (Elicit("Who?", str),)],
)
def test_what_cannot_be_required(requires: Any) -> None:
    """The capability would be required of no client, or of all clients."""
    for make in (
        lambda: make_tool(hello, requires=requires),
        lambda: make_prompt(hello, requires=requires),
        lambda: make_resource(hello, "shop://x", requires=requires),
    ):
        with pytest.raises(SchemaError, match=r"requires=.*such as \(Elicit,\)"):
            make()


@pytest.mark.parametrize("requires", [[], (), [Elicit], (Elicit, Sample), {Sample}])
def test_what_can_be_required(requires: Any) -> None:
    assert set(make_tool(hello, requires=requires).requires) == set(requires)


def test_what_can_be_required_in_other_words() -> None:
    several: Any = iter([Elicit[str], Sample[None]])
    assert make_tool(hello, requires=several).requires == (Elicit, Sample)


@pytest.mark.parametrize("timeout", [3, 2.5, Fraction(1, 2), float("inf")])
def test_timeouts(timeout: Any) -> None:
    assert make_tool(hello, timeout=timeout).timeout == timeout


@pytest.mark.parametrize("timeout", [0, -1, "3", b"3", True, float("nan"), 10**400])
def test_invalid_timeouts_are_refused(timeout: Any) -> None:
    with pytest.raises(SchemaError, match="timeout=.*give seconds, more than 0"):
        make_tool(hello, timeout=timeout)
    with pytest.raises(SchemaError, match="timeout="):
        Server("shop", timeout=timeout)
