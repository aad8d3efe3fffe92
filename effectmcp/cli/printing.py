"""Print results on standard output, and errors on standard error.

Text is printed unchanged, structured content as JSON; media are saved as files.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..client.errors import RoundsError
from ..client.messages import StateRejected
from ..client.results import Result
from ..errors import ProtocolError
from .layout import one_line

__all__ = ["DECLINED", "ERROR", "FAILED", "UNWRITTEN", "print_error", "print_result"]

#: The tool reported an error.
FAILED: Final = 1
#: The server responded with an error, or not at all.
ERROR: Final = 3
#: The user declined or closed a question, so there is no result.
DECLINED: Final = 4
#: Part of the result could not be written.
UNWRITTEN: Final = 5


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
        print(json.dumps(structured, ensure_ascii=False, indent=2))
    is_saved = True
    for block in result.blocks:
        if structured is None or "text" not in block:
            try:
                _show(block, folder)
            except _UnsavedError as exc:
                is_saved = False
                print(f"effectmcp: {exc}", file=sys.stderr)
                print(json.dumps(block, ensure_ascii=False))
    return is_saved


def print_error(exc: Exception) -> None:
    """Print why there is no result."""
    print(one_line(f"effectmcp: {_words(exc)}"), file=sys.stderr)
    if isinstance(exc, ProtocolError) and exc.data is not None:
        print(json.dumps(exc.data), file=sys.stderr)


def _words(exc: Exception) -> str:
    # Leave out the advice on Python code.
    match exc:
        case TimeoutError():
            return "it took too long"
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


def _show(block: Mapping[str, Any], folder: Path) -> None:
    inner = block.get("resource")
    block = inner if isinstance(inner, dict) else block
    if "text" in block:
        text = str(block["text"])
        if sys.stdout.isatty():
            # Control characters could move the cursor or change the screen: only files
            # and pipes get them.
            text = "\n".join(map(one_line, text.split("\n")))
        print(text)
        return
    data = block.get("data") or block.get("blob")
    if isinstance(data, str):
        try:
            file = _saved(data, str(block.get("mimeType", "")), folder)
        except OSError as exc:
            raise _UnsavedError(f"--save-to {folder}: {exc}") from None
        print(f"saved as {file}")
    elif "uri" in block:
        print(one_line(f"{block.get('name', 'resource')}: {block['uri']}"))
    else:
        print(json.dumps(block, ensure_ascii=False))


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
