"""The public keys of an issuer: fetched when they are first needed, cached, rotated.

    state of the keys      a token with a known key       a token with an unknown key
    ---------------------  -----------------------------  -----------------------------
    none yet               fetch, then look again         fetch, then look again
    fresh                  use it                         fetch, if the last try is long
                                                          enough ago; else refuse
    old                    use it; one request fetches    the same
    being fetched          use it                         wait for them, then look again
    too old, no answer     every request gets status 503

So no number of bad tokens causes more than one fetch in `pause` seconds, and an issuer that
cannot be reached locks no client out for `stale` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import islice
from typing import Any, Final

from attrs import field, frozen

from ..canonical import JSON
from ..fetching.issuers import metadata_of
from ..fetching.requests import Fetch, Fetched, FetchError, json_of
from ..logs import logger_for
from ..server.identity import CredentialsError
from .signatures import allows, public_key

__all__ = ["KeySet"]

logger = logger_for("effectmcp.auth")

#: Keys of an issuer that are read.
_MOST_KEYS: Final = 100

#: Keys that a token without a key id is tried with.
_MOST_TRIED: Final = 4

#: Seconds between two tries, as long as there are no keys.
_SOON: Final = 5.0

#: Seconds until the next try, if one was cancelled.
_AGAIN: Final = 1.0


@frozen
class _Key:
    """A key as the issuer writes it, and as signatures are checked with it."""

    jwk: dict[str, JSON]
    public: Any = field(eq=False)


class KeySet:
    """The public keys of one issuer.

    Args:
        issuer: Its URL.
        url: The URL of its keys; `None` if its metadata names it.
        clock: Returns the seconds since 1970.
        fresh: Seconds until the keys are fetched again.
        stale: Seconds for which they are used if that fails.
        pause: Seconds between two tries.

    Attributes:
        version: Changes whenever the keys do.
    """

    def __init__(
        self,
        issuer: str,
        url: str | None,
        *,
        clock: Callable[[], float],
        fresh: float,
        stale: float,
        pause: float,
    ) -> None:
        self._issuer = issuer
        self._given_url = self._url = url
        self._clock = clock
        self._fresh, self._stale, self._pause = fresh, stale, pause
        self._keys: tuple[_Key, ...] = ()
        self._fetched: float | None = None
        self._tried: float | None = None
        self._wait = pause
        self._is_fetching = False
        self._ended = 0
        self.version = 0

    def find(
        self, id_: str | None, algorithm: str
    ) -> Generator[Fetch, Fetched, list[Any]]:
        """Return the keys that may have signed a token: none, if its key is unknown.

        Raises:
            CredentialsError: If there are no keys at all.
        """
        found = self._look(id_, algorithm)
        if found:
            if self._is_due() and self._may_try():
                yield from self._try()
                found = self._look(id_, algorithm)
        elif self._is_fetching or self._may_try():
            yield from self._try()
            found = self._look(id_, algorithm)
        if not self._is_usable():
            raise CredentialsError(
                f"key: {self._issuer} has not told its keys",
                error=None,
                status=503,
            )
        return found

    def is_current(self, version: int) -> bool:
        """Return whether what the keys of a version have checked is still checked.

        It is not if a fetch is due: else tokens that are known would keep a key that
        the issuer has withdrawn.
        """
        return (
            version == self.version
            and self._is_usable()
            and not (self._is_due() and self._may_try())
        )

    def _look(self, id_: str | None, algorithm: str) -> list[Any]:
        if not self._is_usable():
            return []
        found = (
            key.public
            for key in self._keys
            if (id_ is None or key.jwk.get("kid") == id_) and allows(key.jwk, algorithm)
        )
        return list(islice(found, _MOST_TRIED))

    def _is_usable(self) -> bool:
        return not self._is_past(self._fetched, self._fresh + self._stale)

    def _is_due(self) -> bool:
        return self._is_past(self._fetched, self._fresh)

    def _may_try(self) -> bool:
        return not self._is_fetching and self._is_past(self._tried, self._wait)

    def _is_past(self, began: float | None, seconds: float) -> bool:
        """Return whether more seconds have passed; also if the clock was set back."""
        return began is None or not 0 <= self._clock() - began < seconds

    def _try(self) -> Generator[Fetch, Fetched, None]:
        """Fetch the keys; if that fails, keep the present ones."""
        is_first, ended = not self._is_fetching, self._ended
        if is_first:
            self._is_fetching, self._tried = True, self._clock()
            # Without any keys all clients wait, so the next try is soon.
            self._wait = self._pause if self._is_usable() else min(self._pause, _SOON)
        try:
            url = self._url
            if url is None:
                metadata = yield from metadata_of(self._issuer, near=self._issuer)
                named = metadata.get("jwks_uri")
                if not isinstance(named, str):
                    raise FetchError(self._issuer, "its metadata names no keys")
                url = self._url = named
            response = yield Fetch(url=url, near=self._issuer, is_shared=True)
            # Only one reads them: thousands may have waited for this response. That is
            # the first one, unless its request was cancelled.
            if ended == self._ended:
                self._ended += 1
                self._read(url, response)
        except FetchError as exc:
            self._url = self._given_url  # they may have moved
            if is_first:
                self._ended += 1
                logger.warning("the keys of %s were not read: %s", self._issuer, exc)
        except GeneratorExit:
            if is_first:
                # The client has disconnected, and the issuer may be well.
                self._wait = min(self._wait, _AGAIN)
            raise
        finally:
            if is_first:
                self._is_fetching = False

    def _read(self, url: str, response: Fetched) -> None:
        if response.status != 200:
            raise FetchError(url, f"it answered with the status {response.status}")
        keys = _usable(url, json_of(url, response))
        self._fetched, self._wait = self._clock(), self._pause
        if keys != self._keys:
            if self._keys:
                logger.info("%s has new keys", self._issuer)
            self._keys = keys
            self.version += 1


def _usable(url: str, document: dict[str, JSON]) -> tuple[_Key, ...]:
    """Return the keys in a document that can be used.

    Raises:
        FetchError: If none is left.
    """
    listed = document.get("keys")
    found = []
    for one in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        public = public_key(one)
        if public is not None:
            found.append(_Key(one, public))
    if not found:
        raise FetchError(url, "it has no keys that sign tokens")
    return tuple(found)
