from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.canonical import MAX_SAFE_INTEGER
from effectmcp.errors import EffectMCPError, SchemaError
from effectmcp.protocol import headers
from effectmcp.protocol.headers import (
    HeaderMismatch,
    ParamHeader,
    check_method,
    check_name,
    check_params,
    check_version,
    decode_value,
    encode_value,
    param_headers,
)

REGION = ParamHeader("Region", ("region",), "string")
COUNT = ParamHeader("Count", ("count",), "integer")
DRY = ParamHeader("Dry", ("dry",), "boolean")

texts = st.text(st.characters(exclude_categories=["Cs"]))
safe_integers = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
#: What may arrive in a header, or what some servers let arrive.
raw_texts = st.text() | st.text(alphabet="=?base64SGVs! \t\x00é-.0129eE")


def mismatch(check: Any, *args: Any) -> str:
    """The problem that `check` finds; every one can be written into an answer."""
    with pytest.raises(HeaderMismatch) as caught:
        check(*args)
    problem = caught.value.problem
    assert problem.encode("utf-8").decode() == problem
    assert problem.isprintable()
    assert len(problem) < 600
    return problem


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def refusal(input_schema: dict[str, Any]) -> str:
    with pytest.raises(SchemaError) as caught:
        param_headers(input_schema)
    caught.value.problem.encode("utf-8")
    return caught.value.problem


# ---- values -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("a\tb c", "a\tb c"),
        ("\ta", "=?base64?CWE=?="),
        ("a\x7f", "=?base64?YX8=?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("=?base64?x", "=?base64?x"),
        ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ("SGVsbG8=", "SGVsbG8="),
        ("", ""),
    ],
)
def test_encode_value(value: str, text: str) -> None:
    """The table of Value Encoding, and its neighbours; each read back as it was."""
    assert encode_value(value) == text
    assert decode_value(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (-7, "-7"),
        (MAX_SAFE_INTEGER, "9007199254740991"),
        (-MAX_SAFE_INTEGER, "-9007199254740991"),
    ],
)
def test_encode_value_that_is_not_a_string(value: int, text: str) -> None:
    assert encode_value(value) == text


@pytest.mark.parametrize(
    "value", [2**53, -(2**53), pytest.param(10**5000, id="huge"), "\ud800"]
)
def test_encode_value_refuses(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"integer beyond|surrogate"):
        encode_value(value)


@given(texts)
@example("=?base64??=")
@example(" ")
def test_encoded_value_comes_back(value: str) -> None:
    """The value survives a reader of HTTP that strips it."""
    text = encode_value(value)
    assert text.isascii()
    assert text == text.strip()
    assert all(char == "\t" or char.isprintable() for char in text)
    assert decode_value(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=?base64?SGVsbG8?=", "no proper Base64"),
        ("=?base64?SGVs!!!bG8=?=", "no proper Base64"),
        ("=?base64?SGVs bG8=?=", "no proper Base64"),
        ("=?base64?SGVsbG8==?=", "no proper Base64"),
        ("=?base64?SGVsbG9=?=", "no proper Base64"),
        ("=?base64?SGVsbG8=SGVsbG8=?=", "no proper Base64"),
        ("=?base64?_-8=?=", "no proper Base64"),
        ("=?base64?=?=", "no proper Base64"),
        ("=?base64?=", "no proper Base64"),
        ("=?base64?/w==?=", "something else than UTF-8"),
        ("=?base64?7aCA?=", "something else than UTF-8"),
        ("é", "characters that no header"),
        ("a\nb", "characters that no header"),
        ("\x00", "characters that no header"),
        ("\x7f", "characters that no header"),
        ("=?base64?é?=", "characters that no header"),
    ],
)
def test_decode_value_refuses(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_value(text)


@pytest.mark.parametrize("text", ["=?base64?SGVsbG8=", "SGVsbG8=?=", "?base64?eA==?="])
def test_decode_value_with_one_mark_is_literal(text: str) -> None:
    assert decode_value(text) == text


@given(raw_texts)
@example("=?base64?SGVsbG8=?=")
def test_decode_value_reads_one_way(text: str) -> None:
    """Each string is plain, or the only Base64 of its value, or a `ValueError`."""
    try:
        value = decode_value(text)
    except ValueError:
        return
    data = b64encode(value.encode()).decode()
    assert text in (value, f"=?base64?{data}?=")


# ---- annotations --------------------------------------------------------------------


def test_param_headers_of_nested_properties() -> None:
    """Names of properties are names, and data is data, in any form."""
    look_alike = {"x-mcp-header": 1}
    found = param_headers(
        {
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "x-mcp-header": {"type": "string"},
                "where": schema(
                    count={"type": "integer", "x-mcp-header": "count"},
                    properties={"type": "boolean", "x-mcp-header": "!#$%&'*+-.^_`|~9"},
                ),
                "any": True,
                "data": {
                    "const": look_alike,
                    "default": look_alike,
                    "enum": [look_alike],
                    "examples": [look_alike],
                },
            },
            "patternProperties": {"x-mcp-header": {}},
            "$defs": {"x-mcp-header": {"items": [{}, True]}},
            "dependencies": {"a": ["x-mcp-header"]},
            "required": ["x-mcp-header"],
        }
    )
    assert found == (
        ParamHeader("Region", ("region",), "string"),
        ParamHeader("count", ("where", "count"), "integer"),
        ParamHeader("!#$%&'*+-.^_`|~9", ("where", "properties"), "boolean"),
    )
    assert found[0].header == "Mcp-Param-Region"


