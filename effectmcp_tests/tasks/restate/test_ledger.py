"""The ledger of a server on Restate: what it asks of the engine, and what its thread does.

The engine is a model that has the objects of `test_uses`. One test has a real one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from effectmcp.errors import TaskLimitError, TaskStoreError
from effectmcp.exchange.ledger import BUSY, SPENT, Kept, Taken, Use
from effectmcp.tasks.restate import RestateTasks
from effectmcp.tasks.restate import ledger as module
from effectmcp.tasks.restate.attempts import owner_tag
from effectmcp.tasks.restate.ledger import RestateLedger
from effectmcp.tasks.restate.uses import FULL, KEEP, TAKE, take_request

from ...exchange.uses import on_engine, play_seeds
from .engines import Node
from .modelled_uses import ModelledEngine
from .scripted import Asked, Scripted, answer
from .workers import Worker, until, working

SERVICE = "shop.Use"
USE = Use(flow="f1", slots=(("1", 1e10),), request="r", owner="ann", by="me")
AGAIN = attrs.evolve(USE, by="another execution")
BOTH = attrs.evolve(USE, slots=(("1", 1e10), ("line", 1e10)))
OTHER = attrs.evolve(USE, request="other")
ONE = Taken("f1", "1", 1)
TWO = Taken("f1", "1", 2)
TAG = owner_tag("ann").decode()


class Engine(ModelledEngine):
    """A model of the engine that may be away, and notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.asked: list[tuple[str, str, str]] = []

    def call(self, service: str, handler: str, key: str, body: bytes) -> Any:
        self.asked.append((service, handler, key))
        if self.failure is not None:
            raise self.failure
        return super().call(service, handler, key, body)

    @property
    def slot(self) -> Any:
        """The slot of the first round."""
        return json.loads(self.objects["f1"][b"slots"])["1"]


