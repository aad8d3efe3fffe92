"""A conversation that took place: readable, storable, and enough to have it again.

A transcript has, for each round, what was performed and what came of it, what was asked
and what came back, and the journal with which the round ended. With the answers the same
conversation can be carried through once more, in this way of answering or in another.
With the journals every place at which a client could have been can be replayed, by
today's handler or by tomorrow's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, assert_never

from attrs import field, frozen

from ..canonical import JSON
from ..effects import Accepted
from ..engine.journal import Journal, JournalError
from ..engine.stops import Answer, Unread
from ..errors import ClientFailed, Declined, Dismissed, EffectMCPError
from ..forms.form import Unfit

__all__ = [
    "FAILED",
    "Ending",
    "Performed",
    "Round",
    "Said",
    "Transcript",
    "TranscriptError",
    "read_transcripts",
]

FORMAT: Final = 1

#: Tags of what raised.
FAILED: Final = frozenset({"failed", "refailed"})


class TranscriptError(EffectMCPError):
    """A file that holds no transcript of a format this version knows."""


@frozen
class Performed:
    """Something that was performed in this process.

    Attributes:
        key: Its place in the flow, with the generation in front.
        what: What was performed.
        where: `file:line` of the yield.
        tag: What became of it, as a journal says it.
        payload: What came back, as a journal has it.
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
class Said:
    """A question, and what was said to it.

    Attributes:
        key: Its wire key.
        what: The question.
        where: `file:line` of the yield.
        answer: What the client sent; `None` if nothing came back for it.
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
    """A failure as a journal has it, in words: `OSError: it failed`."""
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
    """One request, and what came of it.

    Attributes:
        performed: What was performed, in order.
        asked: What was asked at its end, and what came back.
        journal: What was recorded when it ended; `None` where nothing may leave.
    """

    performed: tuple[Performed, ...]
    asked: tuple[Said, ...]
    journal: Journal | None


@frozen
class Ending:
    """How a handler ended.

    Attributes:
        how: `returned` or `raised`; `stopped`, where an edited handler could not go on
            from what was recorded; `open`, where nobody answered; `broke off`, where
            something is wrong with the handler.
        value: Of one that returned, what the client is shown; otherwise in words what
            was raised.
        error: What was raised, unless this was read from a file.
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
        method: How the handler is called.
        target: What is called.
        arguments: With which arguments.
        flow_id: The flow's id.
        lacks: What the client could not be asked, by the names of the effects.
        early: Questions that were answered before they were asked, with the first call.
        rounds: One after the other.
        ending: How it ended.
    """

    method: str
    target: str
    arguments: JSON
    flow_id: bytes = field(repr=False)
    lacks: frozenset[str]
    early: tuple[Said, ...]
    rounds: tuple[Round, ...]
    ending: Ending

    @property
    def journals(self) -> tuple[Journal, ...]:
        """What each round left behind."""
        return tuple(one.journal for one in self.rounds if one.journal is not None)

    @property
    def lines(self) -> list[str]:
        """The conversation, for people to read."""
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
        """This transcript as JSON."""
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
        """Write it to a file in `folder`, and return that.

        Args:
            folder: Where. It is made.
            mark: What tells its name from those of others about the same; by default a
                digest of it all.
        """
        text = self.dumps()
        if mark is None:
            # A lone surrogate becomes \\udc80, here as in the file: JSON for it.
            data = text.encode("utf-8", "backslashreplace")
            mark = hashlib.sha256(data).hexdigest()
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.target).strip("-.") or "call"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name[:60]}-{mark[:12]}.json"
        # For its owner only: it has in it what somebody said.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(
            handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n"
        ) as out:
            out.write(text)
        return file

    @classmethod
    def loads(cls, text: str) -> Transcript:
        """The transcript that `dumps` wrote.

        Raises:
            TranscriptError: It is none.
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


def _asked_to(one: Said) -> JSON:
    return [one.key, one.what, one.where, _written(one.answer)]


def _asked_from(written: JSON) -> Said:
    key, what, where, answer = written
    return Said(key, what, where, _read(answer))


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
        raise ValueError(f"{value!r} where a text belongs")
    return value


def read_transcripts(place: Path) -> Iterable[tuple[Path, Transcript]]:
    """The transcripts in a file, or in all `.json` files of a folder and below.

    Raises:
        TranscriptError: One of them is none, or there is nothing there.
    """
    files = [place] if place.is_file() else sorted(place.rglob("*.json"))
    if not files:
        raise TranscriptError(f"there are no transcripts in {str(place)!r}")
    for file in files:
        try:
            yield file, Transcript.loads(file.read_text(encoding="utf-8"))
        except (TranscriptError, UnicodeDecodeError) as exc:
            raise TranscriptError(f"{file}: {exc}") from None
