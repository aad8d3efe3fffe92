"""Convert an author's values to the content that a client would send.

A test writes `answer("Ann")` or `answer(Guest("Ann", 30))`, the value that the handler
will get. The engine gets the wire content, so that the test covers forms, checks and
defaults, too.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Any

from ..canonical import JSON
from ..effects.base import InputRequest
from ..effects.questions import (
    Confirm,
    Elicit,
    ElicitUrl,
    ListRoots,
    Root,
    Sample,
    Sampled,
)
from ..errors import UsageError
from ..forms.form import VALUE, Form

__all__ = ["content_of", "form_content", "plain"]


def content_of(request: InputRequest[Any], value: Any) -> JSON:
    """Return the wire content that answers `request` with `value`.

    Raises:
        UsageError: If `value` cannot answer `request`.
    """
    match request:
        case Elicit():
            return form_content(request.spec, value)
        case Confirm():
            if value is not None and value is not True:
                raise UsageError("a Confirm is answered with True or False")
            return {}
        case ElicitUrl():
            if value is not None:
                raise UsageError("an ElicitUrl has no content; answer it with None")
            return None
        case Sample():
            return _sampled(value)
        case _:
            assert isinstance(request, ListRoots), request
            return _roots(value)


def form_content(form: Form[Any], value: Any) -> dict[str, JSON]:
    """Return the content of a form that was filled in with `value`.

    Raises:
        UsageError: If `value` is neither an object nor of the form's class.
    """
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    found: dict[str, JSON] = {}
    for field in form.fields:
        if field.own_name:
            try:
                one = getattr(value, field.own_name)
            except AttributeError:
                raise UsageError(
                    f"{value!r} is not an answer to the form: it has no"
                    f" {field.own_name!r}"
                ) from None
        elif field.name == VALUE and len(form.fields) == 1:
            one = value
        else:
            raise UsageError(
                f"{value!r} is not an answer to the form: give an object with"
                f" {', '.join(one.name for one in form.fields)}"
            )
        # An empty field is left out.
        if one is not None:
            found[field.name] = plain(one)
    return found


def plain(value: Any) -> JSON:
    """Return a field's value as a client sends it."""
    if isinstance(value, enum.Enum):
        # As in forms: by value if all values are strings, otherwise by name.
        is_text = all(type(member.value) is str for member in type(value))
        return value.value if is_text else value.name
    if isinstance(value, dt.date):  # datetimes are dates
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _sampled(value: Any) -> JSON:
    if isinstance(value, str):
        value = Sampled([{"type": "text", "text": value}], "test-model", "endTurn")
    if not isinstance(value, Sampled):
        raise UsageError(
            f"a Sample is answered with a string or a Sampled, not {value!r}"
        )
    content: dict[str, JSON] = {
        "role": "assistant",
        "content": value.content,
        "model": value.model,
    }
    if value.stop_reason is not None:
        content["stopReason"] = value.stop_reason
    return content


def _roots(value: Any) -> JSON:
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"ListRoots is answered with a list of Roots, not {value!r}")
    roots = [Root(one) if isinstance(one, str) else one for one in value]
    if not all(isinstance(one, Root) for one in roots):
        raise UsageError(f"ListRoots is answered with Roots or URIs, not {value!r}")
    return {
        "roots": [
            {"uri": one.uri} if one.name is None else {"uri": one.uri, "name": one.name}
            for one in roots
        ]
    }
