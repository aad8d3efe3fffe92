"""Which files are an author's, and the line in them that an error came through."""

from __future__ import annotations

import os
from functools import cache, lru_cache
from typing import Final

__all__ = ["INSTALLED", "authors_line", "is_authors"]

#: The folders of installed packages. These may be anywhere, but have one of two names.
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

_OURS: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


@cache
def _foreign() -> tuple[str, ...]:
    import sysconfig  # slow to import, and needed for reports only

    paths = sysconfig.get_paths()
    folders = {paths[one] for one in ("stdlib", "platstdlib") if one in paths}
    return ("<", _OURS, *(folder + os.sep for folder in folders))


@lru_cache(4096)
def is_authors(file: str) -> bool:
    """Return whether a file is an author's: not Python's, installed, generated or ours."""
    if file.startswith(_foreign()):
        return False
    return INSTALLED.isdisjoint(file.split(os.sep))


def authors_line(error: BaseException) -> str | None:
    """Return the innermost `file:line` of an author that an error came through.

    If all of the code is installed, it is the outermost line that is not ours.
    """
    authors = outermost = None
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_authors(file):
            authors = f"{file}:{trace.tb_lineno}"
        elif outermost is None and not file.startswith(_foreign()):
            outermost = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return authors or outermost
