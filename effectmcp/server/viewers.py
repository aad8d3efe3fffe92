"""Hide tools, prompts and resources from some users.

A predicate is called for each listed feature and each call, so it must be quick: look up
what takes long when the user is authenticated. If it raises, the feature is hidden.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import frozen

from ..canonical import JSON
from ..logs import logger_for

if TYPE_CHECKING:
    from .app import Server
    from .changes import Change
    from .features import Feature
    from .identity import Identity

__all__ = [
    "Viewer",
    "ViewerFilter",
    "ViewerTest",
    "exists_for",
    "lacks",
    "may_hear",
    "may_see",
]

logger = logger_for("effectmcp.server")


@frozen(kw_only=True)
class Viewer:
    """The user of a list or a call.

    Attributes:
        principal: The authenticated user, if the transport knows one.
        identity: What else is known about this user; `None` for a local or an anonymous
            client, or if only the name is known.
        scopes: What the user may do; `None` for everything.
        client: The client's name and version, in its own words: nothing proves them.
        era: Whether the client answers by retry (`"modern"`) or on a session.
        revision: The revision that the client speaks.
    """

    principal: str | None
    identity: Identity | None = None
    scopes: frozenset[str] | None = None
    client: str | None = None
    era: Literal["modern", "legacy"] = "modern"
    revision: str = ""

    @property
    def claims(self) -> Mapping[str, JSON]:
        """The claims of the user; empty, if nothing is known about the user."""
        return _NOTHING if self.identity is None else self.identity.claims


_NOTHING: Final[Mapping[str, JSON]] = MappingProxyType({})

#: `visible=` of a tool, a prompt or a resource.
ViewerTest: TypeAlias = Callable[[Viewer], object]

#: `visible=` of a server: it is asked about each feature.
ViewerFilter: TypeAlias = Callable[["Feature", Viewer], object]


def lacks(feature: Feature, scopes: frozenset[str] | None) -> bool:
    """Return whether scopes are missing that a feature needs."""
    return scopes is not None and not feature.scopes <= scopes


def may_see(app: Server, feature: Feature, viewer: Viewer) -> bool:
    """Return whether a feature exists for a viewer, who may use it."""
    return not lacks(feature, viewer.scopes) and exists_for(app, feature, viewer)


def exists_for(app: Server, feature: Feature, viewer: Viewer) -> bool:
    """Return whether a feature exists for a viewer, who may lack its scopes."""
    try:
        if feature.visible is not None and not _is_true(feature.visible(viewer)):
            return False
        return app.visible is None or _is_true(app.visible(feature, viewer))
    except Exception:
        logger.exception("visible= of %s failed: it is hidden", feature.name)
        return False


def _is_true(found: object) -> bool:
    if isinstance(found, (Awaitable, Generator)):
        raise TypeError(f"{found!r} is neither true nor false")
    return bool(found)


def may_hear(app: Server, viewer: Viewer, change: Change) -> bool:
    """Return whether a viewer may know of a change.

    It may be called in any thread that publishes one. What may be filtered is asked when
    it happens, as features come and go while a client listens.
    """
    if not app.is_filtered:
        return True
    if change.what == "resource":
        uri = change.uri or ""
        found = [app.resources.get(uri)]
        found += [one for one in app.templates.values() if one.template.match(uri)]
        known = [one for one in found if one is not None]
        # No feature has this URI: a client that subscribed to it may know that, too.
        return not known or any(may_see(app, one, viewer) for one in known)
    return change.feature is None or may_see(app, change.feature, viewer)
