"""The differences between the four ways that answers can arrive: one value each.

The engine knows nothing else about its environment. It never checks "is this a retry?",
so a fifth way needs another value here, but no new code there.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from .divergence import Policy

__all__ = ["LIVE", "RETRY", "SCRIPT", "TASK", "Rules"]


@frozen(kw_only=True)
class Rules:
    """The differences between the ways that answers can arrive.

    Attributes:
        policy: The divergence policy.
        rounds: Most interim results of a call; `None` for no limit.
        state_rounds: Most interim results without a question; `None` for no limit.
        shed: Whether `Checkpoint` ends a round.
        early_answers: Whether the first request may already have answers.
        unfit: Answers that do not fit the same question, until `InvalidAnswer`.
        stale: Answers at one place to a question whose text changed, until the flow
            stops.
        yields: Most yields without a journal entry between two stops where the flow
            waits for people or clocks.
        branches: Most branches that are live at once, and so most questions of a round.
        secret_steps: Whether steps marked `secret` may be performed.
        private_steps: Whether steps not marked `public` may be performed.
        at_most_once: Whether `at_most_once` steps may be performed: the driver must
            call `Run.begin` and save the journal before it performs them.
        detach: Whether `Detach` is allowed.
        later: Whether effects that belong after `Detach` are allowed from the start.
        task: Whether this is a task, where waiting is free: it waits for people and
            clocks together, and delivers in the order of arrival.
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
    later: bool = False
    task: bool = False
    development: bool = False


#: By retry. Real clients give up at the 10th interim result (Go's at the 3rd without a
#: question), so we stop first, with advice (docs/internals/replay.md#q6).
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
#: By store: any worker may resume from the journal.
TASK: Final = Rules(policy="park", at_most_once=True, task=True)
#: In process: tests and scripts.
SCRIPT: Final = Rules()
