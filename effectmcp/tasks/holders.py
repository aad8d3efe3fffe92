"""Detect which processes live, by a file that each keeps locked, without a time-out.

The kernel unlocks a file when its process dies, however it dies, and not before: a
process that is frozen still lives.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakSet

from ..errors import UsageError

try:
    import fcntl
except ImportError:  # pragma: no cover  # Windows
    fcntl = None  # type: ignore[assignment]  # `check_local` refuses files then

__all__ = ["Holder", "check_local", "file_system"]

#: File systems that several machines share, or whose locks do not work.
_REMOTE: Final = frozenset(
    "9p afs afpfs beegfs ceph cifs coda davfs fuse.blobfuse2 fuse.ceph fuse.gcsfuse"
    " fuse.glusterfs fuse.juicefs fuse.rclone fuse.s3fs fuse.sshfs gfs2 gpfs lustre"
    " ncpfs nfs nfs4 ocfs2 orangefs smb smb2 smb3 smbfs virtiofs webdav".split()
)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Holder:
    """The name and the locked file of this process, for others that share its tasks.

    Args:
        path: The file; `None` for the memory of this process.

    Attributes:
        name: Its name in rows: never used before or again.

    Raises:
        UsageError: If its own file cannot be made or locked.
    """

    def __init__(self, path: Path | None) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(8)}"
        # All processes must use the same folder, also through a symbolic link, and after
        # a change of the working directory.
        self._folder = (
            None if path is None else Path(f"{os.path.realpath(path)}-holders")
        )
        self._file = -1
        if self._folder is None:
            return
        assert fcntl is not None  # `check_local` has checked it
        _held.add(self)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            # Locked before it has its name, or another process might take it for dead.
            new = self._folder / f".{self.name}"
            self._file = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            new.rename(self._folder / self.name)
            self._remove_dead()
        except OSError as exc:
            self.close()
            raise UsageError(f"{self._folder}: no file can be locked: {exc}") from exc

    def _remove_dead(self) -> None:
        """Remove the files of processes that died without a task."""
        assert self._folder is not None
        for one in self._folder.iterdir():
            if one.name != self.name and not one.name.startswith("."):
                with suppress(OSError):
                    self.is_dead(one.name)

    def is_dead(self, name: str) -> bool:
        """Return whether the holder with this name has ended."""
        assert self._folder is not None  # in memory, there are no others
        assert fcntl is not None  # `check_local` has checked it
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            # Without our own, another program has removed the files.
            return (self._folder / self.name).exists()
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
            self.leave()

    def leave(self) -> None:
        """Close the file; a process that was forked must, or the lock outlives its owner."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


#: The holders of this process.
_held: Final[WeakSet[Holder]] = WeakSet()


def _leave_all() -> None:
    for one in list(_held):
        one.leave()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(after_in_child=_leave_all)


def check_local(path: Path) -> None:
    """Refuse a path on a network file system, where locks and SQLite are not safe.

    Raises:
        UsageError: If the path is on such a file system, or this system has no file locks.
    """
    if fcntl is None:
        raise UsageError("tasks in a file need the file locks of a Unix system")
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:  # not Linux
        return
    kind = file_system(mounts, os.path.realpath(path.absolute().parent))
    if kind in _REMOTE:
        raise UsageError(
            f"{path} is on a network file system ({kind}), where the locks of SQLite are"
            " not safe: put it on a disk of this machine. For tasks of several machines,"
            " use a distributed host"
        )


def file_system(mounts: str, folder: str) -> str:
    """Return the kind of file system that a folder is on; empty if that is not known.

    Args:
        mounts: The content of `/proc/self/mountinfo` (proc(5)).
        folder: The folder, without symbolic links.
    """
    best, found = "", ""
    for line in mounts.split("\n"):
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or not after:
            continue
        mount = _ESCAPED.sub(lambda one: chr(int(one[1], 8)), fields[4])
        is_inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
        # The later of two on the same folder hides the other.
        if is_inside and len(mount) >= len(best):
            best, found = mount, kinds[0]
    return found
