"""Check that a `TaskHost` keeps its contract.

    check_tasks(MyBench())

For authors of hosts. A *bench* makes hosts as the processes of one deployment would, has
their turns run, and makes their storage fail. Each check is a server and a conversation
over the messages of a client, and its name is in the error when it fails. A bench lists
in `lacks` what its host cannot have: then the check is that the host refuses it.
effectmcp's own hosts pass the same checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from ..canonical import JSON
from ..drivers import sync
from ..effects.base import Flow
from ..effects.control import Detach, Gather, Within
from ..effects.local import IdempotencyKey, Sleep, Status
from ..effects.questions import Confirm, Elicit
from ..effects.steps import step
from ..errors import ProtocolError, UsageError
from ..exchange.commands import peer_of
from ..exchange.task_rows import Mail, TaskHost
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, TASKS
from ..protocol.revisions import PROTOCOL_VERSION, VERSIONS
from ..server.app import Server
from ..state.keys import Keys, make_key
from ..tasks.playing import is_cancelled
from .contracts import ContractError
from .loops import runner_of

__all__ = [
    "TASK_CHECKS",
    "Ability",
    "Fault",
    "TaskBench",
    "check_tasks",
]

#: What some hosts cannot have: tasks that outlive their process, several processes at
#: work, and storage that fails.
Ability: TypeAlias = Literal["restart", "workers", "faults"]

#: How storage fails: it does not respond, it is full, or another process has locked it.
Fault: TypeAlias = Literal["away", "full", "locked"]

_Fields: TypeAlias = Mapping[str, Any]

#: Seconds to wait for what must happen: far more than the slowest machine needs.
_PATIENCE: Final = 60.0


class TaskBench(Protocol):
    """Interface of what an author gives: hosts, and the ways to treat them.

    Each check gets a new deployment from `fresh`.
    """

    #: What the host cannot have.
    lacks: frozenset[Ability]

    def fresh(self) -> AbstractContextManager[None]:
        """Return a context manager: one deployment, without tasks, while it is open."""
        ...

    def open(self) -> TaskHost:
        """Return the host as a process that starts has it. `is_worked` must be set."""
        ...

    def close(self, host: TaskHost) -> None:
        """End a host as the end of its process does."""

    def working(self, app: Server) -> AbstractContextManager[None]:
        """Return a context manager: turns of the server's tasks run while it is open."""
        ...

    def failing(self, host: TaskHost, fault: Fault) -> AbstractContextManager[None]:
        """Return a context manager: the storage of the host fails while it is open.

        Hosts must report a failure within a few seconds.
        """
        ...

    def refuse(self, ability: Ability) -> None:
        """Try what the host cannot have.

        Raises:
            UsageError: Always: this is the documented refusal.
        """


def check_tasks(bench: TaskBench, *names: str) -> None:
    """Check a host.

    Args:
        bench: Makes hosts, and has their turns run.
        *names: Names of `TASK_CHECKS`; by default all of them.

    Raises:
        ContractError: If a check fails.
    """
    for name in names or TASK_CHECKS:
        try:
            with bench.fresh():
                TASK_CHECKS[name](bench)
        except Exception as exc:
            problem = str(exc) if type(exc) is AssertionError else repr(exc)
            raise ContractError(name, problem) from exc


def _must(got: object, wanted: object) -> None:
    if got != wanted:
        raise AssertionError(f"expected {wanted!r}, got {got!r}")


# ---- a process, and its client ------------------------------------------------------


