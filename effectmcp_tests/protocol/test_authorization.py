"""Challenges, and the places of metadata."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.protocol.authorization import (
    Challenge,
    challenge,
    issuer_metadata_urls,
    read_challenges,
    resource_metadata_path,
    resource_metadata_url,
)

# ---- challenges ---------------------------------------------------------------------

TOKENS = st.text("abzXY09-._~!#$%&'*+^`|", min_size=1, max_size=8)
#: All that a quoted text can carry, with what has a meaning in a header.
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)) | st.text(
    '",=\\ aB', max_size=8
)
CHALLENGES = st.tuples(TOKENS, st.dictionaries(TOKENS.map(str.lower), VALUES))


@given(st.lists(CHALLENGES, max_size=3))
@example([("Bearer", {"a": 'b", c="d'}), ("DPoP", {})])
@example([("Bearer", {"a": "\\"}), ("Basic", {"a": '\\"'})])
def test_challenges_are_read_as_they_were_written(given: Any) -> None:
    """A value may contain quotes, or look like another challenge."""
    header = ", ".join(challenge(scheme, parameters) for scheme, parameters in given)
    assert read_challenges(header) == tuple(
        Challenge(scheme.lower(), parameters) for scheme, parameters in given
    )


@given(VALUES | st.text())
@example("\r\nSet-Cookie: a=b")
@example("\x7f\u20ac")
def test_challenge_is_one_line_of_ascii(text: str) -> None:
    """The text may come from a client, such as the name of a scope."""
    header = challenge("Bearer", {"scope": text})
    assert header.isascii()
    assert header.isprintable()
    ((found),) = read_challenges(header)
    assert len(found.parameters["scope"]) == len(text)


def test_challenge_leaves_out_unknown_parameters() -> None:
    assert challenge("Bearer", {"error": None, "scope": None}) == "Bearer"
    assert challenge("Bearer", {"error": None, "scope": "a"}) == 'Bearer scope="a"'


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", []),
        ("Bearer", [("bearer", {})]),
        ("  Bearer  ", [("bearer", {})]),
        ("Bearer, Basic", [("bearer", {}), ("basic", {})]),
        # Spaces around "=" are allowed for old senders (RFC 9110, section 11.2).
        ('Bearer scope = "a b" ,error=x', [("bearer", {"scope": "a b", "error": "x"})]),
        ('Bearer SCOPE="A"', [("bearer", {"scope": "A"})]),
        # The first of each name counts.
        ('Bearer scope="a", scope="b"', [("bearer", {"scope": "a"})]),
        (
            'Basic realm="a", Bearer scope="b"',
            [("basic", {"realm": "a"}), ("bearer", {"scope": "b"})],
        ),
        # A token in the place of parameters (RFC 9110, section 11.3), as for Negotiate.
        ("Negotiate YWJj==, Bearer", [("negotiate", {}), ("bearer", {})]),
        # A parameter without a challenge belongs to none.
        ('scope="a"', []),
        ('scope="a", Bearer', [("bearer", {})]),
        (
            'Bearer realm="a, Basic realm=b"',
            [("bearer", {"realm": "a, Basic realm=b"})],
        ),
        ('Bearer realm="a\\"b"', [("bearer", {"realm": 'a"b'})]),
        ('Bearer realm="unended', [("bearer", {})]),
    ],
)
def test_challenges_of_other_servers(header: str, found: list[Any]) -> None:
    expected = tuple(Challenge(scheme, parameters) for scheme, parameters in found)
    assert read_challenges(header) == expected


@given(st.text() | st.text('Bearer ,="\\\t', max_size=60))
@example('"' * 9_000)
@example("a" * 9_000)
@example("a=" * 5_000)
@example("\\" * 9_000)
@example('a="' + '\\"' * 4_000)
@example("Bearer " + " ," * 5_000)
def test_every_header_can_be_read(header: str) -> None:
    """A server chose the header, so no header may cause an error."""
    for one in read_challenges(header):
        assert one.scheme == one.scheme.lower() != ""
        assert all(name == name.lower() for name in one.parameters)


def test_longest_header_that_is_read() -> None:
    """The rest is not read, so a header of megabytes costs no more than one of 8 KiB."""
    assert read_challenges(" " * 8_185 + "Bearer") == (Challenge("bearer", {}),)
    assert read_challenges(" " * 8_192 + "Bearer") == ()


# ---- where metadata is --------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        # 2026-07-28, Protected Resource Metadata Discovery Requirements.
        (
            "https://example.com/public/mcp",
            "https://example.com/.well-known/oauth-protected-resource/public/mcp",
        ),
        (
            "https://example.com",
            "https://example.com/.well-known/oauth-protected-resource",
        ),
        # "any terminating slash following the host" is removed (RFC 9728, section 3.1)
        (
            "https://example.com/",
            "https://example.com/.well-known/oauth-protected-resource",
        ),
        (
            "https://example.com:8443/mcp/",
            "https://example.com:8443/.well-known/oauth-protected-resource/mcp/",
        ),
        # The same section: before the path, and before the query.
        (
            "https://example.com/mcp?k=v",
            "https://example.com/.well-known/oauth-protected-resource/mcp?k=v",
        ),
    ],
)
def test_address_of_a_resources_metadata(resource: str, url: str) -> None:
    assert resource_metadata_url(resource) == url
    # What a host routes has no query.
    assert resource_metadata_path(resource) == urlsplit(url).path


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        # 2026-07-28, Authorization Server Metadata Discovery.
        (
            "https://auth.example.com/tenant1",
            [
                "https://auth.example.com/.well-known/oauth-authorization-server/tenant1",
                "https://auth.example.com/.well-known/openid-configuration/tenant1",
                "https://auth.example.com/tenant1/.well-known/openid-configuration",
            ],
        ),
        (
            "https://auth.example.com",
            [
                "https://auth.example.com/.well-known/oauth-authorization-server",
                "https://auth.example.com/.well-known/openid-configuration",
            ],
        ),
        # "any terminating / MUST be removed" (RFC 8414, section 3.1).
        (
            "https://auth.example.com/",
            [
                "https://auth.example.com/.well-known/oauth-authorization-server",
                "https://auth.example.com/.well-known/openid-configuration",
            ],
        ),
        (
            "https://auth.example.com:8443/a/b/",
            [
                "https://auth.example.com:8443/.well-known/oauth-authorization-server/a/b",
                "https://auth.example.com:8443/.well-known/openid-configuration/a/b",
                "https://auth.example.com:8443/a/b/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_addresses_of_an_issuers_metadata(issuer: str, urls: list[str]) -> None:
    """In this order: "clients MUST try endpoints in the following priority order"."""
    assert list(issuer_metadata_urls(issuer)) == urls
