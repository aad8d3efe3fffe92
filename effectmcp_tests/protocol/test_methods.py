from __future__ import annotations

import json
from typing import Any

import pytest

from effectmcp.exchange import handshakes
from effectmcp.exchange.answers import ANSWERS
from effectmcp.protocol.methods import METHODS, methods_of
from effectmcp.protocol.revisions import NEWEST
from effectmcp_tests.wire import SCHEMA


def definitions() -> dict[str, Any]:
    if not SCHEMA.exists():
        pytest.skip(f"the protocol's schema is not at hand: {SCHEMA}")
    found: dict[str, Any] = json.loads(SCHEMA.read_text())["$defs"]
    return found


def test_methods_match_the_protocol() -> None:
    found = definitions()
    requests = [one["$ref"].split("/")[-1] for one in found["ClientRequest"]["anyOf"]]
    names = {found[one]["properties"]["method"]["const"] for one in requests}
    ours = set(methods_of(NEWEST))
    extension = {name for name in ours if name.startswith("tasks/")}
    assert ours - extension == names, (
        "if a method is not in the protocol but our own, except it here"
    )


def test_methods_that_name_something() -> None:
    assert {name: one.name_from for name, one in METHODS.items() if one.name_from} == {
        "tools/call": "name",
        "prompts/get": "name",
        "resources/read": "uri",
        "tasks/get": "taskId",
        "tasks/update": "taskId",
        "tasks/cancel": "taskId",
    }


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_function(name: str) -> None:
    is_answered = name in ANSWERS or name in handshakes._OWN
    assert is_answered, "add its function to ANSWERS of exchange/answers.py"
