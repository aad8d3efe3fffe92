"""Faults that can be read, and code that looks like them and is right."""

from __future__ import annotations

import decimal
import functools
import json
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    FlowError,
    Gather,
    IdempotencyKey,
    Outcome,
    Refused,
    Step,
    StepFailed,
    ToolError,
    step,
)
from effectmcp.compat import awaits_effects
from effectmcp.testing.refusals import swallows_of
from effectmcp.testing.source import raised_by, source_of, sources_of
from effectmcp.testing.source_faults import suspects_of

if TYPE_CHECKING:
    from effectmcp.testing import Transcript

# ruff: noqa: B023


class FetchError(Exception):
    """A page that cannot be read."""


class SmallError(FetchError):
    """A small one of them."""


class Unknown(ToolError):
    """An error for the model, of a class of its own."""


@step
def fetch(url: str) -> str:
    if not url:
        raise FetchError(url)
    return url


@step(raises=(FetchError,))
def fetch_declared(url: str) -> str:
    raise SmallError(url)


@step
def fetch_json(url: str) -> str:
    return str(json.loads(url))


@step
def find(url: str) -> str:
    raise Unknown(url)


def check(page: str) -> str:
    if not page:
        raise FetchError(page)
    return page


def meal(name: str) -> Flow[str]:
    return (yield from Elicit(f"{name}?", str))


@functools.cache
def cached_meal(name: str) -> Flow[str]:
    return (yield from Elicit(f"{name}?", str))


@awaits_effects
async def awaited(name: str) -> str:
    return await Elicit(f"{name}?", str)


def unannotated(name):  # type: ignore[no-untyped-def]  # as some are
    return (yield Elicit(f"{name}?", str))


def words(name: str):  # type: ignore[no-untyped-def]  # a generator of strings
    yield name


def of_a_name_for_checkers(of: Transcript) -> Flow[str]:
    return (yield from Elicit(f"{of}?", str))


class Menu:
    def __init_subclass__(cls, first: Any) -> None:
        cls.first = first

    first: Any


class Kitchen:
    @property
    def stove(self) -> Callable[[str], str]:
        raise AssertionError("reading does not run it")

    def __getattr__(self, name: str) -> Callable[[str], str]:
        raise AssertionError("nor this")

    def meal(self, name: str) -> Flow[str]:
        return (yield from Elicit(f"{name}?", str))

    def cook(self) -> Flow[str]:
        dish = self.meal("Ann")  # here
        yield from self.meal("Ben")
        return f"{dish}"


kitchen = Kitchen()

#: A module that makes its names when they are asked for.
pantry: Any = types.ModuleType("pantry")
pantry.__getattr__ = {"Confirm": Confirm}.__getitem__

# ---- wrong --------------------------------------------------------------------------


def in_a_text() -> Flow[str]:
    yield from meal("Ann")
    return f"{meal('Ben')}"  # here


def in_a_step() -> Flow[str]:
    dish = meal("Ann")  # here
    return (yield from fetch(dish))  # type: ignore[arg-type]


def in_a_comparison() -> Flow[bool]:
    yield from meal("Ann")
    return meal("Ben") == "soup"  # type: ignore[comparison-overlap]  # here


def never_read() -> Flow[None]:
    dish = meal("Ann")  # noqa: F841  # here
    yield from meal("Ben")


def as_an_attribute() -> Flow[Any]:
    dish: Any = meal("Ann")  # here
    yield from meal("Ben")
    return str(dish.upper())


def joined() -> Flow[str]:
    dishes: Any = [meal(name) for name in ("Ann", "Ben")]  # here
    yield from meal("Cleo")
    return ", ".join(dishes)


def of_another_object() -> Flow[str]:
    dish = kitchen.meal("Ann")  # here
    yield from meal("Ben")
    return str(dish)


def of_async_flows() -> Flow[str]:
    dish = awaited("Ann")  # here
    yield from meal("Ben")
    return f"{dish}"


def without_annotations() -> Flow[str]:
    dish = unannotated("Ann")  # type: ignore[no-untyped-call]  # here
    yield from meal("Ben")
    return f"{dish}"


def nested_flow() -> Flow[str]:
    def ask() -> Flow[str]:
        return (yield from meal("Ann"))

    dish = ask()  # here
    yield from ask()
    return f"{dish}"


def nested_flow_of_steps() -> Flow[str]:
    def page() -> Flow[str]:
        return (yield from fetch("a"))

    one = page()  # here
    yield from page()
    return f"{one}"


