"""Run the async code of a server under test on the loop that the server needs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..drivers.local import lifespan_of
from ..drivers.local import running as running_on_loop
from ..drivers.loops import run, running_loop
from ..drivers.threads import call_in_thread

if TYPE_CHECKING:
    from ..server.app import Server
    from ..server.loop_name import LoopName

__all__ = ["RunAsync", "opened", "runner_of"]

#: Runs a coroutine to its end, as `asyncio.run` does.
RunAsync: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


def runner_of(loop: LoopName | None) -> RunAsync:
    """Return a function that runs each coroutine on a new loop of this kind."""
    return partial(_run, loop)


def _run(loop: LoopName | None, coroutine: Coroutine[Any, Any, Any]) -> Any:
    main = partial(_awaited, coroutine)
    try:
        running_loop()
    except RuntimeError:
        return run(loop, main)
    # A test that runs on a loop itself: one thread can run only one.
    context = copy_context()
    return call_in_thread(lambda: context.run(run, loop, main)).result()


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


@contextmanager
def opened(app: Server) -> Iterator[RunAsync]:
    """Keep the server's lifespan open; yield a function that runs coroutines beside it.

    An async lifespan runs on a loop in another thread, as pools and clients belong to the
    loop that opened them.
    """
    if hasattr(lifespan_of(app), "__enter__"):
        from ..drivers.sync import running  # here: `runner_of` needs no driver

        with running(app):
            yield runner_of(app.loop)
        return
    from anyio.from_thread import start_blocking_portal

    with (
        start_blocking_portal(app.loop or "trio") as portal,
        portal.wrap_async_context_manager(running_on_loop(app)),
    ):
        yield lambda coroutine: portal.call(_awaited, coroutine)
