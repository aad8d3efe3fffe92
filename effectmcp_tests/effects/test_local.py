"""Effects that this process performs."""

from __future__ import annotations

from typing import Any

import pytest

from effectmcp import (
    CallerInfo,
    ClientSupports,
    Elicit,
    ListRoots,
    Now,
    Sample,
    UsageError,
)


@pytest.mark.parametrize("what", [Elicit, Sample, Elicit("Who?", str), ListRoots])
def test_client_supports_takes_a_class_or_a_question(what: Any) -> None:
    assert ClientSupports(what).what is what


@pytest.mark.parametrize("what", [Now, Now(), "Elicit", None, int])
def test_client_supports_refuses_anything_else(what: Any) -> None:
    with pytest.raises(UsageError, match="takes a kind of question"):
        ClientSupports(what)


def test_caller_info_outside_of_mcp() -> None:
    assert CallerInfo() == CallerInfo(era="local", principal=None)
