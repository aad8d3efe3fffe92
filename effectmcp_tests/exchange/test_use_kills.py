"""Real servers that share a ledger in a file, and are killed: a short campaign."""

from __future__ import annotations

import pytest

from .use_kills import campaign


@pytest.mark.parametrize("kills", [0, 6])
def test_servers_with_one_ledger_count_each_request_once(kills: int) -> None:
    assert campaign(8, kills).endswith("one reply for each request")
