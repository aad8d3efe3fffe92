"""What may differ between the four ways in which answers arrive: one value a way.

The engine reads these and nothing else about its surroundings. It never asks "is this a
retry?", so a fifth way is another value here and no new code there.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from .divergence import Policy

__all__ = ["LIVE", "RETRY", "SCRIPT", "TASK", "Rules"]


@frozen(kw_only=True)
class Rules:
    """What may differ between the ways in which answers arrive.

    Attributes:
        policy: What to do about a divergence.
        rounds: Interim results a call may have; `None` for no limit.
        state_rounds: Those of them that may ask nothing.
        shed: Whether `Checkpoint` ends a round.
        early_answers: Whether answers may come with the first call already.
        unfit: Answers that do not fit, under one text, until `InvalidAnswer`.
        stale: Answers to a changed text, at one place, until giving up.
        yields: Yields that no journal entry feeds, between two stops at which the flow
            waits for people or clocks.
        branches: Branches that may be live at once, and so the questions of a round.
        secret_steps: Whether steps marked `secret` may be performed.
        private_steps: Whether steps not marked `public` may be.
        at_most_once: Whether `at_most_once` steps may be: the driver must call
            `Run.begin` and save the journal before it performs them.
        detach: Whether `Detach` makes sense here at all.
        task: Whether this is a task, in which waiting is free: people and clocks are
            waited for together, and what arrives first is delivered first.
        development: Whether to warn about effects that were built and not performed.
    """

    policy: Policy = "strict"
    rounds: int | None = None
    state_rounds: int | None = None
    shed: bool = False
    early_answers: bool = False
    unfit: int = 3
    stale: int = 4
    yields: int = 10_000
    branches: int = 1_000
    secret_steps: bool = True
    private_steps: bool = True
    at_most_once: bool = False
    detach: bool = True
    task: bool = False
    development: bool = False


#: By retry. Clients in the field give up at the 10th interim result (Go's at the 3rd
#: without a question), so we stop first, with advice (docs/internals/replay.md#q6).
RETRY: Final = Rules(
    policy="salvage",
    rounds=9,
    state_rounds=2,
    shed=True,
    early_answers=True,
    secret_steps=False,
)
#: The running generator is resumed on the client's own connection.
LIVE: Final = Rules()
#: By store: any worker may go on from the journal.
TASK: Final = Rules(policy="park", at_most_once=True, task=True)
#: In process: tests and scripts.
SCRIPT: Final = Rules()
