from __future__ import annotations

import enum
import json
import math
import sys
from collections import OrderedDict
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import canonical, json_text
from effectmcp.canonical import (
    MAX_DEPTH,
    MAX_SAFE_INTEGER,
    chunks_by,
    dumps,
    loads,
    parse,
)
from effectmcp.errors import CanonicalError
from effectmcp.json_text import JsonText

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def exact(value: Any) -> Any:
    """`value` with the types that `==` cannot see: `1`, `1.0`, `True`, `-0.0`."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return (type(value), repr(value))


def refusal(value: Any, **options: bool) -> str:
    with pytest.raises(CanonicalError) as caught:
        dumps(value, **options)
    return caught.value.problem


def parse_refusal(text: str | bytes) -> str:
    with pytest.raises(CanonicalError) as caught:
        parse(text)
    return caught.value.problem


# ---- there and back -----------------------------------------------------------------


@given(json_values)
@example(-0.0)
@example(1.0)
@example(10**30)
@example(1e300)
@example(2**53 + 1)
@example({"": {"\x00": ["\u2028", "é", "e\u0301"]}})
def test_round_trip(value: Any) -> None:
    """Both readers return the value that `dumps` took, with the same types."""
    text = dumps(value)
    assert exact(loads(text)) == exact(value)
    assert exact(parse(text)) == exact(value)
    assert exact(parse(text.decode())) == exact(value)


@given(json_values)
def test_dumps_one_form_per_value(value: Any) -> None:
    """Writing a parsed value again produces the same bytes: one form per value."""
    text = dumps(value)
    assert dumps(loads(text)) == text


@given(st.dictionaries(st.text(), st.integers()))
def test_dumps_ignores_key_order(value: dict[str, int]) -> None:
    backwards = dict(reversed(value.items()))
    assert dumps(backwards) == dumps(value)


def test_dumps_golden() -> None:
    value = {"b": [1, 1.0, 1e-7, True, None], "a": 'é"\n', "B": {}}
    assert dumps(value) == (
        b'{"B":{},"a":"\xc3\xa9\\"\\n","b":[1,1.0,1e-07,true,null]}'
    )


def test_dumps_keeps_normal_forms_apart() -> None:
    assert dumps("\u00e9") != dumps("e\u0301")


# ---- what dumps refuses -------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((1,), "a tuple, which would come back as a list"),
        ({1}, "a set, whose order differs"),
        (frozenset({1}), "a set, whose order differs"),
        (Colour.RED, "a value of type Colour"),
        (Text("a"), "a value of type Text"),
        (OrderedDict(), "a value of type OrderedDict"),
        (b"a", "a value of type bytes"),
        (object, "a value of type type"),
        ({1: 2}, "the key 1, where JSON has only strings"),
        ({Text("a"): 2}, "the key 'a', where JSON has only strings"),
        ({None: 2}, "the key None, where JSON has only strings"),
    ],
)
def test_dumps_refuses(value: Any, words: str) -> None:
    assert refusal(value).startswith(words)
    assert refusal({"a": [0, value]}).startswith(f"at /a/1: {words}")


def test_dumps_refuses_numbers_that_json_lacks() -> None:
    """The last one has more digits than Python agrees to write."""
    for number in (math.nan, math.inf, -math.inf, 10**5000):
        assert refusal(number).startswith("a number that JSON cannot carry")
        assert refusal([0, {"a": number}]).startswith("at /1/a: a number that")


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_dumps_refuses_lone_surrogates(text: str) -> None:
    assert refusal(text).startswith("a lone surrogate")
    assert refusal({"b": "fine", "a": ["fine", text]}).startswith("at /a/1: a lone")


def test_dumps_refuses_lone_surrogates_in_keys() -> None:
    """The message can be printed, although the key cannot."""
    assert refusal({"a": {"\ud800": 1}}).startswith("at /a: a lone surrogate")
    problem = refusal({"\ud800": (1,)})
    assert problem.startswith("at /\\ud800: a tuple")
    problem.encode("utf-8")


def test_dumps_depth() -> None:
    assert loads(dumps(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    assert f"nested deeper than {MAX_DEPTH} levels" in refusal(nested(MAX_DEPTH + 1))


def test_dumps_refuses_a_value_inside_itself() -> None:
    value: list[Any] = []
    value.append(value)
    assert "nested deeper" in refusal(value)


@pytest.mark.parametrize("sign", [1, -1])
def test_dumps_safe_integers(sign: int) -> None:
    """JavaScript cannot tell 2**53 from 2**53 + 1; a float it reads as we do."""
    largest = sign * MAX_SAFE_INTEGER
    for value in (largest, [largest], {"a": {"b": largest}}, 1e300, [True], "text"):
        assert dumps(value, safe_integers=True) == dumps(value)
    words = "an integer beyond ±(2**53 - 1)"
    assert refusal(largest + sign, safe_integers=True).startswith(words)
    wrapped = [{"a": largest + sign}]
    assert refusal(wrapped, safe_integers=True).startswith(f"at /0/a: {words}")


# ---- what parse refuses -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("nul", "not JSON"),
        ("1 2", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ("[1,]", "not JSON"),
        ("01", "not JSON"),
        ("\ufeff1", "not JSON"),
        ('"\n"', "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        ('{"a":1,"b":{"c":1,"c":1}}', "an object with the same key twice"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("1e400", "a number that JSON cannot carry"),
        ("-1e400", "a number that JSON cannot carry"),
        ("9" * 5000, "not JSON"),
        (r'"\ud800"', "a lone surrogate"),
        ('"\ud800"', "a lone surrogate"),
        (r'{"\udc00":1}', "a lone surrogate"),
    ],
)
def test_parse_refuses(text: str | bytes, words: str) -> None:
    assert parse_refusal(text).startswith(words)
    if isinstance(text, str):
        assert parse_refusal(text + " " * 20_000).startswith(words)


def test_parse_pairs_surrogates() -> None:
    assert parse(r'"\ud83d\ude00"') == "\N{GRINNING FACE}"


def test_chunks_are_the_same_without_an_encoder_in_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyPy has no such encoder."""
    encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False)
    value = {"b": [1, 0.5, None, "é\n"], "a": {}}
    in_c = "".join(chunks_by(encoder)(value, 0))
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert "".join(chunks_by(encoder)(value, 0)) == in_c == encoder.encode(value)


