"""Load the server that `module:app` or `path/file.py:app` names."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..engine.misuse import traced
from ..errors import UsageError
from .app import Server

__all__ = ["load", "load_app"]


def load_app(target: str) -> Server:
    """Return the server that `target` names; the name may be left out if it is `app`.

    Raises:
        UsageError: If `target` does not name a `Server`.
        Exception: If importing the module raised it.
    """
    found, place, name, module = _found(target, "app")
    if not isinstance(found, Server):
        servers = [key for key, one in vars(module).items() if isinstance(one, Server)]
        hint = f"; there is {', '.join(servers)}" if servers else ""
        if found is None and name not in vars(module):
            raise UsageError(f"{target!r}: there is no {name!r} in {place}{hint}")
        if inspect.isroutine(found):
            hint += "; functions are not called: name what it makes, app = ...()"
        raise UsageError(f"{target!r}: {name!r} in {place} is not a Server{hint}")
    return found


def load(target: str) -> Any:
    """Return the object that `module:name` or `path/file.py:name` names.

    Raises:
        UsageError: If there is no such object.
        Exception: If importing the module raised it.
    """
    found, place, name, _ = _found(target, "")
    if found is None or not name:
        raise UsageError(f"{target!r}: there is no {name!r} in {place}")
    return found


def _found(target: str, default: str) -> tuple[Any, str, str, ModuleType]:
    # Split at the last colon: on Windows, the first one follows the drive's letter.
    place, colon, name = target.rpartition(":")
    if not colon or "/" in name or "\\" in name or name.endswith(".py"):
        place, name = target, ""
    name = name or default
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load(place)
    except UsageError as exc:
        raise traced(exc) from None  # names the line of a tool that cannot be offered
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found, place, name, module


def _load(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is not a module; write module:app or file.py:app")
    # `python -m` adds the current directory to the path; a command in bin/ does not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise  # the module was found, but a module that it imports was not
        raise UsageError(f"there is no module {name!r}; write module:app") from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    path = path.resolve()
    # Annotations, steps and Restart are looked up by the name of their module, so no
    # other module may have this name.
    known = sys.modules.get(path.stem)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise UsageError(
            f"there is another module {path.stem!r}, so {path.name} needs another name"
        )
    # The file can import the same modules as if it were run as a script.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
