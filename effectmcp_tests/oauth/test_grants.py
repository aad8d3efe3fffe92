"""The requests for tokens, and answers to them that cannot be trusted."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.fetching.requests import Fetch, Fetched
from effectmcp.fetching.sending import Sender, SyncSender, _Flight, _key
from effectmcp.oauth import IdentityAssertion, OAuthError, Registration
from effectmcp.oauth.discovery import Found
from effectmcp.oauth.grants import (
    TokenClient,
    Visit,
    assertion_grant,
    code_grant,
    credentials_grant,
    exchange,
    origin_of,
    refresh_grant,
)
from effectmcp.oauth.proofs import new_key
from effectmcp.oauth.tokens import Kept, Tokens, printable

from .world import (
    ISSUER,
    OTHER,
    RETURN,
    URL,
    Authority,
    Clock,
    Texts,
    World,
    given_client,
    json_response,
)

TOKEN = f"{ISSUER}/token"


def asking_of(world: World, **changes: Any) -> TokenClient:
    """A client at the first authorization server."""
    authority = world.authorities[0]
    authority.secrets.setdefault("given", "")
    fields = {
        "found": Found(
            resource=URL, issuer=authority.issuer, metadata=authority.metadata
        ),
        "near": URL,
        "registration": given_client(),
        "scopes": (),
        "proof_key": None,
        "nonces": {},
        "clock": Clock(),
        "new_text": Texts(),
        **changes,
    }
    return TokenClient(**fields)


def log_in(world: World, **changes: Any) -> Tokens:
    tokens: Tokens = world.drive(code_grant(asking_of(world, **changes), RETURN))
    return tokens


# ---- the page -----------------------------------------------------------------------


def test_the_page_has_all_parameters() -> None:
    world = World()
    log_in(world, scopes=("a", "b"))
    (page,), (form,) = world.pages(), world.forms()
    verifier = form["code_verifier"]
    digest = hashlib.sha256(verifier.encode()).digest()
    assert page == {
        "response_type": "code",
        "client_id": "given",
        "redirect_uri": RETURN,
        "state": world.visits[0].state,
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        "resource": URL,
        "scope": "a b",
    }
    assert form == {
        "grant_type": "authorization_code",
        "code": f"code-1-of-{ISSUER}",
        "redirect_uri": RETURN,
        "code_verifier": verifier,
        "resource": URL,
        "client_id": "given",
    }
    # RFC 7636, section 4.1.
    assert 43 <= len(verifier) <= 128
    assert world.places_of(verifier) == {TOKEN}


def test_real_secrets_are_long_and_new() -> None:
    """RFC 7636, section 4.1, for the verifier."""
    from effectmcp.oauth.login import _random_text

    made = {_random_text() for _ in range(100)}
    assert len(made) == 100
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    assert all(43 <= len(one) <= 128 and set(one) <= allowed for one in made)


def test_a_page_with_a_query_keeps_it() -> None:
    page = f"{ISSUER}/authorize?tenant=1"
    world = World(authorities=[Authority(changes={"authorization_endpoint": page})])
    log_in(world)
    assert world.visits[0].url.startswith(f"{page}&response_type=code&")


@pytest.mark.parametrize(
    "methods", [None, [], ["plain"], "S256", {"S256": 1}, ["s256"], 5]
)
def test_without_pkce_there_is_no_login(methods: Any) -> None:
    """(2026-07-28, Authorization Code Protection.)"""
    changes = {"code_challenge_methods_supported": methods}
    world = World(authorities=[Authority(changes=changes)])
    with pytest.raises(OAuthError, match="PKCE"):
        log_in(world)
    assert not world.visits
    assert not world.fetched


# ---- the answer ---------------------------------------------------------------------


def answering(
    change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]],
    says_iss: str | None = None,
    **changes: Any,
) -> World:
    """A world whose browser comes back with other parameters."""
    authority = Authority(changes=changes, says_iss=says_iss)
    world = World(authorities=[authority])

    def visit(visit: Visit) -> str:
        place, _, query = authority.authorize(visit.url).partition("?")
        pairs = change(parse_qsl(query, keep_blank_values=True))
        return f"{place}?{urlencode(pairs)}"

    world.visitor = visit
    return world


ADVERTISED = {"authorization_response_iss_parameter_supported": True}


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize(
    ("advertised", "sent", "is_accepted"),
    [
        (True, ISSUER, True),
        (True, OTHER, False),
        (True, None, False),
        (False, ISSUER, True),
        (False, OTHER, False),
        (False, None, True),
        (None, ISSUER, True),
        (None, OTHER, False),
        (None, None, True),
        # Without any normalization.
        (True, f"{ISSUER}/", False),
        (None, "https://LOGIN.example", False),
        (None, "HTTPS://login.example", False),
        (None, "https://login.example:443", False),
        (None, "https://login%2Eexample", False),
        (None, "", False),
        # RFC 9207, section 2.3: a boolean.
        ("true", None, True),
    ],
)
def test_the_issuer_of_an_answer(
    advertised: Any, sent: str | None, is_accepted: bool, is_error: bool
) -> None:
    """(2026-07-28, Authorization Response Validation: the table.)"""
    changes = {"authorization_response_iss_parameter_supported": advertised}
    world = World(authorities=[Authority(changes=changes, says_iss=sent)])
    if is_error:
        words = {"code": None, "error": "access_denied", "error_description": "words"}
        world.authorities[0].answers.update(words)
        expected = "words" if is_accepted else "nothing of it is used"
        with pytest.raises(OAuthError, match=expected) as caught:
            log_in(world)
        assert caught.value.code == ("access_denied" if is_accepted else None)
        assert is_accepted or "access_denied" not in str(caught.value)
        assert is_accepted or "words" not in str(caught.value)
    elif is_accepted:
        log_in(world)
    else:
        with pytest.raises(OAuthError, match="nothing of it is used"):
            log_in(world)
    assert len(world.forms()) == (is_accepted and not is_error)


def without(name: str) -> Any:
    return lambda pairs: [one for one in pairs if one[0] != name]


def also(name: str, value: str) -> Any:
    return lambda pairs: [*pairs, (name, value)]


def instead(name: str, value: str) -> Any:
    return lambda pairs: [(key, value if key == name else one) for key, one in pairs]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without("state"), "not to this login"),
        (instead("state", ""), "not to this login"),
        (instead("state", "text-000"), "not to this login"),
        (instead("state", "é\x00"), "not to this login"),
        (also("state", "another"), "not to this login"),
        (also("code", "another"), "not to this login"),
        (also("iss", ISSUER), "not to this login"),
        (without("code"), "sent no code"),
        (instead("code", ""), "sent no code"),
        (lambda pairs: [*pairs] * 2, "not to this login"),
        (lambda pairs: [*pairs, *((f"x{n}", "") for n in range(60))], "not to this"),
        (lambda pairs: [], "not to this login"),
    ],
)
def test_an_answer_that_is_not_used(change: Any, problem: str) -> None:
    world = answering(change, says_iss=ISSUER)
    with pytest.raises(OAuthError, match=problem):
        log_in(world)
    assert not world.forms()


def test_an_error_with_a_code_is_an_error() -> None:
    world = answering(also("error", "access_denied"))
    with pytest.raises(OAuthError, match="access_denied"):
        log_in(world)
    assert not world.forms()


def test_unknown_parameters_are_ignored() -> None:
    """RFC 6749, section 4.1.2."""
    log_in(answering(also("session_state", "x")))


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:4712/callback",
        "http://127.0.0.1:4711/other",
        "https://evil.example/callback",
        "",
        "http://[",
        "callback",
    ],
)
def test_an_answer_to_another_page_is_not_used(place: str) -> None:
    world = World()
    own = world.authorities[0]
    world.visitor = lambda visit: (
        f"{place}?{own.authorize(visit.url).partition('?')[2]}"
    )
    with pytest.raises(OAuthError, match="nothing of it is used"):
        log_in(world)
    assert not world.forms()


def test_words_of_an_error_cannot_command_a_terminal() -> None:
    words = {"error": "a\x1b[2Jb\x9b", "error_description": "\x1b]0;x\x07\u202e" * 200}
    world = World(authorities=[Authority(answers={"code": None, **words})])
    with pytest.raises(OAuthError) as caught:
        log_in(world)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert caught.value.code is not None
    assert caught.value.code.isprintable()


# ---- the token endpoint -------------------------------------------------------------

GOOD = {"access_token": "a-token", "token_type": "Bearer"}


def answered(response: Fetched, **changes: Any) -> Tokens:
    return log_in(World(answers={TOKEN: response}), **changes)


def test_a_plain_token() -> None:
    tokens = answered(json_response(GOOD))
    assert tokens == Tokens(access="a-token", issuer=ISSUER)
    assert "a-token" not in repr(tokens)


@pytest.mark.parametrize("kind", ["bearer", "BEARER", "Bearer"])
def test_the_type_of_a_token_has_no_case(kind: str) -> None:
    """RFC 6749, section 5.1."""
    assert answered(json_response({**GOOD, "token_type": kind})).scheme == "Bearer"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"access_token": None}, "no access token"),
        ({"access_token": 5}, "no access token"),
        ({"access_token": ""}, "no access token"),
        ({"access_token": ["a"]}, "no access token"),
        ({"access_token": "a b"}, "no access token"),
        ({"access_token": "a\r\nX-Evil: 1"}, "no access token"),
        ({"access_token": "a\n"}, "no access token"),
        ({"access_token": "\x00"}, "no access token"),
        ({"access_token": "é"}, "no access token"),
        ({"access_token": "\ud800"}, "no access token"),
        ({"access_token": "a" * 70_000}, "no access token"),
        ({"token_type": None}, "cannot be used"),
        ({"token_type": 5}, "cannot be used"),
        ({"token_type": "mac"}, "cannot be used"),
        ({"token_type": "\x1b[2J"}, "cannot be used"),
        ({"token_type": "DPoP"}, "did not prove"),
        ({"error": "server_error"}, "server_error"),
    ],
)
def test_a_token_that_cannot_be_used(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(OAuthError, match=problem) as caught:
        answered(json_response({**GOOD, **change}))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
def test_error_that_repeats_a_secret_does_not_show_it(method: Any) -> None:
    """A server may repeat the request; messages end up in logs and chats."""
    secret, world = "qu/et +" * 60, World()
    client = Registration(
        client_id="given", client_secret=secret, issuer=ISSUER, method=method
    )

    def repeat(request: Fetch) -> Fetched:
        said = f"{request.body.decode()} {request.headers} {secret}"
        return json_response({"error": secret, "error_description": said}, 400)

    world.answers[TOKEN] = repeat
    asking = asking_of(world, registration=client)
    flows = [
        code_grant(asking, RETURN),
        refresh_grant(asking, "REFRESH"),
        credentials_grant(asking),
        assertion_grant(asking, "ASSERTION"),
    ]
    basic = base64.b64encode(f"given:{quote(secret, safe='')}".encode()).decode()
    for flow in flows:
        with pytest.raises(OAuthError, match=r"\*\*\*") as caught:
            world.drive(flow)
        shown = f"{caught.value} {caught.value.code}"
        for one in ("qu/et", "qu%2Fet", basic[:20], "REFRESH", "ASSERTION", "code=te"):
            assert one not in shown


def test_error_of_the_page_that_repeats_a_secret_does_not_show_it() -> None:
    words = {"error": "x quiet", "error_description": "your secret is quiet"}
    world = World(authorities=[Authority(answers={"code": None, **words})])
    client = Registration(client_id="given", client_secret="quiet", issuer=ISSUER)
    with pytest.raises(OAuthError, match=r"your secret is \*\*\*") as caught:
        log_in(world, registration=client)
    assert caught.value.code == "x ***"


def test_error_of_an_identity_provider_that_repeats_a_secret_does_not_show_it() -> None:
    place, world = "https://idp.example/token", World()
    grant = IdentityAssertion(
        id_token="IDTOKEN", token_endpoint=place, client_id="c", client_secret="quiet"
    )
    said = {"error": "quiet", "error_description": "not IDTOKEN"}
    world.answers[place] = json_response(said, 400)
    with pytest.raises(OAuthError, match=r"no assertion: \*\*\*: not \*\*\*"):
        world.drive(exchange(asking_of(world), grant))


@pytest.mark.parametrize(
    ("secret", "shown"),
    [("abc", "abcd"), ("abcd", "***"), ("", "abcd"), (None, "abcd")],
)
def test_printable_hides_secrets_that_are_long_enough(
    secret: str | None, shown: str
) -> None:
    """A shorter secret would hide parts of other words."""
    assert printable("abcd", [secret]) == shown


def test_repr_of_a_login_shows_no_secret() -> None:
    client = asking_of(World(), proof_key={"d": "SECRET"})
    kept = Kept(clients={ISSUER: {"client_secret": "SECRET"}})
    visit = Visit("https://login.example/?code_challenge=SECRET", "SECRET")
    fetched = Fetched(status=200, headers={"set-cookie": "SECRET"})
    fetch = Fetch(url=URL, near=URL, headers={"authorization": "SECRET"})
    sender, sync = Sender(), SyncSender()
    for flights in (sender._flights, sync._flights):
        flights[_key(fetch)] = _Flight(None)
    for one in (client, kept, visit, fetched, sender, sync):
        assert "SECRET" not in repr(one)


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (
            json_response({"error": "invalid_grant"}, 400),
            "gave no token: invalid_grant",
        ),
        (json_response(GOOD, 400), "status 400"),
        (json_response(GOOD, 201), "status 201"),
        (Fetched(status=302, headers={"location": "https://evil.example/"}), "302"),
        (Fetched(status=200, body=b""), "no access token"),
        (Fetched(status=200, body=b"[]"), "no access token"),
        (Fetched(status=200, body=b"\xff\xfe"), "no access token"),
        (Fetched(status=200, body=b"[" * 100_000), "no access token"),
        (Fetched(status=500, body=b"<html>"), "status 500"),
    ],
)
def test_a_response_without_a_token(response: Fetched, problem: str) -> None:
    with pytest.raises(OAuthError, match=problem):
        answered(response)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3600", 3590.0),
        ("3600.5", 3590.5),
        ("40", 30.0),
        ("8", 6.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("1e400", 315_359_990.0),
        ("Infinity", 315_359_990.0),
        ("-Infinity", 0.0),
        ("NaN", None),
        ("1" + "0" * 400, 315_359_990.0),
        ("-1" + "0" * 400, 0.0),
        ("true", None),
        ("null", None),
        ('"3600"', None),
        ("[]", None),
    ],
)
def test_how_long_a_token_lasts(text: str, seconds: float | None) -> None:
    """A token is renewed ten seconds before it expires, or after three quarters of its life."""
    body = json.dumps(GOOD)[:-1] + f', "expires_in": {text}}}'
    tokens = answered(Fetched(status=200, body=body.encode()))
    expires = None if tokens.expires is None else tokens.expires - Clock().now
    assert expires == seconds


@pytest.mark.parametrize(
    ("refresh", "kept"),
    [
        ("r", "r"),
        ("r 2", "r 2"),
        ("", None),
        (None, None),
        (5, None),
        ("\ud800", None),
        ("r\r\n", None),
        ("é", None),
    ],
)
def test_a_refresh_token_that_can_be_sent(refresh: Any, kept: str | None) -> None:
    """RFC 6749, appendix A.17."""
    found = {**GOOD, "refresh_token": refresh}
    assert answered(json_response(found)).refresh == kept


@pytest.mark.parametrize(
    ("granted", "scopes"),
    [
        (None, ("a",)),
        ("b", ("a", "b")),
        ("b c\x1b é \ud800", ("a", "b")),
        (["b"], ("a",)),
        (5, ("a",)),
    ],
)
def test_scopes_that_were_granted(granted: Any, scopes: tuple[str, ...]) -> None:
    """A step-up asks for these scopes again, so they have to be scopes."""
    found = {**GOOD, "scope": granted}
    assert answered(json_response(found), scopes=("a",)).scopes == scopes


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
NAMES = (
    "access_token token_type expires_in refresh_token scope error error_description"
).split()
RESPONSES = st.dictionaries(st.sampled_from(NAMES), JSON_VALUES)


@given(
    found=RESPONSES | RESPONSES.map(lambda found: {**found, **GOOD}),
    status=st.sampled_from([200, 200, 400, 401, 500]),
    is_bound=st.booleans(),
)
def test_any_response_is_tokens_or_an_error(
    found: Mapping[str, Any], status: int, is_bound: bool
) -> None:
    key = new_key() if is_bound else None
    world = World(answers={TOKEN: json_response(found, status)})
    outcome: Tokens | OAuthError
    try:
        outcome = log_in(world, proof_key=key)
    except OAuthError as exc:
        outcome = exc
    if isinstance(outcome, OAuthError):
        assert str(outcome).isprintable()
        assert outcome.code is None or outcome.code.isprintable()
        return
    tokens = outcome
    assert status == 200
    assert tokens.access.isascii()
    assert tokens.access.isprintable()
    assert " " not in tokens.access
    # What it keeps can be sent again.
    if tokens.refresh is not None:
        asking = asking_of(world, scopes=tokens.scopes)
        next(refresh_grant(asking, tokens.refresh))


def test_a_server_that_wants_nonces_without_end() -> None:
    body = json_response({"error": "use_dpop_nonce"}, 400, **{"dpop-nonce": "n"})
    world = World(answers={TOKEN: body})
    with pytest.raises(OAuthError, match="use_dpop_nonce"):
        log_in(world, proof_key=new_key())
    assert world.urls.count(TOKEN) == 2


@pytest.mark.parametrize("nonce", ["é", "a\x00", "a\r\nb", "\ud800"])
def test_a_nonce_that_cannot_be_sent_is_not_kept(nonce: str) -> None:
    nonces: dict[str, str] = {}
    response = json_response(GOOD, 200, **{"dpop-nonce": nonce})
    log_in(World(answers={TOKEN: response}), nonces=nonces)
    assert nonces == {}


def test_proofs_are_asked_for_but_bearer_tokens_are_sent() -> None:
    tokens = answered(json_response(GOOD), proof_key=new_key())
    assert (tokens.scheme, tokens.proof_key) == ("Bearer", None)


def test_a_code_is_sent_once() -> None:
    """A server that answered it late could take it for stolen."""
    world = World(answers={TOKEN: Fetched(status=503)})
    with pytest.raises(OAuthError):
        log_in(world)
    assert len(world.forms()) == 1


def test_origin_of() -> None:
    assert origin_of("https://a.example:1/b?c#d") == "https://a.example:1"
    assert urlsplit(origin_of(URL)).path == ""
