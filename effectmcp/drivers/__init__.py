"""Drivers run exchanges: on trio, on asyncio, or without an event loop.

    local       shared by all three: which function to call, and its arguments
    sync        runs everything in the calling thread
    trio        runs steps concurrently, blocking functions in worker threads
    asyncio     does the same, for hosts that run asyncio

The last three have `handle(app, message, peer)`, which answers one JSON-RPC message, and
`running(app)`, which keeps the server's lifespan open.
"""
