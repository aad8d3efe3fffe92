"""A call in its rounds, as values: the next request, and the meaning of its result.

    call = OngoingCall("tools/call", {"name": "order", "arguments": {"title": "Dune"}})
    message_params = call.params_now
    came = call.received(result)     → Complete(fields) | Pending(call, questions)
    call = came.answered({key: response})

No I/O, and only plain values: a `Pending` can be stored, and answered in another process.
A state belongs to one call (MRTR, Client Requirements). It is kept in the value and
nowhere else, so concurrent calls cannot mix up their states, and an interim result
without a state drops the previous state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, frozen

from ..canonical import JSON
from ..errors import EffectMCPError

__all__ = ["MAY_ASK", "Complete", "OngoingCall", "Pending", "ReplyError", "RoundsError"]


class ReplyError(EffectMCPError):
    """Raised when a server's response is invalid.

    Attributes:
        problem: The description of the error.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the server's answer cannot be used: {self.problem}"


class RoundsError(EffectMCPError):
    """Raised when a call has more interim results than allowed.

    Attributes:
        rounds: The number of interim results that were allowed.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__(rounds)
        self.rounds = rounds

    def __str__(self) -> str:
        return (
            f"the server asked {self.rounds} times and is not done; rounds= allows more"
        )


@frozen
class Complete:
    """The end of a call.

    Attributes:
        fields: The fields of its result.
    """

    fields: Mapping[str, JSON]


@frozen
class OngoingCall:
    """A call, with the contents of its next request.

    Attributes:
        method: `tools/call`, `prompts/get`, `resources/read`, or any other.
        params: The parameters that every round repeats.
        state: The state of the last interim result, unchanged.
        responses: The client's responses to the questions of that result.
        rounds: The number of interim results so far.
    """

    method: str
    params: Mapping[str, JSON]
    state: str | None = None
    responses: Mapping[str, JSON] | None = None
    rounds: int = 0

    @property
    def params_now(self) -> dict[str, JSON]:
        """The parameters of the next request, without `_meta`."""
        params = dict(self.params)
        if self.responses is not None:
            params["inputResponses"] = dict(self.responses)
        if self.state is not None:
            params["requestState"] = self.state
        return params

    def received(self, result: JSON) -> Complete | Pending:
        """Return what a result means for this call: its end, or another round.

        Raises:
            ReplyError: If the result is invalid, or of an unknown type.
        """
        if not isinstance(result, dict):
            raise ReplyError("a result is an object")
        # Servers of earlier revisions send no `resultType` (2026-07-28, Overview).
        type_ = result.get("resultType", "complete")
        if type_ == "complete":
            return Complete(result)
        if type_ != "input_required":
            raise ReplyError(f"a result of the unknown type {type_!r}")
        if self.method not in MAY_ASK:
            raise ReplyError(f"{self.method} is not a method that allows questions")
        questions, state = result.get("inputRequests"), result.get("requestState")
        if state is not None and not isinstance(state, str):
            raise ReplyError("requestState is not a string")
        if questions is None and state is None:
            raise ReplyError("input_required, and neither inputRequests nor a state")
        questions = {} if questions is None else questions
        if not _are_requests(questions):
            raise ReplyError("inputRequests is a map of requests")
        again = evolve(self, state=state, responses=None, rounds=self.rounds + 1)
        return Pending(again, questions)


#: Methods in which a server may ask (MRTR, Server Requirements).
MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


def _are_requests(questions: JSON) -> bool:
    return isinstance(questions, dict) and all(
        isinstance(one, dict)
        and isinstance(one.get("method"), str)
        and isinstance(one.get("params", {}), dict)
        for one in questions.values()
    )


@frozen
class Pending:
    """A call that waits for answers. It can be stored.

    Attributes:
        call: The call, with the state of this round.
        questions: The questions by key, each a request as defined by the protocol. Empty
            if the round only carries a state.
    """

    call: OngoingCall
    questions: Mapping[str, Mapping[str, Any]]

    def answered(self, responses: Mapping[str, JSON]) -> OngoingCall:
        """Return the call with `responses` for its next round, by the questions' keys."""
        return evolve(self.call, responses=dict(responses) if self.questions else None)

    def to_json(self) -> dict[str, JSON]:
        """Return a JSON value to store. It includes the state, as the server sent it."""
        call = self.call
        return {
            "method": call.method,
            "params": dict(call.params),
            "state": call.state,
            "rounds": call.rounds,
            "questions": dict(self.questions),
        }

    @classmethod
    def from_json(cls, value: JSON) -> Pending:
        """Return the call that `to_json` has stored.

        Raises:
            ReplyError: If `value` is not from `to_json`.
        """
        try:
            call = OngoingCall(
                method=value["method"],
                params=value["params"],
                state=value["state"],
                rounds=value["rounds"],
            )
            questions = value["questions"]
        except (TypeError, LookupError) as exc:
            raise ReplyError(f"a stored call without {exc}") from None
        if not (
            _are_requests(questions)
            and isinstance(value["method"], str)
            and isinstance(value["params"], dict)
            and isinstance(value["state"], str | None)
            and type(value["rounds"]) is int
        ):
            raise ReplyError("a stored call of another shape")
        return cls(call, questions)
