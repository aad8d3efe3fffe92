"""Resume a call that another process stored: its JSON comes on standard input.

python -m effectmcp_tests.client.resume URL
"""

from __future__ import annotations

import json
import sys

import anyio

from effectmcp.client import Client, OverHttp, OverPipes, Pending, Result
from effectmcp_tests.client.ways import COMMAND, ENVIRONMENT


async def main(url: str, stored: str) -> None:
    """Answer the questions, and print the result."""
    channel = OverHttp(url) if url else OverPipes(COMMAND, env=ENVIRONMENT)
    async with Client(channel, elicit=lambda form: {"value": 3}) as client:
        steps = client.resume(Pending.from_json(json.loads(stored)))
        came = await steps.round()
        assert isinstance(came, Result)
        print(came.text, came.rounds)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.stdin.read())
