"""The names of the event loops that a server may need."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

__all__ = ["LOOPS", "LoopName"]

LoopName: TypeAlias = Literal["trio", "asyncio"]

#: A server that names none runs on the first.
LOOPS: Final[tuple[LoopName, ...]] = ("trio", "asyncio")
