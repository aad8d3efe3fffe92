"""The attacked server, written with the Python SDK; run in an environment that has it.

python python_sdk_server.py

Its tools do the same as ours, with the defaults of the SDK and of uvicorn.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked.

from __future__ import annotations

import logging
import time

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

app = MCPServer("besieged", log_level="INFO")


class Name(BaseModel):
    """The answer to the question."""

    value: str


@app.tool(structured_output=False)
def echo(text: str) -> str:
    """Return the text."""
    return text


@app.tool(structured_output=False)
def length(text: str) -> str:
    """Return the length of a long text."""
    return str(len(text))


@app.tool(structured_output=False)
async def ask(title: str, ctx: Context) -> str:
    """Ask who the book is for."""
    answer = await ctx.elicit("Who is it for?", Name)
    return f"{title} for {answer.data.value}"


@app.tool(structured_output=False)
def big(size: int) -> str:
    """Return a large result."""
    return "x" * size


@app.tool(structured_output=False)
async def noted(size: int, ctx: Context) -> str:
    """Report progress, so that the response is a stream, and return a large result."""
    await ctx.report_progress(1)
    return "x" * size


@app.tool(structured_output=False)
def slow(seconds: float) -> str:
    """Occupy a thread."""
    time.sleep(seconds)
    return "done"


@app.tool(structured_output=False)
def opens() -> str:
    """Open a file."""
    with open("/dev/null", "rb") as file:
        return str(len(file.read()))


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
    )
    uvicorn.run(
        app.streamable_http_app(),
        port=0,
        loop="asyncio",
        ws="none",
        log_config=None,
        access_log=False,
    )
