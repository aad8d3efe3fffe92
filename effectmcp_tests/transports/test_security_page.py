"""The page about security: its tables of limits have the defaults of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from effectmcp.exchange import subscriptions
from effectmcp.logs import LIMIT, WINDOW
from effectmcp.server import Server
from effectmcp.transports import connection
from effectmcp.transports.connection import Limits
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.web import Site

PAGE = Path(__file__).parents[2].joinpath("docs", "security.md").read_text("utf-8")

_UNITS = {"KiB": 1024, "MiB": 1024**2, "s": 1, "": 1}


def defaults_of(class_: Any) -> dict[str, Any]:
    if attrs.has(class_):
        made = class_()
        return {field.name: getattr(made, field.name) for field in attrs.fields(class_)}
    parameters = inspect.signature(class_).parameters.values()
    return {one.name: one.default for one in parameters}


def rows() -> list[tuple[str, str, str]]:
    first = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE)
    second = re.findall(r"^\| `(\w+)` \| ([^|`]*) \|", PAGE, re.MULTILINE)
    return [*first, *(("Limits", *one) for one in second)]


CLASSES = {
    "Site": Site,
    "SessionLimits": SessionLimits,
    "Server": Server,
    "Limits": Limits,
}


@pytest.mark.parametrize(("where", "name", "text"), rows())
def test_default_of_a_limit(where: str, name: str, text: str) -> None:
    default = defaults_of(CLASSES[where])[name]
    if text == "None":
        assert default is None
        return
    number, _, unit = text.partition(" ")
    assert float(number) * _UNITS[unit] == default


def test_every_limit_is_on_the_page() -> None:
    found = {(where, name) for where, name, _ in rows()}
    sessions = {("SessionLimits", name) for name in defaults_of(SessionLimits)}
    limits = {("Limits", name) for name in defaults_of(Limits)}
    # How the server behaves, not what clients may take.
    sessions -= {("SessionLimits", "leave"), ("SessionLimits", "retry")}
    limits -= {("Limits", name) for name in ("quiet", "linger", "retry_after")}
    assert sessions | limits <= found


def test_figures_in_the_text() -> None:
    assert f"at most {LIMIT} records of one\nkind in ten seconds" in PAGE
    assert WINDOW == 10
    assert subscriptions._MAX_URIS == 1_000
    assert subscriptions._MAX_TASKS == 100
    assert connection._FEW == 12
    assert connection._FILES == 32
