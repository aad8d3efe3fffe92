"""The results of a check: findings, and the report about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import field, frozen

if TYPE_CHECKING:
    from .transcripts import Transcript

__all__ = ["BareFinding", "CheckError", "Checked", "Fault", "Finding"]

_MOST_LINES: Final = 24


@frozen
class Finding:
    """A fault of a handler.

    Attributes:
        subject: The handler, as clients call it.
        kind: The name of the fault, one of a few words.
        problem: The fault in a sentence.
        where: `file:line`.
        advice: What to write instead.
        transcript: The shortest conversation that shows it.
    """

    subject: str
    kind: str
    problem: str
    where: str | None
    advice: str
    transcript: Transcript | None = field(default=None, repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """The length of the conversation and its failures, to compare two findings."""
        if self.transcript is None:
            return 0, 0
        lines = self.transcript.lines
        # A conversation with one more line is clearer than one with a failure.
        failures = sum(" raised " in f" {line}" for line in lines)
        return len(lines) + 2 * failures, len(str(self.transcript))

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.problem}"]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.advice:
            lines.append(f"  {self.advice}")
        if self.transcript is not None:
            lines.append("  It shows in this conversation:")
            lines += [f"    {line}" for line in _few(self.transcript.lines)]
        return "\n".join(lines)


def _few(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    half = _MOST_LINES // 2
    return [*lines[:half], f"... ({len(lines) - 2 * half} more)", *lines[-half:]]


@frozen
class BareFinding:
    """A finding before it has a handler and a conversation; see `Finding`.

    Attributes:
        transcript: The conversation that shows it, if the judged one does not.
    """

    kind: str
    problem: str
    where: str | None
    advice: str = ""
    transcript: Transcript | None = None

    def of(self, subject: str, transcript: Transcript | None = None) -> Finding:
        """Return the finding about a handler."""
        return Finding(
            subject,
            self.kind,
            self.problem,
            self.where,
            self.advice,
            self.transcript or transcript,
        )


class Fault(Exception):
    """Raised in a check when one conversation shows a fault.

    Attributes:
        finding: The fault.
    """

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.kind)


@frozen
class Checked:
    """The result of a check.

    Attributes:
        subjects: The handlers that were checked.
        conversations: The number of conversations.
        findings: The mistakes.
        notices: Remarks on behaviour that may be intended.
    """

    subjects: tuple[str, ...]
    conversations: int
    findings: tuple[Finding, ...]
    notices: tuple[str, ...]

    def __str__(self) -> str:
        what = ", ".join(self.subjects) or "nothing"
        # Findings first, because many tools show only the first line of a failure.
        lines = [str(one) for one in self.findings]
        lines.append(f"checked {what}: {self.conversations:,} conversations")
        lines += [f"note: {one}" for one in self.notices]
        return "\n".join(lines)


class CheckError(AssertionError):
    """Raised when a check has findings.

    Attributes:
        checked: The result, with the findings.
    """

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        super().__init__(str(checked))
