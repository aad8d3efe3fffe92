"""One suite over the three drivers; what only loops can do, over the two that have one.

Nothing here waits for time to pass: what must happen at once is shown by two parties
that wait for each other, under a limit that only a failure reaches.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Protocol

import pytest
import trio

from effectmcp import (
    Caller,
    Detach,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Log,
    Now,
    Progress,
    Provided,
    Random,
    Sleep,
    Step,
    StepError,
    StepFailed,
    TimedOut,
    ToolError,
    UsageError,
    Uuid,
    Within,
    step,
)
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import sync as on_sync
from effectmcp.drivers import trio as on_trio
from effectmcp.drivers.local import LONGEST_SLEEP, Mailbox, at_once
from effectmcp.engine import Done
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.exchange.subscriptions import open_subscription
from effectmcp.server import Change, Server

from ..legacy_client import hello
from ..wire import (
    KEYS,
    PREFIX,
    Wire,
    call_params,
    fits,
    fits_reply,
    refused,
    request,
    result,
    said,
    text_of,
)

#: Seconds after which a test has failed.
LIMIT = 10

user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

Send = Callable[[Mapping[str, Any]], None]


class Event(Protocol):
    """The common interface of the events of trio and asyncio."""

    def set(self) -> object: ...
    async def wait(self) -> object: ...


class Driver(Protocol):
    """A driver as these tests use it."""

    name: str

    def handle(self, app: Server, message: Wire, send: Send = ...) -> Reply:
        """A whole exchange, inside of the server's lifespan."""

    def lifespan(self, provided: Any, log: list[str]) -> Any:
        """A lifespan that provides `provided`, and logs its start and end."""


def _drop(message: Mapping[str, Any]) -> None:
    pass


class Sync:
    name = "sync"

    def handle(self, app: Server, message: Wire, send: Send = _drop) -> Reply:
        with on_sync.running(app):
            return on_sync.handle(app, message, send=send, run_async=asyncio.run)

    def lifespan(self, provided: Any, log: list[str]) -> Any:
        @contextmanager
        def lifespan(app: Server) -> Iterator[Any]:
            log.append("open")
            try:
                yield provided
            finally:
                log.append("closed")

        return lifespan


class Looping:
    """The common base of the two drivers with a loop."""

    def lifespan(self, provided: Any, log: list[str]) -> Any:
        @asynccontextmanager
        async def lifespan(app: Server) -> AsyncIterator[Any]:
            log.append("open")
            try:
                yield provided
            finally:
                log.append("closed")

        return lifespan

    def handle(self, app: Server, message: Wire, send: Send = _drop) -> Reply:
        async def asend(message: Mapping[str, Any]) -> None:
            send(message)

        async def main() -> Reply:
            async with self.driver.running(app):
                reply: Reply = await self.driver.handle(app, message, send=asend)
                return reply

        reply: Reply = self.run(main)
        return reply

    driver: Any
    run: Callable[[Callable[[], Awaitable[Any]]], Any]


