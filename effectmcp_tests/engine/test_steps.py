from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    TypedDict,
    TypeVar,
)

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectmcp import (
    CanonicalError,
    Provided,
    Step,
    StepError,
    UsageError,
    step,
)
from effectmcp.canonical import dumps, loads
from effectmcp.converter import converter
from effectmcp.engine.steps import (
    given_names,
    provided_names,
    read_arguments,
    spec_of,
    step_name,
    write_arguments,
)

if TYPE_CHECKING:
    from effectmcp import NoSuchName  # type: ignore[attr-defined]

T = TypeVar("T")
Amount = NewType("Amount", int)


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    TOP = (0, 0)


class Mixed(enum.Enum):
    TEXT = "t"
    NUMBER = 1


class Side(enum.Enum):
    LEFT = "l"
    RIGHT = (0, 1)


@attrs.frozen
class Line:
    title: str
    count: int = 1
    size: Size | None = None


@attrs.frozen
class Receipt:
    number: uuid.UUID
    total: decimal.Decimal
    day: dt.date
    lines: tuple[Line, ...] = ()
    tags: frozenset[str] = frozenset()
    notes: dict[str, list[str]] = attrs.field(factory=dict)


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.field(factory=list)


@attrs.frozen
class Box(Generic[T]):
    inside: T


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Row(NamedTuple):
    a: int
    b: str


class Item(TypedDict):
    title: str
    count: int


@attrs.frozen
class Holder:
    connection: socket.socket


@attrs.frozen
class Numbered:
    by_number: dict[int, str]


@attrs.frozen
class Priced:
    amount: int
    registry: ClassVar[object] = None
    handle: ClassVar[socket.socket]
    bare: ClassVar = 1


@dataclasses.dataclass(frozen=True)
class Spot:
    x: int
    origin: ClassVar[complex] = 0j
    _: dataclasses.KW_ONLY
    y: int = 0


@dataclasses.dataclass
class Seeded:
    seed: dataclasses.InitVar[int]


class Db:
    """A class whose values a step cannot return."""


def returning(annotation: Any) -> Step[Any]:
    """A step of a function with this return annotation."""

    def function() -> Any: ...

    function.__annotations__["return"] = annotation
    return Step(function)


def annotated(annotation: Any) -> Callable[[Any], Any]:
    """A function of one parameter with this annotation."""

    def function(x: Any) -> Any: ...

    function.__annotations__["x"] = annotation
    return function


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(timezones=st.none() | st.just(dt.UTC))
lines = st.builds(Line, texts, st.integers(), st.none() | st.sampled_from(Size))
receipts = st.builds(
    Receipt,
    number=st.uuids(),
    total=st.decimals(allow_nan=False),
    day=st.dates(),
    lines=st.lists(lines, max_size=2).map(tuple),
    tags=st.frozensets(texts, max_size=3),
    notes=st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
)
nodes = st.recursive(
    st.builds(Node, texts),
    lambda inner: st.builds(Node, texts, st.lists(inner, max_size=2)),
    max_leaves=4,
)

