"""Rounds by retry, their answers, and a step that notes what it performs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from effectmcp import (
    Accepted,
)
from effectmcp.engine import (
    Asked,
    Journal,
)

from ..helpers import (
    UNCAPPED,
    advance,
    keys,
    messages,
    run,
)

__all__ = ["do", "performed", "round_of", "say"]

performed: list[str] = []


def do(what: str) -> str:
    performed.append(what)
    return what


def round_of(
    handler: Callable[..., Any],
    journal: Journal | None = None,
    said: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Journal]:
    """One round by retry: where it stopped, and the journal that goes out."""
    one = run(handler, journal=journal, **{"rules": UNCAPPED, **options})
    stop = advance(one, one.start(said))
    return stop, Journal.loads(one.suspend().dumps())


def say(stop: Any, *texts: str) -> dict[str, Any]:
    """Return answers to the questions with these messages, or to all of the round."""
    assert isinstance(stop, Asked), stop
    return {
        key: Accepted({"value": f"re: {text}"})
        for key, text in zip(keys(stop), messages(stop), strict=True)
        if not texts or text in texts
    }