class Trio(Looping):
    name = "trio"
    driver = on_trio
    sleep_forever = staticmethod(trio.sleep_forever)
    Event = trio.Event

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        async def limited() -> Any:
            with trio.fail_after(LIMIT):
                return await main()

        return trio.run(limited)

    async def beside(
        self, work: Callable[[], Awaitable[None]], then: Callable[[], Awaitable[None]]
    ) -> None:
        """Do both at once, and cancel the first when the second is done."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await then()
            nursery.cancel_scope.cancel()


class Asyncio(Looping):
    name = "asyncio"
    driver = on_asyncio
    Event = asyncio.Event

    @staticmethod
    async def sleep_forever() -> None:
        await asyncio.Event().wait()

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(LIMIT):
                return await main()

        return asyncio.run(limited())

    async def beside(
        self, work: Callable[[], Awaitable[None]], then: Callable[[], Awaitable[None]]
    ) -> None:
        """Do both at once, and cancel the first when the second is done."""
        task = asyncio.ensure_future(work())
        await then()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


DRIVERS: list[Driver] = [Sync(), Trio(), Asyncio()]
LOOPS: list[Any] = [Trio(), Asyncio()]

each = pytest.mark.parametrize("driver", DRIVERS, ids=lambda one: one.name)
each_loop = pytest.mark.parametrize("driver", LOOPS, ids=lambda one: one.name)


def serving(function: Callable[..., Any], **options: Any) -> Server:
    """A server with one tool, `tool`."""
    lifespan = options.pop("lifespan", None)
    app = Server("shop", keys=KEYS, lifespan=lifespan)
    app.tool(name="tool", **options)(function)
    return app


def call(**more: Any) -> Wire:
    names = {"arguments", "answers", "state"} & more.keys()
    params = {name: more.pop(name) for name in names}
    return request("tools/call", call_params("tool", **params), **more)


def value_of(driver: Driver, function: Callable[..., Any], **options: Any) -> Any:
    """The value that a tool without arguments returns, as JSON."""
    reply = driver.handle(serving(function, **options), call())
    fits_reply("tools/call", reply)
    found = result(reply)
    assert "isError" not in found, found
    return found.get("structuredContent", found["content"] and text_of(found))


def failure_of(driver: Driver, function: Callable[..., Any], **options: Any) -> str:
    """The message of a failing tool to the model."""
    reply = driver.handle(serving(function, **options), call())
    fits_reply("tools/call", reply)
    found = result(reply)
    assert found["isError"] is True
    return text_of(found)


OPAQUE = "Internal error: tool failed. The server's log has the reason."
TOO_LONG = "tool took too long, and was ended."


# ---- kinds of handlers --------------------------------------------------------------


@each
def test_kinds_of_tools(driver: Driver) -> None:
    def plain() -> str:
        return "plain"

    async def awaited() -> str:
        return "awaited"

    def flow() -> Flow[str]:
        return (yield from Step("".join, ["fl", "ow"]))

    assert [value_of(driver, one) for one in (plain, awaited, flow)] == [
        *("plain", "awaited", "flow"),
    ]


@each
def test_kinds_of_tools_that_raise(driver: Driver) -> None:
    def plain() -> str:
        raise ToolError("plain")

    async def awaited() -> str:
        raise ToolError("awaited")

    def flow() -> Flow[str]:
        yield from Now()
        raise ToolError("flow")

    assert [failure_of(driver, one) for one in (plain, awaited, flow)] == [
        *("plain", "awaited", "flow"),
    ]


@each
def test_prompts_resources_and_completions(driver: Driver) -> None:
    app = Server("shop")

    @app.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @app.resource("shop://books/{title}")
    def book(title: str) -> Flow[bytes]:
        return (yield from Step(title.upper)).encode()

    @app.completion("greet", "name")
    async def names(text: str) -> list[str]:
        return ["Ann"]

    def handle(method: str, params: Wire) -> Wire:
        reply = driver.handle(app, request(method, params))
        fits_reply(method, reply)
        return result(reply)

    found = handle("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})
    assert found["messages"][0]["content"]["text"] == "Hello, Ann!"
    found = handle("resources/read", {"uri": "shop://books/dune"})
    assert found["contents"] == [{"uri": "shop://books/dune", "blob": "RFVORQ=="}]
    params = {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": ""},
    }
    assert handle("completion/complete", params)["completion"]["values"] == ["Ann"]


@each
def test_refusals_and_notifications(driver: Driver) -> None:
    app = serving(lambda: "x")
    assert refused(driver.handle(app, request("ping"))) == (404, -32601)
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert driver.handle(app, message).status == 202


@each
@pytest.mark.parametrize("other", DRIVERS, ids=lambda one: one.name)
def test_rounds_resume_under_another_driver(driver: Driver, other: Driver) -> None:
    def tool() -> Flow[str]:
        receipt = yield from Step(len, "abc")
        name = yield from Elicit("Who?", str)
        return f"{receipt} {name}"

    app = serving(tool)
    asked = result(driver.handle(app, call()))
    answers = said(asked, {"value": "Ann"})
    reply = other.handle(app, call(answers=answers, state=asked["requestState"]))
    assert text_of(result(reply)) == "3 Ann"


# ---- provided values ----------------------------------------------------------------


class Pool:
    """A value that a lifespan provides."""

    name = "pool"


def use_pool(amount: int, pool: Pool = Provided()) -> str:
    return f"{amount} by {pool.name}"


async def ause_pool(amount: int, *, pool: Pool = Provided()) -> str:
    return f"{amount} by {pool.name}"


@each
@pytest.mark.parametrize("key", ["pool", Pool], ids=str)
@pytest.mark.parametrize("function", [use_pool, ause_pool])
def test_lifespan_provides(
    driver: Driver, key: Any, function: Callable[..., Any]
) -> None:
    log: list[str] = []

    def flow() -> Flow[str]:
        found: str = yield from Step(function, 3)
        return found

    app = serving(flow, lifespan=driver.lifespan({key: Pool()}, log))
    app.tool(name="direct")(function)
    assert text_of(result(driver.handle(app, call()))) == "3 by pool"
    params = {"name": "direct", "arguments": {"amount": 4}}
    reply = driver.handle(app, request("tools/call", params))
    assert text_of(result(reply)) == "4 by pool"
    assert log == ["open", "closed"] * 2
    assert app.provided == {}


@each
def test_lifespan_for_a_host_without_a_loop(driver: Driver) -> None:
    """A server of such a host can be called and checked by other drivers, too."""
    log: list[str] = []
    lifespan = Sync().lifespan({"pool": Pool()}, log)

    def tool(*, pool: Pool = Provided()) -> str:
        return pool.name

    assert value_of(driver, tool, lifespan=lifespan) == "pool"
    assert log == ["open", "closed"]


@each
def test_lifespan_that_provides_no_dict(driver: Driver) -> None:
    log: list[str] = []
    lifespan = driver.lifespan(Pool(), log)
    with pytest.raises(UsageError, match="yields .*; yield a dict"):
        value_of(driver, lambda: "x", lifespan=lifespan)
    assert log == ["open", "closed"]


@each
def test_lifespan_that_is_not_a_context_manager(driver: Driver) -> None:
    async def lifespan(app: Server) -> AsyncIterator[None]:
        yield

    with pytest.raises(UsageError, match="decorate it with @asynccontextmanager"):
        value_of(driver, lambda: "x", lifespan=lifespan)

    def plain(app: Server) -> Iterator[None]:
        yield

    with pytest.raises(UsageError, match="decorate it with @contextmanager"):
        value_of(driver, lambda: "x", lifespan=plain)


@each
def test_lifespan_that_provides_nothing(driver: Driver) -> None:
    log: list[str] = []
    lifespan = driver.lifespan(None, log)
    assert value_of(driver, lambda: "x", lifespan=lifespan) == "x"
    assert log == ["open", "closed"]


@each
def test_missing_provided_values(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """Thrown into the exchange, and no outcome of the step's."""

    def flow() -> Flow[str]:
        try:
            return (yield from Step(use_pool, 3))
        except Exception as exc:
            return f"caught {exc!r}"

    def direct(pool: Pool = Provided()) -> str:
        return "x"

    def several() -> Flow[list[str]]:
        # On trio, side by side, these would come as a group of errors.
        return list((yield from Gather.each(Step(use_pool, n) for n in range(3))))

    with caplog.at_level(logging.ERROR):
        for function in (flow, direct, several):
            assert failure_of(driver, function) == OPAQUE
    assert caplog.text.count("nothing is provided for the parameter 'pool'") == 3


