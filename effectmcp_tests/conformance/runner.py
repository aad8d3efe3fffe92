"""Runs a client for the suite, and writes down how it ended.

python runner.py FOLDER SECONDS PROGRAM URL

The suite ignores that a client crashed or was killed, and waits for a client that
hangs: it stops only the shell around it. So this program ends first, and writes a file
that the tests judge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def main(folder: str, seconds: str, program: str, url: str) -> None:
    """Run `program` with the URL; leave its exit status and last words in `folder`."""
    status: int | None = None
    command = [sys.executable, "-X", "dev", "-W", "error", program, url]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            said, _ = process.communicate(timeout=float(seconds))
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    ended = {"status": status, "said": said.decode("utf-8", "replace")}
    Path(folder, f"{name}.json").write_text(json.dumps(ended), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
