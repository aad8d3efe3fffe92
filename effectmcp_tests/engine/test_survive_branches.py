"""Hard cases that the engine must survive: branches."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Cancelled,
    Checkpoint,
    Confirm,
    Declined,
    Detach,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Log,
    Now,
    Outcome,
    Progress,
    Random,
    Restart,
    Step,
    StepFailed,
    ToolError,
    UsageError,
    Uuid,
    Version,
)
from effectmcp.engine import (
    LIVE,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Raised,
    Returned,
)

from ..helpers import (
    UNCAPPED,
    WAYS,
    advance,
    answers_to,
    by_store,
    flow_of,
    keys,
    messages,
    perform,
    returns,
    run,
    yes,
)

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

log: list[Any] = []


@pytest.fixture(autouse=True)
def empty_log() -> None:
    """Each test begins with an empty log of effects."""
    log.clear()


def note(what: str) -> str:
    log.append(what)
    return what


def round_of(
    handler: Callable[..., Any],
    journal: Journal | None = None,
    said: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Journal]:
    """One round by retry: where it stopped, and the journal that goes out."""
    one = run(handler, journal=journal, **{"rules": UNCAPPED, **options})
    stop = advance(one, one.start(said))
    return stop, Journal.loads(one.suspend().dumps())


def echo(question: Any) -> Accepted[Any]:
    return Accepted({"value": f"re: {question.effect.message}"})


def ask(text: str) -> Flow[str]:
    return (yield from Elicit(text, str))


def line(handler: Callable[..., Any], offset: int) -> str:
    """`file:line` of the line `offset` below the `def` of `handler`."""
    return f"{__file__}:{handler.__code__.co_firstlineno + offset}"


# ---- how many -----------------------------------------------------------------------


@every_way
def test_no_branches(way: Any) -> None:
    """A Gather of nothing: an empty tuple, or list, at once."""

    def handler() -> Flow[Any]:
        nothing = yield from Gather()
        nobody: list[str] = yield from Gather.each([])
        asked = yield from Elicit("Who?", str)
        return nothing, nobody, asked, (yield from Gather())

    assert returns(way(handler)) == ((), [], "text", ())


@every_way
def test_one_branch(way: Any) -> None:
    """A Gather of one, effect or flow."""

    def handler() -> Flow[Any]:
        one = yield from Gather(Elicit("a", str))
        two = yield from Gather.each([ask("b")])
        three = yield from Gather(Now())
        return one, two, len(three)

    assert returns(way(handler, answer=echo)) == (("re: a",), ["re: b"], 1)


@every_way
def test_nested_branches(way: Any) -> None:
    """Nested Gathers: their questions go out together, their values come up in place."""

    def inner(name: str) -> Flow[Any]:
        pair = yield from Gather(ask(f"{name}1"), Gather(ask(f"{name}2"), Now()))
        return pair[0], pair[1][0]

    def handler() -> Flow[Any]:
        return (yield from Gather(inner("a"), Gather(inner("b"), ask("c")), ask("d")))

    stop = run(handler, rules=LIVE)
    first = advance(stop, stop.start())
    assert messages(first) == ["a1", "a2", "b1", "b2", "c", "d"]
    assert returns(way(handler, answer=echo)) == (
        ("re: a1", "re: a2"),
        (("re: b1", "re: b2"), "re: c"),
        "re: d",
    )


def test_nested_branches_have_wire_keys_of_their_own() -> None:
    """Keys are unique within a branch; the path makes them unique on the wire."""

    def inner() -> Flow[Any]:
        return (
            yield from Gather(Elicit("a", str, key="who"), Elicit("b", str, key="who"))
        )

    stop, _ = round_of(lambda: (yield from Gather(inner(), inner())))
    assert keys(stop) == [
        f"gather-1/{outer}/gather-1/{one}/who" for outer in (0, 1) for one in (0, 1)
    ]


def test_nested_branches_too_deep() -> None:
    """Gathers nested sixteen deep are fine; one more is refused at its line."""

    def nest(depth: int) -> Flow[Any]:
        if depth == 0:
            return (yield from Elicit("Who?", str))
        return (yield from Gather(nest(depth - 1)))

    def depth_of(value: Any) -> int:
        return 1 + depth_of(value[0]) if isinstance(value, tuple) else 0

    for way in WAYS.values():
        assert depth_of(returns(way(nest, 16))) == 16
        stop = way(nest, 17)
        assert isinstance(stop, Raised)
        assert isinstance(stop.error, UsageError)
        assert "16" in stop.error.problem
        assert stop.error.where == line(nest, 3)


@every_way
def test_nested_branches_with_values_of_some_depth(way: Any) -> None:
    """The result of a step in nested branches is recorded, at any total depth."""

    def load() -> Any:
        value: Any = 1
        for _ in range(40):
            value = [value]
        return value

    def nest(depth: int) -> Flow[Any]:
        if depth == 0:
            yield from Step(load)
            return (yield from Elicit("Who?", str))
        (found,) = yield from Gather(nest(depth - 1))
        return found

    assert returns(way(nest, 12)) == "text"


@every_way
def test_one_effect_twice(way: Any) -> None:
    """One effect object in two branches is two questions."""
    who = Elicit("Who?", str)

    def handler() -> Flow[Any]:
        return (yield from Gather(who, who))

    def answer(question: Any) -> Any:
        return Accepted({"value": question.key})

    assert returns(way(handler, answer=answer)) == (
        "gather-1/0/elicit-1",
        "gather-1/1/elicit-1",
    )


def test_one_flow_twice() -> None:
    """One flow in two branches is refused: call the function once per branch."""

    def handler() -> Flow[Any]:
        flow = ask("a")
        return (yield from Gather(flow, flow))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert "call the function once per branch" in stop.error.problem
    assert stop.error.where == line(handler, 2)


@every_way
def test_one_gather_of_flows_twice(way: Any) -> None:
    """A Gather of flows is identity: performing it twice is an error at the second yield."""

    def handler() -> Flow[Any]:
        both = Gather(ask("a"), ask("b"))
        yield from both
        return (yield from both)

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert "already started" in stop.error.problem
    assert "call the function again" in stop.error.problem
    assert stop.error.where == line(handler, 3)


@every_way
def test_one_gather_of_effects_twice(way: Any) -> None:
    """A Gather of effects is a value: it may be performed again, and asks again."""

    def handler() -> Flow[Any]:
        both = Gather(Elicit("a", str), Now())
        return (yield from both)[0], (yield from both)[0]

    assert returns(way(handler, answer=echo)) == ("re: a", "re: a")


NO_BRANCHES: dict[str, Any] = {
    "class": (Now, "write Now(...)"),
    "function": (ask, "call it: ask(...)"),
    "text": ("ask", "neither"),
    "none": (None, "neither"),
    "list": ([Now()], "neither"),
}


@pytest.mark.parametrize(("branch", "words"), NO_BRANCHES.values(), ids=NO_BRANCHES)
def test_gather_of_values_that_are_not_branches(branch: Any, words: str) -> None:
    """A value that is neither effect nor flow is refused by name; no branch starts."""

    def handler() -> Flow[Any]:
        return (yield from Gather(Step(note, "performed!"), branch))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert words in stop.error.problem
    assert stop.error.where == line(handler, 1)
    assert log == []


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_500_branches(way: Any) -> None:
    """500 branches, each with a step and two questions: two rounds, everything once."""

    def branch(n: int) -> Flow[str]:
        first = yield from Elicit(f"{n}?", str)
        yield from Step(note, f"step {n}")
        second = yield from Elicit(f"{n}, and?", str)
        return f"{first} {second}"

    def handler() -> Flow[list[str]]:
        return (yield from Gather.each(branch(n) for n in range(500)))

    assert returns(way(handler, answer=echo)) == [
        f"re: {n}? re: {n}, and?" for n in range(500)
    ]
    assert log == [f"step {n}" for n in range(500)]


def test_500_branches_take_as_many_rounds_as_the_longest() -> None:
    """The rounds of a Gather are its longest branch."""

    def branch(n: int) -> Flow[None]:
        for m in range(n % 4):
            yield from Elicit(f"{n} {m}", str)

    def handler() -> Flow[Any]:
        return (yield from Gather.each(branch(n) for n in range(500)))

    sizes = []
    stop, journal = round_of(handler)
    while isinstance(stop, Asked):
        sizes.append(len(stop.questions))
        stop, journal = round_of(handler, journal, answers_to(stop, yes))
    assert sizes == [375, 250, 125]


# ---- local and client effects mixed -------------------------------------------------


@every_way
def test_local_and_client_effects_mixed(way: Any) -> None:
    """Local and client effects mixed: local waves first, then one round of all questions."""
    events: list[str] = []

    def branch(name: str, effects: str) -> Flow[str]:
        for n, kind in enumerate(effects):
            if kind == "s":
                yield from Step(note, f"{name}{n}")
            elif kind == "q":
                yield from Elicit(f"{name}{n}", str)
            elif kind == "n":
                yield from Now()
            elif kind == "i":
                yield from IdempotencyKey(name)
                yield from Version(name, default=0, latest=1)
                yield from Progress(n)
                yield from Log("info", n)
            events.append(f"{name}{n}")
        return name

    def handler() -> Flow[Any]:
        events.clear()
        return (
            yield from Gather(
                branch("a", "sqsq"), branch("b", "qisn"), branch("c", "ii"), Random()
            )
        )

    assert returns(way(handler)) == ("a", "b", "c", 0.25)
    # The order of events that all ways and replays share, by waves:
    assert events == [
        *("c0", "c1", "a0"),  # until the first wait; the wave of a's step
        *("a1", "b0", "b1"),  # the round of both questions
        *("a2", "b2", "b3"),  # steps; then b's Now alone
        "a3",
    ]
    assert log == ["a0", "a2", "b2"]


def test_local_and_client_effects_mixed_go_out_as_one_round() -> None:
    """No question goes out while any leaf wants something local."""

    def handler() -> Flow[Any]:
        return (
            yield from Gather(
                Elicit("a", str), flow_of(Now(), Uuid(), Elicit("b", str))()
            )
        )

    one = run(handler)
    stop: Any = one.start()
    for key in ("gather-1/1/now-1", "gather-1/1/uuid-1"):
        assert isinstance(stop, Perform)
        assert [want.key for want in stop.wants] == [key]
        stop = one.performed({key: perform(stop.wants[0])})
    assert messages(stop) == ["a", "b"]


def test_local_effects_of_one_wave_are_performed_together() -> None:
    """The local effects of a wave are wanted at once, so that they may run side by side."""

    def handler() -> Flow[Any]:
        return (yield from Gather(Step(note, "a"), Now(), Gather(Step(note, "b"))))

    one = run(handler)
    stop = one.start()
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == [
        "gather-1/0/step-1",
        "gather-1/1/now-1",
        "gather-1/2/gather-1/0/step-1",
    ]
    rest = one.performed({stop.wants[0].key: Done("a")})
    assert isinstance(rest, Perform)
    assert [want.key for want in rest.wants] == [want.key for want in stop.wants[1:]]


@every_way
def test_checkpoint_belongs_to_the_client_wave(way: Any) -> None:
    """A Checkpoint waits for the questions, and then makes no round of its own."""
    events = []

    def left() -> Flow[None]:
        yield from Checkpoint()
        events.append("checkpoint")

    def right() -> Flow[None]:
        yield from Now()
        events.append("now")
        yield from Elicit("b", str)
        events.append("asked")

    def handler() -> Flow[Any]:
        events.clear()
        yield from Gather(left(), right())

    assert returns(way(handler)) is None
    assert events == ["now", "checkpoint", "asked"]


# ---- failures -----------------------------------------------------------------------


def failing(text: str) -> str:
    raise ValueError(text)


@every_way
def test_one_failing_first(way: Any) -> None:
    """One failing first: siblings get Cancelled, no question goes out, cleanup is performed."""
    seen: list[Any] = []

    def sibling() -> Flow[str]:
        try:
            return (yield from Elicit("never asked", str))
        except BaseException as exc:
            seen.append(type(exc))
            raise
        finally:
            yield from Step(note, "cleanup")

    def handler() -> Flow[Any]:
        seen.clear()
        return (yield from Gather(sibling(), Step(failing, "first")))

    def answer(question: Any) -> Any:
        raise AssertionError(
            "a local failure before the questions means they do not go"
        )

    stop = way(handler, answer=answer)
    assert isinstance(stop, Raised)
    assert repr(stop.error) == "ValueError('first')"
    assert seen == [Cancelled]
    assert log == ["cleanup"]


@every_way
def test_several_failing_in_one_wave(way: Any) -> None:
    """The lowest position wins among the branches that failed in one wave, in any order."""

    def handler() -> Flow[Any]:
        yield from Gather(
            flow_of(Now(), Step(failing, "later wave"))(),
            Step(note, "fine"),
            Step(failing, "lowest"),
            Step(failing, "highest"),
        )

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert repr(stop.error) == "ValueError('lowest')"


@every_way
def test_failing_wave_is_delivered_to_all_first(way: Any) -> None:
    """The whole wave is delivered before the failure counts."""
    got: list[Any] = []

    def sibling(name: str) -> Flow[None]:
        got.append((yield from Elicit(name, str)))
        yield from Elicit("never asked", str)

    def failing_branch() -> Flow[None]:
        yield from Elicit("b", str)
        raise ToolError("no")

    def handler() -> Flow[Any]:
        got.clear()
        try:
            yield from Gather(sibling("a"), failing_branch(), sibling("c"))
        except ToolError:
            return list(got)

    assert returns(way(handler, answer=echo)) == ["re: a", "re: c"]


@every_way
def test_branch_failure_caught(way: Any) -> None:
    """A branch failure caught around the Gather: the flow continues, in every replay too."""

    def handler() -> Flow[Any]:
        seen: list[Any] = []
        try:
            yield from Gather(Elicit("a", str), Step(failing, "no"))
        except ValueError as exc:
            seen.append(str(exc))
        seen.append((yield from Elicit("b", str)))
        try:
            yield from Gather(Elicit("c", str), Elicit("d", str))
        except Declined:
            seen.append("declined")
        return [*seen, (yield from Elicit("e", str))]

    def answer(question: Any) -> Any:
        return Declined() if question.effect.message == "c" else echo(question)

    assert returns(way(handler, answer=answer)) == ["no", "re: b", "declined", "re: e"]


@every_way
def test_branch_failure_caught_inside(way: Any) -> None:
    """A failure caught inside its branch is not a failure of the Gather."""

    def careful() -> Flow[str]:
        try:
            return (yield from Step(failing, "no"))
        except ValueError:
            return (yield from Elicit("instead", str))

    def handler() -> Flow[Any]:
        return (yield from Gather(careful(), Outcome(Confirm("b"))))

    assert returns(way(handler)) == ("text", Accepted(True))


@every_way
def test_cleanup_of_cancelled_branches(way: Any) -> None:
    """Questions, Gathers and Restarts in cleanup get Cancelled again; local effects are done."""
    seen: list[Any] = []

    def refused(effect: Any) -> Flow[None]:
        try:
            yield from effect
        except BaseException as exc:
            seen.append(type(exc))

    def sibling() -> Flow[None]:
        try:
            yield from Elicit("never asked", str)
        finally:
            yield from refused(Elicit("in cleanup", str))
            yield from refused(Gather(Now()))
            yield from refused(Restart(ask, "in cleanup"))
            yield from refused(Checkpoint())
            yield from Step(note, "released")

    def handler() -> Flow[Any]:
        seen.clear()
        yield from Gather(sibling(), Step(failing, "no"))

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, ValueError)
    assert seen == [Cancelled] * 4
    assert log == ["released"]


@every_way
def test_cleanup_of_cancelled_branches_is_bounded(way: Any) -> None:
    """Cleanup may perform sixteen local effects; then it is Cancelled again."""

    def sibling() -> Flow[None]:
        try:
            yield from Elicit("never asked", str)
        finally:
            for n in range(20):
                yield from Step(note, f"{n}")

    def handler() -> Flow[Any]:
        yield from Gather(sibling(), Step(failing, "no"))

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, ValueError)
    assert log == [f"{n}" for n in range(16)]


@every_way
def test_cancelled_branch_that_returns_or_raises(way: Any) -> None:
    """The return value or error of a cancelled sibling changes nothing."""

    def returning() -> Flow[str]:
        try:
            return (yield from Elicit("a", str))
        except BaseException:
            return "swallowed"

    def raising() -> Flow[str]:
        try:
            return (yield from Elicit("a", str))
        except BaseException as exc:
            raise OSError("another") from exc

    def handler() -> Flow[Any]:
        yield from Gather(raising(), returning(), Step(failing, "the first"))

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert repr(stop.error) == "ValueError('the first')"


@every_way
def test_nested_branches_failing(way: Any) -> None:
    """A failure below cancels its siblings, then its Gather's siblings, cleanup included."""

    def releasing(name: str) -> Flow[None]:
        try:
            yield from Elicit(name, str)
        finally:
            yield from Step(note, f"release {name}")

    def inner() -> Flow[Any]:
        try:
            return (yield from Gather(releasing("a"), Step(failing, "no")))
        finally:
            yield from Step(note, "release inner")

    def handler() -> Flow[Any]:
        yield from Gather(releasing("b"), inner(), Gather(releasing("c")))

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert repr(stop.error) == "ValueError('no')"
    assert log == ["release a", "release inner", "release b", "release c"]


