"""Limits on the time and the memory that a server may take from its client.

A server chooses how much it sends, and how slowly. So each wait has a deadline, and each
container that a server can fill has a size:

    one message           64 MiB as received, and 3,000,000 JSON tokens
    a list, all pages     64 MiB in memory, 1,000 pages
    the cache             64 MiB in memory
    messages that wait    64 MiB in memory and 1,000 of them, for each request
    questions             1,000 at a time

No I/O. `deadlines` has the waits.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from sys import getsizeof
from typing import Any, Final

from ..canonical import JSON
from .channels import ChannelError

__all__ = [
    "LARGEST",
    "LONGEST",
    "MOST_TOLD",
    "memory_of",
    "read_message",
]

#: The maximum size of a message in bytes, as received.
LONGEST: Final = 64 * 1024 * 1024

#: The maximum size in memory of messages that are kept together, in bytes.
LARGEST: Final = 64 * 1024 * 1024

#: The maximum number of messages that wait for a request.
MOST_TOLD: Final = 1_000

#: The maximum number of strings, brackets and commas in a message. Three bytes of
#: `[[],[],…` become an object of 64 bytes, so the size alone limits nothing.
_MOST_TOKENS: Final = 3_000_000

_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


def read_message(data: bytes | bytearray | str) -> dict[str, Any] | None:
    """Return the JSON object in `data`; `None` if there is no valid one.

    Raises:
        ChannelError: If it has too many parts.
    """
    try:
        if not isinstance(data, str):
            # As `json.loads` does, which would keep a second copy.
            data = data.decode(json.detect_encoding(bytes(data[:4])), "surrogatepass")
        if sum(map(data.count, ",[{")) > _MOST_TOKENS // 3:
            # Some of them may be in strings: count exactly.
            tokens = islice(_TOKEN.finditer(data), _MOST_TOKENS)
            if sum(1 for _ in tokens) == _MOST_TOKENS:
                raise ChannelError(
                    f"the server sent a message of more than {_MOST_TOKENS:,} parts"
                )
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def memory_of(value: JSON) -> int:
    """Return how many bytes a JSON value takes in memory, about."""
    size = 0
    rest = [value]
    while rest:
        one = rest.pop()
        size += getsizeof(one)
        if isinstance(one, dict):
            size += sum(map(getsizeof, one))
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
    return size
