"""Receive yielded effects: answer them at once, refuse them, or wait for them.

This is the stage between a generator's yield and the waves. Effects that need no entry
(`Version`, `IdempotencyKey`, `Log`, `Progress`, `Status`) are answered here and take no
wave. Effects that are not allowed where they are yielded are refused with an exception
that is thrown at the yield, so that the traceback shows the author's line. The rest
gets a key and a fingerprint, and the sequence waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from ..canonical import JSON, dumps, loads
from ..effects.base import Effect, InputRequest
from ..effects.control import (
    Detach,
    FirstOf,
    Gather,
    Restart,
    Version,
    Within,
)
from ..effects.local import IdempotencyKey
from ..effects.questions import Outcome
from ..effects.steps import Step
from ..errors import (
    CanonicalError,
    FlowError,
    NotAnEffectError,
    Signal,
    StepError,
    UsageError,
)
from .effect_table import (
    FED,
    INLINE,
    KINDS,
    LATER,
    LOCAL,
    NAMES,
    Kind,
    inner_of,
    kind_of,
    steps_in,
)
from .generators import PATIENCE, check_branch, is_running
from .journal import MAX_NESTING, check_key
from .misuse import not_an_effect
from .names import name_of
from .sequences import WAIT, BuriedError, Sequence, Wanted
from .steps import read_arguments, spec_of, step_name, write_arguments

if TYPE_CHECKING:
    from .flow_state import FlowState

__all__ = ["Receiver", "check_steps"]


@define(eq=False)
class Receiver:
    """The part of a generation that receives yielded effects.

    Args:
        flow: The flow.
        generation: Its number, which is part of idempotency keys.
        versions: The versions that `Version` returned so far, by id.
        past: The number of delivered waves whose code ran in an earlier run.

    Attributes:
        past: As the argument.
        versions: The versions that `Version` returned, by id.
    """

    _flow: FlowState
    _generation: int
    versions: dict[str, int | str]
    past: float

    def receive(self, sequence: Sequence, effect: object, waves: int, live: int) -> Any:
        """Return the value for `effect`, or `WAIT` if the sequence must wait for it.

        Args:
            sequence: The sequence whose generator yielded it.
            effect: The yielded value.
            waves: The number of delivered waves.
            live: The number of live branches.

        Raises:
            UsageError: If `effect` is not allowed here. The caller throws it at the
                yield.
            Signal: If cleanup yields more than it may. The caller throws it at the
                yield.
            BuriedError: If cleanup does not stop yielding.
            ExhaustedError: If the budget of yields is spent.
        """
        closing = sequence.closing
        plain = FED.get(type(effect))
        if plain is not None and plain.is_free and closing is None:
            sequence.wanted = self.identify(sequence, plain, effect, effect)  # type: ignore[arg-type]  # as its type is
            return WAIT
        found = kind_of(effect) if isinstance(effect, Effect) else None
        if found is None:
            raise NotAnEffectError(not_an_effect(sequence, effect))
        kind, subject = found
        if closing is not None:
            self._check_cleanup(sequence, kind, subject)
        if not kind.is_free:
            check_steps(self._flow, subject)
            self._check_position(sequence, subject)
        if kind.wave is INLINE:
            self._flow.spend()
            return self._answer(sequence, subject, waves)
        if isinstance(subject, Gather):
            self._check_gather(sequence, subject, live)
        wanted = self.identify(sequence, kind, subject, effect)  # type: ignore[arg-type]  # an Effect, as kind_of found
        if isinstance(subject, Restart):
            self._check_restart(subject)
        if isinstance(subject, (Within, FirstOf)):
            self._take_apart(wanted, subject)
        sequence.wanted = wanted
        return WAIT

    def _check_cleanup(
        self, sequence: Sequence, kind: Kind, subject: Effect[Any]
    ) -> None:
        """Allow cleanup a few local effects; for all others, throw the signal again.

        See docs/internals/replay.md#l4.
        """
        closing = sequence.closing
        assert closing is not None
        if kind.wave is INLINE:
            return
        is_local = kind.wave is LOCAL and kind.name not in ("restart", "detach")
        if is_local and not any(map(_is_question, inner_of(subject))):
            closing.effects += 1
            if closing.effects <= PATIENCE:
                return
        closing.throws += 1
        if closing.throws > PATIENCE:
            raise BuriedError
        raise closing.signal()

    def _check_position(self, sequence: Sequence, subject: Effect[Any]) -> None:
        # See docs/internals/replay.md#v3.
        flow = self._flow
        name = type(subject).__name__
        if isinstance(subject, LATER) and not (
            flow.rules.task or flow.rules.later or flow.detached is not None
        ):
            raise UsageError(f"{name}() belongs after Detach(), or in a task")
        if isinstance(subject, (Detach, Restart)) and sequence.depth > 0:
            raise UsageError(
                f"{name}() belongs to the top level of a handler, not in a Gather"
            )
        if isinstance(subject, Detach):
            if not flow.rules.detach:
                raise UsageError("Detach() belongs in tools, which can become tasks")
            if flow.detached is not None:
                raise UsageError("Detach() once is enough: this flow has detached")

    # ---- answered on the spot ----

    def _answer(self, sequence: Sequence, effect: Effect[Any], waves: int) -> Any:
        match effect:
            case IdempotencyKey():
                about = _about(effect)
                name = dumps([effect.name, *about]).decode()
                nth = sequence.next_ordinal(f"key:{name}")
                return self._flow.prints.idempotency_key(
                    self._generation, sequence.path, effect.name, about, nth
                )
            case Version():
                return self._version(effect, waves)
            case _:
                if not self._flow.muted:
                    self._say(effect)
                return None

    def _say(self, effect: Effect[Any]) -> None:
        try:
            self._flow.emit(effect)
        except (UsageError, FlowError, Signal) as exc:
            # A mistake of the embedder must not look like the handler's.
            raise RuntimeError(f"emit= raised {exc!r}") from exc

    def _version(self, effect: Version[Any], waves: int) -> int | str:
        """Return the version under which the flow *first* passed this point.

        See docs/internals/replay.md#v1.
        """
        found = self.versions.get(effect.id)
        if found is None:
            # The code after the last wave that an earlier run delivered ran in that run
            # already, without this point. Waves are counted in the flow and not in a
            # sequence: a branch that ended before the change must not get the new
            # version afterwards.
            found = effect.default if waves <= self.past else effect.latest
            self.versions[effect.id] = found
        return found

    # ---- waited for ----

    def identify(
        self, sequence: Sequence, kind: Kind, subject: Effect[Any], effect: Effect[Any]
    ) -> Wanted:
        """Return the effect that `sequence` waits for, with its key and fingerprint.

        Raises:
            UsageError: If its key or its text cannot be used.
        """
        schema, render = _written(kind, subject)
        explicit: str | None = subject.key if kind.is_question else None  # type: ignore[attr-defined]
        name = kind.name
        if explicit is None:
            ordinals = sequence.ordinals
            ordinals[name] = nth = ordinals.get(name, 0) + 1
            key = f"{name}-{nth}"
        else:
            check_key(explicit, NAMES)
            nth = sequence.next_ordinal(f"={explicit}")
            key = explicit if nth == 1 else f"{explicit}#{nth}"
        prints = self._flow.prints
        return Wanted(
            effect,
            subject,
            kind,
            key,
            sequence.path + key,
            prints.shape(name, explicit, schema),
            prints.render(render),
            kind.wave is LOCAL and not (kind.is_wait and self._flow.rules.task),
        )

    def _take_apart(self, wanted: Wanted, subject: Within[Any] | FirstOf[Any]) -> None:
        """Make `wanted` wait for the effects inside it.

        Raises:
            UsageError: If these effects cannot be waited for together here.
        """
        inner = enumerate(inner_of(subject))
        parts = [self._part(wanted, index, one) for index, one in inner]
        asks = any(part.row.is_question for part in parts)
        if asks and not self._flow.rules.task:
            if any(isinstance(part.subject, Step) for part in parts):
                raise UsageError(
                    f"{type(subject).__name__}() of a question and a step needs a task:"
                    " the step would have to run while the client is asked"
                )
            wanted.is_local = False
        if asks or self._flow.rules.task:
            wanted.parts = tuple(parts)

    def _part(self, wanted: Wanted, index: int, effect: Effect[Any]) -> Wanted:
        found = kind_of(effect)
        assert found is not None
        kind, subject = found
        explicit: str | None = subject.key if kind.is_question else None  # type: ignore[attr-defined]
        if explicit is not None:
            check_key(explicit, NAMES)
        schema, render = _written(kind, subject)
        prints = self._flow.prints
        key = explicit or f"{kind.name}-1"
        return Wanted(
            effect,
            subject,
            kind,
            key,
            f"{wanted.place}/{index}/{key}",
            prints.shape(kind.name, explicit, schema),
            prints.render(render),
            is_local=False,
        )

    def _check_restart(self, subject: Restart[Any]) -> None:
        # See docs/internals/replay.md#v2.
        payload = KINDS[Restart].render(subject)
        read_arguments(subject.handler, loads(payload)[1:])
        name = name_of(subject.handler)
        if self._flow.find(name) is not subject.handler:
            raise UsageError(
                f"Restart({name}): a later round finds the handler by this name, and it"
                " does not lead to it. Give a function that is defined at module level"
            )

    def _check_gather(self, sequence: Sequence, gather: Gather[Any], live: int) -> None:
        if sequence.depth >= MAX_NESTING:
            raise UsageError(
                f"Gather() inside Gather(), {MAX_NESTING} deep: put the branches of"
                " the inner ones into one"
            )
        count, limit = len(gather.branches), self._flow.rules.branches
        if live + count > limit:
            raise UsageError(
                f"Gather() of {count:,} branches, where {live:,} are live: at most"
                f" {limit:,} may be at once (Rules.branches). Take them in portions"
            )
        flows = [branch for branch in gather.branches if is_running(branch)]
        if len(set(map(id, flows))) != len(flows):
            raise UsageError(
                "Gather() was given one flow twice; call the function once per branch"
            )
        for branch in gather.branches:
            check_branch(branch)


def check_steps(flow: FlowState, subject: Effect[Any]) -> None:
    """Refuse steps that may not be performed here.

    See docs/internals/replay.md#s2a and docs/internals/replay.md#s5.

    Raises:
        StepError: If a step may not be performed, or its result could not be
            recorded.
    """
    rules = flow.rules
    for step in steps_in(subject):
        options = step.options
        if options.secret and not rules.secret_steps:
            raise StepError(
                f"the step {step_name(step)} is secret, and here results travel"
                " with the client. Perform it in a task, or return what names the"
                " secret"
            )
        if not options.public and not rules.private_steps:
            raise StepError(
                f"the step {step_name(step)} is not public, and here the client can"
                " read results. Mark it @step(public=True) or encrypt the state"
            )
        if options.at_most_once and not rules.at_most_once:
            raise StepError(
                f"the step {step_name(step)} is at_most_once, which only a task can"
                " promise. Detach() first, or use an IdempotencyKey"
            )
        spec_of(step)  # refuses a result that could not be recorded


def _is_question(effect: Effect[Any]) -> bool:
    return isinstance(effect, (InputRequest, Outcome))


def _written(kind: Kind, subject: Effect[Any]) -> tuple[bytes, bytes]:
    try:
        schema = b"" if kind.schema is None else kind.schema(subject)
        return schema, kind.render(subject)
    except UnicodeEncodeError:
        raise UsageError(
            f"{type(subject).__name__}: a lone surrogate in the text, which no client can"
            " read"
        ) from None


def _about(effect: IdempotencyKey) -> list[JSON]:
    """Return the `about` values of a key, as JSON.

    Raises:
        UsageError: If a value is not plain data.
    """
    try:
        about: list[JSON] = write_arguments(effect.about, {})[0]
        dumps([effect.name, *about])
    except CanonicalError as exc:
        raise UsageError(
            f"IdempotencyKey({effect.name!r}, ...): what a key is about must be plain"
            f" data: {exc.problem}"
        ) from None
    return about
