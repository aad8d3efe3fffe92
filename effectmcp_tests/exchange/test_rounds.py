"""One round: a token in, a token out, and nothing in between but keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Checkpoint,
    ClientSupports,
    Confirm,
    Declined,
    DivergenceError,
    Elicit,
    Flow,
    IdempotencyKey,
    Log,
    Restart,
    Step,
    StepError,
    TooManyRounds,
    UsageError,
    step,
)
from effectmcp.engine import RETRY, Answer, Asked, Perform, Raised, Returned, Stop
from effectmcp.errors import StateError, StateSizeError
from effectmcp.exchange.rounds import Round, begin, resume
from effectmcp.state import BoundCall, Keys, Sealer, make_key

from ..helpers import FLOW_ID, answers_to, keys, messages, perform, yes

NOW = 1_800_000_000
KEY = make_key(bytes(range(32)))
SEALER = Sealer(keys=Keys(KEY), audience="bookshop")
READABLE = attrs.evolve(SEALER, keys=Keys(KEY, readable=True))
CALL = BoundCall(method="tools/call", target="order", arguments={"title": "Dune"})

charged: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def nothing_charged() -> None:
    """Each test begins with nothing charged."""
    charged.clear()


@step
def charge_card(title: str, name: str, key: str) -> str:
    charged.append((name, key))
    return f"receipt {len(charged)} for {title}, to {name}"


def order(title: str) -> Flow[str]:
    """The bookshop of the README."""
    name = yield from Elicit("Who is it for?", str)
    day = yield from Elicit(f"Deliver to {name} on which day?", dt.date)
    if not (yield from Confirm(f"Order {title!r} for {name} on {day:%d %b}?")):
        return "Nothing ordered."
    key = yield from IdempotencyKey("charge")
    receipt = yield from charge_card(title, name, key)
    sure = yield from Confirm(f"{receipt}: all right?")
    return f"Ordered: {receipt}, {sure}"


def start(handler: Callable[..., Any] = order, *args: Any, **options: Any) -> Round:
    """The first round of a flow, up to its question."""
    args = args if args or handler is not order else ("Dune",)
    usual: dict[str, Any] = {
        "call": CALL,
        "sealer": SEALER,
        "flow_id": FLOW_ID,
        "now": NOW,
    }
    return played(begin(handler, args, **{**usual, **options}))


def go_on(
    token: str,
    answers: Mapping[str, Answer],
    handler: Callable[..., Any] = order,
    *args: Any,
    **options: Any,
) -> Round:
    """A later round, up to its question or the end."""
    args = args if args or handler is not order else ("Dune",)
    options = {"call": CALL, "sealer": SEALER, "now": NOW, **options}
    return played(resume(handler, args, token=token, answers=answers, **options))


def played(round_: Round) -> Round:
    while isinstance(round_.stop, Perform):
        stop = round_.performed({w.key: perform(w) for w in round_.stop.wants})
        assert round_.stop is stop
    return round_


def said(stop: Stop, value: Any = None) -> dict[str, Answer]:
    """An answer to the round's only question."""
    (key,) = keys(stop)
    return {key: Accepted(None if value is None else {"value": value})}


def token_before_charging(name: str = "Ann") -> tuple[str, dict[str, Answer]]:
    """The state in which the last thing asked was whether to charge, and a yes."""
    token, stop = start().token(now=NOW), start().stop
    for value in (name, "2026-12-01"):
        round_ = go_on(token, said(stop, value))
        token, stop = round_.token(now=NOW), round_.stop
    return token, said(stop)


# ---- the usual way ------------------------------------------------------------------


@pytest.mark.parametrize("sealer", [SEALER, READABLE], ids=["encrypted", "readable"])
def test_rounds_of_a_bookshop(sealer: Sealer) -> None:
    """Each round in a process of its own, which is given the key and the token."""
    public = attrs.evolve(sealer, keys=Keys(KEY, readable=sealer.keys.readable))

    def polite(title: str) -> Flow[str]:
        name = yield from Elicit("Who is it for?", str)
        day = yield from Elicit(f"Deliver to {name} on which day?", dt.date)
        sure = yield from Confirm(f"Order {title!r} for {name} on {day:%d %b}?")
        return f"{name}, {day}, {sure}"

    round_ = start(polite, "Dune", sealer=sealer)
    assert messages(round_.stop) == ["Who is it for?"]
    token = round_.token(now=NOW)
    round_ = go_on(
        token, said(round_.stop, "Ann"), polite, "Dune", sealer=public, now=NOW + 9
    )
    assert messages(round_.stop) == ["Deliver to Ann on which day?"]
    token = round_.token(now=NOW + 9)
    round_ = go_on(
        token, said(round_.stop, "2026-12-01"), polite, "Dune", sealer=sealer, now=NOW
    )
    assert messages(round_.stop) == ["Order 'Dune' for Ann on 01 Dec?"]
    token = round_.token(now=NOW)
    round_ = go_on(token, said(round_.stop), polite, "Dune", sealer=public)
    assert round_.stop == Returned("Ann, 2026-12-01, True")


