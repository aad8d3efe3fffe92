"""Serve one address with several processes.

    trio.run(partial(run_workers, "shop:app", 4, port=8000))

A supervisor binds the address and passes it to worker processes; each serves it as
`http.run` does. The supervisor serves no requests: it starts the workers, restarts a
worker that ends, and stops all of them when it is stopped. Rounds of one conversation
reach different processes, so these must share a key.

On Linux each process gets its own socket for the one address (`SO_REUSEPORT`), because
the kernel then distributes connections evenly: of 200 connections to four processes, each
gets 45, 47, 51 and 57. With one shared socket, the process that wakes first takes most of
a burst: 1, 27, 30 and 142. On other systems the option has another meaning, and the
processes share one socket.

The supervisor keeps the sockets open. So connections that were not accepted yet outlive a
worker, and its successor accepts them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ..drivers.loops import Event, Loop, run, running_loop
from ..errors import KeysError, UsageError
from ..log_lines import LogSettings, set_up_logging
from ..logs import logger_for
from ..server.loop_name import LOOPS
from ..server.target import load_app
from ..tasks.sqlite import SqliteTasks
from . import http
from .announcing import announce, at, clients_of, warn_if_open
from .authenticating import AuthSettings
from .connection import Limits
from .default_keys import VARIABLE, ensure_keys
from .malloc import give_back_large_blocks
from .signals import until_signalled
from .sockets import bind, close, host_of, tls_context, url_of
from .stores import check_shared, keep_tasks
from .web import Site

if TYPE_CHECKING:
    from ..exchange.task_rows import TaskHost
    from ..server.app import Server
    from ..server.loop_name import LoopName

__all__ = ["ended_by", "main", "next_delay", "run_workers"]

logger = logger_for("effectmcp.server")

#: Seconds after which the end of a process is not taken for a failed start.
_STEADY: Final = 10.0
_FIRST_DELAY: Final = 0.1
_LAST_DELAY: Final = 30.0

#: Seconds of downtime beyond which the other processes take over a worker's clients.
_MISSED: Final = 1.0

#: Seconds that a process may take to end, after its time to drain and its grace.
_MARGIN: Final = 5.0


async def run_workers(
    target: str,
    n: int,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    site: Site | None = None,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    certificate: str | None = None,
    key: str | None = None,
    tasks: str | None = None,
    loop: LoopName | None = None,
    auth: AuthSettings = AuthSettings(),  # noqa: B008  # frozen
    log: LogSettings = LogSettings(),  # noqa: B008  # frozen
    shutdown: trio.Event | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `target` with `n` processes, until SIGTERM or SIGINT; a second one kills them.

    Args:
        target: The server, as the command line names it: `module:app` or `file.py:app`.
        n: The number of processes.
        host: The address to bind to.
        port: The port; 0 for any free port.
        site: Its path, and the hosts and origins that are allowed.
        limits: Limits for connections and requests, for each process.
        certificate: A file with the certificate chain, to serve TLS.
        key: A file with the certificate's private key.
        tasks: A file for tasks, which every process opens; `None` for the store that the
            server has itself, or for no tasks.
        loop: The event loop of the processes; `None` for the loop that the server names.
        auth: The callers that are allowed, for a server without `auth` of its own.
        log: How the processes log.
        shutdown: An event that the caller sets to stop the processes.
        task_status: Started with the port once clients can connect.

    Raises:
        BindError: If the address cannot be bound.
        UsageError: If `target` does not name a server, `n` is less than 1,
            `auth` is wrong, the system is Windows, or the processes cannot share the
            tasks.
        KeysError: If the processes would not share a key.
    """
    app, store = _check(target, n, auth, tasks, loop)
    options = {
        "target": target,
        "site": _plain(site),
        "limits": _plain(limits),
        "certificate": certificate,
        "key": key,
        "tasks": tasks,
        "loop": loop,
        "auth": _plain(auth),
        "log": _plain(log),
    }
    supervisor = _Supervisor(host, port, options)
    warn_if_open(app, host, port)
    bound = supervisor.bind(n)
    shown = Site() if site is None else site
    scheme = "http" if certificate is None else "https"
    announce(
        app,
        at(url_of(scheme, one, shown.path) for one in bound),
        clients_of(app, shown, map(host_of, bound)),
        loop=loop or app.loop or LOOPS[0],
        tasks=store,
    )
    shutdown = trio.Event() if shutdown is None else shutdown

    async def work() -> None:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await shutdown.wait()
                supervisor.stop()
                nursery.cancel_scope.deadline = (
                    trio.current_time() + limits.drain + limits.grace + _MARGIN
                )

            nursery.start_soon(stop)
            await supervisor.run(task_status)
            nursery.cancel_scope.cancel()

    await until_signalled(shutdown, work)