def nested_flows_that_call_each_other() -> Flow[str]:
    def ask(turn: int) -> Flow[str]:
        if turn:
            return (yield from again(turn))
        return (yield from Elicit("Who?", str))

    def again(turn: int) -> Flow[str]:
        return (yield from ask(turn - 1))

    name = ask(1)  # here
    yield from again(2)
    return f"{name}"


def in_a_condition() -> Flow[str]:
    yield from meal("Ann")
    if meal("Ben"):  # type: ignore[truthy-bool]  # here
        return "."
    return "!"


def in_a_condition_with_a_name() -> Flow[str]:
    yield from meal("Ann")
    if dish := meal("Ben"):  # type: ignore[truthy-bool]  # here
        return f"{dish}"
    return "!"


def a_part_of_it() -> Flow[str]:
    yield from meal("Ann")
    return str(meal("Ben")[0])  # type: ignore[index]  # here


def in_a_question() -> Flow[str]:
    yield from meal("Ann")
    return (yield from Elicit(message=meal("Ben"), type=str))  # type: ignore[call-overload, no-any-return]  # here


def with_names_for_checkers(of: Transcript) -> Flow[str]:
    name = of_a_name_for_checkers(of)  # here
    yield from of_a_name_for_checkers(of)
    return f"{name}"


def from_a_cache() -> Flow[str]:
    return (yield from cached_meal("Ann"))  # here


def undeclared() -> Flow[str]:
    try:
        return (yield from fetch("a"))
    except FetchError:  # here
        return ""


def undeclared_in_a_step() -> Flow[str]:
    try:
        return str((yield from Step(fetch.fn, "a")))
    except (KeyError, FetchError):  # here
        return ""


def declared_too_widely() -> Flow[str]:
    try:
        return (yield from fetch_declared("a"))
    except SmallError:  # here
        return ""


def of_a_library() -> Flow[str]:
    try:
        return (yield from fetch_json("a"))
    except json.JSONDecodeError:  # here
        return ""


def in_a_gather() -> Flow[str]:
    try:
        one, _ = yield from Gather(fetch("a"), fetch("b"))
    except FetchError:  # here
        return ""
    return one


def for_the_model() -> Flow[str]:
    try:
        return (yield from find("a"))
    except Unknown:  # here
        return ""


def in_a_step_of_a_step() -> Flow[str]:
    try:
        return str((yield from Step(fetch, "a")))
    except FetchError:  # here
        return ""


def in_a_flow_that_calls_itself() -> Flow[str]:
    def again(turn: int) -> Flow[str]:
        page = yield from fetch("a")
        return page if page or not turn else (yield from again(turn - 1))

    try:
        return (yield from again(3))
    except FetchError:  # here
        return ""


def raised_nowhere() -> Flow[str]:
    try:
        return json.dumps((yield from fetch_json("a")))
    except FetchError:  # here
        return ""


def raised_by_no_builtin() -> Flow[int]:
    try:
        return (yield from Step(len, "a"))
    except FetchError:  # here
        return 0


def in_a_list() -> Flow[list[str]]:
    steps = [Step(lambda: name) for name in ("a", "b")]  # here
    return (yield from Gather.each(steps))


def appended() -> Flow[list[str]]:
    flows = []
    for name in ("a", "b"):

        def ask() -> Flow[str]:
            return (yield from Elicit(f"{name}?", str))

        flows.append(ask())  # here
    return (yield from Gather.each(flows))


def by_name() -> Flow[list[str]]:
    steps: dict[str, Any] = {}
    for row in (["a"], ["b"]):
        name = row[0]
        steps[name] = lambda: name  # here
    return (yield from Gather.each(Step(one) for one in steps.values()))


def one_by_one() -> Flow[list[str]]:
    return (yield from Gather.each(Step(lambda: name) for name in ("a", "b")))  # here


def in_a_list_of_a_generator() -> Flow[list[str]]:
    steps = list(Step(lambda: name) for name in ("a", "b"))  # noqa: C400  # here
    return (yield from Gather.each(steps))


def in_a_dict() -> Flow[list[str]]:
    steps = {name: Step(lambda: name) for name in ("a", "b")}  # here
    return (yield from Gather.each(steps.values()))


def with_a_name() -> Flow[list[str]]:
    steps = []
    for name in ("a", "b"):

        def give() -> str:
            return name

        steps.append(Step(give))  # here
    return (yield from Gather.each(steps))