#: An annotation, and values that it describes.
TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (str, texts),
    (int, st.integers()),
    (float, floats),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=8)),
    (dt.datetime, moments),
    (dt.date, st.dates()),
    (dt.time, st.times(timezones=st.none() | st.just(dt.UTC))),
    (dt.timedelta, st.timedeltas()),
    (uuid.UUID, st.uuids()),
    (decimal.Decimal, st.decimals(allow_nan=False)),
    (Size, st.sampled_from(Size)),
    (Priority, st.sampled_from(Priority)),
    (Literal["a", "b"], st.sampled_from("ab")),
    (Annotated[int, "cents"], st.integers()),
    (int | None, st.none() | st.integers()),
    (dt.date | None, st.none() | st.dates()),
    (list[int], st.lists(st.integers(), max_size=3)),
    (list[dt.date], st.lists(st.dates(), max_size=3)),
    (list[int] | None, st.none() | st.lists(st.integers(), max_size=3)),
    (set[int], st.sets(st.integers(), max_size=3)),
    (frozenset[str], st.frozensets(texts, max_size=3)),
    (set[dt.date], st.sets(st.dates(), max_size=3)),
    (tuple[int, ...], st.lists(st.integers(), max_size=3).map(tuple)),
    (tuple[int, str], st.tuples(st.integers(), texts)),
    (list[tuple[int, str]], st.lists(st.tuples(st.integers(), texts), max_size=2)),
    (dict[str, int], st.dictionaries(texts, st.integers(), max_size=3)),
    (dict[Literal["a"], int], st.dictionaries(st.just("a"), st.integers())),
    (
        dict[Annotated[str, "by"], int],
        st.dictionaries(texts, st.integers(), max_size=2),
    ),
    (Line, lines),
    (Receipt, receipts),
    (list[Receipt], st.lists(receipts, max_size=2)),
    (dict[str, Line], st.dictionaries(texts, lines, max_size=2)),
    (Line | None, st.none() | lines),
    (Node, nodes),
    (Box[int], st.integers().map(Box)),
    (Point, st.builds(Point, st.integers(), st.integers())),
    (Row, st.builds(Row, st.integers(), texts)),
    (list[Row], st.lists(st.builds(Row, st.integers(), texts), max_size=2)),
    (Item, st.fixed_dictionaries({"title": texts, "count": st.integers()})),
]
IDS = [str(annotation) for annotation, _ in TYPED]


# ---- names ----


def charge(amount: int, *, key: str = "") -> str:
    return f"{amount}{key}"


def test_step_name_is_module_and_qualname() -> None:
    assert step_name(Step(charge, 1)) == f"{__name__}:charge"
    assert step_name(step(charge)(1)) == f"{__name__}:charge"


def test_step_name_can_be_given() -> None:
    """With a name, a function can move while flows are running."""
    assert step_name(step(name="charge")(charge)(1)) == "charge"


# ---- arguments ----


