"""Transcripts of the drafts: our server says what their examples say, in their shapes.

`golden_drafts.jsonl` has the ten steps of the drafts' example of a task that asks, and its
case of unexpected data. What the drafts leave to the server is a placeholder there:

    "<task>", "<key>"    any string, and the same string wherever it stands
    "<time>", "<text>"   any time, any string
    "?name"              a field that the server may leave out

We leave out `statusMessage` until the tool has one, and `isError` if it is false. The
drafts' form has no `title`. Between two requests, a worker has run the task: right after
an answer, `tasks/get` may report `working` until then.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from effectmcp import Elicit, Flow, Server

from ..wire import KEYS
from .test_task_wires import DRAFT, Older, Turns, World

GOLDEN = Path(__file__).with_name("golden_drafts.jsonl")
LINES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
CASES = [*dict.fromkeys(one["case"] for one in LINES)]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@frozen
class Words:
    """The form of the tool."""

    input: str


def echo() -> Flow[str]:
    """Echo what the user writes."""
    words = yield from Elicit("What shall I say?", Words, key="echo_input")
    return f"Echo: {words.input}"


def filled(value: Any, names: dict[str, str]) -> Any:
    """A message of the client, with the strings that the server has chosen."""
    if isinstance(value, dict):
        return {names.get(key, key): filled(one, names) for key, one in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def check(wanted: Any, found: Any, names: dict[str, str], at: str = "") -> None:
    """Compare a message of the server with its shape; note the strings it chooses."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), at
        left = dict(found)
        for key, one in wanted.items():
            name = key.removeprefix("?")
            if name != key and name not in left:
                continue
            if name.startswith("<"):
                (name,) = left if name not in names else (names[name],)
                assert names.setdefault(key, name) == name, at
            assert name in left, f"{at}: no {name}"
            check(one, left.pop(name), names, f"{at}.{name}")
        assert not left, f"{at}: {left} is not in the drafts"
    elif isinstance(wanted, list):
        assert isinstance(found, list), at
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            check(one, other, names, f"{at}.{number}")
    elif wanted == "<time>":
        assert TIME.fullmatch(found), at
    elif wanted == "<text>":
        assert isinstance(found, str), at
    elif isinstance(wanted, str) and wanted.startswith("<"):
        assert names.setdefault(wanted, found) == found, at
    else:
        assert (type(found), found) == (type(wanted), wanted), at


@pytest.mark.parametrize("case", CASES)
def test_server_of_the_drafts_keeps_to_the_transcript(case: str) -> None:
    host = Turns(ttl=3_600, poll_interval=0.1)
    app = Server("echo", keys=KEYS, tasks=host, drafts=True)
    app.tool(task="optional")(echo)
    here = World(host, app)
    user = here.user(DRAFT)
    assert isinstance(user, Older)
    names: dict[str, str] = {}
    found: Any = None
    for line in LINES:
        if line["case"] != case:
            continue
        if "client" in line:
            here.play()
            message = filled(line["client"], names)
            found = user.client.handle(app, message, user.client.peer).message
        else:
            check(line["server"], found, names)
    assert len(set(names.values())) == len(names), "the second question has another key"


def test_transcript_has_ten_steps() -> None:
    """The drafts count a poll and its response as one step at the end."""
    steps = [line for line in LINES if line["case"] == "echo"]
    assert len(steps) == 12


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {}),
        ({"?a": 1}, {"a": 2}),
        ({"a": "<time>"}, {"a": "now"}),
        ({"a": "<x>", "b": "<x>"}, {"a": "1", "b": "2"}),
        ([1], [1, 2]),
        (1, True),
        ({}, []),
    ],
    ids=repr,
)
def test_check_finds_differences(wanted: Any, found: Any) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check(wanted, found, {})
