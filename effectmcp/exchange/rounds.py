"""A flow in one request: one of its rounds, or all of them if it asks live.

`begin` starts a flow whose answers arrive by retry, and `resume` resumes it from the
state that a client sent back: a token in, a token out. Both return a `Round`, which is
driven like a `Run`. When it asks, `token` seals what the next round needs. This process
keeps nothing of a round that has ended.

`FlowCall` drives a round for a request: it has the effects performed, sends what the handler
tells its client, and asks live where the revision has it so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

import attrs
from attrs import define, field

from ..canonical import JSON
from ..effects.base import Effect
from ..effects.control import Detach, FirstOf, Within
from ..effects.local import (
    LOG_LEVELS,
    Caller,
    Log,
    Progress,
    Status,
)
from ..effects.steps import Step
from ..engine.answers import Answer
from ..engine.journal import Journal
from ..engine.replay import Run
from ..engine.rules import RETRY, Rules
from ..engine.steps import step_name
from ..engine.stops import (
    Asked,
    Done,
    Failure,
    Perform,
    Question,
    Raised,
    Returned,
    Stop,
    Unread,
    Want,
)
from ..errors import (
    Cancelled,
    DivergenceError,
    KeysError,
    LedgerError,
    ProtocolError,
    StateError,
    UsageError,
)
from ..logs import logger_for
from ..protocol.jsonrpc import Id, encode, notification
from ..protocol.legacy import question_message, read_reply
from ..protocol.modern import read_answers, read_result
from ..schema.written import written
from ..server.events import (
    QuestionsAnswered,
    QuestionsAsked,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    StepBegan,
    StepPerformed,
)
from ..server.features import Feature, Tool
from ..state.codec import Claims
from ..state.seal import BoundCall, whole_seconds
from .calls import Handle, Interim, checked, contained
from .client_tasks import follow, with_task
from .commands import Ask, Command, Notify, Overdue, PerformAll
from .context import Context, Legacy, caller_of, trace_of
from .ledger import take, use_of
from .sessions import Dropped
from .tasks import can_follow, create_task, new_row
from .telling import tell, with_own_context

if TYPE_CHECKING:
    from ..protocol.meta import Meta
    from ..state.seal import Sealer
    from .ledger import Ledger
    from .task_rows import TaskRow
    from .telling import Watched

__all__ = ["FlowCall", "Round", "begin", "resume"]

logger = logger_for("effectmcp.server")

_NO_ANSWERS: Final[Mapping[str, Answer]] = {}
_NO_KWARGS: Final[Mapping[str, Any]] = {}


@attrs.define(eq=False)
class Round:
    """One round: a `Run`, and the values that seal its journal.

    Attributes:
        run: The run. Close it if the round ends without a token, for example when the
            client has disconnected.
        stop: The latest stop of the run.
        claims: What the round resumed from.
        is_counted: Whether a ledger counts the use of the next state.
        has_line: Whether the flow has its one line in that ledger.
    """

    run: Run
    stop: Stop
    claims: Claims
    _call: BoundCall
    _sealer: Sealer | None
    is_counted: bool = False
    has_line: bool = False

    @property
    def flow_id(self) -> bytes:
        """The flow's id, the same in every round."""
        return self.claims.flow_id

    @property
    def first_version(self) -> str | None:
        """The handler's declared version when the flow started."""
        return self.claims.version

    @property
    def first_trace(self) -> str | None:
        """The trace context of the request that started the flow."""
        return self.claims.trace

    def performed(self, outcomes: Mapping[str, Done | Failure]) -> Stop:
        """Resume the run with one outcome for each want; return its next stop.

        Raises:
            DivergenceError: If the handler changed so that the flow cannot resume.
        """
        self.stop = self.run.performed(outcomes)
        return self.stop

    def answered(self, answers: Mapping[str, Answer]) -> Stop:
        """Resume a live run with the client's answers; return its next stop.

        Raises:
            DivergenceError: If the handler changed so that the flow cannot resume.
        """
        self.stop = self.run.answered(answers)
        return self.stop

    def cancel(self) -> Stop:
        """End the flow with `Cancelled`; wait for running steps."""
        self.stop = self.run.cancel()
        return self.stop

    def token(self, *, now: float) -> str:
        """End the round; return the token that the next one resumes from.

        Args:
            now: Seconds since 1970.

        Raises:
            UsageError: If the round does not ask, so that no other round follows.
            KeysError: If the server has no state keys.
            StateSizeError: If the state is larger than clients carry.
        """
        if not isinstance(self.stop, Asked):
            raise UsageError(
                f"this round stopped with {type(self.stop).__name__}, and only a round"
                " that stopped with Asked has a next round to seal for"
            )
        sealer = self._sealer
        if sealer is None:
            raise KeysError(
                "a handler asks, and there are no keys to seal its state with. Make one"
                " with `effectmcp keygen` and give it to every replica, as"
                " EFFECTMCP_STATE_KEYS or Server(keys=Keys(...))"
            )
        claims = self.claims.after(
            self.run.suspend(), is_counted=self.is_counted, has_line=self.has_line
        )
        return sealer.seal(claims, self._call, now=now)


