"""Judge how a conversation ended: which errors are faults of the handler.

DivergenceError, NondeterminismError, Unsteady    it does not repeat itself
HandlerNotEnded                                            it cannot be ended
StateSizeError, OutputError, UsageError           the engine refuses what it does
TooManyRounds                                     it asks too often
ToolError, ProtocolError, FlowError, Signal       its response to the client: no fault
an exception of a step                            passed on: no fault
all others                                        a crash
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..canonical import dumps
from ..effects.steps import StepOptions
from ..engine.failures import failure_from
from ..errors import (
    Declined,
    Dismissed,
    DivergenceError,
    FlowError,
    NondeterminismError,
    OutputError,
    ProtocolError,
    Signal,
    StateSizeError,
    ToolError,
    TooManyRounds,
    UsageError,
)
from .conversations import HandlerNotEnded, Unscripted
from .descriptions import place_of
from .drawn_conversations import Unsteady
from .findings import BareFinding
from .transcripts import FAILED, AskedQuestion, Transcript

if TYPE_CHECKING:
    from .leaked_state import StateChange
    from .subjects import Subject

__all__ = [
    "ADDRESS",
    "NO_END",
    "drifts",
    "except_at",
    "found_in",
    "last_asked",
    "loop_of",
    "said_of",
    "was_wasteful",
]

#: Advice if the message of a question has the address of an object.
ADDRESS: Final = (
    "A string contains the address of an object, which differs each time: run a flow with"
    " `yield from` before its result is used, and give a class a __repr__."
)


def found_in(
    error: BaseException,
    transcript: Transcript,
    *,
    subject: Subject,
    changed: Mapping[str, StateChange],
    returned_at: str | None,
) -> BareFinding | None:
    """Return the fault that an error shows; `None` if it is not the handler's.

    Args:
        error: What the handler raised, or why the conversation broke off.
        transcript: The conversation.
        subject: The handler.
        changed: Defaults and globals that changed meanwhile.
        returned_at: `file:line` at which the handler returned.
    """
    where = place_of(error)
    match error:
        case DivergenceError():
            return drifts(
                str(error.report), error.report.where or last_asked(transcript), changed
            )
        case NondeterminismError():
            return drifts(error.problem, error.where or last_asked(transcript), changed)
        case Unsteady():
            return drifts(str(error), error.where or last_asked(transcript), changed)
        case Unscripted():
            return None  # a saved conversation, with an earlier version of the handler
        case HandlerNotEnded():
            return BareFinding(
                "swallows",
                "it continues to yield while it is being ended, so a round of it never"
                " ends",
                except_at(error.where) or error.where,
                "Catch Exception, or raise again: what ends a generator is a"
                " BaseException.",
            )
        case StateSizeError():
            return BareFinding("size", str(error), _largest(error, transcript))
        case OutputError():
            return BareFinding(
                "result",
                f"its result is not what it promised: {'; '.join(error.problems)}",
                returned_at or subject.where,
            )
        case UsageError():
            return BareFinding(
                "misuse", error.problem, error.where or where or returned_at
            )
        case TooManyRounds():
            return None if was_wasteful(transcript) else _rounds(transcript, where)
        case ToolError() | ProtocolError() | FlowError() | Signal():
            return None
        case _ if _is_of_a_step(error, transcript):
            return None  # the handler lets it pass
        case _:
            return BareFinding(
                "crash",
                f"it raises {type(error).__name__}: {error}",
                where or subject.where,
                "Clients learn only that it failed. Raise ToolError to"
                f" tell them, or handle it.{_never(transcript)}",
            )


def drifts(
    problem: str,
    where: str | None,
    changed: Mapping[str, StateChange],
    advice: str = "",
) -> BareFinding:
    """Return the fault of a handler that does not repeat itself."""
    if " at 0x" in problem:
        advice = ADDRESS
    if changed:
        advice = f"{advice} Meanwhile {said_of(changed)}.".lstrip()
    return BareFinding(
        "drifts",
        f"it does something else when it is replayed: {problem}",
        where,
        advice,
    )


def said_of(changed: Mapping[str, StateChange]) -> str:
    """Return the changes in words."""
    return "; ".join(one.what for one in changed.values())


# ---- rounds -------------------------------------------------------------------------

#: Number of rounds with the same question that count as a loop.
_LOOP: Final = 5


def _rounds(transcript: Transcript, where: str | None) -> BareFinding:
    where = where or last_asked(transcript)
    problem = "it asks in more rounds than clients tolerate"
    advice = "Ask several questions at once with Gather(...)."
    asked = _repeated(transcript)
    if asked:
        problem = f"{problem}: it asks {asked[-1].what} repeatedly"
        where = asked[-1].where or where
        found = loop_of(transcript)
        if found is not None:
            return found
        advice = (
            "Say in the form what fits (a validator is shown to the user), or end after"
            " a few tries. If each turn asks for one more item, ask for a list."
        )
    return BareFinding("rounds", problem, where, advice)


def loop_of(transcript: Transcript) -> BareFinding | None:
    """Return the fault of asking the same question as long as the user refuses."""
    asked = _repeated(transcript)
    if not asked or not all(
        isinstance(one.answer, (Declined, Dismissed)) for one in asked
    ):
        return None
    return BareFinding(
        "loops",
        "it asks the same question again for as long as the user refuses:"
        f" {asked[0].what}",
        asked[0].where,
        f"Accept a refusal as an answer: return, or raise ToolError. {NO_END}",
        transcript,
    )


#: Advice if a loop ends only when the user gives in, or a step succeeds.
NO_END: Final = "A loop needs an end, such as `for _ in range(3)` and then a ToolError."


def _repeated(transcript: Transcript) -> list[AskedQuestion]:
    """Return the final rounds that ask the same question, in the same words."""
    last: list[AskedQuestion] = []
    for each in reversed(transcript.rounds):
        if not each.asked:
            continue
        (one, *others) = each.asked
        if others or (last and (one.where, one.what) != (last[0].where, last[0].what)):
            break
        last.append(one)
    return last if len(last) >= _LOOP else []


def last_asked(transcript: Transcript) -> str | None:
    """Return `file:line` of the last question."""
    asked = [one for each in transcript.rounds for one in each.asked]
    return asked[-1].where if asked else None


def was_wasteful(transcript: Transcript) -> bool:
    """Whether some of the rounds were the client's fault."""
    asked = [one for each in transcript.rounds for one in each.asked]
    return any(one.answer is None or "~" in one.key for one in asked)


