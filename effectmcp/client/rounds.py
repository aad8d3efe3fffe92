"""A call in its rounds, as values: the next request, and the meaning of its result.

    call = OngoingCall("tools/call", {"name": "order", "arguments": {"title": "Dune"}})
    message_params = call.params_now
    came = call.received(result)     → Complete(fields) | Pending(call, questions)
    call = came.answered({key: response})

A `tools/call` may become a task (Tasks extension). The call is then followed, and its
next request is another one; the server's next result comes from there:

    call.received(a task)  → Pending(call, {})           call.method_now == "tasks/get"
    call.received(asking)  → Pending(call, questions)    answered: "tasks/update"
    call.received(ended)   → Complete(the result of the call)

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
from .errors import ReplyError, TaskCancelled
from .tasks import Task, are_requests, error_in, is_object, questions_in

__all__ = ["MAY_ASK", "MAY_BECOME_TASKS", "Complete", "OngoingCall", "Pending"]


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
        rounds: The number of interim results so far; of a task, those with questions.
        task: The task that it has become; `None` before.
        trace: The W3C trace context of its first request, if it is traced.
    """

    method: str
    params: Mapping[str, JSON]
    state: str | None = None
    responses: Mapping[str, JSON] | None = None
    rounds: int = 0
    task: Task | None = None
    trace: str | None = None

    @property
    def method_now(self) -> str:
        """The method of the next request."""
        if self.task is None:
            return self.method
        return "tasks/get" if self.responses is None else "tasks/update"

    @property
    def params_now(self) -> dict[str, JSON]:
        """The parameters of the next request, without `_meta`."""
        params: dict[str, JSON] = {}
        if self.task is not None:
            params["taskId"] = self.task.id
        else:
            params |= self.params
            if self.state is not None:
                params["requestState"] = self.state
        if self.responses is not None:
            params["inputResponses"] = dict(self.responses)
        return params

    def received(self, result: JSON) -> Complete | Pending:
        """Return what a result means for this call: its end, or another round.

        Raises:
            ReplyError: If the result is invalid, or of an unknown type.
            ProtocolError: If the task has failed.
            TaskCancelled: If the task was cancelled.
        """
        if self.task is not None:
            return self._followed(self.task, result)
        if not isinstance(result, dict):
            raise ReplyError("a result is an object")
        # Servers of earlier revisions send no `resultType` (2026-07-28, Overview).
        type_ = result.get("resultType", "complete")
        if type_ == "complete":
            return Complete(result)
        if type_ == "task" and self.method in MAY_BECOME_TASKS:
            task = Task.announced(result)
            return Pending(evolve(self, state=None, responses=None, task=task), {})
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
        if not are_requests(questions):
            raise ReplyError("inputRequests is a map of requests")
        again = evolve(self, state=state, responses=None, rounds=self.rounds + 1)
        return Pending(again, questions)

    def _followed(self, task: Task, result: JSON) -> Complete | Pending:
        """Return what the result of `tasks/get` or `tasks/update` means."""
        if self.responses is not None:
            if not is_object(result, "complete"):
                raise ReplyError("the acknowledgement of answers is an object")
            task = task.asked_once(self.responses)
            return Pending(evolve(self, responses=None, task=task), {})
        task = task.seen(result)
        if task.status == "completed":
            return self._of_ended(result.get("result"))
        if task.status == "failed":
            raise error_in(result)
        if task.status == "cancelled":
            raise TaskCancelled(task.id, task.message)
        is_asking = task.status == "input_required"
        questions = questions_in(result, task) if is_asking else {}
        rounds = self.rounds + bool(questions)
        return Pending(evolve(self, task=task, rounds=rounds), questions)

    def _of_ended(self, result: JSON) -> Complete:
        """Return the end of a call whose task is completed."""
        if not is_object(result, "complete"):
            raise ReplyError("a completed task without a complete result")
        return Complete(result)


#: Methods in which a server may ask (MRTR, Server Requirements).
MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


#: Methods whose calls may become tasks (Tasks extension, Supported Methods).
MAY_BECOME_TASKS: Final = frozenset({"tools/call"})


@frozen
class Pending:
    """A call that waits for answers. It can be stored.

    Attributes:
        call: The call, with the state of this round.
        questions: The questions by key, each a request as defined by the protocol. Empty
            if the round only carries a state, and while a task asks nothing.
    """

    call: OngoingCall
    questions: Mapping[str, Mapping[str, Any]]

    @property
    def task(self) -> Task | None:
        """The task that the call has become; `None` before."""
        return self.call.task

    def answered(self, responses: Mapping[str, JSON]) -> OngoingCall:
        """Return the call with `responses` for its next round, by the questions' keys.

        A task may get some of the answers now and the others later.
        """
        if self.task is not None:
            # A later question may have any other key, and no key is answered twice.
            given = {key: responses[key] for key in self.questions if key in responses}
            return evolve(self.call, responses=given or None)
        return evolve(self.call, responses=dict(responses) if self.questions else None)

    def to_json(self) -> dict[str, JSON]:
        """Return a JSON value to store. It includes the state, as the server sent it."""
        call = self.call
        stored: dict[str, JSON] = {
            "method": call.method,
            "params": dict(call.params),
            "state": call.state,
            "rounds": call.rounds,
            "questions": dict(self.questions),
        }
        if call.task is not None:
            stored["task"] = call.task.to_json()
        if call.trace is not None:
            stored["trace"] = call.trace
        return stored

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
                task=Task.from_json(value["task"]) if "task" in value else None,
                trace=value.get("trace"),
            )
            questions = value["questions"]
        except (TypeError, LookupError, AttributeError) as exc:
            raise ReplyError(f"a stored call without {exc}") from None
        if not (
            are_requests(questions)
            and isinstance(value["method"], str)
            and isinstance(value["params"], dict)
            and isinstance(value["state"], str | None)
            and type(value["rounds"]) is int
            and isinstance(call.trace, str | None)
        ):
            raise ReplyError("a stored call of another shape")
        return cls(call, questions)
