"""Which processes of this machine live: each keeps a file locked, and no time-out.

The kernel unlocks a file when its process dies, however it dies, and not before: a
process that is frozen still lives.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Holder", "check_local"]

#: File systems that several machines share, or whose locks do not work.
_REMOTE: Final = frozenset(
    "9p afs afpfs beegfs ceph cifs coda fuse.glusterfs fuse.juicefs fuse.s3fs fuse.sshfs"
    " gfs2 gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs smb smb2 smb3 smbfs virtiofs"
    " webdav".split()
)


class Holder:
    """The name and the locked file of this process, for others that share its tasks.

    Args:
        path: The file; `None` for the memory of this process.

    Attributes:
        name: Its name in rows: never used before or again.
    """

    def __init__(self, path: Path | None) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._folder = None if path is None else Path(f"{path}-holders")
        self._file = -1
        if self._folder is None:
            return
        if fcntl is None:
            raise UsageError("tasks in a file need the file locks of a Unix system")
        self._folder.mkdir(exist_ok=True)
        self._file = os.open(self._folder / self.name, os.O_RDWR | os.O_CREAT, 0o600)
        # Locked before the name is in any row.
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def is_dead(self, name: str) -> bool:
        """Return whether the holder with this name has ended."""
        assert self._folder is not None  # in memory, there are no others
        assert fcntl is not None  # checked before
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        with suppress(FileNotFoundError):
            path.unlink()
        return True

    def close(self) -> None:
        """Release the locked file, at the end of the work."""
        if self._folder is not None and self._file >= 0:
            with suppress(FileNotFoundError):
                (self._folder / self.name).unlink()
            os.close(self._file)
            self._file = -1


def check_local(path: Path) -> None:
    """Refuse a path on a network file system, where locks and SQLite are not safe.

    Raises:
        UsageError: If it is there.
    """
    kind = _file_system(path.absolute().parent)
    if kind in _REMOTE:
        raise UsageError(
            f"{path} is on a network file system ({kind}), where the locks of SQLite are"
            " not safe: put it on a disk of this machine. For tasks of several machines,"
            " use a distributed host"
        )


def _file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on; empty if that is not known."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(folder)
    best, found = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, after.split()[0]
    return found
