"""Read a server's questions, and ignore invalid parts. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..canonical import JSON
from .schemas import dict_in, list_in, properties_of

__all__ = ["fields_of", "is_sampling", "text_of"]


def is_sampling(question: Mapping[str, Any]) -> bool:
    """Whether a model is asked for a message."""
    return bool(question["method"] == "sampling/createMessage")


def text_of(question: Mapping[str, Any]) -> str:
    """Return the text to show: the message to the user, or the messages to a model."""
    params = dict_in(question.get("params"))
    if is_sampling(question):
        return "\n".join(map(_line, list_in(params.get("messages"))))
    return str(params.get("message", ""))


def fields_of(question: Mapping[str, Any]) -> Mapping[str, JSON]:
    """Return the schemas of the fields of a form, by name."""
    return properties_of(dict_in(question.get("params")).get("requestedSchema"))


def _line(message: JSON) -> str:
    message = dict_in(message)
    blocks = message.get("content")
    blocks = blocks if isinstance(blocks, list) else [blocks]
    texts = [str(one.get("text", "…")) for one in blocks if isinstance(one, dict)]
    return f"{message.get('role', 'user')}: {' '.join(texts)}"
