"""An audit log: the questions that each user was asked, and the answers.

    audit = AuditLog("audit.jsonl")
    app = Server("shop", observers=[audit])

Each record is one line of JSON. A thread writes them, so requests wait for no disk. Lost
records are counted, and the next record reports their number.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from ..canonical import JSON
from ..protocol.modern import request_of
from ..server.events import (
    Event,
    HttpRefused,
    MessageRefused,
    QuestionsAnswered,
    QuestionsAsked,
    RequestBegan,
    RequestEnded,
    RoundBegan,
    RoundRefused,
    SessionOpened,
    TaskCreated,
    TurnEnded,
)
from .line_writer import LineWriter
from .secret_names import MASK, SecretNames

__all__ = ["AuditLog"]

#: The methods of calls. Other requests are not logged, unless they fail.
_CALLS: Final = ("tools/call", "prompts/get", "resources/read")

#: Characters of a string in a record.
_LONGEST: Final = 10_000
#: Characters of a record. A longer one is written without these parts.
_LONGEST_LINE: Final = 64 * 1024
_PARTS: Final = ("answers", "questions", "arguments")

#: Questions that asked for a secret, and whose answers are masked in this process.
_MOST_SECRET: Final = 10_000

Fields = dict[str, JSON]


class AuditLog:
    """An observer that writes questions, answers and calls as lines of JSON.

    Args:
        file: The path of the file, which is appended to; or a stream of strings. A file
            that was renamed or removed is opened again, for log rotation.
        secrets: Names of fields whose values are masked, beside `SECRETS`. Words in any
            spelling: `"account number"` is also `accountNumber` and `account_numbers`.
        answers: Whether answers are written; otherwise only whether there was one.
        arguments: Whether the arguments of calls are written.
        waiting: How many records may wait for the disk. Further ones are lost.
        memory: How many bytes they may have together.
        clock: Returns the seconds since 1970.

    Raises:
        UsageError: If the file cannot be opened.
    """

    def __init__(
        self,
        file: str | Path | IO[str],
        *,
        secrets: Iterable[str] = (),
        answers: bool = True,
        arguments: bool = True,
        waiting: int = 10_000,
        memory: int = 16 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = SecretNames(secrets)
        self._answers, self._arguments = answers, arguments
        self._clock = clock
        self._numbers = itertools.count(1)
        self._requests: dict[int, RequestBegan] = {}
        self._flows: dict[int, str] = {}
        self._asked_secrets: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._writer = LineWriter(
            file,
            waiting=waiting,
            memory=memory,
            lost=lambda count: self._headed({"event": "lost", "records": count}),
        )

    @property
    def lost(self) -> int:
        """The number of lost records so far."""
        return self._writer.lost

    def __call__(self, event: Event) -> None:
        """Take an event."""
        record = self._record_of(event)
        if record is None:
            return
        record = self._headed(record)
        line = json.dumps(_cut(record))
        if len(line) > _LONGEST_LINE:
            kept = {key: one for key, one in record.items() if key not in _PARTS}
            line = json.dumps(_cut(kept | {"cut": True}))
        self._writer.add(line)

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, and close the file.

        Args:
            seconds: How long to wait for the disk. Records that still wait are lost.
        """
        self._writer.close(seconds)

    def _headed(self, record: Fields) -> Fields:
        # Lines that were removed afterwards leave a gap between the numbers.
        head: Fields = {
            "time": _time_of(self._clock()),
            "process": os.getpid(),
            "number": next(self._numbers),
        }
        return head | {key: one for key, one in record.items() if one is not None}

    # ---- records --------------------------------------------------------------------

    def _record_of(self, event: Event) -> Fields | None:
        match event:
            case RequestBegan():
                self._requests[event.number] = event
            case RoundBegan():
                self._flows[event.number] = event.flow_id
            case RequestEnded():
                return self._ended(event)
            case QuestionsAsked():
                return self._asked(event)
            case QuestionsAnswered():
                return self._answered(event)
            case RoundRefused():
                return {
                    "event": "state refused",
                    "principal": event.principal,
                    "method": event.method,
                    "target": event.target,
                    "reason": getattr(event.error, "reason", "divergence"),
                }
            case MessageRefused():
                return {
                    "event": "message refused",
                    "principal": event.principal,
                    "code": event.code,
                }
            case HttpRefused():
                return {
                    "event": "http refused",
                    "status": event.status,
                    "address": event.address,
                }
            case SessionOpened():
                return {
                    "event": "session",
                    "principal": event.principal,
                    "client": event.client,
                    "revision": event.revision,
                }
            case TaskCreated():
                return {
                    "event": "task",
                    "principal": event.principal,
                    "target": event.tool,
                    "flow": event.flow_id,
                    "task": event.task,
                }
            case TurnEnded(status=status, was=was) if status not in (was, "dropped"):
                return {
                    "event": f"task {status}",
                    "principal": event.principal,
                    "target": event.tool,
                    "flow": event.flow_id,
                    "task": event.task,
                }
            case _:
                pass
        return None

    def _ended(self, event: RequestEnded) -> Fields | None:
        began = self._requests.pop(event.number, None)
        flow = self._flows.pop(event.number, None)
        is_call = event.method in _CALLS
        if not is_call and event.outcome not in ("error", "failed"):
            return None
        arguments: JSON = None
        if began is not None and self._arguments and is_call:
            arguments = self._secrets.masked(began.arguments)
        return {
            "event": "call" if is_call else "request",
            "principal": event.principal,
            "address": None if began is None else began.address,
            "client": None if began is None else began.client,
            "method": event.method,
            "target": event.target,
            "arguments": arguments,
            "flow": flow,
            "outcome": event.outcome,
            "error": event.error,
            "code": event.code,
            "seconds": round(event.seconds, 6),
        }

    def _asked(self, event: QuestionsAsked) -> Fields:
        questions: Fields = {}
        for one in event.questions:
            words = _question(request_of(one))
            questions[one.key] = words
            if self._secrets.has(json.dumps(words, ensure_ascii=False)):
                self._asked_secrets[event.flow_id, one.key] = None
        while len(self._asked_secrets) > _MOST_SECRET:
            self._asked_secrets.popitem(last=False)
        return {**_of_flow("asked", event), "questions": questions}

    def _answered(self, event: QuestionsAnswered) -> Fields:
        answers = {
            key: self._answer(event.flow_id, key, one)
            for key, one in event.answers.items()
        }
        return {**_of_flow("answered", event), "answers": answers}

    def _answer(self, flow_id: str, key: str, answer: JSON) -> JSON:
        is_secret = self._secrets.has(key)
        if (flow_id, key) in self._asked_secrets:
            is_secret = True
            self._asked_secrets.pop((flow_id, key), None)
        if not isinstance(answer, dict):
            return MASK
        if not self._answers:
            return {"action": answer.get("action", "answered")}
        shown: Fields = self._secrets.masked(answer)
        if is_secret and isinstance(shown.get("content"), dict):
            # The value of a single question has no name of its own.
            shown["content"] = dict.fromkeys(shown["content"], MASK)
        return shown


# ---- the contents of records --------------------------------------------------------


def _of_flow(event: str, of: QuestionsAsked | QuestionsAnswered) -> Fields:
    return {
        "event": event,
        "principal": of.principal,
        "method": of.method,
        "target": of.target,
        "flow": of.flow_id,
        "task": of.task,
    }


def _question(request: Mapping[str, JSON]) -> Fields:
    """Return a question in its words: the message, and the fields with their titles."""
    params: Any = request.get("params", {})
    words: Fields = {"method": request.get("method")}
    for key in ("message", "url", "systemPrompt", "messages"):
        if key in params:
            words[key] = params[key]
    schema = params.get("requestedSchema")
    if isinstance(schema, dict):
        words["fields"] = {
            name: {
                key: one[key]
                for key in ("title", "description", "enum", "type")
                if key in one
            }
            for name, one in schema.get("properties", {}).items()
        }
    return words


def _cut(value: Any) -> Any:
    """Return JSON with long strings cut."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    if isinstance(value, dict):
        return {_cut(str(key)): _cut(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(one) for one in value]
    return value


def _time_of(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
