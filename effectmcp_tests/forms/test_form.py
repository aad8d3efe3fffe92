from __future__ import annotations

import copy
import enum
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Optional

import attrs
import pytest

from effectmcp.canonical import dumps
from effectmcp.errors import FormError
from effectmcp.forms import Choices, Form, Title, Unfit, form, form_of

Size = Literal["s", "l"]


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Person:
    name: str
    age: int | None = None


@attrs.frozen
class Spoilt:
    name: Annotated[str, "\ud800"]


RAW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    },
    "required": ["name"],
}


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Unhashable()"


def problems(made: Form[Any], content: Any) -> list[str]:
    with pytest.raises(Unfit) as caught:
        made.read(content)
    assert str(caught.value) == "; ".join(caught.value.problems)
    return caught.value.problems


def refusal(annotation: Any, title: str | None = None) -> str:
    with pytest.raises(FormError) as caught:
        form_of(annotation, title)
    return caught.value.problem


def raw(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RAW), **changes}


def output_of(program: str) -> str:
    """Return the output of `program` in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout


# ---- one field ----------------------------------------------------------------------


def test_value_is_asked_for_by_that_name() -> None:
    made = form_of(str, "Your name")
    assert made.schema == {
        "type": "object",
        "properties": {"value": {"type": "string", "title": "Your name"}},
        "required": ["value"],
    }
    assert made.build(made.read({"value": "Ann"})) == "Ann"


def test_value_optional() -> None:
    """`None` means only that the field was left out."""
    for annotation in (Size | None, Level | None, list[Size] | None):
        made = form_of(annotation)
        assert "required" not in made.schema
        assert made.read(None) == {}
        assert made.build({}) is None
        assert problems(made, {"value": None}) == ["value: leave it out instead"]


def test_value_false_is_a_value() -> None:
    for annotation, value in ((bool, False), (int, 0), (str, "")):
        made = form_of(annotation)
        assert made.build(made.read({"value": value})) == value


def test_value_list_is_new_each_time() -> None:
    made = form_of(list[Size])
    recorded = made.read({"value": ["s"]})
    assert made.build(recorded) is not made.build(recorded)


# ---- reading ------------------------------------------------------------------------


def test_read_names_every_problem() -> None:
    made = form_of(Person)
    assert problems(made, {"age": None}) == [
        "name: is required",
        "age: leave it out instead",
    ]
    assert problems(made, {"name": None, "age": 1.5}) == [
        "name: is required",
        "age: must be a whole number",
    ]


def test_read_drops_what_it_does_not_know() -> None:
    made = form_of(Person)
    assert made.read({"name": "Ann", "nick": "A", "": 1}) == {"name": "Ann"}


def test_read_records_what_was_meant() -> None:
    made = form_of(Person)
    assert dumps(made.read({"age": 3.0, "name": "Ann"})) == b'{"age":3,"name":"Ann"}'


@pytest.mark.parametrize("content", [[], "name", 1, True, [["name", "Ann"]]])
def test_read_of_anything_but_an_object(content: Any) -> None:
    problem = "the answer must be an object with the fields name, age"
    assert problems(form_of(Person), content) == [problem]


def test_read_of_nothing_is_an_empty_answer() -> None:
    """A client that has nothing to fill in may leave `content` out altogether."""
    assert problems(form_of(Person), None) == ["name: is required"]


# ---- forms are made once ------------------------------------------------------------


def test_form_of_is_cached() -> None:
    for annotation in (str, Person, Size, list[Size], Annotated[int, Title("n")]):
        assert form_of(annotation) is form_of(annotation)
    assert form_of(str) is not form_of(str, "Name")


def test_form_of_keeps_the_order_of_choices() -> None:
    """The two are equal to Python, but each must keep its own order."""
    ab, ba = form_of(Literal["a", "b"]), form_of(Literal["b", "a"])
    assert ab.schema["properties"]["value"]["enum"] == ["a", "b"]
    assert ba.schema["properties"]["value"]["enum"] == ["b", "a"]
    listed = form_of(list[Literal["b", "a"]])
    assert listed.schema["properties"]["value"]["items"]["enum"] == ["b", "a"]


def test_text_does_not_depend_on_the_order_of_choices() -> None:
    """Which `typing` does not keep: it caches Optional[Literal[...]] by equality."""
    assert form_of(Literal["a", "b"]).text == form_of(Literal["b", "a"]).text
    assert form_of(Literal["a", "b"]).text != form_of(Literal["a", "c"]).text
    assert form_of(Literal["a", "b"]).text != form_of(list[Literal["a", "b"]]).text
    titles = Choices(c="C", d="D")
    cd, dc = form_of(Annotated[Literal["c", "d"], titles]), Literal["d", "c"]
    assert cd.text == form_of(Annotated[dc, Choices(c="C", d="D"), object()]).text
    assert cd.text != form_of(Annotated[dc, Choices(c="D", d="C")]).text


@pytest.mark.parametrize(
    "pair",
    [
        ('Literal["a", "b"]', 'Literal["b", "a"]'),
        ('Optional[Literal["a", "b"]]', 'Optional[Literal["b", "a"]]'),
        ('list[Literal["a", "b"]]', 'list[Literal["b", "a"]]'),
        (
            'Annotated[Literal["a", "b"], Choices(a="A", b="B")]',
            'Annotated[Literal["b", "a"], Choices(a="A", b="B")]',
        ),
        (
            'Annotated[list[Literal["a", "b"]], Choices(a="A", b="B")]',
            'Annotated[list[Literal["b", "a"]], Choices(a="A", b="B")]',
        ),
    ],
)
def test_text_does_not_depend_on_what_was_asked_first(pair: tuple[str, str]) -> None:
    program = (
        "from typing import *\n"
        "from effectmcp.forms import Choices, form_of\n"
        "texts = {name: form_of(eval(name)).text for name in %r}\n"
        "print(sorted(texts.items()))"
    )
    forwards, backwards = (
        output_of(program % (pair,)),
        output_of(program % (pair[::-1],)),
    )
    assert forwards == backwards


def test_text_is_canonical() -> None:
    assert form_of(Person).text == dumps(dict(form_of(Person).schema))
    assert form_of(RAW).text == dumps(RAW)


@pytest.mark.parametrize("annotation", [str, Annotated[int, "a note"], Literal["a"]])
def test_single_field_without_a_title_is_called_answer(annotation: Any) -> None:
    """Hosts label a field without a title with its name, which is `value`."""
    assert form_of(annotation).schema["properties"]["value"]["title"] == "Answer"
    for titled in (
        form_of(annotation, "Name"),
        form_of(Annotated[annotation, Title("Name")]),
    ):
        assert titled.schema["properties"]["value"]["title"] == "Name"


def test_title_of_a_single_field_is_not_in_the_fingerprint() -> None:
    """Earlier versions asked without it, and their questions are in open states."""
    assert form_of(str).text == (
        b'{"properties":{"value":{"type":"string"}},"required":["value"],'
        b'"type":"object"}'
    )
    assert form_of(str, "Answer").text != form_of(str).text


def test_form_of_metadata_that_cannot_be_hashed() -> None:
    """Annotations belong to other libraries as well."""
    annotation = Annotated[int, Unhashable()]
    properties = form_of(annotation).schema["properties"]
    assert properties == {"value": {"type": "integer", "title": "Answer"}}
    assert form_of(annotation).text == form_of(int).text


def test_form_of_lets_other_type_errors_pass() -> None:
    class Broken:
        def __eq__(self, other: object) -> bool:
            raise TypeError("broken")

        def __hash__(self) -> int:
            raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        form_of(Annotated[int, Broken()])


def test_form_checks_at_import() -> None:
    @form
    @attrs.frozen
    class Fine:
        name: str

    assert Fine("Ann").name == "Ann"
    with pytest.raises(FormError, match=r"Bad\.name: bytes cannot be shown"):

        @form
        @attrs.frozen
        class Bad:
            name: bytes


def test_form_below_attrs() -> None:
    """The decorators the wrong way round: at that time it is not an attrs class yet."""
    with pytest.raises(
        FormError,
        match="has no fields: decorate it with @attrs.frozen or @dataclass, below @form",
    ):

        @attrs.frozen
        @form
        class Bad:
            name: str


def test_title_belongs_to_one_field() -> None:
    assert refusal(Person, "Person").startswith("Person: title= labels a form of one")
    assert refusal(RAW, "Person").startswith("title= labels a form of one field")


def test_lone_surrogates_are_named() -> None:
    problem = refusal(str, "\ud800")
    assert problem.startswith("this form: at /properties/value/title: a lone surrogate")
    assert refusal(Spoilt).startswith("Spoilt: at /properties/name/description: a lone")
    properties = {"a": {"type": "string", "enum": ["\ud800"]}}
    problem = refusal({"type": "object", "properties": properties})
    assert problem.startswith("the form's schema: at /properties/a/enum/0: a lone")


# ---- raw schemas --------------------------------------------------------------------


def test_raw() -> None:
    made = form_of(RAW)
    assert made.schema == RAW
    recorded = made.read({"name": "Ann", "tags": ["a"], "more": 1})
    assert made.build(recorded) == {"name": "Ann", "tags": ["a"]}
    assert problems(made, {"name": "", "tags": ["c"]}) == [
        "name: must have at least 1 character",
        "tags: may hold only 'a', 'b'",
    ]


def test_raw_default_is_for_the_client() -> None:
    """Missing fields stay missing: the author interprets a raw schema."""
    properties = {"name": {"type": "string", "default": "Ann"}}
    made = form_of({"type": "object", "properties": properties})
    assert made.build(made.read({})) == {}


def test_raw_builds_a_new_value_each_time() -> None:
    made = form_of(RAW)
    recorded = made.read({"name": "Ann", "tags": ["a"]})
    first, second = made.build(recorded), made.build(recorded)
    first["tags"].append("b")
    first["name"] = "Bob"
    assert second == recorded == {"name": "Ann", "tags": ["a"]}


def test_raw_is_not_changed_by_its_author() -> None:
    """An author may build one dict and edit it between two questions."""
    schema = raw()
    made = form_of(schema)
    schema["properties"]["name"]["title"] = "Name"
    schema["required"].clear()
    assert made.schema == RAW
    assert dumps(dict(made.schema)) == made.text


class Read(Mapping[str, Any]):
    """A mapping other than a dict, as in configuration libraries."""

    def __getitem__(self, key: str) -> Any:
        return RAW[key]

    def __iter__(self) -> Iterator[str]:
        return iter(RAW)

    def __len__(self) -> int:
        return len(RAW)


@pytest.mark.parametrize("schema", [MappingProxyType(RAW), Read()])
def test_raw_mapping(schema: Mapping[str, Any]) -> None:
    assert form_of(schema).text == form_of(RAW).text


def test_raw_may_name_its_dialect() -> None:
    dialect = "https://json-schema.org/draft/2020-12/schema"
    assert form_of(raw(**{"$schema": dialect})).schema["$schema"] == dialect
    problem = "the form's schema: '$schema' must be text"
    assert refusal(raw(**{"$schema": None})) == problem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"title": "x"}, "clients do not know 'title' there"),
        ({"additionalProperties": False}, "clients do not know 'additionalProperties'"),
        ({"$defs": {}}, "clients do not know '$defs' there"),
        ({"type": "string"}, "must be {'type': 'object', 'properties': {…}}"),
        ({"type": None}, "must be {'type': 'object', 'properties': {…}}"),
        ({"properties": None}, "must be {'type': 'object', 'properties': {…}}"),
        ({"properties": []}, "must be {'type': 'object', 'properties': {…}}"),
        ({"required": ["nick"]}, "'required' must list known properties, each once"),
        ({"required": ["name"] * 2}, "'required' must list known properties, each"),
        ({"required": "name"}, "'required' must list known properties, each once"),
        ({"required": [["name"]]}, "'required' must list known properties, each once"),
        ({"required": None}, "'required' must list known properties, each once"),
    ],
)
def test_raw_refused(changes: dict[str, Any], words: str) -> None:
    assert refusal(raw(**changes)).startswith(f"the form's schema: {words}")


def test_raw_refused_by_field() -> None:
    problem = refusal({"type": "object", "properties": {"a b": {"type": "object"}}})
    assert problem.startswith("the form's field 'a b': the type 'object' cannot be")


def test_raw_keys_are_strings() -> None:
    problem = refusal({"type": "object", "properties": {1: {"type": "string"}}})
    assert problem.startswith("the form's schema: at /properties: the key 1, where")


def test_raw_without_properties() -> None:
    made = form_of({"type": "object", "properties": {}, "required": []})
    assert made.read(None) == {}
    assert json.loads(made.text) == made.schema


# ---- what the hot path pays ---------------------------------------------------------


def test_import_stays_light() -> None:
    """Authors pay for an import at every start: no module that forms seldom need."""
    loaded = output_of(
        "import sys, attrs, typing_extensions\n"
        "before = set(sys.modules)\n"
        "import effectmcp.forms\n"
        "heavy = {'dataclasses', 'decimal', 'ipaddress', 'jsonschema_rs', 'cattrs'}\n"
        "print(sorted((set(sys.modules) - before) & heavy))"
    )
    found = loaded.strip()
    assert found == "[]", (
        f"do not import {found} at the top: see 'A form type' in CONTRIBUTING.md"
    )


def test_optional_in_either_spelling() -> None:
    assert form_of(Optional[int]).text == form_of(int | None).text  # noqa: UP045
