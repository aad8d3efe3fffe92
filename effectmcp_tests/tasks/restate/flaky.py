"""A proxy on the loopback interface that delays, cuts and drops: a network that fails."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress

__all__ = ["Proxy"]


class Proxy:
    """Passes connections on to an address, badly.

    Args:
        target: The address.
        seed: Decides what happens to each piece of data.
        delay: The longest delay of a piece, in seconds.
        cut: The probability that a connection ends at a piece, or is silent after it,
            as if a cable had been cut.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        seed: int = 0,
        delay: float = 0.0,
        cut: float = 0.0,
    ) -> None:
        self.target = target
        self._dice = random.Random(seed)
        self._delay = delay
        self._cut = cut
        self._sockets: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more, and end all connections."""
        self._listening.close()
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(self.target)
                except OSError:
                    near.close()
                    continue
                self._sockets |= {near, far}
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                time.sleep(self._dice.random() * self._delay)
                if self._dice.random() < self._cut:
                    self.cuts += 1
                    if self._dice.random() < 0.5:
                        # Half of the piece arrives, and then the end.
                        target.sendall(data[: len(data) // 2])
                        break
                    while source.recv(65_536):
                        pass  # nothing arrives any more
                    break
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            self._sockets.discard(one)
            one.close()
