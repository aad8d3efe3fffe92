"""Hard cases that the engine must survive: values in answers, text and steps.

The law of them all is E1: the first delivery is what every replay delivers. So a value
either makes the round trip, or is refused where it entered.
"""

import datetime as dt
import decimal
import enum
import json
import math
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import pytest

from effectmcp import (
    Accepted,
    CanonicalError,
    ClientFailed,
    Confirm,
    Elicit,
    Flow,
    FormError,
    Log,
    Now,
    Restart,
    Sample,
    Step,
    StepError,
    StepFailed,
    UsageError,
)
from effectmcp.canonical import dumps, parse
from effectmcp.engine import (
    LIVE,
    Asked,
    Journal,
    JournalError,
    Raised,
    Returned,
)

from ..helpers import WAYS, advance, by_retry, flow_of, keys, live, run, shown

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

T = TypeVar("T")

SURROGATE = "\ud800"
#: What JSON's own text can say and Python cannot, or only too well.
HUGE = 10**5_000

ANY_NUMBER: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "number"}},
    "required": ["value"],
}


def answered(form: Any, content: Any) -> Any:
    """Return the stop of a live flow that asked for `form` and got `content`."""
    one = run(flow_of(Elicit("Value?", form)), rules=LIVE)
    stop = one.start()
    assert isinstance(stop, Asked)
    end = one.answered({keys(stop)[0]: Accepted(content)})
    if isinstance(end, Returned):
        cold = run(flow_of(Elicit("Value?", form)), rules=LIVE, journal=reread(one))
        again = cold.start()
        assert repr(again) == repr(end)
    return end


def reread(one: Any) -> Journal:
    """The journal of a run, through its text."""
    return Journal.loads(one.journal.dumps())


def value_of(form: Any, content: Any) -> Any:
    """The value delivered for `content`, the same at first and in a replay."""
    end = answered(form, content)
    assert isinstance(end, Returned), end
    return end.value[0]


def problems_of(form: Any, content: Any) -> tuple[str, ...]:
    """Return the problems reported for `content` that does not fit."""
    end = answered(form, content)
    assert isinstance(end, Asked), end
    assert end.questions[0].problems
    return end.questions[0].problems


def through(fn: Callable[..., Any], *args: Any) -> Any:
    """Return the first result of a step; check that its replay is not different."""

    def handler() -> Flow[Any]:
        return (yield from Step(fn, *args))

    one = run(handler, rules=LIVE)
    end = advance(one, one.start())
    cold = run(handler, rules=LIVE, journal=reread(one)).start()
    assert repr(cold) == repr(end)
    if isinstance(end, Raised):
        raise end.error
    assert isinstance(end, Returned)
    assert isinstance(cold, Returned)
    if isinstance(end.value, dict | list):
        assert cold.value is not end.value
    return end.value


def untyped(value: Any) -> Any:
    return value


# ---- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, float("1e400")], ids=repr
)
def test_nan_and_infinities(value: float) -> None:
    """NaN, infinities and 1e400 are refused in answers, results and arguments."""
    for form in (int, float, str, ANY_NUMBER):
        problems_of(form, {"value": value})
    with pytest.raises(StepError, match="cannot be recorded"):
        through(lambda: {"deep": [value]})
    with pytest.raises(StepError, match="plain data"):
        through(untyped, value)
    with pytest.raises(StepError):
        through(returns_float, str(value))


def returns_float(text: str) -> float:
    return float(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "[1e400]"])
def test_nan_and_infinities_in_json(text: str) -> None:
    """NaN, infinities and 1e400 are refused in what a stranger wrote, journals included."""
    with pytest.raises(CanonicalError):
        parse(text)
    one = run(flow_of(Elicit("Value?", float)), rules=LIVE)
    stop = one.start()
    one.answered({keys(stop)[0]: Accepted({"value": 12345.5})})
    with pytest.raises(JournalError):
        Journal.loads(one.journal.dumps().replace(b"12345.5", text.encode()))


