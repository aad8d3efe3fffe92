"""The pytest plugin: every handler of a server becomes a test.

    pytest --effectmcp examples/bookshop.py:app

A conversation that shows a fault is saved, and the next run begins with it. The fixture
`effectmcp_client` makes clients in memory.

pytest imports this module wherever effectmcp is installed, so the module imports the
rest of effectmcp only when it is used.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..server.app import Server
    from .memory_client import MemoryClient
    from .replay_workers import ReplayWorkers

__all__ = [
    "HandlerItem",
    "effectmcp_client",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
]


def pytest_runtest_setup() -> None:
    """Let each test log as much as the first: a limit for records is for a process."""
    logs = sys.modules.get("effectmcp.logs")
    if logs is not None:
        logs.forget_counts()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options."""
    group = parser.getgroup("effectmcp")
    group.addoption(
        "--effectmcp",
        action="append",
        default=[],
        metavar="TARGET",
        help="check every handler of this server: module:app, or path/file.py:app"
        " (repeatable)",
    )
    group.addoption(
        "--effectmcp-conversations",
        type=int,
        default=100,
        metavar="N",
        help="how many conversations to have with each handler (100)",
    )
    group.addoption(
        "--effectmcp-with",
        metavar="TARGET",
        help="module:name of a dict with steps, answers, arguments and perform, as"
        " check() takes them",
    )
    parser.addini(
        "effectmcp_transcripts",
        "the folder for conversations that showed something wrong (.effectmcp)",
        default=".effectmcp",
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each handler."""
    if config.option.effectmcp_conversations < 1:
        raise pytest.UsageError("--effectmcp-conversations: give 1 or more")
    for target in config.option.effectmcp:
        from ..errors import EffectMCPError
        from ..server.target import load_app
        from .subjects import subjects_of

        try:
            app = load_app(target)
        except EffectMCPError as exc:
            raise pytest.UsageError(f"--effectmcp {target}: {exc}") from None
        items += [
            HandlerItem.from_parent(
                session,
                name=subject.name,
                nodeid=f"{target}::{subject.name}",
                app=app,
            )
            for subject in subjects_of(app)
        ]


class HandlerItem(pytest.Item):
    """The test of one handler."""

    def __init__(self, *, app: Server, **options: Any) -> None:
        super().__init__(**options)
        self._app = app

    def runtest(self) -> None:
        """Check the handler."""
        from .checking import check, options_at
        from .findings import CheckError
        from .transcripts import TranscriptError, read_transcripts

        folder = self._folder
        again = []
        for file in sorted(folder.rglob("*.json")):
            try:
                again += [one for _, one in read_transcripts(file)]
            except TranscriptError as exc:
                # Written by another version or another tool: not a failure of the
                # handler.
                warnings.warn(pytest.PytestWarning(str(exc)), stacklevel=1)
        try:
            checked = check(
                self._app,
                conversations=self.config.option.effectmcp_conversations,
                only=[self.name],
                again=again,
                workers=_workers(self.config),
                **options_at(self.config.option.effectmcp_with),
            )
        except CheckError as exc:
            for finding in exc.checked.findings:
                if finding.transcript is not None:
                    saved = finding.transcript.save(folder)
                    self.add_report_section("call", "transcript", str(saved))
            raise
        notices = self.config.stash.setdefault(_NOTICES, {})
        notices.update(dict.fromkeys(checked.notices))

    @property
    def _folder(self) -> Path:
        return self.config.rootpath / str(self.config.getini("effectmcp_transcripts"))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> Any:
        """Return the findings without a traceback, which would show only our code."""
        from .findings import CheckError

        if isinstance(excinfo.value, CheckError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location for reports."""
        return self.config.rootpath, None, self.nodeid


_NOTICES: pytest.StashKey[dict[str, None]] = pytest.StashKey()
_RUNNING: pytest.StashKey[ReplayWorkers] = pytest.StashKey()


def _workers(config: pytest.Config) -> ReplayWorkers:
    """Return the processes that all handlers share."""
    from .replay_workers import ReplayWorkers

    running = config.stash.get(_RUNNING, None)
    if running is None:
        running = config.stash[_RUNNING] = ReplayWorkers()
        config.add_cleanup(running.close)
    return running


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the notices: remarks on behaviour that may be intended."""
    notices = config.stash.get(_NOTICES, {})
    if notices:
        terminalreporter.section("effectmcp")
        for one in notices:
            terminalreporter.write_line(one)


@pytest.fixture
def effectmcp_client() -> Iterator[Callable[..., MemoryClient]]:
    """Make clients in memory: `effectmcp_client(app, {"Who?": "Ann"})`."""
    from contextlib import ExitStack

    from .loops import opened
    from .memory_client import MemoryClient

    runners: dict[Server, Any] = {}
    with ExitStack() as stack:

        def make(app: Server, *args: Any, **options: Any) -> MemoryClient:
            if not app.is_running:
                runners[app] = stack.enter_context(opened(app))
            options.setdefault("run_async", runners.get(app))
            return MemoryClient(app, *args, **options)

        yield make
