"""Identities of callers, and the authenticators that find them. No I/O.

    Server("shop", auth=JWTAuth(...))        objects of `effectmcp.auth`
    Server("shop", auth=find_user)           a function of the headers, perhaps async

An authenticator answers at once, or returns something to wait for: an awaitable, or a
generator of HTTP requests, which the transport plays (`effectmcp.fetching`). It fails
closed: an unknown caller gets 401, and the reason is only logged.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import quote

from attrs import field, frozen

from ..canonical import JSON
from ..errors import EffectMCPError, UsageError
from ..protocol.authorization import challenge

if TYPE_CHECKING:
    from ..fetching.requests import Fetch, Fetched

__all__ = [
    "ANONYMOUS",
    "Anonymous",
    "Authenticator",
    "CredentialsError",
    "Found",
    "Gate",
    "Identity",
    "Presented",
    "checked_scopes",
    "identity_of",
    "is_scope",
    "seconds_of_stream",
]

_NOTHING: Final[Mapping[str, JSON]] = MappingProxyType({})


def checked_scopes(of: str, scopes: object) -> frozenset[str]:
    """Return scopes as a set.

    Raises:
        UsageError: If one is not a scope (RFC 6749, section 3.3).
    """
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise UsageError(f"{of}: give a list of scopes, such as {{'orders:write'}}")
    found = frozenset(scopes)
    for one in found:
        if not is_scope(one):
            raise UsageError(f"{of}: {one!r} is not a scope; write it without spaces")
    return found


def is_scope(text: object) -> bool:
    """Return whether a string is one scope (RFC 6749, section 3.3)."""
    return (
        isinstance(text, str)
        and text != ""
        and all("!" <= one <= "~" and one not in '"\\' for one in text)
    )


def _scopes(scopes: Iterable[str]) -> frozenset[str]:
    return checked_scopes("Identity(scopes=...)", scopes)


def _frozen(claims: Mapping[str, JSON] | None) -> Mapping[str, JSON]:
    return _NOTHING if claims is None else MappingProxyType(dict(claims))


def _check_part(of: Identity, attribute: Any, value: Any) -> None:
    if value is None and attribute.name != "subject":
        return
    if not isinstance(value, str) or not value or not _is_unicode(value):
        raise UsageError(f"Identity({attribute.name}={value!r}): give a text")


def _check_time(of: Identity, attribute: Any, value: Any) -> None:
    try:
        is_time = value is None or (
            type(value) in (int, float) and math.isfinite(value)
        )
    except OverflowError:
        is_time = False  # an integer of 400 digits
    if not is_time:
        raise UsageError(
            f"Identity(expires={value!r:.100}): give seconds since 1970, or None"
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False  # half of a surrogate pair, which JSON can spell
    return True


@frozen(kw_only=True)
class Identity:
    """A caller: the user, or the program, that an authenticator found.

    Attributes:
        subject: The user's id at the issuer.
        issuer: Who vouches for it, such as the URL of an authorization server.
        tenant: The organization in whose name it calls, if the server has several.
        scopes: What the caller may do.
        claims: All claims about the caller, for `visible=`.
        shown_claims: The claims that a handler may read with `Caller()`, which records them.
        expires: When it has to be found again, in seconds since 1970; `None`: never.
        principal: The issuer, the subject and the tenant as one string: states, sessions
            and tasks are bound to it.
    """

    subject: str = field(validator=_check_part)
    issuer: str | None = field(default=None, validator=_check_part)
    tenant: str | None = field(default=None, validator=_check_part)
    scopes: frozenset[str] = field(default=frozenset(), converter=_scopes)
    claims: Mapping[str, JSON] = field(
        default=None, converter=_frozen, eq=False, repr=False
    )
    shown_claims: Mapping[str, JSON] = field(
        default=None, converter=_frozen, eq=False, repr=False
    )
    expires: float | None = field(default=None, eq=False, validator=_check_time)
    principal: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        is_name = self.issuer is None and self.tenant is None
        if is_name and not _SPELLED.match(self.subject):
            principal = self.subject  # as hosts and authors give it
        else:
            parts = [] if is_name else [self.issuer or ""]
            parts += [self.subject]
            parts += [] if self.tenant is None else [self.tenant]
            # No other parts spell the same text.
            principal = " ".join(quote(one, safe=_SAFE) for one in parts)
        object.__setattr__(self, "principal", principal)


#: A name that could be taken for an issuer and a subject.
_SPELLED: Final = re.compile(r"[^ ]*:[^ ]* | [^ ]+ ")

#: Characters of URLs and names that stay as they are: anything but spaces and percents.
_SAFE: Final = "!#$&'()*+,-./:;=?@[]_|~"


class Anonymous(Enum):
    """The type of `ANONYMOUS`; no name of a user is equal to it."""

    ANONYMOUS = "anonymous"


#: What an authenticator returns to let a client in without a name.
ANONYMOUS: Final = Anonymous.ANONYMOUS


@frozen(kw_only=True)
class Presented:
    """The credentials of a request, in its headers.

    Attributes:
        method: The HTTP method.
        headers: The headers, by lower-cased name.
        address: The client's address, for its share of what a check may cost; `None` if
            unknown.
    """

    method: str
    headers: Mapping[str, str] = field(repr=False)
    address: str | None = None


class CredentialsError(EffectMCPError):
    """Raised by an authenticator that does not accept what a request presents.

    Clients get status 401 and the error code, and nothing else: a client that
    tries tokens must not learn the reason, which is logged.

    Attributes:
        reason: What did not fit, for the log.
        error: The code for the client (RFC 6750, section 3.1; RFC 9449, section 7.1);
            `None` if the request presented nothing.
        status: The status: 401; 403 if a scope is missing; 503 if the authenticator
            cannot say now.
        scopes: The scopes that every request needs.

    Raises:
        UsageError: If the status is another one.
    """

    def __init__(
        self,
        reason: str,
        *,
        error: str | None = "invalid_token",
        status: int = 401,
        scopes: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(reason)
        if status not in (401, 403, 503):
            raise UsageError(
                f"CredentialsError(status={status!r}): give 401, 403 or 503"
            )
        self.reason = reason
        self.error = error
        self.status = status
        self.scopes = scopes


#: What an authenticator finds: an identity; the name of a user, without scopes; or
#: `ANONYMOUS`. `None` refuses.
Found: TypeAlias = Identity | str | Anonymous | None


class Authenticator(Protocol):
    """Interface of the objects of `effectmcp.auth`; write one for another scheme.

    An authenticator that cannot tell its own tokens from others has
    `takes_every_token = True`, too: in a list, the others come before it.

    Attributes:
        resource: The URL of the server, as tokens name it; `None` without OAuth.
    """

    @property
    def resource(self) -> str | None: ...

    def identify(
        self, presented: Presented
    ) -> Found | Awaitable[Found] | Generator[Fetch, Fetched, Found]:
        """Return who sends a request, or what finds it.

        Raises:
            CredentialsError: If this authenticator does not accept it.
        """

    def handles(self, presented: Presented) -> bool:
        """Return whether a request presents what this authenticator can judge."""
        ...

    def challenges(
        self, error: str | None, scopes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the values of `WWW-Authenticate` for a refusal.

        Args:
            error: The error code; `None` if the request presented nothing.
            scopes: The scopes that the request needs.
        """
        ...

    def metadata(self) -> Mapping[str, JSON] | None:
        """Return the metadata of the resource (RFC 9728); `None` without OAuth."""


