"""Answer one message: yield commands, return one reply.

This joins protocol, server, engine and state.

    commands        what a driver has to do, and what it knows about the peer
    handle          the envelope: limits, versions, headers; dispatches a message
    context         one request, and what differs between revisions in its answer
    answers         one function per method, shared by all revisions
    handshakes      `initialize`, and the methods that need a session
    sessions        the questions and requests of one session
    calls           call a plain or async function
    rounds          a flow in one request: started, resumed, or asking live
    results         results and errors, made of what a handler returned or raised
    lists           what a server has: discovery, lists and pages, completion
    subscriptions   the changes that a client is notified of

`handle` returns a generator of commands, so this package does no I/O, just like a
handler: a driver executes each command, sends back its outcome, and decides nothing.
"""
