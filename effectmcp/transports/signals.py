"""Shut down a serving program on SIGTERM and Ctrl-C, on trio or asyncio."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..drivers.loops import Event, Stopper, running_loop
from ..logs import logger_for

__all__ = ["STOPPING", "until_signalled"]

logger = logger_for("effectmcp.server")

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


async def until_signalled(
    shutdown: Event,
    work: Callable[[], Awaitable[None]],
    *numbers: signal.Signals,
) -> None:
    """Run `work()`; a first signal sets `shutdown`, a second one cancels the work.

    Args:
        shutdown: The event that makes `work` end.
        work: The work.
        *numbers: The signals; by default SIGTERM and SIGINT.

    Raises:
        Exception: Any exception that `work` raises.
    """
    loop = running_loop()
    error = None
    came = loop.Bell()
    signals: deque[int] = deque()
    stop = Stopper()

    def catch(number: int) -> None:
        signals.append(number)
        came.ring()

    async def obey() -> None:
        while True:
            await came.wait()
            while signals:
                name = signal.Signals(signals.popleft()).name
                if shutdown.is_set():
                    logger.info("%s again: cancelling", name)
                    stop()
                else:
                    logger.info("%s: stopping", name)
                    shutdown.set()

    with _caught(numbers or STOPPING, catch):
        async with loop.crew() as spawn:
            spawn(obey)
            try:
                await stop.run(loop, work)
            except Exception as exc:
                error = exc  # raised below: on trio it would become a group of one
    if error is not None:
        raise error


@contextmanager
def _caught(
    numbers: tuple[signal.Signals, ...], catch: Callable[[int], None]
) -> Iterator[None]:
    def handler(number: int, frame: Any) -> None:
        catch(number)

    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
