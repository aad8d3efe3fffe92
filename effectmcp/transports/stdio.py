"""`serve(app)`: one line a message, on standard input and output.

Nothing but messages may be on standard output (2026-07-28, stdio), and a handler may
print, or run a program that does. So the real output is kept aside, and what everybody
else knows by that name leads to standard error.

Reading and writing is done by two threads of their own: a pipe that blocks must not stop
the loop, and on some systems, and for files on all of them, there is no other way.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ..drivers.trio import running
from ..server import Server
from .keys import ensure_keys
from .lines import Limits, Splitter, TooLong, serve_lines

__all__ = ["serve"]

logger = logging.getLogger("effectmcp.server")

_CHUNK: Final = 64 * 1024

#: Lines that were read and not yet taken up: so many may wait in memory.
_AHEAD: Final = 64


async def serve(app: Server, *, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
    """Serve `app` on standard input and output until the input ends.

        trio.run(stdio.serve, app)

    Args:
        app: The server.
        limits: What the client may ask for.
    """
    ensure_keys(app, is_alone=True)
    with _kept_aside() as (source, sink):
        async with running(app):
            writer = _Writer(sink)
            try:
                await serve_lines(
                    app, _lines(source, limits.line), writer.send, limits=limits
                )
            finally:
                writer.close()


@contextmanager
def _kept_aside() -> Iterator[tuple[int, int]]:
    """The real input and output, which nobody else can reach meanwhile."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    printed, sys.stdout = sys.stdout, sys.stderr
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(source)
        os.close(sink)
        sys.stdout = printed


async def _lines(source: int, limit: int) -> AsyncIterator[bytes | TooLong]:
    token = trio.lowlevel.current_trio_token()
    room = threading.Semaphore(_AHEAD)
    sender, receiver = trio.open_memory_channel[bytes](_AHEAD + 1)

    def read() -> None:
        # A daemon: nothing can wake it while the client keeps silent.
        try:
            while True:
                room.acquire()
                data = os.read(source, _CHUNK)
                token.run_sync_soon(sender.send_nowait, data)
                if not data:
                    return
        except (OSError, trio.RunFinishedError):
            try:
                token.run_sync_soon(sender.close)
            except trio.RunFinishedError:
                pass  # served to the end, and nobody is left to tell

    threading.Thread(target=read, name="effectmcp stdin", daemon=True).start()
    splitter = Splitter(limit)
    async for data in receiver:
        room.release()
        if not data:
            return
        for line in splitter.feed(data):
            yield line


class _Writer:
    """Writes lines, whole and in order, in a thread of its own."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._queue: queue.Queue[tuple[bytes, trio.Event] | None] = queue.Queue()
        self._token = trio.lowlevel.current_trio_token()
        self._is_broken = False
        self._thread = threading.Thread(
            target=self._write, name="effectmcp stdout", daemon=True
        )
        self._thread.start()

    async def send(self, line: bytes) -> None:
        """Write a line; returns when it is written, so a slow client slows its calls."""
        written = trio.Event()
        self._queue.put((line, written))
        await written.wait()

    def close(self) -> None:
        """Write what is left, and end."""
        self._queue.put(None)
        self._thread.join(timeout=1)

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            line, written = item
            view = memoryview(line)
            try:
                while view and not self._is_broken:
                    view = view[os.write(self._sink, view) :]
            except OSError as exc:
                # The client is gone; its end of input says so, too.
                logger.info("standard output is closed: %s", exc)
                self._is_broken = True
            try:
                self._token.run_sync_soon(written.set)
            except trio.RunFinishedError:
                return
