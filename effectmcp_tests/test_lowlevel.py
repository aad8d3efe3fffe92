"""Functions that keep their own state, through whole messages and real keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import frozen

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    Flow,
    Given,
    InputRequest,
    InputRequired,
    ListRoots,
    Log,
    Message,
    ProtocolError,
    Provided,
    Root,
    Sample,
    Sampled,
    SchemaError,
    Server,
    ToolError,
)
from effectmcp.drivers.sync import handle, running
from effectmcp.lowlevel import given_parameter, without
from effectmcp.state import Keys, make_key

JSON = Any

KEY = make_key(bytes(range(32)))
CAPABILITIES: JSON = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
}


def server(**options: Any) -> Server:
    return Server("shop", **{"keys": Keys(KEY), **options})


def send(app: Server, method: str, **params: JSON) -> JSON:
    """One request, and its result."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    params = {"_meta": META, **params}
    reply = handle(app, {**message, "params": params}, run_async=asyncio.run)
    assert reply.message is not None
    if "error" in reply.message:
        raise ProtocolError(**reply.message["error"])
    return reply.message["result"]


def accept(content: JSON) -> JSON:
    return {"action": "accept", "content": content}


def value(text: JSON) -> JSON:
    return accept({"value": text})


NO = {"action": "decline"}
CLOSED = {"action": "cancel"}


def play(
    app: Server, method: str, answers: Mapping[str, JSON], **params: JSON
) -> tuple[JSON, list[list[str]]]:
    """A whole conversation: its last result, and the questions of each round."""
    rounds = []
    result = send(app, method, **params)
    while result["resultType"] == "input_required":
        asked = {
            key: one["params"]["message"] if "message" in one.get("params", {}) else key
            for key, one in result["inputRequests"].items()
        }
        rounds.append(list(asked.values()))
        found = {key: answers[key.rpartition("/")[2]] for key in asked}
        state = result["requestState"]
        result = send(app, method, **params, requestState=state, inputResponses=found)
    return result, rounds


def call(app: Server, answers: Mapping[str, JSON], **arguments: JSON) -> JSON:
    """The result of the only tool of `app`."""
    (name,) = app.tools
    params = {"name": name, "arguments": arguments}
    return play(app, "tools/call", answers, **params)[0]


def text_of(result: JSON) -> str:
    text: str = result["content"][0]["text"]
    return text


# ---- a conversation ----

calls: list[Given] = []


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    """Each test begins with nothing called."""
    calls.clear()


def order(title: str, given: Given = Provided()) -> str | InputRequired:
    """Order a book, in three rounds."""
    calls.append(given)
    match given.answers.get("who"):
        case None:
            return InputRequired({"who": Elicit("Who is it for?", str)}, state=1)
        case Accepted(content):
            who = content["value"]
        case _:
            return "Nothing ordered."
    if "many" not in given.answers:
        return InputRequired(
            {"many": Elicit("How many?", int), "sure": Confirm(f"For {who}?")},
            state={"who": who},
        )
    if given.answers["sure"] != Accepted(None):
        return "Not sure."
    assert given.state == {"who": who}
    many = given.answers["many"]
    assert isinstance(many, Accepted)  # a form that asks again until it fits
    return f"{many.value['value']} x {title} for {who}"


def order_as_flow(title: str) -> Flow[str]:
    """Order a book, as a generator."""
    from effectmcp import Gather, Outcome

    match (yield from Outcome(Elicit("Who is it for?", str))):
        case Accepted(who):
            pass
        case _:
            return "Nothing ordered."
    many, sure = yield from Gather(
        Elicit("How many?", int), Outcome(Confirm(f"For {who}?"))
    )
    return f"{many} x {title} for {who}" if sure == Accepted(True) else "Not sure."


async def order_async(title: str, given: Given = Provided()) -> str | InputRequired:
    """Order a book, as an async function."""
    await asyncio.sleep(0)
    return order(title, given)


ANSWERS = {"who": value("Ann"), "many": value(3), "sure": accept({})}


