"""A client as people run it, against the servers that the suite makes up for it.

    play(suite, folder)      {scenario: Verdict}

Stricter than the suite, as for servers: see `suite.judge`; and a client that passes all
checks and then fails has failed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from .suite import HERE, REVISION, SCENARIO_TIME, Suite, Verdict, judge

__all__ = [
    "EXTENSIONS",
    "LEGACY_SCENARIOS",
    "SCENARIOS",
    "UNSCORED",
    "judge_client",
    "play",
]

CLIENT: Final = HERE.parents[1] / "examples" / "everything_client.py"

#: The suite runs this scenario without scoring it: it is newer than the release.
UNSCORED: Final = ("json-schema-2020-12-preservation",)

#: The logins of both revisions.
_LOGINS: Final = (
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
)

#: The extensions, which the suite runs without scoring them, as they are optional.
EXTENSIONS: Final = (
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
)

#: The scenarios of a client.
SCENARIOS: Final = (
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    *_LOGINS,
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    *EXTENSIONS,
    *UNSCORED,
)

#: The same for the legacy revision.
LEGACY_SCENARIOS: Final = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    *_LOGINS,
    *EXTENSIONS,
    *UNSCORED,
)


def play(
    suite: Suite,
    folder: Path,
    client: Path = CLIENT,
    scenarios: Sequence[str] = SCENARIOS,
    revision: str = REVISION,
) -> dict[str, Verdict]:
    """Run scenarios, and judge each.

    Args:
        suite: The suite.
        folder: An empty one, for what the suite and the client write.
        client: The program, which is given the address of a server.
        scenarios: Which; all of them.
        revision: Which one the servers speak.
    """
    return {name: _play(suite, folder, client, name, revision) for name in scenarios}


def _play(
    suite: Suite, folder: Path, client: Path, name: str, revision: str
) -> Verdict:
    place = folder / name
    place.mkdir(parents=True)
    runner = [sys.executable, str(HERE / "runner.py"), str(folder)]
    # The suite splits the command at spaces, and passes it to a shell joined by spaces.
    command = shlex.join([*runner, str(SCENARIO_TIME), str(client)])
    arguments = ["client", "--command", command, "--scenario", name]
    arguments += ["--spec-version", revision, "--force", "-o", str(place)]
    # For when the runner itself hangs, which only stops the shell.
    arguments += ["--timeout", str(2 * SCENARIO_TIME * 1000)]
    confined = ["--require", str(HERE / "loopback.cjs")]
    log = folder / f"{name}.txt"
    with log.open("wb") as out, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [
                suite.node,
                *confined,
                str(suite.folder / "dist" / "index.js"),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=4 * SCENARIO_TIME,
            check=False,
        )
    try:
        (file,) = place.rglob("checks.json")
        checked = judge(json.loads(file.read_text("utf-8")))
    except ValueError:
        last = log.read_text("utf-8", "replace")[-400:]
        checked = Verdict(False, f"it has no result; the suite said last: {last}")
    ended = folder / f"{name}.json"
    return judge_client(checked, ended.read_text("utf-8") if ended.exists() else None)


def judge_client(checked: Verdict, ended: str | None) -> Verdict:
    """Return the verdict on the checks and on how the client ended.

    Args:
        checked: The verdict on the checks.
        ended: What the runner wrote down, if it did.
    """
    notes = [checked.note]
    if ended is None:
        notes.append("the client was not run")
    else:
        found = json.loads(ended)
        if found["status"] is None:
            notes.append(f"the client took more than {SCENARIO_TIME} seconds")
        elif found["status"] != 0:
            notes.append(f"the client ended with {found['status']}")
        # Its log is ignored. Warnings with a traceback are in it, too.
        if found["status"] != 0 or "Traceback" in found["said"]:
            notes.append(f"it said: {found['said'][-2_000:]}")
    return Verdict(checked.passed and len(notes) == 1, "; ".join(notes))
