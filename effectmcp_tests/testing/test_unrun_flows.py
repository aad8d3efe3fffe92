from __future__ import annotations

from typing import Any

import pytest

from effectmcp import Elicit, Flow
from effectmcp.testing.unrun_flows import forgotten_flow

from .test_conversations import cleans_up


def notify(name: str) -> Flow[None]:
    yield from Elicit(f"Tell {name}?", str)


def plain(name: str) -> str:
    return name


def forgets() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    notify(name)
    return name


def forgets_many() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    [notify(one) for one in name]
    return name


def forgets_below() -> Flow[str]:
    return (yield from forgets())


def forgets_nothing() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    plain(name)
    yield from notify(name)
    yield from cleans_up()
    later = notify(name)
    yield from later
    return plain(name)


def line(function: Any, offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


@pytest.mark.parametrize("function", [forgets, forgets_many])
def test_flows_that_are_made_and_not_run(function: Any) -> None:
    assert forgotten_flow(function) == ("notify(...)", line(function, 2))


def test_flows_in_flows() -> None:
    assert forgotten_flow(forgets_below) == ("notify(...)", line(forgets, 2))


def test_flows_that_may_be_run_are_not_forgotten() -> None:
    assert forgotten_flow(forgets_nothing) is None


def test_functions_without_a_source() -> None:
    namespace: dict[str, Any] = {"notify": notify}
    exec("def made():\n    notify('x')\n    yield", namespace)
    assert forgotten_flow(namespace["made"]) is None
    assert forgotten_flow(print) is None
