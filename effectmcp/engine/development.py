"""Development mode: find effects that a handler built and never performed.

`Elicit("Who?", str)` on its own line silently does nothing. While the generators of a
run are running, each effect that is built is noted with its line. Effects that are
performed, alone or inside another effect, are struck out. When the handler has
returned, warnings report the rest. Constants of a module are built at import, so they
are never noted (docs/internals/replay.md#l6).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..effects import base
from ..effects.base import Effect
from ..effects.control import FirstOf, Gather, Within
from ..effects.local import ClientSupports
from ..effects.questions import Outcome

__all__ = ["UnperformedEffectWarning", "Watch"]

#: Entered while a run's generators run in development mode: the hook of the test kit's
#: sanitizer.
observe: Callable[[], AbstractContextManager[object]] = nullcontext


#: Called when an effect is performed, with the line that built it.
on_performed: Callable[[str], None] = lambda where: None  # noqa: E731  # replaced by tests


class UnperformedEffectWarning(UserWarning):
    """A handler built an effect and returned without performing it.

    Attributes:
        effect: The effect.
        where: `file:line` where it was built.
    """

    def __init__(self, name: str, effect: Effect[Any], where: str) -> None:
        self.effect = effect
        self.where = where
        super().__init__(
            f"{where}: {name} built {effect!r} and never performed it: a forgotten"
            " `yield from`?"
        )


class Watch:
    """The effects that one run's handler built and has not performed."""

    def __init__(self) -> None:
        # Keyed by identity, and kept alive: two equal effects are two mistakes.
        self._outer: Callable[[Effect[Any]], None] | None = None
        self._observer: AbstractContextManager[object] = nullcontext()
        self._built: dict[int, tuple[Effect[Any], str]] = {}

    def begin(self) -> None:
        """Start to record the effects that are built."""
        # One run may run inside another: in a step, or in a cold replay.
        self._outer = base.on_built
        base.on_built = self._note
        self._observer = observe()
        self._observer.__enter__()

    def end(self) -> None:
        """Stop noting."""
        self._observer.__exit__(None, None, None)
        base.on_built = self._outer

    def _note(self, effect: Effect[Any]) -> None:
        frame = sys._getframe(1)
        # Skip the constructors, which are in effects/ or written by attrs.
        while frame.f_back is not None and (
            frame.f_globals.get("__package__") == base.__package__
            or frame.f_code.co_filename.startswith("<attrs")
        ):
            frame = frame.f_back
        at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._built[id(effect)] = (effect, at)

    def performed(self, effect: Effect[Any]) -> None:
        """Strike out `effect` and the effects inside it."""
        _, where = self._built.pop(id(effect), (None, None))
        if where is not None:
            on_performed(where)
        for inner in _inside(effect):
            self.performed(inner)

    def report(self, name: str) -> None:
        """Warn about the effects that were not performed."""
        inside = {id(i) for effect, _ in self._built.values() for i in _inside(effect)}
        for effect, at in self._built.values():
            if id(effect) not in inside:
                warnings.warn(UnperformedEffectWarning(name, effect, at), stacklevel=2)


def _inside(effect: Effect[Any]) -> list[Effect[Any]]:
    match effect:
        case Outcome():
            found: tuple[Any, ...] = (effect.request,)
        case Gather():
            found = effect.branches
        case Within():
            found = (effect.effect,)
        case FirstOf():
            found = effect.effects
        case ClientSupports():
            found = (effect.what,)
        case _:
            found = ()
    return [one for one in found if isinstance(one, Effect)]
