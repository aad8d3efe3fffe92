"""A recorded conversation: readable, storable, and enough to run it again.

A transcript has, for each round, the performed effects with their outcomes, the
questions with their answers, and the journal at the end of the round. With the answers,
the conversation can be run again, in the same way of answering or in another. With the
journals, every point that a client could have been at can be replayed, by the current
handler or by an edited one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, assert_never

from attrs import field, frozen

from ..canonical import JSON
from ..effects.questions import Accepted
from ..engine.answers import Answer
from ..engine.journal import Journal, JournalError
from ..engine.stops import Unread
from ..errors import ClientFailed, Declined, Dismissed, EffectMCPError
from ..forms.form import Unfit

__all__ = [
    "FAILED",
    "AskedQuestion",
    "Ending",
    "Performed",
    "Round",
    "Transcript",
    "TranscriptError",
    "read_transcripts",
]

FORMAT: Final = 1

#: Tags of effects that raised.
FAILED: Final = frozenset({"failed", "refailed"})


class TranscriptError(EffectMCPError):
    """Raised when a file has no transcript in a format that this version knows."""


@frozen
class Performed:
    """A local effect that was performed, and its outcome.

    Attributes:
        key: Its place in the flow, with the generation in front.
        what: The effect, in words.
        where: `file:line` of the yield.
        tag: The tag of its outcome, as in a journal.
        payload: The payload of its outcome, as in a journal.
    """

    key: str
    what: str
    where: str | None
    tag: str
    payload: JSON

    def __str__(self) -> str:
        if self.tag in FAILED:
            return f"{self.what} raised {_raised(self.payload)}"
        return f"{self.what} gave {_said(self.payload)}"


@frozen
class AskedQuestion:
    """A question, and its answer.

    Attributes:
        key: Its wire key.
        what: The question, in words.
        where: `file:line` of the yield.
        answer: The answer of the client; `None` if there was no answer.
    """

    key: str
    what: str
    where: str | None
    answer: Answer | None

    def __str__(self) -> str:
        match self.answer:
            case None:
                said = "(no answer)"
            case Accepted(content):
                said = _said(content)
            case Declined():
                said = "declined"
            case Dismissed():
                said = "dismissed"
            case other:
                said = str(other)
        return f"{self.what} → {said}"


def _raised(payload: Any) -> str:
    """Return a journal's failure in words: `OSError: it failed`."""
    match payload:
        case {"type": str() as name, "message": message}:
            return f"{name}: {message}"
        case {"builtin": str() as name, "args": [*args]}:
            return f"{name}: {', '.join(map(str, args))}"
        case {"class": str() as name, "args": [*args]}:
            return f"{name.rpartition(':')[2]}: {', '.join(map(str, args))}"
        case _:
            return _said(payload)


def _said(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else f"{text[:77]}..."


@frozen
class Round:
    """One request, and its outcome.

    Attributes:
        performed: The performed effects, in order.
        asked: The questions at its end, with their answers.
        journal: The journal at its end; `None` if the limit on rounds is passed.
    """

    performed: tuple[Performed, ...]
    asked: tuple[AskedQuestion, ...]
    journal: Journal | None


@frozen
class Ending:
    """The end of a conversation.

    Attributes:
        how: `returned` or `raised`; `stopped`, if an edited handler could not resume
            from the journal; `open`, if the last questions were not answered; `broke
            off`, if the handler is at fault.
        value: The result that the client gets, if the handler returned; otherwise the
            exception, in words.
        error: The exception; `None` if this was read from a file.
    """

    how: str
    value: JSON
    error: BaseException | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.how} {_said(self.value)}"