def test_negative_zero() -> None:
    """−0.0 is an integer where one is asked for, and stays what it is elsewhere."""
    zero = value_of(int, {"value": -0.0})
    assert (type(zero), zero) == (int, 0)
    assert math.copysign(1, value_of(float, {"value": -0.0})) == -1
    assert math.copysign(1, through(returns_float, "-0.0")) == -1
    assert math.copysign(1, through(untyped, -0.0)) == -1


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        (int, 1, 1),
        (int, 1.0, 1),
        (float, 1, 1.0),
        (float, 1.0, 1.0),
        (bool, True, True),
    ],
)
def test_one_as_an_answer(form: Any, value: Any, expected: Any) -> None:
    """1 and 1.0 are one value where the schema says number or integer."""
    got = value_of(form, {"value": value})
    assert (type(got), got) == (type(expected), expected)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (int, True),
        (float, True),
        (ANY_NUMBER, True),
        (bool, 1),
        (bool, 1.0),
        (int, "1"),
    ],
)
def test_true_is_not_a_number(form: Any, value: Any) -> None:
    """True is not a number in an answer, and 1 is not a boolean."""
    problems_of(form, {"value": value})


def test_one_leaves_one_journal() -> None:
    """1 and 1.0 as an answer to an integer leave the same journal."""

    def journal_of(value: Any) -> bytes:
        one = run(flow_of(Elicit("Value?", int), Confirm("Sure?")), rules=LIVE)
        stop = one.start()
        one.answered({keys(stop)[0]: Accepted({"value": value})})
        return one.suspend().dumps()

    assert journal_of(1) == journal_of(1.0)


def as_int(value: Any) -> int:
    return value  # type: ignore[no-any-return]


def as_bool(value: Any) -> bool:
    return value  # type: ignore[no-any-return]


def as_float(value: Any) -> float:
    return value  # type: ignore[no-any-return]


def test_one_as_a_result() -> None:
    """1, 1.0 and True of a step come back as they went, or are refused by the annotation."""
    for value in (1, 1.0, True):
        got = through(untyped, value)
        assert (type(got), got) == (type(value), value)
    got = through(as_float, 1)
    assert (type(got), got) == (float, 1.0)
    for fn, value in ((as_int, True), (as_int, 1.0), (as_bool, 1), (as_float, True)):
        with pytest.raises(StepError, match="does not come back"):
            through(fn, value)


def test_one_and_true_are_different_arguments() -> None:
    """1 and True as a step's argument are different steps, though equal in Python."""

    def handler(value: Any) -> Flow[Any]:
        yield from Step(untyped, value)
        yield from Elicit("Who?", str)

    one = run(handler, 1)
    advance(one, one.start())
    journal = one.suspend()
    from effectmcp import DivergenceError

    with pytest.raises(DivergenceError):
        run(handler, True, journal=journal).start()


def test_integers_beyond_the_safe_range() -> None:
    """2^53+1 is refused as an integer answer, and a float where a number is asked for."""
    for value in (2**53 - 1, -(2**53) + 1):
        assert value_of(int, {"value": value}) == value
    for beyond in (2**53, 2**53 + 1, -(2**53) - 1, 1e300):
        problems_of(int, {"value": beyond})
    got = value_of(float, {"value": 2**53 + 1})
    assert (type(got), got) == (float, float(2**53))
    # Between this process and itself an int is an int.
    assert through(untyped, 2**53 + 1) == 2**53 + 1
    assert through(as_int, 2**64) == 2**64


def test_5000_digit_int() -> None:
    """A 5,000-digit int is refused in answers, arguments, results and JSON: one error each."""
    for form in (int, float, ANY_NUMBER, str):
        problems_of(form, {"value": HUGE})
    with pytest.raises(StepError, match="plain data"):
        through(untyped, HUGE)
    with pytest.raises(StepError, match="cannot be recorded"):
        through(lambda: HUGE)
    with pytest.raises(CanonicalError):
        parse("1" * 5_000)


# ---- strings ------------------------------------------------------------------------