def test_parse_reads_what_dumps_would_not_write() -> None:
    assert parse(' {"b" : 1.50, "a" : [ 18446744073709551616 ] } ') == {
        "b": 1.5,
        "a": [2**64],
    }


def test_parse_depth() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse(text) == nested(MAX_DEPTH)
    assert parse(f'{{"a":1,"b":{text[1:-1]}}}') is not None
    assert "nested deeper" in parse_refusal(f'{{"a":{text}}}')


@pytest.mark.parametrize("opening", ["[", '{"a":', "[{", '"\\"[" [', 'x"'])
def test_parse_refuses_a_flood_of_brackets(opening: str) -> None:
    """Before the decoder sees it: its recursion is on the caller's stack."""
    parse_refusal(opening * 200_000)


def test_parse_does_not_count_brackets_in_strings() -> None:
    text = json.dumps(["[{" * MAX_DEPTH, '"[' * 3 * MAX_DEPTH, "]" * MAX_DEPTH])
    assert parse(text) == json.loads(text)


def test_parse_counts_open_brackets_only() -> None:
    text = f"[{','.join(['[{}]'] * MAX_DEPTH)}]"
    assert parse(text) == [[{}]] * MAX_DEPTH


@given(st.text(alphabet='[]{}",:\\ue1-.0aN ', max_size=200))
@example('{"a":1,"a":1}')
@example("-0")
@example("1E400")
def test_parse_agrees_with_json(text: str) -> None:
    """`parse` reads a string as the standard library does, or refuses it."""
    try:
        value = parse(text)
    except CanonicalError:
        return
    assert exact(value) == exact(json.loads(text))


pieces = st.sampled_from(
    [
        r"\ud83d",
        r"\ude00",
        r"\uDBFF",
        r"\\ud800",
        r"\u00e9",
        "\ud800",
        "é",
        "\\n",
        "u",
        "d",
    ]
)
tokens = st.lists(pieces).map(lambda found: f'"{"".join(found)}"') | st.sampled_from(
    ["1e400", "-1E+0400", "1e-400", f"1{'0' * 400}.5", f"1{'0' * 400}", "1e308", "0.5"]
)


@given(st.lists(tokens | st.tuples(tokens, tokens).map("[{0[0]},{0[1]}]".format)))
def test_parse_refuses_what_dumps_would_refuse(found: list[str]) -> None:
    """The check reads the text, and reports what writing the value would report."""
    text = f"[{','.join(found)}]"
    value = json.loads(text)
    problem = None
    try:
        dumps(value)
    except CanonicalError as exc:
        problem = exc.problem
    if problem is None:
        assert exact(parse(text)) == exact(value)
    else:
        assert parse_refusal(text) == problem


