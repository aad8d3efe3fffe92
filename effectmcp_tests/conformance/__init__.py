"""The official MCP conformance suite: servers as people run them, and a client.

    pytest -m conformance

What it installs goes into the folder that EFFECTMCP_CONFORMANCE_CACHE names, or into one
that is gone afterwards. Where it cannot be installed, its tests are skipped with the
reason; with CI=true they fail, so that nobody takes a suite that never ran for one that
passed.
"""
