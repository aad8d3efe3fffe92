"""Identities, and the authenticators that find them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Server, UsageError
from effectmcp.auth.api_keys import APIKeys, key_line
from effectmcp.canonical import JSON
from effectmcp.exchange.commands import Peer, peer_of
from effectmcp.server.identity import (
    ANONYMOUS,
    CredentialsError,
    Gate,
    Identity,
    Presented,
    checked_scopes,
    identity_of,
    is_scope,
)
from effectmcp.transports.conversation import Judged
from effectmcp.transports.web import Head

# ---- the principal ------------------------------------------------------------------

#: Parts that could be confused: with the separator, its escape, and other scripts.
TEXTS = st.text("ab %2\t\né\0/:", min_size=1, max_size=4)
#: An issuer or a tenant, which a name alone does not have.
PARTS = st.tuples(st.none() | TEXTS, TEXTS, st.none() | TEXTS).filter(
    lambda parts: parts[0] is not None or parts[2] is not None
)


def of(issuer: str | None, subject: str, tenant: str | None) -> Identity:
    return Identity(issuer=issuer, subject=subject, tenant=tenant)


@given(PARTS, PARTS)
@example(("a", "b c", None), ("a b", "c", None))
@example(("a", "b", "c"), ("a", "b c", None))
@example(("a", "b%20c", None), ("a", "b c", None))
@example((None, "a", "b"), ("a", "b", None))
def test_principal_is_equal_only_for_equal_parts(one: Any, other: Any) -> None:
    """Otherwise a user of one issuer could open the states of another one's user."""
    same = of(*one).principal == of(*other).principal
    assert same is (one == other)


@given(TEXTS.filter(lambda one: not re.match(r"[^ ]*:[^ ]* | [^ ]+ ", one)))
def test_principal_of_a_name_is_the_name(name: str) -> None:
    """As hosts and hooks have always given it: states and tasks are bound to it."""
    assert Identity(subject=name).principal == name


@given(TEXTS, TEXTS, TEXTS)
def test_principal_of_a_name_is_of_no_issuer(a: str, b: str, c: str) -> None:
    """A user who may choose a name, beside users of an issuer, becomes none of them."""
    issuer = f"https://{a.replace(' ', '')}"
    for spelled in (
        Identity(issuer=issuer, subject=b),
        Identity(issuer=issuer, subject=b, tenant=c),
        Identity(subject=b, tenant=c),
    ):
        named = Identity(subject=spelled.principal)
        assert named.principal != spelled.principal


@given(PARTS, st.frozensets(st.sampled_from(["a", "b"])))
def test_principal_depends_on_the_parts_alone(
    parts: Any, scopes: frozenset[str]
) -> None:
    """A new token of the same user continues the user's calls."""
    plain = of(*parts)
    rich = attrs.evolve(plain, scopes=scopes, claims={"a": 1}, expires=5.0)
    assert rich.principal == plain.principal


def test_principal_of_usual_parts_is_readable() -> None:
    found = of("https://idp.example/a?b=c", "auth0|ann@example.com", "acme")
    assert found.principal == "https://idp.example/a?b=c auth0|ann@example.com acme"
    assert of(None, "ann", "acme").principal == " ann acme"


# ---- validators ---------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", 7, b"ann", ["ann"], "\ud800"])
@pytest.mark.parametrize("name", ["subject", "issuer", "tenant"])
def test_identity_of_invalid_parts_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"^Identity\({name}="):
        Identity(**{"subject": "ann", name: value})


@pytest.mark.parametrize(
    "expires",
    ["1", True, float("nan"), float("inf"), pytest.param(10**400, id="huge"), []],
)
def test_identity_of_another_time_is_refused(expires: Any) -> None:
    """Each stream compares the time with the clock."""
    with pytest.raises(UsageError, match="give seconds since 1970, or None"):
        Identity(subject="ann", expires=expires)


@pytest.mark.parametrize("expires", [None, 0, 1_800_000_000, 1.5, -1])
def test_identity_expires_at_a_time(expires: Any) -> None:
    assert Identity(subject="ann", expires=expires).expires == expires


@pytest.mark.parametrize("status", [200, 302, 400, 500, "401", None])
def test_refusal_of_another_status_is_a_fault(status: Any) -> None:
    """With 200, a client would take the refusal for a response."""
    with pytest.raises(UsageError, match="give 401, 403 or 503"):
        CredentialsError("no", status=status)


def test_repr_of_credentials_shows_none() -> None:
    identity = Identity(
        subject="ann", claims={"a": "SECRET"}, shown_claims={"b": "SECRET"}
    )
    headers = {"authorization": "Bearer SECRET"}
    head = Head("POST", "/mcp", headers)
    shown: list[object] = [
        identity,
        Presented(method="POST", headers=headers),
        peer_of(identity),
        Peer(principal="ann", identity=identity, headers=headers),
        head,
        Judged(head, headers, ()),
    ]
    for one in shown:
        assert "SECRET" not in repr(one)


