"""Draw spans and their links as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from attrs import frozen

from .otlp import Collected

__all__ = ["Row", "drawn", "rows_of"]

#: Pixels.
_LINE: Final = 30
_INDENT: Final = 24
_LEFT: Final = 110
_WIDTH: Final = 760
_BOX: Final = 300

_COLOURS: Final = {
    "client": "#dbeafe",
    "shop-1": "#dcfce7",
    "shop-2": "#fef3c7",
    "either": "#f3e8ff",
}


_HEAD: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif"
 font-size="13">
<title>A call in three rounds, and its task</title>
<desc>Spans of a client and of two servers, one below the other. An indented span is a
child. A dashed line is a link: from each later round to the first one.</desc>
<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"
 markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#64748b"/></marker></defs>"""
_RECTANGLE: Final = """\
<rect x="{}" y="{}" width="{}" height="24" rx="4" fill="{}" stroke="#94a3b8"/>"""
_ARROW: Final = """\
<path d="M{} {} H{} V{} H{}" fill="none" stroke="#64748b" stroke-dasharray="4 3"
 marker-end="url(#end)"/>"""


@frozen
class Row:
    """A span of the picture.

    Attributes:
        service: Its process.
        depth: How many of its ancestors are in the picture.
        name: Its name.
        links: The rows that it links to.
    """

    service: str
    depth: int
    name: str
    links: tuple[int, ...]


def rows_of(spans: Iterable[Collected]) -> list[Row]:
    """Return the rows of spans: without lists, and with the last poll only."""
    kept = sorted(
        (one for one in spans if one.name != "tools/list"), key=lambda one: one.began
    )
    known = {one.id: one for one in kept}
    polls = [one.id for one in kept if one.name == "tasks/get" and not one.parent]
    ordered: list[tuple[Collected, int]] = []

    def add(one: Collected, depth: int) -> None:
        ordered.append((one, depth))
        for child in kept:
            if child.parent == one.id:
                add(child, depth + 1)

    for one in kept:
        if one.parent not in known and one.id not in polls[:-1]:
            add(one, 0)
    places = {one.id: number for number, (one, _) in enumerate(ordered)}

    def is_of_task(one: Collected) -> bool:
        parent = known.get(one.parent)
        return one.name == "task order" or (parent is not None and is_of_task(parent))

    calls = [
        one.id
        for one, _ in ordered
        if one.service == "client" and one.name == "tools/call order"
    ]
    return [
        Row(
            # Any of the servers may run the task.
            "either" if is_of_task(one) else one.service,
            depth,
            _name_of(one, calls),
            tuple(sorted({places[id_] for _, id_, _ in one.links})),
        )
        for one, depth in ordered
    ]


def _name_of(one: Collected, calls: list[str]) -> str:
    number = one.attributes.get("effectmcp.round")
    if one.id in calls:
        number = calls.index(one.id) + 1
    return f"{one.name} (round {number})" if number else one.name


def drawn(rows: list[Row]) -> str:
    """Return an SVG of rows, with an arrow for each link."""
    height = _LINE * len(rows) + 20
    parts = [
        _HEAD.format(_WIDTH, height),
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, row in enumerate(rows):
        top = 10 + number * _LINE
        left = _LEFT + row.depth * _INDENT
        middle = top + 17
        parts += [
            f'<text x="10" y="{middle}" fill="#475569">{escape(row.service)}</text>',
            _RECTANGLE.format(left, top, _BOX, _COLOURS[row.service]),
            f'<text x="{left + 8}" y="{middle}" fill="#0f172a">{escape(row.name)}</text>',
        ]
        for to in row.links:
            start, end = left + _BOX, _LEFT + rows[to].depth * _INDENT + _BOX
            high = 10 + to * _LINE + 12
            bend = 560 + 12 * (number % 12)
            parts.append(_ARROW.format(start, top + 12, bend, high, end))
    return "\n".join([*parts, "</svg>", ""])
