"""What a handler yields: answered on the spot, refused, or waited for.

Between a generator's yield and the schedule of waves. What needs no entry (`Version`,
`IdempotencyKey`, `Log`, `Progress`, `Status`) is answered here and takes no wave. What
may not stand where it stands is refused with an exception that is thrown at the yield,
so that the traceback shows the author's line. The rest gets its key and fingerprint, and
the node waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .. import effects as fx
from ..canonical import JSON, dumps, loads
from ..effects import Effect
from ..errors import (
    CanonicalError,
    FlowError,
    NotAnEffectError,
    Signal,
    StepError,
    UsageError,
)
from .branches import MAX_NESTING, Node
from .journal import Fingerprints, check_key
from .kinds import (
    FED,
    INLINE,
    KINDS,
    LATER,
    LOCAL,
    NAMES,
    Kind,
    kind_of,
    steps_in,
)
from .misuse import not_an_effect
from .rules import Rules
from .steps import read_arguments, spec_of, step_name, write_arguments
from .turn import PATIENCE, check_branch, is_running, name_of

__all__ = ["WAIT", "BuriedError", "ExhaustedError", "Intake"]

#: How many rounds' worth of `Log` and the like a replay may repeat: they are in no
#: journal, so a replay yields all of them again.
REPLAYED: Final = 10

#: The node waits; there is no answer yet.
WAIT = object()


class ExhaustedError(Exception):
    """The budget of yields is spent. Ends the run; never reaches a handler."""


class BuriedError(Exception):
    """A node answers every signal with another yield. Never reaches a handler."""


class Intake:
    """The part of a run that looks at what was yielded.

    Attributes:
        generation: Part of idempotency keys.
        versions: What `Version` gave, by id.
        muted: Whether `Progress` and `Log` are held back, as in a replay.
        detached: Whether `Detach` was passed.
        spent: Yields that no journal entry fed, in this round.
    """

    __slots__ = (
        "_emit",
        "_handler",
        "_prints",
        "_resolve",
        "_rules",
        "detached",
        "generation",
        "muted",
        "spent",
        "versions",
    )

    def __init__(
        self,
        rules: Rules,
        prints: Fingerprints,
        *,
        emit: Callable[[Effect[Any]], None],
        handler: Callable[..., Any],
        resolve: Callable[[str], Callable[..., Any] | None],
    ) -> None:
        self.generation = 0
        self.versions: dict[str, int | str] = {}
        self.muted = False
        self.detached = False
        self.spent = 0
        self._rules = rules
        self._prints = prints
        self._emit = emit
        self._handler = handler
        self._resolve = resolve

    def find(self, name: str) -> Callable[..., Any] | None:
        """The handler that is called `name`, for `Restart`."""
        handler = self._handler
        return handler if name == name_of(handler) else self._resolve(name)

    def spend(self) -> None:
        """Count one yield that no journal entry feeds.

        Raises:
            ExhaustedError: This was one too many.
        """
        self.spent += 1
        if self.spent > self._rules.yields * (REPLAYED if self.muted else 1):
            raise ExhaustedError

    def unmute(self) -> None:
        """What comes now is new: it is heard, and has this round's whole budget."""
        if self.muted:
            self.muted = False
            self.spent = 0

    def receive(self, node: Node, effect: object, is_past: Callable[[], bool]) -> Any:
        """The answer to `effect`, or `WAIT` when it is not this module's to answer.

        Args:
            node: Whose generator yielded it.
            effect: What was yielded.
            is_past: Whether anything was recorded or asked beyond this point.

        Raises:
            UsageError: `effect` may not stand here. To be thrown at the yield.
            Signal: Cleanup wanted more than cleanup may. To be thrown at the yield.
            BuriedError: Cleanup wants more and more.
            ExhaustedError: The budget is spent.
        """
        plain = FED.get(type(effect))
        if plain is not None and node.closing is None:
            self.identify(node, plain, effect)  # type: ignore[arg-type]  # as its type is
            node.place = node.path + node.key
            return WAIT
        found = kind_of(effect) if isinstance(effect, Effect) else None
        if found is None:
            raise NotAnEffectError(not_an_effect(node, effect))
        kind, subject = found
        if node.closing is not None:
            self._check_cleanup(node, kind)
        if not kind.is_free:
            self._check_steps(subject)
            self._check_position(node, subject)
        if kind.wave is INLINE:
            self.spend()
            return self._answer(node, subject, is_past)
        if isinstance(subject, fx.Gather):
            self._identify_gather(node, subject)
        else:
            self.identify(node, kind, subject)
            if isinstance(subject, fx.Restart):
                self._check_restart(subject)
        node.place = node.path + node.key
        node.effect = effect  # type: ignore[assignment]  # an Effect, as kind_of found
        return WAIT

    def _check_cleanup(self, node: Node, kind: Kind) -> None:
        """Cleanup may do local things, some of them; anything else ends it again."""
        assert node.closing is not None
        if kind.wave is INLINE:
            return
        if kind.wave is LOCAL and kind.name not in ("restart", "detach"):
            node.cleanup_effects += 1
            if node.cleanup_effects <= PATIENCE:
                return
        node.cleanup_throws += 1
        if node.cleanup_throws > PATIENCE:
            raise BuriedError
        raise node.closing()

    def _check_steps(self, subject: Effect[Any]) -> None:
        rules = self._rules
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

    def _check_position(self, node: Node, subject: Effect[Any]) -> None:
        name = type(subject).__name__
        if isinstance(subject, LATER) and not (self._rules.task or self.detached):
            raise UsageError(f"{name}() belongs after Detach(), or in a task")
        if isinstance(subject, (fx.Detach, fx.Restart)) and node.depth > 0:
            raise UsageError(
                f"{name}() belongs to the top level of a handler, not in a Gather"
            )
        if isinstance(subject, fx.Detach):
            if not self._rules.detach:
                raise UsageError("Detach() belongs in tools, which can become tasks")
            if self.detached:
                raise UsageError("Detach() once is enough: this flow has detached")

    # ---- answered on the spot ----

    def _answer(
        self, node: Node, effect: Effect[Any], is_past: Callable[[], bool]
    ) -> Any:
        match effect:
            case fx.IdempotencyKey():
                about = _about(effect)
                nth = node.next_ordinal(f"key:{dumps([effect.name, *about]).decode()}")
                return self._prints.idempotency_key(
                    self.generation, node.path, effect.name, about, nth
                )
            case fx.Version():
                return self._version(effect, is_past)
            case _:
                if not self.muted:
                    self._say(effect)
                return None

    def _say(self, effect: Effect[Any]) -> None:
        try:
            self._emit(effect)
        except (UsageError, FlowError, Signal) as exc:
            # The embedder's own mistake, which must not look like the handler's.
            raise RuntimeError(f"emit= raised {exc!r}") from exc

    def _version(
        self, effect: fx.Version[Any], is_past: Callable[[], bool]
    ) -> int | str:
        """The version under which the flow *first* passed this point."""
        found = self.versions.get(effect.id)
        if found is None:
            # Whatever was recorded or asked beyond this point happened without it. Per
            # flow, not per sequence: a branch that had finished before the change must
            # not be told of it afterwards.
            found = effect.default if is_past() else effect.latest
            self.versions[effect.id] = found
        return found

    # ---- waited for ----

    def identify(self, node: Node, kind: Kind, subject: Effect[Any]) -> None:
        """Let `node` wait for `subject`, under its key and fingerprint.

        Raises:
            UsageError: its key or its text cannot be used.
        """
        explicit: str | None = subject.key if kind.is_question else None  # type: ignore[attr-defined]
        try:
            schema, render = kind.schema(subject), kind.render(subject)
        except UnicodeEncodeError:
            raise UsageError(
                f"{type(subject).__name__}: a lone surrogate in the text, which no"
                " client can read"
            ) from None
        name = kind.name
        if explicit is None:
            ordinals = node.ordinals
            ordinals[name] = nth = ordinals.get(name, 0) + 1
            node.key = f"{name}-{nth}"
        else:
            check_key(explicit, NAMES)
            nth = node.next_ordinal(f"={explicit}")
            node.key = explicit if nth == 1 else f"{explicit}#{nth}"
        node.effect = node.subject = subject
        node.row = kind
        prints = self._prints
        shape = prints.shapes.get((name, explicit, schema))
        node.shape = shape or prints.shape(name, explicit, schema)
        hasher = prints.hasher.copy()
        hasher.update(render)
        node.render = hasher.digest()

    def _check_restart(self, subject: fx.Restart[Any]) -> None:
        payload = KINDS[fx.Restart].render(subject)
        read_arguments(subject.handler, loads(payload)[1:])
        name = name_of(subject.handler)
        if self.find(name) is not subject.handler:
            raise UsageError(
                f"Restart({name}): a later round finds the handler by this name, and it"
                " does not lead to it. Give a function that is defined at module level"
            )

    def _identify_gather(self, node: Node, gather: fx.Gather[Any]) -> None:
        if node.depth >= MAX_NESTING:
            raise UsageError(
                f"Gather() inside Gather(), {MAX_NESTING} deep: put the branches of"
                " the inner ones into one"
            )
        flows = [branch for branch in gather.branches if is_running(branch)]
        if len(set(map(id, flows))) != len(flows):
            raise UsageError(
                "Gather() was given one flow twice; call the function once a branch"
            )
        for branch in gather.branches:
            check_branch(branch)
        # A Gather's shape is its kind alone: how many branches it has may change.
        self.identify(node, KINDS[fx.Gather], gather)


def _about(effect: fx.IdempotencyKey) -> list[JSON]:
    """What a key is about, as JSON.

    Raises:
        UsageError: A value is not plain data.
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
