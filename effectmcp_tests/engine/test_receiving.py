from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    BudgetError,
    Cancelled,
    CanonicalError,
    Checkpoint,
    Confirm,
    Detach,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    FormError,
    Gather,
    IdempotencyKey,
    InputRequest,
    ListRoots,
    Log,
    NotAnEffectError,
    Now,
    Outcome,
    Progress,
    Provided,
    Restart,
    Sample,
    Sleep,
    Status,
    Step,
    StepError,
    StepOptions,
    Suspended,
    ToolError,
    Unsupported,
    UsageError,
    Version,
    Within,
    step,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    SCRIPT,
    TASK,
    Answer,
    Asked,
    Journal,
    Question,
    Raised,
    Returned,
    Rules,
)
from effectmcp.engine.receiving import Receiver
from effectmcp_tests.helpers import (
    UNCAPPED,
    advance,
    by_retry,
    by_script,
    flow_of,
    keys,
    live,
    returns,
    run,
    shown,
)


def charge(amount: int = 1) -> str:
    return f"charged {amount}"


def other_flow(title: str) -> Flow[str]:
    yield from Confirm("Again?")
    return title


def thrown(yielded: Any, rules: Rules = SCRIPT, **options: Any) -> UsageError:
    """Return the error thrown at a bare `yield` of a value, caught by the handler."""

    def handler() -> Any:
        try:
            yield yielded
        except UsageError as exc:
            return exc
        return None

    error = returns(by_script(handler, rules=rules, **options))
    assert isinstance(error, UsageError), error
    return error


def error_of(stop: Returned | Raised) -> BaseException:
    assert isinstance(stop, Raised), stop
    return stop.error


# ---- values other than effects ----


@pytest.mark.parametrize(
    ("yielded", "hint"),
    [
        (None, "None is not an effect"),
        (5, "5 is not an effect"),
        ("a", "`yield from` a string yields its characters"),
        ([Now()], "write Gather(...)"),
        (Elicit, "That is the class. Write Elicit(...)"),
        (charge, "Write Step(function, ...)"),
    ],
    ids=shown,
)
def test_yield_of_a_value_that_is_not_an_effect(yielded: Any, hint: str) -> None:
    """L6: thrown at the yield, with the author's line; the handler may continue."""
    error = thrown(yielded)
    assert isinstance(error, NotAnEffectError)
    assert hint in error.problem
    assert error.where is not None
    assert error.where.startswith(__file__)


def test_yield_from_a_string_yields_its_characters() -> None:
    def handler() -> Any:
        yield from "abc"

    stop = by_script(handler)
    assert isinstance(stop, Raised)
    assert "'a' is not an effect" in str(stop.error)


def test_yield_of_an_author_defined_effect() -> None:
    class Mine(InputRequest[None]):
        pass

    assert isinstance(thrown(Mine()), NotAnEffectError)


# ---- keys ----


def test_keys_are_kind_and_ordinal_in_the_sequence() -> None:
    one = run(
        flow_of(Now(), Confirm("a"), Step(charge), Confirm("b"), Now()), rules=SCRIPT
    )
    stop = advance(one, one.start())
    while isinstance(stop, Asked):
        stop = advance(one, one.answered({stop.questions[0].key: Accepted(None)}))
    assert [entry.key for entry in one.journal.entries] == [
        "now-1", "confirm-1", "step-1", "confirm-2", "now-2",
    ]  # fmt: skip


def test_keys_given_are_counted_from_the_second_use_on() -> None:
    """E3: a second use of an explicit key in one sequence gets `#2`."""
    same = Confirm("Sure?", key="sure")
    one = run(flow_of(same, same, Confirm("b"), same), rules=SCRIPT)
    asked = []
    stop = one.start()
    while isinstance(stop, Asked):
        asked += keys(stop)
        stop = one.answered({asked[-1]: Accepted(None)})
    assert asked == ["sure", "sure#2", "confirm-1", "sure#3"]


def test_keys_are_unique_within_a_branch_only() -> None:
    same = Confirm("Sure?", key="sure")
    one = run(flow_of(Gather(same, same)), rules=SCRIPT)
    assert keys(one.start()) == ["gather-1/0/sure", "gather-1/1/sure"]


