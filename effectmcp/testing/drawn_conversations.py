"""Draw whole conversations: what clients send, and the outcome of each request.

Each round is a separate request with a sealed state, as if any server could answer it.
The user accepts, declines, dismisses. The client leaves answers out, sends answers that
do not fit, and adds answers to questions that were not asked. A reply is lost and its
request sent again; a state is used twice, with other answers. A step fails, or its
result is drawn from its annotation. All of it shrinks towards a user who accepts and a
world without failures.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from attrs import field, frozen
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from ..effects.base import Effect, InputRequest
from ..effects.control import FirstOf, TimedOut, Within
from ..effects.local import Now, Random
from ..effects.questions import Accepted, Elicit
from ..effects.steps import Step
from ..engine.answers import Answer
from ..engine.effect_table import EPOCH, KINDS, QUESTIONS, record_value
from ..engine.journal import Journal
from ..engine.rules import RETRY
from ..engine.steps import spec_of
from ..engine.stops import Asked, Done, Failure, Question, Want
from ..errors import (
    ClientFailed,
    Declined,
    Dismissed,
    DivergenceError,
    SchemaError,
    UsageError,
)
from ..schema.arguments import input_of
from .chance import FLOW_ID, Chance
from .conversations import (
    WATCHED,
    Around,
    ConversationBroken,
    RoundResult,
    RunningConversation,
    Way,
    answers_of,
    call_stateful,
    sealed,
)
from .descriptions import describe
from .source import raised_by
from .strategies import answers_for, arguments_of
from .transcripts import FAILED, AskedQuestion, Ending, Round, Transcript
from .values import content_of

if TYPE_CHECKING:
    from .performing import Performer
    from .subjects import Subject

__all__ = [
    "DrawnPartner",
    "Looping",
    "Options",
    "Unsteady",
    "converse",
    "failures_of",
]

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
Strategy: TypeAlias = st.SearchStrategy[Any]


class Looping(Exception):
    """Raised when a handler performs more than drawn outcomes are likely to end.

    Attributes:
        what: The effect that it performed last.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"more than {_MOST_PERFORMED} things were performed, {what} last"
        )


#: Limit of local effects per conversation. Without it, a loop that waits for a step to
#: return a value that is rarely drawn would run for minutes.
_MOST_PERFORMED: Final = 60


class Unsteady(Exception):
    """Raised when a request that is sent twice has two different outcomes.

    Attributes:
        first: Its first outcome.
        second: Its outcome when it was sent again.
        where: `file:line` of the yield.
    """

    def __init__(self, first: str, second: str, where: str | None) -> None:
        self.first = first
        self.second = second
        self.where = where
        super().__init__(f"first {first}, and then {second}, at {where}")


@frozen(kw_only=True)
class Options:
    """Options for drawing conversations.

    Attributes:
        arguments: Strategies for some of the handler's parameters, by name.
        steps: Strategies for the results of steps, by function.
        answers: Strategies for what users fill in, by form as `Elicit` is given it.
            They draw the values that the handler receives.
        edited: The handler as it is after a deploy, somewhere in the middle.
        performer: Performs steps, instead of drawing their results.
        trouble: Whether anything may go wrong.
    """

    arguments: Mapping[str, Strategy] = field(factory=dict)
    steps: Mapping[Callable[..., Any], Strategy] = field(factory=dict)
    answers: Mapping[Any, Strategy] = field(factory=dict)
    edited: Subject | None = None
    performer: Performer | None = None
    trouble: bool = True


# ---- who answers --------------------------------------------------------------------

_ROLL: Final = st.integers(0, 19)
_CODES: Final = st.sampled_from([-32603, -1])
_FRACTIONS: Final = st.sampled_from([0.5, 0.0, 0.999]) | st.floats(
    0, 1, exclude_max=True
)
#: Includes ends of days, months and years.
_TIMES: Final = st.sampled_from(
    [
        EPOCH,
        dt.datetime(2028, 2, 29, 23, 59, 59, tzinfo=dt.UTC),
        dt.datetime(2027, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),
    ]
)
_ERRORS: Final = (OSError("it failed"), RuntimeError("it failed"))
#: What some clients cannot be asked.
_LACKING: Final = st.sampled_from(
    [
        frozenset(
            name
            for name, one in QUESTIONS.items()
            if KINDS[one].needs != KINDS[Elicit].needs
        ),
        frozenset(QUESTIONS),
    ]
)


