"""HTTP requests as values: a generator yields them, and a driver sends them.

    requests   Fetch, Fetched, and `fetch_all` for a generator of requests. No I/O
    issuers    the metadata of an authorization server. No I/O
    zones      which addresses a stranger may make this program ask. No I/O
    sending    send requests, on asyncio, trio or in a thread

What finds a user on the server (`effectmcp.auth`) and what logs in on the client
(`effectmcp.oauth`) are such generators: they can be tested without a network, and run in
any host.
"""
