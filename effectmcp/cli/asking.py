"""A client whose user sits at the terminal, or gave the answers beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..canonical import JSON
from ..client import Client, Pending
from ..client.channels import Channel
from ..errors import UsageError
from .answers import response_to, unanswered
from .offers import dict_in
from .terminal import Terminal
from .trace import Trace

__all__ = ["UserClient"]


class UserClient(Client):
    """A client that answers a round at once: all its questions are one screen.

    Args:
        channel: As a client has it, and so are the other options.
        given: Answers, by the keys of their questions.
        terminal: Where to ask.
        trace: Whom to tell of rounds.

    Attributes:
        was_refused: Whether something was declined or closed so far.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        given: Mapping[str, JSON],
        terminal: Terminal,
        trace: Trace | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            channel,
            # They say what can be asked; `answers` answers.
            elicit=lambda form: {},
            open_url=lambda link: True,
            sample=lambda sampling: "",
            **options,
        )
        self.was_refused = False
        self._given = dict(given)
        self._terminal = terminal
        self._trace = trace

    @property
    def unasked(self) -> list[str]:
        """The keys of given answers to which nobody asked the question."""
        return list(self._given)

    async def answers(self, pending: Pending) -> dict[str, JSON]:
        """The responses to what is asked.

        Raises:
            UsageError: Nobody is there to ask, and no answer was given.
            ReplyError: It is nothing that this client said it can be asked.
        """
        if self._trace is not None:
            self._trace.began(pending)
        found: dict[str, JSON] = {}
        asked: dict[str, Mapping[str, Any]] = {}
        for key, question in pending.questions.items():
            if not _is_of_users(question):
                found[key] = await self.answering.answer(key, question)
            elif key in self._given:
                # Once: what is asked again did not fit.
                found[key] = response_to(key, question, self._given.pop(key))
            else:
                asked[key] = question
        if asked:
            if not Terminal.is_there():
                raise UsageError(unanswered(asked))
            found |= self._terminal.ask(asked)
        self.was_refused |= any(map(_is_refusal, found.values()))
        if self._trace is not None:
            self._trace.answered(found)
        return found


def _is_of_users(question: Mapping[str, Any]) -> bool:
    """Whether it is for a user: what is not, the client answers, or refuses."""
    if question["method"] == "elicitation/create":
        mode = dict_in(question.get("params")).get("mode", "form")
        return mode in ("form", "url")
    is_sampling: bool = question["method"] == "sampling/createMessage"
    return is_sampling


def _is_refusal(response: JSON) -> bool:
    return dict_in(response).get("action") in ("decline", "cancel")