@each_loop
def test_missing_provided_value_beside_a_running_step(driver: Any) -> None:
    """The error does not wait for the other step."""

    async def wait() -> None:
        await driver.sleep_forever()

    def tool() -> Flow[None]:
        yield from Gather(Step(wait), Step(use_pool, 3))

    assert failure_of(driver, tool) == OPAQUE


# ---- steps --------------------------------------------------------------------------


@each
def test_steps_run_where_they_belong(driver: Driver) -> None:
    """Blocking ones in worker threads, async ones on the loop."""
    threads: dict[str, threading.Thread] = {}

    def note(name: str) -> None:
        threads[name] = threading.current_thread()

    async def anote(name: str) -> None:
        note(name)

    def flow() -> Flow[None]:
        note("flow")
        yield from Step(note, "step")
        yield from Step(anote, "async step")

    def plain() -> None:
        note("plain")

    async def awaited() -> None:
        note("async")

    for function in (flow, plain, awaited):
        value_of(driver, function)
    main = threading.main_thread()
    in_main = {name for name, thread in threads.items() if thread is main}
    blocking = {"step", "plain"}
    assert set(threads) == blocking | {"flow", "async", "async step"}
    assert in_main == set(threads) - (set() if driver.name == "sync" else blocking)


@each
def test_draws(driver: Driver) -> None:
    def tool() -> Flow[list[Any]]:
        now, chance, uuid = yield from Gather(Now(), Random(), Uuid())
        return [now.tzinfo is not None, 0 <= chance < 1, len(uuid.hex)]

    assert value_of(driver, tool) == [True, True, 32]


@each
def test_steps_are_tried_again(driver: Driver) -> None:
    calls: list[int] = []

    @step(retries=2)
    def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("busy")
        return len(calls)

    @step(retries=1)
    async def broken() -> int:
        calls.append(1)
        raise OSError("busy")

    def tool() -> Flow[list[int]]:
        first = yield from flaky()
        try:
            yield from broken()
        except OSError:
            return [first, len(calls)]
        return []

    assert value_of(driver, tool) == [3, 5]


class Refusal(Exception):
    """An answer of the domain."""


@each
def test_what_a_step_declares_is_not_tried_again(driver: Driver) -> None:
    """S2b: a declared refusal is an answer, and asking again is a second charge."""
    calls: list[int] = []

    @step(raises=(Refusal,), retries=2)
    async def charge() -> int:
        calls.append(1)
        raise Refusal("expired")

    def tool() -> Flow[int]:
        try:
            return (yield from charge())
        except Refusal:
            return len(calls)

    assert value_of(driver, tool) == 1


@each
def test_step_that_fails(driver: Driver) -> None:
    class CardError(Exception):
        pass

    def pay() -> None:
        raise CardError("expired")

    def tool() -> Flow[str]:
        try:
            yield from Step(pay)
        except StepFailed as exc:
            return f"{exc.type}: {exc.message}"
        return ""

    assert value_of(driver, tool) == "CardError: expired"


@each_loop
def test_step_that_takes_too_long(driver: Any) -> None:
    @step(timeout=0.01)
    async def wait() -> None:
        await driver.sleep_forever()

    @step(timeout=LIMIT)
    async def impatient() -> None:
        raise TimeoutError("its own")

    def tool() -> Flow[list[str]]:
        found = []
        for one in (wait, impatient):
            try:
                yield from one()
            except TimeoutError as exc:
                found.append(str(exc))
        return found

    assert value_of(driver, tool) == ["it took longer than 0.01 seconds", "its own"]


@each_loop
def test_step_that_takes_too_long_is_tried_again(driver: Any) -> None:
    tries: list[int] = []

    @step(timeout=0.2, retries=1)
    async def wait() -> int:
        tries.append(1)
        if len(tries) == 1:
            await driver.sleep_forever()
        return len(tries)

    def tool() -> Flow[str]:
        return str((yield from wait()))

    assert value_of(driver, tool) == "2"


@each_loop
def test_blocking_step_that_takes_too_long_is_tried_again(driver: Any) -> None:
    """The first try still sits in its thread, and in a context of its own."""
    release = threading.Event()
    tries: list[int] = []

    @step(timeout=0.2, retries=1)
    def block() -> str:
        tries.append(1)
        if len(tries) == 1:
            release.wait(LIMIT)
        release.set()
        return user.get()

    def tool() -> Flow[str]:
        return (yield from block())

    assert value_of(driver, tool) == "nobody"
    assert len(tries) == 2


# ---- side by side -------------------------------------------------------------------


@each_loop
def test_blocking_steps_side_by_side(driver: Any) -> None:
    barrier = threading.Barrier(3, timeout=LIMIT)

    def meet(n: int) -> int:
        barrier.wait()
        return n

    def tool() -> Flow[list[int]]:
        return list((yield from Gather.each(Step(meet, n) for n in range(3))))

    assert value_of(driver, tool) == [0, 1, 2]


