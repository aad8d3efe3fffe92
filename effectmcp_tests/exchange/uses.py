"""A world in which clients send states again, to several processes at once.

The processes share keys and a ledger. A script names the request that begins, the one to
advance by a command, the process that dies, and the client that disconnects. `World.check`
holds what happened to the rules (docs/internals/replay.md#s7), which are written here
again, without a look at the ledger's own records:

    one reply    all results of a round are equal, and belong to one request
    one effect   nothing is performed twice, unless something was cut off; and then under
                 the same idempotency key
    no fork      one line of rounds of each flow performs the steps after a consent
    no loss      in the end, the request that counts gets its reply

    python -m effectmcp_tests.exchange.uses --seeds 0:10000 --on sqlite
"""

from __future__ import annotations

import argparse
import itertools
import logging
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias

from attrs import Factory, define, field, frozen

from effectmcp import Confirm, Elicit, Flow, IdempotencyKey, Sleep, Step
from effectmcp.engine.stops import Done, Failure, Want
from effectmcp.errors import StateError
from effectmcp.exchange.commands import (
    Command,
    Exchange,
    Invoke,
    Outlast,
    Peer,
    PerformAll,
)
from effectmcp.exchange.handle import handle
from effectmcp.exchange.ledger import Held, Ledger, Taken, Taking, Use, judge
from effectmcp.server import Server
from effectmcp.tasks import SqliteTasks
from effectmcp.tasks.connections import Connections
from effectmcp.tasks.restate import RestateTasks
from effectmcp.tasks.restate.ledger import RestateLedger

from ..tasks.restate.engines import Node, install
from ..tasks.restate.modelled_uses import ModelledEngine
from ..tasks.restate.workers import Worker, working
from ..tasks.simulated import drawn
from ..wire import EVERYTHING, KEYS, Wire, request

__all__ = ["ACTIONS", "HOSTS", "Action", "Host", "World", "played"]

#: How many processes there are.
PROCESSES: Final = 2
#: What the user may say in a round, by the kind of question.
ANSWERS: Final[tuple[Wire, ...]] = (
    {"action": "accept", "content": {"value": "Ann"}},
    {"action": "accept", "content": {"value": "Bob"}},
    {"action": "decline"},
    {"action": "accept", "content": {"value": 7}},  # fits no question
)
ACTIONS: Final = ("ask", "ask", "advance", "advance", "advance", "kill", "drop")

#: What happens, and numbers that choose where, modulo how many there are.
Action: TypeAlias = tuple[str, int, int, int]


# ---- hosts --------------------------------------------------------------------------


class Host(ABC):
    """The place where the processes of a server have their ledger.

    Attributes:
        clock: Returns the virtual time.
    """

    clock: Callable[[], float]

    @abstractmethod
    def ledger(self, process: int) -> Ledger:
        """Return the ledger of a process, as its server uses it."""

    @abstractmethod
    def kill(self, process: int) -> None:
        """End a process, as SIGKILL does; `ledger` returns the ledger of its successor."""

    def settle(self) -> None:  # noqa: B027  # most have nothing to do
        """Do what a process does later: after a client has disconnected."""

    def close(self) -> None:  # noqa: B027  # most have nothing to do
        """Release what the processes hold."""


@define(eq=False, slots=False)
class Modelled(Host):
    """A ledger that is a dict, and does only what `judge` decides."""

    slots: dict[tuple[str, str], Held] = field(factory=dict)
    #: The process of each execution.
    runs: dict[str, str] = field(factory=dict)
    _numbers: Iterator[int] = field(factory=itertools.count)
    _names: dict[int, str] = field(factory=dict)

    def ledger(self, process: int) -> Ledger:
        return _ModelLedger(self, self._names.setdefault(process, self._name()))

    def _name(self) -> str:
        return f"process {next(self._numbers)}"

    def kill(self, process: int) -> None:
        dead = self._names.pop(process, None)
        for place, one in self.slots.items():
            if one.holder is not None and self.runs[one.holder] == dead:
                self.slots[place] = Held(one.request, one.fence, None, one.reply)


