from __future__ import annotations

import builtins
import cProfile
import dataclasses
import datetime as dt
import fileinput
import glob
import hashlib
import io
import itertools
import json
import logging
import os
import random
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import types
import urllib.request
import uuid
import warnings
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest

from effectmcp import Confirm, Elicit, Flow, Server
from effectmcp.converter import converter
from effectmcp.engine import development
from effectmcp.testing import Sanitizer, play
from effectmcp.testing.muting import without_output
from effectmcp.testing.sanitizer import (
    _CODES,
    _EVENTS,
    _FUNCTIONS,
    Sight,
    _audit,
    make_strict,
)

NOWHERE = "/no/such/place"


def seen(doing: Callable[[], object]) -> list[Sight]:
    sanitizer = Sanitizer()
    with sanitizer.watching(), suppress(OSError, sqlite3.Error):
        doing()
    return list(sanitizer.seen)


def line(function: Callable[..., Any], offset: int = 0) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


# ---- observations -------------------------------------------------------------------

CLOCKS = (
    lambda: time.time(),
    lambda: time.time_ns(),
    lambda: time.monotonic(),
    lambda: time.monotonic_ns(),
    lambda: time.perf_counter(),
    lambda: time.process_time(),
    lambda: time.thread_time(),
    lambda: dt.datetime.now(dt.UTC),
    lambda: dt.datetime.now(),  # noqa: DTZ005
    lambda: dt.datetime.today(),  # noqa: DTZ002
    lambda: dt.date.today(),  # noqa: DTZ011
    lambda: max([1, 2], key=lambda one: time.time()),
)
CHANCES = (
    lambda: random.random(),
    lambda: random.choice("abc"),
    lambda: random.randint(1, 6),
    lambda: random.sample("abc", 2),
    lambda: random.shuffle([1, 2]),
    lambda: random.getrandbits(8),
    lambda: random.uniform(0, 1),
    lambda: random.SystemRandom().random(),
    lambda: secrets.token_hex(),
    lambda: secrets.choice("abc"),
    lambda: secrets.randbelow(6),
    lambda: os.urandom(8),
)
UNIQUES = (
    lambda: uuid.uuid4(),
    lambda: uuid.uuid1(),
    lambda: uuid.uuid1(1, 1),
)
ENVIRONMENTS = (
    lambda: os.environ["PATH"],
    lambda: os.environ.copy(),
    lambda: os.environ.setdefault("PATH", ""),
    lambda: dict(os.environ),
    lambda: list(os.environ),
)
VIEWS = (
    lambda: os.environ.get("NOT_THERE"),
    lambda: os.getenv("NOT_THERE"),
    lambda: "NOT_THERE" in os.environ,
    lambda: list(os.environ.items()),
)
OUTSIDES = (
    lambda: open(NOWHERE),
    lambda: Path(NOWHERE).read_text(),
    lambda: Path(NOWHERE).write_text(""),
    lambda: Path(NOWHERE).exists(),
    lambda: Path(NOWHERE).stat(),
    lambda: Path(NOWHERE).unlink(),
    lambda: list(Path("/").iterdir()),
    lambda: Path.cwd(),
    lambda: os.listdir("/"),
    lambda: list(os.walk("/no")),
    lambda: os.path.exists(NOWHERE),
    lambda: os.path.isdir(NOWHERE),
    lambda: os.path.getsize(NOWHERE),
    lambda: os.access(NOWHERE, os.R_OK),
    lambda: os.getcwd(),
    lambda: os.open(NOWHERE, os.O_RDONLY),
    lambda: os.remove(NOWHERE),
    lambda: os.rename(NOWHERE, NOWHERE),
    lambda: os.mkdir("/no/such/place"),
    lambda: os.makedirs("/proc/no/such/place"),
    lambda: os.rmdir(NOWHERE),
    lambda: os.chdir(NOWHERE),
    lambda: os.readlink(NOWHERE),
    lambda: os.kill(os.getpid(), 0),
    lambda: os.getpid(),
    lambda: os.cpu_count(),
    lambda: os.uname(),
    lambda: glob.glob("/no*"),
    lambda: shutil.rmtree(NOWHERE),
    lambda: shutil.copy(NOWHERE, NOWHERE),
    lambda: tempfile.mkdtemp(dir=NOWHERE),
    lambda: list(fileinput.input([NOWHERE])),
    lambda: socket.gethostname(),
    lambda: socket.socket().close(),
    lambda: socket.create_connection(("localhost", -1)),
    lambda: subprocess.run([NOWHERE]),
    lambda: sqlite3.connect("/no/such/place"),
)


