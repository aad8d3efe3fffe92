"""Random models in the words of every source, against the rules."""

from __future__ import annotations

import pytest

from .drawn_models import Drawn, Model
from .models import Disagreement, check_models, compare, drawn

BLOCK = 50


def check(seeds: range) -> None:
    _, failing = check_models(seeds)
    if failing:
        try:
            compare(*drawn(failing[0]))
        except Disagreement as exc:
            pytest.fail(f"{len(failing)} of {len(seeds)}, seed {failing[0]}: {exc}")


@pytest.mark.parametrize("start", range(0, 300, BLOCK))
def test_sources_judge_alike(start: int) -> None:
    check(range(start, start + BLOCK))


def test_disagreement_is_found() -> None:
    """The campaign reports an error of a form, too."""
    model = Model("Some", (Drawn("x0", "int", {"ge": 1}),))
    compare(model, [{"x0": 1}, {"x0": 0}])
    broken = Model("Some", (Drawn("x0", "int", {"ge": 1, "le": 0}),))
    with pytest.raises(Disagreement, match="no number is at least 1"):
        compare(broken, [])
