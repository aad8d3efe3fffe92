from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define

from effectmcp import (
    Accepted,
    ClientFailed,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    Flow,
    InputRequest,
    Outcome,
    Sample,
    Unsupported,
    UsageError,
)
from effectmcp.engine import (
    RETRY,
    Answer,
    Asked,
    Asking,
    Journal,
    Run,
    Tally,
    Unread,
)
from effectmcp.engine.askings import Askings, read_answer
from effectmcp.engine.kinds import KINDS
from effectmcp.forms import Unfit


def always(what: object) -> bool:
    return True


SHAPE, RENDER = b"shap", b"rendered"
OUT = Asking("elicit-1", SHAPE, RENDER)


def journal_with(**asked: Asking) -> Journal:
    return Journal(asked={key.replace("_", "-"): one for key, one in asked.items()})


# ---- what is out ----


def test_nothing_is_out_at_first() -> None:
    askings = Askings(Journal(), RETRY, always)
    assert askings.at("elicit-1") is None
    assert not askings.asked
    assert not askings.unreached


def test_what_the_journal_says_is_out() -> None:
    askings = Askings(journal_with(elicit_1=OUT), RETRY, always)
    assert askings.at("elicit-1") == ("elicit-1", OUT)
    assert askings.unreached == {"elicit-1"}


def test_add_gives_a_wire_key_and_remembers() -> None:
    askings = Askings(Journal(), RETRY, always)
    assert askings.add("elicit-1", SHAPE, RENDER) == "elicit-1"
    assert askings.at("elicit-1") == ("elicit-1", OUT)
    assert askings.asked == {"elicit-1": OUT}


def test_tally_is_kept_only_when_nothing_else_tells() -> None:
    """Each of them travels in every later state."""
    askings = Askings(Journal(), RETRY, always)
    askings.add("elicit-1", SHAPE, RENDER)
    askings.settle("elicit-1")
    assert askings.tallies == {}


def test_wire_key_is_never_used_again() -> None:
    """Q2: over withdrawals, answers that did not fit, and drops."""
    askings = Askings(Journal(), RETRY, always)
    used = [askings.add("a", SHAPE, RENDER)]
    askings.withdraw("a")
    used.append(askings.add("a", SHAPE, b"reworded"))
    askings.count("a")  # its answer was recorded, and dropped in an edit
    askings.settle("a")
    used.append(askings.add("a", SHAPE, RENDER))
    askings.settle("a")
    askings.count("a")
    used.append(askings.add("a", SHAPE, RENDER, 1))
    assert used == ["a", "a~2", "a~3", "a~4"]


def test_wire_key_is_of_its_generation() -> None:
    askings = Askings(Journal(generation=2), RETRY, always)
    assert askings.add("a", SHAPE, RENDER) == "r2/a"


def test_tallies_go_on_in_the_next_round() -> None:
    askings = Askings(Journal(tallies={"a": Tally(3, 1)}), RETRY, always)
    assert askings.add("a", SHAPE, RENDER) == "a~4"
    assert askings.tallies == {"a": Tally(4, 1)}


def test_settle_of_what_is_not_out_is_nothing() -> None:
    askings = Askings(Journal(), RETRY, always)
    askings.settle("a")
    assert askings.at("a") is None


def test_withdraw_of_what_is_not_out_is_not_counted() -> None:
    askings = Askings(Journal(), RETRY, always)
    askings.withdraw("a")
    assert askings.tallies == {}


def test_withdraw_counts_the_asking() -> None:
    askings = Askings(journal_with(elicit_1=OUT), RETRY, always)
    askings.withdraw("elicit-1")
    assert askings.at("elicit-1") is None
    assert askings.tallies == {"elicit-1": Tally(1)}


def test_keep_only_withdraws_the_others() -> None:
    askings = Askings(Journal(), RETRY, always)
    for place in ("a", "b", "c"):
        askings.add(place, SHAPE, RENDER)
    askings.keep_only({"b"})
    assert set(askings.asked) == {"b"}
    assert set(askings.tallies) == {"a", "c"}


def test_stale_answers_are_counted_by_place() -> None:
    askings = Askings(Journal(tallies={"a": Tally(2, 1)}), RETRY, always)
    askings.note_stale("a")
    askings.note_stale("b")
    assert askings.tallies == {"a": Tally(2, 2), "b": Tally(1, 1)}
    assert askings.stale == {"a", "b"}


def test_askings_leave_the_journal_alone() -> None:
    journal = journal_with(elicit_1=OUT)
    askings = Askings(journal, RETRY, always)
    askings.withdraw("elicit-1")
    assert journal == journal_with(elicit_1=OUT)


# ---- answers ----


def read(answer: Answer, subject: InputRequest[Any] | None = None) -> Any:
    subject = Elicit("Who?", str) if subject is None else subject
    return read_answer(subject, KINDS[type(subject)], answer)