@attrs.define(eq=False)
class Servers:
    """Servers on one engine, whose clock and counts a test sets."""

    engine: Engine = attrs.field(factory=Engine)
    now: float = 1_000.0
    counted: Counter[str] = attrs.field(factory=Counter)

    def ledger(self, *, has_thread: bool = False) -> RestateLedger:
        engine: Any = self.engine
        made = RestateLedger(
            engine, SERVICE, lambda: self.counted, limit=5, share=3, clock=self._clock
        )
        if not has_thread:
            # What it would do is done by the test.
            made._thread = threading.current_thread()
        return made

    def _clock(self) -> float:
        return self.now


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the threads look all the time."""
    monkeypatch.setattr(module, "_BEAT", 0.001)


def write_all(ledger: RestateLedger) -> None:
    """Do what the thread does in one beat."""
    for taken, held in list(ledger._held.items()):
        ledger._write(taken, held)


# ---- take, keep and leave -----------------------------------------------------------


def test_take_and_keep_ask_the_object_of_the_flow(servers: Servers) -> None:
    ledger = servers.ledger()
    assert ledger.is_shared
    assert ledger.take(USE) == ONE
    ledger.keep(ONE, b"reply")
    assert servers.engine.asked == [(SERVICE, TAKE, "f1"), (SERVICE, KEEP, "f1")]
    assert ledger._held == {}
    assert ledger.take(AGAIN) == Kept(b"reply")
    assert ledger.take(OTHER) == SPENT


def test_take_running_request_is_busy_in_every_server(servers: Servers) -> None:
    one, other = servers.ledger(), servers.ledger()
    one.take(USE)
    assert one.take(AGAIN) == BUSY
    assert other.take(AGAIN) == BUSY
    one.keep(ONE, b"reply")
    assert other.take(AGAIN) == Kept(b"reply")


def test_leave_lets_the_same_request_run_again(servers: Servers) -> None:
    ledger = servers.ledger()
    ledger.take(USE)
    asked = len(servers.engine.asked)
    ledger.leave(ONE)
    assert len(servers.engine.asked) == asked  # it does not wait
    write_all(ledger)
    assert ledger._held == {}
    assert ledger.take(AGAIN) == TWO


def test_take_by_the_same_execution_holds_one_slot(servers: Servers) -> None:
    """An execution takes the slot of its state first, and the line later with it."""
    ledger = servers.ledger()
    assert ledger.take(USE) == ONE
    assert ledger.take(BOTH) == TWO
    assert ledger.take(attrs.evolve(BOTH, by="another execution")) == BUSY
    ledger.keep(TWO, b"reply")
    assert ledger._held == {}
    assert ledger.take(AGAIN) == Kept(b"reply")


def test_keep_after_the_slot_was_taken_again_is_refused(servers: Servers) -> None:
    one, other = servers.ledger(), servers.ledger()
    one.take(USE)
    one.leave(ONE)
    write_all(one)
    one._held[ONE] = module._Held()
    other.take(AGAIN)
    with pytest.raises(TaskStoreError, match="slot 1 of f1 was taken again"):
        one.keep(ONE, b"too late")
    assert one._held == {}
    assert other.take(USE) == BUSY


def test_take_of_an_engine_that_is_away_is_an_error(servers: Servers) -> None:
    ledger = servers.ledger()
    servers.engine.failure = TaskStoreError("Restate cannot be reached")
    with pytest.raises(TaskStoreError, match="cannot be reached"):
        ledger.take(USE)
    assert ledger._held == {}


def test_reply_that_cannot_be_kept_is_kept_later(servers: Servers) -> None:
    ledger = servers.ledger()
    ledger.take(USE)
    servers.engine.failure = TaskStoreError("Restate cannot be reached")
    with pytest.raises(TaskStoreError, match="cannot be reached"):
        ledger.keep(ONE, b"reply")
    ledger.leave(ONE)  # the reply is kept later
    with pytest.raises(TaskStoreError, match="cannot be reached"):
        write_all(ledger)
    servers.engine.failure = None
    assert ledger.take(AGAIN) == BUSY
    write_all(ledger)
    assert ledger._held == {}
    assert ledger.take(AGAIN) == Kept(b"reply")


# ---- signs of life ------------------------------------------------------------------


def test_running_request_has_a_beat(servers: Servers) -> None:
    ledger = servers.ledger()
    ledger.take(USE)
    write_all(ledger)
    write_all(ledger)
    assert servers.engine.slot["beat"] == 2
    assert [*ledger._held] == [ONE]


def test_request_without_a_beat_is_taken_over_after_a_while(servers: Servers) -> None:
    dead, other = servers.ledger(), servers.ledger()
    dead.take(USE)
    assert other.take(AGAIN) == BUSY
    servers.now += module._DEAD - 0.01
    assert other.take(AGAIN) == BUSY
    servers.now += 0.01
    assert other.take(OTHER) == SPENT  # and the beat is not forgotten
    assert other.take(AGAIN) == TWO
    with pytest.raises(TaskStoreError, match="taken again"):
        dead.keep(ONE, b"too late")


def test_request_with_a_beat_is_not_taken_over(servers: Servers) -> None:
    alive, other = servers.ledger(), servers.ledger()
    alive.take(USE)
    for _ in range(5):
        assert other.take(AGAIN) == BUSY
        servers.now += module._DEAD
        write_all(alive)
    alive.keep(ONE, b"reply")
    assert other.take(AGAIN) == Kept(b"reply")


def test_first_look_takes_nothing_over(servers: Servers) -> None:
    """A server that has just started has seen no beat yet."""
    servers.ledger().take(USE)
    servers.now = 1e9
    assert servers.ledger().take(AGAIN) == BUSY


def test_few_beats_of_others_are_remembered(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEEN", 2)
    one, other = servers.ledger(), servers.ledger()
    for flow in "abc":
        one.take(attrs.evolve(USE, flow=flow))
        assert other.take(attrs.evolve(AGAIN, flow=flow)) == BUSY
    assert [flow for flow, _ in other._seen] == ["b", "c"]
    servers.now += module._DEAD
    assert other.take(attrs.evolve(AGAIN, flow="a")) == BUSY
    assert other.take(attrs.evolve(AGAIN, flow="c")) == Taken("c", "1", 2)


def test_beat_of_a_slot_that_was_taken_over_is_given_up_with_its_end(
    servers: Servers,
) -> None:
    one, other = servers.ledger(), servers.ledger()
    one.take(USE)
    other.take(AGAIN)
    servers.now += module._DEAD
    other.take(AGAIN)
    write_all(one)
    assert [*one._held] == [ONE]  # its request still runs, and will fail to keep
    one.leave(ONE)
    write_all(one)
    assert one._held == {}
    assert other.take(USE) == BUSY


def test_late_reply_of_a_slot_that_was_taken_over_is_dropped(servers: Servers) -> None:
    one = servers.ledger()
    one.take(USE)
    one._held[ONE] = module._Held(b"late")
    assert take_over(servers) == TWO
    write_all(one)
    assert one._held == {}


def take_over(servers: Servers) -> Any:
    """Have another server take the request over."""
    other = servers.ledger()
    other.take(AGAIN)
    servers.now += module._DEAD
    return other.take(AGAIN)


def test_write_for_a_slot_that_was_given_up_meanwhile_is_left_out(
    servers: Servers,
) -> None:
    ledger = servers.ledger()
    ledger.take(USE)
    held = ledger._held[ONE]
    ledger.keep(ONE, b"reply")
    asked = len(servers.engine.asked)
    ledger._write(ONE, held)
    assert len(servers.engine.asked) == asked


def test_reply_that_arrives_during_a_write_is_not_lost(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is asked without the lock."""
    ledger = servers.ledger()
    ledger.take(USE)
    ledger.leave(ONE)
    call, late = servers.engine.call, module._Held(b"late")

    def during(*args: Any) -> Any:
        ledger._held[ONE] = late
        return call(*args)

    monkeypatch.setattr(servers.engine, "call", during)
    write_all(ledger)
    assert ledger._held == {ONE: late}


