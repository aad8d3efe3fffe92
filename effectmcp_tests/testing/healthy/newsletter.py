"""Sends a newsletter: the client's model drafts it, and its user has the last word.

`Sample` with `otherwise=` for clients without a model, `Outcome` with `match`, and
messages on the way: `Progress` and `Log`.
"""

from __future__ import annotations

from effectmcp import (
    Accepted,
    Declined,
    Dismissed,
    Elicit,
    Flow,
    IdempotencyKey,
    Log,
    Outcome,
    Progress,
    Sample,
    Server,
    step,
)

app = Server("newsletter", version="1.0")


@step
def send(text: str, key: str) -> int:
    """Simulates the mail server, which sends once for each key."""
    return len(text) + len(key)


@app.tool
def write_newsletter(topic: str) -> Flow[str]:
    """Write a newsletter and send it."""
    yield from Progress(0, 3, "drafting")
    prompt = f"Write three sentences about {topic}."
    draft = yield from Sample(prompt, max_tokens=200, keep="text", otherwise=None)
    text = draft.text.strip() if draft is not None else ""
    if not text:
        yield from Log("notice", {"topic": topic, "drafted": False})
        text = f"There is news about {topic}."

    yield from Progress(1, 3, "waiting for the editor")
    match (yield from Outcome(Elicit(f"Your version of this?\n\n{text}", str))):
        case Accepted(edited):
            text = edited.strip() or text
        case Declined():
            yield from Log("info", "the editor threw it away")
            return "Nothing was sent."
        case Dismissed():
            return "The draft waits for another day."

    yield from Progress(2, 3, "sending")
    readers = yield from send(text, (yield from IdempotencyKey("newsletter")))
    yield from Progress(3, 3)
    return f"Sent to {readers} readers."
