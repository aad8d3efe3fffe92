"""Keys that you give out yourself, for small set-ups. Only their hashes are stored.

    ann  sha256:4f5e…  orders:read orders:write     # a line of the file: who, hash, scopes

`effectmcp keygen --api-key ann` makes a key and its line. A key is 256 random bits, so one
round of SHA-256 is enough: a key cannot be guessed. A client sends it as
`Authorization: Bearer KEY`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ..canonical import JSON
from ..errors import UsageError
from ..logs import logger_for
from ..protocol.authorization import challenge
from ..server.identity import CredentialsError, Identity, Presented, checked_scopes
from .presented import credentials

__all__ = ["APIKeys", "key_line", "make_api_key"]

logger = logger_for("effectmcp.auth")

#: By it, people and programs that look for lost secrets recognize a key.
_PREFIX: Final = "emcp_"

_LINE: Final = re.compile(r"(\S+)\s+sha256:([0-9a-f]{64})((?:\s+\S+)*)\s*")

#: A scope may have such a character; a remark begins a line, or follows a space.
_REMARK: Final = re.compile(r"(?:^|\s)#.*")

#: Seconds between two looks at a file.
_LOOK: Final = 1.0


def make_api_key() -> str:
    """Return a new key."""
    return _PREFIX + secrets.token_urlsafe(32)


def key_line(name: str, key: str, scopes: Iterable[str] = ()) -> str:
    """Return the line of the file for a key.

    Raises:
        UsageError: If the name or a scope has a space, or would begin a remark.
    """
    if not re.fullmatch(r"[^\s#]+", name) or not name.isprintable():
        raise UsageError(
            f"{name!r} cannot be the name of a key; write it without spaces, # and"
            " control characters"
        )
    found = sorted(checked_scopes("a key", scopes))
    if any(one.startswith("#") for one in found):
        raise UsageError(f"{found} cannot be scopes of a key: '#' begins a remark")
    return " ".join([name, f"sha256:{_hash(key)}", *found])


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class APIKeys:
    """Knows callers by keys.

    Args:
        source: A file of keys, which is read again when it changes; or its lines.
        clock: Returns seconds, for how often the file is looked at.

    Raises:
        UsageError: If a line is wrong, or the file cannot be read.
    """

    resource: str | None = None

    def __init__(
        self,
        source: Path | str | Iterable[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._path = Path(source) if isinstance(source, (Path, str)) else None
        self._looked = clock()
        self._stamp: Any = None
        self._is_wrong = False
        self._keys: Mapping[str, Identity] = {}
        if self._path is None:
            assert not isinstance(source, (Path, str))  # for the type checkers
            self._keys = _read("APIKeys(...)", source)
        else:
            self._load(self._path)

    def __str__(self) -> str:
        number = len(self._keys)
        return f"{number} API key{'' if number == 1 else 's'}"

    def _load(self, path: Path) -> None:
        try:
            # First, so that a change while it is read is noticed the next time.
            found = path.stat()
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
            lines = path.read_text("utf-8").splitlines()
        except FileNotFoundError as exc:
            raise _NoKeyError(f"the keys in {path} cannot be read: {exc}") from None
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"the keys in {path} cannot be read: {exc}") from None
        self._keys, self._stamp = _read(str(path), lines), stamp

    def _refresh(self) -> None:
        path, now = self._path, self._clock()
        if path is None or now - self._looked < _LOOK:
            return
        self._looked = now
        # Editors empty a file before they write it. So a fault counts if it is still there
        # when the file is looked at the next time.
        was_wrong, self._is_wrong = self._is_wrong, False
        try:
            try:
                found = path.stat()
            except FileNotFoundError as exc:
                raise _NoKeyError(str(exc)) from None
            if (found.st_mtime_ns, found.st_size, found.st_ino) != self._stamp:
                self._load(path)
                logger.info("%s was read again: %s", path, self)
        except _NoKeyError as exc:
            self._is_wrong = True
            if was_wrong:
                self._keys = {}
            logger.error("all keys are withdrawn if the file stays like this: %s", exc)
        except (OSError, UsageError) as exc:
            self._is_wrong = True
            if was_wrong:
                self._keys = _still(path, self._keys)
            logger.error(
                "no key is added, and keys that are missing are withdrawn, if the file stays"
                " like this: %s",
                exc,
            )

    def identify(self, presented: Presented) -> Identity:
        """Return the user who has the key of a request.

        Raises:
            CredentialsError: If the key is unknown.
        """
        scheme, key = credentials(presented)
        self._refresh()
        found = self._keys.get(_hash(key)) if scheme == "bearer" else None
        if found is None:
            raise CredentialsError("key: this API key is unknown")
        return found

    def handles(self, presented: Presented) -> bool:
        """Return whether a request has such a key, or any known key."""
        try:
            scheme, key = credentials(presented)
        except CredentialsError:
            return False
        if scheme != "bearer":
            return False  # a key has no owner who could prove it (DPoP)
        if key.startswith(_PREFIX):
            return True
        self._refresh()  # a key of an author may begin in another way
        return _hash(key) in self._keys

    def challenges(
        self, error: str | None, scopes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the value of `WWW-Authenticate` for a refusal."""
        wanted = " ".join(sorted(scopes)) or None
        return (challenge("Bearer", {"error": error, "scope": wanted}),)

    def metadata(self) -> Mapping[str, JSON] | None:
        """Return `None`: such keys are not from an authorization server."""
        return None


def _still(path: Path, keys: Mapping[str, Identity]) -> dict[str, Identity]:
    """Return the keys whose hashes are in a file, which has a wrong line."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return dict(keys)
    return {digest: one for digest, one in keys.items() if digest in text}


def _read(of: str, lines: Iterable[str]) -> dict[str, Identity]:
    found: dict[str, Identity] = {}
    for number, line in enumerate(lines, 1):
        text = _REMARK.sub("", line).strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{of}, line {number}: write NAME sha256:HASH and scopes, as"
                " `effectmcp keygen --api-key NAME` prints it"
            )
        name, digest, scopes = match[1], match[2], match[3].split()
        if digest in found:
            raise UsageError(f"{of}, line {number}: this key is there twice")
        of_key = checked_scopes(f"{of}, line {number}", scopes)
        found[digest] = Identity(subject=name, scopes=of_key)
    if not found:
        raise _NoKeyError(f"{of}: it has no key")
    return found


class _NoKeyError(UsageError):
    """Raised if all lines are right, and none has a key."""