@pytest.mark.parametrize("empty", [{}, {"type": "object"}, {"properties": {}}])
def test_param_headers_of_none(empty: dict[str, Any]) -> None:
    assert param_headers(empty) == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "must not be empty"),
        (None, "must be text"),
        (1, "must be text"),
        (["Region"], "must be text"),
        ("two words", "'two words' is no name of a header"),
        ("a:b", "'a:b' is no name"),
        ("a\r\nX: y", r"'a\r\nX: y' is no name"),
        ("a\n", r"'a\n' is no name"),
        ("é", "'é' is no name"),
        ("\ud800", r"'\ud800' is no name"),
        ("(" * 999, "(…' is no name"),
    ],
)
def test_param_headers_refuses_names(name: Any, words: str) -> None:
    part = {"type": "string", "x-mcp-header": name}
    problem = refusal(schema(where=schema(region=part)))
    assert problem.startswith("where.region: ")
    assert words in problem


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        ({"type": "number"}, "here is the type 'number'"),
        ({"type": "object"}, "here is the type 'object'"),
        ({"type": "array"}, "here is the type 'array'"),
        ({"type": "null"}, "here is the type 'null'"),
        ({}, "here is not a type"),
        ({"$ref": "#/$defs/region"}, "here is not a type"),
        ({"type": ["string", "null"]}, "here is several types"),
    ],
)
def test_param_headers_refuses_types(type_: dict[str, Any], words: str) -> None:
    problem = refusal(schema(region={**type_, "x-mcp-header": "Region"}))
    assert problem.startswith("region: x-mcp-header belongs on a string")
    assert words in problem


def test_param_headers_refuses_a_name_twice() -> None:
    problem = refusal(
        schema(
            a={"type": "string", "x-mcp-header": "Region"},
            b=schema(c={"type": "integer", "x-mcp-header": "REGION"}),
        )
    )
    assert problem.startswith("b.c: the x-mcp-header 'REGION' is also that of a,")


ANNOTATED = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    ("part", "keyword"),
    [
        ({"items": ANNOTATED}, "items"),
        ({"items": [ANNOTATED]}, "items"),
        ({"prefixItems": [{}, ANNOTATED]}, "prefixItems"),
        ({"contains": ANNOTATED}, "contains"),
        ({"anyOf": [ANNOTATED, {"type": "null"}]}, "anyOf"),
        ({"oneOf": [ANNOTATED]}, "oneOf"),
        ({"allOf": [schema(a=ANNOTATED)]}, "allOf"),
        ({"not": ANNOTATED}, "not"),
        ({"if": schema(a=ANNOTATED)}, "if"),
        ({"then": schema(a=ANNOTATED)}, "then"),
        ({"else": schema(a=ANNOTATED)}, "else"),
        ({"$defs": {"x": ANNOTATED}}, "$defs"),
        ({"definitions": {"x": ANNOTATED}}, "definitions"),
        ({"dependentSchemas": {"x": schema(a=ANNOTATED)}}, "dependentSchemas"),
        ({"patternProperties": {"x": ANNOTATED}}, "patternProperties"),
        ({"additionalProperties": ANNOTATED}, "additionalProperties"),
        ({"propertyNames": ANNOTATED}, "propertyNames"),
        ({"x-parts": {"a": [ANNOTATED]}}, "x-parts"),
        ({"properties": ANNOTATED | {"a": [ANNOTATED]}}, "a list"),
        ({"properties": [ANNOTATED]}, "properties"),
    ],
)
def test_param_headers_refuses_places(part: dict[str, Any], keyword: str) -> None:
    """Anywhere but at the end of a chain of `properties`, at any depth."""
    words = f"x-mcp-header stands under {keyword!r}"
    assert words in refusal(part)
    problem = refusal(schema(where=part))
    assert problem.startswith("where")
    assert words in problem


def test_param_headers_refuses_the_root() -> None:
    assert refusal(ANNOTATED).startswith("the schema: x-mcp-header belongs on one of")


