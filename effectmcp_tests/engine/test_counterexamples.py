"""The counterexamples that random programs found, each as it was minimised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Step,
    Unsupported,
    Version,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    SCRIPT,
    Asked,
    Done,
    Journal,
    Perform,
    Raised,
    Returned,
    Run,
    generation,
)
from effectmcp.forms import Unfit

from ..helpers import (
    FLOW_ID,
    UNCAPPED,
    WAYS,
    advance,
    answers_to,
    by_retry,
    by_script,
    flow_of,
    keys,
    messages,
    returns,
    run,
    yes,
)

YES, NO = Accepted(None), Declined()


def a(text: str) -> Accepted[Any]:
    return Accepted({"value": text})


def round_of(
    handler: Callable[..., Any], journal: Journal, answers: Any = None, **options: Any
) -> tuple[Any, Journal]:
    one = run(handler, journal=journal, **{"rules": UNCAPPED, **options})
    stop = advance(one, one.start(answers))
    return stop, Journal.loads(one.suspend().dumps())


def agree() -> Flow[list[Any]]:
    """Three times the same text: twice in sequence, once in a branch."""
    first = yield from Elicit("Agree?", str)
    (inner,) = yield from Gather(Elicit("Agree?", str))
    return [first, inner, (yield from Elicit("Agree?", str))]


def agree_after_a_confirm() -> Flow[list[Any]]:
    yield from Confirm("New?")
    return (yield from agree())


def test_ambiguous_answer_is_asked_for_again_and_no_copy_is_left() -> None:
    """A: the user's new "NO" must not become an old "yes-3"."""
    stop, journal = round_of(agree, Journal())
    for number in (1, 2):
        stop, journal = round_of(agree, journal, {keys(stop)[0]: a(f"yes-{number}")})
    stop, journal = round_of(
        agree_after_a_confirm, journal, {keys(stop)[0]: a("yes-3")}
    )
    assert messages(stop) == ["New?"]
    stop, journal = round_of(agree_after_a_confirm, journal, {keys(stop)[0]: YES})
    said: list[str] = []
    while isinstance(stop, Asked):
        assert messages(stop) == ["Agree?"]
        said.append(f"NO-{len(said)}")
        stop, journal = round_of(
            agree_after_a_confirm, journal, {keys(stop)[0]: a(said[-1])}
        )
    assert stop == Returned(said)


def test_consent_to_one_document_does_not_count_for_another() -> None:
    """B: an answer to a question that is outstanding comes first, always."""
    approve = Confirm("Approve?")

    def both() -> Flow[Any]:
        return (yield from Gather(approve, approve))

    def second_only() -> Flow[Any]:
        def nothing() -> Flow[None]:
            yield from ()

        return (yield from Gather(nothing(), approve))

    stop, journal = round_of(both, Journal())
    stop, journal = round_of(both, journal, {"gather-1/0/confirm-1": YES})
    assert keys(stop) == ["gather-1/1/confirm-1"]
    end, _ = round_of(second_only, journal, {"gather-1/1/confirm-1": NO})
    assert end == Returned((None, False))


@pytest.mark.parametrize("answer", [Unfit(["no"]), Accepted({}), Accepted("x")])
def test_unfitting_answer_of_a_client_that_cannot_be_asked(answer: Any) -> None:
    """D: it would be asked again, and cannot be."""

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        except Unsupported as exc:
            return exc.kind

    _, journal = round_of(handler, Journal())
    end, _ = round_of(
        handler, journal, {"elicit-1": answer}, supports=lambda what: False
    )
    assert end == Returned("Elicit")


def charge(what: str) -> str:
    return f"charged {what}"


@pytest.mark.parametrize("first", [True, False])
def test_branch_that_ended_before_a_change_keeps_its_version(first: bool) -> None:
    """E: whether it comes before or after the branch that waits."""

    def handler(version: int) -> Callable[[], Flow[Any]]:
        def pays() -> Flow[str]:
            receipt = yield from Step(charge, "book")
            if version == 2 and (yield from Version("fee", default=0, latest=1)):
                receipt += yield from Step(charge, "fee")
            return receipt

        def asks() -> Flow[str]:
            return (yield from Elicit("Who?", str))

        def both() -> Flow[Any]:
            branches = [pays(), asks()] if first else [asks(), pays()]
            return (yield from Gather.each(branches))

        return both

    stop, journal = round_of(handler(1), Journal())
    one = run(handler(2), journal=journal)
    stop = one.start({key: a("Ann") for key in keys(stop)})
    assert isinstance(stop, Returned), stop
    assert sorted(stop.value) == ["Ann", "charged book"]
    # A flow that begins under v2 pays.
    assert "charged fee" in str(returns(by_script(handler(2))))


def test_version_of_a_journal_in_which_waves_were_not_counted() -> None:
    """Every entry counts as recorded earlier: the old path is always allowed."""

    def handler(version: int) -> Callable[[], Flow[Any]]:
        def ask() -> Flow[Any]:
            who = yield from Elicit("Who?", str)
            if version == 2:
                return (yield from Version("fee", default=0, latest=1))
            return who

        return ask

    _, journal = round_of(handler(1), Journal())
    answers = {"elicit-1": a("Ann")}
    assert round_of(handler(2), journal, answers)[0] == Returned(1)
    old = attrs.evolve(journal, waves=None)
    assert round_of(handler(2), old, answers)[0] == Returned(0)


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_step_that_mutates_its_arguments_changes_nothing(way: Any) -> None:
    """F: on the first run as in every replay."""

    def add(items: list[str], *, more: dict[str, list[int]]) -> int:
        items.append("added")
        more["n"].append(1)
        return len(items)

    def handler() -> Flow[Any]:
        items, more = ["book"], {"n": [0]}
        count = yield from Step(add, items, more=more)
        yield from Confirm(f"{len(items)} items?")
        return count, items, more

    assert returns(way(handler)) == (2, ["book"], {"n": [0]})


