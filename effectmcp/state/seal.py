"""Seal and open: the limits, times and bindings that a state must meet.

A client can send anything as its `requestState` (MRTR, Server Requirements, 4: "MUST
treat `requestState` as an attacker-controlled input"). Opening it runs the checks below
in this order and stops at the first failure. Clients get the same error for each.

    size, alphabet, format    nothing is computed on the token before
    signature                 nothing is decrypted, inflated or parsed before
    bindings                  audience, target, arguments, principal
    times                     from the future, expired, past its absolute life

For the reasons of the order, see docs/internals/state.md#opening. Nothing here keeps a
state from being used twice (docs/internals/replay.md#s7).
"""

from __future__ import annotations

import hmac
import logging
from typing import Any, Final

import attrs
from attrs import field, frozen

from ..errors import StateError, StateReason, StateSizeError, UsageError
from .claims import BOUND, DIGEST_SIZE, Call, Claims, whole_seconds
from .codec import (
    INFLATED,
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

__all__ = ["Sealer"]

logger = logging.getLogger("effectmcp.state")

#: Limit of the numbers in the options; tokens have room for larger ones.
MAX_COUNT: Final = 2**30


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

    def seal(self, claims: Claims, call: Call, *, now: float) -> str:
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

    def open(self, token: str, call: Call, *, now: float) -> Claims:
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


def _refusal(exc: StateError | PackingError, call: Call) -> StateError:
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
