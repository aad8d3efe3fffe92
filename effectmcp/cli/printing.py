"""Print results on standard output, and errors on standard error.

Text is printed unchanged, structured content as JSON; media are saved as files. Where
standard output is a terminal, it escapes what it cannot print (see `output`).
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..client.errors import RoundsError
from ..client.messages import StateRejected
from ..client.results import Result
from ..errors import ProtocolError
from .output import say_error
from .printable import json_text, printable

__all__ = ["DECLINED", "ERROR", "FAILED", "UNWRITTEN", "print_error", "print_result"]

#: The tool reported an error.
FAILED: Final = 1
#: The server responded with an error, or not at all.
ERROR: Final = 3
#: The user declined or closed a question, so there is no result.
DECLINED: Final = 4
#: Part of the result could not be written.
UNWRITTEN: Final = 5

#: The maximum number of files of one result: a server could fill the folder with
#: millions of empty ones.
_MOST_FILES: Final = 100


def print_result(result: Result, folder: Path) -> bool:
    """Print a result.

    Args:
        result: The result.
        folder: Where to save images, sounds and other files.

    Returns:
        Whether all files could be saved. The others are printed.
    """
    structured = result.structured
    if structured is not None:
        # The text repeats the structured content, for models.
        print(json_text(structured, indent=2))
    is_saved = True
    saved = 0
    for block in result.blocks:
        if structured is None or "text" not in block:
            try:
                saved += _show(block, folder, may_save=saved < _MOST_FILES)
            except _UnsavedError as exc:
                is_saved = False
                say_error(str(exc))
                print(json_text(dict(block)))
    return is_saved


def print_error(exc: Exception) -> None:
    """Print why there is no result."""
    say_error(_words(exc))
    if isinstance(exc, ProtocolError) and exc.data is not None:
        print(json_text(exc.data), file=sys.stderr)


def _words(exc: Exception) -> str:
    # Leave out the advice on Python code.
    match exc:
        case TimeoutError():
            return f"it took too long: {exc}" if str(exc) else "it took too long"
        case RoundsError():
            return f"the server asked {exc.rounds} times and is not done"
        case StateRejected():
            return (
                f"{ProtocolError.__str__(exc)}: the state from this server has"
                " probably expired; call again to restart"
            )
        case _:
            return str(exc)


class _UnsavedError(Exception):
    """Raised when a file could not be saved."""


def _show(block: Mapping[str, Any], folder: Path, *, may_save: bool) -> bool:
    """Print a block, or save it as a file; return whether a file was saved."""
    inner = block.get("resource")
    block = inner if isinstance(inner, dict) else block
    if "text" in block:
        print(str(block["text"]))
        return False
    data = block.get("data") or block.get("blob")
    if isinstance(data, str):
        if not may_save:
            raise _UnsavedError(f"a result may save {_MOST_FILES} files, and has more")
        try:
            file = _saved(data, str(block.get("mimeType", "")), folder)
        except OSError as exc:
            raise _UnsavedError(f"--save-to {folder}: {exc}") from None
        print(f"saved as {file}")
        return True
    if "uri" in block:
        print(printable(f"{block.get('name', 'resource')}: {block['uri']}"))
    else:
        print(json_text(dict(block)))
    return False


def _saved(data: str, type_: str, folder: Path) -> Path:
    suffix = mimetypes.guess_extension(type_.partition(";")[0].strip()) or ".bin"
    try:
        content = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        content, suffix = data.encode(), ".txt"
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        file = folder / f"result-{number}{suffix}"
        try:
            with file.open("xb") as out:  # never overwrites a file of the user
                out.write(content)
            return file
        except FileExistsError:
            number += 1
