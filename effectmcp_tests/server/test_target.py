"""Targets on the command line, and the servers that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from effectmcp import SchemaError, UsageError
from effectmcp.server.target import load, load_app

SHOP = """\
from effectmcp import Server

app = Server("shop")

class inner:
    server = Server("inner")

other = 5
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in; what is imported from it is forgotten."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    write(tmp_path / "shop_of_test.py", SHOP)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(target: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_app(target)
    return str(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        "shop_of_test:app",
        "shop_of_test",
        "shop_of_test:",
        "shop_of_test.py",
        "shop_of_test.py:app",
        "./shop_of_test.py:app",
    ],
)
def test_target_names_a_server(target: str) -> None:
    assert load_app(target).name == "shop"


def test_target_of_an_absolute_path(folder: Path) -> None:
    assert load_app(f"{folder}/shop_of_test.py:app").name == "shop"


def test_target_of_a_nested_attribute() -> None:
    assert load_app("shop_of_test:inner.server").name == "inner"
    assert load_app("shop_of_test.py:inner.server").name == "inner"


def test_target_in_a_package(folder: Path) -> None:
    write(folder / "of_test" / "__init__.py", "")
    write(folder / "of_test" / "shop.py", SHOP)
    assert load_app("of_test.shop:app").name == "shop"


def test_target_finds_modules_where_it_is_started() -> None:
    """As `python -m` does; and once is enough."""
    load_app("shop_of_test")
    load_app("shop_of_test")
    assert sys.path.count(os.getcwd()) == 1


def test_target_finds_its_neighbours(folder: Path) -> None:
    write(folder / "lib" / "titles_of_test.py", "name = 'from next to it'")
    text = "from titles_of_test import name\n" + SHOP.replace('"shop"', "name")
    write(folder / "lib" / "with_neighbour.py", text)
    assert load_app("lib/with_neighbour.py").name == "from next to it"


def test_target_file_is_loaded_once() -> None:
    first = load_app("shop_of_test.py")
    assert load_app("shop_of_test.py") is first
    assert load_app("shop_of_test") is first


# ---- invalid targets ----


def test_target_without_a_server_of_that_name() -> None:
    assert refusal("shop_of_test:nothing") == (
        "'shop_of_test:nothing': there is no 'nothing' in shop_of_test; there is app"
    )
    assert "'other' in shop_of_test.py is not a Server" in refusal(
        "shop_of_test.py:other"
    )
    assert "'app.name.x'" in refusal("shop_of_test:app.name.x")


def test_target_that_makes_a_server(folder: Path) -> None:
    write(folder / "maker_of_test.py", "def make(): ...\nclass app: ...\napp = app()")
    assert refusal("maker_of_test:app").endswith("is not a Server")
    said = refusal("maker_of_test:make")
    assert said.endswith(
        "not a Server; functions are not called: name what it makes, app = ...()"
    )


def test_target_without_any_server(folder: Path) -> None:
    write(folder / "empty_of_test.py", "")
    assert refusal("empty_of_test").endswith("there is no 'app' in empty_of_test")


@pytest.mark.parametrize(
    "target", ["no_such_module:app", "no_such.module", "shop_of_test.app", "sys.no"]
)
def test_target_module_that_is_not_there(target: str) -> None:
    name = target.partition(":")[0]
    assert refusal(target) == f"there is no module {name!r}; write module:app"


@pytest.mark.parametrize("target", ["", ":app", ".shop:app", "a/b:app", "a-b", "a..b"])
def test_target_that_is_not_a_module(target: str) -> None:
    assert "is not a module; write module:app or file.py:app" in refusal(target)


@pytest.mark.parametrize("path", ["gone.py", "C:\\shops\\gone.py", "C:/shops/gone.py"])
def test_target_file_that_is_not_there(path: str) -> None:
    """A drive's colon is not the one before the name."""
    assert refusal(path) == f"there is no file {path!r}"
    assert refusal(f"{path}:app") == f"there is no file {path!r}"


def test_target_file_of_the_name_of_another_module(folder: Path) -> None:
    """Classes of the file would resolve their annotations in the other module."""
    write(folder / "json.py", SHOP)
    assert refusal("json.py:app").startswith("there is another module 'json'")


# ---- errors inside the target ----


@pytest.mark.parametrize("target", ["broken_of_test", "broken_of_test.py"])
def test_target_import_error_is_not_hidden(folder: Path, target: str) -> None:
    path = write(folder / "broken_of_test.py", "import not_installed_of_test\n" + SHOP)
    with pytest.raises(ModuleNotFoundError, match="not_installed_of_test") as caught:
        load_app(target)
    assert str(path) in str(caught.traceback[-1].path)
    assert "broken_of_test" not in sys.modules


def test_target_missing_part_of_a_package_is_not_hidden(folder: Path) -> None:
    write(folder / "part_of_test" / "__init__.py", "")
    write(folder / "part_of_test" / "shop.py", "import part_of_test.missing")
    with pytest.raises(ModuleNotFoundError, match="part_of_test.missing"):
        load_app("part_of_test.shop")


@pytest.mark.parametrize("target", ["wrong_of_test", "wrong_of_test.py"])
def test_target_tool_that_cannot_be_offered(folder: Path, target: str) -> None:
    """The message says at which line."""
    text = SHOP + "\n@app.tool(name='no name')\ndef tool() -> str: ...\n"
    write(folder / "wrong_of_test.py", text)
    with pytest.raises(SchemaError, match=r"wrong_of_test\.py:1\d: the tool name"):
        load_app(target)


def test_load_returns_any_named_object(tmp_path: Path) -> None:
    file = tmp_path / f"options_{tmp_path.name}.py"
    file.write_text("class of:\n    options = {'steps': {}}\n")
    assert load(f"{file}:of.options") == {"steps": {}}
    for target in (f"{file}:gone", str(file)):
        with pytest.raises(UsageError, match="there is no"):
            load(target)
