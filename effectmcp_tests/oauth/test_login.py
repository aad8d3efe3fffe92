"""The whole login, against servers in memory."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from effectmcp import UsageError
from effectmcp.fetching.requests import Fetched
from effectmcp.oauth import (
    ClientCredentials,
    IdentityAssertion,
    OAuthError,
    WorkloadAssertion,
)
from effectmcp.oauth.tokens import Kept

from .world import (
    ISSUER,
    OTHER,
    RETURN,
    Authority,
    Clock,
    World,
    given_client,
    json_response,
    login_at,
    refusal,
)

BUSY = Fetched(status=503)


# ---- the table of the module --------------------------------------------------------


def test_a_first_request_leads_to_one_login() -> None:
    world = World()
    login = login_at(world)
    assert login.sign("POST") == {}
    assert world.use(login) == 200
    assert world.urls == [
        "https://shop.example/.well-known/oauth-protected-resource/mcp",
        "https://login.example/.well-known/oauth-authorization-server",
        "https://login.example/register",
        "https://login.example/token",
    ]
    (page,) = world.pages()
    (form,) = world.forms()
    assert page["resource"] == form["resource"] == world.url
    assert login.sign("POST") == {"Authorization": "Bearer access-1-of-login.example"}


def test_a_kept_login_is_used_by_the_next_process() -> None:
    world = World()
    login = login_at(world)
    world.use(login)
    later = login_at(world)
    later.kept = Kept.from_json(login.kept.to_json())
    asked = len(world.fetched)
    assert world.use(later) == 200
    assert len(world.fetched) == asked


def test_a_refused_token_is_refreshed() -> None:
    world = World()
    login = login_at(world)
    world.use(login)
    world.authorities[0].tokens.clear()
    assert world.use(login) == 200
    assert len(world.visits) == 1
    assert world.forms()[-1] == {
        "grant_type": "refresh_token",
        "refresh_token": f"refresh-1-of-{ISSUER}",
        "resource": world.url,
        "client_id": "client-1-of-login.example",
    }


def test_a_refresh_token_stays_where_none_is_sent() -> None:
    """RFC 6749, section 6: the server MAY issue a new one."""
    world = World()
    login = login_at(world)
    world.use(login)
    authority = world.authorities[0]
    authority.token_changes = {"refresh_token": None}
    authority.tokens.clear()
    assert world.use(login) == 200
    tokens = login.kept.tokens
    assert tokens is not None
    assert tokens.refresh == f"refresh-1-of-{ISSUER}"


def test_a_refused_refresh_leads_to_a_login() -> None:
    world = World()
    login = login_at(world)
    world.use(login)
    authority = world.authorities[0]
    authority.tokens.clear()
    authority.refreshes.clear()
    assert world.use(login) == 200
    assert len(world.visits) == 2
    kinds = [one["grant_type"] for one in world.forms()]
    assert kinds == ["authorization_code", "refresh_token", "authorization_code"]


def test_a_refresh_that_is_of_no_use_is_not_tried_twice_for_a_request() -> None:
    world = World()
    login = login_at(world)
    world.use(login)
    world.document = {"resource": "https://shop.example/"}
    # Every token so far is for another resource.
    world.authorities[0].tokens.clear()
    refused = login.read(401, {"www-authenticate": "Bearer"})
    assert refused is not None
    world.drive(login.recover(refused, is_first=False))
    assert [one["grant_type"] for one in world.forms()] == ["authorization_code"] * 2


def test_a_busy_authorization_server_does_not_cost_the_refresh_token() -> None:
    """The user would have to log in again, although nothing was refused."""
    world = World()
    login = login_at(world)
    world.use(login)
    authority = world.authorities[0]
    authority.tokens.clear()
    authority.refuses = [BUSY]
    authority.answers = {"code": None, "error": "access_denied"}
    with pytest.raises(OAuthError, match="access_denied"):
        world.use(login)
    assert len(world.visits) == 2
    assert world.use(login) == 200
    assert len(world.visits) == 2


def test_a_missing_scope_leads_to_a_login_for_all_scopes() -> None:
    """(2026-07-28, Step-Up Authorization Flow, 2: the union.)"""
    world = World(scopes=("read",))
    login = login_at(world)
    assert world.use(login) == 200
    world.scopes = ("write",)
    assert world.use(login) == 200
    assert [one["scope"] for one in world.pages()] == ["read", "read write"]
    world.scopes = ("read",)
    assert world.use(login) == 200
    assert len(world.visits) == 2


def test_scopes_that_were_asked_for_stay_asked_for() -> None:
    """The union is of the requested scopes, also where fewer were granted."""
    world = World(scopes=("read",))
    world.authorities[0].token_changes = {"scope": "read"}
    login = login_at(world, scopes=["extra"])
    world.use(login)
    world.scopes = ("write",)
    world.use(login)
    scopes = [one["scope"] for one in world.pages()]
    assert scopes == ["extra read", "extra read write"]


def test_a_forbidden_request_without_a_missing_scope_is_not_a_login() -> None:
    login = login_at(World())
    assert login.read(403, {}) is None
    assert login.read(403, {"www-authenticate": 'Bearer error="invalid_token"'}) is None
    assert login.read(200, {"www-authenticate": "Bearer"}) is None
    assert login.read(404, {}) is None


def test_other_schemes_are_not_a_login() -> None:
    login = login_at(World())
    assert login.read(401, {"www-authenticate": 'Basic realm="x"'}) is None
    assert login.read(401, {"www-authenticate": 'Basic realm="x", Bearer'}) is not None
    assert login.read(401, {}) is not None


def test_a_challenge_that_names_metadata_is_preferred() -> None:
    login = login_at(World())
    header = 'Bearer, DPoP algs="ES256", Bearer resource_metadata="https://m.example/"'
    refused = login.read(401, {"www-authenticate": header})
    assert refused is not None
    assert refused.challenge is not None
    assert refused.challenge.parameters == {"resource_metadata": "https://m.example/"}


# ---- scopes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenged", "supported", "wanted", "asked"),
    [
        ("a b", ["c"], [], "a b"),
        (None, ["d", "c"], [], "c d"),
        (None, None, [], None),
        (None, [], [], None),
        (None, None, ["own"], "own"),
        ("a", ["c"], ["own"], "a own"),
    ],
)
def test_scope_selection(
    challenged: str | None,
    supported: list[str] | None,
    wanted: list[str],
    asked: str | None,
) -> None:
    """(2026-07-28, Scope Selection Strategy.)"""
    world = World(challenge={"scope": challenged})
    world.document = {"scopes_supported": supported}
    world.use(login_at(world, scopes=wanted))
    assert world.pages()[0].get("scope") == asked


@pytest.mark.parametrize(
    ("listed", "expected"), [(["offline_access"], True), (["a"], False), (None, False)]
)
def test_offline_access_is_asked_for_where_it_is_listed(
    listed: list[str] | None, expected: bool
) -> None:
    """(2026-07-28, Refresh Tokens.)"""
    world = World(scopes=("a",))
    world.authorities[0].changes = {"scopes_supported": listed}
    world.use(login_at(world))
    (page,) = world.pages()
    assert ("offline_access" in page["scope"].split()) is expected
    assert page.get("prompt") == ("consent" if expected else None)


# ---- expired tokens -----------------------------------------------------------------


def test_a_token_that_expires_is_renewed_before_it_is_refused() -> None:
    world, clock = World(), Clock()
    login = login_at(world, clock)
    world.use(login)
    assert login.is_old is False
    clock.now += 3600 - 9
    assert bool(login.is_old) is True
    world.drive(login.renew())
    assert not login.is_old
    assert world.forms()[-1]["grant_type"] == "refresh_token"


def test_a_renewal_that_fails_leaves_it_to_the_server() -> None:
    """The refusal names the metadata, which may be at no well-known place."""
    meta = "https://shop.example/about-us"
    world, clock = World(challenge={"resource_metadata": meta}), Clock()
    world.places = (meta,)
    login = login_at(world, clock)
    assert world.use(login) == 200
    clock.now += 4000
    world.drive(login.renew())
    world.authorities[0].tokens.clear()
    assert world.use(login) == 200
    assert len(world.visits) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_renewal_without_an_authorization_server_raises_nothing(status: int) -> None:
    world, clock = World(), Clock()
    login = login_at(world, clock)
    world.use(login)
    clock.now += 4000
    world.answers = {world.urls[0]: Fetched(status=status)}
    world.drive(login.renew())
    assert login.kept.tokens is not None
    world.answers = {f"{ISSUER}/token": Fetched(status=status)}
    world.drive(login.renew())
    assert login.kept.tokens.refresh is not None


def test_a_renewal_without_tokens_does_nothing() -> None:
    world = World()
    login = login_at(world)
    world.drive(login.renew())
    assert not world.fetched
    assert not login.is_old


# ---- proofs -------------------------------------------------------------------------


def bound_world() -> World:
    world = World(document={"dpop_bound_access_tokens_required": True})
    world.authorities[0].changes = {"dpop_signing_alg_values_supported": ["ES256"]}
    return world


def test_a_server_that_needs_proofs_gets_them() -> None:
    world = bound_world()
    login = login_at(world)
    assert world.use(login) == 200
    assert world.called[-1]["Authorization"].startswith("DPoP ")


def test_a_challenge_with_the_scheme_of_proofs_is_enough() -> None:
    world = World(scheme="DPoP")
    assert world.use(login_at(world)) == 200
    assert world.called[-1]["Authorization"].startswith("DPoP ")


@pytest.mark.parametrize(("wish", "is_bound"), [("always", True), ("never", False)])
def test_the_user_decides_on_proofs(wish: str, is_bound: bool) -> None:
    world = World()
    world.use(login_at(world, proofs=wish))
    assert ("DPoP" in world.called[-1]) is is_bound


def test_a_key_is_kept_for_the_next_login() -> None:
    world = bound_world()
    login = login_at(world)
    world.use(login)
    first = login.kept.tokens
    world.authorities[0].tokens.clear()
    world.authorities[0].refreshes.clear()
    world.use(login)
    second = login.kept.tokens
    assert first is not None
    assert second is not None
    assert first.proof_key == second.proof_key
    assert len(world.visits) == 2


def test_an_authorization_server_without_the_algorithm_is_refused() -> None:
    world = bound_world()
    world.authorities[0].changes = {"dpop_signing_alg_values_supported": ["RS256"]}
    with pytest.raises(OAuthError, match="takes no proofs"):
        world.use(login_at(world))
    assert not world.visits


def test_a_nonce_of_the_token_endpoint_is_used_at_once() -> None:
    """RFC 9449, section 8."""
    world = bound_world()
    world.authorities[0].nonce = "n1"
    assert world.use(login_at(world)) == 200
    assert world.urls.count(f"{ISSUER}/token") == 2
    assert len(world.visits) == 1


def test_a_nonce_of_the_server_is_not_a_login() -> None:
    """RFC 9449, section 9."""
    world = bound_world()
    world.nonce = "n1"
    login = login_at(world)
    assert world.use(login) == 200
    world.nonce = "n2"
    assert world.use(login) == 200
    assert len(world.visits) == 1


def test_a_nonce_after_a_refresh_is_not_a_login() -> None:
    """Both expire: the token first, and then the nonce of the old proof."""
    world = bound_world()
    world.nonce = "n1"
    login = login_at(world)
    world.use(login)
    world.authorities[0].tokens.clear()
    world.nonce = "n2"
    assert world.use(login) == 200
    assert len(world.visits) == 1


def test_a_nonce_in_an_accepted_response_is_used_next() -> None:
    """RFC 9449, section 8.2."""
    world = bound_world()
    login = login_at(world)
    world.use(login)
    assert login.read(200, {"dpop-nonce": "n9"}) is None
    world.nonce = "n9"
    status, _ = world.call(login.sign("POST"))
    assert status == 200


def test_a_request_for_a_nonce_without_one_is_not_believed() -> None:
    world = bound_world()
    login = login_at(world)
    world.use(login)
    header = {"www-authenticate": 'DPoP error="use_dpop_nonce"'}
    refused = login.read(401, header)
    assert refused is not None
    assert not refused.wants_nonce


# ---- another authorization server ---------------------------------------------------


def test_a_new_authorization_server_learns_nothing_of_the_old_one() -> None:
    """(2026-07-28, Authorization Server Binding.)"""
    old = Authority(
        changes={"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    )
    new = Authority(issuer=OTHER)
    world = World(authorities=[old, new], trusted=[ISSUER])
    login = login_at(world)
    world.use(login)
    world.trusted = [OTHER]
    assert world.use(login) == 200
    # A new registration, and a new login.
    assert len(new.registered) == 1
    assert len(world.visits) == 2
    later = world.fetched[len(world.fetched) - 4 :]
    assert all(ISSUER not in one.url for one in later)
    name = "client-1-of-login.example"
    for secret in (name, f"secret-of-{name}", "refresh-1-of-", "access-1-of-login"):
        places = world.places_of(secret)
        assert not any(one.startswith(OTHER) for one in places), secret
    assert world.places_of("access-1-of-login") == {world.url}


def test_tokens_of_an_issuer_that_is_trusted_no_longer_are_dropped() -> None:
    """(2026-07-28, Token Handling: only tokens of the server's issuer are sent.)"""
    world = World(authorities=[Authority(), Authority(issuer=OTHER)], trusted=[ISSUER])
    login = login_at(world)
    world.use(login)
    world.trusted = [OTHER]
    world.answers = {f"{OTHER}/register": Fetched(status=500)}
    with pytest.raises(OAuthError):
        world.use(login)
    assert login.sign("POST") == {}


def test_the_old_client_id_is_used_again_if_the_old_issuer_is_back() -> None:
    world = World(authorities=[Authority(), Authority(issuer=OTHER)], trusted=[ISSUER])
    login = login_at(world)
    for issuer in (ISSUER, OTHER, ISSUER):
        world.trusted = [issuer]
        assert world.use(login) == 200
    assert len(world.authorities[0].registered) == 1
    assert world.pages()[-1]["client_id"] == "client-1-of-login.example"


def test_the_issuer_of_the_tokens_is_preferred() -> None:
    """Otherwise its refresh token would be of no use, and the user had to log in."""
    world = World(authorities=[Authority(), Authority(issuer=OTHER)], trusted=[ISSUER])
    login = login_at(world)
    for issuers in ([ISSUER], [OTHER], [ISSUER, OTHER]):
        world.trusted = list(issuers)
        assert world.use(login) == 200
    assert len(world.visits) == 2
    for one in world.authorities:
        one.tokens.clear()
    assert world.use(login) == 200
    assert len(world.visits) == 2


def test_a_given_client_is_not_shown_to_another_issuer() -> None:
    """(2026-07-28, Authorization Server Binding: surface an error.)"""
    world = World(authorities=[Authority(issuer=OTHER)])
    login = login_at(world, registration=given_client(client_secret="quiet"))
    with pytest.raises(OAuthError, match="the client id is for https://login.example"):
        world.use(login)
    assert world.places_of("given") == world.places_of("quiet") == set()


def test_a_given_issuer_is_chosen_among_others() -> None:
    world = World(authorities=[Authority(issuer=OTHER), Authority()])
    world.authorities[1].secrets["given"] = ""
    assert world.use(login_at(world, registration=given_client())) == 200
    assert world.places_of("given") == {f"{ISSUER}/authorize", f"{ISSUER}/token"}


# ---- limits and failures ------------------------------------------------------------


def test_a_client_that_was_forgotten_registers_again() -> None:
    """Otherwise no later login could succeed, until the store is deleted."""
    world = World()
    login = login_at(world)
    world.use(login)
    authority = world.authorities[0]
    authority.secrets.clear()
    authority.tokens.clear()
    assert world.use(login) == 200
    assert len(authority.registered) == 2


def test_a_failed_login_keeps_its_registration() -> None:
    world = World()
    login = login_at(world)
    world.authorities[0].answers = {"code": None, "error": "access_denied"}
    with pytest.raises(OAuthError, match="access_denied"):
        world.use(login)
    world.authorities[0].answers = {}
    assert world.use(login) == 200
    assert len(world.authorities[0].registered) == 1


def test_the_page_returns_to_the_registered_place() -> None:
    world = World(return_to=None)
    login = login_at(world)
    world.use(login)
    world.authorities[0].tokens.clear()
    world.authorities[0].refreshes.clear()
    world.use(login)
    assert world.redirects == [None, RETURN]


def test_another_place_to_return_to_is_a_new_registration() -> None:
    world = World()
    login = login_at(world)
    world.use(login)
    world.authorities[0].tokens.clear()
    world.authorities[0].refreshes.clear()
    world.return_to = "http://127.0.0.1:9/callback"
    assert world.use(login) == 200
    assert [one["redirect_uris"] for one in world.authorities[0].registered] == [
        [RETURN],
        ["http://127.0.0.1:9/callback"],
    ]


def test_a_given_client_returns_to_where_it_is_registered() -> None:
    elsewhere = "http://127.0.0.1:1/callback"
    world = World()
    client = given_client(redirect_uri=elsewhere)
    with pytest.raises(UsageError, match="is registered to return to"):
        world.use(login_at(world, registration=client))
    world.authorities[0].secrets["given"] = ""
    world.return_to = None
    assert world.use(login_at(world, registration=client)) == 200
    assert world.pages()[-1]["redirect_uri"] == elsewhere


# ---- programs -----------------------------------------------------------------------


def test_client_credentials() -> None:
    world = World(scopes=("read",))
    world.authorities[0].secrets["given"] = "quiet"
    login = login_at(
        world,
        visitor=None,
        grant=ClientCredentials(),
        registration=given_client(client_secret="quiet"),
    )
    assert world.use(login) == 200
    assert not world.visits
    (form,) = world.forms()
    assert form == {
        "grant_type": "client_credentials",
        "scope": "read",
        "resource": world.url,
    }
    assert world.places_of("quiet") == {f"{ISSUER}/token"}


def test_client_credentials_need_no_refresh_token() -> None:
    world = World()
    world.authorities[0].secrets["given"] = "quiet"
    world.authorities[0].token_changes = {"refresh_token": None}
    client = given_client(client_secret="quiet")
    login = login_at(world, grant=ClientCredentials(), registration=client)
    world.use(login)
    world.authorities[0].tokens.clear()
    assert world.use(login) == 200
    assert [one["grant_type"] for one in world.forms()] == ["client_credentials"] * 2


def test_a_workload_shows_its_assertion_to_its_issuer_alone() -> None:
    world = World(authorities=[Authority(), Authority(issuer=OTHER)], trusted=[OTHER])
    grant = WorkloadAssertion(assertion=lambda: "vouched")
    login = login_at(world, grant=grant, registration=given_client())
    with pytest.raises(OAuthError, match="the client id is for"):
        world.use(login)
    world.trusted = [ISSUER]
    world.authorities[0].secrets["given"] = ""
    assert world.use(login) == 200
    assert world.places_of("vouched") == {f"{ISSUER}/token"}


IDP = "https://idp.example/token"


def managed(world: World) -> Any:
    grant = IdentityAssertion(
        id_token="the id token", token_endpoint=IDP, client_id="c", client_secret="s3"
    )
    world.authorities[0].secrets["given"] = ""
    return login_at(world, grant=grant, registration=given_client())


ID_JAG = {
    "access_token": "vouched",
    "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag",
    "token_type": "N_A",
}


def test_an_identity_provider_vouches_for_a_user() -> None:
    world = World(scopes=("read",))
    world.answers = {IDP: json_response(ID_JAG)}
    assert world.use(managed(world)) == 200
    (asked,) = world.forms(IDP)
    assert (asked["audience"], asked["resource"]) == (ISSUER, world.url)
    (form,) = world.forms()
    assert form["assertion"] == "vouched"
    assert world.places_of("the id token") == world.places_of("s3") == {IDP}
    assert world.places_of("vouched") == {f"{ISSUER}/token"}


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (json_response({"error": "access_denied"}, 400), "access_denied"),
        (json_response({**ID_JAG, "issued_token_type": "x"}), "something else"),
        (json_response({**ID_JAG, "access_token": 5}), "something else"),
        (Fetched(status=500), "status 500"),
    ],
)
def test_an_identity_provider_that_does_not_vouch(
    response: Fetched, problem: str
) -> None:
    world = World(answers={IDP: response})
    with pytest.raises(OAuthError, match=problem):
        world.use(managed(world))
    assert not world.forms()


