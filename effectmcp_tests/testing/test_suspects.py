"""Faults that can be read, and code that looks like them and is right."""

from __future__ import annotations

import decimal
import functools
import json
from collections.abc import Callable
from typing import Any

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
from effectmcp.testing.suspects import suspects_of

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


def words(name: str):  # type: ignore[no-untyped-def]  # a generator of texts
    yield name


class Kitchen:
    def meal(self, name: str) -> Flow[str]:
        return (yield from Elicit(f"{name}?", str))

    def cook(self) -> Flow[str]:
        dish = self.meal("Ann")  # here
        yield from self.meal("Ben")
        return f"{dish}"


kitchen = Kitchen()

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


def counts_in_a_step() -> Flow[str]:
    found: list[str] = []

    def keep(name: str) -> None:
        found.append(name)

    yield from Step(keep, "a")  # here
    return f"{found}"


def thrown_away() -> Flow[str]:
    yield from Confirm("Sure?")  # here
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
    (from_a_cache, "misuse"),
    *((one, "unreached") for one in (undeclared, undeclared_in_a_step, in_a_gather)),
    *((one, "unreached") for one in (declared_too_widely, of_a_library, for_the_model)),
    *((one, "late") for one in (in_a_list, appended, by_name)),
    (counts_in_a_step, "mutates"),
    *((one, "unused") for one in (thrown_away, never_looked_at, taken_for_none)),
    *((one, "unused") for one in (taken_for_a_text, gathered_for_nothing)),
    (decides_nothing, "unused"),
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


def raised_by_a_function() -> Flow[str]:
    try:
        return check((yield from fetch("a")))
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


def looked_at() -> Flow[str]:
    sure = yield from Confirm("Sure?")
    return "." if sure is True else f"{sure}"


def given_on() -> Flow[bool]:
    return (yield from Confirm("Sure?"))


RIGHT = (
    *(run_later, run_together, run_by_another, chosen, runs_what_is_chosen, texts),
    *(declared, caught_beside, caught_more_widely, raised_here, raised_by_a_function),
    *(raised_by_what_is_given, raised_by_an_operator, built_in, bound),
    *(performed_at_once, made_by_a_function, reads_what_stays, keeps_for_itself),
    *(looked_at, given_on),
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
def test_what_looks_like_a_fault_and_is_none(function: Any) -> None:
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
    assert raised_by(IdempotencyKey.__init__) == ()


def test_what_has_no_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def made():\n    yield", namespace)
    assert suspects_of(namespace["made"]) == []
    assert suspects_of(functools.partial(thrown_away)) != []
    assert suspects_of(print) == []
