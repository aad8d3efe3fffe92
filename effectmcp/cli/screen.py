"""The questions of one round as a screen: fields, keys, what is wrong. Pure.

    screen = Screen(questions)
    for key in keys:
        screen.press(key)
    screen.lines(80, 24)       what to show
    screen.responses           once `is_done`

Keys are texts: a character, or one of the names in `KEYS`. What is typed is checked as
it is typed, by the same rules as on the server (`forms`); the problem stands beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from attrs import define, field

from ..canonical import JSON
from ..errors import FormError
from ..forms.fields import make_check
from .layout import Spot, one_line, window, wrapped

__all__ = ["KEYS", "Screen", "host_of"]

KEYS: Final = (
    *("enter", "tab", "up", "down", "left", "right", "backspace"),
    *("page up", "page down", "decline", "cancel"),
)

Kind: TypeAlias = Literal["text", "choice", "several", "yes"]
State: TypeAlias = Literal["open", "accepted", "declined", "cancelled"]

_SAID: Final[Mapping[State, str]] = {
    "open": "",
    "accepted": "✓ ",
    "declined": "✗ declined: ",
    "cancelled": "✗ closed: ",
}


@define
class _Field:
    """One field of a form.

    Attributes:
        name: Its property.
        schema: Its schema.
        required: Whether it must be filled in.
        text: What was typed.
        picked: Of choices, which: by place.
        at: Of several choices, the one that the next key is about.
    """

    name: str
    schema: Mapping[str, Any]
    required: bool
    text: str = ""
    picked: set[int] = field(factory=set)
    at: int = 0

    @property
    def title(self) -> str:
        return one_line(str(self.schema.get("title") or self.name))

    @property
    def kind(self) -> Kind:
        if self.schema.get("type") == "array":
            return "several"
        if self.schema.get("type") == "boolean" or self.choices:
            return "choice"
        return "text"

    @property
    def choices(self) -> list[tuple[JSON, str]]:
        """Values and what to call them."""
        schema = self.schema
        if schema.get("type") == "boolean":
            return [(True, "yes"), (False, "no")]
        if schema.get("type") == "array":
            schema = schema.get("items") or {}
        schema = _dict(schema)
        titled = _list(schema.get("oneOf")) or _list(schema.get("anyOf"))
        if titled:
            consts = [one for one in map(_dict, titled) if "const" in one]
            return [
                (one["const"], str(one.get("title", one["const"]))) for one in consts
            ]
        values = _list(schema.get("enum"))
        names = _list(schema.get("enumNames")) or values
        return list(zip(values, map(str, names), strict=False))

    @property
    def value(self) -> JSON:
        """What is filled in; `None` if nothing is.

        Raises:
            ValueError: in words that finish the sentence "age …".
        """
        if self.kind == "several":
            if not self.picked and not self.required:
                return None
            return [self.choices[place][0] for place in sorted(self.picked)]
        if self.kind == "choice":
            return self.choices[min(self.picked)][0] if self.picked else None
        if not self.text and not (self.required and self._takes_empty):
            return None
        match self.schema.get("type"):
            case "integer":
                return _number(self.text, int, "must be a whole number")
            case "number":
                return _number(self.text, float, "must be a number")
            case _:
                return self.text

    @property
    def _takes_empty(self) -> bool:
        return self.schema.get("type") == "string" and "format" not in self.schema

    @property
    def problem(self) -> str | None:
        """What is wrong with it."""
        try:
            value = self.value
            if value is None:
                return "is required" if self.required else None
            _check_of(self.schema)(value)
        except ValueError as exc:
            return str(exc)
        return None

    def fill(self, value: JSON) -> None:
        """Fill in a default."""
        values = [one for one, _ in self.choices]
        if self.kind == "text":
            self.text = value if isinstance(value, str) else json.dumps(value)
        elif self.kind == "several" and isinstance(value, list):
            self.picked = {values.index(one) for one in value if one in values}
        elif value in values:
            self.picked = {values.index(value)}

    def press(self, key: str) -> None:
        count = len(self.choices)
        match self.kind, key:
            case "text", "backspace":
                self.text = self.text[:-1]
            case "text", _ if len(key) == 1 and key.isprintable():
                self.text += key
            case "choice", "left" | "right" if count:
                step = 1 if key == "right" else -1
                start = -1 if key == "right" else 0
                self.picked = {(min(self.picked, default=start) + step) % count}
            case "choice", "backspace":
                self.picked = set()
            case "several", "left" | "right" if count:
                self.at = (self.at + (1 if key == "right" else -1)) % count
            case "several", " " if count:
                self.picked ^= {self.at}
            case "choice", _ if len(key) == 1:
                for place, (_, title) in enumerate(self.choices):
                    if title.lower().startswith(key.lower()):
                        self.picked = {place}
                        break
            case _:
                pass

    def shown(self, *, is_here: bool) -> str:
        """What stands behind the title."""
        if self.kind == "text":
            return f"{one_line(self.text)}{'▏' if is_here else ''}"
        if self.kind == "choice":
            return "  ".join(
                f"‹{title}›" if place in self.picked else title
                for place, title in enumerate(one_line(t) for _, t in self.choices)
            )
        return "  ".join(
            f"{'›' if is_here and place == self.at else ''}"
            f"[{'x' if place in self.picked else ' '}] {one_line(title)}"
            for place, (_, title) in enumerate(self.choices)
        )


def _number(text: str, read: Callable[[str], JSON], words: str) -> JSON:
    try:
        number = read(text)
    except ValueError:
        raise ValueError(words) from None
    if "_" in text or number != number or abs(number) == math.inf:
        raise ValueError(words)  # Python's numbers, and not JSON's
    return number


def _check_of(schema: Mapping[str, Any]) -> Callable[[JSON], JSON]:
    try:
        return make_check(dict(schema), of="a field")
    except FormError:
        # A server that allows itself more than the protocol does will judge for itself.
        return lambda value: value


@define
class _Question:
    """One question.

    Attributes:
        key: The server's name for it.
        message: What it says.
        kind: What kind it is.
        fields: What is to be filled in.
        state: What became of it.
        note: What stands below the message.
        url: The page of a link, byte for byte as it is shown.
    """

    key: str
    message: str
    kind: Literal["form", "link", "sample", "nothing"]
    fields: list[_Field]
    state: State = "open"
    note: str = ""
    url: str = ""

    @property
    def response(self) -> JSON:
        """What to send."""
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


def _question(key: str, request: Mapping[str, Any]) -> _Question:
    params = request.get("params") or {}
    message = str(params.get("message", ""))
    if request["method"] == "sampling/createMessage":
        messages = params.get("messages")
        said = [_text_of(one) for one in messages] if isinstance(messages, list) else []
        prompt = _Field("text", {"type": "string", "title": "Answer"}, required=True)
        return _Question(key, "\n".join(said), "sample", [prompt])
    if params.get("mode") == "url":
        url = params.get("url")
        host = host_of(url)
        if host is None:
            note = "this link cannot be opened safely; decline it"
            return _Question(key, message, "nothing", [], note=note)
        note = f"opens {host}: {url}"
        return _Question(key, message, "link", [], note=note, url=str(url))
    schema = _dict(params.get("requestedSchema"))
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    fields = []
    for name, one in _dict(schema.get("properties")).items():
        one = _dict(one)
        made = _Field(name, one, required=name in required)
        if "default" in one:
            made.fill(one["default"])
        fields.append(made)
    if (
        len(fields) == 1
        and fields[0].name == "value"
        and "title" not in fields[0].schema
    ):
        # What servers call the only field of a question that has no need of a name.
        fields[0].schema = {**fields[0].schema, "title": "Answer"}
    return _Question(key, message, "form", fields)


_URL: Final = re.compile(r"https?://[!-~]+")


def host_of(url: object) -> str | None:
    """The host that a browser would go to; `None` where that is in doubt.

    What is shown must be what is opened: no other scheme, nothing invisible, nobody who
    poses as a host (`https://shop.example@evil.example`), no backslash, which browsers
    take for a slash.
    """
    if not isinstance(url, str) or not _URL.fullmatch(url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return None if "@" in parts.netloc else host


def _dict(value: Any) -> dict[str, Any]:
    # Of a server that says something else, there is nothing to show.
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text_of(message: Any) -> str:
    message = _dict(message)
    blocks = message.get("content")
    blocks = blocks if isinstance(blocks, list) else [blocks]
    texts = [str(one.get("text", "…")) for one in blocks if isinstance(one, dict)]
    return f"{message.get('role', 'user')}: {' '.join(texts)}"


class Screen:
    """All questions of a round, on one screen.

    Args:
        questions: By key: each a request as the protocol has it.

    Attributes:
        problem: Why the last key led nowhere.
    """

    def __init__(self, questions: Mapping[str, Mapping[str, Any]]) -> None:
        self._questions = [_question(key, one) for key, one in questions.items()]
        self._question = 0
        self._field = 0
        self._pages = 0
        self.problem = ""

    @property
    def open_count(self) -> int:
        """How many questions have no answer."""
        return sum(one.state == "open" for one in self._questions)

    @property
    def is_done(self) -> bool:
        """Whether all questions have an answer."""
        return not self.open_count

    @property
    def responses(self) -> dict[str, JSON]:
        """What to send, by key."""
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
        """A key was pressed: a character, or one of `KEYS`."""
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
            # Whoever types into what was answered wants to answer it again.
            question.state = "open"
            self._press(question, key)
        else:
            self._press(question, key)

    def _press(self, question: _Question, key: str) -> None:
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

    def _enter(self, question: _Question) -> None:
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
        """The screen, as lines of less than `width` columns.

        Args:
            width: The terminal's.
            height: How many lines there may be: those around the cursor. Any number by
                default.
        """
        width = max(10, width - 1)
        body, spot = self._body(width)
        foot = [part for line in self._foot() for part in wrapped(line, width)]
        if height is None:
            return body + foot
        # Somebody with three lines knows the keys.
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
                lines += wrapped(_line(field_, is_here=here), width)
                cursor = len(lines) - 1
                about = field_.schema.get("description")
                if here and about:
                    lines += wrapped(f"      {one_line(str(about))}", width)
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


def _head(question: _Question) -> list[str]:
    lines = [one_line(one) for one in question.message.splitlines() or [""]]
    lines[0] = f"{_SAID[question.state]}{lines[0]}"
    return [*lines, f"  {question.note}"] if question.note else lines


def _line(one: _Field, *, is_here: bool) -> str:
    star = "*" if one.required else " "
    problem = one.problem if one.text or one.picked else None
    said = f"   ({problem})" if problem else ""
    mark = "▸" if is_here else " "
    return f"  {mark} {one.title}{star} {one.shown(is_here=is_here)}{said}"
