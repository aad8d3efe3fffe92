from __future__ import annotations

import functools

import pytest

from effectmcp import Elicit, Step, step
from effectmcp.testing.descriptions import describe, place_of


def send(*texts: str, urgent: str = "") -> None:
    """Send some strings."""


class Callable:
    def __call__(self) -> None:
        """Do nothing."""

    def __repr__(self) -> str:
        return "<a callable>"


def line_of(error: BaseException) -> int:
    """The line of this module that an exception passed last."""
    place = place_of(error)
    assert place is not None
    file, _, line = place.rpartition(":")
    assert file == __file__
    return int(line)


def fail() -> None:
    raise OSError("failed")


# ---- descriptions -------------------------------------------------------------------


def test_an_effect_is_shown_as_it_is_written() -> None:
    assert describe(Elicit("Who?", str)) == "Elicit(message='Who?', form=str)"


def test_a_class_of_effects_and_a_function_are_shown_by_name() -> None:
    assert (describe(Elicit), describe(send), describe(step(send))) == (
        "Elicit",
        "send",
        "send",
    )


def test_what_has_no_name_is_shown_by_its_repr() -> None:
    partial = functools.partial(send, "a")
    assert describe(Callable()) == "<a callable>"
    assert describe(partial).startswith("functools.partial(<function send")


def test_a_step_is_shown_as_its_call() -> None:
    assert describe(Step(send)) == "send()"
    assert describe(Step(send, "a", urgent="b")) == "send('a', urgent='b')"
    assert describe(step(send)("a")) == "send('a')"


def test_long_arguments_are_cut() -> None:
    text = describe(Step(send, "a" * 1000, urgent="b" * 1000))
    assert len(text) < 120
    assert text.startswith("send('aaaa")
    assert ", urgent='bbbb" in text


# ---- where it was -------------------------------------------------------------------


def test_the_innermost_line_outside_of_effectmcp_is_named() -> None:
    with pytest.raises(OSError, match="failed") as caught:
        fail()
    assert line_of(caught.value) == fail.__code__.co_firstlineno + 1


def test_lines_of_effectmcp_are_passed_over() -> None:
    def build() -> None:
        Elicit("Who?", set)

    with pytest.raises(Exception, match="set") as caught:
        build()
    assert line_of(caught.value) == build.__code__.co_firstlineno + 1


def test_what_was_never_raised_has_no_place() -> None:
    assert place_of(OSError("never raised")) is None