def calls(functions: tuple[Callable[[], object], ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("doing", functions, ids=lambda one: line(one)[-3:])


@calls(CLOCKS)
def test_clocks_are_seen(doing: Callable[[], object]) -> None:
    (sight,) = seen(doing)
    assert sight.where == line(doing)
    assert sight.instead == "Now(), which is recorded; or a Step"


@calls(CHANCES)
def test_random_values_are_seen(doing: Callable[[], object]) -> None:
    (sight, *_) = seen(doing)
    assert {one.where for one in seen(doing)} == {line(doing)}
    assert sight.instead == "Random(), which is recorded; or a Step"


@calls(UNIQUES)
def test_unique_ids_are_seen(doing: Callable[[], object]) -> None:
    (sight,) = seen(doing)
    assert sight.where == line(doing)
    assert sight.what in ("uuid.uuid1()", "uuid.uuid4()")
    assert sight.instead.startswith("Uuid() or IdempotencyKey(...)")


@calls(ENVIRONMENTS)
def test_the_environment_is_seen(doing: Callable[[], object]) -> None:
    (sight,) = seen(doing)
    assert (sight.what, sight.where) == ("os.environ", line(doing))
    assert sight.instead.startswith("a Step; or read it once")


@calls(VIEWS)
def test_the_environment_is_seen_through_a_mapping(doing: Callable[[], object]) -> None:
    (sight,) = seen(doing)
    assert (sight.what, sight.where) == ("os.environ", line(doing))


@calls(OUTSIDES)
def test_what_is_outside_is_seen(doing: Callable[[], object]) -> None:
    found = seen(doing)
    assert {one.where for one in found} == {line(doing)}
    assert "a Step, whose result is recorded" in {one.instead for one in found}


def test_sleeping_is_seen() -> None:
    (sight,) = seen(lambda: time.sleep(0))
    assert (sight.what, sight.instead) == ("time.sleep()", "Sleep(...); or a Step")


def test_input_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Ann\n"))
    (sight,) = seen(lambda: input())
    assert sight.what == "input()"


def test_the_name_is_the_name_in_the_source() -> None:
    """Each of these functions calls `getrandbits` or `urandom` below."""
    assert [one.what for one in seen(lambda: random.choice("ab"))] == [
        "random.choice()"
    ]
    assert [one.what for one in seen(lambda: secrets.token_hex())] == [
        "secrets.token_hex()"
    ]
    assert [one.what for one in seen(lambda: uuid.uuid4())] == ["uuid.uuid4()"]
    assert [one.what for one in seen(lambda: Path(NOWHERE).read_text())] == ["open()"]


def test_subclasses_of_datetime_read_the_clock_as_well() -> None:
    class Moment(dt.datetime):
        pass

    (sight,) = seen(lambda: Moment.now(dt.UTC))
    assert sight.what == "Moment.now()"


@pytest.mark.parametrize("function", _FUNCTIONS, ids=lambda one: one.__name__)
def test_every_builtin_of_the_table_is_noted(function: Any) -> None:
    """Without calling it: some of them end a process, or begin one."""
    sanitizer = Sanitizer()
    sanitizer._profile(sys._getframe(), "c_call", function)
    what, instead = _FUNCTIONS[function]
    (sight,) = sanitizer.seen
    assert (sight.what, sight.instead) == (f"{what}()", instead)
    assert sight.where.startswith(f"{__file__}:")


@pytest.mark.parametrize("event", _EVENTS)
def test_every_event_of_the_table_is_noted(event: str) -> None:
    (sight,) = seen(lambda: sys.audit(event, NOWHERE))
    assert sight.what == f"{_EVENTS[event]}()"


def test_other_events_are_not_seen() -> None:
    assert seen(lambda: sys.audit("effectmcp.test")) == []


def test_a_sight_has_what_to_write_instead() -> None:
    sight = Sight("time.time()", "a.py:3", "Now()")
    assert str(sight) == (
        "a.py:3: time.time() is not recorded: each replay does it again, and may come"
        " to something else. Use Now()"
    )


def test_the_same_sight_is_noted_once() -> None:
    heard: list[Sight] = []
    sanitizer = Sanitizer(heard.append)

    def looks() -> None:
        for _ in range(3):
            open(os.devnull).close()
        time.time()

    with sanitizer.watching():
        looks()
    with sanitizer.watching():
        looks()
    assert heard == list(sanitizer.seen)
    assert [one.what for one in heard] == ["open()", "time.time()"]
    assert [one.where for one in heard] == [line(looks, 2), line(looks, 3)]


def test_a_listener_is_optional() -> None:
    assert len(seen(lambda: time.time())) == 1


# ---- in a handler -------------------------------------------------------------------


def asks() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    if name == "Ann":
        return "Ann"
    now = yield from inner()
    return f"{name} {now}"


def inner() -> Flow[float]:
    yield from Confirm("Sure?")
    return time.time()


def test_lines_of_handlers_are_seen() -> None:
    sanitizer = Sanitizer(of=asks)
    with sanitizer.watching(), play(asks) as dialogue:
        dialogue.expect(Elicit).answer("Bo")
        dialogue.expect(Confirm).answer(True)
        assert str(dialogue.result).startswith("Bo ")
    (sight,) = sanitizer.seen
    assert sight.where == line(inner, 2)
    assert sanitizer.returned_at == line(asks, 5)


def test_the_last_return_is_noted() -> None:
    sanitizer = Sanitizer(of=asks)
    assert sanitizer.returned_at is None
    with sanitizer.watching(), play(asks) as dialogue:
        assert dialogue.expect(Elicit).answer("Ann").result == "Ann"
    assert sanitizer.returned_at == line(asks, 3)


# ---- code of libraries --------------------------------------------------------------


@attrs.frozen
class Visit:
    name: str
    day: dt.date


class Deprecated:
    def warn(self) -> None:
        warnings.warn("as an example", DeprecationWarning, stacklevel=2)


def logs() -> None:
    logging.getLogger("effectmcp_tests.sanitizer").warning("at %s", "some time")


def imports() -> None:
    import colorsys
    import html.entities

    assert colorsys.__name__ + html.entities.__name__


def structures() -> None:
    @attrs.define
    class Local:
        name: str
        count: int = 0

    made: Any = converter().structure({"name": "a", "count": 3}, Local)
    assert converter().unstructure(made) == {"name": "a", "count": 3}


def warns() -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        Deprecated().warn()


QUIET = (
    logs,
    imports,
    structures,
    warns,
    lambda: random.Random(7).random(),
    lambda: random.Random(7).sample("abc", 2),
    lambda: random.Random(7).shuffle([1, 2, 3]),
    lambda: sorted({"b", "a"}),
    lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC).isoformat(),
    lambda: dt.datetime.fromisoformat("2026-01-01").date(),
    lambda: dt.datetime.fromtimestamp(0, dt.UTC),
    lambda: uuid.uuid5(uuid.NAMESPACE_DNS, "a.example"),
    lambda: uuid.UUID(int=3),
    lambda: hashlib.sha256(b"a").hexdigest(),
    lambda: json.loads(json.dumps({"a": [1]})),
    lambda: Path("/a") / "b",
    lambda: os.path.join("a", "b"),
    lambda: "a b".split(),
    lambda: [1].count(1),
    lambda: {1: 2}.get(1),
    lambda: print(end=""),
)


@calls(QUIET)
def test_what_a_replay_can_repeat_is_not_seen(doing: Callable[[], object]) -> None:
    assert seen(doing) == []


def test_a_module_is_imported_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first run of a handler reads what an import reads: no sight."""
    (tmp_path / "imported_by_a_handler.py").write_text(
        "import os, random, time, uuid\n"
        "SEEN = time.time(), random.random(), uuid.uuid4(), os.getenv('HOME')\n"
        "with open(__file__) as file:\n    TEXT = file.read()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def imports() -> object:
        import imported_by_a_handler  # type: ignore[import-not-found]

        return imported_by_a_handler.SEEN

    assert seen(imports) == []
    assert seen(lambda: sys.modules["imported_by_a_handler"].time.time()) != []
    del sys.modules["imported_by_a_handler"]


def test_values_read_once_per_process_are_not_seen() -> None:
    """Files of Python's own, and of packages: a time zone is the same in each replay."""
    assert seen(lambda: zoneinfo.ZoneInfo.no_cache("Europe/Paris")) == []


def test_threads_are_seen() -> None:
    thread = threading.Thread(target=print)
    (sight, *_) = seen(thread.start)
    thread.join()
    assert sight.instead == "a Step, whose result is recorded"


# ---- frames -------------------------------------------------------------------------


def made_in(file: str, module: str, text: str) -> Any:
    """Return the function `call` of this source, as if it was in `file`."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(compile(text, file, "exec"), namespace)
    return namespace["call"]


STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
INSTALLED = sysconfig.get_paths()["purelib"] + os.sep
CALL = "def call(what):\n    return what()\n"


@pytest.mark.parametrize(
    "file", [STDLIB + "a.py", INSTALLED + "a.py", "<frozen a>", "<template>"]
)
def test_calls_by_other_packages_are_not_seen(file: str) -> None:
    call = made_in(file, "somebodys", CALL)
    assert seen(lambda: call(time.time)) == []


@pytest.mark.parametrize("file", ["shopkit/__init__.py", "shopkit.py"])
def test_an_author_may_install_what_is_written(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package in which the handler is: watching it, its lines are the author's."""
    text = "def call(what):\n    return what()\n"
    call = made_in(INSTALLED + file, "shopkit", text)
    package: Any = types.ModuleType("shopkit")
    package.__file__ = INSTALLED + file
    monkeypatch.setitem(sys.modules, "shopkit", package)
    sanitizer = Sanitizer(of=call)
    with sanitizer.watching():
        call(time.time)
    (sight,) = sanitizer.seen
    assert sight.where == f"{INSTALLED}{file}:2"
    assert seen(lambda: call(time.time)) == []


def test_calls_through_the_standard_library_belong_to_the_caller() -> None:
    call = made_in(STDLIB + "shutil.py", "shutil", CALL)

    def calls() -> None:
        call(time.time)

    (sight,) = seen(calls)
    assert (sight.what, sight.where) == ("time.time()", line(calls, 1))


def test_parts_of_modules_hand_on_as_well() -> None:
    call = made_in(STDLIB + "pathlib/_local.py", "pathlib._local", CALL)
    assert len(seen(lambda: call(time.time))) == 1


def library(text: str) -> Any:
    """The function `call` of an installed package."""
    return made_in(INSTALLED + "tracker/__init__.py", "tracker", text)


def test_files_written_by_a_package_belong_to_its_caller(tmp_path: Path) -> None:
    """Packages read for themselves; what they write outlives the round."""
    file = tmp_path / "visits.txt"
    call = library("def call(file, mode):\n    open(file, mode).close()\n")

    def writes() -> None:
        call(file, "a")

    (sight,) = seen(writes)
    assert (sight.what, sight.where) == ("writing a file by tracker", line(writes, 1))
    assert sight.instead == "a Step, whose result is recorded"
    assert seen(lambda: call(file, "r")) == []


def test_connections_by_a_package_belong_to_its_caller() -> None:
    call = library(
        "import socket\n"
        "def call():\n"
        "    with socket.socket() as one:\n"
        "        one.connect(('127.0.0.1', 1))\n"
    )

    def connects() -> None:
        call()

    assert ("socket.connect() by tracker", line(connects, 1)) in [
        (sight.what, sight.where) for sight in seen(connects)
    ]


def test_logs_of_packages_are_not_seen(tmp_path: Path) -> None:
    """A handler of `logging` may write a file, in each round."""
    text = "def call(file):\n    open(file, 'a').close()\n"
    logs = made_in(STDLIB + "logging/handlers.py", "logging.handlers", text)
    call = library("def call(logs, file):\n    logs(file)\n")
    assert seen(lambda: call(logs, tmp_path / "log.txt")) == []


def test_printed_text_is_noted_and_discarded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = library("def call(*texts):\n    print(*texts)\n")

    def prints() -> None:
        print("a")
        call("b")
        sys.stdout.buffer.write(b"c")
        print("d", file=sys.stderr)

    sanitizer = Sanitizer()
    with without_output(), sanitizer.watching():
        prints()
    with without_output():
        prints()
    assert [(one.what, one.where) for one in sanitizer.seen] == [
        ("print()", line(prints, 1)),
        ("print() by tracker", line(prints, 2)),
        ("print()", line(prints, 3)),
    ]
    assert "writes again each time" in str(next(iter(sanitizer.seen)))
    assert capsys.readouterr() == ("", "")


def test_requests_are_seen() -> None:
    def requests() -> bytes:
        with urllib.request.urlopen("data:,hello") as reply:
            found: bytes = reply.read()
        return found

    assert "urllib.request()" in [one.what for one in seen(requests)]


@attrs.define
class Ticket:
    number: uuid.UUID = attrs.field(factory=uuid.uuid4)


@dataclasses.dataclass
class Entry:
    at: dt.datetime = dataclasses.field(default_factory=dt.datetime.now)


@pytest.mark.parametrize("class_", [Ticket, Entry])
def test_factories_of_classes_are_seen(class_: type[Any]) -> None:
    def makes() -> object:
        return class_()

    (sight,) = seen(makes)
    assert sight.where == line(makes, 1)


def test_other_clocks_are_seen() -> None:
    def reads() -> float:
        return time.clock_gettime(time.CLOCK_REALTIME)

    assert [one.where for one in seen(reads)] == [line(reads, 1)]


def test_conversions_of_given_times_are_not_clocks() -> None:
    def writes() -> str:
        return time.strftime("%Y", time.gmtime(0)) + time.ctime(0)

    assert seen(writes) == []


# Python calls a profile function, and a hook for audit events, where no tracer sees it;
# here they are called like any other function, event by event.


def noted(
    file: str, module: str, event: str, argument: Any, name: str = "call"
) -> list[Sight]:
    """The sights of an event in a function that seems to be in `file`."""
    sanitizer = Sanitizer()
    text = f"def {name}(note, frame):\n    note(frame())\n"
    namespace: dict[str, Any] = {"__name__": module}
    exec(compile(text, file, "exec"), namespace)
    namespace[name](
        lambda frame: sanitizer._profile(frame, event, argument), sys._getframe
    )
    return list(sanitizer.seen)


def test_events_one_by_one() -> None:
    def what(*args: Any, **kwargs: Any) -> list[str]:
        return [one.what for one in noted(*args, **kwargs)]

    own = "/somewhere/handlers.py"
    assert what(own, "handlers", "c_call", time.time) == ["time.time()"]
    assert what(own, "handlers", "c_call", dt.datetime.now) == ["datetime.now()"]
    assert what(own, "handlers", "c_call", dt.datetime.strptime) == []
    assert what(own, "handlers", "c_call", random.random) == ["random.random()"]
    assert what(own, "handlers", "c_call", random.Random(3).random) == []
    assert what(own, "handlers", "c_call", [].append) == []
    assert what(own, "handlers", "c_call", "a".upper) == []
    assert what(own, "handlers", "c_return", time.time) == []
    assert what(own, "handlers", "call", None) == []
    lib = STDLIB + "other.py"
    assert what(lib, "random", "c_call", random.random, "dice") == ["random.dice()"]
    assert what(lib, "shutil", "c_call", time.time) == ["time.time()"]
    assert what(lib, "logging", "c_call", time.time) == []
    frozen = "<frozen importlib._bootstrap>"
    assert what(frozen, "importlib._bootstrap", "c_call", time.time) == []


def test_a_call_that_is_known_by_its_code() -> None:
    """The frame is available while the key is encoded, two calls further in."""
    sanitizer = Sanitizer()

    class Key(str):
        def encode(self, encoding: str = "", errors: str = "") -> bytes:
            sanitizer._profile(sys._getframe(2), "call", None)
            return super().encode(encoding, errors)

    with suppress(KeyError):
        os.environ[Key("NOT_THERE")]
    (sight,) = sanitizer.seen
    assert sight.what == "os.environ"
    assert sight.where == line(test_a_call_that_is_known_by_its_code, 10)


def test_an_event_below_an_import() -> None:
    """The author's line runs because a module of the author is imported."""
    call = made_in(
        "<frozen importlib._bootstrap>", "shutil", "def call(what):\n    what()\n"
    )
    sanitizer = Sanitizer()
    call(lambda: sanitizer._profile(sys._getframe(), "c_call", time.time))
    assert sanitizer.seen == {}


def test_events_for_audits() -> None:
    sanitizer = Sanitizer()
    with sanitizer.watching():
        _audit("socket.connect", ())
        _audit("no.such.event", ())
    _audit("sqlite3.connect", ())
    assert [one.what for one in sanitizer.seen] == ["socket.connect()"]


def test_returns_one_by_one() -> None:
    frame = sys._getframe()
    sanitizer = Sanitizer(of=test_returns_one_by_one)
    sanitizer._profile(frame, "return", None)
    assert sanitizer.returned_at == line(test_returns_one_by_one, 3)
    other = Sanitizer()
    other._profile(frame, "return", None)
    assert other.returned_at is None


def test_every_sight_is_heard_once() -> None:
    heard: list[Sight] = []
    sanitizer = Sanitizer(heard.append)
    for _ in range(2):
        sanitizer._profile(sys._getframe(), "c_call", time.time)
    assert heard == list(sanitizer.seen)


def bottom() -> FrameType:
    """A frame without a caller, of a module that hands on."""
    frame: FrameType | None = iter(os.environ).gi_frame  # type: ignore[attr-defined]
    assert frame is not None
    return frame


def test_a_frame_without_a_caller_has_no_author() -> None:
    assert bottom().f_code in _CODES
    sanitizer = Sanitizer()
    sanitizer._profile(bottom(), "call", None)
    sanitizer._profile(bottom(), "c_call", time.time)
    assert sanitizer.seen == {}


# ---- strict servers -----------------------------------------------------------------


def test_a_strict_server_reports_what_it_sees(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # So that it is as before when this ends: there is one for the whole process.
    monkeypatch.setattr(development, "observe", development.observe)
    app = Server("strict", version="1.0")
    make_strict(app)
    for is_tool, is_live in itertools.product((True, False), repeat=2):
        rules = app.rules[is_tool, is_live]
        assert (rules.policy, rules.development) == ("strict", True)
    with development.observe():
        time.time()
        time.time()
    first, second = caplog.messages
    assert first.startswith(f"{__file__}:")
    assert "time.time() is not recorded" in second


# ---- watching -----------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_profile_function() -> Iterator[None]:
    before = sys.getprofile()
    yield
    assert sys.getprofile() is before


def test_nothing_is_seen_before_and_after() -> None:
    sanitizer = Sanitizer()
    time.time()
    with sanitizer.watching():
        pass
    time.time()
    open(os.devnull).close()
    assert sanitizer.seen == {}


def test_the_profile_function_is_restored() -> None:
    """The other profiler is restored even if the watched function raises."""
    called: list[str] = []

    def mine(frame: FrameType, event: str, argument: Any) -> None:
        called.append(event)

    sys.setprofile(mine)
    try:
        with pytest.raises(OSError, match="in the middle"), Sanitizer().watching():
            raise OSError("in the middle")
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)
    assert called


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it is no profile function")
def test_a_profiler_continues_afterwards() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        before: object = sys.getprofile()
        assert len(seen(lambda: time.time())) == 1
        assert sys.getprofile() is before
    finally:
        profiler.disable()


def test_watching_nests() -> None:
    """The innermost one sees, and the outer one continues after it."""
    outer, inner = Sanitizer(), Sanitizer()

    def first() -> None:
        time.time()

    def second() -> None:
        open(os.devnull).close()

    with outer.watching():
        first()
        with inner.watching():
            second()
        time.monotonic()
        with suppress(ZeroDivisionError), inner.watching():
            builtins.int(1 / 0)
        sys.audit("sqlite3.connect")
    assert [one.what for one in inner.seen] == ["open()"]
    assert [one.what for one in outer.seen] == [
        "time.time()",
        "time.monotonic()",
        "sqlite3.connect()",
    ]


def test_one_thread_does_not_watch_another() -> None:
    begin, end = threading.Event(), threading.Event()
    done: list[float] = []

    def elsewhere() -> None:
        begin.wait(30)
        done.append(time.time())
        open(os.devnull).close()
        end.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    sanitizer = Sanitizer()
    with sanitizer.watching():
        begin.set()
        assert end.wait(30)
    thread.join()
    assert len(done) == 1
    assert sanitizer.seen == {}


def test_each_thread_has_its_own() -> None:
    sanitizers = [Sanitizer() for _ in range(3)]

    def looks(one: Sanitizer) -> None:
        with one.watching():
            time.time()

    threads = [threading.Thread(target=looks, args=(one,)) for one in sanitizers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(one.seen) for one in sanitizers] == [1, 1, 1]
