"""A flow's journal ↔ `requestState`: sealed text that any replica with the keys can open.

    Claims ── codec ──→ bytes ── keys ──→ unreadable, signed, URL-safe text
                                 seal: the rules that a token must meet to be opened

Layers that each add one property and can be tested alone (docs/internals/state.md#layers):

    claims   what a token says, and to which request it belongs
    codec    claims ↔ bytes: short, and shortened only where that tells nothing
    keys     bytes ↔ text: unreadable (AES-SIV), signed (HMAC-SHA-256), a ring of keys
    seal     limits, times, bindings; every failure the same error

Pure: the time is an argument everywhere, and so is chance.
"""

from __future__ import annotations

from .claims import Call, Claims
from .keys import Keys, make_key
from .seal import Sealer

__all__ = ["Call", "Claims", "Keys", "Sealer", "make_key"]
