"""Divergence: how a journal and its handler differ, and the entries that may stay.

Four policies, for when effect *i* does not match entry *i*, or entries are left over:

    salvage   drop the entries that were not delivered yet; answers wait in a pool for
              their questions, which match by fingerprint. Used where answers arrive
              by retry: this is the protocol's own rolling-upgrade case
    stop      refuse to continue. A salvage that would drop a performed step stops, too,
              unless the step is replayable: silently charging twice is worse than
              starting again
    park      change nothing and try later. For tasks, which a rollback may still save
    strict    raise an error for any difference. For tests

See docs/internals/replay.md#divergence. Only effects and entries are compared, never
the code (docs/internals/replay.md#d3).

A report quotes the handler's file and line, so it belongs in logs, never in a reply.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from attrs import frozen

from .journal import Entry, Pooled, fate_of

__all__ = ["Policy", "Report", "flatten", "is_stopping", "pooled_of"]

Policy: TypeAlias = Literal["salvage", "stop", "park", "strict"]


@frozen(kw_only=True)
class Report:
    """A report of why a flow no longer fits its handler.

    Attributes:
        handler: `module:qualname`.
        version: The handler's declared version, if any.
        round: Interim results so far.
        place: Branch path and index in its sequence.
        recorded: The recorded entry's key and tag, or `None` at the end.
        current: The effect that the handler yielded instead; `None` at its end.
        text: The text of the current question, if any.
        where: `file:line` of the yield.
        cause: The kind of difference.
    """

    handler: str
    version: str | None = None
    round: int
    place: str
    recorded: str | None
    current: str | None
    text: str | None = None
    where: str | None
    cause: Literal[
        "differs", "left over", "surplus", "stale", "unfit", "versions", "gone"
    ]

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        version = f" (version {self.version})" if self.version else ""
        text = f" ({self.text!r})" if self.text else ""
        return (
            f"{self.handler}{version} no longer follows its journal, in round"
            f" {self.round}, {self.place}{at}: recorded was"
            f" {self.recorded or 'nothing more'}, and now comes"
            f" {self.current or 'the end'}{text}. {CAUSES[self.cause]}"
        )


#: The usual causes, the likeliest first.
CAUSES: Final = {
    "differs": (
        "Usual causes: the handler was edited under a running flow (Version() keeps old"
        " flows on the old path); it branches on something that is not a recorded answer"
        " (a clock, a global, the environment, randomness: use Now, Random or a Step); it"
        " walks over a set."
    ),
    "left over": (
        "Usual causes: the handler was edited and now ends or branches earlier; it"
        " branches on something that is not a recorded answer."
    ),
    "surplus": (
        "Usual causes: a Gather over fewer items than before, taken from something that"
        " is not a recorded answer."
    ),
    "stale": (
        "The question's text changed after it was answered. Usual causes: it was"
        " reworded, or another was put in or taken out before it (key= keeps an answer"
        " to its question); it shows a clock, an id or a random value (use Now, Uuid,"
        " Random), a global or the environment; it walks over a set."
    ),
    "unfit": (
        "A recorded answer does not fit the form any more: a validator was changed, and"
        " something was built on the answer since."
    ),
    "versions": (
        "The same question keeps changing its text from round to round, and one server"
        " alone is consistent. Either two versions of the handler are being served:"
        " finish the deployment, or send one flow's rounds to one version. Or the text"
        " differs from process to process: it walks over a set, or comes from hash(),"
        " the environment or a file."
    ),
    "gone": "The handler that the flow restarted as is no longer there.",
}


def flatten(entries: Iterable[Entry], path: str) -> Iterable[Pooled]:
    """Yield the entries of a dropped part, branches included, with their paths."""
    # Depth is bounded by the nesting that Gather admits.
    for entry in entries:
        yield Pooled(path, entry)
        for index, branch in enumerate(entry.branches):
            yield from flatten(branch, f"{path}{entry.key}/{index}/")


def is_stopping(dropped: Iterable[Pooled]) -> bool:
    """Whether dropping these would forget a step that must not be performed again."""
    return any(fate_of(one.entry) == "stop" for one in dropped)


def pooled_of(dropped: Iterable[Pooled]) -> list[Pooled]:
    """Return the answers of a dropped part, which wait for their questions."""
    return [one for one in dropped if fate_of(one.entry) == "pool"]
