"""Authors' own types in all places: forms over rounds, steps, arguments, results."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Generator
from functools import partial
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import attrs
import msgspec
import pydantic
import pytest
from annotated_types import Ge
from typing_extensions import TypeAliasType

from effectmcp import (
    Elicit,
    Flow,
    Message,
    OutputError,
    Server,
    StepError,
    Text,
    ToolResult,
    UsageError,
    step,
)
from effectmcp.engine.effect_table import KINDS
from effectmcp.engine.steps import spec_of
from effectmcp.schema.declared import declared_by, place_of
from effectmcp.testing import MemoryClient

from ..typing import own_types
from ..typing.own_types import Guest

ANN = {"name": "Ann", "age": 33}
SAID = "Ann, 33: 2 nights from 28 Jul at Ritz"


@pytest.mark.parametrize("tool", ["by_model", "by_attrs", "by_dataclass"])
def test_wizard(tool: str) -> None:
    client = MemoryClient(own_types.app, {"Who?": ANN, "When": "2026-07-28", "How": 2})
    assert client.call_tool(tool, hotel="Ritz").text == SAID


def test_wizard_of_plain_types() -> None:
    answers = {"Who?": "Ann", "When": "2026-07-28", "How": 2}
    client = MemoryClient(own_types.app, answers)
    assert client.call_tool("by_plain_types", hotel="Ritz").text == SAID


class Secretive(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


class Link(pydantic.BaseModel):
    url: pydantic.HttpUrl
    seen: dict[str, dt.date] = pydantic.Field(alias="Seen")


class Stay(msgspec.Struct, rename="camel"):
    first_night: dt.date
    nights: Annotated[int, Ge(1)] = 1


@step
def linked(guest: Guest, stay: Stay) -> list[Link]:
    link = {"url": f"https://example.com/{guest.name}", "Seen": {"a": stay.first_night}}
    return [Link.model_validate(link)]


@step
def extended(stay: Stay) -> Stay:
    return Stay(stay.first_night, stay.nights + 1)


def recorded() -> Server:
    app = Server("recorded")

    @app.tool
    def tool(guest: Guest, stay: Stay) -> Flow[str]:
        (link,) = yield from linked(guest, stay)
        yield from Elicit("Go on?", bool)
        longer = yield from extended(stay)
        yield from Elicit("And now?", bool)
        return f"{link.url} {link.seen['a']} {longer.first_night:%b} {longer.nights}"

    return app


def test_steps_record_models_and_structs() -> None:
    """Each round brings them back from the state."""
    client = MemoryClient(recorded(), {"": True})
    stay = {"firstNight": "2026-07-28"}
    result = client.call_tool("tool", guest=ANN, stay=stay)
    assert result.text == "https://example.com/Ann 2026-07-28 Jul 2"


def test_step_of_a_secret_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A state is sealed, and not encrypted by every cipher's choice: no secrets there."""

    @step
    def login() -> Secretive:
        return Secretive(name="a", password=pydantic.SecretStr("b"))

    app = Server("secretive")

    @app.tool
    def tool() -> Flow[str]:
        found = yield from login()
        return found.name

    assert MemoryClient(app).call_tool("tool").is_error
    assert "SecretStr'>, which cannot be recorded" in caplog.text


class Cat(pydantic.BaseModel):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Loud(pydantic.BaseModel):
    word: str

    @pydantic.field_validator("word")
    @classmethod
    def louder(cls, value: str) -> str:
        return value + "!"


@step
def pet(kind: str) -> Cat | Dog:
    return Cat(lives=9) if kind == "cat" else Dog("Rex")


@step
def shout() -> list[Loud]:
    return [Loud(word="a")]


@attrs.frozen(eq=False)
class Held:
    loud: Loud


@step
def shout_by_name() -> dict[str, Loud]:
    return {"a": Loud(word="a")}


@step
def shout_inside() -> Held:
    return Held(Loud(word="a"))


@step
def guests() -> dict[str, Guest]:
    return {}


def test_unions_of_models_are_recorded() -> None:
    spec = spec_of(pet("cat"))
    for value in (Cat(lives=9), Dog("Rex")):
        assert spec.read(spec.write(value)) == value


def test_result_that_comes_back_as_something_else_is_refused() -> None:
    for one, value in (
        (shout(), [Loud(word="a")]),
        (shout_by_name(), {"a": Loud(word="a")}),
        (shout_inside(), Held(Loud(word="a"))),
    ):
        with pytest.raises(StepError, match="comes back as something else"):
            spec_of(one).write(value)
    spec = spec_of(guests())
    found = {"a": Guest(name="Ann", age=33)}
    assert spec.read(spec.write(found)) == found


# ---- meta ---------------------------------------------------------------------------


def test_meta_of_a_question() -> None:
    meta = {"example.com/widget": {"kind": "stars"}}
    app = Server("rated")

    @app.tool
    def rate() -> Flow[str]:
        stars = yield from Elicit("How was it?", int, meta=meta)
        return str(stars)

    client = MemoryClient(app, {"": 3})
    seen: list[Any] = []
    interim = client.send("tools/call", name="rate", arguments={})
    seen += [one["params"] for one in interim["inputRequests"].values()]
    assert seen[0]["_meta"] == meta
    assert client.call_tool("rate").text == "3"
    meta["example.com/widget"] = {"kind": "else"}  # the next call's