def test_answer_in_flight_survives_an_inserted_question() -> None:
    """G: rolling upgrades keep the gathered values."""
    city = Elicit("Which city?", str)
    before, after = flow_of(city), flow_of(Elicit("Which country?", str), city)
    stop, journal = round_of(before, Journal())
    stop, journal = round_of(after, journal, {"elicit-1": a("Rome")})
    assert messages(stop) == ["Which country?"]
    end, _ = round_of(after, journal, {keys(stop)[0]: a("Italy")})
    assert end == Returned(["Italy", "Rome"])


@pytest.mark.parametrize(
    ("answer", "value"), [(NO, False), (Dismissed(), True), (YES, True)]
)
def test_confirm_that_is_declined_is_always_false(answer: Any, value: bool) -> None:
    """H: `otherwise=` is for closed questions and clients that cannot be asked."""
    handler = flow_of(Confirm("Delete?", otherwise=True))
    assert returns(by_retry(handler, answer=lambda _: answer)) == [value]


def test_fork_with_another_amount_has_another_key() -> None:
    """J: a payment service that repeats its first reply would ship 100 for 10."""

    def order() -> Flow[str]:
        amount = yield from Elicit("How many?", int)
        return (yield from IdempotencyKey("charge", amount))

    _, journal = round_of(order, Journal())
    found = [
        round_of(order, journal, {"elicit-1": Accepted({"value": amount})})[0].value
        for amount in (10, 100, 10)
    ]
    assert found[0] == found[2] != found[1]


def test_branches_are_bounded_before_they_are_built() -> None:
    """K: building 100,000 branches blocked all other requests for seconds."""
    begun = []

    def branch(n: int) -> Flow[None]:
        begun.append(n)
        yield from Confirm("Sure?")

    def handler(count: int) -> Flow[Any]:
        return (yield from Gather.each(branch(n) for n in range(count)))

    stop = run(handler, 1_001).start()
    assert isinstance(stop, Raised)
    assert "Gather() of 1,001 branches" in str(stop.error)
    assert "at most 1,000" in str(stop.error)
    assert begun == []
    one = run(handler, 1_000)
    assert len(keys(one.start())) == 1_000
    one.close()
    one = run(handler, 5, rules=attrs.evolve(RETRY, branches=4))
    assert isinstance(one.start(), Raised)


def test_branches_are_bounded_over_the_whole_flow() -> None:
    def inner() -> Flow[Any]:
        return (yield from Gather(Confirm("a"), Confirm("b")))

    def outer() -> Flow[Any]:
        first = yield from Gather(inner(), inner())
        return first, (yield from Gather(inner(), inner()))

    rules = attrs.evolve(LIVE, branches=6)
    # Branches that have ended no longer count.
    one = run(outer, rules=rules)
    stop = one.start()
    while isinstance(stop, Asked):
        stop = one.answered(answers_to(stop, yes))
    assert isinstance(stop, Returned), stop
    stop = run(outer, rules=attrs.evolve(LIVE, branches=5)).start()
    assert isinstance(stop, Raised)


def test_cleanup_of_a_cancelled_branch_continues_when_its_parent_is_cancelled() -> None:
    """Found by the independent oracle."""
    released = []

    def release() -> str:
        released.append(1)
        return "released"

    def careful() -> Flow[None]:
        try:
            yield from Confirm("a")
            yield from Confirm("b")
        finally:
            yield from Step(release)

    def inner() -> Flow[Any]:
        return (yield from Gather(Elicit("c", str), careful()))

    def handler() -> Flow[Any]:
        return (yield from Gather(inner(), Elicit("d", str)))

    stop = by_script(handler, answer=lambda _: NO)
    assert isinstance(stop, Raised)
    assert stop.error == NO
    assert released == [1]


# ---- the first phase of a run ----


def test_first_phase_takes_every_wave_that_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fast path that is not taken raises no error, so the waves outside it are counted."""
    waves = []
    real = generation.Generation._take_wave

    def counted(self: Any, wave: Any) -> Any:
        waves.append(wave[0][1].key)
        return real(self, wave)

    def order() -> Flow[Any]:
        name = yield from Elicit("Who?", str, key="who")
        yield from IdempotencyKey("charge", name)
        receipt = yield from Step(charge, name)
        sure = yield from Confirm("Sure?")
        try:
            yield from Elicit("Why?", str)
        except Declined:
            pass
        return receipt, sure, (yield from Elicit("When?", str))

    monkeypatch.setattr(generation.Generation, "_take_wave", counted)
    one = Run(order, flow_id=FLOW_ID, rules=SCRIPT)
    stop = one.start()
    while not isinstance(stop, Returned):
        if isinstance(stop, Perform):
            stop = one.performed({want.key: Done("paid") for want in stop.wants})
        else:
            answer = NO if "Why?" in messages(stop) else yes
            stop = one.answered(
                answers_to(stop, yes)  # type: ignore[arg-type]  # asked
                if answer is yes
                else {keys(stop)[0]: NO}
            )
    waves.clear()
    again = Run(order, flow_id=FLOW_ID, rules=SCRIPT, journal=one.journal)
    assert again.start() == stop
    assert waves == []
    # With an answer and the next question: only the asking is a wave of its own.
    two = Run(order, flow_id=FLOW_ID)
    two.start()
    three = Run(order, flow_id=FLOW_ID, journal=two.suspend())
    waves.clear()
    three.start({"who": a("Ann")})
    assert waves == ["step-1"]
