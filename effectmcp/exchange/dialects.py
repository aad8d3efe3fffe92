"""What differs between the eras once a message has found its way, and nothing else.

           asks          a client that cannot be asked    results
Modern     by retry      -32021                           say their type and server
Legacy     live          is told in words                 as its revision has them
Draft      by retry      is told in words                 `result_type`, if interim

A client that cannot be asked is docs/internals/replay.md#q4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..canonical import JSON
from ..errors import ProtocolError, ToolError, Unsupported
from ..protocol import legacy
from ..protocol.drafts import incomplete
from ..protocol.jsonrpc import INTERNAL_ERROR
from ..protocol.meta import SERVER_INFO, Meta
from ..protocol.modern import input_required, missing_capability, supporter

if TYPE_CHECKING:
    from ..engine.stops import Question
    from ..protocol.revisions import Revision
    from ..server.app import Server

__all__ = ["MODERN", "Dialect", "Draft", "Legacy", "Modern"]


class Modern:
    """2026-07-28.

    Attributes:
        era: As `Caller()` has it.
        is_live: Whether questions go out while the request runs.
    """

    era: Literal["modern", "legacy"] = "modern"
    is_live = False

    def supporter(self, meta: Meta) -> Callable[[Any], bool]:
        """Whether the client can be asked an effect, or a class of them."""
        return supporter(meta.capabilities)

    def lacking(self, what: Iterable[Any], meta: Meta) -> Exception | None:
        """What to say of a client that cannot be asked all of `what`."""
        return missing_capability(what, meta.capabilities)

    def unsupported(self, error: Unsupported, meta: Meta) -> Exception:
        """What a handler's having asked too much comes to."""
        missing = missing_capability([error.kind], meta.capabilities)
        return missing or ProtocolError(INTERNAL_ERROR, str(error))

    def interim(self, questions: Iterable[Question], state: str) -> dict[str, JSON]:
        """The fields of a result that asks."""
        return input_required(questions, state)

    def result(self, app: Server, fields: Mapping[str, JSON]) -> dict[str, JSON]:
        """A whole result."""
        meta = {SERVER_INFO: app.info, **fields.get("_meta", {})}
        return {"resultType": "complete", **fields, "_meta": meta}


MODERN = Modern()


class _Shaken:
    """A revision that shakes hands, with one client.

    Args:
        revision: The revision.
        obstacle: What keeps it from being asked at all, in words, if something does.
    """

    era: Literal["modern", "legacy"] = "legacy"

    def __init__(self, revision: Revision, obstacle: str | None = None) -> None:
        self.revision = revision
        self._obstacle = obstacle
        #: Why something was not asked last, by what it was.
        self._reasons: dict[str, str] = {}

    def supporter(self, meta: Meta) -> Callable[[Any], bool]:
        def supports(what: Any) -> bool:
            reason = self._missing(what, meta)
            if reason is not None:
                self._reasons[type(what).__name__] = reason
            return reason is None

        return supports

    def lacking(self, what: Iterable[Any], meta: Meta) -> Exception | None:
        for one in what:
            reason = self._missing(one, meta)
            if reason is not None:
                return _told(one.__name__, reason)
        return None

    def unsupported(self, error: Unsupported, meta: Meta) -> Exception:
        reason = self._reasons.get(error.kind) or self._missing(error.kind, meta)
        return _told(error.kind, reason or "it cannot show this")

    def result(self, app: Server, fields: Mapping[str, JSON]) -> dict[str, JSON]:
        return legacy.fitted(fields, self.revision)

    def _missing(self, what: Any, meta: Meta) -> str | None:
        if self._obstacle is not None:
            return self._obstacle
        return legacy.missing(what, meta.capabilities, self.revision)


class Legacy(_Shaken):
    """The released ones: questions go out live."""

    is_live = True


class Draft(_Shaken):
    """The drafts: a handshake, and questions by retry."""

    is_live = False

    def interim(self, questions: Iterable[Question], state: str) -> dict[str, JSON]:
        return incomplete(questions, state)


Dialect: TypeAlias = Modern | Legacy | Draft


def _told(kind: str, reason: str) -> ToolError:
    asks = {
        "Sample": "a model of the client's",
        "ListRoots": "the client for the user's folders",
    }.get(kind, "the user")
    return ToolError(
        f"This needs to ask {asks}, and the connected client cannot be asked: {reason}."
    )
