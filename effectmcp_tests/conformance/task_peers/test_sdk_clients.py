"""The clients of other SDKs, with their own functions for tasks, and our server."""

from __future__ import annotations

from typing import Any

import pytest

from effectmcp.protocol.meta import RELATED_TASK

from .peers import Peer, PeerError

pytestmark = pytest.mark.conformance


def text_of(result: Any) -> Any:
    (block,) = result["content"]
    return block["text"]


def task_of(params: Any) -> Any:
    """Return the id of the task that has asked; `None` if a call has."""
    return params.get("_meta", {}).get(RELATED_TASK, {}).get("taskId")


def test_tools_show_which_can_be_tasks(peer: Peer) -> None:
    assert peer.do("tools") == {
        "greet": "forbidden",
        "survey": "required",
        "audit": "optional",
        "rest": "required",
        "order": "optional",
        "sign": "forbidden",
        "summarize": "forbidden",
    }


def test_plain_tool(peer: Peer) -> None:
    found = peer.do("call", tool="greet", arguments={"name": "Ann"})
    assert text_of(found) == "Hello, Ann"


def test_plain_tool_called_as_a_task_is_refused(peer: Peer) -> None:
    with pytest.raises(PeerError) as caught:
        peer.do("start", tool="greet", arguments={"name": "Ann"})
    assert caught.value.code == -32601


def test_required_task_asks_twice(peer: Peer) -> None:
    found = peer.run("survey", topic="cups")
    assert text_of(found["result"]) == "Ann likes cups in red"
    assert "input_required" in [one["status"] for one in found["seen"]]
    assert [one["message"] for one in peer.asked] == ["Who are you?", "Which color?"]
    assert {task_of(one) for one in peer.asked} == {found["task"]}
    assert peer.do("look", task=found["task"])["status"] == "completed"


def test_task_with_an_error_fails_and_its_status_has_the_reason(peer: Peer) -> None:
    found = peer.run("audit")
    assert found["seen"][-1] == {"status": "failed", "message": "The books are closed"}
    result = peer.do("result", task=found["task"])
    assert result["isError"]
    assert text_of(result) == "The books are closed"


def test_optional_task_may_be_called_plainly(peer: Peer) -> None:
    result = peer.do("call", tool="audit", arguments={})
    assert result["isError"]
    assert text_of(result) == "The books are closed"


def test_cancelled_task_stays_cancelled(peer: Peer) -> None:
    task = peer.do("start", tool="rest", arguments={})
    assert task["status"] == "working"
    id_ = task["taskId"]
    assert peer.do("cancel", task=id_)["status"] == "cancelled"
    assert peer.do("look", task=id_)["status"] == "cancelled"
    for name in ("cancel", "result"):
        with pytest.raises(PeerError) as caught:
            peer.do(name, task=id_)
        assert caught.value.code == {"cancel": -32602, "result": -32603}[name]


def test_deferred_task_asks_first_in_the_call_and_then_as_a_task(peer: Peer) -> None:
    found = peer.run("order", title="Dune")
    assert text_of(found["result"]) == "Ordered Dune for Ann"
    assert [(one["message"], task_of(one)) for one in peer.asked] == [
        ("Order Dune?", None),
        ("Who are you?", found["task"]),
    ]


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [("sign", "Signed: Ann"), ("summarize", "Summary: All is well")],
)
def test_client_answers_as_a_task(
    peer_with_tasks: Peer, tool: str, wanted: str
) -> None:
    result = peer_with_tasks.do("call", tool=tool, arguments={})
    assert text_of(result) == wanted
    (question,) = peer_with_tasks.asked
    assert "task" in question
    assert peer_with_tasks.polled[:2] == ["working", "completed"]


def test_client_with_tasks_answers_our_tasks_at_once(peer_with_tasks: Peer) -> None:
    """The answers are part of a task already."""
    found = peer_with_tasks.run("survey", topic="cups")
    assert text_of(found["result"]) == "Ann likes cups in red"
    assert not [one for one in peer_with_tasks.asked if "task" in one]
