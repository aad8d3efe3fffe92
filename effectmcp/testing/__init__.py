"""A test kit for handlers.

    dialogue       `play(handler)`: step it by hand, and read the conversation
    strategies     what clients may answer and send, for Hypothesis
    conversations  whole conversations, for Hypothesis
    checking       `check(app)`: find what is wrong, in one line
    sanitizer      notice what no replay can repeat
    transcripts    conversations as files
    cold           replay them, and see where that comes to

Below these: `subjects`, what is tested; `talks`, a conversation in each of the ways in
which answers can arrive; `workers`, other processes; `changes` and `delays`, two things
that `check` looks for; `chance`, `values` and `words`.

A name is imported when it is asked for: what needs hypothesis needs it only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checking import Checked, CheckError, Finding, check
    from .conversations import conversation
    from .dialogue import Dialogue, Expectation, Mismatch, Script, play, play_script
    from .sanitizer import Sanitizer
    from .transcripts import Transcript
else:
    _LATER = {
        "CheckError": "checking",
        "Checked": "checking",
        "Dialogue": "dialogue",
        "Expectation": "dialogue",
        "Finding": "checking",
        "Mismatch": "dialogue",
        "Sanitizer": "sanitizer",
        "Script": "dialogue",
        "Transcript": "transcripts",
        "check": "checking",
        "conversation": "conversations",
        "play": "dialogue",
        "play_script": "dialogue",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{_LATER[name]}", __name__), name)
        globals()[name] = value
        return value


__all__ = [
    "CheckError",
    "Checked",
    "Dialogue",
    "Expectation",
    "Finding",
    "Mismatch",
    "Sanitizer",
    "Script",
    "Transcript",
    "check",
    "conversation",
    "play",
    "play_script",
]
