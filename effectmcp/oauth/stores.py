"""Keep tokens: in memory, in files, in the system's keyring.

A store keeps one string for each server. A process that can read it can act as the user, so files
are for their owner alone.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol

from attrs import define, field

from ..errors import UsageError
from ..logs import logger_for

__all__ = ["FileTokens", "KeyringTokens", "MemoryTokens", "TokenStore"]


logger = logger_for("effectmcp.oauth")


class TokenStore(Protocol):
    """Interface of stores. Its methods may block; each is called in a thread."""

    def load(self, server: str) -> str | None:
        """Return what is kept for a server; `None` for nothing."""
        ...

    def save(self, server: str, text: str | None) -> None:
        """Keep a string for a server, or nothing."""
        ...

    def try_lock(self, server: str) -> bool:
        """Return whether this process may log in now; then it calls `unlock`."""
        ...

    def unlock(self, server: str) -> None:
        """Let other processes log in, which then find the tokens."""
        ...


@define(eq=False)
class MemoryTokens:
    """Keeps tokens as long as the process."""

    _kept: dict[str, str] = field(factory=dict, repr=False)
    _locked: dict[str, object] = field(factory=dict)

    def load(self, server: str) -> str | None:
        """Return what is kept for a server."""
        return self._kept.get(server)

    def save(self, server: str, text: str | None) -> None:
        """Keep a string for a server, or nothing."""
        if text is None:
            self._kept.pop(server, None)
        else:
            self._kept[server] = text

    def try_lock(self, server: str) -> bool:
        """Return whether no other channel logs in to this server."""
        # One operation of a dict decides between threads.
        mine = object()
        return self._locked.setdefault(server, mine) is mine

    def unlock(self, server: str) -> None:
        """Let other channels log in."""
        self._locked.pop(server, None)


class FileTokens:
    """Keeps tokens in a folder, in a file for each server, which only its owner reads.

    Args:
        folder: The folder, which is made if needed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._locks: dict[str, IO[Any]] = {}

    def __repr__(self) -> str:
        return f"FileTokens({str(self._folder)!r})"

    def _place(self, server: str, ending: str) -> Path:
        name = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{name[:32]}.{ending}"

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise UsageError(
                f"tokens cannot be kept in {self._folder}: {exc}"
            ) from None
        if os.name == "posix" and self._folder.stat().st_mode & 0o022:
            raise UsageError(
                f"others can write to {self._folder}, and change the tokens: chmod 700 it"
            )

    def load(self, server: str) -> str | None:
        """Return what is kept for a server.

        Raises:
            UsageError: If others may read the file, or it cannot be read.
        """
        place = self._place(server, "json")
        try:
            with place.open(encoding="utf-8") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                    raise UsageError(
                        f"{place} can be read by others: chmod 600 it, or delete it and"
                        " log in again"
                    )
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"the tokens in {place} cannot be read: {exc}") from None

    def save(self, server: str, text: str | None) -> None:
        """Keep a string for a server, or nothing; a crash leaves the old text or the new.

        Raises:
            UsageError: If the file cannot be written.
        """
        place = self._place(server, "json")
        if text is not None:
            self._make_folder()
        try:
            if text is None:
                place.unlink(missing_ok=True)
                return
            # Such a file is made for its owner alone.
            handle, name = tempfile.mkstemp(prefix=".new-", dir=self._folder)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, place)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(name)
                raise
        except OSError as exc:
            raise UsageError(f"tokens cannot be kept in {place}: {exc}") from None

    def try_lock(self, server: str) -> bool:
        """Return whether no other process logs in to this server.

        Raises:
            UsageError: If the file cannot be made.
        """
        self._make_folder()
        place = self._place(server, "lock")
        try:
            # For its owner alone: another user who can open it could hold the lock.
            file = open(os.open(place, os.O_RDWR | os.O_CREAT, 0o600), "a")
        except OSError as exc:
            raise UsageError(f"{place} cannot be locked: {exc}") from None
        if not _lock(file):
            file.close()
            return False
        self._locks[server] = file
        return True

    def unlock(self, server: str) -> None:
        """Let other processes log in."""
        file = self._locks.pop(server, None)
        if file is not None:
            file.close()


def _lock(file: IO[Any]) -> bool:
    if sys.platform == "win32":
        return True  # two processes may both log in
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:  # such as a network's file system: no locks, as above
        logger.info("two processes may both log in: %s", exc)
    return True


#: The name of this library in the system's keyring.
_SERVICE: Final = "effectmcp"


class KeyringTokens:
    """Keeps tokens in the system's keyring; needs `pip install effectmcp[keyring]`.

    Args:
        service: The name under which the keyring shows them.
    """

    def __init__(self, service: str = _SERVICE) -> None:
        try:
            import keyring
        except ModuleNotFoundError:
            raise UsageError(
                "KeyringTokens needs keyring: pip install 'effectmcp[keyring]'"
            ) from None
        self._keyring: Any = keyring
        self._service = service

    def load(self, server: str) -> str | None:
        """Return what is kept for a server.

        Raises:
            UsageError: If the system has no keyring, or it is locked.
        """
        text: str | None = self._do("get_password", server)
        return text

    def save(self, server: str, text: str | None) -> None:
        """Keep a string for a server, or nothing.

        Raises:
            UsageError: If the system has no keyring, or it is locked.
        """
        if text is not None:
            self._do("set_password", server, text)
        elif self.load(server) is not None:
            self._do("delete_password", server)

    def _do(self, what: str, *arguments: str) -> Any:
        try:
            return getattr(self._keyring, what)(self._service, *arguments)
        except Exception as exc:  # each system has its own
            raise UsageError(f"the system's keyring cannot be used: {exc}") from None

    def try_lock(self, server: str) -> bool:
        """Return true: a keyring has no locks."""
        return True

    def unlock(self, server: str) -> None:
        """Do nothing."""
