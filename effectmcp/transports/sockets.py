"""A connected socket, read and written with nothing in between.

trio's own `SocketStream` is right for every protocol: it tries before it waits, and goes
through the scheduler after each send. Here that would be a fifth of what a request takes.
Whoever has sent an answer waits for the next request, and gives way to others there.
"""

from __future__ import annotations

import socket

import trio

__all__ = ["Direct"]


class Direct(trio.abc.HalfCloseableStream):
    """A `trio.SocketStream`, for one reader and one writer.

    Args:
        stream: The stream. Its socket belongs to this one from now on.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        # The socket that trio has wrapped, which it shows to nobody. All that can be
        # asked of one whose client is gone already is known, and so not asked again.
        old = stream.socket
        self._socket = socket.socket(
            old.family, old.type, old.proto, fileno=old.detach()
        )
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; none at the end."""
        number = self._socket.fileno()
        if number < 0:
            raise trio.ClosedResourceError("this end of the connection was closed")
        while True:
            try:
                await trio.lowlevel.wait_readable(number)
                return self._socket.recv(max_bytes or 65536)
            except (BlockingIOError, InterruptedError):
                pass  # somebody was woken up for nothing
            except OSError as exc:
                raise trio.BrokenResourceError(f"the client is gone: {exc}") from exc

    def is_readable(self) -> bool:
        """Whether there is anything to receive: bytes, the end, or an error."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    def send_now(self, data: bytes | memoryview) -> bytes | memoryview:
        """Send what the kernel takes without waiting; returns what it does not."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return data
        except OSError as exc:
            # Gone, or closed by us: nobody is told of anything any more.
            raise trio.BrokenResourceError(f"the client is gone: {exc}") from exc
        return b"" if sent == len(data) else memoryview(data)[sent:]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    def close(self) -> None:
        """Close it now. Whoever waits for it is told."""
        self._stream.socket.close()

    async def aclose(self) -> None:
        await self._stream.aclose()
