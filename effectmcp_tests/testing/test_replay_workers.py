from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings

from effectmcp import Confirm, Elicit, Flow, Message, Server, step
from effectmcp.engine import Journal
from effectmcp.testing import Transcript, conversation
from effectmcp.testing.chance import FLOW_ID
from effectmcp.testing.dry_replay import Arrival, ArrivalElsewhere, WorkerError, arrive
from effectmcp.testing.replay_workers import ReplayWorkers
from effectmcp.testing.subjects import Origin, Subject, subject_of, subjects_of

from .test_conversations import HEALTHY, Obliging, begins_again, had, order, party

SEEDS: Final = ["PYTHONHASHSEED=1", "PYTHONHASHSEED=2", "PYTHONHASHSEED=3"]


@step
def pay(amount: int) -> str:
    raise OSError("no test should get here")


def walks_over_a_set() -> Flow[str]:
    for name in {"bread", "cheese", "grapes", "olives", "salad"}:
        yield from Elicit(f"How much {name}?", str)
    return "."


def tells_the_time() -> Flow[str]:
    now = time.time()
    at = time.time_ns()
    yield from Confirm(f"Is it {int(now)}, {at // 10**9}?")
    return "."


def tells_the_time_zone() -> Flow[str]:
    moment = dt.datetime.fromtimestamp(0)  # noqa: DTZ006
    yield from Confirm(f"Is it {moment:%H:%M}?")
    return "."


def tells_the_environment() -> Flow[str]:
    yield from Confirm(f"Is it {os.environ.get('EFFECTMCP_LATER')}?")
    return "."


def plain(title: str) -> str:
    return title


def prints() -> Flow[str]:
    print("a line of its own")
    print('["asks", [], [], null, []]', file=sys.stdout, flush=True)
    os.write(1, b"and another\n")
    yield from Confirm("Did you see it?")
    return "."


def needs_the_parent() -> Flow[str]:
    """In another process it ends that process."""
    yield from Confirm("Sure?")
    if "-m" in sys.orig_argv and "effectmcp.testing.replay_workers" in sys.orig_argv:
        os._exit(7)
    return "."


app = Server("workers", version="1.0")
app.tool(name="other.name")(order)


@app.prompt
def prompt(title: str) -> Flow[Message]:
    return Message(f"{title} {(yield from Elicit('Who?', str))}")


@app.resource("shop://books/{title}")
def book(title: str) -> Flow[str]:
    return f"{title} {(yield from Elicit('Who?', str))}"


@pytest.fixture(scope="module")
def workers() -> Iterator[ReplayWorkers]:
    with ReplayWorkers() as running:
        yield running


@pytest.fixture(scope="module")
def one() -> Iterator[ReplayWorkers]:
    with ReplayWorkers(1) as running:
        yield running


def origin_of(subject: Subject) -> Origin:
    assert subject.origin is not None
    return subject.origin


def elsewhere(
    workers: ReplayWorkers, handler: Callable[..., Any], **arguments: Any
) -> list[list[ArrivalElsewhere]]:
    """Return the arrivals of a conversation's journals."""
    workers.load(origin_of(subject_of(handler)))
    return workers.arrivals(had(handler, **arguments))


def here(handler: Callable[..., Any], transcript: Transcript) -> list[Arrival]:
    return [
        arrive(
            subject_of(handler),
            transcript.arguments,
            journal,
            flow_id=transcript.flow_id,
            lacks=transcript.lacks,
        )
        for journal in transcript.journals
    ]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a module that can be imported; here it is not."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: str) -> Path:
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    return make


ASKS: Final = """
    from effectmcp import Elicit, Flow


    def asks() -> Flow[str]:
        return (yield from Elicit("Who?", str))
"""


# ---- the law ------------------------------------------------------------------------


@pytest.mark.parametrize("handler", HEALTHY)
def test_healthy_handlers_come_to_the_same_everywhere(
    workers: ReplayWorkers, handler: Any
) -> None:
    @given(conversation(handler))
    @settings(max_examples=5)
    def converses(transcript: Transcript) -> None:
        arrivals = here(handler, transcript)
        for mine, theirs in zip(arrivals, workers.arrivals(transcript), strict=True):
            assert [each.arrival for each in theirs] == [mine] * 3

    workers.load(origin_of(subject_of(handler)))
    converses()


# ---- what differs -------------------------------------------------------------------


def test_each_process_differs(workers: ReplayWorkers) -> None:
    (first, *_) = elsewhere(workers, order, title="Dune")
    assert [one.differs.partition(",")[0] for one in first] == SEEDS
    assert not any("EFFECTMCP_LATER" in one.differs for one in first)


def test_hashes_differ(workers: ReplayWorkers) -> None:
    workers.load(origin_of(subject_of(walks_over_a_set)))
    (asked,) = workers.arrivals(beginning(walks_over_a_set))
    assert len({one.arrival.what for one in asked}) > 1
    assert {one.arrival.how for one in asked} == {"asks"}


