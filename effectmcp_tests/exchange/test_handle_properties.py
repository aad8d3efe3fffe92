"""Each message gets one reply that the protocol knows, soon, and nothing is raised."""

from __future__ import annotations

import enum
import json
import time
from typing import Annotated, Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Confirm,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    ListRoots,
    Log,
    Now,
    Progress,
    Sample,
    Step,
    ToolError,
)
from effectmcp.content import Audio, EmbeddedResource, Image, ResourceContents
from effectmcp.drivers import sync
from effectmcp.exchange.commands import Peer
from effectmcp.protocol.jsonrpc import Notification, Request, encode, read_message
from effectmcp.protocol.methods import METHODS
from effectmcp.schema import Header
from effectmcp.server import Server

from ..wire import (
    KEYS,
    PREFIX,
    Wire,
    fits,
    fits_reply,
    headers_of,
    meta,
    refused,
    request,
    result,
    send,
)

#: Seconds that one reply may take, and none here comes near.
LIMIT = 5


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def make_app() -> Server:
    """A server with one of everything."""
    app = Server("shop", keys=KEYS, page_size=2, instructions="Ask.")

    @app.tool
    def find(region: Annotated[str, Header("Region")] = "", n: int = 1) -> list[str]:
        return [region] * min(n, 3)

    @app.tool
    def order(title: str, data: Any = None) -> Flow[str]:
        yield from Log("info", data)
        name = yield from Elicit("Who?", str, key="who")
        yield from Progress(1, 2, "Half.")
        day, page = yield from Gather(Confirm("Sure?"), ElicitUrl("Pay", "https://x"))
        model = yield from Sample(f"Thank {name}", key="model")
        roots = yield from ListRoots(key="roots")
        yield from Step(len, title)
        return f"{name} {day} {page} {model.text} {len(roots)}"

    @app.tool
    def failing(how: Literal["tool", "bug"] = "tool") -> str:
        raise ToolError("sold out") if how == "tool" else OSError("secret")

    @app.tool(input_schema={"type": "object"})
    def raw(**kwargs: Any) -> Any:
        return kwargs

    @app.tool
    def blocks() -> Any:
        held = ResourceContents("x", uri="shop://x")
        return [Image(b"x"), Audio(b"x"), EmbeddedResource(held), "text"]

    @app.prompt
    def paint(colour: Colour, size: int | None = None, name: str = "") -> str:
        return f"{colour} {size} {name}"

    @app.prompt
    def ask() -> Flow[str]:
        yield from Now()
        return (yield from Elicit("What?", str, key="what"))

    @app.resource("shop://hello", ttl=5, scope="public")
    def hello() -> bytes:
        return b"hello"

    @app.resource("shop://pages/{number}{?colour}")
    def page(number: int, colour: Colour = Colour.RED) -> Any:
        return {"number": number, "colour": colour}

    @app.completion("paint", "name")
    def names(text: str, context: dict[str, str]) -> list[str]:
        return [text, *context]

    return app


APP = make_app()


def _token(tool: str, arguments: Any) -> str:
    reply = send(APP, "tools/call", {"name": tool, "arguments": arguments})
    token: str = result(reply)["requestState"]
    return token


TOKEN = _token("order", {"title": "Dune"})

# ---- requests, right and wrong ------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=8,
)


def likely(*values: Any) -> st.SearchStrategy[Any]:
    """One of `values`, as a rule."""
    return st.sampled_from(values) | st.sampled_from(values) | anything


