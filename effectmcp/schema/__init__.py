"""A signature → `inputSchema`, a return annotation → `outputSchema`; values both ways.

    annotation ─ shapes ─ types.py ─→ JSON Schema ─ checks.py ─→ a check
                                                                   │
    arguments ─ checked: every problem, with its path ─────────────┤
              ─ build.py ─→ what the function takes                │
    result    ─ results.py: plain JSON ─ checked ─→ structuredContent

The check is compiled from the *published schema*, so the server accepts exactly what
the client was shown. Limits that only Python can express (patterns, validators and
converters of your own, equality in a set) are checked afterwards. All problems are
reported together.

`RawSchema` is for schemas that an author writes by hand. Only it needs jsonschema-rs:
`pip install effectmcp[schema]`.
"""

from __future__ import annotations

from ..shapes.labels import Header
from .arguments import Arguments, input_of
from .raw import RawSchema
from .results import Output, output_of

__all__ = ["Arguments", "Header", "Output", "RawSchema", "input_of", "output_of"]
