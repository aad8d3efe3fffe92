"""Examples that prototypes of the engine got wrong, and random tests mostly missed."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Checkpoint,
    ClientSupports,
    Detach,
    DivergenceError,
    Elicit,
    Flow,
    Gather,
    Log,
    NondeterminismError,
    Now,
    Progress,
    Restart,
    Sleep,
    Status,
    Step,
    Unsupported,
    UsageError,
    Version,
    step,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    TASK,
    Asked,
    Journal,
    Policy,
    Raised,
    Returned,
)

from ..helpers import (
    UNCAPPED,
    WAYS,
    advance,
    answers_to,
    keys,
    messages,
    returns,
    run,
    yes,
)

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
POLICIES: tuple[Policy, ...] = ("salvage", "stop", "park", "strict")
under_the_four_policies = pytest.mark.parametrize("policy", POLICIES)

performed: list[str] = []


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing performed."""
    performed.clear()


def do(what: str) -> str:
    performed.append(what)
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


def say(stop: Any, *texts: str) -> dict[str, Any]:
    """Answers to those of a round's questions, or to all of them."""
    assert isinstance(stop, Asked), stop
    return {
        key: Accepted({"value": f"re: {text}"})
        for key, text in zip(keys(stop), messages(stop), strict=True)
        if not texts or text in texts
    }


def stopped(policy: Policy) -> str:
    """The verdict on a divergence that would drop a performed step."""
    return "stop" if policy == "salvage" else policy


# ---- the frontier is flow-wide ------------------------------------------------------


def first_branch(edited: bool) -> Flow[str]:
    if edited:
        yield from Step(do, "step X")
    return (yield from Elicit("ask 1", str))


def second_branch() -> Flow[str]:
    yield from Now()
    yield from Step(do, "step 2")
    return (yield from Elicit("ask 3", str))


def two_branches() -> Flow[Any]:
    return (yield from Gather(first_branch(False), second_branch()))


def two_branches_edited() -> Flow[Any]:
    return (yield from Gather(first_branch(True), second_branch()))


@under_the_four_policies
@pytest.mark.parametrize("said", [(), ("ask 1",), ("ask 3",), ("ask 1", "ask 3")])
def test_step_put_at_the_front_of_branch_0(
    policy: Policy, said: tuple[str, ...]
) -> None:
    """`Gather([ask1], [now, step2, ask3])` with a step put at the front of branch 0.

    The other branch holds a performed step beyond the wave: a hard stop, before the new
    step is performed, for every choice of answered questions.
    """
    stop, journal = round_of(two_branches)
    assert messages(stop) == ["ask 1", "ask 3"]
    answers = say(stop, *said) if said else {}
    if len(said) == 1:
        stop, journal = round_of(two_branches, journal, answers)
        answers = {}
    with pytest.raises(DivergenceError) as info:
        round_of(
            two_branches_edited,
            journal,
            answers,
            rules=attrs.evolve(UNCAPPED, policy=policy),
        )
    assert info.value.verdict == stopped(policy)
    assert performed == ["step 2"]


@step(replayable=True)
def look(what: str) -> str:
    return do(what)


def test_step_put_at_the_front_of_branch_0_over_a_replayable_one() -> None:
    """With a replayable step 2, the flow is salvaged and its answers are kept."""

    def second() -> Flow[str]:
        yield from Now()
        yield from look("step 2")
        return (yield from Elicit("ask 3", str))

    stop, journal = round_of(lambda: (yield from Gather(first_branch(False), second())))
    end, _ = round_of(
        lambda: (yield from Gather(first_branch(True), second())), journal, say(stop)
    )
    assert end == Returned(("re: ask 1", "re: ask 3"))
    assert sorted(performed) == ["step 2", "step 2", "step X"]


