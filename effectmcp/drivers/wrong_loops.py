"""Recognise the errors of libraries that find another event loop than they need."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import CodeType
from typing import TYPE_CHECKING, Final

from ..author_files import authors_line
from ..effects.base import Effect
from ..errors import LoopError

if TYPE_CHECKING:
    from ..server.app import Server
    from ..server.loop_name import LoopName

__all__ = ["check_loop", "loop_error", "opening", "running_name"]

#: What such errors say, by the loop that runs and the loop that is needed.
_ERRORS: Final[
    tuple[tuple[LoopName, LoopName, type[Exception], re.Pattern[str]], ...]
] = (
    ("trio", "asyncio", RuntimeError, re.compile(r"no running event loop\Z")),
    ("trio", "asyncio", RuntimeError, re.compile("There is no current event loop in")),
    ("trio", "asyncio", TypeError, re.compile("trio.run received unrecognized yield")),
    (
        "asyncio",
        "trio",
        RuntimeError,
        re.compile(r"must be called from async context\Z"),
    ),
    ("asyncio", "trio", RuntimeError, re.compile("Task got bad yield: ")),
)


def running_name() -> LoopName | None:
    """Return the loop that runs here; `None` if none does. It imports none."""
    # Check trio first: asyncio also reports a running loop while trio runs as its guest.
    trio, asyncio = sys.modules.get("trio"), sys.modules.get("asyncio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return "trio"
    if asyncio is not None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return "asyncio"
    return None


def loop_error(exc: BaseException, name: str, runs: LoopName) -> LoopError | None:
    """Return a clearer error, if a library found another loop than it needs.

    Args:
        exc: What it raised.
        name: The function that was called.
        runs: The loop that runs.
    """
    if isinstance(exc, BaseExceptionGroup):  # of a nursery, or of a task group
        each = (loop_error(one, name, runs) for one in exc.exceptions)
        return next(filter(None, each), None)
    if _last_code(exc) is Effect.__await__.__code__:
        return None  # an effect, awaited outside of a flow
    text = str(exc)
    for loop, needs, class_, said_by_it in _ERRORS:
        if loop == runs and isinstance(exc, class_) and said_by_it.match(text):
            said = f"{type(exc).__name__}: {text.splitlines()[0]}"
            return LoopError(name, runs, needs, said, where=authors_line(exc))
    return None


def _last_code(exc: BaseException) -> CodeType | None:
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else trace.tb_frame.f_code


def check_loop(app: Server, runs: LoopName) -> None:
    """Refuse to serve `app` on another loop than it names.

    Raises:
        LoopError: If `app` names another loop.
    """
    if app.loop is not None and app.loop != runs:
        raise LoopError(repr(app), runs, app.loop, f"loop={app.loop!r}")


@contextmanager
def opening(name: str, runs: LoopName) -> Iterator[None]:
    """Replace the error of a library that finds another loop than it needs.

    Raises:
        LoopError: Instead of that error.
    """
    try:
        yield
    except Exception as exc:
        found = loop_error(exc, name, runs)
        if found is None:
            raise
        raise found from exc
