"""`module:app` or `path/file.py:app` → the server it names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UsageError
from ..server import Server

__all__ = ["load_app"]


def load_app(target: str) -> Server:
    """The server that `target` names; its name may be left out if it is `app`.

    Raises:
        UsageError: There is none, or its module cannot be imported.
    """
    # Not at the first colon, which on Windows follows the drive's letter.
    place, colon, name = target.rpartition(":")
    if not colon or "/" in name or "\\" in name or name.endswith(".py"):
        place, name = target, "app"
    module = _load_file(Path(place)) if place.endswith(".py") else _load(place)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Server):
        servers = [key for key, one in vars(module).items() if isinstance(one, Server)]
        hint = f"; there is {', '.join(servers)}" if servers else ""
        raise UsageError(f"{target!r}: {name!r} in {place} is no Server{hint}")
    return found


def _load(name: str) -> ModuleType:
    # As `python -m` does, which a command in bin/ does not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise  # it was found, and something that it imports was not
        raise UsageError(f"there is no module {name!r}; write module:app") from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    # What a script next to it would find, the file finds as well.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Steps and Restart are found again by their module's name.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
