"""Seal and open: the limits, times and bindings that a state must meet.

A client can send anything as its `requestState` (MRTR, Server Requirements, 4: "MUST
treat `requestState` as an attacker-controlled input"). Opening it runs the checks below
in this order and stops at the first failure. Clients get the same error for each.

    size, alphabet, format    nothing is computed on the token before
    signature                 nothing is decrypted, inflated or parsed before
    bindings                  audience, target, arguments, principal
    times                     from the future, expired, past its absolute life

For the reasons of the order, see docs/internals/state.md#opening. Nothing here keeps a
state from being used twice: see `exchange.ledger`.

Each request contains the tool, the arguments and the user again. So a token needs only
short keyed digests of these (MRTR, Server Requirements, 5: principal, originating
request). There are four digests instead of one, so that the log shows whether a client
mixed up its calls or used the state of another user
(docs/internals/state.md#what-is-bound-to-what).
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import attrs
from attrs import Factory, field, frozen

from ..canonical import JSON, dumps
from ..errors import StateError, StateReason, StateSizeError, UsageError
from ..logs import logger_for
from ..records import record
from .codec import (
    BINDINGS,
    INFLATED,
    MAX_TIME,
    Claims,
    NewerError,
    OversizedError,
    Packed,
    PackingError,
    inflated_size,
    pack,
    sizes,
    unpack,
)
from .keys import Keys

__all__ = ["BOUND", "DIGEST_SIZE", "BoundCall", "Sealer", "whole_seconds"]

logger = logger_for("effectmcp.state")

#: The digests in a call's bindings. They are checked in this order, and logs name the
#: first that differs.
BOUND: Final[tuple[StateReason, ...]] = (
    "audience",
    "target",
    "arguments",
    "principal",
)
#: 64 bits, keyed with the ring: without the key, each guess at a collision takes a
#: request to the server.
DIGEST_SIZE: Final = BINDINGS // len(BOUND)
#: Limit of the numbers in the options; tokens have room for larger ones.
MAX_COUNT: Final = 2**30


# ---- bindings -----------------------------------------------------------------------


def _written(call: BoundCall) -> tuple[bytes, bytes, bytes]:
    if type(call.target) is not str:
        raise UsageError(f"BoundCall(target={call.target!r}): give a text")
    name = _named if len(call.target) < _SHORT else _named.__wrapped__
    principal = b"null" if call.principal is None else dumps(call.principal)
    return name(call.method, call.target), dumps(call.arguments), principal


@record(kw_only=True)
class BoundCall:
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
    _texts: tuple[bytes, bytes, bytes] = field(
        default=Factory(_written, takes_self=True), init=False, repr=False, eq=False
    )
    # Cached, as a round binds twice: the state that it opens, and its next state.
    _bound: dict[tuple[bytes, str], bytes] = field(
        init=False, repr=False, eq=False, factory=dict
    )

    def bind(self, key: bytes, audience: str) -> bytes:
        """Return the digests of this call on the server `audience`, as in `BOUND`."""
        bound = self._bound.get((key, audience))
        if bound is None:
            target, arguments, principal = self._texts
            # A server has few tools, and users send many requests, so caching pays.
            # Long URIs are left out, as they would fill the memory.
            is_short = len(target) + len(principal) < _SHORT
            digest = _remembered if is_short else _digest
            hasher = _keyed(key, b"arguments").copy()
            hasher.update(arguments)
            bound = self._bound[key, audience] = (
                _remembered(key, b"audience", audience.encode())
                + digest(key, b"target", target)
                + hasher.digest()
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


# ---- tokens -------------------------------------------------------------------------


def whole_seconds(now: float) -> int:
    """Return a time as states store it, in whole seconds.

    Raises:
        UsageError: If `now` is not a time.
    """
    if not 0 <= now <= MAX_TIME:  # true of NaN, too
        raise UsageError(f"now={now!r}: give seconds since 1970, as from time.time()")
    return int(now)


def _check_count(
    sealer: Sealer, attribute: attrs.Attribute[Any], value: object
) -> None:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise UsageError(f"Sealer({attribute.name}={value!r}): give a whole number")


def _check_audience(
    sealer: Sealer, attribute: attrs.Attribute[Any], value: object
) -> None:
    if type(value) is not str or not value or not value.isprintable():
        raise UsageError(f"Sealer(audience={value!r}): give the server's name")


def _check_keys(sealer: Sealer, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Keys):
        raise UsageError("Sealer(keys=...): give Keys(...)")  # may be secret


@frozen(kw_only=True)
class Sealer:
    """Seals claims into tokens and opens them again, for one server.

    Attributes:
        keys: The ring of keys.
        audience: This server's name: servers that share keys do not share states.
        ttl: Seconds until a state expires; each round gets a new state.
        life: Seconds that a flow may take, from its first round on.
        leeway: Seconds by which the clocks of replicas may differ.
        warn_at: Characters from which on the log lists the largest parts of a state.
        refuse_at: Limit in characters of any state that is sealed or opened.
    """

    keys: Keys = field(validator=_check_keys)
    audience: str = field(validator=_check_audience)
    ttl: int = field(default=3600, validator=_check_count)
    life: int = field(default=24 * 3600, validator=_check_count)
    leeway: int = field(default=60, validator=_check_count)
    warn_at: int = field(default=16 * 1024, validator=_check_count)
    refuse_at: int = field(default=64 * 1024, validator=_check_count)

    def seal(self, claims: Claims, call: BoundCall, *, now: float) -> str:
        """Return the token with which a repetition of `call` can resume from `claims`.

        Args:
            claims: The contents of the token.
            call: The request that the next round must match.
            now: Seconds since 1970.

        Raises:
            StateSizeError: If the token would be too large; names its largest parts.
            UsageError: If the journal is one of a task, which no client carries.
        """
        # Replicas' clocks may differ: no token is issued before its flow started.
        issued = max(whole_seconds(now), claims.started)
        bindings = call.bind(self.keys.sealing.binding, self.audience)
        try:
            data = pack(Packed(claims, bindings, issued, issued + self.ttl))
        except OversizedError:
            size = inflated_size(claims.journal)
            raise StateSizeError(size, INFLATED, _largest(claims)) from None
        except PackingError as exc:
            raise UsageError(f"this journal cannot be sealed: {exc}") from None
        token = self.keys.wrap(data)
        if len(token) > self.refuse_at:
            raise StateSizeError(len(token), self.refuse_at, _largest(claims))
        if len(token) >= self.warn_at:
            logger.warning(
                "the state of %r has %d characters; the largest entries: %s",
                call.target,
                len(token),
                _largest(claims),
            )
        return token

    def open(self, token: str, call: BoundCall, *, now: float) -> Claims:
        """Return the claims that `seal` was given, if `call` may resume from them now.

        Raises:
            StateError: If it may not. The reason is in the log, and only there.
        """
        seconds = whole_seconds(now)
        given: object = token
        try:
            if not isinstance(given, str) or len(given) > self.refuse_at:
                raise StateError("malformed")
            data, key = self.keys.unwrap(given)
            packed = unpack(data)
            bindings = call.bind(key.binding, self.audience)
            if not hmac.compare_digest(packed.bindings, bindings):
                raise StateError(_differing(packed.bindings, bindings))
            self.check_times(packed, seconds)
        except (StateError, PackingError) as exc:
            raise _refusal(exc, call) from None
        return packed.claims

    def last_use(self, token: str) -> int:
        """Return when the last clock of a replica lets `open` refuse a token as expired.

        Args:
            token: A token that `open` has accepted.
        """
        data, _ = self.keys.unwrap(token)
        # The clock of a replica may be late, and the clock of the store early.
        return unpack(data).expires + 2 * self.leeway

    def last_round(self, claims: Claims) -> int:
        """Return when no state of a flow can be used any more, on any replica."""
        return claims.started + self.life + 2 * self.leeway

    def check_times(self, packed: Packed, now: int) -> None:
        """Check that a state may be used now.

        Raises:
            StateError: If it is from the `future`, `expired`, or past its `lifetime`.
        """
        if packed.issued > now + self.leeway:
            raise StateError("future")
        if packed.expires < now - self.leeway:
            raise StateError("expired")
        if packed.claims.started + self.life < now - self.leeway:
            raise StateError("lifetime")


def _refusal(exc: StateError | PackingError, call: BoundCall) -> StateError:
    """Log why a state is refused, and return the error to raise."""
    if isinstance(exc, NewerError):
        # Another replica runs a newer version, as in a rolling deployment.
        exc = StateError("format")
    elif isinstance(exc, PackingError):
        logger.warning("a requestState that we signed cannot be read: %s", exc)
        exc = StateError("malformed")
    # The client chose the target: %r keeps it from forging lines of the log.
    logger.info("a requestState for %r was refused: %s", call.target, exc.reason)
    return exc


def _differing(sealed: bytes, now: bytes) -> StateReason:
    # See docs/internals/state.md#what-is-bound-to-what.
    digests = zip(BOUND, _digests(sealed), _digests(now), strict=True)
    differing: list[StateReason] = [
        name for name, theirs, ours in digests if not hmac.compare_digest(theirs, ours)
    ]
    return differing[0]


def _digests(bindings: bytes) -> list[bytes]:
    size = DIGEST_SIZE
    return [bindings[at : at + size] for at in range(0, len(bindings), size)]


def _largest(claims: Claims) -> list[tuple[str, int]]:
    return sizes(claims.journal)[:3]