@under_the_four_policies
@pytest.mark.parametrize("answered", [False, True])
def test_empty_gather_deleted(policy: Policy, answered: bool) -> None:
    """`Gather(); Gather([step, ask])` with the first deleted.

    The empty Gather's entry would match, and the step would be performed again: but the
    flow holds an entry beyond it.
    """

    def branch() -> Flow[str]:
        yield from Step(do, "step")
        return (yield from Elicit("ask", str))

    def v1() -> Flow[Any]:
        yield from Gather()
        return (yield from Gather(branch()))

    def v2() -> Flow[Any]:
        return (yield from Gather(branch()))

    stop, journal = round_of(v1)
    assert messages(stop) == ["ask"]
    with pytest.raises(DivergenceError) as info:
        round_of(
            v2,
            journal,
            say(stop) if answered else {},
            rules=attrs.evolve(UNCAPPED, policy=policy),
        )
    assert info.value.verdict == stopped(policy)
    assert performed == ["step"]


@pytest.mark.parametrize("policy", ["salvage", "strict"])
def test_empty_gather_added(policy: Policy) -> None:
    """The other way round: an empty Gather put before diverges too, and performs nothing."""

    def branch() -> Flow[str]:
        yield from Step(do, "step")
        return (yield from Elicit("ask", str))

    def v1() -> Flow[Any]:
        return (yield from Gather(branch()))

    def v2() -> Flow[Any]:
        yield from Gather()
        return (yield from Gather(branch()))

    stop, journal = round_of(v1)
    with pytest.raises(DivergenceError) as info:
        round_of(v2, journal, say(stop), rules=attrs.evolve(UNCAPPED, policy=policy))
    assert info.value.verdict == stopped(policy)
    assert performed == ["step"]


# ---- a branch that finished beside a Version ----------------------------------------


def short(version: bool) -> Flow[Any]:
    found = [(yield from Elicit("a", str))]
    if version and (yield from Version("fee", default=0, latest=1)):
        found.append((yield from Elicit("fee?", str)))
    return found


def long() -> Flow[Any]:
    return [(yield from Elicit("b", str)), (yield from Elicit("c", str))]


@under_the_four_policies
@pytest.mark.parametrize("answered", [False, True])
def test_branch_finished_under_v1_beside_a_version(
    policy: Policy, answered: bool
) -> None:
    """A branch finished under v1 beside a `Version`: it is not asked for v2's fee afterwards."""

    def v1() -> Flow[Any]:
        return (yield from Gather(short(False), long()))

    def v2() -> Flow[Any]:
        return (yield from Gather(short(True), long()))

    stop, journal = round_of(v1)
    stop, journal = round_of(v1, journal, say(stop))
    assert messages(stop) == ["c"]
    rules = attrs.evolve(UNCAPPED, policy=policy)
    answers = say(stop)
    if not answered:
        stop, journal = round_of(v2, journal, rules=rules)
        assert messages(stop) == ["c"]
        assert journal.versions == {"fee": 0}
    end, after = round_of(v2, journal, answers, rules=rules)
    assert end == Returned((["re: a"], ["re: b", "re: c"]))
    assert after.versions == {"fee": 0}


def test_branch_that_had_not_finished_takes_the_latest() -> None:
    """Without undelivered entries in any branch, the version is `latest`."""

    def v2() -> Flow[Any]:
        return (yield from Gather(short(True), long()))

    stop, journal = round_of(v2)
    stop, journal = round_of(v2, journal, say(stop))
    assert messages(stop) == ["fee?", "c"]
    assert journal.versions == {"fee": 1}


# ---- Checkpoint ---------------------------------------------------------------------


def test_gathered_checkpoint_beside_a_question() -> None:
    """`Gather([ask], [Gather([Checkpoint])])`: one round, with the question in it."""

    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("ask", str), Gather(Checkpoint())))

    stop, journal = round_of(handler)
    assert messages(stop) == ["ask"]
    assert (journal.rounds, journal.state_rounds) == (1, 0)
    assert round_of(handler, journal, say(stop))[0] == Returned(("re: ask", (None,)))
    stop, journal = round_of(handler, journal)
    assert messages(stop) == ["ask"]
    for way in WAYS.values():
        assert returns(way(handler)) == ("text", (None,))


def test_gathered_checkpoint_alone() -> None:
    """`Gather([Gather([Checkpoint])])`: one state-only round, and never twice."""

    def handler() -> Flow[Any]:
        yield from Gather(Gather(Checkpoint()))
        return (yield from Step(do, "once"))

    stop, journal = round_of(handler)
    assert stop == Asked(())
    assert (journal.rounds, journal.state_rounds) == (1, 1)
    assert performed == []
    assert round_of(handler, journal)[0] == Returned("once")


