"""A test kit for handlers.

    dialogue     `play(handler)`: step it by hand, and read the conversation
    values       an author's value → what a client would send

"""

from __future__ import annotations

from .dialogue import Dialogue, Expectation, Mismatch, Script, play, play_script

__all__ = ["Dialogue", "Expectation", "Mismatch", "Script", "play", "play_script"]
