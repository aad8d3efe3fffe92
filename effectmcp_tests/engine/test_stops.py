from __future__ import annotations

from contextvars import Context

from effectmcp import Confirm, Now
from effectmcp.engine import Asked, Question, Returned, Want


def test_want_is_equal_by_key_and_effect() -> None:
    """A script compares stops; contexts compare by identity, and no repr shows them."""
    assert Want("now-1", Now(), Context()) == Want("now-1", Now(), Context())
    assert (
        repr(Want("now-1", Now(), Context()))
        == "Want(key='now-1', effect=Now(), begun=0)"
    )


def test_question_is_equal_wherever_it_was_asked() -> None:
    here = Question("confirm-1", Confirm("Sure?"), where="a.py:1")
    there = Question("confirm-1", Confirm("Sure?"), where="b.py:2")
    assert Asked((here,)) == Asked((there,))
    assert here != Question("confirm-1", Confirm("Sure?"), ("must be more",))


def test_stops_can_be_matched() -> None:
    match Returned(5):
        case Returned(value):
            assert value == 5