@frozen
class _ModelLedger:
    host: Modelled
    name: str
    is_shared: bool = True

    def take(self, use: Use) -> Taking:
        slots = self.host.slots
        places = [(use.flow, slot) for slot, _ in use.slots]
        taking = judge(use, [slots.get(place) for place in places])
        if isinstance(taking, Taken):
            for place in places:
                slots.setdefault(place, Held(use.request, 0))
            slots[places[0]] = Held(use.request, taking.fence, use.by)
            self.host.runs[use.by] = self.name
        return taking

    def keep(self, taken: Taken, reply: bytes) -> None:
        held = self.host.slots[taken.flow, taken.slot]
        assert held.fence == taken.fence, "a killed process went on"
        self.host.slots[taken.flow, taken.slot] = Held(
            held.request, held.fence, None, reply
        )

    def leave(self, taken: Taken) -> None:
        held = self.host.slots[taken.flow, taken.slot]
        if held.fence == taken.fence:
            self.host.slots[taken.flow, taken.slot] = Held(
                held.request, held.fence, None, held.reply
            )


@define(eq=False, slots=False)
class Memory(Host):
    """`SqliteTasks` in memory, which all threads of one process share: it cannot die."""

    tasks: SqliteTasks = field(factory=SqliteTasks)

    def ledger(self, process: int) -> Ledger:
        return self.tasks

    def kill(self, process: int) -> None:
        pass

    def close(self) -> None:
        self.tasks.close()


@define(eq=False, slots=False)
class OnDisk(Host):
    """`SqliteTasks` in a file, with a connection, a thread and a lock for each process."""

    folder: Path
    tasks: dict[int, SqliteTasks] = field(factory=dict)

    def ledger(self, process: int) -> SqliteTasks:
        if process not in self.tasks:
            self.tasks[process] = SqliteTasks(self.folder / "tasks.db")
        return self.tasks[process]

    def kill(self, process: int) -> None:
        dead = self.tasks.pop(process, None)
        opened = None if dead is None else dead._opened
        if opened is not None:
            _die(opened)
        # Otherwise others notice it after half a second.
        self.ledger(process)._store()._sweep()

    def close(self) -> None:
        for one in self.tasks.values():
            one.close()


def _die(opened: Connections) -> None:
    """Leave everything as a process leaves it that was killed."""

    def end() -> None:
        opened._writer.close()
        opened._reader.close()

    opened._end = end  # type: ignore[method-assign]  # it would give all back
    opened.holder.leave()  # as the kernel unlocks its file
    opened.close()


@contextmanager
def _on_disk() -> Iterator[Host]:
    with tempfile.TemporaryDirectory() as folder:
        host = OnDisk(Path(folder))
        try:
            yield host
        finally:
            host.close()


@contextmanager
def _in_memory() -> Iterator[Host]:
    host = Memory()
    try:
        yield host
    finally:
        host.close()


@define(eq=False, slots=False)
class OnEngine(Host):
    """`RestateTasks` on an engine: on a model of it, with the same bytes, or on a real one."""

    engine: Any = field(factory=ModelledEngine)
    service: str = "shop.Use"
    ledgers: dict[int, RestateLedger] = field(factory=dict)

    def ledger(self, process: int) -> RestateLedger:
        if process not in self.ledgers:
            made = RestateLedger(
                self.engine,
                self.service,
                Counter,
                limit=9,
                share=9,
                clock=lambda: self.clock(),
            )
            # No thread: what it would do is done at once, or never again.
            made._thread = threading.current_thread()
            self.ledgers[process] = made
        return self.ledgers[process]

    def settle(self) -> None:
        for one in self.ledgers.values():
            for taken, held in list(one._held.items()):
                one._write(taken, held)

    def kill(self, process: int) -> None:
        self.settle()
        self.ledgers.pop(process, None)


@contextmanager
def _on_engine() -> Iterator[Host]:
    yield OnEngine()


@contextmanager
def _modelled() -> Iterator[Host]:
    yield Modelled()


HOSTS: Final[dict[str, Callable[[], Any]]] = {
    "model": _modelled,
    "memory": _in_memory,
    "sqlite": _on_disk,
    "restate": _on_engine,
}


