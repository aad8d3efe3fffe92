"""`effectmcp.schema` costs little until it is used, and jsonschema-rs nothing until then."""

from __future__ import annotations

from ..test_exports import HEAVY, loaded_by


def test_importing_the_schemas_loads_nothing_heavy() -> None:
    heavy = HEAVY | {"jsonschema_rs", "difflib", "socket", "subprocess"}
    assert loaded_by("import effectmcp.schema", of=heavy) == set()


def test_typed_schemas_do_without_the_engine_of_raw_ones() -> None:
    code = "from effectmcp.schema import input_of; input_of(lambda x: x).read({'x': 1})"
    assert loaded_by(code, of={"jsonschema_rs", "cattrs"}) == set()


def test_libraries_of_authors_are_not_imported() -> None:
    """An app that uses such a library has imported it."""
    code = (
        "import effectmcp, attrs, typing; from effectmcp.forms import form_of;"
        " from effectmcp.schema import input_of, output_of;"
        " made = attrs.make_class('Made', {'x': attrs.field(type=int)});"
        " form_of(made); input_of(lambda x: x); output_of(typing.Annotated[int, 3])"
    )
    libraries = {"annotated_types", "msgspec", "pydantic", "pydantic_core"}
    assert loaded_by(code, of=libraries) == set()
