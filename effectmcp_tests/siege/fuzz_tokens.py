"""Tokens: a state that was changed in any way is refused."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from effectmcp.errors import StateError
from effectmcp.state import Keys, Sealer, make_key

from ..state.journals import CALL, STARTED, claims_of, entry

__all__ = ["try_tokens"]

_NOW: Final = STARTED + 100
_OLD, _NEW, _OTHER = (make_key(bytes([n]) * 32) for n in (1, 2, 3))
_SEALERS: Final = (
    Sealer(keys=Keys(_OLD, _NEW), audience="bookshop"),
    Sealer(keys=Keys(_OLD, _NEW, readable=True), audience="bookshop"),
)
_CLAIMS: Final = (
    claims_of(),
    claims_of(entry("elicit-1", "accepted", {"value": "Ann"})),
    claims_of(
        entry("elicit-1", "accepted", {"value": "Ann"}),
        entry("step-1", "done", "receipt"),
        entry("sample-1", "accepted", "word " * 100),
    ),
)
_ALPHABET: Final = string.ascii_letters + string.digits + "-_.=+/ \n\0é"


def try_tokens(random: Random, count: int, seen: Counter[str]) -> Iterator[str]:
    """Open tokens that were changed."""
    valid = [
        [
            sealer.seal(claims, CALL, now=_NOW + late)
            for claims in _CLAIMS
            for late in range(2)
        ]
        for sealer in _SEALERS
    ]
    strange = Sealer(keys=Keys(_OTHER), audience="bookshop")
    foreign = [strange.seal(claims, CALL, now=_NOW) for claims in _CLAIMS]
    known = {token for tokens in valid for token in tokens}
    for _ in range(count):
        number = random.randrange(2)
        token = _altered(random, random.choice(valid[number]), sum(valid, foreign))
        if token in known:
            continue
        try:
            _SEALERS[number].open(token, CALL, now=_NOW + 2)
        except StateError as exc:
            seen[exc.reason] += 1
            if str(exc) != "Invalid or expired requestState":
                yield f"it says {exc}: {token!r}"
        except Exception as exc:
            yield f"{exc!r}: {token!r}"
        else:
            yield f"opened: {token!r}"


def _altered(random: Random, token: str, others: Sequence[str]) -> str:
    chars = list(token)
    at = random.randrange(len(chars))
    match random.randrange(8):
        case 0 | 1 | 2:
            for _ in range(random.choice((1, 1, 1, 2, 8))):
                chars[random.randrange(len(chars))] = random.choice(_ALPHABET)
        case 3:
            del chars[at : at + random.randrange(1, 5)]
        case 4:
            chars.insert(at, random.choice(_ALPHABET))
        case 5:
            return token[:at] + random.choice(others)[at:]
        case 6:
            chars[at] = chars[at].swapcase()
        case _:
            return random.choice(
                (token[:at], token[at:], token + token, token + "=", " " + token, "")
            )
    return "".join(chars)
