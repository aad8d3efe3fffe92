"""Read answers from the command line. No I/O except for the file of `--answers`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..canonical import JSON, parse
from ..errors import CanonicalError, UsageError
from .schemas import dict_in, properties_of

__all__ = ["answers_in", "response_to", "split", "unanswered"]

_ACTIONS: Final = ("accept", "decline", "cancel")

#: The number of characters of a wrong answer that its error repeats.
_LONGEST_SHOWN: Final = 1_000


def split(text: str) -> tuple[str, str]:
    """Return the two sides of `NAME=VALUE`."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise UsageError(f"{text!r}: write NAME=VALUE")
    return name.strip(), value


def answers_in(given: Sequence[str], file: Path | None) -> dict[str, JSON]:
    """Return the answers, by the keys of their questions.

    Args:
        given: The answers, each as `KEY=JSON`.
        file: A file with more answers, as a JSON object.
    """
    found: dict[str, JSON] = {}
    if file is not None:
        try:
            found = parse(file.read_bytes())
        except (OSError, CanonicalError) as exc:
            raise UsageError(f"--answers {file}: {exc}") from None
        if not isinstance(found, dict):
            raise UsageError(f"--answers {file}: it is not a JSON object")
    for one in given:
        key, text = split(one)
        try:
            found[key] = parse(text)
        except CanonicalError:
            text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
            raise UsageError(
                f"--answer {key}={text}: {text!r} is not JSON; a string needs quotes:"
                f" {key}={json.dumps(text)!r}"
            ) from None
    return found


def response_to(key: str, question: Mapping[str, Any], given: JSON) -> JSON:
    """Return the response to send for an answer of the command line.

    Raises:
        UsageError: If `given` does not answer this question.
    """
    if isinstance(given, dict) and given.get("action") in _ACTIONS:
        return given
    if question["method"] == "sampling/createMessage":
        if isinstance(given, dict) and "role" in given:
            return given
        if not isinstance(given, str):
            raise UsageError(
                f"--answer {key}: give the text that the model writes, or its response"
            )
        content = {"type": "text", "text": given}
        return {"role": "assistant", "content": content, "model": "the user"}
    fields = _fields(question)
    if fields and isinstance(given, dict):
        return {"action": "accept", "content": given}
    if len(fields) == 1:
        return {"action": "accept", "content": {next(iter(fields)): given}}
    # Only true or false are accepted, so that no user consents by mistake.
    if fields or not isinstance(given, bool):
        wanted = f"an object with {', '.join(fields)}" if fields else "true or false"
        raise UsageError(f"--answer {key}: give {wanted}")
    if not given:
        return {"action": "decline"}
    is_link = dict_in(question.get("params")).get("mode") == "url"
    return {"action": "accept"} if is_link else {"action": "accept", "content": {}}


def unanswered(asked: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a message about questions that cannot be asked without a terminal."""
    lines = []
    for key, question in asked.items():
        message = dict_in(question.get("params")).get("message", question["method"])
        fields = ", ".join(_fields(question)) or "yes or no: true or false"
        lines.append(f"{key} ({fields}): {message!r}")
    return (
        "the server asks, and there is no terminal. Give --answer KEY=JSON for "
        + "; ".join(lines)
    )


def _fields(question: Mapping[str, Any]) -> Mapping[str, JSON]:
    return properties_of(dict_in(question.get("params")).get("requestedSchema"))
