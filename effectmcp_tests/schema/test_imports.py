"""`effectmcp.schema` costs little until it is used, and jsonschema-rs nothing until then."""

from __future__ import annotations

from ..test_exports import HEAVY, loaded_by


def test_importing_the_schemas_loads_nothing_heavy() -> None:
    heavy = HEAVY | {"jsonschema_rs", "difflib", "socket", "subprocess"}
    assert loaded_by("import effectmcp.schema", of=heavy) == set()


def test_typed_schemas_do_without_the_engine_of_raw_ones() -> None:
    code = "from effectmcp.schema import input_of; input_of(lambda x: x).read({'x': 1})"
    assert loaded_by(code, of={"jsonschema_rs", "cattrs"}) == set()