@every_way
def test_branch_failing_at_once(way: Any) -> None:
    """A branch that raises before its first yield."""

    def broken() -> Flow[None]:
        for text in ("at once",):
            raise ToolError(text)
        yield Now()

    def handler() -> Flow[Any]:
        try:
            return (yield from Gather(Elicit("never asked", str), broken()))
        except ToolError:
            return (yield from Elicit("instead", str))

    assert returns(way(handler, answer=echo)) == "re: instead"


@every_way
def test_branch_failing_with_an_author_defined_class(way: Any) -> None:
    """A step's own exception comes out of a Gather as StepFailed, on the first run too."""

    class OwnError(Exception):
        pass

    def broken() -> str:
        raise OwnError("mine")

    def handler() -> Flow[Any]:
        try:
            yield from Gather(Step(broken), Now())
        except StepFailed as exc:
            yield from Elicit("Who?", str)
            return exc.type, exc.message

    assert returns(way(handler)) == ("OwnError", "mine")


@pytest.mark.parametrize(
    "effect", [Detach(), Restart(ask, "x")], ids=["detach", "restart"]
)
def test_top_level_effects_in_a_branch(effect: Any) -> None:
    """Restart and Detach are refused in branches, at the line."""

    def branch() -> Flow[Any]:
        return (yield from effect)

    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("a", str), branch()))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert type(effect).__name__ in stop.error.problem
    assert "top level" in stop.error.problem
    assert stop.error.where == line(branch, 1)