def test_lone_surrogates_in_answers() -> None:
    """Lone surrogates in an answer do not fit, as a value or as an unknown key's."""
    problems_of(str, {"value": f"a{SURROGATE}"})
    assert value_of(str, {"value": "Ann", SURROGATE: SURROGATE}) == "Ann"


def test_lone_surrogates_in_results() -> None:
    """Lone surrogates in a step's result or argument are refused by name."""
    with pytest.raises(StepError, match="lone surrogate"):
        through(untyped, SURROGATE)
    for fn in (lambda: SURROGATE, lambda: {SURROGATE: 1}, lambda: [[SURROGATE]]):
        with pytest.raises(StepError, match="lone surrogate"):
            through(fn)


def test_lone_surrogates_in_a_failure() -> None:
    """Lone surrogates in a failure's text do not lose the failure."""

    def fail() -> str:
        raise ValueError(f"bad {SURROGATE}")

    with pytest.raises((ValueError, StepFailed), match="bad"):
        through(fail)


@pytest.mark.parametrize(
    "effect",
    [
        lambda: Elicit(SURROGATE, str),
        lambda: Confirm(f"Sure, {SURROGATE}?"),
        lambda: Sample(SURROGATE),
        lambda: Elicit("Who?", str, key=SURROGATE),
    ],
)
def test_lone_surrogates_in_questions(effect: Any) -> None:
    """Lone surrogates in a question's text are refused at the yield."""

    def handler() -> Flow[Any]:
        return (yield from effect())

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert stop.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 1}"


def test_lone_surrogates_in_forms() -> None:
    """Lone surrogates in a form are refused when it is built."""
    with pytest.raises(FormError):
        Elicit("Who?", str, title=SURROGATE)


def test_lone_surrogates_in_client_errors() -> None:
    """Lone surrogates in a client's error do not end the flow."""

    def handler() -> Flow[Any]:
        try:
            return (yield from Elicit("Who?", str))
        except ClientFailed as exc:
            return exc.code

    one = run(handler, rules=LIVE)
    stop = one.start()
    failed = ClientFailed(-32000, SURROGATE, {"x": math.nan})
    assert one.answered({keys(stop)[0]: failed}) == Returned(-32000)
    assert run(handler, rules=LIVE, journal=reread(one)).start() == Returned(-32000)


@every_way
@pytest.mark.parametrize("text", ["\0", "a\0b", "\x7f", "\u2028", "\U0001f600", ""])
def test_nul_and_other_odd_strings(text: str, way: Any) -> None:
    """NUL and other odd characters are kept in questions, answers, arguments and results."""

    def handler() -> Flow[Any]:
        name = yield from Elicit(f"Who{text}?", str)
        return (yield from Step(untyped, name))

    end = way(handler, answer=lambda q: Accepted({"value": text}))
    assert end == Returned(text)


@every_way
def test_nfc_and_nfd(way: Any) -> None:
    """NFC and NFD stay apart: nothing is normalised, and neither answers for the other."""
    composed, decomposed = "\u00e9", "e\u0301"

    def handler() -> Flow[Any]:
        one = yield from Elicit(composed, str)
        two = yield from Elicit(decomposed, str)
        return [one, two]

    end = way(handler, answer=lambda q: Accepted({"value": q.effect.message}))
    assert end == Returned([composed, decomposed])
    # A question in one form has another fingerprint than in the other.
    first = run(flow_of(Elicit(composed, str)))
    first.start()
    second = run(flow_of(Elicit(decomposed, str)), journal=first.suspend())
    stop = second.start({"elicit-1": Accepted({"value": "late"})})
    assert keys(stop) == ["elicit-1~2"]


def test_duplicate_keys() -> None:
    """Duplicate keys are refused in what a stranger wrote."""
    for text in ('{"a":1,"a":1}', '{"x":[{"a":1,"a":2}]}', '{"a":1,"\\u0061":2}'):
        with pytest.raises(CanonicalError, match="twice"):
            parse(text)


