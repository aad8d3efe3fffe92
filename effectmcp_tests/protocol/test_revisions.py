"""To which revision a request belongs, and what each has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.protocol.methods import methods_of
from effectmcp.protocol.revisions import (
    DRAFT,
    HANDSHAKES,
    NEWEST,
    PROTOCOL_VERSION,
    REVISIONS,
    VERSIONS,
    names_session,
    negotiate,
    revision_of,
)

MODERN, OLDEST = "2026-07-28", "2025-03-26"
DRAFTS = "2026-06-XX"


def belongs(
    method: str = "tools/call",
    *,
    meta: str | None = None,
    header: str | None = None,
    mirrored: bool = False,
    session: str | None = None,
    drafts: bool = False,
    pipe: bool = False,
) -> str:
    """The version to which such a request belongs."""
    headers = {
        "mcp-protocol-version": header,
        "mcp-method": method if mirrored else None,
    }
    sent = {name: one for name, one in headers.items() if one is not None}
    params: dict[str, Any] = {} if meta is None else {"_meta": {PROTOCOL_VERSION: meta}}
    spoken = None if session is None else REVISIONS[session]
    found = revision_of(method, params, None if pipe else sent, spoken, drafts=drafts)
    return found.version


def test_rows() -> None:
    assert list(REVISIONS) == sorted(REVISIONS, reverse=True)
    assert VERSIONS == (MODERN,)
    assert (NEWEST.version, DRAFT.version) == (MODERN, DRAFTS)
    assert list(HANDSHAKES) == ["2025-11-25", "2025-06-18", OLDEST]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        ({"meta": MODERN}, MODERN),
        ({"meta": "1999-01-01"}, MODERN),  # whose checks refuse it
        ({"meta": MODERN, "header": "2025-11-25", "session": "2025-11-25"}, MODERN),
        # A client of a session may repeat what both speak.
        ({"meta": "2025-11-25", "session": "2025-11-25"}, "2025-11-25"),
        ({"meta": "2025-11-25"}, MODERN),
        ({"header": MODERN}, MODERN),
        ({"header": "1999-01-01"}, MODERN),
        ({"header": "2025-06-18"}, "2025-06-18"),
        ({"header": "2025-06-18", "session": "2025-11-25"}, "2025-11-25"),
        ({"header": DRAFTS}, MODERN),
        ({"header": DRAFTS, "drafts": True}, DRAFTS),
        ({"session": "2025-06-18"}, "2025-06-18"),
        ({"session": "2025-06-18", "pipe": True}, "2025-06-18"),
        ({}, OLDEST),
        ({"pipe": True}, MODERN),
        ({"mirrored": True}, MODERN),  # the header is missing: reported as such
    ],
)
def test_request_belongs_to_a_revision(request_: Any, version: str) -> None:
    assert belongs(**request_) == version


@pytest.mark.parametrize("pipe", [False, True])
def test_initialize_is_a_handshake(pipe: bool) -> None:
    """`mcp-remote` sends `Mcp-Method` with every request, this one included."""
    for mirrored in (False, True):
        found = belongs("initialize", mirrored=mirrored, pipe=pipe)
        assert REVISIONS[found].has_handshake
    assert belongs("initialize", meta=MODERN, pipe=pipe) == MODERN
    assert belongs("initialize", header=MODERN) == MODERN


def test_a_session_is_not_left_for_a_mirrored_header() -> None:
    assert belongs(session="2025-11-25", mirrored=True) == "2025-11-25"


NAMED = st.sampled_from([None, *REVISIONS, "1999-01-01"])


@given(
    meta=NAMED,
    header=NAMED,
    mirrored=st.booleans(),
    session=st.sampled_from([None, *(one for one in REVISIONS if one != MODERN)]),
    drafts=st.booleans(),
    pipe=st.booleans(),
    method=st.sampled_from(["initialize", "tools/call"]),
)
def test_revision_and_handshake_of_any_request(
    meta: str | None,
    header: str | None,
    mirrored: bool,
    session: str | None,
    drafts: bool,
    pipe: bool,
    method: str,
) -> None:
    found = REVISIONS[
        belongs(
            method,
            meta=meta,
            header=header,
            mirrored=mirrored,
            session=session,
            drafts=drafts,
            pipe=pipe,
        )
    ]
    # An initialized session has one revision, with any header in its messages.
    if session is not None and found.has_handshake:
        assert found.version == session
    # Drafts are only for clients that initialized with them, and for servers that
    # support them.
    if found.is_draft:
        assert drafts or session == DRAFTS
    # A request that names a revision in `_meta` or a header gets that, or an error of
    # the newest; never the revision of another handshake.
    named = [one for one in (meta, None if pipe else header) if one is not None]
    if session is None and named and found.has_handshake:
        assert found.version in named
    # An `initialize` request that names nothing, and has no session, is never refused
    # for a missing `_meta`.
    if not named and method == "initialize":
        assert found.has_handshake


def test_sessions_are_named_in_the_revisions_that_have_them() -> None:
    assert names_session({})
    for version, one in REVISIONS.items():
        assert names_session({"mcp-protocol-version": version}) is one.has_handshake
    assert not names_session({"mcp-protocol-version": "1999-01-01"})


def test_negotiation() -> None:
    for version in HANDSHAKES:
        assert negotiate(version).version == version
    for version in (MODERN, DRAFTS, "1999-01-01", ""):
        assert negotiate(version).version == "2025-11-25"
    assert negotiate(DRAFTS, drafts=True) is DRAFT


OLD_ONLY = {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
}
NEW_ONLY = {"server/discover", "subscriptions/listen", "tasks/update"}
#: Methods of some revisions: 2025-11-25 and the drafts have the experimental tasks.
OF_TASKS = {"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"}
SOME = {
    MODERN: {"tasks/get", "tasks/cancel"},
    DRAFTS: OF_TASKS | {"tasks/input_response"},
    "2025-11-25": OF_TASKS,
}
ALWAYS = {
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
}


@pytest.mark.parametrize("version", REVISIONS)
def test_methods_of_a_revision(version: str) -> None:
    found = set(methods_of(REVISIONS[version]))
    mine = NEW_ONLY if version == MODERN else OLD_ONLY
    assert found == ALWAYS | mine | SOME.get(version, set()), (
        "say since= or until= in its row, and list it in NEW_ONLY, OLD_ONLY or SOME; the"
        " methods of all revisions are in ALWAYS"
    )
