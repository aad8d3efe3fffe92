from __future__ import annotations

import inspect

from effectmcp.shapes.docstrings import parse_docstring


def parsed(text: str) -> tuple[str, dict[str, str]]:
    found = parse_docstring(inspect.cleandoc(text))
    return found.summary, dict(found.entries)


def test_docstring_of_nothing() -> None:
    assert parsed("") == ("", {})


def test_docstring_with_arguments() -> None:
    text = """
    Order a book
    for somebody.

    It takes a while.

    Args:
        title: What it is called,
            in full.
        copies (int): How many.

        *rest: The others.
        `code`: In quotes.

    Returns:
        receipt: not an argument.
    """
    assert parsed(text) == (
        "Order a book for somebody.",
        {
            "title": "What it is called, in full.",
            "copies": "How many.",
            "rest": "The others.",
            "code": "In quotes.",
        },
    )


def test_docstring_that_begins_with_a_section() -> None:
    assert parsed("\n    Args:\n        a: One.") == ("", {"a": "One."})


def test_docstring_with_lines_other_than_entries() -> None:
    """A docstring is written for people, so nothing in it is an error."""
    assert parsed("Do.\n\nArgs:\n    just words\n    a: One.") == ("Do.", {"a": "One."})
