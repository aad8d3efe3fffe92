"""The terminal of a user, against servers, apps and libraries that write on it.

The commands run under a real terminal, against servers all of whose strings are evil.
The test reads the bytes that reach the terminal, and allows only the control sequences of
`effectmcp.cli.terminal`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from effectmcp.server.target import load_app
from effectmcp.state import Keys, make_key
from effectmcp.testing import MemoryClient, Recorder

from ..cli.test_tasks import keep, row
from . import hostile_server
from .hostile_server import EVIL

pexpect: Any = pytest.importorskip("pexpect", reason="there is no pexpect")

KEY: Final = make_key(bytes(range(32)))

#: Line ends, which a terminal driver begins with a return; and the control sequences of
#: the command: erase the line, move up to the first line of a form, erase below.
OURS: Final = re.compile(r"\r*\n|\r\x1b\[K|(?:\x1b\[\d{1,3}A)?\r\x1b\[J")

#: Emoji of several parts may stay.
UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

#: Runs commands in one process, as starting one takes most of the time.
DRIVER: Final = """
import json, sys
from effectmcp.cli import main
evil, commands = json.load(open(sys.argv[1]))
for name, argv, _ in commands:
    try:
        status = main(argv)
    except SystemExit as exc:
        status = exc.code
    print(f"ended: {name} with {status}", flush=True)
raise RuntimeError(evil)
"""

#: An app that runs in the process of the command, and prints.
APP: Final = f"""
import logging, sys, warnings
from effectmcp import Elicit, Flow, Log, Progress, Server

EVIL = {EVIL!r}
app = Server("shop")


@app.tool
def order(title: str) -> Flow[str]:
    name = yield from Elicit(f"Who{{EVIL}}?", str)
    return f"{{title}} for {{name}}{{EVIL}}"


@app.tool
def breaks(title: str) -> Flow[str]:
    yield from Elicit(f"Who{{EVIL}}?", str)
    raise RuntimeError(f"Broken{{EVIL}}")


@app.tool
def prints() -> str:
    print(f"Print{{EVIL}}")
    print(f"Error{{EVIL}}", file=sys.stderr)
    sys.stderr.buffer.write(f"Bytes{{EVIL}}".encode())
    warnings.warn(f"Warning{{EVIL}}")
    logging.getLogger("app").error(f"Logger{{EVIL}}")
    return f"Done{{EVIL}}"


@app.tool
def fails() -> str:
    raise RuntimeError(f"Raised{{EVIL}}")
