"""Run every Python block of the README and of docs/, in the order of its page.

Also: links, anchors and citations of the specification lead somewhere.
"""

from __future__ import annotations

import configparser
import re
import sys
import types
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
INTERNALS = sorted((ROOT / "docs" / "internals").glob("*.md"))
#: Pages for contributors: diagrams and excerpts, which are not run.
UNRUN = [ROOT / "CONTRIBUTING.md", *INTERNALS]
RULES = ROOT / "docs" / "internals" / "replay.md"
SOURCES = [
    path
    for folder in ("effectmcp", "effectmcp_tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Packages that the examples of a page need.
HOSTS = {
    "django.md": ["django", "joserfc"],
    "embedding.md": ["starlette", "joserfc"],
    "flask.md": ["flask", "joserfc"],
}

#: Where a page about states looks for a module that it names alone.
STATE = [ROOT / folder / "state" for folder in ("effectmcp", "effectmcp_tests")]

#: What the README tells a newcomer to type. `.ci/run` types it too.
COMMANDS = """\
python3 -m venv .venv && .venv/bin/pip install -q '.[client]' && .venv/bin/effectmcp call examples/bookshop.py order title=Dune
python3 -m venv .venv && .venv/bin/pip install -q -e '.[testing]' && .venv/bin/python -m pytest -n auto
"""


def blocks(page: Path, language: str) -> list[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for one, text in found if one == language]


@cache  # Django can be configured only once per process
def module_of(page: Path) -> types.ModuleType:
    """Return a module with all Python blocks of a page."""
    for package in HOSTS.get(page.name, ()):
        pytest.importorskip(package, reason=f"pip install {package}")
    module = types.ModuleType(f"docs_{page.stem}")
    sys.modules[module.__name__] = module
    found = blocks(page, "python")
    assert found, "a page without a runnable example"
    for number, block in enumerate(found, 1):
        code = compile(block, f"{page.name}, block {number}", "exec", dont_inherit=True)
        exec(code, vars(module))
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page: Path) -> None:
    module_of(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_language_that_is_run(page: Path) -> None:
    languages = {language for language, _ in FENCE.findall(page.read_text("utf-8"))}
    assert languages <= {"python", "sh"}


def test_the_readme_has_its_two_commands() -> None:
    assert "".join(blocks(ROOT / "README.md", "sh")) == COMMANDS


@pytest.mark.parametrize("page", UNRUN, ids=lambda page: page.name)
def test_blocks_for_contributors_are_marked(page: Path) -> None:
    languages = {language for language, _ in FENCE.findall(page.read_text("utf-8"))}
    assert languages <= {"sh", "text"}


@pytest.mark.parametrize("page", [*PAGES, *UNRUN], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)", page.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        found = page.parent / target if target else page
        assert found.exists(), link
        assert not anchor or anchor in anchors(found), link


# ---- the specification ----------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    text = FENCE.sub("", page.read_text("utf-8"))
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


def rules() -> set[str]:
    """Return the ids of the rules of the engine: L4, B3a."""
    return set(re.findall(r"^### (.+)$", RULES.read_text("utf-8"), re.MULTILINE))


def test_every_cited_anchor_exists() -> None:
    cited = 0
    for path in [*SOURCES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]:
        # A docstring may break a line after the name of the page.
        for page, anchor in re.findall(
            r"docs/internals/(\w+\.md)(?:#([\w-]+))?", path.read_text("utf-8")
        ):
            found = ROOT / "docs" / "internals" / page
            assert found.exists(), (path, page)
            assert not anchor or anchor in anchors(found), (path, page, anchor)
            cited += bool(anchor)
    assert cited > 40


def test_every_rule_at_the_start_of_a_docstring_exists() -> None:
    """In engine tests an id alone is a citation: `L4: ...`, `Q1, D1: ...`."""
    known, cited = rules(), set()
    opening = re.compile(r'"""((?:[A-Z]\d\w?(?:, | and )?)+)[:;,.]')
    for path in sorted((ROOT / "effectmcp_tests" / "engine").rglob("*.py")):
        for ids in opening.findall(path.read_text("utf-8")):
            found = set(re.findall(r"[A-Z]\d\w?", ids))
            assert not found - known, (path, found - known)
            cited |= found
    assert len(cited) > 20


def test_every_rule_is_cited_by_the_code_that_follows_it() -> None:
    package = ROOT / "effectmcp"
    text = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    cited = set(re.findall(r"docs/internals/replay\.md#(\w+)", text))
    assert not {rule.lower() for rule in rules()} - cited


def test_nothing_cites_the_specification_in_another_way() -> None:
    stray = re.compile(r"\bREPLAY(?:\.md)?,? |\bDESIGN(?:\.md)?\b|docs/internals, ")
    for path in SOURCES:
        if path != Path(__file__):
            assert not stray.search(path.read_text("utf-8")), path


def test_the_architecture_page_has_the_layers() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", "utf-8")
    layers = config["importlinter:contract:layers"]["layers"].strip()
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")
    assert f"```text\n{layers}\n```\n" in page


def test_the_architecture_page_has_every_part() -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")
    for path in sorted((ROOT / "effectmcp").iterdir()):
        is_folder = (path / "__init__.py").exists()
        if is_folder or (path.suffix == ".py" and not path.stem.startswith("__")):
            assert f"`effectmcp/{path.name}{'/' * is_folder}`" in page, path.name


@pytest.mark.parametrize("page", UNRUN, ids=lambda page: page.name)
def test_paths_that_pages_for_contributors_name_exist(page: Path) -> None:
    folders = [ROOT, ROOT / "effectmcp", ROOT / "effectmcp_tests"]
    folders += [folder / "engine" for folder in folders[1:]]
    for found in re.findall(r"`([\w./]+\.py|[a-z_./]+/)`", page.read_text("utf-8")):
        assert found == "utils.py" or any(
            (folder / found).exists() for folder in [*folders, *STATE]
        ), found


def test_the_effects_page_lists_every_effect() -> None:
    import effectmcp

    text = (ROOT / "docs" / "effects.md").read_text("utf-8")
    for name in effectmcp.__all__:
        class_ = getattr(effectmcp, name)
        is_effect = isinstance(class_, type) and issubclass(class_, effectmcp.Effect)
        if is_effect and name not in ("Effect", "InputRequest"):
            assert f"`{name}(" in text, name
