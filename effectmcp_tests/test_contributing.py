"""Compare the tables of CONTRIBUTING.md with the tree.

A table under "How to add" has three columns: a file, names in it, and the change. The
files exist, the names are in them, and no module that knows such a thing is forgotten.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
CODE = re.compile(r"`([^`]+)`")

#: The tables, by heading: file and names, row by row.
Tables = dict[str, list[tuple[str, list[str]]]]


def tables() -> Tables:
    found: Tables = {}
    how = TEXT[TEXT.index("## How to add") :]
    for section in how.split("\n### ")[1:]:
        rows = found[section.partition("\n")[0]] = []
        for line in section.splitlines():
            if line.startswith("| `"):
                _, file, names, *_ = line.split("|")
                (path,) = CODE.findall(file)
                rows.append((path, CODE.findall(names)))
    return found


TABLES = tables()
ROWS = [
    pytest.param(path, names, id=f"{heading}: {path}")
    for heading, rows in TABLES.items()
    for path, names in rows
]


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return what a module defines, imports, reads, and has as a string."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Constant(value=str(text)):
                found.add(text)
            case _:
                pass
    return frozenset(found)


@cache
def names_in_tables(path: Path) -> frozenset[str]:
    """Return the names and strings in the tables of a module: constants in capitals."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                continue
        if name.isupper():
            for one in ast.walk(value):
                match one:
                    case ast.Name(id=text) | ast.Constant(value=str(text)):
                        found.add(text)
                    case _:
                        pass
    return frozenset(found)


def modules_that_know(*names: str) -> Iterator[str]:
    for path in sorted((ROOT / "effectmcp").rglob("*.py")):
        if names_in(path).intersection(names):
            yield path.relative_to(ROOT).as_posix()


def test_there_are_tables() -> None:
    assert set(TABLES) == {
        "An effect",
        "A question",
        "A form type",
        "A kind of class",
        "A method",
        "A revision",
        "A transport or a host",
        "A bridge, or a version of another SDK",
        "An event for observers",
        "An interceptor that servers need often",
        "A rule of the engine",
    }
    assert all(TABLES.values())


@pytest.mark.parametrize(("path", "names"), ROWS)
def test_files_and_names_exist(path: str, names: list[str]) -> None:
    file = ROOT / path
    assert file.is_file()
    if file.suffix == ".py":
        assert not set(names) - names_in(file)
    else:
        text = file.read_text("utf-8")
        assert not [name for name in names if name not in text]


@pytest.mark.parametrize("heading", TABLES)
def test_no_file_is_listed_twice(heading: str) -> None:
    paths = [path for path, _ in TABLES[heading]]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("heading", "examples"),
    [
        ("An effect", ["Uuid"]),
        ("A question", ["ListRoots", "ElicitUrl"]),
        ("A method", ["completion/complete", "resources/templates/list"]),
        ("An event for observers", ["RoundRefused", "StepPerformed"]),
    ],
)
def test_no_module_is_forgotten(heading: str, examples: list[str]) -> None:
    """A module that mentions what the table takes as its example is in the table."""
    listed = {path for path, _ in TABLES[heading]}
    forgotten = set(modules_that_know(*examples)) - listed
    assert not forgotten, "add them to the table of CONTRIBUTING.md"


@pytest.mark.parametrize(
    ("heading", "examples"),
    [
        ("An effect", ["Uuid"]),
        ("A method", ["completion/complete", "resources/templates/list"]),
    ],
)
def test_no_table_of_the_tests_is_forgotten(heading: str, examples: list[str]) -> None:
    """A test module with a table that has the example needs a row for the addition."""
    listed = {path for path, _ in TABLES[heading]}
    for path in sorted((ROOT / "effectmcp_tests").rglob("*.py")):
        if names_in_tables(path).intersection(examples):
            name = path.relative_to(ROOT).as_posix()
            assert name in listed, f"add {name} to the table of CONTRIBUTING.md"


def test_paths_elsewhere_in_the_text_exist() -> None:
    folders = r"(?:effectmcp\w*|docs|examples|benchmarks|\.ci)"
    for found in CODE.findall(TEXT):
        if re.fullmatch(rf"{folders}/[\w./-]+", found):
            assert (ROOT / found).exists(), found


def test_every_script_is_described() -> None:
    scripts = [path for path in (ROOT / ".ci").iterdir() if os.access(path, os.X_OK)]
    assert scripts
    for script in scripts:
        assert f"| `.ci/{script.name}` |" in TEXT, script.name
