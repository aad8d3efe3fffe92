"""A signature → `inputSchema`, a return annotation → `outputSchema`; values both ways.

    annotation ─ types.py, classes.py ─→ JSON Schema ─ checks.py ─→ a check
                                                                      │
    arguments ─ checked: every problem, with its path ────────────────┤
              ─ build.py: one cattrs converter ─→ what the function takes
    result    ─ results.py: plain JSON ─ checked ─→ structuredContent

What is checked is the *published schema*, compiled once, so what a client was shown and
what the server accepts cannot drift apart. What Python says beyond it (`matches_re`,
validators and converters of your own, what is equal in a set) is heard afterwards,
from arguments that fit so far, again all of it at once.

`RawSchema` is for schemas that an author writes by hand. It needs jsonschema-rs, and
nothing else here does: `pip install effectmcp[schema]`.
"""

from __future__ import annotations

from .arguments import Arguments, input_of
from .choices import Header
from .raw import RawSchema
from .results import Output, output_of

__all__ = ["Arguments", "Header", "Output", "RawSchema", "input_of", "output_of"]
