"""The revisions of MCP, the features of each, and the revision of a message.

There is one row per revision. Features that are not in the rows are the same for all,
so a new revision needs a row, and code for what really differs.

Only `revision_of` decides which row applies to a request:

    `_meta` names a revision            that one; a client of a session may repeat its own
    the header MCP-Protocol-Version     that one, or the session's
    a session                           the session's
    `initialize`                        a handshake
    nothing                             over HTTP the oldest, which had no such header
                                        (2025-06-18, Protocol Version Header); in a pipe
                                        the newest, whose check reports errors
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
    """One revision, and its features.

    Attributes:
        version: The name of the revision.
        has_handshake: Whether a client uses the `initialize` handshake and has a session;
            otherwise each request describes its client in `_meta`.
        retries: Whether questions are the result of a call, which the client repeats
            with the answers; otherwise they are sent while the call runs.
        is_draft: Whether the revision was never released. Servers speak it only if they
            are configured to.
        elicits: Whether a user can be asked at all.
        links: Whether a user can be sent to a page; without this, elicitation has no
            `mode`.
        multiple: Whether a form may have fields with several choices, and defaults.
        tools: Whether sampling requests may offer tools to the model.
        icons: Whether features have icons.
        titles: Whether features have titles and `_meta`, results have structured
            content, and content may link to resources.
        primes: Whether a stream starts with an event from which it can be resumed, and
            the server may close it early.
        tasks: Whether a client may ask that its call becomes a task.
    """

    version: str
    has_handshake: bool = True
    retries: bool = False
    is_draft: bool = False
    elicits: bool = True
    links: bool = True
    multiple: bool = True
    tools: bool = True
    icons: bool = True
    titles: bool = True
    primes: bool = True
    tasks: bool = True


#: All revisions by version, the newest first.
REVISIONS: Final[Mapping[str, Revision]] = {
    one.version: one
    for one in (
        Revision(version="2026-07-28", has_handshake=False, retries=True, tasks=False),
        Revision(version="2026-06-XX", retries=True, is_draft=True),
        Revision(version="2025-11-25"),
        Revision(
            version="2025-06-18",
            links=False,
            multiple=False,
            tools=False,
            icons=False,
            primes=False,
            tasks=False,
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
            tasks=False,
        ),
    )
}

#: The newest revision. It also applies to requests that name an unknown revision.
NEWEST: Final = next(iter(REVISIONS.values()))

#: The drafts of 2026-07-28.
DRAFT: Final = REVISIONS["2026-06-XX"]

#: The released revisions with an `initialize` handshake, the newest first.
HANDSHAKES: Final[Mapping[str, Revision]] = {
    version: one
    for version, one in REVISIONS.items()
    if one.has_handshake and not one.is_draft
}

#: The versions of the revisions without a handshake, the newest first.
VERSIONS: Final = tuple(
    version for version, one in REVISIONS.items() if not one.has_handshake
)

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

    A request that names an unsupported revision belongs to the newest, whose checks
    report the error.

    Args:
        method: The method of the request.
        params: Its parameters.
        headers: The HTTP headers, by lower-cased name; `None` without HTTP.
        session: The revision of its session; `None` without a session.
        drafts: Whether this server speaks the drafts.
    """
    meta = params.get("_meta")
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        if session is not None and meta[PROTOCOL_VERSION] == session.version:
            return session
        return NEWEST
    named = None if headers is None else headers.get(_HEADER)
    if named is not None:
        row = REVISIONS.get(named, NEWEST)
        if not row.has_handshake or (row.is_draft and not drafts):
            return NEWEST
        return session or row
    if session is not None:
        return session
    if method == "initialize":
        return _OLDEST  # any revision with a handshake; `negotiate` finds the right one
    # For a client of the newest revision that forgot one header, the error must name
    # that header.
    return NEWEST if headers is None or "mcp-method" in headers else _OLDEST


def names_session(headers: Mapping[str, str]) -> bool:
    """Return whether a session id has a meaning in a request with these headers.

    It has none in 2026-07-28. A request that names no revision belongs to a revision
    with a handshake, so there it has one.
    """
    row = REVISIONS.get(headers.get(_HEADER, _OLDEST.version))
    return row is not None and row.has_handshake
