from __future__ import annotations

from typing import Any

import pytest

from effectmcp import SchemaError
from effectmcp.schema.references import Document, all_parts

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": TEXT}},
        {"$ref": "#/$defs/a~1b%20~0c", "$defs": {"a/b ~c": TEXT}},
        {"$ref": "#/allOf/0", "allOf": [TEXT]},
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
        {"$ref": "#foo", "$defs": {"a": {"$anchor": "foo"}}},
        {"$dynamicRef": "#foo", "$defs": {"a": {"$dynamicAnchor": "foo"}}},
        {"$recursiveRef": "#"},
        {"$ref": "item", "$defs": {"a": {"$id": "item"}}},
        {"$ref": "http://a.b/c", "$defs": {"a": {"$id": "http://a.b/c"}}},
        {"$id": "http://a.b/c", "$ref": "d", "$defs": {"a": {"$id": "d"}}},
        {"$id": "http://a.b/c", "$ref": "http://a.b/c#/$defs/a", "$defs": {"a": TEXT}},
        {"$id": "urn:x:y", "$ref": "#/$defs/a", "$defs": {"a": TEXT}},
        {"$ref": "#foo", "definitions": {"a": {"$id": "#foo"}}},
        {"properties": {"$ref": TEXT, "$id": TEXT, "id": TEXT}},
        {"enum": [{"$ref": "http://a.b/c"}]},
        {"$ref": 3},
    ],
)
def test_references_inside_the_schema(schema: Any) -> None:
    Document(schema, "it")


@pytest.mark.parametrize(
    ("draft", "schema"),
    [
        (4, {"$ref": "item", "definitions": {"a": {"id": "item"}}}),
        (4, {"definitions": {"a": {"$id": "x", "items": {"$ref": "#/definitions"}}}}),
        (7, {"definitions": {"a": {"id": "x", "items": {"$ref": "#/definitions"}}}}),
        (None, {"$defs": {"a": {"id": "x", "items": {"$ref": "#/$defs"}}}}),
        (7, {"definitions": {"a": {"$id": "x", "$ref": "#/definitions"}}}),
        (4, {"definitions": {"a": {"id": "x", "$ref": "#/definitions"}}}),
    ],
)
def test_names_are_what_the_dialect_says(draft: int | None, schema: Any) -> None:
    """A reference to a name in another dialect's keyword must not be refused."""
    Document(schema, "it", draft=draft)


def test_name_beside_a_reference_is_one_since_2019() -> None:
    with pytest.raises(SchemaError, match="leads nowhere"):
        Document({"$defs": {"a": {"$id": "x", "$ref": "#/$defs"}}}, "it")


@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1/a",
        "https://json-schema.org/draft/2020-12/schema",
        "file:///etc/passwd",
        "other.json",
        "//host/x",
        "urn:x:y",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_references_out_of_the_schema_are_refused(reference: str, keyword: str) -> None:
    schema = {"properties": {"a": {"items": {keyword: reference}}}}
    with pytest.raises(
        SchemaError, match="leads out of .*nothing is fetched"
    ) as caught:
        Document(schema, "it")
    assert f"it: {keyword} {reference!r}" in str(caught.value)


@pytest.mark.parametrize(
    "reference", ["#/$defs/b", "#/$defs/a/type", "#/allOf/1", "#/allOf/x", "#foo"]
)
def test_references_that_lead_nowhere_are_refused(reference: str) -> None:
    schema = {"$ref": reference, "$defs": {"a": TEXT}, "allOf": [TEXT]}
    with pytest.raises(SchemaError, match="leads nowhere"):
        Document(schema, "it")


@pytest.mark.parametrize("keyword", ["$ref", "$id"])
def test_references_with_invalid_addresses_are_refused(keyword: str) -> None:
    with pytest.raises(SchemaError, match=r"it: \$\w+ 'http://\[' is no address"):
        Document({keyword: "http://["}, "it")


def test_parts() -> None:
    schema = {"items": {"not": TEXT}, "anyOf": [TEXT]}
    assert len(list(all_parts(schema))) == 4


# ---- counting ----


def chain(length: int) -> dict[str, Any]:
    """Each of these is twice the next."""
    defs: dict[str, Any] = {
        f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(length)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{length}": TEXT}}


def test_unfolded_schemas_are_counted() -> None:
    assert Document({"items": TEXT, "$defs": {"a": TEXT}}, "it").unfolded() == 2
    assert Document(chain(0), "it").unfolded() == 2
    assert Document(chain(60), "it").unfolded() == 10**9


def test_unfolded_schemas_of_a_long_chain_are_too_many() -> None:
    defs = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(2000)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**defs, "a2000": TEXT}}
    assert Document(schema, "it").unfolded() == 10**9


def test_schema_that_holds_itself_is_counted_once() -> None:
    assert Document({"items": {"$ref": "#"}}, "it").unfolded() == 2


def test_ways_grow_with_the_depth_of_the_value() -> None:
    tree = Document(
        {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}, "it"
    )
    assert tree.ways(0) < tree.ways(1) < tree.ways(10)
    assert tree.ways(64) == 10**9
    flat = Document({"items": TEXT}, "it")
    assert flat.ways(64) == flat.ways(1) == 2
