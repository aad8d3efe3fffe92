"""`effectmcp worker module:app --tasks PATH`: run the turns of tasks, and serve nothing."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..server.target import load_app

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["add"]

logger = logging.getLogger("effectmcp.server")


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "worker",
        help="run the tasks of a server",
        description="Run the tasks that the processes of a server keep in a file, and"
        " serve no clients. On SIGTERM or Ctrl-C, it begins no further step, waits for"
        " the running ones, and gives its tasks back; a second signal stops it at once.",
    )
    parser.add_argument("target", help="module:app, or path/file.py:app")
    parser.add_argument(
        "--tasks",
        metavar="PATH",
        help="the file of the tasks, as for serve; by default the server's own store",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        default=32,
        metavar="N",
        help="the number of tasks that run at once (32)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="how long running steps may take to end (20)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    import trio

    from ..tasks.sqlite import SqliteTasks
    from ..transports.default_keys import ensure_keys
    from ..transports.working import check_shared, keep_tasks

    if options.concurrency < 1:
        raise UsageError("--concurrency: give 1 or more")
    if not 0 <= options.grace < float("inf"):
        raise UsageError("--grace: give some seconds, or 0")
    app = load_app(options.target)
    ensure_keys(app, is_alone=False)
    if options.tasks is None and app.tasks is None:
        raise UsageError("a worker needs the file of the tasks: give --tasks PATH")
    keep_tasks(app, options.tasks)
    check_shared(app)
    if not isinstance(app.tasks, SqliteTasks):
        raise UsageError(f"{app.tasks!r} is not a file: its tasks run elsewhere")
    trio.run(_work, app, options.concurrency, options.grace)
    return 0


async def _work(app: Server, concurrency: int, grace: float) -> None:
    import trio

    from ..drivers import trio as loop
    from ..transports.signals import until_signalled
    from ..transports.working import run_turns

    shutdown = trio.Event()

    async def work() -> None:
        async with loop.running(app), trio.open_nursery() as nursery:

            def give(stop: Any) -> None:
                async def obey() -> None:
                    await shutdown.wait()
                    stop()

                nursery.start_soon(obey)
                logger.info(
                    "the tasks of %s in %r run here, %d at once",
                    app.name,
                    app.tasks,
                    concurrency,
                )

            await run_turns(loop, app, concurrency=concurrency, grace=grace, give=give)
            nursery.cancel_scope.cancel()

    await until_signalled(shutdown, work)
