"""Other processes, where a replay must reach the same point.

Each has another seed for hashes, another time zone, locale, environment and clock:
everything that may differ between two replicas. They are started once and kept, because
starting a process takes longer than a hundred replays. Messages are lines of JSON over
pipes:

    → [origin, path]                     load a handler
    ← null, or the reason for a failure
    → [arguments, flow id, lacks, journals]
    ← [arrivals]
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final

import attrs

from ..canonical import JSON
from ..engine.journal import Journal
from ..server.app import Server
from .dry_replay import Arrival, ArrivalElsewhere, WorkerError, arrive
from .subjects import Origin, Subject, subject_of, subjects_of

if TYPE_CHECKING:
    from .transcripts import Transcript

__all__ = ["ReplayWorkers", "main"]

#: The environment of each process. The clocks differ by more than a day, so that dates
#: differ, too.
_OTHERS: Final[tuple[Mapping[str, str], ...]] = (
    {
        "PYTHONHASHSEED": "1",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "EFFECTMCP_LATER": "1e5",
    },
    {
        "PYTHONHASHSEED": "2",
        "TZ": "America/Lima",
        "HOME": "/",
        "EFFECTMCP_LATER": "2e7",
    },
    {"PYTHONHASHSEED": "3", "TZ": "UTC", "LANG": "C.UTF-8", "EFFECTMCP_LATER": "-3e8"},
)


class ReplayWorkers:
    """Processes that replay journals. As a context manager, it ends them on exit.

    Args:
        count: The number of processes, at most three: there are three environments.
    """

    def __init__(self, count: int = 3) -> None:
        self._count = count
        self._running: list[_Worker] = []
        self._start()

    def _start(self) -> None:
        self._running = [_Worker(other) for other in _OTHERS[: self._count]]

    def __enter__(self) -> ReplayWorkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for one in self._running:
            one.close()
        self._running = []

    def load(self, origin: Origin) -> None:
        """Load the handler that `arrivals` is about.

        Raises:
            WorkerError: If a process cannot load it.
        """
        if not self._running:
            self._start()  # they ended with an earlier handler
        for problem in self._ask([*attrs.astuple(origin), list(sys.path)]):
            if problem is not None:
                raise WorkerError(problem)

    def _ask(self, question: JSON) -> list[Any]:
        try:
            for one in self._running:
                one.send(question)
            return [one.receive() for one in self._running]
        except BaseException:
            # An unread response would be taken for the response to the next message.
            self.close()
            raise

    def arrivals(self, transcript: Transcript) -> list[list[ArrivalElsewhere]]:
        """Return, for each journal, the point that its replay reaches in each process.

        Raises:
            WorkerError: If the handler ended one of the processes.
        """
        question = [
            transcript.arguments,
            transcript.flow_id.hex(),
            sorted(transcript.lacks),
            [one.dumps().decode() for one in transcript.journals],
        ]
        running = self._running
        found = [
            [
                ArrivalElsewhere(Arrival.from_json(arrival), one.differs)
                for arrival in answer
            ]
            for one, answer in zip(running, self._ask(question), strict=True)
        ]
        return [[each[n] for each in found] for n in range(len(transcript.journals))]


class _Worker:
    def __init__(self, other: Mapping[str, str]) -> None:
        self.differs = ", ".join(
            f"{name}={value}"
            for name, value in other.items()
            if name != "EFFECTMCP_LATER"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "effectmcp.testing.replay_workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **other, "PYTHONPATH": _python_path()},
        )

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        return stdin, stdout

    def send(self, message: JSON) -> None:
        stdin, _ = self._pipes
        with suppress(BrokenPipeError):  # `receive` raises
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()

    def receive(self) -> Any:
        _, stdout = self._pipes
        line = stdout.readline()
        if not line:
            raise WorkerError(
                f"a process with {self.differs} ended with {self._process.wait()}"
            )
        return json.loads(line)

    def close(self) -> None:
        for pipe in self._pipes:
            with suppress(BrokenPipeError):
                pipe.close()
        self._process.kill()
        self._process.wait()


def _python_path() -> str:
    # The process must import this very package, however this process found it.
    root = str(Path(__file__).resolve().parent.parent.parent)
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))


# ---- in the other process -----------------------------------------------------------


def main() -> None:
    """Serve one parent, until it closes the pipe."""
    _shift_clocks(float(os.environ.pop("EFFECTMCP_LATER", "0")))
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Discard what a handler prints and logs: the check reports it once.
    logging.disable(logging.CRITICAL)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")
    os.dup2(sys.stdout.fileno(), 1)
    subject: Subject | None = None
    for line in stdin:
        message = json.loads(line)
        answer: JSON
        with redirect_stderr(sys.stdout):
            if len(message) == _LOADING:
                try:
                    *origin, path = message
                    subject, answer = _load(Origin(*origin), path), None
                except Exception as exc:
                    answer = f"{type(exc).__name__}: {exc}"
            else:
                assert subject is not None
                answer = _arrivals(subject, *message)
        stdout.write(json.dumps(answer).encode() + b"\n")
        stdout.flush()


#: The fields of an `Origin`, and a path.
_LOADING: Final = len(attrs.fields(Origin)) + 1


def _shift_clocks(seconds: float) -> None:
    # `datetime` has its own clock, which cannot be replaced; the sanitizer sees it.
    real = {name: getattr(time, name) for name in _CLOCKS}

    def now(given: float | None = None) -> float:
        return real["time"]() + seconds if given is None else given

    shifted: dict[str, Any] = {
        "time": lambda: now(),
        "time_ns": lambda: real["time_ns"]() + int(seconds * 1e9),
        "localtime": lambda given=None: real["localtime"](now(given)),
        "gmtime": lambda given=None: real["gmtime"](now(given)),
        "ctime": lambda given=None: real["ctime"](now(given)),
        "strftime": lambda format_, given=None: real["strftime"](
            format_, real["localtime"](now()) if given is None else given
        ),
    }
    for name, one in shifted.items():
        # With its own name it has, as a step, the same place in a journal.
        one.__module__, one.__qualname__, one.__name__ = "time", name, name
        setattr(time, name, one)


#: Functions that read the clock unless they get a time.
_CLOCKS: Final = ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime")


def _load(origin: Origin, path: Iterable[str]) -> Subject:
    sys.path[:] = path
    found: Any = _module(origin)
    for part in origin.path.split("."):
        found = getattr(found, part)
    if not origin.kind:
        return subject_of(found)
    assert isinstance(found, Server)
    feature = getattr(found, origin.kind)[origin.key]
    return next(one for one in subjects_of(found) if one.feature is feature)


def _module(origin: Origin) -> Any:
    try:
        module = importlib.import_module(origin.module)
        if origin.file in (None, getattr(module, "__file__", None)):
            return module
    except ModuleNotFoundError as exc:
        if origin.file is None or exc.name != origin.module.partition(".")[0]:
            raise
    # A script, or a module that pytest or a command loaded from its file.
    assert origin.file is not None
    spec = importlib.util.spec_from_file_location(origin.module, origin.file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[origin.module] = module
    spec.loader.exec_module(module)
    return module


def _arrivals(
    subject: Subject,
    arguments: JSON,
    flow_id: str,
    lacks: list[str],
    journals: list[str],
) -> JSON:
    return [
        arrive(
            subject,
            arguments,
            Journal.loads(journal),
            flow_id=bytes.fromhex(flow_id),
            lacks=lacks,
        ).to_json()
        for journal in journals
    ]


if __name__ == "__main__":
    main()
