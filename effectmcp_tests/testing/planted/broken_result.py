"""Marks an exam: points out of twenty and a few for neatness, as a percentage.

Wrong: the schema promises a percentage up to 100, and the points for neatness lead beyond
it. A client that trusts the schema would choke, so the server refuses the result.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge, le

from effectmcp import Elicit, Flow, Server, form

app = Server("exams", version="1.0")

MARK = {
    "type": "object",
    "properties": {
        "student": {"type": "string"},
        "percent": {"type": "integer", "minimum": 0, "maximum": 100},
    },
    "required": ["student", "percent"],
}


@form
@frozen
class Points:
    """The mark of an exam."""

    points: int = field(validator=[ge(0), le(20)])
    neatness: int = field(default=0, validator=[ge(0), le(5)])


@app.tool(output_schema=MARK)
def mark_exam(student: str) -> Flow[dict[str, str | int]]:
    """Mark a student's exam."""
    given = yield from Elicit(f"How many points does {student} get?", Points)
    percent = (given.points + given.neatness) * 5
    return {"student": student, "percent": percent}  # here
