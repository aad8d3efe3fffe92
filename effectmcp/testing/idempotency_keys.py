"""Find idempotency keys that do not identify one call each.

shared      one key for two different calls of the same step: a payment service takes
            the second for the first again, and charges once
unstable    a key of values that differ when the client sends its request again: a
            clock, a random value or a step of the key's own round; the service sees
            a new key, and charges twice

How keys are made is specified in docs/internals/replay.md#s4.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import frozen

from ..canonical import dumps
from ..effects.base import Effect
from ..effects.control import FirstOf, Within
from ..effects.local import (
    IdempotencyKey,
)
from ..effects.steps import Step
from ..engine.effect_table import KINDS
from ..engine.stops import Done, Failure, Want
from .conversations import RecordedPartner
from .descriptions import describe
from .effect_traces import EffectTrace, TracedEffect, trace_effects

if TYPE_CHECKING:
    from .subjects import Subject
    from .transcripts import Transcript

__all__ = ["SharedKey", "UnstableKey", "shared_key", "unstable_key"]

#: Parts of the names of parameters that take a key. A step may also take the same
#: string as the id of a record that it writes, and then two calls may share it.
_KEYS: Final = ("key", "idem", "once", "dedup", "nonce", "token")


@frozen
class SharedKey:
    """One key for two calls of a step.

    Attributes:
        name: The name of the key.
        first: The first call.
        second: The second call.
        where: `file:line` of the second one.
    """

    name: str
    first: str
    second: str
    where: str | None


@frozen
class UnstableKey:
    """A key that differs when its round is run again.

    Attributes:
        name: The name of the key.
        because: The effect whose outcome differs.
        where: `file:line` of the key.
    """

    name: str
    because: str
    where: str | None


# ---- shared keys --------------------------------------------------------------------


def shared_key(traced: Iterable[TracedEffect]) -> SharedKey | None:
    """Return the first key that a step receives twice, with different arguments."""
    names: dict[str, str] = {}
    calls: dict[tuple[str, Any], TracedEffect] = {}
    for one in traced:
        effect = one.effect
        if isinstance(effect, IdempotencyKey) and isinstance(one.value, str):
            names[one.value] = effect.name
        for step in _steps(effect):
            for key in _keys_in(step, names):
                at = (key, _name_of(step))
                first = calls.setdefault(at, attrs.evolve(one, effect=step))
                if _written(first.effect) != _written(step):
                    return SharedKey(
                        names[key], describe(first.effect), describe(step), one.where
                    )
    return None


def _steps(effect: Any) -> list[Step[Any]]:
    match effect:
        case Step():
            return [effect]
        case Within(effect=inner):
            return _steps(inner)
        case FirstOf(effects=several):
            return [step for one in several for step in _steps(one)]
        case _:
            return []


def _name_of(step: Step[Any]) -> Any:
    return getattr(step.fn, "__qualname__", None) or repr(step.fn)


def _written(step: Any) -> str:
    return repr((step.args, dict(step.kwargs)))


def _keys_in(step: Step[Any], names: Mapping[str, str]) -> Iterator[str]:
    try:
        bound = inspect.signature(step.fn).bind(*step.args, **step.kwargs)
    except (TypeError, ValueError):
        return
    for parameter, value in bound.arguments.items():
        for name, part in _parts(parameter, value):
            if any(word in name.lower() for word in _KEYS):
                yield from (key for key in names if part == key)


def _parts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the strings in an argument, each with the nearest name around it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _parts(str(key), one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _parts(name, one)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _parts(field.name, getattr(value, field.name))


# ---- unstable keys ------------------------------------------------------------------

#: The tags of values that differ when their round is run again.
_DRAWN: Final = ("chance", "done")
#: Number of effects that get another outcome, one after the other.
_MOST: Final = 4


def unstable_key(
    subject: Subject, transcript: Transcript, trace: EffectTrace
) -> UnstableKey | None:
    """Return the first key that changes when a local effect of its round does."""
    keys = _keys(trace.effects)
    for effect in _suspects(trace.effects)[:_MOST]:
        again = trace_effects(subject, transcript, _Otherwise(transcript, effect))
        others = _keys(again.effects)
        for place, one in keys.items():
            other = others.get(place)
            if other is not None and _made_of(other) != _made_of(one):
                assert isinstance(one.effect, IdempotencyKey)
                return UnstableKey(one.effect.name, describe(effect), one.where)
    return None


def _keys(traced: Iterable[TracedEffect]) -> dict[tuple[str, int], TracedEffect]:
    """Return the keys of a conversation, by their place in their branch."""
    found: dict[tuple[str, int], TracedEffect] = {}
    count: dict[str, int] = {}
    for one in traced:
        if isinstance(one.effect, IdempotencyKey):
            count[one.path] = number = count.get(one.path, 0) + 1
            found[one.path, number] = one
    return found


def _made_of(one: TracedEffect) -> str:
    return repr((one.effect, getattr(one.effect, "about", ())))


def _suspects(traced: list[TracedEffect]) -> list[Effect[Any]]:
    """Return the local effects that precede a key in the same round."""
    found: list[Effect[Any]] = []
    for place, one in enumerate(traced):
        if isinstance(one.effect, IdempotencyKey):
            for before in traced[:place]:
                kind = KINDS.get(type(before.effect))
                is_drawn = kind is not None and kind.tag in _DRAWN
                is_local = is_drawn and before.error is None
                # Before the first question, each retry has a new key anyway.
                is_early = isinstance(before.effect, Step) and one.round == 1
                if before.round == one.round and is_local and not is_early:
                    found.append(before.effect)
    return found


class _Otherwise(RecordedPartner):
    """Replays a transcript, except that one effect has another outcome."""

    def __init__(self, transcript: Transcript, effect: Effect[Any]) -> None:
        super().__init__(transcript)
        self._effect = effect

    def perform(self, key: str, want: Want) -> Done | Failure:
        outcome = super().perform(key, want)
        if isinstance(outcome, Done) and want.effect == self._effect:
            return Done(_another(want.effect, outcome.value))
        return outcome


def _another(effect: Effect[Any], value: Any) -> Any:
    """Return another value the effect could have; `value` itself if none is found."""
    kind = KINDS[type(effect)]
    if kind.another is not None:
        return kind.another(value)
    written = json.loads(kind.write(effect, value))
    try:
        return kind.read(effect, dumps(_changed(written)))
    except Exception:
        return value  # its class takes only some values


def _changed(value: Any) -> Any:
    match value:
        case str():
            return f"{value}0"
        case int() | float() if not isinstance(value, bool):
            return value + 1
        case list():
            return [_changed(one) for one in value]
        case dict():
            return {name: _changed(one) for name, one in value.items()}
        case _:
            return value
