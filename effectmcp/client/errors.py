"""The errors of a client: what a server sends that ends a call, and limits of calls."""

from __future__ import annotations

from ..errors import EffectMCPError

__all__ = ["ReplyError", "RoundsError", "TaskCancelled"]


class ReplyError(EffectMCPError):
    """Raised when a server's response is invalid.

    Attributes:
        problem: The description of the error.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the server's answer cannot be used: {self.problem}"


class RoundsError(EffectMCPError):
    """Raised when a call has more interim results than allowed.

    Attributes:
        rounds: The number of interim results that were allowed.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__(rounds)
        self.rounds = rounds

    def __str__(self) -> str:
        return (
            f"the server asked {self.rounds} times and is not done; rounds= allows more"
        )


class TaskCancelled(EffectMCPError):
    """Raised when the task that a call has become was cancelled, by any client.

    Attributes:
        id: The id of the task.
        message: The server's description of the reason; `None` if there is no message.
    """

    def __init__(self, id: str, message: str | None = None) -> None:
        super().__init__(id, message)
        self.id = id
        self.message = message

    def __str__(self) -> str:
        reason = "" if self.message is None else f": {self.message}"
        return f"the task {self.id} was cancelled{reason}"
