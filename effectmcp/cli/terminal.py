"""A terminal: keys in, a screen out. Standard output stays free for the result."""

from __future__ import annotations

import os
import shutil
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

from ..canonical import JSON
from .screen import Screen, one_line

__all__ = ["Terminal"]

_NAMED: Final = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x04": "decline",
    "\x1b": "cancel",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[Z": "up",
}


class Terminal:
    """Asks whoever sits at the terminal.

    Attributes:
        was_refused: Whether something was declined or closed so far.
    """

    def __init__(self) -> None:
        self.was_refused = False
        self._out: TextIO = sys.stderr
        self._has_bar = False

    @staticmethod
    def is_there() -> bool:
        """Whether somebody sits at one."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def ask(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, JSON]:
        """Show the questions of a round, and wait until all are answered.

        Raises:
            KeyboardInterrupt: The user wants none of it.
        """
        self.clear()
        screen = Screen(questions)
        shown = 0
        with _keys() as keys:
            while True:
                shown = self._draw(screen, shown)
                if screen.is_done:
                    break
                screen.press(next(keys))
        self.was_refused = self.was_refused or screen.was_refused
        for url in screen.links:
            webbrowser.open(url)
        return screen.responses

    def _draw(self, screen: Screen, shown: int) -> int:
        lines = screen.lines(shutil.get_terminal_size().columns)
        # Up to where it began, and away with what was there.
        up = f"\x1b[{shown}A" if shown else ""
        self._out.write(f"{up}\r\x1b[J" + "".join(f"{line}\r\n" for line in lines))
        self._out.flush()
        return len(lines)

    # ---- what is told meanwhile ----

    def progress(self, params: Mapping[str, Any]) -> None:
        """Show progress, in one line that is drawn over."""
        done, total = params.get("progress", 0), params.get("total")
        message = one_line(str(params.get("message") or ""))
        if isinstance(total, (int, float)) and total > 0:
            part = max(0.0, min(1.0, done / total))
            full = round(part * 20)
            bar = f"[{'█' * full}{'░' * (20 - full)}] {part:4.0%}"
        else:
            bar = f"{done:g}"
        if self._out.isatty():
            self._out.write(f"\r\x1b[K{bar} {message}")
            self._has_bar = True
        else:
            self._out.write(f"{bar} {message}\n")
        self._out.flush()

    def log(self, params: Mapping[str, Any]) -> None:
        """Show a log message."""
        data = params.get("data")
        text = data if isinstance(data, str) else repr(data)
        self.say(f"{params.get('level', 'info')}: {one_line(text)}")

    def say(self, text: str) -> None:
        """Write lines, besides the result."""
        self.clear()
        self._out.write(f"{text}\n")
        self._out.flush()

    def clear(self) -> None:
        """Take the progress away."""
        if self._has_bar:
            self._out.write("\r\x1b[K")
            self._has_bar = False


@contextmanager
def _keys() -> Iterator[Iterator[str]]:
    """The keys that are pressed, one by one, none of them shown by the terminal."""
    if os.name == "nt":  # pragma: no cover
        yield _windows_keys()
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        # What was typed ahead is kept.
        tty.setcbreak(file, termios.TCSADRAIN)
        yield _posix_keys(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _posix_keys(file: int) -> Iterator[str]:
    torn = b""
    while True:
        data = os.read(file, 1024)
        if not data:
            raise KeyboardInterrupt  # the terminal is gone
        torn += data
        try:
            text, torn = torn.decode("utf-8"), b""
        except UnicodeDecodeError as exc:
            if exc.start < len(torn) - 3:
                torn = b""  # no text at all, and not one that is under way
            continue
        yield from _split(text)


def _split(text: str) -> Iterator[str]:
    """Keys of what came at once: an escape sequence comes in one piece."""
    at = 0
    while at < len(text):
        size = 3 if text[at : at + 2] == "\x1b[" else 1
        key = text[at : at + size]
        at += size
        named = _NAMED.get(key)
        if named is not None:
            yield named
        elif len(key) == 1 and key.isprintable():
            yield key


def _windows_keys() -> Iterator[str]:  # pragma: no cover
    import msvcrt

    arrows = {"H": "up", "P": "down", "K": "left", "M": "right"}
    while True:
        key = msvcrt.getwch()  # type: ignore[attr-defined]  # of Windows only
        if key == "\x03":
            raise KeyboardInterrupt
        if key in ("\x00", "\xe0"):
            named = arrows.get(msvcrt.getwch())  # type: ignore[attr-defined]  # the same
        else:
            named = _NAMED.get(key, key if key.isprintable() else None)
        if named is not None:
            yield named