# ---- steps --------------------------------------------------------------------------


def _largest(error: StateSizeError, transcript: Transcript) -> str | None:
    """Return `file:line` of the step with most of a state, or of the last question."""
    if error.largest:
        place, size = error.largest[0]
        for each in transcript.rounds:
            for one in each.performed:
                if one.key.partition(":")[2] == place and 2 * size > error.limit:
                    return one.where
    return last_asked(transcript)


def _never(transcript: Transcript) -> str:
    if any(each.performed for each in transcript.rounds):
        return " If a step never gives that, pass its results in steps=."
    return ""


def _is_of_a_step(error: BaseException, transcript: Transcript) -> bool:
    for each in transcript.rounds:
        for one in each.performed:
            if one.tag in FAILED:
                raised = failure_from(dumps(one.payload), StepOptions())
                if str(error) in (str(raised), getattr(raised, "message", None)):
                    return True
    return False


@lru_cache(64)
def except_at(where: str | None) -> str | None:
    """Return `file:line` of an `except` around a line that catches everything."""
    file, _, line = (where or "").rpartition(":")
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return None
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            one.lineno <= int(line) <= (one.end_lineno or one.lineno)
            for one in node.body
        ):
            for handler in node.handlers:
                if handler.type is None or "BaseException" in ast.dump(handler.type):
                    found = f"{file}:{handler.lineno}"
    return found
