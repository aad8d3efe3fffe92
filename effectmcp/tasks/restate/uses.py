"""Requests that count once, as a virtual object for each flow: bytes in, bytes out. No I/O.

The object has a state for its slots and one for each reply. `exchange.ledger` has the
rules; the engine runs one request to an object at a time, so a take is atomic.

The engine does not know which server runs a request, or whether that lives. So a server
raises the *beat* of a slot every few seconds. A server that waits for a slot whose beat
has not changed for long may take it over: it names the beat that it has seen. No two
clocks are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field

from ...errors import TaskStoreError
from ...exchange.ledger import Held, Taken, Use, judge
from ...records import record
from . import frames
from .attempts import OPEN, owner_tag
from .openings import Opening

__all__ = [
    "FORGET",
    "FULL",
    "HANDLERS",
    "KEEP",
    "TAKE",
    "Seen",
    "UseAttempt",
    "keep_request",
    "read_taking",
    "take_request",
]

#: The handlers of the object: take the slots of a request; keep its reply, show that it
#: still runs, or leave it; remove what no state can name any more.
TAKE: Final = "take"
KEEP: Final = "keep"
FORGET: Final = "forget"
HANDLERS: Final = (TAKE, KEEP, FORGET)

#: The answer to a take for which there is no room.
FULL: Final = {"full": True}

#: The most slots of one flow: the engine sends them all with each request. Only forks
#: need more than a few for each round.
_MOST: Final = 100

_SLOTS: Final = b"slots"
_REPLY: Final = b"reply "


# ---- requests and their results -----------------------------------------------------


@record
class Seen:
    """A request that runs, as another one has found it: its fence, and its beat."""

    fence: int
    beat: int


def take_request(use: Use, over: Seen | None = None, *, is_full: bool = False) -> bytes:
    """Return the request that takes slots.

    Args:
        use: The use.
        over: An execution that is believed to be dead, and may be taken over.
        is_full: Whether there is no room for a flow that has no slots yet.
    """
    return _dumps(
        {
            "slots": use.slots,
            "request": use.request,
            "by": use.by,
            "owner": owner_tag(use.owner).decode(),
            "over": None if over is None else [over.fence, over.beat],
            "full": is_full,
        }
    )


def read_taking(answer: Any, use: Use) -> Taken | Seen | bytes | None:
    """Return the result of a take, from the answer's JSON.

    Returns:
        The taken slots; the execution that still runs; the reply that is kept; or `None`,
        if another request has a slot.

    Raises:
        TaskStoreError: If the answer is of another form.
    """
    match answer:
        case {"fence": int(fence)}:
            return Taken(use.flow, use.slots[0][0], fence)
        case {"busy": [int(fence), int(beat)]}:
            return Seen(fence, beat)
        case {"reply": str(reply)}:
            return reply.encode("utf-8", "surrogatepass")
        case {"spent": True}:
            return None
        case _:
            raise TaskStoreError(f"Restate's answer is not understood: {answer!r:.200}")


def keep_request(taken: Taken, reply: bytes | None, *, is_left: bool = False) -> bytes:
    """Return the request that keeps a reply; without one, that shows a sign of life.

    Args:
        taken: What the request has taken.
        reply: The reply.
        is_left: Whether nothing runs the request any more.
    """
    text = None if reply is None else reply.decode("utf-8", "surrogatepass")
    return _dumps([taken.slot, taken.fence, text, is_left])


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# ---- the object ---------------------------------------------------------------------


@define(eq=False)
class UseAttempt:
    """One attempt of a request to an object.

    Attributes:
        service: The name of the service.
        handler: The handler that is called.
    """

    service: str
    handler: str
    _opening: Opening = field(factory=Opening, init=False)
    _writes: list[bytes] = field(factory=list, init=False)

    def feed(self, data: bytes) -> bool:
        """Take bytes of the engine; return whether the attempt may run.

        Raises:
            TaskStoreError: If this version cannot read them.
        """
        for _ in self._opening.feed(data):
            pass
        return self._opening.is_open

    def run(self) -> bytes:
        """Return the bytes that answer the attempt.

        Raises:
            TaskStoreError: If this version cannot read the request or the state.
        """
        start = self._opening.start
        assert start is not None  # it is open
        run = {TAKE: self._take, KEEP: self._keep, FORGET: self._forget}[self.handler]
        try:
            slots = json.loads(start.state.get(_SLOTS, b"{}"))
            answer = run(json.loads(self._opening.input), slots, start)
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            raise TaskStoreError(
                f"a request that counts once is not understood: {exc!r:.200}"
            ) from exc
        return b"".join((*self._writes, frames.output(_dumps(answer)), frames.end()))

    def _take(self, given: Any, slots: dict[str, Any], start: frames.Start) -> Any:
        names: dict[str, float] = dict(given["slots"])
        first = list(names)[0]
        use = Use(
            flow=start.key,
            slots=tuple(names.items()),
            request=given["request"],
            owner=None,
            by=given["by"],
        )
        held = [_held(name, slots, start.state) for name in names]
        mine = held[0]
        if mine is not None and given["over"] == [mine.fence, slots[first]["beat"]]:
            held[0] = Held(mine.request, mine.fence, None, mine.reply)
        match judge(use, held):
            case Taken(fence=fence):
                is_new = None in held
                if is_new and (len(slots) >= _MOST or (given["full"] and not slots)):
                    return FULL
            case "busy":
                return {"busy": [slots[first]["fence"], slots[first]["beat"]]}
            case "spent":
                return {"spent": True}
            case kept:
                return {"reply": kept.reply.decode("utf-8", "surrogatepass")}
        for name, until in names.items():
            slots.setdefault(name, {"request": use.request, "until": until, "fence": 0})
        slots[first] |= {"fence": fence, "by": use.by, "beat": 0}
        self._write(slots)
        if OPEN not in start.state:
            self._writes.append(frames.set_state(OPEN, given["owner"].encode()))
        if None in held:
            self._order(start, max(names.values()))
        return {"fence": fence}

    def _keep(self, given: Any, slots: dict[str, Any], start: frames.Start) -> Any:
        name, fence, reply, is_left = given
        slot = slots.get(name)
        if slot is None or slot["fence"] != fence:
            return {"kept": False}
        if (place := _REPLY + name.encode()) in start.state:
            return {"kept": True}  # by an attempt whose answer was lost
        if reply is not None:
            data = reply.encode("utf-8", "surrogatepass")
            self._writes.append(frames.set_state(place, data))
        if reply is not None or is_left:
            slot["by"] = None
        slot["beat"] += 1
        self._write(slots)
        return {"kept": True}

    def _forget(self, given: Any, slots: dict[str, Any], start: frames.Start) -> Any:
        # The engine's clock decides: it has waited for that time.
        left = {name: one for name, one in slots.items() if one["until"] > given}
        if not left:
            self._writes.append(frames.clear_all())
        elif len(left) < len(slots):
            for name in slots.keys() - left.keys():
                self._writes.append(frames.clear_state(_REPLY + name.encode()))
            self._write(left)
        return None

    def _write(self, slots: Mapping[str, Any]) -> None:
        self._writes.append(frames.set_state(_SLOTS, _dumps(slots)))

    def _order(self, start: frames.Start, until: float) -> None:
        """Order the removal of slots, as often as slots are new."""
        self._writes.append(
            frames.send(
                self.service,
                FORGET,
                start.key,
                _dumps(until),
                # Each earlier attempt has used one number at most.
                completion=start.known,
                at=int(until * 1000) + 1,
            )
        )


def _held(
    name: str, slots: Mapping[str, Any], state: Mapping[bytes, bytes]
) -> Held | None:
    slot = slots.get(name)
    if slot is None:
        return None
    reply = state.get(_REPLY + name.encode())
    return Held(slot["request"], slot["fence"], slot.get("by"), reply)