def test_refusals_are_values() -> None:
    assert evolve(refusal(), status=403) == refusal(403)


# ---- what would not help ------------------------------------------------------------


def test_a_scope_that_was_just_granted_is_not_asked_for_again() -> None:
    """Else a server that refuses everything would show three pages for each call."""
    world = World(scopes=("read",))
    login = login_at(world)
    assert world.use(login) == 200
    refused = refusal(403, scopes=["write"])
    world.drive(login.recover(refused))
    assert len(world.visits) == 2
    with pytest.raises(OAuthError, match="does not allow it either: write"):
        world.drive(login.recover(refused, is_first=False))
    assert len(world.visits) == 2
    # The next call may ask again: the user may have declined by mistake.
    world.drive(login.recover(refused))
    assert len(world.visits) == 3


def test_a_token_without_a_key_is_not_used_if_all_must_have_one() -> None:
    world = World()
    world.authorities[0].token_changes = {"token_type": "Bearer"}
    login = login_at(world, proofs="always")
    with pytest.raises(OAuthError, match="bound to no key"):
        world.use(login)
    assert login.sign("POST") == {}


@pytest.mark.parametrize("host", ["192.168.0.1", "127.0.0.1", "localhost", "[::1]"])
def test_a_page_closer_than_its_authorization_server_is_refused(host: str) -> None:
    """The browser of the user would ask it, with the cookies of the user."""
    world = World()
    page = f"https://{host}/reboot"
    world.authorities[0].changes["authorization_endpoint"] = page
    with pytest.raises(OAuthError, match="closer"):
        world.use(login_at(world))
    assert world.visits == []


def test_no_token_is_sent_without_https() -> None:
    world = World(url="http://shop.example/mcp")
    with pytest.raises(OAuthError, match="it is not https"):
        world.drive(login_at(world).recover(refusal()))
    assert world.fetched == []


def test_a_renewal_at_a_server_that_trusts_another_issuer_does_nothing() -> None:
    """The next refusal leads to a login there."""
    world = World(authorities=[Authority(), Authority(OTHER)])
    clock = Clock()
    login = login_at(world, clock)
    world.use(login)
    clock.now += 3600
    world.trusted = [OTHER]
    forms = len(world.forms())
    world.drive(login.renew())
    assert len(world.forms()) == forms
