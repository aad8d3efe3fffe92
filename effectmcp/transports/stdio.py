"""`run(app)`: one message per line, on standard input and output.

Nothing but messages may be on standard output (2026-07-28, stdio), and a handler may
print, or run a program that does. So the server keeps the real output for itself, and
redirects standard output to standard error for all other code.

Threads read and write: a pipe that blocks must not stop the loop. For files, and on some
systems for pipes, there is no other way.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

import trio
from attrs import frozen

from ..drivers import trio as loop
from ..errors import UsageError
from .default_keys import ensure_keys
from .lines import LineLimits, Splitter, TooLong, serve_lines
from .signals import until_signalled
from .working import ensure_tasks, working

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["Streams", "run", "serve", "set_aside"]

_CHUNK: Final = 64 * 1024

#: Seconds that `serve_lines` may take to end, after its grace.
_MARGIN: Final = 1.0


@frozen
class Streams:
    """The real standard input and output, as file descriptors."""

    source: int
    sink: int


async def serve(
    app: Server,
    *,
    limits: LineLimits = LineLimits(),  # noqa: B008  # frozen
    streams: Streams | None = None,
    shutdown: trio.Event | None = None,
) -> None:
    """Serve `app` on standard input and output until the input ends.

    Args:
        app: The server.
        limits: Limits on the channel.
        streams: The result of `set_aside`; by default it is called here, and undone at
            the end.
        shutdown: An event that the caller sets to shut the server down, as if the input
            had ended.

    Raises:
        UsageError: If standard input or output is closed.
        KeysError: If the keys are invalid; see `ensure_keys`.
    """
    if streams is None:
        with _kept_aside() as streams:
            await serve(app, limits=limits, streams=streams, shutdown=shutdown)
        return
    ensure_keys(app, is_alone=True)
    ensure_tasks(app, is_alone=True)
    # One thread each, even if blocking handlers use up trio's default limit.
    reading, writing = trio.CapacityLimiter(1), trio.CapacityLimiter(1)

    async def send(line: bytes) -> None:
        await trio.to_thread.run_sync(
            _write, streams.sink, line, abandon_on_cancel=True, limiter=writing
        )

    input_ = _Input(streams.source, reading)
    async with (
        loop.running(app),
        working(loop, app, grace=limits.grace) as stop_working,
        aclosing(_lines(input_, limits)) as lines,
        trio.open_nursery() as nursery,
    ):

        async def stop(shutdown: trio.Event) -> None:
            await shutdown.wait()
            stop_working()
            input_.end()
            # If the client does not read, `serve_lines` may never start the last request
            # that it has read, and never end. So cancel it after its grace.
            last = trio.current_time() + limits.grace + _MARGIN
            nursery.cancel_scope.deadline = last

        if shutdown is not None:
            nursery.start_soon(stop, shutdown)
        await serve_lines(app, lines, send, limits=limits)
        nursery.cancel_scope.cancel()


async def run(app: Server, **options: Any) -> None:
    """Serve `app` until the input ends, or SIGTERM; a second SIGTERM cancels it.

        trio.run(stdio.run, app)

    Only the main thread receives signals; in other threads call `serve`.

    Args:
        app: The server.
        **options: As for `serve`.
    """
    shutdown = trio.Event()
    work = partial(serve, app, shutdown=shutdown, **options)
    await until_signalled(shutdown, work, signal.SIGTERM)


class _Input:
    """Standard input, until it ends or the server stops reading."""

    def __init__(self, source: int, limiter: trio.CapacityLimiter) -> None:
        self.is_cut = False
        self._source = source
        self._limiter = limiter
        self._scope: trio.CancelScope | None = None

    async def read(self) -> bytes:
        """Return the next bytes; return no bytes at the end."""
        if self.is_cut:
            return b""
        with trio.CancelScope() as self._scope:
            # An abandoned thread ends with the process: nothing can wake it while the
            # client sends nothing.
            return await trio.to_thread.run_sync(
                os.read,
                self._source,
                _CHUNK,
                abandon_on_cancel=True,
                limiter=self._limiter,
            )
        return b""

    def end(self) -> None:
        """Stop reading."""
        self.is_cut = True
        if self._scope is not None:
            self._scope.cancel()


async def _lines(
    source: _Input, limits: LineLimits
) -> AsyncGenerator[bytes | TooLong, None]:
    splitter = Splitter(limits.line)
    while data := await source.read():
        for line in splitter.feed(data):
            yield line
    # The last line is incomplete if reading was stopped.
    for line in () if source.is_cut else splitter.end():
        yield line


def _write(sink: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(sink, view) :]


# ---- keeping them aside -------------------------------------------------------------


def set_aside() -> Streams:
    """Take standard input and output for messages, until the process ends.

    Afterwards, other code that reads standard input finds it empty, and its standard
    output goes to standard error: prints, child processes, C libraries.

    Raises:
        UsageError: If standard input or output is closed.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:
        raise UsageError("standard input and output must be open")
    nothing = os.open(os.devnull, os.O_RDWR)
    if sys.__stderr__ is None:
        os.dup2(nothing, 2)  # before another file gets this descriptor
    streams = Streams(os.dup(0), os.dup(1))
    _flush(sys.stdout)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    if nothing > 2:
        os.close(nothing)
    sys.stdout = sys.stderr
    return streams


@contextmanager
def _kept_aside() -> Iterator[Streams]:
    printed = sys.stdout
    streams = set_aside()
    try:
        yield streams
    finally:
        # Its buffer may hold output of code that kept a reference to the old object.
        _flush(printed)
        sys.stdout = printed
        os.dup2(streams.source, 0)
        os.dup2(streams.sink, 1)
        os.close(streams.source)
        os.close(streams.sink)


def _flush(stream: TextIO | None) -> None:
    if stream is not None:
        stream.flush()