@pytest.mark.parametrize("function", [order, order_async])
@pytest.mark.parametrize(
    "answers",
    [
        ANSWERS,
        {**ANSWERS, "who": NO},
        {**ANSWERS, "who": CLOSED},
        {**ANSWERS, "sure": NO},
        {**ANSWERS, "sure": CLOSED},
    ],
    ids=["yes", "declined", "dismissed", "not sure", "closed"],
)
def test_it_sends_what_a_generator_sends(
    function: Callable[..., Any], answers: Mapping[str, JSON]
) -> None:
    """Same questions in the same rounds, same result, and the same entry in the list."""
    app, flows = server(), server()
    app.tool(name="order", description="Order.")(function)
    flows.tool(name="order", description="Order.")(order_as_flow)
    params = {"name": "order", "arguments": {"title": "Dune"}}
    result, rounds = play(app, "tools/call", answers, **params)
    named = {"many": "How many?", "who": "Who is it for?", "sure": "For Ann?"}
    texts = {text: answers[name] for name, text in named.items()}
    expected = send(flows, "tools/call", **params)
    flow_rounds = []
    while expected["resultType"] == "input_required":
        asked = {
            key: one["params"]["message"]
            for key, one in expected["inputRequests"].items()
        }
        flow_rounds.append(list(asked.values()))
        expected = send(
            flows,
            "tools/call",
            **params,
            requestState=expected["requestState"],
            inputResponses={key: texts[text] for key, text in asked.items()},
        )
    assert (result, rounds) == (expected, flow_rounds)
    assert send(app, "tools/list") == send(flows, "tools/list")


def test_it_is_called_once_per_round() -> None:
    """Calls of earlier rounds are not repeated."""
    app = server()
    app.tool(order)
    assert text_of(call(app, ANSWERS, title="Dune")) == "3 x Dune for Ann"
    assert [sorted(given.answers) for given in calls] == [
        [],
        ["who"],
        ["many", "sure", "who"],
    ]
    assert [given.state for given in calls] == [None, 1, {"who": "Ann"}]


def test_a_repeated_round_is_called_twice() -> None:
    """At least once, as everything that travels in a client's state."""
    app = server()
    app.tool(order)
    params = {"name": "order", "arguments": {"title": "Dune"}}
    asked = send(app, "tools/call", **params)
    (key,) = asked["inputRequests"]
    more = {"requestState": asked["requestState"], "inputResponses": {key: NO}}
    for _ in range(2):
        assert text_of(send(app, "tools/call", **params, **more)) == "Nothing ordered."
    assert len(calls) == 3


def test_questions_keep_their_order_and_their_keys() -> None:
    """On the wire their keys differ from the keys of other rounds."""
    app = server()

    @app.tool
    def ask(given: Given = Provided()) -> str | InputRequired:
        if len(given.answers) == 3:
            return "done"
        names = ["zoe", "ann"] if not given.answers else ["zoe", "bob"]
        return InputRequired({name: Elicit(f"{name}?", str) for name in names})

    params: dict[str, JSON] = {"name": "ask"}
    first = send(app, "tools/call", **params)
    assert list(first["inputRequests"]) == ["gather-1/0/zoe", "gather-1/1/ann"]
    found = {key: value("x") for key in first["inputRequests"]}
    params["requestState"] = first["requestState"]
    second = send(app, "tools/call", **params, inputResponses=found)
    assert list(second["inputRequests"]) == ["gather-2/0/zoe", "gather-2/1/bob"]


def test_a_later_answer_replaces_an_earlier() -> None:
    app = server()

    @app.tool
    def insist(given: Given = Provided()) -> str | InputRequired:
        calls.append(given)
        if len(calls) < 3:
            return InputRequired({"who": Elicit(f"Try {len(calls)}", str)})
        return str(given.answers["who"].value)  # type: ignore[union-attr]

    first = send(app, "tools/call", name="insist")
    found = {"gather-1/0/who": value("Ann")}
    second = send(
        app,
        "tools/call",
        name="insist",
        requestState=first["requestState"],
        inputResponses=found,
    )
    found = {"gather-2/0/who": value("Bob")}
    third = send(
        app,
        "tools/call",
        name="insist",
        requestState=second["requestState"],
        inputResponses=found,
    )
    assert text_of(third) == "{'value': 'Bob'}"
    assert calls[1].answers == {"who": Accepted({"value": "Ann"})}


def test_a_state_alone_makes_a_round() -> None:
    """The client just comes back with it."""
    app = server()

    @app.tool
    def count(given: Given = Provided()) -> str | InputRequired:
        done = (given.state or 0) + 1
        return "counted" if done == 3 else InputRequired({}, state=done)

    result, rounds = play(app, "tools/call", {}, name="count")
    assert text_of(result) == "counted"
    assert rounds == [[], []]


