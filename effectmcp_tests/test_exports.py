"""The public names: that they exist, are documented, and cost nothing to import."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import pkgutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import effectmcp
import effectmcp.engine
import effectmcp.testing
from effectmcp import Effect, InputRequest, Outcome, effects
from effectmcp.effects import control, local, questions, steps
from effectmcp.engine.effect_table import KINDS

ROOT = Path(effectmcp.__file__).parent
TESTS = Path(__file__).parent
FACADES = [effectmcp, effectmcp.engine, effectmcp.testing]


def modules() -> Iterator[str]:
    """Every module of the package, facades included."""
    yield "effectmcp"
    for found in pkgutil.walk_packages(effectmcp.__path__, "effectmcp."):
        yield found.name


def packages() -> Iterator[Path]:
    """Every folder of the package that holds code, relative to its root."""
    for init in ROOT.rglob("__init__.py"):
        if init.parent != ROOT:
            yield init.parent.relative_to(ROOT)


MODULES = sorted(modules())


def rank(name: str) -> tuple[int, str]:
    """Capitals first, then classes, then functions; each by the alphabet."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def defined(module: ModuleType) -> set[str]:
    """The functions and classes a module defines, private ones left out."""
    return {
        node.name
        for node in tree_of(module).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
    }


@cache
def _imported() -> Mapping[str, set[str]]:
    """By module, what others import from it by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for other in MODULES:
        package = other if _is_package(other) else other.rpartition(".")[0]
        for node in ast.walk(tree_of(importlib.import_module(other))):
            if isinstance(node, ast.ImportFrom):
                relative = "." * node.level + (node.module or "")
                target = importlib.util.resolve_name(relative, package)
                found[target] |= {alias.name for alias in node.names}
    return found


def borrowed(name: str) -> set[str]:
    """The names that other modules import from the module `name`."""
    found = _imported().get(name, set())
    children = {one.rpartition(".")[2] for one in MODULES if one.startswith(f"{name}.")}
    return {one for one in found if not one.startswith("_")} - {"*"} - children


def _is_package(name: str) -> bool:
    return hasattr(importlib.import_module(name), "__path__")


# ---- the facades ----


@pytest.mark.parametrize("facade", FACADES, ids=lambda f: f.__name__)
def test_facade_names_exist_and_are_listed_once(facade: ModuleType) -> None:
    names = facade.__all__
    assert len(set(names)) == len(names)
    for name in names:
        assert hasattr(facade, name), name


@pytest.mark.parametrize("facade", FACADES, ids=lambda f: f.__name__)
def test_facade_names_are_documented(facade: ModuleType) -> None:
    """A docstring of its own: an inherited one describes something else."""
    for name in facade.__all__:
        value: Any = getattr(facade, name)
        if inspect.isclass(value):
            text = vars(value).get("__doc__")
        elif inspect.isfunction(value):
            text = value.__doc__
        else:
            continue  # an alias of a type, or a constant with a comment
        first = (text or "").strip().partition("\n\n")[0]
        assert first.endswith((".", ":")) or ". " in first, f"{name}: {text!r}"


def test_facades_share_no_name() -> None:
    """One way to import each thing."""
    names = [name for facade in FACADES for name in facade.__all__]
    assert len(set(names)) == len(names)


def test_facade_names_come_from_one_module_each() -> None:
    for facade in FACADES:
        for name in facade.__all__:
            homes = [
                one
                for one in MODULES
                if name in getattr(importlib.import_module(one), "__all__", ())
                and not _is_package(one)
            ]
            assert len(homes) == 1, f"{name} is defined in {homes}"


def names_of_effects() -> set[str]:
    """Return the names that the modules of effects list in `__all__`."""
    modules = (control, local, questions, steps)
    names = {name for module in modules for name in module.__all__}
    return names | {"Branch", "Effect", "Flow", "InputRequest"}


def test_author_facade_has_every_effect() -> None:
    constants = {name for name in names_of_effects() if name.isupper()}
    assert names_of_effects() - constants <= set(effectmcp.__all__)


def test_facade_of_effects_has_every_effect() -> None:
    assert {name for name in names_of_effects() if not hasattr(effects, name)} == set()


def test_facade_of_effects_is_not_used_inside() -> None:
    """An import names the module that defines the effect."""
    assert borrowed("effectmcp.effects") == set()


# ---- every module ----


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_docstring(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", MODULES)
def test_module_all_is_sorted(name: str) -> None:
    names = getattr(importlib.import_module(name), "__all__", [])
    assert list(names) == sorted(names, key=rank)


@pytest.mark.parametrize("name", MODULES)
def test_module_all_exists(name: str) -> None:
    module = importlib.import_module(name)
    for one in getattr(module, "__all__", ()):
        assert hasattr(module, one), one


@pytest.mark.parametrize("name", MODULES)
def test_module_all_is_complete(name: str) -> None:
    """Names without an underscore, or used elsewhere, are public: listed."""
    module = importlib.import_module(name)
    public = defined(module) | borrowed(name)
    assert public <= set(getattr(module, "__all__", ()))


@pytest.mark.parametrize("package", sorted(packages()), ids=str)
def test_package_has_a_folder_of_tests(package: Path) -> None:
    assert (TESTS / package / "__init__.py").exists()


# ---- effects ----


def test_every_effect_is_in_the_table_of_kinds() -> None:
    """`Outcome` is transparent: its row is its request's."""
    classes = {
        value
        for name in names_of_effects()
        if isinstance(value := getattr(effects, name), type)
        and issubclass(value, Effect)
    }
    assert classes - {Effect, InputRequest} == set(KINDS) | {Outcome}


# ---- imports ----


def loaded_by(statement: str, *, of: set[str]) -> set[str]:
    """Which of the packages `of` a fresh interpreter has loaded after `statement`."""
    code = f"import sys; {statement}; print(*{of!r} & sys.modules.keys())"
    # Without coverage, which would be measured there, too, and loads what it needs.
    env = {key: one for key, one in os.environ.items() if "COVERAGE" not in key}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    return set(done.stdout.split())


HEAVY = {"trio", "h11", "cryptography", "hypothesis", "asyncio", "cattrs", "pytest"}


def test_importing_effectmcp_loads_nothing_heavy() -> None:
    assert loaded_by("import effectmcp", of=HEAVY) == set()


def test_importing_the_engine_loads_nothing_that_does_io() -> None:
    """The engine can be lifted out: no loop, thread, socket or process behind it."""
    impure = HEAVY | {"socket", "ssl", "subprocess", "sqlite3", "multiprocessing"}
    assert loaded_by("import effectmcp.engine", of=impure) == set()


def test_importing_the_sync_driver_loads_no_event_loop() -> None:
    loops = HEAVY - {"cryptography"}
    assert loaded_by("import effectmcp.drivers.sync", of=loops) == set()


def test_importing_the_test_kit_loads_no_test_tools() -> None:
    """Stepping handlers by hand needs neither: strategies are a separate module."""
    assert loaded_by("import effectmcp.testing", of={"hypothesis", "pytest"}) == set()


def test_importing_the_author_facade_does_not_load_the_engine() -> None:
    """An author's module that only defines handlers should not pay for the engine."""
    assert loaded_by("import effectmcp", of={"effectmcp.engine"}) == set()
