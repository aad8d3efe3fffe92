from __future__ import annotations

from effectmcp import EffectMCPError
from effectmcp.client import ChannelError


def test_channel_error_states_the_problem() -> None:
    error = ChannelError("the server is gone")
    assert isinstance(error, EffectMCPError)
    assert error.problem == str(error) == "the server is gone"