def _check(
    target: str, n: int, auth: AuthSettings, tasks: str | None, loop: LoopName | None
) -> tuple[Server, TaskHost | None]:
    """Return the server and the store of its tasks, if processes can share them."""
    if n < 1:
        raise UsageError(f"workers={n}: there has to be one")
    if sys.platform == "win32":
        raise UsageError(
            f"workers={n}: processes cannot share a socket on Windows; start"
            " one a port, behind a proxy"
        )
    app = load_app(target)
    auth.apply(app)
    if (loop or app.loop) == "asyncio":
        import_module(f"{__package__}.on_uvicorn")  # raises if uvicorn is missing
    ensure_keys(app, is_alone=False)
    if app.keys is None:
        raise KeysError(
            f"{VARIABLE} is not set, and {target} has no keys: what one process seals, no"
            " other could open. Make a key with `effectmcp keygen`"
        )
    own = app.tasks
    try:
        keep_tasks(app, tasks)
        check_shared(app)
        return app, app.tasks
    finally:
        # The store was opened to see whether it can be used: this process uses none.
        if isinstance(app.tasks, SqliteTasks):
            app.tasks.close()
        app.tasks = own


def _plain(value: Any) -> dict[str, Any] | None:
    """Return the attributes of `value` in a form that JSON can encode."""
    if value is None:
        return None
    return {
        name: sorted(one) if isinstance(one, frozenset) else one
        for name, one in attrs.asdict(value, recurse=False).items()
    }


# ---- the supervisor -----------------------------------------------------------------


class _Supervisor:
    """Starts worker processes, and restarts a process that ends."""

    def __init__(self, host: str, port: int, options: Mapping[str, Any]) -> None:
        self._host = host
        self._port = port
        self._options = options
        self._stopping = trio.Event()
        self._processes: set[trio.Process] = set()
        self._sockets: list[list[socket.socket]] = []
        self._is_spread = sys.platform == "linux"

    def stop(self) -> None:
        """Terminate every process, which lets it finish its requests; start no more."""
        self._stopping.set()
        # The processes have copies, and listen until they have drained. Otherwise the
        # kernel would accept clients here after that, or for a process that has died, and
        # they would get no answer.
        for own in self._sockets:
            close(own)
        for process in self._processes:
            process.terminate()

    def bind(self, n: int) -> list[socket.socket]:
        """Bind the address, for so many processes; return the sockets of the first."""
        first = self._bind()
        self._port = first[0].getsockname()[1]
        self._sockets = [
            first if not number or not self._is_spread else self._bind()
            for number in range(n)
        ]
        return first

    async def run(self, task_status: trio.TaskStatus[int]) -> None:
        """Start processes and restart them; return when `stop` has ended all of them."""
        try:
            async with trio.open_nursery() as nursery:
                for number, own in enumerate(self._sockets):
                    nursery.start_soon(self._keep, number, own)
                # The sockets listen: the kernel queues clients until a process runs.
                task_status.started(self._port)
        finally:
            for own in self._sockets:
                close(own)

    def _bind(self) -> list[socket.socket]:
        return bind(self._host, self._port, shared=self._is_spread)

    async def _keep(self, number: int, sockets: list[socket.socket]) -> None:
        delay = 0.0
        while not self._stopping.is_set():
            if not sockets:
                sockets += self._bind()  # closed below
            began = trio.current_time()
            status = await self._process(sockets)
            if self._stopping.is_set():
                return
            lived = trio.current_time() - began
            delay = next_delay(delay, lived)
            logger.error(
                "worker %d %s after %.0f s; starting it again in %.1f s",
                number,
                ended_by(status),
                lived,
                delay,
            )
            if self._is_spread and delay > _MISSED:
                close(sockets)
                sockets.clear()
            with trio.move_on_after(delay):
                await self._stopping.wait()

    async def _process(self, sockets: Sequence[socket.socket]) -> int:
        fds = [one.fileno() for one in sockets]
        process: trio.Process = await trio.lowlevel.open_process(
            [
                sys.executable,
                "-m",
                "effectmcp.transports.workers",
                json.dumps({**self._options, "fds": fds}),
            ],
            # The worker ends when the supervisor does, in any way: that closes the pipe.
            stdin=subprocess.PIPE,
            pass_fds=fds,
            # Only the supervisor must receive Ctrl-C, and pass it on once.
            start_new_session=True,
        )
        self._processes.add(process)
        if self._stopping.is_set():
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._processes.discard(process)
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                assert process.stdin is not None
                await process.stdin.aclose()


