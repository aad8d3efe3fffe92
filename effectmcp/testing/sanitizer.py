"""Notice calls in a handler's own code that a replay cannot repeat.

    clocks, randomness, uuid, the environment     use Now, Random, Uuid; or a Step
    files, directories, sockets, processes        use a Step
    sleeping                                      use Sleep; or a Step

A profile function (`sys.setprofile`) sees each call of a builtin by name, with the line
that called it. It is set only while a handler's generators run, so steps may do all of
this. It cannot see calls of classes; a hook for audit events sees those. Audit hooks
can never be removed, so there is only one, and it checks the event first.

Only an author's lines count. `logging` reads the clock and a converter draws random
names for their own purposes, so calls inside the standard library and installed
packages are ignored. But some modules of the standard library return such a result to
their caller (`random.choice`, `uuid.uuid4`, `Path.read_text`): for those, the line that
called the module counts.
"""

from __future__ import annotations

import builtins
import datetime as dt
import os
import random
import sys
import time
import uuid
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import frozen

from ..author_files import INSTALLED, is_authors
from ..engine import development
from ..logs import logger_for

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["Sanitizer", "Sight", "make_strict", "watching_now"]

logger = logger_for("effectmcp.testing")


@frozen
class Sight:
    """A call that a replay cannot repeat.

    Attributes:
        what: The name of the called function or class.
        where: `file:line` in the author's code.
        instead: What to write.
    """

    what: str
    where: str
    instead: str

    @property
    def problem(self) -> str:
        """The reason why the call is wrong, in words."""
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
    # Some platforms lack some of these functions.
    prefix = "" if module is builtins else f"{module.__name__}."
    return {
        getattr(module, name): (prefix + name, instead)
        for name in names.split()
        if hasattr(module, name)
    }


#: Builtins, by the function itself. Without gmtime and similar functions: they read the
#: clock only if they get no time, and arguments cannot be seen here. Replays in other
#: processes notice those (`replay_workers`).
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
}

#: Builtins by name, with their module: not every handler needs it, and it may be
#: imported later.
_BY_NAME: Final[Mapping[str, tuple[str, tuple[str, str]]]] = {
    "gethostname": ("_socket", ("socket.gethostname", _OUTSIDE)),
    "start_new_thread": ("_thread", ("_thread.start_new_thread", _OUTSIDE)),
    "start_joinable_thread": ("_thread", ("_thread.start_joinable_thread", _OUTSIDE)),
}

#: Functions written in Python, by their code.
_CODES: Final[Mapping[CodeType, tuple[str, str]]] = {
    type(os.environ).__getitem__.__code__: ("os.environ", _ENVIRONMENT),
    type(os.environ).__iter__.__code__: ("os.environ", _ENVIRONMENT),
    uuid.uuid1.__code__: ("uuid.uuid1", _UNIQUE),
}

#: Audit events of calls that the profile function cannot see.
_EVENTS: Final[Mapping[str, str]] = {
    "open": "open",
    "socket.__new__": "socket.socket",
    "socket.connect": "socket.connect",
    "socket.getaddrinfo": "socket.getaddrinfo",
    "subprocess.Popen": "subprocess.Popen",
    "sqlite3.connect": "sqlite3.connect",
    "urllib.Request": "urllib.request",
}

#: Audit events of access to the outside, by any package that a handler calls.
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
#: Modules that may access the outside: they report, or they load code.
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

#: Modules of the standard library that return such results to their caller.
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
#: Modules whose function names are clearer in reports than the builtin inside.
_TELLING: Final = {"random": _CHANCE, "uuid": _UNIQUE, "secrets": _CHANCE}

_OURS: Final = str(Path(__file__).parent.parent) + os.sep


def _package_of(function: Callable[..., Any] | None) -> str:
    """Return the folder of a handler's package; an impossible path if not known."""
    name = getattr(function, "__module__", None) or ""
    module = sys.modules.get(name.partition(".")[0])
    file = getattr(module, "__file__", None)
    if file is None or file.startswith(_OURS):
        return "\0"
    path = Path(file)
    return str(path.parent) + os.sep if path.name == "__init__.py" else file


