"""Run one attack on one host: measure before it, during it and after it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from attrs import define, frozen

from . import attackers
from .attacks import Attack, problems
from .honest import Crowd, Victims, first_answer
from .hosts import Host, Served, serving
from .reports import Report
from .server import Form

__all__ = ["Hostile", "besiege", "hostile"]


@frozen
class Pace:
    """The seconds that the phases of a siege last.

    Attributes:
        quiet: Before the attack.
        hold: At its full force.
        settle: After it.
        patience: Until an answer is lost.
        rise: Until an attack counts as being at full force.
    """

    quiet: float
    hold: float
    settle: float
    patience: float
    rise: float


_PACES: Final[dict[Form, Pace]] = {
    "long": Pace(quiet=3, hold=4, settle=2, patience=15, rise=90),
    "short": Pace(quiet=0.3, hold=0.3, settle=0.3, patience=4, rise=6),
}


@define(eq=False)
class Hostile:
    """A process of hostile clients."""

    _process: trio.Process
    _rest: bytearray

    async def start(self, orders: dict[str, Any], rise: float) -> Counter[str]:
        """Attack; return at full force, or after so many seconds, with the outcomes."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps(orders).encode() + b"\n")
        with trio.move_on_after(rise):
            return await self._seen()
        return Counter({"not at full force": 1})

    async def stop(self, seconds: float = 5) -> Counter[str]:
        """End the attack, and return the outcomes."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        found: Counter[str] = Counter()
        with trio.move_on_after(seconds):
            while True:
                try:
                    found = await self._seen()
                except EOFError:
                    break
        return found

    async def _seen(self) -> Counter[str]:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            data = await self._process.stdout.receive_some()
            if not data:
                raise EOFError
            self._rest += data
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest[:] = rest
        return Counter(json.loads(line))


@asynccontextmanager
async def hostile() -> AsyncIterator[Hostile]:
    """Start a process of hostile clients, which waits for orders."""
    process: trio.Process = await trio.lowlevel.open_process(
        list(attackers.COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Hostile(process, bytearray())
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def besiege(
    attack: Attack,
    host: Host,
    form: Form = "long",
    *,
    limit: float = 5_000,
    is_quiet: bool = False,
    **more: Any,
) -> Report:
    """Attack a host, and report the damage.

    Args:
        attack: The attack.
        host: The host.
        form: The size of both.
        limit: The MB at which the server is killed.
        is_quiet: Whether the machine does nothing else, so that times count.
        **more: Orders that differ.
    """
    pace = _PACES[form]
    orders = {**attack.orders(form), **more}
    report = Report(attack=attack.name, host=host.name, form=form, orders=orders)
    async with hostile() as enemy:
        with serving(host, form, files=attack.files, limit=limit) as served:
            await _measure(attack, served, enemy, pace, report)
    if attack.how in ("objects", "batch"):
        report.parsing = _parsing(orders["size"])
    report.problems = list(problems(attack, report, is_quiet=is_quiet))
    return report


async def _measure(
    attack: Attack, served: Served, enemy: Hostile, pace: Pace, report: Report
) -> None:
    await first_answer(served.port)
    crowd = Crowd(served.port, attack.kinds, pace.patience)
    victims = await Victims.opened(served.port) if attack.has_victims else None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.watch)
        async with trio.open_nursery() as working:
            working.start_soon(crowd.run)
            begin = served.cpu()
            await trio.sleep(pace.quiet)
            quiet = served.cpu()
            lines = len(served.lines())
            before = served.rss()
            served.reset()
            crowd.phase = "under"
            orders = {**report.orders, "port": served.port}
            await enemy.start(orders, pace.rise)
            await trio.sleep(pace.hold)
            if victims is not None:
                report.victims = await victims.check(pace.patience)
            crowd.stopping.set()
        if victims is not None:
            await victims.leave()
        report.seen = await enemy.stop()
        await trio.sleep(pace.settle)
        # The peak may come late: requests that a client leaves behind are still worked on.
        await _idle(served, pace.patience)
        report.rss = before, served.peak, served.rss()
        end = served.cpu()
        nursery.cancel_scope.cancel()
    report.quiet = {kind: crowd.tally(kind, "quiet") for kind in attack.kinds}
    report.under = {kind: crowd.tally(kind, "under") for kind in attack.kinds}
    answered = [
        sum(len(one.times) for one in tallies.values())
        for tallies in (report.quiet, report.under)
    ]
    calls = (quiet - begin) / max(answered[0], 1) * answered[1]
    report.cpu = (end - quiet - calls) / report.orders.get("each", 1)
    report.killed, report.is_running = served.killed, served.is_running()
    report.log_lines = len(served.lines()) - lines
    said = served.log.read_text("utf-8", "replace")
    report.forged = len(_FORGED.findall(said))
    if "\x1b[2J" in said:
        report.facts["escape sequences in the log"] = said.count("\x1b[2J")


async def _idle(served: Served, seconds: float) -> None:
    """Wait until the server takes no more CPU, but not for longer than `seconds`."""
    with trio.move_on_after(seconds):
        before = -1.0
        while (now := served.cpu()) > before:
            before = now
            await trio.sleep(0.2)


_FORGED: Final = re.compile("(?:^|[\n\r\x0b\x0c\x85\u2028\u2029])FORGED")


def _parsing(count: int) -> float:
    """Return the seconds of CPU that it takes to parse the body of attack 13, and free it."""
    body = attackers.crowded(count)
    times = []
    for _ in range(3):
        began = time.process_time()
        json.loads(body)
        times.append(time.process_time() - began)
    return min(times)
