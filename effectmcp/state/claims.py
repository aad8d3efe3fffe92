"""What a token says, and to which request it belongs.

The request itself proves most of it: the tool it calls, with which arguments, as whom.
So a token holds short keyed digests of these (MRTR, Server Requirements, 5: principal,
originating request), not the things. Four digests and not one, so that a log can tell a
client that mixed up its calls from one that took somebody else's state
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

#: 64 bits, keyed with the ring: whoever lacks the key cannot look for collisions but by
#: asking the server, once a guess.
DIGEST_SIZE = 8

#: What has a digest of its own in a call's bindings, in their order: that in which they
#: are checked, and named in logs.
BOUND: Final[tuple[StateReason, ...]] = (
    "audience",
    "target",
    "arguments",
    "principal",
)


@record(kw_only=True)
class Call:
    """The request that a state belongs to.

    Attributes:
        method: `tools/call`, `prompts/get` or `resources/read`.
        target: The tool's or prompt's name, or the resource's URI.
        arguments: As the client sent them; the order of keys does not matter.
        principal: The authenticated user, if the transport knows one.

    Raises:
        CanonicalError: Something in it is nothing that JSON could carry.
    """

    method: str
    target: str
    arguments: JSON = None
    principal: str | None = None
    # Written down at once: a handler may change the arguments that it was given, and
    # the client will send them again as they were.
    _texts: tuple[bytes, bytes, bytes] = field(init=False, repr=False, eq=False)
    # A round binds twice: the state that it opens, and the one that it seals.
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
        """The digests of this call on the server `audience`, those of `BOUND` in a row."""
        bound = self._bound.get((key, audience))
        if bound is None:
            target, arguments, principal = self._texts
            bound = self._bound[key, audience] = (
                _digest_again(key, b"audience", audience.encode())
                + _digest_again(key, b"target", target)
                + _digest(key, b"arguments", arguments)
                + _digest_again(key, b"principal", principal)
            )
        return bound


def _digest(key: bytes, purpose: bytes, text: bytes) -> bytes:
    hasher = _keyed(key, purpose).copy()
    hasher.update(text)
    return hasher.digest()


# Keys are few, and taking one in is half the work of digesting a short text.
@lru_cache(maxsize=64)
def _keyed(key: bytes, purpose: bytes) -> blake2b:
    return blake2b(key=key, digest_size=DIGEST_SIZE, person=purpose)


_SHORT: Final = 256
_remembered: Final = lru_cache(maxsize=1024)(_digest)


def _digest_again(key: bytes, purpose: bytes, text: bytes) -> bytes:
    # A server has few tools, and its users come back; but a URI may be of any length.
    return (_remembered if len(text) < _SHORT else _digest)(key, purpose, text)


@lru_cache(maxsize=1024)
def _named(method: str, target: str) -> bytes:
    # A JSON text ends where it ends, so two in a row are no other two.
    return dumps(method) + dumps(target)


#: Far beyond any clock, and far from what would not fit a token.
MAX_TIME: Final = 2**40


def whole_seconds(now: float) -> int:
    """A time as states have it.

    Raises:
        UsageError: It is none.
    """
    if not 0 <= now <= MAX_TIME:  # so NaN is none, too
        raise UsageError(f"now={now!r}: give seconds since 1970, as from time.time()")
    return int(now)


@record(kw_only=True)
class Claims:
    """What a token says.

    What could not be opened again is refused here, when a flow begins and nothing is
    lost yet.

    Attributes:
        flow_id: 128 random bits, drawn when the flow began.
        started: When that was, in seconds since 1970: the absolute life counts from it.
        journal: What was recorded.
        version: The handler's declared version when the flow began.
        trace: The first round's trace context, so that later rounds can link to it.

    Raises:
        UsageError: One of these is not what it says here.
    """

    flow_id: bytes
    started: int
    journal: Journal
    version: str | None = None
    trace: str | None = None

    def __attrs_post_init__(self) -> None:
        # In one call: two of these are made each round.
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
        """The same flow, a round later."""
        return Claims(
            flow_id=self.flow_id,
            started=self.started,
            journal=journal,
            version=self.version,
            trace=self.trace,
        )