@frozen
class Transcript:
    """A finished conversation.

    Attributes:
        method: The MCP method of the call.
        target: The name or URI that is called.
        arguments: The arguments of the call.
        flow_id: The flow's id.
        lacks: The names of the effects that the client could not be asked.
        early: Questions that the first request answered before they were asked.
        rounds: The rounds, in order.
        ending: The end of the conversation.
    """

    method: str
    target: str
    arguments: JSON
    flow_id: bytes = field(repr=False)
    lacks: frozenset[str]
    early: tuple[AskedQuestion, ...]
    rounds: tuple[Round, ...]
    ending: Ending

    @property
    def journals(self) -> tuple[Journal, ...]:
        """The journal of each round that has one."""
        return tuple(one.journal for one in self.rounds if one.journal is not None)

    @property
    def lines(self) -> list[str]:
        """The conversation in readable lines."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.target}({_arguments(self.arguments)})"
        if self.lacks:
            yield f"by a client without {', '.join(sorted(self.lacks))}"
        for one in self.early:
            yield f"early: {one}"
        for number, each in enumerate(self.rounds, 1):
            yield f"round {number}"
            for line in (*map(str, each.performed), *map(str, each.asked)):
                yield f"    {line}"
        yield str(self.ending)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    # ---- as a file ----

    def dumps(self) -> str:
        """Write this transcript as JSON."""
        return json.dumps(
            {
                "format": FORMAT,
                "method": self.method,
                "target": self.target,
                "arguments": self.arguments,
                "flow": self.flow_id.hex(),
                "lacks": sorted(self.lacks),
                "early": [_asked_to(one) for one in self.early],
                "rounds": [
                    {
                        "performed": [
                            [one.key, one.what, one.where, one.tag, one.payload]
                            for one in each.performed
                        ],
                        "asked": [_asked_to(one) for one in each.asked],
                        "journal": None
                        if each.journal is None
                        else json.loads(each.journal.dumps()),
                    }
                    for each in self.rounds
                ],
                "ending": [self.ending.how, self.ending.value],
            },
            ensure_ascii=False,
            indent=1,
        )

    def save(self, folder: Path, *, mark: str | None = None) -> Path:
        """Write it to a file in `folder`, and return the file.

        Args:
            folder: The folder; it is created if it is missing.
            mark: Distinguishes the names of files about the same target; by default, a
                digest of the transcript.
        """
        text = self.dumps()
        if mark is None:
            # A lone surrogate becomes \\udc80, here as in the file: that is JSON.
            data = text.encode("utf-8", "backslashreplace")
            mark = hashlib.sha256(data).hexdigest()
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.target).strip("-.") or "call"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name[:60]}-{mark[:12]}.json"
        # Another file first: on a full disk, an earlier transcript stays, and half of
        # one would be read as damaged. Readable by its owner only, as `mkstemp` makes
        # it, because it has the answers of users.
        handle, new = tempfile.mkstemp(".part", f"{file.name}.", folder)
        try:
            with open(
                handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n"
            ) as out:
                out.write(text)
            os.replace(new, file)
        except BaseException:
            os.unlink(new)
            raise
        return file

    @classmethod
    def loads(cls, text: str) -> Transcript:
        """Read a transcript that `dumps` wrote.

        Raises:
            TranscriptError: If `text` is not a transcript.
        """
        try:
            return _transcript(json.loads(text))
        except (
            *(LookupError, TypeError, ValueError, AttributeError),
            *(JournalError, RecursionError),
        ) as exc:
            raise TranscriptError(f"not a transcript: {exc}") from None


def _arguments(arguments: JSON) -> str:
    if not isinstance(arguments, dict):
        return _said(arguments)
    return ", ".join(f"{name}={_said(value)}" for name, value in arguments.items())


def _asked_to(one: AskedQuestion) -> JSON:
    return [one.key, one.what, one.where, _written(one.answer)]


def _asked_from(written: JSON) -> AskedQuestion:
    key, what, where, answer = written
    return AskedQuestion(key, what, where, _read(answer))


def _written(answer: Answer | None) -> JSON:
    match answer:
        case None:
            return None
        case Accepted(content):
            return ["accepted", content]
        case Declined():
            return ["declined"]
        case Dismissed():
            return ["dismissed"]
        case ClientFailed():
            return ["refused", answer.code, answer.message, answer.data]
        case Unfit():
            return ["unfit", *answer.problems]
        case Unread():
            raise TypeError("an answer that was not read has no content")
        case _:
            assert_never(answer)


def _read(written: Any) -> Answer | None:
    match written:
        case None:
            return None
        case ["accepted", content]:
            return Accepted(content)
        case ["declined"]:
            return Declined()
        case ["dismissed"]:
            return Dismissed()
        case ["refused", int() as code, str() as message, *data]:
            return ClientFailed(code, message, *data)
        case ["unfit", *problems]:
            return Unfit([str(one) for one in problems])
        case _:
            raise ValueError(f"the answer {written!r}")


def _transcript(value: Any) -> Transcript:
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']!r}")
    how, ended = value["ending"]
    return Transcript(
        method=_text(value["method"]),
        target=_text(value["target"]),
        arguments=value["arguments"],
        flow_id=bytes.fromhex(value["flow"]),
        lacks=frozenset(map(_text, value["lacks"])),
        early=tuple(map(_asked_from, value["early"])),
        rounds=tuple(
            Round(
                performed=tuple(Performed(*one) for one in each["performed"]),
                asked=tuple(map(_asked_from, each["asked"])),
                journal=None
                if each["journal"] is None
                else Journal.loads(json.dumps(each["journal"])),
            )
            for each in value["rounds"]
        ),
        ending=Ending(_text(how), ended),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} where a string belongs")
    return value


def read_transcripts(place: Path) -> Iterable[tuple[Path, Transcript]]:
    """Yield the transcripts of a file, or of all `.json` files below a folder.

    Raises:
        TranscriptError: If a file is not a transcript, or `place` has no files.
    """
    files = [place] if place.is_file() else sorted(place.rglob("*.json"))
    if not files:
        raise TranscriptError(f"there are no transcripts in {str(place)!r}")
    for file in files:
        try:
            yield file, Transcript.loads(file.read_text(encoding="utf-8"))
        except (TranscriptError, UnicodeDecodeError) as exc:
            raise TranscriptError(f"{file}: {exc}") from None
