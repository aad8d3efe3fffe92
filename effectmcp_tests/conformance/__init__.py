"""The official MCP conformance suite, run on our servers and on a client.

    pytest -m conformance

The suite is installed into the folder in EFFECTMCP_CONFORMANCE_CACHE, or into a
temporary folder. If it cannot be installed, its tests are skipped with the reason; with
CI=true they fail, so that a suite that never ran does not look like success.
"""
