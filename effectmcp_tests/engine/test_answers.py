from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
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
    Answer,
    Asked,
    Asking,
    Entry,
    Journal,
    Place,
    Pooled,
    Returned,
    Run,
    Unread,
)
from effectmcp.engine.answers import (
    STALE,
    Answers,
    Places,
    Read,
    Said,
    read_answer,
)
from effectmcp.engine.effect_table import KINDS
from effectmcp.engine.flow_state import FlowState
from effectmcp.engine.journal import Tag
from effectmcp.engine.names import find
from effectmcp.engine.rules import RETRY, TASK
from effectmcp.engine.sequences import Wanted
from effectmcp.forms import Unfit

from .prints import prints_of

# ---- own, and the pool ----

PLACE = "elicit-1"
QUESTION = Elicit("Who?", str)


def wanted(place: str = PLACE, render: bytes = b"rendered") -> Wanted:
    kind = KINDS[Elicit]
    return Wanted(QUESTION, QUESTION, kind, place, place, b"shap", render, False)


def out(place: str = PLACE, render: bytes = b"rendered") -> Asking:
    return Asking(place, b"shap", render)


def pooled(
    path: str = "", tag: Tag = "accepted", payload: bytes = b'{"value":"Ann"}'
) -> Pooled:
    return Pooled(path, Entry("elicit-1", b"shap", b"rendered", tag, payload))


def flow(read: Read) -> FlowState:
    return FlowState(
        call=(lambda: None, (), {}),
        prints=prints_of(b"f" * 16),
        rules=RETRY,
        detached_rules=TASK,
        supports=lambda what: True,
        emit=lambda effect: None,
        resolve=find,
        read=read,
        clock=None,
        consented=lambda: None,
        name="test",
        version=None,
        watch=None,
        rounds=0,
        state_rounds=0,
        detached=None,
        muted=False,
    )


def is_empty(one: Answers) -> bool:
    return not (one.own or one.pool or one.early)


def answers(*pool: Pooled, asked: tuple[Asking, ...] = (), **given: Answer) -> Answers:
    places = Places({one.place: Place(1, out=one) for one in asked}, 0)
    one = Answers(places, flow(lambda question, value: Accepted({"value": value})))
    one.add(pool)
    one.arrive({key.replace("_", "-"): answer for key, answer in given.items()})
    return one


ANN = Accepted({"value": "Ann"})
FOUND = ("accepted", b'{"value":"Ann"}')


def test_own_answer_counts_once() -> None:
    one = answers(asked=(out(),), elicit_1=ANN)
    assert one.take_own(wanted()) == FOUND
    assert one.take_own(wanted()) is None
    assert one.pooled() == ()


def test_own_answer_of_a_question_that_is_not_outstanding_is_ignored() -> None:
    one = answers(elicit_1=ANN, x=ANN)
    assert one.take_own(wanted()) is None
    assert one.pooled() == ()


def test_own_answer_that_does_not_fit_is_taken_once() -> None:
    one = answers(asked=(attrs.evolve(out(), unfit=1),), elicit_1=Accepted({}))
    asked = wanted()
    assert one.take_own(asked) is None
    assert asked.problems == ("value: is required",)
    assert one._places.at(PLACE) == Place(2, out=attrs.evolve(out(), unfit=2))
    assert one.take_own(wanted()) is None


def test_stale_answer_stays_known_under_the_text_that_it_answered() -> None:
    one = answers(asked=(out(),), elicit_1=ANN)
    reworded = wanted(render=b"reworded")
    assert one.take_own(reworded) is STALE
    assert one.take_own(reworded) is None
    assert one.take_pooled(reworded) is None
    assert one.take_pooled(wanted("elicit-2")) == (FOUND, True)


def test_question_whose_text_changed_unanswered_is_not_stale() -> None:
    one = answers(asked=(out(),))
    assert one.take_own(wanted(render=b"reworded")) is None
    # And is no longer asked under its old text.
    assert one.take_own(wanted()) is None


def test_answer_that_no_question_took_is_pooled_unread() -> None:
    """G: a deploy put another question before its own."""
    one = answers(asked=(out("gather-1/0/elicit-1"),))
    one.arrive({"gather-1/0/elicit-1": Unread("Ann")})
    assert one.pooled() == ()  # its sender has it, while it is asked
    one._places.keep_only(())
    (kept,) = one.pooled()
    assert (kept.path, kept.entry.key) == ("gather-1/0/", "elicit-1")
    assert (kept.entry.tag, kept.entry.payload) == ("unread", b'["unread","Ann"]')
    assert answers(kept).take_pooled(wanted()) == (FOUND, False)


