"""The suite: installed at pinned versions, run against an address, and judged.

    install(cache)           the suite, and a Node that runs it
    suite.run(url, folder)   {scenario: Verdict}

The suite's own exit status counts failed checks and nothing else: a scenario that only
warned, that checked nothing, or that never came to an end passes for it. Not here; see
`judge`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from .. import npm

__all__ = [
    "LEGACY",
    "LEGACY_SCENARIOS",
    "LEGACY_UNSCORED",
    "REVISION",
    "SCENARIOS",
    "TASKS",
    "UNSCORED",
    "Suite",
    "Verdict",
    "install",
    "judge",
    "required_by",
]

Check: TypeAlias = Mapping[str, Any]

HERE: Final = Path(__file__).parent
PACKAGE: Final = Path("node_modules/@modelcontextprotocol/conformance")
REVISION: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"

#: Seconds for one scenario, and for all of them. All scenarios take fifteen; tasks take
#: eleven of these.
SCENARIO_TIME: Final = 30
RUN_TIME: Final = 180

#: The suite runs these without scoring them: its own server fails one, and the headers
#: came late. Nothing about them is optional.
UNSCORED: Final = (
    "json-schema-2020-12",
    "http-header-validation",
    "http-custom-header-server-validation",
)

#: The scenarios of the tasks extension, which the suite runs without scoring them, as
#: extensions are optional. One is missing: the suite always skips
#: `tasks-status-notifications`, so no server can pass it.
TASKS: Final = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)

#: Written down, so that each is a test before anything is downloaded; a test compares
#: them with the suite's list.
SCENARIOS: Final = (
    "server-stateless",
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "sep-2164-resource-not-found",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
    "caching",
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-non-tool-request",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
    *UNSCORED,
    *TASKS,
)

#: For the legacy revision. The suite's own server fails two of them, and the third is
#: new.
LEGACY_UNSCORED: Final = (
    "server-session-lifecycle",
    "json-schema-2020-12",
    "server-sse-polling",
)

LEGACY_SCENARIOS: Final = (
    "server-initialize",
    "logging-set-level",
    "ping",
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "server-sse-multiple-streams",
    "elicitation-sep1330-enums",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
    *LEGACY_UNSCORED,
)


@frozen
class Verdict:
    """The verdict on one scenario.

    Attributes:
        passed: Whether the scenario passed.
        note: How many checks succeeded, and the problems.
    """

    passed: bool
    note: str


@frozen
class Suite:
    """An installed suite.

    Attributes:
        node: The command that runs it.
        folder: Where its package is.
    """

    node: str
    folder: Path

    def run(
        self, url: str, folder: Path, revision: str = REVISION
    ) -> dict[str, Verdict]:
        """Run all scenarios of a revision against a server, and judge each.

        Args:
            url: The server's address, on the loopback interface: one scenario calls it by
                other names.
            folder: An empty one, for what the suite writes.
            revision: The revision.
        """
        # One process for all of them: Node takes longer to start than most scenarios run.
        command = [self.node, str(self.folder / "dist" / "index.js"), "server"]
        command += ["--url", url, "--requirements", revision]
        command += ["--timeout", str(SCENARIO_TIME * 1000), "-o", str(folder)]
        log = folder / "log.txt"
        with log.open("wb") as out, suppress(subprocess.TimeoutExpired):
            # When the time is up, the scenarios that did not get their turn fail.
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=RUN_TIME,
                check=False,
            )
        found = _results(folder)
        last = log.read_text("utf-8", "replace")[-400:]
        return {
            name: judge(found[name])
            if name in found
            else Verdict(False, f"it has no result; the suite said last: {last}")
            for name in (SCENARIOS if revision == REVISION else LEGACY_SCENARIOS)
        }


def _results(folder: Path) -> dict[str, list[Check]]:
    found = {}
    for file in folder.glob("server-*/checks.json"):
        name = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", file.parent.name)
        assert name is not None, file
        # It may have been stopped while writing one.
        with suppress(json.JSONDecodeError):
            found[name[1]] = json.loads(file.read_text("utf-8"))
    return found


def judge(checks: Sequence[Check]) -> Verdict:
    """Judge strictly: at least one check succeeded, and none failed or warned.

    Some scenarios cannot fail. They only warn (if a server ignores a SHOULD), or check
    nothing if the server does not answer. The suite adds a check of the schema to most
    scenarios, which also succeeds without messages.
    """
    counts = [one for one in checks if one["status"] == "SUCCESS"]
    bad = [one for one in checks if one["status"] not in ("SUCCESS", "INFO", "SKIPPED")]
    notes = [f"{len(counts)} checks"]
    notes += [
        f"{one['status']} {one['id']}: {one.get('errorMessage') or one['description']}"
        for one in bad
    ]
    if all(one["id"] == "wire-schema-valid" for one in counts):
        notes.append("nothing of its own succeeded")
    return Verdict(len(notes) == 1, "; ".join(notes))


def required_by(
    suite: Suite,
    role: Literal["server", "client"] = "server",
    revision: str = REVISION,
) -> set[str]:
    """Return the scenarios that the suite requires of a server, or of a client.

    Its file is YAML, but simple enough to be read without a parser.
    """
    file = suite.folder / "requirements" / f"{revision}.yaml"
    found = re.search(rf"^{role}:\n((?:  - \S+\n)+)", file.read_text("utf-8"), re.M)
    assert found is not None, file
    return set(re.findall(r"  - (\S+)\n", found[1]))


# ---- installing ---------------------------------------------------------------------


def install(cache: Path) -> Suite:
    """The suite in `cache`, downloaded if it is not there yet.

    Raises:
        Unavailable: It cannot be downloaded.
    """
    return Suite(npm.install_node(cache).node, npm.install(cache, HERE) / PACKAGE)
