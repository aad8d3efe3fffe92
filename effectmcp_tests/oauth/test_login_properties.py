"""Drawn servers, and an oracle that is written from the specification alone.

The oracle does not use the client. It reads the draw and decides how far a login may go;
then it checks the requests that were really sent. A login is refused at the first of
these steps that does not hold (2026-07-28, Authorization):

    resource      the metadata is of the server that was called, or of a parent of it
    issuer        its authorization server describes itself, under the same name
    registration  the client has an id there
    pkce          S256 is supported
    answer        state and iss are the state and the issuer of this login
    token         the response has a token that can be used
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import EffectMCPError
from effectmcp.auth.signatures import read_jwt

from .world import (
    ISSUER,
    OAUTH_PLACE,
    OPENID_PLACE,
    OTHER,
    RETURN,
    START,
    URL,
    Authority,
    World,
    login_at,
)

DOCUMENT: Final = "https://book.example/client.json"
STEPS: Final = ("resource", "issuer", "registration", "pkce", "answer", "token", "done")


@frozen(kw_only=True)
class Drawn:
    """A server and an authorization server.

    Attributes:
        resource: What the server says that it is.
        named: The authorization server that it names.
        place: The well-known place of the authorization server's metadata.
        issuer: The name in this metadata.
        pkce: `code_challenge_methods_supported`.
        methods: `token_endpoint_auth_methods_supported`.
        registers: Whether it registers clients.
        documents: Whether it reads documents about clients.
        has_document: Whether the client has one.
        advertises: Whether it promises `iss`.
        iss: The `iss` of its answer.
        state: The `state` of its answer; `None` for the right one.
        twice: A parameter of the answer that comes twice.
        error: An error instead of a code.
        challenged: The scopes in the challenge.
        supported: The scopes in the metadata of the server.
        offline: Whether the authorization server lists `offline_access`.
        bound: Whether the server needs proofs.
        access: The access token.
        kind: Its type.
    """

    resource: str = URL
    named: str = ISSUER
    place: int = 0
    issuer: str = ISSUER
    pkce: Any = ("S256",)
    methods: tuple[str, ...] | None = ("none",)
    registers: bool = True
    documents: bool = False
    has_document: bool = False
    advertises: bool | None = None
    iss: str | None = None
    state: str | None = None
    twice: str | None = None
    error: str | None = None
    challenged: tuple[str, ...] | None = None
    supported: tuple[str, ...] | None = None
    offline: bool = False
    bound: bool = False
    access: str = "an-access-token"
    kind: str = "Bearer"


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The usual value in most of the draws: otherwise no login would get far."""
    return st.sampled_from([*([usual] * 6 * len(others)), *others])


SCOPES = st.none() | st.sampled_from([("a",), ("b", "c"), ("a", "b")])
DRAWN = st.builds(
    Drawn,
    resource=mostly(
        URL,
        "https://shop.example",
        "https://shop.example/",
        "https://other.example/mcp",
        "http://shop.example/mcp",
        "https://shop.example/mcp2",
        "https://shop.example:444/mcp",
    ),
    named=mostly(ISSUER, f"{ISSUER}/tenant"),
    place=st.integers(0, 2),
    issuer=mostly("the named one", OTHER, f"{ISSUER}/", "HTTPS://login.example"),
    pkce=mostly(("S256",), ("plain", "S256"), ("plain",), (), None),
    methods=mostly(
        ("none",), ("client_secret_basic",), ("client_secret_post", "x"), ("x",), None
    ),
    registers=mostly(True, False),
    documents=st.booleans(),
    has_document=st.booleans(),
    advertises=st.sampled_from([None, True, False]),
    iss=mostly(None, "the named one", "the named one", OTHER, f"{ISSUER}/", ""),
    state=mostly(None, "", "another"),
    twice=mostly(None, "code", "state", "iss"),
    error=mostly(None, "access_denied"),
    challenged=SCOPES,
    supported=SCOPES,
    offline=st.booleans(),
    bound=st.booleans(),
    access=mostly("an-access-token", "a b", "", "a\r\nX: 1", "é"),
    kind=mostly("Bearer", "bearer", "mac"),
)