def counts_in_a_step() -> Flow[str]:
    found: list[str] = []

    def keep(name: str) -> None:
        found.append(name)

    yield from Step(keep, "a")  # here
    return f"{found}"


def keeps_in_a_step() -> Flow[str]:
    found: dict[str, int] = {}

    @step
    def keep(name: str) -> None:
        found[name] = len(name)

    yield from keep("a")  # here
    return f"{found}"


def adds_in_a_step() -> Flow[str]:
    count = 0

    @step(retries=1)
    def add() -> None:
        nonlocal count
        count += 1

    yield from add()  # here
    return f"{count}"


def thrown_away() -> Flow[str]:
    yield from Confirm("Sure?")  # here
    return "."


def of_a_module() -> Flow[str]:
    yield from pantry.Confirm("Sure?")  # here
    return "."


def never_looked_at() -> Flow[str]:
    sure = yield from Confirm("Sure?")  # noqa: F841  # here
    return "."


def gathered_for_nothing() -> Flow[str]:
    yield from Gather(Confirm("Sure?"), Confirm("Really?"))  # here
    return "."


def decides_nothing() -> Flow[str]:
    if (yield from Confirm("Sure?")):  # here
        pass
    return "."


def taken_for_none() -> Flow[str]:
    sure: Any = yield from Confirm("Sure?")  # here
    return "." if sure is None else "!"


def taken_for_a_text() -> Flow[str]:
    sure: Any = yield from Confirm("Sure?")  # here
    if sure == "no":
        return "."
    return "!"


WRONG = (
    *(
        (one, "forgotten")
        for one in (in_a_text, in_a_step, in_a_comparison, never_read)
    ),
    *((one, "forgotten") for one in (as_an_attribute, joined, of_another_object)),
    *((one, "forgotten") for one in (of_async_flows, without_annotations, nested_flow)),
    (kitchen.cook, "forgotten"),
    *((one, "forgotten") for one in (in_a_condition, in_a_condition_with_a_name)),
    *((one, "forgotten") for one in (a_part_of_it, in_a_question)),
    *((one, "forgotten") for one in (nested_flow_of_steps, with_names_for_checkers)),
    (nested_flows_that_call_each_other, "forgotten"),
    (from_a_cache, "misuse"),
    *((one, "unreached") for one in (undeclared, undeclared_in_a_step, in_a_gather)),
    *((one, "unreached") for one in (declared_too_widely, of_a_library, for_the_model)),
    *((one, "unreached") for one in (raised_nowhere, raised_by_no_builtin)),
    (in_a_step_of_a_step, "unreached"),
    (in_a_flow_that_calls_itself, "unreached"),
    *((one, "late") for one in (in_a_list, appended, by_name, one_by_one, in_a_dict)),
    *((one, "late") for one in (in_a_list_of_a_generator, with_a_name)),
    *((one, "mutates") for one in (counts_in_a_step, keeps_in_a_step)),
    (adds_in_a_step, "mutates"),
    *((one, "unused") for one in (thrown_away, never_looked_at, taken_for_none)),
    *((one, "unused") for one in (taken_for_a_text, gathered_for_nothing)),
    *((one, "unused") for one in (decides_nothing, of_a_module)),
)

# ---- right --------------------------------------------------------------------------


def run_later() -> Flow[str]:
    dish = meal("Ann")
    name = yield from Elicit("Who?", str)
    other = meal("Ben") if name else None
    if other is None:
        return "nothing"
    yield from dish
    return (yield from other)


def run_together() -> Flow[list[str]]:
    dishes = [meal("Ann")]
    dishes.append(meal("Ben"))
    return (yield from Gather.each(dishes))


def run_by_another() -> Flow[str]:
    def twice(flow: Flow[str]) -> Flow[str]:
        return (yield from flow)

    return (yield from twice(meal("Ann")))


def chosen() -> Flow[Flow[str]]:
    """A flow that gives a flow, for its caller to run."""
    yield from meal("Ann")
    return meal("Ben")


def runs_what_is_chosen() -> Flow[str]:
    flow = yield from chosen()
    return (yield from flow)


def run_by_another_name() -> Flow[str]:
    dish = meal("Ann")
    other = dish
    return (yield from other)


def run_by_whom_it_is_left_for() -> Flow[str]:
    dish = None

    def choose() -> Flow[None]:
        nonlocal dish
        name = yield from Elicit("Who?", str)
        dish = meal(name)

    yield from choose()
    return (yield from dish) if dish else ""


