"""The contents of a state token, and the request it is bound to.

Each request contains the tool, the arguments and the user again. So a token needs only
short keyed digests of these (MRTR, Server Requirements, 5: principal, originating
request). There are four digests instead of one, so that the log shows whether a client
mixed up its calls or used the state of another user
(docs/internals/state.md#what-is-bound-to-what).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from attrs import field

from ..canonical import JSON, dumps
from ..errors import StateReason, UsageError
from ..records import record

if TYPE_CHECKING:
    from ..engine.journal import Journal

__all__ = ["BOUND", "DIGEST_SIZE", "MAX_TIME", "Call", "Claims", "whole_seconds"]

#: 64 bits, keyed with the ring: without the key, each guess at a collision takes a
#: request to the server.
DIGEST_SIZE = 8

#: The digests in a call's bindings. They are checked in this order, and logs name the
#: first that differs.
BOUND: Final[tuple[StateReason, ...]] = (
    "audience",
    "target",
    "arguments",
    "principal",
)


@record(kw_only=True)
class Call:
    """The request that a state is bound to.

    Attributes:
        method: `tools/call`, `prompts/get` or `resources/read`.
        target: The tool's or prompt's name, or the resource's URI.
        arguments: The arguments as the client sent them; the order of keys does not
            matter.
        principal: The authenticated user, if the transport knows one.

    Raises:
        CanonicalError: If JSON cannot express the arguments or another part.
    """

    method: str
    target: str
    arguments: JSON = None
    principal: str | None = None
    # Encoded at once: a handler may modify its arguments, and the client will send the
    # original ones again.
    _texts: tuple[bytes, bytes, bytes] = field(init=False, repr=False, eq=False)
    # Cached, as a round binds twice: the state that it opens, and its next state.
    _bound: dict[tuple[bytes, str], bytes] = field(
        init=False, repr=False, eq=False, factory=dict
    )

    @_texts.default
    def _write(self) -> tuple[bytes, bytes, bytes]:
        if type(self.target) is not str:
            raise UsageError(f"Call(target={self.target!r}): give a text")
        name = _named if len(self.target) < _SHORT else _named.__wrapped__
        principal = b"null" if self.principal is None else dumps(self.principal)
        return name(self.method, self.target), dumps(self.arguments), principal

    def bind(self, key: bytes, audience: str) -> bytes:
        """Return the digests of this call on the server `audience`, as in `BOUND`."""
        bound = self._bound.get((key, audience))
        if bound is None:
            target, arguments, principal = self._texts
            # A server has few tools, and users send many requests, so caching pays.
            # Long URIs are left out, as they would fill the memory.
            is_short = len(target) + len(principal) < _SHORT
            digest = _remembered if is_short else _digest
            bound = self._bound[key, audience] = (
                _remembered(key, b"audience", audience.encode())
                + digest(key, b"target", target)
                + _digest(key, b"arguments", arguments)
                + digest(key, b"principal", principal)
            )
        return bound


def _digest(key: bytes, purpose: bytes, text: bytes) -> bytes:
    hasher = _keyed(key, purpose).copy()
    hasher.update(text)
    return hasher.digest()


# There are few keys, and setting one up is half the work of digesting a short string.
@lru_cache(maxsize=64)
def _keyed(key: bytes, purpose: bytes) -> blake2b:
    return blake2b(key=key, digest_size=DIGEST_SIZE, person=purpose)


_SHORT: Final = 256
_remembered: Final = lru_cache(maxsize=1024)(_digest)


@lru_cache(maxsize=1024)
def _named(method: str, target: str) -> bytes:
    # The end of a JSON value is unambiguous, so two joined values equal no other two.
    return dumps(method) + dumps(target)


#: Seconds: far beyond any clock, and far below what a token has room for.
MAX_TIME: Final = 2**40


def whole_seconds(now: float) -> int:
    """Return a time as states store it, in whole seconds.

    Raises:
        UsageError: If `now` is not a time.
    """
    if not 0 <= now <= MAX_TIME:  # true of NaN, too
        raise UsageError(f"now={now!r}: give seconds since 1970, as from time.time()")
    return int(now)


@record(kw_only=True)
class Claims:
    """The contents of a token.

    Values that could not be opened again are refused here, when a flow starts and
    nothing is lost yet.

    Attributes:
        flow_id: 128 random bits, drawn when the flow started.
        started: Start of the flow, in seconds since 1970: its absolute life counts from
            then.
        journal: The journal of the flow.
        version: The handler's declared version when the flow started.
        trace: The first round's trace context, so that later rounds can link to it.

    Raises:
        UsageError: If an attribute has another type or an impossible value.
    """

    flow_id: bytes
    started: int
    journal: Journal
    version: str | None = None
    trace: str | None = None

    def __attrs_post_init__(self) -> None:
        # One function instead of a validator per field: each round makes two `Claims`.
        started: object = self.started
        if type(started) is not int or not 0 <= started <= MAX_TIME:
            raise UsageError(
                f"Claims(started={started!r}): give whole seconds since 1970"
            )
        if self.version is not None and type(self.version) is not str:
            raise UsageError(f"Claims(version={self.version!r}): give a text")
        if self.trace is not None and type(self.trace) is not str:
            raise UsageError(f"Claims(trace={self.trace!r}): give a text")

    def after(self, journal: Journal) -> Claims:
        """Return the claims of the same flow after its next round."""
        return Claims(
            flow_id=self.flow_id,
            started=self.started,
            journal=journal,
            version=self.version,
            trace=self.trace,
        )