@contextmanager
def _real_engine(cache: Path) -> Iterator[Callable[[], Any]]:
    """Run a real Restate and a worker; yield what makes hosts on it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node = Node(install(cache.resolve()), folder / "engine")
        node.start()
        try:
            source = folder / "app.py"
            source.write_text("from effectmcp import Server\napp = Server('shop')\n")
            with working(Worker(node, "uses", source, folder / "log")):
                yield on_engine(node)
        finally:
            node.stop()


def on_engine(node: Node) -> Callable[[], Any]:
    """Return what makes hosts on a real engine that has a worker for `uses`."""
    tasks = RestateTasks(node.ingress, node.admin, name="uses")

    @contextmanager
    def make() -> Iterator[Host]:
        yield OnEngine(tasks.engine, tasks.uses_service)

    return make


# ---- the world ----------------------------------------------------------------------


@define(eq=False)
class Running:
    """A request that a process answers."""

    process: int
    state: str
    content: Wire
    exchange: Exchange
    command: Command


@frozen
class Ended:
    """A request that was answered."""

    state: str
    said: str
    reply: Wire


@define(eq=False)
class World:
    """The clients, the processes, and what they have done.

    Args:
        host: The ledger.
        kind: `tool` for a tool with `single_use=True`, `consent` for questions with
            `once=True`.
        seed: Where the randomness of the processes begins: another one for each flow on
            the same host.

    Attributes:
        performed: The steps that were performed: what, and the idempotency key.
        cut: The requests that were cut off.
        ended: The requests that were answered.
    """

    host: Host
    kind: Literal["tool", "consent"]
    seed: int = 0
    now: float = field(factory=time.time)
    performed: list[tuple[str, str]] = field(factory=list)
    cut: list[Running] = field(factory=list)
    ended: list[Ended] = field(factory=list)
    running: list[Running] = field(factory=list)
    states: list[tuple[str, dict[str, str]]] = field(factory=list)
    _apps: dict[int, Server] = field(factory=dict)
    _ids: Iterator[int] = field(factory=itertools.count)
    _random: Random = field(
        default=Factory(lambda world: Random(world.seed), takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        self.host.clock = lambda: self.now
        begun = self._begin(0, {"name": "order", "arguments": {}})
        self._finish(begun)

    # ---- the server -----------------------------------------------------------------

    def _app(self, process: int) -> Server:
        if process not in self._apps:
            app = Server("shop", keys=KEYS, ledger=self.host.ledger(process))
            app.tool(name="order", single_use=self.kind == "tool")(self._order)
            self._apps[process] = app
        return self._apps[process]

    def _order(self) -> Flow[str]:
        """Ask, note, ask for consent, pay, ask again, and tip."""
        name = yield from Elicit("Who?", str)
        key = yield from IdempotencyKey("note")
        yield from Step(self._perform, "note", key)
        if not (yield from Confirm(f"Pay for {name}?", once=self.kind == "consent")):
            return "nothing"
        key = yield from IdempotencyKey("pay", name)
        receipt = yield from Step(self._perform, "pay", key)
        again = yield from Elicit(f"{receipt} Who gets a tip?", str)
        key = yield from IdempotencyKey("tip", again)
        tip = yield from Step(self._perform, "tip", key)
        return f"{receipt} {tip}"

    def _perform(self, what: str, key: str) -> str:
        self.performed.append((what, key))
        return f"{what} {len(self.performed)}"  # another result each time

    # ---- what may happen ------------------------------------------------------------

    def act(self, action: Action) -> None:
        """Let one thing happen."""
        what, one, two, three = action
        match what:
            case "ask" if self.states:
                state, questions = self.states[one % len(self.states)]
                self._ask(state, questions, two, three % PROCESSES)
            case "advance" if self.running:
                self._advance(self.running[one % len(self.running)])
            case "drop" if self.running:
                cut = self.running.pop(one % len(self.running))
                self.cut.append(cut)
                cut.exchange.close()
                self.host.settle()
            case "kill":
                self._kill(one % PROCESSES)
            case _:
                pass

    def _ask(
        self, state: str, questions: dict[str, str], answer: int, process: int
    ) -> None:
        said = ANSWERS[answer % len(ANSWERS)]
        responses = {}
        for key, message in questions.items():
            is_yes = message.startswith("Pay") and said["action"] == "accept"
            responses[key] = {"action": "accept", "content": {}} if is_yes else said
        params = {"name": "order", "arguments": {}}
        self._begin(
            process, {**params, "requestState": state, "inputResponses": responses}
        )

    def _begin(self, process: int, params: Wire) -> Running | None:
        message = request(
            "tools/call", params, capabilities=EVERYTHING, id=next(self._ids)
        )
        exchange = handle(
            self._app(process),
            message,
            Peer(),
            clock=lambda: self.now,
            entropy=self._random.randbytes,
        )
        one = Running(
            process, params.get("requestState", ""), params, exchange, Invoke(len, {})
        )
        self.running.append(one)
        self._send(one, None)
        return one

    def _advance(self, one: Running) -> None:
        match one.command:
            case Invoke(function, kwargs):
                try:
                    outcome: Any = Done(function(**kwargs))
                except Exception as exc:
                    outcome = Failure(exc)
            case PerformAll(wants):
                outcome = {want.key: self._value(want) for want in wants}
            case Outlast():
                outcome = None
            case _:
                raise AssertionError(one.command)
        self._send(one, outcome)

    def _value(self, want: Want) -> Done | Failure:
        match want.effect:
            case Step(fn=function, args=args):
                return Done(function(*args))
            case Sleep(seconds):
                self.now += seconds
                self.host.settle()
                return Done(None)
            case _:
                known = drawn(want, self.now)
                assert known is not None, want
                return known

    def _send(self, one: Running, outcome: Any) -> None:
        try:
            one.command = one.exchange.send(outcome)
        except StopIteration as end:
            self.running.remove(one)
            message = dict(end.value.message)
            message.pop("id")
            said = repr(one.content.get("inputResponses"))
            self.ended.append(Ended(one.state, said, message))
            result = message.get("result", {})
            if "requestState" in result:
                questions = {
                    key: asked["params"]["message"]
                    for key, asked in result["inputRequests"].items()
                }
                if all(result["requestState"] != known for known, _ in self.states):
                    self.states.append((result["requestState"], questions))

    def _kill(self, process: int) -> None:
        dying = [one for one in self.running if one.process == process]
        if isinstance(self.host, Memory):
            return
        for one in dying:
            self.running.remove(one)
            self.cut.append(one)
            _forget(one.exchange)
        self._apps.pop(process, None)
        self.host.kill(process)

    def _finish(self, *some: Running | None) -> None:
        left = [one for one in some if one is not None] or self.running
        while any(one in self.running for one in left):
            for one in list(left):
                if one in self.running:
                    self._advance(one)

    # ---- the rules ------------------------------------------------------------------

    def check(self) -> None:
        """Let all requests end; hold what happened to the rules."""
        self._finish()
        self._go_on()
        counted = self._counted()
        for state, results in counted.items():
            assert len({one.said for one in results}) <= 1, ("two requests", state)
            assert len({repr(one.reply) for one in results}) <= 1, (
                "two replies",
                state,
            )
        if self.kind == "consent":
            lines = [state for state, results in counted.items() if results]
            asked = [self._question(state)[:3] for state in lines]
            assert asked.count("Pay") <= 1, "two requests have the consent"
        self._check_refusals()
        self._check_effects()
        # No loss: each request that has counted gets its reply again.
        for results in list(counted.values()):
            if results:
                self._repeat(results[0])

    def _go_on(self) -> None:
        """Bring the flow to its end, as an honest client does: nothing may block it."""
        state = self._line()
        while True:
            results = self._results(state)
            result = results[0].reply["result"] if results else self._first(state)
            if "requestState" not in result:
                return
            state = result["requestState"]

    def _line(self) -> str:
        """Return the state whose answer was the consent, or else the first state."""
        if self.kind == "consent":
            for state, _ in self.states:
                if self._question(state).startswith("Pay") and self._results(state):
                    return state
            # The request that counts may have been cut off.
            for one in self.cut:
                asked = self._question(one.state) if one.state else ""
                if asked.startswith("Pay") and "result" in self._again(one).reply:
                    return one.state
        return self.states[0][0]

    def _first(self, state: str) -> Wire:
        """Send what was cut off, or else an answer that fits; return the first result."""
        for one in self.cut:
            if one.state == state and "result" in (again := self._again(one)).reply:
                break
        else:
            self._ask(state, dict(self.states)[state], 0, 0)
            self._finish()
            again = self.ended[-1]
        result: Wire = again.reply["result"]
        return result

    def _again(self, cut: Running) -> Ended:
        self._begin(0, cut.content)
        self._finish()
        return self.ended[-1]

    def _results(self, state: str) -> list[Ended]:
        return [
            one for one in self.ended if one.state == state and "result" in one.reply
        ]

    def _counted(self) -> dict[str, list[Ended]]:
        """Return the results of each round that counts once, by its state."""
        counted: dict[str, list[Ended]] = {}
        for one in self.ended:
            if one.state and (self.kind == "tool" or self._follows_consent(one)):
                found = counted.setdefault(one.state, [])
                if "result" in one.reply:
                    found.append(one)
        return counted

    def _follows_consent(self, one: Ended) -> bool:
        message = self._question(one.state)
        if message.startswith("Pay"):
            return "'value': 7" not in one.said  # it was answered, not asked again
        return "tip" in message

    def _question(self, state: str) -> str:
        (message,) = dict(self.states)[state].values()
        return message

    def _check_refusals(self) -> None:
        for one in self.ended:
            if "error" in one.reply:
                assert one.reply["error"]["code"] in (-32602, -32603)
                if one.reply["error"]["code"] == -32602:
                    assert one.reply["error"]["message"] == StateError.PUBLIC

    def _check_effects(self) -> None:
        for what in (
            ("pay", "tip") if self.kind == "consent" else ("note", "pay", "tip")
        ):
            keys = Counter(key for done, key in self.performed if done == what)
            assert len(keys) <= 1, (what, keys)
            if not self.cut:
                assert keys.total() <= 1, (what, keys)

    def _repeat(self, one: Ended) -> None:
        before = len(self.performed)
        questions = dict(self.states)[one.state]
        for index in range(len(ANSWERS)):
            known = len(self.ended)
            self._ask(one.state, questions, index, index % PROCESSES)
            self._finish()
            again = self.ended[known]
            if again.said == one.said:
                assert again.reply == one.reply
            elif self.kind == "tool" or self._follows_consent(again):
                assert again.reply["error"]["message"] == StateError.PUBLIC
        performed = self.performed[before:]
        assert not performed, performed


def _forget(exchange: Exchange) -> None:
    """Leave a generator as the death of its process does: without its `finally`."""
    _FORGOTTEN.append(exchange)


#: Exchanges of dead processes: nothing of them may run.
_FORGOTTEN: Final[list[Exchange]] = []


def played(
    make: Callable[[], Any],
    kind: Literal["tool", "consent"],
    actions: Sequence[Action],
    *,
    seed: int = 0,
) -> World:
    """Play a script on a host, and check the rules; return the world in its end."""
    with make() as host:
        world = World(host, kind, seed)
        for one in actions:
            world.act(one)
        world.check()
        return world


def scripted(seed: int) -> list[Action]:
    """Return the script of a seed."""
    random = Random(seed)
    return [
        (random.choice(ACTIONS), *[random.randrange(12) for _ in "123"])  # type: ignore[misc]  # three
        for _ in range(random.randrange(4, 60))
    ]


def main() -> None:
    """Play the scripts of many seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", default="0:10000", help="the first, and the one behind"
    )
    parser.add_argument("--on", choices=[*HOSTS, "engine"], default="sqlite")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/effectmcp")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        make = HOSTS.get(options.on) or stack.enter_context(_real_engine(options.cache))
        play_seeds(make, options.on, *map(int, options.seeds.split(":")))


def play_seeds(make: Callable[[], Any], on: str, first: int, last: int) -> None:
    """Play the scripts of the seeds from `first` up to `last`; print a line of counts."""
    began, counts = time.monotonic(), Counter[str]()
    for seed in range(first, last):
        kind: Literal["tool", "consent"] = "consent" if seed % 2 else "tool"
        try:
            world = played(make, kind, scripted(seed), seed=seed)
        except BaseException:
            print(f"seed {seed}, {kind}")
            raise
        counts["requests"] += len(world.ended)
        counts["cut off"] += len(world.cut)
        counts["refused"] += sum("error" in one.reply for one in world.ended)
        counts["performed"] += len(world.performed)
        _FORGOTTEN.clear()
    seconds = time.monotonic() - began
    print(
        f"{last - first} interleavings on {on}, {seconds:.0f} s: {dict(counts)}:"
        " one effect, one reply"
    )


if __name__ == "__main__":
    main()
