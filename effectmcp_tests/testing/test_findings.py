"""The text of findings."""

from __future__ import annotations

from effectmcp import Declined, Elicit, Flow
from effectmcp.testing.findings import BareFinding, Checked, CheckError, Fault, Finding

from .test_conversations import Obliging, had


def asks_often() -> Flow[str]:
    for n in range(7):
        yield from Elicit(f"{n}?", str)
    return "."


def asks_once() -> Flow[str]:
    return (yield from Elicit("0?", str))


FOUND = BareFinding("crash", "it crashes", "a.py:1", "Don't.")


def test_a_finding_shows_its_conversation() -> None:
    finding = FOUND.of("asks", had(asks_once))
    assert str(finding).splitlines() == [
        "asks: it crashes",
        "  at a.py:1",
        "  Don't.",
        "  It shows in this conversation:",
        "    asks_once()",
        "    round 1",
        '        Elicit(message=\'0?\', form=str) → {"value": "a"}',
        "    round 2",
        '    returned {"content": [{"type": "text", "text": "a"}]}',
    ]


def test_a_finding_without_a_conversation() -> None:
    assert str(FOUND.of("asks")) == "asks: it crashes\n  at a.py:1\n  Don't."
    assert str(Finding("asks", "crash", "it crashes", None, "")) == "asks: it crashes"


def test_a_finding_may_have_a_conversation_of_its_own() -> None:
    own, judged = had(asks_often), had(asks_once)
    found = BareFinding("crash", "it crashes", None, transcript=own)
    assert found.of("asks", judged).transcript is own
    assert FOUND.of("asks", judged).transcript is judged


def test_long_conversations_are_cut() -> None:
    transcript = had(asks_often)
    longer = FOUND.of("asks", transcript)
    assert "more)" not in str(longer)
    lines = transcript.lines
    assert len(lines) == 17
    for count in (12, 24):
        assert len(_cut([*lines, *lines][:count])) == count
    cut = _cut([*lines, *lines])
    assert (len(cut), cut[12]) == (25, "... (10 more)")
    assert cut[:12] == lines[:12]


def _cut(lines: list[str]) -> list[str]:
    class Long:
        def __init__(self) -> None:
            self.lines = lines

    finding = Finding("a", "crash", "it", None, "", Long())  # type: ignore[arg-type]
    return [one[4:] for one in str(finding).splitlines()[2:]]


def test_the_shorter_and_smoother_conversation_is_smaller() -> None:
    short, long = FOUND.of("asks", had(asks_once)), FOUND.of("asks", had(asks_often))
    refused = had(asks_once, partner=Obliging({"elicit-1": Declined()}))
    assert FOUND.of("asks").size == (0, 0) < short.size < long.size
    assert short.size < FOUND.of("asks", refused).size


def test_a_fault_is_called_by_its_kind() -> None:
    finding = FOUND.of("asks")
    assert Fault(finding).finding is finding
    assert str(Fault(finding)) == "crash"


def test_a_check_in_words() -> None:
    assert str(Checked((), 0, (), ())) == "checked nothing: 0 conversations"
    checked = Checked(("a", "b"), 1200, (FOUND.of("a"),), ("b may be intended",))
    assert str(checked).splitlines() == [
        "a: it crashes",
        "  at a.py:1",
        "  Don't.",
        "checked a, b: 1,200 conversations",
        "note: b may be intended",
    ]
    assert str(CheckError(checked)) == str(checked)
    assert CheckError(checked).checked is checked
