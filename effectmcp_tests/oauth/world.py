"""A server and its authorization servers in memory, and a user with a browser.

Nothing here reaches a network: a login is a generator of requests, and `World` answers
them. The authorization server is strict: only a code that it issued leads to a token,
with the verifier, the redirect URI, the client and the resource of the first request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, unquote_plus, urlencode, urlsplit

from attrs import define, field

from effectmcp.auth.signatures import is_signed, public_key, read_jwt, thumbprint
from effectmcp.fetching.requests import Fetch, Fetched, FetchError
from effectmcp.oauth import Login, OAuth, Registration
from effectmcp.oauth.grants import LoginFlow, Redirect, Visit
from effectmcp.oauth.login import AuthRefusal

URL = "https://shop.example/mcp"
ISSUER = "https://login.example"
OTHER = "https://other.example"
RETURN = "http://127.0.0.1:4711/callback"
START = 1_800_000_000.0

RESOURCE_PLACE = "/.well-known/oauth-protected-resource"
OAUTH_PLACE = "/.well-known/oauth-authorization-server"
OPENID_PLACE = "/.well-known/openid-configuration"

Answer = Callable[[Fetch], Fetched]


def json_response(found: Any, status: int = 200, **headers: str) -> Fetched:
    """A response with JSON."""
    return Fetched(status=status, headers=headers, body=json.dumps(found).encode())


NOT_FOUND = Fetched(status=404)


def without_none(found: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are not `None`."""
    return {name: one for name, one in found.items() if one is not None}


