"""A small model of the engine for requests that count once: it executes the frames."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from effectmcp.tasks.restate.uses import UseAttempt

from .wire import decode, encode, frame, unframe

__all__ = ["ModelledEngine", "told"]


def told(
    body: bytes,
    state: Mapping[bytes, bytes],
    *,
    key: str = "f1",
    known: bytes = b"",
    count: int = 1,
) -> bytes:
    """Return what the engine tells an attempt.

    Args:
        body: What the handler is sent.
        state: The state of the object.
        key: The key of the object.
        known: Frames that earlier attempts have journaled.
        count: How many messages follow the first one.
    """
    entries = [(4, encode([(1, at), (2, one)])) for at, one in state.items()]
    start = frame(
        0x0000, [(1, b"i" * 24), (2, b"inv_1"), (3, count), *entries, (6, key.encode())]
    )
    return start + frame(0x0400, [(14, encode([(1, body)]))]) + known


@define(eq=False)
class ModelledEngine:
    """Objects, as an engine keeps them.

    Attributes:
        objects: The states of the objects, by key.
        later: The requests for later: when, in milliseconds, and what.
    """

    objects: dict[str, dict[bytes, bytes]] = field(factory=dict)
    later: list[tuple[int, str, str, bytes]] = field(factory=list)
    _numbers: Iterator[int] = field(factory=itertools.count)

    def call(self, service: str, handler: str, key: str, body: bytes) -> Any:
        """Have an attempt run; return the JSON of its answer."""
        state = self.objects.setdefault(key, {})
        attempt = UseAttempt(service, handler)
        assert attempt.feed(told(body, state, key=key))
        answer: Any = None
        for one in unframe(attempt.run()):
            fields: dict[int, Any] = dict(one.fields)
            match one.kind:
                case 0x0403:
                    state[fields[1]] = dict(decode(fields[3])).get(1, b"")  # type: ignore[assignment]  # bytes
                case 0x0404:
                    state.pop(fields[1], None)
                case 0x0405:
                    state.clear()
                case 0x040E:
                    assert fields[1] == service.encode()
                    assert fields[6] == key.encode()
                    self.later.append((fields[4], fields[2].decode(), key, fields[3]))
                case 0x0401:
                    output: dict[int, Any] = dict(decode(fields[14]))
                    answer = json.loads(output[1])
                case kind:
                    assert kind == 0x0003
        return answer

    def pass_time(self, until: float) -> None:
        """Call what is due by then."""
        due = sorted(one for one in self.later if one[0] <= until * 1000)
        for one in due:
            self.later.remove(one)
            _, handler, key, body = one
            self.call("shop.Use", handler, key, body)