def depth_of(text: str) -> int:
    """The greatest depth of a decoder: one character after the other."""
    depth = deepest = 0
    in_string = False
    characters = iter(text)
    for char in characters:
        if in_string and char == "\\":
            next(characters, None)
        elif char == '"':
            in_string = not in_string
        elif in_string:
            pass
        elif char == "\\":
            break  # nothing that JSON knows
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


@given(st.text(alphabet='[]{}"\\a\ud800', max_size=40), st.integers(1, 4))
@example('"\\\\"[[', 1)
@example('"\\\\\\"[["', 1)
@example('\\"[[', 1)
@example("]]]][[", 1)
@example("[{}[[", 2)
@example("[[]{{", 2)
def test_parse_lets_nothing_deep_reach_the_decoder(text: str, max_depth: int) -> None:
    problem = ""
    try:
        parse(text, max_depth=max_depth)
    except CanonicalError as exc:
        problem = exc.problem
    if depth_of(text) > max_depth:
        assert problem == f"nested deeper than {max_depth} levels"


@given(json_values, st.integers(1, 4))
def test_parse_refuses_only_what_is_deep(value: Any, max_depth: int) -> None:
    text = json.dumps(value)
    if depth_of(text) <= max_depth:
        assert exact(parse(text, max_depth=max_depth)) == exact(value)


def steps_of(text: str) -> int:
    """The number of lines of Python that run to parse `text`."""
    steps = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal steps
        steps += frame.f_code.co_filename == canonical.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        parse(text)
    except CanonicalError:
        pass
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("piece", ["[", '{"":', '"[",', "[],", '"\\\\\\"",', "[1e9],"])
def test_parse_checks_no_character_by_itself(piece: str) -> None:
    """However many a stranger sends, which may be 4 MB: C does that."""
    few, many = (f"[{piece * count}[]]" for count in (20_000, 100_000))
    assert steps_of(many) == steps_of(few) < 40


def test_parse_takes_so_many_steps_a_value() -> None:
    """Two for a string or a number, three or four for an object or a list."""
    row = {"name": 'A "quoted" text, [bracketed]', "tags": ["a", "b\n"], "count": 7}
    few, many = (steps_of(json.dumps([row] * count)) for count in (1_000, 4_000))
    assert few <= 40 + 24 * 1_000
    assert many <= 40 + 24 * 4_000


