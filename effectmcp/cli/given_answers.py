"""Read answers from the command line. No I/O except for the file of `--answers`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..canonical import JSON, parse
from ..errors import CanonicalError, EffectMCPError, UsageError
from .fields import check_of
from .printable import json_text
from .questions import fields_of, is_sampling, text_of
from .schemas import dict_in, list_in

__all__ = ["SamplingDeclined", "answers_in", "response_to", "split", "unanswered"]

_ACTIONS: Final = ("accept", "decline", "cancel")

#: The number of characters of a wrong answer that its error repeats.
_LONGEST_SHOWN: Final = 1_000


class SamplingDeclined(EffectMCPError):
    """Raised when the user declined a sampling request of 2026-07-28, to end the call.

    The server does not wait for a response, and the protocol has none for "the user said
    no" (Sampling, Error Handling).

    Attributes:
        key: The key of the question.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"{self.key} was declined, so the call has ended"


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
                f" {key}={json.dumps(text)!r}; yes and no are true and false"
            ) from None
    return found


def response_to(key: str, question: Mapping[str, Any], given: JSON) -> JSON:
    """Return the response to send for an answer of the command line.

    A whole response is returned unchecked, so that a script can try what the server does.

    Raises:
        UsageError: If `given` does not answer this question.
    """
    if isinstance(given, dict) and given.get("action") in _ACTIONS:
        return given
    if is_sampling(question):
        if isinstance(given, dict) and "role" in given:
            return given
        if not isinstance(given, str):
            raise UsageError(f"--answer {key}: give {_wanted(key, question)}")
        content = {"type": "text", "text": given}
        return {"role": "assistant", "content": content, "model": "the user"}
    fields = fields_of(question)
    if len(fields) == 1 and not isinstance(given, dict):
        given = {next(iter(fields)): given}
    if fields and isinstance(given, dict):
        _check(key, question, given)
        return {"action": "accept", "content": given}
    # Only true or false are accepted, so that no user consents by mistake.
    if fields or not isinstance(given, bool):
        wanted = f"an object with {', '.join(fields)}" if fields else "true or false"
        raise UsageError(f"--answer {key}: give {wanted}")
    if not given:
        return {"action": "decline"}
    is_link = dict_in(question.get("params")).get("mode") == "url"
    return {"action": "accept"} if is_link else {"action": "accept", "content": {}}


def _check(key: str, question: Mapping[str, Any], content: Mapping[str, JSON]) -> None:
    """Refuse content that does not fit the form, as a script cannot correct it."""
    fields = fields_of(question)
    schema = dict_in(dict_in(question.get("params")).get("requestedSchema"))
    problems: dict[str, str] = {}
    for name, field in fields.items():
        if name in content:
            try:
                check_of(dict_in(field))(content[name])
            except ValueError as exc:
                problems[name] = f"{name} {exc}"
        elif name in list_in(schema.get("required")):
            problems[name] = f"{name} is required"
    if problems:
        wanted = json_text({name: fields[name] for name in problems})
        words = "; ".join(problems.values())
        raise UsageError(f"--answer {key}: {words}. What fits: {wanted}")


def unanswered(
    asked: Mapping[str, Mapping[str, Any]], answered: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return a message about questions that cannot be asked without a terminal.

    Args:
        asked: The questions, by key.
        answered: The questions that answers of the command line were sent to, by key.
    """
    again, new = [], []
    for key, question in asked.items():
        line = f"{key} ({_wanted(key, question)}): {text_of(question)!r}"
        before = _first(key, question, answered)
        if before is None:
            new.append(line)
        else:
            again.append(f"--answer {before}: the server asks again, as {line}")
    if new:
        again.append(
            "the server asks, and there is no terminal. Give --answer KEY=JSON for "
            + "; ".join(new)
        )
    return "; ".join(again)


def _first(
    key: str,
    question: Mapping[str, Any],
    answered: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """Return the key of the answered question that is asked again; `None` if it is new.

    Servers of this library append `~2` to its key, or its problems to the text. Others
    may use the same key.
    """
    for one, before in answered.items():
        has_key = key == one or key.startswith(f"{one}~")
        if has_key or text_of(question).startswith(f"{text_of(before)}\n"):
            return one
    return None


def _wanted(key: str, question: Mapping[str, Any]) -> str:
    """Return what answers a question, in words."""
    if is_sampling(question):
        example = shlex.quote(f'{key}="TEXT"')
        return f"the text that the model writes, as --answer {example}"
    return ", ".join(fields_of(question)) or "yes or no: true or false"
