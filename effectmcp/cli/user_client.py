"""A client whose user answers at the terminal, or on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..canonical import JSON
from ..client import Client, Pending, Sampling
from ..client.channels import Channel
from ..client.errors import ReplyError
from ..client.handshakes import HandshakeAdapter
from ..errors import Dismissed, UsageError
from .given_answers import SamplingDeclined, response_to, unanswered
from .questions import is_sampling
from .schemas import dict_in
from .terminal import Terminal
from .trace import Trace

__all__ = ["UserClient"]


class UserClient(Client):
    """A client that shows all questions of a round on one screen.

    Args:
        channel: The channel of the client. `Client` documents the other options; without
            `elicit`, `open_url` and `sample`, the user answers all questions.
        given: Answers, by the keys of their questions.
        terminal: The terminal to ask on.
        trace: Prints each round, if given.

    Attributes:
        was_refused: Whether a question was declined or closed so far.
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
        # They declare the capabilities; `answers` answers. They are called for questions
        # that belong to no call, which the user has not seen.
        functions: dict[str, Any] = {
            "elicit": lambda form: Dismissed(),
            "open_url": lambda link: Dismissed(),
            "sample": _refuse,
        }
        super().__init__(channel, on_round=self._show, **{**functions, **options})
        self.was_refused = False
        self._given = dict(given)
        self._answered: dict[str, Mapping[str, Any]] = {}
        self._terminal = terminal
        self._trace = trace

    def _show(self, pending: Pending) -> None:
        if pending.task is not None:
            self._terminal.status(pending.task)

    @property
    def has_session(self) -> bool:
        """Whether it speaks a revision with sessions, in which servers send questions."""
        return isinstance(self._line, HandshakeAdapter)

    @property
    def unasked(self) -> list[str]:
        """The keys of given answers whose question was never asked."""
        return list(self._given)

    async def answers(self, pending: Pending) -> dict[str, JSON]:
        """Return the responses to the questions of a round.

        Raises:
            UsageError: If there is no terminal, and an answer was not given or does not
                fit.
            SamplingDeclined: If the user declined a sampling request of 2026-07-28.
            ReplyError: If the client does not declare the capability for a question.
        """
        if self._trace is not None:
            self._trace.began(pending)
        found: dict[str, JSON] = {}
        asked: dict[str, Mapping[str, Any]] = {}
        for key, question in pending.questions.items():
            if not self._is_of_user(question):
                found[key] = await self.answering.answer(key, question)
            elif key in self._given:
                # Use it once: if the question is asked again, it did not fit.
                found[key] = response_to(key, question, self._given.pop(key))
                self._answered[key] = question
            else:
                asked[key] = question
        if asked:
            if not Terminal.is_there():
                raise UsageError(unanswered(asked, self._answered))
            found |= self._terminal.ask(asked)
        self.was_refused |= any(map(_is_refusal, found.values()))
        if self._trace is not None:
            self._trace.answered(found)
        for key, question in pending.questions.items():
            if is_sampling(question) and _is_refusal(found[key]):
                if not self.has_session:
                    raise SamplingDeclined(key)
        return found

    def _is_of_user(self, question: Mapping[str, Any]) -> bool:
        """Whether the user must answer; the client answers or refuses the others."""
        answering = self.answering
        mode = dict_in(question.get("params")).get("mode", "form")
        match question["method"], mode:
            case "elicitation/create", "form":
                return answering.elicit is not None
            case "elicitation/create", "url":
                return answering.open_url is not None
            case "sampling/createMessage", _:
                return answering.sample is not None
            case _:
                return False


def _refuse(sampling: Sampling) -> str:
    raise ReplyError("it asks the user outside of a call")


def _is_refusal(response: JSON) -> bool:
    return dict_in(response).get("action") in ("decline", "cancel")