# ---- the world that was drawn -------------------------------------------------------


def real(drawn: Drawn, name: str | None) -> str | None:
    return drawn.named if name == "the named one" else name


def world_of(drawn: Drawn) -> World:
    """The world, with another authorization server that nothing may be sent to."""
    path = urlsplit(drawn.named).path
    places = (
        f"{ISSUER}{OAUTH_PLACE}{path}",
        f"{ISSUER}{OPENID_PLACE}{path}",
        f"{ISSUER}{path}{OPENID_PLACE}",
    )
    changes: dict[str, Any] = {
        "issuer": real(drawn, drawn.issuer),
        "code_challenge_methods_supported": None
        if drawn.pkce is None
        else list(drawn.pkce),
        "token_endpoint_auth_methods_supported": None
        if drawn.methods is None
        else list(drawn.methods),
        "client_id_metadata_document_supported": drawn.documents,
        "authorization_response_iss_parameter_supported": drawn.advertises,
        "dpop_signing_alg_values_supported": ["ES256"],
        "scopes_supported": ["offline_access"] if drawn.offline else None,
    }
    if not drawn.registers:
        changes["registration_endpoint"] = None
    answers: dict[str, str | None] = {}
    if drawn.state is not None:
        answers["state"] = drawn.state
    if drawn.error is not None:
        answers |= {"code": None, "error": drawn.error}
    token_changes: dict[str, Any] = {"access_token": drawn.access}
    if not drawn.bound:
        token_changes["token_type"] = drawn.kind
    authority = Authority(
        issuer=drawn.named,
        places=(places[drawn.place],),
        changes=changes,
        says_iss=real(drawn, drawn.iss),
        answers=answers,
        token_changes=token_changes,
    )
    scope = None if drawn.challenged is None else " ".join(drawn.challenged)
    world = World(
        authorities=[authority, Authority(issuer=OTHER)],
        trusted=[drawn.named],
        document={
            "resource": drawn.resource,
            "scopes_supported": drawn.supported and list(drawn.supported),
            "dpop_bound_access_tokens_required": drawn.bound or None,
        },
        challenge={"scope": scope},
    )
    if drawn.twice is not None:

        def visit(page: Any) -> str:
            url = authority.authorize(page.url)
            return f"{url}&{drawn.twice}=again"

        world.visitor = visit
    return world


# ---- the oracle ---------------------------------------------------------------------


def last_step(drawn: Drawn) -> str:
    """The step at which a login is refused, by the specification."""
    if drawn.resource not in (URL, "https://shop.example", "https://shop.example/"):
        return "resource"
    if real(drawn, drawn.issuer) != drawn.named:
        return "issuer"
    uses_document = drawn.has_document and drawn.documents
    if not uses_document and not drawn.registers:
        return "registration"
    if drawn.pkce is None or "S256" not in drawn.pkce:
        return "pkce"
    # (RFC 6749, section 3.1: no parameter more than once.)
    sent = {"code": drawn.error is None, "state": True, "iss": drawn.iss is not None}
    repeated = drawn.twice is not None and sent[drawn.twice]
    iss = real(drawn, drawn.iss)
    if drawn.twice == "iss" and not repeated:
        iss = "again"
    if drawn.state is not None or repeated or drawn.error is not None:
        return "answer"
    if (iss is None and drawn.advertises) or iss not in (None, drawn.named):
        return "answer"
    # A client with a document, as every client without a secret, only shows its id.
    if not uses_document and drawn.methods == ("x",):
        return "answer"
    if drawn.access != "an-access-token":
        return "token"
    return "token" if drawn.kind == "mac" and not drawn.bound else "done"


def scopes_by(drawn: Drawn) -> set[str]:
    """(2026-07-28, Scope Selection Strategy; Refresh Tokens.)"""
    found = set(drawn.challenged or drawn.supported or ())
    if found and drawn.offline:
        found.add("offline_access")
    return found