def test_megabyte_string() -> None:
    """A megabyte string is a string."""
    text = "é" * 500_000
    assert value_of(str, {"value": text}) == text
    assert through(untyped, text) == text
    one = run(flow_of(Elicit(text, str)))
    stop = one.start()
    assert len(keys(stop)[0]) < 20
    # A question's text is in the journal as eight bytes.
    assert len(one.suspend().dumps()) < 1_000


# ---- depth --------------------------------------------------------------------------


def nested(depth: int, inner: Any = 1) -> Any:
    for n in range(depth):
        inner = [inner] if n % 2 else {"a": inner}
    return inner


def test_depth_in_json() -> None:
    """Depth 100,000 in JSON is refused before the decoder sees it; 64 is fine."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        inner = "1"
        assert parse(opening * 64 + inner + closing * 64)
        for depth in (65, 100_000):
            with pytest.raises(CanonicalError, match="64"):
                parse(opening * depth + inner + closing * depth)
            with pytest.raises(CanonicalError):
                parse(opening * depth)
    assert parse(json.dumps("[" * 100_000)) == "[" * 100_000


def test_depth_in_answers() -> None:
    """Depth 100,000 in an answer does not fit, where it is looked at, and costs nothing else."""
    deep = nested(100_000)
    problems_of(str, {"value": deep})
    problems_of(str, deep)
    assert value_of(str, {"value": "Ann", "unknown": deep}) == "Ann"
    one = run(flow_of(Sample("Write.")), rules=LIVE)
    stop = one.start()
    block = {"type": "text", "text": "t", "extra": deep}
    stop = one.answered({keys(stop)[0]: Accepted({"model": "m", "content": block})})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems


def test_depth_in_steps() -> None:
    """Depth 64 of a step's value is fine; 65 and 100,000 are refused by name."""
    at_limit = nested(64)
    assert through(lambda: at_limit) == at_limit
    for depth in (65, 100_000):
        deep = nested(depth)
        with pytest.raises(StepError, match="nested deeper than 64"):
            through(lambda deep=deep: deep)
        with pytest.raises(StepError):
            through(untyped, deep)


