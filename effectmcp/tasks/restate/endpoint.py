"""The endpoint of a worker: Restate calls it over HTTP/1.1 to have turns run.

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=9080)
    await serve(app, tasks, listener, advertise="http://127.0.0.1:9080")

It is the same on trio and asyncio.

A request and its response are open at the same time, as long as the turn runs: the engine
acknowledges what the turn saves, and sends it signals. HTTP/1.1 is enough for that, and
each turn has a connection of its own, so that a balancer spreads them over workers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import h11
from anyio.abc import Listener, SocketStream
from attrs import define, field

from ...drivers.loops import Doing, Loop, running_loop
from ...errors import TaskStoreError
from ...exchange.task_rows import Mail, TaskRow
from ...logs import logger_for
from ..playing import RunningTurn
from . import frames
from .attempts import Attempt
from .kept import CREATE, POST, WAKE
from .uses import HANDLERS, UseAttempt

if TYPE_CHECKING:
    from ...drivers.local import Ringing
    from ...server.app import Server
    from .host import RestateTasks

__all__ = ["manifest", "serve"]

logger = logger_for("effectmcp.tasks")

#: Seconds without a frame after which the engine has a turn run elsewhere, and those
#: after which it cuts the connection. It waits for five more then.
_SILENCE: Final = 12.0
_ABORT: Final = 3.0
#: Seconds between two signs of life of a turn that waits.
_BEAT: Final = 4.0

#: The bytes of saves after which a turn ends, and another one continues.
_LARGEST: Final = 8 * 2**20

#: Seconds until the next try of a turn that failed, and of a task that this version
#: cannot read.
_PAUSE: Final = 1.0
_LATER: Final = 60.0

#: Seconds between two tries to register the endpoint.
_REGISTER: Final = 1.0
#: Seconds between two looks for turns of endpoints that are gone.
_ADOPT: Final = 5.0

#: A connection that stays open would tie the engine to one worker, even if that freezes,
#: and would keep a balancer from spreading turns.
_CLOSE: Final = ("connection", "close")
_MANIFEST_TYPE: Final = "application/vnd.restate.endpointmanifest.v4+json"
_TURNS: Final = (CREATE, POST, WAKE)
_FRAMES_TYPE: Final = "application/vnd.restate.invocation.v6"


def manifest(service: str, uses: str) -> bytes:
    """Return what the endpoint tells the engine of itself: the same for each version.

    Args:
        service: The service of tasks.
        uses: The service of requests that count once.
    """
    handler = {
        "ty": "EXCLUSIVE",
        "input": {"required": False, "contentType": "*/*"},
        "output": {"setContentTypeIfEmpty": False},
        # The object keeps all that matters.
        "journalRetention": 0,
        "idempotencyRetention": 0,
        "inactivityTimeout": round(_SILENCE * 1000),
        "abortTimeout": round(_ABORT * 1000),
        "retryPolicyInitialInterval": 50,
        "retryPolicyExponentiationFactor": 2.0,
        "retryPolicyMaxInterval": 1_000,
        # The engine's own limit would pause a task after a minute without a worker.
        "retryPolicyMaxAttempts": 2**32 - 1,
    }
    services = [
        {
            "name": one,
            "ty": "VIRTUAL_OBJECT",
            "enableLazyState": False,
            "handlers": [{"name": name, **handler} for name in names],
        }
        for one, names in ((service, (CREATE, POST, WAKE)), (uses, HANDLERS))
    ]
    return json.dumps(
        {
            "protocolMode": "BIDI_STREAM",
            "minProtocolVersion": 6,
            "maxProtocolVersion": 6,
            "services": services,
        }
    ).encode()


async def serve(
    app: Server,
    tasks: RestateTasks,
    listener: Listener[SocketStream],
    *,
    advertise: str | None,
    concurrency: int = 32,
    grace: float = 20.0,
    give: Callable[[Callable[[], None]], None] = lambda stop: None,
) -> None:
    """Run turns for the engine until stopped.

    Args:
        app: The server, inside of `running(app)`.
        tasks: Its tasks.
        listener: Where the engine connects.
        advertise: The URL at which the engine finds this endpoint, or a balancer before
            it; `None` if it is registered already.
        concurrency: The most turns that run at once.
        grace: Seconds that running steps have to end once this is stopped.
        give: Called with a function that stops this: no further step begins.
    """
    loop = running_loop()
    async with loop.crew() as spawn, anyio.create_task_group() as group:
        limit = anyio.CapacityLimiter(concurrency)
        worker = _Worker(loop, app, tasks, spawn, limit)
        group.start_soon(worker.accept, listener, group)
        group.start_soon(worker.beat)
        give(worker.stop)
        if advertise is not None:
            group.start_soon(_register, tasks, advertise, worker)
        await worker.ended.wait()
        with anyio.move_on_after(grace) as scope:
            await worker.idle()
        if scope.cancelled_caught:
            logger.warning("cancelled steps of tasks still running after %g s", grace)
        group.cancel_scope.cancel()


async def _register(tasks: RestateTasks, url: str, worker: _Worker) -> None:
    """Register the endpoint; then adopt the turns of endpoints that are gone."""
    engine = tasks.engine
    id_ = problem = ""
    while not worker.is_stopping:
        try:
            if not id_:
                # The engine may take long, because it calls this worker in return.
                register = partial(engine.register, url)
                id_ = await worker.loop.in_thread(register, _register, None, 1)
                logger.info("Restate runs the turns of %s at %s", tasks.name, url)
            # Waited for even if cancelled, as it opens connections.
            adopted = await anyio.to_thread.run_sync(_adopt, tasks, id_, url)
        except TaskStoreError as exc:
            if not id_ and str(exc) != problem:
                problem = str(exc)
                logger.warning("this worker cannot be registered yet: %s", exc)
        else:
            for gone in adopted:
                logger.warning("the turns that %s has left run at %s", gone, url)
        with anyio.move_on_after(_ADOPT if id_ else _REGISTER):
            await worker.ended.wait()


def _adopt(tasks: RestateTasks, id_: str, url: str) -> list[str]:
    engine = tasks.engine
    gone = engine.abandoned(tasks.service, tasks.uses_service, but=id_)
    for one in gone:
        engine.move(one, url)
    return list(gone.values())


@define(eq=False)
class _Worker:
    """The state that the connections of one endpoint share."""

    loop: Loop
    app: Server
    tasks: RestateTasks
    spawn: Callable[[Doing], None]
    limit: anyio.CapacityLimiter
    is_stopping: bool = False
    accepting: anyio.CancelScope = field(factory=anyio.CancelScope)
    ended: anyio.Event = field(factory=anyio.Event)
    running: set[_Invocation] = field(factory=set)
    _changed: anyio.Event = field(factory=anyio.Event)

    def stop(self) -> None:
        """Accept no more turns, and begin no further step."""
        self.is_stopping = True
        self.accepting.cancel()
        self.ended.set()
        for one in self.running:
            one.bell.ring()

    async def idle(self) -> None:
        """Wait until no turn runs."""
        while self.running:
            self._changed = anyio.Event()
            await self._changed.wait()

    def leave(self, one: _Invocation) -> None:
        self.running.discard(one)
        self._changed.set()

    async def accept(
        self, listener: Listener[SocketStream], group: anyio.abc.TaskGroup
    ) -> None:
        """Serve connections until stopped."""
        with self.accepting:
            async with listener:
                await listener.serve(self.converse, group)

    async def beat(self) -> None:
        """Show the engine that the turns live which wait for a step."""
        sign = frames.awaiting("mail")
        while True:
            await anyio.sleep(_BEAT)
            for one in list(self.running):
                # It may have ended while another one was written to. And if the engine
                # does not read from one connection, the other turns must not wait.
                if one in self.running and not one.is_gone and not one.is_writing:
                    await one.write(sign)

    async def converse(self, stream: SocketStream) -> None:
        """Serve one connection."""
        async with stream:
            connection = _Connection(stream)
            try:
                await self._answer(connection)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the engine went away
            except h11.RemoteProtocolError as exc:
                logger.warning("a request that is not HTTP: %s", exc)
            except Exception:
                # Other turns run on: the engine has this one repeated.
                logger.exception("a request of Restate failed")

    async def _answer(self, connection: _Connection) -> None:
        """Answer the one request of a connection."""
        event: Any = None
        with anyio.move_on_after(_SILENCE):
            event = await connection.next_event()
        if not isinstance(event, h11.Request):
            return
        connection.method = event.method
        path = event.target.partition(b"?")[0]
        begin, _, handler = path.decode("ascii", "replace").rpartition("/")
        tasks = self.tasks
        is_post = event.method == b"POST"
        is_use = begin == f"/invoke/{tasks.uses_service}" and handler in HANDLERS
        is_turn = begin == f"/invoke/{tasks.service}" and handler in _TURNS
        if event.method == b"GET" and path == b"/discover":
            body = manifest(tasks.service, tasks.uses_service)
            await connection.reply(200, _MANIFEST_TYPE, body)
        elif not is_post or not (is_use or is_turn):
            await connection.reply(404, "text/plain", b"not found")
        elif dict(event.headers).get(b"content-type") != _FRAMES_TYPE.encode():
            await connection.reply(415, "text/plain", b"unknown version")
        elif is_use:
            await _answer_use(connection, UseAttempt(tasks.uses_service, handler))
        else:
            await _Invocation(self, connection, handler).run()


async def _answer_use(connection: _Connection, attempt: UseAttempt) -> None:
    """Run an attempt that waits for nothing: a request that counts once."""
    try:
        is_open = False
        with anyio.move_on_after(_SILENCE):
            while not is_open:
                event = await connection.next_event()
                if not isinstance(event, h11.Data):
                    return
                is_open = attempt.feed(bytes(event.data))
        if not is_open:
            return  # it took too long
        data = attempt.run()
    except TaskStoreError as exc:
        logger.error("a request that counts once is put off: %s", exc)
        data = frames.error(str(exc), retry=_LATER)
    head = [("content-type", _FRAMES_TYPE), _CLOSE]
    await connection.write(
        h11.Response(status_code=200, headers=head),
        h11.Data(data=data),
        h11.EndOfMessage(),
    )
    await connection.finish()


@define(eq=False)
class _Connection:
    """One connection, as HTTP."""

    _stream: SocketStream
    method: bytes = b""
    _http: h11.Connection = field(factory=lambda: h11.Connection(h11.SERVER))
    _writing: anyio.Lock = field(factory=anyio.Lock)

    @property
    def is_writing(self) -> bool:
        """Whether bytes wait until the engine reads."""
        return self._writing.locked()

    async def close(self) -> None:
        """Close it at once."""
        await anyio.aclose_forcefully(self._stream)

    async def next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self._stream.receive(65_536)
            except anyio.EndOfStream:
                data = b""
            self._http.receive_data(data)
        return event

    async def write(self, *events: Any) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        async with self._writing:
            await self._stream.send(data)

    async def reply(self, status: int, content_type: str, body: bytes) -> None:
        """Send a whole response."""
        length = "content-length", str(len(body))
        head = [("content-type", content_type), length, _CLOSE]
        response = h11.Response(status_code=status, headers=head)
        # The response to a HEAD has no body.
        is_head = self.method == b"HEAD"
        data = [] if is_head else [h11.Data(data=body)]
        await self.write(response, *data, h11.EndOfMessage())
        await self.finish()

    async def finish(self) -> None:
        """Read the request to its end, so that the response arrives whole."""
        with anyio.move_on_after(_SILENCE):
            while self._http.their_state is h11.SEND_BODY:
                await self.next_event()


@define(eq=False)
class _Invocation:
    """One attempt of an invocation, and its connection: the `Keeper` of its turn."""

    _worker: _Worker
    _connection: _Connection
    _handler: str
    bell: Ringing = field(init=False)
    is_gone: bool = False
    _attempt: Attempt = field(init=False)
    _reading: anyio.CancelScope = field(factory=anyio.CancelScope)
    #: Events to send before the next bytes: the head of the response, and saves.
    _unsent: list[Any] = field(factory=list)
    #: The bytes of all saves.
    _saved: int = 0

    def __attrs_post_init__(self) -> None:
        tasks = self._worker.tasks
        self.bell = self._worker.loop.Bell()
        self._attempt = Attempt(tasks.service, self._handler, tasks.retention)

    async def run(self) -> None:
        """Run the turn."""
        head = [("content-type", _FRAMES_TYPE), _CLOSE]
        self._unsent.append(h11.Response(status_code=200, headers=head))
        attempt = self._attempt
        try:
            with anyio.move_on_after(_SILENCE):
                while not attempt.is_open:
                    event = await self._connection.next_event()
                    if not isinstance(event, h11.Data):
                        return
                    attempt.feed(bytes(event.data))
        except TaskStoreError as exc:
            logger.error("a task is put off: %s", exc)
            await self._end(frames.error(str(exc), retry=_LATER))
            await self._connection.finish()
            return
        if not attempt.is_open:
            return  # it took too long
        row = attempt.row
        if row is None or not attempt.is_due(time.time()):
            await self._end(attempt.leave(time.time()))
            await self._connection.finish()
            return
        self._worker.spawn(partial(self._play, row))
        try:
            with self._reading:
                await self._read()
        finally:
            self.is_gone = True
            self.bell.ring()

    async def _read(self) -> None:
        """Take what the engine sends, until it ends the request.

        While the turn runs, the end means that the engine has given it up.
        """
        while True:
            event = await self._connection.next_event()
            if not isinstance(event, h11.Data):
                return
            try:
                self._attempt.feed(bytes(event.data))
            except TaskStoreError as exc:
                logger.warning("a turn is given up: Restate sends %s", exc)
                return
            self.bell.ring_here()

    async def _play(self, row: TaskRow) -> None:
        worker = self._worker
        # As long as it waits for a place, it shows no sign of life: if that takes long,
        # the engine has it run by another worker.
        async with worker.limit:
            if self.is_gone:
                return
            if worker.is_stopping:
                await self._finish(frames.error("this worker stops", retry=_PAUSE))
                return
            worker.running.add(self)
            await self._run(row)

    async def _run(self, row: TaskRow) -> None:
        worker = self._worker
        running = RunningTurn(
            worker.loop, worker.app, self, self.bell, worker.spawn, self._is_stopping
        )
        try:
            await running.play(row)
            data = self._attempt.leave(time.time())
        except TaskStoreError as exc:
            logger.warning(
                "the turn of task %s (%s) is lost: %s", row.id, row.tool, exc
            )
            data = frames.error(str(exc), retry=_PAUSE)
        except Exception as exc:
            logger.exception("the turn of task %s (%s) failed", row.id, row.tool)
            data = frames.error(repr(exc), retry=_PAUSE)
        finally:
            worker.leave(self)
        if not self.is_gone:
            await self._finish(data)

    async def _finish(self, data: bytes) -> None:
        # The engine ends the request as soon as it has this.
        self._reading.deadline = anyio.current_time() + _SILENCE
        try:
            await self._end(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the engine has the turn repeated

    async def _end(self, data: bytes) -> None:
        await self._flush(h11.Data(data=data), h11.EndOfMessage())

    async def _flush(self, *events: Any) -> None:
        unsent, self._unsent = self._unsent, []
        await self._connection.write(*unsent, *events)

    def _is_stopping(self) -> bool:
        # The engine keeps each save of a turn until the turn ends.
        return self._worker.is_stopping or self._saved > _LARGEST

    @property
    def is_writing(self) -> bool:
        """Whether bytes wait until the engine reads."""
        return self._connection.is_writing

    async def write(self, data: bytes) -> None:
        """Send the unsent events and these bytes, if the engine is there."""
        try:
            await self._flush(h11.Data(data=data))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.is_gone = True
            self.bell.ring()

    # ---- a `Keeper` -----------------------------------------------------------------

    def take_mail(self) -> list[Mail]:
        """Return the mail that has come since the last time."""
        self._check()
        return self._attempt.take_mail()

    async def save(self, row: TaskRow, dropped: Sequence[str]) -> None:
        """Store the row, and drop mail, with the next write.

        At the end of a turn, that is the end of the invocation: they take one write, and
        nothing waits for the acknowledgement.
        """
        self._check()
        data = self._attempt.save(row, dropped)
        self._saved += len(data)
        self._unsent.append(h11.Data(data=data))

    async def settle(self) -> None:
        """Write the saved row, and wait until it is durable."""
        number = self._attempt.sent
        # The engine may hear this worker, and not be heard; or not read.
        with anyio.move_on_after(_SILENCE):
            if self._unsent:
                await self.write(b"")
            while self._attempt.acknowledged < number:
                self._check()
                await self.bell.wait()
            return
        self.is_gone = True
        await self._connection.close()
        self._check()

    def _check(self) -> None:
        if self.is_gone:
            raise TaskStoreError("Restate has the turn run elsewhere")
