"""The contents of a state token, and the request it is bound to."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given

from effectmcp import CanonicalError, UsageError
from effectmcp.engine import Journal
from effectmcp.state import Call, Claims
from effectmcp.state.claims import BOUND, DIGEST_SIZE, MAX_TIME, whole_seconds

from .journals import CALL, calls, values

KEY = bytes(range(32))


def digests(bound: bytes) -> dict[str, bytes]:
    assert len(bound) == len(BOUND) * DIGEST_SIZE
    return {
        name: bound[at * DIGEST_SIZE : (at + 1) * DIGEST_SIZE]
        for at, name in enumerate(BOUND)
    }


def differing(one: bytes, other: bytes) -> set[str]:
    mine, theirs = digests(one), digests(other)
    return {name for name in BOUND if mine[name] != theirs[name]}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"method": "prompts/get"}, {"target"}),
        ({"target": "orde"}, {"target"}),
        ({"arguments": {"title": "Dune", "copies": 3}}, {"arguments"}),
        ({"arguments": {"title": "Dune"}}, {"arguments"}),
        ({"arguments": None}, {"arguments"}),
        ({"principal": "bob"}, {"principal"}),
        ({"principal": None}, {"principal"}),
        ({"principal": "ann", "target": "ann"}, {"target"}),
    ],
)
def test_bindings_differ_where_the_call_does(
    changes: dict[str, Any], names: set[str]
) -> None:
    other = attrs.evolve(CALL, **changes)
    assert differing(CALL.bind(KEY, "a"), other.bind(KEY, "a")) == names


def test_call_and_claims_are_given_by_name() -> None:
    """With two strings swapped, a state would be bound to no request."""
    with pytest.raises(TypeError):
        Call("tools/call", "order")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Claims(bytes(16), 0, Journal())  # type: ignore[call-arg]


def test_call_that_was_bound_is_still_the_same() -> None:
    one, other = attrs.evolve(CALL), attrs.evolve(CALL)
    one.bind(KEY, "a")
    assert one == other
    assert repr(one) == repr(other)


def test_bindings_differ_by_audience_and_key() -> None:
    assert differing(CALL.bind(KEY, "a"), CALL.bind(KEY, "b")) == {"audience"}
    assert len(differing(CALL.bind(KEY, "a"), CALL.bind(KEY[::-1], "a"))) == 4


def test_bindings_of_equal_values_differ_by_purpose() -> None:
    """One value in two places has two digests: none can be moved to another place."""
    call = Call(method="", target="", arguments="x", principal="x")
    assert len(set(digests(call.bind(KEY, '"x"')).values())) == 4


def test_bindings_keep_method_and_target_apart() -> None:
    one = Call(method="tools/call", target="xy")
    other = Call(method="tools/callx", target="y")
    assert differing(one.bind(KEY, "a"), other.bind(KEY, "a")) == {"target"}


def test_bindings_do_not_know_the_order_of_arguments() -> None:
    other = attrs.evolve(CALL, arguments={"copies": 2, "title": "Dune"})
    assert CALL.bind(KEY, "a") == other.bind(KEY, "a")


def test_bindings_separate_null_from_the_string_null() -> None:
    """A user named "null" must not be taken for an anonymous client."""
    named = attrs.evolve(CALL, principal="null")
    nobody = attrs.evolve(CALL, principal=None)
    assert differing(named.bind(KEY, "a"), nobody.bind(KEY, "a")) == {"principal"}


def test_bindings_of_arguments_that_the_handler_changed() -> None:
    """A call holds what the client sent, even if a handler changes the arguments."""
    arguments: dict[str, Any] = {"titles": []}
    call = Call(method="tools/call", target="order", arguments=arguments)
    before = call.bind(KEY, "a")
    arguments["titles"].append("Dune")
    assert call.bind(KEY, "a") == before


@given(calls)
def test_bindings_are_short_and_the_same_every_time(call: Call) -> None:
    bound = call.bind(KEY, "a")
    assert bound == attrs.evolve(call).bind(KEY, "a")
    assert len(bound) == len(BOUND) * DIGEST_SIZE


@given(values)
def test_repr_of_a_call_shows_its_arguments(arguments: Any) -> None:
    call = Call(method="m", target="t", arguments=arguments)
    assert repr(call) == (
        f"Call(method='m', target='t', arguments={arguments!r}, principal=None)"
    )
    assert call == Call(method="m", target="t", arguments=arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": float("nan")},
        {"arguments": ("a", "tuple")},
        {"arguments": "\ud800"},
        {"target": "\ud800"},
        {"principal": "\ud800"},
    ],
)
def test_call_that_json_cannot_carry(changes: dict[str, Any]) -> None:
    with pytest.raises(CanonicalError):
        attrs.evolve(CALL, **changes)


class Named(str):
    """A subclass of `str`, which is refused."""


@pytest.mark.parametrize("target", [None, 5, ["x"], Named("t")])
def test_call_with_a_target_that_is_not_a_string(target: Any) -> None:
    attrs.evolve(CALL, target="t")  # and one like it has been made before
    with pytest.raises(UsageError, match="target=.*give a text"):
        attrs.evolve(CALL, target=target)


def test_whole_seconds_refuses_times_out_of_range() -> None:
    assert whole_seconds(0.5) == 0
    assert whole_seconds(MAX_TIME) == MAX_TIME
    for now in (-0.5, MAX_TIME + 0.5, float("nan")):
        with pytest.raises(UsageError, match="seconds since 1970"):
            whole_seconds(now)
