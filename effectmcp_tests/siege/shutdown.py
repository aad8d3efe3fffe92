"""Attack 7: SIGTERM while clients keep connecting and calling.

Each request that the server accepted must be answered. A connection that it does not
accept is not lost: the client is refused at once, and can go elsewhere.
"""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Mapping
from typing import Final

import trio
from attrs import define, field

from ..transports.shop import call
from .honest import Tally, first_answer
from .hosts import HOSTS, serving
from .lines import BROKEN, Broken, Line, modern
from .reports import Report
from .server import Form

__all__ = ["SHUTDOWNS", "shut_down"]

#: The names of these attacks, and the hosts that they are made on.
SHUTDOWNS: Final[Mapping[str, str]] = {"7": "serve", "7-workers": "serve-2"}

#: Seconds until an answer is lost.
_PATIENCE: Final = 10.0

#: Seconds between two new connections.
_EACH: Final = 0.004

_ids = itertools.count(1)


@define(eq=False)
class Rush:
    """Clients of a server that shuts down.

    Attributes:
        port: The server's port.
        stopped: When the server got its signal.
        fates: How the requests ended that started or were under way since then.
        refused: When a new connection was refused first.
        accepted: When a new connection was accepted last.
    """

    port: int
    quiet: Tally = field(factory=Tally)
    under: Tally = field(factory=Tally)
    stopped: float | None = None
    fates: Counter[str] = field(factory=Counter)
    refused: float | None = None
    accepted: float | None = None

    async def ask(self, line: Line, how: str) -> bool:
        """Make a call; return whether the connection can be used again."""
        number = next(_ids)
        text = f"text {number}"
        began = trio.current_time()
        try:
            with trio.fail_after(_PATIENCE):
                got = await line.ask(
                    modern(call("echo", id=number, text=text), self.port)
                )
            (reply,) = got.messages
            is_right = (
                got.status == 200 and reply["result"]["content"][0]["text"] == text
            )
            fate = "answered" if is_right else f"{how}: status {got.status}"
        except trio.TooSlowError:
            fate = f"{how}: no answer"
        except BROKEN as exc:
            is_cut = isinstance(exc, Broken) and exc.received
            is_reset = not isinstance(exc, Broken)
            fate = f"{how}: " + (
                "cut" if is_cut else "reset" if is_reset else "closed unanswered"
            )
        self._count(fate, trio.current_time() - began)
        return fate == "answered" and not line.closes

    def _count(self, fate: str, seconds: float) -> None:
        if self.stopped is not None:
            self.fates[fate] += 1
        tally = self.quiet if self.stopped is None else self.under
        if fate == "answered":
            tally.times.append(seconds)
        else:
            tally.lost[fate] += 1

    async def connect(self) -> Line | None:
        """Connect, and note whether the port still accepts connections."""
        try:
            line = await Line.open(self.port)
        except ConnectionRefusedError:
            if self.stopped is not None and self.refused is None:
                self.refused = trio.current_time()
            return None
        except OSError:
            self._count("a new connection: reset", 0)
            return None
        if self.stopped is not None:
            self.accepted = trio.current_time()
        return line

    async def keep(self) -> None:
        """Make calls on one connection, and on another one when it was closed."""
        while (line := await self.connect()) is not None:
            async with line:
                while await self.ask(line, "a kept connection"):
                    # A client that sees the end of its connection sends no more on it.
                    if await line.readable(0.002):
                        break

    async def come(self) -> None:
        """Connect every few ms, each time for one call."""
        async with trio.open_nursery() as nursery:
            while (line := await self.connect()) is not None:
                nursery.start_soon(self._once, line)
                await trio.sleep(_EACH)

    async def _once(self, line: Line) -> None:
        async with line:
            await self.ask(line, "a new connection")


async def shut_down(name: str, form: Form = "long") -> Report:
    """Terminate a server under load, several times in the long form."""
    host = HOSTS[SHUTDOWNS[name]]
    report = Report(attack=name, host=host.name, form=form)
    fates: Counter[str] = Counter()
    quiet, under = Tally(), Tally()
    refused, ended = [], []
    for _ in range(1 if form == "short" else 5):
        with serving(host, form) as served:
            await first_answer(served.port)
            rush, stopped = Rush(served.port), 0.0
            with trio.move_on_after(40):
                async with trio.open_nursery() as nursery:
                    for _ in range(8):
                        nursery.start_soon(rush.keep)
                    nursery.start_soon(rush.come)
                    await trio.sleep(0.5 if form == "short" else 1.5)
                    stopped = rush.stopped = trio.current_time()
                    served.process.send_signal(signal.SIGTERM)
            with trio.move_on_at(stopped + 45):
                await trio.to_thread.run_sync(
                    served.process.wait, abandon_on_cancel=True
                )
            ended.append(trio.current_time() - stopped)
            if rush.refused is not None:
                refused.append(rush.refused - stopped)
            if served.is_running():
                fates["the server did not end"] += 1
        fates += rush.fates
        quiet, under = quiet + rush.quiet, under + rush.under
    report.quiet, report.under = {"calls": quiet}, {"calls": under}
    report.facts["until the port refuses"] = _spread(refused)
    report.facts["until the server ended"] = _spread(ended)
    del fates["answered"]
    report.problems = [f"{fate} ×{count}" for fate, count in fates.items()]
    report.problems += [f"before the signal: {fate}" for fate in quiet.lost]
    return report


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "never"
    return f"{min(seconds):.2f} to {max(seconds):.2f} s"