def through(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The arguments after a round trip through their JSON text."""
    written = loads(dumps(write_arguments(args, kwargs)))
    return read_arguments(function, written)


@pytest.mark.parametrize(("annotation", "values"), TYPED, ids=IDS)
def test_arguments_come_back(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    function = annotated(annotation)

    @settings(max_examples=25)
    @given(values)
    def check(value: Any) -> None:
        (again,), kwargs = through(function, value)
        assert (again, kwargs) == (value, {})
        assert type(again) is type(value)

    check()


def test_arguments_of_every_kind_of_parameter() -> None:
    def function(
        a: dt.date, /, b: Size, *more: dt.date, c: uuid.UUID, **rest: Size
    ) -> None: ...

    day, number = dt.date(2026, 7, 28), uuid.UUID(int=3)
    args, kwargs = through(function, day, Size.SMALL, day, c=number, d=Size.LARGE)
    assert args == (day, Size.SMALL, day)
    assert kwargs == {"c": number, "d": Size.LARGE}


def test_arguments_without_annotations_stay_plain() -> None:
    def function(a, b: Any, c: object):  # type: ignore[no-untyped-def]
        ...

    assert through(function, [1], {"a": None}, "x") == (([1], {"a": None}, "x"), {})


def test_arguments_behind_one_without_an_annotation_are_built() -> None:
    def function(a, b: uuid.UUID) -> None: ...  # type: ignore[no-untyped-def]

    number = uuid.UUID(int=7)
    written = write_arguments(("plain", number), {})
    assert read_arguments(function, loads(dumps(written))) == (("plain", number), {})


def test_arguments_by_name_stay_by_name_or_by_position() -> None:
    """The call is the same for positional and keyword arguments."""
    args, kwargs = through(charge, amount=1, key="k")
    assert charge(*args, **kwargs) == "1k"


def test_arguments_are_built_afresh() -> None:
    written = write_arguments(([1],), {})
    function = annotated(list[int])
    first, second = read_arguments(function, written), read_arguments(function, written)
    assert first == second
    assert first[0][0] is not second[0][0]


@pytest.mark.parametrize(
    "value", [object(), Db(), lambda: 1, {1: 2}, float("nan"), iter([]), 1j]
)
def test_arguments_that_are_not_data_are_refused(value: Any) -> None:
    with pytest.raises(CanonicalError):
        dumps(write_arguments((value,), {}))
    with pytest.raises(CanonicalError):
        dumps(write_arguments((), {"x": value}))


def test_arguments_that_contain_themselves_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CanonicalError, match="contains itself"):
        write_arguments((loop,), {})


def test_arguments_that_cannot_be_taken_apart_are_refused() -> None:
    """One example is an object that was never initialised."""
    half = Line.__new__(Line)
    with pytest.raises(CanonicalError, match="cannot be taken apart"):
        write_arguments((half,), {})


def test_arguments_sets_are_sorted() -> None:
    """A set's order differs from process to process, and these bytes are compared."""
    words = [f"word {n}" for n in range(50)]
    one = dumps(write_arguments((set(words),), {}))
    assert one == dumps(write_arguments((frozenset(reversed(words)),), {}))
    assert loads(one)[0][0] == sorted(words)


def test_read_arguments_refuses_other_parameters() -> None:
    """The handler's signature changed since they were written."""
    with pytest.raises(UsageError, match=r":charge: missing a required argument"):
        read_arguments(charge, [[], {}])
    with pytest.raises(UsageError, match=r":charge: too many positional arguments"):
        read_arguments(charge, [[1, 2], {}])


def test_read_arguments_refuses_other_types() -> None:
    with pytest.raises(
        UsageError, match=r":charge: the argument amount does not come back as .*int"
    ):
        read_arguments(charge, [["ten"], {}])


def test_read_arguments_does_not_coerce() -> None:
    """cattrs alone would make 3 of "3", and "None" of `None`."""
    for annotation, value in [
        (int, "3"),
        (str, 3),
        (bool, 1),
        (float, "1"),
        (int, 1.5),
    ]:
        with pytest.raises(UsageError):
            read_arguments(annotated(annotation), [[value], {}])


def test_read_arguments_takes_a_whole_number_for_a_float() -> None:
    """JSON has one kind of number."""
    args, _ = read_arguments(annotated(float), [[3], {}])
    assert type(args[0]) is float


# ---- provided values ----


def test_provided_names() -> None:
    def function(amount: int, pool: Db = Provided(), *, log=Provided()) -> None:  # type: ignore[no-untyped-def]
        ...

    assert provided_names(function) == {"pool": Db, "log": None}


def test_provided_names_of_callables_without_a_signature() -> None:
    assert provided_names(charge) == {}
    assert provided_names(dict.fromkeys) == {}
    assert provided_names(max) == {}


def test_given_names() -> None:
    def charge_(cents: int, currency: str = "EUR") -> None: ...

    assert given_names(Step(charge_, 100)) == {"cents"}
    assert given_names(Step(charge_, cents=100, currency="CHF")) == {
        "cents",
        "currency",
    }


def test_given_names_of_callables_without_a_signature() -> None:
    """Arguments that do not fit the signature are left for the call to refuse."""
    assert given_names(Step(max, [1], key=abs)) == {"key"}
    assert given_names(Step(read_arguments, 1, 2, 3)) == set()  # type: ignore[call-overload]


# ---- results ----


@pytest.mark.parametrize(("annotation", "values"), TYPED, ids=IDS)
def test_result_comes_back(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    """The round trip keeps the value and type of every result that the spec takes."""
    spec = spec_of(returning(annotation))

    @settings(max_examples=25)
    @given(values)
    def check(value: Any) -> None:
        again = spec.read(spec.write(value))
        assert again == value
        assert type(again) is type(value)

    check()


def test_result_is_built_afresh() -> None:
    """No two deliveries share what can be changed."""
    spec = spec_of(returning(list[int]))
    payload = spec.write([1])
    assert spec.read(payload) is not spec.read(payload)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("annotation", [Any, object, ...])
def test_result_without_annotation_is_plain_json(annotation: Any) -> None:
    one = returning(annotation)
    if annotation is ...:
        del one.fn.__annotations__["return"]
    spec = spec_of(one)

    @settings(max_examples=25)
    @given(json_values)
    def check(value: Any) -> None:
        assert spec.read(spec.write(value)) == value

    check()


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, {1: 2}, dt.date(2026, 1, 1), Size.SMALL, Priority.LOW, Line("x"), 1j],
)
@pytest.mark.parametrize("annotation", [Any, object])
def test_result_without_annotation_that_would_change_is_refused(
    annotation: Any, value: Any
) -> None:
    with pytest.raises(StepError, match="the result cannot be recorded") as caught:
        spec_of(returning(annotation)).write(value)
    assert "annotate what the function returns" in str(caught.value)


