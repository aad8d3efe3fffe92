"""Seal and open: a token gives its claims, or one and the same error."""

from __future__ import annotations

import base64
import logging
import pickle
import random
import string
import tracemalloc
import urllib.parse
from collections.abc import Iterator
from typing import Any, NoReturn

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectmcp import CanonicalError, UsageError
from effectmcp.engine import Journal
from effectmcp.errors import StateError, StateSizeError
from effectmcp.state import BoundCall, Claims, Keys, Sealer, codec, make_key, seal
from effectmcp.state.codec import INFLATED, MAX_TIME
from effectmcp.state.seal import BOUND, DIGEST_SIZE, whole_seconds

from .journals import CALL, STARTED, bomb, calls, claims, claims_of, entry, values

OLD, NEW, OTHER = (make_key(bytes([n]) * 32) for n in (1, 2, 3))
NOW = STARTED + 100
SEALER = Sealer(keys=Keys(OLD), audience="bookshop")
READABLE = attrs.evolve(SEALER, keys=Keys(OLD, readable=True))
CLAIMS = claims_of(
    entry("elicit-1", "accepted", {"value": "Ann"}),
    entry("step-1", "done", "receipt"),
    entry("sample-1", "accepted", "word " * 100),
)
TOKEN = SEALER.seal(CLAIMS, CALL, now=NOW)
OTHER_TOKEN = SEALER.seal(CLAIMS, CALL, now=NOW + 1)
SHORT_TOKEN = SEALER.seal(claims_of(), CALL, now=NOW)
READ = READABLE.seal(CLAIMS, CALL, now=NOW)


def reason_of(
    token: Any, sealer: Sealer = SEALER, call: BoundCall = CALL, now: int = NOW
) -> str:
    """Why `token` is refused; outside, every reason is the same error."""
    with pytest.raises(StateError) as caught:
        sealer.open(token, call, now=now)
    error = caught.value
    assert str(error) == "Invalid or expired requestState"
    assert repr(error) == "StateError('Invalid or expired requestState')"
    assert error.CODE == -32602
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    return error.reason


# ---- there and back -----------------------------------------------------------------


@given(claims, calls, st.integers(-100, 100_000), st.booleans())
def test_open_returns_the_sealed_claims(
    claims: Claims, call: BoundCall, age: int, readable: bool
) -> None:
    sealer = attrs.evolve(READABLE if readable else SEALER, refuse_at=10**6)
    sealer = attrs.evolve(sealer, life=10**6, warn_at=10**6)
    now = min(max(claims.started + age, 0), MAX_TIME)
    token = sealer.seal(claims, call, now=now)
    opened = sealer.open(token, call, now=max(now, claims.started))
    assert opened == claims
    assert sealer.seal(opened, call, now=now) == token


@pytest.mark.parametrize("sealer", [SEALER, READABLE], ids=["encrypted", "readable"])
def test_token_does_not_contain_the_request(sealer: Sealer) -> None:
    """Target, arguments, principal and audience are digests, and the flow id differs."""
    token = sealer.seal(CLAIMS, CALL, now=NOW)
    data, _ = sealer.keys.unwrap(token)
    for text in (b"order", b"tools/call", b"Dune", b"ann", b"bookshop"):
        assert text not in data
        assert text.decode() not in token


def test_token_changes_with_the_second_and_nothing_else() -> None:
    assert SEALER.seal(CLAIMS, CALL, now=NOW) == TOKEN
    assert SEALER.seal(CLAIMS, CALL, now=NOW + 1) != TOKEN


# ---- any input of a client ---------------------------------------------------------------


class Opened(Exception):
    """Something was done to a state before it was verified."""


def trap(*args: object, **kwargs: object) -> NoReturn:
    raise Opened


class Trap:
    decrypt = staticmethod(trap)


