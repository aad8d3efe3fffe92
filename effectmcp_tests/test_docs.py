"""Every Python block of the README and of docs/ runs, in the order of its page."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: What the README tells a newcomer to type. `.ci/run` types it too.
COMMANDS = """\
python3 -m venv .venv && .venv/bin/pip install -q '.[client]' && .venv/bin/effectmcp call examples/bookshop.py order title=Dune
python3 -m venv .venv && .venv/bin/pip install -q -e '.[testing]' && .venv/bin/python -m pytest -n auto
"""


def blocks(page: Path, language: str) -> list[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for one, text in found if one == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(f"docs_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = blocks(page, "python")
    assert found, "a page without a runnable example"
    for number, block in enumerate(found, 1):
        code = compile(block, f"{page.name}, block {number}", "exec", dont_inherit=True)
        exec(code, vars(module))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_language_that_is_run(page: Path) -> None:
    languages = {language for language, _ in FENCE.findall(page.read_text("utf-8"))}
    assert languages <= {"python", "sh"}


def test_the_readme_has_its_two_commands() -> None:
    assert "".join(blocks(ROOT / "README.md", "sh")) == COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_the_effects_page_lists_every_effect() -> None:
    import effectmcp

    text = (ROOT / "docs" / "effects.md").read_text("utf-8")
    for name in effectmcp.__all__:
        class_ = getattr(effectmcp, name)
        is_effect = isinstance(class_, type) and issubclass(class_, effectmcp.Effect)
        if is_effect and name not in ("Effect", "InputRequest"):
            assert f"`{name}(" in text, name
