from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, frozen

from effectmcp import (
    Accepted,
    Confirm,
    Elicit,
    Flow,
    Message,
    OutputError,
    SchemaError,
    Server,
    UsageError,
)
from effectmcp.compat import awaits_effects
from effectmcp.effects.steps import Provided
from effectmcp.lowlevel import Given, InputRequired
from effectmcp.testing.subjects import Origin, Subject, subject_of, subjects_of

HERE = __name__


@frozen
class Guest:
    name: str
    age: int = 0


def greet(guest: Guest) -> Flow[int]:
    yield from Confirm(f"Is {guest.name} here?")
    return guest.age


def plain(title: str) -> str:
    return title


@awaits_effects
async def waits(title: str) -> str:
    return await Elicit(f"Who wants {title}?", str)


def remembers(title: str, given: Given = Provided()) -> str | InputRequired:
    match given.answers.get("who"):
        case Accepted(content):
            return f"{title} for {content['value']}"
        case None:
            return InputRequired({"who": Elicit(f"Who wants {title}?", str)})
        case _:
            return "nobody"


def asks_twice(title: str) -> Flow[str]:
    name = yield from Elicit("Who?", str)
    return f"{title} {name}"


class Shop:
    def sell(self, title: str) -> Flow[str]:
        return (yield from asks_twice(title))

    def __call__(self, title: str) -> Flow[str]:
        return (yield from asks_twice(title))


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        return (yield from function(**kwargs))

    return wrapper


@decorated
def wrapped(title: str) -> Flow[str]:
    return (yield from asks_twice(title))


class Other:
    @staticmethod
    def inside(title: str) -> Flow[str]:
        return (yield from asks_twice(title))


app = Server("subjects", version="1.0")


@app.tool(name="other.name")
def tool(title: str) -> Flow[str]:
    return (yield from asks_twice(title))


@app.tool
def boring(title: str) -> str:
    return title


@app.prompt
def prompt(title: str) -> Flow[Message]:
    name = yield from Elicit("Who?", str)
    return Message(f"{title} {name}", role="user")


@app.resource("shop://book")
def book() -> Flow[str]:
    return (yield from asks_twice("book"))


@app.resource("shop://books/{title}", mime_type="text/plain")
def books(title: str) -> Flow[str]:
    return (yield from asks_twice(title))


def first_line(function: Any) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def by_name() -> dict[str, Subject]:
    return {one.name: one for one in subjects_of(app)}


# ---- one function -------------------------------------------------------------------


def test_a_function_is_what_a_tool_would_make_of_it() -> None:
    subject = subject_of(greet)
    assert (subject.name, subject.target, subject.method) == (
        *("greet", "greet"),
        "tools/call",
    )
    assert subject.function is greet
    assert subject.where == first_line(greet)
    assert subject.origin == Origin(HERE, __file__, "greet")


def test_arguments_are_built_for_each_call() -> None:
    subject = subject_of(greet)
    arguments = {"guest": {"name": "Ann"}}
    first, second = subject.read(arguments), subject.read(arguments)
    assert first == second == {"guest": Guest("Ann")}
    assert first["guest"] is not second["guest"]


def test_a_result_is_what_a_client_sees() -> None:
    assert subject_of(greet).result(7) == {
        "content": [{"type": "text", "text": "7"}],
        "structuredContent": 7,
    }
    with pytest.raises(OutputError):
        subject_of(greet).result("seven")


@pytest.mark.parametrize(
    "handler", [waits, remembers, Shop().sell, Shop(), Other.inside, wrapped]
)
def test_every_handler_that_asks_is_a_subject(handler: Callable[..., Any]) -> None:
    subject = subject_of(handler)
    assert subject.read({"title": "Dune"})["title"] == "Dune"


def test_where_is_the_line_of_the_authors_own_function() -> None:
    """Decorators apart, also where the function is not a function at all."""
    inner: Any = wrapped
    assert subject_of(wrapped).where == first_line(inner.__wrapped__)
    assert subject_of(Shop().sell).where == first_line(Shop.sell)
    partial = functools.partial(asks_twice, "Dune")
    assert subject_of(partial).where == first_line(asks_twice)
    assert subject_of(remembers).where == first_line(remembers)
    assert subject_of(Shop()).where is None


def test_where_of_a_decorated_object() -> None:
    """Decorators may wrap a partial, which has no code of its own."""
    made = decorated(functools.partial(asks_twice))
    made.__annotations__.clear()  # like decorators without annotations
    assert subject_of(made).where == first_line(asks_twice)


def test_a_partial_that_keeps_its_own_state() -> None:
    partial = functools.partial(remembers)
    assert subject_of(partial).where == first_line(remembers)