def test_identity_needs_a_subject() -> None:
    subject: Any = None
    with pytest.raises(UsageError, match="subject=None"):
        Identity(subject=subject)


def test_identity_keeps_its_own_claims() -> None:
    """Many requests share a cached identity, so none of them can change it."""
    given = {"team": "a"}
    found = Identity(subject="ann", claims=given, shown_claims=given)
    given["team"] = "b"
    assert found.claims == found.shown_claims == {"team": "a"}
    changed: Any = found.claims
    with pytest.raises(TypeError):
        changed["team"] = "b"


def test_identity_has_no_claims_and_no_scopes_by_default() -> None:
    found = Identity(subject="ann")
    assert (found.scopes, found.claims, found.shown_claims) == (frozenset(), {}, {})


#: Strings, and whether each is one scope (RFC 6749, section 3.3).
SCOPES = {
    "orders:write": True,
    "https://a.example/b#c": True,
    "!": True,
    "~": True,
    "": False,
    "a b": False,
    "a\n": False,
    'a"': False,
    "a\\": False,
    "é": False,
    "\x7f": False,
}


@pytest.mark.parametrize("text", SCOPES)
def test_scope_has_the_characters_of_the_rfc(text: str) -> None:
    assert is_scope(text) is SCOPES[text]
    if SCOPES[text]:
        assert checked_scopes("of", [text, text]) == {text}
    else:
        with pytest.raises(UsageError, match="is not a scope"):
            checked_scopes("of", [text])
        with pytest.raises(UsageError, match="is not a scope"):
            Identity(subject="ann", scopes=frozenset([text]))


@pytest.mark.parametrize("scopes", ["orders", None, 7])
def test_scopes_are_a_list(scopes: Any) -> None:
    """A string would pass as a list of its letters."""
    with pytest.raises(UsageError, match="give a list of scopes"):
        checked_scopes("of", scopes)
    with pytest.raises(UsageError, match="give a list of scopes"):
        Identity(subject="ann", scopes=scopes)


# ---- what an authenticator returns --------------------------------------------------


def test_identity_of_what_was_found() -> None:
    ann = Identity(subject="ann", scopes=frozenset({"a"}))
    assert identity_of(ann) is ann
    assert identity_of("ann") == Identity(subject="ann")
    assert identity_of(ANONYMOUS) is None


def test_identity_of_nothing_is_refused() -> None:
    """A hook that forgets `return` lets no client in."""
    with pytest.raises(CredentialsError) as caught:
        identity_of(None)
    assert (caught.value.status, caught.value.error) == (401, None)


@pytest.mark.parametrize("found", [7, True, "", b"ann", {"sub": "ann"}])
def test_identity_of_something_else_is_a_fault(found: Any) -> None:
    with pytest.raises(UsageError, match="an authenticator returned"):
        identity_of(found)


def test_name_of_a_user_is_not_anonymous() -> None:
    """A user can choose the name that the marker has."""
    found = identity_of(ANONYMOUS.value)
    assert found == Identity(subject="anonymous")


# ---- the gate -----------------------------------------------------------------------


@attrs.define
class Scheme:
    """An author's authenticator for tokens that begin with its name."""

    name: str
    resource: str | None = None
    more: Mapping[str, JSON] = attrs.field(factory=dict)

    def identify(self, presented: Presented) -> str:
        return self.name

    def handles(self, presented: Presented) -> bool:
        return presented.headers.get("authorization", "").startswith(self.name)

    def challenges(
        self, error: str | None, scopes: Iterable[str] = ()
    ) -> tuple[str, ...]:
        return (f"{self.name} {error} {sorted(scopes)}",)

    def metadata(self) -> Mapping[str, JSON] | None:
        return {"resource": self.resource, **self.more} if self.resource else None


KEY = APIKeys([key_line("ann", "emcp_a")])


def presented(authorization: str | None = None) -> Presented:
    headers = {} if authorization is None else {"authorization": authorization}
    return Presented(method="POST", headers=headers)


def find_user(headers: Mapping[str, str]) -> str:
    return headers["x-user"]


def test_gate_asks_the_first_that_can_judge() -> None:
    gate = Gate([Scheme("a"), Scheme("ab"), Scheme("c")])
    assert gate.identify(presented("ab")) == "a"
    assert gate.identify(presented("c")) == "c"


@pytest.mark.parametrize(
    ("authorization", "error"), [(None, None), ("d", "invalid_token")]
)
def test_gate_refuses_what_none_can_judge(
    authorization: str | None, error: str | None
) -> None:
    """A client without credentials gets no error code (RFC 6750, section 3.1)."""
    with pytest.raises(CredentialsError) as caught:
        Gate([Scheme("a"), Scheme("b")]).identify(presented(authorization))
    assert (caught.value.status, caught.value.error) == (401, error)


