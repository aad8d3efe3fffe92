"""Check that a driver or a transport keeps its contract.

    check_driver(my_driver.handle)
    check_transport(lambda message: my_transport.ask(message))

For authors of drivers and transports. Each check is a server and a conversation, and
its name is in the error when it fails. effectmcp's own drivers and transports pass the
same checks.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from ..canonical import JSON
from ..effects.base import Flow
from ..effects.control import Detach, Gather
from ..effects.local import (
    Caller,
    Log,
    Now,
    Progress,
    Random,
    Sleep,
    Uuid,
)
from ..effects.questions import Elicit
from ..effects.steps import Provided, step
from ..errors import StepFailed, ToolError
from ..exchange.commands import Reply
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL
from ..protocol.revisions import PROTOCOL_VERSION, VERSIONS
from ..server.app import Server
from ..state.keys import Keys, make_key

__all__ = ["ContractError", "Handling", "Sending", "check_driver", "check_transport"]

Message: TypeAlias = Mapping[str, JSON]

#: Runs a whole exchange inside the server's lifespan: takes a server and a message, and
#: returns the reply. Calls its third argument with each notification.
Handling: TypeAlias = Callable[[Server, Message, Callable[[Message], None]], Reply]

#: Sends a message to a running server, and returns all its messages for it, in order.
Sending: TypeAlias = Callable[[Message], Sequence[Message]]


class ContractError(AssertionError):
    """Raised when a driver or a transport fails a check.

    Attributes:
        check: The name of the check.
    """

    def __init__(self, check: str, problem: str) -> None:
        self.check = check
        super().__init__(f"{check}: {problem}")


def check_driver(handle: Handling) -> None:
    """Check a driver.

    Args:
        handle: Makes the driver handle one message, and waits for the end.

    Raises:
        ContractError: If a check fails.
    """
    _run(_DRIVER_CHECKS, _Driven(handle))


def check_transport(serve: Callable[[Server], Sending]) -> None:
    """Check a transport.

    Args:
        serve: Makes the transport serve an app, and returns a function that sends it a
            message.

    Raises:
        ContractError: If a check fails.
    """
    _run(_TRANSPORT_CHECKS, serve)


def _run(checks: Iterable[Callable[[Any], None]], what: Any) -> None:
    for check in checks:
        try:
            check(what)
        except ContractError:
            raise
        except Exception as exc:
            name = check.__name__.strip("_")
            raise ContractError(name, f"{type(exc).__name__}: {exc}") from exc


def _must(check: Callable[..., Any], got: object, wanted: object) -> None:
    if got != wanted:
        name = check.__name__.strip("_")
        raise ContractError(name, f"expected {wanted!r}, got {got!r}")


# ---- messages -----------------------------------------------------------------------

_META: Final[Mapping[str, JSON]] = {
    PROTOCOL_VERSION: VERSIONS[0],
    CLIENT_INFO: {"name": "contract", "version": "1"},
    CLIENT_CAPABILITIES: {"elicitation": {"form": {}}},
    LOG_LEVEL: "debug",
    "progressToken": "contract",
}


def _request(method: str, **params: JSON) -> Message:
    params = {**params, "_meta": dict(_META)}
    return {"jsonrpc": "2.0", "id": "contract-1", "method": method, "params": params}


def _call(name: str, **more: JSON) -> Message:
    return _request("tools/call", name=name, arguments={}, **more)


def _next(result: Mapping[str, Any], content: JSON) -> dict[str, JSON]:
    """Return the parameters of the next round: the same answer to every question."""
    answer = {"action": "accept", "content": content}
    return {
        "requestState": result["requestState"],
        "inputResponses": dict.fromkeys(result["inputRequests"], answer),
    }


def _text(result: Mapping[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


# ---- drivers ------------------------------------------------------------------------


class _Driven:
    """A driver under test, with a server for each tool that it runs."""

    def __init__(self, handle: Handling) -> None:
        self._handle = handle

    def app(self, function: Callable[..., Any], **options: Any) -> Server:
        app = Server("contract", keys=Keys(make_key(bytes(32))))
        app.tool(name="tool", **options)(function)
        return app

    def ask(
        self,
        app: Server,
        hear: Callable[[Message], None] = lambda told: None,
        **more: Any,
    ) -> Mapping[str, Any]:
        reply = self._handle(app, _call("tool", **more), hear)
        message: Any = reply.message
        if "result" not in message:
            raise AssertionError(f"an error: {message}")
        result: Mapping[str, Any] = message["result"]
        return result

    def text(self, function: Callable[..., Any], **options: Any) -> str:
        return _text(self.ask(self.app(function, **options)))


def _plain_and_async_functions_are_called(driven: _Driven) -> None:
    def plain() -> str:
        return "plain"

    async def other() -> str:
        return "async"

    _must(_plain_and_async_functions_are_called, driven.text(plain), "plain")
    _must(_plain_and_async_functions_are_called, driven.text(other), "async")


def _a_flow_goes_on_from_round_to_round(driven: _Driven) -> None:
    performed: list[str] = []

    @step
    def note(what: str) -> str:
        performed.append(what)
        return what.upper()

    def tool() -> Flow[str]:
        first = yield from note("first")
        name = yield from Elicit("Who?", str)
        second = yield from note("second")
        return f"{first} {name} {second}"

    app = driven.app(tool)
    asked = driven.ask(app)
    result = driven.ask(app, **_next(asked, {"value": "Ann"}))
    check = _a_flow_goes_on_from_round_to_round
    _must(check, _text(result), "FIRST Ann SECOND")
    _must(check, performed, ["first", "second"])


def _steps_may_be_async(driven: _Driven) -> None:
    @step
    async def fetch(number: int) -> int:
        return number + 1

    def tool() -> Flow[str]:
        return f"{(yield from fetch(1))}"

    _must(_steps_may_be_async, driven.text(tool), "2")


def _failures_of_steps_reach_the_handler(driven: _Driven) -> None:
    class Odd(Exception):
        pass

    @step
    def fail(how: str) -> None:
        if how == "odd":
            raise Odd("odd")
        if how == "exit":
            raise SystemExit
        raise LookupError(how)

    def tool() -> Flow[str]:
        seen = []
        for how in ("odd", "exit", "lookup"):
            try:
                yield from fail(how)
            except (StepFailed, LookupError, RuntimeError) as exc:
                seen.append(type(exc).__name__)
        return " ".join(seen)

    got = driven.text(tool)
    _must(
        _failures_of_steps_reach_the_handler, got, "StepFailed RuntimeError LookupError"
    )


def _steps_are_tried_again(driven: _Driven) -> None:
    tries: list[int] = []

    @step(retries=2)
    def fail() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    def tool() -> Flow[str]:
        return f"{(yield from fail())}"

    _must(_steps_are_tried_again, driven.text(tool), "3")


def _branches_are_all_performed(driven: _Driven) -> None:
    @step
    def double(number: int) -> int:
        return number * 2

    def tool() -> Flow[str]:
        doubled = yield from Gather.each([double(number) for number in range(5)])
        return " ".join(map(str, doubled))

    _must(_branches_are_all_performed, driven.text(tool), "0 2 4 6 8")


def _clock_and_chance_are_real(driven: _Driven) -> None:
    def tool() -> Flow[str]:
        now = yield from Now()
        one, two = (yield from Uuid()), (yield from Uuid())
        number = yield from Random()
        caller = yield from Caller()
        kinds = isinstance(now, dt.datetime), isinstance(one, uuid.UUID), one != two
        return f"{kinds} {0 <= number < 1} {now.tzinfo is not None} {caller.era}"

    got = driven.text(tool)
    _must(_clock_and_chance_are_real, got, "(True, True, True) True True modern")


def _inline_there_is_no_task(driven: _Driven) -> None:
    def tool() -> Flow[str]:
        is_task = yield from Detach()
        yield from Sleep(0)
        return f"{is_task}"

    _must(_inline_there_is_no_task, driven.text(tool), "False")


def _notifications_come_in_order_and_first(driven: _Driven) -> None:
    @step
    def work() -> None: ...

    def tool() -> Flow[str]:
        yield from Progress(1, total=2)
        yield from work()
        yield from Log("info", "half")
        yield from Progress(2, total=2)
        return "done"

    told: list[Message] = []
    got = _text(driven.ask(driven.app(tool), told.append))
    check = _notifications_come_in_order_and_first
    _must(check, got, "done")
    _must(
        check,
        [one["method"].rpartition("/")[2] for one in told],
        ["progress", "message", "progress"],
    )


_user: ContextVar[str] = ContextVar("user", default="nobody")


def _steps_run_in_a_copy_of_the_context(driven: _Driven) -> None:
    @step
    def change() -> str:
        before = _user.get()
        _user.set("the step")
        return before

    def tool() -> Flow[str]:
        _user.set("the flow")
        before = yield from change()
        return f"{before}, then {_user.get()}"

    got = driven.text(tool)
    check = _steps_run_in_a_copy_of_the_context
    _must(check, got, "the flow, then the flow")
    _must(check, _user.get(), "nobody")


def _the_reply_is_one_however_it_ends(driven: _Driven) -> None:
    def told() -> str:
        raise ToolError("no such book")

    def untold() -> Flow[str]:
        yield from Now()
        raise ValueError("a secret")

    check = _the_reply_is_one_however_it_ends
    _must(check, driven.text(told), "no such book")
    result = driven.ask(driven.app(untold))
    _must(check, result.get("isError"), True)
    _must(check, "secret" in _text(result), False)


def _what_the_lifespan_provides_is_given(driven: _Driven) -> None:
    @step
    def greet(name: str, greeting: str = Provided()) -> str:
        return f"{greeting}, {name}"

    def tool() -> Flow[str]:
        return (yield from greet("Ann"))

    app = driven.app(tool)
    app.lifespan = _provides({"greeting": "Hello"})
    _must(_what_the_lifespan_provides_is_given, _text(driven.ask(app)), "Hello, Ann")


def _provides(provided: Mapping[Any, Any]) -> Any:
    """Return a lifespan for sync and for async drivers."""

    class Lifespan:
        def __enter__(self) -> Mapping[Any, Any]:
            return provided

        def __exit__(self, *exc: object) -> None: ...

        async def __aenter__(self) -> Mapping[Any, Any]:
            return provided

        async def __aexit__(self, *exc: object) -> None: ...

    return lambda app: Lifespan()


_DRIVER_CHECKS: Final = (
    _plain_and_async_functions_are_called,
    _a_flow_goes_on_from_round_to_round,
    _steps_may_be_async,
    _failures_of_steps_reach_the_handler,
    _steps_are_tried_again,
    _branches_are_all_performed,
    _clock_and_chance_are_real,
    _inline_there_is_no_task,
    _notifications_come_in_order_and_first,
    _steps_run_in_a_copy_of_the_context,
    _what_the_lifespan_provides_is_given,
    _the_reply_is_one_however_it_ends,
)


# ---- transports ---------------------------------------------------------------------

Serving: TypeAlias = Callable[[Server], Sending]


def _only(check: Callable[..., Any], messages: Sequence[Message]) -> Mapping[str, Any]:
    """Return the response: the last message, and the only one with an id."""
    if not messages:
        raise ContractError(check.__name__.strip("_"), "nothing came back")
    response = messages[-1]
    _must(check, response.get("id"), "contract-1")
    _must(check, [one for one in messages[:-1] if "id" in one], [])
    return response


def _shop() -> Server:
    app = Server("contract", version="1", keys=Keys(make_key(bytes(32))))

    @app.tool
    def order() -> Flow[str]:
        """Order a book."""
        yield from Progress(1, message="begun")
        name = yield from Elicit("Für wen? 本", str)
        yield from Log("info", {"name": name})
        return f"for {name}"

    @app.tool
    def large() -> str:
        """Give much."""
        return "x" * 300_000

    return app


def _discovery(serve: Serving) -> None:
    response = _only(_discovery, serve(_shop())(_request("server/discover")))
    _must(_discovery, "tools" in response["result"]["capabilities"], True)


def _lists(serve: Serving) -> None:
    response = _only(_lists, serve(_shop())(_request("tools/list")))
    names = [one["name"] for one in response["result"]["tools"]]
    _must(_lists, sorted(names), ["large", "order"])


def _rounds(serve: Serving) -> None:
    send = serve(_shop())
    first = send(_call("order"))
    asked = _only(_rounds, first)["result"]
    _must(_rounds, asked["resultType"], "input_required")
    (question,) = asked["inputRequests"].values()
    _must(_rounds, question["params"]["message"], "Für wen? 本")
    _must(_rounds, [one["method"] for one in first[:-1]], ["notifications/progress"])
    second = send(_call("order", **_next(asked, {"value": "Ann\n本\u2028"})))
    _must(_rounds, _text(_only(_rounds, second)["result"]), "for Ann\n本\u2028")
    _must(_rounds, [one["method"] for one in second[:-1]], ["notifications/message"])


def _large_messages(serve: Serving) -> None:
    response = _only(_large_messages, serve(_shop())(_call("large")))
    _must(_large_messages, len(_text(response["result"])), 300_000)


def _errors(serve: Serving) -> None:
    send = serve(_shop())
    unknown = _only(_errors, send(_request("books/burn")))
    _must(_errors, unknown["error"]["code"], -32601)
    forged = _only(_errors, send(_call("order", requestState="forged")))
    _must(_errors, forged["error"]["code"], -32602)


def _notifications_are_not_answered(serve: Serving) -> None:
    send = serve(_shop())
    note = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "nothing", "_meta": dict(_META)},
    }
    _must(_notifications_are_not_answered, list(send(note)), [])
    # ... and the next request is.
    _only(_notifications_are_not_answered, send(_request("server/discover")))


_TRANSPORT_CHECKS: Final = (
    _discovery,
    _lists,
    _rounds,
    _large_messages,
    _errors,
    _notifications_are_not_answered,
)
