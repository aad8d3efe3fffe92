"""Give large blocks of memory back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["give_back_large_blocks"]

#: `M_MMAP_THRESHOLD` of glibc.
_THRESHOLD: Final = -3

#: Bytes of a block that is large.
_LARGE: Final = 256 * 1024


def give_back_large_blocks() -> None:
    """Set glibc to return freed blocks of 256 KiB or more to the system immediately.

    Otherwise it keeps freed blocks of up to 32 MiB for each thread, once a block of that
    size was freed: after 150 replies of 8 MB, 1 GB that nothing uses. Only for processes
    that this package starts; other hosts can set `MALLOC_MMAP_THRESHOLD_=262144`.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_THRESHOLD, _LARGE)
