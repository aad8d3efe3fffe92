"""One field of a form: keys in, a line and a value out. No I/O.

Input is checked by the same rules as on the server (`forms`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from attrs import define, field

from ..canonical import JSON
from ..errors import FormError
from ..forms.fields import make_check
from .schemas import dict_in, list_in

__all__ = ["InputField", "check_of"]

Kind: TypeAlias = Literal["text", "choice", "several"]


@define
class InputField:
    """One field of a form.

    Attributes:
        name: Its property.
        schema: Its schema.
        required: Whether it must be filled in.
        text: The typed text.
        picked: The indexes of the chosen options.
        at: The index of the option under the cursor.
        was_filled: Whether the field had a default.
    """

    name: str
    schema: Mapping[str, Any]
    required: bool
    text: str = ""
    picked: set[int] = field(factory=set)
    at: int = 0
    was_filled: bool = False

    @property
    def title(self) -> str:
        return str(self.schema.get("title") or self.name)

    @property
    def kind(self) -> Kind:
        if self.schema.get("type") == "array":
            return "several"
        if self.schema.get("type") == "boolean" or self.choices:
            return "choice"
        return "text"

    @property
    def choices(self) -> list[tuple[JSON, str]]:
        """The values and titles of the options."""
        schema = self.schema
        if schema.get("type") == "boolean":
            return [(True, "yes"), (False, "no")]
        if schema.get("type") == "array":
            schema = schema.get("items") or {}
        schema = dict_in(schema)
        titled = list_in(schema.get("oneOf")) or list_in(schema.get("anyOf"))
        if titled:
            consts = [one for one in map(dict_in, titled) if "const" in one]
            return [
                (one["const"], str(one.get("title", one["const"]))) for one in consts
            ]
        values = list_in(schema.get("enum"))
        names = list_in(schema.get("enumNames")) or values
        return list(zip(values, map(str, names), strict=False))

    @property
    def value(self) -> JSON:
        """The value of the field; `None` if it is empty.

        Raises:
            ValueError: If the value does not fit, in words that complete the sentence
                "age …".
        """
        if not self.text and not self.picked:
            return self._empty
        if self.kind == "several":
            return [self.choices[place][0] for place in sorted(self.picked)]
        if self.kind == "choice":
            return self.choices[min(self.picked)][0]
        match self.schema.get("type"):
            case "integer":
                return _number(self.text, int, "must be a whole number")
            case "number":
                return _number(self.text, float, "must be a number")
            case _:
                return self.text

    @property
    def _empty(self) -> JSON:
        # The value to send for an empty field; `None` leaves the field out.
        is_text = self.schema.get("type") == "string" and "format" not in self.schema
        empty: JSON = {"text": "" if is_text else None, "several": []}.get(self.kind)
        if self.required or empty is None:
            return empty
        # If the field were left out, the server would apply the default again.
        return empty if self.was_filled and self._fits(empty) else None

    def _fits(self, value: JSON) -> bool:
        try:
            check_of(self.schema)(value)
        except ValueError:
            return False
        return True

    @property
    def problem(self) -> str | None:
        """The problem with the value; `None` if it fits."""
        try:
            value = self.value
            if value is None:
                return "is required" if self.required else None
            check_of(self.schema)(value)
        except ValueError as exc:
            return str(exc)
        return None

    def fill(self, value: JSON) -> None:
        """Fill in a default."""
        if value is None:
            return
        values = [one for one, _ in self.choices]
        if self.kind == "text":
            self.text = value if isinstance(value, str) else json.dumps(value)
        elif self.kind == "several" and isinstance(value, list):
            self.picked = {values.index(one) for one in value if one in values}
        elif value in values:
            self.picked = {values.index(value)}
        self.was_filled = bool(self.text or self.picked)

    def press(self, key: str) -> None:
        count = len(self.choices)
        match self.kind, key:
            case "text", "backspace":
                self.text = self.text[:-1]
            case "text", _ if len(key) == 1 and key.isprintable():
                self.text += key
            case "choice", "left" | "right" | " " if count:
                step, start = (-1, 0) if key == "left" else (1, -1)
                self.picked = {(min(self.picked, default=start) + step) % count}
            case "choice" | "several", "backspace":
                self.picked = set()
            case "several", "left" | "right" if count:
                self.at = (self.at + (1 if key == "right" else -1)) % count
            case "several", " " if count:
                self.picked ^= {self.at}
            case "choice" | "several", _ if len(key) == 1:
                self._go_to(key)
            case _:
                pass

    def _go_to(self, letter: str) -> None:
        """Move to the next option that begins with `letter`; wrap around at the end."""
        is_one = self.kind == "choice"
        here = min(self.picked, default=-1) if is_one else self.at
        titles = [title.lower() for _, title in self.choices]
        for step in range(1, len(titles) + 1):
            place = (here + step) % len(titles)
            if titles[place].startswith(letter.lower()):
                if is_one:
                    self.picked = {place}
                else:
                    self.at = place
                return

    def line(self, *, is_here: bool) -> str:
        """Return the field as a line, with its value and its problem."""
        words = None
        if self.text or self.picked:
            words = self.problem
        elif not self.required and self._empty is not None:
            words = "sent empty"
        star, mark = "*" if self.required else " ", "▸" if is_here else " "
        said = f"   ({words})" if words else ""
        return f"  {mark} {self.title}{star} {self._shown(is_here=is_here)}{said}"

    def _shown(self, *, is_here: bool) -> str:
        if self.kind == "text":
            return f"{self.text}{'▏' if is_here else ''}"
        if self.kind == "choice":
            return "  ".join(
                f"‹{title}›" if place in self.picked else title
                for place, (_, title) in enumerate(self.choices)
            )
        return "  ".join(
            f"{'›' if is_here and place == self.at else ''}"
            f"[{'x' if place in self.picked else ' '}] {title}"
            for place, (_, title) in enumerate(self.choices)
        )


def _number(text: str, read: Callable[[str], JSON], words: str) -> JSON:
    try:
        number = read(text)
    except ValueError:
        raise ValueError(words) from None
    if "_" in text or number != number or abs(number) == math.inf:
        raise ValueError(words)  # legal in Python, not in JSON
    return number


def check_of(schema: Mapping[str, Any]) -> Callable[[JSON], JSON]:
    """Return the check of a field's values; it raises `ValueError` if one does not fit."""
    try:
        return make_check(dict(schema), of="a field")
    except FormError:
        # A schema beyond the protocol's subset: the server checks the value.
        return lambda value: value