# ---- partial answers ----------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("is_live", [False, True])
def test_partial_answers(order: tuple[int, ...], is_live: bool) -> None:
    """Partial answers, in any order: kept as they come, delivered when the last is in."""
    delivered: list[str] = []

    def branch(n: int) -> Flow[str]:
        answer = yield from Elicit(f"{n}", str)
        delivered.append(answer)
        yield from Step(note, answer)
        return answer

    def handler() -> Flow[Any]:
        delivered.clear()
        return (yield from Gather(branch(0), branch(1), branch(2)))

    wires = [f"gather-1/{n}/elicit-1" for n in range(3)]
    one = run(handler, rules=LIVE if is_live else UNCAPPED)
    stop: Any = one.start()
    for n in order:
        assert delivered == []
        assert log == []
        assert keys(stop) == [wire for wire in wires if wire in keys(stop)]
        assert wires[n] in keys(stop)
        said = {wires[n]: Accepted({"value": f"{n}"})}
        if is_live:
            stop = advance(one, one.answered(said))
        else:
            journal = Journal.loads(one.suspend().dumps())
            delivered.clear()
            one = run(handler, journal=journal, rules=UNCAPPED)
            stop = advance(one, one.start(said))
    assert stop == Returned(("0", "1", "2"))
    assert delivered == log == ["0", "1", "2"]


