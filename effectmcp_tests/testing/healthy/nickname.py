"""Registers a nickname, in the language of the caller, and asks three times at most.

The language is a context variable, which the sub-flow and the messages read.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Literal

from effectmcp import Elicit, Flow, IdempotencyKey, Server, step

app = Server("nicknames", version="1.0")

TRIES: Final = 3
TEXTS: Final = {
    "en": {
        "ask": "Which nickname would you like?",
        "again": "{} is taken. Which other one would you like?",
        "none": "Nobody was registered.",
    },
    "de": {
        "ask": "Welchen Spitznamen möchten Sie?",
        "again": "{} ist vergeben. Welchen anderen möchten Sie?",
        "none": "Es wurde niemand eingetragen.",
    },
}

_language: ContextVar[str] = ContextVar("language", default="en")


def say(what: str, *parts: str) -> str:
    """Return the message in the language of this call."""
    return TEXTS[_language.get()][what].format(*parts)


@step
def take(nickname: str, key: str) -> bool:
    """Simulates the directory, where a name is taken once for each key."""
    return nickname.isalpha() and bool(key)


def choose() -> Flow[str | None]:
    """Ask until a name is free, but no more than `TRIES` times."""
    question = say("ask")
    for tries in range(TRIES):
        nickname = (yield from Elicit(question, str, otherwise="")).strip()
        if not nickname:
            return None
        key = yield from IdempotencyKey(f"nickname-{tries}")
        if (yield from take(nickname, key)):
            return nickname
        question = say("again", nickname)
    return None


@app.tool
def register(language: Literal["en", "de"] = "en") -> Flow[str]:
    """Register a nickname."""
    token = _language.set(language)
    try:
        return (yield from choose()) or say("none")
    finally:
        _language.reset(token)