def test_result_that_json_cannot_carry_needs_no_other_annotation() -> None:
    with pytest.raises(StepError, match="the result cannot be recorded") as caught:
        spec_of(returning(float)).write(float("nan"))
    assert "annotate" not in str(caught.value)


@pytest.mark.parametrize("value", [(1,), {1}, dt.date(2026, 1, 1), Size.SMALL])
@pytest.mark.parametrize(
    ("annotation", "wrap"),
    [(dict[str, Any], lambda v: {"a": v}), (list[Any], lambda v: [v])],
    ids=["dict", "list"],
)
def test_result_with_an_untyped_part_that_would_change_is_refused(
    annotation: Any, wrap: Callable[[Any], Any], value: Any
) -> None:
    """S3: a value that the round trip would change is an error, not other data."""
    spec = spec_of(returning(annotation))
    with pytest.raises(StepError):
        spec.write(wrap(value))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, 5),
        (int, "3"),
        (int, True),
        (int, 3.0),
        (int, None),
        (str, 5),
        (str, Size.SMALL),
        (bool, 1),
        (float, float("nan")),
        (float, float("inf")),
        (dt.date, dt.datetime(2026, 1, 1)),  # noqa: DTZ001
        (Literal["a"], "b"),
        (Size, "tiny"),
        (list[int], ["x"]),
        (Line, None),
        (Line, Point(1)),
        (str, "\ud800"),
    ],
)
def test_result_of_another_type_is_refused(annotation: Any, value: Any) -> None:
    """A bug to report, not to paper over."""
    with pytest.raises(StepError):
        spec_of(returning(annotation)).write(value)


def test_result_refusal_shows_value_and_annotation() -> None:
    with pytest.raises(StepError, match=r"the result '3' does not come back as .*int"):
        spec_of(returning(int)).write("3")


def test_result_of_a_whole_number_where_a_float_belongs() -> None:
    spec = spec_of(returning(float))
    assert type(spec.read(spec.write(3))) is float


@pytest.mark.parametrize(
    "annotation",
    [
        Db,
        socket.socket,
        list[Db],
        dict[str, Db],
        Db | None,
        Annotated[Db, "x"],
        Holder,
        list[Holder],
        Iterator[int],
        Callable[[], int],
        Awaitable[int],
        complex,
        # JSON has text keys only, and these would be refused when it is too late.
        dict[int, str],
        dict[bool, str],
        dict[Priority, str],
        dict[Mixed, str],
        dict[Literal["a", 1], str],
        dict[tuple[int, int], str],
        Numbered,
        # A member's value is what travels.
        Corner,
        Side,
    ],
    ids=str,
)
def test_spec_refuses_types_that_cannot_be_recorded(annotation: Any) -> None:
    """The refusal comes before the step is performed: afterwards it is too late."""
    with pytest.raises(StepError, match="record|read back|JSON"):
        spec_of(returning(annotation))


def test_spec_refusal_names_function_type_and_way_out() -> None:
    with pytest.raises(
        StepError,
        match=r"returning.*function returns .*Db.*Return plain data, a class with fields",
    ):
        spec_of(returning(Db))


@pytest.mark.parametrize("annotation", [int | str, Amount, int | str | None], ids=str)
def test_spec_takes_plain_types_under_other_names(annotation: Any) -> None:
    """A choice of JSON's own types, and a new name for one, are plain data."""
    spec = spec_of(returning(annotation))
    assert spec.read(spec.write(3)) == 3