# ---- Restart in a try ---------------------------------------------------------------


def second_life(name: str) -> Flow[str]:
    answer = yield from Elicit(f"Again, {name}?", str)
    yield from Step(do, "work")
    return answer


def taking() -> Flow[str]:
    try:
        yield from Step(do, "take")
        name = yield from Elicit("Who?", str)
        return (yield from Restart(second_life, name))
    finally:
        yield from Step(do, "release")


@every_way
def test_restart_in_a_try_with_effects_in_finally(way: Any) -> None:
    """`try: take; return (yield from Restart(..)) finally: yield release()`.

    The old generation's cleanup is real: performed once, before the new one begins.
    """
    assert returns(way(taking)) == "text"
    assert performed == ["take", "release", "work"]


def test_restart_in_a_try_forgets_the_old_generation() -> None:
    """Values released with the old generation are not in the new journal."""
    stop, journal = round_of(taking)
    stop, journal = round_of(taking, journal, say(stop))
    assert messages(stop) == ["Again, re: Who??"]
    assert keys(stop) == ["r1/elicit-1"]
    assert journal.entries == ()
    assert journal.generation == 1
    assert performed == ["take", "release"]
    for _ in range(2):
        again, journal = round_of(taking, journal)
        assert again == stop


def failing_release() -> Flow[str]:
    try:
        return (yield from Restart(second_life, "Ann"))
    finally:
        yield from Step(broken)


def broken() -> str:
    raise OSError("no release")


def swallowing_restart() -> Flow[str]:
    try:
        return (yield from Restart(second_life, "Ann"))
    except BaseException:
        return "swallowed"


@every_way
def test_restart_in_a_try_whose_cleanup_asks(way: Any) -> None:
    """Cleanup of a restart may not ask: Restarted is thrown again, and the restart stands."""
    seen = []

    def handler() -> Flow[str]:
        try:
            return (yield from Restart(second_life, "Ann"))
        finally:
            try:
                yield from Elicit("never asked", str)
            except BaseException as exc:
                seen.append(type(exc).__name__)

    def answer(question: Any) -> Any:
        assert question.effect.message == "Again, Ann?"
        return yes(question)

    assert returns(way(handler, answer=answer)) == "text"
    assert set(seen) == {"Restarted"}


@every_way
def test_restart_in_a_try_that_swallows_it(way: Any) -> None:
    """A handler that swallows Restarted does not undo it: it is recorded."""
    assert returns(way(swallowing_restart)) == "text"


# ---- a clock before a second question -----------------------------------------------


@pytest.mark.parametrize("nth", [1, 2])
def test_clock_before_a_second_question(nth: int) -> None:
    """`f"at {minute}"` before a second question.

    Answered and recorded, the first text changes with the minute: a stale answer, asked
    again. If it changed within one round, the error would have both messages.
    """
    minute = 0

    def handler() -> Flow[str]:
        at = yield from Elicit(f"at {minute}", str)
        then = yield from Elicit("and then?", str)
        return f"{at} {then}"

    stop, journal = round_of(handler)
    stop, journal = round_of(handler, journal, say(stop))
    assert messages(stop) == ["and then?"]
    minute = 1
    stop, journal = round_of(handler, journal, say(stop))
    assert messages(stop) == ["at 1"]
    assert keys(stop) == ["elicit-1~2"]
    if nth == 1:
        # The second answer was kept under its text, and is not asked for again.
        end, _ = round_of(handler, journal, say(stop))
        assert end == Returned("re: at 1 re: and then?")
        return
    # The clock keeps changing: given up after the fourth stale answer, with advice.
    for minute in (2, 3):
        stop, journal = round_of(handler, journal, say(stop))
        assert messages(stop) == [f"at {minute}"]
    minute = 4
    with pytest.raises(DivergenceError) as info:
        round_of(handler, journal, say(stop))
    assert info.value.report.cause == "versions"