def beginning(handler: Callable[..., Any]) -> Transcript:
    """Return a conversation that has not started."""
    transcript = had(handler)
    return attrs.evolve(
        transcript, rounds=(attrs.evolve(transcript.rounds[0], journal=Journal()),)
    )


@pytest.mark.parametrize("handler", [tells_the_time, tells_the_time_zone])
def test_clocks_and_time_zones_differ(workers: ReplayWorkers, handler: Any) -> None:
    workers.load(origin_of(subject_of(handler)))
    (asked,) = workers.arrivals(beginning(handler))
    assert len({one.arrival.what for one in asked}) == 3


def test_the_worker_variable_is_not_part_of_the_environment(
    workers: ReplayWorkers,
) -> None:
    workers.load(origin_of(subject_of(tells_the_environment)))
    (asked,) = workers.arrivals(beginning(tells_the_environment))
    assert {one.arrival.what for one in asked} == {("Confirm(message='Is it None?')",)}


def test_a_journal_may_lead_nowhere_elsewhere(workers: ReplayWorkers) -> None:
    """The handler diverges there, with its line; this ends no process."""
    found = elsewhere(workers, walks_over_a_set)
    hows = {one.arrival.how for one in found[0]}
    assert "diverges" in hows or "asks" in hows
    (_, second, *_) = found
    assert "diverges" in {one.arrival.how for one in second}
    assert all(
        one.arrival.where is not None and one.arrival.where.startswith(__file__)
        for one in second
    )


# ---- loading ------------------------------------------------------------------------


def test_tools_prompts_and_templates_of_a_server(one: ReplayWorkers) -> None:
    for subject in subjects_of(app):
        one.load(origin_of(subject))
        (arguments,) = [{"title": "Dune"}]
        transcript = attrs.evolve(had(order, title="Dune"), arguments=arguments)
        begun = attrs.evolve(transcript.rounds[0], journal=Journal())
        ((found,),) = one.arrivals(attrs.evolve(transcript, rounds=(begun,)))
        assert found.arrival.how == "asks", subject.name


def test_a_function_inside_of_a_class(one: ReplayWorkers) -> None:
    one.load(Origin(__name__, __file__, "Shop.sell"))
    ((found,),) = one.arrivals(beginning(Shop.sell))
    assert found.arrival.what == ("Confirm(message='Sell?')",)


class Shop:
    @staticmethod
    def sell() -> Flow[str]:
        yield from Confirm("Sell?")
        return "."


def test_restarted_handlers_are_found(one: ReplayWorkers) -> None:
    found = elsewhere(one, begins_again)
    assert [each.arrival.how for (each,) in found][-1] == "returns"


def test_one_handler_after_the_other(one: ReplayWorkers) -> None:
    """A process keeps one at a time, and the modules for ever."""
    for handler, arguments in ((order, {"title": "a"}), (party, {"count": 2})):
        found = elsewhere(one, handler, **arguments)
        assert [each.arrival.is_there for (each,) in found] == [True] * len(found)


def test_a_conversation_without_journals(one: ReplayWorkers) -> None:
    one.load(origin_of(subject_of(order)))
    nothing = attrs.evolve(had(order, title="Dune"), rounds=())
    assert one.arrivals(nothing) == []


def test_what_the_client_lacks_is_passed_on(one: ReplayWorkers) -> None:
    class Poor(Obliging):
        lacks = frozenset({"Elicit"})

    ((found,),) = elsewhere(one, order, partner=Poor(), title="Dune")
    assert (found.arrival.how, "Unsupported" in found.arrival.what[0]) == (
        "raises",
        True,
    )


@pytest.mark.parametrize(
    ("origin", "problem"),
    [
        (Origin(__name__, None, "no_such_function"), "AttributeError: .*no_such"),
        (Origin("effectmcp.no_such", None, "a"), "ModuleNotFoundError: .*no_such"),
        (Origin("no_such_module", "/no/such/file.py", "a"), "FileNotFoundError"),
        (Origin(__name__, None, "SEEDS"), "SchemaError: "),
        (Origin(__name__, None, "plain"), "UsageError: .*yields no effects"),
        (Origin(__name__, None, "app", "tools", "no.such"), "KeyError: 'no.such'"),
        (Origin(__name__, None, "order", "tools", "a"), "AssertionError"),
    ],
)
def test_what_cannot_be_found_elsewhere(
    one: ReplayWorkers, origin: Origin, problem: str
) -> None:
    """The worker reports the reason, and continues to serve."""
    with pytest.raises(WorkerError, match=f"(?s)^{problem}"):
        one.load(origin)
    assert len(elsewhere(one, order, title="Dune")) == 3


def test_a_module_that_cannot_be_imported(
    one: ReplayWorkers, module: Callable[..., Path]
) -> None:
    module("broken_module", "raise OSError('not today')")
    with pytest.raises(WorkerError, match="OSError: not today"):
        one.load(Origin("broken_module", None, "asks"))


