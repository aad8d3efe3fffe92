"""Lines on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from effectmcp.cli.layout import Spot, columns, fitting, rows, window

LINES = [str(number) for number in range(10)]


def test_lines_that_fit_are_shown_whole() -> None:
    assert window(LINES, Spot(), room=10, pages=3) == (LINES, 0)


def test_a_window_begins_with_the_question() -> None:
    shown, _ = window(LINES, Spot(question=2, cursor=4, end=4), room=5)
    assert shown == ["↑ 2 more above (PgUp)", "2", "3", "4", "↓ 5 more below (PgDn)"]


def test_a_window_follows_the_cursor_with_its_notes() -> None:
    shown, _ = window(LINES, Spot(question=0, cursor=8, end=9), room=5)
    assert shown == ["↑ 7 more above (PgUp)", "7", "8", "9", ""]


def test_the_cursor_is_worth_more_than_its_notes() -> None:
    shown, _ = window(LINES, Spot(question=0, cursor=2, end=9), room=3)
    assert shown[1] == "2"
    assert window(LINES, Spot(cursor=2, end=2), room=1) == (["2"], 0)


def test_pages_lead_to_the_ends_and_no_further() -> None:
    spot = Spot(question=4, cursor=5, end=5)
    shown, pages = window(LINES, spot, room=5, pages=-9)
    assert (shown, pages) == (["", "0", "1", "2", "↓ 7 more below (PgDn)"], -2)
    shown, pages = window(LINES, spot, room=5, pages=9)
    assert (shown, pages) == (["↑ 7 more above (PgUp)", "7", "8", "9", ""], 1)


@given(st.data(), st.integers(1, 30), st.integers(1, 30), st.integers(-9, 9))
def test_every_line_can_be_seen(
    data: st.DataObject, count: int, room: int, pages: int
) -> None:
    question = data.draw(st.integers(0, count - 1))
    cursor = data.draw(st.integers(question, count - 1))
    spot = Spot(question, cursor, data.draw(st.integers(cursor, count - 1)))
    lines = [str(number) for number in range(count)]
    assert str(cursor) in window(lines, spot, room=room)[0]
    shown, at = window(lines, spot, room=room, pages=pages)
    assert len(shown) <= room
    assert abs(at) <= abs(pages)
    seen = {
        line
        for page in range(-count, count + 1)
        for line in window(lines, spot, room=room, pages=page)[0]
    }
    assert seen >= set(lines)


def test_lines_of_a_window_that_became_narrower_take_more_rows() -> None:
    assert rows(["", "a" * 10, "a" * 11, "本" * 6], width=10) == 1 + 1 + 2 + 2


@given(st.text(), st.integers(0, 20))
def test_fitting_is_the_longest_beginning_that_fits(line: str, width: int) -> None:
    begun = fitting(line, width)
    assert line.startswith(begun)
    assert columns(begun) <= width
    assert begun == line or columns(line[: len(begun) + 1]) > width