class DrawnPartner:
    """A client and a world whose answers and outcomes are drawn."""

    def __init__(self, draw: Draw, subject: Subject, options: Options) -> None:
        self.lacks: frozenset[str] = frozenset()
        self._draw = draw
        self._run_async = subject.run_async
        self._options = options
        self._chance = Chance()
        self._performed = 0
        #: Outcomes of this round: they are the same if the round is repeated.
        self._done: dict[str, Done | Failure] = {}
        if options.trouble and draw(_ROLL) == 19:
            required = {one.__name__ for one in subject.feature.requires}
            self.lacks = draw(_LACKING) - required

    def forget(self) -> None:
        """Begin another round."""
        self._done = {}

    def answer(self, question: Question) -> Answer | None:
        """Return the drawn answer to a question; `None` for no answer."""
        roll = self._draw(_ROLL) if self._options.trouble else 0
        if roll < 13:
            return self._accept(question.effect)
        if roll < 15:
            return Declined()
        if roll == 15:
            return Dismissed()
        if roll == 16:
            return ClientFailed(self._draw(_CODES), "the client failed")
        # No answer, or an answer that fits no question.
        return None if roll < 18 else Accepted("nonsense")

    def _accept(self, effect: InputRequest[Any]) -> Answer:
        form = getattr(effect, "form", None)
        for known, values in self._options.answers.items():
            if form is known or form == known:
                return Accepted(content_of(effect, self._draw(values)))
        answer: Answer = self._draw(_accepting(effect))
        return answer

    def perform(self, key: str, want: Want) -> Done | Failure:
        """Return the drawn outcome of a local effect."""
        own = call_stateful(want)
        if own is not None:
            return own
        if key not in self._done:
            self._performed += 1
            if self._performed > _MOST_PERFORMED:
                raise Looping(describe(want.effect))
            self._done[key] = self._performed_by(want) or self._outcome(want.effect)
        return self._done[key]

    def _performed_by(self, want: Want) -> Done | Failure | None:
        """Return the outcome of a step that `check(perform=...)` performs."""
        performer = self._options.performer
        if performer is None or not performer.performs:
            return None
        if self._options.trouble and self._draw(_ROLL) > 18:
            return None  # a performed step may fail, too
        return performer.outcome(want, self._run_async)

    def _outcome(self, effect: Effect[Any]) -> Done | Failure:
        if self._options.trouble and isinstance(effect, Random):
            return Done(self._draw(_FRACTIONS))
        if self._options.trouble and isinstance(effect, Now):
            return Done(self._draw(_TIMES))
        known = self._chance.outcome(effect)
        if known is not None:
            return known
        match effect:
            case Within():
                if self._options.trouble and self._draw(_ROLL) > 14:
                    return Done(TimedOut())
                return self._outcome(effect.effect)
            case FirstOf():
                place = self._draw(st.integers(0, len(effect.effects) - 1))
                won = self._outcome(effect.effects[place])
                return Done((place, won.value)) if isinstance(won, Done) else won
            case Step():
                return self._step(effect)
            case _:
                raise UsageError(f"no test performs {effect!r}")

    def _step(self, step: Step[Any]) -> Done | Failure:
        if self._options.trouble and self._draw(_ROLL) > 17:
            error = self._draw(st.sampled_from(failures_of(step)))
            return Failure(error)
        given = self._options.steps.get(step.fn)
        if given is not None:
            return Done(self._draw(given))
        made = _results(spec_of(step).returns)
        kind = KINDS[Step]
        return Done(
            self._draw(
                made.filter(lambda one: record_value(step, kind, one)[0] not in FAILED)
            )
        )


def failures_of(step: Step[Any]) -> list[Exception]:
    """Return an exception of each class that a step declares or its source raises.

    Two builtin exceptions follow them.
    """
    made: list[Exception] = []
    raised = raised_by(step.fn) if inspect.isfunction(step.fn) else ()
    for class_ in dict.fromkeys([*step.options.raises, *raised]):
        try:
            made.append(class_("it failed"))
        except Exception:
            pass  # it requires other arguments; steps= can return it
    return [*made, *_ERRORS]


@lru_cache(maxsize=1024)
def _results(annotation: Any) -> Strategy:
    """Return a strategy for a step's return annotation; strings if it has none."""
    if annotation in (inspect.Parameter.empty, Any, object):
        return st.text(max_size=8)

    def taking(value: Any) -> None: ...

    taking.__annotations__ = {"value": annotation}
    try:
        takes = input_of(taking)
        drawn = arguments_of(takes)
    except (SchemaError, UsageError):
        # Wider than what a client may send, so draw Python's own values.
        return st.from_type(annotation)
    return drawn.map(lambda given: takes.read(given)["value"])


_KNOWN: Final[dict[int, tuple[object, Strategy]]] = {}


