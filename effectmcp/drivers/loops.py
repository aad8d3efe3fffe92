"""The loop that runs: `drivers.trio` or `drivers.asyncio`, found and started by name.

    run("asyncio", main)        a whole program
    loop = running_loop()       the module for the loop that runs this

Waiting code is written once for both loops, in terms of `Loop`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from attrs import define

from ..errors import UsageError
from ..server.loop_name import LOOPS, LoopName
from .wrong_loops import running_name

if TYPE_CHECKING:
    from ..canonical import JSON
    from ..engine.stops import Done, Failure, Want
    from ..exchange.commands import Incoming, Peer, Reply
    from ..exchange.sessions import News
    from ..exchange.subscriptions import Subscription
    from ..server.app import Server
    from .begun import BeginExchange
    from .local import Ringing
    from .turns import TurnLoop

__all__ = [
    "Doing",
    "Event",
    "Loop",
    "Stopper",
    "run",
    "running_loop",
]

T = TypeVar("T")
Doing: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Send: TypeAlias = Callable[[Mapping[str, "JSON"]], Awaitable[None]]


class Event(Protocol):
    """`trio.Event` or `asyncio.Event`."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    async def wait(self) -> Any: ...


class Loop(Protocol):
    """`drivers.trio` or `drivers.asyncio`."""

    @property
    def name(self) -> LoopName: ...

    # ---- waiting ----

    @property
    def now(self) -> Callable[[], float]: ...

    @property
    def sleep(self) -> Callable[[float], Awaitable[Any]]: ...

    @property
    def Bell(self) -> Callable[[], Ringing]: ...

    @property
    def Event(self) -> Callable[[], Event]: ...

    @property
    def Lock(self) -> Callable[[], AbstractAsyncContextManager[Any]]: ...

    @property
    def Semaphore(self) -> Callable[[int], AbstractAsyncContextManager[Any]]: ...

    @property
    def in_thread(self) -> Callable[..., Awaitable[Any]]: ...

    # ---- tasks ----

    @property
    def spawn(self) -> Callable[[Doing], None]: ...

    @property
    def crew(
        self,
    ) -> Callable[[], AbstractAsyncContextManager[Callable[[Doing], None]]]: ...

    @property
    def stoppable(
        self,
    ) -> Callable[
        [Callable[[], Awaitable[None]], Callable[[Callable[[], None]], None]],
        Awaitable[None],
    ]: ...

    @property
    def within(
        self,
    ) -> Callable[[float, Callable[[], Awaitable[None]]], Awaitable[bool]]: ...

    @property
    def unless(self) -> Callable[..., Awaitable[Any]]: ...

    @property
    def is_cancel(self) -> Callable[[BaseException], bool]: ...

    @property
    def broken(self) -> tuple[type[Exception], ...]: ...

    # ---- exchanges ----

    @property
    def begin(self) -> BeginExchange: ...

    @property
    def turns(self) -> TurnLoop: ...

    async def handle(
        self,
        app: Server,
        message: Incoming,
        peer: Peer | None = None,
        *,
        send: Send = ...,
    ) -> Reply: ...

    @property
    def listen(
        self,
    ) -> Callable[[Server, Subscription | News, Send], Awaitable[None]]: ...

    @property
    def attempt(self) -> Callable[[Server, Want], Awaitable[Done | Failure]]: ...

    @property
    def running(self) -> Callable[[Server], AbstractAsyncContextManager[None]]: ...


@define(eq=False)
class Stopper:
    """Cancels work, also if that has not started yet.

    Attributes:
        is_called: Whether it was cancelled.
    """

    is_called: bool = False
    _stop: Callable[[], None] | None = None

    def __call__(self) -> None:
        self.is_called = True
        if self._stop is not None:
            self._stop()

    async def run(self, loop: Loop, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work()` until it ends, or this is called."""
        if not self.is_called:
            await loop.stoppable(work, self._give)

    def _give(self, stop: Callable[[], None]) -> None:
        self._stop = stop


def running_loop() -> Loop:
    """Return the module for the running loop.

    Raises:
        RuntimeError: If no event loop runs here.
    """
    # Only this one is imported: a host on asyncio need not load trio.
    match running_name():
        case "trio":
            from . import trio

            return trio
        case "asyncio":
            from . import asyncio

            return asyncio
        case None:
            raise RuntimeError("no event loop runs here")


def run(name: LoopName | None, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` on a loop of its own, and return what it returns.

    Args:
        name: The loop; `None` for the first of `LOOPS`.
        main: An async function.

    Raises:
        UsageError: If there is no such loop.
    """
    match name or LOOPS[0]:
        case "trio":
            import trio

            found: T = trio.run(main)
            return found
        case "asyncio":
            import asyncio

            return asyncio.run(main())
        case other:
            raise UsageError(f"there is no loop {other!r}; there is {', '.join(LOOPS)}")