def parse_with_a_hook(text: str, max_depth: int = MAX_DEPTH) -> Any:
    """Parse as the decoder does with a function that sees the pairs of each object."""

    def judge(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise CanonicalError("an object with the same key twice")
        return dict(pairs)

    def refuse(name: str) -> None:
        raise CanonicalError(f"{name} is not JSON")

    data = text.encode("utf-8", "surrogatepass")
    if JsonText(data).is_deeper(max_depth):  # see below for what it finds
        raise CanonicalError(f"nested deeper than {max_depth} levels")
    try:
        value = json.loads(text, object_pairs_hook=judge, parse_constant=refuse)
    except CanonicalError:
        raise
    except ValueError as exc:
        raise CanonicalError(f"not JSON: {exc}") from None
    dumps(value, max_depth=max_depth)
    return value


def written(value: Any) -> str:
    """Write `value` as JSON; objects are lists of pairs, which may share their keys."""
    if isinstance(value, tuple):
        members = (f"{json.dumps(key)}: {written(item)}" for key, item in value)
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return json.dumps(value)


keys = st.text(alphabet='a:"\\', max_size=2)
twin_values = st.recursive(
    st.none() | st.floats() | st.text(alphabet=':"\\,{}\ud800', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(st.tuples(keys, inner), max_size=4).map(tuple)
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(["", "", "", " ", "\n"]),
    twin_values.map(written) | st.text(alphabet='{}[]":,a\\1e9 ', max_size=30),
    st.sampled_from(["", "", "", " ", ":", "\n", "{}", "\\"]),
    st.integers(1, 4),
)
@example("", '{"a":{"b":1},"a":":"}', "", 4)
@example("", '[{"a":1,"a":2},NaN]', "", 4)
@example("", '[NaN,{"a":1,"a":2}]', "", 4)
@example("", '[1e400,{"a":1,"a":2}]', "", 4)
@example("", '{"a":"\\ud800","a":2}', "", 4)
@example("", '{"a":1,"a":2}', "x", 4)
@example("", '{"a:":1,"\\\\":2,"\\":":1}', " ", 4)
@example("", "[\\[", "", 1)
def test_parse_is_a_parser_with_a_hook(
    before: str, text: str, after: str, max_depth: int
) -> None:
    """`parse` counts colons instead, and agrees for every input."""

    def outcome(read: Any) -> Any:
        try:
            return exact(read(before + text + after, max_depth=max_depth))
        except CanonicalError as exc:
            return exc.problem

    assert outcome(parse) == outcome(parse_with_a_hook)


def outcome_when_large(text: str, max_depth: int) -> Any:
    """The value that `parse` returns if the text counts as large, or its problem."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "_LARGE", -1)
        try:
            return exact(parse(text, max_depth=max_depth))
        except CanonicalError as exc:
            return exc.problem


escaped_keys = st.lists(
    st.sampled_from(
        ["a", r"\u0061", ":", r"\u003a", r"\"", r"\\", ",", "[]", "{}", "{ }", "é", ""]
        + [r"\ud83d", r"\ude00", r"\\ud83d", "\ud800"]
    ),
    max_size=3,
).map(lambda found: f'"{"".join(found)}"')
numbers = st.sampled_from(
    ["0", "-0", "-0.0", "1e400", "-1E+0400", "1e-400", f"{'9' * 308}.5", "NaN"]
    + [f"-{'9' * 309}.5", "9" * 400, "9" * 5000, "1e308", "-Infinity", "null"]
)


def rows(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    blanks = st.sampled_from(["", "", " ", "\n"])
    members = st.tuples(escaped_keys, blanks, inner).map("{0[0]}{0[1]}:{0[2]}".format)
    return st.tuples(st.lists(inner, max_size=3), blanks).map(
        lambda found: f"[{f',{found[1]}'.join(found[0]) or found[1]}]"
    ) | st.tuples(st.lists(members, max_size=3), blanks).map(
        lambda found: f"{{{f',{found[1]}'.join(found[0]) or found[1]}}}"
    )


@given(
    st.recursive(escaped_keys | numbers, rows, max_leaves=15),
    st.sampled_from(["", "", "", "", " ", ",", "]"]),
    st.integers(1, 6),
)
@example('[[[["a"]]],{ },{}]', "", 3)
@example('{"a":[[[]],[[]]]}', "", 4)
@example('["[]",[],{"{}":"{ }"}]', "", 6)
@example(f"[1{'0' * 308}.0,-1{'0' * 309}.0]", "", 6)
def test_parse_of_large_input_is_a_parser_with_a_hook(
    text: str, after: str, max_depth: int
) -> None:
    """The value is the same. If there are several problems, any may be reported."""
    text += after
    found = outcome_when_large(text, max_depth)
    try:
        value = exact(parse_with_a_hook(text, max_depth=max_depth))
    except CanonicalError:
        assert isinstance(found, str)  # values are pairs or containers
    else:
        assert found == value


def test_parse_of_large_input_names_the_character() -> None:
    """A path would need a walk through the value."""
    text = json.dumps(["x" * 20_000, "\ud83d\ude00", "\ud800"])
    assert parse_refusal(text).endswith(f"(char {text.index('ud800') - 1})")
    assert parse_refusal(json.loads(f'"{text[2:20]}{"x" * 20_000}é\\ud800"')).endswith(
        "(char 20019)"
    )
    assert parse_refusal(f"[{'0,' * 10_000}1e400]") == (
        "a number that JSON cannot carry: 1e400"
    )


def test_items_are_counted_without_an_interpreter_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On others than CPython, `gc.get_referents` may return more than the items."""
    for knows in (True, False):
        monkeypatch.setattr(json_text, "_KNOWS_ITEMS", knows)
        assert outcome_when_large('{"a":[1,{"b":0,"b":[0]}],"c":"d"}', 9) == (
            "an object with the same key twice"
        )
        text = '{"a":[1,{"b":0,"c":[0]}],"c":"d"}'
        assert outcome_when_large(text, 9) == exact(json.loads(text))


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '[{"a":":"},{"b":{"c":1,"c":2}}]', '{"a":{"b":1},"a":1}']
)
def test_parse_refuses_the_same_key_twice(text: str) -> None:
    assert parse_refusal(text) == "an object with the same key twice"
    assert parse_refusal(text.encode()) == "an object with the same key twice"


@pytest.mark.parametrize(
    "text", ['{":":":"}', '{"a":"b:\\"c:\\\\"}', '{"a" : "::" }', ' {"a": 1}\n']
)
def test_parse_tells_colons_in_strings_from_others(text: str) -> None:
    assert parse(text) == json.loads(text)


@given(
    st.binary(max_size=50) | json_values.map(lambda value: json.dumps(value).encode())
)
def test_parse_raises_nothing_else(text: bytes) -> None:
    """Bytes parse or raise `CanonicalError`, and a parsed value can be written."""
    try:
        value = parse(text)
    except CanonicalError:
        return
    dumps(value)