@each_loop
def test_async_steps_side_by_side(driver: Any) -> None:
    events: list[Event] = []

    async def first() -> str:
        await events[0].wait()
        return "first"

    async def second() -> str:
        events[0].set()
        return "second"

    def tool() -> Flow[list[str]]:
        events.append(driver.Event())
        return list((yield from Gather(Step(first), Step(second))))

    assert value_of(driver, tool) == ["first", "second"]


@each_loop
def test_requests_side_by_side(driver: Any) -> None:
    """A blocking function holds up no other task."""
    barrier = threading.Barrier(2, timeout=LIMIT)
    app = serving(lambda: str(barrier.wait() >= 0))

    async def one() -> None:
        reply = await driver.driver.handle(app, call())
        assert text_of(result(reply)) == "True"

    async def main() -> None:
        done = driver.Event()

        async def first() -> None:
            await one()
            done.set()

        async def second() -> None:
            await one()
            await done.wait()

        await driver.beside(first, second)

    driver.run(main)


@each
def test_steps_in_turn_without_a_loop(driver: Driver) -> None:
    """Each step is performed, whether at once or not."""

    def tool() -> Flow[list[int]]:
        return list((yield from Gather.each(Step(abs, -n) for n in range(5))))

    assert value_of(driver, tool) == [0, 1, 2, 3, 4]


# ---- waiting ------------------------------------------------------------------------


@each
def test_sleep(driver: Driver) -> None:
    def tool() -> Flow[str]:
        yield from Detach()
        yield from Sleep(0.001)
        return "awake"

    assert value_of(driver, tool) == "awake"


@each_loop
def test_within(driver: Any) -> None:
    async def wait() -> None:
        await driver.sleep_forever()

    def failing() -> None:
        raise TimeoutError("its own")

    def tool() -> Flow[list[str]]:
        yield from Detach()
        inside = yield from Within(LIMIT, Step(len, "abc"))
        late = yield from Within(0.001, Step(wait))
        assert isinstance(late, TimedOut)
        try:
            yield from Within(LIMIT, Step(failing))
        except TimeoutError as exc:
            return [str(inside), str(exc)]
        return []

    assert value_of(driver, tool) == ["3", "its own"]


@each_loop
def test_first_of(driver: Any) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await driver.sleep_forever()
        finally:
            ended.append("loser")

    def failing() -> None:
        raise OSError("oh")

    def tool() -> Flow[list[Any]]:
        yield from Detach()
        winner = yield from FirstOf(Step(wait), Step(len, "abc"))
        assert winner == (1, 3)
        match (yield from FirstOf(Sleep(0), Step(wait))):
            case (0, _):
                pass
            case other:
                raise AssertionError(other)
        try:
            yield from FirstOf(Step(wait), Step(failing))
        except OSError as exc:
            return [str(exc), len(ended)]
        return []

    assert value_of(driver, tool) == ["oh", 3]


@each_loop
def test_first_of_what_cannot_be_performed_here(driver: Any) -> None:
    def tool() -> Flow[Any]:
        yield from Detach()
        return (yield from FirstOf(Step(use_pool, 1), Step(use_pool, 2)))

    assert failure_of(driver, tool) == OPAQUE


@each_loop
def test_what_is_not_for_a_driver(driver: Any) -> None:
    """The exchange answers `Caller` itself; a driver that has to perform it refuses."""
    context = contextvars.copy_context()

    async def main() -> None:
        with pytest.raises(StepError, match=r"Caller\(\) cannot be performed here"):
            await driver.driver._value(Server("shop"), Caller(), context)

    driver.run(main)


@pytest.mark.parametrize(
    "effect", [Within(1, Sleep(0)), FirstOf(Sleep(0), Sleep(1))], ids=repr
)
def test_two_things_at_once_without_a_loop(effect: Any) -> None:
    def tool() -> Flow[Any]:
        yield from Detach()
        return (yield from effect)

    assert failure_of(Sync(), tool) == OPAQUE


# ---- what would end a server --------------------------------------------------------

ENDS = [
    SystemExit(2),
    GeneratorExit(),
    StopIteration(5),
    asyncio.CancelledError(),
    BaseExceptionGroup("", [SystemExit(2)]),
]