def ended_by(status: int) -> str:
    """Return how a process ended, in words."""
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"ended with status {status}"
    return f"was killed by {name}"


def next_delay(delay: float, lived: float) -> float:
    """Return the seconds to wait before a process is restarted.

    Args:
        delay: The delay before its last start, in seconds.
        lived: How long the process has run since then, in seconds.
    """
    if lived >= _STEADY:
        return _FIRST_DELAY
    return min(max(2 * delay, _FIRST_DELAY), _LAST_DELAY)


# ---- a worker -----------------------------------------------------------------------


def main(argv: Sequence[str]) -> None:
    """Run a worker with the options of the supervisor, which are JSON."""
    (text,) = argv
    options = json.loads(text)
    set_up_logging(LogSettings(**options["log"]), names_process=True)
    give_back_large_blocks()
    app = load_app(options["target"])
    if options["loop"] is not None:
        app.loop = options["loop"]
    AuthSettings(**options["auth"]).apply(app)
    keep_tasks(app, options["tasks"])
    run(app.loop, partial(_work, app, options))


async def _work(app: Server, options: Mapping[str, Any]) -> None:
    loop = running_loop()
    sockets = [socket.socket(fileno=fd) for fd in options["fds"]]
    files = {"certificate": options["certificate"], "key": options["key"]}
    shutdown = loop.Event()
    more: dict[str, Any] = {
        "site": None if options["site"] is None else Site(**options["site"]),
        "sessions": None,  # the next request may reach another process
        "limits": Limits(**options["limits"]),
        "shutdown": shutdown,
        "is_alone": False,
        "is_announced": True,  # by the supervisor
    }
    async with loop.crew() as spawn:
        spawn(partial(_end_as_an_orphan, loop, shutdown))
        if loop.name == "asyncio":
            from . import on_uvicorn

            await on_uvicorn.run(app, sockets, **files, **more)
        else:
            context = tls_context(**files)
            await http.run(
                app, listeners=_listeners(sockets), ssl_context=context, **more
            )


def _listeners(sockets: Sequence[socket.socket]) -> list[trio.SocketListener]:
    return [trio.SocketListener(trio.socket.from_stdlib_socket(one)) for one in sockets]


async def _end_as_an_orphan(loop: Loop, shutdown: Event) -> None:
    read = partial(os.read, sys.stdin.fileno(), 1)
    while await loop.in_thread(read, os.read, None, 1):
        pass
    logger.warning("the supervisor is gone: stopping")
    shutdown.set()


if __name__ == "__main__":
    main(sys.argv[1:])
