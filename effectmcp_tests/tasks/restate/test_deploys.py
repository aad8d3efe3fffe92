"""Each kind of deploy, for waiting and for running tasks: the table of the docs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks.restate import RestateTasks

from .engines import Node
from .workers import Worker, answer, new_row, until, working

pytestmark = pytest.mark.restate

_NAMES = count()

#: A task that asks, performs a step as long as a file says, and returns its version.
SOURCE = """
import pathlib, time
from effectmcp import Elicit, Flow, Server, step

app = Server("deployed")
HERE = pathlib.Path(__file__).parent.parent

@step
def work() -> str:
    with open(HERE / "begun", "a") as file:
        file.write("{version}\\n")
    while not (HERE / "release").exists():
        time.sleep(0.01)
    return "{version}"

@step
def begin() -> str:
    return "begun"

@step
def hurry() -> str:
    return "hurried"

@app.tool(task="required")
def tool(asks: bool) -> Flow[str]:
    yield from {first}()
    if asks:
        yield from Elicit("Go on?", str)
    done = yield from work()
    name = yield from Elicit("Who?", str)
    return f"{{done}} {version} {{name}}"
"""


class Deployment:
    """Two versions of a server, and a task that waits, and a task in its step."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.folder = folder
        self.node = node
        self.name = f"deploy{next(_NAMES)}"
        self.tasks = RestateTasks(node.ingress, node.admin, name=self.name)
        self.waiting = new_row(1, asks=True)
        self.running = new_row(2, asks=False)

    def worker(self, version: str, *, first: str = "begin") -> Worker:
        # In modules of the same name, as a step is known by it.
        source = self.folder / version / "app.py"
        source.parent.mkdir()
        source.write_text(SOURCE.format(version=version, first=first))
        return Worker(self.node, self.name, source, source.with_suffix(".log"))

    def begin(self) -> None:
        """Create both tasks, and wait until one asks and the other one is at work."""
        for row in (self.waiting, self.running):
            self.tasks.create(row)
        until(lambda: self.row(self.waiting).questions)
        until(lambda: (self.folder / "begun").exists())

    def row(self, row: TaskRow) -> TaskRow:
        found = self.tasks.read(row.id)
        assert found is not None
        return found

    def release(self) -> None:
        (self.folder / "release").touch()

    def ends(self, row: TaskRow) -> str:
        """Answer all questions of a task; return its result."""
        while not self._stops(row).is_ended:
            answer(self.tasks, row.id, "Ann")
        result = self.row(row).result
        assert result is not None
        content: object = result["content"]
        assert isinstance(content, list)
        return str(content[0]["text"])

    def _stops(self, row: TaskRow) -> TaskRow:
        """Wait until a task asks, or has ended."""
        until(lambda: self.row(row).questions or self.row(row).is_ended)
        return self.row(row)

    def performed(self) -> list[str]:
        """Return the versions that have started the step, in order."""
        return (self.folder / "begun").read_text().split()


@pytest.fixture
def deployed(engine: Node, tmp_path: Path) -> Iterator[Deployment]:
    one = Deployment(engine, tmp_path)
    yield one
    one.tasks.close()


def test_a_new_version_at_a_new_address(deployed: Deployment) -> None:
    """Running turns end where they began; all else continues on the new version."""
    old, new = deployed.worker("old"), deployed.worker("new")
    with working(old):
        deployed.begin()
        with working(new):
            deployed.release()
            assert deployed.ends(deployed.running) == "old new Ann"
            assert deployed.ends(deployed.waiting) == "new new Ann"
            assert deployed.performed() == ["old", "new"]


def test_a_new_version_at_the_same_address(deployed: Deployment) -> None:
    """A worker that is stopped politely gives its turns back after its grace."""
    old, new = deployed.worker("old"), deployed.worker("new")
    new.port = old.port
    with working(old):
        deployed.begin()
        old.stop()
        with working(new):
            deployed.release()
            assert deployed.ends(deployed.running) == "new new Ann"
            assert deployed.ends(deployed.waiting) == "new new Ann"
            assert deployed.performed() == ["old", "new", "new"]


def test_an_edit_that_does_not_fit_parks(deployed: Deployment) -> None:
    """An operator has the tasks tried again after a roll-back, and they lose nothing."""
    old = deployed.worker("old")
    new = deployed.worker("new", first="hurry")
    new.port = old.port
    both = deployed.waiting, deployed.running
    with working(old):
        deployed.begin()
        old.stop()
        with working(new):
            answer(deployed.tasks, deployed.waiting.id, "yes")
            for row in both:
                until(lambda row=row: deployed.row(row).is_parked)  # type: ignore[misc]  # bound now
        with working(old):
            deployed.release()
            for row in both:
                deployed.tasks.post(row.id, [Mail("retry", "retry")])
            assert deployed.ends(deployed.running) == "old old Ann"
            assert deployed.ends(deployed.waiting) == "old old Ann"


def test_the_old_version_is_gone_at_once(deployed: Deployment) -> None:
    """The new worker adopts the turns that the old one has left."""
    old, new = deployed.worker("old"), deployed.worker("new")
    with working(old):
        deployed.begin()
        old.stop(signal.SIGKILL)
        with working(new):
            deployed.release()
            assert deployed.ends(deployed.running) == "new new Ann"
            assert deployed.ends(deployed.waiting) == "new new Ann"
            assert deployed.performed() == ["old", "new", "new"]


def test_a_version_is_rolled_back(deployed: Deployment) -> None:
    """The worker that is registered last runs all turns that begin."""
    old, new = deployed.worker("old"), deployed.worker("new")
    with working(old):
        deployed.begin()
        with working(new):
            old.stop()
            with working(old):
                new.stop()
                deployed.release()
                assert deployed.ends(deployed.running) == "old old Ann"
                assert deployed.ends(deployed.waiting) == "old old Ann"


def test_no_worker_lives_for_a_while(deployed: Deployment) -> None:
    """Tasks are created, read, answered and cancelled, and continue with the next worker."""
    old = deployed.worker("old")
    with working(old):
        deployed.begin()
    third = new_row(3, asks=True)
    deployed.tasks.create(third)
    assert deployed.row(third).status == "working"
    answer(deployed.tasks, deployed.waiting.id, "go")
    assert not deployed.row(deployed.waiting).questions
    deployed.tasks.post(third.id, [Mail("cancel", "cancel")])
    deployed.release()
    with working(old):
        until(lambda: deployed.row(third).status == "cancelled")
        assert deployed.ends(deployed.waiting) == "old old Ann"
        assert deployed.ends(deployed.running) == "old old Ann"
