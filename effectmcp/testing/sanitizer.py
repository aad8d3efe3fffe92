"""Notice what a handler's own code does that a replay cannot repeat.

    a clock, chance, uuid, the environment        use Now, Random, Uuid; or a Step
    files, directories, sockets, processes        use a Step
    sleeping                                      use Sleep; or a Step

A profile function (`sys.setprofile`) sees each call of a builtin by name, and which line
called it. It is set only while a handler's generators run, so steps are free to do as
they like. What a profile function cannot see, as it is a class that is called, a hook
for audit events sees; such hooks cannot be removed again, so there is one for good, and
it looks at a flag first.

The line must be an author's. `logging` reads the clock for its own sake and a converter
draws random names: what the standard library and installed packages do for themselves
is theirs, and only where a module of the standard library hands the result on
(`random.choice`, `uuid.uuid4`, `Path.read_text`) is the line that called it looked for.
"""

from __future__ import annotations

import _thread
import builtins
import datetime as dt
import logging
import os
import random
import socket
import sys
import sysconfig
import threading
import time
import uuid
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ..engine import development

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["Sanitizer", "Sight", "is_authors", "make_strict", "watching_now"]

logger = logging.getLogger("effectmcp.testing")


@frozen
class Sight:
    """Something that a replay cannot repeat.

    Attributes:
        what: What was called.
        where: `file:line`, of the author's code.
        instead: What to write.
    """

    what: str
    where: str
    instead: str

    @property
    def problem(self) -> str:
        """What is wrong with it."""
        if self.instead is _PRINTED:
            return f"{self.what} writes again each time the handler is replayed"
        return (
            f"{self.what} is not recorded: each replay does it again, and may come to"
            " something else"
        )

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}. Use {self.instead}"


_CLOCK: Final = "Now(), which is recorded; or a Step"
_CHANCE: Final = "Random(), which is recorded; or a Step"
_UNIQUE: Final = "Uuid() or IdempotencyKey(...), which stay the same; or a Step"
_OUTSIDE: Final = "a Step, whose result is recorded"
_ENVIRONMENT: Final = "a Step; or read it once, when the module is imported"
_PAUSE: Final = "Sleep(...); or a Step"


def _named(module: Any, names: str, instead: str) -> dict[Any, tuple[str, str]]:
    # Not every platform has all of them.
    prefix = "" if module is builtins else f"{module.__name__}."
    return {
        getattr(module, name): (prefix + name, instead)
        for name in names.split()
        if hasattr(module, name)
    }


#: Builtins, by themselves. Not gmtime and its like, which read the clock only where they
#: are given no time, and that cannot be seen: they differ in other processes (`workers`).
_FUNCTIONS: Final[Mapping[Any, tuple[str, str]]] = {
    **_named(
        time,
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time"
        " process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns",
        _CLOCK,
    ),
    **_named(time, "sleep", _PAUSE),
    **_named(builtins, "open input", _OUTSIDE),
    **_named(os, "urandom getrandom", _CHANCE),
    **_named(
        os,
        "open listdir scandir stat lstat access getcwd readlink remove unlink rename"
        " replace mkdir rmdir chdir system fork getpid getppid getlogin uname cpu_count"
        " kill putenv unsetenv",
        _OUTSIDE,
    ),
    **_named(socket, "gethostname", _OUTSIDE),
    **_named(_thread, "start_new_thread start_joinable_thread", _OUTSIDE),
}

#: Functions in Python that are looked up by their code.
_CODES: Final[Mapping[CodeType, tuple[str, str]]] = {
    type(os.environ).__getitem__.__code__: ("os.environ", _ENVIRONMENT),
    type(os.environ).__iter__.__code__: ("os.environ", _ENVIRONMENT),
    uuid.uuid1.__code__: ("uuid.uuid1", _UNIQUE),
}

#: Audit events of what is no function.
_EVENTS: Final[Mapping[str, str]] = {
    "open": "open",
    "socket.__new__": "socket.socket",
    "socket.connect": "socket.connect",
    "socket.getaddrinfo": "socket.getaddrinfo",
    "subprocess.Popen": "subprocess.Popen",
    "sqlite3.connect": "sqlite3.connect",
    "urllib.Request": "urllib.request",
}

