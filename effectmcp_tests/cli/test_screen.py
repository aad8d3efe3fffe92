"""The screen of a round: keys in, lines out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.cli.layout import columns
from effectmcp.cli.screen import KEYS, Screen
from effectmcp.forms import form_of

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "age": {"type": "integer", "minimum": 18, "description": "In years."},
        "share": {"type": "number"},
        "size": {
            "type": "string",
            "enum": ["s", "m"],
            "enumNames": ["small", "medium"],
        },
        "wine": {"type": "boolean", "default": True},
        "with": {"type": "array", "items": {"type": "string", "enum": ["ham", "egg"]}},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["name", "age"],
}


def form(schema: Any = FORM, message: str = "Who?") -> dict[str, Any]:
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


CONFIRM = form({"type": "object", "properties": {}}, "Sure?")
LINK = {
    "method": "elicitation/create",
    "params": {
        "mode": "url",
        "message": "Sign in",
        "url": "https://shop.example/in?a=1",
    },
}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "A rhyme on"}},
            {"role": "assistant", "content": [{"type": "text", "text": "orange?"}]},
        ]
    },
}


def after(keys: Iterable[str], *questions: Any) -> Screen:
    screen = Screen({f"q{n}": one for n, one in enumerate(questions, 1)})
    for key in keys:
        screen.press(key)
    return screen


def typed(text: str) -> list[str]:
    return [*text, "enter"]


def test_a_form_is_filled_in_from_top_to_bottom() -> None:
    keys = [
        *typed("Ann"),
        *typed("42"),
        *typed("0.5"),
        *("right", "right", "enter"),
        *("n", "enter"),
        *("right", " ", "enter"),
        *typed("2026-12-01"),
    ]
    screen = after(keys, form())
    assert screen.is_done
    content = {
        "name": "Ann",
        "age": 42,
        "share": 0.5,
        "size": "m",
        "wine": False,
        "with": ["egg"],
        "day": "2026-12-01",
    }
    assert screen.responses == {"q1": {"action": "accept", "content": content}}
    assert form_of(FORM).read(content) == content


def test_optional_fields_may_stay_empty_and_defaults_are_sent() -> None:
    screen = after([*typed("Ann"), *typed("18"), *["enter"] * 5], form())
    content: Any = screen.responses["q1"]
    assert content["content"] == {"name": "Ann", "age": 18, "wine": True}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (typed("A"), "Name must have at least 2 characters"),
        (["enter"], "Name must have at least 2 characters"),
        ([*typed("Ann"), *typed("x")], "age must be a whole number"),
        ([*typed("Ann"), *typed("17")], "age must be at least 18"),
        ([*typed("Ann"), "enter"], "age is required"),
        ([*typed("Ann"), *typed("18"), *typed("x")], "share must be a number"),
    ],
)
def test_problems_are_shown_and_not_sent(keys: list[str], problem: str) -> None:
    screen = after(keys, form())
    assert screen.problem == problem
    assert f"! {problem}" in screen.lines(200)
    assert not screen.is_done


def test_problems_are_shown_as_it_is_typed() -> None:
    lines = after("A", form()).lines(80)
    assert lines[1] == "  ▸ Name* A▏   (must have at least 2 characters)"
    assert after("An", form()).lines(80)[1] == "  ▸ Name* An▏"


def test_the_cursor_returns_to_a_skipped_field() -> None:
    screen = after([*["tab"] * 6, "enter"], form())
    assert screen.problem == "Name must have at least 2 characters"
    assert screen.lines(80)[1].startswith("  ▸ Name")


def test_moving_goes_around_over_all_questions() -> None:
    screen = after(["up"], form(), CONFIRM)
    assert "  ▸ y / n" in screen.lines(80)
    screen.press("down")
    assert screen.lines(80)[1].startswith("  ▸ Name")


def test_choices_are_picked_by_arrows_or_letters() -> None:
    form_ = form({"type": "object", "properties": {"size": FORM["properties"]["size"]}})  # type: ignore[index]  # of a dict of anything
    assert "size  small  ‹medium›" in after(["left"], form_).lines(80)[1]
    assert "size  ‹small›  medium" in after(["s"], form_).lines(80)[1]
    assert "size  ‹small›  medium" in after(["left", "right"], form_).lines(80)[1]
    assert "size  small  medium" in after(["s", "backspace", "x"], form_).lines(80)[1]


def test_letters_move_to_the_next_choice_with_that_initial() -> None:
    values = ["ham", "egg", "eel"]
    one = {"type": "string", "enum": values}
    several = {"type": "array", "items": one}
    schema = {"type": "object", "properties": {"one": one, "all": several}}
    screen = after("ee ", form(schema))
    assert "‹ham›  egg  eel" in screen.lines(80)[1]  # space is the next one, too
    screen = after("eee", form(schema))
    assert "ham  ‹egg›  eel" in screen.lines(80)[1]
    screen = after(["tab", *"ee E x "], form(schema))
    assert "[ ] ham  ›[ ] egg  [x] eel" in screen.lines(80)[2]


FILLED: dict[str, tuple[dict[str, Any], Any]] = {
    "text": ({"type": "string", "default": "a"}, ""),
    "several": ({"type": "array", "items": {"enum": ["a"]}, "default": ["a"]}, []),
    "of two": ({"type": "string", "default": "a", "minLength": 1}, None),
    "number": ({"type": "integer", "default": 1}, None),
    "choice": ({"enum": ["a"], "default": "a"}, None),
}


@pytest.mark.parametrize("name", FILLED)
def test_a_default_that_the_user_removes_is_sent_empty(name: str) -> None:
    """Left out, the server would fill it in again."""
    field, empty = FILLED[name]
    question = form({"type": "object", "properties": {"f": field}})
    screen = after(["backspace"], question)
    assert ("(sent empty)" in screen.lines(80)[1]) == (empty is not None)
    screen.press("enter")
    content: Any = screen.responses["q1"]
    assert content["content"] == ({} if empty is None else {"f": empty})


def test_a_field_without_a_default_is_left_out_if_empty() -> None:
    fields = {name: {**field, "default": None} for name, (field, _) in FILLED.items()}
    question = form({"type": "object", "properties": fields})
    content: Any = after(["enter"] * len(fields), question).responses["q1"]
    assert content["content"] == {}


@pytest.mark.parametrize("type_", ["string", "integer", "array", "boolean"])
def test_a_default_of_null_fills_in_nothing(type_: str) -> None:
    field = {"type": type_, "default": None}
    question = form({"type": "object", "properties": {"f": field}})
    assert "null" not in after([], question).lines(80)[1]


def test_several_choices_are_ticked() -> None:
    schema = {
        "type": "object",
        "properties": {
            "with": {
                "type": "array",
                "items": {
                    "anyOf": [
                        {"const": "ham", "title": "Ham"},
                        {"const": "egg", "title": "Egg"},
                    ]
                },
                "default": ["egg"],
                "minItems": 1,
            }
        },
        "required": ["with"],
    }
    screen = after([], form(schema))
    assert screen.lines(80)[1] == "  ▸ with* ›[ ] Ham  [x] Egg"
    screen = after([" ", "left", " ", "enter"], form(schema))
    content: Any = screen.responses["q1"]
    assert content["content"] == {"with": ["ham"]}


@pytest.mark.parametrize(
    ("key", "action"), [("y", "accept"), ("N", "decline"), ("cancel", "cancel")]
)
@pytest.mark.parametrize("question", [CONFIRM, LINK])
def test_yes_and_no(question: Any, key: str, action: str) -> None:
    screen = after([key], question)
    response: Any = screen.responses["q1"]
    assert response["action"] == action


def test_a_key_that_is_neither_yes_nor_no() -> None:
    assert after(["enter"], CONFIRM).problem == "press y or n"


def test_a_link_shows_its_host_and_is_opened_when_agreed() -> None:
    screen = after([], LINK)
    note = "  opens shop.example: https://shop.example/in?a=1"
    assert screen.lines(80)[:2] == ["Sign in", note]
    assert screen.links == []
    screen.press("y")
    assert screen.links == ["https://shop.example/in?a=1"]


def test_a_model_is_played_by_the_user() -> None:
    screen = after(typed("door hinge"), SAMPLE)
    assert screen.lines(80)[:2] == ["✓ user: A rhyme on", "assistant: orange?"]
    response: Any = screen.responses["q1"]
    assert response["content"] == {"type": "text", "text": "door hinge"}


def test_several_questions_are_one_screen() -> None:
    screen = after([*typed("Ann"), *typed("18")], form(), CONFIRM)
    lines = screen.lines(100)
    assert lines[0] == "Who?"
    assert "Sure?" in lines
    for key in ("decline", "y"):
        screen.press(key)
    assert screen.is_done
    assert screen.lines(100)[0] == "✗ declined: Who?"
    assert screen.responses["q1"] == {"action": "decline"}


def test_an_answer_can_be_changed_while_others_are_open() -> None:
    screen = after(["y", "up", "n"], CONFIRM, form())
    assert screen.responses["q1"] == {"action": "decline"}


def test_what_a_server_writes_moves_no_cursor() -> None:
    evil = form({"type": "object", "properties": {}}, "\x1b[2J\x07gone\r\nagain\x9b")
    lines = after([], evil).lines(80)
    assert lines[:2] == ["\\x1b[2J\\x07gone", "again\\x9b"]
    assert all(line.isprintable() or not line for line in lines)


def test_schemas_beyond_the_protocol_are_left_to_the_server() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "a"}}}
    content: Any = after(typed("b"), form(schema)).responses["q1"]
    assert content["content"] == {"x": "b"}


@given(st.lists(st.sampled_from([*KEYS, *"aA1 y-n."]), max_size=60), st.integers(1, 30))
def test_no_keys_break_it_and_what_is_sent_fits(keys: list[str], height: int) -> None:
    screen = Screen({"a": form(), "b": CONFIRM, "c": LINK, "d": SAMPLE})
    for key in keys:
        screen.press(key)
        lines = screen.lines(40)
        assert all(len(line) < 40 for line in lines)
        few = screen.lines(40, height)
        assert len(few) <= height
        is_seen = any("▸" in line for line in few)
        assert is_seen or screen.is_done or "page" in key or height < 12
    if screen.is_done:
        response: Any = screen.responses["a"]
        if response["action"] == "accept":
            form_of(FORM).read(response["content"])


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "form", "requestedSchema": []},
        {"mode": "form", "requestedSchema": {"properties": [], "required": 3}},
        {"mode": "form", "requestedSchema": {"properties": {"a": 1}}},
        {"mode": "url"},
        {},
    ],
)
def test_invalid_questions_do_not_break_the_screen(params: Any) -> None:
    question = {"method": "elicitation/create", "params": params}
    sample = {"method": "sampling/createMessage", "params": {"messages": 3, **params}}
    assert after("ynx", question, sample).lines(80)


def link(url: Any) -> Any:
    params = {"mode": "url", "message": "Sign in", "url": url}
    return {"method": "elicitation/create", "params": params}


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http://[",
            "https://a b.example/",
        ),
        *("https://evil.example\\@good.example/", "https://good.example@evil.example/"),
        *("https://good.example\u202e/", "https://", 3, None),
    ],
)
def test_misleading_links_cannot_be_accepted(url: Any) -> None:
    screen = after("y", link(url))
    assert not screen.is_done
    assert screen.problem == "press n"
    screen.press("n")
    assert screen.responses == {"q1": {"action": "decline"}}
    assert screen.links == []


def test_the_opened_page_is_the_shown_page() -> None:
    url = "https://good.example/a?:https://evil.example/"
    assert after("y", link(url)).links == [url]


def test_a_long_message_is_shown_whole() -> None:
    text = "Transfer 100 EUR to Ann, and also transfer 1,000,000 EUR to Mallory."
    question = form({"type": "object", "properties": {}}, text)
    lines = after([], question).lines(30)
    assert " ".join(lines[:3]) == text
    wide = form({"type": "object", "properties": {}}, "本" * 40)
    assert all(columns(line) < 30 for line in after([], wide).lines(30))


@pytest.mark.parametrize("text", ["nan", "inf", "1_000", "1e999"])
def test_numbers_in_python_syntax_are_invalid(text: str) -> None:
    schema = {"type": "object", "properties": {"share": {"type": "number"}}}
    assert after(typed(text), form(schema)).problem == "share must be a number"


def test_invalid_choices() -> None:
    for one in ({"oneOf": [{"title": "x"}]}, {"enum": 5}, {"anyOf": "x"}):
        schema = {"type": "object", "properties": {"a": {"type": "string", **one}}}
        assert after(["right", "x"], form(schema)).lines(80)


LONG = form(
    {
        "type": "object",
        "properties": {
            f"field-{n}": {"type": "string", "description": f"About {n}."}
            for n in range(30)
        },
    },
    "Fill in",
)


def test_a_form_that_is_taller_than_the_window_follows_the_cursor() -> None:
    lines = after(["tab"] * 20, LONG).lines(80, 10)
    assert lines[:-2] == [
        "↑ 17 more above (PgUp)",
        *(f"    field-{n}  " for n in range(16, 20)),
        "  ▸ field-20  ▏",
        "      About 20.",
        "↓ 9 more below (PgDn)",
    ]


def test_the_window_is_paged_and_comes_back_with_any_other_key() -> None:
    screen = after(["page up"], LONG)
    assert screen.lines(80, 10)[1] == "Fill in"
    screen.press("page down")
    assert "▸" not in "".join(screen.lines(80, 10))
    screen.press("a")
    assert "  ▸ field-0  a▏" in screen.lines(80, 10)


def test_a_message_taller_than_the_window_can_be_read_before_it_is_accepted() -> None:
    question = form({"type": "object", "properties": {}}, "\n".join("abcdefghij"))
    screen = after([], question)
    assert screen.lines(80, 8)[0] == "↑ 7 more above (PgUp)"
    for _ in range(2):
        screen.press("page up")
        screen.lines(80, 8)
    assert screen.lines(80, 8)[1] == "a"