def test_an_answer_that_does_not_fit_is_asked_again() -> None:
    """Without calling the function."""
    app = server()
    app.tool(order)
    params = {"name": "order", "arguments": {"title": "Dune"}}
    asked = send(app, "tools/call", **params)
    (key,) = asked["inputRequests"]
    again = send(
        app,
        "tools/call",
        **params,
        requestState=asked["requestState"],
        inputResponses={key: value(5)},
    )
    (question,) = again["inputRequests"].values()
    assert "did not fit" in question["params"]["message"]
    assert len(calls) == 1


# ---- every kind of question and answer ----


@frozen
class Guest:
    name: str
    age: int = 30


def answered(request: InputRequest[Any], answer: JSON) -> Any:
    """The value that a function receives for `answer` to `request`."""
    app = server()

    @app.tool
    def ask(given: Given = Provided()) -> str | InputRequired:
        calls.append(given)
        return "done" if given.answers else InputRequired({"one": request})

    assert text_of(call(app, {"one": answer})) == "done"
    return calls[-1].answers["one"]


SAMPLED = {
    "role": "assistant",
    "content": {"type": "text", "text": "Hi."},
    "model": "m",
    "stopReason": "endTurn",
}


@pytest.mark.parametrize(
    ("request_", "answer", "given"),
    [
        (Elicit("Who?", str), value("Ann"), Accepted({"value": "Ann"})),
        (Elicit("Who?", str), NO, Declined()),
        (Elicit("Who?", str), CLOSED, Dismissed()),
        (
            Elicit("Who?", Guest),
            accept({"name": "Ann", "age": 7}),
            Accepted({"name": "Ann", "age": 7}),
        ),
        (Elicit("Who?", str, title="Name"), value("A"), Accepted({"value": "A"})),
        (
            Elicit("Who?", {"type": "object", "properties": {"a": {"type": "string"}}}),
            accept({"a": "b"}),
            Accepted({"a": "b"}),
        ),
        (Confirm("Sure?"), accept({}), Accepted(None)),
        (Confirm("Sure?"), NO, Declined()),
        (Confirm("Sure?"), CLOSED, Dismissed()),
        (ElicitUrl("Pay", "https://a.example"), {"action": "accept"}, Accepted(None)),
        (ElicitUrl("Pay", "https://a.example"), NO, Declined()),
        (
            Sample("Say hi", stop_sequences=["."], preferences={"costPriority": 1}),
            SAMPLED,
            Accepted(Sampled([{"type": "text", "text": "Hi."}], "m", "endTurn")),
        ),
        (
            ListRoots(),
            {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b"}]},
            Accepted([Root("file:///a", "a"), Root("file:///b")]),
        ),
        (ListRoots(), {"roots": []}, Accepted([])),
    ],
    ids=repr,
)
def test_answers(request_: InputRequest[Any], answer: JSON, given: Any) -> None:
    assert answered(request_, answer) == given


def test_the_question_on_the_wire_is_the_given_one() -> None:
    app, flows = server(), server()
    questions = [
        Elicit("Who?", Guest),
        Elicit("How?", str, title="Name"),
        Sample("Hi", system="Be kind", temperature=0.5, max_tokens=7),
    ]

    @app.tool
    def ask(given: Given = Provided()) -> str | InputRequired:
        return InputRequired(dict(zip("abc", questions, strict=True)))

    @flows.tool(name="ask")
    def ask_flow() -> Flow[str]:
        from effectmcp import Gather

        yield from Gather(*questions)
        return ""

    asked = [send(one, "tools/call", name="ask") for one in (app, flows)]
    first, second = (list(one["inputRequests"].values()) for one in asked)
    assert first == second


# ---- prompts and resources, and what is provided ----


def test_prompts_may_ask() -> None:
    app = server()

    @app.prompt
    def review(
        language: str, given: Given = Provided()
    ) -> list[Message] | InputRequired:
        if not given.answers:
            return InputRequired({"style": Elicit("Which style?", str)})
        style = given.answers["style"].value["value"]  # type: ignore[union-attr]
        return [Message(f"Review {language}, {style}.")]

    params = {"name": "review", "arguments": {"language": "C"}}
    result, _ = play(app, "prompts/get", {"style": value("kindly")}, **params)
    assert result["messages"][0]["content"]["text"] == "Review C, kindly."
    (listed,) = send(app, "prompts/list")["prompts"]
    assert [one["name"] for one in listed["arguments"]] == ["language"]


def test_resources_may_ask() -> None:
    app = server()

    @app.resource("shop://{shelf}")
    def shelf(shelf: str, given: Given = Provided()) -> str | InputRequired:
        if not given.answers:
            return InputRequired({"sure": Confirm("Really?")})
        return f"{shelf}: {type(given.answers['sure']).__name__}"

    result, _ = play(app, "resources/read", {"sure": NO}, uri="shop://b")
    assert result["contents"][0]["text"] == "b: Declined"


class Till:
    """A value that the lifespan provides."""

    def __init__(self) -> None:
        self.sum = 0


@contextmanager
def shop(app: Server) -> Iterator[Mapping[Any, Any]]:
    yield {Till: Till(), "greeting": "Hello"}


def test_the_lifespan_provides() -> None:
    """By name and by annotation; neither is an argument, and neither is recorded."""
    app = server(lifespan=shop)

    @app.tool
    def pay(
        amount: int,
        given: Given = Provided(),
        till: Till = Provided(),
        *,
        greeting: str = Provided(),
    ) -> str | InputRequired:
        if not given.answers:
            return InputRequired({"sure": Confirm("Sure?")})
        till.sum += amount
        return f"{greeting}: {till.sum}"

    (listed,) = send(app, "tools/list")["tools"]
    assert list(listed["inputSchema"]["properties"]) == ["amount"]
    with running(app):
        assert text_of(call(app, {"sure": accept({})}, amount=5)) == "Hello: 5"
        assert text_of(call(app, {"sure": accept({})}, amount=5)) == "Hello: 10"


def test_nothing_is_provided_outside_of_the_lifespan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = server()

    @app.tool
    def pay(till: Till = Provided(), given: Given = Provided()) -> str:
        return "paid"

    assert call(app, {})["isError"]
    assert "nothing is provided for the parameter 'till'" in caplog.text


def test_a_function_without_given_may_ask() -> None:
    """The function asks without end, though, as it never receives the answers."""
    app = server(rounds=2)

    @app.tool
    def ask() -> str | InputRequired:
        return InputRequired({"sure": Confirm("Sure?")})

    assert send(app, "tools/call", name="ask")["resultType"] == "input_required"


def test_a_function_that_only_asks_promises_nothing() -> None:
    assert without(InputRequired) is None
    assert without(int) is int
    assert without(int | InputRequired) is int
    assert without(int | str | InputRequired) == int | str


# ---- the state ----


def test_the_state_is_never_visible() -> None:
    app = server()

    @app.tool
    def ask(given: Given = Provided()) -> str | InputRequired:
        return InputRequired({"sure": Confirm("Sure?")}, state="SECRET")

    assert "SECRET" not in json.dumps(send(app, "tools/call", name="ask"))


def test_the_state_of_a_server_whose_states_are_readable() -> None:
    """With such keys clients can see it, and it stays sealed."""
    app = server(keys=Keys(KEY, readable=True))

    @app.tool
    def ask(given: Given = Provided()) -> str | InputRequired:
        if given.state is None:
            return InputRequired({"who": Elicit("Who?", str)}, state="HELLO")
        return f"{given.state} {given.answers['who']}"

    asked = send(app, "tools/call", name="ask")
    token = asked["requestState"]
    assert b"HELLO" in Keys(KEY, readable=True).unwrap(token)[0]
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"value": "Ann"}}}
    more = {"name": "ask", "inputResponses": answers}
    found = send(app, "tools/call", **more, requestState=token)
    assert text_of(found).startswith("HELLO Accepted")
    with pytest.raises(ProtocolError):
        send(app, "tools/call", **more, requestState=token[:-4] + "AAAA")


