"""A first signal shuts down; a second one cancels. On both loops."""

from __future__ import annotations

import logging
import signal
from typing import Any

import anyio
import pytest

from effectmcp.drivers.loops import run, running_loop
from effectmcp.server.loop_name import LOOPS
from effectmcp.transports.signals import until_signalled

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def test_two_signals(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        shutdown = running_loop().Event()

        async def work() -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
                await shutdown.wait()
                signal.raise_signal(signal.SIGTERM)
                await anyio.sleep_forever()
            finally:
                ended.append("ended")

        await until_signalled(shutdown, work)

    with caplog.at_level(logging.INFO):
        run(loop, main)
    assert ended == ["ended"]
    assert [one.getMessage() for one in caplog.records] == [
        "SIGTERM: stopping",
        "SIGTERM again: cancelling",
    ]
    assert signal.getsignal(signal.SIGTERM) is before


def test_error_of_the_work_is_raised(loop: Any) -> None:
    async def work() -> None:
        raise ZeroDivisionError("a bug")

    async def main() -> None:
        await until_signalled(running_loop().Event(), work, signal.SIGTERM)

    with pytest.raises(ZeroDivisionError):
        run(loop, main)
