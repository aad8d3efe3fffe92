"""A test kit for handlers.

    dialogue     `play(handler)`: step it by hand, and read the conversation
    strategies   what clients may answer and send, for Hypothesis
    values       an author's value → what a client would send

Only `effectmcp.testing.strategies` needs hypothesis, so its names are imported from there.
"""

from __future__ import annotations

from .dialogue import Dialogue, Expectation, Mismatch, Script, play, play_script

__all__ = ["Dialogue", "Expectation", "Mismatch", "Script", "play", "play_script"]
