"""The engine: a handler's generator ↔ effects. Pure, public, usable without any MCP.

    run = Run(order, ("Dune",), flow_id=secrets.token_bytes(16))
    stop = run.start()
    while True:
        match stop:
            case Perform(wants):      # this process: steps, the time, chance
                stop = run.performed({want.key: perform(want) for want in wants})
            case Asked(questions):    # whoever can answer, now or in another process
                stop = run.answered({q.key: Accepted({"value": input()}) for q in …})
            case Returned(value):
                break
            case Raised(error):
                raise error

`run.suspend()` instead of `answered` ends the round and gives the `Journal`, from which
a new `Run` goes on, here or elsewhere. The rules that it follows, and the reasons for them,
are in docs/internals/replay.md. The modules, in the order in which to read them:

    replay       the run: its verbs, and the generations that follow one another
    stops        what a run stops with, and what it is told to go on
    rules        what may differ between the ways in which answers arrive
    journal      entries, places, fingerprints, keys
    kinds        one table of effects
    generation   waves of match, drop, take, perform, deliver
    feeding      the first phase of a run: a loop over one sequence
    taking       what is at hand: answers, clocks, races
    performing   what this process performs
    tree         its generators take turns; branches begin, fail and join
    sequences    the tree: a generator each, with its part of the journal
    intake       what a handler yields: answered, refused, or waited for
    answers      which answer counts for which question
    places       what is outstanding where
    shared       what all generations of a flow share
    divergence   what differed, and what may be kept
    steps        arguments and results as JSON
    failures     exceptions as JSON
    development  effects that were built and never performed
    misuse       what to tell an author
    turn         one turn of one generator
"""

from __future__ import annotations

from .development import UnperformedEffectWarning
from .divergence import Policy, Report
from .journal import Asking, Entry, Journal, JournalError, Place, Pooled, Row
from .replay import Run
from .rules import LIVE, RETRY, SCRIPT, TASK, Rules
from .stops import (
    Answer,
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
