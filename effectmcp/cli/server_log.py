"""A channel to a server process, whose standard error is shown on our terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self

from ..client import OverPipes
from .output import is_terminal

__all__ = ["LoggedPipes"]

_CHUNK: Final = 64 * 1024

#: Seconds for the last lines to be printed. A process that the server has left behind
#: may keep its standard error open.
_PATIENCE: Final = 1.0


class LoggedPipes(OverPipes):
    """A channel to a server process, whose standard error reaches no terminal unescaped."""

    async def __aenter__(self) -> Self:
        self._log = ExitStack()
        with self._log:
            self._stderr = self._log.enter_context(_server_log())
            await super().__aenter__()
            self._log = self._log.pop_all()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        with self._log:
            await super().__aexit__(*exc)


@contextmanager
def _server_log() -> Iterator[int | None]:
    """Yield a file descriptor for the standard error of a server.

    It is `None`, to inherit ours, if ours is not a terminal. Otherwise it is a pipe whose
    bytes are printed escaped. A thread reads it: the event loop waits while the user fills
    in a form, and the server must not wait for that.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    ours, theirs = os.pipe()
    reader = threading.Thread(target=_print, args=(ours,), daemon=True)
    reader.start()
    try:
        yield theirs
    finally:
        os.close(theirs)
        reader.join(_PATIENCE)


def _print(source: int) -> None:
    out = sys.stderr
    while data := os.read(source, _CHUNK):
        out.buffer.write(data)
        out.flush()
    os.close(source)
