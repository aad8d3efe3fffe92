"""The I/O that exchanges ask for: the same names for no event loop, trio and asyncio.

    local       what all three do alike: which function to call, with what
    sync        in this thread
    trio        steps side by side, blocking functions in worker threads
    asyncio     the same, for hosts that run asyncio

Each has `handle(app, message, peer)`, which answers one JSON-RPC message, and
`running(app)`, which keeps the server's lifespan open.
"""