def test_a_module_that_misses_another_one(
    one: ReplayWorkers, module: Callable[..., Path]
) -> None:
    """The module was found, so it is not searched in its file."""
    file = module("missing_module", "import no_such_module_at_all")
    with pytest.raises(WorkerError, match="no_such_module_at_all"):
        one.load(Origin("missing_module", str(file), "asks"))


def test_a_module_that_prints_when_it_is_imported(
    one: ReplayWorkers, module: Callable[..., Path]
) -> None:
    module("printing_module", "print('hello')\n" + textwrap.dedent(ASKS))
    one.load(Origin("printing_module", None, "asks"))


def test_a_script_is_loaded_from_its_file(one: ReplayWorkers, tmp_path: Path) -> None:
    """If its name leads nowhere, or to a module from another file."""
    for name, text in (("a_script", "One?"), ("json", "Two?")):
        file = tmp_path / "scripts" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(ASKS).replace("Who?", text))
        one.load(Origin(name, str(file), "asks"))
        ((found,),) = one.arrivals(beginning(walks_over_a_set))
        assert found.arrival.what == (f"Elicit(message='{text}', form=str)",)


def test_a_module_that_was_never_a_file(one: ReplayWorkers) -> None:
    with pytest.raises(WorkerError, match="made_of_nothing"):
        one.load(Origin("made_of_nothing", None, "asks"))


def test_a_handler_may_print(one: ReplayWorkers) -> None:
    found = elsewhere(one, prints)
    assert [each.arrival.how for (each,) in found] == ["asks", "returns"]


# ---- processes ----------------------------------------------------------------------


def test_a_process_that_ends_in_the_middle() -> None:
    with ReplayWorkers(1) as running:
        running.load(origin_of(subject_of(needs_the_parent)))
        transcript = had(needs_the_parent)
        with pytest.raises(WorkerError, match="PYTHONHASHSEED=1.* ended with 7"):
            running.arrivals(transcript)
        # What is loaded next gets processes of its own.
        assert len(elsewhere(running, order, title="Dune")) == 3


def test_processes_end_with_the_block() -> None:
    with ReplayWorkers(2) as running:
        processes = [each._process for each in running._running]
        assert [each.poll() for each in processes] == [None, None]
    assert None not in [each.poll() for each in processes]
    running.close()  # closing it again does no harm


def test_as_many_workers_run_as_were_requested() -> None:
    with ReplayWorkers(0) as none:
        assert none._running == []
        none.load(origin_of(subject_of(order)))


def test_without_workers_there_are_no_arrivals() -> None:
    """With `check(app, workers=0)`, only this process is used."""
    with ReplayWorkers(0) as none:
        assert none.arrivals(had(order, title="Dune")) == [[], [], []]


# ---- in the other process -----------------------------------------------------------


def served(*messages: Any, later: str = "0") -> list[Any]:
    """The responses of a process to these messages; it ends when its input ends."""
    done = subprocess.run(
        [sys.executable, "-m", "effectmcp.testing.replay_workers"],
        input="".join(json.dumps(each) + "\n" for each in messages).encode(),
        env={**os.environ, "EFFECTMCP_LATER": later},
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_process_speaks_in_lines(tmp_path: Path) -> None:
    journals = [each.dumps().decode() for each in had(order, title="Dune").journals]
    script = tmp_path / "a_script.py"
    script.write_text(textwrap.dedent(ASKS))
    origin = attrs.astuple(origin_of(subject_of(order)))
    served_app = [attrs.astuple(origin_of(each)) for each in subjects_of(app)]
    replies = served(
        [*origin, sys.path],
        [{"title": "Dune"}, FLOW_ID.hex(), [], journals],
        [{"title": "Dune"}, FLOW_ID.hex(), ["Elicit"], [Journal().dumps().decode()]],
        ["no_such_module", None, "a", "", "", sys.path],
        ["effectmcp.no_such", None, "a", "", "", sys.path],
        ["a_script", str(script), "asks", "", "", sys.path],
        [{}, FLOW_ID.hex(), [], [Journal().dumps().decode()]],
        ["colorsys", str(script), "asks", "", "", sys.path],
        *[[*each, sys.path] for each in served_app],
    )
    assert replies[0] is None
    assert [Arrival.from_json(each).how for each in replies[1]] == [
        *("asks", "asks", "returns"),
    ]
    assert [Arrival.from_json(each).how for each in replies[2]] == ["raises"]
    assert isinstance(replies[3], str)
    assert replies[4].startswith("ModuleNotFoundError: ")
    assert replies[5] is None
    assert [Arrival.from_json(each).how for each in replies[6]] == ["asks"]
    assert replies[7:] == [None] * 4


def test_its_clock_is_another() -> None:
    origin = attrs.astuple(origin_of(subject_of(tells_the_time)))
    begun = [{}, FLOW_ID.hex(), [], [Journal().dumps().decode()]]
    _, ((_, (what,), *_),) = served([*origin, sys.path], begun, later="1e6")
    seconds = what.removeprefix("Confirm(message='Is it ").removesuffix("?')")
    first, second = map(int, seconds.split(","))
    assert 0 <= second - first <= 1
    assert 9e5 < first - time.time() < 1.1e6