def test_value_that_contains_itself() -> None:
    """A value that contains itself is refused, as an argument and as a result."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(StepError):
        through(lambda: loop)
    with pytest.raises(StepError):
        through(untyped, loop)


# ---- types that JSON does not know --------------------------------------------------


class Colour(enum.Enum):
    """An enum whose values are not JSON."""

    RED = "red"
    BLUE = 2


class Size(enum.IntEnum):
    """An enum that is also an int."""

    SMALL = 1


class Word(enum.StrEnum):
    """An enum whose members are also strings."""

    HELLO = "hello"


class Pair(NamedTuple):
    """A named tuple."""

    name: str
    size: int


@attrs.frozen
class Tupled:
    """A class with a tuple in it."""

    names: tuple[str, ...]


def as_decimal(text: str) -> decimal.Decimal:
    return decimal.Decimal(text)


def as_colour(name: str) -> Colour:
    return Colour[name]


def as_size(name: str) -> Size:
    return Size[name]


def as_word(name: str) -> Word:
    return Word[name]


def as_tuple_of_tuples(text: str) -> list[tuple[str, ...]]:
    return [tuple(text)]


def as_named(text: str) -> Pair:
    return Pair(text, 1)


def as_tupled(text: str) -> Tupled:
    return Tupled(tuple(text))


def as_colours(name: str) -> dict[str, list[Colour]]:
    return {"found": [Colour[name]]}


def as_uuid(text: str) -> uuid.UUID:
    return uuid.UUID(text)


def as_bytes(text: str) -> bytes:
    return text.encode()


def as_none(text: str) -> None:
    return None


def as_optional(text: str) -> str | None:
    return text or None


def as_tuple(text: str) -> tuple[str, int]:
    return text, len(text)


def as_set(text: str) -> set[str]:
    return set(text)


@pytest.mark.parametrize(
    ("fn", "argument", "expected"),
    [
        (as_decimal, "0.10", decimal.Decimal("0.10")),
        (as_decimal, "1E+3", decimal.Decimal("1E+3")),
        (as_decimal, "-0", decimal.Decimal("-0")),
        (as_colour, "RED", Colour.RED),
        (as_colour, "BLUE", Colour.BLUE),
        (as_size, "SMALL", Size.SMALL),
        (as_colours, "BLUE", {"found": [Colour.BLUE]}),
        (as_uuid, "00000000-0000-0000-0000-000000000007", uuid.UUID(int=7)),
        (as_bytes, "é\0", "é\0".encode()),
        (as_none, "", None),
        (as_optional, "", None),
        (as_optional, "a", "a"),
        (as_tuple, "ab", ("ab", 2)),
        (as_set, "ab", {"a", "b"}),
        (as_word, "HELLO", Word.HELLO),
        (as_tuple_of_tuples, "ab", [("a", "b")]),
        (as_named, "ab", Pair("ab", 1)),
        (as_tupled, "ab", Tupled(("a", "b"))),
    ],
)
def test_decimal_enums_and_the_like(fn: Any, argument: str, expected: Any) -> None:
    """Decimal, enums and the like come back as annotated, and exactly."""
    got = through(fn, argument)
    assert got == expected
    assert type(got) is type(expected)
    assert str(got) == str(expected) or isinstance(got, set)


@pytest.mark.parametrize(
    "value",
    [
        decimal.Decimal("0.1"),
        Colour.RED,
        Size.SMALL,
        (1, 2),
        {1, 2},
        {1: 2},
        b"x",
        dt.date(2026, 1, 1),
        object(),
    ],
    ids=shown,
)
def test_untyped_result_that_json_would_change(value: Any) -> None:
    """Without an annotation a value that the round trip would change is an error."""
    with pytest.raises(StepError, match="cannot be recorded"):
        through(lambda: value)


def test_untyped_result_that_json_would_change_was_performed_once() -> None:
    """Such a step was performed, so its error is recorded: it is not performed again."""
    performed = []

    def charge() -> Any:
        performed.append(1)
        return object()

    def handler() -> Flow[Any]:
        try:
            yield from Step(charge)
        except StepError:
            pass
        return (yield from Elicit("Who?", str))

    assert by_retry(handler) == Returned("text")
    assert performed == [1]


def unrecordable() -> zoneinfo.ZoneInfo:
    raise AssertionError("performed, though its result could not be recorded")


def untyped_class() -> "Plain":
    raise AssertionError("performed, though its result could not be recorded")


class Plain:
    """A class that cannot be read back from JSON."""


def unresolvable() -> "Missing":  # type: ignore[name-defined]  # noqa: F821
    raise AssertionError("performed, though its result could not be recorded")


@pytest.mark.parametrize("fn", [unrecordable, untyped_class, unresolvable])
def test_annotation_is_checked_before_performing(fn: Any) -> None:
    """A return annotation that cannot be read back is refused before performing."""

    def handler() -> Flow[Any]:
        return (yield from Step(fn))

    stop = live(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, StepError)
    assert fn.__name__ in stop.error.problem
    assert stop.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    "argument", [object(), len, Plain(), [Plain()], {(1, 2): 3}, {1: 2}], ids=shown
)
def test_arguments_that_are_not_data(argument: Any) -> None:
    """Arguments that are not plain data are refused at the yield, naming `Provided()`."""

    def handler() -> Flow[Any]:
        return (yield from Step(nothing_of, argument))

    stop = live(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, StepError)
    assert "Provided()" in stop.error.problem
    assert stop.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 1}"


def nothing_of(value: Any) -> int:
    return 0


@pytest.mark.parametrize(
    "argument", [{1, "a"}, frozenset("ab"), dt.date(2026, 1, 1), Colour.RED, b"x"]
)
def test_arguments_that_cattrs_makes_data(argument: Any) -> None:
    """Arguments that cattrs makes plain data of are the step's as they are."""
    assert through(nothing_of, argument) == 0


# ---- times --------------------------------------------------------------------------

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def as_datetime(fold: int) -> dt.datetime:
    return dt.datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=BERLIN)


def as_utc(fold: int) -> dt.datetime:
    return as_datetime(fold).astimezone(dt.UTC)


