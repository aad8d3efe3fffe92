"""The life of tokens: keys that change, tokens that are revoked or bound to a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from effectmcp.client import Client, OverHttp
from effectmcp.oauth import Browser, MemoryTokens, OAuth

from .chromium import Chromium, User
from .desks import Desk, desk
from .provider import PATIENCE, Provider
from .shops import Shop, shop
from .test_command_line import AGAIN, LOGIN

pytestmark = pytest.mark.conformance

#: Seconds after which the server asks about a token again, and may fetch keys again.
LATER = 301

#: Seconds that a token lasts.
LIFETIME = 3600


@pytest.fixture
def keyed(provider: Provider, tmp_path: Path) -> Iterator[Shop]:
    """A server that checks signed tokens."""
    with shop(provider, tmp_path, auth="keys") as found:
        yield found


@pytest.fixture
def asking(provider: Provider, tmp_path: Path) -> Iterator[Shop]:
    """A server that asks about opaque tokens."""
    with shop(provider, tmp_path, auth="introspection") as found:
        yield found


@pytest.fixture(scope="module")
def proving(
    module_provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A server that only takes tokens that are bound to a key."""
    with shop(module_provider, tmp_path_factory.mktemp("shop"), auth="proofs") as found:
        yield found


# ---- keys that change ----


def test_keys_rotate_while_the_server_runs(
    provider: Provider, keyed: Shop, ann: Desk, chromium: Chromium, tmp_path: Path
) -> None:
    ann.run("call", keyed.url, "whoami")
    old = ann.access
    assert provider.counts()["/jwks"] == 1
    provider.rotate()
    keyed.pass_time(LATER)
    with desk(chromium.user("bob"), tmp_path / "bob") as bob:
        assert bob.run("call", keyed.url, "whoami") == "bob orders:read\n"
        new = bob.access
    for token in (old, new, old, new):
        assert keyed.ask(token).status_code == 200
    assert provider.counts()["/jwks"] == 1


def test_token_of_a_withdrawn_key_is_refused(
    provider: Provider, keyed: Shop, ann: Desk, chromium: Chromium, tmp_path: Path
) -> None:
    """A server that has accepted it before refuses it, too. Its owner renews it."""
    ann.run("call", keyed.url, "whoami")
    old = ann.access
    provider.rotate(keeps=False)
    keyed.pass_time(LATER)
    assert keyed.ask(old).status_code == 200
    with desk(chromium.user("bob"), tmp_path / "bob") as bob:
        bob.run("call", keyed.url, "whoami")
    assert keyed.ask(old).status_code == 401
    assert ann.run("call", keyed.url, "whoami") == "ann orders:read\n"
    assert ann.user.kinds == [LOGIN]


# ---- tokens that are revoked ----


def revoke(provider: Provider, kept: Any, name: str) -> None:
    """Revoke a token that a client keeps."""
    (client,) = kept["clients"].values()
    form = {"token": kept["tokens"][name], "client_id": client["client_id"]}
    url = f"{provider.issuer}/token/revocation"
    assert httpx2.post(url, data=form, timeout=PATIENCE).status_code == 200


def test_revoked_token_is_accepted_until_the_cache_ends(
    provider: Provider, asking: Shop, ann: Desk
) -> None:
    ann.run("call", asking.url, "whoami")
    revoked = ann.access
    assert revoked.count(".") == 0
    assert provider.counts()["/token/introspection"] == 1
    revoke(provider, ann.kept, "access")
    assert asking.ask(revoked).status_code == 200
    assert not provider.counts()["/token/introspection"]
    asking.pass_time(LATER)
    refusal = asking.ask(revoked)
    assert refusal.status_code == 401
    assert 'error="invalid_token"' in refusal.headers["www-authenticate"]


def test_revoked_refresh_token_leads_to_a_login(
    provider: Provider, asking: Shop, ann: Desk
) -> None:
    """With the refresh token, this provider revokes the access token."""
    ann.run("call", asking.url, "whoami")
    revoke(provider, ann.kept, "refresh")
    asking.pass_time(LATER)
    assert ann.run("call", asking.url, "whoami") == "ann orders:read\n"
    assert ann.user.kinds == [LOGIN, AGAIN]
    counts = provider.counts()
    assert counts["invalid_grant"] == counts["registration"] == 1


def test_client_that_the_provider_has_forgotten_registers_again(
    provider: Provider, keyed: Shop, ann: Desk
) -> None:
    ann.run("call", keyed.url, "whoami")
    provider.lose()
    keyed.pass_time(2 * LIFETIME)
    provider.set(lifetime=3 * LIFETIME)
    assert ann.run("call", keyed.url, "whoami") == "ann orders:read\n"
    counts = provider.counts()
    assert counts["invalid_client"] == 1
    assert counts["registration"] == 2
    assert len(ann.user.seen) == 2


def test_token_for_another_server_is_refused(
    plain_shop: Shop, keyed: Shop, ann: Desk
) -> None:
    """The issuer and the scope are right, and only the audience is not."""
    ann.run("call", plain_shop.url, "whoami")
    assert plain_shop.ask(ann.access).status_code == 200
    assert keyed.ask(ann.access).status_code == 401


# ---- tokens that are bound to a key ----


def test_server_that_requires_proofs_gets_them(proving: Shop, ann: Desk) -> None:
    """The provider requires a nonce in each proof, and the client fetches it first."""
    for _ in range(2):
        assert ann.run("call", proving.url, "whoami") == "ann orders:read\n"
    assert ann.user.kinds == [LOGIN]
    assert ann.kept["tokens"]["scheme"] == "DPoP"
    for scheme in ("Bearer", "DPoP"):
        assert proving.ask(ann.access, scheme).status_code == 401


def test_bound_token_is_renewed(provider: Provider, proving: Shop, ann: Desk) -> None:
    for _ in range(2):
        assert ann.run("call", proving.url, "whoami") == "ann orders:read\n"
        ann.age()
    assert provider.counts()["refresh_token"] == 1
    assert ann.user.kinds == [LOGIN]


def test_server_that_requires_proofs_refuses_others(
    provider: Provider, proving: Shop, ann: Desk
) -> None:
    refusal = proving.ask(provider.token_of_program(proving.url))
    assert refusal.status_code == 401
    assert refusal.headers["www-authenticate"].startswith("DPoP ")


async def test_client_that_always_proves_and_a_server_that_does_not_ask(
    plain_shop: Shop, user: User
) -> None:
    store = MemoryTokens()
    login = OAuth(visitor=Browser(open_url=user.visit), proofs="always", store=store)
    for _ in range(2):
        async with Client(OverHttp(plain_shop.url, auth=login)) as client:
            result = await client.call_tool("whoami", {})
            assert result.text == "ann orders:read"
    assert user.kinds == [LOGIN]
    kept = store.load(plain_shop.url)
    assert kept is not None
    assert '"scheme": "DPoP"' in kept