class Sanitizer:
    """Notes calls that replays cannot repeat, by the handlers that run inside it.

    Args:
        hear: Called with each new sight, in the middle of the handler.
        of: The handler. Its package counts as the author's even if it is installed, and
            the line of its last return is noted.

    Attributes:
        seen: All sights.
        returned_at: `file:line` of the handler's last return.
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
        """Watch the code that this thread runs in the `with` block."""
        _add_hook()
        before = cast("Any", sys.getprofile())
        # A profiler in C is not a function that could be set again.
        in_c: Any = None if before is None or callable(before) else before
        if in_c is not None:
            in_c.disable()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before if in_c is None else None)
            if in_c is not None:
                in_c.enable()

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            found = _FUNCTIONS.get(argument) if _is_hashable(argument) else None
            found = found or _named_so(argument) or _of_a_class(argument)
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
        """Note that the running code writes to the standard output."""
        authors, package = _through_packages(sys._getframe(3), self._package)
        if authors is not None:
            by = f" by {package}" if package else ""
            self._see(authors, f"print(){by}", _PRINTED)

    def reached(self, frame: FrameType, what: str) -> None:
        """Note that a package accesses the outside, at the line that called it."""
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
        """Return the author's frame, and the frame that returned the result to it."""
        between = None
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._package) or is_authors(file):
                break
            # Constructors that attrs and dataclasses write return it, too.
            if not file.startswith(("<attrs", "<string")):
                if not _is_handing(frame):
                    return None, None
                between = frame
            frame = frame.f_back
        return (None, None) if _is_importing(frame) else (frame, between)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame runs during an import, which happens once per process."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _through_packages(
    frame: FrameType | None, own: str
) -> tuple[FrameType | None, str]:
    """Return the author's frame that called a package, and the package's name."""
    package = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(own) or is_authors(file):
            return (None, "") if _is_importing(frame) else (frame, package)
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if file.startswith(_OURS) or name in _REPORTING or "importlib" in file:
            return None, ""
        if not INSTALLED.isdisjoint(Path(file).parts):
            package = name
        frame = frame.f_back
    return None, ""


def make_strict(app: Server) -> None:
    """Make a server refuse to salvage, and warn of calls that replays cannot repeat.

    For development only: handlers become several times slower. All strict servers of
    this process are watched.
    """
    app.change_rules(policy="strict", development=True)
    sanitizer = Sanitizer(lambda sight: logger.warning("%s", sight))
    development.observe = sanitizer.watching


def _is_hashable(function: Any) -> bool:
    # The hash of a bound builtin includes the hash of its object.
    bound = getattr(function, "__self__", None)
    return bound is None or type(bound).__hash__ is not None


def _named_so(function: Any) -> tuple[str, str] | None:
    module, found = _BY_NAME.get(function.__name__, (None, None))
    return found if found and function.__module__ == module else None


def _of_a_class(function: Any) -> tuple[str, str] | None:
    bound, name = getattr(function, "__self__", None), function.__name__
    if isinstance(bound, type):
        if issubclass(bound, dt.date) and name in ("now", "today", "utcnow"):
            return f"{bound.__name__}.{name}", _CLOCK
    elif bound is _DICE and name in ("random", "getrandbits"):
        return f"random.{name}", _CHANCE
    return None


#: The generator of `random.random` and the others. A separate generator with its own
#: seed repeats in each replay.
_DICE: Final = getattr(random.random, "__self__", None)


def _is_handing(frame: FrameType) -> bool:
    # Submodules count, such as pathlib._local and urllib.request, and so does
    # `collections.abc`, the name that _collections_abc.py gives itself.
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] in _HANDING


# ---- audit events -------------------------------------------------------------------


def watching_now() -> Sanitizer | None:
    """Return the sanitizer that watches this thread."""
    profile: Any = sys.getprofile()  # each thread has its own
    sanitizer = getattr(profile, "__self__", None)
    return sanitizer if isinstance(sanitizer, Sanitizer) else None


_hooks: Final[list[Callable[[str, tuple[Any, ...]], None]]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS and event not in _WORLD:
        return
    sanitizer = watching_now()
    if sanitizer is not None and event in _EVENTS and not _is_data(event, arguments):
        # The profile function mostly sees it, too; the same sight is noted once.
        sanitizer._note(sys._getframe(1), _EVENTS[event], _OUTSIDE)
    if sanitizer is not None and event in _WORLD and not _is_read(event, arguments):
        sanitizer.reached(sys._getframe(1), _WORLD[event])


_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _is_read(event: str, arguments: tuple[Any, ...]) -> bool:
    # Packages mostly read their own files: templates, certificates.
    if event != "open":
        return False
    flags = arguments[2] if len(arguments) > 2 else 0
    is_write = isinstance(flags, int) and flags & _WRITING
    return not is_write or _is_data(event, arguments)


#: Files of Python and of packages, read once per process, such as time zones.
_DATA: Final = (sys.prefix + os.sep, sys.base_prefix + os.sep, *zoneinfo.TZPATH)


def _is_data(event: str, arguments: tuple[Any, ...]) -> bool:
    return event == "open" and str(arguments[0]).startswith(_DATA)


def _add_hook() -> None:
    if not _hooks:
        _hooks.append(_audit)
        sys.addaudithook(_audit)
