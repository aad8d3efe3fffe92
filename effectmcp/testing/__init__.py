"""A test kit for handlers.

    dialogue       `play(handler)`: step it by hand, and read the conversation
    strategies     what clients may answer and send, for Hypothesis
    conversations  whole conversations, for Hypothesis
    checking       `check(app)`: find what is wrong, in one line
    plugin         the same for pytest: `pytest --effectmcp module:app`
    sanitizer      notice what no replay can repeat
    transcripts    conversations as files
    recording      write those of a running server
    verdicts       what becomes of them under an edited handler
    client         a client in memory
    keys           states that a test can read

Below these: `subjects`, what is tested; `talks`, a conversation in each of the ways in
which answers can arrive; `cold`, a journal replayed alone; `workers`, other processes;
`chance`, `values`, `words`, `silence`.

What `check` is made of: `findings`, its results; `judging`, which judges a conversation
by all of these: `suspects`, a table of the faults that
can be read (`source`, `forgotten`, `catches`, `closures`), and `lines`, whether they run;
`endings`, a table of the errors that are faults; `oracles`, a table of what every correct
handler answers alike (`charges`, `delays`, `stubborn`, `performing`); `overheard`, a
conversation effect by effect; `refusals`, answers that make no difference; `changes`,
state that outlives a call; `notices`; and `simpler`, plain values for the report.

A name is imported when it is asked for: what needs hypothesis needs it only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..later import later

if TYPE_CHECKING:
    from .checking import check
    from .client import MemoryClient
    from .conversations import conversation
    from .dialogue import Dialogue, Expectation, Mismatch, Script, play, play_script
    from .findings import Checked, CheckError, Finding
    from .keys import PlainKeys
    from .recording import Recorder
    from .sanitizer import Sanitizer
    from .transcripts import Transcript, read_transcripts
    from .verdicts import Verdict, verdict_of
else:
    _LATER = {
        "CheckError": "findings",
        "Checked": "findings",
        "Dialogue": "dialogue",
        "Expectation": "dialogue",
        "Finding": "findings",
        "MemoryClient": "client",
        "Mismatch": "dialogue",
        "PlainKeys": "keys",
        "Recorder": "recording",
        "Sanitizer": "sanitizer",
        "Script": "dialogue",
        "Transcript": "transcripts",
        "Verdict": "verdicts",
        "check": "checking",
        "conversation": "conversations",
        "play": "dialogue",
        "play_script": "dialogue",
        "read_transcripts": "transcripts",
        "verdict_of": "verdicts",
    }

    __getattr__ = later(globals(), _LATER, extra="testing", needs=("hypothesis",))


__all__ = [
    "CheckError",
    "Checked",
    "Dialogue",
    "Expectation",
    "Finding",
    "MemoryClient",
    "Mismatch",
    "PlainKeys",
    "Recorder",
    "Sanitizer",
    "Script",
    "Transcript",
    "Verdict",
    "check",
    "conversation",
    "play",
    "play_script",
    "read_transcripts",
    "verdict_of",
]