def begin(
    handler: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = _NO_KWARGS,
    *,
    call: BoundCall,
    sealer: Sealer | None,
    flow_id: bytes,
    now: float,
    answers: Mapping[str, Answer] = _NO_ANSWERS,
    rules: Rules = RETRY,
    version: str | None = None,
    trace: str | None = None,
    **options: Any,
) -> Round:
    """Start a flow; return its first round.

    Args:
        handler: The handler.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        call: The request, which every later round must match.
        sealer: The server's sealer; without one, the handler may not ask.
        flow_id: 16 random bytes, drawn for this flow.
        now: Seconds since 1970.
        answers: Answers that the request contains already, by key.
        rules: Limits of this server or tool.
        version: The handler's declared version.
        trace: The request's trace context.
        **options: Options of `Run`: `supports=`, `emit=`, `resolve=`, `name=`.
    """
    claims = Claims(
        flow_id=flow_id,
        started=whole_seconds(now),
        journal=Journal(),
        version=version,
        trace=trace,
    )
    return _round(handler, args, kwargs, claims, call, sealer, answers, rules, options)


def resume(
    handler: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = _NO_KWARGS,
    *,
    token: str,
    call: BoundCall,
    sealer: Sealer,
    now: float,
    answers: Mapping[str, Answer] = _NO_ANSWERS,
    rules: Rules = RETRY,
    **options: Any,
) -> Round:
    """Resume a flow from the `requestState` that the client sent back.

    Raises:
        StateError: If this request may not use that state.
        DivergenceError: If the handler changed so that the flow cannot resume.
    """
    claims = sealer.open(token, call, now=now)
    return _round(handler, args, kwargs, claims, call, sealer, answers, rules, options)


def _round(
    handler: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    claims: Claims,
    call: BoundCall,
    sealer: Sealer | None,
    answers: Mapping[str, Answer],
    rules: Rules,
    options: Mapping[str, Any],
) -> Round:
    if sealer is not None and sealer.keys.readable:
        # A private step is refused before it is performed. Afterwards its result would
        # have to travel in a readable state (docs/internals/state.md#readable-rings).
        rules = attrs.evolve(rules, private_steps=False)
    run = Run(
        handler,
        args,
        kwargs,
        flow_id=claims.flow_id,
        journal=claims.journal,
        rules=rules,
        version=claims.version,
        **options,
    )
    return Round(run, run.start(answers), claims, call, sealer)


# ---- for a request -------------------------------------------------------------------


#: Seconds for the cleanup of a call that was cancelled or timed out
#: (docs/internals/replay.md#l4).
_CLEANUP: Final = 30.0


def _round_of(claims: Claims) -> int:
    """Return the number of the round that resumes from some claims."""
    return claims.journal.rounds + 1


def _unfit(questions: tuple[Question, ...]) -> int:
    return sum(bool(one.problems) for one in questions)