def test_key_does_not_count_for_the_generated_ones() -> None:
    one = run(flow_of(Gather(Confirm("a", key="x"), Confirm("b"))), rules=SCRIPT)
    assert keys(one.start()) == ["gather-1/0/x", "gather-1/1/confirm-1"]


@pytest.mark.parametrize("key", ["", "a#2", "a/b", "a~2", "elicit-1", "now-3", 5])
def test_key_that_is_reserved_is_refused_at_the_yield(key: Any) -> None:
    assert "key=" in thrown(Confirm("Sure?", key=key)).problem


@pytest.mark.parametrize(
    "question",
    [
        Confirm("a \ud800 b"),
        Elicit("a \ud800 b", str),
        ElicitUrl("\ud800", "https://a.example"),
        Sample("\ud800"),
    ],
    ids=lambda question: type(question).__name__,
)
def test_text_that_no_client_can_read_is_refused(question: Any) -> None:
    assert "lone surrogate" in thrown(question).problem


@pytest.mark.parametrize("question", [Confirm, functools.partial(Elicit, form=str)])
def test_message_that_is_not_a_string_is_refused(question: Any) -> None:
    """At the yield or before it, as the author's mistake, not an engine failure."""

    def handler() -> Flow[Any]:
        return (yield from question(message=5))

    stop = by_script(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)


class Seconds(float):
    """A subclass of float, which a journal would turn into a plain number."""


def test_parameters_that_json_cannot_carry_are_refused() -> None:
    assert isinstance(thrown(Sample([{"role": {1, 2}}])), CanonicalError)
    assert isinstance(thrown(Sleep(Seconds(1)), TASK), CanonicalError)


# ---- steps ----


def a_date() -> dt.date:
    return dt.date(2026, 7, 28)


def a_socket() -> Callable[[], None]:
    raise AssertionError("performed")


secret = step(secret=True)(charge)
public = step(public=True)(charge)
once = step(at_most_once=True)(charge)


def test_secret_step_is_refused_where_results_travel() -> None:
    """S2a: at the yield, before it is performed."""
    error = thrown(secret(1), RETRY)
    assert isinstance(error, StepError)
    assert "charge is secret" in error.problem
    for rules in (LIVE, TASK, SCRIPT):
        assert returns(by_script(flow_of(secret(1)), rules=rules)) == ["charged 1"]


def test_private_step_is_refused_when_clients_can_read_states() -> None:
    readable = attrs.evolve(UNCAPPED, private_steps=False)
    assert "Mark it @step(public=True)" in thrown(Step(charge), readable).problem
    assert returns(by_script(flow_of(public(1)), rules=readable)) == ["charged 1"]


def test_at_most_once_step_is_refused_outside_of_tasks() -> None:
    """S5: only a driver that saves the journal before performing can promise that."""
    for rules in (RETRY, LIVE, SCRIPT):
        assert "only a task can promise" in thrown(once(1), rules).problem
    assert returns(by_script(flow_of(once(1)), rules=TASK)) == ["charged 1"]


@pytest.mark.parametrize(
    "effect", [Step(a_socket), Within(1, Step(a_socket)), FirstOf(Step(a_socket))]
)
def test_step_whose_result_cannot_be_recorded_is_refused_first(effect: Any) -> None:
    error = thrown(effect, TASK)
    assert isinstance(error, StepError)
    assert "cannot be recorded" in error.problem


def test_step_inside_another_effect_is_looked_at_too() -> None:
    for effect in (Within(1, secret(1)), FirstOf(Sleep(1), secret(1))):
        rules = attrs.evolve(TASK, secret_steps=False)
        assert "is secret" in thrown(effect, rules).problem


@pytest.mark.parametrize("argument", [object(), {1, object()}, charge])
def test_step_arguments_that_are_not_data_are_refused(argument: Any) -> None:
    error = thrown(Step(charge, argument))
    assert isinstance(error, StepError)
    assert "must be plain data" in error.problem
    assert "Provided()" in error.problem


def test_step_refused_is_not_performed_and_not_recorded() -> None:
    def handler() -> Flow[str]:
        try:
            yield from Step(charge, object())  # type: ignore[call-overload]
        except StepError:
            return "refused"
        return "performed"

    one = run(handler)
    assert advance(one, one.start()) == Returned("refused")
    assert one.journal.entries == ()


