"""A test kit for handlers.

    dialogue                `play(handler)`: step through it, and read the conversation
    strategies              answers and arguments that clients may send, for Hypothesis
    conversation_strategy   whole conversations, for Hypothesis
    checking                `check(app)`: find mistakes in handlers, in one line
    plugin                  `check` for pytest: `pytest --effectmcp module:app`
    sanitizer               notice calls that no replay can repeat
    transcripts             conversations as files
    recording               write the conversations of a running server
    verdicts                the outcome of recorded calls under an edited handler
    memory_client           a client in memory
    plain_keys              states that a test can read

Below these: `subjects`, the handlers under test; `conversations`, which runs a
conversation in each of the ways that answers can arrive, and `drawn_conversations`, with
answers that Hypothesis draws; `dry_replay`, which replays a single journal, and
`replay_workers`, which do so in other processes; `chance`, `values`, `descriptions`,
`muting`.

`check` consists of `findings`, its results, and `judging`, which judges a conversation
by all of these: `source_faults`, a table of the faults that can be read in the source
(`source`, `unrun_flows`, `except_clauses`, `closures`), and `line_coverage`, which notes
whether those lines run; `endings`, a table of the errors that are faults; `oracles`, a
table of questions that every correct handler answers alike (`idempotency_keys`, `delays`,
`endless_loops`, `performing`); `effect_traces`, a conversation effect by effect;
`refusals`, answers that make no difference; `leaked_state`, state that outlives a call;
`notices`; and `plain_strings`, plain values for the report.

A name is imported on first use, so only the names that need hypothesis require it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_names

if TYPE_CHECKING:
    from .checking import check
    from .conversation_strategy import conversation
    from .dialogue import Dialogue, Expectation, Mismatch, Script, play, play_script
    from .findings import Checked, CheckError, Finding
    from .memory_client import MemoryClient
    from .plain_keys import PlainKeys
    from .recording import Recorder
    from .sanitizer import Sanitizer
    from .transcripts import Transcript, read_transcripts
    from .verdicts import Verdict, verdict_of
else:
    _LAZY = {
        "CheckError": "findings",
        "Checked": "findings",
        "Dialogue": "dialogue",
        "Expectation": "dialogue",
        "Finding": "findings",
        "MemoryClient": "memory_client",
        "Mismatch": "dialogue",
        "PlainKeys": "plain_keys",
        "Recorder": "recording",
        "Sanitizer": "sanitizer",
        "Script": "dialogue",
        "Transcript": "transcripts",
        "Verdict": "verdicts",
        "check": "checking",
        "conversation": "conversation_strategy",
        "play": "dialogue",
        "play_script": "dialogue",
        "read_transcripts": "transcripts",
        "verdict_of": "verdicts",
    }

    __getattr__ = lazy_names(globals(), _LAZY, extra="testing", needs=("hypothesis",))


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
