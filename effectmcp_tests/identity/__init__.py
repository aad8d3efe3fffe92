"""Logins with real parts: a certified identity provider, a real browser, other SDKs.

    pytest -m conformance effectmcp_tests/identity

The provider and the client of the TypeScript SDK are packages of npm, which are installed
as `effectmcp_tests.conformance` installs the suite. The browser is Chromium or Chrome, and
must be on the PATH: `apt-get install chromium`.
"""
