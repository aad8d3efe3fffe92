"""The engine: runs a handler's generator. Public; no I/O; usable without MCP.

    run = Run(order, ("Dune",), flow_id=secrets.token_bytes(16))
    stop = run.start()
    while True:
        match stop:
            case Perform(wants):      # this process: steps, clock, random values
                stop = run.performed({want.key: perform(want) for want in wants})
            case Asked(questions):    # the client, now or in another process
                stop = run.answered({q.key: Accepted({"value": input()}) for q in …})
            case Returned(value):
                break
            case Raised(error):
                raise error

`run.suspend()` instead of `answered` ends the round and returns the `Journal`. A new
`Run` resumes from it, here or in another process. The rules of the engine, and the
reasons for them, are in docs/internals/replay.md. The modules, in the order to read
them:

    replay         the run: its verbs, and the generations that follow one another
    stops          the stops of a run, and the outcomes that resume it
    rules          the differences between the ways that answers can arrive
    journal        entries, places, fingerprints, keys
    effect_table   one row for each effect: all that the engine knows about it
    generation     waves of match, drop, take, perform, deliver
    single         the first phase of a run: a loop, while there is one sequence
    sequences      the nodes of the tree: a generator, with its part of the journal
    answers        matches answers to questions; the outstanding questions, by place
    outcomes       the effects that this process performs, clocks, races
    tree           generators take turns; branches start, fail and join
    receiving      yielded effects: answered, refused, or waited for
    flow_state     data that all generations of a flow share
    divergence     reports of differences, and the entries that may be kept
    steps          arguments and results as JSON
    failures       exceptions as JSON
    development    effects that were built and never performed
    misuse         error messages for authors
    generators     one turn of one generator
"""

from __future__ import annotations

from .answers import Answer
from .development import UnperformedEffectWarning
from .divergence import Policy, Report
from .journal import Asking, Entry, Journal, JournalError, Place, Pooled, Row
from .replay import Run
from .rules import LIVE, RETRY, SCRIPT, TASK, Rules
from .stops import (
    Asked,
    Done,
    Failure,
    Perform,
    Question,
    Raised,
    Returned,
    Stop,
    Unread,
    Want,
)

__all__ = [
    "LIVE",
    "RETRY",
    "SCRIPT",
    "TASK",
    "Answer",
    "Asked",
    "Asking",
    "Done",
    "Entry",
    "Failure",
    "Journal",
    "JournalError",
    "Perform",
    "Place",
    "Policy",
    "Pooled",
    "Question",
    "Raised",
    "Report",
    "Returned",
    "Row",
    "Rules",
    "Run",
    "Stop",
    "UnperformedEffectWarning",
    "Unread",
    "Want",
]
