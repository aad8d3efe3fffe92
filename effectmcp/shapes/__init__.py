"""An annotation → its shape, which all dialects read.

    annotation ── reading.py ──→ a shape, one level deep ┐
    Annotated ─── notes.py ────→ labels, and limits      ├─→ schema: arguments and results
    a class ───── sources ─────→ its fields, how to make ┘   forms: questions
                                 and to read its values      converter: steps

`sources` has a module for each kind of class: attrs, dataclasses, `TypedDict`,
`NamedTuple`, models of pydantic, `Struct`s of msgspec. Limits of all of them become
`constraints`, which publish themselves where a dialect has a keyword.
"""
