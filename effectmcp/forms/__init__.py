"""A form ↔ `requestedSchema`; an answer → a value, or everything that is wrong with it.

    attrs class ── classes.py ──┐
    annotation ─────────────────┴─ types.py, validators.py ──┐
    raw schema ──────────────────────────────────────────────┴─→ fields.py: one Field a
                                                                 property ─→ Form

All ways in end in the same `Field`s, and a `Field` checks by its *schema*, so what the
client was shown and what the server accepts cannot drift apart. Only three things are
told in words and checked afterwards: what the schema subset cannot say (`matches_re`,
exclusive float bounds, validators of your own), a format's calendar (year 0000, leap
seconds), and integers that JavaScript would round.
"""

from __future__ import annotations

from .form import Form, Unfit, form, form_of
from .types import Choices, Format, Title

__all__ = ["Choices", "Form", "Format", "Title", "Unfit", "form", "form_of"]
