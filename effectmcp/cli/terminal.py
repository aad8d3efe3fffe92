"""A terminal: keys in, a screen out. Standard output stays free for the result.

Everything is written by `Terminal._write`: one of the control sequences below, and lines
whose unprintable characters are escaped.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from ..canonical import JSON
from .guard import held
from .keyboard import NAMED, KeyDecoder
from .layout import fitting, rows
from .output import is_terminal, raw
from .printable import json_text, printable
from .screen import Screen
from .signals import stopping

if TYPE_CHECKING:
    from ..client import Task

__all__ = ["Terminal", "open_page"]

#: Seconds to wait for the rest of a sequence after its escape, for slow connections.
#: Users do not notice them.
_PATIENCE: Final = 0.05

#: The maximum number of characters of a status, and of a log message. A server chooses
#: them.
_LONGEST_STATUS: Final = 500
_LONGEST_LOG: Final = 10_000

#: Control sequences: erase the line, and everything below; move up.
_ERASE_LINE: Final = "\r\x1b[K"
_ERASE_BELOW: Final = "\r\x1b[J"
_UP: Final = "\x1b[{}A"

#: Larger numbers are not progress, and a float cannot hold them exactly.
_FAR: Final = 10**15


class Terminal:
    """Asks the user at the terminal."""

    def __init__(self) -> None:
        self._out: TextIO = raw(sys.stderr)
        self._has_bar = False
        self._shown: list[str] = []

    @staticmethod
    def is_there() -> bool:
        """Whether the process has a terminal."""
        return sys.stdin.isatty() and is_terminal(sys.stderr)

    def ask(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, JSON]:
        """Show the questions of a round, and wait until all are answered.

        Raises:
            KeyboardInterrupt: If the user cancels with Ctrl-C.
        """
        self.clear()
        screen = Screen(questions)
        self._shown = []
        with held(), _keys(on_taken=self._shown.clear) as keys:
            while True:
                self._draw(screen)
                if screen.is_done:
                    break
                opened = screen.open_count
                for key in next(keys):
                    screen.press(key)
                    if screen.open_count != opened:
                        # The rest of pasted input does not answer the next question.
                        break
        for url in screen.links:
            if not open_page(url):
                self.say(f"open it yourself: {url}")
        return screen.responses

    def _draw(self, screen: Screen) -> None:
        size = self._size()
        # The cursor is below the last line. An answered screen stays, and may scroll.
        height = None if screen.is_done else max(1, size.lines - 1)
        lines = screen.lines(size.columns, height)
        # Move up to the first line, and erase the old screen.
        up = rows(self._shown, size.columns)
        move = _UP.format(up) if up else ""
        self._write(*lines, control=move + _ERASE_BELOW, end="\r\n")
        self._shown[:] = lines

    def _size(self) -> os.terminal_size:
        # The size of the terminal: standard output may be redirected.
        try:
            size = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            size = os.terminal_size((0, 0))
        # A serial line does not report its size.
        return size if all(size) else shutil.get_terminal_size()

    # ---- messages during a call ----

    def progress(self, params: Mapping[str, Any]) -> None:
        """Show progress, in one line that the next report replaces."""
        done, total = _number(params.get("progress")), _number(params.get("total"))
        message = str(params.get("message") or "")[:_LONGEST_STATUS]
        if done is None:
            return
        if total is not None and total > 0:
            part = max(0.0, min(1.0, done / total))
            full = round(part * 20)
            bar = f"[{'█' * full}{'░' * (20 - full)}] {part:4.0%}"
        else:
            bar = f"{done:g}"
        self._replace(f"{bar} {message}")

    def status(self, task: Task) -> None:
        """Show the status of a task, in one line that the next one replaces."""
        message = "" if task.message is None else f": {task.message}"
        text = f"{task.status.replace('_', ' ')}{message}"
        self._replace(text[:_LONGEST_STATUS])

    def _replace(self, text: str) -> None:
        """Write the line that changes; a file gets one line for each change."""
        if self._out.isatty():
            line = fitting(printable(text), self._size().columns - 1)
            self._write(line, control=_ERASE_LINE, end="")
            self._has_bar = True
        else:
            self._write(text)

    def log(self, params: Mapping[str, Any]) -> None:
        """Show a log message."""
        data = params.get("data")
        text = data if isinstance(data, str) else json_text(data)
        line = f"{params.get('level', 'info')}: {text[:_LONGEST_LOG]}"
        self.clear()
        self._write(line[:_LONGEST_LOG])

    def say(self, text: str) -> None:
        """Write lines on standard error, beside the result."""
        self.clear()
        self._write(*text.split("\n"))

    def clear(self) -> None:
        """Erase the progress line."""
        if self._has_bar:
            self._write(control=_ERASE_LINE)
            self._has_bar = False

    def _write(self, *lines: str, control: str = "", end: str = "\n") -> None:
        self._out.write(control + "".join(f"{printable(one)}{end}" for one in lines))
        self._out.flush()


def open_page(url: str) -> bool:
    """Open a page in a browser, whose output must not mix with the result."""
    # In a process of its own: a browser in the foreground stays until its user closes it,
    # and meanwhile this process may write the result.
    command = [sys.executable, "-I", "-c", _OPEN, url]
    return subprocess.run(command, stdout=2, check=False).returncode == 0


#: Ctrl-C ends it without a traceback.
_OPEN: Final = (
    "import signal, sys, webbrowser; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " sys.exit(not webbrowser.open(sys.argv[1]))"
)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and abs(value) < _FAR
    return value if is_number else None


@contextmanager
def _keys(*, on_taken: Callable[[], None]) -> Iterator[Iterator[list[str]]]:
    """Yield the pressed keys, which the terminal does not echo.

    Keys that arrive together are in one list. An empty list means that the screen must
    be drawn again.

    Args:
        on_taken: Called after another process had the terminal, and may have written on
            it.
    """
    if os.name == "nt":  # pragma: no cover
        yield _windows_keys()
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def take() -> None:
        # Keys that were typed earlier are kept.
        tty.setcbreak(file, termios.TCSADRAIN)
        on_taken()

    def give_back() -> None:
        with suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(file, termios.TCSADRAIN, before)

    with stopping(give_back=give_back, take=take) as woken:
        try:
            take()
            yield _posix_keys(file, woken)
        finally:
            give_back()


def _posix_keys(file: int, woken: int) -> Iterator[list[str]]:
    decoder = KeyDecoder()
    while True:
        patience = _PATIENCE if decoder.is_torn else None
        ready, _, _ = select.select([file, woken], [], [], patience)
        if woken in ready:
            os.read(woken, 1024)
            yield []
            continue
        if ready:
            data = os.read(file, 1024)
            if not data:
                raise KeyboardInterrupt  # the terminal is closed, too
            keys = decoder.feed(data)
        else:
            keys = decoder.end()
        if keys:
            yield keys


def _windows_keys() -> Iterator[list[str]]:  # pragma: no cover
    import msvcrt

    arrows = {"H": "up", "P": "down", "K": "left", "M": "right"}
    while True:
        key = msvcrt.getwch()  # type: ignore[attr-defined]  # only on Windows
        if key == "\x03":
            raise KeyboardInterrupt
        if key in ("\x00", "\xe0"):
            named = arrows.get(msvcrt.getwch())  # type: ignore[attr-defined]  # the same
        else:
            named = NAMED.get(key, key if key.isprintable() else None)
        if named is not None:
            yield [named]
