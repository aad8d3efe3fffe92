"""An HTTP server on the loopback interface that answers as a test defines."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from attrs import frozen

__all__ = ["CLOSE", "SILENCE", "Asked", "Scripted", "answer"]


@frozen
class Asked:
    """A request.

    Attributes:
        line: Its method and its target.
        head: Its headers, with small letters.
        body: Its body.
    """

    line: str
    head: dict[str, str]
    body: bytes

    @property
    def sql(self) -> str:
        """The query that it has."""
        found: str = json.loads(self.body)["query"]
        return found


#: Answers: nothing, until the test ends; and the end of the connection.
SILENCE: Final = b"silence"
CLOSE: Final = b"close"

_Answer: TypeAlias = Callable[[Asked], bytes]


def answer(value: Any = None, *, status: int = 200, head: str = "") -> bytes:
    """Return a response; the value is JSON, or bytes as they are."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    line = f"HTTP/1.1 {status} Whatever\r\ncontent-length: {len(body)}\r\n{head}\r\n"
    return line.encode() + body


class Scripted:
    """The server. It is one for the ingress and the admin interface.

    Attributes:
        asked: All requests.
        connections: How many connections there were.
        answer: Returns the response to a request: bytes, `SILENCE`, or `CLOSE`. A response
            that ends with `CLOSE` ends the connection after it.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.answer: _Answer = lambda asked: answer({"rows": []})
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of this server."""
        return "http://{}:{}".format(*self._listening.getsockname())

    def rows(self, *answers: list[dict[str, Any]] | bytes) -> None:
        """Answer the queries that come with these rows, one after the other."""
        left = list(answers)

        def next_one(asked: Asked) -> bytes:
            found = left.pop(0)
            return found if isinstance(found, bytes) else answer({"rows": found})

        self.answer = next_one

    def close(self) -> None:
        """End it, and all connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in list(self._open):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended
        self._thread.join(60)

    def _run(self) -> None:
        threads = []
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                break
            self.connections += 1
            self._open.append(one)
            threads.append(threading.Thread(target=self._converse, args=[one]))
            threads[-1].start()
        for thread in threads:
            thread.join(60)

    def _converse(self, one: socket.socket) -> None:
        with one, one.makefile("rb") as stream:
            while (asked := self._read(stream)) is not None:
                self.asked.append(asked)
                said = self.answer(asked)
                if said == SILENCE:
                    continue
                try:
                    one.sendall(said.removesuffix(CLOSE))
                except OSError:
                    return  # the client has gone
                if said.endswith(CLOSE):
                    return

    def _read(self, stream: Any) -> Asked | None:
        try:
            line = stream.readline().decode("latin-1").strip()
            if not line:
                return None
            head = {}
            while field := stream.readline().decode("latin-1").strip():
                name, _, value = field.partition(":")
                head[name.lower()] = value.strip()
            body = stream.read(int(head.get("content-length", 0)))
        except OSError:
            return None
        return Asked(line.removesuffix(" HTTP/1.1"), head, body)