@pytest.mark.parametrize("fold", [0, 1])
def test_folded_datetimes_of_a_step(fold: int) -> None:
    """A folded datetime of a step keeps its instant, at first and in every replay."""
    got = through(as_datetime, fold)
    assert got.astimezone(dt.UTC) == as_utc(fold)
    assert got.astimezone(dt.UTC).hour == fold
    assert through(as_utc, fold) == as_utc(fold)


def test_folded_datetimes_of_now() -> None:
    """A folded datetime that answers `Now` keeps its instant, in UTC."""
    from effectmcp.engine import Done, Perform

    for fold in (0, 1):
        one = run(flow_of(Now()), rules=LIVE)
        stop = one.start()
        assert isinstance(stop, Perform)
        end = one.performed({"now-1": Done(as_datetime(fold))})
        assert end == Returned([as_utc(fold)])
        assert isinstance(end, Returned)
        assert end.value[0].tzinfo is dt.UTC
        assert run(flow_of(Now()), rules=LIVE, journal=one.journal).start() == end


@pytest.mark.parametrize(
    "text",
    [
        "2016-12-31T23:59:60Z",
        "2016-12-31T23:59:60+00:00",
        "2026-07-28T09:30:60Z",
        "2026-07-28T24:00:00Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_second_60(text: str) -> None:
    """Second 60, and other times Python has none for, do not fit: never a crash."""
    problems_of(dt.datetime, {"value": text})


def test_times_that_are_answers() -> None:
    """Dates and datetimes of an answer come back aware, the same in every replay."""
    assert value_of(dt.date, {"value": "2026-02-28"}) == dt.date(2026, 2, 28)
    problems_of(dt.date, {"value": "2026-02-29"})
    got = value_of(dt.datetime, {"value": "2026-10-25t02:30:00.123456789+02:00"})
    assert got.utcoffset() == dt.timedelta(hours=2)
    assert got.microsecond == 123456


# ---- keys ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["", "__class__", "__init__", "constructor", "__proto__", "\0", "$ref"]
)
def test_empty_and_dunder_keys(key: str) -> None:
    """Empty keys and `__class__` keys are keys: of answers, results and arguments."""
    assert value_of(str, {"value": "Ann", key: "other"}) == "Ann"
    assert through(untyped, {key: [{key: 1}]}) == {key: [{key: 1}]}
    form = {"type": "object", "properties": {key: {"type": "string"}}}
    assert value_of(form, {key: "Ann"}) == {key: "Ann"}


@pytest.mark.parametrize(
    "key", ["", "a/b", "a~2", "a#2", "elicit-1", "now-7", "\0", "a\nb"]
)
def test_reserved_keys(key: str) -> None:
    """Explicit keys that are empty or look generated are refused at the yield."""

    def handler() -> Flow[Any]:
        return (yield from Elicit("Who?", str, key=key))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert repr(key) in stop.error.problem
    assert stop.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    "key", ["elicit", "elicit-one", "name-1", "Ä", "a b", "step-x"]
)
def test_keys_that_only_look_odd(key: str) -> None:
    """The author may choose any other key."""
    assert keys(run(flow_of(Elicit("Who?", str, key=key))).start()) == [key]


# ---- attrs classes ------------------------------------------------------------------


