"""The output of `--trace`."""

from __future__ import annotations

from effectmcp.cli.trace import Trace


def test_answers_of_every_type_are_masked() -> None:
    said: list[str] = []
    content = {"n": 1.5, "of": ["a", "b"], "is": True, "no": None}
    Trace(said.append, keys=lambda: None).answered(
        {"a": {"action": "accept", "content": content}, "b": {"role": "assistant"}}
    )
    assert said == [
        (
            '  a → {"action": "accept", "content": {"n": "<number>",'
            ' "of": ["<text>", "<text>"], "is": "<yes or no>", "no": null}}'
        ),
        '  b → {"role": "<text>"}',
    ]