def test_rounds_perform_a_step_once() -> None:
    token, yes_ = token_before_charging()
    assert charged == []
    round_ = go_on(token, yes_)
    assert len(charged) == 1
    token, stop = round_.token(now=NOW), round_.stop
    for _ in range(3):
        # Asked again, without an answer: replayed, and not charged again.
        round_ = go_on(token, {})
        assert round_.stop == stop
        token = round_.token(now=NOW)
    end = go_on(token, said(stop)).stop
    assert end == Returned("Ordered: receipt 1 for Dune, to Ann, True")
    assert len(charged) == 1


def test_round_gives_handler_and_options_to_the_run() -> None:
    heard: list[Any] = []

    def handler(a: int, *, b: int) -> Flow[Any]:
        yield from Log("info", [a, b])
        supported = yield from ClientSupports(Elicit)
        answer = yield from Elicit("?", str, key="k", otherwise="nobody")
        return supported, answer

    round_ = begin(
        handler,
        (1,),
        {"b": 2},
        call=CALL,
        sealer=SEALER,
        flow_id=FLOW_ID,
        now=NOW,
        supports=lambda what: False,
        emit=heard.append,
    )
    assert round_.stop == Returned((False, "nobody"))
    assert heard == [Log("info", [1, 2])]


def test_round_takes_early_answers_and_rules() -> None:
    def handler() -> Flow[str]:
        return (yield from Elicit("Who?", str, key="who"))

    early: dict[str, Answer] = {"who": Accepted({"value": "Ann"})}
    assert start(handler, answers=early).stop == Returned("Ann")
    strict = attrs.evolve(RETRY, early_answers=False)
    round_ = start(handler, answers=early, rules=strict)
    assert isinstance(round_.stop, Asked)
    # Not in a later round: there, the question has a token.
    round_ = go_on(round_.token(now=NOW), {}, handler)
    assert isinstance(round_.stop, Asked)


def test_round_of_a_checkpoint() -> None:
    """No question, and a state all the same."""

    def handler() -> Flow[str]:
        yield from Checkpoint()
        return "done"

    round_ = start(handler)
    assert round_.stop == Asked(())
    assert go_on(round_.token(now=NOW), {}, handler).stop == Returned("done")


def test_rounds_keep_version_and_trace_of_the_first() -> None:
    round_ = start(version="3", trace="00-4bf9-00f0-01")
    round_ = go_on(round_.token(now=NOW), said(round_.stop, "Ann"), now=NOW + 5)
    claims = SEALER.open(round_.token(now=NOW + 5), CALL, now=NOW + 5)
    assert (claims.version, claims.trace) == ("3", "00-4bf9-00f0-01")
    assert (claims.flow_id, claims.started) == (FLOW_ID, NOW)
    assert claims.journal == round_.run.journal


def again(title: str, times: int) -> Flow[str]:
    name = yield from Elicit(f"Who, {times}?", str)
    if times:
        return (yield from Restart(again, title, times - 1))
    return f"{title} {name}"


def test_rounds_of_a_handler_that_restarts() -> None:
    round_ = start(again, "Dune", 2)
    asked = []
    for name in "abc":
        asked += keys(round_.stop)
        round_ = go_on(round_.token(now=NOW), said(round_.stop, name), again, "Dune", 2)
    assert round_.stop == Returned("Dune c")
    assert asked == ["elicit-1", "r1/elicit-1", "r2/elicit-1"]


# ---- forked, at once, afterwards ----------------------------------------------------


def test_fork_of_a_token() -> None:
    """Two answers to one token: two flows, which share what was before."""
    first = start()
    token = first.token(now=NOW)
    forks = {name: go_on(token, said(first.stop, name)) for name in ("Ann", "Bob")}
    tokens = {name: round_.token(now=NOW) for name, round_ in forks.items()}
    assert len(set(tokens.values())) == 2
    for name, round_ in forks.items():
        assert messages(round_.stop) == [f"Deliver to {name} on which day?"]