@pytest.mark.parametrize("answer", [ANN, Declined(), Dismissed()], ids=repr)
def test_answer_that_no_question_took_comes_back(answer: Answer) -> None:
    one = answers(asked=(out(),), elicit_1=answer)
    one._places.keep_only(())
    found = answers(*one.pooled()).take_pooled(wanted())
    assert found == (read(answer), False)


def test_answer_waits_over_requests_for_its_question() -> None:
    """A live run, or a task, takes several requests' answers."""
    one = answers(asked=(out(),), elicit_1=ANN)
    one.arrive({})
    assert one.take_own(wanted()) == FOUND
    one.arrive({})
    assert is_empty(one)


def test_answer_to_a_question_that_is_no_longer_asked_is_pooled() -> None:
    places = Places({PLACE: Place(1, out=out())}, 0)
    one = Answers(places, flow(lambda question, value: ANN))
    one.arrive({PLACE: ANN})
    places.withdraw(PLACE)
    one.arrive({})
    assert one.take_pooled(wanted("gather-1/0/elicit-1")) == (FOUND, False)
    one.arrive({})
    assert is_empty(one)


@pytest.mark.parametrize(
    "answer", [ClientFailed(1, "m"), Unfit(["no"]), Unread("\ud800")], ids=repr
)
def test_answer_that_does_not_come_from_the_user_is_not_kept(answer: Answer) -> None:
    one = answers(asked=(out(),), elicit_1=answer)
    one._places.keep_only(())
    assert one.pooled() == ()


@pytest.mark.parametrize("path", ["", "gather-1/0/"])
def test_pool_gives_the_one_answer_wherever_it_was_given(path: str) -> None:
    one = answers(pooled(path))
    assert one.take_pooled(wanted()) == (FOUND, False)
    assert one.take_pooled(wanted()) is None


def test_pool_matches_both_halves_of_a_fingerprint() -> None:
    one = answers(pooled())
    assert one.take_pooled(wanted(render=b"another!")) is None
    assert one.pooled() == (pooled(),)


@pytest.mark.parametrize("paths", [("", ""), ("", "gather-1/0/"), ("a/0/", "b/0/")])
def test_pool_never_guesses_between_two(paths: tuple[str, str]) -> None:
    """A: it is unknown which answer belongs to which question, so all are dropped."""
    one = answers(*map(pooled, paths))
    assert one.take_pooled(wanted()) is None
    assert one.pooled() == ()


def test_pool_never_guesses_between_an_earlier_answer_and_one_of_this_request() -> None:
    one = answers(pooled(), asked=(out(),), elicit_1=ANN)
    assert one.take_pooled(wanted("elicit-2")) is None
    assert one.pooled() == ()
    # Its wire key is used up.
    assert one.take_own(wanted()) is None


def test_wire_key_of_an_answer_that_another_place_took_is_used_up() -> None:
    one = answers(asked=(out(),), elicit_1=ANN)
    assert one.take_pooled(wanted("elicit-2")) == (FOUND, True)
    assert one._places.at(PLACE) == Place(1)
    one.arrive({PLACE: ANN})
    assert is_empty(one)


def test_wire_key_of_an_answer_that_does_not_fit_is_used_up() -> None:
    one = answers(asked=(out(),), elicit_1=Accepted({}))
    assert one.take_own(wanted()) is None
    assert one._places.wire(PLACE) == "elicit-1~2"


def test_answer_that_a_store_gives_again_counts_once() -> None:
    """A journal that was saved before the question was reached has kept it, unread."""
    kept = pooled(tag="unread", payload=b'["accepted",{"value":"Ann"}]')
    one = answers(kept, asked=(out(),), elicit_1=ANN)
    assert one.pooled() == ()
    assert one.take_pooled(wanted("elicit-2")) == (FOUND, True)


@pytest.mark.parametrize("path", ["", "gather-1/0/"])
def test_answer_that_is_given_again_leaves_other_answers_in_the_pool(path: str) -> None:
    """Answers given in other branches or recorded by an entry had other questions."""
    tag: Tag = "unread" if path else "accepted"
    other = pooled(path, tag, b'["accepted",{"value":"Ann"}]')
    one = answers(other, asked=(out(),), elicit_1=ANN)
    assert one.pooled() == (other,)
    assert one.take_pooled(wanted("elicit-2")) is None  # which of the two was it?