#: Audit events of what reaches the world, whatever package does it for the handler.
_WORLD: Final[Mapping[str, str]] = {
    "open": "writing a file",
    "socket.connect": "socket.connect",
    "socket.sendto": "socket.sendto",
    "socket.getaddrinfo": "socket.getaddrinfo",
    "subprocess.Popen": "subprocess.Popen",
    "os.system": "os.system",
    "os.remove": "os.remove",
    "os.rename": "os.rename",
    "os.mkdir": "os.mkdir",
    "sqlite3.connect": "sqlite3.connect",
}
#: Modules that may do so for themselves: they report, or they load code.
_REPORTING: Final = frozenset(
    {
        "logging",
        "warnings",
        "importlib",
        "traceback",
        "linecache",
        "_pytest",
        "coverage",
    }
)
_PRINTED: Final = "Log(...) or Progress(...), which replays do not repeat; or logging"

#: Modules of the standard library that hand on what they get.
_HANDING: Final = frozenset(
    {
        *("random", "uuid", "secrets", "os", "pathlib", "tempfile", "glob", "shutil"),
        *("posixpath", "ntpath", "genericpath", "collections", "socket", "ssl"),
        *("subprocess", "sqlite3", "codecs", "fileinput", "linecache", "zipfile"),
        *("getpass", "platform", "threading", "concurrent", "urllib", "http"),
        *("configparser", "shelve", "dbm", "gzip", "bz2", "lzma", "tarfile"),
        *("smtplib", "ftplib", "imaplib", "poplib", "xmlrpc", "mailbox"),
    }
)
#: Of these the name that an author wrote says more than the builtin inside.
_TELLING: Final = {"random": _CHANCE, "uuid": _UNIQUE, "secrets": _CHANCE}

_OURS: Final = str(Path(__file__).parent.parent) + os.sep


#: Python's own. What is installed may lie elsewhere, but its folder has one of two names.
_STDLIB: Final = tuple(
    {
        sysconfig.get_paths()[name] + os.sep
        for name in ("stdlib", "platstdlib")
        if name in sysconfig.get_paths()
    }
)
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@lru_cache(4096)
def is_authors(file: str) -> bool:
    """Whether a file is neither Python's, nor installed, nor ours, nor generated."""
    return not file.startswith(("<", _OURS, *_STDLIB)) and (
        _INSTALLED.isdisjoint(Path(file).parts)
    )


def _package_of(function: Callable[..., Any] | None) -> str:
    """The folder of an author's package that is installed; or no folder at all."""
    name = getattr(function, "__module__", None) or ""
    module = sys.modules.get(name.partition(".")[0])
    file = getattr(module, "__file__", None)
    if file is None or file.startswith(_OURS):
        return "\0"
    path = Path(file)
    return str(path.parent) + os.sep if path.name == "__init__.py" else file


class Sanitizer:
    """Notes what the handlers do that run inside of it.

    Args:
        hear: Called with each new sight, in the middle of the handler.
        of: The handler. Its package is its author's even if it is installed, and where
            it returned last is noted.

    Attributes:
        seen: All of them.
        returned_at: `file:line` at which it did.
    """

    def __init__(
        self,
        hear: Callable[[Sight], None] | None = None,
        *,
        of: Callable[..., Any] | None = None,
    ) -> None:
        self.seen: dict[Sight, None] = {}
        self.returned_at: str | None = None
        self._hear = hear
        self._returns_of = getattr(of, "__code__", None)
        self._package = _package_of(of)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch whatever this thread runs meanwhile."""
        _add_hook()
        before: Any = sys.getprofile()
        outer, _watching.sanitizer = _watching.sanitizer, self
        # A profiler in C is no function that could be set again.
        is_function = before is None or callable(before)
        if not is_function:
            before.disable()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before if is_function else None)
            if not is_function:
                before.enable()
            _watching.sanitizer = outer

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            found = _FUNCTIONS.get(argument) if _is_hashable(argument) else None
            found = found or _of_a_class(argument)
            if found is not None:
                self._note(frame, *found)
        elif event == "call":
            code = _CODES.get(frame.f_code)
            if code is not None and frame.f_back is not None:
                self._note(frame.f_back, *code)
        elif event == "return" and frame.f_code is self._returns_of:
            self.returned_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _note(self, frame: FrameType, what: str, instead: str) -> None:
        authors, between = self._authors_frame(frame)
        if authors is None:
            return
        if between is not None:
            module = between.f_globals.get("__name__", "")
            if module in _TELLING:
                what = f"{module}.{between.f_code.co_name}"
                instead = _TELLING[module]
        self._see(authors, f"{what}()" if what != "os.environ" else what, instead)

    def printed(self) -> None:
        """Note that the code that runs writes to the standard output."""
        authors, package = _through_packages(sys._getframe(3), self._package)
        if authors is not None:
            by = f" by {package}" if package else ""
            self._see(authors, f"print(){by}", _PRINTED)

    def reached(self, frame: FrameType, what: str) -> None:
        """Note that a package reaches the world, at the line that called the package."""
        authors, package = _through_packages(frame, self._package)
        if authors is not None and package:
            called = what if " " in what else f"{what}()"
            self._see(authors, f"{called} by {package}", _OUTSIDE)

    def _see(self, authors: FrameType, what: str, instead: str) -> None:
        where = f"{authors.f_code.co_filename}:{authors.f_lineno}"
        sight = Sight(what, where, instead)
        if sight not in self.seen:
            self.seen[sight] = None
            if self._hear is not None:
                self._hear(sight)

    def _authors_frame(
        self, frame: FrameType | None
    ) -> tuple[FrameType | None, FrameType | None]:
        """The author's frame, and the last one before it that handed something on."""
        between = None
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._package) or is_authors(file):
                break
            # Constructors that attrs and dataclasses write hand on, as well.
            if not file.startswith(("<attrs", "<string")):
                if not _is_handing(frame):
                    return None, None
                between = frame
            frame = frame.f_back
        return (None, None) if _is_importing(frame) else (frame, between)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame runs because a module is imported, once per process."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _through_packages(
    frame: FrameType | None, own: str
) -> tuple[FrameType | None, str]:
    """The author's frame that called a package, and the package; none of those is ours."""
    package = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(own) or is_authors(file):
            return (None, "") if _is_importing(frame) else (frame, package)
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if file.startswith(_OURS) or name in _REPORTING or "importlib" in file:
            return None, ""
        if not _INSTALLED.isdisjoint(Path(file).parts):
            package = name
        frame = frame.f_back
    return None, ""


