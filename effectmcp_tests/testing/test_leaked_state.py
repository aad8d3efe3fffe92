from __future__ import annotations

import functools
import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from effectmcp.testing.leaked_state import StateChange, StateChanges

Maker = Callable[[str], Any]


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Maker]:
    """Make a module of a source string, with a file like any other."""
    made: list[str] = []

    def make(text: str) -> ModuleType:
        name = f"changing_{len(made)}"
        file = tmp_path / f"{name}.py"
        file.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[name] = found
        made.append(name)
        spec.loader.exec_module(found)
        return found

    yield make
    for name in made:
        del sys.modules[name]


def taken(changes: StateChanges) -> list[str]:
    """In order of their names: a module's globals are looked at in any order."""
    return sorted(one.what for one in changes.take())


# ---- defaults -----------------------------------------------------------------------


def test_a_default_that_is_filled(module: Maker) -> None:
    made = module("""
        def handler(one: int, two: int = 3, *, names: list[str] = []) -> None:
            names.append(str(one))
    """)
    changes = StateChanges(made.handler)
    assert changes.take() == []
    made.handler(1)
    assert changes.take() == [
        StateChange(
            "default names of handler()",
            "the default names of handler() was [] and is ['1'] now",
            f"{made.__file__}:2",
            is_default=True,
        )
    ]


def test_positional_and_keyword_only_defaults(module: Maker) -> None:
    made = module("""
        def handler(
            one: int,
            names: list[str] = [],
            /,
            count: int = 0,
            found: dict[str, int] = {},
            *args: int,
            seen: set[int] = set(),
            other: bytearray = bytearray(),
        ) -> None:
            names.append("a")
            found["b"] = 1
            seen.add(1)
            other.extend(b"d")
    """)
    changes = StateChanges(made.handler)
    made.handler(1)
    found = changes.take()
    assert [one.what for one in found] == [
        "the default names of handler() was [] and is ['a'] now",
        "the default found of handler() was {} and is {'b': 1} now",
        "the default seen of handler() was set() and is {1} now",
        "the default other of handler() was bytearray(b'') and is bytearray(b'd') now",
    ]
    assert [one.where for one in found] == [
        f"{made.__file__}:{line}" for line in (4, 7, 9, 10)
    ]
    assert all(one.is_default for one in found)


def test_defaults_of_other_functions_of_the_module(module: Maker) -> None:
    made = module("""
        from functools import cache


        def helper(names: list[str] = []) -> list[str]:
            names.append("a")
            return names


        def handler() -> list[str]:
            return helper()
    """)
    changes = StateChanges(made.handler)
    made.handler()
    (change,) = changes.take()
    assert change.what == "the default names of helper() was [] and is ['a'] now"
    assert change.where == f"{made.__file__}:5"


def test_defaults_of_a_function_inside(module: Maker) -> None:
    """The handler itself may be one, and is looked at wherever it is."""
    made = module("""
        def make():
            def handler(names: list[str] = []) -> list[str]:
                names.append("a")
                return names

            return handler
    """)
    handler = made.make()
    changes = StateChanges(handler)
    handler()
    (change,) = changes.take()
    assert change.where == f"{made.__file__}:3"


def test_defaults_of_a_decorated_function(module: Maker) -> None:
    made = module("""
        import functools


        def decorated(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args)

            return wrapper


        @decorated
        def handler(names: list[str] = []) -> list[str]:
            names.append("a")
            return names
    """)
    changes = StateChanges(made.handler)
    made.handler()
    (change,) = changes.take()
    assert change.where == f"{made.__file__}:14"


def test_defaults_that_cannot_be_filled_are_not_checked(module: Maker) -> None:
    made = module("""
        def handler(one: int = 1, two: tuple[int, ...] = (), three: object = None):
            pass
    """)
    changes = StateChanges(made.handler)
    made.handler.__defaults__ = (2, (1,), 3)
    assert changes.take() == []


def test_a_default_whose_source_is_missing() -> None:
    """Then it is the function's first line."""
    namespace: dict[str, Any] = {"__name__": __name__}
    text = "def handler(names=[]):\n    names.append(1)\n"
    exec(compile(text, "/no/such/file.py", "exec"), namespace)
    changes = StateChanges(namespace["handler"])
    namespace["handler"]()
    (change,) = changes.take()
    assert change.where == "/no/such/file.py:1"


def test_a_default_of_a_lambda_in_the_middle_of_something(module: Maker) -> None:
    """The lines of a lambda alone are not valid Python."""
    made = module("""
        HANDLERS = dict(
            one=lambda names=[]: names.append(1),
        )
    """)
    handler = made.HANDLERS["one"]
    changes = StateChanges(handler)
    handler()
    (change, *_) = changes.take()
    assert change.where == f"{made.__file__}:3"


def moved(function: Any) -> Any:
    """A function whose file was edited since: another function is at that place now."""
    code = function.__code__
    function.__code__ = code.replace(co_firstlineno=code.co_firstlineno + 4)
    return function


MOVED = """
    def handler(names: list[str] = []) -> None:
        names.append("a")


    def other(count: int) -> None:
        pass
"""


def test_a_default_in_a_file_that_was_edited(module: Maker) -> None:
    handler = moved(module(MOVED).handler)
    changes = StateChanges(handler)
    handler()
    (change,) = changes.take()
    assert change.is_default


def test_a_default_always_has_a_line(module: Maker) -> None:
    """`check` takes a change without a line for a global's, which is only a notice."""
    handler = moved(module(MOVED).handler)
    changes = StateChanges(handler)
    handler()
    (change,) = changes.take()
    assert change.where is not None


