"""By retry, live, in a task, by drafts and in process: one handler, one outcome.

For every handler and every script of answers: the same effects with the same values, the
same steps performed, the same notifications, the same result
(docs/internals/replay.md#what-must-be-equal). Excluded by name are caps and what differs
from one call to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, evolve, field
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Confirm, Elicit, Sample
from effectmcp.drivers import sync
from effectmcp.engine import SCRIPT, Answer, Question
from effectmcp.server import Server

from ..engine import programs as drawn
from ..engine.programs import Program, Stmt, answer_of, handler_of, programs
from ..tasks.simulated import START, Host
from ..wire import (
    KEYS,
    Wire,
    on_wire,
    text_of,
)
from . import ways


def settled(program: Program) -> Program:
    """`program` without what differs from one call to the next."""
    kinds = {"now": "share", "random": "share", "idempotency": "share"}
    return tuple(
        Stmt(
            kinds.get(stmt.kind, stmt.kind),
            stmt.label,
            tuple(map(settled, stmt.blocks)),
        )
        for stmt in program
    )


@define
class User:
    """Answers each message in one way; some answers do not fit when first given.

    Attributes:
        seed: The number that decides on that.
        is_exact: Whether all answers fit.
    """

    seed: int
    is_exact: bool = False
    _asked: Counter[str] = field(factory=Counter)

    def says(self, effect: Any) -> Answer | None:
        """The answer; `None` for an answer that does not fit."""
        text = getattr(effect, "message", "sampled")
        self._asked[text] += 1
        mood = drawn._crc(f"{text} {self.seed}") % 4
        is_first = self._asked[text] == 1 and not self.is_exact
        if isinstance(effect, Elicit) and mood == 0 and is_first:
            return None
        return answer_of(Question("k", effect, ()))

    def writes(self, question: Wire) -> Wire:
        """Answer a question that is known only in its wire form."""
        if question["method"] == "sampling/createMessage":
            return on_wire(question, answer_of(Question("k", Sample("?"), ())))
        message = question["params"]["message"].partition("\n\nYour last")[0]
        is_form = question["params"]["requestedSchema"]["properties"]
        effect: Any = Elicit(message, str) if is_form else Confirm(message)
        said = self.says(effect)
        if said is None:
            return {"action": "accept", "content": {"value": 5}}
        return on_wire(question, said)

    def answers(self, questions: Mapping[str, Wire]) -> dict[str, Wire]:
        return {key: self.writes(one) for key, one in questions.items()}


@define
class Outcome:
    """The outcome of a call.

    Attributes:
        result: The fields of its result.
        events: The value of each statement, in the order they occurred.
        performed: The steps, and how often each was.
        told: The log messages.
    """

    result: Mapping[str, Any]
    events: list[Any]
    performed: Counter[Any]
    told: list[Any]


def observed(
    program: Program,
    call: Callable[[Server, list[Any]], Mapping[str, Any]],
    **options: Any,
) -> Outcome:
    app = Server("shop", keys=KEYS, drafts=True)
    # Caps are for clients that give up, which these do not.
    app.change_rules(rounds=None, state_rounds=None)
    app.tool(name="tool", **options)(handler_of(program))
    drawn.performed.clear()
    told: list[Any] = []
    found = call(app, told)
    kept = {
        key: one for key, one in found.items() if key not in ("resultType", "_meta")
    }
    return Outcome(kept, drawn.newest[0].events, drawn.performed.copy(), told)


def by_retry(program: Program, user: User) -> Outcome:
    return observed(program, lambda app, told: ways.by_retry(app, user.answers, told))


def live(program: Program, user: User) -> Outcome:
    def answer(question: Wire) -> Wire:
        return {"result": user.writes(question)}

    return observed(program, lambda app, told: ways.live(app, answer, told))


def by_task(program: Program, user: User) -> Outcome:
    """The whole call is a task; questions of one wave are answered together."""

    def call(app: Server, told: list[Any]) -> Mapping[str, Any]:
        # The call stores the row; its turns run on a simulated host.
        host = Host(app, evolve(ways.task_of(app), created=START))
        while not host.run(1).is_ended:
            assert host.row.report is None, host.row.report
            assert host.row.questions, host.row
            for key, one in host.row.questions.items():
                host.answer(key, user.writes(one))
        assert host.row.result is not None, host.row
        return host.row.result

    return observed(program, call, task="required")


def by_drafts(program: Program, user: User) -> Outcome:
    return observed(program, lambda app, told: ways.by_drafts(app, user.answers, told))


def in_process(program: Program, user: User) -> Outcome:
    def call(app: Server, told: list[Any]) -> Mapping[str, Any]:
        def answer(question: Question) -> Answer:
            said = user.says(question.effect)
            while said is None:  # this user is never asked again
                said = user.says(question.effect)
            return said

        return ways.in_process(
            app, lambda handler: sync.run_flow(handler, answer=answer, rules=SCRIPT)
        )

    return observed(program, call)


def without_structure(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Only the newest revision has structured content other than objects."""
    return {key: one for key, one in found.items() if key != "structuredContent"}


@given(programs.map(settled), st.integers(0, 50))
def test_every_way_has_the_same_outcome(program: Program, seed: int) -> None:
    expected = by_retry(program, User(seed))
    older = evolve(expected, result=without_structure(expected.result))
    assert live(program, User(seed)) == older
    assert by_drafts(program, User(seed)) == older
    played = in_process(program, User(seed))
    assert played.events == expected.events
    assert played.performed == expected.performed
    assert played.result.get("isError") == expected.result.get("isError")
    if played.result.get("isError"):
        assert text_of(dict(played.result)) == text_of(dict(expected.result))
    else:
        assert played.result == expected.result


def without_checkpoints(program: Program) -> Program:
    """`program` without what a task does not wait for: rule 7 of B3a."""
    return tuple(
        evolve(
            stmt,
            kind="share" if stmt.kind == "checkpoint" else stmt.kind,
            blocks=tuple(map(without_checkpoints, stmt.blocks)),
        )
        for stmt in program
    )


@example(
    # An answer that does not fit does not arrive, so what is beside it is first: rule 4.
    program=(
        Stmt(
            "gather", "a", ((Stmt("ask", "f"),), (Stmt("ask", "a"), Stmt("ask", "b")))
        ),
    ),
    seed=0,
)
@given(programs.map(settled).map(without_checkpoints), st.integers(0, 50))
def test_task_has_the_outcome_of_a_call(program: Program, seed: int) -> None:
    expected = by_retry(program, User(seed, is_exact=True))
    # No log message leaves a task.
    found = by_task(program, User(seed, is_exact=True))
    assert found == evolve(expected, told=[])
