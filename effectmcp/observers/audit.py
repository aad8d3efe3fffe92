"""An audit log: the questions that each user was asked, and the answers.

    audit = AuditLog("audit.jsonl")
    app = Server("shop", observers=[audit])

Each record is one line of JSON. A thread writes them, so requests wait for no disk. Lost
records are counted, and the next record reports their number.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from ..canonical import JSON
from ..errors import UsageError
from ..logs import logger_for
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

__all__ = ["SECRETS", "AuditLog", "masked"]

logger = logger_for("effectmcp.audit")

#: Names of fields whose values are masked: whole words, in any spelling.
SECRETS: Final = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "api key",
    "private key",
    "pin",
    "cvv",
    "cvc",
    "ssn",
    "iban",
    "card number",
)

#: The replacement of a secret.
MASK: Final = "***"

#: The methods of calls. Other requests are not logged, unless they fail.
_CALLS: Final = ("tools/call", "prompts/get", "resources/read")

#: Seconds for which records are gathered for one write.
_GATHERING: Final = 0.05

#: Seconds between two tries to write to a disk that refuses.
_AGAIN: Final = 1.0

#: Characters of a string in a record.
_LONGEST: Final = 10_000
#: Characters of a record. A longer one is written without its questions and answers.
_LONGEST_LINE: Final = 64 * 1024

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class AuditLog:
    """An observer that writes questions, answers and calls as lines of JSON.

    Args:
        file: The path of the file, which is appended to; or a stream of strings. A file that
            was renamed or removed is opened again, for log rotation.
        secrets: Names of fields whose values are masked, beside `SECRETS`. Words in any
            spelling: `"account number"` is also `accountNumber` and `account_number`.
        answers: Whether answers are written; otherwise only whether there was one.
        waiting: How many records may wait for the disk. Further ones are lost.
        memory: How many bytes they may have together.
        clock: Returns the seconds since 1970.

    Attributes:
        lost: How many records could not be written, so far.

    Raises:
        UsageError: If the file cannot be opened.
    """

    def __init__(
        self,
        file: str | Path | IO[str],
        *,
        secrets: Iterable[str] = (),
        answers: bool = True,
        waiting: int = 10_000,
        memory: int = 16 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(secrets, str):
            raise UsageError(f"AuditLog(secrets={secrets!r}): give a list of names")
        for name, given in (("waiting", waiting), ("memory", memory)):
            if type(given) is not int or given < 1:
                raise UsageError(f"AuditLog({name}={given!r}): give 1 or more")
        self._secrets = frozenset(map(_name_of, (*SECRETS, *secrets)))
        self._answers = answers
        self._clock = clock
        self._most, self._memory = waiting, memory
        self._out: _Out = (
            _File(Path(file)) if isinstance(file, (str, Path)) else _Stream(file)
        )
        self._waiting: deque[str] = deque()
        self._size = 0
        self._clients: dict[int, str | None] = {}
        self._flows: dict[int, str] = {}
        self._condition = threading.Condition()
        self._is_closed = False
        self.lost = 0
        self._unsaid = 0
        self._thread = threading.Thread(
            target=self._run, name="effectmcp audit", daemon=True
        )
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Take an event."""
        record = self._record_of(event)
        if record is None:
            return
        head = {"time": _time_of(self._clock())}
        line = json.dumps(head | _fitting(record))
        if len(line) > _LONGEST_LINE:
            for part in ("answers", "questions"):
                record.pop(part, None)
            line = json.dumps(head | _fitting(record) | {"cut": True})
        with self._condition:
            size = self._size + len(line)
            is_full = len(self._waiting) >= self._most or size > self._memory
            if is_full or self._is_closed:
                self._lose(1)
            else:
                self._waiting.append(line)
                self._size = size
                if len(self._waiting) == 1:
                    self._condition.notify()

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, and close the file.

        Args:
            seconds: How long to wait for the disk. Records that still wait are lost.
        """
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            logger.error("the audit log could not be written to its end")

    # ---- records --------------------------------------------------------------------

    def _record_of(self, event: Event) -> dict[str, JSON] | None:
        match event:
            case RequestBegan():
                self._clients[event.number] = event.client
                return None
            case RoundBegan():
                self._flows[event.number] = event.flow_id
                return None
            case RequestEnded():
                return self._ended(event)
            case QuestionsAsked():
                return {
                    **_of_flow("asked", event),
                    "questions": {
                        one.key: _question(request_of(one)) for one in event.questions
                    },
                }
            case QuestionsAnswered():
                return {
                    **_of_flow("answered", event),
                    "answers": {
                        key: self._answer(key, one)
                        for key, one in event.answers.items()
                    },
                }
            case RoundRefused():
                reason = getattr(event.error, "reason", "divergence")
                return {
                    "event": "state refused",
                    "method": event.method,
                    "target": event.target,
                    "reason": reason,
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
                    "event": "task " + status,
                    "target": event.tool,
                    "task": event.task,
                }
            case _:
                return None

    def _ended(self, event: RequestEnded) -> dict[str, JSON] | None:
        client = self._clients.pop(event.number, None)
        flow = self._flows.pop(event.number, None)
        if event.method not in _CALLS and event.outcome not in ("error", "failed"):
            return None
        record: dict[str, JSON] = {
            "event": "call" if event.method in _CALLS else "request",
            "principal": event.principal,
            "client": client,
            "method": event.method,
            "target": event.target,
            "flow": flow,
            "outcome": event.outcome,
            "code": event.code,
            "seconds": round(event.seconds, 6),
        }
        return {key: one for key, one in record.items() if one is not None}

    def _answer(self, key: str, answer: JSON) -> JSON:
        if not isinstance(answer, dict):
            return MASK
        if not self._answers:
            return {"action": answer.get("action", "answered")}
        shown: dict[str, JSON] = masked(answer, self._secrets)
        if "content" in shown and _is_secret(key, self._secrets):
            shown["content"] = MASK  # the value of a single question has no name
        return shown

    # ---- writing --------------------------------------------------------------------

    def _lose(self, count: int) -> None:
        if not self._unsaid:
            logger.error("records of the audit log are lost")
        self.lost += count
        self._unsaid += count
        self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._unsaid and not self._is_closed:
                    self._condition.wait()
                if not self._waiting and not self._unsaid:
                    break
                if not self._is_closed:
                    # A thread that wakes for each record costs more than the record.
                    self._condition.wait(_GATHERING)
                lines, unsaid = list(self._waiting), self._unsaid
                # They keep their places until they are written: a disk that waits must
                # not make the memory grow.
            if unsaid:
                lost = {"time": _time_of(self._clock()), "event": "lost"}
                lines.append(json.dumps(lost | {"records": unsaid}))
            written = self._written(lines)
            with self._condition:
                for _ in range(min(written, len(self._waiting))):
                    self._size -= len(self._waiting.popleft())
                if written == len(lines):
                    if unsaid:
                        logger.error("%d records of the audit log were lost", unsaid)
                    self._unsaid -= unsaid
                elif self._is_closed:
                    self._lose(len(self._waiting))
                    break
                else:
                    self._condition.wait(_AGAIN)
        self._out.close()

    def _written(self, lines: list[str]) -> int:
        """Write lines; return how many could be."""
        try:
            self._out.write(lines)
        except (OSError, ValueError) as exc:
            logger.error("the audit log cannot be written: %s", exc)
            return self._out.done
        return len(lines)


class _Out:
    """Writes lines.

    Attributes:
        done: How many of the last lines were written.
    """

    done = 0

    def write(self, lines: list[str]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Stream(_Out):
    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, lines: list[str]) -> None:
        self.done = 0
        self._stream.write("".join(f"{one}\n" for one in lines))
        self._stream.flush()

    def close(self) -> None:
        pass  # it is its owner's


class _File(_Out):
    """A file, in which there is never half a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = self._opened()
        except OSError as exc:
            raise UsageError(f"AuditLog({str(path)!r}): {exc}") from None

    def _opened(self) -> int:
        # Other users of this machine must not read answers.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = os.open(self._path, flags, 0o600)
        self._id = _file_id(os.fstat(fd))
        return fd

    def write(self, lines: list[str]) -> None:
        self.done = 0
        self._follow()
        data = "".join(f"{one}\n" for one in lines).encode("ascii")
        # Other processes may append to the file, too.
        with _locked(self._fd):
            before = os.fstat(self._fd).st_size
            count = os.write(self._fd, data)
            if count < len(data):
                whole = data.rfind(b"\n", 0, count) + 1
                os.ftruncate(self._fd, before + whole)
                self.done = data.count(b"\n", 0, whole)
                raise OSError("only a part was written: the disk is full")

    def _follow(self) -> None:
        try:
            now = _file_id(os.stat(self._path))
        except FileNotFoundError:
            now = None
        if now != self._id:
            old, self._fd = self._fd, self._opened()
            os.close(old)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def _locked(fd: int) -> Iterator[None]:
    if sys.platform == "win32":
        yield  # where no second process can serve the same address
        return
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _file_id(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


# ---- the contents of records --------------------------------------------------------


def _of_flow(event: str, of: QuestionsAsked | QuestionsAnswered) -> dict[str, JSON]:
    record: dict[str, JSON] = {
        "event": event,
        "principal": of.principal,
        "method": of.method,
        "target": of.target,
        "flow": of.flow_id,
        "task": of.task,
    }
    return {key: one for key, one in record.items() if one is not None}


def _question(request: Mapping[str, JSON]) -> JSON:
    """Return a question in its words: the message, and the fields with their titles."""
    params: Any = request.get("params", {})
    words: dict[str, JSON] = {"method": request.get("method")}
    for key in ("message", "url", "systemPrompt", "messages"):
        if key in params:
            words[key] = params[key]
    schema = params.get("requestedSchema")
    if isinstance(schema, dict):
        fields = schema.get("properties", {})
        words["fields"] = {
            name: {
                key: one[key]
                for key in ("title", "description", "enum", "type")
                if key in one
            }
            for name, one in fields.items()
        }
    return words


def masked(value: JSON, secrets: frozenset[str]) -> JSON:
    """Return JSON whose secrets are masked, by the names of fields.

    Args:
        value: The JSON.
        secrets: The names, each in lower-cased words with spaces.
    """
    if isinstance(value, dict):
        return {
            key: MASK if _is_secret(str(key), secrets) else masked(one, secrets)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [masked(one, secrets) for one in value]
    return value


def _is_secret(name: str, secrets: frozenset[str]) -> bool:
    padded = f" {_name_of(name)} "
    return any(f" {one} " in padded for one in secrets)


def _name_of(name: str) -> str:
    """Return a name as lower-cased words: `api key` for `apiKey`, `API_KEY` and `api-key`."""
    return " ".join(_WORDS.findall(name)).lower() or name.lower()


def _fitting(value: Any) -> Any:
    """Return JSON with long strings cut."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    if isinstance(value, dict):
        return {_fitting(str(key)): _fitting(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fitting(one) for one in value]
    return value


def _time_of(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
