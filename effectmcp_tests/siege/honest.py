"""Honest clients: they verify each answer, and count the missing ones.

    crowd = Crowd(port, kinds, patience=10)
    await crowd.run()                            until cancelled or stopped
    crowd.phase = "under"                        requests from here count as under attack
    crowd.tally("calls", "under").p(99)

A request is *refused* if it gets another status, or its connection is not accepted; *lost* if its answer does not come, comes incomplete or is wrong. Unique words show which question an answer belongs to.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import trio
from attrs import define, field, frozen

from ..transports.era import answered, initialize, message, tool
from ..transports.shop import call
from .lines import BROKEN, Broken, Line, Response, legacy, modern

__all__ = ["Crowd", "Phase", "Tally", "Victims", "first_answer"]

Phase: TypeAlias = Literal["quiet", "under", "after"]

_ids = itertools.count(1)


class Refused(Exception):
    """Raised when a server refuses a request.

    Attributes:
        how: The status, or the error of the connection.
    """

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Wrong(Exception):
    """Raised when an answer does not belong to its question."""


@define
class Tally:
    """The requests of one kind of client in one phase.

    Attributes:
        times: The seconds that each answer took.
        refused: How requests were refused, and how often.
        lost: How answers were lost, and how often.
    """

    times: list[float] = field(factory=list)
    refused: Counter[str] = field(factory=Counter)
    lost: Counter[str] = field(factory=Counter)

    def p(self, percent: float) -> float:
        """Return a percentile of the times in ms; not a number without any."""
        if not self.times:
            return math.nan
        place = math.ceil(len(self.times) * percent / 100) - 1
        return 1e3 * sorted(self.times)[max(0, place)]

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            [*self.times, *other.times],
            self.refused + other.refused,
            self.lost + other.lost,
        )


@frozen
class Kind:
    """A kind of honest client.

    Attributes:
        turn: Makes one request, or several that belong together.
        clients: How many run side by side.
        pause: Seconds between two turns of a client.
        keeps: Whether a client keeps its connection.
    """

    turn: Callable[[_Client], Awaitable[None]]
    clients: int
    pause: float
    keeps: bool = True


@define(eq=False)
class Crowd:
    """Honest clients of several kinds.

    Attributes:
        port: The server's port.
        kinds: The names of the kinds; see `KINDS`.
        patience: Seconds after which an answer is lost.
        phase: The phase to which requests count that start now.
        stopping: Set to start no more requests.
    """

    port: int
    kinds: Sequence[str]
    patience: float
    phase: Phase = "quiet"
    stopping: trio.Event = field(factory=trio.Event)
    _tallies: dict[tuple[str, Phase], Tally] = field(factory=dict)

    def tally(self, kind: str, phase: Phase) -> Tally:
        """Return the tally of a kind in a phase."""
        return self._tallies.setdefault((kind, phase), Tally())

    def total(self, phase: Phase) -> Tally:
        """Return the tally of all kinds in a phase."""
        return sum((self.tally(kind, phase) for kind in self.kinds), Tally())

    async def run(self) -> None:
        """Make requests until `stopping` is set, and wait for their answers."""
        async with trio.open_nursery() as nursery:
            for name in self.kinds:
                for _ in range(KINDS[name].clients):
                    nursery.start_soon(_Client(self, name, KINDS[name]).run)


async def first_answer(port: int, patience: float = 30) -> None:
    """Wait for the first answer: some hosts listen before their workers have started."""
    async with await Line.open(port) as line:
        with trio.fail_after(patience):
            await line.ask(modern(call("echo", text="hello"), port))


@define(eq=False)
class _Client:
    """One honest client."""

    crowd: Crowd
    name: str
    kind: Kind
    _line: Line | None = field(default=None, init=False)

    async def run(self) -> None:
        """Make requests until the crowd stops."""
        try:
            while not self.crowd.stopping.is_set():
                await self._turn()
                with trio.move_on_after(self.kind.pause):
                    await self.crowd.stopping.wait()
        finally:
            await self._leave()

    async def _turn(self) -> None:
        tally = self.crowd.tally(self.name, self.crowd.phase)
        began = trio.current_time()
        try:
            with trio.fail_after(self.crowd.patience):
                await self.kind.turn(self)
        except Refused as exc:
            tally.refused[exc.how] += 1
        except trio.TooSlowError:
            tally.lost["no answer"] += 1
        except Wrong as exc:
            tally.lost[f"wrong: {exc!s:.200}"] += 1
        except BROKEN as exc:
            # Nothing of a response: the server closed the connection instead of serving it.
            cut = isinstance(exc, Broken) and exc.received
            tally.lost["cut"] += bool(cut)
            tally.refused["closed"] += not cut
            tally.lost += Counter()  # drop zeros
            tally.refused += Counter()
        else:
            tally.times.append(trio.current_time() - began)
            if self.kind.keeps:
                return
        await self._leave()

    async def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.__aexit__()

    async def line(self) -> Line:
        """Return the connection of this client."""
        if self._line is not None and (self._line.closes or self._line.peek() == b""):
            await self._leave()  # the server closed it, and it may do that
        if self._line is None:
            try:
                self._line = await Line.open(self.crowd.port)
            except OSError as exc:
                raise Refused(f"not connected: {exc.strerror}") from None
        return self._line

    async def ask(self, request: bytes) -> Response:
        """Return the response with status 200, 202 or 204; other statuses are refusals."""
        response = await (await self.line()).ask(request)
        if response.status not in (200, 202, 204):
            raise Refused(str(response.status))
        return response

    async def call(self, name: str, **arguments: Any) -> Any:
        """Return the text of a tool's result."""
        number = next(_ids)
        request = modern(call(name, id=number, **arguments), self.crowd.port)
        (*_, reply) = (await self.ask(request)).messages
        return _value(reply, number)