@each
@pytest.mark.parametrize("error", ENDS, ids=repr)
def test_what_a_function_raises_ends_no_server(
    driver: Driver, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def plain() -> str:
        raise error

    async def awaited() -> str:
        raise error

    def flow() -> Flow[str]:
        yield from Now()
        raise error

    for function in (plain, awaited, flow):
        assert failure_of(driver, function) == OPAQUE
    found = type(error).__name__
    assert caplog.text.count(f"raised {found}") >= 2
    assert found in caplog.text


@each
@pytest.mark.parametrize("error", ENDS, ids=repr)
def test_what_a_step_raises_ends_no_server(
    driver: Driver, error: BaseException
) -> None:
    """The error is a failure of the step, which the handler receives."""

    def plain() -> None:
        raise error

    async def awaited() -> None:
        raise error

    def tool() -> Flow[list[str]]:
        caught = []
        for function in (plain, awaited):
            try:
                yield from Step(function)
            except RuntimeError as exc:
                caught.append(str(exc))
        return caught

    found = value_of(driver, tool)
    assert len(found) == 2
    for words in found:
        assert type(error).__name__ in words


@each
def test_what_a_completion_raises_ends_no_server(driver: Driver) -> None:
    app = Server("shop")
    app.prompt(name="p")(lambda a: "")

    @app.completion("p", "a")
    def failing(text: str) -> list[str]:
        raise SystemExit(2)

    params = {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": ""},
    }
    reply = driver.handle(app, request("completion/complete", params))
    assert refused(reply) == (500, -32603)


def test_interrupt_beside_other_errors_on_trio() -> None:
    """A tool's own nursery groups its exceptions."""

    async def tool() -> None:
        raise BaseExceptionGroup("", [SystemExit(2), KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup) as caught:
        Trio().handle(serving(tool), call())
    assert caught.value.subgroup(KeyboardInterrupt) is not None
    assert caught.value.subgroup(SystemExit) is None


@each_loop
def test_interrupt_of_a_blocking_function_passes(driver: Any) -> None:
    def tool() -> None:
        raise KeyboardInterrupt

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - perhaps in a group
        driver.handle(serving(tool), call())
    assert "KeyboardInterrupt" in repr(caught.value)


@each_loop
def test_function_whose_own_task_was_cancelled(driver: Any) -> None:
    """Awaiting it raises as being cancelled does, but this call was not cancelled."""

    async def tool() -> None:
        if driver.name == "asyncio":
            task = asyncio.ensure_future(driver.sleep_forever())
            task.cancel()
            await task
        raise asyncio.CancelledError

    assert failure_of(driver, tool) == OPAQUE


# ---- what a driver cannot do --------------------------------------------------------


class Odd:
    """A type that a driver hashes to look up the provided value."""

    def __hash__(self) -> int:
        raise OSError("a bug")


@each
def test_any_error_of_a_driver_is_answered(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """No handler receives it: it would be recorded as if it belonged to the flow."""

    def flow() -> Flow[str]:
        try:
            return (yield from Step(direct))
        except Exception as exc:
            return f"caught {exc!r}"

    def direct(pool: Odd = Provided()) -> str:
        return "x"

    direct.__annotations__["pool"] = Odd()
    for function in (flow, direct):
        assert failure_of(driver, function) == OPAQUE
    assert caplog.text.count("OSError: a bug") >= 2


@each
def test_annotation_without_a_hash_provides_by_name(driver: Driver) -> None:
    def tool(pool: Annotated[Pool, {"unhashable": 1}] = Provided()) -> str:
        return pool.name

    lifespan = driver.lifespan({"pool": Pool()}, [])
    assert value_of(driver, tool, lifespan=lifespan) == "pool"
    assert failure_of(driver, tool) == OPAQUE


@each
def test_sleep_that_would_keep_a_client_waiting(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    def tool() -> Flow[str]:
        yield from Detach()
        try:
            yield from Sleep(LONGEST_SLEEP + 1)
        except Exception as exc:
            return f"caught {exc!r}"
        return "awake"

    assert failure_of(driver, tool) == OPAQUE
    assert "inline it is at most 300 seconds" in caplog.text


@each
def test_sleep_until_a_time_that_has_passed(driver: Driver) -> None:
    def tool() -> Flow[str]:
        yield from Detach()
        yield from Sleep(-1)
        return "awake"

    assert value_of(driver, tool) == "awake"


@each_loop
def test_within_a_time_that_has_passed(driver: Any) -> None:
    async def wait() -> None:
        await driver.sleep_forever()

    def tool() -> Flow[str]:
        yield from Detach()
        late = yield from Within(-1, Step(wait))
        return type(late).__name__

    assert value_of(driver, tool) == "TimedOut"


# ---- deadlines ----------------------------------------------------------------------


@each_loop
def test_deadline_of_async_work(driver: Any) -> None:
    async def wait() -> None:
        await driver.sleep_forever()

    def flow() -> Flow[None]:
        yield from Step(wait)

    def several() -> Flow[None]:
        yield from Gather(Step(wait), Step(wait))

    for function in (wait, flow, several):
        assert failure_of(driver, function, timeout=0.01) == TOO_LONG


@each_loop
def test_deadline_of_blocking_work(driver: Any) -> None:
    """The thread cannot be stopped, and who waits for it may."""
    release = threading.Event()

    def block() -> None:
        release.wait(LIMIT)

    app = serving(block, timeout=0.01)

    async def main() -> Reply:
        try:
            reply: Reply = await driver.driver.handle(app, call())
            return reply
        finally:
            release.set()

    assert text_of(result(driver.run(main))) == TOO_LONG


def test_deadline_without_a_loop() -> None:
    """Looked at between one step and the next."""

    def flow() -> Flow[None]:
        yield from Step(len, "abc")

    for function in (flow, lambda: "x"):
        assert failure_of(Sync(), function, timeout=1e-9) == TOO_LONG
        value_of(Sync(), function, timeout=LIMIT)


@each_loop
def test_deadline_of_a_completion(driver: Any) -> None:
    app = Server("shop", timeout=0.01)
    app.prompt(name="p")(lambda a: "")

    @app.completion("p", "a")
    async def wait(text: str) -> list[str]:
        await driver.sleep_forever()
        return []

    params = {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": ""},
    }
    reply = driver.handle(app, request("completion/complete", params))
    assert refused(reply) == (500, -32603)


@each
def test_timeout_error_of_a_function_is_not_the_deadline(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is a bug like any other, and the log has its message."""

    def plain() -> str:
        raise TimeoutError("database")

    async def awaited() -> str:
        raise TimeoutError("database")

    def flow() -> Flow[str]:
        return (yield from Step(plain))

    for function in (plain, awaited, flow):
        assert failure_of(driver, function, timeout=LIMIT) == OPAQUE
    assert caplog.text.count("TimeoutError: database") >= 3


@each
def test_deadline_that_is_kept(driver: Driver) -> None:
    def flow() -> Flow[int]:
        return (yield from Step(len, "abc"))

    assert value_of(driver, flow, timeout=LIMIT) == 3


# ---- clients that are gone ----------------------------------------------------------


class Witness:
    """Lives as long as the generator that holds it."""


@each_loop
def test_cancelled_call_leaves_nothing(driver: Any) -> None:
    """L4: suspended, with no effects performed."""
    log: list[str] = []
    alive: list[Any] = []
    begun: list[Event] = []

    async def wait() -> None:
        begun[0].set()
        try:
            await driver.sleep_forever()
        finally:
            log.append("the step ended")

    def tool() -> Flow[None]:
        witness = Witness()
        alive.append(weakref.ref(witness))
        try:
            yield from Step(wait)
        finally:
            log.append("unwound")
            yield from Step(log.append, "refunded")

    app = serving(tool)

    async def main() -> None:
        begun.append(driver.Event())

        async def work() -> None:
            await driver.driver.handle(app, call())
            raise AssertionError("it ended")

        await driver.beside(work, begun[0].wait)

    driver.run(main)
    gc.collect()
    assert [one() for one in alive] == [None]
    assert log == ["the step ended", "unwound"]


@each
@pytest.mark.parametrize("error", [BrokenPipeError, TimeoutError])
def test_client_that_cannot_be_sent_to(driver: Driver, error: type[Exception]) -> None:
    """An error of the transport is raised unchanged; the flow is suspended."""
    log: list[str] = []

    def tool() -> Flow[None]:
        try:
            yield from Log("info", "hi")
            yield from Step(log.append, "performed")
        finally:
            log.append("unwound")

    def send(message: Mapping[str, Any]) -> None:
        raise error

    with pytest.raises(error):
        driver.handle(serving(tool), call(log_level="info"), send)
    assert log == ["unwound"]
    with pytest.raises(error):
        driver.handle(Server("shop"), LISTEN, send)


# ---- notifications ------------------------------------------------------------------


@each
def test_notifications_go_out_at_once(driver: Driver) -> None:
    heard: list[Any] = []

    def tool() -> Flow[None]:
        yield from Progress(1)
        yield from Log("info", "first")
        yield from Step(heard.append, "step")
        yield from Progress(1)
        yield from Log("debug", "unheard")
        yield from Progress(2)

    def send(message: Mapping[str, Any]) -> None:
        fits("ServerNotification", message)
        heard.append(message["params"])

    app = serving(tool)
    driver.handle(app, call(log_level="info", progressToken=7), send)
    assert heard == [
        {"progressToken": 7, "progress": 1},
        {"level": "info", "data": "first"},
        "step",
        {"progressToken": 7, "progress": 2},
    ]
    heard.clear()
    driver.handle(app, call(), send)
    assert heard == ["step"]


@each
def test_notifications_are_muted_in_a_replay(driver: Driver) -> None:
    """V5: until the first new answer."""
    heard: list[Any] = []

    def tool() -> Flow[str]:
        yield from Log("info", "before")
        name = yield from Elicit("Who?", str)
        yield from Log("info", "after")
        return name

    def send(message: Mapping[str, Any]) -> None:
        heard.append(message["params"]["data"])

    app = serving(tool)
    asked = result(driver.handle(app, call(log_level="info"), send))
    answers = said(asked, {"value": "Ann"})
    message = call(answers=answers, state=asked["requestState"], log_level="info")
    driver.handle(app, message, send)
    assert heard == ["before", "after"]


@each
def test_notifications_without_a_send_function(driver: Driver) -> None:
    """Without `send=` they are dropped."""

    def tool() -> Flow[str]:
        yield from Log("info", "hi")
        return "x"

    app, message = serving(tool), call(log_level="info")
    if isinstance(driver, Sync):
        reply = on_sync.handle(app, message)
    else:
        assert isinstance(driver, Looping)
        looping = driver

        async def main() -> Any:
            return await looping.driver.handle(app, message)

        reply = looping.run(main)
    assert text_of(result(reply)) == "x"


# ---- context variables --------------------------------------------------------------


@each
def test_context_variables(driver: Driver) -> None:
    """B4: steps see their flow's, and change only their own."""

    def read() -> str:
        found = user.get()
        user.set("a step")
        return found

    async def aread() -> str:
        return read()

    def tool() -> Flow[list[str]]:
        user.set("ann")
        found = [(yield from Step(read)), (yield from Step(aread))]
        found += yield from Gather(Step(read), Step(aread))
        return [*found, user.get()]

    token = user.set("somebody")
    try:
        assert value_of(driver, tool) == ["ann"] * 5
        assert value_of(driver, read) == value_of(driver, aread) == "somebody"
    finally:
        user.reset(token)


# ---- subscriptions ------------------------------------------------------------------

LISTEN = request(
    "subscriptions/listen",
    {
        "notifications": {
            "toolsListChanged": True,
            "resourceSubscriptions": ["shop://x"],
        }
    },
    id="s",
)
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
CANCELLED = "notifications/cancelled"


def test_listening_without_a_loop_ends_at_once() -> None:
    heard: list[Any] = []
    reply = Sync().handle(Server("shop"), LISTEN, heard.append)
    assert [one["method"] for one in heard] == [ACKNOWLEDGED, CANCELLED]
    fits_reply("subscriptions/listen", reply)


@each_loop
def test_listening(driver: Any) -> None:
    app = Server("shop")
    heard: list[Any] = []
    replies: list[Reply] = []

    async def main() -> None:
        news, updated, ended = driver.Event(), driver.Event(), driver.Event()

        async def send(message: Any) -> None:
            fits("ServerNotification", message)
            heard.append(message)
            if message["method"] == ACKNOWLEDGED:
                # Between the acknowledgement and the first look: nothing is missed.
                app.prompt(name="p")(lambda: "x")
                app.updated("shop://other")
                app.tool(name="t")(lambda: "x")
            if message["method"] == CHANGED:
                news.set()
            if message["method"] == UPDATED:
                updated.set()

        async def listen() -> None:
            replies.append(await driver.driver.handle(app, LISTEN, send=send))
            ended.set()

        async def change() -> None:
            await news.wait()
            # From another thread, and twice the same.
            for _ in range(2):
                thread = threading.Thread(target=app.updated, args=("shop://x",))
                thread.start()
                thread.join()
            await updated.wait()
            app.changes.publish(Change("end"))
            await ended.wait()

        await driver.beside(listen, change)

    driver.run(main)
    methods = [one["method"] for one in heard]
    assert methods == [ACKNOWLEDGED, CHANGED, UPDATED, CANCELLED]
    for message in heard[:-1]:
        assert message["params"]["_meta"] == {f"{PREFIX}subscriptionId": "s"}
    (reply,) = replies
    fits_reply("subscriptions/listen", reply)
    assert result(reply)["resultType"] == "complete"
    assert app.changes._listeners == {}


@each_loop
def test_listening_wakes_once_for_many_changes(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand changes in a row do not queue a thousand calls on the loop."""
    app = Server("shop")
    taken: list[int] = []
    take = Mailbox.take

    def counted(self: Mailbox) -> Any:
        found = take(self)
        taken.append(len(found))
        return found

    monkeypatch.setattr(Mailbox, "take", counted)

    async def main() -> None:
        acknowledged, heard, rung = driver.Event(), driver.Event(), []

        async def send(message: Any) -> None:
            acknowledged.set()
            if message["method"] == UPDATED:
                heard.set()

        async def listen() -> None:
            await driver.driver.handle(app, LISTEN, send=send)

        async def change() -> None:
            await acknowledged.wait()
            if driver.name == "asyncio":
                loop = asyncio.get_running_loop()
                ring = loop.call_soon_threadsafe

                def counted_ring(*args: Any, **options: Any) -> Any:
                    rung.append(args)
                    return ring(*args, **options)

                monkeypatch.setattr(loop, "call_soon_threadsafe", counted_ring)
            for _ in range(1_000):
                app.updated("shop://x")
            await heard.wait()
            assert len(rung) <= 1

        await driver.beside(listen, change)

    driver.run(main)
    assert sum(taken) == 1


@each_loop
def test_listening_ends_with_its_client(driver: Any) -> None:
    app = Server("shop")

    async def main() -> None:
        heard = driver.Event()

        async def send(message: Any) -> None:
            heard.set()

        async def listen() -> None:
            await driver.driver.handle(app, LISTEN, send=send)

        await driver.beside(listen, heard.wait)

    driver.run(main)
    assert app.changes._listeners == {}


@each_loop
def test_change_after_the_loop_is_closed(driver: Any) -> None:
    """A watcher's thread may outlive it."""
    app = Server("shop")
    kept: list[Any] = []
    original = app.changes.listen

    def listen(listener: Any) -> Any:
        kept.append(listener)
        return original(listener)

    app.changes.listen = listen  # type: ignore[method-assign]

    async def main() -> None:
        heard = driver.Event()

        async def send(message: Any) -> None:
            heard.set()

        async def work() -> None:
            await driver.driver.handle(app, LISTEN, send=send)

        await driver.beside(work, heard.wait)

    driver.run(main)
    (listener,) = kept
    listener(Change("tools"))


def test_mailbox_notes_nothing_twice() -> None:
    woken: list[int] = []
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["shop://x"]}
    subscription = open_subscription("s", {"notifications": wanted})
    mailbox = Mailbox(subscription, lambda: woken.append(1))
    for change in (
        Change("tools"),
        Change("prompts"),
        Change("resource", "shop://x"),
        Change("resource", "shop://y"),
        Change("tools"),
    ):
        mailbox.hear(change)
    assert [one["method"] for one in mailbox.take()] == [CHANGED, UPDATED]
    assert mailbox.take() == []
    assert len(woken) == 3
    assert not mailbox.is_over
    mailbox.hear(Change("end"))
    assert mailbox.is_over


def test_mailbox_under_many_threads() -> None:
    wanted = {"resourceSubscriptions": [f"shop://{n}" for n in range(1_000)]}
    subscription = open_subscription("s", {"notifications": wanted})
    mailbox = Mailbox(subscription, lambda: None)
    taken: list[str] = []

    def publish(start: int) -> None:
        for n in range(start, 1_000, 4):
            mailbox.hear(Change("resource", f"shop://{n}"))

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += [one["params"]["uri"] for one in mailbox.take()]
    taken += [one["params"]["uri"] for one in mailbox.take()]
    assert sorted(taken) == sorted(wanted["resourceSubscriptions"])


# ---- the driver without a loop ------------------------------------------------------


def test_async_function_without_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Clock:
        async def __call__(self) -> str:
            raise AssertionError("nobody runs it")

    async def awaited() -> str:
        raise AssertionError("nobody runs it")

    def flow() -> Flow[str]:
        return (yield from Step(awaited))

    for function in (awaited, Clock(), flow):
        with caplog.at_level(logging.ERROR):
            reply = on_sync.handle(serving(function), call())
        assert text_of(result(reply)) == OPAQUE
    assert caplog.text.count("run_async=asyncio.run") == 3


def test_async_lifespan_without_a_loop() -> None:
    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        yield

    opened = on_sync.running(Server("shop", lifespan=lifespan))
    with pytest.raises(UsageError, match="the lifespan of <Server 'shop'> is async"):
        opened.__enter__()


def test_interrupt_is_the_operators() -> None:
    log: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def tool() -> Flow[None]:
        try:
            yield from Step(interrupted)
        finally:
            log.append("unwound")

    with pytest.raises(KeyboardInterrupt):
        on_sync.handle(serving(tool), call())
    assert log == ["unwound"]


# ---- legacy clients -----------------------------------------------------------------


def initialized(app: Server) -> Peer:
    return Peer(session=on_sync.handle(app, hello()).opened)


def asking() -> Flow[str]:
    first, second = yield from Gather(Elicit("Who?", str), Elicit("Where?", str))
    return f"{first} in {second}"


LIVE = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tool"}}


def reply_to(question: Any, value: str) -> dict[str, Any]:
    result = {"action": "accept", "content": {"value": value}}
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


@each_loop
def test_questions_are_waited_for(driver: Any) -> None:
    """A call waits until the last one is answered, from any thread."""
    app = serving(asking)
    peer = initialized(app)
    questions: list[Any] = []
    replies: list[Reply] = []

    async def main() -> None:
        asked, ended = driver.Event(), driver.Event()

        async def send(message: Any) -> None:
            questions.append(message)
            if len(questions) == 2:
                asked.set()

        async def work() -> None:
            replies.append(await driver.driver.handle(app, LIVE, peer, send=send))
            ended.set()

        async def answer() -> None:
            await asked.wait()
            for question, value in zip(questions, ("Ann", "Rome"), strict=True):
                assert not replies
                thread = threading.Thread(
                    target=on_sync.handle, args=(app, reply_to(question, value), peer)
                )
                thread.start()
                thread.join()
            await ended.wait()

        await driver.beside(work, answer)

    driver.run(main)
    assert text_of(result(replies[0])) == "Ann in Rome"


def test_questions_are_waited_for_without_a_loop() -> None:
    app = serving(asking)
    peer = initialized(app)
    threads: list[threading.Thread] = []

    def send(message: Any) -> None:
        value = "Ann" if "Who" in message["params"]["message"] else "Rome"
        work = (app, reply_to(message, value), peer)
        threads.append(threading.Thread(target=on_sync.handle, args=work))
        threads[-1].start()

    reply = on_sync.handle(app, LIVE, peer, send=send)
    for thread in threads:
        thread.join()
    assert text_of(result(reply)) == "Ann in Rome"


def patient(seconds: float) -> Callable[[], Flow[str]]:
    def wait() -> Flow[str]:
        yield from Detach()
        match (yield from Within(seconds, Elicit("Who?", str))):
            case TimedOut():
                return "nobody"
            case name:
                return str(name)

    return wait


def check_taken_back(reply: Reply, told: list[Any]) -> None:
    assert text_of(result(reply)) == "nobody"
    question, taken_back = told
    assert question["method"] == "elicitation/create"
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"] == {"requestId": question["id"]}


@each_loop
def test_a_question_that_times_out_is_withdrawn(driver: Any) -> None:
    """V3: live, the run keeps the clock."""
    app = serving(patient(0.01))
    peer = initialized(app)
    told: list[Any] = []
    replies: list[Reply] = []

    async def main() -> None:
        async def send(message: Any) -> None:
            told.append(message)

        replies.append(await driver.driver.handle(app, LIVE, peer, send=send))

    driver.run(main)
    check_taken_back(replies[0], told)


def test_a_question_that_times_out_is_withdrawn_without_a_loop() -> None:
    app = serving(patient(0.01))
    told: list[Any] = []
    reply = on_sync.handle(app, LIVE, initialized(app), send=told.append)
    check_taken_back(reply, told)


def test_an_answer_that_comes_in_time_counts() -> None:
    app = serving(patient(LIMIT))
    peer = initialized(app)
    told: list[Any] = []

    def send(message: Any) -> None:
        told.append(message)
        on_sync.handle(app, reply_to(message, "Ann"), peer)

    assert text_of(result(on_sync.handle(app, LIVE, peer, send=send))) == "Ann"
    assert len(told) == 1


@each_loop
def test_a_question_that_cannot_be_sent(driver: Any) -> None:
    app = serving(asking)
    peer = initialized(app)

    async def main() -> None:
        async def send(message: Any) -> None:
            raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            await driver.driver.handle(app, LIVE, peer, send=send)

    driver.run(main)
    assert peer.session is not None
    assert not peer.session.is_busy


@each_loop
def test_news_is_sent_without_a_message_before_it(driver: Any) -> None:
    app = Server("shop")
    peer = initialized(app)
    assert peer.session is not None
    news = peer.session.news
    heard: list[str] = []

    async def main() -> None:
        async def send(message: Any) -> None:
            heard.append(message["method"])
            app.changes.publish(Change("end"))

        original = app.changes.listen

        def listening(listener: Any) -> Any:
            end = original(listener)
            app.changes.publish(Change("tools"))
            return end

        app.changes.listen = listening  # type: ignore[method-assign]
        await driver.driver.listen(app, news, send)

    driver.run(main)
    assert heard == ["notifications/tools/list_changed"]


def test_effects_look_up_the_functions_that_they_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests replace the clock and the like, long after import."""
    monkeypatch.setattr("uuid.uuid4", lambda: uuid.UUID(int=5))
    monkeypatch.setattr("random.random", lambda: 0.5)
    assert at_once(Uuid()) == Done(uuid.UUID(int=5))
    assert at_once(Random()) == Done(0.5)