def test_each_answer_that_no_question_took_is_pooled() -> None:
    asked = out(), out("elicit-2", b"another!")
    one = answers(asked=asked, elicit_1=ANN, elicit_2=Declined())
    one._places.withdraw("elicit-2")
    (kept,) = one.pooled()
    assert (kept.path, kept.entry.key, kept.entry.render) == (
        "",
        "elicit-2",
        b"another!",
    )


def test_pooled_answer_that_does_not_fit_is_gone() -> None:
    one = answers(pooled(tag="unread", payload=b'["accepted",{}]'))
    assert isinstance(one.take_pooled(wanted()), Unfit)
    assert one.pooled() == ()


# ---- what to record ----


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


@pytest.mark.parametrize("code", ["-1", None, True, 0.5])
def test_read_answer_of_an_error_with_a_code_of_another_type(code: Any) -> None:
    """The answer gets code 0; code -1 is the user's "no"."""
    assert read(ClientFailed(code, "m"))[1].startswith(b"[0,")


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
def test_read_answer_refuses_values_that_are_not_answers(answer: Any) -> None:
    """The embedder's mistake, so the error lists the answer classes."""
    with pytest.raises(UsageError, match=r"an answer is Accepted\(content\), Declined"):
        read(answer, Confirm("Sure?"))


# ---- answers that only their question can read ----


def test_unread_answer_is_read_with_its_question() -> None:
    seen: list[Any] = []

    def read(effect: Any, value: Any) -> Said:
        seen.append((effect, value))
        return Declined()

    question = Confirm("Sure?")
    found = read_answer(question, KINDS[Confirm], Unread(5), read)
    assert found == ("declined", b"null")
    assert seen == [(question, 5)]


def test_unread_answer_that_is_read_as_no_answer_is_refused() -> None:
    def read(effect: Any, value: Any) -> Any:
        return value

    with pytest.raises(UsageError, match="an answer is"):
        read_answer(Confirm("Sure?"), KINDS[Confirm], Unread(5), read)


def test_unread_answer_that_stays_unread_is_refused() -> None:
    def read(effect: Any, value: Any) -> Any:
        return Unread(value)

    with pytest.raises(UsageError, match="still unread"):
        read_answer(Confirm("Sure?"), KINDS[Confirm], Unread(5), read)


def test_unread_answer_without_a_reader_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Run\(read=\.\.\.\)"):
        read_answer(Confirm("Sure?"), KINDS[Confirm], Unread(5))
    handler, journal = asked_once(str)
    one = Run(handler, flow_id=bytes(16), journal=journal)
    with pytest.raises(UsageError, match=r"Run\(read=\.\.\.\)"):
        one.start({"elicit-1": Unread(5)})


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
    """The reader that refuses an answer may be expensive."""
    seen: list[Any] = []

    def read(effect: Any, value: Any) -> Said:
        seen.append(effect)
        return Unfit(["no"])

    handler, journal = asked_once(str)
    one = Run(handler, flow_id=bytes(16), journal=journal, read=read)
    stop = one.start({"elicit-1": Unread(5)})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ("no",)
    assert len(seen) == 1


@pytest.mark.parametrize("wrap", [lambda it: it, Outcome], ids=["alone", "outcome"])
def test_reader_may_raise_unfit_instead_of_returning_it(wrap: Any) -> None:
    """Raising has the same effect as returning, on every path of an answer."""

    def read(effect: Any, value: Any) -> Said:
        raise Unfit(["no"])

    def handler() -> Flow[Any]:
        return (yield from wrap(Elicit("Who?", str)))

    one = Run(handler, flow_id=bytes(16))
    one.start()
    again = Run(handler, flow_id=bytes(16), journal=one.suspend(), read=read)
    stop = again.start({"elicit-1": Unread(5)})
    assert isinstance(stop, Asked)
    assert [(one.key, one.problems) for one in stop.questions] == [
        ("elicit-1~2", ("no",))
    ]


class Built:
    """The number of times that a form was built, and its limit."""

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
    stop = start_with_guest(1)
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ("not today",)
    assert stop.questions[0].key == "elicit-1~2"


@pytest.mark.parametrize("limit", [0, 1])
def test_answer_that_does_not_fit_of_a_client_that_cannot_be_asked(limit: int) -> None:
    """D: Q4 reads the capabilities of this request, also for asking again."""
    assert start_with_guest(limit, supported=False) == Returned("unsupported")
