"""The limit of open files: each connection is one."""

from __future__ import annotations

__all__ = ["files"]


def files() -> int:
    """Return the limit of open files of this process; sockets count, too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2**31
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if limit == resource.RLIM_INFINITY else limit