@pytest.fixture
def sealed_shut(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every attempt to decrypt, inflate or parse fail the test."""
    for sealer in (SEALER, READABLE):
        for key in sealer.keys._ring:
            monkeypatch.setattr(key, "cipher", Trap())
    monkeypatch.setattr(seal, "unpack", trap)
    monkeypatch.setattr("effectmcp.state.codec.zlib.decompressobj", trap)
    monkeypatch.setattr(codec, "loads", trap)
    yield
    # The traps work: verified tokens are then decrypted, or parsed.
    for sealer, token in ((SEALER, TOKEN), (READABLE, READ)):
        with pytest.raises(Opened):
            sealer.open(token, CALL, now=NOW)


BOTH = pytest.mark.parametrize(
    ("sealer", "token"),
    [(SEALER, TOKEN), (READABLE, READ)],
    ids=["encrypted", "readable"],
)
shut = pytest.mark.usefixtures("sealed_shut")
UNVERIFIED = ("malformed", "format", "forged")


def check_refused(token: str, sealer: Sealer) -> None:
    assert reason_of(token, sealer) in UNVERIFIED, token


@BOTH
@shut
def test_open_of_every_changed_bit(sealer: Sealer, token: str) -> None:
    """The bits of the token's characters, and of its two decoded parts."""
    for at, char in enumerate(token):
        for bit in range(8):
            check_refused(
                token[:at] + chr(ord(char) ^ 1 << bit) + token[at + 1 :], sealer
            )
    head, (body, signature) = token[:2], token[2:].split(".")
    for index, part in enumerate((body, signature)):
        raw = decode(part)
        for at in range(len(raw)):
            for bit in range(8):
                changed = bytearray(raw)
                changed[at] ^= 1 << bit
                parts = [body, signature]
                parts[index] = encode(bytes(changed))
                check_refused(head + ".".join(parts), sealer)


def decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@BOTH
@shut
def test_open_of_every_truncation(sealer: Sealer, token: str) -> None:
    for at in range(len(token)):
        check_refused(token[:at], sealer)
        check_refused(token[at + 1 :], sealer)
        check_refused(token[:at] + token[at + 1 :], sealer)


ODD = [*map(chr, range(0x100)), "\u0660", "\u2028", "\uff21", "\U0001d7ce", "\ud800"]


@BOTH
@shut
def test_open_of_every_added_character(sealer: Sealer, token: str) -> None:
    dot = token.index(".")
    for char in ODD:
        for at in (0, 1, 2, dot, dot + 1, len(token)):
            check_refused(token[:at] + char + token[at:], sealer)
        check_refused(char * 4 + token, sealer)
        check_refused(token + char * 4, sealer)


ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


@BOTH
@shut
def test_open_of_spare_bits(sealer: Sealer, token: str) -> None:
    """The last character of base64 may have bits that decoders ignore."""
    head, (body, signature) = token[:2], token[2:].split(".")
    ignored = 0
    for last in ALPHABET:
        for parts in ((body[:-1] + last, signature), (body, signature[:-1] + last)):
            if parts == (body, signature):
                continue
            ignored += [decode(part) for part in parts] == [
                decode(body),
                decode(signature),
            ]
            check_refused(head + ".".join(parts), sealer)
    # 43 characters encode 256 bits and have 2 to spare; the body's may have none.
    assert ignored >= 3


@pytest.mark.parametrize(("size", "same"), [(63, 16), (64, 4), (65, 1)])
def test_open_of_spare_bits_in_every_length_of_body(size: int, same: int) -> None:
    """Bodies with four, two and no bits to spare: only one spelling is accepted."""
    body, signature = READABLE.keys.wrap(bytes(size + 1))[2:].split(".")
    others = {one for one in ALPHABET if decode(body[:-1] + one) == decode(body)}
    assert len(others) == same
    for last in others - {body[-1]}:
        assert reason_of(f"1r{body[:-1]}{last}.{signature}") == "forged"


@BOTH
@shut
def test_open_of_every_other_encoding(sealer: Sealer, token: str) -> None:
    head, (body, signature) = token[:2], token[2:].split(".")
    pad = ["=" * (-len(part) % 4) for part in (body, signature)]
    others = {
        f"{head}{body}{pad[0]}.{signature}",
        f"{head}{body}.{signature}{pad[1]}",
        f"{head}{body}{pad[0]}.{signature}{pad[1]}",
        f"{head}{body}=.{signature}=",
        token.replace("-", "+").replace("_", "/"),
        token.upper(),
        token.lower(),
        token.swapcase(),
        head.upper() + token[2:],
        f"{head}{body.swapcase()}.{signature}",
        f"{head}{body}.{signature.swapcase()}",
        urllib.parse.quote(token.replace(".", "%2E")),
        token.replace(".", "%2E"),
        token.replace(".", ".."),
        token.replace(".", ""),
        token.replace(".", "\uff0e"),
        f"{head}{encode(decode(body) + bytes(1))}.{signature}",
        f"{head}{decode(body).hex()}.{decode(signature).hex()}",
        f"{head}.{body}.{signature}",
        f"{signature}.{body}",
        f'"{token}"',
        f"Bearer {token}",
        *(
            "".join(f"%{ord(c):02x}" if c == one else c for c in token)
            for one in set(token)
        ),
        *(space.join((head, body)) + "." + signature for space in " \t\n\r"),
        *(f"{token}{space}" for space in (" ", "\n", "\r\n", "\0")),
        *(f"{space}{token}" for space in (" ", "\n", "\r\n", "\0", "\ufeff")),
    } - {token}
    assert len(others) > 80
    for other in others:
        check_refused(other, sealer)


@shut
def test_open_of_swapped_heads() -> None:
    """Readable taken for encrypted, encrypted for readable, and of other formats."""
    for token, sealer in ((TOKEN, SEALER), (READ, SEALER), (READ, READABLE)):
        for head in ("1e", "1r", "2e", "0r", "ee", "11", "e1", "1E"):
            if not token.startswith(head):
                check_refused(head + token[2:], sealer)


@shut
def test_open_of_swapped_signatures() -> None:
    """Two of our tokens, each with the other's signature, body or head."""
    ones = [TOKEN, READ, OTHER_TOKEN]
    for one in ones:
        for other in ones:
            if one is not other:
                body, signature = one.split(".")[0], other.split(".")[1]
                assert reason_of(f"{body}.{signature}") == "forged"


@shut
@pytest.mark.parametrize("token", [None, 5, b"", TOKEN.encode(), ["1e"], {}, True, ""])
def test_open_of_values_that_are_not_strings(token: Any) -> None:
    assert reason_of(token) == "malformed"


@shut
def test_open_of_a_lot() -> None:
    limit = SEALER.refuse_at
    for char in "A.=\0é":
        assert reason_of(char * 10_000_000) == "malformed"
    assert reason_of("1e" + "A" * (limit - 46) + "." + "A" * 43) == "forged"
    assert reason_of("1e" + "A" * (limit - 45) + "." + "A" * 43) == "malformed"


def mutate(chance: random.Random, token: str, other: str) -> str:
    """A token with something wrong in one to three places."""
    for _ in range(chance.randint(1, 3)):
        at, to = sorted(chance.randrange(len(token) + 1) for _ in "ab")
        match chance.randrange(6):
            case 0:
                token = token[:at] + chance.choice(ALPHABET) + token[at + 1 :]
            case 1:
                token = token[:at] + chr(chance.randrange(256)) + token[at:]
            case 2:
                token = token[:at] + token[to:]
            case 3:
                token = token[:at] + other[at:to] + token[to:]
            case 4:
                token = token[:to] + token[at:]
            case _:
                token = (
                    token[:at]
                    + "".join(chance.sample(token[at:to], to - at))
                    + token[to:]
                )
    return token


def check_mutations(count: int) -> None:
    chance = random.Random(20260728)
    tokens = [TOKEN, OTHER_TOKEN, SHORT_TOKEN, READ]
    genuine = set(tokens)
    for _ in range(count):
        one, other = chance.sample(tokens, 2)
        mutated = mutate(chance, one, other)
        if mutated not in genuine:
            check_refused(mutated, SEALER)


@shut
def test_open_of_random_mutations() -> None:
    check_mutations(5_000)


@pytest.mark.long
@shut
def test_open_of_a_million_random_mutations() -> None:
    check_mutations(1_000_000)


# ---- which request ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"principal": "bob"}, "principal"),
        ({"principal": None}, "principal"),
        ({"target": "cancel"}, "target"),
        ({"method": "prompts/get"}, "target"),
        ({"arguments": {"title": "Dune", "copies": 3}}, "arguments"),
        ({"arguments": {"title": "Dune", "copies": 2, "more": None}}, "arguments"),
        ({"arguments": {}}, "arguments"),
        ({"arguments": None}, "arguments"),
        # The log has only the first reason, and does not reveal further ones.
        ({"arguments": {}, "principal": "bob"}, "arguments"),
    ],
)
@pytest.mark.parametrize("sealer", [SEALER, READABLE], ids=["encrypted", "readable"])
def test_open_for_another_request(
    changes: dict[str, Any], reason: str, sealer: Sealer
) -> None:
    token = sealer.seal(CLAIMS, CALL, now=NOW)
    assert reason_of(token, sealer, attrs.evolve(CALL, **changes)) == reason