def _value(reply: Any, number: int) -> str:
    """Return the text of a tool's result, if it is the reply to this request."""
    if reply.get("id") != number or "result" not in reply:
        raise Wrong(f"{number}: {reply}")
    result = reply["result"]
    if result.get("isError"):
        raise Wrong(f"the call failed: {result['content'][0]['text']}")
    return str(result["content"][0]["text"])


def _check(got: str, expected: str) -> None:
    if got != expected:
        raise Wrong(f"{got[:80]!r} instead of {expected[:80]!r}")


# ---- the kinds ----------------------------------------------------------------------


async def _calls(client: _Client) -> None:
    text = f"text {next(_ids)}"
    _check(await client.call("echo", text=text), text)


async def _slow(client: _Client) -> None:
    _check(await client.call("slow", seconds=0), "done")


async def _opens(client: _Client) -> None:
    _check(await client.call("opens"), "0")


_MEGABYTE: Final = "m" * 1_000_000


async def _posts(client: _Client) -> None:
    text = _MEGABYTE + "x" * (next(_ids) % 1000)
    _check(await client.call("length", text=text), str(len(text)))


async def _sessions(client: _Client) -> None:
    """Open a session, have it ask a question, answer it, and end it."""
    name = f"Ann {next(_ids)}"
    async with _opened(client.crowd.port) as session:
        await session.ask_title("Dune")
        _check(await session.answer(name), f"Dune for {name}")
        await session.end()


#: The honest clients, few and unhurried: the machine has two cores for everything.
KINDS: Final[dict[str, Kind]] = {
    "calls": Kind(_calls, clients=4, pause=0.01),
    "newcomers": Kind(_calls, clients=2, pause=0.02, keeps=False),
    "sessions": Kind(_sessions, clients=2, pause=0.02),
    "posts": Kind(_posts, clients=2, pause=0.05),
    "opens": Kind(_opens, clients=1, pause=0.02, keeps=False),
    "slow": Kind(_slow, clients=1, pause=0.02),
}


# ---- sessions -----------------------------------------------------------------------


