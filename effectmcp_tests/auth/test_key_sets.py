"""The keys of an issuer: the table of `key_sets`, row by row, and what hostile ones list."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest
from attrs import evolve

from effectmcp.auth import CredentialsError, Identity
from effectmcp.auth.signatures import public_key
from effectmcp.fetching.issuers import metadata_of
from effectmcp.fetching.requests import Fetch, Fetched, FetchError, fetch_all

from .issuer import (
    URL,
    Door,
    Issuer,
    document,
    door,
    each,
    encoded,
    key,
    presented,
    public,
    token,
)

METADATA = f"{URL}/.well-known/oauth-authorization-server"
FRESH, STALE, PAUSE = 600, 86_400, 30


def known(**options: Any) -> str:
    return token(exp=1_900_000_000, **options)


def unknown() -> str:
    return known(header={"kid": "unknown"})


def warm() -> Door:
    """A server that has fetched the keys."""
    one = door()
    one.admits(known())
    return one


def fails(one: Door, of: str) -> CredentialsError:
    with pytest.raises(CredentialsError) as caught:
        one.admits(of)
    return caught.value


# ---- the table ----------------------------------------------------------------------


def test_keys_none_yet_are_fetched_for_a_known_key() -> None:
    one = warm()
    assert [fetch.url for fetch in one.issuer.fetches] == [METADATA, f"{URL}/keys"]
    assert all(fetch.near == URL for fetch in one.issuer.fetches)


def test_keys_none_yet_are_fetched_for_an_unknown_key() -> None:
    one = door()
    assert fails(one, unknown()).status == 401
    assert one.issuer.count() == 1


def test_keys_fresh_are_used() -> None:
    one = warm()
    one.clock.now += FRESH - 1
    for number in range(20):
        one.admits(known(jti=str(number)))
    assert one.issuer.count() == 1


def test_keys_fresh_are_fetched_for_an_unknown_key_after_the_pause() -> None:
    one = warm()
    one.clock.now += PAUSE - 1
    assert fails(one, unknown()).reason.startswith("key")
    assert one.issuer.count() == 1
    one.clock.now += 1
    for _ in range(20):
        fails(one, unknown())
    assert one.issuer.count() == 2


def test_keys_old_are_used_while_one_request_fetches() -> None:
    """For a known key, and for a token that is known."""
    one, first = warm(), known()
    one.clock.now += FRESH
    fetching = one.auth.identify(presented(known(jti="2")))
    request = next(fetching)
    one.admits(first)
    one.admits(known(jti="3"))
    assert one.issuer.count() == 1
    with pytest.raises(StopIteration):
        fetching.send(one.issuer.send(request))
    assert one.issuer.count() == 2


def test_keys_old_are_fetched_for_an_unknown_key() -> None:
    one = warm()
    one.clock.now += FRESH
    fails(one, unknown())
    assert one.issuer.count() == 2


def test_keys_being_fetched_are_waited_for_with_an_unknown_key() -> None:
    """Every request for them is shared, so the issuer gets one."""
    one = door()
    waiting = [one.auth.identify(presented(known(jti=str(n)))) for n in range(5)]
    waiting += [one.auth.identify(presented(unknown())) for _ in range(5)]
    asked = [next(one_of) for one_of in waiting]
    assert asked == [Fetch(url=METADATA, near=URL, is_shared=True)] * 10
    metadata = one.issuer.send(asked[0])
    asked = [one_of.send(metadata) for one_of in waiting]
    assert asked == [Fetch(url=f"{URL}/keys", near=URL, is_shared=True)] * 10
    keys = one.issuer.send(asked[0])
    for one_of in waiting[:5]:
        assert isinstance(ends(one_of, keys), Identity)
    for one_of in waiting[5:]:
        with pytest.raises(CredentialsError, match="key"):
            one_of.send(keys)
    assert one.auth._keys._ended == 1  # one has read them


def ends(one: Generator[Fetch, Fetched, Any], response: Fetched) -> Any:
    with pytest.raises(StopIteration) as caught:
        one.send(response)
    return caught.value.value


def test_keys_too_old_without_an_answer_admit_no_token() -> None:
    """Known tokens are refused, too: their key may have been withdrawn."""
    one = warm()
    one.issuer.is_down = True
    one.clock.now += FRESH + STALE - 1
    one.admits(known())
    one.admits(known(jti="2"))
    one.clock.now += PAUSE
    for of in (known(), known(), known(jti="3"), unknown()):
        error = fails(one, of)
        assert (error.status, error.error) == (503, None)
    one.issuer.is_down = False
    one.clock.now += PAUSE
    one.admits(known())


def test_keys_none_and_no_answer_is_tried_again_after_the_pause() -> None:
    one = door()
    one.issuer.is_down = True
    for _ in range(20):
        assert fails(one, known()).status == 503
    assert len(one.issuer.fetches) == 1
    one.clock.now += PAUSE
    assert fails(one, known()).status == 503
    assert len(one.issuer.fetches) == 2


# ---- rotation -----------------------------------------------------------------------


def test_keys_rotation_while_serving_refuses_no_token() -> None:
    """New keys are listed before they sign, and old ones after (two keys overlap)."""
    one, old, new = warm(), key(), key("second")
    one.issuer.keys = [public(old), public(new)]
    one.clock.now += PAUSE
    one.admits(known(by=new))
    one.admits(known(by=old))
    one.issuer.keys = [public(new)]
    one.clock.now += FRESH
    one.admits(known(by=new, jti="2"))
    fails(one, known(by=old))
    assert one.issuer.count() == 3


def test_keys_equal_ones_keep_known_tokens() -> None:
    one, good = warm(), known()
    version = one.auth._keys.version
    one.clock.now += FRESH
    one.admits(good)
    assert one.auth._keys.version == version


def test_keys_same_name_and_another_key_replaces_it() -> None:
    one = warm()
    other = key("another")
    one.issuer.keys = [public(other, kid="first")]
    one.clock.now += FRESH
    one.admits(known(by=other, header={"kid": "first"}))
    fails(one, known())


def test_keys_that_move_are_found_again() -> None:
    """The metadata is fetched again once the keys are not at the old URL."""
    one = warm()
    moved = f"{URL}/new"
    one.issuer.metadata["jwks_uri"] = moved
    one.issuer.documents = {
        f"{URL}/keys": Fetched(status=404),
        moved: document({"keys": [public(key("second"))]}),
    }
    one.clock.now += FRESH
    one.admits(known())  # the old ones, as this is an error
    one.clock.now += PAUSE
    one.admits(known(by=key("second")))


def test_keys_clock_that_is_set_back_does_not_stop_fetches() -> None:
    one = warm()
    one.clock.now -= 100_000
    fails(one, token(iat=None, header={"kid": "unknown"}))
    assert one.issuer.count() == 2


# ---- a leader that is gone ----------------------------------------------------------


def test_keys_leader_that_is_cancelled_frees_the_others() -> None:
    one = door()
    leader = one.auth.identify(presented(known()))
    other = one.auth.identify(presented(known(jti="2")))
    request = next(leader)
    next(other)
    leader.close()
    keys = other.send(one.issuer.send(request))
    assert isinstance(ends(other, one.issuer.send(keys)), Identity)
    # And what it has read is for all.
    one.admits(known(jti="3"))
    assert one.issuer.count() == 1


def test_keys_leader_that_is_cancelled_alone_delays_the_next_for_a_second() -> None:
    """Clients that disconnect cannot lock others out, and cause one fetch in a second."""
    one = door()
    for _ in range(100):
        found = one.auth.identify(presented(known()))
        with suppress(CredentialsError):
            one.issuer.send(next(found))
        found.close()
    assert len(one.issuer.fetches) == 1
    assert fails(one, known()).status == 503
    one.clock.now += 1
    one.admits(known())


def test_keys_of_a_pause_of_nothing_are_tried_at_once() -> None:
    one = door(keys_pause=0)
    found = one.auth.identify(presented(known()))
    next(found)
    found.close()
    one.admits(known())


def test_keys_follower_that_is_cancelled_changes_nothing() -> None:
    one = door(keys_pause=30)
    leader, follower = (one.auth.identify(presented(known(jti=x))) for x in "ab")
    next(leader)
    next(follower)
    follower.close()
    assert one.auth._keys._is_fetching
    assert one.auth._keys._wait > 1


def test_keys_many_who_wait_for_a_failure_read_nothing() -> None:
    one = door()
    waiting = [one.auth.identify(presented(known(jti=str(n)))) for n in range(3)]
    for one_of in waiting:
        next(one_of)
    for one_of in waiting:
        with pytest.raises(CredentialsError, match="told"):
            one_of.throw(FetchError(METADATA, "it cannot be reached"))
    assert one.auth._keys._ended == 1


# ---- which keys ---------------------------------------------------------------------


def weak() -> dict[str, Any]:
    """An RSA key of 1024 bits."""
    return {"kty": "RSA", "e": "AQAB", "n": "w" + "A" * 170, "kid": "weak"}


def unusable() -> dict[str, Any]:
    """Keys that must not check a token, by the reason."""
    rsa = public(key(algorithm="RS256"))
    short = "w" + "A" * 170
    return {
        "a secret": {"kty": "oct", "k": "AAAA", "kid": "first", "alg": "HS256"},
        "for encryption": public(key(), use="enc"),
        "not to verify": public(key(), key_ops=["encrypt"]),
        "private": key().as_dict(private=True),
        "short": weak(),
        "short, with zeros before": {**rsa, "n": "A" * 172 + short},
        "long": {**rsa, "n": "w" + "A" * 2_000},
        "slow": {**rsa, "e": encoded((2**100 + 1).to_bytes(13, "big"))},
        "without modulus": {"kty": "RSA", "e": "AQAB"},
        "modulus no text": {**rsa, "n": 5},
        "modulus no base64": {**rsa, "n": "!" * 342},
        "another curve": {**public(key()), "crv": "P-384"},
        "no curve": {"kty": "EC", "kid": "first", "x": "AA", "y": "AA"},
        "point not on the curve": {**public(key()), "y": public(key())["x"]},
        "algorithm no text": {**public(key()), "alg": ["ES256"]},
        "type no text": {**public(key()), "kty": ["EC"]},
        "unknown type": {"kty": "AKP", "kid": "first"},
        "X25519": {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "first"},
        "a text": "key",
        "a number": 5,
        "none": None,
        "empty": {},
    }


@pytest.mark.parametrize("reason", unusable())
def test_keys_unusable_ones_are_skipped(reason: str) -> None:
    """One bad key does not hide the good ones; alone, it counts as an empty set."""
    bad = unusable()[reason]
    assert public_key(bad) is None
    one = door(Issuer(keys=[bad, public(key())]))
    one.admits(known())
    one.admits(known(header={"kid": None}))
    alone = door(Issuer(keys=[bad]))
    assert fails(alone, known()).status in (401, 503)


DOCUMENTS: list[Any] = [
    *each("keys", [], {}, None, "keys", 5),
    *({}, [], "keys", None),
]


@pytest.mark.parametrize("content", DOCUMENTS, ids=str)
def test_keys_document_without_keys_changes_nothing(content: Any) -> None:
    one = warm()
    one.issuer.documents[f"{URL}/keys"] = document(content)
    one.clock.now += FRESH
    one.admits(known())
    cold = door(Issuer(documents={f"{URL}/keys": document(content)}))
    assert fails(cold, known()).status == 503


@pytest.mark.parametrize("status", [204, 301, 302, 404, 500])
def test_keys_other_statuses_change_nothing(status: int) -> None:
    """Redirects are not followed: the next place was not checked."""
    one = warm()
    moved = Fetched(status=status, headers={"location": "https://evil.example/keys"})
    one.issuer.documents[f"{URL}/keys"] = moved
    one.clock.now += FRESH
    one.admits(known())
    assert one.issuer.count() == 2
    assert not [one for one in one.issuer.fetches if "evil" in one.url]


def test_keys_set_of_thousands_is_cut() -> None:
    """A hostile set costs little, and the first hundred keys are used."""
    listed = [public(key(), kid=str(number)) for number in range(5_000)]
    one = door(Issuer(keys=listed))
    one.admits(known(header={"kid": "99"}))
    fails(one, known(header={"kid": "100"}))
    # Without a name, only a few are tried.
    assert len(list(one.auth._keys._look(None, "ES256"))) == 4


# ---- metadata -----------------------------------------------------------------------


def test_metadata_of_another_issuer_is_refused() -> None:
    """(2026-07-28, Authorization Server Metadata Discovery: MUST be identical.)"""
    for other in ("https://evil.example", URL + "/", None, 5):
        issuer = Issuer(metadata={"issuer": other})
        assert fails(door(issuer), known()).status == 503
        assert issuer.count() == 0


@pytest.mark.parametrize("named", [None, 5, ["https://idp.example/keys"]], ids=str)
def test_metadata_without_keys_is_refused(named: Any) -> None:
    one = door(Issuer(metadata={"jwks_uri": named}))
    assert fails(one, known()).status == 503


def test_metadata_is_not_asked_if_the_keys_url_is_given() -> None:
    one = door(keys_url=f"{URL}/keys")
    one.admits(known())
    assert [fetch.url for fetch in one.issuer.fetches] == [f"{URL}/keys"]


def places(issuer: str, status: int) -> list[str]:
    """The URLs that are tried, if each has the same status."""
    asked = []

    def send(request: Fetch) -> Fetched:
        asked.append(request.url)
        return Fetched(status=status)

    with pytest.raises(FetchError, match=f"status {status}"):
        fetch_all(metadata_of(issuer, near=issuer), send)
    return asked


def test_metadata_is_looked_for_at_each_place_in_order() -> None:
    """(2026-07-28, Authorization Server Metadata Discovery.)"""
    root = "https://idp.example/.well-known"
    assert places("https://idp.example", 404) == [
        f"{root}/oauth-authorization-server",
        f"{root}/openid-configuration",
    ]
    assert places("https://idp.example/one", 404) == [
        f"{root}/oauth-authorization-server/one",
        f"{root}/openid-configuration/one",
        "https://idp.example/one/.well-known/openid-configuration",
    ]


def test_metadata_of_a_failing_server_is_not_looked_for_elsewhere() -> None:
    assert len(places(URL, 500)) == 1


def test_metadata_is_found_at_a_later_place() -> None:
    where = "https://idp.example/one/.well-known/openid-configuration"
    found = {"issuer": f"{URL}/one", "jwks_uri": f"{URL}/keys"}

    def send(request: Fetch) -> Fetched:
        return document(found) if request.url == where else Fetched(status=404)

    assert fetch_all(metadata_of(f"{URL}/one", near=URL), send) == found


# ---- the log ------------------------------------------------------------------------


def test_keys_log_names_the_problem(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "effectmcp.auth")
    one = warm()
    one.issuer.is_down = True
    one.clock.now += FRESH
    one.admits(known())
    one.issuer.is_down = False
    one.issuer.keys.append(public(key("second")))
    one.clock.now += PAUSE
    one.admits(known(by=key("second")))
    assert [record.getMessage() for record in caplog.records] == [
        f"the keys of {URL} were not read: '{URL}/keys': it cannot be reached",
        f"{URL} has new keys",
    ]


def test_fetch_does_not_show_what_it_carries() -> None:
    """Requests to an issuer have the server's secret: `repr` is for logs."""
    request = Fetch(url=URL, near=URL, headers={"a": "secret"}, body=b"secret")
    assert "secret" not in repr(evolve(request, timeout=1))