def test_other_meta_is_another_question() -> None:
    """An answer of one widget does not answer another one."""
    render = KINDS[Elicit].render
    plain, one, two = (
        render(Elicit("Who?", str, meta=meta)) for meta in (None, {"a": 1}, {"a": 2})
    )
    assert len({plain, one, two}) == 3


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ([1], "give a dict of JSON"),
        ({"a": {1}}, "set"),
        ({1: 2}, "1"),
        ({"progressToken": 1}, "own"),
        ({"io.modelcontextprotocol/a": 1}, "own"),
    ],
)
def test_meta_other_than_json_is_refused(meta: Any, words: str) -> None:
    with pytest.raises(UsageError, match=rf"Elicit\(meta=.*{words}"):
        Elicit("Who?", str, meta=meta)


# ---- results ------------------------------------------------------------------------


def problem(function: Any, kind: str = "tool") -> str:
    app = Server("declared")
    getattr(app, kind)(function)
    subject = {"tool": app.tools, "prompt": app.prompts}[kind]
    (feature,) = subject.values()
    assert feature.handler.declared is not None
    with pytest.raises(OutputError) as caught:
        feature.handler.declared.check(function())
    return str(caught.value)


T = TypeVar("T")


@attrs.frozen
class Generic_(Generic[T]):
    value: T


class Supports(Protocol):
    """No class of its values is known."""

    def __index__(self) -> int: ...


def says_text() -> str:
    return {1}  # type: ignore[return-value]  # wrong on purpose


def says_blocks() -> list[Text | str]:
    return [Text("a"), 3]  # type: ignore[list-item]  # wrong on purpose


def says_nothing() -> None:
    return 3  # type: ignore[return-value]  # wrong on purpose


def says_whole() -> ToolResult:
    return "a"  # type: ignore[return-value]  # wrong on purpose


def says_messages() -> list[Message]:
    return ["a"]  # type: ignore[list-item]  # wrong on purpose


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (says_text, "tool", "returned set, and its annotation says str"),
        (says_blocks, "tool", "returned list, and its annotation says list["),
        (says_nothing, "tool", "returned int, and its annotation says None"),
        (says_whole, "tool", "returned str, and its annotation says ToolResult"),
        (says_messages, "prompt", "returned list, and its annotation says list["),
    ],
)
def test_results_of_another_type(function: Any, kind: str, words: str) -> None:
    said = problem(function, kind)
    assert f"{function.__name__}() ({__file__}:" in said
    assert words in said


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (float, [1, 1.5], ["1"]),
        (Literal["a", "b"], ["a"], ["c"]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, []]),
        (tuple[int, str], [(1, "a")], [(1,), ("a", "a")]),
        (tuple[int, ...], [(1, 2), ()], [("a",)]),
        (set[str], [{"a"}], [{1}]),
        (own_types.Entry, [{"name": "a"}], ["a"]),
        (Annotated[str, "words"] | None, ["a", None], [1]),
        (TypeAliasType("Words", list[str]), [["a"]], [[1]]),
        (Supports, [1, "a"], []),
    ],
)
def test_declared_types(annotation: Any, good: list[Any], bad: list[Any]) -> None:
    declared = declared_by(says_text, annotation)
    assert declared is not None
    for value in good:
        declared.check(value)
    for value in bad:
        with pytest.raises(OutputError):
            declared.check(value)


@pytest.mark.parametrize("annotation", [Any, object, "Unknown", TypeVar("T")])
def test_any_result_of_an_open_type(annotation: Any) -> None:
    assert declared_by(says_text, annotation) is None
    assert declared_by(says_text, Generator[Any, Any, annotation]) is None


def test_flow_that_returns_another_type_than_it_declares(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Server("declared")

    @app.tool
    def order() -> Flow[str]:
        yield from Elicit("Go on?", bool)
        return {1, 2}  # type: ignore[return-value]  # wrong on purpose

    assert MemoryClient(app, {"": True}).call_tool("order").is_error
    assert re.search(r"order\(\) \(.*:\d+\) returned set", caplog.text)


def test_structured_result_that_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("declared")

    @app.tool
    def stays() -> list[Stay]:
        return [Stay(dt.date(2026, 7, 28), 0), 3]  # type: ignore[list-item]

    assert MemoryClient(app).call_tool("stays").is_error
    said = caplog.text
    assert "returned list, and promises list[" in said
    assert "[0].nights: must be at least 1; [1]: must be an object" in said


def test_results_that_fit() -> None:
    app = Server("declared")

    @app.tool
    def blocks(many: bool) -> str | list[Text] | None:
        return [Text("a")] if many else None

    client = MemoryClient(app)
    assert client.call_tool("blocks", many=True).text == "a"
    assert client.call_tool("blocks", many=False).text == ""


def test_place_of_a_function() -> None:
    assert place_of(partial(says_text)).startswith("says_text() (")
    assert place_of(len) == "len()"


def test_values_of_generic_classes() -> None:
    declared = declared_by(says_text, tuple[list[Any], Generic_[int]])
    assert declared is not None
    declared.check(([1, "a"], Generic_(1)))


@step
def loud_or_cat() -> Loud | Cat:
    return Cat(lives=9)


def test_member_that_comes_back_as_something_else_is_not_taken() -> None:
    spec = spec_of(loud_or_cat())
    assert spec.read(spec.write(Cat(lives=9))) == Cat(lives=9)
    with pytest.raises(StepError, match="does not come back"):
        spec.write(Loud(word="a"))


def test_result_of_another_union_is_refused() -> None:
    with pytest.raises(StepError, match="does not come back"):
        spec_of(pet("cat")).write(3)


Words = TypeAliasType("Words", list[str])


@step
def words() -> Words:
    return ["a"]


def test_alias_as_the_result_of_a_step() -> None:
    spec = spec_of(words())
    assert spec.read(spec.write(["a"])) == ["a"]