def test_names_are_made_to_fit() -> None:
    """A lambda has a name that no tool may have."""
    made: Callable[..., Any] = lambda: asks_twice("Dune")  # noqa: E731
    made.__annotations__["return"] = Flow[str]
    assert subject_of(made).name == "_lambda_"
    long = evolve_name(greet, "a" * 200)
    assert subject_of(long).name == "a" * 128
    assert subject_of(Shop()).name == "Shop"


def evolve_name(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def copy(**kwargs: Any) -> Any:
        return (yield from function(**kwargs))

    copy.__name__ = name
    return copy


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(UsageError, match=f"{HERE}:plain yields no effects") as caught:
        subject_of(plain)
    assert "a plain test can call it" in str(caught.value)


def test_functions_that_cannot_be_tools_are_refused() -> None:
    def asks(what: types.ModuleType) -> Flow[str]:
        return (yield from asks_twice(what.__name__))

    with pytest.raises(SchemaError):
        subject_of(asks)


# ---- where another process finds it -------------------------------------------------


def test_origin_is_a_path_in_a_module() -> None:
    assert subject_of(Other.inside).origin == Origin(HERE, __file__, "Other.inside")


def test_handlers_without_a_path_have_no_origin() -> None:
    def local() -> Flow[str]:
        return (yield from asks_twice("Dune"))

    for handler in (local, Shop(), functools.partial(asks_twice, "Dune")):
        assert subject_of(handler).origin is None


def test_a_script_has_no_origin() -> None:
    """Loading `__main__` again would run it again."""

    def local() -> Flow[str]:
        return (yield from asks_twice("Dune"))

    main: Any = sys.modules["__main__"]
    local.__module__, local.__qualname__ = "__main__", "found_nowhere_else"
    main.found_nowhere_else = local
    try:
        assert subject_of(local).origin is None
    finally:
        del main.found_nowhere_else


def test_a_module_without_a_file_has_none_in_its_origin() -> None:
    module: Any = types.ModuleType("made_up")
    exec(  # the function must be of that module
        "from effectmcp import Elicit\n"
        "def ask():\n"
        "    return (yield from Elicit('Who?', str))\n",
        module.__dict__,
    )
    sys.modules["made_up"] = module
    try:
        assert subject_of(module.ask).origin == Origin("made_up", None, "ask")
    finally:
        del sys.modules["made_up"]


# ---- a server -----------------------------------------------------------------------


def test_the_subjects_of_a_server_are_the_handlers_that_ask() -> None:
    assert [(one.name, one.method) for one in subjects_of(app)] == [
        ("other.name", "tools/call"),
        ("prompt", "prompts/get"),
        ("shop://book", "resources/read"),
        ("shop://books/{title}", "resources/read"),
    ]


def test_origins_lead_through_the_server() -> None:
    found = {one.name: one.origin for one in subjects_of(app)}
    assert found["other.name"] == Origin(HERE, __file__, "app", "tools", "other.name")
    key = "shop://books/{title}"
    assert found[key] == Origin(HERE, __file__, "app", "templates", key)


def test_a_server_in_another_module_than_its_functions_is_found() -> None:
    elsewhere: Any = types.ModuleType("elsewhere")
    elsewhere.app = Server("elsewhere", version="1.0")
    elsewhere.app.tool(asks_twice)
    sys.modules["elsewhere"] = elsewhere
    try:
        (subject,) = subjects_of(elsewhere.app)
        assert subject.origin == Origin("elsewhere", None, "app", "tools", "asks_twice")
    finally:
        del sys.modules["elsewhere"]


def test_a_server_outside_of_modules_has_no_origin() -> None:
    local = Server("local", version="1.0")
    local.tool(asks_twice)
    (subject,) = subjects_of(local)
    assert subject.origin is None


def test_a_module_that_was_taken_out_is_passed_over() -> None:
    """`None` in `sys.modules` is how an import is forbidden."""
    local = Server("local", version="1.0")
    local.tool(asks_twice)
    sys.modules["forbidden_module"] = None  # type: ignore[assignment]
    try:
        (subject,) = subjects_of(local)
        assert subject.origin is None
    finally:
        del sys.modules["forbidden_module"]


def test_results_of_prompts_and_resources() -> None:
    subjects = by_name()
    prompted: Any = subjects["prompt"].result(Message("Hello", role="user"))
    assert prompted["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Hello"}}
    ]
    read: Any = subjects["shop://book"].result("text")
    assert read["contents"][0]["uri"] == "shop://book"
    read = subjects["shop://books/{title}"].result("text")
    assert read["contents"][0]["text"] == "text"


def test_two_subjects_of_one_function_are_two() -> None:
    """Subjects compare by identity, so none is mistaken for another."""
    one = subject_of(greet)
    assert one != subject_of(greet)
    assert evolve(one, target="b").name == "b"