def given_to_a_class() -> Flow[str]:
    class Today(Menu, first=meal("Ann")):
        pass

    return str((yield from Today.first))


def asks_objects() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    return kitchen.stove(name) + kitchen.oven(name)


def texts() -> Flow[str]:
    yield from meal("Ann")
    return ", ".join(words("Ann")) + f"{list(words('Ben'))}"


def declared() -> Flow[str]:
    try:
        return (yield from fetch_declared("a"))
    except FetchError:
        return ""


def caught_beside() -> Flow[str]:
    try:
        return (yield from fetch("a"))
    except (FetchError, StepFailed):
        return ""


def caught_more_widely() -> Flow[str]:
    try:
        return (yield from fetch("a"))
    except FetchError:
        return ""
    except FlowError:
        return "."


def raised_here() -> Flow[str]:
    try:
        page = yield from fetch("a")
        if not page:
            raise FetchError("empty")
        return page
    except FetchError:
        return ""


def raised_more_narrowly() -> Flow[str]:
    try:
        page = yield from fetch("a")
        if not page:
            raise SmallError("empty")
        return page
    except FetchError:
        return ""


def raised_again(error: Exception) -> Flow[str]:
    try:
        page = yield from fetch("a")
        if not page:
            raise error
        return page
    except FetchError:
        return ""


def caught_whatever_it_is() -> Flow[str]:
    try:
        return (yield from fetch("a"))
    except (FetchError, BaseException):
        return ""
    except:  # noqa: E722
        return "."


def catches_what_is_given(errors: type[Exception] = FetchError) -> Flow[str]:
    try:
        return (yield from fetch("a"))
    except errors:
        return ""


def raised_by_a_flow_in_a_variable(flow: Flow[str]) -> Flow[str]:
    try:
        return (yield from flow) + (yield from fetch("a"))
    except FetchError:
        return ""


def raised_by_a_step_without_a_name() -> Flow[str]:
    try:
        return (yield from Step(lambda: check(""))) + (yield from fetch("a"))
    except FetchError:
        return ""


def raised_by_a_library() -> Flow[str]:
    try:
        return f"{attrs.asdict((yield from fetch_json('a')))}"  # type: ignore[arg-type]
    except FetchError:
        return ""


def raised_by_a_function() -> Flow[str]:
    try:
        return check(check((yield from fetch("a")).upper()))
    except FetchError:
        return ""


def raised_by_what_is_given(checks: Callable[[str], str] = check) -> Flow[str]:
    try:
        return checks((yield from fetch("a")))
    except FetchError:
        return ""


def raised_by_an_operator() -> Flow[str]:
    try:
        one = yield from fetch("a")
        return f"{decimal.Decimal(1) / len(one)}"
    except decimal.InvalidOperation:
        return ""


def built_in() -> Flow[str]:
    try:
        return (yield from fetch("a"))
    except (TimeoutError, OSError, ValueError):
        return ""


def bound() -> Flow[list[str]]:
    steps = [Step(lambda name=name: name) for name in ("a", "b")]  # type: ignore[call-overload]
    return (yield from Gather.each(steps))


def performed_at_once() -> Flow[list[str]]:
    found = []
    for name in ("a", "b"):
        found.append((yield from Step(lambda: name)))
        found = sorted(found, key=lambda one: one + name)
    return found


def called_at_once() -> Flow[list[str]]:
    found = []
    for name in ("a", "b"):

        def give() -> str:
            return name

        found.append(give() + (lambda: name)())
        found.sort(key=lambda one: one + name)
    yield from Elicit("Who?", str)
    return found if all((lambda: name) for name in found) else []


def made_by_a_function() -> Flow[list[str]]:
    def ask(name: str) -> Flow[str]:
        return (yield from Elicit(f"{name}?", str))

    return (yield from Gather.each(ask(name) for name in ("a", "b")))


def reads_what_stays() -> Flow[list[int]]:
    most = 3
    steps = [Step(lambda: most) for _ in range(2)]
    return (yield from Gather.each(steps))


def keeps_for_itself() -> Flow[str]:
    seen: list[str] = []

    def plain(name: str) -> int:
        seen.append(name)
        return len(seen)

    plain("a")
    found = yield from Elicit("Who?", str)
    return f"{plain(found)} {seen}"


def changes_what_it_is_given() -> Flow[str]:
    kept: list[str] = []

    def keep(name: str) -> list[str]:
        found = [name.upper()]
        found.append(name)
        kept.append(name)
        return found

    return f"{yield from Step(keep, 'a')}"


