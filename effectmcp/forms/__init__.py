"""A form ↔ `requestedSchema`; an answer → a value, or a list of all its problems.

    attrs class ── classes.py ──┐
    annotation ─────────────────┴─ types.py, validators.py ──┐
    raw schema ──────────────────────────────────────────────┴─→ fields.py: one Field a
                                                                 property ─→ Form

All three inputs become the same `Field`s, and a `Field` checks by its *schema*. So the
server accepts exactly what the client was shown. Only three constraints are written as
text and checked afterwards: what the schema subset cannot say (`matches_re`, exclusive
float bounds, validators of your own), a format's calendar (year 0000, leap seconds),
and integers that JavaScript would round.
"""

from __future__ import annotations

from .form import Form, Unfit, form, form_of
from .types import Choices, Format, Title

__all__ = ["Choices", "Form", "Format", "Title", "Unfit", "form", "form_of"]
