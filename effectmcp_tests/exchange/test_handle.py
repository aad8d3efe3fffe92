from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import pytest

from effectmcp import ArgumentsError, Elicit, Flow, Sample
from effectmcp.drivers import sync
from effectmcp.exchange.commands import (
    Invoke,
    Listen,
    Notify,
    Overdue,
    Peer,
    Reply,
)
from effectmcp.exchange.handle import handle
from effectmcp.protocol.jsonrpc import Request
from effectmcp.schema import Header
from effectmcp.server import Server

from ..wire import (
    KEYS,
    PREFIX,
    error,
    fits,
    fits_reply,
    headers_of,
    meta,
    refused,
    request,
    result,
    send,
    text_of,
)


def make_app() -> Server:
    """A tool, a prompt, a resource and a template."""
    app = Server("shop", version="1", keys=KEYS)

    @app.tool
    def find(region: Annotated[str, Header("Region")] = "") -> str:
        return f"in {region}"

    @app.tool(requires=[Sample])
    def think() -> Flow[str]:
        return (yield from Sample("Hm.")).text

    @app.tool
    def name() -> str:
        return "name"

    @app.prompt
    def review(code: str, language: str = "py") -> str:
        return f"{language}: {code}"

    @app.resource("shop://hello")
    def hello() -> str:
        return "hello"

    @app.resource("shop://pages/{number}")
    def page(number: int) -> str:
        return f"page {number}"

    return app


APP = make_app()


def over_http(message: dict[str, Any], **headers: str | None) -> Reply:
    """`message` with its headers, some of them changed."""
    peer = Peer(headers=headers_of(message, **headers))
    return sync.handle(APP, message, peer)


FIND = request("tools/call", {"name": "find"})
LIST = request("tools/list")
OF_999 = meta(version="v999.0.0")


def without(key: str) -> dict[str, Any]:
    """A `_meta` without one of its keys."""
    return {name: value for name, value in meta().items() if name != PREFIX + key}


# ---- the envelope -------------------------------------------------------------------

#: The message, the changed headers, and the status and code of the refusal.
ENVELOPE: dict[str, tuple[dict[str, Any], dict[str, str | None], tuple[int, int]]] = {
    "no _meta": (request("tools/list", {"_meta": None}), {}, (400, -32602)),
    "_meta is none": (request("tools/list", {"_meta": [1]}), {}, (400, -32602)),
    "no version": (
        request("tools/list", {"_meta": without("protocolVersion")}),
        {},
        (400, -32602),
    ),
    "no capabilities": (
        request("tools/list", {"_meta": without("clientCapabilities")}),
        {},
        (400, -32602),
    ),
    "another version in the header": (
        request("tools/list", {"_meta": OF_999}),
        {"mcp_protocol_version": "2026-07-28"},
        (400, -32020),
    ),
    "no version in the header": (LIST, {"mcp_protocol_version": None}, (400, -32020)),
    "a version nobody speaks": (
        request("tools/list", {"_meta": OF_999}),
        {},
        (400, -32022),
    ),
    "an unknown method": (request("tools/buy"), {}, (404, -32601)),
    "initialize": (request("initialize"), {}, (404, -32601)),
    "ping": (request("ping"), {}, (404, -32601)),
    "logging/setLevel": (request("logging/setLevel"), {}, (404, -32601)),
    "resources/subscribe": (request("resources/subscribe"), {}, (404, -32601)),
    "resources/unsubscribe": (request("resources/unsubscribe"), {}, (404, -32601)),
    "no method in the header": (LIST, {"mcp_method": None}, (400, -32020)),
    "another method in the header": (LIST, {"mcp_method": "tools/call"}, (400, -32020)),
    "a method in capitals": (LIST, {"mcp_method": "TOOLS/LIST"}, (400, -32020)),
    "no name in the header": (FIND, {"mcp_name": None}, (400, -32020)),
    "another name in the header": (FIND, {"mcp_name": "name"}, (400, -32020)),
    "no name of a prompt in the header": (
        request("prompts/get", {"name": "review", "arguments": {"code": ""}}),
        {"mcp_name": None},
        (400, -32020),
    ),
    "another uri in the header": (
        request("resources/read", {"uri": "shop://hello"}),
        {"mcp_name": "shop://other"},
        (400, -32020),
    ),
    "no parameter in the header": (
        request("tools/call", {"name": "find", "arguments": {"region": "eu"}}),
        {},
        (400, -32020),
    ),
    "another parameter in the header": (
        request("tools/call", {"name": "find", "arguments": {"region": "eu"}}),
        {"mcp_param_region": "us"},
        (400, -32020),
    ),
    "a parameter in bad base64": (
        request("tools/call", {"name": "find", "arguments": {"region": "Hello"}}),
        {"mcp_param_region": "=?base64?SGVsbG8?="},
        (400, -32020),
    ),
    "no capability": (
        request("tools/call", {"name": "think"}, capabilities={}),
        {},
        (400, -32021),
    ),
    "no such tool": (request("tools/call", {"name": "x"}), {}, (200, -32602)),
    "no name of a tool": (request("tools/call", {}), {}, (200, -32602)),
    "a name that is none": (request("tools/call", {"name": 5}), {}, (200, -32602)),
    "arguments that are none": (
        request("tools/call", {"name": "find", "arguments": [1]}),
        {},
        (200, -32602),
    ),
    "no such prompt": (request("prompts/get", {"name": "x"}), {}, (200, -32602)),
    "no such resource": (
        request("resources/read", {"uri": "shop://none"}),
        {},
        (200, -32602),
    ),
    "a resource whose parts do not fit": (
        request("resources/read", {"uri": "shop://pages/one"}),
        {},
        (200, -32602),
    ),
    "no such cursor": (request("tools/list", {"cursor": "x"}), {}, (200, -32602)),
}