@every_way
def test_partial_answers_of_branches_of_different_length(way: Any) -> None:
    """A branch that is ahead waits for the others, except in a task, where it continues."""
    rounds = []

    def branch(name: str, count: int) -> Flow[str]:
        for n in range(count):
            yield from Elicit(f"{name}{n}", str)
        return name

    def handler() -> Flow[Any]:
        return (yield from Gather(branch("a", 3), branch("b", 1)))

    def answer(question: Any) -> Any:
        rounds.append(question.effect.message)
        if question.effect.message == "b0" and rounds.count("b0") < 3:
            return None
        return yes(question)

    assert returns(way(handler, answer=answer)) == ("a", "b")
    if way is by_store:
        assert rounds == ["a0", "b0", "a1", "b0", "a2", "b0"]
    else:
        assert rounds == ["a0", "b0", "b0", "b0", "a1", "a2"]


# ---- shared objects -----------------------------------------------------------------


@every_way
def test_shared_objects(way: Any) -> None:
    """Branches that share Python objects see one order of events, in every replay."""
    histories: list[list[str]] = []

    def branch(name: str, shared: list[str], effects: str) -> Flow[int]:
        for n, kind in enumerate(effects):
            seen = ",".join(shared)
            if kind == "q":
                yield from Elicit(f"{name}{n} after {seen}", str)
            else:
                yield from Step(note, f"{name}{n} after {seen}")
            shared.append(f"{name}{n}")
        return len(shared)

    def handler() -> Flow[Any]:
        shared: list[str] = []
        histories.append(shared)
        sizes = yield from Gather(
            branch("a", shared, "qsq"),
            branch("b", shared, "sqqs"),
            Gather(branch("c", shared, "q"), branch("d", shared, "ssq")),
        )
        yield from Elicit("Enough?", str)
        return sizes, shared

    def answer(question: Any) -> Any:
        # One of a round's questions is always late.
        text = question.effect.message
        return None if text not in asked and not asked.add(text) else yes(question)  # type: ignore[func-returns-value]

    asked: set[str] = set()
    expected, performed = None, None
    for one in WAYS.values():
        asked.clear()
        log.clear()
        result = returns(one(handler, answer=answer))
        if expected is None:
            expected, performed = result, list(log)
        assert result == expected
        assert log == performed
    asked.clear()
    assert returns(way(handler, answer=answer)) == expected
    # Every replay, however far it went, saw a beginning of the same history.
    whole = max(histories, key=len)
    assert all(history == whole[: len(history)] for history in histories)


