"""The questions of one round as a screen: fields, keys, problems. No I/O.

    screen = Screen(questions)
    for key in keys:
        screen.press(key)
    screen.lines(80, 24)       what to show
    screen.responses           once `is_done`

A key is a string: a character, or one of the names in `KEYS`. Input is checked after
each key, by the same rules as on the server (`forms`). The problem appears beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from attrs import define

from ..canonical import JSON
from .fields import InputField
from .layout import Spot, window, wrapped
from .questions import fields_of, is_sampling, text_of
from .schemas import dict_in

__all__ = ["KEYS", "Screen", "host_of"]

KEYS: Final = (
    *("enter", "tab", "up", "down", "left", "right", "backspace"),
    *("page up", "page down", "decline", "cancel"),
)

State: TypeAlias = Literal["open", "accepted", "declined", "cancelled"]

_SAID: Final[Mapping[State, str]] = {
    "open": "",
    "accepted": "✓ ",
    "declined": "✗ declined: ",
    "cancelled": "✗ closed: ",
}


@define
class _ScreenQuestion:
    """One question on the screen.

    Attributes:
        key: The server's name for it.
        message: The text of the question.
        kind: How it is answered.
        fields: The fields to fill in.
        state: Whether it is open or answered, and how.
        note: The text below the message.
        url: The page of a link, byte for byte as it is shown.
    """

    key: str
    message: str
    kind: Literal["form", "link", "sample", "nothing"]
    fields: list[InputField]
    state: State = "open"
    note: str = ""
    url: str = ""

    @property
    def response(self) -> JSON:
        """Return the response to send."""
        if self.state == "declined":
            return {"action": "decline"}
        if self.state == "cancelled":
            return {"action": "cancel"}
        if self.kind == "sample":
            content = {"type": "text", "text": self.fields[0].text}
            return {"role": "assistant", "content": content, "model": "the user"}
        if self.kind == "link":
            return {"action": "accept"}
        filled = {one.name: one.value for one in self.fields}
        content = {name: value for name, value in filled.items() if value is not None}
        return {"action": "accept", "content": content}


def _question(key: str, request: Mapping[str, Any]) -> _ScreenQuestion:
    params = dict_in(request.get("params"))
    message = text_of(request)
    if is_sampling(request):
        prompt = InputField(
            "text", {"type": "string", "title": "Answer"}, required=True
        )
        return _ScreenQuestion(key, message, "sample", [prompt])
    if params.get("mode") == "url":
        url = params.get("url")
        host = host_of(url)
        if host is None:
            note = "this link cannot be opened safely; decline it"
            return _ScreenQuestion(key, message, "nothing", [], note=note)
        note = f"opens {host}: {url}"
        return _ScreenQuestion(key, message, "link", [], note=note, url=str(url))
    schema = dict_in(params.get("requestedSchema"))
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    fields = []
    for name, one in fields_of(request).items():
        one = dict_in(one)
        made = InputField(name, one, required=name in required)
        if "default" in one:
            made.fill(one["default"])
        fields.append(made)
    if (
        len(fields) == 1
        and fields[0].name == "value"
        and "title" not in fields[0].schema
    ):
        # The name that servers give to the only field of an unnamed form.
        fields[0].schema = {**fields[0].schema, "title": "Answer"}
    return _ScreenQuestion(key, message, "form", fields)


_URL: Final = re.compile(r"https?://[!-~]+")


def host_of(url: object) -> str | None:
    """Return the host that a browser would open; `None` if that is in doubt.

    The user must see the host that is opened. So other schemes, invisible characters,
    user names that look like hosts (`https://shop.example@evil.example`) and
    backslashes, which browsers read as slashes, are refused.
    """
    if not isinstance(url, str) or not _URL.fullmatch(url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return None if "@" in parts.netloc else host


class Screen:
    """A screen with all questions of a round.

    Args:
        questions: The requests, as defined by the protocol, by key.

    Attributes:
        problem: Why the last key had no effect.
    """

    def __init__(self, questions: Mapping[str, Mapping[str, Any]]) -> None:
        self._questions = [_question(key, one) for key, one in questions.items()]
        self._question = 0
        self._field = 0
        self._pages = 0
        self.problem = ""

    @property
    def open_count(self) -> int:
        """The number of questions without an answer."""
        return sum(one.state == "open" for one in self._questions)

    @property
    def is_done(self) -> bool:
        """Whether all questions have an answer."""
        return not self.open_count

    @property
    def responses(self) -> dict[str, JSON]:
        """The responses to send, by key."""
        return {one.key: one.response for one in self._questions}

    @property
    def links(self) -> list[str]:
        """The pages that the user agreed to open."""
        return [
            one.url
            for one in self._questions
            if one.kind == "link" and one.state == "accepted"
        ]

    # ---- keys ----

    def press(self, key: str) -> None:
        """Handle a key: a character, or one of `KEYS`."""
        self.problem = ""
        if key in ("page up", "page down"):
            self._pages += 1 if key == "page down" else -1
            return
        self._pages = 0  # back to the cursor
        question = self._questions[self._question]
        if key in ("decline", "cancel"):
            self._settle("declined" if key == "decline" else "cancelled")
        elif key in ("tab", "down", "up"):
            self._move(-1 if key == "up" else 1)
        elif question.state != "open" and key != "enter":
            # A key in an answered question opens it again.
            question.state = "open"
            self._press(question, key)
        else:
            self._press(question, key)

    def _press(self, question: _ScreenQuestion, key: str) -> None:
        if question.fields:
            if key == "enter":
                self._enter(question)
            else:
                question.fields[self._field].press(key)
        elif key.lower() == "y" and question.kind != "nothing":
            self._settle("accepted")
        elif key.lower() == "n":
            self._settle("declined")
        else:
            self.problem = "press n" if question.kind == "nothing" else "press y or n"

    def _enter(self, question: _ScreenQuestion) -> None:
        here = question.fields[self._field]
        if here.problem:
            self.problem = f"{here.title} {here.problem}"
            return
        if self._field + 1 < len(question.fields):
            self._field += 1
            return
        for place, one in enumerate(question.fields):
            if one.problem:
                self._field, self.problem = place, f"{one.title} {one.problem}"
                return
        self._settle("accepted")

    def _settle(self, state: State) -> None:
        self._questions[self._question].state = state
        for step in range(1, len(self._questions) + 1):
            place = (self._question + step) % len(self._questions)
            if self._questions[place].state == "open":
                self._question, self._field = place, 0
                return

    def _move(self, step: int) -> None:
        places = [
            (number, place)
            for number, question in enumerate(self._questions)
            for place in range(max(1, len(question.fields)))
        ]
        here = places.index((self._question, self._field))
        self._question, self._field = places[(here + step) % len(places)]

    # ---- what to show ----

    def lines(self, width: int, height: int | None = None) -> list[str]:
        """Return the screen, as lines of less than `width` columns.

        Args:
            width: The width of the terminal.
            height: The maximum number of lines, around the cursor. No limit by default.
        """
        width = max(10, width - 1)
        body, spot = self._body(width)
        foot = [part for line in self._foot() for part in wrapped(line, width)]
        if height is None:
            return body + foot
        # On three lines, the help is left out.
        foot = foot[: max(0, height - 3)]
        room = height - len(foot)
        shown, self._pages = window(body, spot, room=room, pages=self._pages)
        return shown + foot

    def _body(self, width: int) -> tuple[list[str], Spot]:
        lines: list[str] = []
        spot = Spot()
        for number, question in enumerate(self._questions):
            first = len(lines)
            is_here = number == self._question and not self.is_done
            lines += [part for one in _head(question) for part in wrapped(one, width)]
            for place, field_ in enumerate(question.fields):
                here = is_here and place == self._field
                lines += wrapped(field_.line(is_here=here), width)
                cursor = len(lines) - 1
                about = field_.schema.get("description")
                if here and about:
                    lines += wrapped(f"      {about}", width)
                if here:
                    spot = Spot(first, cursor, len(lines) - 1)
            if not question.fields and is_here:
                lines.append("  ▸ n" if question.kind == "nothing" else "  ▸ y / n")
                spot = Spot(first, len(lines) - 1, len(lines) - 1)
        return lines, spot

    def _foot(self) -> list[str]:
        if self.is_done:
            return []
        return [self.problem and f"! {self.problem}", _HELP]


_HELP: Final = (
    "Enter next · Tab ↑ ↓ move · ← → Space choose · Ctrl-D decline · Esc close"
)


def _head(question: _ScreenQuestion) -> list[str]:
    lines = question.message.splitlines() or [""]
    lines[0] = f"{_SAID[question.state]}{lines[0]}"
    return [*lines, f"  {question.note}"] if question.note else lines