def test_open_of_an_anonymous_state_after_a_sign_in() -> None:
    """A state from before the sign-in is not valid after it."""
    anonymous = attrs.evolve(CALL, principal=None)
    token = SEALER.seal(CLAIMS, anonymous, now=NOW)
    assert SEALER.open(token, anonymous, now=NOW) == CLAIMS
    assert reason_of(token) == "principal"


def test_open_with_reordered_arguments() -> None:
    reordered = attrs.evolve(CALL, arguments={"copies": 2, "title": "Dune"})
    assert list(reordered.arguments) != list(CALL.arguments)
    assert SEALER.open(TOKEN, reordered, now=NOW) == CLAIMS


def test_two_audiences_share_keys_and_no_states() -> None:
    other = attrs.evolve(SEALER, audience="library")
    assert reason_of(TOKEN, other) == "audience"
    assert other.open(other.seal(CLAIMS, CALL, now=NOW), CALL, now=NOW) == CLAIMS


def test_bindings_are_checked_before_times() -> None:
    """A client with another user's state must not learn the state's age."""
    stranger = attrs.evolve(CALL, principal="bob")
    assert reason_of(TOKEN, call=stranger, now=NOW + 10**6) == "principal"


# ---- when ---------------------------------------------------------------------------

TTL, LIFE, LEEWAY = SEALER.ttl, SEALER.life, SEALER.leeway


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (NOW, None),
        (NOW + TTL, None),
        (NOW + TTL + LEEWAY, None),
        (NOW + TTL + LEEWAY + 1, "expired"),
        (NOW + 10**9, "expired"),
        (NOW - LEEWAY, None),
        (NOW - LEEWAY - 1, "future"),
        (0, "future"),
    ],
)
def test_open_at(now: int, reason: str | None) -> None:
    if reason is None:
        assert SEALER.open(TOKEN, CALL, now=now) == CLAIMS
    else:
        assert reason_of(TOKEN, now=now) == reason