@attrs.define
class Basket:
    """A class with a mutable default."""

    name: str
    lines: list[str] = attrs.Factory(list)
    seen: dict[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Secretive:
    """A class with private fields."""

    _token: str
    _count: int = 1
    shown: str = attrs.field(init=False, default="shown")

    def tell(self) -> tuple[str, int]:
        return self._token, self._count


@attrs.frozen
class Tree:
    """A class with a forward reference."""

    name: str
    children: "list[Tree]" = attrs.Factory(list)
    other: "Later | None" = None


@attrs.frozen
class Later:
    """The class that the forward reference above names."""

    when: dt.date


@attrs.frozen
class Box(Generic[T]):
    """A generic class."""

    content: T


@attrs.frozen
class Form:
    """A form with defaults of every kind."""

    name: str
    _private: int = 1
    copies: int | None = None
    gift: bool = attrs.field(factory=lambda: False)


def a_basket(name: str) -> Basket:
    return Basket(name)


def a_secret(token: str) -> Secretive:
    return Secretive(token, 3)


def a_tree(name: str) -> Tree:
    leaf = Tree("leaf", other=Later(dt.date(2026, 1, 1)))
    return Tree(name, [Tree("branch", [leaf])])


def a_box(name: str) -> Box[Later]:
    return Box(Later(dt.date.fromisoformat(name)))


@pytest.mark.parametrize(
    ("fn", "argument", "expected"),
    [
        (a_basket, "b", Basket("b")),
        (a_secret, "t", Secretive("t", 3)),
        (a_tree, "root", a_tree("root")),
        (a_box, "2026-01-01", Box(Later(dt.date(2026, 1, 1)))),
    ],
)
def test_attrs_classes_as_results(fn: Any, argument: str, expected: Any) -> None:
    """attrs classes with mutable defaults, private fields, forward references, generics."""
    assert through(fn, argument) == expected


@every_way
def test_attrs_classes_with_mutable_defaults(way: Any) -> None:
    """A default that is a list is a new list each time: no delivery sees another's."""

    def handler() -> Flow[Any]:
        first = yield from Step(a_basket, "b")
        first.lines.append("changed")
        second = yield from Step(a_basket, "b")
        yield from Elicit("Who?", str)
        return [first.lines, second.lines]

    assert way(handler) == Returned([["changed"], []])


def test_attrs_classes_as_forms() -> None:
    """A form's private fields go by their alias; defaults are applied at delivery."""
    content = {"name": "Ann", "private": 5}
    assert value_of(Form, content) == Form("Ann", 5, None, False)
    one = run(flow_of(Elicit("Who?", Form)), rules=LIVE)
    stop = one.start()
    one.answered({keys(stop)[0]: Accepted({"name": "Ann"})})
    assert one.journal.entries[0].value == {"name": "Ann"}


def test_attrs_classes_as_arguments() -> None:
    """attrs classes are arguments too: what they hold identifies the step."""

    def names(tree: Tree) -> list[str]:
        return [tree.name, *(name for child in tree.children for name in names(child))]

    assert through(names, a_tree("root")) == ["root", "branch", "leaf"]


def restarted(tree: Tree, box: Box[int], day: dt.date, *rest: Colour) -> Flow[Any]:
    yield from Elicit("Who?", str)
    return tree, box, day, rest


@every_way
def test_attrs_classes_as_restart_arguments(way: Any) -> None:
    """`Restart` arguments come back as their annotations say, in the first round too."""
    arguments = (a_tree("root"), Box(1), dt.date(2026, 1, 1), Colour.RED, Colour.BLUE)

    def handler() -> Flow[Any]:
        return (yield from Restart(restarted, *arguments))

    assert way(handler) == Returned((*arguments[:3], arguments[3:]))


def test_restart_arguments_that_do_not_come_back() -> None:
    """`Restart` arguments are validated before anything is forgotten."""
    arguments: Any = ("no tree", Box(1), dt.date(2026, 1, 1))

    def handler() -> Flow[Any]:
        return (yield from Restart(restarted, *arguments))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert "tree" in stop.error.problem
    assert stop.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 1}"


# ---- emitted effects ----------------------------------------------------------------


def test_logged_values_are_not_recorded() -> None:
    """The engine does not record the data of `Log`, so any value is accepted."""
    heard: list[Any] = []
    data = {"value": math.nan, "object": object()}

    def handler() -> Flow[None]:
        yield from Log("info", data)

    one = run(handler, emit=heard.append)
    assert one.start() == Returned(None)
    assert heard == [Log("info", data)]
    assert one.journal.entries == ()


def test_canonical_json_is_the_standard_library_s() -> None:
    """1e-07, not 1e-7: one value has one JSON form, with any encoder installed."""
    assert dumps([1e-07, 1e16, 1e22, -0.0, 1.0]) == b"[1e-07,1e+16,1e+22,-0.0,1.0]"