# ---- places ----

WAITING = [Sleep(1), Status("working"), Within(1, Sleep(1)), FirstOf(Sleep(1))]


@pytest.mark.parametrize("effect", WAITING, ids=repr)
def test_waiting_belongs_in_tasks(effect: Any) -> None:
    for rules in (RETRY, LIVE, SCRIPT):
        name = type(effect).__name__
        assert thrown(effect, rules).problem == (
            f"{name}() belongs after Detach(), or in a task"
        )


@pytest.mark.parametrize("effect", WAITING, ids=repr)
def test_waiting_is_fine_in_a_tool_that_may_be_a_task(effect: Any) -> None:
    """V3: for a client that cannot follow tasks, its call runs inline."""
    rules = attrs.evolve(RETRY, later=True)
    run(flow_of(effect), rules=rules).start()
    assert thrown(Detach(), attrs.evolve(rules, detach=False)).problem.startswith(
        "Detach() belongs in tools"
    )


def test_waiting_is_fine_after_detach() -> None:
    assert returns(by_script(flow_of(Detach(), Sleep(1), Status("x")))) == [
        False, None, None,
    ]  # fmt: skip


def test_waiting_is_fine_after_detach_in_a_later_round() -> None:
    handler = flow_of(Detach(), Confirm("Sure?"), Sleep(1))
    assert returns(by_retry(handler)) == [False, True, None]


def test_detach_belongs_in_tools() -> None:
    rules = attrs.evolve(SCRIPT, detach=False)
    assert "belongs in tools" in thrown(Detach(), rules).problem


def test_detach_once_is_enough() -> None:
    def handler() -> Flow[str]:
        yield from Detach()
        try:
            yield from Detach()
        except UsageError as exc:
            return exc.problem
        return ""

    assert "once is enough" in returns(by_script(handler))


@pytest.mark.parametrize("effect", [Detach(), Restart(other_flow, "x")], ids=repr)
def test_top_level_effects_are_refused_in_branches(effect: Any) -> None:
    def branch() -> Any:
        try:
            yield effect
        except UsageError as exc:
            return exc.problem

    ((problem,),) = returns(by_script(flow_of(Gather(branch()))))
    assert "belongs to the top level of a handler, not in a Gather" in problem


# ---- Gather ----


@pytest.mark.parametrize(
    ("branch", "problem"),
    [
        (Confirm, "write Confirm(...)"),
        (other_flow, "call it: other_flow(...)"),
        (5, "5 is neither"),
    ],
    ids=shown,
)
def test_gather_refuses_values_that_are_not_branches(branch: Any, problem: str) -> None:
    assert problem in thrown(Gather(Now(), branch)).problem


def test_gather_refuses_one_flow_twice() -> None:
    """B4: a flow is identity, not a value."""
    flow = other_flow("x")
    assert "one flow twice" in thrown(Gather(flow, flow)).problem


def test_gather_takes_one_effect_twice() -> None:
    confirm = Confirm("Sure?")
    assert returns(by_script(flow_of(Gather(confirm, confirm)))) == [(True, True)]


def test_gather_of_flows_performed_twice_is_refused() -> None:
    gather = Gather(other_flow("x"))

    def handler() -> Flow[str]:
        yield from gather
        try:
            yield from gather
        except UsageError as exc:
            return exc.problem
        return ""

    assert "A flow runs once" in returns(by_script(handler))


def test_gather_of_effects_may_be_performed_twice() -> None:
    gather = Gather(Confirm("Sure?"))
    assert returns(by_script(flow_of(gather, gather))) == [(True,), (True,)]


def nest(depth: int) -> Flow[Any]:
    if depth == 0:
        return (yield from Confirm("Sure?"))
    return (yield from Gather(nest(depth - 1)))


def test_gather_nested_too_deep_is_refused() -> None:
    value: Any = True
    for _ in range(16):
        value = (value,)
    assert returns(by_retry(nest, 16)) == value
    stop = by_script(nest, 17)
    assert isinstance(stop, Raised)
    assert "16 deep: put the branches of the inner ones into one" in str(stop.error)


# ---- answered on the spot ----