def looked_at() -> Flow[str]:
    sure = yield from Confirm("Sure?")
    return "." if sure is True else f"{sure}"


def looked_at_by_another() -> Flow[str]:
    sure = False

    def ask() -> Flow[None]:
        nonlocal sure
        sure = yield from Confirm("Sure?")

    yield from ask()
    return f"{sure}"


def given_on() -> Flow[bool]:
    return (yield from Confirm("Sure?"))


RIGHT = (
    *(run_later, run_together, run_by_another, chosen, runs_what_is_chosen, texts),
    *(declared, caught_beside, caught_more_widely, raised_here, raised_by_a_function),
    *(raised_by_what_is_given, raised_by_an_operator, built_in, bound),
    *(performed_at_once, made_by_a_function, reads_what_stays, keeps_for_itself),
    *(looked_at, given_on, run_by_another_name, run_by_whom_it_is_left_for),
    *(given_to_a_class, asks_objects, raised_more_narrowly, raised_again),
    *(
        catches_what_is_given,
        caught_whatever_it_is,
        raised_by_a_flow_in_a_variable,
        raised_by_a_library,
    ),
    *(raised_by_a_step_without_a_name, called_at_once, changes_what_it_is_given),
    looked_at_by_another,
)


def marked(function: Any) -> str:
    """`file:line` of what is wrong."""
    source = source_of(function)
    assert source is not None
    with open(source.file, encoding="utf-8") as file:
        lines = file.read().splitlines()
    first, last = source.node.lineno, source.node.end_lineno
    (number,) = [n for n in range(first, last + 1) if lines[n - 1].endswith("# here")]  # type: ignore[operator]
    return f"{source.file}:{number}"


def named(one: Any) -> str:
    """The name of a function, alike in every process that runs these tests."""
    return str(getattr(one, "__name__", one))


@pytest.mark.parametrize(("function", "kind"), WRONG, ids=named)
def test_a_fault_that_can_be_read(function: Any, kind: str) -> None:
    (suspect,) = suspects_of(function)
    assert (suspect.kind, suspect.where) == (kind, marked(function))
    assert suspect.advice


@pytest.mark.parametrize("function", RIGHT, ids=named)
def test_what_only_looks_like_a_fault(function: Any) -> None:
    assert suspects_of(function) == []


# ---- refusals -----------------------------------------------------------------------


def caught_in_a_flow() -> Flow[str]:
    try:
        yield from meal("Ann")
    except Exception:
        pass
    return "."


def optional() -> Flow[str]:
    note = None
    try:
        note = yield from Elicit("Note?", str)
    except Refused:
        pass
    return f"{note}"


def not_caught() -> Flow[str]:
    try:
        return (yield from Elicit("Note?", str))
    except StepFailed:
        return str((yield from Outcome(Elicit("Other?", str))))


def test_clauses_that_swallow_refusals() -> None:
    (blanket,) = swallows_of(caught_in_a_flow).values()
    assert (blanket.is_blanket, blanket.is_empty) == (True, True)
    (narrow,) = swallows_of(optional).values()
    assert (narrow.is_blanket, narrow.is_empty, narrow.is_unused) == (
        False,
        True,
        False,
    )
    assert swallows_of(not_caught) == {}


# ---- sources ------------------------------------------------------------------------


def test_the_flows_that_a_handler_runs() -> None:
    names = [one.function.__name__ for one in sources_of(runs_what_is_chosen)]
    assert names == ["runs_what_is_chosen", "chosen", "meal"]


def test_what_a_function_raises() -> None:
    assert raised_by(fetch.fn) == (FetchError,)
    assert raised_by(raised_again) == ()
    assert raised_by(print) == ()
    assert raised_by(IdempotencyKey.__init__) == ()


def test_what_has_no_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def made():\n    yield", namespace)
    assert suspects_of(namespace["made"]) == []
    assert suspects_of(functools.partial(thrown_away)) != []
    assert suspects_of(print) == []
    assert suspects_of(types.MethodType(print, kitchen)) == []


def test_a_variable_that_has_no_value_yet() -> None:
    def asks() -> Flow[str]:
        yield from later("Ann")
        return f"{later('Ben')}"

    assert suspects_of(asks) == []
    later = meal
    (suspect,) = suspects_of(asks)
    assert (suspect.kind, later) == ("forgotten", meal)
