"""Looks up a word, and logs what it does: in the handler, and in a step.

What is logged is logged in each round, which is what logs are for. A step may print.
"""

from __future__ import annotations

import logging
import sys

from effectmcp import Elicit, Flow, Log, Progress, Server, step

app = Server("words", version="1.0")

logger = logging.getLogger(__name__)


@step
def look_up(word: str) -> str:
    """Simulates a dictionary."""
    print(f"looking up {word}", file=sys.stdout)
    return f"{word}: a word"


@app.tool
def define(language: str) -> Flow[str]:
    """Define a word."""
    logger.warning("asked for a word in %s", language)
    word = yield from Elicit("Which word?", str)
    yield from Progress(1, 2, "looking it up")
    yield from Log("info", f"looking up {word}")
    print("for those who watch the server", file=sys.stderr)
    return (yield from look_up(word))