def test_idempotency_keys_differ_by_name_and_use() -> None:
    effects = [IdempotencyKey("a"), IdempotencyKey("b"), IdempotencyKey("a")]
    given_ = returns(by_script(flow_of(*effects)))
    assert len(set(given_)) == 3
    assert all(isinstance(key, str) and len(key) == 32 for key in given_)


def answering(answer: Answer) -> Callable[[Question], Answer]:
    return lambda question: answer


def test_idempotency_keys_differ_by_their_arguments() -> None:
    """A fork with another amount must not find the first charge."""

    def order(form: Any = int) -> Flow[str]:
        amount = yield from Elicit("How many?", form)
        return (yield from IdempotencyKey("charge", amount))

    keys = [
        returns(by_retry(order, answer=answering(Accepted({"value": amount}))))
        for amount in (10, 100, 10)
    ]
    assert keys[0] == keys[2] != keys[1]


def test_idempotency_key_about_one_thing_twice_is_a_second_key() -> None:
    effects = [IdempotencyKey("a", 1), IdempotencyKey("a", 2), IdempotencyKey("a", 1)]
    assert len(set(returns(by_script(flow_of(*effects))))) == 3


def test_idempotency_key_without_values_is_as_it_always_was() -> None:
    """A flow keeps its keys while its server is upgraded."""
    assert returns(by_script(flow_of(IdempotencyKey("charge")))) == [
        "b08d407304e3743250fb4ccbed1b46b0"
    ]


def test_idempotency_key_about_an_object_is_refused() -> None:
    stop = by_script(flow_of(IdempotencyKey("a", object())))
    assert isinstance(stop, Raised)
    assert "what a key is about must be plain data" in str(stop.error)


def test_idempotency_keys_are_the_same_in_every_round() -> None:
    """S4: no position, no answers: stable under retries and edits elsewhere."""

    def handler(extra: bool) -> Flow[str]:
        if extra:
            yield from Now()
        yield from Confirm("Sure?")
        return (yield from IdempotencyKey("charge"))

    plain = returns(by_script(handler, False))
    assert plain == returns(by_retry(handler, False))
    assert plain == returns(by_retry(handler, True))


def test_idempotency_keys_differ_by_branch_and_generation() -> None:
    def again(n: int) -> Flow[list[Any]]:
        mine = yield from IdempotencyKey("a")
        first, second = yield from Gather(IdempotencyKey("a"), IdempotencyKey("a"))
        if n == 0:
            rest: list[Any] = yield from Restart(again, 1)
            return rest
        return [mine, first, second]

    later = returns(by_script(again, 0, resolve=lambda name: again))
    now = returns(by_script(again, 1))
    assert len({*later, *now}) == 6


def test_version_of_a_new_flow_is_the_latest() -> None:
    assert returns(by_script(flow_of(Version("fee", default=0, latest=1)))) == [1]


def test_version_of_a_flow_that_was_past_this_point() -> None:
    """V1: known id; else the default if anything is ahead; else the latest."""

    def before() -> Flow[str]:
        yield from Confirm("a")
        yield from Confirm("b")
        return "old"

    def after() -> Flow[str]:
        fee = yield from Version("fee", default=0, latest=1)
        yield from Confirm("a")
        tax = yield from Version("tax", default="none", latest="some")
        yield from Confirm("b")
        return f"{fee} {tax}"

    one = run(before, rules=UNCAPPED)
    one.start()
    journal = one.suspend()  # the first question is out
    assert returns(by_retry(after, journal=journal)) == "0 some"


def test_version_stays_the_same() -> None:
    def handler(latest: int) -> Flow[list[int]]:
        first = yield from Version("fee", default=0, latest=latest)
        yield from Confirm("Sure?")
        second = yield from Version("fee", default=0, latest=latest)
        return [first, second]

    one = run(handler, 1, rules=UNCAPPED)
    one.start()
    assert returns(by_retry(handler, 2, journal=one.suspend())) == [1, 1]


def heard(handler: Callable[[], Any], **options: Any) -> tuple[list[Any], Any]:
    """Return the logs, progress and status that a run emits, and its last stop."""
    said: list[Any] = []
    return said, by_retry(handler, emit=said.append, **options)


