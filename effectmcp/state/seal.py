"""Seal and open: the limits, times and bindings that a state must meet.

A `requestState` is whatever a client chose to send (MRTR, Server Requirements, 4: "MUST
treat `requestState` as an attacker-controlled input"). Opening one goes through the
checks below in this order and stops at the first; each is the same `StateError` outside.

    size, alphabet, format    nothing is computed on it yet
    signature                 nothing is decrypted, inflated or parsed before
    bindings                  audience, target, arguments, principal
    times                     from the future, expired, past its absolute life
"""

from __future__ import annotations

import hmac
import logging
from typing import Final

from attrs import frozen

from ..errors import StateError, StateReason, StateSizeError
from .claims import Call, Claims, bind
from .codec import Packed, PackingError, pack, sizes, unpack
from .keys import Keys

__all__ = ["Sealer"]

logger = logging.getLogger("effectmcp.state")

#: In the order in which they are checked, and named in logs.
_BOUND: Final[tuple[StateReason, ...]] = (
    "audience",
    "target",
    "arguments",
    "principal",
)


@frozen(kw_only=True)
class Sealer:
    """Seals claims into tokens and opens them again, for one server.

    Attributes:
        keys: The ring.
        audience: This server's name: servers that share keys do not share states.
        ttl: Seconds until a state expires; each round gets a new one.
        life: Seconds that a flow may take, from its first round on.
        leeway: Seconds that two replicas' clocks may differ.
        warn_at: Characters from which on the log tells what takes the room.
        refuse_at: Characters that no state has, sealed or opened.
    """

    keys: Keys
    audience: str
    ttl: int = 3600
    life: int = 24 * 3600
    leeway: int = 60
    warn_at: int = 16 * 1024
    refuse_at: int = 64 * 1024

    def seal(self, claims: Claims, call: Call, *, now: int) -> str:
        """The token that lets `call` go on from `claims`.

        Raises:
            StateSizeError: It would be too large, naming what takes the room.
        """
        # Two replicas' clocks: a flow is not issued before it started.
        issued = max(now, claims.started)
        bindings = bind(self.keys.sealing.binding, self.audience, call)
        try:
            data = pack(Packed(claims, bindings, issued, issued + self.ttl))
        except PackingError:
            size = sum(size for _, size in sizes(claims.journal))
            raise self._too_large(claims, size) from None
        token = self.keys.wrap(data)
        if len(token) > self.refuse_at:
            raise self._too_large(claims, len(token))
        if len(token) > self.warn_at:
            logger.warning(
                "the state of %s has %d characters; the largest entries: %s",
                call.target,
                len(token),
                sizes(claims.journal)[:3],
            )
        return token

    def open(self, token: str, call: Call, *, now: int) -> Claims:
        """What `seal` was given, if this very `call` may go on from it now.

        Raises:
            StateError: It may not. The reason goes to the log, and only there.
        """
        try:
            return self._open(token, call, now)
        except StateError as exc:
            logger.info(
                "a requestState for %s was refused: %s", call.target, exc.reason
            )
            raise

    def _open(self, token: str, call: Call, now: int) -> Claims:
        given: object = token
        if not isinstance(given, str) or len(given) > self.refuse_at:
            raise StateError("malformed")
        data, key = self.keys.unwrap(given)
        try:
            packed = unpack(data)
        except PackingError as exc:
            logger.warning("a requestState that we signed cannot be read: %s", exc)
            raise StateError("malformed") from None
        bindings = bind(key.binding, self.audience, call)
        for name in _BOUND:
            if not hmac.compare_digest(
                getattr(packed.bindings, name), getattr(bindings, name)
            ):
                raise StateError(name)
        if packed.issued > now + self.leeway:
            raise StateError("future")
        if packed.expires < now - self.leeway:
            raise StateError("expired")
        if packed.claims.started + self.life < now - self.leeway:
            raise StateError("lifetime")
        return packed.claims

    def _too_large(self, claims: Claims, size: int) -> StateSizeError:
        return StateSizeError(size, self.refuse_at, sizes(claims.journal)[:3])