"""


def unprintable(text: str) -> set[str]:
    """The characters that reached the terminal and should not."""
    rest = OURS.sub("", text)
    return {one for one in rest if unicodedata.category(one) in UNPRINTABLE} - {"\t"}


def test_unprintable_finds_each_part_of_the_evil_string() -> None:
    assert unprintable(f"a\r\n\r\x1b[K\x1b[3A\r\x1b[J{EVIL}") == set(
        "\x1b\x07\x9b\u202e\u2066\u200b\x7f\r"
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with hostile_server.http_server() as found:
        yield found


def command(name: str) -> str:
    file = str(hostile_server.__file__)
    return shlex.join([sys.executable, "-I", "-S", file, name])


def spawn(*argv: str, cwd: Path) -> Any:
    return pexpect.spawn(
        sys.executable,
        [*argv],
        cwd=str(cwd),
        env={
            **os.environ,
            "EFFECTMCP_STATE_KEYS": KEY,
            "TERM": "xterm",
            "BROWSER": "true",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        timeout=20,
        dimensions=(50, 200),
    )


def rest_of(child: Any) -> str:
    child.expect(pexpect.EOF)
    data: bytes = child.before
    child.close()
    return data.decode()


def evil_token(app: Any) -> str:
    """A state whose journal has an evil answer."""
    app.keys = Keys(KEY)
    client = MemoryClient(app)
    params: dict[str, Any] = {"name": "order", "arguments": {"title": EVIL}}
    result = client.send("tools/call", **params)
    state: str = result["requestState"]
    return state


def commands(folder: Path, url: str) -> list[tuple[str, list[str], int]]:
    """Commands that print, by a name, with their exit status."""
    pipes, web = command("evil"), f"{url}/evil"
    legacy = command("evil-legacy")
    file = folder / "evil_shop.py"
    file.write_text(APP)
    app = load_app(str(file))
    Recorder(app, folder / "transcripts")
    answers = {f"Who{EVIL}?": EVIL}
    MemoryClient(app, answers).call_tool("order", title=EVIL)
    message = f"Status{EVIL}"
    path = keep(
        folder / "tasks.db",
        row(message=message, arguments={EVIL: EVIL}, tool=f"ship{EVIL}"),
        row(id="b" * 40, status="failed", error={"code": 1, "message": EVIL}),
    )
    saved = ["--save-to", str(folder / f"saved{EVIL}")]
    found = [
        ("call", ["call", pipes, "blocks", *saved], 0),
        ("call over HTTP", ["call", web, "blocks", *saved], 0),
        ("call in a session", ["call", legacy, "blocks", *saved], 0),
        ("call that cannot save", ["call", pipes, "blocks", "--save-to", path], 5),
        ("call --raw", ["call", pipes, "blocks", "--raw", *saved], 0),
        ("call --raw over HTTP", ["call", web, "blocks", "--raw", *saved], 0),
        ("call --trace", ["call", pipes, "blocks", "--trace", *saved], 0),
        ("structured", ["call", pipes, "structured"], 0),
        ("failing", ["call", pipes, "failing"], 1),
        ("error", ["call", pipes, "error"], 3),
        ("type", ["call", pipes, "type"], 3),
        ("task", ["call", pipes, "task"], 3),
        ("unknown tool", ["call", pipes, f"nosuch{EVIL}"], 2),
        ("unasked answer", ["call", pipes, "structured", "--answer", f"{EVIL}=1"], 0),
        ("bad answer", ["call", pipes, "structured", "--answer", f"{EVIL}=x"], 2),
        ("prompt", ["call", pipes, "x", "--prompt", f"a={EVIL}"], 0),
        ("resource", ["call", pipes, "--resource", "x:y"], 0),
        ("list", ["list", pipes], 0),
        ("list in a session", ["list", legacy], 0),
        ("list --json", ["list", pipes, "--json"], 0),
        ("list --raw", ["list", web, "--raw"], 0),
        ("no server", ["list", f"nosuch{EVIL}"], 3),
        ("arguments", ["list", "a", f"--{EVIL}"], 2),
        ("in process", ["call", str(file), "prints"], 0),
        ("in process, failing", ["call", str(file), "fails"], 1),
        ("check", ["check", str(file), "breaks", "--conversations", "1"], 1),
        ("replay", ["replay", str(folder / "transcripts"), str(file)], 0),
        ("token", ["token", evil_token(app)], 0),
        ("tasks list", ["tasks", "list", "--tasks", path], 0),
        ("tasks list --json", ["tasks", "list", "--json", "--tasks", path], 0),
        ("tasks show", ["tasks", "show", "3f2a", "--tasks", path], 0),
        ("tasks show --json", ["tasks", "show", "b", "--json", "--tasks", path], 0),
        ("no task", ["tasks", "show", f"x{EVIL}", "--tasks", path], 2),
        ("no app", ["serve", f"{folder}/x{EVIL}.py:app"], 2),
        ("no key", ["worker", str(file), "--tasks", f"{folder}/{EVIL}/x.db"], 2),
    ]
    for name in ("redirect", "login", "web-page", "no-http", "error-with-escapes"):
        found.append((name, ["call", f"{url}/{name}", "tool"], 3))
    return found


def test_no_command_writes_anything_unprintable(url: str, tmp_path: Path) -> None:
    rows = commands(tmp_path, url)
    file = tmp_path / "commands.json"
    file.write_text(json.dumps([EVIL, rows]))
    text = rest_of(spawn("-c", DRIVER, str(file), cwd=tmp_path))
    *parts, end = re.split(r"ended: ([^\r]*?) with (\S+)\r\n", text)
    assert "RuntimeError: \\x1b]0;pwned" in end  # the traceback of Python
    seen = dict(
        zip(parts[1::3], zip(parts[::3], parts[2::3], strict=True), strict=True)
    )
    assert {name: int(status) for name, (_, status) in seen.items()} == {
        name: status for name, _, status in rows
    }
    for name, (part, _) in seen.items():
        assert not unprintable(part), f"{name}: {part!r}"
        # It did print the evil string, and not only the letters around it.
        shown = re.sub(r"\s", "", part)
        assert "pwned" not in shown or re.search(r"(x1b|u001b)\]0;pwned", shown), name
    assert not unprintable(end)
    words = "Text Resource Link log Log Step Title About Prompt Contents Failed line"
    words += " Print Error Bytes Warning Logger Done Raised Status"
    for word in words.split():
        assert re.search(rf"{word}\\(x1b|u001b)\]0;pwned\\(x07|u0007)", text), word


@pytest.mark.parametrize("behaviour", ["evil", "evil-legacy"])
@pytest.mark.parametrize("options", [[], ["--trace", "--show-answers"], ["--raw"]])
def test_no_form_writes_anything_unprintable(
    behaviour: str, options: list[str], tmp_path: Path
) -> None:
    is_legacy = behaviour == "evil-legacy"
    tool = "page" if is_legacy else "asking"
    argv = ["-m", "effectmcp", "call", command(behaviour), tool, *options]
    child = spawn(*argv, cwd=tmp_path)
    text = ""

    def press(keys: str, until: str) -> None:
        nonlocal text
        child.expect_exact(until.encode())
        text += (child.before + child.after).decode()
        child.send(keys)

    if is_legacy:
        press("y", "Esc close")
    else:
        press("\tabc\t\x1b[C\t \t \tz\r", "Esc close")
        # Keys that come before a question is settled do not answer the next one.
        press("n", "✓ A form")
        press("y", "✗ declined: A link")
        press("hi\r", "✓ A link")
    text += rest_of(child)
    assert not unprintable(text), repr(text)
    assert "\\x1b]0;pwned\\x07" in text
    assert ("Page" if is_legacy else "Answered") in text