def test_clock_before_a_second_question_within_a_round() -> None:
    """A clock that changes within a round is detected by the dry replay."""
    ticks = iter(range(100))

    def handler() -> Flow[str]:
        at = yield from Elicit(f"at {next(ticks)}", str)
        return at + (yield from Elicit("and then?", str))

    stop, journal = round_of(handler)
    for _ in range(4):
        stop, journal = round_of(handler, journal, say(stop))
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert "'at 4'" in stop.error.problem
    assert "'at 5'" in stop.error.problem


# ---- either version each round ------------------------------------------------------


def rolling_1() -> Flow[Any]:
    a = yield from Elicit("a", str)
    b = yield from Elicit("b", str)
    return a, b


def rolling_2() -> Flow[Any]:
    new = yield from Elicit("new", str)
    a = yield from Elicit("a", str)
    b = yield from Elicit("b", str)
    return new, a, b


@pytest.mark.parametrize("pattern", range(64))
def test_either_version_each_round(pattern: int) -> None:
    """Either version each round (a rolling deploy): right answers, or told to finish it.

    Never an answer to the wrong question, never a wire key for two messages, never more
    than so many rounds.
    """
    journal = Journal()
    said: dict[str, Any] = {}
    texts: dict[str, str] = {}
    stop: Any = None
    refused: str | None = None
    for n in range(30):
        is_new = n >= 6 or pattern >> n & 1
        handler = rolling_2 if is_new else rolling_1
        try:
            stop, journal = round_of(handler, journal, said)
        except DivergenceError as exc:
            refused = exc.report.cause
        if refused is not None:
            assert refused == "versions"
            return
        if isinstance(stop, Returned):
            expected = ("re: new", "re: a", "re: b")
            assert stop.value == (expected if is_new else expected[1:])
            return
        for key, text in zip(keys(stop), messages(stop), strict=True):
            assert texts.setdefault(key, text) == text
        said = say(stop)
    raise AssertionError("thirty rounds, and no end")


# ---- capabilities -------------------------------------------------------------------


def supporting() -> Flow[Any]:
    found: list[Any] = [(yield from ClientSupports(Elicit))]
    for text in "abc":
        try:
            found.append((yield from Elicit(text, str)))
        except Unsupported:
            found.append("unasked")
    return found


def test_capabilities_flipping_each_round() -> None:
    """Capabilities flipping each round: what was found out once stays as it was."""
    # Round 1 with, so "a" is asked; round 2 without, so b and c go unasked in one go.
    stop, journal = round_of(supporting)
    assert messages(stop) == ["a"]
    end, after = round_of(supporting, journal, say(stop), supports=lambda what: False)
    assert end == Returned([True, "re: a", "unasked", "unasked"])


def test_capabilities_flipping_with_a_question_out() -> None:
    """A question that is out when the capability goes is unasked, and stays so."""

    def handler() -> Flow[Any]:
        try:
            first = yield from Elicit("a", str, key="a")
        except Unsupported:
            first = "unasked"
        return first, (yield from Elicit("b", str, otherwise="otherwise"))

    can = {"a": True, "b": True}

    def supports(what: Any) -> bool:
        return can[what.message]

    stop, journal = round_of(handler, supports=supports)
    late = say(stop)
    can["a"] = False
    stop, journal = round_of(handler, journal, supports=supports)
    assert messages(stop) == ["b"]
    can.update(a=True, b=False)
    # The answer to a comes too late: it was journaled as unasked.
    end, _ = round_of(handler, journal, {**late}, supports=supports)
    assert end == Returned(("unasked", "otherwise"))
    can.update(b=True)
    end, _ = round_of(handler, journal, {**late, **say(stop)}, supports=supports)
    assert end == Returned(("unasked", "re: b"))


@under_the_four_policies
def test_capabilities_flipping_is_not_a_divergence(policy: Policy) -> None:
    """A recorded answer is not asked for again, however the capabilities change."""
    rules = attrs.evolve(UNCAPPED, policy=policy)
    stop, journal = round_of(supporting, rules=rules)
    assert messages(stop) == ["a"]
    answers = say(stop)
    # What is out when the capability goes counts if it was answered, and is unasked if not.
    end, _ = round_of(supporting, journal, rules=rules, supports=lambda what: False)
    assert end == Returned([True, "unasked", "unasked", "unasked"])
    stop, journal = round_of(supporting, journal, answers, rules=rules)
    assert messages(stop) == ["b"]
    end, _ = round_of(
        supporting, journal, say(stop), rules=rules, supports=lambda what: False
    )
    assert end == Returned([True, "re: a", "re: b", "unasked"])