@pytest.mark.parametrize("leeway", [0, 1, 60])
@pytest.mark.parametrize("skew", [-61, -60, -2, -1, 0, 1, 2, 60, 61])
def test_open_under_a_clock_that_is_off(skew: int, leeway: int) -> None:
    """At once in another replica: it may be behind by the leeway, and ahead by more."""
    sealer = attrs.evolve(SEALER, leeway=leeway)
    if skew < -leeway:
        assert reason_of(TOKEN, sealer, now=NOW + skew) == "future"
    else:
        assert sealer.open(TOKEN, CALL, now=NOW + skew) == CLAIMS


def test_seal_under_a_clock_before_the_flow_began() -> None:
    """A replica that is behind re-mints nothing that began after it was issued."""
    token = SEALER.seal(CLAIMS, CALL, now=STARTED - 30)
    assert SEALER.open(token, CALL, now=STARTED - 60) == CLAIMS
    assert reason_of(token, now=STARTED - 61) == "future"
    assert SEALER.open(token, CALL, now=STARTED + TTL + LEEWAY) == CLAIMS
    assert reason_of(token, now=STARTED + TTL + LEEWAY + 1) == "expired"


def test_expiry_is_extended_every_round_until_the_life_is_over() -> None:
    now, token, rounds = STARTED, SEALER.seal(CLAIMS, CALL, now=STARTED), 0
    while now + TTL <= STARTED + LIFE:
        now += TTL
        opened = SEALER.open(token, CALL, now=now)
        assert opened.started == STARTED
        token = SEALER.seal(opened, CALL, now=now)
        rounds += 1
    assert rounds == LIFE // TTL == 24
    assert SEALER.open(token, CALL, now=STARTED + LIFE + LEEWAY) == CLAIMS
    assert reason_of(token, now=STARTED + LIFE + LEEWAY + 1) == "lifetime"


