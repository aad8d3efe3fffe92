"""`effectmcp call` and `effectmcp serve --auth`, with a browser between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .chromium import Chromium
from .desks import Desk, desk, finish
from .provider import Provider
from .shops import Shop, shop

pytestmark = pytest.mark.conformance

LOGIN = ["login", "consent", "end"]
#: The user is still known to the provider.
AGAIN = ["consent", "end"]


@pytest.mark.parametrize(
    ("option", "algorithm"),
    [("--loop=trio", "ES256"), ("--loop=asyncio", "RS256"), ("--workers=2", "ES256")],
)
def test_call_logs_in_once_in_a_browser(
    provider: Provider, ann: Desk, tmp_path: Path, option: str, algorithm: str
) -> None:
    provider.set(algorithm=algorithm)
    with shop(provider, tmp_path, option) as served:
        assert ann.run("call", served.url, "whoami") == "ann orders:read\n"
        ((login, consent, end),) = ann.user.seen
        assert [login.kind, consent.kind, end.kind] == LOGIN
        assert "orders:read" in consent.text
        assert "orders:write" not in consent.text
        assert "You can close this page" in end.text
        assert ann.run("call", served.url, "whoami") == "ann orders:read\n"
    assert len(ann.user.seen) == 1
    counts = provider.counts()
    assert counts["registration"] == counts["authorization_code"] == 1
    assert not counts["refresh_token"]


def test_call_whose_tool_asks_and_needs_a_login(plain_shop: Shop, ann: Desk) -> None:
    """The sealed state of the question is bound to the user."""
    found = ann.run("call", plain_shop.url, "survey", "--answer", 'elicit-1="red"')
    assert found == "red it is\n"


def test_expired_token_is_renewed_without_the_user(
    provider: Provider, plain_shop: Shop, ann: Desk
) -> None:
    ann.run("call", plain_shop.url, "whoami")
    first = ann.kept["tokens"]
    ann.age()
    assert ann.run("call", plain_shop.url, "whoami") == "ann orders:read\n"
    second = ann.kept["tokens"]
    assert {"access", "refresh"} <= {key for key in first if first[key] != second[key]}
    counts = provider.counts()
    assert counts["refresh_token"] >= 1
    assert not counts["invalid_grant"]
    assert ann.user.kinds == [LOGIN]


def test_refresh_token_outlives_a_failure_of_the_provider(
    provider: Provider, plain_shop: Shop, ann: Desk
) -> None:
    ann.run("call", plain_shop.url, "whoami")
    kept = ann.kept["tokens"]["refresh"]
    ann.age()
    provider.set(fails=True)
    # The server still accepts the token, as clocks may differ.
    assert ann.run("call", plain_shop.url, "whoami") == "ann orders:read\n"
    assert provider.counts()["/token"] >= 2
    assert ann.kept["tokens"]["refresh"] == kept
    provider.set(fails=False)
    assert ann.run("call", plain_shop.url, "whoami") == "ann orders:read\n"
    assert provider.counts()["refresh_token"] >= 1


def test_tool_with_a_scope_makes_the_user_consent_again(
    provider: Provider, plain_shop: Shop, ann: Desk
) -> None:
    ann.run("call", plain_shop.url, "whoami")
    first = ann.access
    assert ann.run("call", plain_shop.url, "order", "title=Dune") == "Ordered Dune\n"
    assert ann.user.kinds == [LOGIN, AGAIN]
    assert "orders:write" in ann.user.seen[1][0].text
    assert ann.access != first
    found = ann.run("call", plain_shop.url, "whoami")
    assert found == "ann orders:read orders:write\n"
    assert len(ann.user.seen) == 2


def test_call_of_an_unknown_tool_names_the_known_ones(
    plain_shop: Shop, ann: Desk
) -> None:
    status, wrote = ann.fail("call", plain_shop.url, "ordr", "title=Dune")
    assert status == 2
    assert "there is no tool 'ordr'; there is whoami, survey\n" in wrote


def test_user_who_cancels_gets_no_result(plain_shop: Shop, ann: Desk) -> None:
    ann.user.declines = True
    status, wrote = ann.fail("call", plain_shop.url, "whoami")
    assert status == 4
    assert "access_denied" in wrote
    assert len(ann.user.seen) == 1
    ann.user.declines = False
    assert ann.run("call", plain_shop.url, "whoami") == "ann orders:read\n"


def test_two_calls_at_once_log_in_once(
    provider: Provider, plain_shop: Shop, ann: Desk
) -> None:
    calls = [ann.start("call", plain_shop.url, "whoami") for _ in range(2)]
    assert [finish(one) for one in calls] == ["ann orders:read\n"] * 2
    assert ann.user.kinds == [LOGIN]
    counts = provider.counts()
    assert counts["registration"] == counts["authorization_code"] == 1


def test_two_users_are_two_callers(
    plain_shop: Shop, ann: Desk, chromium: Chromium, tmp_path: Path
) -> None:
    with desk(chromium.user("bob"), tmp_path / "bob") as bob:
        assert bob.run("call", plain_shop.url, "whoami") == "bob orders:read\n"
        assert ann.run("call", plain_shop.url, "whoami") == "ann orders:read\n"


def test_program_logs_in_with_its_secret(
    provider: Provider, plain_shop: Shop, ann: Desk
) -> None:
    ann.variables["EFFECTMCP_CLIENT_SECRET"] = "robot secret"
    options = [
        "--client-id=robot",
        f"--issuer={provider.issuer}",
        "--client-credentials",
    ]
    for _ in range(2):
        found = ann.run("call", plain_shop.url, "whoami", *options)
        assert found == "robot orders:read\n"
    assert "whoami" in ann.run("list", plain_shop.url, *options)
    assert provider.counts()["client_credentials"] == 1
    assert not ann.user.seen