@pytest.mark.parametrize(
    ("answer", "recorded"),
    [
        (Accepted({"value": "Ann", "x": 1}), ("accepted", b'{"value":"Ann"}')),
        (Declined(), ("declined", b"null")),
        (Dismissed(), ("dismissed", b"null")),
        # Q5: what clients of the older eras send for "the user said no".
        (ClientFailed(-1, "rejected"), ("declined", b"null")),
        (ClientFailed(-32000, "busy"), ("refused", b'[-32000,"busy",null]')),
        (ClientFailed(1, "m", {"a": 1}), ("refused", b'[1,"m",{"a":1}]')),
    ],
    ids=repr,
)
def test_read_answer(answer: Answer, recorded: tuple[str, bytes]) -> None:
    assert read(answer) == recorded


@pytest.mark.parametrize("content", [{}, {"value": 5}, [], "Ann", {"value": None}])
def test_read_answer_that_does_not_fit(content: Any) -> None:
    with pytest.raises(Unfit):
        read(Accepted(content))


def test_read_answer_that_the_protocol_could_not_read() -> None:
    with pytest.raises(Unfit, match="unknown action"):
        read(Unfit(["unknown action 'maybe'"]))


def test_read_answer_that_json_cannot_carry() -> None:
    """A transport hands over what it decoded, lone surrogates and all."""
    block = {"type": "text", "text": "\ud800"}
    with pytest.raises(Unfit, match="lone surrogate"):
        read(Accepted({"content": block, "model": "m"}), Sample("Write"))


def test_read_answer_of_an_error_that_json_cannot_carry() -> None:
    assert read(ClientFailed(5, "\ud800")) == (
        "refused",
        b'[5,"?",null]',
    )
    assert read(ClientFailed(5, "m", object())) == (
        "refused",
        b'[5,"m",null]',
    )


@pytest.mark.parametrize("answer", [None, "yes", {"action": "accept"}, ValueError()])
def test_read_answer_refuses_what_is_no_answer(answer: Any) -> None:
    """The embedder's mistake, so it says what an answer is."""
    with pytest.raises(UsageError, match=r"an answer is Accepted\(content\), Declined"):
        read(answer, Confirm("Sure?"))


# ---- answers that only their question can read ----


def test_unread_answer_is_read_by_its_question() -> None:
    seen: list[Any] = []

    def read(effect: Any) -> Answer:
        seen.append(effect)
        return Declined()

    question = Confirm("Sure?")
    assert read_answer(question, KINDS[Confirm], Unread(read)) == ("declined", b"null")
    assert seen == [question]


def test_unread_answer_that_stays_unread_is_refused() -> None:
    answer = Unread(lambda effect: answer)
    with pytest.raises(UsageError, match="another answer to be read"):
        read_answer(Confirm("Sure?"), KINDS[Confirm], answer)


# ---- answers of a whole round ----


def asked_once(form: Any) -> tuple[Callable[[], Flow[Any]], Journal]:
    """A flow that asks for `form`, and where it stood when it had."""

    def handler() -> Flow[Any]:
        try:
            return (yield from Elicit("Who?", form))
        except Unsupported:
            return "unsupported"

    one = Run(handler, flow_id=bytes(16))
    one.start()
    return handler, one.suspend()


def test_answer_that_does_not_fit_is_read_once() -> None:
    """Whoever says that it does not fit may have had to work for it."""
    seen: list[Any] = []

    def read(effect: Any) -> Answer:
        seen.append(effect)
        return Unfit(["no"])

    handler, journal = asked_once(str)
    stop = Run(handler, flow_id=bytes(16), journal=journal).start(
        {"elicit-1": Unread(read)}
    )
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ("no",)
    assert len(seen) == 1


@pytest.mark.parametrize("wrap", [lambda it: it, Outcome], ids=["alone", "outcome"])
def test_reader_that_raises_what_does_not_fit(wrap: Any) -> None:
    """As good as one that returns it, on every way that an answer can take."""

    def read(effect: Any) -> Answer:
        raise Unfit(["no"])

    def handler() -> Flow[Any]:
        return (yield from wrap(Elicit("Who?", str)))

    one = Run(handler, flow_id=bytes(16))
    one.start()
    stop = Run(handler, flow_id=bytes(16), journal=one.suspend()).start(
        {"elicit-1": Unread(read)}
    )
    assert isinstance(stop, Asked)
    assert [(one.key, one.problems) for one in stop.questions] == [
        ("elicit-1~2", ("no",))
    ]


class Built:
    """How often a form was, and how often it may be."""

    count = 0
    limit = 0


@define
class Guest:
    name: str

    def __attrs_post_init__(self) -> None:
        Built.count += 1
        if Built.count > Built.limit:
            raise ValueError("not today")


def start_with_guest(limit: int, *, supported: bool = True) -> Any:
    handler, journal = asked_once(Guest)
    Built.count, Built.limit = 0, limit
    one = Run(
        handler, flow_id=bytes(16), journal=journal, supports=lambda what: supported
    )
    return one.start({"elicit-1": Accepted({"name": "Ann"})})


def test_form_that_does_not_fit_is_built_once() -> None:
    stop = start_with_guest(0)
    assert stop.questions[0].problems == ("not today",)
    assert Built.count == 1


def test_answer_that_no_longer_fits_when_it_is_delivered_is_asked_for_again() -> None:
    """Also of a client that can no longer be asked: it was, and it did answer."""
    for supported in (True, False):
        stop = start_with_guest(1, supported=supported)
        assert isinstance(stop, Asked)
        assert stop.questions[0].problems == ("not today",)
