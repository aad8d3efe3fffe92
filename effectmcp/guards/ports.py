"""The interface of a store of counts, which a fleet may share."""

from __future__ import annotations

from typing import Protocol

__all__ = ["LimitStore"]


class LimitStore(Protocol):
    """Interface of a store of counts. Its functions may be called in several threads.

    A store that other processes share performs each function as one transaction, for
    example as a script of Redis. A failure is an exception: the call is then refused.

    Attributes:
        blocks: Whether its functions wait for something. Then they are performed as
            steps, in a worker thread.
    """

    blocks: bool

    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        """Take one token of a bucket, which is full at first and fills again evenly.

        Args:
            key: The bucket.
            tokens: How many it holds.
            seconds: How long an empty bucket takes to be full.
            now: Seconds since 1970.

        Returns:
            0 if a token was taken; otherwise the seconds until there is one.
        """
        ...

    def open(self, key: str, flow: str, *, most: int, until: float, now: float) -> bool:
        """Note that a flow is open, if it is already or fewer than `most` are.

        Args:
            key: Whose flow it is.
            flow: The flow.
            most: How many may be open.
            until: When it is taken for closed, in seconds since 1970.
            now: Seconds since 1970.

        Returns:
            Whether it is open now.
        """
        ...

    def close(self, key: str, flow: str) -> None:
        """Note that a flow is not open any more."""