class _Process:
    """A process that serves a tool, and its client.

    Attributes:
        host: Its host.
        app: Its server, which the turns use, too.
    """

    def __init__(self, bench: TaskBench, tool: Callable[..., Any]) -> None:
        self.host = bench.open()
        self._bench = bench
        self.app = self._server(tool)
        self._front = self._server(tool)
        self._changed = threading.Event()

    def _server(self, tool: Callable[..., Any]) -> Server:
        app = Server("contract", keys=Keys(make_key(bytes(32))), tasks=self.host)
        app.tool(name="tool")(tool)
        return app

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve, and close the host at the end."""
        try:
            end = self.host.watch(lambda id_: self._changed.set())
            with sync.running(self._front):
                yield
            end()
        finally:
            self._bench.close(self.host)

    def working(self) -> AbstractContextManager[None]:
        return self._bench.working(self.app)

    def send(self, method: str, user: str | None = None, **params: JSON) -> _Fields:
        """Send a request; return its result.

        Raises:
            ProtocolError: If the response is an error.
        """
        message = {
            "jsonrpc": "2.0",
            "id": "contract-1",
            "method": method,
            "params": {**params, "_meta": dict(_META)},
        }
        peer = peer_of(user)
        reply: Any = sync.handle(
            self._front, message, peer, run_async=runner_of(None)
        ).message
        if "error" in reply:
            error = reply["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: _Fields = reply["result"]
        return result

    def call(self, user: str | None = None, **more: JSON) -> _Fields:
        return self.send("tools/call", user, name="tool", arguments={}, **more)

    def create(self, user: str | None = None) -> str:
        """Call the tool; return the id of its task."""
        result = self.call(user)
        _must(result["resultType"], "task")
        id_: str = result["taskId"]
        return id_

    def get(self, id_: str, user: str | None = None) -> _Fields:
        return self.send("tasks/get", user, taskId=id_)

    def cancel(self, id_: str) -> None:
        _must_be_empty(self.send("tasks/cancel", taskId=id_))

    def answer(
        self, id_: str, answers: Mapping[str, JSON], user: str | None = None
    ) -> None:
        """Answer questions, by key."""
        found = {
            key: {"action": "accept", "content": {"value": one}}
            for key, one in answers.items()
        }
        _must_be_empty(
            self.send("tasks/update", user, taskId=id_, inputResponses=found)
        )

    def until(
        self, id_: str, is_so: Callable[[_Fields], bool], user: str | None = None
    ) -> _Fields:
        """Wait for a change after which the task is so; return its fields."""
        late = time.monotonic() + _PATIENCE
        while True:
            self._changed.clear()
            fields = self.get(id_, user)
            if is_so(fields):
                return fields
            if not self._changed.wait(max(0.0, late - time.monotonic())):
                raise AssertionError(f"nothing has changed for long: {dict(fields)}")

    def until_asked(self, id_: str, user: str | None = None) -> dict[str, str]:
        """Wait until the task asks; return the key of each question, by its message."""
        return _asked(self.until(id_, lambda one: bool(_asked(one)), user))

    def end(self, id_: str, status: str = "completed", user: str | None = None) -> str:
        """Wait until the task has ended so; return its text."""
        fields = self.until(id_, lambda one: one["status"] in _ENDED, user)
        _must(fields["status"], status)
        result = fields.get("result")
        return "" if result is None else str(result["content"][0]["text"])


@contextmanager
def _process(bench: TaskBench, tool: Callable[..., Any]) -> Iterator[_Process]:
    one = _Process(bench, tool)
    with one.running():
        yield one


@contextmanager
def _at_work(bench: TaskBench, tool: Callable[..., Any]) -> Iterator[_Process]:
    with _process(bench, tool) as one, one.working():
        yield one


_META: Final[Mapping[str, JSON]] = {
    PROTOCOL_VERSION: VERSIONS[0],
    CLIENT_INFO: {"name": "contract", "version": "1"},
    CLIENT_CAPABILITIES: {
        "elicitation": {"form": {}},
        "extensions": {TASKS: {}},
    },
}
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


def _must_be_empty(result: _Fields) -> None:
    _must(set(result) - {"resultType", "_meta"}, set())


def _asked(fields: _Fields) -> dict[str, str]:
    requests: Mapping[str, Any] = fields.get("inputRequests", {})
    return {one["params"]["message"]: key for key, one in requests.items()}


def _errors(*requests: Callable[[], object]) -> list[object]:
    """Return the error of each request, or `None`."""
    found: list[object] = []
    for request in requests:
        try:
            request()
        except ProtocolError as exc:
            found.append((exc.code, exc.message, exc.data))
        else:
            found.append(None)
    return found


def _wait(event: threading.Event) -> None:
    if not event.wait(_PATIENCE):
        raise AssertionError("a step did not begin")


def _name() -> Flow[str]:
    return (yield from Elicit("Name?", str))


def _ask_name() -> Flow[str]:
    yield from Detach(ttl=600)
    return (yield from _name())


# ---- creating -----------------------------------------------------------------------


def _a_task_is_created_once_and_read_at_once(bench: TaskBench) -> None:
    def tool() -> Flow[str]:
        yield from Confirm("Begin?")
        return (yield from _ask_name())

    with _process(bench, tool) as one:  # no turn runs
        asked = one.call()
        more: dict[str, Any] = {
            "requestState": asked["requestState"],
            "inputResponses": dict.fromkeys(
                asked["inputRequests"], {"action": "accept", "content": {}}
            ),
        }
        made = one.call(**more)
        id_ = made["taskId"]
        _must(one.get(id_)["status"], "working")
        _must(one.call(**more)["taskId"], id_)
        row = one.host.read(id_)
        _must(row is None, False)
        assert row is not None
        other = attrs.evolve(row, tool="other", created=row.created + 1)
        _must(one.host.create(other), row)
        _must(one.host.read(id_), row)
        _must(one.host.find([id_[:8]]), [row])
        _must(one.host.find(["none such"]), [])
        _must([found.id for found in one.host.find()], [id_])
        with one.working():
            (key,) = one.until_asked(id_).values()
            one.answer(id_, {key: "Ann"})
            _must(one.end(id_), "Ann")


def _a_fork_with_other_answers_is_another_task(bench: TaskBench) -> None:
    def tool() -> Flow[str]:
        who = yield from Elicit("Who?", str)
        yield from Detach(ttl=600)
        return f"{who} {(yield from _name())}"

    with _at_work(bench, tool) as one:
        asked = one.call()

        def fork(who: str) -> str:
            answer = {"action": "accept", "content": {"value": who}}
            made = one.call(
                requestState=asked["requestState"],
                inputResponses=dict.fromkeys(asked["inputRequests"], answer),
            )
            id_: str = made["taskId"]
            return id_

        ids = {who: fork(who) for who in ("Ann", "Bob")}
        _must(len(set(ids.values())), 2)
        for who, id_ in ids.items():
            (key,) = one.until_asked(id_).values()
            one.answer(id_, {key: f"for {who}"})
        for who, id_ in ids.items():
            _must(one.end(id_), f"{who} for {who}")
            _must(fork(who), id_)


def _changes_are_told_until_nobody_listens(bench: TaskBench) -> None:
    with _at_work(bench, _ask_name) as one:
        told: list[str] = []
        end = one.host.watch(told.append)
        id_ = one.create()
        (key,) = one.until_asked(id_).values()
        _must(set(told), {id_})
        end()
        one.answer(id_, {key: "Ann"})
        one.end(id_)
        other = one.create()
        one.until_asked(other)
        _must(other in told, False)


# ---- answers ------------------------------------------------------------------------


def _answers_may_be_partial_late_and_repeated(bench: TaskBench) -> None:
    def tool() -> Flow[str]:
        yield from Detach(ttl=600)
        both = yield from Gather(Elicit("A?", str), Elicit("B?", str))
        last = yield from Elicit("C?", str)
        return " ".join([*both, last])

    with _at_work(bench, tool) as one:
        id_ = one.create()
        keys = one.until_asked(id_)
        _must(set(keys), {"A?", "B?"})
        one.answer(id_, {keys["B?"]: "b", "unknown": "x"})
        _must(set(_asked(one.get(id_))), {"A?"})
        one.answer(id_, {keys["B?"]: "again"})
        one.answer(id_, {keys["A?"]: "a"})
        later = _asked(one.until(id_, lambda now: "C?" in _asked(now)))
        _must(set(later), {"C?"})
        _must(later["C?"] in keys.values(), False)
        one.answer(id_, {keys["A?"]: "late"})
        one.answer(id_, {later["C?"]: "c"})
        _must(one.end(id_), "a b c")
        one.answer(id_, {later["C?"]: "too late"})
        _must(one.end(id_), "a b c")


def _of_two_messages_with_one_id_the_first_counts(bench: TaskBench) -> None:
    with _process(bench, _ask_name) as one:
        id_ = one.create()
        with one.working():
            (key,) = one.until_asked(id_).values()
            mail = [
                Mail(f"answer:{key}", "answer", key, _accepted(name))
                for name in ("Ann", "Bob")
            ]
            one.host.post(id_, mail)
            _must(one.end(id_), "Ann")
        one.host.post("no such task", mail)
        _must(one.host.read("no such task"), None)


def _accepted(value: str) -> JSON:
    return {"action": "accept", "content": {"value": value}}


def _mail_arrives_during_a_long_step(bench: TaskBench) -> None:
    begun, release = threading.Event(), threading.Event()

    @step
    def long() -> str:
        begun.set()
        release.wait(_PATIENCE)
        return "long"

    def branch() -> Flow[str]:
        name = yield from Elicit("A?", str)
        return f"{name} {(yield from long())}"

    def tool() -> Flow[str]:
        yield from Detach(ttl=600)
        return " ".join((yield from Gather(branch(), Elicit("B?", str))))

    with _at_work(bench, tool) as one:
        try:
            id_ = one.create()
            keys = one.until_asked(id_)
            one.answer(id_, {keys["A?"]: "a"})
            _wait(begun)
            _must(set(_asked(one.get(id_))), {"B?"})
            one.answer(id_, {keys["B?"]: "b"})
            _must(one.get(id_)["status"], "working")
        finally:
            release.set()
        _must(one.end(id_), "a long b")


def _a_question_is_asked_while_a_step_races(bench: TaskBench) -> None:
    release = threading.Event()

    @step
    def long() -> str:
        release.wait(_PATIENCE)
        return "long"

    def tool() -> Flow[str]:
        yield from Detach(ttl=600)
        return str((yield from Gather(Within(300, long()), _name())))

    with _at_work(bench, tool) as one:
        try:
            id_ = one.create()
            (key,) = one.until_asked(id_).values()
            one.answer(id_, {key: "Ann"})
            one.until(id_, lambda now: not now.get("inputRequests"))
        finally:
            release.set()
        _must(one.end(id_), "('long', 'Ann')")


# ---- time, and the end --------------------------------------------------------------


def _a_timer_goes_on_across_a_restart(bench: TaskBench) -> None:
    performed: list[str] = []

    @step
    def note(what: str) -> None:
        performed.append(what)

    def tool() -> Flow[str]:
        yield from Detach(ttl=600)
        yield from note("before")
        yield from Status("sleeps")
        yield from Sleep(0.3)
        yield from note("after")
        return "awake"

    with _at_work(bench, tool) as one:
        id_ = one.create()
        one.until(id_, lambda now: now.get("statusMessage") == "sleeps")
    with _at_work(bench, tool) as other:
        if "restart" in bench.lacks:
            unknown = _errors(lambda: other.get("unknown"), lambda: other.get(id_))
            _must(unknown[1], unknown[0])
            _must_refuse(bench, "restart")
            return
        _must(other.end(id_), "awake")
        _must(performed, ["before", "after"])


def _a_waiting_task_is_cancelled(bench: TaskBench) -> None:
    performed: list[str] = []

    @step
    def clean() -> None:
        performed.append("clean")

    def tool() -> Flow[str]:
        yield from Detach(ttl=600)
        try:
            return (yield from _name())
        finally:
            yield from clean()

    with _at_work(bench, tool) as one:
        id_ = one.create()
        (key,) = one.until_asked(id_).values()
        one.cancel(id_)
        one.end(id_, "cancelled")
        _must(performed, ["clean"])
        one.cancel(id_)
        one.answer(id_, {key: "too late"})
        one.end(id_, "cancelled")


def _a_step_is_told_that_its_task_is_cancelled(bench: TaskBench) -> None:
    begun = threading.Event()
    told: list[bool] = []

    @step
    def long() -> None:
        begun.set()
        late = time.monotonic() + _PATIENCE
        while not is_cancelled() and time.monotonic() < late:
            time.sleep(0.005)
        told.append(is_cancelled())

    def tool() -> Flow[None]:
        yield from Detach(ttl=600)
        yield from long()
        yield from Sleep(300)

    with _at_work(bench, tool) as one:
        id_ = one.create()
        _wait(begun)
        one.cancel(id_)
        one.end(id_, "cancelled")
        _must(told, [True])


def _a_task_ends_when_its_ttl_lapses(bench: TaskBench) -> None:
    def tool() -> Flow[str]:
        yield from Detach(ttl=0.2)
        return (yield from _name())

    with _at_work(bench, tool) as one:
        id_ = one.create()
        one.end(id_, "failed")
        _must("error" in one.get(id_), True)


# ---- who may see it -----------------------------------------------------------------


def _a_task_of_another_user_is_not_found(bench: TaskBench) -> None:
    with _at_work(bench, _ask_name) as one:
        id_ = one.create("ann")
        anonymous = one.create()

        def requests(id_: str, user: str | None) -> list[object]:
            return _errors(
                lambda: one.get(id_, user),
                lambda: one.send("tasks/cancel", user, taskId=id_),
                lambda: one.send("tasks/update", user, taskId=id_, inputResponses={}),
            )

        unknown = requests("0" * len(id_), "ann")
        _must(None in unknown, False)
        _must(len(set(map(repr, unknown))), 1)
        _must(requests(id_, "bob"), unknown)
        _must(requests(id_, None), unknown)
        _must(requests(anonymous, "bob"), unknown)
        _must(requests("\x00' OR 1 --", "bob"), unknown)
        _must(one.get(id_, "ann")["status"] in _ENDED, False)


def _tasks_of_an_owner_are_listed(bench: TaskBench) -> None:
    with _process(bench, _ask_name) as one:

        def listed(user: str, size: int) -> list[str]:
            found: list[str] = []
            while True:
                after = found[-1] if found else ""
                page = one.host.owned(user, after=after, limit=size)
                _must(len(page) <= size, True)
                _must({row.owner for row in page} <= {user}, True)
                found += [row.id for row in page]
                if len(page) < size:
                    return found

        _must(listed("ann", 3), [])
        # No turn has run yet: a client may list its tasks as soon as it knows one.
        hers = sorted(one.create("ann") for _ in range(4))
        his = one.create("bob")
        one.create()
        for size in (1, 2, 4, 100):
            _must(listed("ann", size), hers)
        _must(listed("bob", 2), [his])
        for stranger in ("eve", "", "an", "ann ", "%", "' OR 1 --"):
            _must(listed(stranger, 2), [])
        with one.working():
            first, second, *_ = hers
            (key,) = one.until_asked(first, "ann").values()
            one.answer(first, {key: "Ann"}, "ann")
            _must(one.end(first, user="ann"), "Ann")
            _must_be_empty(one.send("tasks/cancel", "ann", taskId=second))
            one.end(second, "cancelled", "ann")
            # Ended tasks can be read, so they are listed.
            for size in (1, 3, 100):
                _must(listed("ann", size), hers)
            _must(listed("bob", 100), [his])


# ---- several processes --------------------------------------------------------------


def _each_turn_runs_in_one_of_two_workers(bench: TaskBench) -> None:
    if "workers" in bench.lacks:
        _must_refuse(bench, "workers")
        return
    performed: list[str] = []

    @step
    def note(key: str) -> None:
        performed.append(key)

    def tool() -> Flow[str]:
        yield from Detach(ttl=600)
        key = yield from IdempotencyKey("note")
        yield from note(key)
        name = yield from _name()
        yield from note(key)
        return name

    with ExitStack() as stack:
        both = [stack.enter_context(_at_work(bench, tool)) for _ in range(2)]
        ids = [one.create() for _ in range(6) for one in both]
        # Each process answers for the tasks of both.
        for number, id_ in enumerate(ids):
            one = both[number // 2 % 2]
            (key,) = one.until_asked(id_).values()
            one.answer(id_, {key: str(number)})
        for number, id_ in enumerate(ids):
            _must(both[number % 2].end(id_), str(number))
    _must(len(performed), 2 * len(ids))
    _must(len(set(performed)), len(ids))


# ---- failures -----------------------------------------------------------------------


def _nothing_is_lost(bench: TaskBench, fault: Fault) -> None:
    if "faults" in bench.lacks:
        return  # nothing can fail
    begun, release = threading.Event(), threading.Event()
    keys: list[str] = []

    @step
    def note(key: str) -> str:
        keys.append(key)
        begun.set()
        release.wait(_PATIENCE)
        return "noted"

    def tool(padding: str = "") -> Flow[str]:
        yield from Detach(ttl=600)
        name = yield from _name()
        key = yield from IdempotencyKey("note")
        return f"{name} {(yield from note(key))}"

    with _at_work(bench, tool) as one:

        def large() -> _Fields:
            arguments = {"padding": "x" * 4_000_000}
            return one.send("tools/call", name="tool", arguments=arguments)

        first, second = one.create(), one.create()
        (key,) = one.until_asked(first).values()
        (other,) = one.until_asked(second).values()
        one.answer(second, {other: "Bob"})
        _wait(begun)
        with bench.failing(one.host, fault):
            release.set()  # its outcome cannot be stored, perhaps
            is_answered = _errors(lambda: one.answer(first, {key: "Ann"})) == [None]
            _must(_is_refused(large), True)
        if not is_answered:
            _must(set(_asked(one.get(first))), {"Name?"})
            one.answer(first, {key: "Ann"})
        _must(one.end(first), "Ann noted")
        _must(one.end(second), "Bob noted")
        _must(len(set(keys)), 2)
        third = one.create()
        _must(set(one.until_asked(third)), {"Name?"})


def _a_storage_that_was_away_loses_nothing(bench: TaskBench) -> None:
    _nothing_is_lost(bench, "away")


def _a_full_storage_loses_nothing(bench: TaskBench) -> None:
    _nothing_is_lost(bench, "full")


def _a_locked_storage_loses_nothing(bench: TaskBench) -> None:
    _nothing_is_lost(bench, "locked")


def _is_refused(call: Callable[[], _Fields]) -> bool:
    results: list[_Fields] = []
    errors = _errors(lambda: results.append(call()))
    return errors != [None] or bool(results[0].get("isError"))


def _must_refuse(bench: TaskBench, ability: Ability) -> None:
    try:
        bench.refuse(ability)
    except UsageError:
        return
    raise AssertionError(f"{ability!r} is lacking, and not refused")


#: The checks, by name.
TASK_CHECKS: Final[Mapping[str, Callable[[TaskBench], None]]] = {
    check.__name__[1:]: check
    for check in (
        _a_task_is_created_once_and_read_at_once,
        _a_fork_with_other_answers_is_another_task,
        _changes_are_told_until_nobody_listens,
        _answers_may_be_partial_late_and_repeated,
        _of_two_messages_with_one_id_the_first_counts,
        _mail_arrives_during_a_long_step,
        _a_question_is_asked_while_a_step_races,
        _a_timer_goes_on_across_a_restart,
        _a_waiting_task_is_cancelled,
        _a_step_is_told_that_its_task_is_cancelled,
        _a_task_ends_when_its_ttl_lapses,
        _a_task_of_another_user_is_not_found,
        _tasks_of_an_owner_are_listed,
        _each_turn_runs_in_one_of_two_workers,
        _a_storage_that_was_away_loses_nothing,
        _a_full_storage_loses_nothing,
        _a_locked_storage_loses_nothing,
    )
}
