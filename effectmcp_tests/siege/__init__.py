"""Sieges: hostile clients attack a server, and honest clients are measured beside them.

    python -m effectmcp_tests.siege.run --attack all --host all     every attack, full size
    python -m effectmcp_tests.siege.run --attack 1 --host own --short
    python -m effectmcp_tests.siege.soak --minutes 10               all of them, mixed
    python -m effectmcp_tests.siege.fuzz --heads 10000000           malformed input
    pytest effectmcp_tests/siege                                    the short forms

`attacks` is the table of attacks, with the claims that must hold; `attackers` has the
hostile clients and `honest` the others; `server` is what they call, on each host; `besiege`
runs one attack and measures; `peers` does the same to the server of another SDK.

Everything stays on the loopback interface. Hostile clients connect from 127.0.0.2 and
above, honest ones from 127.0.0.1. A server that takes more memory than its limit is killed.
"""
