"""Interceptors: count the calls that wait for answers, and refuse some of them.

    effectmcp serve examples/guarded.py:app

Both are generators around each round of a call. `few_at_once` counts the interim
results of each user, and gives the next one back as an error of the protocol: its
questions and its state are then never sent. `few_questions` lets each flow ask three
times. `effectmcp.guards` has limits that also forget the calls of users who left.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from effectmcp import (
    Call,
    Elicit,
    Flow,
    InputNeeded,
    Intercepting,
    ProtocolError,
    Server,
    ToolError,
)

app = Server("guarded", version="1.0")

#: The flows of each user that wait for answers.
WAITING: defaultdict[str | None, set[str | None]] = defaultdict(set)


@app.intercept
def few_at_once(call: Call) -> Intercepting:
    """Let each user have two calls that wait for answers."""
    waiting = WAITING[call.party]
    waiting.discard(call.flow_id)
    result = yield from call
    if isinstance(result, InputNeeded):
        if len(waiting) >= 2:
            raise ProtocolError(-32000, "Answer your other calls first.")
        waiting.add(call.flow_id)
    return result


@app.intercept(tag="chatty")
def few_questions(call: Call) -> Intercepting:
    """Refuse the fourth question of a flow; the model reads why."""
    result = yield from call
    if isinstance(result, InputNeeded) and call.round > 3:
        raise ToolError("I have asked enough. Call me again, with more arguments.")
    return result


@app.tool(tags=["chatty"])
def interview(topics: Literal[2, 3, 4] = 2) -> Flow[str]:
    """Ask the user about some topics."""
    answers = []
    for number in range(1, topics + 1):
        answers.append((yield from Elicit(f"What about topic {number}?", str)))
    return ", ".join(answers)