def test_progress_and_log_are_muted_while_replaying() -> None:
    """V5: in a retry round until its first new answer is delivered."""

    def handler() -> Flow[None]:
        yield from Log("info", "begin")
        yield from Confirm("a")
        yield from Progress(1, 2)
        yield from Confirm("b")
        yield from Log("info", "end")

    said, _ = heard(handler)
    assert said == [Log("info", "begin"), Progress(1, 2), Log("info", "end")]


def test_status_is_emitted_in_tasks() -> None:
    said, stop = heard(flow_of(Status("working")), rules=TASK)
    assert said == [Status("working")]
    assert returns(stop) == [None]


# ---- the budget ----


@pytest.mark.parametrize("effect", [Now(), IdempotencyKey("a"), Step(charge), None])
def test_budget_ends_a_loop_that_never_asks(effect: Any) -> None:
    def handler() -> Any:
        for _ in range(1_000):
            try:
                yield effect
            except UsageError:
                pass

    rules = attrs.evolve(SCRIPT, yields=50)
    stop = by_script(handler, rules=rules)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)
    assert "yielded 50 times in one round" in str(stop.error)
    assert stop.error.where is not None


def test_budget_counts_thrown_answers() -> None:
    """L5: a loop that catches `Unsupported` for ever."""

    def handler() -> Flow[None]:
        for _ in range(1_000):
            try:
                yield from Elicit("Who?", str)
            except Unsupported:
                continue

    rules = attrs.evolve(SCRIPT, yields=50)
    stop = by_script(handler, rules=rules, supports=lambda what: False)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)


def test_budget_is_of_one_round() -> None:
    """Effects that a journal entry answers do not use the budget."""
    rules = attrs.evolve(SCRIPT, yields=10)
    effects = [Confirm("Sure?") if n % 5 == 0 else Now() for n in range(60)]
    assert len(returns(by_script(flow_of(*effects), rules=rules))) == 60
    retry = attrs.evolve(UNCAPPED, yields=10)
    assert len(returns(by_retry(flow_of(*effects), rules=retry))) == 60


def test_budget_default_is_ten_thousand() -> None:
    def handler() -> Flow[int]:
        for _ in range(9_990):
            yield from IdempotencyKey("a")
        return 1

    assert returns(by_script(handler)) == 1


# ---- cleanup ----


def failing_sibling() -> Flow[None]:
    yield from Now()
    raise ToolError("no")


@pytest.mark.parametrize(
    "effect",
    [
        Confirm("Sure?"),
        Outcome(Confirm("Sure?")),
        Gather(Now()),
        Checkpoint(),
        ListRoots(),
    ],
    ids=repr,
)
def test_cleanup_may_not_ask(effect: Any) -> None:
    """B3: a question or Gather in cleanup gets `Cancelled` again."""
    seen: list[Any] = []

    def branch() -> Any:
        try:
            yield from Confirm("Sure?")
        finally:
            try:
                yield effect
            except BaseException as exc:
                seen.append(type(exc))
                raise

    with pytest.raises(ToolError):
        returns(by_script(flow_of(Gather(branch(), failing_sibling()))))
    assert seen == [Cancelled]


def test_cleanup_may_not_restart_or_detach() -> None:
    seen: list[Any] = []

    def handler(effect: Any) -> Any:
        try:
            yield from Confirm("Sure?")
        finally:
            try:
                yield effect
            except BaseException as exc:
                seen.append(type(exc))
                raise

    for effect in (Restart(other_flow, "x"), Detach()):
        one = run(handler, effect, rules=LIVE)
        one.start()
        stop = one.cancel()
        assert isinstance(stop, Raised)
        assert isinstance(stop.error, Cancelled)
    assert seen == [Cancelled, Cancelled]


def test_cleanup_may_do_local_things() -> None:
    done: list[Any] = []

    def branch() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        finally:
            done.append((yield from Step(charge, 3)))
            yield from Log("info", "released")
            done.append(len((yield from IdempotencyKey("a"))))

    with pytest.raises(ToolError):
        returns(by_script(flow_of(Gather(branch(), failing_sibling()))))
    assert done == ["charged 3", 32]


def test_cleanup_may_do_sixteen_local_things() -> None:
    """L4; what it does without an entry is not counted."""
    done: list[int] = []

    def branch() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        finally:
            for n in range(20):
                yield from Progress(n)
                yield from Step(charge, n)
                done.append(n)

    with pytest.raises(ToolError):
        returns(by_script(flow_of(Gather(branch(), failing_sibling()))))
    assert done == list(range(16))


