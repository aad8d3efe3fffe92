"""Limits of the sizes of results."""

from __future__ import annotations

from ..errors import ToolError, UsageError
from ..protocol.jsonrpc import encode
from ..server.interceptors import Call, Finished, Intercepting, Interceptor

__all__ = ["limit_size"]


def limit_size(most: int) -> Interceptor:
    """Refuse results that are too large, and advise the model to ask for less.

    This counts the bytes of the result's fields as JSON. The result of a task counts, too.

    Args:
        most: The most bytes.

    Raises:
        UsageError: If `most` is not a number above 0.
    """
    if type(most) is not int or most < 1:
        raise UsageError(f"limit_size({most!r}): give 1 byte or more")

    def limit_size(call: Call) -> Intercepting:
        result = yield from call
        if isinstance(result, Finished) and not result.is_error:
            size = len(encode(result.fields))
            if size > most:
                raise ToolError(
                    f"The result of {call.name} has {size:,} bytes, and at most"
                    f" {most:,} are sent: ask for less of it."
                )
        return result

    return limit_size
