"""Handle signals while the process holds a terminal or has started a server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from ..server.loop_name import LoopName

__all__ = ["ending", "interrupting", "stopping"]

_ENDS: Final = ("SIGTERM", "SIGHUP", "SIGQUIT")


@contextmanager
def ending() -> Iterator[None]:
    """Make signals that end the process end the block first, as Ctrl-C does.

    Afterwards they end the process, so that the waiting parent sees the signal.
    """
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        # trio raises it where an exception is possible.
        signal.raise_signal(signal.SIGINT)

    # Ignored signals stay ignored (nohup).
    numbers = [
        number
        for number in (getattr(signal, name, None) for name in _ENDS)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL
    ]
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        numbers = []  # it would end nothing
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def interrupting(loop: LoopName | None) -> Iterator[None]:
    """Let Ctrl-C raise a `KeyboardInterrupt` at once on asyncio, as it does on trio.

    asyncio itself cancels the program's task, which never learns of that while the
    terminal is read.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if loop != "asyncio" or not is_default:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stopping(
    *, give_back: Callable[[], None], take: Callable[[], None]
) -> Iterator[int]:
    """Give the terminal back while the process is stopped.

    Args:
        give_back: Restores the terminal for the shell.
        take: Takes the terminal again.

    Yields:
        A file descriptor that becomes readable when the screen must be drawn again.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)

    def draw(*_: object) -> None:
        with suppress(BlockingIOError):  # it is already woken
            os.write(wake, b"\0")

    def stop(*_: object) -> None:
        give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        # The process was continued; or it was not stopped, because no shell could
        # continue it.
        signal.signal(signal.SIGTSTP, stop)
        go_on()

    def go_on(*_: object) -> None:
        take()
        draw()

    handlers = {signal.SIGTSTP: stop, signal.SIGCONT: go_on, signal.SIGWINCH: draw}
    before = {number: signal.signal(number, one) for number, one in handlers.items()}
    try:
        yield woken
    finally:
        for number, one in before.items():
            signal.signal(number, one)
        os.close(wake)
        os.close(woken)