def step_of(world: World, drawn: Drawn) -> str:
    """The last step that was reached, by the requests that were sent."""
    authority = world.authorities[0]
    metadata = f"{ISSUER}/.well-known"
    if world.called[-1] and "Authorization" in world.called[-1]:
        return "done"
    if f"{drawn.named}/token" in world.urls:
        return "token"
    if world.visits:
        return "answer"
    if authority.registered:
        return "pkce"
    if any(
        one.startswith(metadata) or "/.well-known/openid" in one for one in world.urls
    ):
        return "issuer"
    return "resource"


@given(DRAWN)
@example(Drawn())
@example(
    Drawn(bound=True, offline=True, challenged=("a",), iss=ISSUER, advertises=True)
)
@example(Drawn(methods=("client_secret_basic",)))
@example(Drawn(has_document=True, documents=True, registers=False))
def test_a_login_is_as_the_specification_demands(drawn: Drawn) -> None:
    world = world_of(drawn)
    options: dict[str, Any] = {}
    if drawn.has_document:
        options["metadata_url"] = DOCUMENT
    login = login_at(world, **options)
    status, headers = world.call(login.sign("POST"))
    refused = login.read(status, headers)
    assert refused is not None
    error: EffectMCPError | None = None
    try:
        world.drive(login.recover(refused))
        world.call(login.sign("POST"))
    except EffectMCPError as exc:
        error = exc
    expected, reached = last_step(drawn), step_of(world, drawn)
    assert (error is None) == (expected == "done"), error
    # It may stop earlier, for example because the endpoints are read first.
    assert STEPS.index(reached) <= STEPS.index(expected)
    if expected in ("answer", "token", "done") and "x" not in (drawn.methods or ())[:1]:
        assert world.visits
    check_parameters(world, drawn)
    check_secrets(world, drawn)
    assert error is None or str(error).isprintable()


def check_parameters(world: World, drawn: Drawn) -> None:
    """Check the parameters of all requests."""
    for page in world.pages():
        assert page["response_type"] == "code"
        assert page["resource"] == drawn.resource
        assert page["code_challenge_method"] == "S256"
        assert page["redirect_uri"] == RETURN
        assert len(page["state"]) >= 43
        assert set(page.get("scope", "").split()) == scopes_by(drawn)
        assert ("scope" in page) == bool(scopes_by(drawn))
    for form in world.forms(f"{drawn.named}/token"):
        (page,) = world.pages()
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        assert page["code_challenge"] == challenge
        assert form["resource"] == drawn.resource
        assert form["redirect_uri"] == RETURN
        assert page["client_id"] == (
            DOCUMENT
            if drawn.has_document and drawn.documents
            else "client-1-of-login.example"
        )
    for registered in world.authorities[0].registered:
        assert registered["application_type"] == "native"
        assert registered["redirect_uris"] == [RETURN]
    for request in world.fetched:
        assert request.near == URL
        if "DPoP" in request.headers:
            assert drawn.bound
            _, claims = read_jwt(request.headers["DPoP"])
            assert claims["iat"] == int(START)
    signed = world.called[-1].get("Authorization", "")
    assert signed in ("", f"{'DPoP' if drawn.bound else 'Bearer'} an-access-token")


def check_secrets(world: World, drawn: Drawn) -> None:
    """Check that each secret was only sent to where it belongs."""
    authority, other = world.authorities
    token = f"{drawn.named}/token"
    secrets = {f"code-1-of-{drawn.named}": {token}}
    for form in world.forms(token):
        secrets[form["code_verifier"]] = {token}
    for secret in authority.secrets.values():
        if secret:
            secrets[secret] = {token}
    for refresh in authority.refreshes:
        secrets[refresh] = set()
    if "an-access-token" in authority.tokens:
        secrets["an-access-token"] = {URL}
    for secret, places in secrets.items():
        assert world.places_of(secret) <= places, secret
    assert not other.registered
    assert not other.codes
    assert not any(one.startswith(OTHER) for one in world.urls)