def test_fork_after_which_both_charge() -> None:
    """S1, S4: at least once, under one idempotency key, which is what it is for."""
    token, yes_ = token_before_charging()
    for _ in "ab":
        go_on(token, yes_)
    assert len(charged) == 2
    assert len(set(charged)) == 1


def test_two_rounds_of_one_token_at_once() -> None:
    """Turn by turn, and neither sees the other."""
    token, yes_ = token_before_charging()
    rounds = [
        resume(
            order,
            ("Dune",),
            token=token,
            call=CALL,
            sealer=SEALER,
            now=NOW,
            answers=yes_,
        )
        for _ in "ab"
    ]
    wants = [round_.stop.wants for round_ in rounds if isinstance(round_.stop, Perform)]
    assert [len(one) for one in wants] == [1, 1]
    for round_, (want,) in zip(reversed(rounds), reversed(wants), strict=True):
        round_.performed({want.key: perform(want)})
    tokens = [round_.token(now=NOW) for round_ in rounds]
    ends = [
        go_on(one, said(round_.stop)).stop
        for one, round_ in zip(tokens, rounds, strict=True)
    ]
    assert ends == [
        Returned("Ordered: receipt 2 for Dune, to Ann, True"),
        Returned("Ordered: receipt 1 for Dune, to Ann, True"),
    ]


def test_old_round_after_completion() -> None:
    """The end of a flow is not recorded: its states stay valid until they expire."""
    token, yes_ = token_before_charging()
    round_ = go_on(token, yes_)
    last = round_.token(now=NOW)
    end = go_on(last, said(round_.stop)).stop
    assert go_on(last, said(round_.stop)).stop == end
    assert len(charged) == 1
    go_on(token, yes_)
    assert len(charged) == 2
    with pytest.raises(StateError):
        go_on(last, said(round_.stop), now=NOW + 3600 + 61)


def test_same_answers_again() -> None:
    """Equal requests in the same second have equal replies, byte for byte."""
    first = start()
    token = first.token(now=NOW)
    replies = {go_on(token, said(first.stop, "Ann")).token(now=NOW) for _ in range(3)}
    assert len(replies) == 1


# ---- what may not be sealed ---------------------------------------------------------


@step(public=True)
def look_up(title: str) -> str:
    charged.append(("looked up", title))
    return f"{title} is in stock"


def test_readable_state_refuses_a_private_step_before_it_is_performed() -> None:
    token, yes_ = None, {}
    round_ = start(sealer=READABLE)
    for value in ("Ann", "2026-12-01", None):
        token, yes_ = round_.token(now=NOW), said(round_.stop, value)
        round_ = go_on(token, yes_, sealer=READABLE)
    assert isinstance(round_.stop, Raised)
    assert isinstance(round_.stop.error, StepError)
    assert "not public" in str(round_.stop.error)
    assert charged == []


def test_readable_state_carries_a_public_step() -> None:
    def handler() -> Flow[str]:
        found = yield from look_up("Dune")
        yield from Confirm(f"{found}. Go on?")
        return found

    round_ = start(handler, sealer=READABLE)
    token = round_.token(now=NOW)
    assert b"is in stock" in Keys(KEY).unwrap(token)[0]
    end = go_on(token, said(round_.stop), handler, sealer=READABLE).stop
    assert end == Returned("Dune is in stock")
    assert len(charged) == 1


def test_readable_server_does_not_read_out_what_was_encrypted() -> None:
    """A result recorded under encryption must not be in the next state for all to see."""
    token, yes_ = token_before_charging()
    round_ = go_on(token, yes_)
    token = round_.token(now=NOW)
    with pytest.raises(StateError) as caught:
        go_on(token, said(round_.stop), sealer=READABLE)
    assert caught.value.reason == "format"


def test_secret_step_is_refused() -> None:
    """S2a: its result never goes into a token, not even encrypted."""

    @step(secret=True)
    def password() -> str:
        raise AssertionError("performed")

    def handler() -> Flow[str]:
        return (yield from password())

    stop = start(handler).stop
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, StepError)
    assert "is secret" in str(stop.error)


def test_token_of_a_round_that_ended() -> None:
    round_ = start(order, "Dune")
    round_ = go_on(round_.token(now=NOW), {k: Declined() for k in keys(round_.stop)})
    assert isinstance(round_.stop, Raised)
    with pytest.raises(UsageError, match="stopped with Raised"):
        round_.token(now=NOW)


