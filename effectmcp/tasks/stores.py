"""The part of a store that operators use, on this machine or behind an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from attrs import frozen

from ..exchange.task_rows import TaskHost, TaskRow

__all__ = ["Store", "Stored"]


@frozen
class Stored:
    """A task and what the store knows of it, for operators.

    Attributes:
        row: The task, without the questions that mail has answered.
        holder: What runs its turn: a process, as `PID-NAME`, or an invocation of the
            engine; `None` if nothing does.
        mail: The kinds of mail that no saved row covers yet.
    """

    row: TaskRow
    holder: str | None
    mail: tuple[str, ...]


class Store(TaskHost, Protocol):
    """A `TaskHost` of this package: operators can look after its tasks."""

    def look_up(self, ids: Iterable[str] = (), *, limit: int = 1_000) -> list[Stored]:
        """Return the same as `find`, with what the store knows of each task."""
        ...

    def close(self) -> None:
        """Give back what this process holds of it. The next call opens it again."""