def test_times_with_fractions() -> None:
    """Times may be floats, as `time.time()` returns."""
    assert SEALER.seal(CLAIMS, CALL, now=NOW + 0.9) == TOKEN
    assert SEALER.open(TOKEN, CALL, now=NOW + TTL + LEEWAY + 0.9) == CLAIMS


@pytest.mark.parametrize("name", ["ttl", "life", "leeway", "warn_at", "refuse_at"])
def test_sealer_with_limits_from_0_to_2_to_the_30(name: str) -> None:
    """Beyond that a time would not fit into a token."""
    for limit in (0, 2**30):
        assert getattr(attrs.evolve(SEALER, **{name: limit}), name) == limit  # type: ignore[arg-type]
    for limit in (-1, 2**30 + 1):
        with pytest.raises(UsageError, match=name):
            attrs.evolve(SEALER, **{name: limit})  # type: ignore[arg-type]


# ---- under which key ----------------------------------------------------------------


def test_ring_rotates_with_conversations_in_flight() -> None:
    """Three deploys, two versions beside each other in each; no client starts again."""
    rings = [
        [Keys(OLD), Keys(OLD)],
        [Keys(OLD), Keys(NEW, OLD)],
        [Keys(NEW, OLD), Keys(NEW, OLD)],
        [Keys(NEW, OLD), Keys(OLD, NEW)],
        [Keys(OLD, NEW), Keys(OLD, NEW)],
    ]
    flows = [TOKEN, READ]
    now = NOW
    for served in rings:
        for keys in (*served, *reversed(served)):
            now += 10
            sealer = attrs.evolve(SEALER, keys=keys)
            opened = [sealer.open(token, CALL, now=now) for token in flows]
            assert opened == [CLAIMS] * len(flows)
            flows = [sealer.seal(one, CALL, now=now) for one in opened]
            flows.append(sealer.seal(CLAIMS, CALL, now=now))
    dropped = attrs.evolve(SEALER, keys=Keys(NEW))
    # What was sealed last is under the new key, so the old one can go. What was sealed
    # before that would be lost: wait until its last state has expired.
    for token in flows:
        assert dropped.open(token, CALL, now=now) == CLAIMS
    assert reason_of(TOKEN, dropped) == "forged"


def test_open_under_an_unknown_key() -> None:
    assert reason_of(TOKEN, attrs.evolve(SEALER, keys=Keys(NEW, OTHER))) == "forged"


def test_open_of_a_readable_state() -> None:
    """A switch to encryption keeps all states valid; a switch back does not."""
    assert SEALER.open(READ, CALL, now=NOW) == CLAIMS
    assert reason_of(TOKEN, READABLE) == "format"


def test_readable_state_can_be_read() -> None:
    assert b'"receipt"' in decode(READ[2:].split(".")[0])
    assert b"receipt" not in decode(TOKEN[2:].split(".")[0])


@pytest.mark.parametrize("head", ["2e", "2r", "9e", "ae"])
def test_open_of_an_unknown_format(head: str) -> None:
    """A newer server's state in an older one, in the middle of a deploy: refused, as
    taking it for no state would perform every step again."""
    value = head + TOKEN[2:].split(".")[0]
    token = SEALER.keys.sealing.signer.sign(value).decode()
    assert reason_of(token) == "format"


# ---- how large ----------------------------------------------------------------------


