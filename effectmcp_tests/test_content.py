from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from effectmcp import OutputError
from effectmcp.content import (
    Annotations,
    Audio,
    Block,
    EmbeddedResource,
    Icon,
    Image,
    Message,
    ResourceContents,
    ResourceLink,
    Text,
    ToolResult,
    blocks_of,
    contents_of,
    messages_of,
)

from .wire import fits

FOR_USERS = Annotations(audience=["user"], priority=0.5, last_modified="2026-07-28")
CONTENTS = ResourceContents("hello", uri="shop://hello", mime_type="text/plain")
BLOCKS: dict[str, Block] = {
    "TextContent": Text("hi", annotations=FOR_USERS),
    "ImageContent": Image(b"\x89PNG", annotations=FOR_USERS),
    "AudioContent": Audio(b"RIFF", annotations=FOR_USERS),
    "ResourceLink": ResourceLink(
        "shop://a",
        "a",
        title="A",
        description="The a.",
        mime_type="text/plain",
        size=3,
        annotations=FOR_USERS,
    ),
    "EmbeddedResource": EmbeddedResource(CONTENTS, annotations=FOR_USERS),
}


# ---- blocks ----


@pytest.mark.parametrize("name", BLOCKS)
def test_block_fits_the_protocol(name: str) -> None:
    fits(name, BLOCKS[name].to_wire())
    fits("ContentBlock", BLOCKS[name].to_wire())


def test_blocks_on_the_wire() -> None:
    note = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-07-28"}
    assert [block.to_wire() for block in BLOCKS.values()] == [
        {"type": "text", "text": "hi", "annotations": note},
        {
            "type": "image",
            "data": "iVBORw==",
            "mimeType": "image/png",
            "annotations": note,
        },
        {
            "type": "audio",
            "data": "UklGRg==",
            "mimeType": "audio/wav",
            "annotations": note,
        },
        {
            "type": "resource_link",
            "uri": "shop://a",
            "name": "a",
            "title": "A",
            "description": "The a.",
            "mimeType": "text/plain",
            "size": 3,
            "annotations": note,
        },
        {
            "type": "resource",
            "resource": {
                "uri": "shop://hello",
                "mimeType": "text/plain",
                "text": "hello",
            },
            "annotations": note,
        },
    ]


def test_block_leaves_out_what_was_left_out() -> None:
    assert ResourceLink("shop://a", "a").to_wire() == {
        "type": "resource_link",
        "uri": "shop://a",
        "name": "a",
    }
    assert Annotations().to_wire() == {}


def test_block_of_its_own_must_be_written() -> None:
    with pytest.raises(NotImplementedError):
        Block().to_wire()


def test_bytes_are_not_part_of_a_repr() -> None:
    """A log with a megabyte of picture is of no use."""
    assert "PNG" not in repr(BLOCKS["ImageContent"])
    assert "secret" not in repr(ResourceContents("secret"))


def test_embedded_resource_without_a_uri() -> None:
    """The protocol requires a URI, and only the author knows it."""
    with pytest.raises(OutputError, match=r"needs ResourceContents\(uri="):
        EmbeddedResource(ResourceContents("x")).to_wire()


@pytest.mark.parametrize(
    ("modified", "text"),
    [
        (dt.datetime(2026, 7, 28, 9, tzinfo=dt.UTC), "2026-07-28T09:00:00Z"),
        (
            dt.datetime(2026, 7, 28, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            "2026-07-28T00:00:00+02:00",
        ),
        ("yesterday", "yesterday"),
    ],
)
def test_annotations_write_times(modified: Any, text: str) -> None:
    assert Annotations(last_modified=modified).to_wire() == {"lastModified": text}


def test_icon() -> None:
    icon = Icon("https://x/i.png", mime_type="image/png", sizes=["any"], theme="dark")
    fits("Icon", icon.to_wire())
    assert icon.to_wire() == {
        "src": "https://x/i.png",
        "mimeType": "image/png",
        "sizes": ["any"],
        "theme": "dark",
    }
    assert Icon("data:,").to_wire() == {"src": "data:,"}


# ---- values as blocks ----


def test_blocks_of_values() -> None:
    hi = {"type": "text", "text": "hi"}
    assert blocks_of(None) == []
    assert blocks_of("hi") == blocks_of(Text("hi")) == [hi]
    assert blocks_of(["hi", Text("hi")]) == blocks_of(("hi", "hi")) == [hi, hi]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"x", r"write Image\(\.\.\.\) or Audio\(\.\.\.\)"),
        (5, "5 is neither"),
        ([5], "5 is neither"),
        ([None], "None is neither"),
        ([["nested"]], "is neither"),
    ],
)
def test_blocks_of_invalid_values(value: Any, words: str) -> None:
    with pytest.raises(OutputError, match=words):
        blocks_of(value)


# ---- a resource's contents ----


def test_contents_of_a_string_and_of_bytes() -> None:
    assert contents_of("x", "shop://x", "text/plain") == [
        {"uri": "shop://x", "mimeType": "text/plain", "text": "x"}
    ]
    assert contents_of(b"x", "shop://x", None) == [{"uri": "shop://x", "blob": "eA=="}]


def test_contents_with_their_own_uri() -> None:
    own = ResourceContents(b"x", uri="shop://y", mime_type="a/b")
    assert contents_of(["x", own], "shop://x", "text/plain") == [
        {"uri": "shop://x", "mimeType": "text/plain", "text": "x"},
        {"uri": "shop://y", "mimeType": "a/b", "blob": "eA=="},
    ]


@pytest.mark.parametrize("value", [5, None, {"a": 1}, [1], ["x", 1]])
def test_contents_of_other_values(value: Any) -> None:
    assert contents_of(value, "shop://x", None) is None


# ---- messages ----


def test_messages_of_values() -> None:
    hi = {"role": "user", "content": {"type": "text", "text": "hi"}}
    assert messages_of("hi") == messages_of(Text("hi")) == messages_of(("hi",)) == [hi]
    both = messages_of([Message("hi"), Message("ho", "assistant")])
    assert both == [
        hi,
        {"role": "assistant", "content": {"type": "text", "text": "ho"}},
    ]
    for message in both:
        fits("PromptMessage", message)


@pytest.mark.parametrize("value", [5, None, [5], [Message(b"x")]])  # type: ignore[arg-type]
def test_messages_of_invalid_values(value: Any) -> None:
    with pytest.raises(OutputError):
        messages_of(value)


# ---- whole results ----


def test_tool_result_distinguishes_null_from_nothing() -> None:
    assert not ToolResult("hi").is_structured
    assert ToolResult("hi", structured=None).is_structured