def test_cleanup_that_never_ends_is_buried() -> None:
    throws: list[int] = []

    def branch() -> Any:
        while len(throws) < 100:
            try:
                yield Confirm("Sure?")
            except BaseException:
                throws.append(1)

    with pytest.raises(ToolError):
        returns(by_script(flow_of(Gather(branch(), failing_sibling()))))
    assert len(throws) == 17  # once, and 16 times again
    throws.extend([1] * 100)


def test_cleanup_of_a_suspension_performs_nothing() -> None:
    seen: list[Any] = []

    def handler() -> Any:
        try:
            yield from Confirm("Sure?")
        finally:
            try:
                yield Step(charge)
            except BaseException as exc:
                seen.append(type(exc))
                raise

    one = run(handler)
    one.start()
    one.suspend()
    assert seen == [Suspended]
    assert one.journal.entries == ()


# ---- Restart ----


#: What a type checker would see is wrong is wrong without one as well.
RESTARTED: Any = other_flow


def top(title: str) -> Flow[str]:
    result: str = yield from Restart(other_flow, title)
    return result


@pytest.mark.parametrize(
    ("effect", "problem"),
    [
        (Restart(RESTARTED), "missing a required argument"),
        (Restart(RESTARTED, 5), "the argument title does not come back as"),
        (Restart(RESTARTED, object()), "must be plain data"),
        (Restart(lambda: other_flow("x")), "at module level"),
    ],
    ids=["missing", "type", "data", "lambda"],
)
def test_restart_is_validated_at_the_yield(effect: Any, problem: str) -> None:
    """V2: while the old generator can still do something else."""
    assert problem in thrown(effect).problem


def test_restart_that_was_refused_has_had_its_turn() -> None:
    """The next restart is the second; existing journals depend on that numbering."""

    def handler() -> Flow[str]:
        try:
            yield from Restart(lambda: other_flow("x"))
        except UsageError:
            pass
        try:
            result: str = yield from Restart(other_flow, "x")
            return result
        finally:
            yield from Step(str.upper, "cleanup")

    one = run(handler, rules=SCRIPT)
    one.start()
    assert [entry.key for entry in one.journal.entries] == ["restart-2"]


def test_restart_of_a_handler_that_its_name_does_not_find_is_refused() -> None:
    """A later round finds another function there: the arguments bound are lost."""
    bound = functools.partial(other_flow, "x")
    assert "Restart(" in thrown(Restart(bound)).problem


def test_restart_of_another_function_of_the_same_name_is_refused() -> None:
    def make(title: str) -> Callable[[], Flow[str]]:
        def handler() -> Flow[str]:
            if title == "first":
                result: str = yield from Restart(make("second"))
                return result
            return title

        return handler

    error = error_of(by_retry(make("first")))
    assert isinstance(error, UsageError)
    assert "Restart(" in error.problem


# ---- odds ----


def test_provided_parameters_do_not_change_a_steps_identity() -> None:
    def function(amount: int, pool: Any = Provided()) -> int:
        return amount

    one = run(flow_of(Step(function, 1)), rules=SCRIPT)
    one.start()
    assert StepOptions() == Step(function, 1).options


def test_form_error_points_at_the_authors_line() -> None:
    def handler() -> Flow[Any]:
        return (yield from Elicit("What?", complex))

    stop = by_script(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, FormError)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=6))
def test_keys_are_unique_in_a_sequence(names: list[str]) -> None:
    """Explicit keys may be repeated, and mixed with generated keys."""
    effects = [Confirm("Sure?", key=name) for name in names] + [Confirm("Sure?")] * 2
    one = run(flow_of(*effects), rules=SCRIPT)
    stop, asked = one.start(), []
    while isinstance(stop, Asked):
        asked += keys(stop)
        stop = one.answered({asked[-1]: Accepted(None)})
    assert len(set(asked)) == len(effects)
    assert [entry.key for entry in one.journal.entries] == asked


def test_answering_is_live_as_by_retry() -> None:
    assert returns(live(top, "x")) == returns(by_retry(top, "x")) == "x"
    assert isinstance(Journal(), Journal)
    assert Receiver.__doc__
