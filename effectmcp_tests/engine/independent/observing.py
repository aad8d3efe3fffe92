"""Observations of a round, their comparison, and the laws that need no model."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

from attrs import define, field

from .records import KeyOf, Wire
from .stage import STEPS

__all__ = [
    "EARLY",
    "AskedText",
    "Difference",
    "Names",
    "Seen",
    "compare",
    "identity",
    "laws",
    "latest",
]


#: The kind, explicit key and message of a question.
AskedText: TypeAlias = tuple[str, str | None, str]

#: Counts the requests that brought early answers.
EARLY: AskedText = ("early", None, "")


class Difference(AssertionError):
    """The engine and the rules differ, or a law is broken."""


@define(kw_only=True)
class Seen:
    """Everything observable of one round.

    Attributes:
        ask: Key, text and whether there is a problem (None: open), for each question.
        end: How the round ended, as words.
        logs: Messages sent; the model pairs each with whether it is (None: open).
        asked: What identifies each question, by key.
    """

    performed: list[tuple[Any, ...]] = field(factory=list)
    events: list[tuple[Any, ...]] = field(factory=list)
    ask: list[tuple[Any, str, bool | None]] = field(factory=list)
    end: tuple[Any, ...] = ()
    logs: list[Any] = field(factory=list)
    asked: dict[str, AskedText] = field(factory=dict)


@define
class Names:
    """The names that each engine gives to the same thing, for a flow's life."""

    forth: dict[str, Any] = field(factory=dict)
    back: dict[Any, str] = field(factory=dict)

    def same(self, real: Any, predicted: Any) -> bool:
        """Whether both are equal, names compared by what they were used for so far."""
        if isinstance(predicted, KeyOf | Wire):
            known = self.forth.setdefault(real, predicted)
            other = self.back.setdefault(predicted, real)
            return bool(known == predicted and other == real)
        if isinstance(predicted, tuple | list):
            return len(real) == len(predicted) and all(map(self.same, real, predicted))
        return bool(real == predicted)


def compare(real: Seen, predicted: Seen, names: Names) -> str | None:
    """The first difference, in words."""
    if real.end == predicted.end == ("stopped",):
        # Nothing is left of such a round: how far the handler came is open.
        return "performed before a hard stop" if real.performed else None
    for what in ("events", "performed"):
        ours, theirs = getattr(real, what), getattr(predicted, what)
        for number, (left, right) in enumerate(zip(ours, theirs, strict=False)):
            if left != right and not names.same(left, right):
                return f"{what} {number}: got {left}, expected {right}"
        if len(ours) != len(theirs):
            number = min(len(ours), len(theirs))
            return f"{what}: got {ours[number:]}, expected {theirs[number:]}"
    if real.end != predicted.end:
        return f"end: got {real.end}, expected {predicted.end}"
    texts = [text for _, text, _ in real.ask], [text for _, text, _ in predicted.ask]
    if texts[0] != texts[1]:
        return f"asked: got {texts[0]}, expected {texts[1]}"
    for left, right in zip(real.ask, predicted.ask, strict=True):
        if not names.same(left[0], right[0]):
            known = names.forth[left[0]], names.back.get(right[0])
            return f"key of {left[1]!r}: got {left[0]}, expected {right[0]}; {known=}"
        if right[2] is not None and left[2] != right[2]:
            return f"problem of {left[1]!r}: got {left[2]}, expected {right[2]}"
    sure = [label for label, is_heard in predicted.logs if is_heard is not False]
    must = [label for label, is_heard in predicted.logs if is_heard]
    if any(label not in sure for label in real.logs) or any(
        label not in real.logs for label in must
    ):
        return f"logs: got {real.logs}, expected {predicted.logs}"
    return None


def identity(performed: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how events name a step: its kind, label and count."""
    kind, *args = performed
    counted = len(args) > 1 and isinstance(args[1], int)
    return (kind, *args[: 2 if counted else 1])


def laws(
    seen: Seen,
    consents: set[str],
    answered: Counter[AskedText],
    past: Counter[tuple[Any, ...]],
) -> tuple[bool, Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """Check what the handler met in a round.

    Returns:
        Whether it restarted; the steps it received, in this generation; and before.
    """
    received: Counter[tuple[Any, ...]] = Counter()
    wanted: Counter[AskedText] = Counter()
    did_restart = has_begun = False
    heard: set[AskedText] = set()
    for event in seen.events:
        match event:
            case (_, "wants", "elicit" | "confirm" as kind, key, text):
                wanted[kind, key, text] += 1
            case (_, "heard", kind, key, text):
                heard.add((kind, key, text))
            case (_, "did" | "met" as what, kind, *rest) if kind in STEPS:
                name = (kind, *(rest if what == "did" else rest[:-1]))
                if kind != "replayable" and rest[-1] != "Cancelled":
                    received[name] += 1
            case (_, "consents", text) if text not in consents:
                raise Difference(f"True for {text!r}, which no user accepted")
            case (_, "begins"):
                past, received = past + received, Counter()
                did_restart, has_begun = has_begun, True
                if did_restart:
                    wanted.clear()
                    answered.clear()
            case _:
                pass
    for wire, text, problem in seen.ask:
        asked = seen.asked[wire]
        once = answered[asked] == wanted[asked] == 1
        if asked[1] is not None and answered[EARLY]:
            # An early answer names a key, so its question is not known.
            continue
        if once and not problem and asked not in heard:
            raise Difference(f"{text!r} was answered, and is asked again")
    return did_restart, received, past


def latest(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The events of the last generation: a replay begins there."""
    start = max(at for at, event in enumerate(events) if event[1] == "begins")
    return events[start:]
