"""One round of a flow whose answers arrive by retry: a token in, a token out.

`begin` starts a flow, and `resume` resumes it from the state that a client sent back.
Both return a `Round`, which is driven like a `Run`. When it asks, `token` seals what
the next round needs. This process keeps nothing of a round that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ..engine.journal import Journal
from ..engine.replay import Run
from ..engine.rules import RETRY, Rules
from ..engine.stops import Answer, Asked, Done, Failure, Stop
from ..errors import KeysError, UsageError
from ..state.codec import Claims, whole_seconds
from ..state.seal import Call, Sealer

__all__ = ["Round", "begin", "resume"]

_NO_ANSWERS: Final[Mapping[str, Answer]] = {}
_NO_KWARGS: Final[Mapping[str, Any]] = {}


@attrs.define(eq=False)
class Round:
    """One round: a `Run`, and what is needed to seal its journal.

    Attributes:
        run: The run. Close it if the round ends without a token, for example when the
            client has disconnected.
        stop: The latest stop of the run.
    """

    run: Run
    stop: Stop
    _claims: Claims
    _call: Call
    _sealer: Sealer | None

    @property
    def flow_id(self) -> bytes:
        """The flow's id, the same in every round."""
        return self._claims.flow_id

    @property
    def first_trace(self) -> str | None:
        """The trace context of the request that started the flow."""
        return self._claims.trace

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
        """End the flow with `Cancelled`; wait for what is being performed."""
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
                f"this round stopped with {type(self.stop).__name__}, and only one that"
                " stopped with Asked has a next one to seal for"
            )
        sealer = self._sealer
        if sealer is None:
            raise KeysError(
                "a handler asks, and there are no keys to seal its state with. Make one"
                " with `effectmcp keygen` and give it to every replica, as"
                " EFFECTMCP_STATE_KEYS or Server(keys=Keys(...))"
            )
        claims = self._claims.after(self.run.suspend())
        return sealer.seal(claims, self._call, now=now)


def begin(
    handler: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = _NO_KWARGS,
    *,
    call: Call,
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
    call: Call,
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
    call: Call,
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