@pytest.mark.parametrize("case", ENVELOPE)
def test_envelope(case: str) -> None:
    message, headers, expected = ENVELOPE[case]
    reply = over_http(message, **headers)
    assert refused(reply) == expected
    assert reply.message is not None
    assert reply.message["id"] == message["id"]
    fits_reply(message["method"], reply)


@pytest.mark.parametrize(
    "case", [case for case, row in ENVELOPE.items() if not row[1]], ids=str
)
def test_envelope_over_a_pipe(case: str) -> None:
    """Without headers, errors are the same, except those about headers."""
    message, _, expected = ENVELOPE[case]
    reply = sync.handle(APP, json.dumps(message))
    if "header" in case:
        result(reply)
    else:
        assert refused(reply) == expected


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        (LIST, {}),
        (FIND, {}),
        (request("tools/list", {"_meta": without("clientInfo")}), {}),
        (request("tools/call", {"name": "name"}), {"mcp_name": "  name  "}),
        (
            request("tools/call", {"name": "find", "arguments": {"region": "Hello"}}),
            {"mcp_param_region": "=?base64?SGVsbG8=?="},
        ),
        (
            request("tools/call", {"name": "find", "arguments": {"region": "eu"}}),
            {"mcp_param_region": "eu"},
        ),
        (request("resources/read", {"uri": "shop://pages/1"}), {}),
        (request("server/discover"), {}),
    ],
    ids=lambda one: one.get("method", "") if isinstance(one, dict) else "",
)
def test_valid_envelope(message: dict[str, Any], headers: Any) -> None:
    reply = over_http(message, **headers)
    found = result(reply)
    assert found["_meta"][f"{PREFIX}serverInfo"] == {"name": "shop", "version": "1"}
    assert found["resultType"] == "complete"
    fits_reply(message["method"], reply)


def test_envelope_of_a_client_without_a_name() -> None:
    said = {**meta(), f"{PREFIX}clientInfo": None}
    message = request("tools/call", {"name": "find"})
    message["params"]["_meta"] = said
    assert text_of(result(sync.handle(APP, message))) == "in "


def test_envelope_names_what_is_supported() -> None:
    data = error(over_http(request("tools/list", {"_meta": OF_999})))["data"]
    assert data["requested"] == "v999.0.0"
    supported = result(send(APP, "server/discover"))["supportedVersions"]
    assert data["supported"]
    assert set(data["supported"]) <= set(supported)


