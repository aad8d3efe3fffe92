"""Interceptors around calls: what each may do, in which order, in every kind of call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Final

import attrs
import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import (
    Call,
    Caller,
    Confirm,
    Elicit,
    Finished,
    Flow,
    InputNeeded,
    Intercepting,
    Now,
    ProtocolError,
    Provided,
    Random,
    SchemaError,
    Server,
    Sleep,
    Step,
    TaskStarted,
    ToolError,
    Uuid,
    step,
)
from effectmcp.drivers import sync
from effectmcp.exchange.commands import Overdue, Peer, Reply, peer_of
from effectmcp.exchange.handle import handle
from effectmcp.server import Interceptor, RequestBegan, StepBegan, StepPerformed
from effectmcp.server.identity import Identity

from ..legacy_client import LegacyClient
from ..wire import KEYS, call, refused, request, result, said, send, text_of
from .test_tasks import Rows

ANN = Peer(principal="ann", address="10.0.0.1")


def serving(*interceptors: Any, **options: Any) -> Server:
    """A server with `greet`, which asks nothing, and `wish`, which asks once."""
    app = Server("shop", keys=KEYS, **options)

    @app.tool(interceptors=interceptors, tags=["loud"])
    def greet(name: str = "you") -> str:
        return f"Hello, {name}!"

    @app.tool(interceptors=interceptors)
    def wish(title: str = "Emma") -> Flow[str]:
        where = yield from Elicit("Where to?", str, key="where")
        return f"{title} to {where}"

    @app.tool(interceptors=interceptors)
    def fail() -> str:
        raise ToolError("sold out")

    @app.prompt(interceptors=interceptors)
    def review(book: str, count: int = 1) -> str:
        return f"Review {book} {count} times"

    @app.resource("shop://books/{title}", interceptors=interceptors)
    def book(title: str) -> str:
        return f"all of {title}"

    @app.resource("shop://news", interceptors=interceptors)
    def news() -> Flow[str]:
        where = yield from Elicit("Where?", str, key="where")
        return f"news of {where}"

    return app


def words(reply: Reply) -> str:
    return text_of(result(reply))


def again(app: Server, reply: Reply, name: str = "wish", **more: Any) -> Reply:
    asked = result(reply)
    assert asked["resultType"] == "input_required"
    answers = said(asked, {"value": "Rome"})
    return call(app, name, answers=answers, state=asked["requestState"], **more)


# ---- what one may do ----------------------------------------------------------------


class TestCalls:
    def test_it_sees_who_calls_what(self) -> None:
        seen: list[Call] = []

        def look(call: Call) -> Intercepting:
            seen.append(call)
            return (yield from call)

        app = serving(look)
        info = {"name": "desk", "version": "2"}
        reply = call(app, "greet", arguments={"name": "Ann"}, peer=ANN, client=info)
        assert words(reply) == "Hello, Ann!"
        assert seen == [
            Call(
                feature=app.tools["greet"],
                kind="tool",
                name="greet",
                tags=frozenset({"loud"}),
                arguments={"name": "Ann"},
                principal="ann",
                party=ANN.party,
                client="desk 2",
                era="modern",
                revision="2026-07-28",
            )
        ]

    def test_it_sees_the_identity_of_the_user(self) -> None:
        seen: list[Call] = []

        def look(call: Call) -> Intercepting:
            seen.append(call)
            return (yield from call)

        app = serving(look)
        ann = Identity(subject="ann", scopes={"a"}, claims={"secret": 1})
        call(app, "greet", arguments={}, peer=peer_of(ann))
        call(app, "greet", arguments={}, peer=ANN)
        assert [one.identity for one in seen] == [ann, None]
        assert "secret" not in repr(seen)

    def test_it_sees_each_round(self) -> None:
        seen: list[Call] = []
        outcomes: list[Any] = []

        def look(call: Call) -> Intercepting:
            seen.append(call)
            outcomes.append((yield from call))
            return outcomes[-1]

        app = serving(look)
        before = time.time()
        assert words(again(app, call(app, "wish"))) == "Emma to Rome"
        first, second = seen
        assert first.flow_id == second.flow_id is not None
        assert [(one.round, one.is_first) for one in seen] == [(1, True), (2, False)]
        asked, finished = outcomes
        assert isinstance(asked, InputNeeded)
        assert [one.effect for one in asked.questions] == [
            Elicit("Where to?", str, key="where")
        ]
        assert before + 3600 <= asked.expires <= time.time() + 3600
        assert finished == Finished(
            {"content": [{"type": "text", "text": "Emma to Rome"}]}
        )

    def test_a_state_lives_no_longer_than_its_flow(self) -> None:
        outcomes: list[Any] = []

        def look(call: Call) -> Intercepting:
            outcomes.append((yield from call))
            return outcomes[-1]

        app = serving(look, state_life=60)
        call(app, "wish")
        assert outcomes[0].expires <= time.time() + 60

    def test_no_forged_state_reaches_it(self) -> None:
        seen: list[Call] = []

        def look(call: Call) -> Intercepting:
            seen.append(call)
            return (yield from call)

        app = serving(look)
        assert refused(call(app, "wish", state="x" * 400)) == (200, -32602)
        assert seen == []

    def test_it_changes_arguments_before_they_are_checked(self) -> None:
        def shout(call: Call) -> Intercepting:
            assert call.arguments is not None
            name = call.arguments.get("name", 5)
            return (yield from call.with_arguments({"name": name}))

        app = serving(shout)
        assert words(call(app, "greet", arguments={"name": "Ann"})) == "Hello, Ann!"
        reply = result(call(app, "greet"))
        assert reply["isError"] is True
        assert text_of(reply).startswith("The arguments do not fit: name: must be")

    def test_a_state_is_bound_to_the_arguments_that_were_sent(self) -> None:
        """The client sends them again, and the interceptor changes them again."""

        def other(call: Call) -> Intercepting:
            return (yield from call.with_arguments({"title": "Dune"}))

        app = serving(other)
        asked = call(app, "wish", arguments={"title": "Persuasion"})
        done = again(app, asked, arguments={"title": "Persuasion"})
        assert words(done) == "Dune to Rome"
        assert refused(again(app, asked, arguments={"title": "Dune"})) == (200, -32602)

    def test_it_changes_the_result(self) -> None:
        def redact(call: Call) -> Intercepting:
            result = yield from call
            if isinstance(result, Finished):
                meta = {"seen": True}
                return result.with_fields({"_meta": meta})
            return result

        app = serving(redact)
        assert result(call(app, "greet"))["_meta"]["seen"] is True
        done = result(again(app, call(app, "wish")))
        assert done["_meta"]["seen"] is True

    @pytest.mark.parametrize("name", ["greet", "wish", "fail"])
    def test_it_answers_in_place_of_a_call(self, name: str) -> None:
        def closed(call: Call) -> Intercepting:
            yield from ()
            return "We are closed."

        app = serving(closed)
        assert words(call(app, name)) == "We are closed."

    def test_its_answer_is_of_the_type_that_the_tool_promises(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = Server("shop")

        def closed(call: Call) -> Intercepting:
            yield from ()
            return "closed"

        @app.tool(interceptors=[closed])
        def count() -> int:
            return 1

        assert result(call(app, "count"))["isError"] is True
        assert "returned str, and promises int" in caplog.text

    def test_it_refuses_for_the_model(self) -> None:
        def never(call: Call) -> Intercepting:
            yield from ()
            raise ToolError("Not today.")

        app = serving(never)
        reply = result(call(app, "greet"))
        assert (reply["isError"], text_of(reply)) == (True, "Not today.")
        got = send(app, "prompts/get", {"name": "review", "arguments": {"book": "x"}})
        assert got.message is not None
        assert got.message["error"] == {"code": -32603, "message": "Not today."}

    def test_it_refuses_for_the_protocol(self) -> None:
        def never(call: Call) -> Intercepting:
            yield from ()
            raise ProtocolError(-32001, "Quota", {"left": 0}, status=429)

        app = serving(never)
        for reply in (
            call(app, "greet"),
            call(app, "wish"),
            send(app, "resources/read", {"uri": "shop://news"}),
        ):
            assert reply.status == 429
            assert reply.message is not None
            assert reply.message["error"]["data"] == {"left": 0}

    def test_it_refuses_a_round_after_it_was_run(self) -> None:
        """The questions and the state are then never sent."""

        def few(call: Call) -> Intercepting:
            result = yield from call
            if isinstance(result, InputNeeded):
                raise ToolError("I may not ask you.")
            return result

        reply = result(call(serving(few), "wish"))
        assert (reply["isError"], text_of(reply)) == (True, "I may not ask you.")

    def test_it_handles_failures(self) -> None:
        heard: list[Exception] = []

        def hear(call: Call) -> Intercepting:
            try:
                return (yield from call)
            except Exception as exc:
                heard.append(exc)
                raise

        app = serving(hear)
        assert words(call(app, "fail")) == "sold out"
        call(app, "greet", arguments={"name": 5})
        assert [type(one).__name__ for one in heard] == ["ToolError", "Misread"]

    def test_it_answers_in_place_of_a_failure(self) -> None:
        def calm(call: Call) -> Intercepting:
            try:
                return (yield from call)
            except ToolError:
                return "Something else?"

        assert words(call(serving(calm), "fail")) == "Something else?"

    def test_it_performs_steps(self) -> None:
        done: list[Any] = []

        @step
        def lookup(name: str, *, pool: str = Provided()) -> str:
            return f"{name} in {pool}"

        def steps(call: Call) -> Intercepting:
            done.append((yield from lookup("ann")))
            done.append((yield from Now()))
            done.append((yield from Uuid()))
            done.append((yield from Random()))
            yield from Sleep(0)
            try:
                yield from Step(int, "x")
            except ValueError as exc:
                done.append(exc)
            return (yield from call)

        app = serving(steps)
        message = request("tools/call", {"name": "greet"})
        app.provided = {"pool": "main"}
        assert words(sync.handle(app, message)) == "Hello, you!"
        assert done[0] == "ann in main"
        assert len(done) == 5

    def test_prompts_and_resources(self) -> None:
        seen: list[tuple[str, str, Any]] = []

        def look(call: Call) -> Intercepting:
            seen.append((call.kind, call.name, call.arguments))
            if call.kind == "prompt":
                return (yield from call.with_arguments({"book": "Dune", "count": "2"}))
            return (yield from call)

        app = serving(look)
        got = result(
            send(app, "prompts/get", {"name": "review", "arguments": {"book": "x"}})
        )
        assert got["messages"][0]["content"]["text"] == "Review Dune 2 times"
        read = result(send(app, "resources/read", {"uri": "shop://books/emma"}))
        assert read["contents"][0]["text"] == "all of emma"
        asked = result(send(app, "resources/read", {"uri": "shop://news"}))
        answers = said(asked, {"value": "Rome"})
        done = send(
            app,
            "resources/read",
            {
                "uri": "shop://news",
                "inputResponses": answers,
                "requestState": asked["requestState"],
            },
        )
        assert result(done)["contents"][0]["text"] == "news of Rome"
        assert seen == [
            ("prompt", "review", {"book": "x"}),
            ("resource", "shop://books/emma", None),
            ("resource", "shop://news", None),
            ("resource", "shop://news", None),
        ]

    def test_arguments_of_a_prompt_that_do_not_fit(self) -> None:
        def wrong(call: Call) -> Intercepting:
            return (yield from call.with_arguments({"book": "x", "count": "many"}))

        app = serving(wrong)
        got = send(app, "prompts/get", {"name": "review", "arguments": {"book": "x"}})
        assert refused(got) == (200, -32602)

    def test_a_time_limit_counts_for_its_steps(self) -> None:
        heard: list[Exception] = []

        def slow(call: Call) -> Intercepting:
            try:
                yield from Sleep(1)
            except Exception as exc:
                heard.append(exc)
                raise
            return (yield from call)

        app = serving(slow, timeout=5)
        exchange = handle(
            app,
            request("tools/call", {"name": "greet"}),
            clock=lambda: 100.0,
            entropy=bytes,
        )
        command: Any = next(exchange)
        assert command.deadline == 105.0
        with pytest.raises(StopIteration) as end:
            exchange.throw(Overdue())
        assert words(end.value.value) == "greet took too long, and was ended."
        assert isinstance(heard[0], Overdue)

    def test_a_client_that_leaves_ends_it(self) -> None:
        ended: list[str] = []

        def look(call: Call) -> Intercepting:
            try:
                return (yield from call)
            finally:
                ended.append("look")

        exchange = handle(
            serving(look),
            request("tools/call", {"name": "greet"}),
            clock=time.time,
            entropy=bytes,
        )
        next(exchange)
        exchange.close()
        assert ended == ["look"]


# ---- what it may not do -------------------------------------------------------------


def twice(call: Call) -> Intercepting:
    yield from call
    return (yield from call)


def nothing(call: Call) -> Intercepting:
    yield from call


def asks(call: Call) -> Intercepting:
    yield from Confirm("Sure?")
    return (yield from call)


def yields_text(call: Call) -> Any:
    yield "text"


def caller(call: Call) -> Intercepting:
    yield from Caller()
    return (yield from call)


def renames(call: Call) -> Intercepting:
    return (yield from attrs.evolve(call, name="fail"))


def no_dict(call: Call) -> Intercepting:
    arguments: Any = ["x"]
    return (yield from call.with_arguments(arguments))


def own_questions(call: Call) -> Intercepting:
    yield from call
    return InputNeeded(questions=(), expires=0.0)


def own_task(call: Call) -> Intercepting:
    yield from ()
    return TaskStarted(task="00")


def no_generator(call: Call) -> Any:
    return partial(twice, call)


#: Faulty interceptors, and the words of the log.
MISUSES: Final[Mapping[Callable[[Call], Any], str]] = {
    twice: "yields its call twice",
    nothing: "returns nothing: end it with `return result`",
    asks: "yields Confirm(): it may yield its call, steps",
    yields_text: "yields str: it may yield its call",
    caller: "yields Caller(): the call has the principal",
    renames: "changes more of its call than the arguments",
    no_dict: "gives the arguments ['x'], and no dict",
    own_questions: "returns a InputNeeded(...) that it has made",
    own_task: "returns a TaskStarted(...) that it has made",
}


@pytest.mark.parametrize("function", MISUSES, ids=lambda one: one.__name__)
def test_misuse(function: Interceptor, caplog: pytest.LogCaptureFixture) -> None:
    reply = result(call(serving(function), "greet"))
    assert reply["isError"] is True
    assert text_of(reply).startswith("Internal error: greet failed.")
    assert f"the interceptor {function.__name__}() (" in caplog.text
    assert f"), around greet, {MISUSES[function]}" in caplog.text


def returns_its_call(call: Call) -> Intercepting:
    yield from ()
    return call


def loses_the_content(call: Call) -> Intercepting:
    result = yield from call
    assert isinstance(result, Finished)
    return attrs.evolve(result, fields={"x": 1})


def sets_the_type(call: Call) -> Intercepting:
    result = yield from call
    assert isinstance(result, Finished)
    return result.with_fields({"resultType": "input_required"})


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (returns_its_call, "returns its call: write `return (yield from call)`"),
        (loses_the_content, "returns a result without a list 'content'"),
        (sets_the_type, "returns a result with 'resultType'"),
    ],
)
def test_results_that_are_invalid(
    function: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert result(call(serving(function), "greet"))["isError"] is True
    assert problem in caplog.text


def test_arguments_cannot_be_changed_in_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def changes(call: Call) -> Intercepting:
        arguments: Any = call.arguments
        arguments["name"] = "Bob"
        return (yield from call)

    reply = call(serving(changes), "greet", arguments={"name": "Ann"})
    assert result(reply)["isError"] is True
    assert "does not support item assignment" in caplog.text


def test_a_feature_that_is_replaced_while_it_is_called() -> None:
    """The call keeps the interceptors that it began with, and the new one gets them."""
    app = Server("shop", keys=KEYS)

    @app.intercept
    def redact(call: Call) -> Intercepting:
        yield from call
        return "[redacted]"

    @app.tool
    def secret() -> str:
        old = app.tools["secret"]
        app.remove(old)
        app.add(attrs.evolve(old))
        return "42"

    for _ in range(2):
        assert words(call(app, "secret")) == "[redacted]"


def test_arguments_for_a_resource(caplog: pytest.LogCaptureFixture) -> None:
    def gives(call: Call) -> Intercepting:
        return (yield from call.with_arguments({}))

    got = send(serving(gives), "resources/read", {"uri": "shop://books/emma"})
    assert refused(got) == (200, -32603)
    assert "gives arguments to a resource" in caplog.text


async def a_coroutine(call: Call) -> None:
    pass


async def an_async_generator(call: Call) -> Any:
    yield call


class Objects:
    def __call__(self, call: Call) -> Intercepting:
        return (yield from call)

    def method(self, call: Call) -> Intercepting:
        return (yield from call)


def two(call: Call, other: Any) -> Intercepting:
    return (yield from call)


def with_default(call: Call, other: str = "x") -> Intercepting:
    return (yield from call)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (len, "len is not a generator function: write `def len\\(call: Call\\)"),
        (a_coroutine, "a_coroutine is not a generator function.*an async @step"),
        (an_async_generator, "is not a generator function.*an async @step"),
        (no_generator, "is not a generator function"),
        (two, "two takes one argument, the call"),
        ("tool", "'tool' is not a function; write kind='tool' or tag='tool'"),
    ],
    ids=lambda one: getattr(one, "__name__", "")[:20] if callable(one) else "",
)
def test_functions_that_are_refused(function: Any, problem: str) -> None:
    app = Server("shop")
    with pytest.raises(SchemaError, match=problem):
        app.intercept(function)
    with pytest.raises(SchemaError, match=problem):
        app.tool(name="x", interceptors=[function])(lambda: "x")


@pytest.mark.parametrize("given", [twice, "twice"])
def test_interceptors_are_a_list(given: Any) -> None:
    app = Server("shop")
    with pytest.raises(SchemaError, match="give a list of interceptors"):
        app.tool(name="x", interceptors=given)(lambda: "x")


def test_other_callables() -> None:
    app = serving(
        Objects(),
        Objects().method,
        partial(two, other=1),
        partial(Objects()),
        with_default,
    )
    assert words(call(app, "greet")) == "Hello, you!"


def test_unknown_kinds() -> None:
    app = Server("shop")
    kind: Any = "tools"
    with pytest.raises(SchemaError, match="give one of tool, prompt, resource"):
        app.intercept(kind=kind)
    with pytest.raises(SchemaError, match="kind or tag, not both"):
        app.intercept(kind="tool", tag="x")
    with pytest.raises(SchemaError, match="tags='loud': give a list"):
        app.tool(name="x", tags="loud")(lambda: "x")
    visible: Any = "x"
    with pytest.raises(SchemaError, match="'x' is not a plain function of the viewer"):
        app.tool(name="x", visible=visible)(lambda: "x")


# ---- order --------------------------------------------------------------------------


@frozen
class Way:
    """The behaviour of an interceptor, for the oracle.

    Attributes:
        before: Whether it passes the call, answers, or refuses.
        after: Whether it returns the result, changes it, or refuses.
        failed: Whether it raises a failure, or answers.
    """

    before: str = "pass"
    after: str = "pass"
    failed: str = "raise"


#: Everything that an interceptor may do, by name.
WAYS: Final[Mapping[str, Way]] = {
    "looks": Way(),
    "answers": Way(before="answer"),
    "refuses": Way(before="refuse"),
    "changes": Way(after="change"),
    "refuses later": Way(after="refuse"),
    "calms": Way(failed="answer"),
    "changes and calms": Way(after="change", failed="answer"),
}

#: How interceptors are registered, the outermost first.
SCOPES: Final = ("all", "kind", "tag", "feature")

#: The handlers that are called: each with its outcome.
HANDLERS: Final[Mapping[str, str]] = {"greet": "result", "fail": "failure"}


def made(number: int, way: Way, trace: list[str]) -> Interceptor:
    def interceptor(call: Call) -> Intercepting:
        trace.append(f"{number} in")
        if way.before == "refuse":
            raise ToolError(f"refused by {number}")
        if way.before == "answer":
            return f"answer of {number}"
        try:
            result = yield from call
        except ToolError as exc:
            trace.append(f"{number} failed: {exc}")
            if way.failed == "answer":
                return f"answer of {number}"
            raise
        assert isinstance(result, Finished)
        text = result.fields["content"][0]["text"]
        trace.append(f"{number} out: {text}")
        if way.after == "refuse":
            raise ToolError(f"refused by {number}")
        return f"{text} {number}" if way.after == "change" else result

    return interceptor


def expected(ways: list[tuple[int, Way]], handler: str) -> tuple[list[str], str, bool]:
    """The oracle: the trace, the text of the result, and whether it is an error."""
    trace: list[str] = []
    entered: list[tuple[int, Way]] = []
    text, is_error = ("Hello, you!", False)
    if HANDLERS[handler] == "failure":
        text, is_error = "sold out", True
    for number, way in ways:
        trace.append(f"{number} in")
        if way.before == "refuse":
            text, is_error = f"refused by {number}", True
            break
        if way.before == "answer":
            text, is_error = f"answer of {number}", False
            break
        entered.append((number, way))
    for number, way in reversed(entered):
        if is_error:
            trace.append(f"{number} failed: {text}")
            if way.failed == "answer":
                text, is_error = f"answer of {number}", False
        else:
            trace.append(f"{number} out: {text}")
            if way.after == "change":
                text = f"{text} {number}"
            elif way.after == "refuse":
                text, is_error = f"refused by {number}", True
    return trace, text, is_error


@given(
    st.lists(
        st.tuples(st.sampled_from(SCOPES), st.sampled_from(list(WAYS))), max_size=6
    ),
    st.sampled_from(list(HANDLERS)),
    st.booleans(),
)
@example([("feature", "changes"), ("all", "changes")], "greet", False)
@example([("all", "calms"), ("tag", "refuses")], "fail", True)
def test_order_refusal_replacement_and_failure(
    drawn: list[tuple[str, str]], handler: str, is_early: bool
) -> None:
    """Interceptors may be registered before or after the features that they are for."""
    trace: list[str] = []
    app = Server("shop")
    numbered = [(number, scope, WAYS[way]) for number, (scope, way) in enumerate(drawn)]

    def intercept() -> None:
        for number, scope, way in numbered:
            function = made(number, way, trace)
            match scope:
                case "all":
                    app.intercept(function)
                case "kind":
                    app.intercept(kind="tool")(function)
                    app.intercept(kind="prompt")(made(99, way, trace))
                case "tag":
                    app.intercept(tag="loud")(function)
                    app.intercept(tag="quiet")(made(99, way, trace))
                case _:
                    pass

    own = [
        made(number, way, trace)
        for number, scope, way in numbered
        if scope == "feature"
    ]
    if is_early:
        intercept()

    @app.tool(tags=["loud"], interceptors=own)
    def greet() -> str:
        return "Hello, you!"

    @app.tool(tags=["loud"], interceptors=own)
    def fail() -> str:
        raise ToolError("sold out")

    @app.tool
    def other() -> str:
        return "other"

    if not is_early:
        intercept()
    ordered = sorted(numbered, key=lambda one: SCOPES.index(one[1]))
    wanted = expected([(number, way) for number, _, way in ordered], handler)
    reply = result(call(app, handler))
    assert (trace, text_of(reply), reply.get("isError", False)) == wanted
    assert (app.tools["other"] in app.around) == any(
        scope in ("all", "kind") for scope, _ in drawn
    )


def test_features_come_and_go() -> None:
    app = serving()
    seen: list[str] = []

    @app.intercept
    def look(call: Call) -> Intercepting:
        seen.append(call.name)
        return (yield from call)

    greet = app.tools["greet"]
    app.remove(greet)
    assert greet in app.around  # for the calls that have it
    app.add(greet)
    call(app, "greet")
    assert seen == ["greet"]


def test_calls_without_interceptors() -> None:
    assert not serving().has_around
    assert serving().is_filtered is False


# ---- counting rounds ----------------------------------------------------------------


class TestOpenFlows:
    """An interceptor counts the calls that wait for answers, and refuses some."""

    def limited(self, most: int) -> tuple[Server, dict[str, int]]:
        waiting: dict[str, int] = {}

        def count(call: Call) -> Intercepting:
            assert call.flow_id is not None
            if not call.is_first:
                waiting[call.flow_id] -= 1
            result = yield from call
            if isinstance(result, InputNeeded):
                if sum(waiting.values()) >= most:
                    raise ProtocolError(-32000, "Too many calls wait for answers")
                waiting[call.flow_id] = waiting.get(call.flow_id, 0) + 1
            return result

        app = Server("shop", keys=KEYS)

        @app.tool(interceptors=[count])
        def wish(rounds: int = 1) -> Flow[str]:
            for number in range(rounds):
                yield from Elicit(f"Number {number}?", str)
            return "done"

        return app, waiting

    def test_interim_results_are_counted_for_each_flow(self) -> None:
        app, waiting = self.limited(9)
        arguments = {"rounds": 2}
        first = call(app, "wish", arguments=arguments)
        assert list(waiting.values()) == [1]
        second = again(app, first, arguments=arguments)
        assert list(waiting.values()) == [1]
        call(app, "wish")
        assert list(waiting.values()) == [1, 1]
        assert words(again(app, second, arguments=arguments)) == "done"
        assert list(waiting.values()) == [0, 1]

    def test_an_interim_result_is_replaced_by_an_error(self) -> None:
        """The state that the round had sealed is never sent."""
        app, waiting = self.limited(2)
        first, _ = call(app, "wish"), call(app, "wish")
        reply = call(app, "wish")
        assert reply.message is not None
        assert reply.message["error"] == {
            "code": -32000,
            "message": "Too many calls wait for answers",
        }
        assert words(again(app, first)) == "done"
        assert result(call(app, "wish"))["resultType"] == "input_required"
        assert sum(waiting.values()) == 2


# ---- wrapped functions --------------------------------------------------------------


def _wrapped(instead: Callable[[Call], Any]) -> Any:
    @wraps(twice)
    def wrapper(call: Call) -> Any:
        return instead(call)

    return wrapper


def test_wrapper_that_returns_no_generator(caplog: pytest.LogCaptureFixture) -> None:
    reply = result(call(serving(_wrapped(lambda one: "closed")), "greet"))
    assert reply["isError"] is True
    assert "around greet, returned no generator" in caplog.text


def test_wrapper_that_raises() -> None:
    def refuse(one: Call) -> None:
        raise ToolError("We are closed.")

    assert words(call(serving(_wrapped(refuse)), "greet")) == "We are closed."


def test_result_that_says_that_it_failed() -> None:
    assert Finished({"content": [], "isError": True}).is_error
    assert not Finished({"content": []}).is_error


# ---- events -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "has_flow"), [("greet", False), ("wish", True)])
def test_events_of_the_steps_of_interceptors(name: str, has_flow: bool) -> None:
    seen: list[Any] = []

    def steps(call: Call) -> Intercepting:
        yield from Now()
        yield from Step(len, "abc")
        try:
            yield from Step(int, "x")
        except ValueError:
            pass
        return (yield from call)

    call(serving(steps, observers=[seen.append]), name)
    began = [one for one in seen if isinstance(one, StepBegan)]
    performed = [one for one in seen if isinstance(one, StepPerformed)]
    assert [one.name for one in began] == ["builtins:len", "builtins:int"]
    assert [one.key for one in began] == [one.key for one in performed]
    assert [type(one.error) for one in performed] == [type(None), ValueError]
    (number,) = {one.number for one in seen if isinstance(one, RequestBegan)}
    for one in (*began, *performed):
        event: Any = one
        assert (event.number, event.task, bool(event.flow_id)) == (
            number,
            None,
            has_flow,
        )


# ---- tasks of older revisions -------------------------------------------------------


def test_an_answer_in_place_of_a_task_that_was_asked_for() -> None:
    """A client of 2025-11-25 that asks for a task reads a task, or an error."""

    def closed(call: Call) -> Intercepting:
        yield from ()
        return "We are closed."

    app = serving(tasks=Rows())

    @app.tool(task="required", interceptors=[closed])
    def brew() -> Flow[str]:
        return (yield from Elicit("How strong?", str))

    client = LegacyClient(app)
    reply = client.send("tools/call", {"name": "brew", "task": {}})
    assert reply.message is not None
    assert reply.message["error"]["message"] == (
        "brew was answered at once, and did not become a task"
    )
    plain = client.send("tools/call", {"name": "greet"})
    assert words(plain) == "Hello, you!"
