"""Installs the suite once, runs it once for each server, and prints the verdicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest
from attrs import frozen

from ..npm import Unavailable
from ..tasks.restate.engines import install as install_engine
from .clients import LEGACY_SCENARIOS as LEGACY_CLIENT_SCENARIOS
from .clients import SCENARIOS as CLIENT_SCENARIOS
from .clients import play
from .servers import SERVERS, Server, serving
from .suite import (
    LEGACY,
    LEGACY_SCENARIOS,
    REVISION,
    SCENARIOS,
    Suite,
    Verdict,
    install,
)


@frozen
class Played:
    """The verdicts of the suite on a server.

    Attributes:
        verdicts: By scenario.
        legacy: The same, of the legacy revision.
        was_running: Whether the server was still there at the end.
        log: What it had logged until then.
    """

    verdicts: dict[str, Verdict]
    legacy: dict[str, Verdict]
    was_running: bool
    log: str


PLAYED = pytest.StashKey[dict[str, Played]]()
CLIENT_PLAYED = pytest.StashKey[dict[str, dict[str, Verdict]]]()


@pytest.fixture(scope="session")
def suite() -> Iterator[Suite]:
    """The suite, from the cache if there is one."""
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        try:
            installed = install(Path(cache or temporary).resolve())
        except Unavailable as exc:
            _do_without(exc)
        yield installed


@pytest.fixture(scope="session", params=SERVERS, ids=lambda one: one.name)
def played(
    request: pytest.FixtureRequest,
    suite: Suite,
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    """The whole suite at both revisions, played against one server."""
    server: Server = request.param
    try:
        program = None
        if server.tasks == "engine":
            cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
            place = Path(cache) if cache else tmp_path_factory.mktemp("cache")
            program = install_engine(place.resolve())
        with serving(server, program) as served:
            modern, legacy = (
                suite.run(served.url, tmp_path_factory.mktemp(server.name), revision)
                for revision in (REVISION, LEGACY)
            )
            found = Played(modern, legacy, served.is_running(), "".join(served.log))
    except Unavailable as exc:
        _do_without(exc)
    request.config.stash.setdefault(PLAYED, {})[server.name] = found
    return found


@pytest.fixture(scope="session")
def client_played(
    request: pytest.FixtureRequest,
    suite: Suite,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Verdict]:
    """The suite's servers, each played by the client of the examples."""
    found = play(suite, tmp_path_factory.mktemp("client"))
    request.config.stash.setdefault(CLIENT_PLAYED, {})[REVISION] = found
    return found


@pytest.fixture(scope="session")
def legacy_client_played(
    request: pytest.FixtureRequest,
    suite: Suite,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Verdict]:
    """The suite's servers of the legacy revision, played by the same client."""
    found = play(
        suite,
        tmp_path_factory.mktemp("client"),
        scenarios=LEGACY_CLIENT_SCENARIOS,
        revision=LEGACY,
    )
    request.config.stash.setdefault(CLIENT_PLAYED, {})[LEGACY] = found
    return found


def _do_without(reason: Unavailable) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """A line for each scenario, with a column for each server, and how many passed."""
    played = config.stash.get(PLAYED, {})
    servers = {name: one.verdicts for name, one in played.items()}
    legacy = {name: one.legacy for name, one in played.items()}
    clients = config.stash.get(CLIENT_PLAYED, {})
    if servers:
        terminalreporter.section(f"conformance of servers, {REVISION}")
        _write_table(terminalreporter.write_line, servers, SCENARIOS)
        terminalreporter.section(f"conformance of servers, {LEGACY}")
        _write_table(terminalreporter.write_line, legacy, LEGACY_SCENARIOS)
    for revision, scenarios in (
        (REVISION, CLIENT_SCENARIOS),
        (LEGACY, LEGACY_CLIENT_SCENARIOS),
    ):
        if revision in clients:
            terminalreporter.section(f"conformance of clients, {revision}")
            column = {"effectmcp": clients[revision]}
            _write_table(terminalreporter.write_line, column, scenarios)


def _write_table(
    write: Callable[[str], None],
    columns: Mapping[str, Mapping[str, Verdict]],
    scenarios: Sequence[str],
) -> None:
    widths = [max(len(name), 4) + 2 for name in columns]

    def row(cells: list[str], title: str) -> None:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        write("".join(padded) + title)

    row([*columns], "")
    for name in scenarios:
        passed = [verdicts[name].passed for verdicts in columns.values()]
        row(["ok" if is_ok else "FAIL" for is_ok in passed], name)
    counts = [
        sum(verdict.passed for verdict in verdicts.values())
        for verdicts in columns.values()
    ]
    row([f"{count}/{len(scenarios)}" for count in counts], "scenarios passed")
