"""Write lines to a file or a stream in a thread, so that no caller waits for a disk."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Protocol

from ..canonical import JSON
from ..errors import UsageError
from ..logs import logger_for

__all__ = ["LineWriter"]

logger = logger_for("effectmcp.audit")

#: Seconds for which records are gathered for one write.
_GATHERING: Final = 0.05

#: Seconds between two tries to write to a disk that refuses.
_AGAIN: Final = 1.0


class LineWriter:
    """Writes lines. Lines that cannot be written are counted.

    Args:
        file: The path of the file, which is appended to; or a stream of strings.
        waiting: How many lines may wait.
        memory: How many characters they may have together.
        lost: Returns a record with the number of lost lines.

    Attributes:
        lost: How many lines could not be written, so far.

    Raises:
        UsageError: If the file cannot be opened.
    """

    def __init__(
        self,
        file: str | Path | IO[str],
        *,
        waiting: int,
        memory: int,
        lost: Callable[[int], dict[str, JSON]],
    ) -> None:
        for name, given in (("waiting", waiting), ("memory", memory)):
            if type(given) is not int or given < 1:
                raise UsageError(f"{name}={given!r}: give 1 or more")
        self._most, self._memory, self._record = waiting, memory, lost
        self._out: _Out = (
            _File(Path(file)) if isinstance(file, (str, Path)) else _Stream(file)
        )
        self.lost = 0
        self._is_closed = False
        self._start()

    def _start(self) -> None:
        # Also in a process that was forked: it has neither the thread nor, perhaps, a
        # lock that is free, and what waited is for the thread of its parent.
        self._process = os.getpid()
        self._condition = threading.Condition()
        self._waiting: deque[str] = deque()
        self._size = 0
        self._unsaid = 0
        self._is_failing = False
        self._thread = threading.Thread(
            target=self._run, name="effectmcp audit", daemon=True
        )
        self._thread.start()

    def add(self, line: str) -> None:
        """Have a line written, or count it as lost."""
        if self._process != os.getpid():
            self._start()
        with self._condition:
            size = self._size + len(line)
            is_full = len(self._waiting) >= self._most or size > self._memory
            if is_full or self._is_closed:
                self._lose(1)
                return
            self._waiting.append(line)
            self._size = size
            if len(self._waiting) == 1:
                self._condition.notify()

    def close(self, seconds: float) -> None:
        """Write the lines that wait, and close the file.

        Args:
            seconds: How long to wait for the disk. Lines that still wait are lost.
        """
        if self._process != os.getpid():
            return  # of a parent, which closes it
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            logger.error(
                "%s could not be written to its end: %d records are lost",
                self._out.name,
                len(self._waiting),
            )

    def _lose(self, count: int) -> None:
        if not self._unsaid:
            why = "it is closed" if self._is_closed else "too many records wait"
            logger.error("%s loses records: %s", self._out.name, why)
        self.lost += count
        self._unsaid += count
        self._condition.notify()

    def _run(self) -> None:
        condition = self._condition
        while True:
            with condition:
                while not self._waiting and not self._unsaid and not self._is_closed:
                    condition.wait()
                if not self._waiting and not self._unsaid:
                    break
                if not self._is_closed:
                    # A thread that wakes for each record costs more than the record.
                    condition.wait(_GATHERING)
                lines, unsaid = list(self._waiting), self._unsaid
                # They keep their places until they are written: a disk that waits must
                # not make the memory grow.
            if unsaid:
                lines.append(json.dumps(self._record(unsaid)))
            written = self._written(lines)
            with condition:
                for _ in range(min(written, len(self._waiting))):
                    self._size -= len(self._waiting.popleft())
                if written == len(lines):
                    self._note_success(unsaid)
                elif self._is_closed:
                    self._lose(len(self._waiting))
                    break
                else:
                    condition.wait(_AGAIN)
        self._out.close()

    def _note_success(self, unsaid: int) -> None:
        self._unsaid -= unsaid
        if self._is_failing or unsaid:
            logger.error(
                "%s is written again; %d records were lost", self._out.name, unsaid
            )
        self._is_failing = False

    def _written(self, lines: list[str]) -> int:
        """Write lines; return how many could be."""
        try:
            self._out.write(lines)
        except Exception as exc:  # also of a stream with faults of its own
            if not self._is_failing:
                logger.error(
                    "%s cannot be written (%s): %d records wait, of at most %d",
                    self._out.name,
                    exc,
                    len(lines),
                    self._most,
                )
            self._is_failing = True
            return self._out.done
        return len(lines)


class _Out(Protocol):
    """Interface of where lines go.

    Attributes:
        name: Its name in the log.
        done: How many of the last lines were written.
    """

    name: str
    done: int

    def write(self, lines: list[str]) -> None:
        """Write lines."""

    def close(self) -> None:
        """Write no more."""


class _Stream:
    name = "the audit log"
    done = 0

    def __init__(self, stream: IO[str]) -> None:
        given: Any = stream
        is_bytes = isinstance(given, (io.RawIOBase, io.BufferedIOBase))
        if is_bytes or not hasattr(given, "write") or not hasattr(given, "flush"):
            raise UsageError(f"{given!r} is neither a path nor a stream of strings")
        self._stream = stream

    def write(self, lines: list[str]) -> None:
        self.done = 0
        self._stream.write("".join(f"{one}\n" for one in lines))
        self._stream.flush()

    def close(self) -> None:
        pass  # it is its owner's


class _File:
    """A file, in which no record is joined to half a record."""

    done = 0

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = f"the audit log {path}"
        try:
            self._fd = self._opened()
        except OSError as exc:
            raise UsageError(f"{self.name}: {exc}") from None

    def _opened(self) -> int:
        # Other users of this machine must not read answers.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._id = _file_id(os.fstat(fd))
        return fd

    def write(self, lines: list[str]) -> None:
        self.done = 0
        self._follow()
        data = "".join(f"{one}\n" for one in lines).encode("ascii")
        # Other processes may append to the file, too.
        with _locked(self._fd):
            before = os.fstat(self._fd).st_size
            head = b""
            if before and os.pread(self._fd, 1, before - 1) != b"\n":
                head = b"\n"  # a process was killed in the middle of a record
            count = os.write(self._fd, head + data) - len(head)
            if count < len(data):
                whole = data.rfind(b"\n", 0, max(count, 0)) + 1
                os.ftruncate(self._fd, before + (len(head) + whole if whole else 0))
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
