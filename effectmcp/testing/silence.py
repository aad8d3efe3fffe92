"""A handler that is tried in every way logs a lot, and all of it is found otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["silent"]


@contextmanager
def silent() -> Iterator[None]:
    """Let nobody log anything meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
