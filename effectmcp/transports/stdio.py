"""`run(app)`: one message per line, on standard input and output.

Nothing but messages may be on standard output (2026-07-28, stdio), and a handler may
print, or run a program that does. So the server keeps the real output for itself, and
redirects standard output to standard error for all other code.

Threads read and write: a pipe that blocks must not stop the loop. For files, and on some
systems for pipes, there is no other way. It is the same on trio and asyncio.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

from attrs import frozen

from ..drivers.loops import Event, Loop, Stopper, running_loop
from ..errors import UsageError
from .announcing import PARENT, announce
from .default_keys import ensure_keys
from .lines import LineLimits, Splitter, TooLong, serve_lines
from .signals import until_signalled
from .stores import ensure_tasks
from .working import working

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
    shutdown: Event | None = None,
) -> None:
    """Serve `app` on standard input and output until the input ends.

    Args:
        app: The server.
        limits: Limits on the channel.
        streams: The result of `set_aside`; by default it is called here, and undone at
            the end.
        shutdown: An event of the loop, which the caller sets to shut the server down, as
            if the input had ended.

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
    loop = running_loop()

    async def send(line: bytes) -> None:
        await loop.in_thread(partial(_write, streams.sink, line), _write, None, 1)

    async def work() -> None:
        await serve_lines(app, lines, send, limits=limits)

    input_ = _Input(loop, streams.source)
    async with (
        loop.running(app),
        working(loop, app, grace=limits.grace) as stop_working,
        aclosing(_lines(input_, limits)) as lines,
        loop.crew() as spawn,
    ):
        stop_serving = Stopper()

        async def stop(shutdown: Event) -> None:
            await shutdown.wait()
            stop_working()
            input_.end()
            # If the client does not read, `serve_lines` may never start the last request
            # that it has read, and never end. So cancel it after its grace.
            await loop.sleep(limits.grace + _MARGIN)
            stop_serving()

        if shutdown is not None:
            spawn(partial(stop, shutdown))
        where = "on standard input and output"
        announce(app, where, PARENT, loop=loop.name, tasks=app.tasks)
        await stop_serving.run(loop, work)


async def run(app: Server, **options: Any) -> None:
    """Serve `app` until the input ends, or SIGTERM; a second SIGTERM cancels it.

        trio.run(stdio.run, app)

    Only the main thread receives signals; in other threads call `serve`.

    Args:
        app: The server.
        **options: As for `serve`.
    """
    shutdown = running_loop().Event()
    work = partial(serve, app, shutdown=shutdown, **options)
    await until_signalled(shutdown, work, signal.SIGTERM)


class _Input:
    """Standard input, until it ends or the server stops reading."""

    def __init__(self, loop: Loop, source: int) -> None:
        self._loop = loop
        self._source = source
        self._stop = Stopper()

    async def read(self) -> bytes:
        """Return the next bytes; return no bytes at the end."""
        data = b""

        async def work() -> None:
            nonlocal data
            # An abandoned thread ends with the process: nothing can wake it while the
            # client sends nothing.
            read = partial(os.read, self._source, _CHUNK)
            data = await self._loop.in_thread(read, os.read, None, 1)

        await self._stop.run(self._loop, work)
        return data

    @property
    def is_cut(self) -> bool:
        """Whether reading was stopped."""
        return self._stop.is_called

    def end(self) -> None:
        """Stop reading."""
        self._stop()


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