def make_strict(app: Server) -> None:
    """Have a server refuse what it would salvage, and say what replays cannot repeat.

    For development: watching makes a handler several times slower, and it watches every
    server of this process that is strict.
    """
    app.change_rules(policy="strict", development=True)
    sanitizer = Sanitizer(lambda sight: logger.warning("%s", sight))
    development.observe = sanitizer.watching


def _is_hashable(function: Any) -> bool:
    # A bound builtin hashes what it is bound to.
    bound = getattr(function, "__self__", None)
    return bound is None or type(bound).__hash__ is not None


def _of_a_class(function: Any) -> tuple[str, str] | None:
    bound, name = getattr(function, "__self__", None), function.__name__
    if isinstance(bound, type):
        if issubclass(bound, dt.date) and name in ("now", "today", "utcnow"):
            return f"{bound.__name__}.{name}", _CLOCK
    elif bound is _DICE and name in ("random", "getrandbits"):
        return f"random.{name}", _CHANCE
    return None


#: What `random.random` and the others share. Dice of an author's own with a seed of
#: their own fall alike in each replay.
_DICE: Final = getattr(random.random, "__self__", None)


def _is_handing(frame: FrameType) -> bool:
    # pathlib._local, urllib.request; and `collections.abc`, as its file calls itself.
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] in _HANDING


# ---- audit events -------------------------------------------------------------------


class _Watching(threading.local):
    sanitizer: Sanitizer | None = None


def watching_now() -> Sanitizer | None:
    """The sanitizer that watches this thread."""
    return _watching.sanitizer


_watching: Final = _Watching()
_hooks: Final[list[Callable[[str, tuple[Any, ...]], None]]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    sanitizer = _watching.sanitizer
    if sanitizer is not None and event in _EVENTS and not _is_data(event, arguments):
        # Seen by the profile function too, mostly; the same sight is noted once.
        sanitizer._note(sys._getframe(1), _EVENTS[event], _OUTSIDE)
    if sanitizer is not None and event in _WORLD and not _is_read(event, arguments):
        sanitizer.reached(sys._getframe(1), _WORLD[event])


_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _is_read(event: str, arguments: tuple[Any, ...]) -> bool:
    # What packages read they read for themselves, mostly: templates, certificates.
    if event != "open":
        return False
    flags = arguments[2] if len(arguments) > 2 else 0
    is_write = isinstance(flags, int) and flags & _WRITING
    return not is_write or _is_data(event, arguments)


#: Files of Python and of packages, read once a process: time zones above all.
_DATA: Final = (sys.prefix + os.sep, sys.base_prefix + os.sep, *zoneinfo.TZPATH)


def _is_data(event: str, arguments: tuple[Any, ...]) -> bool:
    return event == "open" and str(arguments[0]).startswith(_DATA)


def _add_hook() -> None:
    if not _hooks:
        _hooks.append(_audit)
        sys.addaudithook(_audit)
