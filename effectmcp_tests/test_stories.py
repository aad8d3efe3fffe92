"""The stories of multi round-trip requests, told by the examples on the wire.

Each file in `golden/stories` is a conversation: what a client writes, and what it must
read, to the letter. Only states are opaque: `"<state>"` in a reply is a state that was
not there before, and in a request it is the last one, echoed.

The stories are older than the protocol's release, which this is: 2026-07-28. In their
drafts requests had no `_meta`, results no `resultType` and no `serverInfo`, forms no
`mode`; and a first question might come without a state. What else is different is said in
the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from effectmcp.drivers import sync
from effectmcp.server import Server
from effectmcp.server.target import load_app

from .wire import KEYS, fits

HERE = Path(__file__).parent
STORIES = sorted((HERE / "golden" / "stories").glob("*.json"))

STATE = "<state>"


@pytest.fixture(params=STORIES, ids=lambda file: file.stem)
def story(request: pytest.FixtureRequest) -> Any:
    """Every story."""
    return json.loads(request.param.read_text("utf-8"))


@pytest.fixture
def app(story: Any, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server that tells it."""
    found = load_app(str(HERE.parent / "examples" / f"{story['server']}.py"))
    monkeypatch.setattr(found, "keys", KEYS)
    return found


def test_story(story: Any, app: Server) -> None:
    states: list[str] = []
    for exchange in story["exchanges"]:
        request, reply = exchange["request"], exchange["reply"]
        if "requestState" in request["params"]:
            assert request["params"]["requestState"] == STATE
            request["params"]["requestState"] = states[-1]
        got = sync.handle(app, json.dumps(request))
        assert got.status == 200
        message: Any = json.loads(json.dumps(got.message))
        if reply["result"].get("requestState") == STATE:
            state = message["result"]["requestState"]
            assert isinstance(state, str)
            assert state not in states
            states.append(state)
            reply["result"]["requestState"] = state
        assert message == reply


def test_story_fits_the_schema(story: Any) -> None:
    """Both sides of it."""
    for exchange in story["exchanges"]:
        fits("CallToolRequest", exchange["request"])
        result = exchange["reply"]["result"]
        is_interim = result["resultType"] == "input_required"
        fits("InputRequiredResult" if is_interim else "CallToolResult", result)
