"""Bytes ↔ text under a ring of keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from itsdangerous import Signer

from effectmcp.errors import KeysError, StateError
from effectmcp.state import Keys, make_key
from effectmcp.state.keys import HOW, KEY_BYTES, Key

OLD, NEW, OTHER = (make_key(bytes([n]) * KEY_BYTES) for n in (1, 2, 3))
#: What a token looks like, in one expression. (Looking takes four times as long so.)
LOOK = re.compile(r"[0-9A-Za-z][er][A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}")
DATA = b"some bytes, padded to a block of sixty-four by whoever wrote them"


def reason_of(keys: Keys, token: str) -> str:
    with pytest.raises(StateError) as caught:
        keys.unwrap(token)
    return caught.value.reason


# ---- there and back -----------------------------------------------------------------


@given(st.binary(min_size=1, max_size=300), st.booleans())
def test_unwrap_returns_the_wrapped_bytes(data: bytes, readable: bool) -> None:
    keys = Keys(OLD, NEW, readable=readable)
    token = keys.wrap(data)
    assert keys.unwrap(token) == (data, keys.sealing)
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")
    assert keys.wrap(data) == token


def test_wrap_follows_the_documented_construction() -> None:
    """HMAC-SHA-256, HKDF with one label per purpose, AES-SIV with the head as associated data."""
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    def subkey(purpose: bytes, size: int) -> bytes:
        label = b"effectmcp requestState " + purpose
        taken = hmac.digest(bytes(32), bytes([1]) * KEY_BYTES, "sha256")
        out, last = b"", b""
        for number in range(1, size // 32 + 1):
            last = hmac.digest(taken, last + label + bytes([number]), "sha256")
            out += last
        return out

    def encode(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    for readable, head in ((False, b"1e"), (True, b"1r")):
        data = (
            DATA if readable else AESSIV(subkey(b"encrypt", 64)).encrypt(DATA, [head])
        )
        value = head + encode(data)
        signature = hmac.new(subkey(b"sign", 32), value, hashlib.sha256).digest()
        token = (value + b"." + encode(signature)).decode()
        assert Keys(OLD, readable=readable).wrap(DATA) == token


@given(st.binary(max_size=300), st.binary(min_size=32, max_size=64))
def test_signer_is_itsdangerous(value: bytes, secret: bytes) -> None:
    """The package's code, with SHA-256 and no key derivation, gives the same result."""
    ours = Key.derive(secret).signer
    theirs = Signer(
        ours.secret_keys[0], key_derivation="none", digest_method=hashlib.sha256
    )
    assert ours.sign(value) == theirs.sign(value)
    assert theirs.unsign(ours.sign(value)) == ours.unsign(theirs.sign(value)) == value


@given(
    st.from_regex(LOOK, fullmatch=True)
    | st.text("1er.A-_=+/\n", max_size=60)
    | st.text()
)
def test_unwrap_looks_at_the_alphabet_first(token: str) -> None:
    """Exactly the tokens that `LOOK` does not match are refused as malformed."""
    looks = LOOK.fullmatch(token) is not None
    assert (reason_of(Keys(OLD), token) == "malformed") is not looks


def test_wrap_of_readable_keys_can_be_read() -> None:
    token = Keys(OLD, readable=True).wrap(DATA)
    body = token[2:].partition(".")[0]
    assert base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)) == DATA
    encrypted = Keys(OLD).wrap(DATA)
    assert len(encrypted) > len(token)
    assert body not in encrypted


# ---- which key, and which form ------------------------------------------------------


def test_ring_rotates_in_three_phases() -> None:
    """Every phase opens what the one before and the one after it sealed."""
    phases = [Keys(OLD), Keys(NEW, OLD), Keys(OLD, NEW), Keys(NEW)]
    tokens = [keys.wrap(DATA) for keys in phases]
    assert tokens[0] == tokens[1]
    assert tokens[2] == tokens[3]
    for before, after in zip(phases, phases[1:], strict=False):
        for sealing, opening in ((before, after), (after, before)):
            assert opening.unwrap(sealing.wrap(DATA))[0] == DATA
    # What skipping the first phase does, and what dropping the old key does.
    assert reason_of(Keys(OLD), tokens[2]) == "forged"
    assert reason_of(Keys(NEW), tokens[0]) == "forged"


def test_unwrap_returns_the_key() -> None:
    """Bindings are keyed too, so the caller needs the key."""
    keys = Keys(OLD, NEW)
    assert keys.unwrap(Keys(OLD).wrap(DATA))[1] is not keys.sealing
    assert keys.unwrap(Keys(NEW).wrap(DATA))[1] is keys.sealing
    assert keys.sealing.binding == Keys(NEW).sealing.binding


def test_unwrap_under_another_ring() -> None:
    assert reason_of(Keys(OTHER), Keys(OLD, NEW).wrap(DATA)) == "forged"


def test_ring_that_encrypts_opens_what_was_readable() -> None:
    token = Keys(OLD, readable=True).wrap(DATA)
    assert Keys(OLD, NEW).unwrap(token)[0] == DATA


def test_ring_that_is_readable_opens_nothing_encrypted() -> None:
    """The next state would show what this one hid: results of steps not `public`."""
    token = Keys(OLD).wrap(DATA)
    assert reason_of(Keys(OLD, readable=True), token) == "format"


