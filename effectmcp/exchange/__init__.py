"""One message in; commands out; one reply. Joins protocol, server, engine and state.

    commands        what a driver is asked to do, and what it knows of the peer
    handle          the envelope: limits, versions, headers, and where a message goes
    answers         one function per method, shared by all revisions
    handshakes      `initialize`, and the methods that need a session
    dialects        what differs between revisions once a message is dispatched
    sessions        the questions and requests of one session
    calls           tools/call, prompts/get, resources/read: a handler is run
    rounds          begin and resume a flow whose answers arrive by retry
    results         what a handler returned or raised, as a result
    lists           what a server has: discovery, lists and pages, completion
    subscriptions   which changes a client hears of

`handle` gives a generator of commands, so this is as pure as a handler is: a driver does
what is asked, sends back what came of it, and never decides anything.
"""