def prose(size: int) -> Claims:
    """Claims whose token has a given number of characters, about."""
    text = base64.b64encode(random.Random(1).randbytes(size)).decode()
    return claims_of(entry("step-1", "done", text), entry("now-1", "chance", "t"))


def test_seal_at_the_limit_and_one_past_it() -> None:
    claims = prose(2_000)
    size = len(SEALER.seal(claims, CALL, now=NOW))
    exact = attrs.evolve(SEALER, refuse_at=size)
    token = exact.seal(claims, CALL, now=NOW)
    assert exact.open(token, CALL, now=NOW) == claims
    short = attrs.evolve(SEALER, refuse_at=size - 1)
    assert reason_of(token, short) == "malformed"
    with pytest.raises(StateSizeError) as caught:
        short.seal(claims, CALL, now=NOW)
    error = caught.value
    assert (error.size, error.limit) == (size, size - 1)
    assert error.largest[0] == ("step-1", len(claims.journal.entries[0].payload))


def test_seal_of_too_much_names_the_largest() -> None:
    claims = claims_of(
        entry("elicit-1", "accepted", {"value": "Ann"}),
        entry(
            "gather-1",
            "gather",
            None,
            (entry("step-1", "done", "x" * 40_000),),
            (entry("step-1", "done", "y" * 30_000),),
        ),
        entry("step-1", "done", "z" * 20_000),
        entry("step-2", "done", "z" * 10_000),
    )
    with pytest.raises(StateSizeError) as caught:
        SEALER.seal(claims, CALL, now=NOW)
    assert caught.value.largest == (
        ("gather-1/0/step-1", 40_002),
        ("gather-1/1/step-1", 30_002),
        ("step-1", 20_002),
    )
    assert "gather-1/0/step-1 (40,002 bytes)" in str(caught.value)


def test_seal_warns_above_a_size(caplog: pytest.LogCaptureFixture) -> None:
    claims = prose(2_000)
    size = len(SEALER.seal(claims, CALL, now=NOW))
    caplog.set_level(logging.INFO, "effectmcp.state")
    attrs.evolve(SEALER, warn_at=size + 1).seal(claims, CALL, now=NOW)
    assert not caplog.records
    attrs.evolve(SEALER, warn_at=size).seal(claims, CALL, now=NOW)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert f"{size} characters" in said
    assert "('step-1', 2670)" in said


def test_defaults_warn_and_refuse(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "effectmcp.state")
    SEALER.seal(prose(8_000), CALL, now=NOW)
    assert not caplog.records
    SEALER.seal(prose(10_000), CALL, now=NOW)
    assert len(caplog.records) == 1
    with pytest.raises(StateSizeError, match="65,536"):
        SEALER.seal(prose(40_000), CALL, now=NOW)


def test_seal_refuses_claims_that_would_inflate_to_too_much() -> None:
    """Such a token would be short enough, but could never be opened."""
    with pytest.raises(StateSizeError) as caught:
        SEALER.seal(claims_of(bomb()), CALL, now=NOW)
    assert caught.value.limit == INFLATED
    assert caught.value.size > INFLATED
    assert caught.value.largest[0][0] == "elicit-1"