def test_envelope_names_the_resource() -> None:
    for uri in ("shop://none", "shop://pages/one"):
        assert error(send(APP, "resources/read", {"uri": uri}))["data"] == {"uri": uri}


def test_envelope_checks_the_method_before_the_rest() -> None:
    """Their requests have empty params, and no name."""
    reply = over_http(request("resources/subscribe"), mcp_name=None)
    assert refused(reply) == (404, -32601)


def test_method_of_a_capability_that_is_not_there() -> None:
    app = Server("empty")
    for method in ("tools/list", "prompts/get", "resources/read"):
        assert refused(send(app, method)) == (404, -32601)
    assert refused(send(app, "completion/complete")) == (404, -32601)
    result(send(app, "server/discover"))


# ---- messages other than requests ---------------------------------------------------


def test_notification_gets_no_reply() -> None:
    reply = sync.handle(APP, {"jsonrpc": "2.0", "method": "notifications/cancelled"})
    assert (reply.message, reply.status) == (None, 202)


@pytest.mark.parametrize(
    ("message", "id_", "code"),
    [
        (b"{", None, -32700),
        (b"[]", None, -32600),
        (b'{"jsonrpc": "2.0", "id": "a", "method": 5}', "a", -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', None, -32600),
        # An error with this id would answer a request of the client's own.
        (b'{"jsonrpc": "2.0", "id": 3, "result": {}}', None, -32600),
    ],
)
def test_message_that_is_malformed(message: bytes, id_: Any, code: int) -> None:
    reply = sync.handle(APP, message)
    assert refused(reply) == (400, code)
    assert reply.message is not None
    assert reply.message.get("id") == id_
    fits_reply(None, reply)


def test_message_that_was_read_already() -> None:
    read = Request("a", "server/discover", {"_meta": meta()})
    exchange = handle(APP, read, clock=lambda: 0.0, entropy=bytes)
    with pytest.raises(StopIteration) as end:
        next(exchange)
    assert end.value.value.message["id"] == "a"


# ---- what goes wrong on our side ----------------------------------------------------


def test_internal_failure_reveals_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app()
    app.ttl = float("nan")
    with caplog.at_level(logging.ERROR):
        reply = send(app, "tools/list")
    assert refused(reply) == (500, -32603)
    assert error(reply)["message"] == "Internal error"
    assert "tools/list failed" in caplog.text
    fits_reply("tools/list", reply)


def test_result_that_json_cannot_represent(caplog: pytest.LogCaptureFixture) -> None:
    """Each method reports it in its way, as a transport could do nothing."""
    app = Server("shop")
    app.tool(name="bad")(lambda: "\ud800")
    app.prompt(name="bad")(lambda: "\ud800")
    app.resource("shop://bad", name="bad")(lambda: "\ud800")
    found = result(send(app, "tools/call", {"name": "bad"}))
    assert found["isError"] is True
    assert text_of(found).startswith("Internal error: bad failed")
    for method, params in (
        ("prompts/get", {"name": "bad"}),
        ("resources/read", {"uri": "shop://bad"}),
    ):
        assert error(send(app, method, params))["code"] == -32603
    errors = [one.exc_info[1] for one in caplog.records if one.exc_info]
    assert ["has no form in JSON" in str(one) for one in errors] == [True] * 3
    caplog.clear()


# ---- the methods --------------------------------------------------------------------


def test_tool_is_called_with_its_arguments() -> None:
    for arguments in ({}, {"region": "eu"}):
        found = result(
            send(APP, "tools/call", {"name": "find", "arguments": arguments})
        )
        assert text_of(found) == f"in {arguments.get('region', '')}"
    for params in ({"name": "find"}, {"name": "find", "arguments": None}):
        assert text_of(result(send(APP, "tools/call", params))) == "in "


def test_tool_with_arguments_that_do_not_fit() -> None:
    """The model can do something about them."""
    params = {"name": "find", "arguments": {"region": 5, "x": 1}}
    found = result(send(APP, "tools/call", params))
    assert found["isError"] is True
    assert "region: must be" in text_of(found)


def test_prompt_is_got_with_its_arguments() -> None:
    params = {"name": "review", "arguments": {"code": "x", "language": "js"}}
    found = result(send(APP, "prompts/get", params))
    (message,) = found["messages"]
    assert message["content"]["text"] == "js: x"


@pytest.mark.parametrize("arguments", [{"code": 5}, {}, {"code": "", "x": ""}, [1]])
def test_prompt_with_arguments_that_do_not_fit(arguments: Any) -> None:
    params = {"name": "review", "arguments": arguments}
    assert refused(send(APP, "prompts/get", params)) == (200, -32602)


def test_resource_is_read() -> None:
    found = result(send(APP, "resources/read", {"uri": "shop://hello"}))
    assert found["contents"] == [{"uri": "shop://hello", "text": "hello"}]
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")
    found = result(send(APP, "resources/read", {"uri": "shop://pages/7"}))
    assert found["contents"] == [{"uri": "shop://pages/7", "text": "page 7"}]


def test_resource_of_the_template_whose_types_fit() -> None:
    """An earlier template may match the URI."""
    app = Server("shop")

    @app.resource("book://{number}")
    def by_number(number: int) -> str:
        return f"number {number}"

    @app.resource("book://{name}")
    def by_name(name: str) -> str:
        return f"name {name}"

    def read(uri: str) -> Reply:
        return send(app, "resources/read", {"uri": uri})

    for uri, text in (("book://7", "number 7"), ("book://dune", "name dune")):
        (contents,) = result(read(uri))["contents"]
        assert contents["text"] == text
    app.remove(app.templates["book://{name}"])
    reply = read("book://dune")
    assert refused(reply) == (200, -32602)
    assert error(reply)["data"] == {"uri": "book://dune"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "failing"}),
        ("prompts/get", {"name": "failing"}),
        ("resources/read", {"uri": "shop://x"}),
        ("resources/read", {"uri": "book://x"}),
    ],
)
def test_arguments_error_of_a_handlers_own(
    method: str, params: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The model's arguments were right, so it is not asked to fix them."""
    app = Server("shop")

    def failing() -> str:
        raise ArgumentsError(["price: must be above 0"])

    app.tool(failing)
    app.prompt(failing)
    app.resource("shop://x")(failing)
    app.resource("book://{name}")(lambda name: failing())
    reply = send(app, method, params)
    if method == "tools/call":
        assert text_of(result(reply)).startswith("Internal error: failing failed.")
    else:
        assert refused(reply) == (200, -32603)
    assert "price" not in str(reply.message)
    assert "price: must be above 0" in caplog.text


def test_resource_and_prompt_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("shop")

    def failing() -> str:
        raise OSError("secret")

    app.prompt(failing)
    app.resource("shop://x")(failing)
    for method, params in (
        ("prompts/get", {"name": "failing"}),
        ("resources/read", {"uri": "shop://x"}),
    ):
        with caplog.at_level(logging.ERROR):
            reply = send(app, method, params)
        assert refused(reply) == (200, -32603)
        assert "secret" not in str(reply.message)
    assert caplog.text.count("OSError: secret") >= 2


def test_resource_and_prompt_that_ask() -> None:
    app = Server("shop", keys=KEYS)

    def ask() -> Flow[str]:
        return (yield from Elicit("Who?", str, key="who"))

    app.prompt(ask)
    app.resource("shop://who")(ask)
    answers = {"who": {"action": "accept", "content": {"value": "Ann"}}}
    for method, params in (
        ("prompts/get", {"name": "ask"}),
        ("resources/read", {"uri": "shop://who"}),
    ):
        reply = send(app, method, params)
        asked = result(reply)
        assert asked["resultType"] == "input_required"
        fits_reply(method, reply)
        more = {"inputResponses": answers, "requestState": asked["requestState"]}
        reply = send(app, method, {**params, **more})
        assert "Ann" in str(result(reply))
        fits_reply(method, reply)


def test_error_for_a_client_that_cannot_be_asked_names_what_asks() -> None:
    """Agents show the message to the model."""
    app = Server("shop", keys=KEYS)

    def ask() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    app.tool(ask)
    app.prompt(ask)
    app.resource("shop://who")(ask)
    for method, params, asks in (
        ("tools/call", {"name": "ask"}, "This tool asks"),
        ("prompts/get", {"name": "ask"}, "This prompt asks"),
        ("resources/read", {"uri": "shop://who"}, "This resource asks"),
    ):
        reply = send(app, method, params, capabilities={})
        assert error(reply)["message"] == (
            f"{asks} its user a question (elicitation), which this client did not say it"
            " can do. Use it from a client that can."
        )
        fits_reply(method, reply)


# ---- completion ---------------------------------------------------------------------


def complete(app: Server, of: str, argument: str, value: str, **more: Any) -> Reply:
    type_ = "ref/resource" if "://" in of else "ref/prompt"
    ref = {"type": type_, "uri" if "://" in of else "name": of}
    params = {"ref": ref, "argument": {"name": argument, "value": value}, **more}
    reply = send(app, "completion/complete", params)
    fits_reply("completion/complete", reply)
    return reply


def test_completion_by_a_function() -> None:
    app = make_app()

    @app.completion("review", "language")
    def languages(text: str) -> list[str]:
        return ["py", f"not {text}"]

    @app.completion("shop://pages/{number}", "number")
    def numbers(text: str, context: dict[str, str]) -> list[str]:
        return sorted(context)

    found = result(complete(app, "review", "language", "j"))["completion"]
    assert found == {"values": ["py", "not j"], "total": 2, "hasMore": False}
    context = {"arguments": {"b": "x", "a": "x", "c": 5}}
    reply = complete(app, "shop://pages/{number}", "number", "", context=context)
    assert result(reply)["completion"]["values"] == ["a", "b"]


@pytest.mark.parametrize("values", [None, [5], ["\ud800"], 5, "red"])
def test_completion_by_a_function_that_fails(values: Any) -> None:
    app = make_app()
    app.completion("review", "code")(lambda text: values)
    assert refused(complete(app, "review", "code", "")) == (500, -32603)


def test_completion_by_a_function_that_raises() -> None:
    app = make_app()

    @app.completion("review", "code")
    def failing(text: str) -> list[str]:
        raise OSError("secret")

    reply = complete(app, "review", "code", "")
    assert refused(reply) == (500, -32603)
    assert "secret" not in str(reply.message)


@pytest.mark.parametrize(("timeout", "deadline"), [(None, None), (7, 107.0)])
def test_completion_has_a_deadline(
    timeout: float | None, deadline: float | None
) -> None:
    app = Server("shop", timeout=timeout)
    app.prompt(name="p")(lambda a: "")
    app.completion("p", "a")(lambda text: [])
    params = {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": ""},
    }
    message = request("completion/complete", params)
    exchange = handle(app, message, clock=lambda: 100.0, entropy=bytes)
    command = next(exchange)
    assert isinstance(command, Invoke)
    assert command.deadline == deadline
    with pytest.raises(StopIteration) as end:
        exchange.throw(Overdue())
    assert refused(end.value.value) == (500, -32603)


def test_completion_without_a_function() -> None:
    found = result(complete(APP, "review", "code", ""))["completion"]
    assert found == {"values": [], "total": 0, "hasMore": False}


# ---- subscriptions ------------------------------------------------------------------


def test_listen_goes_from_the_acknowledgement_to_the_end() -> None:
    message = request("subscriptions/listen", {"notifications": {}}, id="s")
    exchange = handle(APP, message, clock=lambda: 0.0, entropy=bytes)
    command = next(exchange)
    assert isinstance(command, Listen)
    assert command.subscription.id == "s"
    command = exchange.send(None)
    assert isinstance(command, Notify)
    assert command.message["method"] == "notifications/cancelled"
    assert command.message["params"] == {
        "_meta": {f"{PREFIX}subscriptionId": "s"},
        "requestId": "s",
    }
    fits("CancelledNotification", command.message)
    with pytest.raises(StopIteration) as end:
        exchange.send(None)
    reply = end.value.value
    assert reply.message["result"]["_meta"][f"{PREFIX}subscriptionId"] == "s"
    fits_reply("subscriptions/listen", reply)


def test_listen_to_something_else() -> None:
    wrong: list[Any] = [None, [], {"toolsListChanged": "yes"}]
    for notifications in wrong:
        params = {"notifications": notifications}
        assert refused(send(APP, "subscriptions/listen", params)) == (200, -32602)