@every_way
def test_shared_objects_decide_what_is_asked(way: Any) -> None:
    """The questions of a branch may depend on another's effects in an earlier wave."""

    def first(shared: dict[str, str]) -> Flow[None]:
        shared["name"] = yield from Elicit("Who?", str)

    def second(shared: dict[str, str]) -> Flow[str]:
        yield from Elicit("When?", str)
        return (yield from Elicit(f"For {shared['name']}?", str))

    def handler() -> Flow[Any]:
        shared: dict[str, str] = {}
        return (yield from Gather(first(shared), second(shared)))

    assert returns(way(handler, answer=echo)) == (None, "re: For re: Who??")


# ---- effects without an entry -------------------------------------------------------


@every_way
def test_idempotency_keys_of_branches(way: Any) -> None:
    """Idempotency keys differ from branch to branch and use to use, and stay in replays."""

    def branch() -> Flow[list[str]]:
        first = yield from IdempotencyKey("charge")
        yield from Elicit("Who?", str)
        return [first, (yield from IdempotencyKey("charge"))]

    def handler() -> Flow[Any]:
        both = yield from Gather(branch(), branch())
        return [*both[0], *both[1], (yield from IdempotencyKey("charge"))]

    found = returns(way(handler))
    assert len(set(found)) == 5
    assert found == returns(WAYS["script"](handler))


# ---- a performer that is slow or wrong ----------------------------------------------


def test_failure_in_one_branch_is_kept_until_the_wave_is_in() -> None:
    """A wave's outcomes come together, failures among them, and each goes to its branch."""
    got: list[Any] = []

    def branch(name: str) -> Flow[None]:
        try:
            got.append((yield from Step(note, name)))
        except OSError as exc:
            got.append(repr(exc))

    def handler() -> Flow[None]:
        yield from Gather(branch("a"), branch("b"), branch("c"))

    one = run(handler, rules=attrs.evolve(LIVE))
    stop = one.start()
    assert isinstance(stop, Perform)
    a, b, c = (want.key for want in stop.wants)
    end = one.performed({c: Done("C"), b: Failure(OSError("B")), a: Done("A")})
    assert end == Returned(None)
    assert got == ["A", "OSError('B')", "C"]