def _accepting(question: InputRequest[Any]) -> Strategy:
    # Forms are few and asked often, and a strategy takes long to make. The key is the
    # form itself, because two classes may share a schema and have different validators.
    of: object = question.spec if isinstance(question, Elicit) else type(question)
    known = _KNOWN.get(id(of))
    if known is None:
        if len(_KNOWN) > 1_000:
            _KNOWN.clear()
        known = _KNOWN[id(of)] = of, answers_for(question)
    return known[1]


# ---- one conversation ---------------------------------------------------------------


#: How a server continues with an edited handler: it salvages entries that fit.
_AFTER_DEPLOY: Final = Way(
    "after a deploy", attrs.evolve(RETRY, development=True), carry=sealed
)


def converse(
    draw: Draw, subject: Subject, options: Options, *, around: Around = nullcontext
) -> Transcript:
    """Draw a conversation, and run it.

    Raises:
        ConversationBroken: If the conversation cannot be completed. Its cause has the reason: the
            handler does not repeat itself (`DivergenceError`, `Unsteady`), or a reason
            that `run_conversation` documents.
    """
    arguments = draw(arguments_of(subject.feature.handler.takes, options.arguments))
    if options.trouble and draw(_ROLL) < 4:
        # Some conversations run to the end without trouble, however long.
        options = attrs.evolve(options, trouble=False)
    partner = DrawnPartner(draw, subject, options)
    conversation = RunningConversation(
        subject, arguments, partner, WATCHED, flow_id=FLOW_ID, around=around
    )
    deploy = None if options.edited is None else draw(st.integers(0, 9))
    rounds: list[Round] = []
    journal = Journal()
    try:
        asked = _early(draw, conversation, options)
        while True:
            if options.edited is not None and len(rounds) == deploy:
                conversation = _deployed(conversation, options.edited, around)
            played, asked = _round(draw, conversation, journal, asked, options)
            if not isinstance(played.stop, Asked):
                ending = conversation.ending(played.stop)
                rounds.append(Round(played.performed, (), played.journal))
                return conversation.transcript(rounds, ending)
            rounds.append(Round(played.performed, asked, played.journal))
            assert played.journal is not None
            journal = played.journal
    except (HypothesisException, Looping):
        raise  # a draw that was abandoned
    except Exception as exc:
        if isinstance(exc, DivergenceError) and conversation.way is _AFTER_DEPLOY:
            return conversation.transcript(rounds, Ending("stopped", str(exc)))
        raise ConversationBroken(conversation.so_far(rounds, exc), exc) from exc


def _early(
    draw: Draw, conversation: RunningConversation, options: Options
) -> tuple[AskedQuestion, ...]:
    """Let some clients answer with the call itself, before they are asked."""
    if not options.trouble or draw(_ROLL) < 19:
        return ()
    stop = conversation.round(Journal(), {}).stop
    if not isinstance(stop, Asked):
        return ()
    early = conversation.ask(stop)
    conversation.begin_early(early)
    return early


def _deployed(
    conversation: RunningConversation, edited: Subject, around: Around
) -> RunningConversation:
    deployed = RunningConversation(
        edited,
        conversation.arguments,
        conversation.partner,
        _AFTER_DEPLOY,
        flow_id=conversation.flow_id,
        around=around,
    )
    deployed.begin_early(conversation.early)
    return deployed


def _round(
    draw: Draw,
    conversation: RunningConversation,
    journal: Journal,
    asked: tuple[AskedQuestion, ...],
    options: Options,
) -> tuple[RoundResult, tuple[AskedQuestion, ...]]:
    """Run one request, which may be repeated or get other answers."""
    partner = conversation.partner
    assert isinstance(partner, DrawnPartner)
    answers = answers_of(asked)
    roll = draw(_ROLL) if options.trouble else 0
    partner.forget()
    if roll == 17:
        answers["nobody-asked"] = Accepted({"value": "nonsense"})
    played = conversation.round(journal, answers)
    if roll == 18:
        # The reply was lost, and the client sends its request again.
        again = conversation.round(journal, answers)
        if (again.journal, _came(again)) != (played.journal, _came(played)):
            where = _where(played) or _where(again)
            raise Unsteady(_came(played), _came(again), where)
    if not isinstance(played.stop, Asked):
        return played, ()
    if roll == 19 and played.journal is not None:
        # The user goes back, and gives other answers.
        partner.forget()
        conversation.round(played.journal, answers_of(conversation.ask(played.stop)))
    return played, conversation.ask(played.stop)


def _came(played: RoundResult) -> str:
    stop = played.stop
    if isinstance(stop, Asked):
        return f"asked {', '.join(repr(one.effect) for one in stop.questions)}"
    return repr(getattr(stop, "error", None) or getattr(stop, "value", None))


def _where(played: RoundResult) -> str | None:
    stop = played.stop
    return (
        stop.questions[0].where if isinstance(stop, Asked) and stop.questions else None
    )
