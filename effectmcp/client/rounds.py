"""A call in its rounds, as values: what to send, and what follows from what came back.

    call = Call("tools/call", {"name": "order", "arguments": {"title": "Dune"}})
    message_params = call.params_now
    came = call.received(result)     → Complete(fields) | Pending(call, questions)
    call = came.answered({key: response})

Pure, and of plain values: a `Pending` can be stored, and answered in another process.
State belongs to one call (MRTR, Client Requirements): it is in the value and nowhere
else, so calls that run side by side cannot swap it; and a round that comes without one
drops the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, frozen

from ..canonical import JSON
from ..errors import EffectMCPError

__all__ = ["MAY_ASK", "Call", "Complete", "Pending", "ReplyError", "RoundsError"]


class ReplyError(EffectMCPError):
    """The server answered with something that is no answer.

    Attributes:
        problem: What is wrong with it.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the server's answer cannot be used: {self.problem}"


class RoundsError(EffectMCPError):
    """The server asks again and again.

    Attributes:
        rounds: How often it asked.
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
    """A call is over.

    Attributes:
        fields: The result's fields.
    """

    fields: Mapping[str, JSON]


@frozen
class Call:
    """A call, with all that its next round brings.

    Attributes:
        method: `tools/call`, `prompts/get`, `resources/read`, or any other.
        params: What every round says again.
        state: The state that came with the last round, byte for byte.
        responses: What the client answers to what was asked there.
        rounds: Interim results so far.
    """

    method: str
    params: Mapping[str, JSON]
    state: str | None = None
    responses: Mapping[str, JSON] | None = None
    rounds: int = 0

    @property
    def params_now(self) -> dict[str, JSON]:
        """The parameters of the next request; `_meta` is not among them."""
        params = dict(self.params)
        if self.responses is not None:
            params["inputResponses"] = dict(self.responses)
        if self.state is not None:
            params["requestState"] = self.state
        return params

    def received(self, result: JSON) -> Complete | Pending:
        """What a result means for this call.

        Raises:
            ReplyError: It is none that this client knows.
        """
        if not isinstance(result, dict):
            raise ReplyError("a result is an object")
        # Servers of earlier revisions say nothing of a type (2026-07-28, Overview).
        type_ = result.get("resultType", "complete")
        if type_ == "complete":
            return Complete(result)
        if type_ != "input_required":
            raise ReplyError(f"a result of the unknown type {type_!r}")
        if self.method not in MAY_ASK:
            raise ReplyError(f"{self.method} is no method in which a server may ask")
        questions, state = result.get("inputRequests"), result.get("requestState")
        if state is not None and not isinstance(state, str):
            raise ReplyError("requestState is a text")
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
        questions: What is asked, by key: each a request as the protocol has it. None in
            a round that only carries its state.
    """

    call: Call
    questions: Mapping[str, Mapping[str, Any]]

    def answered(self, responses: Mapping[str, JSON]) -> Call:
        """The call whose next round brings `responses`, by the keys of the questions."""
        return evolve(self.call, responses=dict(responses) if self.questions else None)

    def to_json(self) -> dict[str, JSON]:
        """For a store. It holds the state, which is whatever the server made of it."""
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
        """What `to_json` gave.

        Raises:
            ReplyError: It is something else.
        """
        try:
            call = Call(
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
