"""Replay the journal, then continue until something must be asked or performed.

A `Run` is one flow in one process. It stops with what it needs, and does not know how
the answers arrive:

    start() ─→ Perform(wants)  ─ performed(…) ─→ …     this process: steps, clock, …
            ─→ Asked(questions) ─ answered(…) ─→ …     the client, live, or
                                  suspend()            seal the journal and forget
            ─→ Returned(value) | Raised(error)

By retry, live, from a store or from a script: the calls are the same, in the same
order, because each answer becomes an entry of the journal, and the handler gets only
entries (docs/internals/replay.md#what-must-be-equal).

`Restart` starts a new `Generation`, and the run continues with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..effects.base import Effect
from ..errors import (
    BudgetError,
    Cancelled,
    DivergenceError,
    NondeterminismError,
    UsageError,
)
from .answers import Answer, Read, refuse_unread
from .development import Watch
from .divergence import Report
from .flow_state import (
    RENDERS,
    SHAPES,
    SOON,
    ExhaustedError,
    Fingerprints,
    FlowState,
)
from .generation import Again, Generation
from .generators import is_running
from .journal import Journal, Row
from .names import find, name_of
from .rules import RETRY, TASK, Rules
from .single import single_sequence
from .stops import Asked, Done, Failure, Perform, Raised, Returned, Stop

if TYPE_CHECKING:
    from .sequences import Sequence, Wanted

__all__ = ["LEGAL", "Run"]

State: TypeAlias = Literal["new", "performing", "asking", "ended", "suspended"]
Verb: TypeAlias = Literal[
    "start", "begin", "put_off", "performed", "answered", "cancel", "suspend"
]

#: The statuses in which each call is legal. Suspending or cancelling an ended run is
#: allowed, because cleanup code cannot know that it has ended.
LEGAL: Final[Mapping[Verb, frozenset[State]]] = {
    "start": frozenset({"new"}),
    "begin": frozenset({"performing", "asking"}),
    "put_off": frozenset({"performing", "asking"}),
    "performed": frozenset({"performing", "asking"}),
    "answered": frozenset({"performing", "asking"}),
    "cancel": frozenset({"new", "performing", "asking", "ended", "suspended"}),
    "suspend": frozenset({"new", "performing", "asking", "ended", "suspended"}),
}

_STATE_AFTER: Final[Mapping[type[Stop], State]] = {
    Perform: "performing",
    Asked: "asking",
    Returned: "ended",
    Raised: "ended",
}

_NO_KWARGS: Final[Mapping[str, Any]] = {}
_NOTHING: Final = Journal()
_NO_WANTS: Final[dict[str, tuple[Sequence, Wanted]]] = {}


def _always(what: object) -> bool:
    return True


def _unheard(effect: Effect[Any]) -> None:
    pass


def _unnoticed() -> None:
    pass


class Run:
    """One flow, resumed from its journal.

    Args:
        handler: A generator function, or any callable that returns a generator, a
            coroutine that awaits effects only, or a plain value.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        flow_id: 16 to 64 random bytes, drawn once per flow by the embedder, and the same
            in every round.
        journal: The journal of the earlier rounds. It is trusted: seal it if clients
            hold it.
        rules: `RETRY`, `LIVE`, `TASK`, `SCRIPT`, or your own.
        detached: The rules after a `Detach` that returned True.
        supports: Returns whether this request's client can be asked such a question.
            Called with an effect, or with a class for `ClientSupports`, any number of
            times; the result must be the same for the whole round.
        emit: Receives each `Progress`, `Log` and `Status` that is not muted.
        resolve: Finds a handler by `module:qualname`, for `Restart`; by default in the
            imported modules.
        read: Reads an `Unread` answer, given its question and its value.
        clock: Returns the seconds since 1970, as `time.time` does. Required if a flow
            waits for a time: `Sleep` in a task, and `Within` or `FirstOf` of a
            question.
        consented: Called when the answer to a question with `once=True` is taken, before
            anything is performed after it.
        name: The handler's name in reports; by default its own.
        version: The handler's declared version, for reports.

    Attributes:
        salvaged: A report for each time that this run dropped entries and continued.
    """

    __slots__ = (
        "__weakref__",
        "_answers",
        "_flow",
        "_one",
        "_given",
        "_is_busy",
        "_is_untouched",
        "_late",
        "_rows",
        "_state",
        "_stop",
        "salvaged",
    )

    def __init__(
        self,
        handler: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = _NO_KWARGS,
        *,
        flow_id: bytes,
        journal: Journal | None = None,
        rules: Rules = RETRY,
        detached: Rules = TASK,
        supports: Callable[[Any], bool] = _always,
        emit: Callable[[Effect[Any]], None] = _unheard,
        resolve: Callable[[str], Callable[..., Any] | None] = find,
        read: Read = refuse_unread,
        clock: Callable[[], float] | None = None,
        consented: Callable[[], None] = _unnoticed,
        name: str | None = None,
        version: str | None = None,
    ) -> None:
        given: object = handler
        if not callable(given):
            hint = (
                " Give the function and its arguments, not the flow that it returns."
                if is_running(given)
                else ""
            )
            raise UsageError(f"{given!r} is not a handler.{hint}")
        given = args
        if not isinstance(given, tuple):
            raise UsageError(
                f"args are a tuple, not {args!r}: Run(order, ('Dune',), flow_id=...)"
            )
        given_id: object = flow_id
        if not isinstance(given_id, bytes) or not 16 <= len(given_id) <= 64:
            raise UsageError(
                "flow_id must be 16 to 64 random bytes, drawn once per flow:"
                " secrets.token_bytes(16)"
            )
        is_first = journal is None or (not journal.rounds and journal.is_empty)
        self._given = journal = _NOTHING if journal is None else journal
        self._flow = FlowState(
            (handler, args, kwargs),
            Fingerprints(flow_id, RENDERS(key=flow_id), SHAPES(key=flow_id), {}),
            detached if journal.detached else rules,
            detached,
            supports,
            emit,
            resolve,
            read,
            clock,
            consented,
            name or name_of(handler),
            version,
            Watch() if rules.development else None,
            journal.rounds,
            journal.state_rounds,
            journal.detached,
            muted=not is_first,
        )
        self.salvaged: list[Report] = []
        self._one = single_sequence(
            self._flow, journal, self.salvaged, Generation, is_first=is_first
        )
        #: Keys of withdrawn wants: their outcomes are ignored.
        self._late: set[str] = set()
        #: Rows of generations that have ended.
        self._rows: list[Row] = []
        self._state: State = "new"
        self._stop: Stop | None = None
        self._is_busy = False
        #: Whether the journal is still the given journal.
        self._is_untouched = True

    # ---- the embedder's verbs -------------------------------------------------------

    def start(self, answers: Mapping[str, Answer] | None = None) -> Stop:
        """Replay the journal, and continue from its end.

        Args:
            answers: The answers of this request, by wire key. Answers to questions that
                are no longer outstanding are ignored.

        Raises:
            DivergenceError: If the handler changed so that the flow cannot resume.
        """
        self._check("start")
        return self._guard(partial(self._start, answers))

    def begin(self, *keys: str) -> None:
        """Note that wants are about to be started.

        A cancel waits for started wants, and a step that is marked `at_most_once` is
        never started again: save the journal between this call and the start.
        """
        self._check("begin")
        performing = self._generation.performing
        unknown = sorted(set(keys) - set(performing.wants))
        if unknown:
            raise UsageError(f"begin() with keys that are not wanted: {unknown}")
        for key in keys:
            performing.begin(key)

    def put_off(self, *keys: str) -> None:
        """Note that started wants have failed and will be started again later.

        Until then a cancel does not wait for them.
        """
        self._check("put_off")
        performing = self._generation.performing
        for key in performing.begun.intersection(keys):
            performing.put_off(key)

    def performed(
        self,
        outcomes: Mapping[str, Done | Failure],
        answers: Mapping[str, Answer] | None = None,
    ) -> Stop:
        """Resume the run with the outcomes of all wants, or of some of them.

        Args:
            outcomes: The outcomes, by key.
            answers: Answers that have arrived at the same time, as for `answered`.

        Raises:
            UsageError: If an outcome has an unknown key, or is not valid for its
                effect.
            DivergenceError: If the handler changed so that the flow cannot resume.
        """
        self._check("performed")
        generation = self._generation
        performing = generation.performing
        unknown = set(outcomes) - set(performing.wants)
        if unknown - self._late:
            raise UsageError(
                f"performed() with keys that are not wanted: {sorted(unknown - self._late)}"
            )
        performing.record(
            {key: one for key, one in outcomes.items() if key not in unknown}
        )
        if answers:
            self._one.answers.arrive(answers)
            self._flow.spent = 0  # the flow has waited
        return self._pending() or self._guard(generation.go)

    def answered(self, answers: Mapping[str, Answer] | None = None) -> Stop:
        """Resume a live run with answers; ask unanswered questions again.

        Call it without answers at the time that `Asked.due` named. While local effects
        are being performed, answers are only received: the stop is the same as before.

        Raises:
            DivergenceError: If the handler changed so that the flow cannot resume.
        """
        self._check("answered")
        self._one.answers.arrive(answers or {})
        same = self._stop
        assert same is not None
        if self._pending() is not None:
            self._stop = same
            return same
        self._flow.spent = 0  # the flow has waited
        return self._guard(self._generation.go)

    def cancel(self) -> Stop:
        """End the flow: `Cancelled` is thrown, and cleanup may perform local effects.

        Started wants are waited for: call `performed` as usual. Other wants, and clocks
        that run, are not. A second cancel ends the flow at once, wherever it is.
        """
        self._check("cancel")
        generation = self._generation
        if self._state == "ended":
            assert self._stop is not None
            return self._stop
        if self._state == "suspended":
            return Raised(Cancelled())
        if generation.cancelled is not None and self._state != "new":
            if generation.cancelled == SOON:
                generation.note_cancelled()
            self.suspend()
            self._stop = Raised(Cancelled())
            return self._stop
        if generation.cancelled is None:
            generation.cancelled = SOON
        if self._state == "new":
            return self._guard(self._start)
        self._late |= generation.performing.keep_begun()
        if generation.performing.wants:
            self._state = "performing"
        return self._pending() or self._guard(generation.go)

    def _pending(self) -> Perform | None:
        """Return the wants that the run still waits for, if any."""
        pending = None
        if self._state == "performing":
            generation = self._generation
            pending = generation.performing.pending(
                is_cancelling=generation.cancelled == SOON
            )
        if pending is not None:
            self._stop = pending
        return pending

    def line_of(self, key: str) -> str | None:
        """Return `file:line` of the yield that waits for the want with this key."""
        found = self._wants.get(key)
        return None if found is None else found[0].where

    def suspend(self) -> Journal:
        """End the round: unwind every generator, performing nothing, and forget them.

        Returns:
            The journal to resume from.
        """
        self._check("suspend")
        try:
            return self.journal
        finally:
            if self._state != "ended":
                self._one.unwind()
                self._state = "suspended"

    def close(self) -> None:
        """End the round as `suspend` does, without returning the journal."""
        self._check("suspend")
        if self._state != "ended":
            self._one.unwind()
            self._state = "suspended"

    @property
    def journal(self) -> Journal:
        """The journal so far. It can be read at any stop.

        For a parked flow, it is the given journal, unchanged.

        Raises:
            UsageError: If this round passed the limit on rounds, so no state may leave
                it.
        """
        if self._flow.limit is not None:
            raise UsageError(
                "this round passed the limit on rounds: it must end here, and no state"
                " may leave it"
            )
        return self._given if self._is_untouched else self._one.snapshot()

    def take_rows(self) -> list[Row]:
        """Return the changes since the last call, for a store that appends.

        `Journal.with_rows` turns them into the entries of a journal again.
        """
        if self._is_untouched:
            return []
        rows = self._rows + self._one.root.rows.take()
        self._rows = []
        return rows

    @property
    def is_over_limit(self) -> bool:
        """Whether this round passed the limit on rounds, so that no state may leave it."""
        return self._flow.limit is not None

    @property
    def where(self) -> str | None:
        """`file:line` where the flow waits.

        Another thread may read it to find out where a run hangs. It must not poll it
        while the handler runs: CPython changes the frames of a running generator.

        See docs/internals/replay.md#l5.
        """
        return self._one.where

    def _check(self, verb: Verb) -> None:
        if self._is_busy:
            raise UsageError(
                f"{verb}() was called while the run is in progress: from inside its own"
                " handler, or from another thread"
            )
        if self._state not in LEGAL[verb]:
            raise UsageError(f"{verb}() makes no sense when the run is {self._state}")

    def _guard(self, advance: Callable[[], Stop | Again]) -> Stop:
        flow = self._flow
        wanted = self._wants.copy() if self._one.generation else _NO_WANTS
        self._is_busy = True
        self._is_untouched = False
        if flow.watch is not None:
            flow.watch.begin()
        try:
            stop = advance()
            while isinstance(stop, Again):
                stop = self._next_generation(stop)
        except ExhaustedError:
            stop = Raised(
                BudgetError(
                    f"{flow.name} yielded {flow.rules.yields:,} times in one round"
                    " without asking or returning: a loop that never ends?",
                    where=self.where,
                )
            )
            self._one.unwind()
        except NondeterminismError as exc:
            stop = Raised(exc)
            self._one.unwind()
        except BaseException as exc:
            self._one.unwind()
            self._state = "suspended"
            self._is_untouched = (
                isinstance(exc, DivergenceError) and exc.verdict == "park"
            )
            raise
        finally:
            self._is_busy = False
            if flow.watch is not None:
                flow.watch.end()
        self._stop = stop
        if wanted:
            self._late |= wanted.keys() - self._wants.keys()
        self._state = _STATE_AFTER[type(stop)]
        if flow.watch is not None and isinstance(stop, Returned):
            flow.watch.report(flow.name)
        return stop

    def _next_generation(self, again: Again) -> Stop | Again:
        # See docs/internals/replay.md#v2.
        before = self._generation
        self._rows += before.root.rows.take()
        journal = Journal(
            generation=before.number + 1,
            restart=again.payload,
            cancelled=SOON if before.cancelled == SOON else None,
            detached=self._flow.detached,
        )
        self._one = single_sequence(
            self._flow, journal, self.salvaged, Generation, is_first=True
        )
        return self._start()

    def _start(self, answers: Mapping[str, Answer] | None = None) -> Stop | Again:
        return self._one.start(answers) or self._generation.take_over()

    @property
    def _generation(self) -> Generation:
        return self._one.whole()

    @property
    def _wants(self) -> dict[str, tuple[Sequence, Wanted]]:
        generation = self._one.generation
        return _NO_WANTS if generation is None else generation.performing.wants
