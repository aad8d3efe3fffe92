"""Output that is safe for a terminal."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.cli.guard import guard_terminal, held
from effectmcp.cli.output import raw, say_error
from effectmcp.cli.printable import is_printable, json_text, printable
from effectmcp.errors import EffectMCPError

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e\u2066\u200b\x7f\r\ue000\U000e0041\ud800"

#: Characters of all kinds, halves of pairs included.
CHARACTERS = st.characters() | st.characters(categories=["Cs", "Cf", "Cc", "Zl", "Mn"])
TEXTS = st.text(CHARACTERS)


@pytest.mark.parametrize("one", [*EVIL[10:11], *"\u2028\u2029\u0085\ufeff\u00ad\u061c"])
def test_printable_escapes_control_and_format_characters(one: str) -> None:
    assert not is_printable(one)
    assert printable(one).startswith("\\")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL[:14], "\\x1b]0;pwned\\x07\\x1b[2J"),
        ("Grüße, 船 и صباح", "Grüße, 船 и صباح"),
        ("5\u00a0€\u3000", "5\u00a0€\u3000"),
        ("👩\u200d🚒 ❤\ufe0f\u200d🔥", "👩\u200d🚒 ❤\ufe0f\u200d🔥"),
        ("a\u200db", "a\\u200db"),
        ("\u200d👩\u200d", "\\u200d👩\\u200d"),
        ("pay\U000e0170pal\u3164", "pay\\U000e0170pal\\u3164"),
        ("one\ntwo\tthree", "one two three"),
    ],
)
def test_printable_shows_letters_and_emoji_unchanged(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_in_lines_keeps_line_ends_and_tabs() -> None:
    assert printable("a\tb\r\nc\rd\x0b", in_lines=True) == "a\tb\nc\\rd\\x0b"


@given(TEXTS, st.booleans())
@example("👩\u200d\u200d👩", False)
def test_printable_returns_nothing_unprintable(text: str, in_lines: bool) -> None:
    shown = printable(text, in_lines=in_lines)
    allowed = "\n\t" if in_lines else ""
    rest = shown.replace("\u200d", "")  # only inside of an emoji
    assert all(is_printable(one) or one in allowed for one in rest)
    assert printable(shown, in_lines=in_lines) == shown


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
        max_leaves=10,
    ),
    st.sampled_from([None, 2]),
)
def test_json_text_is_printable_and_the_same_value(value: Any, indent: Any) -> None:
    # Two halves of a pair that are next to each other are one character in JSON.
    value = json.loads(json.dumps(value))
    text = json_text(value, indent=indent)
    assert all(is_printable(one) or one == "\n" for one in text)
    assert json.loads(text) == value


def test_json_text_of_a_deep_value_is_written_or_refused() -> None:
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    assert json.loads(json_text(deep, indent=2)) == deep
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(EffectMCPError, match="too deeply"):
        json_text(deep, indent=2)


def test_a_long_error_keeps_its_start_and_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_error(f"no such \x9b {'x' * 1_000_000} is\nthe advice")
    text = capsys.readouterr().err
    assert text.startswith("effectmcp: no such \\x9b xxx")
    assert text.endswith("xxx is the advice\n")
    assert len(text) < 11_000


# ---- the guard ----------------------------------------------------------------------


class FakeTerminal(io.TextIOWrapper):
    """A terminal that keeps its output."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding="utf-8")

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        self.flush()
        return self.kept.getvalue().decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    monkeypatch.setenv("NO_COLOR", "1")
    return FakeTerminal()


def put_in_place(terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it standard error. Not in the fixture: pytest sets it again after that."""
    monkeypatch.setattr(sys, "stderr", terminal)
    guard_terminal()
    assert sys.stderr is not terminal


def test_guard_escapes_text_and_bytes(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(terminal, monkeypatch)
    print(EVIL, file=sys.stderr)
    sys.stderr.buffer.write("ü\x1b\n".encode())
    for byte in b"\xe2\x80\xae\xff\n":
        sys.stderr.buffer.write(bytes([byte]))
    first, *rest = terminal.text.splitlines()
    assert first.isprintable()
    assert rest == ["ü\\x1b", "\\u202e\\xff"]


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_guard_writes_nothing_unprintable_of_any_bytes(parts: list[bytes]) -> None:
    before, terminal = sys.stderr, FakeTerminal()
    sys.stderr = terminal
    try:
        guard_terminal()
        for part in parts:
            sys.stderr.buffer.write(part)
    finally:
        sys.stderr = before
    rest = terminal.text.replace("\u200d", "")
    assert all(is_printable(one) or one in "\n\t" for one in rest)


def test_guard_leaves_files_and_pipes_unchanged(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = sys.stdout
    guard_terminal()
    assert sys.stdout is before
    print(EVIL[:20])
    assert capfd.readouterr().out == f"{EVIL[:20]}\n"


def test_guard_is_not_a_terminal_to_others_but_its_raw_stream_is(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries would send colors, which would be shown escaped."""
    put_in_place(terminal, monkeypatch)
    guarded = sys.stderr
    assert not guarded.isatty()
    assert os.environ["NO_COLOR"]
    assert raw(guarded) is terminal
    assert raw(terminal) is terminal
    guard_terminal()
    assert sys.stderr is guarded


def test_output_of_others_waits_while_a_form_is_shown(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a server could write another question below the real one."""
    put_in_place(terminal, monkeypatch)
    with held():
        print("not \x9b yet", file=sys.stderr)
        raw(sys.stderr).write("the form\n")
    print("later", file=sys.stderr)
    assert terminal.text == "the form\nnot \\x9b yet\nlater\n"
    with held():
        for _ in range(10_000):
            print("x" * 100, file=sys.stderr)
    assert len(terminal.text) < 200_000
    assert terminal.text.endswith("effectmcp: more output was dropped\n")
