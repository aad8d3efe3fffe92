"""A flow's journal ↔ `requestState`: sealed text that any replica with the keys can open.

    Claims ── codec ──→ bytes ── keys ──→ unreadable, signed, URL-safe text
                                 seal: the rules that a token must meet to be opened

Layers that each add one property and can be tested alone (docs/internals/state.md#layers):

    codec    claims ↔ bytes: compact, and compressed only where that reveals nothing
    keys     bytes ↔ text: unreadable (AES-SIV), signed (HMAC-SHA-256), a ring of keys
    seal     limits, times, the request it is bound to; every failure is the same error

No I/O, clock or randomness: the time and random bytes are arguments.
"""

from __future__ import annotations

from .codec import Claims
from .keys import Keys, make_key
from .seal import BoundCall, Sealer

__all__ = ["BoundCall", "Claims", "Keys", "Sealer", "make_key"]