def test_token_of_a_round_that_must_perform() -> None:
    """A started step with an unknown outcome must not be left out of the state."""
    token, yes_ = token_before_charging()
    round_ = resume(
        order, ("Dune",), token=token, call=CALL, sealer=SEALER, now=NOW, answers=yes_
    )
    with pytest.raises(UsageError, match="stopped with Perform"):
        round_.token(now=NOW)
    assert isinstance(round_.stop, Perform)
    (want,) = round_.stop.wants
    assert isinstance(round_.performed({want.key: perform(want)}), Asked)


def test_token_of_a_round_beyond_the_limit() -> None:
    def handler() -> Flow[str]:
        for number in range(100):
            yield from Confirm(f"{number}?")
        return "never"

    rules = attrs.evolve(RETRY, rounds=2)
    round_ = start(handler, rules=rules)
    for _ in range(2):
        token = round_.token(now=NOW)
        round_ = go_on(token, said(round_.stop), handler, rules=rules)
    assert isinstance(round_.stop, Raised)
    assert isinstance(round_.stop.error, TooManyRounds)
    with pytest.raises(UsageError):
        round_.token(now=NOW)


def large() -> str:
    return "x" * 70_000


def test_token_that_would_be_too_large() -> None:
    def handler() -> Flow[str]:
        yield from Step(large)
        return (yield from Elicit("Who?", str))

    round_ = start(handler)
    with pytest.raises(StateSizeError, match="step-1"):
        round_.token(now=NOW)


def test_round_under_a_clock_with_fractions() -> None:
    round_ = start(now=NOW + 0.5)
    assert round_.token(now=NOW + 0.5) == start().token(now=NOW)


def test_token_twice_is_one_round() -> None:
    """The round ends with its first token; minting another changes its times only."""
    round_ = start()
    token, later = round_.token(now=NOW), round_.token(now=NOW + 50)
    assert token == round_.token(now=NOW)
    for one in (token, later):
        assert isinstance(go_on(one, {}, now=NOW + 60).stop, Asked)


def test_round_of_a_client_that_has_disconnected() -> None:
    """L4: suspended, with no token, and with no effects performed."""
    closed = []

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            closed.append(True)
            yield from Step(large)

    round_ = start(handler)
    round_.run.close()
    assert closed == [True]


# ---- what may not be resumed --------------------------------------------------------


def test_resume_of_another_request() -> None:
    token = start().token(now=NOW)
    other = attrs.evolve(CALL, arguments={"title": "Emma"})
    with pytest.raises(StateError) as caught:
        go_on(token, {}, call=other)
    assert caught.value.reason == "arguments"


def test_resume_runs_nothing_of_a_state_that_is_refused() -> None:
    def handler() -> str:
        raise AssertionError("it ran")

    with pytest.raises(StateError):
        go_on("1eAAAA", {}, handler)


def test_resume_after_the_handler_changed() -> None:
    """A step would be forgotten, so it stops; the report names the version it began with."""

    def handler() -> Flow[str]:
        found = yield from look_up("Dune")
        return (yield from Elicit(f"{found}. Who is it for?", str))

    def changed() -> Flow[str]:
        return (yield from Elicit("Something else?", str))

    token = start(handler, version="3").token(now=NOW)
    with pytest.raises(DivergenceError) as caught:
        go_on(token, {}, changed)
    assert caught.value.verdict == "stop"
    assert caught.value.report.version == "3"


def test_arguments_that_a_handler_changes() -> None:
    """Arguments are part of the call as the client sent them, and sends them again."""
    arguments: dict[str, Any] = {"titles": ["Dune"]}

    def handler(titles: list[str]) -> Flow[int]:
        titles.append("Emma")
        yield from Confirm("Both?")
        return len(titles)

    call = BoundCall(method="tools/call", target="both", arguments=arguments)
    round_ = start(handler, arguments["titles"], call=call)
    token = round_.token(now=NOW)
    fresh = {"titles": ["Dune"]}
    call = BoundCall(method="tools/call", target="both", arguments=fresh)
    end = go_on(token, said(round_.stop), handler, fresh["titles"], call=call).stop
    assert end == Returned(2)


def test_answers_of_an_obliging_client() -> None:
    """The helpers' client gets through, too."""
    round_ = start()
    while isinstance(round_.stop, Asked):
        round_ = go_on(round_.token(now=NOW), answers_to(round_.stop, yes))
    assert round_.stop == Returned("Ordered: receipt 1 for Dune, to text, True")
