from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.canonical import MAX_DEPTH, MAX_SAFE_INTEGER, dumps, loads, parse
from effectmcp.errors import CanonicalError

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
    """What `dumps` took comes back as it went, from both readers, types and all."""
    text = dumps(value)
    assert exact(loads(text)) == exact(value)
    assert exact(parse(text)) == exact(value)
    assert exact(parse(text.decode())) == exact(value)


@given(json_values)
def test_dumps_one_text(value: Any) -> None:
    """Writing again what was read gives the same bytes: one value, one text."""
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


def test_parse_pairs_surrogates() -> None:
    assert parse(r'"\ud83d\ude00"') == "\N{GRINNING FACE}"


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
    """`parse` reads a text as the standard library does, or refuses it."""
    try:
        value = parse(text)
    except CanonicalError:
        return
    assert exact(value) == exact(json.loads(text))


@given(
    st.binary(max_size=50) | json_values.map(lambda value: json.dumps(value).encode())
)
def test_parse_raises_nothing_else(text: bytes) -> None:
    """Any bytes parse or raise `CanonicalError`, and what parses can be written."""
    try:
        value = parse(text)
    except CanonicalError:
        return
    dumps(value)
