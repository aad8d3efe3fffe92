"""`tasks/result` of 2025-11-25 and the drafts: wait for the end of a task, and ask.

2025-11-25 answers when the task has ended; until then, the questions of the task go out
on the stream of this request, as any other live question. The drafts answer as soon as
there are questions, and the client sends their answers by `tasks/input_response`.

Where a loop runs, changes of the task end the wait; elsewhere the task is read each second.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ..canonical import JSON
from ..protocol.jsonrpc import Id, notification
from ..protocol.legacy import request_message
from .commands import Ask, Command, Notify
from .context import Legacy, seated
from .sessions import Dropped, TaskInquiry
from .task_rows import Mail
from .task_wires import outcome_of, related
from .tasks import find_task, post_mail

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from ..server.changes import Change
    from .context import Context
    from .sessions import Session
    from .task_rows import TaskRow

__all__ = ["result_of_task"]

#: Seconds until the task is read again, even if no change was reported.
_LOOK: Final = 1.0


def result_of_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Return the fields of the task's own result, or of the questions that it asks.

    Raises:
        ProtocolError: If the task is unknown, or ended with an error or a cancel.
        Dropped: If the client does not wait any longer.
    """
    row = yield from find_task(context)
    if outcome_of(row) is not None:
        return _result(row)
    advice = "Poll the task with tasks/get, and send this request again later."
    with seated(context, advice):
        return (yield from _wait(context, row))


def _result(row: TaskRow) -> dict[str, JSON]:
    outcome = outcome_of(row)
    assert outcome is not None  # the task has ended
    meta = outcome.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    return {**outcome, "_meta": {**meta, **related(row.id)}}


def _wait(context: Context, row: TaskRow) -> Generator[Command, Any, dict[str, JSON]]:
    asking = TaskInquiry()
    running = context.running
    if running is not None:
        running.wait_for(asking)

    def hear(change: Change) -> None:
        if change.what == "end" or (change.what, change.uri) == ("task", row.id):
            asking.change()

    dialect, session = context.dialect, context.peer.session
    is_live = isinstance(dialect, Legacy)
    asked: _Asked | None = None
    if isinstance(dialect, Legacy) and session is not None:
        asked = _Asked(asking, session, dialect.revision, context.meta.capabilities)
    end = context.app.changes.listen(hear)
    try:
        while outcome_of(row) is None:
            if row.questions and not is_live:
                return {"inputRequests": dict(row.questions), "_meta": related(row.id)}
            asking.is_changed = False
            row = yield from find_task(context, row.id)
            if asked is not None:
                for id_ in asked.update(row):
                    params = {"requestId": id_, "_meta": related(row.id)}
                    yield Notify(notification("notifications/cancelled", params))
            if outcome_of(row) is not None or (row.questions and not is_live):
                continue
            asking.until = context.clock() + _LOOK
            yield Ask(asking)
            if asking.is_gone:
                raise Dropped
            if asked is not None and (mail := asked.take_mail()):
                yield from post_mail(context, row, mail)
        return _result(row)
    finally:
        end()
        if asked is not None:
            asked.close()
        if running is not None:
            running.asking = None


@define(eq=False)
class _Asked:
    """The questions of a task that this request has put to its client."""

    _asking: TaskInquiry
    _session: Session
    _revision: Revision
    _capabilities: Mapping[str, JSON]
    _ids: dict[str, Id] = field(factory=dict, init=False)
    #: The methods of all that were asked.
    _methods: dict[str, str] = field(factory=dict, init=False)
    #: Questions that the client answered, or could not.
    _done: set[str] = field(factory=set, init=False)

    def update(self, row: TaskRow) -> list[Id]:
        """Ask what is new; return the ids of questions that are not needed any more."""
        gone = [key for key in self._ids if key not in row.questions]
        ids = [self._withdraw(key) for key in gone]
        for key, question in row.questions.items():
            if key in self._ids or key in self._done:
                continue
            if _can_answer(question, self._capabilities):
                self._methods[key] = question["method"]
                make = partial(self._message, row.id, key, question)
                self._ids[key] = self._session.ask_more(self._asking, make)
        return ids

    def _message(
        self, id_: str, key: str, question: Mapping[str, Any], request: Id
    ) -> Mapping[str, JSON]:
        return request_message(
            question, self._revision, request, f"{id_}-{key}", related(id_)
        )

    def _withdraw(self, key: str) -> Id:
        id_ = self._ids.pop(key)
        self._session.withdraw(self._asking, id_)
        return id_

    def take_mail(self) -> list[Mail]:
        """Return the answers that have arrived, as mail for the task."""
        mail = []
        for key, id_ in list(self._ids.items()):
            reply = self._asking.replies.pop(id_, None)
            if reply is None:
                continue
            self._withdraw(key)
            self._done.add(key)
            answer = _answer_in(reply, self._methods[key])
            if answer is not None:
                mail.append(Mail(f"answer:{key}", "answer", key, answer))
        return mail

    def close(self) -> None:
        """Stop waiting for replies."""
        for key in list(self._ids):
            self._withdraw(key)


#: The capability that each question needs.
_NEEDS: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


def _can_answer(question: Mapping[str, Any], capabilities: Mapping[str, Any]) -> bool:
    """Return whether this client can answer: another one may have created the task."""
    declared = capabilities.get(_NEEDS[question["method"]])
    if not isinstance(declared, dict):
        return False
    params = question.get("params", {})
    if question["method"] == "elicitation/create":
        # An empty object means forms (2025-11-25, Elicitation, Capabilities).
        mode = params.get("mode", "form")
        return mode in declared or (mode == "form" and not declared)
    return "tools" in declared or not {"tools", "toolChoice"} & params.keys()


def _answer_in(reply: Mapping[str, Any], method: str) -> JSON:
    """Return the answer in a response; `None` if the response has no answer.

    The mail of a task holds results. An error of a client whose user was asked counts as
    a form that was closed; after other errors, the question stays outstanding.
    """
    error = reply.get("error")
    if error is None:
        return reply.get("result")
    if method != "elicitation/create":
        return None
    is_no = isinstance(error, dict) and error.get("code") == -1
    return {"action": "decline"} if is_no else {"action": "cancel"}
