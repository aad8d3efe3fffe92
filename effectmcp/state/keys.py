"""Bytes ↔ text under a ring of keys: unreadable, signed, URL-safe.

    1e<base64url of AES-SIV(bytes)>.<base64url of HMAC-SHA-256 over all before the dot>
    1r<base64url of bytes>.<the same>

`1` is the format of the contents, and `e` or `r` shows whether they are encrypted. Both
forms share one ring and one verification, which comes before anything is decrypted,
inflated or parsed.

Encryption is AES-SIV. It is deterministic, so this module needs no randomness and tests
can pin tokens; and it is misuse-resistant, so nothing depends on a nonce. itsdangerous
signs, with SHA-256 (its default is SHA-1) and without its key derivation: HKDF derives
a separate key for each purpose, once per ring.

A ring that writes readable states does not open encrypted ones. Otherwise, the result
that a step returned under encryption would be readable in the next state
(docs/internals/state.md#readable-rings).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import string
from hashlib import sha256
from typing import Final

from attrs import define
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from itsdangerous import Signer

from ..errors import KeysError, StateError

__all__ = ["Key", "Keys", "make_key"]

FORMAT: Final = "1"
#: 256 bits: less could be guessed, more adds nothing to HMAC-SHA-256.
KEY_BYTES: Final = 32
HOW: Final = "effectmcp keygen"

_ENCRYPTED: Final = f"{FORMAT}e".encode()
_READABLE: Final = f"{FORMAT}r".encode()

# `base64.urlsafe_b64encode` and the like do the same, through four functions.
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")

_ALPHABET: Final = (string.ascii_letters + string.digits + "-_").encode()
#: Characters of a signature, which has 32 bytes.
_SIGNATURE: Final = 43


def make_key(entropy: bytes) -> str:
    """Make a key for `Keys` from 32 or more bytes: `make_key(secrets.token_bytes(32))`.

    Raises:
        KeysError: If there are fewer than 32 bytes.
    """
    if len(entropy) < KEY_BYTES:
        raise KeysError(f"a key needs {KEY_BYTES} random bytes, not {len(entropy)}")
    return base64.urlsafe_b64encode(entropy).rstrip(b"=").decode()


@define(eq=False, repr=False)
class Key:
    """One key of the ring, with its subkeys derived beforehand.

    Attributes:
        signer: Signs states.
        cipher: Encrypts them.
        binding: The key of the digests in them.
        name: A name for logs. It is derived as the subkeys are, so it reveals nothing.
    """

    signer: Signer
    cipher: AESSIV
    binding: bytes
    name: str

    @classmethod
    def derive(cls, secret: bytes) -> Key:
        """Return the key whose subkeys are derived from `secret`, one per purpose."""
        return cls(
            _Signer(_subkey(secret, b"sign", 32)),
            AESSIV(_subkey(secret, b"encrypt", 64)),
            _subkey(secret, b"bind", 32),
            _subkey(secret, b"name", 4).hex(),
        )


class _Signer(Signer):
    """The signer of itsdangerous, but twice as fast for short values.

    The key is set up only once (RFC 2104, section 4), and base64 takes one function
    instead of four. A test checks that both signers agree.
    """

    def __init__(self, key: bytes) -> None:
        super().__init__(key, sep=".", key_derivation="none", digest_method=sha256)
        assert len(key) <= 64  # HMAC hashes a longer key first
        block = key.ljust(64, b"\0")
        self._inner = sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def get_signature(self, value: str | bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(value.encode() if isinstance(value, str) else value)
        outer.update(inner.digest())
        text = binascii.b2a_base64(outer.digest(), newline=False)
        return text.translate(_TO_URL).rstrip(b"=")


def _subkey(secret: bytes, purpose: bytes, size: int) -> bytes:
    label = b"effectmcp requestState " + purpose
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=label).derive(secret)


class Keys:
    """A ring of keys: the last key seals states, and every key opens them.

    To rotate, add the new key *before* the last one and deploy everywhere. Then move it
    to the end and deploy again. Remove the old key when its last state has expired.

    Args:
        *keys: Keys in base64url, of at least 32 bytes each, the oldest first.
        readable: Whether to leave out the encryption. Clients can then read their
            state, and steps that are not `public` are refused. Encrypted states are no
            longer opened, because their contents would become readable.

    Attributes:
        protects: Whether clients can neither read nor forge states. False only for the
            ring of the test kit.
        sealing: The key that seals.
        source: Where the keys are from, for the log; empty for the code of an author.

    Raises:
        KeysError: If there is no key, or if a key is too short or not base64url.
    """

    protects = True
    source = ""

    def __init__(self, *keys: str, readable: bool = False) -> None:
        if not keys:
            raise KeysError(f"a ring of no keys. Make one with: {HOW}")
        self.readable = readable
        self._ring = [
            Key.derive(_decode_key(key, nth)) for nth, key in enumerate(keys, 1)
        ]
        self.sealing = self._ring[-1]

    def __repr__(self) -> str:
        # Without the keys, as this ends up in logs.
        return f"<Keys: {len(self._ring)}{', readable' if self.readable else ''}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the keys for logs, in their order; the last one seals."""
        return tuple(key.name for key in self._ring)

    def wrap(self, data: bytes) -> str:
        """Encrypt (unless the ring is readable) and sign `data`; return the token."""
        key = self.sealing
        head = _READABLE if self.readable else _ENCRYPTED
        if not self.readable:
            data = key.cipher.encrypt(data, [head])
        text = binascii.b2a_base64(data, newline=False)
        value = head + text.translate(_TO_URL).rstrip(b"=")
        return (value + b"." + key.signer.get_signature(value)).decode("ascii")

    def unwrap(self, token: str) -> tuple[bytes, Key]:
        """Return the data that `wrap` was given, and the key that it used.

        Raises:
            StateError: If the token is `malformed`, of another `format`, or `forged`.
        """
        try:
            text = token.encode("ascii")
        except UnicodeEncodeError:
            raise StateError("malformed") from None
        value, _, signature = text.partition(b".")
        if (
            # One dot, and nothing else that base64url does not have.
            text.translate(None, _ALPHABET) != b"."
            or len(signature) != _SIGNATURE
            or len(value) < 3
            or not value[:1].isalnum()
            or value[1:2] not in (b"e", b"r")
        ):
            raise StateError("malformed")
        head = value[:2]
        if head != _READABLE and (head != _ENCRYPTED or self.readable):
            raise StateError("format")
        for key in reversed(self._ring):
            # The encoded forms are compared: base64 has spare bits and padding, so one
            # signature could be written in four ways, as four tokens.
            if hmac.compare_digest(key.signer.get_signature(value), signature):
                return _open(key, head, value[2:]), key
        raise StateError("forged")


def _open(key: Key, head: bytes, body: bytes) -> bytes:
    try:
        padded = body.translate(_FROM_URL) + b"=" * (-len(body) % 4)
        data = binascii.a2b_base64(padded)
        return key.cipher.decrypt(data, [head]) if head == _ENCRYPTED else data
    except (binascii.Error, InvalidTag):
        # The signature is valid, but this module never writes such a body.
        raise StateError("malformed") from None


def _decode_key(key: str, nth: int) -> bytes:
    # No message quotes the key: messages end up in logs.
    given: object = key
    if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z0-9_-]+={0,2}", given):
        raise KeysError(f"key {nth} is not base64url. Make one with: {HOW}")
    given = given.rstrip("=")
    try:
        secret = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
    except binascii.Error:
        raise KeysError(f"key {nth} is not base64url. Make one with: {HOW}") from None
    if len(secret) < KEY_BYTES:
        raise KeysError(
            f"key {nth} has {len(secret)} bytes, where {KEY_BYTES} are needed. Make one"
            f" with: {HOW}"
        )
    return secret