def test_the_state_of_a_function_without_the_annotation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a result it would be there for all to read."""
    app = server()

    @app.tool
    def ask():  # type: ignore[no-untyped-def]
        return InputRequired({}, state="SECRET")

    @app.tool
    def ask_later():  # type: ignore[no-untyped-def]
        yield from Log("info", "asking")
        return InputRequired({}, state="SECRET")

    for name in app.tools:
        result = send(app, "tools/call", name=name)
        assert result["isError"]
        assert "SECRET" not in json.dumps(result)
        assert f"{name} asks, and its annotation does not show that" in caplog.text


def test_a_state_of_another_server_is_refused() -> None:
    app, other = server(), server(keys=Keys(make_key(bytes(32))))
    app.tool(order)
    other.tool(order)
    params = {"name": "order", "arguments": {"title": "a"}}
    state = send(app, "tools/call", **params)["requestState"]
    with pytest.raises(ProtocolError):
        send(other, "tools/call", **params, requestState=state)


# ---- how it ends ----


class OwnError(Exception):
    """A type that no other module knows."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error", [ToolError("sold out"), OwnError("a"), ValueError("b"), TimeoutError()]
)
def test_it_fails_as_a_plain_function_does(
    error: Exception, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The traceback in the log leads to the line that raised."""
    app = server()

    if is_async:

        async def fail(given: Given = Provided()) -> str:
            raise error
    else:

        def fail(given: Given = Provided()) -> str:  # type: ignore[misc]
            raise error

    def plain() -> str:
        raise error

    app.tool(name="given")(fail)
    app.tool(name="plain")(plain)
    results = [send(app, "tools/call", name=name) for name in ("given", "plain")]
    texts = [text_of(one).replace("given", "plain") for one in results]
    assert texts[0] == texts[1]
    assert ("raise error" in caplog.text) == (not isinstance(error, ToolError))


def test_a_protocol_error_reaches_the_client() -> None:
    app = server()

    @app.tool
    def fail(given: Given = Provided()) -> str:
        raise ProtocolError(-32001, "custom", {"a": 1})

    with pytest.raises(ProtocolError, match="custom"):
        send(app, "tools/call", name="fail")


def test_a_result_may_be_anything_that_a_plain_function_returns() -> None:
    """The result is not recorded, so it need not be plain data."""
    app = server()

    @app.tool
    def guest(given: Given = Provided()) -> Guest | InputRequired:
        return Guest("Ann")

    result = call(app, {})
    assert result["structuredContent"] == {"name": "Ann", "age": 30}
    (listed,) = send(app, "tools/list")["tools"]
    assert listed["outputSchema"]["properties"].keys() == {"name", "age"}


# ---- misuse ----


def failing(asked: InputRequired, caplog: pytest.LogCaptureFixture) -> str:
    """The log of a function that returns `asked`."""
    app = server()

    @app.tool
    def ask(given: Given = Provided()) -> str | InputRequired:
        return asked

    result = send(app, "tools/call", name="ask")
    assert text_of(result).startswith("Internal error")
    return caplog.text


WRONG: Any = [
    (InputRequired({"a": Log("info", "x")}), "asks questions, and Log("),  # type: ignore[dict-item]
    (InputRequired({"a": "Who?"}), "asks questions, and 'Who?' is not a question"),  # type: ignore[dict-item]
    (InputRequired({"a": Elicit}), "is not a question"),  # type: ignore[dict-item]
    (InputRequired({1: Confirm("?")}), "keys are strings"),  # type: ignore[dict-item]
    (InputRequired({"a": Confirm("?", otherwise=True)}), "otherwise= is for you"),
    (InputRequired({"a": Confirm("?", key="b")}), "the key is 'a'"),
    (InputRequired({"a": Confirm("?")}, state={1, 2}), "cannot be recorded"),
    (InputRequired({"a": Confirm("?")}, state=object()), "cannot be recorded"),
    (InputRequired({"a": Confirm("?")}, state=float("nan")), "cannot be recorded"),
]


@pytest.mark.parametrize(("asked", "words"), WRONG)
def test_what_cannot_be_asked(
    asked: InputRequired, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert words in failing(asked, caplog)


def test_an_equal_key_is_allowed() -> None:
    assert answered(Elicit("Who?", str, key="one"), NO) == Declined()


def test_given_without_provided_is_refused() -> None:
    def ask(title: str, given: Given) -> str:
        return ""

    with pytest.raises(SchemaError, match=r"ask\(given\): write given: Given = Provid"):
        server().tool(ask)


def test_a_generator_has_no_use_for_it() -> None:
    def takes(given: Given = Provided()) -> Flow[str]:
        yield from Log("info", "x")
        return ""

    def asks() -> InputRequired:  # type: ignore[misc]
        yield from Log("info", "x")

    for function in (takes, asks):
        with pytest.raises(SchemaError, match="no use for Given and InputRequired"):
            server().tool(function)


def test_given_parameter_of_what_has_no_annotations() -> None:
    assert given_parameter(lambda given: given) is None
    assert given_parameter(print) is None

    def later(given: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert given_parameter(later) is None


def test_functions_that_do_not_ask_stay_plain() -> None:
    app = server()
    app.tool(name="plain")(lambda: 1)
    assert app.tools["plain"].handler.kind == "plain"
