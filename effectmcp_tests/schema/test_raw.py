from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from effectmcp import SchemaError
from effectmcp.schema import RawSchema, raw, references
from effectmcp.schema.raw import DIALECTS, MAX_BYTES

TEXT = {"type": "string"}


@pytest.fixture(autouse=True)
def engine() -> Any:
    raw._engine.cache_clear()
    yield
    raw._engine.cache_clear()


def test_without_the_engine_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(SchemaError, match=r"pip install effectmcp\[schema\]"):
        RawSchema({})


class TestWithTheEngine:
    @pytest.fixture(autouse=True)
    def jsonschema_rs(self) -> Any:
        return pytest.importorskip("jsonschema_rs", reason="checks raw schemas")

    def test_value_that_fits(self) -> None:
        assert RawSchema({"type": "integer"}).check(1.0) == []

    def test_every_problem_is_named(self) -> None:
        schema = {
            "properties": {
                "a": {"items": {"type": "integer"}},
                "b c": {"format": "email"},
            },
            "required": ["d"],
        }
        assert sorted(RawSchema(schema).check({"a": [1, "x"], "b c": "x"})) == [
            '["b c"]: it is not a "email"',
            'a[1]: it is not of type "integer"',
            'the value: "d" is a required property',
        ]

    def test_problems_do_not_pile_up(self) -> None:
        found = RawSchema({"items": TEXT}).check([1] * 10_000)
        assert len(found) == 101
        assert "more" in found[-1]

    def test_words_are_not_long(self) -> None:
        """Neither the value nor a long schema is quoted."""
        (problem,) = RawSchema({"enum": ["x" * 10_000]}).check("y" * 10_000)
        assert len(problem) < 400
        assert "y" not in problem.replace("only", "")

    def test_schema_is_copied(self) -> None:
        given: dict[str, Any] = {"properties": {"a": {}}}
        made = RawSchema(given)
        given["properties"]["a"]["type"] = "integer"
        assert made.schema == {"properties": {"a": {}}}

    @pytest.mark.parametrize("uri", DIALECTS)
    @pytest.mark.parametrize("end", ["", "#"])
    def test_dialects_are_honoured(self, uri: str, end: str) -> None:
        schema: dict[str, Any] = {"$schema": uri + end, "items": [TEXT]}
        if "2020" in uri:
            schema["items"] = TEXT
        assert RawSchema(schema).check([1])
        assert bool(RawSchema(schema).check(["a", 1])) is ("2020" in uri)

    @pytest.mark.parametrize(
        "uri", ["http://json-schema.org/draft-03/schema#", "http://a.b/c", "", 3]
    )
    def test_other_dialects_are_refused_by_name(self, uri: Any) -> None:
        with pytest.raises(SchemaError, match=f"the dialect {uri!r} is not one of"):
            RawSchema({"$schema": uri})

    def test_dialect_that_changes_inside_is_refused(self) -> None:
        draft7 = "http://json-schema.org/draft-07/schema#"
        assert RawSchema({"$schema": draft7, "not": {"$schema": draft7}}).check(1)
        with pytest.raises(SchemaError, match="the dialect changes inside"):
            RawSchema({"items": {"$schema": draft7}})

    @pytest.mark.parametrize(
        ("schema", "words"),
        [
            ({"type": "text"}, "not a valid schema at type: "),
            ({"properties": {"a": {"minimum": "x"}}}, "at properties.a.minimum: "),
            ({"pattern": "["}, 'it is not a "regex"'),
            ({"$ref": 3}, "not a valid schema"),
            ({"a": float("nan")}, "at /a: a number that JSON cannot carry"),
            ({"a": "\ud800"}, "a lone surrogate"),
            ({"a": (1,)}, "a tuple"),
            ([], "must be an object, not list"),
            (True, "must be an object, not bool"),
            (
                {"description": "x" * MAX_BYTES},
                "clients need not read more than 65,536",
            ),
            ({"$ref": "http://a.b/c"}, "leads out of the schema"),
        ],
    )
    def test_schemas_that_are_none_are_refused(self, schema: Any, words: str) -> None:
        with pytest.raises(SchemaError) as caught:
            RawSchema(schema, of="book's inputSchema")
        assert words in str(caught.value)
        assert str(caught.value).startswith("book's inputSchema")

    def test_deep_schema_is_refused(self) -> None:
        schema: dict[str, Any] = {}
        for _ in range(100):
            schema = {"items": schema}
        with pytest.raises(SchemaError, match="nested deeper than 64 levels"):
            RawSchema(schema)

    @pytest.mark.parametrize("uri", ["http://127.0.0.1:9/x", "file:///etc/passwd"])
    def test_nothing_is_fetched_where_our_own_look_misses_it(
        self, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(references.Document, "_find", lambda *_: {})
        with pytest.raises(SchemaError, match="nothing is ever fetched"):
            RawSchema({"$ref": uri})

    @pytest.mark.parametrize("uri", ["http://127.0.0.1:9/x", "file:///etc/passwd"])
    def test_pointer_makes_a_schema_of_what_is_under_an_unknown_keyword(
        self, uri: str
    ) -> None:
        with pytest.raises(SchemaError, match="leads out of the schema"):
            RawSchema({"$ref": "#/x", "x": {"$ref": uri}})

    def test_what_is_hidden_under_an_unknown_keyword_is_counted(self) -> None:
        """A value took for ever: the unions of unions there were not looked at."""
        hidden: dict[str, Any] = {
            f"a{n}": {"anyOf": [{"$ref": f"#/x/a{n + 1}"}, {"$ref": f"#/x/a{n + 1}"}]}
            for n in range(40)
        }
        hidden["a40"] = {"type": "string"}
        with pytest.raises(SchemaError, match="unfolds into more than"):
            RawSchema({"$ref": "#/x/a0", "x": hidden})

    def test_index_beyond_all_lists_leads_nowhere(self) -> None:
        with pytest.raises(SchemaError, match="leads nowhere"):
            RawSchema({"$ref": "#/allOf/" + "1" * 5000, "allOf": [{}]})

    def test_tool_without_arguments(self) -> None:
        schema = {"type": "object", "additionalProperties": False}
        said = ["the value: additional properties are not allowed"]
        assert RawSchema(schema).check({"a": 1}) == said
        said = ["a: is not allowed"]
        assert RawSchema({"properties": {"a": False}}).check({"a": 1}) == said

    def test_deep_value_under_a_recursive_schema_is_refused(self) -> None:
        """50,000 levels would kill the process."""
        value: Any = []
        for _ in range(50_000):
            value = [value]
        (problem,) = RawSchema({"items": {"$ref": "#"}}).check(value)
        assert problem.endswith("must not be nested deeper than 64 levels")
        while value:  # or else Python frees it by recursion
            value = value[0]

    @pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, float("nan"), 1j])
    def test_values_that_are_no_json_are_refused(self, value: Any) -> None:
        assert RawSchema({}).check(value)

    def test_large_integers_are_checked(self) -> None:
        assert RawSchema({"type": "integer"}).check(10**400) == []
        assert RawSchema({"maximum": 5}).check(10**400)

    def test_expression_that_takes_too_long_does_not_match(self) -> None:
        started = time.perf_counter()
        assert RawSchema({"pattern": r"(?<!x)(a|a)+\1$"}).check("a" * 50 + "b")
        assert time.perf_counter() - started < 5

    def test_schema_that_unfolds_without_end_is_refused(self) -> None:
        defs: dict[str, Any] = {
            f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)
        }
        with pytest.raises(SchemaError, match="unfolds into more than 10,000 schemas"):
            RawSchema({"$ref": "#/$defs/a0", "$defs": {**defs, "a40": TEXT}})

    def test_reasons_are_not_searched_for_without_end(self) -> None:
        """Minutes, at 20 levels, where the answer itself takes microseconds."""
        either = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
        one = {"type": "object", "properties": {"x": either}}
        made = RawSchema({**either, "$defs": {"A": one, "B": {**one, "title": "B"}}})
        assert made.check({"x": {"x": 1}})[0].startswith("the value: it is not valid")
        value: Any = 1
        for _ in range(60):
            value = {"x": value}
        started = time.perf_counter()
        (problem,) = made.check(value)
        assert "too deeply to say where" in problem
        assert time.perf_counter() - started < 1