# ---- one of five --------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True])
def test_one_of_five_questions_answered_a_round(backwards: bool) -> None:
    """One of five questions answered a round: five rounds, each key stays, nothing is lost."""
    texts = [f"q{n}" for n in range(5)]

    def handler() -> Flow[Any]:
        found = yield from Gather.each([Elicit(text, str) for text in texts])
        yield from Step(do, "after")
        return found

    stop, journal = round_of(handler)
    first = dict(zip(messages(stop), keys(stop), strict=True))
    for n, text in enumerate(reversed(texts) if backwards else texts):
        assert isinstance(stop, Asked)
        assert len(stop.questions) == 5 - n
        left = dict(zip(messages(stop), keys(stop), strict=True))
        assert left.items() <= first.items()
        assert performed == []
        stop, journal = round_of(handler, journal, say(stop, text))
    assert stop == Returned([f"re: {text}" for text in texts])
    assert performed == ["after"]


# ---- equal texts --------------------------------------------------------------------

ITEMS = ["x", "y", "z"]


@under_the_four_policies
def test_gather_each_over_reordered_items_with_equal_messages(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Gather.each` over reordered items with equal messages.

    The engine cannot see that they were reordered: each position keeps its answer. If
    an author uses a message or a key that names the item, answers follow the item.
    """
    rules = attrs.evolve(UNCAPPED, policy=policy)

    def plain() -> Flow[Any]:
        found = yield from Gather.each([Elicit("How many?", str) for _ in ITEMS])
        yield from Elicit("Sure?", str)
        return dict(zip(ITEMS, found, strict=True))

    stop, journal = round_of(plain, rules=rules)
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), ITEMS, strict=True)
    }
    stop, journal = round_of(plain, journal, said, rules=rules)
    monkeypatch.setattr(f"{__name__}.ITEMS", ["z", "x", "y"])
    end, _ = round_of(plain, journal, say(stop), rules=rules)
    assert end == Returned({"z": "x", "x": "y", "y": "z"})


@under_the_four_policies
def test_gather_each_over_reordered_items_with_equal_messages_and_keys(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `key=`, answers follow their items, or it is a divergence."""
    rules = attrs.evolve(UNCAPPED, policy=policy)

    def keyed() -> Flow[Any]:
        found = yield from Gather.each(
            [Elicit("How many?", str, key=f"many-{item}") for item in ITEMS]
        )
        yield from Elicit("Sure?", str)
        return dict(zip(ITEMS, found, strict=True))

    stop, journal = round_of(keyed, rules=rules)
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), ITEMS, strict=True)
    }
    stop, journal = round_of(keyed, journal, said, rules=rules)
    monkeypatch.setattr(f"{__name__}.ITEMS", ["z", "x", "y"])
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            round_of(keyed, journal, say(stop), rules=rules)
        assert info.value.verdict == policy
        return
    end, _ = round_of(keyed, journal, say(stop), rules=rules)
    assert end == Returned({"z": "z", "x": "x", "y": "y"})


def test_gather_each_over_reordered_items_with_equal_messages_salvaged() -> None:
    """Dropped by an edit elsewhere, equal questions are ambiguous: asked again."""

    def handler(edited: bool) -> Callable[[], Flow[Any]]:
        def inner() -> Flow[Any]:
            if edited:
                yield from Elicit("new", str)
            found = yield from Gather.each([Elicit("How many?", str) for _ in ITEMS])
            yield from Elicit("Sure?", str)
            return found

        return inner

    stop, journal = round_of(handler(False))
    said = {
        key: Accepted({"value": name})
        for key, name in zip(keys(stop), ITEMS, strict=True)
    }
    stop, journal = round_of(handler(False), journal, said)
    stop, journal = round_of(handler(True), journal)
    assert messages(stop) == ["new"]
    stop, journal = round_of(handler(True), journal, say(stop))
    assert messages(stop) == ["How many?"] * 3
    stop, journal = round_of(handler(True), journal, say(stop))
    assert messages(stop) == ["Sure?"]
    assert not journal.pool


# ---- found while these tests were written -------------------------------------------


@every_way
def test_effects_after_detach_in_every_round(way: Any) -> None:
    """Effects that need a `Detach()` also work after a Detach from the journal."""

    def handler() -> Flow[Any]:
        is_task = yield from Detach()
        yield from Sleep(1)
        name = yield from Elicit("Who?", str)
        yield from Status("still here")
        yield from Sleep(2)
        return is_task, name

    assert returns(way(handler)) == (False, "text")


def test_second_detach_in_every_round() -> None:
    """`Detach` once: a second one is refused at its line, in a replay as well."""

    def handler() -> Flow[Any]:
        yield from Detach()
        yield from Elicit("Who?", str)
        yield from Detach()

    stop, journal = round_of(handler, rules=RETRY)
    end, _ = round_of(handler, journal, say(stop), rules=RETRY)
    assert isinstance(end, Raised)
    assert isinstance(end.error, UsageError)
    assert end.error.where == f"{__file__}:{handler.__code__.co_firstlineno + 3}"


def test_muted_until_the_first_new_answer() -> None:
    """Progress and Log are muted in a retry round until its first new answer is delivered.

    An answer of this process, to `Now` say, is a new one too.
    """
    heard: list[Any] = []

    def handler() -> Flow[Any]:
        yield from Progress(0)
        yield from Elicit("Who?", str)
        yield from Progress(1)
        yield from Now()
        yield from Progress(2)
        yield from Elicit("And?", str)
        yield from Log("info", "end")
        return "done"

    stop, journal = round_of(handler, emit=heard.append)
    assert heard == [Progress(0)]
    heard.clear()
    again, _ = round_of(handler, journal, emit=heard.append)
    assert heard == []
    stop, journal = round_of(handler, journal, say(stop), emit=heard.append)
    assert heard == [Progress(1), Progress(2)]
    heard.clear()
    stop, journal = round_of(handler, journal, say(stop), emit=heard.append)
    assert heard == [Log("info", "end")]


def test_muted_until_a_new_local_effect() -> None:
    """In a store, a worker that resumes a journal is muted until its first new effect."""
    heard: list[Any] = []

    def handler() -> Flow[Any]:
        yield from Step(do, "first")
        yield from Progress(1)
        yield from Now()
        yield from Progress(2)
        return "done"

    one = run(handler, rules=TASK)
    stop: Any = one.start()
    one.performed({"step-1": _done("first")})
    journal = _without_wants(one.suspend())
    two = run(handler, rules=TASK, journal=journal, emit=heard.append)
    stop = advance(two, two.start())
    assert stop == Returned("done")
    assert heard == [Progress(2)]


def _done(value: Any) -> Any:
    from effectmcp.engine import Done

    return Done(value)


def _without_wants(journal: Journal) -> Journal:
    return Journal.loads(journal.dumps())


@every_way
def test_step_that_returns_nothing(way: Any) -> None:
    """The commonest step of all: `-> None`."""

    def release(name: str) -> None:
        performed.append(name)

    def handler() -> Flow[Any]:
        found: Any = yield from Step(release, "a")  # type: ignore[func-returns-value]
        yield from Elicit("Who?", str)
        return found

    assert returns(way(handler)) is None
    assert performed == ["a"]


def test_live_and_retry_count_a_loop_alike() -> None:
    """In a flow without questions, a live run and a retry spend the same budget."""

    def handler() -> Flow[None]:
        for n in range(30):
            yield from Now()
            yield from Step(do, f"{n}")

    for count, is_fine in ((60, True), (59, False)):
        for rules in (LIVE, UNCAPPED):
            one = run(handler, rules=attrs.evolve(rules, yields=count))
            stop = advance(one, one.start())
            assert isinstance(stop, Returned) == is_fine


def test_answers_to_helpers() -> None:
    """The obliging client answers every question of a round."""
    stop, _ = round_of(two_branches)
    assert isinstance(stop, Asked)
    assert set(answers_to(stop, yes)) == set(keys(stop))
