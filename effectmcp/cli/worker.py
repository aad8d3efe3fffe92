"""`effectmcp worker module:app --tasks PLACE`: run the turns of tasks; serve no clients."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..drivers.loops import Loop, run, running_loop
from ..errors import UsageError
from ..logs import logger_for
from ..server.target import load_app
from .log_options import add_logging
from .loop_option import add_loop

if TYPE_CHECKING:
    from ..server.app import Server
    from ..tasks.restate import RestateTasks

__all__ = ["add"]

logger = logger_for("effectmcp.server")

#: Runs turns, and gives a function that stops them.
_Work: TypeAlias = Callable[..., Awaitable[None]]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "worker",
        help="run the tasks of a server",
        description="Run the tasks that the processes of a server keep in a file or on an"
        " engine, and serve no clients. On SIGTERM or Ctrl-C, it begins no further step,"
        " waits for the running ones, and gives its tasks back; a second signal stops it"
        " at once.",
    )
    parser.add_argument("target", help="module:app, or path/file.py:app")
    parser.add_argument(
        "--tasks",
        metavar="PATH",
        help="the file of the tasks, or the URL of an engine, as for serve; by default"
        " the server's own store",
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
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="for an engine: where it calls this worker. Only the engine may reach this"
        " address",
    )
    parser.add_argument(
        "--advertise",
        metavar="URL",
        help="for an engine: the URL at which it reaches this worker, or a balancer before"
        " several workers; by default the address of --http",
    )
    add_loop(parser)
    add_logging(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from ..tasks.restate import RestateTasks
    from ..tasks.restate.engine import parse_url
    from ..tasks.sqlite import SqliteTasks
    from ..transports.default_keys import ensure_keys
    from ..transports.stores import check_shared, keep_tasks
    from ..transports.web import parse_address

    if options.concurrency < 1:
        raise UsageError("--concurrency: give 1 or more")
    if not 0 <= options.grace < float("inf"):
        raise UsageError("--grace: give some seconds, or 0")
    app = load_app(options.target)
    app.loop = options.loop or app.loop
    ensure_keys(app, is_alone=False)
    if options.tasks is None and app.tasks is None:
        raise UsageError("a worker needs the place of the tasks: give --tasks PATH")
    keep_tasks(app, options.tasks)
    check_shared(app)
    more = {"concurrency": options.concurrency, "grace": options.grace}
    if isinstance(app.tasks, RestateTasks):
        if options.http is None:
            raise UsageError("an engine calls its workers: give --http HOST:PORT")
        host, port = parse_address(options.http, 9080)
        if options.advertise is not None:
            parse_url(options.advertise)
        elif host in ("0.0.0.0", "::"):
            raise UsageError(
                f"--http {options.http}: an engine cannot call this address; give"
                " --advertise URL, too"
            )
        at = host, port, options.advertise
        run(app.loop, partial(_listen, app, app.tasks, *at, **more))
    elif options.http is not None or options.advertise is not None:
        raise UsageError(
            "--http and --advertise are for an engine, and these tasks are in a file"
        )
    elif isinstance(app.tasks, SqliteTasks):
        run(app.loop, partial(_turn, app, **more))
    else:
        raise UsageError(f"{app.tasks!r} is not a file: its tasks run elsewhere")
    return 0


async def _turn(app: Server, *, concurrency: int, grace: float) -> None:
    from ..transports.working import run_turns

    loop = running_loop()
    work = partial(run_turns, loop, app, concurrency=concurrency, grace=grace)
    await _work(loop, app, concurrency, work)


async def _listen(
    app: Server,
    tasks: RestateTasks,
    host: str,
    port: int,
    advertise: str | None,
    *,
    concurrency: int,
    grace: float,
) -> None:
    import anyio

    from ..tasks.restate.endpoint import serve
    from ..transports.sockets import not_bound

    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as exc:
        raise not_bound(host, port, exc) from None
    if advertise is None:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        advertise = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    work = partial(
        serve,
        app,
        tasks,
        listener,
        advertise=advertise,
        concurrency=concurrency,
        grace=grace,
    )
    await _work(running_loop(), app, concurrency, work)


async def _work(loop: Loop, app: Server, concurrency: int, work: _Work) -> None:
    from ..transports.announcing import place_of
    from ..transports.signals import until_signalled

    shutdown = loop.Event()
    tasks = app.tasks
    assert tasks is not None  # `_run` has checked it

    async def serve() -> None:
        async with loop.running(app), loop.crew() as spawn:

            def give(stop: Callable[[], None]) -> None:
                async def obey() -> None:
                    await shutdown.wait()
                    stop()

                spawn(obey)
                logger.info(
                    "the tasks of %s in %s run here, %d at once",
                    app.name,
                    place_of(tasks),
                    concurrency,
                )

            await work(give=give)

    await until_signalled(shutdown, serve)
