"""The changes that a client requests with `subscriptions/listen`. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..canonical import JSON
from ..errors import UsageError

__all__ = ["wanted_changes"]


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