@define(eq=False)
class _Session:
    """A session of 2025-11-25, with a connection for its messages and one for a stream."""

    port: int
    line: Line
    stream: Line
    id: str = ""
    question: Any = None
    _messages: Any = None
    _call: int = 0

    async def __aenter__(self) -> _Session:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with trio.CancelScope(shield=True):
            if self._messages is not None:
                await self._messages.aclose()
            await self.line.__aexit__()
            await self.stream.__aexit__()

    async def start(self) -> None:
        """Initialize the session."""
        got = await self._send(initialize())
        self.id = got.headers.get("mcp-session-id", "")
        if not self.id:
            raise Wrong("the server opened no session")
        await self._send(message("notifications/initialized"))

    async def _send(self, body: Any, method: str = "POST") -> Response:
        if self.line.closes:
            await self.line.__aexit__()
            self.line = await _connected(self.port)
        got = await self.line.ask(legacy(body, self.port, self.id or None, method))
        if got.status not in (200, 202, 204):
            raise Refused(str(got.status))
        return got

    async def ask_title(self, title: str) -> None:
        """Call the tool that asks, and wait for its question."""
        self._call = next(_ids)
        body = tool("ask", id=self._call, title=title)
        await self.stream.send(legacy(body, self.port, self.id))
        status, headers = await self.stream.head()
        if status != 200:
            raise Refused(str(status))
        self._messages = self.stream.messages(headers)
        async for found in self._messages:
            if found.get("method") == "elicitation/create":
                self.question = found
                return
            if "result" in found:
                raise Wrong(f"no question: {_value(found, self._call)}")
        raise Broken(1)

    async def answer(self, name: str) -> str:
        """Answer the question, and return the result of the call."""
        await self._send(answered(self.question, name))
        async for found in self._messages:
            if "method" not in found:
                return _value(found, self._call)
        raise Broken(1)

    async def ping(self) -> None:
        """Check that the session lives."""
        number = next(_ids)
        (*_, got) = (await self._send(message("ping", id=number))).messages
        if got.get("id") != number or "result" not in got:
            raise Wrong(str(got))

    async def end(self) -> None:
        """End the session."""
        await self._send(None, "DELETE")


async def _connected(port: int) -> Line:
    try:
        return await Line.open(port)
    except OSError as exc:
        raise Refused(f"not connected: {exc.strerror}") from None


class _opened:
    """A session, for the duration of a block."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session: _Session | None = None

    async def __aenter__(self) -> _Session:
        line = await _connected(self._port)
        try:
            stream = await _connected(self._port)
        except BaseException:
            await line.__aexit__()
            raise
        self._session = _Session(self._port, line, stream)
        try:
            await self._session.start()
        except BaseException:
            await self._session.__aexit__()
            raise
        return self._session

    async def __aexit__(self, *exc: object) -> None:
        assert self._session is not None
        await self._session.__aexit__()


@define(eq=False)
class Victims:
    """Two sessions that were there before the attack.

    Attributes:
        idle: A session without a call.
        busy: A session whose call waits for an answer, with an open stream.
    """

    idle: _Session
    busy: _Session

    @classmethod
    async def opened(cls, port: int) -> Victims:
        """Open both sessions, and call the tool that asks in one of them."""
        idle = await _opened(port).__aenter__()
        busy = await _opened(port).__aenter__()
        await busy.ask_title("Emma")
        return cls(idle, busy)

    async def check(self, patience: float) -> dict[str, str]:
        """Return how each of them has survived: `lives`, or the reason why not."""

        async def ping() -> None:
            if self.idle.line.peek() == b"":
                # The server closed an idle connection: a session outlives that.
                self.idle.line.closes = True
            await self.idle.ping()

        async def answer() -> None:
            if self.busy.line.peek() == b"":
                self.busy.line.closes = True
            _check(await self.busy.answer("Ben"), "Emma for Ben")

        found = {}
        for name, work in (("idle", ping), ("busy", answer)):
            try:
                with trio.fail_after(patience):
                    await work()
                found[name] = "lives"
            except Refused as exc:
                found[name] = f"refused with {exc.how}"
            except trio.TooSlowError:
                found[name] = "no answer"
            except Wrong as exc:
                found[name] = f"wrong: {exc!s:.200}"
            except BROKEN:
                found[name] = "its stream ended"
        return found

    async def leave(self) -> None:
        """Close their connections."""
        await self.idle.__aexit__()
        await self.busy.__aexit__()