class _Hook:
    """The authenticator of an author's function of the headers."""

    resource: str | None = None

    def __init__(self, function: Callable[[Mapping[str, str]], Any]) -> None:
        self._function = function

    def __str__(self) -> str:
        return getattr(self._function, "__qualname__", "a function of its own")

    def identify(self, presented: Presented) -> Any:
        # A copy: the next request of its connection may have the same headers.
        return self._function(dict(presented.headers))

    def handles(self, presented: Presented) -> bool:
        return True

    def challenges(
        self, error: str | None, scopes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        wanted = " ".join(sorted(scopes)) or None
        return (challenge("Bearer", {"error": error, "scope": wanted}),)

    def metadata(self) -> Mapping[str, JSON] | None:
        return None


#: The package of our own authenticators, which this module does not import.
_OWN: Final = f"{__name__.partition('.')[0]}.auth."

_METHODS: Final = ("identify", "handles", "challenges", "metadata")


class Gate:
    """The authenticators of a server: the first that can judge a request does.

    Args:
        auth: An authenticator, a function of the headers, or a list of them.

    Attributes:
        is_quick: Whether every check starts without code of the author, who may also
            write authenticators.

    Raises:
        UsageError: If `auth` is something else.
    """

    def __init__(self, auth: object) -> None:
        given = list(auth) if isinstance(auth, (list, tuple)) else [auth]
        self._all: list[Authenticator] = [_checked(one) for one in given]
        if not self._all:
            raise UsageError("Server(auth=[]): give an authenticator, or none at all")
        _check_order(self._all)
        _check_resources(self._all)
        self.is_quick = all(type(one).__module__.startswith(_OWN) for one in self._all)

    @property
    def resource(self) -> str | None:
        """The URL of the server, as tokens name it; `None` without OAuth."""
        found = (one.resource for one in self._all if one.resource is not None)
        return next(found, None)

    def identify(self, presented: Presented) -> Any:
        """Return who sends a request, or what finds it.

        Raises:
            CredentialsError: If it is not accepted.
        """
        if len(self._all) == 1:
            return self._all[0].identify(presented)
        for one in self._all:
            if one.handles(presented):
                return one.identify(presented)
        if presented.headers.get("authorization"):
            raise CredentialsError("no authenticator accepts these credentials")
        raise CredentialsError("the request has no credentials", error=None)

    def challenges(
        self, error: str | None, scopes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the values of `WWW-Authenticate` for a refusal.

        Where there is OAuth, nothing else is offered: clients read the first challenge.
        """
        found: dict[str, None] = {}
        for one in [one for one in self._all if one.resource] or self._all:
            found |= dict.fromkeys(one.challenges(error, scopes))
        return tuple(found)

    def metadata(self) -> Mapping[str, JSON] | None:
        """Return the metadata of the resource (RFC 9728); `None` without OAuth."""
        whole: dict[str, JSON] = {}
        for one in self._all:
            for name, value in (one.metadata() or {}).items():
                known = whole.get(name)
                if isinstance(known, list) and isinstance(value, list):
                    value = [*known, *(item for item in value if item not in known)]
                elif known is not None:
                    continue
                whole[name] = value
        return whole or None

    def __repr__(self) -> str:
        return " or ".join(map(str, self._all))


def _check_order(all_: list[Authenticator]) -> None:
    """Check that each authenticator is asked.

    Raises:
        UsageError: If one before it decides about all that it could judge.
    """
    for one, later in pairwise(all_):
        if isinstance(one, _Hook):
            raise UsageError(
                "Server(auth=[...]): a function decides about every request, so it has"
                " to be the last of the list"
            )
        takes_all = getattr(one, "takes_every_token", False)
        if takes_all and not isinstance(later, _Hook):
            name, after = type(one).__name__, type(later).__name__
            raise UsageError(
                f"Server(auth=[...]): {name} decides about every token, so {after} after"
                f" it would never be asked: put {name} after the others"
            )


def _check_resources(all_: list[Authenticator]) -> None:
    """Check that tokens name the server by one URL.

    Raises:
        UsageError: If they name it by two: its metadata has room for one.
    """
    found = sorted({one.resource for one in all_ if one.resource is not None})
    if len(found) > 1:
        raise UsageError(
            f"Server(auth=[...]): its authenticators have different resource=:"
            f" {', '.join(found)}; a server has one URL"
        )


def _checked(one: object) -> Authenticator:
    # A class has the methods, but they cannot be called.
    is_class = inspect.isclass(one)
    if not is_class and all(hasattr(one, name) for name in _METHODS):
        found: Any = one
        return found  # type: ignore[no-any-return]  # its methods have been looked up
    if is_class or not callable(one):
        raise UsageError(
            f"Server(auth={one!r}): give an object of effectmcp.auth, such as JWTAuth,"
            " or a function of the headers"
        )
    return _Hook(one)


def seconds_of_stream(identity: Identity, now: float) -> float:
    """Return how long a stream of a client lasts, which then comes back.

    At least a moment: a client that opens it again at once would not stop to do so.
    """
    if identity.expires is None:
        return _RENEWED
    return max(_MOMENT, identity.expires - now)


#: Seconds after which a client without an expiry is authenticated again.
_RENEWED: Final = 600.0
_MOMENT: Final = 2.0


def identity_of(found: object) -> Identity | None:
    """Return what an authenticator found as an identity; `None`: anonymous, on purpose.

    Raises:
        CredentialsError: If it did not find a user.
        UsageError: If it found something else.
    """
    if isinstance(found, Identity):
        return found
    if found is None:
        raise CredentialsError("nobody was found", error=None)
    if found is ANONYMOUS:
        return None
    if isinstance(found, str) and found:
        return Identity(subject=found)
    raise UsageError(
        f"an authenticator returned {found!r}: return an Identity, the name of a user,"
        " ANONYMOUS, or None for 401"
    )