@define
class Clock:
    """The time, as a test sets it."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@define
class Texts:
    """A source of strings: new each time, and alike in every run."""

    made: list[str] = field(factory=list)

    def __call__(self) -> str:
        self.made.append(f"text-{len(self.made):03}-{'x' * 40}")
        return self.made[-1]


class ScriptedVisitor:
    """A visitor that no test calls: `World` plays the user itself."""

    async def redirect_uri(self, preferred: str | None) -> str:
        """Fail."""
        raise AssertionError("the world is asked instead")

    async def visit(self, url: str, state: str) -> str:
        """Fail."""
        raise AssertionError("the world is asked instead")

    async def close(self) -> None:
        """Do nothing."""


@define(eq=False)
class Authority:
    """An authorization server.

    Attributes:
        issuer: Its name.
        changes: Members of its metadata; `None` removes one.
        places: The well-known URLs of its metadata; `None` for the usual one.
        says_iss: What `iss` is in its answers; `None` leaves it out.
        answers: Parameters to add to its answers, or to replace.
        token_changes: Members to change in its token responses.
        nonce: The nonce that its proofs need.
        refuses: What its token endpoint answers, once for each.
        secrets: The secrets of its clients; an empty one for a public client.
        codes: The codes that it issued, with the parameters of the request.
        tokens: The access tokens that it issued, with their scopes and resources.
        refreshes: The refresh tokens that can be used.
        registered: The requests for registration.
        issued: How many tokens it issued.
    """

    issuer: str = ISSUER
    changes: dict[str, Any] = field(factory=dict)
    places: tuple[str, ...] | None = None
    says_iss: str | None = None
    answers: dict[str, str | None] = field(factory=dict)
    token_changes: dict[str, Any] = field(factory=dict)
    nonce: str | None = None
    refuses: list[Fetched] = field(factory=list)
    secrets: dict[str, str] = field(factory=dict)
    codes: dict[str, dict[str, str]] = field(factory=dict)
    tokens: dict[str, dict[str, Any]] = field(factory=dict)
    refreshes: dict[str, dict[str, Any]] = field(factory=dict)
    registered: list[dict[str, Any]] = field(factory=list)
    issued: int = 0

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata."""
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": [
                "none",
                "client_secret_basic",
                "client_secret_post",
            ],
            **self.changes,
        }
        return without_none(found)

    def urls(self) -> tuple[str, ...]:
        """Return the URLs of the metadata."""
        if self.places is not None:
            return self.places
        parts = urlsplit(self.issuer)
        path = OAUTH_PLACE + parts.path.rstrip("/")
        return (parts._replace(path=path).geturl(),)

    def answer(self, request: Fetch) -> Fetched | None:
        """The response to a request; `None` if it is for another server."""
        metadata = self.metadata
        if request.url in self.urls():
            return json_response(metadata)
        if request.url == metadata.get("registration_endpoint"):
            return self._register(request)
        if request.url == metadata.get("token_endpoint"):
            if self.refuses:
                return self.refuses.pop(0)
            return self._token(request)
        return None

    def _register(self, request: Fetch) -> Fetched:
        assert request.method == "POST"
        wanted = json.loads(request.body)
        self.registered.append(wanted)
        name = f"client-{len(self.registered)}-of-{urlsplit(self.issuer).hostname}"
        found = {**wanted, "client_id": name}
        self.secrets[name] = ""
        if wanted.get("token_endpoint_auth_method", "none") != "none":
            found["client_secret"] = self.secrets[name] = f"secret-of-{name}"
        return json_response(found, 201)

    def authorize(self, url: str) -> str:
        """Return the URL that the browser is sent to, after the user has agreed."""
        given = parse_qs(urlsplit(url).query, keep_blank_values=True)
        assert all(len(texts) == 1 for texts in given.values()), given
        asked = {name: texts[0] for name, texts in given.items()}
        code = f"code-{len(self.codes) + 1}-of-{self.issuer}"
        self.codes[code] = asked
        answer = {
            "code": code,
            "state": asked["state"],
            "iss": self.says_iss,
            **self.answers,
        }
        return f"{asked['redirect_uri']}?{urlencode(without_none(answer))}"

    def _client(self, request: Fetch, form: Mapping[str, str]) -> str:
        """The client that has proved who it is."""
        given, secret = form.get("client_id"), form.get("client_secret", "")
        if (basic := request.headers.get("Authorization")) is not None:
            assert basic.startswith("Basic ")
            pair = base64.b64decode(basic[6:]).decode().split(":")
            given, secret = map(unquote, pair)
        assert given is not None
        expected = self.secrets.get(given)
        if expected is None and given.startswith("https://"):
            expected = ""  # a document describes this client
        return given if expected == secret else ""

    def _token(self, request: Fetch) -> Fetched:
        assert request.method == "POST"
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True)
        form = dict(pairs)
        assert len(form) == len(pairs)
        key = None
        if "DPoP" in request.headers:
            header, claims = read_jwt(request.headers["DPoP"])
            public: Any = header["jwk"]
            own = public_key(public)
            assert is_signed(request.headers["DPoP"], own, "ES256")
            assert (claims["htm"], claims["htu"]) == ("POST", request.url)
            assert "ath" not in claims
            if self.nonce is not None and claims.get("nonce") != self.nonce:
                return json_response(
                    {"error": "use_dpop_nonce"}, 400, **{"dpop-nonce": self.nonce}
                )
            key = thumbprint(own)
        client = self._client(request, form)
        if not client:
            return json_response({"error": "invalid_client"}, 401)
        match form["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(form["code"], None)
                if asked is None:
                    return json_response({"error": "invalid_grant"}, 400)
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                same = ("redirect_uri", "resource")
                if (
                    asked["code_challenge"] != challenge
                    or asked["client_id"] != client
                    or any(asked[name] != form[name] for name in same)
                ):
                    return json_response({"error": "invalid_grant"}, 400)
                scope = asked.get("scope", "")
            case "refresh_token":
                issued = self.refreshes.pop(form["refresh_token"], None)
                if issued is None or issued["client"] != client:
                    return json_response({"error": "invalid_grant"}, 400)
                scope = issued["scope"]
            case _:
                scope = form.get("scope", "")
        self.issued += 1
        number = self.issued
        access = f"access-{number}-of-{urlsplit(self.issuer).hostname}"
        issued = {
            "scope": scope,
            "resource": form["resource"],
            "client": client,
            "key": key,
        }
        found = {
            "access_token": access,
            "token_type": "Bearer" if key is None else "DPoP",
            "expires_in": 3600,
            **self.token_changes,
        }
        self.tokens[access] = issued
        if "refresh_token" not in self.token_changes:
            found["refresh_token"] = f"refresh-{number}-of-{self.issuer}"
            self.refreshes[found["refresh_token"]] = issued
        return json_response(without_none(found))


@define(eq=False)
class World:
    """A server, its authorization servers, and a user.

    Attributes:
        url: The URL of the server.
        authorities: The authorization servers that exist.
        trusted: The issuers that the server names.
        document: Members of the server's metadata; `None` removes one.
        places: The URLs of this metadata.
        challenge: The parameters of its challenges.
        scheme: The scheme of its challenges.
        scopes: The scopes that a request needs.
        nonce: The nonce that proofs for the server need.
        answers: Answers to URLs, before all others.
        visitor: What the user does on a page; `None` to agree.
        return_to: Where pages return to.
        fetched: The requests that were sent.
        visits: The pages that the user was shown.
        redirects: The preferred places to return to.
        called: The headers of the requests to the server.
    """

    url: str = URL
    authorities: list[Authority] = field(factory=lambda: [Authority()])
    trusted: list[Any] | None = None
    document: dict[str, Any] = field(factory=dict)
    places: tuple[str, ...] | None = None
    challenge: dict[str, str | None] = field(factory=dict)
    scheme: str = "Bearer"
    scopes: tuple[str, ...] = ()
    nonce: str | None = None
    answers: dict[str, Fetched | Answer] = field(factory=dict)
    visitor: Callable[[Visit], str] | None = None
    return_to: str | None = RETURN
    fetched: list[Fetch] = field(factory=list)
    visits: list[Visit] = field(factory=list)
    redirects: list[str | None] = field(factory=list)
    called: list[dict[str, str]] = field(factory=list)

    # ---- requests ----

    @property
    def urls(self) -> list[str]:
        """The URLs that were asked, in order."""
        return [one.url for one in self.fetched]

    def forms(self, url: str | None = None) -> list[dict[str, str]]:
        """The forms that were sent to a token endpoint."""
        url = url or self.authorities[0].metadata["token_endpoint"]
        bodies = [one.body.decode() for one in self.fetched if one.url == url]
        return [dict(parse_qsl(body, keep_blank_values=True)) for body in bodies]

    def pages(self) -> list[dict[str, str]]:
        """The parameters of the pages that the user was shown."""
        return [dict(parse_qsl(urlsplit(one.url).query)) for one in self.visits]

    def metadata(self) -> dict[str, Any]:
        """The metadata of the server."""
        named = self.trusted
        if named is None:
            named = [one.issuer for one in self.authorities]
        found = {"resource": self.url, "authorization_servers": named, **self.document}
        return without_none(found)

    def answer(self, request: Fetch) -> Fetched:
        """The response to a request."""
        self.fetched.append(request)
        found = self.answers.get(request.url)
        if found is not None:
            return found if isinstance(found, Fetched) else found(request)
        parts = urlsplit(self.url)
        place = parts._replace(path=RESOURCE_PLACE + parts.path).geturl()
        if request.url in (self.places if self.places is not None else (place,)):
            return json_response(self.metadata())
        for authority in self.authorities:
            if (response := authority.answer(request)) is not None:
                return response
        return NOT_FOUND

    def visit(self, visit: Visit) -> str:
        """Return the URL that the user is sent back to."""
        self.visits.append(visit)
        if self.visitor is not None:
            return self.visitor(visit)
        page = visit.url.partition("?")[0]
        for authority in self.authorities:
            known = str(authority.metadata.get("authorization_endpoint"))
            if known.partition("?")[0] == page:
                return authority.authorize(visit.url)
        raise AssertionError(f"no authorization server has the page {page}")

    def drive(self, flow: LoginFlow[Any]) -> Any:
        """Play a generator of requests to its end; return its result."""
        answer: Any = None
        try:
            request = next(flow)
            while True:
                try:
                    match request:
                        case Fetch():
                            answer = self.answer(request)
                        case Redirect():
                            self.redirects.append(request.preferred)
                            answer = self.return_to or request.preferred or RETURN
                        case Visit():
                            answer = self.visit(request)
                except FetchError as exc:
                    request = flow.throw(exc)
                else:
                    request = flow.send(answer)
        except StopIteration as exc:
            return exc.value

    # ---- the server ----

    def call(self, headers: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        """The status of a request to the server, and the headers of its response."""
        self.called.append(dict(headers))
        scheme, _, access = headers.get("Authorization", "").partition(" ")
        issued = None
        named = self.metadata().get("authorization_servers")
        for authority in self.authorities:
            if isinstance(named, list) and authority.issuer in named:
                issued = issued or authority.tokens.get(access)
        scope = " ".join(self.scopes) or None
        if issued is None or issued["resource"] != self.metadata().get("resource"):
            return 401, self._challenge(scope=scope)
        if issued["key"] is not None:
            assert scheme == "DPoP"
            header, claims = read_jwt(headers["DPoP"])
            key: Any = header["jwk"]
            assert thumbprint(public_key(key)) == issued["key"]
            assert (claims["htm"], claims["htu"]) == ("POST", self.url)
            if self.nonce is not None and claims.get("nonce") != self.nonce:
                found = self._challenge(error="use_dpop_nonce")
                return 401, {**found, "dpop-nonce": self.nonce}
        else:
            assert scheme == "Bearer"
        if not set(self.scopes) <= set(issued["scope"].split()):
            return 403, self._challenge(error="insufficient_scope", scope=scope)
        return 200, {}

    def _challenge(self, **more: str | None) -> dict[str, str]:
        given = without_none({**more, **self.challenge})
        text = ", ".join(f'{name}="{one}"' for name, one in given.items())
        return {"www-authenticate": f"{self.scheme} {text}".strip()}

    def use(self, login: Login, attempts: int = 3) -> int:
        """Call the server as a client does; return the status in the end."""
        logins = nonces = 0
        while True:
            status, headers = self.call(login.sign("POST"))
            refused = login.read(status, headers)
            if refused is None or max(logins, nonces) >= attempts:
                return status
            self.drive(login.recover(refused, is_first=logins == 0))
            if refused.wants_nonce:
                nonces += 1
            else:
                logins += 1

    # ---- places of secrets -----

    def places_of(self, secret: str) -> set[str]:
        """The URLs to which a secret was sent, in any part of a request."""
        found = set()
        for one in self.fetched:
            if secret in _everything_in(one):
                found.add(one.url)
        for visit in self.visits:
            if secret in _decodings(visit.url):
                found.add(visit.url.partition("?")[0])
        for headers in self.called:
            if any(secret in text for text in headers.values()):
                found.add(self.url)
        return found


def _decodings(text: str) -> str:
    """A string, and the same without the encodings of URLs."""
    return "\n".join((text, unquote_plus(text), unquote_plus(unquote_plus(text))))


def _everything_in(request: Fetch) -> str:
    texts = [request.url, request.body.decode("utf-8", "replace")]
    for value in request.headers.values():
        texts.append(value)
        if value.startswith("Basic "):
            texts.append(base64.b64decode(value[6:]).decode())
    return "\n".join(map(_decodings, texts))


def login_at(world: World, clock: Clock | None = None, **options: Any) -> Login:
    """A login of a new client at a server."""
    options = {"visitor": ScriptedVisitor(), **options}
    return Login(OAuth(**options), world.url, clock=clock or Clock(), new_text=Texts())


def refusal(
    status: int = 401, *, scopes: Iterable[str] = (), **parameters: str
) -> AuthRefusal:
    """A refusal by a server."""
    from effectmcp.protocol.authorization import Challenge

    given = {**parameters}
    if scopes:
        given["scope"] = " ".join(scopes)
    return AuthRefusal(
        status=status,
        challenge=Challenge("bearer", given) if given else None,
        scopes=tuple(scopes) or None,
    )


def given_client(**fields: Any) -> Registration:
    """A client that was registered beforehand."""
    return Registration(**{"client_id": "given", "issuer": ISSUER, **fields})
