"""Print each round, for `--trace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..canonical import JSON
from .printable import json_text
from .schemas import dict_in
from .token import journal_in

if TYPE_CHECKING:
    from ..client import Pending
    from ..state.keys import Keys

__all__ = ["Trace"]


class Trace:
    """Prints rounds.

    Args:
        say: Prints a line.
        keys: Returns the keys of the server, if they are known; otherwise the keys of
            the environment are tried.
        shows_answers: Whether answers are shown. Others may see the screen or read the
            logs.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        keys: Callable[[], Keys | None],
        shows_answers: bool = False,
    ) -> None:
        self._say = say
        self._keys = keys
        self._shows_answers = shows_answers

    def began(self, pending: Pending) -> None:
        """Print the questions of a round, and a summary of its state."""
        state, task = pending.call.state, pending.task
        size = "no state" if state is None else f"a state of {len(state):,} characters"
        if task is not None:
            size = f"the task {task.id}"
        journal = None if state is None else journal_in(state, self._keys())
        replayed = ""
        if journal is not None:
            replayed = f", which replays {len(journal.entries)} entries"
        self._say(f"round {pending.call.rounds}: {size}{replayed}")
        for key, question in pending.questions.items():
            message = dict_in(question.get("params")).get("message", question["method"])
            self._say(f"  {key}: {message}")

    def answered(self, responses: Mapping[str, JSON]) -> None:
        """Print the answers."""
        for key, response in responses.items():
            if not self._shows_answers:
                action = {name: response[name] for name in response if name == "action"}
                response = {**_masked(response), **action}
            self._say(f"  {key} → {json_text(response)}")


def _masked(value: JSON) -> JSON:
    """Return the structure of a value, without its content."""
    match value:
        case dict():
            return {name: _masked(one) for name, one in value.items()}
        case list():
            return [_masked(one) for one in value]
        case str():
            return "<text>"
        case bool():
            return "<yes or no>"
        case None:
            return None
        case _:
            return "<number>"
