"""Find answers that make no difference.

A handler that asks for a yes or a no should act differently on each. A handler that
catches a refusal should not continue as if the user had accepted. To check both, a
conversation is run again with one answer changed and all others kept: if the same
effects follow, with the same arguments, and the same result, the answer made no
difference there. One conversation where it makes a difference is enough to clear a
question.

A refusal may rightly make no difference: an optional question may have a default. So it
is a fault only if the source shows, too, that the refusal was swallowed:

    blanket    `except Exception: pass` (or FlowError, or wider) around the question, and
               a step is performed that is performed on acceptance, too
    unused     the answer is not used, so that only a refusal could have made a difference
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, frozen

from ..effects.base import InputRequest
from ..effects.questions import Accepted, Confirm, ElicitUrl
from ..effects.steps import Step
from ..errors import Declined, FlowError, Refused
from .conversations import RecordedPartner
from .descriptions import describe
from .effect_traces import EffectTrace, TracedEffect, trace_effects
from .source import Source, is_flow, source_of, sources_of

if TYPE_CHECKING:
    from ..engine.answers import Answer
    from ..engine.stops import Question
    from .line_coverage import Range
    from .subjects import Subject
    from .transcripts import Transcript

__all__ = ["Differences", "NoDifference", "Swallow", "branches_of", "swallows_of"]

#: Conversations without a difference between yes and no before that is reported.
_ENOUGH: Final = 4


# ---- what the source shows ----------------------------------------------------------


@frozen
class Swallow:
    """An `except` clause that catches the refusal of a question and does nothing.

    Attributes:
        where: `file:line` of the clause.
        is_blanket: Whether it catches far more than refusals.
        is_unused: Whether the answer is never used.
        is_empty: Whether its body is `pass` or `continue`.
    """

    where: str
    is_blanket: bool
    is_unused: bool
    is_empty: bool


def swallows_of(function: Callable[..., Any]) -> dict[str, Swallow]:
    """Return the clauses that catch refusals, by `file:line` of the question."""
    found: dict[str, Swallow] = {}
    for source in sources_of(function):
        for node in ast.walk(source.node):
            if isinstance(node, ast.Try):
                clause = _catching(source, node)
                if clause is not None:
                    for inner, question in _questions(source, node.body, set()):
                        found.setdefault(
                            inner.where(question),
                            Swallow(
                                source.where(clause),
                                _is_blanket(source, clause),
                                inner.uses_of(inner.parent(question)) == [],
                                _is_empty(clause),
                            ),
                        )
    return found


def branches_of(function: Callable[..., Any], where: str) -> set[Range] | None:
    """Return the statements that a Confirm's answer decides about, as file and lines.

    Return `None` if the answer is used anywhere but in the test of an `if`: then more
    than these statements may depend on it.
    """
    for source in sources_of(function):
        for node in ast.walk(source.node):
            if isinstance(node, (ast.YieldFrom, ast.Await)) and (
                source.where(node) == where and source.makes(node.value, Confirm)
            ):
                uses = [_negated(source, one) for one in source.uses_of(node) or ()]
                if not uses or not all(isinstance(one, ast.If) for one in uses):
                    return None
                return {
                    (source.file, one.lineno, one.lineno)
                    for use in uses
                    for part in (*use.body, *use.orelse)  # type: ignore[attr-defined]
                    for one in ast.walk(part)
                    if isinstance(one, ast.stmt) and not isinstance(one, ast.Pass)
                }
    return None


def _negated(source: Source, node: ast.AST) -> ast.AST:
    return source.parent(node) if isinstance(node, ast.UnaryOp) else node


def _catching(source: Source, node: ast.Try) -> ast.ExceptHandler | None:
    """Return the first clause that catches a refusal."""
    for clause in node.handlers:
        classes = _classes(source, clause)
        if any(isinstance(one, type) and issubclass(Declined, one) for one in classes):
            return clause
    return None


def _classes(source: Source, clause: ast.ExceptHandler) -> list[Any]:
    if clause.type is None:
        return [BaseException]
    parts = clause.type.elts if isinstance(clause.type, ast.Tuple) else [clause.type]
    return [source.value(one) for one in parts]


def _is_blanket(source: Source, clause: ast.ExceptHandler) -> bool:
    return any(
        isinstance(one, type) and issubclass(FlowError, one)
        for one in _classes(source, clause)
    )


def _is_empty(clause: ast.ExceptHandler) -> bool:
    return all(
        isinstance(one, (ast.Pass, ast.Continue))
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in clause.body
    )


def _questions(
    source: Source, body: list[ast.stmt], seen: set[Any]
) -> Iterator[tuple[Source, ast.Call]]:
    for node in (one for statement in body for one in ast.walk(statement)):
        if not isinstance(node, ast.Call):
            continue
        if source.makes(node, InputRequest):
            if isinstance(source.parent(node), (ast.YieldFrom, ast.Await)):
                yield source, node
            continue
        called = source.value(node.func)
        if inspect.isfunction(called) and called not in seen and is_flow(called):
            seen.add(called)
            inner = source_of(called)
            if inner is not None:
                yield from _questions(inner, inner.node.body, seen)


# ---- what conversations show --------------------------------------------------------

_At: TypeAlias = tuple[str, bool]


@define
class NoDifference:
    """A question whose answer made no difference so far.

    Attributes:
        question: The question, in words.
        where: `file:line` of the yield.
        swallow: The clause that caught a refusal; `None` for a yes and a no.
        transcript: The shortest conversation without a difference.
        count: The number of conversations without a difference.
    """

    question: str
    where: str
    swallow: Swallow | None
    transcript: Transcript
    count: int = 0


class Differences:
    """Records which questions of one handler have answers that make a difference.

    Args:
        function: The handler.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._swallows = swallows_of(function)
        self._same: dict[_At, NoDifference] = {}
        self._differ: set[_At] = set()
        #: Answers that were accepted, by the question's line.
        self._accepted: dict[str, Accepted[Any]] = {}

    def look(self, subject: Subject, trace: EffectTrace) -> Iterator[NoDifference]:
        """Compare a conversation with the same one after changing one answer.

        Yields the refusals that make no difference in this conversation.
        """
        transcript = trace.transcript
        if trace.error is not None:
            return
        answers = {
            one.key: one.answer for each in transcript.rounds for one in each.asked
        }
        for place, traced in enumerate(trace.effects):
            if traced.where is None or traced.key is None or "~" in traced.key:
                continue
            answer = answers.get(traced.key)
            if traced.error is None and isinstance(answer, Accepted):
                self._accepted.setdefault(traced.where, answer)
            if isinstance(traced.error, Refused):
                yield from self._refused(subject, trace, traced, place)
            elif isinstance(traced.effect, Confirm):
                self._decided(subject, trace, traced, answer)

    def _decided(
        self, subject: Subject, trace: EffectTrace, traced: TracedEffect, answer: Any
    ) -> None:
        """Run the conversation again with the opposite of a yes or a no."""
        match answer:
            case Accepted():
                other: Answer = Declined()
            case Declined():
                other = Accepted({})
            case _:
                return
        assert traced.where is not None
        at = (traced.where, False)
        if at not in self._differ:
            again = _with(subject, trace, traced, other)
            is_same = again.in_words == trace.in_words
            self._count(at, None, trace, traced, is_same=is_same)

    def _refused(
        self, subject: Subject, trace: EffectTrace, traced: TracedEffect, place: int
    ) -> Iterator[NoDifference]:
        """Run the conversation again with an acceptance instead of a refusal."""
        assert traced.where is not None
        at = (traced.where, True)
        swallow = self._swallows.get(traced.where)
        steps = _steps(trace.effects[place + 1 :])
        accepted = self._accepted.get(traced.where)
        if isinstance(traced.effect, Confirm):
            accepted = Accepted({})
        is_page = isinstance(traced.question, ElicitUrl)
        if swallow is None or not steps or accepted is None or at in self._differ:
            return
        again = _with(subject, trace, traced, accepted)
        if swallow.is_blanket and swallow.is_empty:
            is_same = bool(steps & _steps(again.effects[place + 1 :]))
        elif swallow.is_unused or (
            isinstance(traced.effect, Confirm) and swallow.is_empty
        ):
            # A page that the user may leave unread has no answer to use.
            is_same = not is_page and again.in_words == trace.in_words
        else:
            return
        self._count(at, swallow, trace, traced, is_same=is_same)
        if at in self._same:
            yield self._same[at]

    def _count(
        self,
        at: _At,
        swallow: Swallow | None,
        trace: EffectTrace,
        traced: TracedEffect,
        *,
        is_same: bool,
    ) -> None:
        if not is_same:
            self._differ.add(at)
            self._same.pop(at, None)
            return
        found = self._same.setdefault(
            at,
            NoDifference(describe(traced.question), at[0], swallow, trace.transcript),
        )
        found.count += 1
        if len(str(trace.transcript)) < len(str(found.transcript)):
            found.transcript = trace.transcript
        found.question = describe(traced.question)

    def without(self) -> Iterator[NoDifference]:
        """Yield the yes-or-no questions whose answers never made a difference."""
        for same in self._same.values():
            if same.swallow is None and same.count >= _ENOUGH:
                yield same


def _with(
    subject: Subject, trace: EffectTrace, traced: TracedEffect, answer: Answer
) -> EffectTrace:
    assert traced.key is not None
    transcript = trace.transcript
    return trace_effects(subject, transcript, _OneOther(transcript, traced.key, answer))


def _steps(traced: list[TracedEffect]) -> set[str | None]:
    return {one.where for one in traced if isinstance(one.effect, Step)}


class _OneOther(RecordedPartner):
    """Replays a transcript, with another answer to one question."""

    def __init__(self, transcript: Transcript, key: str, answer: Answer) -> None:
        super().__init__(transcript)
        self._key = key
        self._other = answer

    def answer(self, question: Question) -> Answer | None:
        known = super().answer(question)
        return self._other if question.key == self._key else known
