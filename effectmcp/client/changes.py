"""The changes that a server reports, until the program reads them; see `Client.listen`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Self

import anyio

from ..canonical import JSON
from ..errors import UsageError
from .channels import Frame
from .errors import ReplyError
from .limits import LARGEST, MOST_TOLD, memory_of

__all__ = ["Changes", "wanted_changes"]


class Changes:
    """An iterator of the changes that arrive. The number that wait is limited."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[
            tuple[Frame, int]
        ](math.inf)
        self._size = 0

    def add(self, told: Frame) -> None:
        """Add a change.

        Raises:
            ReplyError: If too many wait already.
        """
        size = memory_of(dict(told))
        waiting = self._send.statistics().current_buffer_used
        if waiting >= MOST_TOLD or self._size + size > LARGEST:
            raise ReplyError(f"{waiting + 1:,} changes wait, and are not read")
        self._size += size
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._send.send_nowait((told, size))

    def end(self) -> None:
        """End the iteration, after the changes that wait."""
        self._send.close()

    def close(self) -> None:
        """Drop the changes that wait."""
        self._send.close()
        self._receive.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        told, size = await anext(self._receive)
        self._size -= size
        return told


def wanted_changes(
    *,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Iterable[str],
    tasks: Iterable[str],
) -> dict[str, JSON]:
    """Return the `notifications` of a `subscriptions/listen`.

    Raises:
        UsageError: If an argument has another type: a list is true, and would subscribe
            to changes of the list of resources instead of to these resources.
    """
    lists = {
        "tools": ("toolsListChanged", tools, ""),
        "prompts": ("promptsListChanged", prompts, ""),
        "resources": ("resourcesListChanged", resources, "; for resources, give uris="),
    }
    several = {
        "uris": ("resourceSubscriptions", uris, "the URIs of resources"),
        "tasks": ("taskIds", tasks, "the ids of tasks"),
    }
    wanted: dict[str, JSON] = {}
    for name, (field, is_wanted, advice) in lists.items():
        if not isinstance(is_wanted, bool):
            raise UsageError(
                f"listen({name}={is_wanted!r}): give True or False{advice}"
            )
        if is_wanted:
            wanted[field] = True
    for name, (field, given, nouns) in several.items():
        found = list(_strings(name, given, nouns))
        if found:
            wanted[field] = found
    return wanted


def _strings(name: str, given: Any, nouns: str) -> Iterator[str]:
    # A string is an iterable of strings, too.
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"listen({name}={given!r}): give a list of {nouns}")
    for one in given:
        if not isinstance(one, str):
            raise UsageError(
                f"listen({name}=...): {one!r} is not a string; give a list of {nouns}"
            )
        yield one