def test_open_of_a_bomb_under_a_valid_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Holders of a key could write a bomb. It gets the same error, in little memory."""
    text = entry("elicit-1", "accepted", {"value": "x" * 30_000_000})
    with monkeypatch.context() as patched:
        patched.setattr(codec, "INFLATED", 10**9)
        token = SEALER.seal(claims_of(text), CALL, now=NOW)
    assert len(token) < SEALER.refuse_at
    tracemalloc.start()
    try:
        assert reason_of(token) == "malformed"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * INFLATED
    assert "that we signed cannot be read: inflates" in caplog.text


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_open_of_any_bytes_under_a_valid_key(data: bytes) -> None:
    for sealer in (SEALER, READABLE):
        assert reason_of(sealer.keys.wrap(data or b"\0"), sealer) == "malformed"


# ---- messages for clients and for the log -------------------------------------------


def test_log_has_the_reason_and_no_line_of_the_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "effectmcp.state")
    call = BoundCall(method="resources/read", target="x:\nERROR a line of my own")
    assert reason_of(TOKEN, call=call) == "target"
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert "was refused: target" in record.getMessage()
    assert TOKEN not in record.getMessage()


def test_repr_of_a_sealer_shows_no_key() -> None:
    assert "Keys: 1" in repr(SEALER)
    assert OLD not in repr(SEALER)


def test_empty_journal_is_sealed_too() -> None:
    claims = Claims(flow_id=bytes(16), started=STARTED, journal=Journal())
    assert SEALER.open(SEALER.seal(claims, CALL, now=NOW), CALL, now=NOW) == claims


# ---- what could not be opened again is refused beforehand ---------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 3600.5},
        {"ttl": "5"},
        {"ttl": -1},
        {"ttl": 2**33},
        {"life": float("nan")},
        {"leeway": None},
        {"audience": None},
        {"audience": ""},
        {"audience": "\ud800"},
        {"keys": "a key"},
    ],
    ids=repr,
)
def test_sealer_names_the_argument_that_it_cannot_use(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        attrs.evolve(SEALER, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 5},
        {"trace": {}},
        {"started": -5},
        {"started": 1.5},
        {"started": 2**41},
    ],
    ids=repr,
)
def test_claims_name_the_invalid_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        attrs.evolve(CLAIMS, **wrong)


@pytest.mark.parametrize("now", [-5, 10**30, float("nan"), float("inf")])
def test_invalid_time_is_refused(now: float) -> None:
    with pytest.raises(UsageError, match="seconds since 1970"):
        SEALER.seal(CLAIMS, CALL, now=now)
    with pytest.raises(UsageError, match="seconds since 1970"):
        SEALER.open(TOKEN, CALL, now=now)


def test_size_error_can_be_copied() -> None:
    """A pool of processes hands errors on by pickling them."""
    error = StateSizeError(70_000, 65_536, [("a", 9)])
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error)
    assert (copied.size, copied.limit, copied.largest) == (70_000, 65_536, (("a", 9),))
    assert "largest" not in str(StateSizeError(70_000, 65_536, []))


def test_seal_of_a_tasks_journal() -> None:
    """A mistake of its embedder, and not a matter of size."""
    stamped = attrs.evolve(entry("elicit-1", "accepted", 5), wave=0)
    with pytest.raises(UsageError, match="a task's entries, which no client carries"):
        SEALER.seal(claims_of(stamped), CALL, now=NOW)


def test_open_of_a_state_of_a_newer_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica in a rolling deployment: the log does not speak of damage."""

    def newer(data: bytes) -> NoReturn:
        raise codec.NewerError("more than this version knows")

    monkeypatch.setattr(seal, "unpack", newer)
    assert reason_of(SHORT_TOKEN) == "format"
    assert "cannot be read" not in caplog.text


# ---- what a state is bound to -------------------------------------------------------

KEY = bytes(range(32))


def digests(bound: bytes) -> dict[str, bytes]:
    assert len(bound) == len(BOUND) * DIGEST_SIZE
    return {
        name: bound[at * DIGEST_SIZE : (at + 1) * DIGEST_SIZE]
        for at, name in enumerate(BOUND)
    }


def differing(one: bytes, other: bytes) -> set[str]:
    mine, theirs = digests(one), digests(other)
    return {name for name in BOUND if mine[name] != theirs[name]}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"method": "prompts/get"}, {"target"}),
        ({"target": "orde"}, {"target"}),
        ({"arguments": {"title": "Dune", "copies": 3}}, {"arguments"}),
        ({"arguments": {"title": "Dune"}}, {"arguments"}),
        ({"arguments": None}, {"arguments"}),
        ({"principal": "bob"}, {"principal"}),
        ({"principal": None}, {"principal"}),
        ({"principal": "ann", "target": "ann"}, {"target"}),
    ],
)
def test_bindings_differ_where_the_call_does(
    changes: dict[str, Any], names: set[str]
) -> None:
    other = attrs.evolve(CALL, **changes)
    assert differing(CALL.bind(KEY, "a"), other.bind(KEY, "a")) == names


