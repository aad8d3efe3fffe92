from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest

from effectmcp import ArgumentsError, Elicit, Flow, Provided, SchemaError
from effectmcp.compat import awaits_effects
from effectmcp.lowlevel import Given, InputRequired
from effectmcp.server.handlers import Handler, make_handler, read_texts

# ---- kinds ----


def plain(a: int) -> int:
    """A plain one."""
    return a


async def awaited(a: int) -> int:
    return a


def flow(a: int) -> Flow[int]:
    yield from Elicit("?", str)
    return a


def handed_on(a: int) -> Flow[int]:
    """Return a flow: not a generator function, and its annotation is a string."""
    return flow(a)


@awaits_effects
async def marked(a: int) -> int:
    await Elicit("?", str)
    return a


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def made_async(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Object:
    def __call__(self, a: int) -> int:
        return a

    def method(self, a: int) -> Flow[int]:
        yield from Elicit("?", str)
        return a


class AsyncObject:
    async def __call__(self, a: int) -> int:
        return a


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (plain, "plain"),
        (awaited, "async"),
        (flow, "flow"),
        (handed_on, "flow"),
        (marked, "flow"),
        (decorated(plain), "plain"),
        (decorated(awaited), "async"),
        (decorated(flow), "flow"),
        (made_async(plain), "async"),
        (functools.partial(plain), "plain"),
        (functools.partial(functools.partial(flow)), "flow"),
        (Object(), "plain"),
        (Object().method, "flow"),
        (AsyncObject(), "async"),
    ],
)
def test_handler_kind(function: Any, kind: str) -> None:
    handler = make_handler(function)
    assert handler.kind == kind
    assert handler.takes.read({"a": 1}) == {"a": 1}


def test_handler_of_a_given_is_a_flow() -> None:
    def order(given: Given = Provided()) -> str | InputRequired:
        return "x"

    handler = make_handler(order)
    assert (handler.kind, handler.returns, handler.provided) == ("flow", str, {})


def test_handler_has_name_and_types() -> None:
    handler = make_handler(functools.partial(plain))
    assert (handler.name, handler.returns, handler.provided) == ("plain", int, {})
    assert handler.takes.description == "A plain one."
    assert make_handler(Object()).name == "Object"


def test_handler_with_provided_parameters() -> None:
    def report(title: str, pool: Object = Provided()) -> str:
        return title

    handler = make_handler(report)
    assert handler.provided == {"pool": Object}
    assert list(handler.takes.schema["properties"]) == ["title"]


# ---- refusals ----


def test_handler_that_is_not_a_function() -> None:
    with pytest.raises(SchemaError, match="5 is no function"):
        make_handler(5)  # type: ignore[arg-type]
    name: Any = "order"
    with pytest.raises(SchemaError, match="'order' is no function; .* name='order'"):
        make_handler(name)


def test_handler_that_is_an_unbound_method() -> None:
    class Shop:
        def order(self, title: str) -> str:
            return title

        @staticmethod
        def price(title: str) -> str:
            return title

    with pytest.raises(SchemaError, match="order is a method"):
        make_handler(Shop.order)
    shop = Shop()
    for bound in (shop.order, functools.partial(Shop.order, shop)):
        assert list(make_handler(bound).takes.schema["properties"]) == ["title"]
    assert list(make_handler(Shop.price).takes.schema["properties"]) == ["title"]

    def order(self: str) -> str:
        return self

    assert list(make_handler(order).takes.schema["properties"]) == ["self"]


def test_handler_that_is_an_async_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, decorated(numbers)):
        with pytest.raises(SchemaError, match="async generator"):
            make_handler(function)


def test_flow_that_would_be_provided_with_something() -> None:
    def order(pool: Object = Provided()) -> Flow[None]:
        yield from Elicit("?", str)

    with pytest.raises(SchemaError, match=r"order\(pool\).*Take it in a step"):
        make_handler(order)


def test_flow_that_keeps_its_own_state_too() -> None:
    def order() -> Flow[InputRequired]:
        yield from Elicit("?", str)
        return InputRequired({})

    with pytest.raises(SchemaError, match="has no use for Given"):
        make_handler(order)


# ---- schemas by hand ----

RAW = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_handler_with_a_schema_by_hand() -> None:
    def anything(**kwargs: Any) -> None:
        """What it does,
        in two lines.

        And more.
        """

    takes = make_handler(anything, schema=RAW, of="it").takes
    assert takes.schema == RAW
    assert takes.description == "What it does, in two lines."
    assert takes.read({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}
    with pytest.raises(ArgumentsError, match="a: "):
        takes.read({"a": "x"})
    assert make_handler(lambda **kwargs: None, schema=RAW).takes.description == ""


def test_schema_by_hand_that_does_not_name_arguments() -> None:
    with pytest.raises(SchemaError, match='it must have "type": "object"'):
        make_handler(plain, schema={"type": "array"}, of="it")


def test_schema_by_hand_whose_type_does_not_count() -> None:
    """Draft 7 ignores keywords beside a reference."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "$ref": "#/definitions/any",
        "definitions": {"any": {}},
    }
    takes = make_handler(plain, schema=schema, of="it").takes
    with pytest.raises(ArgumentsError, match="must be an object"):
        takes.read([])


# ---- strings ----


def texts(
    a: int = 0,
    b: float = 0.0,
    c: bool = False,
    d: str = "",
    e: int | None = None,
    f: bool | str = False,
    g: Literal[1, 2] = 1,
) -> None: ...


TEXTS: Handler = make_handler(texts)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a", "5", 5),
        ("a", "-5", -5),
        ("a", "0", 0),
        ("b", "5", 5.0),
        ("b", "-0.5e1", -5.0),
        ("c", "true", True),
        ("c", "false", False),
        ("d", "5", "5"),
        ("d", "true", "true"),
        ("e", "5", 5),
        ("f", "true", True),
        ("f", "yes", "yes"),
        ("g", "2", 2),
    ],
)
def test_read_of_strings_returns_values(name: str, text: str, value: Any) -> None:
    (found,) = read_texts(TEXTS, {name: text}).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "five"),
        ("a", " 5"),
        ("a", "1_000"),
        ("a", "٣"),
        ("a", "05"),
        ("a", "5.0"),
        ("a", "9" * 5_000),
        ("b", "nan"),
        ("b", "inf"),
        ("b", "1e9999"),
        ("b", ".5"),
        ("c", "True"),
        ("c", "1"),
        ("e", "null"),
        ("g", "3"),
        ("unknown", "x"),
    ],
)
def test_read_of_strings_refuses_what_does_not_fit(name: str, text: str) -> None:
    """Values are written as in JSON; Python-only notation is refused."""
    with pytest.raises(ArgumentsError):
        read_texts(TEXTS, {name: text})


def test_read_of_strings_reports_every_problem() -> None:
    with pytest.raises(ArgumentsError) as caught:
        read_texts(TEXTS, {"a": "x", "c": "x"})
    assert len(caught.value.problems) == 2
