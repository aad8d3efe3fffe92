"""Three nodes, as the examples configure them: one may be lost."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .engines import EXAMPLES, Node, free_ports
from .failures import Load
from .workers import until, working

pytestmark = pytest.mark.restate

FILES = ["node-1.toml", "node-2.toml", "node-3.toml"]


@pytest.fixture
def nodes(program: Path, tmp_path: Path) -> Iterator[list[Node]]:
    texts = [(EXAMPLES / file).read_text() for file in FILES]
    used = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", "".join(texts))))
    ports = dict(zip(used, free_ports(len(used)), strict=True))
    found = [Node(program, tmp_path / file, file, ports) for file in FILES]
    for node in found:
        node.launch()
    for node in found:
        node.wait()
    yield found
    for node in found:
        if node.process.poll() is None:
            node.stop(signal.SIGKILL)


def test_one_of_three_nodes_is_lost(nodes: list[Node], tmp_path: Path) -> None:
    """The others take its tasks over, and nothing is lost."""
    load = Load(nodes[0], tmp_path, "cluster")
    with working(load.worker()):
        load.create(20, turns=20)
        until(lambda: load.log.read_text())
        nodes[2].stop(signal.SIGKILL)
        load.finish()
        load.judge()
    load.tasks.close()


def test_the_files_differ_in_their_numbers_only() -> None:
    plain = {
        re.sub(r"auto-provision = \w+|\d", "", (EXAMPLES / file).read_text())
        for file in FILES
    }
    assert len(plain) == 1