@pytest.mark.parametrize(
    "value", [Priced(2), Spot(1, y=2), [Priced(3)]], ids=["attrs", "dataclass", "list"]
)
def test_attributes_that_are_not_fields_need_not_be_recordable(value: Any) -> None:
    annotation: Any = type(value)
    if isinstance(value, list):
        annotation = list[Priced]
    spec = spec_of(returning(annotation))
    assert spec.read(spec.write(value)) == value


def test_spec_refuses_a_dataclass_with_init_only_fields() -> None:
    with pytest.raises(StepError, match="InitVar"):
        spec_of(returning(Seeded))


def test_spec_of_a_name_that_is_not_there() -> None:
    def function() -> NoSuchName: ...

    with pytest.raises(StepError, match=r"'NoSuchName' in an annotation.*module level"):
        spec_of(Step(function))


def test_spec_of_an_annotation_that_is_not_a_type() -> None:
    """Such an annotation cannot be checked, so it is refused, not ignored."""

    def function() -> (int, str):  # type: ignore[syntax]
        return 1, "a"

    with pytest.raises(StepError, match="function"):
        spec_of(Step(function))


def test_spec_of_a_class_the_converter_cannot_build() -> None:
    """Two classes that nothing tells apart."""

    @attrs.frozen
    class A:
        x: int

    @attrs.frozen
    class B:
        x: int

    with pytest.raises(StepError, match="cannot be read back"):
        spec_of(returning(A | B))


def test_spec_is_read_once_per_function() -> None:
    assert spec_of(Step(charge, 1)) is spec_of(Step(charge, 2))


def test_spec_of_an_unhashable_function() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> dt.date:
            return dt.date(2026, 7, 28)

    assert spec_of(Step(Unhashable())).returns is dt.date


def test_spec_passes_on_errors_of_its_own() -> None:
    class Odd:
        def __hash__(self) -> int:
            raise TypeError("odd")

        def __call__(self) -> None: ...

    with pytest.raises(TypeError, match="odd"):
        spec_of(Step(Odd()))


class Charger:
    """Callables for steps that are not plain functions."""

    def __call__(self, amount: int, pool: Db = Provided()) -> dt.date:
        return dt.date(2026, 7, amount)

    def method(self, amount: int) -> dt.date:
        return dt.date(2026, 7, amount)


@attrs.frozen
class Configured:
    """A callable object whose class has annotations of its own."""

    year: int

    def __call__(self, amount: int) -> dt.date:
        return dt.date(self.year, 7, amount)


class AsyncCharger:
    async def __call__(self, amount: int) -> dt.date:
        return dt.date(2026, 7, amount)


@pytest.mark.parametrize(
    "function",
    [
        Charger(),
        Charger().method,
        Configured(2026),
        AsyncCharger(),
        functools.partial(Charger().method, 1),
        functools.partial(Charger(), 1),
    ],
    ids=["object", "method", "configured", "async", "partial", "partial object"],
)
def test_spec_finds_annotations_of_callables(function: Callable[..., Any]) -> None:
    assert spec_of(Step(function)).returns is dt.date


def test_spec_of_builtins() -> None:
    """Without annotations: plain JSON."""
    spec = spec_of(Step(max, 1, 2))
    assert spec.read(spec.write(2)) == 2
    assert not spec.is_async


def test_spec_knows_async_functions() -> None:
    async def function(pool: Db = Provided()) -> int:
        return 1

    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        return function(*args)

    spec = spec_of(Step(function))
    assert spec.is_async
    assert spec.returns is int
    assert spec.provided == {"pool": Db}
    assert spec_of(Step(wrapped)).is_async
    assert spec_of(Step(AsyncCharger(), 1)).is_async
    assert spec_of(Step(functools.partial(function))).is_async
    assert not spec_of(Step(charge, 1)).is_async


def test_converter_is_made_once() -> None:
    assert converter() is converter()
