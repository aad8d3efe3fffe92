"""Servers that do harm: the table "Servers that misbehave" of docs/client.md.

Each row of the table is a server of `hostile_server`, over pipes or over HTTP. The test
calls a tool with the command, and compares the error, its message and the exit status.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from effectmcp.cli import call, main
from effectmcp.cli.printing import print_error
from effectmcp.client import pipes

from . import hostile_server
from .hostile_server import BEHAVIOURS, RAW

PAGE = Path(__file__).parents[2] / "docs" / "client.md"

#: Seconds that only a failure takes, and seconds after which a server is given up.
PATIENCE: Final = 60
#: Seconds to wait for what does not come.
TIMEOUTS: Final = (0.3, 3, 15)

#: The rows of the table: the name of the behaviour. Those in `RAW` are over HTTP.
ROWS: Final[Mapping[str, str]] = {
    "never responds": "silent",
    "never responds to `initialize`": "silent-after-probe",
    "sends a byte at a time": "drip",
    "sends a list without an end": "endless-pages",
    "sends a list in a circle": "circle-of-pages",
    "sends a list of huge pages": "huge-pages",
    "sends a line without an end": "endless-line",
    "notifies without an end": "endless-notifications",
    "sends a message that becomes 2 GB of objects": "many-parts",
    "sends a message that is nested 100,000 times": "deep",
    "asks 1,001 questions at once": "many-questions",
    "returns 101 files": "many-files",
    "fills its standard error before it answers": "much-on-standard-error",
    "responds to another request": "another-id",
    "sends a line that is not a message": "no-message",
    "sends a result of an unknown type": "unknown-type",
    "sends an error with escape sequences": "error-with-escapes",
    "exits": "closes",
    "sends headers without an end": "endless-headers",
    "sends a header a byte at a time": "slow-headers",
    "sends early responses (1xx) without an end": "endless-early-responses",
    "sends a body without an end": "endless-body",
    "sends comments without an end": "endless-comments",
    "sends events without an end": "endless-events",
    "sends one event without an end": "endless-event",
    "compresses a body without an end": "compressed-without-end",
    "ends the stream before the response": "stream-without-response",
    "ends the stream whenever it is resumed": "resumed-without-end",
    "redirects": "redirect",
    "requires a login": "login",
    "sends a web page": "web-page",
    "sends less than it declared": "short-body",
    "does not speak HTTP": "no-http",
    "hangs up": "hangs-up",
}

#: Behaviours that tests in this folder use, and no row of the table.
OTHERS: Final = {"wide", "evil", "evil-legacy"}


def table() -> dict[str, tuple[str, str, str]]:
    """The table of the page, by the first cell of each row."""
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\|(.*)\|$", text[text.index("| a server that |") :], re.M)
    cells = [[one.strip() for one in row.split("|")] for row in rows]
    return {
        first: (error.strip("`"), message, status)
        for first, error, message, status in cells[2:]
    }


TABLE: Final = table()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with hostile_server.http_server() as found:
        yield found


def target_of(name: str, url: str) -> str:
    if name in RAW:
        return f"{url}/{name}"
    file = str(hostile_server.__file__)
    return shlex.join([sys.executable, "-I", "-S", file, name])


def test_each_behaviour_is_in_the_table() -> None:
    assert set(TABLE) == set(ROWS)
    assert {*ROWS.values()} | OTHERS == {*BEHAVIOURS, *RAW}


# What waits for no socket is cancelled between two parts of a body, and then trio warns
# about the generator below.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("row", ROWS)
def test_each_row_of_the_table(
    row: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    error, message, status = TABLE[row]
    errors: list[str] = []

    def caught(exc: Exception) -> None:
        errors.append(type(exc).__name__)
        print_error(exc)

    monkeypatch.setattr(call, "print_error", caught)
    monkeypatch.setattr(pipes, "_PATIENCE", 0.05)
    target = target_of(ROWS[row], url)
    argv = ["call", target, "tool", "--save-to", str(tmp_path)]
    found, out, shown, last = -1, "", "", list[str]()
    # On a busy machine, an honest step may take longer than the short time.
    for seconds in TIMEOUTS if error == "TimeoutError" else [PATIENCE]:
        errors.clear()
        began = time.monotonic()
        found = main([*argv, "--timeout", f"{seconds}"])
        # A handshake, a list and a call are a wait each.
        assert time.monotonic() - began < PATIENCE
        out, err = capfd.readouterr()
        last = [line for line in err.splitlines() if line.startswith("effectmcp: ")]
        shown = last[-1].removeprefix("effectmcp: ") if last else "-"
        shown = shown.replace(f"{seconds:g} s", "3 s")
        shown = shown.replace(url, "https://server.example")
        if f"`{shown}`" == message:
            break
    assert errors == ([] if error == "-" else [error])
    assert found == int(status)
    if message == "-":
        assert not last
        assert out == "done\n"
    else:
        assert f"`{shown}`" == message
    assert len(list(tmp_path.iterdir())) <= 100


# ---- memory -------------------------------------------------------------------------

#: What the page states, in bytes.
MOST: Final = 1024**3

MEASURING = """
import json, sys
from effectmcp.cli import main

def peak():
    text = open("/proc/self/status").read()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024

found = {}
for target in sys.argv[1:]:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # begin again
    main(["call", target, "tool", "--timeout", "60"])
    found[target] = peak()
print(json.dumps(found), file=sys.stderr)
"""


def test_memory_of_the_client_stays_within_the_stated_number(url: str) -> None:
    """Each server is called by the same process, whose peak is reset before."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux resets the peak")
    names = ("wide", "many-parts", "huge-pages", "endless-event")
    targets = {target_of(name, url): name for name in names}
    done = subprocess.run(
        [sys.executable, "-c", MEASURING, *targets],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE * len(names),
        check=True,
    )
    peaks = json.loads(done.stderr.splitlines()[-1])
    found = {targets[target]: peak for target, peak in peaks.items()}
    assert set(found) == set(names)
    assert all(peak < MOST for peak in found.values()), found
