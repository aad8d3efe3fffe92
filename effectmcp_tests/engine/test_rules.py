from __future__ import annotations

import pytest

from effectmcp.engine import LIVE, RETRY, SCRIPT, TASK, Rules


def test_policies_match_the_specification() -> None:
    """Divergence: salvage by retry, park in tasks, strict in the kit."""
    assert RETRY.policy == "salvage"
    assert TASK.policy == "park"
    assert SCRIPT.policy == "strict"


def test_rounds_are_capped_where_answers_arrive_by_retry_only() -> None:
    """Q6: Go's client gives up at the 10th, and at the 3rd without a question."""
    assert (RETRY.rounds, RETRY.state_rounds) == (9, 2)
    for rules in (LIVE, TASK, SCRIPT):
        assert (rules.rounds, rules.state_rounds) == (None, None)


def test_only_a_retry_may_bring_early_answers_and_shed() -> None:
    for rules in (RETRY, LIVE, TASK, SCRIPT):
        assert rules.early_answers == rules.shed == (rules is RETRY)


def test_secrets_do_not_travel_with_the_client() -> None:
    for rules in (RETRY, LIVE, TASK, SCRIPT):
        assert rules.secret_steps == (rules is not RETRY)


def test_only_a_task_can_promise_at_most_once() -> None:
    for rules in (RETRY, LIVE, TASK, SCRIPT):
        assert rules.at_most_once == rules.task == (rules is TASK)


def test_rules_are_given_by_name() -> None:
    """There are many, and more may come."""
    with pytest.raises(TypeError):
        Rules("strict")  # type: ignore[call-arg]


def test_limits_match_the_specification() -> None:
    """Q2, D1 and L5."""
    assert (Rules().unfit, Rules().stale, Rules().yields) == (3, 4, 10_000)
    assert Rules().branches == 1_000
