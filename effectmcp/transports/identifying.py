"""Wait for the identity of a user: an author's coroutine, or a generator of HTTP requests.

Requests that serve all users, such as one for an issuer's keys, are sent one at a time: all
that wait for one get the same response.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..fetching.sending import SyncSender

__all__ = ["send_for", "wait_for"]


_shared: Final[list[SyncSender]] = []


async def wait_for(found: Any) -> Any:
    """Return what an authenticator finds, on an event loop."""
    if isinstance(found, Generator):
        from ..fetching.requests import fetch_all_async
        from ..fetching.sending import own_sender

        return await fetch_all_async(found, own_sender())
    return await found if inspect.isawaitable(found) else found


def send_for(found: Any) -> Any:
    """Return what an authenticator finds, in a thread; an awaitable as it is."""
    if isinstance(found, Generator):
        from ..fetching.requests import fetch_all
        from ..fetching.sending import SyncSender

        if not _shared:
            _shared.append(SyncSender())
        return fetch_all(found, _shared[0])
    return found
