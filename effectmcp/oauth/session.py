"""Play a login on an event loop: once for all calls that need it, and for all processes."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
from attrs import define, field, frozen

from ..errors import EffectMCPError
from ..fetching.requests import Fetch
from ..fetching.sending import Sender
from ..logs import logger_for
from .grants import LoginFlow, Redirect
from .login import AuthRefusal, Login
from .settings import CodeGrant, OAuth
from .stores import TokenStore
from .tokens import Kept, OAuthError

__all__ = ["LoginSession", "Signed"]

logger = logger_for("effectmcp.oauth")

#: Seconds until a store is asked again whether another process has logged in, and until
#: that process is given up: a little more than a user has.
_PAUSE: Final = 0.1
_LONGEST: Final = 660.0

#: Seconds until a token is renewed, if that has just failed.
_RENEWAL: Final = 5.0


@frozen
class Signed:
    """The headers of one request.

    Attributes:
        headers: The headers.
        version: The version of the tokens.
        failures: How many logins had failed when it was sent.
    """

    headers: Mapping[str, str] = field(repr=False)
    version: int
    failures: int = 0


@define(eq=False)
class _Claim:
    """A claim to the lock of a store, which is taken in a thread.

    asyncio cancels a task although its thread still runs: then the thread frees the lock.
    """

    _store: TokenStore
    _server: str
    _is_taken: bool = False
    _is_dropped: bool = False
    _guard: threading.Lock = field(factory=threading.Lock)

    def take(self) -> bool:
        """Return whether the lock is taken."""
        is_taken = self._store.try_lock(self._server)
        with self._guard:
            self._is_taken = is_taken
            if is_taken and self._is_dropped:
                self._store.unlock(self._server)
            return is_taken

    def drop(self) -> None:
        """Free the lock, now or when its thread has it."""
        with self._guard:
            self._is_dropped = True
            if self._is_taken:
                self._store.unlock(self._server)


class LoginSession:
    """The login of one channel.

    Args:
        settings: Who the client is.
        url: The URL of the server.
        pausing: Returns a context in which the deadlines of a call do not run: it is the
            user who takes the time.
    """

    def __init__(
        self,
        settings: OAuth,
        url: str,
        *,
        pausing: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._settings = settings
        # A program logs in by itself: no user takes time.
        has_user = isinstance(settings.grant, CodeGrant)
        self._pausing = pausing if has_user else nullcontext
        self._no_renewal_until = -math.inf
        self._url = url
        self._place = settings.place(url)
        self._login = Login(settings, url)
        self._send = Sender()
        self._lock = anyio.Lock()
        self._is_loaded = False
        #: Changes with the tokens.
        self._version = 0
        #: How many logins have failed, and the last error.
        self._failures = 0
        self._error: EffectMCPError | None = None

    async def sign(self, method: str) -> Signed:
        """Return the headers of a request; a token that has expired is renewed first."""
        if not self._is_loaded:
            async with self._turn():
                if not self._is_loaded:
                    await self._load()
                    self._is_loaded = True
        if self._is_due():
            async with self._turn():
                if self._is_due():
                    await self._alone(self._login.renew())
                    if self._login.is_old:
                        # The old token may be accepted still; do not try in each call.
                        self._no_renewal_until = anyio.current_time() + _RENEWAL
        return Signed(self._login.sign(method), self._version, self._failures)

    def _is_due(self) -> bool:
        return self._login.is_old and anyio.current_time() >= self._no_renewal_until

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        with self._pausing():  # another call may wait for the user
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def read(self, status: int, headers: Mapping[str, str]) -> AuthRefusal | None:
        """Return how a response refuses a request; `None` if it does not."""
        return self._login.read(status, headers)

    @property
    def attempts(self) -> int:
        """The number of logins that one request may lead to."""
        return self._settings.attempts

    async def recover(self, refused: AuthRefusal, signed: Signed, number: int) -> None:
        """Log in, unless another call has done it meanwhile.

        Args:
            refused: The refusal.
            signed: The headers that were refused.
            number: How often the request has led to a login before.

        Raises:
            EffectMCPError: If there is no token: `OAuthError`, `FetchError`, `UsageError`.
        """
        async with self._turn():
            if self._version != signed.version:
                return
            if self._error is not None and self._failures != signed.failures:
                # The user has declined since the request was sent: do not ask again.
                raise self._error
            flow = self._login.recover(refused, is_first=number == 0)
            try:
                await self._alone(flow)
            except EffectMCPError as exc:
                self._failures += 1
                self._error = exc
                raise

    async def _alone(self, flow: LoginFlow[None]) -> None:
        """Play a flow while no other process does; take the tokens of a process that did."""
        store, before = self._settings.store, self._login.kept.tokens
        claim = _Claim(store, self._place)
        try:
            is_told, began = False, anyio.current_time()
            # No event reaches this process from another one.
            while not await anyio.to_thread.run_sync(claim.take):
                if not is_told:
                    is_told = True
                    logger.warning("waiting for another login at %s", self._url)
                with self._pausing():
                    await anyio.sleep(_PAUSE)
                if anyio.current_time() - began > _LONGEST:
                    raise OAuthError(
                        f"another process has been logging in for {_LONGEST:g} s"
                    )
        except BaseException:
            claim.drop()
            flow.close()
            raise
        try:
            await self._load()
            if self._login.kept.tokens in (None, before):
                try:
                    await self._play(flow)
                finally:
                    # Also after a failure: a registration is worth keeping.
                    with anyio.CancelScope(shield=True):
                        await self._save()
        finally:
            flow.close()
            if self._login.kept.tokens != before:
                self._version += 1
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(store.unlock, self._place)

    async def _play(self, flow: LoginFlow[None]) -> None:
        visitor, is_open = self._settings.visitor, False
        answer: Any = None
        try:
            request = next(flow)
            while True:
                try:
                    if isinstance(request, Fetch):
                        answer = await self._send(request)
                    else:
                        assert visitor is not None  # `OAuth` has checked it
                        with self._pausing():
                            if isinstance(request, Redirect):
                                answer = await visitor.redirect_uri(request.preferred)
                                is_open = True
                            else:
                                answer = await visitor.visit(request.url, request.state)
                except EffectMCPError as exc:
                    request = flow.throw(exc)
                else:
                    request = flow.send(answer)
        except StopIteration:
            pass
        finally:
            # It may wait for the login of another session, which must not be closed.
            if visitor is not None and is_open:
                with anyio.CancelScope(shield=True):
                    await visitor.close()

    async def _load(self) -> None:
        load = partial(self._settings.store.load, self._place)
        text = await anyio.to_thread.run_sync(load)
        try:
            kept = Kept.from_json(None if text is None else json.loads(text))
        except (ValueError, RecursionError):
            kept = Kept()
        self._login.kept = kept

    async def _save(self) -> None:
        text = json.dumps(self._login.kept.to_json())
        await anyio.to_thread.run_sync(self._settings.store.save, self._place, text)
