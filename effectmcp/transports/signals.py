"""Shut down a serving program on SIGTERM and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio

__all__ = ["STOPPING", "until_signalled"]

from ..logs import logger_for

logger = logger_for("effectmcp.server")

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


async def until_signalled(
    shutdown: trio.Event,
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
                error = exc  # raised below: here it would become a group of one
            nursery.cancel_scope.cancel()
    if error is not None:
        raise error
