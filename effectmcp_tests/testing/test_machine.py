from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from effectmcp import Elicit, Flow, Server, StateError, UsageError
from effectmcp.state.seal import BoundCall, Sealer
from effectmcp.testing.machine import machine_for

from ..helpers import example
from .healthy import dinner_party, support_ticket

bookshop, everything = example("bookshop"), example("everything")

QUICK = settings(max_examples=50, stateful_step_count=20, deadline=None)
#: Where something is found, it need not be made short.
FOUND = settings(QUICK, max_examples=200, phases=[Phase.generate], database=None)


def guests() -> Server:
    """A prompt, a resource and a template that ask."""
    app = Server("guests")

    @app.prompt
    def greet(count: int) -> Flow[str]:
        name = yield from Elicit(f"Who is the first of {count}?", str)
        return f"Greet {name} and {count - 1} others."

    @app.resource("guests://first")
    def first() -> Flow[str]:
        return (yield from Elicit("Who is the first?", str))

    @app.resource("guests://{number}/{+path}")
    def one(number: int, path: str) -> Flow[str]:
        return (yield from Elicit(f"Who is number {number} of {path}?", str))

    return app


@pytest.mark.parametrize(
    "app",
    [bookshop.app, dinner_party.app, support_ticket.app, everything.app, guests()],
    ids=lambda app: str(app.name),
)
def test_servers_under_many_clients(app: Server) -> None:
    run_state_machine_as_test(machine_for(app), settings=QUICK)


def test_a_server_that_takes_the_states_of_others_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BoundCall, "bind", lambda call, key, audience: bytes(32))
    with pytest.raises(AssertionError, match="a state was taken that should not be"):
        run_state_machine_as_test(machine_for(bookshop.app), settings=FOUND)


def test_a_server_without_a_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sealer, "check_times", lambda self, packed, now: None)
    with pytest.raises(AssertionError, match="a state was taken that should not be"):
        run_state_machine_as_test(machine_for(bookshop.app), settings=FOUND)


def test_a_server_that_refuses_honest_clients_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(sealer: Any, packed: Any, now: Any) -> None:
        raise StateError("arguments")

    monkeypatch.setattr(Sealer, "check_times", refuse)
    with pytest.raises(AssertionError, match="an honest state was refused: order"):
        run_state_machine_as_test(machine_for(bookshop.app), settings=FOUND)


def test_a_server_that_never_asks_has_no_machine() -> None:
    with pytest.raises(UsageError, match="has nothing that asks"):
        machine_for(Server("empty"))()
