"""The engine, its workers and the network between them fail while tasks run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from ..kills import check, forking, play
from .engines import Node, free_ports
from .failures import Load
from .flaky import Proxy
from .workers import until, working

pytestmark = pytest.mark.restate

_NAMES = count()


@pytest.fixture
def load(engine: Node, tmp_path: Path) -> Iterator[Load]:
    one = Load(engine, tmp_path, f"load{next(_NAMES)}")
    yield one
    one.tasks.close()


def test_workers_are_killed_at_their_commands(engine: Node, tmp_path: Path) -> None:
    """All points are tried by `.ci/long`; these are some of them."""
    place = f"restate+{engine.ingress}?admin={engine.admin}&name=kills"
    kills = 0
    with forking() as forks:
        for kill in range(1, 50, 6):
            folder = tmp_path / str(kill)
            folder.mkdir()
            run = play(forks, folder, [kill, kill + 3], place=place)
            check(run)
            kills += run.kills
    assert kills > 8


def test_the_engine_is_killed_under_load(load: Load) -> None:
    with working(load.worker()):
        load.create(15, turns=15)
        for _ in range(2):
            time.sleep(0.3)
            load.node.stop(signal.SIGKILL)
            load.node.start()
        load.finish()
        load.judge()


def test_one_of_two_workers_is_killed(load: Load) -> None:
    """The other one adopts its turns, and all that begin later."""
    first, second = load.worker(1), load.worker(2)
    with working(first, second):
        load.create(10, turns=10)
        # The worker that registered last runs the turns.
        until(lambda: load.log.read_text())
        second.stop(signal.SIGKILL)
        first.stop()
        first.start()
        load.finish()
        load.judge()


def test_a_frozen_worker_loses_its_turns(load: Load) -> None:
    """The turns continue elsewhere. After the thaw, the old worker's writes are refused."""
    frozen, other = load.worker(1, silence=1.0), load.worker(2, silence=1.0)
    frozen.port, other.port = free_ports(2)
    balancer = Proxy(("127.0.0.1", frozen.port))
    frozen.advertise = other.advertise = f"http://127.0.0.1:{balancer.port}"
    with working(frozen):
        load.create(5, turns=40)
        until(lambda: load.log.read_text())
        frozen.process.send_signal(signal.SIGSTOP)
        balancer.target = "127.0.0.1", other.port
        with working(other):
            until(lambda: str(other.process.pid) in load.log.read_text())
            frozen.process.send_signal(signal.SIGCONT)
            load.finish()
            load.judge()
    balancer.close()


def test_a_network_that_delays_and_cuts(load: Load) -> None:
    worker = load.worker(silence=1.0)
    proxy = Proxy(("127.0.0.1", worker.port), delay=0.003, cut=0.01)
    worker.advertise = f"http://127.0.0.1:{proxy.port}"
    with working(worker):
        load.create(12, turns=5)
        load.finish()
        load.judge()
    proxy.close()
