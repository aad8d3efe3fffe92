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
    """Have the C library give back each large block at once, where it can.

    glibc keeps freed blocks of up to 32 MiB for each thread, once a block of that size was
    freed: after 150 replies of 8 MB, 1 GB that nothing uses. A setting for a process of our
    own; a host decides for itself (`MALLOC_MMAP_THRESHOLD_=262144`).
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_THRESHOLD, _LARGE)
