"""An authorization server in memory: its keys, its tokens, and its answers to requests.

Nothing here reaches a network: authenticators are generators of requests, and `Issuer`
answers them. Keys are made once, as RSA keys take long.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any

from attrs import define, field
from joserfc import jwk
from joserfc.jws import JWSRegistry

from effectmcp.auth import Identity, JWTAuth, Presented
from effectmcp.fetching.requests import Fetch, Fetched, FetchError, fetch_all

URL = "https://idp.example"
RESOURCE = "https://shop.example/mcp"
START = 1_800_000_000.0


def each(name: str, *values: Any) -> list[dict[str, Any]]:
    """A dictionary with one item, for each value."""
    return [{name: value} for value in values]


@define
class Clock:
    """The time, as a test sets it."""

    now: float = START

    def __call__(self) -> float:
        return self.now


# ---- keys ---------------------------------------------------------------------------


def key(name: str = "first", algorithm: str = "ES256", size: int = 2048) -> Any:
    """A private key: always the same one for equal arguments."""
    return _key(name, algorithm, size)


@cache
def _key(name: str, algorithm: str, size: int) -> Any:
    options: Any = {"parameters": {"kid": name}}
    if algorithm[:2] in ("RS", "PS"):
        return jwk.RSAKey.generate_key(size, **options)
    if algorithm.startswith("E") and algorithm[:2] != "ES":
        return jwk.OKPKey.generate_key("Ed25519", **options)
    curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm]
    return jwk.ECKey.generate_key(curve, **options)


def public(of: Any, **more: Any) -> dict[str, Any]:
    """The public key in JSON."""
    found = {**of.as_dict(private=False), **more}
    return {name: value for name, value in found.items() if value is not None}


# ---- tokens -------------------------------------------------------------------------


def encoded(data: bytes | str | Mapping[str, Any]) -> str:
    """A part of a token."""
    text = json.dumps(data) if isinstance(data, Mapping) else data
    raw = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(
    header: bytes | str | Mapping[str, Any],
    claims: bytes | str | Mapping[str, Any],
    by: Any,
    algorithm: str = "ES256",
) -> str:
    """A token, with any header."""
    text = f"{encoded(header)}.{encoded(claims)}"
    return f"{text}.{encoded(_signature(text, by, algorithm))}"


#: Signatures by text, key and algorithm. ECDSA and PSS draw random numbers; with this,
#: equal claims make equal tokens.
_signatures: dict[tuple[str, str, str], bytes] = {}


def _signature(text: str, by: Any, algorithm: str) -> bytes:
    name = "Ed25519" if algorithm == "EdDSA" else algorithm
    of = text, by.thumbprint(), algorithm
    if of not in _signatures:
        _signatures[of] = JWSRegistry.algorithms[name].sign(text.encode(), by)
    return _signatures[of]


def claims_of(**claims: Any) -> dict[str, Any]:
    """The claims of a token for ann; `None` leaves one out."""
    found = {
        "iss": URL,
        "aud": RESOURCE,
        "sub": "ann",
        "exp": START + 600,
        "iat": START - 10,
        "client_id": "a client",
        "jti": "1",
        **claims,
    }
    return {name: value for name, value in found.items() if value is not None}


def token(
    *,
    by: Any = None,
    algorithm: str = "ES256",
    header: Mapping[str, Any] | None = None,
    **claims: Any,
) -> str:
    """A token of the issuer; `None` leaves a claim, or a member of the header, out."""
    by = by or key(algorithm=algorithm)
    named = {"alg": algorithm, "typ": "at+jwt", "kid": by.kid, **(header or {})}
    given = {name: value for name, value in named.items() if value is not None}
    return signed(given, claims_of(**claims), by, algorithm)


def proof(
    for_token: str,
    *,
    by: Any = None,
    algorithm: str = "ES256",
    header: Mapping[str, Any] | None = None,
    **claims: Any,
) -> str:
    """A proof (DPoP) for a request with a token; `None` leaves a member out."""
    by = by or key("owner", algorithm)
    named = {"typ": "dpop+jwt", "alg": algorithm, "jwk": bare(by), **(header or {})}
    digest = hashlib.sha256(for_token.encode()).digest()
    said = {
        "htm": "POST",
        "htu": RESOURCE,
        "ath": encoded(digest),
        "iat": START,
        "jti": "a proof",
        **claims,
    }
    given = {name: value for name, value in said.items() if value is not None}
    return signed(
        {name: value for name, value in named.items() if value is not None},
        given,
        by,
        algorithm,
    )


def bare(of: Any) -> dict[str, Any]:
    """A public key without a name, for proofs."""
    return public(of, kid=None)


# ---- the issuer ---------------------------------------------------------------------


@define(eq=False)
class Issuer:
    """An authorization server.

    Attributes:
        url: Its URL.
        keys: Its public keys.
        metadata: What its metadata says, beside its URL and where its keys are.
        documents: By URL: other responses.
        is_down: Whether it cannot be reached.
        fetches: The requests that it got.
    """

    url: str = URL
    keys: list[Any] = field(factory=lambda: [public(key())])
    metadata: dict[str, Any] = field(factory=dict)
    documents: dict[str, Fetched | Callable[[Fetch], Fetched]] = field(factory=dict)
    is_down: bool = False
    fetches: list[Fetch] = field(factory=list)

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    def count(self) -> int:
        """Return how many requests for its keys it got."""
        return sum(one.url == self.keys_url for one in self.fetches)

    def send(self, request: Fetch) -> Fetched:
        self.fetches.append(request)
        if self.is_down:
            raise FetchError(request.url, "it cannot be reached")
        given = self.documents.get(request.url)
        if given is not None:
            return given if isinstance(given, Fetched) else given(request)
        if request.url == self.keys_url:
            return document({"keys": self.keys})
        if request.url.endswith("/.well-known/oauth-authorization-server"):
            return document(
                {"issuer": self.url, "jwks_uri": self.keys_url, **self.metadata}
            )
        return Fetched(status=404)


def document(content: Any, status: int = 200) -> Fetched:
    """A response that is a JSON document."""
    return Fetched(status=status, body=json.dumps(content).encode())


def presented(
    of: str | None,
    scheme: str = "Bearer",
    *,
    method: str = "POST",
    address: str | None = "192.0.2.1",
    **headers: str,
) -> Presented:
    """The credentials of a request with a token."""
    if of is not None:
        headers["authorization"] = f"{scheme} {of}"
    return Presented(method=method, headers=headers, address=address)


def identify(auth: Any, given: Presented, send: Callable[[Fetch], Fetched]) -> Identity:
    """The identity that an authenticator finds."""
    found = auth.identify(given)
    if isinstance(found, Generator):
        found = fetch_all(found, send)
    assert isinstance(found, Identity)
    return found


@define(eq=False)
class Door:
    """A `JWTAuth`, with its issuer and its clock."""

    issuer: Issuer
    clock: Clock
    auth: JWTAuth

    def admits(self, of: str, scheme: str = "Bearer", **headers: str) -> Identity:
        return identify(self.auth, presented(of, scheme, **headers), self.issuer.send)


def door(issuer: Issuer | None = None, **options: Any) -> Door:
    """A `JWTAuth` for the issuer of `token`."""
    issuer, clock = issuer or Issuer(), Clock()
    given = {"issuer": issuer.url, "resource": RESOURCE, "clock": clock, **options}
    return Door(issuer, clock, JWTAuth(**given))
