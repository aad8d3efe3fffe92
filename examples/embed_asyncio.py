"""Serve inside an asyncio program: messages arrive on one queue and leave on another.

    python examples/embed_asyncio.py

No transport is involved: replace the queues with your own source of messages, such as a
broker or a connection. Calls run side by side.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bookshop import app
from bookshop_client import call, next_round, text_of

from effectmcp.drivers.asyncio import handle, running
from effectmcp.exchange.commands import Peer
from effectmcp.transports.default_keys import ensure_keys

Queue = asyncio.Queue[Any]


async def serve(inbox: Queue, outbox: Queue) -> None:
    """Answer each message from `inbox`, until it gets None."""
    async with running(app), asyncio.TaskGroup() as tasks:
        while (message := await inbox.get()) is not None:
            tasks.create_task(answer(message, outbox))


async def answer(message: dict[str, Any], outbox: Queue) -> None:
    """Answer one message. Cancel this task to suspend the flow."""
    # Your program knows the user: bob cannot use a state that was issued to ann.
    peer = Peer(principal="ann")
    # Progress and log messages are sent at once, and the response after them.
    reply = await handle(app, message, peer, send=outbox.put)
    if reply.message is not None:
        await outbox.put(reply.message)


async def buy(inbox: Queue, outbox: Queue) -> None:
    """Play the client."""
    message = call("order", {"title": "Dune"})
    while True:
        await inbox.put(message)
        reply = await outbox.get()
        following = next_round(message, reply)
        if following is None:
            break
        for asked in reply["result"]["inputRequests"].values():
            print("?", asked["params"]["message"])
        message = following
    print(text_of(reply))
    await inbox.put(None)


async def main() -> None:
    # This is the only process, so a random key is enough to seal states.
    ensure_keys(app, is_alone=True)
    inbox, outbox = Queue(), Queue()
    await asyncio.gather(serve(inbox, outbox), buy(inbox, outbox))


if __name__ == "__main__":
    asyncio.run(main())
