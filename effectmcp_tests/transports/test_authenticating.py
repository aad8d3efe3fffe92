"""The options of the command that choose the callers."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from effectmcp import Server, UsageError, auth
from effectmcp.auth import APIKeys, JWTAuth
from effectmcp.auth.api_keys import key_line
from effectmcp.server.identity import Presented
from effectmcp.transports.authenticating import AuthSettings

ISSUER = "https://idp.example"
RESOURCE = "https://shop.example/mcp"


def kinds(app: Server) -> list[type]:
    assert isinstance(app.auth, list)
    return [type(one) for one in app.auth]


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys"
    path.write_text(key_line("ann", "emcp_a", ["b", "a"]))
    return str(path)


def test_settings_of_nothing_change_nothing() -> None:
    app = Server("shop", auth=len)
    AuthSettings().apply(app)
    assert app.auth is len


def test_settings_of_tokens() -> None:
    app = Server("shop")
    AuthSettings(issuers=(ISSUER,), resource=RESOURCE, scopes=("b", "a")).apply(app)
    assert kinds(app) == [JWTAuth]
    assert app.gate is not None
    metadata = app.gate.metadata()
    assert metadata is not None
    assert metadata["resource"] == RESOURCE
    assert metadata["authorization_servers"] == [ISSUER]
    assert metadata["scopes_supported"] == ["a", "b"]


def test_settings_of_keys_and_tokens(keys: str) -> None:
    """Each judges what it knows: a key is not sent to the issuer."""
    app = Server("shop")
    AuthSettings(issuers=(ISSUER,), resource=RESOURCE, api_keys=keys).apply(app)
    assert kinds(app) == [APIKeys, JWTAuth]
    assert app.gate is not None
    assert app.gate.is_quick
    headers = {"authorization": "Bearer emcp_a"}
    found = app.gate.identify(Presented(method="POST", headers=headers))
    assert (found.subject, found.scopes) == ("ann", {"a", "b"})


def test_settings_do_not_replace_the_servers_own(keys: str) -> None:
    app = Server("shop", auth=len)
    for one in (
        AuthSettings(api_keys=keys),
        AuthSettings(issuers=(ISSUER,), resource=RESOURCE),
    ):
        with pytest.raises(UsageError, match=r"the server has auth= of its own"):
            one.apply(app)
    assert app.auth is len


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (AuthSettings(api_keys="/nowhere/at/all"), "cannot be read"),
        (AuthSettings(issuers=("idp",), resource=RESOURCE), "JWTAuth(issuer='idp'"),
        (AuthSettings(issuers=(ISSUER,)), "JWTAuth(resource=''"),
        (AuthSettings(issuers=(ISSUER,), resource="shop.example"), "JWTAuth(resource="),
        (
            AuthSettings(issuers=(ISSUER,), resource=RESOURCE, scopes=("a b",)),
            "'a b' is not a scope",
        ),
    ],
)
def test_settings_that_are_wrong(settings: AuthSettings, words: str) -> None:
    app = Server("shop")
    with pytest.raises(UsageError) as caught:
        settings.apply(app)
    assert words in str(caught.value)
    assert app.auth is None


def test_settings_reach_a_worker_as_json() -> None:
    settings = AuthSettings(
        issuers=(ISSUER,), resource=RESOURCE, audience=("a", "b"), scopes=("c",)
    )
    text = json.dumps(attrs.asdict(settings, recurse=False))
    assert AuthSettings(**json.loads(text)) == settings


def test_issuer_that_this_server_would_not_ask() -> None:
    settings = AuthSettings(issuers=("http://idp.example",), resource=RESOURCE)
    with pytest.raises(UsageError, match="it has to be https"):
        settings.apply(Server("shop"))


def test_tokens_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        raise ImportError(f"{name} needs joserfc: pip install 'effectmcp[auth]'")

    monkeypatch.delitem(vars(auth), "JWTAuth", raising=False)
    monkeypatch.setattr(auth, "__getattr__", find)
    with pytest.raises(UsageError, match="pip install"):
        AuthSettings(issuers=(ISSUER,), resource=RESOURCE).apply(Server("shop"))