def test_param_headers_of_a_deep_schema() -> None:
    """A stranger's schema may be as deep as it likes: no recursion, no long message."""
    deep: dict[str, Any] = {"x-mcp-header": ""}
    for _ in range(2_000):
        deep = {"properties": {"odd \ud800 name": deep}}
    problem = refusal(deep)
    assert problem.startswith(r"'odd \ud800 name'.'odd")
    assert len(problem) < 300


# ---- standard headers ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "header"),
    [
        (check_version, "MCP-Protocol-Version"),
        (check_method, "Mcp-Method"),
        (check_name, "Mcp-Name"),
    ],
)
def test_check_standard(check: Any, header: str) -> None:
    field = header.lower()
    check({field: "tools/call"}, "tools/call")
    check({field: " \t tools/call\t"}, "tools/call")
    assert mismatch(check, {}, "x") == (
        f"{header} header is missing, and the body value is 'x'"
    )
    assert mismatch(check, {field: "TOOLS/CALL"}, "tools/call") == (
        f"{header} header value 'TOOLS/CALL' does not match body value 'tools/call'"
    )
    assert mismatch(check, {field: "é"}, "é") == (
        f"{header} header value 'é' has characters that no header may have"
    )
    assert "does not match" in mismatch(check, {field: "x" * 9999}, "\ud800\n" * 9999)
    assert "does not match" in mismatch(check, {field: "\xa0x".strip()}, "\xa0x")


def test_check_standard_decodes_the_name_alone() -> None:
    text = encode_value("Zürich")
    check_name({"mcp-name": text}, "Zürich")
    check_name({"mcp-name": f"  {text} "}, "Zürich")
    assert "does not match" in mismatch(check_name, {"mcp-name": text}, text)
    assert "does not match" in mismatch(check_method, {"mcp-method": text}, "Zürich")
    check_method({"mcp-method": text}, text)
    assert mismatch(check_name, {"mcp-name": "=?base64?eA?="}, "x") == (
        "Mcp-Name header value '=?base64?eA?=' is no proper Base64 between its marks"
    )


def test_mismatch_message_and_code() -> None:
    error = HeaderMismatch(
        "Mcp-Name header value 'foo' does not match body value 'bar'"
    )
    assert str(error) == (
        "Header mismatch: Mcp-Name header value 'foo' does not match body value 'bar'"
    )
    assert error.CODE == -32020
    assert isinstance(error, EffectMCPError)


@given(texts, raw_texts)
def test_check_name_takes_one_value(name: str, text: str) -> None:
    """A client's encoding is accepted; any other only when it means the same."""
    check_name({"mcp-name": encode_value(name)}, name)
    try:
        check_name({"mcp-name": text}, name)
    except HeaderMismatch:
        return
    assert name in (text.strip(" \t"), decode_value(text.strip(" \t")))


@given(st.from_regex(r"[A-Za-z0-9._/-]+", fullmatch=True) | raw_texts)
@example("tools/call")
def test_simple_names_read_the_same_the_long_way(text: str) -> None:
    """The short way is equivalent: there, the header is the string of the body."""
    if headers._is_simple(text):
        assert headers._read_decoded({"mcp-name": text}, "Mcp-Name") == text
        assert headers._read({"mcp-method": text}, "Mcp-Method") == text
    else:
        assert not (text.isascii() and text.isalnum())


# ---- headers of arguments -----------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Hello", "Hello"),
        ("Hello", "=?base64?SGVsbG8=?="),
        ("Hello", "\tHello "),
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("", ""),
        ("", "=?base64??="),
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (42, "42.0"),
        (42, "4.2e1"),
        (42, "=?base64?NDI=?="),
        (42.0, "42"),
        (1_000_000, "1e+06"),
        (0, "-0"),
        (-0.0, "0"),
        (MAX_SAFE_INTEGER, "9007199254740991"),
        (-MAX_SAFE_INTEGER, "-9007199254740991.00"),
        (float(MAX_SAFE_INTEGER), "9.007199254740991E15"),
        # Not an integer; but the check of the arguments reports that.
        (42.5, "42.5"),
    ],
)
@pytest.mark.parametrize("type_", ["string", "integer", "boolean"])
def test_check_params_takes(value: Any, text: str, type_: Any) -> None:
    """The schema's type does not matter: arguments are checked elsewhere."""
    rule = ParamHeader("X", ("x",), type_)
    check_params({"mcp-param-x": text}, (rule,), {"x": value})