def _said(reply: Mapping[str, JSON]) -> JSON:
    return reply.get("result", reply.get("error"))


def _may_fail(want: Want) -> bool:
    """Return whether a want can end with a failure. A cancel waits for such wants."""
    return isinstance(want.effect, (Step, Within, FirstOf))


@define(eq=False)
class FlowCall:
    """A flow, for one request: one of its rounds, or all rounds if it asks live."""

    _context: Context
    _feature: Feature
    _target: str
    #: The arguments that the client sent, and will send again: a state is bound to these.
    _sent: JSON
    #: The arguments of the handler; an interceptor may change them.
    arguments: JSON
    _seconds: float | None
    _deadline: float | None = None
    _heard: list[Effect[Any]] = field(factory=list)
    _progress: _Progress | None = None
    #: The latest time that the clock of the flow may show.
    _latest: float | None = None
    #: The error to raise after the cleanup of a flow that was ended early.
    _end: Overdue | Dropped | None = None
    #: Whether the user has answered a question with `once=True` in this request.
    _is_consented: bool = False
    #: A name for this execution of the request, for the ledger.
    _name: str = ""
    #: The request, as a state is bound to it, and its state, unless it asks live.
    _call: BoundCall = field(init=False)
    _token: str | None = field(init=False)
    _answers: Mapping[str, Answer] = _NO_ANSWERS
    #: What the request resumes from, once it is opened.
    _opened: Claims | None = None

    @property
    def is_resumed(self) -> bool:
        """Whether the request resumes a flow, once it is opened."""
        return self._token is not None

    def run(self, kwargs: Mapping[str, Any]) -> Generator[Command, Any, Any]:
        """Run the flow; return its value, or an `Interim` if it asks."""
        dialect = self._context.dialect
        if self._context.running is not None:
            self._context.running.is_flow = dialect.is_live
        claims = self.open() if self._opened is None else self._opened
        if self._token is not None and (claims.is_counted or self._feature.single_use):
            yield from self._count(claims)
        round_ = self._open(kwargs, claims)
        round_.has_line = claims.has_line
        outcome: Any = "dropped"
        asked, again, size, error = 0, 0, 0, None
        try:
            stop = yield from self._advance(round_)
            while isinstance(stop, Asked) and isinstance(dialect, Legacy):
                if self._end is None:
                    asked += len(stop.questions)
                    again += _unfit(stop.questions)
                    yield from self._ask(round_, stop, dialect)
                else:
                    round_.cancel()  # there is no time to ask
                stop = yield from self._advance(round_)
            if self._end is not None:
                self._check_cleanup(stop)
                raise self._end
            match stop:
                case Asked(questions):
                    round_.is_counted = bool(self._context.taken)
                    for one in questions:
                        if one.effect.once:
                            self._check_ledger()
                            round_.is_counted = True
                    token = round_.token(now=self._context.clock())
                    outcome, asked, size = "asked", len(questions), len(token)
                    event = None
                    if self._context.watched is not None:
                        again = _unfit(questions)
                        # An interceptor may still keep them from being sent.
                        event = (
                            self._asked_event(round_, questions) if questions else None
                        )
                    return Interim(questions, token, event)
                case Perform(wants):
                    (want,) = wants  # a `Detach`: `_advance` performs all others
                    row = yield from self._detach(round_, want.effect)
                    outcome = "detached"
                    return Handle(row)
                case Returned(value):
                    outcome = "returned"
                    return checked(value, self._feature.handler)
                case Raised(error_):
                    raise contained(error_, self._feature.handler.name)
                case _:
                    assert_never(stop)
        except Exception as exc:
            outcome, error = "raised", exc
            if isinstance(exc, (Overdue, DivergenceError)):
                self._leave()  # the flow did not end, and may resume
            raise
        finally:
            if outcome != "asked":  # a round that asks is closed by `token`
                # However the round ended, even if the client has disconnected, all of
                # its generators are closed.
                round_.run.close()
            watched = self._context.watched
            if watched is not None:
                tell(
                    self._context.app,
                    RoundEnded(
                        number=watched.number,
                        flow_id=round_.flow_id.hex(),
                        outcome=outcome,
                        round=_round_of(round_.claims),
                        asked=asked,
                        asked_again=again,
                        state_size=size,
                        error=error,
                        journal=None
                        if outcome == "dropped" or round_.run.is_over_limit
                        else round_.run.journal,
                    ),
                )

    def open(self) -> Claims:
        """Return what the request resumes from: the claims of its state, or of a new flow.

        Raises:
            StateError: If this request may not use that state.
        """
        context, sealer = self._context, self._context.app.sealer
        is_live = context.dialect.is_live
        token = None if is_live else context.request.params.get("requestState")
        self._token = token
        if self._feature.single_use and not is_live:
            self._check_ledger()
        self._call = BoundCall(
            method=context.request.method,
            target=self._target,
            arguments=self._sent,
            principal=context.peer.principal,
        )
        if token is None:
            if not is_live:
                self._answers = read_answers(context.request.params)
            self._opened = Claims(
                flow_id=context.entropy(16),
                started=whole_seconds(context.clock()),
                journal=Journal(),
                version=self._feature.version,
                trace=trace_of(context),
            )
            return self._opened
        self._answers = read_answers(context.request.params)
        try:
            if sealer is None:
                # This server has no keys, so it sealed none.
                raise StateError("forged")
            self._opened = sealer.open(token, self._call, now=context.clock())
        except StateError as exc:
            self._tell_refusal(exc)
            raise
        return self._opened

    def _open(self, kwargs: Mapping[str, Any], claims: Claims) -> Round:
        context, feature = self._context, self._feature
        app = context.app
        is_live = context.dialect.is_live
        rules = app.rules[isinstance(feature, Tool), is_live]
        if isinstance(feature, Tool) and (feature.task or feature.single_use):
            rules = feature.rules_of(rules)
        watched = context.watched
        try:
            # The flow runs in a copy of the context in which it is opened.
            given = (
                feature.handler.function,
                (),
                kwargs,
                claims,
                self._call,
                # A flow that asks live is never sealed.
                None if is_live else app.sealer,
                self._answers,
                rules,
                {
                    "supports": partial(
                        context.dialect.can_answer, context.meta.capabilities
                    ),
                    "emit": self._heard.append,
                    "read": read_result,
                    "clock": self._clock,
                    "consented": self._consent,
                    "name": feature.handler.name,
                },
            )
            if watched is None:
                round_ = _round(*given)
            else:
                round_ = watched.variables.run(_round, *given)
        except DivergenceError as exc:
            self._tell_refusal(exc)
            self._leave()
            raise
        if watched is not None:
            tell(
                app,
                RoundBegan(
                    number=watched.number,
                    method=context.request.method,
                    target=self._target,
                    arguments=self.arguments,
                    capabilities=context.meta.capabilities,
                    flow_id=round_.flow_id.hex(),
                    trace=context.meta.trace,
                    first_trace=round_.first_trace,
                    round=_round_of(claims),
                    is_first=self._token is None,
                ),
            )
            # A first request may have early answers, to questions that it will ask.
            is_early = self._token is None and rules.early_answers
            out = self._answers if is_early else claims.journal.asked
            self._tell_answers(
                round_,
                {
                    key: one.value
                    for key, one in self._answers.items()
                    if key in out and isinstance(one, Unread)
                },
            )
        return round_

    # ---- single use -----------------------------------------------------------------

    def _count(
        self, claims: Claims, *, is_consent: bool = False
    ) -> Generator[Command, Any, None]:
        """Have the ledger count this request; return when it may run.

        Args:
            claims: Its state.
            is_consent: Whether it has an answer to a question with `once=True`.

        Raises:
            Answered: If the same request has been answered before.
            StateError: If another request has used the state.
        """
        context = self._context
        ledger, sealer = self._check_ledger(), context.app.sealer
        assert self._token is not None  # a flow is counted from its first state on
        assert sealer is not None  # it has opened that
        self._name = self._name or context.entropy(8).hex()
        use = use_of(
            context,
            claims,
            self._token,
            sealer,
            by=self._name,
            by_round=self._feature.single_use,
            is_consent=is_consent,
        )
        try:
            yield from take(context, ledger, use, self._seconds)
        except StateError as exc:
            self._tell_refusal(exc)
            raise
        except ProtocolError:
            # Nothing was performed, so the state that was taken before is free again.
            self._leave()
            raise

    def _consent(self) -> None:
        self._is_consented = True

    def _check_ledger(self) -> Ledger:
        ledger = self._context.app.ledger
        if ledger is None:
            raise LedgerError(self._feature.handler.name)
        return ledger

    def _leave(self) -> None:
        """Note that the request was cut off: the same one may run again."""
        ledger, taken = self._context.app.ledger, self._context.taken
        if ledger is not None:
            for one in taken:
                ledger.leave(one)
        taken.clear()

    def _tell_refusal(self, error: StateError | DivergenceError) -> None:
        watched = self._context.watched
        if watched is None:
            return
        tell(
            self._context.app,
            RoundRefused(
                number=watched.number,
                method=self._context.request.method,
                target=self._target,
                principal=self._context.peer.principal,
                error=error,
            ),
        )

    def _asked_event(
        self, round_: Round, questions: tuple[Question, ...]
    ) -> QuestionsAsked:
        return QuestionsAsked(
            flow_id=round_.flow_id.hex(),
            method=self._context.request.method,
            target=self._target,
            principal=self._context.peer.principal,
            task=None,
            questions=questions,
        )

    def _tell_answers(self, round_: Round, answers: Mapping[str, JSON]) -> None:
        if not answers:
            return
        tell(
            self._context.app,
            QuestionsAnswered(
                flow_id=round_.flow_id.hex(),
                method=self._context.request.method,
                target=self._target,
                principal=self._context.peer.principal,
                task=None,
                answers=answers,
            ),
        )

    # ---- becoming a task ------------------------------------------------------------

    def _detach(
        self, round_: Round, effect: Effect[Any]
    ) -> Generator[Command, Any, TaskRow]:
        """Make the flow a task, which begins with the outcome of its `Detach`."""
        assert isinstance(effect, Detach)
        assert isinstance(self._feature, Tool)
        row = new_row(
            self._context,
            self._feature,
            self.arguments,
            round_.flow_id,
            caller_of(self._context, round_.flow_id),
            journal=round_.run.suspend(),
            is_whole=False,
            detach=effect,
            version=round_.first_version,
            trace=round_.first_trace,
        )
        return (yield from create_task(self._context, row))

    def _advance(self, round_: Round) -> Generator[Command, Any, Stop]:
        stop = round_.stop
        if self._end is None and self._seconds is not None:
            self._deadline = self._context.clock() + self._seconds
        while True:
            if self._token is not None and self._is_consented:
                # Now, before anything is performed after it.
                self._is_consented = False
                if not round_.has_line:
                    yield from self._count(round_.claims, is_consent=True)
                    round_.has_line = True
            if self._heard:
                yield from self._flush()
            if not isinstance(stop, Perform):
                break
            outcomes: dict[str, Done | Failure] = {}
            wants = []
            for want in stop.wants:
                if isinstance(want.effect, Caller):
                    outcomes[want.key] = Done(caller_of(self._context, round_.flow_id))
                elif isinstance(want.effect, Detach) and can_follow(self._context):
                    return stop
                else:
                    wants.append(want)
            if wants:
                began = self._context.clock()
                if self._context.watched is not None:
                    wants = [with_own_context(want) for want in wants]
                    self._tell_begun(wants, round_, self._context.watched)
                round_.run.begin(*[want.key for want in wants if _may_fail(want)])
                outcomes |= yield from self._perform(round_, wants)
                if self._context.watched is not None:
                    self._tell_steps(wants, outcomes, round_, began)
            self._look(round_)
            if isinstance(round_.stop, Perform):
                round_.performed(outcomes)
            stop = round_.stop
        for report in round_.run.salvaged:
            logger.warning("%s: %s", self._target, report)
            if self._context.watched is not None:
                event = Salvaged(flow_id=round_.flow_id.hex(), report=report)
                tell(self._context.app, event)
        return stop

    def _ask(
        self, round_: Round, asked: Asked, dialect: Legacy
    ) -> Generator[Command, Any, None]:
        """Ask live: send the questions side by side, then resume with the answers."""
        session, running = self._context.peer.session, self._context.running
        # Without a session, the dialect refuses every question: none comes this far.
        assert session is not None
        assert running is not None

        capabilities = self._context.meta.capabilities

        def message_of(question: Question) -> Callable[[Id], Mapping[str, JSON]]:
            known_by = f"{round_.flow_id.hex()}-{question.key}"

            def message(id_: Id) -> Mapping[str, JSON]:
                made = question_message(question, dialect.revision, id_, known_by)
                # The reply to a question in a race decides it, so it must be the answer.
                is_plain = question.race is not None or dialect.tasks is None
                return made if is_plain else with_task(made, capabilities)

            return message

        if self._context.watched is not None:
            tell(self._context.app, self._asked_event(round_, asked.questions))
        questions = [(message_of(one), one.race) for one in asked.questions]
        asking = session.ask(running, questions, until=asked.due)
        try:
            yield Ask(asking)
        finally:
            session.asked(running)
        running.is_cancelled |= asking.is_gone
        replies = yield from follow(
            self._context,
            session,
            running,
            asking.messages,
            asking.replies,
            asked.due,
        )
        is_over = self._look(round_)
        # Cancel the questions without an answer: the call was cancelled, or a time was
        # up. Questions that are still needed will be asked again.
        for id_ in asking.messages.keys() - asking.replies.keys():
            yield Notify(notification("notifications/cancelled", {"requestId": id_}))
        if is_over:
            return
        pairs = list(zip(asked.questions, asking.messages, strict=True))
        answers = {
            question.key: read_reply(question.effect, replies[id_])
            for question, id_ in pairs
            if id_ in replies
        }
        if self._context.watched is not None:
            self._tell_answers(
                round_,
                {
                    question.key: _said(replies[id_])
                    for question, id_ in pairs
                    if id_ in replies
                },
            )
        if answers:
            # They came before the wait ended, so they do not lose to the clock that ended
            # it (docs/internals/replay.md#v3).
            self._latest = None if asked.due is None else math.nextafter(asked.due, 0.0)
            round_.answered(answers)
            self._latest = None
        stop = round_.stop
        if isinstance(stop, Asked) and (not answers or self._is_due(stop)):
            round_.answered({})

    def _clock(self) -> float:
        now = self._context.clock()
        return now if self._latest is None else min(now, self._latest)

    def _is_due(self, stop: Asked) -> bool:
        return stop.due is not None and stop.due <= self._context.clock()

    def _perform(
        self, round_: Round, wants: list[Want]
    ) -> Generator[Command, Any, dict[str, Done | Failure]]:
        try:
            outcomes: dict[str, Done | Failure]
            outcomes = yield PerformAll(tuple(wants), self._deadline)
        except Overdue as exc:
            if not self._context.dialect.is_live or self._end is not None:
                raise
            # A live flow cannot be resumed later, so it ends here; it may still perform
            # its cleanup.
            self._ends(exc)
            error = TimeoutError(f"{self._target} took too long")
            outcomes = {want.key: Failure(error) for want in wants if _may_fail(want)}
            if len(outcomes) < len(wants):
                # A Sleep cannot fail: it ends when its flow is cancelled.
                round_.cancel()
        return outcomes

    def _look(self, round_: Round) -> bool:
        """End a live flow whose request was cancelled; return whether it was ended now.

        If answers come by retry, the client may still come back. Such a flow is only
        suspended, when the driver closes this generator (docs/internals/replay.md#l4).
        """
        running = self._context.running
        is_wanted = running is None or not running.is_cancelled
        if is_wanted or not self._context.dialect.is_live or self._end is not None:
            return False
        logger.debug("%s was cancelled", self._target)
        self._ends(Dropped())
        round_.cancel()
        return True

    def _check_cleanup(self, stop: Stop) -> None:
        """Log an error that cleanup raised: the client gets no response that has it."""
        # When the time was up, what the flow waited for failed with a TimeoutError.
        is_late = isinstance(self._end, Overdue)
        expected = (Cancelled, TimeoutError) if is_late else Cancelled
        if not isinstance(stop, Raised) or isinstance(stop.error, expected):
            return
        logger.error("%s failed as it was ended", self._target, exc_info=stop.error)

    def _ends(self, end: Overdue | Dropped) -> None:
        self._end = end
        self._deadline = self._context.clock() + _CLEANUP

    def _tell_begun(self, wants: list[Want], round_: Round, watched: Watched) -> None:
        for want in wants:
            if isinstance(want.effect, Step):
                tell(
                    self._context.app,
                    StepBegan(
                        flow_id=round_.flow_id.hex(),
                        key=want.key,
                        name=step_name(want.effect),
                        number=watched.number,
                        task=None,
                        context=want.context,
                    ),
                )

    def _tell_steps(
        self,
        wants: list[Want],
        outcomes: Mapping[str, Done | Failure],
        round_: Round,
        began: float,
    ) -> None:
        seconds, watched = self._context.clock() - began, self._context.watched
        for want in wants:
            if isinstance(want.effect, Step):
                outcome = outcomes[want.key]
                tell(
                    self._context.app,
                    StepPerformed(
                        flow_id=round_.flow_id.hex(),
                        key=want.key,
                        name=step_name(want.effect),
                        seconds=seconds,
                        number=None if watched is None else watched.number,
                        error=outcome.error if isinstance(outcome, Failure) else None,
                    ),
                )

    def _flush(self) -> Generator[Command, Any, None]:
        if self._progress is None:
            self._progress = _Progress(self._context.meta)
        for effect in self._heard:
            try:
                message = self._progress.message(effect)
                if message is None:
                    continue
                encode(message)
            except Exception as exc:
                # Not a reason to fail the call.
                logger.warning("%s: %r is not sent: %s", self._target, effect, exc)
            else:
                yield Notify(message)
        self._heard.clear()