# ---- the thread ---------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_thread_beats_while_there_are_slots(servers: Servers) -> None:
    ledger = servers.ledger(has_thread=True)
    for fence in (1, 2):
        taken = ledger.take(USE)
        assert taken == Taken("f1", "1", fence)
        until(lambda: servers.engine.slot["beat"] >= 2)
        ledger.leave(taken)
        until(lambda: ledger._thread is None)
    assert ledger._held == {}


def test_thread_leaves_a_slot_at_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BEAT", 3600.0)
    ledger = servers.ledger(has_thread=True)
    ledger.take(USE)
    ledger.leave(ONE)
    until(lambda: servers.engine.slot["by"] is None)
    assert ledger.take(AGAIN) == TWO
    ledger.keep(TWO, b"reply")
    ledger._wake.set()
    until(lambda: ledger._thread is None)


@pytest.mark.usefixtures("quick")
def test_thread_continues_when_the_engine_is_back(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread warns once for each reason, although it tries all the time."""
    engine = servers.engine
    ledger = servers.ledger(has_thread=True)
    ledger.take(USE)

    def fails(words: str) -> None:
        engine.failure = TaskStoreError(words)
        before = len(engine.asked)
        until(lambda: len(engine.asked) > before + 3)

    fails("away")
    fails("still away")
    engine.failure = None
    beat = engine.slot["beat"]
    until(lambda: engine.slot["beat"] > beat)
    fails("still away")
    engine.failure = None
    ledger.keep(ONE, b"reply")
    until(lambda: ledger._thread is None)
    found = [one.getMessage() for one in caplog.records]
    assert [one.partition("later: ")[2] for one in found] == [
        *("away", "still away", "still away")
    ]


# ---- limits -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        ({TAG: 3}, "you have too many calls that count once"),
        ({"": 5}, "there are too many calls that count once"),
        ({TAG: 2, "": 3}, "there are too many calls that count once"),
    ],
)
def test_too_many_flows_are_refused(
    servers: Servers, counted: dict[str, int], words: str
) -> None:
    servers.counted.update(counted)
    with pytest.raises(TaskLimitError, match=words):
        servers.ledger().take(USE)
    assert servers.engine.objects == {"f1": {}}


@pytest.mark.parametrize("counted", [{TAG: 2}, {"": 4}, {"": 2, TAG: 2}])
def test_flows_below_the_limits_are_taken(
    servers: Servers, counted: dict[str, int]
) -> None:
    servers.counted.update(counted)
    assert servers.ledger().take(USE) == ONE


def test_flow_that_is_counted_may_end_at_the_limit(servers: Servers) -> None:
    """A flow with slots takes no more room."""
    ledger = servers.ledger()
    ledger.take(USE)
    ledger.keep(ONE, b"reply")
    servers.counted[TAG] = 3
    assert ledger.take(AGAIN) == Kept(b"reply")
    assert ledger.take(attrs.evolve(USE, slots=(("2", 1e10),))) == Taken("f1", "2", 1)


# ---- over HTTP ----------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Scripted]:
    one = Scripted()
    yield one
    one.close()


def tasks_on(server: Scripted, said: Callable[[Asked], Any]) -> RestateTasks:
    """Return tasks on a server that answers calls so, and counts one flow of Ann."""

    def reply(asked: Asked) -> bytes:
        if asked.line == "POST /query":
            assert "service_name = 'shop.Use'" in asked.sql
            return answer({"rows": [{"owner": TAG, "number": 1}]})
        found = said(asked)
        return found if isinstance(found, bytes) else answer(found)

    server.answer = reply
    url = server.url
    tasks = RestateTasks(url, url, name="shop", uses=3, uses_share=2)
    tasks._ledger._thread = threading.current_thread()
    return tasks


def test_tasks_are_a_ledger(server: Scripted) -> None:
    """The object of the flow answers the call itself, so there is one way to wait."""
    said = iter([{"fence": 1}, {"kept": True}, {"reply": "reply"}])
    tasks = tasks_on(server, lambda asked: next(said))
    assert tasks.is_shared
    assert tasks.take(USE) == ONE
    tasks.keep(ONE, b"reply")
    assert tasks.take(USE) == Kept(b"reply")
    asked = [one for one in server.asked if one.line != "POST /query"]
    lines = ["take", "keep", "take"]
    assert [one.line for one in asked] == [f"POST /shop.Use/f1/{x}" for x in lines]
    assert asked[0].body == take_request(USE)
    tasks.leave(ONE)
    assert [*tasks._ledger._held] == [ONE]
    tasks.close()


def test_counts_are_taken_from_the_engine(server: Scripted) -> None:
    def said(asked: Asked) -> Any:
        return FULL if json.loads(asked.body)["full"] else {"fence": 1}

    tasks = tasks_on(server, said)
    tasks._ledger._share = 1
    with pytest.raises(TaskLimitError, match="you have too many calls"):
        tasks.take(USE)
    assert tasks.take(attrs.evolve(USE, owner="bob")) == ONE
    tasks.close()


def test_engine_without_a_worker_is_an_error(server: Scripted) -> None:
    tasks = tasks_on(server, lambda asked: answer({"message": "x"}, status=404))
    with pytest.raises(TaskStoreError, match="does not know shop.Use yet"):
        tasks.take(USE)
    tasks.close()


# ---- on a real engine ---------------------------------------------------------------


@pytest.mark.restate
@pytest.mark.usefixtures("quiet")
def test_interleavings_have_one_effect_and_one_reply(
    engine: Node, tmp_path: Path
) -> None:
    source = tmp_path / "app.py"
    source.write_text("from effectmcp import Server\napp = Server('shop')\n")
    with working(Worker(engine, "uses", source, tmp_path / "log")):
        play_seeds(on_engine(engine), "engine", 0, 60)


@pytest.mark.restate
def test_slots_on_a_real_engine_are_removed_in_time(
    engine: Node, tmp_path: Path
) -> None:
    """The engine keeps the request for later, and its clock decides."""
    source = tmp_path / "app.py"
    source.write_text("from effectmcp import Server\napp = Server('shop')\n")
    tasks = RestateTasks(engine.ingress, engine.admin, name="removed")
    with working(Worker(engine, "removed", source, tmp_path / "log")):
        soon = time.time() + 0.5
        use = attrs.evolve(USE, slots=(("1", soon), ("line", soon + 0.2)))
        taken = tasks.take(use)
        assert isinstance(taken, Taken)
        tasks.keep(taken, b"reply \xed\xa0\x80")
        assert tasks.take(use) == Kept(b"reply \xed\xa0\x80")
        query = "SELECT key FROM state WHERE service_name = 'removed.Use'"
        assert tasks.engine.query(query, key=str)
        until(lambda: not tasks.engine.query(query, key=str))
    tasks.close()
