"""A form ↔ `requestedSchema`; an answer → a value, or a list of all its problems.

    type or class ── shapes ── types.py ──┐
    raw schema ───────────────────────────┴─→ fields.py: one Field a property ─→ Form

Both inputs become the same `Field`s, and a `Field` checks by its *schema*. So the server
accepts exactly what the client was shown. Only a few limits are written as text and
checked afterwards: limits that the schema subset cannot say, a format's calendar (year
0000, leap seconds), and integers that JavaScript would round.
"""

from __future__ import annotations

from ..shapes.labels import Choices, Format, Title
from .form import Form, Unfit, form, form_of

__all__ = ["Choices", "Form", "Format", "Title", "Unfit", "form", "form_of"]