class _Progress:
    """Makes the progress and log notifications that the client of a call asked for."""

    def __init__(self, meta: Meta) -> None:
        self._token = meta.progress_token
        self._level = (
            len(LOG_LEVELS)
            if meta.log_level is None
            else LOG_LEVELS.index(meta.log_level)
        )
        self._done: float | None = None

    def message(self, effect: Effect[Any]) -> dict[str, JSON] | None:
        """Return the notification for `effect`; `None` if the client asked for none."""
        match effect:
            case Progress(done, total, text):
                return self._progress(done, total, text)
            case Log(level, data, name):
                return self._log(level, data, name)
            case Status(text):
                return self._log("info", text, None)
            case _:
                raise TypeError(f"{effect!r} cannot be sent to a client")

    def _progress(
        self, done: float, total: float | None, text: str | None
    ) -> dict[str, JSON] | None:
        # The value "MUST increase with each notification" (Progress, Progress Flow), so
        # a value that is not larger than the last one is not sent.
        if self._token is None or (self._done is not None and done <= self._done):
            return None
        self._done = done
        params: dict[str, JSON] = {"progressToken": self._token, "progress": done}
        if total is not None:
            params["total"] = total
        if text is not None:
            params["message"] = text
        return notification("notifications/progress", params)

    def _log(self, level: str, data: JSON, name: str | None) -> dict[str, JSON] | None:
        if LOG_LEVELS.index(level) < self._level:
            return None
        # Dataclasses and the like are written as in results. What cannot be written is
        # left in place, and `encode` refuses it.
        params: dict[str, JSON] = {"level": level, "data": written(data)[0]}
        if name is not None:
            params["logger"] = name
        return notification("notifications/message", params)
