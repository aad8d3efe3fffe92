"""Which revisions there are, what each has, and to which of them a message belongs.

One row a revision. What is not in its row is the same for all, so that a revision of
next year is a row and what really differs.

`revision_of` is the one place that says which row holds for a request:

    `_meta` names a revision            that one; a client of a session may repeat its own
    the header MCP-Protocol-Version     that one, or the session's
    a session                           the session's
    `initialize`                        a handshake
    nothing                             over HTTP the oldest, which had no such header
                                        (2025-06-18, Protocol Version Header); in a pipe
                                        the newest, whose check says what is missing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from ..canonical import JSON

__all__ = [
    "DRAFT",
    "HANDSHAKES",
    "NEWEST",
    "PROTOCOL_VERSION",
    "REVISIONS",
    "VERSIONS",
    "Revision",
    "names_session",
    "negotiate",
    "revision_of",
]

#: The key in `_meta` under which a request names its revision.
PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"

_HEADER: Final = "mcp-protocol-version"


@frozen(kw_only=True)
class Revision:
    """What one revision has.

    Attributes:
        version: Its name.
        shakes: Whether a client shakes hands and has a session; otherwise each request
            says in its `_meta` who asks.
        retries: Whether questions are the result of a call, which its client repeats;
            otherwise they go out while the call runs.
        is_draft: Whether it was never released. Servers speak it only if told to.
        elicits: Whether a user can be asked at all.
        links: Whether a user can be sent to a page; modes came with that.
        multiple: Whether a form may have fields of several choices, and defaults.
        tools: Whether a model that is asked may use tools.
        icons: Whether features have icons.
        titles: Whether they have titles and `_meta`, results structured content, and
            content links to resources.
        primes: Whether a stream begins with an event to go on from, and may be left.
    """

    version: str
    shakes: bool = True
    retries: bool = False
    is_draft: bool = False
    elicits: bool = True
    links: bool = True
    multiple: bool = True
    tools: bool = True
    icons: bool = True
    titles: bool = True
    primes: bool = True


#: The newest first.
REVISIONS: Final[Mapping[str, Revision]] = {
    one.version: one
    for one in (
        Revision(version="2026-07-28", shakes=False, retries=True),
        Revision(version="2026-06-XX", retries=True, is_draft=True),
        Revision(version="2025-11-25"),
        Revision(
            version="2025-06-18",
            links=False,
            multiple=False,
            tools=False,
            icons=False,
            primes=False,
        ),
        Revision(
            version="2025-03-26",
            elicits=False,
            links=False,
            multiple=False,
            tools=False,
            icons=False,
            titles=False,
            primes=False,
        ),
    )
}

#: The one that all others are answered in the words of, unless they say otherwise.
NEWEST: Final = next(iter(REVISIONS.values()))

#: The drafts of what became 2026-07-28.
DRAFT: Final = REVISIONS["2026-06-XX"]

#: Those that were released and shake hands, the newest first.
HANDSHAKES: Final[Mapping[str, Revision]] = {
    version: one
    for version, one in REVISIONS.items()
    if one.shakes and not one.is_draft
}

#: The versions of those without a handshake, the newest first.
VERSIONS: Final = tuple(version for version, one in REVISIONS.items() if not one.shakes)

_OLDEST: Final = list(REVISIONS.values())[-1]


def negotiate(version: str, *, drafts: bool = False) -> Revision:
    """Return the revision to speak with a client whose handshake names `version`."""
    if drafts and version == DRAFT.version:
        return DRAFT
    return HANDSHAKES.get(version) or next(iter(HANDSHAKES.values()))


def revision_of(
    method: str,
    params: Mapping[str, JSON],
    headers: Mapping[str, str] | None,
    session: Revision | None,
    *,
    drafts: bool = False,
) -> Revision:
    """Return the revision to which a request belongs.

    One that names a revision which is not spoken here belongs to the newest, whose
    checks say so.

    Args:
        method: What is asked.
        params: Its parameters.
        headers: Those of HTTP, by lower-cased name, if there are any.
        session: What its session speaks, if it has one.
        drafts: Whether drafts are spoken here.
    """
    meta = params.get("_meta")
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        if session is not None and meta[PROTOCOL_VERSION] == session.version:
            return session
        return NEWEST
    named = None if headers is None else headers.get(_HEADER)
    if named is not None:
        row = REVISIONS.get(named, NEWEST)
        if not row.shakes or (row.is_draft and not drafts):
            return NEWEST
        return session or row
    if session is not None:
        return session
    if method == "initialize":
        return _OLDEST  # whichever one it will be: a handshake
    # A client of the newest that forgot one header is to hear of that one.
    return NEWEST if headers is None or "mcp-method" in headers else _OLDEST


def names_session(headers: Mapping[str, str]) -> bool:
    """Whether a session id means anything in a request with these headers.

    In 2026-07-28 it means nothing. Whoever names no revision shook hands.
    """
    row = REVISIONS.get(headers.get(_HEADER, _OLDEST.version))
    return row is not None and row.shakes