@pytest.mark.parametrize(
    ("value", "text", "words"),
    [
        ("Hello", None, "header is missing, and the body value is 'Hello'"),
        ("Hello", "hello", "value 'hello' does not match body value 'Hello'"),
        ("Hello", "=?base64?SGVsbG8?=", "is no proper Base64"),
        ("Hello", "=?base64?SGVs!!!bG8=?=", "is no proper Base64"),
        ("é", "é", "has characters that no header may have"),
        ("42", "42.0", "does not match body value '42'"),
        (" a", " a", "value 'a' does not match body value ' a'"),
        (True, None, "the body value is true"),
        (True, "True", "does not match body value true"),
        (True, "1", "does not match body value true"),
        (False, "true", "does not match body value false"),
        (False, "", "does not match body value false"),
        (1, "true", "does not match body value 1"),
        (42, "43", "does not match body value 42"),
        (42, "042", "does not match body value 42"),
        (42, "+42", "does not match body value 42"),
        (42, "0x2A", "does not match body value 42"),
        (42, "4_2", "does not match body value 42"),
        (42, "42.", "does not match body value 42"),
        (42, "=?base64?77yU77yS?=", "value '４２' does not match body value 42"),
        (42, "1e9999999999", "does not match body value 42"),
        (42, "42.00000000000000000000001", "does not match body value 42"),
        (42.5, "42", "does not match body value 42.5"),
        (2**53, "9007199254740992", "body value a number beyond ±(2**53 - 1)"),
        (-(2**53), "-9007199254740992", "body value a number beyond"),
        pytest.param(10**5000, "1", "body value a number beyond", id="huge"),
        (1e300, "1e300", "body value a number beyond"),
        (float("nan"), "nan", "body value a number beyond"),
        ([], "[]", "does not match body value an array"),
        ({}, "{}", "does not match body value an object"),
        ([1], None, "the body value is an array"),
        (None, "", "value '' does not match the body, which has no value at x"),
        (None, "null", "value 'null' does not match the body, which has no value at x"),
    ],
)
def test_check_params_refuses(value: Any, text: str | None, words: str) -> None:
    headers = {} if text is None else {"mcp-param-x": text}
    rule = ParamHeader("X", ("x",), "string")
    problem = mismatch(check_params, headers, (rule,), {"x": value})
    assert problem.startswith("Mcp-Param-X header ")
    assert words in problem


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"where": None},
        {"where": {}},
        {"where": {"region": None}},
        {"where": "eu"},
        {"where": ["region"]},
        {"region": "eu"},
        {"where.region": "eu"},
    ],
)
def test_check_params_without_a_value(arguments: dict[str, Any]) -> None:
    """The exact path counts: this header has no value from elsewhere."""
    rule = ParamHeader("Region", ("where", "region"), "string")
    assert rule.value_in(arguments) is None
    check_params({}, (rule,), arguments)
    assert mismatch(check_params, {"mcp-param-region": "eu"}, (rule,), arguments) == (
        "Mcp-Param-Region header value 'eu' does not match the body, which has no value"
        " at where.region"
    )


def test_check_params_checks_every_rule() -> None:
    rules = (REGION, COUNT, DRY)
    arguments = {"region": "eu", "count": 2, "dry": True}
    headers = {
        "mcp-param-region": "eu",
        "mcp-param-count": "2",
        "mcp-param-dry": "true",
        "mcp-param-unknown": "whatever",
    }
    check_params(headers, rules, arguments)
    for rule in rules:
        field = rule.header.lower()
        for wrong in ({}, {field: "x"}):
            others = {key: one for key, one in headers.items() if key != field}
            problem = mismatch(check_params, others | wrong, rules, arguments)
            assert problem.startswith(rule.header)


@given(st.one_of(texts, safe_integers, st.booleans()))
def test_check_params_takes_what_a_client_sends(value: Any) -> None:
    rules = param_headers(schema(a=schema(x={"type": "string", "x-mcp-header": "X"})))
    check_params({"mcp-param-x": encode_value(value)}, rules, {"a": {"x": value}})


@given(safe_integers, st.sampled_from([-2, -1, 1, 2]))
@example(MAX_SAFE_INTEGER, 1)
def test_check_params_distinguishes_neighbours(value: int, offset: int) -> None:
    """No rounding, however large: a header that is one off is another number."""
    for text in (str(value + offset), f"{value + offset}.0"):
        headers = {"mcp-param-count": text}
        assert "not match" in mismatch(
            check_params, headers, (COUNT,), {"count": value}
        )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(raw_texts, json_values)
def test_check_params_raises_nothing_else(text: str, value: Any) -> None:
    headers = {"mcp-param-x": text}
    rule = ParamHeader("X", ("x",), "integer")
    said = ""
    try:
        check_params(headers, (rule,), {"x": value})
    except HeaderMismatch as error:
        said = str(error)
    assert said.encode("utf-8").decode() == said
    assert len(said) < 600
