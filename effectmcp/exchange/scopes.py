"""Check what a caller may do, in each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingScope
from ..protocol.jsonrpc import INVALID_REQUEST
from ..server.viewers import lacks

if TYPE_CHECKING:
    from ..server.features import Feature
    from .context import Context

__all__ = ["check_scopes"]


def check_scopes(context: Context, feature: Feature) -> None:
    """Check the scopes of a feature, and of replies to its questions.

    Raises:
        MissingScope: If the sender of the request lacks one.
    """
    if lacks(feature, context.peer.scopes):
        raise MissingScope(INVALID_REQUEST, feature.scopes)
    if context.running is not None:
        context.running.needs = feature.scopes