def test_gate_with_one_authenticator_lets_it_judge_everything() -> None:
    """The reason of a refusal is for the log."""
    assert Gate(Scheme("a")).identify(presented("b")) == "a"


def test_gate_calls_a_hook_with_the_headers() -> None:
    request = Presented(method="POST", headers={"x-user": "ann"})
    assert Gate(find_user).identify(request) == "ann"
    assert Gate([Scheme("a"), find_user]).identify(request) == "ann"


@pytest.mark.parametrize(
    ("auth", "is_quick"),
    [
        (KEY, True),
        ([KEY, KEY], True),
        (find_user, False),
        ([KEY, find_user], False),
        (Scheme("a"), False),
    ],
)
def test_gate_is_quick_without_code_of_the_author(auth: object, is_quick: bool) -> None:
    """Code of the author may fail, exit or wait: transports call it where it may."""
    assert Gate(auth).is_quick is is_quick


def test_gate_offers_oauth_alone_where_there_is_some() -> None:
    """Clients read the first challenge."""
    oauth = Scheme("o", "https://shop.example/mcp")
    assert Gate([Scheme("a"), oauth]).challenges("e", ["s"]) == ("o e ['s']",)
    assert Gate([Scheme("a"), Scheme("b"), Scheme("a")]).challenges(None) == (
        "a None []",
        "b None []",
    )


@pytest.mark.parametrize(
    ("error", "scopes", "challenge"),
    [
        (None, [], "Bearer"),
        ("invalid_token", [], 'Bearer error="invalid_token"'),
        (
            "insufficient_scope",
            ["b", "a"],
            'Bearer error="insufficient_scope", scope="a b"',
        ),
    ],
)
def test_challenge_of_a_hook(
    error: str | None, scopes: list[str], challenge: str
) -> None:
    assert Gate(find_user).challenges(error, scopes) == (challenge,)


def test_gate_joins_the_metadata_of_all() -> None:
    """Two authorization servers for one resource; the first says what is not a list."""
    one = Scheme("a", "https://one.example", {"servers": ["x", "y"], "is_bound": True})
    two = Scheme("b", "https://one.example", {"servers": ["y", "z"], "is_bound": False})
    gate = Gate([KEY, one, two])
    assert gate.resource == "https://one.example"
    assert gate.metadata() == {
        "resource": "https://one.example",
        "servers": ["x", "y", "z"],
        "is_bound": True,
    }
    assert one.more["servers"] == ["x", "y"]


def test_gate_asks_a_function_last() -> None:
    """A function decides about every request."""
    with pytest.raises(UsageError, match="it has to be the last of the list"):
        Server("shop", auth=[len, APIKeys([key_line("ann", "emcp_a")])])
    Server("shop", auth=[APIKeys([key_line("ann", "emcp_a")]), len])


def test_gate_has_one_resource() -> None:
    """The metadata names one, and clients refuse the metadata of another."""
    given_ = [Scheme("a", "https://one.example"), Scheme("b", "https://two.example")]
    with pytest.raises(UsageError, match="two.example; a server has one URL"):
        Server("shop", auth=given_)


def test_gate_asks_a_greedy_authenticator_last() -> None:
    """No token names its issuer: it would refuse the tokens of the others."""

    class Greedy(Scheme):
        takes_every_token = True

    greedy, other = Greedy("a"), Scheme("b")
    for wrong in ([greedy, other], [greedy, KEY], [greedy, greedy], [KEY, greedy, KEY]):
        with pytest.raises(UsageError, match="put Greedy after the others"):
            Gate(wrong)
    for right in ([other, KEY, greedy], [greedy], [KEY, greedy, find_user]):
        Gate(right)


def test_gate_without_oauth_has_no_metadata() -> None:
    gate = Gate([KEY, find_user])
    assert (gate.resource, gate.metadata()) == (None, None)


def test_gate_in_words() -> None:
    assert repr(Gate([KEY, find_user])) == "1 API key or find_user"


@pytest.mark.parametrize("auth", ["ann", 7, {}, Scheme, [Scheme]])
def test_gate_takes_authenticators(auth: object) -> None:
    """A class is a common slip: its objects are authenticators."""
    with pytest.raises(UsageError, match=r"give an object of effectmcp\.auth"):
        Server("shop", auth=auth)


@pytest.mark.parametrize("auth", [[], ()])
def test_gate_of_nothing_is_refused(auth: object) -> None:
    """An empty list might be meant as: no client, or as: every client."""
    with pytest.raises(UsageError, match="or none at all"):
        Server("shop", auth=auth)


def test_gate_of_a_server_follows_its_auth() -> None:
    app = Server("shop")
    assert (app.auth, app.gate) == (None, None)
    app.auth = find_user
    assert app.gate is not None
    app.auth = None
    assert app.gate is None