# ---- globals ------------------------------------------------------------------------

GLOBALS = """
    import threading

    _number = 0
    _text: str | None = None
    _pair = (1, 2)
    _never_set = 3
    _list: list[int] = []
    _dict: dict[str, int] = {}
    _set: set[int] = set()
    _bytes = bytearray()
    _lock = threading.Lock()
    __dunder__: list[int] = []


    def handler() -> None:
        yield


    def numbers() -> None:
        global _number
        _number += 1


    def texts() -> None:
        def inside() -> None:
            global _text, _lock
            _text = "a"
            _lock = threading.Lock()

        inside()


    def pairs() -> None:
        global _pair
        _pair = (*_pair, 3)


    def fills() -> None:
        _list.append(1)
        _dict["a"] = 1
        _set.add(1)
        _bytes.extend(b"a")
        __dunder__.append(1)
"""


def test_a_global_that_is_set(module: Maker) -> None:
    made = module(GLOBALS)
    changes = StateChanges(made.handler)
    made.numbers()
    assert changes.take() == [
        StateChange(
            "global _number",
            "the global _number was 0 and is 1 now",
            None,
            is_default=False,
        )
    ]


def test_globals_of_functions_inside_and_of_any_value(module: Maker) -> None:
    made = module(GLOBALS)
    changes = StateChanges(made.handler)
    made.texts()
    made.pairs()
    assert taken(changes) == [
        "the global _pair was (1, 2) and is (1, 2, 3) now",
        "the global _text was None and is 'a' now",
    ], "a lock has no value that could be compared"


def test_containers_that_are_filled(module: Maker) -> None:
    made = module(GLOBALS)
    changes = StateChanges(made.handler)
    made.fills()
    assert taken(changes) == [
        "the global _bytes was bytearray(b'') and is bytearray(b'a') now",
        "the global _dict was {} and is {'a': 1} now",
        "the global _list was [] and is [1] now",
        "the global _set was set() and is {1} now",
    ]


def test_globals_that_no_function_sets_are_not_checked(module: Maker) -> None:
    """A test or a reload may, and that is not the handler's doing."""
    made = module(GLOBALS)
    changes = StateChanges(made.handler)
    made._never_set = 4
    made._new: list[int] = []  # type: ignore[misc]
    assert changes.take() == []


def test_other_modules_are_not_read(module: Maker) -> None:
    one = module(GLOBALS)
    other = module("""
        _number = 0


        def numbers(found: list[int] = []) -> None:
            global _number
            _number += 1
            found.append(_number)
    """)
    one.theirs = other.numbers
    changes = StateChanges(one.handler)
    other.numbers()
    one.theirs()
    assert changes.take() == []


def test_large_tables_are_ignored(module: Maker) -> None:
    made = module(GLOBALS)
    made._list = list(range(1001))
    made._dict = {str(n): n for n in range(1001)}
    changes = StateChanges(made.handler)
    made.fills()
    assert taken(changes) == [
        "the global _bytes was bytearray(b'') and is bytearray(b'a') now",
        "the global _set was set() and is {1} now",
    ]


def test_a_table_that_is_changed_within_bounds(module: Maker) -> None:
    made = module(GLOBALS)
    made._list = list(range(1000))
    changes = StateChanges(made.handler)
    made._list[999] = 0
    (change,) = taken(changes)
    assert change.startswith("the global _list was [0, 1, 2, 3, ")
    assert len(change) < 180, "long values are cut"


# ---- looks --------------------------------------------------------------------------


def test_each_comparison_reports_new_changes(module: Maker) -> None:
    """Since the last one; but how it was is how it was at first."""
    made = module(GLOBALS)
    changes = StateChanges(made.handler)
    made.numbers()
    assert taken(changes) == ["the global _number was 0 and is 1 now"]
    assert taken(changes) == []
    made.numbers()
    assert taken(changes) == ["the global _number was 0 and is 2 now"]


def test_a_later_global_is_compared_once_it_exists(module: Maker) -> None:
    made = module(GLOBALS)
    del made._number
    changes = StateChanges(made.handler)
    made._number = 5
    assert taken(changes) == []
    made.numbers()
    assert taken(changes) == ["the global _number was 5 and is 6 now"]


# ---- handlers other than functions --------------------------------------------------


def test_methods_partials_and_objects(module: Maker) -> None:
    made = module("""
        import functools

        _number = 0


        class Shop:
            def sell(self) -> None:
                global _number
                _number += 1


        def sets() -> None:
            global _number
            _number += 1
    """)
    changes = StateChanges(made.Shop().sell)
    made.Shop().sell()
    made.sets()
    assert taken(changes) == ["the global _number was 0 and is 2 now"]
    assert StateChanges(functools.partial(made.sets)).take() == []
    assert StateChanges(made.Shop()).take() == []


def test_a_function_whose_module_is_nowhere() -> None:
    """Made with exec, say, or in a module that is loaded and never registered."""
    namespace: dict[str, Any] = {"__name__": "in_no_such_module", "seen": []}
    exec("def handler():\n    seen.append(1)\n", namespace)
    changes = StateChanges(namespace["handler"])
    namespace["handler"]()
    assert taken(changes) == ["the global seen was [] and is [1] now"]


def test_a_value_that_cannot_be_shown(module: Maker) -> None:
    made = module("""
        class Sulky:
            def __repr__(self) -> str:
                raise OSError("not now")


        _list = [Sulky()]


        def handler() -> None:
            pass
    """)
    assert StateChanges(made.handler).take() == []
