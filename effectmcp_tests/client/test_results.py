from __future__ import annotations

from typing import Any

import pytest

from effectmcp.client import Result

TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("fields", "blocks", "text"),
    [
        ({}, [], ""),
        ({"content": [TEXT, IMAGE, TEXT]}, [TEXT, IMAGE, TEXT], "a\na"),
        ({"messages": [{"role": "user", "content": TEXT}]}, [TEXT], "a"),
        (
            {"contents": [{"uri": "a:b", "text": "c"}]},
            [{"uri": "a:b", "text": "c"}],
            "c",
        ),
        ({"contents": [{"uri": "a:b", "blob": ""}]}, [{"uri": "a:b", "blob": ""}], ""),
    ],
)
def test_blocks_and_text_of_a_result(
    fields: dict[str, Any], blocks: list[Any], text: str
) -> None:
    result = Result(fields, 1)
    assert (result.blocks, result.text) == (blocks, text)


@pytest.mark.parametrize(
    ("fields", "is_error", "structured"),
    [
        ({}, False, None),
        ({"isError": False, "structuredContent": {"a": 1}}, False, {"a": 1}),
        ({"isError": True, "structuredContent": [0]}, True, [0]),
    ],
)
def test_is_error_and_structured_of_a_result(
    fields: dict[str, Any], is_error: bool, structured: Any
) -> None:
    result = Result(fields, 2)
    assert (result.is_error, result.structured) == (is_error, structured)


def test_a_result_is_shown_without_its_content() -> None:
    assert repr(Result({"content": [TEXT]}, 3)) == "Result(rounds=3, told=())"


def test_invalid_blocks_are_left_out() -> None:
    fields = {
        "content": [{"text": "a"}, 3, {"text": 4}],
        "messages": [{"content": {"text": "b"}}, "x", {}],
        "contents": None,
    }
    assert Result(fields, 1).text == "a\nb"