def test_call_and_claims_are_given_by_name() -> None:
    """With two strings swapped, a state would be bound to no request."""
    with pytest.raises(TypeError):
        BoundCall("tools/call", "order")  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError):
        Claims(bytes(16), 0, Journal())  # type: ignore[call-arg]


def test_call_that_was_bound_is_still_the_same() -> None:
    one, other = attrs.evolve(CALL), attrs.evolve(CALL)
    one.bind(KEY, "a")
    assert one == other
    assert repr(one) == repr(other)


def test_bindings_differ_by_audience_and_key() -> None:
    assert differing(CALL.bind(KEY, "a"), CALL.bind(KEY, "b")) == {"audience"}
    assert len(differing(CALL.bind(KEY, "a"), CALL.bind(KEY[::-1], "a"))) == 4


def test_bindings_of_equal_values_differ_by_purpose() -> None:
    """One value in two places has two digests: none can be moved to another place."""
    call = BoundCall(method="", target="", arguments="x", principal="x")
    assert len(set(digests(call.bind(KEY, '"x"')).values())) == 4


def test_bindings_keep_method_and_target_apart() -> None:
    one = BoundCall(method="tools/call", target="xy")
    other = BoundCall(method="tools/callx", target="y")
    assert differing(one.bind(KEY, "a"), other.bind(KEY, "a")) == {"target"}


def test_bindings_do_not_know_the_order_of_arguments() -> None:
    other = attrs.evolve(CALL, arguments={"copies": 2, "title": "Dune"})
    assert CALL.bind(KEY, "a") == other.bind(KEY, "a")


def test_bindings_separate_null_from_the_string_null() -> None:
    """A user named "null" must not be taken for an anonymous client."""
    named = attrs.evolve(CALL, principal="null")
    nobody = attrs.evolve(CALL, principal=None)
    assert differing(named.bind(KEY, "a"), nobody.bind(KEY, "a")) == {"principal"}


def test_bindings_of_arguments_that_the_handler_changed() -> None:
    """A call holds what the client sent, even if a handler changes the arguments."""
    arguments: dict[str, Any] = {"titles": []}
    call = BoundCall(method="tools/call", target="order", arguments=arguments)
    before = call.bind(KEY, "a")
    arguments["titles"].append("Dune")
    assert call.bind(KEY, "a") == before


@given(calls)
def test_bindings_are_short_and_the_same_every_time(call: BoundCall) -> None:
    bound = call.bind(KEY, "a")
    assert bound == attrs.evolve(call).bind(KEY, "a")
    assert len(bound) == len(BOUND) * DIGEST_SIZE


@given(values)
def test_repr_of_a_call_shows_its_arguments(arguments: Any) -> None:
    call = BoundCall(method="m", target="t", arguments=arguments)
    assert repr(call) == (
        f"BoundCall(method='m', target='t', arguments={arguments!r}, principal=None)"
    )
    assert call == BoundCall(method="m", target="t", arguments=arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": float("nan")},
        {"arguments": ("a", "tuple")},
        {"arguments": "\ud800"},
        {"target": "\ud800"},
        {"principal": "\ud800"},
    ],
)
def test_call_that_json_cannot_carry(changes: dict[str, Any]) -> None:
    with pytest.raises(CanonicalError):
        attrs.evolve(CALL, **changes)


class Named(str):
    """A subclass of `str`, which is refused."""


@pytest.mark.parametrize("target", [None, 5, ["x"], Named("t")])
def test_call_with_a_target_that_is_not_a_string(target: Any) -> None:
    attrs.evolve(CALL, target="t")  # and one like it has been made before
    with pytest.raises(UsageError, match="target=.*give a text"):
        attrs.evolve(CALL, target=target)


def test_whole_seconds_refuses_times_out_of_range() -> None:
    assert whole_seconds(0.5) == 0
    assert whole_seconds(MAX_TIME) == MAX_TIME
    for now in (-0.5, MAX_TIME + 0.5, float("nan")):
        with pytest.raises(UsageError, match="seconds since 1970"):
            whole_seconds(now)
