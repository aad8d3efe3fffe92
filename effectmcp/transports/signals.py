"""What a program that serves does on SIGTERM and Ctrl-C."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio

__all__ = ["STOPPING", "until_signalled"]

logger = logging.getLogger("effectmcp.server")

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


async def until_signalled(
    shutdown: trio.Event,
    work: Callable[[], Awaitable[None]],
    *numbers: signal.Signals,
) -> None:
    """Do `work` with signals at hand: the first sets `shutdown`, a second cancels.

    Args:
        shutdown: What `work` heeds.
        work: What to do.
        *numbers: The signals; SIGTERM and SIGINT unless told otherwise.

    Raises:
        Exception: what `work` raises.
    """
    error = None
    with trio.open_signal_receiver(*(numbers or STOPPING)) as signals:
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                async for number in signals:
                    if shutdown.is_set():
                        nursery.cancel_scope.cancel()
                    logger.info("%s: stopping", signal.Signals(number).name)
                    shutdown.set()

            nursery.start_soon(obey)
            try:
                await work()
            except Exception as exc:
                error = exc  # told as what it is, not as a group of one
            nursery.cancel_scope.cancel()
    if error is not None:
        raise error