def params_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Params without some of their fields, or with others added."""
    return st.builds(
        lambda mine, others: {**others, **mine},
        st.fixed_dictionaries({}, optional=fields),
        st.dictionaries(texts, anything, max_size=1),
    )


wrong_metas = st.builds(
    lambda right, wrong: {**right, **wrong},
    st.just(meta()),
    st.fixed_dictionaries(
        {},
        optional={
            f"{PREFIX}protocolVersion": likely("v999.0.0"),
            f"{PREFIX}clientCapabilities": likely(
                {}, {"elicitation": {}}, {"sampling": {}, "roots": {}}
            ),
            f"{PREFIX}clientInfo": likely({"name": "c", "version": "1"}),
            f"{PREFIX}logLevel": likely("debug", "emergency"),
            "progressToken": likely("t", 7),
            "traceparent": likely("00-4bf9-00f0-01"),
        },
    ),
)
metas = st.one_of(
    st.just(meta()),
    st.just(meta(log_level="debug", progressToken="t")),
    st.just(meta({"elicitation": {}})),
    st.just(meta({"sampling": {}, "roots": {}})),
)
answers = st.dictionaries(
    st.sampled_from(["who", "confirm-1", "elicit_url-1", "model", "roots", "what"])
    | texts,
    likely(
        {"action": "accept", "content": {"value": "Ann"}},
        {"action": "accept"},
        {"action": "decline"},
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}},
        {"roots": [{"uri": "file:///x"}]},
    ),
    max_size=4,
)
arguments = (
    st.dictionaries(
        st.sampled_from(["region", "n", "title", "data", "how", "colour", "size"]),
        likely("Dune", "tool", "bug", 2, "red", "3"),
        max_size=3,
    )
    | anything
)
answered = {
    "inputResponses": answers | answers | anything,
    "requestState": likely(TOKEN, TOKEN, TOKEN[:-1]),
}
of_order = st.fixed_dictionaries({"title": st.just("Dune")})

#: What each method wants, more or less.
PARAMS: dict[str, st.SearchStrategy[Any]] = {
    "tools/call": st.one_of(
        st.fixed_dictionaries(
            {"name": likely("find", "failing", "raw", "blocks", "order")},
            optional={"arguments": arguments, **answered},
        ),
        st.fixed_dictionaries(
            {"name": st.just("order"), "arguments": of_order}, optional=answered
        ),
    ),
    "prompts/get": st.fixed_dictionaries(
        {"name": likely("paint", "ask")}, optional={"arguments": arguments, **answered}
    ),
    "resources/read": st.fixed_dictionaries(
        {"uri": likely("shop://hello", "shop://pages/1", "shop://pages/x?colour=blue")},
        optional=answered,
    ),
    "completion/complete": params_of(
        ref=likely(
            {"type": "ref/prompt", "name": "paint"},
            {"type": "ref/resource", "uri": "shop://pages/{number}{?colour}"},
        ),
        argument=st.fixed_dictionaries(
            {"name": likely("colour", "name", "size"), "value": likely("", "r")}
        )
        | anything,
        context=likely({"arguments": {"size": "3"}}),
    ),
    "subscriptions/listen": params_of(
        notifications=likely(
            {}, {"toolsListChanged": True}, {"resourceSubscriptions": ["shop://hello"]}
        )
    ),
}
of_lists = params_of(cursor=likely(None, "W10"))


def aimed(method: str, said: st.SearchStrategy[Any] = metas) -> st.SearchStrategy[Any]:
    """Requests for `method` that may well be answered."""
    return st.builds(
        lambda id_, params, said: {
            "jsonrpc": "2.0",
            "id": id_,
            "method": method,
            "params": {**params, "_meta": said},
        },
        st.integers(-(2**53) + 1, 2**53 - 1) | texts,
        PARAMS.get(method, of_lists),
        said,
    )


#: MRTR, Supported Requests.
ASKING = ["tools/call", "prompts/get", "resources/read"]
asking = st.sampled_from(ASKING)
methods = st.sampled_from([*METHODS, "initialize", "ping"]) | texts
requests = st.one_of(
    asking.flatmap(aimed),
    asking.flatmap(aimed),
    methods.flatmap(aimed),
    methods.flatmap(lambda method: aimed(method, wrong_metas | anything)),
)
messages = (
    requests
    | requests
    | st.builds(
        lambda right, wrong: {**right, **wrong},
        requests,
        st.fixed_dictionaries(
            {},
            optional={
                "jsonrpc": anything,
                "id": anything,
                "method": anything,
                "params": anything,
            },
        ),
    )
)
header_names = st.sampled_from(
    ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region"]
)


@st.composite
def peers(draw: st.DrawFn, message: Any) -> Peer | None:
    """No headers, the headers of `message`, or others."""
    how = draw(st.sampled_from(["pipe", "pipe", "right", "wrong"]))
    if how == "pipe":
        return None
    headers: dict[str, Any] = {}
    if isinstance(read_message(message), Request):
        found: dict[str, Any] = headers_of(message)
        headers = {name: one for name, one in found.items() if isinstance(one, str)}
    if how == "wrong":
        headers |= draw(st.dictionaries(header_names, texts | st.none(), max_size=1))
    return Peer(headers={k: one for k, one in headers.items() if one is not None})


@given(messages, st.data(), st.sampled_from(["value", "text", "bytes"]))
def test_any_message_gets_a_reply_that_fits(
    message: Any, data: st.DataObject, form: str
) -> None:
    peer = data.draw(peers(message))
    sent: Any = message if form == "value" else json.dumps(message)
    _check(message, sent.encode() if form == "bytes" else sent, peer)


@given(st.binary() | texts | anything.map(json.dumps) | anything)
def test_anything_gets_a_reply_that_fits(message: Any) -> None:
    _check(None, message, None)


def _check(message: Any, sent: Any, peer: Peer | None) -> None:
    heard: list[Any] = []
    began = time.monotonic()
    reply = sync.handle(APP, sent, peer, send=heard.append)
    assert time.monotonic() - began < LIMIT
    read = read_message(sent)
    if isinstance(read, Notification):
        assert (reply.message, reply.status) == (None, 202)
        return
    assert reply.message is not None
    encode(reply.message)
    assert reply.status in (200, 400, 404)
    method = read.method if isinstance(read, Request) else None
    if isinstance(read, Request):
        assert reply.message["id"] == message["id"]
    fits_reply(method, reply)
    for notification in heard:
        encode(notification)
        fits("ServerNotification", notification)
    assert "secret" not in str(reply.message)
    if method not in ASKING:
        assert "input_required" not in str(reply.message.get("result", {}))


# ---- headers ------------------------------------------------------------------------

RIGHT: list[Wire] = [
    request("server/discover"),
    request("tools/list"),
    request("tools/call", {"name": "find", "arguments": {"region": "eu"}}),
    request("prompts/get", {"name": "ask"}),
    request("resources/read", {"uri": "shop://hello"}),
]


@given(st.sampled_from(RIGHT), st.data())
def test_headers_that_say_something_else(message: Wire, data: st.DataObject) -> None:
    headers = headers_of(message)
    region = message["params"].get("arguments", {}).get("region")
    if region is not None:
        headers["mcp-param-region"] = region
    assert sync.handle(APP, message, Peer(headers=headers)).status == 200
    name = data.draw(st.sampled_from(sorted(headers)))
    wrong = data.draw(st.none() | texts | st.text("abc/\t =?", max_size=9))
    if wrong is None:
        del headers[name]
    elif wrong.strip(" \t") == headers[name]:
        return
    else:
        headers[name] = wrong
    assert refused(sync.handle(APP, message, Peer(headers=headers))) == (400, -32020)