def test_unwrap_refuses_signed_tokens_with_invalid_bodies() -> None:
    """Only a bug could sign such tokens, but they are refused nevertheless."""
    keys = Keys(OLD)
    short = keys.sealing.signer.sign(b"1eAAAA").decode()
    odd = keys.sealing.signer.sign(b"1eA").decode()
    other = keys.sealing.signer.sign(b"1e" + b"A" * 200).decode()
    readable = keys.sealing.signer.sign(b"1rA").decode()
    for token in (short, odd, other, readable):
        assert reason_of(keys, token) == "malformed"


@pytest.mark.parametrize("head", ["2e", "0e", "Ae", "ze", "2r"])
def test_unwrap_of_another_format(head: str) -> None:
    """A signed token is refused too: this server cannot read a newer format."""
    keys = Keys(OLD)
    value = head.encode() + keys.wrap(DATA)[2:].partition(".")[0].encode()
    assert reason_of(keys, keys.sealing.signer.sign(value).decode()) == "format"


@pytest.mark.parametrize(
    "token",
    ["", ".", "1e.", "1e", "1eAAAA", "1eAAAA.", "1eAAAA.AAAA", "1xAAAA." + "A" * 43],
)
def test_unwrap_of_malformed_tokens(token: str) -> None:
    assert reason_of(Keys(OLD), token) == "malformed"


@example("1e" + "A" * 100_000)
@example("." * 100_000)
@given(st.text())
def test_unwrap_of_any_string(token: str) -> None:
    assert reason_of(Keys(OLD), token) in ("malformed", "format", "forged")


# ---- keys ---------------------------------------------------------------------------


def test_make_key_returns_a_key_that_keys_accept() -> None:
    key = make_key(bytes(range(32)))
    assert len(key) == 43
    assert Keys(key).unwrap(Keys(key).wrap(DATA))[0] == DATA
    assert len(make_key(bytes(64))) == 86


@pytest.mark.parametrize("last", string.ascii_letters + string.digits + "-_")
def test_make_key_keeps_all_of_the_entropy(last: str) -> None:
    """Every last letter is allowed: 33 bytes are 44 letters, without padding."""
    text = "k" * 43 + last
    assert make_key(base64.urlsafe_b64decode(text)) == text


@pytest.mark.parametrize("size", [0, 16, 31])
def test_make_key_of_too_few_bytes(size: int) -> None:
    with pytest.raises(KeysError, match="32 random bytes"):
        make_key(bytes(size))


@given(st.binary(min_size=32, max_size=70))
def test_keys_take_a_key_with_its_padding(entropy: bytes) -> None:
    """The padded form of `base64.urlsafe_b64encode`, and of most other tools."""
    padded = base64.urlsafe_b64encode(entropy).decode()
    assert Keys(padded).wrap(DATA) == Keys(make_key(entropy)).wrap(DATA)


BAD_KEYS: dict[str, Any] = {
    "empty": "",
    "padding": "==",
    "short": make_key(bytes(32))[:-1],
    "31 bytes": base64.urlsafe_b64encode(bytes(31)).decode(),
    "a password": "correct-horse-battery-staple",
    "standard base64": "+/" * 22,
    "hexadecimal, short": "ab" * 15,
    "spaces": OLD + " ",
    "newline": OLD + "\n",
    "inner padding": OLD[:20] + "=" + OLD[20:],
    "three of padding": OLD + "===",
    "one character over": "A" * 45,
    "not ASCII": "ż" * 43,
    "bytes": OLD.encode(),
    "a list": [OLD],
    "none": None,
}


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_keys_refuse_invalid_keys_with_advice(key: Any) -> None:
    """The message has the command for a new key, but not the key: messages are logged."""
    with pytest.raises(KeysError) as caught:
        Keys(NEW, key)
    assert HOW in str(caught.value)
    if len(key or "") > 10:
        assert str(key) not in str(caught.value)


def test_keys_name_the_bad_key() -> None:
    """Keys are counted from 1, in the order of the arguments."""
    with pytest.raises(KeysError, match="^key 1 is not base64url"):
        Keys("?", OLD)
    with pytest.raises(KeysError, match="^key 2 has 31 bytes"):
        Keys(OLD, base64.urlsafe_b64encode(bytes(31)).decode())


def test_keys_refuse_an_empty_ring() -> None:
    with pytest.raises(KeysError, match="no keys"):
        Keys()


@pytest.mark.parametrize("readable", [False, True])
def test_keys_say_that_they_protect(readable: bool) -> None:
    """A transport serves strangers under no other ring: see the test kit's."""
    assert Keys(OLD, readable=readable).protects


def test_repr_never_shows_a_key() -> None:
    keys = Keys(OLD, NEW)
    assert repr(keys) == str(keys) == "<Keys: 2>"
    assert repr(Keys(OLD, readable=True)) == "<Keys: 1, readable>"
    shown = repr(keys.sealing) + repr(vars(keys)) + repr(keys.sealing.signer)
    for secret in (NEW, OLD, str(bytes([2]) * 4), str(keys.sealing.binding)):
        assert secret not in shown


def test_subkeys_differ_by_purpose_and_key() -> None:
    one, other = Key.derive(bytes(32)), Key.derive(bytes(31) + b"\1")
    signing = [key.signer.secret_keys[0] for key in (one, other)]
    assert len({one.binding, other.binding, *signing}) == 4


def test_how_makes_a_key() -> None:
    """The command in the message is the advice: it must work."""
    import subprocess
    import sys

    made = subprocess.run(
        [sys.executable, "-m", *HOW.split()], capture_output=True, text=True, check=True
    )
    Keys(made.stdout.strip())
